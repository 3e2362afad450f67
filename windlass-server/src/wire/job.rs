//! A stored job, its attempts and its log lines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use windlass::job::{AttemptId, LeaseToken, OnExisting, Outcome, ReasonKind, Scope, SimpleState, Until};
use windlass::{Category, JobId, Priority, State, Timestamp, WorkflowId};

use super::data;
use super::names;
use super::new_job::{Debounce, Dependency, Submitted, TraceContext};
use super::options::with_options;
use super::retry::Retry;
use super::{Limit, RetentionPatch, Span};

/// What stands in place of words that may repeat a payload.
pub const HIDDEN: &str = "hidden from this token";

/// Declares the stored job, which has the options of a job among its members, and takes those out of it.
macro_rules! job {
    ($($(#[$attribute:meta])* pub $member:ident: $kind:ty,)*) => {
        /// A stored job: what was submitted, and what has become of it.
        #[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
        pub struct Job {
            /// Its identity.
            #[schema(value_type = String, format = "uuid")]
            pub id: JobId,
            /// Which handler it is for.
            #[serde(rename = "type")]
            pub job_type: String,
            /// Where it stands.
            #[schema(value_type = names::StateName)]
            pub state: State,
            /// The same in four words, for simple tools.
            #[serde(default = "ready")]
            #[schema(value_type = names::SimpleStateName)]
            pub simple_state: SimpleState,
            /// The most urgent of its own priority and the one it inherits.
            #[schema(value_type = names::PriorityName)]
            pub effective_priority: Priority,
            /// The most urgent priority among the jobs it depends on.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<names::PriorityName>)]
            pub inherited_priority: Option<Priority>,
            /// Its data, where that is JSON.
            #[serde(default, deserialize_with = "data::present", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Value)]
            pub payload: Option<Box<RawValue>>,
            /// Its data, where that is no JSON.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub payload_base64: Option<String>,
            /// What `payload_base64` holds.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub content_type: Option<String>,
            /// That payload, result and checkpoint are left out: the caller may not see them or did not want them, or they have more than
            /// 1 MiB and the call was an act.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            pub payload_hidden: bool,
            /// How often it was started; 0 before the first.
            pub attempt: u32,
            /// Closed attempts that count.
            pub failures: u32,
            /// Attempts lost to an expired lease.
            pub lost: u32,
            /// How often it was requeued.
            pub generation: u32,
            /// The moment that gives its place among the scheduled jobs of its priority.
            #[schema(value_type = String, format = DateTime)]
            pub position: Timestamp,
            /// When it was submitted.
            #[schema(value_type = String, format = DateTime)]
            pub created_at: Timestamp,
            /// When its state last changed.
            #[schema(value_type = String, format = DateTime)]
            pub updated_at: Timestamp,
            /// When it last became scheduled.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub scheduled_at: Option<Timestamp>,
            /// When its current or last attempt started.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub started_at: Option<Timestamp>,
            /// When it became terminal.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub completed_at: Option<Timestamp>,
            /// Until when it waits.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub run_at: Option<Timestamp>,
            /// When its lifetime ends.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub deadline: Option<Timestamp>,
            /// Who holds it, while running.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub lease: Option<Lease>,
            /// The version of its newest lease; 0 before the first.
            pub lease_version: u64,
            /// That its holder was asked to stop.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub cancel: Option<CancelAsked>,
            /// Its last failure.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub failure: Option<Failure>,
            /// The fault of a job that failed for good: its group in `/v1/errors`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub fingerprint: Option<String>,
            /// What its handler returned, where that is JSON.
            #[serde(default, deserialize_with = "data::present", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Value)]
            pub result: Option<Box<RawValue>>,
            /// What its handler returned, where that is no JSON.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub result_base64: Option<String>,
            /// What `result_base64` holds.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub result_content_type: Option<String>,
            /// How far its handler says it is.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub progress: Option<Progress>,
            /// What its handler last saved, where that is JSON.
            #[serde(default, deserialize_with = "data::present", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Value)]
            pub checkpoint: Option<Box<RawValue>>,
            /// What its handler last saved, where that is no JSON.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub checkpoint_base64: Option<String>,
            /// The workflow it belongs to.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = "uuid")]
            pub workflow_id: Option<WorkflowId>,
            /// The firing it comes from.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub firing: Option<Firing>,
            /// The job that spawned it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = "uuid")]
            pub spawned_by: Option<JobId>,
            /// Who submitted it, where that is known: the name of the token. Nothing changes it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(read_only)]
            pub submitted_by: Option<String>,
            /// Why it is terminal.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub reason: Option<Reason>,
            $($(#[$attribute])* pub $member: $kind,)*
            /// The first run that was asked for, as a moment.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = DateTime)]
            pub submitted_run_at: Option<Timestamp>,
            /// The first run that was asked for, as a delay.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub submitted_delay: Option<Span>,
        }

        impl Job {
            /// Takes out what was submitted.
            pub(super) fn take_submitted(&mut self) -> Submitted {
                Submitted { $($member: std::mem::take(&mut self.$member),)* }
            }
        }
    };
}

with_options!(job);

/// What a server that does not say is taken to say; clients go by the job's `state`.
fn ready() -> SimpleState {
    SimpleState::Ready
}

/// Who holds a running job, and until when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// The secret of the lease; only in the answer to the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub token: Option<LeaseToken>,
    /// The lease's number, which only grows.
    pub version: u64,
    /// When it ends unless it is extended.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// How long it holds, from the moment of the answer; only in the answer to the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
    /// The worker that claimed.
    pub worker: String,
}

/// That somebody asked a running job to stop.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CancelAsked {
    /// Who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// A failure as it is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// What kind it was.
    #[schema(value_type = names::CategoryName)]
    pub category: Category,
    /// A code for filters and alerts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Words for people, at most 8 KiB.
    pub message: String,
    /// What caused it, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// When it was recorded.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// How far a handler says it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// From 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    pub fraction: f64,
    /// A few words, at most 256 characters.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub message: String,
}

/// Which schedule fired the job, and for which moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Firing {
    /// The schedule's name.
    pub schedule: String,
    /// The nominal time.
    #[schema(value_type = String, format = DateTime)]
    pub slot: Timestamp,
}

/// Why a job is terminal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// Which of the contract's reasons.
    #[schema(value_type = names::ReasonKindName)]
    pub kind: ReasonKind,
    /// Who wanted it, where somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// In their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// For `dependency`: the job it began with. For `replaced`: the job in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub cause: Option<JobId>,
}

/// One execution, closed or still open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Its own id.
    #[schema(value_type = String, format = "uuid")]
    pub id: AttemptId,
    /// The attempt before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub previous_attempt_id: Option<AttemptId>,
    /// Which start of its generation, from 1.
    pub number: u32,
    /// The generation it belongs to.
    pub generation: u32,
    /// The version of its lease.
    pub lease_version: u64,
    /// Who ran it.
    pub worker: String,
    /// When it was claimed.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::OutcomeName>)]
    pub outcome: Option<Outcome>,
    /// What went wrong, if something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// One line that a handler logged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// The attempt that logged it.
    #[schema(value_type = String, format = "uuid")]
    pub attempt_id: AttemptId,
    /// When it reached the store.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The line, at most 4 KiB.
    pub text: String,
}
