//! The store in PostgreSQL: any number of processes on any number of machines share one database.
//!
//! The hot path is one statement for each call: `insert` (shared by the calls of one process), `claim`, `lease` (extend,
//! save) and `settle`. Whatever concerns more than one job goes through a `unit`: jobs are loaded with their locks,
//! changed by the pure core as in the memory store (`plan`, `ends`, `operate`, `upkeep`, `schedules`), and written back
//! (`flush`). `rows` turns rows into jobs. The statements are in `sql/`, the schema in `migrations/`.
//!
//! The database's clock decides; a test may put another in its place ([`PostgresOptions::clock`]).

mod check;
mod claim;
mod config;
mod ends;
mod events;
mod fault;
mod floors;
mod flush;
mod ids;
pub mod in_tx;
mod insert;
mod keyed;
mod lanes;
mod lease;
mod link;
mod listen;
mod migrate;
mod operate;
mod plan;
mod pooler;
mod read;
mod row;
mod rows;
mod schedules;
mod settle;
mod share;
mod small;
mod speak;
#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9"))]
mod sqlx;
mod tls;
mod tokens;
mod unit;
mod upkeep;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use deadpool_postgres::Pool;
use tokio::sync::broadcast;

pub use self::config::{PostgresOptions, SCHEMA_DEFAULT};
use self::fault::{Fault, Tries};
use self::floors::Floors;
use self::ids::IdKey;
use self::lanes::Lanes;
use self::link::Link;
pub use self::migrate::SCHEMA_VERSION;
use super::answer::*;
use super::request::*;
use super::{Store, request};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::job::{
    AttemptRecord, Explanation, JobId, JobRecord, LeaseKey, LogLine, QueueName, Settlement, Stale, WorkflowId,
};
use crate::schedule::ScheduleRecord;
use crate::time::Timestamp;
use crate::workflow::{Submission, WorkflowRecord};

/// How many hints a slow listener may fall behind; it is then told so, and looks for itself.
const WAKES_KEPT: usize = 1024;

/// Runs an expression in a transaction of the slow path, again when that lost against another.
macro_rules! in_unit {
    ($store:expr, $unit:ident, $run:expr) => {{
        let mut tries = $crate::store::postgres::Tries::default();
        loop {
            let answer = match $store.unit().await {
                Err(fault) => Err(fault),
                Ok(mut $unit) => {
                    let answer = $run;
                    $unit.finish(answer).await
                }
            };
            match answer {
                Err(fault) if tries.again(&fault).await => {}
                answer => break answer,
            }
        }
    }};
}
use in_unit;

/// Jobs in PostgreSQL, 14 or newer.
pub struct PostgresStore {
    inner: Arc<Inner>,
    shared: share::Shared,
    options: PostgresOptions,
}

struct Inner {
    pool: Pool,
    schema: Arc<str>,
    /// The types of parameters, where statements may not be prepared.
    types: Option<Arc<link::Types>>,
    /// The advisory lock that the slow path of this schema takes turns by.
    turn: i64,
    clock: Option<Arc<dyn Clock>>,
    /// Read once the schema is there.
    ids: OnceLock<IdKey>,
    lanes: Lanes,
    floors: Floors,
    /// When upkeep last looked lane by lane.
    looked_by_lane: Mutex<Option<Instant>>,
    wakes: broadcast::Sender<Wake>,
    /// To whoever tells other processes; nobody, where the options say so.
    mouth: Option<speak::Mouth>,
}

impl PostgresStore {
    /// Opens the store at a URL, and makes or migrates its schema.
    pub async fn open(url: &str) -> Result<Self> {
        PostgresStore::with(PostgresOptions::new(url)?).await
    }

