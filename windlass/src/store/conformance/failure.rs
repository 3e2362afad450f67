//! Section 5 of the contract: outcomes and failures, as far as a store keeps them.

use super::Bench;
use super::bench::{LEASE, failure, job, no_jitter};
use super::stage::{HOUR, secs, take};
use crate::job::{
    CODE_LEASE_EXPIRED, Category, Failure, FailureRecord, LOST_FREE_MAX, Lost, MESSAGE_BYTES_MAX, Outcome, ReasonKind,
    RetryPolicy, State,
};

chapter! {
    f_each_category_leads_where_the_table_says,
    f_an_own_retry_after_replaces_the_backoff,
    f_a_handler_that_always_asks_for_a_retry_ends_too,
    f1_a_failure_is_kept_on_the_job_and_on_the_attempt,
    f1_the_job_keeps_the_newest_failure,
    f1_a_long_message_is_cut_and_kept,
    f3_a_job_that_kills_its_worker_ends_after_max_attempts,
    f3_free_losses_end_too,
    f3_a_poison_job_does_not_block_others,
    f3_mixed_losses_and_failures_count_together,
}

async fn f_each_category_leads_where_the_table_says(bench: Bench) {
    for &category in Category::ALL {
        let claimed = bench.running(job().retry(no_jitter(3))).await;
        let id = claimed.job.id;
        let expected = match category {
            Category::Temporary | Category::Timeout | Category::System => State::Retrying,
            Category::Permanent => State::Failed,
            Category::Cancelled => State::Cancelled,
        };
        assert_eq!(bench.apply(claimed.lease.fail(failure(category), &mut || 0.5)).await, expected, "{category}");
        let job = bench.job(id).await;
        assert_eq!((job.state, job.failures), (expected, 1), "{category}");
        assert_eq!(job.failure.expect("a failure").category, category);
    }
    bench.assert_sound().await;
}

async fn f_an_own_retry_after_replaces_the_backoff(bench: Bench) {
    let claimed = bench.running(job().retry(no_jitter(3))).await;
    let id = claimed.job.id;
    let asked = Failure::temporary("busy").retry_after(secs(100));
    bench.apply(claimed.lease.fail(asked, &mut || 0.5)).await;
    assert_eq!(bench.job(id).await.run_at, Some(bench.now().plus(secs(100))));
    bench.advance(secs(100));
    let claimed = bench.claim_one().await;
    let asked = Failure::temporary("busy").retry_after(100 * HOUR);
    bench.apply(claimed.lease.fail(asked, &mut || 0.5)).await;
    // 24 h since retry_after has a cap of its own (R3); before, the policy's maximum of an hour cut it.
    assert_eq!(bench.job(id).await.run_at, Some(bench.now().plus(24 * HOUR)), "no longer than the policy allows");
}

async fn f_a_handler_that_always_asks_for_a_retry_ends_too(bench: Bench) {
    let id = bench.enqueue(job().max_attempts(2)).await;
    let mut runs = 0;
    while !bench.state(id).await.is_terminal() {
        let claimed = bench.claim_one().await;
        runs += 1;
        assert!(runs < 9, "it must end");
        let again = Failure::temporary("busy").retry_after(secs(5));
        bench.apply(claimed.lease.fail(again, &mut || 0.5)).await;
        bench.advance(secs(5));
    }
    assert_eq!((runs, bench.state(id).await), (2, State::DeadLetter));
    bench.assert_sound().await;
}

async fn f1_a_failure_is_kept_on_the_job_and_on_the_attempt(bench: Bench) {
    let claimed = bench.running(job().retry(no_jitter(3))).await;
    let id = claimed.job.id;
    bench.advance(secs(3));
    let causes = ["connection refused", "no route to host"];
    let failure = Failure::temporary("cannot send").with_code("smtp").with_causes(causes);
    bench.apply(claimed.lease.fail(failure, &mut || 0.5)).await;
    let expected = FailureRecord {
        category: Category::Temporary,
        code: Some("smtp".to_owned()),
        message: "cannot send".to_owned(),
        causes: causes.map(str::to_owned).to_vec(),
        at: bench.now(),
    };
    bench.advance(secs(9));
    assert_eq!(bench.job(id).await.failure.as_ref(), Some(&expected));
    assert_eq!(bench.attempts(id).await[0].failure.as_ref(), Some(&expected));
}

