//! The flow control of queues: limits, rates, turns and order, of a queue and of its keys.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::flow::{Change, ControlEdit, ControlRecord, GateName};
use windlass::store::{Cursor, KeyQuery};
use windlass::{Error, JobType, QueueName};

use super::ApiState;
use super::acting::{Acting, ByParams};
use super::error::Refusal;
use super::extract::{Body, MaybeBody, Name, Names, Query};
use super::roles::{Role, needs};
use crate::wire::{Control, Controlled, FlowKey, FlowKeyPage, FlowLimit, HoldGate, Kind};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Read, routes!(get)))
        .routes(needs(Role::Operate, routes!(put, clear)))
        .routes(needs(Role::Operate, routes!(hold)))
        .routes(needs(Role::Read, routes!(keys)))
        .routes(needs(Role::Read, routes!(key)))
        .routes(needs(Role::Operate, routes!(put_key, clear_key)))
        .routes(needs(Role::Operate, routes!(hold_key)))
        .routes(needs(Role::Operate, routes!(resume_key)))
}

/// The flow control of a queue
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/control",
    tag = "queues",
    operation_id = "get_control",
    params(("queue" = String, Path, description = "Its name, percent-encoded.")),
    responses((status = 200, description = "The control; its version is in the `ETag`.", body = Controlled))
)]
async fn get(State(state): State<ApiState>, Name(name): Name) -> Result<Response, Refusal> {
    let queue = QueueName::new(name)?;
    let found = state.store().controlled(&queue).await?;
    let found = found.ok_or_else(|| Error::not_found("control of queue", queue.as_str()))?;
    Ok(tagged(&found))
}

fn tagged(record: &ControlRecord) -> Response {
    ([(header::ETAG, format!("\"{}\"", record.version))], Json(Controlled::from(record))).into_response()
}

/// The version that a request expects.
fn version(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let Some(tag) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let tag = tag.to_str().unwrap_or("").trim();
    let version = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).and_then(|tag| tag.parse().ok());
    let refused = || Refusal::new(Kind::INVALID_ARGUMENT, "must be an ETag of this control").field("If-Match");
    version.map(Some).ok_or_else(refused)
}

/// Bring a queue under control, or change its control
///
/// Holds for every claim that begins after this has answered. With `If-Match`, only when it has that version.
#[utoipa::path(
    put,
    path = "/v1/queues/{queue}/control",
    tag = "queues",
    operation_id = "put_control",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ByParams,
        ("If-Match" = Option<String>, Header, description = "The `ETag` it must have now."),
    ),
    request_body = Control,
    responses((status = 200, description = "The control as it is now.", body = Controlled))
)]
async fn put(
    acting: Acting,
    Name(name): Name,
    headers: HeaderMap,
    Body(control): Body<Control>,
) -> Result<Response, Refusal> {
    let (version, from_code) = (version(&headers)?, control.from_code);
    let change = Change::Put { control: control.try_into()?, version, from_code };
    let record = acting.control(&ControlEdit::new(QueueName::new(name)?, change)).await?;
    Ok(record.as_ref().map_or_else(|| StatusCode::NO_CONTENT.into_response(), tagged))
}

/// End the control of a queue: its jobs are claimed as those of any queue
#[utoipa::path(
    delete,
    path = "/v1/queues/{queue}/control",
    tag = "queues",
    operation_id = "clear_control",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ByParams,
        ("If-Match" = Option<String>, Header, description = "The `ETag` it must have now."),
    ),
    responses((status = 204, description = "It has none."))
)]
async fn clear(acting: Acting, Name(name): Name, headers: HeaderMap) -> Result<StatusCode, Refusal> {
    let change = Change::Clear { version: version(&headers)? };
    acting.control(&ControlEdit::new(QueueName::new(name)?, change)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Start nothing of a controlled queue, or of a type in it, for a time; without a time, lift the hold
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/hold",
    tag = "queues",
    operation_id = "hold_queue",
    params(("queue" = String, Path, description = "Its name, percent-encoded."), ByParams),
    request_body(content = Option<HoldGate>),
    responses((status = 204, description = "It is held, or not any more."))
)]
async fn hold(acting: Acting, Name(name): Name, MaybeBody(hold): MaybeBody<HoldGate>) -> Result<StatusCode, Refusal> {
    let gate = hold.job_type.map_or(Ok(GateName::Queue), |job_type| JobType::new(job_type).map(GateName::Type))?;
    let change = Change::Hold { gate, time: hold.time.map(|time| time.0) };
    acting.control(&ControlEdit::new(QueueName::new(name)?, change)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Keys of a controlled queue, by name, and how each stands
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/keys",
    tag = "queues",
    operation_id = "list_keys",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ("blocked" = Option<bool>, Query, description = "Only keys of which nothing may start now."),
        ("limit" = Option<u32>, Query, description = "How many rows at most; 50 unless said.", minimum = 1,
            maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the last page."),
    ),
    responses((status = 200, description = "A page of keys.", body = FlowKeyPage))
)]
async fn keys(State(state): State<ApiState>, Name(name): Name, mut query: Query) -> Result<Json<FlowKeyPage>, Refusal> {
    let (limit, after) = (query.limit()?, query.text("cursor")?.map(Cursor));
    let blocked = query.flag("blocked", false)?;
    query.done()?;
    let asked = KeyQuery { blocked, limit, after, ..KeyQuery::new(QueueName::new(name)?) };
    let page = state.store().keys(&asked).await?;
    let items = page.items.iter().map(FlowKey::from).collect();
    Ok(Json(FlowKeyPage { items, next_cursor: page.next.map(|next| next.0) }))
}

