//! Jobs as rows, and back. What a row cannot say is said once, here: a job that waited for a time that has come is
//! SCHEDULED from that very moment (S4), and a SCHEDULED job's times all are its position.

use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Inner;
use super::driver_row::Row;
use super::fault::Fault;
use super::lanes::{Lane, Lanes};
use crate::error::Error;
use crate::job::{
    AttemptId, AttemptRecord, CancelAsked, Category, Damage, Dependency, Failure, FailureRecord, Firing, JobId,
    JobOptions, JobRecord, JobSpec, LeaseInfo, LeaseToken, Outcome, Payload, Priority, State, WorkerId, WorkflowId,
};
use crate::store::rules::Entry;
use crate::time::Timestamp;
use crate::workflow::graph::Waits;

/// A job as it is stored.
#[derive(Clone, Debug)]
pub(super) struct JobRow {
    pub(super) entry: Entry,
    pub(super) note: Note,
}

/// What only this store knows of a job.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) lane: Lane,
    /// Whether its end has consequences, so that only the slow path may write it.
    pub(super) slow: bool,
    /// The lease under which a COMPLETED job ended, and its holder: that attempt has no row of its own.
    pub(super) completed_by: Option<(LeaseToken, WorkerId)>,
    /// Where its lease counts, in a controlled queue.
    pub(super) strand: Option<i32>,
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

pub(super) fn failure_record(text: Option<&str>, at: Option<i64>) -> serde_json::Result<Option<FailureRecord>> {
    let Some(text) = text else { return Ok(None) };
    let FailureText { category, code, message, causes } = serde_json::from_str(text)?;
    Ok(Some(FailureRecord { category, code, message, causes, at: time(at.unwrap_or_default()) }))
}

