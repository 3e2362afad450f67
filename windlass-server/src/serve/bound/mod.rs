//! A store as a token sees it: where it is bound to queues or types, the jobs of others are not there.
//!
//! Each token but an admin's has an API of its own on such a store, so no route can forget to ask.

mod bounds;
mod hiding;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::broadcast;
use windlass::flow::{ControlEdit, ControlRecord, KeyRecord};
use windlass::job::{AttemptRecord, Explanation, LogLine, Settlement, Why};
use windlass::schedule::ScheduleRecord;
use windlass::store::{
    Act, ActRecord, Announced, ClaimRequest, Claims, Counted, Cursor, FaultGroup, FaultQuery, Filter, Inserted,
    JobEvent, KeyQuery, Layer, ListQuery, Observation, Operated, Operation, PAGE_MAX, Page, QueueRecord, Rewrite,
    Sample, SampleStep, ScheduleEdit, ScheduleEdited, Settled, Store, Target, Upkeep, UpkeepReport, Wake, WorkerEdit,
    WorkerRecord, WorkerReport, WorkflowQuery,
};
use windlass::workflow::{Submission, WorkflowRecord};
use windlass::{Error, JobId, JobRecord, QueueName, Result, Timestamp};

pub use self::bounds::Bounds;
use self::bounds::{narrowed, narrowed_wakes, narrowed_worker};
use self::hiding::{hide, hide_act, hide_options, hide_reason};
use crate::wire::HIDDEN;

/// What begins the names that are the system's own, such as the queue of webhooks.
const SYSTEM: &str = "windlass.";

/// The store of a token that is not an admin's.
#[derive(Debug)]
pub(in crate::serve) struct Bound {
    pub(in crate::serve) inner: Arc<dyn Store>,
    pub(in crate::serve) bounds: Bounds,
    /// Whether what may hold pieces of payloads is left out.
    pub(in crate::serve) hides: bool,
}

impl Bound {
    /// The job as the token may see it. The API leaves out the payload, the result and the checkpoint.
    fn shown(&self, mut job: JobRecord) -> JobRecord {
        if !self.hides {
            return job;
        }
        if let Some(failure) = &mut job.failure {
            hide(failure);
        }
        if let Some(progress) = &mut job.progress {
            progress.message = String::new();
        }
        if let Some(reason) = &mut job.reason {
            hide_reason(reason);
        }
        hide_options(&mut Arc::make_mut(&mut job.spec).options);
        job
    }

    /// Schedules as the token may see them. The API leaves out the payload of the template.
    fn shown_schedules(&self, mut schedules: Vec<ScheduleRecord>) -> Vec<ScheduleRecord> {
        if self.hides {
            schedules.iter_mut().for_each(|schedule| hide_options(&mut schedule.spec.job.options));
        }
        schedules
    }

    /// The filter as the token may use it: not to find out what is hidden from it.
    fn narrow(&self, filter: &Filter) -> Result<Filter> {
        if self.hides && (filter.text.is_some() || filter.key.is_some()) {
            let why = "text and idempotency keys are hidden from this token, as payloads are";
            return Err(Error::Unauthorized(why.to_owned()));
        }
        self.bounds.narrow(filter)
    }

    fn sees(&self, job: &JobRecord) -> bool {
        self.bounds.covers(&job.spec.queue, &job.spec.job_type)
    }

    /// Refuses a job that is not there for this token.
    async fn seen(&self, id: JobId) -> Result<()> {
        if self.bounds.is_empty() {
            return Ok(());
        }
        match self.inner.find(&[id]).await?.pop().flatten() {
            Some(job) if self.sees(&job) => Ok(()),
            _ => Err(Error::not_found("job", id.to_string())),
        }
    }

    /// The schedule of this name, also one that the token does not cover.
    async fn schedule(&self, name: &str) -> Result<Option<ScheduleRecord>> {
        let mut after: Option<String> = None;
        loop {
            let mut page = self.inner.schedules(after.as_deref(), PAGE_MAX).await?;
            if let Some(place) = page.iter().position(|schedule| schedule.spec.name == name) {
                return Ok(Some(page.swap_remove(place)));
            }
            match page.pop() {
                Some(last) if page.len() + 1 == PAGE_MAX => after = Some(last.spec.name),
                _ => return Ok(None),
            }
        }
    }

    /// Refuses a token what is of a whole queue, unless it is for all of it.
    fn whole_queue(&self, queue: &QueueName) -> Result<()> {
        if !self.bounds.types.is_empty() {
            return Err(Error::Unauthorized("a whole queue is more than this token's types".to_owned()));
        }
        narrowed("queue", Some(queue.clone()), &self.bounds.queues).map(drop)
    }

