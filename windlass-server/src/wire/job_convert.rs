//! A stored job into JSON and back.

use std::sync::Arc;

use windlass::job::{
    AttemptRecord, CancelAsked as StoredCancel, FailureRecord, Fingerprint, Firing as StoredFiring, LeaseInfo,
    LogLine as StoredLine, Progress as StoredProgress, Reason as StoredReason, RunAt, WorkerId,
};
use windlass::store::Claimed;
use windlass::{JobRecord, Result};

use super::data::{self, Data};
use super::job::{Attempt, CancelAsked, Failure, Firing, HIDDEN, Job, Lease, LogLine, Progress, Reason};
use super::new_job::{Submitted, first_run};
use super::options::with_options;

/// The fault of a dead job, where its words are not hidden: hidden ones would name another.
fn fault(job: &JobRecord) -> Option<Fingerprint> {
    let failure = job.failure.as_ref()?;
    job.fault().filter(|_| failure.code.is_some() || failure.message != HIDDEN)
}

impl From<&JobRecord> for Job {
    fn from(job: &JobRecord) -> Self {
        let payload = data::split(&job.spec.payload);
        let result = job.result.as_ref().map(data::split).unwrap_or_default();
        let (checkpoint, checkpoint_base64) = job.checkpoint.as_ref().map(data::split_bytes).unwrap_or_default();
        Job {
            payload: payload.json,
            payload_base64: payload.base64,
            content_type: payload.content_type,
            payload_hidden: false,
            result: result.json,
            result_base64: result.base64,
            result_content_type: result.content_type,
            checkpoint,
            checkpoint_base64,
            ..Job::without_payloads(job)
        }
    }
}

