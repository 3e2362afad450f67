//! A stored job beside its record: what its places have in common, and the attempt that ended it.

use rusqlite::Row as SqlRow;

use super::columns::{outcome_of, time, uuid};
use super::fault::Answer;
use super::job_rows::{Closed, Entry, FLAG_CALLBACK, Hot};
use crate::job::{AttemptRecord, JobOptions, JobRecord, LeaseInfo, LeaseToken, WorkerId};

/// The job is kept after its end as was said for it, so its end is written with a moment to go.
const FLAG_KEPT: i64 = 8;

/// The flags that follow from what was submitted.
pub(super) fn flags_of(options: &JobOptions) -> i64 {
    let callback = if options.callback_url.is_some() { FLAG_CALLBACK } else { 0 };
    callback | if options.retention.is_silent() { 0 } else { FLAG_KEPT }
}

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

impl Closed {
    /// How the last attempt of an ended job was closed, from the columns of outcome, token and worker; `None` for a job that
    /// never ran.
    pub(super) fn read(row: &SqlRow<'_>, [outcome, token, worker]: [usize; 3]) -> Answer<Option<Self>> {
        let Some(outcome) = row.get::<_, Option<u8>>(outcome)? else { return Ok(None) };
        Ok(Some(Closed {
            outcome: outcome_of(outcome)?,
            token: LeaseToken::from_uuid(uuid(row, token)?),
            worker: WorkerId::new(row.get_ref(worker)?.as_str()?)?,
        }))
    }
}
