//! What needs somebody: a pure function over one snapshot of the store, for the page, `windlass top`, `windlass doctor` and
//! `windlass attention`.
//!
//! Each threshold is a constant with its reason. Nothing here changes anything, and nothing here is remembered: what is wrong now
//! is told as long as it is wrong.

use crate::figures::number;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::schedule::ScheduleRecord;
use windlass::store::{
    FAULTS_MAX, FaultGroup, FaultQuery, Filter, LaneRecord, ListQuery, PAGE_MAX, QueueRecord, Sample, SampleStep,
    Store, WorkerRecord,
};
use windlass::workflow::Webhook;
use windlass::{Error, Job, JobRecord, Payload, Result, State, Timestamp};

/// How long ready jobs may stand without a worker: a worker that restarts is back by then.
const UNSERVED_AFTER: Duration = Duration::from_secs(30);
/// How long a job may be ready before it is looked at whether the queue falls behind.
const SLOW_AFTER: Duration = Duration::from_secs(60);
/// Over which time a backlog must have grown, and attempts are compared.
const LOOKED_BACK: Duration = Duration::from_secs(300);
/// How late a schedule may be: upkeep goes on about once a second, and a restart takes a while.
const LATE_AFTER: Duration = Duration::from_secs(60);
/// How long a lease may be over before nobody seems to do upkeep.
const UPKEEP_AFTER: Duration = Duration::from_secs(30);
/// How many deaths of one fault in ten minutes are a burst: fewer happen every day somewhere.
const DEATHS_MIN: u64 = 10;
/// How many times its rate of the day a fault must have, so that one which always is there does not cry for ever.
const DEATHS_TIMES: u64 = 3;
/// How many attempts say something about a type: of two, half fail easily.
const ATTEMPTS_MIN: u64 = 10;
/// How long after its execution timeout a handler may still be ending: it is told, and stopped five seconds later.
const OVERRUN: Duration = Duration::from_secs(10);
/// How long an act on many jobs may make no step.
const STILL_AFTER: Duration = Duration::from_secs(60);
/// A slower snapshot than this means that every worker waits for its store.
const STORE_SLOW: Duration = Duration::from_millis(250);
/// Of the disk, this share must be free, in percent: below it somebody has to act before it is full.
const FREE_PERCENT: u64 = 10;
/// How many running jobs are looked at.
const RUNNING_LOOKED: usize = 200;
/// How many jobs or schedules are read at once: what they carry is of no interest here, and may be large.
const READ_AT_ONCE: usize = 32;

/// How much it presses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// Jobs do not run.
    Bad,
    /// Jobs run later than they might, or somebody wanted it so.
    Warning,
}

/// What it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AttentionKind {
    /// Ready jobs that no live worker serves.
    NoWorker,
    /// Jobs wait long, and ever more of them.
    FallingBehind,
    /// A paused queue with ready jobs, or a paused schedule that would have fired.
    PausedWithWork,
    /// A burst of one fault, or a type of which most attempts fail.
    Failing,
    /// Attempts whose lease was lost.
    LeasesLost,
    /// A schedule that should have fired, or upkeep that nobody does.
    Late,
    /// A handler past its execution timeout, or an act on many jobs that makes no step.
    Stuck,
    /// Webhooks that nobody sends, or that a target refuses.
    Unsent,
    /// The store is slow, or its disk nearly full.
    Store,
}

/// Something that needs somebody.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AttentionItem {
    pub(crate) kind: AttentionKind,
    pub(crate) severity: Severity,
    /// For people.
    pub(crate) text: String,
    /// Where to look: a path of the page.
    pub(crate) link: String,
    /// The command that helps, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) act: Option<String>,
    /// The queue that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    /// The schedule that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<String>,
    /// The fault that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
    /// Since when, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) since: Option<Timestamp>,
}

impl AttentionItem {
    fn new(kind: AttentionKind, severity: Severity, text: String, link: impl Into<String>) -> Self {
        let link = link.into();
        let (act, queue, schedule, fingerprint, since) = (None, None, None, None, None);
        AttentionItem { kind, severity, text, link, act, queue, schedule, fingerprint, since }
    }
}

