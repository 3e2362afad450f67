//! Looking at jobs. Nothing here changes anything.

use std::collections::HashSet;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::job::Why;
use windlass::store::{CALL_MAX, Counted, LOOKED_MAX as LIST_LOOKED_MAX, ListQuery, Order, Sample, SampleStep};
use windlass::{Error, JobId, State as JobState};

use super::ApiState;
use super::bounded::{self, Shown};
use super::error::Refusal;
use super::extract::{Body, Caller, Id, Query, check_count};
use super::roles::{Role, needs};
use crate::wire::{Attempts, Count, Explanation, FoundJobs, Job, JobIds, JobPage, Logs, Prospect, names};

/// Longest wait for a job; proxies give up after a minute.
const WAIT_MAX: Duration = Duration::from_secs(60);
const WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// How far jobs are counted unless said, and at most.
const CAP_DEFAULT: u64 = 10_000;
const CAP_MAX: u64 = 1_000_000_000;
/// How many rows a count looks at unless told: what a list looks at, too.
const LOOKED_DEFAULT: u64 = 10_000;
/// How many rows a count looks at: a second or so of a database's time.
const LOOKED_MAX: u64 = 100_000;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Read, routes!(list)))
        .routes(needs(Role::Read, routes!(count)))
        .routes(needs(Role::Read, routes!(find)))
        .routes(needs(Role::Read, routes!(get)))
        .routes(needs(Role::Read, routes!(attempts)))
        .routes(needs(Role::Read, routes!(logs)))
        .routes(needs(Role::Read, routes!(explain)))
        .routes(needs(Role::Read, routes!(result)))
        .routes(needs(Role::Read, routes!(wait)))
}

/// The conditions of a list. Tags come as `tag.KEY=VALUE`, any number of them.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "only describes the parameters")]
pub(super) struct FilterParams {
    /// In one of these states: several with commas between, or several times.
    #[param(value_type = Option<String>, example = "failed,dead_letter")]
    state: Option<Vec<names::StateName>>,
    /// In one of these of the four states for simple tools; not beside `state`.
    #[param(value_type = Option<String>, example = "ready,in_flight")]
    simple_state: Option<Vec<names::SimpleStateName>>,
    /// In this queue.
    queue: Option<String>,
    /// Of this type.
    r#type: Option<String>,
    /// Of this workflow.
    #[param(format = "uuid")]
    workflow: Option<String>,
    /// Fired by the schedule of this name.
    schedule: Option<String>,
    /// With this correlation id.
    correlation_id: Option<String>,
    /// Whose last failure has this code.
    code: Option<String>,
    /// Submitted at or after this moment.
    #[param(format = DateTime)]
    created_after: Option<String>,
    /// Submitted before this moment.
    #[param(format = DateTime)]
    created_before: Option<String>,
    /// Ended before this moment.
    #[param(format = DateTime)]
    ended_before: Option<String>,
    /// Ended at or after this moment.
    #[param(format = DateTime)]
    ended_after: Option<String>,
    /// Changed state for the last time before this moment.
    #[param(format = DateTime)]
    changed_before: Option<String>,
    /// Dead of this fault; see `/v1/errors`.
    #[param(pattern = "^[0-7][0-9a-f]{15}$")]
    fingerprint: Option<String>,
    /// Running under a lease of this worker.
    worker: Option<String>,
    /// That this idempotency key stands for, in any scope.
    key: Option<String>,
    /// With this text in its payload, in the message of its last failure or in its tags; ASCII letters match in both cases.
    /// Not for callers from whom payloads are hidden.
    text: Option<String>,
}

/// A page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "only describes the parameters")]
pub(super) struct PageParams {
    /// How many rows at most; 50 unless said.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next_cursor` of the last page.
    cursor: Option<String>,
}

