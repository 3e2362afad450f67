//! Writes decisions down, many in one call (rule N1).
//!
//! A batch goes out as soon as the one before it is done, with everything that was decided meanwhile: one decision on an
//! idle worker waits for nobody, and a busy worker makes large batches by itself. The leases of what waits here are kept
//! alive by the heartbeat, and store errors are answered by trying again (rule D6): whether a lease held while the store was
//! away is for the store to say. A call that hangs is made again when the last of its leases has run out by this machine's
//! clock, and otherwise after half a minute.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::attempt::Attempt;
use super::conclude::{Conclusion, conclude, fail_refused};
use super::patience;
use super::shared::Shared;
use crate::error::Result;
use crate::job::Settlement;
use crate::observe;
use crate::store::Settled;

/// Most settlements in one call; beyond this a batch no longer gets cheaper, and its answer comes late.
const BATCH_MAX: usize = 1000;
/// How long decisions are kept for a store that does not answer: longer than a failover and a restart take.
const KEPT_MAX: Duration = Duration::from_secs(600);
/// How long a call may take at least, however long its leases still hold.
const CALL_MIN: Duration = Duration::from_secs(2);
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

    /// Gives up everything.
    fn give_up(&mut self) {
        for attempt in self.attempts.drain(..) {
            give_up(&self.shared, &attempt, "the store did not take it in time");
        }
        self.settlements.clear();
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

/// Settles a batch, however long the store takes to come back.
async fn commit(shared: &Shared, batch: &mut Batch) {
    let begun = Instant::now();
    let mut pause = PAUSE.0;
    loop {
        match settle_in_time(shared, batch).await {
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
        if begun.elapsed() >= KEPT_MAX {
            return batch.give_up();
        }
    }
}

/// Sends a batch to the store, and stops waiting when no lease in it is known to hold, or the store takes too long.
async fn settle_in_time(shared: &Shared, batch: &Batch) -> Result<Vec<Settled>> {
    let call = patience::within(patience::SETTLE, "settle", shared.store().settle(&batch.settlements));
    tokio::select! {
        biased;
        answer = call => answer,
        () = async {
            tokio::time::sleep(CALL_MIN).await;
            all_lapsed(&batch.attempts).await;
        } => Err(patience::unanswered("settle", shared.settings.lease_time)),
    }
}

/// Waits until no lease of these attempts holds any more. Heartbeats may put that moment off.
async fn all_lapsed(attempts: &[Arc<Attempt>]) {
    loop {
        let now = Instant::now();
        let left = attempts.iter().filter_map(|attempt| attempt.holds_for(now, Duration::ZERO)).max();
        let Some(left) = left else { return };
        tokio::time::sleep(left).await;
    }
}

/// Settles one by one what the store refuses as a whole, so that one bad entry does not cost the others (rule N1).
async fn settle_apart(shared: &Shared, batch: &mut Batch) {
    for (settlement, attempt) in batch.settlements.iter().zip(&batch.attempts) {
        let call = shared.store().settle(std::slice::from_ref(settlement));
        match patience::within(patience::SETTLE, "settle", call).await {
            Ok(mut answers) => {
                if let Some(answer) = answers.pop() {
                    answer_one(shared, settlement, attempt, answer).await;
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
        answer_one(shared, settlement, attempt, answer).await;
    }
    // Only now: whoever waits for the last lease to go finds everything counted and told.
    shared.held.remove_all(&batch.attempts);
}

async fn answer_one(shared: &Shared, settlement: &Settlement, attempt: &Arc<Attempt>, answer: Settled) {
    let conclusion = match answer {
        Settled::Refused(error) => match fail_refused(shared, attempt, error).await {
            Ok((settlement, answer)) => conclude(shared, attempt, &settlement, answer),
            Err(error) => return give_up(shared, attempt, &error.to_string()),
        },
        answer => conclude(shared, attempt, settlement, answer),
    };
    if let Conclusion::Refused(error) = conclusion {
        give_up(shared, attempt, &error.to_string());
    }
}

/// An outcome that will not be recorded: the job runs again when its lease has expired.
fn give_up(shared: &Shared, attempt: &Arc<Attempt>, why: &str) {
    observe::settlement_dropped();
    shared.tally.dropped.fetch_add(1, Ordering::Relaxed);
    shared.held.remove(&attempt.lease_key());
    tracing::error!(?attempt, why, "an outcome is dropped; the job will run again");
}
