//! Flow control, second half: fair turns, ageing, ordered keys, and that waiting jobs can be reached (rules K9 to K14, K16).

use std::collections::BTreeMap;
use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job, no_jitter, worker};
use super::control::{change, control, enqueue, key, keys_of};
use crate::flow::{AfterFailure, Change, Control, ControlEdit, KeyState, Limit};
use crate::job::{Failure, JobId, JobType, NewJob, Payload, Priority, QueueName, RequeueOptions, State, Why};
use crate::store::{Act, ClaimRequest, Edit, Filter, KeyQuery};

chapter![
    k9_blocked_jobs_delay_nobody,
    k10_turns,
    k10_weights_3_to_1,
    k10_priority_before_share,
    k10_long_jobs_do_not_fill_the_slots,
    k11_ten_thousand_keys_one_round,
    k12_nothing_starves,
    k13_one_at_a_time_in_order,
    k13_a_retry_keeps_its_place,
    k13_a_lost_lease_keeps_its_place,
    k13_across_types,
    k14_halt,
    k14_requeue,
    k14_resume,
    k14_go_on,
    k16_reaches_waiting_jobs,
    k16_pause_and_lifetime,
    k16_no_trace,
    k16_keys_at_the_door_are_listed,
    k2_explain_names_the_jobs_in_the_gate,
    k10_explain_counts_the_jobs_of_the_key_and_the_keys_before_it,
];

async fn complete_all(bench: &Bench, claimed: Vec<crate::store::Claimed>) {
    let leases: Vec<_> = claimed.into_iter().map(|one| one.lease.complete(None)).collect();
    bench.store.settle(&leases).await.expect("settle");
}

async fn k9_blocked_jobs_delay_nobody(bench: Bench) {
    let slow = JobType::new("slow").expect("a name");
    control(&bench, Control::new().each_key(Limit::running(1)).of_type(slow, Limit::running(1))).await;
    let blocked = (0..30).map(|_| job().key("a").priority(Priority::Critical));
    let slow = (0..30).map(|_| NewJob::new("slow", Payload::default()).priority(Priority::High));
    bench.insert(blocked.chain(slow).collect()).await;
    assert_eq!(bench.claim(9).await.len(), 2, "one of the key and one of the type");
    let free = bench.enqueue(job().key("b").priority(Priority::Bulk)).await;
    assert_eq!(bench.claim_ids(9).await, [free]);
    bench.assert_sound().await;
}

async fn k10_turns(bench: Bench) {
    control(&bench, Control::new().fair()).await;
    enqueue(&bench, "a", 9).await;
    enqueue(&bench, "b", 2).await;
    enqueue(&bench, "c", 2).await;
    let mut order = Vec::new();
    for _ in 0..7 {
        let claimed = bench.claim(1).await;
        order.extend(keys_of(&claimed));
        complete_all(&bench, claimed).await;
    }
    assert_eq!(order, ["a", "b", "c", "a", "b", "c", "a"]);
    enqueue(&bench, "d", 5).await;
    let mut order = Vec::new();
    for _ in 0..4 {
        let claimed = bench.claim(1).await;
        order.extend(keys_of(&claimed));
        complete_all(&bench, claimed).await;
    }
    order.sort();
    assert_eq!(order, ["a", "a", "d", "d"], "a key that is new takes turns from now on, and owes nothing");
    bench.assert_sound().await;
}

async fn k10_weights_3_to_1(bench: Bench) {
    control(&bench, Control::new().fair()).await;
    change(&bench, Change::PutKey { key: "a".to_owned(), limit: Limit::weighing(3) }).await;
    enqueue(&bench, "a", 60).await;
    enqueue(&bench, "b", 60).await;
    let mut starts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..40 {
        let claimed = bench.claim(1).await;
        keys_of(&claimed).into_iter().for_each(|key| *starts.entry(key).or_default() += 1);
        complete_all(&bench, claimed).await;
    }
    assert_eq!(starts, BTreeMap::from([("a".to_owned(), 30), ("b".to_owned(), 10)]));
}

