//! What users put around every handler, and what they want to hear of (rule N4).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use async_trait::async_trait;

use super::attempt::Attempt;
use super::handler::{Call, HandlerResult, Run, Unpanicked};
use crate::job::{JobRecord, Outcome, State};

/// Wraps every handler of a worker; the first one added is the outermost.
///
/// It sees the job and the context through the attempt, and the outcome in what `next` gives: a panic of the handler
/// comes as a failure. What it returns instead is what counts.
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Runs what is inside, before, after or in place of which it does its own.
    async fn run(&self, attempt: &Attempt, next: Next<'_>) -> HandlerResult;
}

/// What is inside a middleware: the next one, or the handler.
pub struct Next<'a> {
    rest: &'a [Arc<dyn Middleware>],
    attempt: &'a Arc<Attempt>,
    call: &'a Call,
}

impl<'a> Next<'a> {
    pub(super) fn new(rest: &'a [Arc<dyn Middleware>], attempt: &'a Arc<Attempt>, call: &'a Call) -> Self {
        Next { rest, attempt, call }
    }

    /// Runs it.
    pub async fn run(self) -> HandlerResult {
        self.start().await
    }

    pub(super) fn start(self) -> Run<'a> {
        let Next { rest, attempt, call } = self;
        match rest.split_first() {
            None => Box::pin(Unpanicked(call(Arc::clone(attempt)))),
            Some((first, rest)) => Box::pin(async move { first.run(attempt, Next { rest, attempt, call }).await }),
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Next({} more)", self.rest.len())
    }
}

/// Told of each claimed job.
pub(super) type ClaimedHook = dyn Fn(&JobRecord) + Send + Sync;
/// Told of each settled attempt.
pub(super) type SettledHook = dyn Fn(&Attempt, Outcome, State) + Send + Sync;

/// What users want to hear of.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) claimed: Vec<Arc<ClaimedHook>>,
    pub(super) settled: Vec<Arc<SettledHook>>,
}

impl Hooks {
    pub(super) fn tell_claimed(&self, job: &JobRecord) {
        for hook in &self.claimed {
            unpanicked("claimed", || hook(job));
        }
    }

    pub(super) fn tell_settled(&self, attempt: &Attempt, outcome: Outcome, state: State) {
        for hook in &self.settled {
            unpanicked("settled", || hook(attempt, outcome, state));
        }
    }
}

/// A hook that panics must not stop the pipeline that called it.
fn unpanicked(name: &str, hook: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(hook)).is_err() {
        tracing::error!("a {name} hook panicked");
    }
}
