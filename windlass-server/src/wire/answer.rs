//! Lists, pages and single values that routes answer with.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::store::{Retention as StoredRetention, Upkeep as StoredUpkeep, UpkeepReport as StoredReport};
use windlass::{JobId, Timestamp, WorkflowId};

use super::job::{Attempt, Job, LogLine};
use super::operate::{Action, Refused};
use super::problem::Problem;
use super::record::{Event, GoneWorker, Queue, RecordedAct, Worker, Workflow};
use super::{Limit, names};

/// A page of a list.
macro_rules! page {
    ($(#[$doc:meta])* $name:ident of $item:ty) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
        pub struct $name {
            /// The rows.
            pub items: Vec<$item>,
            /// Where to go on; absent at the end. A page may be short, even empty, and still have one.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub next_cursor: Option<String>,
        }
    };
}

/// A whole list.
macro_rules! list {
    ($(#[$doc:meta])* $name:ident of $item:ty) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
        pub struct $name {
            /// The rows.
            pub items: Vec<$item>,
        }
    };
}

/// A page of jobs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobPage {
    /// The rows.
    pub items: Vec<Job>,
    /// Where to go on; absent at the end. A page may be short, even empty, and still have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Where the page ended because enough jobs were looked at: how many were. `next_cursor` looks on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked: Option<Looked>,
}

/// How far a list looked before it stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Looked {
    /// How many jobs.
    pub jobs: u64,
}
page! {
    /// Workflows, newest first.
    WorkflowPage of Workflow
}
page! {
    /// What happened to jobs, oldest first.
    EventPage of Event
}
page! {
    /// What operators did, newest first.
    ActPage of RecordedAct
}
list! {
    /// The attempts of a job, oldest first.
    Attempts of Attempt
}
list! {
    /// What the attempts of a job logged, oldest first.
    Logs of LogLine
}
page! {
    /// Queues, by name.
    QueuePage of Queue
}
/// The workers that live, by id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Workers {
    /// The rows.
    pub items: Vec<Worker>,
    /// How many of them are left out, because the answer would become too large.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// With `gone`: those that went without goodbye, the last first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<GoneWorker>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Whose a store is to be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// The command.
    #[schema(min_length = 1, max_length = 100)]
    pub owner: String,
}

/// The configuration was read again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// How many tokens are in force.
    pub tokens: usize,
}
list! {
    /// The acts on many jobs that this server runs or ran, newest first.
    Operations of OperationStatus
}
list! {
    /// Contradictions in what is stored; none is good.
    Findings of String
}
list! {
    /// The workflows with the ids that were asked for, in order; `null` for one that does not exist.
    FoundWorkflows of Option<Workflow>
}

/// The jobs with the ids that were asked for, each once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FoundJobs {
    /// The jobs, in the order of their first mention; `null` for one that does not exist.
    pub items: Vec<Option<Job>>,
    /// The ids that were not looked up because the answer would have become too large: ask for them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<names::Id>)]
    pub rest: Vec<JobId>,
}

/// Asks for jobs by id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobIds {
    /// The ids, up to 10,000.
    #[schema(value_type = Vec<names::Id>, min_items = 1, max_items = 10000)]
    pub ids: Vec<JobId>,
}

/// Asks for workflows by id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowIds {
    /// The ids, up to 10,000.
    #[schema(value_type = Vec<names::Id>, min_items = 1, max_items = 10000)]
    pub ids: Vec<WorkflowId>,
}

/// The store's time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Now {
    /// The store's time, which decides everything.
    #[schema(value_type = String, format = DateTime)]
    pub now: Timestamp,
}

/// How many jobs match.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Count {
    /// How many; at least this many when `capped`.
    pub count: u64,
    /// Whether counting stopped there: at `cap`, or because enough rows were looked at.
    pub capped: bool,
    /// How many rows were looked at for it, at most; none where the store keeps the number.
    #[serde(default)]
    pub looked: u64,
}

/// How many things an act changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// How many.
    pub changed: u64,
}

/// Asks for one step of upkeep.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Upkeep {
    /// How many rows of each kind are dealt with at most, 1 to 10,000; 1,000 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub limit: Option<usize>,
    /// How long ended jobs are kept; completed and cancelled ones 24 h, the others until deleted, unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// How long ended jobs are kept; `forever` until they are deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Completed jobs.
    pub completed: Limit,
    /// Cancelled jobs.
    pub cancelled: Limit,
    /// Failed jobs.
    pub failed: Limit,
    /// Dead-lettered jobs.
    pub dead_letter: Limit,
}

/// What one step of upkeep did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UpkeepReport {
    /// Jobs whose lifetime ended.
    pub lifetimes: usize,
    /// Leases that had expired.
    pub expired: usize,
    /// Jobs fired by schedules.
    pub fired: usize,
    /// Ended jobs and idempotency keys removed.
    pub pruned: usize,
    /// Whether another step would find more.
    pub more: bool,
}

/// An act on many jobs, and how far it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OperationStatus {
    /// Its id.
    #[schema(value_type = String, format = "uuid")]
    pub id: uuid::Uuid,
    /// What is done.
    pub action: Action,
    /// Whether only to say how many it would change.
    pub dry_run: bool,
    /// How it stands.
    pub state: OperationState,
    /// Jobs that were changed so far, or would be.
    pub changed: u64,
    /// Jobs named by id that could not be changed, and why; the first 1,000.
    pub refused: Vec<Refused>,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// What stopped it, where something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// How an act on many jobs stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// It goes on.
    Running,
    /// It is through.
    Done,
    /// Something stopped it; what it had changed stays changed.
    Failed,
    /// Somebody stopped it; what it had changed stays changed.
    Stopped,
}

impl From<Retention> for StoredRetention {
    fn from(retention: Retention) -> Self {
        StoredRetention {
            completed: retention.completed.0,
            cancelled: retention.cancelled.0,
            failed: retention.failed.0,
            dead_letter: retention.dead_letter.0,
        }
    }
}

impl From<StoredRetention> for Retention {
    fn from(retention: StoredRetention) -> Self {
        Retention {
            completed: Limit(retention.completed),
            cancelled: Limit(retention.cancelled),
            failed: Limit(retention.failed),
            dead_letter: Limit(retention.dead_letter),
        }
    }
}

impl From<&StoredUpkeep> for Upkeep {
    fn from(upkeep: &StoredUpkeep) -> Self {
        Upkeep { limit: Some(upkeep.limit), retention: Some(upkeep.retention.into()) }
    }
}

impl From<StoredReport> for UpkeepReport {
    fn from(report: StoredReport) -> Self {
        let StoredReport { lifetimes, expired, fired, pruned, more, .. } = report;
        UpkeepReport { lifetimes, expired, fired, pruned, more }
    }
}

impl From<UpkeepReport> for StoredReport {
    fn from(report: UpkeepReport) -> Self {
        let UpkeepReport { lifetimes, expired, fired, pruned, more } = report;
        let mut stored = StoredReport::default();
        (stored.lifetimes, stored.expired, stored.fired) = (lifetimes, expired, fired);
        (stored.pruned, stored.more) = (pruned, more);
        stored
    }
}
