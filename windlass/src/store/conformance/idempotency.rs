//! Section 8 of the contract: one key, one job.

use std::sync::Arc;
use std::time::Duration;

use super::Bench;
use super::bench::job;
use super::moves::{checked, named, requeue, text};
use crate::job::{DependencyKind, DependsOn, NewJob, Payload, Scope, State};
use crate::store::{Act, InsertedJob};
use crate::workflow::Submission;

chapter! {
    i1_a_key_is_unique_within_its_type,
    i1_a_key_may_be_unique_within_its_queue,
    i1_a_key_may_be_unique_among_all_jobs,
    i1_the_window_is_24_hours_from_the_first_submission,
    i1_a_window_of_none_holds_for_ever,
    i2_a_second_submission_changes_nothing_and_finds_the_first,
    i2_a_second_submission_tells_whether_type_and_payload_match,
    i2_a_key_repeated_in_a_batch_is_one_job,
    i2_a_batch_may_mix_known_keys_with_new_jobs,
    i2_concurrent_submissions_of_one_key_make_one_job,
    i2_a_refused_batch_leaves_its_keys_free,
    i3_the_key_answers_for_jobs_in_any_terminal_state,
    i3_the_key_answers_for_a_pruned_job,
    i3_the_key_answers_for_a_deleted_job,
    i3_after_the_window_the_key_is_free,
    i4_a_requeue_keeps_id_and_key,
    i4_a_clone_is_a_new_job_linked_to_the_original,
}

const DAY: Duration = Duration::from_secs(24 * 3600);
const MICRO: Duration = Duration::from_micros(1);

async fn i1_a_key_is_unique_within_its_type(bench: Bench) {
    let keyed = |name: &str| named(name).idempotency_key("order-1");
    let first = bench.enqueue(keyed("charge")).await;
    assert_eq!(bench.enqueue(keyed("charge").queue("other")).await, first);
    assert_ne!(bench.enqueue(keyed("ship")).await, first);
    assert_ne!(bench.enqueue(named("charge").idempotency_key("order-2")).await, first);
}

async fn i1_a_key_may_be_unique_within_its_queue(bench: Bench) {
    let keyed = |name: &str| named(name).idempotency("order-1", Scope::Queue, DAY);
    let first = bench.enqueue(keyed("charge").queue("mail")).await;
    assert_eq!(bench.enqueue(keyed("ship").queue("mail")).await, first);
    assert_ne!(bench.enqueue(keyed("charge").queue("other")).await, first);
}

async fn i1_a_key_may_be_unique_among_all_jobs(bench: Bench) {
    let keyed = |name: &str| named(name).idempotency("order-1", Scope::Global, DAY);
    let first = bench.enqueue(keyed("charge").queue("mail")).await;
    assert_eq!(bench.enqueue(keyed("ship").queue("other")).await, first);
}

async fn i1_the_window_is_24_hours_from_the_first_submission(bench: Bench) {
    let keyed = || job().idempotency_key("k").lifetime(None);
    let first = bench.enqueue(keyed()).await;
    bench.pass(DAY - MICRO).await;
    assert_eq!(bench.enqueue(keyed()).await, first, "a repetition does not prolong the window either");
    bench.pass(MICRO).await;
    let second = bench.enqueue(keyed()).await;
    assert_ne!(second, first);
    bench.pass(DAY - MICRO).await;
    assert_eq!(bench.enqueue(keyed()).await, second, "a new window began with the new job");
}

async fn i1_a_window_of_none_holds_for_ever(bench: Bench) {
    let keyed = || job().idempotency("k", Scope::Type, None);
    let first = bench.running(keyed()).await;
    let id = first.job.id;
    bench.complete(first.lease).await;
    bench.pass(3660 * DAY).await;
    assert_eq!(bench.find(id).await, None, "pruned long ago");
    let again = bench.insert(vec![keyed()]).await[0];
    assert_eq!((again.id, again.existing), (id, true));
}

