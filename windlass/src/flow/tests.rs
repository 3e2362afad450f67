//! Laws of the core, over random queues.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::job::{Priority, QueueName};
use crate::time::Timestamp;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(1_000_000_000 + micros)
}

fn job_type(number: usize) -> JobType {
    JobType::new(format!("type{number}")).expect("a name")
}

/// A queue with everything in view: what waits and runs by (key, type).
#[derive(Default)]
struct Queue {
    waiting: BTreeMap<(String, usize), Vec<Head>>,
    open: BTreeMap<String, bool>,
    running: Vec<(String, usize, i64)>,
    gates: Gates,
    next: i64,
}

impl Queue {
    fn add(&mut self, key: &str, job_type: usize, priority: Priority, position: Timestamp) {
        self.next += 1;
        let head = Head { sequence: self.next, priority, position, at_door: false };
        self.waiting.entry((key.to_owned(), job_type)).or_default().push(head);
    }

    fn claim(&mut self, control: &Control, wanted: usize, now: Timestamp) -> Vec<(String, usize)> {
        let strands: Vec<Strand> = self
            .waiting
            .iter()
            .enumerate()
            .map(|(id, ((key, kind), heads))| Strand {
                id: i64::try_from(id).expect("few"),
                job_type: job_type(*kind),
                key: key.clone(),
                wanted: true,
                was_open: self.open.get(key).copied().unwrap_or(false),
                heads: heads.clone(),
                all: true,
            })
            .collect();
        for gate in self.gates.types.values_mut().chain(self.gates.keys.values_mut()) {
            gate.running = 0;
        }
        self.gates.queue.running = u32::try_from(self.running.len()).expect("few");
        for (key, kind, _) in &self.running {
            self.gates.types.entry(job_type(*kind)).or_default().running += 1;
            self.gates.keys.entry(key.clone()).or_default().running += 1;
        }
        let picks = pick(control, &self.gates, &strands, wanted, now);
        assert!(picks.short.is_empty(), "all heads are known");
        let names: Vec<(String, usize)> = self.waiting.keys().cloned().collect();
        let mut taken = Vec::new();
        for (place, head) in &picks.taken {
            let name = names[*place].clone();
            self.waiting.get_mut(&name).expect("a strand").retain(|other| other.sequence != head.sequence);
            self.running.push((name.0.clone(), name.1, head.sequence));
            taken.push(name);
        }
        for (name, looked) in names.iter().zip(&picks.strands) {
            self.open.insert(name.0.clone(), looked.look == Look::Open);
        }
        self.gates = picks.gates;
        taken
    }
}

fn rates() -> impl Strategy<Value = Rate> {
    (1_u32..50, 1_u64..5_000, 1_u32..10).prop_map(|(count, per, burst)| Rate {
        count,
        per: Duration::from_millis(per),
        burst,
    })
}

