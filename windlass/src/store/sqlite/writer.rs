//! The one thread that writes, so that many callers share one commit.
//!
//! It takes what callers have sent, applies it in one `BEGIN IMMEDIATE` transaction, commits, and answers each caller
//! once the commit is on disk. A lone caller is served at once; after a group of several the thread gives the
//! others a moment to come back, which makes the next group as large. A call that the rules refuse has written nothing
//! and fails alone; when SQLite itself fails, the group is undone and each call is tried on its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{broadcast, oneshot};

use super::fault::{Answer, Fault, is_busy};
use super::place::Place;
use super::transaction::{Names, SharedClock, Transaction};
use super::write_turn::WriteTurn;
use crate::error::Result;
use crate::job::QueueName;
use crate::store::answer::{JobEventKind, Wake};
use crate::store::request::{Cursor, PAGE_MAX};

/// Most calls in one transaction: it bounds how long the first of them waits for the last.
const GROUP_CALLS_MAX: usize = 1024;
/// Most jobs in one transaction, all calls together.
const GROUP_WEIGHT_MAX: usize = 20_000;
/// How long the thread waits for the callers of the last group to come back.
const COMPANY_WAIT: Duration = Duration::from_micros(100);
/// How often other processes' commits are looked for: this after something happened, and ever less often after that.
const LOOK_FIRST: Duration = Duration::from_millis(1);
/// And this after the log has changed: the commit is there once it is synced.
const LOOK_SOON: Duration = Duration::from_micros(200);
const LOOK_LAST: Duration = Duration::from_millis(20);
/// How often the writer looks whether a hint about them is wanted.
const LOOK_UNWANTED: Duration = Duration::from_millis(100);
/// How long to wait for the file's lock between two tries.
const BUSY_FIRST: Duration = Duration::from_micros(200);
const BUSY_LAST: Duration = Duration::from_millis(5);
/// About how many changed pages are worth a checkpoint.
const CHECKPOINT_PAGES: usize = 500;

/// What is sent to the writing thread.
pub(super) enum Sent {
    /// A call.
    Call(Box<dyn Call>),
    /// The log has changed: it may have been another process.
    LogChanged,
}

