//! A stored job as everybody sees it, and how decisions change it.
//!
//! The methods that change a record are the reference for what a store must write: the memory store calls them as they
//! are, SQL stores write the same columns.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Priority;
use super::attempt::{AttemptRecord, Outcome};
use super::damage::Damage;
use super::failure::{FailureRecord, cut};
use super::id::{AttemptId, JobId, WorkerId, WorkflowId};
use super::payload::Payload;
use super::spec::JobSpec;
use super::state::{Event, IllegalTransition, State};
use super::verdict::Verdict;
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// How many attempts of a job are kept, newest first.
pub const ATTEMPTS_KEPT: usize = 100;
/// How many log lines of an attempt are kept, newest first.
pub const LOG_LINES_MAX: usize = 1000;
/// Longest log line, in bytes; longer ones are cut.
pub const LOG_LINE_BYTES_MAX: usize = 4 * 1024;
/// Longest progress message, in characters; a line on a screen.
pub const PROGRESS_CHARS_MAX: usize = 256;
/// Longest name or remark of an operator, in bytes; longer ones are cut.
pub(crate) const REMARK_BYTES_MAX: usize = 1024;

/// A stored job: what was submitted, and what has become of it.
///
/// Written as JSON it has the members of the HTTP API, but no data that is not JSON.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct JobRecord {
    /// Its identity.
    pub id: JobId,
    /// What was submitted; priority, tags, correlation id and callback URL as edited since.
    pub spec: Arc<JobSpec>,
    /// Where it stands.
    pub state: State,
    /// How often it was started; 0 before the first.
    pub attempt: u32,
    /// Closed attempts that count.
    pub failures: u32,
    /// Attempts lost to an expired lease, since submission or requeue.
    pub lost: u32,
    /// How often it was requeued.
    pub generation: u32,
    /// The moment that gives its place among the SCHEDULED jobs of its priority; ties go by submission.
    pub position: Timestamp,
    /// The most urgent priority among the jobs it depends on, if it inherits one.
    pub inherited_priority: Option<Priority>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When its state last changed.
    pub updated_at: Timestamp,
    /// When it last became SCHEDULED.
    pub scheduled_at: Option<Timestamp>,
    /// When its current or last attempt started.
    pub started_at: Option<Timestamp>,
    /// When it became terminal.
    pub completed_at: Option<Timestamp>,
    /// Until when it waits: while DELAYED or RETRYING, or PENDING with a later first run.
    pub run_at: Option<Timestamp>,
    /// When its lifetime ends.
    pub deadline: Option<Timestamp>,
    /// Who holds it, while RUNNING. The token is shown to nobody but the holder.
    pub lease: Option<LeaseInfo>,
    /// The version of the newest lease; 0 before the first.
    pub lease_version: u64,
    /// That its holder was asked to stop.
    pub cancel: Option<CancelAsked>,
    /// Its last failure.
    pub failure: Option<FailureRecord>,
    /// What its handler returned.
    pub result: Option<Payload>,
    /// How far its handler says it is.
    pub progress: Option<Progress>,
    /// What its handler last saved, for the next attempt.
    pub checkpoint: Option<Bytes>,
    /// The workflow it belongs to.
    pub workflow_id: Option<WorkflowId>,
    /// The firing it comes from.
    pub firing: Option<Firing>,
    /// The job that spawned it.
    pub spawned_by: Option<JobId>,
    /// Why it is terminal.
    pub reason: Option<Reason>,
}

/// Who holds a running job, and until when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// The lease's number.
    pub version: u64,
    /// When it ends unless it is extended.
    pub expires_at: Timestamp,
    /// The worker that claimed.
    pub worker: WorkerId,
}

impl LeaseInfo {
    /// A lease of this number, until then, of this worker.
    pub fn new(version: u64, expires_at: Timestamp, worker: WorkerId) -> Self {
        LeaseInfo { version, expires_at, worker }
    }
}

/// That somebody asked a running job to stop.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CancelAsked {
    /// Who asked.
    pub by: Option<String>,
    /// Why.
    pub message: Option<String>,
    /// When.
    pub at: Timestamp,
}

impl CancelAsked {
    /// Notes who asked, why and when.
    pub fn new(by: Option<&str>, why: &str, at: Timestamp) -> Self {
        let Reason { by, message, .. } = Reason::of(ReasonKind::Cancelled).by(by).saying(why);
        CancelAsked { by, message, at }
    }

    /// The reason of a job that ends because of it.
    pub fn reason(&self) -> Reason {
        Reason { by: self.by.clone(), message: self.message.clone(), ..Reason::of(ReasonKind::Cancelled) }
    }
}