async fn k10_priority_before_share(bench: Bench) {
    control(&bench, Control::new().fair()).await;
    enqueue(&bench, "a", 2).await;
    enqueue(&bench, "b", 2).await;
    bench.insert((0..2).map(|_| job().key("b").priority(Priority::High)).collect()).await;
    assert_eq!(keys_of(&bench.claim(2).await), ["b", "b"]);
    assert_eq!(keys_of(&bench.claim(1).await), ["a"], "b runs two");
    bench.assert_sound().await;
}

async fn k10_long_jobs_do_not_fill_the_slots(bench: Bench) {
    control(&bench, Control::new().running(8).fair()).await;
    enqueue(&bench, "long", 40).await;
    enqueue(&bench, "short", 40).await;
    let mut long = 0;
    for _ in 0..12 {
        let (kept, done): (Vec<_>, Vec<_>) =
            bench.claim(8).await.into_iter().partition(|one| one.job.spec.options.key.as_deref() == Some("long"));
        long += kept.len();
        assert!(!done.is_empty(), "{long} long ones run, and no slot is left for a short one");
        complete_all(&bench, done).await;
    }
    assert!(long >= 4, "no slot is idle: {long}");
    bench.assert_sound().await;
}

async fn k11_ten_thousand_keys_one_round(bench: Bench) {
    const KEYS: usize = 10_000;
    control(&bench, Control::new().fair()).await;
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(5000) {
        bench.insert(chunk.iter().flat_map(|number| [0, 1].map(|_| job().key(format!("k{number}")))).collect()).await;
    }
    let mut seen = std::collections::HashSet::new();
    while seen.len() < KEYS {
        let claimed = bench.claim(1000).await;
        assert!(!claimed.is_empty());
        for key in keys_of(&claimed) {
            assert!(seen.insert(key.clone()), "{key} started twice before {} others started once", KEYS - seen.len());
        }
        complete_all(&bench, claimed).await;
    }
}

async fn k12_nothing_starves(bench: Bench) {
    control(&bench, Control::new().ageing(Duration::from_secs(60))).await;
    let old = bench.enqueue(job().priority(Priority::Bulk)).await;
    let mut passed = 0;
    loop {
        bench.advance(Duration::from_secs(20));
        bench.insert((0..2).map(|_| job().priority(Priority::Critical)).collect()).await;
        let claimed = bench.claim(1).await;
        if claimed[0].job.id == old {
            break;
        }
        passed += 1;
        complete_all(&bench, claimed).await;
        assert!(passed <= 24, "it is passed by jobs that came more than 4 steps later");
    }
    assert!(passed >= 11, "priority counts as 4 minutes: {passed}");
}

async fn ordered(bench: &Bench, after: AfterFailure) -> Vec<JobId> {
    control(bench, Control::new().ordered(after)).await;
    let jobs = (0..3).map(|number| job().key("a").retry(no_jitter(3)).priority(Priority::ALL[4 - number]));
    bench.insert(jobs.collect()).await.into_iter().map(|one| one.id).collect()
}

async fn k13_one_at_a_time_in_order(bench: Bench) {
    let ids = ordered(&bench, AfterFailure::Halt).await;
    enqueue(&bench, "b", 1).await;
    let mut first = bench.claim(9).await;
    assert_eq!(keys_of(&first), ["a", "b"], "one of each key");
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(first[0].job.id, *id, "in the order of position, whatever the priority");
        assert!(bench.claim(9).await.is_empty());
        bench.complete(first.remove(0).lease).await;
        first = bench.claim(9).await;
        assert_eq!(first.len(), usize::from(number < 2));
    }
    bench.assert_sound().await;
}

async fn k13_a_retry_keeps_its_place(bench: Bench) {
    let ids = ordered(&bench, AfterFailure::Halt).await;
    let claimed = bench.claim_one().await;
    bench.fail(claimed.lease).await;
    assert!(bench.claim(9).await.is_empty(), "it backs off, and nobody passes it");
    bench.advance(Duration::from_secs(1));
    let again = bench.claim_one().await;
    assert_eq!(again.job.id, ids[0]);
    bench.apply(again.lease.snooze(Duration::from_secs(5))).await;
    assert!(bench.claim(9).await.is_empty());
    bench.act(ids[0], Act::Cancel { force: false }).await;
    assert_eq!(bench.claim_ids(9).await, [ids[1]], "a cancel never halts");
    bench.assert_sound().await;
}

