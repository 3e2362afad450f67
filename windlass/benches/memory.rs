//! How fast the memory store drains: `cargo bench -p windlass --bench memory`.
//!
//! Enqueues a backlog in batches of 1,000, then claims and settles it in batches of 100. The cost per job must not grow
//! with the backlog.

use std::time::{Duration, Instant};

use windlass::job::{Limits, WorkerId};
use windlass::store::{ClaimRequest, MemoryStore, Store};
use windlass::workflow::Submission;
use windlass::{NewJob, Payload, Policies, QueueName};

const BATCH: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!("{:>9}  {:>12}  {:>12}  {:>12}", "backlog", "enqueue µs", "drain µs", "drain s");
    for backlog in [10_000, 100_000, 1_000_000] {
        let store = MemoryStore::new();
        let enqueue = enqueue(&store, backlog).await;
        let drain = drain(&store, backlog).await;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / backlog as f64;
        println!("{backlog:>9}  {:>12.2}  {:>12.2}  {:>12.2}", each(enqueue), each(drain), drain.as_secs_f64());
    }
}

async fn enqueue(store: &MemoryStore, jobs: usize) -> Duration {
    let spec = NewJob::new("noop", Payload::json(&vec![7; 60]).expect("json"));
    let spec = spec.check(&Limits::default(), &Policies::default()).expect("valid");
    let start = Instant::now();
    for _ in 0..jobs / 1000 {
        let submission = Submission::new(vec![spec.clone(); 1000]).expect("valid");
        store.insert(submission).await.expect("insert");
    }
    start.elapsed()
}

async fn drain(store: &MemoryStore, jobs: usize) -> Duration {
    let worker = WorkerId::new("bench").expect("a name");
    let request = ClaimRequest::new(worker, QueueName::default(), BATCH);
    let start = Instant::now();
    let mut done = 0;
    while done < jobs {
        let claimed = store.claim(&request).await.expect("claim");
        let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
        done += store.settle(&settlements).await.expect("settle").len();
    }
    start.elapsed()
}
