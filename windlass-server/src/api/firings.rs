//! When a schedule would fire, before there is one: the moments, and what clock changes do to them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::schedule::{Cron, Timing};
use windlass::{Error, Timestamp};

use super::ApiState;
use super::error::Refusal;
use super::extract::{Body, Query};
use super::roles::{Role, needs};
use crate::wire::Span;

/// Most moments that a preview shows.
const NEXT_MAX: u64 = 100;
const NEXT_DEFAULT: u64 = 10;
/// How many clock changes ahead are looked at: one each way.
const CHANGES: usize = 2;
/// Firings so close to a clock change may be touched by it: clocks change by an hour, or less.
const NEAR_SECONDS: i64 = 3600;
/// Most firings around one clock change.
const NEAR_MAX: usize = 20;
/// What fires less often than this was perhaps not meant: a leap day, a Friday the thirteenth.
const HARDLY_EVER: Duration = Duration::from_secs(400 * 24 * 3600);
/// What fires more often than this was perhaps meant by the minute.
const VERY_OFTEN: Duration = Duration::from_secs(60);

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(firings))).routes(needs(Role::Read, routes!(preview)))
}

/// What a clock change does to a firing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Note {
    /// Its local time is left out that day: it fires at the first moment after the gap.
    AfterGap,
    /// Its local time comes twice that day: this is the first.
    FirstOfTwo,
    /// Its local time comes twice that day: this is the second.
    Repeated,
}

/// One moment at which a schedule would fire.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
struct Foreseen {
    /// The moment.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// What clocks show then in the schedule's zone.
    local: String,
    /// What a clock change does to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<Note>,
}

/// A clock change, and the firings that it moves or repeats.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
struct ClockChange {
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// What clocks show from then on.
    local: String,
    /// The firings near it that it touches.
    firings: Vec<Foreseen>,
}

/// What a cron expression means in the time to come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
struct Firings {
    /// The expression as it is read.
    cron: String,
    /// The zone's own name.
    zone: String,
    next: Vec<Foreseen>,
    /// The next clock changes of the zone; none where clocks do not change.
    clock_changes: Vec<ClockChange>,
}

/// When a cron expression would fire
///
/// For looking before a schedule is created: the next moments, and around the next two clock changes of the zone what
/// becomes of the firings there.
#[utoipa::path(
    get,
    path = "/v1/firings",
    tag = "schedules",
    params(
        ("cron" = String, Query, description = "Five or six fields."),
        ("zone" = Option<String>, Query, description = "An IANA zone; UTC unless named."),
        ("from" = Option<String>, Query, format = DateTime, description = "Look from this time; the store's unless given."),
        ("n" = Option<u32>, Query, description = "How many; 10 unless said.", minimum = 1, maximum = 100),
    ),
    responses((status = 200, description = "The moments.", body = Firings))
)]
async fn firings(State(state): State<ApiState>, mut query: Query) -> Result<Json<Firings>, Refusal> {
    let expression = query.text("cron")?.ok_or_else(|| Error::invalid("cron", "must be given"))?;
    let zone = query.text("zone")?.unwrap_or_else(|| "UTC".to_owned());
    let from = query.parsed::<Timestamp>("from", "an RFC 3339 time")?;
    let n = query.number("n", 1..=NEXT_MAX, NEXT_DEFAULT)?;
    query.done()?;
    let from = match from {
        Some(from) => from,
        None => state.store().now().await?,
    };
    Ok(Json(look(&expression, &zone, from, usize::try_from(n).expect("the bound fits"))?))
}

/// When a schedule would fire, and how often.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Preview {
    /// A cron expression of five or six fields.
    #[serde(default)]
    #[schema(max_length = 512, example = "30 2 * * *")]
    cron: Option<String>,
    /// The IANA zone that `cron` is meant in; UTC unless named.
    #[serde(default)]
    #[schema(max_length = 64)]
    zone: Option<String>,
    /// A fixed rate.
    #[serde(default)]
    every: Option<Span>,
    /// The first slot of `every`; 1970-01-01T00:00:00Z unless said.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    anchor: Option<Timestamp>,
    /// A fixed delay after the last firing's job ended.
    #[serde(default)]
    delay: Option<Span>,
    /// Look from this time; the store's unless given.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// How many firings, 1 to 100; 10 unless said.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 100)]
    n: Option<u64>,
}

/// What a timing means in the time to come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
struct Previewed {
    /// The timing in English words.
    words: String,
    /// The next firings; none of a fixed delay, which hangs on the end of its last job.
    next: Vec<Foreseen>,
    /// The next clock changes of the zone, with the firings that they move or repeat.
    clock_changes: Vec<ClockChange>,
    /// What may not have been meant.
    warnings: Vec<String>,
}

