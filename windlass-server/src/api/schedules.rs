//! Schedules: create, replace, pause, resume, trigger, delete, look ahead.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::Error;
use windlass::schedule::ScheduleRecord;
use windlass::store::ScheduleEdit;

use super::ApiState;
use super::acting::{Acting, ByParams};
use super::bounded::{self, ANSWER_BYTES_MAX};
use super::error::Refusal;
use super::extract::{Body, Caller, Name, Query};
use super::jobs::PageParams;
use super::roles::{Role, needs};
use crate::wire::{Kind, NewSchedule, NextSlots, Schedule, SchedulePage, Triggered};

/// Most slots that a preview shows.
const NEXT_MAX: u64 = 100;
const NEXT_DEFAULT: u64 = 5;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Read, routes!(list)))
        .routes(needs(Role::Operate, routes!(create)))
        .routes(needs(Role::Read, routes!(get)))
        .routes(needs(Role::Operate, routes!(put, delete)))
        .routes(needs(Role::Read, routes!(next)))
        .routes(needs(Role::Operate, routes!(pause)))
        .routes(needs(Role::Operate, routes!(resume)))
        .routes(needs(Role::Operate, routes!(trigger)))
}

/// Schedules, by name
#[utoipa::path(
    get,
    path = "/v1/schedules",
    tag = "schedules",
    params(PageParams),
    responses((status = 200, description = "A page of schedules.", body = SchedulePage))
)]
async fn list(State(state): State<ApiState>, caller: Caller, mut query: Query) -> Result<Json<SchedulePage>, Refusal> {
    let (limit, after) = (query.limit()?, query.text("cursor")?);
    query.done()?;
    let (schedules, more) = page(&state, after, limit).await?;
    let next_cursor = schedules.last().filter(|_| more).map(|schedule| schedule.spec.name.clone());
    let items = schedules.iter().map(|schedule| shown(&caller, schedule)).collect();
    Ok(Json(SchedulePage { items, next_cursor }))
}

/// A page of schedules, read a few at a time and cut where their payloads become too large; whether there may be more.
async fn page(
    state: &ApiState,
    mut after: Option<String>,
    limit: usize,
) -> Result<(Vec<ScheduleRecord>, bool), Refusal> {
    let step = bounded::claims_of(state.client().limits_in_force());
    let mut schedules: Vec<ScheduleRecord> = Vec::new();
    let mut bytes = 0;
    loop {
        let wanted = step.min(limit - schedules.len());
        let turn = state.bounds.turn().await?;
        let some = state.store().schedules(after.as_deref(), wanted).await?;
        drop(turn);
        let all = some.len() < wanted;
        bytes += some.iter().map(|schedule| schedule.spec.job.payload.len()).sum::<usize>();
        after = some.last().map(|schedule| schedule.spec.name.clone()).or(after);
        schedules.extend(some);
        if all || schedules.len() >= limit || bytes >= ANSWER_BYTES_MAX {
            return Ok((schedules, !all));
        }
    }
}

/// Create a schedule
///
/// Refused with 409 when the name is taken.
#[utoipa::path(
    post,
    path = "/v1/schedules",
    tag = "schedules",
    params(ByParams),
    request_body = NewSchedule,
    responses((status = 201, description = "The schedule; its version is in the `ETag`.", body = Schedule))
)]
async fn create(acting: Acting, Body(new): Body<NewSchedule>) -> Result<Response, Refusal> {
    let edit = ScheduleEdit::Create(new.check(acting.state().client())?);
    let edited = acting.edit_schedule(&edit).await?;
    Ok((StatusCode::CREATED, tagged(acting.caller(), &edited.schedule)).into_response())
}

/// Get a schedule
#[utoipa::path(
    get,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    params(("name" = String, Path, description = "Its name, percent-encoded.")),
    responses((status = 200, description = "The schedule; its version is in the `ETag`.", body = Schedule))
)]
async fn get(State(state): State<ApiState>, caller: Caller, Name(name): Name) -> Result<Response, Refusal> {
    Ok(tagged(&caller, &find(&state, &name).await?).into_response())
}