proptest! {
    /// K7: in any interval of length t at most burst + t × count ÷ per starts.
    #[test]
    fn k7_no_interval_has_more_starts_than_the_rate_admits(rate in rates(), steps in prop::collection::vec((0_i64..400_000, 1_u32..6), 1..80)) {
        let limit = Limit::rated(rate);
        let mut gate = Gate::default();
        let (mut now, mut starts) = (0_i64, Vec::new());
        for (pause, wanted) in steps {
            now += pause;
            let room = gate.room(&limit, at(now));
            prop_assert_eq!(room.again_at.is_some(), room.starts == 0);
            if let Some(again_at) = room.again_at {
                prop_assert!(again_at > at(now));
                prop_assert!(gate.room(&limit, again_at).starts > 0, "it is open when it says so");
                prop_assert_eq!(gate.room(&limit, again_at.minus(Duration::from_micros(1))).starts, 0, "and not before");
            }
            for _ in 0..room.starts.min(wanted) {
                gate.take(&limit, at(now));
                starts.push(now);
            }
        }
        for (first, begin) in starts.iter().enumerate() {
            for (last, end) in starts.iter().enumerate().skip(first) {
                let allowed = f64::from(rate.burst)
                    + (end - begin) as f64 * f64::from(rate.count) / rate.per.as_micros() as f64;
                prop_assert!((last - first + 1) as f64 <= allowed + 1e-6, "{} starts in {} µs", last - first + 1, end - begin);
            }
        }
    }

    /// K2: whatever is added, ends and changes between claims, no gate lets more run than it may.
    #[test]
    fn k2_no_gate_lets_more_run_than_it_may(
        queue_limit in prop::option::of(1_u32..8), type_limit in prop::option::of(1_u32..5),
        key_limit in prop::option::of(1_u32..4), fair in any::<bool>(), ordered in any::<bool>(),
        steps in prop::collection::vec((0_usize..4, 0_usize..2, 0_usize..5, 0_usize..7, 0_usize..5), 1..60),
    ) {
        let mut control = Control { running: queue_limit, fair, ..Control::default() };
        control.types.extend(type_limit.map(|limit| (job_type(0), Limit::running(limit))));
        control.each_key = key_limit.map(Limit::running);
        control.ordered = ordered.then_some(AfterFailure::GoOn);
        let mut queue = Queue::default();
        for (number, (key, kind, priority, wanted, ends)) in steps.into_iter().enumerate() {
            let now = at(i64::try_from(number).expect("few") * 1000);
            let key = ["", "a", "b", "c"][key];
            queue.add(key, kind, Priority::ALL[priority], now);
            let ends = ends.min(queue.running.len());
            let ended: Vec<_> = queue.running.drain(..ends).collect();
            for (key, _, sequence) in ended {
                if queue.gates.keys.get(&key).and_then(|gate| gate.owner) == Some(sequence) {
                    queue.gates.owners.insert(key, Owner::Gone);
                }
            }
            for (key, _, _) in &queue.running {
                queue.gates.owners.insert(key.clone(), Owner::Unfinished);
            }
            queue.claim(&control, wanted, now);
            let count = |is: &dyn Fn(&(String, usize, i64)) -> bool| u32::try_from(queue.running.iter().filter(|job| is(job)).count()).expect("few");
            prop_assert!(queue_limit.is_none_or(|most| count(&|_| true) <= most));
            prop_assert!(type_limit.is_none_or(|most| count(&|job| job.1 == 0) <= most));
            for key in ["a", "b", "c"] {
                prop_assert!(key_limit.is_none_or(|most| count(&|job| job.0 == key) <= most));
                prop_assert!(!ordered || count(&|job| job.0 == key) <= 1);
            }
        }
    }

    /// K9: what is left over may not run: a second claim at the same moment finds nothing.
    #[test]
    fn k9_what_a_claim_leaves_may_not_run(
        key_limit in 1_u32..3, jobs in prop::collection::vec((0_usize..4, 0_usize..2, 0_usize..5), 1..40),
    ) {
        let control = Control::new().each_key(Limit::running(key_limit)).of_type(job_type(0), Limit::running(2)).fair();
        let mut queue = Queue::default();
        for (number, (key, kind, priority)) in jobs.iter().enumerate() {
            queue.add(["", "a", "b", "c"][*key], *kind, Priority::ALL[*priority], at(i64::try_from(number).expect("few")));
        }
        queue.claim(&control, 1000, at(1000));
        prop_assert_eq!(queue.claim(&control, 1000, at(1000)), []);
        for ((key, kind), heads) in &queue.waiting {
            let of_key = queue.running.iter().filter(|job| job.0 == *key).count();
            let of_type = queue.running.iter().filter(|job| job.1 == 0).count();
            let is_full = !key.is_empty() && of_key >= key_limit as usize || *kind == 0 && of_type >= 2;
            prop_assert!(heads.is_empty() || is_full, "{key:?} {kind} waits for nothing");
        }
    }

    /// What explain counts as ahead within a key is what a claim takes before.
    #[test]
    fn k10_what_is_before_a_job_of_its_key_comes_before_it(
        ageing in prop::option::of(1_u64..5), ordered in any::<bool>(),
        heads in prop::collection::vec((0_usize..5, 0_i64..20_000_000), 2..20), now in 0_i64..20_000_000,
    ) {
        let mut control = Control::new().fair();
        control.ageing = ageing.map(Duration::from_secs);
        control.ordered = ordered.then_some(AfterFailure::Halt);
        let heads: Vec<Head> = (1..).zip(heads).map(|(sequence, (priority, position))| {
            Head { sequence, priority: Priority::ALL[priority], position: at(position), at_door: false }
        }).collect();
        let before = control.before_within_key(&heads[0], at(now));
        for other in heads.iter().filter(|other| other.position <= at(now)) {
            let is_before = (other.position.as_micros(), other.sequence) < before[usize::from(other.priority.number())];
            prop_assert_eq!(is_before, control.within_key(other) < control.within_key(&heads[0]));
        }
        for other in heads.iter().filter(|other| other.position > at(now)) {
            prop_assert!((other.position.as_micros(), other.sequence) >= before[usize::from(other.priority.number())]);
        }
    }

    /// K10 and K11: every key has started once before one starts more often than its weight and one.
    #[test]
    fn k11_each_key_starts_before_one_starts_again(
        weights in prop::collection::vec(1_u16..4, 2..30), each in 4_usize..8, batch in 1_usize..9,
    ) {
        let control = Control::new().fair();
        let mut queue = Queue::default();
        for (number, weight) in weights.iter().enumerate() {
            let key = format!("k{number}");
            for _ in 0..each {
                queue.add(&key, 0, Priority::Normal, at(0));
            }
            queue.gates.keys.entry(key).or_default().limit = Some(Limit::weighing(*weight));
        }
        let mut starts: BTreeMap<String, u16> = BTreeMap::new();
        while starts.len() < weights.len() {
            for (key, _) in queue.claim(&control, batch, at(1)) {
                *starts.entry(key.clone()).or_default() += 1;
                let weight = weights[key[1..].parse::<usize>().expect("a number")];
                prop_assert!(starts.len() == weights.len() || starts[&key] <= weight + 1, "{key} went ahead");
            }
            queue.running.clear();
        }
    }
}

