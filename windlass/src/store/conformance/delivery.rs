//! Section 1 of the contract: delivery.

use super::Bench;
use super::bench::job;

chapter! { d4_a_completed_job_is_never_claimed_again }

async fn d4_a_completed_job_is_never_claimed_again(bench: Bench) {
    let claimed = bench.running(job()).await;
    bench.complete(claimed.lease).await;
    bench.pass(std::time::Duration::from_secs(3600)).await;
    assert!(bench.claim(10).await.is_empty());
}
