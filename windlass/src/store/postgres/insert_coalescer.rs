//! Enqueueing together: the calls of one process that come while a statement is under way share the next.
//!
//! A call that comes alone writes its own statement and waits for none. Callers that shared a statement will come together
//! again, so after a shared statement all are gathered by one task. It begins another statement beside those under way only when
//! enough jobs wait to make it worthwhile: a few callers are served best by one statement at a time, hundreds by several.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc, oneshot};

use super::Inner;
use super::fault::retrying;
use super::insert::attempted;
use crate::error::{Error, Result};
use crate::store::answer::Inserted;
use crate::workflow::Submission;

/// Most jobs in one shared statement: enough for the best rate, short enough to keep the wait low.
const SHARED_MAX: usize = 1000;
/// Most payload bytes in one shared statement.
const SHARED_BYTES_MAX: usize = 8 << 20;
/// Most shared statements under way.
const UNDER_WAY_MAX: usize = 4;
/// How many jobs must wait for a second statement beside the first; for each further one, four times as many.
const BESIDE_MIN: usize = 64;
/// How often the callers of a shared statement are let go first, before the next is put together.
const YIELDS: usize = 3;

/// A submission that was stored, or that the statement refused.
pub(super) type Stored = std::result::Result<Inserted, Submission>;

/// A call that waits for its statement.
struct Call {
    submission: Submission,
    answer: oneshot::Sender<Result<Stored>>,
}

/// How many statements are under way, and whether a caller waited for the last one.
#[derive(Default)]
struct RunningStatements {
    under_way: AtomicUsize,
    had_company: AtomicBool,
    /// Whether a caller waits for one to end.
    wanted: AtomicBool,
    ended: Notify,
}

/// A statement under way; it ends when this is dropped.
pub(super) struct RunningStatement(Arc<RunningStatements>);

impl RunningStatement {
    /// Starts a statement if exactly `others` are running.
    fn start_beside(traffic: &Arc<RunningStatements>, others: usize) -> Option<RunningStatement> {
        let taken = traffic.under_way.compare_exchange(others, others + 1, Ordering::SeqCst, Ordering::SeqCst);
        taken.is_ok().then(|| RunningStatement(Arc::clone(traffic)))
    }
}

impl Drop for RunningStatement {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        if self.0.wanted.swap(false, Ordering::SeqCst) {
            self.0.had_company.store(true, Ordering::Relaxed);
            self.0.ended.notify_one();
        }
    }
}

/// Lets the calls of a store share statements.
pub(super) struct InsertCoalescer {
    calls: mpsc::UnboundedSender<Call>,
    traffic: Arc<RunningStatements>,
}

impl InsertCoalescer {
    pub(super) fn start(store: Arc<Inner>) -> Self {
        let (calls, waiting) = mpsc::unbounded_channel();
        let traffic = Arc::new(RunningStatements::default());
        tokio::spawn(gather(store, waiting, Arc::clone(&traffic)));
        InsertCoalescer { calls, traffic }
    }

    /// Lets a caller write its own statement, if no other is running.
    pub(super) fn try_direct(&self) -> Option<RunningStatement> {
        if self.traffic.had_company.load(Ordering::Relaxed) {
            return None;
        }
        RunningStatement::start_beside(&self.traffic, 0)
    }

    /// Stores a submission, in one statement with those of other callers.
    pub(super) async fn insert(&self, submission: Submission) -> Result<Stored> {
        let attempted = attempted(submission.jobs().len());
        let gone = || Error::StoreUnavailable {
            attempted: attempted.clone(),
            problem: "the store is shutting down".to_owned(),
            known: false,
            source: None,
        };
        let (answer, told) = oneshot::channel();
        self.calls.send(Call { submission, answer }).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

/// The calls that no statement has taken yet.
#[derive(Default)]
struct Waiting {
    calls: VecDeque<Call>,
    jobs: usize,
}

impl Waiting {
    fn push(&mut self, call: Call) {
        self.jobs += call.submission.jobs().len();
        self.calls.push_back(call);
    }

    /// Takes in what has come.
    fn take_in(&mut self, calls: &mut mpsc::UnboundedReceiver<Call>) {
        while let Ok(call) = calls.try_recv() {
            self.push(call);
        }
    }

    /// As many as one statement takes, at least one.
    fn take(&mut self) -> Vec<Call> {
        let (mut together, mut jobs, mut size) = (Vec::new(), 0, 0);
        while let Some(call) = self.calls.front() {
            let (more, bytes) = (call.submission.jobs().len(), bytes(&call.submission));
            if !together.is_empty() && (jobs + more > SHARED_MAX || size + bytes > SHARED_BYTES_MAX) {
                break;
            }
            (jobs, size) = (jobs + more, size + bytes);
            together.extend(self.calls.pop_front());
        }
        self.jobs -= jobs;
        together
    }

    /// Whether enough jobs wait to start a statement beside those `under_way`.
    fn suffice(&self, under_way: usize) -> bool {
        match under_way {
            0 => !self.calls.is_empty(),
            others if others < UNDER_WAY_MAX => self.jobs >= BESIDE_MIN << (2 * (others - 1)),
            _ => false,
        }
    }
}

fn bytes(submission: &Submission) -> usize {
    submission.jobs().iter().map(|spec| spec.payload.len()).sum()
}

/// Stores calls as they come, several at a time, until the store is dropped.
async fn gather(store: Arc<Inner>, mut calls: mpsc::UnboundedReceiver<Call>, traffic: Arc<RunningStatements>) {
    let mut waiting = Waiting::default();
    let mut open = true;
    loop {
        waiting.take_in(&mut calls);
        if waiting.suffice(traffic.under_way.load(Ordering::SeqCst)) {
            if traffic.had_company.load(Ordering::Relaxed) {
                // Callers that were answered together come back with their next job at once.
                for _ in 0..YIELDS {
                    tokio::task::yield_now().await;
                }
                waiting.take_in(&mut calls);
            }
            let under_way = traffic.under_way.load(Ordering::SeqCst);
            if let Some(turn) =
                waiting.suffice(under_way).then(|| RunningStatement::start_beside(&traffic, under_way)).flatten()
            {
                let together = waiting.take();
                traffic.had_company.store(together.len() > 1, Ordering::Relaxed);
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let _turn = turn;
                    store.store_together(together).await;
                });
            }
            continue;
        }
        if !waiting.calls.is_empty() {
            traffic.wanted.store(true, Ordering::SeqCst);
            // A statement that ended just now has not told this task.
            if waiting.suffice(traffic.under_way.load(Ordering::SeqCst)) {
                continue;
            }
        }
        tokio::select! {
            call = calls.recv(), if open => match call {
                Some(call) => waiting.push(call),
                None => open = false,
            },
            () = traffic.ended.notified(), if !waiting.calls.is_empty() => {}
            else => return,
        }
    }
}

