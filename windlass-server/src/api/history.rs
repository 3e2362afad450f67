//! What happened to one job, in order: put together from its record, its attempts and the acts that name it.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::JobId;

use super::ApiState;
use super::error::Refusal;
use super::extract::Id;
use super::roles::{Role, needs};
use crate::history;
use crate::wire::History;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(history)))
}

/// What happened to a job
///
/// From its submission to now, oldest first: its attempts, what operators did to it by its id, and its end. Of attempts the
/// newest 100 are kept, and of acts the newest 10,000 are looked at; `complete` says whether anything may be missing.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/history",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 200, description = "Oldest first.", body = History))
)]
async fn history(State(state): State<ApiState>, Id(id): Id<JobId>) -> Result<Json<History>, Refusal> {
    let store = state.store();
    let _turn = state.bounds.turn().await?;
    Ok(Json(history::read(&**store, id).await?))
}
