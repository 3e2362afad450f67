//! Section 11 of the contract: how long ended jobs are kept (O4).

use std::time::Duration;

use super::Bench;
use super::bench::job;
use super::control::{change, control};
use super::moves::named;
use crate::flow::{Change, Control};
use crate::job::{DependencyKind, DependsOn, Failure, JobId, NewJob, RetentionPatch, State};
use crate::store::{Act, Filter, ListQuery, Order, Retention, Upkeep};

chapter! {
    o4_completed_and_cancelled_jobs_are_kept_for_24_hours,
    o4_retention_may_be_set_for_each_state,
    o4_pruning_goes_in_bounded_steps,
    o4_a_job_that_an_unfinished_job_depends_on_is_kept,
    o4_a_spawned_job_that_a_fan_in_waits_for_is_kept,
    o4_deleting_a_job_that_is_needed_is_refused,
    o4_a_requeued_job_is_not_pruned_by_its_earlier_end,
    o4_a_job_may_be_kept_for_less_than_others,
    o4_a_job_may_be_kept_for_longer_than_others,
    o4_an_end_that_a_jobs_own_retention_leaves_open_is_the_stores,
    o4_own_retention_goes_in_bounded_steps_too,
    o4_own_retention_spares_what_an_unfinished_job_depends_on,
    o4_own_retention_counts_from_the_last_end,
    o4_own_retention_comes_with_every_way_to_submit_and_to_end,
    k1_own_retention_holds_in_a_controlled_queue,
    o1_jobs_with_a_retention_of_their_own_are_listed_like_others,
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MICRO: Duration = Duration::from_micros(1);
const ENDS: [State; 4] = [State::Completed, State::Failed, State::DeadLetter, State::Cancelled];

async fn o4_completed_and_cancelled_jobs_are_kept_for_24_hours(bench: Bench) {
    for end in ENDS {
        bench.in_state(end).await;
    }
    assert_eq!(bench.pass(DAY - MICRO).await.pruned, 0);
    assert_eq!(bench.pass(MICRO).await.pruned, 2);
    let mut left: Vec<_> = bench.list(&Filter::default()).await.iter().map(|job| job.state).collect();
    left.sort();
    assert_eq!(left, [State::Failed, State::DeadLetter]);
    assert_eq!(bench.pass(3660 * DAY).await.pruned, 0, "the dead are kept until they are deleted");
    assert_eq!(bench.totals().await.pruned, 2);
    bench.assert_sound().await;
}

async fn o4_retention_may_be_set_for_each_state(bench: Bench) {
    for end in ENDS {
        bench.in_state(end).await;
    }
    let retention =
        Retention { completed: None, failed: Some(DAY), dead_letter: Some(2 * DAY), cancelled: Some(3 * DAY) };
    for (day, pruned) in [(1, State::Failed), (2, State::DeadLetter), (3, State::Cancelled)] {
        bench.advance(DAY);
        let step = Upkeep { retention, ..Upkeep::default() };
        assert_eq!(bench.store.upkeep(&step).await.expect("upkeep").pruned, 1, "on day {day}");
        assert!(bench.list(&Filter::default()).await.iter().all(|job| job.state != pruned));
    }
    assert_eq!(bench.list(&Filter::default()).await.len(), 1);
}

async fn o4_pruning_goes_in_bounded_steps(bench: Bench) {
    for _ in 0..5 {
        bench.in_state(State::Completed).await;
    }
    bench.advance(DAY);
    let step = Upkeep { limit: 3, ..Upkeep::default() };
    let first = bench.store.upkeep(&step).await.expect("upkeep");
    assert_eq!((first.pruned, first.more), (3, true));
    let second = bench.store.upkeep(&step).await.expect("upkeep");
    assert_eq!((second.pruned, second.more), (2, false));
}

async fn o4_a_job_that_an_unfinished_job_depends_on_is_kept(bench: Bench) {
    let first = bench.enqueue(named("first").lifetime(None)).await;
    let other = bench.enqueue(named("other").lifetime(None)).await;
    let waiting = bench.enqueue(named("waiting").lifetime(None).after([first, other])).await;
    bench.end(first, State::Completed).await;
    assert_eq!(bench.pass(30 * DAY).await.pruned, 0);
    bench.end(other, State::Completed).await;
    bench.pass(30 * DAY).await;
    assert_eq!(bench.states(&[first, other]).await, [State::Completed; 2], "its handler may still read their results");
    bench.end(waiting, State::Completed).await;
    // A store may look again at what it once passed over only every so often.
    assert_eq!(bench.pass(Duration::from_secs(30)).await.pruned, 2, "what was kept only for it goes soon");
    assert_eq!(bench.pass(DAY).await.pruned, 1);
    bench.assert_sound().await;
}

async fn o4_a_spawned_job_that_a_fan_in_waits_for_is_kept(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let join = named("join").lifetime(None).depends_on(DependsOn::Job(parent.job.id), DependencyKind::FanInSuccess);
    let join = bench.enqueue(join).await;
    bench.complete_and_spawn(parent.lease, vec![named("child")]).await;
    let child = bench.only("child").await.id;
    bench.end(child, State::Completed).await;
    assert_eq!(bench.pass(30 * DAY).await.pruned, 0);
    let refused = bench.try_act(child, Act::Delete).await.expect_err("needed");
    assert_eq!(refused.name(), "Conflict");
    bench.end(join, State::Completed).await;
    // A store may look again at what it once passed over only every so often.
    assert_eq!(bench.pass(Duration::from_secs(30)).await.pruned, 2);
}

async fn o4_deleting_a_job_that_is_needed_is_refused(bench: Bench) {
    let first = bench.enqueue(named("first")).await;
    let waiting = bench.enqueue(named("waiting").after([first])).await;
    bench.end(first, State::Completed).await;
    let refused = bench.try_act(first, Act::Delete).await.expect_err("needed");
    assert_eq!(refused.name(), "Conflict");
    assert!(refused.to_string().contains(&waiting.to_string()), "{refused}");
    assert_eq!(bench.act_matching(Filter::default(), Act::Delete, true).await.changed, 0);
    bench.end(waiting, State::Completed).await;
    bench.act(first, Act::Delete).await;
    bench.assert_sound().await;
}

async fn o4_a_requeued_job_is_not_pruned_by_its_earlier_end(bench: Bench) {
    let id = bench.enqueue(job().lifetime(None)).await;
    bench.end(id, State::Failed).await;
    bench.advance(DAY);
    bench.act(id, super::moves::requeue()).await;
    let short = Some(Duration::from_secs(1));
    let retention = Retention { completed: short, cancelled: short, failed: short, dead_letter: short };
    let step = Upkeep { retention, ..Upkeep::default() };
    assert_eq!(bench.store.upkeep(&step).await.expect("upkeep").pruned, 0);
    assert_eq!(bench.state(id).await, State::Scheduled);
}

/// The same however a job ends, unless it says otherwise.
fn kept(kept: Option<Duration>) -> NewJob {
    job().lifetime(None).retention(RetentionPatch::all(kept))
}

async fn o4_a_job_may_be_kept_for_less_than_others(bench: Bench) {
    for end in ENDS {
        let id = bench.enqueue(kept(Some(HOUR))).await;
        bench.end(id, end).await;
        bench.in_state(end).await;
    }
    assert_eq!(bench.pass(HOUR - MICRO).await.pruned, 0);
    assert_eq!(bench.pass(MICRO).await.pruned, 4, "also the ends that others are kept for until they are deleted");
    assert_eq!(bench.pass(DAY - HOUR).await.pruned, 2, "the others are kept as ever");
    assert_eq!(bench.totals().await.pruned, 6);
    bench.assert_sound().await;
}

async fn o4_a_job_may_be_kept_for_longer_than_others(bench: Bench) {
    let mut ids: Vec<JobId> = Vec::new();
    for end in ENDS {
        for kept in [kept(Some(3 * DAY)), kept(None)] {
            let id = bench.enqueue(kept).await;
            bench.end(id, end).await;
            ids.push(id);
        }
    }
    bench.in_state(State::Completed).await;
    assert_eq!(bench.pass(DAY).await.pruned, 1, "only the one that says nothing");
    assert_eq!(bench.pass(2 * DAY - MICRO).await.pruned, 0);
    assert_eq!(bench.pass(MICRO).await.pruned, 4);
    assert_eq!(bench.pass(3660 * DAY).await.pruned, 0, "the rest until they are deleted");
    for id in ids.iter().skip(1).step_by(2) {
        bench.act(*id, Act::Delete).await;
    }
    assert_eq!(bench.totals().await.pruned, 9);
    bench.assert_sound().await;
}

async fn o4_an_end_that_a_jobs_own_retention_leaves_open_is_the_stores(bench: Bench) {
    let retention = RetentionPatch { completed: Some(Some(HOUR)), failed: Some(None), ..RetentionPatch::default() };
    let mut ids = Vec::new();
    for end in ENDS {
        let id = bench.enqueue(job().lifetime(None).retention(retention)).await;
        bench.end(id, end).await;
        ids.push(id);
    }
    let stored = bench.job(ids[0]).await;
    assert_eq!(stored.spec.options.retention, retention, "it is read back");
    let short = Some(2 * HOUR);
    let others = Retention { completed: short, failed: short, dead_letter: short, cancelled: short };
    let step = Upkeep { retention: others, ..Upkeep::default() };
    bench.advance(HOUR);
    assert_eq!(bench.store.upkeep(&step).await.expect("upkeep").pruned, 1, "COMPLETED");
    bench.advance(HOUR);
    assert_eq!(bench.store.upkeep(&step).await.expect("upkeep").pruned, 2, "DEAD_LETTER and CANCELLED");
    let left: Vec<State> = bench.list(&Filter::default()).await.iter().map(|job| job.state).collect();
    assert_eq!(left, [State::Failed]);
}

async fn o4_own_retention_goes_in_bounded_steps_too(bench: Bench) {
    for _ in 0..3 {
        let id = bench.enqueue(kept(Some(HOUR))).await;
        bench.end(id, State::Completed).await;
        bench.in_state(State::Completed).await;
    }
    bench.advance(DAY);
    let step = Upkeep { limit: 2, ..Upkeep::default() };
    let mut pruned = Vec::new();
    for _ in 0..4 {
        let report = bench.store.upkeep(&step).await.expect("upkeep");
        pruned.push((report.pruned, report.more));
    }
    assert_eq!(pruned, [(2, true), (2, true), (2, true), (0, false)]);
    bench.assert_sound().await;
}

async fn o4_own_retention_spares_what_an_unfinished_job_depends_on(bench: Bench) {
    let first = bench.enqueue(kept(Some(HOUR))).await;
    let waiting = bench.enqueue(named("waiting").lifetime(None).after([first])).await;
    bench.end(first, State::Completed).await;
    assert_eq!(bench.pass(30 * DAY).await.pruned, 0);
    bench.end(waiting, State::Completed).await;
    // A store may look again at what it once passed over only every so often.
    assert_eq!(bench.pass(Duration::from_secs(30)).await.pruned, 1);
    bench.assert_sound().await;
}

async fn o4_own_retention_counts_from_the_last_end(bench: Bench) {
    let retention =
        RetentionPatch { failed: Some(Some(HOUR)), dead_letter: Some(Some(2 * HOUR)), ..RetentionPatch::default() };
    let id = bench.enqueue(job().lifetime(None).retention(retention)).await;
    bench.end(id, State::Failed).await;
    bench.advance(HOUR / 2);
    bench.act(id, super::moves::requeue()).await;
    assert_eq!(bench.pass(HOUR).await.pruned, 0, "it has not ended");
    bench.end(id, State::Failed).await;
    assert_eq!(bench.pass(HOUR - MICRO).await.pruned, 0);
    bench.act(id, Act::DeadLetter).await;
    assert_eq!(bench.pass(HOUR + MICRO).await.pruned, 0, "it ended anew, in another state");
    assert_eq!(bench.pass(HOUR).await.pruned, 1);
    bench.assert_sound().await;
}

/// However a job came in and whatever ended it, it is pruned by what was said for it.
async fn o4_own_retention_comes_with_every_way_to_submit_and_to_end(bench: Bench) {
    let alone = bench.enqueue(kept(Some(HOUR))).await;
    bench.end(alone, State::Completed).await;
    bench.insert(vec![kept(Some(HOUR)), kept(Some(HOUR))]).await;
    bench.insert(vec![kept(Some(HOUR)), job().lifetime(None), kept(Some(HOUR)).delay(MICRO)]).await;
    bench.enqueue(kept(Some(HOUR)).idempotency_key("once")).await;
    bench.advance(MICRO);
    let claimed = bench.claim(10).await;
    let ended = claimed.len();
    for claimed in claimed {
        bench.complete(claimed.lease).await;
    }
    let retried = bench.running(kept(Some(HOUR)).max_attempts(2)).await;
    bench.apply(retried.lease.fail(Failure::temporary("not yet"), &mut || 0.5)).await;
    bench.pass(HOUR / 2).await;
    let again = bench.claim(1).await.remove(0);
    bench.apply(again.lease.fail(Failure::temporary("no"), &mut || 0.5)).await;
    let parent = bench.enqueue(named("parent").lifetime(None)).await;
    let child = named("child").lifetime(None).retention(RetentionPatch::all(HOUR)).after([parent]);
    let child = bench.enqueue(child).await;
    bench.end(parent, State::Completed).await;
    bench.end(child, State::Completed).await;
    assert_eq!(ended, 6);
    assert_eq!(bench.pass(HOUR / 2).await.pruned, 6, "the first, and five of the six that were claimed together");
    assert_eq!(bench.pass(HOUR / 2).await.pruned, 2, "the one that was retried, and the one that waited for another");
    bench.assert_sound().await;
}

/// Also for jobs that waited there when the control came, and when it ended.
async fn k1_own_retention_holds_in_a_controlled_queue(bench: Bench) {
    bench.insert(vec![kept(Some(HOUR)).key("acme"); 4]).await;
    control(&bench, Control::new().running(1)).await;
    let completed = bench.claim(4).await.remove(0);
    bench.complete(completed.lease).await;
    let failed = bench.claim(4).await.remove(0);
    bench.apply(failed.lease.fail(Failure::permanent("broken", "it is broken"), &mut || 0.5)).await;
    change(&bench, Change::Clear { version: None }).await;
    for claimed in bench.claim(4).await {
        bench.complete(claimed.lease).await;
    }
    assert_eq!(bench.pass(HOUR).await.pruned, 4);
    bench.assert_sound().await;
}

async fn o1_jobs_with_a_retention_of_their_own_are_listed_like_others(bench: Bench) {
    let from = bench.now();
    let mut ids = Vec::new();
    for number in 0..6 {
        let new = if number % 2 == 0 { job() } else { job().retention(RetentionPatch::all(HOUR)) };
        let id = bench.enqueue(new).await;
        bench.end(id, State::Completed).await;
        bench.advance(MICRO);
        ids.push(id);
    }
    ids.reverse();
    let filter = Filter { states: vec![State::Completed], ..Filter::default() };
    let mut query = ListQuery { order: Order::Ended, ..ListQuery::new(filter, 4) };
    let mut listed = Vec::new();
    loop {
        let page = bench.store.list(&query).await.expect("list");
        listed.extend(page.items.iter().map(|job| job.id));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(listed, ids, "the last end first");
    let ends = bench.store.observe(Some(from)).await.expect("observe").ends;
    assert!(ends.iter().is_sorted_by(|one, next| one.at > next.at), "the newest first");
    assert_eq!(ends.len(), 6);
}
