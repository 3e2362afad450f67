//! When a cron expression fires, and what clock changes do to that: for the API, the page and the command line.

use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::Serialize;
use utoipa::ToSchema;
use windlass::schedule::Cron;
use windlass::{Error, Timestamp};

/// How many clock changes ahead are looked at: one each way.
const CHANGES: usize = 2;
/// Firings so close to a clock change may be touched by it: clocks change by an hour, or less.
const NEAR_SECONDS: i64 = 3600;
/// Most firings around one clock change.
const NEAR_MAX: usize = 20;

/// What a clock change does to a firing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Note {
    /// Its local time is left out that day: it fires at the first moment after the gap.
    AfterGap,
    /// Its local time comes twice that day: this is the first.
    FirstOfTwo,
    /// Its local time comes twice that day: this is the second.
    Repeated,
}

impl Note {
    /// For people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Note::AfterGap => "moved: clocks leave its time out that day",
            Note::FirstOfTwo => "its time comes twice that day; this is the first",
            Note::Repeated => "its time comes twice that day; this is the second",
        }
    }
}

/// One moment at which a schedule would fire.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Foreseen {
    /// The moment.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) at: Timestamp,
    /// What clocks show then in the schedule's zone.
    pub(crate) local: String,
    /// What a clock change does to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<Note>,
}

/// A clock change, and the firings that it moves or repeats.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct ClockChange {
    #[schema(value_type = String, format = DateTime)]
    pub(crate) at: Timestamp,
    /// What clocks show from then on.
    pub(crate) local: String,
    /// The firings near it that it touches.
    pub(crate) firings: Vec<Foreseen>,
}

/// What a cron expression means in the time to come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Firings {
    /// The expression as it is read.
    pub(crate) cron: String,
    /// The zone's own name.
    pub(crate) zone: String,
    pub(crate) next: Vec<Foreseen>,
    /// The next clock changes of the zone; none where clocks do not change.
    pub(crate) clock_changes: Vec<ClockChange>,
}

/// The next moments of a cron expression, and what becomes of those around the next clock changes.
pub(crate) fn look(expression: &str, zone: &str, from: Timestamp, n: usize) -> Result<Firings, Error> {
    let cron = Cron::new(expression, zone)?;
    let time_zone = TimeZone::get(cron.zone()).map_err(|_| Error::invalid("zone", "is not known"))?;
    // The same expression where no clock ever changes: by it one sees whether a local time is one that it names.
    let plain = Cron::new(expression, "UTC")?;
    let told = |at: Timestamp| tell(&plain, &time_zone, at);
    let next = slots(&cron, from).take(n).map(told).collect();
    let changes = time_zone.following(moment(from)).take(CHANGES).map(|change| {
        let at = change.timestamp();
        let first = Timestamp::from_seconds(at.as_second() - NEAR_SECONDS - 1);
        let last = Timestamp::from_seconds(at.as_second() + NEAR_SECONDS);
        let near = slots(&cron, first).take(NEAR_MAX).take_while(|slot| *slot <= last);
        ClockChange {
            at: Timestamp::from_seconds(at.as_second()),
            local: local(&time_zone, at),
            firings: near.map(told).filter(|firing| firing.note.is_some()).collect(),
        }
    });
    let clock_changes = changes.collect();
    Ok(Firings { cron: cron.expression().to_owned(), zone: cron.zone().to_owned(), next, clock_changes })
}

fn slots(cron: &Cron, from: Timestamp) -> impl Iterator<Item = Timestamp> {
    std::iter::successors(cron.next_after(from), |slot| cron.next_after(*slot))
}

fn tell(plain: &Cron, zone: &TimeZone, at: Timestamp) -> Foreseen {
    let civil = zone.to_datetime(moment(at));
    let as_if = civil.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp().as_second());
    let names = as_if.is_ok_and(|seconds| {
        let before = Timestamp::from_seconds(seconds - 1);
        plain.next_after(before) == Some(Timestamp::from_seconds(seconds))
    });
    let note = match zone.to_ambiguous_timestamp(civil).offset() {
        _ if !names => Some(Note::AfterGap),
        AmbiguousOffset::Fold { before, .. } if before == zone.to_offset(moment(at)) => Some(Note::FirstOfTwo),
        AmbiguousOffset::Fold { .. } => Some(Note::Repeated),
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => None,
    };
    Foreseen { at, local: local(zone, moment(at)), note }
}

/// What clocks show in a zone.
pub(crate) fn local(zone: &TimeZone, at: jiff::Timestamp) -> String {
    at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string()
}

pub(crate) fn moment(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or(jiff::Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn half_past_two_in_berlin_is_noted_at_both_clock_changes() {
        let found = look("30 2 * * *", "Europe/Berlin", at("2027-03-27T12:00:00Z"), 3).expect("valid");
        let noted: Vec<_> = found.next.iter().map(|one| (one.local.as_str(), one.note)).collect();
        assert_eq!(
            noted,
            [
                ("Sun 2027-03-28 03:00:00 CEST", Some(Note::AfterGap)),
                ("Mon 2027-03-29 02:30:00 CEST", None),
                ("Tue 2027-03-30 02:30:00 CEST", None),
            ]
        );
        let [spring, autumn] = &found.clock_changes[..] else { panic!("{:?}", found.clock_changes) };
        assert_eq!(spring.at, at("2027-03-28T01:00:00Z"));
        assert_eq!(spring.firings.len(), 1);
        assert_eq!(autumn.at, at("2027-10-31T01:00:00Z"));
        assert_eq!(autumn.firings[0].note, Some(Note::FirstOfTwo));
        assert_eq!(autumn.firings[0].at, at("2027-10-31T00:30:00Z"));
        assert_eq!(autumn.firings.len(), 1, "a fixed time does not come again");
    }

    #[test]
    fn every_half_hour_comes_again_when_the_hour_does() {
        let found = look("*/30 * * * *", "Europe/Berlin", at("2027-10-30T12:00:00Z"), 1).expect("valid");
        let notes: Vec<_> = found.clock_changes[0].firings.iter().map(|one| one.note).collect();
        assert_eq!(notes, [Some(Note::FirstOfTwo), Some(Note::FirstOfTwo), Some(Note::Repeated), Some(Note::Repeated)]);
    }

    #[test]
    fn where_clocks_do_not_change_nothing_is_noted() {
        let found = look("0 12 * * 1", "UTC", at("2027-01-01T00:00:00Z"), 100).expect("valid");
        assert_eq!(found.next.len(), 100);
        assert!(found.next.iter().all(|one| one.note.is_none()));
        assert!(found.clock_changes.is_empty());
        assert!(look("not cron", "UTC", at("2027-01-01T00:00:00Z"), 1).is_err());
        assert!(look("0 12 * * 1", "Atlantis/Capital", at("2027-01-01T00:00:00Z"), 1).is_err());
    }
}
