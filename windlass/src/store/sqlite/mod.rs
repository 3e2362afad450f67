//! The store in a SQLite file: durable, on one machine, with nothing to install.
//!
//! One thread writes (`writer`), so that many callers share one commit; reads have connections of their own
//! (`reader`). A job's state is the table it stands in, and moving it is a delete and an insert of a narrow row; see
//! `migrations/`. Each method of the store is a method of `Transaction` in the file named after it, on a plain
//! connection: the same code serves the application's own transactions ([`in_tx`]).
//!
//! Decisions: ids lead to their row without an index (`store/ids.rs`); what falls due is in its place already, so nothing is
//! moved when its time comes; counts are kept per lane and written once in a transaction; jobs with numbers close together
//! are written, leased, completed and removed in one statement (`plain_jobs.rs`, `runs.rs`); a new file gives space back in
//! small steps (`auto_vacuum = incremental`), an application's own file keeps its setting and reuses freed pages.

mod check;
mod checkpoint;
mod claim;
mod columns;
mod control;
mod edges;
mod entry;
mod fault;
mod faults;
mod gated_claim;
mod gated_picks;
mod gated_view;
mod hot_statements;
pub mod in_tx;
mod insert;
mod insert_batch;
mod job_rows;
mod lease;
mod lease_ranges;
mod list;
mod migrate;
mod moving;
mod moving_rows;
mod open;
mod operate;
mod ordered;
mod place;
mod prune;
mod read;
mod reader;
mod records;
mod rewrite;
mod schedules;
mod settle;
mod store;
mod strands;
mod transaction;
mod upkeep;
mod watch;
mod working;
mod write_turn;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{broadcast, oneshot};

use self::fault::{Answer, Fault};
pub use self::migrate::{SCHEMA_VERSION, sql};
use self::open::Opener;
use self::place::Place;
use self::reader::Readers;
use self::transaction::{Names, SharedClock, Transaction};
use self::write_turn::WriteTurn;
use self::writer::{Call, Request, Sent, Writer};
use super::answer::{Claims, Wake};
use super::request::{CALL_MAX, ClaimRequest};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::store::open::UnderWorkers;

/// How many hints a slow listener may fall behind; it is then told so, and looks for itself.
const WAKES_KEPT: usize = 1024;
/// How long a call waits for a file that another program holds (rule T3).
const SUBMISSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Jobs in a SQLite file.
pub struct SqliteStore {
    /// `None` only while the store is being dropped.
    calls: Option<mpsc::Sender<Sent>>,
    /// Hears of other processes' commits.
    watch: Option<watch::Watch>,
    readers: Arc<Readers>,
    clock: SharedClock,
    wakes: broadcast::Sender<Wake>,
    threads: Vec<JoinHandle<()>>,
    opener: Opener,
}

/// How a file is opened.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    clock: SharedClock,
    opener: Opener,
    timeout: Duration,
}

