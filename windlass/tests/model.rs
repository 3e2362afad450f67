//! Random histories on a store must agree with the model of the contract.
//!
//! `WINDLASS_MODEL_SEED=0x… cargo test --features conformance --test model` runs the histories of a failure again;
//! `WINDLASS_MODEL_HISTORIES` and `WINDLASS_MODEL_STEPS` say how many and how long.
#![cfg(feature = "conformance")]

use std::sync::Arc;

use async_trait::async_trait;
use windlass::ManualClock;
use windlass::store::conformance::Subject;
use windlass::store::conformance::model::{self, ModelOptions, ModelReport};
use windlass::store::{MemoryStore, Store};

/// Runs this many histories, and shows that a good part of them was worth running.
fn agree(subject: &dyn Subject, histories: u32) {
    let options = ModelOptions::from_env(histories);
    println!("{}: {options:?}", subject.name());
    let report = model::check(subject, options).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    assert_not_vacuous(&report);
}

/// What must happen at least so often in every thousand histories of 40 steps; about a third of what does.
fn assert_not_vacuous(report: &ModelReport) {
    let wanted = [
        ("claimed", 2000),
        ("insert: existing", 80),
        ("replaced", 8),
        ("settle: applied", 2000),
        ("settle: already applied", 400),
        ("settle: not running", 1000),
        ("settle: expired", 150),
        ("settle: mismatch", 15),
        ("extend: held", 150),
        ("extend: expired", 30),
        ("save: kept", 80),
        ("lease expired", 300),
        ("lifetime ended", 250),
        ("exhausted", 50),
        ("died of a dependency", 200),
        ("gained a dependency", 20),
        ("requeued along", 8),
        ("asked to stop", 20),
        ("ended twice", 5),
        ("webhook", 200),
        ("pruned", 100),
        ("pruned by its own", 60),
        ("refused: Conflict", 25),
        ("refused: DependencyCycle", 60),
        ("refused: DependencyNotFound", 120),
        ("refused: IllegalState", 400),
        ("drained", 1000),
    ];
    let steps = report.steps;
    if report.histories >= 500 && steps >= u64::from(report.histories) * 40 {
        for (what, per_thousand) in wanted {
            let least = per_thousand * u64::from(report.histories) / 1000;
            assert!(report.count(what) >= least, "{what} happened {} times, not {least}\n{report}", report.count(what));
        }
    }
}

#[derive(Debug)]
struct Memory;

#[async_trait]
impl Subject for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        Arc::new(MemoryStore::with_clock(clock))
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
    struct Sqlite {
        folder: TempDir,
        made: AtomicU32,
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

    #[test]
    fn the_sqlite_store_agrees_with_the_model() {
        let folder = TempDir::new().expect("a temporary folder");
        super::agree(&Sqlite { folder, made: AtomicU32::new(0) }, 60);
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::sync::Arc;

    use windlass::ManualClock;
    use windlass::store::conformance::Subject;
    use windlass::store::{PostgresOptions, PostgresStore, Store};

    /// A schema of its own for every history, in the database that `WINDLASS_TEST_POSTGRES` names.
    #[derive(Debug)]
    struct Postgres;

    #[async_trait::async_trait]
    impl Subject for Postgres {
        fn name(&self) -> &'static str {
            "postgres"
        }

        async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
            let url = std::env::var("WINDLASS_TEST_POSTGRES").expect(
                "WINDLASS_TEST_POSTGRES must name a PostgreSQL database, such as \
                 postgres://postgres@127.0.0.1:5432/postgres; scripts/test starts one",
            );
            let schema = format!("history_{}", uuid::Uuid::new_v4().simple());
            let options = PostgresOptions::new(&url).and_then(|options| options.schema(schema)).expect("valid options");
            let options = options.clock(clock).without_notifications();
            Arc::new(PostgresStore::with(options).await.expect("the test database should be there"))
        }
    }

    #[test]
    fn the_postgres_store_agrees_with_the_model() {
        super::agree(&Postgres, 16);
    }
}

#[test]
fn the_memory_store_agrees_with_the_model() {
    agree(&Memory, 2000);
}
