//! A fresh store with its clock, and short words for what cases do with it.
//!
//! The methods panic when the store answers with an error; cases that expect one call the store itself.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, ManualClock};
use crate::error::{Error, Result};
use crate::job::{
    AttemptRecord, Category, Failure, JobId, JobRecord, Lease, LeaseKey, Limits, NewJob, Payload, Policies, QueueName,
    RetryPolicy, Settlement, State, WorkerId,
};
use crate::store::{
    Act, ClaimRequest, Claimed, Extended, Filter, Inserted, InsertedJob, Operated, Operation, Settled, Store, Target,
    Upkeep, UpkeepReport,
};
use crate::time::Timestamp;
use crate::workflow::Submission;

/// The lease time of claims that name none here.
pub const LEASE: Duration = Duration::from_secs(30);

/// A fresh store under test, and its clock.
#[derive(Debug, Clone)]
pub struct Bench {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its clock, which stands still until a case moves it.
    pub clock: ManualClock,
    /// Whether the store sends wakes.
    pub wakes: bool,
}

impl Bench {
    /// A bench over a fresh store on this clock.
    pub fn new(store: Arc<dyn Store>, clock: ManualClock) -> Self {
        Bench { store, clock, wakes: true }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock; upkeep has not run yet.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Moves the clock and lets upkeep do everything there is to do.
    pub async fn pass(&self, by: Duration) -> UpkeepReport {
        self.clock.advance(by);
        self.upkeep().await
    }

    /// Lets upkeep do everything there is to do; gives the sums.
    pub async fn upkeep(&self) -> UpkeepReport {
        let mut sum = UpkeepReport::default();
        loop {
            let step = self.store.upkeep(&Upkeep::default()).await.expect("upkeep");
            sum.lifetimes += step.lifetimes;
            sum.expired += step.expired;
            sum.fired += step.fired;
            sum.pruned += step.pruned;
            if !step.more {
                return sum;
            }
        }
    }

    /// How many jobs match, counted no further than `cap`.
    pub async fn count(&self, filter: &Filter, cap: u64) -> u64 {
        self.store.count(filter, cap, u64::MAX).await.expect("count").count
    }

    /// Checks and inserts jobs; gives the store's answer.
    pub async fn try_insert(&self, jobs: Vec<NewJob>) -> Result<Inserted> {
        let checked: Result<Vec<_>> =
            jobs.into_iter().map(|job| job.check(&Limits::default(), &Policies::default())).collect();
        self.store.insert(Submission::new(checked?)?).await
    }

    /// Inserts jobs; gives what became of each.
    pub async fn insert(&self, jobs: Vec<NewJob>) -> Vec<InsertedJob> {
        self.try_insert(jobs).await.expect("insert").jobs
    }

    /// Inserts one job; gives its id.
    pub async fn enqueue(&self, job: NewJob) -> JobId {
        self.insert(vec![job]).await[0].id
    }

    /// Claims up to `limit` jobs of the default queue for 30 s.
    pub async fn claim(&self, limit: usize) -> Vec<Claimed> {
        self.claim_from("default", limit).await
    }

    /// Claims up to `limit` jobs of a queue for 30 s.
    pub async fn claim_from(&self, queue: &str, limit: usize) -> Vec<Claimed> {
        let queue = QueueName::new(queue).expect("a queue name");
        let request = ClaimRequest { lease_time: Some(LEASE), ..ClaimRequest::new(worker("w1"), queue, limit) };
        self.store.claim(&request).await.expect("claim").jobs
    }

    /// Claims the one job there must be.
    pub async fn claim_one(&self) -> Claimed {
        let mut claimed = self.claim(1).await;
        assert_eq!(claimed.len(), 1, "one job should be claimable");
        claimed.remove(0)
    }

    /// The ids of the next jobs in claim order; claims them.
    pub async fn claim_ids(&self, limit: usize) -> Vec<JobId> {
        self.claim(limit).await.iter().map(|claimed| claimed.job.id).collect()
    }

    /// Settles one lease.
    pub async fn settle(&self, settlement: &Settlement) -> Settled {
        let mut answers = self.store.settle(std::slice::from_ref(settlement)).await.expect("settle");
        assert_eq!(answers.len(), 1, "one answer for each settlement");
        answers.remove(0)
    }

    /// Settles one lease, which must be applied; gives the new state.
    pub async fn apply(&self, settlement: Settlement) -> State {
        match self.settle(&settlement).await {
            Settled::Applied(state) => state,
            other => panic!("the settlement should be applied, not {other:?}"),
        }
    }

    /// Completes a claimed job.
    pub async fn complete(&self, lease: Lease) -> State {
        self.apply(lease.complete(None)).await
    }

    /// Fails a claimed job temporarily.
    pub async fn fail(&self, lease: Lease) -> State {
        self.apply(lease.fail(Failure::temporary("it broke"), &mut || 0.5)).await
    }

    /// Sends one heartbeat for 30 s.
    pub async fn extend(&self, key: LeaseKey) -> Extended {
        let mut answers = self.store.extend(&[key], Some(LEASE)).await.expect("extend");
        answers.remove(0)
    }

    /// A job that must exist.
    pub async fn job(&self, id: JobId) -> JobRecord {
        self.find(id).await.unwrap_or_else(|| panic!("job {id} should exist"))
    }

    /// A job, if it exists.
    pub async fn find(&self, id: JobId) -> Option<JobRecord> {
        self.store.find(&[id]).await.expect("find").remove(0)
    }

    /// A job's state.
    pub async fn state(&self, id: JobId) -> State {
        self.job(id).await.state
    }

    /// A job's attempts.
    pub async fn attempts(&self, id: JobId) -> Vec<AttemptRecord> {
        self.store.attempts(id).await.expect("attempts")
    }

    /// Acts on one job as operator `ada`; gives the store's refusal.
    pub async fn try_act(&self, id: JobId, act: Act) -> Result<(), Error> {
        let mut answer = self.operate(Target::Jobs(vec![id]), act, false).await;
        match answer.refused.pop() {
            None => {
                assert_eq!(answer.changed, 1);
                Ok(())
            }
            Some((refused, error)) => {
                assert_eq!((refused, answer.changed), (id, 0));
                Err(error)
            }
        }
    }

    /// Acts on one job as operator `ada`.
    pub async fn act(&self, id: JobId, act: Act) {
        self.try_act(id, act).await.expect("the act should be allowed");
    }

    /// Acts as operator `ada`, because of `reasons`.
    pub async fn operate(&self, target: Target, act: Act, dry_run: bool) -> Operated {
        let operation = Operation { target, act, by: Some("ada".to_owned()), why: "reasons".to_owned(), dry_run };
        self.store.operate(&operation).await.expect("operate")
    }

    /// Acts on all jobs that match, in steps of `limit`; gives how many were changed.
    pub async fn act_on(&self, filter: Filter, limit: usize, act: Act) -> u64 {
        let (mut changed, mut after) = (0, None);
        loop {
            let target = Target::Matching { filter: filter.clone(), limit, after };
            let answer = self.operate(target, act.clone(), false).await;
            changed += answer.changed;
            after = answer.next;
            if after.is_none() {
                return changed;
            }
        }
    }

    /// Asserts that the store finds no contradiction in itself, and that its numbers are those of its jobs (D7).
    pub async fn assert_sound(&self) {
        let findings = self.store.check().await.expect("check");
        assert!(findings.is_empty(), "contradictions: {findings:?}");
        let totals = self.store.totals().await.expect("totals");
        let stored = self.store.count(&Filter::default(), u64::MAX, u64::MAX).await.expect("count").count;
        assert_eq!(totals.accepted, stored + totals.pruned, "accepted = stored + pruned: {totals:?}");
    }

    /// A job that is RUNNING, and the lease on it.
    pub async fn running(&self, job: NewJob) -> Claimed {
        let id = self.enqueue(job).await;
        let claimed = self.claim_one().await;
        assert_eq!(claimed.job.id, id);
        claimed
    }

    /// A job brought into `state`, whichever of the nine.
    pub async fn in_state(&self, state: State) -> JobId {
        let plain = || job().retry(no_jitter(3)).queue("default");
        match state {
            State::Pending => {
                let first = self.enqueue(plain().delay(Duration::from_secs(3600))).await;
                self.enqueue(plain().after([first])).await
            }
            State::Delayed => self.enqueue(plain().delay(Duration::from_secs(3600))).await,
            State::Scheduled => self.enqueue(plain()).await,
            State::Running => self.running(plain()).await.job.id,
            State::Retrying => {
                let claimed = self.running(plain()).await;
                self.fail(claimed.lease).await;
                claimed.job.id
            }
            State::Completed => {
                let claimed = self.running(plain()).await;
                self.complete(claimed.lease).await;
                claimed.job.id
            }
            State::Failed => {
                let claimed = self.running(plain()).await;
                let failure = Failure::permanent("broken", "it is broken");
                self.apply(claimed.lease.fail(failure, &mut || 0.5)).await;
                claimed.job.id
            }
            State::DeadLetter => {
                let claimed = self.running(plain().max_attempts(1)).await;
                self.fail(claimed.lease).await;
                claimed.job.id
            }
            State::Cancelled => {
                let id = self.enqueue(plain()).await;
                self.act(id, Act::Cancel { force: false }).await;
                id
            }
        }
    }
}

/// A plain job of type `test`.
pub fn job() -> NewJob {
    NewJob::new("test", Payload::default())
}

/// The standard policy without jitter: 1 s, 2 s, 4 s …
pub fn no_jitter(max_attempts: u32) -> RetryPolicy {
    RetryPolicy { jitter: crate::job::Jitter::None, max_attempts, ..RetryPolicy::standard() }
}

/// A worker's name.
pub fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a worker name")
}

/// A failure of some category.
pub fn failure(category: Category) -> Failure {
    Failure::new(category, Some("code".to_owned()), "words")
}