/// When a schedule would fire, before there is one
///
/// Exactly one of `cron`, `every` and `delay` says when. Around the next two clock changes of the zone it tells what becomes of
/// the firings there.
#[utoipa::path(
    post,
    path = "/v1/schedules/preview",
    tag = "schedules",
    request_body = Preview,
    responses((status = 200, description = "In words, and the moments.", body = Previewed))
)]
async fn preview(State(state): State<ApiState>, Body(asked): Body<Preview>) -> Result<Json<Previewed>, Refusal> {
    let n = asked.n.unwrap_or(NEXT_DEFAULT);
    if !(1..=NEXT_MAX).contains(&n) {
        return Err(Error::invalid("n", format!("must be 1 to {NEXT_MAX}, is {n}")).into());
    }
    let from = match asked.from {
        Some(from) => from,
        None => state.store().now().await?,
    };
    Ok(Json(foresee(&asked, from, usize::try_from(n).expect("the bound fits"))?))
}

fn foresee(asked: &Preview, from: Timestamp, n: usize) -> Result<Previewed, Error> {
    let timing =
        crate::wire::timing(asked.cron.as_deref(), asked.zone.as_deref(), asked.every, asked.anchor, asked.delay)?;
    timing.check()?;
    let words = crate::wire::words(&timing);
    match timing {
        Timing::Cron(cron) => {
            let found = look(cron.expression(), cron.zone(), from, n)?;
            let warnings = warnings(&found.next, from);
            Ok(Previewed { words, next: found.next, clock_changes: found.clock_changes, warnings })
        }
        Timing::Every { every, anchor } => {
            let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
            let passed = (from.as_micros() - anchor.as_micros()).max(-1).div_euclid(micros(every)) + 1;
            let slot = |number: i64| {
                let at =
                    Timestamp::from_micros(anchor.as_micros().saturating_add(number.saturating_mul(micros(every))));
                Foreseen { at, local: local(&TimeZone::UTC, moment(at)), note: None }
            };
            let mut next: Vec<Foreseen> = (passed..).take(n).map(slot).collect();
            // Time ends some day; what lies beyond is not repeated.
            next.dedup_by_key(|slot| slot.at);
            Ok(Previewed { words, next, clock_changes: Vec::new(), warnings: Vec::new() })
        }
        Timing::Delay { .. } => {
            Ok(Previewed { words, next: Vec::new(), clock_changes: Vec::new(), warnings: Vec::new() })
        }
    }
}

/// What may not have been meant by an expression with these next firings.
fn warnings(next: &[Foreseen], from: Timestamp) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(first) = next.first().filter(|first| first.at.since(from) > HARDLY_EVER) {
        warnings.push(format!("it hardly ever fires: next at {}", first.local));
    }
    if let [first, second, ..] = next
        && second.at.since(first.at) > HARDLY_EVER
    {
        warnings.push(format!("after its next firing it does not fire before {}", second.local));
    }
    let often = next.windows(2).any(|pair| pair[1].at.since(pair[0].at) < VERY_OFTEN);
    if often {
        warnings.push("it fires more than once a minute: a job that takes longer overlaps with the next".to_owned());
    }
    warnings
}

fn look(expression: &str, zone: &str, from: Timestamp, n: usize) -> Result<Firings, Error> {
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

fn local(zone: &TimeZone, at: jiff::Timestamp) -> String {
    at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string()
}

fn moment(at: Timestamp) -> jiff::Timestamp {
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

    fn preview(text: &str) -> Previewed {
        let asked = serde_json::from_str(text).expect("a preview");
        foresee(&asked, at("2027-03-27T12:00:00Z"), 3).expect("valid")
    }

    #[test]
    fn a_preview_says_it_in_words_with_notes_and_warnings() {
        let berlin = preview(r#"{"cron": "30 2 * * *", "zone": "Europe/Berlin"}"#);
        assert!(berlin.words.contains("02:30") && berlin.words.ends_with("Europe/Berlin"), "{}", berlin.words);
        assert_eq!((berlin.next.len(), berlin.next[0].note, berlin.warnings.len()), (3, Some(Note::AfterGap), 0));
        assert_eq!(berlin.clock_changes.len(), 2);
        assert_eq!(preview(r#"{"cron": "0 0 29 2 *"}"#).warnings.len(), 1, "a leap day");
        assert_eq!(preview(r#"{"cron": "*/10 * * * * *"}"#).warnings.len(), 1, "every ten seconds");
        let every = preview(r#"{"every": "1h"}"#);
        let slots: Vec<_> = every.next.iter().map(|one| one.at).collect();
        assert_eq!(slots, ["2027-03-27T13:00:00Z", "2027-03-27T14:00:00Z", "2027-03-27T15:00:00Z"].map(at));
        assert!(preview(r#"{"delay": "5m"}"#).next.is_empty());
        let wrong = serde_json::from_str(r#"{"cron": "0 0 * * *", "every": "1h"}"#).expect("a preview");
        assert!(foresee(&wrong, at("2027-03-27T12:00:00Z"), 1).is_err());
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
