//! Section 9 of the contract: what a job waits for, and what the end of another does to it (W1 to W4).

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job};
use super::moves::named;
use crate::error::Error;
use crate::job::{
    CODE_DEPENDENCY, DEPENDENCIES_MAX, DependencyKind, DependsOn, JobId, NewJob, Priority, ReasonKind, State,
};
use crate::store::{Act, Edit, Filter, Settled};

chapter! {
    w1_an_unknown_dependency_refuses_the_whole_batch,
    w1_a_cycle_refuses_the_whole_batch,
    w1_a_chain_of_100_is_stored_and_of_101_refused,
    w1_a_chain_may_grow_for_ever_while_its_front_ends,
    w1_jobs_that_have_ended_do_not_count_as_depth,
    w1_a_job_may_have_1000_dependencies_and_not_1001,
    w2_a_bad_end_goes_through_the_graph_and_names_its_root,
    w2_a_dependency_lost_in_upkeep_takes_its_dependents_along,
    w2_an_operator_ends_the_dependents_too,
    w2_after_all_waits_for_every_end_however,
    w2_after_any_waits_for_the_first_end_however,
    w2_kinds_may_be_mixed_on_one_job,
    w3_a_dependency_that_has_ended_counts_at_once,
    w3_a_dependency_that_ended_badly_counts_at_once,
    w3_a_dependent_inherits_the_most_urgent_priority,
    w3_a_job_may_keep_its_own_priority,
    w3_waiting_dependents_follow_an_edited_priority,
    w3_a_fan_in_is_as_urgent_as_a_child_it_gains,
    w4_a_dependent_is_released_with_the_settlement,
    w4_a_retry_of_the_dependency_does_not_release,
    w4_dependencies_settled_in_one_call_release_once,
    w4_a_dependent_with_a_later_first_run_is_delayed,
}

const SECOND: Duration = Duration::from_secs(1);
const BAD_ENDS: [State; 3] = [State::Failed, State::DeadLetter, State::Cancelled];

/// A job that runs after the job at this place of the batch.
fn after_place(job: NewJob, place: usize) -> NewJob {
    job.depends_on(DependsOn::Batch(place), DependencyKind::After)
}

/// Jobs `0`, `1`, … each after the one before.
fn chain(length: usize) -> Vec<NewJob> {
    let link = |place: usize| match place {
        0 => named("0"),
        _ => after_place(named(&place.to_string()), place - 1),
    };
    (0..length).map(link).collect()
}

async fn w1_an_unknown_dependency_refuses_the_whole_batch(bench: Bench) {
    let unknown = crate::store::new_job_id();
    let refused = bench.try_insert(vec![job(), job().after([unknown])]).await.expect_err("unknown");
    assert!(matches!(refused, Error::DependencyNotFound { job } if job == unknown), "{refused}");
    assert_eq!(bench.totals().await.accepted, 0);
    assert!(bench.claim(10).await.is_empty());
    bench.assert_sound().await;
}

async fn w1_a_cycle_refuses_the_whole_batch(bench: Bench) {
    for cycle in [vec![after_place(job(), 0)], vec![after_place(job(), 1), after_place(job(), 0), job()]] {
        let refused = bench.try_insert(cycle).await.expect_err("a cycle");
        assert_eq!(refused.name(), "DependencyCycle");
    }
    assert_eq!(bench.totals().await.accepted, 0);
}

async fn w1_a_chain_of_100_is_stored_and_of_101_refused(bench: Bench) {
    let refused = bench.try_insert(chain(101)).await.expect_err("too deep");
    assert!(matches!(refused, Error::DependencyLimit { size: 101, limit: 100, .. }), "{refused}");
    assert_eq!(bench.totals().await.accepted, 0);
    let last = bench.insert(chain(100)).await[99].id;
    let refused = bench.try_insert(vec![job().after([last])]).await.expect_err("too deep across calls");
    assert_eq!(refused.name(), "DependencyLimit");
    assert_eq!(bench.totals().await.accepted, 100);
}

