//! Flow control: how fast a controlled queue with keys is drained, how exactly a rate is kept, and how soon a freed slot is used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use windlass::QueueName;
use windlass::flow::{Change, Control, ControlEdit, Limit, Rate};
use windlass::job::{JobSpec, Lease};
use windlass::store::{ClaimRequest, Store, Wake};
use windlass::workflow::Submission;

use super::load;
use super::measure::{Measurement, PAUSE, Setting, claim_and_settle, loops};

/// Jobs that are drained unless `--backlog` says otherwise.
const JOBS: usize = 50_000;
/// How many jobs are stored in one call.
const BATCH: usize = 1000;
/// The key whose jobs are kept back.
const BLOCKED: &str = "blocked";
/// How long the one job of that key is held: longer than any measurement.
const HELD: Duration = Duration::from_secs(4 * 3600);
/// How long a claimer without a hint waits before it looks again.
const POLL: Duration = Duration::from_millis(50);

/// What the queue is told, and how many keys its jobs have.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct Flow {
    /// Keys that the jobs of keyed and enqueue are spread over; none unless said
    #[arg(long, value_name = "N", default_value_t = 0)]
    keys: usize,
    /// Most running jobs of each key
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Most running jobs of the queue
    #[arg(long, value_name = "N")]
    queue_limit: Option<u32>,
    /// Let keys take turns
    #[arg(long)]
    fair: bool,
    /// Jobs of one more key, whose limit is reached
    #[arg(long, value_name = "N", default_value_t = 0)]
    blocked: usize,
    /// Starts a second that keyed measures instead of speed
    #[arg(long, value_name = "N")]
    starts: Option<u32>,
}

impl Flow {
    /// What the queue is told; `None` for a plain queue.
    fn control(&self) -> Option<Control> {
        let each_key = self.limit.map(Limit::running);
        let rate = self.starts.map(Rate::per_second);
        let control = Control { running: self.queue_limit, rate, each_key, fair: self.fair, ..Control::default() };
        (control != Control::default()).then_some(control)
    }

    /// A job for each place, its key in turn.
    pub(super) fn specs(&self, spec: &JobSpec, places: std::ops::Range<usize>) -> Vec<JobSpec> {
        let keyed = |place: usize| {
            let mut spec = spec.clone();
            spec.options.key = (self.keys > 0).then(|| format!("k{}", place % self.keys.max(1)));
            spec
        };
        places.map(keyed).collect()
    }
}

async fn change(store: &dyn Store, change: Change) -> anyhow::Result<()> {
    store.control(&ControlEdit::new(QueueName::new(load::QUEUE)?, change), None).await?;
    Ok(())
}

async fn put(store: &dyn Store, control: Option<Control>) -> anyhow::Result<()> {
    if let Some(control) = control {
        change(store, Change::Put { control, version: None, from_code: false }).await?;
    }
    Ok(())
}

/// Drains a number of jobs, each claimed and settled once.
pub(super) async fn keyed(store: Arc<dyn Store>, setting: &Setting, flow: Flow) -> anyhow::Result<Measurement> {
    put(store.as_ref(), flow.control()).await?;
    if flow.blocked > 0 {
        block(store.as_ref(), setting, flow.blocked).await?;
    }
    if let Some(starts) = flow.starts {
        return rated(store, setting, starts).await;
    }
    let jobs = if setting.backlog == 0 { JOBS } else { setting.backlog };
    let spec = load::spec(setting)?;
    for first in (0..jobs).step_by(BATCH) {
        let specs = flow.specs(&spec, first..jobs.min(first + BATCH));
        store.insert(Submission::new(specs)?).await?;
    }
    let (batch, shared) = (setting.batch, store.clone());
    let step = move || {
        let store = shared.clone();
        async move { claim_and_settle(store.as_ref(), batch).await }
    };
    let (done, time, calls) = loops(setting, setting.callers, step).await?;
    clear(store.as_ref(), flow).await?;
    Ok(Measurement::new("keyed", setting, done, time, calls))
}

async fn clear(store: &dyn Store, flow: Flow) -> anyhow::Result<()> {
    match flow.control() {
        Some(_) => change(store, Change::Clear { version: None }).await,
        None => Ok(()),
    }
}

