//! A job as it is stored, and how it moves from one table to another.
//!
//! The careful way: [`Transaction::load`] reads the whole job, the core changes the record, [`Transaction::put`] writes it where it then
//! stands. Plain enqueues, claims and completions have quicker ways of their own in `insert`, `claim` and `settle`.

use std::sync::Arc;

use rusqlite::types::FromSql;
use rusqlite::{OptionalExtension, Row as SqlRow, params};

use super::columns::{
    columns, json, kind_state, optional_uuid, priority, read_dependencies, state, stored_version, text, time, uuid,
};
use super::fault::{Answer, Fault};
use super::hot_statements::HotStatement;
use super::transaction::Transaction;
use crate::job::{
    CancelAsked, Damage, Dependency, FailureRecord, Fingerprint, Firing, JobId, JobOptions, JobRecord, JobSpec,
    LeaseInfo, LeaseToken, Outcome, Payload, Progress, Reason, State, WorkerId, WorkflowId,
};
use crate::time::Timestamp;
use crate::workflow::graph::Waits;

/// The job has a callback URL.
pub(super) const FLAG_CALLBACK: i64 = 1;
/// The job has a row in `note`.
pub(super) const FLAG_NOTE: i64 = 2;

/// The job stands in a strand of a controlled queue, or runs in one, and is counted there instead of in its own lane.
pub(super) const FLAG_FLOW: i64 = 4;

/// What every place keeps of a job, as the columns of [`HotColumn`].
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Hot {
    pub(super) priority: i64,
    pub(super) deadline: Option<i64>,
    pub(super) flags: i64,
    pub(super) attempt: u32,
    pub(super) failures: u32,
    pub(super) lost: u32,
    pub(super) generation: u32,
    pub(super) version: i64,
    pub(super) position: i64,
    pub(super) scheduled_at: Option<i64>,
    pub(super) started_at: Option<i64>,
    pub(super) updated_at: i64,
}

columns! {
    /// The columns of `job`, which statements select first.
    JobColumn from 0 =>
    id, lane, priority, inherited, created_at, first_at, depth, workflow, schedule, slot, spawned_by, depends_on, options,
    content_type, payload,
}
columns! {
    /// The columns of [`Hot`], which statements that read a place select first.
    HotColumn from 0 =>
    priority, deadline, flags, attempt, failures, lost, generation, version, position, scheduled_at, started_at, updated_at,
}
columns! {
    /// What `get_leased.sql` selects beside.
    LeasedColumn from HotColumn::NAMES.len() => expires_at, token, worker, cancel, lane
}
columns! {
    /// What `get_done.sql` selects beside.
    DoneColumn from HotColumn::NAMES.len() => state, ended, outcome, token, worker, reason, result_type, result
}
columns! {
    /// What `get_ready.sql` and `get_ready_moved.sql` select beside.
    ReadyColumn from HotColumn::NAMES.len() => at, kind, lane
}
columns! {
    /// What `get_pending.sql` selects beside.
    PendingColumn from HotColumn::NAMES.len() => run_at, waits_all, waits_any
}

impl Hot {
    pub(super) fn read(row: &SqlRow<'_>) -> rusqlite::Result<Self> {
        Ok(Hot {
            priority: row.get(HotColumn::priority.number())?,
            deadline: row.get(HotColumn::deadline.number())?,
            flags: row.get(HotColumn::flags.number())?,
            attempt: row.get(HotColumn::attempt.number())?,
            failures: row.get(HotColumn::failures.number())?,
            lost: row.get(HotColumn::lost.number())?,
            generation: row.get(HotColumn::generation.number())?,
            version: row.get(HotColumn::version.number())?,
            position: row.get(HotColumn::position.number())?,
            scheduled_at: row.get(HotColumn::scheduled_at.number())?,
            started_at: row.get(HotColumn::started_at.number())?,
            updated_at: row.get(HotColumn::updated_at.number())?,
        })
    }
}

