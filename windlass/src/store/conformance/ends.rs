//! Section 3 of the contract: how jobs are ended from outside and sent back, S13 to S17.

use super::Bench;
use super::bench::{LEASE, failure, job, no_jitter};
use super::moves::named;
use super::stage::{Answer, HOUR, MICRO, SAID, answer, secs, settlement, snapshot, stage};
use crate::error::Error;
use crate::job::{
    AttemptId, CODE_LIFETIME, CODE_OPERATOR, Category, JobId, Lease, NewJob, Outcome, Priority, ReasonKind,
    RequeueOptions, RetryPolicy, Stale, State,
};
use crate::store::{Act, Edit, Extended, JobEventKind, Save, Target};

chapter! {
    s13_cancel_ends_every_waiting_state,
    s14_a_cancel_asked_lets_success_stand,
    s14_a_cancel_asked_makes_any_other_end_cancelled,
    s14_a_cancel_asked_ends_an_expired_lease,
    s14_a_job_whose_lease_has_expired_can_be_cancelled,
    s14_a_second_ask_keeps_the_first,
    s14_a_forced_cancel_revokes_the_lease,
    s15_the_lifetime_ends_every_unfinished_state,
    s15_the_lifetime_revokes_a_running_lease,
    s15_a_job_past_its_lifetime_is_never_claimed,
    s15_no_lifetime_means_no_end,
    s16_requeue_starts_the_counters_anew,
    s16_requeue_can_keep_the_counters,
    s16_requeue_can_wait_for_a_run_at,
    s16_requeue_beyond_the_lifetime_is_refused,
    s16_history_checkpoint_and_lease_version_go_on,
    s16_a_requeued_job_is_not_bound_by_its_old_lifetime,
    s16b_an_operator_dead_letters_with_a_reason,
    s16b_dead_lettering_a_running_job_revokes_its_lease,
    s16b_a_failed_job_that_is_dead_lettered_is_told_as_an_event_only,
    s16_a_requeued_job_does_not_wait_for_what_was_pruned,
    s17_each_act_does_to_each_state_what_the_table_says,
    s17_nothing_leaves_completed_or_cancelled,
    s17_an_act_on_an_unknown_job_is_refused,
}

const CANCEL: Act = Act::Cancel { force: false };
const CANCEL_BY_FORCE: Act = Act::Cancel { force: true };

fn requeue() -> Act {
    Act::Requeue(RequeueOptions::default())
}

async fn s13_cancel_ends_every_waiting_state(bench: Bench) {
    for state in [State::Pending, State::Delayed, State::Retrying, State::Scheduled] {
        for (n, act) in [CANCEL, CANCEL_BY_FORCE].into_iter().enumerate() {
            let id = stage(&bench, state, &format!("{}.{n}", state.as_str())).await.id;
            bench.advance(secs(1));
            bench.act(id, act).await;
            let job = bench.job(id).await;
            assert_eq!((job.state, job.completed_at), (State::Cancelled, Some(bench.now())), "from {state}");
            assert_eq!((job.run_at, job.lease, job.cancel), (None, None, None));
            let reason = job.reason.expect("a reason");
            assert_eq!((reason.kind, reason.by.as_deref()), (ReasonKind::Cancelled, Some("ada")));
            assert_eq!(reason.message.as_deref(), Some("reasons"));
        }
    }
    bench.advance(HOUR);
    for state in [State::Delayed, State::Retrying, State::Scheduled] {
        assert!(bench.claim_from(&format!("{}.0", state.as_str()), 9).await.is_empty());
    }
    bench.assert_sound().await;
}

async fn s14_a_cancel_asked_lets_success_stand(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    bench.act(id, CANCEL).await;
    let asked = bench.job(id).await;
    assert_eq!(asked.state, State::Running, "it is only asked");
    assert_eq!(asked.cancel.as_ref().map(|cancel| cancel.at), Some(bench.now()));
    assert_eq!(bench.complete(claimed.lease).await, State::Completed);
    let job = bench.job(id).await;
    assert_eq!((job.cancel, job.reason), (None, None));
    bench.assert_sound().await;
}

