//! `windlass run`: the API, upkeep and webhooks of one store, in one process.
//!
//! `config` says what to do, `listen` takes connections, `guard` decides who may, `health` and `metrics` tell how it
//! goes, `webhook` tells others. What the API does is in `api`.

pub mod config;
pub mod demo;
pub mod guard;
mod health;
mod listen;
pub mod logs;
pub mod metrics;
pub mod signals;
pub mod webhook;
mod words;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::store::{self, Store};
use windlass::worker::{Running, upkeep_until};
use windlass::{Client, Limits};

use self::config::Settings;
use self::demo::Demo;
use self::guard::Guard;
use self::health::Health;
use self::metrics::Exporter;
use self::signals::Signals;
use self::webhook::{Deliverer, SystemLookup};
use self::words::Started;
use crate::api::{self, ApiState};

/// How often measured distributions are folded together.
const FOLD_EVERY: Duration = Duration::from_secs(5);

/// Runs a server until a signal, with a demonstration if there is a seed for one; says whether it came to its end in
/// order.
pub async fn run(settings: Settings, demo: Option<u64>) -> anyhow::Result<bool> {
    let mut signals = Signals::listen()?;
    let server = Server::start(settings, demo).await?;
    server.started().say();
    signals.next().await;
    words::say_stopping(server.running());
    let in_order = tokio::select! {
        biased;
        abandoned = server.stop() => {
            words::say_done(abandoned);
            true
        }
        // Whoever asks twice does not want to wait; leases expire, and nothing that was acknowledged is lost.
        () = signals.next() => false,
    };
    Ok(in_order)
}

/// A server that runs.
struct Server {
    settings: Settings,
    kind: &'static str,
    listen: std::net::SocketAddr,
    moved_from: Option<u16>,
    stopping: CancellationToken,
    cut: CancellationToken,
    serving: JoinHandle<()>,
    upkeep: JoinHandle<()>,
    workers: Vec<Running>,
    demo: Option<Demo>,
}

impl Server {
    async fn start(settings: Settings, seed: Option<u64>) -> anyhow::Result<Self> {
        let handle = metrics::install()?;
        let opened = store::open(&settings.store).await;
        let store = opened.with_context(|| format!("cannot open {}", settings.store_shown()))?;
        let client = Client::with_store(Arc::clone(&store));
        let client = client.limits(Limits::with_payload_bytes(settings.limits.payload_bytes)?);
        let (listener, moved) = listen::bind(&settings).await?;
        let listen = listener.local_addr().context("cannot tell the address")?;
        let (stopping, cut) = (CancellationToken::new(), CancellationToken::new());
        let health = Health::new(Arc::clone(&store), stopping.clone());
        let exporter = Exporter::new(handle, Arc::clone(&store));
        let api = ApiState::new(client.clone()).stopping(stopping.clone()).body_bytes(settings.limits.batch_bytes);
        let guard = Arc::new(Guard::new(&settings, api::router(api), health, exporter, stopping.clone()));
        let upkeep =
            tokio::spawn(keep_up(Arc::clone(&store), Arc::clone(&guard), settings.retention, stopping.clone()));
        let mut workers = Vec::new();
        workers.extend(webhooks(&settings, &client).await?);
        let mut demo = None;
        if let Some(seed) = seed {
            let (started, running) = Demo::start(&client, &settings.store, seed).await?;
            demo = Some(started);
            workers.push(running);
        }
        let serving = listen::serve(listener, guard, settings.limits, stopping.clone(), cut.clone());
        tracing::info!(%listen, store = settings.store_shown(), "started");
        Ok(Server {
            kind: store.kind(),
            listen,
            moved_from: moved.then_some(settings.listen.port()),
            stopping,
            cut,
            serving: tokio::spawn(serving),
            upkeep,
            workers,
            demo,
            settings,
        })
    }

    fn started(&self) -> Started {
        Started {
            store: self.settings.store_shown(),
            kind: self.kind,
            listen: self.listen,
            moved_from: self.moved_from,
            token_needed: !self.settings.tokens.is_empty(),
            webhooks: !self.settings.webhooks.secrets.is_empty(),
            program: std::env::args().next().unwrap_or_else(|| "windlass".to_owned()),
            demo: self.demo.as_ref().map(|_| demo::RATE),
        }
    }

    fn running(&self) -> usize {
        self.workers.iter().map(Running::busy).sum()
    }

    /// Stops in order; gives how many jobs were left for others.
    async fn stop(self) -> usize {
        let Server { settings, stopping, cut, mut serving, upkeep, workers, demo, .. } = self;
        stopping.cancel();
        let stops: Vec<_> = workers.iter().map(Running::stop_handle).collect();
        stops.iter().for_each(windlass::worker::Stop::gracefully);
        if let Some(demo) = demo {
            demo.stop().await;
        }
        let mut abandoned = 0;
        for worker in workers {
            let stopped = worker.ended().await;
            abandoned += stopped.abandoned + stopped.interrupted + stopped.dropped;
        }
        if tokio::time::timeout(settings.grace, &mut serving).await.is_err() {
            tracing::warn!("requests are cut off: the grace period is over");
            cut.cancel();
            let _ = serving.await;
        }
        let _ = upkeep.await;
        tracing::info!(abandoned, "stopped");
        abandoned
    }
}

/// The upkeep of the store, and of what was measured.
async fn keep_up(store: Arc<dyn Store>, guard: Arc<Guard>, retention: store::Retention, stopping: CancellationToken) {
    let fold = async {
        loop {
            tokio::time::sleep(FOLD_EVERY).await;
            guard.fold_metrics();
        }
    };
    tokio::select! {
        () = upkeep_until(&*store, retention, stopping.cancelled()) => {}
        () = fold => {}
    }
}

/// The worker that delivers webhooks, where there is a secret to sign them with.
async fn webhooks(settings: &Settings, client: &Client) -> anyhow::Result<Option<Running>> {
    if settings.webhooks.secrets.is_empty() {
        tracing::info!("no webhooks are delivered: webhooks.secrets is empty");
        return Ok(None);
    }
    let deliverer = Deliverer::new(settings.webhooks.clone(), Arc::new(SystemLookup))?;
    // The server does the upkeep itself.
    let worker = deliverer.worker(client).without_upkeep();
    let worker = worker.grace(webhook::grace(&settings.webhooks, settings.grace));
    Ok(Some(worker.start().await.context("cannot start the delivery of webhooks")?))
}

#[cfg(test)]
mod tests;
