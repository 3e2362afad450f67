//! How a worker comes to its end, and what it leaves behind (rule N3).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use windlass::job::Outcome;
use windlass::{Context, Failure, State, Worker};

use crate::support::{Number, SOON, Setup, memory, until};

/// How many handlers have started. That a job is RUNNING does not say so: its claim may not have come back yet.
type Starts = Arc<AtomicUsize>;

async fn started(starts: &Starts, count: usize) {
    until("they started", || async { starts.load(Ordering::SeqCst) == count }).await;
}

/// Starts, and never ends.
async fn hang(_: Number, cx: Context<Starts>) -> Result<(), Failure> {
    assert!(!cx.stopping().is_cancelled());
    cx.state.fetch_add(1, Ordering::SeqCst);
    std::future::pending().await
}

async fn n3_running_handlers_finish_and_nothing_new_is_claimed(setup: Setup) {
    let (go, starts) = (Arc::new(Notify::new()), Starts::default());
    let handler = async |_: Number, cx: Context<(Arc<Notify>, Starts)>| {
        cx.state.1.fetch_add(1, Ordering::SeqCst);
        cx.state.0.notified().await;
        Ok(())
    };
    let state = (go.clone(), starts.clone());
    let worker = Worker::new(&setup.client).with_state(state).queue("default", 1).handle(handler);
    let running = worker.start().await.expect("start");
    let first = setup.number(1).await;
    let second = setup.number(2).await;
    started(&starts, 1).await;
    let stop = running.stop_handle();
    let ended = tokio::spawn(running.ended());
    stop.request();
    tokio::time::sleep(Duration::from_millis(20)).await;
    go.notify_one();
    let stopped = tokio::time::timeout(SOON, ended).await.expect("in time").expect("ended");
    assert_eq!((stopped.settled, stopped.interrupted, stopped.abandoned), (1, 0, 0));
    assert_eq!(setup.client.job(first).await.expect("job").state, State::Completed);
    let waiting = setup.client.job(second).await.expect("job");
    assert_eq!((waiting.state, waiting.attempt), (State::Scheduled, 0));
}

async fn n3_after_the_grace_period_jobs_are_given_back_as_interrupted(setup: Setup) {
    let starts = Starts::default();
    let worker = Worker::new(&setup.client).with_state(starts.clone()).queue("default", 3);
    let running = worker.grace(Duration::from_secs(1)).handle(hang).start().await.expect("start");
    let mut ids = Vec::new();
    for number in 0..3 {
        ids.push(setup.number(number).await);
    }
    started(&starts, 3).await;
    let stopped = tokio::time::timeout(SOON, running.stop()).await.expect("in time");
    assert_eq!((stopped.interrupted, stopped.abandoned), (3, 0));
    for id in ids {
        let job = setup.client.job(id).await.expect("job");
        assert_eq!((job.state, job.failures), (State::Scheduled, 0), "given back at once, not counted");
        let attempts = setup.client.attempts(id).await.expect("attempts");
        assert_eq!(attempts[0].outcome, Some(Outcome::Interrupted));
    }
}

/// S10: a handler that is told to stop, and stops with an error, was interrupted; it has not failed.
async fn n3_a_handler_that_obeys_the_interrupt_is_not_counted(setup: Setup) {
    let starts = Starts::default();
    let handler = async |_: Number, cx: Context<Starts>| {
        cx.state.fetch_add(1, Ordering::SeqCst);
        cx.cancelled().await;
        Err::<(), _>(Failure::temporary("stopped half-way"))
    };
    let worker = Worker::new(&setup.client).with_state(starts.clone()).queue("default", 1);
    let running = worker.grace(Duration::from_secs(1)).handle(handler).start().await.expect("start");
    let id = setup.number(1).await;
    started(&starts, 1).await;
    let stopped = tokio::time::timeout(SOON, running.stop()).await.expect("in time");
    assert_eq!((stopped.interrupted, stopped.abandoned), (1, 0));
    let job = setup.client.job(id).await.expect("job");
    assert_eq!((job.state, job.failures), (State::Scheduled, 0), "given back at once, not counted");
}

async fn n3_a_second_signal_aborts_and_the_leases_expire(setup: Setup) {
    let starts = Starts::default();
    let worker = Worker::new(&setup.client).with_state(starts.clone()).queue("default", 1);
    let worker = worker.grace(Duration::from_secs(3600)).handle(hang);
    let id = setup.number(1).await;
    let signals = Arc::new(Notify::new());
    let ended = tokio::spawn({
        let signals = signals.clone();
        async move { worker.run_until_signals(|| signals.notified()).await }
    });
    started(&starts, 1).await;
    signals.notify_one();
    tokio::time::sleep(Duration::from_millis(20)).await;
    signals.notify_one();
    let stopped = tokio::time::timeout(SOON, ended).await.expect("in time").expect("task").expect("ran");
    assert_eq!(stopped.abandoned, 1);
    let job = setup.client.job(id).await.expect("job");
    assert_eq!(job.state, State::Running, "nothing was settled");
}

