//! Claims jobs into free slots, and a few ahead of them while jobs are short (rule N1).
//!
//! A queue is *hungry* while it may have jobs: at first, after a hint, when the poll interval is over, and as long as
//! claims fill the room they ask for. Only hungry queues with room are asked, so an idle worker asks once an interval
//! and a busy one without pause. Hints only shorten the wait (rule N2).
//!
//! A queue is *backed up* once every claim from it has been filled for [`HORIZON`]: a worker with a free slot, here or
//! elsewhere, would have emptied it by then. Only such a queue is claimed from ahead of free slots, as far as its
//! [pace](super::pace) allows; where it is not, the jobs are left to workers that can start them now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::attempt::Attempt;
use super::committer::Decided;
use super::decide::{Ended, decide};
use super::handler::Handler;
use super::pace::HORIZON;
use super::patience;
use super::rotation::{Rotation, Wish};
use super::runner;
use super::shared::{Shared, Slot};
use super::waiting::Claim;
use crate::error::Result;
use crate::observe;
use crate::store::{CALL_MAX, ClaimRequest, Claimed, Claims, Wake};

/// How long a worker waits for room for a quarter of what it can take before it claims less: with jobs in reserve it
/// can wait longer.
const LINGER: Duration = Duration::from_millis(1);
const LINGER_AHEAD: Duration = Duration::from_millis(5);
/// Jobs that are worth a claim beside one that is under way.
const WORTH: usize = 100;
/// Hints in vain that change nothing; and how long the first one after them waits, which doubles up to eightfold.
const IN_VAIN_FREE: u32 = 3;
const RELUCTANCE: Duration = Duration::from_millis(1);
/// Added to the moment at which a gate opens, so that not all workers ask in the same one.
const RETRY_JITTER: Duration = Duration::from_millis(2);
/// First and longest pause after a store error.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// When the fetch loop last went round, for the task that supervises it: milliseconds since it was made.
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
    queues: Vec<Hunger>,
    underway: JoinSet<Answered>,
    /// How many claims were ever sent.
    sent: u64,
    /// How many claims may be under way at once.
    at_once: usize,
    poll_at: tokio::time::Instant,
    /// Until then it claims only if there is room for this many.
    linger: Option<(tokio::time::Instant, usize)>,
    /// Until then it claims nothing, because the store failed; and how long the next pause is.
    paused_until: Option<tokio::time::Instant>,
    pause: Duration,
}

/// What the fetcher knows of a queue.
#[derive(Clone, Copy, Default)]
struct Hunger {
    /// It may have jobs.
    hungry: bool,
    /// Since when every claim from it was filled.
    filled_since: Option<tokio::time::Instant>,
    /// How many jobs of it the claims under way may bring.
    asked: usize,
    /// How many it may have waiting.
    ahead: usize,
    /// When a hint will be heeded, and whether the next claim is for one.
    heed_at: Option<tokio::time::Instant>,
    by_hint: bool,
    /// Hints in a row for which there was nothing left.
    in_vain: u32,
    /// When it is to be asked again because time will have opened one of its gates (rule K15).
    retry_at: Option<tokio::time::Instant>,
}

impl Hunger {
    /// How long the next hint may wait. A hint wakes every idle worker, and one of them has the job: the others are slower
    /// to ask after some that were in vain, so that many idle workers do not keep the store busy with nothing.
    fn reluctance(&self) -> Duration {
        self.in_vain.checked_sub(IN_VAIN_FREE).map_or(Duration::ZERO, |more| RELUCTANCE * (1 << more.min(3)))
    }
}

/// A claim that was answered.
struct Answered {
    request: ClaimRequest,
    /// Its number, unless another was under way when it was sent.
    alone: Option<u64>,
    sent: Instant,
    answer: Result<Claims>,
}

/// Claims until the worker stops.
pub(super) async fn run(shared: Arc<Shared>, committer: mpsc::Sender<Decided>, pulse: Arc<Pulse>) {
    let unknown = Hunger { hungry: true, ..Hunger::default() };
    let mut fetcher = Fetcher {
        queues: vec![unknown; shared.queues.len()],
        at_once: shared.store().calls_at_once().max(1),
        poll_at: tokio::time::Instant::now() + shared.settings.poll_interval,
        shared,
        committer,
        rotation: Rotation::default(),
        underway: JoinSet::new(),
        sent: 0,
        linger: None,
        paused_until: None,
        pause: PAUSE.0,
    };
    while !fetcher.shared.is_stopping() {
        if fetcher.underway.is_empty() {
            // While a claim is under way only its answer is a sign of life.
            pulse.beat();
        }
        fetcher.start_waiting();
        fetcher.give_back_waiting();
        while fetcher.claim() {}
        if let Some(answered) = fetcher.rest().await {
            pulse.beat();
            fetcher.look_at(answered);
        }
    }
    // What is under way has taken its jobs, or may have: they are given back if the answer still comes.
    while let Some(answered) = fetcher.underway.join_next().await {
        fetcher.look_at(answered.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())));
    }
}

