//! A store over another one. The methods stand here once, and a macro makes both traits' worth of them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use super::Store;
use super::answer::*;
use super::faults::FaultGroup;
use super::observe::{Observation, Sample, SampleStep};
use super::request::*;
use super::rewrite::Rewrite;
use crate::error::Result;
use crate::flow::{ControlEdit, ControlRecord, KeyRecord};
use crate::job::{AttemptRecord, Explanation, JobId, JobRecord, LeaseKey, LogLine, QueueName, Settlement, Stale};
use crate::schedule::ScheduleRecord;
use crate::time::Timestamp;
use crate::workflow::{Submission, WorkflowRecord};

/// Makes [`Layer`], whose methods pass a call on, and the [`Store`] of every layer, whose methods are the layer's.
macro_rules! layer {
    ($(#[$about:meta])* trait Layer; $($(#[$doc:meta])* async fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        $(#[$about])*
        #[async_trait]
        #[allow(missing_docs, reason = "each method is that of `Store`")]
        pub trait Layer: Any + Send + Sync + fmt::Debug {
            /// The store that does the rest.
            fn inner(&self) -> &Arc<dyn Store>;

            fn kind(&self) -> &'static str {
                self.inner().kind()
            }

            fn calls_at_once(&self) -> usize {
                self.inner().calls_at_once()
            }

            fn wakes(&self) -> broadcast::Receiver<Wake> {
                self.inner().wakes()
            }

            fn place(&self) -> Option<String> {
                self.inner().place()
            }

            $($(#[$doc])* async fn $name(&self $(, $argument: $type)*) -> $answer {
                self.inner().$name($($argument),*).await
            })*
        }

        #[async_trait]
        impl<L: Layer> Store for L {
            fn kind(&self) -> &'static str {
                Layer::kind(self)
            }

            fn calls_at_once(&self) -> usize {
                Layer::calls_at_once(self)
            }

            fn wakes(&self) -> broadcast::Receiver<Wake> {
                Layer::wakes(self)
            }

            fn place(&self) -> Option<String> {
                Layer::place(self)
            }

            $(async fn $name(&self $(, $argument: $type)*) -> $answer {
                Layer::$name(self, $($argument),*).await
            })*
        }
    };
}

layer! {
    /// A store over another one: it does itself what it overrides, and passes the rest on.
    ///
    /// For what stands between a program and its store: measuring, recording, faults in tests. A type that implements it
    /// implements [`Store`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// use async_trait::async_trait;
    /// use windlass::store::{ClaimRequest, Claims, Layer, MemoryStore, Store};
    /// use windlass::{Client, Result};
    ///
    /// /// Counts claims.
    /// #[derive(Debug)]
    /// struct Counted {
    ///     inner: Arc<dyn Store>,
    ///     claims: AtomicUsize,
    /// }
    ///
    /// #[async_trait]
    /// impl Layer for Counted {
    ///     fn inner(&self) -> &Arc<dyn Store> {
    ///         &self.inner
    ///     }
    ///
    ///     async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
    ///         self.claims.fetch_add(1, Ordering::Relaxed);
    ///         self.inner.claim(request).await
    ///     }
    /// }
    ///
    /// let counted = Counted { inner: Arc::new(MemoryStore::new()), claims: AtomicUsize::new(0) };
    /// let client = Client::with_store(Arc::new(counted));
    /// ```
    trait Layer;

    async fn now(&self) -> Result<Timestamp>;
    async fn insert(&self, submission: Submission) -> Result<Inserted>;
    async fn claim(&self, request: &ClaimRequest) -> Result<Claims>;
    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>>;
    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>>;
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>>;
    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport>;
    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>>;
    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>>;
    async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Result<Counted>;
    async fn faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>>;
    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>>;
    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>>;
    async fn explain(&self, job: JobId) -> Result<Explanation>;
    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>>;
    async fn observe(&self, ends_from: Option<Timestamp>) -> Result<Observation>;
    async fn put_sample(&self, step: SampleStep, sample: &Sample) -> Result<()>;
    async fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Result<Vec<Sample>>;
    async fn operate(&self, operation: &Operation) -> Result<Operated>;
    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>>;
    async fn queues(&self) -> Result<Vec<QueueRecord>>;
    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Result<Option<ControlRecord>>;
    async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>>;
    async fn keys(&self, query: &KeyQuery) -> Result<Page<KeyRecord>>;
    async fn announce(&self, worker: &WorkerReport) -> Result<Announced>;
    async fn edit_worker(&self, edit: &WorkerEdit, by: Option<&str>) -> Result<WorkerRecord>;
    async fn workers(&self) -> Result<Vec<WorkerRecord>>;
    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited>;
    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>>;
    async fn workflows(&self, query: &WorkflowQuery) -> Result<Page<WorkflowRecord>>;
    async fn rewrite(&self, rewrites: &[Rewrite]) -> Result<Vec<bool>>;
    async fn own(&self, owner: &str) -> Result<()>;
    /// The handle of the store inside: heartbeats go past the layer, unless it gives a handle of its own or `None`.
    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>>;
    async fn ready(&self) -> Result<()>;
    async fn durability(&self) -> Result<Durability>;
    async fn check(&self) -> Result<Vec<String>>;
}
