//! Sections 11 and 13 of the contract: queues (O3), claims by type (N1b) and wake-ups (N2).

use std::time::Duration;

use tokio::sync::broadcast::Receiver;

use super::Bench;
use super::bench::{job, worker};
use super::moves::{CANCEL, in_states, job_type, named, queue, requeue};
use crate::error::{Error, Result};
use crate::flow::ControlEdit;
use crate::job::{JobId, Priority, State, Why};
use crate::store::{Act, ClaimRequest, Filter, ServedQueue, WORKER_LIVE, Wake, WorkerEdit, WorkerRecord, WorkerReport};

chapter! {
    o3_nothing_is_claimed_from_a_paused_queue,
    o3_everything_else_goes_on_in_a_paused_queue,
    o3_a_queue_may_be_paused_before_it_has_jobs,
    o3_a_purge_ends_the_unclaimed_jobs_of_a_queue,
    o3_a_queue_is_forgotten_with_its_last_job,
    o3_queues_tell_what_waits_in_them,
    o3_a_worker_is_told_to_drain_and_hears_of_it,
    o3_a_worker_that_drains_is_not_counted_on,
    o3_nobody_can_talk_to_a_worker_that_is_not_there,
    n1b_a_claim_by_type_leaves_the_others_alone,
    n1b_a_claim_by_type_keeps_the_claim_order,
    n1b_a_thousand_jobs_of_another_type_are_not_in_the_way,
    n2_a_job_that_may_be_claimed_sends_a_wake,
    n2_an_end_and_a_request_to_stop_send_a_wake,
    n2_a_resumed_queue_sends_a_wake_though_it_is_empty,
}

const SECOND: Duration = Duration::from_secs(1);

async fn pause(bench: &Bench, name: &str, paused: bool) {
    bench.store.control(&ControlEdit::pause(queue(name), paused), Some("ada")).await.expect("pause or resume");
}

/// A worker announces itself: what it hears.
async fn draining(bench: &Bench, report: &WorkerReport) -> bool {
    bench.store.announce(report).await.expect("announce").draining
}

fn report(name: &str) -> WorkerReport {
    let queues = vec![ServedQueue { queue: queue("default"), slots: 2, busy: 0 }];
    WorkerReport { id: worker(name), host: "here".to_owned(), queues, types: None }
}

async fn tell(bench: &Bench, name: &str, draining: bool) -> Result<WorkerRecord> {
    let edit = WorkerEdit::new(worker(name), draining).because("the disk");
    bench.store.edit_worker(&edit, Some("ada")).await
}

async fn o3_a_worker_is_told_to_drain_and_hears_of_it(bench: Bench) {
    let (one, other) = (report("one"), report("other"));
    assert!(!draining(&bench, &one).await && !draining(&bench, &other).await);
    let told = tell(&bench, "one", true).await.expect("it lives");
    assert_eq!((told.id.as_str(), told.draining, told.queues), ("one", true, one.queues.clone()));
    assert!(tell(&bench, "one", true).await.expect("it lives").draining, "again changes nothing");
    let shown = bench.store.workers().await.expect("workers");
    assert_eq!(shown.iter().map(|worker| worker.draining).collect::<Vec<_>>(), [true, false]);
    assert!(draining(&bench, &one).await && draining(&bench, &one).await, "it is told each time");
    assert!(!draining(&bench, &other).await, "the others are not");
    assert!(!tell(&bench, "one", false).await.expect("it lives").draining);
    assert!(!draining(&bench, &one).await);
    let acts = bench.store.acts(None, 10).await.expect("acts").items;
    let acts: Vec<_> = acts.iter().map(|act| (act.act.as_str(), act.target.as_str(), act.why.as_deref())).collect();
    assert_eq!(acts, [("resume", "worker one", Some("the disk")), ("drain", "worker one", Some("the disk"))]);
}

async fn o3_a_worker_that_drains_is_not_counted_on(bench: Bench) {
    let id = bench.enqueue(job()).await;
    draining(&bench, &report("one")).await;
    let reasons = async || bench.store.explain(id).await.expect("explain").reasons;
    assert_eq!(reasons().await, []);
    tell(&bench, "one", true).await.expect("it lives");
    assert_eq!(reasons().await, [Why::NoWorkerForQueue { queue: queue("default") }]);
}

async fn o3_nobody_can_talk_to_a_worker_that_is_not_there(bench: Bench) {
    let missing = |told: Result<WorkerRecord>| matches!(told, Err(Error::NotFound { what: "worker", .. }));
    assert!(missing(tell(&bench, "one", true).await), "it never was");
    draining(&bench, &report("one")).await;
    tell(&bench, "one", true).await.expect("it lives");
    draining(&bench, &WorkerReport { queues: Vec::new(), ..report("one") }).await;
    assert!(missing(tell(&bench, "one", true).await), "it has left");
    assert!(!draining(&bench, &report("one")).await, "who comes back begins anew");
    bench.advance(WORKER_LIVE + SECOND);
    assert!(missing(tell(&bench, "one", true).await), "nothing was heard of it");
    assert!(bench.store.acts(None, 10).await.expect("acts").items.len() == 1, "only what was done is recorded");
}

