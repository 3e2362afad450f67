//! Puts jobs into a store before it is measured.

use windlass::job::{JobSpec, Limits, WorkerId};
use windlass::store::{ClaimRequest, Store};
use windlass::workflow::Submission;
use windlass::{NewJob, Payload, Policies, QueueName};

use super::measure::Setting;

/// How many jobs are stored in one call while loading.
const BATCH: usize = 1000;
/// A queue of its own, so that no job of anybody else is claimed.
pub(super) const QUEUE: &str = "bench";

/// A job of the measured kind.
pub(super) fn spec(setting: &Setting) -> anyhow::Result<JobSpec> {
    let text = "x".repeat(setting.payload.saturating_sub(2));
    Ok(NewJob::new("bench", Payload::json(&text)?).queue(QUEUE).check(&Limits::default(), &Policies::default())?)
}

/// The worker's name, and a claim of a whole batch.
pub(super) fn claim(limit: usize) -> anyhow::Result<ClaimRequest> {
    Ok(ClaimRequest::new(WorkerId::new("bench")?, QueueName::new(QUEUE)?, limit))
}

/// Stores waiting jobs.
pub(super) async fn waiting(store: &dyn Store, jobs: usize, setting: &Setting) -> anyhow::Result<()> {
    let spec = spec(setting)?;
    let mut left = jobs;
    while left > 0 {
        let batch = left.min(BATCH);
        store.insert(Submission::new(vec![spec.clone(); batch])?).await?;
        left -= batch;
    }
    Ok(())
}

/// Stores more waiting jobs than can be run in the time, at this many a second; gives how many wait in all.
pub(super) async fn backlog(store: &dyn Store, setting: &Setting, per_second: usize) -> anyhow::Result<usize> {
    let seconds = usize::try_from(setting.time.as_secs()).unwrap_or(1).max(1);
    let jobs = (seconds * per_second).next_multiple_of(BATCH);
    waiting(store, jobs, setting).await?;
    Ok(jobs + setting.backlog)
}

/// Stores jobs and completes them.
pub(super) async fn finished(store: &dyn Store, jobs: usize, setting: &Setting) -> anyhow::Result<()> {
    let request = claim(BATCH)?;
    let mut left = jobs;
    while left > 0 {
        let batch = left.min(BATCH);
        waiting(store, batch, setting).await?;
        let mut open = batch;
        while open > 0 {
            let claimed = store.claim(&request).await?;
            anyhow::ensure!(!claimed.is_empty(), "the store gives back fewer jobs than it was given: is it in use?");
            let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
            store.settle(&settlements).await?;
            open = open.saturating_sub(settlements.len());
        }
        left -= batch;
    }
    Ok(())
}
