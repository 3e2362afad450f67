//! How a lease holder ends attempts.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use windlass::client::{Ended, Report};
use windlass::job::{Hold, LeaseKey, LeaseToken, Outcome as StoredOutcome, Settlement as StoredSettlement, Stale};
use windlass::store::Settled as StoredSettled;
use windlass::{Category, Client, Error, Failure as Said, JobId, Result, State, Timestamp};

use super::control::FailureHold;
use super::data::{self, Data};
use super::names;
use super::new_job::NewJob;
use super::problem::Problem;
use super::{Span, check_jobs};

/// Settlements of up to 10,000 leases; one bad entry does not fail the others.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    /// The settlements.
    #[schema(min_items = 1, max_items = 10000)]
    pub settlements: Vec<Settlement>,
}

/// What a lease holder decides about its job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// The token of its lease.
    #[schema(value_type = String, format = "uuid")]
    pub token: LeaseToken,
    /// How the attempt ended.
    pub outcome: SettleOutcome,
    /// For `completed`: the result, any JSON value.
    #[serde(default, deserialize_with = "data::present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub result: Option<Box<RawValue>>,
    /// For `completed`: a result that is no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_base64: Option<String>,
    /// What `result_base64` holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_content_type: Option<String>,
    /// For `failed` and `dead_lettered`: what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<NewFailure>,
    /// For `snoozed`: how long to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snooze: Option<Span>,
    /// For `completed`: jobs to be stored in the same transaction, at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub spawn: Vec<NewJob>,
}

/// What a lease holder can say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleOutcome {
    /// The work is done.
    Completed,
    /// It failed; the category and the job's policy decide what follows.
    Failed,
    /// It failed, and the job goes to the dead-letter queue.
    DeadLettered,
    /// Not now: again after `snooze`, and nothing is counted.
    Snoozed,
    /// The job ends as cancelled.
    Cancelled,
    /// Given back before work began; nothing is counted.
    Released,
    /// Given back because the worker shuts down.
    Interrupted,
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewFailure {
    /// What kind it is; `temporary` unless said.
    #[serde(default = "temporary")]
    #[schema(value_type = Option<names::CategoryName>)]
    pub category: Category,
    /// A code for filters and alerts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Words for people; cut at 8 KiB.
    pub message: String,
    /// What caused it, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// Try again after this long instead of the computed backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Span>,
    /// Start nothing more of the job's queue, type or key for this long, where its queue is controlled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<FailureHold>,
}

fn temporary() -> Category {
    Category::Temporary
}

/// What became of the settlements, in order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SettleAnswer {
    /// One for each settlement.
    pub settled: Vec<Settled>,
}

/// What became of a settlement.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Settled {
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// What became of it.
    pub status: SettledStatus,
    /// For `applied`: the job's state now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::StateName>)]
    pub state: Option<State>,
    /// For `stale`: why the lease does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::StaleName>)]
    pub stale: Option<Stale>,
    /// For `refused`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Box<Problem>>,
}

/// What can become of a settlement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettledStatus {
    /// It was written.
    Applied,
    /// The same settlement had been written before.
    AlreadyApplied,
    /// The lease does not hold; nothing was changed.
    Stale,
    /// It cannot be written as it is; nothing was changed.
    Refused,
}

impl Settlement {
    /// What the lease holder says, as the library takes it.
    pub fn report(self, client: &Client) -> Result<Report> {
        self.check_members()?;
        let Settlement { result: json, result_base64: base64, result_content_type: content_type, .. } = self;
        let ended = match self.outcome {
            SettleOutcome::Completed => Ended::Completed(data::join("result", Data { json, base64, content_type })?),
            SettleOutcome::Failed | SettleOutcome::DeadLettered => {
                let failure = self.failure.ok_or_else(|| Error::invalid("failure", "is missing"))?;
                Ended::Failed(failure.said(self.outcome == SettleOutcome::DeadLettered))
            }
            SettleOutcome::Snoozed => {
                Ended::Snoozed(self.snooze.ok_or_else(|| Error::invalid("snooze", "is missing"))?.0)
            }
            SettleOutcome::Cancelled => Ended::Cancelled,
            SettleOutcome::Released => Ended::Released,
            SettleOutcome::Interrupted => Ended::Interrupted,
        };
        let lease = LeaseKey { job: self.id, token: self.token };
        Ok(Report { lease, ended, spawn: check_jobs(self.spawn, client)? })
    }