async fn w1_jobs_that_have_ended_do_not_count_as_depth(bench: Bench) {
    let ids: Vec<_> = bench.insert(chain(100)).await.iter().map(|job| job.id).collect();
    for id in &ids {
        bench.end(*id, State::Completed).await;
    }
    let mut next = chain(100);
    next[0] = named("0").after([ids[99]]);
    let last = bench.insert(next).await[99].id;
    bench.try_insert(vec![job().after([last])]).await.expect_err("101 unfinished jobs");
}

/// One job is added for each that ends, so that fifty are unfinished at any time.
async fn w1_a_chain_may_grow_for_ever_while_its_front_ends(bench: Bench) {
    let mut chain: Vec<_> = bench.insert(chain(50)).await.iter().map(|job| job.id).collect();
    for number in 0..120 {
        bench.end(chain[number], State::Completed).await;
        let last = chain[chain.len() - 1];
        chain.push(bench.enqueue(job().after([last])).await);
    }
    let unfinished = bench.list(&Filter::default()).await.iter().filter(|job| !job.state.is_terminal()).count();
    assert_eq!(unfinished, 50);
    let mut deepest = chain[chain.len() - 1];
    for _ in 50..100 {
        deepest = bench.enqueue(job().after([deepest])).await;
    }
    bench.try_insert(vec![job().after([deepest])]).await.expect_err("101 unfinished jobs");
    bench.assert_sound().await;
}

async fn w1_a_job_may_have_1000_dependencies_and_not_1001(bench: Bench) {
    let ids: Vec<_> = bench.insert(vec![job(); DEPENDENCIES_MAX + 1]).await.iter().map(|job| job.id).collect();
    let refused = bench.try_insert(vec![job().after(ids.iter().copied())]).await.expect_err("1,001");
    assert!(matches!(refused, Error::DependencyLimit { size: 1001, limit: 1000, .. }), "{refused}");
    let most = bench.enqueue(named("most").after(ids[..DEPENDENCIES_MAX].iter().copied())).await;
    assert_eq!(bench.job(most).await.spec.depends_on.len(), DEPENDENCIES_MAX);
    assert_eq!(bench.totals().await.accepted, 1002);
}

async fn w2_a_bad_end_goes_through_the_graph_and_names_its_root(bench: Bench) {
    for end in BAD_ENDS {
        // 0 ← 1 ← … ← 5, and 6 after both 2 and 4.
        let mut jobs = chain(6);
        jobs.push(after_place(after_place(named("6"), 2), 4));
        let ids: Vec<_> = bench.insert(jobs).await.iter().map(|job| job.id).collect();
        bench.end(ids[0], State::Completed).await;
        bench.end(ids[1], end).await;
        for id in &ids[2..] {
            assert_died_of(&bench, *id, end, ids[1]).await;
        }
    }
    bench.assert_sound().await;
}

async fn w2_a_dependency_lost_in_upkeep_takes_its_dependents_along(bench: Bench) {
    let lost = bench.running(job().max_attempts(1)).await.job.id;
    let dependent = bench.enqueue(named("after").after([lost])).await;
    bench.pass(LEASE).await;
    assert_died_of(&bench, dependent, State::DeadLetter, lost).await;
    let old = bench.enqueue(job().lifetime(SECOND)).await;
    let dependent = bench.enqueue(named("after").after([old])).await;
    bench.pass(SECOND).await;
    assert_died_of(&bench, dependent, State::DeadLetter, old).await;
}

async fn w2_an_operator_ends_the_dependents_too(bench: Bench) {
    let acts = [
        (Act::Cancel { force: false }, State::Cancelled),
        (Act::Cancel { force: true }, State::Cancelled),
        (Act::DeadLetter, State::DeadLetter),
    ];
    for (act, end) in acts {
        let first = bench.enqueue(job()).await;
        let dependent = bench.enqueue(named("after").after([first])).await;
        bench.act(first, act).await;
        assert_died_of(&bench, dependent, end, first).await;
    }
}

