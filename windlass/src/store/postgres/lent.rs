//! Connections of the application's own pool: lent for one call, then given back.
//!
//! A lent connection is used as one behind a pooler is: no setting is made for its session, and a transaction brings its
//! own. It goes back to its pool only if it owes no answer and no transaction is open on it.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use deadpool::managed;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::driver_row::Row;
use super::fault::Fault;
use super::hosts::Unreachable;
use super::link::{Parameter, UsersTransaction, typed};
use super::turns::Held;

/// A pool of the application's own, for [`PostgresOptions::on_pool`](super::PostgresOptions::on_pool).
///
/// Made from a `deadpool_postgres::Pool` or, with the features `sqlx-0_8` and `sqlx-0_9`, from an `sqlx::PgPool`.
#[derive(Clone)]
pub struct ApplicationPool {
    pub(super) lender: Arc<dyn Lender>,
    /// How many connections it has at most.
    pub(super) size: usize,
}

impl std::fmt::Debug for ApplicationPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApplicationPool").field("size", &self.size).finish_non_exhaustive()
    }
}

/// Hands out connections.
#[async_trait]
pub(super) trait Lender: Send + Sync {
    async fn lend(&self) -> Result<Box<dyn LentConnection>, Fault>;
}

/// A connection that was handed out. It goes back when it is dropped.
pub(super) trait LentConnection: UsersTransaction {
    /// Closes it instead.
    fn give_up(self: Box<Self>);
}

/// A lent connection, for one call.
pub(super) struct Lent {
    /// `None` only while it is dropped.
    connection: Option<Box<dyn LentConnection>>,
    /// Whether a transaction is open.
    pub(super) open: AtomicBool,
    /// How many calls wait for the server.
    owed: AtomicU32,
    /// When the call is given up.
    until: Instant,
    limit: Duration,
    /// Given back with the connection.
    _held: Held,
}

/// The application's pool, and the runtime that its connections live on.
#[derive(Clone)]
pub(super) struct Lending {
    lender: Arc<dyn Lender>,
    runtime: Handle,
}

impl Lending {
    /// On the runtime that this is called in.
    pub(super) fn new(lender: Arc<dyn Lender>) -> Self {
        Lending { lender, runtime: Handle::current() }
    }

    async fn lend(&self) -> Result<Box<dyn LentConnection>, Fault> {
        let lender = Arc::clone(&self.lender);
        // The heartbeats of a worker have a runtime of their own. A connection that is made there would end with it.
        let lent = self.runtime.spawn(async move { lender.lend().await }).await;
        lent.unwrap_or_else(|_| Err(no_connection("the runtime of the application's pool has ended".to_owned())))
    }
}

impl Lent {
    pub(super) async fn new(lending: &Lending, held: Held, limit: Duration) -> Result<Self, Fault> {
        let until = Instant::now() + limit;
        let lent = timeout_at(until, lending.lend()).await;
        let connection = lent.map_err(|_| no_connection(format!("the pool lent none within {limit:?}")))??;
        let (open, owed) = (AtomicBool::new(false), AtomicU32::new(0));
        Ok(Lent { connection: Some(connection), open, owed, until, limit, _held: held })
    }

    pub(super) fn connection(&self) -> &dyn LentConnection {
        self.connection.as_deref().expect("a link has its connection until it is dropped")
    }

    /// Waits for the answer to a call, but not for ever.
    pub(super) async fn answer<T>(&self, call: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        self.owed.fetch_add(1, Ordering::SeqCst);
        let Ok(answer) = timeout_at(self.until, call).await else {
            let problem = format!("no answer within {:?} on the application's pool", self.limit);
            return Err(Fault::Unanswered { problem });
        };
        self.owed.fetch_sub(1, Ordering::SeqCst);
        answer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if (*self.open.get_mut() || *self.owed.get_mut() > 0)
            && let Some(connection) = self.connection.take()
        {
            connection.give_up();
        }
    }
}

/// Says that no connection could be had, so nothing was written.
pub(super) fn no_connection(problem: String) -> Fault {
    Unreachable::said(problem).into()
}

/// A pool of deadpool whose objects are tokio-postgres clients, as those of deadpool-postgres are.
impl<M> From<managed::Pool<M>> for ApplicationPool
where
    M: managed::Manager + 'static,
    M::Type: Deref<Target = Client> + Send + Sync,
    M::Error: std::fmt::Display,
{
    fn from(pool: managed::Pool<M>) -> Self {
        let size = pool.status().max_size;
        ApplicationPool { lender: Arc::new(Deadpool { pool, types: Arc::default() }), size }
    }
}

/// The types of the parameters of statements, by text: learned once, so that nothing need be prepared.
type Types = Arc<Mutex<HashMap<String, Arc<[Type]>>>>;

struct Deadpool<M: managed::Manager> {
    pool: managed::Pool<M>,
    types: Types,
}

#[async_trait]
impl<M> Lender for Deadpool<M>
where
    M: managed::Manager + 'static,
    M::Type: Deref<Target = Client> + Send + Sync,
    M::Error: std::fmt::Display,
{
    async fn lend(&self) -> Result<Box<dyn LentConnection>, Fault> {
        let object =
            self.pool.get().await.map_err(|error| no_connection(format!("the application's pool: {error}")))?;
        Ok(Box::new(DeadpoolConnection { object, types: Arc::clone(&self.types) }))
    }
}

struct DeadpoolConnection<M: managed::Manager> {
    object: managed::Object<M>,
    types: Types,
}

impl<M> DeadpoolConnection<M>
where
    M: managed::Manager,
    M::Type: Deref<Target = Client>,
{
    async fn types_of(&self, text: &str) -> Result<Arc<[Type]>, Fault> {
        let known = || self.types.lock().expect("no panic while the types are locked");
        if let Some(types) = known().get(text) {
            return Ok(Arc::clone(types));
        }
        let types: Arc<[Type]> = self.object.prepare(text).await?.params().into();
        known().insert(text.to_owned(), Arc::clone(&types));
        Ok(types)
    }
}

#[async_trait]
impl<M> UsersTransaction for DeadpoolConnection<M>
where
    M: managed::Manager,
    M::Type: Deref<Target = Client> + Send + Sync,
{
    async fn query(&self, text: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Fault> {
        let types = self.types_of(text).await?;
        let rows = self.object.query_typed(text, &typed(parameters, &types)).await?;
        Ok(rows.into_iter().map(Row::Own).collect())
    }

    async fn execute(&self, text: &str, parameters: &[Parameter<'_>]) -> Result<u64, Fault> {
        let types = self.types_of(text).await?;
        Ok(self.object.execute_typed(text, &typed(parameters, &types)).await?)
    }

    async fn batch(&self, statements: &str) -> Result<(), Fault> {
        Ok(self.object.batch_execute(statements).await?)
    }
}

impl<M> LentConnection for DeadpoolConnection<M>
where
    M: managed::Manager,
    M::Type: Deref<Target = Client> + Send + Sync,
{
    fn give_up(self: Box<Self>) {
        drop(managed::Object::take(self.object));
    }
}