#[test]
fn classes_double() {
    let class = |running, weight| Gate { running, ..Gate::default() }.class(weight);
    assert_eq!([0, 1, 2, 3, 4, 5, 8, 9].map(|running| class(running, 1)), [0, 0, 1, 2, 2, 3, 3, 4]);
    assert_eq!([3, 4, 6, 7].map(|running| class(running, 3)), [0, 1, 1, 2]);
}

#[test]
fn k10_weights_share_in_proportion() {
    let control = Control::new().fair();
    let mut queue = Queue::default();
    for key in ["heavy", "light"] {
        (0..400).for_each(|_| queue.add(key, 0, Priority::Normal, at(0)));
    }
    queue.gates.keys.entry("heavy".to_owned()).or_default().limit = Some(Limit::weighing(3));
    let mut starts = BTreeMap::new();
    for _ in 0..100 {
        for (key, _) in queue.claim(&control, 4, at(1)) {
            *starts.entry(key).or_insert(0) += 1;
        }
        queue.running.clear();
    }
    assert_eq!(starts, BTreeMap::from([("heavy".to_owned(), 300), ("light".to_owned(), 100)]));
}

#[test]
fn k12_a_job_is_passed_only_by_those_of_the_next_steps() {
    let control = Control::new().ageing(Duration::from_secs(60));
    let mut queue = Queue::default();
    queue.add("", 0, Priority::Bulk, at(0));
    for minute in 1..10 {
        queue.add("", 0, Priority::Critical, at(minute * 60_000_000));
    }
    let mut before = 0;
    while queue.waiting.values().flatten().any(|head| head.priority == Priority::Bulk) {
        queue.claim(&control, 1, at(600_000_000));
        before += 1;
    }
    assert_eq!(before, 4, "three of the first three minutes, and one that is as old goes after it");
}

#[test]
fn a_strand_that_was_not_read_to_its_end_is_asked_for() {
    let head = |sequence| Head { sequence, priority: Priority::Normal, position: at(0), at_door: false };
    let strand = |heads: Vec<Head>, all| Strand {
        id: 1,
        job_type: job_type(0),
        key: "a".to_owned(),
        wanted: true,
        was_open: true,
        heads,
        all,
    };
    let control = Control::new().fair();
    let short = pick(&control, &Gates::default(), &[strand(vec![head(1)], false)], 2, at(0));
    assert_eq!((short.short, short.taken.len()), (vec![0], 0));
    let all = pick(&control, &Gates::default(), &[strand(vec![head(1)], true)], 2, at(0));
    assert_eq!((all.taken.len(), all.strands[0].look), (1, Look::Empty));
}

