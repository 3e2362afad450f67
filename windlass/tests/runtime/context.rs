//! What handlers see and do: context, checkpoints, children, results, middleware, workflows (R4, W4 to W6, N4).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use windlass::job::{DependencyKind, DependsOn, Outcome};
use windlass::worker::{Attempt, HandlerResult, Middleware, Next};
use windlass::workflow::{Join, WorkflowState, chord};
use windlass::{Context, Failure, Job, NewJob, Payload, State, Worker, Workflow};

use crate::support::{Number, Setup};

/// S1.88: the second attempt knows the id of the first, as the store keeps it.
async fn an_attempt_knows_the_one_before_it(setup: Setup) {
    let handler = async |_: Number, cx: Context| match cx.previous_attempt_id() {
        None => Err(Failure::temporary("again").retry_after(std::time::Duration::ZERO)),
        Some(id) => Ok(id.to_string()),
    };
    let worker = setup.worker(1).handle(handler);
    let id = setup.number(1).await;
    worker.drain().await.expect("drain");
    let attempts = setup.client.attempts(id).await.expect("attempts");
    let result: String = setup.client.job(id).await.expect("the job").result.expect("a result").decode().expect("text");
    assert_eq!((attempts.len(), result), (2, attempts[0].id.to_string()));
}

/// Handlers that were registered before the state have none, and run beside those that have it.
async fn a_state_may_come_after_handlers_that_do_not_use_it(setup: Setup) {
    let worker = setup
        .worker(1)
        .handle_raw("stateless", async |_: Payload, cx: Context| Ok(format!("{:?}", cx.state)))
        .with_state(42)
        .handle(async |job: Number, cx: Context<u64>| Ok(job.0 + *cx.state));
    let first =
        setup.client.enqueue(NewJob::new("stateless", Payload::json(&1).expect("JSON"))).await.expect("enqueue").id;
    let second = setup.number(1).await;
    worker.drain().await.expect("drain");
    let first: String =
        setup.client.job(first).await.expect("the job").result.expect("a result").decode().expect("text");
    let second: u64 =
        setup.client.job(second).await.expect("the job").result.expect("a result").decode().expect("a number");
    assert_eq!((first.as_str(), second), ("()", 43));
}

/// S1.53: a handler that asks for more time than its job allows does not get it.
async fn t1_a_handler_cannot_ask_for_more_time_than_its_job_allows(setup: Setup) {
    let handler = async |_: Number, cx: Context| {
        let before = cx.deadline();
        cx.limit(std::time::Duration::from_secs(3600));
        assert_eq!(cx.deadline(), before, "the job's own limit stays");
        cx.cancelled().await;
        Ok(())
    };
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let timeout = std::time::Duration::from_millis(50);
    let id = setup.client.enqueue(Number(1)).execution_timeout(timeout).await.expect("enqueue").id;
    let job = setup.reaches(id, State::Retrying).await;
    assert_eq!(job.failure.expect("a failure").category, windlass::Category::Timeout);
    running.stop().await;
}

/// S1.114: bytes that are no UTF-8 are data like any other; typed handlers refuse them without showing them.
async fn bytes_that_are_no_text_come_through_as_they_are(setup: Setup) {
    let bytes = vec![0xff, 0xfe, 0x00, 0x80];
    let raw = async |payload: Payload, _: Context| Ok(payload.as_bytes().len());
    let worker = setup.worker(1).handle_raw("raw", raw).handle(async |_: Number, _: Context| Ok(()));
    let binary = Payload::bytes("application/octet-stream", bytes.clone()).expect("bytes");
    let id = setup.client.enqueue(NewJob::new("raw", binary)).await.expect("enqueue").id;
    let claimed_as_json = Payload::bytes("application/json", bytes.clone());
    let text = Payload::bytes("text/plain", bytes.clone()).expect("bytes");
    let typed = setup.client.enqueue(NewJob::new(Number::TYPE, text)).await.expect("enqueue").id;
    worker.drain().await.expect("drain");
    let job = setup.client.job(id).await.expect("the job");
    assert_eq!(job.spec.payload.as_bytes().as_ref(), bytes);
    assert_eq!(job.result.expect("a result").decode::<usize>().expect("a number"), 4);
    let failed = setup.client.job(typed).await.expect("the job");
    assert_eq!(failed.failure.expect("a failure").code.as_deref(), Some("invalid_payload"));
    assert!(claimed_as_json.is_err(), "what calls itself JSON must be it");
}

