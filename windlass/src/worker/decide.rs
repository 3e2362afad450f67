//! From the end of a run to the decision about its job.
//!
//! It touches no store. Runner, heartbeat and committer all decide here, and none of them needs another for it.

use std::time::Duration;

use super::attempt::Attempt;
use super::handled::Failed;
use super::handler::HandlerResult;
use super::shared::Shared;
use crate::job::{CODE_EXECUTION_TIMEOUT, Category, Failure, Lease, Payload, Settlement};

/// How a run came to its end.
#[derive(Debug)]
pub(super) enum Ended {
    /// The handler returned.
    Finished(HandlerResult),
    /// Its time was up.
    TimedOut,
    /// It never started.
    Released,
    /// Shutdown stopped it.
    Interrupted,
    /// Its lease is gone, or the worker aborts: there is nothing to say.
    Silent,
}

/// Turns the end of a run into a settlement; `None` when there is nothing to say, or it was said elsewhere.
pub(super) fn decide(shared: &Shared, attempt: &Attempt, ended: Ended) -> Option<Settlement> {
    let lease = attempt.take_lease()?;
    Some(match ended {
        Ended::Silent => return None,
        Ended::Released => lease.release(),
        Ended::Interrupted => lease.interrupt(),
        Ended::TimedOut => fail(shared, attempt, lease, timed_out(attempt)),
        Ended::Finished(Err(failure)) => fail(shared, attempt, lease, failure),
        Ended::Finished(Ok(result)) => complete(shared, attempt, lease, result),
    })
}

fn complete(shared: &Shared, attempt: &Attempt, lease: Lease, result: Option<Payload>) -> Settlement {
    let limit = shared.env.client.limits_in_force().payload_bytes();
    let checked = result.as_ref().map_or(Ok(()), |result| result.check_size("result", limit));
    if let Err(error) = checked {
        return fail(shared, attempt, lease, Failure::permanent("result_too_large", error));
    }
    let settlement = lease.complete(result);
    let children = attempt.take_children();
    if children.is_empty() {
        return settlement;
    }
    settlement.spawn(children).expect("spawning was refused beyond the limit, and this is a completion")
}

/// A failed run, with the delay that the user's own backoff wants if there is one.
pub(super) fn fail(shared: &Shared, attempt: &Attempt, lease: Lease, mut failure: Failure) -> Settlement {
    if failure.retry_after.is_none() {
        let job = attempt.job();
        let (failures, policy) = (job.failures.saturating_add(1), &job.spec.options.retry);
        failure.retry_after = attempt.handled.own_backoff(Failed { failures, failure: &failure, policy });
    }
    lease.fail(failure, &mut || shared.random())
}

/// A run whose handler holds its thread long past its time: its job does not run again for at least `wait` (rule T1).
pub(super) fn fail_stuck(shared: &Shared, attempt: &Attempt, lease: Lease, wait: Duration) -> Settlement {
    let mut failure = timed_out(attempt);
    let job = attempt.job();
    let (failures, policy) = (job.failures.saturating_add(1), &job.spec.options.retry);
    let own = attempt.handled.own_backoff(Failed { failures, failure: &failure, policy });
    let delay = own.unwrap_or_else(|| policy.delay(failures, &mut || shared.random()));
    failure.retry_after = if delay < wait { Some(wait) } else { own };
    lease.fail(failure, &mut || shared.random())
}

fn timed_out(attempt: &Attempt) -> Failure {
    let limit = attempt.deadline().zip(attempt.job().spec.options.timeouts.execution);
    let words = limit.map_or_else(String::new, |(_, limit)| format!(" of {limit:?}"));
    let message = format!("the attempt ran longer than its execution timeout{words}");
    Failure::new(Category::Timeout, Some(CODE_EXECUTION_TIMEOUT.to_owned()), message)
}
