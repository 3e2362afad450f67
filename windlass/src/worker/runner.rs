//! One run of one job, as a pipe of short steps: started, run, ended, decided.
//!
//! The handler's future lives in this task, so dropping it is all it takes to stop it. It is dropped when its lease is
//! gone or shutdown has lost patience; at the execution timeout it is told first and dropped a little later.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tracing::Instrument;

use super::committer::{self, Decided};
use super::context::{Attempt, Order};
use super::handler::{HandlerResult, Unpanicked};
use super::middleware::Next;
use super::shared::{Shared, Slot};
use crate::job::{CODE_EXECUTION_TIMEOUT, Category, Failure, Lease, Outcome, Payload, Settlement, State};
use crate::observe;

/// How long a handler whose time is up may take to notice (rule T1).
pub(super) const TIMEOUT_GRACE: Duration = Duration::from_secs(5);

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

/// What is left of a run whose handler may have completed its job in a transaction of its own.
pub(super) enum AfterTx {
    /// It did not: somebody has to decide.
    Undecided(Ended),
    /// It did.
    Completed,
    /// The job is no longer this run's, or nobody knows: then its lease expires.
    Gone,
}

/// Runs a claimed job, hands the decision to the committer, and only then gives the slot back.
pub(super) async fn run(mut slot: Slot, committer: mpsc::Sender<Decided>) {
    let ended = execute(&slot.shared, &slot.attempt).await;
    let AfterTx::Undecided(ended) = after_tx(&slot.shared, &slot.attempt, ended).await else { return };
    if let Some(settlement) = decide(&slot.shared, &slot.attempt, ended) {
        let attempt = Arc::clone(&slot.attempt);
        slot.handed_over = committer.send(Decided { settlement, attempt }).await.is_ok();
    }
}

/// Runs the handler to whatever end it comes to.
pub(super) async fn execute(shared: &Shared, attempt: &Arc<Attempt>) -> Ended {
    if shared.around.stopping.is_cancelled() {
        return Ended::Released;
    }
    if attempt.holds_for(Instant::now(), Duration::ZERO).is_none() || attempt.current_order() >= Order::Lost {
        return Ended::Silent;
    }
    let job = attempt.job();
    let span = tracing::info_span!(
        target: "windlass",
        "windlass.job",
        job.id = %job.id,
        job.r#type = %job.spec.job_type,
        attempt = job.attempt,
        queue = %job.spec.queue,
    );
    observe::trace::continue_in(&span, job.spec.options.trace_context.as_ref());
    let begun = Instant::now();
    let ended = supervise(shared, attempt).instrument(span).await;
    attempt.handler.metrics[attempt.queue].ran(begun.elapsed());
    ended
}

async fn supervise(shared: &Shared, attempt: &Arc<Attempt>) -> Ended {
    let call = &*attempt.handler.call;
    let run = match &*shared.middleware {
        [] => call(Arc::clone(attempt)),
        layers => Next::new(layers, attempt, call).start(),
    };
    let mut handler = Unpanicked(run);
    // The handler is looked at first: most are ready at once, and then nothing else is even set up.
    let order = tokio::select! {
        biased;
        result = &mut handler => return Ended::Finished(result),
        order = called_off(attempt) => order,
    };
    match order {
        Some(Order::Interrupt) => return Ended::Interrupted,
        Some(_) => return Ended::Silent,
        None => {}
    }
    // Its time is up, and whatever it says from now on does not count.
    attempt.order(Order::Cancel);
    tokio::select! {
        biased;
        _ = &mut handler => Ended::TimedOut,
        () = tokio::time::sleep(TIMEOUT_GRACE) => Ended::TimedOut,
        order = dropped(attempt) => if order == Order::Interrupt { Ended::TimedOut } else { Ended::Silent },
    }
}

/// Waits until the run must be dropped, or its time is up (`None`).
async fn called_off(attempt: &Attempt) -> Option<Order> {
    loop {
        let mut changed = pin!(attempt.changed().notified());
        changed.as_mut().enable();
        let order = attempt.current_order();
        if order > Order::Cancel {
            return Some(order);
        }
        match attempt.deadline() {
            None => changed.await,
            Some(deadline) => tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(deadline) => return None,
            },
        }
    }
}

/// Waits until the run must be dropped, whatever its time limit.
async fn dropped(attempt: &Attempt) -> Order {
    loop {
        let mut changed = pin!(attempt.changed().notified());
        changed.as_mut().enable();
        let order = attempt.current_order();
        if order > Order::Cancel {
            return order;
        }
        changed.await;
    }
}

/// Looks whether the handler's own transaction, if it completed the job in one, was committed (rule X2).
pub(super) async fn after_tx(shared: &Shared, attempt: &Attempt, ended: Ended) -> AfterTx {
    if !attempt.is_in_tx() || matches!(ended, Ended::Silent) {
        return AfterTx::Undecided(ended);
    }
    let found = shared.store().find(&[attempt.id()]).await;
    let state = match found.map(|mut jobs| jobs.pop().flatten()) {
        // One that is pruned already had ended.
        Ok(None) => State::Completed,
        Ok(Some(job)) if job.lease_version == attempt.lease_version() => job.state,
        Ok(Some(_)) => return AfterTx::Gone,
        Err(error) => {
            tracing::warn!(?attempt, %error, "cannot see whether the handler's transaction was committed");
            return AfterTx::Gone;
        }
    };
    match (state, ended) {
        (State::Completed, _) => {
            committer::count(shared, attempt, Outcome::Completed);
            shared.hooks.tell_settled(attempt, Outcome::Completed, State::Completed);
            AfterTx::Completed
        }
        (State::Running, ended) => {
            attempt.leave_tx();
            AfterTx::Undecided(match ended {
                Ended::Finished(Ok(_)) => Ended::Finished(Err(not_committed())),
                ended => ended,
            })
        }
        _ => AfterTx::Gone,
    }
}

/// Success without the transaction it was part of is none.
fn not_committed() -> Failure {
    let message = "the handler succeeded, but the transaction in which it completed the job was not committed";
    Failure::new(Category::Temporary, Some("not_committed".to_owned()), message)
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
    let limit = shared.around.client.limits_in_force().payload_bytes();
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
        failure.retry_after = attempt.handler.own_backoff(attempt.job().failures.saturating_add(1), &failure);
    }
    lease.fail(failure, &mut || shared.random())
}

pub(super) fn timed_out(attempt: &Attempt) -> Failure {
    let limit = attempt.deadline().zip(attempt.job().spec.options.timeouts.execution);
    let words = limit.map_or_else(String::new, |(_, limit)| format!(" of {limit:?}"));
    let message = format!("the attempt ran longer than its execution timeout{words}");
    Failure::new(Category::Timeout, Some(CODE_EXECUTION_TIMEOUT.to_owned()), message)
}
