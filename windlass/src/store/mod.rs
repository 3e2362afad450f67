//! Where jobs live: the one trait that every store implements, in pipeline order.
//!
//! A store has no policy. It is handed checked values, applies decisions of the pure core in one transaction each, and
//! answers. It owns the clock. Its author holds it against the suite in `conformance`.
//!
//! The types that go in and out are in [`request`] and [`answer`].

pub mod answer;
#[cfg(feature = "conformance")]
pub mod conformance;
mod faults;
mod filter;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) mod ids;
pub mod in_tx;
mod layer;
pub mod memory;
pub mod moving;
mod observe;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod request;
mod rewrite;
pub mod rules;
#[cfg(feature = "encryption")]
mod sealed;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use uuid::Uuid;

pub use answer::*;
pub use faults::{FAULT_RECENT, FAULT_TREND, FaultEnd, FaultGroup, FaultNames, FaultSum, FaultSums};
pub use in_tx::InTx;
pub use layer::Layer;
pub use memory::MemoryStore;
pub use observe::{
    AttemptCount, BUCKETS, COUNTED_MAX, ENDS_MAX, EndRecord, LaneRecord, LaneSample, Observation, SAMPLES_MAX, Sample,
    SampleStep, bucket, bucket_end, ended_place, newest_ends,
};
pub use open::{SqliteUrl, open, redacted};
#[cfg(feature = "postgres")]
pub use postgres::{ApplicationPool, PostgresOptions, PostgresStore};
pub use request::*;
pub use rewrite::{Part, Rewrite};
#[cfg(feature = "encryption")]
pub use sealed::{Keyring, Sealed, UNOPENED_WAIT, UnderKeys};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore};

use crate::error::{Error, Result};
use crate::flow::{ControlEdit, ControlRecord, KeyRecord};
use crate::job::{
    AttemptRecord, Explanation, JobId, JobRecord, LeaseKey, LeaseToken, LogLine, QueueName, Settlement, Stale,
    WorkflowId,
};
use crate::schedule::ScheduleRecord;
use crate::time::Timestamp;
use crate::workflow::{Submission, WorkflowRecord};

/// A place where jobs live.
///
/// Every method is one transaction: it happens whole or not at all, and what it acknowledged stays. Methods may be
/// called from any number of tasks at once. Dropping a call's future may leave it done or undone, never half-done.
#[async_trait]
pub trait Store: Any + Send + Sync + fmt::Debug {
    /// What kind of store this is, for logs: `memory`, `sqlite`, `postgres`.
    fn kind(&self) -> &'static str;

    /// The store's time, which decides everything (rule L8).
    async fn now(&self) -> Result<Timestamp>;

    // In: jobs come to rest in PENDING, DELAYED or SCHEDULED.

    /// Stores a batch: all of its jobs, or none and the reason why not.
    async fn insert(&self, submission: Submission) -> Result<Inserted>;

    // Through: a lease holder's calls, each fenced by its token in the statement that writes.

    /// Takes runnable jobs under a lease (rule L1).
    ///
    /// In a controlled queue only what all gates let through (rule K2); the answer says when to ask again.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claims>;

    /// Heartbeats for many leases at once (rule L5); one answer for each, in order.
    ///
    /// A lease time of `None` is each job's visibility timeout.
    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>>;

    /// Keeps checkpoints, progress and log lines of running attempts; one answer for each, in order.
    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>>;

    /// Ends attempts; one answer for each, in order. One bad entry never fails the others.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>>;

    /// One bounded step of upkeep: ends lifetimes, takes back expired leases, fires schedules, prunes.
    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport>;

    // Reading.

    /// The jobs with these ids, in order; `None` for one that does not exist.
    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>>;

    /// Jobs that match, newest first, a page at a time.
    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>>;

    /// How many jobs match, counted no further than `cap` of them, and looking at no more than `looked_max` rows.
    async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Result<Counted>;

    /// Groups of jobs in FAILED and DEAD_LETTER by the fault they died of, in the order of their fingerprints, a page at a
    /// time. Of each group the newest [`FAULT_JOBS_MAX`] jobs are looked at.
    async fn faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>>;

    /// The attempts of a job, oldest first, the running one included; `NotFound` when there is no such job.
    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>>;

    /// The log lines of a job's kept attempts, oldest first, and of these the newest [`LOGS_BYTES_MAX`]; `NotFound` when there is no such job.
    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>>;

    /// Every reason why a job is not running now (rule O5).
    async fn explain(&self, job: JobId) -> Result<Explanation>;

    /// Jobs that were enqueued or ended, oldest first, after a cursor of an earlier page.
    ///
    /// Without a cursor: an empty page whose cursor marks the present.
    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>>;

    /// The numbers of every lane, whose sum are those of the store; and of the jobs that ended at or after a moment the newest,
    /// if one is given. Cheap at any size.
    async fn observe(&self, ends_from: Option<Timestamp>) -> Result<Observation>;

    /// Keeps a sample, unless there is one of its step and moment already; forgets those of its step that were kept long enough.
    async fn put_sample(&self, step: SampleStep, sample: &Sample) -> Result<()>;

