//! The pulse of a store: how it tells time that passed as usual from time in which it was away (rules D6b and L8).
//!
//! Upkeep comes by every second and beats. While it does, leases are compared with the time. When nobody has beaten for a
//! while, the store was away: its server or its disk stood still, it was cut off, or its clock leapt ahead. From outside all
//! of these look alike, and in none of them could a living worker be heard. So the comparison stands still at the last beat,
//! and goes on only after a grace in which living workers extend or settle. Nobody has to notice first.

use std::sync::Mutex;
use std::time::Duration;

use crate::time::Timestamp;

/// Without a beat for longer than this the store counts as away: upkeep comes by every second, and may be late.
pub const AWAY_AFTER: Duration = Duration::from_secs(3);
/// For how long a process that was not there leaves it to others to say what time it is on another server.
pub const DOUBT: Duration = AWAY_AFTER;
/// Beats are not closer together, however many workers do upkeep.
pub const BEAT_EVERY: Duration = Duration::from_millis(900);
/// The grace after the store is back: as long as the leases that ran out meanwhile would still have held when it went, within
/// these bounds.
const GRACE_MIN: Duration = Duration::from_secs(3);
/// Leases that end this soon after the store is back need the grace as well.
pub const LAPSING: Duration = GRACE_MIN;
const GRACE_MAX: Duration = Duration::from_secs(300);
/// From how far behind the last beat the time has run back.
const BEHIND: Duration = Duration::from_secs(1);

/// When somebody last beat, and what the last absence means for leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pulse {
    /// The last beat; [`Timestamp::EPOCH`] before the first.
    pub at: Timestamp,
    /// When the store went the last time.
    pub away_from: Timestamp,
    /// Until when leases are compared with that moment.
    pub grace_until: Timestamp,
}

impl Default for Pulse {
    fn default() -> Self {
        Pulse { at: Timestamp::EPOCH, away_from: Timestamp::EPOCH, grace_until: Timestamp::EPOCH }
    }
}

impl Pulse {
    /// Whether the store was away until now.
    pub fn is_away(&self, now: Timestamp) -> bool {
        self.at > Timestamp::EPOCH && now.since(self.at) > AWAY_AFTER
    }

    /// The moment that leases are compared with: `now`, or an earlier one while the store is away and for a grace after.
    pub fn fence(&self, now: Timestamp) -> Timestamp {
        if self.is_away(now) {
            self.fence(self.at)
        } else if now < self.grace_until {
            now.min(self.away_from)
        } else {
            now
        }
    }

    /// By how many microseconds the store's time is to be moved, when the clock is off by `leap` of what a process expected:
    /// so that time goes on from where it was, and never runs back behind the last beat.
    ///
    /// A process whose expectation lies before the last beat was asleep, or is no judge: others were there meanwhile.
    pub fn set_right(&self, now: Timestamp, leap: i64) -> i64 {
        let expected = Timestamp::from_micros(now.as_micros().saturating_sub(leap));
        let is_judge = leap != 0 && self.at.since(expected) <= AWAY_AFTER;
        let is_behind = self.at.since(now) > BEHIND;
        match (is_judge, is_behind) {
            (true, _) => expected.max(self.at).as_micros() - now.as_micros(),
            (false, true) => self.at.as_micros() - now.as_micros(),
            (false, false) => 0,
        }
    }

    /// The pulse after a beat, and the absence that it ended. Takes the latest end of a lease that has run out by now or does
    /// within [`LAPSING`]; where there is none, an absence has harmed nobody. A lease that was granted after the last beat,
    /// before anybody noticed that the store is back, counts as if it had been granted at that beat.
    #[must_use]
    pub fn beat(&self, now: Timestamp, latest: Option<Timestamp>) -> (Pulse, Option<Absence>) {
        let Some(latest) = latest.filter(|_| self.is_away(now)) else {
            return (Pulse { at: self.at.max(now), ..*self }, None);
        };
        let away_from = self.fence(self.at);
        // What was left when it went this time: of a lease, or of the grace after the absence before.
        let left = latest.max(self.grace_until).since(self.at);
        let grace_until = now.plus(left.clamp(GRACE_MIN, GRACE_MAX));
        let absence = Absence { from: away_from, back_at: now, grace_until };
        (Pulse { at: now, away_from, grace_until }, Some(absence))
    }
}

/// The time in which a store was away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absence {
    /// The last beat before it.
    pub from: Timestamp,
    /// The first beat after it.
    pub back_at: Timestamp,
    /// Until when leases that had not run out before hold.
    pub grace_until: Timestamp,
}

impl Absence {
    /// Says it in the log.
    pub fn log(&self) {
        let (away, grace) = (self.back_at.since(self.from), self.grace_until.since(self.back_at));
        tracing::warn!(
            ?away,
            ?grace,
            "the store was unavailable, or its clock leapt; leases that ran out meanwhile hold for a grace"
        );
    }
}

