//! What people type, read: durations, moments, tags, numbers of things. Bad text is refused in words, never by a panic.

use std::time::Duration;

use windlass::job::WorkerId;
use windlass::{JobType, QueueName, Timestamp};

use crate::wire::{Limit, Span};

/// Longest duration that can be typed: a hundred years. Longer ones are slips of the finger.
const DURATION_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// A duration such as `90s`, `5m`, `1h30m`, `3d`, `250ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let read = text.parse::<Span>().ok().map(|span| span.0).filter(|duration| *duration <= DURATION_MAX);
    read.ok_or_else(|| format!("{:?} is not a duration, such as 90s, 5m, 1h30m or 3d", shorten(text)))
}

/// A duration, or `none`.
pub(crate) fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" | "forever" => Ok(Limit(None)),
        _ => duration(text).map(|duration| Limit(Some(duration))),
    }
}

/// A moment such as `2026-11-01T12:00:00Z`.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    text.trim().parse().map_err(|error| format!("{:?} is {error}", shorten(text)))
}

/// A moment, or how long ago it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// That very moment.
    At(Timestamp),
    /// So long before now.
    Ago(Duration),
}

impl When {
    /// The moment it means at `now`.
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            When::At(at) => at,
            When::Ago(ago) => now.minus(ago),
        }
    }
}

/// A moment such as `2026-11-01T12:00:00Z`, or an age such as `2h`.
pub(crate) fn when(text: &str) -> Result<When, String> {
    let problem =
        || format!("{:?} is neither a time such as 2026-11-01T12:00:00Z nor an age such as 2h", shorten(text));
    duration(text).map(When::Ago).or_else(|_| moment(text).map(When::At)).map_err(|_| problem())
}

/// The name of a queue.
pub(crate) fn queue(text: &str) -> windlass::Result<QueueName> {
    QueueName::new(text)
}

/// The id of a worker.
pub(crate) fn worker(text: &str) -> windlass::Result<WorkerId> {
    WorkerId::new(text)
}

/// The name of a type.
pub(crate) fn job_type(text: &str) -> windlass::Result<JobType> {
    JobType::new(text)
}

/// A tag: `key=value`. The value may be empty and may hold `=`.
pub(crate) fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{:?} is not a tag, such as customer=42", shorten(text))),
    }
}

/// Tags in the order they were typed; of one key the last counts.
pub(crate) fn tags(pairs: &[(String, String)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().cloned().collect()
}

/// The first few characters of what was typed, for a message.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN: usize = 40;
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        let cases = [
            ("0s", 0),
            ("250ms", 250),
            ("90s", 90_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("2h", 7_200_000),
            ("3d", 259_200_000),
        ];
        for (text, millis) in cases {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", " ", "5", "m", "-5m", "5 m", "1.5.5h", "5M", "5minutes", "99999999999999999999s", "40000d"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_limit_is_said_by_name() {
        assert_eq!(limit("none"), Ok(Limit(None)));
        assert_eq!(limit("5m"), Ok(Limit(Some(Duration::from_secs(300)))));
        assert!(limit("never").is_err());
    }

    #[test]
    fn a_moment_may_be_an_age() {
        let now = Timestamp::from_seconds(1000);
        assert_eq!(when("10s").expect("age").at(now), Timestamp::from_seconds(990));
        assert_eq!(when("1970-01-01T00:00:05Z").expect("time").at(now), Timestamp::from_seconds(5));
        assert!(when("yesterday").is_err());
    }

    #[test]
    fn a_tag_has_a_key() {
        assert_eq!(tag("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(tag("a="), Ok(("a".to_owned(), String::new())));
        assert!(tag("=b").is_err() && tag("a").is_err());
    }

    proptest! {
        #[test]
        fn nothing_typed_makes_a_parser_panic(text in "\\PC{0,60}|[0-9a-zA-Z:+.=-]{0,60}|[0-9]{0,25}[wdhms]{0,3}") {
            let _ = (duration(&text), limit(&text), moment(&text), when(&text), tag(&text));
            let _ = (queue(&text), job_type(&text));
        }

        #[test]
        fn a_duration_is_the_sum_of_its_parts(hours in 0..1000u64, minutes in 0..1000u64, seconds in 0..1000u64) {
            let text = format!("{hours}h{minutes}m{seconds}s");
            prop_assert_eq!(duration(&text), Ok(Duration::from_secs(hours * 3600 + minutes * 60 + seconds)));
        }
    }
}
