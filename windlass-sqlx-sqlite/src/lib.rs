//! Jobs in an sqlx transaction on SQLite: they commit or vanish with your rows (rules X1 and X2 of Windlass).
//!
//! ```no_run
//! # #[cfg(feature = "sqlx-0_9")]
//! # async fn order(client: windlass::Client, pool: sqlx_0_9::SqlitePool, charge: windlass::NewJob)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! # use sqlx_0_9 as sqlx;
//! use windlass_sqlx_sqlite::Lend;
//!
//! // Immediate: a transaction that reads first cannot always be made a writing one.
//! let mut tx = pool.begin_with("begin immediate").await?;
//! sqlx::query("insert into orders (id) values (42)").execute(&mut *tx).await?;
//! client.enqueue(charge).in_tx(tx.lend()).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! In a handler it is `cx.complete_in_tx(tx.lend(), &result).await?`. The client's store must be the very file that the
//! pool is on, opened as `sqlite:FILE`; anything else is refused.
//!
//! sqlx and Windlass speak to SQLite through different crates, but both link the same library, for a program can link only
//! one. So this crate lends sqlx's connection to the store's own statements while sqlx waits. Lending takes one line of
//! `unsafe`, which is why it is a crate of its own: Windlass has none. The statements run where the future is polled, for
//! as long as SQLite takes to write a few rows.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use windlass::job::Settlement;
use windlass::store::{InTx, Inserted, Settled, Store};
use windlass::workflow::Submission;
use windlass::{Error, Result};

/// An sqlx transaction whose connection can be lent.
pub trait Lend {
    /// sqlx's connection below it.
    type Connection: Handle;

    /// Lends the connection to one call: `client.enqueue(job).in_tx(tx.lend())`.
    fn lend(&mut self) -> Lent<'_, Self::Connection>;
}

/// A connection of sqlx, lent to one call of Windlass.
#[must_use = "nothing happens until it is given to in_tx or complete_in_tx"]
pub struct Lent<'t, C>(&'t mut C);

impl<C> std::fmt::Debug for Lent<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}

/// A connection whose handle can be locked.
pub trait Handle: Send {
    /// Runs `call` on the same connection, which sqlx does not use meanwhile.
    fn with<T: Send>(
        &mut self,
        call: impl FnOnce(&rusqlite::Connection) -> Result<T> + Send,
    ) -> impl Future<Output = Result<T>> + Send;
}

/// What a call in the transaction gives.
pub type Answer<'t, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 't>>;

impl<'t, C: Handle> InTx<'t> for Lent<'t, C> {
    type Answer<T: Send + 't> = Answer<'t, T>;

    fn enqueue<T: Send + 't>(
        self,
        store: Arc<dyn Store>,
        submission: Result<Submission>,
        then: impl FnOnce(Result<Inserted>) -> Result<T> + Send + 't,
    ) -> Answer<'t, T> {
        Box::pin(self.0.with(move |connection| InTx::enqueue(connection, store, submission, then)))
    }

    fn settle<T: Send + 't>(
        self,
        store: Arc<dyn Store>,
        settlement: Result<Settlement>,
        then: impl FnOnce(Result<Settled>) -> Result<T> + Send + 't,
    ) -> Answer<'t, T> {
        Box::pin(self.0.with(move |connection| InTx::settle(connection, store, settlement, then)))
    }
}

/// The adapter for one version of sqlx.
macro_rules! adapter {
    ($sqlx:ident) => {
        impl Lend for $sqlx::Transaction<'_, $sqlx::Sqlite> {
            type Connection = $sqlx::SqliteConnection;

            fn lend(&mut self) -> Lent<'_, $sqlx::SqliteConnection> {
                Lent(&mut **self)
            }
        }

        impl Handle for $sqlx::SqliteConnection {
            async fn with<T: Send>(
                &mut self,
                call: impl FnOnce(&rusqlite::Connection) -> Result<T> + Send,
            ) -> Result<T> {
                let cannot = |error: $sqlx::Error| Error::store("lock sqlx's connection", error);
                let mut handle = self.lock_handle().await.map_err(cannot)?;
                call(&borrowed(handle.as_raw_handle().as_ptr())?)
            }
        }
    };
}

/// A connection of rusqlite on a handle that is somebody else's. It must not outlive the lock under which the handle is.
fn borrowed(handle: *mut rusqlite::ffi::sqlite3) -> Result<rusqlite::Connection> {
    // SAFETY: the only callers hold sqlx's lock on the handle, which is open, until after the connection is dropped: so nobody
    // else uses or closes it. A connection that is made so does not close the handle; it only ends its own statements.
    #[allow(unsafe_code, reason = "SQLite's handle is a raw pointer in both crates")]
    let connection = unsafe { rusqlite::Connection::from_handle(handle) };
    connection.map_err(|error| Error::store("use sqlx's connection", error))
}

#[cfg(feature = "sqlx-0_8")]
adapter!(sqlx_0_8);

#[cfg(feature = "sqlx-0_9")]
adapter!(sqlx_0_9);
