//! What operators do to jobs and queues. Each act is recorded by the store with who, when, what (rule O2).

use super::Client;
use crate::error::Result;
use crate::flow::ControlEdit;
use crate::job::{Idempotency, JobId, QueueName, RequeueOptions, State, WorkerId, WorkflowId};
use crate::store::{Act, Edit, Filter, InsertedJob, Operated, Operation, PAGE_MAX, Target, WorkerEdit, WorkerRecord};
use crate::workflow::Submission;

impl Client {
    /// An operator's act: say who and why, then on what.
    ///
    /// ```
    /// # async fn example(client: windlass::Client, id: windlass::JobId) -> windlass::Result<()> {
    /// use windlass::store::{Act, Filter};
    ///
    /// client.act(Act::Cancel { force: true }).by("ada").because("wrong customer").on(id).await?;
    /// let many = client.act(Act::Delete).dry_run().on_all(Filter::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn act(&self, act: Act) -> Operate<'_> {
        Operate { client: self, act, by: None, why: String::new(), dry_run: false }
    }

    /// Cancels a job; a running one is asked to stop.
    pub async fn cancel(&self, id: JobId) -> Result<()> {
        self.act(Act::Cancel { force: false }).on(id).await
    }

    /// Sends a dead job back, at once and with its counters from 0.
    pub async fn requeue(&self, id: JobId) -> Result<()> {
        self.act(Act::Requeue(RequeueOptions::default())).on(id).await
    }

    /// Removes an ended job.
    pub async fn delete(&self, id: JobId) -> Result<()> {
        self.act(Act::Delete).on(id).await
    }

    /// Changes a job's priority, tags, correlation id or callback URL (rule J3).
    pub async fn edit(&self, id: JobId, edit: Edit) -> Result<()> {
        edit.check()?;
        self.act(Act::Edit(edit)).on(id).await
    }

    /// Copies a job under a new id, without its key, dependencies and first run (rule I4).
    pub async fn clone_job(&self, id: JobId) -> Result<InsertedJob> {
        self.clone_job_as(id, None).await
    }

    /// The same with a key of its own: the same key in its window is the same copy.
    pub async fn clone_job_as(&self, id: JobId, key: Option<Idempotency>) -> Result<InsertedJob> {
        if let Some(key) = &key {
            key.check()?;
        }
        let mut spec = (*self.job(id).await?.spec).clone();
        spec.depends_on.clear();
        spec.options.run_at = None;
        spec.options.idempotency = key;
        spec.options.cloned_from = Some(id);
        spec.options.submitted_by = None;
        self.sign(&mut spec);
        let inserted = self.submit(Submission::new(vec![spec])?).await?;
        Ok(*inserted.jobs.first().expect("a store answers for each job"))
    }

    /// Cancels every unfinished job of a workflow (rule W7); gives how many.
    pub async fn cancel_workflow(&self, id: WorkflowId) -> Result<u64> {
        let filter = Filter { workflow: Some(id), ..Filter::default() };
        self.act(Act::Cancel { force: false }).on_all(filter).await
    }

    /// Sends the dead jobs of a workflow back, those that died of a dependency included; gives how many.
    pub async fn requeue_workflow(&self, id: WorkflowId) -> Result<u64> {
        let filter = Filter { workflow: Some(id), states: vec![State::Failed, State::DeadLetter], ..Filter::default() };
        let options = RequeueOptions { with_dependents: true, ..RequeueOptions::default() };
        self.act(Act::Requeue(options)).on_all(filter).await
    }

    /// Pauses a queue: nothing of it is claimed, running jobs go on.
    pub async fn pause(&self, queue: &str) -> Result<()> {
        self.store().control(&ControlEdit::pause(QueueName::new(queue)?, true), None).await.map(drop)
    }

    /// Lets a paused queue be claimed from again.
    pub async fn resume(&self, queue: &str) -> Result<()> {
        self.store().control(&ControlEdit::pause(QueueName::new(queue)?, false), None).await.map(drop)
    }

    /// Tells a live worker to take no more jobs: before its machine goes, or while something is wrong with it. What it runs goes on; it
    /// hears of this within 10 s.
    pub async fn drain_worker(&self, id: &str) -> Result<WorkerRecord> {
        self.store().edit_worker(&WorkerEdit::new(WorkerId::new(id)?, true), None).await
    }

    /// Lets a worker that drains take jobs again.
    pub async fn resume_worker(&self, id: &str) -> Result<WorkerRecord> {
        self.store().edit_worker(&WorkerEdit::new(WorkerId::new(id)?, false), None).await
    }

    /// Cancels every job of a queue that nobody has claimed; gives how many.
    pub async fn purge(&self, queue: &str) -> Result<u64> {
        let states = vec![State::Pending, State::Delayed, State::Scheduled, State::Retrying];
        let filter = Filter { queue: Some(QueueName::new(queue)?), states, ..Filter::default() };
        self.act(Act::Cancel { force: false }).because("purged").on_all(filter).await
    }
}

/// An act that waits to be told on what.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is told on what"]
pub struct Operate<'a> {
    client: &'a Client,
    act: Act,
    by: Option<String>,
    why: String,
    dry_run: bool,
}

impl Operate<'_> {
    /// Who acts.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    /// Why.
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// Only says how many it would change.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Acts on one job; fails when that job cannot be acted on.
    pub async fn on(self, id: JobId) -> Result<()> {
        match self.on_each([id]).await?.refused.pop() {
            None => Ok(()),
            Some((_, error)) => Err(error),
        }
    }

    /// Acts on these jobs; those that cannot be acted on are named in the answer.
    pub async fn on_each(self, ids: impl IntoIterator<Item = JobId>) -> Result<Operated> {
        let target = Target::Jobs(ids.into_iter().collect());
        self.client.store().operate(&self.operation(target)).await
    }

    /// Acts on all jobs that match and can be acted on, in bounded steps; gives how many.
    pub async fn on_all(self, filter: Filter) -> Result<u64> {
        let (mut changed, mut after) = (0, None);
        loop {
            let target = Target::Matching { filter: filter.clone(), limit: PAGE_MAX, after };
            let step = self.client.store().operate(&self.operation(target)).await?;
            changed += step.changed;
            after = step.next;
            if after.is_none() {
                return Ok(changed);
            }
        }
    }

    fn operation(&self, target: Target) -> Operation {
        let Operate { act, by, why, dry_run, .. } = self.clone();
        Operation { target, act, by, why, dry_run }
    }
}