/// Makes a stored job of its own members and of those that were submitted.
macro_rules! without_payloads {
    ($($(#[$attribute:meta])* pub $member:ident: $kind:ty,)*) => {
        impl Job {
            /// Leaves out what users put into the job.
            pub fn without_payloads(job: &JobRecord) -> Self {
                let submitted = Submitted::of(&job.spec);
                let (submitted_run_at, submitted_delay) = first_run(job.spec.options.run_at);
                Job {
                    id: job.id,
                    job_type: job.spec.job_type.to_string(),
                    state: job.state,
                    simple_state: job.state.simple(),
                    effective_priority: job.effective_priority(),
                    inherited_priority: job.inherited_priority,
                    payload: None,
                    payload_base64: None,
                    content_type: None,
                    payload_hidden: true,
                    attempt: job.attempt,
                    failures: job.failures,
                    lost: job.lost,
                    generation: job.generation,
                    position: job.position,
                    created_at: job.created_at,
                    updated_at: job.updated_at,
                    scheduled_at: job.scheduled_at,
                    started_at: job.started_at,
                    completed_at: job.completed_at,
                    run_at: job.run_at,
                    deadline: job.deadline,
                    lease: job.lease.as_ref().map(Lease::from),
                    lease_version: job.lease_version,
                    cancel: job.cancel.as_ref().map(CancelAsked::from),
                    failure: job.failure.as_ref().map(Failure::from),
                    fingerprint: fault(job).map(|fault| fault.to_string()),
                    result: None,
                    result_base64: None,
                    result_content_type: None,
                    progress: job.progress.as_ref().map(Progress::from),
                    checkpoint: None,
                    checkpoint_base64: None,
                    workflow_id: job.workflow_id,
                    firing: job.firing.as_ref().map(Firing::from),
                    spawned_by: job.spawned_by,
                    submitted_by: job.spec.options.submitted_by.clone(),
                    reason: job.reason.as_ref().map(Reason::from),
                    $($member: submitted.$member,)*
                    submitted_run_at,
                    submitted_delay,
                }
            }
        }
    };
}

with_options!(without_payloads);

impl From<&Claimed> for Job {
    fn from(claimed: &Claimed) -> Self {
        let mut job = Job::from(&claimed.job);
        if let Some(lease) = &mut job.lease {
            lease.token = Some(claimed.lease.key().token);
            lease.expires_in = Some(claimed.expires_in.into());
        }
        job
    }
}

impl Job {
    /// The claimed job and its lease, as the claim's answer gave them.
    pub fn into_claimed(self) -> Result<Claimed> {
        let missing = || windlass::Error::store("read a claimed job", "it comes without the token of its lease");
        let lease = self.lease.as_ref().ok_or_else(missing)?;
        let (token, expires_in) = (lease.token.ok_or_else(missing)?, lease.expires_in.unwrap_or_default().0);
        let job = JobRecord::try_from(self)?;
        let lease = windlass::job::Lease::granted(&job, token);
        Ok(Claimed { job, lease, expires_in })
    }
}

impl TryFrom<Job> for JobRecord {
    type Error = windlass::Error;

    fn try_from(mut job: Job) -> Result<Self> {
        let submitted = job.take_submitted();
        let payload = Data { json: job.payload, base64: job.payload_base64, content_type: job.content_type };
        let payload = data::restore("payload", payload)?.unwrap_or_default();
        let run_at = match (job.submitted_run_at, job.submitted_delay) {
            (Some(at), _) => Some(RunAt::At(at)),
            (None, delay) => delay.map(|delay| RunAt::In(delay.0)),
        };
        let mut spec = submitted.stored(&job.job_type, payload, run_at)?;
        spec.options.submitted_by = job.submitted_by;
        let spec = Arc::new(spec);
        let result = Data { json: job.result, base64: job.result_base64, content_type: job.result_content_type };
        let mut record = JobRecord::submitted(job.id, spec, job.created_at);
        record.state = job.state;
        record.attempt = job.attempt;
        record.failures = job.failures;
        record.lost = job.lost;
        record.generation = job.generation;
        record.position = job.position;
        record.inherited_priority = job.inherited_priority;
        record.updated_at = job.updated_at;
        record.scheduled_at = job.scheduled_at;
        record.started_at = job.started_at;
        record.completed_at = job.completed_at;
        record.run_at = job.run_at;
        record.deadline = job.deadline;
        record.lease = job.lease.map(LeaseInfo::try_from).transpose()?;
        record.lease_version = job.lease_version;
        record.cancel = job.cancel.map(StoredCancel::from);
        record.failure = job.failure.map(FailureRecord::from);
        record.result = data::restore("result", result)?;
        record.progress =
            job.progress.map(|progress| StoredProgress { fraction: progress.fraction, message: progress.message });
        record.checkpoint = data::join_bytes("checkpoint", job.checkpoint, job.checkpoint_base64)?;
        record.workflow_id = job.workflow_id;
        record.firing = job.firing.map(StoredFiring::from);
        record.spawned_by = job.spawned_by;
        record.reason = job.reason.map(StoredReason::from);
        Ok(record)
    }
}

impl From<&LeaseInfo> for Lease {
    fn from(lease: &LeaseInfo) -> Self {
        let (version, expires_at) = (lease.version, lease.expires_at);
        Lease { token: None, version, expires_at, expires_in: None, worker: lease.worker.to_string() }
    }
}

impl TryFrom<Lease> for LeaseInfo {
    type Error = windlass::Error;

    fn try_from(lease: Lease) -> Result<Self> {
        let (version, expires_at) = (lease.version, lease.expires_at);
        Ok(LeaseInfo::new(version, expires_at, WorkerId::new(lease.worker)?))
    }
}

impl TryFrom<Attempt> for AttemptRecord {
    type Error = windlass::Error;

    fn try_from(attempt: Attempt) -> Result<Self> {
        let worker = WorkerId::new(attempt.worker)?;
        let mut record =
            AttemptRecord::new(attempt.id, attempt.number, attempt.lease_version, worker, attempt.started_at);
        record.previous = attempt.previous_attempt_id;
        record.generation = attempt.generation;
        record.ended_at = attempt.ended_at;
        record.outcome = attempt.outcome;
        record.failure = attempt.failure.map(FailureRecord::from);
        Ok(record)
    }
}

impl From<&AttemptRecord> for Attempt {
    fn from(attempt: &AttemptRecord) -> Self {
        Attempt {
            id: attempt.id,
            previous_attempt_id: attempt.previous,
            number: attempt.number,
            generation: attempt.generation,
            lease_version: attempt.lease_version,
            worker: attempt.worker.to_string(),
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            outcome: attempt.outcome,
            failure: attempt.failure.as_ref().map(Failure::from),
        }
    }
}

/// Two structs with the same members: each from the other. What is stored is made with some of them, and given the others.
macro_rules! same_members {
    ($wire:ty, $stored:ty { $($member:ident),* }, $made:expr) => {
        impl From<&$stored> for $wire {
            fn from(stored: &$stored) -> Self {
                Self { $($member: stored.$member.clone()),* }
            }
        }

        impl From<$wire> for $stored {
            fn from(wire: $wire) -> Self {
                let made: fn(&$wire) -> $stored = $made;
                let mut stored = made(&wire);
                $(stored.$member = wire.$member;)*
                stored
            }
        }
    };
}

same_members!(CancelAsked, StoredCancel { by, message, at }, |wire| StoredCancel::new(None, "", wire.at));
same_members!(Failure, FailureRecord { category, code, message, causes, at }, |wire| {
    FailureRecord::new(wire.category, "", wire.at)
});
same_members!(Firing, StoredFiring { schedule, slot }, |wire| StoredFiring::new("", wire.slot));
same_members!(Reason, StoredReason { kind, by, message, cause }, |wire| StoredReason::of(wire.kind));
impl From<&StoredProgress> for Progress {
    fn from(progress: &StoredProgress) -> Self {
        Progress { fraction: progress.fraction, message: progress.message.clone() }
    }
}

impl From<&StoredLine> for LogLine {
    fn from(line: &StoredLine) -> Self {
        LogLine { attempt_id: line.attempt, at: line.at, text: line.text.clone() }
    }
}

impl From<LogLine> for StoredLine {
    fn from(line: LogLine) -> Self {
        StoredLine::new(line.attempt_id, line.at, line.text)
    }
}
