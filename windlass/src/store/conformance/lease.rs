//! Section 4 of the contract: claim and lease. The table of refused writes (L2) is in `fencing`.

use std::collections::HashSet;
use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, failure, job, no_jitter, worker};
use super::stage::{Answer, HOUR, MICRO, SAID, answer, secs, settlement, snapshot, take_as};
use crate::clock::Clock;
use crate::job::{Category, JobId, Lease, LeaseInfo, LeaseKey, Outcome, Payload, QueueName, Scope, Stale, State};
use crate::store::{Act, ClaimRequest, Extended, Save, Settled, Upkeep, WorkerReport, new_lease_token};

chapter! {
    l1_a_claim_writes_all_that_it_answers,
    l1_tokens_are_random_and_all_different,
    l1_a_claim_takes_no_more_than_asked,
    l1_a_claim_looks_in_its_queues_in_order_with_their_room,
    l1_a_held_job_is_not_claimed_by_others,
    l3_expired_lease_cannot_settle,
    l3_the_lease_holds_until_the_last_moment,
    l4_the_same_settlement_again_is_already_applied,
    l4_a_repeat_is_known_whatever_became_of_the_job,
    l4_another_outcome_is_no_repeat,
    l4_a_repeat_within_one_call_is_already_applied,
    l5_a_heartbeat_moves_the_end_of_the_lease,
    l5_a_heartbeat_never_shortens_a_lease,
    l5_a_heartbeat_cannot_revive_an_expired_lease,
    l5_heartbeats_are_answered_one_by_one_in_order,
    l5_a_heartbeat_tells_of_cancellation,
    l6_a_claim_without_a_lease_time_gets_the_visibility_timeout,
    l7_upkeep_takes_back_an_expired_lease_and_no_other,
    l7_upkeep_goes_on_until_all_are_taken_back,
    l7_the_next_holder_has_the_next_version,
    l7_a_restart_under_the_same_name_neither_keeps_nor_takes_leases,
    l7_a_newer_job_with_its_key_does_not_hinder_a_lost_one,
    l8_all_times_are_the_stores,
    l9_lease_versions_only_grow,
    l10_a_long_run_under_a_short_lease_is_not_disturbed,
}

async fn l1_a_claim_writes_all_that_it_answers(bench: Bench) {
    let id = bench.enqueue(job()).await;
    bench.advance(secs(5));
    let claimed = take_as(&bench, "somebody", Some(secs(40))).await;
    let now = bench.now();
    let job = &claimed.job;
    assert_eq!((job.id, job.state, job.attempt, job.lease_version), (id, State::Running, 1, 1));
    assert_eq!((job.started_at, job.updated_at), (Some(now), now));
    let held = LeaseInfo { version: 1, expires_at: now.plus(secs(40)), worker: worker("somebody") };
    assert_eq!(job.lease.as_ref(), Some(&held));
    assert_eq!((claimed.lease.job(), claimed.lease.version(), claimed.lease.attempt()), (id, 1, 1));
    assert_eq!(claimed.expires_in, secs(40));
    assert_eq!(&bench.job(id).await, job, "what was answered is what is stored");
    let attempts = bench.attempts(id).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].id, attempts[0].started_at), (claimed.lease.attempt_id(), now));
    assert_eq!((attempts[0].ended_at, attempts[0].outcome), (None, None));
    bench.assert_sound().await;
}

async fn l1_tokens_are_random_and_all_different(bench: Bench) {
    bench.insert(vec![job(); 50]).await;
    let mut tokens = HashSet::new();
    for _ in 0..3 {
        for claimed in bench.claim(50).await {
            let token = claimed.lease.key().token;
            assert_eq!(token.as_uuid().get_version_num(), 4);
            assert_ne!(token.as_uuid(), claimed.job.id.as_uuid());
            assert!(tokens.insert(token), "a token was drawn twice");
            bench.apply(claimed.lease.release()).await;
        }
    }
    assert_eq!(tokens.len(), 150);
}