/// List jobs
///
/// Newest first, or in another `order`: `ended` is the last ended first and needs one terminal state, `due` the soonest first
/// and needs `delayed` or `retrying`, `claim` the order in which jobs will be claimed and needs `scheduled` and a queue.
/// Every condition that is given must hold. A page that looked at `looked` jobs ends there and says so. There is never a total; see `/v1/jobs/count`. A page that holds 16 MiB of
/// payloads, results and checkpoints is cut there, with a cursor to go on from.
#[utoipa::path(
    get,
    path = "/v1/jobs",
    tag = "jobs",
    params(
        FilterParams,
        PageParams,
        ("order" = Option<String>, Query, description = "`newest`, `ended`, `due` or `claim`; `newest` unless said."),
        ("looked" = Option<u64>, Query, description = "How many jobs to look at, at most; 10,000 unless said.",
            minimum = 1, maximum = 10_000),
        ("payloads" = Option<bool>, Query, description = "`false` leaves out payloads, results and checkpoints."),
    ),
    responses((status = 200, description = "A page of jobs.", body = JobPage))
)]
async fn list(State(state): State<ApiState>, caller: Caller, mut query: Query) -> Result<Response, Refusal> {
    let shown = Shown::asked(&caller, &mut query)?;
    let order = match query.text("order")?.as_deref() {
        None | Some("newest") => Order::Newest,
        Some("ended") => Order::Ended,
        Some("due") => Order::Due,
        Some("claim") => Order::Claim,
        Some(_) => return Err(Error::invalid("order", "must be newest, ended, due or claim").into()),
    };
    let looked_max = query.number("looked", 1..=LIST_LOOKED_MAX as u64, LIST_LOOKED_MAX as u64)?;
    let looked_max = usize::try_from(looked_max).unwrap_or(LIST_LOOKED_MAX);
    let asked = ListQuery { filter: query.filter()?, limit: query.limit()?, after: query.cursor()?, order, looked_max };
    query.done()?;
    bounded::page_answer(&state, shown, asked).await
}

/// Count jobs
///
/// Counts no further than `cap` and looks at no more than `looked` rows, so that the answer stays cheap at any size. Counts
/// by state and queue alone look at none.
#[utoipa::path(
    get,
    path = "/v1/jobs/count",
    tag = "jobs",
    params(
        FilterParams,
        ("cap" = Option<u64>, Query, description = "How far to count; 10,000 unless said.", minimum = 1,
            maximum = 1_000_000_000),
        ("looked" = Option<u64>, Query, description = "How many rows to look at, at most; 10,000 unless said.",
            minimum = 1, maximum = 100_000),
    ),
    responses((status = 200, description = "How many jobs match.", body = Count))
)]
async fn count(State(state): State<ApiState>, mut query: Query) -> Result<Json<Count>, Refusal> {
    let filter = query.filter()?;
    let cap = query.number("cap", 1..=CAP_MAX, CAP_DEFAULT)?;
    let looked = query.number("looked", 1..=LOOKED_MAX, LOOKED_DEFAULT)?;
    query.done()?;
    let _turn = state.bounds.turn().await?;
    let Counted { count, looked, capped, .. } = state.store().count(&filter, cap, looked).await?;
    Ok(Json(Count { count, capped, looked }))
}

/// Get jobs by id
///
/// An id that is given twice is answered once. An answer that holds 16 MiB of payloads, results and checkpoints is cut
/// there, and `rest` holds the ids that were not looked up.
#[utoipa::path(
    post,
    path = "/v1/jobs/find",
    tag = "jobs",
    request_body = JobIds,
    params(("payloads" = Option<bool>, Query, description = "`false` leaves out payloads, results and checkpoints.")),
    responses((status = 200, description = "The jobs, in order; `null` for one that does not exist.", body = FoundJobs))
)]
async fn find(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Query,
    Body(asked): Body<JobIds>,
) -> Result<Response, Refusal> {
    let shown = Shown::asked(&caller, &mut query)?;
    query.done()?;
    check_count("ids", asked.ids.len(), CALL_MAX)?;
    let mut seen = HashSet::with_capacity(asked.ids.len());
    let ids: Vec<JobId> = asked.ids.into_iter().filter(|id| seen.insert(*id)).collect();
    bounded::found_answer(&state, shown, &ids).await
}

/// Get a job
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}",
    tag = "jobs",
    params(
        ("id" = String, Path, format = "uuid"),
        ("payloads" = Option<bool>, Query, description = "`false` leaves out payloads, results and checkpoints."),
    ),
    responses((status = 200, description = "The job.", body = Job))
)]
async fn get(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<JobId>,
    mut query: Query,
) -> Result<Json<Job>, Refusal> {
    let shown = Shown::asked(&caller, &mut query)?;
    query.done()?;
    Ok(Json(shown.job(&state.client().job(id).await?)))
}

/// The attempts of a job, oldest first
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/attempts",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 200, description = "The newest 100, the running one included.", body = Attempts))
)]
async fn attempts(State(state): State<ApiState>, Id(id): Id<JobId>) -> Result<Json<Attempts>, Refusal> {
    let attempts = state.store().attempts(id).await?;
    Ok(Json(Attempts { items: attempts.iter().map(Into::into).collect() }))
}

/// What the attempts of a job logged, oldest first
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/logs",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 200, description = "The newest 1,000 lines of each attempt, and of these the newest 8 MiB.", body = Logs))
)]
async fn logs(State(state): State<ApiState>, Id(id): Id<JobId>) -> Result<Json<Logs>, Refusal> {
    let lines = state.store().logs(id).await?;
    Ok(Json(Logs { items: lines.iter().map(Into::into).collect() }))
}

