use jiff::tz::AmbiguousOffset;
use proptest::prelude::*;

use super::*;

const EXPRESSIONS: [&str; 16] = [
    "* * * * *",
    "*/30 * * * *",
    "15,45 * * * *",
    "0 * * * *",
    "0 */2 * * *",
    "30 2 * * *",
    "0 2,14 * * *",
    "*/30 2 * * *",
    "15,45 1-3 * * *",
    "0 0 * * *",
    "59 23 L * *",
    "0 12 15W * *",
    "5 4 29 2 *",
    "0 3 * * SUN#L",
    "45 1 1 JAN,JUL *",
    "10 0 13 * +FRI",
];
const ZONES: [&str; 10] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Africa/Cairo",
    "Antarctica/Troll",
];

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// Checks all slots after `from`, forwards and backwards, up to the last one expected.
fn check(expression: &str, zone: &str, from: &str, expected: &[&str]) {
    let cron = Cron::new(expression, zone).expect("a valid expression");
    let from = at(from);
    let expected: Vec<_> = expected.iter().map(|text| at(text)).collect();
    let mut latest = from;
    let mut found = Vec::new();
    for _ in &expected {
        latest = cron.next_after(latest).expect("a slot");
        found.push(latest);
    }
    assert_eq!(found, expected, "{expression} in {zone}");
    let since = Timestamp::from_micros(from.as_micros() + 1);
    let mut backwards = Vec::new();
    while let Some(slot) = cron.newest_within(since, latest) {
        backwards.push(slot);
        latest = Timestamp::from_micros(slot.as_micros() - 1);
    }
    backwards.reverse();
    assert_eq!(backwards, expected, "{expression} in {zone}, backwards");
}

#[test]
fn c1_fields_are_parted_by_what_everybody_parts_them_by() {
    let problem = Cron::new("02 \u{b},\u{b}* * * 5", "UTC").expect_err("a vertical tab");
    assert!(problem.to_string().contains("is not plain ASCII"), "{problem}");
}

#[test]
fn c1_five_or_six_fields_in_an_iana_zone_are_read() {
    let cron = Cron::new("  0\t9 * *  mon-fri ", "europe/berlin").expect("valid");
    assert_eq!((cron.expression(), cron.zone()), ("0 9 * * mon-fri", "Europe/Berlin"));
    check("0 9 * * MON-FRI", "UTC", "2026-11-13T09:00:00Z", &["2026-11-16T09:00:00Z"]);
    check("*/20 * * * * *", "UTC", "2026-11-13T09:00:39Z", &["2026-11-13T09:00:40Z", "2026-11-13T09:01:00Z"]);
    // Strictly after, to the microsecond.
    check("0 9 * * *", "UTC", "2026-11-13T08:59:59.999999Z", &["2026-11-13T09:00:00Z"]);
    check("0 9 * * *", "UTC", "2026-11-13T09:00:00Z", &["2026-11-14T09:00:00Z"]);
    check("0 9 * * *", "UTC", "2026-11-13T09:00:00.000001Z", &["2026-11-14T09:00:00Z"]);
    // Vixie's rule: either day field.
    check("0 0 15 * MON", "UTC", "2026-11-13T00:00:00Z", &["2026-11-15T00:00:00Z", "2026-11-16T00:00:00Z"]);
    check("5 4 29 2 *", "UTC", "2096-03-01T00:00:00Z", &["2104-02-29T04:05:00Z"]);
}

#[test]
fn c1_bad_expressions_and_zones_are_refused() {
    let long = format!("{} * * * *", "1,".repeat(300));
    let refused = [
        "",
        "*",
        "* * * *",
        "* * * * * * *",
        "@daily",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "a b c d e",
        "5-3 * * * *",
        "*/0 * * * *",
        "5/10 * * * *",
        ", * * * *",
        "1,,2 * * * *",
        "* * * * +",
        "0 0 31 2 *",
        "0 0 30 FEB *",
        "0 0 * * L",
        "0 0 1 * l,1",
        "MON 2 * * *",
        "0 0 JAN * * *",
        "0 0 1 * +1#5",
        "0 0 29 2 +1",
        "ſ * * * *",
        "* * * * ſUN",
        "0 0 * * 🦀",
        &long,
    ];
    for expression in refused {
        match Cron::new(expression, "UTC") {
            Err(Error::InvalidArgument { field: "cron", .. }) => {}
            other => panic!("{expression:?}: {other:?}"),
        }
    }
    for zone in ["", "Mars/Olympus", "+02:00", "Etc/Unknown", "../../etc/passwd", "Europe/Berlin\0", &"x".repeat(65)] {
        match Cron::new("* * * * *", zone) {
            Err(Error::InvalidArgument { field: "zone", .. }) => {}
            other => panic!("{zone:?}: {other:?}"),
        }
    }
}