/// S3.17: `cancelled` and `token` fire at a cancel and at the time limit, `stopping` when the worker begins to stop.
async fn each_signal_of_a_context_fires_at_its_moment(setup: Setup) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let handler = async |job: Number, cx: Context<Arc<Mutex<Vec<String>>>>| {
        let tell = |what: &str| cx.state.lock().expect("lock").push(format!("{}: {what}", job.0));
        tell("started");
        let token = cx.token();
        tokio::select! {
            () = cx.cancelled() => tell(&format!("cancelled, token {}", token.is_cancelled())),
            () = cx.stopping().cancelled() => tell(&format!("stopping, cancelled {}", cx.is_cancelled())),
        }
        Err::<(), _>(Failure::temporary("stopped"))
    };
    let worker = Worker::new(&setup.client).with_state(heard.clone()).queue("default", 3).handle(handler);
    let running = worker.start().await.expect("start");
    let said = |what: &str| heard.lock().expect("lock").iter().any(|line| line == what);
    let asked = setup.number(1).await;
    crate::support::until("it started", || async { said("1: started") }).await;
    setup.client.cancel(asked).await.expect("cancel");
    crate::support::until("it heard", || async { said("1: cancelled, token true") }).await;
    let limit = std::time::Duration::from_millis(30);
    setup.client.enqueue(Number(2)).execution_timeout(limit).await.expect("enqueue");
    crate::support::until("its time is up", || async { said("2: cancelled, token true") }).await;
    setup.number(3).await;
    crate::support::until("it started", || async { said("3: started") }).await;
    running.stop().await;
    assert!(said("3: stopping, cancelled false"), "a stop is no cancel while the grace period lasts");
}

/// F18: a record can be shown as it is, with the names of the HTTP API and without what is no JSON.
async fn a_record_is_shown_as_json(setup: Setup) {
    let worker = setup.worker(1).handle(async |job: Number, _: Context| Ok(job.0 + 1));
    let id = setup.client.enqueue(Number(41)).idempotency_key("k").await.expect("enqueue").id;
    worker.drain().await.expect("drain");
    let shown = serde_json::to_value(setup.client.job(id).await.expect("the job")).expect("json");
    for (member, expected) in [
        ("id", serde_json::json!(id)),
        ("type", serde_json::json!("number")),
        ("queue", serde_json::json!("default")),
        ("state", serde_json::json!("completed")),
        ("payload", serde_json::json!(41)),
        ("result", serde_json::json!(42)),
        ("attempt", serde_json::json!(1)),
        ("idempotency_key", serde_json::json!("k")),
    ] {
        assert_eq!(shown[member], expected, "{member} in {shown}");
    }
    let binary = Payload::bytes("image/png", vec![0xff]).expect("bytes");
    let id = setup.client.enqueue(NewJob::new("image", binary)).await.expect("enqueue").id;
    let shown = serde_json::to_value(setup.client.job(id).await.expect("the job")).expect("json");
    assert_eq!((shown.get("payload"), &shown["content_type"]), (None, &serde_json::json!("image/png")));
}

async fn a_handler_knows_its_job_and_its_attempt(setup: Setup) {
    let handler = async |job: Number, cx: Context| {
        assert_eq!((job.0, cx.job().spec.queue.as_str()), (7, "default"));
        assert_eq!((cx.attempt(), cx.lease_version(), cx.idempotency_key()), (1, 1, Some("k")));
        assert_eq!(cx.attempt_id(), windlass::job::AttemptId::of(cx.id(), 1));
        assert_eq!(cx.previous_attempt_id(), None);
        let left = cx.remaining().expect("30 minutes").as_secs();
        assert!((1790..=1800).contains(&left), "{left}");
        assert!(!cx.is_cancelled() && !cx.token().is_cancelled());
        assert_eq!(cx.client().job(cx.id()).await?.state, State::Running);
        Ok(())
    };
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let id = setup.client.enqueue(Number(7)).idempotency_key("k").await.expect("enqueue").id;
    let ended = setup.client.wait(id).await.expect("the end");
    assert_eq!(ended.state, State::Completed, "{:?}", ended.failure);
    running.stop().await;
}