    /// Opens a store as the options say.
    pub async fn with(mut options: PostgresOptions) -> Result<Self> {
        let dial = dial(&options);
        let pooled = look_for_pooler(&options, &dial).await?;
        options.pooled = Some(pooled);
        let pool = link::pool(&options)?;
        let schema: Arc<str> = Arc::from(options.schema.as_str());
        let turn = lock_number(&schema);
        let (wakes, _) = broadcast::channel(WAKES_KEPT);
        let (ids, lanes, floors, looked_by_lane) =
            (OnceLock::new(), Lanes::default(), Floors::default(), Mutex::default());
        let (mouth, speech) = speak::mouth();
        let mouth = Some(mouth).filter(|_| options.listen);
        let types = pooled.then(Arc::default);
        let clock = options.clock.clone();
        let inner =
            Arc::new(Inner { pool, schema, types, turn, clock, ids, lanes, floors, looked_by_lane, wakes, mouth });
        let opened = async {
            let mut link = inner.link().await?;
            match options.migrate {
                // The lock of migrations lies beside the turn's.
                true => migrate::migrate(&mut link, &inner.schema, !turn).await?,
                false => migrate::check(&link, &inner.schema).await?,
            }
            let _ = inner.ids.set(IdKey::read(&link).await?);
            Ok::<(), Fault>(())
        };
        opened.await.map_err(|fault| fault.into_error("open the store"))?;
        let shared = share::Shared::start(Arc::clone(&inner));
        if options.listen {
            tokio::spawn(speak::speak(dial.clone(), speech));
            if !pooled {
                tokio::spawn(listen::hear(dial, Arc::downgrade(&inner)));
            }
        }
        Ok(PostgresStore { inner, shared, options })
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
        let heard = listen::is_heard(&dial(&self.options)).await;
        heard.map_err(|error| Fault::from(error).into_error("listen for notifications"))
    }

    /// Removes the schema and everything in it, for tests.
    pub async fn drop_schema(&self) -> Result<()> {
        let link = self.inner.link().await.map_err(|fault| fault.into_error("drop the schema"))?;
        let statement = format!("drop schema {} cascade", self.inner.schema);
        link.batch(&statement).await.map_err(|fault| fault.into_error("drop the schema"))
    }
}

/// Whether a transaction pooler is between, as the options say or by looking; warns if so, once for each store.
async fn look_for_pooler(options: &PostgresOptions, dial: &listen::Dial) -> Result<bool> {
    let pooled = match options.pooled {
        Some(pooled) => return Ok(pooled),
        None => pooler::is_between(dial).await,
    };
    let failed = |error| Fault::Pool(deadpool_postgres::PoolError::Backend(error)).into_error("open the store");
    let pooled = pooled.map_err(failed)?;
    if pooled {
        tracing::warn!(
            "connections go through a transaction pooler: notifications do not arrive there, so jobs are found by \
             polling, and statements are not prepared; connect to the server itself if you can"
        );
    }
    Ok(pooled)
}

fn dial(options: &PostgresOptions) -> listen::Dial {
    listen::Dial {
        config: options.config.clone(),
        tls: options.tls.clone(),
        channel: listen::channel(&options.schema),
        own: uuid::Uuid::new_v4().simple().to_string(),
    }
}

/// A number for a schema's lock: FNV-1a, which every process computes alike.
fn lock_number(schema: &str) -> i64 {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let number = "windlass/".bytes().chain(schema.bytes()).fold(0xcbf2_9ce4_8422_2325, hash);
    i64::from_ne_bytes(number.to_ne_bytes())
}

