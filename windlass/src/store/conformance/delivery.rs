//! Section 1 of the contract: delivery. The claim order (D5) has a file of its own.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Bench;
use super::bench::{LEASE, job, no_jitter, worker};
use super::stage::{Answer, HOUR, answer, secs};
use crate::job::{Failure, JobId, Outcome, Payload, QueueName, Settlement, Stale, State};
use crate::store::{Act, ClaimRequest, Claimed, Filter, Settled, Target, Upkeep};

chapter! {
    d1_an_accepted_job_can_be_read_and_claimed_at_once,
    d1_every_accepted_job_ends_with_a_recorded_reason,
    d2_a_late_holder_cannot_overwrite_its_successor,
    d2_a_late_holder_cannot_settle_before_its_successor,
    d4_a_completed_job_is_never_claimed_again,
    d4_upkeep_never_revives_what_completed_in_time,
    d7_the_accounts_balance_through_all_states,
    d7_the_accounts_balance_after_delete_and_pruning,
    d7_the_accounts_balance_under_many_tasks,
    d8_without_faults_each_job_runs_exactly_once,
    d8_claims_of_many_tasks_never_hand_a_job_out_twice,
    d8_of_many_settlements_of_one_lease_one_is_applied,
    d8_of_completion_and_forced_cancel_one_wins,
    d8_many_upkeeps_take_a_lease_back_once,
}

async fn d1_an_accepted_job_can_be_read_and_claimed_at_once(bench: Bench) {
    let inserted = bench.insert(vec![job(); 3]).await;
    for one in &inserted {
        assert_eq!((one.existing, one.state), (false, Some(State::Scheduled)));
        assert_eq!(bench.job(one.id).await.id, one.id);
    }
    assert_eq!(bench.claim(10).await.len(), 3);
    bench.assert_sound().await;
}

/// A handler of every temper: it completes, fails, gives up, snoozes, releases, or is never heard of again.
fn temper(claimed: Claimed, n: usize) -> Option<Settlement> {
    let lease = claimed.lease;
    match n % 7 {
        0 | 1 => Some(lease.complete(None)),
        2 => Some(lease.fail(Failure::temporary("it broke"), &mut || 0.5)),
        3 => Some(lease.fail(Failure::permanent("broken", "it is broken"), &mut || 0.5)),
        4 => Some(lease.snooze(secs(5))),
        5 => Some(lease.release()),
        _ => None,
    }
}

async fn d1_every_accepted_job_ends_with_a_recorded_reason(bench: Bench) {
    let mut ids = Vec::new();
    for n in 0..30 {
        ids.push(bench.enqueue(job().retry(no_jitter(2)).delay(secs(n))).await);
    }
    let mut n = 0;
    for _ in 0..400 {
        let states = bench.store.totals().await.expect("totals").states;
        if State::ALL.into_iter().all(|state| state.is_terminal() || states[usize::from(state.number())] == 0) {
            break;
        }
        for claimed in bench.claim(4).await {
            if let Some(settlement) = temper(claimed, n) {
                bench.apply(settlement).await;
            }
            n += 1;
        }
        bench.pass(secs(7)).await;
    }
    let mut ends: BTreeMap<State, usize> = BTreeMap::new();
    for id in ids {
        let job = bench.job(id).await;
        assert!(job.state.is_terminal(), "{job:?}");
        assert_eq!(job.reason.is_some(), job.state != State::Completed, "{job:?}");
        assert_eq!(job.failure.is_some(), job.state != State::Completed, "{job:?}");
        assert!(job.failures <= 2, "{job:?}");
        *ends.entry(job.state).or_default() += 1;
    }
    assert_eq!(ends.len(), 3, "completed, failed and dead-lettered ones: {ends:?}");
    bench.assert_sound().await;
}

async fn d2_a_late_holder_cannot_overwrite_its_successor(bench: Bench) {
    let late = bench.running(job()).await;
    let id = late.job.id;
    bench.pass(LEASE).await;
    let successor = bench.claim_one().await;
    bench.apply(successor.lease.complete(Some(Payload::json("second").expect("json")))).await;
    let first = late.lease.complete(Some(Payload::json("first").expect("json")));
    assert_eq!(answer(&bench, &first).await, Answer::Stale(Stale::NotRunning));
    assert_one_success(&bench, id).await;
}

async fn d2_a_late_holder_cannot_settle_before_its_successor(bench: Bench) {
    let late = bench.running(job()).await;
    let id = late.job.id;
    bench.pass(LEASE).await;
    let successor = bench.claim_one().await;
    let first = late.lease.complete(Some(Payload::json("first").expect("json")));
    assert_eq!(answer(&bench, &first).await, Answer::Stale(Stale::Mismatch));
    bench.apply(successor.lease.complete(Some(Payload::json("second").expect("json")))).await;
    assert_one_success(&bench, id).await;
}

