//! Single cases at the edges of the core: bounds, words, what gates say of themselves, and what `pick` leaves behind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::job::{JobId, Limits, NewJob, Payload, Policies, Priority, QueueName, State, Why};
use crate::time::Timestamp;

const SECOND: Duration = Duration::from_secs(1);

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(1_000_000_000 + micros)
}

fn job_type(number: usize) -> JobType {
    JobType::new(format!("type{number}")).expect("a name")
}

fn field_of(answer: Result<()>) -> Option<String> {
    match answer {
        Ok(()) => None,
        Err(Error::InvalidArgument { field, .. }) => Some(field.to_string()),
        other => panic!("{other:?}"),
    }
}

fn head(sequence: i64, position: i64) -> Head {
    Head { sequence, priority: Priority::Normal, position: at(position), at_door: false }
}

fn strand(key: &str, kind: usize, heads: Vec<Head>) -> Strand {
    Strand { id: 0, job_type: job_type(kind), key: key.to_owned(), wanted: true, was_open: true, heads, all: true }
}

fn taken(picks: &Picks) -> Vec<i64> {
    picks.taken.iter().map(|(_, head)| head.sequence).collect()
}

fn with_key(key: &str, gate: Gate) -> Gates {
    Gates { keys: BTreeMap::from([(key.to_owned(), gate)]), ..Gates::default() }
}

#[test]
fn bounds_hold_on_both_sides() {
    let checked = |control: Control| field_of(control.check());
    assert_eq!(checked(Control::new().running(1)), None);
    assert_eq!(checked(Control::new().running(RUNNING_MAX)), None);
    assert_eq!(field_of(Limit::weighing(WEIGHT_MAX).check()), None);
    assert_eq!(field_of(Limit::weighing(1).check()), None);
    let rate = |count, per, burst| field_of(Rate { count, per, burst }.check());
    assert_eq!(rate(1, Duration::from_millis(1), 1), None);
    assert_eq!(rate(RATE_COUNT_MAX, SECOND, RATE_COUNT_MAX), None);
    assert_eq!(rate(RATE_COUNT_MAX + 1, SECOND, 1).as_deref(), Some("rate"));
    assert_eq!(rate(1, Duration::from_micros(999), 1).as_deref(), Some("rate"));
    assert_eq!(rate(1, RATE_PER_MAX, 1), None);
    assert_eq!(rate(1, RATE_PER_MAX + SECOND, 1).as_deref(), Some("rate"));
    assert_eq!(rate(1000, SECOND, RATE_COUNT_MAX + 1).as_deref(), Some("burst"));
    // A burst may be the starts of a year, which is twelve times the longest time of a rate.
    assert_eq!(rate(1, RATE_PER_MAX, 12), None);
    assert_eq!(rate(1, RATE_PER_MAX, 13).as_deref(), Some("burst"));
    assert_eq!(checked(Control::new().ageing(SECOND)), None);
    assert_eq!(checked(Control::new().ageing(RATE_PER_MAX)), None);
    assert_eq!(checked(Control::new().ageing(RATE_PER_MAX + SECOND)).as_deref(), Some("ageing"));
    let types =
        |count| (0..count).fold(Control::new(), |control, kind| control.of_type(job_type(kind), Limit::running(1)));
    assert_eq!(checked(types(TYPES_MAX)), None);
    assert_eq!(checked(types(TYPES_MAX + 1)).as_deref(), Some("types"));
    assert_eq!(checked(Control::new().each_key(Limit::rated(Rate::per_second(0)))).as_deref(), Some("rate"));
    assert_eq!((check_key("").is_err(), check_key("a\0b").is_err()), (true, true));
    assert!(check_key(&"k".repeat(FLOW_KEY_CHARS_MAX)).is_ok());
    assert!(check_key(&"k".repeat(FLOW_KEY_CHARS_MAX + 1)).is_err());
}

