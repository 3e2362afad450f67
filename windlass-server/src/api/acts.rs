//! What operators do to one job, and the record of all acts.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{Act, Edit as StoredEdit};
use windlass::{JobId, RequeueOptions};

use super::ApiState;
use super::error::Refusal;
use super::extract::{Body, Caller, Id, MaybeBody, Query};
use super::jobs::{PageParams, shown};
use super::submit::location;
use crate::wire::{ActPage, Cancel, Edit, Inserted, Job, Requeue, Why};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(edit, delete))
        .routes(routes!(cancel))
        .routes(routes!(requeue))
        .routes(routes!(dead_letter))
        .routes(routes!(clone))
        .routes(routes!(acts))
}

/// An act on one job, by whom and why.
async fn act(
    state: &ApiState,
    caller: &Caller,
    mut query: Query,
    id: JobId,
    act: Act,
    why: String,
) -> Result<(), Refusal> {
    let by = query.by(caller)?;
    query.done()?;
    let operate = state.client().act(act).because(why);
    let operate = match by {
        Some(by) => operate.by(by),
        None => operate,
    };
    Ok(operate.on(id).await?)
}

/// The job as it is after an act.
async fn after(state: &ApiState, caller: &Caller, id: JobId) -> Result<Json<Job>, Refusal> {
    Ok(Json(shown(caller, &state.client().job(id).await?)))
}

/// Change a job's priority, tags, correlation id or callback URL
#[utoipa::path(
    patch,
    path = "/v1/jobs/{id}",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid"), ("by" = Option<String>, Query, description = "Who acts.")),
    request_body = Edit,
    responses((status = 200, description = "The job as it is now.", body = Job))
)]
async fn edit(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<JobId>,
    query: Query,
    Body(edit): Body<Edit>,
) -> Result<Json<Job>, Refusal> {
    let edit = StoredEdit::from(edit);
    edit.check()?;
    act(&state, &caller, query, id, Act::Edit(edit), String::new()).await?;
    after(&state, &caller, id).await
}

/// Remove an ended job
#[utoipa::path(
    delete,
    path = "/v1/jobs/{id}",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid"), ("by" = Option<String>, Query, description = "Who acts.")),
    responses((status = 204, description = "It is gone."))
)]
async fn delete(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<JobId>,
    query: Query,
) -> Result<StatusCode, Refusal> {
    act(&state, &caller, query, id, Act::Delete, String::new()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancel a job
///
/// A running job is asked to stop; with `force` it loses its lease at once.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/cancel",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid"), ("by" = Option<String>, Query, description = "Who acts.")),
    request_body(content = Option<Cancel>),
    responses((status = 200, description = "The job as it is now.", body = Job))
)]
async fn cancel(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<JobId>,
    query: Query,
    MaybeBody(cancel): MaybeBody<Cancel>,
) -> Result<Json<Job>, Refusal> {
    act(&state, &caller, query, id, Act::Cancel { force: cancel.force }, cancel.reason).await?;
    after(&state, &caller, id).await
}

/// Send a dead job back
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/requeue",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid"), ("by" = Option<String>, Query, description = "Who acts.")),
    request_body(content = Option<Requeue>),
    responses((status = 200, description = "The job as it is now.", body = Job))
)]
async fn requeue(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<JobId>,
    query: Query,
    MaybeBody(requeue): MaybeBody<Requeue>,
) -> Result<Json<Job>, Refusal> {
    let options = RequeueOptions::from(&requeue);
    act(&state, &caller, query, id, Act::Requeue(options), requeue.reason).await?;
    after(&state, &caller, id).await
}

/// Dead-letter a job
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/dead-letter",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid"), ("by" = Option<String>, Query, description = "Who acts.")),
    request_body(content = Option<Why>),
    responses((status = 200, description = "The job as it is now.", body = Job))
)]
async fn dead_letter(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<JobId>,
    query: Query,
    MaybeBody(why): MaybeBody<Why>,
) -> Result<Json<Job>, Refusal> {
    act(&state, &caller, query, id, Act::DeadLetter, why.reason).await?;
    after(&state, &caller, id).await
}

/// Copy a job under a new id
///
/// Without its key, dependencies and first run; the copy names the original in `cloned_from`.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/clone",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    responses((status = 201, description = "The copy.", body = Inserted))
)]
async fn clone(State(state): State<ApiState>, Id(id): Id<JobId>) -> Result<Response, Refusal> {
    let copy = Inserted::from(state.client().clone_job(id).await?);
    let location = location(&format!("/v1/jobs/{}", copy.id));
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(copy)).into_response())
}

/// What operators did, newest first
#[utoipa::path(
    get,
    path = "/v1/acts",
    tag = "operators",
    params(PageParams),
    responses((status = 200, description = "A page of acts.", body = ActPage))
)]
async fn acts(State(state): State<ApiState>, mut query: Query) -> Result<Json<ActPage>, Refusal> {
    let (limit, cursor) = (query.limit()?, query.cursor()?);
    query.done()?;
    let page = state.store().acts(cursor.as_ref(), limit).await?;
    let items = page.items.iter().map(Into::into).collect();
    Ok(Json(ActPage { items, next_cursor: page.next.map(|cursor| cursor.0) }))
}