async fn w2_after_all_waits_for_every_end_however(bench: Bench) {
    let ends = [State::Completed, State::Failed, State::DeadLetter, State::Cancelled];
    let mut ids = Vec::new();
    for end in ends {
        ids.push(bench.enqueue(named(end.as_str())).await);
    }
    let waiting = bench.enqueue(job().after_all(ids.iter().copied())).await;
    for (id, end) in ids.into_iter().zip(ends) {
        assert_eq!(bench.state(waiting).await, State::Pending);
        bench.end(id, end).await;
    }
    assert_eq!(bench.state(waiting).await, State::Scheduled);
}

async fn w2_after_any_waits_for_the_first_end_however(bench: Bench) {
    for end in [State::Completed, State::Failed, State::DeadLetter, State::Cancelled] {
        let first = bench.enqueue(named("first")).await;
        let second = bench.enqueue(named("second")).await;
        let waiting = bench.enqueue(named("waiting").after_any([first, second])).await;
        assert_eq!(bench.state(waiting).await, State::Pending);
        bench.end(first, end).await;
        assert_eq!(bench.state(waiting).await, State::Scheduled);
        bench.end(waiting, State::Completed).await;
        bench.end(second, end).await;
        assert_eq!(bench.state(waiting).await, State::Completed, "the second end changes nothing");
    }
    bench.assert_sound().await;
}

async fn w2_kinds_may_be_mixed_on_one_job(bench: Bench) {
    let mut ids = Vec::new();
    for name in ["after", "any 1", "any 2", "all"].map(|name| name.replace(' ', "-")) {
        ids.push(bench.enqueue(named(&name)).await);
    }
    let (after, any, other, all) = (ids[0], ids[1], ids[2], ids[3]);
    let mixed = bench.enqueue(job().after([after]).after_any([any, other]).after_all([all])).await;
    bench.end(all, State::Cancelled).await;
    bench.end(after, State::Completed).await;
    assert_eq!(bench.state(mixed).await, State::Pending);
    bench.end(other, State::Failed).await;
    assert_eq!(bench.state(mixed).await, State::Scheduled);
    bench.end(any, State::Completed).await;
    bench.assert_sound().await;
}

async fn w3_a_dependency_that_has_ended_counts_at_once(bench: Bench) {
    let ended = bench.in_state(State::Completed).await;
    assert_eq!(bench.insert(vec![job().after([ended])]).await[0].state, Some(State::Scheduled));
    let open = bench.in_state(State::Delayed).await;
    let any = bench.insert(vec![job().after_any([open, ended])]).await[0];
    assert_eq!(any.state, Some(State::Scheduled));
    let both = bench.insert(vec![job().after([open, ended])]).await[0];
    assert_eq!(both.state, Some(State::Pending));
    bench.assert_sound().await;
}

async fn w3_a_dependency_that_ended_badly_counts_at_once(bench: Bench) {
    for end in BAD_ENDS {
        let ended = bench.in_state(end).await;
        let jobs = bench.insert(vec![job().after([ended]), after_place(job(), 0)]).await;
        for dependent in jobs {
            assert_eq!(dependent.state, Some(end));
            assert_died_of(&bench, dependent.id, end, ended).await;
        }
        let all = bench.insert(vec![named("all").after_all([ended])]).await[0];
        assert_eq!(all.state, Some(State::Scheduled), "AFTER_ALL does not mind");
        bench.end(all.id, State::Completed).await;
    }
    bench.assert_sound().await;
}

