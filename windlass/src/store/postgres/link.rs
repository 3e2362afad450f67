//! Connections: the pool, its settings, and statements by name.
//!
//! The statements name the schema `windlass`; where it has another name (checked to need no quoting) that name is put in.
//! They name every table with its schema, so that they also run on a user's own connection.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::NoTls;
use tokio_postgres::types::{ToSql, Type};

use super::config::{PostgresOptions, SCHEMA_DEFAULT};
use super::driver_row::Row;
use super::fault::Fault;
use super::lent::Lent;
use super::turns::Held;
use crate::error::{Error, Result};

/// The store's own connections plan for tables that are empty at one moment and full at the next: index scans always,
/// one plan for all parameters, and nothing compiled. Statements are short, so a long one is stuck. So are the pauses
/// between those of a transaction: a program that is stopped in the middle of one would keep its turn from all others.
/// A shorter time that the administrator set for the role or the database stays.
/// The search path leaves out every schema in which another role could plant a function of the name of one that is called.
const SETTINGS: &str = "set search_path = pg_catalog, pg_temp; set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_mergejoin = off;
     set enable_hashjoin = off; set enable_bitmapscan = off; set enable_indexonlyscan = off;
     set enable_material = off; set jit = off; set client_min_messages = warning;
     select set_config(t.name, t.most, false)
     from (values ('statement_timeout', '60s'), ('lock_timeout', '20s'), ('idle_in_transaction_session_timeout', '5s'))
         as t (name, most)
     where not current_setting(t.name)::interval between interval '1us' and t.most::interval;";

/// The same for one transaction: behind a pooler, what is set for a session would be left to other clients.
const BEGIN_POOLED: &str = "begin; set local search_path = pg_catalog, pg_temp; set local enable_seqscan = off; set local enable_mergejoin = off;
     set local enable_hashjoin = off; set local enable_bitmapscan = off; set local enable_indexonlyscan = off;
     set local enable_material = off; set local jit = off;
     select set_config(t.name, t.most, true)
     from (values ('statement_timeout', '60s'), ('lock_timeout', '20s'), ('idle_in_transaction_session_timeout', '60s'))
         as t (name, most)
     where not current_setting(t.name)::interval between interval '1us' and t.most::interval";

/// A parameter of a statement.
pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

pub(super) fn pool(options: &PostgresOptions) -> Result<Pool> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match &options.tls {
        None => Manager::from_config(options.config.clone(), NoTls, recycling),
        Some(tls) => Manager::from_config(options.config.clone(), tls.clone(), recycling),
    };
    let settle = Hook::async_fn(|client: &mut deadpool_postgres::ClientWrapper, _| {
        Box::pin(async move { client.batch_execute(SETTINGS).await.map_err(HookError::Backend) })
    });
    let builder = Pool::builder(manager);
    let builder = if options.pooled == Some(true) { builder } else { builder.post_create(settle) };
    builder
        .max_size(options.connections)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(options.wait))
        .create_timeout(Some(options.wait))
        .build()
        .map_err(|error| Error::store("set up connections", error))
}

/// A statement for a schema.
pub(super) fn text<'a>(statement: &'a str, schema: &str) -> Cow<'a, str> {
    if schema == SCHEMA_DEFAULT {
        return Cow::Borrowed(statement);
    }
    Cow::Owned(statement.replace("windlass.", &format!("{schema}.")))
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
}

enum Way<'a> {
    /// `None` only while it is dropped.
    Own {
        object: Option<Box<Object>>,
        open: AtomicBool,
        /// Given back with the connection.
        _held: Held,
    },
    Users(&'a dyn UsersTransaction),
    /// One of the application's pool; `None` only while it is dropped.
    Lent {
        connection: Option<Box<dyn Lent>>,
        open: AtomicBool,
        /// Given back with the connection.
        _held: Held,
    },
}

impl<'a> Link<'a> {
    pub(super) fn own(object: Object, held: Held, schema: Arc<str>, types: Option<Arc<Types>>) -> Self {
        let (object, open) = (Some(Box::new(object)), AtomicBool::new(false));
        Link { way: Way::Own { object, open, _held: held }, schema, types }
    }

    pub(super) fn lent(connection: Box<dyn Lent>, held: Held, schema: Arc<str>) -> Self {
        let (connection, open) = (Some(connection), AtomicBool::new(false));
        Link { way: Way::Lent { connection, open, _held: held }, schema, types: None }
    }

    pub(super) fn users(transaction: &'a dyn UsersTransaction, schema: Arc<str>) -> Self {
        Link { way: Way::Users(transaction), schema, types: None }
    }

