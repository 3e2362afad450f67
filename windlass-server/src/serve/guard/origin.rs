//! What a browser must be told before a page of another origin that may call can do so (CORS).

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};

/// What such a page may send.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, if-match, if-none-match, last-event-id, traceparent, tracestate, x-request-id",
);
/// What it may read beside the body.
const EXPOSED: HeaderValue = HeaderValue::from_static("etag, retry-after, windlass-content-type, x-request-id");
/// For how many seconds a browser need not ask again.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");

/// Whether a browser only asks whether it may send something.
pub(super) fn is_question(request: &Request<Body>) -> bool {
    let asks = request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    *request.method() == Method::OPTIONS && asks
}

/// The answer to such a question. It says nothing that is not in the documents, so it needs no token.
pub(super) fn answer() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBERED);
    response
}

/// Lets pages of this origin read an answer.
pub(super) fn admit(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}