async fn l1_a_claim_takes_no_more_than_asked(bench: Bench) {
    bench.insert(vec![job(); 5]).await;
    assert!(bench.claim(0).await.is_empty());
    assert_eq!(bench.claim(2).await.len(), 2);
    let states = bench.store.totals().await.expect("totals").states;
    assert_eq!(states[usize::from(State::Running.number())], 2);
    assert_eq!(bench.claim(1000).await.len(), 3);
    assert!(bench.claim(1000).await.is_empty());
    bench.assert_sound().await;
}

async fn l1_a_claim_looks_in_its_queues_in_order_with_their_room(bench: Bench) {
    let mut ids = Vec::new();
    for queue in ["a", "b", "c", "d"] {
        ids.push(bench.insert(vec![job().queue(queue); 4]).await.iter().map(|one| one.id).collect::<Vec<_>>());
    }
    let name = |queue: &str| QueueName::new(queue).expect("a name");
    let request = ClaimRequest {
        queues: vec![(name("c"), 2), (name("none"), 5), (name("a"), 0), (name("b"), 9)],
        types: None,
        limit: 5,
        lease_time: Some(LEASE),
        worker: worker("w1"),
    };
    let claimed: Vec<_> = bench.store.claim(&request).await.expect("claim").iter().map(|one| one.job.id).collect();
    assert_eq!(claimed, [&ids[2][..2], &ids[1][..3]].concat());
    assert_eq!(bench.claim_from("a", 9).await.len(), 4, "what was not asked for is not touched");
    assert_eq!(bench.claim_from("d", 9).await.len(), 4);
    let none = ClaimRequest { queues: Vec::new(), ..request };
    assert!(bench.store.claim(&none).await.expect("claim").is_empty());
}

async fn l1_a_held_job_is_not_claimed_by_others(bench: Bench) {
    let claimed = bench.running(job()).await;
    for _ in 0..10 {
        bench.pass(LEASE - MICRO).await;
        assert!(bench.claim(9).await.is_empty());
        assert!(matches!(bench.extend(claimed.lease.key()).await, Extended::Held { .. }));
    }
    bench.complete(claimed.lease).await;
}

async fn l3_expired_lease_cannot_settle(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    bench.advance(LEASE);
    let before = snapshot(&bench, id).await;
    assert_eq!(before.job.state, State::Running, "nobody has reclaimed it yet");
    for outcome in SAID {
        let late = settlement(Lease::granted(&claimed.job, claimed.lease.key().token), outcome);
        assert_eq!(answer(&bench, &late).await, Answer::Stale(Stale::Expired), "{outcome:?}");
    }
    assert_eq!(bench.extend(claimed.lease.key()).await, Extended::Lost(Stale::Expired));
    let save = Save::under(claimed.lease.key()).checkpoint("late").expect("small");
    assert_eq!(bench.store.save(&[save]).await.expect("save"), [Err(Stale::Expired)]);
    assert_eq!(snapshot(&bench, id).await, before);
    bench.assert_sound().await;
}

async fn l3_the_lease_holds_until_the_last_moment(bench: Bench) {
    for (left, applied) in [(MICRO, true), (Duration::ZERO, false)] {
        let claimed = bench.running(job().max_attempts(1)).await;
        bench.advance(LEASE - left);
        let settled = bench.settle(&claimed.lease.complete(None)).await;
        assert_eq!(matches!(settled, Settled::Applied(State::Completed)), applied, "{left:?} left: {settled:?}");
    }
}

async fn l4_the_same_settlement_again_is_already_applied(bench: Bench) {
    for outcome in SAID {
        let claimed = bench.running(job().retry(no_jitter(9)).queue("default")).await;
        let id = claimed.job.id;
        let said = settlement(claimed.lease, outcome);
        assert!(matches!(bench.settle(&said).await, Settled::Applied(_)), "{outcome:?}");
        let before = snapshot(&bench, id).await;
        for _ in 0..2 {
            assert_eq!(answer(&bench, &said).await, Answer::AlreadyApplied, "{outcome:?}");
        }
        assert_eq!(snapshot(&bench, id).await, before, "{outcome:?}");
        if bench.state(id).await == State::Scheduled {
            bench.act(id, Act::Cancel { force: false }).await;
        }
    }
    bench.assert_sound().await;
}

