//! Flow control, first half: limits, what frees a slot, coming under control, rates, holds (rules K1 to K8, K15).

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job, no_jitter, worker};
use crate::error::Error;
use crate::flow::{Change, Control, ControlEdit, ControlRecord, GateName, KeyRecord, KeyState, Limit, Rate};
use crate::job::{Failure, HoldScope, JobType, Lease, NewJob, Payload, QueueName, State, Why};
use crate::store::{Act, ClaimRequest, Claimed, Claims, Filter, KeyQuery, ListQuery, Settled};

chapter![
    k1_a_plain_queue_knows_no_control,
    k1_changes_are_acts_with_versions,
    k2_never_more_run_than_the_queue_allows,
    k2_type,
    k2_key,
    k2_three_gates_at_once,
    k2_eight_claimers_at_once,
    k3_every_end_frees_one_slot,
    k3_a_stale_settlement_frees_nothing,
    k3_a_repeated_settlement_frees_nothing,
    k4_lowered_below_running,
    k4_raised_opens_full_keys,
    k5_running_jobs_are_counted,
    k5_a_backlog_comes_under_control,
    k5_cleared,
    k6_own_limit_wins,
    k6_keyless_jobs,
    k6_bounds,
    k7_law_over_random_histories,
    k7_burst,
    k7_retries_and_releases_count,
    k8_a_handler_holds_its_key,
    k8_lifted,
    k15_again_in_is_the_next_token,
];

/// Changes the control of the default queue.
pub(super) async fn change(bench: &Bench, change: Change) -> Option<ControlRecord> {
    let edit = ControlEdit::new(QueueName::default(), change);
    bench.store.control(&edit, Some("ada")).await.expect("control")
}

/// Brings the default queue under control.
pub(super) async fn control(bench: &Bench, control: Control) {
    change(bench, Change::Put { control, version: None, from_code: false }).await;
}

/// Claims from the default queue; gives the whole answer.
pub(super) async fn claims(bench: &Bench, limit: usize) -> Claims {
    let request =
        ClaimRequest { lease_time: Some(LEASE), ..ClaimRequest::new(worker("w1"), QueueName::default(), limit) };
    bench.store.claim(&request).await.expect("claim")
}

/// Enqueues this many jobs of a key.
pub(super) async fn enqueue(bench: &Bench, key: &str, count: usize) {
    bench.insert((0..count).map(|_| job().key(key)).collect()).await;
}

/// The keys of claimed jobs.
pub(super) fn keys_of(claimed: &[Claimed]) -> Vec<String> {
    claimed.iter().map(|claimed| claimed.job.spec.options.key.clone().unwrap_or_default()).collect()
}

/// How a key of the default queue stands.
pub(super) async fn key(bench: &Bench, key: &str) -> Option<KeyRecord> {
    let query = KeyQuery { key: Some(key.to_owned()), ..KeyQuery::new(QueueName::default()) };
    bench.store.keys(&query).await.expect("keys").items.pop()
}

async fn k1_a_plain_queue_knows_no_control(bench: Bench) {
    assert_eq!(bench.store.controlled(&QueueName::default()).await.expect("controlled"), None);
    let ids: Vec<_> = bench.insert((0..3).map(|_| job().key("acme")).collect()).await;
    let claimed = claims(&bench, 5).await;
    assert_eq!(
        claimed.iter().map(|one| one.job.id).collect::<Vec<_>>(),
        ids.iter().map(|one| one.id).collect::<Vec<_>>()
    );
    assert_eq!(claimed.again_in, None);
    let keys = bench.store.keys(&KeyQuery::new(QueueName::default())).await;
    assert!(matches!(keys, Err(Error::NotFound { .. })), "{keys:?}");
    let edit = ControlEdit::new(QueueName::default(), Change::ClearKey { key: "acme".to_owned() });
    let refused = bench.store.control(&edit, None).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    bench.assert_sound().await;
}

