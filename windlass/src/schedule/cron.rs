//! Cron expressions in a time zone: which moments they name, forwards and backwards.
//!
//! The croner crate reads the expression and searches the calendar, but only in local time, where every day has 24
//! hours. What clock changes do to a local time (rule C5) is decided here, because croner treats `0 2,14 * * *` as an
//! interval: measured in Europe/Berlin it fired twice when the hour was repeated and not at all when it was left out.
//!
//! A zone's time is cut into [`Span`]s of one offset each. Inside a span local time and real time run in step, so every
//! search is a search of the calendar in one span, then in the one next to it.

use std::fmt;
use std::sync::Arc;

use croner::CronDateTime;
use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Time, date};
use jiff::tz::{Offset, TimeZone};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::time::Timestamp;

/// Longest expression, in bytes: every second and every minute written out one by one fit.
pub const EXPRESSION_BYTES_MAX: usize = 512;
/// Longest zone name, in bytes: twice what the longest in the IANA database needs.
pub const ZONE_BYTES_MAX: usize = 64;
/// Day of month, month and day of week stand last; what stands before them is the time of day.
const DAY_FIELDS: usize = 3;
/// How many spans a search forward visits. The rarest pattern that is accepted may wait 40 years (a leap day on one
/// weekday, across 2100), and zones change their offset twice a year, four times in the worst years of Morocco.
const SPANS_MAX: usize = 256;
/// The four years in which a pattern must have a run begin here; they hold a leap day.
const CHECKED_FROM: Date = date(2024, 1, 1);
/// And end here.
const CHECKED_UNTIL: Date = date(2028, 1, 1);

/// A cron expression and the time zone it is meant in.
///
/// Five fields, or six with seconds in front: minute, hour, day of month, month, day of week; `*`, lists, ranges,
/// steps, names, and `L`, `W`, `#` for days. As in Vixie cron, a day matches when either of two restricted day fields
/// does.
///
/// What clock changes do (rule C5):
///
/// - A local time that is left out fires once, at the first moment after the gap.
/// - A local time that comes twice fires the first time.
/// - An interval pattern, one with a field of the time of day that begins with `*`, follows real time: it fires
///   whenever the clock on the wall matches, the repeated hour included. What it would have fired in a gap is not made
///   up for, unless its hours are named (`*/30 2 * * *`).
///
/// ```
/// use windlass::schedule::Cron;
///
/// let cron = Cron::new("30 2 * * *", "Europe/Berlin")?;
/// let next = cron.next_after("2027-03-28T00:00:00Z".parse().expect("a time"));
/// // 02:30 does not exist on this day: 03:00 in Berlin is the first moment after it.
/// assert_eq!(next.expect("a run").to_string(), "2027-03-28T01:00:00.000000Z");
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Cron {
    expression: String,
    zone: String,
    pattern: Arc<croner::Cron>,
    time_zone: TimeZone,
    /// Whether it fires again when a local time comes again.
    repeats: bool,
    /// Whether it fires after a gap for what the gap left out.
    makes_up: bool,
}

impl Cron {
    /// Reads an expression and looks up the zone, an IANA name such as `Europe/Berlin` or `UTC`.
    ///
    /// Refused when it has no run within four years: it was hardly meant.
    pub fn new(expression: &str, zone: &str) -> Result<Self> {
        let fields = split(expression)?;
        let expression = fields.join(" ");
        let pattern = read(&expression)?;
        check_runs(&pattern, &expression)?;
        let time_zone = find_zone(zone)?;
        let starred = |field: &&str| field.split(',').any(|part| part.starts_with('*'));
        // Seconds if given, minutes, hours.
        let time_of_day = &fields[..fields.len() - DAY_FIELDS];
        Ok(Cron {
            zone: time_zone.iana_name().unwrap_or(zone).to_owned(),
            repeats: time_of_day.iter().any(starred),
            makes_up: !time_of_day.last().is_some_and(starred),
            pattern: Arc::new(pattern),
            expression,
            time_zone,
        })
    }

    /// The expression, with single spaces between its fields.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The zone's IANA name.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// What it means, in English words.
    pub fn words(&self) -> String {
        self.pattern.describe()
    }

