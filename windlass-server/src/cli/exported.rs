//! Jobs as `windlass jobs export` writes them, read back: the same work under new ids, linked to the originals.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;
use windlass::job::Timeouts;
use windlass::{JobId, State, Timestamp};

use super::exit::End;
use crate::wire;

/// What tells an exported job from one that was written by hand.
#[derive(Deserialize)]
struct Mark {
    id: Option<JobId>,
    state: Option<State>,
    #[serde(default)]
    payload_hidden: bool,
    run_at: Option<Timestamp>,
    deadline: Option<Timestamp>,
}

/// Whether a line was written by `jobs export`.
pub(crate) fn is_one(line: &str) -> bool {
    serde_json::from_str::<Mark>(line).is_ok_and(|mark| mark.id.is_some() && mark.state.is_some())
}

/// An exported job, to be enqueued.
#[derive(Debug)]
pub(crate) struct Exported {
    pub(crate) id: JobId,
    pub(crate) state: State,
    pub(crate) job: wire::NewJob,
}

/// What an export says of a job that a new job may say, too. The rest is its history; so is how it was debounced, since that
/// has already decided when it runs.
const KEPT: [&str; 24] = [
    "type",
    "queue",
    "payload",
    "payload_base64",
    "content_type",
    "priority",
    "max_attempts",
    "retry",
    "execution_timeout",
    "visibility_timeout",
    "lifetime",
    "retention",
    "idempotency_key",
    "idempotency_scope",
    "idempotency_window",
    "idempotency_until",
    "on_existing",
    "key",
    "depends_on",
    "own_priority_only",
    "tags",
    "correlation_id",
    "callback_url",
    "trace_context",
];

/// Reads a line. Its own id becomes the `ref` by which other jobs of the file may wait for it.
pub(crate) fn read(line: &str, now: Timestamp) -> Result<Exported, End> {
    let refused = |error: serde_json::Error| End::usage(error.to_string());
    let mark: Mark = serde_json::from_str(line).map_err(refused)?;
    let Mark { id: Some(id), state: Some(state), payload_hidden, run_at, deadline } = mark else {
        return Err(End::usage("it has no id and state"));
    };
    if payload_hidden {
        return Err(End::usage("its payload was left out of the export")
            .advise("export with a token that may see payloads, or from the store itself"));
    }
    // As it was written: numbers in a payload may be larger than any of ours.
    let mut members: BTreeMap<&str, &RawValue> = serde_json::from_str(line).map_err(refused)?;
    members.retain(|name, _| KEPT.contains(name));
    let text = serde_json::to_string(&members).map_err(refused)?;
    let mut job: wire::NewJob = serde_json::from_str(&text).map_err(refused)?;
    job.reference = Some(id.to_string());
    job.cloned_from = Some(id);
    job.run_at = run_at.filter(|_| matches!(state, State::Delayed | State::Retrying));
    if let (Some(run_at), Some(deadline)) = (job.run_at, deadline) {
        job.lifetime = job.lifetime.and_then(|lifetime| still(lifetime, run_at, deadline, now));
    }
    Ok(Exported { id, state, job })
}

/// The lifetime of a job that is enqueued again. One that nobody named counts from the first run, and so it does here; written
/// out, it would count from now on, and might end before that run.
fn still(lifetime: wire::Limit, run_at: Timestamp, deadline: Timestamp, now: Timestamp) -> Option<wire::Limit> {
    match lifetime.0 {
        Some(time) if deadline < run_at.plus(time) => Some(lifetime),
        standard if standard == Timeouts::default().lifetime => None,
        other => Some(wire::Limit(other.map(|time| time + run_at.since(now)))),
    }
}

/// Turns dependencies on old ids into ones that hold here: jobs of the same batch by their `ref`, jobs of earlier batches by
/// their new ids. What is in neither had ended when the file was written, or was left out of it, and is not waited for.
pub(crate) fn link(jobs: &mut [Exported], stored: &HashMap<JobId, JobId>) -> usize {
    let here: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let mut dropped = 0;
    for exported in jobs {
        exported.job.depends_on.retain_mut(|dependency| {
            let Some(old) = dependency.job else { return true };
            if here.contains(&old) {
                (dependency.job, dependency.reference) = (None, Some(old.to_string()));
                return true;
            }
            dependency.job = stored.get(&old).copied();
            dropped += usize::from(dependency.job.is_none());
            dependency.job.is_some()
        });
    }
    dropped
}
