//! The way into the rules over several jobs and back: what they need is read into a working set, and what they changed is
//! written to the tables.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::params;

use super::columns::{kind_number, text};
use super::fault::{Answer, Fault};
use super::job_rows::{Closed, Entry, FLAG_CALLBACK, Place};
use super::transaction::Transaction;
use crate::job::{JobId, JobOptions, Priority};
use crate::store::observe::AttemptCount;
use crate::store::rules::{self, ClosedAttempt, Edge, EdgeChange, Missing, Run, ScheduleWrite, Stop, WorkingSet};
use crate::time::Timestamp;
use crate::workflow::Identity;

/// A working set, and the rows of the jobs in it.
struct Loaded {
    set: WorkingSet,
    rows: HashMap<JobId, Entry>,
    ids: HashMap<i64, JobId>,
}

impl Loaded {
    fn put(&mut self, row: Entry) {
        let (sequence, token, waits, depth) = (row.seq, row.token, row.waits, row.depth);
        self.set.put(rules::Entry { sequence, job: row.job.clone(), token, waits, depth });
        self.ids.insert(row.seq, row.job.id);
        self.rows.entry(row.job.id).or_insert(row);
    }
}

impl Transaction<'_> {
    /// Runs a rule and writes what it changed; what it refuses has written nothing.
    pub(super) fn run<T>(&mut self, rule: impl FnMut(&mut WorkingSet) -> Result<T, Stop>) -> Answer<T> {
        self.run_on(None, rule)
    }

    /// The same for a job that has been read.
    pub(super) fn run_on<T>(
        &mut self,
        job: Option<Entry>,
        rule: impl FnMut(&mut WorkingSet) -> Result<T, Stop>,
    ) -> Answer<T> {
        let mut loaded = Loaded { set: WorkingSet::new(self.now), rows: HashMap::new(), ids: HashMap::new() };
        loaded.set.hold_leases(self.fence_time()?);
        job.into_iter().for_each(|row| loaded.put(row));
        let mut run = Run::new(rule);
        loop {
            match run.step(&mut loaded.set) {
                Ok(answer) => {
                    self.write(loaded)?;
                    return Ok(answer);
                }
                Err(Stop::Missing(missing)) => self.read(&mut loaded, missing)?,
                Err(Stop::Refused(error)) => return Err(error.into()),
            }
        }
    }

    fn read(&mut self, loaded: &mut Loaded, missing: Missing) -> Answer<()> {
        match missing {
            Missing::Jobs(ids) => {
                for id in ids {
                    match self.load_id(id)? {
                        Some(row) => loaded.put(row),
                        None => loaded.set.put_absent(id),
                    }
                }
            }
            Missing::Dependents(ids) => {
                for parent in ids {
                    for (seq, kind, open) in self.dependents(self.seq_of(parent))? {
                        let child = self.read_end(loaded, seq)?;
                        loaded.set.put_edge(Edge { parent, child, kind }, open);
                    }
                    loaded.set.know_dependents(parent);
                }
            }
            Missing::Dependencies(ids) => {
                for child in ids {
                    for (seq, kind, open) in self.dependencies(self.seq_of(child))? {
                        let parent = self.read_end(loaded, seq)?;
                        loaded.set.put_edge(Edge { parent, child, kind }, open);
                    }
                    loaded.set.know_dependencies(child);
                }
            }
            Missing::Keys(keys) => {
                for key in keys {
                    let held = self.held(&key)?;
                    loaded.set.put_key(key, held);
                }
            }
            Missing::Attempt(key, outcome) => {
                let was_closed = self.was_closed(&key, outcome)?;
                loaded.set.put_attempt(key, outcome, was_closed);
            }
            Missing::Identities(count) => {
                for _ in 0..count {
                    loaded.set.put_identity(self.draw());
                }
            }
        }
        Ok(())
    }

    /// Reads the job at one end of an edge, which exists as long as the edge does.
    fn read_end(&mut self, loaded: &mut Loaded, seq: i64) -> Answer<JobId> {
        if let Some(id) = loaded.ids.get(&seq) {
            return Ok(*id);
        }
        let row = self.known(seq)?;
        let id = row.job.id;
        loaded.put(row);
        Ok(id)
    }

    /// A number and an id for a new job.
    pub(super) fn draw(&mut self) -> Identity {
        let sequence = self.tick();
        Identity { sequence, id: self.draw_id(sequence) }
    }

    fn write(&mut self, loaded: Loaded) -> Answer<()> {
        let Loaded { set, mut rows, .. } = loaded;
        let changes = set.finish();
        let touched = rules::touched(&changes);
        let mut row_of = |id: JobId| rows.remove(&id).ok_or_else(|| Fault::broken(format!("job {id} was not read")));
        for entry in &changes.new {
            self.write_new(entry)?;
        }
        changes.keys.iter().try_for_each(|kept| self.keep_key(kept))?;
        let mut closed: HashMap<JobId, ClosedAttempt> =
            changes.attempts.into_iter().map(|closed| (closed.job, closed)).collect();
        for change in changes.changed {
            let id = change.after.job.id;
            self.write_change(row_of(id)?, change.after, closed.remove(&id))?;
        }
        for EdgeChange { edge, open, is_new } in changes.edges {
            let (parent, seq) = (self.seq_of(edge.parent), self.seq_of(edge.child));
            match is_new {
                true => self.add_edge(parent, seq, edge.kind, open)?,
                false => self.set_edge(parent, seq, edge.kind, open)?,
            }
        }
        for entry in changes.removed {
            self.remove(&row_of(entry.job.id)?)?;
        }
        self.hold_gates(&changes.holds)?;
        for (queue, _) in &touched {
            self.hint_freed(queue)?;
        }
        for act in &changes.acts {
            self.record_act(act)?;
        }
        for write in &changes.schedules {
            match write {
                ScheduleWrite::Put(schedule) => self.put_schedule(schedule)?,
                ScheduleWrite::Delete(name) => self.delete_schedule(name)?,
            }
        }
        changes.wakes.into_iter().for_each(|wake| self.hint(wake));
        Ok(())
    }

    fn write_change(&mut self, mut row: Entry, after: rules::Entry, closed: Option<ClosedAttempt>) -> Answer<()> {
        let moves = row.job.state != after.job.state;
        if moves {
            self.archive_end(&mut row)?;
        }
        let before = std::mem::replace(&mut row.job, after.job);
        (row.waits, row.token) = (after.waits, after.token);
        let is_edited =
            !Arc::ptr_eq(&before.spec, &row.job.spec) || before.inherited_priority != row.job.inherited_priority;
        if is_edited {
            self.write_spec(&mut row)?;
        }
        if moves {
            if row.job.failure != before.failure {
                self.keep_failure(&mut row)?;
            }
            if row.job.generation != before.generation {
                self.keep_lifetime(row.job.deadline.map(Timestamp::as_micros), row.seq)?;
            }
            if before.state.is_terminal() {
                self.count_left(row.lane, before.state, false);
            }
            let attempt = closed.as_ref().and_then(|closed| AttemptCount::of(closed.attempt.outcome, row.job.state));
            if let Some(counted) = attempt {
                self.count_attempt(row.lane, counted);
            }
            self.keep_closed(&mut row, closed)?;
            return self.put(&mut row);
        }
        match row.place {
            Place::Pending if !is_edited => {
                let waits = params![row.seq, row.waits.all, row.waits.any];
                self.statement(include_str!("sql/set_waits.sql"))?.execute(waits)?;
            }
            Place::Pending | Place::Ready { .. } => self.put(&mut row)?,
            Place::Leased if is_edited => {
                self.statement(include_str!("sql/set_leased_flags.sql"))?.execute([row.seq, row.flags])?;
            }
            Place::Leased => {
                let cancel = params![row.seq, row.job.cancel.as_ref().map(text)];
                self.statement(include_str!("sql/set_cancel.sql"))?.execute(cancel)?;
            }
            Place::Done { .. } => {
                self.statement(include_str!("sql/set_done_flags.sql"))?.execute([row.seq, row.flags])?;
            }
        }
        Ok(())
    }

    /// Writes what may change of what was submitted, and the priority that follows others.
    fn write_spec(&mut self, row: &mut Entry) -> Answer<()> {
        let spec = &row.job.spec;
        let options = Some(&spec.options).filter(|options| **options != JobOptions::default()).map(text);
        let inherited = row.job.inherited_priority.map(Priority::number);
        let kept = params![row.seq, spec.priority.number(), inherited, options, spec.damage.is_some()];
        self.statement(include_str!("sql/edit_job.sql"))?.execute(kept)?;
        if spec.damage.is_none() {
            self.statement(include_str!("sql/delete_marks.sql"))?.execute([row.seq])?;
            self.add_marks(row.seq, &spec.options)?;
        }
        let callback = if spec.options.callback_url.is_some() { FLAG_CALLBACK } else { 0 };
        row.flags = (row.flags & !FLAG_CALLBACK) | callback;
        Ok(())
    }

    /// Keeps a closed attempt: with the end of its job if that says all of it, else in a row of its own.
    fn keep_closed(&mut self, row: &mut Entry, closed: Option<ClosedAttempt>) -> Answer<()> {
        let Some(ClosedAttempt { token, attempt, .. }) = closed else { return Ok(()) };
        match attempt.outcome {
            Some(outcome) if row.job.state.is_terminal() && attempt.failure == row.job.failure => {
                self.forget_old_attempts(row.seq, attempt.lease_version)?;
                row.closed = Some(Closed { outcome, token, worker: attempt.worker });
                Ok(())
            }
            _ => self.keep_attempt(row.seq, token, &attempt),
        }
    }

    fn set_edge(&mut self, parent: i64, seq: i64, kind: crate::job::DependencyKind, open: bool) -> Answer<()> {
        let edge = params![parent, seq, kind_number(kind), open];
        self.statement(include_str!("sql/set_edge.sql"))?.execute(edge)?;
        Ok(())
    }
}
