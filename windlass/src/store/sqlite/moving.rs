//! A file as one side of a move: a connection of its own, beside those of the store.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::Connection;

use super::fault::{Answer, Fault, is_busy};
use super::open::Opener;
use super::transaction::{Names, SharedClock, Transaction};
use super::write_turn::WriteTurn;
use crate::error::{Error, Result};
use crate::store::moving::{Closed, Contents, Flow, Mark, Movable, Name, Part, Rest};
use crate::workflow::Sequence;

/// How long the file's lock is waited for, which busy writers pass on in turns.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const BUSY_FIRST: Duration = Duration::from_micros(200);
const BUSY_LAST: Duration = Duration::from_millis(2);

/// A file that is moved.
pub(super) struct Mover {
    opener: Opener,
    clock: SharedClock,
    file: Arc<Mutex<File>>,
}

/// The connection, once there is one.
struct File {
    conn: Option<Connection>,
    names: Names,
    turn: WriteTurn,
    /// Whether a transaction goes on over several calls.
    held: bool,
    /// Whether nobody waits any more for the call that is under way.
    abandoned: Arc<AtomicBool>,
}

/// A call that somebody waits for: when that ends first, the call writes nothing, for the move may go on without it.
struct Awaited(Arc<AtomicBool>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What a call does to the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Read,
    Write,
}

impl Mover {
    pub(super) fn new(opener: Opener, clock: SharedClock) -> Self {
        let turn = WriteTurn::beside(&opener.path);
        let file = File { conn: None, names: Names::default(), turn, held: false, abandoned: Arc::default() };
        Mover { opener, clock, file: Arc::new(Mutex::new(file)) }
    }

