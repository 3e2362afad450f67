//! The lease holder's smaller calls: extend and save. Both are fenced by the token (L2).

use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::columns::{json, text, time, uuid};
use super::fault::Answer;
use super::job_rows::FLAG_NOTE;
use super::transaction::Transaction;
use crate::job::{CancelAsked, LOG_LINES_MAX, LeaseKey, LeaseToken, Stale, Timeouts, lease_end_within};
use crate::store::answer::Extended;
use crate::store::request::Save;
use crate::time::Timestamp;

/// A lease that holds.
pub(super) struct Held {
    seq: i64,
    expires_at: Timestamp,
    deadline: Option<Timestamp>,
    /// The moment beyond which the lease is not extended (T1b).
    limit: Option<Timestamp>,
    version: i64,
    flags: i64,
    pub(super) cancel: Option<CancelAsked>,
}

impl Transaction<'_> {
    /// The lease that a key names, or why it does not hold (L2, L3).
    pub(super) fn fence(&self, key: &LeaseKey) -> Answer<Result<Held, Stale>> {
        let seq = self.seq_of(key.job);
        let mut statement = self.statement(include_str!("sql/get_fence.sql"))?;
        let mut rows = statement.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(Err(Stale::NotRunning)) };
        let matches = LeaseToken::from_uuid(uuid(row, "token")?) == key.token;
        // An id of another file may lead here by chance; a token cannot.
        if !matches && !self.has_id(seq, key)? {
            return Ok(Err(Stale::NotRunning));
        }
        let expires_at = time(row.get("expires_at")?);
        let deadline = row.get::<_, Option<i64>>("deadline")?.map(time);
        // A lifetime that is over ends a lease whatever the store was doing.
        let lapsed = expires_at <= self.now && deadline.is_none_or(|deadline| deadline > self.now);
        let fence = if lapsed { self.fence_time()? } else { self.now };
        if let Err(stale) = Stale::check(true, Some(expires_at), fence, matches) {
            return Ok(Err(stale));
        }
        let started_at: i64 = row.get("started_at")?;
        let limit = Timeouts::read_lease_max(row.get("lease_max")?).map(|max| time(started_at).plus(max));
        let (version, flags) = (row.get("version")?, row.get("flags")?);
        Ok(Ok(Held { seq, expires_at, deadline, limit, version, flags, cancel: json(row, "cancel")? }))
    }

    pub(super) fn has_id(&self, seq: i64, key: &LeaseKey) -> Answer<bool> {
        let mut statement = self.statement(include_str!("sql/has_id.sql"))?;
        let there = statement.query_row(params![seq, key.job.as_uuid().as_bytes()], |_| Ok(())).optional()?;
        Ok(there.is_some())
    }

    pub(super) fn extend(&mut self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Answer<Vec<Extended>> {
        leases.iter().map(|key| self.extend_one(key, lease_time)).collect()
    }

    fn extend_one(&mut self, key: &LeaseKey, lease_time: Option<Duration>) -> Answer<Extended> {
        let held = match self.fence(key)? {
            Ok(held) => held,
            Err(stale) => return Ok(Extended::Lost(stale)),
        };
        let time = match lease_time {
            Some(time) => time,
            None => self.known(held.seq)?.job.spec.options.timeouts.visibility,
        };
        // What `JobRecord::extend` does, without the rest of the record.
        let end = lease_end_within(self.now.plus(time), held.deadline, held.limit).max(held.expires_at);
        if end > held.expires_at {
            self.statement(include_str!("sql/extend.sql"))?.execute([held.seq, end.as_micros()])?;
        }
        Ok(Extended::Held { expires_in: end.since(self.now), cancel: held.cancel })
    }

    pub(super) fn save(&mut self, saves: &[Save]) -> Answer<Vec<Result<(), Stale>>> {
        saves.iter().map(|save| self.save_one(save)).collect()
    }

    fn save_one(&mut self, save: &Save) -> Answer<Result<(), Stale>> {
        let held = match self.fence(&save.key())? {
            Ok(held) => held,
            Err(stale) => return Ok(Err(stale)),
        };
        if let Some(checkpoint) = save.new_checkpoint() {
            let kept = params![held.seq, checkpoint.as_ref()];
            self.statement(include_str!("sql/put_checkpoint.sql"))?.execute(kept)?;
        }
        if let Some(progress) = save.new_progress() {
            self.statement(include_str!("sql/put_progress.sql"))?.execute(params![held.seq, text(progress)])?;
        }
        let noted = save.new_checkpoint().is_some() || save.new_progress().is_some();
        if noted && held.flags & FLAG_NOTE == 0 {
            self.statement(include_str!("sql/set_leased_flags.sql"))?.execute([held.seq, held.flags | FLAG_NOTE])?;
        }
        self.keep_log(&held, save.new_log())?;
        Ok(Ok(()))
    }

    fn keep_log(&mut self, held: &Held, lines: &[String]) -> Answer<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut statement = self.statement(include_str!("sql/get_last_log_line.sql"))?;
        let mut line: i64 = statement.query_row([held.seq, held.version], |row| row.get(0))?;
        let mut statement = self.statement(include_str!("sql/add_log_line.sql"))?;
        for text in lines {
            line += 1;
            statement.execute(params![held.seq, held.version, line, self.now.as_micros(), text])?;
        }
        let forget = line - LOG_LINES_MAX as i64;
        if forget > 0 {
            let until = [held.seq, held.version, forget];
            self.statement(include_str!("sql/forget_log_lines.sql"))?.execute(until)?;
        }
        Ok(())
    }
}
