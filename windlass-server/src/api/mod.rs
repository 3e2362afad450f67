//! The HTTP API: decode, ask the store, encode. Every rule of the contract stays in the library.
//!
//! [`router`] gives all routes under `/v1`. Each is registered with the role that it needs; who may call is decided
//! before: a guard asks [`roles::role_for`] and leaves a [`Caller`] in its extensions. Errors become problems in `error.rs` only.

mod acting;
mod acts;
mod attention;
mod bounded;
mod contents;
mod control;
pub(crate) mod error;
mod errors;
mod events;
mod extract;
mod firings;
mod gone;
mod history;
mod jobs;
mod leases;
mod me;
mod numbers;
mod openapi;
mod operations;
mod policies;
mod pulse;
mod queues;
mod recent;
mod reload;
pub mod roles;
mod schedules;
mod series;
mod submit;
mod system;
mod workflows;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use windlass::Client;
use windlass::store::Store;

pub use error::{Refusal, problem_response};
pub use extract::Caller;
pub use gone::Gone;
pub use me::{About, Standing};
pub use openapi::document;
pub use reload::{Reload, Reloads, Reread};
pub(crate) use submit::UNDELIVERED;

use self::bounded::Bounds;
use self::operations::Registry;

/// Largest request body unless set otherwise: a batch of 10,000 plain jobs, or a result of 16 MiB in base64.
pub const BODY_BYTES_DEFAULT: usize = 32 << 20;

/// What the handlers work with. Clones share everything.
#[derive(Clone, Debug)]
pub struct ApiState {
    client: Client,
    stopping: CancellationToken,
    operations: Arc<Registry>,
    bounds: Arc<Bounds>,
    pulse: pulse::Pulse,
    recent: Arc<recent::Recent>,
    gone: Arc<Gone>,
    reload: Option<Reload>,
    body_bytes: usize,
}

impl ApiState {
    /// The API of a client's store, under its limits and policies.
    pub fn new(client: Client) -> Self {
        ApiState {
            client,
            stopping: CancellationToken::new(),
            operations: Arc::default(),
            bounds: Arc::default(),
            pulse: pulse::Pulse::default(),
            recent: Arc::default(),
            gone: Arc::default(),
            reload: None,
            body_bytes: BODY_BYTES_DEFAULT,
        }
    }

    /// The same on another client, which may see other jobs: with operations, a pulse and numbers of its own, and under the same bounds,
    /// which are of the process.
    #[must_use]
    pub fn on(&self, client: Client) -> Self {
        let (operations, pulse, gone) = (Arc::default(), pulse::Pulse::default(), Arc::default());
        ApiState { client, operations, pulse, gone, recent: Arc::default(), ..self.clone() }
    }

    /// The same on another client that sees the same jobs: operations and numbers are shared.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        ApiState { client, ..self.clone() }
    }

    /// Lets an admin have the configuration read again.
    #[must_use]
    pub fn reload(mut self, reload: Reload) -> Self {
        self.reload = Some(reload);
        self
    }

    /// Tells of the workers that this one saw go.
    #[must_use]
    pub fn gone(mut self, gone: Arc<Gone>) -> Self {
        self.gone = gone;
        self
    }

    /// Ends long polls, streams and bulk work when this token is cancelled.
    #[must_use]
    pub fn stopping(mut self, stopping: CancellationToken) -> Self {
        self.stopping = stopping;
        self
    }

    /// Sets the largest request body.
    #[must_use]
    pub fn body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.client.store()
    }
}

/// All routes of the API; whatever else is asked for under them is a problem, too.
pub fn router(state: ApiState) -> Router {
    let limit = DefaultBodyLimit::max(state.body_bytes);
    let (router, _) = routes().split_for_parts();
    router
        .with_state(state)
        .fallback(error::no_such_route)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(limit)
        .layer(middleware::from_fn(error::tell_request_id))
}

/// The routes with their descriptions.
fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .merge(submit::routes())
        .merge(jobs::routes())
        .merge(contents::routes())
        .merge(errors::routes())
        .merge(history::routes())
        .merge(acts::routes())
        .merge(operations::routes())
        .merge(leases::routes())
        .merge(queues::routes())
        .merge(control::routes())
        .merge(workflows::routes())
        .merge(schedules::routes())
        .merge(firings::routes())
        .merge(events::routes())
        .merge(pulse::routes())
        .merge(policies::routes())
        .merge(system::routes())
        .merge(reload::routes())
        .merge(me::routes())
        .merge(series::routes())
        .merge(numbers::routes())
        .merge(attention::routes())
}
