//! `windlass run`: the API, upkeep and webhooks of one store, in one process.
//!
//! `config` says what to do, `listen` takes connections, `guard` decides who may, `health` and `metrics` tell how it
//! goes, `webhook` tells others. What the API does is in `api`.

pub(crate) mod attention;
mod bound;
pub mod config;
pub mod demo;
pub mod flow;
pub mod guard;
mod health;
mod listen;
pub mod logs;
pub mod metrics;
mod presence;
mod recorder;
mod reencrypt;
pub mod signals;
pub mod tls;
pub mod webhook;
mod words;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::Client;
use windlass::job::Limits;
use windlass::store::{self, Store};
use windlass::worker::{Running, upkeep_until};

pub use self::bound::Bounds;

use self::bound::Bound;
use self::config::{Given, Settings};
use self::demo::Demo;
use self::guard::{Apis, Guard, Seen};
use self::health::Health;
use self::metrics::Exporter;
use self::presence::Presence;
use self::recorder::Recorder;
use self::signals::{Asked, Signals};
use self::tls::Tls;
use self::webhook::{Deliverer, SystemLookup};
use self::words::Started;
use crate::api::{self, ApiState, Gone, Reload, Reloads, Reread};
use crate::marked::{self, Owner};

/// How often measured distributions are folded together.
const FOLD_EVERY: Duration = Duration::from_secs(5);

