//! The jobs of a torture run: what each does, and the sequence in which a producer makes them.
//!
//! Everything here follows from the seed. What a job does is in its payload, so any worker can run it.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use windlass::job::{Jitter, WINDOW_DEFAULT};
use windlass::workflow::{Join, Workflow, chain, chord};
use windlass::{Category, Context, Failure, NewJob, Payload, Priority, RetryPolicy};

use super::history::{Event, Lease, Log, monotonic};

/// The types that workers have a handler for.
pub const TYPES: [&str; 2] = ["torture.even", "torture.odd"];
/// The queues that workers serve: two plain ones, and those of [`CONTROLLED`].
pub const QUEUES: [&str; 5] = ["torture-a", "torture-b", CONTROLLED[0], CONTROLLED[1], CONTROLLED[2]];
/// A queue of short jobs that come many at once: workers claim them ahead of the few slots they have for it (rule N1).
pub const QUEUE_SHORT: &str = "torture-short";
/// How many short jobs come at once.
const SHORT_JOBS: usize = 200;
/// The queues that are controlled where the store has flow control: with a limit of running jobs, with keys that have limits and rates, and
/// with keys in order.
pub const CONTROLLED: [&str; 3] = ["torture-limited", "torture-keyed", "torture-ordered"];
/// How many keys the jobs of controlled queues have.
pub const KEYS: usize = 12;
/// The backoff of jobs whose retries are checked against it.
pub const BACKOFF: Duration = Duration::from_millis(100);
/// How long a key that is made from the time stays the same: long enough for processes to meet on it.
const KEY_SLOT_MICROS: u64 = 50_000;

/// What a job does when it runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Takes this many milliseconds and succeeds.
    Work(u64),
    /// Fails with this category so often, then succeeds.
    Fail(Category, u32),
    /// Dead-letters itself.
    DeadLetter,
    /// Goes on until it is told to stop.
    Hang,
    /// Holds its thread for three leases, which must not cost it its own.
    Block,
    /// Panics so often.
    Panic(u32),
    /// Snoozes once, for this many milliseconds.
    Snooze(u64),
    /// Saves progress, a checkpoint and log lines.
    Save,
    /// Spawns this many children, the first of which spawns as many again if asked.
    Spawn(u32, bool),
    /// Kills its own process so often.
    Poison(u32),
}

/// What handlers share.
#[derive(Debug)]
pub struct App {
    /// Where runs are written down.
    pub log: Arc<Log>,
    /// How long a lease holds.
    pub lease: Duration,
    /// Whether poison really kills the process.
    pub poison: bool,
}

/// The handler of every torture job.
pub async fn perform(payload: Payload, cx: Context<App>) -> Result<u64, Failure> {
    let lease = Lease { job: cx.id(), version: cx.lease_version() };
    cx.state.log.write(Event::RunStarted(lease));
    let act: Act = payload.decode()?;
    let ended = act_out(&act, &cx).await;
    cx.state.log.write(Event::RunEnded { lease, success: ended.is_ok() });
    ended.map(|()| lease.version)
}

