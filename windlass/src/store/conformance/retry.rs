//! Section 6 of the contract: retries, backoff, and what an attempt leaves to the next.

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, failure, job, no_jitter};
use super::moves::{job_type, queue, requeue};
use crate::job::{
    CHECKPOINT_BYTES_MAX, CODE_INTERRUPTED, CODE_LEASE_EXPIRED, Category, Failure, LOG_LINE_BYTES_MAX, LOG_LINES_MAX,
    LeaseKey, Limits, Lost, Policies, PolicyPatch, Progress, ReasonKind, RetryPolicy, Stale, State,
};
use crate::store::Save;
use crate::workflow::Submission;

chapter! {
    r1_delays_double_up_to_the_maximum,
    r1_the_delay_is_kept_as_it_was_drawn,
    r1_the_delay_grows_with_failures_not_with_starts,
    r2_exhausted_exactly_when_failures_reach_max_attempts,
    r2_snoozes_releases_and_interruptions_do_not_count,
    r2_lost_attempts_count,
    r2_lost_free_forgives_ten_lost_attempts,
    r2_lost_backoff_waits_in_retrying,
    r2_interrupts_count_where_the_policy_says_so,
    r3_the_nearest_policy_is_stored_with_the_job,
    r3_a_category_that_is_not_retried_fails,
    r3_retry_after_replaces_the_delay_up_to_a_cap_of_its_own,
    r3b_a_reclaimed_job_follows_its_stored_policy,
    r4_the_next_attempt_receives_the_newest_checkpoint,
    r4_a_checkpoint_may_have_one_mebibyte,
    r4_a_stale_holder_saves_nothing,
    r4_one_stale_save_does_not_fail_the_others,
    r4_progress_is_replaced_and_moves_no_time,
    r4_the_newest_1000_log_lines_of_each_attempt_are_kept,
}

const SECOND: Duration = Duration::from_secs(1);
const MICRO: Duration = Duration::from_micros(1);

async fn r1_delays_double_up_to_the_maximum(bench: Bench) {
    let id = bench.enqueue(job().retry(RetryPolicy { max: 5 * SECOND, ..no_jitter(6) })).await;
    for seconds in [1, 2, 4, 5, 5] {
        let claimed = bench.claim_one().await;
        assert_eq!(bench.fail(claimed.lease).await, State::Retrying);
        let due = bench.now().plus(seconds * SECOND);
        assert_eq!(bench.job(id).await.run_at, Some(due));
        bench.advance(seconds * SECOND - MICRO);
        assert!(bench.claim(1).await.is_empty(), "claimed before its backoff of {seconds} s ended");
        bench.advance(MICRO);
    }
    let claimed = bench.claim_one().await;
    assert_eq!(bench.fail(claimed.lease).await, State::DeadLetter);
}

async fn r1_the_delay_is_kept_as_it_was_drawn(bench: Bench) {
    for (drawn, millis) in [(0.0, 900), (0.5, 1000), (0.75, 1050)] {
        let claimed = bench.running(job()).await;
        bench.apply(claimed.lease.fail(Failure::temporary("it broke"), &mut || drawn)).await;
        let due = bench.now().plus(Duration::from_millis(millis));
        assert_eq!(bench.job(claimed.job.id).await.run_at, Some(due), "± 10 % of 1 s, drawing {drawn}");
    }
}

async fn r1_the_delay_grows_with_failures_not_with_starts(bench: Bench) {
    let claimed = bench.running(job().retry(no_jitter(3))).await;
    bench.apply(claimed.lease.snooze(SECOND)).await;
    bench.advance(SECOND);
    let released = bench.claim_one().await;
    bench.apply(released.lease.release()).await;
    let third = bench.claim_one().await;
    assert_eq!(third.lease.attempt(), 3);
    bench.fail(third.lease).await;
    let job = bench.job(claimed.job.id).await;
    assert_eq!((job.failures, job.run_at), (1, Some(bench.now().plus(SECOND))));
}

