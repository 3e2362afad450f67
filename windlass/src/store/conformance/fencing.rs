//! Section 4 of the contract, rule L2: every write of a lease holder × every state × every kind of lease.

use super::Bench;
use super::bench::{LEASE, job};
use super::stage::{Answer, SAID, Snapshot, Staged, answer, secs, settlement, snapshot, stage, take};
use crate::job::{JobId, Lease, LeaseKey, Limits, Outcome, Payload, Policies, Progress, Stale, State};
use crate::store::{Act, Extended, Save, Settled, new_lease_token};

chapter! {
    l2_a_pending_job_takes_no_holders_write,
    l2_a_delayed_job_takes_no_holders_write,
    l2_a_scheduled_job_takes_no_holders_write,
    l2_a_running_job_takes_no_strangers_write,
    l2_a_retrying_job_takes_no_holders_write,
    l2_a_completed_job_takes_no_holders_write,
    l2_a_failed_job_takes_no_holders_write,
    l2_a_dead_lettered_job_takes_no_holders_write,
    l2_a_cancelled_job_takes_no_holders_write,
    l2_an_unknown_job_takes_no_write,
    l2_a_deleted_job_takes_no_write,
    l2_a_token_opens_only_its_own_job,
    l2_the_holder_may_say_each_outcome,
    l2_the_holder_may_save_and_the_newest_counts,
    l2_saves_are_answered_one_by_one_in_order,
    l2_a_refused_completion_spawns_nothing,
    l2_one_stale_entry_fails_no_other,
}

async fn l2_a_pending_job_takes_no_holders_write(bench: Bench) {
    refuses_every_write(&bench, State::Pending).await;
}

async fn l2_a_delayed_job_takes_no_holders_write(bench: Bench) {
    refuses_every_write(&bench, State::Delayed).await;
}

async fn l2_a_scheduled_job_takes_no_holders_write(bench: Bench) {
    refuses_every_write(&bench, State::Scheduled).await;
}

async fn l2_a_running_job_takes_no_strangers_write(bench: Bench) {
    refuses_every_write(&bench, State::Running).await;
}

async fn l2_a_retrying_job_takes_no_holders_write(bench: Bench) {
    refuses_every_write(&bench, State::Retrying).await;
}

async fn l2_a_completed_job_takes_no_holders_write(bench: Bench) {
    refuses_every_write(&bench, State::Completed).await;
}

async fn l2_a_failed_job_takes_no_holders_write(bench: Bench) {
    refuses_every_write(&bench, State::Failed).await;
}

async fn l2_a_dead_lettered_job_takes_no_holders_write(bench: Bench) {
    refuses_every_write(&bench, State::DeadLetter).await;
}

async fn l2_a_cancelled_job_takes_no_holders_write(bench: Bench) {
    refuses_every_write(&bench, State::Cancelled).await;
}

/// Tries every write on a job in `state`, before and after the newest lease would have ended, under that lease, under
/// the one before it and under a made-up one. All but the live holder's are refused and change nothing.
async fn refuses_every_write(bench: &Bench, state: State) {
    let staged = stage(bench, state, "default").await;
    let before = snapshot(bench, staged.id).await;
    let wrong = LeaseKey { job: staged.id, token: new_lease_token() };
    for expired in [false, true] {
        if expired {
            bench.advance(LEASE);
        }
        for key in [staged.old, staged.current, wrong] {
            let holds = state == State::Running && !expired && key == staged.current;
            if !holds {
                refuses(bench, &staged, key, &before, expired).await;
            }
        }
    }
    bench.assert_sound().await;
}

async fn refuses(bench: &Bench, staged: &Staged, key: LeaseKey, before: &Snapshot, expired: bool) {
    let state = before.job.state;
    let stale = match (state, expired) {
        (State::Running, false) => Stale::Mismatch,
        (State::Running, true) => Stale::Expired,
        _ => Stale::NotRunning,
    };
    for outcome in SAID {
        let repeat = key == staged.current && staged.said == Some(outcome);
        let expected = if repeat { Answer::AlreadyApplied } else { Answer::Stale(stale) };
        let said = settlement(Lease::granted(&before.job, key.token), outcome);
        assert_eq!(answer(bench, &said).await, expected, "{outcome:?} on {state}, expired: {expired}");
        assert_eq!(&snapshot(bench, staged.id).await, before, "{outcome:?} on {state}");
    }
    assert_eq!(bench.extend(key).await, Extended::Lost(stale), "extend on {state}, expired: {expired}");
    assert_eq!(&snapshot(bench, staged.id).await, before, "extend on {state}");
    assert_eq!(bench.store.save(&[full_save(key)]).await.expect("save"), [Err(stale)], "save on {state}");
    assert_eq!(&snapshot(bench, staged.id).await, before, "save on {state}");
}

