//! Fair turns, as a tenant with few jobs sees them behind one with very many.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use windlass::store::Store;
use windlass::workflow::Submission;
use windlass::{Client, Context, Worker};

use super::measure::{Measurement, Setting};
use super::{keyed, load, runtime};

/// Jobs of the key that is measured.
const FEW: usize = 10;
/// Jobs of the other key unless `--backlog` says otherwise.
const MANY: usize = 100_000;
/// How many jobs are stored in one call.
const BATCH: usize = 1000;
const FEW_KEY: &str = "few";

type Started = mpsc::UnboundedSender<Instant>;

/// From the enqueueing of the few jobs, or from the start of a worker after that, to the start of each of them.
pub(super) async fn late(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    keyed::put(store.as_ref(), setting.flow.control()).await?;
    let (told, mut heard) = mpsc::unbounded_channel();
    let mut running = None;
    if !setting.flow.started_after {
        running = Some(worker(&store, setting, told.clone()).start().await?);
    }
    let spec = load::spec(setting)?;
    let keyed = |key: &str, jobs: usize| {
        let mut spec = spec.clone();
        spec.options.key = Some(key.to_owned());
        Submission::new(vec![spec; jobs])
    };
    let many = if setting.backlog == 0 { MANY } else { setting.backlog };
    for _ in 0..many.div_ceil(BATCH) {
        store.insert(keyed("many", BATCH)?).await?;
    }
    let mut begun = Instant::now();
    store.insert(keyed(FEW_KEY, FEW)?).await?;
    if setting.flow.started_after {
        begun = Instant::now();
        running = Some(worker(&store, setting, told).start().await?);
    }
    let mut calls = Vec::new();
    while calls.len() < FEW {
        let started = tokio::time::timeout(setting.time, heard.recv()).await;
        let Ok(Some(at)) = started else { anyhow::bail!("only {} of {FEW} jobs started", calls.len()) };
        calls.push(at.saturating_duration_since(begun));
    }
    let time = begun.elapsed();
    if let Some(running) = running {
        running.stop().await;
    }
    Ok(Measurement::new("late", setting, FEW, time, calls))
}

/// A worker that tells when jobs of the few start.
fn worker(store: &Arc<dyn Store>, setting: &Setting, told: Started) -> Worker<Started> {
    let worker = Worker::new(&Client::with_store(Arc::clone(store))).queue(load::QUEUE, setting.slots);
    let takes = setting.handler;
    runtime::with_prefetch(worker, setting).with_state(told).handle_raw(
        "bench",
        move |_, cx: Context<Started>| async move {
            if cx.job().spec.options.key.as_deref() == Some(FEW_KEY) {
                cx.state.send(Instant::now())?;
            }
            runtime::pass(takes).await;
            Ok(())
        },
    )
}
