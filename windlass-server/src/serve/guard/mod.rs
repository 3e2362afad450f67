//! What stands between the network and the API: every request goes through [`Guard::answer`], in this order.
//!
//! Is it for us (`host.rs`)? Who asks, and may they (`token.rs`)? Is there room for its body and a turn for it
//! (`load.rs`)? Only then does the API see it. Health is answered before all of that, so that it is answered when
//! nothing else is.

mod host;
mod load;
mod problem;
mod token;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub use self::host::Host;
pub use self::token::{Caller, Role, Token, Tokens, new_token, random};

use self::host::Foreign;
use self::load::Load;
use self::problem::{later, problem};
use super::config::{Limits, Settings};
use super::health::Health;
use super::metrics::{self, Exporter};

/// Says which role a call needs.
pub type RoleFor = fn(&Method, &str) -> Role;

/// Whether the caller may see payloads and results; for the API, on each request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShowPayloads(pub bool);

/// What is sent with every answer: a page of ours runs nothing from elsewhere and is framed by nobody.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The guard and what it guards.
#[derive(Debug)]
pub struct Guard {
    tokens: Tokens,
    hosts: Vec<Host>,
    origins: Vec<String>,
    hide_payloads: bool,
    public_metrics: bool,
    limits: Limits,
    load: Load,
    role_for: RoleFor,
    api: Router,
    health: Health,
    exporter: Exporter,
    stopping: CancellationToken,
}

impl Guard {
    /// Puts a guard in front of an API.
    pub fn new(
        settings: &Settings,
        api: Router,
        role_for: RoleFor,
        health: Health,
        exporter: Exporter,
        stopping: CancellationToken,
    ) -> Self {
        Guard {
            tokens: settings.tokens.clone(),
            hosts: settings.hosts.clone(),
            origins: settings.origins.clone(),
            hide_payloads: settings.hide_payloads,
            public_metrics: settings.public_metrics,
            limits: settings.limits,
            load: Load::new(settings.limits),
            role_for,
            // The guard bounds bodies by what they are for.
            api: api.layer(axum::extract::DefaultBodyLimit::disable()),
            health,
            exporter,
            stopping,
        }
    }

    /// Folds together what was measured, so that it does not grow between scrapes.
    pub fn fold_metrics(&self) {
        self.exporter.settle();
    }

    /// Answers a request. On a crowded connection, beyond the usual number, only health and metrics are.
    pub async fn answer(self: Arc<Self>, request: Request<Body>, crowded: bool) -> Response<Body> {
        let begun = Instant::now();
        let (method, resource) = (request.method().clone(), metrics::resource(request.uri().path()));
        let guarded = AssertUnwindSafe(self.guarded(request, crowded)).catch_unwind().await;
        let mut response = guarded.unwrap_or_else(|_| {
            tracing::error!(%method, resource, "a request handler panicked");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed; its log says more")
        });
        for (name, value) in HEADERS {
            response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
        }
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().entry(header::CACHE_CONTROL).or_insert(no_store);
        if crowded || self.stopping.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let status = response.status();
        metrics::http(&method, resource, status, begun.elapsed());
        tracing::debug!(%method, resource, status = status.as_u16(), seconds = begun.elapsed().as_secs_f64(), "answered");
        self.ended_by_stop(response)
    }

