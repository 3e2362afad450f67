//! The upkeep that every worker does, without a leader that could be lost (rule L7): several at once do no harm.
//!
//! Expired leases, ended lifetimes, due schedules and old jobs, about once a second; and, less often, the worker's word
//! that it lives.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::patience;
use super::shared::Shared;
use crate::error::Result;
use crate::job::State;
use crate::observe;
use crate::store::{QueueRecord, Retention, Store, Upkeep, WorkerReport};

/// A worker counts as alive for 30 s after its last word: two words may be lost.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(10);
/// How often a process without handlers does upkeep (rule L7).
const EVERY: Duration = Duration::from_secs(1);
/// Rows of one kind in one step: a short transaction.
const STEP: usize = 1000;
/// Steps without a pause, after which others get a turn.
const STEPS_MAX: usize = 20;
/// That pause, while there is more to do: jobs can end faster than the steps of one such pause would remove.
const BEHIND: Duration = Duration::from_millis(50);

/// Does upkeep until the worker stops.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut announce_at = tokio::time::Instant::now();
    loop {
        let upkeep = if shared.settings.upkeep { step(&shared).await } else { Ok(false) };
        let more = or_later(upkeep);
        if tokio::time::Instant::now() >= announce_at {
            announce_at = tokio::time::Instant::now() + ANNOUNCE_EVERY;
            if let Err(error) = announce(&shared).await {
                observe::store_error("announce");
                tracing::warn!(%error, "cannot announce this worker; trying again");
            }
        }
        let pause = if more { BEHIND } else { shared.jittered(shared.settings.upkeep_interval) };
        tokio::select! {
            () = shared.env.stopping.cancelled() => return,
            () = shared.announce_now.notified() => announce_at = tokio::time::Instant::now(),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Does the upkeep of a store until `signal` resolves, for a process that runs no handlers.
///
/// Every worker does it too; several at once do no harm, but each prunes by its own retention.
pub async fn upkeep_until(store: &dyn Store, retention: Retention, signal: impl Future) {
    let mut signal = std::pin::pin!(signal);
    loop {
        let more = or_later(steps(store, retention).await);
        // Up to a quarter less, so that processes that began together do not stay in step.
        let pause = if more { BEHIND } else { EVERY.mul_f64(1.0 - fastrand::f64() / 4.0) };
        if tokio::time::timeout(pause, &mut signal).await.is_ok() {
            return;
        }
    }
}

/// Whether more is to be done; what failed is tried again later.
fn or_later(upkeep: Result<bool>) -> bool {
    upkeep.unwrap_or_else(|error| {
        observe::store_error("upkeep");
        tracing::warn!(%error, "upkeep failed; trying again");
        false
    })
}

/// Does what upkeep there is, up to a bound; whether there is more.
pub(super) async fn step(shared: &Shared) -> Result<bool> {
    steps(&**shared.store(), shared.settings.retention).await
}

async fn steps(store: &dyn Store, retention: Retention) -> Result<bool> {
    let request = Upkeep { limit: STEP, retention };
    for _ in 0..STEPS_MAX {
        let report = patience::within(patience::UPKEEP, "do upkeep", store.upkeep(&request)).await?;
        observe::upkeep("lifetimes", report.lifetimes);
        observe::upkeep("expired", report.expired);
        observe::upkeep("fired", report.fired);
        observe::upkeep("pruned", report.pruned);
        if !report.more {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Says that this worker lives, and measures what it leaves lying.
pub(super) async fn announce(shared: &Shared) -> Result<()> {
    let announced =
        patience::within(patience::READ, "announce a worker", shared.store().announce(&shared.report())).await?;
    shared.heed(announced);
    let queues = patience::within(patience::READ, "read the queues", shared.store().queues()).await?;
    for (number, served) in shared.queues.iter().enumerate() {
        let unserved = queues.iter().find(|queue| queue.name == served.name).map(|queue| unserved(served, queue));
        observe::slots(&served.name, served.slots, served.busy(), unserved);
        observe::prefetched(&served.name, shared.waiting().of(number));
        let controlled = shared.store().controlled(&served.name);
        if let Ok(controlled) = patience::within(patience::READ, "read the control of a queue", controlled).await {
            served.controlled.store(controlled.is_some(), std::sync::atomic::Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Takes leave: a worker that serves no queue is not there. Otherwise it would be counted on for 30 s more.
pub(super) async fn leave(shared: &Shared) {
    let report = WorkerReport { queues: Vec::new(), ..shared.report() };
    if let Err(error) = shared.store().announce(&report).await {
        tracing::debug!(%error, "cannot tell that this worker has left");
    }
}

/// SCHEDULED jobs of a queue of which the last claim left nothing for us: their types have no handler here (rule N1b).
fn unserved(served: &super::shared::Served, queue: &QueueRecord) -> u64 {
    let left = served.exhausted.load(std::sync::atomic::Ordering::Relaxed) && !queue.paused;
    if left { queue.count(State::Scheduled) } else { 0 }
}
