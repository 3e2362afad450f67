//! The test kit: drain, a clock that stands still, crashes at named points.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass::job::Outcome;
use windlass::testing::{CrashPoint, Drained, expect_enqueued, expect_none_enqueued};
use windlass::{Client, Context, Failure, State, Worker};

use crate::support::{Number, Setup};

async fn a_drain_runs_all_that_can_run_and_what_follows(setup: Setup) {
    let handler = async |job: Number, cx: Context| {
        if job.0 > 0 {
            cx.client().enqueue(Number(job.0 - 1)).await?;
        }
        Ok(())
    };
    let worker = setup.worker(1).handle(handler);
    setup.number(4).await;
    setup.client.enqueue(Number(0)).delay(Duration::from_secs(60)).await.expect("enqueue");
    let drained = worker.drain().await.expect("drain");
    let mut expected = Drained::default();
    expected.completed = 5;
    assert_eq!(drained, expected);
    setup.clock.advance(Duration::from_secs(60));
    assert_eq!(worker.drain().await.expect("drain").completed, 1);
}

async fn a_drain_counts_each_end(setup: Setup) {
    let handler = async |job: Number, _: Context| match job.0 {
        0 => Ok(()),
        1 => Err(Failure::temporary("again")),
        2 => Err(Failure::permanent("no", "no")),
        3 => Err(Failure::dead_letter("no", "no")),
        _ => Err(Failure::snooze(Duration::from_secs(9))),
    };
    let worker = setup.worker(1).handle(handler);
    for number in 0..5 {
        setup.number(number).await;
    }
    let drained = worker.drain().await.expect("drain");
    let mut expected = Drained::default();
    (expected.completed, expected.retried, expected.failed) = (1, 1, 1);
    (expected.dead_lettered, expected.snoozed) = (1, 1);
    assert_eq!((drained, drained.attempts()), (expected, 5));
}

async fn a_crash_loses_no_job_wherever_it_falls(setup: Setup) {
    for (point, runs_before, ends) in [
        (CrashPoint::Claimed, 0, vec![Some(Outcome::Lost), Some(Outcome::Completed)]),
        (CrashPoint::Handled, 1, vec![Some(Outcome::Lost), Some(Outcome::Completed)]),
        (CrashPoint::Settled, 1, vec![Some(Outcome::Completed)]),
    ] {
        let runs = Arc::new(AtomicUsize::new(0));
        let worker = Worker::new(&setup.client).with_state(runs.clone()).queue("default", 1).handle(
            async |_: Number, cx: Context<Arc<AtomicUsize>>| {
                cx.state.fetch_add(1, Ordering::SeqCst);
                Ok(())
            },
        );
        let id = setup.number(1).await;
        worker.crash_at(point);
        assert!(worker.drain().await.expect("drain").crashed, "{point:?}");
        assert_eq!(runs.load(Ordering::SeqCst), runs_before, "{point:?}");
        assert!(!worker.drain().await.expect("drain").crashed, "a crash happens once");
        setup.clock.advance(Duration::from_secs(5));
        worker.drain().await.expect("drain");
        assert_eq!(setup.client.job(id).await.expect("job").state, State::Completed, "{point:?}");
        let attempts = setup.client.attempts(id).await.expect("attempts");
        assert_eq!(attempts.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(), ends, "{point:?}");
    }
}

on_every_store!(
    a_drain_runs_all_that_can_run_and_what_follows,
    a_drain_counts_each_end,
    a_crash_loses_no_job_wherever_it_falls,
);

#[tokio::test]
async fn what_was_enqueued_can_be_asserted() {
    let (client, _clock) = Client::for_tests();
    expect_none_enqueued::<Number>(&client).await;
    client.enqueue_all([Number(1), Number(2)]).await.expect("enqueue");
    assert_eq!(expect_enqueued::<Number>(&client).await, [Number(1), Number(2)]);
}

#[tokio::test]
#[should_panic(expected = "should have been enqueued")]
async fn what_was_not_enqueued_fails_the_test() {
    let (client, _clock) = Client::for_tests();
    expect_enqueued::<Number>(&client).await;
}
