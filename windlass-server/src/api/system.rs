//! The store as a whole: its time, its numbers, its upkeep; and the description of this API.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::Error;
use windlass::store::{CALL_MAX, Upkeep as StoredUpkeep};

use super::error::Refusal;
use super::extract::{Body, MaybeBody};
use super::roles::{Role, needs};
use super::{ApiState, openapi};
use crate::wire::{Findings, Now, Owner, Totals, Upkeep, UpkeepReport};

/// Longest name of an owner, in characters.
const OWNER_CHARS_MAX: usize = 100;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Read, routes!(now)))
        .routes(needs(Role::Read, routes!(stats)))
        .routes(needs(Role::Admin, routes!(upkeep)))
        .routes(needs(Role::Admin, routes!(check)))
        .routes(needs(Role::Admin, routes!(own)))
        .routes(needs(Role::Read, routes!(describe)))
}

/// The store's time, which decides everything
#[utoipa::path(
    get,
    path = "/v1/time",
    tag = "store",
    responses((status = 200, description = "The time.", body = Now))
)]
async fn now(State(state): State<ApiState>) -> Result<Json<Now>, Refusal> {
    Ok(Json(Now { now: state.store().now().await? }))
}

/// The numbers of the whole store
#[utoipa::path(
    get,
    path = "/v1/stats",
    tag = "store",
    responses((status = 200, description = "Cheap at any size.", body = Totals))
)]
async fn stats(State(state): State<ApiState>) -> Result<Json<Totals>, Refusal> {
    Ok(Json(state.store().totals().await?.into()))
}

/// One bounded step of upkeep
///
/// Ends lifetimes, takes back expired leases, fires schedules, prunes. The server does it by itself; this is for
/// programs that look after a store through it.
#[utoipa::path(
    post,
    path = "/v1/upkeep",
    tag = "store",
    request_body(content = Option<Upkeep>),
    responses((status = 200, description = "What the step did.", body = UpkeepReport))
)]
async fn upkeep(
    State(state): State<ApiState>,
    MaybeBody(asked): MaybeBody<Upkeep>,
) -> Result<Json<UpkeepReport>, Refusal> {
    let standard = StoredUpkeep::default();
    let request = StoredUpkeep {
        limit: asked.limit.unwrap_or(standard.limit),
        retention: asked.retention.map_or(standard.retention, Into::into),
    };
    if !(1..=CALL_MAX).contains(&request.limit) {
        return Err(Error::invalid("limit", format!("must be 1 to {CALL_MAX}, is {}", request.limit)).into());
    }
    Ok(Json(state.store().upkeep(&request).await?.into()))
}

/// Look for contradictions in what is stored
#[utoipa::path(
    get,
    path = "/v1/check",
    tag = "store",
    responses((status = 200, description = "Each finding is a sentence; none is good.", body = Findings))
)]
async fn check(State(state): State<ApiState>) -> Result<Json<Findings>, Refusal> {
    Ok(Json(Findings { items: state.store().check().await? }))
}

/// Mark a store as a command's own
///
/// For commands that settle and remove jobs by themselves, such as a benchmark. A store that somebody else has used is
/// refused.
#[utoipa::path(
    post,
    path = "/v1/owner",
    tag = "store",
    request_body = Owner,
    responses((status = 204, description = "The store is the command's own."))
)]
async fn own(State(state): State<ApiState>, Body(asked): Body<Owner>) -> Result<StatusCode, Refusal> {
    let length = asked.owner.chars().count();
    if !(1..=OWNER_CHARS_MAX).contains(&length) {
        let problem = format!("must have 1 to {OWNER_CHARS_MAX} characters, has {length}");
        return Err(Error::invalid("owner", problem).into());
    }
    state.store().own(&asked.owner).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// This description
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    tag = "store",
    responses((status = 200, description = "OpenAPI 3.1.", body = serde_json::Value))
)]
async fn describe() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi::document())
}
