//! What operators do to one job, and the record of all acts.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::JobId;
use windlass::job::RequeueOptions;
use windlass::store::{Act, ActRecord, Edit as StoredEdit, PAGE_MAX};

use super::ApiState;
use super::acting::{Acting, ByParams};
use super::error::Refusal;
use super::extract::{Body, Id, MaybeBody, Query};
use super::jobs::PageParams;
use super::roles::{Role, needs};
use super::submit::location;
use crate::wire::{ActPage, Cancel, CloneJob, Edit, Inserted, Job, Requeue, Why};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Operate, routes!(edit, delete)))
        .routes(needs(Role::Operate, routes!(cancel)))
        .routes(needs(Role::Operate, routes!(requeue)))
        .routes(needs(Role::Operate, routes!(dead_letter)))
        .routes(needs(Role::Operate, routes!(clone)))
        .routes(needs(Role::Read, routes!(acts)))
}

/// Change a job's priority, tags, correlation id or callback URL
#[utoipa::path(
    patch,
    path = "/v1/jobs/{id}",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid"), ByParams),
    request_body = Edit,
    responses((status = 200, description = "The job as it is now.", body = Job))
)]
async fn edit(acting: Acting, Id(id): Id<JobId>, Body(edit): Body<Edit>) -> Result<Json<Job>, Refusal> {
    let edit = StoredEdit::from(edit);
    edit.check()?;
    acting.change(id, Act::Edit(edit), "").await
}

/// Remove an ended job
#[utoipa::path(
    delete,
    path = "/v1/jobs/{id}",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid"), ByParams),
    responses((status = 204, description = "It is gone."))
)]
async fn delete(acting: Acting, Id(id): Id<JobId>) -> Result<StatusCode, Refusal> {
    acting.on(id, Act::Delete, "").await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancel a job
///
/// A running job is asked to stop; with `force` it loses its lease at once.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/cancel",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid"), ByParams),
    request_body(content = Option<Cancel>),
    responses((status = 200, description = "The job as it is now.", body = Job))
)]
async fn cancel(acting: Acting, Id(id): Id<JobId>, MaybeBody(cancel): MaybeBody<Cancel>) -> Result<Json<Job>, Refusal> {
    acting.change(id, Act::Cancel { force: cancel.force }, cancel.reason).await
}

/// Send a dead job back
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/requeue",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid"), ByParams),
    request_body(content = Option<Requeue>),
    responses((status = 200, description = "The job as it is now.", body = Job))
)]
async fn requeue(
    acting: Acting,
    Id(id): Id<JobId>,
    MaybeBody(requeue): MaybeBody<Requeue>,
) -> Result<Json<Job>, Refusal> {
    acting.change(id, Act::Requeue(RequeueOptions::from(&requeue)), requeue.reason).await
}

/// Dead-letter a job
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/dead-letter",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid"), ByParams),
    request_body(content = Option<Why>),
    responses((status = 200, description = "The job as it is now.", body = Job))
)]
async fn dead_letter(acting: Acting, Id(id): Id<JobId>, MaybeBody(why): MaybeBody<Why>) -> Result<Json<Job>, Refusal> {
    acting.change(id, Act::DeadLetter, why.reason).await
}

/// Copy a job under a new id
///
/// Without its dependencies and first run, and with the key that the body gives, if any; the copy names the original in
/// `cloned_from`. With a key that is known, nothing is stored and the job it stands for is answered with 200.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/clone",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    request_body(content = Option<CloneJob>),
    responses(
        (status = 201, description = "The copy.", body = Inserted),
        (status = 200, description = "The key is known: this is the job it stands for.", body = Inserted),
    )
)]
async fn clone(
    State(state): State<ApiState>,
    Id(id): Id<JobId>,
    MaybeBody(asked): MaybeBody<CloneJob>,
) -> Result<Response, Refusal> {
    let copy = Inserted::from(state.client().clone_job_as(id, asked.idempotency()?).await?);
    let status = if copy.existing { StatusCode::OK } else { StatusCode::CREATED };
    let location = location(&format!("/v1/jobs/{}", copy.id));
    Ok((status, [(header::LOCATION, location)], Json(copy)).into_response())
}

/// What operators did, newest first
///
/// The newest 10,000 are kept. With a condition, a call looks at 1,000 of them: the page may be short, even empty, and still
/// have a next one.
#[utoipa::path(
    get,
    path = "/v1/acts",
    tag = "operators",
    params(
        PageParams,
        ("target" = Option<String>, Query, description = "On what: a job's id, or a part of the words, such as `queue mail`."),
        ("by" = Option<String>, Query, description = "Who."),
        ("act" = Option<String>, Query, description = "What, such as `requeue`."),
    ),
    responses((status = 200, description = "A page of acts.", body = ActPage))
)]
async fn acts(State(state): State<ApiState>, mut query: Query) -> Result<Json<ActPage>, Refusal> {
    let (limit, mut after) = (query.limit()?, query.cursor()?);
    let (target, by, what) = (query.text("target")?, query.text("by")?, query.text("act")?);
    query.done()?;
    let matches = |act: &ActRecord| {
        target.as_ref().is_none_or(|target| act.target.contains(target.as_str()))
            && by.as_ref().is_none_or(|by| act.by.as_ref() == Some(by))
            && what.as_ref().is_none_or(|what| act.act == *what)
    };
    let (mut items, mut looked) = (Vec::new(), 0);
    // Never more than are still wanted, so that the cursor is that of the last act of the page.
    loop {
        let page = state.store().acts(after.as_ref(), limit - items.len()).await?;
        looked += page.items.len();
        items.extend(page.items.iter().filter(|act| matches(act)).map(Into::into));
        after = page.next;
        if after.is_none() || items.len() >= limit || looked >= PAGE_MAX {
            return Ok(Json(ActPage { items, next_cursor: after.map(|cursor| cursor.0) }));
        }
    }
}