/// Which schedule fired the job, and for which moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Firing {
    /// The schedule's name.
    pub schedule: String,
    /// The nominal time: the slot that the job stands for.
    pub slot: Timestamp,
}

impl Firing {
    /// The firing of a schedule for a slot.
    pub fn new(schedule: impl Into<String>, slot: Timestamp) -> Self {
        Firing { schedule: schedule.into(), slot }
    }
}

/// How far a handler says it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// From 0 to 1.
    pub fraction: f64,
    /// A few words.
    pub message: String,
}

impl Progress {
    /// Checks the fraction and cuts nothing: a message over 256 characters is refused.
    pub fn new(fraction: f64, message: impl Into<String>) -> Result<Self> {
        let message = message.into();
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::invalid("progress", format!("fraction must be 0 to 1, is {fraction}")));
        }
        super::check_chars("progress", &message, PROGRESS_CHARS_MAX)?;
        Ok(Progress { fraction, message })
    }
}

/// One line that a handler logged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LogLine {
    /// The attempt that logged it.
    pub attempt: AttemptId,
    /// When it reached the store.
    pub at: Timestamp,
    /// The line, at most 4 KiB.
    pub text: String,
}

impl LogLine {
    /// A line of an attempt.
    pub fn new(attempt: AttemptId, at: Timestamp, text: impl Into<String>) -> Self {
        LogLine { attempt, at, text: text.into() }
    }
}

/// Why a job is terminal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reason {
    /// Which of the contract's reasons.
    pub kind: ReasonKind,
    /// Who wanted it, where somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// In their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// For [`ReasonKind::Dependency`]: the job it began with. For [`ReasonKind::Replaced`]: the job in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<JobId>,
}

impl Reason {
    /// A reason that nobody in particular wanted.
    pub fn of(kind: ReasonKind) -> Self {
        Reason { kind, by: None, message: None, cause: None }
    }

    pub(super) fn by(mut self, by: Option<&str>) -> Self {
        self.by = by.filter(|by| !by.is_empty()).map(|by| cut(by.to_owned(), REMARK_BYTES_MAX));
        self
    }

    pub(super) fn saying(mut self, why: &str) -> Self {
        self.message = Some(why).filter(|why| !why.is_empty()).map(|why| cut(why.to_owned(), REMARK_BYTES_MAX));
        self
    }
}

/// The contract's reasons for being terminal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasonKind {
    /// A permanent failure, or a category that is not retried.
    Permanent,
    /// The attempts ran out.
    Exhausted,
    /// The lifetime ran out.
    Lifetime,
    /// A job it depends on ended badly.
    Dependency,
    /// Its handler or an operator dead-lettered it.
    Explicit,
    /// It was cancelled.
    Cancelled,
    /// A newer submission with its idempotency key took its place before it was claimed.
    Replaced,
}

impl ReasonKind {
    /// All seven.
    pub const ALL: &[ReasonKind] = &[
        ReasonKind::Permanent,
        ReasonKind::Exhausted,
        ReasonKind::Lifetime,
        ReasonKind::Dependency,
        ReasonKind::Explicit,
        ReasonKind::Cancelled,
        ReasonKind::Replaced,
    ];

    /// Lower case, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            ReasonKind::Permanent => "permanent",
            ReasonKind::Exhausted => "exhausted",
            ReasonKind::Lifetime => "lifetime",
            ReasonKind::Dependency => "dependency",
            ReasonKind::Explicit => "explicit",
            ReasonKind::Cancelled => "cancelled",
            ReasonKind::Replaced => "replaced",
        }
    }
}

/// How a requeued job comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequeueOptions {
    /// Not before this moment; `None` for now.
    pub run_at: Option<Timestamp>,
    /// Whether `attempt` and `failures` go on instead of starting from 0.
    pub keep_counters: bool,
    /// Whether the dependents that died of it come along.
    pub with_dependents: bool,
}

/// The end of a lease that is held to the job's lifetime and to the execution timeout of the attempt; for stores that know
/// no more of a job than that.
pub fn lease_end_within(end: Timestamp, deadline: Option<Timestamp>, limit: Option<Timestamp>) -> Timestamp {
    [deadline, limit].into_iter().flatten().fold(end, Timestamp::min)
}

impl JobRecord {
    /// Notes what could not be read of its rows.
    pub fn add_damage(&mut self, damage: Damage) {
        if !damage.is_none() {
            Arc::make_mut(&mut self.spec).add_damage(damage);
        }
    }

