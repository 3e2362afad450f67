//! What a handler sees of its run, and what it may do with it.
//!
//! A [`Context`] is an [`Attempt`] together with the worker's state, made for one handler. Everything that writes is
//! fenced by the lease.

use std::any::TypeId;
use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, Order, lock};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::job::{
    AttemptId, CancelAsked, DependencyKind, DependsOn, IntoNewJob, JobId, JobRecord, LeaseKey, Payload, Progress,
    SPAWN_MAX, Settlement,
};
use crate::store::{self, Filter, InTx, PAGE_MAX, Save, Settled};

/// What handlers get beside their job: the worker's state, and the attempt they run as.
pub struct Context<S = ()> {
    /// What the worker was given with [`with_state`](super::Worker::with_state).
    pub state: Arc<S>,
    attempt: Arc<Attempt>,
}

impl<S> Context<S> {
    pub(super) fn new(state: Arc<S>, attempt: Arc<Attempt>) -> Self {
        Context { state, attempt }
    }
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Context { state: Arc::clone(&self.state), attempt: Arc::clone(&self.attempt) }
    }
}

impl<S> Deref for Context<S> {
    type Target = Attempt;

    fn deref(&self) -> &Attempt {
        &self.attempt
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.attempt, f)
    }
}

// What a handler may ask of its attempt.
impl Attempt {
    /// The job as it was when it was claimed.
    pub fn job(&self) -> &JobRecord {
        &self.job
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.job.id
    }