async fn act_out(act: &Act, cx: &Context<App>) -> Result<(), Failure> {
    let nth = cx.attempt();
    match act {
        Act::Work(0) => {}
        Act::Work(millis) => tokio::time::sleep(Duration::from_millis(*millis)).await,
        Act::Fail(category, times) if nth <= *times => {
            return Err(Failure::new(*category, Some("torture".to_owned()), "as asked"));
        }
        Act::DeadLetter => return Err(Failure::dead_letter("torture", "as asked")),
        Act::Hang => {
            cx.cancelled().await;
            return Err(Failure::temporary("was told to stop"));
        }
        Act::Block => std::thread::sleep(cx.state.lease * 3),
        // Without the message that a panic prints: a run has hundreds of them.
        Act::Panic(times) if nth <= *times => std::panic::resume_unwind(Box::new("as asked")),
        Act::Snooze(millis) if nth == 1 => return Err(Failure::snooze(Duration::from_millis(*millis))),
        Act::Save => {
            cx.save_checkpoint(&nth).await?;
            cx.progress(0.5, "half").await?;
            cx.log("half").await?;
        }
        Act::Spawn(count, deeper) => {
            for number in 0..*count {
                let act = if *deeper && number == 0 { Act::Spawn(*count, false) } else { Act::Work(1) };
                cx.spawn(job_of(&act, TYPES[0], QUEUES[0])?.retry(RetryPolicy::constant(BACKOFF, 4)))?;
            }
        }
        Act::Poison(times) if nth <= *times && cx.state.poison => {
            cx.state.log.write(Event::Fault { kind: "poison".to_owned(), target: None });
            std::process::abort();
        }
        Act::Fail(..) | Act::Panic(_) | Act::Snooze(_) | Act::Poison(_) => {}
    }
    Ok(())
}

fn job_of(act: &Act, job_type: &str, queue: &str) -> windlass::Result<NewJob> {
    Ok(NewJob::new(job_type, Payload::json(act)?).queue(queue))
}

/// One call of a producer.
#[derive(Debug)]
pub enum Call {
    /// A batch of jobs.
    Batch(Vec<NewJob>),
    /// The same batch, whose first job has an idempotency key, this many times at once.
    Race(Vec<NewJob>, usize),
    /// A workflow.
    Flow(Workflow),
}

/// The calls of a producer, one after the other; the same for the same seed and number.
#[derive(Debug)]
pub struct Calls {
    rng: Rng,
    producer: usize,
    made: u64,
}

