use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::job::{DependencyKind, DependsOn, Limits, NewJob, Payload, Policies, State};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const TWO_WEEKS: Duration = Duration::from_secs(14 * 24 * 3600);

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn start() -> Timestamp {
    at("2026-11-01T00:00:00Z")
}

fn new_job() -> NewJob {
    NewJob::new("report", Payload::json(&()).expect("json"))
}

fn template() -> JobSpec {
    spec_of(new_job())
}

fn spec_of(job: NewJob) -> JobSpec {
    job.check(&Limits::default(), &Policies::default()).expect("a valid job")
}

fn job(number: u64) -> JobId {
    JobId::from_uuid(Uuid::from_u128(u128::from(number)))
}

fn cron(expression: &str) -> ScheduleSpec {
    ScheduleSpec::cron("report", expression, "UTC", template()).expect("valid")
}

fn every(period: Duration) -> ScheduleSpec {
    ScheduleSpec::every("report", period, template())
}

fn delay(after: Duration) -> ScheduleSpec {
    ScheduleSpec::delay("report", after, template())
}

fn created(spec: ScheduleSpec) -> ScheduleRecord {
    ScheduleRecord::create(spec, start()).expect("valid")
}

fn slots(plan: &Plan) -> Vec<Timestamp> {
    plan.fire.iter().map(|fire| fire.slot).collect()
}

/// Does what a store does with a plan.
fn apply(record: &mut ScheduleRecord, plan: &Plan) {
    for fire in &plan.fire {
        record.fired(fire.slot, job(record.fired + 1));
    }
    record.next_at = plan.next_at;
}

fn tick(record: &mut ScheduleRecord, last: LastJob, now: Timestamp) -> Vec<Timestamp> {
    let plan = record.plan(last, now);
    apply(record, &plan);
    slots(&plan)
}

fn unfinished(state: State) -> LastJob {
    LastJob::Unfinished { state }
}

const ENDED: LastJob = LastJob::Ended { at: Timestamp::EPOCH };

#[test]
fn c1_a_schedule_is_checked() {
    let period = Duration::from_secs(366 * 24 * 3600);
    for good in [every(SECOND), every(period), delay(SECOND), cron("* * * * *").missed(Missed::All(1000))] {
        good.check().expect("valid");
    }
    let named = |name: &str| ScheduleSpec::every(name, HOUR, template());
    let with = |job: NewJob| ScheduleSpec::every("report", HOUR, spec_of(job));
    let refused = [
        ("name", named("")),
        ("name", named("two words")),
        ("name", named(&"x".repeat(129))),
        ("every", every(Duration::from_millis(999))),
        ("every", every(period + SECOND)),
        ("every", every(SECOND + Duration::from_nanos(1))),
        ("after", delay(Duration::ZERO)),
        ("missed", every(HOUR).missed(Missed::All(0))),
        ("missed", every(HOUR).missed(Missed::All(1001))),
        ("run_at", with(new_job().delay(SECOND))),
        ("idempotency_key", with(new_job().idempotency_key("key"))),
        ("depends_on", with(new_job().depends_on(DependsOn::Job(job(1)), DependencyKind::After))),
    ];
    for (name, spec) in refused {
        match ScheduleRecord::create(spec.clone(), start()) {
            Err(Error::InvalidArgument { field, .. }) => assert_eq!(field, name),
            other => panic!("{spec:?}: {other:?}"),
        }
    }
    assert!(named(&"x".repeat(128)).check().is_ok());
}

