//! A job type as this worker handles it: what goes with its handler, but the handler itself.
//!
//! Apart from the handler, so that an attempt can know it: handlers are functions of attempts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::job::{Failure, JobType, RetryPolicy};
use crate::observe::JobMetrics;

/// What a backoff of one's own is computed from.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Failed<'a> {
    /// Which counted failure of the job this is, from 1.
    pub failures: u32,
    /// The failure.
    pub failure: &'a Failure,
    /// The job's policy: its first delay is `initial`, its longest `max`.
    pub policy: &'a RetryPolicy,
}

/// A backoff of the user's own.
pub(super) type BackoffFunction = dyn Fn(Failed<'_>) -> Duration + Send + Sync;

/// A job type as this worker handles it.
pub(super) struct HandledType {
    pub(super) job_type: JobType,
    pub(super) backoff: Option<Arc<BackoffFunction>>,
    /// By queue, in the order in which the worker names them.
    pub(super) metrics: Vec<JobMetrics>,
}

impl HandledType {
    /// The delay that the user's own backoff wants, capped as the policy's own; `None` where there is none or it panics (rule R3b).
    pub(super) fn own_backoff(&self, failed: Failed<'_>) -> Option<Duration> {
        let backoff = self.backoff.as_ref()?;
        let computed = catch_unwind(AssertUnwindSafe(|| backoff(failed)));
        if computed.is_err() {
            tracing::error!(job.r#type = %self.job_type, "the backoff function panicked; the stored policy is used");
        }
        computed.ok().map(|delay| delay.min(failed.policy.max))
    }
}
