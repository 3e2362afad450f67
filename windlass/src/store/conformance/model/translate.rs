//! From the numbers of a history to the types a store takes.

use super::history::{ActDraft, Kept, Op, Policy, QUEUES_KEPT, Say, TYPES, TYPES_KEPT};
use super::reference::{Link, Plan, priority, seconds};
use super::world::{Said, queue_name};
use crate::error::Result;
use crate::job::{
    Backoff, Category, Debounce, DependsOn, Failure, Idempotency, Jitter, JobId, JobSpec, JobType, Lease, Limits, Lost,
    NewJob, Payload, Policies, PolicyPatch, Progress, RetentionPatch, RetryPolicy, Settlement, Stale,
};
use crate::store::Save;

/// A planned job, checked.
pub(super) fn spec(plan: &Plan, ids: &[Option<JobId>]) -> Result<JobSpec> {
    let draft = &plan.draft;
    let payload = Payload::json(&draft.payload).expect("a number is JSON");
    let mut job = NewJob::new(TYPES[usize::from(draft.job_type)], payload)
        .queue(queue_name(draft.queue).as_str())
        .priority(priority(draft.priority))
        .retry(policy(&draft.policy))
        .visibility_timeout(seconds(draft.visibility))
        .lifetime(draft.lifetime.map(seconds))
        .execution_timeout(draft.execution.map(seconds))
        .correlation_id(plan.serial.to_string());
    job = match draft.first {
        super::history::First::Now => job,
        super::history::First::In(after) => job.delay(seconds(after.into())),
        super::history::First::At(_) => job.run_at(plan.at),
    };
    if let Some(key) = draft.key {
        let window = key.window.map(|window| seconds(window.into()));
        let (until, on_existing) = (key.until, key.on_existing);
        let debounce = key
            .debounce
            .map(|(quiet, at_most)| Debounce { quiet: seconds(quiet.into()), at_most: seconds(at_most.into()) });
        let plain = Idempotency::new(key.key.to_string(), key.scope, window);
        job = job.with_idempotency(Idempotency { until, on_existing, debounce, ..plain });
    }
    if let Some(key) = draft.flow_key {
        job = job.key(flow_key(key));
    }
    if draft.own_priority_only {
        job = job.own_priority_only();
    }
    if draft.callback {
        job = job.callback_url("https://example.com/told");
    }
    for (link, kind) in &plan.links {
        let on = match *link {
            Link::Job(name) => DependsOn::Job(ids[name].expect("the jobs of earlier steps have ids")),
            Link::Place(place) => DependsOn::Batch(place),
            Link::Nobody => DependsOn::Job(JobId::from_uuid(uuid::Uuid::from_u128(7))),
        };
        job = job.depends_on(on, *kind);
    }
    job.retention(retention(draft.kept)).check(&Limits::default(), &policies())
}

/// What is said for queues and types.
fn policies() -> Policies {
    let patch = |kept: Kept| PolicyPatch { retention: retention(kept), ..PolicyPatch::default() };
    let mut policies = Policies::default();
    for (number, (of_queue, of_type)) in (0..).zip(QUEUES_KEPT.into_iter().zip(TYPES_KEPT)) {
        policies = policies.queue(queue_name(number), patch(of_queue)).job_type(job_type(number), patch(of_type));
    }
    policies
}

fn retention(kept: Kept) -> RetentionPatch {
    let [completed, cancelled, failed, dead_letter] =
        kept.0.map(|end| end.map(|kept| kept.map(|kept| seconds(kept.into()))));
    RetentionPatch { completed, cancelled, failed, dead_letter }
}

fn policy(policy: &Policy) -> RetryPolicy {
    let mut retry_on = vec![Category::Temporary];
    retry_on.extend(policy.retry_timeout.then_some(Category::Timeout));
    retry_on.extend(policy.retry_system.then_some(Category::System));
    RetryPolicy {
        strategy: match policy.growth {
            0 => Backoff::Constant,
            1 => Backoff::Linear,
            multiplier => Backoff::Exponential { multiplier: multiplier.into() },
        },
        initial: seconds(policy.initial),
        max: seconds(policy.max),
        jitter: Jitter::None,
        max_attempts: policy.attempts.into(),
        retry_on,
        lost: if policy.lost_free { Lost::Free } else { Lost::Counted },
        lost_backoff: policy.lost_backoff,
        interrupts_count: policy.interrupts_count,
        retry_after_max: crate::job::RETRY_AFTER_MAX,
    }
}