impl Fetcher {
    /// Sends a claim, if there is anything to ask for; says whether it did.
    fn claim(&mut self) -> bool {
        let now = tokio::time::Instant::now();
        if self.shared.is_draining() {
            return false;
        }
        if self.underway.len() >= self.at_once || self.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        let least = if self.underway.is_empty() { 1 } else { WORTH };
        let Some(request) = self.request(now, least) else { return false };
        for (name, share) in &request.queues {
            if let Some(queue) = self.shared.queue_of(name) {
                self.queues[queue].asked += share;
            }
        }
        let shared = Arc::clone(&self.shared);
        self.sent += 1;
        let alone = self.underway.is_empty().then_some(self.sent);
        self.underway.spawn(async move {
            let sent = Instant::now();
            let limit = patience::claim(shared.settings.lease_time);
            let answer = patience::within(limit, "claim", shared.store().claim(&request)).await;
            Answered { request, alone, sent, answer }
        });
        true
    }

    /// What to ask for now: hungry queues with room, within the free slots and what may wait for one.
    fn request(&mut self, now: tokio::time::Instant, least: usize) -> Option<ClaimRequest> {
        let shared = Arc::clone(&self.shared);
        if now >= self.poll_at {
            self.queues.iter_mut().for_each(|queue| queue.hungry = true);
            self.poll_at = now + shared.jittered(shared.settings.poll_interval);
        }
        let mut wishes = Vec::with_capacity(shared.queues.len());
        let mut waiting = shared.waiting();
        // Before anything is counted, so that no slot comes free unnoticed in between.
        let want = self.linger.filter(|(until, _)| now < *until).map_or(least, |(_, enough)| enough.max(least));
        shared.tell_when_free(want);
        let (mut ahead, mut asked) = (0, 0);
        for (queue, served) in shared.queues.iter().enumerate() {
            let most = shared.settings.prefetch.unwrap_or(usize::MAX).saturating_sub(ahead);
            let known = &mut self.queues[queue];
            if served.hinted.swap(false, Ordering::SeqCst) && !known.hungry {
                known.heed_at.get_or_insert(now + known.reluctance());
            }
            known.hungry |= known.retry_at.take_if(|at| *at <= now).is_some();
            if known.heed_at.take_if(|at| *at <= now).is_some() {
                (known.hungry, known.by_hint) = (true, true);
            }
            let backed_up = known.filled_since.is_some_and(|since| now.duration_since(since) >= HORIZON);
            // What is limited counts from the claim, and must not wait while others could run it.
            let backed_up = backed_up && !served.controlled.load(Ordering::Relaxed);
            known.ahead = if backed_up && known.hungry { waiting.ahead(queue, most) } else { 0 };
            (ahead, asked) = (ahead + known.ahead, asked + known.asked);
            let taken = served.busy() + waiting.of(queue) + known.asked;
            let room = (served.slots + known.ahead).saturating_sub(taken);
            if known.hungry && room > 0 {
                wishes.push(Wish { queue, room, weight: served.weight });
            }
        }
        let (most, taken) = (shared.capacity + ahead, shared.busy() + asked);
        let limit = most.saturating_sub(taken + waiting.len()).min(CALL_MAX);
        if wishes.is_empty() || limit < want.min(most) {
            waiting.tell_at(most.checked_sub(taken + want).filter(|_| ahead > 0));
            if !self.queues.iter().any(|queue| queue.hungry) {
                // Free slots are news only while a queue may have jobs for them.
                shared.tell_when_free(usize::MAX);
            }
            return None;
        }
        drop(waiting);
        self.linger = None;
        let shares = self.rotation.share(&wishes, limit, shared.settings.strict);
        let queues = shares.into_iter().map(|(queue, share)| (shared.queues[queue].name.clone(), share)).collect();
        Some(ClaimRequest {
            queues,
            types: shared.types.clone(),
            limit,
            lease_time: Some(shared.settings.lease_time),
            worker: shared.id.clone(),
        })
    }

    /// Takes in what a claim brought.
    fn look_at(&mut self, answered: Answered) {
        let Answered { request, alone, sent, answer } = answered;
        let now = tokio::time::Instant::now();
        for (name, share) in &request.queues {
            if let Some(queue) = self.shared.queue_of(name) {
                self.queues[queue].asked -= share;
            }
        }
        let claimed = match answer {
            Ok(claimed) => claimed,
            Err(error) => {
                observe::store_error("claim");
                tracing::warn!(%error, "cannot claim; trying again");
                self.paused_until = Some(now + self.shared.jittered(self.pause));
                self.pause = (self.pause * 2).min(PAUSE.1);
                return;
            }
        };
        (self.pause, self.paused_until) = (PAUSE.0, None);
        // Beside another claim it may have passed over jobs that this one had locked: only alone it saw all there is.
        let alone = alone == Some(self.sent);
        let again_at = claimed.again_in.map(|again_in| now + again_in + self.shared.jittered(RETRY_JITTER));
        for (name, share) in &request.queues {
            let Some(queue) = self.shared.queue_of(name) else { continue };
            let got = claimed.iter().filter(|claimed| claimed.job.spec.queue == *name).count();
            let known = &mut self.queues[queue];
            let by_hint = std::mem::take(&mut known.by_hint);
            match got {
                0 if by_hint => known.in_vain = known.in_vain.saturating_add(1),
                0 => {}
                _ => known.in_vain = 0,
            }
            if got >= *share {
                known.hungry = true;
                known.filled_since.get_or_insert(now);
            } else if alone {
                (known.hungry, known.filled_since) = (false, None);
            }
            known.retry_at = again_at.filter(|_| got < *share);
            self.shared.queues[queue].exhausted.store(alone && got < *share, Ordering::Relaxed);
        }
        self.admit(claimed.jobs, sent);
        let ahead: usize = self.queues.iter().map(|queue| queue.ahead).sum();
        let linger = if ahead > 0 { LINGER_AHEAD } else { LINGER };
        self.linger = Some((now + linger, (self.shared.capacity + ahead).div_ceil(4)));
    }

