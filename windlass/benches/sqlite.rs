//! What the SQLite store costs in processor time, which other programs on the machine do not change:
//! `cargo bench --features sqlite --bench sqlite`. How fast it is beside the limits of the disk says `windlass bench`.

use std::time::Instant;

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

async fn measure() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    for batch in [100, 1000] {
        let store = SqliteStore::open(folder.path().join(format!("{batch}.db"))).expect("open");
        let specs = vec![spec(); batch];
        let start = (Instant::now(), processor_seconds());
        for _ in 0..JOBS / batch {
            store.insert(Submission::new(specs.clone()).expect("a batch")).await.expect("insert");
        }
        report("enqueue", batch, start);
        let (mut claiming, mut settling) = ((0.0, 0.0), (0.0, 0.0));
        for _ in 0..JOBS / batch {
            let start = (Instant::now(), processor_seconds());
            let worker = WorkerId::new("bench-worker-1").expect("a name");
            let claimed = store.claim(&ClaimRequest::new(worker, QueueName::default(), batch)).await.expect("claim");
            add(&mut claiming, start);
            let done: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
            let start = (Instant::now(), processor_seconds());
            let answers = store.settle(&done).await.expect("settle");
            add(&mut settling, start);
            assert!(answers.iter().all(|answer| matches!(answer, Settled::Applied(_))));
        }
        print("claim", batch, claiming);
        print("settle", batch, settling);
    }
}

fn spec() -> JobSpec {
    let payload = Payload::json(&"x".repeat(PAYLOAD_BYTES)).expect("text is JSON");
    NewJob::new("bench", payload).check(&Limits::default(), &Policies::default()).expect("a valid job")
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

fn report(what: &str, batch: usize, start: (Instant, f64)) {
    let mut sum = (0.0, 0.0);
    add(&mut sum, start);
    print(what, batch, sum);
}

fn print(what: &str, batch: usize, (wall, processor): (f64, f64)) {
    let each = |seconds: f64| seconds * 1e6 / JOBS as f64;
    println!(
        "{what:<8} in batches of {batch:>5}: {:>6.2} µs a job, {:>6.2} µs of processor time",
        each(wall),
        each(processor)
    );
}
