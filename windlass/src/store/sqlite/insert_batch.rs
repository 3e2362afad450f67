//! Plain jobs: new ones that may be claimed at once and have no options of their own, as nearly all. They are gathered and
//! written together, those of many callers too: several jobs in one statement, and all their places in one more.
//!
//! All other steps of a transaction must find them, so each writes them first ([`Transaction::write_plain_jobs`]).

use bytes::Bytes;
use rusqlite::params;

use super::fault::{Answer, Fault};
use super::hot_statements::HotStatement;
use super::transaction::Transaction;
use crate::job::{JobId, Timeouts};

/// How many jobs `add_jobs.sql` writes.
const TOGETHER: usize = 8;

/// A job that is accepted and not yet written.
pub(super) struct PlainJob {
    pub(super) seq: i64,
    pub(super) id: JobId,
    pub(super) lane: i64,
    pub(super) priority: u8,
    pub(super) created_at: i64,
    pub(super) payload: Bytes,
}

impl Transaction<'_> {
    /// Writes the jobs that were gathered. No other job has a number between theirs.
    pub(super) fn write_plain_jobs(&mut self) -> Answer<()> {
        let jobs = std::mem::take(&mut self.plain_jobs);
        let (Some(first), Some(last)) = (jobs.first(), jobs.last()) else { return Ok(()) };
        let (several, rest) = jobs.as_chunks::<TOGETHER>();
        for jobs in several {
            self.add_jobs(HotStatement::AddJobs, jobs)?;
        }
        for job in rest {
            self.add_jobs(HotStatement::AddPlainJob, std::slice::from_ref(job))?;
        }
        let lifetime = Timeouts::default().lifetime;
        let lifetime = lifetime.map(|lifetime| i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX));
        let placed = self.execute(HotStatement::PlaceJobs, params![first.seq, last.seq, lifetime])?;
        match placed == jobs.len() {
            true => Ok(()),
            false => Err(Fault::broken(format!("{} jobs were accepted and {placed} wait", jobs.len()))),
        }
    }

    /// Runs a statement that writes as many jobs as are given.
    fn add_jobs(&mut self, hot: HotStatement, jobs: &[PlainJob]) -> Answer<()> {
        let mut statement = self.take_statement(hot)?;
        let mut parameter = 1..;
        let mut next = || parameter.next().expect("numbers do not end");
        for job in jobs {
            statement.raw_bind_parameter(next(), job.seq)?;
            statement.raw_bind_parameter(next(), job.id.as_uuid().as_bytes())?;
            statement.raw_bind_parameter(next(), job.lane)?;
            statement.raw_bind_parameter(next(), job.priority)?;
            statement.raw_bind_parameter(next(), job.created_at)?;
            statement.raw_bind_parameter(next(), job.payload.as_ref())?;
        }
        statement.raw_execute()?;
        self.give_statement_back(hot, statement);
        Ok(())
    }
}
