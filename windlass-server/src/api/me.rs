//! Who asks and what they may do; and what there is to know of the server, for people. Nothing in it is secret.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::Retention as Kept;

use super::ApiState;
use super::error::Refusal;
use super::extract::Caller;
use super::roles::{Role, needs};
use crate::wire::Retention;

/// What a caller may do, as far as the guard knows; left by it in the request's extensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// What the caller may do.
    pub role: Role,
    /// Whether a session makes the caller known, and not a token.
    pub session: bool,
    /// Whether nobody may change anything.
    pub read_only: bool,
}

/// What the server tells of its settings; left by the guard in the request's extensions.
#[derive(Clone, Debug)]
pub struct About {
    /// How long ended jobs are kept.
    pub retention: Kept,
    /// The largest payload.
    pub payload_bytes: usize,
    /// Whether a token is asked for.
    pub tokens: bool,
    /// Whether webhooks are delivered.
    pub webhooks: bool,
    /// The largest body of a call that takes many jobs.
    pub batch_bytes: usize,
    /// The host names that it answers to, beside its own address.
    pub hosts: Vec<String>,
}

/// Who asks, and what they may do.
#[derive(Debug, Serialize, ToSchema)]
struct Me {
    /// The token's name; none where no token is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// `read`, `produce`, `work`, `operate` or `admin`.
    #[schema(value_type = String)]
    role: &'static str,
    /// Whether it is a session of the page and not a token.
    session: bool,
    /// Whether payloads, results and checkpoints are kept from this caller.
    payloads_hidden: bool,
    /// Whether nobody may change anything.
    read_only: bool,
}

/// The server, without anything secret.
#[derive(Debug, Serialize, ToSchema)]
struct ServerFacts {
    version: String,
    /// `sqlite`, `postgres` or `memory`.
    store: String,
    /// The version of the store's tables; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<u64>,
    /// Whether a token is asked for.
    tokens: bool,
    /// Whether webhooks are delivered.
    webhooks: bool,
    /// The largest payload, in bytes.
    payload_bytes: usize,
    /// The largest body of a call that takes many jobs, in bytes.
    batch_bytes: usize,
    /// The host names that it answers to, beside its own address.
    hosts: Vec<String>,
    retention: Retention,
}

/// The version of the tables that this program reads and writes: a store that has another is not opened.
fn schema(kind: &str) -> Option<u64> {
    match kind {
        "sqlite" => u64::try_from(windlass::store::sqlite::SCHEMA_VERSION).ok(),
        "postgres" => u64::try_from(windlass::store::postgres::SCHEMA_VERSION).ok(),
        _ => None,
    }
}

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(me))).routes(needs(Role::Read, routes!(server)))
}

/// Who you are and what you may do
#[utoipa::path(
    get,
    path = "/v1/me",
    tag = "store",
    responses((status = 200, description = "As the server knows you.", body = Me))
)]
async fn me(caller: Caller, standing: Option<Extension<Standing>>) -> Json<Me> {
    let everything = Standing { role: Role::Admin, session: false, read_only: false };
    let standing = standing.map_or(everything, |Extension(standing)| standing);
    Json(Me {
        name: caller.name,
        role: standing.role.as_str(),
        session: standing.session,
        payloads_hidden: caller.payloads_hidden,
        read_only: standing.read_only,
    })
}

/// What there is to know of the server
#[utoipa::path(
    get,
    path = "/v1/server",
    tag = "store",
    responses((status = 200, description = "Nothing secret.", body = ServerFacts))
)]
async fn server(
    State(state): State<ApiState>,
    about: Option<Extension<Arc<About>>>,
) -> Result<Json<ServerFacts>, Refusal> {
    let about = about.map(|Extension(about)| about);
    let usual = windlass::job::PAYLOAD_BYTES_DEFAULT;
    let payload_bytes = about.as_ref().map_or(usual, |about| about.payload_bytes);
    Ok(Json(ServerFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: state.store().kind().to_owned(),
        schema: schema(state.store().kind()),
        tokens: about.as_ref().is_some_and(|about| about.tokens),
        webhooks: about.as_ref().is_some_and(|about| about.webhooks),
        payload_bytes,
        batch_bytes: about.as_ref().map_or(super::BODY_BYTES_DEFAULT, |about| about.batch_bytes),
        hosts: about.as_ref().map(|about| about.hosts.clone()).unwrap_or_default(),
        retention: about.map_or_else(Kept::default, |about| about.retention).into(),
    }))
}