async fn i2_a_second_submission_changes_nothing_and_finds_the_first(bench: Bench) {
    let keyed = || job().idempotency_key("k");
    let first = bench.insert(vec![keyed()]).await[0];
    assert_eq!((first.existing, first.state), (false, Some(State::Scheduled)));
    let claimed = bench.claim_one().await;
    let (before, accounts) = (bench.job(first.id).await, bench.totals().await);
    let start = bench.store.events(None, 10).await.expect("events").next;
    bench.advance(Duration::from_secs(1));
    let other = keyed().priority(crate::job::Priority::Critical).tag("a", "b").delay(DAY);
    let again = bench.insert(vec![other]).await[0];
    assert_eq!(again, InsertedJob { id: first.id, existing: true, state: Some(State::Running), matches: true });
    assert_eq!((bench.job(first.id).await, bench.totals().await), (before, accounts));
    assert!(bench.store.events(start.as_ref(), 10).await.expect("events").items.is_empty());
    bench.complete(claimed.lease).await;
    assert_eq!(bench.insert(vec![keyed()]).await[0].state, Some(State::Completed));
}

async fn i2_a_second_submission_tells_whether_type_and_payload_match(bench: Bench) {
    let keyed = |name: &str, payload: Payload| NewJob::new(name, payload).idempotency("k", Scope::Global, DAY);
    bench.enqueue(keyed("charge", text("7 euros"))).await;
    let bytes = Payload::bytes("text/plain", "\"7 euros\"").expect("bytes");
    let again = [
        (keyed("charge", text("7 euros")), true),
        (keyed("charge", text("8 euros")), false),
        (keyed("refund", text("7 euros")), false),
        (keyed("charge", bytes), false),
    ];
    for (job, matches) in again {
        let answer = bench.insert(vec![job]).await[0];
        assert_eq!((answer.existing, answer.matches), (true, matches));
    }
}

async fn i2_a_key_repeated_in_a_batch_is_one_job(bench: Bench) {
    let keyed = || job().idempotency_key("k");
    let after = named("after").depends_on(DependsOn::Batch(2), DependencyKind::After);
    let jobs = bench.insert(vec![keyed(), job(), keyed(), after]).await;
    assert_eq!(jobs[2].id, jobs[0].id);
    assert_eq!((jobs[0].existing, jobs[2].existing, jobs[2].matches), (false, true, true));
    assert_eq!(bench.totals().await.accepted, 3);
    assert_eq!(bench.job(jobs[3].id).await.spec.depends_on[0].on, DependsOn::Job(jobs[0].id));
    let other = NewJob::new("test", text("other")).idempotency_key("k2");
    let jobs = bench.insert(vec![job().idempotency_key("k2"), other]).await;
    assert_eq!((jobs[1].id, jobs[1].existing, jobs[1].matches), (jobs[0].id, true, false));
    bench.assert_sound().await;
}

async fn i2_a_batch_may_mix_known_keys_with_new_jobs(bench: Bench) {
    let keyed = || named("first").idempotency_key("k");
    let known = bench.enqueue(keyed()).await;
    let after = named("after").depends_on(DependsOn::Batch(0), DependencyKind::After);
    let jobs = bench.insert(vec![keyed(), after]).await;
    assert_eq!((jobs[0].id, jobs[0].existing, jobs[1].existing), (known, true, false));
    assert_eq!(jobs[1].state, Some(State::Pending));
    bench.end(known, State::Completed).await;
    assert_eq!(bench.state(jobs[1].id).await, State::Scheduled, "it waited for the known job");
}

async fn i2_concurrent_submissions_of_one_key_make_one_job(bench: Bench) {
    for round in 0..4 {
        let spec = checked(job().idempotency_key(format!("key {round}")));
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let (store, spec) = (Arc::clone(&bench.store), spec.clone());
                tokio::spawn(async move { store.insert(Submission::new(vec![spec]).expect("valid")).await })
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.expect("a task").expect("insert").jobs[0]);
        }
        assert!(answers.iter().all(|answer| answer.id == answers[0].id), "all get the one job's id");
        assert_eq!(answers.iter().filter(|answer| !answer.existing).count(), 1, "one of them made it");
        assert_eq!(bench.totals().await.accepted, round + 1);
    }
    bench.assert_sound().await;
}

