//! The one thread that writes, so that many callers share one commit.
//!
//! It takes what callers have sent, applies it in one `BEGIN IMMEDIATE` transaction, commits, and answers each caller
//! once the commit is on disk. A lone caller is served at once; after a group of several the thread gives the
//! others a moment to come back, which makes the next group as large; what comes while another process has the file joins the
//! group as well. A call that the rules refuse has written nothing
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
/// How long a call waits for company while another process writes as well: each turn costs both of them a commit.
const CROWDED_WAIT: Duration = Duration::from_millis(1);
/// How many calls then make a group: a settlement and the next claim.
const CROWDED_CALLS: usize = 2;
/// Of how many groups at least one waits for company, however often that was in vain.
const SKIPS_MAX: u32 = 64;
/// How often other processes' commits are looked for: this after something happened, and ever less often after that.
const LOOK_FIRST: Duration = Duration::from_millis(1);
/// And this after the log has changed: the commit is there once it is synced.
const LOOK_SOON: Duration = Duration::from_micros(200);
const LOOK_LAST: Duration = Duration::from_millis(20);
/// How many events a look passes on at most, the newest: callers that wait for older ones look for themselves.
const EVENTS_MAX: i64 = 10_000;
/// A version that no file has, so that the first look sees also what others did while the thread was starting.
const FIRST_LOOK: i64 = -1;
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
    /// Whether another process was writing when the last group had its turn.
    crowded: bool,
    /// How many groups do not wait for company, and how many will not after the next wait in vain.
    skips: u32,
    skips_next: u32,
    look: Duration,
    data_version: i64,
    /// Up to which tick others' ends were passed on.
    tick: i64,
    /// Whether others have done something since that was not looked at, and when it was looked last.
    behind: bool,
    looked: Instant,
    pages: usize,
}

impl Pace {
    fn new() -> Self {
        Pace {
            last_group: 1,
            crowded: false,
            skips: 0,
            skips_next: 1,
            look: LOOK_FIRST,
            data_version: FIRST_LOOK,
            tick: 0,
            behind: false,
            looked: Instant::now(),
            pages: 0,
        }
    }

    /// Notes a commit of this process between these ticks. Ends of others that came before it have not been passed on.
    fn committed(&mut self, before: i64, after: i64) {
        match before == self.tick {
            true => self.tick = after,
            false => self.behind = true,
        }
    }

    /// Whether the next group waits for company because turns are scarce. A caller that is alone must not wait for nobody each time.
    fn waits_for_company(&mut self) -> bool {
        let skips = self.skips > 0;
        self.skips = self.skips.saturating_sub(1);
        self.crowded && !skips
    }

    fn had_company(&mut self, had: bool) {
        (self.skips, self.skips_next) = match had {
            true => (0, 1),
            false => (self.skips_next, (self.skips_next * 2).min(SKIPS_MAX)),
        };
    }
}

impl Writer {
    /// Serves calls until the store is dropped.
    pub(super) fn run(mut self) {
        let mut pace = Pace::new();
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
                    let group = self.gather(first, &mut pace);
                    pace.last_group = 0;
                    pace.look = LOOK_FIRST;
                    self.serve(group, GROUP_CALLS_MAX, &mut pace);
                    self.keep_log_short(&mut pace);
                    if wanted && pace.behind && pace.looked.elapsed() >= LOOK_FIRST {
                        self.look_for_others(&mut pace);
                    }
                }
                Err(RecvTimeoutError::Timeout) if wanted => self.look_for_others(&mut pace),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The first call and those that came with it.
    fn gather(&mut self, first: Box<dyn Call>, pace: &mut Pace) -> Vec<Box<dyn Call>> {
        let mut weight = first.weight();
        let mut group = vec![first];
        let begun = Instant::now();
        // Where turns are scarce a settlement waits for the claim that follows it: what others have done meanwhile is looked for, and
        // workers hear of it.
        let crowded = self.wakes.receiver_count() > 0 && pace.waits_for_company();
        let (expected, deadline) = match crowded {
            true => (pace.last_group.max(CROWDED_CALLS), begun + CROWDED_WAIT),
            false => (pace.last_group, begun + COMPANY_WAIT),
        };
        while group.len() < GROUP_CALLS_MAX && weight < GROUP_WEIGHT_MAX {
            let next = match self.calls.try_recv() {
                Ok(next) => next,
                // Alone, or as many as last time: no caller is being waited for.
                Err(_) if expected < 2 || group.len() >= expected => break,
                Err(_) => {
                    let rest = deadline.saturating_duration_since(Instant::now());
                    match self.calls.recv_timeout(rest.min(LOOK_SOON)) {
                        Ok(next) => next,
                        Err(RecvTimeoutError::Timeout) if crowded && rest > LOOK_SOON => Sent::LogChanged,
                        Err(_) => break,
                    }
                }
            };
            match next {
                Sent::Call(call) => {
                    weight += call.weight();
                    group.push(call);
                }
                Sent::LogChanged if crowded => self.look_for_others(pace),
                // The thread looks after this group.
                Sent::LogChanged => self.log_changed.store(false, std::sync::atomic::Ordering::SeqCst),
            }
        }
        if crowded {
            pace.had_company(group.len() > 1);
        }
        group
    }