#[test]
fn c1_timings_and_policies_are_written_and_read_back() {
    let timings = [
        (cron("30 2 * * *").timing, r#"{"cron":{"expression":"30 2 * * *","zone":"UTC"}}"#),
        (every(HOUR).timing, r#"{"every":{"every":3600000000,"anchor":"1970-01-01T00:00:00.000000Z"}}"#),
        (delay(SECOND).timing, r#"{"delay":{"after":1000000}}"#),
    ];
    for (timing, text) in timings {
        assert_eq!(serde_json::to_string(&timing).expect("json"), text);
        assert_eq!(serde_json::from_str::<Timing>(text).expect("json"), timing);
    }
    let policies = (Missed::All(5), Missed::Coalesce, Overlap::QueueOne);
    assert_eq!(serde_json::to_string(&policies).expect("json"), r#"[{"all":5},"coalesce","queue_one"]"#);
}

#[test]
fn c1_the_first_slot_lies_strictly_after_creation() {
    assert_eq!(created(cron("0 * * * *")).next_at, Some(at("2026-11-01T01:00:00Z")));
    assert_eq!(created(every(HOUR)).next_at, Some(at("2026-11-01T01:00:00Z")));
    assert_eq!(created(delay(HOUR)).next_at, Some(at("2026-11-01T01:00:00Z")));
    let anchored = |anchor| created(every(HOUR).anchor(at(anchor))).next_at;
    assert_eq!(anchored("2026-10-31T22:10:00Z"), Some(at("2026-11-01T00:10:00Z")));
    assert_eq!(anchored("2027-01-01T00:00:00Z"), Some(at("2027-01-01T00:00:00Z")));
    assert_eq!(anchored("2026-11-01T00:00:00Z"), Some(at("2026-11-01T01:00:00Z")));
}

#[test]
fn c1_a_new_timing_starts_after_now_and_after_what_fired() {
    let mut record = created(every(HOUR));
    let one = at("2026-11-01T01:00:00Z");
    assert_eq!(tick(&mut record, LastJob::None, one), [one]);
    let before = record.clone();
    record.replace(every(HOUR).overlap(Overlap::Allow), one.plus(MINUTE)).expect("valid");
    assert_eq!((record.next_at, record.version), (before.next_at, 2));
    assert_eq!((record.last_slot, record.last_job, record.fired), (Some(one), Some(job(1)), 1));
    assert_eq!((record.created_at, record.updated_at), (start(), one.plus(MINUTE)));
    // The clock was set back: 00:30 and 01:00 are not named again.
    record.replace(every(HOUR / 2), start()).expect("valid");
    assert_eq!((record.next_at, record.version), (Some(at("2026-11-01T01:30:00Z")), 3));
    let other = ScheduleSpec::every("other", HOUR, template());
    assert_eq!(record.replace(other, one).expect_err("another name").name(), "InvalidArgument");
    assert_eq!(record.replace(every(Duration::ZERO), one).expect_err("no period").name(), "InvalidArgument");
    assert_eq!(record.version, 3);
}

#[test]
fn c1_slots_that_pass_while_paused_do_not_fire() {
    let mut record = created(every(HOUR));
    record.pause(start().plus(MINUTE));
    record.pause(start().plus(HOUR));
    assert_eq!((record.version, record.updated_at), (2, start().plus(MINUTE)));
    let noon = at("2026-11-01T12:00:00Z");
    assert_eq!(record.plan(LastJob::None, noon), Plan { fire: Vec::new(), next_at: record.next_at });
    assert_eq!(record.next(1, noon), [at("2026-11-01T13:00:00Z")]);
    record.resume(noon);
    record.resume(noon.plus(HOUR));
    assert_eq!((record.version, record.next_at), (3, Some(at("2026-11-01T13:00:00Z"))));
    assert!(record.plan(LastJob::None, noon.plus(MINUTE)).fire.is_empty());
}

#[test]
fn c1_a_fixed_delay_counts_from_the_end_of_the_last_job() {
    let mut record = created(delay(MINUTE));
    let due = start().plus(MINUTE);
    assert!(record.plan(LastJob::None, start().plus(SECOND)).fire.is_empty());
    assert_eq!(tick(&mut record, LastJob::None, due.plus(SECOND)), [due]);
    assert_eq!(record.next_at, None);
    for state in [State::Scheduled, State::Running, State::Retrying] {
        assert!(tick(&mut record, unfinished(state), due.plus(HOUR)).is_empty());
        assert_eq!((record.next_at, record.next(5, due)), (None, Vec::new()));
    }
    let end = due.plus(HOUR);
    assert!(tick(&mut record, LastJob::Ended { at: end }, end.plus(SECOND)).is_empty());
    assert_eq!(record.next_at, Some(end.plus(MINUTE)));
    assert_eq!(record.next(5, end), [end.plus(MINUTE)]);
    assert_eq!(tick(&mut record, LastJob::Ended { at: end }, end.plus(HOUR)), [end.plus(MINUTE)]);
    // The end is noticed late: it fires at once.
    let end = end.plus(2 * HOUR);
    assert_eq!(tick(&mut record, LastJob::Ended { at: end }, end.plus(HOUR)), [end.plus(MINUTE)]);
    let now = end.plus(2 * HOUR);
    assert!(tick(&mut record, LastJob::Gone, now).is_empty());
    assert_eq!(record.next_at, Some(now.plus(MINUTE)));
}

#[test]
fn c1_a_fixed_delay_is_kept_through_a_pause() {
    let mut record = created(delay(HOUR));
    assert_eq!(tick(&mut record, LastJob::None, start().plus(HOUR)), [start().plus(HOUR)]);
    let now = start().plus(2 * HOUR);
    record.pause(now);
    record.resume(now.plus(HOUR));
    // The job ends after the resume: the delay counts from its end, not from the resume.
    let end = now.plus(HOUR + MINUTE);
    assert!(tick(&mut record, LastJob::Ended { at: end }, end.plus(HOUR - SECOND)).is_empty());
    assert_eq!(tick(&mut record, LastJob::Ended { at: end }, end.plus(HOUR)), [end.plus(HOUR)]);
    // The job ended while paused, and its slot passed: it waits once more.
    record.pause(now.plus(3 * HOUR));
    record.resume(now.plus(9 * HOUR));
    let last = LastJob::Ended { at: now.plus(4 * HOUR) };
    assert!(tick(&mut record, last, now.plus(9 * HOUR)).is_empty());
    assert_eq!(tick(&mut record, last, now.plus(10 * HOUR)), [now.plus(10 * HOUR)]);
}

#[test]
fn c2_a_clock_set_back_names_no_slot_again() {
    for spec in [cron("* * * * *"), every(MINUTE), cron("* * * * *").missed(Missed::All(9))] {
        let mut record = created(spec);
        assert_eq!(tick(&mut record, LastJob::None, start().plus(MINUTE)), [start().plus(MINUTE)]);
        assert!(tick(&mut record, ENDED, start()).is_empty());
        record.pause(start());
        record.resume(start());
        assert!(tick(&mut record, ENDED, start().plus(MINUTE)).is_empty());
        assert_eq!(tick(&mut record, ENDED, start().plus(2 * MINUTE)), [start().plus(2 * MINUTE)]);
    }
    let mut record = created(delay(MINUTE));
    assert_eq!(tick(&mut record, LastJob::None, start().plus(HOUR)), [start().plus(MINUTE)]);
    let plan = record.plan(LastJob::Ended { at: start() }, start().plus(HOUR));
    assert!(plan.fire[0].slot > start().plus(MINUTE));
}

#[test]
fn c3_after_two_weeks_missed_slots_fire_as_one() {
    for spec in [cron("*/5 * * * *"), every(5 * MINUTE)] {
        let mut record = created(spec);
        let now = start().plus(TWO_WEEKS).plus(2 * MINUTE);
        assert_eq!(tick(&mut record, LastJob::None, now), [start().plus(TWO_WEEKS)]);
        assert_eq!(record.next_at, Some(start().plus(TWO_WEEKS).plus(5 * MINUTE)));
        assert!(tick(&mut record, ENDED, now).is_empty());
    }
}

#[test]
fn c3_after_two_weeks_missed_slots_are_skipped() {
    for spec in [cron("*/5 * * * *"), every(5 * MINUTE)] {
        let record = created(spec.missed(Missed::Skip));
        let slot = start().plus(TWO_WEEKS);
        let fires = |late: Duration| slots(&record.plan(LastJob::None, slot.plus(late)));
        assert_eq!(fires(Duration::ZERO), [slot]);
        assert_eq!(fires(MISSED_GRACE), [slot]);
        assert!(fires(MISSED_GRACE + Duration::from_micros(1)).is_empty());
        let plan = record.plan(LastJob::None, slot.plus(2 * MINUTE));
        assert_eq!(plan, Plan { fire: Vec::new(), next_at: Some(slot.plus(5 * MINUTE)) });
    }
}

#[test]
fn c3_after_two_weeks_missed_slots_fire_up_to_a_limit() {
    for spec in [cron("*/5 * * * *"), every(5 * MINUTE)] {
        let spec = spec.overlap(Overlap::Allow);
        let now = start().plus(TWO_WEEKS).plus(2 * MINUTE);
        let mut record = created(spec.clone().missed(Missed::All(3)));
        let newest = start().plus(TWO_WEEKS);
        assert_eq!(
            tick(&mut record, LastJob::None, now),
            [newest.minus(10 * MINUTE), newest.minus(5 * MINUTE), newest]
        );
        assert_eq!(record.next_at, Some(newest.plus(5 * MINUTE)));
        // Fewer were missed than the limit allows.
        let record = created(spec.missed(Missed::All(1000)));
        let now = start().plus(12 * MINUTE);
        let two = [start().plus(5 * MINUTE), start().plus(10 * MINUTE)];
        assert_eq!(slots(&record.plan(LastJob::None, now)), two);
    }
}

#[test]
fn c3_of_two_weeks_of_every_second_the_newest_fire() {
    let spec = cron("* * * * * *").overlap(Overlap::Allow).missed(Missed::All(1000));
    let now = start().plus(TWO_WEEKS);
    let mut record = created(spec.clone());
    let fired = tick(&mut record, LastJob::None, now);
    assert_eq!((fired.len(), fired[0], fired[999]), (1000, now.minus(999 * SECOND), now));
    // Fifty years of a rare pattern, too.
    let rare = ScheduleSpec::cron("rare", "0 0 29 2 *", "Europe/Berlin", template()).expect("valid");
    let rare = ScheduleRecord::create(rare.missed(Missed::All(1000)).overlap(Overlap::Allow), Timestamp::EPOCH);
    let plan = rare.expect("valid").plan(LastJob::None, at("2020-11-01T00:00:00Z"));
    assert_eq!(plan.fire.len(), 13);
}

#[test]
fn c4_skip_drops_slots_while_the_last_job_is_unfinished() {
    let record = created(every(HOUR));
    let now = start().plus(HOUR);
    for state in State::ALL.into_iter().filter(|state| !state.is_terminal()) {
        let plan = record.plan(unfinished(state), now);
        assert_eq!(plan, Plan { fire: Vec::new(), next_at: Some(start().plus(2 * HOUR)) });
    }
    for last in [LastJob::None, ENDED, LastJob::Gone] {
        assert_eq!(record.plan(last, now).fire, [Fire { slot: now, after_previous: false }]);
    }
    // The firings of one plan overlap each other.
    let record = created(every(HOUR).missed(Missed::All(3)));
    assert_eq!(slots(&record.plan(ENDED, start().plus(5 * HOUR))), [start().plus(3 * HOUR)]);
}

#[test]
fn c4_queue_one_lets_one_firing_wait() {
    let record = created(every(HOUR).overlap(Overlap::QueueOne));
    let now = start().plus(HOUR);
    assert_eq!(record.plan(ENDED, now).fire, [Fire { slot: now, after_previous: false }]);
    for state in [State::Scheduled, State::Running, State::Retrying, State::Delayed] {
        assert_eq!(record.plan(unfinished(state), now).fire, [Fire { slot: now, after_previous: true }]);
    }
    assert_eq!(record.plan(unfinished(State::Pending), now).fire, []);
    // In one plan: the first runs, the second waits, the third is dropped.
    let record = created(every(HOUR).overlap(Overlap::QueueOne).missed(Missed::All(3)));
    let (now, fire) =
        (start().plus(5 * HOUR), |hours, after_previous| Fire { slot: start().plus(hours * HOUR), after_previous });
    assert_eq!(record.plan(ENDED, now).fire, [fire(3, false), fire(4, true)]);
    assert_eq!(record.plan(unfinished(State::Running), now).fire, [fire(3, true)]);
    assert_eq!(record.plan(unfinished(State::Pending), now).fire, []);
}

#[test]
fn c4_allow_fires_every_slot() {
    let record = created(every(HOUR).overlap(Overlap::Allow).missed(Missed::All(2)));
    for last in [LastJob::None, unfinished(State::Pending), unfinished(State::Running), ENDED, LastJob::Gone] {
        let plan = record.plan(last, start().plus(5 * HOUR));
        assert_eq!(slots(&plan), [start().plus(4 * HOUR), start().plus(5 * HOUR)]);
        assert!(plan.fire.iter().all(|fire| !fire.after_previous));
    }
}

#[test]
fn c5_a_preview_is_bounded() {
    let record = created(cron("* * * * *"));
    assert_eq!(record.next(usize::MAX, start()).len(), PREVIEW_MAX);
    assert_eq!(record.next(0, start()), []);
    assert_eq!(created(delay(HOUR)).next(0, start()), []);
    assert_eq!(created(delay(HOUR)).next(9, start()), [start().plus(HOUR)]);
}

#[derive(Clone, Debug)]
enum Step {
    Tick { seconds: u32, last: LastJob },
    SetBack { seconds: u32 },
    Pause,
    Resume,
    Replace(Box<ScheduleSpec>),
}

fn any_timed() -> impl Strategy<Value = ScheduleSpec> {
    let expressions = ["* * * * * *", "*/7 * * * *", "30 2 * * *", "*/30 2 * * *", "0 2,14 * * *", "0 0 1 * *"];
    let zones = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"];
    let crons = (prop::sample::select(expressions.to_vec()), prop::sample::select(zones.to_vec()))
        .prop_map(|(expression, zone)| ScheduleSpec::cron("report", expression, zone, template()).expect("valid"));
    let rates = (1u64..100_000_000, 0i64..2_000_000_000_000_000).prop_map(|(millis, anchor)| {
        every(SECOND + Duration::from_millis(millis)).anchor(Timestamp::from_micros(anchor))
    });
    let missed = prop_oneof![Just(Missed::Coalesce), Just(Missed::Skip), (1u32..20).prop_map(Missed::All)];
    let overlap = prop_oneof![Just(Overlap::Skip), Just(Overlap::QueueOne), Just(Overlap::Allow)];
    (prop_oneof![crons, rates], missed, overlap)
        .prop_map(|(spec, missed, overlap)| spec.missed(missed).overlap(overlap))
}

fn any_last() -> impl Strategy<Value = LastJob> {
    let states = [State::Pending, State::Scheduled, State::Running, State::Retrying];
    prop_oneof![Just(ENDED), Just(LastJob::Gone), prop::sample::select(states.to_vec()).prop_map(unfinished)]
}

fn any_step() -> impl Strategy<Value = Step> {
    let seconds = prop_oneof![0u32..5, 0u32..5000, 0u32..5_000_000];
    prop_oneof![
        8 => (seconds, any_last()).prop_map(|(seconds, last)| Step::Tick { seconds, last }),
        1 => (0u32..5000).prop_map(|seconds| Step::SetBack { seconds }),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => any_timed().prop_map(|spec| Step::Replace(Box::new(spec))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn c2_no_slot_fires_twice(
        spec in any_timed(),
        micros in 1_200_000_000_000_000i64..1_900_000_000_000_000,
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        let mut now = Timestamp::from_micros(micros);
        let mut record = ScheduleRecord::create(spec, now).expect("valid");
        let mut newest = None;
        for step in steps {
            match step {
                Step::SetBack { seconds } => now = now.minus(seconds * SECOND),
                Step::Pause => record.pause(now),
                Step::Resume => record.resume(now),
                Step::Replace(spec) => record.replace(*spec, now).expect("valid"),
                Step::Tick { seconds, last } => {
                    now = now.plus(seconds * SECOND);
                    for slot in tick(&mut record, last, now) {
                        prop_assert!(!record.paused && Some(slot) > newest && slot <= now);
                        let just_before = slot.minus(Duration::from_micros(1));
                        prop_assert_eq!(record.spec.timing.first_after(just_before), Some(slot));
                        newest = Some(slot);
                    }
                    prop_assert!(record.paused || record.next_at > Some(now));
                }
            }
        }
    }

    #[test]
    fn c5_a_preview_is_what_fires(
        spec in any_timed(),
        micros in 1_200_000_000_000_000i64..1_900_000_000_000_000,
        late in 0u32..5_000_000,
    ) {
        let begin = Timestamp::from_micros(micros);
        let mut record = ScheduleRecord::create(spec.overlap(Overlap::Allow), begin).expect("valid");
        let mut now = begin.plus(late * SECOND);
        let preview = record.next(30, now);
        let mut fired = tick(&mut record, ENDED, now);
        while fired.len() < 30 {
            now = record.next_at.expect("another slot");
            fired.extend(tick(&mut record, ENDED, now));
        }
        prop_assert_eq!(preview, fired);
    }
}
