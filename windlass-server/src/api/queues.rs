//! Queues and workers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{Act, Filter, QueueRecord, WorkerReport as StoredReport};
use windlass::{Error, QueueName, State as JobState};

use super::ApiState;
use super::error::Refusal;
use super::extract::{Body, Caller, Name, Query};
use crate::wire::{CLAIM_NAMES_MAX, Changed, Queue, Queues, WorkerReport, Workers};

/// Longest name of a machine, in characters; as long as DNS allows.
const HOST_CHARS_MAX: usize = 255;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(purge))
        .routes(routes!(workers, announce))
}

/// All queues, with what waits in them
#[utoipa::path(
    get,
    path = "/v1/queues",
    tag = "queues",
    responses((status = 200, description = "The queues, by name.", body = Queues))
)]
async fn list(State(state): State<ApiState>) -> Result<Json<Queues>, Refusal> {
    let queues = state.store().queues().await?;
    Ok(Json(Queues { items: queues.iter().map(Queue::from).collect() }))
}

/// A queue and what waits in it
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}",
    tag = "queues",
    params(("queue" = String, Path, description = "Its name, percent-encoded.")),
    responses((status = 200, description = "The queue.", body = Queue))
)]
async fn get(State(state): State<ApiState>, Name(name): Name) -> Result<Json<Queue>, Refusal> {
    let name = QueueName::new(name)?;
    let found = find(&state, &name).await?;
    let found = found.ok_or_else(|| Error::not_found("queue", name.as_str()))?;
    Ok(Json(Queue::from(&found)))
}

async fn find(state: &ApiState, name: &QueueName) -> Result<Option<QueueRecord>, Error> {
    Ok(state.store().queues().await?.into_iter().find(|queue| queue.name == *name))
}

/// Pause a queue: nothing of it is claimed, running jobs go on
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/pause",
    tag = "queues",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ("by" = Option<String>, Query, description = "Who acts."),
    ),
    responses((status = 204, description = "It is paused."))
)]
async fn pause(
    State(state): State<ApiState>,
    caller: Caller,
    Name(name): Name,
    query: Query,
) -> Result<StatusCode, Refusal> {
    set_paused(&state, &caller, &name, query, true).await
}

/// Let a paused queue be claimed from again
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/resume",
    tag = "queues",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ("by" = Option<String>, Query, description = "Who acts."),
    ),
    responses((status = 204, description = "It is not paused."))
)]
async fn resume(
    State(state): State<ApiState>,
    caller: Caller,
    Name(name): Name,
    query: Query,
) -> Result<StatusCode, Refusal> {
    set_paused(&state, &caller, &name, query, false).await
}

async fn set_paused(
    state: &ApiState,
    caller: &Caller,
    name: &str,
    mut query: Query,
    paused: bool,
) -> Result<StatusCode, Refusal> {
    let by = query.by(caller)?;
    query.done()?;
    state.store().set_paused(&QueueName::new(name)?, paused, by.as_deref()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancel every job of a queue that nobody has claimed
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/purge",
    tag = "queues",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ("by" = Option<String>, Query, description = "Who acts."),
    ),
    responses((status = 200, description = "How many were cancelled.", body = Changed))
)]
async fn purge(
    State(state): State<ApiState>,
    caller: Caller,
    Name(name): Name,
    mut query: Query,
) -> Result<Json<Changed>, Refusal> {
    let by = query.by(&caller)?;
    query.done()?;
    let states = vec![JobState::Pending, JobState::Delayed, JobState::Scheduled, JobState::Retrying];
    let filter = Filter { queue: Some(QueueName::new(name)?), states, ..Filter::default() };
    let operate = state.client().act(Act::Cancel { force: false }).because("purged");
    let operate = match by {
        Some(by) => operate.by(by),
        None => operate,
    };
    Ok(Json(Changed { changed: operate.on_all(filter).await? }))
}

/// The workers that live
#[utoipa::path(
    get,
    path = "/v1/workers",
    tag = "workers",
    responses((status = 200, description = "Those heard of in the last 30 s, by id.", body = Workers))
)]
async fn workers(State(state): State<ApiState>) -> Result<Json<Workers>, Refusal> {
    let workers = state.store().workers().await?;
    Ok(Json(Workers { items: workers.iter().map(Into::into).collect() }))
}

/// A worker says that it lives and what it serves
///
/// Repeated at least every 30 s. It shows the worker to operators and to `explain`; claims do not need it.
#[utoipa::path(
    post,
    path = "/v1/workers",
    tag = "workers",
    request_body = WorkerReport,
    responses((status = 204, description = "It was noted."))
)]
async fn announce(State(state): State<ApiState>, Body(report): Body<WorkerReport>) -> Result<StatusCode, Refusal> {
    let counts = [("queues", report.queues.len()), ("types", report.types.as_ref().map_or(0, Vec::len))];
    if let Some((name, count)) = counts.into_iter().find(|(_, count)| *count > CLAIM_NAMES_MAX) {
        return Err(Error::invalid(name, format!("must be at most {CLAIM_NAMES_MAX}, are {count}")).into());
    }
    let chars = report.host.chars().count();
    if chars > HOST_CHARS_MAX || report.host.contains('\0') {
        let problem = format!("must have at most {HOST_CHARS_MAX} characters and no NUL, has {chars}");
        return Err(Error::invalid("host", problem).into());
    }
    state.store().announce(&StoredReport::try_from(report)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
