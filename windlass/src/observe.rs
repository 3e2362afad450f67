//! Every metric and span name, in one table, and the few functions that record them.
//!
//! Metrics go through the `metrics` facade: install a recorder before the first client or worker is made. Labels are
//! queues, types, outcomes and reasons; ids and payloads never are (rule N6).

pub(crate) mod trace;

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::error::Error;
use crate::job::{JobType, Outcome, QueueName, Stale};

/// The span around one execution of a handler; carries `job.id`, `job.type`, `attempt` and `queue`.
pub const SPAN_JOB: &str = "windlass.job";

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

const fn metric(name: &'static str, kind: Kind, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind, labels, help }
}

const ENQUEUED: &str = "windlass_jobs_enqueued_total";
const ENQUEUE_ERRORS: &str = "windlass_enqueue_errors_total";
const CLAIMED: &str = "windlass_jobs_claimed_total";
const ENDED: &str = "windlass_attempts_ended_total";
const WAIT: &str = "windlass_job_wait_seconds";
const RUN: &str = "windlass_job_run_seconds";
const CLAIM_BATCH: &str = "windlass_claim_batch_jobs";
const SETTLE_BATCH: &str = "windlass_settle_batch_jobs";
const STALE: &str = "windlass_settlements_stale_total";
const DROPPED: &str = "windlass_settlements_dropped_total";
const LOST: &str = "windlass_leases_lost_total";
const HEARTBEATS: &str = "windlass_heartbeats_total";
const STORE_ERRORS: &str = "windlass_store_errors_total";
const BUSY: &str = "windlass_slots_busy";
const SLOTS: &str = "windlass_slots";
const RESTARTS: &str = "windlass_loop_restarts_total";
const STUCK: &str = "windlass_handlers_stuck_total";
const UNSERVED: &str = "windlass_jobs_unserved";
const UPKEEP: &str = "windlass_upkeep_total";

/// Every metric there is.
pub const METRICS: [Metric; 19] = [
    metric(ENQUEUED, Kind::Counter, &["existing"], "Jobs enqueued, new or known by their idempotency key"),
    metric(ENQUEUE_ERRORS, Kind::Counter, &["error"], "Enqueue calls that failed, by error"),
    metric(CLAIMED, Kind::Counter, &["queue", "type"], "Jobs claimed"),
    metric(ENDED, Kind::Counter, &["queue", "type", "outcome"], "Attempts whose settlement is durable, by outcome"),
    metric(WAIT, Kind::Histogram, &["queue", "type"], "From SCHEDULED to claimed, by the store's clock"),
    metric(RUN, Kind::Histogram, &["queue", "type"], "Run time of handlers"),
    metric(CLAIM_BATCH, Kind::Histogram, &[], "Jobs in one claim that found any"),
    metric(SETTLE_BATCH, Kind::Histogram, &[], "Settlements in one call"),
    metric(STALE, Kind::Counter, &["reason"], "Settlements refused because the lease did not hold"),
    metric(DROPPED, Kind::Counter, &[], "Outcomes given up because their lease ran out before the store took them"),
    metric(LOST, Kind::Counter, &["reason"], "Handlers stopped because their lease was lost or not confirmed in time"),
    metric(HEARTBEATS, Kind::Counter, &["answer"], "Heartbeat calls, by whether the store answered"),
    metric(STORE_ERRORS, Kind::Counter, &["call"], "Store calls of workers that failed"),
    metric(BUSY, Kind::Gauge, &["queue"], "Handlers running now"),
    metric(SLOTS, Kind::Gauge, &["queue"], "Handlers that may run at once"),
    metric(RESTARTS, Kind::Counter, &["loop", "why"], "Restarts of a worker's loop that ended or stood still"),
    metric(STUCK, Kind::Counter, &["type"], "Handlers that held their thread long past their execution timeout"),
    metric(UNSERVED, Kind::Gauge, &["queue"], "SCHEDULED jobs left in a queue served here, for want of a handler"),
    metric(UPKEEP, Kind::Counter, &["what"], "Rows that upkeep dealt with, by kind"),
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

pub(crate) fn settle_batch(jobs: usize) {
    histogram!(SETTLE_BATCH).record(jobs as f64);
}

pub(crate) fn settlement_stale(stale: Stale) {
    counter!(STALE, "reason" => stale.as_str()).increment(1);
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

pub(crate) fn upkeep(what: &'static str, count: usize) {
    if count > 0 {
        counter!(UPKEEP, "what" => what).increment(count as u64);
    }
}

/// The metrics of one queue and type, looked up once so that a job costs no lookup.
pub(crate) struct JobMetrics {
    claimed: Counter,
    wait: Histogram,
    run: Histogram,
    ended: [Counter; Outcome::ALL.len()],
}

impl JobMetrics {
    pub(crate) fn new(queue: &QueueName, job_type: &JobType) -> Self {
        let (queue, job_type) = (queue.to_string(), job_type.to_string());
        JobMetrics {
            claimed: counter!(CLAIMED, "queue" => queue.clone(), "type" => job_type.clone()),
            wait: histogram!(WAIT, "queue" => queue.clone(), "type" => job_type.clone()),
            run: histogram!(RUN, "queue" => queue.clone(), "type" => job_type.clone()),
            ended: Outcome::ALL.map(|outcome| {
                counter!(ENDED, "queue" => queue.clone(), "type" => job_type.clone(), "outcome" => outcome.as_str())
            }),
        }
    }

    pub(crate) fn claimed(&self, waited: Duration) {
        self.claimed.increment(1);
        self.wait.record(waited);
    }

    pub(crate) fn ran(&self, time: Duration) {
        self.run.record(time);
    }

    pub(crate) fn ended(&self, outcome: Outcome) {
        self.ended[usize::from(outcome.number())].increment(1);
    }
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
