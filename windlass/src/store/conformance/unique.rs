//! Section U of the contract: of jobs like this one is enough.

use std::sync::Arc;
use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job, no_jitter, worker};
use super::moves::{CANCEL, checked, named, requeue, text};
use crate::job::{JobId, NewJob, Payload, Priority, QueueName, ReasonKind, RunAt, Scope, State, Unique};
use crate::store::{Act, ClaimRequest, InsertedJob};
use crate::workflow::Submission;

chapter! {
    u1_until_claimed_allows_one_behind,
    u1_until_ended,
    u1_a_retry_meets_no_conflict,
    u1_a_requeue_meets_no_conflict,
    u1_a_key_is_free_once_its_job_is_gone,
    u1_a_key_whose_job_was_claimed_is_taken_over_once,
    u1_a_batch_takes_keys_over_or_finds_their_jobs,
    u1_a_key_for_a_window_meets_one_that_the_job_decides,
    u2_same_arguments_in_any_order,
    u3_replace,
    u3_started_stays,
    u3_replace_races_a_claim,
    u3_concurrent_replacements_leave_one_job,
    u3_only_a_job_of_the_same_type_and_queue_is_replaced,
    u3_what_waits_for_a_replaced_job_ends_with_it,
    u3_a_spawned_job_replaces_too,
    u4_last_one_runs_after_quiet,
    u4_at_most,
    u4_the_default_lifetime_counts_from_the_first_run,
    u5_first_wins,
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn key() -> Unique {
    Unique::key("k")
}

fn existing(id: JobId, state: State) -> InsertedJob {
    InsertedJob { id, existing: true, state: Some(state), matches: true }
}

/// The jobs of the default queue that have not ended, oldest first.
async fn unfinished(bench: &Bench) -> Vec<JobId> {
    let states = [State::Pending, State::Delayed, State::Scheduled, State::Running, State::Retrying];
    let mut ids = bench.ids(&super::moves::in_states(&states)).await;
    ids.reverse();
    ids
}

/// Submits the same job this many times at once; gives the answers.
async fn at_once(bench: &Bench, count: usize, job: &NewJob) -> Vec<InsertedJob> {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let (store, spec) = (Arc::clone(&bench.store), checked(job.clone()));
            tokio::spawn(async move { store.insert(Submission::new(vec![spec]).expect("valid")).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("a task").expect("insert").jobs[0]);
    }
    answers
}

async fn u1_until_claimed_allows_one_behind(bench: Bench) {
    let report = || job().unique(key().until_claimed());
    let first = bench.enqueue(report()).await;
    assert_eq!(bench.insert(vec![report()]).await, [existing(first, State::Scheduled)], "one that waits is enough");
    let running = bench.claim_one().await;
    let behind = bench.insert(vec![report()]).await[0];
    assert!(!behind.existing && behind.id != first, "the first has begun, so it may have missed what this is about");
    assert_eq!(bench.insert(vec![report()]).await, [existing(behind.id, State::Scheduled)], "one behind, not two");
    bench.complete(running.lease).await;
    assert_eq!(bench.insert(vec![report()]).await, [existing(behind.id, State::Scheduled)]);
    // One that ends without a claim is in nobody's way either.
    bench.act(behind.id, CANCEL).await;
    assert!(!bench.insert(vec![report()]).await[0].existing);
    bench.assert_sound().await;
}

async fn u1_until_ended(bench: Bench) {
    let sync = |name: &str| named(name).retry(no_jitter(3)).unique(key().until_ended());
    for end in [State::Completed, State::Failed, State::DeadLetter, State::Cancelled] {
        let sync = || sync(end.as_str());
        let first = bench.enqueue(sync()).await;
        let claimed = bench.take(first).await;
        assert_eq!(bench.insert(vec![sync()]).await, [existing(first, State::Running)]);
        bench.fail(claimed.lease).await;
        assert_eq!(bench.insert(vec![sync()]).await, [existing(first, State::Retrying)]);
        bench.advance(SECOND);
        assert_eq!(bench.insert(vec![sync()]).await, [existing(first, State::Scheduled)], "its turn has come again");
        bench.advance(2 * DAY);
        assert_eq!(bench.insert(vec![sync()]).await, [existing(first, State::Scheduled)], "there is no window");
        bench.end(first, end).await;
        let second = bench.insert(vec![sync()]).await[0];
        assert!(!second.existing && second.id != first, "after {end}");
        bench.end(second.id, State::Cancelled).await;
    }
    bench.assert_sound().await;
}

async fn u1_a_retry_meets_no_conflict(bench: Bench) {
    let report = || job().retry(no_jitter(3)).unique(key().until_claimed());
    let first = bench.running(report()).await;
    let (id, behind) = (first.job.id, bench.enqueue(report()).await);
    assert_eq!(bench.fail(first.lease).await, State::Retrying, "whoever has the key now");
    assert_eq!(bench.insert(vec![report()]).await[0].id, behind, "a retry does not take the key back");
    bench.advance(SECOND);
    assert_eq!(bench.claim_ids(10).await, [behind, id], "both run");
    bench.assert_sound().await;
}

async fn u1_a_requeue_meets_no_conflict(bench: Bench) {
    let sync = || job().unique(key().until_ended());
    let first = bench.enqueue(sync()).await;
    bench.end(first, State::Failed).await;
    bench.act(first, requeue()).await;
    assert_eq!(bench.insert(vec![sync()]).await, [existing(first, State::Scheduled)], "the key stands for it again");
    bench.end(first, State::Failed).await;
    let second = bench.enqueue(sync()).await;
    assert_ne!(second, first);
    bench.act(first, requeue()).await;
    assert_eq!(unfinished(&bench).await, [first, second], "requeued all the same");
    assert_eq!(bench.insert(vec![sync()]).await[0].id, second, "the key stands for the newer one");
    bench.assert_sound().await;
}

async fn u1_a_key_is_free_once_its_job_is_gone(bench: Bench) {
    for unique in [key().until_ended(), Unique::key("other").until_claimed()] {
        let sync = || job().unique(unique.clone());
        let first = bench.enqueue(sync()).await;
        bench.end(first, State::Cancelled).await;
        bench.act(first, Act::Delete).await;
        assert!(!bench.insert(vec![sync()]).await[0].existing, "{unique:?}");
        bench.end(bench.insert(vec![sync()]).await[0].id, State::Completed).await;
        // Upkeep forgets the job, and in time the key.
        bench.pass(30 * DAY).await;
        bench.pass(DAY).await;
        let last = bench.insert(vec![sync()]).await[0];
        assert!(!last.existing, "{unique:?}");
        bench.end(last.id, State::Completed).await;
    }
    bench.assert_sound().await;
}

async fn u1_a_key_whose_job_was_claimed_is_taken_over_once(bench: Bench) {
    let report = job().unique(key().until_claimed());
    for round in 0..4 {
        bench.running(report.clone()).await;
        let answers = at_once(&bench, 16, &report).await;
        assert_eq!(answers.iter().filter(|answer| !answer.existing).count(), 1, "one of them made the job");
        assert!(answers.iter().all(|answer| answer.id == answers[0].id), "and all found it");
        assert_eq!(bench.totals().await.accepted, 2 * round + 2);
        assert_eq!(bench.claim_ids(10).await.len(), 1);
    }
    bench.assert_sound().await;
}

async fn u1_a_batch_takes_keys_over_or_finds_their_jobs(bench: Bench) {
    let report = |key: &str| job().unique(Unique::key(key).until_claimed());
    bench.running(report("a")).await;
    let waiting = bench.enqueue(report("b")).await;
    let jobs = bench.insert(vec![report("a"), report("b"), report("c"), job(), report("a")]).await;
    assert_eq!(jobs.iter().map(|job| job.existing).collect::<Vec<_>>(), [false, true, false, false, true]);
    assert_eq!((jobs[1].id, jobs[4].id, jobs[4].matches), (waiting, jobs[0].id, true));
    assert_eq!(bench.totals().await.accepted, 5);
    bench.assert_sound().await;
}

async fn u1_a_key_for_a_window_meets_one_that_the_job_decides(bench: Bench) {
    let first = bench.enqueue(job().unique(key().until_claimed())).await;
    let keyed = || job().idempotency_key("k");
    assert_eq!(bench.insert(vec![keyed()]).await, [existing(first, State::Scheduled)]);
    bench.claim_one().await;
    let second = bench.insert(vec![keyed()]).await[0];
    assert!(!second.existing, "what was said with the first counts: it was claimed");
    bench.end(second.id, State::Completed).await;
    let third = bench.insert(vec![job().unique(key().until_claimed())]).await[0];
    assert_eq!(third, existing(second.id, State::Completed), "the second's window is not over");
    bench.advance(DAY);
    assert!(!bench.insert(vec![job().unique(key().until_claimed())]).await[0].existing);
    bench.assert_sound().await;
}

async fn u2_same_arguments_in_any_order(bench: Bench) {
    let json = |text: &str| Payload::json_text(text.to_owned()).expect("JSON");
    let report = |text: &str, unique: Unique| NewJob::new("test", json(text)).unique(unique);
    let first = bench.enqueue(report(r#"{"user": 7, "tags": ["a", "b"]}"#, Unique::payload())).await;
    let again = bench.insert(vec![report(r#"{"tags":["a","b"],"user":7.0}"#, Unique::payload())]).await[0];
    assert_eq!((again.id, again.existing), (first, true));
    let other = bench.insert(vec![report(r#"{"user": 7, "tags": ["b", "a"]}"#, Unique::payload())]).await[0];
    assert!(!other.existing, "the order of a list means something");
    let by_user = || Unique::pointers(["/user"]).scope(Scope::Queue);
    let first = bench.enqueue(report(r#"{"user": 7, "at": 1}"#, by_user())).await;
    assert_eq!(bench.enqueue(report(r#"{"at": 2, "user": 7}"#, by_user())).await, first);
    assert_ne!(bench.enqueue(report(r#"{"at": 1, "user": 8}"#, by_user())).await, first);
}

async fn u3_replace(bench: Bench) {
    let unique = || key().until_claimed().replace();
    let index = |words: &str| NewJob::new("test", text(words)).unique(unique());
    let first = bench.enqueue(index("old").delay(SECOND)).await;
    bench.advance(SECOND / 2);
    let second = bench.insert(vec![index("new").priority(Priority::High)]).await[0];
    assert_eq!(second, InsertedJob { id: second.id, existing: false, state: Some(State::Scheduled), matches: true });
    let replaced = bench.job(first).await;
    let reason = replaced.reason.clone().expect("a reason");
    assert_eq!((replaced.state, reason.kind, reason.cause), (State::Cancelled, ReasonKind::Replaced, Some(second.id)));
    assert_eq!((replaced.completed_at, replaced.attempt), (Some(bench.now()), 0));
    let third = bench.enqueue(index("newest")).await;
    assert_eq!(bench.states(&[first, second.id, third]).await, [State::Cancelled, State::Cancelled, State::Scheduled]);
    assert_eq!(bench.claim_ids(10).await, [third], "only the last runs");
    // A job that waits for another is untouched, too.
    let other = bench.enqueue(named("other")).await;
    let waits = bench.enqueue(index("waits").after([other])).await;
    let last = bench.enqueue(index("last")).await;
    assert_eq!(bench.states(&[waits, last]).await, [State::Cancelled, State::Scheduled]);
    let batch = bench.insert(vec![index("in a batch"), index("again")]).await;
    assert_eq!((batch[0].existing, batch[1].existing, batch[1].id), (false, true, batch[0].id), "as in I2");
    assert_eq!(bench.states(&[last, batch[0].id]).await, [State::Cancelled, State::Scheduled]);
    bench.assert_sound().await;
}

async fn u3_started_stays(bench: Bench) {
    let sync = || job().retry(no_jitter(3)).unique(key().until_ended().replace());
    let claimed = bench.running(sync()).await;
    let id = claimed.job.id;
    let before = bench.job(id).await;
    assert_eq!(bench.insert(vec![sync()]).await, [existing(id, State::Running)]);
    assert_eq!(bench.job(id).await, before);
    bench.fail(claimed.lease).await;
    assert_eq!(bench.insert(vec![sync()]).await, [existing(id, State::Retrying)], "it has begun, so it goes on");
    bench.advance(SECOND);
    assert_eq!(bench.insert(vec![sync()]).await, [existing(id, State::Scheduled)]);
    let again = bench.claim_one().await;
    bench.apply(again.lease.release()).await;
    assert_eq!(bench.insert(vec![sync()]).await[0].id, id, "also where nothing was counted");
    bench.end(id, State::Completed).await;
    assert!(!bench.insert(vec![sync()]).await[0].existing);
    let kept = || job().unique(Unique::key("window").within(DAY).replace());
    let ended = bench.enqueue(kept().priority(Priority::High)).await;
    bench.end(ended, State::Cancelled).await;
    assert_eq!(bench.insert(vec![kept()]).await, [existing(ended, State::Cancelled)], "there is nothing to replace");
    bench.assert_sound().await;
}

async fn u3_replace_races_a_claim(bench: Bench) {
    for round in 0..12 {
        let name = format!("race{round}");
        let index = || named(&name).unique(key().until_claimed().replace());
        let first = bench.enqueue(index()).await;
        let request = ClaimRequest {
            types: Some(vec![super::moves::job_type(&name)]),
            lease_time: Some(LEASE),
            ..ClaimRequest::new(worker("w1"), QueueName::default(), 10)
        };
        let claims: Vec<_> = (0..2)
            .map(|_| {
                let (store, request) = (Arc::clone(&bench.store), request.clone());
                tokio::spawn(async move { store.claim(&request).await.expect("claim") })
            })
            .collect();
        let inserted = at_once(&bench, 2, &index()).await;
        let mut taken = Vec::new();
        for claim in claims {
            taken.extend(claim.await.expect("a task").into_iter().map(|claimed| claimed.job.id));
        }
        taken.extend(bench.store.claim(&request).await.expect("claim").into_iter().map(|claimed| claimed.job.id));
        // Whichever came first: a job runs or was replaced, never both, and the newest is not lost.
        let mut ids: Vec<JobId> = inserted.iter().map(|job| job.id).chain([first]).collect();
        ids.sort();
        ids.dedup();
        for id in &ids {
            let (state, is_taken) = (bench.state(*id).await, taken.contains(id));
            let expected = if is_taken { State::Running } else { State::Cancelled };
            assert_eq!(state, expected, "round {round}");
        }
        assert_eq!(taken.len(), taken.iter().collect::<std::collections::HashSet<_>>().len(), "nobody got one twice");
        let newest = bench.job(*ids.iter().find(|id| taken.contains(id)).expect("one runs")).await;
        assert_eq!(newest.state, State::Running);
    }
    bench.assert_sound().await;
}

async fn u3_concurrent_replacements_leave_one_job(bench: Bench) {
    let index = job().unique(key().until_claimed().replace());
    let answers = at_once(&bench, 16, &index).await;
    assert!(answers.iter().all(|answer| !answer.existing), "each took the place of the one before it");
    let left = unfinished(&bench).await;
    assert_eq!(left.len(), 1);
    let mut next = answers.iter().map(|answer| answer.id).find(|id| *id != left[0]).expect("others");
    for _ in 0..answers.len() {
        match bench.job(next).await.reason {
            Some(reason) => next = reason.cause.expect("it names the job in its place"),
            None => break,
        }
    }
    assert_eq!(next, left[0], "one leads to the next, up to the one that is left");
    bench.assert_sound().await;
}

async fn u3_only_a_job_of_the_same_type_and_queue_is_replaced(bench: Bench) {
    let unique = || key().scope(Scope::Global).until_claimed().replace();
    let first = bench.enqueue(named("index").unique(unique())).await;
    for other in [named("other").unique(unique()), named("index").queue("mail").unique(unique())] {
        let answer = bench.insert(vec![other]).await[0];
        assert_eq!((answer.id, answer.existing, answer.state), (first, true, Some(State::Scheduled)));
    }
    assert!(!bench.insert(vec![named("index").unique(unique())]).await[0].existing);
    assert_eq!(bench.state(first).await, State::Cancelled);
}

async fn u3_what_waits_for_a_replaced_job_ends_with_it(bench: Bench) {
    let index = || named("index").unique(key().until_claimed().replace());
    let first = bench.enqueue(index()).await;
    let waits = bench.enqueue(named("after").after([first])).await;
    let goes_on = bench.enqueue(named("whatever").after_all([first])).await;
    let second = bench.enqueue(index()).await;
    assert_eq!(bench.states(&[first, waits, goes_on]).await, [State::Cancelled, State::Cancelled, State::Scheduled]);
    let reason = bench.job(waits).await.reason.expect("a reason");
    assert_eq!((reason.kind, reason.cause), (ReasonKind::Dependency, Some(first)), "it began with the replaced job");
    let told = index().callback_url("https://example.com/told");
    let third = bench.enqueue(told).await;
    bench.enqueue(index()).await;
    assert_eq!(bench.states(&[second, third]).await, [State::Cancelled, State::Cancelled]);
    let webhooks = bench.claim_from("windlass.webhooks", 10).await;
    assert_eq!(webhooks.len(), 1, "the end of a replaced job is told as any other");
    bench.assert_sound().await;
}

async fn u3_a_spawned_job_replaces_too(bench: Bench) {
    let index = || named("index").unique(key().until_claimed().replace());
    let first = bench.enqueue(index()).await;
    let parent = bench.enqueue(named("parent")).await;
    let claimed = bench.take(parent).await;
    bench.complete_and_spawn(claimed.lease, vec![index()]).await;
    assert_eq!(bench.states(&[first, parent]).await, [State::Cancelled, State::Completed]);
    let left = unfinished(&bench).await;
    assert_eq!(left.len(), 1);
    assert_eq!(bench.job(left[0]).await.spawned_by, Some(parent));
    bench.assert_sound().await;
}

async fn u4_last_one_runs_after_quiet(bench: Bench) {
    let save = |words: &str| NewJob::new("test", text(words)).unique(key()).debounce(5 * SECOND, 60 * SECOND);
    let begun = bench.now();
    let mut ids = Vec::new();
    for words in ["a", "ab", "abc"] {
        let answer = bench.insert(vec![save(words)]).await[0];
        assert_eq!((answer.existing, answer.state), (false, Some(State::Delayed)));
        assert_eq!(bench.job(answer.id).await.run_at, Some(bench.now().plus(5 * SECOND)));
        ids.push(answer.id);
        bench.advance(2 * SECOND);
    }
    assert_eq!(bench.states(&ids).await, [State::Cancelled, State::Cancelled, State::Delayed]);
    assert!(bench.claim(10).await.is_empty());
    bench.clock.advance(begun.plus(9 * SECOND).since(bench.now()));
    let claimed = bench.claim_one().await;
    assert_eq!((claimed.job.id, &claimed.job.spec.payload), (ids[2], &text("abc")), "the last, and only it");
    assert_eq!(claimed.job.spec.options.run_at, Some(RunAt::At(begun.plus(9 * SECOND))));
    // It may have begun before the next change: that gets a run of its own.
    let next = bench.insert(vec![save("abcd")]).await[0];
    assert!(!next.existing);
    assert_eq!(bench.job(next.id).await.run_at, Some(bench.now().plus(5 * SECOND)));
    bench.assert_sound().await;
}

async fn u4_at_most(bench: Bench) {
    let save = || job().debounce(5 * SECOND, 12 * SECOND);
    let begun = bench.now();
    let mut last = bench.enqueue(save()).await;
    for second in [4, 8, 11] {
        bench.clock.advance(begun.plus(second * SECOND).since(bench.now()));
        let next = bench.insert(vec![save()]).await[0];
        assert!(!next.existing);
        assert_eq!(bench.state(last).await, State::Cancelled);
        let quiet = bench.now().plus(5 * SECOND);
        assert_eq!(bench.job(next.id).await.run_at, Some(quiet.min(begun.plus(12 * SECOND))), "at {second} s");
        last = next.id;
    }
    bench.advance(SECOND);
    // Nobody has claimed it yet. What comes now begins anew, or the job would lose its place over and over.
    let behind = bench.insert(vec![save()]).await[0];
    assert!(!behind.existing);
    assert_eq!(bench.states(&[last, behind.id]).await, [State::Scheduled, State::Delayed]);
    assert_eq!(bench.claim_ids(10).await, [last]);
    assert_eq!(bench.job(behind.id).await.run_at, Some(bench.now().plus(5 * SECOND)));
    bench.assert_sound().await;
}

async fn u4_the_default_lifetime_counts_from_the_first_run(bench: Bench) {
    let id = bench.enqueue(job().debounce(DAY, 10 * DAY)).await;
    assert_eq!(bench.job(id).await.deadline, Some(bench.now().plus(8 * DAY)));
    let refused = bench.try_insert(vec![job().lifetime(DAY).debounce(DAY, DAY)]).await.expect_err("never in time");
    assert_eq!(refused.name(), "InvalidArgument");
    for bad in [job().debounce(SECOND, SECOND / 2), job().debounce(SECOND, SECOND).delay(SECOND)] {
        assert_eq!(bench.try_insert(vec![bad]).await.expect_err("refused").name(), "InvalidArgument");
    }
}

async fn u5_first_wins(bench: Bench) {
    let alert = |words: &str| NewJob::new("alert", text(words)).unique(key()).throttle(60 * SECOND);
    let first = bench.enqueue(alert("disk full")).await;
    bench.end(first, State::Completed).await;
    bench.advance(60 * SECOND - Duration::from_micros(1));
    let again = bench.insert(vec![alert("disk still full")]).await[0];
    assert_eq!((again.id, again.existing, again.matches), (first, true, false));
    bench.advance(Duration::from_micros(1));
    assert!(!bench.insert(vec![alert("disk full again")]).await[0].existing);
}