fn full_save(key: LeaseKey) -> Save {
    let progress = Progress::new(0.5, "half way").expect("in bounds");
    Save::under(key).checkpoint("saved").expect("small").progress(progress).log(["one".to_owned(), "two".to_owned()])
}

async fn l2_an_unknown_job_takes_no_write(bench: Bench) {
    let claimed = bench.running(job()).await;
    let mut nobody = claimed.job.clone();
    nobody.id = JobId::from_uuid(uuid::Uuid::from_u128(7));
    let key = LeaseKey { job: nobody.id, token: claimed.lease.key().token };
    for outcome in SAID {
        let said = settlement(Lease::granted(&nobody, key.token), outcome);
        assert_eq!(answer(&bench, &said).await, Answer::Stale(Stale::NotRunning), "{outcome:?}");
    }
    assert_eq!(bench.extend(key).await, Extended::Lost(Stale::NotRunning));
    assert_eq!(bench.store.save(&[full_save(key)]).await.expect("save"), [Err(Stale::NotRunning)]);
    assert!(bench.find(nobody.id).await.is_none());
    assert_eq!(bench.job(claimed.job.id).await, claimed.job);
    bench.assert_sound().await;
}

async fn l2_a_deleted_job_takes_no_write(bench: Bench) {
    let claimed = bench.running(job()).await;
    let (id, key) = (claimed.job.id, claimed.lease.key());
    bench.complete(claimed.lease).await;
    bench.act(id, Act::Delete).await;
    for outcome in SAID {
        let said = settlement(Lease::granted(&claimed.job, key.token), outcome);
        assert_eq!(answer(&bench, &said).await, Answer::Stale(Stale::NotRunning), "{outcome:?}");
    }
    assert_eq!(bench.extend(key).await, Extended::Lost(Stale::NotRunning));
    assert_eq!(bench.store.save(&[full_save(key)]).await.expect("save"), [Err(Stale::NotRunning)]);
    assert!(bench.find(id).await.is_none());
    assert_eq!(bench.store.attempts(id).await.expect_err("deleted").name(), "NotFound");
    assert_eq!(bench.store.logs(id).await.expect_err("deleted").name(), "NotFound");
    bench.assert_sound().await;
}

async fn l2_a_token_opens_only_its_own_job(bench: Bench) {
    bench.insert(vec![job(); 2]).await;
    let claimed = bench.claim(2).await;
    let [first, second] = [0, 1].map(|n| claimed[n].lease.key());
    let crossed = LeaseKey { job: first.job, token: second.token };
    let before = [snapshot(&bench, first.job).await, snapshot(&bench, second.job).await];
    for outcome in SAID {
        let said = settlement(Lease::granted(&claimed[0].job, second.token), outcome);
        assert_eq!(answer(&bench, &said).await, Answer::Stale(Stale::Mismatch), "{outcome:?}");
    }
    assert_eq!(bench.extend(crossed).await, Extended::Lost(Stale::Mismatch));
    assert_eq!(bench.store.save(&[full_save(crossed)]).await.expect("save"), [Err(Stale::Mismatch)]);
    let after = [snapshot(&bench, first.job).await, snapshot(&bench, second.job).await];
    assert_eq!(after, before);
}

async fn l2_the_holder_may_say_each_outcome(bench: Bench) {
    let expected = [
        (Outcome::Completed, State::Completed),
        (Outcome::Failed, State::Retrying),
        (Outcome::DeadLettered, State::DeadLetter),
        (Outcome::Snoozed, State::Delayed),
        (Outcome::Cancelled, State::Cancelled),
        (Outcome::Released, State::Scheduled),
        (Outcome::Interrupted, State::Scheduled),
    ];
    assert_eq!(expected.map(|(outcome, _)| outcome), SAID);
    for (outcome, state) in expected {
        let staged = stage(&bench, State::Running, outcome.as_str()).await;
        let mut reference = bench.job(staged.id).await;
        bench.advance(secs(1));
        let said = settlement(Lease::granted(&reference, staged.current.token), outcome);
        assert_eq!(answer(&bench, &said).await, Answer::Applied(state), "{outcome:?}");
        let closed = reference.apply(said.verdict(false), outcome, bench.now()).expect("a legal step");
        reference.result = said.result().cloned();
        assert_eq!(bench.job(staged.id).await, reference, "{outcome:?}");
        assert_eq!(bench.attempts(staged.id).await.last(), closed.as_ref(), "{outcome:?}");
    }
    bench.assert_sound().await;
}

