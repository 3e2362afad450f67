//! What handlers share: a pool, a configuration, a counter.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use windlass::{Client, Context, Failure, Job, Priority, Worker};

#[derive(Serialize, Deserialize)]
struct Invoice {
    cents: u64,
}

impl Job for Invoice {
    const TYPE: &'static str = "invoice";
    const QUEUE: &'static str = "billing";
}

struct App {
    currency: &'static str,
    billed: AtomicU64,
}

async fn bill(job: Invoice, cx: Context<App>) -> Result<(), Failure> {
    let sum = cx.state.billed.fetch_add(job.cents, Ordering::SeqCst) + job.cents;
    println!("billed {} {}, {sum} so far", job.cents, cx.state.currency);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> windlass::Result<()> {
    let client = Client::in_memory();
    client.enqueue(Invoice { cents: 100 }).await?;
    let last = client.enqueue(Invoice { cents: 30 }).priority(Priority::Low).await?;
    // The same key is the same job: nothing is billed twice.
    let first = client.enqueue(Invoice { cents: 7 }).idempotency_key("invoice-7").await?;
    let again = client.enqueue(Invoice { cents: 7 }).idempotency_key("invoice-7").await?;
    assert!(again.existing && again.id == first.id);

    let app = App { currency: "cents", billed: AtomicU64::new(0) };
    let worker = Worker::new(&client).with_state(app).queue("billing", 1).handle(bill);
    worker.run_until(client.wait(last.id)).await?;
    Ok(())
}
