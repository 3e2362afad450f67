//! `windlass bench`: how fast a store is, beside the limits of the same machine in the same run.

mod churn;
mod compare;
mod keyed;
mod late;
mod load;
mod measure;
mod processes;
mod raw;
mod runtime;
mod server_cost;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use windlass::store::{self, Store};

use self::measure::{Measurement, Setting};
use self::server_cost::ServerCost;
use crate::marked::{self, Owner};
use crate::remote::HttpStore;

/// What `windlass bench` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to measure
    #[arg(value_enum)]
    op: Op,
    /// The store: memory:, sqlite:PATH, postgres://… or a server's http://…; empty, or one that bench has used before
    #[arg(long, env = "WINDLASS_STORE", hide_env_values = true)]
    store: String,
    /// Concurrent callers, or producers
    #[arg(long, default_value_t = 1)]
    callers: usize,
    /// Jobs in each call
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Waiting jobs to put there first
    #[arg(long, default_value_t = 0)]
    backlog: usize,
    /// Finished jobs to put there first
    #[arg(long, default_value_t = 0)]
    finished: usize,
    /// Bytes of payload of each job
    #[arg(long, default_value_t = 200)]
    payload: usize,
    /// How long to measure
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seconds after which churn removes a finished job
    #[arg(long, default_value_t = 10)]
    keep: u64,
    /// Seconds that a line of churn covers
    #[arg(long, default_value_t = 15)]
    every: u64,
    /// Slots of each worker
    #[arg(long, value_name = "N", default_value_t = 1000)]
    slots: usize,
    /// Jobs that a worker claims ahead of free slots at most [default: as many as start within 50 ms]
    #[arg(long, value_name = "N")]
    prefetch: Option<usize>,
    /// Run drain, work and idle with this many worker processes, instead of one worker in this process
    #[arg(long, value_name = "N", default_value_t = 0)]
    processes: usize,
    /// Jobs a second that idle worker processes are given, or batches a second of wait
    #[arg(long, value_name = "N", default_value_t = 50.0)]
    rate: f64,
    /// Milliseconds that each handler of drain, work and late takes
    #[arg(long, value_name = "N", default_value_t = 0)]
    handler: u64,
    #[command(flatten)]
    flow: keyed::Flow,
    /// Run another build of this program in turn with this one, and print ratios of medians
    #[arg(long, value_name = "BUILD")]
    compare: Option<std::path::PathBuf>,
    /// Measure so often, each time on a new store, and print medians with their range [default with --compare: 5]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Op {
    /// Store jobs
    Enqueue,
    /// Claim and settle waiting jobs
    Cycle,
    /// Store, claim and settle at once
    E2e,
    /// The same for minutes, while upkeep removes what is finished: speed and file size, every so often
    Churn,
    /// From the call of enqueue to the claim of a waiting claimer
    Pickup,
    /// Let a worker run waiting no-op jobs
    Drain,
    /// Store batches while a worker runs them
    Work,
    /// From the call of enqueue to the handler of an idle worker; with --processes, from its return
    Idle,
    /// From the start of a handler in a worker process, and from its end there, to the return of wait here, for the last job of
    /// each batch
    Wait,
    /// Keep --slots jobs in flight in one worker: memory
    Hold,
    /// Be a worker process of another bench
    #[value(hide = true)]
    Serve,
    /// Claim and settle waiting jobs with keys, in a queue with limits: --keys, --limit, --queue-limit, --fair, --blocked, --starts
    Keyed,
    /// From the settlement that frees a slot to the next start of its key
    Freed,
    /// Claim and settle --backlog jobs of --keys keys that take turns, and fail unless after each round every key started as often
    Rounds,
    /// From the enqueueing of ten jobs of a key to their starts, behind --backlog jobs of another key; with --started-after, from the
    /// start of the worker
    Late,
    /// The limits of the machine and of the database itself
    Raw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    if let Some(other) = &arguments.compare {
        let rounds = arguments.rounds.unwrap_or(compare::ROUNDS_DEFAULT);
        return compare::run(other, &arguments.store, &passed_on(), rounds).await;
    }
    if let Some(rounds) = arguments.rounds {
        return compare::repeat(&arguments.store, &passed_on(), rounds).await;
    }
    let setting = Setting {
        store: arguments.store.clone(),
        callers: arguments.callers.max(1),
        batch: arguments.batch.clamp(1, windlass::job::BATCH_MAX),
        backlog: arguments.backlog,
        finished: arguments.finished,
        payload: arguments.payload,
        time: Duration::from_secs(arguments.seconds.clamp(1, 3600)),
        slots: arguments.slots.max(1),
        prefetch: arguments.prefetch,
        processes: arguments.processes,
        rate: arguments.rate,
        handler: Duration::from_millis(arguments.handler),
        waiting: 0,
        flow: arguments.flow,
    };
    let mut printed = false;
    let mut print = |one: &Measurement| {
        if arguments.output == Output::Table && !printed {
            print_heading();
        }
        printed = true;
        print(one, arguments.output)
    };
    let opened = async || open(&setting.store).await;
    match arguments.op {
        Op::Raw => raw::measure(&setting).await?.iter().try_for_each(print),
        Op::Churn => {
            let times = (Duration::from_secs(arguments.keep), Duration::from_secs(arguments.every.max(1)));
            let store = opened().await?;
            keyed::put(store.as_ref(), setting.flow.control()).await?;
            churn::run(store.clone(), &setting, times, print).await?;
            keyed::clear(store.as_ref(), setting.flow).await
        }
        Op::Serve => processes::serve(opened().await?, &setting).await,
        op => print(&measure_store(op, opened().await?, &setting).await?),
    }
}