    /// Takes in what came while the thread waited for the lock of another process, up to `most` calls in all: it has its place in
    /// the same commit.
    fn gather_late(&self, group: &mut Vec<Box<dyn Call>>, most: usize) {
        let mut weight = group.iter().map(|call| call.weight()).sum::<usize>();
        while group.len() < most && weight < GROUP_WEIGHT_MAX {
            match self.calls.try_recv() {
                Ok(Sent::Call(next)) => {
                    weight += next.weight();
                    group.push(next);
                }
                // The thread looks after this group.
                Ok(Sent::LogChanged) => self.log_changed.store(false, std::sync::atomic::Ordering::SeqCst),
                Err(_) => return,
            }
        }
    }

    /// Serves a group, to which up to `most` calls in all may belong.
    fn serve(&mut self, mut group: Vec<Box<dyn Call>>, most: usize, pace: &mut Pace) {
        let transacted = self.transact(&mut group, most, pace);
        pace.last_group = pace.last_group.max(group.len());
        pace.pages += 8 + group.iter().map(|call| call.weight()).sum::<usize>() / 4;
        match transacted {
            Ok(hints) => {
                let unheard: Vec<_> = group.into_iter().filter_map(Call::committed).collect();
                self.pass_on(hints);
                if !unheard.is_empty() {
                    self.serve(unheard, 0, pace);
                }
            }
            Err(Undone { fault, known: true }) if group.len() > 1 && !busy(&fault) && !fault.is_everybodys() => {
                // One of them is bad: each on its own, so that only that one fails and no other joins it.
                for call in group {
                    self.serve(vec![call], 1, pace);
                }
            }
            Err(undone) => fail_all(group, undone),
        }
    }

    fn transact(
        &mut self,
        group: &mut Vec<Box<dyn Call>>,
        most: usize,
        pace: &mut Pace,
    ) -> std::result::Result<Vec<Wake>, Undone> {
        let since = group.iter().map(|call| call.since()).min().unwrap_or_else(Instant::now);
        let turn = self.turn.take();
        pace.crowded = turn.was_waited_for;
        self.begin(since + self.timeout).map_err(|error| Undone { fault: error.into(), known: true })?;
        self.gather_late(group, most);
        let written = self.write(group);
        let undone = match written {
            // Whatever was written to a file that is not there any more would be lost with this process.
            Ok(_) if !self.place.is_there() => Undone { fault: Fault::Gone, known: true },
            Ok((hints, before, after)) => match self.conn.execute_batch("commit") {
                Ok(()) => {
                    drop(turn);
                    pace.committed(before, after);
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

    /// Gives the hints of what was written, and the ticks before and after it.
    fn write(&mut self, group: &mut [Box<dyn Call>]) -> Answer<(Vec<Wake>, i64, i64)> {
        let mut tx = Transaction::begin_writing(&self.conn, &mut self.names, self.clock.as_ref())?;
        let before = tx.ticks();
        for call in group {
            tx.look_at(self.clock.as_ref());
            call.run(&mut tx)?;
        }
        let after = tx.ticks();
        Ok((tx.finish()?, before, after))
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
        let first = pace.data_version == FIRST_LOOK;
        (pace.data_version, pace.look) = (version, LOOK_FIRST);
        (pace.behind, pace.looked) = (false, Instant::now());
        let hints = self.conn.execute_batch("begin").map_err(Fault::from).and_then(|()| self.others(pace, first));
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

    fn others(&mut self, pace: &mut Pace, first: bool) -> Answer<Vec<Wake>> {
        let mut tx = Transaction::begin(&self.conn, &mut self.names, self.clock.as_ref())?;
        let mut hints = Vec::new();
        let most = if first { PAGE_MAX as i64 } else { EVENTS_MAX };
        let mut after = pace.tick.max(tx.ticks() - most);
        loop {
            let page = tx.events(Some(&Cursor(after.to_string())), PAGE_MAX)?;
            for event in &page.items {
                if let JobEventKind::Ended(_) = event.kind {
                    hints.push(Wake::Ended(event.job));
                }
            }
            let last = page.items.last().filter(|_| page.items.len() == PAGE_MAX);
            match last.and_then(|last| last.cursor.0.parse().ok()) {
                Some(tick) => after = tick,
                None => break,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_is_alone_waits_for_company_ever_less_often() {
        let mut pace = Pace { crowded: true, ..Pace::new() };
        let mut waits = 0;
        for _ in 0..1000 {
            if pace.waits_for_company() {
                waits += 1;
                pace.had_company(false);
            }
        }
        assert!((15..30).contains(&waits), "{waits}");
        while !pace.waits_for_company() {}
        pace.had_company(true);
        assert!(pace.waits_for_company(), "with company it is worth it each time");
        pace.crowded = false;
        assert!(!pace.waits_for_company(), "turns are not scarce");
    }

    #[test]
    fn a_commit_of_its_own_passes_over_nobodys_ends() {
        let mut pace = Pace { tick: 7, ..Pace::new() };
        pace.committed(7, 9);
        assert_eq!((pace.tick, pace.behind), (9, false));
        pace.committed(12, 13);
        assert_eq!((pace.tick, pace.behind), (9, true), "ends from 10 to 12 are another's");
    }
}
