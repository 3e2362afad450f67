//! Why a job is not running now.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::job::{Explanation as StoredExplanation, Why as StoredWhy, WorkerId};
use windlass::{Error, JobId, JobType, QueueName, Result, State, Timestamp};

use super::job::Reason;
use super::names;

/// Every reason why a job is not running now.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub job: JobId,
    /// The state it is in.
    #[schema(value_type = names::StateName)]
    pub state: State,
    /// The reasons; empty when the next claim will take it.
    pub reasons: Vec<Explained>,
    /// About when it starts, where only its turn is waited for and the queue moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Prospect>,
}

/// One reason, for programs and in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Explained {
    /// The reason.
    pub why: Because,
    /// The same in words.
    pub text: String,
    /// When it ends by itself, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// One reason why a job is not running now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Because {
    /// It is running.
    Running {
        /// Who holds it.
        worker: String,
        /// Until when, unless extended.
        #[schema(value_type = String, format = DateTime)]
        expires_at: Timestamp,
    },
    /// It is marked as running, but its lease is over: upkeep will take it back.
    LeaseExpired {
        /// When the lease ended.
        #[schema(value_type = String, format = DateTime)]
        expired_at: Timestamp,
    },
    /// Its holder was asked to stop.
    CancelAsked,
    /// It has ended.
    Ended {
        /// How.
        #[schema(value_type = names::StateName)]
        state: State,
        /// Why, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<Reason>,
    },
    /// Its lifetime is over: upkeep will dead-letter it.
    LifetimeOver {
        /// When it ended.
        #[schema(value_type = String, format = DateTime)]
        deadline: Timestamp,
    },
    /// Its row is damaged: the claim that meets it will dead-letter it.
    Damaged {
        /// What cannot be read.
        damage: String,
    },
    /// Its queue is paused.
    Paused {
        /// The queue.
        queue: String,
    },
    /// A gate of its controlled queue lets nothing through.
    Blocked {
        /// Which: `queue mail`, `type mail.send`, `key acme`.
        gate: String,
        /// By what: `limit`, `rate`, `hold`, `ordered` or `halted`.
        by: String,
        /// What it says.
        words: String,
        /// When it opens, if time alone will open it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        until: Option<Timestamp>,
        /// The jobs that keep it closed, at most ten: those in a full gate that started first, or the one that an ordered
        /// key waits for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schema(value_type = Vec<String>)]
        jobs: Vec<JobId>,
    },
    /// Its first run lies ahead.
    DelayedUntil {
        /// When it may run.
        #[schema(value_type = String, format = DateTime)]
        run_at: Timestamp,
    },
    /// It failed and waits to be tried again.
    BackingOffUntil {
        /// When it may run.
        #[schema(value_type = String, format = DateTime)]
        run_at: Timestamp,
    },
    /// It waits for other jobs.
    WaitsFor {
        /// Which, at most 1,000.
        #[schema(value_type = Vec<String>)]
        jobs: Vec<JobId>,
    },
    /// No live worker serves its queue.
    NoWorkerForQueue {
        /// The queue.
        queue: String,
    },
    /// Live workers serve its queue, but none has a handler for its type.
    NoWorkerForType {
        /// The type.
        #[serde(rename = "type")]
        job_type: String,
    },
    /// Every worker that could run it is busy.
    LimitReached {
        /// How many workers that is.
        workers: usize,
    },
    /// Other jobs come first.
    JobsAhead {
        /// How many; at least this many when `capped`.
        jobs: usize,
        /// Whether counting stopped there.
        capped: bool,
    },
    /// Other jobs of its key come first, in a controlled queue.
    KeyJobsAhead {
        /// The key; empty where it has none.
        key: String,
        /// How many; at least this many when `capped`.
        jobs: usize,
        /// Whether counting stopped there.
        capped: bool,
    },
    /// It is the turn of other keys first, in a controlled queue.
    KeysAhead {
        /// How many; at least this many when `capped`.
        keys: usize,
        /// Whether counting stopped there.
        capped: bool,
    },
    /// A reason that this version of the API has no name for; see the text.
    Other,
}

/// About when a job starts, at the rate of the last minute.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Prospect {
    /// How many jobs come first.
    pub ahead: u64,
    /// How many jobs of the queue ended a second.
    pub rate: f64,
    /// In how many seconds it starts if that goes on.
    pub seconds: f64,
}

/// When a reason ends by itself, where that is known.
fn until(why: &StoredWhy) -> Option<Timestamp> {
    match why {
        StoredWhy::DelayedUntil { run_at } | StoredWhy::BackingOffUntil { run_at } => Some(*run_at),
        StoredWhy::Running { expires_at, .. } => Some(*expires_at),
        _ => None,
    }
}

