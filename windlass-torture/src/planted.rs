//! Stores that break the contract on purpose, each in one way that real queues have been broken.
//!
//! A checker that has never found anything proves nothing. Each of these is a layer over a good store, and the checker
//! must find each, under the invariant that it breaks. Compiled only for the tests that show this.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use windlass::job::{
    AttemptRecord, Dependency, DependencyKind, DependsOn, JobSpec, Lease, LeaseKey, LeaseToken, Limits, Lost, Outcome,
    RequeueOptions, Settlement, Stale,
};
use windlass::schedule::ScheduleRecord;
use windlass::store::*;
use windlass::workflow::Submission;
use windlass::{JobId, JobRecord, NewJob, Payload, Policies, Result, State, Timestamp};

use super::recording::scoped_key;

/// How much longer the good store inside holds a lease where its end is looked after here.
const LONGER: u32 = 6;
/// What the second schedule is called, which fires for the slots of the first.
const AGAIN: &str = "-again";

/// One way to break the contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A job is completed by its id, without its lease.
    CompletionById,
    /// A settlement is taken from a lease that has expired.
    ExpiryNotChecked,
    /// A lease that is taken back does not count as an attempt.
    AttemptsNotCounted,
    /// A heartbeat brings an expired lease back to life.
    HeartbeatRevives,
    /// Dependents are released in a second transaction, and a crash comes between.
    SecondTransaction,
    /// A key is looked up first and the job inserted then.
    KeyCheckedFirst,
    /// A job is acknowledged before it is on disk, and then is not.
    AckBeforeSync,
    /// Two processes fire the same slot.
    SlotNotUnique,
    /// Settlements are acknowledged into a buffer that is dropped at shutdown.
    BufferDropped,
    /// A job that is taken back is not looked at again, though it has ended meanwhile.
    ReclaimUnchecked,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 10] = [
        Bug::CompletionById,
        Bug::ExpiryNotChecked,
        Bug::AttemptsNotCounted,
        Bug::HeartbeatRevives,
        Bug::SecondTransaction,
        Bug::KeyCheckedFirst,
        Bug::AckBeforeSync,
        Bug::SlotNotUnique,
        Bug::BufferDropped,
        Bug::ReclaimUnchecked,
    ];
}

/// A good store with a bug in it.
#[derive(Debug)]
pub struct Planted {
    inner: Arc<dyn Store>,
    bug: Bug,
    notes: Mutex<Notes>,
    /// Counts the occasions on which a bug may show.
    turns: AtomicUsize,
}

#[derive(Debug, Default)]
struct Notes {
    /// The newest lease of each job.
    newest: HashMap<JobId, (JobRecord, LeaseToken)>,
    /// When a lease ends, where the store inside does not know.
    ends: HashMap<LeaseKey, Timestamp>,
    keys: HashMap<String, InsertedJob>,
    /// Jobs that hold others back until somebody releases them, and what those wait for.
    gates: Vec<(JobId, Vec<JobId>)>,
    /// Jobs that ended and are taken back all the same, and how often each was.
    ended: Vec<JobId>,
    back: HashMap<JobId, u32>,
}