#[test]
fn builders_say_what_they_are_told() {
    let limit = Limit::running(3).rate(Rate::per_minute(6)).weight(7);
    assert_eq!((limit.running, limit.rate, limit.weight), (Some(3), Some(Rate::per_minute(6)), 7));
    assert_eq!((Limit::rated(Rate::per_hour(2)).running, Limit::rated(Rate::per_hour(2)).weight), (None, 1));
    let control = Control::new().running(4).rate(Rate::per_second(50)).of_type(job_type(1), Limit::running(2));
    assert_eq!(control.of_queue(), Limit { running: Some(4), rate: Some(Rate::per_second(50)), weight: 1 });
    assert_eq!(control.of_this_type(&job_type(1)), Limit::running(2));
    assert_eq!(control.of_this_type(&job_type(2)), Limit::default());
    assert!(!control.has_strands());
    assert_eq!((control.key_of(Some("a")), control.key_of(None)), ("", ""), "keys make no difference");
    for control in [
        Control::new().each_key(Limit::running(1)),
        Control::new().fair(),
        Control::new().ageing(SECOND),
        Control::new().ordered(AfterFailure::Halt),
    ] {
        assert!(control.has_strands());
        assert_eq!((control.key_of(Some("a")), control.key_of(None)), ("a", ""));
    }
    let control = Control::new().each_key(Limit::running(1));
    let own = Gate { limit: Some(Limit::running(9)), ..Gate::default() };
    assert_eq!(control.of_key("a", &Gate::default()), Limit::running(1));
    assert_eq!(control.of_key("a", &own), Limit::running(9));
    assert_eq!(control.of_key("", &own), Limit::default(), "jobs without a key have no key limit");
}

#[test]
fn rates_have_a_burst_of_what_falls_into_a_tenth_of_a_second() {
    assert_eq!(Rate::per_second(100).burst, 10);
    assert_eq!(Rate::per_second(5).burst, 1);
    assert_eq!(Rate::per_minute(60_000), Rate { count: 60_000, per: Duration::from_secs(60), burst: 100 });
    assert_eq!(Rate::per_hour(1), Rate { count: 1, per: Duration::from_secs(3600), burst: 1 });
    assert_eq!(Rate::within(7, SECOND), Rate { count: 7, per: SECOND, burst: 1 });
    assert_eq!(Rate::new(u32::MAX, Duration::ZERO).burst, RATE_COUNT_MAX);
    assert_eq!(Rate::per_second(5).burst(3).burst, 3);
    let said = [Rate::per_second(5), Rate::per_minute(5), Rate::per_hour(5), Rate::new(5, Duration::from_millis(250))];
    let said = said.map(|rate| rate.to_string());
    assert_eq!(said, ["5/s, burst 1", "5/min, burst 1", "5/h, burst 1", "5/250ms, burst 2"]);
}

#[test]
fn a_rate_gives_its_burst_at_once_and_then_a_start_a_step() {
    let limit = Limit::rated(Rate { count: 10, per: SECOND, burst: 3 });
    let mut gate = Gate::default();
    assert_eq!(gate.room(&limit, at(0)), Room { starts: 3, again_at: None });
    (0..3).for_each(|_| gate.take(&limit, at(0)));
    assert_eq!((gate.running, gate.tat), (3, at(300_000).as_micros() * 1000));
    assert_eq!(gate.room(&limit, at(0)), Room { starts: 0, again_at: Some(at(100_000)) });
    assert_eq!(gate.room(&limit, at(99_999)).starts, 0);
    assert_eq!(gate.room(&limit, at(100_000)), Room { starts: 1, again_at: None });
    assert_eq!(gate.room(&limit, at(250_000)).starts, 2);
    // A third of a second is no whole number of nanoseconds: the step is rounded up.
    let third = Limit::rated(Rate { count: 3, per: SECOND, burst: 1 });
    let mut gate = Gate::default();
    gate.take(&third, at(0));
    assert_eq!(gate.tat, at(0).as_micros() * 1000 + 333_333_334);
    assert_eq!(gate.room(&third, at(0)).again_at, Some(at(333_334)));
}

#[test]
fn a_gate_says_what_closes_it_and_until_when() {
    let now = at(0);
    let full = Gate { running: 2, ..Gate::default() };
    assert_eq!(full.room(&Limit::running(2), now), Room { starts: 0, again_at: None });
    assert_eq!(full.room(&Limit::running(1), now).starts, 0, "a limit that was lowered");
    assert_eq!(full.room(&Limit::running(5), now), Room { starts: 3, again_at: None });
    assert_eq!(full.closed_by(&Limit::running(2), now), Some("limit"));
    assert_eq!(full.closed_by(&Limit::running(3), now), None);
    let mut held = Gate::default();
    held.hold(at(5));
    held.hold(at(3));
    assert_eq!(held.held_until, Some(at(5)), "of two the later");
    assert_eq!(held.room(&Limit::default(), now), Room { starts: 0, again_at: Some(at(5)) });
    assert_eq!(held.closed_by(&Limit::default(), now), Some("hold"));
    assert_eq!(held.room(&Limit::running(2), at(5)).starts, 2, "it is over");
    assert_eq!(held.closed_by(&Limit::default(), at(5)), None);
    let rate = Limit::rated(Rate::within(1, SECOND));
    let mut rated = Gate::default();
    rated.take(&rate, now);
    assert_eq!(rated.closed_by(&rate, now), Some("rate"));
    rated.hold(at(2_000_000));
    assert_eq!(rated.room(&rate, now).again_at, Some(at(2_000_000)), "of rate and hold the later");
    rated.held_until = Some(at(10));
    assert_eq!(rated.room(&rate, now).again_at, Some(at(1_000_000)));
}

