//! Section 3 of the contract: the way of a job, S1 to S12. How jobs are ended and sent back is in `ends`.

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, failure, job, no_jitter};
use super::stage::{HOUR, MICRO, secs, snapshot};
use crate::job::{
    CODE_LEASE_EXPIRED, Category, DependencyKind, DependsOn, Failure, Outcome, Payload, ReasonKind, RetryPolicy,
    SimpleState, State,
};
use crate::store::Act;

chapter! {
    s1_a_new_job_is_pending_delayed_or_scheduled,
    s2_the_last_dependency_schedules_a_pending_job,
    s2_a_dependent_with_a_later_run_at_is_delayed,
    s3_a_pending_job_ends_as_its_dependency_ended,
    s4_a_delayed_job_is_scheduled_from_its_run_at,
    s4_a_retrying_job_is_scheduled_from_its_run_at,
    s5_only_a_scheduled_job_is_claimed,
    s6_success_completes_and_keeps_the_result,
    s6_success_clears_the_failure_but_not_the_history,
    s7_a_retryable_failure_with_attempts_left_retries,
    s8_the_last_counted_failure_dead_letters,
    s8_a_handler_dead_letters_with_attempts_left,
    s9_permanent_and_unretried_failures_fail_at_once,
    s10_a_lost_lease_schedules_and_counts,
    s10_an_interrupt_schedules_and_does_not_count,
    s10_a_release_schedules_and_does_not_count,
    s11_a_lease_lost_on_the_last_attempt_dead_letters,
    s12_a_snooze_delays_and_does_not_count,
    s12_any_number_of_snoozes_spends_no_attempt,
    s18_the_four_state_view_covers_the_nine,
}

async fn s1_a_new_job_is_pending_delayed_or_scheduled(bench: Bench) {
    let on_first = |kind| job().depends_on(DependsOn::Batch(0), kind);
    let inserted = bench
        .insert(vec![
            job(),
            job().delay(secs(1)),
            on_first(DependencyKind::After),
            on_first(DependencyKind::AfterAll).delay(secs(1)),
            job().delay(Duration::ZERO),
        ])
        .await;
    let expected = [State::Scheduled, State::Delayed, State::Pending, State::Pending, State::Scheduled];
    for (one, state) in inserted.iter().zip(expected) {
        assert_eq!(one.state, Some(state));
        assert_eq!(bench.state(one.id).await, state);
    }
    let claimed = bench.claim_ids(9).await;
    assert_eq!(claimed, [inserted[0].id, inserted[4].id]);
    bench.assert_sound().await;
}

async fn s2_the_last_dependency_schedules_a_pending_job(bench: Bench) {
    bench.insert(vec![job(); 2]).await;
    let mut claimed = bench.claim(2).await;
    let id = bench.enqueue(job().after(claimed.iter().map(|one| one.job.id))).await;
    bench.complete(claimed.remove(0).lease).await;
    assert_eq!(bench.state(id).await, State::Pending, "one of two is not enough");
    assert!(bench.claim(9).await.is_empty());
    bench.advance(secs(3));
    bench.complete(claimed.remove(0).lease).await;
    let job = bench.job(id).await;
    let now = bench.now();
    assert_eq!((job.state, job.scheduled_at, job.updated_at), (State::Scheduled, Some(now), now));
    assert_eq!((job.position, job.run_at), (now, None));
    assert_eq!(bench.claim_one().await.job.id, id);
    bench.assert_sound().await;
}

async fn s2_a_dependent_with_a_later_run_at_is_delayed(bench: Bench) {
    let first = bench.running(job()).await;
    let run_at = bench.now().plus(secs(10));
    let id = bench.enqueue(job().after([first.job.id]).run_at(run_at)).await;
    bench.advance(secs(4));
    bench.complete(first.lease).await;
    let job = bench.job(id).await;
    assert_eq!((job.state, job.run_at, job.updated_at), (State::Delayed, Some(run_at), bench.now()));
    bench.advance(secs(6));
    assert_eq!(bench.claim_one().await.job.id, id);
}

