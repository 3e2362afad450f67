//! The store in memory: the readable reference, and the store for tests. It forgets everything when it is dropped.
//!
//! One mutex around `Tables`; every method takes it, lets time pass (what fell due becomes SCHEDULED), and does one
//! thing. The decisions are the pure core's and those of [`rules`], to which `working` is the way. The
//! other files follow the pipeline: `insert`, `lease` (claim, extend, save), `control` and `strands` (flow control), `upkeep`, `operate`, `read`, `schedules`.

mod check;
mod control;
#[cfg(test)]
mod control_tests;
mod insert;
mod lease;
mod operate;
mod read;
mod schedules;
mod strands;
mod tables;
mod upkeep;
mod working;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;

use self::tables::Tables;
use super::Store;
use super::answer::*;
use super::faults::FaultGroup;
use super::observe::{Observation, Sample, SampleStep};
use super::request::*;
use super::rewrite::Rewrite;
use super::rules;
use crate::clock::{Clock, LAPSING, SystemClock};
use crate::error::Result;
use crate::flow::{ControlEdit, ControlRecord, KeyRecord};
use crate::job::{AttemptRecord, Explanation, JobId, JobRecord, LeaseKey, LogLine, QueueName, Settlement, Stale};
use crate::schedule::ScheduleRecord;
use crate::time::Timestamp;
use crate::workflow::{Submission, WorkflowRecord};

/// How many hints a slow listener may fall behind; it is then told so, and looks for itself.
const WAKES_KEPT: usize = 1024;

/// Jobs in memory, for tests: complete and quick, not durable.
pub struct MemoryStore {
    tables: Mutex<Tables>,
    clock: Arc<dyn Clock>,
    wakes: broadcast::Sender<Wake>,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    pub fn new() -> Self {
        MemoryStore::with_clock(SystemClock::default())
    }

    /// An empty store on this clock.
    pub fn with_clock(clock: impl Clock) -> Self {
        let (wakes, _) = broadcast::channel(WAKES_KEPT);
        MemoryStore { tables: Mutex::new(Tables::new()), clock: Arc::new(clock), wakes }
    }

    /// The tables, with everything that has fallen due by now in its place.
    fn tables(&self) -> (MutexGuard<'_, Tables>, Timestamp) {
        let mut tables = self.tables.lock().expect("no method panics while it holds the tables");
        let now = self.clock.now();
        tables.fence = self.clock.fence(now);
        tables.let_time_pass(now);
        (tables, now)
    }

    /// Runs a change and passes on the hints it left, after the lock is free again.
    fn change<T>(&self, change: impl FnOnce(&mut Tables, Timestamp) -> T) -> T {
        let (mut tables, now) = self.tables();
        let answer = change(&mut tables, now);
        let hints = tables.take_hints();
        drop(tables);
        if self.wakes.receiver_count() == 0 {
            return answer;
        }
        for hint in hints {
            // Nobody listening is no error.
            let _ = self.wakes.send(hint);
        }
        answer
    }

    fn read<T>(&self, read: impl FnOnce(&Tables, Timestamp) -> T) -> T {
        let (tables, now) = self.tables();
        read(&tables, now)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", &self.clock).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(self.clock.now())
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        self.change(|tables, now| tables.insert(&submission, now))
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        Ok(self.change(|tables, now| tables.claim(request, now)))
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        Ok(self.change(|tables, now| leases.iter().map(|key| tables.extend(key, lease_time, now)).collect()))
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        Ok(self.change(|tables, now| saves.iter().map(|save| tables.save(save, now)).collect()))
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        self.change(|tables, now| {
            settlements.iter().map(|one| tables.run(now, |set| rules::settle(set, one))).collect()
        })
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        self.change(|tables, now| {
            if let Some(pulse) = self.clock.pulse() {
                if let Some(absence) = pulse.beat(now, |last| tables.latest_end(now.plus(LAPSING), last)) {
                    absence.log();
                    tables.record_act(rules::absence(&absence));
                }
                tables.fence = self.clock.fence(now);
            }
            tables.upkeep(request, now)
        })
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        Ok(self
            .read(|tables, _| ids.iter().map(|id| tables.by_id(*id).map(|stored| stored.entry.job.clone())).collect()))
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        self.read(|tables, _| tables.list(query))
    }

    async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Result<Counted> {
        Ok(self.read(|tables, _| tables.count(filter, cap, looked_max)))
    }

    async fn faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>> {
        self.read(|tables, now| tables.faults(query, now))
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        self.read(|tables, _| tables.attempts(job))
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        self.read(|tables, _| tables.logs(job))
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.read(|tables, now| tables.explain(job, now))
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        self.read(|tables, _| tables.events(after, limit))
    }

    async fn observe(&self, ends_from: Option<Timestamp>) -> Result<Observation> {
        Ok(self.read(|tables, now| tables.observe(ends_from, now)))
    }

    async fn put_sample(&self, step: SampleStep, sample: &Sample) -> Result<()> {
        self.change(|tables, now| tables.put_sample(step, sample, now));
        Ok(())
    }

    async fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Result<Vec<Sample>> {
        Ok(self.read(|tables, _| tables.samples(step, from, before)))
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        self.change(|tables, now| tables.operate(operation, now))
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        self.read(|tables, _| tables.acts(after, limit))
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        Ok(self.read(|tables, _| tables.queues()))
    }

    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Result<Option<ControlRecord>> {
        self.change(|tables, now| tables.control(edit, by, now))
    }

    async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>> {
        Ok(self.read(|tables, _| tables.controlled(queue).map(|known| known.record.clone())))
    }

    async fn keys(&self, query: &KeyQuery) -> Result<Page<KeyRecord>> {
        self.read(|tables, now| tables.keys(query, now))
    }

    async fn announce(&self, worker: &WorkerReport) -> Result<Announced> {
        Ok(self.change(|tables, now| tables.announce(worker, now)))
    }

    async fn edit_worker(&self, edit: &WorkerEdit, by: Option<&str>) -> Result<WorkerRecord> {
        self.change(|tables, now| tables.edit_worker(edit, by, now))
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        Ok(self.read(|tables, now| tables.live_workers(now).cloned().collect()))
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        self.change(|tables, now| tables.edit_schedule(edit, by, now))
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        Ok(self.read(|tables, _| tables.list_schedules(after, limit)))
    }

    async fn workflows(&self, query: &WorkflowQuery) -> Result<Page<WorkflowRecord>> {
        self.read(|tables, _| match query {
            WorkflowQuery::Ids(ids) => {
                Ok(Page::new(ids.iter().filter_map(|id| tables.workflow(*id).cloned()).collect(), None))
            }
            WorkflowQuery::Newest { limit, after } => tables.list_workflows(after.as_ref(), *limit),
        })
    }

    async fn rewrite(&self, rewrites: &[Rewrite]) -> Result<Vec<bool>> {
        Ok(self.change(|tables, _| rewrites.iter().map(|one| tables.rewrite(one)).collect()))
    }

    async fn own(&self, owner: &str) -> Result<()> {
        self.change(|tables, _| tables.own(owner))
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(self.read(|tables, now| tables.contradictions(now)))
    }
}
