//! What the numbers were in the last hour: taken every few seconds by this server, kept in its memory.
//!
//! Nothing is written to the store and nobody who claims or settles pays for it. The price is that the past begins when
//! the server does; the answer says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::store::{QueueRecord, Store, Totals};
use windlass::{Error, State as JobState, Timestamp};

use super::ApiState;
use super::error::Refusal;
use super::extract::Query;
use super::roles::{Role, needs};

/// From one reading to the next.
const STEP: Duration = Duration::from_secs(5);
/// How far back readings are kept.
const KEPT: Duration = Duration::from_secs(3600);
/// Most points in an answer.
const POINTS_MAX: usize = 360;
/// A silence longer than this is a gap and not a slope.
const GAP: Duration = Duration::from_secs(20);
/// Most queues whose backlog is remembered; the longest ones.
const QUEUES_MAX: usize = 200;

/// One reading of the whole store.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) at: Timestamp,
    pub(super) totals: Totals,
    /// How many jobs are ready, by queue.
    pub(super) ready: Vec<(String, u64)>,
}

/// The readings of the last hour, oldest first. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<VecDeque<Reading>>>);

impl Recorder {
    /// Takes readings until `stopping`.
    pub async fn run(self, store: Arc<dyn Store>, stopping: CancellationToken) {
        let mut ticks = tokio::time::interval(STEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = ticks.tick() => {}
            }
            match read(&*store).await {
                Ok(reading) => self.add(reading),
                // The store's own failures are told where they concern somebody; here there is only a gap.
                Err(error) => tracing::debug!(%error, "no reading was taken"),
            }
        }
    }

    fn add(&self, reading: Reading) {
        let mut readings = self.0.lock().expect("nothing panics while it holds the readings");
        // A clock that was set back must not leave readings out of order.
        if readings.back().is_some_and(|last| last.at >= reading.at) {
            return;
        }
        let oldest = reading.at.minus(KEPT);
        readings.push_back(reading);
        while readings.front().is_some_and(|first| first.at < oldest) {
            readings.pop_front();
        }
    }

    /// The readings since a moment, oldest first.
    pub(super) fn since(&self, from: Timestamp) -> Vec<Reading> {
        let readings = self.0.lock().expect("nothing panics while it holds the readings");
        readings.iter().filter(|reading| reading.at >= from).cloned().collect()
    }
}

async fn read(store: &dyn Store) -> Result<Reading, Error> {
    let (at, totals, mut queues) = (store.now().await?, store.totals().await?, store.queues().await?);
    queues.sort_by_key(|queue| std::cmp::Reverse(ready(queue)));
    queues.truncate(QUEUES_MAX);
    Ok(Reading { at, totals, ready: queues.iter().map(|queue| (queue.name.to_string(), ready(queue))).collect() })
}

/// How many jobs of a queue are ready.
pub(super) fn ready(queue: &QueueRecord) -> u64 {
    queue.states[JobState::Scheduled as usize]
}

/// Lines over time.
#[derive(Debug, Serialize, ToSchema)]
struct Series {
    /// Since when this server has taken readings; what was before, it does not know.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// The moments, oldest first.
    #[schema(value_type = Vec<String>)]
    at: Vec<Timestamp>,
    series: Vec<Line>,
}

/// One line: a value for each moment, `null` for a gap.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
struct Line {
    name: &'static str,
    values: Vec<Option<f64>>,
}

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(series)))
}

/// What the numbers were in the last hour
///
/// `of=rate` is how many jobs came in and ended a second, `of=depth` how many stood in the states that are not the end,
/// and dead. Taken by this server every 5 s since it started, and kept in its memory.
#[utoipa::path(
    get,
    path = "/v1/series",
    tag = "store",
    params(
        ("of" = Option<String>, Query, description = "`rate` or `depth`; `rate` unless said."),
        ("last" = Option<crate::wire::Span>, Query, description = "How far back; at most 1h, 5m unless said."),
    ),
    responses((status = 200, description = "At most 360 points.", body = Series))
)]
async fn series(State(state): State<ApiState>, mut query: Query) -> Result<Json<Series>, Refusal> {
    let of = query.text("of")?.unwrap_or_else(|| "rate".to_owned());
    let last = query.duration("last", KEPT, Duration::from_secs(300))?;
    query.done()?;
    let now = state.store().now().await?;
    let begun = state.recorder.since(Timestamp::from_seconds(0)).first().map(|reading| reading.at);
    let readings = thinned(state.recorder.since(now.minus(last)));
    let series = match of.as_str() {
        "rate" => rates(&readings),
        "depth" => depths(&readings),
        _ => return Err(Error::invalid("of", "must be rate or depth").into()),
    };
    Ok(Json(Series { since: begun, at: readings.iter().map(|reading| reading.at).collect(), series }))
}

