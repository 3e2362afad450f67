//! What is asked of a store.

use std::time::Duration;

use bytes::Bytes;

pub use super::filter::Filter;
use crate::error::{Error, Result};
pub use crate::job::Edit;
use crate::job::{
    CHECKPOINT_BYTES_MAX, JobId, JobRecord, JobType, LOG_LINE_BYTES_MAX, LOG_LINES_MAX, LeaseKey, Progress, QueueName,
    RequeueOptions, State, WorkerId, WorkflowId, check_size, cut,
};
pub use crate::schedule::{ScheduleChange, ScheduleEdit};
use crate::time::Timestamp;

/// Most jobs in one claim, settle, extend or save; as many as one enqueue may hold.
pub const CALL_MAX: usize = 10_000;
/// Most rows on one page.
pub const PAGE_MAX: usize = 1000;
/// Most groups of dead jobs on one page: each is a seek of its own.
pub const FAULTS_MAX: usize = 100;
/// How many jobs of a group are looked at, the newest ones; a page of groups looks at 100,000.
pub const FAULT_JOBS_MAX: usize = 1000;
/// How many jobs one page of a list looks at; rare matches among millions take several pages.
pub const LOOKED_MAX: usize = 10_000;
/// How long after its last word a worker counts as alive.
pub const WORKER_LIVE: Duration = Duration::from_secs(30);

/// Asks for runnable jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimRequest {
    /// The queues to look in, in this order, each with how many jobs of it are wanted at most.
    pub queues: Vec<(QueueName, usize)>,
    /// Only jobs of these types; `None` for any.
    pub types: Option<Vec<JobType>>,
    /// How many jobs are wanted at most in all.
    pub limit: usize,
    /// How long the lease holds; `None` for each job's visibility timeout.
    pub lease_time: Option<Duration>,
    /// Who asks.
    pub worker: WorkerId,
}

impl ClaimRequest {
    /// Up to `limit` jobs of one queue, any type, for their visibility timeout.
    pub fn new(worker: WorkerId, queue: QueueName, limit: usize) -> Self {
        ClaimRequest { queues: vec![(queue, limit)], types: None, limit, lease_time: None, worker }
    }
}

/// Keeps something of a running attempt.
#[derive(Clone, PartialEq, Debug)]
pub struct Save {
    key: LeaseKey,
    checkpoint: Option<Bytes>,
    progress: Option<Progress>,
    log: Vec<String>,
}

impl Save {
    /// Nothing yet, under this lease.
    pub fn under(key: LeaseKey) -> Self {
        Save { key, checkpoint: None, progress: None, log: Vec::new() }
    }

    /// Replaces the checkpoint; at most 1 MiB.
    pub fn checkpoint(mut self, checkpoint: impl Into<Bytes>) -> Result<Self> {
        let checkpoint = checkpoint.into();
        check_size("checkpoint", checkpoint.len(), CHECKPOINT_BYTES_MAX)?;
        self.checkpoint = Some(checkpoint);
        Ok(self)
    }

    /// The same with its checkpoint in another form, for a layer that encrypts it. What was checked has grown a little.
    #[cfg(feature = "encryption")]
    pub(crate) fn with_checkpoint(&self, checkpoint: Bytes) -> Self {
        Save { checkpoint: Some(checkpoint), ..self.clone() }
    }

    /// Replaces the progress.
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Adds log lines; each is cut at 4 KiB, and of more than 1,000 the newest are kept.
    #[must_use]
    pub fn log(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.log.extend(lines.into_iter().map(|line| cut(line, LOG_LINE_BYTES_MAX)));
        let excess = self.log.len().saturating_sub(LOG_LINES_MAX);
        self.log.drain(..excess);
        self
    }

    /// The lease it is saved under.
    pub fn key(&self) -> LeaseKey {
        self.key
    }

    /// The new checkpoint.
    pub fn new_checkpoint(&self) -> Option<&Bytes> {
        self.checkpoint.as_ref()
    }

    /// The new progress.
    pub fn new_progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    /// The new log lines.
    pub fn new_log(&self) -> &[String] {
        &self.log
    }
}

/// Asks for one step of upkeep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upkeep {
    /// How many rows of each kind are dealt with at most.
    pub limit: usize,
    /// How long ended jobs are kept.
    pub retention: Retention,
}

impl Default for Upkeep {
    fn default() -> Self {
        Upkeep { limit: 1000, retention: Retention::default() }
    }
}

/// How long ended jobs are kept; `None` until they are deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// COMPLETED jobs.
    pub completed: Option<Duration>,
    /// CANCELLED jobs.
    pub cancelled: Option<Duration>,
    /// FAILED jobs.
    pub failed: Option<Duration>,
    /// DEAD_LETTER jobs.
    pub dead_letter: Option<Duration>,
}