async fn s3_a_pending_job_ends_as_its_dependency_ended(bench: Bench) {
    for end in [State::Failed, State::DeadLetter, State::Cancelled] {
        let first = bench.running(job()).await;
        let on = first.job.id;
        let id = bench.enqueue(job().after([on])).await;
        let next = bench.enqueue(job().after([id])).await;
        bench.advance(secs(1));
        let settlement = match end {
            State::Failed => first.lease.fail(Failure::permanent("broken", "it is broken"), &mut || 0.5),
            State::DeadLetter => first.lease.fail(Failure::dead_letter("hopeless", "hopeless"), &mut || 0.5),
            _ => first.lease.cancel(),
        };
        assert_eq!(bench.apply(settlement).await, end);
        for dependent in [id, next] {
            let job = bench.job(dependent).await;
            assert_eq!((job.state, job.completed_at), (end, Some(bench.now())));
            let reason = job.reason.expect("a reason");
            assert_eq!((reason.kind, reason.cause), (ReasonKind::Dependency, Some(on)), "the one it began with");
            assert_eq!(job.failure.and_then(|failure| failure.code).as_deref(), Some("dependency"));
            assert!(bench.attempts(dependent).await.is_empty());
        }
    }
    bench.pass(HOUR).await;
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn s4_a_delayed_job_is_scheduled_from_its_run_at(bench: Bench) {
    let run_at = bench.now().plus(secs(10));
    let id = bench.enqueue(job().run_at(run_at)).await;
    bench.advance(secs(10) - MICRO);
    bench.upkeep().await;
    assert_eq!(bench.state(id).await, State::Delayed);
    assert!(bench.claim(9).await.is_empty());
    bench.advance(MICRO);
    assert_scheduled_from(&bench, id, run_at).await;
    bench.advance(secs(50));
    assert_scheduled_from(&bench, id, run_at).await;
    let totals = bench.store.totals().await.expect("totals");
    assert_eq!(totals.states[usize::from(State::Scheduled.number())], 1, "{totals:?}");
    assert_eq!(bench.claim_one().await.job.id, id, "no upkeep is needed");
    bench.assert_sound().await;
}

async fn s4_a_retrying_job_is_scheduled_from_its_run_at(bench: Bench) {
    let claimed = bench.running(job().retry(no_jitter(3))).await;
    let id = claimed.job.id;
    bench.fail(claimed.lease).await;
    let run_at = bench.now().plus(secs(1));
    bench.advance(secs(1) - MICRO);
    assert_eq!(bench.state(id).await, State::Retrying);
    assert!(bench.claim(9).await.is_empty());
    bench.advance(MICRO + secs(7));
    assert_scheduled_from(&bench, id, run_at).await;
    bench.upkeep().await;
    assert_scheduled_from(&bench, id, run_at).await;
    assert_eq!(bench.claim_one().await.job.id, id);
    bench.assert_sound().await;
}

async fn assert_scheduled_from(bench: &Bench, id: crate::job::JobId, run_at: crate::Timestamp) {
    let job = bench.job(id).await;
    assert_eq!((job.state, job.scheduled_at, job.run_at), (State::Scheduled, Some(run_at), None));
    assert_eq!((job.position, job.updated_at), (run_at, run_at));
}

async fn s5_only_a_scheduled_job_is_claimed(bench: Bench) {
    let mut others = Vec::new();
    for state in State::ALL.into_iter().filter(|state| *state != State::Scheduled) {
        others.push(bench.in_state(state).await);
    }
    let id = bench.in_state(State::Scheduled).await;
    let mut before = Vec::new();
    for other in &others {
        before.push(snapshot(&bench, *other).await.job);
    }
    assert_eq!(bench.claim_ids(100).await, [id]);
    assert!(bench.claim_ids(100).await.is_empty());
    for job in before {
        assert_eq!(bench.job(job.id).await, job);
    }
    bench.assert_sound().await;
}

async fn s6_success_completes_and_keeps_the_result(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    bench.advance(secs(2));
    let result = Payload::json(&[1, 2]).expect("json");
    assert_eq!(bench.apply(claimed.lease.complete(Some(result.clone()))).await, State::Completed);
    let job = bench.job(id).await;
    let now = bench.now();
    assert_eq!((job.state, job.completed_at, job.updated_at), (State::Completed, Some(now), now));
    assert_eq!((job.result, job.reason, job.failure, job.lease), (Some(result), None, None, None));
    assert_eq!((job.attempt, job.failures, job.lease_version), (1, 0, 1));
    bench.assert_sound().await;
}

async fn s6_success_clears_the_failure_but_not_the_history(bench: Bench) {
    let claimed = bench.running(job().retry(no_jitter(3))).await;
    let id = claimed.job.id;
    bench.fail(claimed.lease).await;
    assert!(bench.job(id).await.failure.is_some());
    bench.advance(secs(1));
    let claimed = bench.claim_one().await;
    assert!(claimed.job.failure.is_some(), "the next attempt sees why the last one failed");
    bench.complete(claimed.lease).await;
    let job = bench.job(id).await;
    assert_eq!((job.failure, job.failures, job.attempt), (None, 1, 2));
    assert!(bench.attempts(id).await[0].failure.is_some());
}

async fn s7_a_retryable_failure_with_attempts_left_retries(bench: Bench) {
    let id = bench.enqueue(job().retry(no_jitter(4))).await;
    for (n, delay) in [(1, 1), (2, 2), (3, 4)] {
        let claimed = bench.claim_one().await;
        let category = [Category::Temporary, Category::Timeout, Category::System][n - 1];
        assert_eq!(bench.apply(claimed.lease.fail(failure(category), &mut || 0.5)).await, State::Retrying);
        let job = bench.job(id).await;
        assert_eq!((job.state, job.run_at), (State::Retrying, Some(bench.now().plus(secs(delay)))));
        assert_eq!((job.failures as usize, job.attempt as usize, job.lost), (n, n, 0));
        assert_eq!((job.lease, job.completed_at, job.reason), (None, None, None));
        assert_eq!(job.failure.expect("a failure").category, category);
        bench.advance(secs(delay));
    }
    bench.assert_sound().await;
}

async fn s8_the_last_counted_failure_dead_letters(bench: Bench) {
    let id = bench.enqueue(job().retry(no_jitter(2))).await;
    let claimed = bench.claim_one().await;
    assert_eq!(bench.fail(claimed.lease).await, State::Retrying);
    bench.advance(secs(1));
    let claimed = bench.claim_one().await;
    assert_eq!(bench.fail(claimed.lease).await, State::DeadLetter);
    let job = bench.job(id).await;
    assert_eq!((job.failures, job.completed_at, job.run_at), (2, Some(bench.now()), None));
    assert_eq!(job.reason.expect("a reason").kind, ReasonKind::Exhausted);
    assert_eq!(job.failure.expect("a failure").category, Category::Temporary);
    bench.pass(HOUR).await;
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn s8_a_handler_dead_letters_with_attempts_left(bench: Bench) {
    let claimed = bench.running(job().max_attempts(9)).await;
    let id = claimed.job.id;
    let failure = Failure::dead_letter("hopeless", "nothing to be done");
    assert_eq!(bench.apply(claimed.lease.fail(failure, &mut || 0.5)).await, State::DeadLetter);
    let job = bench.job(id).await;
    assert_eq!(job.reason.expect("a reason").kind, ReasonKind::Explicit);
    assert_eq!(job.failure.expect("a failure").code.as_deref(), Some("hopeless"));
    assert_eq!(bench.attempts(id).await[0].outcome, Some(Outcome::DeadLettered));
    bench.assert_sound().await;
}

async fn s9_permanent_and_unretried_failures_fail_at_once(bench: Bench) {
    let only_temporary = RetryPolicy { retry_on: vec![Category::Temporary], ..no_jitter(9) };
    let unretried = [
        (Category::Permanent, no_jitter(9)),
        (Category::Timeout, only_temporary.clone()),
        (Category::System, only_temporary),
    ];
    for (category, policy) in unretried {
        let claimed = bench.running(job().retry(policy)).await;
        let id = claimed.job.id;
        assert_eq!(bench.apply(claimed.lease.fail(failure(category), &mut || 0.5)).await, State::Failed);
        let job = bench.job(id).await;
        assert_eq!((job.state, job.failures, job.completed_at), (State::Failed, 1, Some(bench.now())));
        assert_eq!(job.reason.expect("a reason").kind, ReasonKind::Permanent);
        assert_eq!(job.failure.expect("a failure").category, category);
    }
    bench.pass(HOUR).await;
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn s10_a_lost_lease_schedules_and_counts(bench: Bench) {
    let id = bench.running(job().max_attempts(3)).await.job.id;
    assert_eq!(bench.pass(LEASE).await.expired, 1);
    let job = bench.job(id).await;
    let now = bench.now();
    assert_eq!((job.state, job.scheduled_at, job.position), (State::Scheduled, Some(now), now));
    assert_eq!((job.attempt, job.failures, job.lost, job.lease), (1, 1, 1, None));
    let kept = job.failure.expect("a failure");
    assert_eq!((kept.category, kept.code.as_deref()), (Category::System, Some(CODE_LEASE_EXPIRED)));
    let attempts = bench.attempts(id).await;
    assert_eq!((attempts[0].outcome, attempts[0].failure.as_ref()), (Some(Outcome::Lost), Some(&kept)));
    assert_eq!(bench.pass(LEASE).await.expired, 0, "only once");
    bench.assert_sound().await;
}

async fn s10_an_interrupt_schedules_and_does_not_count(bench: Bench) {
    let claimed = bench.running(job().max_attempts(1)).await;
    let id = claimed.job.id;
    bench.advance(secs(1));
    assert_eq!(bench.apply(claimed.lease.interrupt()).await, State::Scheduled);
    assert_given_back(&bench, id, Outcome::Interrupted).await;

    let counting = RetryPolicy { interrupts_count: true, ..no_jitter(2) };
    let claimed = bench.running(job().retry(counting)).await;
    let id = claimed.job.id;
    assert_eq!(bench.apply(claimed.lease.interrupt()).await, State::Scheduled);
    assert_eq!(bench.job(id).await.failures, 1, "unless the policy says so");
    let claimed = bench.claim_one().await;
    assert_eq!(bench.apply(claimed.lease.interrupt()).await, State::DeadLetter);
}

async fn s10_a_release_schedules_and_does_not_count(bench: Bench) {
    let claimed = bench.running(job().max_attempts(1)).await;
    let id = claimed.job.id;
    bench.advance(secs(1));
    assert_eq!(bench.apply(claimed.lease.release()).await, State::Scheduled);
    assert_given_back(&bench, id, Outcome::Released).await;
}

/// Given back just now, at no cost; then claims and completes it.
async fn assert_given_back(bench: &Bench, id: crate::job::JobId, outcome: Outcome) {
    let job = bench.job(id).await;
    let now = bench.now();
    assert_eq!((job.state, job.scheduled_at, job.updated_at), (State::Scheduled, Some(now), now));
    assert_eq!((job.attempt, job.failures, job.lost), (1, 0, 0));
    assert_eq!((job.failure, job.reason, job.lease), (None, None, None));
    assert_eq!(bench.attempts(id).await[0].outcome, Some(outcome));
    let again = bench.claim_one().await;
    assert_eq!((again.job.id, again.lease.version(), again.lease.attempt()), (id, 2, 2));
    bench.complete(again.lease).await;
    bench.assert_sound().await;
}

async fn s11_a_lease_lost_on_the_last_attempt_dead_letters(bench: Bench) {
    let claimed = bench.running(job().retry(no_jitter(2))).await;
    let id = claimed.job.id;
    bench.fail(claimed.lease).await;
    bench.advance(secs(1));
    bench.claim_one().await;
    assert_eq!(bench.pass(LEASE).await.expired, 1);
    let job = bench.job(id).await;
    assert_eq!((job.state, job.failures, job.lost), (State::DeadLetter, 2, 1));
    assert_eq!((job.completed_at, job.lease, job.run_at), (Some(bench.now()), None, None));
    let kept = job.failure.expect("a failure");
    assert_eq!((kept.category, kept.code.as_deref()), (Category::System, Some(CODE_LEASE_EXPIRED)));
    assert_eq!(job.reason.expect("a reason").kind, ReasonKind::Exhausted);
    assert_eq!(bench.attempts(id).await[1].outcome, Some(Outcome::Lost));
    bench.pass(HOUR).await;
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn s12_a_snooze_delays_and_does_not_count(bench: Bench) {
    let claimed = bench.running(job().max_attempts(1)).await;
    let id = claimed.job.id;
    bench.advance(secs(2));
    assert_eq!(bench.apply(claimed.lease.snooze(secs(60))).await, State::Delayed);
    let job = bench.job(id).await;
    assert_eq!((job.state, job.run_at), (State::Delayed, Some(bench.now().plus(secs(60)))));
    assert_eq!((job.attempt, job.failures, job.failure, job.lease), (1, 0, None, None));
    bench.advance(secs(60) - MICRO);
    assert!(bench.claim(9).await.is_empty());
    bench.advance(MICRO);
    let again = bench.claim_one().await;
    assert_eq!((again.job.id, again.lease.attempt()), (id, 2));
    bench.assert_sound().await;
}

async fn s12_any_number_of_snoozes_spends_no_attempt(bench: Bench) {
    let id = bench.enqueue(job().max_attempts(1)).await;
    for _ in 0..20 {
        let claimed = bench.claim_one().await;
        bench.apply(claimed.lease.snooze(secs(1))).await;
        bench.pass(secs(1)).await;
    }
    let claimed = bench.claim_one().await;
    assert_eq!((claimed.job.id, claimed.job.attempt, claimed.job.failures), (id, 21, 0));
    assert_eq!(bench.fail(claimed.lease).await, State::DeadLetter, "the first failure is the last");
    bench.act(id, Act::Delete).await;
    bench.assert_sound().await;
}

async fn s18_the_four_state_view_covers_the_nine(bench: Bench) {
    let order = State::ALL.into_iter().filter(|state| *state != State::Scheduled).chain([State::Scheduled]);
    let mut seen = Vec::new();
    for state in order {
        let id = bench.in_state(state).await;
        seen.push((state, bench.job(id).await.state.simple()));
    }
    for (state, simple) in seen {
        let expected = match state {
            State::Pending | State::Delayed | State::Scheduled | State::Retrying => SimpleState::Ready,
            State::Running => SimpleState::InFlight,
            State::Completed => SimpleState::Succeeded,
            State::Failed | State::DeadLetter | State::Cancelled => SimpleState::Failed,
        };
        assert_eq!(simple, expected, "{state}");
    }
}
