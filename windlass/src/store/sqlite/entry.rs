//! A stored job beside its record: what its places have in common, and the attempt that ended it.

use rusqlite::{Row as SqlRow, params};

use super::columns::{outcome_of, stored_version, text, time, uuid};
use super::fault::Answer;
use super::job_rows::{Closed, Entry, FLAG_CALLBACK, Hot};
use super::transaction::Transaction;
use crate::job::{ATTEMPTS_KEPT, AttemptRecord, JobOptions, JobRecord, LeaseInfo, LeaseToken, Outcome, WorkerId};

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

impl Transaction<'_> {
    pub(super) fn keep_attempt(&mut self, seq: i64, token: LeaseToken, attempt: &AttemptRecord) -> Answer<()> {
        self.statement(include_str!("sql/add_attempt.sql"))?.execute(params![
            seq,
            stored_version(attempt.lease_version),
            attempt.number,
            attempt.generation,
            attempt.started_at.as_micros(),
            attempt.ended_at.unwrap_or(self.now).as_micros(),
            attempt.outcome.unwrap_or(Outcome::Lost).number(),
            token.as_uuid().as_bytes(),
            attempt.worker.as_str(),
            attempt.failure.as_ref().map(text),
        ])?;
        self.forget_old_attempts(seq, attempt.lease_version)
    }

    /// Every claim raises the version by one, so the newest hundred attempts are those of the newest hundred versions.
    pub(super) fn forget_old_attempts(&mut self, seq: i64, newest: u64) -> Answer<()> {
        if newest > ATTEMPTS_KEPT as u64 {
            let until = [seq, stored_version(newest - ATTEMPTS_KEPT as u64)];
            self.statement(include_str!("sql/forget_attempts.sql"))?.execute(until)?;
            self.statement(include_str!("sql/forget_logs.sql"))?.execute(until)?;
        }
        Ok(())
    }
}
