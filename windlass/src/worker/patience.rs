//! How long the runtime waits for an answer of the store, call by call.
//!
//! A call that is not answered in time counts as one whose outcome is unknown: the store may have done it. Claims and
//! heartbeats have limits that follow from the lease time; the others are here.

use std::future::Future;
use std::time::Duration;

use crate::error::{Error, Result};

/// A batch of settlements. As long as a submission may take (rule T3); the leases are kept alive meanwhile.
pub(super) const SETTLE: Duration = Duration::from_secs(30);
/// One step of upkeep: a bounded transaction, but pruning can be slow on a busy disk.
pub(super) const UPKEEP: Duration = Duration::from_secs(60);
/// A read of a few rows, or one small write.
pub(super) const READ: Duration = Duration::from_secs(10);
/// A claim is waited for this long at least, however short the leases are.
const CLAIM_MIN: Duration = Duration::from_secs(1);

/// A claim: later than its lease time, everything that it brings has expired.
pub(super) fn claim(lease_time: Duration) -> Duration {
    lease_time.max(CLAIM_MIN)
}

/// Waits for a store call, but no longer than the limit.
pub(super) async fn within<T>(limit: Duration, attempted: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(unanswered(attempted, limit)))
}

/// The error of a call that was not answered in time.
pub(super) fn unanswered(attempted: &str, limit: Duration) -> Error {
    let problem = format!("no answer within {limit:?}");
    Error::StoreUnavailable { attempted: attempted.to_owned(), problem, known: false, source: None }
}
