//! One execution of a job: who ran it, from when to when, and how it ended.

use serde::{Deserialize, Serialize};

use super::{AttemptId, FailureRecord, WorkerId};
use crate::time::Timestamp;

/// One execution, closed or still open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// Its own id.
    pub id: AttemptId,
    /// The attempt before it.
    pub previous: Option<AttemptId>,
    /// Which start of its generation, from 1.
    pub number: u32,
    /// The generation it belongs to.
    pub generation: u32,
    /// The version of its lease.
    pub lease_version: u64,
    /// Who ran it.
    pub worker: WorkerId,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When it ended; `None` while it runs.
    pub ended_at: Option<Timestamp>,
    /// How it ended; `None` while it runs.
    pub outcome: Option<Outcome>,
    /// What went wrong, if something did.
    pub failure: Option<FailureRecord>,
}

impl AttemptRecord {
    /// An attempt of the first generation that still runs, without one before it; set what differs.
    pub fn new(id: AttemptId, number: u32, lease_version: u64, worker: WorkerId, started_at: Timestamp) -> Self {
        AttemptRecord {
            id,
            previous: None,
            number,
            generation: 0,
            lease_version,
            worker,
            started_at,
            ended_at: None,
            outcome: None,
            failure: None,
        }
    }
}

/// How an attempt ended. The first seven are said by the lease holder, the last two happen to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[non_exhaustive]
pub enum Outcome {
    /// Success.
    Completed = 0,
    /// A failure of any category.
    Failed = 1,
    /// Dead-lettered by the handler.
    DeadLettered = 2,
    /// Snoozed by the handler.
    Snoozed = 3,
    /// Ended because it was cancelled.
    Cancelled = 4,
    /// Given back before the handler started.
    Released = 5,
    /// Interrupted by shutdown.
    Interrupted = 6,
    /// The lease expired.
    Lost = 7,
    /// The lease was taken away: by force, by an operator, by the end of the lifetime or of the execution timeout.
    Revoked = 8,
}

impl Outcome {
    /// All nine.
    pub const ALL: &[Outcome] = &[
        Outcome::Completed,
        Outcome::Failed,
        Outcome::DeadLettered,
        Outcome::Snoozed,
        Outcome::Cancelled,
        Outcome::Released,
        Outcome::Interrupted,
        Outcome::Lost,
        Outcome::Revoked,
    ];

    /// Lower case, as in JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Failed => "failed",
            Outcome::DeadLettered => "dead_lettered",
            Outcome::Snoozed => "snoozed",
            Outcome::Cancelled => "cancelled",
            Outcome::Released => "released",
            Outcome::Interrupted => "interrupted",
            Outcome::Lost => "lost",
            Outcome::Revoked => "revoked",
        }
    }

    /// The number a store keeps for it.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The outcome with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Outcome> {
        Outcome::ALL.get(usize::from(number)).copied()
    }
}