/// Why a job is not running now
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/explain",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 200, description = "Every reason; none when the next claim will take it.", body = Explanation))
)]
async fn explain(State(state): State<ApiState>, Id(id): Id<JobId>) -> Result<Json<Explanation>, Refusal> {
    let explained = state.store().explain(id).await?;
    let mut answer = Explanation::from(&explained);
    let reasons = &explained.reasons;
    let waits = |why: &Why| !matches!(why, Why::JobsAhead { .. } | Why::LimitReached { .. });
    // Only for what nothing but its turn stands against.
    if explained.state == JobState::Scheduled && !reasons.iter().any(waits) {
        let ahead =
            reasons.iter().find_map(|why| if let Why::JobsAhead { jobs, .. } = why { Some(*jobs) } else { None });
        answer.about = prospect(&state, id, ahead.unwrap_or_default() as u64).await?;
    }
    Ok(Json(answer))
}

/// About when a job starts that has `ahead` jobs before it; none where nothing of its queue ended in the last minute.
async fn prospect(state: &ApiState, id: JobId, ahead: u64) -> Result<Option<Prospect>, Refusal> {
    let queue = state.client().job(id).await?.spec.queue.clone();
    let now = state.store().now().await?;
    let from = now.minus(Duration::from_secs(70));
    let samples = state.store().samples(SampleStep::Seconds, from, now.plus(Duration::from_micros(1))).await?;
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Ok(None) };
    let ended = |sample: &Sample| {
        let own = sample.lanes.iter().filter(|seen| seen.lane.queue == queue);
        own.map(|seen| seen.lane.ended.iter().sum::<u64>() + seen.lane.retried).sum::<u64>()
    };
    let seconds = last.at.since(first.at).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "it is an estimate")]
    let (done, turn) = (ended(last).saturating_sub(ended(first)) as f64, (ahead + 1) as f64);
    if done <= 0.0 || seconds <= 0.0 {
        return Ok(None);
    }
    let rate = done / seconds;
    Ok(Some(Prospect { ahead, rate, seconds: turn / rate }))
}

/// The result of a completed job, as it is
///
/// JSON comes as `application/json`. Other bytes come as `application/octet-stream`, to be saved and not shown, with
/// their own content type in `windlass-content-type`.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/result",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    responses(
        (status = 200, description = "The result.", content(
            (serde_json::Value = "application/json"),
            (Vec<u8> = "application/octet-stream"),
        )),
        (status = 204, description = "It completed without a result."),
        (status = 409, description = "The job has not completed.", body = crate::wire::Problem,
            content_type = "application/problem+json"),
    )
)]
async fn result(State(state): State<ApiState>, caller: Caller, Id(id): Id<JobId>) -> Result<Response, Refusal> {
    let job = state.client().job(id).await?;
    if job.state != JobState::Completed {
        return Err(Error::IllegalState { job: id, state: job.state, wanted: "read the result of" }.into());
    }
    if caller.payloads_hidden {
        return Err(Error::Unauthorized("results are hidden from this caller".to_owned()).into());
    }
    let Some(result) = job.result else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let is_json = result.is_json();
    let own_type = HeaderValue::from_str(result.content_type()).ok();
    let shown_as = if is_json { "application/json" } else { "application/octet-stream" };
    let mut response = ([(header::CONTENT_TYPE, shown_as)], result.as_bytes().clone()).into_response();
    if !is_json {
        // A page of ours must never run what a handler returned.
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(own_type) = own_type {
            headers.insert(HeaderName::from_static("windlass-content-type"), own_type);
        }
    }
    Ok(response)
}

/// Wait until a job has ended
///
/// Answers with the job as soon as it is terminal, or as it is when the time is over: look at its `state`.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/wait",
    tag = "jobs",
    params(
        ("id" = String, Path, format = "uuid"),
        ("timeout" = Option<crate::wire::Span>, Query, description = "At most 60 s; 30 s unless said."),
    ),
    responses((status = 200, description = "The job.", body = Job))
)]
async fn wait(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<JobId>,
    mut query: Query,
) -> Result<Json<Job>, Refusal> {
    let timeout = query.duration("timeout", WAIT_MAX, WAIT_DEFAULT)?;
    query.done()?;
    let ended = tokio::select! {
        job = state.client().wait(id) => Some(job?),
        () = tokio::time::sleep(timeout) => None,
        () = state.stopping.cancelled() => None,
    };
    let job = match ended {
        Some(job) => job,
        None => state.client().job(id).await?,
    };
    Ok(Json(Shown::to(&caller).job(&job)))
}
