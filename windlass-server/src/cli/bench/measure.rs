//! The measurements themselves.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;
use windlass::store::{Settled, Store, Wake};
use windlass::workflow::Submission;

use super::keyed::Flow;
use super::load;

/// How fast the fastest store may drain; this many jobs are put there for each second of a cycle.
pub(super) const DRAIN_PER_SECOND: usize = 120_000;
/// How far producers may run ahead in an end-to-end run, in batches for each caller.
const AHEAD: usize = 20;
/// Between two jobs of a pickup run: longer than a pickup takes, so that the claimer waits each time.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// How long a claimer without a hint waits before it looks again.
const POLL: Duration = Duration::from_millis(50);

/// What is measured.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) store: String,
    pub(super) callers: usize,
    pub(super) batch: usize,
    pub(super) backlog: usize,
    pub(super) finished: usize,
    pub(super) payload: usize,
    pub(super) time: Duration,
    /// Slots of each worker.
    pub(super) slots: usize,
    /// How many jobs a worker claims ahead at most; `None` for as many as it thinks fit.
    pub(super) prefetch: Option<usize>,
    /// How many processes of their own workers run in; 0 for one worker in this process.
    pub(super) processes: usize,
    /// Jobs a second that an idle worker is given.
    pub(super) rate: f64,
    /// How long a handler takes.
    pub(super) handler: Duration,
    /// Jobs that wait when a drain begins.
    pub(super) waiting: usize,
    /// What the queue is told, and the keys of its jobs.
    pub(super) flow: Flow,
}

/// What was found. Times are of one call: a batch, or in a cycle its claim and its settlement.
#[derive(Debug, Serialize)]
pub(super) struct Measurement {
    pub(super) op: String,
    pub(super) store: String,
    pub(super) callers: usize,
    pub(super) batch: usize,
    pub(super) backlog: usize,
    pub(super) finished: usize,
    pub(super) payload: usize,
    pub(super) jobs: usize,
    pub(super) seconds: f64,
    pub(super) jobs_per_s: f64,
    pub(super) p50_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) rss_mb: f64,
    /// Of a SQLite file and of its log, where these are of interest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_mb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log_mb: Option<f64>,
    /// What each job cost a PostgreSQL server: bytes of its log, and processor time where it runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log_bytes_per_job: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_us_per_job: Option<f64>,
    /// Processor time of each worker process, in percent of one processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worker_cpu_percent: Option<f64>,
    /// From the moment at which a worker heard that a job's settlement was durable to the return of `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) told_p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) told_p99_ms: Option<f64>,
}

impl Measurement {
    pub(super) fn new(op: &str, setting: &Setting, jobs: usize, time: Duration, mut calls: Vec<Duration>) -> Self {
        calls.sort_unstable();
        let at = |share: f64| {
            let place = (calls.len().saturating_sub(1) as f64 * share).round() as usize;
            calls.get(place).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
        };
        let kind = setting.store.split(':').next().unwrap_or_default();
        Measurement {
            op: op.to_owned(),
            store: if kind.starts_with("postgres") { "postgres" } else { kind }.to_owned(),
            callers: setting.callers,
            batch: setting.batch,
            backlog: setting.backlog,
            finished: setting.finished,
            payload: setting.payload,
            jobs,
            seconds: time.as_secs_f64(),
            jobs_per_s: jobs as f64 / time.as_secs_f64(),
            p50_ms: at(0.50),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            rss_mb: resident_mb(),
            file_mb: None,
            log_mb: None,
            log_bytes_per_job: None,
            server_us_per_job: None,
            worker_cpu_percent: None,
            told_p50_ms: None,
            told_p99_ms: None,
        }
    }
}

/// Runs `callers` loops at once until the time is over or one finds nothing to do; a loop's step gives its jobs.
pub(super) async fn loops<F, Step>(
    setting: &Setting,
    callers: usize,
    step: F,
) -> anyhow::Result<(usize, Duration, Vec<Duration>)>
where
    F: Fn() -> Step + Clone + Send + Sync + 'static,
    Step: Future<Output = anyhow::Result<usize>> + Send,
{
    let start = Instant::now();
    let end = start + setting.time;
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let step = step.clone();
        tasks.spawn(async move {
            let (mut jobs, mut calls) = (0, Vec::new());
            loop {
                let before = Instant::now();
                if before >= end {
                    return anyhow::Ok((jobs, calls));
                }
                let done = step().await?;
                calls.push(before.elapsed());
                if done == 0 {
                    return Ok((jobs, calls));
                }
                jobs += done;
            }
        });
    }
    let (mut jobs, mut calls) = (0, Vec::new());
    while let Some(task) = tasks.join_next().await {
        let (more, times) = task??;
        jobs += more;
        calls.extend(times);
    }
    Ok((jobs, start.elapsed(), calls))
}

pub(super) async fn enqueue(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    let (spec, flow, batch, next) = (load::spec(setting)?, setting.flow, setting.batch, AtomicUsize::new(0));
    let (spec, next) = (Arc::new(spec), Arc::new(next));
    let step = move || {
        let (store, spec, first) = (store.clone(), spec.clone(), next.fetch_add(batch, Ordering::Relaxed));
        async move { Ok(store.insert(Submission::new(flow.specs(&spec, first..first + batch))?).await?.jobs.len()) }
    };
    let (jobs, time, calls) = loops(setting, setting.callers, step).await?;
    Ok(Measurement::new("enqueue", setting, jobs, time, calls))
}

