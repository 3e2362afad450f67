//! The jobs of the demonstration: what they are, how long they take, and which of them fail.
//!
//! Everything about a job follows from the seed and its number, so the same seed tells the same story.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass::{Context, Failure, NewJob, Payload, Priority, Result, Worker};

/// The queues, and how many jobs of each run at once in one process.
pub(super) const QUEUES: [(&str, usize); 3] = [("mail", 8), ("media", 6), ("billing", 6)];

/// The six types: name, queue, share of the stream in percent, share that fails in percent.
const TYPES: [(&str, &str, u64, u64); 4] =
    [(EMAIL, "mail", 50, 6), (IMAGE, "media", 28, 9), (INVOICE, "billing", 21, 12), (VIDEO, "media", 1, 0)];

pub(super) const EMAIL: &str = "email.send";
const IMAGE: &str = "image.resize";
const INVOICE: &str = "invoice.charge";
const VIDEO: &str = "video.transcode";
pub(super) const PAGE: &str = "report.page";
pub(super) const PUBLISH: &str = "report.publish";

/// What every job of the demonstration carries.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Number {
    number: u64,
}

/// Where all chance of the demonstration comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed(pub(super) u64);

impl Seed {
    /// A number from 0 up to `below`, for the `number`-th job and one question about it.
    fn draw(self, number: u64, question: u64, below: u64) -> u64 {
        // SplitMix64: a few lines, and good enough to look random.
        let mut mixed =
            self.0 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ question.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    /// The type of the `number`-th job of the stream.
    fn kind(self, number: u64) -> (&'static str, &'static str) {
        let mut drawn = self.draw(number, 1, 100);
        for (name, queue, share, _) in TYPES {
            if drawn < share {
                return (name, queue);
            }
            drawn -= share;
        }
        (EMAIL, "mail")
    }

    /// Whether the `number`-th job is one that fails.
    pub(super) fn fails(self, job_type: &str, number: u64) -> bool {
        let share = TYPES.iter().find(|(name, ..)| *name == job_type).map_or(0, |(.., share)| *share);
        self.draw(number, 2, 100) < share
    }

    /// The `number`-th job of the stream.
    pub(super) fn job(self, number: u64) -> Result<NewJob> {
        let (job_type, queue) = self.kind(number);
        let job = job(job_type, queue, number)?;
        let urgent = self.draw(number, 3, 100);
        let job = if urgent < 5 { job.priority(Priority::High) } else { job };
        // One that takes longer than this is one that should fail.
        Ok(if job_type == IMAGE { job.execution_timeout(Duration::from_secs(1)) } else { job })
    }

    fn millis(self, number: u64, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.draw(number, 4, to - from))
    }
}

/// A job of the demonstration.
pub(super) fn job(job_type: &str, queue: &str, number: u64) -> Result<NewJob> {
    Ok(NewJob::new(job_type, Payload::json(&Number { number })?).queue(queue).tag("demo", "true"))
}

/// Adds the handlers of all six types.
pub(super) fn handlers(worker: Worker<Seed>) -> Worker<Seed> {
    worker
        .handle_raw(EMAIL, email)
        .handle_raw(IMAGE, image)
        .handle_raw(INVOICE, invoice)
        .handle_raw(VIDEO, video)
        .handle_raw(PAGE, page)
        .handle_raw(PUBLISH, publish)
}

fn number(payload: &Payload) -> u64 {
    // Jobs that people enqueue by hand carry what they like.
    payload.decode::<Number>().map_or(0, |number| number.number)
}

/// Some addresses do not exist: PERMANENT.
async fn email(payload: Payload, cx: Context<Seed>) -> std::result::Result<Value, Failure> {
    let number = number(&payload);
    tokio::time::sleep(cx.state.millis(number, 20, 80)).await;
    if cx.state.fails(EMAIL, number) {
        return Err(Failure::permanent("no_such_mailbox", format!("550 user{number}@example.com does not exist")));
    }
    Ok(json!({ "message_id": format!("<{number}@demo.example>") }))
}

/// Some images take too long the first time: TIMEOUT.
async fn image(payload: Payload, cx: Context<Seed>) -> std::result::Result<Value, Failure> {
    let number = number(&payload);
    if cx.state.fails(IMAGE, number) && cx.attempt() == 1 {
        cx.cancelled().await;
        return Err(Failure::temporary("interrupted"));
    }
    tokio::time::sleep(cx.state.millis(number, 40, 200)).await;
    Ok(json!({ "width": 640, "height": 480 }))
}

/// The bank is away now and then: TEMPORARY, and now and then for good.
async fn invoice(payload: Payload, cx: Context<Seed>) -> std::result::Result<Value, Failure> {
    let number = number(&payload);
    tokio::time::sleep(cx.state.millis(number, 30, 150)).await;
    let hopeless = cx.state.draw(number, 5, 10) == 0;
    if cx.state.fails(INVOICE, number) && (cx.attempt() == 1 || hopeless) {
        return Err(Failure::temporary("the bank does not answer").with_code("bank_unavailable"));
    }
    Ok(json!({ "charged": number % 500 }))
}

/// Slow, with progress; a next attempt goes on where the last one was.
async fn video(payload: Payload, cx: Context<Seed>) -> std::result::Result<Value, Failure> {
    let number = number(&payload);
    let step = cx.state.millis(number, 300, 700);
    for percent in (cx.checkpoint::<u32>()?.unwrap_or(0)..100).step_by(5) {
        cx.progress(f64::from(percent) / 100.0, format!("frame {} of 2000", percent * 20)).await?;
        cx.save_checkpoint(&percent).await?;
        tokio::select! {
            () = tokio::time::sleep(step) => {}
            () = cx.cancelled() => return Err(Failure::temporary("interrupted")),
        }
    }
    cx.progress(1.0, "done").await?;
    Ok(json!({ "frames": 2000 }))
}

async fn page(payload: Payload, cx: Context<Seed>) -> std::result::Result<Value, Failure> {
    let number = number(&payload);
    tokio::time::sleep(cx.state.millis(number, 200, 1500)).await;
    Ok(json!({ "rows": cx.state.draw(number, 6, 1000) }))
}

/// The finaliser: adds up what the pages found.
async fn publish(_: Payload, cx: Context<Seed>) -> std::result::Result<Value, Failure> {
    let pages: Vec<Value> = cx.results().await?;
    let rows: u64 = pages.iter().filter_map(|page| page["rows"].as_u64()).sum();
    Ok(json!({ "pages": pages.len(), "rows": rows }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_tells_the_same_story() {
        let story = |seed| (0..1000).map(|number| Seed(seed).kind(number)).collect::<Vec<_>>();
        assert_eq!(story(7), story(7));
        assert_ne!(story(7), story(8));
    }

    #[test]
    fn about_eight_in_a_hundred_fail_in_three_ways() {
        let seed = Seed(1);
        let (mut failing, mut types) = (0, std::collections::BTreeSet::new());
        for number in 0..20_000 {
            let (job_type, _) = seed.kind(number);
            if seed.fails(job_type, number) {
                failing += 1;
                types.insert(job_type);
            }
        }
        assert!((1400..=1800).contains(&failing), "{failing} of 20000");
        assert_eq!(types.len(), 3, "one type for each of PERMANENT, TIMEOUT, TEMPORARY");
    }
}