async fn r2_exhausted_exactly_when_failures_reach_max_attempts(bench: Bench) {
    let id = bench.enqueue(job().retry(no_jitter(3))).await;
    for (failures, state) in [(1, State::Retrying), (2, State::Retrying), (3, State::DeadLetter)] {
        let claimed = bench.claim_one().await;
        assert_eq!(bench.fail(claimed.lease).await, state);
        assert_eq!(bench.job(id).await.failures, failures);
        bench.advance(10 * SECOND);
    }
    let job = bench.job(id).await;
    assert_eq!(job.reason.expect("a reason").kind, ReasonKind::Exhausted);
    assert_eq!(job.failure.expect("the last failure").message, "it broke");
    assert_eq!(bench.attempts(id).await.len(), 3);
}

async fn r2_snoozes_releases_and_interruptions_do_not_count(bench: Bench) {
    let first = bench.running(job().max_attempts(1)).await;
    let id = first.job.id;
    assert_eq!(bench.apply(first.lease.snooze(SECOND)).await, State::Delayed);
    bench.advance(SECOND);
    let second = bench.claim_one().await;
    assert_eq!(bench.apply(second.lease.release()).await, State::Scheduled);
    let third = bench.claim_one().await;
    assert_eq!(bench.apply(third.lease.interrupt()).await, State::Scheduled);
    let job = bench.job(id).await;
    assert_eq!((job.attempt, job.failures, job.failure), (3, 0, None));
    let fourth = bench.claim_one().await;
    assert_eq!(bench.complete(fourth.lease).await, State::Completed);
}

async fn r2_lost_attempts_count(bench: Bench) {
    let id = bench.running(job().max_attempts(2)).await.job.id;
    assert_eq!(bench.pass(LEASE).await.expired, 1);
    let job = bench.job(id).await;
    assert_eq!((job.state, job.failures, job.lost), (State::Scheduled, 1, 1));
    bench.claim_one().await;
    bench.pass(LEASE).await;
    let job = bench.job(id).await;
    assert_eq!((job.state, job.failures, job.lost), (State::DeadLetter, 2, 2));
    let failure = job.failure.expect("the last failure");
    assert_eq!((failure.category, failure.code.as_deref()), (Category::System, Some(CODE_LEASE_EXPIRED)));
}

async fn r2_lost_free_forgives_ten_lost_attempts(bench: Bench) {
    let id = bench.enqueue(job().retry(RetryPolicy { lost: Lost::Free, ..no_jitter(1) })).await;
    for lost in 1..=10 {
        bench.claim_one().await;
        bench.pass(LEASE).await;
        let job = bench.job(id).await;
        assert_eq!((job.state, job.failures, job.lost), (State::Scheduled, 0, lost));
    }
    bench.claim_one().await;
    bench.pass(LEASE).await;
    let job = bench.job(id).await;
    assert_eq!((job.state, job.failures, job.lost), (State::DeadLetter, 1, 11), "the eleventh counts");
}

async fn r2_lost_backoff_waits_in_retrying(bench: Bench) {
    let policy = RetryPolicy { lost_backoff: true, initial: 7 * SECOND, ..no_jitter(3) };
    let id = bench.running(job().retry(policy)).await.job.id;
    bench.pass(LEASE).await;
    let job = bench.job(id).await;
    assert_eq!((job.state, job.failures, job.run_at), (State::Retrying, 1, Some(bench.now().plus(7 * SECOND))));
    bench.advance(7 * SECOND - MICRO);
    assert!(bench.claim(1).await.is_empty());
    bench.advance(MICRO);
    assert_eq!(bench.claim_ids(1).await, [id]);
}

async fn r2_interrupts_count_where_the_policy_says_so(bench: Bench) {
    let policy = RetryPolicy { interrupts_count: true, ..no_jitter(2) };
    let first = bench.running(job().retry(policy)).await;
    let id = first.job.id;
    assert_eq!(bench.apply(first.lease.interrupt()).await, State::Scheduled);
    assert_eq!(bench.job(id).await.failures, 1);
    let second = bench.claim_one().await;
    assert_eq!(bench.apply(second.lease.interrupt()).await, State::DeadLetter);
    let failure = bench.job(id).await.failure.expect("the interruption");
    assert_eq!(failure.code.as_deref(), Some(CODE_INTERRUPTED));
}

