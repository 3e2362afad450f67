//! Refusals of the guard, in the same form as the API's errors.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};

/// A refusal: `application/problem+json` (RFC 9457).
pub(super) fn problem(status: StatusCode, slug: &str, detail: &str) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or("refused");
    let body = serde_json::json!({ "type": slug, "title": title, "status": status.as_u16(), "detail": detail });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// A refusal that asks to come back in a second.
pub(super) fn later(status: StatusCode, slug: &str, detail: &str) -> Response<Body> {
    let mut response = problem(status, slug, detail);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
