//! A job as store and model both show it, and the sentence that says where they differ.

use std::fmt;

use super::history::{QUEUES, TYPES};
use super::reference::{ModelJob, Name};
use crate::job::{Category, JobId, JobRecord, ReasonKind, State};
use crate::time::Timestamp;

/// Everything about a job that the contract fixes.
#[derive(PartialEq, Debug)]
pub(super) struct Observed<'a> {
    queue: &'a str,
    job_type: &'a str,
    state: State,
    attempt: u32,
    failures: u32,
    lost: u32,
    generation: u32,
    /// Where it has one: while it is SCHEDULED or RUNNING.
    position: Option<Timestamp>,
    priority: u8,
    effective_priority: u8,
    created_at: Timestamp,
    updated_at: Timestamp,
    scheduled_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    run_at: Option<Timestamp>,
    deadline: Option<Timestamp>,
    /// Version, end and worker.
    lease: Option<(u64, Timestamp, u8)>,
    lease_version: u64,
    cancel: Option<(&'a str, Timestamp)>,
    failure: Option<(Category, Option<&'a str>, Timestamp)>,
    result: Option<u8>,
    progress: Option<u8>,
    checkpoint: Option<u8>,
    tag: Option<&'a str>,
    in_workflow: bool,
    spawned_by: Option<Name>,
    reason: Option<(ReasonKind, Option<&'a str>, Option<Name>)>,
}

/// Stands for a number that a store should not have come up with.
const STRANGE: u8 = u8::MAX;

impl<'a> Observed<'a> {
    /// The job as the store shows it; `name` finds the model's name of an id.
    pub(super) fn of_record(job: &'a JobRecord, name: impl Fn(JobId) -> Option<Name>) -> Self {
        let named = |id: JobId| name(id).unwrap_or(Name::MAX);
        let placed = matches!(job.state, State::Scheduled | State::Running);
        let lease =
            |lease: &crate::job::LeaseInfo| (lease.version, lease.expires_at, worker_number(lease.worker.as_str()));
        let failure = job.failure.as_ref();
        let reason = job.reason.as_ref();
        let progress = job.progress.as_ref();
        Observed {
            queue: job.spec.queue.as_str(),
            job_type: job.spec.job_type.as_str(),
            state: job.state,
            attempt: job.attempt,
            failures: job.failures,
            lost: job.lost,
            generation: job.generation,
            position: Some(job.position).filter(|_| placed),
            priority: job.spec.priority.number(),
            effective_priority: job.effective_priority().number(),
            created_at: job.created_at,
            updated_at: job.updated_at,
            scheduled_at: job.scheduled_at,
            started_at: job.started_at,
            completed_at: job.completed_at,
            run_at: job.run_at,
            deadline: job.deadline,
            lease: job.lease.as_ref().map(lease),
            lease_version: job.lease_version,
            cancel: job.cancel.as_ref().map(|asked| (asked.by.as_deref().unwrap_or(""), asked.at)),
            failure: failure.map(|failure| (failure.category, failure.code.as_deref(), failure.at)),
            result: job.result.as_ref().map(|result| result.decode().unwrap_or(STRANGE)),
            progress: progress.map(|progress| (progress.fraction * 10.0).round() as u8),
            checkpoint: job.checkpoint.as_ref().map(|bytes| bytes.first().copied().unwrap_or(STRANGE)),
            tag: job.spec.options.tags.get("tag").map(String::as_str),
            in_workflow: job.workflow_id.is_some(),
            spawned_by: job.spawned_by.map(named),
            reason: reason.map(|reason| (reason.kind, reason.by.as_deref(), reason.cause.map(named))),
        }
    }

    /// The job as the model has it.
    pub(super) fn of_model(job: &'a ModelJob) -> Self {
        let placed = matches!(job.state, State::Scheduled | State::Running);
        let reason = job.reason.as_ref();
        Observed {
            queue: QUEUES[usize::from(job.plan.draft.queue)],
            job_type: TYPES[usize::from(job.plan.draft.job_type)],
            state: job.state,
            attempt: job.attempt,
            failures: job.failures,
            lost: job.lost,
            generation: job.generation,
            position: Some(job.position).filter(|_| placed),
            priority: job.priority,
            effective_priority: job.effective(),
            created_at: job.created_at,
            updated_at: job.updated_at,
            scheduled_at: job.scheduled_at,
            started_at: job.started_at,
            completed_at: job.completed_at,
            run_at: job.run_at,
            deadline: job.deadline,
            lease: job.lease.map(|lease| (job.version, lease.expires_at, lease.worker)),
            lease_version: job.version,
            cancel: job.cancel.as_ref().map(|(by, at)| (by.as_str(), *at)),
            failure: job.failure,
            result: job.result,
            progress: job.progress,
            checkpoint: job.checkpoint,
            tag: job.tag.map(tag_text),
            in_workflow: job.workflow.is_some(),
            spawned_by: job.spawned_by,
            reason: reason.map(|reason| (reason.kind, reason.by.as_deref(), reason.cause)),
        }
    }
}

/// The text of a tag's number.
pub(super) fn tag_text(tag: u8) -> &'static str {
    ["red", "green", "blue"][usize::from(tag)]
}

/// The name of a worker.
pub(super) fn worker_name(number: u8) -> String {
    format!("w{number}")
}

fn worker_number(name: &str) -> u8 {
    name.strip_prefix('w').and_then(|number| number.parse().ok()).unwrap_or(STRANGE)
}

/// Says what differs, line by line.
pub(super) fn differ<T: fmt::Debug + PartialEq>(what: &str, store: &T, model: &T) -> Result<(), String> {
    if store == model {
        return Ok(());
    }
    let (store, model) = (format!("{store:#?}"), format!("{model:#?}"));
    let mut said = format!("{what} differs:");
    if store.lines().count() == model.lines().count() {
        for (store, model) in store.lines().zip(model.lines()).filter(|(store, model)| store != model) {
            said += &format!("\n    store {}\n    model {}", store.trim(), model.trim());
        }
    } else {
        said += &format!("\n    store {store}\n    model {model}");
    }
    Err(said)
}
