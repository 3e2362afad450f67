//! Reading on connections of its own, which see the last commit and never hold up the writer.

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::fault::{Answer, Fault};
use super::open::Opener;
use super::transaction::{Names, SharedClock, Transaction};
use crate::error::{Error, Result};

/// Most reads at once; each connection costs a cache.
const READERS_MAX: usize = 4;

/// Connections for reading.
pub(super) struct Readers {
    opener: Opener,
    clock: SharedClock,
    idle: Mutex<Vec<(Connection, Names)>>,
    permits: Semaphore,
}

impl Readers {
    pub(super) fn new(opener: Opener, clock: SharedClock) -> Self {
        Readers { opener, clock, idle: Mutex::default(), permits: Semaphore::new(READERS_MAX) }
    }

    /// Runs a read in one snapshot of the file.
    pub(super) async fn read<T, F>(self: &Arc<Self>, attempted: &'static str, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Answer<T> + Send + 'static,
    {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        let readers = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || readers.read_now(read));
        match done.await {
            Ok(answer) => answer.map_err(|fault| fault.into_error(attempted, true)),
            Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
            Err(join) => Err(Error::store(attempted, join)),
        }
    }

    fn read_now<T>(&self, read: impl FnOnce(&mut Transaction<'_>) -> Answer<T>) -> Answer<T> {
        let idle = self.idle.lock().expect("nothing panics while it holds the list").pop();
        let (conn, mut names) = match idle {
            Some(session) => session,
            None => (self.opener.reader()?, Names::default()),
        };
        conn.execute_batch("begin")?;
        let answer = Transaction::begin(&conn, &mut names, self.clock.as_ref()).and_then(|mut tx| read(&mut tx));
        conn.execute_batch("rollback")?;
        // A connection that failed is not used again.
        if !matches!(answer, Err(Fault::Sql(_))) {
            self.idle.lock().expect("nothing panics while it holds the list").push((conn, names));
        }
        answer
    }
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers").field("opener", &self.opener).finish_non_exhaustive()
    }
}