#[test]
fn a_number_out_of_bounds_is_named_with_its_field() {
    let said = |expression: &str| Cron::new(expression, "UTC").expect_err("refused").to_string();
    assert_eq!(said("61 3 * * *"), "invalid cron: the minute \"61\" of \"61 3 * * *\" must be from 0 to 59");
    assert!(said("0 0-24 * * *").contains("the hour \"0-24\""), "{}", said("0 0-24 * * *"));
    assert!(said("0 0 0 1,32 * *").contains("day of the month"), "{}", said("0 0 0 1,32 * *"));
    assert!(said("0 0 * 13 *").contains("the month \"13\""), "{}", said("0 0 * 13 *"));
}

#[test]
fn c1_an_expression_is_written_as_expression_and_zone() {
    let cron = Cron::new("30 2 * * *", "Europe/Berlin").expect("valid");
    let text = serde_json::to_string(&cron).expect("json");
    assert_eq!(text, r#"{"expression":"30 2 * * *","zone":"Europe/Berlin"}"#);
    assert_eq!(serde_json::from_str::<Cron>(&text).expect("json"), cron);
    let utc: Cron = serde_json::from_str(r#"{"expression":"30 2 * * *"}"#).expect("json");
    assert_eq!(utc.zone(), "UTC");
    assert!(serde_json::from_str::<Cron>(r#"{"expression":"30 25 * * *"}"#).is_err());
}

#[test]
fn c5_berlin_a_left_out_time_fires_once_after_the_gap() {
    // 02:00 becomes 03:00 at 01:00 UTC on 28 March 2027.
    let zone = "Europe/Berlin";
    check("30 2 * * *", zone, "2027-03-27T12:00:00Z", &["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]);
    check("0 2,14 * * *", zone, "2027-03-28T00:00:00Z", &["2027-03-28T01:00:00Z", "2027-03-28T12:00:00Z"]);
    check("15,45 2 * * *", zone, "2027-03-27T12:00:00Z", &["2027-03-28T01:00:00Z", "2027-03-29T00:15:00Z"]);
    check("0 2,3 * * *", zone, "2027-03-27T12:00:00Z", &["2027-03-28T01:00:00Z", "2027-03-29T00:00:00Z"]);
    check("*/30 2 * * *", zone, "2027-03-27T12:00:00Z", &["2027-03-28T01:00:00Z", "2027-03-29T00:00:00Z"]);
}

#[test]
fn c5_berlin_a_repeated_time_fires_the_first_time_only() {
    // 03:00 becomes 02:00 at 01:00 UTC on 31 October 2027.
    let zone = "Europe/Berlin";
    check("30 2 * * *", zone, "2027-10-30T12:00:00Z", &["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"]);
    check("0 2,14 * * *", zone, "2027-10-30T23:00:00Z", &["2027-10-31T00:00:00Z", "2027-10-31T13:00:00Z"]);
    check("0 3 * * *", zone, "2027-10-30T12:00:00Z", &["2027-10-31T02:00:00Z", "2027-11-01T02:00:00Z"]);
    // Asked in the middle of the repeated hour.
    check("30 2 * * *", zone, "2027-10-31T00:59:59Z", &["2027-11-01T01:30:00Z"]);
    check("30 2 * * *", zone, "2027-10-31T01:10:00Z", &["2027-11-01T01:30:00Z"]);
}

#[test]
fn c5_berlin_interval_patterns_follow_real_time() {
    let zone = "Europe/Berlin";
    let spring = ["2027-03-28T00:30:00Z", "2027-03-28T01:00:00Z", "2027-03-28T01:30:00Z", "2027-03-28T02:00:00Z"];
    check("*/30 * * * *", zone, "2027-03-28T00:15:00Z", &spring);
    check("15 * * * *", zone, "2027-03-28T00:00:00Z", &["2027-03-28T00:15:00Z", "2027-03-28T01:15:00Z"]);
    let autumn = ["2027-10-31T00:00:00Z", "2027-10-31T00:30:00Z", "2027-10-31T01:00:00Z", "2027-10-31T01:30:00Z"];
    check("*/30 * * * *", zone, "2027-10-30T23:45:00Z", &autumn);
    check("*/30 2 * * *", zone, "2027-10-30T23:45:00Z", &autumn);
    let hourly = ["2027-10-31T00:15:00Z", "2027-10-31T01:15:00Z", "2027-10-31T02:15:00Z"];
    check("15 * * * *", zone, "2027-10-31T00:00:00Z", &hourly);
    let seconds = ["2027-10-31T00:59:50Z", "2027-10-31T01:00:00Z", "2027-10-31T01:00:10Z"];
    check("*/10 * * * * *", zone, "2027-10-31T00:59:45Z", &seconds);
}

#[test]
fn c5_new_york_both_nights() {
    let zone = "America/New_York";
    // 02:00 becomes 03:00 at 07:00 UTC on 14 March 2027, and back at 06:00 UTC on 7 November.
    check("30 2 * * *", zone, "2027-03-13T12:00:00Z", &["2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"]);
    let spring = ["2027-03-14T06:30:00Z", "2027-03-14T07:00:00Z", "2027-03-14T07:30:00Z"];
    check("*/30 * * * *", zone, "2027-03-14T06:00:00Z", &spring);
    check("30 1 * * *", zone, "2027-11-06T12:00:00Z", &["2027-11-07T05:30:00Z", "2027-11-08T06:30:00Z"]);
    let autumn = ["2027-11-07T05:30:00Z", "2027-11-07T06:00:00Z", "2027-11-07T06:30:00Z", "2027-11-07T07:00:00Z"];
    check("*/30 * * * *", zone, "2027-11-07T05:00:00Z", &autumn);
}

#[test]
fn c5_lord_howe_changes_by_half_an_hour() {
    let zone = "Australia/Lord_Howe";
    // 02:00 (+11:00) becomes 01:30 (+10:30) at 15:00 UTC on 3 April 2027.
    check("45 1 * * *", zone, "2027-04-03T00:00:00Z", &["2027-04-03T14:45:00Z", "2027-04-04T15:15:00Z"]);
    check("0 2 * * *", zone, "2027-04-03T00:00:00Z", &["2027-04-03T15:30:00Z", "2027-04-04T15:30:00Z"]);
    let autumn = ["2027-04-03T14:30:00Z", "2027-04-03T15:00:00Z", "2027-04-03T15:30:00Z"];
    check("*/30 * * * *", zone, "2027-04-03T14:00:00Z", &autumn);
    // 02:00 (+10:30) becomes 02:30 (+11:00) at 15:30 UTC on 2 October 2027.
    check("15 2 * * *", zone, "2027-10-02T00:00:00Z", &["2027-10-02T15:30:00Z", "2027-10-03T15:15:00Z"]);
    let spring = ["2027-10-02T15:00:00Z", "2027-10-02T15:30:00Z", "2027-10-02T16:00:00Z"];
    check("*/30 * * * *", zone, "2027-10-02T14:30:00Z", &spring);
}

#[test]
fn c5_apia_left_out_a_whole_day() {
    let zone = "Pacific/Apia";
    // 30 December 2011 did not happen: after 29 December (-10:00) came 31 December (+14:00), at 10:00 UTC on the 30th.
    let nine = ["2011-12-29T19:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z", "2011-12-31T19:00:00Z"];
    check("0 9 * * *", zone, "2011-12-29T00:00:00Z", &nine);
    check("0 0 * * *", zone, "2011-12-29T12:00:00Z", &["2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"]);
    check("0 9 30 12 *", zone, "2011-12-01T00:00:00Z", &["2011-12-30T10:00:00Z", "2012-12-29T19:00:00Z"]);
    let hourly = ["2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T11:00:00Z"];
    check("0 * * * *", zone, "2011-12-30T08:00:00Z", &hourly);
}

#[test]
fn c5_croner_alone_would_treat_lists_as_intervals() {
    // Why clock changes are decided here. When this fails, croner has changed and the module can be looked at again.
    let pattern: croner::Cron = "0 2,14 * * *".parse().expect("valid");
    let next = |from: &str| {
        let from = from.parse::<jiff::Zoned>().expect("a time");
        pattern.find_next_occurrence(&from, false).expect("a slot").to_string()
    };
    assert_eq!(next("2027-03-27T20:00[Europe/Berlin]"), "2027-03-28T14:00:00+02:00[Europe/Berlin]");
    assert_eq!(next("2027-10-31T02:00+02:00[Europe/Berlin]"), "2027-10-31T02:00:00+01:00[Europe/Berlin]");
}

#[test]
fn there_is_nothing_before_1970_and_after_9999() {
    let cron = Cron::new("0 0 1 1 *", "Europe/Berlin").expect("valid");
    assert_eq!(cron.next_after(Timestamp::MAX), None);
    assert_eq!(cron.newest_within(Timestamp::EPOCH, at("1970-06-01T00:00:00Z")), None);
    let utc = Cron::new("0 0 1 1 *", "UTC").expect("valid");
    assert_eq!(utc.newest_within(Timestamp::EPOCH, at("1970-06-01T00:00:00Z")), Some(Timestamp::EPOCH));
}

/// What rule C5 says, minute by minute: the slots of the local days around a moment.
fn by_the_rule(cron: &Cron, middle: jiff::Timestamp) -> (Timestamp, Timestamp, Vec<Timestamp>) {
    let zone = &cron.time_zone;
    let middle = zone.to_datetime(middle).date();
    let (first, last) = (middle - 2.days(), middle + 3.days());
    let mut slots = std::collections::BTreeSet::new();
    let mut local = first.at(0, 0, 0, 0);
    while local < last.at(0, 0, 0, 0) {
        if cron.pattern.is_time_matching(&local).expect("a valid time") {
            match zone.to_ambiguous_timestamp(local).offset() {
                AmbiguousOffset::Unambiguous { offset } => {
                    slots.insert(offset.to_timestamp(local).expect("in range"));
                }
                AmbiguousOffset::Gap { before, .. } if cron.makes_up => {
                    let beyond = before.to_timestamp(local).expect("in range") + 1.second();
                    slots.insert(zone.preceding(beyond).next().expect("the gap").timestamp());
                }
                AmbiguousOffset::Gap { .. } => {}
                AmbiguousOffset::Fold { before, after } => {
                    slots.insert(before.to_timestamp(local).expect("in range"));
                    if cron.repeats {
                        slots.insert(after.to_timestamp(local).expect("in range"));
                    }
                }
            }
        }
        local += 1.minute();
    }
    // The edges may lie in a change themselves; a day inside them none does that belongs to another.
    let edge = |date: jiff::civil::Date| {
        Timestamp::from_jiff(date.at(12, 0, 0, 0).to_zoned(zone.clone()).expect("noon").timestamp())
    };
    let (since, until) = (edge(first), edge(last - 1.day()));
    let slots = slots.into_iter().map(Timestamp::from_jiff).filter(|slot| *slot > since && *slot <= until).collect();
    (since, until, slots)
}

fn any_cron() -> impl Strategy<Value = Cron> {
    (prop::sample::select(&EXPRESSIONS[..]), prop::sample::select(&ZONES[..]))
        .prop_map(|(expression, zone)| Cron::new(expression, zone).expect("valid"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn c5_every_clock_change_is_as_the_rule_says(cron in any_cron(), second in 100_000_000i64..4_000_000_000) {
        let start = jiff::Timestamp::from_second(second).expect("in range");
        let middle = cron.time_zone.following(start).next().map_or(start, |change| change.timestamp());
        let (since, until, expected) = by_the_rule(&cron, middle);
        let mut found = Vec::new();
        let mut latest = since;
        while let Some(slot) = cron.next_after(latest).filter(|slot| *slot <= until) {
            found.push(slot);
            latest = slot;
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn c1_slots_only_grow_and_are_the_same_backwards(cron in any_cron(), micros in 0i64..4_000_000_000_000_000) {
        let mut latest = Timestamp::from_micros(micros);
        for _ in 0..20 {
            let next = cron.next_after(latest).expect("a slot");
            prop_assert!(next > latest);
            let since = Timestamp::from_micros(latest.as_micros() + 1);
            let before = Timestamp::from_micros(next.as_micros() - 1);
            prop_assert_eq!(cron.newest_within(since, next), Some(next));
            prop_assert_eq!(cron.newest_within(since, before), None);
            latest = next;
        }
    }

    #[test]
    fn c1_no_text_makes_reading_panic(expression in ".*", zone in ".*") {
        let _ = Cron::new(&expression, "UTC");
        let _ = Cron::new("* * * * *", &zone);
    }

    #[test]
    fn c1_nothing_that_looks_like_cron_panics(
        fields in prop::collection::vec("[-0-9*,/LW#?+]{1,6}|\\*|[0-9]{1,2}|\\*/[0-9]{1,2}|[A-Z]{3}|[0-9]L|[0-9]#[0-9]", 5..7),
        second in 0i64..4_000_000_000,
    ) {
        if let Ok(cron) = Cron::new(&fields.join(" "), "Europe/Berlin") {
            let from = Timestamp::from_seconds(second);
            let next = cron.next_after(from).expect("it runs within four years");
            prop_assert!(next > from);
            prop_assert_eq!(cron.newest_within(from, next), Some(next));
        }
    }
}
