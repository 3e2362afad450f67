//! Opening connections: every setting of SQLite that Windlass relies on is here.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::fault::{Answer, is_busy};
use super::place;
use crate::store::open::UnderWorkers;

/// How many statements a connection keeps prepared; more than there are.
const STATEMENTS_KEPT: usize = 192;
/// How long a reader waits for a lock that only recovery after a crash can hold.
const READER_BUSY: Duration = Duration::from_secs(30);
/// The log's file is cut back to this when it starts over, so that one long reader does not leave a huge file.
const LOG_BYTES_KEPT: i64 = 64 << 20;
/// Page caches, in KiB: of the writer, and of each other connection.
const WRITER_CACHE_KIB: i64 = 32 << 10;
const READER_CACHE_KIB: i64 = 4 << 10;

/// Which file, and with which settings.
#[derive(Clone, Debug)]
pub(super) struct Opener {
    pub(super) path: PathBuf,
    pub(super) full_sync: bool,
    pub(super) pages_max: Option<u32>,
    /// Whether a file that does not exist is an error.
    pub(super) existing: bool,
    pub(super) under_workers: UnderWorkers,
}

impl Opener {
    /// The connection that writes. A new file is made to give space back.
    pub(super) fn writer(&self) -> Answer<Connection> {
        let conn = self.connect(!self.existing)?;
        let tables: i64 = conn.query_row("select count(*) from sqlite_master", [], |row| row.get(0))?;
        if tables == 0 {
            // Only an empty file can be told so; in an application's own file its setting stays.
            conn.execute_batch("pragma auto_vacuum = incremental")?;
        }
        let mode: String = conn.query_row("pragma journal_mode", [], |row| row.get(0))?;
        if mode != "wal" {
            let _: String = retried(|| conn.query_row("pragma journal_mode = wal", [], |row| row.get(0)))?;
        }
        conn.pragma_update(None, "synchronous", if self.full_sync { "full" } else { "normal" })?;
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        conn.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
        conn.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        if let Some(pages) = self.pages_max {
            conn.pragma_update(None, "max_page_count", pages)?;
        }
        Ok(conn)
    }

    /// Makes the file, for its owner alone, unless it is there.
    pub(super) fn make(&self) {
        // A file that cannot be made, SQLite cannot open, and its error says why.
        let _ = place::make(&self.path);
    }

    /// A connection that reads. It makes no file: one that is gone must not seem empty.
    pub(super) fn reader(&self) -> Answer<Connection> {
        let conn = self.connect(false)?;
        conn.pragma_update(None, "query_only", true)?;
        conn.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
        Ok(conn)
    }

    /// The connection of the thread that makes checkpoints.
    pub(super) fn checkpointer(&self) -> Answer<Connection> {
        let conn = self.connect(false)?;
        conn.pragma_update(None, "synchronous", if self.full_sync { "full" } else { "normal" })?;
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        Ok(conn)
    }

    fn connect(&self, may_make: bool) -> Answer<Connection> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, may_make);
        let conn = Connection::open_with_flags(&self.path, flags)?;
        conn.busy_timeout(READER_BUSY)?;
        // Otherwise a statement with `limit ?` is compiled anew each time: 0.2 ms for a claim.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        Ok(conn)
    }
}

/// Tries again while another program holds the file; not every statement heeds the busy timeout.
fn retried<T>(mut run: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let deadline = std::time::Instant::now() + READER_BUSY;
    loop {
        match run() {
            Err(error) if is_busy(&error) && std::time::Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}

/// Brings the tables up to date, waiting while another process does.
pub(super) fn migrated(conn: &Connection, under: UnderWorkers) -> Answer<()> {
    conn.busy_timeout(READER_BUSY)?;
    super::migrate::migrate(conn, under)?;
    // From here on the writer waits by itself, so that it can give up in time.
    Ok(conn.busy_timeout(Duration::ZERO)?)
}