async fn k13_a_lost_lease_keeps_its_place(bench: Bench) {
    let ids = ordered(&bench, AfterFailure::Halt).await;
    bench.claim_one().await;
    bench.advance(LEASE);
    assert!(bench.claim(9).await.is_empty(), "an expired lease counts until it is taken back");
    bench.upkeep().await;
    bench.advance(Duration::from_secs(60));
    assert_eq!(bench.claim_ids(9).await, [ids[0]]);
    bench.assert_sound().await;
}

async fn k13_across_types(bench: Bench) {
    control(&bench, Control::new().ordered(AfterFailure::Halt)).await;
    let of = |name: &str| NewJob::new(name, Payload::default()).key("a");
    let ids: Vec<JobId> = bench.insert(vec![of("x"), of("y"), of("x")]).await.into_iter().map(|one| one.id).collect();
    let only = |name: &str| ClaimRequest {
        types: Some(vec![JobType::new(name).expect("a name")]),
        lease_time: Some(LEASE),
        ..ClaimRequest::new(worker("w1"), QueueName::default(), 9)
    };
    assert!(bench.store.claim(&only("y")).await.expect("claim").is_empty(), "the first is of another type");
    let mut first = bench.store.claim(&only("x")).await.expect("claim");
    assert_eq!(first.iter().map(|one| one.job.id).collect::<Vec<_>>(), [ids[0]]);
    bench.complete(first.remove(0).lease).await;
    assert!(bench.store.claim(&only("x")).await.expect("claim").is_empty());
    assert_eq!(bench.store.claim(&only("y")).await.expect("claim")[0].job.id, ids[1]);
    bench.assert_sound().await;
}

async fn failed_first(bench: &Bench, after: AfterFailure) -> Vec<JobId> {
    let ids = ordered(bench, after).await;
    let claimed = bench.claim_one().await;
    bench.apply(claimed.lease.fail(Failure::permanent("bad", "bad"), &mut || 0.5)).await;
    ids
}

async fn k14_halt(bench: Bench) {
    let ids = failed_first(&bench, AfterFailure::Halt).await;
    assert!(bench.claim(9).await.is_empty());
    assert_eq!(key(&bench, "a").await.expect("it waits").state, KeyState::Halted { job: ids[0] });
    let said = bench.store.explain(ids[1]).await.expect("explain").reasons;
    let said: Vec<String> = said.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|why| why.contains("halted") && why.contains(&ids[0].to_string())), "{said:?}");
    bench.act(ids[0], Act::Delete).await;
    assert_eq!(bench.claim_ids(9).await, [ids[1]], "deleted, it halts nobody");
    bench.assert_sound().await;
}

async fn k14_requeue(bench: Bench) {
    let ids = failed_first(&bench, AfterFailure::Halt).await;
    bench.act(ids[0], Act::Requeue(RequeueOptions::default())).await;
    let again = bench.claim(9).await;
    assert_eq!(again.iter().map(|one| one.job.id).collect::<Vec<_>>(), [ids[0]], "first it, and nobody beside it");
    complete_all(&bench, again).await;
    assert_eq!(bench.claim_ids(9).await, [ids[1]]);
    bench.assert_sound().await;
}

async fn k14_resume(bench: Bench) {
    let ids = failed_first(&bench, AfterFailure::Halt).await;
    assert!(bench.claim(9).await.is_empty());
    change(&bench, Change::Resume { key: "a".to_owned() }).await;
    assert_eq!(bench.claim_ids(9).await, [ids[1]]);
    bench.assert_sound().await;
}

async fn k14_go_on(bench: Bench) {
    let ids = failed_first(&bench, AfterFailure::GoOn).await;
    assert_eq!(bench.claim_ids(9).await, [ids[1]]);
    bench.assert_sound().await;
}

