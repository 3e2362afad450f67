//! One process of a run. The `windlass-torture` binary starts itself again as each of them.
//!
//! What a process is to do stands in an environment variable, because a store's URL may hold a password and arguments
//! are seen by everybody. A process goes when it is told to, when its parent is gone, or when it is killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use windlass::store::{self, Store};

use super::actors::{self, Recent, Tempo};
use super::faults::{Fault, Kind};
use super::history::{Event, Log};
use super::recording::Recording;

/// The environment variable that says what a process is to do.
pub const VARIABLE: &str = "WINDLASS_TORTURE_PROCESS";
/// How many producers are in a process of them.
const PRODUCERS: usize = 3;
/// How many zombies live in a process of them.
const ZOMBIES: usize = 3;
/// How long opening the store is tried: it may be down just now.
const OPEN_PATIENCE: Duration = Duration::from_secs(20);

/// What a process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Runs jobs.
    Worker,
    /// Enqueues jobs and operates on them; the number makes its jobs differ from those of others.
    Producer(usize),
    /// Settles long after its leases have ended.
    Zombie,
    /// Disturbs a SQLite file, as the plan says.
    Disturber(Vec<Fault>),
}

impl Role {
    fn name(&self) -> &'static str {
        match self {
            Role::Worker => "worker",
            Role::Producer(_) => "producer",
            Role::Zombie => "zombie",
            Role::Disturber(_) => "disturber",
        }
    }
}

/// Everything a process must know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// What it does.
    pub role: Role,
    /// Its name, new at every start.
    pub name: String,
    /// The store's URL.
    pub store: String,
    /// The folder of the histories.
    pub folder: PathBuf,
    /// The seed of the run.
    pub seed: u64,
    /// How long a worker's lease holds, in milliseconds.
    pub lease_millis: u64,
    /// Between two calls of a producer, in milliseconds.
    pub pause_millis: u64,
}

/// Does what the environment says.
pub async fn main() -> anyhow::Result<()> {
    let orders = std::env::var(VARIABLE).with_context(|| format!("{VARIABLE} does not say what to do"))?;
    let orders: Orders = serde_json::from_str(&orders).context("cannot read what to do")?;
    go_with_parent();
    let log = Arc::new(Log::create(&orders.folder, &orders.name)?);
    log.write(Event::Started { role: orders.role.name().to_owned(), pid: std::process::id() });
    let mut told = signal(SignalKind::terminate())?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        told.recv().await;
        stopped.cancel();
    });
    match &orders.role {
        Role::Disturber(faults) => disturb(&orders, faults, &log, &stop).await?,
        role => take_part(role, &orders, &log, stop).await?,
    }
    log.write(Event::Stopped);
    Ok(())
}

/// Ends this process when the one that started it is gone, however it went and whatever this one is doing.
fn go_with_parent() {
    #[cfg(target_os = "linux")]
    {
        // Without it the pipe below still tells, unless this process is being stalled.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    }
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
}

async fn take_part(role: &Role, orders: &Orders, log: &Arc<Log>, stop: CancellationToken) -> anyhow::Result<()> {
    let Some(opened) = open(&orders.store, &stop).await? else { return Ok(()) };
    let store: Arc<dyn Store> = Arc::new(Recording::new(opened, Arc::clone(log)));
    let tempo =
        Tempo { lease: Duration::from_millis(orders.lease_millis), pause: Duration::from_millis(orders.pause_millis) };
    let seed = orders.seed;
    match role {
        Role::Worker => {
            let running = actors::work(store, Arc::clone(log), tempo, true).await?;
            stop.cancelled().await;
            running.stop().await;
        }
        Role::Producer(number) => {
            let recent = Recent::default();
            let produce = |task| {
                let number = number * PRODUCERS + task;
                actors::produce(Arc::clone(&store), seed, number, tempo, Arc::clone(&recent), stop.clone())
            };
            let producing = futures_util::future::join_all((0..PRODUCERS).map(produce));
            let seed = seed ^ u64::try_from(*number).unwrap_or_default();
            let operating = actors::operate(Arc::clone(&store), seed, tempo, Arc::clone(&recent), stop.clone());
            tokio::join!(producing, operating);
        }
        Role::Zombie => {
            let haunt = |number| actors::haunt(Arc::clone(&store), Arc::clone(log), number, seed, tempo, stop.clone());
            futures_util::future::join_all((0..ZOMBIES).map(haunt)).await;
        }
        Role::Disturber(_) => unreachable!("it opens no store"),
    }
    Ok(())
}

/// Opens the store, again and again while it is away; `None` when there is no more need to.
async fn open(url: &str, stop: &CancellationToken) -> anyhow::Result<Option<Arc<dyn Store>>> {
    let since = Instant::now();
    loop {
        match store::open(url).await {
            Ok(store) => return Ok(Some(store)),
            Err(_) if stop.is_cancelled() => return Ok(None),
            Err(error) if since.elapsed() > OPEN_PATIENCE => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Disturbs a SQLite file as another program would.
async fn disturb(orders: &Orders, faults: &[Fault], log: &Arc<Log>, stop: &CancellationToken) -> anyhow::Result<()> {
    let path = orders.store.strip_prefix("sqlite:").unwrap_or_default();
    let path = path.strip_prefix("//").unwrap_or(path).to_owned();
    let begun = Instant::now();
    let lease = Duration::from_millis(orders.lease_millis);
    for fault in faults {
        let wait = fault.at.saturating_sub(begun.elapsed());
        if tokio::time::timeout(wait, stop.cancelled()).await.is_ok() {
            break;
        }
        let (path, fault, log) = (path.clone(), *fault, Arc::clone(log));
        tokio::task::spawn_blocking(move || disturb_once(&path, fault, lease, &log)).await??;
    }
    Ok(())
}

fn disturb_once(path: &str, fault: Fault, lease: Duration, log: &Log) -> rusqlite::Result<()> {
    let conn = rusqlite::Connection::open(path)?;
    conn.busy_timeout(Duration::from_secs(10))?;
    let note = || log.write(Event::Fault { kind: fault.kind.as_str().to_owned(), target: None });
    let hold = |most: f64| std::thread::sleep(lease.mul_f64(0.05 + fault.length * most));
    match fault.kind {
        Kind::HoldLock => {
            conn.execute_batch("begin immediate")?;
            note();
            // Seldom longer than a lease: nobody else gets anything done meanwhile.
            hold(if fault.target.is_multiple_of(8) { 1.5 } else { 0.4 });
            conn.execute_batch("rollback")
        }
        Kind::HoldSnapshot => {
            conn.execute_batch("begin")?;
            conn.query_row("select count(*) from sqlite_master", [], |row| row.get::<_, i64>(0))?;
            note();
            hold(2.0);
            conn.execute_batch("rollback")
        }
        _ => {
            note();
            // One that finds the file busy does what it can; either is what is wanted.
            conn.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))
        }
    }
}