    async fn run<T, F>(&self, does: Does, attempted: &'static str, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Answer<T> + Send + 'static,
    {
        let clock = Arc::clone(&self.clock);
        self.on_file(attempted, move |file, opener| file.transact(opener, &clock, does, run)).await
    }

    async fn on_file<T, F>(&self, attempted: &'static str, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut File, &Opener) -> Answer<T> + Send + 'static,
    {
        let (file, opener) = (Arc::clone(&self.file), self.opener.clone());
        let awaited = Awaited(Arc::default());
        let abandoned = Arc::clone(&awaited.0);
        let done = tokio::task::spawn_blocking(move || {
            let mut file = file.lock().expect("no panic while the file is locked");
            file.abandoned = abandoned;
            run(&mut file, &opener)
        });
        let done = done.await;
        drop(awaited);
        match done {
            Ok(answer) => answer.map_err(|fault| fault.into_error(attempted, true)),
            Err(join) => Err(Error::store(attempted, join)),
        }
    }
}

impl File {
    fn transact<T>(
        &mut self,
        opener: &Opener,
        clock: &SharedClock,
        does: Does,
        run: impl FnOnce(&mut Transaction<'_>) -> Answer<T>,
    ) -> Answer<T> {
        if !self.held {
            self.begin(opener, does)?;
        }
        let File { conn, names, held, abandoned, .. } = self;
        let conn = conn.as_ref().ok_or_else(|| Fault::broken("there is no connection"))?;
        let answer = in_transaction(conn, names, clock, run);
        if *held {
            return answer;
        }
        match answer {
            Ok(_) if abandoned.load(Ordering::SeqCst) => {
                let _ = conn.execute_batch("rollback");
                names.forget();
                Err(Fault::broken("nobody waits for it any more"))
            }
            Ok(answer) => {
                conn.execute_batch("commit")?;
                if does == Does::Write {
                    // Nobody else keeps the log of a target short.
                    let _ = conn.query_row("pragma wal_checkpoint(passive)", [], |_| Ok(()));
                }
                Ok(answer)
            }
            Err(fault) => {
                let _ = conn.execute_batch("rollback");
                names.forget();
                Err(fault)
            }
        }
    }

    fn begin(&mut self, opener: &Opener, does: Does) -> Answer<()> {
        if self.conn.is_none() {
            let conn = opener.writer()?;
            conn.busy_timeout(Duration::ZERO)?;
            self.conn = Some(conn);
        }
        let File { conn, turn, .. } = self;
        let conn = conn.as_ref().ok_or_else(|| Fault::broken("there is no connection"))?;
        let (deadline, mut wait) = (Instant::now() + LOCK_WAIT, BUSY_FIRST);
        let begin = if does == Does::Read { "begin" } else { "begin immediate" };
        loop {
            let _turn = (does == Does::Write).then(|| turn.take());
            match conn.execute_batch(begin) {
                Err(error) if is_busy(&error) && Instant::now() < deadline => {
                    turn.was_busy();
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(BUSY_LAST);
                }
                other => return Ok(other?),
            }
        }
    }
}

fn in_transaction<T>(
    conn: &Connection,
    names: &mut Names,
    clock: &SharedClock,
    run: impl FnOnce(&mut Transaction<'_>) -> Answer<T>,
) -> Answer<T> {
    let mut tx = Transaction::begin(conn, names, clock.as_ref())?;
    let answer = run(&mut tx)?;
    tx.finish()?;
    Ok(answer)
}

#[async_trait]
impl Contents for Mover {
    async fn names(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let after = after.cloned();
        self.run(Does::Read, "list what is moved", move |tx| tx.moved_names(after.as_ref(), limit)).await
    }

    async fn read(&self, names: &[Name]) -> Result<Part> {
        let names = names.to_vec();
        self.run(Does::Read, "read what is moved", move |tx| tx.moved_part(&names)).await
    }
}

#[async_trait]
impl Movable for Mover {
    async fn mark(&self) -> Result<Option<Mark>> {
        self.run(Does::Read, "look for a move", |tx| tx.move_mark()).await
    }

    async fn take_over(&self, id: &str, runner: &str) -> Result<Mark> {
        let (id, runner) = (id.to_owned(), runner.to_owned());
        let take_over = move |tx: &mut Transaction<'_>| {
            let mark = tx.move_mark()?.filter(|mark| mark.id == id);
            let mark = mark.ok_or_else(|| Error::Conflict("this move was undone".to_owned()))?;
            let mark = Mark { runner, ..mark };
            tx.put_move_mark(&mark)?;
            Ok(mark)
        };
        self.run(Does::Write, "go on with the move", take_over).await
    }

    async fn id_key(&self) -> Result<Vec<u8>> {
        self.run(Does::Read, "read the key of ids", |tx| Ok(tx.id_key().as_bytes().to_vec())).await
    }

    async fn watch(&self, mark: &Mark) -> Result<()> {
        let mark = mark.clone();
        let watch = move |tx: &mut Transaction<'_>| {
            tx.conn.execute_batch(include_str!("moving/watch.sql"))?;
            tx.put_move_mark(&mark)
        };
        self.run(Does::Write, "begin the move", watch).await
    }

    async fn unwatch(&self) -> Result<()> {
        let unwatch = |tx: &mut Transaction<'_>| {
            tx.conn.execute_batch(include_str!("moving/unwatch.sql"))?;
            tx.statement(include_str!("moving/delete_move.sql"))?.execute([])?;
            Ok(())
        };
        self.run(Does::Write, "undo the move", unwatch).await
    }

    async fn changes(&self, limit: usize) -> Result<Vec<(i64, Name)>> {
        self.run(Does::Read, "read what changed", move |tx| tx.moved_changes(limit)).await
    }

    async fn forget_changes(&self, numbers: &[i64], mark: &Mark) -> Result<()> {
        let Some(last) = numbers.last().copied() else { return Ok(()) };
        let mark = mark.clone();
        let forget = move |tx: &mut Transaction<'_>| {
            // Numbers are given out again once all were forgotten: an old call must not forget new notes.
            tx.check_runner(&mark)?;
            tx.statement(include_str!("moving/forget_changes.sql"))?.execute([last])?;
            Ok(())
        };
        self.run(Does::Write, "forget what was moved", forget).await
    }

    async fn hold(&self) -> Result<()> {
        let hold = |file: &mut File, opener: &Opener| {
            file.begin(opener, Does::Write)?;
            file.held = true;
            Ok(())
        };
        self.on_file("hold the store", hold).await
    }

