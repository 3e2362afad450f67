//! Section 7 of the contract, as far as it is the store's: execution timeout, visibility timeout and lifetime.

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job, no_jitter, worker};
use super::moves::{named, queue, requeue};
use crate::job::{
    CODE_EXECUTION_TIMEOUT, CODE_LEASE_EXPIRED, CODE_LIFETIME, Category, JobId, Lease, Outcome, Priority, ReasonKind,
    RetryPolicy, Stale, State,
};
use crate::store::{Act, ClaimRequest, Edit, Extended, Settled, Upkeep};

chapter! {
    t1b_no_lease_is_extended_beyond_the_execution_timeout_and_ten_seconds,
    t1b_a_claim_gives_no_longer_lease_than_the_execution_timeout_and_ten_seconds,
    t1b_a_settlement_after_that_is_stale_and_upkeep_closes_the_attempt_as_timeout,
    t1b_a_holder_that_never_comes_back_ends_in_timeout_only_if_it_held_to_the_end,
    t1b_a_timeout_of_the_store_follows_retry_on_and_a_cancel_that_was_asked,
    t1b_each_attempt_has_the_whole_execution_timeout,
    t1b_the_standard_execution_timeout_and_none,
    t2_a_claim_that_names_no_lease_time_gets_the_visibility_timeout,
    t4_the_lifetime_ends_a_job_in_any_state,
    t4_the_lifetime_is_seven_days_unless_set,
    t4_the_seven_days_end_in_every_queue_and_after_any_history,
    t4_a_job_without_lifetime_waits_for_ever,
    t4_a_job_past_its_lifetime_is_not_claimed,
    t4_a_lease_ends_with_the_lifetime,
    t4_a_requeued_job_has_a_new_lifetime,
    t4_a_first_run_beyond_the_lifetime_is_refused,
    t4_the_default_lifetime_counts_from_a_first_run_that_lies_ahead,
    t4_upkeep_ends_lifetimes_in_bounded_steps,
    t4_of_lifetimes_that_end_together_the_first_submitted_ends_first,
}

const HOUR: Duration = Duration::from_secs(3600);
const MICRO: Duration = Duration::from_micros(1);

async fn t2_a_claim_that_names_no_lease_time_gets_the_visibility_timeout(bench: Bench) {
    bench.enqueue(job()).await;
    bench.enqueue(job().visibility_timeout(Duration::from_secs(90))).await;
    let request = ClaimRequest::new(worker("w1"), queue("default"), 2);
    let claimed = bench.store.claim(&request).await.expect("claim");
    let seconds: Vec<_> = claimed.iter().map(|claimed| claimed.expires_in.as_secs()).collect();
    assert_eq!(seconds, [300, 90]);
    let ends = bench.job(claimed[1].job.id).await.lease.expect("a lease").expires_at;
    assert_eq!(ends, bench.now().plus(Duration::from_secs(90)));
}

const TEN: Duration = Duration::from_secs(10);

/// Extends a lease as a holder does that goes on for ever; gives how long it was held in all.
async fn held_for(bench: &Bench, lease: &Lease, step: Duration) -> Duration {
    let begun = bench.now();
    loop {
        bench.advance(step);
        match bench.extend(lease.key()).await {
            Extended::Held { .. } => {}
            Extended::Lost(stale) => {
                assert_eq!(stale, Stale::Expired);
                return bench.now().since(begun);
            }
        }
    }
}

