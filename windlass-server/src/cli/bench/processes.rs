//! Workers in processes of their own, as most are: this program again, told to be one.
//!
//! Where times are measured, a worker process writes a line for each job that it starts: its id and the moment; and another,
//! with a word more, once it has heard that the job's settlement is durable. Processes of one machine share its clock, so the
//! moments can be compared.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use windlass::store::Store;
use windlass::workflow::Submission;
use windlass::{Client, JobId, State};

use super::load;
use super::measure::{Measurement, Setting};
use super::runtime;
use super::server_cost::{Process, TICKS_PER_SECOND};

/// What a worker process writes once it serves.
const READY: &str = "ready";
/// The word that such a line ends with.
const SETTLED: &str = "settled";
/// How long a worker process may take until it serves.
const START_MAX: Duration = Duration::from_secs(30);
/// How long the last jobs may take to start after the last one was stored.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Serves until standard input ends: what a worker process does.
pub(super) async fn serve(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<()> {
    let client = Client::with_store(store);
    let (tells, takes) = (setting.rate > 0.0, setting.handler);
    let running = runtime::with_prefetch(windlass::Worker::new(&client), setting)
        .with_state(tells)
        .queue(load::QUEUE, setting.slots)
        .handle_raw("bench", move |_, cx: windlass::Context<bool>| async move {
            if *cx.state {
                println!("{} {}", cx.job().id, micros());
            }
            runtime::pass(takes).await;
            Ok(())
        })
        .on_settled(move |attempt, _, _| {
            if tells {
                println!("{} {} {SETTLED}", attempt.job().id, micros());
            }
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

/// Worker processes, and when jobs started and were settled in them.
struct Workers {
    children: Vec<Child>,
    started: mpsc::UnboundedReceiver<(JobId, u64)>,
    settled: mpsc::UnboundedReceiver<(JobId, u64)>,
}

impl Workers {
    /// Starts them; with a rate they tell when jobs start.
    async fn start(setting: &Setting, rate: f64) -> anyhow::Result<Self> {
        let ((told_start, started), (told_end, settled)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let mut children = Vec::new();
        for _ in 0..setting.processes {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["bench", "serve", "--slots", &setting.slots.to_string(), "--rate", &rate.to_string()]);
            command.args(["--handler", &setting.handler.as_millis().to_string()]);
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
            let (start, end) = (told_start.clone(), told_end.clone());
            tokio::spawn(async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    let mut words = line.split(' ');
                    let (id, at) = (words.next().map(str::parse), words.next().map(str::parse));
                    if let (Some(Ok(id)), Some(Ok(at))) = (id, at) {
                        let _ = if words.next() == Some(SETTLED) { &end } else { &start }.send((id, at));
                    }
                }
            });
            children.push(child);
        }
        Ok(Workers { children, started, settled })
    }

    /// The ticks of processor time that they have used, where the system tells.
    fn ticks(&self) -> Option<u64> {
        let number = |child: &Child| child.id().and_then(|id| i32::try_from(id).ok());
        let ticks = |child: &Child| Process::read(number(child)?).map(|process| process.ticks);
        self.children.iter().map(ticks).sum()
    }

    /// The share of one processor that each of them has used since it had used `before` ticks.
    fn percent(&self, before: Option<u64>, time: Duration) -> Option<f64> {
        let ticks = self.ticks()?.saturating_sub(before?) as f64;
        Some(ticks / TICKS_PER_SECOND / time.as_secs_f64() * 100.0 / self.children.len().max(1) as f64)
    }

    /// Waits for the moment at which each of these jobs started, in microseconds.
    async fn starts_of(&mut self, jobs: usize) -> anyhow::Result<HashMap<JobId, u64>> {
        moments_of(&mut self.started, jobs).await.context("not all jobs started")
    }

    /// The same for the moments at which the worker heard that they were settled.
    async fn ends_of(&mut self, jobs: usize) -> anyhow::Result<HashMap<JobId, u64>> {
        moments_of(&mut self.settled, jobs).await.context("not all jobs were settled")
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

async fn moments_of(
    heard: &mut mpsc::UnboundedReceiver<(JobId, u64)>,
    jobs: usize,
) -> anyhow::Result<HashMap<JobId, u64>> {
    let mut moments = HashMap::with_capacity(jobs);
    while moments.len() < jobs {
        let next = tokio::time::timeout(LAST_WAIT, heard.recv()).await;
        let Ok(Some((id, at))) = next else { anyhow::bail!("heard of only {} of {jobs} jobs", moments.len()) };
        moments.insert(id, at);
    }
    Ok(moments)
}

/// From the moment that enqueue returned to the first line of the handler in another process, at `--rate` jobs a second.
pub(super) async fn idle(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    anyhow::ensure!(setting.backlog == 0, "an idle worker needs an empty queue: leave out --backlog");
    let mut workers = Workers::start(setting, setting.rate).await?;
    let spec = load::spec(setting)?;
    let every = Duration::from_secs_f64(1.0 / setting.rate.max(0.01));
    let (start, ticks) = (Instant::now(), workers.ticks());
    let (mut returned, mut next) = (HashMap::new(), tokio::time::Instant::now());
    loop {
        next += every;
        if next.into_std() > start + setting.time {
            break;
        }
        tokio::time::sleep_until(next).await;
        let stored = store.insert(Submission::new(vec![spec.clone()])?).await?.jobs;
        returned.extend(stored.iter().map(|job| (job.id, micros())));
    }
    tokio::time::sleep_until((start + setting.time).into()).await;
    let (time, percent) = (start.elapsed(), workers.percent(ticks, start.elapsed()));
    let started = workers.starts_of(returned.len()).await?;
    workers.stop().await?;
    // One that started before enqueue had returned waited for nothing.
    let waited = |(id, at): (JobId, u64)| Some(Duration::from_micros(at.saturating_sub(*returned.get(&id)?)));
    let calls: Vec<Duration> = started.into_iter().filter_map(waited).collect();
    Ok(Measurement { worker_cpu_percent: percent, ..Measurement::new("idle", setting, calls.len(), time, calls) })
}

/// To the return of `wait` here for the last job of each of `--rate` batches a second: from the start of its handler in another
/// process and, in fields of their own, from the moment at which that process heard that its settlement was durable.
pub(super) async fn wait(store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    anyhow::ensure!(setting.processes > 0, "wait needs a worker process: give --processes 1");
    let mut workers = Workers::start(setting, setting.rate).await?;
    let client = Client::with_store(Arc::clone(&store));
    let specs = vec![load::spec(setting)?; setting.batch];
    let every = Duration::from_secs_f64(1.0 / setting.rate.max(0.01));
    let (start, mut next, mut jobs) = (Instant::now(), tokio::time::Instant::now(), 0);
    let mut waits: JoinSet<anyhow::Result<(JobId, u64)>> = JoinSet::new();
    while start.elapsed() < setting.time {
        next += every;
        tokio::time::sleep_until(next).await;
        let stored = store.insert(Submission::new(specs.clone())?).await?.jobs;
        jobs += stored.len();
        let last = stored.last().context("the store stored nothing")?.id;
        let client = client.clone();
        waits.spawn(async move {
            tokio::time::timeout(LAST_WAIT, client.wait(last)).await.context("a job has not ended")??;
            Ok((last, micros()))
        });
    }
    let time = start.elapsed();
    let (started, ended) = (workers.starts_of(jobs).await?, workers.ends_of(jobs).await?);
    let (mut calls, mut told) = (Vec::new(), Vec::new());
    while let Some(waited) = waits.join_next().await {
        let (id, at) = waited??;
        let since = |moment: &u64| Duration::from_micros(at.saturating_sub(*moment));
        calls.extend(started.get(&id).map(since));
        // Zero where the caller heard of it before the worker did.
        told.extend(ended.get(&id).map(since));
    }
    workers.stop().await?;
    let told = Measurement::new("told", setting, jobs, time, told);
    let (told_p50_ms, told_p99_ms) = (Some(told.p50_ms), Some(told.p99_ms));
    Ok(Measurement { told_p50_ms, told_p99_ms, ..Measurement::new("wait", setting, jobs, time, calls) })
}

/// Worker processes run what waits, or what producers in this process store, until the time is over.
pub(super) async fn run(op: &str, store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    let completed = async || -> anyhow::Result<u64> {
        Ok(store.observe(None).await.map(|seen| seen.totals())?.states[usize::from(State::Completed.number())])
    };
    let waits = setting.waiting;
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
