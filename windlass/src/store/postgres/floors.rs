//! Where to begin to look for jobs in a lane whose front is full of dead index entries.
//!
//! While a client somewhere holds an old snapshot, vacuum cannot remove what claims have taken, and every claim walks
//! over all of it: at 4,000 jobs a second from 2 to 29 ms within a minute. So a claimer that notices that its claims are
//! slow remembers how far it has come, and begins there. A job that comes to stand before that point (committed late,
//! given another priority) would be overlooked; so a claim that finds too little looks again from the very front, and
//! every so often one does anyway. A lane that is claimed quickly has no floor at all.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::lanes::Lane;

/// A claim that takes longer has walked over too much.
const SLOW: Duration = Duration::from_millis(4);
/// What was claimed this long ago is behind everybody: transactions of that time have ended, but for rare ones.
const SETTLED: Duration = Duration::from_secs(1);
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
    /// Set while claims from the very front are slow: when the last was, and what it cost.
    slow: Option<(Instant, Duration)>,
}

impl Floors {
    /// Where a claim begins; all zero for the very front, which is due after `sweep_max` at the latest.
    pub(super) fn begin(&self, lane: Lane, sweep_max: Duration) -> Floor {
        let mut lanes = self.lanes.lock().expect("nobody panics while holding the floors");
        let Some(known) = lanes.get_mut(&lane) else { return Floor::default() };
        let Some((swept, cost)) = known.slow else { return Floor::default() };
        if swept.elapsed() >= (cost * SWEEP_COSTS).clamp(SWEEP_MIN, sweep_max) {
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

    /// Notes what a claim that began at `floor` cost and how far it came.
    pub(super) fn end(&self, lane: Lane, floor: &Floor, cost: Duration, came: Floor) {
        let mut lanes = self.lanes.lock().expect("nobody panics while holding the floors");
        let known = lanes.entry(lane).or_default();
        if *floor == Floor::default() {
            if cost < SLOW {
                *known = LaneFloor::default();
                return;
            }
            known.slow = Some((Instant::now(), cost));
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

    #[test]
    fn a_lane_that_is_claimed_quickly_has_no_floor() {
        let floors = Floors::default();
        floors.end(1, &[0; 5], Duration::from_millis(1), [9; 5]);
        assert_eq!(floors.begin(1, MOST), [0; 5]);
    }

    #[test]
    fn a_floor_rises_only_with_what_was_claimed_long_enough_ago() {
        let floors = Floors::default();
        floors.end(1, &[0; 5], MOST, [9, 0, 0, 0, 0]);
        assert_eq!(floors.begin(1, MOST), [0; 5], "it was claimed just now");
        let long_ago = Instant::now().checked_sub(SETTLED).expect("the machine has run for a second");
        floors.lanes.lock().expect("no panic").get_mut(&1).expect("noted").came[0].0 = long_ago;
        assert_eq!(floors.begin(1, MOST), [9, 0, 0, 0, 0]);
        // A sweep that finds an older job lowers it.
        floors.end(1, &[0; 5], MOST, [4, 0, 0, 0, 0]);
        assert_eq!(floors.begin(1, MOST), [4, 0, 0, 0, 0]);
    }
}
