//! A store that goes along when the one it is on was moved.
//!
//! The refusal of a store that was moved says where to. A call that was refused so has written nothing, so it is made again
//! there. Nothing is asked while calls succeed. Commands that serve or work use it; a program of your own may.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::closed;
use crate::error::{Error, Result};
use crate::flow::{ControlEdit, ControlRecord, KeyRecord};
use crate::job::{AttemptRecord, Explanation, JobId, JobRecord, LeaseKey, LogLine, QueueName, Settlement, Stale};
use crate::schedule::ScheduleRecord;
use crate::store::observe::{Observation, Sample, SampleStep};
use crate::store::{
    ActRecord, Announced, ClaimRequest, Claims, Counted, Cursor, Durability, Extended, FaultGroup, FaultQuery, Filter,
    Inserted, JobEvent, KeyQuery, ListQuery, Operated, Operation, Page, QueueRecord, Rewrite, Save, ScheduleEdit,
    ScheduleEdited, Settled, Store, Upkeep, UpkeepReport, Wake, WorkerEdit, WorkerRecord, WorkerReport, WorkflowQuery,
};
use crate::time::Timestamp;
use crate::workflow::{Submission, WorkflowRecord};

/// How long a call waits for a target that is about to be opened.
const OPENED_WITHIN: Duration = Duration::from_secs(20);
/// How long between two tries.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// How many hints a slow listener may fall behind.
const WAKES_KEPT: usize = 1024;

/// Opens the store that a refusal names; its URL comes without a password.
pub type OpenStore = Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<Arc<dyn Store>>> + Send>> + Send + Sync>;

/// A store that may be moved while it is used.
pub struct Following {
    current: Arc<RwLock<Arc<dyn Store>>>,
    open: OpenStore,
    /// Held by the call that opens.
    opening: tokio::sync::Mutex<()>,
    wakes: broadcast::Sender<Wake>,
    moved: Arc<tokio::sync::Notify>,
}

impl Following {
    /// Follows this store. Must be called inside a runtime, where hints are passed on.
    pub fn new(store: Arc<dyn Store>, open: OpenStore) -> Self {
        let following = Following::without_hints(store, open);
        let (current, wakes) = (Arc::downgrade(&following.current), following.wakes.clone());
        let moved = Arc::clone(&following.moved);
        tokio::spawn(async move {
            loop {
                let Some(store) = current.upgrade().map(|current| read(&current)) else { return };
                let mut hints = store.wakes();
                drop(store);
                loop {
                    tokio::select! {
                        () = moved.notified() => break,
                        hint = hints.recv() => match hint {
                            Ok(hint) => drop(wakes.send(hint)),
                            Err(broadcast::error::RecvError::Lagged(_)) => {}
                            Err(broadcast::error::RecvError::Closed) if current.strong_count() == 0 => return,
                            Err(broadcast::error::RecvError::Closed) => {
                                tokio::time::sleep(TRY_EVERY).await;
                                break;
                            }
                        },
                    }
                }
            }
        });
        following
    }

    fn without_hints(store: Arc<dyn Store>, open: OpenStore) -> Self {
        let (wakes, _) = broadcast::channel(WAKES_KEPT);
        let (current, moved) = (Arc::new(RwLock::new(store)), Arc::default());
        Following { current, open, opening: tokio::sync::Mutex::new(()), wakes, moved }
    }

    /// The store that it is on now.
    pub fn current(&self) -> Arc<dyn Store> {
        read(&self.current)
    }

    /// Whether the call is to be made again, after this error of a store; otherwise the error is the answer.
    async fn goes_on(&self, asked: &Arc<dyn Store>, error: Error, since: Instant) -> Result<()> {
        let Some(destination) = closed(&error).map(|closed| closed.destination().map(str::to_owned)) else {
            return Err(error);
        };
        let Some(destination) = destination else {
            // The switch is made, and the target is about to be opened.
            if since.elapsed() > OPENED_WITHIN {
                return Err(error);
            }
            tokio::time::sleep(TRY_EVERY).await;
            return Ok(());
        };
        let _opening = self.opening.lock().await;
        if !Arc::ptr_eq(asked, &self.current()) {
            return Ok(());
        }
        tracing::warn!(to = destination, "the store was moved; going on there");
        let opened = (self.open)(destination.clone()).await.map_err(|problem| {
            tracing::error!(to = destination, error = %problem, "cannot open the store that this one was moved to");
            error
        })?;
        let before = std::mem::replace(&mut *self.current.write().expect("no panic while it is locked"), opened);
        self.moved.notify_one();
        // Closing a file may take a moment.
        drop(tokio::task::spawn_blocking(move || drop(before)));
        Ok(())
    }
}

