//! Section 11 of the contract: how long ended jobs are kept (O4).

use std::time::Duration;

use super::Bench;
use super::bench::job;
use super::moves::named;
use crate::job::{DependencyKind, DependsOn, State};
use crate::store::{Act, Filter, Retention, Upkeep};

chapter! {
    o4_completed_and_cancelled_jobs_are_kept_for_24_hours,
    o4_retention_may_be_set_for_each_state,
    o4_pruning_goes_in_bounded_steps,
    o4_a_job_that_an_unfinished_job_depends_on_is_kept,
    o4_a_spawned_job_that_a_fan_in_waits_for_is_kept,
    o4_deleting_a_job_that_is_needed_is_refused,
    o4_a_requeued_job_is_not_pruned_by_its_earlier_end,
}

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
