//! When a failed job runs again: strategies, jitter, limits and the three presets.
//!
//! A policy is plain data that is copied onto the job at submission (rule J4). Randomness is an argument: a function
//! that draws numbers from 0 up to, not including, 1.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::failure::Category;
use crate::error::{Error, Result};

/// Most attempts a job may have.
pub const ATTEMPTS_MAX: u32 = 100;
/// How many lost attempts `lost = free` forgives: enough for a bad deployment, too few for a poison job.
pub const LOST_FREE_MAX: u32 = 10;
/// Longest delay a policy may name: a year. Nothing sensible waits longer, and arithmetic stays in range.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// How long a failure may ask to wait with `retry_after`, unless the policy says otherwise: what services ask for that
/// count by the day.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// Where jitter comes from: draws numbers in `0.0..1.0`.
pub type Random<'a> = &'a mut dyn FnMut() -> f64;

/// How the delay grows with the number of failures.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Backoff {
    /// Always `initial`.
    Constant,
    /// `initial × n`.
    Linear,
    /// `initial × multiplier^(n−1)`.
    Exponential {
        /// The growth from one failure to the next, at least 1.
        multiplier: f64,
    },
}

/// How the delay is spread, so that jobs that failed together do not come back together.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Jitter {
    /// Exactly the computed delay.
    None,
    /// The delay, plus or minus up to this fraction of it.
    Proportional(f64),
    /// Anything from zero to the delay.
    Full,
    /// A random walk from `initial`, each step up to three times the last.
    Decorrelated,
}

/// What a lost attempt (an expired lease) costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Lost {
    /// It counts as a failure, so that a job that kills its process ends (rule F3).
    #[default]
    Counted,
    /// The first ten do not count.
    Free,
}

impl Lost {
    /// Both.
    pub const ALL: &[Lost] = &[Lost::Counted, Lost::Free];
}

/// The retry policy of a job: a preset, and what differs from it.
///
/// ```
/// use std::time::Duration;
/// use windlass::RetryPolicy;
///
/// let policy = RetryPolicy::standard().initial(Duration::from_secs(5)).max_attempts(8);
/// assert_eq!((policy.initial, policy.max_attempts), (Duration::from_secs(5), 8));
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// How the delay grows.
    pub strategy: Backoff,
    /// The first delay.
    #[serde(with = "super::micros")]
    pub initial: Duration,
    /// No delay is longer.
    #[serde(with = "super::micros")]
    pub max: Duration,
    /// How the delay is spread.
    pub jitter: Jitter,
    /// Counted executions, the first included.
    pub max_attempts: u32,
    /// The categories that are retried.
    pub retry_on: Vec<Category>,
    /// What a lost attempt costs.
    #[serde(default)]
    pub lost: Lost,
    /// Whether a job whose lease expired waits its backoff before it may be claimed again.
    #[serde(default)]
    pub lost_backoff: bool,
    /// Whether an attempt that shutdown interrupted counts.
    #[serde(default)]
    pub interrupts_count: bool,
    /// Longest wait that a failure may ask for with `retry_after`, as by a `Retry-After` header; 24 h unless set.
    ///
    /// Apart from `max`, which holds for computed delays: a service that says ten minutes is asked again in ten minutes.
    #[serde(with = "super::micros", default = "retry_after_max", skip_serializing_if = "is_retry_after_max")]
    pub retry_after_max: Duration,
}

fn retry_after_max() -> Duration {
    RETRY_AFTER_MAX
}

fn is_retry_after_max(time: &Duration) -> bool {
    *time == RETRY_AFTER_MAX
}

