//! Where to begin to look for jobs in a lane whose front is full of dead index entries.
//!
//! What claims have taken stays in the index until vacuum comes round, and every claim that begins at the very front
//! walks over all of it: a seventh of its time at 40,000 jobs a second, and while a client somewhere holds an old snapshot
//! from 2 to 29 ms within a minute. So a claimer remembers how far it has come, and begins there: in a lane that gave all
//! that was wanted the last time, for it will again, and in one that is slow. A job that comes to stand before that point
//! (committed late, given another priority) would be overlooked; so a claim that finds too little looks again from the
//! very front where that is quick, and everywhere one does every so often.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::lanes::Lane;

/// A look from the very front that takes longer has walked over too much.
const SLOW: Duration = Duration::from_millis(4);
/// What was claimed this long ago is behind everybody: transactions of that time have ended, but for rare ones. While a
/// snapshot is held, each claim walks over all that was claimed since.
const SETTLED: Duration = Duration::from_millis(100);
/// How often the very front is looked at: so many times its own cost apart, no more often than this.
const SWEEP_COSTS: u32 = 20;
const SWEEP_MIN: Duration = Duration::from_millis(50);

/// For each priority the moment before which nothing is due.
pub(super) type Floor = [i64; 5];

#[derive(Debug, Default)]
pub(super) struct Floors {
    lanes: Mutex<HashMap<Lane, LaneFloor>>,
}

#[derive(Debug, Default)]
struct LaneFloor {
    floor: Floor,
    /// How far claims came, and when.
    came: VecDeque<(Instant, Floor)>,
    /// When one last began at the very front, and what it cost.
    swept: Option<(Instant, Duration)>,
    /// Whether the last found all that it wanted.
    full: bool,
}

impl LaneFloor {
    fn is_slow(&self) -> bool {
        self.swept.is_some_and(|(_, cost)| cost >= SLOW)
    }

    fn is_sweep_due(&self, sweep_max: Duration) -> bool {
        self.swept.is_none_or(|(at, cost)| at.elapsed() >= (cost * SWEEP_COSTS).clamp(SWEEP_MIN, sweep_max))
    }
}

impl Floors {
    /// Where a claim begins; all zero for the very front, which is due after `sweep_max` at the latest.
    pub(super) fn begin(&self, lane: Lane, sweep_max: Duration) -> Floor {
        let mut lanes = self.lanes.lock().expect("nobody panics while holding the floors");
        let Some(known) = lanes.get_mut(&lane).filter(|known| known.full || known.is_slow()) else {
            return Floor::default();
        };
        if known.is_sweep_due(sweep_max) {
            return Floor::default();
        }
        while let Some((_, came)) = known.came.front().filter(|(at, _)| at.elapsed() >= SETTLED) {
            for (floor, came) in known.floor.iter_mut().zip(came) {
                *floor = (*floor).max(*came);
            }
            known.came.pop_front();
        }
        known.floor
    }

    /// Whether a claim that found too little may look again from the very front: not if that is slow and was done just now.
    pub(super) fn may_sweep(&self, lane: Lane, sweep_max: Duration) -> bool {
        let lanes = self.lanes.lock().expect("nobody panics while holding the floors");
        lanes.get(&lane).is_none_or(|known| !known.is_slow() || known.is_sweep_due(sweep_max))
    }

    /// Notes what a claim that began at `floor` cost, how far it came, and whether it found all that it wanted.
    pub(super) fn end(&self, lane: Lane, floor: &Floor, cost: Duration, came: Floor, full: bool) {
        let mut lanes = self.lanes.lock().expect("nobody panics while holding the floors");
        let known = lanes.entry(lane).or_default();
        known.full = full;
        if *floor == Floor::default() {
            known.swept = Some((Instant::now(), cost));
            if !full && !known.is_slow() {
                *known = LaneFloor::default();
                return;
            }
            // What it came across before the floor is why it looked.
            for (floor, came) in known.floor.iter_mut().zip(came) {
                if came > 0 {
                    *floor = (*floor).min(came);
                }
            }
        }
        if came != Floor::default() {
            known.came.push_back((Instant::now(), came));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(2);
    const QUICK: Duration = Duration::from_millis(1);

    /// Lets all that was claimed have been claimed long ago.
    fn wait(floors: &Floors) {
        let long_ago = Instant::now().checked_sub(SETTLED).expect("the machine has run for a second");
        for (at, _) in &mut floors.lanes.lock().expect("no panic").get_mut(&1).expect("noted").came {
            *at = long_ago;
        }
    }

    #[test]
    fn a_lane_that_is_quick_and_gives_too_little_has_no_floor() {
        let floors = Floors::default();
        floors.end(1, &[0; 5], QUICK, [9; 5], true);
        wait(&floors);
        assert_eq!(floors.begin(1, MOST), [9; 5], "it gave all that was wanted");
        floors.end(1, &[9; 5], QUICK, [0; 5], false);
        assert_eq!(floors.begin(1, MOST), [0; 5], "it may be empty: one look from the front is all it takes");
        floors.end(1, &[0; 5], QUICK, [0; 5], false);
        floors.end(1, &[0; 5], QUICK, [5; 5], true);
        assert_eq!(floors.begin(1, MOST), [0; 5], "what was known before is forgotten");
    }

    #[test]
    fn a_floor_rises_only_with_what_was_claimed_long_enough_ago() {
        let floors = Floors::default();
        floors.end(1, &[0; 5], MOST, [9, 0, 0, 0, 0], false);
        assert_eq!(floors.begin(1, MOST), [0; 5], "it was claimed just now");
        wait(&floors);
        assert_eq!(floors.begin(1, MOST), [9, 0, 0, 0, 0], "slow lanes have one whatever they give");
        // A sweep that finds an older job lowers it.
        floors.end(1, &[0; 5], MOST, [4, 0, 0, 0, 0], false);
        assert_eq!(floors.begin(1, MOST), [4, 0, 0, 0, 0]);
        assert!(!floors.may_sweep(1, MOST), "the very front is slow, and was looked at just now");
    }
}
