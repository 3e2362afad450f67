//! Claims jobs into free slots, never more than there are (rule N1).
//!
//! A queue is *hungry* while it may have jobs: at first, after a hint, when the poll interval is over, and as long as
//! claims fill the room they ask for. Only hungry queues with room are asked, so an idle worker asks once an interval
//! and a busy one without pause. Hints only shorten the wait (rule N2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::attempt::Attempt;
use super::committer::Decided;
use super::handler::Handler;
use super::patience;
use super::rotation::{Rotation, Wish};
use super::runner;
use super::shared::{Shared, Slot};
use crate::observe;
use crate::store::{CALL_MAX, ClaimRequest, Claimed, Claims, Wake};

/// How long a full worker waits for a quarter of its slots before it claims into fewer.
const LINGER: Duration = Duration::from_millis(1);
/// Added to the moment at which a gate opens, so that not all workers ask in the same one.
const RETRY_JITTER: Duration = Duration::from_millis(2);
/// First and longest pause after a store error.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// When the fetch loop last went round, for whoever supervises it: milliseconds since it was made.
pub(super) struct Pulse {
    made: tokio::time::Instant,
    last: AtomicU64,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Pulse { made: tokio::time::Instant::now(), last: AtomicU64::new(0) }
    }

    fn beat(&self) {
        let since = u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::SeqCst);
    }

    /// How long ago the loop last went round.
    pub(super) fn silence(&self) -> Duration {
        self.made.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::SeqCst)))
    }
}

struct Fetcher {
    shared: Arc<Shared>,
    committer: mpsc::Sender<Decided>,
    rotation: Rotation,
    hungry: Vec<bool>,
    /// When a queue is to be asked again because time will have opened one of its gates (rule K15).
    retry_at: Vec<Option<tokio::time::Instant>>,
    poll_at: tokio::time::Instant,
}

