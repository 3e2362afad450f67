//! The small records: queues, workers, workflows, events, acts, numbers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::job::WorkerId;
use windlass::store::{
    ActRecord, Cursor, JobEvent, JobEventKind, QueueRecord, ServedQueue as StoredServed, Totals as StoredTotals, Wake,
    WorkerRecord, WorkerReport as StoredReport,
};
use windlass::workflow::{WorkflowRecord, WorkflowState};
use windlass::{Error, JobId, JobType, QueueName, Result, State, Timestamp, WorkflowId};

use super::control::Controlled;
use super::names;

/// How many jobs are in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct States {
    /// Await their dependencies.
    pub pending: u64,
    /// Await `run_at`.
    pub delayed: u64,
    /// May be claimed now.
    pub scheduled: u64,
    /// Leased to a worker.
    pub running: u64,
    /// Await the end of their backoff.
    pub retrying: u64,
    /// Ended well.
    pub completed: u64,
    /// Ended by a permanent failure.
    pub failed: u64,
    /// Ended because attempts or lifetime ran out.
    pub dead_letter: u64,
    /// Ended because somebody asked.
    pub cancelled: u64,
}

impl From<[u64; 9]> for States {
    fn from(counts: [u64; 9]) -> Self {
        let [pending, delayed, scheduled, running, retrying, completed, failed, dead_letter, cancelled] = counts;
        States { pending, delayed, scheduled, running, retrying, completed, failed, dead_letter, cancelled }
    }
}

impl From<States> for [u64; 9] {
    fn from(states: States) -> Self {
        let States { pending, delayed, scheduled, running, retrying, completed, failed, dead_letter, cancelled } =
            states;
        [pending, delayed, scheduled, running, retrying, completed, failed, dead_letter, cancelled]
    }
}

/// The numbers of a whole store: accepted = sum of states + pruned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// Jobs ever stored.
    pub accepted: u64,
    /// Jobs pruned or deleted since.
    pub pruned: u64,
    /// Jobs in each state.
    pub states: States,
}

/// A queue and what waits in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Whether it is paused.
    pub paused: bool,
    /// Jobs in each state.
    pub states: States,
    /// Since when its longest-waiting scheduled job could have been claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub oldest_scheduled: Option<Timestamp>,
    /// Its flow control, if it is controlled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Controlled>,
    /// How many of its due jobs no claim has sorted to their keys yet, up to 10,000.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at_door: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A queue that a worker serves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServedQueue {
    /// The queue.
    pub queue: String,
    /// How many jobs of it the worker runs at once.
    pub slots: u32,
    /// How many it runs now.
    #[serde(default)]
    pub busy: u32,
}

/// A worker's word that it lives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerReport {
    /// Who; new at every start.
    #[schema(min_length = 1, max_length = 255, pattern = "^[A-Za-z0-9_.:/-]+$")]
    pub id: String,
    /// The machine it runs on, for people; at most 255 characters.
    #[serde(default)]
    #[schema(max_length = 255)]
    pub host: String,
    /// What it serves; at most 1,000 queues.
    #[schema(max_items = 1000)]
    pub queues: Vec<ServedQueue>,
    /// The types it has handlers for; any unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub types: Option<Vec<String>>,
}

/// A live worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Who.
    pub id: String,
    /// The machine it runs on.
    pub host: String,
    /// What it serves.
    pub queues: Vec<ServedQueue>,
    /// The types it has handlers for; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// When it was first heard of.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it was last heard of.
    #[schema(value_type = String, format = DateTime)]
    pub seen_at: Timestamp,
    /// Whether an operator told it to take no more jobs.
    #[serde(default)]
    pub draining: bool,
}

/// What a worker hears when it announces itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Announced {
    /// Whether an operator told it to take no more jobs: claims of such a worker are answered without jobs.
    #[serde(default)]
    pub draining: bool,
}

/// A worker of which nothing is heard any more although it held jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GoneWorker {
    /// Who.
    pub id: String,
    /// The machine it ran on.
    pub host: String,
    /// When it was first heard of.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it was last heard of.
    #[schema(value_type = String, format = DateTime)]
    pub seen_at: Timestamp,
    /// What it held, as it is now; at most 20.
    pub jobs: Vec<LostJob>,
    /// Whether it held more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// A job that a worker held when it went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LostJob {
    /// Its identity.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// Its type.
    #[serde(rename = "type")]
    pub job_type: String,
    /// Its state now.
    #[schema(value_type = names::StateName)]
    pub state: State,
    /// Who runs it now, if somebody does: the worker that went until its lease ends, then who took it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// A workflow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Workflow {
    /// Its identity.
    #[schema(value_type = String, format = "uuid")]
    pub id: WorkflowId,
    /// Its name, for people.
    pub name: String,
    /// How it stands as a whole.
    #[schema(value_type = names::WorkflowStateName)]
    pub state: WorkflowState,
    /// When it was started.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Its jobs in each state.
    pub states: States,
    /// How many of its jobs have been pruned or deleted.
    pub pruned: u64,
}

