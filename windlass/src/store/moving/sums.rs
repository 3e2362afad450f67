//! Counts and a checksum of what a store holds, the same whatever kind of store it is.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{MovedJob, MovedKey, MovedWorkflow, Part};
use crate::job::{JobRecord, JobSpec, State};
use crate::store::rules::Entry;

/// What was counted and summed up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums {
    /// Jobs in each state as it is stored, in the order of [`State::ALL`].
    pub states: [u64; 9],
    /// Closed attempts.
    pub attempts: u64,
    /// Log lines.
    pub lines: u64,
    /// Dependencies.
    pub edges: u64,
    /// Workflows.
    pub workflows: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// The sum of a hash of each of them, in any order.
    pub checksum: u64,
}

impl Sums {
    /// All jobs.
    pub fn jobs(&self) -> u64 {
        self.states.iter().sum()
    }

    /// Adds things.
    pub fn add(&mut self, part: &Part) {
        for job in &part.jobs {
            self.states[usize::from(job.entry.job.state.number())] += 1;
            self.attempts += job.attempts.len() as u64;
            self.lines += job.logs.len() as u64;
            self.edges += job.edges.len() as u64;
            self.checksum = self.checksum.wrapping_add(hashed(|hasher| hash_job(job, hasher)));
        }
        for workflow in &part.workflows {
            self.workflows += 1;
            let MovedWorkflow { sequence, id, name, created_at, pruned } = workflow;
            let sum = hashed(|hasher| (sequence, id, name, created_at.as_micros(), pruned).hash(hasher));
            self.checksum = self.checksum.wrapping_add(sum);
        }
        for key in &part.keys {
            self.keys += 1;
            let MovedKey { scope, key, job, fingerprint, until, first_at, expires_at, look_at } = key;
            let times = (first_at, expires_at, look_at);
            let sum = hashed(|hasher| (scope, key, job, fingerprint, until, times).hash(hasher));
            self.checksum = self.checksum.wrapping_add(sum);
        }
    }
}

/// A hash that is the same in every process of this program.
fn hashed(add: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut hasher = DefaultHasher::new();
    add(&mut hasher);
    hasher.finish()
}

/// Everything of a job is taken apart by name: a field that is added later does not compile until it is decided here.
fn hash_job(moved: &MovedJob, hasher: &mut DefaultHasher) {
    // Ends are numbered anew where the stores count differently.
    let MovedJob { entry, ended: _, edges, attempts, logs } = moved;
    let Entry { sequence, job, token, waits, depth } = entry;
    (sequence, depth, waits.all, waits.any).hash(hasher);
    token.map(|token| token.as_uuid()).hash(hasher);
    hash_record(job, hasher);
    let mut edges = edges.clone();
    edges.sort_by_cached_key(|edge| (edge.parent, json(&edge.kind)));
    edges.hash(hasher);
    for (token, attempt) in attempts {
        token.as_uuid().hash(hasher);
        json(attempt).hash(hasher);
    }
    for line in logs {
        (line.version, line.at, &line.text).hash(hasher);
    }
}

fn hash_record(job: &JobRecord, hasher: &mut DefaultHasher) {
    let JobRecord {
        id,
        spec,
        state,
        attempt,
        failures,
        lost,
        generation,
        position,
        inherited_priority,
        created_at,
        updated_at,
        scheduled_at,
        started_at,
        completed_at,
        run_at,
        deadline,
        lease,
        lease_version,
        cancel,
        failure,
        result,
        progress,
        checkpoint,
        workflow_id,
        firing,
        spawned_by,
        reason,
    } = job;
    (id, state.number(), attempt, failures, lost, generation, lease_version).hash(hasher);
    // Elsewhere it is a trace of an earlier place, which not every store keeps.
    (*state == State::Scheduled).then_some(position).hash(hasher);
    (created_at, updated_at, scheduled_at, started_at, completed_at, run_at, deadline).hash(hasher);
    (inherited_priority.map(|priority| priority.number()), workflow_id, spawned_by).hash(hasher);
    for text in [json(lease), json(cancel), json(failure), json(progress), json(firing), json(reason)] {
        text.hash(hasher);
    }
    checkpoint.hash(hasher);
    result.as_ref().map(|result| (result.stored_content_type(), result.as_bytes())).hash(hasher);
    let JobSpec { job_type, queue, payload, priority, depends_on, options, damage } = &**spec;
    (job_type.as_str(), queue.as_str(), priority.number(), damage).hash(hasher);
    (payload.stored_content_type(), payload.as_bytes(), json(depends_on), json(options)).hash(hasher);
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
