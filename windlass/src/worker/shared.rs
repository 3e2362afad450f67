//! What the parts of a running worker share: settings, slots, and the attempts it holds leases for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, Order, WorkerEnv};
use super::handler::{AnyHandler, Handler};
use super::middleware::{Hooks, Middleware};
use super::settings::Settings;
use super::waiting::{Claim, Waiting};
use crate::job::{JobType, LeaseKey, QueueName, WorkerId};
use crate::observe::JobMetrics;
use crate::store::{Announced, ServedQueue, Store, WorkerReport};

/// What the parts of a running worker share.
pub(super) struct Shared {
    pub(super) id: WorkerId,
    pub(super) settings: Settings,
    pub(super) env: Arc<WorkerEnv>,
    pub(super) queues: Vec<Served>,
    /// How many handlers may run at once in all.
    pub(super) capacity: usize,
    handlers: Handlers,
    /// The types it claims; `None` for any.
    pub(super) types: Option<Vec<JobType>>,
    pub(super) middleware: Arc<[Arc<dyn Middleware>]>,
    pub(super) hooks: Hooks,
    pub(super) held: Held,
    busy: AtomicUsize,
    draining: AtomicBool,
    /// The claimed jobs that wait for a slot.
    waiting: Mutex<Waiting>,
    /// How many slots must be free before the fetcher is told of one more.
    tell_at: AtomicUsize,
    /// A slot came free, or few jobs wait for one.
    pub(super) freed: Notify,
    /// A queue was hinted at.
    pub(super) woken: Notify,
    /// Heartbeats are wanted now.
    pub(super) beat_now: Notify,
    /// Somebody told this worker something: announcing itself is how it hears what.
    pub(super) announce_now: Notify,
    /// The worker gives up everything at once.
    pub(super) aborted: CancellationToken,
    /// Everything is settled; heartbeats may end.
    pub(super) finished: CancellationToken,
    pub(super) tally: Tally,
    random: Mutex<fastrand::Rng>,
}

/// The handlers of a worker.
pub(super) struct Handlers {
    /// By type.
    pub(super) own: HashMap<JobType, Arc<Handler>>,
    /// For every other type, if there is one.
    pub(super) any: Option<AnyHandler>,
}

/// A queue that is served, and how much of it runs.
pub(super) struct Served {
    pub(super) name: QueueName,
    pub(super) slots: usize,
    pub(super) weight: u32,
    busy: AtomicUsize,
    /// The store hinted that it has jobs.
    pub(super) hinted: AtomicBool,
    /// The store hinted that it was paused.
    pub(super) paused: AtomicBool,
    /// It is under control (rule K1), as was last heard.
    pub(super) controlled: AtomicBool,
    /// The last claim left nothing of it that this worker could run.
    pub(super) exhausted: AtomicBool,
}

impl Served {
    fn has_room(&self) -> bool {
        self.busy() < self.slots
    }

    pub(super) fn new(name: QueueName, slots: usize, weight: u32) -> Self {
        let busy = AtomicUsize::new(0);
        let (hinted, paused, controlled, exhausted) = <(AtomicBool, AtomicBool, AtomicBool, AtomicBool)>::default();
        Served { name, slots, weight, busy, hinted, paused, controlled, exhausted }
    }

    pub(super) fn busy(&self) -> usize {
        self.busy.load(Ordering::SeqCst)
    }
}

/// What a worker counts for its summary.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) settled: AtomicUsize,
    pub(super) dropped: AtomicUsize,
    pub(super) released: AtomicUsize,
    pub(super) interrupted: AtomicUsize,
    pub(super) abandoned: AtomicUsize,
}

impl Shared {
    #[allow(clippy::too_many_arguments, reason = "made in one place, from a checked plan")]
    pub(super) fn new(
        id: WorkerId,
        settings: Settings,
        env: WorkerEnv,
        queues: Vec<Served>,
        handlers: Handlers,
        middleware: Arc<[Arc<dyn Middleware>]>,
        hooks: Hooks,
    ) -> Self {
        let slots: usize = queues.iter().map(|queue| queue.slots).sum();
        let types = handlers.any.is_none().then(|| handlers.own.keys().cloned().collect());
        let random = settings.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let weights = queues.iter().map(|queue| queue.weight);
        let waiting = Mutex::new(Waiting::new(weights, settings.strict, settings.lease_time));
        Shared {
            id,
            capacity: settings.concurrency.map_or(slots, |most| most.min(slots)),
            settings,
            env: Arc::new(env),
            queues,
            handlers,
            types,
            middleware,
            hooks,
            held: Held::default(),
            busy: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            waiting,
            tell_at: AtomicUsize::new(1),
            freed: Notify::new(),
            woken: Notify::new(),
            beat_now: Notify::new(),
            announce_now: Notify::new(),
            aborted: CancellationToken::new(),
            finished: CancellationToken::new(),
            tally: Tally::default(),
            random: Mutex::new(random),
        }
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.env.client.store()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.env.stopping.is_cancelled()
    }

    /// Whether operators want it to take no more jobs.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Heeds what operators want of it (rule O3).
    pub(super) fn heed(&self, announced: Announced) {
        if self.draining.swap(announced.draining, Ordering::SeqCst) == announced.draining {
            return;
        }
        match announced.draining {
            true => tracing::warn!(worker = %self.id, "an operator told this worker to drain: it takes no more jobs"),
            false => tracing::info!(worker = %self.id, "an operator told this worker to take jobs again"),
        }
        self.queues.iter().for_each(|queue| queue.hinted.store(true, Ordering::SeqCst));
        self.woken.notify_one();
    }

    pub(super) fn busy(&self) -> usize {
        self.busy.load(Ordering::SeqCst)
    }

