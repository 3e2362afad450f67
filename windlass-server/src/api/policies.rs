//! What holds for jobs that do not say it themselves.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::roles::{Role, needs};
use crate::wire::Policies;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(policies)))
}

/// The policies in force, and where they come from
///
/// What a job does not say itself is its type's, else its queue's, else the configured default, else what is built in. It
/// is copied onto the job at submission.
#[utoipa::path(
    get,
    path = "/v1/policies",
    tag = "store",
    responses((status = 200, description = "The configuration of this server.", body = Policies))
)]
async fn policies(State(state): State<ApiState>) -> Json<Policies> {
    Json(Policies::from(state.client().policies_in_force()))
}
