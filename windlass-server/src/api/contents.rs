//! What producers and handlers wrote, byte for byte: a JSON number with twenty digits stays one.

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::{Error, JobId, Payload};

use super::ApiState;
use super::error::Refusal;
use super::extract::{Caller, Id};
use super::roles::{Role, needs};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(payload))).routes(needs(Role::Read, routes!(checkpoint)))
}

/// The payload of a job, as it is
///
/// JSON comes as `application/json`. Other bytes come as `application/octet-stream`, to be saved and not shown, with
/// their own content type in `windlass-content-type`.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/payload",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 200, description = "The payload.", content(
        (serde_json::Value = "application/json"),
        (Vec<u8> = "application/octet-stream"),
    )))
)]
async fn payload(State(state): State<ApiState>, caller: Caller, Id(id): Id<JobId>) -> Result<Response, Refusal> {
    check_shown(&caller, "payloads")?;
    Ok(exactly(&state.client().job(id).await?.spec.payload))
}

/// The last checkpoint of a job, as it is
///
/// In the same form as the payload.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/checkpoint",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    responses(
        (status = 200, description = "The checkpoint.", content(
            (serde_json::Value = "application/json"),
            (Vec<u8> = "application/octet-stream"),
        )),
        (status = 204, description = "It has saved none."),
    )
)]
async fn checkpoint(State(state): State<ApiState>, caller: Caller, Id(id): Id<JobId>) -> Result<Response, Refusal> {
    check_shown(&caller, "checkpoints")?;
    let Some(bytes) = state.client().job(id).await?.checkpoint else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok();
    let content_type = if is_json { "application/json" } else { "application/octet-stream" };
    Ok(exactly(&Payload::bytes(content_type, bytes)?))
}

fn check_shown(caller: &Caller, what: &str) -> Result<(), Error> {
    if caller.payloads_hidden {
        return Err(Error::Unauthorized(format!("{what} are hidden from this caller")));
    }
    Ok(())
}

/// The bytes, with the type that keeps a browser from running them.
pub(super) fn exactly(payload: &Payload) -> Response {
    let is_json = payload.is_json();
    let shown_as = if is_json { "application/json" } else { "application/octet-stream" };
    let mut response = ([(header::CONTENT_TYPE, shown_as)], payload.as_bytes().clone()).into_response();
    if !is_json {
        // A page of ours must never run what a handler returned.
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Ok(own_type) = HeaderValue::from_str(payload.content_type()) {
            headers.insert(HeaderName::from_static("windlass-content-type"), own_type);
        }
    }
    response
}
