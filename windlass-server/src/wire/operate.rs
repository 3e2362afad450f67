//! What operators do: filters, acts, and the steps of long ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::job::{Fingerprint, Idempotency, RequeueOptions, Scope, SimpleState, WINDOW_DEFAULT, WorkerId};
use windlass::store::{
    Act, CALL_MAX, Cursor, Edit as StoredEdit, Filter as StoredFilter, Operated as StoredOperated, Operation, PAGE_MAX,
    Target,
};
use windlass::{Error, JobId, JobType, Priority, QueueName, Result, State, Timestamp, WorkflowId};

use super::problem::Problem;
use super::{Limit, data, names};

/// Which jobs; every condition that is set must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// In one of these states; any unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<names::StateName>)]
    pub state: Vec<State>,
    /// In one of these of the four states for simple tools; not beside `state`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<names::SimpleStateName>)]
    pub simple_state: Vec<SimpleState>,
    /// In this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Of this type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    /// With all of these tags.
    #[serde(default, deserialize_with = "data::labels", skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Of this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub workflow: Option<WorkflowId>,
    /// Fired by the schedule of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// With this correlation id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Whose last failure has this code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Submitted at or after this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created_after: Option<Timestamp>,
    /// Submitted before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created_before: Option<Timestamp>,
    /// Ended before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_before: Option<Timestamp>,
    /// Ended at or after this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_after: Option<Timestamp>,
    /// Changed state for the last time before this moment, which freezes the set: what comes into it later is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub changed_before: Option<Timestamp>,
    /// Dead of this fault; see `/v1/errors`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-7][0-9a-f]{15}$")]
    pub fingerprint: Option<Fingerprint>,
    /// Running under a lease of this worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// That this idempotency key stands for, in any scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// With this text in its payload, in the message of its last failure or in its tags; not for callers from whom payloads
    /// are hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What may be changed of a job. What is left out stays; `null` clears.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// A new priority; not for running or ended jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::PriorityName>)]
    pub priority: Option<Priority>,
    /// New tags in place of the old.
    #[serde(default, deserialize_with = "data::maybe_labels", skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// A new correlation id, or none.
    #[serde(default, deserialize_with = "data::cleared", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 256)]
    pub correlation_id: Option<Option<String>>,
    /// A new callback URL, or none.
    #[serde(default, deserialize_with = "data::cleared", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 2048)]
    pub callback_url: Option<Option<String>>,
}

/// Cancels a job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Whether a running job loses its lease at once instead of being asked to stop.
    #[serde(default)]
    pub force: bool,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Sends a dead job back.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Requeue {
    /// Not before this moment; now unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub run_at: Option<Timestamp>,
    /// Whether `attempt` and `failures` go on instead of starting from 0.
    #[serde(default)]
    pub keep_counters: bool,
    /// Whether the dependents that died of it come along.
    #[serde(default)]
    pub with_dependents: bool,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Copies a job. Without a key the copy has none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneJob {
    /// The copy's own idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
    /// Among which jobs the key is unique; those of the same type unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::ScopeName>)]
    pub idempotency_scope: Option<Scope>,
    /// How long the key holds; 24 h unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_window: Option<Limit>,
}

/// Why an operator acts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// Why, in their words.
    #[serde(default)]
    pub reason: String,
}

/// An act on many jobs: on these (`ids`), or on all that match and can (`filter`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewOperation {
    /// These jobs, up to 10,000; each that cannot is refused with its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<names::Id>>, max_items = 10000)]
    pub ids: Option<Vec<JobId>>,
    /// Those that match; whichever cannot are passed over. `{}` is all jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// What to do.
    pub action: Action,
    /// For `cancel`: whether running jobs lose their lease at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// For `requeue`: not before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub run_at: Option<Timestamp>,
    /// For `requeue`: whether the counters go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_counters: bool,
    /// For `requeue`: whether the dependents that died of it come along.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_dependents: bool,
    /// For `edit`: what to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<Edit>,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Whether only to say how many it would change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// What an operator does to jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Ends them; running ones are asked to stop.
    Cancel,
    /// Sends dead ones back.
    Requeue,
    /// Dead-letters them.
    DeadLetter,
    /// Removes ended ones.
    Delete,
    /// Changes what may be changed.
    Edit,
}