async fn claim_types(bench: &Bench, types: &[&str], limit: usize) -> Vec<JobId> {
    let types = Some(types.iter().map(|name| job_type(name)).collect());
    let request = ClaimRequest { types, ..ClaimRequest::new(worker("w1"), queue("default"), limit) };
    bench.store.claim(&request).await.expect("claim").iter().map(|claimed| claimed.job.id).collect()
}

async fn o3_nothing_is_claimed_from_a_paused_queue(bench: Bench) {
    let here = bench.enqueue(job()).await;
    let there = bench.enqueue(job().queue("other")).await;
    pause(&bench, "default", true).await;
    let both = ClaimRequest {
        queues: vec![(queue("default"), 10), (queue("other"), 10)],
        ..ClaimRequest::new(worker("w1"), queue("default"), 10)
    };
    let claimed = bench.store.claim(&both).await.expect("claim");
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [there]);
    bench.enqueue(job()).await;
    assert!(bench.claim(10).await.is_empty(), "nor what is enqueued later");
    pause(&bench, "default", false).await;
    assert_eq!(bench.claim(10).await[0].job.id, here);
}

async fn o3_everything_else_goes_on_in_a_paused_queue(bench: Bench) {
    let running = bench.running(job()).await;
    let delayed = bench.enqueue(named("delayed").delay(SECOND)).await;
    let after = bench.enqueue(named("after").after([running.job.id])).await;
    pause(&bench, "default", true).await;
    bench.extend(running.lease.key()).await;
    assert_eq!(bench.complete(running.lease).await, State::Completed);
    bench.advance(SECOND);
    assert_eq!(bench.states(&[after, delayed]).await, [State::Scheduled; 2]);
    bench.act(after, CANCEL).await;
}

async fn o3_a_queue_may_be_paused_before_it_has_jobs(bench: Bench) {
    pause(&bench, "mail", true).await;
    let records = bench.store.queues().await.expect("queues");
    assert_eq!(
        records.iter().map(|record| (record.name.as_str(), record.paused)).collect::<Vec<_>>(),
        [("mail", true)]
    );
    bench.enqueue(job().queue("mail")).await;
    assert!(bench.claim_from("mail", 1).await.is_empty());
}

async fn o3_a_purge_ends_the_unclaimed_jobs_of_a_queue(bench: Bench) {
    let jobs = bench.one_of_each().await;
    let other = bench.enqueue(job().queue("other")).await;
    let unclaimed = [State::Pending, State::Delayed, State::Scheduled, State::Retrying];
    let filter = Filter { queue: Some(queue("default")), ..in_states(&unclaimed) };
    bench.act_on(filter, 2, CANCEL).await;
    for (before, id) in jobs {
        let now = if unclaimed.contains(&before) { State::Cancelled } else { before };
        assert_eq!(bench.state(id).await, now, "it was {before}");
    }
    assert_eq!(bench.state(other).await, State::Scheduled);
    bench.assert_sound().await;
}

