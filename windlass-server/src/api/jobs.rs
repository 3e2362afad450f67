//! Looking at jobs. Nothing here changes anything.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{CALL_MAX, ListQuery};
use windlass::{Error, JobId, JobRecord, State as JobState};

use super::ApiState;
use super::error::Refusal;
use super::extract::{Body, Caller, Id, Query, check_count};
use crate::wire::{Attempts, Count, Explanation, FoundJobs, Job, JobIds, JobPage, Logs, names};

/// Longest wait for a job; proxies give up after a minute.
const WAIT_MAX: Duration = Duration::from_secs(60);
const WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// How far jobs are counted unless said, and at most.
const CAP_DEFAULT: u64 = 10_000;
const CAP_MAX: u64 = 1_000_000_000;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(count))
        .routes(routes!(find))
        .routes(routes!(get))
        .routes(routes!(attempts))
        .routes(routes!(logs))
        .routes(routes!(explain))
        .routes(routes!(result))
        .routes(routes!(wait))
}

/// The conditions of a list. Tags come as `tag.KEY=VALUE`, any number of them.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "only describes the parameters")]
pub(super) struct FilterParams {
    /// In one of these states: several with commas between, or several times.
    #[param(value_type = Option<String>, example = "failed,dead_letter")]
    state: Option<Vec<names::StateName>>,
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

/// List jobs, newest first
///
/// Every condition that is given must hold. There is never a total; see `/v1/jobs/count`.
#[utoipa::path(
    get,
    path = "/v1/jobs",
    tag = "jobs",
    params(
        FilterParams,
        PageParams,
        ("payloads" = Option<bool>, Query, description = "`false` leaves out payloads, results and checkpoints."),
    ),
    responses((status = 200, description = "A page of jobs.", body = JobPage))
)]
async fn list(State(state): State<ApiState>, caller: Caller, mut query: Query) -> Result<Json<JobPage>, Refusal> {
    let show = shows(&caller, &mut query)?;
    let asked = ListQuery { filter: query.filter()?, limit: query.limit()?, after: query.cursor()? };
    query.done()?;
    let page = state.store().list(&asked).await?;
    let items = page.items.iter().map(show).collect();
    Ok(Json(JobPage { items, next_cursor: page.next.map(|cursor| cursor.0) }))
}

/// Count jobs
///
/// Counts no further than `cap`, so that the answer stays cheap at any size.
#[utoipa::path(
    get,
    path = "/v1/jobs/count",
    tag = "jobs",
    params(
        FilterParams,
        ("cap" = Option<u64>, Query, description = "How far to count; 10,000 unless said.", minimum = 1,
            maximum = 1_000_000_000),
    ),
    responses((status = 200, description = "How many jobs match.", body = Count))
)]
async fn count(State(state): State<ApiState>, mut query: Query) -> Result<Json<Count>, Refusal> {
    let filter = query.filter()?;
    let cap = query.number("cap", 1..=CAP_MAX, CAP_DEFAULT)?;
    query.done()?;
    let count = state.store().count(&filter, cap).await?;
    Ok(Json(Count { count, capped: count >= cap }))
}

/// Get jobs by id
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
) -> Result<Json<FoundJobs>, Refusal> {
    let show = shows(&caller, &mut query)?;
    query.done()?;
    check_count("ids", asked.ids.len(), CALL_MAX)?;
    let found = state.store().find(&asked.ids).await?;
    Ok(Json(FoundJobs { items: found.iter().map(|job| job.as_ref().map(&show)).collect() }))
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
    let show = shows(&caller, &mut query)?;
    query.done()?;
    Ok(Json(show(&state.client().job(id).await?)))
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
    responses((status = 200, description = "The newest 1,000 lines of each attempt.", body = Logs))
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
    Ok(Json(Explanation::from(&state.store().explain(id).await?)))
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
    Ok(Json(shown(&caller, &job)))
}

/// A job as a caller may see it.
pub(super) fn shown(caller: &Caller, job: &JobRecord) -> Job {
    let shown = Job::from(job);
    if caller.payloads_hidden { shown.without_payloads() } else { shown }
}

/// How to show jobs to a caller who may have asked for them without payloads.
fn shows(caller: &Caller, query: &mut Query) -> Result<impl Fn(&JobRecord) -> Job + use<>, Error> {
    let payloads_hidden = caller.payloads_hidden || !query.flag("payloads", true)?;
    let caller = Caller { payloads_hidden, name: None };
    Ok(move |job: &JobRecord| shown(&caller, job))
}
