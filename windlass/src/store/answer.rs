//! What a store answers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::{Cursor, ServedQueue, WorkerReport};
use crate::error::Error;
use crate::job::{
    CancelAsked, Circumstances, JobId, JobRecord, JobType, Lease, QueueName, Stale, State, WorkerId, WorkflowId,
};
use crate::schedule::ScheduleRecord;
use crate::time::Timestamp;
pub use crate::workflow::InsertedJob;

/// A stored submission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inserted {
    /// One for each job, in order.
    pub jobs: Vec<InsertedJob>,
    /// The workflow's id, if it is one.
    pub workflow: Option<WorkflowId>,
}

/// A claimed job and the lease on it.
#[derive(Debug)]
pub struct Claimed {
    /// The job, RUNNING.
    pub job: JobRecord,
    /// The right to settle it.
    pub lease: Lease,
    /// How long the lease holds, from the moment the store answered.
    pub expires_in: Duration,
}

/// What a claim took, and when to ask again. Reads like the list of its jobs.
#[derive(Debug, Default)]
pub struct Claims {
    /// The jobs, each with its lease.
    pub jobs: Vec<Claimed>,
    /// After how long a gate of a controlled queue opens by time alone, if one does (rule K15).
    pub again_in: Option<Duration>,
}

impl From<Vec<Claimed>> for Claims {
    fn from(jobs: Vec<Claimed>) -> Self {
        Claims { jobs, again_in: None }
    }
}

impl std::ops::Deref for Claims {
    type Target = Vec<Claimed>;

    fn deref(&self) -> &Vec<Claimed> {
        &self.jobs
    }
}

impl std::ops::DerefMut for Claims {
    fn deref_mut(&mut self) -> &mut Vec<Claimed> {
        &mut self.jobs
    }
}

impl<'a> IntoIterator for &'a Claims {
    type Item = &'a Claimed;
    type IntoIter = std::slice::Iter<'a, Claimed>;

    fn into_iter(self) -> Self::IntoIter {
        self.jobs.iter()
    }
}

impl IntoIterator for Claims {
    type Item = Claimed;
    type IntoIter = std::vec::IntoIter<Claimed>;

    fn into_iter(self) -> Self::IntoIter {
        self.jobs.into_iter()
    }
}

/// What a heartbeat found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extended {
    /// The lease holds.
    Held {
        /// For how long, from the moment the store answered.
        expires_in: Duration,
        /// That somebody asked the job to stop.
        cancel: Option<CancelAsked>,
    },
    /// The lease is lost.
    Lost(Stale),
}

/// What became of a settlement.
#[derive(Debug)]
pub enum Settled {
    /// It was written; the job is now in this state.
    Applied(State),
    /// The same settlement had been written before.
    AlreadyApplied,
    /// The lease does not hold; nothing was changed.
    Stale(Stale),
    /// It cannot be written as it is (a spawned job names a dependency that does not exist); nothing was changed.
    Refused(Error),
}

/// What one step of upkeep did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct UpkeepReport {
    /// Jobs whose lifetime ended.
    pub lifetimes: usize,
    /// Leases that had expired.
    pub expired: usize,
    /// Jobs fired by schedules.
    pub fired: usize,
    /// Ended jobs and idempotency keys removed.
    pub pruned: usize,
    /// Whether a limit was reached, so that another step would find more.
    pub more: bool,
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Where to go on; `None` at the end. A page may be short, even empty, and still have one.
    pub next: Option<Cursor>,
    /// How many rows were looked at to find these.
    pub looked: usize,
}

impl<T> Page<T> {
    /// A page for which nothing else was looked at.
    pub fn new(items: Vec<T>, next: Option<Cursor>) -> Self {
        Page { looked: items.len(), items, next }
    }
}

/// Something that happened to a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct JobEvent {
    /// Where to go on after it.
    pub cursor: Cursor,
    /// When.
    pub at: Timestamp,
    /// The job.
    pub job: JobId,
    /// Its queue.
    pub queue: QueueName,
    /// Its type.
    pub job_type: JobType,
    /// Who submitted the job, where that is known.
    pub submitted_by: Option<String>,
    /// What happened.
    pub kind: JobEventKind,
}

impl JobEvent {
    /// Something that happened to this job; nobody is known to have submitted it.
    pub fn new(cursor: Cursor, at: Timestamp, job: JobId, lane: (QueueName, JobType), kind: JobEventKind) -> Self {
        JobEvent { cursor, at, job, queue: lane.0, job_type: lane.1, submitted_by: None, kind }
    }
}

/// What happened to a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEventKind {
    /// It was stored.
    Enqueued,
    /// It reached this terminal state.
    Ended(State),
}

/// How many jobs match, as far as was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Counted {
    /// How many; at least this many when `capped`.
    pub count: u64,
    /// How many rows were looked at for it, at most; none where the store keeps the number.
    pub looked: u64,
    /// Whether counting stopped there: at its cap, or because enough rows were looked at.
    pub capped: bool,
}