fn read(current: &RwLock<Arc<dyn Store>>) -> Arc<dyn Store> {
    Arc::clone(&current.read().expect("no panic while it is locked"))
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Following").field(&self.current()).finish()
    }
}

/// Makes the [`Store`] whose methods go along.
macro_rules! following {
    ($(async fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Following {
            fn kind(&self) -> &'static str {
                self.current().kind()
            }

            fn calls_at_once(&self) -> usize {
                self.current().calls_at_once()
            }

            fn wakes(&self) -> broadcast::Receiver<Wake> {
                self.wakes.subscribe()
            }

            fn place(&self) -> Option<String> {
                self.current().place()
            }

            async fn insert(&self, submission: Submission) -> Result<Inserted> {
                let since = Instant::now();
                loop {
                    let store = self.current();
                    match store.insert(submission.clone()).await {
                        Err(error) => self.goes_on(&store, error, since).await?,
                        answer => return answer,
                    }
                }
            }

            /// A handle that goes along by itself, inside the runtime that asks for it.
            async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
                let store = self.current();
                let own = store.heartbeats().await?.unwrap_or(store);
                let open = Arc::clone(&self.open);
                let open: OpenStore = Arc::new(move |url| {
                    let open = Arc::clone(&open);
                    Box::pin(async move {
                        let store = open(url).await?;
                        Ok(store.heartbeats().await?.unwrap_or(store))
                    })
                });
                Ok(Some(Arc::new(Following::without_hints(own, open))))
            }

            $(async fn $name(&self $(, $argument: $type)*) -> Result<$answer> {
                let since = Instant::now();
                loop {
                    let store = self.current();
                    match store.$name($($argument),*).await {
                        Err(error) => self.goes_on(&store, error, since).await?,
                        answer => return answer,
                    }
                }
            })*
        }
    };
}

following! {
    async fn now(&self) -> Timestamp;
    async fn claim(&self, request: &ClaimRequest) -> Claims;
    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Vec<Extended>;
    async fn save(&self, saves: &[Save]) -> Vec<Result<(), Stale>>;
    async fn settle(&self, settlements: &[Settlement]) -> Vec<Settled>;
    async fn upkeep(&self, request: &Upkeep) -> UpkeepReport;
    async fn find(&self, ids: &[JobId]) -> Vec<Option<JobRecord>>;
    async fn list(&self, query: &ListQuery) -> Page<JobRecord>;
    async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Counted;
    async fn faults(&self, query: &FaultQuery) -> Page<FaultGroup>;
    async fn attempts(&self, job: JobId) -> Vec<AttemptRecord>;
    async fn logs(&self, job: JobId) -> Vec<LogLine>;
    async fn explain(&self, job: JobId) -> Explanation;
    async fn events(&self, after: Option<&Cursor>, limit: usize) -> Page<JobEvent>;
    async fn observe(&self, ends_from: Option<Timestamp>) -> Observation;
    async fn put_sample(&self, step: SampleStep, sample: &Sample) -> ();
    async fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Vec<Sample>;
    async fn operate(&self, operation: &Operation) -> Operated;
    async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Page<ActRecord>;
    async fn queues(&self) -> Vec<QueueRecord>;
    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Option<ControlRecord>;
    async fn controlled(&self, queue: &QueueName) -> Option<ControlRecord>;
    async fn keys(&self, query: &KeyQuery) -> Page<KeyRecord>;
    async fn announce(&self, worker: &WorkerReport) -> Announced;
    async fn edit_worker(&self, edit: &WorkerEdit, by: Option<&str>) -> WorkerRecord;
    async fn workers(&self) -> Vec<WorkerRecord>;
    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> ScheduleEdited;
    async fn schedules(&self, after: Option<&str>, limit: usize) -> Vec<ScheduleRecord>;
    async fn workflows(&self, query: &WorkflowQuery) -> Page<WorkflowRecord>;
    async fn rewrite(&self, rewrites: &[Rewrite]) -> Vec<bool>;
    async fn own(&self, owner: &str) -> ();
    async fn ready(&self) -> ();
    async fn durability(&self) -> Durability;
    async fn check(&self) -> Vec<String>;
}
