//! The store in PostgreSQL: any number of processes on any number of machines share one database.
//!
//! The hot path is one statement for each call: `insert` (shared by the calls of one process), `claim`, `lease` (extend,
//! save) and `settle`. What concerns more than one job goes through a `transaction`: jobs are loaded with their locks
//! (`working`), changed by the [rules](crate::store::rules) that all stores share, and written back (`flush`).
//! `job_rows` turns rows into jobs. The statements are in `sql/`, the schema in `migrations/`.
//!
//! The database's clock decides; a test may put another in its place ([`PostgresOptions::clock`]).

mod check;
mod claim;
mod claim_cursor;
mod config;
mod control;
mod control_claim;
mod control_columns;
mod control_read;
mod control_reading;
mod control_room;
mod control_rows;
mod control_upkeep;
mod driver_row;
mod durability;
mod events;
mod fault;
mod faults;
mod flush;
mod hosts;
mod ids;
pub mod in_tx;
mod insert;
mod insert_coalescer;
mod insert_graph;
mod insert_keyed;
mod job_rows;
mod lanes;
mod lease;
mod lent;
mod link;
mod listen;
mod migrate;
mod moving;
mod moving_flow;
mod moving_read;
mod moving_write;
mod notify;
mod operate;
mod ordered;
mod pool;
mod pooler;
mod pulse;
mod read;
mod ready;
mod records;
mod rewrite;
mod schedules;
mod settle;
#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9"))]
mod sqlx;
mod store;
mod store_clock;
mod text;
mod tls;
mod tokens;
mod transaction;
mod turns;
mod unheard;
mod upkeep;
mod upkeep_progress;
mod working;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::broadcast;

use self::claim_cursor::ClaimCursors;
pub use self::config::{PostgresOptions, SCHEMA_DEFAULT};
use self::fault::Fault;
use self::hosts::Hosts;
use self::ids::IdKey;
use self::lanes::Lanes;
pub use self::lent::ApplicationPool;
use self::lent::Lending;
use self::link::Link;
#[doc(hidden)]
pub use self::listen::wakes_in;
pub use self::migrate::SCHEMA_VERSION;
use self::pool::Pool;
use self::turns::{Caller, Turns};
use self::upkeep_progress::UpkeepProgress;
use super::answer::Wake;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// How many hints a slow listener may fall behind; it is then told so, and looks for itself.
const WAKES_KEPT: usize = 1024;

/// Jobs in PostgreSQL, 14 or newer.
pub struct PostgresStore {
    inner: Arc<Inner>,
    coalescer: insert_coalescer::InsertCoalescer,
    options: PostgresOptions,
}

struct Inner {
    pool: Pool,
    /// The application's pool, if calls go over that one.
    lending: Option<Lending>,
    hosts: Arc<Hosts>,
    /// Which callers may hold how many connections of the pool.
    turns: Turns,
    schema: Arc<str>,
    /// The types of parameters, where statements may not be prepared.
    types: Option<Arc<link::Types>>,
    /// The advisory lock by which transactions of the slow path take turns in this schema.
    slow_path_lock: i64,
    clock: Option<Arc<dyn Clock>>,
    /// The newest server whose data this process remembers something of.
    epoch: AtomicU64,
    store_clock: store_clock::StoreClock,
    /// Read once the schema is there.
    ids: OnceLock<IdKey>,
    lanes: Lanes,
    cursors: ClaimCursors,
    progress: UpkeepProgress,
    probe: ready::WriteProbe,
    unheard: unheard::UnheardClaims,
    wakes: broadcast::Sender<Wake>,
    /// Sends hints to other processes, unless the options say that none are sent.
    notifier: Option<notify::Notifier>,
}

impl PostgresStore {
    /// Opens the store at a URL, and makes or migrates its schema.
    pub async fn open(url: &str) -> Result<Self> {
        PostgresStore::with(PostgresOptions::new(url)?).await
    }

