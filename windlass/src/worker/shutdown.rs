//! A running worker, and how it comes to its end (rule N3).
//!
//! A worker has three modes. *Running*: it claims, runs, settles. *Stopping*, entered by the first request: it claims
//! nothing; what has not started is released; running handlers may finish within most of the grace period and are then
//! dropped, their jobs given back as interrupted; the committer is flushed; heartbeats go on until all of that is durable
//! or the grace period is over, whatever the store does.
//! *Aborted*, entered by the second request or by dropping the [`Running`]: everything is dropped where it stands, and
//! the leases expire.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::attempt::Order;
use super::committer::{self, Decided};
use super::fetcher::{self, Pulse};
use super::shared::Shared;
use super::{heartbeat, upkeep};
use crate::job::WorkerId;
use crate::observe;

/// How long a fetch loop may stand still with free slots before it is replaced.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// How often that is looked at, and the pause before a loop that ended is started again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a claim that is under way at shutdown is waited for: a fifth of the grace period, but no more than this. What it
/// brings is given back.
const CLAIM_PATIENCE_MAX: Duration = Duration::from_secs(5);

/// What a worker left behind when it stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stopped {
    /// Attempts settled over the worker's life.
    pub settled: usize,
    /// Jobs given back before their handler started.
    pub released: usize,
    /// Jobs given back because the grace period was over.
    pub interrupted: usize,
    /// Outcomes that could not be recorded; these jobs run again.
    pub dropped: usize,
    /// Jobs whose leases were left to expire: after an abort, or because a handler could not be stopped.
    pub abandoned: usize,
}

/// A worker that runs. Dropping it aborts it.
#[derive(Debug)]
#[must_use = "dropping it aborts the worker"]
pub struct Running {
    stop: Stop,
    supervisor: JoinHandle<Stopped>,
}

impl Running {
    pub(super) fn start(shared: Arc<Shared>, heartbeat: oneshot::Receiver<()>) -> Self {
        let supervisor = tokio::spawn(supervise(Arc::clone(&shared), heartbeat));
        Running { stop: Stop { shared }, supervisor }
    }

    /// The worker's name, new at every start.
    pub fn id(&self) -> &WorkerId {
        &self.stop.shared.id
    }

    /// How many handlers run now.
    pub fn busy(&self) -> usize {
        self.stop.shared.busy()
    }

    /// How many jobs it has claimed ahead, which wait for a slot and do not run.
    pub fn prefetched(&self) -> usize {
        self.stop.shared.waiting().len()
    }

    /// Whether an operator told it to take no more jobs.
    pub fn is_draining(&self) -> bool {
        self.stop.shared.is_draining()
    }

    /// A handle that stops the worker from elsewhere.
    pub fn stop_handle(&self) -> Stop {
        self.stop.clone()
    }

    /// Stops the worker gracefully and waits until it has ended.
    pub async fn stop(self) -> Stopped {
        self.stop.gracefully();
        self.ended().await
    }

