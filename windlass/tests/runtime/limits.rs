//! A store that hangs or is slow: every call of the runtime has a limit, and the grace period bounds the stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use windlass::{Context, State};

use crate::support::{Number, SOON, Setup, memory, until};

const FOR_EVER: usize = usize::MAX;

async fn completed(setup: &Setup) -> u64 {
    setup.client.totals().await.expect("totals").states[usize::from(State::Completed.number())]
}

/// S2.37: the settle call never comes back, the heartbeats do; only the grace period ends it.
#[tokio::test]
async fn n3_a_settle_that_hangs_does_not_keep_a_stopping_worker() {
    let (setup, faults) = memory().await.faulty();
    faults.settle_hangs.store(FOR_EVER, Ordering::SeqCst);
    let worker = setup.worker(1).grace(Duration::from_millis(300)).handle(async |_: Number, _: Context| Ok(()));
    let running = worker.start().await.expect("start");
    let id = setup.number(1).await;
    until("it settles", || async { faults.settle_calls.load(Ordering::SeqCst) == 1 }).await;
    let begun = Instant::now();
    let stopped = tokio::time::timeout(SOON, running.stop()).await.expect("in time");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!((stopped.settled, stopped.abandoned), (0, 1));
    assert_eq!(setup.client.job(id).await.expect("the job").state, State::Running, "its lease will expire");
}

/// Nothing answers at all: claim, heartbeat, settle and upkeep hang, and the worker stops all the same.
#[tokio::test]
async fn n3_a_store_that_is_gone_does_not_keep_a_stopping_worker() {
    let (setup, faults) = memory().await.faulty();
    let worker = setup.worker(1).grace(Duration::from_millis(300)).handle(async |_: Number, _: Context| Ok(()));
    let running = worker.start().await.expect("start");
    for fault in [&faults.settle_hangs, &faults.extend_hangs, &faults.upkeep_hangs] {
        fault.store(FOR_EVER, Ordering::SeqCst);
    }
    setup.number(1).await;
    until("it settles", || async { faults.settle_calls.load(Ordering::SeqCst) == 1 }).await;
    faults.claim_hangs.store(FOR_EVER, Ordering::SeqCst);
    tokio::time::timeout(SOON, running.stop()).await.expect("in time");
}

/// In virtual time, so to the millisecond: whatever the grace period, handlers that do not end and a store that does not answer
/// take all of it and no more.
#[tokio::test(start_paused = true)]
async fn n3_the_grace_period_is_never_exceeded_however_short() {
    for grace in [0, 1, 300, 1000, 3000, 9000, 25_000].map(Duration::from_millis) {
        let (setup, faults) = memory().await.faulty();
        let handler = async |job: Number, _: Context| {
            if job.0 == 1 {
                std::future::pending::<()>().await;
            }
            Ok(())
        };
        let running = setup.worker(2).grace(grace).handle(handler).start().await.expect("start");
        setup.number(1).await;
        faults.settle_hangs.store(FOR_EVER, Ordering::SeqCst);
        setup.number(2).await;
        until("it settles", || async { faults.settle_calls.load(Ordering::SeqCst) > 0 }).await;
        for fault in [&faults.claim_hangs, &faults.extend_hangs, &faults.upkeep_hangs] {
            fault.store(FOR_EVER, Ordering::SeqCst);
        }
        let begun = tokio::time::Instant::now();
        let stopped = running.stop().await;
        let took = begun.elapsed();
        assert!(took <= grace + Duration::from_millis(5), "{took:?} of {grace:?}");
        assert_eq!((stopped.settled, stopped.abandoned), (0, 2), "after {grace:?}");
    }
}

/// The lease of a decided attempt lapses while the store is silent: whether it held is for the store to say.
#[tokio::test]
async fn d6_a_decided_attempt_whose_lease_lapsed_is_settled_once_the_store_answers() {
    let (setup, faults) = memory().await.faulty();
    faults.settle_hangs.store(1, Ordering::SeqCst);
    faults.extend_hangs.store(FOR_EVER, Ordering::SeqCst);
    let worker = setup.worker(1).lease_time(Duration::from_millis(200)).handle(async |_: Number, _: Context| Ok(()));
    let running = worker.start().await.expect("start");
    let first = setup.number(1).await;
    until("it settles", || async { faults.settle_calls.load(Ordering::SeqCst) == 1 }).await;
    let next = setup.number(2).await;
    setup.reaches(next, State::Completed).await;
    let stopped = running.stop().await;
    assert_eq!((stopped.settled, stopped.dropped, stopped.abandoned), (2, 0, 0));
    assert_eq!(
        setup.client.job(first).await.expect("the job").state,
        State::Completed,
        "its store's clock stood still"
    );
}

