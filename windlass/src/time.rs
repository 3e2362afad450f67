//! A moment in time, as stores keep it: whole microseconds since 1970, UTC.
//!
//! Pure arithmetic. Nothing here reads a clock; see [`clock`](crate::clock) for that.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A moment, in microseconds since 1970-01-01T00:00:00Z.
///
/// Written and read as RFC 3339 in UTC with six decimals, so that text sorts like time. Converts from and into
/// `SystemTime`, and the types of jiff, chrono and time with the features `jiff-0_2`, `chrono-0_4` and `time-0_3`: what is
/// finer than a microsecond is cut off, and what lies outside the range is held at its end.
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
        let parsed: Result<jiff::Timestamp, _> = text.parse();
        match parsed {
            Ok(at) => Ok(Timestamp::from_jiff(at)),
            Err(_) if is_last_hours(text) => Ok(Timestamp::MAX),
            Err(_) => Err(NotATimestamp),
        }
    }
}

/// Whether this is an RFC 3339 time of the last two days of the year 9999, which people write for «never» and which lies
/// after [`Timestamp::MAX`]: a time that would do in the year before.
fn is_last_hours(text: &str) -> bool {
    let rest = text.strip_prefix("9999-12-3");
    rest.is_some_and(|rest| format!("9998-12-3{rest}").parse::<jiff::Timestamp>().is_ok())
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

impl From<SystemTime> for Timestamp {
    fn from(at: SystemTime) -> Self {
        Timestamp::EPOCH.plus(at.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

impl From<Timestamp> for SystemTime {
    fn from(at: Timestamp) -> Self {
        UNIX_EPOCH + at.since(Timestamp::EPOCH)
    }
}

#[cfg(feature = "jiff-0_2")]
impl From<jiff::Timestamp> for Timestamp {
    fn from(at: jiff::Timestamp) -> Self {
        Timestamp::from_jiff(at)
    }
}

#[cfg(feature = "jiff-0_2")]
impl From<jiff::Zoned> for Timestamp {
    fn from(at: jiff::Zoned) -> Self {
        Timestamp::from_jiff(at.timestamp())
    }
}

#[cfg(feature = "jiff-0_2")]
impl From<Timestamp> for jiff::Timestamp {
    fn from(at: Timestamp) -> Self {
        at.to_jiff()
    }
}

#[cfg(feature = "chrono-0_4")]
impl<Z: chrono::TimeZone> From<chrono::DateTime<Z>> for Timestamp {
    fn from(at: chrono::DateTime<Z>) -> Self {
        Timestamp::from_micros(at.timestamp_micros())
    }
}

#[cfg(feature = "chrono-0_4")]
impl From<Timestamp> for chrono::DateTime<chrono::Utc> {
    fn from(at: Timestamp) -> Self {
        chrono::DateTime::from_timestamp_micros(at.0).expect("every Timestamp lies in chrono's range")
    }
}

#[cfg(feature = "time-0_3")]
impl From<time::OffsetDateTime> for Timestamp {
    fn from(at: time::OffsetDateTime) -> Self {
        let micros = at.unix_timestamp_nanos().div_euclid(1000);
        Timestamp::from_micros(i64::try_from(micros).unwrap_or(if micros < 0 { 0 } else { i64::MAX }))
    }
}

#[cfg(feature = "time-0_3")]
impl From<Timestamp> for time::OffsetDateTime {
    fn from(at: Timestamp) -> Self {
        let nanos = i128::from(at.0) * 1000;
        time::OffsetDateTime::from_unix_timestamp_nanos(nanos).expect("every Timestamp lies in time's range")
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
    fn the_last_hours_of_9999_are_the_last_moment() {
        for text in ["9999-12-31T00:00:00Z", "9999-12-31T23:59:59.999999Z", "9999-12-30T23:00:00-12:00"] {
            assert_eq!(text.parse(), Ok(Timestamp::MAX), "{text}");
        }
        for text in ["9999-12-32T00:00:00Z", "9999-12-31", "9999-12-31T25:00:00Z", "10000-01-01T00:00:00Z"] {
            assert_eq!(text.parse::<Timestamp>(), Err(NotATimestamp), "{text}");
        }
    }

    #[test]
    fn arithmetic_never_leaves_the_range() {
        assert_eq!(Timestamp::MAX.plus(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.minus(Duration::MAX), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(Timestamp::MAX.to_string().parse(), Ok(Timestamp::MAX));
    }

    /// There and back, for the ends of the range and a moment between them.
    fn round<T: From<Timestamp> + Into<Timestamp>>() {
        for at in [Timestamp::EPOCH, Timestamp::from_micros(1_793_534_400_000_001), Timestamp::MAX] {
            assert_eq!(T::from(at).into(), at);
        }
    }

    #[test]
    fn moments_convert_there_and_back() {
        round::<SystemTime>();
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_secs(1)), Timestamp::EPOCH);
        #[cfg(feature = "jiff-0_2")]
        round::<jiff::Timestamp>();
        #[cfg(feature = "chrono-0_4")]
        round::<chrono::DateTime<chrono::Utc>>();
        #[cfg(feature = "time-0_3")]
        round::<time::OffsetDateTime>();
    }
}