    pub(super) async fn query(
        &self,
        statement: &'static str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<Vec<Row>, Fault> {
        let text = text(statement, &self.schema);
        Ok(match &self.way {
            Way::Own { object, .. } => {
                let client = object.as_ref().expect("a link has its connection until it is dropped");
                let rows = match &self.types {
                    None => client.query(&client.prepare_cached(&text).await?, parameters).await?,
                    Some(types) => {
                        let types = self.types_of(types, client, statement, &text).await?;
                        client.query_typed(&text, &typed(parameters, &types)).await?
                    }
                };
                rows.into_iter().map(Row::Own).collect()
            }
            Way::Users(transaction) => transaction.query(&text, parameters).await?,
            Way::Lent { connection, .. } => lent(connection).query(&text, parameters).await?,
        })
    }

    pub(super) async fn execute(
        &self,
        statement: &'static str,
        parameters: &[Parameter<'_>],
    ) -> std::result::Result<u64, Fault> {
        let text = text(statement, &self.schema);
        Ok(match &self.way {
            Way::Own { object, .. } => {
                let client = object.as_ref().expect("a link has its connection until it is dropped");
                match &self.types {
                    None => client.execute(&client.prepare_cached(&text).await?, parameters).await?,
                    Some(types) => {
                        let types = self.types_of(types, client, statement, &text).await?;
                        client.execute_typed(&text, &typed(parameters, &types)).await?
                    }
                }
            }
            Way::Users(transaction) => transaction.execute(&text, parameters).await?,
            Way::Lent { connection, .. } => lent(connection).execute(&text, parameters).await?,
        })
    }

    /// The types of a statement's parameters, as the server says.
    async fn types_of(
        &self,
        types: &Types,
        client: &Object,
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
        let prepared = client.prepare(text).await?;
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
            Way::Own { open, .. } | Way::Lent { open, .. } => open.swap(true, Ordering::SeqCst),
            Way::Users(_) => true,
        }
    }

    /// Runs text of several statements, without parameters.
    pub(super) async fn batch(&self, statements: &str) -> std::result::Result<(), Fault> {
        match &self.way {
            Way::Own { object, .. } => {
                object
                    .as_ref()
                    .expect("a link has its connection until it is dropped")
                    .batch_execute(statements)
                    .await?;
            }
            Way::Users(transaction) => transaction.batch(statements).await?,
            Way::Lent { connection, .. } => lent(connection).batch(statements).await?,
        }
        Ok(())
    }

    pub(super) async fn begin(&mut self) -> std::result::Result<(), Fault> {
        let Some(has_settings) = self.has_settings() else { return Ok(()) };
        self.mark_open();
        self.batch(if has_settings { "begin" } else { BEGIN_POOLED }).await
    }

    /// Whether the connection's session has the store's settings; `None` where the user has begun a transaction already.
    fn has_settings(&self) -> Option<bool> {
        match &self.way {
            Way::Own { .. } => Some(self.types.is_none()),
            Way::Lent { .. } => Some(false),
            Way::Users(_) => None,
        }
    }

    /// Begins a transaction of which all statements see the same. Said at once, because nothing may be asked before.
    pub(super) async fn begin_snapshot(&mut self) -> std::result::Result<(), Fault> {
        const SNAPSHOT: &str = "begin isolation level repeatable read";
        let Some(has_settings) = self.has_settings() else { return Ok(()) };
        self.mark_open();
        match has_settings {
            true => self.batch(SNAPSHOT).await,
            false => self.batch(&BEGIN_POOLED.replacen("begin", SNAPSHOT, 1)).await,
        }
    }

    pub(super) async fn commit(&mut self) -> std::result::Result<(), Fault> {
        if let Way::Own { .. } | Way::Lent { .. } = &self.way {
            self.batch("commit").await?;
        }
        self.close();
        Ok(())
    }

    /// Undoes what was begun. A connection that cannot even do that is given up when it is dropped.
    pub(super) async fn roll_back(&mut self) {
        if let Way::Own { .. } | Way::Lent { .. } = &self.way
            && self.batch("rollback").await.is_ok()
        {
            self.close();
        }
    }

    fn close(&self) {
        if let Way::Own { open, .. } | Way::Lent { open, .. } = &self.way {
            open.store(false, Ordering::SeqCst);
        }
    }
}

fn lent(connection: &Option<Box<dyn Lent>>) -> &dyn Lent {
    connection.as_deref().expect("a link has its connection until it is dropped")
}

fn typed<'p>(parameters: &[Parameter<'p>], types: &[Type]) -> Vec<(Parameter<'p>, Type)> {
    parameters.iter().copied().zip(types.iter().cloned()).collect()
}

impl Drop for Link<'_> {
    /// A connection whose transaction was neither committed nor rolled back never returns to the pool.
    fn drop(&mut self) {
        match &mut self.way {
            Way::Own { object, open, .. } if open.load(Ordering::SeqCst) => {
                object.take().into_iter().for_each(|object| drop(Object::take(*object)));
            }
            Way::Lent { connection, open, .. } if open.load(Ordering::SeqCst) => {
                connection.take().into_iter().for_each(|connection| connection.give_up());
            }
            Way::Own { .. } | Way::Lent { .. } | Way::Users(_) => {}
        }
    }
}
