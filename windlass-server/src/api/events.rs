//! What happens, as it happens: events that can be resumed, and hints that may be lost.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::broadcast::error::RecvError;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{Cursor, Wake};
use windlass::{Error, QueueName};

use super::ApiState;
use super::error::Refusal;
use super::extract::Query;
use super::jobs::PageParams;
use super::roles::{Role, needs};
use crate::wire::{Event, EventPage, Hint};

/// A comment so often, so that both ends notice when the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(needs(Role::Read, routes!(events)))
        .routes(needs(Role::Read, routes!(page)))
        .routes(needs(Role::Work, routes!(wakes)))
}

/// Follow jobs as they are enqueued and end
///
/// Server-sent events, each with the `id` to go on from: send the last one as `Last-Event-ID` (browsers do) or as
/// `cursor`, and nothing is missed. Without it, from now on. A comment comes every 15 s.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "events",
    params(
        ("cursor" = Option<String>, Query, description = "Go on after this event."),
        ("Last-Event-ID" = Option<String>, Header, description = "The same; wins over `cursor`."),
    ),
    responses((status = 200, description = "A stream; each event's data is an `Event`.", body = Event,
        content_type = "text/event-stream"))
)]
async fn events(
    State(state): State<ApiState>,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Refusal> {
    let cursor = query.cursor()?;
    query.done()?;
    let resumed = match headers.get("last-event-id") {
        None => cursor,
        Some(id) => {
            let id = id.to_str().map_err(|_| Error::invalid("cursor", "in Last-Event-ID is no text"))?;
            Some(Cursor(id.to_owned()))
        }
    };
    if let Some(cursor) = &resumed {
        // A cursor that the store cannot read is refused here, before the stream begins.
        state.store().events(Some(cursor), 1).await?;
    }
    let events = state.client().events(resumed).await?;
    let told = stream::unfold(events, |mut events| async move {
        match events.next().await {
            Ok(event) => Some((Ok(told(&Event::from(&event))), events)),
            Err(error) => {
                // The caller comes back with the last id, so ending the stream loses nothing.
                tracing::warn!(error = %error, "a stream of events ends");
                None
            }
        }
    });
    Ok(streamed(&state, told))
}

fn told(event: &Event) -> SseEvent {
    let kind = match event.event {
        crate::wire::EventKind::Enqueued => "enqueued",
        crate::wire::EventKind::Ended => "ended",
    };
    SseEvent::default()
        .id(&event.cursor)
        .event(kind)
        .data(serde_json::to_string(event).expect("an event is plain JSON"))
}

/// What happened to jobs, oldest first, a page at a time
///
/// Without a cursor: an empty page whose cursor marks the present.
#[utoipa::path(
    get,
    path = "/v1/events/page",
    tag = "events",
    params(PageParams),
    responses((status = 200, description = "A page of events.", body = EventPage))
)]
async fn page(State(state): State<ApiState>, mut query: Query) -> Result<Json<EventPage>, Refusal> {
    let (limit, cursor) = (query.limit()?, query.cursor()?);
    query.done()?;
    let page = state.store().events(cursor.as_ref(), limit).await?;
    let items = page.items.iter().map(Event::from).collect();
    Ok(Json(EventPage { items, next_cursor: page.next.map(|cursor| cursor.0) }))
}

/// Hints that something changed
///
/// Server-sent events for workers, so that they need not poll often: a queue may have a job, a job ended, a running job
/// was asked to stop, a worker was told something. Some may be lost; polling must suffice. The stream begins with a comment once it listens. With
/// `queue`, once for each, only jobs of these queues are told of as claimable, and ended jobs not at all.
#[utoipa::path(
    get,
    path = "/v1/wakes",
    tag = "events",
    params(("queue" = Option<Vec<String>>, Query, description = "Only hints that concern these queues.")),
    responses((status = 200, description = "A stream; each event's data is a `Hint`.", body = Hint,
        content_type = "text/event-stream"))
)]
async fn wakes(
    State(state): State<ApiState>,
    mut query: Query,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Refusal> {
    let queues: Result<Vec<_>, _> = query.texts("queue").into_iter().map(QueueName::new).collect();
    let queues = queues?;
    query.done()?;
    let hints = stream::unfold((state.store().wakes(), queues), |(mut wakes, queues)| async move {
        loop {
            match wakes.recv().await {
                Ok(wake) if !concerns(&wake, &queues) => {}
                Ok(wake) => {
                    let Some(hint) = Hint::of(&wake) else { continue };
                    let data = serde_json::to_string(&hint).expect("a hint is plain JSON");
                    return Some((Ok(SseEvent::default().data(data)), (wakes, queues)));
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let listening = stream::once(async { Ok(SseEvent::default().comment("listening")) });
    Ok(streamed(&state, listening.chain(hints)))
}

/// Whether a hint is for somebody who serves these queues; everything is for somebody who names none.
fn concerns(wake: &Wake, queues: &[QueueName]) -> bool {
    match wake {
        _ if queues.is_empty() => true,
        Wake::Scheduled(queue) | Wake::Paused(queue) => queues.contains(queue),
        // The running job may be theirs: its holder knows.
        Wake::CancelAsked(_) => true,
        Wake::Ended(_) => false,
        _ => true,
    }
}

fn streamed<S>(state: &ApiState, events: S) -> Sse<impl Stream<Item = Result<SseEvent, Infallible>> + use<S>>
where
    S: Stream<Item = Result<SseEvent, Infallible>> + Send + 'static,
{
    let until = state.stopping.clone().cancelled_owned();
    Sse::new(events.take_until(until)).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("heartbeat"))
}