async fn i2_a_refused_batch_leaves_its_keys_free(bench: Bench) {
    let keyed = || job().idempotency_key("k");
    let unknown = crate::store::new_job_id();
    bench.try_insert(vec![keyed(), job().after([unknown])]).await.expect_err("unknown dependency");
    assert!(!bench.insert(vec![keyed()]).await[0].existing);
}

async fn i3_the_key_answers_for_jobs_in_any_terminal_state(bench: Bench) {
    for end in [State::Completed, State::Failed, State::DeadLetter, State::Cancelled] {
        let keyed = || named(end.as_str()).idempotency_key("k");
        let id = bench.enqueue(keyed()).await;
        bench.end(id, end).await;
        let again = bench.insert(vec![keyed()]).await[0];
        assert_eq!(again, InsertedJob { id, existing: true, state: Some(end), matches: true });
    }
}

async fn i3_the_key_answers_for_a_pruned_job(bench: Bench) {
    let keyed = |words| NewJob::new("test", text(words)).idempotency("k", Scope::Type, 30 * DAY);
    let id = bench.enqueue(keyed("same")).await;
    bench.end(id, State::Completed).await;
    assert_eq!(bench.pass(DAY).await.pruned, 1);
    assert_eq!(bench.find(id).await, None);
    let again = bench.insert(vec![keyed("same")]).await[0];
    assert_eq!(again, InsertedJob { id, existing: true, state: None, matches: true });
    assert!(!bench.insert(vec![keyed("other")]).await[0].matches);
    bench.pass(29 * DAY).await;
    assert!(!bench.insert(vec![keyed("same")]).await[0].existing, "until the window is over");
    bench.assert_sound().await;
}

async fn i3_the_key_answers_for_a_deleted_job(bench: Bench) {
    let keyed = || job().idempotency_key("k");
    let id = bench.enqueue(keyed()).await;
    bench.end(id, State::Cancelled).await;
    bench.act(id, Act::Delete).await;
    let again = bench.insert(vec![keyed()]).await[0];
    assert_eq!((again.id, again.existing, again.state), (id, true, None));
}

async fn i3_after_the_window_the_key_is_free(bench: Bench) {
    let keyed = || job().idempotency("k", Scope::Type, Duration::from_secs(60));
    let first = bench.enqueue(keyed()).await;
    // Upkeep has not looked: the clock alone decides.
    bench.advance(Duration::from_secs(60));
    let second = bench.insert(vec![keyed()]).await[0];
    assert!(!second.existing && second.id != first);
    assert_eq!(bench.claim_ids(10).await, [first, second.id], "both are jobs of their own");
    bench.assert_sound().await;
}

async fn i4_a_requeue_keeps_id_and_key(bench: Bench) {
    let keyed = || job().idempotency_key("k");
    let id = bench.enqueue(keyed()).await;
    bench.end(id, State::Failed).await;
    bench.act(id, requeue()).await;
    let again = bench.insert(vec![keyed()]).await[0];
    assert_eq!(again, InsertedJob { id, existing: true, state: Some(State::Scheduled), matches: true });
}

async fn i4_a_clone_is_a_new_job_linked_to_the_original(bench: Bench) {
    let original = bench.enqueue(job().idempotency_key("k")).await;
    bench.end(original, State::Completed).await;
    let copy = bench.enqueue(job().cloned_from(original)).await;
    assert_ne!(copy, original);
    let stored = bench.job(copy).await;
    assert_eq!(stored.spec.options.cloned_from, Some(original));
    assert_eq!((stored.spec.options.idempotency.clone(), stored.state), (None, State::Scheduled));
    bench.pass(DAY).await;
    assert_eq!(bench.find(original).await, None, "a copy does not keep its original from being pruned");
}
