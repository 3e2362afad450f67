//! The way in: one job, a batch, a workflow. All of a call is stored, or none of it.

use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::Duration;

use super::Client;
use crate::error::{Error, Result};
use crate::job::WorkflowId;
use crate::job::{DependencyKind, DependsOn, IntoNewJob, JobId, JobSpec, NewJob, Priority, RetryPolicy, Scope};
use crate::observe;
use crate::store::{Inserted, InsertedJob};
use crate::time::Timestamp;
use crate::workflow::{Step, Submission, Workflow};

/// A workflow that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The workflow's id.
    pub id: WorkflowId,
    /// Its jobs, in the order of its steps.
    pub jobs: Vec<InsertedJob>,
}

impl Started {
    /// The job of a step.
    pub fn job(&self, step: Step) -> JobId {
        self.jobs[step.place()].id
    }
}

impl Client {
    /// Enqueues a job: typed, or a [`NewJob`] of any type and payload. Nothing happens until it is awaited.
    pub fn enqueue(&self, job: impl IntoNewJob) -> Enqueue<'_> {
        Enqueue { client: self, job: job.into_new_job() }
    }

    /// Enqueues up to 10,000 jobs, all or none; gives what became of each, in order.
    pub async fn enqueue_all<J: IntoNewJob>(&self, jobs: impl IntoIterator<Item = J>) -> Result<Vec<InsertedJob>> {
        let checked: Result<Vec<JobSpec>> = jobs.into_iter().map(|job| self.check_job(job.into_new_job()?)).collect();
        Ok(self.submit(Submission::new(checked?)?).await?.jobs)
    }

    /// Starts a workflow: all of its jobs, or none.
    pub async fn start(&self, workflow: Workflow) -> Result<Started> {
        let submission = workflow.check(&self.inner.limits, &self.inner.policies)?;
        let inserted = self.submit(submission).await?;
        let id = inserted.workflow.expect("a store answers a workflow with its id");
        Ok(Started { id, jobs: inserted.jobs })
    }

    /// Checks a job under this client's limits and policies.
    pub fn check_job(&self, job: NewJob) -> Result<JobSpec> {
        job.check(&self.inner.limits, &self.inner.policies)
    }

    /// Hands a checked submission to the store, within the submission timeout (rule T3).
    pub async fn submit(&self, submission: Submission) -> Result<Inserted> {
        let after = self.inner.submission_timeout;
        let answer = tokio::time::timeout(after, self.inner.store.insert(submission)).await;
        let inserted = answer.unwrap_or(Err(Error::SubmissionTimeout { after }));
        match &inserted {
            Ok(inserted) => self.tell_enqueued(&inserted.jobs),
            Err(error) => observe::enqueue_failed(error),
        }
        inserted
    }

    fn tell_enqueued(&self, jobs: &[InsertedJob]) {
        let existing = jobs.iter().filter(|job| job.existing).count();
        observe::enqueued(jobs.len() - existing, existing);
        for hook in &self.inner.enqueued {
            // The jobs are stored: a hook that panics must not make it look otherwise.
            if catch_unwind(AssertUnwindSafe(|| hook(jobs))).is_err() {
                tracing::error!("an enqueued hook panicked");
            }
        }
    }
}

/// A job on its way into the store: set what is particular about it, then await it.
#[derive(Debug)]
#[must_use = "nothing is enqueued until this is awaited"]
pub struct Enqueue<'a> {
    client: &'a Client,
    job: Result<NewJob>,
}

impl<'a> Enqueue<'a> {
    /// Changes the job in any way that [`NewJob`] offers.
    pub fn with(mut self, change: impl FnOnce(NewJob) -> NewJob) -> Self {
        self.job = self.job.map(change);
        self
    }

    /// The checked job, for stores that enqueue in the caller's own transaction.
    pub fn check(self) -> Result<JobSpec> {
        self.client.check_job(self.job?)
    }

    /// The lane it goes to.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.with(|job| job.queue(queue))
    }

    /// How urgent it is.
    pub fn priority(self, priority: Priority) -> Self {
        self.with(|job| job.priority(priority))
    }

    /// Not before this long after submission.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|job| job.delay(delay))
    }

    /// Not before this moment of the store's clock.
    pub fn run_at(self, at: Timestamp) -> Self {
        self.with(|job| job.run_at(at))
    }

    /// Counted executions, the first included.
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.with(|job| job.max_attempts(attempts))
    }

    /// Executions after the first.
    pub fn max_retries(self, retries: u32) -> Self {
        self.with(|job| job.max_retries(retries))
    }

    /// The whole retry policy, attempts included.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.with(|job| job.retry(policy))
    }

    /// Longest run of one attempt; `None` for no limit but the lifetime.
    pub fn execution_timeout(self, timeout: impl Into<Option<Duration>>) -> Self {
        self.with(|job| job.execution_timeout(timeout))
    }

    /// From submission to a terminal state; `None` for no limit.
    pub fn lifetime(self, lifetime: impl Into<Option<Duration>>) -> Self {
        self.with(|job| job.lifetime(lifetime))
    }

    /// The same key among jobs of this type, within 24 hours, is the same job.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.with(|job| job.idempotency_key(key))
    }

    /// An idempotency key with its scope and window; a window of `None` is for ever.
    pub fn idempotency(self, key: impl Into<String>, scope: Scope, window: impl Into<Option<Duration>>) -> Self {
        self.with(|job| job.idempotency(key, scope, window))
    }

    /// Waits for a stored job.
    pub fn depends_on(self, job: JobId, kind: DependencyKind) -> Self {
        self.with(|new| new.depends_on(DependsOn::Job(job), kind))
    }

    /// Runs after all these jobs completed.
    pub fn after(self, jobs: impl IntoIterator<Item = JobId>) -> Self {
        self.with(|job| job.after(jobs))
    }

    /// Adds a label.
    pub fn tag(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|job| job.tag(key, value))
    }

    /// For following one piece of work through several systems.
    pub fn correlation_id(self, id: impl Into<String>) -> Self {
        self.with(|job| job.correlation_id(id))
    }

    /// Told by a signed POST when the job becomes terminal.
    pub fn callback_url(self, url: impl Into<String>) -> Self {
        self.with(|job| job.callback_url(url))
    }
}

impl<'a> IntoFuture for Enqueue<'a> {
    type Output = Result<InsertedJob>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let client = self.client;
            let submission = Submission::new(vec![self.check()?])?;
            let inserted = client.submit(submission).await?;
            Ok(*inserted.jobs.first().expect("a store answers for each job"))
        })
    }
}
