//! The worker runtime of the library, on a store that it reaches over HTTP.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Client, Context, Failure, Job, State, Worker};
use windlass_server::remote::HttpStore;

use crate::support::Server;

#[derive(Serialize, Deserialize)]
struct Double {
    n: u64,
}

impl Job for Double {
    const TYPE: &'static str = "double";
}

async fn double(job: Double, cx: Context) -> Result<u64, Failure> {
    cx.log("on my way").await?;
    match (job.n, cx.attempt()) {
        (0, _) => Err(Failure::permanent("zero", "nothing to double")),
        (1, 1) => Err(Failure::temporary("once more").retry_after(Duration::ZERO)),
        (n, _) => Ok(n * 2),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_runs_jobs_over_http() {
    let server = Server::new();
    let store = HttpStore::connect(&format!("http://{}", server.listen().await), None).expect("a URL");
    let client = Client::with_store(Arc::new(store.leave_upkeep()));
    let running = Worker::new(&client).queue("default", 4).handle(double).start().await.expect("the server is there");
    let mut jobs = Vec::new();
    for n in 0..5 {
        jobs.push(client.enqueue(Double { n }).await.expect("enqueue").id);
    }
    let mut ends = Vec::new();
    for id in &jobs {
        let ended = tokio::time::timeout(Duration::from_secs(30), client.wait(*id)).await.expect("in time");
        let ended = ended.expect("the job is there");
        ends.push((ended.state, ended.result.map(|result| result.decode::<u64>().expect("a number"))));
    }
    let completed = |n| (State::Completed, Some(n));
    assert_eq!(ends, [(State::Failed, None), completed(2), completed(4), completed(6), completed(8)]);
    assert_eq!(client.attempts(jobs[1]).await.expect("attempts").len(), 2);
    assert_eq!(client.logs(jobs[2]).await.expect("logs").len(), 1);
    assert_eq!(client.workers().await.expect("workers").len(), 1);
    running.stop().await;
    assert!(server.client.store().check().await.expect("check").is_empty());
}