#[test]
fn a_gate_is_blank_when_nothing_would_be_lost() {
    let now = at(0);
    let is_blank = |gate: Gate| gate.is_blank(now);
    let tat = now.as_micros() * 1000;
    assert!(is_blank(Gate { running: 3, turn: 9, ..Gate::default() }));
    assert!(is_blank(Gate { tat, ..Gate::default() }) && !is_blank(Gate { tat: tat + 1, ..Gate::default() }));
    let held = |until| Gate { held_until: Some(until), ..Gate::default() };
    assert!(is_blank(held(now)) && !is_blank(held(at(1))));
    assert!(!is_blank(Gate { owner: Some(1), ..Gate::default() }));
    assert!(!is_blank(Gate { limit: Some(Limit::default()), ..Gate::default() }));
}

#[test]
fn gates_have_names() {
    let names = [GateName::Queue, GateName::Type(job_type(1)), GateName::Key("a b".to_owned())];
    assert_eq!(names.clone().map(|name| name.to_string()), ["queue", "type type1", "key a b"]);
    assert_eq!(names.clone().map(|name| name.stored()), ["", "t:type1", "k:a b"]);
    for name in names {
        assert_eq!(GateName::from_stored(&name.stored()).expect("a name"), name);
    }
}

#[test]
fn an_owner_is_what_its_job_is() {
    assert_eq!(Owner::of(None), Owner::Gone);
    for state in State::ALL {
        let owner = match state {
            State::Completed | State::Cancelled => Owner::Gone,
            State::Failed | State::DeadLetter => Owner::Failed,
            _ => Owner::Unfinished,
        };
        assert_eq!(Owner::of(Some(state)), owner, "{state}");
    }
}

fn edit(change: Change) -> ControlEdit {
    ControlEdit::new(QueueName::new("mail").expect("a name"), change)
}

fn stored() -> Option<ControlRecord> {
    let control = Control::new().each_key(Limit::running(1));
    Some(ControlRecord { control, version: 4, from_code: false, updated_at: at(0) })
}

#[test]
fn each_change_is_an_act_on_its_target() {
    let key = || "acme".to_owned();
    let of_key = Some(GateName::Key(key()));
    let held = Gate { held_until: Some(at(9)), owner: Some(3), limit: Some(Limit::running(5)), ..Gate::default() };
    let hold = |gate, time| Change::Hold { gate, time };
    let cases = [
        (Change::PutKey { key: key(), limit: Limit::running(2) }, "limit key", of_key.clone()),
        (Change::ClearKey { key: key() }, "clear key", of_key.clone()),
        (hold(GateName::Key(key()), Some(SECOND)), "hold", of_key.clone()),
        (hold(GateName::Queue, None), "lift hold", Some(GateName::Queue)),
        (hold(GateName::Type(job_type(1)), None), "lift hold", Some(GateName::Type(job_type(1)))),
        (Change::Resume { key: key() }, "resume key", of_key),
    ];
    for (change, act, gate) in cases {
        let edit = edit(change.clone());
        assert_eq!(edit.gate(), gate);
        let decided = edit.decide(stored(), held.clone(), at(0)).expect("decided");
        assert_eq!((decided.act, &decided.control), (Some(act), &stored()), "{change:?}");
        let target = match &gate {
            Some(GateName::Queue) => "queue mail".to_owned(),
            gate => format!("{} of queue mail", gate.as_ref().expect("a gate")),
        };
        assert_eq!(decided.target, target);
        let (name, after) = decided.gate.expect("a gate");
        assert_eq!(Some(name), gate);
        let expected = match change {
            Change::PutKey { .. } => Gate { limit: Some(Limit::running(2)), ..held.clone() },
            Change::ClearKey { .. } => Gate { limit: None, ..held.clone() },
            Change::Hold { time: Some(_), .. } => Gate { held_until: Some(at(1_000_000)), ..held.clone() },
            Change::Resume { .. } => Gate { held_until: None, owner: None, ..held.clone() },
            _ => Gate { held_until: None, ..held.clone() },
        };
        assert_eq!(after, expected);
    }
    for change in [Change::Pause(true), Change::Clear { version: None }] {
        assert_eq!(edit(change).gate(), None);
    }
    assert!(matches!(ControlEdit::pause(QueueName::default(), true).change, Change::Pause(true)));
    assert_eq!(edit(Change::Pause(true)).because("").why, None);
    assert_eq!(edit(Change::Pause(true)).because("broken").why.as_deref(), Some("broken"));
}