async fn t1b_no_lease_is_extended_beyond_the_execution_timeout_and_ten_seconds(bench: Bench) {
    let execution = Duration::from_secs(50);
    // One alone, several alike, several that differ, one with a key and one that waited: every way into the store.
    let mut jobs = vec![bench.enqueue(job().execution_timeout(execution)).await];
    jobs.extend(bench.insert(vec![job().execution_timeout(execution); 2]).await.iter().map(|job| job.id));
    let mixed = vec![job().execution_timeout(execution), job().priority(Priority::Low).execution_timeout(execution)];
    jobs.extend(bench.insert(mixed).await.iter().map(|job| job.id));
    jobs.push(bench.enqueue(job().execution_timeout(execution).idempotency_key("once")).await);
    jobs.push(bench.enqueue(job().execution_timeout(execution).after_all([jobs[0]])).await);
    let first = bench.claim(1).await.remove(0);
    bench.apply(first.lease.complete(None)).await;
    let claimed = bench.claim(10).await;
    assert_eq!(claimed.len(), jobs.len() - 1);
    let limit = bench.now().plus(execution + TEN);
    bench.advance(Duration::from_secs(29));
    for one in &claimed {
        let Extended::Held { expires_in, .. } = bench.extend(one.lease.key()).await else { panic!("held") };
        assert_eq!(expires_in, LEASE);
    }
    bench.advance(Duration::from_secs(20));
    for one in &claimed {
        let Extended::Held { expires_in, .. } = bench.extend(one.lease.key()).await else { panic!("held") };
        assert_eq!(expires_in, Duration::from_secs(11), "ten seconds after the execution timeout");
        assert_eq!(bench.job(one.job.id).await.lease.expect("a lease").expires_at, limit);
    }
    bench.advance(Duration::from_secs(11));
    for one in &claimed {
        let lost = bench.extend(one.lease.key()).await;
        assert!(matches!(lost, Extended::Lost(Stale::Expired)), "{lost:?}");
    }
    assert_eq!(bench.upkeep().await.expired, claimed.len());
    bench.assert_sound().await;
}

async fn t1b_a_claim_gives_no_longer_lease_than_the_execution_timeout_and_ten_seconds(bench: Bench) {
    for queue in ["default", "other"] {
        bench.enqueue(job().queue(queue).execution_timeout(Duration::from_secs(5))).await;
        bench.enqueue(job().queue(queue).execution_timeout(Duration::from_secs(20))).await;
    }
    // One lane alone, several together, and the visibility timeout in place of a lease time.
    let of_default = bench.claim(2).await;
    let told: Vec<_> = of_default.iter().map(|one| one.expires_in.as_secs()).collect();
    assert_eq!(told, [15, 30]);
    let mut request = ClaimRequest::new(worker("w1"), queue("default"), 4);
    request.queues.push((queue("other"), 4));
    let told: Vec<_> =
        bench.store.claim(&request).await.expect("claim").iter().map(|one| one.expires_in.as_secs()).collect();
    assert_eq!(told, [15, 30], "of five minutes");
}

async fn t1b_a_settlement_after_that_is_stale_and_upkeep_closes_the_attempt_as_timeout(bench: Bench) {
    let execution = Duration::from_secs(5);
    let claimed = bench.running(job().execution_timeout(execution).retry(no_jitter(2))).await;
    let id = claimed.job.id;
    bench.advance(execution + TEN - MICRO);
    assert!(matches!(bench.extend(claimed.lease.key()).await, Extended::Held { expires_in: MICRO, .. }));
    bench.advance(MICRO);
    let again = Lease::granted(&claimed.job, claimed.lease.key().token);
    let late = bench.settle(&claimed.lease.complete(None)).await;
    assert!(matches!(late, Settled::Stale(Stale::Expired)), "{late:?}");
    assert_eq!(bench.upkeep().await.expired, 1);
    let job = bench.job(id).await;
    assert_eq!((job.state, job.failures, job.lost), (State::Retrying, 1, 0));
    let failure = job.failure.expect("a failure");
    assert_eq!((failure.category, failure.code.as_deref()), (Category::Timeout, Some(CODE_EXECUTION_TIMEOUT)));
    let attempt = bench.attempts(id).await.pop().expect("an attempt");
    assert_eq!((attempt.outcome, attempt.ended_at), (Some(Outcome::Revoked), Some(bench.now())));
    assert_eq!(attempt.failure.map(|failure| failure.category), Some(Category::Timeout));
    // What the holder says even later is its own failure, not the one that was recorded.
    let later = bench.settle(&again.fail(crate::job::Failure::temporary("busy"), &mut || 0.5)).await;
    assert!(matches!(later, Settled::Stale(Stale::NotRunning)), "{later:?}");
    bench.assert_sound().await;
}

