//! Why a waiting job of a controlled queue may not start: from the gates themselves, as a claim sees them.

use super::{AfterFailure, Control, Gate, GateName, Gates, Limit, Owner};
use crate::job::{JobId, JobRecord, QueueName, Why};
use crate::time::Timestamp;

/// How many of the jobs in a full gate are named.
pub const GATE_JOBS_MAX: usize = 10;

/// A gate that lets nothing of a job through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Which gate.
    pub gate: GateName,
    /// The jobs that keep it closed, those that started first, at most [`GATE_JOBS_MAX`].
    pub jobs: Vec<JobId>,
    by: &'static str,
    words: String,
    until: Option<Timestamp>,
}

impl Closed {
    /// Whether it lets nothing through because of what runs in it, so that a store should name these jobs.
    pub fn is_full(&self) -> bool {
        self.by == LIMIT
    }

    /// As a reason, with the name of its queue.
    pub fn why(self, queue: &QueueName) -> Why {
        let Closed { gate, jobs, by, words, until } = self;
        let gate = match gate {
            GateName::Queue => format!("queue {queue}"),
            gate => gate.to_string(),
        };
        Why::Blocked { gate, by: by.to_owned(), words, until, jobs }
    }
}

/// As many run as may.
pub(super) const LIMIT: &str = "limit";
/// A rate is used up.
pub(super) const RATE: &str = "rate";
/// It is held.
pub(super) const HOLD: &str = "hold";
/// Another job of an ordered key has not ended.
pub(super) const ORDERED: &str = "ordered";
/// Another job of an ordered key has failed.
pub(super) const HALTED: &str = "halted";

/// The gates that let nothing of this job through. `owner` is the other job that an ordered key was started with.
pub fn blocked(
    control: &Control,
    gates: &Gates,
    owner: Option<(Owner, JobId)>,
    job: &JobRecord,
    now: Timestamp,
) -> Vec<Closed> {
    let (job_type, key) = (&job.spec.job_type, control.key_of(job.spec.options.key.as_deref()));
    let blank = Gate::default();
    let of_type = gates.types.get(job_type).unwrap_or(&blank);
    let of_key = gates.keys.get(key).unwrap_or(&blank);
    let mut reasons = Vec::new();
    reasons.extend(closed(GateName::Queue, &gates.queue, &control.of_queue(), now));
    reasons.extend(closed(GateName::Type(job_type.clone()), of_type, &control.of_this_type(job_type), now));
    if key.is_empty() {
        return reasons;
    }
    let gate = GateName::Key(key.to_owned());
    let (by, job, words) = match (control.ordered, owner) {
        (Some(AfterFailure::Halt), Some((Owner::Failed, job))) => {
            (HALTED, job, format!("is halted: job {job} failed; requeue it or resume the key"))
        }
        (Some(_), Some((Owner::Unfinished, job))) => (ORDERED, job, format!("is ordered and waits for job {job}")),
        _ => {
            reasons.extend(closed(gate, of_key, &control.of_key(key, of_key), now));
            return reasons;
        }
    };
    reasons.push(Closed { gate, jobs: vec![job], by, words, until: None });
    reasons
}

/// By what a gate lets nothing through, if so.
pub(super) fn closed_by(gate: &Gate, limit: &Limit, now: Timestamp) -> Option<&'static str> {
    let room = gate.room(limit, now);
    let held = gate.held_until.is_some_and(|until| until > now);
    match (room.starts, room.again_at) {
        (0, None) => Some(LIMIT),
        (0, Some(_)) if held => Some(HOLD),
        (0, Some(_)) => Some(RATE),
        _ => None,
    }
}

fn closed(name: GateName, gate: &Gate, limit: &Limit, now: Timestamp) -> Option<Closed> {
    let by = closed_by(gate, limit, now)?;
    let until = gate.room(limit, now).again_at;
    let words = match (by, limit.running, gate.held_until, limit.rate.zip(until)) {
        (LIMIT, Some(most), _, _) => format!("runs {} of {most}", gate.running),
        (HOLD, _, Some(Timestamp::MAX), _) => "could not be read, and is closed until its hold is lifted".to_owned(),
        (HOLD, _, Some(held), _) => format!("is held until {held}"),
        (RATE, _, _, Some((rate, at))) => format!("may start again at {at} ({rate})"),
        _ => "lets nothing through".to_owned(),
    };
    Some(Closed { gate: name, jobs: Vec::new(), by, words, until })
}
