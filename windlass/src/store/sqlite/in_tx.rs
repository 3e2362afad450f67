//! Enqueue and complete inside the application's own transaction, on the application's own connection.
//!
//! Jobs then live in the application's own file, and commit or vanish with its rows (rules X1 and X2). With a
//! [`Client`](crate::Client) on that file it is `client.enqueue(job).in_tx(&tx)?`; without one:
//!
//! ```
//! use windlass::store::sqlite::{in_tx, migrate};
//! use windlass::workflow::Submission;
//! use windlass::clock::SystemClock;
//! use windlass::job::Limits;
//! use windlass::{NewJob, Payload, Policies};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = SystemClock::default();
//! let mut database = rusqlite::Connection::open_in_memory()?;
//! migrate(&database)?;
//! database.execute_batch("create table orders (number integer primary key)")?;
//!
//! // Immediate: a transaction that reads first cannot always be made a writing one.
//! let tx = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//! tx.execute("insert into orders (number) values (42)", [])?;
//! let job = NewJob::new("charge", Payload::json(&42)?).check(&Limits::default(), &Policies::default())?;
//! in_tx::enqueue(&tx, &clock, &Submission::new(vec![job])?)?;
//! tx.commit()?;
//! # Ok(())
//! # }
//! ```
//!
//! The file must have Windlass's tables: open a [`SqliteStore`] on it once, or call
//! [`migrate`](super::migrate). The clock must be the one that the stores on the file use.

use std::slice;
use std::sync::Arc;

use rusqlite::Connection;

use super::SqliteStore;
use super::fault::{Answer, Fault};
use super::transaction::{Names, Transaction};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::job::{Lease, Payload, Settlement, State};
use crate::store::Store;
use crate::store::answer::{Inserted, Settled};
use crate::store::in_tx::{InTx, store_of};
use crate::workflow::Submission;

/// Stores a submission in the transaction that is open on `conn` (rule X1).
///
/// An error of the rules (a field, a dependency) has written nothing; after any other the transaction should be undone.
pub fn enqueue(conn: &Connection, clock: &dyn Clock, submission: &Submission) -> Result<Inserted> {
    let attempted = match submission.jobs().len() {
        1 => "enqueue a job in a transaction".to_owned(),
        count => format!("enqueue {count} jobs in a transaction"),
    };
    run(conn, clock, |tx| tx.insert(submission)).map_err(|fault| fault.into_error(&attempted, true))
}

/// Completes a job in the transaction that is open on `conn`, fenced by its lease (rule X2).
///
/// [`Error::StaleLease`] says that the lease does not hold: undo the transaction, another worker runs the job.
pub fn complete(conn: &Connection, clock: &dyn Clock, lease: Lease, result: Option<Payload>) -> Result<State> {
    let job = lease.job();
    match settle(conn, clock, &lease.complete(result))? {
        Settled::Applied(state) => Ok(state),
        Settled::AlreadyApplied => Ok(State::Completed),
        Settled::Stale(stale) => Err(Error::StaleLease { job, stale }),
        Settled::Refused(error) => Err(error),
    }
}

/// Writes a settlement in the transaction that is open on `conn`, fenced by its lease.
pub fn settle(conn: &Connection, clock: &dyn Clock, settlement: &Settlement) -> Result<Settled> {
    let attempted = "settle a job in a transaction";
    run(conn, clock, |tx| Ok(tx.settle(slice::from_ref(settlement))?.remove(0)))
        .map_err(|fault| fault.into_error(attempted, true))
}

fn run<T>(conn: &Connection, clock: &dyn Clock, write: impl FnOnce(&mut Transaction<'_>) -> Answer<T>) -> Answer<T> {
    if conn.is_autocommit() {
        return Err(Fault::Refused(Error::invalid("transaction", "none is open on this connection")));
    }
    let mut names = Names::default();
    let mut tx = Transaction::begin_writing(conn, &mut names, clock)?;
    let answer = write(&mut tx)?;
    // Stores on the file notice the commit by themselves.
    tx.finish()?;
    Ok(answer)
}

/// For a connection whose transaction was begun by other means: of another driver on the same handle, or with `begin`.
///
/// Without an open transaction it is refused.
impl<'t> InTx<'t> for &'t Connection {
    type Answer<T: Send + 't> = Result<T>;

    fn enqueue<T: Send + 't>(
        self,
        store: Arc<dyn Store>,
        submission: Result<Submission>,
        then: impl FnOnce(Result<Inserted>) -> Result<T> + Send + 't,
    ) -> Result<T> {
        let clock = clock_for(&store, self);
        then(clock.and_then(|clock| enqueue(self, clock, &submission?)))
    }

    fn settle<T: Send + 't>(
        self,
        store: Arc<dyn Store>,
        settlement: Result<Settlement>,
        then: impl FnOnce(Result<Settled>) -> Result<T> + Send + 't,
    ) -> Result<T> {
        let clock = clock_for(&store, self);
        then(clock.and_then(|clock| settle(self, clock, &settlement?)))
    }
}

impl<'t> InTx<'t> for &'t rusqlite::Transaction<'_> {
    type Answer<T: Send + 't> = Result<T>;

    fn enqueue<T: Send + 't>(
        self,
        store: Arc<dyn Store>,
        submission: Result<Submission>,
        then: impl FnOnce(Result<Inserted>) -> Result<T> + Send + 't,
    ) -> Result<T> {
        InTx::enqueue(&**self, store, submission, then)
    }

    fn settle<T: Send + 't>(
        self,
        store: Arc<dyn Store>,
        settlement: Result<Settlement>,
        then: impl FnOnce(Result<Settled>) -> Result<T> + Send + 't,
    ) -> Result<T> {
        InTx::settle(&**self, store, settlement, then)
    }
}

/// The clock of the store, which must be on the file of the connection.
fn clock_for<'s>(store: &'s Arc<dyn Store>, conn: &Connection) -> Result<&'s dyn Clock> {
    let store: &SqliteStore = store_of(store, "rusqlite")?;
    let same = conn.path().is_some_and(|path| {
        let (theirs, ours) = (std::fs::canonicalize(path), std::fs::canonicalize(store.path()));
        matches!((theirs, ours), (Ok(theirs), Ok(ours)) if theirs == ours)
    });
    match same {
        true => Ok(store.clock()),
        false => Err(Error::invalid("transaction", "is on another file than the client's store")),
    }
}
