//! Retention: removing jobs some time after their end. Neighbours go together, a statement for each table; only jobs of
//! workflows and those that others depend on are looked at one by one.

use rusqlite::params;
use uuid::Uuid;

use super::columns::state;
use super::fault::{Answer, Fault};
use super::insert::until;
use super::lease_ranges;
use super::transaction::Transaction;
use super::upkeep::LOOKS;
use crate::job::{JobId, State, Until};
use crate::store::request::Retention;
use crate::store::rules;
use crate::time::Timestamp;

/// What remove the traces that few jobs leave; then the job itself, because the first of these reads it.
const TRACES: [&str; 5] = [
    include_str!("sql/prune_lifetime.sql"),
    include_str!("sql/prune_note.sql"),
    include_str!("sql/prune_attempt.sql"),
    include_str!("sql/prune_log.sql"),
    include_str!("sql/prune_mark.sql"),
];
const PLACES: [&str; 2] = [include_str!("sql/prune_done.sql"), include_str!("sql/prune_job.sql")];

impl Transaction<'_> {
    pub(super) fn prune(&mut self, retention: &Retention, limit: usize) -> Answer<usize> {
        let mut pruned = 0;
        for state in State::ALL {
            if let Some(horizon) = retention.horizon(state, self.now) {
                pruned += self.prune_state(state, horizon, limit - pruned)?;
            }
        }
        pruned += self.prune_own(limit - pruned)?;
        Ok(pruned + self.prune_keys(limit - pruned)?)
    }

    /// Removes jobs whose own retention is over, but for those that an unfinished one depends on.
    fn prune_own(&mut self, limit: usize) -> Answer<usize> {
        let looks = i64::try_from(limit.saturating_mul(LOOKS)).unwrap_or(i64::MAX);
        let mut statement = self.statement(include_str!("sql/list_prunable_own.sql"))?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get("state")?, row.get("seq")?, row.get("lane")?));
        let over = statement.query_map([self.now.as_micros(), looks], read)?;
        let over: Vec<(u8, i64, i64)> = over.collect::<rusqlite::Result<_>>()?;
        drop(statement);
        let mut pruned = 0;
        for some in over.chunks(limit.max(1)) {
            let mut some = some[..some.len().min(limit - pruned)].to_vec();
            some.sort_unstable();
            for run in some.chunk_by(|one, next| one.0 == next.0 && lease_ranges::follows(one.1, next.1)) {
                let places: Vec<(i64, i64)> = run.iter().map(|(_, seq, lane)| (*seq, *lane)).collect();
                pruned += self.prune_run(&places, state(run[0].0)?)?;
            }
        }
        Ok(pruned)
    }

    /// Looks at the idempotency keys that are due, and forgets those that are over; gives how many.
    fn prune_keys(&mut self, limit: usize) -> Answer<usize> {
        let mut statement = self.statement(include_str!("sql/list_due_keys.sql"))?;
        let from = [self.now.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX)];
        let mut rows = statement.query(from)?;
        let mut due: Vec<(String, String, JobId, Until, Option<Timestamp>)> = Vec::new();
        while let Some(row) = rows.next()? {
            let job = JobId::from_uuid(Uuid::from_bytes(row.get("job")?));
            let expires_at = row.get::<_, Option<i64>>("expires_at")?.map(Timestamp::from_micros);
            due.push((row.get("scope")?, row.get("key")?, job, until(row.get("until")?)?, expires_at));
        }
        drop(rows);
        drop(statement);
        let mut pruned = 0;
        for (scope, key, job, until, expires_at) in due {
            let is_expired = expires_at.is_some_and(|expires_at| expires_at <= self.now);
            let is_over = is_expired || {
                let job = self.load_id(job)?.map(|entry| (entry.job.state, entry.job.was_claimed()));
                until.is_over_for_good(job)
            };
            if is_over {
                self.statement(include_str!("sql/delete_key.sql"))?.execute([scope, key])?;
                pruned += 1;
            } else {
                let next = rules::look_at(until, expires_at, self.now).map(Timestamp::as_micros);
                self.statement(include_str!("sql/postpone_key.sql"))?.execute(params![scope, key, next])?;
            }
        }
        Ok(pruned)
    }

    /// Removes what ended in `state` at or before the horizon, but for jobs that an unfinished one depends on.
    fn prune_state(&mut self, state: State, horizon: Timestamp, limit: usize) -> Answer<usize> {
        let (mut pruned, mut looked, mut after) = (0, 0, 0);
        while pruned < limit && looked < limit.saturating_mul(LOOKS) {
            let wanted = limit - pruned;
            let mut statement = self.statement(include_str!("sql/list_prunable.sql"))?;
            let from = [i64::from(state.number()), after, i64::try_from(wanted).unwrap_or(i64::MAX)];
            let mut rows = statement.query(from)?;
            let mut ended: Vec<(i64, i64)> = Vec::new();
            while let Some(row) = rows.next()? {
                // Ends are in the order of time.
                if row.get::<_, i64>("updated_at")? > horizon.as_micros() {
                    break;
                }
                ended.push((row.get("seq")?, row.get("lane")?));
                after = row.get("ended")?;
            }
            drop(rows);
            looked += ended.len();
            let last_chunk = ended.len() < wanted;
            ended.sort_unstable();
            for run in ended.chunk_by(|one, next| lease_ranges::follows(one.0, next.0)) {
                pruned += self.prune_run(run, state)?;
            }
            if last_chunk {
                break;
            }
        }
        Ok(pruned)
    }

    /// Removes neighbours that have ended in `state`: each its number and its lane. Gives how many could go.
    fn prune_run(&mut self, run: &[(i64, i64)], state: State) -> Answer<usize> {
        let (low, high) = (run[0].0, run[run.len() - 1].0);
        let mut tangled = self.statement(include_str!("sql/is_tangled.sql"))?;
        if tangled.query_row([low, high], |row| row.get(0))? {
            return run.iter().try_fold(0, |pruned, (seq, _)| Ok(pruned + usize::from(self.prune_one(*seq)?)));
        }
        let mut meant = vec![0; usize::try_from(high - low + 1).unwrap_or_default()];
        for (seq, lane) in run {
            meant[usize::try_from(seq - low).unwrap_or_default()] = 1u8;
            self.count(*lane, state, -1);
            self.count_left(*lane, state, true);
        }
        for sql in TRACES {
            self.statement(sql)?.execute(params![low, high, meant])?;
        }
        for sql in PLACES {
            let removed = self.statement(sql)?.execute(params![low, high, meant])?;
            if removed != run.len() {
                return Err(Fault::broken(format!("{removed} of {} ended jobs could be removed", run.len())));
            }
        }
        self.touch_owned(low, high)?;
        self.add_pruned(run.len());
        Ok(run.len())
    }

    /// Removes an ended job, if no unfinished one depends on it.
    fn prune_one(&mut self, seq: i64) -> Answer<bool> {
        if self.is_needed(seq)? {
            return Ok(false);
        }
        let entry = self.known(seq)?;
        self.remove(&entry)?;
        Ok(true)
    }
}
