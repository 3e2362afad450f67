//! Slots, queues, batches, and stores that fail (rules N1, N1b, N2, D6).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::job::Why;
use windlass::{Client, Context, Failure, NewJob, Payload, State, Worker};

use crate::support::{Number, Setup, until};

type Names = Arc<Mutex<Vec<String>>>;
/// The numbers of the jobs that started, in order.
type Started = Arc<Mutex<Vec<u64>>>;

/// How many run at once, and how many ever did.
#[derive(Default)]
struct Meter {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Meter {
    async fn measure(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn completed(client: &Client) -> u64 {
    client.totals().await.expect("totals").states[usize::from(State::Completed.number())]
}

async fn n1_no_more_handlers_than_slots_and_no_claim_without_one(setup: Setup) {
    let (setup, faults) = setup.faulty();
    let (small, large) = (Arc::new(Meter::default()), Arc::new(Meter::default()));
    let worker = Worker::new(&setup.client)
        .with_state((small.clone(), large.clone()))
        .queue("small", 2)
        .queue("large", 5)
        .handle_raw("small", async |_, cx: Context<(Arc<Meter>, Arc<Meter>)>| {
            cx.state.0.measure().await;
            Ok(())
        })
        .handle_raw("large", async |_, cx: Context<(Arc<Meter>, Arc<Meter>)>| {
            cx.state.1.measure().await;
            Ok(())
        });
    let jobs = (0..200).map(|n| {
        let name = if n % 2 == 0 { "small" } else { "large" };
        NewJob::new(name, Payload::default()).queue(name)
    });
    setup.client.enqueue_all(jobs).await.expect("enqueue");
    let running = worker.start().await.expect("start");
    until("all completed", || async { completed(&setup.client).await == 200 }).await;
    running.stop().await;
    assert_eq!((small.most.load(Ordering::SeqCst), large.most.load(Ordering::SeqCst)), (2, 5));
    let settles = faults.settle_calls.load(Ordering::SeqCst);
    assert!(settles < 200, "settled in batches: {settles} calls for 200 jobs");
}

async fn n1_the_total_is_bounded_and_shared_by_weight(setup: Setup) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let meter = Arc::new(Meter::default());
    let handler = async |_, cx: Context<(Names, Arc<Meter>)>| {
        cx.state.0.lock().expect("lock").push(cx.job().spec.queue.to_string());
        cx.state.1.measure().await;
        Ok(())
    };
    let jobs = ["a", "b"]
        .into_iter()
        .flat_map(|queue| (0..60).map(move |_| NewJob::new("any", Payload::default()).queue(queue)));
    setup.client.enqueue_all(jobs).await.expect("enqueue");
    let worker = Worker::new(&setup.client)
        .with_state((order.clone(), meter.clone()))
        .queue("a", 4)
        .queue("b", 4)
        .weight("b", 3)
        .concurrency(4)
        .handle_raw("any", handler);
    let running = worker.start().await.expect("start");
    until("all completed", || async { completed(&setup.client).await == 120 }).await;
    running.stop().await;
    assert_eq!(meter.most.load(Ordering::SeqCst), 4);
    let first: Vec<String> = order.lock().expect("lock")[..40].to_vec();
    let of_b = first.iter().filter(|queue| *queue == "b").count();
    assert!((26..=34).contains(&of_b), "three in four of the first forty should be of b, are {of_b}");
}

async fn n1_strict_serves_the_first_queue_first(setup: Setup) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let handler = async |_, cx: Context<Names>| {
        cx.state.lock().expect("lock").push(cx.job().spec.queue.to_string());
        Ok(())
    };
    let jobs = ["low", "high"]
        .into_iter()
        .flat_map(|queue| (0..20).map(move |_| NewJob::new("any", Payload::default()).queue(queue)));
    setup.client.enqueue_all(jobs).await.expect("enqueue");
    let worker = Worker::new(&setup.client)
        .with_state(order.clone())
        .queue("high", 1)
        .queue("low", 1)
        .concurrency(1)
        .strict()
        .handle_raw("any", handler);
    let running = worker.start().await.expect("start");
    until("all completed", || async { completed(&setup.client).await == 40 }).await;
    running.stop().await;
    assert!(order.lock().expect("lock")[..20].iter().all(|queue| queue == "high"));
}

/// S1.44: a CRITICAL job that finds a worker full preempts nothing, and is the next to run.
async fn n1_a_critical_job_at_a_full_worker_preempts_nothing(setup: Setup) {
    let (go, order) = (Arc::new(tokio::sync::Notify::new()), Arc::new(Mutex::new(Vec::new())));
    let handler = async |job: Number, cx: Context<(Arc<tokio::sync::Notify>, Started)>| {
        cx.state.1.lock().expect("lock").push(job.0);
        if job.0 == 1 {
            cx.state.0.notified().await;
        }
        assert!(!cx.is_cancelled());
        Ok(())
    };
    let state = (go.clone(), order.clone());
    let worker = Worker::new(&setup.client).with_state(state).queue("default", 1).handle(handler);
    let running = worker.start().await.expect("start");
    let bulk = setup.client.enqueue(Number(1)).priority(windlass::Priority::Bulk).await.expect("enqueue").id;
    until("it started", || async { order.lock().expect("lock").len() == 1 }).await;
    setup.number(2).await;
    let critical = setup.client.enqueue(Number(3)).priority(windlass::Priority::Critical).await.expect("enqueue").id;
    assert_eq!(setup.client.job(bulk).await.expect("the job").state, State::Running, "it goes on");
    assert_eq!(setup.client.job(critical).await.expect("the job").attempt, 0, "it waits");
    go.notify_one();
    until("all completed", || async { completed(&setup.client).await == 3 }).await;
    assert_eq!(*order.lock().expect("lock"), [1, 3, 2]);
    assert_eq!(setup.client.job(bulk).await.expect("the job").attempt, 1, "it ran once, undisturbed");
    running.stop().await;
}

async fn n1b_types_without_a_handler_are_left_alone(setup: Setup) {
    let running = setup.worker(1).handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    let strange = setup.client.enqueue(NewJob::new("strange", Payload::default())).await.expect("enqueue").id;
    let known = setup.number(1).await;
    setup.reaches(known, State::Completed).await;
    let job = setup.client.job(strange).await.expect("the job");
    assert_eq!((job.state, job.attempt), (State::Scheduled, 0));
    until("the worker is known", || async { !setup.client.workers().await.expect("workers").is_empty() }).await;
    let explained = setup.client.explain(strange).await.expect("explanation");
    let named = |why: &Why| matches!(why, Why::NoWorkerForType { .. });
    assert!(explained.reasons.iter().any(named), "{explained:?}");
    running.stop().await;
}

async fn a_worker_that_makes_no_sense_does_not_start(setup: Setup) {
    let handler = async |_: Number, _: Context| Ok(());
    let one = || Worker::new(&setup.client).queue("default", 1);
    let bad: BTreeMap<&str, Worker> = [
        ("twice", one().handle(handler).handle(handler)),
        ("no handler", one()),
        ("no queue", Worker::new(&setup.client).handle(handler)),
        ("no slots", Worker::new(&setup.client).queue("default", 0).handle(handler)),
        ("queue twice", one().queue("default", 2).handle(handler)),
        ("bad queue", Worker::new(&setup.client).queue("a b", 1).handle(handler)),
        ("late state", one().handle(handler).with_state(())),
        ("weight of nothing", one().weight("other", 2).handle(handler)),
        // A backoff may stand before its handler; without one it is a slip.
        ("backoff of nothing", one().backoff_of("other", |_| Duration::ZERO).handle(handler)),
        (
            "backoff twice",
            one().handle(handler).backoff::<Number>(|_| Duration::ZERO).backoff_of("number", |_| Duration::ZERO),
        ),
    ]
    .into();
    for (what, worker) in bad {
        assert_eq!(worker.start().await.expect_err(what).name(), "InvalidArgument", "{what}");
    }
}

async fn d6_claims_and_settlements_survive_store_errors(setup: Setup) {
    let (setup, faults) = setup.faulty();
    faults.claim.store(3, Ordering::SeqCst);
    faults.settle.store(3, Ordering::SeqCst);
    faults.settle_answer.store(2, Ordering::SeqCst);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let handler = move |_: Number, _: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Failure>(()) }
    };
    let running = setup.worker(4).handle(handler).start().await.expect("start");
    for number in 0..20 {
        setup.number(number).await;
    }
    until("all completed", || async { completed(&setup.client).await == 20 }).await;
    let stopped = running.stop().await;
    assert_eq!((runs.load(Ordering::SeqCst), stopped.settled, stopped.dropped), (20, 20, 0));
    assert_eq!(faults.settle.load(Ordering::SeqCst), 0, "the faults happened");
    assert_eq!(faults.settle_answer.load(Ordering::SeqCst), 0, "the faults happened");
}

