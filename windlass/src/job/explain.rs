//! Why a job is not running now (rule O5), in reasons computed from what the claim itself looks at.

use std::fmt;

use serde::Serialize;

use super::id::{JobId, JobType, QueueName, WorkerId};
use super::record::{JobRecord, Reason};
use super::state::State;
use crate::time::Timestamp;

/// How many unfinished dependencies and jobs ahead are looked at; beyond it the answer says "at least".
pub const EXPLAIN_SCAN_MAX: usize = 1000;

/// What a store knows around a job at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Circumstances {
    /// Whether its queue is paused.
    pub paused: bool,
    /// The unfinished jobs it waits for, at most [`EXPLAIN_SCAN_MAX`].
    pub waits_for: Vec<JobId>,
    /// How many SCHEDULED jobs of its queue come before it, counted up to [`EXPLAIN_SCAN_MAX`].
    pub ahead: usize,
    /// What comes before it in a controlled queue that tells keys apart; it counts instead of `ahead` there.
    pub ahead_by_key: Option<AheadByKey>,
    /// Live workers that serve its queue, whatever the type.
    pub queue_workers: usize,
    /// Those of them that have a handler for its type.
    pub type_workers: usize,
    /// Free slots among the latter.
    pub free_slots: usize,
    /// The gates of its queue that let nothing through, each as a [`Why::Blocked`].
    pub blocked: Vec<Why>,
}

/// What comes before a job where keys are told apart: jobs of other keys do not stand in one row with it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AheadByKey {
    /// The key that it counts under; empty where it has none.
    pub key: String,
    /// How many jobs of that key come before it, of those that a claim has sorted, counted up to [`EXPLAIN_SCAN_MAX`].
    pub jobs: usize,
    /// How many other keys are served before that key, while it is open, counted up to [`EXPLAIN_SCAN_MAX`].
    pub keys: usize,
}

/// One reason why a job is not running now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[non_exhaustive]
pub enum Why {
    /// It is running.
    Running {
        /// Who holds it.
        worker: WorkerId,
        /// Until when, unless extended.
        expires_at: Timestamp,
    },
    /// It is marked as running, but its lease is over: upkeep will take it back.
    LeaseExpired {
        /// When the lease ended.
        expired_at: Timestamp,
    },
    /// Its holder was asked to stop.
    CancelAsked,
    /// It has ended.
    Ended {
        /// How.
        state: State,
        /// Why, where that is known.
        because: Option<Reason>,
    },
    /// Its lifetime is over: upkeep will dead-letter it.
    LifetimeOver {
        /// When it ended.
        deadline: Timestamp,
    },
    /// Its row is damaged: the claim that meets it will dead-letter it.
    Damaged {
        /// What cannot be read.
        damage: String,
    },
    /// Its queue is paused.
    Paused {
        /// The queue.
        queue: QueueName,
    },
    /// A gate of its controlled queue lets nothing through.
    Blocked {
        /// Which: `queue mail`, `type mail.send`, `key acme`.
        gate: String,
        /// By what: `limit`, `rate`, `hold`, `ordered` or `halted`.
        by: String,
        /// What it says.
        words: String,
        /// When it opens, if time alone will open it.
        until: Option<Timestamp>,
        /// The jobs that keep it closed, at most ten: those in a full gate that started first, or the one that an ordered
        /// key waits for.
        jobs: Vec<JobId>,
    },
    /// Its first run lies ahead.
    DelayedUntil {
        /// When it may run.
        run_at: Timestamp,
    },
    /// It failed and waits to be tried again.
    BackingOffUntil {
        /// When it may run.
        run_at: Timestamp,
    },
    /// It waits for other jobs.
    WaitsFor {
        /// Which, at most [`EXPLAIN_SCAN_MAX`].
        jobs: Vec<JobId>,
    },
    /// No live worker serves its queue.
    NoWorkerForQueue {
        /// The queue.
        queue: QueueName,
    },
    /// Live workers serve its queue, but none has a handler for its type.
    NoWorkerForType {
        /// The type.
        job_type: JobType,
    },
    /// Every worker that could run it is busy.
    LimitReached {
        /// How many workers that is.
        workers: usize,
    },
    /// Other jobs come first.
    JobsAhead {
        /// How many; at least this many when `capped`.
        jobs: usize,
        /// Whether counting stopped there.
        capped: bool,
    },
    /// Other jobs of its key come first, in a controlled queue.
    KeyJobsAhead {
        /// The key; empty where it has none.
        key: String,
        /// How many; at least this many when `capped`.
        jobs: usize,
        /// Whether counting stopped there.
        capped: bool,
    },
    /// It is the turn of other keys first, in a controlled queue.
    KeysAhead {
        /// How many; at least this many when `capped`.
        keys: usize,
        /// Whether counting stopped there.
        capped: bool,
    },
}

/// Every reason why a job is not running now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The job.
    pub job: JobId,
    /// The state it is in.
    pub state: State,
    /// The reasons; empty when the next claim will take it.
    pub reasons: Vec<Why>,
}

impl Explanation {
    /// These reasons, in this order; for a store that is told them.
    pub fn new(job: JobId, state: State, reasons: Vec<Why>) -> Self {
        Explanation { job, state, reasons }
    }

