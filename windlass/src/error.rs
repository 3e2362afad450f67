//! The library's one error, its variants named by what a caller can do about them.

use std::time::Duration;

use crate::job::{JobId, Stale, State};

/// What went wrong, and with what.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lease no longer holds: somebody else may own the job. Nothing was changed.
    #[error("stale lease on job {job}: {stale}")]
    StaleLease {
        /// The job the lease was for.
        job: JobId,
        /// Why the lease does not hold.
        stale: Stale,
    },
    /// There is no such thing.
    #[error("{what} {name:?} does not exist")]
    NotFound {
        /// What was looked for: `job`, `schedule`, `workflow`, …
        what: &'static str,
        /// Its id or name.
        name: String,
    },
    /// A field is out of bounds. Nothing was stored.
    #[error("invalid {field}: {problem}")]
    InvalidArgument {
        /// The field's name, as in the contract.
        field: &'static str,
        /// The limit, and the size of the value that broke it.
        problem: String,
    },
    /// A payload, result or checkpoint is larger than allowed. Nothing was stored.
    #[error("{what} of {size} bytes is larger than the limit of {limit} bytes")]
    PayloadTooLarge {
        /// `payload`, `result` or `checkpoint`.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A job depends on a job that does not exist. Nothing was stored.
    #[error("cannot depend on job {job}: it does not exist")]
    DependencyNotFound {
        /// The id that was not found.
        job: JobId,
    },
    /// The dependencies run in a circle. Nothing was stored.
    #[error("the dependencies form a cycle through {through}")]
    DependencyCycle {
        /// One job on the cycle: `job 3 of the batch`, or an id.
        through: String,
    },
    /// Too many dependencies, or too deep a graph. Nothing was stored.
    #[error("{what} of {size} is over the limit of {limit}")]
    DependencyLimit {
        /// `dependency count` or `dependency depth`.
        what: &'static str,
        /// How many there were.
        size: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The job's state does not allow this.
    #[error("cannot {wanted} job {job}: it is {state}")]
    IllegalState {
        /// The job.
        job: JobId,
        /// The state it is in.
        state: State,
        /// What was asked for: `cancel`, `requeue`, …
        wanted: &'static str,
    },
    /// Something else stands in the way: a name that is taken, a version that has moved on, a job that is needed.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The caller may not do this.
    #[error("not allowed: {0}")]
    Unauthorized(String),
    /// The store cannot be reached or cannot write now.
    #[error("cannot {attempted}: the store is unavailable: {problem}{}", outcome(*.known))]
    StoreUnavailable {
        /// What was being done: `enqueue 3 jobs`, `claim from queue "mail"`.
        attempted: String,
        /// What the store said.
        problem: String,
        /// Whether it is certain that nothing was written.
        known: bool,
        /// The store's own error.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The enqueue was not acknowledged in time; whether it happened is not known.
    #[error("enqueue was not acknowledged within {}s; it may have happened: repeat it with its idempotency key", .after.as_secs())]
    SubmissionTimeout {
        /// How long was waited.
        after: Duration,
    },
    /// The store failed in a way that trying again will not mend: a corrupt file, a schema that is too new.
    #[error("cannot {attempted}: {source}")]
    Store {
        /// What was being done.
        attempted: String,
        /// The store's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Shorthand for results of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The variant's name, stable, for logs, metrics and HTTP problem types.
    pub fn name(&self) -> &'static str {
        match self {
            Error::StaleLease { .. } => "StaleLease",
            Error::NotFound { .. } => "NotFound",
            Error::InvalidArgument { .. } => "InvalidArgument",
            Error::PayloadTooLarge { .. } => "PayloadTooLarge",
            Error::DependencyNotFound { .. } => "DependencyNotFound",
            Error::DependencyCycle { .. } => "DependencyCycle",
            Error::DependencyLimit { .. } => "DependencyLimit",
            Error::IllegalState { .. } => "IllegalState",
            Error::Conflict(_) => "Conflict",
            Error::Unauthorized(_) => "Unauthorized",
            Error::StoreUnavailable { .. } => "StoreUnavailable",
            Error::SubmissionTimeout { .. } => "SubmissionTimeout",
            Error::Store { .. } => "Store",
        }
    }

    /// Whether it is certain that the attempted write did not happen.
    pub fn outcome_is_known(&self) -> bool {
        match self {
            Error::StoreUnavailable { known, .. } => *known,
            Error::SubmissionTimeout { .. } | Error::Store { .. } => false,
            _ => true,
        }
    }

    /// Whether the same call may succeed later without being changed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::StoreUnavailable { .. } | Error::SubmissionTimeout { .. })
    }

    /// An [`Error::InvalidArgument`].
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Error::InvalidArgument { field, problem: problem.into() }
    }

    /// An [`Error::NotFound`] for a job.
    pub fn no_such_job(id: JobId) -> Self {
        Error::NotFound { what: "job", name: id.to_string() }
    }

    /// An [`Error::NotFound`].
    pub fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Error::NotFound { what, name: name.into() }
    }

    /// An [`Error::Store`].
    pub fn store(attempted: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Store { attempted: attempted.into(), source: source.into() }
    }
}

fn outcome(known: bool) -> &'static str {
    if known { "; nothing was written" } else { "; whether it was written is not known" }
}