    /// The first slot strictly after a moment; `None` when there is none that can be written down.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let mut from = after.as_micros().div_euclid(MICROS) + 1;
        for _ in 0..SPANS_MAX {
            let span = self.span_at(from)?;
            if let Some(slot) = self.first_in(&span, from) {
                return written_down(slot);
            }
            from = span.end?;
        }
        None
    }

    /// The newest slot that is not before `since` and not after `until`.
    ///
    /// The cost grows with the clock changes between the two, never with the slots.
    pub(super) fn newest_within(&self, since: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let mut to = until.as_micros().div_euclid(MICROS);
        while Timestamp::from_seconds(to) >= since {
            let span = self.span_at(to)?;
            if let Some(slot) = self.last_in(&span, to) {
                return written_down(slot).filter(|slot| *slot >= since);
            }
            // Seconds before 1970 read as 1970, so the loop would not end there by itself.
            to = span.start.filter(|start| *start > 0)? - 1;
        }
        None
    }

    /// The first slot of a span at or after `from`, which lies in it.
    fn first_in(&self, span: &Span, from: i64) -> Option<i64> {
        if span.start == Some(from) && self.fires_after_gap(span) {
            return Some(from);
        }
        let local = self.local_next((from + span.offset).max(self.local_start(span)))?;
        let slot = local - span.offset;
        span.end.is_none_or(|end| slot < end).then_some(slot)
    }

    /// The last slot of a span at or before `to`, which lies in it.
    fn last_in(&self, span: &Span, to: i64) -> Option<i64> {
        match self.local_last(to + span.offset) {
            Some(local) if local >= self.local_start(span) => Some(local - span.offset),
            _ => span.start.filter(|_| self.fires_after_gap(span)),
        }
    }

    /// The local time from which a span's matches count: those that the span before has had do not, unless repeated.
    fn local_start(&self, span: &Span) -> i64 {
        match span.start {
            None => i64::MIN,
            Some(start) if self.repeats => start + span.offset,
            Some(start) => start + span.offset.max(span.offset_before),
        }
    }

    /// Whether the gap in front of a span left out a match that is made up for.
    fn fires_after_gap(&self, span: &Span) -> bool {
        let Some(start) = span.start.filter(|_| self.makes_up && span.offset > span.offset_before) else {
            return false;
        };
        self.local_next(start + span.offset_before).is_some_and(|local| local < start + span.offset)
    }

    /// The stretch of unchanged offset that holds a moment.
    fn span_at(&self, second: i64) -> Option<Span> {
        let at = jiff::Timestamp::from_second(second).ok()?;
        let next = jiff::Timestamp::from_second(second + 1).ok()?;
        let offset_at = |at| i64::from(self.time_zone.to_offset(at).seconds());
        // Changes happen on whole seconds, so what is strictly before the next second is at this one or before it.
        let start = self.time_zone.preceding(next).next().map(|change| change.timestamp().as_second());
        let end = self.time_zone.following(at).next().map(|change| change.timestamp().as_second());
        debug_assert!(start.is_none_or(|start| start <= second) && end.is_none_or(|end| end > second));
        let before = start.and_then(|start| jiff::Timestamp::from_second(start - 1).ok());
        let offset = offset_at(at);
        Some(Span { start, end, offset, offset_before: before.map_or(offset, offset_at) })
    }

    /// The first local time at or after this one that matches.
    fn local_next(&self, local: i64) -> Option<i64> {
        to_local_second(self.pattern.find_next_occurrence(&to_civil(local)?, true).ok()?)
    }

    /// The last local time at or before this one that matches.
    fn local_last(&self, local: i64) -> Option<i64> {
        to_local_second(self.pattern.find_previous_occurrence(&to_civil(local)?, true).ok()?)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.expression == other.expression && self.zone == other.zone
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cron").field("expression", &self.expression).field("zone", &self.zone).finish()
    }
}

/// The form in JSON.
#[derive(Serialize, Deserialize)]
struct Written {
    expression: String,
    #[serde(default = "utc")]
    zone: String,
}

fn utc() -> String {
    "UTC".to_owned()
}

impl TryFrom<Written> for Cron {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        Cron::new(&written.expression, &written.zone)
    }
}

impl From<Cron> for Written {
    fn from(cron: Cron) -> Self {
        Written { expression: cron.expression, zone: cron.zone }
    }
}

/// A stretch of time in which a zone keeps its offset, in seconds since 1970; `None` where it has no end.
struct Span {
    start: Option<i64>,
    end: Option<i64>,
    /// Local time less UTC.
    offset: i64,
    /// The same, just before `start`.
    offset_before: i64,
}

const MICROS: i64 = 1_000_000;