#[test]
fn controls_out_of_bounds_are_refused() {
    let bad = [
        ("control", Control::new()),
        ("running", Control::new().running(0)),
        ("running", Control::new().running(RUNNING_MAX + 1)),
        ("rate", Control::new().rate(Rate::new(0, Duration::from_secs(1)))),
        ("rate", Control::new().rate(Rate::new(1, Duration::ZERO))),
        ("burst", Control::new().rate(Rate::per_second(1).burst(0))),
        ("burst", Control::new().rate(Rate::per_hour(1).burst(RATE_COUNT_MAX))),
        ("weight", Control::new().each_key(Limit::weighing(0))),
        ("weight", Control::new().each_key(Limit::weighing(1001))),
        ("running", Control::new().of_type(job_type(0), Limit::running(0))),
        ("ageing", Control::new().ageing(Duration::from_millis(999))),
    ];
    for (field, control) in bad {
        match control.check() {
            Err(Error::InvalidArgument { field: named, .. }) => assert_eq!(named, field, "{control:?}"),
            other => panic!("{control:?}: {other:?}"),
        }
    }
}

#[test]
fn what_an_operator_set_a_program_leaves_alone() {
    let queue = QueueName::new("mail").expect("a name");
    let put = |running, from_code, version| {
        let control = Control::new().running(running);
        ControlEdit::new(queue.clone(), Change::Put { control, version, from_code })
    };
    let decide = |edit: ControlEdit, stored| edit.decide(stored, Gate::default(), at(0));
    let by_code = decide(put(1, true, None), None).expect("new").control;
    let same = decide(put(1, true, None), by_code.clone()).expect("the same");
    assert_eq!((same.act, &same.control), (None, &by_code), "nothing is changed by saying it again");
    let by_operator = decide(put(2, false, Some(1)), by_code.clone()).expect("at this version");
    assert_eq!(by_operator.control.as_ref().map(|record| record.version), Some(2));
    assert_eq!(decide(put(3, true, None), by_operator.control.clone()).expect("kept").control, by_operator.control);
    assert!(matches!(decide(put(3, false, Some(1)), by_operator.control), Err(Error::Conflict(_))));
    let hold = Change::Hold { gate: GateName::Queue, time: Some(Duration::from_secs(1)) };
    assert!(matches!(decide(ControlEdit::new(queue.clone(), hold), None), Err(Error::Conflict(_))));
}

fn strand(key: &str, kind: usize, heads: &[(i64, i64)]) -> Strand {
    let head = |(sequence, position): &(i64, i64)| Head {
        sequence: *sequence,
        priority: Priority::Normal,
        position: at(*position),
        at_door: false,
    };
    let heads = heads.iter().map(head).collect();
    Strand { id: 0, job_type: job_type(kind), key: key.to_owned(), wanted: true, was_open: true, heads, all: true }
}