async fn l4_a_repeat_is_known_whatever_became_of_the_job(bench: Bench) {
    let claimed = bench.running(job().retry(no_jitter(3))).await;
    let id = claimed.job.id;
    let said = claimed.lease.fail(failure(Category::Temporary), &mut || 0.5);
    assert!(matches!(bench.settle(&said).await, Settled::Applied(State::Retrying)));
    bench.advance(secs(1));
    assert_repeat_changes_nothing(&bench, id, &said).await;
    let second = bench.claim_one().await;
    assert_repeat_changes_nothing(&bench, id, &said).await;
    bench.apply(second.lease.fail(failure(Category::Permanent), &mut || 0.5)).await;
    assert_repeat_changes_nothing(&bench, id, &said).await;
    bench.pass(HOUR).await;
    bench.act(id, Act::Requeue(crate::job::RequeueOptions::default())).await;
    assert_repeat_changes_nothing(&bench, id, &said).await;
    let third = bench.claim_one().await;
    bench.complete(third.lease).await;
    assert_repeat_changes_nothing(&bench, id, &said).await;
    bench.assert_sound().await;
}

async fn assert_repeat_changes_nothing(bench: &Bench, id: JobId, said: &crate::job::Settlement) {
    let before = snapshot(bench, id).await;
    assert_eq!(answer(bench, said).await, Answer::AlreadyApplied, "while {}", before.job.state);
    assert_eq!(snapshot(bench, id).await, before);
}

async fn l4_another_outcome_is_no_repeat(bench: Bench) {
    let claimed = bench.running(job()).await;
    let (id, token) = (claimed.job.id, claimed.lease.key().token);
    bench.complete(claimed.lease).await;
    let before = snapshot(&bench, id).await;
    for outcome in SAID.into_iter().filter(|outcome| *outcome != Outcome::Completed) {
        let other = settlement(Lease::granted(&claimed.job, token), outcome);
        assert_eq!(answer(&bench, &other).await, Answer::Stale(Stale::NotRunning), "{outcome:?}");
    }
    let guess = Lease::granted(&claimed.job, new_lease_token()).complete(None);
    assert_eq!(answer(&bench, &guess).await, Answer::Stale(Stale::NotRunning), "another token is no repeat");
    assert_eq!(snapshot(&bench, id).await, before);
}

async fn l4_a_repeat_within_one_call_is_already_applied(bench: Bench) {
    bench.insert(vec![job(); 3]).await;
    let claimed = bench.claim(3).await;
    let again = |n: usize, outcome| settlement(Lease::granted(&claimed[n].job, claimed[n].lease.key().token), outcome);
    let nobody = Lease::granted(&claimed[0].job, new_lease_token()).complete(None);
    let batch = [
        again(1, Outcome::Completed),
        nobody,
        again(1, Outcome::Completed),
        again(1, Outcome::Failed),
        again(2, Outcome::Released),
        again(0, Outcome::DeadLettered),
    ];
    let answers = bench.store.settle(&batch).await.expect("settle");
    let answers: Vec<_> = answers.iter().map(Answer::from).collect();
    let expected = [
        Answer::Applied(State::Completed),
        Answer::Stale(Stale::Mismatch),
        Answer::AlreadyApplied,
        Answer::Stale(Stale::NotRunning),
        Answer::Applied(State::Scheduled),
        Answer::Applied(State::DeadLetter),
    ];
    assert_eq!(answers, expected, "each entry is answered on its own, in order");
    for (one, state) in claimed.iter().zip([State::DeadLetter, State::Completed, State::Scheduled]) {
        assert_eq!(bench.state(one.job.id).await, state);
        assert_eq!(bench.attempts(one.job.id).await.len(), 1);
    }
    bench.assert_sound().await;
}

async fn l5_a_heartbeat_moves_the_end_of_the_lease(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    bench.advance(secs(20));
    let extended = bench.extend(claimed.lease.key()).await;
    assert_eq!(extended, Extended::Held { expires_in: LEASE, cancel: None });
    let mut expected = claimed.job;
    expected.lease.as_mut().expect("held").expires_at = bench.now().plus(LEASE);
    assert_eq!(bench.job(id).await, expected, "and nothing else");
    bench.pass(LEASE - MICRO).await;
    assert_eq!(bench.complete(claimed.lease).await, State::Completed);
}