async fn k1_changes_are_acts_with_versions(bench: Bench) {
    let put = |running, version| Change::Put { control: Control::new().running(running), version, from_code: false };
    let first = change(&bench, put(3, None)).await.expect("controlled");
    assert_eq!((first.version, first.control.running), (1, Some(3)));
    let edit = ControlEdit::new(QueueName::default(), put(4, Some(7)));
    assert!(matches!(bench.store.control(&edit, None).await, Err(Error::Conflict(_))), "a version that is not it");
    assert_eq!(change(&bench, put(4, Some(1))).await.expect("controlled").version, 2);
    let stored = bench.store.controlled(&QueueName::default()).await.expect("controlled").expect("a control");
    assert_eq!((stored.version, stored.control.running), (2, Some(4)));
    let declared = Change::Put { control: Control::new().running(9), version: None, from_code: true };
    assert_eq!(change(&bench, declared).await.expect("controlled").control.running, Some(4), "an operator set it");
    assert_eq!(change(&bench, Change::Clear { version: None }).await, None);
    let acts = bench.store.acts(None, 10).await.expect("acts").items;
    let acts: Vec<_> = acts.iter().map(|act| (act.act.as_str(), act.by.as_deref(), act.target.as_str())).collect();
    let said = |act| (act, Some("ada"), "queue default");
    assert_eq!(acts, [said("clear control"), said("control queue"), said("control queue")]);
}

async fn k2_never_more_run_than_the_queue_allows(bench: Bench) {
    control(&bench, Control::new().running(3)).await;
    bench.insert((0..9).map(|_| job()).collect()).await;
    let mut held = bench.claim(9).await;
    assert_eq!(held.len(), 3);
    assert!(bench.claim(9).await.is_empty());
    let id = held[0].job.id;
    bench.complete(held.remove(0).lease).await;
    let next = bench.claim(9).await;
    assert_eq!(next.len(), 1);
    assert_ne!(next[0].job.id, id);
    let filter = Filter { states: vec![State::Scheduled], ..Filter::default() };
    let query = ListQuery { filter, limit: 1, after: None, ..ListQuery::default() };
    let waiting = bench.store.list(&query).await.expect("list").items.remove(0).id;
    let reasons = bench.store.explain(waiting).await.expect("explain").reasons;
    let said: Vec<String> =
        reasons.iter().filter(|why| matches!(why, Why::Blocked { .. })).map(ToString::to_string).collect();
    let (first, second, third) = (held[0].job.id, held[1].job.id, next[0].job.id);
    assert_eq!(said, [format!("queue default runs 3 of 3: {first}, {second}, {third}")]);
    bench.assert_sound().await;
}

fn of_type(name: &str) -> NewJob {
    NewJob::new(name, Payload::default())
}

fn job_type(name: &str) -> JobType {
    JobType::new(name).expect("a name")
}

