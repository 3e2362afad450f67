//! The conformance suite on every store of this crate; each case is a test of its own: `memory::l3_…`.
//!
//! To hold another store to it, implement [`Subject`] and add it to [`subjects`].

mod custom_store;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use windlass::ManualClock;
use windlass::store::conformance::{Case, Subject, cases};
use windlass::store::{MemoryStore, Store};

/// The stores under test.
fn subjects() -> Vec<Arc<dyn Subject>> {
    vec![
        Arc::new(Memory),
        Arc::new(Custom),
        #[cfg(feature = "postgres")]
        Arc::new(Postgres),
        #[cfg(feature = "sqlite")]
        Arc::new(sqlite::Sqlite::default()),
        #[cfg(all(feature = "sqlite", feature = "encryption"))]
        Arc::new(Encrypted(sqlite::Sqlite::default())),
    ]
}

#[derive(Debug)]
struct Memory;

#[async_trait::async_trait]
impl Subject for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        Arc::new(MemoryStore::with_clock(clock))
    }
}

/// The store of `custom_store`, which uses nothing but what the crate shows.
#[derive(Debug)]
struct Custom;

#[async_trait::async_trait]
impl Subject for Custom {
    fn name(&self) -> &'static str {
        "custom"
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        Arc::new(custom_store::MapStore::new(clock))
    }
}

/// A schema of its own for every case, in the database that `WINDLASS_TEST_POSTGRES` names.
#[cfg(feature = "postgres")]
#[derive(Debug)]
struct Postgres;

#[cfg(feature = "postgres")]
#[async_trait::async_trait]
impl Subject for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        use windlass::store::{PostgresOptions, PostgresStore};
        let url = std::env::var("WINDLASS_TEST_POSTGRES").expect(
            "WINDLASS_TEST_POSTGRES must name a PostgreSQL database, such as postgres://postgres@127.0.0.1:5432/postgres; \
             scripts/test starts one",
        );
        let schema = format!("case_{}", uuid::Uuid::new_v4().simple());
        let options = PostgresOptions::new(&url).and_then(|options| options.schema(schema)).expect("valid options");
        Arc::new(PostgresStore::with(options.clock(clock)).await.expect("the test database should be there"))
    }
}

/// Files in which payloads, results and checkpoints are ciphertext.
#[cfg(all(feature = "sqlite", feature = "encryption"))]
#[derive(Debug)]
struct Encrypted(sqlite::Sqlite);

#[cfg(all(feature = "sqlite", feature = "encryption"))]
#[async_trait::async_trait]
impl Subject for Encrypted {
    fn name(&self) -> &'static str {
        "encrypted"
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        use windlass::store::{Keyring, Sealed};
        let key = Keyring::new_key("case").and_then(|key| Keyring::parse(&key)).expect("a key");
        Arc::new(Sealed::new(self.0.fresh(clock).await, key))
    }

    fn reads_payloads(&self) -> bool {
        false
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tempfile::TempDir;
    use windlass::ManualClock;
    use windlass::store::SqliteOptions;
    use windlass::store::Store;
    use windlass::store::conformance::Subject;

    /// Each store in a file of its own, in a folder that goes when the run ends.
    #[derive(Debug)]
    pub(super) struct Sqlite {
        folder: TempDir,
        made: AtomicU32,
    }

    impl Default for Sqlite {
        fn default() -> Self {
            Sqlite { folder: TempDir::new().expect("a temporary folder"), made: AtomicU32::new(0) }
        }
    }

    #[async_trait::async_trait]
    impl Subject for Sqlite {
        fn name(&self) -> &'static str {
            "sqlite"
        }

        async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
            let path = self.folder.path().join(format!("{}.db", self.made.fetch_add(1, Ordering::Relaxed)));
            Arc::new(SqliteOptions::new(path).clock(clock).open().expect("a new file opens"))
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = subjects().iter().flat_map(trials).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(subject: &Arc<dyn Subject>) -> Vec<Trial> {
    let trial = |case: Case| {
        let subject = Arc::clone(subject);
        let left_out = case.is_left_out(subject.as_ref());
        let name = format!("{}::{}", subject.name(), case.name);
        Trial::test(name, move || hold(case, subject.as_ref())).with_ignored_flag(left_out)
    };
    cases().into_iter().map(trial).collect()
}

/// Runs one case on a runtime of its own; a panic becomes a failure that names rule, case and store.
fn hold(case: Case, subject: &dyn Subject) -> Result<(), Failed> {
    // Two threads, so that tasks which a case sets against each other meet in the store.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ran = catch_unwind(AssertUnwindSafe(|| runtime.block_on(case.run(subject))));
    ran.map_err(|panic| {
        let (rule, name, store) = (case.rule(), case.name, subject.name());
        Failed::from(format!("store {store} breaks rule {rule} in case {name}: {}", words(panic.as_ref())))
    })
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panicked")
}