/// Create or replace a schedule
///
/// With `If-Match`, only when it has that version; with `If-None-Match: *`, only when there is none of that name.
/// Otherwise 412.
#[utoipa::path(
    put,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    params(
        ("name" = String, Path, description = "Its name, percent-encoded."),
        ByParams,
        ("If-Match" = Option<String>, Header, description = "The `ETag` it must have now, or `*`."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: it must not exist."),
    ),
    request_body = NewSchedule,
    responses((status = 200, description = "The schedule as it is now.", body = Schedule))
)]
async fn put(
    acting: Acting,
    Name(name): Name,
    headers: HeaderMap,
    Body(new): Body<NewSchedule>,
) -> Result<Response, Refusal> {
    if new.name.as_ref().is_some_and(|given| *given != name) {
        return Err(Error::invalid("name", "in the body is not the one in the path").into());
    }
    let spec = NewSchedule { name: Some(name.clone()), ..new }.check(acting.state().client())?;
    let condition = condition(&headers)?;
    let edit = match condition {
        Condition::None => ScheduleEdit::Put { spec, version: None },
        Condition::Version(version) => ScheduleEdit::Put { spec, version: Some(version) },
        Condition::Absent => ScheduleEdit::Create(spec),
        Condition::Present => {
            let version = find(acting.state(), &name).await.map_err(|_| moved_on(&name))?.version;
            ScheduleEdit::Put { spec, version: Some(version) }
        }
    };
    let edited = acting.edit_schedule(&edit).await;
    let conflicts = |refusal: &Refusal| refusal.problem().slug() == Kind::CONFLICT.slug;
    match edited {
        Err(refusal) if condition != Condition::None && conflicts(&refusal) => Err(moved_on(&name)),
        edited => Ok(tagged(acting.caller(), &edited?.schedule).into_response()),
    }
}

/// What must hold of the schedule before it is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    None,
    Version(u64),
    Present,
    Absent,
}

fn condition(headers: &HeaderMap) -> Result<Condition, Refusal> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("").trim());
    match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (None, None) => Ok(Condition::None),
        (Some("*"), None) => Ok(Condition::Present),
        (None, Some("*")) => Ok(Condition::Absent),
        (Some(tag), None) => {
            let version = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).and_then(|tag| tag.parse().ok());
            let refused = || Refusal::new(Kind::INVALID_ARGUMENT, "must be an ETag of this schedule, or *");
            version.map(Condition::Version).ok_or_else(|| refused().field("If-Match"))
        }
        _ => Err(Refusal::new(Kind::INVALID_ARGUMENT, "only * is understood, and not beside If-Match")
            .field("If-None-Match")),
    }
}

fn moved_on(name: &str) -> Refusal {
    Refusal::new(Kind::PRECONDITION_FAILED, format!("schedule {name:?} is not as the request expects it"))
}

/// Forget a schedule; its jobs stay
#[utoipa::path(
    delete,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    params(("name" = String, Path, description = "Its name, percent-encoded."), ByParams),
    responses((status = 200, description = "The schedule as it was.", body = Schedule))
)]
async fn delete(acting: Acting, Name(name): Name) -> Result<Json<Schedule>, Refusal> {
    let edited = acting.edit_schedule(&ScheduleEdit::Delete(name)).await?;
    Ok(Json(shown(acting.caller(), &edited.schedule)))
}