async fn n1_one_bad_entry_does_not_fail_the_others(setup: Setup) {
    let (setup, faults) = setup.faulty();
    faults.settle_together.store(1000, Ordering::SeqCst);
    setup.client.enqueue_all((0..50).map(Number)).await.expect("enqueue");
    let running = setup.worker(50).handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    until("all completed", || async { completed(&setup.client).await == 50 }).await;
    assert!(faults.settle_together.load(Ordering::SeqCst) < 1000, "the fault happened");
    running.stop().await;
}

async fn w2_a_refused_completion_fails_the_job(setup: Setup) {
    let handler = async |_: Number, cx: Context| {
        let unknown = windlass::store::new_job_id();
        cx.spawn(NewJob::new("child", Payload::default()).after([unknown]))?;
        Ok(())
    };
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let id = setup.number(1).await;
    let failure = setup.reaches(id, State::Failed).await.failure.expect("a failure");
    assert_eq!(failure.code.as_deref(), Some("completion_refused"));
    assert_eq!(running.stop().await.abandoned, 0);
}

async fn n1b_a_handler_of_any_type_takes_what_no_other_does(setup: Setup) {
    let worker = setup
        .worker(2)
        .handle_types(["own", "other"], async |_, _: Context| Ok(Some(Payload::json("typed")?)))
        .handle_any(async |payload: Payload, _: Context| Ok(Some(payload)));
    let payload = Payload::bytes("text/plain", "as it is").expect("bytes");
    let jobs = ["own", "other", "strange"].map(|name| NewJob::new(name, payload.clone()));
    let jobs = setup.client.enqueue_all(jobs).await.expect("enqueue");
    let running = worker.start().await.expect("start");
    for (job, expected) in
        jobs.iter().zip([Payload::json("typed").expect("json"), Payload::json("typed").expect("json"), payload])
    {
        assert_eq!(setup.reaches(job.id, State::Completed).await.result, Some(expected));
    }
    until("it said that it takes any type", || async {
        setup.client.store().workers().await.expect("workers").iter().any(|worker| worker.types.is_none())
    })
    .await;
    running.stop().await;
}

