//! Section 11 of the contract: what operators do to jobs (O2).

use std::collections::BTreeMap;
use std::time::Duration;

use super::Bench;
use super::bench::job;
use super::moves::{CANCEL, in_states, named, queue, requeue};
use crate::flow::ControlEdit;
use crate::job::{JobRecord, Priority, ReasonKind, RequeueOptions, State};
use crate::store::{Act, Cursor, Edit, Filter, Operation, Target, Totals};

chapter! {
    o2_each_act_is_allowed_in_its_states_only,
    o2_an_act_by_id_refuses_each_that_cannot,
    o2_an_act_by_filter_takes_the_oldest_first_in_steps,
    o2_an_act_by_filter_passes_over_what_cannot,
    o2_a_dry_run_says_how_many_and_changes_nothing,
    o2_who_did_what_and_when_is_recorded,
    o2_acts_are_read_in_pages,
    o2_cancelling_names_who_and_why,
    o2_a_requeue_starts_from_nothing_or_goes_on,
    o2_reprioritising_changes_the_claim_order,
    o2_tags_may_be_set_in_any_state,
    o2_a_deleted_job_is_gone_and_accounted_for,
}

const SECOND: Duration = Duration::from_secs(1);

fn priority(priority: Priority) -> Act {
    Act::Edit(Edit { priority: Some(priority), ..Edit::default() })
}

fn tags(pairs: &[(&str, &str)]) -> Act {
    let tags = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Act::Edit(Edit { tags: Some(tags), ..Edit::default() })
}

/// Every job, and the numbers.
async fn everything(bench: &Bench) -> (Vec<JobRecord>, Totals) {
    (bench.list(&Filter::default()).await, bench.totals().await)
}

async fn o2_each_act_is_allowed_in_its_states_only(bench: Bench) {
    use State::{Cancelled, Completed, DeadLetter, Delayed, Failed, Pending, Retrying, Running, Scheduled};
    let unfinished = vec![Pending, Delayed, Scheduled, Running, Retrying];
    let acts = [
        ("cancel", CANCEL, unfinished.clone()),
        ("cancel", Act::Cancel { force: true }, unfinished.clone()),
        ("requeue", requeue(), vec![Failed, DeadLetter]),
        ("dead-letter", Act::DeadLetter, vec![Pending, Delayed, Scheduled, Running, Retrying, Failed]),
        ("delete", Act::Delete, vec![Completed, Failed, DeadLetter, Cancelled]),
        ("reprioritise", priority(Priority::High), vec![Pending, Delayed, Scheduled, Retrying]),
        ("edit", Act::Edit(Edit { correlation_id: Some(None), ..Edit::default() }), unfinished),
    ];
    for (wanted, act, allowed) in acts {
        for state in State::ALL {
            let id = bench.in_state(state).await;
            let before = bench.job(id).await;
            match bench.try_act(id, act.clone()).await {
                Ok(()) => assert!(allowed.contains(&state), "{wanted} of a {state} job should be refused"),
                Err(error) => {
                    assert!(!allowed.contains(&state), "{wanted} of a {state} job: {error}");
                    assert_eq!(error.to_string(), format!("cannot {wanted} job {id}: it is {state}"));
                    assert_eq!(bench.job(id).await, before);
                }
            }
            // The next job is not to find this one in its way.
            bench.act_on(in_states(&[Pending, Delayed, Scheduled, Running, Retrying]), 100, Act::DeadLetter).await;
        }
    }
    bench.assert_sound().await;
}

async fn o2_an_act_by_id_refuses_each_that_cannot(bench: Bench) {
    let ended = bench.in_state(State::Completed).await;
    let good = bench.enqueue(job()).await;
    let unknown = crate::store::new_job_id();
    let also = bench.in_state(State::Delayed).await;
    let answer = bench.operate(Target::Jobs(vec![good, ended, unknown, also]), CANCEL, false).await;
    let refused: Vec<_> = answer.refused.iter().map(|(id, error)| (*id, error.name())).collect();
    assert_eq!((answer.changed, refused), (2, vec![(ended, "IllegalState"), (unknown, "NotFound")]));
    assert_eq!(bench.states(&[good, also]).await, [State::Cancelled; 2]);
}