async fn l2_the_holder_may_save_and_the_newest_counts(bench: Bench) {
    let claimed = bench.running(job()).await;
    let (id, key) = (claimed.job.id, claimed.lease.key());
    bench.advance(secs(1));
    bench.store.save(&[full_save(key)]).await.expect("save").remove(0).expect("held");
    let mut expected = claimed.job;
    expected.checkpoint = Some("saved".into());
    expected.progress = Some(Progress { fraction: 0.5, message: "half way".to_owned() });
    assert_eq!(bench.job(id).await, expected, "and nothing else");
    let later = [
        Save::under(key).checkpoint("older").expect("small").log(["three".to_owned()]),
        Save::under(key).checkpoint("newer").expect("small"),
        Save::under(key).progress(Progress::new(1.0, "").expect("in bounds")),
        Save::under(key),
    ];
    let answers = bench.store.save(&later).await.expect("save");
    assert_eq!(answers, [Ok(()); 4]);
    expected.checkpoint = Some("newer".into());
    expected.progress = Some(Progress { fraction: 1.0, message: String::new() });
    assert_eq!(bench.job(id).await, expected);
    let logs = bench.store.logs(id).await.expect("logs");
    let texts: Vec<_> = logs.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    assert!(logs.iter().all(|line| line.attempt == claimed.lease.attempt_id() && line.at == bench.now()));
    bench.complete(claimed.lease).await;
    assert_eq!(bench.job(id).await.checkpoint.as_deref(), Some(b"newer".as_slice()));
}

async fn l2_saves_are_answered_one_by_one_in_order(bench: Bench) {
    bench.insert(vec![job(); 3]).await;
    let mut claimed = bench.claim(3).await;
    let keys: Vec<_> = claimed.iter().map(|one| one.lease.key()).collect();
    bench.complete(claimed.remove(1).lease).await;
    let guess = LeaseKey { job: keys[2].job, token: new_lease_token() };
    let saves = [keys[1], guess, keys[2], keys[0]].map(full_save);
    let answers = bench.store.save(&saves).await.expect("save");
    assert_eq!(answers, [Err(Stale::NotRunning), Err(Stale::Mismatch), Ok(()), Ok(())]);
    for (key, saved) in keys.iter().zip([true, false, true]) {
        assert_eq!(bench.job(key.job).await.checkpoint.is_some(), saved);
        assert_eq!(bench.store.logs(key.job).await.expect("logs").len(), if saved { 2 } else { 0 });
    }
    assert!(bench.store.save(&[]).await.expect("save").is_empty());
}

async fn l2_a_refused_completion_spawns_nothing(bench: Bench) {
    let staged = stage(&bench, State::Running, "default").await;
    let before = snapshot(&bench, staged.id).await;
    let child = job().check(&Limits::default(), &Policies::default()).expect("valid");
    let spawning = |token| {
        let done = Lease::granted(&before.job, token).complete(Some(Payload::default()));
        done.spawn(vec![child.clone(), child.clone()]).expect("two children")
    };
    for token in [staged.old.token, new_lease_token()] {
        assert_eq!(answer(&bench, &spawning(token)).await, Answer::Stale(Stale::Mismatch));
        assert_eq!(snapshot(&bench, staged.id).await, before);
    }
    bench.advance(LEASE);
    assert_eq!(answer(&bench, &spawning(staged.current.token)).await, Answer::Stale(Stale::Expired));
    assert_eq!(snapshot(&bench, staged.id).await, before);
    bench.upkeep().await;
    let lease = take(&bench, "default").await.lease;
    let done = lease.complete(None).spawn(vec![child.clone(), child]).expect("two children");
    assert_eq!(answer(&bench, &done).await, Answer::Applied(State::Completed));
    assert_eq!(bench.store.totals().await.expect("totals").accepted, 3);
    assert_eq!(answer(&bench, &done).await, Answer::AlreadyApplied);
    assert_eq!(bench.store.totals().await.expect("totals").accepted, 3, "a repeat spawns nothing either");
    bench.assert_sound().await;
}

async fn l2_one_stale_entry_fails_no_other(bench: Bench) {
    bench.insert(vec![job(); 20]).await;
    let claimed = bench.claim(20).await;
    let mut batch = Vec::new();
    for (n, one) in claimed.iter().enumerate() {
        let token = if n % 3 == 0 { new_lease_token() } else { one.lease.key().token };
        batch.push(Lease::granted(&one.job, token).complete(None));
    }
    let answers = bench.store.settle(&batch).await.expect("settle");
    assert_eq!(answers.len(), batch.len());
    for (n, (one, settled)) in claimed.iter().zip(&answers).enumerate() {
        let refused = matches!(settled, Settled::Stale(Stale::Mismatch));
        assert_eq!(refused, n % 3 == 0, "entry {n}: {settled:?}");
        let state = if refused { State::Running } else { State::Completed };
        assert_eq!(bench.state(one.job.id).await, state);
    }
    assert!(bench.store.settle(&[]).await.expect("settle").is_empty());
    bench.assert_sound().await;
}