async fn r3_the_nearest_policy_is_stored_with_the_job(bench: Bench) {
    let patch = |attempts| PolicyPatch { retry: Some(no_jitter(attempts)), ..PolicyPatch::default() };
    let policies =
        Policies::default().system(patch(11)).queue(queue("mail"), patch(12)).job_type(job_type("letter"), patch(13));
    let jobs = [
        (super::moves::named("note"), 11),
        (super::moves::named("note").queue("mail"), 12),
        (super::moves::named("letter").queue("mail"), 13),
        (super::moves::named("letter").queue("mail").max_attempts(14), 14),
    ];
    for (job, attempts) in jobs {
        let spec = job.check(&Limits::default(), &policies).expect("valid");
        let inserted = bench.store.insert(Submission::new(vec![spec]).expect("valid")).await.expect("insert");
        let stored = bench.job(inserted.jobs[0].id).await;
        assert_eq!(stored.spec.options.retry, no_jitter(attempts));
    }
}

async fn r3_a_category_that_is_not_retried_fails(bench: Bench) {
    let policy = || RetryPolicy { retry_on: vec![Category::Temporary], ..no_jitter(3) };
    let claimed = bench.running(job().retry(policy())).await;
    assert_eq!(bench.apply(claimed.lease.fail(failure(Category::Timeout), &mut || 0.5)).await, State::Failed);
    let job_record = bench.job(claimed.job.id).await;
    assert_eq!(job_record.reason.expect("a reason").kind, ReasonKind::Permanent);
    let lost = bench.running(job().retry(policy())).await.job.id;
    bench.pass(LEASE).await;
    assert_eq!(bench.state(lost).await, State::Failed, "a lost attempt is of category SYSTEM");
}

async fn r3_retry_after_replaces_the_delay_up_to_a_cap_of_its_own(bench: Bench) {
    // Contract R3: not the policy's maximum, which is for computed delays.
    for (asked, cap, given) in [(3, 24 * 3600, 3), (600, 24 * 3600, 600), (100 * 3600, 24 * 3600, 24 * 3600), (9, 5, 5)]
    {
        let policy = RetryPolicy { max: 10 * SECOND, retry_after_max: cap * SECOND, ..no_jitter(3) };
        let claimed = bench.running(job().retry(policy)).await;
        let failure = Failure::temporary("busy").retry_after(asked * SECOND);
        assert_eq!(bench.apply(claimed.lease.fail(failure, &mut || 0.5)).await, State::Retrying);
        assert_eq!(bench.job(claimed.job.id).await.run_at, Some(bench.now().plus(given * SECOND)));
    }
}

async fn r3b_a_reclaimed_job_follows_its_stored_policy(bench: Bench) {
    // The holder of the lease may have meant another delay; upkeep knows only what is stored.
    let policy = RetryPolicy { lost_backoff: true, ..RetryPolicy::constant(4 * SECOND, 3) };
    let id = bench.running(job().retry(policy)).await.job.id;
    bench.pass(LEASE).await;
    assert_eq!(bench.job(id).await.run_at, Some(bench.now().plus(4 * SECOND)));
}

async fn r4_the_next_attempt_receives_the_newest_checkpoint(bench: Bench) {
    let first = bench.running(job().max_attempts(2)).await;
    let id = first.job.id;
    assert_eq!(first.job.checkpoint, None);
    for words in ["page 1", "page 2"] {
        save(&bench, Save::under(first.lease.key()).checkpoint(words).expect("small")).await.expect("held");
    }
    bench.pass(LEASE).await;
    let second = bench.claim_one().await;
    assert_eq!(second.job.checkpoint.as_deref(), Some(&b"page 2"[..]), "kept through a lost attempt");
    bench.fail(second.lease).await;
    assert_eq!(bench.state(id).await, State::DeadLetter);
    bench.act(id, requeue()).await;
    assert_eq!(bench.claim_one().await.job.checkpoint.as_deref(), Some(&b"page 2"[..]), "kept through a requeue");
}

