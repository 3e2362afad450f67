//! Workers in processes of their own, as most are: this program again, told to be one.
//!
//! Where times are measured, a worker process writes a line for each job that it starts: its id and the moment. Processes
//! of one machine share its clock, so the moments can be compared.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use windlass::store::Store;
use windlass::workflow::Submission;
use windlass::{Client, JobId, State};

use super::load;
use super::measure::{Measurement, Setting};
use super::runtime;

/// What a worker process writes once it serves.
const READY: &str = "ready";
/// How long a worker process may take until it serves.
const START_MAX: Duration = Duration::from_secs(30);
/// How long the last jobs may take to start after the last one was stored.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Serves until standard input ends: what a worker process does.
pub(super) async fn serve(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<()> {
    let client = Client::with_store(store);
    let tells = setting.rate > 0.0;
    let running = runtime::with_prefetch(windlass::Worker::new(&client), setting)
        .with_state(tells)
        .queue(load::QUEUE, setting.slots)
        .handle_raw("bench", async |_, cx: windlass::Context<bool>| {
            if *cx.state {
                println!("{} {}", cx.job().id, micros());
            }
            Ok(())
        })
        .start()
        .await?;
    println!("{READY}");
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    running.stop().await;
    Ok(())
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Worker processes, and when jobs started in them.
struct Workers {
    children: Vec<Child>,
    started: mpsc::UnboundedReceiver<(JobId, u64)>,
}

impl Workers {
    /// Starts them; with a rate they tell when jobs start.
    async fn start(setting: &Setting, rate: f64) -> anyhow::Result<Self> {
        let (told, started) = mpsc::unbounded_channel();
        let mut children = Vec::new();
        for _ in 0..setting.processes {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["bench", "serve", "--slots", &setting.slots.to_string(), "--rate", &rate.to_string()]);
            if let Some(prefetch) = setting.prefetch {
                command.args(["--prefetch", &prefetch.to_string()]);
            }
            // Not as an argument, which others on the machine can see.
            command.env("WINDLASS_STORE", &setting.store).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.kill_on_drop(true).spawn().context("cannot start a worker process")?;
            let out = child.stdout.take().context("a worker process has no output")?;
            let mut lines = BufReader::new(out).lines();
            let ready = tokio::time::timeout(START_MAX, lines.next_line()).await.context("a worker process hangs")?;
            anyhow::ensure!(ready?.as_deref() == Some(READY), "a worker process does not serve");
            let told = told.clone();
            tokio::spawn(async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    let Some((id, at)) = line.split_once(' ') else { continue };
                    if let (Ok(id), Ok(at)) = (id.parse(), at.parse()) {
                        let _ = told.send((id, at));
                    }
                }
            });
            children.push(child);
        }
        Ok(Workers { children, started })
    }

    /// Lets them finish what they run.
    async fn stop(mut self) -> anyhow::Result<()> {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        for child in &mut self.children {
            child.wait().await?;
        }
        Ok(())
    }
}

/// From the moment that enqueue returned to the first line of the handler in another process, at `--rate` jobs a second.
pub(super) async fn idle(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    anyhow::ensure!(setting.backlog == 0, "an idle worker needs an empty queue: leave out --backlog");
    let mut workers = Workers::start(setting, setting.rate).await?;
    let spec = load::spec(setting)?;
    let every = Duration::from_secs_f64(1.0 / setting.rate.max(0.01));
    let start = Instant::now();
    let (mut returned, mut next) = (HashMap::new(), tokio::time::Instant::now());
    while start.elapsed() < setting.time {
        next += every;
        tokio::time::sleep_until(next).await;
        let stored = store.insert(Submission::new(vec![spec.clone()])?).await?.jobs;
        returned.extend(stored.iter().map(|job| (job.id, micros())));
    }
    let time = start.elapsed();
    let mut calls = Vec::with_capacity(returned.len());
    while calls.len() < returned.len() {
        let heard = tokio::time::timeout(LAST_WAIT, workers.started.recv()).await;
        let Ok(Some((id, at))) = heard else {
            anyhow::bail!("only {} of {} jobs started", calls.len(), returned.len())
        };
        // One that started before enqueue had returned waited for nothing.
        calls.extend(returned.get(&id).map(|returned| Duration::from_micros(at.saturating_sub(*returned))));
    }
    workers.stop().await?;
    Ok(Measurement::new("idle", setting, calls.len(), time, calls))
}

/// Worker processes run what waits, or what producers in this process store, until the time is over.
pub(super) async fn run(op: &str, store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    let completed = async || -> anyhow::Result<u64> {
        Ok(store.observe(None).await.map(|seen| seen.totals())?.states[usize::from(State::Completed.number())])
    };
    let waits = if op == "drain" { load::backlog(store.as_ref(), setting).await? } else { 0 };
    let before = completed().await?;
    let start = Instant::now();
    let workers = Workers::start(setting, 0.0).await?;
    let producing = runtime::produce_until_dropped(&store, setting, op == "work")?;
    while start.elapsed() < setting.time && (waits == 0 || completed().await? - before < waits as u64) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(producing);
    let (jobs, time) = (completed().await? - before, start.elapsed());
    workers.stop().await?;
    Ok(Measurement::new(op, setting, usize::try_from(jobs).unwrap_or(usize::MAX), time, Vec::new()))
}