async fn o3_a_queue_is_forgotten_with_its_last_job(bench: Bench) {
    let id = bench.enqueue(job().queue("invented")).await;
    bench.enqueue(job().queue("mail")).await;
    pause(&bench, "quiet", true).await;
    let names = async || {
        let records = bench.store.queues().await.expect("queues");
        records.iter().map(|record| record.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["invented", "mail", "quiet"]);
    bench.act(id, CANCEL).await;
    assert_eq!(names().await, ["invented", "mail", "quiet"], "an ended job is still one");
    bench.act(id, Act::Delete).await;
    assert_eq!(names().await, ["mail", "quiet"]);
    pause(&bench, "quiet", false).await;
    assert_eq!(names().await, ["mail"]);
}

async fn o3_queues_tell_what_waits_in_them(bench: Bench) {
    bench.enqueue(job().queue("b").priority(Priority::Low)).await;
    bench.advance(SECOND);
    bench.insert(vec![job().queue("b"), job().queue("a").delay(2 * SECOND)]).await;
    let start = bench.now().minus(SECOND);
    let records = bench.store.queues().await.expect("queues");
    assert_eq!(records.iter().map(|record| record.name.as_str()).collect::<Vec<_>>(), ["a", "b"], "by name");
    assert_eq!((records[0].oldest_scheduled, records[1].oldest_scheduled), (None, Some(start)));
    assert_eq!(records[0].states, [0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(records[1].states, [0, 0, 2, 0, 0, 0, 0, 0, 0]);
    bench.advance(5 * SECOND);
    let records = bench.store.queues().await.expect("queues");
    assert_eq!(records[0].states, [0, 0, 1, 0, 0, 0, 0, 0, 0], "the clock moves the delayed one");
    assert_eq!(records[0].oldest_scheduled, Some(start.plus(3 * SECOND)));
    let claimed = bench.claim_from("b", 2).await;
    assert_eq!(claimed.len(), 2);
    let records = bench.store.queues().await.expect("queues");
    assert_eq!((records[1].oldest_scheduled, records[1].states[3]), (None, 2));
}

async fn n1b_a_claim_by_type_leaves_the_others_alone(bench: Bench) {
    let other = bench.enqueue(named("other").priority(Priority::Critical)).await;
    let mine = bench.enqueue(named("mine")).await;
    let before = bench.job(other).await;
    assert_eq!(claim_types(&bench, &["mine"], 10).await, [mine]);
    assert!(claim_types(&bench, &["mine", "nobody"], 10).await.is_empty());
    assert!(claim_types(&bench, &[], 10).await.is_empty(), "no types, no jobs");
    assert_eq!(bench.job(other).await, before, "no attempt is spent");
    assert!(bench.attempts(other).await.is_empty());
}

async fn n1b_a_claim_by_type_keeps_the_claim_order(bench: Bench) {
    let mut ids = Vec::new();
    for (name, priority) in
        [("a", Priority::Normal), ("b", Priority::Normal), ("c", Priority::High), ("a", Priority::High)]
    {
        ids.push(bench.enqueue(named(name).priority(priority)).await);
    }
    bench.advance(SECOND);
    let late = bench.enqueue(named("b").priority(Priority::High)).await;
    assert_eq!(claim_types(&bench, &["b", "a"], 3).await, [ids[3], late, ids[0]]);
    assert_eq!(claim_types(&bench, &["b", "a", "c"], 3).await, [ids[2], ids[1]]);
}

async fn n1b_a_thousand_jobs_of_another_type_are_not_in_the_way(bench: Bench) {
    bench.insert(vec![named("other").priority(Priority::Critical); 2000]).await;
    let mine: Vec<_> = bench.insert(vec![named("mine"); 3]).await.iter().map(|job| job.id).collect();
    assert_eq!(claim_types(&bench, &["mine"], 10).await, mine);
    assert_eq!(bench.totals().await.states[2], 2000);
}

/// Waits for a wake; a store that sends them from another process may take its time, but not for ever.
async fn woken(wakes: &mut Receiver<Wake>, wanted: Wake) {
    let until = tokio::time::timeout(Duration::from_secs(10), async {
        while wakes.recv().await.expect("the store should not close its wakes") != wanted {}
    });
    assert!(until.await.is_ok(), "no {wanted:?} came");
}

async fn n2_a_job_that_may_be_claimed_sends_a_wake(bench: Bench) {
    if !bench.wakes {
        return;
    }
    let mut wakes = bench.store.wakes();
    let scheduled = |name: &str| Wake::Scheduled(queue(name));
    let first = bench.enqueue(named("first").queue("inserted")).await;
    woken(&mut wakes, scheduled("inserted")).await;
    bench.enqueue(named("second").queue("released").after([first])).await;
    bench.end(first, State::Completed).await;
    woken(&mut wakes, scheduled("released")).await;
    let dead = bench.enqueue(named("dead").queue("requeued")).await;
    bench.end(dead, State::Failed).await;
    woken(&mut wakes, Wake::Ended(dead)).await;
    bench.act(dead, requeue()).await;
    woken(&mut wakes, scheduled("requeued")).await;
    pause(&bench, "paused", true).await;
    bench.enqueue(job().queue("paused")).await;
    // Whether the store told of a job that nobody can claim is its own matter; of the resume it must.
    let mut after = bench.store.wakes();
    pause(&bench, "paused", false).await;
    woken(&mut after, scheduled("paused")).await;
    let lost = bench.enqueue(named("lost").queue("lost")).await;
    bench.take(lost).await;
    woken(&mut wakes, scheduled("lost")).await;
    bench.pass(super::bench::LEASE).await;
    woken(&mut wakes, scheduled("lost")).await;
}

async fn n2_an_end_and_a_request_to_stop_send_a_wake(bench: Bench) {
    if !bench.wakes {
        return;
    }
    let mut wakes = bench.store.wakes();
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    bench.act(id, CANCEL).await;
    woken(&mut wakes, Wake::CancelAsked(id)).await;
    bench.complete(claimed.lease).await;
    woken(&mut wakes, Wake::Ended(id)).await;
}

async fn n2_a_resumed_queue_sends_a_wake_though_it_is_empty(bench: Bench) {
    if !bench.wakes {
        return;
    }
    pause(&bench, "empty", true).await;
    let mut wakes = bench.store.wakes();
    pause(&bench, "empty", false).await;
    // A hint is that there may be a job; a store that counted first could miss one that comes at the same moment.
    woken(&mut wakes, Wake::Scheduled(queue("empty"))).await;
}