impl SqliteOptions {
    /// The usual settings for a file: durable, on the machine's clock.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        SqliteOptions {
            clock: Arc::new(SystemClock::default()),
            opener: Opener {
                path: path.into(),
                full_sync: true,
                pages_max: None,
                existing: false,
                under_workers: UnderWorkers::Refuse,
            },
            timeout: SUBMISSION_TIMEOUT,
        }
    }

    /// Opens only a file that is there and whose tables are up to date: makes nothing and migrates nothing.
    ///
    /// For tools that look at a store, so that a slip in its path does not make an empty one.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.opener.existing = true;
        self
    }

    /// Migrates on opening even while workers live that use the tables as they are. They are of an older program, whose
    /// statements may fail from then on; without this, opening is refused.
    #[must_use]
    pub fn migrate_under_workers(mut self) -> Self {
        self.opener.under_workers = UnderWorkers::Migrate;
        self
    }

    /// Takes the time from this clock; every store on the file must use the same.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Answers before a commit is on disk: quicker, but a power cut can lose the last moments that were acknowledged.
    ///
    /// A crash of the process alone loses nothing.
    #[must_use]
    pub fn may_lose_on_power_cut(mut self) -> Self {
        self.opener.full_sync = false;
        self
    }

    /// Lets the file grow to this many pages and no further.
    #[must_use]
    pub fn pages_max(mut self, pages: u32) -> Self {
        self.opener.pages_max = Some(pages);
        self
    }

    /// How long a call waits for a file that another program holds; 30 s unless said otherwise.
    #[must_use]
    pub fn submission_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Opens the file, which is made if it does not exist, and brings its tables up to date.
    pub fn open(self) -> Result<SqliteStore> {
        let attempted = format!("open SQLite store {:?}", self.opener.path.display());
        self.start().map_err(|fault| fault.into_error(&attempted, true))
    }

    fn start(self) -> Answer<SqliteStore> {
        let SqliteOptions { clock, opener, timeout } = self;
        if opener.existing {
            migrate::check(&opener.reader()?)?;
        }
        if !opener.existing {
            opener.make();
        }
        let conn = opener.writer()?;
        self::open::migrated(&conn, opener.under_workers)?;
        let (calls, received) = mpsc::channel();
        let (checkpoints, asked) = mpsc::sync_channel(1);
        let (wakes, _) = broadcast::channel(WAKES_KEPT);
        let (log_is_long, log_changed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let writer = Writer {
            conn,
            names: Names::default(),
            clock: Arc::clone(&clock),
            calls: received,
            log_changed: Arc::clone(&log_changed),
            wakes: wakes.clone(),
            turn: WriteTurn::beside(&opener.path),
            place: Place::of(&opener.path),
            checkpoints,
            log_is_long: Arc::clone(&log_is_long),
            timeout,
        };
        let checkpointer = opener.checkpointer()?;
        let threads = vec![
            spawn("windlass-sqlite-writer", move || writer.run())?,
            spawn("windlass-sqlite-checkpoint", move || checkpoint::run(&checkpointer, &asked, &log_is_long))?,
        ];
        let readers = Arc::new(Readers::new(opener.clone(), Arc::clone(&clock)));
        let watch = watch_log(&opener.path, &calls, &wakes, log_changed);
        Ok(SqliteStore { calls: Some(calls), watch, readers, clock, wakes, threads, opener })
    }
}

/// Asks the writing thread to look at each change of the log, while anybody wants hints.
fn watch_log(
    file: &Path,
    calls: &mpsc::Sender<Sent>,
    wakes: &broadcast::Sender<Wake>,
    log_changed: Arc<AtomicBool>,
) -> Option<watch::Watch> {
    // The log is beside the file itself, not beside a link to it.
    let mut log = file.canonicalize().unwrap_or_else(|_| file.to_owned()).into_os_string();
    log.push("-wal");
    let (calls, wakes) = (calls.clone(), wakes.clone());
    watch::start(Path::new(&log), move || {
        if wakes.receiver_count() > 0 && !log_changed.swap(true, Ordering::SeqCst) {
            let _ = calls.send(Sent::LogChanged);
        }
    })
}

