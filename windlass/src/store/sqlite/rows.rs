//! A job as it is stored, and how it moves from one table to another.
//!
//! The careful way: [`Tx::load`] reads the whole job, the core changes the record, [`Tx::put`] writes it where it then
//! stands. Plain enqueues, claims and completions have quicker ways of their own in `insert`, `claim` and `settle`.

use std::sync::Arc;

use rusqlite::{OptionalExtension, Row as SqlRow, params};

use super::columns::{
    json, optional_uuid, outcome_of, priority, read_dependencies, state, stored_version, text, time, uuid,
};
use super::fault::{Answer, Fault};
use super::held::Hold;
use super::tx::Tx;
use crate::job::{
    ATTEMPTS_KEPT, AttemptRecord, CancelAsked, FailureRecord, Firing, JobId, JobRecord, JobSpec, LeaseInfo, LeaseToken,
    Outcome, Payload, Progress, Reason, State, Verdict, WorkerId, WorkflowId,
};
use crate::time::Timestamp;
use crate::workflow::graph::Waits;

/// The job has a callback URL.
pub(super) const FLAG_CALLBACK: i64 = 1;
/// The job has a row in `note`.
pub(super) const FLAG_NOTE: i64 = 2;

/// What every place keeps of a job, in the order in which statements select it.
#[derive(Clone, Copy, Debug)]
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

/// How many columns [`Hot`] takes.
pub(super) const HOT: usize = 12;

impl Hot {
    pub(super) fn read(row: &SqlRow<'_>) -> rusqlite::Result<Self> {
        Ok(Hot {
            priority: row.get(0)?,
            deadline: row.get(1)?,
            flags: row.get(2)?,
            attempt: row.get(3)?,
            failures: row.get(4)?,
            lost: row.get(5)?,
            generation: row.get(6)?,
            version: row.get(7)?,
            position: row.get(8)?,
            scheduled_at: row.get(9)?,
            started_at: row.get(10)?,
            updated_at: row.get(11)?,
        })
    }
}

/// Where a job is stored now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Waiting { priority: i64, at: i64, kind: i64 },
    Pending,
    Leased,
    Done { state: State, ended: i64 },
}

impl Place {
    /// The state that the lane counts it under.
    pub(super) fn counted(self) -> Answer<State> {
        Ok(match self {
            Place::Waiting { kind, .. } => kind_state(kind)?,
            Place::Pending => State::Pending,
            Place::Leased => State::Running,
            Place::Done { state, .. } => state,
        })
    }
}

