//! Where to begin to look for jobs in a lane whose front is full of dead index entries.
//!
//! What claims have taken stays in the index until vacuum comes round, and every claim that begins at the very front
//! walks over all of it: a seventh of its time at 40,000 jobs a second, and while a client somewhere holds an old snapshot
//! from 2 to 29 ms within a minute. So a claimer remembers how far it has come, and begins there: in a lane that gave all
//! that was wanted the last time, for it will again, and in one that is slow. A job that comes to stand before that point
//! (committed late, given another priority) would be overlooked; so a claim that finds too little looks again from the
//! very front where that is quick, and everywhere one does every so often.
//!
//! Upkeep looks for what is due in the same way ([`UpkeepProgress`](super::upkeep_progress::UpkeepProgress)).

use std::collections::{HashMap, VecDeque};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::lanes::Lane;

/// A full scan that takes longer has walked over too much.
const SLOW: Duration = Duration::from_millis(4);
/// What was found this long ago is behind every transaction: those of that time have ended, but for rare ones. While a
/// snapshot is held, each claim walks over all that was claimed since.
const SETTLED: Duration = Duration::from_millis(100);
/// A full scan is due after this many times the cost of the last one, and no sooner than after [`FULL_SCAN_EVERY_MIN`].
const FULL_SCAN_COSTS: u32 = 20;
const FULL_SCAN_EVERY_MIN: Duration = Duration::from_millis(50);

/// A moment of the clock that a cursor goes by: how long after some beginning.
pub(super) type Moment = Duration;

/// The present moment of this process's own clock, which only goes forward.
pub(super) fn present() -> Moment {
    static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGINNING.elapsed()
}

/// For each of `N` index ranges the place before which nothing is left. All zero: the very front.
pub(super) type Floor<const N: usize> = [i64; N];

/// How far scans of `N` index ranges came.
#[derive(Debug)]
pub(super) struct Cursor<const N: usize> {
    floor: Floor<N>,
    /// Where scans ended that are too young to raise the floor, and when.
    advanced_to: VecDeque<(Moment, Floor<N>)>,
    /// When a scan last began at the very front, and what it cost.
    last_full_scan: Option<(Moment, Duration)>,
    /// Whether the last scan found all that it wanted.
    found_all: bool,
}

impl<const N: usize> Default for Cursor<N> {
    fn default() -> Self {
        Cursor { floor: [0; N], advanced_to: VecDeque::new(), last_full_scan: None, found_all: false }
    }
}

impl<const N: usize> Cursor<N> {
    fn is_slow(&self) -> bool {
        self.last_full_scan.is_some_and(|(_, cost)| cost >= SLOW)
    }

    fn is_full_scan_due(&self, now: Moment, every_max: Duration) -> bool {
        let every = |cost: Duration| (cost * FULL_SCAN_COSTS).clamp(FULL_SCAN_EVERY_MIN, every_max);
        self.last_full_scan.is_none_or(|(at, cost)| now.saturating_sub(at) >= every(cost))
    }

    /// Where a scan begins; the very front is due after `every_max` at the latest.
    pub(super) fn begin(&mut self, now: Moment, every_max: Duration) -> Floor<N> {
        if !self.found_all && !self.is_slow() || self.is_full_scan_due(now, every_max) {
            return [0; N];
        }
        let settled = |(at, _): &&(Moment, Floor<N>)| now.saturating_sub(*at) >= SETTLED;
        while let Some((_, advanced_to)) = self.advanced_to.front().filter(settled) {
            for (floor, advanced_to) in self.floor.iter_mut().zip(advanced_to) {
                *floor = (*floor).max(*advanced_to);
            }
            self.advanced_to.pop_front();
        }
        self.floor
    }

    /// Whether a scan that found too little may go on from the very front: not if that is slow and was done just now.
    fn may_scan_fully(&self, now: Moment, every_max: Duration) -> bool {
        !self.is_slow() || self.is_full_scan_due(now, every_max)
    }

