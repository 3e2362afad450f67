//! A long job that goes on where it was when its worker died or was stopped.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::testing::CrashPoint;
use windlass::{Client, Context, Failure, Job, Worker};

#[derive(Serialize, Deserialize)]
struct Import {
    rows: u64,
}

impl Job for Import {
    const TYPE: &'static str = "import";
}

async fn import(job: Import, cx: Context) -> Result<u64, Failure> {
    let mut row = cx.checkpoint::<u64>()?.unwrap_or(0);
    println!("attempt {} begins at row {row}", cx.attempt());
    while row < job.rows {
        row += 100;
        cx.save_checkpoint(&row).await?;
        cx.progress(row as f64 / job.rows as f64, format!("{row} rows")).await?;
        // Time to stop: the worker shuts down, or somebody cancelled. What was done is kept.
        if cx.stopping().is_cancelled() || cx.is_cancelled() || (row == 300 && cx.attempt() == 1) {
            return Err(Failure::temporary("stopped half-way"));
        }
    }
    cx.log(format!("imported {row} rows")).await?;
    Ok(row)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> windlass::Result<()> {
    let (client, clock) = Client::for_tests();
    let worker = Worker::new(&client).queue("default", 1).handle(import);
    let id = client.enqueue(Import { rows: 1000 }).max_attempts(5).await?.id;
    worker.drain().await?;
    // The next attempt finishes, and the process dies before it can say so.
    clock.advance(Duration::from_secs(60));
    worker.crash_at(CrashPoint::Handled);
    worker.drain().await?;
    clock.advance(Duration::from_secs(60));
    worker.drain().await?;
    let job = client.job(id).await?;
    println!("{}: {}", job.state, job.progress.expect("it told").message);
    Ok(())
}