async fn r4_a_checkpoint_may_have_one_mebibyte(bench: Bench) {
    let claimed = bench.running(job()).await;
    let largest = vec![0xA5; CHECKPOINT_BYTES_MAX];
    save(&bench, Save::under(claimed.lease.key()).checkpoint(largest.clone()).expect("fits")).await.expect("held");
    assert_eq!(bench.job(claimed.job.id).await.checkpoint.as_deref(), Some(&largest[..]));
    let refused = Save::under(claimed.lease.key()).checkpoint(vec![0; CHECKPOINT_BYTES_MAX + 1]);
    assert_eq!(refused.expect_err("too large").name(), "PayloadTooLarge");
}

async fn r4_a_stale_holder_saves_nothing(bench: Bench) {
    let late = bench.running(job()).await.lease.key();
    let everything = |key: LeaseKey| {
        let progress = Progress::new(0.5, "late").expect("valid");
        Save::under(key).checkpoint("late").expect("small").progress(progress).log(["late".to_owned()])
    };
    bench.advance(LEASE);
    assert_eq!(save(&bench, everything(late)).await, Err(Stale::Expired));
    bench.upkeep().await;
    assert_eq!(save(&bench, everything(late)).await, Err(Stale::NotRunning));
    let newer = bench.claim_one().await;
    assert_eq!(save(&bench, everything(late)).await, Err(Stale::Mismatch));
    bench.complete(newer.lease).await;
    assert_eq!(save(&bench, everything(late)).await, Err(Stale::NotRunning));
    let job = bench.job(late.job).await;
    assert_eq!((job.checkpoint, job.progress), (None, None));
    assert!(bench.store.logs(late.job).await.expect("logs").is_empty());
}

async fn r4_one_stale_save_does_not_fail_the_others(bench: Bench) {
    let stale = bench.running(job()).await;
    let key = stale.lease.key();
    bench.complete(stale.lease).await;
    let held = bench.running(job()).await;
    let saves = [key, held.lease.key()].map(|key| Save::under(key).checkpoint("kept").expect("small"));
    assert_eq!(bench.store.save(&saves).await.expect("save"), [Err(Stale::NotRunning), Ok(())]);
    assert_eq!(bench.job(held.job.id).await.checkpoint.as_deref(), Some(&b"kept"[..]));
}

async fn r4_progress_is_replaced_and_moves_no_time(bench: Bench) {
    let claimed = bench.running(job()).await;
    let before = bench.job(claimed.job.id).await;
    bench.advance(SECOND);
    for (fraction, words) in [(0.25, "a quarter"), (1.0, "nearly there")] {
        let progress = Progress::new(fraction, words).expect("valid");
        save(&bench, Save::under(claimed.lease.key()).progress(progress.clone())).await.expect("held");
        let after = bench.job(claimed.job.id).await;
        assert_eq!(after.progress, Some(progress));
        assert_eq!((after.updated_at, &after.lease), (before.updated_at, &before.lease));
    }
}

async fn r4_the_newest_1000_log_lines_of_each_attempt_are_kept(bench: Bench) {
    let first = bench.running(job()).await;
    let id = first.job.id;
    let lines = |from: usize, to: usize| (from..to).map(|line| format!("line {line}"));
    for (from, to) in [(0, 700), (700, 1500)] {
        save(&bench, Save::under(first.lease.key()).log(lines(from, to))).await.expect("held");
    }
    let kept: Vec<_> = bench.store.logs(id).await.expect("logs").into_iter().map(|line| line.text).collect();
    assert_eq!(kept, lines(500, 1500).collect::<Vec<_>>());
    bench.pass(LEASE).await;
    let second = bench.claim_one().await;
    let long = "x".repeat(LOG_LINE_BYTES_MAX + 1);
    save(&bench, Save::under(second.lease.key()).log([long])).await.expect("held");
    let logs = bench.store.logs(id).await.expect("logs");
    assert_eq!(logs.len(), LOG_LINES_MAX + 1, "each attempt keeps its own");
    let last = logs.last().expect("a line");
    assert_eq!((last.attempt, last.text.len(), last.at), (second.lease.attempt_id(), LOG_LINE_BYTES_MAX, bench.now()));
    assert_eq!(logs[0].attempt, first.lease.attempt_id());
}

async fn save(bench: &Bench, save: Save) -> Result<(), Stale> {
    bench.store.save(&[save]).await.expect("save").remove(0)
}
