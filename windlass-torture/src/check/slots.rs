//! I10 and I11: schedules fire each slot once, and nothing starts before its time.

use std::collections::BTreeMap;

use windlass::job::Outcome;

use super::view::View;
use super::{Found, Invariant};
use crate::dump::{JobEnd, ScheduleEnd};

/// How long a transaction may be under way after it has looked at the clock: a stalled worker's is, for nearly three
/// leases. Two that overlap may carry times in the other order than that in which they took effect.
const SKEW_MAX: i64 = 5_000_000;

/// I10: no slot twice, none missing where each must fire, no pile-up.
pub(super) fn slots(view: &View<'_>, found: &mut Found) {
    let mut fired: BTreeMap<&str, BTreeMap<i64, Vec<&JobEnd>>> = BTreeMap::new();
    for end in &view.dump.jobs {
        if let Some((schedule, slot)) = &end.firing {
            fired.entry(schedule).or_default().entry(*slot).or_default().push(end);
        }
    }
    for (schedule, slots) in &fired {
        for (slot, jobs) in slots.iter().filter(|(_, jobs)| jobs.len() > 1) {
            let what = format!("slot {slot} of {schedule} fired {} times", jobs.len());
            found.note(Invariant::Slot, jobs[1].id, what);
        }
        if let Some(schedule) = view.dump.schedules.iter().find(|known| known.name == *schedule) {
            let times: Vec<i64> = slots.keys().copied().collect();
            missing(schedule, &times, found);
            let jobs: Vec<&JobEnd> = slots.values().filter_map(|jobs| jobs.first().copied()).collect();
            piled_up(schedule, &jobs, found);
        }
    }
}

/// Slots between the schedule's creation and the last that fired, of which none may be left out.
fn missing(schedule: &ScheduleEnd, slots: &[i64], found: &mut Found) {
    let Some(every) = schedule.every else { return };
    if let Some(first) = slots.first().filter(|first| **first > schedule.created + every) {
        let what = format!("{} was created at {} and fired first for {first}", schedule.name, schedule.created);
        found.note(Invariant::Slot, None, what);
    }
    for pair in slots.windows(2).filter(|pair| pair[1] - pair[0] != every) {
        let what = format!("{} fired for {} and then for {}, not every {every} µs", schedule.name, pair[0], pair[1]);
        found.note(Invariant::Slot, None, what);
    }
}

/// Firings while the one before was unfinished, or sooner after its end than they may.
fn piled_up(schedule: &ScheduleEnd, jobs: &[&JobEnd], found: &mut Found) {
    if schedule.after.is_none() && !schedule.no_overlap {
        return;
    }
    // What was requeued ended twice, and its first end is not known.
    for pair in jobs.windows(2).filter(|pair| pair[0].generation == 0) {
        let (first, second) = (pair[0], pair[1]);
        let too_soon = match (schedule.after, first.completed) {
            (_, None) => true,
            (Some(after), Some(ended)) => second.created < ended + after,
            (None, Some(ended)) => {
                // The store may have begun to fire, by its clock, before the end that it then saw came.
                let ran = second.attempts.first().is_some_and(|attempt| attempt.started < ended);
                ran || second.created + SKEW_MAX < ended
            }
        };
        if too_soon {
            let what = format!("{} fired while {} was unfinished, or too soon after it", schedule.name, first.id);
            found.note(Invariant::Slot, second.id, what);
        }
    }
}

/// I11: not before the first run, nor before a backoff or a snooze is over.
pub(super) fn early(view: &View<'_>, found: &mut Found) {
    for end in &view.dump.jobs {
        let first = end.attempts.first().filter(|attempt| attempt.generation == 0 && attempt.version == 1);
        if let (Some(first), Some(delay)) = (first, end.delay)
            && first.started < end.created + delay
        {
            let what =
                format!("was to run {delay} µs after submission and began after {}", first.started - end.created);
            found.note(Invariant::Early, end.id, what);
        }
        for pair in end.attempts.windows(2).filter(|pair| pair[0].generation == pair[1].generation) {
            let wait = match pair[0].outcome {
                Some(Outcome::Failed) => end.backoff,
                Some(Outcome::Snoozed) => end.snooze,
                _ => None,
            };
            if let (Some(wait), Some(ended)) = (wait, pair[0].ended)
                && pair[1].started < ended + wait
            {
                let waited = pair[1].started - ended;
                let what = format!("attempt {} began after {waited} µs, not {wait}", pair[1].version);
                found.note(Invariant::Early, end.id, what);
            }
        }
    }
}
