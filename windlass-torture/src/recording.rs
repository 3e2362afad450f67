//! A store that writes down what is asked of it and what it answers, and otherwise is the one inside.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use windlass::job::{JobSpec, LeaseKey, Settlement, Stale};
use windlass::store::*;
use windlass::workflow::Submission;
use windlass::{Error, Result, Timestamp};

use super::history::{Answer, Asked, Event, Grant, Lease, Log, Sent};

/// How long the store's time is waited for: a call that is late for its sake would be a fault of ours.
const TIME_PATIENCE: Duration = Duration::from_millis(100);

/// A store whose calls are written down.
#[derive(Debug)]
pub struct Recording {
    inner: Arc<dyn Store>,
    log: Arc<Log>,
    /// The versions of the leases that were claimed here: calls name only tokens.
    leases: Arc<Mutex<HashMap<LeaseKey, u64>>>,
}

impl Recording {
    /// Writes the calls of `inner` down in `log`.
    pub fn new(inner: Arc<dyn Store>, log: Arc<Log>) -> Self {
        Recording { inner, log, leases: Arc::default() }
    }

    async fn time(&self) -> Option<i64> {
        let now = tokio::time::timeout(TIME_PATIENCE, self.inner.now()).await;
        Some(now.ok()?.ok()?.as_micros())
    }

    fn lease(&self, key: LeaseKey) -> Lease {
        let leases = self.leases.lock().expect("nothing panics while it holds this lock");
        // A token that was not claimed here has no version; none of our callers has one.
        Lease { job: key.job, version: leases.get(&key).copied().unwrap_or_default() }
    }

    async fn ask<T>(&self, asked: Vec<T>) -> Asked<T> {
        Asked { before: self.time().await, call: self.log.new_call(), asked }
    }

    fn failed(&self, call: Option<u64>, attempted: &str, error: &Error) {
        let known = error.outcome_is_known();
        self.log.write(Event::Failed { call, attempted: attempted.to_owned(), known });
    }

    fn granted(&self, claimed: &[Claimed]) {
        let mut leases = self.leases.lock().expect("nothing panics while it holds this lock");
        let grants = claimed.iter().map(|one| {
            leases.insert(one.lease.key(), one.lease.version());
            let started = one.job.started_at.map_or(0, Timestamp::as_micros);
            let expires = one.job.lease.as_ref().map_or(started, |lease| lease.expires_at.as_micros());
            Grant { lease: Lease { job: one.job.id, version: one.lease.version() }, started, expires }
        });
        let grants = grants.collect();
        drop(leases);
        self.log.write(Event::Claimed(grants));
    }
}

/// The text under which an idempotency key is unique, key included.
pub(super) fn scoped_key(spec: &JobSpec) -> Option<String> {
    let key = &spec.options.idempotency.as_ref()?.key;
    Some(format!("{} {key}", spec.idempotency_scope()?))
}

fn answer_of(settled: &Settled) -> Answer {
    match settled {
        Settled::Applied(state) => Answer::Applied(*state),
        Settled::AlreadyApplied => Answer::AlreadyApplied,
        Settled::Stale(stale) => Answer::Stale(*stale),
        Settled::Refused(_) => Answer::Refused,
    }
}

#[async_trait]
impl Layer for Recording {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        let call = self.log.new_call();
        let batch = submission.jobs().first().and_then(|job| job.options.correlation_id.clone());
        let keys = submission.jobs().iter().map(scoped_key).collect();
        let types = submission.jobs().iter().map(|job| job.job_type.to_string()).collect();
        self.log.write(Event::EnqueueSent { call, batch, keys, types });
        let answer = self.inner.insert(submission).await;
        match &answer {
            Ok(inserted) => {
                let jobs = inserted.jobs.iter().map(|job| (job.id, job.existing)).collect();
                self.log.write(Event::Enqueued { call, jobs });
            }
            Err(error) => self.failed(Some(call), "enqueue", error),
        }
        answer
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        let answer = self.inner.claim(request).await;
        match &answer {
            Ok(claimed) if claimed.is_empty() => {}
            Ok(claimed) => self.granted(claimed),
            Err(error) => self.failed(None, "claim", error),
        }
        answer
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        if leases.is_empty() {
            return self.inner.extend(leases, lease_time).await;
        }
        let asked = self.ask(leases.iter().map(|key| self.lease(*key)).collect()).await;
        let call = asked.call;
        self.log.write(Event::ExtendSent(asked));
        let answer = self.inner.extend(leases, lease_time).await;
        match &answer {
            Ok(answers) => {
                let after = self.time().await;
                let answers = answers.iter().map(|answer| match answer {
                    Extended::Held { expires_in, .. } => Ok(i64::try_from(expires_in.as_micros()).unwrap_or(i64::MAX)),
                    Extended::Lost(stale) => Err(*stale),
                });
                self.log.write(Event::Extended { call, after, answers: answers.collect() });
            }
            Err(error) => self.failed(Some(call), "extend", error),
        }
        answer
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        let asked = self.ask(saves.iter().map(|save| self.lease(save.key())).collect()).await;
        let call = asked.call;
        self.log.write(Event::SaveSent(asked));
        let answer = self.inner.save(saves).await;
        match &answer {
            Ok(answers) => self.log.write(Event::Saved { call, answers: answers.clone() }),
            Err(error) => self.failed(Some(call), "save", error),
        }
        answer
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let sent = |one: &Settlement| Sent { lease: self.lease(one.key()), outcome: one.outcome() };
        let asked = self.ask(settlements.iter().map(sent).collect()).await;
        let call = asked.call;
        self.log.write(Event::SettleSent(asked));
        let answer = self.inner.settle(settlements).await;
        match &answer {
            Ok(answers) => self.log.write(Event::Settled { call, answers: answers.iter().map(answer_of).collect() }),
            Err(error) => self.failed(Some(call), "settle", error),
        }
        answer
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        let answer = self.inner.upkeep(request).await;
        match &answer {
            Ok(UpkeepReport { expired: 0, fired: 0, lifetimes: 0, .. }) => {}
            Ok(UpkeepReport { expired, fired, lifetimes, .. }) => {
                self.log.write(Event::Upkeep { expired: *expired, fired: *fired, lifetimes: *lifetimes });
            }
            Err(error) => self.failed(None, "upkeep", error),
        }
        answer
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        let call = self.log.new_call();
        let jobs = match &operation.target {
            Target::Jobs(jobs) => jobs.clone(),
            Target::Matching { .. } => Vec::new(),
        };
        let with_dependents = matches!(&operation.act, Act::Requeue(options) if options.with_dependents);
        let act = operation.act.name().to_owned();
        self.log.write(Event::OperateSent { call, act, jobs, with_dependents });
        let answer = self.inner.operate(operation).await;
        match &answer {
            Ok(Operated { changed, refused, .. }) => {
                let refused = refused.iter().map(|(job, _)| *job).collect();
                self.log.write(Event::Operated { call, changed: *changed, refused });
            }
            Err(error) => self.failed(Some(call), "operate", error),
        }
        answer
    }

    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
        let own = self.inner.heartbeats().await?;
        Ok(own.map(|inner| {
            let own: Arc<dyn Store> =
                Arc::new(Recording { inner, log: Arc::clone(&self.log), leases: Arc::clone(&self.leases) });
            own
        }))
    }
}