async fn l7_upkeep_needs_no_worker(setup: Setup) {
    let id = setup.number(1).await;
    let store = setup.client.store();
    let worker = windlass::job::WorkerId::new("gone").expect("a name");
    let request = windlass::store::ClaimRequest::new(worker, windlass::QueueName::default(), 1);
    assert_eq!(store.claim(&request).await.expect("claim").len(), 1);
    setup.clock.advance(Duration::from_secs(3600));
    // A worker that leaves it to others leaves it.
    let running =
        setup.worker(1).without_upkeep().handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    until("it lives", || async { !setup.client.store().workers().await.expect("workers").is_empty() }).await;
    running.stop().await;
    assert_eq!(setup.client.job(id).await.expect("a job").state, State::Running);
    let back = setup.reaches(id, State::Scheduled);
    tokio::select! {
        _ = windlass::worker::upkeep_until(&**store, Default::default(), std::future::pending::<()>()) => {}
        job = back => assert_eq!(job.failures, 1),
    }
}

/// It hears of it at once, by a hint; a poll every 5 ms would find the second job.
async fn o3_a_worker_that_drains_finishes_what_it_runs_and_takes_no_more(setup: Setup) {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let held = Arc::clone(&gate);
    let handler = move |_: Number, _: Context| {
        let held = Arc::clone(&held);
        async move {
            held.acquire().await?.forget();
            Ok(())
        }
    };
    let running = setup.worker(2).handle(handler).start().await.expect("start");
    let id = running.id().to_string();
    let first = setup.number(1).await;
    setup.reaches(first, State::Running).await;
    // Only a worker that has announced itself can be told anything.
    until("it is known", || async { setup.client.drain_worker(&id).await.is_ok() }).await;
    until("it drains", || async { running.is_draining() }).await;
    let second = setup.number(2).await;
    gate.add_permits(2);
    setup.reaches(first, State::Completed).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(setup.client.job(second).await.expect("the job").state, State::Scheduled);
    setup.client.resume_worker(&id).await.expect("it lives");
    setup.reaches(second, State::Completed).await;
    assert!(!running.is_draining());
    running.stop().await;
}

