//! Section 11 of the contract: every reason why a job is not running now (O5).

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job, worker};
use super::moves::{CANCEL, job_type, named, queue};
use crate::flow::ControlEdit;
use crate::job::{EXPLAIN_SCAN_MAX, JobId, JobType, Priority, ReasonKind, State, Why};
use crate::store::{ServedQueue, WorkerReport};

chapter! {
    o5_nothing_is_in_the_way_of_the_next_job,
    o5_a_paused_queue,
    o5_a_delay_and_a_backoff,
    o5_unfinished_dependencies,
    o5_an_after_any_that_is_met_is_no_reason,
    o5_no_worker_for_the_queue_or_the_type,
    o5_every_slot_is_taken,
    o5_jobs_ahead,
    o5_a_running_job_and_an_expired_lease,
    o5_an_ended_job,
    o5_a_lifetime_that_is_over,
    o5_every_reason_is_told,
    o5_an_unknown_job,
}

const SECOND: Duration = Duration::from_secs(1);

async fn why(bench: &Bench, id: JobId) -> Vec<Why> {
    let explanation = bench.store.explain(id).await.expect("explain");
    assert_eq!((explanation.job, explanation.state), (id, bench.state(id).await));
    explanation.reasons
}

/// A worker that serves the default queue says that it lives.
async fn announce(bench: &Bench, name: &str, types: Option<Vec<JobType>>, slots: u32, busy: u32) {
    let queues = vec![ServedQueue { queue: queue("default"), slots, busy }];
    let report = WorkerReport { id: worker(name), host: "host".to_owned(), queues, types };
    bench.store.announce(&report).await.expect("announce");
}

async fn o5_nothing_is_in_the_way_of_the_next_job(bench: Bench) {
    let id = bench.enqueue(job()).await;
    announce(&bench, "w1", None, 2, 1).await;
    assert_eq!(why(&bench, id).await, []);
    assert_eq!(bench.claim_ids(1).await, [id], "and the claim agrees");
}

async fn o5_a_paused_queue(bench: Bench) {
    let id = bench.enqueue(job()).await;
    announce(&bench, "w1", None, 1, 0).await;
    bench.store.control(&ControlEdit::pause(queue("default"), true), None).await.expect("pause");
    assert_eq!(why(&bench, id).await, [Why::Paused { queue: queue("default") }]);
    assert!(bench.claim(1).await.is_empty());
}

async fn o5_a_delay_and_a_backoff(bench: Bench) {
    announce(&bench, "w1", None, 1, 0).await;
    let delayed = bench.enqueue(named("delayed").delay(10 * SECOND)).await;
    let run_at = bench.now().plus(10 * SECOND);
    assert_eq!(why(&bench, delayed).await, [Why::DelayedUntil { run_at }]);
    let retrying = bench.in_state(State::Retrying).await;
    let run_at = bench.now().plus(SECOND);
    assert_eq!(why(&bench, retrying).await, [Why::BackingOffUntil { run_at }]);
    bench.advance(SECOND);
    assert_eq!(why(&bench, retrying).await, []);
}

async fn o5_unfinished_dependencies(bench: Bench) {
    announce(&bench, "w1", None, 1, 0).await;
    let first = bench.enqueue(named("first")).await;
    let second = bench.enqueue(named("second")).await;
    let waiting = bench.enqueue(named("waiting").after([first, second])).await;
    let reasons = why(&bench, waiting).await;
    let [Why::WaitsFor { jobs }] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert_eq!(jobs.len(), 2);
    assert!(jobs.contains(&first) && jobs.contains(&second));
    bench.end(second, State::Completed).await;
    assert_eq!(why(&bench, waiting).await, [Why::WaitsFor { jobs: vec![first] }]);
}

async fn o5_an_after_any_that_is_met_is_no_reason(bench: Bench) {
    announce(&bench, "w1", None, 1, 0).await;
    let slow = bench.enqueue(named("slow")).await;
    let quick = bench.enqueue(named("quick")).await;
    let needed = bench.enqueue(named("needed")).await;
    let waiting = bench.enqueue(named("waiting").after_any([slow, quick]).after([needed])).await;
    bench.end(quick, State::Completed).await;
    let reason = || Why::WaitsFor { jobs: vec![needed] };
    assert_eq!(why(&bench, waiting).await, [reason()], "it no longer waits for the slow one");
    let late = bench.enqueue(named("late").after_any([slow, quick]).after([needed])).await;
    assert_eq!(why(&bench, late).await, [reason()]);
}

