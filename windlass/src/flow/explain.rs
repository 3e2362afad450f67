//! Why a waiting job of a controlled queue may not start: from the gates themselves, as a claim sees them.

use super::{AfterFailure, Control, Gate, Gates, Limit, Owner};
use crate::job::{JobId, JobRecord, Why};
use crate::time::Timestamp;

/// The gates that let nothing of this job through. `owner` is the other job that an ordered key was started with.
pub fn blocked(
    control: &Control,
    gates: &Gates,
    owner: Option<(Owner, JobId)>,
    job: &JobRecord,
    now: Timestamp,
) -> Vec<Why> {
    let (job_type, key) = (&job.spec.job_type, control.key_of(job.spec.options.key.as_deref()));
    let blank = Gate::default();
    let of_type = gates.types.get(job_type).unwrap_or(&blank);
    let of_key = gates.keys.get(key).unwrap_or(&blank);
    let mut reasons = Vec::new();
    reasons.extend(closed(&format!("queue {}", job.spec.queue), &gates.queue, &control.of_queue(), now));
    reasons.extend(closed(&format!("type {job_type}"), of_type, &control.of_this_type(job_type), now));
    if key.is_empty() {
        return reasons;
    }
    let gate = format!("key {key}");
    let (by, words) = match (control.ordered, owner) {
        (Some(AfterFailure::Halt), Some((Owner::Failed, job))) => {
            ("halted", format!("is halted: job {job} failed; requeue it or resume the key"))
        }
        (Some(_), Some((Owner::Unfinished, job))) => ("ordered", format!("is ordered and waits for job {job}")),
        _ => {
            reasons.extend(closed(&gate, of_key, &control.of_key(key, of_key), now));
            return reasons;
        }
    };
    reasons.push(Why::Blocked { gate, by: by.to_owned(), words, until: None });
    reasons
}

fn closed(name: &str, gate: &Gate, limit: &Limit, now: Timestamp) -> Option<Why> {
    let room = gate.room(limit, now);
    if room.starts > 0 {
        return None;
    }
    let held = gate.held_until.filter(|until| *until > now);
    let (by, words) = match (held, limit.rate, room.again_at, limit.running) {
        (_, _, None, Some(most)) => ("limit", format!("runs {} of {most}", gate.running)),
        (Some(until), _, _, _) => ("hold", format!("is held until {until}")),
        (None, Some(rate), Some(at), _) => ("rate", format!("may start again at {at} ({rate})")),
        _ => ("limit", "lets nothing through".to_owned()),
    };
    Some(Why::Blocked { gate: name.to_owned(), by: by.to_owned(), words, until: room.again_at })
}
