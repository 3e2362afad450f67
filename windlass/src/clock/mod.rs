//! Where a store gets its time from.
//!
//! The store's clock decides everything (rule L8); workers never compare their own wall clock with it.
//! Tests put a [`ManualClock`] in its place, which stands still until told to move.

mod pulse;
mod told;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use pulse::{AWAY_AFTER, Absence, BEAT_EVERY, DOUBT, LAPSING, Pulse, SharedPulse};
pub use told::ToldTime;

use crate::time::Timestamp;

/// A source of the current time that never runs backwards.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The current time; never earlier than an answer given before.
    fn now(&self) -> Timestamp;

    /// Goes on from this moment if it lies ahead: a store says so when it finds that another process was there already.
    fn not_before(&self, _at: Timestamp) {}

    /// The pulse that goes with this clock: with it, leases do not run out while the store is away, nor when the clock leaps.
    /// `None` for a clock whose gaps are time that passed, such as a test's.
    fn pulse(&self) -> Option<&SharedPulse> {
        None
    }

    /// The moment that leases are compared with.
    fn fence(&self, now: Timestamp) -> Timestamp {
        self.pulse().map_or(now, |pulse| pulse.get().fence(now))
    }
}

/// The machine's clock, made steady by the clock that nobody can set.
///
/// The machine's clock is set now and then: by hand, by a time server, by a virtual machine that wakes up. Set back, it
/// would make an old lease seem alive again, or hold everything up until the old time is reached. Set ahead for a
/// moment, it would expire every lease. So this clock goes on from what it said last: a little slower while the machine's
/// is behind, until both agree; and it follows a leap ahead only when that has lasted for a while. Each leap is logged.
#[derive(Debug, Default)]
pub struct SystemClock {
    told: Mutex<Option<Told>>,
    pulse: SharedPulse,
}

/// How far the machine's clock may be from what was expected before that counts as a leap: more than a busy machine or a
/// time server that corrects it slowly makes of it.
const LEAP_MICROS: i64 = 2_000_000;
/// How long a leap ahead must last before it is followed: the usual lease time.
const LEAP_LASTS: Duration = Duration::from_secs(5);

/// What was told last, by the steady clock's reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    micros: i64,
    at: Duration,
    /// Since when the machine's clock has been far ahead.
    ahead_since: Option<Duration>,
    /// Whether it was said that the machine's clock is far behind.
    said_behind: bool,
}

/// Something to say about the machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leap {
    /// It was set ahead by so much, which is followed.
    Ahead(i64),
    /// It was set back by so much; this clock goes on.
    Behind(i64),
}

impl Told {
    /// The time, when the machine's clock says `wall` and the steady clock `at`; and what there is to say.
    fn next(self, wall: i64, at: Duration) -> (Self, Option<Leap>) {
        let passed = i64::try_from(at.saturating_sub(self.at).as_micros()).unwrap_or(i64::MAX);
        let expected = self.micros.saturating_add(passed);
        let off = wall.saturating_sub(expected);
        let mut next = Told { micros: wall, at, ahead_since: None, said_behind: false };
        if off >= LEAP_MICROS {
            let since = self.ahead_since.unwrap_or(at);
            if at.saturating_sub(since) >= LEAP_LASTS {
                return (next, Some(Leap::Ahead(off)));
            }
            next.micros = expected;
            next.ahead_since = Some(since);
            return (next, None);
        }
        // Nine tenths as fast as the time passes, so that the machine's clock catches up.
        next.micros = wall.max(self.micros.saturating_add(passed - passed / 10));
        next.said_behind = self.said_behind && off < 0;
        if off <= -LEAP_MICROS && !next.said_behind {
            next.said_behind = true;
            return (next, Some(Leap::Behind(-off)));
        }
        (next, None)
    }
}

/// The clock that nobody can set, from when this process began to look at it.
pub fn steady() -> Duration {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed()
}

/// The same, with the time in which the machine was asleep, where that can be had: read for every claim and heartbeat, so by a call that
/// does not enter the kernel.
#[cfg(all(target_os = "linux", feature = "postgres"))]
pub fn passed() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    static BEGUN: OnceLock<Duration> = OnceLock::new();
    let up = clock_gettime(ClockId::Boottime);
    let up = Duration::new(u64::try_from(up.tv_sec).unwrap_or_default(), u32::try_from(up.tv_nsec).unwrap_or_default());
    up.saturating_sub(*BEGUN.get_or_init(|| up))
}

