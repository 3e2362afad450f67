//! Jobs beside the application's tables in PostgreSQL: an order and its job commit together, a charge and its completion
//! too. Run it with DATABASE_URL=postgres://…; it works in tables of its own session and in the schema it is told.

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio_postgres::NoTls;
use windlass::{Client, Context, Failure, Job, Worker};

#[derive(Serialize, Deserialize)]
struct Charge {
    order: i32,
}

impl Job for Charge {
    const TYPE: &'static str = "charge";
}

async fn charge(job: Charge, cx: Context<Mutex<tokio_postgres::Client>>) -> Result<(), Failure> {
    let mut database = cx.state.lock().await;
    let tx = database.transaction().await?;
    tx.execute("insert into charges (number) values ($1)", &[&job.order]).await?;
    cx.complete_in_tx(&tx, &()).await?;
    // From here on the job is COMPLETED, and the charge there, or neither.
    tx.commit().await?;
    println!("order {} is charged", job.order);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let client = Client::open(&url).await?;
    // The driver does not know the store's own parameter.
    let plain = url.split("?schema=").next().unwrap_or_default();
    let (mut database, connection) = tokio_postgres::connect(plain, NoTls).await?;
    tokio::spawn(connection);
    database.batch_execute("create temp table orders (number int); create temp table charges (number int)").await?;

    let tx = database.transaction().await?;
    tx.execute("insert into orders (number) values (1)", &[]).await?;
    client.enqueue(Charge { order: 1 }).in_tx(&tx).await?;
    tx.rollback().await?;
    println!("after a rollback: {} jobs", client.totals().await?.accepted);

    let tx = database.transaction().await?;
    tx.execute("insert into orders (number) values (42)", &[]).await?;
    let job = client.enqueue(Charge { order: 42 }).in_tx(&tx).await?;
    tx.commit().await?;

    let state = Mutex::new(database);
    let running = Worker::new(&client).with_state(state).queue("default", 1).handle(charge).start().await?;
    println!("{}", client.wait(job.id).await?.state);
    running.stop().await;
    Ok(())
}