    /// The samples of a step from a moment on and before another, oldest first, at most [`SAMPLES_MAX`] of the newest.
    async fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Result<Vec<Sample>>;

    // Operators.

    /// One bounded step of an operator's act on jobs (rule O2).
    async fn operate(&self, operation: &Operation) -> Result<Operated>;

    /// What operators did, newest first.
    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>>;

    // The small records.

    /// All queues that have jobs or are paused, by name.
    async fn queues(&self) -> Result<Vec<QueueRecord>>;

    /// Pauses or resumes a queue (rule O3), or changes its flow control (rule K1); gives the control as it is afterwards.
    ///
    /// A store without flow control refuses every change but [`Change::Pause`].
    ///
    /// [`Change::Pause`]: crate::flow::Change::Pause
    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Result<Option<ControlRecord>>;

    /// The flow control of a queue, if it is controlled.
    async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>> {
        let _ = queue;
        Ok(None)
    }

    /// The keys of a controlled queue that have jobs or limits of their own, by name.
    async fn keys(&self, query: &KeyQuery) -> Result<Page<KeyRecord>> {
        let _ = query;
        Err(Error::invalid("control", format!("a store of kind {} has no flow control", self.kind())))
    }

    /// A worker says that it lives and what it serves, and hears what operators want of it.
    async fn announce(&self, worker: &WorkerReport) -> Result<Announced>;

    /// Tells a live worker to take no more jobs, or to take some again (rule O3); it hears of it when it next announces itself.
    async fn edit_worker(&self, edit: &WorkerEdit, by: Option<&str>) -> Result<WorkerRecord>;

    /// Workers heard of in the last [`WORKER_LIVE`], by id, as many as fit into [`WORKERS_BYTES_MAX`].
    async fn workers(&self) -> Result<Vec<WorkerRecord>>;

    /// Creates, replaces, pauses, resumes, triggers or deletes a schedule; gives it as it is afterwards.
    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited>;

    /// Schedules by name, after this name.
    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>>;

    /// Workflows: those with certain ids, in the order asked and without those that do not exist; or all, newest first, a
    /// page at a time.
    async fn workflows(&self, query: &WorkflowQuery) -> Result<Page<WorkflowRecord>>;

    // Itself.

    /// Replaces stored bytes by others that mean the same, each if it is still what was read; says of each whether it was.
    ///
    /// For layers that encrypt. A store that cannot refuses.
    async fn rewrite(&self, rewrites: &[Rewrite]) -> Result<Vec<bool>> {
        let _ = rewrites;
        Err(Error::invalid("store", format!("a store of kind {} rewrites nothing", self.kind())))
    }

    /// Marks a store that nobody has used as this owner's, and finds the mark in one that was: for commands that settle and
    /// remove jobs by themselves. Refuses a store that somebody else has used.
    async fn own(&self, owner: &str) -> Result<()> {
        let problem = format!("a store of kind {:?} cannot be marked as the one of {owner:?}", self.kind());
        Err(Error::Conflict(problem))
    }

    /// A handle for heartbeats that works while every thread of the caller's runtime is blocked; `None` if this one does.
    ///
    /// Called once for each worker, inside the small runtime of its heartbeat thread, so that a store whose connections
    /// live on a runtime can open one there.
    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
        Ok(None)
    }

    /// How many claims, and how many settlements, one worker should have under way at once: more than one where the store
    /// gains by it.
    fn calls_at_once(&self) -> usize {
        1
    }

    /// Hints that something changed. May lose some or be silent: polling must suffice.
    fn wakes(&self) -> broadcast::Receiver<Wake>;

    /// Whether it can be written to now, as cheaply as can be told: an error says why not.
    async fn ready(&self) -> Result<()> {
        self.now().await.map(drop)
    }

    /// How safe what the store confirms is, as far as its settings tell.
    async fn durability(&self) -> Result<Durability> {
        Ok(Durability::default())
    }

    /// Which server the store is on now, for people: the host and timeline of a PostgreSQL primary. `None` where it is in
    /// one place for good.
    fn place(&self) -> Option<String> {
        None
    }

    /// The store as something that can be [moved](moving), if it can be.
    fn movable(&self) -> Option<Arc<dyn moving::Movable>> {
        None
    }

    /// Looks for contradictions in what is stored; each finding is a sentence. Empty is good.
    async fn check(&self) -> Result<Vec<String>>;
}

impl dyn Store {
    /// The numbers of the whole store, which are the sum of its lanes.
    pub async fn totals(&self) -> Result<Totals> {
        Ok(self.observe(None).await?.totals())
    }
}

/// A new job id: version 4, from the operating system's randomness.
pub fn new_job_id() -> JobId {
    JobId::from_uuid(Uuid::new_v4())
}

/// A new workflow id.
pub fn new_workflow_id() -> WorkflowId {
    WorkflowId::from_uuid(Uuid::new_v4())
}

/// A new lease token, which nobody can guess.
pub fn new_lease_token() -> LeaseToken {
    LeaseToken::from_uuid(Uuid::new_v4())
}
