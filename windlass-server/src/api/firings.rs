//! When a schedule would fire, before there is one: the moments, and what clock changes do to them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass::schedule::Timing;
use windlass::{Error, Timestamp};

use super::ApiState;
use super::error::Refusal;
use super::extract::{Body, Query};
use super::roles::{Role, needs};
use crate::firings::{ClockChange, Firings, Foreseen, local, look, moment};
use crate::wire::Span;

/// Most moments that a preview shows.
const NEXT_MAX: u64 = 100;
const NEXT_DEFAULT: u64 = 10;
/// What fires less often than this was perhaps not meant: a leap day, a Friday the thirteenth.
const HARDLY_EVER: Duration = Duration::from_secs(400 * 24 * 3600);
/// What fires more often than this was perhaps meant by the minute.
const VERY_OFTEN: Duration = Duration::from_secs(60);

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(needs(Role::Read, routes!(firings))).routes(needs(Role::Read, routes!(preview)))
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
            let next = (passed..).take(n).map(slot).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firings::Note;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
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
}
