//! Enqueueing. What waits for nothing but perhaps a time is stored by one statement, and the calls of one process that
//! come while a statement is under way share the next. The rest goes the slow path.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::Inner;
use super::fault::{Fault, Tries};
use super::keyed::is_keyed;
use super::rows;
use crate::error::{Error, Result};
use crate::job::{JobId, JobSpec, RunAt, State};
use crate::store::answer::{Inserted, InsertedJob, Wake};
use crate::store::new_job_id;
use crate::time::Timestamp;
use crate::workflow::Submission;

/// Most jobs in one shared statement: enough for the best rate, short enough to keep the wait low.
const SHARED_MAX: usize = 1000;
/// Most payload bytes in one shared statement.
const SHARED_BYTES_MAX: usize = 8 << 20;

/// A call that waits for its statement.
pub(super) struct Call {
    submission: Submission,
    answer: oneshot::Sender<Option<Result<Inserted>>>,
}

/// Whether one statement can store it.
pub(super) fn is_plain(submission: &Submission) -> bool {
    is_flat(submission) && submission.jobs().iter().all(|spec| spec.options.idempotency.is_none())
}

/// Whether its jobs wait for no others and make up no workflow.
pub(super) fn is_flat(submission: &Submission) -> bool {
    submission.workflow_name().is_none() && submission.jobs().iter().all(|spec| spec.depends_on.is_empty())
}

fn bytes(submission: &Submission) -> usize {
    submission.jobs().iter().map(|spec| spec.payload.len()).sum()
}

fn attempted(count: usize) -> String {
    if count == 1 { "enqueue a job".to_owned() } else { format!("enqueue {count} jobs") }
}

/// Stores calls as they come, several at a time, until the store is dropped.
pub(super) async fn share(store: Arc<Inner>, mut calls: mpsc::UnboundedReceiver<Call>) {
    let mut waiting: Option<Call> = None;
    loop {
        let first = match waiting.take() {
            Some(call) => call,
            None => match calls.recv().await {
                Some(call) => call,
                None => return,
            },
        };
        let (mut jobs, mut size) = (first.submission.jobs().len(), bytes(&first.submission));
        let mut together = vec![first];
        while jobs < SHARED_MAX && size < SHARED_BYTES_MAX {
            let Ok(call) = calls.try_recv() else { break };
            jobs += call.submission.jobs().len();
            size += bytes(&call.submission);
            if jobs > SHARED_MAX || size > SHARED_BYTES_MAX {
                waiting = Some(call);
                break;
            }
            together.push(call);
        }
        store.store_together(together).await;
    }
}

impl Inner {
    pub(super) async fn insert(
        self: &Arc<Self>,
        calls: &mpsc::UnboundedSender<Call>,
        submission: Submission,
    ) -> Result<Inserted> {
        if is_keyed(&submission) {
            return self.insert_with_keys(&submission).await;
        }
        if !is_plain(&submission) {
            return self.insert_slowly(&submission).await;
        }
        let attempted = attempted(submission.jobs().len());
        let (answer, told) = oneshot::channel();
        let gone = || Error::StoreUnavailable {
            attempted: attempted.clone(),
            problem: "the store is shutting down".to_owned(),
            known: false,
            source: None,
        };
        calls.send(Call { submission: submission.clone(), answer }).map_err(|_| gone())?;
        match told.await.map_err(|_| gone())? {
            Some(answer) => answer,
            // The statement refused it; the slow path says why.
            None => self.insert_slowly(&submission).await,
        }
    }

    async fn insert_with_keys(self: &Arc<Self>, submission: &Submission) -> Result<Inserted> {
        let attempted = attempted(submission.jobs().len());
        let once = async || -> std::result::Result<_, Fault> {
            let mut link = self.link().await?;
            let names = submission.jobs().iter().map(|spec| (&spec.queue, &spec.job_type));
            self.lanes.ensure(&link, names).await?;
            // One job needs one statement; of several, one may lose its key while the others are stored.
            if submission.jobs().len() == 1 {
                return self.insert_keyed(&link, submission).await;
            }
            link.begin().await?;
            let answer = self.insert_keyed(&link, submission).await;
            match &answer {
                Ok(Some(_)) => link.commit().await?,
                Ok(None) | Err(_) => link.roll_back().await,
            }
            answer
        };
        let mut tries = Tries::default();
        let answer = loop {
            match once().await {
                Err(fault) if tries.again(&fault).await => {}
                answer => break answer,
            }
        };
        match answer.map_err(|fault| fault.into_error(&attempted))? {
            Some((inserted, hints)) => {
                self.hint(hints);
                Ok(inserted)
            }
            None => self.insert_slowly(submission).await,
        }
    }

    async fn insert_slowly(self: &Arc<Self>, submission: &Submission) -> Result<Inserted> {
        let attempted = attempted(submission.jobs().len());
        let answer: std::result::Result<Inserted, Fault> = super::in_unit!(self, unit, unit.insert(submission).await);
        answer.map_err(|fault| fault.into_error(&attempted))
    }

