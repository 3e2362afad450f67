//! Which slots of a schedule fire now, and when to look again.
//!
//! A slot is due once it is not after `now`. Of the due slots the missed policy picks some (rule C3), and of these the
//! overlap policy drops some, slot by slot, each seeing the firing before it (rule C4). A slot that was picked or
//! dropped is over: `next_at` moves past `now`, so no slot is looked at twice.

use std::time::Duration;

use super::{MISSED_GRACE, Missed, Overlap, ScheduleRecord, Timing};
use crate::job::State;
use crate::time::Timestamp;

/// Most slots that a preview shows.
pub const PREVIEW_MAX: usize = 1000;
/// The resolution of time: what lies between two neighbouring moments.
const TICK: Duration = Duration::from_micros(1);

/// What a store knows about the job of a schedule's last firing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastJob {
    /// The schedule has not fired yet.
    None,
    /// It is not terminal.
    Unfinished {
        /// The state it is in.
        state: State,
    },
    /// It is terminal, however it ended.
    Ended {
        /// Since when.
        at: Timestamp,
    },
    /// It is no longer stored.
    Gone,
}

/// What a store does for a schedule, in one transaction: insert the jobs, then set `next_at`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The firings, oldest slot first.
    pub fire: Vec<Fire>,
    /// The schedule's new `next_at`.
    pub next_at: Option<Timestamp>,
}

/// One firing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Fire {
    /// The nominal time that the job carries.
    pub slot: Timestamp,
    /// Whether its job runs after the end, however that is, of the firing before it: the one before it in the plan, or
    /// else the schedule's last.
    pub after_previous: bool,
}

impl ScheduleRecord {
    /// What to fire at `now`, and when to look again.
    pub fn plan(&self, last: LastJob, now: Timestamp) -> Plan {
        if self.paused {
            return Plan { fire: Vec::new(), next_at: self.next_at };
        }
        if let Timing::Delay { after } = self.spec.timing {
            return self.plan_delay(after, last, now);
        }
        match self.next_at {
            Some(since) if since <= now => {
                let slots = self.picked(since, now);
                Plan { fire: fires(self.spec.overlap, last, slots), next_at: self.spec.timing.first_after(now) }
            }
            next_at => Plan { fire: Vec::new(), next_at },
        }
    }

    /// The next moments at which it would fire if every job ended at once, at most `n` and at most [`PREVIEW_MAX`].
    ///
    /// Slots that are overdue come first, as the missed policy picks them. A paused schedule is shown as if it were
    /// resumed now. A fixed delay shows one moment, or none while it awaits its job.
    pub fn next(&self, n: usize, now: Timestamp) -> Vec<Timestamp> {
        let n = n.min(PREVIEW_MAX);
        let first = if self.paused { self.next_if_resumed(now) } else { self.next_at };
        let Some(first) = first else { return Vec::new() };
        let timing = &self.spec.timing;
        let mut slots = match timing {
            Timing::Delay { .. } => return vec![first; n.min(1)],
            Timing::Cron(_) | Timing::Every { .. } if first <= now => self.picked(first, now),
            Timing::Cron(_) | Timing::Every { .. } => vec![first],
        };
        slots.truncate(n);
        let mut latest = first.max(now);
        while slots.len() < n {
            let Some(next) = timing.first_after(latest) else { break };
            slots.push(next);
            latest = next;
        }
        slots
    }

    fn plan_delay(&self, after: Duration, last: LastJob, now: Timestamp) -> Plan {
        let due = match last {
            LastJob::Unfinished { .. } => return Plan { fire: Vec::new(), next_at: None },
            // A job may have ended after `next_at` was set: by a resume or a new timing while it ran.
            LastJob::Ended { at } => self.new_slot(at.plus(after)).max(self.next_at.unwrap_or(Timestamp::EPOCH)),
            LastJob::None | LastJob::Gone => self.next_at.unwrap_or_else(|| self.new_slot(now.plus(after))),
        };
        if due > now {
            return Plan { fire: Vec::new(), next_at: Some(due) };
        }
        Plan { fire: vec![Fire { slot: due, after_previous: false }], next_at: None }
    }

