//! A schema as one side of a move. Under a hold all its calls go over one connection, whose transaction holds the tables.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Mutex, MutexGuard};

use super::Inner;
use super::fault::Fault;
use super::link::{Link, MIGRATION_MAX, text};
use super::turns::Caller;
use crate::error::{Error, Result};
use crate::store::moving::{Closed, Contents, Flow, Mark, Movable, Name, Part, Rest, Side, Stage};
use crate::workflow::Sequence;

/// How often the tables are asked for, about three times a second.
const HOLDS_MAX: usize = 60;

/// A schema that is moved.
pub(super) struct Mover {
    pub(super) inner: Arc<Inner>,
    /// The connection whose transaction goes on over several calls.
    held: Mutex<Option<Link<'static>>>,
}

/// The connection of one call.
pub(super) enum Use<'a> {
    Held(MutexGuard<'a, Option<Link<'static>>>),
    Own(Link<'static>),
}

impl Use<'_> {
    pub(super) fn link(&mut self) -> Result<&mut Link<'static>, Fault> {
        match self {
            Use::Held(held) => held.as_mut().ok_or_else(|| Error::store("move", "the connection is gone").into()),
            Use::Own(link) => Ok(link),
        }
    }

    /// Begins a transaction, unless one goes on.
    pub(super) async fn begin(&mut self) -> Result<(), Fault> {
        match self {
            Use::Held(_) => Ok(()),
            Use::Own(link) => link.begin().await,
        }
    }

    /// Ends what was begun.
    pub(super) async fn finish<T>(&mut self, answer: Result<T, Fault>) -> Result<T, Fault> {
        let Use::Own(link) = self else { return answer };
        match answer {
            Ok(answer) => {
                link.commit().await?;
                Ok(answer)
            }
            Err(fault) => {
                link.roll_back().await;
                Err(fault)
            }
        }
    }
}