/// As many of the readings as an answer holds, evenly.
fn thinned(readings: Vec<Reading>) -> Vec<Reading> {
    let every = readings.len().div_ceil(POINTS_MAX).max(1);
    readings.into_iter().rev().step_by(every).collect::<Vec<_>>().into_iter().rev().collect()
}

fn ended(totals: &Totals) -> u64 {
    JobState::ALL
        .into_iter()
        .zip(totals.states)
        .filter(|(state, _)| state.is_terminal())
        .map(|(_, count)| count)
        .sum::<u64>()
        + totals.pruned
}

fn rates(readings: &[Reading]) -> Vec<Line> {
    let rate = |of: fn(&Totals) -> u64| {
        let mut values = vec![None; readings.len().min(1)];
        values.extend(readings.windows(2).map(|pair| {
            let [before, after] = pair else { return None };
            let time = after.at.since(before.at);
            // A requeued job leaves an ended state: then the count falls, and nothing is told rather than less.
            let more = of(&after.totals).checked_sub(of(&before.totals))?;
            #[expect(clippy::cast_precision_loss, reason = "a rate is drawn, not counted")]
            let rate = more as f64 / time.as_secs_f64();
            (time <= GAP).then_some(rate)
        }));
        values
    };
    vec![Line { name: "in", values: rate(|totals| totals.accepted) }, Line { name: "out", values: rate(ended) }]
}

fn depths(readings: &[Reading]) -> Vec<Line> {
    let shown = [
        ("scheduled", vec![JobState::Scheduled]),
        ("later", vec![JobState::Pending, JobState::Delayed, JobState::Retrying]),
        ("running", vec![JobState::Running]),
        ("dead", vec![JobState::Failed, JobState::DeadLetter]),
    ];
    let line = |(name, states): (&'static str, Vec<JobState>)| {
        let count = |reading: &Reading| states.iter().map(|state| reading.totals.states[*state as usize]).sum::<u64>();
        #[expect(clippy::cast_precision_loss, reason = "a depth is drawn, not counted")]
        let values = readings.iter().map(|reading| Some(count(reading) as f64)).collect();
        Line { name, values }
    };
    shown.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(seconds: i64, accepted: u64, completed: u64, pruned: u64) -> Reading {
        let mut states = [0; 9];
        states[JobState::Completed as usize] = completed;
        states[JobState::Scheduled as usize] = accepted - completed - pruned;
        Reading { at: Timestamp::from_seconds(seconds), totals: Totals { accepted, pruned, states }, ready: Vec::new() }
    }

    #[test]
    fn rates_are_differences_and_pruning_is_no_loss() {
        let readings = [reading(100, 10, 5, 0), reading(105, 60, 30, 0), reading(110, 60, 20, 30)];
        let lines = rates(&readings);
        assert_eq!(lines[0], Line { name: "in", values: vec![None, Some(10.0), Some(0.0)] });
        assert_eq!(lines[1], Line { name: "out", values: vec![None, Some(5.0), Some(4.0)] });
    }

    #[test]
    fn a_silence_is_a_gap_and_so_is_a_count_that_falls() {
        let readings = [reading(100, 10, 5, 0), reading(200, 60, 30, 0), reading(205, 60, 20, 0)];
        assert_eq!(rates(&readings)[1].values, [None, None, None]);
        assert!(rates(&[]).iter().all(|line| line.values.is_empty()));
    }

    #[test]
    fn depths_are_what_stood_there() {
        let lines = depths(&[reading(100, 10, 4, 0)]);
        assert_eq!(lines[0], Line { name: "scheduled", values: vec![Some(6.0)] });
        assert_eq!(lines[3], Line { name: "dead", values: vec![Some(0.0)] });
    }

    #[test]
    fn an_hour_is_kept_in_order_and_an_answer_is_bounded() {
        let recorder = Recorder::default();
        for second in (0..20_000).step_by(5) {
            recorder.add(reading(second, 1, 0, 0));
        }
        recorder.add(reading(7, 1, 0, 0));
        let kept = recorder.since(Timestamp::from_seconds(0));
        assert_eq!(kept.len(), 721);
        assert!(kept.is_sorted_by_key(|reading| reading.at));
        let few = thinned(kept);
        assert!(few.len() <= POINTS_MAX + 1, "{}", few.len());
        assert_eq!(few.last().map(|reading| reading.at), Some(Timestamp::from_seconds(19_995)));
    }
}
