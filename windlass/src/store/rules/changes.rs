//! What a rule changed, for a store to write down.

use super::edges::Edge;
use super::set::Entry;
use crate::flow::GateName;
use crate::job::{AttemptRecord, JobId, LeaseToken, QueueName};
use crate::schedule::ScheduleRecord;
use crate::store::answer::{ActRecord, JobEventKind, Wake};
use crate::time::Timestamp;

/// Everything that a store writes after a rule, in one transaction.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    /// New jobs by number. Each has one event [`JobEventKind::Enqueued`] in `events`; the idempotency key in its spec is to
    /// be kept with it.
    pub new: Vec<Entry>,
    /// Jobs that were stored before and have changed, by number.
    pub changed: Vec<Change>,
    /// Jobs to remove for good, with their edges, attempts and logs. Their idempotency keys stay.
    pub removed: Vec<Entry>,
    /// Dependencies that are new, or that were opened or closed.
    pub edges: Vec<EdgeChange>,
    /// Attempts that ended.
    pub attempts: Vec<ClosedAttempt>,
    /// What happened, in order; for stores that do not read it off their rows.
    pub events: Vec<(JobId, JobEventKind)>,
    /// What operators did.
    pub acts: Vec<ActRecord>,
    /// Schedules to write or to remove.
    pub schedules: Vec<ScheduleWrite>,
    /// Gates of controlled queues to hold, of two holds the later counts; nothing where the queue is not controlled.
    pub holds: Vec<GateHold>,
    /// Hints to send after the commit.
    pub wakes: Vec<Wake>,
}

#[cfg(test)]
impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.attempts.is_empty() && self.events.is_empty() && self.wakes.is_empty()
    }
}

/// A gate that a settlement holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GateHold {
    /// Its queue.
    pub queue: QueueName,
    /// Which gate.
    pub gate: GateName,
    /// Until when.
    pub until: Timestamp,
}

/// A job that has changed.
#[derive(Debug)]
pub struct Change {
    /// As it was loaded.
    pub before: Entry,
    /// As it is to be written.
    pub after: Entry,
}

/// A dependency that has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EdgeChange {
    /// Which.
    pub edge: Edge,
    /// Whether it is open now.
    pub open: bool,
    /// Whether there was no such edge before.
    pub is_new: bool,
}

/// An attempt that ended, with the token it was held under.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ClosedAttempt {
    /// Whose it was.
    pub job: JobId,
    /// The secret of its lease, by which the same settlement is known again (rule L4).
    pub token: LeaseToken,
    /// How it went.
    pub attempt: AttemptRecord,
}

/// What is to become of a schedule's row.
#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant, reason = "one is made for each call; a box would only be in the way")]
pub enum ScheduleWrite {
    /// It is written as it is here.
    Put(ScheduleRecord),
    /// The schedule of this name is removed.
    Delete(String),
}
