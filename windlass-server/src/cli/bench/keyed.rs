//! Flow control: how fast a controlled queue with keys is drained, how exactly a rate is kept, and how soon a freed slot is used.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio_postgres::NoTls;
use windlass::flow::{Change, Control, ControlEdit, Limit, Rate};
use windlass::job::{JobSpec, Lease};
use windlass::store::{ClaimRequest, Store, Wake};
use windlass::workflow::Submission;
use windlass::{QueueName, Timestamp};

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
/// For how long after a change of control claims on PostgreSQL also look for leases of plain claims.
const SETTLED: Duration = Duration::from_secs(11);
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
    /// Let keyed sort the jobs to their keys before anything is measured
    #[arg(long)]
    sorted: bool,
    /// Start the worker of late after all is enqueued
    #[arg(long)]
    pub(super) started_after: bool,
    /// Hold a snapshot of a PostgreSQL server meanwhile, as a long report or backup does
    #[arg(long)]
    held_snapshot: bool,
}

impl Flow {
    /// What the queue is told; `None` for a plain queue.
    pub(super) fn control(&self) -> Option<Control> {
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

pub(super) async fn put(store: &dyn Store, control: Option<Control>) -> anyhow::Result<()> {
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
    let begun = Instant::now();
    let jobs = fill(store.as_ref(), setting, flow).await?;
    if flow.sorted {
        sort(store.as_ref(), jobs).await?;
    }
    if flow.control().is_some() && setting.store.starts_with("postgres") {
        tokio::time::sleep(SETTLED.saturating_sub(begun.elapsed())).await;
    }
    let (batch, shared) = (setting.batch, store.clone());
    let step = move || {
        let store = shared.clone();
        async move { claim_and_settle(store.as_ref(), batch).await }
    };
    let (done, time, calls) = loops(setting, setting.callers, step).await?;
    Ok(Measurement::new("keyed", setting, done, time, calls))
}

/// Ends what the queue was told, so that the store can be measured again.
pub(super) async fn clear(store: &dyn Store, flow: Flow) -> anyhow::Result<()> {
    match flow.control() {
        Some(_) => change(store, Change::Clear { version: None }).await,
        None => Ok(()),
    }
}

/// Stores what is drained, keys in turn; gives how many jobs.
async fn fill(store: &dyn Store, setting: &Setting, flow: Flow) -> anyhow::Result<usize> {
    let jobs = if setting.backlog == 0 { JOBS } else { setting.backlog };
    let spec = load::spec(setting)?;
    for first in (0..jobs).step_by(BATCH) {
        let specs = flow.specs(&spec, first..jobs.min(first + BATCH));
        store.insert(Submission::new(specs)?).await?;
    }
    Ok(jobs)
}

/// Lets claims sort all jobs to their keys: of each claim one job is taken, and given back.
async fn sort(store: &dyn Store, jobs: usize) -> anyhow::Result<()> {
    for _ in 0..jobs.div_ceil(BATCH) + 1 {
        let claimed = store.claim(&load::claim(1)?).await?.jobs;
        let released: Vec<_> = claimed.into_iter().map(|one| one.lease.release()).collect();
        store.settle(&released).await?;
    }
    Ok(())
}

/// Holds a snapshot of a PostgreSQL server until what it gives is dropped, where that is asked for.
pub(super) async fn held_snapshot(setting: &Setting) -> anyhow::Result<Option<tokio_postgres::Client>> {
    if !setting.flow.held_snapshot {
        return Ok(None);
    }
    anyhow::ensure!(setting.store.starts_with("postgres"), "--held-snapshot needs a PostgreSQL store");
    let url = setting.store.split('?').next().unwrap_or(&setting.store);
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("begin transaction isolation level repeatable read; select txid_current()").await?;
    Ok(Some(client))
}

/// Claims and settles everything, and looks after each round at how often each key has started.
pub(super) async fn rounds(store: Arc<dyn Store>, setting: &Setting, flow: Flow) -> anyhow::Result<Measurement> {
    anyhow::ensure!(flow.fair && flow.keys > 0, "rounds needs --fair and --keys");
    put(store.as_ref(), flow.control()).await?;
    let jobs = fill(store.as_ref(), setting, flow).await?;
    let (mut starts, begun) = (HashMap::new(), Instant::now());
    let mut done = 0;
    while done < jobs {
        let left = flow.keys - done % flow.keys;
        let claimed = store.claim(&load::claim(setting.batch.min(left))?).await?.jobs;
        anyhow::ensure!(!claimed.is_empty(), "{done} of {jobs} jobs started, and no more");
        done += claimed.len();
        for one in &claimed {
            *starts.entry(one.job.spec.options.key.clone()).or_insert(0_usize) += 1;
        }
        let ends: Vec<_> = claimed.into_iter().map(|one| one.lease.complete(None)).collect();
        store.settle(&ends).await?;
        if done % flow.keys == 0 {
            let round = done / flow.keys;
            let other = starts.iter().find(|(_, starts)| **starts != round);
            anyhow::ensure!(other.is_none() && starts.len() == flow.keys, "after {round} rounds {other:?}");
        }
    }
    Ok(Measurement::new("rounds", setting, done, begun.elapsed(), Vec::new()))
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
            let mut done = Vec::new();
            while Instant::now() < end {
                let claims = store.claim(&load::claim(batch)?).await?;
                let again = claims.again_in.unwrap_or(POLL);
                done.extend(claims.jobs.iter().filter_map(|one| one.job.started_at));
                let ends: Vec<_> = claims.jobs.into_iter().map(|one| one.lease.complete(None)).collect();
                if ends.is_empty() {
                    tokio::time::sleep(again.min(POLL)).await;
                    continue;
                }
                store.settle(&ends).await?;
            }
            anyhow::Ok(done)
        });
    }
    let mut started = Vec::new();
    while let Some(claimer) = claimers.join_next().await {
        started.extend(claimer??);
    }
    let time = begun.elapsed();
    check_rate(Rate::per_second(starts), &mut started)?;
    Ok(Measurement::new("rate", setting, started.len(), time, Vec::new()))
}

/// Fails if in any interval of length t more than burst + t × count ÷ per jobs started (rule K7).
fn check_rate(rate: Rate, started: &mut [Timestamp]) -> anyhow::Result<()> {
    started.sort_unstable();
    let per_micro = f64::from(rate.count) / rate.per.as_micros() as f64;
    // How many starts a moment is ahead of an even pace; between two moments it may rise by less than the burst.
    let mut least = f64::INFINITY;
    for (place, at) in started.iter().enumerate() {
        let ahead = place as f64 - at.since(started[0]).as_micros() as f64 * per_micro;
        least = least.min(ahead);
        let most = f64::from(rate.burst) + 1e-6;
        anyhow::ensure!(ahead - least + 1.0 <= most, "more starts than {rate} admits up to {at}");
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_starts_than_a_rate_admits_are_found() {
        let rate = Rate::per_second(10).burst(2);
        let checked = |micros: &[i64]| {
            let mut started: Vec<_> = micros.iter().map(|micros| Timestamp::from_micros(*micros)).collect();
            check_rate(rate, &mut started).is_ok()
        };
        assert!(checked(&[]));
        assert!(checked(&[0, 0, 100_000, 200_000]));
        assert!(checked(&[200_000, 0, 0, 100_000]), "in any order");
        assert!(!checked(&[0, 0, 99_999]));
        assert!(!checked(&[0, 500_000, 500_000, 500_000]), "nothing is saved up beyond the burst");
    }
}