    /// Waits until the worker has ended, because somebody stopped it.
    pub async fn ended(mut self) -> Stopped {
        (&mut self.supervisor).await.unwrap_or_else(|error| {
            tracing::error!(%error, "the worker ended out of order");
            self.stop.shared.summary()
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.supervisor.is_finished() {
            self.stop.abort();
        }
    }
}

/// Stops a worker from elsewhere: from a signal handler, a test, another task.
#[derive(Clone)]
pub struct Stop {
    shared: Arc<Shared>,
}

impl Stop {
    /// A first request stops the worker gracefully, a second one aborts it.
    pub fn request(&self) {
        if self.shared.is_stopping() { self.abort() } else { self.gracefully() }
    }

    /// Stops the worker gracefully.
    pub fn gracefully(&self) {
        self.shared.env.stopping.cancel();
    }

    /// Aborts the worker: nothing more is settled, and the leases expire.
    pub fn abort(&self) {
        if self.shared.aborted.is_cancelled() {
            return;
        }
        // In this order: nothing starts any more, what runs is counted and told, and only then is it forgotten who runs.
        self.shared.env.stopping.cancel();
        self.shared.tally.abandoned.fetch_add(self.shared.held.len(), Ordering::SeqCst);
        self.shared.order_all(Order::Abort);
        self.shared.aborted.cancel();
        self.shared.finished.cancel();
    }
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stop({:?})", self.shared.id)
    }
}

impl Shared {
    fn summary(&self) -> Stopped {
        let tally = &self.tally;
        // An abort has counted them before they were told.
        let left = if self.aborted.is_cancelled() { 0 } else { self.held.len() };
        Stopped {
            settled: tally.settled.load(Ordering::SeqCst),
            released: tally.released.load(Ordering::SeqCst),
            interrupted: tally.interrupted.load(Ordering::SeqCst),
            dropped: tally.dropped.load(Ordering::SeqCst),
            abandoned: tally.abandoned.load(Ordering::SeqCst) + left,
        }
    }
}

/// Runs the parts of a worker and ends them in order.
async fn supervise(shared: Arc<Shared>, heartbeat: oneshot::Receiver<()>) -> Stopped {
    // However this ends, heartbeats must not keep alive what nobody runs.
    let finished = shared.finished.clone().drop_guard();
    // A runner waits here, with its slot taken, while the store is slower than the handlers. There is room for a whole batch
    // however few the slots are: with less, jobs that are claimed ahead are settled in small ones.
    let (decided, inbox) = mpsc::channel(shared.capacity.clamp(committer::BATCH_MAX, 10_000));
    let inbox: committer::Inbox = Arc::new(tokio::sync::Mutex::new(inbox));
    let listening = keep_up("listen", &shared, || fetcher::listen(Arc::clone(&shared)));
    let upkeep = keep_up("upkeep", &shared, || upkeep::run(Arc::clone(&shared)));
    let committer = keep_up("commit", &shared, || committer::run(Arc::clone(&shared), Arc::clone(&inbox)));
    let beating = keep_beating(&shared, heartbeat);
    let began = OnceLock::new();
    let ending = async {
        let stopping = async {
            shared.env.stopping.cancelled().await;
            tracing::info!(worker = %shared.id, handlers = shared.busy(), "the worker stops");
            *began.get_or_init(tokio::time::Instant::now)
        };
        let ((), began) = tokio::join!(fetch(&shared, &decided), stopping);
        let waiting = shared.waiting().take_all();
        fetcher::give_back(&shared, &decided, waiting);
        drop(decided);
        finish(&shared, began).await;
        shared.finished.cancel();
    };
    tokio::select! {
        biased;
        () = shared.aborted.cancelled() => {}
        // Each but the last goes on until the worker is finished.
        _ = async { tokio::join!(listening, upkeep, committer, beating, ending) } => {}
    }
    if !shared.aborted.is_cancelled() {
        // Upkeep has ended, so nothing announces this worker again. If there is no time, it is forgotten after 30 s.
        let began = began.get().copied().unwrap_or_else(tokio::time::Instant::now);
        let _ = tokio::time::timeout_at(began + shared.settings.grace, upkeep::leave(&shared)).await;
    }
    let summary = shared.summary();
    let Stopped { settled, released, interrupted, dropped, abandoned } = summary;
    tracing::info!(worker = %shared.id, settled, released, interrupted, dropped, abandoned, "the worker has stopped");
    shared.held.clear();
    drop(finished);
    summary
}

/// Keeps a loop going that ends only when its work is done: one that panics is started again.
async fn keep_up<F>(name: &'static str, shared: &Arc<Shared>, start: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let mut task = AbortOnDrop(tokio::spawn(start()));
        let ended = tokio::select! {
            biased;
            ended = &mut task.0 => ended,
            () = shared.finished.cancelled() => return,
        };
        if ended.is_ok() {
            return;
        }
        observe::loop_restarted(name, "panicked");
        tracing::error!(name, "a loop of the worker panicked; it is started again");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Keeps the heartbeat thread going until the worker is finished.
async fn keep_beating(shared: &Arc<Shared>, mut heartbeat: oneshot::Receiver<()>) {
    loop {
        let _ = heartbeat.await;
        if shared.finished.is_cancelled() {
            return;
        }
        observe::loop_restarted("heartbeat", "panicked");
        tracing::error!("the heartbeat thread panicked; it is started again");
        heartbeat = loop {
            match heartbeat::start(shared) {
                Ok(heartbeat) => break heartbeat,
                Err(error) => tracing::error!(%error, "no heartbeat thread; trying again"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
    }
}

/// A task that does not outlive who waits for it.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps a fetch loop going until the worker stops: one that ends or stands still is replaced.
async fn fetch(shared: &Arc<Shared>, decided: &mpsc::Sender<Decided>) {
    loop {
        let pulse = Arc::new(Pulse::new());
        let mut task = AbortOnDrop(tokio::spawn(fetcher::run(Arc::clone(shared), decided.clone(), Arc::clone(&pulse))));
        let why = tokio::select! {
            biased;
            _ = &mut task.0 => "ended",
            () = stalled(shared, &pulse) => "stalled",
            () = overstayed(shared) => "overstayed",
        };
        if shared.is_stopping() {
            return;
        }
        observe::loop_restarted("fetch", why);
        tracing::error!(why, "the fetch loop is started again");
        drop(task);
        let _ = tokio::time::timeout(LOOK_EVERY, shared.env.stopping.cancelled()).await;
    }
}

/// Waits until a claim that was under way when the worker began to stop has had its time.
async fn overstayed(shared: &Shared) {
    shared.env.stopping.cancelled().await;
    tokio::time::sleep((shared.settings.grace / 5).min(CLAIM_PATIENCE_MAX)).await;
}

/// Waits until every decision is durable or given up.
async fn flushed(shared: &Shared) {
    while shared.held.len() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the fetch loop has stood still for too long, although there are free slots.
async fn stalled(shared: &Shared, pulse: &Pulse) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if shared.free() > 0 && pulse.silence() > STALLED_AFTER {
            return;
        }
    }
}

/// Ends a stop that began at this moment: handlers, then settlements, all within the grace period.
async fn finish(shared: &Shared, began: tokio::time::Instant) {
    let end_by = began + shared.settings.grace_of_settlements();
    let ended = tokio::time::timeout_at(end_by, async {
        finish_handlers(shared, began + shared.settings.grace_of_handlers(), end_by).await;
        flushed(shared).await;
    });
    if ended.await.is_ok() {
        return;
    }
    // Counted before the loops are dropped, which let go of what they hold.
    let left = shared.held.len();
    shared.tally.abandoned.fetch_add(left, Ordering::SeqCst);
    shared.held.clear();
    tracing::error!(leases = left, "the grace period is over and the store has not answered; these leases will expire");
}

/// Lets handlers finish, then drops them; in the end no handler runs, save one that holds its thread.
async fn finish_handlers(shared: &Shared, until: tokio::time::Instant, end_by: tokio::time::Instant) {
    if tokio::time::timeout_at(until, idle(shared)).await.is_ok() {
        return;
    }
    tracing::warn!(handlers = shared.busy(), "the grace period is nearly over; handlers are interrupted");
    shared.order_all(Order::Interrupt);
    // A handler that holds its thread is waited for half of what is left; its job must still be given back.
    let left = end_by.saturating_duration_since(tokio::time::Instant::now());
    if tokio::time::timeout(left / 2, idle(shared)).await.is_err() {
        give_back_stuck(shared).await;
    }
}

async fn idle(shared: &Shared) {
    shared.tell_when_free(1);
    while shared.busy() > 0 {
        shared.freed.notified().await;
    }
}

/// Gives back the jobs of handlers that hold their threads and cannot be dropped.
async fn give_back_stuck(shared: &Shared) {
    let mut settlements = Vec::new();
    let mut attempts = Vec::new();
    for attempt in shared.held.all() {
        if let Some(lease) = attempt.take_lease() {
            tracing::error!(?attempt, "the handler blocks its thread through shutdown; its job is given back");
            settlements.push(lease.interrupt());
            attempts.push(attempt);
        }
    }
    if settlements.is_empty() {
        return;
    }
    match shared.store().settle(&settlements).await {
        Ok(answers) => {
            shared.tally.interrupted.fetch_add(answers.len(), Ordering::SeqCst);
        }
        Err(error) => {
            shared.tally.abandoned.fetch_add(attempts.len(), Ordering::SeqCst);
            tracing::warn!(%error, "cannot give jobs back; their leases will expire");
        }
    }
    shared.held.remove_all(&attempts);
}
