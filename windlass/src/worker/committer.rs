//! Writes decisions down, many in one call (rule N1).
//!
//! A batch goes out as soon as the one before it is done, with everything that was decided meanwhile: one decision on an
//! idle worker waits for nobody, and a busy worker makes large batches by itself. Where the store gains by several calls
//! at once, a full batch does not wait for the one before it. The leases of what waits here are kept
//! alive by the heartbeat, and store errors are answered by trying again (rule D6): whether a lease held while the store was
//! away is for the store to say. A call that hangs is made again when the last of its leases has run out by this machine's
//! clock, and otherwise after half a minute.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::attempt::Attempt;
use super::conclude::{Conclusion, conclude, fail_refused};
use super::patience;
use super::shared::Shared;
use crate::error::Result as StoreResult;
use crate::job::Settlement;
use crate::observe;
use crate::store::Settled;

/// Most settlements in one call; beyond this a batch no longer gets cheaper, and its answer comes late.
pub(super) const BATCH_MAX: usize = 1000;
/// Settlements that are worth a call beside one that is under way.
const WORTH: usize = 100;
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
    /// The batch of these decisions.
    fn of(shared: &Arc<Shared>, arrived: &mut Vec<Decided>) -> Self {
        let decided = arrived.drain(..).map(|decided| (decided.settlement, decided.attempt));
        let (settlements, attempts) = decided.unzip();
        Batch { shared: Arc::clone(shared), settlements, attempts }
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
    let at_once = shared.store().calls_at_once().max(1);
    let mut arrived = Vec::with_capacity(BATCH_MAX);
    let mut underway = JoinSet::new();
    loop {
        let least = if underway.is_empty() { 1 } else { WORTH };
        if arrived.len() >= least && underway.len() < at_once {
            // Handlers that are about to end come along.
            tokio::task::yield_now().await;
            while arrived.len() < BATCH_MAX
                && let Ok(decided) = inbox.try_recv()
            {
                arrived.push(decided);
            }
            let batch = Batch::of(&shared, &mut arrived);
            let shared = Arc::clone(&shared);
            underway.spawn(async move { commit(&shared, batch).await });
            continue;
        }
        tokio::select! {
            biased;
            Some(done) = underway.join_next() => note_panic(done),
            // While nothing can be sent, decisions wait in the inbox, and beyond its size the runners with their slots.
            more = inbox.recv_many(&mut arrived, BATCH_MAX), if underway.len() < at_once => if more == 0 { break },
        }
    }
    // The last decisions, beside the calls that are still under way.
    if !arrived.is_empty() {
        commit(&shared, Batch::of(&shared, &mut arrived)).await;
    }
    while let Some(done) = underway.join_next().await {
        note_panic(done);
    }
}

/// A batch whose call panicked has let go of its leases; the other batches go on.
fn note_panic(done: Result<(), tokio::task::JoinError>) {
    if done.is_err() {
        observe::loop_restarted("commit", "panicked");
        tracing::error!("a settlement of the worker panicked; its jobs run again when their leases are over");
    }
}

/// Settles a batch, however long the store takes to come back.
async fn commit(shared: &Shared, mut batch: Batch) {
    let begun = Instant::now();
    let mut pause = PAUSE.0;
    loop {
        match settle_in_time(shared, &batch).await {
            Ok(answers) => return answer_all(shared, &batch, answers).await,
            Err(error) => {
                observe::store_error("settle");
                tracing::warn!(%error, jobs = batch.settlements.len(), "cannot settle; trying again");
                if !error.is_transient() {
                    return settle_apart(shared, &batch).await;
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
async fn settle_in_time(shared: &Shared, batch: &Batch) -> StoreResult<Vec<Settled>> {
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
async fn settle_apart(shared: &Shared, batch: &Batch) {
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
    // Only now: a task that waits for the last lease to go finds everything counted and logged.
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
