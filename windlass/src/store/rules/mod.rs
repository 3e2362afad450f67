//! The rules over several jobs, told once for every store: what a settlement, an end, an operator's act, a lapsed lease
//! or a schedule does to jobs and to the jobs that depend on them.
//!
//! Nothing here reads or writes. A store fills a [`WorkingSet`] with what it has stored, a rule changes the set, and the
//! store writes down the [`Changes`] that come out, all in one transaction:
//!
//! 1. It makes a set for the moment: [`WorkingSet::new`].
//! 2. It calls a rule through [`Run::step`]. A rule that needs what the set does not hold answers [`Stop::Missing`] and
//!    has changed nothing; the store loads that and steps again.
//! 3. It writes what [`WorkingSet::finish`] gives.
//!
//! What a store must answer is in [`Missing`], what it must write in [`Changes`]. Only claiming, extending, saving and
//! reading are the store's own, and shortcuts for jobs without dependents, children or callbacks.

mod changes;
mod control;
mod damage;
mod depth;
mod edges;
mod ends;
mod insert;
mod operate;
mod owner;
mod priority;
mod requeue;
mod schedules;
mod set;
mod settle;
#[cfg(test)]
mod tests;

pub use changes::{Change, Changes, ClosedAttempt, EdgeChange, GateHold, KeptKey, LOOK_EVERY, ScheduleWrite, look_at};
pub use control::{controlled, touched};
pub use damage::{DAMAGED_CLAIMS_MAX, split_damaged};
pub use edges::{Edge, Edges};
pub use ends::{expire, outlive, tell_completed, tell_ends};
pub use insert::insert;
pub use operate::{absence, act_of, act_on, leap, paused, told};
pub use owner::Holding;
pub use schedules::{edit_schedule, fire};
pub use set::{Entry, KeyUse, Missing, WorkingSet};
pub use settle::{fence, settle};

use crate::error::Error;

/// Why a rule did not come to its end. It has changed nothing.
#[derive(Debug)]
pub enum Stop {
    /// The set lacks something: load it and step again.
    Missing(Missing),
    /// The rules refuse it.
    Refused(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Refused(error)
    }
}

/// One rule on its way through a set: the rule itself, and then what the ends that it brought about do to other jobs.
#[derive(Debug)]
pub struct Run<R, T> {
    rule: R,
    answer: Option<T>,
}

impl<T, R: FnMut(&mut WorkingSet) -> Result<T, Stop>> Run<R, T> {
    /// Nothing has happened yet.
    pub fn new(rule: R) -> Self {
        Run { rule, answer: None }
    }

    /// Goes on as far as what is loaded allows; call it again after loading what was missing.
    pub fn step(&mut self, set: &mut WorkingSet) -> Result<T, Stop> {
        let answer = match self.answer.take() {
            Some(answer) => answer,
            None => (self.rule)(set)?,
        };
        match tell_ends(set) {
            Ok(()) => Ok(answer),
            Err(stop) => {
                self.answer = Some(answer);
                Err(stop)
            }
        }
    }
}