async fn k16_reaches_waiting_jobs(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(1))).await;
    let ids: Vec<JobId> =
        bench.insert((0..6).map(|_| job().key("a")).collect()).await.into_iter().map(|one| one.id).collect();
    let held = bench.claim_one().await;
    assert!(bench.claim(9).await.is_empty(), "the rest is sorted by now");
    let waiting = Filter { states: vec![State::Scheduled], ..Filter::default() };
    assert_eq!(bench.count(&waiting, 100).await, 5);
    for id in &ids[1..] {
        assert_eq!(bench.state(*id).await, State::Scheduled);
    }
    bench.act(ids[1], Act::Cancel { force: false }).await;
    bench.act(ids[2], Act::DeadLetter).await;
    bench.act(ids[5], Act::Edit(Edit { priority: Some(Priority::High), ..Edit::default() })).await;
    bench
        .act(
            ids[4],
            Act::Edit(Edit { tags: Some(BTreeMap::from([("t".to_owned(), "1".to_owned())])), ..Edit::default() }),
        )
        .await;
    bench.assert_sound().await;
    assert_eq!(bench.count(&waiting, 100).await, 3);
    bench.complete(held.lease).await;
    for id in [ids[5], ids[3], ids[4]] {
        let claimed = bench.claim(9).await;
        assert_eq!(claimed.iter().map(|one| one.job.id).collect::<Vec<_>>(), [id]);
        complete_all(&bench, claimed).await;
    }
    bench.assert_sound().await;
}

async fn k16_pause_and_lifetime(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(1))).await;
    let short = Duration::from_secs(3600);
    let ids: Vec<JobId> = bench
        .insert((0..3).map(|_| job().key("a").lifetime(short)).collect())
        .await
        .into_iter()
        .map(|one| one.id)
        .collect();
    let held = bench.claim_one().await;
    assert!(bench.claim(9).await.is_empty());
    bench.store.control(&ControlEdit::pause(QueueName::default(), true), None).await.expect("pause");
    bench.complete(held.lease).await;
    assert!(bench.claim(9).await.is_empty(), "a paused queue gives nothing");
    let queues = bench.store.queues().await.expect("queues");
    assert!(queues[0].paused && queues[0].count(State::Scheduled) == 2, "{queues:?}");
    bench.store.control(&ControlEdit::pause(QueueName::default(), false), None).await.expect("resume");
    assert!(!bench.store.queues().await.expect("queues")[0].paused);
    bench.pass(short).await;
    assert_eq!((bench.state(ids[1]).await, bench.state(ids[2]).await), (State::DeadLetter, State::DeadLetter));
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn k16_no_trace(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(1)).fair()).await;
    for key in ["a", "b", "c"] {
        enqueue(&bench, key, 2).await;
    }
    loop {
        let claimed = bench.claim(9).await;
        if claimed.is_empty() {
            break;
        }
        complete_all(&bench, claimed).await;
    }
    bench.upkeep().await;
    assert_eq!(bench.store.keys(&KeyQuery::new(QueueName::default())).await.expect("keys").items, []);
    bench.assert_sound().await;
}

/// What no claim has sorted to its key yet is waiting all the same.
async fn k16_keys_at_the_door_are_listed(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(1)).fair()).await;
    enqueue(&bench, "b", 2).await;
    enqueue(&bench, "d", 1).await;
    assert_eq!(keys_of(&bench.claim(1).await), ["b"]);
    bench.advance(Duration::from_secs(1));
    bench.insert(vec![job().key("a"), job().key("b"), job().key("c"), job().key("e"), job(), job().key("c")]).await;
    bench.enqueue(job().key("later").delay(Duration::from_secs(60))).await;
    let mut query = KeyQuery { limit: 2, ..KeyQuery::new(QueueName::default()) };
    let mut listed = Vec::new();
    loop {
        let page = bench.store.keys(&query).await.expect("keys");
        listed.extend(page.items.into_iter().map(|record| (record.key, record.waiting, record.running)));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let listed: Vec<_> = listed.iter().map(|(key, waiting, running)| (key.as_str(), *waiting, *running)).collect();
    assert_eq!(listed, [("a", 1, 0), ("b", 2, 1), ("c", 2, 0), ("d", 1, 0), ("e", 1, 0)]);
    let of_c = key(&bench, "c").await.expect("it waits");
    assert_eq!((of_c.waiting, of_c.running, of_c.state), (2, 0, KeyState::Open));
    assert_eq!(key(&bench, "later").await, None, "it is not due");
    let blocked = KeyQuery { blocked: true, ..KeyQuery::new(QueueName::default()) };
    let blocked = bench.store.keys(&blocked).await.expect("keys").items;
    assert_eq!(blocked.iter().map(|record| record.key.as_str()).collect::<Vec<_>>(), ["b"]);
}