    /// Lets claimed jobs wait for a slot.
    fn admit(&self, claimed: Vec<Claimed>, sent: Instant) {
        if claimed.is_empty() {
            return;
        }
        observe::claim_batch(claimed.len());
        let attempts: Vec<_> =
            claimed.into_iter().filter_map(|claimed| attempt_of(&self.shared, claimed, sent)).collect();
        self.shared.held.add(attempts.iter().map(|(attempt, _)| attempt));
        for (attempt, _) in &attempts {
            self.shared.hooks.tell_claimed(attempt.job());
        }
        let mut waiting = self.shared.waiting();
        for (attempt, handler) in attempts {
            waiting.push(Claim::new(attempt, handler));
        }
    }

    /// Gives free slots to the jobs that wait for one; a worker that drains gives them back.
    fn start_waiting(&self) {
        if self.shared.is_draining() {
            return;
        }
        while let Some(slot) = Slot::take(&self.shared) {
            tokio::spawn(runner::run(slot, self.committer.clone()));
        }
    }

    /// Gives back, uncounted, what waits too long, what is of a paused queue, and all if the worker drains.
    fn give_back_waiting(&self) {
        let draining = self.shared.is_draining();
        let mut waiting = self.shared.waiting();
        let mut back = waiting.overdue();
        for (queue, served) in self.shared.queues.iter().enumerate() {
            if served.paused.swap(false, Ordering::SeqCst) || draining {
                back.extend(waiting.take_queue(queue));
            }
        }
        drop(waiting);
        give_back(&self.shared, &self.committer, back);
    }

    /// When there may be something to do without an answer, a hint or a free slot.
    fn next_look(&self, overdue_at: Option<tokio::time::Instant>) -> tokio::time::Instant {
        let now = tokio::time::Instant::now();
        let mut moments = vec![overdue_at];
        // With as many claims under way as may be, only an answer is a reason to ask again.
        if self.underway.len() < self.at_once {
            moments.extend([self.linger.map(|(until, _)| until), self.paused_until, Some(self.poll_at)]);
            moments.extend(self.queues.iter().flat_map(|queue| [queue.heed_at, queue.retry_at]));
        }
        let next = moments.into_iter().flatten().filter(|moment| *moment > now).min();
        next.unwrap_or(now + self.shared.settings.poll_interval)
    }

    /// Waits for the answer to a claim, which it gives, or for a hint, a free slot or the next poll.
    async fn rest(&mut self) -> Option<Answered> {
        let shared = Arc::clone(&self.shared);
        let until = self.next_look(shared.waiting().overdue_at());
        tokio::select! {
            biased;
            () = shared.env.stopping.cancelled() => None,
            Some(answered) = self.underway.join_next() => {
                Some(answered.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())))
            }
            () = shared.woken.notified() => None,
            () = shared.freed.notified() => None,
            () = tokio::time::sleep_until(until) => None,
        }
    }
}

/// Gives jobs back that have not started (rule S10). Their leases are kept alive until the committer has done so.
pub(super) fn give_back(shared: &Arc<Shared>, committer: &mpsc::Sender<Decided>, claims: Vec<Claim>) {
    if claims.is_empty() {
        return;
    }
    let (shared, committer) = (Arc::clone(shared), committer.clone());
    // Beside what waits for it: the committer may be slow.
    tokio::spawn(async move {
        for Claim { attempt, .. } in claims {
            let Some(settlement) = decide(&shared, &attempt, Ended::Released) else { continue };
            let decided = Decided { settlement, attempt: Arc::clone(&attempt) };
            if committer.send(decided).await.is_err() {
                shared.held.remove(&attempt.lease_key());
            }
        }
    });
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
            Ok(Wake::Paused(queue)) => {
                if let Some(queue) = shared.queue_of(&queue) {
                    shared.queues[queue].paused.store(true, Ordering::SeqCst);
                    shared.woken.notify_one();
                }
            }
            Ok(Wake::CancelAsked(_)) => shared.beat_now.notify_one(),
            Ok(Wake::Told(worker)) if worker == shared.id => shared.announce_now.notify_one(),
            Ok(Wake::Told(_) | Wake::Ended(_)) => {}
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
