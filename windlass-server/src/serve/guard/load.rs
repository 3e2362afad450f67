//! How much is done at once: requests, waiting requests, and bodies in memory.
//!
//! Whoever comes when it is full is told to come back, after a moment's patience. Nothing queues without bound.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::serve::config::Limits;

/// How long a request waits for its turn before it is refused: a burst passes, an overload does not.
const PATIENCE: Duration = Duration::from_millis(100);

/// What is left of each bound.
#[derive(Debug)]
pub(super) struct Load {
    limits: Limits,
    requests: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    /// In KiB, because a semaphore counts to 2^32 in one call at most.
    memory: Arc<Semaphore>,
}

impl Load {
    pub(super) fn new(limits: Limits) -> Self {
        Load {
            limits,
            requests: Arc::new(Semaphore::new(limits.requests)),
            waits: Arc::new(Semaphore::new(limits.waits)),
            memory: Arc::new(Semaphore::new(limits.body_memory_bytes / 1024)),
        }
    }

    /// A turn for this request; `None` when there are too many already.
    pub(super) async fn turn(&self, method: &Method, path: &str) -> Option<OwnedSemaphorePermit> {
        let of = if waits(method, path) { &self.waits } else { &self.requests };
        let turn = tokio::time::timeout(PATIENCE, Arc::clone(of).acquire_owned()).await;
        turn.ok().and_then(Result::ok)
    }

    /// Room for a body of at most so many bytes; `None` when there are too many already.
    pub(super) async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let room = tokio::time::timeout(PATIENCE, Arc::clone(&self.memory).acquire_many_owned(kib)).await;
        room.ok().and_then(Result::ok)
    }

    /// The largest body that this call takes.
    pub(super) fn body_bytes(&self, path: &str) -> usize {
        let many = ["/v1/jobs/batch", "/v1/workflows", "/v1/leases/settle", "/v1/leases/save", "/v1/leases/extend"];
        if many.contains(&path) { self.limits.batch_bytes } else { self.limits.body_bytes() }
    }
}

/// Whether a call may wait for something to happen; such calls cost little while they do.
pub(super) fn waits(method: &Method, path: &str) -> bool {
    match *method {
        Method::POST => path == "/v1/claims",
        Method::GET => {
            matches!(path, "/v1/events" | "/v1/wakes") || (path.starts_with("/v1/jobs/") && path.ends_with("/wait"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn beyond_the_bound_there_is_no_turn() {
        let load = Load::new(Limits { requests: 1, waits: 1, ..Limits::default() });
        let first = load.turn(&Method::GET, "/v1/jobs").await;
        assert!(first.is_some());
        assert!(load.turn(&Method::GET, "/v1/jobs").await.is_none());
        assert!(load.turn(&Method::POST, "/v1/claims").await.is_some(), "waiting calls have a bound of their own");
        drop(first);
        assert!(load.turn(&Method::GET, "/v1/jobs").await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_in_memory_are_bounded() {
        let load = Load::new(Limits { body_memory_bytes: 10_240, ..Limits::default() });
        let first = load.room(9_000).await;
        assert!(first.is_some());
        assert!(load.room(2_000).await.is_none());
        assert!(load.room(1_000).await.is_some());
    }
}