/// A value kept as JSON; null for none.
fn json_option<T: DeserializeOwned>(text: Option<&str>) -> serde_json::Result<Option<T>> {
    text.map(serde_json::from_str).transpose()
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

/// Declares [`JobColumns`]: a column of the same name for each field.
macro_rules! job_columns {
    ($($name:ident),* $(,)?) => {
        /// Where the columns that all readers of jobs select are in an answer. They are looked for once: a name is
        /// compared with one column after the other, which for each value of each job took a fifth of a claimer's time.
        pub(super) struct JobColumns {
            $(pub(super) $name: usize,)*
        }

        impl JobColumns {
            pub(super) fn of(row: &Row) -> Self {
                JobColumns { $($name: row.column(stringify!($name)),)* }
            }
        }
    };
}

job_columns! {
    seq, id, lane, priority, inherited, created_at, deadline, content_type, payload, options, depends_on, workflow,
    schedule, slot, spawned_by, progress, checkpoint, version, attempt, failures, lost, generation, scheduled_at,
    started_at, failed_at, failure, expires_at,
}

/// What a job was submitted with, as far as it can be read.
fn spec(row: &Row, columns: &JobColumns, lanes: &Lanes, damage: &mut Damage) -> Result<JobSpec, Fault> {
    let (queue, job_type) = lanes.name(row.get(columns.lane)).ok_or_else(|| corrupt("a lane without a name"))?;
    let payload: &[u8] = row.get(columns.payload);
    let payload = Payload::from_stored(row.get(columns.content_type), Bytes::copy_from_slice(payload));
    let depends_on: Option<Vec<Dependency>> =
        damage.or_default("dependencies", json_option(row.get(columns.depends_on)));
    let priority = damage.or_default("priority", priority(row.get(columns.priority)));
    let options = damage.or_default("options", options(row.get(columns.options)));
    Ok(JobSpec::from_stored(job_type, queue, payload, priority, depends_on.unwrap_or_default(), options))
}

/// Reads options; those of a plain job are the same two characters.
fn options(text: &str) -> serde_json::Result<JobOptions> {
    if text == "{}" { Ok(JobOptions::default()) } else { serde_json::from_str(text) }
}

fn priority(number: i16) -> Result<Priority, String> {
    let known = u8::try_from(number).ok().and_then(Priority::from_number);
    known.ok_or_else(|| format!("{number} is no priority"))
}

fn state(number: i16) -> Result<State, Fault> {
    u8::try_from(number).ok().and_then(State::from_number).ok_or_else(|| corrupt("a state that is none"))
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

pub(super) fn corrupt(what: &str) -> Fault {
    Fault::Refused(Error::store("read a stored job", format!("the database holds {what}")))
}

fn firing(row: &Row, columns: &JobColumns) -> Option<Firing> {
    let schedule: Option<String> = row.get(columns.schedule);
    schedule
        .map(|schedule| Firing { schedule, slot: time(row.get::<_, Option<i64>>(columns.slot).unwrap_or_default()) })
}

/// What all readers of a job have in common; the rest is filled in by them.
fn skeleton(row: &Row, columns: &JobColumns, lanes: &Lanes) -> Result<JobRecord, Fault> {
    let created_at = time(row.get(columns.created_at));
    let scheduled_at = times(row.get(columns.scheduled_at));
    let progress: Option<&str> = row.get(columns.progress);
    let checkpoint: Option<&[u8]> = row.get(columns.checkpoint);
    let mut damage = Damage::default();
    let spec = spec(row, columns, lanes, &mut damage)?;
    let inherited = row.get::<_, Option<i16>>(columns.inherited).map(priority).transpose();
    let inherited_priority = damage.or_default("inherited priority", inherited);
    let failure = failure_record(row.get(columns.failure), row.get(columns.failed_at));
    let failure = damage.or_default("failure", failure);
    let progress = damage.or_default("progress", json_option(progress));
    Ok(JobRecord {
        id: JobId::from_uuid(row.get(columns.id)),
        spec: Arc::new(spec.with_damage(damage)),
        state: State::Running,
        attempt: count(row.get(columns.attempt)),
        failures: count(row.get(columns.failures)),
        lost: count(row.get(columns.lost)),
        generation: count(row.get(columns.generation)),
        position: scheduled_at.unwrap_or(created_at),
        inherited_priority,
        created_at,
        updated_at: created_at,
        scheduled_at,
        started_at: times(row.get(columns.started_at)),
        completed_at: None,
        run_at: None,
        deadline: times(row.get(columns.deadline)),
        lease: None,
        lease_version: u64::try_from(row.get::<_, i64>(columns.version)).unwrap_or_default(),
        cancel: None,
        failure,
        result: None,
        progress,
        checkpoint: checkpoint.map(Bytes::copy_from_slice),
        workflow_id: row.get::<_, Option<Uuid>>(columns.workflow).map(WorkflowId::from_uuid),
        firing: firing(row, columns),
        spawned_by: row.get::<_, Option<Uuid>>(columns.spawned_by).map(JobId::from_uuid),
        reason: None,
    })
}

fn lease(row: &Row, columns: &JobColumns, version: u64) -> Result<LeaseInfo, Fault> {
    let worker = WorkerId::new(row.get::<_, &str>("worker"))?;
    Ok(LeaseInfo { version, expires_at: time(row.get(columns.expires_at)), worker })
}

/// A job that a claim has just taken, with its sequence.
pub(super) fn claimed(
    row: &Row,
    columns: &JobColumns,
    lanes: &Lanes,
    worker: &WorkerId,
) -> Result<(i64, JobRecord), Fault> {
    let mut job = skeleton(row, columns, lanes)?;
    job.updated_at = job.started_at.unwrap_or(job.created_at);
    let (version, expires_at) = (job.lease_version, time(row.get(columns.expires_at)));
    job.lease = Some(LeaseInfo { version, expires_at, worker: worker.clone() });
    Ok((row.get(columns.seq), job))
}

/// A row of the view `record`.
pub(super) fn job_row(row: &Row, columns: &JobColumns, store: &Inner, now: Timestamp) -> Result<JobRow, Fault> {
    let number: Option<i16> = row.get("state");
    let state = state(number.ok_or_else(|| corrupt("a job without a state"))?)?;
    let mut job = skeleton(row, columns, &store.lanes)?;
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
            job.lease = Some(lease(row, columns, job.lease_version)?);
            let mut damage = Damage::default();
            // That somebody asked is known; who and why is not.
            job.cancel = json_option(row.get("cancel")).unwrap_or_else(|problem| {
                damage.note("request to stop", problem);
                Some(CancelAsked::new(None, "", job.created_at))
            });
            job.add_damage(damage);
        }
        State::Completed | State::Failed | State::DeadLetter | State::Cancelled => {
            let at = time(row.get("completed_at"));
            (job.completed_at, job.updated_at) = (Some(at), at);
            let mut damage = Damage::default();
            job.reason = damage.or_default("reason", json_option(row.get("reason")));
            job.add_damage(damage);
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
    let sequence = row.get(columns.seq);
    let token: Option<Uuid> = row.get("token");
    let token = token.map(|stored| store.tokens().token(sequence, stored));
    let worker: Option<&str> = row.get("worker");
    let worker = worker.map(WorkerId::new).transpose()?;
    let completed_by = token.zip(worker).filter(|_| state == State::Completed);
    let depth = u32::try_from(row.get::<_, i16>("depth")).unwrap_or(1);
    Ok(JobRow {
        entry: Entry { sequence, job, token: token.filter(|_| state == State::Running), waits, depth },
        note: Note { lane: row.get(columns.lane), slow: row.get("slow"), completed_by, strand: row.get("strand") },
    })
}

impl JobRow {
    /// The attempt that a COMPLETED job ended with: it has no row of its own.
    pub(super) fn last_attempt(&self) -> Option<AttemptRecord> {
        let job = &self.entry.job;
        let (_, worker) = self.note.completed_by.as_ref()?;
        let version = job.lease_version;
        Some(AttemptRecord {
            id: AttemptId::of(job.id, version),
            previous: previous(job.id, version),
            number: job.attempt,
            generation: job.generation,
            lease_version: version,
            worker: worker.clone(),
            started_at: job.started_at?,
            ended_at: job.completed_at,
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
        // One that cannot be read is found by `check`; the others must be shown.
        failure: failure_record(row.get("failure"), Some(ended_at)).unwrap_or_default(),
    })
}

/// A duration in microseconds, no longer than all of time.
pub(super) fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).min(Timestamp::MAX.as_micros())
}
