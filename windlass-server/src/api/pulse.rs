//! What changes, for people who look: a few words a second, however many jobs go through.
//!
//! One sampler looks at the store while somebody listens, and all listeners share what it finds: ten tabs cost what one costs.
//! `/v1/events` tells of each job and is for programs.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{LaneRecord, Observation, WorkflowQuery};
use windlass::{Error, JobId, JobRecord, Result, Timestamp, WorkflowId};

use super::ApiState;
use super::bounded;
use super::error::Refusal;
use super::extract::Query;
use super::roles::{Role, needs};
use crate::wire::{Kind, OperationStatus, States};

/// Most topics of one listener: a screen shows fewer.
const TOPICS_MAX: usize = 64;
/// Most jobs, workflows and operations that are looked at for all listeners together: one look finds them all.
const WATCHED_MAX: usize = 200;
/// From one look at what is watched to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// After a look that took long, for it found large jobs or a slow store, the next waits this many times as long.
const REST_TIMES: u32 = 4;
/// The numbers are taken at each second look.
const NUMBERS_EVERY: u32 = 2;
/// How many messages a slow listener may fall behind; it then misses some, and the next tell the same.
const BEHIND_MAX: usize = 256;
/// A comment so often, so that both ends notice when the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Something that somebody looks at.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Topic {
    Overview,
    Lanes,
    Job(JobId),
    Workflow(WorkflowId),
    Operation(String),
}

impl FromStr for Topic {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "overview" => Ok(Topic::Overview),
            None if text == "lanes" => Ok(Topic::Lanes),
            Some(("job", id)) => Ok(Topic::Job(id.parse()?)),
            Some(("workflow", id)) => Ok(Topic::Workflow(id.parse()?)),
            Some(("operation", id)) => Ok(Topic::Operation(id.to_owned())),
            _ => Err(Error::invalid("topics", "must be overview, lanes, job:ID, workflow:ID or operation:ID")),
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Topic::Overview => f.write_str("overview"),
            Topic::Lanes => f.write_str("lanes"),
            Topic::Job(id) => write!(f, "job:{id}"),
            Topic::Workflow(id) => write!(f, "workflow:{id}"),
            Topic::Operation(id) => write!(f, "operation:{id}"),
        }
    }
}

/// What listeners are told.
#[derive(Clone, Debug)]
struct Beat {
    topic: Topic,
    event: &'static str,
    data: String,
}

/// The numbers of the whole store.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
struct Overview {
    /// The build of the server: another one means that the page is old.
    build: &'static str,
    /// The store's time.
    #[schema(value_type = String, format = DateTime)]
    now: Timestamp,
    /// Jobs in each state.
    states: States,
    /// Jobs a second that came in since the message before; absent in the first.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    came: Option<f64>,
    /// Jobs a second that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<f64>,
    /// Attempts a second that failed or were lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<f64>,
    /// How many jobs live workers can run at once.
    slots: u64,
}

/// Something that was watched is not as it was.
#[derive(Serialize)]
struct Changed {
    build: &'static str,
    topic: String,
}

/// The sampler and its listeners. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Pulse {
    watched: Arc<Mutex<HashMap<Topic, usize>>>,
    beats: broadcast::Sender<Beat>,
}

impl Default for Pulse {
    fn default() -> Self {
        Pulse { watched: Arc::default(), beats: broadcast::Sender::new(BEHIND_MAX) }
    }
}

impl Pulse {
    /// Listens to topics; refused when too much is watched. The sampler begins with the first listener.
    fn listen(&self, state: &ApiState, topics: HashSet<Topic>) -> Result<Listening, Refusal> {
        let beats = self.beats.subscribe();
        let mut watched = self.watched.lock().expect("nothing panics while it holds the topics");
        let begins = watched.is_empty();
        let single = |topic: &&Topic| !matches!(topic, Topic::Overview | Topic::Lanes);
        let new = topics.iter().filter(single).filter(|topic| !watched.contains_key(*topic)).count();
        if watched.keys().filter(single).count() + new > WATCHED_MAX {
            return Err(Refusal::new(Kind::TOO_MANY, format!("{WATCHED_MAX} things are watched already")));
        }
        for topic in &topics {
            *watched.entry(topic.clone()).or_default() += 1;
        }
        drop(watched);
        if begins && !topics.is_empty() {
            tokio::spawn(self.clone().sample(state.clone()));
        }
        Ok(Listening { topics, beats, pulse: self.clone() })
    }