/// SCHEDULED, DELAYED and RETRYING jobs wait in one table.
pub(super) fn kind_state(kind: i64) -> Answer<State> {
    match kind {
        0 => Ok(State::Scheduled),
        1 => Ok(State::Delayed),
        2 => Ok(State::Retrying),
        other => Err(Fault::broken(format!("no job waits with kind {other}"))),
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
pub(super) struct Stored {
    pub(super) seq: i64,
    pub(super) lane: i64,
    pub(super) first_at: i64,
    pub(super) depth: u32,
    pub(super) flags: i64,
    pub(super) place: Place,
    pub(super) job: JobRecord,
    pub(super) token: Option<LeaseToken>,
    pub(super) closed: Option<Closed>,
    pub(super) waits: Waits,
}

impl Tx<'_> {
    /// The job with this id, as it is now.
    pub(super) fn load_id(&mut self, id: JobId) -> Answer<Option<Stored>> {
        let seq = self.seq_of(id);
        Ok(self.load(seq)?.filter(|stored| stored.job.id == id))
    }

    /// The job with this sequence, as it is now.
    pub(super) fn load(&mut self, seq: i64) -> Answer<Option<Stored>> {
        let mut statement = self.take(Hold::GetJob)?;
        let mut rows = statement.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (job, lane, first_at, depth) = self.read_job(row)?;
        drop(rows);
        self.give(Hold::GetJob, statement);
        let mut stored = self.read_place(seq, lane, first_at, depth, job)?;
        if stored.flags & FLAG_NOTE != 0 {
            self.read_note(seq, &mut stored.job)?;
        }
        Ok(Some(stored))
    }

    /// What was submitted, as a record that does not yet know where it stands.
    pub(super) fn read_job(&mut self, row: &SqlRow<'_>) -> Answer<(JobRecord, i64, i64, u32)> {
        let lane: i64 = row.get(1)?;
        let (queue, job_type) = self.names_of(lane)?;
        let created_at: i64 = row.get(4)?;
        let depends_on = match row.get_ref(11)?.as_blob_or_null()? {
            None => Vec::new(),
            Some(bytes) => read_dependencies(bytes)?,
        };
        let options = self.options(row.get_ref(12)?.as_str_or_null()?)?;
        let content_type = row.get_ref(13)?.as_str_or_null()?;
        let payload = Payload::from_stored(content_type, row.get::<_, Vec<u8>>(14)?);
        let spec = JobSpec::from_stored(job_type, queue, payload, priority(row.get(2)?)?, depends_on, options);
        let schedule: Option<String> = row.get(8)?;
        let slot: Option<i64> = row.get(9)?;
        let firing = schedule.zip(slot).map(|(schedule, slot)| Firing { schedule, slot: time(slot) });
        let created = time(created_at);
        let job = JobRecord {
            id: JobId::from_uuid(uuid(row, 0)?),
            spec: Arc::new(spec),
            state: State::Pending,
            attempt: 0,
            failures: 0,
            lost: 0,
            generation: 0,
            position: created,
            inherited_priority: row.get::<_, Option<i64>>(3)?.map(priority).transpose()?,
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
            workflow_id: optional_uuid(row, 7)?.map(WorkflowId::from_uuid),
            firing,
            spawned_by: optional_uuid(row, 10)?.map(JobId::from_uuid),
            reason: None,
        };
        let first_at = row.get::<_, Option<i64>>(5)?.unwrap_or(created_at);
        Ok((job, lane, first_at, row.get(6)?))
    }

    fn read_place(&mut self, seq: i64, lane: i64, first_at: i64, depth: u32, job: JobRecord) -> Answer<Stored> {
        let mut stored = Stored {
            seq,
            lane,
            first_at,
            depth,
            flags: 0,
            place: Place::Pending,
            job,
            token: None,
            closed: None,
            waits: Waits::default(),
        };
        let found = self.read_leased(&mut stored)?
            || self.read_done(&mut stored)?
            || self.read_waiting(&mut stored)?
            || self.read_pending(&mut stored)?;
        if !found {
            return Err(Fault::broken(format!("job {} stands nowhere", stored.job.id)));
        }
        Ok(stored)
    }

    fn read_leased(&mut self, stored: &mut Stored) -> Answer<bool> {
        let mut statement = self.take(Hold::GetLeased)?;
        let mut rows = statement.query([stored.seq])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        stored.warm(&Hot::read(row)?);
        stored.place = Place::Leased;
        stored.token = Some(LeaseToken::from_uuid(uuid(row, HOT + 1)?));
        let job = &mut stored.job;
        job.state = State::Running;
        job.lease = Some(LeaseInfo {
            version: job.lease_version,
            expires_at: time(row.get(HOT)?),
            worker: WorkerId::new(row.get_ref(HOT + 2)?.as_str()?)?,
        });
        job.cancel = json::<CancelAsked>(row, HOT + 3)?;
        Ok(true)
    }

    fn read_done(&self, stored: &mut Stored) -> Answer<bool> {
        let mut statement = self.statement(include_str!("sql/get_done.sql"))?;
        let mut rows = statement.query([stored.seq])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        stored.warm(&Hot::read(row)?);
        let state = state(row.get(HOT)?)?;
        stored.place = Place::Done { state, ended: row.get(HOT + 1)? };
        if let Some(outcome) = row.get::<_, Option<u8>>(HOT + 2)? {
            stored.closed = Some(Closed {
                outcome: outcome_of(outcome)?,
                token: LeaseToken::from_uuid(uuid(row, HOT + 3)?),
                worker: WorkerId::new(row.get_ref(HOT + 4)?.as_str()?)?,
            });
        }
        let job = &mut stored.job;
        job.state = state;
        job.completed_at = Some(job.updated_at);
        job.reason = json::<Reason>(row, HOT + 5)?;
        if let Some(bytes) = row.get::<_, Option<Vec<u8>>>(HOT + 7)? {
            let content_type = row.get_ref(HOT + 6)?.as_str_or_null()?;
            job.result = Some(Payload::from_stored(content_type, bytes));
        }
        Ok(true)
    }

    fn read_waiting(&self, stored: &mut Stored) -> Answer<bool> {
        let priority = i64::from(stored.job.effective_priority().number());
        let place = [stored.lane, priority, stored.first_at, stored.seq];
        let mut statement = self.statement(include_str!("sql/get_waiting.sql"))?;
        let read = |row: &SqlRow<'_>| Ok((Hot::read(row)?, row.get::<_, i64>(HOT)?, row.get::<_, i64>(HOT + 1)?));
        let mut found = statement.query_row(place, read).optional()?;
        if found.is_none() {
            let mut statement = self.statement(include_str!("sql/get_waiting_moved.sql"))?;
            found = statement.query_row([stored.seq], read).optional()?;
        }
        let Some((hot, at, kind)) = found else { return Ok(false) };
        stored.warm(&hot);
        stored.place = Place::Waiting { priority: hot.priority, at, kind };
        let job = &mut stored.job;
        job.state = kind_state(kind)?;
        if kind != 0 {
            job.run_at = Some(time(at));
            if time(at) <= self.now {
                job.fall_due().map_err(|error| Fault::broken(error.to_string()))?;
            }
        }
        Ok(true)
    }

    fn read_pending(&self, stored: &mut Stored) -> Answer<bool> {
        let mut statement = self.statement(include_str!("sql/get_pending.sql"))?;
        let mut rows = statement.query([stored.seq])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        stored.warm(&Hot::read(row)?);
        stored.place = Place::Pending;
        stored.job.state = State::Pending;
        stored.job.run_at = row.get::<_, Option<i64>>(HOT)?.map(time);
        stored.waits = Waits { all: row.get(HOT + 1)?, any: row.get(HOT + 2)? };
        Ok(true)
    }

    pub(super) fn read_note(&self, seq: i64, job: &mut JobRecord) -> Answer<()> {
        let mut statement = self.statement(include_str!("sql/get_note.sql"))?;
        let mut rows = statement.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(()) };
        job.failure = json::<FailureRecord>(row, 0)?;
        job.progress = json::<Progress>(row, 1)?;
        job.checkpoint = row.get::<_, Option<Vec<u8>>>(2)?.map(Into::into);
        Ok(())
    }

    /// Applies a decision to a loaded job and writes it; its end must then be told with `conclude`.
    pub(super) fn apply(&mut self, stored: &mut Stored, verdict: &Verdict, outcome: Outcome) -> Answer<State> {
        self.uncover(stored)?;
        let failure = stored.job.failure.clone();
        let token = stored.token.take();
        let closed = stored
            .job
            .apply(verdict, outcome, self.now)
            .map_err(|error| Fault::broken(format!("job {}: {error}", stored.job.id)))?;
        if stored.job.failure != failure {
            self.keep_failure(stored)?;
        }
        if let Some((token, attempt)) = token.zip(closed) {
            if stored.job.state.is_terminal() && attempt.failure == stored.job.failure {
                stored.closed = Some(Closed { outcome, token, worker: attempt.worker });
                self.forget_old_attempts(stored.seq, attempt.lease_version)?;
            } else {
                self.keep_attempt(stored.seq, token, &attempt)?;
            }
        }
        self.put(stored)?;
        Ok(stored.job.state)
    }

    /// Moves what only an ended job's row knows to where it outlasts the row.
    pub(super) fn uncover(&mut self, stored: &mut Stored) -> Answer<()> {
        let Place::Done { state, ended } = stored.place else { return Ok(()) };
        let past = params![ended, stored.seq, state.number(), stored.job.updated_at.as_micros()];
        self.statement(include_str!("sql/add_past_end.sql"))?.execute(past)?;
        if let Some(attempt) = stored.inline_attempt()
            && let Some(closed) = stored.closed.take()
        {
            self.keep_attempt(stored.seq, closed.token, &attempt)?;
        }
        Ok(())
    }

    fn keep_failure(&mut self, stored: &mut Stored) -> Answer<()> {
        stored.flags |= FLAG_NOTE;
        let failure = stored.job.failure.as_ref().map(text);
        self.statement(include_str!("sql/put_failure.sql"))?.execute(params![stored.seq, failure])?;
        Ok(())
    }

    fn keep_attempt(&mut self, seq: i64, token: LeaseToken, attempt: &AttemptRecord) -> Answer<()> {
        self.statement(include_str!("sql/add_attempt.sql"))?.execute(params![
            seq,
            stored_version(attempt.lease_version),
            attempt.number,
            attempt.generation,
            attempt.started_at.as_micros(),
            attempt.ended_at.unwrap_or(self.now).as_micros(),
            attempt.outcome.unwrap_or(Outcome::Lost).number(),
            token.as_uuid().as_bytes(),
            attempt.worker.as_str(),
            attempt.failure.as_ref().map(text),
        ])?;
        self.forget_old_attempts(seq, attempt.lease_version)
    }

    /// Every claim raises the version by one, so the newest hundred attempts are those of the newest hundred versions.
    pub(super) fn forget_old_attempts(&mut self, seq: i64, newest: u64) -> Answer<()> {
        if newest > ATTEMPTS_KEPT as u64 {
            let until = [seq, stored_version(newest - ATTEMPTS_KEPT as u64)];
            self.statement(include_str!("sql/forget_attempts.sql"))?.execute(until)?;
            self.statement(include_str!("sql/forget_logs.sql"))?.execute(until)?;
        }
        Ok(())
    }

    /// Writes a job where it now stands, and takes it from where it stood.
    pub(super) fn put(&mut self, stored: &mut Stored) -> Answer<()> {
        self.leave(stored)?;
        self.enter(stored)
    }

    /// Takes a job from where it stands.
    pub(super) fn leave(&mut self, stored: &Stored) -> Answer<()> {
        self.count(stored.lane, stored.place.counted()?, -1);
        match stored.place {
            Place::Waiting { priority, at, .. } => {
                self.execute(Hold::DeleteWaiting, [stored.lane, priority, at, stored.seq])?;
            }
            Place::Pending => {
                self.statement(include_str!("sql/delete_pending.sql"))?.execute([stored.seq])?;
            }
            Place::Leased => {
                self.execute(Hold::DeleteLeased, [stored.seq])?;
            }
            Place::Done { .. } => {
                self.statement(include_str!("sql/delete_done.sql"))?.execute([stored.seq])?;
            }
        }
        Ok(())
    }

    /// Puts a job where its state says, without taking it from anywhere.
    pub(super) fn enter(&mut self, stored: &mut Stored) -> Answer<()> {
        match stored.job.state {
            State::Scheduled => self.enter_waiting(stored, 0)?,
            State::Delayed => self.enter_waiting(stored, 1)?,
            State::Retrying => self.enter_waiting(stored, 2)?,
            State::Pending => self.enter_pending(stored)?,
            State::Running => self.enter_leased(stored)?,
            State::Completed | State::Failed | State::DeadLetter | State::Cancelled => self.enter_done(stored)?,
        }
        self.count(stored.lane, stored.job.state, 1);
        Ok(())
    }

    fn enter_waiting(&mut self, stored: &mut Stored, kind: i64) -> Answer<()> {
        let job = &stored.job;
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
            Hold::AddWaiting,
            params![
                stored.lane,
                priority,
                at,
                stored.seq,
                kind,
                at != stored.first_at,
                job.deadline.map(Timestamp::as_micros),
                stored.flags,
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
        stored.place = Place::Waiting { priority, at, kind };
        if kind == 0 {
            let queue = stored.job.spec.queue.clone();
            self.hint_scheduled(&queue);
        }
        Ok(())
    }

    fn enter_pending(&mut self, stored: &mut Stored) -> Answer<()> {
        let job = &stored.job;
        self.statement(include_str!("sql/add_pending.sql"))?.execute(params![
            stored.seq,
            stored.lane,
            job.effective_priority().number(),
            job.deadline.map(Timestamp::as_micros),
            stored.flags,
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
            stored.waits.all,
            stored.waits.any,
        ])?;
        stored.place = Place::Pending;
        Ok(())
    }

    fn enter_leased(&mut self, stored: &mut Stored) -> Answer<()> {
        let job = &stored.job;
        let (Some(lease), Some(token)) = (&job.lease, stored.token) else {
            return Err(Fault::broken(format!("job {} runs without a lease", job.id)));
        };
        self.statement(include_str!("sql/add_leased.sql"))?.execute(params![
            stored.seq,
            stored.lane,
            job.effective_priority().number(),
            job.deadline.map(Timestamp::as_micros),
            stored.flags,
            job.attempt,
            job.failures,
            job.lost,
            job.generation,
            stored_version(job.lease_version),
            job.position.as_micros(),
            job.scheduled_at.map(Timestamp::as_micros),
            job.started_at.unwrap_or(job.updated_at).as_micros(),
            lease.expires_at.as_micros(),
            token.as_uuid().as_bytes(),
            lease.worker.as_str(),
        ])?;
        stored.place = Place::Leased;
        Ok(())
    }

    fn enter_done(&mut self, stored: &mut Stored) -> Answer<()> {
        let ended = self.tick();
        let job = &stored.job;
        let closed = stored.closed.as_ref();
        self.execute(
            Hold::AddDone,
            params![
                stored.seq,
                stored.lane,
                job.state.number(),
                ended,
                job.effective_priority().number(),
                job.deadline.map(Timestamp::as_micros),
                stored.flags,
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
                job.result.as_ref().and_then(Payload::stored_content_type),
                job.result.as_ref().map(|result| result.as_bytes().as_ref()),
            ],
        )?;
        stored.place = Place::Done { state: stored.job.state, ended };
        Ok(())
    }
}

impl Stored {
    /// Takes over what every place keeps.
    pub(super) fn warm(&mut self, hot: &Hot) {
        self.flags = hot.flags;
        let job = &mut self.job;
        job.attempt = hot.attempt;
        job.failures = hot.failures;
        job.lost = hot.lost;
        job.generation = hot.generation;
        job.lease_version = u64::try_from(hot.version).unwrap_or_default();
        job.position = time(hot.position);
        job.scheduled_at = hot.scheduled_at.map(time);
        job.started_at = hot.started_at.map(time);
        job.updated_at = time(hot.updated_at);
        job.deadline = hot.deadline.map(time);
    }

    /// The attempt that ended the job, if its row keeps one.
    pub(super) fn inline_attempt(&self) -> Option<AttemptRecord> {
        let closed = self.closed.as_ref()?;
        let lease = LeaseInfo {
            version: self.job.lease_version,
            expires_at: self.job.updated_at,
            worker: closed.worker.clone(),
        };
        let open = JobRecord { lease: Some(lease), ..self.job.clone() }.open_attempt()?;
        let (ended_at, outcome) = (Some(self.job.updated_at), Some(closed.outcome));
        Some(AttemptRecord { ended_at, outcome, failure: self.job.failure.clone(), ..open })
    }
}
