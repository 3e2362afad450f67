//! Whether a store's clock has leapt: what a process was told of the time, held against its own steady clock (rule L8).
//!
//! A server's clock may be set while it runs, and after a promotion it is another server's. No wall clock of a worker is
//! asked about it. But a process knows the time that it was told last, and how long ago that was.

use std::time::Duration;

use crate::time::Timestamp;

/// From how far off the expected time counts as a leap: more than a time server corrects at once.
const LEAP_MIN_MICROS: i64 = 1_000_000;
/// By which part two steady clocks may differ: more than those of machines do that work.
const DRIFT: i64 = 1000;
/// By which part of the time that passes a correction of the clock is taken back; `remaining_skew` of PostgreSQL does it.
const TAKEN_BACK: i64 = 20;

/// For how long what was told says what to expect: those who work are told every second.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// How long a statement may be on its way before its time is doubted.
const ON_ITS_WAY_MICROS: i64 = 4_000_000;

/// What a process was told of a store's time, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToldTime {
    time: i64,
    /// Halfway between question and answer, by the steady clock.
    at: Duration,
    /// By how much that may be off.
    within: i64,
    /// Whether a correction was being taken back, so that the store's time ran slower or faster.
    skewed: bool,
}

impl ToldTime {
    /// A time that was asked for and answered at these readings of the steady clock.
    pub fn new(time: Timestamp, asked: Duration, answered: Duration, skewed: bool) -> Self {
        let half = answered.saturating_sub(asked) / 2;
        ToldTime { time: time.as_micros(), at: asked + half, within: micros(half), skewed }
    }

    /// When it was, by the steady clock.
    pub fn at(&self) -> Duration {
        self.at
    }

    /// By how many microseconds a later answer is ahead of what this one lets expect, negative if it is behind; 0 if it is no
    /// further off than clocks and answers are.
    pub fn leap(&self, later: &ToldTime) -> i64 {
        let passed = micros(later.at.saturating_sub(self.at));
        let off = later.time.saturating_sub(self.time).saturating_sub(passed);
        let taken_back = if self.skewed || later.skewed { passed / TAKEN_BACK } else { 0 };
        let usual = LEAP_MIN_MICROS + self.within + later.within + passed / DRIFT + taken_back;
        if off.abs() > usual { off } else { 0 }
    }

    /// Between which times a statement runs that is sent at this reading of the steady clock, unless the store's clock leapt; `None`
    /// if this is too long ago to say.
    pub fn expected(&self, at: Duration) -> Option<(i64, i64)> {
        let passed = at.saturating_sub(self.at);
        if passed > KNOWN_FOR {
            return None;
        }
        let passed = micros(passed);
        let off = LEAP_MIN_MICROS + self.within + passed / DRIFT + if self.skewed { passed / TAKEN_BACK } else { 0 };
        let time = self.time.saturating_add(passed);
        Some((time.saturating_sub(off), time.saturating_add(off + ON_ITS_WAY_MICROS)))
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn told(time: i64, at: u64, skewed: bool) -> ToldTime {
        let at = Duration::from_secs(at);
        ToldTime::new(Timestamp::from_seconds(1_800_000_000 + time), at, at, skewed)
    }

    #[test]
    fn l8_time_that_passes_is_no_leap() {
        assert_eq!(told(0, 100, false).leap(&told(1, 101, false)), 0);
        assert_eq!(told(0, 100, false).leap(&told(24 * HOUR + 60, 100 + 24 * 3600, false)), 0, "clocks drift");
    }

    #[test]
    fn l8_a_statement_is_expected_to_run_soon_after_it_was_sent() {
        let (now, second) = (1_800_000_000_000_000, 1_000_000);
        let told = told(0, 100, false);
        assert_eq!(told.expected(Duration::from_secs(100)), Some((now - second, now + 5 * second)));
        let (earliest, latest) = told.expected(Duration::from_secs(102)).expect("known");
        assert_eq!((earliest, latest), (now + second - 2000, now + 7 * second + 2000), "clocks drift");
        assert_eq!(told.expected(Duration::from_secs(111)), None, "too long ago");
    }

    #[test]
    fn l8_a_clock_that_was_set_leaps() {
        assert_eq!(told(0, 100, false).leap(&told(HOUR, 101, false)), (HOUR - 1) * 1_000_000);
        assert_eq!(told(0, 100, false).leap(&told(-HOUR, 101, false)), -(HOUR + 1) * 1_000_000);
    }

    #[test]
    fn l8_an_answer_that_took_long_proves_less() {
        let slow = ToldTime::new(
            Timestamp::from_seconds(1_800_000_000),
            Duration::from_secs(90),
            Duration::from_secs(110),
            false,
        );
        assert_eq!(slow.leap(&told(9, 101, false)), 0);
        assert_ne!(slow.leap(&told(HOUR, 101, false)), 0);
    }

    #[test]
    fn l8_a_correction_that_is_taken_back_is_no_leap() {
        assert_eq!(told(0, 100, true).leap(&told(95, 200, true)), 0);
        assert_ne!(told(0, 100, false).leap(&told(95, 200, false)), 0);
    }
}
