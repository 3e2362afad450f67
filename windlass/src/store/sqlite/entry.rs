//! A stored job beside its record: what its places have in common, and the attempt that ended it.

use super::columns::time;
use super::job_rows::{Entry, Hot};
use crate::job::{AttemptRecord, JobRecord, LeaseInfo};

impl Entry {
    /// Takes over what every place keeps.
    pub(super) fn apply_hot(&mut self, hot: &Hot) {
        self.flags = hot.flags;
        let job = &mut self.job;
        job.attempt = hot.attempt;
        job.failures = hot.failures;
        job.lost = hot.lost;
        job.generation = hot.generation;
        job.lease_version = u64::try_from(hot.version).unwrap_or_default();
        job.position = time(hot.position);
        job.scheduled_at = hot.scheduled_at.map(time);
        job.started_at = hot.started_at.map(time);
        job.updated_at = time(hot.updated_at);
        job.deadline = hot.deadline.map(time);
    }

    /// The attempt that ended the job, if its row keeps one.
    pub(super) fn inline_attempt(&self) -> Option<AttemptRecord> {
        let closed = self.closed.as_ref()?;
        let lease = LeaseInfo {
            version: self.job.lease_version,
            expires_at: self.job.updated_at,
            worker: closed.worker.clone(),
        };
        let open = JobRecord { lease: Some(lease), ..self.job.clone() }.open_attempt()?;
        let (ended_at, outcome) = (Some(self.job.updated_at), Some(closed.outcome));
        Some(AttemptRecord { ended_at, outcome, failure: self.job.failure.clone(), ..open })
    }
}
