//! Workers that went without goodbye: who held jobs when nothing was heard of them any more, and what became of these.
//!
//! A worker that stops gives its jobs back first, so one that falls silent while it holds some has died, or cannot be
//! reached. Stores forget silent workers; a server remembers those that it saw go, for an hour, and forgets with its process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass::job::WorkerId;
use windlass::store::{Filter, ListQuery, Store, WorkerRecord};
use windlass::{JobId, Result, State, Timestamp};

use crate::wire::{GoneWorker, LostJob};

/// How long a worker that went is told of.
pub(super) const TOLD_FOR: Duration = Duration::from_secs(3600);
/// How often somebody looks who is there: more than once in the time for which a silent worker counts as live.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How many workers are listed at most, the newest: clients that claim choose the names.
const TOLD_MAX: usize = 50;
/// Most jobs of one worker that are told of.
const JOBS_MAX: usize = 20;

/// Who was there, and who went.
#[derive(Debug, Default)]
pub struct Gone {
    seen: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    there: HashMap<WorkerId, WorkerRecord>,
    gone: Vec<Silent>,
}

/// A worker that held jobs when it fell silent.
#[derive(Clone, Debug)]
struct Silent {
    worker: WorkerRecord,
    held: Vec<JobId>,
    more: bool,
}

impl Gone {
    /// Looks who is there until `stopping`.
    pub async fn watch(self: Arc<Self>, store: Arc<dyn Store>, stopping: CancellationToken) {
        loop {
            let look = async {
                let live = store.workers().await?;
                self.see(&*store, &live).await
            };
            if let Err(error) = look.await {
                tracing::debug!(%error, "nobody knows which workers are there");
            }
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Notes who is there, and looks what those held who are not any more.
    pub(super) async fn see(&self, store: &dyn Store, live: &[WorkerRecord]) -> Result<()> {
        let now = store.now().await?;
        let missing = self.watched().note(live, now);
        for worker in missing {
            let filter = Filter::new().worker(worker.id.clone()).states([State::Running]);
            let page = store.list(&ListQuery { filter, limit: JOBS_MAX, ..ListQuery::default() }).await?;
            let held: Vec<JobId> = page.items.iter().map(|job| job.id).collect();
            let busy = worker.queues.iter().any(|served| served.busy > 0);
            // Nothing in its hands: it said goodbye.
            if held.is_empty() && !busy {
                continue;
            }
            self.watched().gone.push(Silent { worker, more: page.next.is_some(), held });
        }
        Ok(())
    }

    /// Those that went in the last `time`, the last first, and what their jobs are now.
    pub(super) async fn told(&self, store: &dyn Store, time: Duration) -> Result<Vec<GoneWorker>> {
        let since = store.now().await?.minus(time);
        let mut recent: Vec<Silent> =
            self.watched().gone.iter().filter(|silent| silent.worker.seen_at >= since).cloned().collect();
        recent.sort_by_key(|silent| std::cmp::Reverse(silent.worker.seen_at));
        let mut told = Vec::new();
        for Silent { worker, held, more } in recent {
            let jobs = store.find(&held).await?.into_iter().flatten();
            let jobs = jobs.map(|job| LostJob {
                id: job.id,
                job_type: job.spec.job_type.to_string(),
                state: job.state,
                worker: job.lease.as_ref().map(|lease| lease.worker.to_string()),
            });
            told.push(GoneWorker {
                id: worker.id.to_string(),
                host: worker.host.clone(),
                started_at: worker.started_at,
                seen_at: worker.seen_at,
                jobs: jobs.collect(),
                more,
            });
        }
        Ok(told)
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        // Nothing in it can be half-done in a way that matters.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// Takes note of who is there; gives who was and is not. Who comes back was only slow.
    fn note(&mut self, live: &[WorkerRecord], now: Timestamp) -> Vec<WorkerRecord> {
        let there: HashMap<WorkerId, WorkerRecord> =
            live.iter().map(|worker| (worker.id.clone(), worker.clone())).collect();
        self.gone
            .retain(|silent| now.since(silent.worker.seen_at) <= TOLD_FOR && !there.contains_key(&silent.worker.id));
        let extra = self.gone.len().saturating_sub(TOLD_MAX);
        self.gone.drain(..extra);
        let before = std::mem::replace(&mut self.there, there);
        before.into_iter().filter(|(id, _)| !self.there.contains_key(id)).map(|(_, worker)| worker).collect()
    }
}

#[cfg(test)]
mod tests {
    use windlass::store::{ClaimRequest, MemoryStore, ServedQueue, WorkerReport};
    use windlass::{Client, ManualClock, NewJob, Payload, QueueName};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn announce(store: &dyn Store, id: &str, busy: u32) {
        let queues = vec![ServedQueue { queue: QueueName::default(), slots: 2, busy }];
        let id = WorkerId::new(id).expect("a name");
        let report = WorkerReport { id, host: "here".to_owned(), queues, types: None };
        store.announce(&report).await.expect("announced");
    }

    async fn look(gone: &Gone, store: &dyn Store) -> Vec<GoneWorker> {
        let live = store.workers().await.expect("workers");
        gone.see(store, &live).await.expect("seen");
        gone.told(store, TOLD_FOR).await.expect("told")
    }

    #[tokio::test]
    async fn a_worker_that_falls_silent_with_jobs_in_its_hands_went_without_goodbye() {
        let clock = ManualClock::default();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(clock.clone()));
        let client = Client::with_store(Arc::clone(&store));
        let job = client.enqueue(NewJob::new("t", Payload::default())).await.expect("stored").id;
        let gone = Gone::default();
        for id in ["dies", "leaves", "stays"] {
            announce(&*store, id, 0).await;
        }
        let request = ClaimRequest::new(WorkerId::new("dies").expect("a name"), QueueName::default(), 1);
        let lease = store.claim(&request).await.expect("claimed");
        assert_eq!(lease.jobs.len(), 1);
        assert!(look(&gone, &*store).await.is_empty());
        clock.advance(31 * SECOND);
        announce(&*store, "stays", 1).await;
        let told = look(&gone, &*store).await;
        assert_eq!(told.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["dies"]);
        assert_eq!(told[0].jobs[0].id, job);
        assert_eq!(told[0].jobs[0].worker.as_deref(), Some("dies"), "its lease has not ended yet");
        // The lease ends, and somebody else takes the job over.
        clock.advance(600 * SECOND);
        store.upkeep(&windlass::store::Upkeep::default()).await.expect("upkeep");
        clock.advance(600 * SECOND);
        let request = ClaimRequest::new(WorkerId::new("stays").expect("a name"), QueueName::default(), 1);
        assert_eq!(store.claim(&request).await.expect("claimed").jobs.len(), 1);
        announce(&*store, "stays", 1).await;
        assert_eq!(look(&gone, &*store).await[0].jobs[0].worker.as_deref(), Some("stays"));
        // Who comes back was only slow; what is old is forgotten.
        announce(&*store, "dies", 0).await;
        assert!(look(&gone, &*store).await.is_empty());
    }
}
