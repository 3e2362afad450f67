//! Groups of failed jobs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::job::{Category, Fingerprint};
use windlass::store::FaultGroup;
use windlass::{Error, JobId, JobType, QueueName, Result, Timestamp};

use super::names;

/// Jobs that failed in the same way: of one type, with one category and code or, without a code, with messages that differ only
/// in numbers, ids, quoted text and paths. The numbers are of the newest 1,000 of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorGroup {
    /// What the group is known by; a filter of lists and operations.
    #[schema(value_type = String, pattern = "^[0-7][0-9a-f]{15}$")]
    pub fingerprint: Fingerprint,
    /// The type of the jobs.
    #[serde(rename = "type")]
    pub job_type: String,
    /// What kind of failure it is.
    #[schema(value_type = names::CategoryName)]
    pub category: Category,
    /// Its code, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The message of the newest job, with `<n>`, `<hex>`, `<id>`, `<text>` and `<path>` for what differs from job to job.
    pub pattern: String,
    /// How many jobs; at least as many when `capped`.
    pub count: u64,
    /// Whether there are more jobs than the 1,000 that were looked at.
    pub capped: bool,
    /// How many of them failed in the last 10 minutes.
    pub recent: u64,
    /// When the first of them failed.
    #[schema(value_type = String, format = DateTime)]
    pub first_at: Timestamp,
    /// When the last of them failed.
    #[schema(value_type = String, format = DateTime)]
    pub last_at: Timestamp,
    /// Up to three of the newest of them, newest first.
    #[schema(value_type = Vec<names::Id>)]
    pub sample: Vec<JobId>,
    /// Their queues, by name.
    pub queues: Vec<String>,
    /// How many failed in each two hours of the last day, oldest first.
    #[schema(min_items = 12, max_items = 12)]
    pub trend: Vec<u64>,
}

/// Groups of failed jobs, in the order of their fingerprints.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorPage {
    /// The groups.
    pub items: Vec<ErrorGroup>,
    /// Where to go on; absent at the end. A page may be short, even empty, and still have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// With `state=retrying`: how many jobs were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked: Option<u64>,
    /// With `state=retrying`: whether there are more than were looked at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub capped: bool,
}

impl From<&FaultGroup> for ErrorGroup {
    fn from(group: &FaultGroup) -> Self {
        ErrorGroup {
            fingerprint: group.fingerprint,
            job_type: group.job_type.to_string(),
            category: group.category,
            code: group.code.clone(),
            pattern: group.pattern.clone(),
            count: group.count,
            capped: group.capped,
            recent: group.recent,
            first_at: group.first_at,
            last_at: group.last_at,
            sample: group.sample.clone(),
            queues: group.queues.iter().map(ToString::to_string).collect(),
            trend: group.trend.to_vec(),
        }
    }
}

impl TryFrom<ErrorGroup> for FaultGroup {
    type Error = Error;

    fn try_from(group: ErrorGroup) -> Result<Self> {
        let trend = <[u64; 12]>::try_from(group.trend);
        Ok(FaultGroup {
            fingerprint: group.fingerprint,
            job_type: JobType::new(group.job_type)?,
            category: group.category,
            code: group.code,
            pattern: group.pattern,
            count: group.count,
            capped: group.capped,
            recent: group.recent,
            first_at: group.first_at,
            last_at: group.last_at,
            sample: group.sample,
            queues: group.queues.into_iter().map(QueueName::new).collect::<Result<_>>()?,
            trend: trend.map_err(|_| Error::store("read a group of errors", "its trend has not twelve parts"))?,
        })
    }
}