async fn l5_a_heartbeat_never_shortens_a_lease(bench: Bench) {
    bench.enqueue(job()).await;
    let claimed = take_as(&bench, "w", Some(secs(100))).await;
    let end = bench.now().plus(secs(100));
    bench.advance(secs(1));
    let answers = bench.store.extend(&[claimed.lease.key()], Some(secs(5))).await.expect("extend");
    assert_eq!(answers, [Extended::Held { expires_in: secs(99), cancel: None }]);
    assert_eq!(bench.job(claimed.job.id).await.lease.expect("held").expires_at, end);
}

/// A late heartbeat must not take back what another may already be running.
async fn l5_a_heartbeat_cannot_revive_an_expired_lease(bench: Bench) {
    let claimed = bench.running(job()).await;
    let (id, key) = (claimed.job.id, claimed.lease.key());
    bench.advance(LEASE);
    assert_eq!(bench.extend(key).await, Extended::Lost(Stale::Expired));
    assert_eq!(bench.job(id).await, claimed.job);
    assert_eq!(bench.upkeep().await.expired, 1, "the late heartbeat does not keep upkeep away");
    assert_eq!(bench.extend(key).await, Extended::Lost(Stale::NotRunning));
    let next = bench.claim_one().await;
    assert_eq!(bench.extend(key).await, Extended::Lost(Stale::Mismatch));
    assert_eq!(bench.job(id).await, next.job);
}

async fn l5_heartbeats_are_answered_one_by_one_in_order(bench: Bench) {
    // Longer than the standard execution timeout allows.
    bench.insert(vec![job().execution_timeout(None); 4]).await;
    let mut claimed = bench.claim(4).await;
    let keys: Vec<_> = claimed.iter().map(|one| one.lease.key()).collect();
    bench.complete(claimed.remove(1).lease).await;
    bench.act(keys[3].job, Act::Cancel { force: true }).await;
    let nobody = LeaseKey { job: JobId::from_uuid(uuid::Uuid::from_u128(7)), token: new_lease_token() };
    let guess = LeaseKey { job: keys[0].job, token: new_lease_token() };
    let asked = [keys[3], keys[2], nobody, guess, keys[1], keys[0], keys[2]];
    let answers = bench.store.extend(&asked, Some(HOUR)).await.expect("extend");
    let held = Extended::Held { expires_in: HOUR, cancel: None };
    let lost = Extended::Lost(Stale::NotRunning);
    let expected =
        [lost.clone(), held.clone(), lost.clone(), Extended::Lost(Stale::Mismatch), lost, held.clone(), held];
    assert_eq!(answers, expected);
    assert!(bench.store.extend(&[], None).await.expect("extend").is_empty());
    assert_eq!(bench.pass(HOUR - MICRO).await.expired, 0);
    assert_eq!(bench.pass(MICRO).await.expired, 2);
    bench.assert_sound().await;
}

