//! One execution of a job, as the runtime sees it: the job, its lease, and the orders it gets.
//!
//! What a handler sees of it, and may do with it, is in `context.rs`.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::handled::HandledType;
use crate::client::Client;
use crate::job::{CancelAsked, JobRecord, JobSpec, Lease, LeaseKey};
use crate::store::Claimed;

/// What every attempt of a worker shares.
pub(super) struct WorkerEnv {
    pub(super) client: Client,
    pub(super) stopping: CancellationToken,
}

/// What the runtime wants of an attempt; a later one outranks an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum Order {
    /// Go on.
    Run = 0,
    /// Somebody asked for it to stop; it may end as it likes.
    Cancel = 1,
    /// Shutdown, or a lease that could not be confirmed: it is dropped and its job given back.
    Interrupt = 2,
    /// Its lease is gone: it is dropped and says nothing.
    Lost = 3,
    /// The worker aborts.
    Abort = 4,
}

impl Order {
    fn from_number(number: u8) -> Order {
        match number {
            0 => Order::Run,
            1 => Order::Cancel,
            2 => Order::Interrupt,
            3 => Order::Lost,
            _ => Order::Abort,
        }
    }
}

/// One execution of a job.
pub struct Attempt {
    pub(super) job: JobRecord,
    pub(super) key: LeaseKey,
    /// Taken by the part that decides; so an attempt is decided once.
    pub(super) lease: Mutex<Option<Lease>>,
    pub(super) env: Arc<WorkerEnv>,
    /// How this worker handles the type of the job.
    pub(super) handled: Arc<HandledType>,
    pub(super) queue: usize,
    /// When the handler was started, which may be a while after the claim: the execution timeout counts from here.
    begun: OnceLock<(Instant, tokio::time::Instant)>,
    /// Longest run, in microseconds; `u64::MAX` for no limit.
    pub(super) limit: AtomicU64,
    /// Until when the lease is known to hold, in nanoseconds since [`EPOCH`].
    pub(super) until: AtomicU64,
    pub(super) order: AtomicU8,
    pub(super) changed: Notify,
    pub(super) token: OnceLock<CancellationToken>,
    pub(super) cancel: OnceLock<CancelAsked>,
    pub(super) children: Mutex<Vec<JobSpec>>,
    pub(super) checkpoint: Mutex<Option<Bytes>>,
    /// Whether a transaction of the handler's own may hold, or have written, the completion.
    pub(super) in_tx: Arc<AtomicBool>,
}

/// Where the monotonic clock of this process is counted from.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

fn nanos(at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(*EPOCH).as_nanos()).unwrap_or(u64::MAX)
}

