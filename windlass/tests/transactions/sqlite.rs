//! rusqlite: the jobs are in the application's own file.

use std::sync::{Arc, Mutex};

use rusqlite::{Connection, Transaction, TransactionBehavior};
use windlass::job::Unique;
use windlass::{Client, Context, Failure, JobId, State};

use crate::Driver;
use crate::{enqueue_five, windlass_step};

/// A connection of the user's own.
struct Rusqlite(Mutex<Connection>);

impl Rusqlite {
    fn in_transaction<T>(&self, commit: bool, write: impl FnOnce(&Transaction<'_>) -> T) -> T {
        let mut database = self.0.lock().expect("no panic");
        let tx = database.transaction_with_behavior(TransactionBehavior::Immediate).expect("begin");
        tx.execute("insert into business default values", []).expect("a row");
        let answer = write(&tx);
        if commit {
            tx.commit().expect("commit");
        }
        answer
    }
}

impl Driver for Rusqlite {
    async fn enqueue(&self, client: &Client, commit: bool) -> Vec<JobId> {
        self.in_transaction(commit, |tx| enqueue_five!(client, tx))
    }

    async fn complete(&self, cx: &Context<Arc<Self>>, commit: bool) -> Result<(), Failure> {
        Ok(self.in_transaction(commit, |tx| cx.complete_in_tx(tx, &()))?)
    }

    async fn rows(&self) -> i64 {
        let database = self.0.lock().expect("no panic");
        database.query_row("select count(*) from business", [], |row| row.get(0)).expect("a number")
    }
}

async fn setup() -> (Rusqlite, Client, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("app.db");
    let client = Client::open(&format!("sqlite:{}", path.display())).await.expect("open");
    let database = Connection::open(&path).expect("open");
    database.busy_timeout(crate::SOON).expect("a setting");
    database.execute_batch("create table business (number integer primary key)").expect("a table");
    (Rusqlite(Mutex::new(database)), client, folder)
}

#[tokio::test]
async fn x1_jobs_commit_or_vanish_with_the_transaction() {
    let (driver, client, _folder) = setup().await;
    crate::x1_jobs_commit_or_vanish_with_the_transaction(driver, client).await;
}

#[tokio::test]
async fn x2_a_completion_commits_or_vanishes_with_the_transaction() {
    let (driver, client, _folder) = setup().await;
    crate::x2_a_completion_commits_or_vanishes_with_the_transaction(driver, client).await;
}

#[tokio::test]
async fn x1_a_transaction_on_another_file_or_for_another_store_is_refused() {
    let (driver, _, _folder) = setup().await;
    let (_, other, _other_folder) = setup().await;
    driver.in_transaction(false, |tx| {
        crate::is_refused(Client::in_memory().enqueue(windlass_step()).in_tx(tx));
        let refused = other.enqueue(windlass_step()).in_tx(tx).expect_err("another file");
        assert!(refused.to_string().contains("another file"), "{refused}");
    });
}

/// The way in for other drivers on the same handle: they begin and commit, and only lend their connection.
#[tokio::test]
async fn x1_a_connection_with_an_open_transaction_will_do() {
    let (driver, client, _folder) = setup().await;
    let refused = {
        let database = driver.0.lock().expect("no panic");
        client.enqueue(windlass_step()).in_tx(&*database).expect_err("no transaction is open")
    };
    assert!(refused.to_string().contains("none is open"), "{refused}");
    for (end, kept) in [("rollback", 0), ("commit", 1)] {
        {
            let database = driver.0.lock().expect("no panic");
            database.execute_batch("begin immediate").expect("begin");
            client.enqueue(windlass_step()).in_tx(&*database).expect("enqueued");
            database.execute_batch(end).expect(end);
        }
        assert_eq!(client.totals().await.expect("totals").accepted, kept, "after {end}");
    }
}

#[tokio::test]
async fn u3_a_replacement_commits_or_vanishes_with_the_transaction() {
    let (driver, client, _folder) = setup().await;
    let waiting = || Unique::payload().until_claimed();
    let first = client.enqueue(windlass_step()).unique(waiting()).await.expect("enqueue").id;
    let in_tx = |commit, unique: Unique| {
        let write = |tx: &Transaction<'_>| client.enqueue(windlass_step()).unique(unique).in_tx(tx).expect("enqueue");
        driver.in_transaction(commit, write)
    };
    assert_eq!(in_tx(true, waiting()).id, first, "it waits already");
    assert!(!in_tx(false, waiting().replace()).existing);
    assert_eq!(client.job(first).await.expect("found").state, State::Scheduled, "rolled back");
    let second = in_tx(true, waiting().replace());
    assert_eq!(client.job(first).await.expect("found").state, State::Cancelled);
    assert_eq!(client.job(second.id).await.expect("found").state, State::Scheduled);
    assert_eq!(client.store().check().await.expect("check"), Vec::<String>::new());
}
