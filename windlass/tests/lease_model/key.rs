//! The part of a job that the lease protocol looks at, small enough to be a state of the checker.
//!
//! A [`JobKey`] becomes a whole [`JobRecord`] before the library decides anything about it, and is taken from the
//! record again afterwards. Time is relative: every moment is kept as the number of ticks until it, 0 for «now or
//! past», so the state space is finite although the clock is not bounded.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use windlass::job::{CancelAsked, JobSpec, LeaseInfo, LeaseToken, Limits, Reason, ReasonKind, WorkerId};
use windlass::{JobId, JobRecord, NewJob, Payload, Policies, RetryPolicy, State, Timestamp};

/// One tick of the model's clock.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// How long a claim or a heartbeat leases the job for: two ticks, so that a heartbeat after one makes a difference.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The moment at which everything happens; what lies ahead of it comes closer instead.
pub(crate) const NOW: Timestamp = Timestamp::from_seconds(1_000_000);

/// What the protocol looks at of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct JobKey {
    pub(crate) state: State,
    pub(crate) attempt: u8,
    pub(crate) failures: u8,
    pub(crate) generation: u8,
    pub(crate) lease_version: u8,
    /// Ticks until the lease expires, while RUNNING.
    pub(crate) lease: Option<u8>,
    pub(crate) cancel_asked: bool,
    /// Ticks until `run_at`, while DELAYED or RETRYING.
    pub(crate) run_in: Option<u8>,
    /// Ticks until the lifetime ends, while there is one and the job has not ended.
    pub(crate) lives_for: Option<u8>,
    pub(crate) reason: Option<ReasonKind>,
}

/// What never changes in one run of the checker.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) worker: WorkerId,
    id: JobId,
}

impl Fixed {
    pub(crate) fn new(max_attempts: u8, lifetime: Option<u8>) -> Self {
        let new = NewJob::new("model", Payload::json("").expect("a string is JSON"))
            .retry(RetryPolicy::constant(TICK, max_attempts.into()))
            .lifetime(lifetime.map(|ticks| TICK * ticks.into()));
        let spec = new.check(&Limits::default(), &Policies::default()).expect("every field is in bounds");
        Fixed {
            spec: Arc::new(spec),
            worker: WorkerId::new("model").expect("a short name"),
            id: JobId::from_uuid(Uuid::from_u128(1)),
        }
    }

    /// The job as it was submitted: SCHEDULED, never claimed.
    pub(crate) fn submitted(&self) -> JobKey {
        JobKey {
            state: State::Scheduled,
            attempt: 0,
            failures: 0,
            generation: 0,
            lease_version: 0,
            lease: None,
            cancel_asked: false,
            run_in: None,
            lives_for: self.spec.deadline(NOW).map(ticks_until),
            reason: None,
        }
    }

    /// The whole record. Who asked for what, and what lies in the past, is made up: no decision depends on it.
    ///
    /// `lost` is left at 0: only `lost = free` reads it, and the model runs under the default policy.
    pub(crate) fn record(&self, key: &JobKey) -> JobRecord {
        let version = u64::from(key.lease_version);
        let mut record = JobRecord::submitted(self.id, Arc::clone(&self.spec), NOW);
        record.state = key.state;
        record.attempt = key.attempt.into();
        record.failures = key.failures.into();
        record.lost = 0;
        record.generation = key.generation.into();
        record.position = NOW;
        record.inherited_priority = None;
        record.updated_at = NOW;
        record.scheduled_at = None;
        record.started_at = key.lease.map(|_| NOW);
        record.completed_at = key.state.is_terminal().then_some(NOW);
        record.run_at = key.run_in.map(moment);
        record.deadline = key.lives_for.map(moment);
        record.lease = key.lease.map(|left| LeaseInfo::new(version, moment(left), self.worker.clone()));
        record.lease_version = version;
        record.cancel = key.cancel_asked.then_some(CancelAsked::new(None, "", NOW));
        record.failure = None;
        record.result = None;
        record.progress = None;
        record.checkpoint = None;
        record.workflow_id = None;
        record.firing = None;
        record.spawned_by = None;
        record.reason = key.reason.map(Reason::of);
        record
    }
}

impl JobKey {
    /// What the protocol looks at of `record`.
    pub(crate) fn of(record: &JobRecord) -> Self {
        let lease = record.lease.as_ref();
        assert_eq!(lease.is_some(), record.state == State::Running, "a job has a lease exactly while RUNNING");
        assert!(lease.is_none_or(|lease| lease.version == record.lease_version), "the newest lease is the one held");
        JobKey {
            state: record.state,
            attempt: small(record.attempt.into()),
            failures: small(record.failures.into()),
            generation: small(record.generation.into()),
            lease_version: small(record.lease_version),
            lease: lease.map(|lease| ticks_until(lease.expires_at)),
            cancel_asked: record.cancel.is_some(),
            run_in: record.run_at.map(ticks_until),
            lives_for: record.deadline.filter(|_| !record.state.is_terminal()).map(ticks_until),
            reason: record.reason.as_ref().map(|reason| reason.kind),
        }
    }

    /// Time passes.
    pub(crate) fn tick(&mut self) {
        for left in [&mut self.lease, &mut self.run_in, &mut self.lives_for].into_iter().flatten() {
            *left = left.saturating_sub(1);
        }
    }
}

/// The token with this number.
pub(crate) fn token(number: u8) -> LeaseToken {
    LeaseToken::from_uuid(Uuid::from_u128(u128::from(number) + 1))
}

/// A duration in ticks.
pub(crate) fn ticks(duration: Duration) -> u8 {
    small(duration.as_secs())
}

/// The moment that lies this many ticks ahead.
pub(crate) fn moment(ticks: u8) -> Timestamp {
    NOW.plus(TICK * ticks.into())
}

fn ticks_until(at: Timestamp) -> u8 {
    ticks(at.since(NOW))
}

fn small(number: u64) -> u8 {
    u8::try_from(number).expect("the model's numbers are small")
}