/// The jobs of a workflow and what waits for what.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Graph {
    /// The jobs, oldest first.
    pub nodes: Vec<Node>,
    /// What waits for what.
    pub edges: Vec<Edge>,
    /// Whether there are more jobs than are shown.
    pub truncated: bool,
}

/// A job of a graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// Its type.
    #[serde(rename = "type")]
    pub job_type: String,
    /// Its queue.
    pub queue: String,
    /// Where it stands.
    #[schema(value_type = names::StateName)]
    pub state: State,
    /// The job that spawned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub spawned_by: Option<JobId>,
    /// Starts in its present generation.
    pub attempt: u32,
    /// When it was submitted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Since when it could be claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub scheduled_at: Option<Timestamp>,
    /// When its last attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// The like siblings that this node stands for as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<names::Id>)]
    pub folded: Vec<JobId>,
}

/// One job waits for another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Edge {
    /// The job that is waited for.
    #[schema(value_type = String, format = "uuid")]
    pub from: JobId,
    /// The job that waits.
    #[schema(value_type = String, format = "uuid")]
    pub to: JobId,
    /// What counts as done.
    #[schema(value_type = names::DependencyKindName)]
    pub kind: windlass::job::DependencyKind,
}

/// Something that happened to a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Where to go on after it.
    pub cursor: String,
    /// What happened.
    pub event: EventKind,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub job: JobId,
    /// Its queue.
    pub queue: String,
    /// Its type.
    #[serde(rename = "type")]
    pub job_type: String,
    /// Who submitted the job, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    /// For `ended`: the terminal state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::StateName>)]
    pub state: Option<State>,
}

/// What happened to a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It was stored.
    Enqueued,
    /// It reached a terminal state.
    Ended,
}

/// A hint that something changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "hint")]
pub enum Hint {
    /// This queue may have a job to claim.
    Scheduled {
        /// The queue.
        queue: String,
    },
    /// This queue was paused.
    Paused {
        /// The queue.
        queue: String,
    },
    /// This job has ended.
    Ended {
        /// The job.
        #[schema(value_type = String, format = "uuid")]
        job: JobId,
    },
    /// Somebody asked this running job to stop.
    CancelAsked {
        /// The job.
        #[schema(value_type = String, format = "uuid")]
        job: JobId,
    },
    /// An operator told this worker something, which it hears when it announces itself.
    Told {
        /// The worker.
        worker: String,
    },
}

/// What an operator did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordedAct {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Who, where they said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What: `cancel`, `requeue`, `pause`, …
    pub act: String,
    /// On what.
    pub target: String,
    /// How many things it changed.
    pub changed: u64,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<StoredTotals> for Totals {
    fn from(totals: StoredTotals) -> Self {
        Totals { accepted: totals.accepted, pruned: totals.pruned, states: totals.states.into() }
    }
}

impl From<Totals> for StoredTotals {
    fn from(totals: Totals) -> Self {
        let mut stored = StoredTotals::default();
        (stored.accepted, stored.pruned, stored.states) = (totals.accepted, totals.pruned, totals.states.into());
        stored
    }
}

impl From<&QueueRecord> for Queue {
    fn from(queue: &QueueRecord) -> Self {
        Queue {
            name: queue.name.to_string(),
            paused: queue.paused,
            states: queue.states.into(),
            oldest_scheduled: queue.oldest_scheduled,
            control: queue.control.as_ref().map(Into::into),
            at_door: queue.at_door,
        }
    }
}

impl TryFrom<Queue> for QueueRecord {
    type Error = Error;

    fn try_from(queue: Queue) -> Result<Self> {
        let mut record = QueueRecord::new(QueueName::new(queue.name)?);
        record.paused = queue.paused;
        record.states = queue.states.into();
        record.oldest_scheduled = queue.oldest_scheduled;
        record.control = queue.control.map(TryInto::try_into).transpose()?;
        record.at_door = queue.at_door;
        Ok(record)
    }
}

impl From<&StoredServed> for ServedQueue {
    fn from(served: &StoredServed) -> Self {
        ServedQueue { queue: served.queue.to_string(), slots: served.slots, busy: served.busy }
    }
}

impl TryFrom<ServedQueue> for StoredServed {
    type Error = Error;

    fn try_from(served: ServedQueue) -> Result<Self> {
        Ok(StoredServed { queue: QueueName::new(served.queue)?, slots: served.slots, busy: served.busy })
    }
}

fn served(queues: &[StoredServed]) -> Vec<ServedQueue> {
    queues.iter().map(ServedQueue::from).collect()
}

fn stored_queues(queues: Vec<ServedQueue>) -> Result<Vec<StoredServed>> {
    queues.into_iter().map(StoredServed::try_from).collect()
}

fn type_names(types: Option<&Vec<JobType>>) -> Option<Vec<String>> {
    types.map(|types| types.iter().map(ToString::to_string).collect())
}

fn stored_types(types: Option<Vec<String>>) -> Result<Option<Vec<JobType>>> {
    types.map(|types| types.into_iter().map(JobType::new).collect()).transpose()
}

