//! A fourth store, built on nothing but what the crate shows: plain maps behind one lock, no index but the order of ids.
//!
//! It is here to be read by those who write their own (docs/guides/writing-a-store.md follows it), and to show what the
//! rules in `windlass::store::rules` leave for a store to do: load and write (`working`), claim and keep leases (`lease`),
//! let jobs through the gates of a controlled queue (`control`), find what is due (`upkeep`), and read (`read`). The conformance suite holds it to the contract.

mod control;
mod lease;
mod read;
mod upkeep;
mod working;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use windlass::clock::{Clock, LAPSING};
use windlass::flow::{ControlEdit, ControlRecord, KeyRecord};
use windlass::job::{
    AttemptRecord, Explanation, JobId, JobRecord, LeaseKey, LeaseToken, LogLine, QueueName, Settlement, Stale, WorkerId,
};
use windlass::schedule::ScheduleRecord;
use windlass::store::rules::{self, Edges, Entry, KeptKey};
use windlass::store::*;
use windlass::workflow::{Origin, Sequence, Submission, WorkflowRecord};
use windlass::{JobType, ManualClock, Result, Timestamp};

/// Jobs in plain maps.
#[derive(Debug)]
pub(crate) struct MapStore {
    tables: Mutex<Tables>,
    clock: ManualClock,
    wakes: broadcast::Sender<Wake>,
}

/// A job, and what rules do not ask for.
#[derive(Clone, Debug)]
struct Stored {
    entry: Entry,
    closed: Vec<(LeaseToken, AttemptRecord)>,
    logs: Vec<LogLine>,
}

/// Everything there is.
#[derive(Debug, Default)]
struct Tables {
    jobs: BTreeMap<Sequence, Stored>,
    ids: BTreeMap<JobId, Sequence>,
    edges: Edges,
    /// What idempotency keys stand for, kept even when the jobs are gone.
    keys: BTreeMap<(String, String), KeptKey>,
    /// The queues that have or had jobs, and whether each is paused.
    queues: BTreeMap<QueueName, bool>,
    controls: BTreeMap<QueueName, control::Controlled>,
    workflows: BTreeMap<Sequence, WorkflowRecord>,
    workers: BTreeMap<WorkerId, WorkerRecord>,
    schedules: BTreeMap<String, ScheduleRecord>,
    acts: BTreeMap<u64, ActRecord>,
    /// The numbers of lanes that only grow; what stands in each state is counted when somebody asks.
    lanes: BTreeMap<(QueueName, JobType), LaneRecord>,
    samples: BTreeMap<(SampleStep, Timestamp), Sample>,
    events: BTreeMap<u64, JobEvent>,
    last: Sequence,
    wakes: Vec<Wake>,
    /// The moment that leases are compared with.
    fence: Option<Timestamp>,
}

impl MapStore {
    /// An empty store on this clock.
    pub(crate) fn new(clock: ManualClock) -> Self {
        let (wakes, _) = broadcast::channel(1024);
        MapStore { tables: Mutex::default(), clock, wakes }
    }

    /// Does one thing under the lock, at one moment, and passes its hints on afterwards.
    fn with<T>(&self, act: impl FnOnce(&mut Tables, Timestamp) -> T) -> T {
        let mut tables = self.tables.lock().expect("no method panics while it holds the tables");
        let now = self.clock.now();
        tables.fence = Some(self.clock.fence(now));
        tables.let_time_pass(now);
        let answer = act(&mut tables, now);
        let wakes = std::mem::take(&mut tables.wakes);
        drop(tables);
        for wake in wakes {
            // Nobody listening is no error.
            let _ = self.wakes.send(wake);
        }
        answer
    }
}

impl Tables {
    fn by_id(&self, id: JobId) -> Option<&Stored> {
        self.jobs.get(self.ids.get(&id)?)
    }

    fn job_mut(&mut self, sequence: Sequence) -> &mut Stored {
        self.jobs.get_mut(&sequence).expect("it was found by its number")
    }

    fn draw(&mut self) -> Sequence {
        self.last += 1;
        self.last
    }

    fn insert(&mut self, submission: &Submission, now: Timestamp) -> Result<Inserted> {
        let workflow = submission.workflow_name().map(|_| new_workflow_id());
        let origin = Origin { workflow, ..Origin::default() };
        let jobs = self.run(now, |set| rules::insert(set, submission, &origin))?;
        if let Some((id, name)) = workflow.zip(submission.workflow_name()) {
            let sequence = self.draw();
            self.workflows.insert(sequence, WorkflowRecord::new(id, name, now));
        }
        Ok(Inserted { jobs, workflow })
    }

    fn operate(&mut self, operation: &Operation, now: Timestamp) -> Result<Operated> {
        if let Act::Edit(edit) = &operation.act {
            edit.check()?;
        }
        let mut answer = Operated::default();
        let by_id = matches!(operation.target, Target::Jobs(_));
        let ids = match &operation.target {
            Target::Jobs(ids) => ids.clone(),
            Target::Matching { filter, limit, after } => {
                let (ids, next) = self.matching(filter, *limit, after.as_ref())?;
                answer.next = next;
                ids
            }
        };
        for id in ids {
            match self.run(now, |set| rules::act_on(set, id, operation)) {
                Ok(()) => answer.changed += 1,
                Err(error) if by_id => answer.refused.push((id, error)),
                // It matched before an earlier act of this call changed it.
                Err(_) => {}
            }
        }
        if let Some(act) = rules::act_of(operation, answer.changed, now) {
            self.record_act(act);
        }
        Ok(answer)
    }