/// Runs a server until a signal, with a demonstration if there is a seed for one; says whether it came to its end in
/// order.
///
/// A SIGHUP lets it read its configuration again, which gives the tokens in force.
pub async fn run(given: Given, settings: Settings, demo: Option<u64>) -> anyhow::Result<bool> {
    let mut signals = Signals::listen()?;
    Settings::warn(&given);
    let mut server = Server::start(settings, demo).await?;
    server.started().say();
    loop {
        tokio::select! {
            asked = signals.next_or_reread() => match asked {
                Asked::Stop => break,
                Asked::Reread => drop(server.reread(&given)),
            },
            Some(answer) = server.reloads.recv() => {
                let _ = answer.send(server.reread(&given));
            }
        }
    }
    words::say_stopping(server.running());
    let in_order = tokio::select! {
        biased;
        abandoned = server.stop() => {
            words::say_done(abandoned);
            true
        }
        // An operator who asks twice does not want to wait; leases expire, and nothing that was acknowledged is lost.
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
    guard: Arc<Guard>,
    tls: Option<Arc<Tls>>,
    reloads: Reloads,
}

impl Server {
    async fn start(settings: Settings, seed: Option<u64>) -> anyhow::Result<Self> {
        let handle = metrics::install()?;
        let store = match seed {
            // It removes what has ended within minutes: never what others put there.
            Some(_) => marked::open(&settings.store, Owner::Demo).await?,
            None => {
                marked::refuse_foreign_file(&settings.store)?;
                let opened = store::open(&settings.store).await;
                crate::moved::followed(opened.with_context(|| format!("cannot open {}", settings.store_shown()))?)
            }
        };
        // A demonstration has nothing to hide, and a second process that works on the same store.
        let store = crate::keys::over(store, settings.keys.clone().filter(|_| seed.is_none()));
        let client = Client::with_store(Arc::clone(&store));
        let client = client.limits(Limits::with_payload_bytes(settings.limits.payload_bytes)?);
        let client = client.policies(settings.policies.clone());
        let tls = settings.tls.clone().map(Tls::read).transpose()?.map(Arc::new);
        let (listener, moved) = listen::bind(&settings).await?;
        let listen = listener.local_addr().context("cannot tell the address")?;
        let (stopping, cut) = (CancellationToken::new(), CancellationToken::new());
        let health = Health::new(Arc::clone(&store), stopping.clone()).tell_place(settings.tokens.is_empty());
        let exporter = Exporter::new(handle, Arc::clone(&store));
        let (reload, reloads) = Reload::new();
        let gone = Arc::new(Gone::default());
        let apis = apis(&client, &settings, &stopping, reload, &gone);
        // They end by themselves when the server stops.
        tokio::spawn(gone.watch(Arc::clone(&store), stopping.clone()));
        tokio::spawn(Recorder::default().run(Arc::clone(&store), stopping.clone()));
        tokio::spawn(reencrypt::run(Arc::clone(&store), settings.read_only, stopping.clone()));
        let guard = Arc::new(Guard::new(&settings, apis, health, exporter, stopping.clone())?);
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
        if let Some(tls) = tls.clone() {
            let stopping = stopping.clone();
            tokio::spawn(async move { tls.keep_reading(stopping).await });
        } else if !listen.ip().is_loopback() {
            tracing::warn!(
                "tokens travel over plain HTTP: put a proxy with TLS before it, or name a certificate in [tls]"
            );
        }
        let serving =
            listen::serve(listener, Arc::clone(&guard), tls.clone(), settings.limits, stopping.clone(), cut.clone());
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
            guard,
            tls,
            reloads,
            settings,
        })
    }

    fn started(&self) -> Started {
        Started {
            store: self.settings.store_shown(),
            kind: self.kind,
            listen: self.listen,
            scheme: if self.tls.is_some() { "https" } else { "http" },
            moved_from: self.moved_from,
            token_needed: !self.settings.tokens.is_empty(),
            webhooks: !self.settings.webhooks.secrets.is_empty(),
            base: self.settings.base.clone(),
            program: std::env::args().next().unwrap_or_else(|| "windlass".to_owned()),
            demo: self.demo.as_ref().map(|_| demo::RATE),
        }
    }

    /// Takes the tokens of the configuration as it is now. A configuration that is no good changes nothing.
    fn reread(&self, given: &Given) -> Reread {
        if let Some(tls) = &self.tls {
            tls.reread();
        }
        match Settings::new(given.clone()) {
            // Without a token anybody may do everything: not by a slip in a file.
            Ok(read) if read.tokens.is_empty() && self.guard.asks_for_tokens() => {
                let why = "the configuration has no token any more; those from before stay in force";
                tracing::error!("{why}");
                Err(why.to_owned())
            }
            Ok(read) => {
                let tokens = read.tokens.iter().count();
                self.guard.replace_tokens(read.tokens);
                tracing::info!(
                    tokens,
                    "the configuration was read again; tokens are in force, the rest at the next start"
                );
                Ok(tokens)
            }
            Err(error) => {
                let why = "the configuration cannot be read again; what was in force stays so";
                tracing::error!(error = format!("{error:#}"), "{why}");
                Err(format!("{why}; the server's log says more"))
            }
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

/// The API on the store itself, and on what a token sees of it.
fn apis(client: &Client, settings: &Settings, stopping: &CancellationToken, reload: Reload, gone: &Arc<Gone>) -> Apis {
    // Only what comes over the API: workers of this process are counted where they run.
    let presence = Presence::over(Arc::clone(client.store()));
    let (limits, policies) = (*client.limits_in_force(), settings.policies.clone());
    let client = Client::with_store(Arc::new(presence)).limits(limits).policies(policies);
    let state = ApiState::new(client.clone()).stopping(stopping.clone()).body_bytes(settings.limits.batch_bytes);
    let state = state.reload(reload).gone(Arc::clone(gone));
    Apis::new(api::router(state.clone()), move |&Seen { name, whole, bounds, hides }| {
        if whole {
            return api::router(state.with_client(client.clone().submitted_by(name)));
        }
        let seen = Bound { inner: Arc::clone(client.store()), bounds: bounds.clone(), hides };
        let (limits, policies) = (*client.limits_in_force(), bounds.policies(client.policies_in_force()));
        let client = Client::with_store(Arc::new(seen)).limits(limits).policies(policies);
        api::router(state.on(client.submitted_by(name)))
    })
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
