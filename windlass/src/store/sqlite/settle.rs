//! Settling: what a lease holder decided is written, with everything that follows from it.
//!
//! Plain completions, which are nearly all settlements, move narrow rows from `leased` to `done`, a run of neighbours in one
//! statement that checks their leases. Everything else goes the careful way of `rows`.

use std::collections::HashSet;

use rusqlite::{OptionalExtension, params};

use super::fault::{Answer, Fault};
use super::held::Hold;
use super::insert::Origin;
use super::rows::Stored;
use super::runs;
use super::tx::Tx;
use crate::error::Error;
use crate::job::{ATTEMPTS_KEPT, DependencyKind, JobId, Outcome, Settlement, State, Verdict};
use crate::store::answer::{InsertedJob, Settled, Wake};
use crate::workflow::Submission;
use crate::workflow::graph::{self, Edge};

// What `complete_run.sql` says in numbers.
const _: () = assert!(State::Completed.number() == 5 && Outcome::Completed.number() == 0 && ATTEMPTS_KEPT == 100);

impl Tx<'_> {
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
                    false => self.settle_one(settlement)?,
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
        for run in jobs.chunk_by(|one, next| runs::follows(one.0, next.0)) {
            self.complete_run(run, settlements, completed)?;
        }
        Ok(())
    }

    fn complete_run(&mut self, run: &[(i64, usize)], settlements: &[Settlement], completed: &mut [bool]) -> Answer<()> {
        let (low, high, now) = (run[0].0, run[run.len() - 1].0, self.now.as_micros());
        let tokens = runs::tokens(run.iter().map(|(seq, place)| (*seq, settlements[*place].key().token)));
        let held = self.fence_run(params![low, high, tokens, now])?;
        if held.is_empty() {
            return Ok(());
        }
        let tick = self.ticks_for(high - low + 1);
        let ended = self.execute(Hold::CompleteRun, params![low, high, tokens, now, tick])?;
        let removed = self.execute(Hold::RemoveRun, params![low, high, tokens, now])?;
        if ended != held.len() || removed != held.len() {
            return Err(Fault::broken(format!("{} leases held, {ended} ended, {removed} moved", held.len())));
        }
        for (seq, lane) in held {
            let place = run.binary_search_by_key(&seq, |(seq, _)| *seq).map(|found| run[found].1);
            let place = place.map_err(|_| Fault::broken(format!("job number {seq} has a token of zeros")))?;
            completed[place] = true;
            self.count(lane, State::Running, -1);
            self.count(lane, State::Completed, 1);
            self.tell_completed(seq, &settlements[place])?;
        }
        Ok(())
    }

    /// The jobs of a run that can be completed, and their lanes.
    fn fence_run(&mut self, run: impl rusqlite::Params) -> Answer<Vec<(i64, i64)>> {
        let mut statement = self.take(Hold::FenceRun)?;
        let held = statement.query_map(run, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let held = held.collect::<rusqlite::Result<Vec<_>>>()?;
        self.give(Hold::FenceRun, statement);
        Ok(held)
    }

    fn tell_completed(&mut self, seq: i64, settlement: &Settlement) -> Answer<()> {
        if let Some(result) = settlement.result() {
            let kept = params![seq, result.stored_content_type(), result.as_bytes().as_ref()];
            self.statement(include_str!("sql/put_result.sql"))?.execute(kept)?;
        }
        let id = settlement.key().job;
        self.hint(Wake::Ended(id));
        let mut dead = Vec::new();
        self.tell_dependents(seq, State::Completed, id, &mut dead)?;
        debug_assert!(dead.is_empty(), "nothing dies of a completion");
        Ok(())
    }

    fn settle_one(&mut self, settlement: &Settlement) -> Answer<Settled> {
        let key = settlement.key();
        let seq = self.seq_of(key.job);
        let held = match self.fence(&key)? {
            Ok(held) => held,
            Err(_) if self.was_applied(seq, settlement)? => return Ok(Settled::AlreadyApplied),
            Err(stale) => return Ok(Settled::Stale(stale)),
        };
        match self.settle_carefully(seq, settlement, held.cancel.is_some()) {
            Err(Fault::Refused(error)) => Ok(Settled::Refused(error)),
            other => other.map(Settled::Applied),
        }
    }

    fn settle_carefully(&mut self, seq: i64, settlement: &Settlement, cancel_asked: bool) -> Answer<State> {
        let children = self.check_children(seq, settlement)?;
        let mut stored = self.known(seq)?;
        let verdict: &Verdict = settlement.verdict(cancel_asked);
        if stored.job.state.after(verdict.event) == Ok(State::Completed) {
            stored.job.result = settlement.result().cloned();
        }
        let state = self.apply(&mut stored, verdict, settlement.outcome())?;
        if let Some(children) = children {
            self.spawn(&stored, &children)?;
        }
        if state.is_terminal() {
            self.conclude(stored)?;
        }
        Ok(state)
    }

    /// Whether this very settlement was written before (L4).
    fn was_applied(&self, seq: i64, settlement: &Settlement) -> Answer<bool> {
        let key = settlement.key();
        let (token, outcome) = (key.token.as_uuid().into_bytes(), settlement.outcome().number());
        for sql in [include_str!("sql/find_done_attempt.sql"), include_str!("sql/find_attempt.sql")] {
            let found = self.statement(sql)?.query_row(params![seq, token, outcome], |_| Ok(())).optional()?;
            if found.is_some() {
                return self.has_id(seq, &key);
            }
        }
        Ok(false)
    }

    /// Refuses children that cannot be stored, before anything is written.
    fn check_children(&mut self, parent: i64, settlement: &Settlement) -> Answer<Option<Submission>> {
        if settlement.children().is_empty() {
            return Ok(None);
        }
        let children = Submission::new(settlement.children().to_vec())?;
        let starts = self.would_insert(&children)?;
        let mut joins = HashSet::new();
        for (id, seq, _) in self.fan_ins(parent)? {
            // A job that has ended waits for nobody, even if it ended with a dependency open.
            if self.is_unfinished(seq)? {
                joins.insert(id);
            }
        }
        if !joins.is_empty() {
            let mut fault = None;
            let found = graph::reaches(starts, &joins, |id| match self.waits_for(id) {
                Ok(ids) => ids,
                Err(error) => {
                    fault = Some(error);
                    Vec::new()
                }
            });
            if let Some(fault) = fault {
                return Err(fault);
            }
            if let Some(join) = found {
                return Err(Error::DependencyCycle { through: join.to_string() }.into());
            }
        }
        Ok(Some(children))
    }

    /// The unfinished jobs that a job waits for.
    pub(super) fn waits_for(&mut self, id: JobId) -> Answer<Vec<JobId>> {
        let unfinished = self.load_id(id)?.filter(|stored| !stored.job.state.is_terminal());
        let Some(stored) = unfinished else { return Ok(Vec::new()) };
        let open: Vec<i64> =
            self.edges(stored.seq)?.into_iter().filter(|(_, _, open)| *open).map(|(parent, _, _)| parent).collect();
        open.into_iter().map(|parent| self.id_of(parent)).collect()
    }

    /// The jobs that wait for this one and all it spawns.
    fn fan_ins(&mut self, parent: i64) -> Answer<Vec<(JobId, i64, DependencyKind)>> {
        let edges = self.open_edges(parent)?;
        let joins = edges.into_iter().filter(|(_, kind)| graph::is_fan_in(*kind));
        joins.map(|(seq, kind)| Ok((self.id_of(seq)?, seq, kind))).collect()
    }

    /// Stores the children of a completed job, and lets its FAN_INs wait for them too.
    fn spawn(&mut self, parent: &Stored, children: &Submission) -> Answer<()> {
        let joins = self.fan_ins(parent.seq)?;
        let origin = Origin { workflow: parent.job.workflow_id, spawned_by: Some(parent.job.id), firing: None };
        let spawned = self.insert_from(children, &origin)?;
        for (_, join, kind) in joins {
            self.gain(join, kind, &spawned)?;
        }
        Ok(())
    }

    fn gain(&mut self, join: i64, kind: DependencyKind, children: &[InsertedJob]) -> Answer<()> {
        for child in children {
            let Some(child) = self.load_id(child.id)? else { continue };
            let (state, cause) = (child.job.state, child.job.root_cause());
            let mut stored = self.known(join)?;
            // One that has ended gains nothing to wait for, or it could come back by requeue to wait for itself.
            if stored.job.state != State::Pending {
                return Ok(());
            }
            if !self.add_edge(child.seq, join, kind, !state.is_terminal())? {
                continue;
            }
            if !state.is_terminal() {
                stored.waits.all += 1;
                let waits = params![join, stored.waits.all, stored.waits.any];
                self.statement(include_str!("sql/set_waits.sql"))?.execute(waits)?;
            } else if let Edge::Dies(verdict) = graph::edge(kind, state, cause) {
                self.apply(&mut stored, &verdict, Outcome::Revoked)?;
                self.conclude(stored)?;
            }
        }
        Ok(())
    }
}

/// Whether it may be nothing but a completion, as far as the holder knows.
fn is_plain(settlement: &Settlement) -> bool {
    settlement.outcome() == Outcome::Completed && settlement.children().is_empty()
}
