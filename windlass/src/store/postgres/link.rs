//! One call's way to the server: its limit of time, its transaction, and statements by name.
//!
//! The statements name the schema `windlass`; where it has another name (checked to need no quoting) that name is put in.
//! They name every table with its schema, so that they also run on a user's own connection.

use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::{ToSql, Type};

use super::config::SCHEMA_DEFAULT;
use super::driver_row::Row;
use super::fault::Fault;
use super::hosts::Hosts;
use super::lent::{Lending, Lent};
use super::pool::{Connection, Object, Pool};
use super::turns::Held;

/// The settings of the store's own connections for one transaction: behind a pooler, what is set for a session would be left
/// to other clients.
const BEGIN_POOLED: &str = "begin; set local search_path = pg_catalog, pg_temp; set local enable_seqscan = off; set local enable_mergejoin = off;
     set local enable_hashjoin = off; set local enable_bitmapscan = off; set local enable_indexonlyscan = off;
     set local enable_material = off; set local jit = off;
     select set_config(t.name, t.most, true)
     from (values ('statement_timeout', '60s'), ('lock_timeout', '20s'), ('idle_in_transaction_session_timeout', '60s'))
         as t (name, most)
     where not current_setting(t.name)::interval between interval '1us' and t.most::interval";

/// How long a call of the hot path may take in all; its outcome is then unknown.
pub(super) const HOT_MAX: Duration = Duration::from_secs(30);
/// How long a call of the slow path may take in all: it waits for its turn, and does more.
pub(super) const SLOW_MAX: Duration = Duration::from_secs(70);
/// How long a migration may take, which rewrites tables of any size.
pub(super) const MIGRATION_MAX: Duration = Duration::from_secs(3600);
/// After this long without an answer the other hosts are asked for a newer primary, and then again and again.
const UNNOTICED: Duration = Duration::from_secs(2);

/// A parameter of a statement.
pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// One of several statements, with its parameters.
pub(super) type InRow<'a> = (&'static str, &'a [Parameter<'a>]);

/// A statement for a schema.
pub(super) fn text<'a>(statement: &'a str, schema: &str) -> Cow<'a, str> {
    if schema == SCHEMA_DEFAULT {
        return Cow::Borrowed(statement);
    }
    Cow::Owned(statement.replace("windlass.", &format!("{schema}.")))
}

/// What a statement takes for the time, and the same while the server's clock is corrected: reading the correction would cost
/// every statement something, and there hardly ever is one.
const CLOCKS: [(&str, &str); 2] = [
    (
        "coalesce($1::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint)",
        // The clock is read once: a later reading of it for the correction would take back more than has passed.
        "coalesce($1::bigint, (select read.raw + windlass.remaining_skew(pulse.skew, pulse.at, read.raw)
            from windlass.pulse
            cross join lateral (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as raw offset 0) read
            where pulse.only_row))",
    ),
    (
        "coalesce($1::bigint, (extract(epoch from now()) * 1000000)::bigint)",
        "coalesce($1::bigint, (extract(epoch from now()) * 1000000)::bigint
            + (select windlass.remaining_skew(pulse.skew, pulse.at, (extract(epoch from now()) * 1000000)::bigint)
                from windlass.pulse where pulse.only_row))",
    ),
];

/// A statement that goes by the corrected clock.
fn corrected(statement: &str, schema: &str) -> String {
    let clocks = CLOCKS.iter();
    text(&clocks.fold(statement.to_owned(), |text, (plain, corrected)| text.replace(plain, corrected)), schema)
        .into_owned()
}

