//! A stored job into JSON and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass::store::Claimed;
use windlass::{
    AttemptRecord, CancelAsked as StoredCancel, FailureRecord, Firing as StoredFiring, Idempotency, JobId, JobOptions,
    JobRecord, JobSpec, JobType, LeaseInfo, LogLine as StoredLine, Priority, Progress as StoredProgress, QueueName,
    Reason as StoredReason, Result, RetryPolicy, RunAt, State, Timeouts, Timestamp, TraceContext as Trace,
    WINDOW_DEFAULT, WorkerId,
};

use super::data::{self, Data};
use super::job::{Attempt, CancelAsked, Failure, Firing, Job, Lease, LogLine, Progress, Reason};
use super::new_job::{Dependency, Retry, TraceContext};
use super::{Limit, Span};

impl From<&JobRecord> for Job {
    fn from(job: &JobRecord) -> Self {
        let result = job.result.as_ref().map(data::split).unwrap_or_default();
        let (checkpoint, checkpoint_base64) = job.checkpoint.as_ref().map(data::split_bytes).unwrap_or_default();
        Job {
            state: job.state,
            effective_priority: job.effective_priority(),
            inherited_priority: job.inherited_priority,
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
            result: result.json,
            result_base64: result.base64,
            result_content_type: result.content_type,
            progress: job.progress.as_ref().map(Progress::from),
            checkpoint,
            checkpoint_base64,
            workflow_id: job.workflow_id,
            firing: job.firing.as_ref().map(Firing::from),
            spawned_by: job.spawned_by,
            reason: job.reason.as_ref().map(Reason::from),
            ..submitted(job.id, &job.spec, job.created_at)
        }
    }
}

/// What was submitted, with nothing become of it yet.
fn submitted(id: JobId, spec: &JobSpec, at: Timestamp) -> Job {
    let payload = data::split(&spec.payload);
    let options = &spec.options;
    let idempotency = options.idempotency.as_ref();
    let (submitted_run_at, submitted_delay) = match options.run_at {
        None => (None, None),
        Some(RunAt::At(at)) => (Some(at), None),
        Some(RunAt::In(delay)) => (None, Some(delay.into())),
    };
    Job {
        id,
        job_type: spec.job_type.to_string(),
        queue: spec.queue.to_string(),
        priority: spec.priority,
        effective_priority: spec.priority,
        payload: payload.json,
        payload_base64: payload.base64,
        content_type: payload.content_type,
        max_attempts: options.retry.max_attempts,
        cloned_from: options.cloned_from,
        depends_on: spec.depends_on.iter().map(Dependency::from).collect(),
        own_priority_only: options.own_priority_only,
        tags: options.tags.clone(),
        correlation_id: options.correlation_id.clone(),
        callback_url: options.callback_url.clone(),
        trace_context: options.trace_context.as_ref().map(TraceContext::from),
        idempotency_key: idempotency.map(|idempotency| idempotency.key.clone()),
        idempotency_scope: idempotency.map(|idempotency| idempotency.scope),
        idempotency_window: idempotency.map(|idempotency| Limit(idempotency.window)),
        retry: Retry::from(&options.retry),
        execution_timeout: Limit(options.timeouts.execution),
        visibility_timeout: options.timeouts.visibility.into(),
        lifetime: Limit(options.timeouts.lifetime),
        submitted_run_at,
        submitted_delay,
        ..empty(id, at)
    }
}

