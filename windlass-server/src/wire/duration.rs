//! Durations as text: `1m30s`, `250ms`, `1.5h`, `7d`; and `none` where there may be no limit.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The units, longest first, in nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];
/// Longest text of a duration; all that fits the pattern is shorter.
const TEXT_BYTES_MAX: usize = 256;
/// Most digits after a point: more than a float of any language prints.
const FRACTION_DIGITS_MAX: usize = 18;

/// A duration, written as numbers with units: `1m30s`, `250ms`, `2h`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Span(pub Duration);

/// Text that is no duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a duration, such as 1m30s, 250ms or 2h")]
pub struct NotADuration;

/// A duration in words: longest for `Duration::MAX`, with 15 digits of days.
#[derive(Clone, Copy)]
struct Text {
    bytes: [u8; 64],
    length: usize,
}

impl Text {
    /// The seconds and what is left of one, taken apart in arithmetic of 64 bits: 128 take ten times as long.
    fn of(duration: Duration) -> Self {
        let (seconds, nanos) = (duration.as_secs(), u64::from(duration.subsec_nanos()));
        let mut text = Text { bytes: [0; 64], length: 0 };
        let parts = [
            (seconds / 86_400, "d"),
            (seconds / 3600 % 24, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
            (nanos / 1_000_000, "ms"),
            (nanos / 1000 % 1000, "us"),
            (nanos % 1000, "ns"),
        ];
        for (number, unit) in parts {
            if number > 0 {
                text.push(number, unit);
            }
        }
        if text.length == 0 {
            text.push(0, "s");
        }
        text
    }

    fn push(&mut self, number: u64, unit: &str) {
        let (mut digits, mut from, mut rest) = ([0_u8; 20], 20, number);
        loop {
            from -= 1;
            digits[from] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        for piece in [&digits[from..], unit.as_bytes()] {
            self.bytes[self.length..][..piece.len()].copy_from_slice(piece);
            self.length += piece.len();
        }
    }

    fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).expect("digits and units are ASCII")
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Text::of(self.0).as_str())
    }
}

/// A duration as it is written here: whole numbers with units, and no more nanoseconds than 64 bits count. `None` for everything
/// else, be it a duration or not.
fn plain(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text.as_bytes(), 0_u64);
    while let [b'0'..=b'9', ..] = rest {
        let mut number = 0_u64;
        while let [digit @ b'0'..=b'9', after @ ..] = rest {
            number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            rest = after;
        }
        let (nanos, after) = match rest {
            [b'm', b's', after @ ..] => (1_000_000, after),
            [b'u', b's', after @ ..] => (1000, after),
            [b'n', b's', after @ ..] => (1, after),
            [b's', after @ ..] => (1_000_000_000, after),
            [b'm', after @ ..] => (60_000_000_000, after),
            [b'h', after @ ..] => (3_600_000_000_000, after),
            [b'd', after @ ..] => (86_400_000_000_000, after),
            _ => return None,
        };
        sum = sum.checked_add(number.checked_mul(nanos)?)?;
        rest = after;
    }
    (rest.is_empty() && !text.is_empty()).then(|| Duration::from_nanos(sum))
}

impl FromStr for Span {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(NotADuration);
        }
        if let Some(duration) = plain(text) {
            return Ok(Span(duration));
        }
        let (mut rest, mut sum) = (text, 0_u128);
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(NotADuration)?;
            let number: u128 = rest[..digits].parse().map_err(|_| NotADuration)?;
            rest = &rest[digits..];
            let fraction = fraction_of(&mut rest)?;
            let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let unit = if &rest[..letters] == "µs" { "us" } else { &rest[..letters] };
            let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(NotADuration)?;
            let part = number.checked_mul(*nanos).and_then(|whole| whole.checked_add(fraction * nanos / FRACTION_ONE));
            sum = part.and_then(|part| sum.checked_add(part)).ok_or(NotADuration)?;
            rest = &rest[letters..];
        }
        let seconds = u64::try_from(sum / 1_000_000_000).map_err(|_| NotADuration)?;
        let nanos = u32::try_from(sum % 1_000_000_000).map_err(|_| NotADuration)?;
        Ok(Span(Duration::new(seconds, nanos)))
    }
}

/// What a fraction is counted in: a one with as many noughts as it may have digits.
const FRACTION_ONE: u128 = 10_u128.pow(FRACTION_DIGITS_MAX as u32);