    async fn guarded(&self, request: Request<Body>, crowded: bool) -> Response<Body> {
        let looks = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/healthz" if looks => return self.health.live(),
            "/readyz" if looks => return self.health.ready().await,
            _ => {}
        }
        if let Err(foreign) = host::check(request.headers(), &self.hosts, &self.origins) {
            metrics::refused(reason(foreign));
            return self::foreign(foreign);
        }
        let is_metrics = looks && request.uri().path() == "/metrics";
        if is_metrics && self.public_metrics {
            return self.exporter.answer().await;
        }
        let caller = match self.caller(&request) {
            Ok(caller) => caller,
            Err(refusal) => return refusal,
        };
        if is_metrics {
            return self.exporter.answer().await;
        }
        if crowded {
            metrics::refused("connections");
            return later(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "the server has too many connections");
        }
        let (mut request, _room) = match self.with_body(request).await {
            Ok(read) => read,
            Err(refusal) => return *refusal,
        };
        let show = ShowPayloads(!(self.hide_payloads && caller.role == Role::Read));
        request.extensions_mut().insert(show);
        request.extensions_mut().insert(caller);
        self.call(request).await
    }

    /// Who asks, if they may do what they ask for.
    fn caller(&self, request: &Request<Body>) -> Result<Caller, Response<Body>> {
        if self.tokens.is_empty() {
            return Ok(Caller { name: None, role: Role::Admin });
        }
        let Some(caller) = bearer(request.headers()).and_then(|token| self.tokens.caller(token)) else {
            metrics::refused("token");
            let detail = "a known token is needed, as `Authorization: Bearer …`";
            let mut refusal = problem(StatusCode::UNAUTHORIZED, "unauthorized", detail);
            let scheme = HeaderValue::from_static("Bearer");
            refusal.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            return Err(refusal);
        };
        let path = request.uri().path();
        let wanted = if path == "/metrics" { Role::Read } else { (self.role_for)(request.method(), path) };
        if !caller.role.allows(wanted) {
            metrics::refused("role");
            let detail = format!("this needs role {wanted}; the token has {}", caller.role);
            return Err(problem(StatusCode::FORBIDDEN, "forbidden", &detail));
        }
        Ok(caller)
    }

    /// The request with its whole body in memory, and the room that it takes up there.
    async fn with_body(
        &self,
        request: Request<Body>,
    ) -> Result<(Request<Body>, Option<OwnedSemaphorePermit>), Box<Response<Body>>> {
        use axum::body::HttpBody;
        if request.body().is_end_stream() {
            return Ok((request, None));
        }
        let most = self.load.body_bytes(request.uri().path());
        let too_large = || {
            metrics::refused("body");
            let detail = format!("the body must have at most {most} bytes");
            Box::new(closing(problem(StatusCode::PAYLOAD_TOO_LARGE, "payload-too-large", &detail)))
        };
        let declared = request.body().size_hint().exact();
        let expected = declared.map_or(most, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if expected > most {
            return Err(too_large());
        }
        let Some(room) = self.load.room(expected).await else {
            metrics::refused("memory");
            let detail = "the server holds too many large bodies";
            return Err(Box::new(closing(later(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail))));
        };
        let (parts, body) = request.into_parts();
        let read = tokio::time::timeout(self.limits.body_timeout, axum::body::to_bytes(body, most)).await;
        match read {
            Ok(Ok(bytes)) => Ok((Request::from_parts(parts, Body::from(bytes)), Some(room))),
            // Of what can go wrong here only the limit leaves anybody to read the answer.
            Ok(Err(_)) => Err(too_large()),
            Err(_) => {
                metrics::refused("slow body");
                let detail = "the body took too long to arrive";
                Err(Box::new(closing(problem(StatusCode::REQUEST_TIMEOUT, "timeout", detail))))
            }
        }
    }

    /// Lets the API answer, in its turn.
    async fn call(&self, request: Request<Body>) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let Some(_turn) = self.load.turn(&method, &path).await else {
            metrics::refused("requests");
            return later(StatusCode::TOO_MANY_REQUESTS, "overloaded", "the server has too many requests at once");
        };
        let answered = self.api.clone().oneshot(request);
        let response = if load::waits(&method, &path) && path != "/v1/claims" {
            tokio::select! {
                biased;
                response = answered => response,
                () = self.stopping.cancelled() => {
                    return later(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the server is stopping");
                }
            }
        } else {
            answered.await
        };
        match response {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Ends a stream of events when the server stops; every other answer ends by itself.
    fn ended_by_stop(&self, response: Response<Body>) -> Response<Body> {
        let is_stream = |value: &HeaderValue| value.as_bytes().starts_with(b"text/event-stream");
        if !response.headers().get(header::CONTENT_TYPE).is_some_and(is_stream) {
            return response;
        }
        let stopping = self.stopping.clone();
        response.map(|body| {
            Body::from_stream(body.into_data_stream().take_until(async move { stopping.cancelled_owned().await }))
        })
    }
}

/// The token of a request: never from the URL, which ends up in logs.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let value = given.next()?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    Some(token.trim()).filter(|_| scheme.eq_ignore_ascii_case("bearer") && given.next().is_none())
}

fn foreign(foreign: Foreign) -> Response<Body> {
    match foreign {
        Foreign::BadHost => problem(StatusCode::BAD_REQUEST, "invalid-host", "the Host header is missing or malformed"),
        Foreign::OtherHost => {
            let detail = "the Host header names another server; names of this one go into `hosts` in its configuration";
            problem(StatusCode::MISDIRECTED_REQUEST, "unknown-host", detail)
        }
        Foreign::OtherOrigin => {
            problem(StatusCode::FORBIDDEN, "foreign-origin", "pages of other origins may not call this server")
        }
    }
}

fn reason(foreign: Foreign) -> &'static str {
    match foreign {
        Foreign::BadHost | Foreign::OtherHost => "host",
        Foreign::OtherOrigin => "origin",
    }
}

/// The rest of the body is not read, so the connection ends here.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