    /// Refuses a bound token what is of no one queue.
    fn whole(&self, what: &str) -> Result<()> {
        if self.bounds.is_empty() {
            return Ok(());
        }
        Err(Error::Unauthorized(format!("{what} are not of one queue, and this token is bound to queues or types")))
    }
}

#[async_trait]
impl Layer for Bound {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        submission.jobs().iter().try_for_each(|job| self.bounds.check(job))?;
        self.inner.insert(submission).await
    }

    async fn own(&self, owner: &str) -> Result<()> {
        self.whole("marks")?;
        self.inner.own(owner).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        for (queue, _) in &request.queues {
            if queue.as_str().starts_with(SYSTEM) && !self.bounds.queues.contains(queue) {
                let why = format!("the queue {queue} is the system's own: a token that names it may claim from it");
                return Err(Error::Unauthorized(why));
            }
            narrowed("queue", Some(queue.clone()), &self.bounds.queues)?;
        }
        let mut request = request.clone();
        match &request.types {
            Some(types) => {
                for job_type in types {
                    narrowed("type", Some(job_type.clone()), &self.bounds.types)?;
                }
            }
            None if self.bounds.types.is_empty() => {}
            None => request.types = Some(self.bounds.types.clone()),
        }
        self.inner.claim(&request).await
    }

    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Result<Option<ControlRecord>> {
        self.whole_queue(&edit.queue)?;
        self.inner.control(edit, by).await
    }

    async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>> {
        self.whole_queue(queue)?;
        self.inner.controlled(queue).await
    }

    async fn keys(&self, query: &KeyQuery) -> Result<Page<KeyRecord>> {
        self.whole_queue(&query.queue)?;
        self.inner.keys(query).await
    }

    /// The lease token is what allows it; what a settlement starts is a submission like any other.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let mut children = settlements.iter().flat_map(Settlement::children);
        children.try_for_each(|child| self.bounds.check(child))?;
        self.inner.settle(settlements).await
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        let found = self.inner.find(ids).await?;
        let seen = |job: Option<JobRecord>| job.filter(|job| self.sees(job)).map(|job| self.shown(job));
        Ok(found.into_iter().map(seen).collect())
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        let query = ListQuery { filter: self.narrow(&query.filter)?, ..query.clone() };
        let mut page = self.inner.list(&query).await?;
        page.items = page.items.into_iter().map(|job| self.shown(job)).collect();
        Ok(page)
    }

    async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Result<Counted> {
        self.inner.count(&self.narrow(filter)?, cap, looked_max).await
    }

    async fn faults(&self, query: &FaultQuery) -> Result<Page<FaultGroup>> {
        let query = FaultQuery {
            queue: narrowed("queue", query.queue.clone(), &self.bounds.queues)?,
            job_type: narrowed("type", query.job_type.clone(), &self.bounds.types)?,
            ..query.clone()
        };
        let mut page = self.inner.faults(&query).await?;
        if self.hides {
            page.items.iter_mut().for_each(|group| HIDDEN.clone_into(&mut group.pattern));
        }
        Ok(page)
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        self.seen(job).await?;
        let mut attempts = self.inner.attempts(job).await?;
        if self.hides {
            attempts.iter_mut().filter_map(|attempt| attempt.failure.as_mut()).for_each(hide);
        }
        Ok(attempts)
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        self.seen(job).await?;
        if self.hides {
            return Err(Error::Unauthorized("log lines are hidden from this token, as payloads are".to_owned()));
        }
        self.inner.logs(job).await
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.seen(job).await?;
        let mut explained = self.inner.explain(job).await?;
        if self.hides {
            explained.reasons.iter_mut().for_each(|why| match why {
                Why::Ended { because: Some(reason), .. } => hide_reason(reason),
                Why::Damaged { damage } => HIDDEN.clone_into(damage),
                _ => {}
            });
        }
        Ok(explained)
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        let mut page = self.inner.events(after, limit).await?;
        page.items.retain(|event| self.bounds.covers(&event.queue, &event.job_type));
        Ok(page)
    }

    async fn observe(&self, ends_from: Option<Timestamp>) -> Result<Observation> {
        let mut seen = self.inner.observe(ends_from).await?;
        seen.lanes.retain(|lane| self.bounds.covers(&lane.queue, &lane.job_type));
        seen.ends.retain(|end| self.bounds.covers(&end.queue, &end.job_type));
        Ok(seen)
    }

    async fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Result<Vec<Sample>> {
        let mut samples = self.inner.samples(step, from, before).await?;
        for sample in &mut samples {
            sample.lanes.retain(|seen| self.bounds.covers(&seen.lane.queue, &seen.lane.job_type));
        }
        Ok(samples)
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        let mut operation = operation.clone();
        match &mut operation.target {
            Target::Jobs(ids) => {
                for id in ids {
                    self.seen(*id).await?;
                }
            }
            Target::Matching { filter, .. } => *filter = self.narrow(filter)?,
        }
        if matches!(&operation.act, Act::Requeue(options) if options.with_dependents) {
            self.whole("dependents")?;
        }
        self.inner.operate(&operation).await
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        self.whole("acts")?;
        let mut page = self.inner.acts(after, limit).await?;
        if self.hides {
            page.items.iter_mut().for_each(hide_act);
        }
        Ok(page)
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        self.whole("upkeep and retention")?;
        self.inner.upkeep(request).await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.whole("checks")?;
        self.inner.check().await
    }

    async fn put_sample(&self, step: SampleStep, sample: &Sample) -> Result<()> {
        self.whole("samples")?;
        self.inner.put_sample(step, sample).await
    }

    async fn rewrite(&self, rewrites: &[Rewrite]) -> Result<Vec<bool>> {
        self.whole("rewrites")?;
        self.inner.rewrite(rewrites).await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        if self.bounds.queues.is_empty() {
            return self.inner.wakes();
        }
        narrowed_wakes(self.inner.wakes(), self.bounds.queues.clone())
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        let workers = self.inner.workers().await?;
        Ok(workers.into_iter().filter_map(|worker| narrowed_worker(&self.bounds, worker)).collect())
    }

    /// What a worker says that it serves is what `explain` and operators go by.
    async fn announce(&self, worker: &WorkerReport) -> Result<Announced> {
        for served in &worker.queues {
            narrowed("queue", Some(served.queue.clone()), &self.bounds.queues)?;
        }
        let mut worker = worker.clone();
        match &worker.types {
            Some(types) => {
                for job_type in types {
                    narrowed("type", Some(job_type.clone()), &self.bounds.types)?;
                }
            }
            None if self.bounds.types.is_empty() => {}
            None => worker.types = Some(self.bounds.types.clone()),
        }
        self.inner.announce(&worker).await
    }

    /// A worker that serves others, too, is not this token's to stop.
    async fn edit_worker(&self, edit: &WorkerEdit, by: Option<&str>) -> Result<WorkerRecord> {
        let known = self.inner.workers().await?.into_iter().find(|known| known.id == edit.worker);
        let seen = known.clone().and_then(|known| narrowed_worker(&self.bounds, known));
        match seen {
            None => Err(Error::not_found("worker", edit.worker.as_str())),
            seen if seen != known => {
                let problem = format!("worker {} serves queues or types that this token is not for", edit.worker);
                Err(Error::Unauthorized(problem))
            }
            _ => self.inner.edit_worker(edit, by).await,
        }
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        let mut queues = self.inner.queues().await?;
        queues.retain(|queue| self.bounds.queue(&queue.name));
        if self.bounds.types.is_empty() {
            return Ok(queues);
        }
        // The numbers of a queue cover all its types; a token for types is given the lanes of its own types instead.
        let lanes = Layer::observe(self, None).await?.lanes;
        for queue in &mut queues {
            (queue.states, queue.oldest_scheduled, queue.control) = ([0; 9], None, None);
            for lane in lanes.iter().filter(|lane| lane.queue == queue.name) {
                queue.states.iter_mut().zip(lane.states).for_each(|(sum, count)| *sum += count);
            }
        }
        queues.retain(|queue| queue.states != [0; 9]);
        Ok(queues)
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        let name = match edit {
            ScheduleEdit::Create(spec) | ScheduleEdit::Put { spec, .. } => {
                self.bounds.check(&spec.job)?;
                &spec.name
            }
            ScheduleEdit::Pause(name)
            | ScheduleEdit::Resume(name)
            | ScheduleEdit::Trigger(name)
            | ScheduleEdit::Delete(name) => name,
        };
        if !self.bounds.is_empty()
            && let Some(there) = self.schedule(name).await?
        {
            self.bounds.check_lane(&there.spec.job)?;
        }
        self.inner.edit_schedule(edit, by).await
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        if self.bounds.is_empty() {
            return Ok(self.shown_schedules(self.inner.schedules(after, limit).await?));
        }
        let (mut seen, mut after) = (Vec::new(), after.map(str::to_owned));
        // A page is full or the last one, however many are not for this token.
        loop {
            let page = self.inner.schedules(after.as_deref(), PAGE_MAX).await?;
            after = page.last().map(|schedule| schedule.spec.name.clone());
            let is_last = page.len() < PAGE_MAX;
            seen.extend(page.into_iter().filter(|schedule| self.bounds.check_lane(&schedule.spec.job).is_ok()));
            if is_last || seen.len() >= limit {
                seen.truncate(limit);
                return Ok(self.shown_schedules(seen));
            }
        }
    }

    async fn workflows(&self, query: &WorkflowQuery) -> Result<Page<WorkflowRecord>> {
        self.whole("workflows")?;
        self.inner.workflows(query).await
    }
}