async fn t1b_a_holder_that_never_comes_back_ends_in_timeout_only_if_it_held_to_the_end(bench: Bench) {
    let execution = Duration::from_secs(60);
    let gone = bench.running(named("gone").execution_timeout(execution).retry(no_jitter(1))).await;
    let held = bench.running(named("held").execution_timeout(execution).retry(no_jitter(1))).await;
    bench.advance(Duration::from_secs(29));
    bench.extend(held.lease.key()).await;
    bench.advance(Duration::from_secs(29));
    bench.extend(held.lease.key()).await;
    bench.advance(HOUR);
    assert_eq!(bench.upkeep().await.expired, 2);
    let code = async |id| bench.job(id).await.failure.expect("a failure").code.expect("a code");
    assert_eq!(code(gone.job.id).await, CODE_LEASE_EXPIRED, "its lease ended before the timeout");
    assert_eq!(code(held.job.id).await, CODE_EXECUTION_TIMEOUT);
    let ended = bench.job(held.job.id).await;
    assert_eq!((ended.state, ended.reason.expect("a reason").kind), (State::DeadLetter, ReasonKind::Exhausted));
}

async fn t1b_a_timeout_of_the_store_follows_retry_on_and_a_cancel_that_was_asked(bench: Bench) {
    let short = Duration::from_secs(5);
    let policy = RetryPolicy { retry_on: vec![Category::Temporary, Category::System], ..no_jitter(3) };
    let once = bench.running(named("once").execution_timeout(short).retry(policy)).await;
    let asked = bench.running(named("asked").execution_timeout(short)).await;
    bench.act(asked.job.id, crate::store::Act::Cancel { force: false }).await;
    bench.advance(short + TEN);
    assert_eq!(bench.upkeep().await.expired, 2);
    let job = bench.job(once.job.id).await;
    assert_eq!((job.state, job.reason.expect("a reason").kind), (State::Failed, ReasonKind::Permanent));
    let job = bench.job(asked.job.id).await;
    assert_eq!((job.state, job.failures), (State::Cancelled, 1));
    assert_eq!(job.failure.expect("a failure").category, Category::Timeout);
}

async fn t1b_each_attempt_has_the_whole_execution_timeout(bench: Bench) {
    let execution = Duration::from_secs(40);
    let claimed = bench.running(job().execution_timeout(execution).retry(no_jitter(5))).await;
    let id = claimed.job.id;
    bench.advance(Duration::from_secs(25));
    bench.apply(claimed.lease.interrupt()).await;
    // Given back through every way: interrupted, failed, lost.
    let again = bench.take(id).await;
    assert_eq!(held_for(&bench, &again.lease, Duration::from_secs(5)).await, execution + TEN);
    bench.upkeep().await;
    bench.advance(HOUR);
    let third = bench.take(id).await;
    assert_eq!(third.job.attempt, 3);
    assert_eq!(held_for(&bench, &third.lease, Duration::from_secs(5)).await, execution + TEN);
}

async fn t1b_the_standard_execution_timeout_and_none(bench: Bench) {
    let standard = bench.running(named("standard")).await;
    let endless = bench.running(named("endless").execution_timeout(None)).await;
    let step = Duration::from_secs(10);
    let begun = bench.now();
    let mut standard_ended = None;
    for _ in 0..400 {
        bench.advance(step);
        if standard_ended.is_none() && matches!(bench.extend(standard.lease.key()).await, Extended::Lost(_)) {
            standard_ended = Some(bench.now().since(begun));
        }
        let Extended::Held { expires_in, .. } = bench.extend(endless.lease.key()).await else { panic!("held") };
        assert_eq!(expires_in, LEASE);
    }
    assert_eq!(standard_ended, Some(Duration::from_secs(30 * 60) + TEN), "30 minutes unless set");
    bench.apply(endless.lease.complete(None)).await;
}

async fn t4_the_lifetime_ends_a_job_in_any_state(bench: Bench) {
    let short = |name: &str| named(name).lifetime(HOUR).retry(no_jitter(3));
    let delayed = bench.enqueue(short("delayed").delay(HOUR - MICRO)).await;
    let scheduled = bench.enqueue(short("scheduled")).await;
    let running = bench.enqueue(short("running")).await;
    let retrying = bench.enqueue(short("retrying")).await;
    // AFTER_ALL, so that it dies of its own lifetime and not of its dependency's.
    let pending = bench.enqueue(short("pending").after_all([delayed])).await;
    let failed = bench.take(retrying).await;
    let failure = crate::job::Failure::temporary("busy").retry_after(HOUR);
    bench.apply(failed.lease.fail(failure, &mut || 0.5)).await;
    bench.take(running).await;
    let ids = [pending, delayed, scheduled, running, retrying];
    bench.advance(HOUR);
    assert_eq!(bench.upkeep().await.lifetimes, 5);
    for id in ids {
        assert_dead_of_lifetime(&bench, id).await;
    }
    let attempt = bench.attempts(running).await.pop().expect("an attempt");
    assert_eq!(attempt.outcome, Some(Outcome::Revoked), "a running lease is revoked");
    bench.assert_sound().await;
}