async fn o5_no_worker_for_the_queue_or_the_type(bench: Bench) {
    let id = bench.enqueue(named("rare")).await;
    let no_worker = [Why::NoWorkerForQueue { queue: queue("default") }];
    assert_eq!(why(&bench, id).await, no_worker);
    announce(&bench, "w1", Some(vec![job_type("common")]), 4, 0).await;
    assert_eq!(why(&bench, id).await, [Why::NoWorkerForType { job_type: job_type("rare") }]);
    announce(&bench, "w2", Some(vec![job_type("common"), job_type("rare")]), 4, 0).await;
    assert_eq!(why(&bench, id).await, []);
    bench.advance(Duration::from_secs(31));
    assert_eq!(why(&bench, id).await, no_worker, "a worker that fell silent does not count");
    assert!(bench.store.workers().await.expect("workers").is_empty());
}

async fn o5_every_slot_is_taken(bench: Bench) {
    let id = bench.enqueue(job()).await;
    announce(&bench, "w1", None, 2, 2).await;
    announce(&bench, "w2", None, 1, 1).await;
    assert_eq!(why(&bench, id).await, [Why::LimitReached { workers: 2 }]);
    announce(&bench, "w2", None, 1, 0).await;
    assert_eq!(why(&bench, id).await, []);
    let workers = bench.store.workers().await.expect("workers");
    assert_eq!(workers.iter().map(|worker| worker.id.as_str()).collect::<Vec<_>>(), ["w1", "w2"], "by id, each once");
}

async fn o5_jobs_ahead(bench: Bench) {
    announce(&bench, "w1", None, 1, 0).await;
    bench.insert(vec![named("ahead"), named("ahead")]).await;
    let id = bench.enqueue(job()).await;
    bench.enqueue(job()).await;
    bench.enqueue(job().queue("other").priority(Priority::Critical)).await;
    assert_eq!(why(&bench, id).await, [Why::JobsAhead { jobs: 2, capped: false }]);
    bench.enqueue(named("urgent").priority(Priority::High)).await;
    assert_eq!(why(&bench, id).await, [Why::JobsAhead { jobs: 3, capped: false }]);
    assert_eq!(bench.claim(3).await.len(), 3);
    assert_eq!(why(&bench, id).await, []);
    bench.insert(vec![job().priority(Priority::High); EXPLAIN_SCAN_MAX + 1]).await;
    assert_eq!(why(&bench, id).await, [Why::JobsAhead { jobs: EXPLAIN_SCAN_MAX, capped: true }]);
}

async fn o5_a_running_job_and_an_expired_lease(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    let expires_at = bench.now().plus(LEASE);
    let running = || Why::Running { worker: worker("w1"), expires_at };
    assert_eq!(why(&bench, id).await, [running()]);
    bench.act(id, CANCEL).await;
    assert_eq!(why(&bench, id).await, [running(), Why::CancelAsked]);
    bench.advance(LEASE);
    assert_eq!(why(&bench, id).await, [Why::LeaseExpired { expired_at: expires_at }, Why::CancelAsked]);
}

async fn o5_an_ended_job(bench: Bench) {
    let completed = bench.in_state(State::Completed).await;
    assert_eq!(why(&bench, completed).await, [Why::Ended { state: State::Completed, because: None }]);
    let cancelled = bench.in_state(State::Cancelled).await;
    let reasons = why(&bench, cancelled).await;
    let [Why::Ended { state: State::Cancelled, because: Some(because) }] = reasons.as_slice() else {
        panic!("{reasons:?}")
    };
    assert_eq!((because.kind, because.by.as_deref()), (ReasonKind::Cancelled, Some("ada")));
}

async fn o5_a_lifetime_that_is_over(bench: Bench) {
    let id = bench.enqueue(job().lifetime(SECOND)).await;
    announce(&bench, "w1", None, 1, 0).await;
    bench.advance(SECOND);
    assert_eq!(why(&bench, id).await, [Why::LifetimeOver { deadline: bench.now() }]);
    assert!(bench.claim(1).await.is_empty(), "and the claim agrees");
}

async fn o5_every_reason_is_told(bench: Bench) {
    let first = bench.enqueue(named("first").queue("elsewhere")).await;
    let run_at = bench.now().plus(60 * SECOND);
    let id = bench.enqueue(named("last").queue("mail").after([first]).run_at(run_at)).await;
    bench.store.control(&ControlEdit::pause(queue("mail"), true), None).await.expect("pause");
    let expected = [
        Why::Paused { queue: queue("mail") },
        Why::WaitsFor { jobs: vec![first] },
        Why::DelayedUntil { run_at },
        Why::NoWorkerForQueue { queue: queue("mail") },
    ];
    let reasons = why(&bench, id).await;
    assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
    for reason in expected {
        assert!(reasons.contains(&reason), "{reason:?} is missing in {reasons:?}");
    }
}

async fn o5_an_unknown_job(bench: Bench) {
    let unknown = crate::store::new_job_id();
    let error = bench.store.explain(unknown).await.expect_err("unknown");
    assert_eq!(error.to_string(), format!("job {:?} does not exist", unknown.to_string()));
}
