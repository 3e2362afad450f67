//! Every metric and span name, in one table, and the few functions that record them.
//!
//! Metrics go through the `metrics` facade: install a recorder before the first client or worker is made. Labels are
//! queues, types, outcomes and reasons; ids and payloads never are (rule N6).

pub(crate) mod trace;

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::error::Error;
use crate::job::{JobType, Outcome, QueueName, Stale};

/// The span around one execution of a handler; carries `job.id`, `job.type`, `attempt` and `queue`.
pub const SPAN_JOB: &str = "windlass.job";

/// The target of log events about settled attempts: completed `debug`, retried `warn`, FAILED and DEAD_LETTER `error`,
/// all others `info`. They carry `job.id`, `job.type`, `queue`, `attempt` and, of failures, category, code and message.
pub const TARGET_JOB: &str = "windlass::job";

/// What kind of metric a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A line of the table of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

impl Metric {
    /// A line of a table of metrics, such as one of your own beside [`METRICS`].
    pub const fn new(name: &'static str, kind: Kind, labels: &'static [&'static str], help: &'static str) -> Metric {
        Metric { name, kind, labels, help }
    }
}

const fn metric(name: &'static str, kind: Kind, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric::new(name, kind, labels, help)
}

const ENQUEUED: &str = "windlass_jobs_enqueued_total";
const ENQUEUE_ERRORS: &str = "windlass_enqueue_errors_total";
const CLAIMED: &str = "windlass_jobs_claimed_total";
const ENDED: &str = "windlass_attempts_ended_total";
const WAIT: &str = "windlass_job_wait_seconds";
const RUN: &str = "windlass_job_run_seconds";
const CLAIM_BATCH: &str = "windlass_claim_batch_jobs";
const SETTLE_BATCH: &str = "windlass_settle_batch_jobs";
const CLAIM_BLOCKED: &str = "windlass_claim_blocked_total";
const KEY_WAIT: &str = "windlass_key_wait_seconds";
const STALE: &str = "windlass_settlements_stale_total";
const DROPPED: &str = "windlass_settlements_dropped_total";
const LOST: &str = "windlass_leases_lost_total";
const HEARTBEATS: &str = "windlass_heartbeats_total";
const STORE_ERRORS: &str = "windlass_store_errors_total";
const BUSY: &str = "windlass_slots_busy";
const SLOTS: &str = "windlass_slots";
const PREFETCHED: &str = "windlass_jobs_prefetched";
const RESTARTS: &str = "windlass_loop_restarts_total";
const STUCK: &str = "windlass_handlers_stuck_total";
const UNSERVED: &str = "windlass_jobs_unserved";
const UPKEEP: &str = "windlass_upkeep_total";
const DELIVERIES: &str = "windlass_webhook_deliveries_total";
const FIRINGS_REFUSED: &str = "windlass_firings_refused_total";

/// Jobs in a queue by state; recorded by `Client::record_queues`, and by the server at each scrape.
pub const QUEUE_DEPTH: &str = "windlass_queue_depth";
/// How long the longest-waiting job of a queue could have been claimed; as [`QUEUE_DEPTH`].
pub const QUEUE_OLDEST: &str = "windlass_queue_oldest_scheduled_seconds";
/// Whether a queue is paused; as [`QUEUE_DEPTH`].
pub const QUEUE_PAUSED: &str = "windlass_queue_paused";

/// Every metric there is.
pub const METRICS: &[Metric] = &[
    metric(ENQUEUED, Kind::Counter, &["existing"], "Jobs enqueued, new or known by their idempotency key"),
    metric(ENQUEUE_ERRORS, Kind::Counter, &["error"], "Enqueue calls that failed, by error"),
    metric(CLAIMED, Kind::Counter, &["queue", "type"], "Jobs claimed"),
    metric(ENDED, Kind::Counter, &["queue", "type", "outcome"], "Attempts whose settlement is durable, by outcome"),
    metric(WAIT, Kind::Histogram, &["queue", "type"], "From SCHEDULED to claimed, by the store's clock"),
    metric(RUN, Kind::Histogram, &["queue", "type"], "Run time of handlers"),
    metric(CLAIM_BATCH, Kind::Histogram, &[], "Jobs in one claim that found any"),
    metric(
        CLAIM_BLOCKED,
        Kind::Counter,
        &["queue", "why"],
        "Claims from a controlled queue that its gates gave less than they asked for, by why: limit, rate, hold, ordered, halted",
    ),
    metric(
        KEY_WAIT,
        Kind::Histogram,
        &["queue"],
        "How long each key that a claim from a controlled queue served had waited, by its longest-waiting job",
    ),
    metric(SETTLE_BATCH, Kind::Histogram, &[], "Settlements in one call"),
    metric(STALE, Kind::Counter, &["reason"], "Settlements refused because the lease did not hold"),
    metric(DROPPED, Kind::Counter, &[], "Outcomes given up because their lease ran out before the store took them"),
    metric(LOST, Kind::Counter, &["reason"], "Handlers stopped because their lease was lost or not confirmed in time"),
    metric(HEARTBEATS, Kind::Counter, &["answer"], "Heartbeat calls, by whether the store answered"),
    metric(STORE_ERRORS, Kind::Counter, &["call"], "Store calls of workers that failed"),
    metric(BUSY, Kind::Gauge, &["queue"], "Handlers running now"),
    metric(SLOTS, Kind::Gauge, &["queue"], "Handlers that may run at once"),
    metric(PREFETCHED, Kind::Gauge, &["queue"], "Jobs claimed ahead, which wait for a slot and do not run"),
    metric(RESTARTS, Kind::Counter, &["loop", "why"], "Restarts of a worker's loop that ended or stood still"),
    metric(STUCK, Kind::Counter, &["type"], "Handlers that held their thread long past their execution timeout"),
    metric(
        UNSERVED,
        Kind::Gauge,
        &["queue"],
        "SCHEDULED jobs left in a queue served here, because no handler is registered",
    ),
    metric(UPKEEP, Kind::Counter, &["what"], "Rows that upkeep dealt with, by kind"),
    metric(DELIVERIES, Kind::Counter, &["outcome"], "Webhook deliveries attempted, by outcome"),
    metric(FIRINGS_REFUSED, Kind::Counter, &[], "Firings of schedules that made no job, because it was refused"),
    metric(QUEUE_DEPTH, Kind::Gauge, &["queue", "state"], "Jobs in a queue by state, at the time of the scrape"),
    metric(QUEUE_OLDEST, Kind::Gauge, &["queue"], "How long the longest-waiting SCHEDULED job could have been claimed"),
    metric(QUEUE_PAUSED, Kind::Gauge, &["queue"], "1 while the queue is paused"),
];

/// Gives the installed recorder the help text of every metric.
pub fn describe() {
    for metric in METRICS {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

pub(crate) fn enqueued(new: usize, existing: usize) {
    for (count, label) in [(new, "false"), (existing, "true")] {
        if count > 0 {
            counter!(ENQUEUED, "existing" => label).increment(count as u64);
        }
    }
}

pub(crate) fn enqueue_failed(error: &Error) {
    counter!(ENQUEUE_ERRORS, "error" => error.name()).increment(1);
}

pub(crate) fn claim_batch(jobs: usize) {
    histogram!(CLAIM_BATCH).record(jobs as f64);
}

/// Counts a claim from a controlled queue that got less than it asked for, once for each reason.
pub(crate) fn claim_blocked(queue: &QueueName, why: impl IntoIterator<Item = &'static str>) {
    for why in why {
        counter!(CLAIM_BLOCKED, "queue" => queue.to_string(), "why" => why).increment(1);
    }
}

/// Records how long the keys that a claim served had waited.
pub(crate) fn keys_served(queue: &QueueName, waits: Vec<Duration>) {
    if waits.is_empty() {
        return;
    }
    let histogram: Histogram = histogram!(KEY_WAIT, "queue" => queue.to_string());
    for wait in waits {
        histogram.record(wait);
    }
}

pub(crate) fn settle_batch(jobs: usize) {
    histogram!(SETTLE_BATCH).record(jobs as f64);
}

pub(crate) fn settlement_stale(stale: Stale) {
    counter!(STALE, "reason" => stale.as_str()).increment(1);
}

#[cfg(feature = "webhooks")]
pub(crate) fn delivery(outcome: &'static str) {
    counter!(DELIVERIES, "outcome" => outcome).increment(1);
}

pub(crate) fn settlement_dropped() {
    counter!(DROPPED).increment(1);
}

pub(crate) fn lease_lost(reason: &'static str) {
    counter!(LOST, "reason" => reason).increment(1);
}

pub(crate) fn heartbeat(answered: bool) {
    counter!(HEARTBEATS, "answer" => if answered { "yes" } else { "no" }).increment(1);
}

pub(crate) fn store_error(call: &'static str) {
    counter!(STORE_ERRORS, "call" => call).increment(1);
}

pub(crate) fn loop_restarted(name: &'static str, why: &'static str) {
    counter!(RESTARTS, "loop" => name, "why" => why).increment(1);
}

pub(crate) fn handler_stuck(job_type: &JobType) {
    counter!(STUCK, "type" => job_type.to_string()).increment(1);
}

pub(crate) fn slots(queue: &QueueName, slots: usize, busy: usize, unserved: Option<u64>) {
    gauge!(SLOTS, "queue" => queue.to_string()).set(slots as f64);
    gauge!(BUSY, "queue" => queue.to_string()).set(busy as f64);
    if let Some(unserved) = unserved {
        let gauge: Gauge = gauge!(UNSERVED, "queue" => queue.to_string());
        gauge.set(unserved as f64);
    }
}

/// Records the numbers of one queue, and zeros once it is empty, since a recorder keeps the last value.
pub(crate) fn queue(name: &str, states: impl Iterator<Item = (&'static str, u64)>, waited: Duration, paused: bool) {
    for (state, jobs) in states {
        gauge!(QUEUE_DEPTH, "queue" => name.to_owned(), "state" => state).set(jobs as f64);
    }
    gauge!(QUEUE_OLDEST, "queue" => name.to_owned()).set(waited.as_secs_f64());
    gauge!(QUEUE_PAUSED, "queue" => name.to_owned()).set(if paused { 1.0 } else { 0.0 });
}

pub(crate) fn prefetched(queue: &QueueName, jobs: usize) {
    gauge!(PREFETCHED, "queue" => queue.to_string()).set(jobs as f64);
}

pub(crate) fn firing_refused() {
    counter!(FIRINGS_REFUSED).increment(1);
}

pub(crate) fn upkeep(what: &'static str, count: usize) {
    if count > 0 {
        counter!(UPKEEP, "what" => what).increment(count as u64);
    }
}

/// Upper bounds of the histograms that are measured in seconds: from a local call to a long job.
///
/// A recorder that is not told of buckets turns histograms into summaries, which cannot be added up over processes. With
/// `metrics-exporter-prometheus`: `builder.set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &BUCKETS_SECONDS)?`.
pub const BUCKETS_SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];
/// Upper bounds of the histograms that count jobs, whose names end in `_jobs`.
pub const BUCKETS_JOBS: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 500.0, 1000.0];

/// The metrics of one queue and type, looked up once so that a job costs no lookup.
///
/// Each series is made when it is first used: a worker of many queues and types would otherwise export thousands of zeros.
#[derive(Default)]
pub(crate) struct JobMetrics {
    queue: String,
    job_type: String,
    claimed: OnceLock<Counter>,
    wait: OnceLock<Histogram>,
    run: OnceLock<Histogram>,
    ended: [OnceLock<Counter>; Outcome::ALL.len()],
}

impl JobMetrics {
    pub(crate) fn new(queue: &QueueName, job_type: &JobType) -> Self {
        JobMetrics { queue: queue.to_string(), job_type: job_type.to_string(), ..JobMetrics::default() }
    }

    pub(crate) fn claimed(&self, waited: Duration) {
        let JobMetrics { queue, job_type, .. } = self;
        let claimed = || counter!(CLAIMED, "queue" => queue.clone(), "type" => job_type.clone());
        self.claimed.get_or_init(claimed).increment(1);
        let wait = || histogram!(WAIT, "queue" => queue.clone(), "type" => job_type.clone());
        self.wait.get_or_init(wait).record(waited);
    }

    pub(crate) fn ran(&self, time: Duration) {
        let JobMetrics { queue, job_type, .. } = self;
        let run = || histogram!(RUN, "queue" => queue.clone(), "type" => job_type.clone());
        self.run.get_or_init(run).record(time);
    }

    pub(crate) fn ended(&self, outcome: Outcome) {
        let JobMetrics { queue, job_type, .. } = self;
        let ended =
            || counter!(ENDED, "queue" => queue.clone(), "type" => job_type.clone(), "outcome" => outcome.as_str());
        self.ended[usize::from(outcome.number())].get_or_init(ended).increment(1);
    }
}

/// Counts what somebody else's workers do through this process, such as over HTTP: made for one call of theirs, it looks up
/// the metrics of each queue and type once, however many jobs the call has.
#[derive(Default)]
pub struct ForOthers {
    lanes: Vec<(QueueName, JobType, JobMetrics)>,
}

impl ForOthers {
    /// Nothing counted yet.
    pub fn new() -> Self {
        ForOthers::default()
    }

    /// Counts a claimed job, which had waited for this long.
    pub fn claimed(&mut self, queue: &QueueName, job_type: &JobType, waited: Duration) {
        self.lane(queue, job_type).claimed(waited);
    }

    /// Counts an attempt that ended; `ran` where it is known how long it took.
    pub fn ended(&mut self, queue: &QueueName, job_type: &JobType, outcome: Outcome, ran: Option<Duration>) {
        let metrics = self.lane(queue, job_type);
        metrics.ended(outcome);
        if let Some(time) = ran {
            metrics.ran(time);
        }
    }

    fn lane(&mut self, queue: &QueueName, job_type: &JobType) -> &JobMetrics {
        // A call is about jobs of few lanes, those of one lane often in a row.
        let known = self.lanes.iter().rposition(|(of, kind, _)| of == queue && kind == job_type);
        let at = known.unwrap_or_else(|| {
            self.lanes.push((queue.clone(), job_type.clone(), JobMetrics::new(queue, job_type)));
            self.lanes.len() - 1
        });
        &self.lanes[at].2
    }
}

impl std::fmt::Debug for ForOthers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForOthers").field("lanes", &self.lanes.len()).finish()
    }
}

/// Counts a settlement of somebody else's worker that was refused because the lease did not hold.
pub fn stale_for_others(stale: Stale) {
    settlement_stale(stale);
}

/// Counts a lease that somebody else's worker wanted to renew and had lost.
pub fn lease_lost_for_others(stale: Stale) {
    lease_lost(stale.as_str());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_their_unit() {
        let names: std::collections::BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            assert!(metric.name.starts_with("windlass_"), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
        }
    }
}
