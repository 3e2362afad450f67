//! The store's methods, each a request.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use tokio::sync::broadcast;
use windlass::flow::{Change, ControlEdit, ControlRecord, GateName, KeyRecord};
use windlass::job::{AttemptRecord, Explanation, LeaseKey, LogLine, Settlement, Stale};
use windlass::schedule::ScheduleRecord;
use windlass::store::{
    ActRecord, Announced, CALL_MAX, ClaimRequest, Claims, Counted, Cursor, Extended, FaultGroup, FaultQuery, Filter,
    Inserted, JobEvent, KeyQuery, LOOKED_MAX as STORE_LOOKED_MAX, ListQuery, Observation, Operated, Operation, Order,
    PAGE_MAX, Page, QueueRecord, Sample, SampleStep, Save, ScheduleEdit, ScheduleEdited, Settled, Store, Target,
    Upkeep, UpkeepReport, Wake, WorkerEdit, WorkerRecord, WorkerReport, WorkflowQuery,
};
use windlass::workflow::{Submission, WorkflowRecord};
use windlass::{Error, JobId, JobRecord, JobType, QueueName, Result, Timestamp, WorkflowId};

use super::HttpStore;
use super::call::Call;
use crate::wire;

/// How many jobs are asked for in one request: their payloads come along.
const FIND_MAX: usize = 1000;
/// How far the server counts at most.
const CAP_MAX: u64 = 1_000_000_000;
/// How many rows the server looks at for it at most.
const LOOKED_MAX: u64 = 100_000;