async fn dropping_a_running_worker_aborts_it(setup: Setup) {
    let (starts, dropped) = (Starts::default(), Arc::new(AtomicUsize::new(0)));
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let handler = async |_: Number, cx: Context<(Starts, Arc<AtomicUsize>)>| {
        let _counts = Counts(cx.state.1.clone());
        cx.state.0.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
        Ok(())
    };
    let state = (starts.clone(), dropped.clone());
    let worker = Worker::new(&setup.client).with_state(state).queue("default", 1).handle(handler);
    let running = worker.start().await.expect("start");
    let id = setup.number(1).await;
    started(&starts, 1).await;
    drop(running);
    until("the handler is dropped", || async { dropped.load(Ordering::SeqCst) == 1 }).await;
    assert_eq!(setup.client.job(id).await.expect("job").state, State::Running);
}

async fn n3_outcomes_are_flushed_through_store_errors(setup: Setup) {
    let (setup, faults) = setup.faulty();
    let handler = async |_: Number, _: Context| Ok(());
    setup.client.enqueue_all((0..50).map(Number)).await.expect("enqueue");
    faults.settle.store(4, Ordering::SeqCst);
    let done = Arc::new(AtomicUsize::new(0));
    let worker = setup.worker(50).handle(handler).on_claimed({
        let done = done.clone();
        move |_| {
            done.fetch_add(1, Ordering::SeqCst);
        }
    });
    let running = worker.start().await.expect("start");
    until("all were claimed", || async { done.load(Ordering::SeqCst) == 50 }).await;
    let stopped = tokio::time::timeout(SOON, running.stop()).await.expect("in time");
    assert_eq!((stopped.settled, stopped.abandoned, stopped.dropped), (50, 0, 0));
    let states = setup.client.totals().await.expect("totals").states;
    let left = states[usize::from(State::Running.number())];
    assert_eq!(left, 0, "released or completed, never left running: {states:?}");
}

async fn n3_an_idle_worker_stops_at_once(setup: Setup) {
    let worker = setup.worker(1).handle(async |_: Number, _: Context| Ok(()));
    let stopped = tokio::time::timeout(SOON, worker.run_until(std::future::ready(()))).await.expect("in time");
    assert_eq!(stopped.expect("ran").settled, 0);
}

async fn n3_a_worker_that_stopped_is_not_counted_on(setup: Setup) {
    let worker = setup.worker(1).handle(async |_: Number, _: Context| Ok(()));
    let running = worker.start().await.expect("start");
    until("it is known", || async { setup.client.workers().await.expect("workers").len() == 1 }).await;
    tokio::time::timeout(SOON, running.stop()).await.expect("in time");
    assert_eq!(setup.client.workers().await.expect("workers"), []);
    let id = setup.number(1).await;
    let why = setup.client.explain(id).await.expect("explained").reasons;
    assert!(matches!(why.as_slice(), [windlass::job::Why::NoWorkerForQueue { .. }, ..]), "{why:?}");
}

on_every_store!(
    n3_a_worker_that_stopped_is_not_counted_on,
    n3_running_handlers_finish_and_nothing_new_is_claimed,
    n3_after_the_grace_period_jobs_are_given_back_as_interrupted,
    n3_a_handler_that_obeys_the_interrupt_is_not_counted,
    n3_a_second_signal_aborts_and_the_leases_expire,
    dropping_a_running_worker_aborts_it,
    n3_outcomes_are_flushed_through_store_errors,
    n3_an_idle_worker_stops_at_once,
);

/// A handler that never gives its thread back cannot be dropped, but its job is given back and the worker ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n3_the_job_of_a_blocked_handler_is_given_back() {
    let setup = memory().await;
    let started = Arc::new(AtomicUsize::new(0));
    let handler = async |_: Number, cx: Context<Arc<AtomicUsize>>| {
        cx.state.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(8));
        Ok(())
    };
    let worker = Worker::new(&setup.client).with_state(started.clone()).queue("default", 1);
    let running = worker.grace(Duration::from_secs(2)).handle(handler).start().await.expect("start");
    let id = setup.number(1).await;
    until("it started", || async { started.load(Ordering::SeqCst) == 1 }).await;
    let stopped = tokio::time::timeout(SOON, running.stop()).await.expect("in time");
    assert_eq!((stopped.interrupted, stopped.abandoned), (1, 0));
    assert_eq!(setup.client.job(id).await.expect("job").state, State::Scheduled);
}