/// One bounded step of an act.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The act.
    pub operation: NewOperation,
    /// How many matching jobs in this step, up to 1,000.
    #[serde(default = "page")]
    #[schema(minimum = 1, maximum = 1000)]
    pub limit: usize,
    /// Where the last step ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

fn page() -> usize {
    PAGE_MAX
}

/// What a step did, or would do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Operated {
    /// Jobs that were changed, or would be.
    pub changed: u64,
    /// Jobs named by id that could not be changed, and why.
    pub refused: Vec<Refused>,
    /// Where to go on; absent when nothing is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A job that could not be changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub id: JobId,
    /// Why not.
    pub problem: Problem,
}

impl TryFrom<Filter> for StoredFilter {
    type Error = Error;

    fn try_from(filter: Filter) -> Result<Self> {
        let simple = &filter.simple_state;
        let states = match (filter.state.is_empty(), simple.is_empty()) {
            (_, true) => filter.state,
            (true, false) => State::ALL.into_iter().filter(|state| simple.contains(&state.simple())).collect(),
            (false, false) => return Err(Error::invalid("simple_state", "and state exclude each other")),
        };
        let mut stored = StoredFilter::new().states(states);
        stored.queue = filter.queue.map(QueueName::new).transpose()?;
        stored.job_type = filter.job_type.map(JobType::new).transpose()?;
        stored.tags = filter.tags;
        stored.workflow = filter.workflow;
        stored.schedule = filter.schedule;
        stored.correlation_id = filter.correlation_id;
        stored.code = filter.code;
        stored.created_from = filter.created_after;
        stored.created_before = filter.created_before;
        stored.ended_before = filter.ended_before;
        stored.ended_from = filter.ended_after;
        stored.changed_before = filter.changed_before;
        stored.fingerprint = filter.fingerprint;
        stored.worker = filter.worker.map(WorkerId::new).transpose()?;
        stored.key = filter.key;
        stored.text = filter.text;
        Ok(stored)
    }
}

impl From<&StoredFilter> for Filter {
    fn from(filter: &StoredFilter) -> Self {
        Filter {
            state: filter.states.clone(),
            simple_state: Vec::new(),
            queue: filter.queue.as_ref().map(ToString::to_string),
            job_type: filter.job_type.as_ref().map(ToString::to_string),
            tags: filter.tags.clone(),
            workflow: filter.workflow,
            schedule: filter.schedule.clone(),
            correlation_id: filter.correlation_id.clone(),
            code: filter.code.clone(),
            created_after: filter.created_from,
            created_before: filter.created_before,
            ended_before: filter.ended_before,
            ended_after: filter.ended_from,
            changed_before: filter.changed_before,
            fingerprint: filter.fingerprint,
            worker: filter.worker.as_ref().map(ToString::to_string),
            key: filter.key.clone(),
            text: filter.text.clone(),
        }
    }
}

impl CloneJob {
    /// The key that the copy shall have.
    pub fn idempotency(self) -> Result<Option<Idempotency>> {
        let stray = self.idempotency_scope.is_some() || self.idempotency_window.is_some();
        match self.idempotency_key {
            None if stray => Err(Error::invalid("idempotency_key", "is missing beside its scope or window")),
            None => Ok(None),
            Some(key) => {
                let window = self.idempotency_window.map_or(Some(WINDOW_DEFAULT), |limit| limit.0);
                Ok(Some(Idempotency::new(key, self.idempotency_scope.unwrap_or_default(), window)))
            }
        }
    }
}

impl From<Edit> for StoredEdit {
    fn from(edit: Edit) -> Self {
        let Edit { priority, tags, correlation_id, callback_url } = edit;
        StoredEdit { priority, tags, correlation_id, callback_url }
    }
}

impl From<StoredEdit> for Edit {
    fn from(edit: StoredEdit) -> Self {
        let StoredEdit { priority, tags, correlation_id, callback_url } = edit;
        Edit { priority, tags, correlation_id, callback_url }
    }
}

impl From<&Requeue> for RequeueOptions {
    fn from(requeue: &Requeue) -> Self {
        let Requeue { run_at, keep_counters, with_dependents, .. } = *requeue;
        RequeueOptions { run_at, keep_counters, with_dependents }
    }
}

