//! A checked job: what stores are given, and when it may first run and must have ended.

use std::time::Duration;

use super::Priority;
use super::damage::Damage;
use super::dependency::Dependency;
use super::id::{JobType, QueueName};
use super::options::{JobOptions, RunAt, Scope, Timeouts};
use super::payload::Payload;
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// A checked job, ready to be stored.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct JobSpec {
    /// Which handler it is for.
    pub job_type: JobType,
    /// Its lane.
    pub queue: QueueName,
    /// Its data.
    pub payload: Payload,
    /// Its own priority.
    pub priority: Priority,
    /// What it waits for; ids only, once it is stored.
    pub depends_on: Vec<Dependency>,
    /// Everything else.
    pub options: JobOptions,
    /// What could not be read of its row. Such a job is never run: the claim that meets it sets it aside.
    pub damage: Option<String>,
}

impl JobSpec {
    /// Puts together what a store kept of a checked job.
    pub fn from_stored(
        job_type: JobType,
        queue: QueueName,
        payload: Payload,
        priority: Priority,
        depends_on: Vec<Dependency>,
        options: JobOptions,
    ) -> Self {
        JobSpec { job_type, queue, payload, priority, depends_on, options, damage: None }
    }

    /// The same, with what could not be read of it.
    #[must_use]
    pub fn with_damage(mut self, damage: Damage) -> Self {
        self.add_damage(damage);
        self
    }

    /// Adds what could not be read beside it.
    pub fn add_damage(&mut self, damage: Damage) {
        match (&mut self.damage, damage.into_words()) {
            (Some(known), Some(words)) => {
                known.push_str("; ");
                known.push_str(&words);
            }
            (known @ None, words) => *known = words,
            (Some(_), None) => {}
        }
    }

    /// When a job submitted at `now` may first run: `None` for at once.
    ///
    /// Refused when that lies beyond its lifetime.
    pub fn first_run(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        let Some(at) = self.first_moment(now) else { return Ok(None) };
        if let Some(deadline) = self.deadline(now)
            && at >= deadline
        {
            let way_out = "name a longer lifetime, or none";
            return Err(match (self.options.run_at, self.options.timeouts.lifetime) {
                (Some(RunAt::In(delay)), Some(lifetime)) => Error::invalid(
                    "delay",
                    format!("{} lies beyond the job's lifetime of {}: {way_out}", written(delay), written(lifetime)),
                ),
                _ => Error::invalid(
                    "run_at",
                    format!("{at} lies beyond the job's lifetime, which ends at {deadline}: {way_out}"),
                ),
            });
        }
        Ok(Some(at).filter(|at| *at > now))
    }

    /// The same job, which may first run at this moment.
    pub(crate) fn debounced(&self, run_at: Timestamp) -> Self {
        let options = JobOptions { run_at: Some(RunAt::At(run_at)), ..self.options.clone() };
        JobSpec { options, ..self.clone() }
    }

    fn first_moment(&self, now: Timestamp) -> Option<Timestamp> {
        self.options.run_at.map(|run_at| match run_at {
            RunAt::At(at) => at,
            RunAt::In(delay) => now.plus(delay),
        })
    }

    /// When the lifetime of a job ends that is submitted at `now`.
    pub fn deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.deadline_with(now, self.first_moment(now))
    }

    /// When the lifetime of a job ends that begins at `now` and may first run at `first_run`, if not at once.
    pub fn deadline_with(&self, now: Timestamp, first_run: Option<Timestamp>) -> Option<Timestamp> {
        let timeouts = &self.options.timeouts;
        let ahead = first_run.filter(|first_run| timeouts.lifetime_from_run_at && *first_run > now);
        timeouts.lifetime.map(|lifetime| ahead.unwrap_or(now).plus(lifetime))
    }

    /// Whether its lifetime counts from a moment that only the store can hold against its time.
    pub fn lifetime_follows_moment(&self) -> bool {
        let Timeouts { lifetime, lifetime_from_run_at, .. } = self.options.timeouts;
        lifetime.is_some() && lifetime_from_run_at && matches!(self.options.run_at, Some(RunAt::At(_)))
    }

    /// The text under which its idempotency key is unique, with the scope in front.
    pub fn idempotency_scope(&self) -> Option<String> {
        let idempotency = self.options.idempotency.as_ref()?;
        Some(match idempotency.scope {
            Scope::Type => format!("t:{}", self.job_type),
            Scope::Queue => format!("q:{}", self.queue),
            Scope::Global => "g:".to_owned(),
        })
    }
}
/// A duration as people write it, in the largest unit that it is whole in.
fn written(duration: Duration) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let whole = |(seconds, _): &(u64, &str)| {
        duration.subsec_nanos() == 0 && duration.as_secs() > 0 && duration.as_secs().is_multiple_of(*seconds)
    };
    match units.into_iter().find(whole) {
        Some((seconds, unit)) => format!("{}{unit}", duration.as_secs() / seconds),
        None => format!("{duration:?}"),
    }
}
