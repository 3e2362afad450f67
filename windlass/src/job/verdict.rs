//! Decisions: what an event does to a job. Made here, applied by stores.

use std::time::Duration;

use super::attempt::Outcome;
use super::failure::{
    CODE_CANCELLED, CODE_DEPENDENCY, CODE_EXECUTION_TIMEOUT, CODE_INTERRUPTED, CODE_LEASE_EXPIRED, CODE_LIFETIME,
    CODE_OPERATOR, Category, Failure,
};
use super::id::JobId;
use super::record::{JobRecord, Reason, ReasonKind};
use super::retry::{LOST_FREE_MAX, Lost, Random, RetryPolicy};
use super::state::{Event, State};
use crate::error::{Error, Result};

/// What happens to a job: the event, and what it changes beside the state.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// What happened; the next state follows from it by [`State::after`].
    pub event: Event,
    /// How long the job waits before it may run: for RETRYING and DELAYED.
    pub delay: Option<Duration>,
    /// Whether `failures` goes up by one.
    pub counted: bool,
    /// Whether this was a lost attempt.
    pub lost: bool,
    /// The failure to record.
    pub failure: Option<Failure>,
    /// Why the job is terminal, if it is.
    pub reason: Option<Reason>,
}

impl Verdict {
    pub(super) fn of(event: Event) -> Self {
        Verdict { event, delay: None, counted: false, lost: false, failure: None, reason: None }
    }

    pub(super) fn ending(event: Event, reason: Reason, failure: Option<Failure>) -> Self {
        Verdict { failure, reason: Some(reason), ..Verdict::of(event) }
    }

    /// The attempt failed under `policy`, as failure number `failures + 1` (rules R1 and R2, S7 to S9).
    pub(super) fn of_failure(policy: &RetryPolicy, failures: u32, failure: Failure, random: Random<'_>) -> Self {
        let n = failures.saturating_add(1);
        let verdict = if failure.dead_letter {
            Verdict::ending(Event::DeadLettered, Reason::of(ReasonKind::Explicit), None)
        } else if failure.category == Category::Cancelled {
            Verdict::ending(Event::CancelSettled, Reason::of(ReasonKind::Cancelled), None)
        } else if !policy.retries(failure.category) {
            Verdict::ending(Event::Failed, Reason::of(ReasonKind::Permanent), None)
        } else if n >= policy.max_attempts {
            Verdict::ending(Event::Exhausted, Reason::of(ReasonKind::Exhausted), None)
        } else {
            let delay = match failure.retry_after {
                Some(asked) => asked.min(policy.retry_after_max),
                None => policy.delay(n, random),
            };
            Verdict { delay: Some(delay), ..Verdict::of(Event::Retried) }
        };
        Verdict { counted: true, failure: Some(failure), ..verdict }
    }

    /// Graceful shutdown interrupted the attempt (S10; counted only where the policy says so).
    pub(super) fn of_interrupt(policy: &RetryPolicy, failures: u32) -> Self {
        if !policy.interrupts_count {
            return Verdict::of(Event::Interrupted);
        }
        let failure = Failure::new(Category::System, Some(CODE_INTERRUPTED.to_owned()), "interrupted by shutdown");
        let verdict = if failures.saturating_add(1) >= policy.max_attempts {
            Verdict::ending(Event::Exhausted, Reason::of(ReasonKind::Exhausted), None)
        } else {
            Verdict::of(Event::Interrupted)
        };
        Verdict { counted: true, failure: Some(failure), ..verdict }
    }

    /// The lease of a running job expired, and what the attempt's outcome is (S10, S11, S14; S7 to S9 where its execution
    /// timeout was over, T1b).
    pub fn of_expiry(job: &JobRecord, random: Random<'_>) -> (Self, Outcome) {
        if job.ran_too_long() {
            return (Verdict::of_execution_timeout(job, random), Outcome::Revoked);
        }
        (Verdict::of_lost_lease(job, random), Outcome::Lost)
    }

    /// The attempt ran longer than its execution timeout, and its holder did not say so in time (T1b).
    fn of_execution_timeout(job: &JobRecord, random: Random<'_>) -> Self {
        let limit = job.spec.options.timeouts.execution.unwrap_or_default();
        let message = format!("the attempt was not settled within its execution timeout of {limit:?}");
        let failure = Failure::new(Category::Timeout, Some(CODE_EXECUTION_TIMEOUT.to_owned()), message);
        match &job.cancel {
            Some(asked) => {
                let verdict = Verdict::ending(Event::CancelSettled, asked.reason(), Some(failure));
                Verdict { counted: true, ..verdict }
            }
            None => Verdict::of_failure(&job.spec.options.retry, job.failures, failure, random),
        }
    }