/// An act on many jobs that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnderWay {
    pub(crate) id: String,
    pub(crate) moved_at: Timestamp,
}

/// What is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) now: Timestamp,
    pub(crate) queues: Vec<QueueRecord>,
    pub(crate) lanes: Vec<LaneRecord>,
    pub(crate) workers: Vec<WorkerRecord>,
    pub(crate) schedules: Vec<ScheduleRecord>,
    /// Samples of the last minutes, oldest first.
    pub(crate) past: Vec<Sample>,
    pub(crate) faults: Vec<FaultGroup>,
    /// Some of the running jobs.
    pub(crate) running: Vec<JobRecord>,
    /// How long the snapshot took.
    pub(crate) took: Duration,
    /// What only a server knows.
    pub(crate) sends_webhooks: bool,
    pub(crate) operations: Vec<UnderWay>,
    /// Free and all bytes of the disk, for a store in a file of this machine.
    pub(crate) disk: Option<(u64, u64)>,
}

impl Seen {
    /// Looks at a store. What only a server knows is left at what needs nobody.
    pub(crate) async fn look(store: &dyn Store) -> Result<Self> {
        let begun = Instant::now();
        let observed = store.observe(None).await?;
        let took = begun.elapsed();
        let now = observed.now;
        let running = Filter::new().states([State::Running]);
        let running = ListQuery::new(running, RUNNING_LOOKED);
        let all_faults = FaultQuery { limit: FAULTS_MAX, ..FaultQuery::default() };
        Ok(Seen {
            now,
            queues: store.queues().await?,
            lanes: observed.lanes,
            workers: store.workers().await?,
            schedules: schedules(store).await?,
            past: store.samples(SampleStep::Seconds, now.minus(LOOKED_BACK), now).await?,
            faults: allowed(store.faults(&all_faults).await.map(|page| page.items))?,
            running: allowed(jobs(store, running).await)?,
            took,
            sends_webhooks: true,
            operations: Vec::new(),
            disk: None,
        })
    }

    /// What needs somebody, worst first.
    pub(crate) fn attention(&self) -> Vec<AttentionItem> {
        let mut items: Vec<_> = self.queues.iter().filter_map(|queue| self.of_queue(queue)).collect();
        items.extend(self.lanes.iter().filter_map(|lane| self.of_lane(lane)));
        items.extend(self.schedules.iter().filter_map(|schedule| self.of_schedule(schedule)));
        items.extend(self.faults.iter().filter_map(of_fault));
        items.extend(self.of_types());
        items.extend(self.of_lost());
        items.extend(self.of_running());
        items.extend(self.operations.iter().filter_map(|operation| self.of_operation(operation)));
        items.extend(self.of_store());
        items.sort_by_key(|item| item.severity);
        items
    }

    fn of_queue(&self, queue: &QueueRecord) -> Option<AttentionItem> {
        let count = queue.count(State::Scheduled);
        let name = queue.name.as_str();
        if count == 0 {
            return None;
        }
        let jobs = are(count);
        let about = |kind, severity, text: String, act: Option<String>| {
            let item = AttentionItem::new(kind, severity, text, format!("/queues/{name}"));
            Some(AttentionItem { queue: Some(name.to_owned()), since: queue.oldest_scheduled, act, ..item })
        };
        if queue.paused {
            let text = format!("{jobs} ready in {name}, which is paused");
            let act = Some(format!("windlass queues resume {name}"));
            return about(AttentionKind::PausedWithWork, Severity::Warning, text, act);
        }
        let waited = queue.oldest_scheduled.map_or(Duration::ZERO, |since| self.now.since(since));
        let is_served = self.workers.iter().any(|worker| serves(worker, queue.name.as_str()));
        if waited >= UNSERVED_AFTER && !is_served {
            if name == Webhook::QUEUE && !self.sends_webhooks {
                let text = format!("{jobs} waiting to be sent as webhooks, and there is no secret to sign them with");
                return about(AttentionKind::Unsent, Severity::Bad, text, Some("windlass token webhook".to_owned()));
            }
            let text = format!("{jobs} ready in {name}, and no worker serves it");
            let act = Some(format!("windlass worker --queue {name} --exec PROGRAM"));
            return about(AttentionKind::NoWorker, Severity::Bad, text, act);
        }
        if waited >= SLOW_AFTER && self.grew(name, count) {
            let text = format!("{name} falls behind: {jobs} ready, and ever more");
            return about(AttentionKind::FallingBehind, Severity::Warning, text, None);
        }
        None
    }