/// What this program was called with, but for what only the comparison needs: an older build may not know it.
fn passed_on() -> Vec<String> {
    let mut passed = Vec::new();
    let mut given = std::env::args().skip_while(|word| word != "bench").skip(1);
    while let Some(word) = given.next() {
        let (name, value) = word.split_once('=').map_or((word.as_str(), false), |(name, _)| (name, true));
        match name {
            "--compare" | "--rounds" | "--store" | "-o" | "--output" if value => {}
            "--compare" | "--rounds" | "--store" | "-o" | "--output" => drop(given.next()),
            _ => passed.push(word),
        }
    }
    passed
}

/// Opens a store that is empty or was measured before, or reaches such a one through a server.
async fn open(url: &str) -> anyhow::Result<Arc<dyn Store>> {
    if !url.starts_with("http") {
        return marked::open(url, Owner::Bench).await;
    }
    let store = HttpStore::connect(url, std::env::var("WINDLASS_TOKEN").ok());
    let store = store.with_context(|| format!("cannot reach {}", store::redacted(url)))?;
    marked::take(&store, url, Owner::Bench).await?;
    Ok(Arc::new(store))
}

async fn measure_store(op: Op, store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    load::finished(store.as_ref(), setting.finished, setting).await?;
    // What these measure they store themselves, each job with its key.
    let loads_itself = matches!(op, Op::Keyed | Op::Freed | Op::Rounds | Op::Late);
    if !loads_itself {
        load::waiting(store.as_ref(), setting.backlog, setting).await?;
    }
    // What is going to be drained is stored before anything is counted.
    let per_second = match op {
        Op::Cycle => measure::DRAIN_PER_SECOND,
        Op::Drain => measure::DRAIN_PER_SECOND / 2,
        _ => 0,
    };
    let waiting = if per_second > 0 { load::backlog(store.as_ref(), setting, per_second).await? } else { 0 };
    let setting = &Setting { waiting, ..setting.clone() };
    if !loads_itself {
        keyed::put(store.as_ref(), setting.flow.control()).await?;
    }
    let snapshot = keyed::held_snapshot(setting).await?;
    let cost = ServerCost::begin(&setting.store).await?;
    let mut one = measure_op(op, store.clone(), setting).await?;
    if let Some(cost) = cost {
        cost.end(&mut one).await?;
    }
    drop(snapshot);
    keyed::clear(store.as_ref(), setting.flow).await?;
    Ok(one)
}

async fn measure_op(op: Op, store: Arc<dyn Store>, setting: &Setting) -> anyhow::Result<Measurement> {
    match op {
        Op::Drain if setting.processes > 0 => processes::run("drain", store, setting).await,
        Op::Work if setting.processes > 0 => processes::run("work", store, setting).await,
        Op::Idle if setting.processes > 0 => processes::idle(store, setting).await,
        Op::Wait => processes::wait(store, setting).await,
        Op::Enqueue => measure::enqueue(store, setting).await,
        Op::Cycle => measure::cycle(store, setting).await,
        Op::E2e => measure::end_to_end(store, setting).await,
        Op::Pickup => measure::pickup(store, setting).await,
        Op::Drain => runtime::drain(store, setting).await,
        Op::Work => runtime::work(store, setting).await,
        Op::Idle => runtime::idle(store, setting).await,
        Op::Hold => runtime::hold(store, setting).await,
        Op::Keyed => keyed::keyed(store, setting, setting.flow).await,
        Op::Freed => keyed::freed(store, setting).await,
        Op::Rounds => keyed::rounds(store, setting, setting.flow).await,
        Op::Late => late::late(store, setting).await,
        Op::Churn | Op::Raw | Op::Serve => unreachable!("these measure more than once, or nothing"),
    }
}

fn print_heading() {
    println!(
        "{:<22} {:>7} {:>6} {:>9} {:>9} {:>11} {:>8} {:>8} {:>8} {:>8} {:>7}",
        "op", "callers", "batch", "backlog", "finished", "jobs/s", "seconds", "p50 ms", "p95 ms", "p99 ms", "rss MB"
    );
}

fn print(one: &Measurement, output: Output) -> anyhow::Result<()> {
    if output == Output::Json {
        println!("{}", serde_json::to_string(one)?);
        return Ok(());
    }
    print!(
        "{:<22} {:>7} {:>6} {:>9} {:>9} {:>11.0} {:>8.2} {:>8.3} {:>8.3} {:>8.3} {:>7.0}",
        one.op,
        one.callers,
        one.batch,
        one.backlog,
        one.finished,
        one.jobs_per_s,
        one.seconds,
        one.p50_ms,
        one.p95_ms,
        one.p99_ms,
        one.rss_mb
    );
    if let Some(file) = one.file_mb {
        print!("   file {file:.0} MB, log {:.0} MB", one.log_mb.unwrap_or_default());
    }
    if let Some(bytes) = one.log_bytes_per_job {
        print!("   log {bytes:.0} B/job");
    }
    if let Some(micros) = one.server_us_per_job {
        print!(", server {micros:.0} µs/job");
    }
    if let Some(percent) = one.worker_cpu_percent {
        print!("   worker {percent:.2} % of a processor");
    }
    if let Some((p50, p99)) = one.told_p50_ms.zip(one.told_p99_ms) {
        print!("   from the end {p50:.3} / {p99:.3} ms");
    }
    println!();
    Ok(())
}