#[async_trait]
impl Store for HttpStore {
    fn kind(&self) -> &'static str {
        "http"
    }

    async fn now(&self) -> Result<Timestamp> {
        let answer: wire::Now = self.get("read the store's time", &["time"]).answer().await?;
        Ok(answer.now)
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        let count = submission.jobs().len();
        let jobs = wire::NewJob::of_specs(submission.jobs());
        let answer: wire::InsertedBatch = match submission.workflow_name() {
            Some(name) => {
                let workflow = wire::NewWorkflow { name: name.to_owned(), jobs };
                self.write("start a workflow", Method::POST, &["workflows"]).json(&workflow)?.answer().await?
            }
            None => {
                let call = self.write("enqueue jobs", Method::POST, &["jobs", "batch"]);
                call.json(&wire::Batch { jobs })?.answer().await?
            }
        };
        answer.into_stored(count)
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        let claim = wire::Claim::from(request);
        if claim.max == 0 || claim.queues.is_empty() {
            return Ok(Claims::default());
        }
        let call = self.write("claim jobs", Method::POST, &["claims"]).json(&claim)?;
        let answer: wire::ClaimAnswer = call.answer().await?;
        let jobs = answer.jobs.into_iter().map(wire::Job::into_claimed).collect::<Result<_>>()?;
        Ok(Claims { jobs, again_in: answer.again_in.map(|again_in| again_in.0) })
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        let mut answers = Vec::with_capacity(leases.len());
        for some in leases.chunks(CALL_MAX) {
            let leases = some.iter().map(|key| wire::HeldLease::from(*key)).collect();
            let extend = wire::Extend { leases, lease: lease_time.map(wire::Span) };
            let call = self.write("extend leases", Method::POST, &["leases", "extend"]).json(&extend)?;
            let answer: wire::ExtendAnswer = call.answer().await?;
            answers.extend(counted(some.len(), answer.leases)?.into_iter().map(Extended::from));
        }
        Ok(answers)
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        let mut answers = Vec::with_capacity(saves.len());
        for some in saves.chunks(CALL_MAX) {
            let saves = wire::Saves { saves: some.iter().map(wire::Save::from).collect() };
            let call = self.write("save under leases", Method::POST, &["leases", "saves"]).json(&saves)?;
            let answer: wire::SavesAnswer = call.answer().await?;
            let saved = |saved: wire::Saved| saved.stale.map_or(Ok(()), Err);
            answers.extend(counted(some.len(), answer.saved)?.into_iter().map(saved));
        }
        Ok(answers)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let mut answers = Vec::with_capacity(settlements.len());
        for some in settlements.chunks(CALL_MAX) {
            let settle = wire::Settle { settlements: some.iter().map(wire::Settlement::of).collect() };
            let call = self.write("settle leases", Method::POST, &["leases", "settle"]).json(&settle)?;
            let answer: wire::SettleAnswer = call.answer().await?;
            for settled in counted(some.len(), answer.settled)? {
                answers.push(settled.into_stored()?);
            }
        }
        Ok(answers)
    }

    async fn own(&self, owner: &str) -> Result<()> {
        let owner = wire::Owner { owner: owner.to_owned() };
        self.write("mark the store", Method::POST, &["owner"]).json(&owner)?.done().await
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        if !self.asks_for_upkeep {
            return Ok(UpkeepReport::default());
        }
        let call = self.write("do a step of upkeep", Method::POST, &["upkeep"]).json(&wire::Upkeep::from(request))?;
        let report: wire::UpkeepReport = call.answer().await?;
        Ok(report.into())
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        let mut distinct = HashSet::with_capacity(ids.len());
        let mut asked: Vec<JobId> = ids.iter().copied().filter(|id| distinct.insert(*id)).collect();
        let mut found: HashMap<JobId, JobRecord> = HashMap::with_capacity(asked.len());
        while !asked.is_empty() {
            let later = asked.split_off(asked.len().min(FIND_MAX));
            let call = self.write("find jobs", Method::POST, &["jobs", "find"]).reading();
            let answer: wire::FoundJobs = call.json(&wire::JobIds { ids: asked.clone() })?.answer().await?;
            // Without this a server that answers for none would be asked for ever.
            let looked_up = asked.len().saturating_sub(answer.rest.len()).max(1);
            for job in counted(looked_up, answer.items)?.into_iter().flatten() {
                let job = JobRecord::try_from(job)?;
                found.insert(job.id, job);
            }
            asked = answer.rest;
            asked.extend(later);
        }
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        let call = filtered(self.get("list jobs", &["jobs"]), &query.filter);
        let order = match query.order {
            Order::Newest => None,
            Order::Ended => Some("ended"),
            Order::Due => Some("due"),
            Order::Claim => Some("claim"),
        };
        let call = call.maybe("order", order);
        let call =
            call.maybe("looked", (query.looked_max < STORE_LOOKED_MAX).then(|| query.looked_max.max(1).to_string()));
        let page: wire::JobPage = paged(call, query.after.as_ref(), query.limit).answer().await?;
        let items: Result<Vec<_>> = page.items.into_iter().map(JobRecord::try_from).collect();
        let (items, looked) = (items?, page.looked.map(|looked| usize::try_from(looked.jobs).unwrap_or(usize::MAX)));
        Ok(Page { looked: looked.unwrap_or(items.len()), items, next: page.next_cursor.map(Cursor) })
    }

    async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Result<Counted> {
        if cap == 0 || looked_max == 0 {
            return Ok(Counted::new(0, 0, true));
        }
        let call = filtered(self.get("count jobs", &["jobs", "count"]), filter);
        let call = call.param("cap", cap.min(CAP_MAX).to_string());
        let answer: wire::Count = call.param("looked", looked_max.min(LOOKED_MAX).to_string()).answer().await?;
        Ok(Counted::new(answer.count, answer.looked, answer.capped))
    }

    async fn faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>> {
        let call = self
            .get("group failed jobs", &["errors"])
            .maybe("state", query.retrying.then_some("retrying"))
            .maybe("queue", query.queue.as_ref().map(QueueName::as_str))
            .maybe("type", query.job_type.as_ref().map(windlass::JobType::as_str))
            .maybe("cursor", query.after.as_ref().map(|cursor| cursor.0.as_str()))
            .param("limit", query.groups_max().to_string());
        let page: wire::ErrorPage = call.answer().await?;
        let items: Result<Vec<_>> = page.items.into_iter().map(FaultGroup::try_from).collect();
        Ok(Page::new(items?, page.next_cursor.map(Cursor)))
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        let call = self.get("list attempts", &["jobs", &job.to_string(), "attempts"]);
        let answer: wire::Attempts = call.answer().await?;
        answer.items.into_iter().map(AttemptRecord::try_from).collect()
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        let call = self.get("list log lines", &["jobs", &job.to_string(), "logs"]);
        let answer: wire::Logs = call.answer().await?;
        Ok(answer.items.into_iter().map(LogLine::from).collect())
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        let call = self.get("explain a job", &["jobs", &job.to_string(), "explain"]);
        let answer: wire::Explanation = call.answer().await?;
        answer.try_into()
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        let call = self.get("list events", &["events", "page"]);
        let page: wire::EventPage = paged(call, after, limit).answer().await?;
        let items: Result<Vec<_>> = page.items.into_iter().map(JobEvent::try_from).collect();
        Ok(Page::new(items?, page.next_cursor.map(Cursor)))
    }

    async fn observe(&self, ends_from: Option<Timestamp>) -> Result<Observation> {
        let call = self.get("read the numbers of lanes", &["lanes"]);
        let lanes: wire::Lanes = call.maybe("ends_after", ends_from.map(|at| at.to_string())).answer().await?;
        lanes.try_into()
    }

    async fn put_sample(&self, step: SampleStep, sample: &Sample) -> Result<()> {
        let sample = wire::NewSample { step: step.every().as_secs(), sample: sample.into() };
        self.write("keep a sample", Method::POST, &["samples"]).json(&sample)?.done().await
    }

    async fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Result<Vec<Sample>> {
        let call = self.get("read samples", &["samples"]).param("step", step.every().as_secs().to_string());
        let call = call.param("from", from.to_string()).param("before", before.to_string());
        let samples: wire::Samples = call.answer().await?;
        samples.items.into_iter().map(Sample::try_from).collect()
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        let (limit, cursor) = match &operation.target {
            Target::Jobs(_) => (PAGE_MAX, None),
            Target::Matching { limit, after, .. } => ((*limit).clamp(1, PAGE_MAX), after.clone()),
        };
        let step =
            wire::Step { operation: wire::NewOperation::of(operation)?, limit, cursor: cursor.map(|cursor| cursor.0) };
        let call = self.write("act on jobs", Method::POST, &["operations", "step"]);
        let answer: wire::Operated = call.maybe("by", operation.by.as_deref()).json(&step)?.answer().await?;
        Ok(answer.into())
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        let page: wire::ActPage = paged(self.get("list acts", &["acts"]), after, limit).answer().await?;
        let items = page.items.into_iter().map(ActRecord::from).collect();
        Ok(Page::new(items, page.next_cursor.map(Cursor)))
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        let mut queues = Vec::new();
        let mut after = None;
        loop {
            let call = paged(self.get("list queues", &["queues"]), after.as_ref(), PAGE_MAX);
            let page: wire::QueuePage = call.answer().await?;
            for queue in page.items {
                queues.push(QueueRecord::try_from(queue)?);
            }
            after = page.next_cursor.map(Cursor);
            if after.is_none() {
                return Ok(queues);
            }
        }
    }

    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Result<Option<ControlRecord>> {
        let queue = edit.queue.as_str();
        let call = |method, path: &[&str]| {
            let path = [&["queues", queue], path].concat();
            self.write("control a queue", method, &path).maybe("by", by)
        };
        let held = |time: &Option<Duration>, job_type: Option<&JobType>| wire::HoldGate {
            time: time.map(wire::Span::from),
            job_type: job_type.map(ToString::to_string),
        };
        let call = match &edit.change {
            Change::Put { control, version, from_code } => {
                let body = wire::Control::of(control, *from_code);
                call(Method::PUT, &["control"]).if_match(*version).json(&body)?
            }
            Change::Pause(paused) => {
                let word = if *paused { "pause" } else { "resume" };
                call(Method::POST, &[word]).json(&wire::Why { reason: edit.why.clone().unwrap_or_default() })?
            }
            Change::Clear { version } => call(Method::DELETE, &["control"]).if_match(*version),
            Change::PutKey { key, limit } => call(Method::PUT, &["keys", key]).json(&wire::FlowLimit::from(*limit))?,
            Change::ClearKey { key } => call(Method::DELETE, &["keys", key]),
            Change::Hold { gate: GateName::Key(key), time } => {
                call(Method::POST, &["keys", key, "hold"]).json(&held(time, None))?
            }
            Change::Hold { gate: GateName::Queue, time } => call(Method::POST, &["hold"]).json(&held(time, None))?,
            Change::Hold { gate: GateName::Type(job_type), time } => {
                call(Method::POST, &["hold"]).json(&held(time, Some(job_type)))?
            }
            Change::Resume { key } => call(Method::POST, &["keys", key, "resume"]),
        };
        call.done().await?;
        self.controlled(&edit.queue).await
    }

    async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>> {
        let call = self.get("read the control of a queue", &["queues", queue.as_str(), "control"]);
        match call.answer::<wire::Controlled>().await {
            Ok(controlled) => Ok(Some(controlled.try_into()?)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn keys(&self, query: &KeyQuery) -> Result<Page<KeyRecord>> {
        let queue = query.queue.as_str();
        if let Some(key) = &query.key {
            let found = self.get("read a key", &["queues", queue, "keys", key]).answer::<wire::FlowKey>().await;
            let items = match found {
                Ok(found) => vec![KeyRecord::try_from(found)?],
                Err(Error::NotFound { what: "key", .. }) => Vec::new(),
                Err(error) => return Err(error),
            };
            return Ok(Page::new(items, None));
        }
        let call = paged(self.get("list keys", &["queues", queue, "keys"]), query.after.as_ref(), query.limit);
        let page: wire::FlowKeyPage = call.maybe("blocked", query.blocked.then_some("true")).answer().await?;
        let items = page.items.into_iter().map(KeyRecord::try_from).collect::<Result<_>>()?;
        Ok(Page::new(items, page.next_cursor.map(Cursor)))
    }

    async fn announce(&self, worker: &WorkerReport) -> Result<Announced> {
        let report = wire::WorkerReport::from(worker);
        let call = self.write("announce a worker", Method::POST, &["workers"]);
        let announced: wire::Announced = call.json(&report)?.answer().await?;
        Ok(Announced::new(announced.draining))
    }

    async fn edit_worker(&self, edit: &WorkerEdit, by: Option<&str>) -> Result<WorkerRecord> {
        let path = ["workers", edit.worker.as_str(), if edit.draining { "drain" } else { "resume" }];
        let call = self.write("tell a worker something", Method::POST, &path).maybe("by", by);
        let told: wire::Worker =
            call.json(&wire::Why { reason: edit.why.clone().unwrap_or_default() })?.answer().await?;
        told.try_into()
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        let answer: wire::Workers = self.get("list workers", &["workers"]).answer().await?;
        answer.items.into_iter().map(WorkerRecord::try_from).collect()
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        let call = |method, path: &[&str]| self.write("edit a schedule", method, path).maybe("by", by);
        let call = match edit {
            ScheduleEdit::Create(spec) => call(Method::POST, &["schedules"]).json(&wire::NewSchedule::from(spec))?,
            ScheduleEdit::Put { spec, version } => {
                call(Method::PUT, &["schedules", &spec.name]).if_match(*version).json(&wire::NewSchedule::from(spec))?
            }
            ScheduleEdit::Pause(name) => call(Method::POST, &["schedules", name, "pause"]),
            ScheduleEdit::Resume(name) => call(Method::POST, &["schedules", name, "resume"]),
            ScheduleEdit::Delete(name) => call(Method::DELETE, &["schedules", name]),
            ScheduleEdit::Trigger(name) => {
                let triggered: wire::Triggered = call(Method::POST, &["schedules", name, "trigger"]).answer().await?;
                return triggered.try_into();
            }
        };
        let schedule: wire::Schedule = call.answer().await?;
        Ok(ScheduleEdited { schedule: schedule.try_into()?, job: None })
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        let mut schedules = Vec::new();
        let mut after = after.map(|after| Cursor(after.to_owned()));
        // The server cuts a page whose payloads are large; this method's answer is short only at the end.
        loop {
            let call = paged(self.get("list schedules", &["schedules"]), after.as_ref(), limit - schedules.len());
            let page: wire::SchedulePage = call.answer().await?;
            for schedule in page.items {
                schedules.push(ScheduleRecord::try_from(schedule)?);
            }
            after = page.next_cursor.map(Cursor);
            if after.is_none() || schedules.len() >= limit {
                return Ok(schedules);
            }
        }
    }

    async fn workflows(&self, query: &WorkflowQuery) -> Result<Page<WorkflowRecord>> {
        match query {
            WorkflowQuery::Ids(ids) => self.find_workflows(ids).await,
            WorkflowQuery::Newest { limit, after } => {
                let call = paged(self.get("list workflows", &["workflows"]), after.as_ref(), *limit);
                let page: wire::WorkflowPage = call.answer().await?;
                let items = page.items.into_iter().map(WorkflowRecord::from).collect();
                Ok(Page::new(items, page.next_cursor.map(Cursor)))
            }
        }
    }

    /// A client of its own: one that was made on another runtime stops when that one is blocked.
    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
        let own = HttpStore::connect_with(self.url(), self.inner.token.clone(), self.inner.tls.clone())?;
        Ok(Some(Arc::new(own)))
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.subscribe()
    }

    async fn check(&self) -> Result<Vec<String>> {
        let findings: wire::Findings = self.get("check the store", &["check"]).answer().await?;
        Ok(findings.items)
    }
}

/// Refuses an answer that is not for as many things as were asked.
fn counted<T>(asked: usize, answered: Vec<T>) -> Result<Vec<T>> {
    if asked == answered.len() {
        return Ok(answered);
    }
    Err(Error::store("read the server's answer", "it is not for as many things as were asked"))
}

fn paged<'a>(call: Call<'a>, after: Option<&Cursor>, limit: usize) -> Call<'a> {
    let call = call.maybe("cursor", after.map(|cursor| cursor.0.as_str()));
    call.param("limit", limit.clamp(1, PAGE_MAX).to_string())
}

