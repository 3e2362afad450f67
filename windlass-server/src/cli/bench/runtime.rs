//! The worker runtime on a store: the same measurements as of the bare store, with a `Worker` in place of the loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use windlass::store::Store;
use windlass::workflow::Submission;
use windlass::{Client, Context, Worker};

use super::load;
use super::measure::{Measurement, PAUSE, Setting};

/// How far producers may run ahead of the worker, in jobs for each slot.
const AHEAD: usize = 20;
/// How long a worker may take for what is waiting before the measurement is given up.
const GIVEN_UP: Duration = Duration::from_secs(120);

/// What the no-op handlers count.
#[derive(Default)]
struct Count {
    done: AtomicUsize,
    wanted: AtomicUsize,
    reached: Notify,
}

impl Count {
    fn add(&self) {
        if self.done.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }
}

fn worker(store: &Arc<dyn Store>, setting: &Setting, count: Arc<Count>) -> Worker<Arc<Count>> {
    let worker = Worker::new(&Client::with_store(Arc::clone(store))).queue(load::QUEUE, setting.slots);
    let takes = setting.handler;
    with_prefetch(worker, setting).with_state(count).handle_raw("bench", move |_, cx: Context<Arc<Count>>| async move {
        pass(takes).await;
        cx.state.add();
        Ok(())
    })
}

/// What a handler that takes a while does.
pub(super) async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// The same worker, claiming ahead as the setting says.
pub(super) fn with_prefetch(worker: Worker, setting: &Setting) -> Worker {
    match setting.prefetch {
        Some(jobs) => worker.prefetch(jobs),
        None => worker,
    }
}

/// A worker runs what waits; the last settlement included.
pub(super) async fn drain(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    let count = Arc::new(Count::default());
    count.wanted.store(setting.waiting, Ordering::Relaxed);
    let start = Instant::now();
    let running = worker(&store, setting, Arc::clone(&count)).start().await?;
    tokio::select! {
        () = count.reached.notified() => {}
        () = tokio::time::sleep(setting.time) => {}
    }
    // Stopping lets what runs finish and settles it.
    let settled = running.stop().await.settled;
    Ok(Measurement::new("drain", setting, settled, start.elapsed(), Vec::new()))
}

/// Producers store batches of `--batch` while a worker runs them.
pub(super) async fn work(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    let count = Arc::new(Count::default());
    let running = worker(&store, setting, Arc::clone(&count)).start().await?;
    let (made, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let specs = vec![load::spec(setting)?; setting.batch];
    let mut producers = JoinSet::new();
    let start = Instant::now();
    for _ in 0..setting.callers {
        let (store, specs, count, made, over) =
            (store.clone(), specs.clone(), count.clone(), made.clone(), over.clone());
        let ahead = setting.slots * AHEAD;
        producers.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                if made.load(Ordering::Relaxed).saturating_sub(count.done.load(Ordering::Relaxed)) > ahead {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                made.fetch_add(store.insert(Submission::new(specs.clone())?).await?.jobs.len(), Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    tokio::time::sleep(setting.time).await;
    over.store(true, Ordering::Relaxed);
    while let Some(producer) = producers.join_next().await {
        producer??;
    }
    let settled = running.stop().await.settled;
    Ok(Measurement::new("work", setting, settled, start.elapsed(), Vec::new()))
}

/// Stores batches of `--batch`, with `--callers` at once, until it is dropped; stores nothing unless `wanted`.
pub(super) fn produce_until_dropped(
    store: &Arc<dyn Store>,
    setting: &Setting,
    wanted: bool,
) -> anyhow::Result<JoinSet<()>> {
    let specs = vec![load::spec(setting)?; setting.batch];
    let mut producers = JoinSet::new();
    for _ in 0..if wanted { setting.callers } else { 0 } {
        let (store, submission) = (store.clone(), Submission::new(specs.clone())?);
        producers.spawn(async move {
            loop {
                if let Err(error) = store.insert(submission.clone()).await {
                    tracing::error!(%error, "cannot enqueue");
                    return;
                }
            }
        });
    }
    Ok(producers)
}

/// From the call of enqueue to the first line of the handler, in an idle worker.
pub(super) async fn idle(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    anyhow::ensure!(setting.backlog == 0, "an idle worker needs an empty queue: leave out --backlog");
    let (told, mut heard) = mpsc::unbounded_channel();
    let client = Client::with_store(Arc::clone(&store));
    let worker = with_prefetch(Worker::new(&client), setting).queue(load::QUEUE, setting.slots);
    let running = worker
        .with_state(told)
        .handle_raw("bench", async |_, cx: Context<mpsc::UnboundedSender<Instant>>| {
            cx.state.send(Instant::now())?;
            Ok(())
        })
        .start()
        .await?;
    let spec = load::spec(setting)?;
    let (start, mut calls) = (Instant::now(), Vec::new());
    while start.elapsed() < setting.time {
        tokio::time::sleep(PAUSE).await;
        let called = Instant::now();
        store.insert(Submission::new(vec![spec.clone()])?).await?;
        let Some(begun) = heard.recv().await else { break };
        calls.push(begun.duration_since(called));
    }
    let time = start.elapsed();
    running.stop().await;
    Ok(Measurement::new("idle", setting, calls.len(), time, calls))
}

/// `--slots` jobs in flight at once, their handlers waiting; the memory is what is of interest.
pub(super) async fn hold(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    load::waiting(store.as_ref(), setting.slots, setting).await?;
    let count = Arc::new(Count::default());
    count.wanted.store(setting.slots, Ordering::Relaxed);
    let start = Instant::now();
    let running = Worker::new(&Client::with_store(Arc::clone(&store)))
        .with_state(Arc::clone(&count))
        .queue(load::QUEUE, setting.slots)
        .handle_raw("bench", async |_, cx: Context<Arc<Count>>| {
            cx.state.add();
            cx.cancelled().await;
            Ok(())
        })
        .grace(Duration::from_secs(1))
        .start()
        .await?;
    let all = tokio::time::timeout(GIVEN_UP, count.reached.notified()).await;
    anyhow::ensure!(all.is_ok(), "only {} handlers have begun", count.done.load(Ordering::Relaxed));
    let begun = start.elapsed();
    // Heartbeats for all of them go on meanwhile.
    tokio::time::sleep(setting.time).await;
    let measured = Measurement::new("hold", setting, setting.slots, begun, Vec::new());
    running.stop().await;
    Ok(measured)
}