impl SqliteStore {
    /// Opens a file with the usual settings.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        SqliteOptions::new(path).open()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.opener.path
    }

    /// The clock that decides everything here; for [`in_tx`].
    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Copies the whole file, as it is at one moment, to a new one, while jobs come and go.
    ///
    /// The copy is complete when this returns. `to` must not exist.
    pub async fn backup(&self, to: impl Into<PathBuf>) -> Result<()> {
        let (to, opener) = (to.into(), self.opener.clone());
        let attempted = format!("back up to {:?}", to.display());
        // A link that leads nowhere would be followed, and what it names be made.
        if to.symlink_metadata().is_ok() {
            return Err(Error::Conflict(format!("cannot {attempted}: it exists already")));
        }
        let done = tokio::task::spawn_blocking(move || backup(&opener, &to));
        match done.await {
            Ok(answer) => answer.map_err(|fault| fault.into_error(&attempted, false)),
            Err(join) => Err(Error::store(attempted, join)),
        }
    }

    /// Sends a call to the writing thread and waits until it is on disk.
    async fn write<T, F>(&self, attempted: String, weight: usize, mut run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Answer<T> + Send + 'static,
    {
        let run = move |tx: &mut Transaction<'_>| {
            tx.write_plain_jobs()?;
            run(tx)
        };
        self.send(attempted, weight, run, None).await
    }

    /// Claims. What nobody hears of is given back, uncounted: it would stand still until its leases end, and then count as lost.
    async fn claim_heard(&self, attempted: String, request: ClaimRequest) -> Result<Claims> {
        let weight = request.limit.min(CALL_MAX);
        let run = move |tx: &mut Transaction<'_>| {
            tx.write_plain_jobs()?;
            tx.claim(&request)
        };
        self.send(attempted, weight, run, Some(give_back)).await
    }

    /// The same for a call that adds to what the calls before it in a transaction gathered.
    async fn add<T, F>(&self, attempted: String, weight: usize, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Answer<T> + Send + 'static,
    {
        self.send(attempted, weight, run, None).await
    }

    async fn send<T, F>(
        &self,
        attempted: String,
        weight: usize,
        run: F,
        take_back: Option<writer::TakeBack<T>>,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Answer<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let gone = |known| Error::StoreUnavailable {
            attempted: attempted.clone(),
            problem: "the writing thread is gone".to_owned(),
            known,
            source: None,
        };
        let (since, attempted_) = (Instant::now(), attempted.clone());
        let request = Request { attempted: attempted_, weight, since, run, answer: None, reply, take_back };
        let calls = self.calls.as_ref().ok_or_else(|| gone(true))?;
        calls.send(Sent::Call(Box::new(request))).map_err(|_| gone(true))?;
        answer.await.map_err(|_| gone(false))?
    }
}

/// Gives back what a claim was granted whose caller has gone. Its handlers never started, so this is not counted.
fn give_back(claims: Claims) -> Option<Box<dyn Call>> {
    let jobs = claims.jobs.len();
    let releases: Vec<_> = claims.jobs.into_iter().map(|claimed| claimed.lease.release()).collect();
    let run = move |tx: &mut Transaction<'_>| {
        tx.write_plain_jobs()?;
        tx.settle(&releases)?;
        tracing::warn!(jobs, "gave back jobs of a claim that nobody waited for");
        Ok(())
    };
    let (reply, _) = oneshot::channel();
    let (attempted, since) = ("give back jobs".to_owned(), Instant::now());
    let request = Request { attempted, weight: jobs, since, run, answer: None, reply, take_back: None };
    (jobs > 0).then(|| Box::new(request) as Box<dyn Call>)
}

/// Makes Windlass's tables in an application's own file, or brings them up to date.
///
/// Inside the transaction that is open on `conn`, if there is one.
pub fn migrate(conn: &Connection) -> Result<()> {
    migrate::migrate(conn, UnderWorkers::Refuse)
        .map_err(|fault| fault.into_error("migrate the tables of Windlass", true))
}

fn backup(opener: &Opener, to: &Path) -> Answer<()> {
    let from = opener.reader()?;
    let cannot = |error: std::io::Error| Fault::broken(format!("cannot make {}: {error}", to.display()));
    place::make_copy(&opener.path, to).map_err(cannot)?;
    let mut copy = Connection::open(to)?;
    let whole = rusqlite::backup::Backup::new(&from, &mut copy)?;
    // All pages in one step: a copy in several would begin anew whenever something was written in between.
    whole.step(-1)?;
    drop(whole);
    copy.close().map_err(|(_, error)| error)?;
    Ok(())
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Answer<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|error| Fault::broken(format!("cannot start a thread: {error}")))
}

impl Drop for SqliteStore {
    /// Finishes what was sent, and closes the file.
    fn drop(&mut self) {
        self.calls = None;
        // It holds the other end of the channel, whose end is what stops the writing thread.
        self.watch = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.opener.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_can_be_prepared() {
        let conn = Connection::open_in_memory().expect("open");
        migrate(&conn).expect("migrate");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite/sql");
        let mut prepared = 0;
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("a file").path();
            // Makes a table that is there by now.
            if path.ends_with("create_version.sql") {
                continue;
            }
            let sql = std::fs::read_to_string(&path).expect("a text");
            conn.prepare(&sql).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            prepared += 1;
        }
        assert!(prepared > 80, "only {prepared} statements were found");
    }
}
