//! Jobs in any of the nine states that have a past, and what must not change when a write is refused.

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job, worker};
use crate::job::{
    AttemptRecord, Failure, JobId, JobRecord, Lease, LeaseKey, LogLine, Outcome, Payload, QueueName, RequeueOptions,
    RetryPolicy, Settlement, Stale, State,
};
use crate::store::{Act, ClaimRequest, Claimed, Settled, Totals};

/// Longer than any lease of a case, so that what waits an hour still waits when leases have expired.
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// The smallest step of the clock.
pub(super) const MICRO: Duration = Duration::from_micros(1);

/// What a lease holder can say.
pub(super) const SAID: [Outcome; 7] = [
    Outcome::Completed,
    Outcome::Failed,
    Outcome::DeadLettered,
    Outcome::Snoozed,
    Outcome::Cancelled,
    Outcome::Released,
    Outcome::Interrupted,
];

/// A number of seconds.
pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A job whose first lease was lost and which a second lease brought where it is.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) id: JobId,
    /// The first lease, lost.
    pub(super) old: LeaseKey,
    /// The second lease.
    pub(super) current: LeaseKey,
    /// What the second holder said; `None` while it runs.
    pub(super) said: Option<Outcome>,
}

/// Brings a job of `queue` into `state` by its second attempt.
pub(super) async fn stage(bench: &Bench, state: State, queue: &str) -> Staged {
    let plain = job().queue(queue).retry(RetryPolicy::constant(HOUR, 10));
    let first = format!("{queue}.first");
    let (plain, waits_for) = match state {
        State::Pending => {
            let waits_for = bench.enqueue(job().queue(&first)).await;
            let claimed = take(bench, &first).await;
            bench.apply(claimed.lease.fail(Failure::permanent("broken", "it is broken"), &mut || 0.5)).await;
            (plain.after_all([waits_for]), Some(waits_for))
        }
        _ => (plain, None),
    };
    let id = bench.enqueue(plain).await;
    let old = take(bench, queue).await.lease.key();
    bench.pass(LEASE).await;
    let lease = take(bench, queue).await.lease;
    let current = lease.key();
    assert_eq!(current.job, id);
    let settlement = match state {
        State::Running => None,
        State::Delayed => Some(lease.snooze(HOUR)),
        State::Scheduled => Some(lease.release()),
        State::Retrying => Some(lease.fail(Failure::temporary("it broke"), &mut || 0.5)),
        State::Completed => Some(lease.complete(None)),
        State::Pending | State::Failed => Some(lease.fail(Failure::permanent("broken", "it is broken"), &mut || 0.5)),
        State::DeadLetter => Some(lease.fail(Failure::dead_letter("hopeless", "it is hopeless"), &mut || 0.5)),
        State::Cancelled => Some(lease.cancel()),
    };
    let said = settlement.as_ref().map(Settlement::outcome);
    if let Some(settlement) = settlement {
        bench.apply(settlement).await;
    }
    for dead in waits_for.into_iter().flat_map(|waits_for| [waits_for, id]) {
        bench.act(dead, Act::Requeue(RequeueOptions::default())).await;
    }
    assert_eq!(bench.state(id).await, state, "the stage is set");
    Staged { id, old, current, said }
}

/// Claims the one job of a queue for 30 s.
pub(super) async fn take(bench: &Bench, queue: &str) -> Claimed {
    let mut claimed = bench.claim_from(queue, 2).await;
    assert_eq!(claimed.len(), 1, "one job of queue {queue} should be claimable");
    claimed.remove(0)
}

/// Claims the one job of the default queue for `lease_time`, as worker `name`.
pub(super) async fn take_as(bench: &Bench, name: &str, lease_time: Option<Duration>) -> Claimed {
    let request = ClaimRequest { lease_time, ..ClaimRequest::new(worker(name), QueueName::default(), 2) };
    let mut claimed = bench.store.claim(&request).await.expect("claim");
    assert_eq!(claimed.len(), 1, "one job should be claimable");
    claimed.remove(0)
}

/// A settlement that says `outcome`, under a lease that may or may not hold.
pub(super) fn settlement(lease: Lease, outcome: Outcome) -> Settlement {
    match outcome {
        Outcome::Completed => lease.complete(Some(Payload::json("late").expect("json"))),
        Outcome::Failed => lease.fail(Failure::temporary("it broke"), &mut || 0.5),
        Outcome::DeadLettered => lease.fail(Failure::dead_letter("hopeless", "it is hopeless"), &mut || 0.5),
        Outcome::Snoozed => lease.snooze(HOUR),
        Outcome::Cancelled => lease.cancel(),
        Outcome::Released => lease.release(),
        Outcome::Interrupted => lease.interrupt(),
        Outcome::Lost | Outcome::Revoked => panic!("no holder says {outcome:?}"),
    }
}

/// What became of a settlement, to be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Applied(State),
    AlreadyApplied,
    Stale(Stale),
    Refused(&'static str),
}

impl From<&Settled> for Answer {
    fn from(settled: &Settled) -> Self {
        match settled {
            Settled::Applied(state) => Answer::Applied(*state),
            Settled::AlreadyApplied => Answer::AlreadyApplied,
            Settled::Stale(stale) => Answer::Stale(*stale),
            Settled::Refused(error) => Answer::Refused(error.name()),
        }
    }
}

/// Settles one lease; gives the answer to be compared.
pub(super) async fn answer(bench: &Bench, settlement: &Settlement) -> Answer {
    Answer::from(&bench.settle(settlement).await)
}

/// Everything that a store says about a job.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Snapshot {
    pub(super) job: JobRecord,
    pub(super) attempts: Vec<AttemptRecord>,
    pub(super) logs: Vec<LogLine>,
    pub(super) totals: Totals,
}

/// What the store says about a job now.
pub(super) async fn snapshot(bench: &Bench, id: JobId) -> Snapshot {
    Snapshot {
        job: bench.job(id).await,
        attempts: bench.attempts(id).await,
        logs: bench.store.logs(id).await.expect("logs"),
        totals: bench.store.totals().await.expect("totals"),
    }
}
