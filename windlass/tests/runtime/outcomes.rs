//! Every way in which an attempt can end (sections 5 to 7 of the contract).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use windlass::job::{Backoff, CODE_EXECUTION_TIMEOUT, CODE_INVALID_PAYLOAD, CODE_PANIC, Jitter, Outcome};
use windlass::{Category, Context, Failure, NewJob, Payload, RetryPolicy, State};

use crate::support::{Number, SOON, Setup};

fn plain(max_attempts: u32) -> RetryPolicy {
    RetryPolicy::standard().jitter(Jitter::None).max_attempts(max_attempts)
}

async fn f_success_keeps_the_result(setup: Setup) {
    let running = setup.worker(1).handle(async |job: Number, _: Context| Ok(job.0 * 2)).start().await.expect("start");
    let id = setup.number(21).await;
    let job = setup.reaches(id, State::Completed).await;
    assert_eq!(job.result.expect("a result").decode::<u64>().expect("a number"), 42);
    assert_eq!((job.attempt, job.failures), (1, 0));
    running.stop().await;
}

async fn f_unit_is_no_result(setup: Setup) {
    let running = setup.worker(1).handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    let id = setup.number(1).await;
    assert!(setup.reaches(id, State::Completed).await.result.is_none());
    running.stop().await;
}

async fn f_any_error_is_temporary_and_retried_after_the_backoff(setup: Setup) {
    let handler = async |_: Number, cx: Context| {
        if cx.attempt() < 3 {
            "not a number".parse::<u64>()?;
        }
        Ok(())
    };
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let id = setup.client.enqueue(Number(1)).retry(plain(3)).await.expect("enqueue").id;
    let job = setup.reaches(id, State::Retrying).await;
    let failure = job.failure.expect("a failure");
    assert_eq!((failure.category, job.failures), (Category::Temporary, 1));
    assert_eq!(job.run_at.expect("a time").since(job.updated_at), Duration::from_secs(1));
    setup.clock.advance(Duration::from_secs(1));
    crate::support::until("the second attempt failed", || async {
        setup.client.job(id).await.expect("job").failures == 2
    })
    .await;
    setup.clock.advance(Duration::from_secs(2));
    let job = setup.reaches(id, State::Completed).await;
    assert_eq!((job.attempt, job.failures), (3, 2));
    running.stop().await;
}

async fn f_exhausted_attempts_dead_letter(setup: Setup) {
    let handler = async |_: Number, _: Context| Err::<(), _>(Failure::temporary("never"));
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let id = setup.client.enqueue(Number(1)).max_attempts(1).await.expect("enqueue").id;
    let job = setup.reaches(id, State::DeadLetter).await;
    assert_eq!(job.failure.expect("a failure").message, "never");
    running.stop().await;
}

async fn f_permanent_and_explicit_ends(setup: Setup) {
    let handler = async |job: Number, _: Context| match job.0 {
        0 => Err::<(), _>(Failure::permanent("no_address", "user has no address")),
        _ => Err(Failure::dead_letter("poison", "never again")),
    };
    let running = setup.worker(2).handle(handler).start().await.expect("start");
    let (failed, dead) = (setup.number(0).await, setup.number(1).await);
    let job = setup.reaches(failed, State::Failed).await;
    assert_eq!(job.failure.expect("a failure").code.as_deref(), Some("no_address"));
    let job = setup.reaches(dead, State::DeadLetter).await;
    assert_eq!(job.failure.expect("a failure").code.as_deref(), Some("poison"));
    running.stop().await;
}

async fn r3_retry_after_replaces_the_backoff_up_to_a_cap_of_its_own(setup: Setup) {
    let handler = async |job: Number, _: Context| {
        Err::<(), _>(Failure::temporary("busy").retry_after(Duration::from_secs(job.0)))
    };
    let running = setup.worker(2).handle(handler).start().await.expect("start");
    // Beyond the policy's hour (R3: a 429 that says so waits so long), up to a day.
    for (asked, given) in [(77, 77), (7200, 7200), (100_000, 24 * 3600)] {
        let id = setup.number(asked).await;
        let job = setup.reaches(id, State::Retrying).await;
        assert_eq!(job.run_at.expect("a time").since(job.updated_at), Duration::from_secs(given));
    }
    running.stop().await;
}

