//! A moment in time, as stores keep it: whole microseconds since 1970, UTC.
//!
//! Pure arithmetic. Nothing here reads a clock; see [`clock`](crate::clock) for that.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Visitor;
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

    #[cfg(any(test, feature = "jiff-0_2"))]
    pub(crate) fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_microsecond(self.0).expect("every Timestamp lies in jiff's range")
    }

    pub(crate) fn from_jiff(at: jiff::Timestamp) -> Self {
        Timestamp::from_micros(at.as_microsecond())
    }
}

/// How many bytes the text of a moment has.
const TEXT_BYTES: usize = 27;
const MICROS_OF_DAY: i64 = 86_400_000_000;
/// From the first of March of the year 0 to 1970. Years that begin in March have their leap day at the end.
const DAYS_TO_1970: i64 = 719_468;
/// Days in 400 years, in 100 that have no leap day at their end, and in 4.
const DAYS_OF_400: i64 = 146_097;
const DAYS_OF_100: i64 = 36_524;
const DAYS_OF_4: i64 = 1461;

/// The text of a moment. Written here because every job in an answer has half a dozen: a calendar library takes ten times as long.
fn text_of(at: Timestamp) -> [u8; TEXT_BYTES] {
    let (day, micros) = (at.0 / MICROS_OF_DAY, at.0 % MICROS_OF_DAY);
    let (year, month, day) = date_of(day);
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    put(&mut text[0..4], year);
    put(&mut text[5..7], month);
    put(&mut text[8..10], day);
    put(&mut text[11..13], micros / 3_600_000_000);
    put(&mut text[14..16], micros / 60_000_000 % 60);
    put(&mut text[17..19], micros / 1_000_000 % 60);
    put(&mut text[20..26], micros % 1_000_000);
    text
}

/// Writes a number over as many noughts.
fn put(noughts: &mut [u8], mut number: i64) {
    for nought in noughts.iter_mut().rev() {
        *nought = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The year, month and day of a number of days since 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_1970;
    let (era, of_era) = (days / DAYS_OF_400, days % DAYS_OF_400);
    let year = (of_era - of_era / (DAYS_OF_4 - 1) + of_era / DAYS_OF_100 - of_era / (DAYS_OF_400 - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Months from March on have 31, 30, 31, 30, 31 days, again and again: 153 in five.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

/// The opposite of [`date_of`]; a day that the month does not have is one of the next.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let month = if month > 2 { month - 3 } else { month + 9 };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * DAYS_OF_400 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_TO_1970
}

/// A moment as [`text_of`] writes it. `None` for everything else, be it a moment or not.
fn plain(text: &[u8]) -> Option<Timestamp> {
    let text: &[u8; TEXT_BYTES] = text.try_into().ok()?;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (26, b'Z')];
    if marks.iter().any(|(at, mark)| text[*at] != *mark) {
        return None;
    }
    let (year, month, day) = (number(&text[0..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let (hour, minute, second) = (number(&text[11..13])?, number(&text[14..16])?, number(&text[17..19])?);
    let micros = number(&text[20..26])?;
    let days = days_of(year, month, day);
    let is_date = (1970..9999).contains(&year) && (1..=12).contains(&month) && date_of(days) == (year, month, day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(Timestamp(days * MICROS_OF_DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(as_str(&text_of(*self)))
    }
}

fn as_str(text: &[u8; TEXT_BYTES]) -> &str {
    str::from_utf8(text).expect("digits and marks are ASCII")
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
        if let Some(at) = plain(text.as_bytes()) {
            return Ok(at);
        }
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
        serializer.serialize_str(as_str(&text_of(*self)))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Reads the text without a copy of it.
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
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

    #[test]
    fn no_day_of_any_year_is_written_or_read_otherwise_than_by_the_calendar() {
        let micros = 45_296_789_012;
        for day in 0..=Timestamp::MAX.as_micros() / MICROS_OF_DAY {
            let at = Timestamp::from_micros(day * MICROS_OF_DAY + micros);
            let text = format!("{:.6}", at.to_jiff());
            assert_eq!(at.to_string(), text);
            assert_eq!(text.parse(), Ok(at));
        }
    }

    #[test]
    fn what_is_not_in_the_calendar_is_refused_in_the_usual_form_too() {
        let texts = ["2026-02-29T00:00:00.000000Z", "2026-13-01T00:00:00.000000Z", "2026-00-10T00:00:00.000000Z"];
        let more = ["2026-01-00T00:00:00.000000Z", "2026-01-01T24:00:00.000000Z", "2026-01-01T00:60:00.000000Z"];
        for text in texts.iter().chain(&more).chain(&["2026-01-01T00:00:0x.000000Z", "20260-1-01T00:00:00.00000Z"]) {
            assert_eq!(text.parse::<Timestamp>(), Err(NotATimestamp), "{text}");
        }
        for text in ["2024-02-29T00:00:00.000000Z", "2000-02-29T23:59:59.999999Z"] {
            assert_eq!(text.parse::<Timestamp>().expect("a leap day").to_string(), text);
        }
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
