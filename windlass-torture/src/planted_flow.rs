//! A good store whose flow control goes wrong on purpose, each time in one way that keeping counts has gone wrong elsewhere.
//!
//! What a bug does to the counts inside a store is done here from outside: a limit, a rate or an owner is changed behind the back of
//! the run, so that the store lets through what it must not, or keeps back what it should let through.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use windlass::flow::{Change, Control, ControlEdit, ControlRecord, GateName, HOLD_MAX, Limit};
use windlass::job::Settlement;
use windlass::store::*;
use windlass::{JobId, QueueName, Result, State};

use super::jobs::CONTROLLED;

/// One way in which flow control goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowBug {
    /// What runs is counted before the queue is locked, so that two claims take the same slot.
    CountsBeforeLock,
    /// A lease that is taken back frees no slot.
    ExpiryWithoutNote,
    /// A settlement that comes too late frees a slot that another holds.
    NoteForStale,
    /// A control is read once and never again.
    ControlCached,
    /// A job that is given back gives its start back to the rate.
    TokensGivenBack,
    /// A job that is retried no longer owns its ordered key.
    OwnerForgotten,
    /// A key is called empty while a job of it has not been sorted.
    CalledEmpty,
    /// Counts are mended from the leases alone, without what ends are still to be counted.
    RecountForgets,
}

/// A good store with such a bug in it.
#[derive(Debug)]
pub struct LeakyGates {
    inner: Arc<dyn Store>,
    bug: FlowBug,
    /// By how much the limit of the first queue is wrong.
    wrong: AtomicI64,
    turns: AtomicUsize,
    told: AtomicBool,
    limit: Mutex<Option<u32>>,
    /// The queue and key of jobs that were claimed.
    keys: Mutex<HashMap<JobId, (QueueName, Option<String>)>>,
}

impl LeakyGates {
    /// Plants a bug.
    pub fn new(inner: Arc<dyn Store>, bug: FlowBug) -> Self {
        let (wrong, turns, told) = (AtomicI64::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        LeakyGates { inner, bug, wrong, turns, told, limit: Mutex::default(), keys: Mutex::default() }
    }

    fn every(&self, occasions: usize) -> bool {
        self.turns.fetch_add(1, Ordering::Relaxed) % occasions == occasions - 1
    }

    async fn change(&self, queue: &str, change: Change) {
        // Where it does not work the bug does not show, and the test says so.
        let _ = self.inner.control(&ControlEdit::new(QueueName::new(queue).expect("a name"), change), None).await;
    }

    /// Makes the first queue's count differ from what runs there: by this number, fewer or more.
    async fn miscount(&self, by: i64) {
        let wrong = (self.wrong.fetch_add(by, Ordering::Relaxed) + by).clamp(-6, 6);
        let limit = *self.limit.lock().expect("nothing panics while it holds this lock");
        let Some(limit) = limit else { return };
        let running = u32::try_from((i64::from(limit) + wrong).max(1)).unwrap_or(1);
        let control = Control::new().running(running);
        self.change(CONTROLLED[0], Change::Put { control, version: None, from_code: false }).await;
    }

    fn of(&self, job: JobId) -> Option<(QueueName, Option<String>)> {
        self.keys.lock().expect("nothing panics while it holds this lock").get(&job).cloned()
    }
}

#[async_trait]
impl Layer for LeakyGates {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn control(&self, edit: &ControlEdit, by: Option<&str>) -> Result<Option<ControlRecord>> {
        if let Change::Put { control, .. } = &edit.change
            && edit.queue.as_str() == CONTROLLED[0]
        {
            if self.bug == FlowBug::ControlCached && self.told.swap(true, Ordering::Relaxed) {
                return self.inner.controlled(&edit.queue).await;
            }
            *self.limit.lock().expect("nothing panics while it holds this lock") = control.running;
            let answer = self.inner.control(edit, by).await?;
            if self.wrong.load(Ordering::Relaxed) != 0 {
                self.miscount(0).await;
            }
            return Ok(answer);
        }
        self.inner.control(edit, by).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        let asks = request.queues.iter().any(|(queue, _)| queue.as_str() == CONTROLLED[0]);
        let twice = self.bug == FlowBug::CountsBeforeLock && asks && self.every(3);
        if twice {
            self.miscount(2).await;
        }
        let claims = self.inner.claim(request).await;
        if twice {
            self.miscount(-2).await;
        }
        let claims = claims?;
        let mut keys = self.keys.lock().expect("nothing panics while it holds this lock");
        for one in claims.iter() {
            keys.insert(one.job.id, (one.job.spec.queue.clone(), one.job.spec.options.key.clone()));
        }
        Ok(claims)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let answers = self.inner.settle(settlements).await?;
        for (settlement, answer) in settlements.iter().zip(&answers) {
            let Some((queue, Some(key))) = self.of(settlement.key().job) else { continue };
            match (self.bug, answer) {
                (FlowBug::NoteForStale, Settled::Stale(_)) if queue.as_str() == CONTROLLED[0] => self.miscount(1).await,
                (FlowBug::TokensGivenBack, Settled::Applied(_)) if queue.as_str() == CONTROLLED[1] => {
                    // A key without a rate of its own has none at all.
                    self.change(CONTROLLED[1], Change::PutKey { key, limit: Limit::running(2) }).await;
                }
                (FlowBug::OwnerForgotten, Settled::Applied(State::Retrying)) if queue.as_str() == CONTROLLED[2] => {
                    self.change(CONTROLLED[2], Change::Resume { key }).await;
                }
                (FlowBug::CalledEmpty, Settled::Applied(_)) if queue.as_str() == CONTROLLED[1] && self.every(20) => {
                    let hold = Change::Hold { gate: GateName::Key(key), time: Some(HOLD_MAX) };
                    self.change(CONTROLLED[1], hold).await;
                }
                _ => {}
            }
        }
        Ok(answers)
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        let report = self.inner.upkeep(request).await?;
        match self.bug {
            FlowBug::ExpiryWithoutNote if report.expired > 0 && self.wrong.load(Ordering::Relaxed) == 0 => {
                self.miscount(-1).await;
            }
            FlowBug::RecountForgets if self.every(5) => self.miscount(1).await,
            _ => {}
        }
        Ok(report)
    }

    async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>> {
        let mut record = self.inner.controlled(queue).await?;
        // What an operator said is what is shown.
        if let Some(record) = record.as_mut().filter(|_| queue.as_str() == CONTROLLED[0]) {
            record.control.running = *self.limit.lock().expect("nothing panics while it holds this lock");
        }
        Ok(record)
    }
}
