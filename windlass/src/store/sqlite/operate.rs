//! Operators' acts: on jobs by id or by filter, and on queues.

use std::collections::HashSet;

use rusqlite::{OptionalExtension, params};

use super::columns::{kind_number, text};
use super::fault::{Answer, Fault};
use super::list::{Way, place};
use super::rows::{FLAG_CALLBACK, FLAG_NOTE, Place, Stored};
use super::tx::Tx;
use crate::error::Error;
use crate::job::{CancelAsked, CancelVerdict, JobOptions, Outcome, QueueName, ReasonKind, RequeueOptions, Verdict};
use crate::store::answer::{ActRecord, Operated, Wake, describe};
use crate::store::request::{Act, Edit, Operation, PAGE_MAX, Target};
use crate::time::Timestamp;
use crate::workflow::graph::Waits;

impl Tx<'_> {
    pub(super) fn operate(&mut self, operation: &Operation) -> Answer<Operated> {
        if let Act::Edit(edit) = &operation.act {
            edit.check()?;
        }
        let mut answer = Operated::default();
        match &operation.target {
            Target::Jobs(ids) => {
                for id in ids {
                    let acted = match self.load_id(*id)? {
                        Some(stored) => self.act_on(stored, operation),
                        None => Err(Error::no_such_job(*id).into()),
                    };
                    match acted {
                        Ok(()) => answer.changed += 1,
                        Err(Fault::Refused(error)) => answer.refused.push((*id, error)),
                        Err(fault) => return Err(fault),
                    }
                }
            }
            Target::Matching { filter, limit, after } => {
                let limit = (*limit).clamp(1, PAGE_MAX);
                let from = place(after.as_ref())?.unwrap_or(0);
                let (matching, next) = self.matching(filter, Way::OldestFirst, from, limit)?;
                answer.next = next;
                for seq in matching.into_iter().map(|stored| stored.seq).collect::<Vec<_>>() {
                    // An earlier act of this call may have removed it or changed its state.
                    let Some(stored) = self.load(seq)? else { continue };
                    match self.act_on(stored, operation) {
                        Ok(()) => answer.changed += 1,
                        Err(Fault::Refused(_)) => {}
                        Err(fault) => return Err(fault),
                    }
                }
            }
        }
        if !operation.dry_run && answer.changed > 0 {
            self.record_operation(operation, answer.changed)?;
        }
        Ok(answer)
    }

    fn record_operation(&mut self, operation: &Operation, changed: u64) -> Answer<()> {
        let target = match &operation.target {
            Target::Jobs(ids) => match ids.as_slice() {
                [id] => format!("job {id}"),
                ids => format!("{} jobs", ids.len()),
            },
            Target::Matching { filter, .. } => describe(filter),
        };
        let why = Some(operation.why.clone()).filter(|why| !why.is_empty());
        let (by, act) = (operation.by.clone(), operation.act.name().to_owned());
        self.record_act(&ActRecord { at: self.now, by, act, target, changed, why })
    }

    fn act_on(&mut self, mut stored: Stored, operation: &Operation) -> Answer<()> {
        let (by, why, dry_run) = (operation.by.as_deref(), operation.why.as_str(), operation.dry_run);
        match &operation.act {
            Act::Cancel { force } => match Verdict::of_cancel(&stored.job, *force, by, why)? {
                _ if dry_run => Ok(()),
                CancelVerdict::Ask => self.ask_to_stop(&stored, &CancelAsked::new(by, why, self.now)),
                CancelVerdict::Now(verdict) => self.end_loaded(stored, &verdict),
            },
            Act::DeadLetter => {
                let verdict = Verdict::of_operator_dead_letter(&stored.job, by, why)?;
                if dry_run { Ok(()) } else { self.end_loaded(stored, &verdict) }
            }
            Act::Requeue(options) => self.requeue(stored, options, dry_run),
            Act::Delete => self.delete(&stored, dry_run),
            Act::Edit(edit) => {
                edit.allowed(&stored.job)?;
                if dry_run { Ok(()) } else { self.edit(&mut stored, edit) }
            }
        }
    }

    fn end_loaded(&mut self, mut stored: Stored, verdict: &Verdict) -> Answer<()> {
        let ended_before = stored.job.state.is_terminal();
        self.apply(&mut stored, verdict, Outcome::Revoked)?;
        // A FAILED job that an operator dead-letters has ended before, and the world has been told.
        if ended_before { Ok(()) } else { self.conclude(stored) }
    }

    fn ask_to_stop(&mut self, stored: &Stored, asked: &CancelAsked) -> Answer<()> {
        self.statement(include_str!("sql/set_cancel.sql"))?.execute(params![stored.seq, text(asked)])?;
        self.hint(Wake::CancelAsked(stored.job.id));
        Ok(())
    }

    fn edit(&mut self, stored: &mut Stored, edit: &Edit) -> Answer<()> {
        edit.apply(&mut stored.job);
        let spec = &stored.job.spec;
        let options = Some(&spec.options).filter(|options| **options != JobOptions::default()).map(text);
        let kept = params![stored.seq, spec.priority.number(), options];
        self.statement(include_str!("sql/edit_job.sql"))?.execute(kept)?;
        let callback = if spec.options.callback_url.is_some() { FLAG_CALLBACK } else { 0 };
        stored.flags = (stored.flags & !FLAG_CALLBACK) | callback;
        match stored.place {
            Place::Leased => {
                self.statement(include_str!("sql/set_leased_flags.sql"))?.execute([stored.seq, stored.flags])?;
            }
            Place::Done { .. } => {
                self.statement(include_str!("sql/set_done_flags.sql"))?.execute([stored.seq, stored.flags])?;
            }
            Place::Waiting { .. } | Place::Pending => self.put(stored)?,
        }
        Ok(())
    }

    fn delete(&mut self, stored: &Stored, dry_run: bool) -> Answer<()> {
        let job = &stored.job;
        if !job.state.is_terminal() {
            return Err(Error::IllegalState { job: job.id, state: job.state, wanted: "delete" }.into());
        }
        if let Some(needed_by) = self.needed_by(stored.seq)? {
            return Err(Error::Conflict(format!("job {} is needed by unfinished job {needed_by}", job.id)).into());
        }
        if dry_run { Ok(()) } else { self.remove(stored) }
    }

    /// Removes an ended job for good; its idempotency key goes on.
    pub(super) fn remove(&mut self, stored: &Stored) -> Answer<()> {
        let seq = stored.seq;
        self.leave(stored)?;
        self.statement(include_str!("sql/delete_job.sql"))?.execute([seq])?;
        if let Some(deadline) = stored.job.deadline {
            self.statement(include_str!("sql/delete_lifetime.sql"))?.execute([deadline.as_micros(), seq])?;
        }
        if stored.flags & FLAG_NOTE != 0 {
            self.statement(include_str!("sql/delete_note.sql"))?.execute([seq])?;
        }
        self.statement(include_str!("sql/forget_attempts.sql"))?.execute([seq, i64::MAX])?;
        self.statement(include_str!("sql/forget_logs.sql"))?.execute([seq, i64::MAX])?;
        self.statement(include_str!("sql/delete_edges.sql"))?.execute([seq])?;
        if let Some(workflow) = stored.job.workflow_id {
            let id = workflow.as_uuid().into_bytes();
            self.statement(include_str!("sql/count_pruned.sql"))?.execute([id])?;
            // A workflow goes with the last of its jobs.
            self.statement(include_str!("sql/delete_empty_workflow.sql"))?.execute([id])?;
        }
        self.add_pruned(1);
        Ok(())
    }

    fn requeue(&mut self, stored: Stored, options: &RequeueOptions, dry_run: bool) -> Answer<()> {
        // On a copy first: what is refused must change nothing.
        stored.job.clone().requeue(options, false, self.now)?;
        if dry_run {
            return Ok(());
        }
        let along = if options.with_dependents { self.died_of(&stored)? } else { Vec::new() };
        let back: HashSet<i64> = along.iter().copied().collect();
        self.requeue_one(stored, options, &HashSet::new())?;
        let plain = RequeueOptions { run_at: None, ..*options };
        for dependent in along {
            let stored = self.known(dependent)?;
            self.requeue_one(stored, &plain, &back)?;
        }
        Ok(())
    }

    /// Sends one job back; it waits for its unfinished dependencies, and for those that come `back` with it.
    fn requeue_one(&mut self, mut stored: Stored, options: &RequeueOptions, back: &HashSet<i64>) -> Answer<()> {
        let mut kinds = Vec::new();
        for (parent, kind, open) in self.edges(stored.seq)? {
            let waits = self.is_unfinished(parent)? || back.contains(&parent);
            kinds.push((kind, waits));
            if waits != open {
                let edge = params![parent, stored.seq, kind_number(kind), waits];
                self.statement(include_str!("sql/open_edge.sql"))?.execute(edge)?;
            }
        }
        stored.waits = Waits::of(&kinds);
        self.uncover(&mut stored)?;
        stored.job.requeue(options, !stored.waits.is_over(), self.now)?;
        self.keep_lifetime(stored.job.deadline.map(Timestamp::as_micros), stored.seq)?;
        self.put(&mut stored)
    }

    pub(super) fn is_unfinished(&self, seq: i64) -> Answer<bool> {
        let mut statement = self.statement(include_str!("sql/is_unfinished.sql"))?;
        Ok(statement.query_row([seq], |row| row.get(0))?)
    }

    /// The jobs that died of this one, however far down the graph.
    fn died_of(&mut self, stored: &Stored) -> Answer<Vec<i64>> {
        let cause = stored.job.id;
        let mut seen = HashSet::from([stored.seq]);
        let (mut found, mut open) = (Vec::new(), vec![stored.seq]);
        while let Some(next) = open.pop() {
            for dependent in self.dependents(next)? {
                if seen.contains(&dependent) {
                    continue;
                }
                let job = self.known(dependent)?.job;
                let died = job.reason.as_ref();
                let died =
                    died.is_some_and(|reason| reason.kind == ReasonKind::Dependency && reason.cause == Some(cause));
                if job.state.is_dead() && died {
                    seen.insert(dependent);
                    found.push(dependent);
                    open.push(dependent);
                }
            }
        }
        Ok(found)
    }

    fn dependents(&self, parent: i64) -> Answer<Vec<i64>> {
        let mut statement = self.statement(include_str!("sql/get_dependents.sql"))?;
        Ok(statement.query_map([parent], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
    }

    pub(super) fn set_paused(&mut self, queue: &QueueName, paused: bool, by: Option<&str>) -> Answer<()> {
        let mut statement = self.statement(include_str!("sql/is_paused.sql"))?;
        let before: Option<bool> = statement.query_row([queue.as_str()], |row| row.get(0)).optional()?;
        if before != Some(paused) {
            self.statement(include_str!("sql/set_paused.sql"))?.execute(params![queue.as_str(), paused])?;
        }
        if before.unwrap_or(false) == paused {
            return Ok(());
        }
        if !paused {
            self.hint_scheduled(queue);
        }
        let act = if paused { "pause" } else { "resume" }.to_owned();
        let target = format!("queue {queue}");
        self.record_act(&ActRecord { at: self.now, by: by.map(str::to_owned), act, target, changed: 1, why: None })
    }
}
