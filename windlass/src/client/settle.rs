//! Settling for lease holders that are elsewhere and say only how their attempts ended.
//!
//! What follows of a failure is decided here, by the job's own policy, as a worker of this process would decide it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::error::{Error, Result};
use crate::job::{Failure, JobId, JobRecord, JobSpec, Lease, LeaseKey, Payload, Random, Settlement};
use crate::store::Settled;

/// How many jobs are read at once for their policies: their payloads come along and may be of any size.
const READ_MAX: usize = 16;

/// What a lease holder elsewhere says of its attempt.
#[derive(Debug)]
pub struct Report {
    /// The lease.
    pub lease: LeaseKey,
    /// How the attempt ended.
    pub ended: Ended,
    /// Jobs to be stored with a completion.
    pub spawn: Vec<JobSpec>,
}

/// How an attempt ended, in its holder's words.
#[derive(Debug)]
pub enum Ended {
    /// The work is done.
    Completed(Option<Payload>),
    /// It failed; the failure and the job's policy decide what follows.
    Failed(Failure),
    /// Not now: again after this long.
    Snoozed(Duration),
    /// The job ends as cancelled.
    Cancelled,
    /// Given back before work began.
    Released,
    /// Given back because the worker shuts down.
    Interrupted,
}

impl Report {
    /// The settlement that the holder of this lease makes.
    pub fn decide(self, lease: Lease, random: Random<'_>) -> Result<Settlement> {
        let settlement = match self.ended {
            Ended::Completed(result) => lease.complete(result),
            Ended::Failed(failure) => lease.fail(failure, random),
            Ended::Snoozed(delay) => lease.snooze(delay),
            Ended::Cancelled => lease.cancel(),
            Ended::Released => lease.release(),
            Ended::Interrupted => lease.interrupt(),
        };
        if self.spawn.is_empty() { Ok(settlement) } else { settlement.spawn(self.spawn) }
    }

    /// Whether the job's policy decides what follows.
    fn needs_policy(&self) -> bool {
        matches!(self.ended, Ended::Failed(_) | Ended::Interrupted)
    }
}

/// What decides about a failure.
#[derive(Clone, Debug)]
struct Policy {
    failures: u32,
    spec: Arc<JobSpec>,
}

impl Policy {
    fn of(job: &JobRecord) -> Self {
        let mut spec = (*job.spec).clone();
        spec.payload = Payload::default();
        Policy { failures: job.failures, spec: Arc::new(spec) }
    }

    /// For a job that is gone or whose policy does not matter: the store decides whether the lease holds.
    fn standard() -> Result<Self> {
        let spec = crate::job::NewJob::new("unknown", Payload::default());
        let spec = spec.check(&crate::job::Limits::default(), &crate::job::Policies::default())?;
        Ok(Policy { failures: 0, spec: Arc::new(spec) })
    }
}

impl Client {
    /// Settles leases whose holders are elsewhere; one answer for each, in order. One bad entry does not fail the others.
    pub async fn settle(&self, reports: Vec<Report>) -> Result<Vec<Settled>> {
        let policies = self.policies_of(&reports).await?;
        let standard = Policy::standard()?;
        let mut decided = Vec::with_capacity(reports.len());
        // An entry that cannot be decided keeps its place in the answer and is not sent to the store.
        let mut refused: Vec<Option<Error>> = Vec::with_capacity(reports.len());
        for report in reports {
            let Policy { failures, spec } = policies.get(&report.lease.job).unwrap_or(&standard).clone();
            let lease = Lease::presented(report.lease, failures, spec);
            let settlement = report.decide(lease, &mut fastrand::f64);
            let settlement = settlement.and_then(|said| said.check(self.limits_in_force()).map(|()| said));
            match settlement {
                Ok(settlement) => {
                    decided.push(settlement);
                    refused.push(None);
                }
                Err(error) => refused.push(Some(error)),
            }
        }
        let settled = if decided.is_empty() { Vec::new() } else { self.store().settle(&decided).await? };
        let mut settled = settled.into_iter();
        let answer = |refused: Option<Error>| match refused {
            Some(error) => Settled::Refused(error),
            None => settled.next().expect("a store answers for each settlement"),
        };
        Ok(refused.into_iter().map(answer).collect())
    }

    /// The policies of the jobs that need theirs, each read once and kept without its payload.
    async fn policies_of(&self, reports: &[Report]) -> Result<HashMap<JobId, Policy>> {
        let needed: HashSet<JobId> =
            reports.iter().filter(|report| report.needs_policy()).map(|report| report.lease.job).collect();
        let needed: Vec<JobId> = needed.into_iter().collect();
        let mut policies = HashMap::with_capacity(needed.len());
        for some in needed.chunks(READ_MAX) {
            let found = self.store().find(some).await?.into_iter().flatten();
            policies.extend(found.map(|job| (job.id, Policy::of(&job))));
        }
        Ok(policies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Category, NewJob, State};
    use crate::store::ClaimRequest;

    #[tokio::test]
    async fn a_failure_is_decided_by_the_policy_of_its_own_job() {
        let client = Client::in_memory();
        let job = |attempts| NewJob::new("t", Payload::default()).max_attempts(attempts);
        let (once, often) =
            (client.enqueue(job(1)).await.expect("stored"), client.enqueue(job(5)).await.expect("stored"));
        let request = ClaimRequest::new(crate::job::WorkerId::new("w").expect("a name"), Default::default(), 2);
        let claimed = client.store().claim(&request).await.expect("claimed");
        let failed = |id: JobId| {
            let lease = claimed.iter().find(|claimed| claimed.job.id == id).expect("claimed").lease.key();
            let ended = Ended::Failed(Failure::new(Category::Temporary, None, "no"));
            Report { lease, ended, spawn: Vec::new() }
        };
        let settled = client.settle(vec![failed(once.id), failed(often.id), failed(once.id)]).await.expect("settled");
        let states: Vec<_> = settled.iter().map(|settled| format!("{settled:?}")).collect();
        assert_eq!(states, ["Applied(DeadLetter)", "Applied(Retrying)", "AlreadyApplied"]);
        assert_eq!(client.job(often.id).await.expect("there").state, State::Retrying);
    }
}