#[test]
fn changes_out_of_bounds_or_at_another_version_are_refused() {
    let refused = |change: Change| edit(change).decide(stored(), Gate::default(), at(0)).err();
    let hold = |time| Change::Hold { gate: GateName::Queue, time: Some(time) };
    assert!(refused(hold(Duration::ZERO)).is_some() && refused(hold(HOLD_MAX + Duration::from_micros(1))).is_some());
    assert!(refused(hold(Duration::from_micros(1))).is_none() && refused(hold(HOLD_MAX)).is_none());
    assert!(refused(Change::PutKey { key: "a".to_owned(), limit: Limit::running(0) }).is_some());
    assert!(refused(Change::ClearKey { key: String::new() }).is_some());
    let conflict = refused(Change::Clear { version: Some(3) }).expect("another version");
    assert!(conflict.to_string().contains("is at version 4"), "{conflict}");
    let cleared = edit(Change::Clear { version: Some(4) }).decide(stored(), Gate::default(), at(0)).expect("cleared");
    assert_eq!((cleared.act, cleared.control, cleared.target.as_str()), (Some("clear control"), None, "queue mail"));
    let nothing = edit(Change::Clear { version: None }).decide(None, Gate::default(), at(0)).expect("nothing");
    assert_eq!((nothing.act, nothing.control), (None, None));
    let none = edit(Change::Clear { version: Some(1) }).decide(None, Gate::default(), at(0)).expect_err("none");
    assert!(none.to_string().contains("has none"), "{none}");
    let put = Change::Put { control: Control::new().running(2), version: Some(4), from_code: false };
    let put = edit(put).decide(stored(), Gate::default(), at(7)).expect("put").control.expect("controlled");
    assert_eq!((put.version, put.from_code, put.updated_at), (5, false, at(7)));
    let first = Change::Put { control: Control::new().running(2), version: None, from_code: true };
    let first = edit(first).decide(None, Gate::default(), at(7)).expect("put");
    assert_eq!(first.act, Some("control queue"));
    let first = first.control.expect("controlled");
    assert_eq!((first.version, first.from_code), (1, true));
    let other = Change::Put { control: Control::new().running(3), version: None, from_code: true };
    let other = edit(other).decide(Some(first), Gate::default(), at(8)).expect("put").control.expect("controlled");
    assert_eq!((other.version, other.control.running), (2, Some(3)), "a program may change what a program declared");
}

#[test]
fn a_key_stands_as_its_gate_and_owner_say() {
    let now = at(0);
    let control = Control::new().each_key(Limit::running(2).rate(Rate::within(1, SECOND)));
    let job = crate::job::JobId::from_uuid(uuid::Uuid::from_u128(7));
    let state = |control: &Control, gate: &Gate, owner| KeyRecord::of(control, "a", gate, owner, 3, now).state;
    let tat = at(1_000_000).as_micros() * 1000;
    assert_eq!(state(&control, &Gate::default(), None), KeyState::Open);
    assert_eq!(state(&control, &Gate { running: 2, ..Gate::default() }, None), KeyState::Full);
    assert_eq!(state(&control, &Gate { tat, ..Gate::default() }, None), KeyState::Rate { until: at(1_000_000) });
    let held = Gate { held_until: Some(at(5)), ..Gate::default() };
    assert_eq!(state(&control, &held, None), KeyState::Held { until: at(5) });
    assert_eq!(state(&control, &Gate { held_until: Some(now), ..Gate::default() }, None), KeyState::Open);
    let halts = Control::new().ordered(AfterFailure::Halt);
    let goes_on = Control::new().ordered(AfterFailure::GoOn);
    assert_eq!(state(&halts, &Gate::default(), Some((Owner::Failed, job))), KeyState::Halted { job });
    assert_eq!(state(&goes_on, &Gate::default(), Some((Owner::Failed, job))), KeyState::Open);
    assert_eq!(state(&goes_on, &Gate::default(), Some((Owner::Unfinished, job))), KeyState::Ordered { job });
    assert_eq!(
        state(&control, &Gate::default(), Some((Owner::Unfinished, job))),
        KeyState::Open,
        "no order is asked for"
    );
    let own = Gate { running: 1, limit: Some(Limit::running(4)), ..Gate::default() };
    let record = KeyRecord::of(&control, "a", &own, None, 3, now);
    assert_eq!((record.waiting, record.running, record.limit, record.own_limit), (3, 1, Limit::running(4), true));
    assert!(!KeyRecord::of(&control, "a", &Gate::default(), None, 3, now).own_limit);
    let until = now;
    let states = [
        (KeyState::Open, "open", false),
        (KeyState::Full, "full", true),
        (KeyState::Rate { until }, "rate", true),
        (KeyState::Held { until }, "held", true),
        (KeyState::Ordered { job }, "ordered", true),
        (KeyState::Halted { job }, "halted", true),
    ];
    for (state, name, blocked) in states {
        assert_eq!((state.as_str(), state.is_blocked()), (name, blocked));
    }
}

