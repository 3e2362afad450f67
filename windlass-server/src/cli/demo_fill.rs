//! `windlass demo-fill`: writes a large store through the public calls, for looking at the page and for measuring it.

use std::time::{Duration, Instant};

use clap::Args;
use windlass::job::{Settlement, WorkerId};
use windlass::store::{ClaimRequest, Settled};
use windlass::{Failure, NewJob, Payload, QueueName};

use super::connect::Reach;
use super::exit::End;
use super::output::{OutputArgs, say};
use crate::figures::number;
use crate::marked::{self, Owner};

/// How many jobs one call deals with.
const BATCH: usize = 1000;
/// How many faults the dead jobs died of.
const FAULTS: usize = 40;
/// Queues and types that jobs are spread over.
const QUEUES: [&str; 4] = ["mail", "import", "images", "reports"];

/// What `windlass demo-fill` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many jobs in all
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    jobs: usize,
    #[command(flatten)]
    output: OutputArgs,
}

/// How a batch of jobs ends that is claimed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Completes,
    Dies,
    /// It fails, and is tried again a long time later.
    Retries,
}

/// How long jobs wait for their moment: longer than anybody looks at the store.
const LATER: Duration = Duration::from_secs(3 * 24 * 3600);

/// Of twenty jobs, sixteen complete, two wait for a worker, one for its time or, of four of these, for its next try, and one dies.
pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    let client = &session.client;
    if client.totals().await?.accepted > 0 {
        return Err(End::usage("the store has jobs in it already").advise("name a new one").into());
    }
    // It claims and settles jobs: an empty store that somebody set up for work is not its own.
    marked::take(&**session.store(), &session.place.shown(), Owner::Fill).await?;
    let begun = Instant::now();
    let batches = arguments.jobs.div_ceil(BATCH);
    for batch in 0..batches {
        let queue = QUEUES[batch % QUEUES.len()];
        match batch % 20 {
            0..16 => finish(&session, queue, batch, Ending::Completes).await?,
            16..18 => drop(client.enqueue_all(jobs(queue, batch, None)).await?),
            18 if batch / 20 % 4 == 0 => finish(&session, queue, batch, Ending::Retries).await?,
            18 => {
                let later = jobs(queue, batch, None).into_iter().map(|job| job.delay(LATER));
                client.enqueue_all(later.collect::<Vec<_>>()).await?;
            }
            _ => finish(&session, queue, batch, Ending::Dies).await?,
        }
        if batch % 100 == 99 {
            say(format!("{} jobs, {} s", number(((batch + 1) * BATCH) as u64), begun.elapsed().as_secs()));
        }
    }
    Ok(())
}

/// Jobs of one batch: of several types, some with a tag and a correlation id.
fn jobs(queue: &str, batch: usize, ending: Option<Ending>) -> Vec<NewJob> {
    let job = |number: usize| {
        let kind = number % 5;
        let payload =
            Payload::json(&serde_json::json!({ "number": batch * BATCH + number, "words": "a plain payload" }));
        // Those that shall be claimed have a queue of their own, so that nothing that waits is taken.
        let queue = if ending.is_some() { format!("{queue}.done") } else { queue.to_owned() };
        let tries = if ending == Some(Ending::Retries) { 5 } else { 1 };
        let job = NewJob::new(format!("{queue}.kind{kind}"), payload.unwrap_or_default()).queue(queue);
        let job = job.max_attempts(tries);
        if number.is_multiple_of(100) {
            job.tag("customer", (number / 100).to_string()).correlation_id(format!("order-{batch}"))
        } else {
            job
        }
    };
    (0..BATCH).map(job).collect()
}

/// Enqueues a batch, claims it and ends it.
async fn finish(session: &super::connect::Session, queue: &str, batch: usize, ending: Ending) -> anyhow::Result<()> {
    session.client.enqueue_all(jobs(queue, batch, Some(ending))).await?;
    let request = ClaimRequest::new(WorkerId::new("demo-fill")?, QueueName::new(format!("{queue}.done"))?, BATCH);
    let claimed = session.store().claim(&request).await?;
    let settlements: Vec<Settlement> = claimed
        .into_iter()
        .enumerate()
        .map(|(number, claimed)| match ending {
            Ending::Completes => claimed.lease.complete(None),
            Ending::Dies | Ending::Retries => {
                let fault = number % FAULTS;
                let failure = match fault % 2 {
                    0 if ending == Ending::Dies => {
                        Failure::permanent(format!("code_{fault}"), format!("row {number} is bad"))
                    }
                    _ => Failure::temporary(format!("part {} of import {number} cannot be read", letters(fault))),
                };
                claimed.lease.fail(failure.retry_after(LATER), &mut || 0.5)
            }
        })
        .collect();
    let settled = session.store().settle(&settlements).await?;
    anyhow::ensure!(settled.iter().all(|one| matches!(one, Settled::Applied(_))), "a settlement was refused");
    Ok(())
}

/// A number as letters, which a pattern does not replace.
fn letters(number: usize) -> String {
    let letter = |digit: usize| char::from(b'a' + u8::try_from(digit % 26).unwrap_or_default());
    [letter(number / 26), letter(number)].into_iter().collect()
}
