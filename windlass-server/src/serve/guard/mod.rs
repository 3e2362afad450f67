//! What stands between the network and the API: every request goes through [`Guard::answer`], in this order.
//!
//! Is it for us (`host.rs`)? Is it a file of the page, which needs nobody's leave? Who asks, and may they (`token.rs`,
//! `session.rs`, `sign_in.rs`)? Is there room for its body and a turn for it (`load.rs`)? Only then does the API see it.
//! Health is answered before all of that, so that it is answered when nothing else is.

mod access;
mod host;
mod load;
mod origin;
mod record;
mod session;
mod sign_in;
mod token;

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use bytes::BytesMut;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::Instrument;

pub use self::access::{Apis, Seen};
pub use self::host::Host;
pub use self::session::SessionSecret;
pub use self::token::{Token, Tokens, is_guessed, new_token, random};

use self::access::{Access, Admitted, Until};
use self::host::Foreign;
use self::load::{Answered, Class, Full, Held, Load, Pools, Room};
use self::record::Record;
use self::session::Sessions;
use super::config::{Limits, Settings};
use super::health::Health;
use super::metrics::{self, Exporter};
use crate::api::error::{REQUEST_ID, named, request_id};
use crate::api::{About, Caller, Standing, problem_response};
use crate::wire::{Kind, Problem};
use crate::{page, traces};

