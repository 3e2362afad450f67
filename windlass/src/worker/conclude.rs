//! What the store's answer to a settlement means: it is counted, told to the hooks and logged.
//!
//! The committer and the drain of tests both come here, so that they cannot differ.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::attempt::Attempt;
use super::decide;
use super::patience;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::job::{Failure, Outcome, Settlement, State};
use crate::observe::{self, TARGET_JOB};
use crate::store::Settled;

/// What became of a settlement.
#[derive(Debug)]
pub(super) enum Conclusion {
    /// It is durable. The state that it led to is not known where the answer to an earlier call was lost.
    Done(Outcome, Option<State>),
    /// It came too late.
    Stale,
    /// The store does not take it, and the lease will expire.
    Refused(Error),
}

/// Counts, tells and logs what the store answered to a settlement.
pub(super) fn conclude(shared: &Shared, attempt: &Attempt, settlement: &Settlement, answer: Settled) -> Conclusion {
    let outcome = settlement.outcome();
    match answer {
        Settled::Applied(state) => {
            count(shared, attempt, outcome);
            log(attempt, settlement, state);
            shared.hooks.tell_settled(attempt, outcome, state);
            Conclusion::Done(outcome, Some(state))
        }
        Settled::AlreadyApplied => {
            count(shared, attempt, outcome);
            log(attempt, settlement, decided_state(settlement));
            Conclusion::Done(outcome, None)
        }
        Settled::Stale(stale) => {
            observe::settlement_stale(stale);
            tracing::warn!(?attempt, %stale, outcome = outcome.as_str(), "a settlement came too late");
            Conclusion::Stale
        }
        Settled::Refused(error) => Conclusion::Refused(error),
    }
}

/// Counts and tells that the handler completed its job in a transaction of its own.
pub(super) fn completed_in_tx(shared: &Shared, attempt: &Attempt) {
    count(shared, attempt, Outcome::Completed);
    log_completed(attempt);
    shared.hooks.tell_settled(attempt, Outcome::Completed, State::Completed);
}

/// A completion that cannot be stored (a child names an unknown dependency) ends the job as a permanent failure.
///
/// Gives that settlement and the store's answer to it.
pub(super) async fn fail_refused(
    shared: &Shared,
    attempt: &Arc<Attempt>,
    error: Error,
) -> Result<(Settlement, Settled)> {
    tracing::error!(?attempt, %error, "the store refused a completion; the job fails");
    let failure = Failure::permanent("completion_refused", error);
    let settlement = decide::fail(shared, attempt, attempt.lease_again(), failure);
    let call = shared.store().settle(std::slice::from_ref(&settlement));
    let mut answers = patience::within(patience::SETTLE, "settle", call).await?;
    let answer = answers.pop().ok_or_else(|| Error::store("settle", "the store gave no answer"))?;
    Ok((settlement, answer))
}

/// The state that a settlement leads to, where the store no longer says it.
pub(super) fn decided_state(settlement: &Settlement) -> State {
    State::Running.after(settlement.verdict(false).event).unwrap_or(State::Running)
}

/// Writes one event for a settled attempt, at the level of what it asks of people: a completed one nothing, a retried one
/// a look, one that ended its job for good a decision.
fn log(attempt: &Attempt, settlement: &Settlement, state: State) {
    if state == State::Completed {
        return log_completed(attempt);
    }
    let verdict = settlement.verdict(state == State::Cancelled);
    let (id, job_type, queue) = (attempt.id(), &attempt.job().spec.job_type, &attempt.job().spec.queue);
    let (number, outcome) = (attempt.attempt(), settlement.outcome().as_str());
    let category = verdict.failure.as_ref().map(|failure| failure.category().as_str());
    let code = verdict.failure.as_ref().and_then(Failure::code);
    // Not `message`, which is the event's own: a log of JSON would have two members of that name.
    let failure = verdict.failure.as_ref().map(Failure::message);
    if matches!(state, State::Failed | State::DeadLetter) {
        tracing::error!(
            target: TARGET_JOB, attempt = number, job.id = %id, job.r#type = %job_type, %queue, outcome, %state, category,
            code, failure, "a job ended without success"
        );
    } else if settlement.outcome() == Outcome::Failed && state != State::Cancelled {
        tracing::warn!(
            target: TARGET_JOB, attempt = number, job.id = %id, job.r#type = %job_type, %queue, outcome, %state, category,
            code, failure, retry_in = ?verdict.delay.unwrap_or_default(), "an attempt failed and will be retried"
        );
    } else {
        tracing::info!(
            target: TARGET_JOB, attempt = number, job.id = %id, job.r#type = %job_type, %queue, outcome, %state,
            run_in = ?verdict.delay, "an attempt ended"
        );
    }
}

fn log_completed(attempt: &Attempt) {
    let (job, number) = (attempt.job(), attempt.attempt());
    tracing::debug!(
        target: TARGET_JOB, attempt = number, job.id = %job.id, job.r#type = %job.spec.job_type, queue = %job.spec.queue,
        "a job completed"
    );
}

fn count(shared: &Shared, attempt: &Attempt, outcome: Outcome) {
    let tally = &shared.tally;
    tally.settled.fetch_add(1, Ordering::Relaxed);
    match outcome {
        Outcome::Released => tally.released.fetch_add(1, Ordering::Relaxed),
        Outcome::Interrupted => tally.interrupted.fetch_add(1, Ordering::Relaxed),
        _ => 0,
    };
    attempt.handled.metrics[attempt.queue].ended(outcome);
}
