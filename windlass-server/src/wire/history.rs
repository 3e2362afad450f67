//! What happened to one job.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::{State, Timestamp};

use super::job::Failure;
use super::names;

/// What happened to a job, oldest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// What happened.
    pub items: Vec<Happened>,
    /// Whether nothing is missing: older attempts and acts may have been forgotten.
    pub complete: bool,
}

/// One thing that happened to a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Happened {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What: `submitted`, `ready`, `started`, how an attempt ended, what an operator did, or `ended`.
    pub what: String,
    /// Where the job stood from then on; absent where an act says nothing about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::StateName>)]
    pub state: Option<State>,
    /// The number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Who ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The version of its lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_version: Option<u64>,
    /// Who acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl Happened {
    /// Something at a moment, after which the job stood somewhere.
    pub fn new(at: Timestamp, what: &str, state: Option<State>) -> Self {
        let (attempt, worker, lease_version, by, reason, failure) = (None, None, None, None, None, None);
        Happened { at, what: what.to_owned(), state, attempt, worker, lease_version, by, reason, failure }
    }
}
