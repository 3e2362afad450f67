//! What holds for jobs that do not say it themselves.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::me::About;
use super::roles::{Role, needs};
use crate::wire::{Policies, Retention};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(policies)))
}

/// The policies in force, and where they come from
///
/// What a job does not say itself is its type's, else its queue's, else the configured default, else what is built in. It
/// is copied onto the job at submission. What is built in of `retention` is the server's own, by which it removes the jobs of
/// the whole store for which nothing else was said.
#[utoipa::path(
    get,
    path = "/v1/policies",
    tag = "store",
    responses((status = 200, description = "The configuration of this server.", body = Policies))
)]
async fn policies(State(state): State<ApiState>, about: Option<Extension<Arc<About>>>) -> Json<Policies> {
    let mut policies = Policies::from(state.client().policies_in_force());
    if let Some(Extension(about)) = about {
        policies.built_in.retention = Some(Retention::from(about.retention).into());
    }
    Json(policies)
}
