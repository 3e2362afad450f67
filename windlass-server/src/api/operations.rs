//! Acts on many jobs: a loop of bounded steps in the background, to be followed and stopped.
//!
//! What runs here is known to this server only and ends with it; what it has changed stays changed, and the store has
//! recorded each step. A client that must go on after a restart drives the steps with `/v1/operations/step`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;
use windlass::Timestamp;
use windlass::store::{Cursor, PAGE_MAX};

use super::ApiState;
use super::acting::ByParams;
use super::error::Refusal;
use super::extract::{Body, Caller, Name, Query};
use super::roles::{Role, needs};
use super::submit::location;
use crate::serve::attention::UnderWay;
use crate::wire::{Kind, NewOperation, Operated, OperationState, OperationStatus, Operations, Problem, Step};

/// How many operations run at once: each is a loop of transactions that competes with workers.
const RUNNING_MAX: usize = 16;
/// How many are remembered.
const KEPT_MAX: usize = 1000;
/// How many refused jobs an operation's status shows.
const REFUSED_MAX: usize = 1000;
/// How many of them are kept of an older operation, and are shown in the list.
const REFUSED_FEW: usize = 10;
/// How many operations count as new.
const NEW_MAX: usize = 50;
/// Longest wait for the end of an operation.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What a caller hears whose operation was cut off by a restart.
const UNKNOWN: &str = "this server knows no such operation: one is known only to the server that runs it, until that \
    ends. What it had changed stays changed, and GET /v1/acts tells of each step. To finish it, start it again: jobs that \
    it has dealt with no longer match, or are left as they are";

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Operate, routes!(start)))
        .routes(needs(Role::Read, routes!(list)))
        .routes(needs(Role::Operate, routes!(step)))
        .routes(needs(Role::Read, routes!(get)))
        .routes(needs(Role::Operate, routes!(stop)))
}

/// The operations of this server, oldest first.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: Mutex<VecDeque<Arc<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    id: Uuid,
    status: watch::Sender<OperationStatus>,
    /// When it made its last step, by the store's clock.
    moved_at: Mutex<Timestamp>,
    stop: CancellationToken,
}

impl Entry {
    fn is_running(&self) -> bool {
        self.status.borrow().state == OperationState::Running
    }
}

impl Registry {
    /// Takes in a new operation, unless too many are running.
    fn add(&self, entry: Arc<Entry>) -> Result<(), Refusal> {
        let mut entries = self.entries.lock().expect("nothing panics while it holds the registry");
        if entries.iter().filter(|entry| entry.is_running()).count() >= RUNNING_MAX {
            return Err(Refusal::new(Kind::TOO_MANY, format!("{RUNNING_MAX} operations are running already")));
        }
        if entries.len() >= KEPT_MAX
            && let Some(oldest) = entries.iter().position(|entry| !entry.is_running())
        {
            entries.remove(oldest);
        }
        entries.push_back(entry);
        if let Some(older) = entries.len().checked_sub(NEW_MAX + 1) {
            entries[older].status.send_if_modified(|status| {
                status.refused.truncate(REFUSED_FEW);
                status.refused.shrink_to_fit();
                false
            });
        }
        Ok(())
    }

    fn find(&self, id: &str) -> Result<Arc<Entry>, Refusal> {
        let entries = self.entries.lock().expect("nothing panics while it holds the registry");
        let found = Uuid::parse_str(id).ok().and_then(|id| entries.iter().find(|entry| entry.id == id).cloned());
        found.ok_or_else(|| Refusal::new(Kind::NOT_FOUND, UNKNOWN))
    }

    /// Those that go on, each with when it made its last step.
    pub(super) fn under_way(&self) -> Vec<UnderWay> {
        let entries = self.entries.lock().expect("nothing panics while it holds the registry");
        let moved_at = |entry: &Entry| *entry.moved_at.lock().expect("nothing panics while it holds the time");
        let running = entries.iter().filter(|entry| entry.is_running());
        running.map(|entry| UnderWay { id: entry.id.to_string(), moved_at: moved_at(entry) }).collect()
    }

    /// How the operation of this id stands.
    pub(super) fn status(&self, id: &str) -> Option<OperationStatus> {
        self.find(id).ok().map(|entry| entry.status.borrow().clone())
    }

    fn newest_first(&self) -> Vec<OperationStatus> {
        let entries = self.entries.lock().expect("nothing panics while it holds the registry");
        let few = |entry: &Arc<Entry>| {
            let status = entry.status.borrow();
            OperationStatus {
                refused: status.refused.iter().take(REFUSED_FEW).cloned().collect(),
                problem: status.problem.clone(),
                ..*status
            }
        };
        entries.iter().rev().map(few).collect()
    }
}

/// Act on many jobs
///
/// The work runs on in the background, a bounded step at a time; follow it at `Location`. With `wait` the answer comes
/// when it is through or the time is over. It ends with the server: after a restart its id is answered with 404, what it
/// has changed stays changed, and starting it again deals with the rest.
#[utoipa::path(
    post,
    path = "/v1/operations",
    tag = "operators",
    params(
        ByParams,
        ("wait" = Option<crate::wire::Span>, Query, description = "How long to wait for its end; at most 60 s."),
    ),
    request_body = NewOperation,
    responses((status = 202, description = "The operation as it stands.", body = OperationStatus))
)]
async fn start(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Query,
    Body(new): Body<NewOperation>,
) -> Result<Response, Refusal> {
    let by = query.by(&caller)?;
    let wait = query.duration("wait", WAIT_MAX, Duration::ZERO)?;
    query.done()?;
    let status = begin(state, new, by, wait).await?;
    Ok(accepted(&status))
}