    /// A job as it is submitted at `now`, before anything is known of its dependencies or its first run: PENDING.
    pub fn submitted(id: JobId, spec: Arc<JobSpec>, now: Timestamp) -> Self {
        JobRecord {
            id,
            state: State::Pending,
            attempt: 0,
            failures: 0,
            lost: 0,
            generation: 0,
            position: now,
            inherited_priority: None,
            created_at: now,
            updated_at: now,
            scheduled_at: None,
            started_at: None,
            completed_at: None,
            run_at: None,
            deadline: spec.deadline(now),
            spec,
            lease: None,
            lease_version: 0,
            cancel: None,
            failure: None,
            result: None,
            progress: None,
            checkpoint: None,
            workflow_id: None,
            firing: None,
            spawned_by: None,
            reason: None,
        }
    }

    /// A claim (S5, L1): attempt and version go up, and the lease ends with the lifetime at the latest.
    ///
    /// `lease_time` of `None` is the job's visibility timeout.
    pub fn claim(
        &mut self,
        worker: &WorkerId,
        lease_time: Option<Duration>,
        now: Timestamp,
    ) -> Result<(), IllegalTransition> {
        self.state = self.state.after(Event::Claimed)?;
        self.attempt = self.attempt.saturating_add(1);
        self.lease_version += 1;
        self.started_at = Some(now);
        self.updated_at = now;
        let expires_at = self.lease_end(lease_time, now);
        self.lease = Some(LeaseInfo { version: self.lease_version, expires_at, worker: worker.clone() });
        Ok(())
    }

    /// When a lease taken or extended now ends: after the lease time, but never after the lifetime, nor after the execution
    /// timeout and its notice (rule T1b).
    ///
    /// So a lease on a job that has outlived one of these has expired, and every fenced write is refused.
    pub fn lease_end(&self, lease_time: Option<Duration>, now: Timestamp) -> Timestamp {
        let end = now.plus(lease_time.unwrap_or(self.spec.options.timeouts.visibility));
        lease_end_within(end, self.deadline, self.lease_limit())
    }

    /// The moment beyond which no lease of the present attempt is extended (rule T1b); `None` for no limit.
    pub fn lease_limit(&self) -> Option<Timestamp> {
        Some(self.started_at?.plus(self.spec.options.timeouts.lease_max()?))
    }

    /// Whether its lease ended because the attempt ran longer than its execution timeout: it was held to the last moment.
    pub fn ran_too_long(&self) -> bool {
        let end = self.lease.as_ref().map(|lease| lease.expires_at);
        end.zip(self.lease_limit()).is_some_and(|(end, limit)| end >= limit)
    }

    /// A heartbeat (L5): the lease ends later, never earlier.
    pub fn extend(&mut self, lease_time: Option<Duration>, now: Timestamp) {
        let end = self.lease_end(lease_time, now);
        if let Some(lease) = &mut self.lease {
            lease.expires_at = lease.expires_at.max(end);
        }
    }

    /// Applies a decision: the state it leads to, and everything that changes with it.
    ///
    /// Gives the closed attempt when the job was running. `outcome` is what the holder said, or what befell it.
    pub fn apply(
        &mut self,
        verdict: &Verdict,
        outcome: Outcome,
        now: Timestamp,
    ) -> Result<Option<AttemptRecord>, IllegalTransition> {
        let next = self.state.after(verdict.event)?;
        let failure = verdict.failure.as_ref().map(|failure| failure.recorded(now));
        let attempt = self.open_attempt().map(|open| AttemptRecord {
            ended_at: Some(now),
            outcome: Some(outcome),
            failure: failure.clone(),
            ..open
        });
        self.failures += u32::from(verdict.counted);
        self.lost += u32::from(verdict.lost);
        self.lease = None;
        if failure.is_some() || next == State::Completed {
            self.failure = failure;
        }
        match next {
            State::Delayed | State::Retrying => self.run_at = Some(now.plus(verdict.delay.unwrap_or_default())),
            State::Scheduled => self.enter_scheduled(now),
            State::Pending => {}
            State::Completed | State::Failed | State::DeadLetter | State::Cancelled => {
                self.completed_at = Some(now);
                self.reason = self.cancel_reason(verdict).or_else(|| verdict.reason.clone());
                self.cancel = None;
                self.run_at = None;
            }
            State::Running => unreachable!("only a claim leads to RUNNING"),
        }
        self.state = next;
        self.updated_at = now;
        Ok(attempt)
    }

