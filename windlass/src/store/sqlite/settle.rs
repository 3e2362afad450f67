//! Settling: what a lease holder decided is written, with everything that follows from it.
//!
//! A plain completion, which is nearly every settlement, moves a narrow row from `leased` to `done` and reads nothing
//! else. Everything else goes the careful way of `rows`.

use std::collections::HashSet;

use rusqlite::{OptionalExtension, params};

use super::columns::{time, uuid};
use super::fault::{Answer, Fault};
use super::held::Hold;
use super::insert::Origin;
use super::rows::{FLAG_CALLBACK, FLAG_NOTE, HOT, Hot, Stored};
use super::tx::Tx;
use crate::error::Error;
use crate::job::{DependencyKind, JobId, LeaseToken, Outcome, Payload, Settlement, Stale, State, Verdict};
use crate::store::answer::{InsertedJob, Settled, Wake};
use crate::workflow::Submission;
use crate::workflow::graph::{self, Edge};

/// What a fence let through.
enum Fenced {
    /// A completion that touches nothing else.
    Plain(Box<Hot>, String),
    /// Anything else, with whether cancel was asked.
    Careful { cancel_asked: bool },
}

impl Tx<'_> {
    pub(super) fn settle(&mut self, settlements: &[Settlement]) -> Answer<Vec<Settled>> {
        settlements.iter().map(|settlement| self.settle_one(settlement)).collect()
    }

    pub(super) fn settle_one(&mut self, settlement: &Settlement) -> Answer<Settled> {
        let seq = self.seq_of(settlement.key().job);
        match self.fence_settlement(seq, settlement)? {
            Err(_) if self.was_applied(seq, settlement)? => Ok(Settled::AlreadyApplied),
            Err(stale) => Ok(Settled::Stale(stale)),
            Ok(Fenced::Plain(hot, worker)) => self.complete(seq, settlement, &hot, &worker),
            Ok(Fenced::Careful { cancel_asked }) => match self.settle_carefully(seq, settlement, cancel_asked) {
                Err(Fault::Refused(error)) => Ok(Settled::Refused(error)),
                other => other.map(Settled::Applied),
            },
        }
    }

    fn fence_settlement(&mut self, seq: i64, settlement: &Settlement) -> Answer<Result<Fenced, Stale>> {
        let key = settlement.key();
        let mut statement = self.take(Hold::GetLeased)?;
        let mut rows = statement.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(Err(Stale::NotRunning)) };
        let matches = LeaseToken::from_uuid(uuid(row, HOT + 1)?) == key.token;
        if !matches && !self.has_id(seq, &key)? {
            return Ok(Err(Stale::NotRunning));
        }
        if let Err(stale) = Stale::check(true, Some(time(row.get(HOT)?)), self.now, matches) {
            return Ok(Err(stale));
        }
        let hot = Hot::read(row)?;
        let cancel_asked = row.get_ref(HOT + 3)? != rusqlite::types::ValueRef::Null;
        let plain = settlement.outcome() == Outcome::Completed
            && settlement.children().is_empty()
            && hot.flags & (FLAG_CALLBACK | FLAG_NOTE) == 0;
        let fenced = match plain {
            true => Fenced::Plain(Box::new(hot), row.get(HOT + 2)?),
            false => Fenced::Careful { cancel_asked },
        };
        drop(rows);
        self.give(Hold::GetLeased, statement);
        Ok(Ok(fenced))
    }

    /// A completion of a job that has no callback, no notes and spawns nothing.
    fn complete(&mut self, seq: i64, settlement: &Settlement, hot: &Hot, worker: &str) -> Answer<Settled> {
        let verdict = settlement.verdict(false);
        let state = State::Running.after(verdict.event).map_err(|error| Fault::broken(error.to_string()))?;
        debug_assert_eq!(state, State::Completed, "only completions come here");
        let ended = self.tick();
        let result = settlement.result();
        self.execute(Hold::DeleteLeased, [seq])?;
        self.execute(
            Hold::AddDone,
            params![
                seq,
                hot.lane,
                state.number(),
                ended,
                hot.priority,
                hot.deadline,
                hot.flags,
                hot.attempt,
                hot.failures,
                hot.lost,
                hot.generation,
                hot.version,
                hot.position,
                hot.scheduled_at,
                hot.started_at,
                self.now.as_micros(),
                settlement.outcome().number(),
                settlement.key().token.as_uuid().as_bytes(),
                worker,
                None::<String>,
                result.and_then(Payload::stored_content_type),
                result.map(|result| result.as_bytes().as_ref()),
            ],
        )?;
        self.count(hot.lane, State::Running, -1);
        self.count(hot.lane, state, 1);
        if let Ok(version) = u64::try_from(hot.version) {
            self.forget_old_attempts(seq, version)?;
        }
        let id = settlement.key().job;
        self.hint(Wake::Ended(id));
        let mut dead = Vec::new();
        self.tell_dependents(seq, state, id, &mut dead)?;
        debug_assert!(dead.is_empty(), "nothing dies of a completion");
        Ok(Settled::Applied(state))
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