/// The same: whether the machine was asleep cannot be told here.
#[cfg(not(all(target_os = "linux", feature = "postgres")))]
pub fn passed() -> Duration {
    steady()
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut told = self.told.lock().expect("nothing panics while it holds this lock");
        let at = steady();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let wall = i64::try_from(wall.as_micros()).unwrap_or(i64::MAX);
        let first = Told { micros: wall, at, ahead_since: None, said_behind: false };
        let (next, leap) = told.map_or((first, None), |told| told.next(wall, at));
        *told = Some(next);
        drop(told);
        match leap {
            Some(Leap::Ahead(micros)) => {
                tracing::warn!(seconds = micros / 1_000_000, "the machine's clock was set ahead; the store follows");
            }
            Some(Leap::Behind(micros)) => tracing::warn!(
                seconds = micros / 1_000_000,
                "the machine's clock was set back; the store's time goes on, a tenth slower, until both agree"
            ),
            None => {}
        }
        Timestamp::from_micros(next.micros)
    }

    fn not_before(&self, at: Timestamp) {
        let now = self.now();
        let mut told = self.told.lock().expect("nothing panics while it holds this lock");
        if let Some(told) = told.as_mut().filter(|told| told.micros < at.as_micros()) {
            let seconds = at.since(now).as_secs();
            if seconds >= 2 {
                tracing::warn!(seconds, "the store's time is ahead of the machine's; it goes on, a tenth slower");
            }
            (told.micros, told.said_behind) = (at.as_micros(), true);
        }
    }

    fn pulse(&self) -> Option<&SharedPulse> {
        Some(&self.pulse)
    }
}

/// A clock for tests: it stands still until it is told to advance.
///
/// Clones share one time, so a test keeps a clone and moves the store's clock with it.
#[derive(Debug, Clone)]
pub struct ManualClock {
    micros: Arc<AtomicI64>,
    /// Whether a gap counts as an absence of the store.
    leaps: Arc<AtomicBool>,
    pulse: Arc<SharedPulse>,
}

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn at(start: Timestamp) -> Self {
        let micros = Arc::new(AtomicI64::new(start.as_micros()));
        ManualClock { micros, leaps: Arc::default(), pulse: Arc::default() }
    }

    /// From now on, seconds without upkeep count as an absence of the store (rule D6b), as they do on a machine's clock.
    /// Without it they are time that passed.
    pub fn mind_absences(&self) {
        self.leaps.store(true, Ordering::SeqCst);
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

    fn pulse(&self) -> Option<&SharedPulse> {
        Some(&*self.pulse).filter(|_| self.leaps.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3600 * SECOND;

    /// Lets a clock run by these readings of the machine's clock, one each second; gives what it tells.
    fn run(walls: &[i64]) -> Vec<i64> {
        let mut told = Told { micros: walls[0], at: Duration::ZERO, ahead_since: None, said_behind: false };
        let mut all = vec![told.micros];
        for (second, wall) in (1..).zip(&walls[1..]) {
            (told, _) = told.next(*wall, Duration::from_secs(second));
            all.push(told.micros);
        }
        all
    }

    #[test]
    fn what_has_passed_goes_on_with_the_steady_clock() {
        let (before, from) = (passed(), Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let (after, most) = (passed(), from.elapsed());
        let least = Duration::from_millis(20);
        assert!(after - before >= least && after - before <= most + least, "{before:?} and then {after:?}");
    }

    #[test]
    fn m6_a_clock_that_jumps_ahead_for_a_moment_is_not_followed() {
        let walls: Vec<_> = (0..20).map(|second| second * SECOND + if second == 3 { HOUR } else { 0 }).collect();
        let expected: Vec<_> = (0..20).map(|second| second * SECOND).collect();
        assert_eq!(run(&walls), expected);
    }

    #[test]
    fn m6_a_clock_that_was_set_ahead_is_followed_after_a_lease() {
        let walls: Vec<_> = (0..20).map(|second| second * SECOND + if second >= 3 { HOUR } else { 0 }).collect();
        let told = run(&walls);
        assert_eq!(told[7], 7 * SECOND);
        assert_eq!(told[8..], walls[8..]);
    }

    #[test]
    fn m6_a_clock_that_was_set_back_holds_nothing_up_and_is_met_again() {
        let walls: Vec<_> =
            (0..2000).map(|second| second * SECOND - if second >= 3 { 100 * SECOND } else { 0 }).collect();
        let told = run(&walls);
        for (before, after) in told.iter().zip(&told[1..]) {
            assert!((SECOND * 9 / 10..=SECOND).contains(&(after - before)), "{before} {after}");
        }
        assert_eq!(told[1990..], walls[1990..], "a hundred seconds are made up in a thousand");
    }

    #[test]
    fn m6_each_leap_is_said_once() {
        let start = Told { micros: HOUR, at: Duration::ZERO, ahead_since: None, said_behind: false };
        let (told, leap) = start.next(0, Duration::from_secs(1));
        assert_eq!(leap, Some(Leap::Behind(HOUR + SECOND)));
        assert_eq!(told.next(SECOND, Duration::from_secs(2)).1, None);
    }

    #[test]
    fn m6_the_machines_clock_goes_on_from_what_a_store_has_seen() {
        let clock = SystemClock::default();
        let ahead = clock.now().plus(Duration::from_secs(3600));
        clock.not_before(ahead);
        let first = clock.now();
        assert!(first >= ahead && first.since(ahead) < Duration::from_secs(60));
        let deadline = Instant::now() + Duration::from_secs(20);
        while clock.now() == first {
            assert!(Instant::now() < deadline, "it stands still");
        }
    }

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
