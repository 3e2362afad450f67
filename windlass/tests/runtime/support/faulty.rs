//! A store that fails when told to, in front of one that does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use windlass::schedule::ScheduleRecord;
use windlass::store::*;
use windlass::workflow::{Submission, WorkflowRecord};
use windlass::{
    AttemptRecord, Error, Explanation, JobId, JobRecord, LeaseKey, LogLine, QueueName, Result, Settlement, Stale,
    Timestamp, WorkflowId,
};

/// What shall go wrong, each so many times.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Claims that fail.
    pub(crate) claim: AtomicUsize,
    /// Claims that never answer.
    pub(crate) claim_hangs: AtomicUsize,
    /// Heartbeats that fail.
    pub(crate) extend: AtomicUsize,
    /// Settlements that fail without being written.
    pub(crate) settle: AtomicUsize,
    /// Settlements that are written, while the answer is lost.
    pub(crate) settle_answer: AtomicUsize,
    /// Settlements that fail for good as long as there is more than one in the call.
    pub(crate) settle_together: AtomicUsize,
    /// Settle calls that panic before anything is written.
    pub(crate) settle_panics: AtomicUsize,
    /// Heartbeats that panic.
    pub(crate) extend_panics: AtomicUsize,
    /// Enqueues that never answer.
    pub(crate) insert_hangs: AtomicUsize,
    /// Settle calls made.
    pub(crate) settle_calls: AtomicUsize,
    /// Claim calls made.
    pub(crate) claim_calls: AtomicUsize,
    /// Heartbeat calls made.
    pub(crate) extend_calls: AtomicUsize,
}

/// The store.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    pub(crate) faults: Arc<Faults>,
}

impl FaultyStore {
    pub(crate) fn over(inner: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<Faults>) {
        let faults = Arc::new(Faults::default());
        (Arc::new(FaultyStore { inner, faults: faults.clone() }), faults)
    }
}

/// Whether the fault happens this time.
fn happens(fault: &AtomicUsize) -> bool {
    fault.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

fn unavailable(attempted: &str) -> Error {
    Error::StoreUnavailable { attempted: attempted.into(), problem: "as told".into(), known: false, source: None }
}

#[async_trait]
impl Store for FaultyStore {
    fn kind(&self) -> &'static str {
        "faulty"
    }

    async fn now(&self) -> Result<Timestamp> {
        self.inner.now().await
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        if happens(&self.faults.insert_hangs) {
            std::future::pending().await
        }
        self.inner.insert(submission).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>> {
        self.faults.claim_calls.fetch_add(1, Ordering::SeqCst);
        if happens(&self.faults.claim_hangs) {
            std::future::pending().await
        }
        if happens(&self.faults.claim) {
            return Err(unavailable("claim"));
        }
        self.inner.claim(request).await
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        self.faults.extend_calls.fetch_add(1, Ordering::SeqCst);
        assert!(!happens(&self.faults.extend_panics), "a heartbeat that panics, as told");
        if happens(&self.faults.extend) {
            return Err(unavailable("extend"));
        }
        self.inner.extend(leases, lease_time).await
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        self.inner.save(saves).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        self.faults.settle_calls.fetch_add(1, Ordering::SeqCst);
        assert!(!happens(&self.faults.settle_panics), "a settle that panics, as told");
        if happens(&self.faults.settle) {
            return Err(unavailable("settle"));
        }
        if settlements.len() > 1 && happens(&self.faults.settle_together) {
            return Err(Error::store("settle", "as told"));
        }
        let answers = self.inner.settle(settlements).await;
        if happens(&self.faults.settle_answer) { Err(unavailable("settle")) } else { answers }
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        self.inner.upkeep(request).await
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        self.inner.find(ids).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        self.inner.list(query).await
    }

    async fn count(&self, filter: &Filter, cap: u64) -> Result<u64> {
        self.inner.count(filter, cap).await
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        self.inner.attempts(job).await
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        self.inner.logs(job).await
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.inner.explain(job).await
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        self.inner.events(after, limit).await
    }

    async fn totals(&self) -> Result<Totals> {
        self.inner.totals().await
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        self.inner.operate(operation).await
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        self.inner.acts(after, limit).await
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool, by: Option<&str>) -> Result<()> {
        self.inner.set_paused(queue, paused, by).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.inner.queues().await
    }

    async fn announce(&self, worker: &WorkerReport) -> Result<()> {
        self.inner.announce(worker).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.inner.workers().await
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        self.inner.edit_schedule(edit, by).await
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        self.inner.schedules(after, limit).await
    }

    async fn find_workflows(&self, ids: &[WorkflowId]) -> Result<Vec<Option<WorkflowRecord>>> {
        self.inner.find_workflows(ids).await
    }

    async fn workflows(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WorkflowRecord>> {
        self.inner.workflows(after, limit).await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.inner.wakes()
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.inner.check().await
    }
}
