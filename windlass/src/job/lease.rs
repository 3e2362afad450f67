//! The exclusive right to a job for a time, and the only way to settle it.
//!
//! A [`Lease`] comes from a claim, cannot be copied, and is used up by deciding. What it yields, a [`Settlement`], is all
//! that a store takes, so deciding twice does not compile:
//!
//! ```compile_fail
//! fn twice(lease: windlass::job::Lease) {
//!     let first = lease.complete(None);
//!     let second = lease.complete(None);
//! }
//! ```
//!
//! nor does keeping a copy:
//!
//! ```compile_fail
//! fn copy(lease: &windlass::job::Lease) -> windlass::job::Lease {
//!     lease.clone()
//! }
//! ```
//!
//! nor does keeping a copy of what it yielded:
//!
//! ```compile_fail
//! fn copy(settlement: &windlass::job::Settlement) -> windlass::job::Settlement {
//!     settlement.clone()
//! }
//! ```
//!
//! nor does making a settlement without a lease:
//!
//! ```compile_fail
//! fn forge(key: windlass::job::LeaseKey) -> windlass::job::Settlement {
//!     windlass::job::Settlement { key, ..todo!() }
//! }
//! ```
//!
//! A made-up token gets no further than the store, which checks it in the statement that writes (rule L2).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::attempt::Outcome;
use super::damage;
use super::failure::{Failure, Hold};
use super::fingerprint::Fingerprint;
use super::id::{AttemptId, JobId, LeaseToken};
use super::options::Limits;
use super::payload::Payload;
use super::record::{JobRecord, Reason, ReasonKind};
use super::retry::{DELAY_MAX, Random};
use super::spec::JobSpec;
use super::state::{Event, State};
use super::verdict::Verdict;
use crate::error::{Error, Result};

/// Most children that one completion may spawn; as many as one job may wait for.
pub const SPAWN_MAX: usize = 1000;

/// What a lease is recognised by: enough to extend it or to save under it, not enough to settle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LeaseKey {
    /// The job.
    pub job: JobId,
    /// The secret drawn at the claim.
    pub token: LeaseToken,
}

/// Why a lease does not hold, in the order in which it is checked (rule L2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stale {
    /// The job is not running, or does not exist.
    NotRunning,
    /// The lease has expired, whether or not somebody else has the job by now.
    Expired,
    /// Somebody else holds the job.
    Mismatch,
}

impl Stale {
    /// All three, in the order in which they are checked.
    pub const ALL: [Stale; 3] = [Stale::NotRunning, Stale::Expired, Stale::Mismatch];

    /// Checks a token against a job; the one place that knows the order of the checks.
    pub fn check(
        running: bool,
        expires_at: Option<crate::Timestamp>,
        now: crate::Timestamp,
        matches: bool,
    ) -> Result<(), Stale> {
        if !running {
            Err(Stale::NotRunning)
        } else if expires_at.is_none_or(|expires_at| now >= expires_at) {
            Err(Stale::Expired)
        } else if !matches {
            Err(Stale::Mismatch)
        } else {
            Ok(())
        }
    }

    /// Lower case, as in JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Stale::NotRunning => "not_running",
            Stale::Expired => "expired",
            Stale::Mismatch => "mismatch",
        }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stale::NotRunning => "the job is not running",
            Stale::Expired => "the lease has expired",
            Stale::Mismatch => "another lease holds the job",
        })
    }
}

/// The exclusive right to a job for a time.
#[derive(Debug)]
pub struct Lease {
    key: LeaseKey,
    version: u64,
    attempt: u32,
    failures: u32,
    spec: Arc<JobSpec>,
}

impl Lease {
    /// The lease that `job`, which a store has just claimed, is held under.
    ///
    /// For stores. A wrong token makes a lease that every store refuses.
    pub fn granted(job: &JobRecord, token: LeaseToken) -> Self {
        Lease {
            key: LeaseKey { job: job.id, token },
            version: job.lease_version,
            attempt: job.attempt,
            failures: job.failures,
            spec: Arc::clone(&job.spec),
        }
    }

    /// The lease that a holder elsewhere presents, with what decides about its failure: the failures before it and the
    /// job's policy.
    pub(crate) fn presented(key: LeaseKey, failures: u32, spec: Arc<JobSpec>) -> Self {
        Lease { key, version: 0, attempt: 0, failures, spec }
    }

    /// The job.
    pub fn job(&self) -> JobId {
        self.key.job
    }

    /// What it is recognised by.
    pub fn key(&self) -> LeaseKey {
        self.key
    }

    /// Its number, which only grows: a fencing token for other systems (rule L9).
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The attempt it is for, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The attempt's own id.
    pub fn attempt_id(&self) -> AttemptId {
        AttemptId::of(self.key.job, self.version)
    }

    /// The work is done.
    pub fn complete(self, result: Option<Payload>) -> Settlement {
        let verdict = Verdict::of(Event::Completed);
        Settlement { result, ..self.settle(Outcome::Completed, verdict.clone(), verdict) }
    }

    /// The attempt failed; its category and the job's policy decide what follows. A snooze snoozes.
    pub fn fail(self, failure: Failure, random: Random<'_>) -> Settlement {
        let hold = failure.hold;
        if let (true, Some(delay)) = (failure.snooze, failure.retry_after) {
            return self.snooze(delay).hold(hold);
        }
        let outcome = if failure.dead_letter { Outcome::DeadLettered } else { Outcome::Failed };
        let cancelled = cancelled(Some(failure.clone()));
        let verdict = Verdict::of_failure(&self.spec.options.retry, self.failures, failure, random);
        self.settle(outcome, verdict, cancelled).hold(hold)
    }

