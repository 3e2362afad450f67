//! Claims, heartbeats and what is saved under a lease.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use windlass::job::{CancelAsked as StoredCancel, LeaseKey, LeaseToken, Progress as StoredProgress, Stale, WorkerId};
use windlass::store::{CALL_MAX, ClaimRequest, Extended as StoredExtended, Save as StoredSave};
use windlass::{Error, JobId, JobType, QueueName, Result};

use super::data;
use super::job::{CancelAsked, Job, Progress};
use super::{Span, names};

/// Asks for runnable jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The queues to look in, in this order; at most 1,000.
    #[schema(min_items = 1, max_items = 1000)]
    pub queues: Vec<ClaimQueue>,
    /// Only jobs of these types; any unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub types: Option<Vec<String>>,
    /// How many jobs are wanted at most; 1 unless said.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 10000)]
    pub max: usize,
    /// How long the lease holds; each job's visibility timeout unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Span>,
    /// How long to wait for a job when there is none, at most 30 s; not at all unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// Who asks: a name that is new at every start.
    #[schema(min_length = 1, max_length = 255, pattern = "^[A-Za-z0-9_.:/-]+$")]
    pub worker: String,
}

fn one() -> usize {
    1
}

/// A queue to claim from: its name, or its name with how many jobs of it are wanted at most.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ClaimQueue {
    /// Its name.
    Name(String),
    /// Its name and how many.
    Bounded(BoundedQueue),
}

/// A queue and how many jobs of it are wanted at most.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundedQueue {
    /// Its name.
    pub queue: String,
    /// How many at most.
    #[schema(minimum = 1, maximum = 10000)]
    pub max: usize,
}

/// Claimed jobs, each with the token of its lease.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClaimAnswer {
    /// The jobs, in claim order; empty when there is none.
    pub jobs: Vec<Job>,
    /// How long the claim waited before the leases began. Each ends `expires_in` after that: by the caller's clock, this
    /// and `expires_in` after the request was sent.
    #[serde(default)]
    pub waited: Span,
    /// After how long a gate of a controlled queue opens by time alone, if one does: ask again then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_in: Option<Span>,
    /// Whether there are fewer jobs than wanted because the answer would have become too large: claim again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// What a lease is recognised by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldLease {
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// The token of its lease.
    #[schema(value_type = String, format = "uuid")]
    pub token: LeaseToken,
}

/// Heartbeats for up to 10,000 leases.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// The leases.
    #[schema(min_items = 1, max_items = 10000)]
    pub leases: Vec<HeldLease>,
    /// How long they shall hold from now; each job's visibility timeout unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Span>,
}

/// What heartbeats found, in order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExtendAnswer {
    /// One for each lease.
    pub leases: Vec<Extended>,
}

/// What a heartbeat found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Extended {
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// Whether the lease holds.
    pub held: bool,
    /// How long it holds, from the moment of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
    /// That somebody asked the job to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelAsked>,
    /// Why the lease does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::StaleName>)]
    pub stale: Option<Stale>,
}

/// Keeps something of a running attempt.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Save {
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// The token of its lease.
    #[schema(value_type = String, format = "uuid")]
    pub token: LeaseToken,
    /// A new checkpoint, any JSON value up to 1 MiB.
    #[serde(default, deserialize_with = "data::present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub checkpoint: Option<Box<RawValue>>,
    /// A new checkpoint that is no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_base64: Option<String>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Log lines; each is cut at 4 KiB, and of more than 1,000 the newest are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
}

/// Several saves in one call, up to 10,000.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Saves {
    /// The saves.
    #[schema(min_items = 1, max_items = 10000)]
    pub saves: Vec<Save>,
}

/// What became of several saves, in order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SavesAnswer {
    /// One for each save.
    pub saved: Vec<Saved>,
}

/// What became of a save.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Saved {
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// Why the lease does not hold; absent when it was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::StaleName>)]
    pub stale: Option<Stale>,
}

/// Most queues or types that one claim may name; more than a worker serves.
pub const CLAIM_NAMES_MAX: usize = 1000;

impl TryFrom<&Claim> for ClaimRequest {
    type Error = Error;