async fn k2_type(bench: Bench) {
    control(&bench, Control::new().of_type(job_type("slow"), Limit::running(1))).await;
    bench.insert(vec![of_type("slow"), of_type("slow"), of_type("quick"), of_type("quick")]).await;
    let claimed = bench.claim(9).await;
    let types: Vec<_> = claimed.iter().map(|one| one.job.spec.job_type.as_str()).collect();
    assert_eq!(types, ["slow", "quick", "quick"]);
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn k2_key(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(2))).await;
    enqueue(&bench, "a", 4).await;
    enqueue(&bench, "b", 1).await;
    let mut claimed = bench.claim(9).await;
    assert_eq!(keys_of(&claimed), ["a", "a", "b"]);
    assert!(bench.claim(9).await.is_empty());
    let record = key(&bench, "a").await.expect("it waits");
    assert_eq!((record.waiting, record.running, record.state), (2, 2, KeyState::Full));
    let blocked = KeyQuery { blocked: true, ..KeyQuery::new(QueueName::default()) };
    let blocked = bench.store.keys(&blocked).await.expect("keys").items;
    assert_eq!(blocked.iter().map(|record| record.key.as_str()).collect::<Vec<_>>(), ["a"]);
    bench.complete(claimed.remove(0).lease).await;
    assert_eq!(keys_of(&bench.claim(9).await), ["a"]);
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn k2_three_gates_at_once(bench: Bench) {
    let limits = Control::new().running(4).of_type(job_type("slow"), Limit::running(2)).each_key(Limit::running(2));
    control(&bench, limits).await;
    let jobs = (0..12).map(|number| of_type(["slow", "quick"][number % 2]).key(["a", "b", "c"][number % 3]));
    bench.insert(jobs.collect()).await;
    let mut held: Vec<Claimed> = Vec::new();
    let mut done = 0;
    while done < 12 {
        held.extend(bench.claim(3).await);
        let count = |is: &dyn Fn(&Claimed) -> bool| held.iter().filter(|one| is(one)).count();
        assert!(held.len() <= 4 && count(&|one| one.job.spec.job_type.as_str() == "slow") <= 2);
        for key in ["a", "b", "c"] {
            assert!(count(&|one| one.job.spec.options.key.as_deref() == Some(key)) <= 2);
        }
        assert!(!held.is_empty(), "something may always run");
        bench.complete(held.remove(0).lease).await;
        done += 1;
    }
    bench.assert_sound().await;
}

async fn k2_eight_claimers_at_once(bench: Bench) {
    control(&bench, Control::new().running(6).each_key(Limit::running(2)).fair()).await;
    for key in ["a", "b", "c", "d"] {
        enqueue(&bench, key, 20).await;
    }
    let mut done = 0;
    for round in 0..40 {
        let claimers = (0..8).map(|number| {
            let bench = bench.clone();
            tokio::spawn(async move {
                let who = worker(&format!("w{number}"));
                let request =
                    ClaimRequest { lease_time: Some(LEASE), ..ClaimRequest::new(who, QueueName::default(), 3) };
                bench.store.claim(&request).await.expect("claim").jobs
            })
        });
        let mut held = Vec::new();
        for claimer in claimers.collect::<Vec<_>>() {
            held.extend(claimer.await.expect("a claimer"));
        }
        assert!(held.len() <= 6, "round {round}: {} run", held.len());
        for key in ["a", "b", "c", "d"] {
            assert!(keys_of(&held).iter().filter(|is| *is == key).count() <= 2, "round {round}: {key}");
        }
        done += held.len();
        let leases = held.into_iter().map(|one| one.lease.complete(None)).collect::<Vec<_>>();
        bench.store.settle(&leases).await.expect("settle");
        if done == 80 {
            break;
        }
    }
    assert_eq!(done, 80);
    bench.assert_sound().await;
}

async fn k3_every_end_frees_one_slot(bench: Bench) {
    control(&bench, Control::new().running(1).each_key(Limit::running(1))).await;
    let short = || job().key("a").retry(no_jitter(3));
    type Ending = fn(Lease) -> crate::job::Settlement;
    let endings: [(&str, Ending); 7] = [
        ("complete", |lease| lease.complete(None)),
        ("retry", |lease| lease.fail(Failure::temporary("x"), &mut || 0.5)),
        ("fail", |lease| lease.fail(Failure::permanent("x", "x"), &mut || 0.5)),
        ("snooze", |lease| lease.snooze(Duration::from_secs(3600))),
        ("cancel", Lease::cancel),
        ("release", Lease::release),
        ("interrupt", Lease::interrupt),
    ];
    bench.enqueue(short()).await;
    let mut claimed = bench.claim_one().await;
    for (name, ending) in endings {
        bench.enqueue(short()).await;
        assert!(bench.claim(5).await.is_empty(), "before {name}");
        bench.apply(ending(claimed.lease)).await;
        let mut next = bench.claim(5).await;
        assert_eq!(next.len(), 1, "after {name}");
        claimed = next.remove(0);
    }
    bench.enqueue(short()).await;
    bench.pass(LEASE).await;
    let expired = bench.claim(5).await;
    assert_eq!(expired.len(), 1, "after an expiry that was taken back");
    bench.act(expired[0].job.id, Act::Cancel { force: true }).await;
    let forced = bench.claim(5).await;
    assert_eq!(forced.len(), 1, "after a cancel by force");
    bench.act(forced[0].job.id, Act::DeadLetter).await;
    assert_eq!(bench.claim(5).await.len(), 1, "after an operator's dead-letter");
    assert!(bench.claim(5).await.is_empty());
    bench.assert_sound().await;
}