/// The next moments at which a schedule would fire
#[utoipa::path(
    get,
    path = "/v1/schedules/{name}/next",
    tag = "schedules",
    params(
        ("name" = String, Path, description = "Its name, percent-encoded."),
        ("n" = Option<u32>, Query, description = "How many; 5 unless said.", minimum = 1, maximum = 100),
    ),
    responses((status = 200, description = "The moments.", body = NextSlots))
)]
async fn next(State(state): State<ApiState>, Name(name): Name, mut query: Query) -> Result<Json<NextSlots>, Refusal> {
    let n = query.number("n", 1..=NEXT_MAX, NEXT_DEFAULT)?;
    query.done()?;
    let schedule = find(&state, &name).await?;
    let now = state.store().now().await?;
    let n = usize::try_from(n).expect("the bound fits");
    Ok(Json(NextSlots { next: schedule.next(n, now) }))
}

/// Stop a schedule firing until it is resumed
#[utoipa::path(
    post,
    path = "/v1/schedules/{name}/pause",
    tag = "schedules",
    params(("name" = String, Path, description = "Its name, percent-encoded."), ByParams),
    responses((status = 200, description = "The schedule as it is now.", body = Schedule))
)]
async fn pause(acting: Acting, Name(name): Name) -> Result<Response, Refusal> {
    let edited = acting.edit_schedule(&ScheduleEdit::Pause(name)).await?;
    Ok(tagged(acting.caller(), &edited.schedule).into_response())
}

/// Let a schedule fire again
#[utoipa::path(
    post,
    path = "/v1/schedules/{name}/resume",
    tag = "schedules",
    params(("name" = String, Path, description = "Its name, percent-encoded."), ByParams),
    responses((status = 200, description = "The schedule as it is now.", body = Schedule))
)]
async fn resume(acting: Acting, Name(name): Name) -> Result<Response, Refusal> {
    let edited = acting.edit_schedule(&ScheduleEdit::Resume(name)).await?;
    Ok(tagged(acting.caller(), &edited.schedule).into_response())
}

/// Fire a schedule now, beside its slots
#[utoipa::path(
    post,
    path = "/v1/schedules/{name}/trigger",
    tag = "schedules",
    params(("name" = String, Path, description = "Its name, percent-encoded."), ByParams),
    responses((status = 201, description = "The job that was fired, and the schedule.", body = Triggered))
)]
async fn trigger(acting: Acting, Name(name): Name) -> Result<(StatusCode, Json<Triggered>), Refusal> {
    let edited = acting.edit_schedule(&ScheduleEdit::Trigger(name)).await?;
    let job_id = edited.job.expect("a trigger fires a job");
    Ok((StatusCode::CREATED, Json(Triggered { job_id, schedule: shown(acting.caller(), &edited.schedule) })))
}

/// The schedule of this name: the first one after everything that sorts before it.
async fn find(state: &ApiState, name: &str) -> Result<ScheduleRecord, Error> {
    let unknown = || Error::not_found("schedule", name.chars().take(128).collect::<String>());
    // The greatest text below the name that no other name lies above; DEL sorts after all that a name may hold.
    let (&last, front) = name.as_bytes().split_last().ok_or_else(unknown)?;
    if !name.is_ascii() || last <= b' ' || last == 0x7f {
        return Err(unknown());
    }
    let front = std::str::from_utf8(front).map_err(|_| unknown())?;
    let before = format!("{front}{}\u{7f}", char::from(last - 1));
    let found = state.store().schedules(Some(&before), 1).await?.into_iter().next();
    found.filter(|schedule| schedule.spec.name == name).ok_or_else(unknown)
}

fn shown(caller: &Caller, schedule: &ScheduleRecord) -> Schedule {
    let mut shown = Schedule::from(schedule);
    if caller.payloads_hidden {
        let job = &mut shown.schedule.job;
        (job.payload, job.payload_base64, job.content_type) = (None, None, None);
    }
    shown
}

fn tagged(caller: &Caller, schedule: &ScheduleRecord) -> ([(header::HeaderName, String); 1], Json<Schedule>) {
    ([(header::ETAG, format!("\"{}\"", schedule.version))], Json(shown(caller, schedule)))
}