async fn w3_a_dependent_inherits_the_most_urgent_priority(bench: Bench) {
    let high = bench.enqueue(named("high").priority(Priority::High)).await;
    let low = bench.enqueue(named("low").priority(Priority::Low)).await;
    let heir = bench.enqueue(named("heir").priority(Priority::Bulk).after([low, high])).await;
    let grandchild = bench.enqueue(named("grandchild").priority(Priority::Bulk).after([heir])).await;
    let urgent = bench.enqueue(named("urgent").priority(Priority::Critical).after([high])).await;
    for (id, own, effective) in [
        (heir, Priority::Bulk, Priority::High),
        (grandchild, Priority::Bulk, Priority::High),
        (urgent, Priority::Critical, Priority::Critical),
    ] {
        let job = bench.job(id).await;
        assert_eq!((job.spec.priority, job.effective_priority()), (own, effective));
    }
    for id in [high, low] {
        bench.end(id, State::Completed).await;
    }
    let normal = bench.enqueue(job()).await;
    assert_eq!(bench.claim_ids(3).await, [urgent, heir, normal], "claims go by the effective priority");
}

async fn w3_a_job_may_keep_its_own_priority(bench: Bench) {
    let high = bench.enqueue(named("high").priority(Priority::High)).await;
    let own = bench.enqueue(named("own").priority(Priority::Bulk).own_priority_only().after([high])).await;
    let job = bench.job(own).await;
    assert_eq!((job.inherited_priority, job.effective_priority()), (None, Priority::Bulk));
}

async fn edit_priority(bench: &Bench, id: JobId, priority: Priority) {
    bench.act(id, Act::Edit(Edit { priority: Some(priority), ..Edit::default() })).await;
}

async fn effective(bench: &Bench, ids: &[JobId]) -> Vec<Priority> {
    let found = bench.store.find(ids).await.expect("find");
    found.into_iter().map(|job| job.expect("the job should exist").effective_priority()).collect()
}

async fn w3_waiting_dependents_follow_an_edited_priority(bench: Bench) {
    let first = bench.enqueue(named("first").priority(Priority::Low)).await;
    let other = bench.enqueue(named("other").priority(Priority::Normal)).await;
    let heir = bench.enqueue(named("heir").priority(Priority::Bulk).after([first, other])).await;
    let grandchild = bench.enqueue(named("grandchild").priority(Priority::Bulk).after([heir])).await;
    let own = bench.enqueue(named("own").priority(Priority::Bulk).own_priority_only().after([first])).await;
    let done = bench.enqueue(named("done").priority(Priority::Bulk).after_any([first, other])).await;
    bench.end(other, State::Completed).await;
    let all = [heir, grandchild, own, done];
    use Priority::{Bulk, Critical, Normal};
    assert_eq!(effective(&bench, &all).await, [Normal, Normal, Bulk, Normal]);
    edit_priority(&bench, first, Critical).await;
    assert_eq!(effective(&bench, &all).await, [Critical, Critical, Bulk, Normal], "one is released and waits no more");
    edit_priority(&bench, heir, Priority::High).await;
    edit_priority(&bench, first, Bulk).await;
    let is = effective(&bench, &all).await;
    assert_eq!(is, [Priority::High, Priority::High, Bulk, Normal], "its own priority holds when the other's falls");
    let job = bench.job(heir).await;
    assert_eq!((job.spec.priority, job.inherited_priority), (Priority::High, Some(Normal)), "both are kept");
    bench.end(first, State::Completed).await;
    let plain = bench.enqueue(named("plain")).await;
    assert_eq!(bench.claim_ids(2).await, [heir, done], "the claim goes by it");
    assert_eq!(bench.state(plain).await, State::Scheduled);
    bench.assert_sound().await;
}

async fn w3_a_fan_in_is_as_urgent_as_a_child_it_gains(bench: Bench) {
    let parent = bench.running(named("parent")).await;
    let fan_in = |name: &str| named(name).depends_on(DependsOn::Job(parent.job.id), DependencyKind::FanInSuccess);
    let join = bench.enqueue(fan_in("join").priority(Priority::Bulk)).await;
    let after = bench.enqueue(named("after").priority(Priority::Bulk).after([join])).await;
    let own = bench.enqueue(fan_in("own").priority(Priority::Bulk).own_priority_only()).await;
    let all = [join, after, own];
    assert_eq!(effective(&bench, &all).await, [Priority::Normal, Priority::Normal, Priority::Bulk]);
    let children = vec![named("slow").priority(Priority::Low), named("urgent").priority(Priority::Critical)];
    bench.complete_and_spawn(parent.lease, children).await;
    assert_eq!(effective(&bench, &all).await, [Priority::Critical, Priority::Critical, Priority::Bulk]);
    bench.assert_sound().await;
}

