//! The handle that enqueues, inspects and operates.
//!
//! A [`Client`] is cheap to clone and knows no handler, so that a producer links none. It checks everything before the
//! store is touched. Submitting is in `enqueue.rs`, looking in `inspect.rs`, waiting in `wait.rs`, acting in
//! `operate.rs`, flow control in `control.rs`, recurring work in `schedules.rs`, settling for lease holders elsewhere in `settle.rs`.

mod control;
mod enqueue;
mod inspect;
mod operate;
mod schedules;
mod settle;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use control::QueueControl;
pub use enqueue::{Enqueue, EnqueueAll, Start, Started};
pub use operate::Operate;
pub use schedules::Schedule;
pub use settle::{Ended, Report};
pub use wait::Events;

use crate::error::Result;
use crate::job::{Limits, Policies};
use crate::store::{self, InsertedJob, MemoryStore, Store};

/// How long an enqueue may take before it fails with [`Error::SubmissionTimeout`](crate::Error::SubmissionTimeout) (rule T3).
pub const SUBMISSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Told of the jobs of one enqueue call, after they were stored.
pub type EnqueuedHook = dyn Fn(&[InsertedJob]) + Send + Sync;

/// The handle on a store: enqueues, inspects, operates. Clones share everything.
///
/// ```
/// # async fn example() -> windlass::Result<()> {
/// use windlass::{Client, NewJob, Payload};
///
/// let client = Client::in_memory();
/// let job = client.enqueue(NewJob::new("greet", Payload::json("world")?)).idempotency_key("once").await?;
/// assert!(!job.existing);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    store: Arc<dyn Store>,
    limits: Limits,
    policies: Policies,
    submission_timeout: Duration,
    submitted_by: Option<Arc<str>>,
    enqueued: Vec<Arc<EnqueuedHook>>,
}

impl Client {
    /// A client of the store that this URL names: `memory:`, `sqlite:PATH`, `postgres://…`.
    pub async fn open(url: &str) -> Result<Self> {
        Ok(Client::with_store(store::open(url).await?))
    }

    /// A client of the PostgreSQL store in the database of the application's own pool: a `deadpool_postgres::Pool`, or an
    /// `sqlx::PgPool` with the features `sqlx-0_8` and `sqlx-0_9`. No other connection is opened.
    ///
    /// Its schema is `windlass`; [`PostgresOptions::on_pool`](store::PostgresOptions::on_pool) sets another, and says what a
    /// store without connections of its own does without.
    #[cfg(feature = "postgres")]
    pub async fn with_pool(pool: impl Into<store::ApplicationPool>) -> Result<Self> {
        let options = store::PostgresOptions::on_pool(pool);
        Ok(Client::with_store(Arc::new(store::PostgresStore::with(options).await?)))
    }

    /// A client of an empty store in memory, which forgets everything with its last clone.
    pub fn in_memory() -> Self {
        Client::with_store(Arc::new(MemoryStore::new()))
    }

    /// A client of this store.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        let inner = Inner {
            store,
            limits: Limits::default(),
            policies: Policies::default(),
            submission_timeout: SUBMISSION_TIMEOUT,
            submitted_by: None,
            enqueued: Vec::new(),
        };
        Client { inner: Arc::new(inner) }
    }

    /// Sets the payload limit.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        Arc::make_mut(&mut self.inner).limits = limits;
        self
    }

    /// Sets the retry policies and timeouts of types, queues and the system (rule R3).
    #[must_use]
    pub fn policies(mut self, policies: Policies) -> Self {
        Arc::make_mut(&mut self.inner).policies = policies;
        self
    }

    /// Sets how long an enqueue may take; 30 s unless set.
    #[must_use]
    pub fn submission_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.inner).submission_timeout = timeout;
        self
    }

    /// Writes this name on every job and schedule that the client submits: `submitted_by`, which nothing changes later.
    ///
    /// At most 100 characters. A server writes the name of the token that it was shown, whatever its callers say.
    #[must_use]
    pub fn submitted_by(mut self, name: &str) -> Self {
        Arc::make_mut(&mut self.inner).submitted_by = Some(Arc::from(name));
        self
    }

    /// Calls `hook` after each enqueue of this client and its later clones (rule N4). It must not block.
    #[must_use]
    pub fn on_enqueued(mut self, hook: impl Fn(&[InsertedJob]) + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.inner).enqueued.push(Arc::new(hook));
        self
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The limits in force.
    pub fn limits_in_force(&self) -> &Limits {
        &self.inner.limits
    }

    /// The policies in force.
    pub fn policies_in_force(&self) -> &Policies {
        &self.inner.policies
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", &self.inner.store).finish_non_exhaustive()
    }
}