impl Retention {
    /// How long a job that ended in `state` is kept.
    pub fn of(&self, state: State) -> Option<Duration> {
        match state {
            State::Completed => self.completed,
            State::Cancelled => self.cancelled,
            State::Failed => self.failed,
            State::DeadLetter => self.dead_letter,
            State::Pending | State::Delayed | State::Scheduled | State::Running | State::Retrying => None,
        }
    }

    /// When a job may be removed after its end: by what was said for it, or else by this; `None` for not before it is deleted.
    ///
    /// For a store that looks at each job. One that has an index of ends keeps [`JobRecord::prune_at`] beside it, prunes the
    /// jobs that have one by that, and only the others by [`horizon`](Self::horizon).
    pub fn prune_at(&self, job: &JobRecord) -> Option<Timestamp> {
        let ended = job.completed_at?;
        let own = job.prune_at().or_else(|| self.of(job.state).map(|kept| ended.plus(kept)));
        own.filter(|at| *at < Timestamp::MAX)
    }

    /// Jobs that ended in `state` at or before this moment may go, unless something else was said for them.
    pub fn horizon(&self, state: State, now: Timestamp) -> Option<Timestamp> {
        self.of(state).map(|kept| now.minus(kept))
    }
}

impl Default for Retention {
    /// COMPLETED and CANCELLED 24 hours, FAILED and DEAD_LETTER until deleted.
    fn default() -> Self {
        let day = Some(Duration::from_secs(24 * 3600));
        Retention { completed: day, cancelled: day, failed: None, dead_letter: None }
    }
}

/// Asks for groups of dead jobs, or of those that failed and are tried again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultQuery {
    /// RETRYING jobs in place of dead ones: the [`LOOKED_MAX`] jobs that wait for their moment and are due soonest are looked at.
    pub retrying: bool,
    /// Only jobs in this queue.
    pub queue: Option<QueueName>,
    /// Only jobs of this type.
    pub job_type: Option<JobType>,
    /// How many groups at most, up to [`FAULTS_MAX`].
    pub limit: usize,
    /// Where the last page ended.
    pub after: Option<Cursor>,
}

/// In which order jobs are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// The newest first.
    #[default]
    Newest,
    /// The last that ended first; of one terminal state.
    Ended,
    /// The soonest to be due first; of DELAYED and RETRYING jobs.
    Due,
    /// As they will be claimed; of SCHEDULED jobs of one queue.
    Claim,
}

impl Order {
    /// Refuses a filter by which jobs cannot be had in this order: each order goes by one index.
    pub fn check(self, filter: &Filter) -> Result<()> {
        let states = filter.states.as_slice();
        let problem = match self {
            Order::Ended if !matches!(states, [state] if state.is_terminal()) => "ended needs one terminal state",
            Order::Due if states.is_empty() || !states.iter().all(|state| waits(*state)) => {
                "due needs the states delayed or retrying"
            }
            Order::Claim if states != [State::Scheduled] || filter.queue.is_none() => {
                "claim needs the state scheduled and a queue"
            }
            Order::Newest | Order::Ended | Order::Due | Order::Claim => return Ok(()),
        };
        Err(Error::invalid("order", problem))
    }
}

impl Order {
    /// The place of a job in this order, for stores that sort: a smaller one comes first.
    pub fn place(self, job: &JobRecord, sequence: i64) -> [i64; 3] {
        let micros = |at: Option<Timestamp>| at.map_or(0, Timestamp::as_micros);
        match self {
            Order::Newest => [0, 0, i64::MAX - sequence],
            Order::Ended => [0, i64::MAX - micros(job.completed_at), i64::MAX - sequence],
            Order::Due => [0, micros(job.run_at), sequence],
            Order::Claim => [i64::from(job.effective_priority().number()), job.position.as_micros(), sequence],
        }
    }
}

fn waits(state: State) -> bool {
    matches!(state, State::Delayed | State::Retrying)
}

/// Asks for a page of jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListQuery {
    /// Which jobs.
    pub filter: Filter,
    /// How many at most, up to [`PAGE_MAX`].
    pub limit: usize,
    /// Where the last page ended.
    pub after: Option<Cursor>,
    /// In which order.
    pub order: Order,
    /// How many jobs are looked at, up to [`LOOKED_MAX`]: a page ends there, however few it has found.
    pub looked_max: usize,
}

impl Default for ListQuery {
    fn default() -> Self {
        let (filter, order) = (Filter::default(), Order::default());
        ListQuery { filter, limit: 0, after: None, order, looked_max: LOOKED_MAX }
    }
}

impl ListQuery {
    /// The first page of the jobs that match, newest first.
    pub fn new(filter: Filter, limit: usize) -> Self {
        ListQuery { filter, limit, ..ListQuery::default() }
    }
}