    /// `slot`, or the first moment after the newest that fired: a clock set back must not name a slot again.
    fn new_slot(&self, slot: Timestamp) -> Timestamp {
        self.last_slot.map_or(slot, |last| slot.max(last.plus(TICK)))
    }

    /// The due slots that the missed policy lets fire, oldest first.
    fn picked(&self, since: Timestamp, now: Timestamp) -> Vec<Timestamp> {
        let newest = |count| newest_within(&self.spec.timing, since, now, count);
        match self.spec.missed {
            Missed::Coalesce => newest(1),
            Missed::Skip => newest(1).into_iter().filter(|slot| now.since(*slot) <= MISSED_GRACE).collect(),
            Missed::All(count) => newest(count),
        }
    }
}

impl Timing {
    /// The first slot strictly after a moment; for a fixed delay, the moment plus the delay.
    pub(super) fn first_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Timing::Cron(cron) => cron.next_after(after),
            Timing::Every { anchor, .. } if after < *anchor => Some(*anchor),
            Timing::Every { every, anchor } => {
                let slot = rate_slot(*every, *anchor, after).plus(*every);
                // Sums are held at the last moment there is.
                Some(slot).filter(|slot| *slot > after && *slot < Timestamp::MAX)
            }
            Timing::Delay { after: delay } => Some(after.plus(*delay)),
        }
    }

    /// The newest slot that is not before `since` and not after `until`; a fixed delay has none of its own.
    fn newest_within(&self, since: Timestamp, until: Timestamp) -> Option<Timestamp> {
        match self {
            Timing::Cron(cron) => cron.newest_within(since, until),
            Timing::Every { anchor, .. } if until < *anchor => None,
            Timing::Every { every, anchor } => Some(rate_slot(*every, *anchor, until)).filter(|slot| *slot >= since),
            Timing::Delay { .. } => None,
        }
    }
}

/// The slot of a fixed rate at or before `until`, which is not before the anchor.
fn rate_slot(every: Duration, anchor: Timestamp, until: Timestamp) -> Timestamp {
    // What was read from a store may be no checked interval; zero would divide by zero.
    let every = i64::try_from(every.as_micros()).unwrap_or(i64::MAX).max(1);
    let passed = until.as_micros() - anchor.as_micros();
    Timestamp::from_micros(until.as_micros() - passed % every)
}

/// The newest slots from `since` to `until`, at most `count`, oldest first. Found from the end, so that a long time
/// costs no more than a short one: two weeks of every second are 1.2 million slots.
fn newest_within(timing: &Timing, since: Timestamp, until: Timestamp, count: u32) -> Vec<Timestamp> {
    let mut slots = Vec::new();
    let mut until = until;
    for _ in 0..count {
        let Some(slot) = timing.newest_within(since, until) else { break };
        slots.push(slot);
        if slot <= since {
            break;
        }
        until = slot.minus(TICK);
    }
    slots.reverse();
    slots
}

/// The firing before a slot, as the overlap policy sees it.
#[derive(Clone, Copy)]
enum Previous {
    Finished,
    Unfinished,
    /// Unfinished, and waiting for the one before it.
    Queued,
}

/// The slots that the overlap policy lets fire.
fn fires(overlap: Overlap, last: LastJob, slots: Vec<Timestamp>) -> Vec<Fire> {
    let mut previous = match last {
        // A template has no dependencies, so a firing's job is PENDING only behind the firing before it.
        LastJob::Unfinished { state: State::Pending } => Previous::Queued,
        LastJob::Unfinished { .. } => Previous::Unfinished,
        LastJob::None | LastJob::Ended { .. } | LastJob::Gone => Previous::Finished,
    };
    let mut fires = Vec::new();
    for slot in slots {
        let (after_previous, becomes) = match (overlap, previous) {
            (Overlap::Allow, _) | (_, Previous::Finished) => (false, Previous::Unfinished),
            (Overlap::QueueOne, Previous::Unfinished) => (true, Previous::Queued),
            (Overlap::QueueOne, Previous::Queued) | (Overlap::Skip, Previous::Unfinished | Previous::Queued) => {
                continue;
            }
        };
        fires.push(Fire { slot, after_previous });
        previous = becomes;
    }
    fires
}
