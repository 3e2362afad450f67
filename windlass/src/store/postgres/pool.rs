//! The store's own connections: made by [`Hosts`], kept in a pool, each with its settings and prepared statements.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Statement};

use super::config::PostgresOptions;
use super::hosts::{Connected, Hosts, Unreachable};
use crate::error::{Error, Result};

pub(super) type Pool = managed::Pool<Manager>;
pub(super) type Object = managed::Object<Manager>;
pub(super) type PoolError = managed::PoolError<Unreachable>;

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
/// How long the settings may take: a server that just answered is quick, or is no longer there.
const SETTINGS_WAIT: Duration = Duration::from_secs(3);

pub(super) fn pool(options: &PostgresOptions, hosts: &Arc<Hosts>) -> Result<Pool> {
    let manager = Manager { hosts: Arc::clone(hosts), settings: options.pooled != Some(true) };
    Pool::builder(manager)
        .max_size(options.connections)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(options.wait))
        .create_timeout(Some(options.wait))
        .build()
        .map_err(|error| Error::store("set up connections", error))
}

pub(super) struct Manager {
    hosts: Arc<Hosts>,
    /// Whether settings may be made for a session, which they may not behind a pooler.
    settings: bool,
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = Unreachable;

    async fn create(&self) -> std::result::Result<Connection, Unreachable> {
        let connection = Connection::new(self.hosts.connect().await?);
        if self.settings {
            let made = tokio::time::timeout(SETTINGS_WAIT, connection.client.batch_execute(SETTINGS)).await;
            made.map_err(|_| Unreachable::said("the server stopped answering"))??;
        }
        Ok(connection)
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<Unreachable> {
        match connection.client.is_closed() || connection.generation != self.hosts.generation() {
            true => Err(RecycleError::message("it is closed, or belongs to an older primary")),
            false => Ok(()),
        }
    }
}

/// One connection to the primary.
pub(super) struct Connection {
    pub(super) client: Client,
    /// What is prepared, by the place of the statement's text in memory, since hashing the text takes longer, and by whether it
    /// goes by the corrected clock.
    statements: Mutex<HashMap<(usize, usize, bool), Statement>>,
    task: JoinHandle<()>,
    pub(super) generation: u64,
    pub(super) epoch: u64,
    unsure: Arc<AtomicBool>,
    /// How many calls wait for the server.
    owed: AtomicU32,
    /// Whether the server said that it cannot be written to any more.
    demoted: AtomicBool,
}

impl Connection {
    fn new(connected: Connected) -> Self {
        let Connected { client, task, unsure, generation, epoch, .. } = connected;
        Connection {
            client,
            statements: Mutex::default(),
            task,
            generation,
            epoch,
            unsure,
            owed: AtomicU32::new(0),
            demoted: AtomicBool::new(false),
        }
    }

    /// Notes that a call is made; until it is [answered](Self::answered) the connection owes an answer.
    pub(super) fn ask(&self) {
        self.owed.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn answered(&self) {
        self.owed.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn demote(&self) {
        self.demoted.store(true, Ordering::SeqCst);
    }

    /// Whether the server gave up waiting for its standby, so that a commit which it confirmed may be lost.
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure.load(Ordering::SeqCst)
    }

    /// Whether another call may use the connection.
    pub(super) fn is_sound(&self) -> bool {
        self.owed.load(Ordering::SeqCst) == 0 && !self.demoted.load(Ordering::SeqCst) && !self.is_unsure()
    }

    /// The statement whose text is at this place, prepared once.
    pub(super) async fn prepared(
        &self,
        place: &'static str,
        corrects: bool,
        text: impl FnOnce() -> String,
    ) -> std::result::Result<Statement, tokio_postgres::Error> {
        let key = (place.as_ptr() as usize, place.len(), corrects);
        let statements = || self.statements.lock().expect("no panic while the statements are locked");
        if let Some(known) = statements().get(&key) {
            return Ok(known.clone());
        }
        let statement = self.client.prepare(&text()).await?;
        statements().insert(key, statement.clone());
        Ok(statement)
    }
}

impl Drop for Connection {
    /// The driver would wait for answers that are owed.
    fn drop(&mut self) {
        self.task.abort();
    }
}
