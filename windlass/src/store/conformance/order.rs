//! Section 1 of the contract, rule D5: the claim order, one claimer alone.

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job, no_jitter, worker};
use super::stage::secs;
use crate::job::{Failure, JobId, JobType, NewJob, Payload, Priority, QueueName, RequeueOptions};
use crate::store::{Act, ClaimRequest, Edit};

chapter! {
    d5_submission_order_holds_in_and_across_batches,
    d5_a_batch_of_10_000_is_claimed_in_its_order,
    d5_the_more_urgent_goes_first,
    d5_a_delayed_job_takes_its_place_when_it_falls_due,
    d5_jobs_that_fall_due_together_go_by_submission,
    d5_priority_outweighs_position_however_it_was_taken,
    d5_a_retried_job_takes_its_place_when_its_backoff_ends,
    d5_a_snoozed_job_takes_its_place_when_its_snooze_ends,
    d5_a_released_job_takes_a_new_place,
    d5_an_interrupted_job_takes_a_new_place,
    d5_a_lost_job_takes_a_new_place_when_its_lease_is_taken_back,
    d5_a_requeued_job_takes_a_new_place,
    d5_a_dependent_takes_its_place_when_it_is_released,
    d5_a_new_priority_keeps_the_position,
    d5_a_claim_by_type_keeps_the_order_and_leaves_the_rest,
}

async fn d5_submission_order_holds_in_and_across_batches(bench: Bench) {
    let mut ids = Vec::new();
    for size in [3, 1, 40, 2, 17] {
        ids.extend(bench.insert(vec![job(); size]).await.iter().map(|one| one.id));
    }
    let mut claimed = Vec::new();
    while claimed.len() < ids.len() {
        let next = bench.claim_ids(7).await;
        assert!(!next.is_empty(), "all can be claimed");
        claimed.extend(next);
    }
    assert_eq!(claimed, ids);
}

async fn d5_a_batch_of_10_000_is_claimed_in_its_order(bench: Bench) {
    let ids: Vec<_> = bench.insert(vec![job(); 10_000]).await.iter().map(|one| one.id).collect();
    assert_eq!(bench.claim_ids(10_000).await, ids);
    bench.assert_sound().await;
}

async fn d5_the_more_urgent_goes_first(bench: Bench) {
    let mut expected: Vec<Vec<JobId>> = vec![Vec::new(); 5];
    for _ in 0..2 {
        for priority in Priority::ALL.into_iter().rev() {
            expected[usize::from(priority.number())].push(bench.enqueue(job().priority(priority)).await);
        }
        bench.advance(secs(1));
    }
    assert_eq!(bench.claim_ids(20).await, expected.concat());
}

async fn d5_a_delayed_job_takes_its_place_when_it_falls_due(bench: Bench) {
    let at_10 = bench.enqueue(job().delay(secs(10))).await;
    let at_5 = bench.enqueue(job().run_at(bench.now().plus(secs(5)))).await;
    bench.advance(secs(2));
    let at_2 = bench.enqueue(job()).await;
    bench.advance(secs(18));
    let at_20 = bench.enqueue(job()).await;
    bench.advance(secs(10));
    assert_eq!(bench.claim_ids(9).await, [at_2, at_5, at_10, at_20], "whenever the claim looks");
}

async fn d5_jobs_that_fall_due_together_go_by_submission(bench: Bench) {
    let first = bench.enqueue(job().delay(secs(10))).await;
    bench.advance(secs(4));
    let second = bench.enqueue(job().delay(secs(6))).await;
    bench.advance(secs(6));
    let third = bench.enqueue(job()).await;
    assert_eq!(bench.claim_ids(9).await, [first, second, third]);
}

async fn d5_priority_outweighs_position_however_it_was_taken(bench: Bench) {
    let urgent_later = bench.enqueue(job().priority(Priority::Critical).delay(secs(10))).await;
    let low_now = bench.enqueue(job().priority(Priority::Low)).await;
    bench.advance(secs(20));
    let normal_latest = bench.enqueue(job()).await;
    assert_eq!(bench.claim_ids(9).await, [urgent_later, normal_latest, low_now]);
}

async fn d5_a_retried_job_takes_its_place_when_its_backoff_ends(bench: Bench) {
    let claimed = bench.running(job().retry(no_jitter(3))).await;
    let retried = claimed.job.id;
    bench.fail(claimed.lease).await;
    let ids = enqueue_every(&bench, Duration::from_millis(500), 4).await;
    bench.advance(secs(5));
    // It falls due after one second, together with the second of the others, and was submitted before that one.
    assert_eq!(bench.claim_ids(9).await, [ids[0], retried, ids[1], ids[2], ids[3]]);
}

async fn d5_a_snoozed_job_takes_its_place_when_its_snooze_ends(bench: Bench) {
    let claimed = bench.running(job()).await;
    let snoozed = claimed.job.id;
    bench.apply(claimed.lease.snooze(secs(5))).await;
    let ids = enqueue_every(&bench, secs(3), 3).await;
    assert_eq!(bench.claim_ids(9).await, [ids[0], snoozed, ids[1], ids[2]]);
}