on_every_store!(
    l7_upkeep_needs_no_worker,
    n1b_a_handler_of_any_type_takes_what_no_other_does,
    n1_no_more_handlers_than_slots_and_no_claim_without_one,
    n1_the_total_is_bounded_and_shared_by_weight,
    n1_strict_serves_the_first_queue_first,
    n1_a_critical_job_at_a_full_worker_preempts_nothing,
    o3_a_worker_that_drains_finishes_what_it_runs_and_takes_no_more,
    n1b_types_without_a_handler_are_left_alone,
    a_worker_that_makes_no_sense_does_not_start,
    d6_claims_and_settlements_survive_store_errors,
    n1_one_bad_entry_does_not_fail_the_others,
    w2_a_refused_completion_fails_the_job,
);

#[tokio::test(start_paused = true)]
async fn t3_an_enqueue_that_is_not_answered_fails_and_its_outcome_is_unknown() {
    let (setup, faults) = crate::support::memory().await.faulty();
    faults.insert_hangs.store(1, Ordering::SeqCst);
    let begun = tokio::time::Instant::now();
    let error = setup.client.enqueue(Number(1)).await.expect_err("a timeout");
    assert_eq!((error.name(), error.outcome_is_known()), ("SubmissionTimeout", false));
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_loop_that_stands_still_is_replaced() {
    let (setup, faults) = crate::support::memory().await.faulty();
    faults.claim_hangs.store(1, Ordering::SeqCst);
    // A claim is given up after its lease time, so only one with a long lease can hold up the loop.
    let worker = setup.worker(1).lease_time(Duration::from_secs(120));
    let running = worker.handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    let begun = tokio::time::Instant::now();
    let id = setup.number(1).await;
    assert_eq!(setup.client.wait(id).await.expect("the end").state, State::Completed);
    assert!(begun.elapsed() > Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(faults.claim_calls.load(Ordering::SeqCst) >= 2);
    running.stop().await;
}

/// The wake-up is what starts it, not the poll.
#[tokio::test]
async fn n2_a_hint_wakes_an_idle_worker() {
    let setup = crate::support::memory().await;
    let worker = Worker::new(&setup.client).queue("default", 1).poll_interval(Duration::from_secs(3600));
    let running = worker.handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let id = setup.number(1).await;
    setup.reaches(id, State::Completed).await;
    running.stop().await;
}

/// In virtual time: idle workers that find nothing after each hint ask less often, and still hear the next one soon.
#[tokio::test(start_paused = true)]
async fn n2_hints_in_vain_make_a_worker_slower_but_never_deaf() {
    let (setup, faults) = crate::support::memory().await.faulty();
    let worker = Worker::new(&setup.client).queue("default", 1).poll_interval(Duration::from_secs(3600));
    let running = worker.handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    for _ in 0..200 {
        // Of a type that it does not run.
        setup.client.enqueue(NewJob::new("strange", Payload::default())).await.expect("enqueue");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let claims = faults.claim_calls.load(Ordering::SeqCst);
    assert!((20..70).contains(&claims), "{claims} claims for 200 hints in vain");
    for _ in 0..5 {
        let begun = tokio::time::Instant::now();
        let id = setup.number(1).await;
        assert_eq!(setup.client.wait(id).await.expect("the end").state, State::Completed);
        assert!(begun.elapsed() <= Duration::from_millis(12), "{:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.stop().await;
}
