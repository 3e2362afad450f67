//! Connections: the pool, its settings, and statements by name.
//!
//! The statements name the schema `windlass`; where it has another name (checked to need no quoting) that name is put in.
//! They do not rely on `search_path`, so that they also run on a user's own connection.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::NoTls;
use tokio_postgres::types::ToSql;

use super::config::{PostgresOptions, SCHEMA_DEFAULT};
use super::fault::Fault;
use super::row::Row;
use crate::error::{Error, Result};

/// The store's own connections plan for tables that are empty at one moment and full at the next: index scans always,
/// one plan for all parameters, and nothing compiled. Statements are short, so a long one is stuck. So are the pauses
/// between those of a transaction: a program that is stopped in the middle of one would keep its turn from all others.
const SETTINGS: &str = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_mergejoin = off;
     set enable_material = off; set jit = off; set statement_timeout = '60s'; set lock_timeout = '20s';
     set idle_in_transaction_session_timeout = '5s'; set client_min_messages = warning;";

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
    Pool::builder(manager)
        .max_size(options.connections)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(options.wait))
        .create_timeout(Some(options.wait))
        .post_create(settle)
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

/// A connection to run statements on: one of the store's own, or the user's in their transaction.
pub(super) struct Link<'a> {
    way: Way<'a>,
    schema: Arc<str>,
}

enum Way<'a> {
    /// `None` only while it is dropped.
    Own {
        object: Option<Box<Object>>,
        open: bool,
    },
    Users(&'a dyn UsersTransaction),
}

impl<'a> Link<'a> {
    pub(super) fn own(object: Object, schema: Arc<str>) -> Self {
        Link { way: Way::Own { object: Some(Box::new(object)), open: false }, schema }
    }

    pub(super) fn users(transaction: &'a dyn UsersTransaction, schema: Arc<str>) -> Self {
        Link { way: Way::Users(transaction), schema }
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
                let prepared = client.prepare_cached(&text).await?;
                client.query(&prepared, parameters).await?.into_iter().map(Row::Own).collect()
            }
            Way::Users(transaction) => transaction.query(&text, parameters).await?,
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
                let prepared = client.prepare_cached(&text).await?;
                client.execute(&prepared, parameters).await?
            }
            Way::Users(transaction) => transaction.execute(&text, parameters).await?,
        })
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
        }
        Ok(())
    }

    pub(super) async fn begin(&mut self) -> std::result::Result<(), Fault> {
        if let Way::Own { open, .. } = &mut self.way {
            *open = true;
            self.batch("begin").await?;
        }
        Ok(())
    }

    pub(super) async fn commit(&mut self) -> std::result::Result<(), Fault> {
        if let Way::Own { .. } = &self.way {
            self.batch("commit").await?;
        }
        self.close();
        Ok(())
    }

    /// Undoes what was begun. A connection that cannot even do that is given up when it is dropped.
    pub(super) async fn roll_back(&mut self) {
        if let Way::Own { .. } = &self.way
            && self.batch("rollback").await.is_ok()
        {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Way::Own { open, .. } = &mut self.way {
            *open = false;
        }
    }
}

impl Drop for Link<'_> {
    /// A connection whose transaction was neither committed nor rolled back never returns to the pool.
    fn drop(&mut self) {
        if let Way::Own { object, open: true } = &mut self.way
            && let Some(object) = object.take()
        {
            drop(Object::take(*object));
        }
    }
}