/// The gates that let nothing of a job through, each with the jobs that keep it closed.
async fn gates_of(bench: &Bench, id: JobId) -> Vec<(String, Vec<JobId>)> {
    let reasons = bench.store.explain(id).await.expect("explain").reasons;
    let gates = reasons.into_iter().filter_map(|why| match why {
        Why::Blocked { gate, jobs, .. } => Some((gate, jobs)),
        _ => None,
    });
    gates.collect()
}

async fn k2_explain_names_the_jobs_in_the_gate(bench: Bench) {
    let slow = JobType::new("slow").expect("a name");
    let limits = Control::new().running(14).of_type(slow, Limit::running(2)).each_key(Limit::running(12));
    control(&bench, limits).await;
    let slow = || NewJob::new("slow", Payload::default()).key("b");
    bench.insert(vec![slow(), slow()]).await;
    let mut slows = Vec::new();
    for _ in 0..2 {
        slows.extend(bench.claim_ids(1).await);
        bench.advance(Duration::from_millis(1));
    }
    enqueue(&bench, "a", 13).await;
    let mut of_a = Vec::new();
    for _ in 0..12 {
        of_a.extend(bench.claim_ids(1).await);
        bench.advance(Duration::from_millis(1));
    }
    assert_eq!((slows.len(), of_a.len()), (2, 12));
    let waits = bench.enqueue(slow().key("a")).await;
    let all: Vec<JobId> = slows.iter().chain(&of_a).copied().collect();
    let expected = [
        ("queue default".to_owned(), all[..10].to_vec()),
        ("type slow".to_owned(), slows.clone()),
        ("key a".to_owned(), of_a[..10].to_vec()),
    ];
    assert_eq!(gates_of(&bench, waits).await, expected, "those that started first, at most ten");
    change(
        &bench,
        Change::Put { control: Control::new().ordered(AfterFailure::Halt), version: None, from_code: false },
    )
    .await;
    let first = bench.enqueue(job().key("c")).await;
    let second = bench.enqueue(job().key("c")).await;
    assert!(bench.claim_ids(9).await.contains(&first));
    assert_eq!(gates_of(&bench, second).await, [("key c".to_owned(), vec![first])]);
}

/// What comes before a job, by what it is told.
async fn ahead_of(bench: &Bench, id: JobId) -> Vec<Why> {
    let reasons = bench.store.explain(id).await.expect("explain").reasons;
    let is_ahead = |why: &Why| matches!(why, Why::JobsAhead { .. } | Why::KeyJobsAhead { .. } | Why::KeysAhead { .. });
    reasons.into_iter().filter(is_ahead).collect()
}

async fn k10_explain_counts_the_jobs_of_the_key_and_the_keys_before_it(bench: Bench) {
    control(&bench, Control::new().fair()).await;
    let insert = async |jobs| bench.insert(jobs).await.iter().map(|one| one.id).collect::<Vec<JobId>>();
    let many = insert((0..9).map(|_| job().key("a")).collect()).await;
    let few = insert(vec![job().key("b"), job().key("b")]).await;
    let keyless = insert(vec![job(), job()]).await;
    // The first claim sorts them, and the turn of "a" is over.
    assert_eq!(bench.claim_ids(1).await, [many[0]]);
    let of_key = |key: &str, jobs| Why::KeyJobsAhead { key: key.to_owned(), jobs, capped: false };
    let keys = |keys| Why::KeysAhead { keys, capped: false };
    assert_eq!(ahead_of(&bench, few[1]).await, [of_key("b", 1)], "what waits of other keys is not ahead of it");
    assert_eq!(ahead_of(&bench, many[1]).await, [keys(2)]);
    assert_eq!(ahead_of(&bench, many[8]).await, [of_key("a", 7), keys(2)]);
    assert_eq!(ahead_of(&bench, keyless[1]).await[0], of_key("", 1));
    let urgent = bench.enqueue(job().key("a").priority(Priority::Critical)).await;
    assert_eq!(bench.claim_ids(1).await, [urgent]);
    assert_eq!(ahead_of(&bench, many[2]).await[0], of_key("a", 1), "by priority, then by position");
    change(&bench, Change::Clear { version: None }).await;
    let plain = Why::JobsAhead { jobs: 9, capped: false };
    assert_eq!(ahead_of(&bench, few[1]).await, [plain], "in a plain queue all stand in one row");
}
