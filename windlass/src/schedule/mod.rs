//! Recurring work: what a schedule is, and when it fires.
//!
//! This module is pure. It reads no clock and knows no store: a store asks a [`ScheduleRecord`] for a [`Plan`], inserts
//! the jobs of the plan and writes down the plan's `next_at`, all in one transaction (rule C2). Nothing here makes a
//! job; what a firing's job looks like is the schedule's template.
//!
//! Which moments a cron expression names is in `cron.rs`, which of them fire is in `plan.rs`, and how a
//! schedule is changed is in `edit.rs`.

mod cron;
mod edit;
mod plan;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use cron::{Cron, EXPRESSION_BYTES_MAX, ZONE_BYTES_MAX};
pub use edit::{ScheduleChange, ScheduleEdit};
pub use plan::{Fire, LastJob, PREVIEW_MAX, Plan};

use crate::error::{Error, Result};
use crate::job::{JobId, JobSpec, QUEUE_BYTES_MAX, QueueName};
use crate::time::Timestamp;

/// Longest schedule name, in characters of the same alphabet as queue names.
pub const NAME_CHARS_MAX: usize = 128;
/// A slot noticed later than this is missed: long enough for a restart or a slow tick, too short for an outage.
pub const MISSED_GRACE: Duration = Duration::from_secs(60);
/// Most slots that `all(n)` makes up for: a plan is one transaction.
pub const MISSED_ALL_MAX: u32 = 1000;
/// Shortest interval and delay: upkeep ticks about once a second.
pub const PERIOD_MIN: Duration = Duration::from_secs(1);
/// Longest interval and delay: once a year, leap years included.
pub const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

// A schedule's name is checked as a queue's is.
const _: () = assert!(NAME_CHARS_MAX == QUEUE_BYTES_MAX);

/// When a schedule fires.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// At the local times that a cron expression names.
    Cron(Cron),
    /// At a fixed rate, counted from an anchor.
    Every {
        /// From one slot to the next.
        #[serde(with = "crate::job::micros")]
        every: Duration,
        /// The first slot; all others are whole intervals after it.
        anchor: Timestamp,
    },
    /// At a fixed delay after the last firing's job became terminal.
    Delay {
        /// From that end to the next firing.
        #[serde(with = "crate::job::micros")]
        after: Duration,
    },
}

impl Timing {
    /// Refuses a rate or delay out of bounds.
    pub fn check(&self) -> Result<()> {
        match self {
            // An expression cannot be had unchecked.
            Timing::Cron(_) => Ok(()),
            Timing::Every { every, .. } => check_period("every", *every),
            Timing::Delay { after } => check_period("after", *after),
        }
    }
}

/// What becomes of slots that passed while nobody could fire them (rule C3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// They fire as one, the newest.
    #[default]
    Coalesce,
    /// None fires that is later than [`MISSED_GRACE`].
    Skip,
    /// The newest of them fire one by one, at most this many, oldest first.
    All(u32),
}

/// What becomes of a slot while the last firing's job is not terminal (rule C4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It does not fire.
    #[default]
    Skip,
    /// It fires, and its job waits for the last one to end; while one waits, further slots do not fire.
    QueueOne,
    /// It fires.
    Allow,
}

impl Overlap {
    /// All three.
    pub const ALL: [Overlap; 3] = [Overlap::Skip, Overlap::QueueOne, Overlap::Allow];
}

/// A recurring definition: what to run, and when.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleSpec {
    /// Its unique name: 1–128 of `[A-Za-z0-9_.:/-]`.
    pub name: String,
    /// When it fires.
    pub timing: Timing,
    /// What becomes of slots that were missed.
    pub missed: Missed,
    /// What becomes of slots while the last firing's job is unfinished.
    pub overlap: Overlap,
    /// The checked template of its jobs.
    pub job: JobSpec,
    /// Whether a worker's code registered it, not the API.
    pub from_code: bool,
}

impl ScheduleSpec {
    /// Fires at the local times that a cron expression names in an IANA zone.
    pub fn cron(name: impl Into<String>, expression: &str, zone: &str, job: JobSpec) -> Result<Self> {
        Ok(ScheduleSpec::new(name, Timing::Cron(Cron::new(expression, zone)?), job))
    }

    /// Fires at a fixed rate, counted from 1970-01-01T00:00:00Z unless anchored elsewhere.
    pub fn every(name: impl Into<String>, every: Duration, job: JobSpec) -> Self {
        ScheduleSpec::new(name, Timing::Every { every, anchor: Timestamp::EPOCH }, job)
    }

    /// Fires this long after it was created, and then after each end of its job.
    pub fn delay(name: impl Into<String>, after: Duration, job: JobSpec) -> Self {
        ScheduleSpec::new(name, Timing::Delay { after }, job)
    }

    fn new(name: impl Into<String>, timing: Timing, job: JobSpec) -> Self {
        let (missed, overlap) = (Missed::default(), Overlap::default());
        ScheduleSpec { name: name.into(), timing, missed, overlap, job, from_code: false }
    }

    /// What becomes of slots that were missed; they fire as one unless said otherwise.
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// What becomes of slots while the last firing's job is unfinished; they do not fire unless said otherwise.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// The first slot of a fixed rate; other timings have none and stay as they are.
    #[must_use]
    pub fn anchor(mut self, at: Timestamp) -> Self {
        if let Timing::Every { anchor, .. } = &mut self.timing {
            *anchor = at;
        }
        self
    }