async fn assert_one_success(bench: &Bench, id: JobId) {
    let job = bench.job(id).await;
    assert_eq!(job.result, Some(Payload::json("second").expect("json")));
    let outcomes: Vec<_> = bench.attempts(id).await.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Lost), Some(Outcome::Completed)]);
    bench.assert_sound().await;
}

async fn d4_a_completed_job_is_never_claimed_again(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    bench.complete(claimed.lease).await;
    for _ in 0..5 {
        bench.pass(HOUR).await;
        assert!(bench.claim(10).await.is_empty());
    }
    let refused = bench.try_act(id, Act::Requeue(crate::job::RequeueOptions::default())).await;
    assert_eq!(refused.expect_err("completed").name(), "IllegalState");
    assert!(bench.claim(10).await.is_empty());
    assert_eq!(bench.state(id).await, State::Completed);
}

/// The upkeep that comes just too late finds a COMPLETED job whose last lease lies in the past.
async fn d4_upkeep_never_revives_what_completed_in_time(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    bench.advance(LEASE - super::stage::MICRO);
    bench.complete(claimed.lease).await;
    let completed = bench.job(id).await;
    let report = bench.pass(LEASE).await;
    assert_eq!((report.expired, report.lifetimes), (0, 0));
    assert_eq!(bench.job(id).await, completed);
    assert!(bench.claim(10).await.is_empty());
}

async fn d7_the_accounts_balance_through_all_states(bench: Bench) {
    let mut expected = [0u64; 9];
    for state in [
        State::Completed,
        State::Failed,
        State::DeadLetter,
        State::Cancelled,
        State::Running,
        State::Retrying,
        State::Delayed,
        State::Pending,
        State::Scheduled,
    ] {
        bench.in_state(state).await;
        expected[usize::from(state.number())] += 1;
        // A PENDING one comes with the DELAYED one that it waits for.
        expected[usize::from(State::Delayed.number())] += u64::from(state == State::Pending);
        let totals = bench.store.totals().await.expect("totals");
        assert_eq!(totals.states, expected, "after one {state}");
        assert_eq!((totals.accepted, totals.pruned), (expected.iter().sum(), 0));
        bench.assert_sound().await;
    }
    for state in State::ALL {
        let filter = Filter { states: vec![state], ..Filter::default() };
        let count = bench.count(&filter, 100).await;
        assert_eq!(count, expected[usize::from(state.number())], "{state}");
    }
}

async fn d7_the_accounts_balance_after_delete_and_pruning(bench: Bench) {
    let failed = bench.in_state(State::Failed).await;
    let completed = bench.in_state(State::Completed).await;
    let cancelled = bench.in_state(State::Cancelled).await;
    let dead = bench.in_state(State::DeadLetter).await;
    bench.act(failed, Act::Delete).await;
    assert!(bench.find(failed).await.is_none());
    bench.assert_sound().await;
    let totals = bench.store.totals().await.expect("totals");
    assert_eq!((totals.accepted, totals.pruned), (4, 1));
    bench.pass(secs(24 * 3600)).await;
    assert!(bench.find(completed).await.is_none());
    assert!(bench.find(cancelled).await.is_none());
    assert_eq!(bench.state(dead).await, State::DeadLetter);
    bench.assert_sound().await;
    let totals = bench.store.totals().await.expect("totals");
    assert_eq!((totals.accepted, totals.pruned, totals.states.iter().sum::<u64>()), (4, 3, 1));
}