/// What is sent with every answer: a page of ours runs nothing from elsewhere and is framed by nobody.
const HEADERS: [(HeaderName, &str); 6] = [
    // The page has a policy of its own; answers of the API are data, and nothing in them is run or framed.
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The guard and what it guards.
#[derive(Debug)]
pub struct Guard {
    access: Access,
    sessions: Sessions,
    record: Record,
    hosts: Vec<Host>,
    origins: Vec<String>,
    base: String,
    read_only: bool,
    about: Arc<About>,
    public_metrics: bool,
    limits: Limits,
    load: Load,
    health: Health,
    exporter: Exporter,
    stopping: CancellationToken,
}

impl Guard {
    /// Puts a guard in front of an API.
    pub fn new(
        settings: &Settings,
        apis: Apis,
        health: Health,
        exporter: Exporter,
        stopping: CancellationToken,
    ) -> anyhow::Result<Self> {
        let load = Load::new(settings.limits);
        Ok(Guard {
            access: Access::new(apis, settings, &load),
            sessions: Sessions::new(settings.session_secret.as_ref())?,
            record: Record::new(),
            hosts: settings.hosts.clone(),
            origins: settings.origins.clone(),
            base: settings.base.clone(),
            read_only: settings.read_only,
            about: Arc::new(settings.about()),
            public_metrics: settings.public_metrics,
            limits: settings.limits,
            load,
            health,
            exporter,
            stopping,
        })
    }

    /// Folds together what was measured, so that it does not grow between scrapes.
    pub fn fold_metrics(&self) {
        self.exporter.settle();
    }

    /// Puts other tokens in force.
    pub fn replace_tokens(&self, tokens: Tokens) {
        self.access.replace(tokens, &self.load);
    }

    /// Whether a token is asked for.
    pub fn asks_for_tokens(&self) -> bool {
        self.access.asks()
    }

    /// Answers a request. On a crowded connection, beyond the usual number, only health and metrics are.
    pub async fn answer(self: Arc<Self>, request: Request<Body>, peer: IpAddr, crowded: bool) -> Response<Body> {
        let begun = Instant::now();
        let request = without_base(request, &self.base);
        let (method, resource) = (request.method().clone(), metrics::resource(request.uri().path()));
        let id = request_id(request.headers());
        let span = traces::of_request(&method, resource, request.headers());
        let origin = host::known_origin(request.headers(), &self.origins);
        let guarded = self.guarded(request, peer, crowded).instrument(span.clone());
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
        if let Some(origin) = origin {
            origin::admit(response.headers_mut(), origin);
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

    async fn guarded(&self, request: Request<Body>, peer: IpAddr, crowded: bool) -> Response<Body> {
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
        if let Err(foreign) = self.check_origin(&request) {
            metrics::refused(reason(foreign));
            return self::foreign(foreign);
        }
        if origin::is_question(&request) && host::known_origin(request.headers(), &self.origins).is_some() {
            return origin::answer();
        }
        if !crowded && let Some(answer) = self.answer_page(&request) {
            return answer;
        }
        let is_metrics = looks && request.uri().path() == "/metrics";
        if is_metrics && self.public_metrics {
            return self.exporter.answer().await;
        }
        if !crowded && request.uri().path() == sign_in::PATH {
            return self.answer_session(request, peer).await;
        }
        let (admitted, session) = match self.admitted(&request, peer) {
            Ok(admitted) => admitted,
            Err(refusal) => return *refusal,
        };
        if is_metrics {
            return self.exporter.answer().await;
        }
        if crowded {
            metrics::refused("connections");
            return refusal(Kind::UNAVAILABLE, "the server has too many connections");
        }
        let class = Class::of(request.method(), request.uri().path());
        let mut room = self.load.room(class, admitted.share.as_deref());
        let mut request = match self.with_body(request, &mut room).await {
            Ok(read) => read,
            Err(refusal) => return *refusal,
        };
        let Admitted { name, payloads_hidden, role, share, until, api, .. } = admitted;
        let standing = Standing { role, session: session.is_some(), read_only: self.read_only };
        request.extensions_mut().insert(Caller { name, payloads_hidden });
        request.extensions_mut().insert(standing);
        request.extensions_mut().insert(Arc::clone(&self.about));
        let answered = self.call(api, request, class, share.as_deref(), until.clone());
        let mut response = match class.lasts() {
            false => answered.await,
            // Nobody waits on under a token that is not known any more.
            true => tokio::select! {
                response = answered => response,
                () = until.reached() => refusal(Kind::UNAUTHENTICATED, "the token has ended"),
            },
        };
        if let Some(cookie) = session.and_then(|held| held.renewed) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        response
    }

    fn answer_page(&self, request: &Request<Body>) -> Option<Response<Body>> {
        page::answer(request.method(), request.uri().path(), request.headers(), &self.base)
    }

    /// Whether a request is for us and from our own pages, or from those that may call.
    fn check_origin(&self, request: &Request<Body>) -> Result<(), Foreign> {
        host::check(request.headers(), &self.hosts, &self.origins)?;
        // A link to a page may stand anywhere.
        let path = request.uri().path();
        if path.starts_with("/v1") || path == "/metrics" { host::check_site(request.headers()) } else { Ok(()) }
    }

    /// The request with its whole body in memory, where `room` grows with it.
    async fn with_body(
        &self,
        request: Request<Body>,
        room: &mut Room<'_>,
    ) -> Result<Request<Body>, Box<Response<Body>>> {
        use axum::body::HttpBody;
        if request.body().is_end_stream() {
            return Ok(request);
        }
        if let Some(coding) = request.headers().get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity") {
            let detail = format!("the body must not be encoded, is {:.20}", coding.to_str().unwrap_or("?"));
            return Err(Box::new(closing(refusal(Kind::UNSUPPORTED_MEDIA_TYPE, detail))));
        }
        let path = request.uri().path().to_owned();
        let most = self.load.body_bytes(&path);
        let declared = request.body().size_hint().exact();
        if declared.is_some_and(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX) > most) {
            return Err(too_large(most));
        }
        let (parts, body) = request.into_parts();
        let read = tokio::time::timeout(self.limits.body_timeout, arrived(body, most, room)).await;
        match read {
            Ok(Ok(bytes)) => match room.decode(self.load.decoded_bytes(&path, &bytes)).await {
                Ok(()) => Ok(Request::from_parts(parts, Body::from(bytes))),
                Err(full) => Err(no_room(full)),
            },
            Ok(Err(refusal)) => Err(refusal),
            Err(_) => {
                metrics::refused("slow body");
                Err(Box::new(closing(refusal(Kind::REQUEST_TIMEOUT, "the body took too long to arrive"))))
            }
        }
    }

    /// Lets the API answer, in its turn. What waits keeps its place until its answer has been sent.
    async fn call(
        &self,
        api: Router,
        request: Request<Body>,
        class: Class,
        own: Option<&Pools>,
        until: Until,
    ) -> Response<Body> {
        let turn = match self.load.turn(class, own).await {
            Ok(turn) => turn,
            Err(Full::Server) => {
                metrics::refused("requests");
                return refusal(Kind::TOO_MANY, "the server works on too many requests at once");
            }
            Err(Full::Token) => {
                metrics::refused("token share");
                return refusal(Kind::TOO_MANY, "this token has too many requests under way");
            }
        };
        let response = if class.looks() { self.weighed(api, request, own).await } else { answered(api, request).await };
        if !class.looks() && !class.lasts() {
            // It cannot be asked again: without room it keeps the place of its call until it has been sent.
            return match self.load.done(known_bytes(&response), own) {
                Some(None) => response,
                Some(room) => held(response, room),
                None => response.map(|body| Held::body(body, Some(turn))),
            };
        }
        if class.lasts() {
            return response.map(|body| Held::stream(body, turn, until.reached().boxed()));
        }
        response
    }

    /// The answer to a call that changes nothing, with room until it has been sent. Where there is none it is let go, so that any
    /// number of callers may wait, and is asked for again when there is.
    async fn weighed(&self, api: Router, request: Request<Body>, own: Option<&Pools>) -> Response<Body> {
        let Some((request, again)) = twice(request).await else {
            return refusal(Kind::INTERNAL, "the body was read before");
        };
        let response = answered(api.clone(), request).await;
        let bytes = known_bytes(&response);
        if let Some(room) = self.load.answer(bytes, own) {
            return held(response, room);
        }
        drop(response);
        let full = || {
            metrics::refused("answers");
            refusal(Kind::UNAVAILABLE, "too many large answers are on their way; try again")
        };
        let Ok(room) = self.load.wait_to_answer(bytes, own).await else { return full() };
        let response = answered(api, again).await;
        // It may have grown meanwhile.
        if known_bytes(&response) > bytes { full() } else { held(response, room) }
    }
}

async fn answered(api: Router, request: Request<Body>) -> Response<Body> {
    match api.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// An answer with its room; one that is written as it is sent has taken its own.
fn held(response: Response<Body>, room: Option<Answered>) -> Response<Body> {
    response.map(|body| Held::body(body, room))
}

/// How large an answer is; nothing for a stream, which has bounds of its own.
fn known_bytes(response: &Response<Body>) -> usize {
    use axum::body::HttpBody;
    response.body().size_hint().exact().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// A request that is in memory already, twice: the copies share its body.
async fn twice(request: Request<Body>) -> Option<(Request<Body>, Request<Body>)> {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.ok()?;
    let again = Request::from_parts(parts.clone(), Body::from(bytes.clone()));
    Some((Request::from_parts(parts, Body::from(bytes)), again))
}

/// A body as it arrives, up to `most` bytes.
async fn arrived(body: Body, most: usize, room: &mut Room<'_>) -> Result<Bytes, Box<Response<Body>>> {
    let (mut frames, mut bytes) = (body.into_data_stream(), BytesMut::new());
    while let Some(frame) = frames.next().await {
        let Ok(frame) = frame else {
            metrics::refused("broken body");
            return Err(Box::new(closing(refusal(Kind::INVALID_BODY, "the body cannot be read to its end"))));
        };
        let whole = bytes.len() + frame.len();
        if whole > most {
            return Err(too_large(most));
        }
        room.grow(whole).await.map_err(no_room)?;
        bytes.extend_from_slice(&frame);
    }
    Ok(bytes.freeze())
}

fn no_room(full: Full) -> Box<Response<Body>> {
    metrics::refused("memory");
    let detail = match full {
        Full::Server => "the server holds too many large bodies",
        Full::Token => "the server holds too many large bodies of this token",
    };
    Box::new(closing(refusal(Kind::UNAVAILABLE, detail)))
}

fn too_large(most: usize) -> Box<Response<Body>> {
    metrics::refused("body");
    let detail = format!("the body must have at most {most} bytes");
    Box::new(closing(refusal(Kind::PAYLOAD_TOO_LARGE, detail)))
}

/// A request under the prefix of a proxy, as it would be without. A proxy that takes the prefix off does no harm.
fn without_base(mut request: Request<Body>, base: &str) -> Request<Body> {
    let path_and_query = request.uri().path_and_query().map_or("/", axum::http::uri::PathAndQuery::as_str);
    let is_path = |rest: &&str| !base.is_empty() && (rest.is_empty() || rest.starts_with(['/', '?']));
    let rest = path_and_query.strip_prefix(base).filter(is_path);
    let Some(rest) = rest else { return request };
    let inner = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    if let Ok(uri) = inner.parse() {
        *request.uri_mut() = uri;
    }
    request
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
        Foreign::OtherOrigin | Foreign::OtherSite => {
            refusal(Kind::UNAUTHORIZED, "pages of other origins may not call this server")
        }
    }
}

fn reason(foreign: Foreign) -> &'static str {
    match foreign {
        Foreign::BadHost | Foreign::OtherHost => "host",
        Foreign::OtherOrigin | Foreign::OtherSite => "origin",
    }
}

/// The rest of the body is not read, so the connection ends here.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
