//! I1, I2 and I5 to I8: what became of each job.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use windlass::job::{ATTEMPTS_KEPT, Outcome};
use windlass::{JobId, State};

use super::view::{Reply, Seen, View};
use super::{Found, Invariant, leases};
use crate::dump::JobEnd;
use crate::history::Answer;

/// I1: every acknowledged job is there.
pub(super) fn lost(view: &View<'_>, found: &mut Found) {
    let mut told = HashSet::new();
    for call in &view.enqueues {
        let Reply::Said(_, jobs) = &call.reply else { continue };
        for (job, _) in jobs {
            if !view.ends.contains_key(job) && told.insert(*job) {
                found.note(Invariant::Lost, *job, "was acknowledged and is not in the store");
            }
        }
    }
}

/// I1: a batch is there whole or not at all.
pub(super) fn half_batches(view: &View<'_>, found: &mut Found) {
    let mut stored: HashMap<&str, usize> = HashMap::new();
    for end in &view.dump.jobs {
        if let Some(batch) = &end.batch {
            *stored.entry(batch).or_default() += 1;
        }
    }
    for call in &view.enqueues {
        let Some(batch) = &call.batch else { continue };
        let (there, sent) = (stored.get(batch.as_str()).copied().unwrap_or_default(), call.keys.len());
        let possible = match call.reply {
            // What is missing of an acknowledged batch is told job by job.
            Reply::Said(..) => there <= sent,
            Reply::Unknown => there == sent || there == 0,
            Reply::Nothing => there == 0,
        };
        if !possible {
            let what = format!("of the {sent} jobs of call {batch} {there} are in the store ({:?})", call.reply);
            found.note(Invariant::Lost, None, what);
        }
    }
}

/// I1: every acknowledged settlement is what the attempt ended with.
pub(super) fn lost_settlements(view: &View<'_>, found: &mut Found) {
    for (job, seen) in &view.seen {
        // A job that is not there at all is told elsewhere; of very many attempts the oldest are not kept.
        let Some(end) = view.ends.get(job).filter(|end| end.attempts.len() < ATTEMPTS_KEPT) else { continue };
        for (call, outcome) in seen.settlements() {
            if !matches!(call.reply, Reply::Said(_, Answer::Applied(_) | Answer::AlreadyApplied)) {
                continue;
            }
            let kept = end.attempts.iter().find(|attempt| attempt.version == call.version);
            let kept = kept.and_then(|attempt| attempt.outcome);
            if kept != Some(outcome) {
                let what = format!(
                    "the settlement of lease {} as {outcome:?} was acknowledged, but it ended {kept:?}",
                    call.version
                );
                found.note(Invariant::Lost, *job, what);
            }
        }
    }
}

/// I2: every job has ended.
pub(super) fn stuck(view: &View<'_>, found: &mut Found) {
    for end in view.dump.jobs.iter().filter(|end| !end.state.is_terminal()) {
        found.note(Invariant::Stuck, end.id, format!("is {} at the end", end.state));
    }
}

/// I5: a job ends once, and does not run after that unless it was requeued.
pub(super) fn two_ends(view: &View<'_>, found: &mut Found) {
    for end in &view.dump.jobs {
        let completed = end.attempts.iter().position(|attempt| attempt.outcome == Some(Outcome::Completed));
        if completed.is_some_and(|place| place + 1 < end.attempts.len()) {
            found.note(Invariant::TwoEnds, end.id, "has an attempt after the one that completed it");
        }
        if end.generation > view.requeues_max(end) {
            let what = format!("came back {} times, but was requeued {} times", end.generation, view.requeues_max(end));
            found.note(Invariant::TwoEnds, end.id, what);
        }
        if let Some(seen) = view.seen.get(&end.id) {
            ends_of(end, seen, found);
        }
    }
}

fn ends_of(end: &JobEnd, seen: &Seen, found: &mut Found) {
    let mut ends: BTreeMap<u64, State> = BTreeMap::new();
    for call in &seen.settles {
        if let Reply::Said(_, Answer::Applied(state)) = call.reply
            && state.is_terminal()
            && let Some(other) = ends.insert(call.version, state)
        {
            let what = format!("lease {} ended it twice, {other} and {state}", call.version);
            found.note(Invariant::TwoEnds, end.id, what);
        }
    }
    if ends.len() > end.generation as usize + 1 {
        found.note(Invariant::TwoEnds, end.id, format!("ended {} times: {ends:?}", ends.len()));
        return;
    }
    let newest = seen.grants.iter().map(|(_, grant)| grant.lease.version).max().unwrap_or_default();
    for (version, state) in &ends {
        let for_good = matches!(state, State::Completed | State::Cancelled);
        if for_good && end.state != *state {
            found.note(Invariant::TwoEnds, end.id, format!("ended {state} under lease {version} and is {}", end.state));
        } else if newest > *version && (for_good || end.generation == 0) {
            let what = format!("ended {state} under lease {version} and was claimed again as {newest}");
            found.note(Invariant::TwoEnds, end.id, what);
        }
    }
}

