//! Where a store gets its time from.
//!
//! The store's clock decides everything (rule L8); workers never compare their own wall clock with it.
//! Tests put a [`ManualClock`] in its place, which stands still until told to move.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::time::Timestamp;

/// A source of the current time that never runs backwards.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The current time; never earlier than an answer given before.
    fn now(&self) -> Timestamp;
}

/// The machine's clock, held still while the machine sets it back.
///
/// A clock that jumps backwards would shorten no lease but could let an old one seem alive again.
#[derive(Debug, Default)]
pub struct SystemClock {
    latest: AtomicI64,
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let micros = i64::try_from(wall.as_micros()).unwrap_or(i64::MAX);
        let before = self.latest.fetch_max(micros, Ordering::Relaxed);
        Timestamp::from_micros(micros.max(before))
    }
}

/// A clock for tests: it stands still until it is told to advance.
///
/// Clones share one time, so a test keeps a clone and moves the store's clock with it.
#[derive(Debug, Clone)]
pub struct ManualClock {
    micros: Arc<AtomicI64>,
}

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn at(start: Timestamp) -> Self {
        ManualClock { micros: Arc::new(AtomicI64::new(start.as_micros())) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        let later = self.now().as_micros().saturating_add(micros);
        self.advance_to(Timestamp::from_micros(later));
    }

    /// Moves the clock forward to `at`; does nothing when that has passed.
    pub fn advance_to(&self, at: Timestamp) {
        self.micros.fetch_max(at.as_micros(), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// Stands at 2026-01-01T00:00:00Z.
    fn default() -> Self {
        ManualClock::at(Timestamp::from_seconds(1_767_225_600))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_manual_clock_share_its_time() {
        let clock = ManualClock::default();
        let start = clock.now();
        clock.clone().advance(Duration::from_secs(3));
        assert_eq!(clock.now().since(start), Duration::from_secs(3));
        clock.advance_to(start);
        assert_eq!(clock.now().since(start), Duration::from_secs(3));
    }
}
