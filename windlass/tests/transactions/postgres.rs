//! tokio-postgres: the jobs are in a schema of the application's own database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::NoTls;
use windlass::job::{Unique, Until, WorkerId};
use windlass::store::{ClaimRequest, PostgresOptions, PostgresStore, Store, Wake};
use windlass::{Client, Context, Failure, JobId, QueueName, State, Worker};

use crate::{Driver, Step};
use crate::{enqueue_five, windlass_step};

pub(crate) fn url() -> String {
    std::env::var("WINDLASS_TEST_POSTGRES").expect(
        "WINDLASS_TEST_POSTGRES must name a PostgreSQL database, such as postgres://postgres@127.0.0.1:5432/postgres; \
         scripts/test starts one",
    )
}

/// A client on a fresh schema, which also holds the user's table.
pub(crate) async fn fresh() -> (Client, String) {
    let schema = format!("tx_{}", uuid::Uuid::new_v4().simple());
    let options = PostgresOptions::new(&url()).and_then(|options| options.schema(&schema)).expect("valid options");
    let store = PostgresStore::with(options).await.expect("the test database should be there");
    let database = connect().await;
    database.batch_execute(&format!("create table {schema}.business (row int)")).await.expect("a table");
    (Client::with_store(Arc::new(store)), schema)
}

async fn connect() -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.expect("the test database");
    tokio::spawn(connection);
    client
}

/// A connection of the user's own.
struct TokioPostgres {
    database: Mutex<tokio_postgres::Client>,
    schema: String,
}

impl TokioPostgres {
    fn insert(&self) -> String {
        format!("insert into {}.business values (1)", self.schema)
    }
}

impl Driver for TokioPostgres {
    async fn enqueue(&self, client: &Client, commit: bool) -> Vec<JobId> {
        let mut database = self.database.lock().await;
        let tx = database.transaction().await.expect("begin");
        tx.batch_execute(&self.insert()).await.expect("a row");
        let ids = enqueue_five!(client, &tx, await);
        if commit {
            tx.commit().await.expect("commit");
        }
        ids
    }

    async fn complete(&self, cx: &Context<Arc<Self>>, commit: bool) -> Result<(), Failure> {
        let mut database = self.database.lock().await;
        let tx = database.transaction().await?;
        tx.batch_execute(&self.insert()).await?;
        cx.complete_in_tx(&tx, &()).await?;
        if commit {
            tx.commit().await?;
        }
        Ok(())
    }

    async fn rows(&self) -> i64 {
        let count = format!("select count(*) from {}.business", self.schema);
        self.database.lock().await.query_one(&count, &[]).await.expect("a number").get(0)
    }
}

