//! Errors become answers here and nowhere else.

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use uuid::Uuid;
use windlass::Error;

use crate::sparing::Sparing;
use crate::wire::{Kind, Problem};

/// The header that names a request, in the answer and, when it comes with one, in the request.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id taken over from a caller; a UUID with room.
const REQUEST_ID_BYTES_MAX: usize = 64;
/// When to try again after 429 and 503, in seconds.
const RETRY_AFTER_SECONDS: u16 = 1;

/// Why a request is not done: answered as a problem.
#[derive(Debug)]
pub struct Refusal(Box<Problem>);

impl Refusal {
    /// A refusal of this kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Refusal(Box::new(Problem::new(kind, detail)))
    }

    /// A refusal with a problem that was told before.
    pub(super) fn of(problem: Problem) -> Self {
        Refusal(Box::new(problem))
    }

    /// The same, and the field that is wrong.
    pub(super) fn field(mut self, field: &str) -> Self {
        self.0.field = Some(field.to_owned());
        self
    }

    /// The problem to answer with.
    pub fn problem(&self) -> &Problem {
        &self.0
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        if let Error::Store { .. } | Error::StoreUnavailable { .. } = &error {
            // The answer leaves out what the store said, so here is where it is told; an outage not once for each call.
            static SAID: Sparing = Sparing::new(std::time::Duration::from_secs(1));
            SAID.say(|left_out| tracing::error!(error = %error, left_out, "the store failed"));
        }
        Refusal(Box::new(Problem::of(&error)))
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Refusal(Box::new(problem))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        problem_response(*self.0)
    }
}

/// The answer that a problem is. `tell_request_id` adds the request's id to it.
pub fn problem_response(problem: Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(&problem)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    }
    response.extensions_mut().insert(problem);
    response
}

/// Gives every answer its request's id, and writes it into problems.
pub(super) async fn tell_request_id(request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let response = next.run(request).await;
    named(response, &id)
}

/// Gives an answer its request's id, and writes it into a problem.
pub(crate) fn named(mut response: Response, id: &str) -> Response {
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.request_id = Some(id.to_owned());
        let text = serde_json::to_vec(&problem).expect("a problem is plain JSON");
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(text.len()));
        *response.body_mut() = Body::from(text);
    }
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// The id that the request came with, if it is a plain one, or a new one.
pub(crate) fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let plain = |id: &&str| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    given.filter(plain).map_or_else(|| Uuid::new_v4().to_string(), str::to_owned)
}

pub(super) async fn no_such_route(method: Method, uri: Uri) -> Refusal {
    Refusal::new(Kind::NO_SUCH_ROUTE, format!("there is no {method} {:.200}", uri.path()))
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Refusal {
    Refusal::new(Kind::METHOD_NOT_ALLOWED, format!("{:.200} does not know {method}", uri.path()))
}
