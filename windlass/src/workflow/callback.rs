//! The webhook job of a job with a callback URL (rules N7 and X3).

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::job::{
    Dependency, DependencyKind, DependsOn, Job, JobId, JobOptions, JobRecord, JobSpec, JobType, Payload, Priority,
    QueueName, RetryPolicy, Timeouts,
};

/// The job that tells a callback URL how another job ended.
///
/// It depends on that job, so retention keeps the job, its result and its URL until the URL has been told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Webhook {
    /// The job that ended.
    pub job_id: JobId,
}

// It is the system's: the compiler need not name it to those who look for a job of their own.
#[diagnostic::do_not_recommend]
impl Job for Webhook {
    const TYPE: &'static str = "windlass.webhook";
    const QUEUE: &'static str = "windlass.webhooks";
}

/// The webhook job that is stored in the transaction that makes `job` terminal, if it has a callback URL.
pub fn webhook_of(job: &JobRecord) -> Option<JobSpec> {
    job.spec.options.callback_url.as_ref()?;
    let retry = RetryPolicy {
        initial: Duration::from_secs(5),
        max: Duration::from_secs(12 * 3600),
        strategy: crate::job::Backoff::Exponential { multiplier: 3.0 },
        max_attempts: 14,
        ..RetryPolicy::standard()
    };
    let timeouts = Timeouts { execution: Some(Duration::from_secs(30)), ..Timeouts::default() };
    let options = JobOptions {
        retry,
        timeouts,
        own_priority_only: true,
        correlation_id: job.spec.options.correlation_id.clone(),
        trace_context: job.spec.options.trace_context.clone(),
        ..JobOptions::default()
    };
    let on = Dependency { on: DependsOn::Job(job.id), kind: DependencyKind::AfterAll };
    Some(JobSpec::from_stored(
        JobType::new(Webhook::TYPE).expect("the name is plain"),
        QueueName::new(Webhook::QUEUE).expect("the name is plain"),
        Payload::json(&Webhook { job_id: job.id }).expect("an id is JSON"),
        Priority::Normal,
        vec![on],
        options,
    ))
}
