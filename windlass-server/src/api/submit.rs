//! The way in: one job, a batch, a workflow.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::Job;
use windlass::job::TRACE_BYTES_MAX;
use windlass::workflow::Webhook;

use super::ApiState;
use super::error::Refusal;
use super::extract::Body;
use super::roles::{Role, needs};
use crate::sparing::Sparing;
use crate::traces;
use crate::wire::{Batch, Inserted, InsertedBatch, NewJob, NewWorkflow, TraceContext};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Produce, routes!(submit)))
        .routes(needs(Role::Produce, routes!(submit_batch)))
        .routes(needs(Role::Produce, routes!(start_workflow)))
}

/// What to do where webhooks wait and nobody delivers them.
pub(crate) const UNDELIVERED: &str = "nobody delivers webhooks: start `windlass run` with webhooks.secrets in its configuration (`windlass token webhook`), or a worker with `Worker::webhooks`";

/// What the caller of a submission should know about its callbacks.
async fn warnings(state: &ApiState, has_callbacks: bool) -> Vec<String> {
    if !has_callbacks {
        return Vec::new();
    }
    static SAID: Sparing = Sparing::new(Duration::from_secs(60));
    // The jobs are stored: if this cannot be found out, there is nothing to say.
    let Ok(workers) = state.client().workers().await else { return Vec::new() };
    let mut served = workers.iter().flat_map(|worker| &worker.queues);
    if served.any(|served| served.queue.as_str() == Webhook::QUEUE) {
        return Vec::new();
    }
    SAID.say(|left_out| tracing::warn!(left_out, "a job with a callback was enqueued, and {UNDELIVERED}"));
    vec![UNDELIVERED.to_owned()]
}

fn has_callbacks(jobs: &[NewJob]) -> bool {
    jobs.iter().any(|job| job.callback_url.is_some())
}

/// Submit a job
///
/// With an `idempotency_key` that is known, nothing is stored and the first job is answered with 200 and
/// `existing: true`. A `traceparent` header is carried to the handler unless the job has a trace context of its own.
#[utoipa::path(
    post,
    path = "/v1/jobs",
    tag = "jobs",
    request_body = NewJob,
    responses(
        (status = 201, description = "The job was stored.", body = Inserted),
        (status = 200, description = "The key is known: this is the job it stands for.", body = Inserted),
    )
)]
async fn submit(
    State(state): State<ApiState>,
    headers: HeaderMap,
    Body(job): Body<NewJob>,
) -> Result<Response, Refusal> {
    let mut batch = Batch { jobs: vec![job] };
    carry_trace(&headers, &mut batch.jobs);
    let has_callbacks = has_callbacks(&batch.jobs);
    let (submission, refs) = batch.check(state.client())?;
    let inserted = state.client().submit(submission).await?;
    let mut answer = InsertedBatch::of(&inserted, refs);
    let mut job = answer.jobs.pop().expect("a store answers for each job");
    job.warnings = warnings(&state, has_callbacks).await;
    let status = if job.existing { StatusCode::OK } else { StatusCode::CREATED };
    let location = location(&format!("/v1/jobs/{}", job.id));
    Ok((status, [(header::LOCATION, location)], Json(job)).into_response())
}

/// Submit jobs, all or none
///
/// Up to 10,000. A job may carry a `ref`, and others may name it in `depends_on`.
#[utoipa::path(
    post,
    path = "/v1/jobs/batch",
    tag = "jobs",
    request_body = Batch,
    responses((status = 201, description = "What became of each job, in order.", body = InsertedBatch))
)]
async fn submit_batch(
    State(state): State<ApiState>,
    headers: HeaderMap,
    Body(mut batch): Body<Batch>,
) -> Result<(StatusCode, Json<InsertedBatch>), Refusal> {
    carry_trace(&headers, &mut batch.jobs);
    let has_callbacks = has_callbacks(&batch.jobs);
    let (submission, refs) = batch.check(state.client())?;
    let inserted = state.client().submit(submission).await?;
    let warnings = warnings(&state, has_callbacks).await;
    Ok((StatusCode::CREATED, Json(InsertedBatch { warnings, ..InsertedBatch::of(&inserted, refs) })))
}

/// Start a workflow
///
/// Its jobs are stored together, all or none, under a record of their own.
#[utoipa::path(
    post,
    path = "/v1/workflows",
    tag = "workflows",
    request_body = NewWorkflow,
    responses((status = 201, description = "The workflow's id, and what became of each job.", body = InsertedBatch))
)]
async fn start_workflow(
    State(state): State<ApiState>,
    headers: HeaderMap,
    Body(mut workflow): Body<NewWorkflow>,
) -> Result<Response, Refusal> {
    carry_trace(&headers, &mut workflow.jobs);
    let has_callbacks = has_callbacks(&workflow.jobs);
    let (submission, refs) = workflow.check(state.client())?;
    let inserted = state.client().submit(submission).await?;
    let warnings = warnings(&state, has_callbacks).await;
    let answer = InsertedBatch { warnings, ..InsertedBatch::of(&inserted, refs) };
    let id = answer.workflow_id.expect("a store answers a workflow with its id");
    let location = location(&format!("/v1/workflows/{id}"));
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(answer)).into_response())
}

/// Where what was made can be seen.
pub(super) fn location(path: &str) -> HeaderValue {
    HeaderValue::from_str(path).expect("an id is plain text")
}

/// Lets jobs without a trace of their own continue the caller's.
fn carry_trace(headers: &HeaderMap, jobs: &mut [NewJob]) {
    // Where this request has a span, it is the caller's child, and what jobs continue.
    if traces::of_here().is_some() {
        return;
    }
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned);
    let Some(traceparent) = text("traceparent") else { return };
    let tracestate = text("tracestate");
    // A trace that is too long is the caller's middleware's, not the job's, fault: it must not stop the job.
    if traceparent.len() + tracestate.as_ref().map_or(0, String::len) > TRACE_BYTES_MAX {
        return;
    }
    for job in jobs.iter_mut().filter(|job| job.trace_context.is_none()) {
        let (traceparent, tracestate) = (traceparent.clone(), tracestate.clone());
        job.trace_context = Some(TraceContext { traceparent, tracestate });
    }
}