async fn l5_a_heartbeat_tells_of_cancellation(bench: Bench) {
    let claimed = bench.running(job()).await;
    bench.act(claimed.job.id, Act::Cancel { force: false }).await;
    let asked_at = bench.now();
    bench.advance(secs(1));
    for _ in 0..2 {
        match bench.extend(claimed.lease.key()).await {
            Extended::Held { cancel: Some(cancel), .. } => {
                assert_eq!((cancel.by.as_deref(), cancel.at), (Some("ada"), asked_at));
                assert_eq!(cancel.message.as_deref(), Some("reasons"));
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn l6_a_claim_without_a_lease_time_gets_the_visibility_timeout(bench: Bench) {
    for (new, lease_time) in [(job(), secs(300)), (job().visibility_timeout(secs(7)), secs(7))] {
        let id = bench.enqueue(new).await;
        let claimed = take_as(&bench, "w", None).await;
        assert_eq!((claimed.job.id, claimed.expires_in), (id, lease_time));
        bench.advance(secs(2));
        let answers = bench.store.extend(&[claimed.lease.key()], None).await.expect("extend");
        assert_eq!(answers, [Extended::Held { expires_in: lease_time, cancel: None }]);
        let ends = bench.job(id).await.lease.expect("held").expires_at;
        assert_eq!(ends, bench.now().plus(lease_time));
        bench.complete(claimed.lease).await;
    }
    bench.enqueue(job().lifetime(secs(60))).await;
    assert_eq!(take_as(&bench, "w", None).await.expires_in, secs(60), "but never beyond the lifetime");
}

async fn l7_upkeep_takes_back_an_expired_lease_and_no_other(bench: Bench) {
    let first = bench.running(job()).await;
    bench.advance(secs(10));
    let second = bench.running(job()).await;
    bench.advance(LEASE - secs(10) - MICRO);
    assert_eq!(bench.upkeep().await.expired, 0);
    bench.advance(MICRO);
    assert_eq!(bench.state(first.job.id).await, State::Running, "until upkeep comes by");
    assert!(bench.claim(9).await.is_empty());
    assert_eq!(bench.upkeep().await.expired, 1);
    assert_eq!(bench.state(first.job.id).await, State::Scheduled);
    assert_eq!(bench.job(second.job.id).await, second.job);
    assert_eq!(bench.complete(second.lease).await, State::Completed);
    bench.assert_sound().await;
}

async fn l7_upkeep_goes_on_until_all_are_taken_back(bench: Bench) {
    bench.insert(vec![job(); 7]).await;
    assert_eq!(bench.claim(9).await.len(), 7);
    bench.advance(LEASE);
    let step = Upkeep { limit: 3, ..Upkeep::default() };
    let mut taken_back = Vec::new();
    loop {
        let report = bench.store.upkeep(&step).await.expect("upkeep");
        taken_back.push(report.expired);
        if !report.more {
            break;
        }
        assert!(taken_back.len() < 9, "it must end: {taken_back:?}");
    }
    taken_back.retain(|count| *count > 0);
    assert_eq!(taken_back, [3, 3, 1]);
    assert_eq!(bench.claim(9).await.len(), 7);
}

async fn l7_the_next_holder_has_the_next_version(bench: Bench) {
    let first = bench.running(job()).await;
    let id = first.job.id;
    bench.pass(LEASE).await;
    let second = take_as(&bench, "another", Some(LEASE)).await;
    assert_eq!((second.job.id, second.lease.version(), second.lease.attempt()), (id, 2, 2));
    assert_ne!(second.lease.key().token, first.lease.key().token);
    assert_eq!(second.job.lease.as_ref().map(|lease| lease.worker.as_str()), Some("another"));
    assert_eq!(second.job.failures, 1);
    assert_eq!(bench.complete(second.lease).await, State::Completed);
}

/// Whose lease it is says the token; the name of a worker is for people.
async fn l7_a_restart_under_the_same_name_neither_keeps_nor_takes_leases(bench: Bench) {
    bench.enqueue(job()).await;
    let orphan = take_as(&bench, "same", Some(LEASE)).await;
    bench.advance(LEASE - secs(1));
    bench.enqueue(job()).await;
    let report = WorkerReport { id: worker("same"), host: "host".to_owned(), queues: Vec::new(), types: None };
    bench.store.announce(&report).await.expect("announce");
    let fresh = take_as(&bench, "same", Some(LEASE)).await;
    assert_ne!(fresh.job.id, orphan.job.id, "a live lease is no orphan");
    bench.advance(secs(1));
    bench.store.announce(&report).await.expect("announce");
    assert!(matches!(bench.extend(fresh.lease.key()).await, Extended::Held { .. }));
    assert_eq!(bench.upkeep().await.expired, 1, "and an orphan is not kept by a name");
    assert_eq!(bench.state(orphan.job.id).await, State::Scheduled);
    assert_eq!(bench.state(fresh.job.id).await, State::Running);
    bench.assert_sound().await;
}

async fn l7_a_newer_job_with_its_key_does_not_hinder_a_lost_one(bench: Bench) {
    let keyed = || job().idempotency("key", Scope::Type, secs(10)).max_attempts(2);
    let older = bench.running(keyed()).await.job.id;
    bench.advance(secs(10));
    let newer = bench.enqueue(keyed()).await;
    assert_ne!(older, newer, "the window is over");
    assert_eq!(bench.pass(LEASE).await.expired, 1);
    assert_eq!(bench.state(older).await, State::Scheduled);
    assert_eq!(bench.claim(9).await.len(), 2);
    bench.pass(LEASE).await;
    assert_eq!(bench.state(older).await, State::DeadLetter);
    bench.act(older, Act::Requeue(crate::job::RequeueOptions::default())).await;
    let claimed = bench.claim_ids(9).await;
    assert_eq!((claimed.len(), claimed.contains(&older), claimed.contains(&newer)), (2, true, true));
    bench.assert_sound().await;
}

async fn l8_all_times_are_the_stores(bench: Bench) {
    assert_eq!(bench.store.now().await.expect("now"), bench.clock.now());
    let id = bench.enqueue(job().delay(secs(10)).retry(no_jitter(5)).lifetime(HOUR)).await;
    let job = bench.job(id).await;
    assert_eq!((job.created_at, job.run_at), (bench.now(), Some(bench.now().plus(secs(10)))));
    assert_eq!(job.deadline, Some(bench.now().plus(HOUR)));
    bench.advance(secs(10));
    let claimed = bench.claim_one().await;
    // A settlement decided long before it arrives is dated, and its delay counted, by the store.
    let said = claimed.lease.fail(failure(Category::Temporary), &mut || 0.5);
    bench.advance(secs(20));
    bench.apply(said).await;
    let job = bench.job(id).await;
    assert_eq!(job.run_at, Some(bench.now().plus(secs(1))));
    assert_eq!(job.failure.expect("a failure").at, bench.now());
    bench.advance(secs(1));
    let snoozed = bench.claim_one().await.lease.snooze(secs(60));
    bench.advance(secs(5));
    bench.apply(snoozed).await;
    assert_eq!(bench.job(id).await.run_at, Some(bench.now().plus(secs(60))));
    assert_eq!(bench.store.now().await.expect("now"), bench.clock.now());
}

async fn l9_lease_versions_only_grow(bench: Bench) {
    let id = bench.enqueue(job().retry(no_jitter(2))).await;
    for version in 1..=12u64 {
        let claimed = bench.claim_one().await;
        assert_eq!((claimed.job.id, claimed.lease.version()), (id, version));
        match version % 4 {
            0 => drop(bench.apply(claimed.lease.release()).await),
            1 => drop(bench.apply(claimed.lease.snooze(secs(1))).await),
            2 => drop(bench.pass(LEASE).await),
            _ => drop(bench.fail(claimed.lease).await),
        }
        bench.pass(secs(2)).await;
        if bench.state(id).await == State::DeadLetter {
            bench.act(id, Act::Requeue(crate::job::RequeueOptions::default())).await;
        }
        assert_eq!(bench.job(id).await.lease_version, version, "requeue does not start it anew");
    }
    bench.assert_sound().await;
}

async fn l10_a_long_run_under_a_short_lease_is_not_disturbed(bench: Bench) {
    bench.enqueue(job()).await;
    let claimed = take_as(&bench, "w", Some(secs(5))).await;
    let id = claimed.job.id;
    for _ in 0..300 {
        bench.advance(secs(2));
        let answers = bench.store.extend(&[claimed.lease.key()], Some(secs(5))).await.expect("extend");
        assert_eq!(answers, [Extended::Held { expires_in: secs(5), cancel: None }]);
        assert_eq!(bench.upkeep().await.expired, 0);
    }
    assert!(bench.claim(9).await.is_empty());
    let result = Payload::json("done").expect("json");
    assert_eq!(bench.apply(claimed.lease.complete(Some(result))).await, State::Completed);
    let job = bench.job(id).await;
    assert_eq!((job.attempt, job.failures, bench.attempts(id).await.len()), (1, 0, 1));
    bench.assert_sound().await;
}