impl Calls {
    /// The calls of producer number `producer` of a run.
    pub fn new(seed: u64, producer: usize) -> Self {
        let number = u64::try_from(producer).unwrap_or_default();
        let rng = Rng::with_seed(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Calls { rng, producer, made: 0 }
    }

    /// The next call.
    ///
    /// # Errors
    ///
    /// When a job cannot be written as JSON, which none of ours does.
    pub fn next_call(&mut self) -> windlass::Result<Call> {
        self.made += 1;
        Ok(match self.rng.u32(0..100) {
            0..10 => Call::Flow(self.flow()?),
            10..30 => {
                // By number all producers come to the same keys one after the other, by time at the same moment.
                let slot = monotonic() / KEY_SLOT_MICROS;
                let key = if self.rng.bool() { format!("call-{}", self.made / 4) } else { format!("slot-{slot}") };
                let mut jobs = vec![self.job()?.idempotency(key, windlass::job::Scope::Global, WINDOW_DEFAULT)];
                if self.rng.bool() {
                    jobs.push(self.job()?);
                }
                Call::Race(jobs, self.rng.usize(1..=3))
            }
            30..57 => Call::Batch(vec![self.job()?.correlation_id(self.batch())]),
            57..60 => {
                let batch = self.batch();
                let short = job_of(&Act::Work(1), TYPES[0], QUEUE_SHORT)?.retry(RetryPolicy::constant(BACKOFF, 4));
                Call::Batch(vec![short.correlation_id(batch); SHORT_JOBS])
            }
            _ => {
                let batch = self.batch();
                let count = self.rng.usize(2..=16);
                let jobs: windlass::Result<Vec<NewJob>> =
                    (0..count).map(|_| Ok(self.job()?.correlation_id(&batch))).collect();
                Call::Batch(jobs?)
            }
        })
    }

    fn batch(&self) -> String {
        format!("{}-{}", self.producer, self.made)
    }

    fn act(&mut self) -> Act {
        let rng = &mut self.rng;
        match rng.u32(0..1000) {
            0..400 => Act::Work(0),
            400..600 => Act::Work(rng.u64(1..30)),
            600..690 => Act::Fail(Category::Temporary, rng.u32(1..4)),
            690..730 => Act::Fail(Category::Permanent, 9),
            730..760 => Act::Fail(Category::System, 1),
            760..780 => Act::Fail(Category::Timeout, 1),
            780..800 => Act::Fail(Category::Cancelled, 9),
            800..820 => Act::DeadLetter,
            820..850 => Act::Hang,
            850..852 => Act::Block,
            852..890 => Act::Panic(rng.u32(1..3)),
            890..930 => Act::Snooze(rng.u64(50..400)),
            930..965 => Act::Save,
            965..997 => Act::Spawn(rng.u32(1..4), rng.bool()),
            _ => Act::Poison(rng.u32(1..3)),
        }
    }

    fn job(&mut self) -> windlass::Result<NewJob> {
        let act = self.act();
        let rng = &mut self.rng;
        let queue = match rng.u32(0..100) {
            0..15 => CONTROLLED[0],
            15..30 => CONTROLLED[1],
            30..36 => CONTROLLED[2],
            _ => QUEUES[rng.usize(0..2)],
        };
        let job_type = TYPES[rng.usize(0..2)];
        let mut job = job_of(&act, job_type, queue)?.priority(Priority::ALL[rng.usize(0..Priority::ALL.len())]);
        if CONTROLLED.contains(&queue) && rng.u32(0..10) > 0 {
            job = job.key(format!("key{}", rng.usize(0..KEYS)));
        }
        let attempts = rng.u32(2..6);
        let spread = RetryPolicy::standard().initial(BACKOFF / 2).max(BACKOFF * 5);
        job = match rng.u32(0..5) {
            0 => job.retry(spread.jitter(Jitter::Full).max_attempts(attempts)),
            _ => job.retry(RetryPolicy::constant(BACKOFF, attempts)),
        };
        if act == Act::Hang {
            job = job.execution_timeout(Duration::from_millis(150));
        }
        Ok(match rng.u32(0..100) {
            0..8 => job.delay(Duration::from_millis(rng.u64(200..2000))),
            8..10 => job.lifetime(Duration::from_millis(rng.u64(800..2500))),
            _ => job,
        })
    }

    fn flow(&mut self) -> windlass::Result<Workflow> {
        let batch = self.batch();
        let mut flow = Workflow::new(&batch);
        let shape = self.rng.u32(0..4);
        let count = self.rng.usize(2..6);
        let step = |calls: &mut Calls| Ok::<_, windlass::Error>(calls.job()?.correlation_id(&batch));
        match shape {
            0 => {
                let links: windlass::Result<Vec<_>> = (0..count).map(|_| step(self)).collect();
                flow.piece(chain(links?));
            }
            1 => {
                let members: windlass::Result<Vec<_>> = (0..count).map(|_| step(self)).collect();
                flow.piece(chord(members?, step(self)?));
            }
            2 => {
                let spawning = job_of(&Act::Spawn(3, true), TYPES[0], QUEUES[1])?;
                let parent = flow.add(spawning.retry(RetryPolicy::constant(BACKOFF, 5)).correlation_id(&batch));
                let join = if self.rng.bool() { Join::AllSuccess } else { Join::AllDone };
                flow.fan_in(parent, join, step(self)?);
            }
            _ => {
                let first = flow.add(step(self)?);
                let second = flow.add(step(self)?);
                flow.after_any([first, second], step(self)?);
                let all = flow.after_all([first, second], step(self)?);
                flow.after([all], step(self)?);
            }
        }
        Ok(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls without what is drawn from the time.
    fn sequence(seed: u64, producer: usize) -> Vec<String> {
        let mut calls = Calls::new(seed, producer);
        let next = |_| {
            let text = format!("{:?}", calls.next_call().expect("a call"));
            text.split("slot-").map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned()).collect()
        };
        (0..200).map(next).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_jobs() {
        assert_eq!(sequence(7, 0), sequence(7, 0));
        assert_ne!(sequence(7, 0), sequence(8, 0));
        assert_ne!(sequence(7, 0), sequence(7, 1));
    }
}