async fn k3_a_stale_settlement_frees_nothing(bench: Bench) {
    control(&bench, Control::new().running(1)).await;
    bench.insert(vec![job(), job(), job()]).await;
    let stale = bench.claim_one().await;
    bench.pass(LEASE).await;
    let held = bench.claim_one().await;
    assert!(matches!(bench.settle(&stale.lease.complete(None)).await, Settled::Stale(_)));
    assert!(bench.claim(5).await.is_empty(), "one runs");
    bench.complete(held.lease).await;
    assert_eq!(bench.claim(5).await.len(), 1);
    bench.assert_sound().await;
}

async fn k3_a_repeated_settlement_frees_nothing(bench: Bench) {
    control(&bench, Control::new().running(2).each_key(Limit::running(2))).await;
    enqueue(&bench, "a", 5).await;
    let mut held = bench.claim(5).await;
    assert_eq!(held.len(), 2);
    let settlement = held.remove(0).lease.complete(None);
    for _ in 0..3 {
        bench.settle(&settlement).await;
    }
    assert_eq!(bench.claim(5).await.len(), 1);
    assert!(bench.claim(5).await.is_empty());
    bench.assert_sound().await;
}

async fn k4_lowered_below_running(bench: Bench) {
    control(&bench, Control::new().running(4)).await;
    bench.insert((0..9).map(|_| job()).collect()).await;
    let mut held = bench.claim(9).await;
    control(&bench, Control::new().running(2)).await;
    for left in [3, 2] {
        bench.complete(held.remove(0).lease).await;
        assert!(bench.claim(9).await.is_empty(), "{left} run, and 2 may");
    }
    bench.complete(held.remove(0).lease).await;
    assert_eq!(bench.claim(9).await.len(), 1);
    bench.assert_sound().await;
}

async fn k4_raised_opens_full_keys(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(1))).await;
    enqueue(&bench, "a", 5).await;
    assert_eq!(bench.claim(9).await.len(), 1);
    assert!(bench.claim(9).await.is_empty());
    control(&bench, Control::new().each_key(Limit::running(3))).await;
    assert_eq!(bench.claim(9).await.len(), 2);
    change(&bench, Change::PutKey { key: "a".to_owned(), limit: Limit::running(4) }).await;
    assert_eq!(bench.claim(9).await.len(), 1);
    bench.assert_sound().await;
}

async fn k5_running_jobs_are_counted(bench: Bench) {
    enqueue(&bench, "a", 5).await;
    let mut held = bench.claim(3).await;
    control(&bench, Control::new().running(4).each_key(Limit::running(2))).await;
    assert!(bench.claim(9).await.is_empty(), "three of the key run");
    bench.complete(held.remove(0).lease).await;
    assert!(bench.claim(9).await.is_empty(), "two of the key run");
    bench.complete(held.remove(0).lease).await;
    assert_eq!(bench.claim(9).await.len(), 1);
    bench.assert_sound().await;
}

async fn k5_a_backlog_comes_under_control(bench: Bench) {
    let ids = bench.insert((0..6).map(|number| job().key(format!("k{}", number % 2))).collect()).await;
    control(&bench, Control::new().each_key(Limit::running(3))).await;
    let claimed = bench.claim_ids(9).await;
    assert_eq!(claimed, ids.iter().map(|one| one.id).collect::<Vec<_>>(), "they keep their order");
    bench.assert_sound().await;
}