async fn o2_an_act_by_filter_takes_the_oldest_first_in_steps(bench: Bench) {
    let ids: Vec<_> = bench.insert(vec![job(); 5]).await.iter().map(|job| job.id).collect();
    let other = bench.enqueue(job().queue("other")).await;
    let filter = Filter { queue: Some(queue("default")), ..Filter::default() };
    let step = |after| Target::Matching { filter: filter.clone(), limit: 2, after };
    let first = bench.operate(step(None), CANCEL, false).await;
    assert_eq!((first.changed, first.refused.len()), (2, 0));
    assert_eq!(bench.states(&ids[..3]).await, [State::Cancelled, State::Cancelled, State::Scheduled]);
    // What comes in meanwhile matches as well.
    let late = bench.enqueue(job()).await;
    let (mut changed, mut after) = (0, first.next);
    while after.is_some() {
        let answer = bench.operate(step(after), CANCEL, false).await;
        changed += answer.changed;
        after = answer.next;
    }
    assert_eq!(changed, 4);
    assert_eq!(bench.states(&[late, other]).await, [State::Cancelled, State::Scheduled]);
    bench.assert_sound().await;
}

async fn o2_an_act_by_filter_passes_over_what_cannot(bench: Bench) {
    bench.in_state(State::Completed).await;
    let failed = bench.in_state(State::Failed).await;
    bench.in_state(State::Running).await;
    let answer = bench.act_matching(Filter::default(), requeue(), false).await;
    assert_eq!((answer.changed, answer.refused.len()), (1, 0));
    assert_eq!(bench.state(failed).await, State::Scheduled);
}

async fn o2_a_dry_run_says_how_many_and_changes_nothing(bench: Bench) {
    bench.one_of_each().await;
    let edit = tags(&[("a", "b")]);
    let (before, acts) = (everything(&bench).await, bench.acts().await);
    for act in [CANCEL, Act::Cancel { force: true }, requeue(), Act::DeadLetter, Act::Delete, edit] {
        for target in [
            Target::Jobs(before.0.iter().map(|job| job.id).collect()),
            Target::Matching { filter: Filter::default(), limit: 1000, after: None },
        ] {
            let dry = bench.operate(target, act.clone(), true).await;
            assert!(dry.changed > 0, "{}", act.name());
            assert_eq!(everything(&bench).await, before, "a dry run of {}", act.name());
        }
    }
    assert_eq!(bench.acts().await, acts, "nor is it recorded");
    let running = in_states(&[State::Running]);
    let dry = bench.act_matching(running.clone(), CANCEL, true).await.changed;
    assert_eq!(dry, bench.act_matching(running, CANCEL, false).await.changed);
}

async fn o2_who_did_what_and_when_is_recorded(bench: Bench) {
    let id = bench.enqueue(job()).await;
    bench.act(id, tags(&[("a", "b")])).await;
    bench.advance(SECOND);
    let nobody = Operation {
        target: Target::Matching { filter: Filter::default(), limit: 10, after: None },
        act: CANCEL,
        by: None,
        why: String::new(),
        dry_run: false,
    };
    bench.store.operate(&nobody).await.expect("operate");
    bench.try_act(id, CANCEL).await.expect_err("it has ended");
    let pause = ControlEdit::pause(queue("mail"), true).because("the server is down");
    bench.store.control(&pause, Some("bob")).await.expect("pause");
    let acts = bench.acts().await;
    let words: Vec<_> = acts.iter().map(|act| (act.act.as_str(), act.by.as_deref(), act.changed)).collect();
    assert_eq!(words, [("pause", Some("bob"), 1), ("cancel", None, 1), ("edit", Some("ada"), 1)]);
    let whys: Vec<_> = acts.iter().map(|act| act.why.as_deref()).collect();
    assert_eq!(whys, [Some("the server is down"), None, Some("reasons")]);
    assert_eq!((acts[1].at, acts[2].at), (bench.now(), bench.now().minus(SECOND)));
    assert!(acts[0].target.contains("mail") && acts[2].target.contains(&id.to_string()), "{acts:?}");
    // What nobody reads is not kept: 10,000 acts are, and a page of them is read at once.
    let long = ControlEdit::pause(queue("mail"), false).because(format!("a\0{}", "é".repeat(5000)));
    bench.store.control(&long, Some(&"b".repeat(5000))).await.expect("resume");
    let last = bench.acts().await.swap_remove(0);
    assert_eq!((last.act.as_str(), last.by.as_deref()), ("resume", Some("b".repeat(1024).as_str())));
    assert_eq!(last.why, Some(format!("a\u{fffd}{}", "é".repeat(510))));
}