async fn w4_a_dependent_is_released_with_the_settlement(bench: Bench) {
    let first = bench.running(named("first")).await;
    let second = bench.enqueue(named("second").after([first.job.id])).await;
    assert!(bench.claim(10).await.is_empty(), "a PENDING job is not claimed");
    let early = bench.enqueue(named("early")).await;
    bench.advance(SECOND);
    bench.complete(first.lease).await;
    let job = bench.job(second).await;
    assert_eq!((job.state, job.scheduled_at, job.position), (State::Scheduled, Some(bench.now()), bench.now()));
    assert_eq!(bench.claim_ids(10).await, [early, second], "its place is from its release on");
}

async fn w4_a_retry_of_the_dependency_does_not_release(bench: Bench) {
    let first = bench.running(job()).await;
    let second = bench.enqueue(named("second").after_any([first.job.id])).await;
    bench.fail(first.lease).await;
    assert_eq!(bench.state(second).await, State::Pending);
    bench.advance(2 * SECOND);
    let again = bench.claim_one().await;
    bench.apply(again.lease.snooze(SECOND)).await;
    assert_eq!(bench.state(second).await, State::Pending);
}

async fn w4_dependencies_settled_in_one_call_release_once(bench: Bench) {
    let ids: Vec<_> = bench.insert(vec![job(); 10]).await.iter().map(|job| job.id).collect();
    let waiting = bench.enqueue(named("waiting").after(ids.clone()).after_any(ids)).await;
    let settlements: Vec<_> = bench.claim(10).await.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
    let answers = bench.store.settle(&settlements).await.expect("settle");
    assert!(answers.iter().all(|answer| matches!(answer, Settled::Applied(State::Completed))), "{answers:?}");
    assert_eq!(bench.state(waiting).await, State::Scheduled);
    let again = bench.store.settle(&settlements).await.expect("settle");
    assert!(again.iter().all(|answer| matches!(answer, Settled::AlreadyApplied)), "{again:?}");
    assert_eq!(bench.claim_ids(10).await, [waiting]);
    bench.assert_sound().await;
}

async fn w4_a_dependent_with_a_later_first_run_is_delayed(bench: Bench) {
    let first = bench.enqueue(named("first")).await;
    let due = bench.now().plus(10 * SECOND);
    let second = bench.enqueue(named("second").after([first]).run_at(due)).await;
    let third = bench.enqueue(named("third").after([first]).delay(SECOND)).await;
    bench.advance(SECOND);
    bench.end(first, State::Completed).await;
    let job = bench.job(second).await;
    assert_eq!((job.state, job.run_at), (State::Delayed, Some(due)));
    assert_eq!(bench.state(third).await, State::Scheduled, "its first run had passed while it waited");
    bench.advance(9 * SECOND);
    assert_eq!(bench.claim_ids(10).await, [third, second]);
}

/// Asserts that a job ended so because of `cause`.
async fn assert_died_of(bench: &Bench, id: JobId, end: State, cause: JobId) {
    let job = bench.job(id).await;
    assert_eq!(job.state, end);
    let failure = job.failure.expect("a failure");
    assert_eq!(failure.code.as_deref(), Some(CODE_DEPENDENCY));
    assert!(failure.message.contains(&cause.to_string()), "{}", failure.message);
    let reason = job.reason.expect("a reason");
    assert_eq!((reason.kind, reason.cause), (ReasonKind::Dependency, Some(cause)));
}