/// Stores jobs of a key of which only one may run, and lets that one run on.
async fn block(store: &dyn Store, setting: &Setting, jobs: usize) -> anyhow::Result<()> {
    change(store, Change::PutKey { key: BLOCKED.to_owned(), limit: Limit::running(1) }).await?;
    let mut spec = load::spec(setting)?;
    spec.options.key = Some(BLOCKED.to_owned());
    let mut left = jobs;
    while left > 0 {
        let batch = left.min(BATCH);
        store.insert(Submission::new(vec![spec.clone(); batch])?).await?;
        left -= batch;
    }
    // As many claims as it takes to sort them all.
    for _ in 0..jobs.div_ceil(BATCH) + 1 {
        store.claim(&ClaimRequest { lease_time: Some(HELD), ..load::claim(1)? }).await?;
    }
    Ok(())
}

/// Starts jobs as fast as the rate lets them, for the time that is set.
async fn rated(store: Arc<dyn Store>, setting: &Setting, starts: u32) -> anyhow::Result<Measurement> {
    let seconds = usize::try_from(setting.time.as_secs()).unwrap_or(1).max(1);
    load::waiting(store.as_ref(), (seconds + 2) * starts as usize, setting).await?;
    let (begun, mut claimers) = (Instant::now(), tokio::task::JoinSet::new());
    for _ in 0..setting.callers {
        let (store, end, batch) = (store.clone(), begun + setting.time, setting.batch);
        claimers.spawn(async move {
            let mut done = 0;
            while Instant::now() < end {
                let claims = store.claim(&load::claim(batch)?).await?;
                let again = claims.again_in.unwrap_or(POLL);
                let ends: Vec<_> = claims.jobs.into_iter().map(|one| one.lease.complete(None)).collect();
                if ends.is_empty() {
                    tokio::time::sleep(again.min(POLL)).await;
                    continue;
                }
                done += store.settle(&ends).await?.len();
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(claimer) = claimers.join_next().await {
        done += claimer??;
    }
    let time = begun.elapsed();
    change(store.as_ref(), Change::Clear { version: None }).await?;
    Ok(Measurement::new("rate", setting, done, time, Vec::new()))
}

/// From the settlement that frees a slot to the next start of its key, by a claimer that waits for it.
pub(super) async fn freed(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    put(store.as_ref(), Some(Control::new().each_key(Limit::running(1)))).await?;
    let mut spec = load::spec(setting)?;
    spec.options.key = Some("k".to_owned());
    let (send, mut started) = tokio::sync::mpsc::unbounded_channel();
    let claimer = tokio::spawn(wait_for_slots(store.clone(), send));
    let (start, mut calls) = (Instant::now(), Vec::new());
    store.insert(Submission::new(vec![spec.clone(); 2])?).await?;
    let mut held = started.recv().await;
    while let Some((_, lease)) = held.filter(|_| start.elapsed() < setting.time) {
        tokio::time::sleep(PAUSE).await;
        store.insert(Submission::new(vec![spec.clone()])?).await?;
        tokio::time::sleep(PAUSE).await;
        let called = Instant::now();
        store.settle(&[lease.complete(None)]).await?;
        held = started.recv().await;
        calls.extend(held.as_ref().map(|(at, _)| at.duration_since(called)));
    }
    claimer.abort();
    change(store.as_ref(), Change::Clear { version: None }).await?;
    Ok(Measurement::new("freed", setting, calls.len(), start.elapsed(), calls))
}

async fn wait_for_slots(
    store: Arc<dyn Store>,
    send: tokio::sync::mpsc::UnboundedSender<(Instant, Lease)>,
) -> anyhow::Result<()> {
    let mut wakes = store.wakes();
    let request = load::claim(1)?;
    loop {
        let claimed = store.claim(&request).await?.jobs;
        let at = Instant::now();
        if claimed.is_empty() {
            let hint = async { while !matches!(wakes.recv().await, Ok(Wake::Scheduled(_)) | Err(_)) {} };
            let _ = tokio::time::timeout(POLL, hint).await;
        }
        for one in claimed {
            let _ = send.send((at, one.lease));
        }
    }
}