    /// Whether a queue's backlog is larger than it was at the beginning of the time that is looked at, by at least a tenth.
    fn grew(&self, name: &str, count: u64) -> bool {
        let Some(first) = self.past.first() else { return false };
        let own = first.lanes.iter().filter(|seen| seen.lane.queue.as_str() == name);
        let was: u64 = own.map(|seen| seen.lane.count(State::Scheduled)).sum();
        count > was + was / 10 && self.now.since(first.at) >= LOOKED_BACK / 2
    }

    /// Ready jobs of a type that nobody has a handler for, in a queue that somebody serves.
    fn of_lane(&self, lane: &LaneRecord) -> Option<AttentionItem> {
        let (queue, job_type) = (lane.queue.as_str(), lane.job_type.as_str());
        let record = self.queues.iter().find(|record| record.name == lane.queue).filter(|record| !record.paused)?;
        let waited = record.oldest_scheduled.map_or(Duration::ZERO, |since| self.now.since(since));
        let count = lane.count(State::Scheduled);
        let mut serving = self.workers.iter().filter(|worker| serves(worker, queue)).peekable();
        serving.peek()?;
        let has_handler =
            serving.any(|worker| worker.types.as_ref().is_none_or(|types| types.contains(&lane.job_type)));
        if count == 0 || waited < UNSERVED_AFTER || has_handler {
            return None;
        }
        let text = format!("{} ready in {queue} of type {job_type}, and no worker has a handler for it", are(count));
        let link = format!("/jobs?state=scheduled&queue={queue}&type={job_type}");
        let item = AttentionItem::new(AttentionKind::NoWorker, Severity::Bad, text, link);
        Some(AttentionItem { queue: Some(queue.to_owned()), since: record.oldest_scheduled, ..item })
    }

    fn of_schedule(&self, schedule: &ScheduleRecord) -> Option<AttentionItem> {
        let due = schedule.next_at.filter(|due| *due < self.now)?;
        let name = &schedule.spec.name;
        let about = |kind, severity, text, act| {
            let item = AttentionItem::new(kind, severity, text, format!("/schedules/{name}"));
            Some(AttentionItem { schedule: Some(name.clone()), since: Some(due), act, ..item })
        };
        if schedule.paused {
            let text = format!("{name} would have fired, and is paused");
            let act = Some(format!("windlass schedules resume {name}"));
            return about(AttentionKind::PausedWithWork, Severity::Warning, text, act);
        }
        if self.now.since(due) < LATE_AFTER {
            return None;
        }
        about(AttentionKind::Late, Severity::Bad, format!("{name} should have fired and has not"), None)
    }

    /// Types of which most attempts of the last minutes failed.
    fn of_types(&self) -> Vec<AttentionItem> {
        let mut types: std::collections::BTreeMap<&str, (u64, u64)> = std::collections::BTreeMap::new();
        for (lane, before) in self.grown() {
            let [completed, failed, dead_letter, _] = grew(lane.ended, before.ended);
            let tried = (lane.retried + lane.lost).saturating_sub(before.retried + before.lost);
            let (bad, all) = types.entry(lane.job_type.as_str()).or_default();
            let failures = failed + dead_letter + tried;
            *bad += failures;
            *all += failures + completed;
        }
        let failing = types.into_iter().filter(|(_, (bad, all))| *all >= ATTEMPTS_MIN && bad * 2 > *all);
        let item = |(name, (bad, all)): (&str, (u64, u64))| {
            let text = format!("{} of the last {} attempts of type {name} failed", number(bad), number(all));
            AttentionItem::new(AttentionKind::Failing, Severity::Warning, text, format!("/errors?type={name}"))
        };
        failing.map(item).collect()
    }