    /// Refuses members that mean nothing beside the outcome: they would be lost in silence.
    fn check_members(&self) -> Result<()> {
        let completed = self.outcome == SettleOutcome::Completed;
        let failed = matches!(self.outcome, SettleOutcome::Failed | SettleOutcome::DeadLettered);
        let wrong = [
            ("result", self.result.is_some() || self.result_base64.is_some(), completed),
            ("failure", self.failure.is_some(), failed),
            ("snooze", self.snooze.is_some(), self.outcome == SettleOutcome::Snoozed),
        ];
        match wrong.into_iter().find(|(_, given, fits)| *given && !fits) {
            Some((field, ..)) => Err(Error::invalid(field, "does not go with this outcome")),
            None => Ok(()),
        }
    }

    /// A settlement as a request that decides the same.
    pub fn of(settlement: &StoredSettlement) -> Self {
        let key = settlement.key();
        let outcome = match settlement.outcome() {
            StoredOutcome::Completed => SettleOutcome::Completed,
            StoredOutcome::Failed => SettleOutcome::Failed,
            StoredOutcome::DeadLettered => SettleOutcome::DeadLettered,
            StoredOutcome::Snoozed => SettleOutcome::Snoozed,
            StoredOutcome::Cancelled => SettleOutcome::Cancelled,
            StoredOutcome::Released => SettleOutcome::Released,
            // Interrupted, and what no holder says: the job is given back, and nothing is counted.
            _ => SettleOutcome::Interrupted,
        };
        let verdict = settlement.verdict(false);
        let failed = matches!(outcome, SettleOutcome::Failed | SettleOutcome::DeadLettered);
        let failure = verdict.failure.as_ref().filter(|_| failed);
        let Data { json, base64, content_type } = settlement.result().map(data::split).unwrap_or_default();
        Settlement {
            id: key.job,
            token: key.token,
            outcome,
            result: json,
            result_base64: base64,
            result_content_type: content_type,
            failure: failure.map(|failure| NewFailure::of(failure, verdict.delay, settlement.held())),
            snooze: verdict.delay.filter(|_| outcome == SettleOutcome::Snoozed).map(Span::from),
            spawn: NewJob::of_specs(settlement.children()),
        }
    }
}

impl NewFailure {
    fn said(self, dead_letter: bool) -> Said {
        let failure = if dead_letter {
            Said::dead_letter(self.code.unwrap_or_else(|| "dead_letter".to_owned()), self.message)
        } else {
            Said::new(self.category, self.code, self.message)
        };
        let failure = failure.with_causes(self.causes);
        let failure = match self.hold {
            None => failure,
            Some(hold) => failure.hold(hold.scope, hold.time.0),
        };
        match self.retry_after {
            None => failure,
            Some(delay) => failure.retry_after(delay.0),
        }
    }

    /// What was said, with the delay that its holder drew, so that the other side draws none.
    fn of(failure: &Said, delay: Option<Duration>, hold: Option<Hold>) -> Self {
        let kept = failure.recorded(Timestamp::EPOCH);
        NewFailure {
            category: kept.category,
            code: kept.code,
            message: kept.message,
            causes: kept.causes,
            retry_after: delay.map(Span::from),
            hold: hold.map(FailureHold::from),
        }
    }
}

impl Settled {
    /// The store's answer for a job.
    pub fn of(id: JobId, settled: &StoredSettled) -> Self {
        let plain = |status| Settled { id, status, state: None, stale: None, problem: None };
        match settled {
            StoredSettled::Applied(state) => Settled { state: Some(*state), ..plain(SettledStatus::Applied) },
            StoredSettled::AlreadyApplied => plain(SettledStatus::AlreadyApplied),
            StoredSettled::Stale(stale) => Settled { stale: Some(*stale), ..plain(SettledStatus::Stale) },
            StoredSettled::Refused(error) => {
                Settled { problem: Some(Box::new(Problem::of(error))), ..plain(SettledStatus::Refused) }
            }
        }
    }

    /// What the store answered.
    pub fn into_stored(self) -> Result<StoredSettled> {
        let missing = || Error::store("read the server's answer", "a settlement's answer is not complete");
        Ok(match self.status {
            SettledStatus::Applied => StoredSettled::Applied(self.state.ok_or_else(missing)?),
            SettledStatus::AlreadyApplied => StoredSettled::AlreadyApplied,
            SettledStatus::Stale => StoredSettled::Stale(self.stale.ok_or_else(missing)?),
            SettledStatus::Refused => StoredSettled::Refused(self.problem.ok_or_else(missing)?.into_error("settle")),
        })
    }
}
