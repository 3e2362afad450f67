//! The contract as a suite that any store can be held to.
//!
//! Implement [`Subject`] for your store (make a fresh, empty one on a [`ManualClock`]) and call [`run`], or make each
//! of [`cases`] a test of its own. A case is named after the rule it holds: `l3_expired_lease_cannot_settle`.
//! Cases make their own time and never sleep.
//!
//! ```
//! use std::sync::Arc;
//! use windlass::ManualClock;
//! use windlass::store::conformance::{self, Subject};
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
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let report = conformance::run(&Mine, "l3").await;
//! assert!(report.failed.is_empty(), "{report}");
//! # });
//! ```

/// Makes a chapter's list of cases out of its functions `async fn name(bench: Bench)`.
macro_rules! chapter {
    ($($name:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] =
            &[$(super::Case { name: stringify!($name), run: |bench| Box::pin($name(bench)) }),*];
    };
}

mod absences;
pub mod bench;
mod callbacks;
mod control;
mod delivery;
mod dependencies;
mod ends;
mod errors;
mod explaining;
mod failure;
mod faults;
mod fencing;
mod hostile;
mod idempotency;
mod job;
mod keys;
mod lease;
pub mod model;
mod moves;
mod observing;
mod operators;
mod order;
mod queues;
mod reading;
mod retention;
mod retry;
pub mod rules;
mod schedules;
mod stage;
mod states;
mod timeouts;
mod unique;
mod workflows;

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

pub use bench::Bench;

use super::Store;
use crate::clock::ManualClock;

/// A kind of store that the suite can be run on.
#[async_trait]
pub trait Subject: Send + Sync + fmt::Debug {
    /// Its name, which stands before each case: `memory`, `sqlite`.
    fn name(&self) -> &'static str;

    /// A new, empty store whose time is this clock's.
    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store>;

    /// Whether its stores have flow control. Those that have none refuse it, and the cases of the rules K are left out.
    fn has_control(&self) -> bool {
        true
    }

    /// Whether its stores look for text in payloads. Those that hold ciphertext cannot.
    fn reads_payloads(&self) -> bool {
        true
    }

    /// Whether its stores send wakes within ten seconds. Without them the cases about wakes hold nothing.
    fn sends_wakes(&self) -> bool {
        true
    }
}

type CaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One behaviour that every store must show. It panics when the store does not.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, beginning with the rule: `l3_expired_lease_cannot_settle`.
    pub name: &'static str,
    run: fn(Bench) -> CaseFuture,
}

impl Case {
    /// The rule of the contract that the case holds: `L3`.
    pub fn rule(&self) -> String {
        let rule = self.name.split('_').next().unwrap_or(self.name);
        let (letter, number) = rule.split_at(1);
        letter.to_ascii_uppercase() + number
    }

    /// Whether it holds something that `subject` says it has not.
    pub fn is_left_out(&self, subject: &dyn Subject) -> bool {
        (self.rule().starts_with('K') && !subject.has_control())
            || (self.name.starts_with("o1_text_is_found_") && !subject.reads_payloads())
    }

    /// Runs the case on a fresh store of `subject`.
    pub async fn run(&self, subject: &dyn Subject) {
        let clock = ManualClock::default();
        let store = subject.fresh(clock.clone()).await;
        let bench = Bench { wakes: subject.sends_wakes(), ..Bench::new(store, clock) };
        (self.run)(bench).await;
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Every case, in the order of the contract.
pub fn cases() -> Vec<Case> {
    let chapters: &[&[Case]] = &[
        delivery::CASES,
        order::CASES,
        job::CASES,
        hostile::CASES,
        states::CASES,
        ends::CASES,
        lease::CASES,
        fencing::CASES,
        failure::CASES,
        retry::CASES,
        absences::CASES,
        timeouts::CASES,
        idempotency::CASES,
        unique::CASES,
        dependencies::CASES,
        workflows::CASES,
        schedules::CASES,
        reading::CASES,
        faults::CASES,
        observing::CASES,
        operators::CASES,
        queues::CASES,
        retention::CASES,
        explaining::CASES,
        callbacks::CASES,
        errors::CASES,
        control::CASES,
        keys::CASES,
    ];
    chapters.concat()
}

/// What a run of the suite found.
#[derive(Debug)]
pub struct Report {
    /// The store it was run on.
    pub subject: &'static str,
    /// The names of the cases that passed.
    pub passed: Vec<&'static str>,
    /// The names of the cases that did not, with what they said.
    pub failed: Vec<(&'static str, String)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} passed, {} failed", self.subject, self.passed.len(), self.failed.len())?;
        for (name, said) in &self.failed {
            writeln!(f, "  {name}: {said}")?;
        }
        Ok(())
    }
}

/// Runs every case whose name contains `filter`, one after the other.
pub async fn run(subject: &dyn Subject, filter: &str) -> Report {
    let mut report = Report { subject: subject.name(), passed: Vec::new(), failed: Vec::new() };
    for case in cases().into_iter().filter(|case| case.name.contains(filter) && !case.is_left_out(subject)) {
        match catch(case.run(subject)).await {
            Ok(()) => report.passed.push(case.name),
            Err(said) => report.failed.push((case.name, said)),
        }
    }
    report
}

/// Polls a future to its end and turns a panic into its words.
async fn catch(future: impl Future<Output = ()>) -> Result<(), String> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(move |cx| {
        let poll = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match poll {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(words(panic.as_ref()))),
        }
    })
    .await
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panicked".to_owned())
}
