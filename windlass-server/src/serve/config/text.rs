//! How times are written in configuration: `250ms`, `30s`, `5m`, `24h`, `7d`, several in a row, or `never`.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer};

/// Reads a time such as `1m30s`.
///
/// ```
/// use std::time::Duration;
/// use windlass_server::serve::config::duration;
///
/// assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
/// assert!(duration("90").is_err());
/// ```
pub fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || Err(format!("{text:?} is no time; write 250ms, 30s, 5m, 24h or 7d"));
    let mut rest = text.trim();
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return refuse();
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let Ok(number) = number.parse::<u32>() else { return refuse() };
        let one = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            "d" => Duration::from_secs(24 * 3600),
            _ => return refuse(),
        };
        sum = sum.saturating_add(one.saturating_mul(number));
        rest = after.trim_start();
    }
    if sum > windlass::TIMEOUT_MAX { Err(format!("{text:?} is more than ten years")) } else { Ok(sum) }
}

/// A time in a configuration file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        duration(&text).map(Time).map_err(de::Error::custom)
    }
}

/// How long something is kept in a configuration file; `never` is for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kept(pub(super) Option<Duration>);

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "never" {
            return Ok(Kept(None));
        }
        duration(&text).map(|time| Kept(Some(time))).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, millis) in
            [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000), ("1d 1h", 90_000_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "5", "s", "-5s", "1.5s", "5 parsecs", "99999999999s", "400000d", "NaNs"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
