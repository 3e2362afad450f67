//! Heartbeats, lost leases and cancels (rules L5 to L10, S14). These run in real time: leases are what is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass::clock::SystemClock;
use windlass::job::Outcome;
use windlass::store::{Act, MemoryStore};
use windlass::{Context, Failure, ManualClock, RetryPolicy, State, Worker};

use crate::support::{Number, SOON, Setup, memory, until};

/// A store on the machine's clock.
fn real_time() -> Setup {
    Setup::on(Arc::new(MemoryStore::with_clock(SystemClock::default())), ManualClock::default())
}

#[tokio::test]
async fn l6_a_handler_that_blocks_the_runtime_keeps_its_lease() {
    let (setup, faults) = real_time().faulty();
    let handler = async |_: Number, _: Context| {
        std::thread::sleep(Duration::from_millis(1200));
        Ok(())
    };
    let worker = setup.worker(1).lease_time(Duration::from_millis(300));
    let running = worker.handle(handler).start().await.expect("start");
    let id = setup.number(1).await;
    let job = setup.reaches(id, State::Completed).await;
    assert_eq!((job.attempt, job.failures), (1, 0));
    assert!(faults.extend_calls.load(Ordering::SeqCst) >= 6, "heartbeats went on");
    running.stop().await;
}

