//! Graceful shutdown: finish what runs, give back what cannot finish, lose nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Client, Context, Failure, Job, State, Worker};

#[derive(Serialize, Deserialize)]
struct Work {
    milliseconds: u64,
}

impl Job for Work {
    const TYPE: &'static str = "work";
}

async fn work(job: Work, _cx: Context) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(job.milliseconds)).await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> windlass::Result<()> {
    let client = Client::in_memory();
    let short = client.enqueue(Work { milliseconds: 100 }).await?.id;
    let long = client.enqueue(Work { milliseconds: 3_600_000 }).await?.id;

    let worker = Worker::new(&client).queue("default", 8).grace(Duration::from_secs(1)).handle(work);
    // In a program: worker.run(), which SIGINT and SIGTERM stop; a second signal aborts.
    let stopped = worker
        .run_until(async {
            while client.job(long).await.is_ok_and(|job| job.state != State::Running) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await?;

    println!("settled {}, of these interrupted {}", stopped.settled, stopped.interrupted);
    println!("short: {}, long: {}", client.job(short).await?.state, client.job(long).await?.state);
    Ok(())
}