impl Inner {
    async fn store_together(self: &Arc<Self>, calls: Vec<Call>) {
        let submissions: Vec<&Submission> = calls.iter().map(|call| &call.submission).collect();
        match retrying("enqueue jobs", || self.insert_plain(&submissions)).await {
            Ok(Some(answers)) => {
                for (call, answer) in calls.into_iter().zip(answers) {
                    // A caller that has gone away needs no answer.
                    let _ = call.answer.send(Ok(Ok(answer)));
                }
            }
            Ok(None) if calls.len() == 1 => {
                for call in calls {
                    let _ = call.answer.send(Ok(Err(call.submission)));
                }
            }
            // One of them cannot be stored: each is tried alone.
            Ok(None) => {
                for call in calls {
                    Box::pin(self.store_together(vec![call])).await;
                }
            }
            Err(error) => tell_all(calls, error),
        }
    }
}

/// Gives every caller its own copy of what went wrong.
fn tell_all(calls: Vec<Call>, error: Error) {
    let (problem, known) = match &error {
        Error::StoreUnavailable { problem, known, .. } => (problem.clone(), *known),
        other => (other.to_string(), other.outcome_is_known()),
    };
    let transient = error.is_transient();
    let mut source: Option<Box<dyn std::error::Error + Send + Sync>> = Some(Box::new(error));
    for call in calls {
        let attempted = attempted(call.submission.jobs().len());
        let error = match (transient, source.take()) {
            (true, source) => Error::StoreUnavailable { attempted, problem: problem.clone(), known, source },
            (false, Some(source)) => Error::Store { attempted, source },
            (false, None) => Error::store(attempted, problem.clone()),
        };
        let _ = call.answer.send(Err(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobSpec, Limits, NewJob, Payload, Policies};

    fn waiting(calls: usize, jobs: usize, bytes: usize) -> Waiting {
        let mut waiting = Waiting::default();
        for _ in 0..calls {
            let job = NewJob::new("test", Payload::from_stored(None, vec![7; bytes]));
            let spec: JobSpec = job.check(&Limits::default(), &Policies::default()).expect("a valid job");
            let submission = Submission::new(vec![spec; jobs]).expect("a valid batch");
            waiting.push(Call { submission, answer: oneshot::channel().0 });
        }
        waiting
    }

    #[test]
    fn another_statement_begins_only_when_enough_jobs_wait() {
        assert!(!waiting(0, 0, 0).suffice(0));
        assert!(waiting(1, 1, 1).suffice(0), "a lone job waits for nobody");
        assert!(!waiting(63, 1, 1).suffice(1));
        assert!(waiting(64, 1, 1).suffice(1));
        assert!(waiting(1, 100, 1).suffice(1), "jobs count, not calls");
        assert!(!waiting(64, 1, 1).suffice(2));
        assert!(waiting(256, 1, 1).suffice(2));
        assert!(!waiting(3000, 1, 1).suffice(UNDER_WAY_MAX));
    }

    #[test]
    fn a_statement_takes_no_more_than_it_may_and_at_least_one_call() {
        let mut many = waiting(3, 400, 1);
        assert_eq!(many.take().len(), 2);
        assert_eq!((many.take().len(), many.jobs), (1, 0));
        let mut large = waiting(20, 1, 1 << 20);
        assert_eq!((large.take().len(), large.jobs), (8, 12));
        assert_eq!(waiting(2, 5000, 1).take().len(), 1);
    }

    #[test]
    fn a_caller_goes_ahead_alone_until_somebody_waits_for_it() {
        let traffic = Arc::new(RunningStatements::default());
        let turn = RunningStatement::start_beside(&traffic, 0).expect("nobody is there");
        assert!(RunningStatement::start_beside(&traffic, 0).is_none());
        drop(turn);
        assert!(!traffic.had_company.load(Ordering::Relaxed));
        let turn = RunningStatement::start_beside(&traffic, 0).expect("nobody is there");
        traffic.wanted.store(true, Ordering::SeqCst);
        drop(turn);
        assert!(traffic.had_company.load(Ordering::Relaxed), "a caller that waited is gathered with the next");
    }
}