impl Mover {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Mover { inner, held: Mutex::new(None) }
    }

    pub(super) async fn connection(&self) -> Result<Use<'_>, Fault> {
        let held = self.held.lock().await;
        if held.is_some() {
            return Ok(Use::Held(held));
        }
        drop(held);
        Ok(Use::Own(self.inner.link_for(Caller::Worker, MIGRATION_MAX).await?))
    }

    fn words(&self, statements: &'static str) -> std::borrow::Cow<'static, str> {
        text(statements, &self.inner.schema)
    }

    /// A connection whose transaction holds the tables as the statements say. Somebody may be between two of them: then
    /// all are let go of, and asked for again.
    async fn locked(&self, statements: &'static str) -> Result<Link<'static>, Fault> {
        for _ in 1..HOLDS_MAX {
            if let Ok(link) = self.try_hold(statements).await {
                return Ok(link);
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        self.try_hold(statements).await
    }

    async fn try_hold(&self, statements: &'static str) -> Result<Link<'static>, Fault> {
        let mut link = self.inner.link_for(Caller::Worker, MIGRATION_MAX).await?;
        link.begin().await?;
        // What concerns several jobs takes turns; none is under way while this one lasts.
        let parameters: [super::link::Parameter<'_>; 2] = [&None::<i64>, &self.inner.slow_path_lock];
        link.query(include_str!("sql/lock_slow_path.sql"), &parameters).await?;
        link.batch(&self.words(statements)).await?;
        Ok(link)
    }

    /// Runs statements while the tables are held, and keeps the mark or forgets it.
    async fn change(&self, lock: &'static str, statements: &'static str, mark: Option<&Mark>) -> Result<(), Fault> {
        let mut link = self.locked(lock).await?;
        let changed = async {
            link.batch(&self.words(include_str!("moving/begin.sql"))).await?;
            link.batch(&self.words(statements)).await?;
            match mark {
                Some(mark) => put_mark(&link, mark).await,
                None => Ok(link.execute(include_str!("moving/delete_move.sql"), &[]).await.map(drop)?),
            }
        };
        match changed.await {
            Ok(()) => link.commit().await,
            Err(fault) => {
                link.roll_back().await;
                Err(fault)
            }
        }
    }
}

/// What the store remembers of a move.
async fn get_mark(link: &Link<'_>) -> Result<Option<Mark>, Fault> {
    let rows = link.query(include_str!("moving/get_move.sql"), &[]).await?;
    Ok(rows.first().map(|row| serde_json::from_str(row.get("record"))).transpose()?)
}

/// Lets the transaction write what belongs to the move, if it is of the run that goes on with it; no other run takes the move
/// over before the transaction ends.
pub(super) async fn check_runner(link: &Link<'_>, schema: &str, mark: &Mark) -> Result<(), Fault> {
    link.batch(&text(include_str!("moving/begin.sql"), schema)).await?;
    Ok(mark.check_runner(get_mark(link).await?.as_ref())?)
}

/// Keeps a mark, and with it why the store takes no writes.
pub(super) async fn put_mark(link: &Link<'_>, mark: &Mark) -> Result<(), Fault> {
    let closed = match (mark.side, mark.stage) {
        (Side::Source, Stage::Switched) => Some(Closed::moved_to(&mark.other)),
        (Side::Target, Stage::Copying) => Some(Closed::filled_from(&mark.other)),
        (Side::Source, Stage::Copying) | (Side::Target, Stage::Switched) => None,
    };
    let (record, closed) = (super::job_rows::json(mark), closed.map(|closed| closed.words().to_owned()));
    link.execute(include_str!("moving/put_move.sql"), &[&record, &closed]).await?;
    Ok(())
}

fn told(attempted: &'static str) -> impl Fn(Fault) -> Error {
    move |fault| fault.into_error(attempted)
}

#[async_trait]
impl Contents for Mover {
    async fn names(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.list_names(after, limit).await.map_err(told("list what is moved"))
    }

    async fn read(&self, names: &[Name]) -> Result<Part> {
        self.read_part(names).await.map_err(told("read what is moved"))
    }
}

#[async_trait]
impl Movable for Mover {
    async fn mark(&self) -> Result<Option<Mark>> {
        let mark = async {
            let mut using = self.connection().await?;
            get_mark(using.link()?).await
        };
        mark.await.map_err(told("look for a move"))
    }

    async fn take_over(&self, id: &str, runner: &str) -> Result<Mark> {
        let take_over = async {
            let mut link = self.inner.link_for(Caller::Worker, MIGRATION_MAX).await?;
            link.begin().await?;
            link.batch(&self.words(include_str!("moving/begin.sql"))).await?;
            let mark = get_mark(&link).await?.filter(|mark| mark.id == id);
            let mark = mark.ok_or_else(|| Error::Conflict("this move was undone".to_owned()))?;
            let mark = Mark { runner: runner.to_owned(), ..mark };
            put_mark(&link, &mark).await?;
            link.commit().await?;
            Ok::<_, Fault>(mark)
        };
        take_over.await.map_err(told("go on with the move"))
    }

    async fn id_key(&self) -> Result<Vec<u8>> {
        let key = async {
            let mut using = self.connection().await?;
            let rows = using.link()?.query(include_str!("sql/get_store.sql"), &[]).await?;
            let key = rows.first().map(|row| row.get("id_key"));
            key.ok_or_else(|| super::job_rows::corrupt("no key of its ids"))
        };
        key.await.map_err(told("read the key of ids"))
    }

    async fn watch(&self, mark: &Mark) -> Result<()> {
        self.change(include_str!("moving/lock.sql"), include_str!("moving/watch.sql"), Some(mark))
            .await
            .map_err(told("begin the move"))
    }

    async fn unwatch(&self) -> Result<()> {
        self.change(include_str!("moving/lock_all.sql"), include_str!("moving/unwatch.sql"), None)
            .await
            .map_err(told("undo the move"))
    }

    async fn changes(&self, limit: usize) -> Result<Vec<(i64, Name)>> {
        self.list_changes(limit).await.map_err(told("read what changed"))
    }

    async fn forget_changes(&self, numbers: &[i64], _mark: &Mark) -> Result<()> {
        // Numbers are never given out again, so an old call forgets only what the target has.
        let forget = async {
            let mut using = self.connection().await?;
            using.link()?.execute(include_str!("moving/forget_changes.sql"), &[&numbers]).await?;
            Ok::<_, Fault>(())
        };
        forget.await.map_err(told("forget what was moved"))
    }

    async fn hold(&self) -> Result<()> {
        let link = self.locked(include_str!("moving/lock.sql")).await.map_err(told("hold the store"))?;
        *self.held.lock().await = Some(link);
        Ok(())
    }

    async fn let_go(&self) {
        if let Some(mut link) = self.held.lock().await.take() {
            link.roll_back().await;
        }
    }

    async fn last_sequence(&self) -> Result<Sequence> {
        let last = async {
            let mut using = self.connection().await?;
            let rows = using.link()?.query(include_str!("moving/get_last_sequence.sql"), &[]).await?;
            Ok::<_, Fault>(rows.first().map_or(0, |row| row.get("last_value")))
        };
        last.await.map_err(told("read the last sequence"))
    }

    async fn flow(&self) -> Result<Flow> {
        self.read_flow().await.map_err(told("read the flow control"))
    }

    async fn leave(&self, mark: &Mark) -> Result<()> {
        let mut held = self.held.lock().await;
        let leave = async {
            let link = held.as_mut().ok_or_else(|| Error::store("move", "the store is not held"))?;
            check_runner(link, &self.inner.schema, mark).await?;
            // What notes changes stays: to drop it would be to wait for readers, and nothing changes any more.
            link.batch(&self.words(include_str!("moving/close.sql"))).await?;
            put_mark(link, mark).await?;
            link.batch(&self.words(include_str!("moving/seal.sql"))).await?;
            link.commit().await
        };
        leave.await.map_err(told("leave the store"))?;
        *held = None;
        Ok(())
    }

    async fn take_in(&self, mark: &Mark, id_key: &[u8]) -> Result<()> {
        let take_in = async {
            let mut link = self.inner.link_for(Caller::Worker, MIGRATION_MAX).await?;
            link.begin().await?;
            let rows = link.query(include_str!("moving/is_used.sql"), &[]).await?;
            if rows.first().is_some_and(|row| row.get("used")) {
                link.roll_back().await;
                return Err(Error::Conflict("the target is not empty: move into a new store".to_owned()).into());
            }
            link.execute(include_str!("moving/set_id_key.sql"), &[&id_key]).await?;
            put_mark(&link, mark).await?;
            link.batch(&self.words(include_str!("moving/close.sql"))).await?;
            link.commit().await
        };
        take_in.await.map_err(told("begin the move"))
    }

    async fn write(&self, part: &Part, mark: &Mark) -> Result<()> {
        self.write_part(part, mark).await.map_err(told("write what is moved"))
    }

    async fn write_rest(&self, rest: &Rest, mark: &Mark) -> Result<()> {
        self.write_records(rest, mark).await.map_err(told("write the small records"))
    }

    async fn snapshot(&self) -> Result<Box<dyn Contents>> {
        let snapshot = async {
            let mut link = self.inner.link_for(Caller::Worker, MIGRATION_MAX).await?;
            link.begin_snapshot().await?;
            link.batch(include_str!("moving/keep_snapshot.sql")).await?;
            // The first statement is what a transaction sees from then on.
            link.query(include_str!("moving/get_move.sql"), &[]).await?;
            Ok::<_, Fault>(Mover { inner: Arc::clone(&self.inner), held: Mutex::new(Some(link)) })
        };
        Ok(Box::new(snapshot.await.map_err(told("look at the target"))?))
    }

    async fn open_up(&self, mark: &Mark) -> Result<()> {
        let open_up = async {
            let mut link = self.inner.link_for(Caller::Worker, MIGRATION_MAX).await?;
            link.begin().await?;
            check_runner(&link, &self.inner.schema, mark).await?;
            put_mark(&link, mark).await?;
            link.commit().await
        };
        open_up.await.map_err(told("open the target"))
    }

    async fn clear(&self, mark: &Mark) -> Result<()> {
        let clear = async {
            let mut link = self.locked(include_str!("moving/lock_all.sql")).await?;
            check_runner(&link, &self.inner.schema, mark).await?;
            link.batch(&self.words(include_str!("moving/open.sql"))).await?;
            link.commit().await
        };
        clear.await.map_err(told("clear the target"))
    }

    async fn give_up(&self) -> Result<()> {
        let give_up = async {
            self.change(include_str!("moving/lock_all.sql"), include_str!("moving/empty.sql"), None).await?;
            self.inner.lanes.forget();
            Ok::<_, Fault>(())
        };
        give_up.await.map_err(told("empty the target"))
    }
}

impl fmt::Debug for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mover").field("schema", &self.inner.schema).finish_non_exhaustive()
    }
}