#[test]
fn a_control_is_read_as_it_was_written() {
    let rate = Rate::per_minute(90).burst(4);
    let control = Control::new()
        .running(5)
        .rate(rate)
        .of_type(job_type(1), Limit::running(2).weight(3))
        .each_key(Limit::rated(rate))
        .fair()
        .ageing(Duration::from_millis(1500))
        .ordered(AfterFailure::GoOn);
    let text = serde_json::to_string(&control).expect("written");
    assert_eq!(serde_json::from_str::<Control>(&text).expect("read"), control);
    assert!(text.contains(r#""ageing":1500000"#), "{text}");
    let little = serde_json::to_string(&Control::new().running(5)).expect("written");
    assert_eq!(little, r#"{"running":5}"#);
    assert_eq!(serde_json::from_str::<Control>(&little).expect("read"), Control::new().running(5));
    let gate = Gate { tat: 7, held_until: Some(at(9)), turn: 3, owner: Some(4), open: true, ..Gate::default() };
    let text = serde_json::to_string(&Gate { running: 8, ..gate.clone() }).expect("written");
    assert_eq!(serde_json::from_str::<Gate>(&text).expect("read"), gate, "what runs is counted, not kept");
}

#[test]
fn a_hold_that_ends_now_closes_nothing() {
    let limit = Limit::rated(Rate::within(1, Duration::from_secs(1)));
    let mut gate = Gate { held_until: Some(at(0)), ..Gate::default() };
    gate.take(&limit, at(0));
    assert_eq!(gate.closed_by(&limit, at(0)), Some("rate"));
}

#[test]
fn bounds_are_what_the_documents_say() {
    let month = Duration::from_secs(2_678_400);
    assert_eq!((HOLD_MAX, RATE_PER_MAX), (month, month), "31 days");
    assert_eq!((RUNNING_MAX, RATE_COUNT_MAX, WEIGHT_MAX, TYPES_MAX), (1_000_000, 1_000_000, 1000, 100));
    assert_eq!(GATE_JOBS_MAX, 10);
}

#[test]
fn times_beyond_all_bounds_do_not_overflow() {
    let limit = Limit::rated(Rate { count: 1, per: Duration::MAX, burst: 1 });
    let mut gate = Gate::default();
    gate.take(&limit, at(0));
    assert_eq!(gate.room(&limit, at(1_000_000_000_000)).starts, 0, "the next start is ages away");
    let control = Control::new().ageing(Duration::MAX);
    let head = Head { sequence: 1, priority: Priority::Bulk, position: at(0), at_door: false };
    assert!(control.within_key(&head).1 > 1_000_000_000_000_000_000);
}

#[test]
fn strands_beyond_the_last_that_was_read_are_not_asked_for() {
    for control in [Control::new().fair(), Control::new().each_key(Limit::running(9))] {
        let strands = [strand("a", 0, &[(1, 0), (2, 1)])];
        let place = at(0).as_micros();
        let turn = if control.fair { 0 } else { place };
        let order = Order { level: Priority::Normal.number(), class: 0, turn, place, sequence: 1 };
        let mut gates = Gates { unread: BTreeMap::from([(job_type(0), order)]), ..Gates::default() };
        let picks = pick(&control, &gates, &strands, 1, at(9));
        assert_eq!((picks.more.len(), picks.taken.len()), (0, 1), "those that were not read come after it");
        gates.unread.insert(job_type(0), Order { turn: turn - 1, ..order });
        assert_eq!(pick(&control, &gates, &strands, 1, at(9)).more, [job_type(0)]);
    }
}

#[test]
fn an_ordered_key_that_goes_on_with_its_owner_needs_no_other_job() {
    let control = Control::new().ordered(AfterFailure::Halt);
    let mut gates = Gates::default();
    gates.keys.insert("a".to_owned(), Gate { owner: Some(9), ..Gate::default() });
    gates.owners.insert("a".to_owned(), Owner::Unfinished);
    let strands = [Strand { all: false, ..strand("a", 0, &[(9, 5)]) }, Strand { all: false, ..strand("a", 1, &[]) }];
    let picks = pick(&control, &gates, &strands, 2, at(9));
    assert_eq!((picks.short.len(), picks.taken.len()), (0, 1));
    assert_eq!(picks.strands[1].look, Look::Full, "its others wait for the owner");
}

#[test]
fn a_key_that_has_nothing_left_blocks_nothing() {
    let control = Control::new().ordered(AfterFailure::Halt);
    let mut gates = Gates::default();
    gates.keys.insert("held".to_owned(), Gate { held_until: Some(at(99)), ..Gate::default() });
    let strands = [strand("a", 0, &[(1, 0)]), strand("held", 0, &[(2, 0)])];
    let picks = pick(&control, &gates, &strands, 9, at(9));
    assert_eq!((picks.taken.len(), picks.blocked), (1, std::collections::BTreeSet::from(["hold"])));
    assert_eq!(picks.again_at, Some(at(99)));
}

#[test]
fn keys_that_come_back_take_one_turn_each_before_those_that_stayed() {
    let control = Control::new().fair();
    let back = |key: &str, sequence| Strand { was_open: false, ..strand(key, 0, &[(sequence, 5), (sequence + 1, 6)]) };
    let strands = [strand("there", 0, &[(1, 0), (2, 0)]), back("b", 3), back("c", 5)];
    let picks = pick(&control, &Gates::default(), &strands, 4, at(9));
    let order: Vec<i64> = picks.taken.iter().map(|(_, head)| head.sequence).collect();
    assert_eq!(order[..3], [3, 5, 1], "of one turn those that come back go first");
}