/// Takes the digits after a point, if one comes next; languages print `15.0` for fifteen.
fn fraction_of(rest: &mut &str) -> Result<u128, NotADuration> {
    let Some(after) = rest.strip_prefix('.') else { return Ok(0) };
    let digits = after.find(|c: char| !c.is_ascii_digit()).ok_or(NotADuration)?;
    if digits == 0 || digits > FRACTION_DIGITS_MAX {
        return Err(NotADuration);
    }
    let number: u128 = after[..digits].parse().map_err(|_| NotADuration)?;
    *rest = &after[digits..];
    Ok((digits..FRACTION_DIGITS_MAX).fold(number, |number, _| number * 10))
}

/// Reads what is written as text, without a copy of it.
struct Parsed<T>(PhantomData<T>);

impl<T: FromStr<Err = NotADuration>> Visitor<'_> for Parsed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Text::of(self.0).as_str())
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parsed(PhantomData))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Span(duration)
    }
}

impl PartialSchema for Span {
    fn schema() -> RefOr<Schema> {
        text_schema("A duration: numbers with the units d, h, m, s, ms, us, ns.", PATTERN, "1m30s")
    }
}

impl ToSchema for Span {
    fn name() -> Cow<'static, str> {
        "Duration".into()
    }
}

/// A duration, or `none` for no limit (`forever` is understood too).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit(pub Option<Duration>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(duration) => Span(duration).fmt(f),
        }
    }
}

impl FromStr for Limit {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        if matches!(text, "none" | "forever") { Ok(Limit(None)) } else { Ok(Limit(Some(text.parse::<Span>()?.0))) }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => serializer.serialize_str("none"),
            Some(duration) => Span(duration).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parsed(PhantomData))
    }
}

impl PartialSchema for Limit {
    fn schema() -> RefOr<Schema> {
        text_schema("A duration, or `none` (also `forever`) for no limit.", LIMIT_PATTERN, "30m")
    }
}

impl ToSchema for Limit {
    fn name() -> Cow<'static, str> {
        "Limit".into()
    }
}

/// Fits what every duration is written as: up to 15 digits of days, and each of the units.
const PATTERN: &str = "^([0-9]{1,15}([.][0-9]{1,18})?(d|h|m|s|ms|us|ns)){1,7}$";
const LIMIT_PATTERN: &str = "^(none|forever|([0-9]{1,15}([.][0-9]{1,18})?(d|h|m|s|ms|us|ns)){1,7})$";

fn text_schema(description: &str, pattern: &str, example: &str) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(SchemaType::new(Type::String))
        .description(Some(description))
        .pattern(Some(pattern))
        .examples([example])
        .into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_written_with_units_and_read_back() {
        for (text, millis) in [("1m30s", 90_000), ("250ms", 250), ("2h", 7_200_000), ("7d", 604_800_000), ("0s", 0)] {
            let span = Span(Duration::from_millis(millis));
            assert_eq!(span.to_string(), text);
            assert_eq!(text.parse(), Ok(span));
        }
        assert_eq!("90s".parse(), Ok(Span(Duration::from_secs(90))));
        assert_eq!("1µs".parse(), Ok(Span(Duration::from_micros(1))));
        assert_eq!("none".parse(), Ok(Limit(None)));
        for (text, millis) in
            [("15.0s", 15_000), ("1.5h", 5_400_000), ("0.30000000000000004s", 300), ("1.5s250ms", 1750)]
        {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(millis))), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        let texts = [
            "",
            "1",
            "s",
            "1x",
            "-1s",
            "1.s",
            ".5s",
            "1.5",
            "1.0.0s",
            " 1s",
            "1 s",
            "99999999999999999999d",
            "NaN",
            "1s2",
            "é",
            "1é",
        ];
        for text in texts.map(str::to_owned).into_iter().chain([format!("{}s", "0".repeat(300))]) {
            assert_eq!(text.parse::<Span>(), Err(NotADuration), "{text:?}");
        }
    }

    /// The quick reader takes what it takes for what the other one does.
    #[test]
    fn both_readers_agree() {
        let texts =
            ["0s", "1d1h1m1s1ms1us1ns", "61m", "007s", "1s1s", "18446744073s", "18446744074s", "1d2", "1mm", "m"];
        for text in texts {
            // A fraction is for the other reader alone.
            let other = format!("0.0ns{text}").parse::<Span>().ok().map(|span| span.0);
            assert!(plain(text).is_none() || plain(text) == other, "{text}");
            assert_eq!(text.parse::<Span>().ok().map(|span| span.0), other, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_duration_survives(seconds in any::<u64>(), nanos in 0..1_000_000_000_u32) {
            let span = Span(Duration::new(seconds, nanos));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
            for pattern in [PATTERN, LIMIT_PATTERN] {
                prop_assert!(regex::Regex::new(pattern).expect("a pattern").is_match(&span.to_string()), "{span} is not as described");
            }
        }

        #[test]
        fn no_text_upsets_the_reader(text in any::<String>()) {
            let _ = text.parse::<Span>();
        }
    }
}
