//! What stands between the network and the API: every request goes through [`Guard::answer`], in this order.
//!
//! Is it for us (`host.rs`)? Who asks, and may they (`token.rs`)? Is there room for its body and a turn for it
//! (`load.rs`)? Only then does the API see it. Health is answered before all of that, so that it is answered when
//! nothing else is.

mod host;
mod load;
mod token;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use futures_util::FutureExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::Instrument;

pub use self::host::Host;
pub use self::token::{Known, Token, Tokens, new_token, random};

use self::host::Foreign;
use self::load::Load;
use super::config::{Limits, Settings};
use super::health::Health;
use super::metrics::{self, Exporter};
use crate::api::error::{REQUEST_ID, named, request_id};
use crate::api::roles::{Role, role_for};
use crate::api::{Caller, problem_response};
use crate::traces;
use crate::wire::{Kind, Problem};

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
            api,
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
        let id = request_id(request.headers());
        let span = traces::of_request(&method, resource, request.headers());
        let guarded = self.guarded(request, crowded).instrument(span.clone());
        let guarded = AssertUnwindSafe(guarded).catch_unwind().await;
        let mut response = guarded.unwrap_or_else(|_| {
            tracing::error!(%method, resource, "a request handler panicked");
            refusal(Kind::INTERNAL, "the server failed; its log says more")
        });
        if !response.headers().contains_key(REQUEST_ID) {
            response = named(response, &id);
        }
        for (name, value) in HEADERS {
            response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
        }
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().entry(header::CACHE_CONTROL).or_insert(no_store);
        if crowded || self.stopping.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let status = response.status();
        traces::tell_status(&span, status);
        metrics::http(&method, resource, status, begun.elapsed());
        let seconds = begun.elapsed().as_secs_f64();
        tracing::debug!(%method, resource, status = status.as_u16(), seconds, request = id, "answered");
        response
    }

    async fn guarded(&self, request: Request<Body>, crowded: bool) -> Response<Body> {
        let looks = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/healthz" if looks => return self.health.live(),
            "/readyz" if looks => return self.health.ready().await,
            _ => {}
        }
        if head_bytes(&request) > self.limits.header_bytes {
            metrics::refused("head");
            return closing(refusal(Kind::HEAD_TOO_LARGE, "the head of the request is too large"));
        }
        if let Err(foreign) = host::check(request.headers(), &self.hosts, &self.origins) {
            metrics::refused(reason(foreign));
            return self::foreign(foreign);
        }
        let is_metrics = looks && request.uri().path() == "/metrics";
        if is_metrics && self.public_metrics {
            return self.exporter.answer().await;
        }
        let known = match self.known(&request) {
            Ok(known) => known,
            Err(refusal) => return *refusal,
        };
        if is_metrics {
            return self.exporter.answer().await;
        }
        if crowded {
            metrics::refused("connections");
            return refusal(Kind::UNAVAILABLE, "the server has too many connections");
        }
        let (mut request, _room) = match self.with_body(request).await {
            Ok(read) => read,
            Err(refusal) => return *refusal,
        };
        let payloads_hidden = self.hide_payloads && known.role == Role::Read;
        request.extensions_mut().insert(Caller { name: known.name, payloads_hidden });
        self.call(request).await
    }

    /// Who asks, if they may do what they ask for.
    fn known(&self, request: &Request<Body>) -> Result<Known, Box<Response<Body>>> {
        if self.tokens.is_empty() {
            return Ok(Known { name: None, role: Role::Admin });
        }
        let Some(known) = bearer(request.headers()).and_then(|token| self.tokens.known(token)) else {
            metrics::refused("token");
            let mut refusal = refusal(Kind::UNAUTHENTICATED, "a known token is needed, as `Authorization: Bearer …`");
            refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return Err(Box::new(refusal));
        };
        let path = request.uri().path();
        let needed = if path == "/metrics" { Role::Read } else { role_for(request.method(), path) };
        if !known.role.covers(needed) {
            metrics::refused("role");
            let detail = format!("this needs the role {needed}; the token has {}", known.role);
            return Err(Box::new(refusal(Kind::UNAUTHORIZED, detail)));
        }
        Ok(known)
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
            Box::new(closing(refusal(Kind::PAYLOAD_TOO_LARGE, detail)))
        };
        let declared = request.body().size_hint().exact();
        let expected = declared.map_or(most, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if expected > most {
            return Err(too_large());
        }
        let Some(room) = self.load.room(expected).await else {
            metrics::refused("memory");
            return Err(Box::new(closing(refusal(Kind::UNAVAILABLE, "the server holds too many large bodies"))));
        };
        let (parts, body) = request.into_parts();
        let read = tokio::time::timeout(self.limits.body_timeout, axum::body::to_bytes(body, most)).await;
        match read {
            Ok(Ok(bytes)) => Ok((Request::from_parts(parts, Body::from(bytes)), Some(room))),
            // Of what can go wrong here only the limit leaves anybody to read the answer.
            Ok(Err(_)) => Err(too_large()),
            Err(_) => {
                metrics::refused("slow body");
                Err(Box::new(closing(refusal(Kind::REQUEST_TIMEOUT, "the body took too long to arrive"))))
            }
        }
    }

    /// Lets the API answer, in its turn.
    async fn call(&self, request: Request<Body>) -> Response<Body> {
        let Some(_turn) = self.load.turn(request.method(), request.uri().path()).await else {
            metrics::refused("requests");
            return refusal(Kind::TOO_MANY, "the server works on too many requests at once");
        };
        match self.api.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

fn refusal(kind: Kind, detail: impl Into<String>) -> Response<Body> {
    problem_response(Problem::new(kind, detail))
}

/// How large a request's head is. The HTTP library bounds what it reads, but only about.
fn head_bytes(request: &Request<Body>) -> usize {
    let uri = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    let line = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    uri + request.headers().iter().map(line).sum::<usize>()
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
        Foreign::BadHost => refusal(Kind::INVALID_ARGUMENT, "the Host header is missing or malformed"),
        Foreign::OtherHost => {
            let detail = "the Host header names another server; names of this one go into `hosts` in its configuration";
            refusal(Kind::MISDIRECTED, detail)
        }
        Foreign::OtherOrigin => refusal(Kind::UNAUTHORIZED, "pages of other origins may not call this server"),
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
