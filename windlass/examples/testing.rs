//! Testing code that enqueues and handles jobs: no sleeping, no threads, no database.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::testing::{expect_enqueued, expect_none_enqueued};
use windlass::{Client, Context, Failure, Job, Worker};

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Welcome {
    user: u64,
}

impl Job for Welcome {
    const TYPE: &'static str = "welcome";
}

/// The code under test.
async fn sign_up(client: &Client, user: u64) -> windlass::Result<()> {
    client.enqueue(Welcome { user }).delay(Duration::from_secs(600)).await?;
    Ok(())
}

async fn welcome(job: Welcome, cx: Context) -> Result<(), Failure> {
    if cx.attempt() == 1 { Err(Failure::temporary(format!("no server for {}", job.user))) } else { Ok(()) }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> windlass::Result<()> {
    let (client, clock) = Client::for_tests();
    let worker = Worker::new(&client).queue("default", 1).handle(welcome);

    expect_none_enqueued::<Welcome>(&client).await;
    sign_up(&client, 7).await?;
    assert_eq!(expect_enqueued::<Welcome>(&client).await, [Welcome { user: 7 }]);

    assert_eq!(worker.drain().await?.attempts(), 0, "not before ten minutes");
    clock.advance(Duration::from_secs(600));
    assert_eq!(worker.drain().await?.retried, 1);
    clock.advance(Duration::from_secs(2));
    assert_eq!(worker.drain().await?.completed, 1);
    println!("all as expected");
    Ok(())
}
