//! What the end-to-end tests share: a client on each kind of store, with a clock that stands still.
//!
//! A case is an async function of a [`Setup`]; `on_every_store!` makes a test of it for each store.

pub(crate) mod faulty;

use std::sync::Arc;
use std::time::Duration;

use windlass::store::{MemoryStore, Store};
use windlass::{Client, JobId, JobRecord, ManualClock, State, Worker};

/// Long enough for anything that happens at once, short enough to notice that it does not.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A fresh store's client, and the clock of the store.
pub(crate) struct Setup {
    pub(crate) client: Client,
    pub(crate) clock: ManualClock,
    /// What must outlive the store: the folder of its file.
    #[allow(dead_code, reason = "it is only kept")]
    pub(crate) beneath: Option<Box<dyn std::any::Any + Send + Sync>>,
}

impl Setup {
    /// A store's client, with nothing beneath it.
    pub(crate) fn on(store: Arc<dyn Store>, clock: ManualClock) -> Self {
        Setup { client: Client::with_store(store), clock, beneath: None }
    }
}

/// A fresh store in memory.
pub(crate) async fn memory() -> Setup {
    let clock = ManualClock::default();
    Setup::on(Arc::new(MemoryStore::with_clock(clock.clone())), clock)
}

/// A fresh SQLite file.
#[cfg(feature = "sqlite")]
pub(crate) async fn sqlite() -> Setup {
    use windlass::store::SqliteOptions;
    let (folder, clock) = (tempfile::TempDir::new().expect("a temporary folder"), ManualClock::default());
    let options = SqliteOptions::new(folder.path().join("jobs.db")).clock(clock.clone());
    // These tests cut no power, and syncing would make them many times as long.
    let store = options.may_lose_on_power_cut().open().expect("a new store");
    Setup { beneath: Some(Box::new(folder)), ..Setup::on(Arc::new(store), clock) }
}

/// A schema of its own in the database that `WINDLASS_TEST_POSTGRES` names.
#[cfg(feature = "postgres")]
pub(crate) async fn postgres() -> Setup {
    use windlass::store::{PostgresOptions, PostgresStore};
    let url = std::env::var("WINDLASS_TEST_POSTGRES");
    let url = url.expect("WINDLASS_TEST_POSTGRES must name a PostgreSQL database; scripts/test starts one");
    let clock = ManualClock::default();
    let schema = format!("runtime_{}", windlass::store::new_job_id().as_uuid().simple());
    let options = PostgresOptions::new(&url).and_then(|options| options.schema(schema)).expect("valid options");
    let store = PostgresStore::with(options.clock(clock.clone()).connections(8)).await.expect("the test database");
    Setup::on(Arc::new(store), clock)
}

/// Makes a test of each case, on each store.
macro_rules! on_every_store {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case($crate::support::memory().await).await;
                }
            )*
        }

        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case($crate::support::sqlite().await).await;
                }
            )*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case($crate::support::postgres().await).await;
                }
            )*
        }
    };
}

/// Waits until something is so; fails when it does not become so soon.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let waited = tokio::time::timeout(SOON, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"));
}

/// A job whose payload is a number.
#[derive(serde::Serialize, serde::Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Number(pub(crate) u64);

impl windlass::Job for Number {
    const TYPE: &'static str = "number";
}

impl Setup {
    /// The same store behind one that fails when told to.
    pub(crate) fn faulty(self) -> (Setup, Arc<faulty::Faults>) {
        let (store, faults) = faulty::FaultyStore::over(self.client.store().clone());
        (Setup { client: Client::with_store(store), ..self }, faults)
    }

    /// Enqueues a number; gives its id.
    pub(crate) async fn number(&self, number: u64) -> JobId {
        self.client.enqueue(Number(number)).await.expect("enqueue").id
    }

    /// A worker that serves the default queue, and looks often.
    pub(crate) fn worker(&self, slots: usize) -> Worker {
        Worker::new(&self.client).queue("default", slots).poll_interval(Duration::from_millis(5))
    }

    /// Waits until a job is in a state.
    pub(crate) async fn reaches(&self, id: JobId, state: State) -> JobRecord {
        until(&format!("{id} is {state}"), || async { self.client.job(id).await.expect("a job").state == state }).await;
        // On a runtime of one thread, a job that was just claimed has then started.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.client.job(id).await.expect("a job")
    }
}
