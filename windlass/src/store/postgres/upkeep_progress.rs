//! How far upkeep has come: the moments before which nothing is left for it to do.
//!
//! It remembers them for the reason for which claims do ([`Cursor`]): what it took stays in the indexes for a while, and
//! looking from the very front walks over it.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::claim_cursor::{Cursor, Moment};
use crate::job::State;

/// How often upkeep looks lane by lane for jobs that have lived for the standard lifetime of seven days: there may be
/// many lanes.
const BY_LANE_EVERY: Duration = Duration::from_secs(10);
/// How long upkeep may go without looking from the very front, where that is slow.
const FULL_SCAN_EVERY_MAX: Duration = Duration::from_secs(30);
/// The terminal states.
const ENDS: usize = 4;

/// Upkeep's progress in this process.
#[derive(Debug, Default)]
pub(super) struct UpkeepProgress {
    due: Mutex<Cursor<{ ENDS + 2 }>>,
    events: Mutex<Cursor<1>>,
    looked_by_lane: Mutex<Option<Instant>>,
}

/// The moments before which nothing is left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct DueFrom {
    /// For each terminal state, from COMPLETED on: no job is left that ended before.
    pub(super) ends: [i64; ENDS],
    /// No lease is left that expired before.
    pub(super) leases: i64,
    /// No job is left whose own retention ended before.
    pub(super) own: i64,
}

impl DueFrom {
    fn floor(&self) -> [i64; ENDS + 2] {
        let [completed, failed, dead_letter, cancelled] = self.ends;
        [completed, failed, dead_letter, cancelled, self.leases, self.own]
    }

    /// Notes that jobs that ended in a state are done with up to a moment.
    pub(super) fn set_end(&mut self, state: i16, until: i64) {
        let place = usize::try_from(state - i16::from(State::Completed.number()));
        if let Some(end) = place.ok().and_then(|place| self.ends.get_mut(place)) {
            *end = until;
        }
    }

    /// After a step of retention that could not remove everything: takes the state and the end of each job that it removed,
    /// in order. A state of which it removed none is done with up to nowhere.
    pub(super) fn set_removed(&mut self, removed: impl Iterator<Item = (i16, i64)>) {
        self.ends = [0; ENDS];
        for (state, ended) in removed {
            self.set_end(state, ended);
        }
    }
}

impl UpkeepProgress {
    /// Forgets how far upkeep came.
    pub(super) fn forget(&self) {
        *locked(&self.due) = Cursor::default();
        *locked(&self.events) = Cursor::default();
        *locked(&self.looked_by_lane) = None;
    }

    /// Where to begin to look for what is due.
    pub(super) fn begin(&self, now: Moment) -> DueFrom {
        let [completed, failed, dead_letter, cancelled, leases, own] =
            locked(&self.due).begin(now, FULL_SCAN_EVERY_MAX);
        DueFrom { ends: [completed, failed, dead_letter, cancelled], leases, own }
    }

    /// Notes what a look from there cost, and up to where it left nothing.
    pub(super) fn end(&self, now: Moment, from: &DueFrom, cost: Duration, until: &DueFrom) {
        locked(&self.due).end(now, &from.floor(), cost, until.floor(), false);
    }

    /// The number before which all events are folded.
    pub(super) fn events(&self, now: Moment) -> i64 {
        locked(&self.events).begin(now, FULL_SCAN_EVERY_MAX)[0]
    }

    /// Notes what folding from there cost, and up to where it came.
    pub(super) fn events_folded(&self, now: Moment, from: i64, cost: Duration, until: i64) {
        locked(&self.events).end(now, &[from], cost, [until], false);
    }

    /// Whether to look lane by lane this time; it is then noted as done.
    pub(super) fn looks_by_lane(&self) -> bool {
        let mut last = locked(&self.looked_by_lane);
        let looks = last.is_none_or(|at| at.elapsed() >= BY_LANE_EVERY);
        if looks {
            *last = Some(Instant::now());
        }
        looks
    }

    /// Lets the next step look lane by lane: where some lifetimes have ended there may be more.
    pub(super) fn look_by_lane_again(&self) {
        *locked(&self.looked_by_lane) = None;
    }
}

fn locked<T>(progress: &Mutex<T>) -> MutexGuard<'_, T> {
    progress.lock().expect("no panic while the progress is locked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_left_something_raises_no_floor_over_it() {
        let (completed, failed) = (i16::from(State::Completed.number()), i16::from(State::Failed.number()));
        let mut until = DueFrom { ends: [90; 4], leases: 80, own: 70 };
        until.set_removed([(completed, 3), (completed, 5), (failed, 4)].into_iter());
        assert_eq!(until.ends, [5, 4, 0, 0], "two states were reached, two were not");
        assert_eq!((until.leases, until.own), (80, 70), "leases and other retentions are another matter");
    }

    #[test]
    fn what_was_passed_over_is_looked_at_again_after_thirty_seconds_of_the_stores_clock() {
        let (progress, slow) = (UpkeepProgress::default(), Duration::from_secs(2));
        let begun = Duration::from_secs(1000);
        let first = progress.begin(begun);
        assert_eq!(first, DueFrom::default(), "the first look is a full one");
        let until = DueFrom { ends: [90; 4], leases: 80, own: 70 };
        progress.end(begun, &first, slow, &until);
        let last = begun + FULL_SCAN_EVERY_MAX - Duration::from_micros(1);
        assert_eq!(progress.begin(last), until, "a job that was kept because another needed it is not seen");
        assert_eq!(progress.begin(begun + FULL_SCAN_EVERY_MAX), DueFrom::default(), "now it is");
    }
}