fn explained(
    control: &Control,
    gates: &Gates,
    owner: Option<(Owner, JobId)>,
    key: Option<&str>,
) -> Vec<(String, String, bool)> {
    let mut job = NewJob::new("type0", Payload::default()).queue("mail");
    if let Some(key) = key {
        job = job.key(key);
    }
    let spec = job.check(&Limits::default(), &Policies::default()).expect("valid");
    let id = JobId::from_uuid(uuid::Uuid::from_u128(1));
    let job = crate::job::JobRecord::submitted(id, std::sync::Arc::new(spec), at(0));
    let closed = blocked(control, gates, owner, &job, at(0));
    let full: Vec<bool> = closed.iter().map(Closed::is_full).collect();
    let reasons = closed.into_iter().map(|gate| gate.why(&job.spec.queue)).zip(full).map(|(why, full)| match &why {
        Why::Blocked { by, .. } => (why.to_string(), by.clone(), full),
        _ => panic!("{why:?}"),
    });
    reasons.collect()
}

#[test]
fn the_gates_before_a_job_are_explained() {
    let said = |text: &str, by: &str| (text.to_owned(), by.to_owned(), by == "limit");
    let full = |running| Gate { running, ..Gate::default() };
    let control = Control::new().running(3).of_type(job_type(0), Limit::running(2)).each_key(Limit::running(1));
    let gates = Gates {
        queue: full(3),
        types: BTreeMap::from([(job_type(0), full(2))]),
        keys: BTreeMap::from([("acme".to_owned(), full(1))]),
        ..Gates::default()
    };
    let all = explained(&control, &gates, None, Some("acme"));
    let expected = [
        said("queue mail runs 3 of 3", "limit"),
        said("type type0 runs 2 of 2", "limit"),
        said("key acme runs 1 of 1", "limit"),
    ];
    assert_eq!(all, expected);
    assert_eq!(explained(&control, &gates, None, None).len(), 2, "without a key there is no gate of it");
    assert_eq!(explained(&control, &Gates::default(), None, Some("acme")), []);
    let rate = Control::new().each_key(Limit::rated(Rate::within(1, SECOND)));
    let rated = with_key("acme", Gate { tat: at(1_000_000).as_micros() * 1000, ..Gate::default() });
    let until = at(1_000_000);
    let text = format!("key acme may start again at {until} (1/s, burst 1)");
    assert_eq!(explained(&rate, &rated, None, Some("acme")), [said(&text, "rate")]);
    let held = with_key("acme", Gate { held_until: Some(at(5)), ..Gate::default() });
    let text = format!("key acme is held until {}", at(5));
    assert_eq!(explained(&rate, &held, None, Some("acme")), [said(&text, "hold")]);
    let (halts, goes_on) = (Control::new().ordered(AfterFailure::Halt), Control::new().ordered(AfterFailure::GoOn));
    let other = JobId::from_uuid(uuid::Uuid::from_u128(7));
    let of = |control, owner| explained(control, &Gates::default(), Some((owner, other)), Some("acme"));
    let text = format!("key acme is halted: job {other} failed; requeue it or resume the key");
    assert_eq!(of(&halts, Owner::Failed), [said(&text, "halted")]);
    assert_eq!(of(&goes_on, Owner::Failed), []);
    let text = format!("key acme is ordered and waits for job {other}");
    assert_eq!(of(&goes_on, Owner::Unfinished), [said(&text, "ordered")]);
    assert_eq!(of(&control, Owner::Unfinished), []);
}

