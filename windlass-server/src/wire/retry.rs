//! When a failed attempt is tried again.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use windlass::job::{Backoff, Jitter, Lost, RETRY_AFTER_MAX};
use windlass::{Category, Error, RetryPolicy};

use super::{Span, names};

/// A retry policy. What is left out is the preset's.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// What the rest is based on; `standard` unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// How the delay grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// The growth of `exponential` from one failure to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub multiplier: Option<f64>,
    /// The first delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<Span>,
    /// No delay is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Span>,
    /// How the delay is spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterKind>,
    /// The fraction of `proportional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub jitter_fraction: Option<f64>,
    /// The categories that are retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<names::CategoryName>>)]
    pub retry_on: Option<Vec<Category>>,
    /// What a lost attempt costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::LostName>)]
    pub lost: Option<Lost>,
    /// Whether a job whose lease expired waits its backoff before it may be claimed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_backoff: Option<bool>,
    /// Whether an attempt that shutdown interrupted counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts_count: Option<bool>,
    /// Longest wait that a failure may ask for with `retry_after`; 24 h unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_max: Option<Span>,
}

/// A ready-made retry policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Exponential from 1 s, doubling, at most 1 h, ± 10 %, 3 attempts.
    Standard,
    /// Exponential from 500 ms, doubling, at most 30 s, full jitter, 4 attempts.
    Responsive,
    /// Exponential from 15 s, doubling, at most 18 h, ± 10 %, 20 attempts: about six days.
    Patient,
}

/// How the delay grows with the number of failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Always `initial`.
    Constant,
    /// `initial × n`.
    Linear,
    /// `initial × multiplier^(n−1)`.
    Exponential,
}

/// How the delay is spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JitterKind {
    /// Exactly the computed delay.
    None,
    /// The delay, plus or minus up to `jitter_fraction` of it.
    Proportional,
    /// Anything from zero to the delay.
    Full,
    /// A random walk from `initial`.
    Decorrelated,
}

/// Reads a policy, or the name of a preset in its place.
pub(super) fn preset_or_policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Retry>, D::Error> {
    struct Either;

    impl<'de> Visitor<'de> for Either {
        type Value = Retry;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a retry policy or the name of a preset")
        }

        fn visit_str<E: de::Error>(self, name: &str) -> Result<Retry, E> {
            let preset = Preset::deserialize(de::value::StrDeserializer::<E>::new(name))?;
            Ok(Retry { preset: Some(preset), ..Retry::default() })
        }

        fn visit_map<A: de::MapAccess<'de>>(self, members: A) -> Result<Retry, A::Error> {
            Retry::deserialize(de::value::MapAccessDeserializer::new(members))
        }
    }

    deserializer.deserialize_any(Either).map(Some)
}

impl Retry {
    /// The policy; its attempts are the preset's.
    pub fn into_policy(self) -> windlass::Result<RetryPolicy> {
        let mut policy = match self.preset {
            None | Some(Preset::Standard) => RetryPolicy::standard(),
            Some(Preset::Responsive) => RetryPolicy::responsive(),
            Some(Preset::Patient) => RetryPolicy::patient(),
        };
        match (self.strategy, self.multiplier) {
            (None | Some(Strategy::Exponential), Some(multiplier)) => {
                policy.strategy = Backoff::Exponential { multiplier };
            }
            (Some(Strategy::Exponential), None) => policy.strategy = Backoff::Exponential { multiplier: 2.0 },
            (Some(_), Some(_)) => return Err(Error::invalid("multiplier", "stands only beside exponential")),
            (Some(Strategy::Constant), None) => policy.strategy = Backoff::Constant,
            (Some(Strategy::Linear), None) => policy.strategy = Backoff::Linear,
            (None, None) => {}
        }
        match (self.jitter, self.jitter_fraction) {
            (None | Some(JitterKind::Proportional), Some(fraction)) => policy.jitter = Jitter::Proportional(fraction),
            (Some(JitterKind::Proportional), None) => policy.jitter = Jitter::Proportional(0.1),
            (Some(_), Some(_)) => return Err(Error::invalid("jitter_fraction", "stands only beside proportional")),
            (Some(JitterKind::None), None) => policy.jitter = Jitter::None,
            (Some(JitterKind::Full), None) => policy.jitter = Jitter::Full,
            (Some(JitterKind::Decorrelated), None) => policy.jitter = Jitter::Decorrelated,
            (None, None) => {}
        }
        policy.initial = self.initial.map_or(policy.initial, |span| span.0);
        policy.max = self.max.map_or(policy.max, |span| span.0);
        policy.retry_on = self.retry_on.unwrap_or(policy.retry_on);
        policy.lost = self.lost.unwrap_or(policy.lost);
        policy.lost_backoff = self.lost_backoff.unwrap_or(policy.lost_backoff);
        policy.interrupts_count = self.interrupts_count.unwrap_or(policy.interrupts_count);
        policy.retry_after_max = self.retry_after_max.map_or(policy.retry_after_max, |span| span.0);
        Ok(policy)
    }
}

impl From<&RetryPolicy> for Retry {
    fn from(policy: &RetryPolicy) -> Self {
        let (strategy, multiplier) = match policy.strategy {
            Backoff::Constant => (Some(Strategy::Constant), None),
            Backoff::Linear => (Some(Strategy::Linear), None),
            Backoff::Exponential { multiplier } => (Some(Strategy::Exponential), Some(multiplier)),
            _ => (None, None),
        };
        let (jitter, jitter_fraction) = match policy.jitter {
            Jitter::None => (Some(JitterKind::None), None),
            Jitter::Proportional(fraction) => (Some(JitterKind::Proportional), Some(fraction)),
            Jitter::Full => (Some(JitterKind::Full), None),
            Jitter::Decorrelated => (Some(JitterKind::Decorrelated), None),
            _ => (None, None),
        };
        Retry {
            preset: None,
            strategy,
            multiplier,
            initial: Some(policy.initial.into()),
            max: Some(policy.max.into()),
            jitter,
            jitter_fraction,
            retry_on: Some(policy.retry_on.clone()),
            lost: Some(policy.lost),
            lost_backoff: Some(policy.lost_backoff),
            interrupts_count: Some(policy.interrupts_count),
            retry_after_max: Some(policy.retry_after_max).filter(|max| *max != RETRY_AFTER_MAX).map(Span::from),
        }
    }
}
