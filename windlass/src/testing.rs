//! For tests of code that uses Windlass: a store in memory, a clock that stands still, and assertions.
//!
//! ```
//! # async fn example() -> windlass::Result<()> {
//! use std::time::Duration;
//! use windlass::testing::expect_enqueued;
//! use windlass::{Client, Context, Failure, Job, Worker};
//!
//! #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
//! struct Remind { user: u64 }
//! impl Job for Remind {
//!     const TYPE: &'static str = "remind";
//! }
//!
//! let (client, clock) = Client::for_tests();
//! client.enqueue(Remind { user: 7 }).delay(Duration::from_secs(60)).await?;
//! assert_eq!(expect_enqueued::<Remind>(&client).await, [Remind { user: 7 }]);
//!
//! let worker = Worker::new(&client).queue("default", 1).handle(async |_: Remind, _: Context| Ok::<(), Failure>(()));
//! assert_eq!(worker.drain().await?.completed, 0);
//! clock.advance(Duration::from_secs(60));
//! assert_eq!(worker.drain().await?.completed, 1);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(example()).unwrap();
//! ```

use std::sync::Arc;

use crate::client::Client;
use crate::clock::ManualClock;
use crate::job::{Job, JobRecord, JobType};
use crate::store::{Filter, MemoryStore, PAGE_MAX};
pub use crate::worker::{CrashPoint, Drained};

impl Client {
    /// A client of an empty store in memory, and the clock of that store, which stands still until it is advanced.
    pub fn for_tests() -> (Client, ManualClock) {
        let clock = ManualClock::default();
        (Client::with_store(Arc::new(MemoryStore::with_clock(clock.clone()))), clock)
    }
}

/// The jobs of type `J` that were enqueued and have not ended, oldest first; panics when there are none.
#[track_caller]
pub fn expect_enqueued<J: Job>(client: &Client) -> impl Future<Output = Vec<J>> {
    let caller = std::panic::Location::caller();
    async move {
        let jobs = unfinished(client, J::TYPE).await;
        assert!(!jobs.is_empty(), "{caller}: a job of type {:?} should have been enqueued", J::TYPE);
        jobs.iter().map(|job| job.spec.payload.decode().expect("a typed job's payload reads as its type")).collect()
    }
}

/// Panics when a job of type `J` was enqueued and has not ended.
#[track_caller]
pub fn expect_none_enqueued<J: Job>(client: &Client) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let found = unfinished(client, J::TYPE).await.len();
        assert_eq!(found, 0, "{caller}: no job of type {:?} should have been enqueued", J::TYPE);
    }
}

async fn unfinished(client: &Client, job_type: &str) -> Vec<JobRecord> {
    let job_type = JobType::new(job_type).expect("a job's type is a valid name");
    let filter = Filter { job_type: Some(job_type), ..Filter::default() };
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = client.list(filter.clone(), PAGE_MAX, after).await.expect("a store in memory can be listed");
        found.extend(page.items.into_iter().filter(|job| !job.state.is_terminal()));
        after = page.next;
        if after.is_none() {
            found.reverse();
            return found;
        }
    }
}