async fn k5_cleared(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(1)).running(2)).await;
    enqueue(&bench, "a", 4).await;
    let held = bench.claim_one().await;
    assert!(bench.claim(9).await.is_empty());
    change(&bench, Change::Clear { version: None }).await;
    assert_eq!(bench.claim(9).await.len(), 3, "no gate is left");
    bench.complete(held.lease).await;
    bench.assert_sound().await;
}

async fn k6_own_limit_wins(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(1))).await;
    change(&bench, Change::PutKey { key: "b".to_owned(), limit: Limit::running(3) }).await;
    enqueue(&bench, "a", 4).await;
    enqueue(&bench, "b", 4).await;
    assert_eq!(keys_of(&bench.claim(9).await), ["a", "b", "b", "b"]);
    let record = key(&bench, "b").await.expect("it has a limit");
    assert_eq!((record.own_limit, record.limit.running), (true, Some(3)));
    change(&bench, Change::ClearKey { key: "b".to_owned() }).await;
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn k6_keyless_jobs(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(1))).await;
    bench.insert((0..4).map(|_| job()).collect()).await;
    enqueue(&bench, "a", 2).await;
    assert_eq!(keys_of(&bench.claim(9).await), ["", "", "", "", "a"]);
    bench.assert_sound().await;
}

async fn k6_bounds(bench: Bench) {
    let long = "é".repeat(128);
    bench.enqueue(job().key(&long)).await;
    for bad in [String::new(), "é".repeat(129), "a\0b".to_owned()] {
        let refused = bench.try_insert(vec![job().key(bad)]).await;
        assert!(matches!(refused, Err(Error::InvalidArgument { field: "key", .. })), "{refused:?}");
    }
    control(&bench, Control::new().each_key(Limit::running(1))).await;
    let claimed = bench.claim_one().await;
    assert_eq!(claimed.job.spec.options.key.as_deref(), Some(long.as_str()));
    bench.apply(claimed.lease.release()).await;
    assert_eq!(keys_of(&bench.claim(1).await), [long], "it is kept");
    let edit = |change| ControlEdit::new(QueueName::default(), change);
    let bad = [
        ("running", Change::Put { control: Control::new().running(0), version: None, from_code: false }),
        ("control", Change::Put { control: Control::new(), version: None, from_code: false }),
        ("key", Change::PutKey { key: "é".repeat(129), limit: Limit::running(1) }),
        ("weight", Change::PutKey { key: "a".to_owned(), limit: Limit::weighing(0) }),
        ("hold", Change::Hold { gate: GateName::Queue, time: Some(Duration::ZERO) }),
    ];
    for (named, change) in bad {
        match bench.store.control(&edit(change), None).await {
            Err(Error::InvalidArgument { field, .. }) => assert_eq!(field, named),
            other => panic!("{named}: {other:?}"),
        }
    }
}

async fn k7_law_over_random_histories(bench: Bench) {
    let rate = Rate::new(10, Duration::from_secs(1)).burst(3);
    control(&bench, Control::new().rate(rate)).await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut starts = Vec::new();
    for _ in 0..60 {
        bench.insert((0..2).map(|_| job()).collect()).await;
        let claimed = bench.claim(random.usize(1..6)).await;
        starts.extend(claimed.iter().filter_map(|one| one.job.started_at).map(|at| at.as_micros()));
        let leases: Vec<_> = claimed.into_iter().map(|one| one.lease.complete(None)).collect();
        bench.store.settle(&leases).await.expect("settle");
        bench.advance(Duration::from_millis(random.u64(0..200)));
    }
    assert!(starts.len() > 30, "the rate lets {} through", starts.len());
    for (first, begin) in starts.iter().enumerate() {
        for (last, end) in starts.iter().enumerate().skip(first) {
            let allowed = 3.0 + (end - begin) as f64 / 100_000.0;
            assert!((last - first + 1) as f64 <= allowed + 1e-9, "{} starts in {} µs", last - first + 1, end - begin);
        }
    }
}