    fn set_paused(&mut self, edit: &ControlEdit, paused: bool, by: Option<&str>, now: Timestamp) {
        if self.queues.insert(edit.queue.clone(), paused).unwrap_or(false) != paused {
            let (act, wake) = rules::paused(edit, paused, by, now);
            self.record_act(act);
            self.wakes.push(wake);
        }
    }

    fn record_act(&mut self, act: ActRecord) {
        let number = self.acts.last_key_value().map_or(1, |(number, _)| number + 1);
        self.acts.insert(number, act);
    }

    fn announce(&mut self, report: &WorkerReport, now: Timestamp) -> Announced {
        let worker = WorkerRecord::announced(report, self.workers.get(&report.id), now);
        let announced = Announced::new(worker.draining);
        self.workers.insert(report.id.clone(), worker);
        announced
    }

    fn edit_worker(&mut self, edit: &WorkerEdit, by: Option<&str>, now: Timestamp) -> Result<WorkerRecord> {
        let act = rules::told(self.workers.get(&edit.worker), edit, by, now)?;
        if let Some((act, wake)) = act {
            self.record_act(act);
            self.wakes.push(wake);
        }
        let worker = self.workers.get_mut(&edit.worker).expect("it lives");
        worker.draining = edit.draining;
        Ok(worker.clone())
    }
}

#[async_trait]
impl Store for MapStore {
    fn kind(&self) -> &'static str {
        "maps"
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(self.clock.now())
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        self.with(|tables, now| tables.insert(&submission, now))
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        Ok(self.with(|tables, now| tables.claim(request, now)))
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        Ok(self.with(|tables, now| leases.iter().map(|key| tables.extend(*key, lease_time, now)).collect()))
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        Ok(self.with(|tables, now| saves.iter().map(|save| tables.save(save, now)).collect()))
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        self.with(|tables, now| settlements.iter().map(|one| tables.run(now, |set| rules::settle(set, one))).collect())
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        self.with(|tables, now| {
            if let Some(pulse) = self.clock.pulse() {
                if let Some(absence) = pulse.beat(now, |last| tables.latest_end(now.plus(LAPSING), last)) {
                    tables.record_act(rules::absence(&absence));
                }
                tables.fence = Some(self.clock.fence(now));
            }
            tables.upkeep(request, now)
        })
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        Ok(self.with(|tables, _| ids.iter().map(|id| Some(tables.by_id(*id)?.entry.job.clone())).collect()))
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        self.with(|tables, _| tables.list(query))
    }

    async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Result<Counted> {
        Ok(self.with(|tables, _| tables.count(filter, cap, looked_max)))
    }

    async fn faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>> {
        self.with(|tables, now| tables.faults(query, now))
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        self.with(|tables, _| tables.attempts(job))
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        self.with(|tables, _| Ok(tables.known(job)?.logs.clone()))
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.with(|tables, now| tables.explain(job, now))
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        self.with(|tables, _| tables.events(after, limit))
    }

    async fn observe(&self, ends_from: Option<Timestamp>) -> Result<Observation> {
        Ok(self.with(|tables, now| tables.observe(ends_from, now)))
    }

    async fn put_sample(&self, step: SampleStep, sample: &Sample) -> Result<()> {
        self.with(|tables, now| {
            tables.samples.entry((step, sample.at)).or_insert_with(|| sample.clone());
            tables.samples.retain(|(kept, at), _| *kept != step || now.since(*at) <= step.kept());
        });
        Ok(())
    }

    async fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Result<Vec<Sample>> {
        let wanted = |(kept, at): &(SampleStep, Timestamp)| *kept == step && *at >= from && *at < before;
        Ok(self.with(|tables, _| {
            let all = tables.samples.iter().filter(|(key, _)| wanted(key)).map(|(_, sample)| sample.clone());
            let mut all: Vec<Sample> = all.collect();
            all.split_off(all.len().saturating_sub(SAMPLES_MAX))
        }))
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        self.with(|tables, now| tables.operate(operation, now))
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        self.with(|tables, _| tables.acts(after, limit))
    }

    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Result<Option<ControlRecord>> {
        self.with(|tables, now| tables.control(edit, by, now))
    }

    async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>> {
        Ok(self.with(|tables, _| tables.controls.get(queue).map(|known| known.record.clone())))
    }

    async fn keys(&self, query: &KeyQuery) -> Result<Page<KeyRecord>> {
        self.with(|tables, now| tables.keys(query, now))
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        Ok(self.with(|tables, _| tables.queues()))
    }

    async fn announce(&self, worker: &WorkerReport) -> Result<Announced> {
        Ok(self.with(|tables, now| tables.announce(worker, now)))
    }

    async fn edit_worker(&self, edit: &WorkerEdit, by: Option<&str>) -> Result<WorkerRecord> {
        self.with(|tables, now| tables.edit_worker(edit, by, now))
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        Ok(self.with(|tables, now| tables.live_workers(now)))
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        self.with(|tables, now| {
            let stored = tables.schedules.get(edit.name()).cloned();
            tables.run(now, |set| rules::edit_schedule(set, stored.as_ref(), edit, by))
        })
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        Ok(self.with(|tables, _| {
            let rest = tables
                .schedules
                .values()
                .filter(|schedule| after.is_none_or(|after| schedule.spec.name.as_str() > after));
            rest.take(limit).cloned().collect()
        }))
    }

    async fn workflows(&self, query: &WorkflowQuery) -> Result<Page<WorkflowRecord>> {
        self.with(|tables, _| match query {
            WorkflowQuery::Ids(ids) => Ok(Page::new(ids.iter().filter_map(|id| tables.workflow(*id)).collect(), None)),
            WorkflowQuery::Newest { limit, after } => tables.list_workflows(after.as_ref(), *limit),
        })
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    async fn check(&self) -> Result<Vec<String>> {
        Ok(self.with(|tables, _| tables.contradictions()))
    }
}