async fn t4_the_lifetime_is_seven_days_unless_set(bench: Bench) {
    let id = bench.enqueue(job()).await;
    let week = 7 * 24 * HOUR;
    assert_eq!(bench.job(id).await.deadline, Some(bench.now().plus(week)));
    bench.pass(week - MICRO).await;
    assert_eq!(bench.state(id).await, State::Scheduled);
    bench.pass(MICRO).await;
    assert_dead_of_lifetime(&bench, id).await;
}

async fn t4_the_seven_days_end_in_every_queue_and_after_any_history(bench: Bench) {
    let week = 7 * 24 * HOUR;
    let interrupted = bench.running(named("interrupted")).await;
    let mut ids = vec![interrupted.job.id];
    for queue in ["default", "mail", "reports"] {
        for priority in [Priority::Critical, Priority::Normal, Priority::Bulk] {
            ids.push(bench.enqueue(job().queue(queue).priority(priority)).await);
        }
        // Named, so that it counts from submission like the others; the default would count from the first run (T4).
        ids.push(bench.enqueue(job().queue(queue).delay(HOUR).lifetime(week)).await);
    }
    bench.advance(2 * MICRO);
    bench.apply(interrupted.lease.release()).await;
    let younger = bench.enqueue(job()).await;
    assert_eq!(bench.pass(week - 3 * MICRO).await.lifetimes, 0);
    bench.advance(MICRO);
    let mut ended = 0;
    loop {
        let step = bench.store.upkeep(&Upkeep { limit: 5, ..Upkeep::default() }).await.expect("upkeep");
        ended += step.lifetimes;
        if !step.more {
            break;
        }
    }
    assert_eq!(ended, ids.len());
    for id in ids {
        assert_dead_of_lifetime(&bench, id).await;
    }
    assert_eq!(bench.state(younger).await, State::Scheduled);
    bench.assert_sound().await;
}

async fn t4_a_job_without_lifetime_waits_for_ever(bench: Bench) {
    let id = bench.enqueue(job().lifetime(None)).await;
    assert_eq!(bench.pass(20 * 366 * 24 * HOUR).await.lifetimes, 0);
    assert_eq!(bench.claim_ids(1).await, [id]);
}

async fn t4_a_job_past_its_lifetime_is_not_claimed(bench: Bench) {
    bench.enqueue(job().lifetime(HOUR)).await;
    let later = bench.enqueue(job().lifetime(2 * HOUR)).await;
    bench.advance(HOUR);
    assert_eq!(bench.claim_ids(10).await, [later], "before upkeep has looked");
}

async fn t4_a_lease_ends_with_the_lifetime(bench: Bench) {
    let lifetime = Duration::from_secs(40);
    let claimed = bench.running(job().lifetime(lifetime)).await;
    let deadline = bench.now().plus(lifetime);
    assert_eq!(claimed.expires_in, LEASE);
    bench.advance(Duration::from_secs(20));
    let Extended::Held { expires_in, .. } = bench.extend(claimed.lease.key()).await else { panic!("held") };
    assert_eq!(expires_in, Duration::from_secs(20));
    assert_eq!(bench.job(claimed.job.id).await.lease.expect("a lease").expires_at, deadline);
    bench.advance(Duration::from_secs(20));
    let late = bench.settle(&claimed.lease.complete(None)).await;
    assert!(matches!(late, Settled::Stale(Stale::Expired)), "{late:?}");
    bench.upkeep().await;
    assert_dead_of_lifetime(&bench, claimed.job.id).await;
}

async fn t4_a_requeued_job_has_a_new_lifetime(bench: Bench) {
    let id = bench.enqueue(job().lifetime(HOUR)).await;
    bench.pass(2 * HOUR).await;
    bench.act(id, requeue()).await;
    assert_eq!(bench.job(id).await.deadline, Some(bench.now().plus(HOUR)));
    bench.pass(HOUR - MICRO).await;
    assert_eq!(bench.state(id).await, State::Scheduled);
}