    /// Queues in which leases were lost in the last minutes.
    fn of_lost(&self) -> Vec<AttentionItem> {
        let mut queues: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
        for (lane, before) in self.grown() {
            *queues.entry(lane.queue.as_str()).or_default() += lane.lost.saturating_sub(before.lost);
        }
        let item = |(name, lost): (&str, u64)| {
            let attempts = if lost == 1 { "1 attempt".to_owned() } else { format!("{lost} attempts") };
            let text =
                format!("{attempts} in {name} lost their lease in the last minutes: a worker went without a word");
            let link = format!("/jobs?queue={name}&code=lease_expired");
            let item = AttentionItem::new(AttentionKind::LeasesLost, Severity::Warning, text, link);
            AttentionItem { queue: Some(name.to_owned()), ..item }
        };
        queues.into_iter().filter(|(_, lost)| *lost > 0).map(item).collect()
    }

    /// The lanes as they are and as they were when the time that is looked at began.
    fn grown(&self) -> impl Iterator<Item = (&LaneRecord, &LaneRecord)> {
        let past = self.past.first().into_iter().flat_map(|sample| &sample.lanes);
        past.filter_map(|seen| {
            let same = |lane: &&LaneRecord| lane.queue == seen.lane.queue && lane.job_type == seen.lane.job_type;
            Some((self.lanes.iter().find(same)?, &seen.lane))
        })
    }

    fn of_running(&self) -> Vec<AttentionItem> {
        let expired =
            |job: &&JobRecord| job.lease.as_ref().is_some_and(|lease| self.now.since(lease.expires_at) > UPKEEP_AFTER);
        let mut items = Vec::new();
        if let Some(job) = self.running.iter().find(expired) {
            let text =
                format!("nobody does upkeep: the lease of job {} is over, and the job was not taken back", job.id);
            let item = AttentionItem::new(AttentionKind::Late, Severity::Bad, text, format!("/jobs/{}", job.id));
            let since = job.lease.as_ref().map(|lease| lease.expires_at);
            items.push(AttentionItem { act: Some("windlass run".to_owned()), since, ..item });
        }
        let overran = self.running.iter().filter_map(|job| {
            let timeout = job.spec.options.timeouts.execution?;
            let until = job.started_at?.plus(timeout).plus(OVERRUN);
            (until < self.now && !expired(&job)).then_some((job, until))
        });
        items.extend(overran.map(|(job, until)| {
            let text = format!("job {} of type {} runs longer than its execution timeout", job.id, job.spec.job_type);
            let item = AttentionItem::new(AttentionKind::Stuck, Severity::Warning, text, format!("/jobs/{}", job.id));
            let act = Some(format!("windlass jobs cancel {} --force", job.id));
            AttentionItem { queue: Some(job.spec.queue.to_string()), since: Some(until), act, ..item }
        }));
        items
    }

    fn of_operation(&self, operation: &UnderWay) -> Option<AttentionItem> {
        if self.now.since(operation.moved_at) < STILL_AFTER {
            return None;
        }
        let text = format!("the operation {} makes no step", operation.id);
        let item = AttentionItem::new(AttentionKind::Stuck, Severity::Warning, text, "/operations");
        Some(AttentionItem { since: Some(operation.moved_at), ..item })
    }

