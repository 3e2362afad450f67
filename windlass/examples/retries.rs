//! Failures that are retried, failures that are not, and a job that asks for another time.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Client, Context, Failure, Job, NewJob, RetryPolicy, Worker};

#[derive(Serialize, Deserialize)]
enum Send {
    Flaky,
    NoAddress,
    NotYet,
}

impl Job for Send {
    const TYPE: &'static str = "send";

    fn options(new: NewJob) -> NewJob {
        new.retry(RetryPolicy::responsive().max_attempts(5))
    }
}

async fn send(job: Send, cx: Context) -> Result<(), Failure> {
    match job {
        // Any error is a temporary failure: tried again after a backoff.
        Send::Flaky if cx.attempt() < 3 => Err("not a number".parse::<u32>().expect_err("it is not").into()),
        Send::Flaky => Ok(()),
        // Trying again cannot mend this one.
        Send::NoAddress => Err(Failure::permanent("no_address", "user has no address")),
        // Not a failure: nothing is counted.
        Send::NotYet if cx.attempt() == 1 => Err(Failure::snooze(Duration::from_secs(3600))),
        Send::NotYet => Ok(()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> windlass::Result<()> {
    let (client, clock) = Client::for_tests();
    let worker = Worker::new(&client).queue("default", 1).handle(send);
    let jobs = client.enqueue_all([Send::Flaky, Send::NoAddress, Send::NotYet]).await?;
    let first = worker.drain().await?;
    println!("retried {}, failed {}, snoozed {}", first.retried, first.failed, first.snoozed);
    while worker.drain().await?.attempts() > 0 || client.job(jobs[2].id).await?.completed_at.is_none() {
        clock.advance(Duration::from_secs(600));
    }
    for job in jobs {
        let job = client.job(job.id).await?;
        println!("{} after {} attempts, {} failures", job.state, job.attempt, job.failures);
    }
    Ok(())
}