/// Where a job is stored now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Ready { priority: i64, at: i64, kind: i64 },
    Pending,
    Leased,
    Done { state: State, ended: i64 },
}

impl Place {
    /// The state that the lane counts it under.
    pub(super) fn counted(self) -> Answer<State> {
        Ok(match self {
            Place::Ready { kind, .. } => kind_state(kind)?,
            Place::Pending => State::Pending,
            Place::Leased => State::Running,
            Place::Done { state, .. } => state,
        })
    }
}

/// The attempt that ended a job, kept with it.
#[derive(Clone, Debug)]
pub(super) struct Closed {
    pub(super) outcome: Outcome,
    pub(super) token: LeaseToken,
    pub(super) worker: WorkerId,
}

/// A job and what only the store knows of it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) seq: i64,
    pub(super) lane: i64,
    /// The lane that it stands in and is counted in: its own, or a strand of a controlled queue.
    pub(super) stands_in: i64,
    pub(super) first_at: i64,
    pub(super) depth: u32,
    pub(super) flags: i64,
    pub(super) place: Place,
    pub(super) job: JobRecord,
    pub(super) token: Option<LeaseToken>,
    pub(super) closed: Option<Closed>,
    pub(super) waits: Waits,
}

impl Transaction<'_> {
    /// The job with this id, as it is now.
    pub(super) fn load_id(&mut self, id: JobId) -> Answer<Option<Entry>> {
        let seq = self.seq_of(id);
        Ok(self.load(seq)?.filter(|entry| entry.job.id == id))
    }

    /// The job with this sequence, as it is now.
    pub(super) fn load(&mut self, seq: i64) -> Answer<Option<Entry>> {
        let mut statement = self.take_statement(HotStatement::GetJob)?;
        let mut rows = statement.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (job, lane, first_at, depth) = self.read_job(seq, row)?;
        drop(rows);
        self.give_statement_back(HotStatement::GetJob, statement);
        let mut entry = self.read_place(seq, lane, first_at, depth, job)?;
        if entry.flags & FLAG_NOTE != 0 {
            self.read_note(seq, &mut entry.job)?;
        }
        Ok(Some(entry))
    }

    /// What was submitted, as a record that does not yet know where it stands.
    pub(super) fn read_job(&mut self, seq: i64, row: &SqlRow<'_>) -> Answer<(JobRecord, i64, i64, u32)> {
        let lane: i64 = row.get(JobColumn::lane.number())?;
        let (queue, job_type) = self.names_of(lane)?;
        let mut damage = Damage::default();
        let created_at: i64 = damage.or_default("creation time", row.get(JobColumn::created_at.number()));
        let depends_on = damage.or_default("dependencies", dependencies_of(row));
        let options = damage.or_default("options", self.options_of(row));
        let payload = damage.or_default("payload", payload_of(row));
        let own_priority = damage.or_default("priority", number(row, JobColumn::priority).and_then(priority));
        let inherited = number::<Option<i64>>(row, JobColumn::inherited);
        let inherited = inherited.and_then(|inherited| inherited.map(priority).transpose());
        let inherited_priority = damage.or_default("inherited priority", inherited);
        let schedule: Option<String> = damage.or_default("schedule", row.get(JobColumn::schedule.number()));
        let slot: Option<i64> = damage.or_default("slot", row.get(JobColumn::slot.number()));
        let workflow = damage.or_default("workflow", optional_uuid(row, JobColumn::workflow.number()));
        let spawned_by = damage.or_default("parent", optional_uuid(row, JobColumn::spawned_by.number()));
        let first_at: Option<i64> = damage.or_default("place", row.get(JobColumn::first_at.number()));
        let depth = damage.or_default("depth", row.get(JobColumn::depth.number()));
        let id = uuid(row, JobColumn::id.number()).map(JobId::from_uuid).unwrap_or_else(|problem| {
            damage.note("id", problem);
            self.substitute_id(seq)
        });
        let spec = JobSpec::from_stored(job_type, queue, payload, own_priority, depends_on, options);
        let spec = spec.with_damage(damage);
        let firing = schedule.zip(slot).map(|(schedule, slot)| Firing { schedule, slot: time(slot) });
        let created = time(created_at);
        let job = JobRecord {
            id,
            spec: Arc::new(spec),
            state: State::Pending,
            attempt: 0,
            failures: 0,
            lost: 0,
            generation: 0,
            position: created,
            inherited_priority,
            created_at: created,
            updated_at: created,
            scheduled_at: None,
            started_at: None,
            completed_at: None,
            run_at: None,
            deadline: None,
            lease: None,
            lease_version: 0,
            cancel: None,
            failure: None,
            result: None,
            progress: None,
            checkpoint: None,
            workflow_id: workflow.map(WorkflowId::from_uuid),
            firing,
            spawned_by: spawned_by.map(JobId::from_uuid),
            reason: None,
        };
        Ok((job, lane, first_at.unwrap_or(created_at), depth))
    }

    fn options_of(&self, row: &SqlRow<'_>) -> Answer<JobOptions> {
        self.options(row.get_ref(JobColumn::options.number())?.as_str_or_null()?)
    }

    fn read_place(&mut self, seq: i64, lane: i64, first_at: i64, depth: u32, job: JobRecord) -> Answer<Entry> {
        let mut entry = Entry {
            seq,
            lane,
            stands_in: lane,
            first_at,
            depth,
            flags: 0,
            place: Place::Pending,
            job,
            token: None,
            closed: None,
            waits: Waits::default(),
        };
        let found = self.read_leased(&mut entry)?
            || self.read_done(&mut entry)?
            || self.read_ready(&mut entry)?
            || self.read_pending(&mut entry)?;
        if !found {
            // Priority or time, by which a waiting job is found, was written over.
            let mut damage = Damage::default();
            damage.note("place", "the job stands nowhere");
            entry.job.add_damage(damage);
        }
        Ok(entry)
    }

    fn read_leased(&mut self, entry: &mut Entry) -> Answer<bool> {
        let mut statement = self.take_statement(HotStatement::GetLeased)?;
        let mut rows = statement.query([entry.seq])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        entry.apply_hot(&Hot::read(row)?);
        entry.place = Place::Leased;
        entry.stands_in = row.get(LeasedColumn::lane.number())?;
        entry.token = Some(LeaseToken::from_uuid(uuid(row, LeasedColumn::token.number())?));
        let job = &mut entry.job;
        job.state = State::Running;
        job.lease = Some(LeaseInfo {
            version: job.lease_version,
            expires_at: time(row.get(LeasedColumn::expires_at.number())?),
            worker: WorkerId::new(row.get_ref(LeasedColumn::worker.number())?.as_str()?)?,
        });
        let mut damage = Damage::default();
        // That somebody asked is known; who and why is not.
        job.cancel = json::<CancelAsked>(row, LeasedColumn::cancel.number()).unwrap_or_else(|problem| {
            damage.note("request to stop", problem);
            Some(CancelAsked::new(None, "", job.position))
        });
        job.add_damage(damage);
        Ok(true)
    }

    fn read_done(&self, entry: &mut Entry) -> Answer<bool> {
        let mut statement = self.statement(include_str!("sql/get_done.sql"))?;
        let mut rows = statement.query([entry.seq])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        let mut damage = Damage::default();
        entry.apply_hot(&damage.or_default("counters", Hot::read(row)));
        let state = state(row.get(DoneColumn::state.number())?)?;
        entry.place = Place::Done { state, ended: row.get(DoneColumn::ended.number())? };
        let closed = [DoneColumn::outcome, DoneColumn::token, DoneColumn::worker].map(DoneColumn::number);
        entry.closed = damage.or_default("last attempt", Closed::read(row, closed));
        let job = &mut entry.job;
        job.state = state;
        job.completed_at = Some(job.updated_at);
        job.reason = damage.or_default("reason", json::<Reason>(row, DoneColumn::reason.number()));
        job.result = damage.or_default("result", result_of(row));
        job.add_damage(damage);
        Ok(true)
    }

    fn read_ready(&self, entry: &mut Entry) -> Answer<bool> {
        let priority = i64::from(entry.job.effective_priority().number());
        let place = [entry.lane, priority, entry.first_at, entry.seq];
        let mut statement = self.statement(include_str!("sql/get_ready.sql"))?;
        let read = |row: &SqlRow<'_>| {
            Ok((
                Hot::read(row)?,
                row.get::<_, i64>(ReadyColumn::at.number())?,
                row.get::<_, i64>(ReadyColumn::kind.number())?,
                row.get::<_, i64>(ReadyColumn::lane.number())?,
            ))
        };
        let mut found = statement.query_row(place, read).optional()?;
        if found.is_none() {
            let mut statement = self.statement(include_str!("sql/get_ready_moved.sql"))?;
            found = statement.query_row([entry.seq], read).optional()?;
        }
        let Some((hot, at, kind, lane)) = found else { return Ok(false) };
        entry.apply_hot(&hot);
        entry.stands_in = lane;
        entry.place = Place::Ready { priority: hot.priority, at, kind };
        let job = &mut entry.job;
        job.state = kind_state(kind)?;
        if kind != 0 {
            job.run_at = Some(time(at));
            if time(at) <= self.now {
                job.fall_due().map_err(|error| Fault::broken(error.to_string()))?;
            }
        }
        Ok(true)
    }

    fn read_pending(&self, entry: &mut Entry) -> Answer<bool> {
        let mut statement = self.statement(include_str!("sql/get_pending.sql"))?;
        let mut rows = statement.query([entry.seq])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        entry.apply_hot(&Hot::read(row)?);
        entry.place = Place::Pending;
        entry.job.state = State::Pending;
        entry.job.run_at = row.get::<_, Option<i64>>(PendingColumn::run_at.number())?.map(time);
        entry.waits = Waits {
            all: row.get(PendingColumn::waits_all.number())?,
            any: row.get(PendingColumn::waits_any.number())?,
        };
        Ok(true)
    }

    pub(super) fn read_note(&self, seq: i64, job: &mut JobRecord) -> Answer<()> {
        let mut statement = self.statement(include_str!("sql/get_note.sql"))?;
        let mut rows = statement.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(()) };
        let mut damage = Damage::default();
        job.failure = damage.or_default("failure", json::<FailureRecord>(row, "failure"));
        job.progress = damage.or_default("progress", json::<Progress>(row, "progress"));
        let checkpoint: Option<Vec<u8>> = damage.or_default("checkpoint", row.get("checkpoint"));
        job.checkpoint = checkpoint.map(Into::into);
        job.add_damage(damage);
        Ok(())
    }

    /// A job that another row names, and which must therefore exist.
    pub(super) fn known(&mut self, seq: i64) -> Answer<Entry> {
        self.load(seq)?.ok_or_else(|| Fault::broken(format!("job number {seq} is named but does not exist")))
    }

    /// Moves what only an ended job's row knows to where it outlasts the row.
    pub(super) fn archive_end(&mut self, entry: &mut Entry) -> Answer<()> {
        let Place::Done { state, ended } = entry.place else { return Ok(()) };
        let past = params![ended, entry.seq, state.number(), entry.job.updated_at.as_micros()];
        self.statement(include_str!("sql/add_past_end.sql"))?.execute(past)?;
        if let Some(attempt) = entry.inline_attempt()
            && let Some(closed) = entry.closed.take()
        {
            self.keep_attempt(entry.seq, closed.token, &attempt)?;
        }
        Ok(())
    }

    pub(super) fn keep_failure(&mut self, entry: &mut Entry) -> Answer<()> {
        entry.flags |= FLAG_NOTE;
        let failure = entry.job.failure.as_ref().map(text);
        self.statement(include_str!("sql/put_failure.sql"))?.execute(params![entry.seq, failure])?;
        Ok(())
    }

    /// Writes a job where it now stands, and takes it from where it stood.
    pub(super) fn put(&mut self, entry: &mut Entry) -> Answer<()> {
        self.touch_strand(entry)?;
        self.leave(entry)?;
        self.enter(entry)
    }

    /// Takes a job from where it stands.
    pub(super) fn leave(&mut self, entry: &Entry) -> Answer<()> {
        self.count(entry.stands_in, entry.place.counted()?, -1);
        match entry.place {
            Place::Ready { priority, at, .. } => {
                self.execute(HotStatement::DeleteReady, [entry.stands_in, priority, at, entry.seq])?;
            }
            Place::Pending => {
                self.statement(include_str!("sql/delete_pending.sql"))?.execute([entry.seq])?;
            }
            Place::Leased => {
                self.execute(HotStatement::DeleteLeased, [entry.seq])?;
            }
            Place::Done { .. } => {
                self.statement(include_str!("sql/delete_done.sql"))?.execute([entry.seq])?;
            }
        }
        Ok(())
    }

    /// Puts a job where its state says, without taking it from anywhere. Only a RUNNING job enters a strand.
    pub(super) fn enter(&mut self, entry: &mut Entry) -> Answer<()> {
        if entry.job.state != State::Running {
            entry.stands_in = entry.lane;
            entry.flags &= !FLAG_FLOW;
        }
        match entry.job.state {
            State::Scheduled => self.enter_ready(entry, 0)?,
            State::Delayed => self.enter_ready(entry, 1)?,
            State::Retrying => self.enter_ready(entry, 2)?,
            State::Pending => self.enter_pending(entry)?,
            State::Running => self.enter_leased(entry)?,
            State::Completed | State::Failed | State::DeadLetter | State::Cancelled => {
                // Where it ran, the count of its strand says that its key may go on.
                if entry.place != Place::Leased {
                    self.touch_owned(entry.seq, entry.seq)?;
                }
                self.enter_done(entry)?;
            }
        }
        self.count(entry.stands_in, entry.job.state, 1);
        Ok(())
    }

    fn enter_ready(&mut self, entry: &mut Entry, kind: i64) -> Answer<()> {
        let job = &entry.job;
        let at = if kind == 0 { job.position } else { job.run_at.unwrap_or(job.position) }.as_micros();
        let priority = i64::from(job.effective_priority().number());
        // A SCHEDULED job's times are all its position.
        let (position, scheduled_at, updated_at) = match kind {
            0 => (None, None, None),
            _ => (
                Some(job.position.as_micros()),
                job.scheduled_at.map(Timestamp::as_micros),
                Some(job.updated_at.as_micros()),
            ),
        };
        self.execute(
            HotStatement::AddReady,
            params![
                entry.lane,
                priority,
                at,
                entry.seq,
                kind,
                at != entry.first_at,
                job.deadline.map(Timestamp::as_micros),
                entry.flags,
                job.attempt,
                job.failures,
                job.lost,
                job.generation,
                stored_version(job.lease_version),
                position,
                scheduled_at,
                job.started_at.map(Timestamp::as_micros),
                updated_at,
            ],
        )?;
        entry.place = Place::Ready { priority, at, kind };
        Ok(())
    }

    fn enter_pending(&mut self, entry: &mut Entry) -> Answer<()> {
        let job = &entry.job;
        self.statement(include_str!("sql/add_pending.sql"))?.execute(params![
            entry.seq,
            entry.lane,
            job.effective_priority().number(),
            job.deadline.map(Timestamp::as_micros),
            entry.flags,
            job.attempt,
            job.failures,
            job.lost,
            job.generation,
            stored_version(job.lease_version),
            job.position.as_micros(),
            job.scheduled_at.map(Timestamp::as_micros),
            job.started_at.map(Timestamp::as_micros),
            job.updated_at.as_micros(),
            job.run_at.map(Timestamp::as_micros),
            entry.waits.all,
            entry.waits.any,
        ])?;
        entry.place = Place::Pending;
        Ok(())
    }

    fn enter_leased(&mut self, entry: &mut Entry) -> Answer<()> {
        let job = &entry.job;
        let (Some(lease), Some(token)) = (&job.lease, entry.token) else {
            return Err(Fault::broken(format!("job {} runs without a lease", job.id)));
        };
        self.statement(include_str!("sql/add_leased.sql"))?.execute(params![
            entry.seq,
            entry.stands_in,
            job.effective_priority().number(),
            job.deadline.map(Timestamp::as_micros),
            entry.flags,
            job.attempt,
            job.failures,
            job.lost,
            job.generation,
            stored_version(job.lease_version),
            job.position.as_micros(),
            job.scheduled_at.map(Timestamp::as_micros),
            job.started_at.unwrap_or(job.updated_at).as_micros(),
            lease.expires_at.as_micros(),
            job.spec.options.timeouts.stored_lease_max(),
            token.as_uuid().as_bytes(),
            lease.worker.as_str(),
        ])?;
        entry.place = Place::Leased;
        Ok(())
    }

    fn enter_done(&mut self, entry: &mut Entry) -> Answer<()> {
        let ended = self.tick();
        self.enter_done_as(entry, ended)
    }

    /// The same with the number of an end that was.
    pub(super) fn enter_done_as(&mut self, entry: &mut Entry, ended: i64) -> Answer<()> {
        let job = &entry.job;
        let closed = entry.closed.as_ref();
        self.execute(
            HotStatement::AddDone,
            params![
                entry.seq,
                entry.lane,
                job.state.number(),
                ended,
                job.effective_priority().number(),
                job.deadline.map(Timestamp::as_micros),
                entry.flags,
                job.attempt,
                job.failures,
                job.lost,
                job.generation,
                stored_version(job.lease_version),
                job.position.as_micros(),
                job.scheduled_at.map(Timestamp::as_micros),
                job.started_at.map(Timestamp::as_micros),
                job.updated_at.as_micros(),
                closed.map(|closed| closed.outcome.number()),
                closed.map(|closed| closed.token.as_uuid().into_bytes()),
                closed.map(|closed| closed.worker.as_str()),
                job.reason.as_ref().map(text),
                job.fault().map(Fingerprint::number),
                job.result.as_ref().and_then(Payload::stored_content_type),
                job.result.as_ref().map(|result| result.as_bytes().as_ref()),
                job.prune_at().map(Timestamp::as_micros),
            ],
        )?;
        entry.place = Place::Done { state: entry.job.state, ended };
        Ok(())
    }
}

fn dependencies_of(row: &SqlRow<'_>) -> Answer<Vec<Dependency>> {
    row.get_ref(JobColumn::depends_on.number())?.as_blob_or_null()?.map_or_else(|| Ok(Vec::new()), read_dependencies)
}

fn result_of(row: &SqlRow<'_>) -> Answer<Option<Payload>> {
    let Some(bytes) = row.get::<_, Option<Vec<u8>>>(DoneColumn::result.number())? else { return Ok(None) };
    let content_type = row.get_ref(DoneColumn::result_type.number())?.as_str_or_null()?;
    Ok(Some(Payload::from_stored(content_type, bytes)))
}

fn number<T: FromSql>(row: &SqlRow<'_>, column: JobColumn) -> Answer<T> {
    Ok(row.get(column.number())?)
}

fn payload_of(row: &SqlRow<'_>) -> Answer<Payload> {
    let content_type = row.get_ref(JobColumn::content_type.number())?.as_str_or_null()?;
    Ok(Payload::from_stored(content_type, row.get::<_, Vec<u8>>(JobColumn::payload.number())?))
}

#[cfg(test)]
#[path = "job_rows_tests.rs"]
mod tests;
