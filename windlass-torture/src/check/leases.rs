//! I3 and I4: one valid lease at a time, and nothing accepted from any other.

use std::collections::HashSet;

use windlass::job::Outcome;

use super::view::{Call, Reply, Seen, View};
use super::{Found, Invariant};
use crate::dump::{AbsenceEnd, AttemptEnd};
use crate::history::{Answer, Grant};

/// I3: no claim while another lease is valid.
pub(super) fn double_leases(view: &View<'_>, found: &mut Found) {
    for (job, seen) in &view.seen {
        let mut granted = HashSet::new();
        for (by, grant) in &seen.grants {
            if !granted.insert(grant.lease.version) {
                let what = format!("lease {} was granted twice, the second time to {by}", grant.lease.version);
                found.note(Invariant::DoubleLease, *job, what);
            }
        }
    }
    for end in &view.dump.jobs {
        for pair in end.attempts.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            if first.ended.is_none_or(|ended| ended > second.started) {
                let what = format!("attempt {} began before attempt {} had ended", second.version, first.version);
                found.note(Invariant::DoubleLease, end.id, what);
            }
        }
        let Some(seen) = view.seen.get(&end.id) else { continue };
        for attempt in &end.attempts {
            if let Some(early) = taken_back_early(seen, attempt) {
                let what = format!("lease {} was taken back {early} µs before it ended", attempt.version);
                found.note(Invariant::DoubleLease, end.id, what);
            }
        }
    }
}

/// By how much a lease that is said to have expired was valid still.
fn taken_back_early(seen: &Seen, attempt: &AttemptEnd) -> Option<i64> {
    Some(held_until(seen, attempt)? - attempt.ended?).filter(|early| *early > 0)
}

/// Until when a lease that is said to have expired held at least, as far as was seen.
pub(super) fn held_until(seen: &Seen, attempt: &AttemptEnd) -> Option<i64> {
    if attempt.outcome != Some(Outcome::Lost) {
        return None;
    }
    let granted = seen.grants_of(attempt.version).map(|grant| grant.expires);
    let renewed = seen.renewals.iter().filter(|renewal| renewal.version == attempt.version);
    let renewed = renewed.filter_map(|renewal| match renewal.reply {
        Reply::Said(_, Ok((at_least, _))) => at_least,
        _ => None,
    });
    granted.chain(renewed).max()
}

/// I4: nothing accepted from a lease that has ended, or that is not the newest.
///
/// A lease that ran out while the store was away holds for a grace after it is back (rule D6b).
pub(super) fn late_commits(view: &View<'_>, found: &mut Found) {
    let absences = &view.dump.absences;
    for (job, seen) in &view.seen {
        let mut note = |what: &str, version: u64, why: String| {
            found.note(Invariant::LateCommit, *job, format!("{what} of lease {version} was accepted {why}"));
        };
        for (place, call) in seen.renewals.iter().enumerate() {
            if matches!(call.reply, Reply::Said(_, Ok(_)))
                && let Some(why) = late(seen, call, Some(place), absences)
            {
                note("a heartbeat", call.version, why);
            }
        }
        for call in &seen.saves {
            if matches!(call.reply, Reply::Said(_, Ok(())))
                && let Some(why) = late(seen, call, None, absences)
            {
                note("a save", call.version, why);
            }
        }
        for call in &seen.settles {
            if matches!(call.reply, Reply::Said(_, Answer::Applied(_)))
                && let Some(why) = late(seen, call, None, absences)
            {
                note("a settlement", call.version, why);
            }
        }
    }
}

/// Why an accepted call came too late, if it did. `itself` is its place among the heartbeats, if it is one.
fn late<T>(seen: &Seen, call: &Call<T>, itself: Option<usize>, absences: &[AbsenceEnd]) -> Option<String> {
    let (Reply::Said(answered, _), Some(before)) = (&call.reply, call.before) else { return None };
    let newer = |grant: &&Grant| grant.lease.version > call.version && grant.started <= before;
    if let Some(newer) = seen.grants.iter().map(|(_, grant)| grant).find(newer) {
        return Some(format!("after lease {} was granted", newer.lease.version));
    }
    let mut held_until = seen.grants_of(call.version).map(|grant| grant.expires).max()?;
    for (place, renewal) in seen.renewals.iter().enumerate() {
        // Whatever was sent before this was answered may have come first.
        if renewal.version != call.version || renewal.sent >= *answered || itself == Some(place) {
            continue;
        }
        match renewal.reply {
            Reply::Said(_, Ok((_, at_most))) => held_until = held_until.max(at_most?),
            Reply::Unknown => return None,
            Reply::Said(_, Err(_)) | Reply::Nothing => {}
        }
    }
    let held_on = absences.iter().any(|away| held_until > away.from && before <= away.until);
    (before >= held_until && !held_on).then(|| format!("{} µs after it had ended", before - held_until))
}