impl Planted {
    /// Plants a bug.
    pub fn new(inner: Arc<dyn Store>, bug: Bug) -> Self {
        Planted { inner, bug, notes: Mutex::default(), turns: AtomicUsize::new(0) }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    /// Whether the end of leases is looked after here.
    fn keeps_ends(&self) -> bool {
        self.has(Bug::ExpiryNotChecked) || self.has(Bug::HeartbeatRevives)
    }

    /// Whether it is time for the bug to show: once in a fixed number of occasions.
    fn every(&self, occasions: usize) -> bool {
        self.turns.fetch_add(1, Ordering::Relaxed) % occasions == occasions - 1
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().expect("nothing panics while it holds this lock")
    }

    async fn expired(&self, key: &LeaseKey) -> Result<bool> {
        let now = self.inner.now().await?;
        Ok(self.keeps_ends() && self.notes().ends.get(key).is_some_and(|end| now >= *end))
    }

    /// A job as others shall see it.
    fn shown(&self, job: &mut JobRecord) {
        match self.bug {
            Bug::AttemptsNotCounted => Arc::make_mut(&mut job.spec).options.retry.lost = Lost::Counted,
            Bug::SlotNotUnique => {
                if let Some(firing) = &mut job.firing {
                    firing.schedule = firing.schedule.trim_end_matches(AGAIN).to_owned();
                }
            }
            Bug::ReclaimUnchecked => {
                let back = self.notes().back.get(&job.id).copied().unwrap_or_default();
                job.generation = job.generation.saturating_sub(back);
            }
            _ => {}
        }
    }

    /// Holds each dependent back behind a job of its own, to be released by somebody who may crash first.
    async fn insert_gated(&self, submission: Submission) -> Result<Inserted> {
        let mut gated: Vec<(usize, JobId)> = Vec::new();
        let name = submission.workflow_name().map(str::to_owned);
        let mut jobs = submission.into_jobs();
        for (place, job) in jobs.iter_mut().enumerate().filter(|(_, job)| !job.depends_on.is_empty()) {
            let gate = NewJob::new("gate", Payload::default()).queue("gate");
            let gate = gate.check(&Limits::default(), &Policies::default())?;
            let gate = self.inner.insert(Submission::new(vec![gate])?).await?.jobs[0].id;
            job.depends_on.push(Dependency { on: DependsOn::Job(gate), kind: DependencyKind::AfterAll });
            gated.push((place, gate));
        }
        let waits: Vec<Vec<Dependency>> = gated.iter().map(|(place, _)| jobs[*place].depends_on.clone()).collect();
        let inserted = self.inner.insert(rebuilt(name, jobs)?).await?;
        let mut notes = self.notes();
        for ((_, gate), waits) in gated.into_iter().zip(waits) {
            let ids = waits.into_iter().map(|dependency| match dependency.on {
                DependsOn::Job(id) => id,
                DependsOn::Batch(place) => inserted.jobs[place].id,
            });
            notes.gates.push((gate, ids.filter(|id| *id != gate).collect()));
        }
        Ok(inserted)
    }

    /// The second transaction: releases dependents whose dependencies have ended, unless it crashes first.
    async fn release(&self) -> Result<()> {
        let gates = std::mem::take(&mut self.notes().gates);
        for (gate, waits) in gates {
            let found = self.inner.find(&waits).await?;
            let met = found.iter().flatten().all(|job| job.state.is_terminal());
            if !met {
                self.notes().gates.push((gate, waits));
            } else if !self.every(4) {
                let target = Target::Jobs(vec![gate]);
                let act = Act::Cancel { force: true };
                let open = Operation { target, act, by: None, why: String::new(), dry_run: false };
                self.inner.operate(&open).await?;
            }
        }
        Ok(())
    }

    /// Looks a key up, and inserts only then.
    async fn insert_unguarded(&self, submission: Submission) -> Result<Inserted> {
        let name = submission.workflow_name().map(str::to_owned);
        let mut jobs = submission.into_jobs();
        let key = scoped_key(&jobs[0]);
        let known = key.as_ref().and_then(|key| self.notes().keys.get(key).copied());
        for job in &mut jobs {
            job.options.idempotency = None;
        }
        if let Some(known) = known {
            let mut answers = vec![InsertedJob { existing: true, ..known }];
            let rest = jobs.split_off(1);
            if !rest.is_empty() {
                answers.extend(self.inner.insert(Submission::new(rest)?).await?.jobs);
            }
            return Ok(Inserted { jobs: answers, workflow: None });
        }
        // Here another may do the same.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let inserted = self.inner.insert(rebuilt(name, jobs)?).await?;
        if let Some(key) = key {
            self.notes().keys.insert(key, inserted.jobs[0]);
        }
        Ok(inserted)
    }

    async fn settle_one(&self, settlement: &Settlement) -> Result<Settled> {
        let key = settlement.key();
        let completes = settlement.outcome() == Outcome::Completed;
        if self.has(Bug::HeartbeatRevives) && self.expired(&key).await? {
            return Ok(Settled::Stale(Stale::Expired));
        }
        if self.has(Bug::BufferDropped) && completes && settlement.children().is_empty() && self.every(10) {
            return Ok(Settled::Applied(State::Completed));
        }
        let mut answer = self.settle_inside(settlement).await?;
        if self.has(Bug::CompletionById) && completes && matches!(answer, Settled::Stale(_)) {
            let newest = self.notes().newest.get(&key.job).map(|(job, token)| Lease::granted(job, *token));
            if let Some(lease) = newest {
                answer = self.settle_inside(&lease.complete(settlement.result().cloned())).await?;
            }
        }
        if let Settled::Applied(State::Failed | State::DeadLetter) = answer
            && self.has(Bug::ReclaimUnchecked)
            && self.every(3)
        {
            self.notes().ended.push(key.job);
        }
        Ok(answer)
    }

    async fn settle_inside(&self, settlement: &Settlement) -> Result<Settled> {
        let mut answers = self.inner.settle(std::slice::from_ref(settlement)).await?;
        Ok(answers.pop().expect("a store answers for each settlement"))
    }

    /// Takes jobs back that had been running when they were looked at.
    async fn take_back_ended(&self) -> Result<()> {
        let ended = std::mem::take(&mut self.notes().ended);
        if ended.is_empty() {
            return Ok(());
        }
        let act = Act::Requeue(RequeueOptions::default());
        let target = Target::Jobs(ended.clone());
        let back = Operation { target, act, by: None, why: String::new(), dry_run: false };
        let refused = self.inner.operate(&back).await?.refused;
        let mut notes = self.notes();
        for job in ended.into_iter().filter(|job| !refused.iter().any(|(other, _)| other == job)) {
            *notes.back.entry(job).or_default() += 1;
        }
        Ok(())
    }
}

fn rebuilt(name: Option<String>, jobs: Vec<JobSpec>) -> Result<Submission> {
    match name {
        Some(name) => Submission::workflow(name, jobs),
        None => Submission::new(jobs),
    }
}

#[async_trait]
impl Layer for Planted {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn insert(&self, submission: Submission) -> Result<Inserted> {
        match self.bug {
            Bug::SecondTransaction => self.insert_gated(submission).await,
            Bug::KeyCheckedFirst => self.insert_unguarded(submission).await,
            Bug::AttemptsNotCounted => {
                let name = submission.workflow_name().map(str::to_owned);
                let mut jobs = submission.into_jobs();
                jobs.iter_mut().for_each(|job| job.options.retry.lost = Lost::Free);
                self.inner.insert(rebuilt(name, jobs)?).await
            }
            Bug::AckBeforeSync if submission.workflow_name().is_none() && self.every(10) => {
                let gone = |_: &JobSpec| InsertedJob {
                    id: new_job_id(),
                    existing: false,
                    state: Some(State::Scheduled),
                    matches: true,
                };
                Ok(Inserted { jobs: submission.jobs().iter().map(gone).collect(), workflow: None })
            }
            _ => self.inner.insert(submission).await,
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claims> {
        if !self.keeps_ends() {
            let mut claimed = self.inner.claim(request).await?;
            let mut newest = Vec::new();
            for one in claimed.iter_mut() {
                self.shown(&mut one.job);
                newest.push((one.job.id, (one.job.clone(), one.lease.key().token)));
            }
            self.notes().newest.extend(newest);
            return Ok(claimed);
        }
        let longer = ClaimRequest { lease_time: request.lease_time.map(|time| time * LONGER), ..request.clone() };
        let mut claimed = self.inner.claim(&longer).await?;
        for one in claimed.iter_mut() {
            let started = one.job.started_at.unwrap_or_default();
            let end = started.plus(request.lease_time.unwrap_or_default());
            if let Some(lease) = &mut one.job.lease {
                lease.expires_at = lease.expires_at.min(end);
                one.expires_in = lease.expires_at.since(started);
                self.notes().ends.insert(one.lease.key(), lease.expires_at);
            }
        }
        Ok(claimed)
    }

    async fn extend(&self, leases: &[LeaseKey], lease_time: Option<Duration>) -> Result<Vec<Extended>> {
        if !self.keeps_ends() {
            return self.inner.extend(leases, lease_time).await;
        }
        let mut answers = Vec::with_capacity(leases.len());
        for key in leases {
            if self.has(Bug::ExpiryNotChecked) && self.expired(key).await? {
                answers.push(Extended::Lost(Stale::Expired));
                continue;
            }
            let answer = self.inner.extend(&[*key], lease_time.map(|time| time * LONGER)).await?.pop();
            let mut answer = answer.expect("a store answers for each lease");
            if let Extended::Held { expires_in, .. } = &mut answer {
                *expires_in = (*expires_in).min(lease_time.unwrap_or_default());
                let end = self.inner.now().await?.plus(*expires_in);
                self.notes().ends.insert(*key, end);
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    async fn save(&self, saves: &[Save]) -> Result<Vec<Result<(), Stale>>> {
        let mut answers = Vec::with_capacity(saves.len());
        for save in saves {
            if self.expired(&save.key()).await? {
                answers.push(Err(Stale::Expired));
            } else {
                answers.extend(self.inner.save(std::slice::from_ref(save)).await?);
            }
        }
        Ok(answers)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            answers.push(self.settle_one(settlement).await?);
        }
        Ok(answers)
    }

    async fn upkeep(&self, request: &Upkeep) -> Result<UpkeepReport> {
        self.take_back_ended().await?;
        self.release().await?;
        self.inner.upkeep(request).await
    }

    async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        let mut found = self.inner.find(ids).await?;
        found.iter_mut().flatten().for_each(|job| self.shown(job));
        Ok(found)
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        let mut page = self.inner.list(query).await?;
        page.items.iter_mut().for_each(|job| self.shown(job));
        Ok(page)
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRecord>> {
        let mut attempts = self.inner.attempts(job).await?;
        if self.has(Bug::ReclaimUnchecked) {
            attempts.iter_mut().for_each(|attempt| attempt.generation = 0);
        }
        Ok(attempts)
    }

    async fn edit_schedule(&self, edit: &ScheduleEdit, by: Option<&str>) -> Result<ScheduleEdited> {
        if self.has(Bug::SlotNotUnique) {
            let second = match edit.clone() {
                ScheduleEdit::Put { mut spec, version } => {
                    spec.name.push_str(AGAIN);
                    Some(ScheduleEdit::Put { spec, version })
                }
                ScheduleEdit::Pause(name) => Some(ScheduleEdit::Pause(name + AGAIN)),
                _ => None,
            };
            if let Some(second) = second {
                self.inner.edit_schedule(&second, by).await?;
            }
        }
        self.inner.edit_schedule(edit, by).await
    }

    async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>> {
        let mut schedules = self.inner.schedules(after, limit).await?;
        schedules.retain(|schedule| !schedule.spec.name.ends_with(AGAIN));
        Ok(schedules)
    }

    /// Heartbeats come through here too.
    async fn heartbeats(&self) -> Result<Option<Arc<dyn Store>>> {
        Ok(None)
    }
}
