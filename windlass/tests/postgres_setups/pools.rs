//! On the application's own pool, of deadpool-postgres and of sqlx: no connection beside it, and all rules kept.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;
use windlass::store::conformance::{Case, Subject};
use windlass::store::{ApplicationPool, PostgresOptions, PostgresStore, Store};
use windlass::{Client, Context, Failure, Job, ManualClock, State, Worker};

use crate::{SOON, admin, hold, new_schema, url, work_through};

/// Connections of each pool; few, so that a leaked one is noticed.
const CONNECTIONS: usize = 4;

fn deadpool() -> ApplicationPool {
    let manager = deadpool_postgres::Manager::new(named(&url()).parse().expect("a URL"), NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(CONNECTIONS).build();
    pool.expect("a pool").into()
}

/// The URL with a name by which the pool's connections are known to the server.
fn named(url: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}application_name=shop")
}

macro_rules! sqlx_pool {
    ($name:ident, $sqlx:ident) => {
        fn $name() -> ApplicationPool {
            let options = $sqlx::postgres::PgPoolOptions::new().max_connections(CONNECTIONS as u32);
            options.connect_lazy(&named(&url())).expect("a pool").into()
        }
    };
}

#[cfg(feature = "sqlx-0_8")]
sqlx_pool!(sqlx_0_8_pool, sqlx_0_8);
#[cfg(feature = "sqlx-0_9")]
sqlx_pool!(sqlx_0_9_pool, sqlx_0_9);

type MakePool = fn() -> ApplicationPool;

/// The pools there are, by name.
fn pools() -> Vec<(&'static str, MakePool)> {
    vec![
        ("deadpool", deadpool),
        #[cfg(feature = "sqlx-0_8")]
        ("sqlx 0.8", sqlx_0_8_pool),
        #[cfg(feature = "sqlx-0_9")]
        ("sqlx 0.9", sqlx_0_9_pool),
    ]
}

fn on(pool: ApplicationPool) -> PostgresOptions {
    PostgresOptions::on_pool(pool).schema(new_schema()).expect("a name")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_does_its_days_work_on_the_applications_pool() {
    for (name, pool) in pools() {
        println!("{name}");
        let store = PostgresStore::with(on(pool())).await.expect("the store opens");
        work_through(&Client::with_store(Arc::new(store))).await;
    }
}

#[derive(Serialize, Deserialize)]
struct Long;

impl Job for Long {
    const TYPE: &'static str = "long";
}

async fn long(_: Long, _: Context) -> Result<(), Failure> {
    // Four leases long: it stays its own only by heartbeats.
    tokio::time::sleep(Duration::from_secs(4)).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_go_over_the_pool_and_nothing_connects_beside_it() {
    for (name, pool) in pools() {
        let (admin, schema) = (admin(&url()).await, new_schema());
        let options = PostgresOptions::on_pool(pool()).schema(&schema).expect("a name");
        let client = Client::with_store(Arc::new(PostgresStore::with(options).await.expect("the store opens")));
        let worker = Worker::new(&client).queue("default", 2).lease_time(Duration::from_secs(1)).handle(long);
        let running = worker.start().await.expect("a worker");
        let id = client.enqueue(Long).await.expect("enqueued").id;
        let ended = tokio::time::timeout(SOON, client.wait(id)).await.expect("it ends").expect("a job");
        assert_eq!((ended.state, ended.attempt), (State::Completed, 1), "{name}: {:?}", ended.failure);
        let whose = "select application_name from pg_stat_activity where query like $1 and pid <> pg_backend_pid()";
        let rows = admin.query(whose, &[&format!("%{schema}.%")]).await.expect("a list");
        let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert!(!names.is_empty() && names.iter().all(|name| name == "shop"), "{name}: {names:?}");
        running.stop().await;
        // The heartbeats had a runtime of their own, which is gone; what they used lives on.
        for _ in 0..2 * CONNECTIONS {
            client.totals().await.expect("the pool still works");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_connection_of_a_pool_is_enough_for_a_transaction_with_a_job() {
    let manager = deadpool_postgres::Manager::new(url().parse().expect("a URL"), NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(1).build().expect("a pool");
    let store = PostgresStore::with(on(pool.clone().into())).await.expect("the store opens");
    let client = Client::with_store(Arc::new(store));
    // The first makes the lane, the second finds it, the third knows it; one is undone.
    for commit in [false, true, true, true] {
        let mut connection = pool.get().await.expect("the only connection");
        let tx = connection.transaction().await.expect("begin");
        let enqueued = tokio::time::timeout(SOON / 3, client.enqueue(Long).in_tx(&*tx)).await;
        enqueued.expect("it waits for no other connection").expect("enqueued");
        if commit {
            tx.commit().await.expect("commit");
        }
    }
    assert_eq!(client.totals().await.expect("totals").accepted, 3);
    let keyed = client.enqueue(Long).idempotency_key("once");
    let mut connection = pool.get().await.expect("the only connection");
    let tx = connection.transaction().await.expect("begin");
    tokio::time::timeout(SOON / 3, keyed.in_tx(&*tx)).await.expect("at once").expect("enqueued");
    tx.commit().await.expect("commit");
    drop(connection);
    assert_eq!(client.store().check().await.expect("check"), Vec::<String>::new());
}

/// A store on a pool of its own for each case.
struct OnPool(fn() -> ApplicationPool);

impl std::fmt::Debug for OnPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnPool")
    }
}

#[async_trait::async_trait]
impl Subject for OnPool {
    fn name(&self) -> &'static str {
        "on the application's pool"
    }

    fn has_control(&self) -> bool {
        false
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        Arc::new(PostgresStore::with(on((self.0)()).clock(clock)).await.expect("the test database should be there"))
    }
}

/// What leans on statements, transactions and races; the pure rules do not depend on the driver.
fn wanted(case: &Case) -> bool {
    ["l", "s", "i", "w", "o4"].iter().any(|start| case.name.starts_with(start))
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_hold_on_a_pool_of_deadpool() {
    assert!(hold(OnPool(deadpool), wanted).await > 50);
}

#[cfg(feature = "sqlx-0_8")]
#[tokio::test(flavor = "multi_thread")]
async fn rules_hold_on_a_pool_of_sqlx_0_8() {
    assert!(hold(OnPool(sqlx_0_8_pool), wanted).await > 50);
}

#[cfg(feature = "sqlx-0_9")]
#[tokio::test(flavor = "multi_thread")]
async fn rules_hold_on_a_pool_of_sqlx_0_9() {
    assert!(hold(OnPool(sqlx_0_9_pool), wanted).await > 50);
}
