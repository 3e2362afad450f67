//! Who asks: a token in the request's head, or the session of somebody who signed in; and `/session`, where they do.

use std::net::IpAddr;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde::Deserialize;

use super::access::{Admitted, Unknown};
use super::session::{self, Held, Jar};
use super::{Guard, bearer, closing, metrics, refusal};
use crate::api::roles::{Role, role_for};
use crate::wire::Kind;

/// Where a browser signs in and out.
pub(super) const PATH: &str = "/session";
/// The largest body of a sign-in: a token and what stands around it.
const BODY_BYTES_MAX: usize = 4096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    token: String,
}

impl Guard {
    /// Who asks, if they may do what they ask for, and the session by which they are known, if it is one.
    pub(super) fn admitted(
        &self,
        request: &Request<Body>,
        peer: IpAddr,
    ) -> Result<(Admitted, Option<Held>), Box<Response<Body>>> {
        let path = request.uri().path();
        let resource = metrics::resource(path);
        let (admitted, session) = self.identified(request.method(), request.headers()).map_err(|unknown| {
            metrics::refused("token");
            self.record.refused(&unknown, peer, resource);
            unauthenticated(&unknown)
        })?;
        let needed = if path == "/metrics" { Role::Read } else { role_for(request.method(), path) };
        if let Some(name) = &admitted.name {
            self.record.granted(name, peer);
        }
        let role = admitted.role;
        let refused = match () {
            () if needed != Role::Read && self.read_only => {
                Some(format!("this needs the role {needed}; the server is read-only"))
            }
            () if path == "/metrics" && admitted.bound => {
                Some("metrics are of all queues, and this token is bound to queues or types".to_owned())
            }
            () if !role.covers(needed) => Some(format!("this needs the role {needed}; the token has {role}")),
            () if session.is_some() && needed == Role::Work => {
                Some("this is for workers, which come with a token; a session does not do".to_owned())
            }
            () => None,
        };
        let Some(detail) = refused else { return Ok((admitted, session)) };
        metrics::refused("role");
        let name = admitted.name.as_deref().unwrap_or_default();
        self.record.forbidden(name, peer, needed.as_str(), resource);
        Err(Box::new(refusal(Kind::UNAUTHORIZED, detail)))
    }

    fn identified(&self, method: &Method, headers: &HeaderMap) -> Result<(Admitted, Option<Held>), Unknown> {
        let has_token = headers.contains_key(header::AUTHORIZATION);
        if !has_token
            && self.access.asks()
            && let Some(held) = self.sessions.of(method, headers)
        {
            return self.access.admit_marked(&held.mark).map(|admitted| (admitted, Some(held)));
        }
        self.access.admit(bearer(headers)).map(|admitted| (admitted, None))
    }

    /// Begins or ends a session.
    pub(super) async fn answer_session(&self, request: Request<Body>, peer: IpAddr) -> Response<Body> {
        if !matches!(*request.method(), Method::POST | Method::DELETE) {
            return refusal(Kind::METHOD_NOT_ALLOWED, "/session knows POST and DELETE");
        }
        if !session::is_own(request.method(), request.headers()) {
            metrics::refused("origin");
            return refusal(Kind::UNAUTHORIZED, "only the page of this server signs in and out");
        }
        if *request.method() == Method::DELETE {
            return with_cookies(Jar::clear(request.headers()));
        }
        if !self.access.asks() {
            return refusal(Kind::INVALID_ARGUMENT, "this server asks for no token");
        }
        let Some(jar) = Jar::of(request.headers()) else {
            let detail = "signing in over plain http is possible on this machine only, because anybody on the way could \
                 read the session: put TLS in front of the server, or come by 127.0.0.1";
            return refusal(Kind::UNAUTHORIZED, detail);
        };
        match self.token_in(request).await {
            Ok(token) => self.sign_in(&token, &jar, peer).await,
            Err(refusal) => *refusal,
        }
    }

    async fn token_in(&self, request: Request<Body>) -> Result<String, Box<Response<Body>>> {
        let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !content_type.is_some_and(|given| given.starts_with("application/json")) {
            let detail = "the body must be JSON, with the content type application/json";
            return Err(Box::new(refusal(Kind::UNSUPPORTED_MEDIA_TYPE, detail)));
        }
        let body = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX);
        let body = tokio::time::timeout(self.limits.body_timeout, body).await;
        let given = body.ok().and_then(Result::ok).and_then(|bytes| serde_json::from_slice::<SignIn>(&bytes).ok());
        // What is wrong with it is not repeated: it may hold most of a token.
        given.map(|given| given.token).ok_or_else(|| {
            Box::new(closing(refusal(Kind::INVALID_BODY, "the body must be {\"token\": \"…\"}, and short")))
        })
    }

    async fn sign_in(&self, token: &str, jar: &Jar, peer: IpAddr) -> Response<Body> {
        let unknown = match self.access.mark(token.trim()) {
            Ok(mark) => {
                self.record.session_begun(&mark.name, peer);
                return with_cookies([self.sessions.begin(&mark, jar)]);
            }
            Err(unknown) => unknown,
        };
        metrics::refused("token");
        self.record.refused(&unknown, peer, "session");
        let Ok(_turn) = self.sessions.wrong.try_acquire() else {
            return refusal(Kind::TOO_MANY, "too many wrong tokens at once");
        };
        tokio::time::sleep(session::WRONG_TOKEN_WAITS).await;
        let detail = match unknown {
            Unknown::Over(_) => "the token has expired",
            Unknown::None | Unknown::Wrong => "the server does not know this token",
        };
        refusal(Kind::UNAUTHENTICATED, detail)
    }
}

fn unauthenticated(unknown: &Unknown) -> Box<Response<Body>> {
    let detail = match unknown {
        Unknown::Over(_) => "the token has expired",
        Unknown::None | Unknown::Wrong => "a known token is needed, as `Authorization: Bearer …`",
    };
    let mut refusal = refusal(Kind::UNAUTHENTICATED, detail);
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Box::new(refusal)
}

fn with_cookies(cookies: impl IntoIterator<Item = HeaderValue>) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