/// A place in a list, to go on from. Opaque: only the store that made it can read it.
#[derive(Clone, PartialEq, Eq, Debug, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub String);

impl Cursor {
    /// The numbers that an ordered list's cursor is made of.
    pub fn numbers<const N: usize>(&self) -> Result<[i64; N]> {
        let numbers: Option<Vec<i64>> = self.0.split('.').map(|part| part.parse().ok().filter(|n| *n >= 0)).collect();
        numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| self.invalid())
    }

    /// A cursor that is made of numbers.
    pub fn of_numbers(numbers: &[i64]) -> Self {
        let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
        Cursor(texts.join("."))
    }

    /// The error for text that is no cursor of this store.
    pub fn invalid(&self) -> Error {
        Error::invalid("cursor", "was not made by this list; start again without one")
    }
}

/// Asks for keys of a controlled queue, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyQuery {
    /// The queue.
    pub queue: QueueName,
    /// Only keys of which nothing may start now.
    pub blocked: bool,
    /// Only this key.
    pub key: Option<String>,
    /// How many at most, up to [`PAGE_MAX`].
    pub limit: usize,
    /// Where the last page ended.
    pub after: Option<Cursor>,
}

impl KeyQuery {
    /// The first page of all keys of a queue.
    pub fn new(queue: QueueName) -> Self {
        KeyQuery { queue, blocked: false, key: None, limit: 100, after: None }
    }
}

/// Asks for workflows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkflowQuery {
    /// Those with these ids.
    Ids(Vec<WorkflowId>),
    /// All of them, newest first.
    Newest {
        /// How many at most, up to [`PAGE_MAX`].
        limit: usize,
        /// Where the last page ended.
        after: Option<Cursor>,
    },
}

/// One step of an operator's act.
#[derive(Clone, PartialEq, Debug)]
pub struct Operation {
    /// On which jobs.
    pub target: Target,
    /// What.
    pub act: Act,
    /// Who.
    pub by: Option<String>,
    /// Why; empty for no remark.
    pub why: String,
    /// Whether only to say how many it would change.
    pub dry_run: bool,
}

/// On which jobs an operator acts.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "one is made for each call; a box would only be in the way")]
pub enum Target {
    /// These; each that cannot is refused with its reason.
    Jobs(Vec<JobId>),
    /// Those that match and can; oldest first, at most `limit` in one step.
    Matching {
        /// Which jobs.
        filter: Filter,
        /// How many in this step, up to [`PAGE_MAX`].
        limit: usize,
        /// Where the last step ended.
        after: Option<Cursor>,
    },
}

/// What an operator does to jobs. A store refuses one that it does not know.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Act {
    /// Ends them; running ones are asked to stop, or by force lose their lease at once.
    Cancel {
        /// Revoke the leases of running jobs.
        force: bool,
    },
    /// Sends dead ones back.
    Requeue(RequeueOptions),
    /// Dead-letters them.
    DeadLetter,
    /// Removes ended ones.
    Delete,
    /// Changes what may be changed.
    Edit(Edit),
}

impl Act {
    /// Its name, for the record and for errors.
    pub fn name(&self) -> &'static str {
        match self {
            Act::Cancel { .. } => "cancel",
            Act::Requeue(_) => "requeue",
            Act::DeadLetter => "dead-letter",
            Act::Delete => "delete",
            Act::Edit(_) => "edit",
        }
    }
}

/// An operator's word to a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WorkerEdit {
    /// To whom.
    pub worker: WorkerId,
    /// Whether it is to take no more jobs; those that it runs go on.
    pub draining: bool,
    /// Why, for the record.
    pub why: Option<String>,
}

impl WorkerEdit {
    /// Tells a worker to take no more jobs, or to take some again.
    pub fn new(worker: WorkerId, draining: bool) -> Self {
        WorkerEdit { worker, draining, why: None }
    }

    /// Says why, for the record of acts.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into()).filter(|why| !why.is_empty());
        self
    }
}

/// A worker's word that it lives.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct WorkerReport {
    /// Who; new at every start.
    pub id: WorkerId,
    /// The machine it runs on, for people.
    pub host: String,
    /// What it serves.
    pub queues: Vec<ServedQueue>,
    /// The types it has handlers for; `None` for any.
    pub types: Option<Vec<JobType>>,
}

impl WorkerReport {
    /// Whether it is the last: a worker that serves no queue is not there.
    pub fn is_leave(&self) -> bool {
        self.queues.is_empty()
    }
}

/// A queue that a worker serves.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ServedQueue {
    /// The queue.
    pub queue: QueueName,
    /// How many jobs of it the worker runs at once.
    pub slots: u32,
    /// How many it runs now.
    pub busy: u32,
}