    fn topics(&self) -> Vec<Topic> {
        self.watched.lock().expect("nothing panics while it holds the topics").keys().cloned().collect()
    }

    /// Looks and tells until nobody listens.
    async fn sample(self, state: ApiState) {
        let mut last = Last::default();
        let mut look: u32 = 0;
        loop {
            let topics = self.topics();
            if topics.is_empty() || state.stopping.is_cancelled() {
                return;
            }
            let begun = Instant::now();
            match last.look(&state, &topics, look.is_multiple_of(NUMBERS_EVERY)).await {
                // Nobody listening any more is no error.
                Ok(beats) => beats.into_iter().for_each(|beat| drop(self.beats.send(beat))),
                Err(error) => tracing::debug!(%error, "the pulse misses a beat"),
            }
            look = look.wrapping_add(1);
            tokio::time::sleep(LOOK_EVERY.max(begun.elapsed() * REST_TIMES)).await;
        }
    }
}

/// A listener. Dropping it ends the watch for its topics.
struct Listening {
    topics: HashSet<Topic>,
    beats: broadcast::Receiver<Beat>,
    pulse: Pulse,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut watched = self.pulse.watched.lock().expect("nothing panics while it holds the topics");
        for topic in &self.topics {
            if let Some(count) = watched.get_mut(topic) {
                *count -= 1;
                if *count == 0 {
                    watched.remove(topic);
                }
            }
        }
    }
}

/// What was seen at the last look.
#[derive(Default)]
struct Last {
    numbers: Option<Arc<Observation>>,
    jobs: HashMap<JobId, Option<String>>,
    workflows: HashMap<WorkflowId, Option<[u64; 9]>>,
    operations: HashMap<String, Option<String>>,
}

impl Last {
    async fn look(&mut self, state: &ApiState, topics: &[Topic], numbers: bool) -> Result<Vec<Beat>> {
        let mut beats = Vec::new();
        let asks = |wanted: &Topic| topics.contains(wanted);
        if numbers && (asks(&Topic::Overview) || asks(&Topic::Lanes)) {
            self.look_at_numbers(state, &mut beats).await?;
        }
        self.look_at_jobs(state, topics, &mut beats).await?;
        self.look_at_workflows(state, topics, &mut beats).await?;
        self.look_at_operations(state, topics, &mut beats);
        Ok(beats)
    }

    async fn look_at_numbers(&mut self, state: &ApiState, beats: &mut Vec<Beat>) -> Result<()> {
        let begun = tokio::time::Instant::now();
        let seen = Arc::new(state.store().observe(None).await?);
        state.recent.lanes.put(begun, Arc::clone(&seen)).await;
        let workers = state.store().workers().await?;
        let slots = workers.iter().flat_map(|worker| &worker.queues).map(|served| u64::from(served.slots)).sum();
        let overview = overview(self.numbers.as_deref(), &seen, slots);
        let data = serde_json::to_string(&overview).expect("numbers are plain JSON");
        beats.push(Beat { topic: Topic::Overview, event: "overview", data });
        if self.numbers.as_ref().is_some_and(|last| last.lanes != seen.lanes) {
            state.recent.queues.forget(begun).await;
            beats.push(changed(Topic::Lanes));
        }
        self.numbers = Some(seen);
        Ok(())
    }