impl Counted {
    /// A number, how many rows were looked at for it, and whether counting stopped there.
    pub fn new(count: u64, looked: u64, capped: bool) -> Self {
        Counted { count, looked, capped }
    }

    /// A number that the store keeps, cut at a cap.
    pub(crate) fn kept(count: u64, cap: u64) -> Self {
        Counted { count: count.min(cap), looked: 0, capped: count >= cap }
    }
}

/// How safe what a store confirms is (rule D3), as far as its settings tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Durability {
    /// Whether each confirmed commit is on a second server too; `None` where that does not apply or cannot be told.
    pub replicated: Option<bool>,
    /// What endangers confirmed commits, a sentence each.
    pub warnings: Vec<String>,
    /// What is added to the clock of the store's server, in microseconds, so that the store's time goes on where that leapt (rule
    /// L8); `None` where the store has no server.
    pub skew_micros: Option<i64>,
    /// The host that the store is on, where it is on a server.
    pub host: Option<String>,
    /// The timeline of that server: each promotion of a PostgreSQL standby begins a higher one.
    pub timeline: Option<u32>,
}

/// The numbers of a whole store (rule D7: accepted = sum of states + pruned).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Jobs ever stored.
    pub accepted: u64,
    /// Jobs pruned or deleted since.
    pub pruned: u64,
    /// Jobs in each state, in the order of [`State::ALL`].
    pub states: [u64; 9],
}

impl Totals {
    /// How many jobs are in this state.
    pub fn count(&self, state: State) -> u64 {
        self.states[usize::from(state.number())]
    }
}

/// What a step of an operator's act did, or would do.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Operated {
    /// Jobs that were changed, or would be.
    pub changed: u64,
    /// Jobs named by id that could not be changed, and why.
    pub refused: Vec<(JobId, Error)>,
    /// Where to go on; `None` when nothing is left.
    pub next: Option<Cursor>,
}

/// An act that was recorded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ActRecord {
    /// When.
    pub at: Timestamp,
    /// Who, where they said so.
    pub by: Option<String>,
    /// What: `cancel`, `requeue`, `pause`, …
    pub act: String,
    /// On what: a job's id, `queue mail`, or the filter in words.
    pub target: String,
    /// How many things it changed.
    pub changed: u64,
    /// Why, in their words.
    pub why: Option<String>,
}

impl ActRecord {
    /// An act of which nobody said who did it, and why.
    pub fn new(at: Timestamp, act: impl Into<String>, target: impl Into<String>, changed: u64) -> Self {
        ActRecord { at, by: None, act: act.into(), target: target.into(), changed, why: None }
    }

    /// As it is kept: remarks that are longer than anybody reads are cut, as those on a job are.
    pub(crate) fn kept(self) -> Self {
        let cut = |text: String| crate::job::cut(text, crate::job::REMARK_BYTES_MAX);
        ActRecord { by: self.by.map(cut), target: cut(self.target), why: self.why.map(cut), ..self }
    }
}

/// A queue and what waits in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct QueueRecord {
    /// Its name.
    pub name: QueueName,
    /// Whether it is paused.
    pub paused: bool,
    /// Jobs in each state, in the order of [`State::ALL`].
    pub states: [u64; 9],
    /// Since when its longest-waiting SCHEDULED job could have been claimed.
    pub oldest_scheduled: Option<Timestamp>,
    /// Its flow control, if it is controlled.
    pub control: Option<crate::flow::ControlRecord>,
    /// How many of its due jobs stand at the door: no claim has sorted them to their keys yet. Counted up to
    /// [`DOOR_JOBS_MAX`], and 0 where keys make no difference.
    pub at_door: u64,
}

/// How many jobs at the door of a controlled queue are looked at, to count them and to tell which keys they have.
pub const DOOR_JOBS_MAX: u64 = 10_000;

impl QueueRecord {
    /// A queue with no job, not paused and not controlled; set what differs.
    pub fn new(name: QueueName) -> Self {
        QueueRecord { name, paused: false, states: [0; 9], oldest_scheduled: None, control: None, at_door: 0 }
    }

    /// How many jobs are in this state.
    pub fn count(&self, state: State) -> u64 {
        self.states[usize::from(state.number())]
    }

    /// Whether nothing is left of it: no job, nobody paused it, and it is not controlled. Producers choose the names, so a list of all that
    /// ever were would grow for ever.
    pub fn is_forgotten(&self) -> bool {
        !self.paused && self.control.is_none() && self.states == [0; 9]
    }
}

/// What a worker hears when it announces itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Announced {
    /// Whether an operator told it to take no more jobs.
    pub draining: bool,
}

impl Announced {
    /// What a worker hears that is to take no more jobs, or is not.
    pub fn new(draining: bool) -> Self {
        Announced { draining }
    }
}

