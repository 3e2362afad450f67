//! A transaction of the user's own, on the database that the store is in (rules X1 to X3).
//!
//! What is enqueued or settled in it commits or vanishes with it. [`InTx`] is what a driver's transaction must offer;
//! users meet it as `client.enqueue(job).in_tx(&tx)` and `cx.complete_in_tx(&tx, &result)`. The drivers' sides are with
//! the stores: `sqlite::in_tx`, `postgres::in_tx` and, for sqlx, `postgres::sqlx`.

use std::any::Any;
use std::sync::Arc;

use super::{Inserted, Settled, Store};
use crate::error::{Error, Result};
use crate::job::Settlement;
use crate::workflow::Submission;

/// A transaction that jobs can be written in.
///
/// Implemented for `&rusqlite::Transaction` and `&rusqlite::Connection` with an open transaction (feature `sqlite`),
/// `&tokio_postgres::Transaction` (`postgres`) and
/// `&mut sqlx::Transaction<Postgres>` (`sqlx-0_8`, `sqlx-0_9`); the crate `windlass-sqlx-sqlite` adds sqlx's transactions on
/// SQLite, and a store of another kind can add its own. What is passed
/// in as an error is answered with it, so that everything can be checked before and told after.
#[diagnostic::on_unimplemented(
    message = "jobs cannot be written in `{Self}`",
    label = "not a transaction that a store knows",
    note = "these are: `&rusqlite::Transaction` (feature `sqlite`), `&tokio_postgres::Transaction` (feature `postgres`), \
            `&mut sqlx::Transaction<Postgres>` (features `sqlx-0_8` and `sqlx-0_9`), \
            `tx.lend()` of an `sqlx::Transaction<Sqlite>` (crate `windlass-sqlx-sqlite`)"
)]
pub trait InTx<'t>: Sized {
    /// What a call gives: a `Result` where the driver answers at once, a future of one where it is awaited.
    type Answer<T: Send + 't>;

    /// Stores a submission (rule X1), and gives what `then` makes of the answer.
    fn enqueue<T: Send + 't>(
        self,
        store: Arc<dyn Store>,
        submission: Result<Submission>,
        then: impl FnOnce(Result<Inserted>) -> Result<T> + Send + 't,
    ) -> Self::Answer<T>;

    /// Settles, fenced by the lease (rule X2), and gives what `then` makes of the answer.
    fn settle<T: Send + 't>(
        self,
        store: Arc<dyn Store>,
        settlement: Result<Settlement>,
        then: impl FnOnce(Result<Settled>) -> Result<T> + Send + 't,
    ) -> Self::Answer<T>;
}

/// The store that a submission in the user's transaction goes to, and the submission as it is stored there.
pub(crate) fn submission_in(
    store: &Arc<dyn Store>,
    submission: Result<Submission>,
) -> (Arc<dyn Store>, Result<Submission>) {
    #[cfg(feature = "encryption")]
    return super::sealed::in_transaction(store, submission, |sealed, submission| sealed.seal_submission(submission));
    #[cfg(not(feature = "encryption"))]
    (Arc::clone(store), submission)
}

/// The same for a settlement.
pub(crate) fn settlement_in(
    store: &Arc<dyn Store>,
    settlement: Result<Settlement>,
) -> (Arc<dyn Store>, Result<Settlement>) {
    #[cfg(feature = "encryption")]
    return super::sealed::in_transaction(store, settlement, |sealed, said| sealed.seal_settlement(&said));
    #[cfg(not(feature = "encryption"))]
    (Arc::clone(store), settlement)
}

/// The store as what it is, which must be of the transaction's kind.
pub fn store_of<'s, S: Store>(store: &'s Arc<dyn Store>, driver: &str) -> Result<&'s S> {
    let any: &dyn Any = store.as_ref();
    any.downcast_ref::<S>().ok_or_else(|| {
        Error::invalid("transaction", format!("is one of {driver}, but the client's store is {}", store.kind()))
    })
}