/// The fields, once it is certain that croner can be trusted with them.
///
/// Five things are kept from it. It also parts fields at a vertical tab, which other readers do not. It maps letters to upper case, by which some that are not ASCII become ASCII. It reads
/// an empty list as a field that never matches, and then searches on for 31 million steps. It reads the name of a month
/// or weekday as a number in any field, the minutes included. And it passes over a day of week that is only `L`.
fn split(expression: &str) -> Result<Vec<&str>> {
    if expression.len() > EXPRESSION_BYTES_MAX {
        let problem = format!("must have at most {EXPRESSION_BYTES_MAX} bytes, has {}", expression.len());
        return Err(Error::invalid("cron", problem));
    }
    let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
    if fields.iter().any(|field| !field.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(Error::invalid("cron", format!("{expression:?} is not plain ASCII")));
    }
    if !(5..=6).contains(&fields.len()) {
        return Err(Error::invalid("cron", format!("must have 5 or 6 fields, has {}", fields.len())));
    }
    for (place, field) in fields.iter().rev().enumerate() {
        let problem = if field.split(',').any(|part| part.is_empty() || part == "+") {
            "has an empty place"
        } else if place >= DAY_FIELDS && field.contains(|letter: char| letter.is_ascii_alphabetic()) {
            "names a time of day with letters"
        } else if place == 0 && field.split(',').any(|part| part.eq_ignore_ascii_case("L")) {
            "does not say the last of which weekday"
        } else {
            continue;
        };
        return Err(Error::invalid("cron", format!("{field:?} {problem}")));
    }
    Ok(fields)
}

fn read(expression: &str) -> Result<croner::Cron> {
    let told = |problem: croner::errors::CronError| {
        out_of_bounds(expression).unwrap_or_else(|| format!("cannot read {expression:?}: {problem}"))
    };
    expression.parse().map_err(|problem| Error::invalid("cron", told(problem)))
}

/// The names of the fields and the numbers that each takes, from the last field on: the first of six may be left out.
const FIELDS: [(&str, u64, u64); 6] = [
    ("day of the week", 0, 7),
    ("month", 1, 12),
    ("day of the month", 1, 31),
    ("hour", 0, 23),
    ("minute", 0, 59),
    ("second", 0, 59),
];

/// Names the first field with a number that it cannot take, which the parser does not.
fn out_of_bounds(expression: &str) -> Option<String> {
    let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
    let named = fields.iter().rev().zip(FIELDS).collect::<Vec<_>>().into_iter().rev();
    for (field, (name, lowest, highest)) in named {
        let places = field.split(',').filter_map(|part| part.split('/').next());
        let numbers = places.flat_map(|place| place.split(|letter: char| !letter.is_ascii_digit()));
        let is_outside = |number: &str| number.parse().is_ok_and(|number| !(lowest..=highest).contains(&number));
        if numbers.filter(|number| !number.is_empty()).any(is_outside) {
            return Some(format!("the {name} {field:?} of {expression:?} must be from {lowest} to {highest}"));
        }
    }
    None
}

/// Refuses a pattern without a run. A time of day it always has, so only the days are looked at, one by one: croner's
/// own search goes on until the year 5000, which took 190 ms where no day matches.
fn check_runs(pattern: &croner::Cron, expression: &str) -> Result<()> {
    let runs = |day: Date| {
        let (year, month, day_of_month) = (i32::from(day.year()), day.month() as u32, day.day() as u32);
        let weekday = CronDateTime::civil_weekday(&day.to_datetime(Time::midnight()));
        let pattern = &pattern.pattern;
        pattern.month_match(month).unwrap_or(false)
            && pattern.day_match(year, month, day_of_month, weekday).unwrap_or(false)
    };
    match CHECKED_FROM.series(1.day()).take_while(|day| *day < CHECKED_UNTIL).any(runs) {
        true => Ok(()),
        false => Err(Error::invalid("cron", format!("{expression:?} has no run within four years"))),
    }
}

fn find_zone(zone: &str) -> Result<TimeZone> {
    if zone.is_empty() || zone.len() > ZONE_BYTES_MAX {
        return Err(Error::invalid("zone", format!("must have 1 to {ZONE_BYTES_MAX} bytes, has {}", zone.len())));
    }
    match TimeZone::get(zone) {
        Ok(found) if !found.is_unknown() => Ok(found),
        _ => Err(Error::invalid("zone", format!("{zone:?} is not in this machine's IANA time zone database"))),
    }
}

fn written_down(second: i64) -> Option<Timestamp> {
    let slot = Timestamp::from_seconds(second);
    (slot.as_micros() == second.saturating_mul(MICROS)).then_some(slot)
}

fn to_civil(local: i64) -> Option<DateTime> {
    Some(Offset::UTC.to_datetime(jiff::Timestamp::from_second(local).ok()?))
}

fn to_local_second(civil: DateTime) -> Option<i64> {
    Some(Offset::UTC.to_timestamp(civil).ok()?.as_second())
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