async fn setup() -> (TokioPostgres, Client) {
    let (client, schema) = fresh().await;
    (TokioPostgres { database: Mutex::new(connect().await), schema }, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn x1_jobs_commit_or_vanish_with_the_transaction() {
    let (driver, client) = setup().await;
    crate::x1_jobs_commit_or_vanish_with_the_transaction(driver, client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_a_completion_commits_or_vanishes_with_the_transaction() {
    let (driver, client) = setup().await;
    crate::x2_a_completion_commits_or_vanishes_with_the_transaction(driver, client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x1_a_transaction_for_another_store_is_refused() {
    let mut database = connect().await;
    let tx = database.transaction().await.expect("begin");
    crate::is_refused(Client::in_memory().enqueue(windlass_step()).in_tx(&tx).await);
}

/// The commit wakes workers: those of this process, and those of others.
#[tokio::test(flavor = "multi_thread")]
async fn n2_the_commit_is_heard_of_and_nothing_before_it() {
    let (driver, client) = setup().await;
    let options = PostgresOptions::new(&url()).and_then(|options| options.schema(&driver.schema)).expect("valid");
    let other = PostgresStore::with(options).await.expect("open");
    for mut wakes in [client.store().wakes(), other.wakes()] {
        let story = async {
            // The ear may not be open yet, so the word is repeated until it arrives.
            loop {
                let mut database = driver.database.lock().await;
                let tx = database.transaction().await.expect("begin");
                client.enqueue(Step::Commit).queue("quiet").in_tx(&tx).await.expect("enqueue");
                tx.rollback().await.expect("rollback");
                let tx = database.transaction().await.expect("begin");
                client.enqueue(Step::Commit).queue("loud").in_tx(&tx).await.expect("enqueue");
                tx.commit().await.expect("commit");
                match tokio::time::timeout(Duration::from_millis(300), wakes.recv()).await {
                    Ok(Ok(Wake::Scheduled(queue))) => {
                        assert_eq!(queue.as_str(), "loud", "what was rolled back is not told");
                        break;
                    }
                    Ok(Ok(other)) => panic!("{other:?}"),
                    Ok(Err(_)) | Err(_) => {}
                }
            }
        };
        tokio::time::timeout(crate::SOON, story).await.expect("the word arrives");
    }
}

/// A transaction that stays open for longer than a lease holds up neither the heartbeats of other jobs nor its own end.
#[tokio::test(flavor = "multi_thread")]
async fn l6_an_open_transaction_does_not_cost_other_jobs_their_leases() {
    let (driver, client) = setup().await;
    let lease = Duration::from_millis(600);
    let runs = Arc::new(AtomicUsize::new(0));
    let handler = async |number: Step, cx: Context<(TokioPostgres, Arc<AtomicUsize>)>| {
        let (driver, runs) = &*cx.state;
        runs.fetch_add(1, Ordering::SeqCst);
        if let Step::TryAgain = number {
            // Runs under its lease all the while.
            tokio::time::sleep(Duration::from_millis(1800)).await;
            return Ok(());
        }
        let mut database = driver.database.lock().await;
        let tx = database.transaction().await?;
        cx.complete_in_tx(&tx, &()).await?;
        assert_eq!(cx.progress(0.5, "half").await.expect_err("it is completed").name(), "Conflict");
        tokio::time::sleep(Duration::from_millis(1500)).await;
        tx.commit().await?;
        Ok(())
    };
    let worker = Worker::new(&client).with_state((driver, Arc::clone(&runs))).queue("default", 2);
    let running = worker.lease_time(lease).handle(handler).start().await.expect("start");
    let ids = [client.enqueue(Step::Commit).await, client.enqueue(Step::TryAgain).await];
    for id in ids {
        let ended = tokio::time::timeout(crate::SOON, client.wait(id.expect("enqueue").id)).await;
        let job = ended.expect("it ends soon").expect("a job");
        assert_eq!((job.state, job.attempt), (State::Completed, 1));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    let stopped = running.stop().await;
    assert_eq!((stopped.settled, stopped.dropped), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn u3_a_replacement_commits_or_vanishes_with_the_transaction() {
    let (driver, client) = setup().await;
    let waiting = || Unique::payload().until_claimed();
    let first = client.enqueue(windlass_step()).unique(waiting()).await.expect("enqueue").id;
    let in_tx = async |commit: bool, unique: Unique| {
        let mut database = driver.database.lock().await;
        let tx = database.transaction().await.expect("begin");
        let job = client.enqueue(windlass_step()).unique(unique).in_tx(&tx).await.expect("enqueue");
        if commit {
            tx.commit().await.expect("commit");
        }
        job
    };
    assert_eq!(in_tx(true, waiting()).await.id, first, "it waits already");
    assert!(!in_tx(false, waiting().replace()).await.existing);
    assert_eq!(client.job(first).await.expect("found").state, State::Scheduled, "rolled back");
    let second = in_tx(true, waiting().replace()).await;
    assert_eq!(client.job(first).await.expect("found").state, State::Cancelled);
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 10);
    let claimed = client.store().claim(&request).await.expect("claim");
    assert_eq!(claimed.iter().map(|one| one.job.id).collect::<Vec<_>>(), [second.id]);
    // Claimed, so the key is taken over: not by a transaction that vanishes, but by the next.
    let gone = in_tx(false, waiting()).await;
    let third = in_tx(true, waiting()).await;
    assert!(!gone.existing && !third.existing && third.id != second.id);
    assert_eq!(client.enqueue(windlass_step()).unique(waiting()).await.expect("enqueue").id, third.id);
    assert_eq!(client.store().check().await.expect("check"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn u1_the_sql_function_knows_keys_that_the_job_decides() {
    let (client, schema) = fresh().await;
    let database = connect().await;
    let call = async |until: &str| {
        let call = format!("select {schema}.enqueue('step', '\"Commit\"', idempotency_key => 'k'{until})");
        JobId::from_uuid(database.query_one(&call, &[]).await.expect("enqueue").get(0))
    };
    let claim = async || {
        let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 10);
        client.store().claim(&request).await.expect("claim")
    };
    let claimed = ", key_until => 'claimed'";
    let first = call(claimed).await;
    assert_eq!((call(claimed).await, call("").await), (first, first), "it waits already");
    assert_eq!(claim().await.len(), 1);
    let second = call(", key_until => 'ended'").await;
    assert_ne!(second, first, "the first was claimed");
    let key = client.job(second).await.expect("a job").spec.options.idempotency.clone().expect("a key");
    assert_eq!((key.until, key.window), (Until::Ended, None));
    let taken = claim().await;
    // The program and the function see the same keys.
    let submit = async || client.enqueue(windlass_step()).idempotency_key("k").await.expect("enqueue").id;
    assert_eq!((call(claimed).await, submit().await), (second, second), "it has not ended");
    for one in taken {
        client.store().settle(&[one.lease.complete(None)]).await.expect("settle");
    }
    let third = submit().await;
    assert_ne!(third, second);
    assert_eq!(call(claimed).await, third, "its window is not over");
    for bad in ["'step', key_until => 'ended'", "'step', idempotency_key => 'k', key_until => 'never'"] {
        assert!(database.query_one(&format!("select {schema}.enqueue({bad})"), &[]).await.is_err(), "{bad}");
    }
    assert_eq!(client.store().check().await.expect("check"), Vec::<String>::new());
}
