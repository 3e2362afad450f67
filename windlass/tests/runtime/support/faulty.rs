//! A store that fails when told to, in front of one that does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use windlass::job::{LeaseKey, Settlement};
use windlass::store::*;
use windlass::workflow::Submission;
use windlass::{Error, Result};

/// What shall go wrong, and how often each.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Claims that fail.
    pub(crate) claim: AtomicUsize,
    /// Claims that never answer.
    pub(crate) claim_hangs: AtomicUsize,
    /// Heartbeats that fail.
    pub(crate) extend: AtomicUsize,
    /// Settlements that fail without being written.
    pub(crate) settle: AtomicUsize,
    /// Settlements that are written, while the answer is lost.
    pub(crate) settle_answer: AtomicUsize,
    /// Settlements that fail for good as long as there is more than one in the call.
    pub(crate) settle_together: AtomicUsize,
    /// Settle calls that panic before anything is written.
    pub(crate) settle_panics: AtomicUsize,
    /// Heartbeats that panic.
    pub(crate) extend_panics: AtomicUsize,
    /// Enqueues that never answer.
    pub(crate) insert_hangs: AtomicUsize,
    /// Settle calls that never answer, and write nothing.
    pub(crate) settle_hangs: AtomicUsize,
    /// Settle calls stand still as long as this is not zero.
    pub(crate) settle_stands: AtomicUsize,
    /// Heartbeats that never answer.
    pub(crate) extend_hangs: AtomicUsize,
    /// Upkeep calls that never answer.
    pub(crate) upkeep_hangs: AtomicUsize,
    /// Settle calls made.
    pub(crate) settle_calls: AtomicUsize,
    /// Claim calls made.
    pub(crate) claim_calls: AtomicUsize,
    /// Heartbeat calls made.
    pub(crate) extend_calls: AtomicUsize,
}

/// The store.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    pub(crate) faults: Arc<Faults>,
}

impl FaultyStore {
    pub(crate) fn over(inner: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<Faults>) {
        let faults = Arc::new(Faults::default());
        (Arc::new(FaultyStore { inner, faults: faults.clone() }), faults)
    }
}

/// Whether the fault happens this time.
fn happens(fault: &AtomicUsize) -> bool {
    fault.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

fn unavailable(attempted: &str) -> Error {
    Error::StoreUnavailable { attempted: attempted.into(), problem: "as told".into(), known: false, source: None }
}

#[async_trait]
impl Layer for FaultyStore {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    fn kind(&self) -> &'static str {
        "faulty"
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        if happens(&self.faults.insert_hangs) {
            std::future::pending().await
        }
        self.inner.insert(submission).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        self.faults.claim_calls.fetch_add(1, Ordering::SeqCst);
        if happens(&self.faults.claim_hangs) {
            std::future::pending().await
        }
        if happens(&self.faults.claim) {
            return Err(unavailable("claim"));
        }
        self.inner.claim(request).await
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        self.faults.extend_calls.fetch_add(1, Ordering::SeqCst);
        assert!(!happens(&self.faults.extend_panics), "a heartbeat that panics, as told");
        if happens(&self.faults.extend_hangs) {
            std::future::pending().await
        }
        if happens(&self.faults.extend) {
            return Err(unavailable("extend"));
        }
        self.inner.extend(leases, lease_time).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        self.faults.settle_calls.fetch_add(1, Ordering::SeqCst);
        assert!(!happens(&self.faults.settle_panics), "a settle that panics, as told");
        if happens(&self.faults.settle_hangs) {
            std::future::pending().await
        }
        while self.faults.settle_stands.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        if happens(&self.faults.settle) {
            return Err(unavailable("settle"));
        }
        if settlements.len() > 1 && happens(&self.faults.settle_together) {
            return Err(Error::store("settle", "as told"));
        }
        let answers = self.inner.settle(settlements).await;
        if happens(&self.faults.settle_answer) { Err(unavailable("settle")) } else { answers }
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        if happens(&self.faults.upkeep_hangs) {
            std::future::pending().await
        }
        self.inner.upkeep(request).await
    }

    /// Heartbeats come through here too.
    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
        Ok(None)
    }
}
