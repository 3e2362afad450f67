//! What needs somebody, as `serve::attention` finds it.

use axum::Json;
use axum::extract::{Extension, State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::error::Refusal;
use super::extract::Query;
use super::me::About;
use super::recent::{self, MAX_AGE};
use super::roles::{Role, needs};
use crate::serve::attention::{AttentionItem, Seen};

/// What needs somebody, worst first.
#[derive(Debug, Serialize, ToSchema)]
struct Attention {
    items: Vec<AttentionItem>,
}

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(attention)))
}

/// What needs somebody
///
/// Ready jobs that nobody serves, queues that fall behind, paused queues and schedules with work, bursts of failures, lost
/// leases, late schedules and upkeep, handlers that overrun, webhooks that nobody sends, a store that is slow or nearly full.
/// Worst first; none is good.
#[utoipa::path(
    get,
    path = "/v1/attention",
    tag = "store",
    params(("max_age" = Option<String>, Query, description = MAX_AGE)),
    responses((status = 200, description = "Worst first; none is good.", body = Attention))
)]
async fn attention(
    State(state): State<ApiState>,
    about: Option<Extension<std::sync::Arc<About>>>,
    mut query: Query,
) -> Result<Json<Attention>, Refusal> {
    let age = recent::max_age(&mut query)?;
    query.done()?;
    let look = async {
        let _turn = state.bounds.turn().await?;
        let mut seen = Seen::look(&**state.store()).await?;
        seen.sends_webhooks = about.is_none_or(|Extension(about)| about.webhooks);
        seen.operations = state.operations.under_way();
        Ok::<_, Refusal>(seen.attention())
    };
    let items = state.recent.attention.get(age, look).await?.to_vec();
    Ok(Json(Attention { items }))
}
