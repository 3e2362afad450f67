//! A store over another one.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use super::Store;
use super::answer::*;
use super::request::*;
use crate::error::Result;
use crate::job::{
    AttemptRecord, Explanation, JobId, JobRecord, LeaseKey, LogLine, QueueName, Settlement, Stale, WorkflowId,
};
use crate::schedule::ScheduleRecord;
use crate::time::Timestamp;
use crate::workflow::{Submission, WorkflowRecord};

/// A store over another one: it does itself what it overrides, and passes the rest on.
///
/// For what stands between a program and its store: measuring, recording, faults in tests. Whoever implements it
/// implements [`Store`].
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use async_trait::async_trait;
/// use windlass::store::{ClaimRequest, Claimed, Layer, MemoryStore, Store};
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
///     async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>> {
///         self.claims.fetch_add(1, Ordering::Relaxed);
///         self.inner.claim(request).await
///     }
/// }
///
/// let counted = Counted { inner: Arc::new(MemoryStore::new()), claims: AtomicUsize::new(0) };
/// let client = Client::with_store(Arc::new(counted));
/// ```
#[async_trait]
#[allow(missing_docs, reason = "each method is that of `Store`")]
pub trait Layer: Any + Send + Sync + fmt::Debug {
    /// The store that does the rest.
    fn inner(&self) -> &Arc<dyn Store>;

    fn kind(&self) -> &'static str {
        self.inner().kind()
    }

    async fn now(&self) -> Result<Timestamp> {
        self.inner().now().await
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        self.inner().insert(submission).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>> {
        self.inner().claim(request).await
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        self.inner().extend(leases, lease_time).await
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        self.inner().save(saves).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        self.inner().settle(settlements).await
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        self.inner().upkeep(request).await
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        self.inner().find(ids).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        self.inner().list(query).await
    }

    async fn count(&self, filter: &Filter, cap: u64) -> Result<u64> {
        self.inner().count(filter, cap).await
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        self.inner().attempts(job).await
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        self.inner().logs(job).await
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.inner().explain(job).await
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        self.inner().events(after, limit).await
    }

    async fn totals(&self) -> Result<Totals> {
        self.inner().totals().await
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        self.inner().operate(operation).await
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        self.inner().acts(after, limit).await
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool, by: Option<&str>) -> Result<()> {
        self.inner().set_paused(queue, paused, by).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.inner().queues().await
    }

    async fn announce(&self, worker: &WorkerReport) -> Result<()> {
        self.inner().announce(worker).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.inner().workers().await
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        self.inner().edit_schedule(edit, by).await
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        self.inner().schedules(after, limit).await
    }

    async fn find_workflows(&self, ids: &[WorkflowId]) -> Result<Vec<Option<WorkflowRecord>>> {
        self.inner().find_workflows(ids).await
    }

    async fn workflows(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WorkflowRecord>> {
        self.inner().workflows(after, limit).await
    }

    /// The handle of the store inside: heartbeats go past the layer, unless it gives a handle of its own or `None`.
    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
        self.inner().heartbeats().await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.inner().wakes()
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.inner().check().await
    }
}

#[async_trait]
impl<L: Layer> Store for L {
    fn kind(&self) -> &'static str {
        Layer::kind(self)
    }

    async fn now(&self) -> Result<Timestamp> {
        Layer::now(self).await
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        Layer::insert(self, submission).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>> {
        Layer::claim(self, request).await
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        Layer::extend(self, leases, lease_time).await
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        Layer::save(self, saves).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        Layer::settle(self, settlements).await
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        Layer::upkeep(self, request).await
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        Layer::find(self, ids).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        Layer::list(self, query).await
    }

    async fn count(&self, filter: &Filter, cap: u64) -> Result<u64> {
        Layer::count(self, filter, cap).await
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        Layer::attempts(self, job).await
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        Layer::logs(self, job).await
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        Layer::explain(self, job).await
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        Layer::events(self, after, limit).await
    }

    async fn totals(&self) -> Result<Totals> {
        Layer::totals(self).await
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        Layer::operate(self, operation).await
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        Layer::acts(self, after, limit).await
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool, by: Option<&str>) -> Result<()> {
        Layer::set_paused(self, queue, paused, by).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        Layer::queues(self).await
    }

    async fn announce(&self, worker: &WorkerReport) -> Result<()> {
        Layer::announce(self, worker).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        Layer::workers(self).await
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        Layer::edit_schedule(self, edit, by).await
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        Layer::schedules(self, after, limit).await
    }

    async fn find_workflows(&self, ids: &[WorkflowId]) -> Result<Vec<Option<WorkflowRecord>>> {
        Layer::find_workflows(self, ids).await
    }

    async fn workflows(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WorkflowRecord>> {
        Layer::workflows(self, after, limit).await
    }

    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
        Layer::heartbeats(self).await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        Layer::wakes(self)
    }

    async fn check(&self) -> Result<Vec<String>> {
        Layer::check(self).await
    }
}
