//! Recurring work, registered from code; here with a clock that the example moves.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::schedule::{Missed, Overlap};
use windlass::{Client, Context, Failure, Job, Schedule, Worker};

#[derive(Serialize, Deserialize)]
struct Report;

impl Job for Report {
    const TYPE: &'static str = "report";
}

async fn report(_: Report, cx: Context) -> Result<(), Failure> {
    let firing = cx.job().firing.as_ref().expect("a schedule fired it");
    println!("{} for {}", firing.schedule, firing.slot);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> windlass::Result<()> {
    let (client, clock) = Client::for_tests();
    let nightly = Schedule::cron_in("nightly", "0 3 * * *", "Europe/Berlin", Report)?;
    let hourly = Schedule::every("six-hourly", Duration::from_secs(6 * 3600), Report)?;
    let worker = Worker::new(&client)
        .queue("default", 1)
        .handle(report)
        .schedule(nightly.overlap(Overlap::QueueOne))
        .schedule(hourly.missed(Missed::Skip));
    worker.drain().await?;
    for _ in 0..24 {
        clock.advance(Duration::from_secs(3600));
        worker.drain().await?;
    }
    // Two weeks of downtime come back as one run of the nightly report, and none of the other.
    clock.advance(Duration::from_secs(14 * 24 * 3600 + 1800));
    println!("{} after two weeks", worker.drain().await?.completed);
    Ok(())
}