    /// Which start of the job this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.job.attempt
    }

    /// This attempt's own id.
    pub fn attempt_id(&self) -> AttemptId {
        AttemptId::of(self.job.id, self.job.lease_version)
    }

    /// The id of the attempt before this one, if there was one: for work that looks for what that one left behind.
    pub fn previous_attempt_id(&self) -> Option<AttemptId> {
        let before = self.job.lease_version.checked_sub(1).filter(|version| *version > 0);
        before.map(|version| AttemptId::of(self.job.id, version))
    }

    /// The lease's version, which only grows: give it to other systems as a fencing token (rule L9).
    pub fn lease_version(&self) -> u64 {
        self.job.lease_version
    }

    /// What the lease is recognised by, to write under it.
    pub fn lease_key(&self) -> LeaseKey {
        self.key
    }

    /// The job's idempotency key, if it has one.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.job.spec.options.idempotency.as_ref().map(|idempotency| idempotency.key.as_str())
    }

    /// A client of the same store.
    pub fn client(&self) -> &Client {
        &self.env.client
    }

    /// When the execution timeout ends this run, if it has one.
    pub fn deadline(&self) -> Option<tokio::time::Instant> {
        self.limit_in_force().map(|limit| self.begun() + limit)
    }

    /// How long the execution timeout leaves, if there is one.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.saturating_duration_since(tokio::time::Instant::now()))
    }

    /// Asks for less time than the job allows, counted from the start; more is not given (rule T1).
    pub fn limit(&self, limit: Duration) {
        self.limit.fetch_min(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Whether this run should stop: cancelled, timed out, or its lease was lost.
    pub fn is_cancelled(&self) -> bool {
        self.current_order() != Order::Run
    }

    /// Waits until this run should stop.
    pub async fn cancelled(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.is_cancelled() {
                return;
            }
            changed.await;
        }
    }

    /// Who asked for the cancel, where somebody did.
    pub fn cancel_asked(&self) -> Option<&CancelAsked> {
        self.cancel.get()
    }

    /// A token that is cancelled when this run should stop, to hand on to other tasks and threads.
    pub fn token(&self) -> CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new).clone();
        if self.is_cancelled() {
            token.cancel();
        }
        token
    }

    /// A token that is cancelled when the worker begins to shut down: time to save a checkpoint and return.
    pub fn stopping(&self) -> &CancellationToken {
        &self.env.stopping
    }

    /// The newest checkpoint: of this attempt, or of one before it.
    ///
    /// Fails when it does not read as a `T`.
    pub fn checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let unreadable = |error: serde_json::Error| Error::invalid("checkpoint", error.to_string());
        let bytes = lock(&self.checkpoint).clone();
        bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(unreadable)).transpose()
    }

    /// Stores a checkpoint of up to 1 MiB, for the next attempt to go on from (rule R4).
    pub async fn save_checkpoint<T: Serialize + ?Sized>(&self, value: &T) -> Result<()> {
        let bytes = serde_json::to_vec(value).map_err(|error| Error::invalid("checkpoint", error.to_string()))?;
        let bytes = Bytes::from(bytes);
        self.save(Save::under(self.key).checkpoint(bytes.clone())?).await?;
        *lock(&self.checkpoint) = Some(bytes);
        Ok(())
    }

    /// Tells how far the work is: a fraction from 0 to 1, and a few words.
    pub async fn progress(&self, fraction: f64, message: impl Into<String>) -> Result<()> {
        self.save(Save::under(self.key).progress(Progress::new(fraction, message)?)).await
    }

    /// Keeps a log line with this attempt.
    pub async fn log(&self, line: impl Into<String>) -> Result<()> {
        self.save(Save::under(self.key).log([line.into()])).await
    }

    async fn save(&self, save: Save) -> Result<()> {
        if self.is_in_tx() {
            // The transaction holds the job, so this would wait for its end, and the handler for this.
            return Err(Error::Conflict(format!("job {} was completed in a transaction", self.job.id)));
        }
        let mut answers = self.env.client.store().save(&[save]).await?;
        match answers.pop() {
            Some(Err(stale)) => Err(Error::StaleLease { job: self.job.id, stale }),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Spawns a child, stored in the same transaction as this job's completion (FAN_OUT); at most 1,000.
    ///
    /// Gives the child's place, by which a later child can depend on it ([`DependsOn::Batch`]). If the job does not
    /// complete, there are no children.
    pub fn spawn(&self, child: impl IntoNewJob) -> Result<usize> {
        let spec = self.env.client.check_job(child.into_new_job()?)?;
        let mut children = lock(&self.children);
        if children.len() >= SPAWN_MAX {
            return Err(Error::invalid("spawn", format!("must be at most {SPAWN_MAX} jobs")));
        }
        children.push(spec);
        Ok(children.len() - 1)
    }

    /// Completes this job in a transaction of the handler's own, fenced by its lease (rule X2): the handler's rows and the
    /// completion commit together, or neither does.
    ///
    /// To be awaited where the driver's calls are: with tokio-postgres and sqlx, but not with rusqlite. After the commit
    /// the handler returns; what it returns no longer matters. If the transaction is not committed nothing has happened:
    /// the handler may try again in another one, or fail as usual, and if it returns success all the same, that counts as
    /// a temporary failure with the code `not_committed`. [`Error::StaleLease`] says that somebody else has the job by
    /// now: roll back.
    ///
    /// Heartbeats stop meanwhile, since the open transaction holds the job; keep it shorter than the lease time.
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")] mod example {
    /// # use windlass::{Context, Failure};
    /// # struct Charge;
    /// async fn charge(_: Charge, cx: Context<tokio::sync::Mutex<tokio_postgres::Client>>) -> Result<(), Failure> {
    ///     let mut database = cx.state.lock().await;
    ///     let tx = database.transaction().await?;
    ///     tx.execute("insert into charges (job) values ($1)", &[&cx.id().as_uuid()]).await?;
    ///     cx.complete_in_tx(&tx, &()).await?;
    ///     tx.commit().await?;
    ///     Ok(())
    /// }
    /// # }
    /// ```
    pub fn complete_in_tx<'t, X: InTx<'t>, T: Serialize + 'static>(&self, tx: X, result: &T) -> X::Answer<()> {
        let (job, in_tx) = (self.job.id, Arc::clone(&self.in_tx));
        let (store, completion) = store::in_tx::settlement_in(self.env.client.store(), self.completion(result));
        tx.settle(store, completion, move |settled| {
            let answer = match settled {
                Ok(Settled::Applied(_) | Settled::AlreadyApplied) => return Ok(()),
                Ok(Settled::Stale(stale)) => Error::StaleLease { job, stale },
                Ok(Settled::Refused(error)) | Err(error) => error,
            };
            in_tx.store(false, Ordering::SeqCst);
            Err(answer)
        })
    }

    /// The completion of this job, for a handler that writes it to the store in a way of its own: as
    /// [`complete_in_tx`](Self::complete_in_tx), which does this.
    pub fn completion<T: Serialize + 'static>(&self, result: &T) -> Result<Settlement> {
        let result = if TypeId::of::<T>() == TypeId::of::<()>() { None } else { Some(Payload::json(result)?) };
        let settlement = self.lease_again().complete(result).spawn(lock(&self.children).clone())?;
        settlement.check(self.env.client.limits_in_force())?;
        self.in_tx.store(true, Ordering::SeqCst);
        Ok(settlement)
    }

    /// The jobs that this one depends on, as they ended, in the order in which they were named (rule W5).
    ///
    /// Pruned ones are left out. What a FAN_IN waited for beside them is in [`spawned`](Self::spawned).
    pub async fn dependencies(&self) -> Result<Vec<JobRecord>> {
        let ids: Vec<JobId> = self.dependency_ids(|_| true).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.env.client.store().find(&ids).await?.into_iter().flatten().collect())
    }

    /// The results of the jobs that this one depends on; those without a result are left out, so places shift where a handler
    /// returns `()`. [`dependencies`](Self::dependencies) has each job beside its result.
    pub async fn results<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        let jobs = self.dependencies().await?;
        jobs.iter().filter_map(|job| job.result.as_ref()).map(Payload::decode).collect()
    }

    /// The jobs that the dependencies of a FAN_IN spawned, and those that these spawned, oldest first.
    ///
    /// Only within a workflow, through which they are found.
    pub async fn spawned(&self) -> Result<Vec<JobRecord>> {
        let is_fan_in = |kind| matches!(kind, DependencyKind::FanInSuccess | DependencyKind::FanInDone);
        let mut family: Vec<JobId> = self.dependency_ids(is_fan_in).collect();
        let Some(workflow) = self.job.workflow_id.filter(|_| !family.is_empty()) else { return Ok(Vec::new()) };
        let filter = Filter { workflow: Some(workflow), ..Filter::default() };
        let (mut jobs, mut after) = (Vec::new(), None);
        loop {
            let page = self.env.client.list(filter.clone(), PAGE_MAX, after).await?;
            jobs.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        // Parents come before the jobs they spawn.
        jobs.reverse();
        jobs.retain(|job| {
            let spawned = job.spawned_by.is_some_and(|parent| family.contains(&parent));
            if spawned {
                family.push(job.id);
            }
            spawned
        });
        Ok(jobs)
    }

    fn dependency_ids(&self, wanted: impl Fn(DependencyKind) -> bool) -> impl Iterator<Item = JobId> {
        self.job.spec.depends_on.iter().filter_map(move |dependency| match dependency.on {
            DependsOn::Job(id) => Some(id).filter(|_| wanted(dependency.kind)),
            DependsOn::Batch(_) => None,
        })
    }
}
