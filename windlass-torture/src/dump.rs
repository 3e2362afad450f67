//! What the store says at the end of a run, cut down to what the checker looks at.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use windlass::job::{
    Backoff, DependencyKind, DependsOn, Jitter, JobType, LOST_FREE_MAX, Limits, Lost, Outcome, ReasonKind, RunAt,
    WorkerId,
};
use windlass::schedule::Timing;
use windlass::store::{ClaimRequest, Filter, KeyQuery, ListQuery, PAGE_MAX, Store};
use windlass::workflow::Submission;
use windlass::{JobId, JobRecord, NewJob, Payload, Policies, QueueName, Result, State, WorkflowId};

use super::jobs::{Act, CONTROLLED};
use super::recording::scoped_key;

/// The type of the jobs that show whether a gate is open; nobody else handles it.
const PROBE: &str = "torture.probe";
/// How many jobs' attempts are asked for at once.
const AT_ONCE: usize = 8;

/// A store at the end. Times are microseconds since 1970, by the store's clock.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Dump {
    /// Every job.
    pub jobs: Vec<JobEnd>,
    /// Every schedule.
    pub schedules: Vec<ScheduleEnd>,
    /// Jobs that the store says it accepted.
    pub accepted: u64,
    /// Jobs that the store counts, in all states and pruned.
    pub counted: u64,
    /// Contradictions that the store found in itself.
    pub contradictions: Vec<String>,
    /// Gates that count what no lease holds.
    #[serde(default)]
    pub leaks: Vec<String>,
    /// From when to when leases held although they had run out, because the store was away.
    #[serde(default)]
    pub absences: Vec<AbsenceEnd>,
}

/// An absence of the store, as it recorded it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct AbsenceEnd {
    /// When it began: leases that had not ended by then hold on.
    pub from: i64,
    /// When the store was back.
    pub back: i64,
    /// Until when those leases held.
    pub until: i64,
}

/// A job at the end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobEnd {
    /// Its id.
    pub id: JobId,
    /// Its state.
    pub state: State,
    /// Its queue.
    #[serde(default)]
    pub queue: String,
    /// Its type.
    #[serde(default)]
    pub job_type: String,
    /// Its key for flow control.
    #[serde(default)]
    pub flow_key: Option<String>,
    /// How often it was requeued.
    pub generation: u32,
    /// How often it may run in one generation.
    pub runs_max: u32,
    /// When it was submitted.
    pub created: i64,
    /// When it became terminal.
    pub completed: Option<i64>,
    /// How long after submission it was first to run.
    pub delay: Option<i64>,
    /// The delay after every failure, where it is the same for all.
    pub backoff: Option<i64>,
    /// The delay after a snooze.
    pub snooze: Option<i64>,
    /// Its idempotency key, with its scope.
    pub key: Option<String>,
    /// Its correlation id: the call that enqueued it.
    pub batch: Option<String>,
    /// What it waited for.
    pub depends_on: Vec<(JobId, DependencyKind)>,
    /// The job that spawned it.
    pub spawned_by: Option<JobId>,
    /// The workflow it belongs to.
    pub workflow: Option<WorkflowId>,
    /// The schedule and the slot that it was fired for.
    pub firing: Option<(String, i64)>,
    /// Whether it ended because of a dependency.
    pub died_of_dependency: bool,
    /// Its attempts, oldest first.
    pub attempts: Vec<AttemptEnd>,
}

/// An attempt at the end.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// The version of its lease.
    pub version: u64,
    /// The generation it belongs to.
    pub generation: u32,
    /// When it was claimed.
    pub started: i64,
    /// When it ended.
    pub ended: Option<i64>,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

/// A schedule at the end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScheduleEnd {
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created: i64,
    /// From one slot to the next, where every slot must have fired.
    pub every: Option<i64>,
    /// Whether no job may be fired while the one before it is unfinished.
    pub no_overlap: bool,
    /// How long after the end of its last job it fires, if it does.
    pub after: Option<i64>,
}