#[tokio::test]
async fn l9_a_worker_that_cannot_confirm_its_lease_stops_the_handler() {
    let (setup, faults) = real_time().faulty();
    let starts = Arc::new(AtomicUsize::new(0));
    let handler = async |_: Number, cx: Context<Arc<AtomicUsize>>| {
        if cx.state.fetch_add(1, Ordering::SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let worker = Worker::new(&setup.client)
        .with_state(starts.clone())
        .queue("default", 1)
        .lease_time(Duration::from_millis(300))
        .poll_interval(Duration::from_millis(20));
    let running = worker.handle(handler).start().await.expect("start");
    let id = setup.number(1).await;
    until("the first attempt started", || async { starts.load(Ordering::SeqCst) == 1 }).await;
    faults.extend.store(1_000_000, Ordering::SeqCst);
    // With the only slot taken, the second attempt can start only once the first was dropped.
    until("the lease was given up", || async { starts.load(Ordering::SeqCst) == 2 }).await;
    faults.extend.store(0, Ordering::SeqCst);
    let job = setup.reaches(id, State::Completed).await;
    // The worker gives the attempt back as interrupted, which is not counted (rule D6b), unless upkeep was there before it.
    let outcomes: Vec<_> = setup.client.attempts(id).await.expect("attempts").iter().map(|one| one.outcome).collect();
    let lost = outcomes[0] == Some(Outcome::Lost);
    let first = if lost { Outcome::Lost } else { Outcome::Interrupted };
    assert_eq!(outcomes, [Some(first), Some(Outcome::Completed)]);
    assert_eq!((job.attempt, job.failures), (2, u32::from(lost)));
    running.stop().await;
}

#[tokio::test]
async fn d6_an_outcome_that_comes_too_late_is_refused_and_the_job_runs_again() {
    let (setup, faults) = real_time().faulty();
    let starts = Arc::new(AtomicUsize::new(0));
    let handler = async |_: Number, cx: Context<Arc<AtomicUsize>>| {
        cx.state.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    faults.settle.store(1_000_000, Ordering::SeqCst);
    faults.extend.store(1_000_000, Ordering::SeqCst);
    let worker = Worker::new(&setup.client)
        .with_state(starts.clone())
        .queue("default", 1)
        .lease_time(Duration::from_millis(200))
        .poll_interval(Duration::from_millis(20));
    let running = worker.handle(handler).start().await.expect("start");
    let id = setup.number(1).await;
    until("it ran again", || async { starts.load(Ordering::SeqCst) == 2 }).await;
    faults.settle.store(0, Ordering::SeqCst);
    faults.extend.store(0, Ordering::SeqCst);
    setup.reaches(id, State::Completed).await;
    let stopped = running.stop().await;
    // The first outcome was kept until the store answered that its lease was gone.
    assert_eq!((stopped.dropped, stopped.settled), (0, 1));
}

#[tokio::test]
async fn a_worker_survives_a_store_that_panics() {
    let (setup, faults) = real_time().faulty();
    faults.settle_panics.store(1, Ordering::SeqCst);
    faults.extend_panics.store(1, Ordering::SeqCst);
    let handler = async |job: Number, _: Context| {
        tokio::time::sleep(Duration::from_millis(job.0)).await;
        Ok(())
    };
    let worker = setup.worker(2).lease_time(Duration::from_secs(3));
    let running = worker.handle(handler).start().await.expect("start");
    let (short, long) = (setup.number(0).await, setup.number(6500).await);
    // The outcome of the short one went down with the committer, so it runs again when its lease is over.
    assert_eq!(setup.reaches(short, State::Completed).await.attempt, 2);
    // The long one outlives two leases: the heartbeat thread was started again in time.
    assert_eq!(setup.reaches(long, State::Completed).await.attempt, 1);
    assert_eq!(faults.extend_panics.load(Ordering::SeqCst), 0, "the fault happened");
    assert_eq!(running.stop().await.abandoned, 0);
}

/// A runtime that is dropped takes the handlers with it, and nothing keeps their leases alive.
#[test]
fn a_dropped_runtime_lets_its_leases_expire() {
    let (setup, faults) = real_time().faulty();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let running = runtime.block_on(async {
        let hang = async |_: Number, _: Context| {
            std::future::pending::<()>().await;
            Ok(())
        };
        let worker = setup.worker(1).lease_time(Duration::from_millis(200));
        let running = worker.handle(hang).start().await.expect("start");
        let id = setup.number(1).await;
        setup.reaches(id, State::Running).await;
        running
    });
    drop(runtime);
    std::thread::sleep(Duration::from_millis(300));
    let beats = faults.extend_calls.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(faults.extend_calls.load(Ordering::SeqCst), beats, "no heartbeat after the runtime is gone");
    drop(running);
}

#[tokio::test]
async fn l7_the_job_of_a_dead_worker_runs_again_within_a_second_of_its_lease() {
    let setup = real_time();
    let hang = async |_: Number, _: Context| {
        std::future::pending::<()>().await;
        Ok(())
    };
    let short = |worker: Worker| worker.lease_time(Duration::from_millis(200));
    let dies = short(setup.worker(1)).handle(hang).start().await.expect("start");
    let id = setup.number(1).await;
    setup.reaches(id, State::Running).await;
    dies.stop_handle().abort();
    assert_eq!(dies.ended().await.abandoned, 1);
    let begun = std::time::Instant::now();
    let lives = short(setup.worker(1)).handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    setup.reaches(id, State::Completed).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    lives.stop().await;
}

async fn s14_a_polite_cancel_reaches_the_handler_and_ends_the_job(setup: Setup) {
    let handler = async |job: Number, cx: Context| {
        tokio::time::timeout(SOON, cx.cancelled()).await?;
        let asked = cx.cancel_asked().and_then(|asked| asked.by.clone());
        assert!(cx.token().is_cancelled());
        // Success wins over a cancel; anything else ends the job as cancelled.
        if job.0 == 0 { Ok(asked) } else { Err(Failure::temporary("stopped half-way")) }
    };
    let running = setup.worker(2).handle(handler).start().await.expect("start");
    let (wins, stops) = (setup.number(0).await, setup.number(1).await);
    setup.reaches(wins, State::Running).await;
    setup.reaches(stops, State::Running).await;
    let begun = std::time::Instant::now();
    for id in [wins, stops] {
        setup
            .client
            .act(Act::Cancel { force: false })
            .by("ada")
            .because("changed my mind")
            .on(id)
            .await
            .expect("cancel");
    }
    let job = setup.reaches(wins, State::Completed).await;
    assert_eq!(job.result.expect("a result").decode::<String>().expect("a name"), "ada");
    let job = setup.reaches(stops, State::Cancelled).await;
    assert_eq!(job.reason.expect("a reason").message.as_deref(), Some("changed my mind"));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    running.stop().await;
}

async fn s14_a_forced_cancel_drops_the_handler(setup: Setup) {
    let hang = async |_: Number, cx: Context| {
        if cx.job().spec.priority == windlass::Priority::Normal {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let running = setup.worker(1).handle(hang).start().await.expect("start");
    let id = setup.number(0).await;
    setup.reaches(id, State::Running).await;
    let next = setup.client.enqueue(Number(1)).priority(windlass::Priority::Low).await.expect("enqueue").id;
    setup.client.act(Act::Cancel { force: true }).on(id).await.expect("cancel");
    setup.reaches(id, State::Cancelled).await;
    // Its slot is free again.
    setup.reaches(next, State::Completed).await;
    running.stop().await;
}

async fn s15_the_end_of_the_lifetime_drops_the_handler(setup: Setup) {
    let hang = async |_: Number, _: Context| {
        std::future::pending::<()>().await;
        Ok(())
    };
    let running = setup.worker(1).handle(hang).start().await.expect("start");
    let id = setup.client.enqueue(Number(1)).lifetime(Duration::from_secs(60)).await.expect("enqueue").id;
    setup.reaches(id, State::Running).await;
    setup.clock.advance(Duration::from_secs(60));
    setup.reaches(id, State::DeadLetter).await;
    let stopped = tokio::time::timeout(SOON, running.stop()).await.expect("no handler is left");
    assert_eq!(stopped.interrupted, 0);
}

on_every_store!(
    s14_a_polite_cancel_reaches_the_handler_and_ends_the_job,
    s14_a_forced_cancel_drops_the_handler,
    s15_the_end_of_the_lifetime_drops_the_handler,
);

/// A handler that holds its thread: its job is closed as timed out by the heartbeat thread, its slot stays taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_handler_that_blocks_its_thread_past_its_timeout_is_given_up() {
    let setup = memory().await;
    let handler = async |job: Number, _: Context| {
        if job.0 == 0 {
            std::thread::sleep(Duration::from_secs(13));
        }
        Ok(())
    };
    let running = setup.worker(2).handle(handler).start().await.expect("start");
    let timeout = Duration::from_millis(100);
    let at_once = RetryPolicy::standard().initial(Duration::ZERO);
    let stuck = setup.client.enqueue(Number(0)).execution_timeout(timeout).retry(at_once).await.expect("enqueue").id;
    setup.reaches(stuck, State::Running).await;
    let other = setup.number(1).await;
    setup.reaches(other, State::Completed).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(setup.client.job(stuck).await.expect("job").state, State::Running, "not before nine seconds");
    let job = setup.reaches(stuck, State::Retrying).await;
    assert_eq!(job.failure.expect("a failure").category, windlass::Category::Timeout);
    let wait = job.run_at.expect("a time").since(job.updated_at);
    assert!(
        wait > Duration::from_millis(500),
        "the policy says at once, but not before ten seconds have passed: {wait:?}"
    );
    assert_eq!(running.stop().await.dropped, 0);
}