    /// Checks every field. [`ScheduleRecord::create`] and [`ScheduleRecord::replace`] do it too.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        self.timing.check()?;
        if let Missed::All(count) = self.missed
            && !(1..=MISSED_ALL_MAX).contains(&count)
        {
            return Err(Error::invalid("missed", format!("all(n) takes 1 to {MISSED_ALL_MAX}, not {count}")));
        }
        self.check_template()
    }

    fn check_template(&self) -> Result<()> {
        if !self.job.depends_on.is_empty() {
            return Err(Error::invalid("depends_on", "a schedule's jobs cannot depend on other jobs"));
        }
        if self.job.options.run_at.is_some() {
            return Err(Error::invalid("run_at", "the schedule says when its jobs run"));
        }
        if self.job.options.idempotency.is_some() {
            return Err(Error::invalid("idempotency_key", "every firing of the schedule would be the same job"));
        }
        Ok(())
    }
}

/// A schedule as it is stored.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ScheduleRecord {
    /// What to run, and when.
    pub spec: ScheduleSpec,
    /// 1, and one more for each change.
    pub version: u64,
    /// Whether it does not fire for now.
    pub paused: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// The first slot that has not been looked at; `None` while a fixed delay awaits its job.
    pub next_at: Option<Timestamp>,
    /// The newest slot that fired.
    pub last_slot: Option<Timestamp>,
    /// The job of the last firing.
    pub last_job: Option<JobId>,
    /// How often it fired.
    pub fired: u64,
    /// Why its newest firing made no job; forgotten when one does.
    pub last_error: Option<FiringError>,
}

/// A firing that the rules refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FiringError {
    /// When it was tried.
    pub at: Timestamp,
    /// Why it was refused.
    pub message: String,
}

impl FiringError {
    /// A firing that was refused at this moment.
    pub fn new(at: Timestamp, message: impl Into<String>) -> Self {
        FiringError { at, message: message.into() }
    }
}

impl ScheduleRecord {
    /// A new schedule. Its first slot lies strictly after `now`.
    pub fn create(spec: ScheduleSpec, now: Timestamp) -> Result<Self> {
        spec.check()?;
        let next_at = spec.timing.first_after(now);
        Ok(ScheduleRecord { next_at, ..ScheduleRecord::stored(spec, 1, now) })
    }

    /// A schedule that was checked when it was stored, without anything that came after that; set what differs.
    pub fn stored(spec: ScheduleSpec, version: u64, created_at: Timestamp) -> Self {
        ScheduleRecord {
            spec,
            version,
            paused: false,
            created_at,
            updated_at: created_at,
            next_at: None,
            last_slot: None,
            last_job: None,
            fired: 0,
            last_error: None,
        }
    }

    /// Takes over a new definition under the same name; what has fired stays known.
    ///
    /// With the same timing the next slot stays too. With another it lies strictly after `now` and after what fired.
    pub fn replace(&mut self, spec: ScheduleSpec, now: Timestamp) -> Result<()> {
        spec.check()?;
        if spec.name != self.spec.name {
            let problem = format!("{:?} cannot be replaced under the name {:?}", self.spec.name, spec.name);
            return Err(Error::invalid("name", problem));
        }
        if spec.timing != self.spec.timing {
            self.next_at = spec.timing.first_after(self.not_before(now));
        }
        self.spec = spec;
        self.changed(now);
        Ok(())
    }

    /// Stops firing until [`resume`](Self::resume).
    pub fn pause(&mut self, now: Timestamp) {
        if !self.paused {
            self.paused = true;
            self.changed(now);
        }
    }

    /// Fires again. Slots that passed meanwhile do not.
    pub fn resume(&mut self, now: Timestamp) {
        if self.paused {
            self.paused = false;
            self.next_at = self.next_if_resumed(now);
            self.changed(now);
        }
    }

    /// Notes a firing that was inserted.
    pub fn fired(&mut self, slot: Timestamp, job: JobId) {
        self.last_slot = self.last_slot.max(Some(slot));
        self.last_job = Some(job);
        self.fired = self.fired.saturating_add(1);
        self.last_error = None;
    }

    /// Notes a firing that was refused.
    pub fn refused(&mut self, error: &Error, now: Timestamp) {
        self.last_error = Some(FiringError { at: now, message: error.to_string() });
    }

    fn next_if_resumed(&self, now: Timestamp) -> Option<Timestamp> {
        self.next_at.filter(|next| *next > now).or_else(|| self.spec.timing.first_after(self.not_before(now)))
    }

    /// `now`, unless the clock was set back behind what fired.
    fn not_before(&self, now: Timestamp) -> Timestamp {
        self.last_slot.map_or(now, |slot| slot.max(now))
    }

    fn changed(&mut self, now: Timestamp) {
        self.version = self.version.saturating_add(1);
        self.updated_at = now;
    }
}

fn check_name(name: &str) -> Result<()> {
    match QueueName::new(name) {
        Err(Error::InvalidArgument { problem, .. }) => Err(Error::invalid("name", problem)),
        Err(other) => Err(other),
        Ok(_) => Ok(()),
    }
}

fn check_period(field: &'static str, period: Duration) -> Result<()> {
    if !(PERIOD_MIN..=PERIOD_MAX).contains(&period) {
        return Err(Error::invalid(field, format!("must be 1 second to 366 days, is {period:?}")));
    }
    // A finer one would not come back from a store as it was.
    if !period.subsec_nanos().is_multiple_of(1000) {
        return Err(Error::invalid(field, format!("must be whole microseconds, is {period:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
