//! The job itself: what it is made of, the states it can be in, and every decision about it.
//!
//! This module is pure. It reads no clock, draws no random number and knows no store: time and randomness are
//! arguments. A job's way through it: [`NewJob`] → [`JobSpec`] → [`JobRecord`] → [`Lease`] → [`Settlement`] → [`Verdict`].

mod attempt;
mod damage;
mod dependency;
mod edit;
mod explain;
mod failure;
mod fingerprint;
mod id;
mod lease;
pub(crate) mod micros;
mod micros_option;
mod new_job;
mod options;
mod payload;
mod policies;
mod record;
mod retention;
mod retry;
mod spec;
mod state;
mod unique;
mod verdict;
mod view;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use attempt::{AttemptRecord, Outcome};
pub use damage::Damage;
pub use dependency::{DEPENDENCIES_MAX, Dependency, DependencyKind, DependsOn};
pub use edit::Edit;
pub use explain::{AheadByKey, Circumstances, EXPLAIN_SCAN_MAX, Explanation, Why};
pub(crate) use failure::cut;
pub use failure::{
    CAUSES_MAX, CODE_BYTES_MAX, CODE_CANCELLED, CODE_DAMAGED, CODE_DEPENDENCY, CODE_EXECUTION_TIMEOUT,
    CODE_INTERRUPTED, CODE_INVALID_PAYLOAD, CODE_LEASE_EXPIRED, CODE_LIFETIME, CODE_OPERATOR, CODE_PANIC, Category,
    Failure, FailureRecord, Hold, HoldScope, MESSAGE_BYTES_MAX, OrFailure,
};
pub use fingerprint::Fingerprint;
pub use id::{
    AttemptId, DEFAULT_QUEUE, JobId, JobType, LeaseToken, QUEUE_BYTES_MAX, QueueName, TYPE_BYTES_MAX, WORKER_BYTES_MAX,
    WorkerId, WorkflowId,
};
pub use lease::{Lease, LeaseKey, SPAWN_MAX, Settlement, Stale};
pub use new_job::NewJob;
pub use options::{
    BATCH_MAX, CHECKPOINT_BYTES_MAX, CORRELATION_CHARS_MAX, EXECUTION_NOTICE, FLOW_KEY_CHARS_MAX, Idempotency,
    JobOptions, KEY_CHARS_MAX, Limits, PAYLOAD_BYTES_DEFAULT, PAYLOAD_BYTES_MAX, RunAt, SUBMITTER_CHARS_MAX,
    SYSTEM_PREFIX, Scope, TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX, TAGS_MAX, TIMEOUT_MAX, TRACE_BYTES_MAX, Timeouts,
    TraceContext, URL_BYTES_MAX, WINDOW_DEFAULT, check_tags, check_url,
};
pub(crate) use options::{check_chars, marks};
pub(crate) use payload::check_size;
pub use payload::{CONTENT_TYPE_BYTES_MAX, JSON_DEPTH_MAX, Payload, SEALED_TYPE};
pub use policies::{Policies, PolicyPatch};
pub(crate) use record::REMARK_BYTES_MAX;
pub use record::{
    ATTEMPTS_KEPT, CancelAsked, Firing, JobRecord, LOG_LINE_BYTES_MAX, LOG_LINES_MAX, LeaseInfo, LogLine,
    PROGRESS_CHARS_MAX, Progress, Reason, ReasonKind, RequeueOptions, lease_end_within,
};
pub use retention::RetentionPatch;
pub use retry::{ATTEMPTS_MAX, Backoff, DELAY_MAX, Jitter, LOST_FREE_MAX, Lost, RETRY_AFTER_MAX, Random, RetryPolicy};
pub use spec::JobSpec;
pub use state::{Event, IllegalTransition, SimpleState, State};
pub use unique::{Debounce, OnExisting, POINTERS_MAX, Unique, Until, key_of_payload, key_of_pointers};
pub use verdict::{CancelVerdict, Verdict};

use crate::error::{Error, Result};

/// How urgent a job is. Lower numbers are claimed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Priority {
    /// Goes before all others.
    Critical = 0,
    /// Somebody waits for it.
    High = 1,
    /// Ordinary work.
    #[default]
    Normal = 2,
    /// May wait.
    Low = 3,
    /// Must not get in the way of other work.
    Bulk = 4,
}

impl Priority {
    /// All five, most urgent first.
    pub const ALL: [Priority; 5] =
        [Priority::Critical, Priority::High, Priority::Normal, Priority::Low, Priority::Bulk];

    /// Its number, 0 for the most urgent.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The priority with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Priority> {
        Priority::ALL.get(usize::from(number)).copied()
    }

    /// Lower case, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Priority::Critical => "critical",
            Priority::High => "high",
            Priority::Normal => "normal",
            Priority::Low => "low",
            Priority::Bulk => "bulk",
        }
    }
}

impl std::str::FromStr for Priority {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let named = Priority::ALL.into_iter().find(|priority| priority.as_str().eq_ignore_ascii_case(text));
        let numbered = || text.parse().ok().and_then(Priority::from_number);
        named.or_else(numbered).ok_or_else(|| {
            let problem = format!("{:?} is none of critical, high, normal, low, bulk", id::shorten(text));
            Error::invalid("priority", problem)
        })
    }
}

/// A typed job: a plain struct with a name, so that producers need not link the handler.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass::Job;
///
/// #[derive(Serialize, Deserialize)]
/// struct WelcomeEmail { user_id: u64 }
///
/// impl Job for WelcomeEmail {
///     const TYPE: &'static str = "welcome_email";
///     const QUEUE: &'static str = "mail";
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "it does not implement `Job`",
    note = "implement `windlass::Job` with its `TYPE`, and derive `serde::Serialize` and `serde::Deserialize`"
)]
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// Which handler it is for.
    const TYPE: &'static str;
    /// The lane it goes to unless it is enqueued elsewhere.
    const QUEUE: &'static str = DEFAULT_QUEUE;

    /// Sets what every job of this type has: priority, attempts, timeouts. Callers can override them.
    fn options(new: NewJob) -> NewJob {
        new
    }
}

/// What can be enqueued: a typed [`Job`], or a [`NewJob`] of any type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be enqueued",
    label = "neither a `Job` nor a `NewJob`",
    note = "implement `windlass::Job` for it, or describe it with `NewJob::new(type, payload)`"
)]
pub trait IntoNewJob {
    /// Describes the job; fails when its payload cannot be written as JSON.
    fn into_new_job(self) -> Result<NewJob>;
}

impl<J: Job> IntoNewJob for J {
    fn into_new_job(self) -> Result<NewJob> {
        Ok(J::options(NewJob::new(J::TYPE, Payload::json(&self)?).queue(J::QUEUE)))
    }
}

impl IntoNewJob for NewJob {
    fn into_new_job(self) -> Result<NewJob> {
        Ok(self)
    }
}
