//! The model test: random histories, run on a store and on a plain model of the contract, must not differ.
//!
//! A history is a list of calls: submissions with every kind of dependency, claims, heartbeats, settlements that come
//! in time, late, twice or under somebody else's lease, operators' acts, flow control that comes, changes and goes, upkeep in small steps, and time that jumps to
//! the very moment something falls due or to just before it. After each step every answer, every job, all numbers and
//! events are compared, the invariants are held against what the store shows, and at the end of each history the store
//! must be able to bring every job to an end.
//!
//! A failure is shrunk to a short history and printed with the seed that leads to it.
//!
//! ```
//! use std::sync::Arc;
//! use windlass::ManualClock;
//! use windlass::store::conformance::model::{self, ModelOptions};
//! use windlass::store::conformance::Subject;
//! use windlass::store::{MemoryStore, Store};
//!
//! #[derive(Debug)]
//! struct Mine;
//!
//! #[async_trait::async_trait]
//! impl Subject for Mine {
//!     fn name(&self) -> &'static str {
//!         "memory"
//!     }
//!
//!     async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
//!         Arc::new(MemoryStore::with_clock(clock))
//!     }
//! }
//!
//! let report = model::check(&Mine, ModelOptions::from_env(20)).unwrap_or_else(|failure| panic!("{failure}"));
//! assert_eq!(report.histories, 20);
//! ```

mod controls;
mod endings;
mod flow;
mod history;
mod invariants;
mod keys;
mod look;
mod observed;
mod operators;
mod reference;
mod translate;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tokio::runtime::Runtime;

use self::history::{ClaimDraft, Op, Pick, QUEUES, Say, Span};
use self::world::World;
use super::Subject;
use crate::clock::ManualClock;

/// How long histories are on average unless said otherwise.
const STEPS_DEFAULT: usize = 40;

/// How long a failure is shrunk: on a store that makes a schema for each history, every try costs most of a second.
const SHRINK_MILLISECONDS_MAX: u32 = 60_000;

/// The histories that are run when no seed is named.
const SEED_DEFAULT: u64 = 0x0077_696e_646c_6173;

/// How much to try, and from which seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelOptions {
    /// Where the random numbers start: the same seed gives the same histories.
    pub seed: u64,
    /// How many histories are run.
    pub histories: u32,
    /// How many steps a history has on average.
    pub steps: usize,
}

impl ModelOptions {
    /// This many histories of 40 steps, always the same ones: what passed yesterday passes today.
    ///
    /// `WINDLASS_MODEL_SEED` (a number, hexadecimal after `0x`, or `random` for new histories in each run),
    /// `WINDLASS_MODEL_HISTORIES` and `WINDLASS_MODEL_STEPS` in the environment go before.
    pub fn from_env(histories: u32) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            let number = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            Some(number.unwrap_or_else(|_| panic!("{name} must be a number, is {text:?}")))
        };
        let small = |name: &str| number(name).map(|value| u32::try_from(value).unwrap_or(u32::MAX));
        ModelOptions {
            seed: match std::env::var("WINDLASS_MODEL_SEED").as_deref() {
                Ok("random") => fastrand::u64(..),
                _ => number("WINDLASS_MODEL_SEED").unwrap_or(SEED_DEFAULT),
            },
            histories: small("WINDLASS_MODEL_HISTORIES").unwrap_or(histories),
            steps: small("WINDLASS_MODEL_STEPS").map_or(STEPS_DEFAULT, |steps| steps as usize),
        }
    }
}

/// What was run, so that a test can see that it was not nothing.
#[derive(Clone, Debug, Default)]
pub struct ModelReport {
    /// The store it was run on.
    pub subject: &'static str,
    /// Where the random numbers started.
    pub seed: u64,
    /// Histories run.
    pub histories: u32,
    /// Steps of all histories together.
    pub steps: u64,
    /// How often each operation was tried, each answer given and each thing happened: `op: claim`,
    /// `settle: already applied`, `lease expired`, …
    pub counts: BTreeMap<&'static str, u64>,
}

impl ModelReport {
    /// How often this was tried, answered or happened.
    pub fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }
}

impl fmt::Display for ModelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ModelReport { subject, seed, histories, steps, counts } = self;
        writeln!(f, "{subject}: {histories} histories, {steps} steps, seed {seed:#x}")?;
        counts.iter().try_for_each(|(what, count)| writeln!(f, "  {what}: {count}"))
    }
}

/// A history on which store and model differ, as short as it could be made.
#[derive(Clone, Debug)]
pub struct ModelFailure {
    /// The store it was run on.
    pub subject: &'static str,
    /// The seed that leads to it.
    pub seed: u64,
    /// How store and model differ.
    pub difference: String,
    /// The steps of the shortest history found, with what became of each.
    pub history: Vec<String>,
}

