//! Durations as text: `1m30s`, `250ms`, `1.5h`, `7d`; and `none` where there may be no limit.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

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

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_nanos();
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, nanos) in UNITS {
            if rest >= nanos {
                write!(f, "{}{unit}", rest / nanos)?;
                rest %= nanos;
            }
        }
        Ok(())
    }
}

impl FromStr for Span {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(NotADuration);
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

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
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
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
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