/// A call that waits for its turn in a transaction.
pub(super) trait Call: Send {
    /// Does it; an error means that the transaction must be undone.
    fn run(&mut self, tx: &mut Transaction<'_>) -> Answer<()>;
    /// About how many jobs it writes.
    fn weight(&self) -> usize;
    /// When it was sent.
    fn since(&self) -> Instant;
    /// Tells the caller what [`run`](Self::run) found, now that it is on disk. Gives a call that takes it back, where the caller has gone
    /// and nobody else can.
    fn committed(self: Box<Self>) -> Option<Box<dyn Call>>;
    /// Tells the caller that it failed. `known`: nothing was written for certain.
    fn failed(self: Box<Self>, fault: Fault, known: bool);
}

/// What takes an answer back: the call that undoes it, if there is anything to undo.
pub(super) type TakeBack<T> = fn(T) -> Option<Box<dyn Call>>;

/// A call made of a function and the channel to the caller that waits for its answer.
pub(super) struct Request<T, F> {
    pub(super) attempted: String,
    pub(super) weight: usize,
    pub(super) since: Instant,
    pub(super) run: F,
    pub(super) answer: Option<Result<T>>,
    pub(super) reply: oneshot::Sender<Result<T>>,
    /// What takes the answer back where nobody hears it. Such a call is not made at all once its caller has gone.
    pub(super) take_back: Option<TakeBack<T>>,
}

impl<T: Send, F: FnMut(&mut Transaction<'_>) -> Answer<T> + Send> Call for Request<T, F> {
    fn run(&mut self, tx: &mut Transaction<'_>) -> Answer<()> {
        if self.take_back.is_some() && self.reply.is_closed() {
            return Ok(());
        }
        self.answer = Some(match (self.run)(tx) {
            Err(fault) if !fault.is_refusal() => return Err(fault),
            Err(fault) => Err(fault.into_error(&self.attempted, true)),
            Ok(answer) => Ok(answer),
        });
        Ok(())
    }

    fn weight(&self) -> usize {
        self.weight
    }

    fn since(&self) -> Instant {
        self.since
    }

    fn committed(self: Box<Self>) -> Option<Box<dyn Call>> {
        // A caller that no longer waits needs no answer.
        let unheard = self.reply.send(self.answer?).err()?.ok()?;
        self.take_back.and_then(|take_back| take_back(unheard))
    }

    fn failed(self: Box<Self>, fault: Fault, known: bool) {
        let _ = self.reply.send(Err(fault.into_error(&self.attempted, known)));
    }
}

/// Why a transaction was undone.
struct Undone {
    fault: Fault,
    /// Whether it is certain that nothing was written: not when the commit itself failed.
    known: bool,
}

/// The writing thread's own things.
pub(super) struct Writer {
    pub(super) conn: Connection,
    pub(super) names: Names,
    pub(super) clock: SharedClock,
    pub(super) calls: Receiver<Sent>,
    /// Whether a change of the log was sent that the thread has not looked at.
    pub(super) log_changed: std::sync::Arc<std::sync::atomic::AtomicBool>,
    pub(super) wakes: broadcast::Sender<Wake>,
    pub(super) turn: WriteTurn,
    /// Where the file was when it was opened.
    pub(super) place: Place,
    /// Asks the other thread for a checkpoint.
    pub(super) checkpoints: SyncSender<()>,
    /// Set by that thread when the log can be started over if the writer finishes the checkpoint.
    pub(super) log_is_long: std::sync::Arc<std::sync::atomic::AtomicBool>,
    pub(super) timeout: Duration,
}

/// What the thread remembers from one group to the next.
struct Pace {
    /// How many calls the last group had.
    last_group: usize,
    look: Duration,
    data_version: i64,
    tick: i64,
    pages: usize,
}

impl Writer {
    /// Serves calls until the store is dropped.
    pub(super) fn run(mut self) {
        // No file has this version, so the first look sees also what others did while this thread was starting.
        let data_version = -1;
        let mut pace = Pace { last_group: 1, look: LOOK_FIRST, data_version, tick: 0, pages: 0 };
        loop {
            let wanted = self.wakes.receiver_count() > 0;
            let idle = if wanted { pace.look } else { LOOK_UNWANTED };
            match self.calls.recv_timeout(idle) {
                Ok(Sent::LogChanged) if wanted => {
                    pace.look = LOOK_SOON;
                    self.look_for_others(&mut pace);
                }
                // The next listener is told of it by the next look.
                Ok(Sent::LogChanged) => self.log_changed.store(false, std::sync::atomic::Ordering::SeqCst),
                Ok(Sent::Call(first)) => {
                    let group = self.gather(first, pace.last_group);
                    pace.last_group = group.len();
                    pace.pages += 8 + group.iter().map(|call| call.weight()).sum::<usize>() / 4;
                    pace.look = LOOK_FIRST;
                    self.serve(group, &mut pace);
                    self.keep_log_short(&mut pace);
                }
                Err(RecvTimeoutError::Timeout) if wanted => self.look_for_others(&mut pace),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The first call and those that came with it.
    fn gather(&self, first: Box<dyn Call>, expected: usize) -> Vec<Box<dyn Call>> {
        let mut weight = first.weight();
        let mut group = vec![first];
        let deadline = Instant::now() + COMPANY_WAIT;
        while group.len() < GROUP_CALLS_MAX && weight < GROUP_WEIGHT_MAX {
            let next = match self.calls.try_recv() {
                Ok(Sent::Call(next)) => next,
                // The thread looks after this group.
                Ok(Sent::LogChanged) => {
                    self.log_changed.store(false, std::sync::atomic::Ordering::SeqCst);
                    continue;
                }
                // Alone, or as many as last time: no caller is being waited for.
                Err(_) if expected < 2 || group.len() >= expected => break,
                Err(_) => match self.calls.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(Sent::Call(next)) => next,
                    Ok(Sent::LogChanged) => {
                        self.log_changed.store(false, std::sync::atomic::Ordering::SeqCst);
                        continue;
                    }
                    Err(_) => break,
                },
            };
            weight += next.weight();
            group.push(next);
        }
        group
    }

    fn serve(&mut self, mut group: Vec<Box<dyn Call>>, pace: &mut Pace) {
        match self.transact(&mut group, pace) {
            Ok(hints) => {
                let unheard: Vec<_> = group.into_iter().filter_map(Call::committed).collect();
                self.pass_on(hints);
                if !unheard.is_empty() {
                    self.serve(unheard, pace);
                }
            }
            Err(Undone { fault, known: true }) if group.len() > 1 && !busy(&fault) && !fault.is_everybodys() => {
                // One of them is bad: each on its own, so that only that one fails.
                for call in group {
                    self.serve(vec![call], pace);
                }
            }
            Err(undone) => fail_all(group, undone),
        }
    }

    fn transact(&mut self, group: &mut [Box<dyn Call>], pace: &mut Pace) -> std::result::Result<Vec<Wake>, Undone> {
        let since = group.iter().map(|call| call.since()).min().unwrap_or_else(Instant::now);
        let turn = self.turn.take();
        self.begin(since + self.timeout).map_err(|error| Undone { fault: error.into(), known: true })?;
        let written = self.write(group);
        let undone = match written {
            // Whatever was written to a file that is not there any more would be lost with this process.
            Ok(_) if !self.place.is_there() => Undone { fault: Fault::Gone, known: true },
            Ok((hints, tick)) => match self.conn.execute_batch("commit") {
                Ok(()) => {
                    drop(turn);
                    pace.tick = tick;
                    return Ok(hints);
                }
                // A full disk or a lock is found before anything is made durable; a failed sync is not.
                Err(error) => {
                    let known = is_busy(&error) || error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
                    Undone { fault: error.into(), known }
                }
            },
            Err(fault) => Undone { fault, known: true },
        };
        if !self.conn.is_autocommit() {
            // The transaction is over whether or not this works.
            let _ = self.conn.execute_batch("rollback");
        }
        self.names.forget();
        Err(undone)
    }

    fn write(&mut self, group: &mut [Box<dyn Call>]) -> Answer<(Vec<Wake>, i64)> {
        let mut tx = Transaction::begin_writing(&self.conn, &mut self.names, self.clock.as_ref())?;
        for call in group {
            tx.look_at(self.clock.as_ref());
            call.run(&mut tx)?;
        }
        let tick = tx.ticks();
        Ok((tx.finish()?, tick))
    }

    /// Takes the file's lock, waiting while another program has it.
    fn begin(&self, deadline: Instant) -> rusqlite::Result<()> {
        let mut wait = BUSY_FIRST;
        loop {
            match self.conn.execute_batch("begin immediate") {
                Err(error) if is_busy(&error) && Instant::now() < deadline => {
                    self.turn.was_busy();
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(BUSY_LAST);
                }
                other => return other,
            }
        }
    }

    /// Asks for a checkpoint when enough was written, and finishes one that cannot catch up by itself.
    fn keep_log_short(&self, pace: &mut Pace) {
        if pace.pages >= CHECKPOINT_PAGES {
            pace.pages = 0;
            // One request that is waiting is as good as two.
            let _ = self.checkpoints.try_send(());
        }
        if self.log_is_long.swap(false, std::sync::atomic::Ordering::Relaxed) {
            // Most of it has been copied by the other thread. When the rest is too, the next write starts the log over.
            let _ = self.conn.query_row("pragma wal_checkpoint(passive)", [], |_| Ok(()));
        }
    }

    fn data_version(&self) -> rusqlite::Result<i64> {
        self.conn.prepare_cached("pragma data_version")?.query_row([], |row| row.get(0))
    }

    /// Passes on what other processes did since the last look.
    fn look_for_others(&mut self, pace: &mut Pace) {
        self.log_changed.store(false, std::sync::atomic::Ordering::SeqCst);
        let Ok(version) = self.data_version() else { return };
        if version == pace.data_version {
            pace.look = (pace.look * 2).min(LOOK_LAST);
            return;
        }
        (pace.data_version, pace.look) = (version, LOOK_FIRST);
        let hints = self.conn.execute_batch("begin").map_err(Fault::from).and_then(|()| self.others(pace));
        let _ = self.conn.execute_batch("rollback");
        // A failure here costs a hint, and callers poll as well.
        self.pass_on(hints.unwrap_or_default());
    }

    fn pass_on(&self, hints: Vec<Wake>) {
        if self.wakes.receiver_count() > 0 {
            for hint in hints {
                // A listener that has gone meanwhile needs no hint.
                let _ = self.wakes.send(hint);
            }
        }
    }

    fn others(&mut self, pace: &mut Pace) -> Answer<Vec<Wake>> {
        let mut tx = Transaction::begin(&self.conn, &mut self.names, self.clock.as_ref())?;
        let mut hints = Vec::new();
        let after = Cursor(pace.tick.to_string());
        for event in tx.events(Some(&after), PAGE_MAX)?.items {
            if let JobEventKind::Ended(_) = event.kind {
                hints.push(Wake::Ended(event.job));
            }
        }
        for queue in tx.queues()? {
            if queue.oldest_scheduled.is_some() {
                hints.push(Wake::Scheduled(QueueName::clone(&queue.name)));
            }
        }
        hints.extend(tx.asked_to_stop()?.into_iter().map(Wake::CancelAsked));
        pace.tick = tx.ticks();
        Ok(hints)
    }
}

fn busy(fault: &Fault) -> bool {
    matches!(fault, Fault::Sql(error) if is_busy(error))
}

/// Tells every caller of a group what became of it.
fn fail_all(group: Vec<Box<dyn Call>>, undone: Undone) {
    let Undone { fault, known } = undone;
    for call in group {
        let own = match &fault {
            Fault::Sql(error) => Fault::Sql(again(error)),
            Fault::Broken(what) => Fault::Broken(what.clone()),
            Fault::Gone => Fault::Gone,
            Fault::Closed(closed) => Fault::Closed(closed.clone()),
            Fault::Refused(error) => Fault::broken(error.to_string()),
        };
        call.failed(own, known);
    }
}

/// SQLite's error once more, for another caller.
fn again(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => rusqlite::Error::SqliteFailure(*code, message.clone()),
        other => rusqlite::Error::ToSqlConversionFailure(other.to_string().into()),
    }
}