impl RetryPolicy {
    /// The default: exponential from 1 s, doubling, at most 1 h, ± 10 %, 3 attempts.
    pub fn standard() -> Self {
        RetryPolicy {
            strategy: Backoff::Exponential { multiplier: 2.0 },
            initial: Duration::from_secs(1),
            max: Duration::from_secs(3600),
            jitter: Jitter::Proportional(0.1),
            max_attempts: 3,
            retry_on: vec![Category::Temporary, Category::Timeout, Category::System],
            lost: Lost::Counted,
            lost_backoff: false,
            interrupts_count: false,
            retry_after_max: RETRY_AFTER_MAX,
        }
    }

    /// For work that people wait for: exponential from 500 ms, doubling, at most 30 s, full jitter, 4 attempts.
    pub fn responsive() -> Self {
        RetryPolicy {
            initial: Duration::from_millis(500),
            max: Duration::from_secs(30),
            jitter: Jitter::Full,
            max_attempts: 4,
            ..RetryPolicy::standard()
        }
    }

    /// For work that may wait out an outage: exponential from 15 s, doubling, at most 18 h, ± 10 %, 20 attempts over six
    /// days, and so within the default lifetime.
    pub fn patient() -> Self {
        RetryPolicy {
            initial: Duration::from_secs(15),
            max: Duration::from_secs(18 * 3600),
            max_attempts: 20,
            ..RetryPolicy::standard()
        }
    }

    /// Always the same delay, without jitter.
    pub fn constant(delay: Duration, max_attempts: u32) -> Self {
        RetryPolicy {
            strategy: Backoff::Constant,
            initial: delay,
            max: delay,
            jitter: Jitter::None,
            max_attempts,
            ..RetryPolicy::standard()
        }
    }

    /// With delays that grow like this.
    #[must_use]
    pub fn strategy(mut self, strategy: Backoff) -> Self {
        self.strategy = strategy;
        self
    }

    /// With this first delay.
    #[must_use]
    pub fn initial(mut self, initial: Duration) -> Self {
        self.initial = initial;
        self
    }

    /// With no delay longer than this.
    #[must_use]
    pub fn max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }

    /// With delays spread like this.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets how many executions count, the first included.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// With failures of these categories retried, and no others.
    #[must_use]
    pub fn retry_on(mut self, categories: impl IntoIterator<Item = Category>) -> Self {
        self.retry_on = categories.into_iter().collect();
        self
    }

    /// With this cost of a lost attempt.
    #[must_use]
    pub fn lost(mut self, lost: Lost) -> Self {
        self.lost = lost;
        self
    }

    /// With or without a backoff after an expired lease.
    #[must_use]
    pub fn lost_backoff(mut self, waits: bool) -> Self {
        self.lost_backoff = waits;
        self
    }

    /// With attempts that shutdown interrupted counted, or not.
    #[must_use]
    pub fn interrupts_count(mut self, count: bool) -> Self {
        self.interrupts_count = count;
        self
    }

    /// With waits that a failure asks for itself up to this.
    #[must_use]
    pub fn retry_after_max(mut self, max: Duration) -> Self {
        self.retry_after_max = max;
        self
    }

    /// The delay after the `n`-th counted failure, `n` from 1; never longer than `max`.
    pub fn delay(&self, n: u32, random: Random<'_>) -> Duration {
        let n = n.max(1);
        let max = self.max.as_secs_f64();
        let initial = self.initial.as_secs_f64();
        let plain = match self.strategy {
            Backoff::Constant => initial,
            Backoff::Linear => initial * f64::from(n),
            Backoff::Exponential { multiplier } => initial * multiplier.powf(f64::from(n - 1)),
        };
        let plain = clamp(plain, max);
        let spread = match self.jitter {
            Jitter::None => plain,
            Jitter::Proportional(fraction) => plain * (1.0 + fraction * (2.0 * random() - 1.0)),
            Jitter::Full => plain * random(),
            Jitter::Decorrelated => (1..n).fold(initial, |last, _| {
                let top = (last * 3.0).max(initial);
                clamp(initial + (top - initial) * random(), max)
            }),
        };
        Duration::from_secs_f64(clamp(spread, max)).min(self.max)
    }

    /// Whether failures of this category are tried again.
    pub fn retries(&self, category: Category) -> bool {
        !matches!(category, Category::Permanent | Category::Cancelled) && self.retry_on.contains(&category)
    }

    /// Refuses numbers that make no sense.
    pub fn check(&self) -> Result<()> {
        if !(1..=ATTEMPTS_MAX).contains(&self.max_attempts) {
            let problem = format!("must be 1 to {ATTEMPTS_MAX}, is {}", self.max_attempts);
            return Err(Error::invalid("max_attempts", problem));
        }
        if self.max > DELAY_MAX || self.initial > self.max {
            let problem =
                format!("initial {:?} and max {:?} must satisfy initial ≤ max ≤ 366 days", self.initial, self.max);
            return Err(Error::invalid("backoff", problem));
        }
        if self.retry_after_max > DELAY_MAX {
            let problem = format!("must be at most 366 days, is {:?}", self.retry_after_max);
            return Err(Error::invalid("retry_after_max", problem));
        }
        if let Backoff::Exponential { multiplier } = self.strategy
            && !(1.0..=1000.0).contains(&multiplier)
        {
            return Err(Error::invalid("backoff", format!("multiplier must be 1 to 1000, is {multiplier}")));
        }
        if let Jitter::Proportional(fraction) = self.jitter
            && !(0.0..=1.0).contains(&fraction)
        {
            return Err(Error::invalid("backoff", format!("jitter fraction must be 0 to 1, is {fraction}")));
        }
        let unretryable = |category: &Category| matches!(category, Category::Permanent | Category::Cancelled);
        if let Some(category) = self.retry_on.iter().find(|category| unretryable(category)) {
            return Err(Error::invalid("backoff", format!("retry_on cannot hold {category}: it is never retried")));
        }
        Ok(())
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::standard()
    }
}