pub(super) fn flow_key(number: u8) -> String {
    format!("key{number}")
}

pub(super) fn job_type(number: u8) -> JobType {
    JobType::new(TYPES[usize::from(number)]).expect("a plain name")
}

pub(super) fn save(mut save: Save, checkpoint: Option<u8>, progress: Option<u8>) -> Save {
    if let Some(byte) = checkpoint {
        save = save.checkpoint(vec![byte]).expect("one byte is not too much");
    }
    if let Some(tenths) = progress {
        let progress = Progress::new(f64::from(tenths) / 10.0, "so far").expect("a fraction");
        save = save.progress(progress);
    }
    save
}

/// What a holder says, under its lease.
pub(super) fn settlement(lease: Lease, say: &Say, children: &[Plan], ids: &[Option<JobId>]) -> Said<Settlement> {
    // Webhook jobs have jitter of their own; half-way it is none.
    let mut half = || 0.5;
    Ok(match say {
        Say::Complete { result, .. } => {
            let result = result.map(|result| Payload::json(&result).expect("a number is JSON"));
            let specs: Result<Vec<_>> = children.iter().map(|child| spec(child, ids)).collect();
            let specs = specs.map_err(|error| format!("a child is refused: {error}"))?;
            lease.complete(result).spawn(specs).map_err(|error| format!("spawn: {error}"))?
        }
        Say::Fail { category, retry_after } => {
            let failure = Failure::new(*category, Some("broke".to_owned()), "it broke");
            let failure = match retry_after {
                Some(after) => failure.retry_after(seconds((*after).into())),
                None => failure,
            };
            lease.fail(failure, &mut half)
        }
        Say::DeadLetter => lease.fail(Failure::dead_letter("dead", "it is dead"), &mut half),
        Say::Snooze(after) => lease.snooze(seconds((*after).into())),
        Say::Cancel => lease.cancel(),
        Say::Release => lease.release(),
        Say::Interrupt => lease.interrupt(),
    })
}

/// The name under which an operation is counted.
pub(super) fn op_name(op: &Op) -> &'static str {
    match op {
        Op::Enqueue { .. } => "op: enqueue",
        Op::Claim(_) => "op: claim",
        Op::Extend { .. } => "op: extend",
        Op::Save { .. } => "op: save",
        Op::Settle(_) => "op: settle",
        Op::Repeat { .. } => "op: repeat",
        Op::Act { act, .. } => match act {
            ActDraft::Cancel { .. } => "op: cancel",
            ActDraft::Requeue { .. } => "op: requeue",
            ActDraft::DeadLetter => "op: dead-letter",
            ActDraft::Delete => "op: delete",
            ActDraft::Edit { .. } => "op: edit",
        },
        Op::Sweep { .. } => "op: sweep",
        Op::Pause { .. } => "op: pause",
        Op::Upkeep { .. } => "op: upkeep",
        Op::Control { control: Some(_), .. } => "op: control",
        Op::Control { control: None, .. } => "op: clear",
        Op::Hold { .. } => "op: hold",
        Op::Resume { .. } => "op: resume",
        Op::Advance(_) => "op: advance",
    }
}

/// The name under which a refusal is counted.
pub(super) fn refusal(error: &str) -> &'static str {
    match error {
        "InvalidArgument" => "refused: InvalidArgument",
        "DependencyNotFound" => "refused: DependencyNotFound",
        "DependencyCycle" => "refused: DependencyCycle",
        "IllegalState" => "refused: IllegalState",
        "Conflict" => "refused: Conflict",
        "NotFound" => "refused: NotFound",
        _ => "refused: otherwise",
    }
}

/// The name under which a lost lease is counted.
pub(super) fn lost(stale: Stale) -> &'static str {
    match stale {
        Stale::NotRunning => "extend: not running",
        Stale::Expired => "extend: expired",
        Stale::Mismatch => "extend: mismatch",
    }
}
