//! Upkeep: lifetimes, expired leases, schedules, retention (in `prune`); each at most `limit` in one step.

use super::columns::{kind_state, time};
use super::fault::Answer;
use super::transaction::Transaction;
use crate::job::{State, Timeouts};
use crate::store::answer::UpkeepReport;
use crate::store::request::{Upkeep, WORKER_LIVE};
use crate::store::rules;

/// How many rows one step looks at for each row it may deal with: some turn out to need nothing.
pub(super) const LOOKS: usize = 10;
/// How many ticks back an end that left `done` can still be read as an event.
const PAST_ENDS_KEPT: i64 = 100_000;
/// Free pages that are kept for jobs to come: 4 MiB of pages of 4 KiB.
const SPARE_PAGES_KEPT: i64 = 1024;
/// Gives back free pages; few in one step, because claims wait meanwhile.
const GIVE_PAGES_BACK: &str = "pragma incremental_vacuum(256)";

impl Transaction<'_> {
    pub(super) fn upkeep(&mut self, request: &Upkeep) -> Answer<UpkeepReport> {
        let limit = request.limit.max(1);
        self.beat()?;
        let (lifetimes, more_lifetimes) = self.end_lifetimes(limit)?;
        let expired = self.take_back_leases(limit)?;
        let fired = self.fire_schedules(limit)?;
        let pruned = self.prune(&request.retention, limit)?;
        self.let_fall_due(limit)?;
        self.forget_gates()?;
        self.give_space_back()?;
        let silent = self.now.minus(WORKER_LIVE).as_micros();
        self.statement(include_str!("sql/forget_workers.sql"))?.execute([silent])?;
        self.statement(include_str!("sql/forget_past_ends.sql"))?.execute([self.ticks() - PAST_ENDS_KEPT])?;
        let more = more_lifetimes || [lifetimes, expired, fired, pruned].into_iter().any(|count| count >= limit);
        Ok(UpkeepReport { lifetimes, expired, fired, pruned, more })
    }

    /// S15: in any state, held or not, in the order in which lifetimes are over.
    fn end_lifetimes(&mut self, limit: usize) -> Answer<(usize, bool)> {
        let looks = limit.saturating_mul(LOOKS);
        let mut own = self.due_lifetimes(looks)?.into_iter().peekable();
        let mut standard = self.standard_lifetimes(looks)?.into_iter().peekable();
        let full = own.len() >= looks || standard.len() >= looks;
        let (mut ended, mut outlived) = (0, None);
        while ended < limit {
            let is_own = match (own.peek(), standard.peek()) {
                (Some(one), Some(other)) => one <= other,
                (one, _) => one.is_some(),
            };
            let Some((deadline, seq)) = (if is_own { own.next() } else { standard.next() }) else { break };
            if is_own {
                self.statement(include_str!("sql/delete_lifetime.sql"))?.execute([deadline, seq])?;
            } else {
                outlived = Some(seq);
            }
            ended += usize::from(self.end_lifetime(seq)?);
        }
        if let Some(seq) = outlived {
            self.statement(include_str!("sql/set_outlived.sql"))?.execute([seq])?;
        }
        Ok((ended, full || own.len() + standard.len() > 0))
    }

    /// Ends a job whose lifetime is over. It may have ended long ago, or been given a new lifetime by a requeue.
    fn end_lifetime(&mut self, seq: i64) -> Answer<bool> {
        let Some(entry) = self.load(seq)? else { return Ok(false) };
        let id = entry.job.id;
        self.run_on(Some(entry), |set| rules::outlive(set, id))
    }

    /// Jobs that are older than the standard lifetime and were not looked at yet, each with when that was over.
    fn standard_lifetimes(&self, looks: usize) -> Answer<Vec<(i64, i64)>> {
        let Some(lifetime) = Timeouts::default().lifetime else { return Ok(Vec::new()) };
        let mut statement = self.statement(include_str!("sql/list_older_jobs.sql"))?;
        let from = [self.now.minus(lifetime).as_micros(), i64::try_from(looks).unwrap_or(i64::MAX)];
        let mut rows = statement.query(from)?;
        let mut older = Vec::new();
        while let Some(row) = rows.next()? {
            // Later jobs are younger still.
            if !row.get::<_, bool>("is_older")? {
                break;
            }
            older.push((time(row.get("created_at")?).plus(lifetime).as_micros(), row.get("seq")?));
        }
        Ok(older)
    }

    fn due_lifetimes(&self, looks: usize) -> Answer<Vec<(i64, i64)>> {
        let mut statement = self.statement(include_str!("sql/list_due_lifetimes.sql"))?;
        let from = [self.now.as_micros(), i64::try_from(looks).unwrap_or(i64::MAX)];
        let rows = statement.query_map(from, |row| Ok((row.get("deadline")?, row.get("seq")?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// S10, S11 and S14: leases that were not settled in time.
    fn take_back_leases(&mut self, limit: usize) -> Answer<usize> {
        let mut statement = self.statement(include_str!("sql/list_expired_leases.sql"))?;
        let from = [self.fence_time()?.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX)];
        let expired: Vec<i64> = statement.query_map(from, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let mut count = 0;
        for seq in expired {
            let entry = self.known(seq)?;
            let id = entry.job.id;
            // The end of another job of this step may have ended this one.
            let taken = self.run_on(Some(entry), |set| rules::expire(set, id, &mut fastrand::f64))?;
            count += usize::from(taken.is_some());
        }
        Ok(count)
    }

    /// Shortens the file when more than a quarter of it is free; what is free otherwise is used again.
    fn give_space_back(&self) -> Answer<()> {
        let free: i64 = self.statement("pragma freelist_count")?.query_row([], |row| row.get(0))?;
        let all: i64 = self.statement("pragma page_count")?.query_row([], |row| row.get(0))?;
        if free > SPARE_PAGES_KEPT.max(all / 4) {
            // Each page is a step of the statement.
            let mut statement = self.statement(GIVE_PAGES_BACK)?;
            let mut pages = statement.query([])?;
            while pages.next()?.is_some() {}
        }
        Ok(())
    }

    /// Writes down what the clock says already, so that counts stay cheap: what is due is SCHEDULED.
    fn let_fall_due(&mut self, limit: usize) -> Answer<()> {
        let mut statement = self.statement(include_str!("sql/list_due.sql"))?;
        let from = [self.now.as_micros(), i64::try_from(limit.saturating_mul(LOOKS)).unwrap_or(i64::MAX)];
        let read = |row: &rusqlite::Row<'_>| {
            let place = [row.get::<_, i64>("lane")?, row.get("priority")?, row.get("at")?, row.get("seq")?];
            Ok((place, row.get::<_, i64>("kind")?))
        };
        let due: Vec<([i64; 4], i64)> = statement.query_map(from, read)?.collect::<rusqlite::Result<_>>()?;
        let mut statement = self.statement(include_str!("sql/set_scheduled.sql"))?;
        for (place, kind) in due {
            statement.execute(place)?;
            self.count(place[0], kind_state(kind)?, -1);
            self.count(place[0], State::Scheduled, 1);
        }
        Ok(())
    }
}