/// `value` within `0..=max`; anything that is no number becomes `max`, the safe side of a delay.
fn clamp(value: f64, max: f64) -> f64 {
    if value.is_nan() { max } else { value.clamp(0.0, max) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(policy: &RetryPolicy, n: u32, at: f64) -> f64 {
        policy.delay(n, &mut || at).as_secs_f64()
    }

    #[test]
    fn r1_standard_doubles_from_one_second_within_ten_percent() {
        let policy = RetryPolicy::standard();
        for (n, plain) in [(1, 1.0), (2, 2.0), (3, 4.0), (12, 2048.0), (13, 3600.0), (100, 3600.0)] {
            assert!((seconds(&policy, n, 0.5) - plain).abs() < 1e-6, "n = {n}");
            assert!((seconds(&policy, n, 0.0) - plain * 0.9).abs() < 1e-6, "n = {n}");
            assert!(seconds(&policy, n, 0.999_999) <= (plain * 1.1_f64).min(3600.0) + 1e-6, "n = {n}");
        }
        assert_eq!(policy.max_attempts, 3);
    }

    #[test]
    fn r1_responsive_is_uniform_from_zero_to_thirty_seconds() {
        let policy = RetryPolicy::responsive();
        assert_eq!(seconds(&policy, 1, 0.0), 0.0);
        assert!((seconds(&policy, 2, 0.5) - 0.5).abs() < 1e-9);
        assert!((seconds(&policy, 30, 0.5) - 15.0).abs() < 1e-9);
        assert_eq!(policy.max_attempts, 4);
    }

    #[test]
    fn r1_patient_tries_twenty_times_within_a_week() {
        let policy = RetryPolicy::patient();
        let longest: Duration = (1..policy.max_attempts).map(|n| policy.delay(n, &mut || 0.999_999)).sum();
        let shortest: Duration = (1..policy.max_attempts).map(|n| policy.delay(n, &mut || 0.0)).sum();
        let day = Duration::from_secs(86_400);
        assert_eq!(policy.delay(1, &mut || 0.5), Duration::from_secs(15));
        assert!(shortest > 5 * day && longest < 7 * day, "{shortest:?} to {longest:?}");
    }

    #[test]
    fn a_policy_that_was_stored_without_a_cap_of_retry_after_has_the_default_one() {
        let text = serde_json::to_string(&RetryPolicy::standard()).expect("json");
        assert!(!text.contains("retry_after_max"), "{text}");
        assert_eq!(serde_json::from_str::<RetryPolicy>(&text).expect("a policy"), RetryPolicy::standard());
        let short = RetryPolicy { retry_after_max: Duration::from_secs(60), ..RetryPolicy::standard() };
        let text = serde_json::to_string(&short).expect("json");
        assert_eq!(serde_json::from_str::<RetryPolicy>(&text).expect("a policy"), short);
    }

    #[test]
    fn linear_and_constant_are_capped() {
        let linear = RetryPolicy {
            strategy: Backoff::Linear,
            jitter: Jitter::None,
            max: Duration::from_secs(5),
            ..RetryPolicy::standard()
        };
        assert_eq!(seconds(&linear, 3, 0.0), 3.0);
        assert_eq!(seconds(&linear, 9, 0.0), 5.0);
        assert_eq!(seconds(&RetryPolicy::constant(Duration::from_secs(7), 2), 9, 0.9), 7.0);
    }

    #[test]
    fn decorrelated_starts_at_initial_and_walks() {
        let policy = RetryPolicy { jitter: Jitter::Decorrelated, ..RetryPolicy::standard() };
        assert_eq!(seconds(&policy, 1, 0.7), 1.0);
        assert_eq!(seconds(&policy, 2, 0.5), 2.0);
        assert_eq!(seconds(&policy, 3, 0.5), 3.5);
    }

    fn any_policy() -> impl Strategy<Value = RetryPolicy> {
        let strategy = prop_oneof![
            Just(Backoff::Constant),
            Just(Backoff::Linear),
            (1.0..1000.0).prop_map(|multiplier| Backoff::Exponential { multiplier }),
        ];
        let jitter = prop_oneof![
            Just(Jitter::None),
            Just(Jitter::Full),
            Just(Jitter::Decorrelated),
            (0.0..=1.0).prop_map(Jitter::Proportional),
        ];
        (strategy, jitter, 0u64..100_000, 0u64..10_000_000).prop_map(|(strategy, jitter, initial, more)| RetryPolicy {
            strategy,
            jitter,
            initial: Duration::from_millis(initial),
            max: Duration::from_millis(initial + more),
            ..RetryPolicy::standard()
        })
    }

    proptest! {
        #[test]
        fn a_delay_is_never_negative_or_over_max(
            policy in any_policy(), n in 0u32..200, seed in 0.0..1.0f64
        ) {
            prop_assert!(policy.check().is_ok());
            let mut draw = seed;
            let delay = policy.delay(n, &mut || { draw = (draw * 7.3 + 0.13).fract(); draw });
            prop_assert!(delay <= policy.max);
        }
    }

    #[test]
    fn senseless_policies_are_refused() {
        let standard = RetryPolicy::standard;
        let bad = [
            RetryPolicy { max_attempts: 0, ..standard() },
            RetryPolicy { max_attempts: 101, ..standard() },
            RetryPolicy { initial: Duration::from_secs(7200), ..standard() },
            RetryPolicy { max: Duration::MAX, ..standard() },
            RetryPolicy { strategy: Backoff::Exponential { multiplier: f64::NAN }, ..standard() },
            RetryPolicy { strategy: Backoff::Exponential { multiplier: 0.5 }, ..standard() },
            RetryPolicy { jitter: Jitter::Proportional(-0.1), ..standard() },
            RetryPolicy { retry_on: vec![Category::Permanent], ..standard() },
        ];
        for policy in bad {
            assert!(policy.check().is_err(), "{policy:?}");
        }
    }
}