/// A key of a controlled queue, and how it stands
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/keys/{key}",
    tag = "queues",
    operation_id = "get_key",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ("key" = String, Path, description = "The key, percent-encoded."),
    ),
    responses((status = 200, description = "The key.", body = FlowKey))
)]
async fn key(State(state): State<ApiState>, Names(queue, key): Names) -> Result<Json<FlowKey>, Refusal> {
    let asked = KeyQuery { key: Some(key.clone()), ..KeyQuery::new(QueueName::new(queue)?) };
    let found = state.store().keys(&asked).await?.items.pop();
    Ok(Json(FlowKey::from(&found.ok_or_else(|| Error::not_found("key", key))?)))
}

/// Give a key limits of its own
#[utoipa::path(
    put,
    path = "/v1/queues/{queue}/keys/{key}",
    tag = "queues",
    operation_id = "put_key",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ("key" = String, Path, description = "The key, percent-encoded."),
        ByParams,
    ),
    request_body = FlowLimit,
    responses((status = 204, description = "It has them."))
)]
async fn put_key(
    acting: Acting,
    Names(queue, key): Names,
    Body(limit): Body<FlowLimit>,
) -> Result<StatusCode, Refusal> {
    change_key(&acting, queue, Change::PutKey { key, limit: limit.into() }).await
}

/// Take a key's own limits away
#[utoipa::path(
    delete,
    path = "/v1/queues/{queue}/keys/{key}",
    tag = "queues",
    operation_id = "clear_key",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ("key" = String, Path, description = "The key, percent-encoded."),
        ByParams,
    ),
    responses((status = 204, description = "It has none of its own."))
)]
async fn clear_key(acting: Acting, Names(queue, key): Names) -> Result<StatusCode, Refusal> {
    change_key(&acting, queue, Change::ClearKey { key }).await
}

/// Start nothing of a key for a time; without a time, lift the hold
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/keys/{key}/hold",
    tag = "queues",
    operation_id = "hold_key",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ("key" = String, Path, description = "The key, percent-encoded."),
        ByParams,
    ),
    request_body(content = Option<HoldGate>),
    responses((status = 204, description = "It is held, or not any more."))
)]
async fn hold_key(
    acting: Acting,
    Names(queue, key): Names,
    MaybeBody(hold): MaybeBody<HoldGate>,
) -> Result<StatusCode, Refusal> {
    if hold.job_type.is_some() {
        return Err(Error::invalid("type", "does not go with a key").into());
    }
    let time = hold.time.map(|time| time.0);
    change_key(&acting, queue, Change::Hold { gate: GateName::Key(key), time }).await
}

/// Lift the hold of a key, and let a halted one go on
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/keys/{key}/resume",
    tag = "queues",
    operation_id = "resume_key",
    params(
        ("queue" = String, Path, description = "Its name, percent-encoded."),
        ("key" = String, Path, description = "The key, percent-encoded."),
        ByParams,
    ),
    responses((status = 204, description = "It goes on."))
)]
async fn resume_key(acting: Acting, Names(queue, key): Names) -> Result<StatusCode, Refusal> {
    change_key(&acting, queue, Change::Resume { key }).await
}

async fn change_key(acting: &Acting, queue: String, change: Change) -> Result<StatusCode, Refusal> {
    acting.control(&ControlEdit::new(QueueName::new(queue)?, change)).await?;
    Ok(StatusCode::NO_CONTENT)
}