impl From<&StoredExplanation> for Explanation {
    fn from(explanation: &StoredExplanation) -> Self {
        let explained =
            |why: &StoredWhy| Explained { why: Because::from(why), text: why.to_string(), until: until(why) };
        Explanation {
            job: explanation.job,
            state: explanation.state,
            reasons: explanation.reasons.iter().map(explained).collect(),
            about: None,
        }
    }
}

impl From<&StoredWhy> for Because {
    fn from(why: &StoredWhy) -> Self {
        match why {
            StoredWhy::Running { worker, expires_at } => {
                Because::Running { worker: worker.to_string(), expires_at: *expires_at }
            }
            StoredWhy::LeaseExpired { expired_at } => Because::LeaseExpired { expired_at: *expired_at },
            StoredWhy::CancelAsked => Because::CancelAsked,
            StoredWhy::Ended { state, because } => {
                Because::Ended { state: *state, because: because.as_ref().map(Reason::from) }
            }
            StoredWhy::LifetimeOver { deadline } => Because::LifetimeOver { deadline: *deadline },
            StoredWhy::Damaged { damage } => Because::Damaged { damage: damage.clone() },
            StoredWhy::Paused { queue } => Because::Paused { queue: queue.to_string() },
            StoredWhy::Blocked { gate, by, words, until, jobs } => {
                let (gate, by, words, jobs) = (gate.clone(), by.clone(), words.clone(), jobs.clone());
                Because::Blocked { gate, by, words, until: *until, jobs }
            }
            StoredWhy::DelayedUntil { run_at } => Because::DelayedUntil { run_at: *run_at },
            StoredWhy::BackingOffUntil { run_at } => Because::BackingOffUntil { run_at: *run_at },
            StoredWhy::WaitsFor { jobs } => Because::WaitsFor { jobs: jobs.clone() },
            StoredWhy::NoWorkerForQueue { queue } => Because::NoWorkerForQueue { queue: queue.to_string() },
            StoredWhy::NoWorkerForType { job_type } => Because::NoWorkerForType { job_type: job_type.to_string() },
            StoredWhy::LimitReached { workers } => Because::LimitReached { workers: *workers },
            StoredWhy::JobsAhead { jobs, capped } => Because::JobsAhead { jobs: *jobs, capped: *capped },
            StoredWhy::KeyJobsAhead { key, jobs, capped } => {
                Because::KeyJobsAhead { key: key.clone(), jobs: *jobs, capped: *capped }
            }
            StoredWhy::KeysAhead { keys, capped } => Because::KeysAhead { keys: *keys, capped: *capped },
            _ => Because::Other,
        }
    }
}

impl Because {
    /// The reason as the library knows it; `None` for one that it does not.
    fn stored(self) -> Result<Option<StoredWhy>> {
        Ok(Some(match self {
            Because::Running { worker, expires_at } => {
                StoredWhy::Running { worker: WorkerId::new(worker)?, expires_at }
            }
            Because::LeaseExpired { expired_at } => StoredWhy::LeaseExpired { expired_at },
            Because::CancelAsked => StoredWhy::CancelAsked,
            Because::Ended { state, because } => {
                StoredWhy::Ended { state, because: because.map(windlass::job::Reason::from) }
            }
            Because::LifetimeOver { deadline } => StoredWhy::LifetimeOver { deadline },
            Because::Damaged { damage } => StoredWhy::Damaged { damage },
            Because::Paused { queue } => StoredWhy::Paused { queue: QueueName::new(queue)? },
            Because::Blocked { gate, by, words, until, jobs } => StoredWhy::Blocked { gate, by, words, until, jobs },
            Because::DelayedUntil { run_at } => StoredWhy::DelayedUntil { run_at },
            Because::BackingOffUntil { run_at } => StoredWhy::BackingOffUntil { run_at },
            Because::WaitsFor { jobs } => StoredWhy::WaitsFor { jobs },
            Because::NoWorkerForQueue { queue } => StoredWhy::NoWorkerForQueue { queue: QueueName::new(queue)? },
            Because::NoWorkerForType { job_type } => StoredWhy::NoWorkerForType { job_type: JobType::new(job_type)? },
            Because::LimitReached { workers } => StoredWhy::LimitReached { workers },
            Because::JobsAhead { jobs, capped } => StoredWhy::JobsAhead { jobs, capped },
            Because::KeyJobsAhead { key, jobs, capped } => StoredWhy::KeyJobsAhead { key, jobs, capped },
            Because::KeysAhead { keys, capped } => StoredWhy::KeysAhead { keys, capped },
            Because::Other => return Ok(None),
        }))
    }
}

impl TryFrom<Explanation> for StoredExplanation {
    type Error = Error;

    fn try_from(explanation: Explanation) -> Result<Self> {
        let reasons = explanation.reasons.into_iter().filter_map(|reason| reason.why.stored().transpose());
        Ok(StoredExplanation::new(explanation.job, explanation.state, reasons.collect::<Result<_>>()?))
    }
}
