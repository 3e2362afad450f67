//! Jobs as rows, and back. What a row cannot say is said once, here: a job that waited for a time that has come is
//! SCHEDULED from that very moment (S4), and a SCHEDULED job's times all are its position.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::fault::Fault;
use super::lanes::{Lane, Lanes};
use super::row::Row;
use super::tokens;
use crate::error::Error;
use crate::job::{
    AttemptId, AttemptRecord, Category, Dependency, Failure, FailureRecord, Firing, JobId, JobOptions, JobRecord,
    JobSpec, LeaseInfo, LeaseToken, Outcome, Payload, Priority, State, WorkerId, WorkflowId,
};
use crate::time::Timestamp;
use crate::workflow::graph::Waits;

/// A job and what only the store knows of it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) seq: i64,
    pub(super) lane: Lane,
    pub(super) job: JobRecord,
    /// The secret of the current lease, or of the one under which it ended.
    pub(super) token: Option<LeaseToken>,
    /// Who held that lease.
    pub(super) worker: Option<WorkerId>,
    /// Whether its end has consequences, so that only the slow path may write it.
    pub(super) slow: bool,
    pub(super) waits: Waits,
    pub(super) depth: u32,
}

/// A failure without its time, which is another column.
#[derive(Serialize, Deserialize)]
struct FailureText {
    category: Category,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    message: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    causes: Vec<String>,
}

/// A failure as text, without its time.
pub(super) fn failure_text(failure: &Failure) -> String {
    failure_record_text(&failure.recorded(Timestamp::EPOCH))
}

pub(super) fn failure_record_text(failure: &FailureRecord) -> String {
    let FailureRecord { category, code, message, causes, .. } = failure.clone();
    json(&FailureText { category, code, message, causes })
}

fn failure_record(text: Option<&str>, at: Option<i64>) -> Result<Option<FailureRecord>, Fault> {
    let Some(text) = text else { return Ok(None) };
    let FailureText { category, code, message, causes } = serde_json::from_str(text)?;
    Ok(Some(FailureRecord { category, code, message, causes, at: time(at.unwrap_or_default()) }))
}

/// JSON text of one of our own types.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("our own types are JSON")
}

pub(super) fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn times(micros: Option<i64>) -> Option<Timestamp> {
    micros.map(Timestamp::from_micros)
}

/// Declares [`Places`]: a column of the same name for each field.
macro_rules! places {
    ($($name:ident),* $(,)?) => {
        /// Where the columns that all readers of jobs select are in an answer. They are looked for once: a name is
        /// compared with one column after the other, which for each value of each job took a fifth of a claimer's time.
        pub(super) struct Places {
            $(pub(super) $name: usize,)*
        }

        impl Places {
            pub(super) fn of(row: &Row) -> Self {
                Places { $($name: row.place(stringify!($name)),)* }
            }
        }
    };
}

places! {
    seq, id, lane, priority, inherited, created_at, deadline, content_type, payload, options, depends_on, workflow,
    schedule, slot, spawned_by, progress, checkpoint, version, attempt, failures, lost, generation, scheduled_at,
    started_at, failed_at, failure, expires_at,
}

/// What a job was submitted with.
fn spec(row: &Row, at: &Places, lanes: &Lanes) -> Result<JobSpec, Fault> {
    let (queue, job_type) = lanes.name(row.get(at.lane)).ok_or_else(|| corrupt("a lane without a name"))?;
    let payload: &[u8] = row.get(at.payload);
    let payload = Payload::from_stored(row.get(at.content_type), Bytes::copy_from_slice(payload));
    let depends_on: Vec<Dependency> = match row.get::<_, Option<&str>>(at.depends_on) {
        None => Vec::new(),
        Some(text) => serde_json::from_str(text)?,
    };
    let priority = priority(row.get(at.priority))?;
    Ok(JobSpec::from_stored(job_type, queue, payload, priority, depends_on, options(row.get(at.options))?))
}