async fn s12_a_snooze_is_not_counted(setup: Setup) {
    let handler = async |_: Number, cx: Context| match cx.attempt() {
        1 => Err(Failure::snooze(Duration::from_secs(60))),
        _ => Ok(()),
    };
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let id = setup.client.enqueue(Number(1)).max_attempts(1).await.expect("enqueue").id;
    let job = setup.reaches(id, State::Delayed).await;
    assert_eq!((job.failures, job.failure), (0, None));
    assert_eq!(job.run_at.expect("a time").since(job.updated_at), Duration::from_secs(60));
    setup.clock.advance(Duration::from_secs(60));
    assert_eq!(setup.reaches(id, State::Completed).await.attempt, 2);
    let outcomes: Vec<_> = setup.client.attempts(id).await.expect("attempts").iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Snoozed), Some(Outcome::Completed)]);
    running.stop().await;
}

async fn f2_a_panic_ends_that_attempt_only(setup: Setup) {
    let handler = async |job: Number, _: Context| {
        assert!(job.0 != 13, "thirteen is not served here");
        Ok(())
    };
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let (bad, good) = (setup.number(13).await, setup.number(1).await);
    let failure = setup.reaches(bad, State::Retrying).await.failure.expect("a failure");
    assert_eq!((failure.category, failure.code.as_deref()), (Category::System, Some(CODE_PANIC)));
    assert!(failure.message.contains("thirteen is not served here"), "{}", failure.message);
    setup.reaches(good, State::Completed).await;
    running.stop().await;
}

async fn f_a_payload_that_does_not_decode_fails_without_being_shown(setup: Setup) {
    let running = setup.worker(1).handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    for payload in
        [Payload::json("hunter2").expect("json"), Payload::bytes("application/octet-stream", "hunter2").expect("bytes")]
    {
        let id = setup.client.enqueue(NewJob::new("number", payload)).await.expect("enqueue").id;
        let failure = setup.reaches(id, State::Failed).await.failure.expect("a failure");
        assert_eq!((failure.category, failure.code.as_deref()), (Category::Permanent, Some(CODE_INVALID_PAYLOAD)));
        assert!(!failure.message.contains("hunter2"), "{}", failure.message);
    }
    running.stop().await;
}

async fn raw_handlers_get_the_payload_as_it_is(setup: Setup) {
    let handler = async |payload: Payload, _: Context| Ok(payload.as_bytes().to_vec());
    let running = setup.worker(1).handle_raw("blob", handler).start().await.expect("start");
    let payload = Payload::bytes("x/y", vec![0, 255, 1]).expect("bytes");
    let id = setup.client.enqueue(NewJob::new("blob", payload)).await.expect("enqueue").id;
    let job = setup.reaches(id, State::Completed).await;
    assert_eq!(job.result.expect("a result").decode::<Vec<u8>>().expect("bytes"), [0, 255, 1]);
    running.stop().await;
}

async fn t1_the_execution_timeout_decides_whatever_the_handler_says_later(setup: Setup) {
    let handler = async |job: Number, cx: Context| {
        if job.0 == 0 {
            cx.limit(Duration::from_millis(20));
        }
        cx.cancelled().await;
        Ok(())
    };
    let running = setup.worker(2).handle(handler).start().await.expect("start");
    let own = setup.number(0).await;
    let timeout = Duration::from_millis(20);
    let jobs = setup.client.enqueue(Number(1)).execution_timeout(timeout).await.expect("enqueue").id;
    for id in [own, jobs] {
        let failure = setup.reaches(id, State::Retrying).await.failure.expect("a failure");
        assert_eq!((failure.category, failure.code.as_deref()), (Category::Timeout, Some(CODE_EXECUTION_TIMEOUT)));
    }
    running.stop().await;
}

async fn r3b_a_custom_backoff_runs_in_the_worker_and_may_panic(setup: Setup) {
    let handler = async |job: Number, _: Context| Err::<(), _>(Failure::temporary("no").with_code(job.0.to_string()));
    let backoff = |failed: windlass::worker::Failed<'_>| {
        assert!(failed.failure.code() == Some("1"), "a bad function");
        failed.policy.initial * failed.failures * 7
    };
    let worker = setup.worker(1).handle(handler).backoff::<Number>(backoff);
    let running = worker.start().await.expect("start");
    let policy = plain(5).strategy(Backoff::Constant);
    for (number, seconds) in [(1, 7), (2, 1)] {
        let id = setup.client.enqueue(Number(number)).retry(policy.clone()).await.expect("enqueue").id;
        let job = setup.reaches(id, State::Retrying).await;
        assert_eq!(job.run_at.expect("a time").since(job.updated_at), Duration::from_secs(seconds));
    }
    running.stop().await;
}

