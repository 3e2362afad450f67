//! What the worker runtime costs: no-op jobs on the memory store, and how soon an idle worker picks a job up.
//!
//! `cargo bench -p windlass --bench worker [-- JOBS]`. The store is part of what is measured; `--bench memory` measures
//! it alone, and the first line here does the same work without a worker.

use std::alloc::System;
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use windlass::job::WorkerId;
use windlass::store::{ClaimRequest, Settled};
use windlass::{Client, Context, NewJob, Payload, QueueName, State, Worker};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const BATCH: usize = 1000;
const PICKUPS: usize = 2000;

fn main() {
    let jobs = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(200_000);
    println!("{:<28} {:>10} {:>14} {:>18}", "", "jobs/s", "CPU µs a job", "allocations a job");
    report(jobs, "bare store", single(bare(jobs)));
    for slots in [10, 100, 1000] {
        report(jobs, &format!("one thread, {slots} slots"), single(drained(jobs, slots)));
        report(jobs, &format!("two threads, {slots} slots"), multi(drained(jobs, slots)));
    }
    let mut pickups = multi(pickups());
    pickups.sort();
    let at = |part: f64| pickups[(PICKUPS as f64 * part) as usize];
    println!("enqueue to handler, idle worker: p50 {:?}, p99 {:?}", at(0.5), at(0.99));
}

/// What a run took.
struct Taken {
    wall: Duration,
    cpu: Duration,
    allocations: usize,
}

/// Where a run began.
struct Begun {
    at: Instant,
    cpu: Duration,
    allocations: usize,
}

impl Begun {
    fn now() -> Self {
        let stats = COUNTING.stats();
        Begun { at: Instant::now(), cpu: cpu_time(), allocations: stats.allocations + stats.reallocations }
    }

    fn taken(&self) -> Taken {
        let now = Begun::now();
        Taken { wall: now.at - self.at, cpu: now.cpu - self.cpu, allocations: now.allocations - self.allocations }
    }
}

fn report(jobs: usize, what: &str, taken: Taken) {
    let each = |all: f64| all / jobs as f64;
    let (cpu, allocations) = (each(taken.cpu.as_secs_f64() * 1e6), each(taken.allocations as f64));
    let rate = jobs as f64 / taken.wall.as_secs_f64();
    println!("{what:<28} {rate:>10.0} {cpu:>14.2} {allocations:>18.1}");
}

/// The time that all threads of this process spent so far; zero where it cannot be read.
fn cpu_time() -> Duration {
    // Ticks of 10 ms: user and system are the 12th and 13th field after the name.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn single<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run)
}

fn multi<T: Send + 'static>(run: impl Future<Output = T> + Send + 'static) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::spawn(run).await.expect("the run ends") })
}

async fn filled(jobs: usize) -> Client {
    let client = Client::in_memory();
    for _ in 0..jobs.div_ceil(BATCH) {
        let batch = (0..BATCH).map(|_| NewJob::new("noop", Payload::default()));
        client.enqueue_all(batch).await.expect("enqueue");
    }
    client
}

/// The same claims and settlements, without a worker around them.
async fn bare(jobs: usize) -> Taken {
    let client = filled(jobs).await;
    let worker = WorkerId::new("bench").expect("a name");
    let request = ClaimRequest::new(worker, QueueName::default(), BATCH);
    let begun = Begun::now();
    let mut settled = 0;
    loop {
        let claimed = client.store().claim(&request).await.expect("claim");
        if claimed.is_empty() {
            assert!(settled >= jobs);
            return begun.taken();
        }
        let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
        let answers = client.store().settle(&settlements).await.expect("settle");
        settled += answers.iter().filter(|answer| matches!(answer, Settled::Applied(_))).count();
    }
}

async fn drained(jobs: usize, slots: usize) -> Taken {
    let client = filled(jobs).await;
    let total = jobs.div_ceil(BATCH) * BATCH;
    let worker = Worker::new(&client).queue("default", slots).handle_raw("noop", async |_, _: Context| Ok(()));
    let begun = Begun::now();
    let running = worker.start().await.expect("start");
    let completed = usize::from(State::Completed.number());
    while client.totals().await.expect("totals").states[completed] < total as u64 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let taken = begun.taken();
    assert_eq!(running.stop().await.settled, total);
    taken
}

async fn pickups() -> Vec<Duration> {
    let client = Client::in_memory();
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let worker = Worker::new(&client).with_state(told).queue("default", 8);
    let running = worker
        .handle_raw("noop", async |_, cx: Context<tokio::sync::mpsc::UnboundedSender<Instant>>| {
            cx.state.send(Instant::now())?;
            Ok(())
        })
        .start()
        .await
        .expect("start");
    let mut taken = Vec::with_capacity(PICKUPS);
    for _ in 0..PICKUPS {
        let begun = Instant::now();
        client.enqueue(NewJob::new("noop", Payload::default())).await.expect("enqueue");
        let at = heard.recv().await.expect("it runs");
        taken.push(at.duration_since(begun));
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    running.stop().await;
    taken
}