    /// The job's row is damaged: ends it in DEAD_LETTER without a run, with what could not be read.
    pub(crate) fn set_aside(self) -> Settlement {
        let failure = damage::failure(self.spec.damage.as_deref().unwrap_or_default());
        self.fail(failure, &mut || 0.0)
    }

    /// Not now: run again after this long. Does not count as a failure.
    pub fn snooze(self, delay: Duration) -> Settlement {
        let verdict = Verdict { delay: Some(delay.min(DELAY_MAX)), ..Verdict::of(Event::Snoozed) };
        self.settle(Outcome::Snoozed, verdict, cancelled(None))
    }

    /// The holder ends the job as cancelled.
    pub fn cancel(self) -> Settlement {
        self.settle(Outcome::Cancelled, cancelled(None), cancelled(None))
    }

    /// Gives the job back before its handler started. Does not count as a failure.
    pub fn release(self) -> Settlement {
        self.settle(Outcome::Released, Verdict::of(Event::Released), cancelled(None))
    }

    /// Gives the job back because the worker shuts down. Does not count unless the policy says so.
    pub fn interrupt(self) -> Settlement {
        let verdict = Verdict::of_interrupt(&self.spec.options.retry, self.failures);
        self.settle(Outcome::Interrupted, verdict, cancelled(None))
    }

    fn settle(self, outcome: Outcome, verdict: Verdict, if_cancel_asked: Verdict) -> Settlement {
        let dies = matches!(State::Running.after(verdict.event), Ok(State::Failed | State::DeadLetter));
        let failure = verdict.failure.as_ref().filter(|_| dies);
        let fault = failure.map(|failure| failure.fingerprint(&self.spec.job_type));
        let (result, children, hold) = (None, Vec::new(), None);
        Settlement { key: self.key, outcome, verdict, if_cancel_asked, fault, result, children, hold }
    }
}

/// What the attempt comes to when cancel had been asked for and it did not succeed (S14).
fn cancelled(failure: Option<Failure>) -> Verdict {
    Verdict {
        counted: failure.is_some(),
        ..Verdict::ending(Event::CancelSettled, Reason::of(ReasonKind::Cancelled), failure)
    }
}

/// A decision about a running job, made by its lease holder. May be sent again when the answer was lost (rule L4).
#[derive(Debug)]
pub struct Settlement {
    key: LeaseKey,
    outcome: Outcome,
    verdict: Verdict,
    if_cancel_asked: Verdict,
    fault: Option<Fingerprint>,
    result: Option<Payload>,
    children: Vec<JobSpec>,
    hold: Option<Hold>,
}

impl Settlement {
    /// Holds a gate of the job's controlled queue from the settlement on.
    #[must_use]
    pub fn hold(mut self, hold: Option<Hold>) -> Self {
        self.hold = hold;
        self
    }

    /// The gate that it holds.
    pub fn held(&self) -> Option<Hold> {
        self.hold
    }

    /// Spawns children, stored in the same transaction as the completion (FAN_OUT).
    ///
    /// Refused for anything but a completion, and for more than 1,000. Their dependencies may name each other by
    /// place and the completing job by id.
    pub fn spawn(mut self, children: Vec<JobSpec>) -> Result<Self> {
        if self.outcome != Outcome::Completed {
            return Err(Error::invalid("spawn", "only a completion can spawn jobs"));
        }
        let count = children.len();
        if count > SPAWN_MAX {
            return Err(Error::invalid("spawn", format!("must be at most {SPAWN_MAX} jobs, are {count}")));
        }
        self.children = children;
        Ok(self)
    }

    /// Refuses a result over the payload limit.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        self.result.as_ref().map_or(Ok(()), |result| result.check_size("result", limits.payload_bytes()))
    }

    /// The same decision once more, for a store that writes on a thread of its own.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "encryption")),
        allow(dead_code, reason = "only that store has such a thread")
    )]
    pub(crate) fn duplicate(&self) -> Self {
        Settlement {
            key: self.key,
            outcome: self.outcome,
            verdict: self.verdict.clone(),
            if_cancel_asked: self.if_cancel_asked.clone(),
            fault: self.fault,
            result: self.result.clone(),
            children: self.children.clone(),
            hold: self.hold,
        }
    }

    /// The same decision with its data in another form, for a layer that encrypts it.
    #[cfg(feature = "encryption")]
    pub(crate) fn with_data(&self, result: Option<Payload>, children: Vec<JobSpec>) -> Self {
        Settlement { result, children, ..self.duplicate() }
    }

    /// The lease it is made under.
    pub fn key(&self) -> LeaseKey {
        self.key
    }

    /// What the holder said: two settlements of one lease with the same outcome are the same (rule L4).
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// What it does to the job; `cancel_asked` is the store's knowledge of the moment of writing.
    pub fn verdict(&self, cancel_asked: bool) -> &Verdict {
        if cancel_asked { &self.if_cancel_asked } else { &self.verdict }
    }

    /// The fault that the job dies of, unless cancel was asked for: for stores that write the end without reading the job.
    pub fn fault(&self) -> Option<Fingerprint> {
        self.fault
    }

    /// The result of a completion.
    pub fn result(&self) -> Option<&Payload> {
        self.result.as_ref()
    }

    /// The jobs that a completion spawns.
    pub fn children(&self) -> &[JobSpec] {
        &self.children
    }
}