impl From<&StoredReport> for WorkerReport {
    fn from(report: &StoredReport) -> Self {
        WorkerReport {
            id: report.id.to_string(),
            host: report.host.clone(),
            queues: served(&report.queues),
            types: type_names(report.types.as_ref()),
        }
    }
}

impl TryFrom<WorkerReport> for StoredReport {
    type Error = Error;

    fn try_from(report: WorkerReport) -> Result<Self> {
        Ok(StoredReport {
            id: WorkerId::new(report.id)?,
            host: report.host,
            queues: stored_queues(report.queues)?,
            types: stored_types(report.types)?,
        })
    }
}

impl From<&WorkerRecord> for Worker {
    fn from(worker: &WorkerRecord) -> Self {
        Worker {
            id: worker.id.to_string(),
            host: worker.host.clone(),
            queues: served(&worker.queues),
            types: type_names(worker.types.as_ref()),
            started_at: worker.started_at,
            seen_at: worker.seen_at,
            draining: worker.draining,
        }
    }
}

impl TryFrom<Worker> for WorkerRecord {
    type Error = Error;

    fn try_from(worker: Worker) -> Result<Self> {
        let report = StoredReport {
            id: WorkerId::new(worker.id)?,
            host: worker.host,
            queues: stored_queues(worker.queues)?,
            types: stored_types(worker.types)?,
        };
        Ok(WorkerRecord::new(report, worker.started_at, worker.seen_at).told(worker.draining))
    }
}

impl From<&WorkflowRecord> for Workflow {
    fn from(workflow: &WorkflowRecord) -> Self {
        Workflow {
            id: workflow.id,
            name: workflow.name.clone(),
            state: workflow.state(),
            created_at: workflow.created_at,
            states: workflow.counts.into(),
            pruned: workflow.pruned,
        }
    }
}

impl From<Workflow> for WorkflowRecord {
    fn from(workflow: Workflow) -> Self {
        let mut record = WorkflowRecord::new(workflow.id, workflow.name, workflow.created_at);
        (record.counts, record.pruned) = (workflow.states.into(), workflow.pruned);
        record
    }
}

impl From<&JobEvent> for Event {
    fn from(event: &JobEvent) -> Self {
        let (kind, state) = match event.kind {
            JobEventKind::Enqueued => (EventKind::Enqueued, None),
            JobEventKind::Ended(state) => (EventKind::Ended, Some(state)),
        };
        Event {
            cursor: event.cursor.0.clone(),
            event: kind,
            at: event.at,
            job: event.job,
            queue: event.queue.to_string(),
            job_type: event.job_type.to_string(),
            submitted_by: event.submitted_by.clone(),
            state,
        }
    }
}

impl TryFrom<Event> for JobEvent {
    type Error = Error;

    fn try_from(event: Event) -> Result<Self> {
        let kind = match (event.event, event.state) {
            (EventKind::Enqueued, _) => JobEventKind::Enqueued,
            (EventKind::Ended, Some(state)) => JobEventKind::Ended(state),
            (EventKind::Ended, None) => return Err(Error::store("read an event", "it comes without its state")),
        };
        let lane = (QueueName::new(event.queue)?, JobType::new(event.job_type)?);
        let mut stored = JobEvent::new(Cursor(event.cursor), event.at, event.job, lane, kind);
        stored.submitted_by = event.submitted_by;
        Ok(stored)
    }
}

impl Hint {
    /// The hint as it is sent; `None` for one that this version has no words for, which costs its readers a poll.
    pub fn of(wake: &Wake) -> Option<Self> {
        Some(match wake {
            Wake::Scheduled(queue) => Hint::Scheduled { queue: queue.to_string() },
            Wake::Paused(queue) => Hint::Paused { queue: queue.to_string() },
            Wake::Ended(job) => Hint::Ended { job: *job },
            Wake::CancelAsked(job) => Hint::CancelAsked { job: *job },
            Wake::Told(worker) => Hint::Told { worker: worker.to_string() },
            _ => return None,
        })
    }
}

impl TryFrom<Hint> for Wake {
    type Error = Error;

    fn try_from(hint: Hint) -> Result<Self> {
        Ok(match hint {
            Hint::Scheduled { queue } => Wake::Scheduled(QueueName::new(queue)?),
            Hint::Paused { queue } => Wake::Paused(QueueName::new(queue)?),
            Hint::Ended { job } => Wake::Ended(job),
            Hint::CancelAsked { job } => Wake::CancelAsked(job),
            Hint::Told { worker } => Wake::Told(WorkerId::new(worker)?),
        })
    }
}

impl From<&ActRecord> for RecordedAct {
    fn from(act: &ActRecord) -> Self {
        RecordedAct {
            at: act.at,
            by: act.by.clone(),
            act: act.act.clone(),
            target: act.target.clone(),
            changed: act.changed,
            reason: act.why.clone(),
        }
    }
}

impl From<RecordedAct> for ActRecord {
    fn from(act: RecordedAct) -> Self {
        let mut record = ActRecord::new(act.at, act.act, act.target, act.changed);
        (record.by, record.why) = (act.by, act.reason);
        record
    }
}