impl NewOperation {
    /// The act; refused when a member means nothing beside the action.
    pub fn act(&self) -> Result<Act> {
        let requeue = self.run_at.is_some() || self.keep_counters || self.with_dependents;
        let wrong = [
            ("force", self.force, Action::Cancel),
            ("run_at", requeue, Action::Requeue),
            ("edit", self.edit.is_some(), Action::Edit),
        ];
        if let Some((member, ..)) = wrong.iter().find(|(_, given, action)| *given && *action != self.action) {
            return Err(Error::invalid("action", format!("{member} does not go with it")));
        }
        Ok(match self.action {
            Action::Cancel => Act::Cancel { force: self.force },
            Action::Requeue => Act::Requeue(RequeueOptions {
                run_at: self.run_at,
                keep_counters: self.keep_counters,
                with_dependents: self.with_dependents,
            }),
            Action::DeadLetter => Act::DeadLetter,
            Action::Delete => Act::Delete,
            Action::Edit => {
                let edit = self.edit.clone().ok_or_else(|| Error::invalid("edit", "is missing"))?;
                let edit = StoredEdit::from(edit);
                edit.check()?;
                Act::Edit(edit)
            }
        })
    }

    /// One step of it: `limit` matching jobs after a cursor, or the jobs that it names.
    pub fn step(&self, limit: usize, after: Option<Cursor>, by: Option<String>) -> Result<Operation> {
        let target = match (&self.ids, &self.filter) {
            (Some(ids), None) if ids.len() > CALL_MAX => {
                let problem = format!("must be at most {CALL_MAX}, are {}", ids.len());
                return Err(Error::invalid("ids", problem));
            }
            (Some(ids), None) => Target::Jobs(ids.clone()),
            (None, Some(filter)) if (1..=PAGE_MAX).contains(&limit) => {
                Target::Matching { filter: filter.clone().try_into()?, limit, after }
            }
            (None, Some(_)) => return Err(Error::invalid("limit", format!("must be 1 to {PAGE_MAX}, is {limit}"))),
            _ => return Err(Error::invalid("filter", "either ids or filter must be given")),
        };
        Ok(Operation { target, act: self.act()?, by, why: self.reason.clone(), dry_run: self.dry_run })
    }

    /// An operation as a request that does the same.
    pub fn of(operation: &Operation) -> Result<Self> {
        let (ids, filter) = match &operation.target {
            Target::Jobs(ids) => (Some(ids.clone()), None),
            Target::Matching { filter, .. } => (None, Some(Filter::from(filter))),
        };
        let plain = NewOperation {
            ids,
            filter,
            action: Action::Cancel,
            force: false,
            run_at: None,
            keep_counters: false,
            with_dependents: false,
            edit: None,
            reason: operation.why.clone(),
            dry_run: operation.dry_run,
        };
        Ok(match &operation.act {
            Act::Cancel { force } => NewOperation { force: *force, ..plain },
            Act::Requeue(RequeueOptions { run_at, keep_counters, with_dependents }) => NewOperation {
                action: Action::Requeue,
                run_at: *run_at,
                keep_counters: *keep_counters,
                with_dependents: *with_dependents,
                ..plain
            },
            Act::DeadLetter => NewOperation { action: Action::DeadLetter, ..plain },
            Act::Delete => NewOperation { action: Action::Delete, ..plain },
            Act::Edit(edit) => NewOperation { action: Action::Edit, edit: Some(edit.clone().into()), ..plain },
            other => return Err(Error::invalid("action", format!("{} cannot be asked for over HTTP", other.name()))),
        })
    }
}

impl From<&StoredOperated> for Operated {
    fn from(operated: &StoredOperated) -> Self {
        let refused = |(id, error): &(JobId, Error)| Refused { id: *id, problem: Problem::of(error) };
        Operated {
            changed: operated.changed,
            refused: operated.refused.iter().map(refused).collect(),
            next_cursor: operated.next.as_ref().map(|cursor| cursor.0.clone()),
        }
    }
}

impl From<Operated> for StoredOperated {
    fn from(operated: Operated) -> Self {
        let refused = |refused: Refused| (refused.id, refused.problem.into_error("operate"));
        let mut stored = StoredOperated::default();
        stored.changed = operated.changed;
        stored.refused = operated.refused.into_iter().map(refused).collect();
        stored.next = operated.next_cursor.map(Cursor);
        stored
    }
}
