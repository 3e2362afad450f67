//! A moment in time, as stores keep it: whole microseconds since 1970, UTC.
//!
//! Pure arithmetic. Nothing here reads a clock; see [`clock`](crate::clock) for that.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment, in microseconds since 1970-01-01T00:00:00Z.
///
/// Written and read as RFC 3339 in UTC with six decimals, so that text sorts like time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The last moment that has an RFC 3339 form: nearly the end of the year 9999.
    pub const MAX: Timestamp = Timestamp(253_402_207_200_000_000);
    /// The first moment that Windlass counts: 1970-01-01T00:00:00Z.
    pub const EPOCH: Timestamp = Timestamp(0);

    /// From microseconds since 1970, clamped to the range that can be written down.
    pub const fn from_micros(micros: i64) -> Self {
        if micros < 0 {
            Timestamp::EPOCH
        } else if micros > Timestamp::MAX.0 {
            Timestamp::MAX
        } else {
            Timestamp(micros)
        }
    }

    /// From whole seconds since 1970.
    pub const fn from_seconds(seconds: i64) -> Self {
        Timestamp::from_micros(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }

    /// This moment plus `duration`, held at [`Timestamp::MAX`].
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.0.saturating_add(micros))
    }

    /// This moment less `duration`, held at [`Timestamp::EPOCH`].
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.0.saturating_sub(micros))
    }

    pub(crate) fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_microsecond(self.0).expect("every Timestamp lies in jiff's range")
    }

    pub(crate) fn from_jiff(at: jiff::Timestamp) -> Self {
        Timestamp::from_micros(at.as_microsecond())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.to_jiff())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 time, such as 2026-11-01T12:00:00Z")]
pub struct NotATimestamp;

impl FromStr for Timestamp {
    type Err = NotATimestamp;

    fn from_str(text: &str) -> Result<Self, NotATimestamp> {
        let at: jiff::Timestamp = text.parse().map_err(|_| NotATimestamp)?;
        Ok(Timestamp::from_jiff(at))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_with_six_decimals_and_read_back() {
        let at = Timestamp::from_micros(1_793_534_400_000_001);
        assert_eq!(at.to_string(), "2026-11-01T12:00:00.000001Z");
        assert_eq!(at.to_string().parse(), Ok(at));
        assert_eq!("2026-11-01T14:00:00.000001+02:00".parse(), Ok(at));
    }

    #[test]
    fn arithmetic_never_leaves_the_range() {
        assert_eq!(Timestamp::MAX.plus(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.minus(Duration::MAX), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(Timestamp::MAX.to_string().parse(), Ok(Timestamp::MAX));
    }
}
