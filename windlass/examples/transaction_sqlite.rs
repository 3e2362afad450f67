//! Jobs in the application's own SQLite file: an order and its job commit together, a charge and its completion too.

use std::sync::Mutex;

use rusqlite::{Connection, TransactionBehavior};
use serde::{Deserialize, Serialize};
use windlass::{Client, Context, Failure, Job, Worker};

#[derive(Serialize, Deserialize)]
struct Charge {
    order: i64,
}

impl Job for Charge {
    const TYPE: &'static str = "charge";
}

async fn charge(job: Charge, cx: Context<Mutex<Connection>>) -> Result<(), Failure> {
    let mut database = cx.state.lock().expect("nobody panics with it");
    let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("insert into charges (number) values (?1)", [job.order])?;
    cx.complete_in_tx(&tx, &())?;
    // From here on the job is COMPLETED, and the charge there, or neither.
    tx.commit()?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::TempDir::new()?;
    let file = folder.path().join("shop.db");
    let client = Client::open(&format!("sqlite:{}", file.display())).await?;
    let mut database = Connection::open(&file)?;
    database.execute_batch("create table orders (number integer); create table charges (number integer)")?;

    // Immediate: a transaction that reads first cannot always be made a writing one.
    let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("insert into orders (number) values (1)", [])?;
    client.enqueue(Charge { order: 1 }).in_tx(&tx)?;
    tx.rollback()?;
    println!("after a rollback: {} jobs", client.totals().await?.accepted);

    let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("insert into orders (number) values (42)", [])?;
    let job = client.enqueue(Charge { order: 42 }).in_tx(&tx)?;
    tx.commit()?;

    let own = Mutex::new(Connection::open(&file)?);
    let running = Worker::new(&client).with_state(own).queue("default", 1).handle(charge).start().await?;
    let ended = client.wait(job.id).await?;
    let charges: i64 = database.query_row("select count(*) from charges", [], |row| row.get(0))?;
    println!("{} with {charges} charge", ended.state);
    running.stop().await;
    Ok(())
}
