//! Who may use how many of a store's connections, so that workers go on whatever readers and producers do.
//!
//! The pool hands connections to the caller that asks first. Without turns, sixteen readers whose statements are long would hold
//! all of them, and claims, settlements and heartbeats would wait for the readers. So each kind of caller takes turns
//! among its own: a quarter of the connections is for workers, of these one for heartbeats, and readers may hold half of
//! the rest.

use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::TimeoutType;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::pool::PoolError;

/// With fewer connections than this, none is kept for heartbeats alone.
const HEARTBEATS_FROM: usize = 4;

/// One connection of this many is for workers alone.
const WORKERS_SHARE: usize = 4;

/// Who asks for a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Caller {
    /// Looks at jobs: lists, counts, totals, single jobs.
    Reader,
    /// Puts jobs in.
    Producer,
    /// Claims, settles, does upkeep or acts on jobs.
    Worker,
    /// Extends leases.
    Heartbeat,
}

/// The turns of one pool.
#[derive(Debug)]
pub(super) struct Turns {
    /// For readers, for readers and producers, and for both and workers.
    turns: [Arc<Semaphore>; 3],
    wait: Duration,
}

/// The turns that a connection is held under.
pub(super) type Held = Vec<OwnedSemaphorePermit>;

impl Turns {
    pub(super) fn new(connections: usize, wait: Duration) -> Self {
        let turns = sizes(connections).map(|size| Arc::new(Semaphore::new(size)));
        Turns { turns, wait }
    }

    /// Waits for this caller's turns, no longer than for a connection.
    pub(super) async fn take(&self, caller: Caller) -> Result<Held, PoolError> {
        let needed = match caller {
            Caller::Reader => &self.turns[..],
            Caller::Producer => &self.turns[1..],
            Caller::Worker => &self.turns[2..],
            Caller::Heartbeat => &[],
        };
        let take_all = async {
            let mut held = Held::with_capacity(needed.len());
            for turns in needed {
                held.push(Arc::clone(turns).acquire_owned().await.map_err(|_| PoolError::Closed)?);
            }
            Ok(held)
        };
        tokio::time::timeout(self.wait, take_all).await.unwrap_or(Err(PoolError::Timeout(TimeoutType::Wait)))
    }
}

/// How many connections readers, readers and producers, and these and workers may hold.
fn sizes(connections: usize) -> [usize; 3] {
    let workers = if connections >= HEARTBEATS_FROM { connections - 1 } else { connections };
    let kept = (connections / WORKERS_SHARE).max(1);
    let producers = workers.saturating_sub(kept).max(1);
    [producers.div_ceil(2), producers, workers]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_but_workers_gets_the_last_connection() {
        assert_eq!(sizes(2), [1, 1, 2]);
        assert_eq!(sizes(3), [1, 2, 3]);
        assert_eq!(sizes(4), [1, 2, 3]);
        assert_eq!(sizes(10), [4, 7, 9]);
        for connections in 2..200 {
            let [readers, producers, workers] = sizes(connections);
            assert!(0 < readers && readers <= producers && producers < workers && workers <= connections);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readers_and_producers_wait_for_their_own() {
        let turns = Turns::new(4, Duration::from_secs(1));
        let reading = turns.take(Caller::Reader).await.expect("a turn");
        assert!(matches!(turns.take(Caller::Reader).await, Err(PoolError::Timeout(_))), "one reader at a time");
        let producing = turns.take(Caller::Producer).await.expect("a turn");
        assert!(turns.take(Caller::Producer).await.is_err());
        let working = turns.take(Caller::Worker).await.expect("a turn that neither can take");
        assert!(turns.take(Caller::Worker).await.is_err(), "the last connection is for heartbeats");
        assert!(turns.take(Caller::Heartbeat).await.expect("always").is_empty());
        drop((reading, producing, working));
        assert_eq!(turns.take(Caller::Reader).await.expect("a turn").len(), 3);
    }
}
