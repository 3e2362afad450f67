//! What the SQLite store costs in processor time, which other programs on the machine do not change:
//! `cargo bench --features sqlite --bench sqlite`. How fast it is beside the limits of the disk says `windlass bench`.

use std::time::Instant;

use windlass::flow::{Change, Control, ControlEdit, Limit};
use windlass::job::{JobSpec, Limits, WorkerId};
use windlass::store::SqliteStore;
use windlass::store::{ClaimRequest, Settled, Store};
use windlass::workflow::Submission;
use windlass::{NewJob, Payload, Policies, QueueName};

const JOBS: usize = 100_000;
const PAYLOAD_BYTES: usize = 200;
/// Ticks of the processor's time in a second, as Linux tells them.
const TICKS: f64 = 100.0;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(measure());
}

/// What the queue is told, and how many keys its jobs have.
fn cases() -> [(&'static str, usize, usize, Option<Control>); 6] {
    let fair = || Some(Control::new().each_key(Limit::running(3)).fair());
    [
        ("plain", 100, 0, None),
        ("plain", 1000, 0, None),
        ("keys in a plain queue", 100, 1000, None),
        ("queue limit", 100, 0, Some(Control::new().running(1000))),
        ("10 keys", 100, 10, fair()),
        ("1,000 keys", 100, 1000, fair()),
    ]
}

async fn measure() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let only = std::env::args().nth(1).filter(|name| !name.starts_with("--"));
    for (number, (name, batch, keys, control)) in cases().into_iter().enumerate() {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let store = SqliteStore::open(folder.path().join(format!("{number}.db"))).expect("open");
        println!("{name}, batches of {batch}");
        if let Some(control) = control {
            let put = Change::Put { control, version: None, from_code: false };
            store.control(&ControlEdit::new(QueueName::default(), put), None).await.expect("controlled");
        }
        drain(&store, batch, keys).await;
    }
}

/// Stores jobs, claims and completes them.
async fn drain(store: &SqliteStore, batch: usize, keys: usize) {
    let start = (Instant::now(), processor_seconds());
    for first in (0..JOBS).step_by(batch) {
        let specs = (first..first + batch).map(|place| spec(place, keys)).collect();
        store.insert(Submission::new(specs).expect("a batch")).await.expect("insert");
    }
    report("enqueue", start);
    let (mut claiming, mut settling) = ((0.0, 0.0), (0.0, 0.0));
    let mut left = JOBS;
    while left > 0 {
        let start = (Instant::now(), processor_seconds());
        let worker = WorkerId::new("bench-worker-1").expect("a name");
        let claimed = store.claim(&ClaimRequest::new(worker, QueueName::default(), batch)).await.expect("claim");
        add(&mut claiming, start);
        let done: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
        left -= done.len();
        let start = (Instant::now(), processor_seconds());
        let answers = store.settle(&done).await.expect("settle");
        add(&mut settling, start);
        assert!(!answers.is_empty() && answers.iter().all(|answer| matches!(answer, Settled::Applied(_))));
    }
    print("claim", claiming);
    print("settle", settling);
}

fn spec(place: usize, keys: usize) -> JobSpec {
    let payload = Payload::json(&"x".repeat(PAYLOAD_BYTES)).expect("text is JSON");
    let mut job = NewJob::new("bench", payload);
    if keys > 0 {
        job = job.key(format!("k{}", place % keys));
    }
    job.check(&Limits::default(), &Policies::default()).expect("a valid job")
}

/// The time that this process has had of all processors.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = after_name.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect();
    (fields.get(11).unwrap_or(&0.0) + fields.get(12).unwrap_or(&0.0)) / TICKS
}

fn add(sum: &mut (f64, f64), start: (Instant, f64)) {
    sum.0 += start.0.elapsed().as_secs_f64();
    sum.1 += processor_seconds() - start.1;
}

fn report(what: &str, start: (Instant, f64)) {
    let mut sum = (0.0, 0.0);
    add(&mut sum, start);
    print(what, sum);
}

fn print(what: &str, (wall, processor): (f64, f64)) {
    let each = |seconds: f64| seconds * 1e6 / JOBS as f64;
    println!("  {what:<8} {:>6.2} µs a job, {:>6.2} µs of processor time", each(wall), each(processor));
}
