//! The configuration read again on request, as SIGHUP does it: for an operator who revokes a token from another machine.

use axum::Json;
use axum::extract::State;
use tokio::sync::{mpsc, oneshot};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::error::Refusal;
use super::roles::{Role, needs};
use crate::wire::{Kind, Reloaded};

/// How many tokens are in force then, or why those from before stay so.
pub type Reread = Result<usize, String>;

/// Asks the server to read its configuration again.
#[derive(Clone, Debug)]
pub struct Reload(mpsc::Sender<oneshot::Sender<Reread>>);

/// What a server answers.
pub type Reloads = mpsc::Receiver<oneshot::Sender<Reread>>;

impl Reload {
    /// The asking half, for the API, and the answering one, for the server. One at a time is enough.
    pub fn new() -> (Self, Reloads) {
        let (ask, asked) = mpsc::channel(1);
        (Reload(ask), asked)
    }

    async fn ask(&self) -> Option<Reread> {
        let (answer, answered) = oneshot::channel();
        self.0.send(answer).await.ok()?;
        answered.await.ok()
    }
}

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Admin, routes!(reload)))
}

/// Read the tokens again
///
/// From the server's configuration, as SIGHUP does. A configuration that cannot be read changes nothing.
#[utoipa::path(
    post,
    path = "/v1/tokens/reload",
    tag = "store",
    responses((status = 200, description = "The tokens of the configuration are in force.", body = Reloaded))
)]
async fn reload(State(state): State<ApiState>) -> Result<Json<Reloaded>, Refusal> {
    let unavailable = || Refusal::new(Kind::UNAVAILABLE, "this server cannot read its configuration again now");
    let reload = state.reload.as_ref().ok_or_else(unavailable)?;
    match reload.ask().await.ok_or_else(unavailable)? {
        Ok(tokens) => Ok(Json(Reloaded { tokens })),
        // What is wrong with the file is for the log: it may quote a line with a secret.
        Err(why) => Err(Refusal::new(Kind::CONFLICT, why)),
    }
}