impl Inner {
    async fn link(&self) -> Result<Link<'static>, Fault> {
        Ok(Link::own(self.pool.get().await?, Arc::clone(&self.schema), self.types.clone()))
    }

    async fn unit(self: &Arc<Self>) -> Result<unit::Unit<'static>, Fault> {
        unit::Unit::begin(self.link().await?, Arc::clone(self)).await
    }

    /// The time of a clock that was put in place of the database's.
    fn given_time(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().as_micros())
    }

    async fn read_clock(&self, link: &Link<'_>) -> Result<Timestamp, Fault> {
        if let Some(time) = self.given_time() {
            return Ok(rows::time(time));
        }
        let rows = link.query(include_str!("sql/now.sql"), &[]).await?;
        Ok(rows::time(rows[0].get(0)))
    }

    /// Passes hints on; nobody listening is no error.
    fn hint(&self, hints: Vec<Wake>) {
        if hints.is_empty() {
            return;
        }
        for hint in &hints {
            let _ = self.wakes.send(hint.clone());
        }
        if let Some(mouth) = &self.mouth {
            mouth.say(hints);
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("schema", &self.inner.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    async fn now(&self) -> Result<Timestamp> {
        let now = async {
            let link = self.inner.link().await?;
            self.inner.read_clock(&link).await
        };
        now.await.map_err(|fault| fault.into_error("read the clock"))
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        self.inner.insert(&self.shared, submission).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>> {
        let mut tries = Tries::default();
        loop {
            match self.inner.claim(request).await {
                Err(fault) if tries.again(&fault).await => {}
                answer => return answer.map_err(|fault| fault.into_error("claim jobs")),
            }
        }
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        let mut tries = Tries::default();
        loop {
            match self.inner.extend(leases, lease_time).await {
                Err(fault) if tries.again(&fault).await => {}
                answer => return answer.map_err(|fault| fault.into_error("extend leases")),
            }
        }
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        let mut tries = Tries::default();
        loop {
            match self.inner.save(saves).await {
                Err(fault) if tries.again(&fault).await => {}
                answer => return answer.map_err(|fault| fault.into_error("save under leases")),
            }
        }
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        self.inner.settle(settlements).await.map_err(|fault| fault.into_error("settle jobs"))
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        self.inner.upkeep(request).await.map_err(|fault| fault.into_error("do upkeep"))
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        self.inner.find(ids).await.map_err(|fault| fault.into_error("find jobs"))
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        self.inner.list(query).await.map_err(|fault| fault.into_error("list jobs"))
    }

    async fn count(&self, filter: &Filter, cap: u64) -> Result<u64> {
        self.inner.count(filter, cap).await.map_err(|fault| fault.into_error("count jobs"))
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        self.inner.attempts(job).await.map_err(|fault| fault.into_error("list attempts"))
    }

    async fn logs(&self, job: JobId) -> Result<Vec<LogLine>> {
        self.inner.logs(job).await.map_err(|fault| fault.into_error("list log lines"))
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.inner.explain(job).await.map_err(|fault| fault.into_error("explain a job"))
    }

    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        self.inner.events(after, limit).await.map_err(|fault| fault.into_error("list events"))
    }

    async fn totals(&self) -> Result<Totals> {
        self.inner.totals().await.map_err(|fault| fault.into_error("add up totals"))
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        if let Act::Edit(edit) = &operation.act {
            edit.check()?;
        }
        let answer: Result<Operated, Fault> = in_unit!(self.inner, unit, unit.operate(operation).await);
        answer.map_err(|fault| fault.into_error("operate on jobs"))
    }

    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        self.inner.acts(after, limit).await.map_err(|fault| fault.into_error("list acts"))
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool, by: Option<&str>) -> Result<()> {
        let answer: Result<bool, Fault> = in_unit!(self.inner, unit, unit.set_paused(queue.as_str(), paused, by).await);
        answer.map(|_| ()).map_err(|fault| fault.into_error("pause or resume a queue"))
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.inner.queues().await.map_err(|fault| fault.into_error("list queues"))
    }

    async fn announce(&self, worker: &WorkerReport) -> Result<()> {
        self.inner.announce(worker).await.map_err(|fault| fault.into_error("announce a worker"))
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        let workers = async {
            let link = self.inner.link().await?;
            self.inner.live_workers(&link).await
        };
        workers.await.map_err(|fault| fault.into_error("list workers"))
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        let answer: Result<ScheduleEdited, Fault> = in_unit!(self.inner, unit, unit.edit_schedule(edit, by).await);
        answer.map_err(|fault| fault.into_error("edit a schedule"))
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        self.inner.schedules(after, limit).await.map_err(|fault| fault.into_error("list schedules"))
    }

    async fn find_workflows(&self, ids: &[WorkflowId]) -> Result<Vec<Option<WorkflowRecord>>> {
        self.inner.find_workflows(ids).await.map_err(|fault| fault.into_error("find workflows"))
    }

    async fn workflows(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WorkflowRecord>> {
        self.inner.workflows(after, limit).await.map_err(|fault| fault.into_error("list workflows"))
    }

    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
        // Connections live on the runtime that made them, so the heartbeats' runtime makes its own.
        let options = self.options.clone().connections(2).without_migrations().without_notifications();
        Ok(Some(Arc::new(PostgresStore::with(options).await?)))
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.inner.wakes.subscribe()
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.inner.check().await.map_err(|fault| fault.into_error("look for contradictions"))
    }
}