async fn r3b_a_custom_backoff_goes_by_type_name_up_to_the_policys_maximum(setup: Setup) {
    let fail = async |_: Payload, _: Context| Err::<Option<Payload>, _>(Failure::temporary("no"));
    let minutes = |failed: windlass::worker::Failed<'_>| Duration::from_secs(60) * failed.failures;
    let worker = setup.worker(1).handle_types(["a"], fail).handle_any(fail);
    let worker =
        worker.backoff_of("a", minutes).backoff_of("b", minutes).backoff_of("c", |failed| failed.policy.max * 2);
    let policy = plain(5).max(Duration::from_secs(600));
    let mut ids = Vec::new();
    for (name, seconds) in [("a", 60), ("b", 60), ("c", 600), ("d", 1)] {
        let job = NewJob::new(name, Payload::default()).retry(policy.clone());
        ids.push((setup.client.enqueue(job).await.expect("enqueue").id, seconds));
    }
    worker.drain().await.expect("drain");
    for (id, seconds) in ids {
        let job = setup.client.job(id).await.expect("the job");
        assert_eq!(job.run_at.expect("a time").since(job.updated_at), Duration::from_secs(seconds));
    }
}

async fn a_result_over_the_limit_fails_the_job(setup: Setup) {
    let handler = async |_: Number, _: Context| Ok("x".repeat(2 << 20));
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let id = setup.number(1).await;
    let failure = setup.reaches(id, State::Failed).await.failure.expect("a failure");
    assert_eq!(failure.code.as_deref(), Some("result_too_large"));
    running.stop().await;
}

on_every_store!(
    f_success_keeps_the_result,
    f_unit_is_no_result,
    f_any_error_is_temporary_and_retried_after_the_backoff,
    f_exhausted_attempts_dead_letter,
    f_permanent_and_explicit_ends,
    r3_retry_after_replaces_the_backoff_up_to_a_cap_of_its_own,
    s12_a_snooze_is_not_counted,
    f2_a_panic_ends_that_attempt_only,
    f_a_payload_that_does_not_decode_fails_without_being_shown,
    raw_handlers_get_the_payload_as_it_is,
    t1_the_execution_timeout_decides_whatever_the_handler_says_later,
    r3b_a_custom_backoff_runs_in_the_worker_and_may_panic,
    r3b_a_custom_backoff_goes_by_type_name_up_to_the_policys_maximum,
    a_result_over_the_limit_fails_the_job,
);

/// In virtual time: the handler never looks at its context.
#[tokio::test(start_paused = true)]
async fn t1_a_deaf_handler_is_dropped_five_seconds_after_its_timeout() {
    struct Dropped(Arc<AtomicU32>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let setup = crate::support::memory().await;
    let drops = Arc::new(AtomicU32::new(0));
    let counted = drops.clone();
    let handler = move |_: Number, _: Context| {
        let dropped = Dropped(counted.clone());
        async move {
            let _dropped = dropped;
            std::future::pending::<Result<(), Failure>>().await
        }
    };
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let begun = tokio::time::Instant::now();
    let timeout = Duration::from_secs(60);
    let id = setup.client.enqueue(Number(1)).execution_timeout(timeout).max_attempts(1).await.expect("enqueue").id;
    let job = setup.client.wait(id).await.expect("the end");
    assert_eq!(job.failure.expect("a failure").category, Category::Timeout);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(65) && took < Duration::from_secs(65) + SOON, "{took:?}");
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    running.stop().await;
}

/// A function that blocks has a thread of its own, so the only thread of the runtime goes on; its panics are told like others.
#[tokio::test]
async fn f2_a_blocking_handler_keeps_nobody_waiting_and_may_panic() {
    let setup = crate::support::memory().await;
    let handler = |job: Number, _: Context| -> Result<u64, Failure> {
        assert_ne!(job.0, 0, "broken");
        std::thread::sleep(Duration::from_millis(50));
        Ok(job.0 * 2)
    };
    let running = setup.worker(2).handle_blocking(handler).start().await.expect("start");
    let good = setup.number(4).await;
    assert_eq!(setup.client.wait_result::<u64>(good).await.expect("a job").expect("completed"), 8);
    let bad = setup.client.enqueue(Number(0)).max_attempts(1).await.expect("enqueue").id;
    let ended = setup.client.wait_result::<u64>(bad).await.expect("a job").expect_err("it panicked");
    assert_eq!(ended.failure.expect("a failure").code.as_deref(), Some("panic"));
    running.stop().await;
}