    /// Notes what a scan that began at `floor` cost, how far it came, and whether it found all that it wanted.
    pub(super) fn end(
        &mut self,
        now: Moment,
        floor: &Floor<N>,
        cost: Duration,
        advanced_to: Floor<N>,
        found_all: bool,
    ) {
        self.found_all = found_all;
        if *floor == [0; N] {
            self.last_full_scan = Some((now, cost));
            if !found_all && !self.is_slow() {
                *self = Cursor::default();
                return;
            }
            // A full scan also finds jobs before the floor: the floor goes back to the first of them.
            for (floor, found_at) in self.floor.iter_mut().zip(advanced_to) {
                if found_at > 0 {
                    *floor = (*floor).min(found_at);
                }
            }
        }
        if advanced_to != [0; N] {
            self.advanced_to.push_back((now, advanced_to));
        }
    }
}

/// The cursors of lanes, with a range for each priority.
#[derive(Debug, Default)]
pub(super) struct ClaimCursors {
    lanes: Mutex<HashMap<Lane, Cursor<5>>>,
}

impl ClaimCursors {
    fn lanes(&self) -> MutexGuard<'_, HashMap<Lane, Cursor<5>>> {
        self.lanes.lock().expect("no panic while the cursors are locked")
    }

    /// Forgets how far claims came.
    pub(super) fn forget(&self) {
        self.lanes().clear();
    }

    /// Where a claim from a lane begins.
    pub(super) fn begin(&self, lane: Lane, now: Moment, every_max: Duration) -> Floor<5> {
        self.lanes().get_mut(&lane).map_or([0; 5], |cursor| cursor.begin(now, every_max))
    }

    /// Whether a claim that found too little may look again from the very front.
    pub(super) fn may_scan_fully(&self, lane: Lane, now: Moment, every_max: Duration) -> bool {
        self.lanes().get(&lane).is_none_or(|cursor| cursor.may_scan_fully(now, every_max))
    }

    /// Notes how a claim from a lane went: see [`Cursor::end`].
    pub(super) fn end(
        &self,
        lane: Lane,
        now: Moment,
        floor: &Floor<5>,
        cost: Duration,
        advanced_to: Floor<5>,
        found_all: bool,
    ) {
        self.lanes().entry(lane).or_default().end(now, floor, cost, advanced_to, found_all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(2);
    const QUICK: Duration = Duration::from_millis(1);
    const BEGUN: Moment = Duration::from_secs(5);
    /// By then all that was claimed at the beginning was claimed long ago.
    const LATER: Moment = Duration::from_millis(5100);

    #[test]
    fn a_lane_that_is_quick_and_gives_too_little_has_no_floor() {
        let cursors = ClaimCursors::default();
        // The next full scan is due after fifty milliseconds, so this one is noted just before the look.
        cursors.end(1, BEGUN, &[0; 5], QUICK, [9; 5], true);
        cursors.end(1, LATER, &[0; 5], QUICK, [9; 5], true);
        assert_eq!(cursors.begin(1, LATER, MOST), [9; 5], "it gave all that was wanted");
        cursors.end(1, LATER, &[9; 5], QUICK, [0; 5], false);
        assert_eq!(cursors.begin(1, LATER, MOST), [0; 5], "it may be empty: one look from the front is all it takes");
        cursors.end(1, LATER, &[0; 5], QUICK, [0; 5], false);
        cursors.end(1, LATER, &[0; 5], QUICK, [5; 5], true);
        assert_eq!(cursors.begin(1, LATER, MOST), [0; 5], "what was known before is forgotten");
    }

    #[test]
    fn a_floor_rises_only_with_what_was_claimed_long_enough_ago() {
        let cursors = ClaimCursors::default();
        cursors.end(1, BEGUN, &[0; 5], MOST, [9, 0, 0, 0, 0], false);
        assert_eq!(cursors.begin(1, BEGUN, MOST), [0; 5], "it was claimed just now");
        assert_eq!(cursors.begin(1, LATER, MOST), [9, 0, 0, 0, 0], "slow lanes have one whatever they give");
        // A full scan that finds an older job lowers it.
        cursors.end(1, LATER, &[0; 5], MOST, [4, 0, 0, 0, 0], false);
        assert_eq!(cursors.begin(1, LATER, MOST), [4, 0, 0, 0, 0]);
        assert!(!cursors.may_scan_fully(1, LATER, MOST), "the very front is slow, and was looked at just now");
        assert!(cursors.may_scan_fully(1, LATER + MOST, MOST), "it is due again");
    }
}