    /// Puts together what stands between a job and its next run.
    pub fn of(job: &JobRecord, around: &Circumstances, now: Timestamp) -> Self {
        let mut reasons = Vec::new();
        match job.state {
            State::Completed | State::Failed | State::DeadLetter | State::Cancelled => {
                reasons.push(Why::Ended { state: job.state, because: job.reason.clone() });
            }
            State::Running => running(job, now, &mut reasons),
            State::Pending | State::Delayed | State::Scheduled | State::Retrying => {
                waiting(job, around, now, &mut reasons);
            }
        }
        Explanation { job: job.id, state: job.state, reasons }
    }
}

fn running(job: &JobRecord, now: Timestamp, reasons: &mut Vec<Why>) {
    if let Some(lease) = &job.lease {
        reasons.push(if lease.expires_at > now {
            Why::Running { worker: lease.worker.clone(), expires_at: lease.expires_at }
        } else {
            Why::LeaseExpired { expired_at: lease.expires_at }
        });
    }
    if job.cancel.is_some() {
        reasons.push(Why::CancelAsked);
    }
}

fn waiting(job: &JobRecord, around: &Circumstances, now: Timestamp, reasons: &mut Vec<Why>) {
    if let Some(deadline) = job.deadline.filter(|deadline| *deadline <= now) {
        reasons.push(Why::LifetimeOver { deadline });
    }
    if let Some(damage) = job.spec.damage.clone() {
        reasons.push(Why::Damaged { damage });
    }
    if around.paused {
        reasons.push(Why::Paused { queue: job.spec.queue.clone() });
    }
    reasons.extend(around.blocked.iter().cloned());
    if !around.waits_for.is_empty() {
        reasons.push(Why::WaitsFor { jobs: around.waits_for.clone() });
    }
    if let Some(run_at) = job.run_at.filter(|run_at| *run_at > now) {
        reasons.push(match job.state {
            State::Retrying => Why::BackingOffUntil { run_at },
            _ => Why::DelayedUntil { run_at },
        });
    }
    if around.queue_workers == 0 {
        reasons.push(Why::NoWorkerForQueue { queue: job.spec.queue.clone() });
    } else if around.type_workers == 0 {
        reasons.push(Why::NoWorkerForType { job_type: job.spec.job_type.clone() });
    } else if around.free_slots == 0 {
        reasons.push(Why::LimitReached { workers: around.type_workers });
    }
    if job.state == State::Scheduled {
        ahead(around, reasons);
    }
}

fn ahead(around: &Circumstances, reasons: &mut Vec<Why>) {
    let is_capped = |count: usize| count >= EXPLAIN_SCAN_MAX;
    match &around.ahead_by_key {
        None if around.ahead == 0 => {}
        None => reasons.push(Why::JobsAhead { jobs: around.ahead, capped: is_capped(around.ahead) }),
        Some(AheadByKey { key, jobs, keys }) => {
            if *jobs > 0 {
                reasons.push(Why::KeyJobsAhead { key: key.clone(), jobs: *jobs, capped: is_capped(*jobs) });
            }
            if *keys > 0 {
                reasons.push(Why::KeysAhead { keys: *keys, capped: is_capped(*keys) });
            }
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Running { worker, expires_at } => write!(f, "it is running on {worker}, lease until {expires_at}"),
            Why::LeaseExpired { expired_at } => {
                write!(f, "its lease expired at {expired_at}; upkeep will hand it to another worker")
            }
            Why::CancelAsked => f.write_str("its worker was asked to stop"),
            Why::Ended { state, because } => match because.as_ref().and_then(|reason| reason.message.as_deref()) {
                Some(words) => write!(f, "it ended {state}: {words}"),
                None => write!(f, "it ended {state}"),
            },
            Why::LifetimeOver { deadline } => write!(f, "its lifetime ended at {deadline}; upkeep will dead-letter it"),
            Why::Damaged { damage } => {
                write!(f, "its row is damaged, and the next claim will dead-letter it: {damage}")
            }
            Why::Paused { queue } => write!(f, "queue {queue} is paused"),
            Why::Blocked { gate, by, words, jobs, .. } => {
                write!(f, "{gate} {words}")?;
                // What an ordered key waits for is in its words.
                for (place, job) in jobs.iter().enumerate().filter(|_| by == "limit") {
                    write!(f, "{} {job}", if place == 0 { ":" } else { "," })?;
                }
                Ok(())
            }
            Why::DelayedUntil { run_at } => write!(f, "it is not due before {run_at}"),
            Why::BackingOffUntil { run_at } => write!(f, "it failed and is tried again at {run_at}"),
            Why::WaitsFor { jobs } => match jobs.as_slice() {
                [job] => write!(f, "it waits for job {job}"),
                [job, ..] => write!(f, "it waits for {} jobs, first {job}", jobs.len()),
                [] => f.write_str("it waits for other jobs"),
            },
            Why::NoWorkerForQueue { queue } => write!(f, "no live worker serves queue {queue}"),
            Why::NoWorkerForType { job_type } => write!(f, "no live worker has a handler for type {job_type}"),
            Why::LimitReached { workers } => write!(f, "all slots of the {workers} workers that could run it are busy"),
            Why::JobsAhead { jobs, capped } => {
                write!(f, "{}{jobs} jobs are ahead of it", if *capped { "at least " } else { "" })
            }
            Why::KeyJobsAhead { key, jobs, capped } => {
                let of = if key.is_empty() { "without a key".to_owned() } else { format!("of key {key}") };
                write!(f, "{}{jobs} jobs {of} are ahead of it", if *capped { "at least " } else { "" })
            }
            Why::KeysAhead { keys, capped } => {
                write!(f, "{}{keys} keys are ahead of its own", if *capped { "at least " } else { "" })
            }
        }
    }
}
