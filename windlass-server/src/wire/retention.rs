//! How long ended jobs are kept where that is said for a job, its type or its queue.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::job::RetentionPatch as Patch;

use super::Limit;

/// How long jobs are kept after their end, by how they ended; `none` until they are deleted. What is left out is left to the
/// next in line: the job's type, its queue, the configured defaults, the retention of the whole store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetentionPatch {
    /// Completed jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Limit>,
    /// Cancelled jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<Limit>,
    /// Failed jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Limit>,
    /// Dead-lettered jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<Limit>,
}

impl RetentionPatch {
    /// What is said, if anything is.
    pub fn of(patch: Patch) -> Option<Self> {
        (!patch.is_silent()).then(|| RetentionPatch {
            completed: patch.completed.map(Limit),
            cancelled: patch.cancelled.map(Limit),
            failed: patch.failed.map(Limit),
            dead_letter: patch.dead_letter.map(Limit),
        })
    }

    /// This, and for what it leaves open the other.
    pub(crate) fn or(self, other: RetentionPatch) -> Self {
        RetentionPatch {
            completed: self.completed.or(other.completed),
            cancelled: self.cancelled.or(other.cancelled),
            failed: self.failed.or(other.failed),
            dead_letter: self.dead_letter.or(other.dead_letter),
        }
    }

    fn named(&self) -> [(&'static str, Option<Limit>); 4] {
        [
            ("completed", self.completed),
            ("cancelled", self.cancelled),
            ("failed", self.failed),
            ("dead_letter", self.dead_letter),
        ]
    }
}

impl From<RetentionPatch> for Patch {
    fn from(retention: RetentionPatch) -> Self {
        Patch {
            completed: retention.completed.map(|limit| limit.0),
            cancelled: retention.cancelled.map(|limit| limit.0),
            failed: retention.failed.map(|limit| limit.0),
            dead_letter: retention.dead_letter.map(|limit| limit.0),
        }
    }
}

impl From<super::Retention> for RetentionPatch {
    fn from(retention: super::Retention) -> Self {
        RetentionPatch {
            completed: Some(retention.completed),
            cancelled: Some(retention.cancelled),
            failed: Some(retention.failed),
            dead_letter: Some(retention.dead_letter),
        }
    }
}

impl fmt::Display for RetentionPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.named().into_iter().filter_map(|(end, limit)| Some(format!("{end} {}", limit?)));
        f.write_str(&named.collect::<Vec<_>>().join(", "))
    }
}

impl FromStr for RetentionPatch {
    type Err = String;

    /// Reads `7d` for every end, or `failed=7d` for one.
    fn from_str(text: &str) -> Result<Self, String> {
        let (end, limit) = text.split_once('=').map_or((None, text), |(end, limit)| (Some(end), limit));
        let limit: Option<Limit> = Some(limit.parse().map_err(|error: super::NotADuration| error.to_string())?);
        let silent = RetentionPatch::default();
        match end {
            None => Ok(RetentionPatch { completed: limit, cancelled: limit, failed: limit, dead_letter: limit }),
            Some("completed") => Ok(RetentionPatch { completed: limit, ..silent }),
            Some("cancelled") => Ok(RetentionPatch { cancelled: limit, ..silent }),
            Some("failed") => Ok(RetentionPatch { failed: limit, ..silent }),
            Some("dead_letter") => Ok(RetentionPatch { dead_letter: limit, ..silent }),
            Some(_) => Err("the ends of a job are completed, cancelled, failed and dead_letter".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_for_every_end_or_for_one() {
        let read = |text: &str| text.parse::<RetentionPatch>();
        assert_eq!(
            read("7d").expect("a retention").to_string(),
            "completed 7d, cancelled 7d, failed 7d, dead_letter 7d"
        );
        assert_eq!(read("failed=none").expect("a retention").to_string(), "failed none");
        assert!(read("gone=1d").expect_err("no end").contains("dead_letter"));
        assert!(read("failed=soon").is_err());
    }
}