#[test]
fn jobs_of_a_key_stand_by_priority_by_age_or_by_position() {
    let urgent = Head { priority: Priority::Critical, ..head(5, 10) };
    let bulk = Head { priority: Priority::Bulk, ..head(4, 0) };
    let place = |control: &Control, head: &Head| control.within_key(head);
    let plain = Control::new().fair();
    assert_eq!(place(&plain, &urgent), (Priority::Critical.number(), at(10).as_micros(), 5));
    let aged = Control::new().ageing(SECOND);
    assert_eq!(place(&aged, &bulk), (0, at(0).as_micros() + 1_000_000 * i64::from(Priority::Bulk.number()), 4));
    let ordered = Control::new().ageing(SECOND).ordered(AfterFailure::Halt);
    assert_eq!(place(&ordered, &bulk), (0, at(0).as_micros(), 4), "order is by position alone");
}

#[test]
fn a_claim_takes_what_it_wants_and_says_why_it_is_less() {
    let control = Control::new().each_key(Limit::running(1));
    let strands = [strand("a", 0, vec![head(1, 1), head(2, 2)]), strand("b", 0, vec![head(3, 3)])];
    let one = pick(&control, &Gates::default(), &strands, 1, at(9));
    assert_eq!((taken(&one), one.blocked.len()), (vec![1], 0), "it has all it wanted");
    let all = pick(&control, &Gates::default(), &strands, 9, at(9));
    assert_eq!((taken(&all), all.blocked.clone()), (vec![1, 3], BTreeSet::from(["limit"])));
    assert_eq!(all.key_waits(&strands, at(9)), [Duration::from_micros(8), Duration::from_micros(6)]);
    assert_eq!((all.strands[0].look, all.strands[1].look), (Look::Full, Look::Empty));
    let nothing = pick(&control, &Gates::default(), &[], 9, at(9));
    assert_eq!((taken(&nothing), nothing.blocked.len(), nothing.again_at), (vec![], 0, None));
    let shut = Gates { shut: BTreeSet::from(["rate"]), ..Gates::default() };
    assert_eq!(pick(&control, &shut, &[], 9, at(9)).blocked, BTreeSet::from(["rate"]), "types that were not read");
    let full =
        Gates { queue: Gate { running: 2, ..Gate::default() }, shut: BTreeSet::from(["rate"]), ..Gates::default() };
    let queue = Control::new().running(2).each_key(Limit::running(1));
    let blocked = pick(&queue, &full, &strands, 9, at(9));
    assert_eq!((taken(&blocked), blocked.blocked), (vec![], BTreeSet::from(["limit"])), "the queue's own counts alone");
    let unwanted = [Strand { wanted: false, ..strands[0].clone() }];
    let kept = with_key("a", Gate { running: 1, ..Gate::default() });
    assert_eq!(pick(&control, &kept, &unwanted, 9, at(9)).blocked, BTreeSet::new(), "nobody asked for it");
}

#[test]
fn two_jobs_of_a_key_wait_as_long_as_the_first() {
    let control = Control::new().fair();
    let strands = [strand("a", 0, vec![head(2, 4)]), strand("a", 1, vec![head(1, 1)])];
    let picks = pick(&control, &Gates::default(), &strands, 9, at(9));
    assert_eq!(taken(&picks), [1, 2]);
    assert_eq!(picks.key_waits(&strands, at(9)), [Duration::from_micros(8)]);
}

#[test]
fn the_earliest_gate_says_when_to_ask_again() {
    let control = Control::new()
        .of_type(job_type(1), Limit::rated(Rate::within(1, 3 * SECOND)))
        .each_key(Limit::rated(Rate::within(1, 2 * SECOND)));
    let used = |until: i64| Gate { tat: at(until).as_micros() * 1000, ..Gate::default() };
    let gates = Gates {
        types: BTreeMap::from([(job_type(1), used(3_000_000))]),
        keys: BTreeMap::from([("a".to_owned(), used(2_000_000)), ("b".to_owned(), Gate::default())]),
        ..Gates::default()
    };
    let strands = [strand("a", 0, vec![head(1, 0)]), strand("b", 1, vec![head(2, 0)])];
    let picks = pick(&control, &gates, &strands, 9, at(0));
    assert_eq!((taken(&picks), picks.again_at), (vec![], Some(at(2_000_000))));
    assert_eq!(picks.blocked, BTreeSet::from(["rate"]));
    assert_eq!((picks.strands[0].look, picks.strands[1].look), (Look::At(at(2_000_000)), Look::Open));
    let sooner = Gates { again_at: Some(at(5)), ..gates.clone() };
    assert_eq!(pick(&control, &sooner, &strands, 9, at(0)).again_at, Some(at(5)), "a type that was not read");
    let type_alone = pick(&control, &gates, &strands[1..], 9, at(0));
    assert_eq!(type_alone.again_at, Some(at(3_000_000)));
    let queue = Control::new().rate(Rate::within(1, SECOND));
    let closed = Gates { queue: used(1_000_000), again_at: Some(at(5)), ..Gates::default() };
    assert_eq!(pick(&queue, &closed, &strands, 9, at(0)).again_at, Some(at(1_000_000)), "the queue's own counts alone");
    assert_eq!(pick(&queue, &closed, &[], 9, at(0)).again_at, None, "nothing waits");
}