    fn of_lost_lease(job: &JobRecord, random: Random<'_>) -> Self {
        let policy = &job.spec.options.retry;
        let failure = Failure::new(
            Category::System,
            Some(CODE_LEASE_EXPIRED.to_owned()),
            "the lease expired before the job was settled",
        );
        let free = policy.lost == Lost::Free && job.lost < LOST_FREE_MAX;
        if let Some(asked) = &job.cancel {
            return Verdict {
                counted: !free,
                lost: true,
                ..Verdict::ending(Event::CancelSettled, asked.reason(), Some(failure))
            };
        }
        let n = job.failures.saturating_add(1);
        let verdict = if free {
            Verdict::of(Event::LeaseLost)
        } else if !policy.retries(Category::System) {
            Verdict::ending(Event::Failed, Reason::of(ReasonKind::Permanent), None)
        } else if n >= policy.max_attempts {
            Verdict::ending(Event::LeaseLostExhausted, Reason::of(ReasonKind::Exhausted), None)
        } else {
            Verdict::of(Event::LeaseLost)
        };
        let verdict = match verdict.event {
            Event::LeaseLost if policy.lost_backoff => {
                Verdict { delay: Some(policy.delay(n, random)), ..Verdict::of(Event::LeaseLostBackoff) }
            }
            _ => verdict,
        };
        Verdict { counted: !free, lost: true, failure: Some(failure), ..verdict }
    }

    /// The job's lifetime is over (S15).
    pub fn of_lifetime() -> Self {
        let failure =
            Failure::new(Category::Timeout, Some(CODE_LIFETIME.to_owned()), "the job did not end within its lifetime");
        Verdict::ending(Event::LifetimeEnded, Reason::of(ReasonKind::Lifetime), Some(failure))
    }

    /// A dependency ended badly, and `cause` is the job it began with (S3, W2).
    ///
    /// `None` where that end does no harm.
    pub fn of_dependency(end: State, cause: JobId) -> Option<Self> {
        let (event, category) = match end {
            State::Failed => (Event::DependencyFailed, Category::Permanent),
            State::DeadLetter => (Event::DependencyDeadLettered, Category::Permanent),
            State::Cancelled => (Event::DependencyCancelled, Category::Cancelled),
            State::Completed
            | State::Pending
            | State::Delayed
            | State::Scheduled
            | State::Running
            | State::Retrying => return None,
        };
        let message = format!("job {cause}, which this one depends on, ended {end}");
        let failure = Failure::new(category, Some(CODE_DEPENDENCY.to_owned()), message);
        let reason = Reason { cause: Some(cause), ..Reason::of(ReasonKind::Dependency) };
        Some(Verdict::ending(event, reason, Some(failure)))
    }

    /// Another job takes the place of this one, which was never claimed (U3, S13).
    pub fn of_replacement(by: JobId) -> Self {
        let reason = Reason { cause: Some(by), ..Reason::of(ReasonKind::Replaced) };
        Verdict::ending(Event::Cancelled, reason, None)
    }

    /// An operator dead-letters the job (S16b).
    pub fn of_operator_dead_letter(job: &JobRecord, by: Option<&str>, why: &str) -> Result<Self> {
        let failure = Failure::new(Category::System, Some(CODE_OPERATOR.to_owned()), why);
        let reason = Reason::of(ReasonKind::Explicit).by(by).saying(why);
        // A job that FAILED keeps the failure it has; the operator only moves it.
        let failure = Some(failure).filter(|_| job.state != State::Failed);
        allowed(job, Event::OperatorDeadLettered, "dead-letter")?;
        Ok(Verdict::ending(Event::OperatorDeadLettered, reason, failure))
    }

    /// Someone cancels the job (S13, S14).
    pub fn of_cancel(job: &JobRecord, force: bool, by: Option<&str>, why: &str) -> Result<CancelVerdict> {
        let event = match job.state {
            State::Running if !force => return Ok(CancelVerdict::Ask),
            State::Running => Event::CancelForced,
            State::Pending
            | State::Delayed
            | State::Scheduled
            | State::Retrying
            | State::Completed
            | State::Failed
            | State::DeadLetter
            | State::Cancelled => Event::Cancelled,
        };
        allowed(job, event, "cancel")?;
        let failure = Failure::new(Category::Cancelled, Some(CODE_CANCELLED.to_owned()), why);
        let failure = Some(failure).filter(|_| event == Event::CancelForced);
        let reason = Reason::of(ReasonKind::Cancelled).by(by).saying(why);
        Ok(CancelVerdict::Now(Verdict::ending(event, reason, failure)))
    }
}

/// What cancelling comes to.
#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant, reason = "one is made for each call; a box would only be in the way")]
pub enum CancelVerdict {
    /// The job ends now.
    Now(Verdict),
    /// The job is running: its holder is asked, and the next end of the attempt that is not success cancels it.
    Ask,
}

fn allowed(job: &JobRecord, event: Event, wanted: &'static str) -> Result<()> {
    match job.state.after(event) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::IllegalState { job: job.id, state: job.state, wanted }),
    }
}
