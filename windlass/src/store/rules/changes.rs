//! What a rule changed, for a store to write down.

use std::time::Duration;

use super::edges::Edge;
use super::set::{Entry, KeyUse};
use crate::flow::GateName;
use crate::job::{AttemptRecord, JobId, LeaseToken, QueueName, Until};
use crate::schedule::ScheduleRecord;
use crate::store::answer::{ActRecord, JobEventKind, Wake};
use crate::time::Timestamp;
use crate::workflow::NewKey;

/// Everything that a store writes after a rule, in one transaction.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    /// New jobs by number. Each has one event [`JobEventKind::Enqueued`] in `events`.
    pub new: Vec<Entry>,
    /// Idempotency keys of new jobs, to be kept in place of what is kept under their names.
    pub keys: Vec<KeptKey>,
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

/// An idempotency key to be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptKey {
    /// The key, and by what a job that is the same is recognised.
    pub key: KeyUse,
    /// The job that it stands for.
    pub job: JobId,
    /// For how long, and in place of which job.
    pub new: NewKey,
}

impl KeptKey {
    /// Its scope and the key.
    pub fn name(&self) -> (&str, &str) {
        (&self.key.scope, &self.key.key)
    }

    /// When upkeep looks at it: when its time is over, or after a while whether its job is where it holds to. `None` for
    /// a key that holds for ever.
    pub fn look_at(&self, now: Timestamp) -> Option<Timestamp> {
        look_at(self.new.until, self.new.expires_at, now)
    }
}

/// How often upkeep looks whether a key is over whose job decides. A key that is over is in nobody's way, so this is rare.
pub const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// When upkeep looks next at a key that it saw, or that was kept, at `now`.
pub fn look_at(until: Until, expires_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    match (until, expires_at) {
        (Until::Window, expires_at) => expires_at,
        (Until::Claimed | Until::Ended, expires_at) => {
            let next = now.plus(LOOK_EVERY);
            Some(expires_at.map_or(next, |expires_at| expires_at.min(next)))
        }
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
