//! Replacing the stored bytes of a job by others that mean the same: for layers that encrypt, when their keys change.

use crate::job::{JobId, Payload};

/// What of a job is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Its payload, with the content type.
    Payload,
    /// Its result, with the content type.
    Result,
    /// Its checkpoint, which has no content type.
    Checkpoint,
}

/// Replaces stored bytes, if they are still those that were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewrite {
    /// The job.
    pub job: JobId,
    /// What of it.
    pub part: Part,
    /// What was read.
    pub old: Payload,
    /// What takes its place.
    pub new: Payload,
}
