//! Keeps leases alive, from an operating-system thread that no handler can starve (rules L5, L6, L9).
//!
//! One store call for all leases of the worker. A call that fails or hangs means *unknown*, not *lost*: a handler is
//! stopped when the store says that its lease is lost, or when by this machine's monotonic clock, measured from the
//! moment a request was sent, its lease was not confirmed in time. In the second case the store may only have been away,
//! so its job is given back as interrupted, which is not counted; the store decides whether the lease still held. The thread is also the one that notices handlers
//! which block their own thread far beyond their execution timeout.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::attempt::{Attempt, Order};
use super::decide;
use super::patience;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::job::EXECUTION_NOTICE;
use crate::observe;
use crate::store::{CALL_MAX, Extended, Store};

/// How long a handler may hold its thread past its time before its attempt is closed. A second later the store would close
/// it (rule T1b), without the backoff of the user's own; until then the job waits (rule T1).
const STUCK_AFTER: Duration = Duration::from_secs(9);
/// Beats on request are not closer together, however many ask.
const BEAT_GAP: Duration = Duration::from_millis(20);

/// Starts the thread; the answer comes when it has ended, which it does once the worker is finished.
pub(super) fn start(shared: &Arc<Shared>) -> Result<oneshot::Receiver<()>> {
    let (ended, when_ended) = oneshot::channel();
    let failed = |error| Error::store("start the heartbeat thread", error);
    // Made here, so that a failure is the caller's to see.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("windlass-heartbeat".to_owned());
    let run = move || {
        runtime.block_on(beat_until_finished(&shared));
        // A call that hangs must not keep the thread.
        runtime.shutdown_background();
        let _ = ended.send(());
    };
    thread.spawn(run).map_err(failed)?;
    Ok(when_ended)
}

async fn beat_until_finished(shared: &Shared) {
    let store = tokio::select! {
        biased;
        () = shared.finished.cancelled() => return,
        store = own_store(shared) => store,
    };
    let every = shared.settings.heartbeat_interval();
    let mut next = Instant::now() + every;
    loop {
        let wake = [soonest_fence(shared), soonest_stuck(shared)].into_iter().flatten().fold(next, Instant::min);
        tokio::select! {
            biased;
            () = shared.finished.cancelled() => return,
            () = shared.beat_now.notified() => {
                tokio::time::sleep(BEAT_GAP).await;
                next = Instant::now();
            }
            () = tokio::time::sleep_until(wake.into()) => {}
        }
        // A thread that slept past a lease must not ask first: until the answer comes, the handler would go on.
        fence(shared);
        if Instant::now() >= next {
            let answered = tokio::select! {
                biased;
                () = shared.finished.cancelled() => return,
                answered = beat(shared, &*store) => answered,
            };
            // After a failed beat there is time for two or three more before the lease is in doubt.
            next = Instant::now() + if answered { every } else { every / 4 };
        }
        fence(shared);
        tokio::select! {
            biased;
            () = shared.finished.cancelled() => return,
            () = give_away_stuck(shared, &*store) => {}
        }
    }
}

/// The store's own handle for heartbeats, where it has one.
async fn own_store(shared: &Shared) -> Arc<dyn Store> {
    match patience::within(patience::READ, "open a handle for heartbeats", shared.store().heartbeats()).await {
        Ok(own) => own.unwrap_or_else(|| Arc::clone(shared.store())),
        Err(error) => {
            tracing::warn!(%error, "no handle of their own for heartbeats; they share the worker's");
            Arc::clone(shared.store())
        }
    }
}

/// When the first handler will have held its thread for too long past its time.
fn soonest_stuck(shared: &Shared) -> Option<Instant> {
    let undecided = shared.held.all().into_iter().filter(|attempt| !attempt.is_decided());
    undecided.filter_map(|attempt| attempt.overdue_by(STUCK_AFTER)).min()
}

/// When the first lease ends in doubt, if none is confirmed before.
fn soonest_fence(shared: &Shared) -> Option<Instant> {
    let (now, margin) = (Instant::now(), shared.settings.fence_margin());
    let held = shared.held.all();
    // What is decided waits for the committer, which looks at the lease itself.
    let undecided = held.iter().filter(|attempt| runs_on(attempt));
    let hold = shared.settings.hold;
    let left = undecided.map(|attempt| attempt.may_run_for(now, margin, hold).unwrap_or_default()).min();
    left.map(|left| now + left)
}

