//! Queues and workers.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::job::WorkerId;
use windlass::store::{
    Act, Filter, Operation, PAGE_MAX, QueueRecord, Target, WorkerEdit, WorkerRecord, WorkerReport as StoredReport,
};
use windlass::{Error, QueueName, State as JobState};

use super::acting::{Acting, ByParams};
use super::error::Refusal;
use super::extract::{Body, MaybeBody, Name, Query};
use super::operations;
use super::recent::{self, MAX_AGE};
use super::roles::{Role, needs};
use super::{ApiState, bounded, gone};
use crate::wire::{
    Announced, CLAIM_NAMES_MAX, Changed, NewOperation, OperationState, OperationStatus, Queue, QueuePage, Why, Worker,
    WorkerReport, Workers,
};

/// Longest name of a machine, in characters; as long as DNS allows.
const HOST_CHARS_MAX: usize = 255;
/// How long a purge is waited for before it goes on by itself.
const PURGE_WAIT: Duration = Duration::from_secs(10);

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Read, routes!(list)))
        .routes(needs(Role::Read, routes!(get)))
        .routes(needs(Role::Operate, routes!(pause)))
        .routes(needs(Role::Operate, routes!(resume)))
        .routes(needs(Role::Operate, routes!(purge)))
        .routes(needs(Role::Read, routes!(workers)))
        .routes(needs(Role::Work, routes!(announce)))
        .routes(needs(Role::Operate, routes!(drain)))
        .routes(needs(Role::Operate, routes!(work_again)))
}

/// Queues, by name, with what waits in them
#[utoipa::path(
    get,
    path = "/v1/queues",
    tag = "queues",
    params(
        ("limit" = Option<u32>, Query, description = "How many rows at most; 1,000 unless said.", minimum = 1,
            maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the last page."),
        ("max_age" = Option<String>, Query, description = MAX_AGE),
    ),
    responses((status = 200, description = "A page of queues.", body = QueuePage))
)]
async fn list(State(state): State<ApiState>, mut query: Query) -> Result<Json<QueuePage>, Refusal> {
    let limit = query.number("limit", 1..=PAGE_MAX as u64, PAGE_MAX as u64)?;
    let limit = usize::try_from(limit).expect("a page fits into memory");
    let after = query.text("cursor")?;
    let age = recent::max_age(&mut query)?;
    query.done()?;
    let queues = state.recent.queues.get(age, state.store().queues()).await?;
    let later = queues.iter().filter(|queue| after.as_deref().is_none_or(|after| queue.name.as_str() > after));
    let mut items: Vec<Queue> = later.take(limit + 1).map(Queue::from).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(|queue| queue.name.clone());
    Ok(Json(QueuePage { items, next_cursor }))
}

/// A queue and what waits in it
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}",
    tag = "queues",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ("max_age" = Option<String>, Query, description = MAX_AGE),
    ),
    responses((status = 200, description = "The queue.", body = Queue))
)]
async fn get(State(state): State<ApiState>, Name(name): Name, mut query: Query) -> Result<Json<Queue>, Refusal> {
    let age = recent::max_age(&mut query)?;
    query.done()?;
    let name = QueueName::new(name)?;
    let found = find(&state, &name, age).await?;
    let found = found.ok_or_else(|| Error::not_found("queue", name.as_str()))?;
    Ok(Json(Queue::from(&found)))
}

async fn find(state: &ApiState, name: &QueueName, age: Duration) -> Result<Option<QueueRecord>, Error> {
    let queues = state.recent.queues.get(age, state.store().queues()).await?;
    Ok(queues.iter().find(|queue| queue.name == *name).cloned())
}

/// Pause a queue: nothing of it is claimed, running jobs go on
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/pause",
    tag = "queues",
    params(("queue" = String, Path, description = "Its name, percent-encoded."), ByParams),
    request_body(content = Option<Why>),
    responses((status = 204, description = "It is paused."))
)]
async fn pause(acting: Acting, Name(name): Name, MaybeBody(why): MaybeBody<Why>) -> Result<StatusCode, Refusal> {
    acting.set_paused(QueueName::new(name)?, true, &why.reason).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Let a paused queue be claimed from again
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/resume",
    tag = "queues",
    params(("queue" = String, Path, description = "Its name, percent-encoded."), ByParams),
    request_body(content = Option<Why>),
    responses((status = 204, description = "It is not paused."))
)]
async fn resume(acting: Acting, Name(name): Name, MaybeBody(why): MaybeBody<Why>) -> Result<StatusCode, Refusal> {
    acting.set_paused(QueueName::new(name)?, false, &why.reason).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancel every job of a queue that nobody has claimed
///
/// Those that are there now; what comes later stays. It is an operation: where it takes longer than 10 s, it goes on by itself and
/// the answer says where to follow it.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/purge",
    tag = "queues",
    params(("queue" = String, Path, description = "Its name, percent-encoded."), ByParams),
    responses(
        (status = 200, description = "How many were cancelled.", body = Changed),
        (status = 202, description = "It goes on.", body = OperationStatus),
    )
)]
async fn purge(acting: Acting, Name(name): Name) -> Result<Response, Refusal> {
    let state = acting.state().clone();
    // A moment after now, because what came in this very microsecond is there.
    let frozen = state.store().now().await?.plus(Duration::from_micros(1));
    let unclaimed = [JobState::Pending, JobState::Delayed, JobState::Scheduled, JobState::Retrying];
    let mut filter = Filter::new().queue(QueueName::new(name)?).states(unclaimed);
    filter.changed_before = Some(frozen);
    let target = Target::Matching { filter, limit: PAGE_MAX, after: None };
    let why = "purged".to_owned();
    let act = Operation { target, act: Act::Cancel { force: false }, by: None, why, dry_run: false };
    let status = operations::begin(state, NewOperation::of(&act)?, acting.by(), PURGE_WAIT).await?;
    match (status.state, &status.problem) {
        (OperationState::Running, _) => Ok(operations::accepted(&status)),
        (_, Some(problem)) => Err(Refusal::of(problem.clone())),
        _ => Ok(Json(Changed { changed: status.changed }).into_response()),
    }
}