/// The user's own transaction, whatever driver it is of.
#[async_trait]
pub(super) trait UsersTransaction: Send + Sync {
    /// Runs a statement and gives its rows.
    async fn query(&self, text: &str, parameters: &[Parameter<'_>]) -> std::result::Result<Vec<Row>, Fault>;

    /// Runs a statement and gives how many rows it changed.
    async fn execute(&self, text: &str, parameters: &[Parameter<'_>]) -> std::result::Result<u64, Fault>;

    /// Runs text of several statements, without parameters.
    async fn batch(&self, statements: &str) -> std::result::Result<(), Fault>;
}

#[async_trait]
impl UsersTransaction for tokio_postgres::Transaction<'_> {
    async fn query(&self, text: &str, parameters: &[Parameter<'_>]) -> std::result::Result<Vec<Row>, Fault> {
        Ok(self.query(text, parameters).await?.into_iter().map(Row::Own).collect())
    }

    async fn execute(&self, text: &str, parameters: &[Parameter<'_>]) -> std::result::Result<u64, Fault> {
        Ok(self.execute(text, parameters).await?)
    }

    async fn batch(&self, statements: &str) -> std::result::Result<(), Fault> {
        Ok(self.batch_execute(statements).await?)
    }
}

/// The types of the parameters of statements, for where nothing may be prepared: learned once, then sent along.
#[derive(Default)]
pub(super) struct Types(Mutex<HashMap<&'static str, Arc<[Type]>>>);

impl Types {
    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, Arc<[Type]>>> {
        self.0.lock().expect("no panic while the types are locked")
    }
}

/// A connection to run statements on: one of the store's own, or the user's in their transaction.
pub(super) struct Link<'a> {
    way: Way<'a>,
    schema: Arc<str>,
    types: Option<Arc<Types>>,
    /// Whether statements go by the corrected clock.
    corrects: bool,
}

enum Way<'a> {
    Own(Own),
    Lent(Lent),
    Users(&'a dyn UsersTransaction),
}

/// A connection of the store, for one call.
struct Own {
    /// `None` only while it is dropped.
    object: Option<Box<Object>>,
    /// Whether a transaction is open.
    open: AtomicBool,
    hosts: Arc<Hosts>,
    /// When the call is given up.
    until: Instant,
    limit: Duration,
    /// Given back with the connection.
    _held: Held,
}

impl Own {
    fn connection(&self) -> &Connection {
        self.object.as_ref().expect("a link has its connection until it is dropped")
    }

    /// Waits for the server's answer to a call, but not for ever, and looks for a newer primary meanwhile.
    async fn answer<T>(&self, call: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Fault> {
        let connection = self.connection();
        let mut call = std::pin::pin!(call);
        connection.ask();
        let answer = match timeout(UNNOTICED, &mut call).await {
            Ok(answer) => answer,
            Err(_) => loop {
                self.hosts.look();
                let next = Instant::now() + Duration::from_millis(fastrand::u64(1000..2000));
                if let Ok(answer) = timeout_at(next.min(self.until), &mut call).await {
                    break answer;
                }
                if Instant::now() >= self.until {
                    // The connection still owes the answer, and is not used again.
                    let problem = format!("no answer within {:?} from {}", self.limit, self.hosts.describe());
                    return Err(Fault::Unanswered { problem });
                }
            },
        };
        connection.answered();
        if let Err(error) = &answer
            && error.code() == Some(&tokio_postgres::error::SqlState::READ_ONLY_SQL_TRANSACTION)
        {
            connection.demote();
            self.hosts.demoted(connection.generation);
        }
        if connection.is_unsure() {
            let problem = "the server stopped waiting for its standby: what it wrote may be lost".to_owned();
            return Err(Fault::Unanswered { problem });
        }
        Ok(answer?)
    }
}

/// A link of the store's own, from its pool, for a call that may take so long.
pub(super) async fn own(
    pool: &Pool,
    hosts: &Arc<Hosts>,
    schema: &Arc<str>,
    types: &Option<Arc<Types>>,
    held: Held,
    limit: Duration,
) -> Result<Link<'static>, Fault> {
    let until = Instant::now() + limit;
    let object = Some(Box::new(pool.get().await?));
    let own = Own { object, open: AtomicBool::new(false), hosts: Arc::clone(hosts), until, limit, _held: held };
    Ok(Link { way: Way::Own(own), schema: Arc::clone(schema), types: types.clone(), corrects: false })
}

/// A link of the application's pool, for a call that may take so long.
pub(super) async fn lent(
    lending: &Lending,
    schema: &Arc<str>,
    held: Held,
    limit: Duration,
) -> Result<Link<'static>, Fault> {
    Ok(Link {
        way: Way::Lent(Lent::new(lending, held, limit).await?),
        schema: Arc::clone(schema),
        types: None,
        corrects: false,
    })
}

impl<'a> Link<'a> {
    /// The number of servers that the process had known when the connection was made.
    pub(super) fn epoch(&self) -> u64 {
        match &self.way {
            Way::Own(own) => own.connection().epoch,
            Way::Lent(_) | Way::Users(_) => 0,
        }
    }

    /// From now on statements go by the server's clock as it is, or as it is corrected.
    pub(super) fn correct_clock(&mut self, corrects: bool) {
        self.corrects = corrects;
    }

    /// A statement as it is sent.
    fn sent<'s>(&self, statement: &'s str) -> Cow<'s, str> {
        match self.corrects {
            true => Cow::Owned(corrected(statement, &self.schema)),
            false => text(statement, &self.schema),
        }
    }

    /// Whether it is the user's own, so that what it holds is held for as long as the user likes.
    pub(super) fn is_users(&self) -> bool {
        matches!(self.way, Way::Users(_))
    }

    pub(super) fn users(transaction: &'a dyn UsersTransaction, schema: Arc<str>) -> Self {
        Link { way: Way::Users(transaction), schema, types: None, corrects: false }
    }

    pub(super) async fn query(
        &self,
        statement: &'static str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<Vec<Row>, Fault> {
        Ok(match (&self.way, &self.types) {
            (Way::Own(own), None) => {
                let connection = own.connection();
                let rows = own.answer(async {
                    let prepared =
                        connection.prepared(statement, self.corrects, || self.sent(statement).into_owned()).await?;
                    connection.client.query(&prepared, parameters).await
                });
                rows.await?.into_iter().map(Row::Own).collect()
            }
            (Way::Own(own), Some(types)) => {
                let text = self.sent(statement);
                let types = self.types_of(types, own, statement, &text).await?;
                let rows = own.answer(own.connection().client.query_typed(&text, &typed(parameters, &types))).await?;
                rows.into_iter().map(Row::Own).collect()
            }
            (Way::Lent(lent), _) => {
                let text = self.sent(statement);
                lent.answer(lent.connection().query(&text, parameters)).await?
            }
            (Way::Users(transaction), _) => transaction.query(&self.sent(statement), parameters).await?,
        })
    }

    pub(super) async fn execute(
        &self,
        statement: &'static str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<u64, Fault> {
        match (&self.way, &self.types) {
            (Way::Own(own), None) => {
                let connection = own.connection();
                let changed = own.answer(async {
                    let prepared =
                        connection.prepared(statement, self.corrects, || self.sent(statement).into_owned()).await?;
                    connection.client.execute(&prepared, parameters).await
                });
                changed.await
            }
            (Way::Own(own), Some(types)) => {
                let text = self.sent(statement);
                let types = self.types_of(types, own, statement, &text).await?;
                own.answer(own.connection().client.execute_typed(&text, &typed(parameters, &types))).await
            }
            (Way::Lent(lent), _) => {
                let text = self.sent(statement);
                lent.answer(lent.connection().execute(&text, parameters)).await
            }
            (Way::Users(transaction), _) => transaction.execute(&self.sent(statement), parameters).await,
        }
    }

    /// Runs statements one after the other, each with a snapshot of its own, without waiting in between.
    pub(super) async fn query_in_row(&self, statements: &[InRow<'_>]) -> std::result::Result<Vec<Vec<Row>>, Fault> {
        self.in_row(None, statements, None).await
    }

    /// Begins a transaction and runs statements in it, without waiting in between. It must end soon: while its client is
    /// away, others wait for what it holds, so the server ends it then.
    pub(super) async fn begin_with(&mut self, statements: &[InRow<'_>]) -> std::result::Result<Vec<Vec<Row>>, Fault> {
        const SHORT: &str = "set local lock_timeout = '8s'; set local idle_in_transaction_session_timeout = '5s'";
        self.mark_open();
        let begin = if self.types.is_some() { BEGIN_POOLED } else { "begin" };
        self.in_row(Some(&format!("{begin}; {SHORT}")), statements, None).await
    }

    /// Runs statements and commits, without waiting in between.
    pub(super) async fn commit_with(&mut self, statements: &[InRow<'_>]) -> std::result::Result<Vec<Vec<Row>>, Fault> {
        let rows = self.in_row(None, statements, Some("commit")).await?;
        self.close();
        Ok(rows)
    }

    /// Nothing is sent before all statements are prepared: what follows is sent in this order only if none has to wait.
    async fn in_row(
        &self,
        first: Option<&str>,
        statements: &[InRow<'_>],
        last: Option<&str>,
    ) -> std::result::Result<Vec<Vec<Row>>, Fault> {
        let (Way::Own(own), None) = (&self.way, &self.types) else {
            let mut answers = Vec::with_capacity(statements.len());
            if let Some(batch) = first {
                self.batch(batch).await?;
            }
            for (statement, parameters) in statements {
                answers.push(self.query(statement, parameters).await?);
            }
            if let Some(batch) = last {
                self.batch(batch).await?;
            }
            return Ok(answers);
        };
        let connection = own.connection();
        let mut prepared = Vec::with_capacity(statements.len());
        for (statement, _) in statements {
            let text = || self.sent(statement).into_owned();
            prepared.push(own.answer(connection.prepared(statement, self.corrects, text)).await?);
        }
        let client = &connection.client;
        let batch = |batch: Option<&str>| {
            let batch = batch.map(str::to_owned);
            batch.map(|batch| Box::pin(async move { client.batch_execute(&batch).await.map(|()| None) }) as Sent<'_>)
        };
        let queries = prepared.iter().zip(statements).map(|(prepared, (_, parameters))| {
            Box::pin(async move { client.query(prepared, parameters).await.map(Some) }) as Sent<'_>
        });
        let sent = batch(first).into_iter().chain(queries).chain(batch(last)).collect();
        let answers = own.answer(in_order(sent)).await?;
        Ok(answers.into_iter().flatten().map(|rows| rows.into_iter().map(Row::Own).collect()).collect())
    }

    /// The types of a statement's parameters, as the server says.
    async fn types_of(
        &self,
        types: &Types,
        own: &Own,
        statement: &'static str,
        text: &str,
    ) -> std::result::Result<Arc<[Type]>, Fault> {
        if let Some(known) = types.known().get(statement) {
            return Ok(Arc::clone(known));
        }
        // What is prepared must be let go of in the same session, which only a transaction holds on to.
        let alone = !self.mark_open();
        if alone {
            self.batch("begin").await?;
        }
        let prepared = own.answer(own.connection().client.prepare(text)).await?;
        let found: Arc<[Type]> = prepared.params().into();
        drop(prepared);
        if alone {
            self.batch("commit").await?;
            self.close();
        }
        types.known().insert(statement, Arc::clone(&found));
        Ok(found)
    }

    /// Notes that a transaction is open; says whether one was.
    fn mark_open(&self) -> bool {
        match &self.way {
            Way::Own(own) => own.open.swap(true, Ordering::SeqCst),
            Way::Lent(lent) => lent.open.swap(true, Ordering::SeqCst),
            Way::Users(_) => true,
        }
    }

    /// Runs text of several statements, without parameters.
    pub(super) async fn batch(&self, statements: &str) -> std::result::Result<(), Fault> {
        match &self.way {
            Way::Own(own) => own.answer(own.connection().client.batch_execute(statements)).await?,
            Way::Lent(lent) => lent.answer(lent.connection().batch(statements)).await?,
            Way::Users(transaction) => transaction.batch(statements).await?,
        }
        Ok(())
    }

    pub(super) async fn begin(&mut self) -> std::result::Result<(), Fault> {
        if self.is_ours() {
            self.mark_open();
            self.batch(if self.brings_settings() { BEGIN_POOLED } else { "begin" }).await?;
        }
        Ok(())
    }

    /// Begins a transaction of which all statements see the same. Said at once, because nothing may be asked before.
    pub(super) async fn begin_snapshot(&mut self) -> std::result::Result<(), Fault> {
        const SNAPSHOT: &str = "begin isolation level repeatable read";
        if self.is_ours() {
            self.mark_open();
            match self.brings_settings() {
                true => self.batch(&BEGIN_POOLED.replacen("begin", SNAPSHOT, 1)).await?,
                false => self.batch(SNAPSHOT).await?,
            }
        }
        Ok(())
    }

    pub(super) async fn commit(&mut self) -> std::result::Result<(), Fault> {
        if self.is_ours() {
            self.batch("commit").await?;
        }
        self.close();
        Ok(())
    }

    /// Undoes what was begun. A connection that cannot even do that is given up when it is dropped.
    pub(super) async fn roll_back(&mut self) {
        if self.is_ours() && self.batch("rollback").await.is_ok() {
            self.close();
        }
    }

    /// Whether the link begins and ends its transactions itself.
    fn is_ours(&self) -> bool {
        !matches!(self.way, Way::Users(_))
    }

    /// Whether a transaction makes the settings, because nothing may be set for the session.
    fn brings_settings(&self) -> bool {
        self.types.is_some() || matches!(self.way, Way::Lent(_))
    }

    fn close(&self) {
        match &self.way {
            Way::Own(own) => own.open.store(false, Ordering::SeqCst),
            Way::Lent(lent) => lent.open.store(false, Ordering::SeqCst),
            Way::Users(_) => {}
        }
    }
}

/// Something that was sent and waits for its answer: rows, or nothing where there are none to be had.
type Sent<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Vec<tokio_postgres::Row>>, tokio_postgres::Error>> + Send + 'a>>;

/// Waits for all answers. All are asked for in this order before the first is waited for. Of several errors the first counts:
/// those after it only say that there was one.
async fn in_order(mut sent: Vec<Sent<'_>>) -> Result<Vec<Option<Vec<tokio_postgres::Row>>>, tokio_postgres::Error> {
    let mut answers: Vec<_> = sent.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut waiting = false;
        for (call, answer) in sent.iter_mut().zip(answers.iter_mut()).filter(|(_, answer)| answer.is_none()) {
            match call.as_mut().poll(context) {
                Poll::Ready(ready) => *answer = Some(ready),
                Poll::Pending => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    answers.into_iter().flatten().collect()
}

pub(super) fn typed<'p>(parameters: &[Parameter<'p>], types: &[Type]) -> Vec<(Parameter<'p>, Type)> {
    parameters.iter().copied().zip(types.iter().cloned()).collect()
}

impl Drop for Link<'_> {
    /// A connection never returns to the pool when its transaction was neither committed nor rolled back, when it owes an
    /// answer, and when its server is no longer the primary.
    fn drop(&mut self) {
        if let Way::Own(own) = &mut self.way
            && (*own.open.get_mut() || !own.connection().is_sound())
            && let Some(object) = own.object.take()
        {
            drop(Object::take(*object));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::turns::Caller;
    use super::super::{PostgresOptions, PostgresStore};
    use super::*;

    #[test]
    fn statements_read_the_clock_alike_so_that_it_can_be_corrected() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres/sql");
        for entry in std::fs::read_dir(folder).expect("the statements") {
            let path = entry.expect("a file").path();
            let text = std::fs::read_to_string(&path).expect("a statement");
            let alike: usize = CLOCKS.iter().map(|(plain, _)| text.matches(plain).count()).sum();
            // The statements of the pulse read the clock beside its correction.
            let own = ["::bigint as raw", "::bigint + p.skew)"].map(|end| text.matches(end).count());
            let read = text.matches("from clock_timestamp()").count() + text.matches("from now()").count();
            let name = path.display();
            assert_eq!(
                alike + own[0] + own[1],
                read,
                "{name}: take the time as get_time.sql does, with given_time() as $1"
            );
        }
    }

    async fn store() -> PostgresStore {
        let url = std::env::var("WINDLASS_TEST_POSTGRES").expect("WINDLASS_TEST_POSTGRES must name a database");
        let schema = format!("link_{}", uuid::Uuid::new_v4().simple());
        let options = PostgresOptions::new(&url).and_then(|options| options.schema(&schema)).expect("valid");
        let mut options = options.without_notifications();
        // As one that was taken from another: it then looks at nothing by itself, and each connection is a test's.
        options.hosts = Some(Arc::new(Hosts::new(&options.reach)));
        PostgresStore::with(options).await.expect("a store")
    }

    fn connections(store: &PostgresStore) -> usize {
        store.inner.pool.status().size
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn d6_a_call_ends_and_its_connection_is_not_used_again() {
        let store = store().await;
        let begun = Instant::now();
        let link = store.inner.link_for(Caller::Worker, Duration::from_secs(3)).await.expect("a connection");
        let error = link.query("select pg_sleep(8)", &[]).await.map(drop).expect_err("no answer in time");
        assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
        drop(link);
        assert_eq!(connections(&store), 0, "the connection owes an answer");
        let error = error.into_error("wait");
        assert!(!error.outcome_is_known() && error.to_string().contains("no answer within 3s"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn d6_a_connection_whose_call_was_given_up_is_not_used_again() {
        let store = store().await;
        let link = store.inner.link(Caller::Worker).await.expect("a connection");
        let call = timeout(Duration::from_millis(50), link.query("select pg_sleep(5)", &[])).await;
        assert!(call.is_err(), "it sleeps");
        drop(link);
        assert_eq!(connections(&store), 0);
        drop(store.inner.link(Caller::Worker).await.expect("another"));
        assert_eq!(connections(&store), 1, "one that owes nothing is kept");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn d6_a_connection_to_a_server_that_is_only_read_is_not_used_again() {
        let store = store().await;
        let link = store.inner.link(Caller::Worker).await.expect("a connection");
        link.batch("set default_transaction_read_only = on").await.expect("a setting");
        let error = link.execute("delete from windlass.event", &[]).await.expect_err("only read").into_error("write");
        assert!(error.outcome_is_known(), "{error}");
        drop(link);
        assert_eq!(connections(&store), 0);
        let link = store.inner.link(Caller::Worker).await.expect("another");
        link.execute("delete from windlass.event", &[]).await.expect("a fresh one writes");
    }
}
