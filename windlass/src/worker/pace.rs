//! How far ahead of its free slots a worker claims (rule N1): arithmetic over the runs of the last second.
//!
//! A queue gets as many jobs ahead as it starts within [`HORIZON`] at its present rate, and none while its jobs run longer
//! than that. Time is an argument, so that tests can choose it.

use std::time::Duration;

use tokio::time::Instant;

/// A job that is claimed ahead should start within this time: long enough for several claims to be under way while others
/// run, short enough that nobody notices where a job waited.
pub(super) const HORIZON: Duration = Duration::from_millis(50);
/// Most jobs ahead, whatever the rate: they are in memory, with their payloads, and in every heartbeat.
const AHEAD_MAX: usize = 5_000;
/// The runs that are looked at: those of ten stretches of this length.
const STRETCH: Duration = Duration::from_millis(100);
const STRETCHES: usize = 10;

/// The runs of a queue that ended in the last second.
#[derive(Debug)]
pub(super) struct Pace {
    /// Runs and their time, by stretch, the newest at `newest % STRETCHES`.
    ended: [(usize, Duration); STRETCHES],
    newest: u64,
    made: Instant,
    /// Since when runs have ended without a second's pause.
    since: Option<Instant>,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Pace { ended: Default::default(), newest: 0, made: now, since: None }
    }

    /// Notes a run that has just ended.
    pub(super) fn ran(&mut self, now: Instant, time: Duration) {
        self.forget(now);
        self.since.get_or_insert(now);
        let (runs, sum) = &mut self.ended[self.place()];
        *runs += 1;
        *sum += time;
    }

    /// How many jobs may wait for a slot: as many as start within the horizon, and at most `most`.
    pub(super) fn ahead(&mut self, now: Instant, horizon: Duration, most: usize) -> usize {
        self.forget(now);
        let Some(since) = self.since else { return 0 };
        let runs: usize = self.ended.iter().map(|(runs, _)| runs).sum();
        let time: Duration = self.ended.iter().map(|(_, time)| *time).sum();
        if runs == 0 || time.as_secs_f64() > horizon.as_secs_f64() * runs as f64 {
            return 0;
        }
        let window = STRETCH * u32::try_from(STRETCHES - 1).expect("a few");
        let seen = now.duration_since(since).clamp(STRETCH / 2, window);
        // Rounded down: what would start after the horizon is left to others.
        let started = runs as f64 * horizon.as_secs_f64() / seen.as_secs_f64();
        (started as usize).min(most).min(AHEAD_MAX)
    }

    fn place(&self) -> usize {
        usize::try_from(self.newest).unwrap_or_default() % STRETCHES
    }

    /// Drops the stretches that are a second old.
    fn forget(&mut self, now: Instant) {
        let stretch = now.duration_since(self.made).as_millis() / STRETCH.as_millis();
        let stretch = u64::try_from(stretch).unwrap_or(u64::MAX);
        let passed = stretch.saturating_sub(self.newest).min(STRETCHES as u64);
        for _ in 0..passed {
            self.newest += 1;
            let place = self.place();
            self.ended[place] = Default::default();
        }
        self.newest = self.newest.max(stretch);
        if self.ended.iter().all(|(runs, _)| *runs == 0) {
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: usize = usize::MAX;

    fn after(runs: usize, every: Duration, time: Duration) -> (Pace, Instant) {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..runs {
            now += every;
            pace.ran(now, time);
        }
        (pace, now)
    }

    #[test]
    fn as_many_as_start_within_the_horizon() {
        let (mut pace, now) = after(3_000, Duration::from_millis(1), Duration::from_millis(1));
        let ahead = pace.ahead(now, HORIZON, ANY);
        assert!((45..=56).contains(&ahead), "50 of a thousand a second, are {ahead}");
        assert_eq!(pace.ahead(now, HORIZON, 7), 7, "no more than is allowed");
        assert!(pace.ahead(now, HORIZON / 5, ANY) <= 12, "a shorter horizon holds fewer");
    }

    #[test]
    fn a_busy_queue_is_known_after_a_few_milliseconds() {
        let (mut pace, now) = after(1_000, Duration::from_micros(20), Duration::from_micros(5));
        let ahead = pace.ahead(now, HORIZON, ANY);
        assert!((900..=1_000).contains(&ahead), "{ahead}");
    }

    #[test]
    fn long_runs_get_none_however_many_end() {
        let (mut pace, now) = after(3_000, Duration::from_millis(1), HORIZON * 2);
        assert_eq!(pace.ahead(now, HORIZON, ANY), 0);
        let (mut pace, now) = after(10, Duration::from_millis(200), Duration::from_millis(1));
        assert_eq!(pace.ahead(now, HORIZON, ANY), 0, "a slow trickle needs none");
    }

    #[test]
    fn what_ended_a_second_ago_is_forgotten() {
        let (mut pace, now) = after(1_000, Duration::from_millis(1), Duration::from_millis(1));
        assert!(pace.ahead(now, HORIZON, ANY) > 0);
        assert_eq!(pace.ahead(now + Duration::from_millis(1_100), HORIZON, ANY), 0);
        let (mut pace, now) = after(1, Duration::ZERO, Duration::ZERO);
        assert_eq!(pace.ahead(now + Duration::from_secs(1 << 40), HORIZON, ANY), 0);
    }

    #[test]
    fn never_more_than_the_most() {
        let (mut pace, now) = after(1_000_000, Duration::from_nanos(100), Duration::ZERO);
        assert_eq!(pace.ahead(now, HORIZON, ANY), AHEAD_MAX);
    }
}