    /// Who asked for the cancel that a settlement carries out.
    fn cancel_reason(&self, verdict: &Verdict) -> Option<Reason> {
        self.cancel.as_ref().filter(|_| verdict.event == Event::CancelSettled).map(CancelAsked::reason)
    }

    fn enter_scheduled(&mut self, at: Timestamp) {
        self.position = at;
        self.scheduled_at = Some(at);
        self.run_at = None;
    }

    /// `run_at` was reached (S4): scheduled from that very moment, whenever it was noticed.
    pub fn fall_due(&mut self) -> Result<(), IllegalTransition> {
        self.state = self.state.after(Event::Due)?;
        let at = self.run_at.unwrap_or(self.updated_at);
        self.enter_scheduled(at);
        self.updated_at = at;
        Ok(())
    }

    /// The last dependency was met (S2).
    pub fn dependencies_met(&mut self, now: Timestamp) -> Result<(), IllegalTransition> {
        if self.run_at.is_some_and(|run_at| run_at > now) {
            self.state = self.state.after(Event::DependenciesMetEarly)?;
        } else {
            self.state = self.state.after(Event::DependenciesMet)?;
            self.enter_scheduled(now);
        }
        self.updated_at = now;
        Ok(())
    }

    /// An operator sends a dead job back (S16). `waits` says that a dependency is unfinished.
    pub fn requeue(&mut self, options: &RequeueOptions, waits: bool, now: Timestamp) -> Result<()> {
        let run_at = options.run_at.filter(|run_at| *run_at > now);
        let event = match (waits, run_at) {
            (true, _) => Event::RequeuedPending,
            (false, Some(_)) => Event::RequeuedLater,
            (false, None) => Event::Requeued,
        };
        let illegal = |_| Error::IllegalState { job: self.id, state: self.state, wanted: "requeue" };
        let next = self.state.after(event).map_err(illegal)?;
        let deadline = self.spec.deadline_with(now, run_at);
        if let (Some(run_at), Some(deadline)) = (run_at, deadline)
            && run_at >= deadline
        {
            return Err(Error::invalid(
                "run_at",
                format!("{run_at} lies beyond the job's lifetime, which ends at {deadline}"),
            ));
        }
        self.state = next;
        self.generation = self.generation.saturating_add(1);
        if !options.keep_counters {
            self.attempt = 0;
            self.failures = 0;
            self.lost = 0;
        } else {
            // Kept counters must leave room for one more run, or the job would die of the failures it came back with.
            self.failures = self.failures.min(self.spec.options.retry.max_attempts - 1);
        }
        self.deadline = deadline;
        self.reason = None;
        self.completed_at = None;
        self.result = None;
        self.run_at = run_at;
        if next == State::Scheduled {
            self.enter_scheduled(now);
        }
        self.updated_at = now;
        Ok(())
    }

    /// The attempt that is running now, if one is.
    pub fn open_attempt(&self) -> Option<AttemptRecord> {
        let lease = self.lease.as_ref()?;
        let previous = lease.version.checked_sub(1).filter(|version| *version > 0);
        Some(AttemptRecord {
            id: AttemptId::of(self.id, lease.version),
            previous: previous.map(|version| AttemptId::of(self.id, version)),
            number: self.attempt,
            generation: self.generation,
            lease_version: lease.version,
            worker: lease.worker.clone(),
            started_at: self.started_at.unwrap_or(self.updated_at),
            ended_at: None,
            outcome: None,
            failure: None,
        })
    }

    /// The most urgent of its own priority and the one it inherits (W3).
    pub fn effective_priority(&self) -> Priority {
        let own = self.spec.priority;
        self.inherited_priority.map_or(own, |inherited| inherited.min(own))
    }

    /// When it may be removed after its end, where that was said for it (O4): `None` when the store's own retention decides,
    /// and the last moment of all when it is kept until it is deleted.
    pub fn prune_at(&self) -> Option<Timestamp> {
        self.spec.options.retention.prune_at(self.state, self.completed_at?)
    }

    /// The order in which SCHEDULED jobs of one queue are claimed (D5); `sequence` counts submissions.
    pub fn claim_order(&self, sequence: i64) -> (Priority, Timestamp, i64) {
        (self.effective_priority(), self.position, sequence)
    }

    /// The job that this one's bad end began with: itself, unless it died of a dependency (W2).
    pub fn root_cause(&self) -> JobId {
        let reason = self.reason.as_ref().filter(|reason| reason.kind == ReasonKind::Dependency);
        reason.and_then(|reason| reason.cause).unwrap_or(self.id)
    }

    /// Whether it was ever claimed.
    pub fn was_claimed(&self) -> bool {
        self.lease_version > 0
    }
}