    /// Opens a store as the options say.
    pub async fn with(mut options: PostgresOptions) -> Result<Self> {
        // A store that was taken from another leaves it to that to say what is wrong with the server.
        let is_first = options.hosts.is_none();
        let hosts = options.hosts.get_or_insert_with(|| Arc::new(Hosts::new(&options.reach)));
        let hosts = Arc::clone(hosts);
        let listener = listener_config(&options, &hosts);
        let pooled = look_for_pooler(&options, &listener).await?;
        options.pooled = Some(pooled);
        let pool = pool::pool(&options, &hosts)?;
        let schema: Arc<str> = Arc::from(options.schema.as_str());
        let slow_path_lock = lock_number(&schema);
        let (wakes, _) = broadcast::channel(WAKES_KEPT);
        let (notifier, task) = notify::channel();
        let notifier = Some(notifier).filter(|_| options.listen);
        let types = pooled.then(Arc::default);
        let clock = options.clock.clone();
        let turns = Turns::new(options.connections, options.wait);
        let lending = options.lender.clone().map(Lending::new);
        let inner = Arc::new(Inner {
            pool,
            lending,
            hosts,
            turns,
            schema,
            types,
            slow_path_lock,
            clock,
            epoch: AtomicU64::new(0),
            store_clock: store_clock::StoreClock::default(),
            ids: OnceLock::new(),
            lanes: Lanes::default(),
            cursors: ClaimCursors::default(),
            progress: UpkeepProgress::default(),
            probe: ready::WriteProbe::default(),
            unheard: unheard::UnheardClaims::default(),
            wakes,
            notifier,
        });
        let opened = async {
            let mut link = inner.any_link(Caller::Worker, link::MIGRATION_MAX).await?;
            match options.migrate {
                // Migrations have a lock of their own.
                true => migrate::migrate(&mut link, &inner.schema, !slow_path_lock, options.under_workers).await?,
                false => migrate::check(&link, &inner.schema).await?,
            }
            let _ = inner.ids.set(IdKey::read(&link).await?);
            if inner.clock.is_none() {
                inner.look_at_clock(&mut link).await?;
            }
            inner.epoch.store(link.epoch(), Ordering::SeqCst);
            Ok::<(), Fault>(())
        };
        opened.await.map_err(|fault| fault.into_error("open the store"))?;
        let coalescer = insert_coalescer::InsertCoalescer::start(Arc::clone(&inner));
        if is_first {
            tokio::spawn(durability::watch(Arc::downgrade(&inner)));
        }
        if options.listen {
            tokio::spawn(notify::run(listener.clone(), task));
            if !pooled {
                tokio::spawn(listen::listen(listener, Arc::downgrade(&inner)));
            }
        }
        Ok(PostgresStore { inner, coalescer, options })
    }

    /// The statements that make a schema of this name, for teams that apply their own.
    pub fn sql(schema: &str) -> Result<String> {
        PostgresStore::sql_from(schema, 0)
    }

    /// The statements that take a schema of this name from the step it is at to [`SCHEMA_VERSION`]; none if it is there.
    ///
    /// The step is the highest `number` in its table `migration`. A schema that is newer than this program is refused.
    pub fn sql_from(schema: &str, step: usize) -> Result<String> {
        config::check_schema(schema)?;
        if step > SCHEMA_VERSION {
            let known = format!("must be at most {SCHEMA_VERSION}, which this program knows; use a newer program");
            return Err(Error::invalid("step", known));
        }
        Ok(migrate::sql(schema, step))
    }

    /// The schema that holds the store.
    pub fn schema(&self) -> &str {
        &self.inner.schema
    }

    /// Whether notifications arrive; they do not behind a transaction pooler, and then jobs are found by polling.
    pub async fn hears_notifications(&self) -> Result<bool> {
        if self.options.pooled == Some(true) {
            return Ok(false);
        }
        let heard = listen::notifications_arrive(&listener_config(&self.options, &self.inner.hosts)).await;
        heard.map_err(|error| Fault::from(error).into_error("listen for notifications"))
    }

    /// Removes the schema and everything in it, for tests.
    pub async fn drop_schema(&self) -> Result<()> {
        let link = self.inner.link(Caller::Worker).await.map_err(|fault| fault.into_error("drop the schema"))?;
        let statement = format!("drop schema {} cascade", self.inner.schema);
        link.batch(&statement).await.map_err(|fault| fault.into_error("drop the schema"))
    }
}

/// Whether a transaction pooler is between, as the options say or by looking; warns if so, once for each store.
async fn look_for_pooler(options: &PostgresOptions, listener: &listen::ListenerConfig) -> Result<bool> {
    let pooled = match options.pooled {
        Some(pooled) => return Ok(pooled),
        None => pooler::is_between(listener).await,
    };
    let pooled = pooled.map_err(|error| Fault::from(error).into_error("open the store"))?;
    if pooled {
        tracing::warn!(
            "connections go through a transaction pooler: notifications do not arrive there, so jobs are found by \
             polling, and statements are not prepared; connect to the server itself if you can"
        );
    }
    Ok(pooled)
}

