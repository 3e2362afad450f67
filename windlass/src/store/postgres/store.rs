//! The store's trait, each method sent to the file that is named after it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use super::PostgresStore;
use super::fault::retrying;
use super::moving::Mover;
use super::turns::Caller;
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

/// Claims, and settlements, that a worker has under way at once: while one commits, the server works on the other.
const CALLS_AT_ONCE: usize = 2;

#[async_trait]
impl Store for PostgresStore {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn movable(&self) -> Option<Arc<dyn Movable>> {
        Some(Arc::new(Mover::new(Arc::clone(&self.inner))))
    }

    async fn now(&self) -> Result<Timestamp> {
        retrying("read the clock", || async {
            let link = self.inner.link(Caller::Reader).await?;
            self.inner.read_clock(&link).await
        })
        .await
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        self.inner.insert(&self.coalescer, submission).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        self.inner.give_back_unheard().await;
        retrying("claim jobs", || self.inner.claim(request)).await
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        retrying("extend leases", || self.inner.extend(leases, lease_time)).await
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        retrying("save under leases", || self.inner.save(saves)).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        self.inner.settle(settlements).await
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        retrying("do upkeep", || self.inner.upkeep(request)).await
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        retrying("find jobs", || self.inner.find(ids)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        retrying("list jobs", || self.inner.list(query)).await
    }

    async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Result<Counted> {
        retrying("count jobs", || self.inner.count(filter, cap, looked_max)).await
    }

    async fn faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>> {
        retrying("group dead jobs", || self.inner.faults(query)).await
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        retrying("list attempts", || self.inner.attempts(job)).await
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        retrying("list log lines", || self.inner.logs(job)).await
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        retrying("explain a job", || self.inner.explain(job)).await
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        retrying("list events", || self.inner.events(after, limit)).await
    }

    async fn observe(&self, ends_from: Option<Timestamp>) -> Result<Observation> {
        retrying("read the numbers of lanes", || self.inner.observe(ends_from)).await
    }

    async fn put_sample(&self, step: SampleStep, sample: &Sample) -> Result<()> {
        retrying("keep a sample", || self.inner.put_sample(step, sample)).await
    }

    async fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Result<Vec<Sample>> {
        retrying("read samples", || self.inner.samples(step, from, before)).await
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        if let Act::Edit(edit) = &operation.act {
            edit.check()?;
        }
        retrying("operate on jobs", || async {
            let mut tx = self.inner.transaction(Caller::Worker).await?;
            let operated = tx.operate(operation).await;
            tx.finish(operated).await
        })
        .await
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        retrying("list acts", || self.inner.acts(after, limit)).await
    }

    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Result<Option<ControlRecord>> {
        let Change::Pause(paused) = edit.change else {
            return retrying("control a queue", || self.inner.control(edit, by)).await;
        };
        retrying("pause or resume a queue", || async {
            let mut tx = self.inner.transaction(Caller::Worker).await?;
            let set = tx.set_paused(edit, paused, by).await;
            tx.finish(set).await
        })
        .await?;
        self.controlled(&edit.queue).await
    }

    async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>> {
        retrying("read the control of a queue", || self.inner.controlled(queue)).await
    }

    async fn keys(&self, query: &KeyQuery) -> Result<Page<KeyRecord>> {
        retrying("list keys", || self.inner.keys(query)).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        retrying("list queues", || self.inner.queues()).await
    }

    async fn announce(&self, worker: &WorkerReport) -> Result<Announced> {
        retrying("announce a worker", || self.inner.announce(worker)).await
    }

    async fn edit_worker(&self, edit: &WorkerEdit, by: Option<&str>) -> Result<WorkerRecord> {
        retrying("tell a worker something", || async {
            let mut tx = self.inner.transaction(Caller::Worker).await?;
            let edited = tx.edit_worker(edit, by).await;
            tx.finish(edited).await
        })
        .await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        retrying("list workers", || async {
            let link = self.inner.link(Caller::Reader).await?;
            self.inner.live_workers(&link).await
        })
        .await
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        retrying("edit a schedule", || async {
            let mut tx = self.inner.transaction(Caller::Worker).await?;
            let edited = tx.edit_schedule(edit, by).await;
            tx.finish(edited).await
        })
        .await
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        retrying("list schedules", || self.inner.schedules(after, limit)).await
    }

    async fn workflows(&self, query: &WorkflowQuery) -> Result<Page<WorkflowRecord>> {
        retrying("read workflows", || self.inner.workflows(query)).await
    }

    async fn rewrite(&self, rewrites: &[Rewrite]) -> Result<Vec<bool>> {
        retrying("rewrite what is stored", || self.inner.rewrite(rewrites)).await
    }

    async fn own(&self, owner: &str) -> Result<()> {
        retrying("mark the store", || async {
            let mut tx = self.inner.transaction(Caller::Worker).await?;
            let owned = tx.own(owner).await;
            tx.finish(owned).await
        })
        .await
    }

    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
        // The application's pool lends to them too, from the application's own runtime.
        if self.inner.lending.is_some() {
            return Ok(None);
        }
        // Connections live on the runtime that made them, so the heartbeats' runtime makes its own.
        let options = self.options.clone().connections(2).without_migrations().without_notifications();
        Ok(Some(Arc::new(PostgresStore::with(options).await?)))
    }

    fn calls_at_once(&self) -> usize {
        CALLS_AT_ONCE
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.inner.wakes.subscribe()
    }

    async fn ready(&self) -> Result<()> {
        self.inner.ready().await
    }

    async fn durability(&self) -> Result<Durability> {
        retrying("look at the server's settings", || self.inner.durability()).await
    }

    fn place(&self) -> Option<String> {
        Some(self.inner.hosts.describe())
    }

    async fn check(&self) -> Result<Vec<String>> {
        retrying("look for contradictions", || self.inner.check()).await
    }
}