/// Starts an act on many jobs; gives how it stands after its end or this long.
pub(super) async fn begin(
    state: ApiState,
    new: NewOperation,
    by: Option<String>,
    wait: Duration,
) -> Result<OperationStatus, Refusal> {
    new.step(PAGE_MAX, None, by.clone())?;
    let started_at = state.store().now().await?;
    let entry = Arc::new(entry(&state, &new, started_at));
    state.operations.add(Arc::clone(&entry))?;
    tokio::spawn(run(state, Arc::clone(&entry), new, by));
    Ok(settled(&entry, wait).await)
}

/// The answer for an act that may still be going on.
pub(super) fn accepted(status: &OperationStatus) -> Response {
    let location = location(&format!("/v1/operations/{}", status.id));
    (StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(status)).into_response()
}

fn entry(state: &ApiState, new: &NewOperation, started_at: Timestamp) -> Entry {
    let id = Uuid::new_v4();
    let status = OperationStatus {
        id,
        action: new.action,
        dry_run: new.dry_run,
        state: OperationState::Running,
        changed: 0,
        refused: Vec::new(),
        started_at,
        ended_at: None,
        problem: None,
    };
    let moved_at = Mutex::new(started_at);
    Entry { id, status: watch::Sender::new(status), moved_at, stop: state.stopping.child_token() }
}

/// The status once it runs no more, or as it is when the time is over.
async fn settled(entry: &Entry, wait: Duration) -> OperationStatus {
    let mut status = entry.status.subscribe();
    let ended = status.wait_for(|status| status.state != OperationState::Running);
    if let Ok(Ok(status)) = tokio::time::timeout(wait, ended).await {
        return status.clone();
    }
    entry.status.borrow().clone()
}

/// Step after step, until nothing is left.
async fn run(state: ApiState, entry: Arc<Entry>, new: NewOperation, by: Option<String>) {
    let mut after = None;
    let (ended, problem) = loop {
        if entry.stop.is_cancelled() {
            break (OperationState::Stopped, None);
        }
        let step = async { state.store().operate(&new.step(PAGE_MAX, after.take(), by.clone())?).await }.await;
        match step {
            Ok(step) => {
                let told = Operated::from(&step);
                entry.status.send_modify(|status| {
                    status.changed += told.changed;
                    let room = REFUSED_MAX.saturating_sub(status.refused.len());
                    status.refused.extend(told.refused.into_iter().take(room));
                });
                if let Ok(now) = state.store().now().await {
                    *entry.moved_at.lock().expect("nothing panics while it holds the time") = now;
                }
                after = step.next;
                if after.is_none() {
                    break (OperationState::Done, None);
                }
            }
            Err(error) => {
                tracing::error!(operation = %entry.id, error = %error, "an operation stopped");
                break (OperationState::Failed, Some(Problem::of(&error)));
            }
        }
    };
    let now = state.store().now().await.ok();
    entry.status.send_modify(|status| {
        status.state = ended;
        status.problem = problem;
        status.ended_at = now;
    });
}

/// One bounded step of an act on many jobs
///
/// For programs that drive the loop themselves: repeat with `next_cursor` until there is none.
#[utoipa::path(
    post,
    path = "/v1/operations/step",
    tag = "operators",
    params(ByParams),
    request_body = Step,
    responses((status = 200, description = "What the step did, or would do.", body = Operated))
)]
async fn step(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Query,
    Body(step): Body<Step>,
) -> Result<Json<Operated>, Refusal> {
    let by = query.by(&caller)?;
    query.done()?;
    let operation = step.operation.step(step.limit, step.cursor.map(Cursor), by)?;
    Ok(Json(Operated::from(&state.store().operate(&operation).await?)))
}

/// The acts on many jobs that this server runs or ran, newest first
///
/// Of refused jobs, ten each.
#[utoipa::path(
    get,
    path = "/v1/operations",
    tag = "operators",
    responses((status = 200, description = "At most the newest 1,000.", body = Operations))
)]
async fn list(State(state): State<ApiState>) -> Json<Operations> {
    Json(Operations { items: state.operations.newest_first() })
}

/// How far an act on many jobs is
#[utoipa::path(
    get,
    path = "/v1/operations/{id}",
    tag = "operators",
    params(
        ("id" = String, Path, format = "uuid"),
        ("wait" = Option<crate::wire::Span>, Query, description = "How long to wait for its end; at most 60 s."),
    ),
    responses((status = 200, description = "The operation as it stands. Of refused jobs at most 1,000 are told, or ten if fifty \
        operations came after it.", body = OperationStatus))
)]
async fn get(
    State(state): State<ApiState>,
    Name(id): Name,
    mut query: Query,
) -> Result<Json<OperationStatus>, Refusal> {
    let wait = query.duration("wait", WAIT_MAX, Duration::ZERO)?;
    query.done()?;
    let entry = state.operations.find(&id)?;
    Ok(Json(settled(&entry, wait).await))
}

/// Stop an act on many jobs
///
/// It ends after the step that it is in; what it has changed stays changed.
#[utoipa::path(
    delete,
    path = "/v1/operations/{id}",
    tag = "operators",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 202, description = "It is being stopped.", body = OperationStatus))
)]
async fn stop(State(state): State<ApiState>, Name(id): Name) -> Result<(StatusCode, Json<OperationStatus>), Refusal> {
    let entry = state.operations.find(&id)?;
    entry.stop.cancel();
    Ok((StatusCode::ACCEPTED, Json(settled(&entry, Duration::from_millis(100)).await)))
}