fn listener_config(options: &PostgresOptions, hosts: &Arc<Hosts>) -> listen::ListenerConfig {
    listen::ListenerConfig {
        hosts: Arc::clone(hosts),
        channel: listen::channel(&options.schema),
        sender: uuid::Uuid::new_v4().simple().to_string(),
    }
}

/// A number for a schema's lock: FNV-1a, which every process computes alike.
fn lock_number(schema: &str) -> i64 {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let number = "windlass/".bytes().chain(schema.bytes()).fold(0xcbf2_9ce4_8422_2325, hash);
    i64::from_ne_bytes(number.to_ne_bytes())
}

impl Inner {
    /// A connection for this caller, in its turn, for a call of the hot path.
    async fn link(&self, caller: Caller) -> Result<Link<'static>, Fault> {
        self.link_for(caller, link::HOT_MAX).await
    }

    /// A connection for a call that may take so long in all.
    async fn link_for(&self, caller: Caller, limit: Duration) -> Result<Link<'static>, Fault> {
        let mut link = self.any_link(caller, limit).await?;
        if link.epoch() > self.epoch.load(Ordering::SeqCst) {
            self.forget(&mut link).await?;
        } else {
            self.follow_skew(&mut link).await?;
        }
        link.correct_clock(self.store_clock.is_skewed());
        Ok(link)
    }

    async fn any_link(&self, caller: Caller, limit: Duration) -> Result<Link<'static>, Fault> {
        let held = self.turns.take(caller).await?;
        if let Some(lending) = &self.lending {
            return link::lent(lending, &self.schema, held, limit).await;
        }
        link::own(&self.pool, &self.hosts, &self.schema, &self.types, held, limit).await
    }

    /// Drops what was remembered of another server's data, before any statement runs on this one.
    /// The store's time goes on from where it was, whatever this server's clock says.
    async fn forget(&self, link: &mut Link<'_>) -> Result<(), Fault> {
        if !self.has_key(&IdKey::read(link).await?) {
            let problem = "the store behind this URL is another one now: start this program again";
            return Err(Error::store("use another server", problem).into());
        }
        self.lanes.forget();
        self.cursors.forget();
        self.progress.forget();
        if self.clock.is_none() {
            self.look_at_clock(link).await?;
        }
        self.epoch.fetch_max(link.epoch(), Ordering::SeqCst);
        Ok(())
    }

    async fn transaction(self: &Arc<Self>, caller: Caller) -> Result<transaction::Transaction<'static>, Fault> {
        let link = self.link_for(caller, link::SLOW_MAX).await?;
        let tx = transaction::Transaction::begin(link, Arc::clone(self)).await?;
        if !self.leaps_ahead(tx.now) {
            return Ok(tx);
        }
        // Nothing is ended or fired by a clock that leapt just now.
        let mut link = tx.abandon().await;
        self.look_at_clock(&mut link).await?;
        transaction::Transaction::begin(link, Arc::clone(self)).await
    }

    /// The time of a clock that was put in place of the database's.
    fn given_time(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().as_micros())
    }

    /// The present moment for what is done every so often: by a clock that was put in place of the database's, or else by this
    /// process's own.
    fn moment(&self) -> claim_cursor::Moment {
        let micros = |now: Timestamp| Duration::from_micros(u64::try_from(now.as_micros()).unwrap_or_default());
        self.clock.as_ref().map(|clock| micros(clock.now())).unwrap_or_else(claim_cursor::present)
    }

    async fn read_clock(&self, link: &Link<'_>) -> Result<Timestamp, Fault> {
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        let rows = link.query(include_str!("sql/get_time.sql"), &[&self.given_time()]).await?;
        Ok(job_rows::time(rows[0].get("now")))
    }

    /// Passes hints on, if anything listens for them.
    fn hint(&self, hints: Vec<Wake>) {
        if hints.is_empty() {
            return;
        }
        for hint in &hints {
            let _ = self.wakes.send(hint.clone());
        }
        if let Some(notifier) = &self.notifier {
            notifier.send(hints);
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("schema", &self.inner.schema).finish_non_exhaustive()
    }
}
