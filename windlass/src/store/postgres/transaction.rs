//! One transaction of the slow path: jobs are loaded with their locks, changed by the rules, and written back.
//!
//! Everything that concerns more than one job, or that is not worth a statement of its own, goes through here: ends with
//! dependents, children or callbacks, operators' acts, upkeep, schedules, submissions with dependencies. What happens is
//! decided by [`rules`](crate::store::rules); `working` loads what they ask for, `flush` writes what they changed.
//!
//! Such transactions take turns (one advisory lock for each schema), so they need to guard only against the statements of
//! the hot path. Those move rows out of `ready` and `leased`, never a row that is locked, and never a leased row marked
//! `slow`; they never touch `pending` and never take a row out of `done`. So a job is held by locking its row in `ready`
//! or `leased`, and a job in `pending` or `done` is held by the turn itself.

use std::collections::HashMap;
use std::sync::Arc;

use super::Inner;
use super::fault::Fault;
use super::job_rows;
use super::lanes::{self, Lane};
use super::link::Link;
use super::working::Working;
use crate::job::{JobType, QueueName};
use crate::store::answer::Wake;
use crate::store::rules::{Run, Stop, WorkingSet};
use crate::time::Timestamp;

pub(super) struct Transaction<'a> {
    pub(super) link: Link<'a>,
    pub(super) store: Arc<Inner>,
    pub(super) now: Timestamp,
    /// The moment that leases are compared with, once it was [looked up](Self::read_fence).
    pub(super) fence: Timestamp,
    /// Lanes made by this transaction, which no other may use before it commits.
    lanes: HashMap<(QueueName, JobType), Lane>,
    /// Hints to send after the commit.
    pub(super) hints: Vec<Wake>,
}

impl<'a> Transaction<'a> {
    /// Begins: waits for its turn, then reads the clock.
    pub(super) async fn begin(mut link: Link<'a>, store: Arc<Inner>) -> Result<Self, Fault> {
        link.begin().await?;
        let time = store.given_time();
        let rows = link.query(include_str!("sql/lock_slow_path.sql"), &[&time, &store.slow_path_lock]).await?;
        let now = job_rows::time(rows[0].get("now"));
        Ok(Transaction { link, store, now, fence: now, lanes: HashMap::new(), hints: Vec::new() })
    }

    /// Commits what succeeded and sends its hints, or undoes what failed.
    pub(super) async fn finish<T>(mut self, answer: Result<T, Fault>) -> Result<T, Fault> {
        match answer {
            Ok(answer) => {
                self.link.commit().await?;
                self.store.lanes.keep(std::mem::take(&mut self.lanes));
                self.store.hint(std::mem::take(&mut self.hints));
                Ok(answer)
            }
            Err(fault) => {
                self.link.roll_back().await;
                if !self.lanes.is_empty() {
                    self.store.lanes.forget();
                }
                Err(fault)
            }
        }
    }

    /// Undoes everything, and gives the connection back.
    pub(super) async fn abandon(mut self) -> Link<'a> {
        self.link.roll_back().await;
        self.link
    }

    /// Leaves the commit to the user whose transaction this is, with the hints that go with it. Lanes that it made are
    /// looked up again once they are needed.
    pub(super) fn hand_over(self) -> (Link<'a>, Vec<Wake>) {
        (self.link, self.hints)
    }

    /// Nothing is loaded yet.
    pub(super) fn working(&self) -> Working {
        let mut working = Working::new(self.now);
        working.set.hold_leases(self.fence);
        working
    }

    /// Runs a rule on what is loaded, and loads what it lacks. A refusal has changed nothing, so others may follow; what
    /// rules changed is written by [`flush`](Self::flush).
    pub(super) async fn run<T>(
        &mut self,
        working: &mut Working,
        rule: impl FnMut(&mut WorkingSet) -> Result<T, Stop> + Send,
    ) -> Result<T, Fault> {
        let mut run = Run::new(rule);
        loop {
            match run.step(&mut working.set) {
                Ok(answer) => return Ok(answer),
                Err(Stop::Missing(missing)) => self.load(working, missing).await?,
                Err(Stop::Refused(error)) => return Err(Fault::Refused(error)),
            }
        }
    }

    /// The number of a lane, which is made if there is none.
    pub(super) async fn lane(&mut self, queue: &QueueName, job_type: &JobType) -> Result<Lane, Fault> {
        if let Some(lane) = self.store.lanes.get(queue, job_type) {
            return Ok(lane);
        }
        let name = (queue.clone(), job_type.clone());
        if let Some(lane) = self.lanes.get(&name) {
            return Ok(*lane);
        }
        let lane = lanes::make(&self.link, queue, job_type).await?;
        self.lanes.insert(name, lane);
        Ok(lane)
    }
}