async fn s14_a_cancel_asked_makes_any_other_end_cancelled(bench: Bench) {
    for outcome in SAID.into_iter().filter(|outcome| *outcome != Outcome::Completed) {
        let claimed = bench.running(job().max_attempts(9)).await;
        let id = claimed.job.id;
        bench.act(id, CANCEL).await;
        let said = settlement(claimed.lease, outcome);
        assert_eq!(answer(&bench, &said).await, Answer::Applied(State::Cancelled), "{outcome:?}");
        let job = bench.job(id).await;
        let reason = job.reason.expect("a reason");
        assert_eq!((reason.kind, reason.by.as_deref()), (ReasonKind::Cancelled, Some("ada")), "{outcome:?}");
        assert_eq!(reason.message.as_deref(), Some("reasons"));
        assert_eq!((job.cancel, job.run_at, job.completed_at), (None, None, Some(bench.now())));
        assert_eq!(bench.attempts(id).await[0].outcome, Some(outcome), "the attempt says what its holder said");
        assert_eq!(answer(&bench, &said).await, Answer::AlreadyApplied);
    }
    bench.pass(HOUR).await;
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn s14_a_cancel_asked_ends_an_expired_lease(bench: Bench) {
    let id = bench.running(job().max_attempts(9)).await.job.id;
    bench.act(id, CANCEL).await;
    assert_eq!(bench.pass(LEASE).await.expired, 1);
    let job = bench.job(id).await;
    assert_eq!((job.state, job.lease, job.cancel), (State::Cancelled, None, None));
    assert_eq!(job.reason.expect("a reason").by.as_deref(), Some("ada"));
    assert_eq!(bench.attempts(id).await[0].outcome, Some(Outcome::Lost));
    assert!(bench.claim(9).await.is_empty());
    bench.assert_sound().await;
}

async fn s14_a_job_whose_lease_has_expired_can_be_cancelled(bench: Bench) {
    let asked = bench.running(job().max_attempts(9)).await.job.id;
    let forced = bench.running(job().max_attempts(9)).await.job.id;
    bench.advance(LEASE);
    bench.act(asked, CANCEL).await;
    bench.act(forced, CANCEL_BY_FORCE).await;
    assert_eq!(bench.state(asked).await, State::Running);
    assert_eq!(bench.state(forced).await, State::Cancelled);
    assert_eq!(bench.upkeep().await.expired, 1);
    assert_eq!(bench.state(asked).await, State::Cancelled);
    bench.assert_sound().await;
}

async fn s14_a_second_ask_keeps_the_first(bench: Bench) {
    let claimed = bench.running(job()).await;
    let id = claimed.job.id;
    bench.act(id, CANCEL).await;
    let asked = bench.job(id).await;
    bench.advance(secs(1));
    let operation = crate::store::Operation {
        target: Target::Jobs(vec![id]),
        act: CANCEL,
        by: Some("bob".to_owned()),
        why: "other reasons".to_owned(),
        dry_run: false,
    };
    let answer = bench.store.operate(&operation).await.expect("operate");
    assert!(answer.refused.is_empty(), "asking again is no fault: {answer:?}");
    assert_eq!(bench.job(id).await, asked);
    assert_eq!(bench.apply(claimed.lease.release()).await, State::Cancelled);
    assert_eq!(bench.job(id).await.reason.expect("a reason").by.as_deref(), Some("ada"));
}

async fn s14_a_forced_cancel_revokes_the_lease(bench: Bench) {
    let claimed = bench.running(job()).await;
    let (id, key) = (claimed.job.id, claimed.lease.key());
    bench.advance(secs(1));
    bench.act(id, CANCEL_BY_FORCE).await;
    let job = bench.job(id).await;
    assert_eq!((job.state, job.lease.as_ref(), job.completed_at), (State::Cancelled, None, Some(bench.now())));
    assert_eq!(job.failure.as_ref().map(|failure| failure.category), Some(Category::Cancelled));
    assert_revoked(&bench, id, key, claimed.lease).await;
}

/// The attempt was closed as revoked, and its holder can do nothing any more.
async fn assert_revoked(bench: &Bench, id: JobId, key: crate::job::LeaseKey, lease: Lease) {
    let attempts = bench.attempts(id).await;
    let last = attempts.last().expect("an attempt");
    assert_eq!((last.outcome, last.ended_at), (Some(Outcome::Revoked), Some(bench.now())));
    let before = snapshot(bench, id).await;
    assert_eq!(bench.extend(key).await, Extended::Lost(Stale::NotRunning));
    assert_eq!(answer(bench, &lease.complete(None)).await, Answer::Stale(Stale::NotRunning));
    assert_eq!(snapshot(bench, id).await, before);
    bench.assert_sound().await;
}

/// A job that lives an hour, in a state that it would not leave within it.
async fn short_lived(bench: &Bench, state: State) -> JobId {
    // Without an execution timeout, which would end the lease before the lifetime does (T1b).
    let short = || job().lifetime(HOUR).execution_timeout(None).retry(RetryPolicy::constant(2 * HOUR, 9));
    match state {
        State::Pending => {
            let first = bench.enqueue(job().delay(2 * HOUR)).await;
            bench.enqueue(short().after([first])).await
        }
        State::Delayed => {
            let claimed = bench.running(short()).await;
            bench.apply(claimed.lease.snooze(2 * HOUR)).await;
            claimed.job.id
        }
        State::Retrying => {
            let claimed = bench.running(short()).await;
            bench.fail(claimed.lease).await;
            claimed.job.id
        }
        State::Running => {
            let id = bench.enqueue(short()).await;
            let claimed = super::stage::take_as(bench, "w", Some(2 * HOUR)).await;
            assert_eq!(claimed.job.id, id);
            id
        }
        _ => bench.enqueue(short()).await,
    }
}

async fn s15_the_lifetime_ends_every_unfinished_state(bench: Bench) {
    let states = [State::Pending, State::Delayed, State::Retrying, State::Running, State::Scheduled];
    let mut ids = Vec::new();
    for state in states {
        ids.push(short_lived(&bench, state).await);
    }
    let end = bench.now().plus(HOUR);
    assert_eq!(bench.pass(HOUR - MICRO).await.lifetimes, 0);
    for (id, state) in ids.iter().zip(states) {
        let job = bench.job(*id).await;
        assert_eq!((job.state, job.deadline), (state, Some(end)), "not a moment too early");
    }
    assert_eq!(bench.pass(MICRO).await.lifetimes, states.len());
    for (id, state) in ids.iter().zip(states) {
        let job = bench.job(*id).await;
        assert_eq!((job.state, job.completed_at), (State::DeadLetter, Some(end)), "from {state}");
        assert_eq!((job.lease, job.run_at, job.lost), (None, None, 0), "from {state}");
        assert_eq!(job.reason.expect("a reason").kind, ReasonKind::Lifetime, "from {state}");
        let kept = job.failure.expect("a failure");
        assert_eq!((kept.category, kept.code.as_deref()), (Category::Timeout, Some(CODE_LIFETIME)));
    }
    bench.pass(24 * HOUR).await;
    for id in ids {
        assert_eq!(bench.state(id).await, State::DeadLetter);
    }
    bench.assert_sound().await;
}

async fn s15_the_lifetime_revokes_a_running_lease(bench: Bench) {
    let claimed = bench.running(job().lifetime(HOUR).execution_timeout(None)).await;
    let (id, key) = (claimed.job.id, claimed.lease.key());
    let end = claimed.job.deadline.expect("a deadline");
    while end.since(bench.now()) > secs(10) {
        bench.advance(secs(10));
        assert!(matches!(bench.extend(key).await, Extended::Held { .. }));
        bench.upkeep().await;
    }
    assert_eq!(bench.job(id).await.lease.expect("held").expires_at, end, "no lease outlives the job");
    bench.advance(secs(10));
    assert_eq!(bench.now(), end);
    let late = Lease::granted(&claimed.job, key.token).complete(None);
    assert_eq!(answer(&bench, &late).await, Answer::Stale(Stale::Expired), "also before upkeep has come by");
    let report = bench.upkeep().await;
    assert_eq!((report.lifetimes, report.expired), (1, 0));
    let job = bench.job(id).await;
    assert_eq!((job.state, job.failures, job.lost), (State::DeadLetter, 0, 0));
    assert_revoked(&bench, id, key, claimed.lease).await;
}

async fn s15_a_job_past_its_lifetime_is_never_claimed(bench: Bench) {
    let id = bench.enqueue(job().lifetime(HOUR)).await;
    let due_with_it = bench.enqueue(job().lifetime(HOUR).delay(HOUR - MICRO)).await;
    let healthy = bench.enqueue(job()).await;
    bench.advance(HOUR);
    assert_eq!(bench.claim_ids(9).await, [healthy], "though upkeep has not come by");
    assert_eq!(bench.job(id).await.attempt, 0);
    bench.upkeep().await;
    for id in [id, due_with_it] {
        assert_eq!(bench.state(id).await, State::DeadLetter);
    }
    bench.assert_sound().await;
}

async fn s15_no_lifetime_means_no_end(bench: Bench) {
    let id = bench.enqueue(job().lifetime(None)).await;
    bench.pass(10_000 * HOUR).await;
    assert_eq!(bench.claim_ids(9).await, [id]);
}

async fn s16_requeue_starts_the_counters_anew(bench: Bench) {
    for state in [State::Failed, State::DeadLetter] {
        let queue = state.as_str();
        let id = stage(&bench, state, queue).await.id;
        let dead = bench.job(id).await;
        assert_eq!((dead.attempt, dead.failures, dead.lost, dead.generation), (2, 2, 1, 0));
        bench.advance(secs(9));
        bench.act(id, requeue()).await;
        let job = bench.job(id).await;
        let now = bench.now();
        assert_eq!((job.state, job.generation), (State::Scheduled, 1));
        assert_eq!((job.attempt, job.failures, job.lost), (0, 0, 0));
        assert_eq!((job.position, job.scheduled_at, job.updated_at), (now, Some(now), now));
        assert_eq!((&job.reason, job.completed_at, &job.result, job.run_at), (&None, None, &None, None));
        assert_eq!((job.created_at, job.failure.as_ref()), (dead.created_at, dead.failure.as_ref()));
        assert_eq!(super::stage::take(&bench, queue).await.lease.attempt(), 1);
    }
    bench.assert_sound().await;
}

async fn s16_requeue_can_keep_the_counters(bench: Bench) {
    let claimed = bench.running(job().retry(no_jitter(5))).await;
    let id = claimed.job.id;
    bench.fail(claimed.lease).await;
    bench.advance(secs(1));
    let claimed = bench.claim_one().await;
    bench.apply(claimed.lease.fail(failure(Category::Permanent), &mut || 0.5)).await;
    let keep = || Act::Requeue(RequeueOptions { keep_counters: true, ..RequeueOptions::default() });
    bench.act(id, keep()).await;
    let job = bench.job(id).await;
    assert_eq!((job.attempt, job.failures, job.generation), (2, 2, 1));
    let claimed = bench.claim_one().await;
    assert_eq!(claimed.lease.attempt(), 3);
    bench.fail(claimed.lease).await;
    assert_eq!(bench.job(id).await.run_at, Some(bench.now().plus(secs(4))), "the backoff goes on too");

    let claimed = bench.running(NewJob::new("last", crate::job::Payload::default()).max_attempts(1)).await;
    let id = claimed.job.id;
    assert_eq!(bench.fail(claimed.lease).await, State::DeadLetter);
    bench.act(id, keep()).await;
    let claimed = bench.claim_one().await;
    assert_eq!((claimed.job.id, claimed.job.failures), (id, 0), "room for one more run");
    assert_eq!(bench.fail(claimed.lease).await, State::DeadLetter);
    bench.assert_sound().await;
}

async fn s16_requeue_can_wait_for_a_run_at(bench: Bench) {
    let id = bench.in_state(State::Failed).await;
    let run_at = bench.now().plus(secs(30));
    bench.act(id, Act::Requeue(RequeueOptions { run_at: Some(run_at), ..RequeueOptions::default() })).await;
    let job = bench.job(id).await;
    assert_eq!((job.state, job.run_at, job.generation), (State::Delayed, Some(run_at), 1));
    bench.advance(secs(30) - MICRO);
    assert!(bench.claim(9).await.is_empty());
    bench.advance(MICRO);
    assert_eq!(bench.claim_one().await.job.id, id);

    let id = bench.in_state(State::DeadLetter).await;
    let past = bench.now().minus(secs(1));
    bench.act(id, Act::Requeue(RequeueOptions { run_at: Some(past), ..RequeueOptions::default() })).await;
    assert_eq!(bench.state(id).await, State::Scheduled);
    bench.assert_sound().await;
}

async fn s16_requeue_beyond_the_lifetime_is_refused(bench: Bench) {
    let claimed = bench.running(job().lifetime(HOUR)).await;
    let id = claimed.job.id;
    bench.apply(claimed.lease.fail(failure(Category::Permanent), &mut || 0.5)).await;
    let before = snapshot(&bench, id).await;
    let run_at = Some(bench.now().plus(HOUR));
    let refused = bench.try_act(id, Act::Requeue(RequeueOptions { run_at, ..RequeueOptions::default() })).await;
    match refused {
        Err(Error::InvalidArgument { field: "run_at", .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(snapshot(&bench, id).await, before);
}

async fn s16_history_checkpoint_and_lease_version_go_on(bench: Bench) {
    let claimed = bench.running(job().max_attempts(1)).await;
    let id = claimed.job.id;
    let save = Save::under(claimed.lease.key()).checkpoint("half way").expect("small").log(["line".to_owned()]);
    bench.store.save(&[save]).await.expect("save").remove(0).expect("held");
    bench.fail(claimed.lease).await;
    let history = bench.attempts(id).await;
    bench.act(id, requeue()).await;
    assert_eq!(bench.attempts(id).await, history);
    let claimed = bench.claim_one().await;
    assert_eq!(claimed.job.checkpoint.as_deref(), Some(b"half way".as_slice()));
    assert_eq!((claimed.lease.version(), claimed.lease.attempt()), (2, 1));
    bench.complete(claimed.lease).await;
    let attempts = bench.attempts(id).await;
    assert_eq!((attempts.len(), &attempts[0]), (2, &history[0]));
    assert_eq!((attempts[1].generation, attempts[1].number, attempts[1].lease_version), (1, 1, 2));
    assert_eq!(attempts[1].previous, Some(AttemptId::of(id, 1)));
    assert_eq!(bench.store.logs(id).await.expect("logs").len(), 1);
    bench.assert_sound().await;
}

async fn s16_a_requeued_job_is_not_bound_by_its_old_lifetime(bench: Bench) {
    let id = bench.enqueue(job().lifetime(HOUR)).await;
    bench.pass(5 * HOUR).await;
    assert_eq!(bench.state(id).await, State::DeadLetter);
    bench.act(id, requeue()).await;
    assert_eq!(bench.job(id).await.deadline, Some(bench.now().plus(HOUR)));
    bench.pass(HOUR - MICRO).await;
    let claimed = bench.claim_one().await;
    assert_eq!(claimed.job.id, id);
    assert_eq!(claimed.expires_in, MICRO, "and the new one holds");
    bench.pass(MICRO).await;
    assert_eq!(bench.state(id).await, State::DeadLetter);
    bench.assert_sound().await;
}

async fn s16b_an_operator_dead_letters_with_a_reason(bench: Bench) {
    for state in [State::Pending, State::Delayed, State::Scheduled, State::Retrying, State::Failed] {
        let id = stage(&bench, state, state.as_str()).await.id;
        let before = bench.job(id).await;
        bench.advance(secs(1));
        bench.act(id, Act::DeadLetter).await;
        let job = bench.job(id).await;
        assert_eq!((job.state, job.completed_at), (State::DeadLetter, Some(bench.now())), "from {state}");
        let reason = job.reason.expect("a reason");
        assert_eq!((reason.kind, reason.by.as_deref()), (ReasonKind::Explicit, Some("ada")));
        assert_eq!(reason.message.as_deref(), Some("reasons"));
        let code = job.failure.as_ref().and_then(|failure| failure.code.as_deref());
        match state {
            State::Failed => assert_eq!(job.failure, before.failure, "it keeps the failure it has"),
            _ => assert_eq!(code, Some(CODE_OPERATOR)),
        }
    }
    bench.assert_sound().await;
}

async fn s16b_a_failed_job_that_is_dead_lettered_is_told_as_an_event_only(bench: Bench) {
    let id = bench.enqueue(named("first").callback_url("https://example.com/told")).await;
    let after = bench.enqueue(named("after").after_all([id])).await;
    bench.end(id, State::Failed).await;
    bench.end(after, State::Failed).await;
    bench.act(after, requeue()).await;
    let mark = bench.store.events(None, 10).await.expect("events").next;
    bench.advance(secs(1));
    bench.act(id, Act::DeadLetter).await;
    let events = bench.store.events(mark.as_ref(), 10).await.expect("events").items;
    let events: Vec<_> = events.into_iter().map(|event| (event.job, event.kind, event.at)).collect();
    assert_eq!(events, [(id, JobEventKind::Ended(State::DeadLetter), bench.now())], "one event, and no second webhook");
    assert_eq!(bench.state(after).await, State::Scheduled, "its dependents have been told long ago");
    bench.assert_sound().await;
}

async fn s16_a_requeued_job_does_not_wait_for_what_was_pruned(bench: Bench) {
    let first = bench.enqueue(named("first").lifetime(None)).await;
    let other = bench.enqueue(named("other").lifetime(None)).await;
    let id = bench.enqueue(named("id").lifetime(None).after_any([first, other])).await;
    bench.end(first, State::Completed).await;
    bench.end(id, State::Failed).await;
    assert_eq!(bench.pass(secs(24 * 3600)).await.pruned, 1, "nobody needs the first any more");
    bench.act(id, requeue()).await;
    assert_eq!(bench.state(id).await, State::Scheduled, "one of the two has ended, and that is all it waited for");
    bench.assert_sound().await;
}

async fn s16b_dead_lettering_a_running_job_revokes_its_lease(bench: Bench) {
    let claimed = bench.running(job()).await;
    let (id, key) = (claimed.job.id, claimed.lease.key());
    bench.act(id, Act::DeadLetter).await;
    assert_eq!(bench.state(id).await, State::DeadLetter);
    assert_revoked(&bench, id, key, claimed.lease).await;
}

/// What an act makes of a job: the state it has then (`None` when it is gone), or the refused wish.
type Expected = Result<Option<State>, &'static str>;

fn expected(act: &Act, state: State) -> Expected {
    let waiting = matches!(state, State::Pending | State::Delayed | State::Scheduled | State::Retrying);
    match act {
        Act::Cancel { force: false } if state == State::Running => Ok(Some(State::Running)),
        Act::Cancel { .. } if waiting || state == State::Running => Ok(Some(State::Cancelled)),
        Act::Cancel { .. } => Err("cancel"),
        Act::Requeue(_) if state.is_dead() => Ok(Some(State::Scheduled)),
        Act::Requeue(_) => Err("requeue"),
        Act::DeadLetter if !state.is_terminal() || state == State::Failed => Ok(Some(State::DeadLetter)),
        Act::DeadLetter => Err("dead-letter"),
        Act::Delete if state.is_terminal() => Ok(None),
        Act::Delete => Err("delete"),
        Act::Edit(edit) if edit.priority.is_some() && !waiting => Err("reprioritise"),
        Act::Edit(edit) if edit.tags.is_none() && state.is_terminal() => Err("edit"),
        Act::Edit(_) => Ok(Some(state)),
    }
}

async fn s17_each_act_does_to_each_state_what_the_table_says(bench: Bench) {
    let edit = Edit::default;
    let acts = [
        CANCEL,
        CANCEL_BY_FORCE,
        requeue(),
        Act::DeadLetter,
        Act::Delete,
        Act::Edit(Edit { priority: Some(Priority::Bulk), ..edit() }),
        Act::Edit(Edit { tags: Some([("k".to_owned(), "v".to_owned())].into()), ..edit() }),
        Act::Edit(Edit { correlation_id: Some(Some("c".to_owned())), ..edit() }),
        Act::Edit(Edit { callback_url: Some(Some("https://example.com/".to_owned())), ..edit() }),
    ];
    for (n, act) in acts.into_iter().enumerate() {
        for state in State::ALL {
            let id = stage(&bench, state, &format!("{n}.{}", state.as_str())).await.id;
            let before = snapshot(&bench, id).await;
            let dry = bench.operate(Target::Jobs(vec![id]), act.clone(), true).await;
            assert_eq!(snapshot(&bench, id).await, before, "dry {act:?} on {state}");
            let answer = bench.try_act(id, act.clone()).await;
            assert_eq!(dry.changed == 1, answer.is_ok(), "dry {act:?} on {state} foretells");
            match (expected(&act, state), answer) {
                (Ok(then), Ok(())) => {
                    let is = bench.find(id).await.map(|job| job.state);
                    assert_eq!(is, then, "{act:?} on {state}");
                }
                (Err(wish), Err(Error::IllegalState { job, state: named, wanted })) => {
                    assert_eq!((job, named, wanted), (id, state, wish), "{act:?}");
                    assert_eq!(snapshot(&bench, id).await, before, "refused {act:?} on {state}");
                }
                (expected, answer) => panic!("{act:?} on {state}: {answer:?} instead of {expected:?}"),
            }
        }
    }
    bench.assert_sound().await;
}

async fn s17_nothing_leaves_completed_or_cancelled(bench: Bench) {
    for state in [State::Completed, State::Cancelled] {
        let staged = stage(&bench, state, state.as_str()).await;
        let before = bench.job(staged.id).await;
        for act in [CANCEL, CANCEL_BY_FORCE, requeue(), Act::DeadLetter] {
            let refused = bench.try_act(staged.id, act).await.expect_err("a final state");
            assert_eq!(refused.name(), "IllegalState");
        }
        for outcome in SAID {
            bench.settle(&settlement(Lease::granted(&before, staged.current.token), outcome)).await;
        }
        // Not 24 hours, after which it may be pruned.
        bench.pass(20 * HOUR).await;
        assert!(bench.claim_from(state.as_str(), 9).await.is_empty());
        assert_eq!(bench.job(staged.id).await, before);
    }
    bench.assert_sound().await;
}

async fn s17_an_act_on_an_unknown_job_is_refused(bench: Bench) {
    let nobody = JobId::from_uuid(uuid::Uuid::from_u128(7));
    let id = bench.enqueue(job()).await;
    let tags = Act::Edit(Edit { tags: Some(Default::default()), ..Edit::default() });
    for act in [CANCEL_BY_FORCE, requeue(), Act::DeadLetter, Act::Delete, tags] {
        let refused = bench.try_act(nobody, act).await.expect_err("unknown");
        assert_eq!(refused.name(), "NotFound");
    }
    let both = bench.operate(Target::Jobs(vec![nobody, id]), CANCEL, false).await;
    assert_eq!((both.changed, both.refused.len()), (1, 1), "one that cannot does not keep back the others");
    assert_eq!(bench.state(id).await, State::Cancelled);
}
