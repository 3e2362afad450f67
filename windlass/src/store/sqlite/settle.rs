//! Settling: what a lease holder decided is written, with everything that follows from it.
//!
//! Plain completions, which are nearly all settlements, move narrow rows from `leased` to `done`, a run of neighbours in one
//! statement that checks their leases. Everything else goes through the rules over
//! several jobs.

use rusqlite::{OptionalExtension, params};

use super::fault::{Answer, Fault};
use super::hot_statements::HotStatement;
use super::lease_ranges;
use super::transaction::Transaction;
use crate::job::{ATTEMPTS_KEPT, LeaseKey, Outcome, Settlement, State};
use crate::store::answer::{Settled, Wake};
use crate::store::rules;

// What `complete_range.sql` says in numbers.
const _: () = assert!(State::Completed.number() == 5 && Outcome::Completed.number() == 0 && ATTEMPTS_KEPT == 100);

impl Transaction<'_> {
    pub(super) fn settle(&mut self, settlements: &[Settlement]) -> Answer<Vec<Settled>> {
        let mut answers = Vec::with_capacity(settlements.len());
        // In the order of the call, because two may be under one lease.
        for stretch in settlements.chunk_by(|one, next| is_plain(one) && is_plain(next)) {
            let mut completed = vec![false; stretch.len()];
            if is_plain(&stretch[0]) {
                self.complete(stretch, &mut completed)?;
            }
            for (settlement, completed) in stretch.iter().zip(completed) {
                answers.push(match completed {
                    true => Settled::Applied(State::Completed),
                    false => self.run(|set| rules::settle(set, settlement))?,
                });
            }
        }
        Ok(answers)
    }

    /// Completes the jobs whose leases hold and of which nothing else has to be written, and says which these are.
    fn complete(&mut self, settlements: &[Settlement], completed: &mut [bool]) -> Answer<()> {
        let numbers = settlements.iter().map(|settlement| self.seq_of(settlement.key().job));
        let mut jobs: Vec<(i64, usize)> = numbers.zip(0..).collect();
        jobs.sort_unstable();
        for run in jobs.chunk_by(|one, next| lease_ranges::follows(one.0, next.0)) {
            self.complete_run(run, settlements, completed)?;
        }
        Ok(())
    }

    fn complete_run(&mut self, run: &[(i64, usize)], settlements: &[Settlement], completed: &mut [bool]) -> Answer<()> {
        let (low, high, now) = (run[0].0, run[run.len() - 1].0, self.now.as_micros());
        let tokens = lease_ranges::tokens(run.iter().map(|(seq, place)| (*seq, settlements[*place].key().token)));
        let held = self.fence_run(params![low, high, tokens, now])?;
        if held.is_empty() {
            return Ok(());
        }
        let tick = self.ticks_for(high - low + 1);
        let ended = self.execute(HotStatement::CompleteRange, params![low, high, tokens, now, tick])?;
        let removed = self.execute(HotStatement::DeleteRange, params![low, high, tokens, now])?;
        if ended != held.len() || removed != held.len() {
            return Err(Fault::broken(format!("{} leases held, {ended} ended, {removed} moved", held.len())));
        }
        let mut waited_for = Vec::new();
        let mut freed = None;
        for (seq, lane, own) in held {
            let place = run.binary_search_by_key(&seq, |(seq, _)| *seq).map(|found| run[found].1);
            let place = place.map_err(|_| Fault::broken(format!("job number {seq} has a token of zeros")))?;
            completed[place] = true;
            self.count(lane, State::Running, -1);
            self.count(own, State::Completed, 1);
            if lane != own && freed != Some(own) {
                freed = Some(own);
                let queue = self.names_of(own)?.0;
                self.hint_freed(&queue)?;
            }
            let id = settlements[place].key().job;
            match self.keep_result(seq, &settlements[place])? {
                true => waited_for.push(id),
                false => self.hint(Wake::Ended(id)),
            }
        }
        match waited_for.is_empty() {
            true => Ok(()),
            false => self.run(|set| rules::tell_completed(set, &waited_for)),
        }
    }

    /// The jobs of a run that can be completed, the lane that each runs in, and its own.
    fn fence_run(&mut self, run: impl rusqlite::Params) -> Answer<Vec<(i64, i64, i64)>> {
        let mut statement = self.take_statement(HotStatement::FenceRange)?;
        let held = statement.query_map(run, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let held = held.collect::<rusqlite::Result<Vec<_>>>()?;
        self.give_statement_back(HotStatement::FenceRange, statement);
        Ok(held)
    }

    /// Keeps the result of a completed job; says whether another job waits for its end.
    fn keep_result(&mut self, seq: i64, settlement: &Settlement) -> Answer<bool> {
        if let Some(result) = settlement.result() {
            let kept = params![seq, result.stored_content_type(), result.as_bytes().as_ref()];
            self.statement(include_str!("sql/put_result.sql"))?.execute(kept)?;
        }
        self.is_waited_for(seq)
    }

    /// Whether an attempt under this lease was closed with this outcome (L4).
    pub(super) fn was_closed(&self, key: &LeaseKey, outcome: Outcome) -> Answer<bool> {
        let (seq, token, outcome) = (self.seq_of(key.job), key.token.as_uuid().into_bytes(), outcome.number());
        for sql in [include_str!("sql/find_done_attempt.sql"), include_str!("sql/find_attempt.sql")] {
            let found = self.statement(sql)?.query_row(params![seq, token, outcome], |_| Ok(())).optional()?;
            if found.is_some() {
                return self.has_id(seq, key);
            }
        }
        Ok(false)
    }
}

/// Whether it may be nothing but a completion, as far as the holder knows.
fn is_plain(settlement: &Settlement) -> bool {
    settlement.outcome() == Outcome::Completed && settlement.children().is_empty()
}