#[test]
fn an_ordered_key_goes_on_with_its_owner_alone() {
    let control = Control::new().ordered(AfterFailure::Halt);
    let owned = |owner| {
        let mut gates = with_key("a", Gate { owner: Some(2), ..Gate::default() });
        gates.owners.insert("a".to_owned(), owner);
        gates
    };
    let strands = [strand("a", 0, vec![head(1, 0), head(2, 1)]), strand("a", 1, vec![head(3, 2)])];
    let goes_on = pick(&control, &owned(Owner::Unfinished), &strands, 9, at(9));
    assert_eq!((taken(&goes_on), goes_on.gates.keys["a"].owner), (vec![2], Some(2)));
    assert_eq!(goes_on.blocked, BTreeSet::from(["ordered"]));
    assert_eq!((goes_on.strands[0].look, goes_on.strands[1].look), (Look::Full, Look::Full));
    let elsewhere = [strand("a", 0, vec![head(1, 0)])];
    let waits = pick(&control, &owned(Owner::Unfinished), &elsewhere, 9, at(9));
    assert_eq!((taken(&waits), waits.strands[0].look), (vec![], Look::Full), "it runs, or is not due");
    let halted = pick(&control, &owned(Owner::Failed), &strands, 9, at(9));
    assert_eq!((taken(&halted), halted.gates.keys["a"].owner), (vec![], Some(2)));
    assert_eq!(halted.blocked, BTreeSet::from(["halted"]));
    let next = Control::new().ordered(AfterFailure::GoOn);
    assert_eq!(taken(&pick(&next, &owned(Owner::Failed), &strands, 9, at(9))), [1], "it goes on");
    let gone = pick(&control, &owned(Owner::Gone), &strands, 9, at(9));
    assert_eq!((taken(&gone), gone.gates.keys["a"].owner), (vec![1], Some(1)));
    let unordered = Control::new().fair();
    let free = pick(&unordered, &owned(Owner::Unfinished), &strands, 9, at(9));
    assert_eq!((taken(&free), free.gates.keys["a"].owner), (vec![1, 2, 3], None));
}

#[test]
fn the_next_job_of_an_ordered_key_may_be_one_that_is_kept_back() {
    let control = Control::new().ordered(AfterFailure::Halt).of_type(job_type(0), Limit::running(1));
    let strands = [strand("a", 0, vec![head(1, 0)]), strand("a", 1, vec![head(2, 1)])];
    let unwanted = [Strand { wanted: false, ..strands[0].clone() }, strands[1].clone()];
    assert_eq!(
        taken(&pick(&control, &Gates::default(), &unwanted, 9, at(9))),
        [] as [i64; 0],
        "it may not be overtaken"
    );
    let full =
        Gates { types: BTreeMap::from([(job_type(0), Gate { running: 1, ..Gate::default() })]), ..Gates::default() };
    let kept = pick(&control, &full, &strands, 9, at(9));
    assert_eq!(taken(&kept), [] as [i64; 0]);
    // Its own strand alone is open, so that others are not met again and again.
    assert_eq!((kept.strands[0].look, kept.strands[1].look), (Look::Open, Look::Full));
    // Jobs without a key are in no order.
    let keyless =
        [Strand { wanted: false, ..strand("", 0, vec![head(1, 0)]) }, strand("", 1, vec![head(2, 1), head(3, 2)])];
    let free = pick(&control, &Gates::default(), &keyless, 9, at(9));
    assert_eq!((taken(&free), free.gates.keys[""].owner), (vec![2, 3], None));
    assert_eq!(free.strands[0].look, Look::Open);
}