/// In virtual time: a claim that hangs is given up when all that it could bring has expired.
#[tokio::test(start_paused = true)]
async fn n2_a_claim_that_hangs_is_given_up_after_its_lease_time() {
    let (setup, faults) = memory().await.faulty();
    faults.claim_hangs.store(1, Ordering::SeqCst);
    let running = setup.worker(1).handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    let begun = tokio::time::Instant::now();
    let id = setup.number(1).await;
    assert_eq!(setup.client.wait(id).await.expect("the end").state, State::Completed);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(10), "{took:?}");
    running.stop().await;
}

/// S0.64, in virtual time: the pause after a claim that failed doubles from 50 ms up to 2 s, and is forgotten once the store answers.
#[tokio::test(start_paused = true)]
async fn the_pause_after_store_errors_grows_up_to_a_limit() {
    let (setup, faults) = memory().await.faulty();
    faults.claim.store(usize::MAX, Ordering::SeqCst);
    let running = setup.worker(1).handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    let calls = || faults.claim_calls.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let soon = calls();
    tokio::time::sleep(Duration::from_secs(9)).await;
    let before = calls();
    tokio::time::sleep(Duration::from_secs(40)).await;
    let late = calls() - before;
    assert!((4..=8).contains(&soon), "{soon} calls in the first second");
    assert!((18..=32).contains(&late), "{late} calls in 40 s of pauses of 2 s, two thirds of that at the least");
    faults.claim.store(0, Ordering::SeqCst);
    let id = setup.number(1).await;
    assert_eq!(setup.client.wait(id).await.expect("the end").state, State::Completed);
    faults.claim.store(1, Ordering::SeqCst);
    let begun = tokio::time::Instant::now();
    let id = setup.number(2).await;
    assert_eq!(setup.client.wait(id).await.expect("the end").state, State::Completed);
    assert!(begun.elapsed() < Duration::from_secs(1), "the pause begins anew: {:?}", begun.elapsed());
    running.stop().await;
}

/// In virtual time: upkeep that hangs is given up after a minute, and goes on.
#[tokio::test(start_paused = true)]
async fn l7_upkeep_that_hangs_is_given_up() {
    let (setup, faults) = memory().await.faulty();
    faults.upkeep_hangs.store(1, Ordering::SeqCst);
    let running = setup.worker(1).handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(faults.upkeep_hangs.load(Ordering::SeqCst), 0, "it hangs");
    faults.upkeep_hangs.store(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(faults.upkeep_hangs.load(Ordering::SeqCst), 0, "it was called again");
    running.stop().await;
}

/// S2.46: while the store does not take outcomes, handlers wait with their slots, and no more are started.
#[tokio::test]
async fn n1_a_slow_store_holds_back_the_handlers() {
    const JOBS: usize = 4000;
    let (setup, faults) = memory().await.faulty();
    setup.client.enqueue_all((0..JOBS as u64).map(Number)).await.expect("enqueue");
    faults.settle_stands.store(1, Ordering::SeqCst);
    let started = Arc::new(AtomicUsize::new(0));
    let counted = started.clone();
    let handler = move |_: Number, _: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, windlass::Failure>(()) }
    };
    let running = setup.worker(4).handle(handler).start().await.expect("start");
    // 1,000 outcomes may wait, beside those of the call that stands still and the handlers that wait with their slots.
    until("outcomes wait", || async { started.load(Ordering::SeqCst) > 1000 }).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let waiting = started.load(Ordering::SeqCst);
    assert!(waiting <= 2 * (1000 + 4), "{waiting} handlers ran ahead of the store");
    assert_eq!(running.busy(), 4, "handlers wait with their slots");
    assert_eq!(completed(&setup).await, 0);
    faults.settle_stands.store(0, Ordering::SeqCst);
    until("all completed", || async { completed(&setup).await == JOBS as u64 }).await;
    running.stop().await;
}

/// L6: a third of the lease time, unless set. Counted over real time, with room for a busy machine.
#[tokio::test]
async fn l6_heartbeats_come_at_a_third_of_the_lease_time_or_as_set() {
    for (interval, least, most) in [(None, 2, 5), (Some(Duration::from_millis(50)), 8, 24)] {
        let (setup, faults) = memory().await.faulty();
        let handler = async |_: Number, _: Context| {
            tokio::time::sleep(Duration::from_millis(1200)).await;
            Ok(())
        };
        let mut worker = setup.worker(1).lease_time(Duration::from_millis(900)).handle(handler);
        if let Some(interval) = interval {
            worker = worker.heartbeat_interval(interval);
        }
        let running = worker.start().await.expect("start");
        let id = setup.number(1).await;
        setup.reaches(id, State::Completed).await;
        let beats = faults.extend_calls.load(Ordering::SeqCst);
        assert!((least..=most).contains(&beats), "{beats} heartbeats with {interval:?}");
        running.stop().await;
    }
}
