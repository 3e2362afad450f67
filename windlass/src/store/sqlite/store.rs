//! The store's trait, each method sent to the writing thread or to a reader.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use super::SqliteStore;
use super::moving::Mover;
use crate::error::Result;
use crate::flow::{Change, ControlEdit, ControlRecord, KeyRecord};
use crate::job::{AttemptRecord, Explanation, JobId, JobRecord, LeaseKey, LogLine, QueueName, Settlement, Stale};
use crate::schedule::ScheduleRecord;
use crate::store::Store;
use crate::store::answer::*;
use crate::store::faults::FaultGroup;
use crate::store::moving::Movable;
use crate::store::observe::{Observation, Sample, SampleStep};
use crate::store::request::*;
use crate::store::rewrite::Rewrite;
use crate::time::Timestamp;
use crate::workflow::{Submission, WorkflowRecord};

#[async_trait]
impl Store for SqliteStore {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn movable(&self) -> Option<Arc<dyn Movable>> {
        Some(Arc::new(Mover::new(self.opener.clone(), Arc::clone(&self.clock))))
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(self.clock.now())
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        let count = submission.jobs().len();
        let attempted = if count == 1 { "enqueue a job".to_owned() } else { format!("enqueue {count} jobs") };
        self.add(attempted, count, move |tx| tx.insert(&submission)).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        let attempted = match request.queues.as_slice() {
            [(queue, _)] => format!("claim from queue {queue:?}"),
            queues => format!("claim from {} queues", queues.len()),
        };
        self.claim_heard(attempted, request.clone()).await
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        let leases = leases.to_vec();
        let attempted = format!("extend {} leases", leases.len());
        self.write(attempted, leases.len(), move |tx| tx.extend(&leases, lease_time)).await
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        let saves = saves.to_vec();
        self.write(format!("save for {} jobs", saves.len()), saves.len(), move |tx| tx.save(&saves)).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let settlements: Vec<Settlement> = settlements.iter().map(Settlement::duplicate).collect();
        let attempted = format!("settle {} jobs", settlements.len());
        self.write(attempted, settlements.len(), move |tx| tx.settle(&settlements)).await
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        let request = request.clone();
        self.write("do upkeep".to_owned(), request.limit, move |tx| tx.upkeep(&request)).await
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        let ids = ids.to_vec();
        self.readers.read("find jobs", move |tx| tx.find(&ids)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        let query = query.clone();
        self.readers.read("list jobs", move |tx| tx.list(&query)).await
    }

    async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Result<Counted> {
        let filter = filter.clone();
        self.readers.read("count jobs", move |tx| tx.count_matching(&filter, cap, looked_max)).await
    }

    async fn faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>> {
        let query = query.clone();
        self.readers.read("group dead jobs", move |tx| tx.faults(&query)).await
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        self.readers.read("read attempts", move |tx| tx.attempts(job)).await
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        self.readers.read("read logs", move |tx| tx.logs(job)).await
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.readers.read("explain a job", move |tx| tx.explain(job)).await
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        let after = after.cloned();
        self.readers.read("read events", move |tx| tx.events(after.as_ref(), limit)).await
    }

    async fn observe(&self, ends_from: Option<Timestamp>) -> Result<Observation> {
        self.readers.read("read the numbers of lanes", move |tx| tx.observe(ends_from)).await
    }

    async fn put_sample(&self, step: SampleStep, sample: &Sample) -> Result<()> {
        let sample = sample.clone();
        self.write("keep a sample".to_owned(), 1, move |tx| tx.put_sample(step, &sample)).await
    }

    async fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Result<Vec<Sample>> {
        self.readers.read("read samples", move |tx| tx.samples(step, from, before)).await
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        let operation = operation.clone();
        let attempted = format!("{} jobs", operation.act.name());
        self.write(attempted, 1, move |tx| tx.operate(&operation)).await
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        let after = after.cloned();
        self.readers.read("read acts", move |tx| tx.acts(after.as_ref(), limit)).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.readers.read("read queues", |tx| tx.queues()).await
    }

    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Result<Option<ControlRecord>> {
        let (edit, by) = (edit.clone(), by.map(str::to_owned));
        let verb = match edit.change {
            Change::Pause(true) => "pause",
            Change::Pause(false) => "resume",
            _ => "control",
        };
        let attempted = format!("{verb} queue {:?}", edit.queue);
        self.write(attempted, 1, move |tx| tx.control(&edit, by.as_deref())).await
    }

    async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>> {
        let queue = queue.clone();
        self.readers.read("read the control of a queue", move |tx| tx.controlled(&queue)).await
    }

    async fn keys(&self, query: &KeyQuery) -> Result<Page<KeyRecord>> {
        let query = query.clone();
        self.readers.read("list keys", move |tx| tx.keys(&query)).await
    }

    async fn announce(&self, worker: &WorkerReport) -> Result<Announced> {
        let worker = worker.clone();
        self.write("announce a worker".to_owned(), 1, move |tx| tx.announce(&worker)).await
    }

    async fn edit_worker(&self, edit: &WorkerEdit, by: Option<&str>) -> Result<WorkerRecord> {
        let (edit, by) = (edit.clone(), by.map(str::to_owned));
        let attempted = format!("tell worker {:?} something", edit.worker.as_str());
        self.write(attempted, 1, move |tx| tx.edit_worker(&edit, by.as_deref())).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.readers.read("read workers", |tx| tx.workers()).await
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        let (edit, by) = (edit.clone(), by.map(str::to_owned));
        let attempted = format!("change schedule {:?}", edit.name());
        self.write(attempted, 1, move |tx| tx.edit_schedule(&edit, by.as_deref())).await
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        let after = after.map(str::to_owned);
        self.readers.read("read schedules", move |tx| tx.list_schedules(after.as_deref(), limit)).await
    }

    async fn workflows(&self, query: &WorkflowQuery) -> Result<Page<WorkflowRecord>> {
        let query = query.clone();
        self.readers.read("read workflows", move |tx| tx.workflows(&query)).await
    }

    async fn rewrite(&self, rewrites: &[Rewrite]) -> Result<Vec<bool>> {
        let rewrites = rewrites.to_vec();
        self.write("rewrite what is stored".to_owned(), rewrites.len(), move |tx| tx.rewrite(&rewrites)).await
    }

    async fn own(&self, owner: &str) -> Result<()> {
        let owner = owner.to_owned();
        self.write("mark the store".to_owned(), 1, move |tx| tx.own(&owner)).await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    /// Writes the row of numbers as it is: a full disk, a file that cannot be written to or is gone, and a lock that is
    /// held show in nothing less.
    async fn ready(&self) -> Result<()> {
        self.write("write to the store".to_owned(), 0, |tx| {
            tx.conn.execute(include_str!("sql/touch_store.sql"), [])?;
            Ok(())
        })
        .await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.readers.read("check the file", |tx| tx.check()).await
    }
}
