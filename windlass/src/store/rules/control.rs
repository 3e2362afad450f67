//! Flow control across jobs: what is recorded of a change, what a settlement holds, and which keys a claim must look at anew.

use super::changes::{Changes, GateHold};
use super::set::WorkingSet;
use crate::flow::{ControlChange, ControlEdit, GateName, HOLD_MAX};
use crate::job::{Hold, HoldScope, JobId, QueueName, State};
use crate::store::answer::{ActRecord, Wake};
use crate::time::Timestamp;

/// What is recorded of a change to a queue's control, and the hint to send with it: more may start now.
pub fn controlled(
    edit: &ControlEdit,
    change: &ControlChange,
    by: Option<&str>,
    now: Timestamp,
) -> Option<(ActRecord, Wake)> {
    let (act, target, by) = (change.act?.to_owned(), change.target.clone(), by.map(str::to_owned));
    let act = ActRecord { at: now, by, act, target, changed: 1, why: edit.why.clone() }.kept();
    Some((act, Wake::Scheduled(edit.queue.clone())))
}

/// Holds a gate of a job that is settled (rule K8).
pub(super) fn hold(set: &mut WorkingSet, id: JobId, hold: Hold) {
    let spec = &set.job(id).spec;
    let gate = match (hold.scope, &spec.options.key) {
        (HoldScope::Queue, _) => GateName::Queue,
        (HoldScope::Type, _) => GateName::Type(spec.job_type.clone()),
        (HoldScope::Key, Some(key)) => GateName::Key(key.clone()),
        (HoldScope::Key, None) => return,
    };
    let queue = spec.queue.clone();
    let until = set.now.plus(hold.time.min(HOLD_MAX));
    set.changes.holds.push(GateHold { queue, gate, until });
}

/// The keys of queues that a claim must look at anew, should these be controlled: a job of theirs left RUNNING, ended, or
/// came back. A job without a key counts under the empty one.
pub fn touched(changes: &Changes) -> Vec<(QueueName, String)> {
    let mut touched = Vec::new();
    let changed = changes.changed.iter().filter(|change| {
        let was = change.before.job.state;
        was != change.after.job.state && (was == State::Running || change.after.job.spec.options.key.is_some())
    });
    let jobs = changed.map(|change| &change.after).chain(&changes.removed);
    for entry in jobs {
        let spec = &entry.job.spec;
        touched.push((spec.queue.clone(), spec.options.key.clone().unwrap_or_default()));
    }
    touched.sort();
    touched.dedup();
    touched
}