async fn f1_the_job_keeps_the_newest_failure(bench: Bench) {
    let id = bench.enqueue(job().retry(no_jitter(4))).await;
    let words = ["first", "second", "third"];
    for (n, word) in words.into_iter().enumerate() {
        let claimed = bench.claim_one().await;
        bench.apply(claimed.lease.fail(Failure::temporary(word), &mut || 0.5)).await;
        assert_eq!(bench.job(id).await.failure.expect("a failure").message, word);
        bench.advance(secs(1 << n));
    }
    // What is no failure leaves the last one in place.
    let claimed = bench.claim_one().await;
    bench.apply(claimed.lease.snooze(secs(1))).await;
    assert_eq!(bench.job(id).await.failure.expect("a failure").message, "third");
    let kept = bench.attempts(id).await;
    let kept: Vec<_> = kept.iter().map(|attempt| attempt.failure.as_ref().map(|kept| kept.message.as_str())).collect();
    assert_eq!(kept, [Some("first"), Some("second"), Some("third"), None]);
}

async fn f1_a_long_message_is_cut_and_kept(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    let long = "é".repeat(MESSAGE_BYTES_MAX);
    let failure = Failure::permanent("c".repeat(1000), &long).with_causes(vec![&long; 100]);
    bench.apply(claimed.lease.fail(failure, &mut || 0.5)).await;
    let kept = bench.job(id).await.failure.expect("a failure");
    assert_eq!(kept.message, "é".repeat(MESSAGE_BYTES_MAX / 2));
    assert_eq!(kept.code.map(|code| code.len()), Some(255));
    assert_eq!((kept.causes.len(), kept.causes[0].len()), (16, MESSAGE_BYTES_MAX));
    assert_eq!(bench.attempts(id).await[0].failure, bench.job(id).await.failure);
}

async fn f3_a_job_that_kills_its_worker_ends_after_max_attempts(bench: Bench) {
    let id = bench.enqueue(job().max_attempts(4)).await;
    for attempt in 1..=4 {
        assert_eq!(bench.state(id).await, State::Scheduled);
        assert_eq!(bench.claim_one().await.lease.attempt(), attempt);
        bench.pass(LEASE).await;
    }
    let job = bench.job(id).await;
    assert_eq!((job.state, job.attempt, job.failures, job.lost), (State::DeadLetter, 4, 4, 4));
    let kept = job.failure.expect("a failure");
    assert_eq!((kept.category, kept.code.as_deref()), (Category::System, Some(CODE_LEASE_EXPIRED)));
    assert_eq!(job.reason.expect("a reason").kind, ReasonKind::Exhausted);
    let outcomes: Vec<_> = bench.attempts(id).await.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Lost); 4]);
    bench.pass(HOUR).await;
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn f3_free_losses_end_too(bench: Bench) {
    let policy = RetryPolicy { lost: Lost::Free, ..no_jitter(2) };
    let id = bench.enqueue(job().retry(policy)).await;
    let mut starts = 0;
    while bench.state(id).await == State::Scheduled {
        bench.claim_one().await;
        bench.pass(LEASE).await;
        starts += 1;
        assert!(starts < 100, "it must end");
    }
    let job = bench.job(id).await;
    assert_eq!((job.state, starts, job.failures), (State::DeadLetter, LOST_FREE_MAX + 2, 2));
    bench.assert_sound().await;
}

async fn f3_a_poison_job_does_not_block_others(bench: Bench) {
    let poison = bench.enqueue(job().max_attempts(3).priority(crate::job::Priority::Critical)).await;
    let others: Vec<_> = bench.insert(vec![job(); 3]).await.iter().map(|one| one.id).collect();
    let mut done = Vec::new();
    for _ in 0..3 {
        for claimed in bench.claim(2).await {
            if claimed.job.id != poison {
                done.push(claimed.job.id);
                bench.complete(claimed.lease).await;
            }
        }
        bench.pass(LEASE).await;
    }
    assert_eq!(done, others);
    assert_eq!(bench.state(poison).await, State::DeadLetter);
    bench.assert_sound().await;
}

async fn f3_mixed_losses_and_failures_count_together(bench: Bench) {
    let queue = "mixed";
    let id = bench.enqueue(job().queue(queue).retry(no_jitter(3))).await;
    take(&bench, queue).await;
    bench.pass(LEASE).await;
    bench.apply(take(&bench, queue).await.lease.release()).await;
    let lease = take(&bench, queue).await.lease;
    assert_eq!(bench.fail(lease).await, State::Retrying);
    assert_eq!(bench.job(id).await.run_at, Some(bench.now().plus(secs(2))), "the backoff of the second failure");
    bench.advance(secs(2));
    take(&bench, queue).await;
    bench.pass(LEASE).await;
    let job = bench.job(id).await;
    assert_eq!((job.state, job.attempt, job.failures, job.lost), (State::DeadLetter, 4, 3, 2));
    bench.assert_sound().await;
}
