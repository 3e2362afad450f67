//! The way in: one job, a batch, a workflow. All of a call is stored, or none of it.

use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::Duration;

use super::Client;
use crate::error::{Error, Result};
use crate::job::WorkflowId;
use crate::job::{DependencyKind, DependsOn, IntoNewJob, JobId, JobSpec, NewJob, Priority, RetryPolicy, Scope, Unique};
use crate::observe;
use crate::store::{InTx, Inserted, InsertedJob, in_tx};
use crate::time::Timestamp;
use crate::workflow::{Step, Submission, Workflow};

/// A workflow that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    ///
    /// A future that is dropped before it has answered, as a web server does when its caller hangs up, has stored the job or
    /// has not, never half of it. An idempotency key makes it safe to ask again.
    pub fn enqueue(&self, job: impl IntoNewJob) -> Enqueue<'_> {
        Enqueue { client: self, job: job.into_new_job() }
    }

    /// Enqueues up to 10,000 jobs, all or none; gives what became of each, in order. Nothing happens until it is awaited.
    pub fn enqueue_all<J: IntoNewJob>(&self, jobs: impl IntoIterator<Item = J>) -> EnqueueAll<'_> {
        let checked: Result<Vec<JobSpec>> = jobs.into_iter().map(|job| self.check_job(job.into_new_job()?)).collect();
        EnqueueAll { client: self, submission: checked.and_then(Submission::new) }
    }

    /// Starts a workflow: all of its jobs, or none. Nothing happens until it is awaited.
    pub fn start(&self, workflow: Workflow) -> Start<'_> {
        let mut submission = workflow.check(&self.inner.limits, &self.inner.policies);
        if let Ok(submission) = &mut submission {
            submission.each(|spec| {
                continue_trace(spec);
                self.sign(spec);
            });
        }
        Start { client: self, submission }
    }

    /// Checks a job under this client's limits and policies.
    ///
    /// With the feature `opentelemetry`, one that names no trace continues the caller's.
    pub fn check_job(&self, job: NewJob) -> Result<JobSpec> {
        let mut spec = job.check(&self.inner.limits, &self.inner.policies)?;
        continue_trace(&mut spec);
        self.sign(&mut spec);
        Ok(spec)
    }

    /// Writes the client's name on a job.
    pub fn sign(&self, spec: &mut JobSpec) {
        if let Some(name) = &self.inner.submitted_by {
            spec.options.submitted_by = Some(name.to_string());
        }
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

    /// Enqueues in the caller's own transaction on the same database: the job exists once that commits, and only then
    /// (rule X1).
    ///
    /// To be awaited where the driver's calls are: with tokio-postgres and sqlx, but not with rusqlite. Hooks and metrics
    /// of enqueues hear nothing of it, since the commit decides.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # fn order(client: windlass::Client, mut database: rusqlite::Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// use rusqlite::TransactionBehavior;
    /// use windlass::{NewJob, Payload};
    ///
    /// let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// tx.execute("insert into orders (number) values (42)", [])?;
    /// client.enqueue(NewJob::new("charge", Payload::json(&42)?)).in_tx(&tx)?;
    /// tx.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_tx<'t, X: InTx<'t>>(self, tx: X) -> X::Answer<InsertedJob> {
        let client = self.client;
        let submission = self.check().and_then(|spec| Submission::new(vec![spec]));
        let (store, submission) = in_tx::submission_in(client.store(), submission);
        tx.enqueue(store, submission, |inserted| Ok(only(&inserted?)))
    }

    /// The checked job, as stores take it.
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

    /// Of jobs like this one is enough: says what makes two of them the same, and for how long.
    pub fn unique(self, unique: Unique) -> Self {
        self.with(|job| job.unique(unique))
    }

    /// Runs once for many submissions: when none has come for the time `quiet`, and at the latest `at_most` after the
    /// first.
    pub fn debounce(self, quiet: Duration, at_most: Duration) -> Self {
        self.with(|job| job.debounce(quiet, at_most))
    }

    /// Runs at most once in each period; the first submission wins.
    pub fn throttle(self, period: Duration) -> Self {
        self.with(|job| job.throttle(period))
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

    /// Whom it counts under in a controlled queue: a tenant, an account. Not the idempotency key.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.with(|job| job.key(key))
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
            Ok(only(&client.submit(submission).await?))
        })
    }
}

fn continue_trace(spec: &mut JobSpec) {
    if spec.options.trace_context.is_none() {
        spec.options.trace_context = observe::trace::of_caller();
    }
}

fn only(inserted: &Inserted) -> InsertedJob {
    *inserted.jobs.first().expect("a store answers for each job")
}

/// A batch of jobs, ready to be enqueued: await it, or put it into a transaction.
#[derive(Debug)]
#[must_use = "nothing is enqueued until this is awaited"]
pub struct EnqueueAll<'a> {
    client: &'a Client,
    submission: Result<Submission>,
}

impl EnqueueAll<'_> {
    /// Enqueues in the caller's own transaction, as [`Enqueue::in_tx`] does.
    pub fn in_tx<'t, X: InTx<'t>>(self, tx: X) -> X::Answer<Vec<InsertedJob>> {
        let (store, submission) = in_tx::submission_in(self.client.store(), self.submission);
        tx.enqueue(store, submission, |inserted| Ok(inserted?.jobs))
    }
}

impl<'a> IntoFuture for EnqueueAll<'a> {
    type Output = Result<Vec<InsertedJob>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.client.submit(self.submission?).await?.jobs) })
    }
}

/// A workflow on its way into the store: await it, or put it into a transaction.
#[derive(Debug)]
#[must_use = "nothing is started until this is awaited"]
pub struct Start<'a> {
    client: &'a Client,
    submission: Result<Submission>,
}

impl Start<'_> {
    /// Starts it in the caller's own transaction, as [`Enqueue::in_tx`] does.
    pub fn in_tx<'t, X: InTx<'t>>(self, tx: X) -> X::Answer<Started> {
        let (store, submission) = in_tx::submission_in(self.client.store(), self.submission);
        tx.enqueue(store, submission, |inserted| Ok(started(inserted?)))
    }
}

impl<'a> IntoFuture for Start<'a> {
    type Output = Result<Started>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(started(self.client.submit(self.submission?).await?)) })
    }
}

fn started(inserted: Inserted) -> Started {
    let id = inserted.workflow.expect("a store answers a workflow with its id");
    Started { id, jobs: inserted.jobs }
}