/// Claims a batch and completes it; gives how many.
pub(super) async fn claim_and_settle(store: &dyn Store, batch: usize) -> anyhow::Result<usize> {
    let claimed = store.claim(&load::claim(batch)?).await?;
    let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
    if settlements.is_empty() {
        return Ok(0);
    }
    for answer in store.settle(&settlements).await? {
        anyhow::ensure!(matches!(answer, Settled::Applied(_)), "a settlement was not applied: {answer:?}");
    }
    Ok(settlements.len())
}

pub(super) async fn cycle(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    let batch = setting.batch;
    let step = move || {
        let store = store.clone();
        async move { claim_and_settle(store.as_ref(), batch).await }
    };
    let (jobs, time, calls) = loops(setting, setting.callers, step).await?;
    Ok(Measurement::new("cycle", setting, jobs, time, calls))
}

/// How many jobs producers have stored and nobody has claimed, and whether the producers may stop.
#[derive(Default)]
pub(super) struct Ahead {
    waiting: AtomicUsize,
    over: AtomicBool,
}

/// Stores batches, as many callers as are set, never far ahead of the claimers.
pub(super) fn produce(
    store: &Arc<dyn Store>,
    setting: &Setting,
    ahead: &Arc<Ahead>,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let most = setting.callers * setting.batch * AHEAD;
    let (spec, flow, batch, next) = (load::spec(setting)?, setting.flow, setting.batch, Arc::new(AtomicUsize::new(0)));
    let mut producers = JoinSet::new();
    for _ in 0..setting.callers {
        let (store, spec, ahead, next) = (store.clone(), spec.clone(), ahead.clone(), next.clone());
        producers.spawn(async move {
            while !ahead.over.load(Ordering::Relaxed) {
                if ahead.waiting.load(Ordering::Relaxed) > most {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                let first = next.fetch_add(batch, Ordering::Relaxed);
                let made = store.insert(Submission::new(flow.specs(&spec, first..first + batch))?).await?.jobs.len();
                ahead.waiting.fetch_add(made, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    Ok(producers)
}

/// Claims and completes a batch of what producers store, when there is one.
pub(super) async fn consume(store: &dyn Store, batch: usize, ahead: &Ahead) -> anyhow::Result<usize> {
    loop {
        let done = claim_and_settle(store, batch).await?;
        if done > 0 {
            let less = |waiting: usize| Some(waiting.saturating_sub(done));
            let _ = ahead.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            return Ok(done);
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

/// Lets the producers finish their last batches.
pub(super) async fn stop(mut producers: JoinSet<anyhow::Result<()>>, ahead: &Ahead) -> anyhow::Result<()> {
    ahead.over.store(true, Ordering::Relaxed);
    while let Some(producer) = producers.join_next().await {
        producer??;
    }
    Ok(())
}

pub(super) async fn end_to_end(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    let ahead = Arc::new(Ahead::default());
    let producers = produce(&store, setting, &ahead)?;
    let (batch, shared) = (setting.batch, ahead.clone());
    let step = move || {
        let (store, ahead) = (store.clone(), shared.clone());
        async move { consume(store.as_ref(), batch, &ahead).await }
    };
    let found = loops(setting, setting.callers, step).await;
    stop(producers, &ahead).await?;
    let (jobs, time, calls) = found?;
    Ok(Measurement::new("e2e", setting, jobs, time, calls))
}

pub(super) async fn pickup(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    anyhow::ensure!(setting.backlog == 0, "pickup needs an empty queue: leave out --backlog");
    let (send, mut picked) = tokio::sync::mpsc::unbounded_channel();
    let over = Arc::new(AtomicBool::new(false));
    let claimer = tokio::spawn(wait_and_claim(store.clone(), send, over.clone()));
    let spec = load::spec(setting)?;
    let (start, mut calls) = (Instant::now(), Vec::new());
    while start.elapsed() < setting.time {
        tokio::time::sleep(PAUSE).await;
        let called = Instant::now();
        store.insert(Submission::new(vec![spec.clone()])?).await?;
        let Some(claimed) = picked.recv().await else { break };
        calls.push(claimed.duration_since(called));
    }
    over.store(true, Ordering::Relaxed);
    claimer.abort();
    let jobs = calls.len();
    Ok(Measurement::new("pickup", setting, jobs, start.elapsed(), calls))
}

/// Waits for a hint, claims, and says when; settles afterwards.
async fn wait_and_claim(
    store: Arc<dyn Store>,
    send: tokio::sync::mpsc::UnboundedSender<Instant>,
    over: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let mut wakes = store.wakes();
    let request = load::claim(1)?;
    while !over.load(Ordering::Relaxed) {
        let claimed = store.claim(&request).await?;
        let at = Instant::now();
        if claimed.is_empty() {
            let hint = async { while !matches!(wakes.recv().await, Ok(Wake::Scheduled(_)) | Err(_)) {} };
            let _ = tokio::time::timeout(POLL, hint).await;
            continue;
        }
        let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
        store.settle(&settlements).await?;
        for _ in settlements {
            let _ = send.send(at);
        }
    }
    Ok(())
}

/// The memory of this process that is in use, from the kernel; 0 where there is no such file.
pub(super) fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}