    pub(super) fn free(&self) -> usize {
        self.capacity.saturating_sub(self.busy())
    }

    /// The claimed jobs that wait for a slot.
    pub(super) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics while it holds this lock")
    }

    /// Wants a signal for freed slots only when this many are free; with 1, for every one.
    pub(super) fn tell_when_free(&self, slots: usize) {
        self.tell_at.store(slots.max(1), Ordering::SeqCst);
    }

    pub(super) fn queue_of(&self, name: &QueueName) -> Option<usize> {
        self.queues.iter().position(|queue| queue.name == *name)
    }

    /// A number from 0 up to 1, from the seed if there is one.
    pub(super) fn random(&self) -> f64 {
        self.random.lock().expect("drawing a number does not panic").f64()
    }

    /// `time`, shortened by up to a third, so that workers that began together do not stay in step.
    pub(super) fn jittered(&self, time: Duration) -> Duration {
        time.mul_f64(1.0 - self.random() / 3.0)
    }

    pub(super) fn order_all(&self, order: Order) {
        for attempt in self.held.all() {
            attempt.order(order);
        }
    }

    pub(super) fn report(&self) -> WorkerReport {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let served = |queue: &Served| ServedQueue {
            queue: queue.name.clone(),
            slots: number(queue.slots),
            busy: number(queue.busy()),
        };
        WorkerReport {
            id: self.id.clone(),
            host: self.settings.host.clone(),
            queues: self.queues.iter().map(served).collect(),
            types: self.types.clone(),
        }
    }

    /// Who runs jobs of this type, if anybody here does.
    pub(super) fn handler_of(&self, job_type: &JobType) -> Option<Arc<Handler>> {
        let metrics =
            |job_type: &JobType| self.queues.iter().map(|queue| JobMetrics::new(&queue.name, job_type)).collect();
        let any = || self.handlers.any.as_ref().map(|any| any.of(job_type, metrics));
        self.handlers.own.get(job_type).cloned().or_else(any)
    }
}

/// A taken slot; dropping it gives the slot back.
pub(super) struct Slot {
    pub(super) shared: Arc<Shared>,
    claim: Claim,
    /// Whether the committer has the decision; until then the lease goes with the slot.
    pub(super) handed_over: bool,
}

impl Slot {
    /// A free slot with the next job that waits for one, if there are both.
    pub(super) fn take(shared: &Arc<Shared>) -> Option<Self> {
        let mut waiting = shared.waiting();
        if shared.is_stopping() || shared.free() == 0 {
            return None;
        }
        let claim = waiting.pop(|queue| shared.queues[queue].has_room())?;
        // Under the lock, so that no other takes the same slot.
        shared.busy.fetch_add(1, Ordering::SeqCst);
        shared.queues[claim.attempt.queue].busy.fetch_add(1, Ordering::SeqCst);
        drop(waiting);
        Some(Slot { shared: Arc::clone(shared), claim, handed_over: false })
    }

    pub(super) fn attempt(&self) -> &Arc<Attempt> {
        &self.claim.attempt
    }

    pub(super) fn handler(&self) -> &Handler {
        &self.claim.handler
    }

    /// Goes on with the next job that waits for a slot; says whether there was one.
    pub(super) fn take_next(&mut self) -> bool {
        self.let_go();
        let shared = &self.shared;
        if shared.is_stopping() {
            return false;
        }
        let mut waiting = shared.waiting();
        let own = &shared.queues[self.claim.attempt.queue].busy;
        own.fetch_sub(1, Ordering::SeqCst);
        let next = waiting.pop(|queue| shared.queues[queue].has_room());
        let busy = next.as_ref().map_or(own, |next| &shared.queues[next.attempt.queue].busy);
        busy.fetch_add(1, Ordering::SeqCst);
        let few = waiting.is_to_be_told();
        drop(waiting);
        if few {
            shared.freed.notify_one();
        }
        let Some(next) = next else { return false };
        (self.claim, self.handed_over) = (next, false);
        true
    }

    /// Lets go of a lease that nobody will settle: it is lost, or the task was dropped or panicked.
    fn let_go(&self) {
        if !self.handed_over {
            self.shared.held.remove(&self.claim.attempt.lease_key());
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.let_go();
        let shared = &self.shared;
        shared.queues[self.claim.attempt.queue].busy.fetch_sub(1, Ordering::SeqCst);
        let busy = shared.busy.fetch_sub(1, Ordering::SeqCst) - 1;
        let enough = || shared.capacity.saturating_sub(busy) >= shared.tell_at.load(Ordering::SeqCst);
        // A job may have come to wait after this slot had looked for one.
        if busy == 0 || enough() || shared.waiting().len() > 0 {
            shared.freed.notify_one();
        }
    }
}

/// The attempts whose leases must be kept alive: from the claim until the settlement is durable (rule L6).
#[derive(Default)]
pub(super) struct Held {
    attempts: Mutex<HashMap<LeaseKey, Arc<Attempt>>>,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseKey, Arc<Attempt>>> {
        self.attempts.lock().expect("nothing panics while it holds this lock")
    }

    pub(super) fn add<'a>(&self, attempts: impl IntoIterator<Item = &'a Arc<Attempt>>) {
        self.lock().extend(attempts.into_iter().map(|attempt| (attempt.lease_key(), Arc::clone(attempt))));
    }

    pub(super) fn remove(&self, key: &LeaseKey) {
        self.lock().remove(key);
    }

    pub(super) fn remove_all<'a>(&self, attempts: impl IntoIterator<Item = &'a Arc<Attempt>>) {
        let mut held = self.lock();
        for attempt in attempts {
            held.remove(&attempt.lease_key());
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Attempt>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}