/// A pulse that the parts of a process share, for a store that is one process.
#[derive(Debug, Default)]
pub struct SharedPulse(Mutex<Pulse>);

impl SharedPulse {
    /// The pulse as it is.
    pub fn get(&self) -> Pulse {
        *self.0.lock().expect("nothing panics while it holds this lock")
    }

    /// Beats; `latest` is asked, with the last beat, only after an absence, which is given.
    pub fn beat(&self, now: Timestamp, latest: impl FnOnce(Timestamp) -> Option<Timestamp>) -> Option<Absence> {
        let before = self.get();
        let latest = if before.is_away(now) { latest(before.at) } else { None };
        let (after, absence) = before.beat(now, latest);
        *self.0.lock().expect("nothing panics while it holds this lock") = after;
        absence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    /// A pulse that has beaten every second until then.
    fn steady(until: i64) -> Pulse {
        (0..=until).fold(Pulse::default(), |pulse, second| pulse.beat(at(second), None).0)
    }

    #[test]
    fn the_fence_is_the_time_while_somebody_beats_and_before_anybody_did() {
        assert_eq!(Pulse::default().fence(at(7)), at(7));
        assert_eq!(steady(5).fence(at(7)), at(7));
    }

    #[test]
    fn the_fence_stands_still_while_nobody_beats_and_for_as_long_as_leases_had_left() {
        let before = steady(5);
        assert_eq!(before.fence(at(9)), at(5));
        assert_eq!(before.fence(at(9000)), at(5), "nobody has to notice first");
        let (after, absence) = before.beat(at(100), Some(at(15)));
        assert_eq!(absence, Some(Absence { from: at(5), back_at: at(100), grace_until: at(110) }));
        assert_eq!(after.fence(at(100)), at(5));
        let after = (101..=109).fold(after, |pulse, second| pulse.beat(at(second), None).0);
        assert_eq!(after.fence(at(109)), at(5), "ten seconds were left");
        let (after, _) = after.beat(at(110), None);
        assert_eq!(after.fence(at(110)), at(110));
    }

    #[test]
    fn an_absence_during_a_grace_does_not_end_it() {
        let first = steady(5).beat(at(100), Some(at(10))).0;
        let second = first.beat(at(200), Some(at(195))).0;
        assert_eq!(second.fence(at(200)), at(5));
        assert_eq!(second.grace_until, at(295), "what was granted after the first absence is counted");
    }

    #[test]
    fn absences_in_a_row_do_not_add_up() {
        let mut pulse = steady(5).beat(at(20), Some(at(6))).0;
        for back_at in (22..=100).step_by(10) {
            pulse = pulse.beat(at(back_at + 8), Some(at(back_at + 1))).0;
            assert_eq!((pulse.away_from, pulse.grace_until), (at(5), at(back_at + 11)), "each has one grace");
            pulse = pulse.beat(at(back_at + 10), None).0;
        }
    }

    #[test]
    fn l8_time_goes_on_from_where_it_was() {
        const SECOND: i64 = 1_000_000;
        let pulse = steady(5);
        let hour = 3600 * SECOND;
        assert_eq!(pulse.set_right(at(6), 0), 0);
        assert_eq!(pulse.set_right(at(3606), hour), -hour, "a clock that is ahead");
        assert_eq!(pulse.set_right(at(-3594), -hour), hour, "one that is behind");
        assert_eq!(pulse.set_right(at(4), -2 * SECOND), 2 * SECOND);
    }

    #[test]
    fn l8_time_runs_back_behind_no_beat_although_nobody_remembers() {
        assert_eq!(steady(5).set_right(at(-3595), 0), 3600 * 1_000_000);
        assert_eq!(steady(5).set_right(at(5000), 0), 0, "an absence, for all that anybody knows");
    }

    #[test]
    fn l8_a_process_that_was_asleep_is_no_judge_of_time() {
        let pulse = steady(4000);
        assert_eq!(pulse.set_right(at(4001), 3600 * 1_000_000), 0);
        assert_eq!(pulse.set_right(at(4001), 2 * 1_000_000), -1_000_000, "and time never runs back behind a beat");
    }

    #[test]
    fn a_grace_has_bounds() {
        assert_eq!(steady(5).beat(at(100), Some(at(6))).0.grace_until, at(103));
        assert_eq!(steady(5).beat(at(9000), Some(at(8000))).0.grace_until, at(9300));
    }

    #[test]
    fn an_absence_without_leases_is_none() {
        let (after, absence) = steady(5).beat(at(100), None);
        assert_eq!((after.fence(at(100)), absence), (at(100), None));
    }

    #[test]
    fn time_that_runs_back_changes_nothing() {
        assert_eq!(steady(5).beat(at(2), None).0.at, at(5));
    }
}
