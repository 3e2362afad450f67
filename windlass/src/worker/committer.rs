//! Writes decisions down, many in one call (rule N1).
//!
//! A batch goes out as soon as the one before it is done, with everything that was decided meanwhile: one decision on an
//! idle worker waits for nobody, and a busy worker makes large batches by itself. The leases of what waits here are kept
//! alive by the heartbeat, and while they hold, store errors are answered by trying again (rule D6).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::context::Attempt;
use super::runner;
use super::shared::Shared;
use crate::error::Error;
use crate::job::{Failure, Outcome, Settlement};
use crate::observe;
use crate::store::Settled;

/// Most settlements in one call; beyond this a batch no longer gets cheaper, and its answer comes late.
const BATCH_MAX: usize = 1000;
/// First and longest pause after a store error.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A decision on its way to the store.
pub(super) struct Decided {
    pub(super) settlement: Settlement,
    pub(super) attempt: Arc<Attempt>,
}

/// A batch of decisions, in two columns as the store wants them.
///
/// What is still in it when it is dropped will not be settled, and its leases are let go.
struct Batch {
    shared: Arc<Shared>,
    settlements: Vec<Settlement>,
    attempts: Vec<Arc<Attempt>>,
}

impl Batch {
    fn clear(&mut self) {
        self.settlements.clear();
        self.attempts.clear();
    }

    /// Gives up what no longer has a lease to be settled under.
    fn drop_lapsed(&mut self) {
        let now = Instant::now();
        for place in (0..self.attempts.len()).rev() {
            if self.attempts[place].holds_for(now, Duration::ZERO).is_none() {
                let attempt = self.attempts.remove(place);
                self.settlements.remove(place);
                give_up(&self.shared, &attempt, "its lease ran out before the store took it");
            }
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.shared.held.remove_all(&self.attempts);
    }
}

/// Where decisions wait; outlives a committer that panicked.
pub(super) type Inbox = Arc<tokio::sync::Mutex<mpsc::Receiver<Decided>>>;

/// Settles what the runners decide, until the last of them is gone.
pub(super) async fn run(shared: Arc<Shared>, inbox: Inbox) {
    let mut inbox = inbox.lock().await;
    let mut arrived = Vec::with_capacity(BATCH_MAX);
    let mut batch = Batch { shared: Arc::clone(&shared), settlements: Vec::new(), attempts: Vec::new() };
    while inbox.recv_many(&mut arrived, BATCH_MAX).await > 0 {
        // Handlers that are about to end come along.
        tokio::task::yield_now().await;
        while arrived.len() < BATCH_MAX
            && let Ok(decided) = inbox.try_recv()
        {
            arrived.push(decided);
        }
        for Decided { settlement, attempt } in arrived.drain(..) {
            batch.settlements.push(settlement);
            batch.attempts.push(attempt);
        }
        commit(&shared, &mut batch).await;
        batch.clear();
    }
}

/// Settles a batch, however long the store takes to come back, while the leases hold.
async fn commit(shared: &Shared, batch: &mut Batch) {
    let mut pause = PAUSE.0;
    loop {
        let answered = shared.store().settle(&batch.settlements).await;
        match answered {
            Ok(answers) => return answer_all(shared, batch, answers).await,
            Err(error) => {
                observe::store_error("settle");
                tracing::warn!(%error, jobs = batch.settlements.len(), "cannot settle; trying again");
                if !error.is_transient() {
                    return settle_apart(shared, batch).await;
                }
            }
        }
        tokio::time::sleep(shared.jittered(pause)).await;
        pause = (pause * 2).min(PAUSE.1);
        batch.drop_lapsed();
        if batch.attempts.is_empty() {
            return;
        }
    }
}

/// Settles one by one what the store refuses as a whole, so that one bad entry does not cost the others (rule N1).
async fn settle_apart(shared: &Shared, batch: &mut Batch) {
    for (settlement, attempt) in batch.settlements.iter().zip(&batch.attempts) {
        match shared.store().settle(std::slice::from_ref(settlement)).await {
            Ok(mut answers) => {
                if let Some(answer) = answers.pop() {
                    answer_one(shared, settlement.outcome(), attempt, answer).await;
                }
                shared.held.remove(&attempt.lease_key());
            }
            Err(error) => give_up(shared, attempt, &error.to_string()),
        }
    }
}

async fn answer_all(shared: &Shared, batch: &Batch, answers: Vec<Settled>) {
    debug_assert_eq!(answers.len(), batch.attempts.len(), "a store answers for each settlement");
    observe::settle_batch(answers.len());
    for ((settlement, attempt), answer) in batch.settlements.iter().zip(&batch.attempts).zip(answers) {
        answer_one(shared, settlement.outcome(), attempt, answer).await;
    }
    // Only now: whoever waits for the last lease to go finds everything counted and told.
    shared.held.remove_all(&batch.attempts);
}

async fn answer_one(shared: &Shared, outcome: Outcome, attempt: &Arc<Attempt>, answer: Settled) {
    match answer {
        Settled::Applied(state) => {
            count(shared, attempt, outcome);
            shared.hooks.tell_settled(attempt, outcome, state);
        }
        // The answer to an earlier call was lost; what state it led to is not known any more.
        Settled::AlreadyApplied => count(shared, attempt, outcome),
        Settled::Stale(stale) => {
            observe::settlement_stale(stale);
            tracing::warn!(?attempt, %stale, outcome = outcome.as_str(), "a settlement came too late");
        }
        Settled::Refused(error) => refail(shared, attempt, error).await,
    }
}

/// A completion that cannot be stored (a child names an unknown dependency) ends the job as a permanent failure.
async fn refail(shared: &Shared, attempt: &Arc<Attempt>, error: Error) {
    tracing::error!(?attempt, %error, "the store refused a completion; the job fails");
    let failure = Failure::permanent("completion_refused", error);
    let settlement = runner::fail(shared, attempt, attempt.lease_again(), failure);
    let answered = shared.store().settle(std::slice::from_ref(&settlement)).await;
    match answered.map(|mut answers| answers.pop()) {
        Ok(Some(Settled::Applied(state))) => {
            count(shared, attempt, settlement.outcome());
            shared.hooks.tell_settled(attempt, settlement.outcome(), state);
        }
        Ok(answer) => tracing::warn!(?attempt, ?answer, "a refused completion could not be failed"),
        Err(error) => give_up(shared, attempt, &error.to_string()),
    }
}

pub(super) fn count(shared: &Shared, attempt: &Attempt, outcome: Outcome) {
    let tally = &shared.tally;
    tally.settled.fetch_add(1, Ordering::Relaxed);
    match outcome {
        Outcome::Released => tally.released.fetch_add(1, Ordering::Relaxed),
        Outcome::Interrupted => tally.interrupted.fetch_add(1, Ordering::Relaxed),
        _ => 0,
    };
    attempt.handler.metrics[attempt.queue].ended(outcome);
}

/// An outcome that will not be recorded: the job runs again when its lease has expired.
fn give_up(shared: &Shared, attempt: &Arc<Attempt>, why: &str) {
    observe::settlement_dropped();
    shared.tally.dropped.fetch_add(1, Ordering::Relaxed);
    shared.held.remove(&attempt.lease_key());
    tracing::error!(?attempt, why, "an outcome is dropped; the job will run again");
}