/// A live worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct WorkerRecord {
    /// Who.
    pub id: WorkerId,
    /// The machine it runs on, for people.
    pub host: String,
    /// What it serves.
    pub queues: Vec<ServedQueue>,
    /// The types it has handlers for; `None` for any.
    pub types: Option<Vec<JobType>>,
    /// When it was first heard of.
    pub started_at: Timestamp,
    /// When it was last heard of.
    pub seen_at: Timestamp,
    /// Whether an operator told it to take no more jobs.
    pub draining: bool,
}

impl WorkerRecord {
    /// A worker by its last report, and when it was first and last heard of.
    pub fn new(report: WorkerReport, started_at: Timestamp, seen_at: Timestamp) -> Self {
        let WorkerReport { id, host, queues, types } = report;
        WorkerRecord { id, host, queues, types, started_at, seen_at, draining: false }
    }

    /// The same, told to take no more jobs or not.
    #[must_use]
    pub fn told(mut self, draining: bool) -> Self {
        self.draining = draining;
        self
    }

    /// A worker that has announced itself, by what was known of it.
    pub fn announced(report: &WorkerReport, known: Option<&WorkerRecord>, now: Timestamp) -> Self {
        let (started_at, draining) = known.map_or((now, false), |known| (known.started_at, known.draining));
        WorkerRecord::new(report.clone(), started_at, now).told(draining && !report.is_leave())
    }

    /// Adds what this worker means for a job to what is known around it.
    pub fn tell(&self, job: &JobRecord, around: &mut Circumstances) {
        if self.draining {
            return;
        }
        let Some(served) = self.queues.iter().find(|served| served.queue == job.spec.queue) else { return };
        around.queue_workers += 1;
        if self.types.as_ref().is_none_or(|types| types.contains(&job.spec.job_type)) {
            around.type_workers += 1;
            around.free_slots += served.slots.saturating_sub(served.busy) as usize;
        }
    }
}

/// A schedule after a change.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleEdited {
    /// The schedule; as it was, when it was deleted.
    pub schedule: ScheduleRecord,
    /// The job that a trigger fired.
    pub job: Option<JobId>,
}

/// What the newest lines of a job's log may take up in an answer; older lines are left out. A job may have kept a hundred
/// times as much.
pub const LOGS_BYTES_MAX: usize = 8 << 20;
/// What the reports of workers may take up in an answer; the others are left out.
pub const WORKERS_BYTES_MAX: usize = 16 << 20;
/// What a line counts beside its text.
pub(crate) const LOG_LINE_BYTES: usize = 64;

/// Whether a line or report of this many bytes still fits into an answer that has room for `left`, which it then takes.
pub(crate) fn fits(bytes: usize, left: &mut usize) -> bool {
    match left.checked_sub(bytes) {
        None => false,
        Some(rest) => {
            *left = rest;
            true
        }
    }
}

/// A hint that something changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wake {
    /// This queue may have a job to claim.
    Scheduled(QueueName),
    /// This queue was paused.
    Paused(QueueName),
    /// This job has ended.
    Ended(JobId),
    /// Somebody asked a running job to stop.
    CancelAsked(JobId),
    /// An operator told this worker something, which it hears when it announces itself.
    Told(WorkerId),
}

/// Counts by state, for stores that sum them up from rows.
pub fn counts(rows: impl IntoIterator<Item = (State, u64)>) -> [u64; 9] {
    let mut states = [0; 9];
    for (state, count) in rows {
        states[usize::from(state.number())] += count;
    }
    states
}

/// Words for a filter, for the record of acts.
pub fn describe(filter: &super::request::Filter) -> String {
    let mut words: BTreeMap<&str, String> = BTreeMap::new();
    if !filter.states.is_empty() {
        let names: Vec<_> = filter.states.iter().map(|state| state.as_str()).collect();
        words.insert("state", names.join(","));
    }
    let texts = [
        ("queue", filter.queue.as_ref().map(ToString::to_string)),
        ("type", filter.job_type.as_ref().map(ToString::to_string)),
        ("workflow", filter.workflow.as_ref().map(ToString::to_string)),
        ("schedule", filter.schedule.clone()),
        ("correlation_id", filter.correlation_id.clone()),
        ("code", filter.code.clone()),
        ("created_from", filter.created_from.map(|at| at.to_string())),
        ("created_before", filter.created_before.map(|at| at.to_string())),
        ("ended_before", filter.ended_before.map(|at| at.to_string())),
        ("ended_from", filter.ended_from.map(|at| at.to_string())),
        ("changed_before", filter.changed_before.map(|at| at.to_string())),
        ("fingerprint", filter.fingerprint.map(|fingerprint| fingerprint.to_string())),
        ("worker", filter.worker.as_ref().map(ToString::to_string)),
        ("key", filter.key.clone()),
        ("text", filter.text.clone()),
    ];
    words.extend(texts.into_iter().filter_map(|(name, text)| Some((name, text?))));
    let tags = filter.tags.iter().map(|(key, value)| format!("tag.{key}={value}"));
    let all: Vec<_> = words.iter().map(|(name, text)| format!("{name}={text}")).chain(tags).collect();
    if all.is_empty() { "all jobs".to_owned() } else { format!("jobs with {}", all.join(" ")) }
}