fn empty(id: JobId, at: Timestamp) -> Job {
    Job {
        id,
        job_type: String::new(),
        queue: String::new(),
        state: State::Pending,
        priority: Priority::Normal,
        effective_priority: Priority::Normal,
        inherited_priority: None,
        payload: None,
        payload_base64: None,
        content_type: None,
        payload_hidden: false,
        attempt: 0,
        failures: 0,
        max_attempts: 0,
        lost: 0,
        generation: 0,
        position: at,
        created_at: at,
        updated_at: at,
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
        result_base64: None,
        result_content_type: None,
        progress: None,
        checkpoint: None,
        checkpoint_base64: None,
        workflow_id: None,
        firing: None,
        spawned_by: None,
        cloned_from: None,
        reason: None,
        depends_on: Vec::new(),
        own_priority_only: false,
        tags: BTreeMap::new(),
        correlation_id: None,
        callback_url: None,
        trace_context: None,
        idempotency_key: None,
        idempotency_scope: None,
        idempotency_window: None,
        retry: Retry::default(),
        execution_timeout: Limit(None),
        visibility_timeout: Span::default(),
        lifetime: Limit(None),
        submitted_run_at: None,
        submitted_delay: None,
    }
}

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
    /// Leaves out what users put into the job.
    #[must_use]
    pub fn without_payloads(mut self) -> Self {
        let Data { json, base64, content_type } = Data::default();
        (self.payload, self.payload_base64, self.content_type) = (json, base64, content_type);
        (self.result, self.result_base64, self.result_content_type) = (None, None, None);
        (self.checkpoint, self.checkpoint_base64) = (None, None);
        self.payload_hidden = true;
        self
    }

    /// The claimed job and its lease, as the claim's answer gave them.
    pub fn into_claimed(self) -> Result<Claimed> {
        let missing = || windlass::Error::store("read a claimed job", "it comes without the token of its lease");
        let lease = self.lease.as_ref().ok_or_else(missing)?;
        let (token, expires_in) = (lease.token.ok_or_else(missing)?, lease.expires_in.unwrap_or_default().0);
        let job = JobRecord::try_from(self)?;
        let lease = windlass::Lease::granted(&job, token);
        Ok(Claimed { job, lease, expires_in })
    }

    fn options(&mut self) -> Result<JobOptions> {
        let retry = RetryPolicy { max_attempts: self.max_attempts, ..std::mem::take(&mut self.retry).into_policy()? };
        let timeouts = Timeouts {
            execution: self.execution_timeout.0,
            visibility: self.visibility_timeout.0,
            lifetime: self.lifetime.0,
        };
        let run_at = match (self.submitted_run_at, self.submitted_delay) {
            (Some(at), _) => Some(RunAt::At(at)),
            (None, Some(delay)) => Some(RunAt::In(delay.0)),
            (None, None) => None,
        };
        let idempotency = self.idempotency_key.take().map(|key| Idempotency {
            key,
            scope: self.idempotency_scope.unwrap_or_default(),
            window: self.idempotency_window.map_or(Some(WINDOW_DEFAULT), |limit| limit.0),
        });
        Ok(JobOptions {
            run_at,
            retry,
            timeouts,
            idempotency,
            own_priority_only: self.own_priority_only,
            tags: std::mem::take(&mut self.tags),
            correlation_id: self.correlation_id.take(),
            callback_url: self.callback_url.take(),
            trace_context: self.trace_context.take().map(Trace::from),
            cloned_from: self.cloned_from,
        })
    }

    fn spec(&mut self) -> Result<JobSpec> {
        let payload = Data {
            json: self.payload.take(),
            base64: self.payload_base64.take(),
            content_type: self.content_type.take(),
        };
        let depends_on = std::mem::take(&mut self.depends_on).into_iter().map(super::record::stored_dependency);
        Ok(JobSpec::from_stored(
            JobType::new(&self.job_type)?,
            QueueName::new(&self.queue)?,
            data::join("payload", payload)?.unwrap_or_default(),
            self.priority,
            depends_on.collect::<Result<_>>()?,
            self.options()?,
        ))
    }
}

impl TryFrom<Job> for JobRecord {
    type Error = windlass::Error;

    fn try_from(mut job: Job) -> Result<Self> {
        let spec = Arc::new(job.spec()?);
        let result = Data { json: job.result, base64: job.result_base64, content_type: job.result_content_type };
        Ok(JobRecord {
            id: job.id,
            spec,
            state: job.state,
            attempt: job.attempt,
            failures: job.failures,
            lost: job.lost,
            generation: job.generation,
            position: job.position,
            inherited_priority: job.inherited_priority,
            created_at: job.created_at,
            updated_at: job.updated_at,
            scheduled_at: job.scheduled_at,
            started_at: job.started_at,
            completed_at: job.completed_at,
            run_at: job.run_at,
            deadline: job.deadline,
            lease: job.lease.map(LeaseInfo::try_from).transpose()?,
            lease_version: job.lease_version,
            cancel: job.cancel.map(StoredCancel::from),
            failure: job.failure.map(FailureRecord::from),
            result: data::join("result", result)?,
            progress: job
                .progress
                .map(|progress| StoredProgress { fraction: progress.fraction, message: progress.message }),
            checkpoint: data::join_bytes("checkpoint", job.checkpoint, job.checkpoint_base64)?,
            workflow_id: job.workflow_id,
            firing: job.firing.map(StoredFiring::from),
            spawned_by: job.spawned_by,
            reason: job.reason.map(StoredReason::from),
        })
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
        Ok(LeaseInfo { version, expires_at, worker: WorkerId::new(lease.worker)? })
    }
}

impl TryFrom<Attempt> for AttemptRecord {
    type Error = windlass::Error;

    fn try_from(attempt: Attempt) -> Result<Self> {
        Ok(AttemptRecord {
            id: attempt.id,
            previous: attempt.previous_attempt_id,
            number: attempt.number,
            generation: attempt.generation,
            lease_version: attempt.lease_version,
            worker: WorkerId::new(attempt.worker)?,
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            outcome: attempt.outcome,
            failure: attempt.failure.map(FailureRecord::from),
        })
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

/// Two structs with the same members: each from the other.
macro_rules! same_members {
    ($wire:ty, $stored:ty { $($member:ident),* }) => {
        impl From<&$stored> for $wire {
            fn from(stored: &$stored) -> Self {
                Self { $($member: stored.$member.clone()),* }
            }
        }

        impl From<$wire> for $stored {
            fn from(wire: $wire) -> Self {
                Self { $($member: wire.$member),* }
            }
        }
    };
}

same_members!(CancelAsked, StoredCancel { by, message, at });
same_members!(Failure, FailureRecord { category, code, message, causes, at });
same_members!(Firing, StoredFiring { schedule, slot });
same_members!(Reason, StoredReason { kind, by, message, cause });
same_members!(Progress, StoredProgress { fraction, message });

impl From<&StoredLine> for LogLine {
    fn from(line: &StoredLine) -> Self {
        LogLine { attempt_id: line.attempt, at: line.at, text: line.text.clone() }
    }
}

impl From<LogLine> for StoredLine {
    fn from(line: LogLine) -> Self {
        StoredLine { attempt: line.attempt_id, at: line.at, text: line.text }
    }
}