async fn t4_a_first_run_beyond_the_lifetime_is_refused(bench: Bench) {
    let at = bench.now().plus(HOUR);
    let late = job().lifetime(HOUR).run_at(at);
    for batch in [vec![job(), late.clone()], vec![late.clone(); 2], vec![late]] {
        let refused = bench.try_insert(batch).await.expect_err("beyond");
        assert!(refused.to_string().contains("run_at"), "{refused}");
        assert_eq!(bench.totals().await.accepted, 0, "nothing of the batch is stored");
    }
    let last = job().lifetime(HOUR + MICRO).run_at(at);
    for batch in [vec![job().run_at(at), last.clone()], vec![last.clone(); 2], vec![last]] {
        for stored in bench.insert(batch).await {
            let job = bench.job(stored.id).await;
            assert_eq!((job.state, job.run_at), (State::Delayed, Some(at)));
        }
    }
}

async fn t4_the_default_lifetime_counts_from_a_first_run_that_lies_ahead(bench: Bench) {
    let week = 7 * 24 * HOUR;
    let at = bench.now().plus(3 * week);
    let mut ids = Vec::new();
    for later in [job().run_at(at), job().delay(3 * week)] {
        // One alone, several alike, one with a key, and one that waits for another.
        ids.push(bench.enqueue(later.clone()).await);
        ids.extend(bench.insert(vec![later.clone(); 2]).await.iter().map(|job| job.id));
        let keyed = later.clone().idempotency_key(format!("key-{}", ids.len()));
        ids.push(bench.enqueue(keyed).await);
        let first = ids[0];
        ids.push(bench.enqueue(later.after_all([first])).await);
    }
    for id in &ids {
        assert_eq!(bench.job(*id).await.deadline, Some(at.plus(week)));
    }
    assert_eq!(bench.pass(3 * week + week - MICRO).await.lifetimes, 0, "they may run for a week");
    assert_eq!(bench.pass(MICRO).await.lifetimes, ids.len());
    for id in ids {
        assert_dead_of_lifetime(&bench, id).await;
    }
    bench.assert_sound().await;
}

async fn t4_upkeep_ends_lifetimes_in_bounded_steps(bench: Bench) {
    let ids: Vec<_> = bench.insert(vec![job().lifetime(HOUR); 5]).await.iter().map(|job| job.id).collect();
    bench.advance(HOUR);
    let step = Upkeep { limit: 3, ..Upkeep::default() };
    let first = bench.store.upkeep(&step).await.expect("upkeep");
    assert_eq!((first.lifetimes, first.more), (3, true));
    let second = bench.store.upkeep(&step).await.expect("upkeep");
    assert_eq!((second.lifetimes, second.more), (2, false));
    assert_eq!(bench.states(&ids).await, vec![State::DeadLetter; 5]);
}

async fn t4_of_lifetimes_that_end_together_the_first_submitted_ends_first(bench: Bench) {
    let ids: Vec<_> = bench.insert(vec![job().lifetime(HOUR); 3]).await.iter().map(|job| job.id).collect();
    // Where it stands does not say when it was submitted.
    bench.act(ids[0], Act::Edit(Edit { priority: Some(Priority::Low), ..Edit::default() })).await;
    bench.advance(HOUR);
    let step = Upkeep { limit: 1, ..Upkeep::default() };
    for ended in 1..=3 {
        bench.store.upkeep(&step).await.expect("upkeep");
        let dead = bench.states(&ids).await.into_iter().map(|state| state == State::DeadLetter);
        assert_eq!(dead.collect::<Vec<_>>(), [true, ended > 1, ended > 2]);
    }
}

async fn assert_dead_of_lifetime(bench: &Bench, id: JobId) {
    let job = bench.job(id).await;
    assert_eq!(job.state, State::DeadLetter, "{}", job.spec.job_type);
    let failure = job.failure.expect("a failure");
    assert_eq!((failure.category, failure.code.as_deref()), (Category::Timeout, Some(CODE_LIFETIME)));
    assert_eq!(job.reason.expect("a reason").kind, ReasonKind::Lifetime);
    assert_eq!((job.completed_at, job.lease), (Some(bench.now()), None));
}