/// Reads options; those of a plain job are the same two characters.
fn options(text: &str) -> Result<JobOptions, Fault> {
    if text == "{}" { Ok(JobOptions::default()) } else { Ok(serde_json::from_str(text)?) }
}

fn priority(number: i16) -> Result<Priority, Fault> {
    let known = u8::try_from(number).ok().and_then(Priority::from_number);
    known.ok_or_else(|| corrupt("a priority that is none"))
}

fn state(number: i16) -> Result<State, Fault> {
    u8::try_from(number).ok().and_then(State::from_number).ok_or_else(|| corrupt("a state that is none"))
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

pub(super) fn corrupt(what: &str) -> Fault {
    Fault::Said(Error::store("read a stored job", format!("the database holds {what}")))
}

fn firing(row: &Row, at: &Places) -> Option<Firing> {
    let schedule: Option<String> = row.get(at.schedule);
    schedule.map(|schedule| Firing { schedule, slot: time(row.get::<_, Option<i64>>(at.slot).unwrap_or_default()) })
}

/// What all readers of a job have in common; the rest is filled in by them.
fn skeleton(row: &Row, at: &Places, lanes: &Lanes) -> Result<JobRecord, Fault> {
    let created_at = time(row.get(at.created_at));
    let scheduled_at = times(row.get(at.scheduled_at));
    let progress: Option<&str> = row.get(at.progress);
    let checkpoint: Option<&[u8]> = row.get(at.checkpoint);
    Ok(JobRecord {
        id: JobId::from_uuid(row.get(at.id)),
        spec: Arc::new(spec(row, at, lanes)?),
        state: State::Running,
        attempt: count(row.get(at.attempt)),
        failures: count(row.get(at.failures)),
        lost: count(row.get(at.lost)),
        generation: count(row.get(at.generation)),
        position: scheduled_at.unwrap_or(created_at),
        inherited_priority: row.get::<_, Option<i16>>(at.inherited).map(priority).transpose()?,
        created_at,
        updated_at: created_at,
        scheduled_at,
        started_at: times(row.get(at.started_at)),
        completed_at: None,
        run_at: None,
        deadline: times(row.get(at.deadline)),
        lease: None,
        lease_version: u64::try_from(row.get::<_, i64>(at.version)).unwrap_or_default(),
        cancel: None,
        failure: failure_record(row.get(at.failure), row.get(at.failed_at))?,
        result: None,
        progress: progress.map(serde_json::from_str).transpose()?,
        checkpoint: checkpoint.map(Bytes::copy_from_slice),
        workflow_id: row.get::<_, Option<Uuid>>(at.workflow).map(WorkflowId::from_uuid),
        firing: firing(row, at),
        spawned_by: row.get::<_, Option<Uuid>>(at.spawned_by).map(JobId::from_uuid),
        reason: None,
    })
}

fn lease(row: &Row, at: &Places, version: u64) -> Result<LeaseInfo, Fault> {
    let worker = WorkerId::new(row.get::<_, &str>("worker"))?;
    Ok(LeaseInfo { version, expires_at: time(row.get(at.expires_at)), worker })
}

/// A job that a claim has just taken, with its sequence.
pub(super) fn claimed(row: &Row, at: &Places, lanes: &Lanes, worker: &WorkerId) -> Result<(i64, JobRecord), Fault> {
    let mut job = skeleton(row, at, lanes)?;
    job.updated_at = job.started_at.unwrap_or(job.created_at);
    let (version, expires_at) = (job.lease_version, time(row.get(at.expires_at)));
    job.lease = Some(LeaseInfo { version, expires_at, worker: worker.clone() });
    Ok((row.get(at.seq), job))
}

/// A row of the view `record`.
pub(super) fn entry(row: &Row, at: &Places, lanes: &Lanes, now: Timestamp) -> Result<Entry, Fault> {
    let number: Option<i16> = row.get("state");
    let state = state(number.ok_or_else(|| corrupt("a job without a state"))?)?;
    let mut job = skeleton(row, at, lanes)?;
    job.state = state;
    match state {
        State::Pending => {
            job.updated_at = time(row.get("updated_at"));
            job.run_at = times(row.get("run_at"));
        }
        State::Scheduled => {
            let at = time(row.get("due"));
            (job.position, job.scheduled_at, job.updated_at) = (at, Some(at), at);
        }
        State::Delayed | State::Retrying => {
            job.updated_at = time(row.get("updated_at"));
            let run_at = time(row.get("due"));
            job.run_at = Some(run_at);
            if run_at <= now {
                job.fall_due().map_err(|_| corrupt("a due job that cannot be due"))?;
            }
        }
        State::Running => {
            job.updated_at = job.started_at.unwrap_or(job.created_at);
            job.lease = Some(lease(row, at, job.lease_version)?);
            let cancel: Option<&str> = row.get("cancel");
            job.cancel = cancel.map(serde_json::from_str).transpose()?;
        }
        State::Completed | State::Failed | State::DeadLetter | State::Cancelled => {
            let at = time(row.get("completed_at"));
            (job.completed_at, job.updated_at) = (Some(at), at);
            let reason: Option<&str> = row.get("reason");
            job.reason = reason.map(serde_json::from_str).transpose()?;
            let result: Option<&[u8]> = row.get("result");
            let content_type: Option<&str> = row.get("result_type");
            job.result = result.map(|bytes| Payload::from_stored(content_type, Bytes::copy_from_slice(bytes)));
        }
    }
    let waits_all: Option<i32> = row.get("waits_all");
    let waits = Waits {
        all: waits_all.map(count).unwrap_or_default(),
        any: row.get::<_, Option<bool>>("waits_any").unwrap_or_default(),
    };
    let worker: Option<&str> = row.get("worker");
    let seq = row.get(at.seq);
    Ok(Entry {
        seq,
        lane: row.get(at.lane),
        job,
        token: row.get::<_, Option<Uuid>>("token").map(|stored| tokens::of(seq, stored)),
        worker: worker.map(WorkerId::new).transpose()?,
        slow: row.get("slow"),
        waits,
        depth: u32::try_from(row.get::<_, i16>("depth")).unwrap_or(1),
    })
}

impl Entry {
    /// The attempt that a COMPLETED job ended with: it has no row of its own.
    pub(super) fn last_attempt(&self) -> Option<AttemptRecord> {
        if self.job.state != State::Completed {
            return None;
        }
        let version = self.job.lease_version;
        Some(AttemptRecord {
            id: AttemptId::of(self.job.id, version),
            previous: previous(self.job.id, version),
            number: self.job.attempt,
            generation: self.job.generation,
            lease_version: version,
            worker: self.worker.clone()?,
            started_at: self.job.started_at?,
            ended_at: self.job.completed_at,
            outcome: Some(Outcome::Completed),
            failure: None,
        })
    }
}

fn previous(job: JobId, version: u64) -> Option<AttemptId> {
    version.checked_sub(1).filter(|version| *version > 0).map(|version| AttemptId::of(job, version))
}

/// A row of the table `attempt`.
pub(super) fn attempt(row: &Row, job: JobId) -> Result<AttemptRecord, Fault> {
    let version = u64::try_from(row.get::<_, i64>("version")).unwrap_or_default();
    let outcome: i16 = row.get("outcome");
    let outcome = u8::try_from(outcome).ok().and_then(Outcome::from_number);
    let ended_at: i64 = row.get("ended_at");
    Ok(AttemptRecord {
        id: AttemptId::of(job, version),
        previous: previous(job, version),
        number: count(row.get("number")),
        generation: count(row.get("generation")),
        lease_version: version,
        worker: WorkerId::new(row.get::<_, &str>("worker"))?,
        started_at: time(row.get("started_at")),
        ended_at: Some(time(ended_at)),
        outcome: Some(outcome.ok_or_else(|| corrupt("an outcome that is none"))?),
        failure: failure_record(row.get("failure"), Some(ended_at))?,
    })
}

/// A duration in microseconds, no longer than all of time.
pub(super) fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).min(Timestamp::MAX.as_micros())
}
