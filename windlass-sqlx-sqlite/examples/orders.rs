//! An order and its job commit together, a charge and its completion too: with sqlx, in the application's own SQLite file.

use serde::{Deserialize, Serialize};
use sqlx_0_9 as sqlx;
use windlass::{Client, Context, Failure, Job, Worker};
use windlass_sqlx_sqlite::Lend;

#[derive(Serialize, Deserialize)]
struct Charge {
    order: i64,
}

impl Job for Charge {
    const TYPE: &'static str = "charge";
}

async fn charge(job: Charge, cx: Context<sqlx::SqlitePool>) -> Result<(), Failure> {
    let mut tx = cx.state.begin_with("begin immediate").await?;
    sqlx::query("insert into charges (number) values (?)").bind(job.order).execute(&mut *tx).await?;
    cx.complete_in_tx(tx.lend(), &()).await?;
    // From here on the job is COMPLETED, and the charge there, or neither.
    tx.commit().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::TempDir::new()?;
    // The form that both take.
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("shop.db").display());
    let client = Client::open(&url).await?;
    let pool = sqlx::SqlitePool::connect(&url).await?;
    sqlx::query("create table orders (number integer)").execute(&pool).await?;
    sqlx::query("create table charges (number integer)").execute(&pool).await?;

    let mut tx = pool.begin_with("begin immediate").await?;
    sqlx::query("insert into orders (number) values (1)").execute(&mut *tx).await?;
    client.enqueue(Charge { order: 1 }).in_tx(tx.lend()).await?;
    tx.rollback().await?;
    println!("after a rollback: {} jobs", client.totals().await?.accepted);

    let mut tx = pool.begin_with("begin immediate").await?;
    sqlx::query("insert into orders (number) values (42)").execute(&mut *tx).await?;
    let job = client.enqueue(Charge { order: 42 }).in_tx(tx.lend()).await?;
    tx.commit().await?;

    let running = Worker::new(&client).with_state(pool.clone()).queue("default", 1).handle(charge).start().await?;
    let ended = client.wait(job.id).await?;
    let charges: i64 = sqlx::query_scalar("select count(*) from charges").fetch_one(&pool).await?;
    println!("{} with {charges} charge", ended.state);
    running.stop().await;
    Ok(())
}