/// The workers that live
#[utoipa::path(
    get,
    path = "/v1/workers",
    tag = "workers",
    params(("gone" = Option<String>, Query, description = "Tell, too, who went without goodbye in this time, 1h at most, as far as \
        this server saw it: workers of which nothing is heard any more although they held jobs.")),
    responses((status = 200, description = "Those heard of in the last 30 s, by id.", body = Workers))
)]
async fn workers(State(state): State<ApiState>, mut query: Query) -> Result<Json<Workers>, Refusal> {
    let asked = query.duration("gone", gone::TOLD_FOR, Duration::ZERO)?;
    query.done()?;
    let workers = state.store().workers().await?;
    let mut gone = Vec::new();
    if !asked.is_zero() {
        state.gone.see(&**state.store(), &workers).await?;
        gone = state.gone.told(&**state.store(), asked).await?;
    }
    let mut bytes = 0;
    let fits = |worker: &&WorkerRecord| {
        bytes += bounded::bytes_of_worker(worker);
        bytes <= bounded::ANSWER_BYTES_MAX
    };
    let items: Vec<_> = workers.iter().take_while(fits).map(Into::into).collect();
    Ok(Json(Workers { left_out: workers.len() - items.len(), items, gone }))
}

/// A worker says that it lives and what it serves
///
/// Repeated at least every 30 s. It shows the worker to operators and to `explain`; claims do not need it. The answer tells what
/// operators want of it.
#[utoipa::path(
    post,
    path = "/v1/workers",
    tag = "workers",
    request_body = WorkerReport,
    responses((status = 200, description = "It was noted.", body = Announced))
)]
async fn announce(State(state): State<ApiState>, Body(report): Body<WorkerReport>) -> Result<Json<Announced>, Refusal> {
    let counts = [("queues", report.queues.len()), ("types", report.types.as_ref().map_or(0, Vec::len))];
    if let Some((name, count)) = counts.into_iter().find(|(_, count)| *count > CLAIM_NAMES_MAX) {
        return Err(Error::invalid(name, format!("must be at most {CLAIM_NAMES_MAX}, are {count}")).into());
    }
    let chars = report.host.chars().count();
    if chars > HOST_CHARS_MAX || report.host.contains('\0') {
        let problem = format!("must have at most {HOST_CHARS_MAX} characters and no NUL, has {chars}");
        return Err(Error::invalid("host", problem).into());
    }
    let announced = state.store().announce(&StoredReport::try_from(report)?).await?;
    Ok(Json(Announced { draining: announced.draining }))
}

/// Tell a worker to take no more jobs: those that it runs go on
///
/// A worker that announces itself hears of it with its next announcement, every 10 s as a rule; claims of others are answered without jobs
/// from then on. It holds until it is resumed, or takes its leave.
#[utoipa::path(
    post,
    path = "/v1/workers/{worker}/drain",
    tag = "workers",
    params(("worker" = String, Path, description = "Its id, percent-encoded."), ByParams),
    request_body(content = Option<Why>),
    responses((status = 200, description = "The worker, as it is now.", body = Worker))
)]
async fn drain(acting: Acting, Name(id): Name, MaybeBody(why): MaybeBody<Why>) -> Result<Json<Worker>, Refusal> {
    acting.edit_worker(&WorkerEdit::new(WorkerId::new(id)?, true).because(why.reason)).await
}

/// Let a worker that drains take jobs again
#[utoipa::path(
    post,
    path = "/v1/workers/{worker}/resume",
    tag = "workers",
    params(("worker" = String, Path, description = "Its id, percent-encoded."), ByParams),
    request_body(content = Option<Why>),
    responses((status = 200, description = "The worker, as it is now.", body = Worker))
)]
async fn work_again(acting: Acting, Name(id): Name, MaybeBody(why): MaybeBody<Why>) -> Result<Json<Worker>, Refusal> {
    acting.edit_worker(&WorkerEdit::new(WorkerId::new(id)?, false).because(why.reason)).await
}