async fn r4_a_checkpoint_is_there_for_the_next_attempt(setup: Setup) {
    let handler = async |_: Number, cx: Context| {
        let done = cx.checkpoint::<u64>()?.unwrap_or(0);
        if done < 3 {
            cx.save_checkpoint(&(done + 1)).await?;
            assert_eq!(cx.checkpoint::<u64>()?, Some(done + 1));
            cx.progress(0.25 * (done + 1) as f64, format!("{} of 4", done + 1)).await?;
            cx.log(format!("attempt {} did one", cx.attempt())).await?;
            return Err(Failure::temporary("interrupted").retry_after(std::time::Duration::ZERO));
        }
        Ok(done)
    };
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let id = setup.client.enqueue(Number(0)).max_attempts(5).await.expect("enqueue").id;
    let job = setup.reaches(id, State::Completed).await;
    assert_eq!(job.result.expect("a result").decode::<u64>().expect("a number"), 3);
    assert_eq!(job.progress.expect("progress").message, "3 of 4");
    let lines: Vec<String> = setup.client.logs(id).await.expect("logs").into_iter().map(|line| line.text).collect();
    assert_eq!(lines, ["attempt 1 did one", "attempt 2 did one", "attempt 3 did one"]);
    running.stop().await;
}

async fn l2_a_write_under_a_lost_lease_is_refused(setup: Setup) {
    let cut = setup.client.clone();
    let handler = move |_: Number, cx: Context| {
        let cut = cut.clone();
        async move {
            cut.act(windlass::store::Act::Cancel { force: true }).on(cx.id()).await?;
            let refused = cx.save_checkpoint("late").await.expect_err("the lease is gone");
            assert_eq!(refused.name(), "StaleLease");
            Ok::<_, Failure>(())
        }
    };
    let worker = setup.worker(1).handle(handler);
    let id = setup.number(1).await;
    assert_eq!(worker.drain().await.expect("drain").stale, 1);
    let job = setup.client.job(id).await.expect("job");
    assert_eq!((job.state, job.checkpoint), (State::Cancelled, None));
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Split(u64);

impl Job for Split {
    const TYPE: &'static str = "split";
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Sum;

impl Job for Sum {
    const TYPE: &'static str = "sum";
}

async fn w_children_come_with_the_completion_and_a_fan_in_waits_for_them(setup: Setup) {
    let split = async |job: Split, cx: Context| {
        let first = cx.spawn(Number(1))?;
        for number in 2..=job.0 {
            let after = NewJob::new(Number::TYPE, Payload::json(&number)?);
            cx.spawn(after.depends_on(DependsOn::Batch(first), DependencyKind::After))?;
        }
        // Nothing is stored before the completion.
        assert_eq!(cx.client().totals().await?.accepted, 2);
        Ok(())
    };
    let sum = async |_: Sum, cx: Context| {
        let mut sum = 0;
        for child in cx.spawned().await? {
            sum += child.result.expect("a result").decode::<u64>()?;
        }
        Ok(sum)
    };
    let running = setup
        .worker(4)
        .handle(split)
        .handle(sum)
        .handle(async |job: Number, _: Context| Ok(job.0 * 10))
        .start()
        .await
        .expect("start");
    let mut flow = Workflow::new("fan");
    let out = flow.add(Split(5));
    let join = flow.fan_in(out, Join::AllSuccess, Sum);
    let started = setup.client.start(flow).await.expect("start");
    let ended = setup.client.wait(started.job(join)).await.expect("the end");
    assert_eq!(ended.state, State::Completed, "{:?}", ended.failure);
    assert_eq!(ended.result.expect("a result").decode::<u64>().expect("a number"), 150);
    assert_eq!(setup.client.workflow(started.id).await.expect("workflow").state(), WorkflowState::Completed);
    running.stop().await;
}

async fn x2_a_completion_written_by_the_handler_itself_counts_once(setup: Setup) {
    let handler = async |_: Number, cx: Context| {
        cx.spawn(Split(1))?;
        // What complete_in_tx does, without the transaction.
        let answers = cx.client().store().settle(&[cx.completion(&7u64)?]).await?;
        assert!(matches!(answers[0], windlass::store::Settled::Applied(State::Completed)), "{answers:?}");
        Ok(7u64)
    };
    let running = setup.worker(1).handle(handler).start().await.expect("start");
    let id = setup.number(1).await;
    let job = setup.reaches(id, State::Completed).await;
    assert_eq!(job.result.expect("a result").decode::<u64>().expect("a number"), 7);
    let stopped = running.stop().await;
    assert_eq!((stopped.settled, stopped.abandoned), (1, 0));
    assert_eq!(setup.client.totals().await.expect("totals").accepted, 2, "one child, once");
    assert_eq!(setup.client.attempts(id).await.expect("attempts").len(), 1);
}

async fn a_failed_attempt_has_no_children(setup: Setup) {
    let handler = async |_: Split, cx: Context| {
        cx.spawn(Number(1))?;
        Err::<(), _>(Failure::permanent("no", "not today"))
    };
    let worker = setup.worker(1).handle(handler);
    setup.client.enqueue(Split(1)).await.expect("enqueue");
    assert_eq!(worker.drain().await.expect("drain").failed, 1);
    assert_eq!(setup.client.totals().await.expect("totals").accepted, 1);
}

async fn w6_the_finaliser_of_a_chord_runs_once_with_all_results(setup: Setup) {
    let finals = Arc::new(AtomicUsize::new(0));
    let sum = async |_: Sum, cx: Context<Arc<AtomicUsize>>| {
        cx.state.fetch_add(1, Ordering::SeqCst);
        Ok(cx.results::<u64>().await?.into_iter().sum::<u64>())
    };
    let worker = || {
        Worker::new(&setup.client)
            .with_state(finals.clone())
            .queue("default", 16)
            .handle(async |job: Number, _: Context<Arc<AtomicUsize>>| Ok(job.0))
            .handle(sum)
    };
    let (one, two) = (worker().start().await.expect("start"), worker().start().await.expect("start"));
    let mut flow = Workflow::new("chord");
    let ends = flow.piece(chord((1..=200).map(Number), Sum));
    let started = setup.client.start(flow).await.expect("start");
    let ended = setup.client.wait(started.job(ends[0])).await.expect("the end");
    assert_eq!(ended.state, State::Completed, "{:?}", ended.failure);
    assert_eq!(ended.result.expect("a result").decode::<u64>().expect("a number"), 20_100);
    assert_eq!(finals.load(Ordering::SeqCst), 1);
    one.stop().await;
    two.stop().await;
}

/// Writes down what it sees.
struct Notes(&'static str, Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Middleware for Notes {
    async fn run(&self, attempt: &Attempt, next: Next<'_>) -> HandlerResult {
        self.1.lock().expect("lock").push(format!("{} before {}", self.0, attempt.job().spec.job_type));
        let result = next.run().await;
        let outcome = match &result {
            Ok(_) => "success".to_owned(),
            Err(failure) => failure.code().unwrap_or("failure").to_owned(),
        };
        self.1.lock().expect("lock").push(format!("{} after {outcome}", self.0));
        // It may change what counts.
        result.or_else(|failure| if failure.code() == Some("forgiven") { Ok(None) } else { Err(failure) })
    }
}

async fn n4_middleware_wraps_in_order_and_hooks_hear_of_it(setup: Setup) {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let settled = Arc::new(Mutex::new(Vec::new()));
    let handler = async |job: Number, _: Context| match job.0 {
        0 => Ok(()),
        1 => Err(Failure::permanent("forgiven", "no matter")),
        _ => panic!("loud"),
    };
    let worker = setup
        .worker(1)
        .middleware(Notes("outer", notes.clone()))
        .middleware(Notes("inner", notes.clone()))
        .on_settled(|_, _, _| panic!("a bad hook"))
        .on_settled({
            let settled = settled.clone();
            move |attempt, outcome, state| settled.lock().expect("lock").push((attempt.id(), outcome, state))
        })
        .handle(handler);
    let ids = [setup.number(0).await, setup.number(1).await, setup.number(2).await];
    let drained = worker.drain().await.expect("drain");
    assert_eq!((drained.completed, drained.retried), (2, 1));
    let expected = [
        ["outer before number", "inner before number", "inner after success", "outer after success"],
        ["outer before number", "inner before number", "inner after forgiven", "outer after success"],
        ["outer before number", "inner before number", "inner after panic", "outer after panic"],
    ];
    assert_eq!(*notes.lock().expect("lock"), expected.concat());
    let heard = [
        (ids[0], Outcome::Completed, State::Completed),
        (ids[1], Outcome::Completed, State::Completed),
        (ids[2], Outcome::Failed, State::Retrying),
    ];
    assert_eq!(*settled.lock().expect("lock"), heard);
}

on_every_store!(
    a_handler_knows_its_job_and_its_attempt,
    an_attempt_knows_the_one_before_it,
    a_state_may_come_after_handlers_that_do_not_use_it,
    t1_a_handler_cannot_ask_for_more_time_than_its_job_allows,
    bytes_that_are_no_text_come_through_as_they_are,
    each_signal_of_a_context_fires_at_its_moment,
    a_record_is_shown_as_json,
    r4_a_checkpoint_is_there_for_the_next_attempt,
    l2_a_write_under_a_lost_lease_is_refused,
    w_children_come_with_the_completion_and_a_fan_in_waits_for_them,
    x2_a_completion_written_by_the_handler_itself_counts_once,
    a_failed_attempt_has_no_children,
    w6_the_finaliser_of_a_chord_runs_once_with_all_results,
    n4_middleware_wraps_in_order_and_hooks_hear_of_it,
);