#[test]
fn strands_that_were_not_read_are_asked_for_where_they_may_come_first() {
    let control = Control::new().fair();
    let order = |turn| Order { level: Priority::Normal.number(), turn, ..Order::FIRST };
    let unread = |turn| Gates { unread: BTreeMap::from([(job_type(0), order(turn))]), ..Gates::default() };
    let strands = [Strand { was_open: true, ..strand("a", 0, vec![head(1, 0), head(2, 0)]) }];
    assert_eq!(pick(&control, &unread(-1), &strands, 1, at(9)).more, [job_type(0)], "one of them may be first");
    let enough = pick(&control, &unread(5 << 20), &strands, 1, at(9));
    assert_eq!((enough.more.len(), taken(&enough)), (0, vec![1]));
    assert_eq!(pick(&control, &unread(5 << 20), &strands, 3, at(9)).more, [job_type(0)], "there is no other left");
    let limited = Control::new().fair().of_type(job_type(0), Limit::running(1));
    let picks = pick(&limited, &unread(5 << 20), &strands, 3, at(9));
    assert_eq!((picks.more.len(), taken(&picks)), (0, vec![1]), "their type lets nothing through");
}

#[test]
fn a_key_that_comes_back_starts_no_lower_than_the_lowest_turn() {
    let control = Control::new().fair();
    let turn = |turn| Gate { turn, ..Gate::default() };
    let gates = Gates {
        queue: turn(1),
        keys: BTreeMap::from([("a".to_owned(), turn(70)), ("b".to_owned(), turn(90)), ("back".to_owned(), turn(3))]),
        ..Gates::default()
    };
    let back = Strand { was_open: false, ..strand("back", 0, vec![head(9, 9)]) };
    let strands = [strand("a", 0, vec![head(1, 0)]), strand("b", 0, vec![head(2, 0)]), back.clone()];
    let picks = pick(&control, &gates, &strands, 1, at(9));
    assert_eq!(taken(&picks), [9], "of one turn it goes first, once");
    assert_eq!((picks.gates.keys["back"].turn, picks.gates.queue.turn), (70 + (1 << 20), 70));
    let with_lower = Gates { lowest: Some(40), ..gates.clone() };
    assert_eq!(pick(&control, &with_lower, &strands, 0, at(9)).gates.keys["back"].turn, 40);
    let alone = pick(&control, &Gates { queue: turn(55), ..gates.clone() }, std::slice::from_ref(&back), 0, at(9));
    assert_eq!(alone.gates.keys["back"].turn, 55, "nobody is there: the lowest that was");
    let ahead =
        Gates { keys: BTreeMap::from([("back".to_owned(), turn(99)), ("a".to_owned(), turn(70))]), ..gates.clone() };
    assert_eq!(pick(&control, &ahead, &[strands[0].clone(), back.clone()], 0, at(9)).gates.keys["back"].turn, 99);
    let unfair = Control::new().each_key(Limit::running(1));
    assert_eq!(pick(&unfair, &gates, &[back], 0, at(9)).gates.keys["back"].turn, 3);
    let empty = [strand("a", 0, Vec::new()), Strand { was_open: false, ..strand("back", 0, vec![head(9, 9)]) }];
    let nobody = pick(&control, &Gates { queue: turn(2), ..gates }, &empty, 0, at(9));
    assert_eq!(nobody.gates.keys["back"].turn, 3, "one that has nothing is not present");
}

#[test]
fn a_start_raises_the_turn_by_its_weight_and_says_its_place() {
    let control = Control::new().fair();
    let gates = with_key("a", Gate { limit: Some(Limit::weighing(4)), running: 3, ..Gate::default() });
    let strands = [strand("a", 0, vec![head(1, 5), head(2, 6), head(3, 7)])];
    let picks = pick(&control, &gates, &strands, 2, at(9));
    assert_eq!((picks.gates.keys["a"].turn, picks.gates.keys["a"].running), (2 << 18, 5));
    let order =
        Order { level: Priority::Normal.number(), class: 1, turn: 2 << 18, place: at(7).as_micros(), sequence: 3 };
    assert_eq!(picks.strands[0], Looked { order, look: Look::Open });
    let unfair = Control::new().each_key(Limit::running(9));
    let picks = pick(&unfair, &Gates::default(), &strands, 1, at(9));
    let place = at(6).as_micros();
    let order = Order { level: Priority::Normal.number(), class: 0, turn: place, place, sequence: 2 };
    assert_eq!((picks.gates.keys["a"].turn, picks.strands[0].order), (0, order));
    assert_eq!((picks.gates.queue.running, picks.gates.types[&job_type(0)].running), (1, 1));
}