impl JobEnd {
    /// A job that is in this state and of which nothing else is known.
    pub fn new(id: JobId, state: State) -> Self {
        JobEnd {
            id,
            state,
            queue: String::new(),
            job_type: String::new(),
            flow_key: None,
            generation: 0,
            runs_max: 3,
            created: 0,
            completed: None,
            delay: None,
            backoff: None,
            snooze: None,
            key: None,
            batch: None,
            depends_on: Vec::new(),
            spawned_by: None,
            workflow: None,
            firing: None,
            died_of_dependency: false,
            attempts: Vec::new(),
        }
    }

    fn of(job: &JobRecord) -> Self {
        let options = &job.spec.options;
        let retry = &options.retry;
        let constant = retry.strategy == Backoff::Constant && retry.jitter == Jitter::None;
        let snooze = job.spec.payload.decode::<Act>().ok().and_then(|act| match act {
            Act::Snooze(millis) => i64::try_from(millis * 1000).ok(),
            _ => None,
        });
        let on = |dependency: &windlass::job::Dependency| match dependency.on {
            DependsOn::Job(id) => Some((id, dependency.kind)),
            DependsOn::Batch(_) => None,
        };
        JobEnd {
            queue: job.spec.queue.to_string(),
            job_type: job.spec.job_type.to_string(),
            flow_key: options.key.clone(),
            generation: job.generation,
            runs_max: retry.max_attempts + if retry.lost == Lost::Free { LOST_FREE_MAX } else { 0 },
            created: job.created_at.as_micros(),
            completed: job.completed_at.map(windlass::Timestamp::as_micros),
            delay: match options.run_at {
                Some(RunAt::In(delay)) => Some(micros(delay)),
                Some(RunAt::At(at)) => Some(at.as_micros() - job.created_at.as_micros()),
                None => None,
            },
            backoff: constant.then(|| micros(retry.initial)),
            snooze,
            key: scoped_key(&job.spec),
            batch: options.correlation_id.clone(),
            depends_on: job.spec.depends_on.iter().filter_map(on).collect(),
            spawned_by: job.spawned_by,
            workflow: job.workflow_id,
            firing: job.firing.as_ref().map(|firing| (firing.schedule.clone(), firing.slot.as_micros())),
            died_of_dependency: job.reason.as_ref().is_some_and(|reason| reason.kind == ReasonKind::Dependency),
            ..JobEnd::new(job.id, job.state)
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Reads a whole store.
pub async fn dump(store: &dyn Store) -> Result<Dump> {
    let mut records = Vec::new();
    let mut query = ListQuery { filter: Filter::default(), limit: PAGE_MAX, after: None, ..ListQuery::default() };
    loop {
        let page = store.list(&query).await?;
        records.extend(page.items.iter().map(|job| (JobEnd::of(job), job.lease_version)));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let with_attempts = stream::iter(records).map(|(mut job, newest)| async move {
        if newest > 0 {
            job.attempts = attempts(store, job.id).await?;
        }
        Result::Ok(job)
    });
    let jobs: Vec<JobEnd> = with_attempts.buffer_unordered(AT_ONCE).try_collect().await?;
    let totals = store.observe(None).await.map(|seen| seen.totals())?;
    let leaks = leaks(store, &jobs).await?;
    Ok(Dump {
        jobs,
        leaks,
        schedules: schedules(store).await?,
        accepted: totals.accepted,
        counted: totals.pruned + totals.states.iter().sum::<u64>(),
        contradictions: store.check().await?,
        absences: absences(store).await?,
    })
}

/// Holds what the gates of controlled queues count against the jobs that run.
async fn leaks(store: &dyn Store, jobs: &[JobEnd]) -> Result<Vec<String>> {
    let mut leaks = Vec::new();
    for name in CONTROLLED {
        let queue = QueueName::new(name)?;
        let Some(record) = store.controlled(&queue).await? else { continue };
        let runs = |job: &&JobEnd| job.queue == name && job.state == State::Running;
        let mut query = KeyQuery { limit: PAGE_MAX, ..KeyQuery::new(queue.clone()) };
        loop {
            let page = store.keys(&query).await?;
            for key in page.items {
                let of_key = |job: &&JobEnd| job.flow_key.as_deref() == Some(&key.key);
                let running = jobs.iter().filter(runs).filter(of_key).count();
                if key.running as usize != running {
                    leaks.push(format!("{name} counts {} of key {}, {running} run", key.running, key.key));
                }
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        if let Some(most) = record.control.running {
            let free = (most as usize).saturating_sub(jobs.iter().filter(runs).count());
            let got = probe(store, queue, free).await?;
            if got != free {
                leaks.push(format!("{name} lets {got} start, {free} may"));
            }
        }
    }
    Ok(leaks)
}

/// Enqueues new jobs, claims them and ends them at once; gives how many of them could start.
async fn probe(store: &dyn Store, queue: QueueName, count: usize) -> Result<usize> {
    if count == 0 {
        return Ok(0);
    }
    let job = NewJob::new(PROBE, Payload::default()).queue(queue.as_str());
    let spec = job.check(&Limits::default(), &Policies::default())?;
    store.insert(Submission::new(vec![spec; count])?).await?;
    let worker = WorkerId::new("torture-probe")?;
    let types = Some(vec![JobType::new(PROBE)?]);
    let claimed = store.claim(&ClaimRequest { types, ..ClaimRequest::new(worker, queue, count) }).await?.jobs;
    let got = claimed.len();
    let ends: Vec<_> = claimed.into_iter().map(|one| one.lease.complete(None)).collect();
    store.settle(&ends).await?;
    Ok(got)
}

async fn attempts(store: &dyn Store, job: JobId) -> Result<Vec<AttemptEnd>> {
    let attempts = store.attempts(job).await?;
    let end = |attempt: &windlass::job::AttemptRecord| AttemptEnd {
        version: attempt.lease_version,
        generation: attempt.generation,
        started: attempt.started_at.as_micros(),
        ended: attempt.ended_at.map(windlass::Timestamp::as_micros),
        outcome: attempt.outcome,
    };
    Ok(attempts.iter().map(end).collect())
}

async fn schedules(store: &dyn Store) -> Result<Vec<ScheduleEnd>> {
    use windlass::schedule::{Missed, Overlap};
    let end = |record: &windlass::schedule::ScheduleRecord| {
        let spec = &record.spec;
        let whole = matches!(spec.missed, Missed::All(_)) && spec.overlap == Overlap::Allow;
        ScheduleEnd {
            name: spec.name.clone(),
            created: record.created_at.as_micros(),
            every: match spec.timing {
                Timing::Every { every, .. } if whole => Some(micros(every)),
                _ => None,
            },
            no_overlap: spec.overlap == Overlap::Skip,
            after: match spec.timing {
                Timing::Delay { after } => Some(micros(after)),
                _ => None,
            },
        }
    };
    Ok(store.schedules(None, PAGE_MAX).await?.iter().map(end).collect())
}

/// The absences that the store recorded.
async fn absences(store: &dyn Store) -> Result<Vec<AbsenceEnd>> {
    let mut absences = Vec::new();
    let mut after = None;
    loop {
        let page = store.acts(after.as_ref(), PAGE_MAX).await?;
        let moment = |text: &str| text.rsplit(' ').next().and_then(|at| at.parse::<windlass::Timestamp>().ok());
        for act in page.items.iter().filter(|act| act.act == "absence") {
            let until = act.why.as_deref().and_then(moment);
            absences.extend(moment(&act.target).zip(until).map(|(from, until)| {
                let [from, back, until] = [from, act.at, until].map(windlass::Timestamp::as_micros);
                AbsenceEnd { from, back, until }
            }));
        }
        after = page.next;
        if after.is_none() {
            return Ok(absences);
        }
    }
}
