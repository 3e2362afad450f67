//! One run of one job, as a pipe of short steps: started, run, ended, decided.
//!
//! The handler's future lives in this task, so dropping it is all it takes to stop it. It is dropped when its lease is
//! gone or shutdown has lost patience; at the execution timeout it is told first and dropped a little later.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tracing::Instrument;

use super::attempt::{Attempt, Order};
use super::committer::Decided;
use super::conclude;
use super::decide::{Ended, decide};
use super::handler::{Handler, HandlerResult, Unpanicked};
use super::middleware::Next;
use super::patience;
use super::shared::{Shared, Slot};
use crate::job::{Category, Failure, State};
use crate::observe;

/// How long a job rests whose payload is encrypted under a key that this worker does not have.
const UNOPENED_WAIT: Duration = Duration::from_secs(60);
/// How long a handler whose time is up may take to notice (rule T1).
pub(super) const TIMEOUT_GRACE: Duration = Duration::from_secs(5);

/// What is left of a run whose handler may have completed its job in a transaction of its own.
pub(super) enum AfterTx {
    /// It did not: somebody has to decide.
    Undecided(Ended),
    /// It did.
    Completed,
    /// The job is no longer this run's, or nobody knows: then its lease expires.
    Gone,
}

/// Runs claimed jobs in a slot, one after the other while any wait for one. The decision about a job is the committer's
/// before the next one starts, so that a slow store holds the handlers back.
pub(super) async fn run(mut slot: Slot, committer: mpsc::Sender<Decided>) {
    loop {
        let ended = execute(&slot.shared, slot.attempt(), slot.handler()).await;
        if let AfterTx::Undecided(ended) = after_tx(&slot.shared, slot.attempt(), ended).await
            && let Some(settlement) = decide(&slot.shared, slot.attempt(), ended)
        {
            let attempt = Arc::clone(slot.attempt());
            slot.handed_over = committer.send(Decided { settlement, attempt }).await.is_ok();
        }
        if !slot.take_next() {
            return;
        }
    }
}

/// Runs the handler to whatever end it comes to.
pub(super) async fn execute(shared: &Shared, attempt: &Arc<Attempt>, handler: &Handler) -> Ended {
    if shared.is_stopping() {
        return Ended::Released;
    }
    if attempt.current_order() >= Order::Lost {
        return Ended::Silent;
    }
    // It never starts under a lease that is in doubt, and that is not counted if the lease still held. Nor does it start when
    // a cancel was asked for: the store makes one of it.
    let in_doubt = attempt.holds_for(Instant::now(), Duration::ZERO).is_none();
    if in_doubt || attempt.current_order() >= Order::Cancel {
        return Ended::Released;
    }
    let job = attempt.job();
    if job.spec.payload.is_sealed() {
        // Its handler would fail it for good; a worker with the key can still run it.
        tracing::error!(job = %job.id, "a job is encrypted, and this worker has no key for it: it is given back");
        return Ended::Finished(Err(Failure::snooze(UNOPENED_WAIT)));
    }
    let span = tracing::info_span!(
        target: "windlass",
        "windlass.job",
        job.id = %job.id,
        job.r#type = %job.spec.job_type,
        attempt = job.attempt,
        queue = %job.spec.queue,
    );
    observe::trace::continue_in(&span, job.spec.options.trace_context.as_ref());
    attempt.begin();
    let ended = watch(shared, attempt, handler).instrument(span).await;
    let time = attempt.begun().elapsed();
    attempt.handled.metrics[attempt.queue].ran(time);
    shared.waiting().ran(attempt.queue, time);
    ended
}

/// Runs the handler and watches its orders and its time limit.
async fn watch(shared: &Shared, attempt: &Arc<Attempt>, handler: &Handler) -> Ended {
    let call = &*handler.call;
    let run = match &*shared.middleware {
        [] => call(Arc::clone(attempt)),
        layers => Next::new(layers, attempt, call).start(),
    };
    let mut handler = Unpanicked(run);
    // The handler is looked at first: most are ready at once, and then nothing else is even set up.
    let order = tokio::select! {
        biased;
        result = &mut handler => return finished(attempt, result),
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

/// A handler that heard of the interruption and stopped with an error has not failed (rule S10). What it decides on purpose
/// stands: success, a snooze, a failure that is not tried again.
fn finished(attempt: &Attempt, result: HandlerResult) -> Ended {
    let obeyed = |failure: &Failure| failure.category == Category::Temporary && !failure.snooze && !failure.dead_letter;
    match result {
        Err(failure) if attempt.current_order() == Order::Interrupt && obeyed(&failure) => Ended::Interrupted,
        result => Ended::Finished(result),
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
    let found = patience::within(patience::READ, "find a job", shared.store().find(&[attempt.id()])).await;
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
            conclude::completed_in_tx(shared, attempt);
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