    async fn look_at_jobs(&mut self, state: &ApiState, topics: &[Topic], beats: &mut Vec<Beat>) -> Result<()> {
        let job = |topic: &Topic| if let Topic::Job(id) = topic { Some(*id) } else { None };
        let ids: Vec<JobId> = topics.iter().filter_map(job).collect();
        if ids.is_empty() {
            self.jobs.clear();
            return Ok(());
        }
        let mut now: HashMap<JobId, Option<String>> = HashMap::new();
        // A few at a time: jobs come with all that they carry, and only a mark is kept of each.
        for some in ids.chunks(bounded::rows_of(state.client().limits_in_force())) {
            let found = state.store().find(some).await?;
            now.extend(some.iter().copied().zip(found.iter().map(|job| job.as_ref().map(mark))));
        }
        let moved = now.iter().filter(|(id, mark)| self.jobs.get(id).is_some_and(|last| last != *mark));
        beats.extend(moved.map(|(id, _)| changed(Topic::Job(*id))));
        self.jobs = now;
        Ok(())
    }

    async fn look_at_workflows(&mut self, state: &ApiState, topics: &[Topic], beats: &mut Vec<Beat>) -> Result<()> {
        let workflow = |topic: &Topic| if let Topic::Workflow(id) = topic { Some(*id) } else { None };
        let ids: Vec<WorkflowId> = topics.iter().filter_map(workflow).collect();
        if ids.is_empty() {
            self.workflows.clear();
            return Ok(());
        }
        let found = state.store().workflows(&WorkflowQuery::Ids(ids.clone())).await?.items;
        let mut now: HashMap<WorkflowId, Option<[u64; 9]>> = ids.into_iter().map(|id| (id, None)).collect();
        now.extend(found.iter().map(|found| (found.id, Some(found.counts))));
        let moved = now.iter().filter(|(id, counts)| self.workflows.get(id).is_some_and(|last| last != *counts));
        beats.extend(moved.map(|(id, _)| changed(Topic::Workflow(*id))));
        self.workflows = now;
        Ok(())
    }

    fn look_at_operations(&mut self, state: &ApiState, topics: &[Topic], beats: &mut Vec<Beat>) {
        let operation = |topic: &Topic| if let Topic::Operation(id) = topic { Some(id.clone()) } else { None };
        let mark = |status: OperationStatus| serde_json::to_string(&status).unwrap_or_default();
        let now: HashMap<String, Option<String>> = topics
            .iter()
            .filter_map(operation)
            .map(|id| (id.clone(), state.operations.status(&id).map(mark)))
            .collect();
        let moved = now.iter().filter(|(id, mark)| self.operations.get(*id).is_some_and(|last| last != *mark));
        beats.extend(moved.map(|(id, _)| changed(Topic::Operation(id.clone()))));
        self.operations = now;
    }
}

/// What of a job people see change.
fn mark(job: &JobRecord) -> String {
    let progress = job.progress.as_ref().map(|progress| (progress.fraction.to_bits(), &progress.message));
    format!("{:?}", (job.state, job.updated_at, job.attempt, job.lease_version, job.cancel.is_some(), progress))
}

fn changed(topic: Topic) -> Beat {
    let told = Changed { build: env!("CARGO_PKG_VERSION"), topic: topic.to_string() };
    Beat { topic, event: "changed", data: serde_json::to_string(&told).expect("a topic is plain JSON") }
}

fn overview(last: Option<&Observation>, seen: &Observation, slots: u64) -> Overview {
    let sum = |seen: &Observation, of: fn(&LaneRecord) -> u64| seen.lanes.iter().map(of).sum::<u64>();
    let rate = |of: fn(&LaneRecord) -> u64| {
        let last = last?;
        let seconds = seen.now.since(last.now).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown, not counted")]
        let more = sum(seen, of).saturating_sub(sum(last, of)) as f64;
        (seconds > 0.0).then(|| more / seconds)
    };
    Overview {
        build: env!("CARGO_PKG_VERSION"),
        now: seen.now,
        states: seen.totals().states.into(),
        came: rate(|lane| lane.accepted),
        out: rate(|lane| lane.ended.iter().sum()),
        failing: rate(|lane| lane.retried + lane.lost + lane.ended[1] + lane.ended[2]),
        slots,
    }
}

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(pulse)))
}