async fn k7_burst(bench: Bench) {
    control(&bench, Control::new().rate(Rate::per_second(10).burst(4))).await;
    bench.insert((0..9).map(|_| job()).collect()).await;
    assert_eq!(bench.claim(9).await.len(), 4);
    assert!(bench.claim(9).await.is_empty());
    bench.advance(Duration::from_millis(100));
    assert_eq!(bench.claim(9).await.len(), 1);
    bench.advance(Duration::from_secs(3600));
    assert_eq!(bench.claim(9).await.len(), 4, "what was not used is kept up to the burst");
}

async fn k7_retries_and_releases_count(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::rated(Rate::per_second(1)))).await;
    enqueue(&bench, "a", 2).await;
    let claimed = bench.claim_one().await;
    bench.apply(claimed.lease.release()).await;
    assert!(bench.claim(1).await.is_empty(), "nothing is given back");
    bench.advance(Duration::from_secs(1));
    assert_eq!(bench.claim(5).await.len(), 1);
}

async fn k8_a_handler_holds_its_key(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(5))).await;
    enqueue(&bench, "a", 3).await;
    enqueue(&bench, "b", 1).await;
    let mut claimed = bench.claim(1).await;
    assert_eq!(keys_of(&claimed), ["a"]);
    let failure = Failure::temporary("429").hold(HoldScope::Key, Duration::from_secs(60));
    bench.apply(claimed.remove(0).lease.fail(failure, &mut || 0.5)).await;
    let others = claims(&bench, 9).await;
    assert_eq!(keys_of(&others), ["b"]);
    assert_eq!(others.again_in, Some(Duration::from_secs(60)));
    let until = bench.now().plus(Duration::from_secs(60));
    assert_eq!(key(&bench, "a").await.expect("held").state, KeyState::Held { until });
    bench.advance(Duration::from_secs(60));
    assert_eq!(keys_of(&bench.claim(9).await), ["a", "a", "a"]);
    bench.assert_sound().await;
}

async fn k8_lifted(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::running(5))).await;
    enqueue(&bench, "a", 2).await;
    let hold = |gate, time| Change::Hold { gate, time };
    let gates = [GateName::Queue, GateName::Type(job_type("test")), GateName::Key("a".to_owned())];
    for gate in gates {
        change(&bench, hold(gate.clone(), Some(Duration::from_secs(60)))).await;
        change(&bench, hold(gate.clone(), Some(Duration::from_secs(30)))).await;
        let claimed = claims(&bench, 1).await;
        assert!(claimed.is_empty(), "{gate} is held");
        assert_eq!(claimed.again_in, Some(Duration::from_secs(60)), "of two holds the later counts");
        change(&bench, hold(gate, None)).await;
        let mut claimed = bench.claim(1).await;
        assert_eq!(claimed.len(), 1);
        bench.apply(claimed.remove(0).lease.release()).await;
    }
    bench.assert_sound().await;
}

async fn k15_again_in_is_the_next_token(bench: Bench) {
    control(&bench, Control::new().each_key(Limit::rated(Rate::per_second(10)))).await;
    enqueue(&bench, "a", 3).await;
    let first = claims(&bench, 9).await;
    assert_eq!((first.len(), first.again_in), (1, Some(Duration::from_millis(100))));
    bench.advance(Duration::from_millis(40));
    let early = claims(&bench, 9).await;
    assert_eq!((early.len(), early.again_in), (0, Some(Duration::from_millis(60))));
    bench.advance(Duration::from_millis(60));
    assert_eq!(claims(&bench, 9).await.len(), 1);
}