impl fmt::Display for ModelFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: store and model differ; again with WINDLASS_MODEL_SEED={:#x}", self.subject, self.seed)?;
        self.history.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        write!(f, "  {}", self.difference)
    }
}

impl std::error::Error for ModelFailure {}

/// Runs random histories on fresh stores of `subject` and on the model.
///
/// Makes a runtime of its own, in which the stores are made and used; so it must not be called from inside one.
pub fn check(subject: &dyn Subject, options: ModelOptions) -> Result<ModelReport, ModelFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    let config = Config {
        cases: options.histories,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: SHRINK_MILLISECONDS_MAX,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed_bytes(options.seed));
    let mut runner = TestRunner::new_with_rng(config, rng);
    let report = RefCell::new(ModelReport {
        subject: subject.name(),
        seed: options.seed,
        histories: options.histories,
        ..ModelReport::default()
    });
    let outcome = runner.run(&history::histories(options.steps), |ops| {
        let (world, said) = run(&runtime, subject, &ops, false);
        let mut report = report.borrow_mut();
        if let Some(world) = world {
            report.steps += world.steps as u64;
            for (what, count) in world.model.tally {
                *report.counts.entry(what).or_default() += count;
            }
        }
        said.map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => Ok(report.into_inner()),
        Err(TestError::Fail(reason, ops)) => Err(explain(&runtime, subject, options.seed, ops, reason.message())),
        Err(TestError::Abort(reason)) => panic!("the model test gave up: {reason}"),
    }
}

fn run(runtime: &Runtime, subject: &dyn Subject, ops: &[Op], traced: bool) -> (Option<World>, Result<(), String>) {
    runtime.block_on(async {
        let clock = ManualClock::default();
        let store = subject.fresh(clock.clone()).await;
        let mut world = match World::new(store, clock).await {
            Ok(world) => world,
            Err(said) => return (None, Err(said)),
        };
        world.trace = traced.then(Vec::new);
        let said = live(&mut world, ops).await;
        (Some(world), said)
    })
}

/// A history, and then the proof that nothing is stuck.
async fn live(world: &mut World, ops: &[Op]) -> Result<(), String> {
    for op in ops {
        world.step(op).await?;
    }
    let rounds = drain(world).await?;
    world.model.count("drained");
    if rounds > 1 {
        world.model.count("drained in several rounds");
    }
    world.compare_attempts().await
}

/// Resumes every queue, ends its control and works until every job has ended: no job may be stuck.
async fn drain(world: &mut World) -> Result<usize, String> {
    for queue in 0..QUEUES.len() as u8 {
        world.step(&Op::Pause { queue, paused: false }).await?;
        world.step(&Op::Control { queue, control: None }).await?;
    }
    let most = 20 + world.model.jobs.len() * 2;
    let mut millis = 10_000;
    for round in 0..most {
        world.step(&Op::Upkeep { limit: u8::MAX, kept: None }).await?;
        loop {
            let queues = (0..QUEUES.len() as u8).map(|queue| (queue, u8::MAX)).collect();
            let claim = ClaimDraft { queues, types: None, limit: u8::MAX, seconds: Some(1), worker: 0 };
            let before = world.model.granted;
            world.step(&Op::Claim(claim)).await?;
            let taken = world.model.granted - before;
            if taken == 0 {
                break;
            }
            let complete = || Say::Complete { result: None, children: Vec::new() };
            let said = (0..taken.min(255) as u8).map(|nth| (Pick::Live(nth), complete()));
            world.step(&Op::Settle(said.collect())).await?;
        }
        if world.last.iter().all(|job| job.state.is_terminal()) {
            return Ok(round);
        }
        world.step(&Op::Advance(Span::Millis(millis))).await?;
        millis = (millis * 4).min(24 * 3600 * 1000);
    }
    Err(format!("after {most} rounds of upkeep and work some jobs have not ended: {:?}", world.last))
}

/// Runs a failing history once more, and writes down what happens.
fn explain(runtime: &Runtime, subject: &dyn Subject, seed: u64, mut ops: Vec<Op>, reason: &str) -> ModelFailure {
    let attempt = |ops: &[Op], traced| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(runtime, subject, ops, traced)))
    };
    // Steps that mattered only to what has been shrunk away by now are still there.
    for place in (0..ops.len()).rev() {
        let mut shorter = ops.clone();
        shorter.remove(place);
        if !matches!(attempt(&shorter, false), Ok((_, Ok(())))) {
            ops = shorter;
        }
    }
    let (history, difference) = match attempt(&ops, true) {
        Ok((Some(World { trace: Some(trace), .. }), Err(said))) => (trace, said),
        // A store that panics leaves no trace but its own words.
        _ => (ops.iter().map(|op| format!("  {op:?}")).collect(), reason.to_owned()),
    };
    ModelFailure { subject: subject.name(), seed, difference, history }
}

/// Spreads a seed over the 32 bytes that the generator takes.
fn seed_bytes(seed: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}