/// Follow what people look at
///
/// Server-sent events: `overview` with the numbers of the store about once a second, and `changed` with a `topic` that is not as it
/// was, at most twice a second for each. What changed is to be read anew. Every message carries the build of the server.
#[utoipa::path(
    get,
    path = "/v1/pulse",
    tag = "events",
    params(("topics" = Option<String>, Query,
        description = "`overview`, `lanes`, `job:ID`, `workflow:ID`, `operation:ID`, with commas between; at most 64.")),
    responses((status = 200, description = "A stream; the data of `overview` is an `Overview`.", body = Overview,
        content_type = "text/event-stream"))
)]
async fn pulse(
    State(state): State<ApiState>,
    mut query: Query,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Refusal> {
    let topics = query.text("topics")?.unwrap_or_else(|| "overview".to_owned());
    query.done()?;
    let topics: HashSet<Topic> = topics.split(',').map(Topic::from_str).collect::<Result<_>>()?;
    if topics.len() > TOPICS_MAX {
        return Err(Error::invalid("topics", format!("must be at most {TOPICS_MAX}, are {}", topics.len())).into());
    }
    let listening = state.pulse.listen(&state, topics)?;
    let beats = stream::unfold(listening, |mut listening| async move {
        loop {
            match listening.beats.recv().await {
                Ok(beat) if listening.topics.contains(&beat.topic) => {
                    let event = SseEvent::default().event(beat.event).data(&beat.data);
                    return Some((Ok(event), listening));
                }
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let stopping = state.stopping.clone();
    let beats = beats.take_until(async move { stopping.cancelled().await });
    Ok(Sse::new(beats).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

#[cfg(test)]
mod tests {
    use windlass::{Client, NewJob, Payload};

    use super::*;

    #[test]
    fn topics_are_read_as_they_are_told() {
        let id = windlass::store::new_job_id();
        for text in ["overview", "lanes", "operation:x", &format!("job:{id}"), &format!("workflow:{id}")] {
            assert_eq!(text.parse::<Topic>().expect("a topic").to_string(), text);
        }
        for wrong in ["", "jobs", "job:x", "queue:mail"] {
            assert!(wrong.parse::<Topic>().is_err(), "{wrong}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_share_a_sampler_that_ends_with_them() {
        let client = Client::in_memory();
        let id = client.enqueue(NewJob::new("t", Payload::default())).await.expect("stored").id;
        let state = ApiState::new(client.clone());
        let topics = HashSet::from([Topic::Job(id), Topic::Overview]);
        let mut first = state.pulse.listen(&state, topics.clone()).expect("listens");
        let second = state.pulse.listen(&state, topics).expect("listens");
        assert_eq!(first.beats.recv().await.expect("a beat").topic, Topic::Overview);
        client.act(windlass::store::Act::Cancel { force: false }).on(id).await.expect("cancelled");
        loop {
            let beat = first.beats.recv().await.expect("a beat");
            if beat.topic == Topic::Job(id) {
                assert_eq!(beat.event, "changed");
                break;
            }
        }
        drop(first);
        assert!(!state.pulse.topics().is_empty());
        drop(second);
        assert!(state.pulse.topics().is_empty());
    }

    #[tokio::test]
    async fn too_much_to_watch_is_refused() {
        let state = ApiState::new(Client::in_memory());
        let some = |from: usize| (from..from + 60).map(|number| Topic::Operation(number.to_string())).collect();
        let held: Vec<Listening> =
            (0..3).map(|part| state.pulse.listen(&state, some(60 * part)).expect("listens")).collect();
        assert!(state.pulse.listen(&state, some(180)).is_err());
        assert!(state.pulse.listen(&state, some(0)).is_ok(), "what is watched already costs nothing more");
        drop(held);
        assert!(state.pulse.listen(&state, some(180)).is_ok());
    }
}
