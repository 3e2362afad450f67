//! A worker without tasks and threads, for tests: everything that can run now is run, one job after the other.
//!
//! The same handlers, middleware, hooks and decisions as in a running worker; no heartbeats, since the clock of a test
//! stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use super::conclude::{Conclusion, conclude, decided_state, fail_refused};
use super::decide::decide;
use super::fetcher::attempt_of;
use super::rotation::{Rotation, Wish};
use super::runner::{self, AfterTx};
use super::shared::Shared;
use super::upkeep;
use crate::error::{Error, Result};
use crate::job::{Outcome, State};
use crate::store::{ClaimRequest, Claimed, Settled};

/// Jobs that one drain runs at most: a job that enqueues itself for ever is a test's mistake, to be told of.
pub const DRAIN_MAX: usize = 100_000;

/// What a drain did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Drained {
    /// Jobs that are now COMPLETED.
    pub completed: usize,
    /// Attempts that failed and will be retried.
    pub retried: usize,
    /// Jobs that are now FAILED.
    pub failed: usize,
    /// Jobs that are now DEAD_LETTER.
    pub dead_lettered: usize,
    /// Jobs that are now CANCELLED.
    pub cancelled: usize,
    /// Attempts that were snoozed.
    pub snoozed: usize,
    /// Attempts whose settlement was refused because the lease did not hold.
    pub stale: usize,
    /// Whether the drain ended at the point set by [`Worker::crash_at`](super::Worker::crash_at).
    pub crashed: bool,
}

impl Drained {
    /// How many attempts ran.
    pub fn attempts(&self) -> usize {
        self.completed + self.retried + self.failed + self.dead_lettered + self.cancelled + self.snoozed + self.stale
    }
}

/// Where a drain can be made to stop as if the process had died there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum CrashPoint {
    /// A job was claimed; its handler has not started.
    Claimed = 1,
    /// The handler has ended; nothing was settled.
    Handled = 2,
    /// The settlement is stored; the worker has not heard of it.
    Settled = 3,
}

/// The crash that was asked for; happens once.
#[derive(Debug, Default)]
pub(super) struct Crash(AtomicU8);

impl Crash {
    /// Makes the next drain stop at this point.
    pub(super) fn ask(&self, point: CrashPoint) {
        self.0.store(point as u8, Ordering::SeqCst);
    }

    fn happens(&self, point: CrashPoint) -> bool {
        self.0.compare_exchange(point as u8, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// Runs everything that can run now, and what becomes runnable by that.
pub(super) async fn drain(shared: &Arc<Shared>, crash: &Crash) -> Result<Drained> {
    let mut rotation = Rotation::default();
    let mut drained = Drained::default();
    while drained.attempts() < DRAIN_MAX {
        upkeep::step(shared).await?;
        let sent = Instant::now();
        let Some(claimed) = claim_one(shared, &mut rotation).await? else { return Ok(drained) };
        if run_one(shared, crash, claimed, sent, &mut drained).await? {
            drained.crashed = true;
            return Ok(drained);
        }
    }
    Err(Error::Conflict(format!("the drain ran {DRAIN_MAX} jobs and there are more: some job enqueues itself")))
}

/// Runs and settles one job; says whether the crash happened.
async fn run_one(
    shared: &Arc<Shared>,
    crash: &Crash,
    claimed: Claimed,
    sent: Instant,
    drained: &mut Drained,
) -> Result<bool> {
    let Some((attempt, handler)) = attempt_of(shared, claimed, sent) else { return Ok(false) };
    shared.hooks.tell_claimed(attempt.job());
    if crash.happens(CrashPoint::Claimed) {
        return Ok(true);
    }
    let ended = runner::execute(shared, &attempt, &handler).await;
    if crash.happens(CrashPoint::Handled) {
        return Ok(true);
    }
    let ended = match runner::after_tx(shared, &attempt, ended).await {
        AfterTx::Undecided(ended) => ended,
        AfterTx::Completed => {
            drained.completed += 1;
            return Ok(false);
        }
        AfterTx::Gone => {
            drained.stale += 1;
            return Ok(false);
        }
    };
    let Some(mut settlement) = decide(shared, &attempt, ended) else { return Ok(false) };
    let answered = shared.store().settle(std::slice::from_ref(&settlement)).await?.pop();
    let mut answer = answered.ok_or_else(|| Error::store("settle", "the store gave no answer"))?;
    if let Settled::Refused(error) = answer {
        (settlement, answer) = fail_refused(shared, &attempt, error).await?;
    }
    if crash.happens(CrashPoint::Settled) {
        return Ok(true);
    }
    match conclude(shared, &attempt, &settlement, answer) {
        Conclusion::Done(outcome, state) => drained.count(outcome, state.unwrap_or_else(|| decided_state(&settlement))),
        Conclusion::Stale | Conclusion::Refused(_) => drained.stale += 1,
    }
    Ok(false)
}

impl Drained {
    fn count(&mut self, outcome: Outcome, state: State) {
        let counter = match state {
            State::Completed => &mut self.completed,
            State::Retrying => &mut self.retried,
            State::Failed => &mut self.failed,
            State::DeadLetter => &mut self.dead_lettered,
            State::Cancelled => &mut self.cancelled,
            State::Delayed | State::Scheduled if outcome == Outcome::Snoozed => &mut self.snoozed,
            // A retry without a delay is SCHEDULED at once.
            State::Delayed | State::Scheduled | State::Pending | State::Running => &mut self.retried,
        };
        *counter += 1;
    }
}

async fn claim_one(shared: &Shared, rotation: &mut Rotation) -> Result<Option<Claimed>> {
    let wishes: Vec<Wish> = shared
        .queues
        .iter()
        .enumerate()
        .map(|(queue, served)| Wish { queue, room: 1, weight: served.weight })
        .collect();
    // The queue whose turn it is comes first; the others stand by in case it is empty.
    let turn = rotation.share(&wishes, 1, shared.settings.strict).first().map_or(0, |(queue, _)| *queue);
    let mut order: Vec<usize> = (0..shared.queues.len()).collect();
    if !shared.settings.strict {
        order.rotate_left(turn);
    }
    let request = ClaimRequest {
        queues: order.into_iter().map(|queue| (shared.queues[queue].name.clone(), 1)).collect(),
        types: shared.types.clone(),
        limit: 1,
        lease_time: Some(shared.settings.lease_time),
        worker: shared.id.clone(),
    };
    Ok(shared.store().claim(&request).await?.pop())
}