fn filtered<'a>(call: Call<'a>, filter: &Filter) -> Call<'a> {
    let call = filter.states.iter().fold(call, |call, state| call.param("state", wire_name(*state)));
    let call = filter.tags.iter().fold(call, |call, (key, value)| call.param(&format!("tag.{key}"), value));
    call.maybe("queue", filter.queue.as_ref().map(QueueName::as_str))
        .maybe("type", filter.job_type.as_ref().map(windlass::JobType::as_str))
        .maybe("workflow", filter.workflow.map(|id| id.to_string()))
        .maybe("schedule", filter.schedule.as_deref())
        .maybe("correlation_id", filter.correlation_id.as_deref())
        .maybe("code", filter.code.as_deref())
        .maybe("created_after", filter.created_from.map(|at| at.to_string()))
        .maybe("created_before", filter.created_before.map(|at| at.to_string()))
        .maybe("ended_before", filter.ended_before.map(|at| at.to_string()))
        .maybe("ended_after", filter.ended_from.map(|at| at.to_string()))
        .maybe("changed_before", filter.changed_before.map(|at| at.to_string()))
        .maybe("fingerprint", filter.fingerprint.map(|fingerprint| fingerprint.to_string()))
        .maybe("worker", filter.worker.as_ref().map(ToString::to_string))
        .maybe("key", filter.key.as_deref())
        .maybe("text", filter.text.as_deref())
}

fn wire_name(state: windlass::State) -> String {
    state.as_str().to_ascii_lowercase()
}

impl HttpStore {
    async fn find_workflows(&self, ids: &[WorkflowId]) -> Result<Page<WorkflowRecord>> {
        // The server answers for each id once.
        let mut distinct = HashSet::with_capacity(ids.len());
        let asked: Vec<WorkflowId> = ids.iter().copied().filter(|id| distinct.insert(*id)).collect();
        let mut found: HashMap<WorkflowId, WorkflowRecord> = HashMap::with_capacity(asked.len());
        for some in asked.chunks(CALL_MAX) {
            let asked = wire::WorkflowIds { ids: some.to_vec() };
            let call = self.write("find workflows", Method::POST, &["workflows", "find"]).reading().json(&asked)?;
            let answer: wire::FoundWorkflows = call.answer().await?;
            let workflows = counted(some.len(), answer.items)?.into_iter().flatten().map(WorkflowRecord::from);
            found.extend(workflows.map(|workflow| (workflow.id, workflow)));
        }
        Ok(Page::new(ids.iter().filter_map(|id| found.get(id).cloned()).collect(), None))
    }
}
