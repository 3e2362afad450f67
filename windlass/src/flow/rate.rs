//! How many starts in a time: one number for each gate, and no row for each start.
//!
//! The number is the theoretical arrival time of the generic cell rate algorithm: the moment up to which the starts so far
//! have used up the rate. It is exact: no window has a boundary across which twice the rate could pass.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::time::Timestamp;

/// Most starts in the time of a rate, and the largest burst.
pub const RATE_COUNT_MAX: u32 = 1_000_000;
/// The longest time of a rate.
pub const RATE_PER_MAX: Duration = Duration::from_secs(31 * 24 * 3600);
/// A burst unless said otherwise is what falls into this time.
const BURST_TIME: Duration = Duration::from_millis(100);

/// At most `count` starts in a time (rule K7): in any interval of length t at most `burst + t × count ÷ per`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rate {
    /// How many starts in the time.
    pub count: u32,
    /// The time.
    #[serde(with = "crate::job::micros")]
    pub per: Duration,
    /// How many may start at one moment.
    pub burst: u32,
}

impl Rate {
    /// `count` starts in this time; at one moment what falls into 100 ms, and at least one.
    pub fn new(count: u32, per: Duration) -> Self {
        let at_once = u128::from(count) * BURST_TIME.as_micros() / per.as_micros().max(1);
        Rate { count, per, burst: u32::try_from(at_once).unwrap_or(RATE_COUNT_MAX).clamp(1, RATE_COUNT_MAX) }
    }

    /// `count` starts in a second.
    pub fn per_second(count: u32) -> Self {
        Rate::new(count, Duration::from_secs(1))
    }

    /// `count` starts in a minute.
    pub fn per_minute(count: u32) -> Self {
        Rate::new(count, Duration::from_secs(60))
    }

    /// `count` starts in an hour.
    pub fn per_hour(count: u32) -> Self {
        Rate::new(count, Duration::from_secs(3600))
    }

    /// Never more than `count` starts in any window of that length: one at a moment, evenly spread.
    pub fn within(count: u32, per: Duration) -> Self {
        Rate { count, per, burst: 1 }
    }

    /// How many may start at one moment.
    #[must_use]
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }

    /// Refuses numbers out of bounds.
    pub fn check(&self) -> Result<()> {
        if self.count == 0 || self.count > RATE_COUNT_MAX {
            return Err(Error::invalid("rate", format!("must be 1 to {RATE_COUNT_MAX} starts, is {}", self.count)));
        }
        if self.per < Duration::from_millis(1) || self.per > RATE_PER_MAX {
            return Err(Error::invalid("rate", "its time must be 1 ms to 31 days"));
        }
        if self.burst == 0 || self.burst > RATE_COUNT_MAX {
            return Err(Error::invalid("burst", format!("must be 1 to {RATE_COUNT_MAX}, is {}", self.burst)));
        }
        if i128::from(self.step()) * i128::from(self.burst) > i128::try_from(RATE_PER_MAX.as_nanos()).unwrap_or(0) * 12
        {
            return Err(Error::invalid("burst", "must not be more than the starts of a year"));
        }
        Ok(())
    }

    /// Nanoseconds from one start to the next; rounded up, so that the rate is never exceeded.
    fn step(&self) -> i64 {
        let step = self.per.as_nanos().div_ceil(u128::from(self.count.max(1)));
        i64::try_from(step).unwrap_or(i64::MAX / 2).max(1)
    }

    /// How many may start now, when the starts so far have used up the rate to `tat`.
    pub(super) fn starts(&self, tat: i64, now: Timestamp) -> u32 {
        let (now, step) = (nanos(now), i128::from(self.step()));
        let open = now + step * i128::from(self.burst) - i128::from(tat).max(now);
        u32::try_from((open / step).max(0)).unwrap_or(u32::MAX)
    }

    /// When the next one may start, where none may now.
    pub(super) fn next_at(&self, tat: i64) -> Timestamp {
        let open_at = i128::from(tat) - i128::from(self.step()) * i128::from(self.burst - 1);
        // Up to the next whole microsecond, at which it is open for certain.
        let micros = (open_at + 999).div_euclid(1000);
        Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    /// The number after this many starts.
    pub(super) fn after(&self, tat: i64, starts: u32, now: Timestamp) -> i64 {
        let used = i128::from(tat).max(nanos(now)) + i128::from(self.step()) * i128::from(starts);
        i64::try_from(used).unwrap_or(i64::MAX)
    }
}

fn nanos(at: Timestamp) -> i128 {
    i128::from(at.as_micros()) * 1000
}

impl fmt::Display for Rate {
    /// `100/s, burst 10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_millis() {
            1000 => "s".to_owned(),
            60_000 => "min".to_owned(),
            3_600_000 => "h".to_owned(),
            millis => format!("{millis}ms"),
        };
        write!(f, "{}/{unit}, burst {}", self.count, self.burst)
    }
}