/// I6: a COMPLETED job has a run that succeeded.
pub(super) fn empty_successes(view: &View<'_>, found: &mut Found) {
    for end in view.dump.jobs.iter().filter(|end| end.state == State::Completed) {
        let by = end.attempts.iter().find(|attempt| attempt.outcome == Some(Outcome::Completed));
        let ran = by.is_some_and(|attempt| {
            view.seen.get(&end.id).is_some_and(|seen| seen.succeeded.contains(&attempt.version))
        });
        if !ran {
            found.note(Invariant::EmptySuccess, end.id, "is COMPLETED, but no run of the completing attempt succeeded");
        }
    }
}

/// I7: no job runs more often than it may.
pub(super) fn run_bounds(view: &View<'_>, found: &mut Found) {
    for end in &view.dump.jobs {
        let Some(seen) = view.seen.get(&end.id) else { continue };
        // Snoozed, released and interrupted runs do not count; nor do those that may have been.
        let free: HashSet<u64> = seen
            .settlements()
            .filter(|(_, outcome)| matches!(outcome, Outcome::Snoozed | Outcome::Released | Outcome::Interrupted))
            .filter(|(call, _)| {
                matches!(call.reply, Reply::Unknown | Reply::Said(_, Answer::Applied(_) | Answer::AlreadyApplied))
            })
            .map(|(call, _)| call.version)
            .collect();
        let runs = seen.started.iter().filter(|version| !free.contains(version)).count();
        let most = end.runs_max as usize * (end.generation as usize + 1);
        if runs > most {
            found.note(Invariant::RunBound, end.id, format!("ran {runs} times, at most {most} are allowed"));
        }
    }
}

/// I7: an absence of the store costs no attempt (rule D6b): a lease that held when it went is not taken back before those who live
/// had time to be heard.
pub(super) fn absences(view: &View<'_>, found: &mut Found) {
    for end in &view.dump.jobs {
        let Some(seen) = view.seen.get(&end.id) else { continue };
        for attempt in &end.attempts {
            let (Some(held_until), Some(ended)) = (leases::held_until(seen, attempt), attempt.ended) else { continue };
            let mut absences = view.dump.absences.iter();
            if absences.any(|away| held_until > away.from && (away.back..away.until).contains(&ended)) {
                let what = format!("lease {} was lost to an absence of the store, and counted", attempt.version);
                found.note(Invariant::RunBound, end.id, what);
            }
        }
    }
}

/// I12: a job is what it was enqueued as.
pub(super) fn types(view: &View<'_>, found: &mut Found) {
    for call in &view.enqueues {
        let Reply::Said(_, jobs) = &call.reply else { continue };
        for (sent, (job, existing)) in call.types.iter().zip(jobs) {
            let stored = view.ends.get(job).map(|end| end.job_type.as_str()).filter(|_| !existing);
            if let Some(stored) = stored.filter(|stored| stored != sent) {
                found.note(Invariant::OtherType, *job, format!("was enqueued as {sent} and is {stored}"));
            }
        }
    }
}

/// I8: one key, one job.
pub(super) fn keys(view: &View<'_>, found: &mut Found) {
    let mut answered: BTreeMap<&str, BTreeSet<JobId>> = BTreeMap::new();
    let mut created: BTreeMap<&str, usize> = BTreeMap::new();
    for call in &view.enqueues {
        let Reply::Said(_, jobs) = &call.reply else { continue };
        for (key, (job, existing)) in call.keys.iter().zip(jobs) {
            if let Some(key) = key {
                answered.entry(key).or_default().insert(*job);
                *created.entry(key).or_default() += usize::from(!existing);
            }
        }
    }
    for end in &view.dump.jobs {
        if let Some(key) = &end.key {
            answered.entry(key).or_default().insert(end.id);
        }
    }
    for (key, jobs) in &answered {
        let created = created.get(key).copied().unwrap_or_default();
        if jobs.len() > 1 || created > 1 {
            let what = format!("key {key:?} stands for {} jobs and was new {created} times: {jobs:?}", jobs.len());
            found.note(Invariant::Key, jobs.first().copied(), what);
        }
    }
}

/// D7: the store's numbers add up.
pub(super) fn accounts(view: &View<'_>, found: &mut Found) {
    let dump = view.dump;
    let listed = u64::try_from(dump.jobs.len()).unwrap_or_default();
    if dump.accepted != dump.counted || dump.accepted != listed {
        let what = format!("accepted {}, counted in all states {}, listed {listed}", dump.accepted, dump.counted);
        found.note(Invariant::Accounting, None, what);
    }
    for what in &dump.contradictions {
        found.note(Invariant::Accounting, None, what.clone());
    }
}