    async fn let_go(&self) {
        let let_go = |file: &mut File, _: &Opener| {
            if let Some(conn) = file.conn.as_ref().filter(|_| file.held) {
                // A transaction that is over already needs no end.
                let _ = conn.execute_batch("rollback");
            }
            file.held = false;
            file.names.forget();
            Ok(())
        };
        // What cannot be undone ends with the connection.
        let _ = self.on_file("let go of the store", let_go).await;
    }

    async fn last_sequence(&self) -> Result<Sequence> {
        self.run(Does::Read, "read the last sequence", |tx| Ok(tx.ticks())).await
    }

    async fn flow(&self) -> Result<Flow> {
        self.run(Does::Read, "read the flow control", |tx| tx.flow()).await
    }

    async fn leave(&self, mark: &Mark) -> Result<()> {
        let mark = mark.clone();
        let clock = Arc::clone(&self.clock);
        let leave = move |file: &mut File, opener: &Opener| {
            file.transact(opener, &clock, Does::Write, |tx| {
                tx.check_runner(&mark)?;
                tx.conn.execute_batch(include_str!("moving/unwatch.sql"))?;
                let closed = Closed::moved_to(&mark.other);
                tx.statement(include_str!("moving/set_closed.sql"))?.execute([closed.words()])?;
                tx.put_move_mark(&mark)
            })?;
            if let Some(conn) = file.conn.as_ref().filter(|_| file.held) {
                conn.execute_batch("commit")?;
            }
            file.held = false;
            Ok(())
        };
        self.on_file("leave the store", leave).await
    }

    async fn take_in(&self, mark: &Mark, id_key: &[u8]) -> Result<()> {
        let (mark, id_key) = (mark.clone(), id_key.to_vec());
        let take_in = move |tx: &mut Transaction<'_>| {
            if tx.is_used()? {
                return Err(Error::Conflict("the target is not empty: move into a new store".to_owned()).into());
            }
            tx.statement(include_str!("moving/set_id_key.sql"))?.execute([id_key])?;
            let closed = Closed::filled_from(&mark.other);
            tx.statement(include_str!("moving/set_closed.sql"))?.execute([closed.words()])?;
            tx.put_move_mark(&mark)
        };
        self.run(Does::Write, "begin the move", take_in).await
    }

    async fn write(&self, part: &Part, mark: &Mark) -> Result<()> {
        let (part, mark) = (part.clone(), mark.clone());
        let write = move |tx: &mut Transaction<'_>| {
            tx.check_runner(&mark)?;
            tx.take_part(&part)?;
            tx.put_move_mark(&mark)
        };
        self.run(Does::Write, "write what is moved", write).await
    }

    async fn write_rest(&self, rest: &Rest, mark: &Mark) -> Result<()> {
        let (rest, mark) = (rest.clone(), mark.clone());
        let write = move |tx: &mut Transaction<'_>| {
            tx.check_runner(&mark)?;
            tx.take_rest(&rest)
        };
        self.run(Does::Write, "write the small records", write).await
    }

    async fn snapshot(&self) -> Result<Box<dyn Contents>> {
        let snapshot = Mover::new(self.opener.clone(), Arc::clone(&self.clock));
        let begin = |file: &mut File, opener: &Opener| {
            file.begin(opener, Does::Read)?;
            file.held = true;
            Ok(())
        };
        snapshot.on_file("look at the target", begin).await?;
        // The first read is what a transaction sees from then on.
        snapshot.names(None, 1).await?;
        Ok(Box::new(snapshot))
    }

    async fn open_up(&self, mark: &Mark) -> Result<()> {
        let mark = mark.clone();
        let open_up = move |tx: &mut Transaction<'_>| {
            tx.check_runner(&mark)?;
            tx.statement(include_str!("moving/set_closed.sql"))?.execute([None::<String>])?;
            tx.put_move_mark(&mark)
        };
        self.run(Does::Write, "open the target", open_up).await
    }

    async fn give_up(&self) -> Result<()> {
        let give_up = |tx: &mut Transaction<'_>| Ok(tx.conn.execute_batch(include_str!("moving/empty.sql"))?);
        self.run(Does::Write, "empty the target", give_up).await
    }
}

impl fmt::Debug for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mover").field("path", &self.opener.path).finish_non_exhaustive()
    }
}