async fn d7_the_accounts_balance_under_many_tasks(bench: Bench) {
    const JOBS: u64 = 4 * 5 * 6;
    let producers: Vec<_> = (0..4)
        .map(|_| {
            let bench = bench.clone();
            tokio::spawn(async move {
                for _ in 0..5 {
                    bench.insert(vec![job().max_attempts(1); 6]).await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let settled = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..4)
        .map(|n| {
            let (bench, settled) = (bench.clone(), Arc::clone(&settled));
            tokio::spawn(async move {
                while settled.load(Ordering::SeqCst) < JOBS {
                    for claimed in bench.claim(3).await {
                        let state = match n {
                            0 => bench.fail(claimed.lease).await,
                            _ => bench.complete(claimed.lease).await,
                        };
                        assert!(state.is_terminal());
                        settled.fetch_add(1, Ordering::SeqCst);
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in producers.into_iter().chain(workers) {
        task.await.expect("no panic");
    }
    let totals = bench.store.totals().await.expect("totals");
    let ended = totals.states[usize::from(State::Completed.number())];
    let dead = totals.states[usize::from(State::DeadLetter.number())];
    assert_eq!((totals.accepted, totals.pruned, ended + dead), (JOBS, 0, JOBS), "{totals:?}");
    bench.assert_sound().await;
}

async fn d8_without_faults_each_job_runs_exactly_once(bench: Bench) {
    let mut ids = HashSet::new();
    for _ in 0..5 {
        ids.extend(bench.insert(vec![job(); 5]).await.iter().map(|one| one.id));
        bench.advance(secs(1));
    }
    let mut ran = HashSet::new();
    loop {
        let claimed = bench.claim(3).await;
        bench.upkeep().await;
        if claimed.is_empty() {
            break;
        }
        for one in claimed {
            assert!(ran.insert(one.job.id), "twice: {}", one.job.id);
            assert_eq!(one.lease.attempt(), 1);
            bench.advance(secs(1));
            bench.complete(one.lease).await;
        }
    }
    assert_eq!(ran, ids);
    for id in ids {
        assert_eq!(bench.attempts(id).await.len(), 1);
    }
}

async fn d8_claims_of_many_tasks_never_hand_a_job_out_twice(bench: Bench) {
    const JOBS: usize = 200;
    const TASKS: usize = 8;
    bench.insert(vec![job(); JOBS]).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|n| {
            let store = Arc::clone(&bench.store);
            tokio::spawn(async move {
                let request = ClaimRequest {
                    lease_time: Some(LEASE),
                    ..ClaimRequest::new(worker(&format!("w{n}")), QueueName::default(), 3)
                };
                let mut mine = Vec::new();
                loop {
                    let claimed = store.claim(&request).await.expect("claim");
                    if claimed.is_empty() {
                        return mine;
                    }
                    for one in claimed {
                        assert_eq!(one.job.lease.as_ref().map(|lease| &lease.worker), Some(&request.worker));
                        mine.push(one);
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let mut handed_out: Vec<Claimed> = Vec::new();
    for task in tasks {
        handed_out.extend(task.await.expect("no panic"));
    }
    let ids: HashSet<_> = handed_out.iter().map(|one| one.job.id).collect();
    let tokens: HashSet<_> = handed_out.iter().map(|one| one.lease.key().token).collect();
    assert_eq!((handed_out.len(), ids.len(), tokens.len()), (JOBS, JOBS, JOBS));
    for one in handed_out {
        assert_eq!((one.lease.version(), one.lease.attempt()), (1, 1));
        bench.complete(one.lease).await;
    }
    bench.assert_sound().await;
}

async fn d8_of_many_settlements_of_one_lease_one_is_applied(bench: Bench) {
    let claimed = bench.running(job()).await;
    let (id, token) = (claimed.job.id, claimed.lease.key().token);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&bench.store);
            let settlement = crate::job::Lease::granted(&claimed.job, token).complete(None);
            tokio::spawn(async move { store.settle(&[settlement]).await.expect("settle").remove(0) })
        })
        .collect();
    let mut applied = 0;
    for task in tasks {
        match task.await.expect("no panic") {
            Settled::Applied(State::Completed) => applied += 1,
            Settled::AlreadyApplied => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(applied, 1);
    assert_eq!(bench.attempts(id).await.len(), 1);
    bench.assert_sound().await;
}

async fn d8_of_completion_and_forced_cancel_one_wins(bench: Bench) {
    for round in 0..10 {
        let claimed = bench.running(job()).await;
        let id = claimed.job.id;
        let store = Arc::clone(&bench.store);
        let settlement = claimed.lease.complete(None);
        let completing = tokio::spawn(async move { store.settle(&[settlement]).await.expect("settle").remove(0) });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let cancelled = bench.operate(Target::Jobs(vec![id]), Act::Cancel { force: true }, false).await.changed;
        let completed = match completing.await.expect("no panic") {
            Settled::Applied(State::Completed) => 1,
            Settled::Stale(Stale::NotRunning) => 0,
            other => panic!("{other:?}"),
        };
        assert_eq!(completed + cancelled, 1, "exactly one of them");
        let end = if completed == 1 { State::Completed } else { State::Cancelled };
        assert_eq!(bench.state(id).await, end);
        assert_eq!(bench.attempts(id).await.len(), 1);
    }
    bench.assert_sound().await;
}

async fn d8_many_upkeeps_take_a_lease_back_once(bench: Bench) {
    const JOBS: usize = 20;
    bench.insert(vec![job().max_attempts(5); JOBS]).await;
    let ids = bench.claim_ids(JOBS).await;
    bench.advance(LEASE);
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let store = Arc::clone(&bench.store);
            tokio::spawn(async move {
                let mut expired = 0;
                for _ in 0..JOBS {
                    let step = Upkeep { limit: 3, ..Upkeep::default() };
                    expired += store.upkeep(&step).await.expect("upkeep").expired;
                    tokio::task::yield_now().await;
                }
                expired
            })
        })
        .collect();
    let mut expired = 0;
    for task in tasks {
        expired += task.await.expect("no panic");
    }
    assert_eq!(expired, JOBS);
    for id in ids {
        let job = bench.job(id).await;
        assert_eq!((job.state, job.failures, job.lost), (State::Scheduled, 1, 1));
        assert_eq!(bench.attempts(id).await.len(), 1);
    }
    assert_eq!(bench.claim(JOBS + 1).await.len(), JOBS);
    bench.assert_sound().await;
}
