//! `windlass run --demo`: a store of its own with work in it, so that the first screen moves. No other store will do
//! (`marked.rs`).
//!
//! A steady stream of jobs, a workflow every twenty seconds, a schedule every ten, and a second worker process that is
//! killed without warning every 45 seconds, so that leases expire and jobs are taken over. Nothing of it is special:
//! it uses the library as any program would.

mod jobs;

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::store::Retention;
use windlass::worker::{Running, Stop};
use windlass::workflow::chord;
use windlass::{Client, Schedule, Worker, Workflow};

use self::jobs::Seed;
use crate::marked::{self, Owner};

/// The store unless another is given.
pub const STORE: &str = "sqlite:windlass-demo.db";
/// Jobs of the stream a second.
pub const RATE: u32 = 30;
/// How long ended jobs are kept: the file stays small.
const KEPT: Duration = Duration::from_secs(300);
/// Jobs of the stream at a time.
const BATCH: u64 = 3;
const WORKFLOW_EVERY: Duration = Duration::from_secs(20);
const WORKFLOW_PAGES: u64 = 10;
const SCHEDULE_EVERY: Duration = Duration::from_secs(10);
/// How long the second worker process lives.
const KILLED_AFTER: Duration = Duration::from_secs(45);
/// How long it is missed before there is another.
const MISSED: Duration = Duration::from_secs(3);
/// How long it may take to end in order.
const PATIENCE: Duration = Duration::from_secs(8);

/// How long ended jobs are kept in the demonstration.
pub fn retention() -> Retention {
    let kept = Some(KEPT);
    Retention { completed: kept, cancelled: kept, failed: kept, dead_letter: kept }
}

/// A demonstration under way.
#[derive(Debug)]
pub(super) struct Demo {
    stopping: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Demo {
    /// Starts the stream, the workflows and the process that is killed; the worker of this process comes beside it.
    pub(super) async fn start(client: &Client, store: &str, seed: u64) -> anyhow::Result<(Self, Running)> {
        let digest = jobs::job(jobs::EMAIL, "mail", 0)?.tag("digest", "true");
        let schedule = Schedule::every("demo-digest", SCHEDULE_EVERY, digest)?;
        let running = worker(client, Seed(seed)).schedule(schedule).start().await?;
        let stopping = CancellationToken::new();
        let (stream, flows) = (client.clone(), client.clone());
        let victims = Victims { store: store.to_owned(), seed, stopping: stopping.clone() };
        let tasks = vec![
            tokio::spawn(until(stopping.clone(), async move { keep_enqueueing(&stream, Seed(seed)).await })),
            tokio::spawn(until(stopping.clone(), async move { keep_starting(&flows).await })),
            // It ends by itself, with the process it started.
            tokio::spawn(victims.keep_killing()),
        ];
        Ok((Demo { stopping, tasks }, running))
    }

    /// Stops the stream and ends the second process in order.
    pub(super) async fn stop(self) {
        self.stopping.cancel();
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

fn worker(client: &Client, seed: Seed) -> Worker<Seed> {
    let worker =
        jobs::QUEUES.into_iter().fold(Worker::new(client), |worker, (queue, slots)| worker.queue(queue, slots));
    jobs::handlers(worker.retention(retention()).grace(Duration::from_secs(5)).with_state(seed))
}

/// The second worker process: works until its standard input closes, or until it is killed.
pub async fn work(store: &str, seed: u64) -> anyhow::Result<()> {
    let client = Client::with_store(marked::open(store, Owner::Demo).await?);
    let running = worker(&client, Seed(seed)).start().await?;
    // Nobody writes: this ends when the parent process is gone, however it went.
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().lock().read(&mut [0; 1])).await;
    let stop: Stop = running.stop_handle();
    stop.gracefully();
    running.ended().await;
    Ok(())
}

async fn until(stopping: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stopping.cancelled() => {}
        () = work => {}
    }
}

async fn keep_enqueueing(client: &Client, seed: Seed) {
    let pause = Duration::from_secs(BATCH) / RATE;
    let mut ticks = tokio::time::interval(pause);
    // After a stall there is no flood.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut number = 0;
    loop {
        ticks.tick().await;
        let jobs = (number..number + BATCH).map(|number| seed.job(number)).collect::<windlass::Result<Vec<_>>>();
        number += BATCH;
        let enqueued = match jobs {
            Ok(jobs) => client.enqueue_all(jobs).await.map(|_| ()),
            Err(error) => Err(error),
        };
        if let Err(error) = enqueued {
            tracing::warn!(%error, "the demonstration cannot enqueue; trying again");
        }
    }
}

async fn keep_starting(client: &Client) {
    let mut ticks = tokio::time::interval(WORKFLOW_EVERY);
    for number in 0.. {
        ticks.tick().await;
        let started = async {
            let page = |page| jobs::job(jobs::PAGE, "billing", number * WORKFLOW_PAGES + page);
            let pages = (0..WORKFLOW_PAGES).map(page).collect::<windlass::Result<Vec<_>>>()?;
            let mut flow = Workflow::new(format!("report-{number}"));
            let publish = jobs::job(jobs::PUBLISH, "billing", number)?;
            flow.piece(chord(pages, publish));
            client.start(flow).await
        };
        if let Err(error) = started.await {
            tracing::warn!(%error, "the demonstration cannot start a workflow; trying again");
        }
    }
}

/// Starts a worker process and kills it, over and over.
struct Victims {
    store: String,
    seed: u64,
    stopping: CancellationToken,
}

impl Victims {
    async fn keep_killing(self) {
        loop {
            let mut child = match self.start() {
                Ok(child) => child,
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "no second worker process");
                    return;
                }
            };
            if tokio::time::timeout(KILLED_AFTER, self.stopping.cancelled()).await.is_ok() {
                drop(child.stdin.take());
                let _ = tokio::time::timeout(PATIENCE, child.wait()).await;
                return;
            }
            tracing::info!(process = child.id(), "killing a worker process; its jobs are taken over");
            let _ = child.kill().await;
            if tokio::time::timeout(MISSED, self.stopping.cancelled()).await.is_ok() {
                return;
            }
        }
    }

    fn start(&self) -> anyhow::Result<Child> {
        let program = std::env::current_exe().context("cannot tell the program's own path")?;
        let mut command = Command::new(program);
        command
            .args(["demo-worker", "--seed", &self.seed.to_string()])
            // Not among the arguments, which everybody on the machine can read.
            .env("WINDLASS_STORE", &self.store)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        command.spawn().context("cannot start it")
    }
}