async fn d5_a_released_job_takes_a_new_place(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    let before = enqueue_every(&bench, secs(1), 2).await;
    bench.advance(secs(1));
    bench.apply(claimed.lease.release()).await;
    let same_moment = bench.enqueue(job()).await;
    assert_eq!(bench.claim_ids(9).await, [before[0], before[1], id, same_moment]);
}

async fn d5_an_interrupted_job_takes_a_new_place(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    let before = enqueue_every(&bench, secs(1), 2).await;
    bench.advance(secs(1));
    bench.apply(claimed.lease.interrupt()).await;
    let same_moment = bench.enqueue(job()).await;
    assert_eq!(bench.claim_ids(9).await, [before[0], before[1], id, same_moment]);
}

async fn d5_a_lost_job_takes_a_new_place_when_its_lease_is_taken_back(bench: Bench) {
    let id = bench.running(job()).await.job.id;
    bench.advance(LEASE / 2);
    let while_held = bench.enqueue(job()).await;
    bench.advance(LEASE);
    let after_expiry = bench.enqueue(job()).await;
    bench.pass(LEASE).await;
    let same_moment = bench.enqueue(job()).await;
    assert_eq!(bench.claim_ids(9).await, [while_held, after_expiry, id, same_moment]);
}

async fn d5_a_requeued_job_takes_a_new_place(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    bench.apply(claimed.lease.fail(Failure::permanent("broken", "it is broken"), &mut || 0.5)).await;
    let before = enqueue_every(&bench, secs(1), 2).await;
    bench.advance(secs(1));
    bench.act(id, Act::Requeue(RequeueOptions::default())).await;
    let same_moment = bench.enqueue(job()).await;
    assert_eq!(bench.claim_ids(9).await, [before[0], before[1], id, same_moment]);
}

async fn d5_a_dependent_takes_its_place_when_it_is_released(bench: Bench) {
    let first = bench.running(job()).await;
    let on = first.job.id;
    let plain = bench.enqueue(job().after([on])).await;
    let due_before = bench.enqueue(job().after([on]).delay(secs(1))).await;
    let due_later = bench.enqueue(job().after([on]).delay(secs(10))).await;
    bench.advance(secs(1));
    let at_1 = bench.enqueue(job()).await;
    bench.advance(secs(1));
    bench.complete(first.lease).await;
    let at_2 = bench.enqueue(job()).await;
    bench.advance(secs(3));
    let at_5 = bench.enqueue(job()).await;
    bench.advance(secs(10));
    let at_15 = bench.enqueue(job()).await;
    assert_eq!(bench.claim_ids(9).await, [at_1, plain, due_before, at_2, at_5, due_later, at_15]);
}

async fn d5_a_new_priority_keeps_the_position(bench: Bench) {
    let ids = enqueue_every(&bench, secs(1), 4).await;
    let urgent = || Act::Edit(Edit { priority: Some(Priority::High), ..Edit::default() });
    bench.act(ids[3], urgent()).await;
    bench.act(ids[1], urgent()).await;
    assert_eq!(bench.claim_ids(9).await, [ids[1], ids[3], ids[0], ids[2]]);
}

async fn d5_a_claim_by_type_keeps_the_order_and_leaves_the_rest(bench: Bench) {
    let mut ids = Vec::new();
    for n in 0..12 {
        let typed = NewJob::new(["a", "b", "c"][n % 3], Payload::default());
        ids.push(bench.enqueue(typed).await);
        bench.advance(secs(1));
    }
    let of = |wanted: &[usize]| -> Vec<JobId> {
        ids.iter().enumerate().filter(|(n, _)| wanted.contains(&(n % 3))).map(|(_, id)| *id).collect()
    };
    assert_eq!(claim_types(&bench, &["x"], 20).await, []);
    assert_eq!(claim_types(&bench, &["b", "x", "b"], 20).await, of(&[1]));
    for id in of(&[0, 2]) {
        assert_eq!(bench.job(id).await.attempt, 0, "jobs of other types are not touched");
    }
    assert_eq!(claim_types(&bench, &["c", "a", "b"], 5).await, of(&[0, 2])[..5]);
    assert_eq!(bench.claim_ids(20).await, of(&[0, 2])[5..]);
}

async fn claim_types(bench: &Bench, types: &[&str], limit: usize) -> Vec<JobId> {
    let types = types.iter().map(|name| JobType::new(name).expect("a type")).collect();
    let request = ClaimRequest {
        types: Some(types),
        lease_time: Some(LEASE),
        ..ClaimRequest::new(worker("w1"), QueueName::default(), limit)
    };
    bench.store.claim(&request).await.expect("claim").iter().map(|claimed| claimed.job.id).collect()
}

/// Enqueues jobs, one each time so much time has passed.
async fn enqueue_every(bench: &Bench, step: Duration, count: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        bench.advance(step);
        ids.push(bench.enqueue(job()).await);
    }
    ids
}