async fn o2_acts_are_read_in_pages(bench: Bench) {
    let id = bench.enqueue(job()).await;
    for number in 0..5 {
        bench.act(id, tags(&[("n", &number.to_string())])).await;
        bench.advance(SECOND);
    }
    let (mut times, mut after): (Vec<_>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = bench.store.acts(after.as_ref(), 2).await.expect("acts");
        times.extend(page.items.iter().map(|act| act.at));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let newest_first: Vec<_> = (1..=5).map(|back| bench.now().minus(back * SECOND)).collect();
    assert_eq!(times, newest_first);
}

async fn o2_cancelling_names_who_and_why(bench: Bench) {
    let waiting = bench.enqueue(named("waiting")).await;
    bench.act(waiting, CANCEL).await;
    let running = bench.running(job()).await;
    bench.act(running.job.id, CANCEL).await;
    assert_eq!(bench.state(running.job.id).await, State::Running, "its holder is asked");
    bench.fail(running.lease).await;
    for id in [waiting, running.job.id] {
        let reason = bench.job(id).await.reason.expect("a reason");
        assert_eq!(reason.kind, ReasonKind::Cancelled);
        assert_eq!((reason.by.as_deref(), reason.message.as_deref()), (Some("ada"), Some("reasons")));
    }
}

async fn o2_a_requeue_starts_from_nothing_or_goes_on(bench: Bench) {
    let id = bench.enqueue(job().max_attempts(2)).await;
    for _ in 0..2 {
        let claimed = bench.claim_one().await;
        bench.fail(claimed.lease).await;
        bench.advance(2 * SECOND);
    }
    assert_eq!(bench.state(id).await, State::DeadLetter);
    let keep = RequeueOptions { keep_counters: true, ..RequeueOptions::default() };
    bench.act(id, Act::Requeue(keep)).await;
    let kept = bench.job(id).await;
    assert_eq!((kept.state, kept.attempt, kept.failures, kept.generation), (State::Scheduled, 2, 1, 1));
    let claimed = bench.claim_one().await;
    assert_eq!(claimed.lease.version(), 3, "the lease version goes on");
    assert_eq!(bench.fail(claimed.lease).await, State::DeadLetter, "one run is left");
    let later = RequeueOptions { run_at: Some(bench.now().plus(SECOND)), ..RequeueOptions::default() };
    bench.act(id, Act::Requeue(later)).await;
    let fresh = bench.job(id).await;
    assert_eq!((fresh.state, fresh.attempt, fresh.failures, fresh.generation), (State::Delayed, 0, 0, 2));
    assert_eq!(fresh.reason, None);
    assert_eq!(bench.attempts(id).await.len(), 3, "its history stays");
    bench.advance(SECOND);
    let attempt = bench.claim_one().await;
    let numbers: Vec<_> = bench.attempts(id).await.iter().map(|one| (one.generation, one.number)).collect();
    assert_eq!(numbers, [(0, 1), (0, 2), (1, 3), (2, 1)]);
    bench.complete(attempt.lease).await;
}

async fn o2_reprioritising_changes_the_claim_order(bench: Bench) {
    let ids: Vec<_> = bench.insert(vec![job(), job(), job()]).await.iter().map(|job| job.id).collect();
    let before = bench.job(ids[2]).await;
    bench.advance(SECOND);
    bench.act(ids[2], priority(Priority::Critical)).await;
    bench.act(ids[0], priority(Priority::Bulk)).await;
    let after = bench.job(ids[2]).await;
    assert_eq!(
        (after.spec.priority, after.updated_at, after.position),
        (Priority::Critical, before.updated_at, before.position)
    );
    assert_eq!(bench.claim_ids(3).await, [ids[2], ids[1], ids[0]]);
    let high = bench.enqueue(named("high").priority(Priority::High)).await;
    let heir = bench.enqueue(named("heir").after([high])).await;
    bench.act(heir, priority(Priority::Bulk)).await;
    assert_eq!(bench.job(heir).await.effective_priority(), Priority::High, "what it inherits still holds");
}

async fn o2_tags_may_be_set_in_any_state(bench: Bench) {
    for (state, id) in bench.one_of_each().await {
        let before = bench.job(id).await;
        bench.advance(Duration::from_millis(1));
        bench.act(id, tags(&[("state", state.as_str())])).await;
        let after = bench.job(id).await;
        let expected = BTreeMap::from([("state".to_owned(), state.as_str().to_owned())]);
        assert_eq!((after.spec.options.tags.clone(), after.updated_at), (expected.clone(), before.updated_at));
        let filter = Filter { tags: expected, ..Filter::default() };
        assert_eq!(bench.ids(&filter).await, [id], "it is found by its new tag");
    }
}

async fn o2_a_deleted_job_is_gone_and_accounted_for(bench: Bench) {
    let id = bench.in_state(State::Failed).await;
    bench.act(id, Act::Delete).await;
    assert_eq!(bench.find(id).await, None);
    assert!(bench.ids(&Filter::default()).await.is_empty());
    let totals = bench.totals().await;
    assert_eq!((totals.accepted, totals.pruned, totals.states), (1, 1, [0; 9]));
    assert_eq!(bench.try_act(id, requeue()).await.expect_err("gone").name(), "NotFound");
    assert_eq!(bench.store.attempts(id).await.expect_err("gone").name(), "NotFound");
    bench.assert_sound().await;
}