    async fn store_together(self: &Arc<Self>, calls: Vec<Call>) {
        let submissions: Vec<&Submission> = calls.iter().map(|call| &call.submission).collect();
        match self.insert_plain(&submissions).await {
            Ok(Some(answers)) => {
                for (call, answer) in calls.into_iter().zip(answers) {
                    // A caller that has gone away needs no answer.
                    let _ = call.answer.send(Some(Ok(answer)));
                }
            }
            Ok(None) if calls.len() == 1 => {
                for call in calls {
                    let _ = call.answer.send(None);
                }
            }
            // One of them cannot be stored: each is tried alone.
            Ok(None) => {
                for call in calls {
                    Box::pin(self.store_together(vec![call])).await;
                }
            }
            Err(fault) => tell_all(calls, fault),
        }
    }

    /// Stores submissions with one statement; `None` when one of them is refused.
    async fn insert_plain(&self, submissions: &[&Submission]) -> std::result::Result<Option<Vec<Inserted>>, Fault> {
        let mut tries = Tries::default();
        loop {
            match self.insert_plain_once(submissions).await {
                Err(fault) if tries.again(&fault).await => {}
                answer => return answer,
            }
        }
    }

    async fn insert_plain_once(
        &self,
        submissions: &[&Submission],
    ) -> std::result::Result<Option<Vec<Inserted>>, Fault> {
        let link = self.link().await?;
        let specs = || submissions.iter().flat_map(|submission| submission.jobs());
        self.lanes.ensure(&link, specs().map(|spec| (&spec.queue, &spec.job_type))).await?;
        let columns = Columns::of(specs(), self)?;
        let time = self.given_time();
        let rows = link.query(include_str!("sql/insert.sql"), &columns.with(&time)).await?;
        drop(link);
        let Some(now) = rows.first().map(|row| rows::time(row.get(0))) else { return Ok(None) };
        let mut hints: Vec<Wake> = Vec::new();
        let mut ids = columns.ids.into_iter();
        let mut answers = Vec::with_capacity(submissions.len());
        for submission in submissions {
            let jobs = submission.jobs().iter().map(|spec| {
                let id = JobId::from_uuid(ids.next().expect("an id was drawn for every job"));
                let state = resting_state(spec, now);
                if state == State::Scheduled && !hints.iter().any(|hint| *hint == Wake::Scheduled(spec.queue.clone())) {
                    hints.push(Wake::Scheduled(spec.queue.clone()));
                }
                InsertedJob { id, existing: false, state: Some(state), matches: true }
            });
            answers.push(Inserted { jobs: jobs.collect(), workflow: None });
        }
        self.hint(hints);
        Ok(Some(answers))
    }
}

pub(super) fn resting_state(spec: &JobSpec, now: Timestamp) -> State {
    match spec.first_run(now) {
        Ok(None) => State::Scheduled,
        Ok(Some(_)) | Err(_) => State::Delayed,
    }
}

/// Gives every caller its own copy of what went wrong.
fn tell_all(calls: Vec<Call>, fault: Fault) {
    let error = fault.into_error("enqueue jobs");
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
        let _ = call.answer.send(Some(Err(error)));
    }
}

/// Jobs as columns, one array for each parameter.
pub(super) struct Columns<'s> {
    pub(super) ids: Vec<Uuid>,
    lanes: Vec<i32>,
    priorities: Vec<i16>,
    delays: Vec<Option<i64>>,
    moments: Vec<Option<i64>>,
    lifetimes: Vec<Option<i64>>,
    visibilities: Vec<i64>,
    content_types: Vec<Option<&'s str>>,
    payloads: Vec<&'s [u8]>,
    options: Vec<String>,
    slow: Vec<bool>,
}

impl<'s> Columns<'s> {
    pub(super) fn of(specs: impl Iterator<Item = &'s JobSpec>, store: &Inner) -> std::result::Result<Self, Fault> {
        let mut columns = Columns {
            ids: Vec::new(),
            lanes: Vec::new(),
            priorities: Vec::new(),
            delays: Vec::new(),
            moments: Vec::new(),
            lifetimes: Vec::new(),
            visibilities: Vec::new(),
            content_types: Vec::new(),
            payloads: Vec::new(),
            options: Vec::new(),
            slow: Vec::new(),
        };
        for spec in specs {
            let lane = store.lanes.get(&spec.queue, &spec.job_type);
            let (delay, moment) = match spec.options.run_at {
                None => (None, None),
                Some(RunAt::In(delay)) => (Some(rows::micros(delay)), None),
                Some(RunAt::At(at)) => (None, Some(at.as_micros())),
            };
            columns.ids.push(new_job_id().as_uuid());
            columns.lanes.push(lane.ok_or_else(|| rows::corrupt("a lane that vanished"))?);
            columns.priorities.push(i16::from(spec.priority.number()));
            columns.delays.push(delay);
            columns.moments.push(moment);
            columns.lifetimes.push(spec.options.timeouts.lifetime.map(rows::micros));
            columns.visibilities.push(rows::micros(spec.options.timeouts.visibility));
            columns.content_types.push(spec.payload.stored_content_type());
            columns.payloads.push(spec.payload.as_bytes());
            columns.options.push(rows::json(&spec.options));
            columns.slow.push(spec.options.callback_url.is_some());
        }
        Ok(columns)
    }

    pub(super) fn with<'p>(&'p self, time: &'p Option<i64>) -> [super::link::Parameter<'p>; 12] {
        [
            time,
            &self.ids,
            &self.lanes,
            &self.priorities,
            &self.delays,
            &self.moments,
            &self.lifetimes,
            &self.visibilities,
            &self.content_types,
            &self.payloads,
            &self.options,
            &self.slow,
        ]
    }
}