/// Claims until the worker stops.
pub(super) async fn run(shared: Arc<Shared>, committer: mpsc::Sender<Decided>, pulse: Arc<Pulse>) {
    let hungry = vec![true; shared.queues.len()];
    let poll_at = tokio::time::Instant::now() + shared.settings.poll_interval;
    let retry_at = vec![None; shared.queues.len()];
    let mut fetcher = Fetcher { shared, committer, rotation: Rotation::default(), hungry, retry_at, poll_at };
    let mut pause = PAUSE.0;
    while !fetcher.shared.is_stopping() {
        pulse.beat();
        let request = fetcher.request();
        if request.queues.is_empty() {
            fetcher.rest().await;
            continue;
        }
        let sent = Instant::now();
        let limit = patience::claim(fetcher.shared.settings.lease_time);
        match patience::within(limit, "claim", fetcher.shared.store().claim(&request)).await {
            Ok(claimed) => {
                pause = PAUSE.0;
                fetcher.look_at(&request, &claimed);
                fetcher.start(claimed.jobs, sent);
                fetcher.linger().await;
            }
            Err(error) => {
                observe::store_error("claim");
                tracing::warn!(%error, "cannot claim; trying again");
                fetcher.sleep(fetcher.shared.jittered(pause)).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
}

impl Fetcher {
    /// What to ask for now: hungry queues with room, within the free slots.
    fn request(&mut self) -> ClaimRequest {
        let shared = &self.shared;
        if tokio::time::Instant::now() >= self.poll_at {
            self.hungry.fill(true);
            self.poll_at = tokio::time::Instant::now() + shared.jittered(shared.settings.poll_interval);
        }
        let mut wishes = Vec::with_capacity(shared.queues.len());
        for (queue, served) in shared.queues.iter().enumerate() {
            self.hungry[queue] |= served.hinted.swap(false, Ordering::SeqCst);
            if self.retry_at[queue].is_some_and(|at| at <= tokio::time::Instant::now()) {
                self.retry_at[queue] = None;
                self.hungry[queue] = true;
            }
            let room = served.room();
            if self.hungry[queue] && room > 0 {
                wishes.push(Wish { queue, room, weight: served.weight });
            }
        }
        let limit = shared.free().min(CALL_MAX);
        let shares = self.rotation.share(&wishes, limit, shared.settings.strict);
        let queues = shares.into_iter().map(|(queue, share)| (shared.queues[queue].name.clone(), share)).collect();
        ClaimRequest {
            queues,
            types: shared.types.clone(),
            limit,
            lease_time: Some(shared.settings.lease_time),
            worker: shared.id.clone(),
        }
    }

    /// A queue that filled its share may have more; one that did not has nothing left for us.
    ///
    /// Where time will open a gate, the queues that gave too little are asked again then.
    fn look_at(&mut self, request: &ClaimRequest, claimed: &Claims) {
        let again_at = claimed
            .again_in
            .map(|again_in| tokio::time::Instant::now() + again_in + self.shared.jittered(RETRY_JITTER));
        for (name, share) in &request.queues {
            let Some(queue) = self.shared.queue_of(name) else { continue };
            let got = claimed.iter().filter(|claimed| claimed.job.spec.queue == *name).count();
            self.hungry[queue] = got >= *share;
            self.retry_at[queue] = again_at.filter(|_| got < *share);
            self.shared.queues[queue].exhausted.store(got < *share, Ordering::Relaxed);
        }
    }

    fn start(&self, claimed: Vec<Claimed>, sent: Instant) {
        if claimed.is_empty() {
            return;
        }
        observe::claim_batch(claimed.len());
        let attempts: Vec<_> =
            claimed.into_iter().filter_map(|claimed| attempt_of(&self.shared, claimed, sent)).collect();
        self.shared.held.add(attempts.iter().map(|(attempt, _)| attempt));
        for (attempt, handler) in attempts {
            self.shared.hooks.tell_claimed(attempt.job());
            let slot = Slot::take(&self.shared, attempt, handler);
            tokio::spawn(runner::run(slot, self.committer.clone()));
        }
    }

    /// A full worker lets a few slots come free first, so that fast jobs are not claimed one by one.
    async fn linger(&self) {
        let shared = &self.shared;
        let enough = shared.capacity.div_ceil(4);
        if shared.free() >= enough || !self.hungry.contains(&true) {
            return;
        }
        shared.tell_when_free(enough);
        if shared.free() >= enough {
            return;
        }
        tokio::select! {
            biased;
            () = shared.env.stopping.cancelled() => {}
            () = shared.freed.notified() => {}
            () = tokio::time::sleep(LINGER) => {}
        }
    }

    /// Waits for a hint, a free slot or the next poll.
    async fn rest(&self) {
        let shared = &self.shared;
        // Free slots are news only while a queue may have jobs for them.
        let hungry = self.hungry.contains(&true);
        shared.tell_when_free(if hungry { 1 } else { usize::MAX });
        let has_room = |queue: usize| self.hungry[queue] && shared.queues[queue].room() > 0;
        if shared.free() > 0 && (0..self.hungry.len()).any(has_room) {
            // It came free while nobody was told.
            return;
        }
        let next_look = self.retry_at.iter().flatten().copied().fold(self.poll_at, std::cmp::Ord::min);
        tokio::select! {
            biased;
            () = shared.env.stopping.cancelled() => {}
            () = shared.woken.notified() => {}
            () = shared.freed.notified() => {}
            () = tokio::time::sleep_until(next_look) => {}
        }
    }

    async fn sleep(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.shared.env.stopping.cancelled()).await;
    }
}

/// The attempt of a claimed job, and its handler. A store that gives what was not asked for loses it to the lease's expiry.
pub(super) fn attempt_of(
    shared: &Arc<Shared>,
    claimed: Claimed,
    sent: Instant,
) -> Option<(Arc<Attempt>, Arc<Handler>)> {
    let spec = &claimed.job.spec;
    let (handler, queue) = (shared.handler_of(&spec.job_type), shared.queue_of(&spec.queue));
    let Some((handler, queue)) = handler.zip(queue) else {
        tracing::error!(job.id = %claimed.job.id, "the store gave a job that was not asked for");
        return None;
    };
    let waited = claimed.job.started_at.zip(claimed.job.scheduled_at);
    let waited = waited.map_or(Duration::ZERO, |(started, scheduled)| started.since(scheduled));
    handler.handled.metrics[queue].claimed(waited);
    let (env, handled) = (Arc::clone(&shared.env), Arc::clone(&handler.handled));
    Some((Arc::new(Attempt::new(claimed, sent, env, handled, queue)), handler))
}

/// Passes the store's hints on to whom they concern, until the worker is finished.
pub(super) async fn listen(shared: Arc<Shared>) {
    let mut wakes = shared.store().wakes();
    loop {
        let wake = tokio::select! {
            biased;
            () = shared.finished.cancelled() => return,
            wake = wakes.recv() => wake,
        };
        match wake {
            Ok(Wake::Scheduled(queue)) => {
                if let Some(queue) = shared.queue_of(&queue) {
                    shared.queues[queue].hinted.store(true, Ordering::SeqCst);
                    shared.woken.notify_one();
                }
            }
            Ok(Wake::CancelAsked(_)) => shared.beat_now.notify_one(),
            Ok(Wake::Ended(_)) => {}
            // A cancel that was missed comes with the next heartbeat. Beating now would cost a busy worker dearly: on a
            // store in memory every large batch of settlements overruns the listener.
            Err(RecvError::Lagged(_)) => {
                shared.queues.iter().for_each(|queue| queue.hinted.store(true, Ordering::SeqCst));
                shared.woken.notify_one();
            }
            Err(RecvError::Closed) => return,
        }
    }
}
