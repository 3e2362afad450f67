//! A job as JSON, for programs that show it: the members have the names of the HTTP API.
//!
//! Only one way: a record is made by a store. Data that is not JSON is left out, and so is the checkpoint; their bytes
//! are in the record.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::failure::FailureRecord;
use super::id::{JobId, JobType, QueueName, WorkflowId};
use super::payload::Payload;
use super::record::{CancelAsked, Firing, JobRecord, LeaseInfo, Progress, Reason};
use super::state::State;
use super::{Dependency, Priority};
use crate::time::Timestamp;

#[derive(Serialize)]
struct View<'a> {
    id: JobId,
    #[serde(rename = "type")]
    job_type: &'a JobType,
    queue: &'a QueueName,
    state: State,
    priority: Priority,
    effective_priority: Priority,
    #[serde(skip_serializing_if = "Option::is_none")]
    inherited_priority: Option<Priority>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    attempt: u32,
    failures: u32,
    max_attempts: u32,
    lost: u32,
    generation: u32,
    position: Timestamp,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: &'a Option<LeaseInfo>,
    lease_version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel: &'a Option<CancelAsked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: &'a Option<FailureRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: &'a Option<Progress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow_id: Option<WorkflowId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    firing: &'a Option<Firing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spawned_by: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: &'a Option<Reason>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    depends_on: &'a [Dependency],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a str>,
}

/// The data, if it is JSON.
fn json(data: &Payload) -> Option<&RawValue> {
    data.is_json().then(|| serde_json::from_slice(data.as_bytes()).ok()).flatten()
}

/// What the data is, if it is not JSON.
fn other(data: &Payload) -> Option<&str> {
    json(data).is_none().then(|| data.content_type())
}

impl Serialize for JobRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (spec, options) = (&self.spec, &self.spec.options);
        let view = View {
            id: self.id,
            job_type: &spec.job_type,
            queue: &spec.queue,
            state: self.state,
            priority: spec.priority,
            effective_priority: self.effective_priority(),
            inherited_priority: self.inherited_priority,
            payload: json(&spec.payload),
            content_type: other(&spec.payload),
            attempt: self.attempt,
            failures: self.failures,
            max_attempts: options.retry.max_attempts,
            lost: self.lost,
            generation: self.generation,
            position: self.position,
            created_at: self.created_at,
            updated_at: self.updated_at,
            scheduled_at: self.scheduled_at,
            started_at: self.started_at,
            completed_at: self.completed_at,
            run_at: self.run_at,
            deadline: self.deadline,
            lease: &self.lease,
            lease_version: self.lease_version,
            cancel: &self.cancel,
            failure: &self.failure,
            result: self.result.as_ref().and_then(json),
            result_content_type: self.result.as_ref().and_then(other),
            progress: &self.progress,
            workflow_id: self.workflow_id,
            firing: &self.firing,
            spawned_by: self.spawned_by,
            reason: &self.reason,
            depends_on: &spec.depends_on,
            tags: &options.tags,
            idempotency_key: options.idempotency.as_ref().map(|idempotency| idempotency.key.as_str()),
            correlation_id: options.correlation_id.as_deref(),
        };
        view.serialize(serializer)
    }
}