    fn try_from(claim: &Claim) -> Result<Self> {
        if claim.queues.is_empty() || claim.queues.len() > CLAIM_NAMES_MAX {
            let count = claim.queues.len();
            return Err(Error::invalid("queues", format!("must be 1 to {CLAIM_NAMES_MAX}, are {count}")));
        }
        let count = claim.types.as_ref().map_or(0, Vec::len);
        if count > CLAIM_NAMES_MAX {
            return Err(Error::invalid("types", format!("must be at most {CLAIM_NAMES_MAX}, are {count}")));
        }
        check_max(claim.max)?;
        let queue = |queue: &ClaimQueue| match queue {
            ClaimQueue::Name(name) => Ok((QueueName::new(name)?, claim.max)),
            ClaimQueue::Bounded(bounded) => {
                check_max(bounded.max)?;
                Ok((QueueName::new(&bounded.queue)?, bounded.max))
            }
        };
        let types = claim.types.as_ref().map(|types| types.iter().map(JobType::new).collect::<Result<_>>());
        Ok(ClaimRequest {
            queues: claim.queues.iter().map(queue).collect::<Result<_>>()?,
            types: types.transpose()?,
            limit: claim.max,
            lease_time: claim.lease.map(|span| span.0),
            worker: WorkerId::new(&claim.worker)?,
        })
    }
}

fn check_max(max: usize) -> Result<()> {
    if (1..=CALL_MAX).contains(&max) {
        return Ok(());
    }
    Err(Error::invalid("max", format!("must be 1 to {CALL_MAX}, is {max}")))
}

impl From<&ClaimRequest> for Claim {
    fn from(request: &ClaimRequest) -> Self {
        let bounded = |(queue, max): &(QueueName, usize)| {
            ClaimQueue::Bounded(BoundedQueue { queue: queue.to_string(), max: (*max).min(CALL_MAX) })
        };
        Claim {
            queues: request.queues.iter().filter(|(_, max)| *max > 0).map(bounded).collect(),
            types: request.types.as_ref().map(|types| types.iter().map(ToString::to_string).collect()),
            max: request.limit.min(CALL_MAX),
            lease: request.lease_time.map(Span::from),
            wait: None,
            worker: request.worker.to_string(),
        }
    }
}

impl From<HeldLease> for LeaseKey {
    fn from(lease: HeldLease) -> Self {
        LeaseKey { job: lease.id, token: lease.token }
    }
}

impl From<LeaseKey> for HeldLease {
    fn from(key: LeaseKey) -> Self {
        HeldLease { id: key.job, token: key.token }
    }
}

impl Extended {
    /// The store's answer for a job.
    pub fn of(id: JobId, extended: &StoredExtended) -> Self {
        match extended {
            StoredExtended::Held { expires_in, cancel } => Extended {
                id,
                held: true,
                expires_in: Some((*expires_in).into()),
                cancel: cancel.as_ref().map(CancelAsked::from),
                stale: None,
            },
            StoredExtended::Lost(stale) => {
                Extended { id, held: false, expires_in: None, cancel: None, stale: Some(*stale) }
            }
        }
    }
}

impl From<Extended> for StoredExtended {
    fn from(extended: Extended) -> Self {
        match extended.stale {
            Some(stale) => StoredExtended::Lost(stale),
            None => StoredExtended::Held {
                expires_in: extended.expires_in.unwrap_or_default().0,
                cancel: extended.cancel.map(StoredCancel::from),
            },
        }
    }
}

impl TryFrom<Save> for StoredSave {
    type Error = Error;

    fn try_from(save: Save) -> Result<Self> {
        let mut stored = StoredSave::under(LeaseKey { job: save.id, token: save.token }).log(save.log);
        if let Some(checkpoint) = data::join_bytes("checkpoint", save.checkpoint, save.checkpoint_base64)? {
            stored = stored.checkpoint(checkpoint)?;
        }
        if let Some(progress) = save.progress {
            stored = stored.progress(StoredProgress::new(progress.fraction, progress.message)?);
        }
        Ok(stored)
    }
}

impl From<&StoredSave> for Save {
    fn from(save: &StoredSave) -> Self {
        let key = save.key();
        let (checkpoint, checkpoint_base64) = save.new_checkpoint().map(data::split_bytes).unwrap_or_default();
        Save {
            id: key.job,
            token: key.token,
            checkpoint,
            checkpoint_base64,
            progress: save.new_progress().map(Progress::from),
            log: save.new_log().to_vec(),
        }
    }
}