impl Attempt {
    /// The attempt of a claimed job; the claim was sent at `sent`, from which the lease is measured (rule L9).
    pub(super) fn new(
        claimed: Claimed,
        sent: Instant,
        env: Arc<WorkerEnv>,
        handled: Arc<HandledType>,
        queue: usize,
    ) -> Self {
        let Claimed { mut job, lease, expires_in } = claimed;
        let execution = job.spec.options.timeouts.execution;
        let limit = execution.map_or(u64::MAX, |limit| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX));
        let checkpoint = job.checkpoint.take();
        Attempt {
            key: lease.key(),
            lease: Mutex::new(Some(lease)),
            env,
            handled,
            queue,
            begun: OnceLock::new(),
            limit: AtomicU64::new(limit),
            until: AtomicU64::new(nanos(sent + expires_in)),
            order: AtomicU8::new(Order::Run as u8),
            changed: Notify::new(),
            token: OnceLock::new(),
            cancel: OnceLock::new(),
            children: Mutex::new(Vec::new()),
            checkpoint: Mutex::new(checkpoint),
            in_tx: Arc::new(AtomicBool::new(false)),
            job,
        }
    }

    pub(super) fn current_order(&self) -> Order {
        Order::from_number(self.order.load(Ordering::SeqCst))
    }

    /// Gives an order; says whether it outranks what was ordered before.
    pub(super) fn order(&self, order: Order) -> bool {
        let before = self.order.fetch_max(order as u8, Ordering::SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
        self.changed.notify_waiters();
        before < order as u8
    }

    /// Passes on that somebody asked for a cancel; the first ask is kept.
    pub(super) fn ask_cancel(&self, asked: CancelAsked) {
        let _ = self.cancel.set(asked);
        self.order(Order::Cancel);
    }

    /// Resolves when orders or the time limit may have changed since the call.
    pub(super) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// The longest run that is allowed now, if there is a limit.
    pub(super) fn limit_in_force(&self) -> Option<Duration> {
        let micros = self.limit.load(Ordering::SeqCst);
        Some(Duration::from_micros(micros)).filter(|_| micros != u64::MAX)
    }

    /// By how much the run is over its time limit, by the clock on the wall of this process.
    pub(super) fn overdue(&self) -> Option<Duration> {
        self.begun.get()?.0.elapsed().checked_sub(self.limit_in_force()?)
    }

    /// Notes that the handler is started now.
    pub(super) fn begin(&self) {
        let _ = self.begun.set((Instant::now(), tokio::time::Instant::now()));
    }

    /// When the handler was started, or would be now.
    pub(super) fn begun(&self) -> tokio::time::Instant {
        self.begun.get().map_or_else(tokio::time::Instant::now, |(_, begun)| *begun)
    }

    /// When the run will be over its time limit by so much.
    pub(super) fn overdue_by(&self, more: Duration) -> Option<Instant> {
        self.begun.get()?.0.checked_add(self.limit_in_force()?)?.checked_add(more)
    }

    /// The right to decide, for the first who asks.
    pub(super) fn take_lease(&self) -> Option<Lease> {
        lock(&self.lease).take()
    }

    /// Whether nobody need stop the handler for want of a lease.
    pub(super) fn is_decided(&self) -> bool {
        self.is_in_tx() || lock(&self.lease).is_none()
    }

    /// Whether a transaction of the handler's own may hold, or have written, the completion.
    pub(super) fn is_in_tx(&self) -> bool {
        self.in_tx.load(Ordering::SeqCst)
    }

    /// That transaction has come to nothing.
    pub(super) fn leave_tx(&self) {
        self.in_tx.store(false, Ordering::SeqCst);
    }

    /// A lease to decide with once more; the store takes one decision at most.
    pub(super) fn lease_again(&self) -> Lease {
        Lease::granted(&self.job, self.key.token)
    }

    pub(super) fn take_children(&self) -> Vec<JobSpec> {
        std::mem::take(&mut *lock(&self.children))
    }

    /// The store confirmed the lease: it holds for so long after the request was sent.
    pub(super) fn confirm(&self, sent: Instant, expires_in: Duration) {
        self.until.fetch_max(nanos(sent + expires_in), Ordering::SeqCst);
    }

    /// How long the lease is known to hold, less a margin; `None` when it is not.
    pub(super) fn holds_for(&self, now: Instant, margin: Duration) -> Option<Duration> {
        let left = self.until.load(Ordering::SeqCst).checked_sub(nanos(now + margin))?;
        Some(Duration::from_nanos(left)).filter(|left| !left.is_zero())
    }

    /// How long the handler may run without another confirmation, which is `hold` longer than the lease is known to hold.
    pub(super) fn may_run_for(&self, now: Instant, margin: Duration, hold: Duration) -> Option<Duration> {
        let hold = u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX);
        let until = self.until.load(Ordering::SeqCst).saturating_add(hold);
        let left = until.checked_sub(nanos(now + margin))?;
        Some(Duration::from_nanos(left)).filter(|left| !left.is_zero())
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, number) = (self.job.id, self.job.attempt);
        write!(f, "Attempt {number} of {} {id}", self.job.spec.job_type)
    }
}

/// Takes a lock of an attempt.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds a lock of an attempt")
}