/// One heartbeat for every lease held; says whether the store answered.
async fn beat(shared: &Shared, store: &dyn Store) -> bool {
    let mut held = shared.held.all();
    // A transaction of the handler's own holds such a job: a heartbeat would wait for its end, and all others with it.
    held.retain(|attempt| !attempt.is_in_tx());
    let mut answered = true;
    for some in held.chunks(CALL_MAX) {
        answered &= beat_some(shared, store, some).await;
    }
    answered
}

async fn beat_some(shared: &Shared, store: &dyn Store, attempts: &[Arc<Attempt>]) -> bool {
    let keys: Vec<_> = attempts.iter().map(|attempt| attempt.lease_key()).collect();
    let lease_time = shared.settings.lease_time;
    let sent = Instant::now();
    // A call that hangs is given up in time to fence, and to try once more before that.
    let left = soonest_fence(shared).map(|fence| (fence - sent).max(lease_time / 12));
    let patience = left.map_or(lease_time / 3, |left| left.min(lease_time / 3));
    let answer = tokio::time::timeout(patience, store.extend(&keys, Some(lease_time))).await;
    let answers = match answer {
        Ok(Ok(answers)) => answers,
        Ok(Err(error)) => {
            observe::heartbeat(false);
            tracing::warn!(%error, leases = keys.len(), "heartbeat failed");
            return false;
        }
        Err(_) => {
            observe::heartbeat(false);
            tracing::warn!(?patience, leases = keys.len(), "heartbeat was not answered");
            return false;
        }
    };
    observe::heartbeat(true);
    for (attempt, answer) in attempts.iter().zip(answers) {
        match answer {
            Extended::Held { expires_in, cancel } => {
                attempt.confirm(sent, expires_in);
                if let Some(asked) = cancel {
                    attempt.ask_cancel(asked);
                }
            }
            // A decided attempt may just have been settled; the committer knows.
            Extended::Lost(_) if attempt.is_decided() => {}
            Extended::Lost(stale) => lose(shared, attempt, stale.as_str()),
        }
    }
    true
}

/// Stops every handler whose lease was not confirmed in time (rule L9). Its lease is kept alive until the store has answered
/// what the runner says of it.
fn fence(shared: &Shared) {
    let (now, margin, hold) = (Instant::now(), shared.settings.fence_margin(), shared.settings.hold);
    for attempt in shared.held.all() {
        if runs_on(&attempt) && attempt.may_run_for(now, margin, hold).is_none() && attempt.order(Order::Interrupt) {
            observe::lease_lost("unconfirmed");
            tracing::warn!(?attempt, "the lease could not be confirmed in time; the handler is stopped");
        }
    }
}

/// Whether nobody has decided about an attempt or stopped it.
fn runs_on(attempt: &Attempt) -> bool {
    !attempt.is_decided() && attempt.current_order() < Order::Interrupt
}

fn lose(shared: &Shared, attempt: &Arc<Attempt>, reason: &'static str) {
    shared.held.remove(&attempt.lease_key());
    if attempt.order(Order::Lost) {
        observe::lease_lost(reason);
        tracing::warn!(?attempt, reason, "the lease is lost; the handler is stopped");
    }
}

/// Closes attempts whose handlers hold their thread long past their time; the slot stays taken.
async fn give_away_stuck(shared: &Shared, store: &dyn Store) {
    for attempt in shared.held.all() {
        let Some(overdue) = attempt.overdue().filter(|overdue| *overdue >= STUCK_AFTER) else { continue };
        let Some(lease) = attempt.take_lease() else { continue };
        attempt.order(Order::Cancel);
        observe::handler_stuck(&attempt.job().spec.job_type);
        tracing::error!(?attempt, "the handler blocks its thread past its execution timeout; it keeps its slot");
        let settlement = decide::fail_stuck(shared, &attempt, lease, EXECUTION_NOTICE.saturating_sub(overdue));
        let settled = tokio::time::timeout(shared.settings.lease_time / 3, store.settle(&[settlement])).await;
        if !matches!(settled, Ok(Ok(_))) {
            tracing::warn!(?attempt, "the attempt could not be closed; its lease will expire");
        }
        shared.held.remove(&attempt.lease_key());
    }
}