    fn of_store(&self) -> Vec<AttentionItem> {
        let mut items = Vec::new();
        if self.took > STORE_SLOW {
            let text = format!("the store took {} ms to tell its numbers", self.took.as_millis());
            items.push(AttentionItem::new(AttentionKind::Store, Severity::Warning, text, "/server"));
        }
        if let Some((free, all)) = self.disk.filter(|(free, all)| free * 100 < all * FREE_PERCENT) {
            let text =
                format!("{} % of the store's disk are free: a full disk stops every enqueue", free * 100 / all.max(1));
            let item = AttentionItem::new(AttentionKind::Store, Severity::Bad, text, "/server");
            items.push(AttentionItem { act: Some("windlass store prune".to_owned()), ..item });
        }
        items
    }
}

/// The first schedules by name, without what their jobs carry.
async fn schedules(store: &dyn Store) -> Result<Vec<ScheduleRecord>> {
    let mut all: Vec<ScheduleRecord> = Vec::new();
    loop {
        let after = all.last().map(|last| last.spec.name.clone());
        let some = store.schedules(after.as_deref(), READ_AT_ONCE).await?;
        let is_last = some.len() < READ_AT_ONCE;
        all.extend(some.into_iter().map(|mut schedule| {
            schedule.spec.job.payload = Payload::default();
            schedule
        }));
        if is_last || all.len() >= PAGE_MAX {
            return Ok(all);
        }
    }
}

/// Jobs, without what they carry.
async fn jobs(store: &dyn Store, mut query: ListQuery) -> Result<Vec<JobRecord>> {
    let (wanted, mut all) = (query.limit, Vec::new());
    loop {
        query.limit = READ_AT_ONCE.min(wanted - all.len());
        let page = store.list(&query).await?;
        // A store that looked long for a page and found little is not asked to look on.
        let is_short = page.items.len() < query.limit;
        all.extend(page.items.into_iter().map(|mut job| {
            Arc::make_mut(&mut job.spec).payload = Payload::default();
            job.checkpoint = None;
            job
        }));
        query.after = page.next;
        if query.after.is_none() || is_short || all.len() >= wanted {
            return Ok(all);
        }
    }
}

/// What a caller may see; a token that is bound to several queues cannot ask for all of them at once.
fn allowed<T: Default>(answer: Result<T>) -> Result<T> {
    match answer {
        Err(Error::Unauthorized(_)) => Ok(T::default()),
        answer => answer,
    }
}

/// A fault that kills many more jobs than it did over the day.
fn of_fault(group: &FaultGroup) -> Option<AttentionItem> {
    let day: u64 = group.trend.iter().sum();
    let fingerprint = group.fingerprint.to_string();
    let webhooks = group.queues.iter().any(|queue| queue.as_str() == Webhook::QUEUE);
    // Ten minutes are a 144th of the day.
    let is_burst = group.recent >= DEATHS_MIN && group.recent * 144 >= day * DEATHS_TIMES;
    let said = group.code.as_deref().unwrap_or(&group.pattern);
    // Only the newest jobs of a group are looked at.
    let at_least = if group.capped && group.recent >= group.count { "at least " } else { "" };
    let died = format!("{at_least}{}", number(group.recent));
    let (kind, text) = if webhooks && group.recent > 0 {
        (AttentionKind::Unsent, format!("{died} webhooks were given up in 10 minutes: {said}"))
    } else if is_burst {
        let text = format!("{died} jobs of type {} died in 10 minutes: {said}", group.job_type);
        (AttentionKind::Failing, text)
    } else {
        return None;
    };
    let item = AttentionItem::new(kind, Severity::Bad, text, format!("/errors/{fingerprint}"));
    let act = Some(format!("windlass dlq requeue --fingerprint {fingerprint}"));
    Some(AttentionItem { act, since: Some(group.first_at), fingerprint: Some(fingerprint), ..item })
}

fn serves(worker: &WorkerRecord, queue: &str) -> bool {
    worker.queues.iter().any(|served| served.queue.as_str() == queue && served.slots > 0)
}

fn are(count: u64) -> String {
    if count == 1 { "1 job is".to_owned() } else { format!("{} jobs are", number(count)) }
}

fn grew(now: [u64; 4], before: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|place| now[place].saturating_sub(before[place]))
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
