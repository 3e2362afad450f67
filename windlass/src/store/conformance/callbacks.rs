//! Sections 12 and 13 of the contract: what else happens when a job ends, in the same transaction (X3, N7).

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job};
use super::moves::{CANCEL, checked, job_type, named};
use crate::job::{DependencyKind, DependsOn, Job, JobId, JobRecord, State};
use crate::schedule::ScheduleSpec;
use crate::store::{Act, Edit, Filter, ScheduleEdit, Settled};
use crate::workflow::Webhook;

chapter! {
    x3_completion_children_releases_and_webhook_are_one,
    x3_a_stale_settlement_leaves_nothing_behind,
    n7_a_webhook_job_is_stored_at_each_end,
    n7_a_webhook_job_is_stored_when_upkeep_ends_the_job,
    n7_a_webhook_job_is_stored_when_an_operator_ends_the_job,
    n7_a_webhook_job_is_stored_for_dependents_that_die,
    n7_a_webhook_job_is_stored_for_a_job_that_dies_at_submission,
    n7_a_webhook_job_keeps_its_job_from_being_pruned,
    n7_an_undelivered_webhook_keeps_its_job_for_seven_days_at_most,
    n7_a_requeued_job_tells_again,
    n7_a_failed_job_that_is_dead_lettered_has_told_already,
    n7_an_edited_url_counts,
}

const URL: &str = "https://example.com/done";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The webhook jobs for a job.
async fn webhooks(bench: &Bench, id: JobId) -> Vec<JobRecord> {
    let filter = Filter { job_type: Some(job_type(Webhook::TYPE)), ..Filter::default() };
    let mut found = bench.list(&filter).await;
    found.retain(|hook| hook.spec.payload.decode::<Webhook>().expect("a webhook").job_id == id);
    found
}

/// The one webhook job that there must be for a job, which can be claimed at once.
async fn webhook(bench: &Bench, id: JobId) -> JobRecord {
    let mut found = webhooks(bench, id).await;
    assert_eq!(found.len(), 1, "one webhook job for a job that is {}", bench.state(id).await);
    let hook = found.remove(0);
    assert_eq!((hook.state, hook.spec.queue.as_str()), (State::Scheduled, Webhook::QUEUE));
    assert_eq!(hook.spec.depends_on[0].on, DependsOn::Job(id));
    hook
}

async fn x3_completion_children_releases_and_webhook_are_one(bench: Bench) {
    let parent = bench.running(named("parent").callback_url(URL)).await;
    let after = bench.enqueue(named("after").after([parent.job.id])).await;
    let mark = bench.store.events(None, 100).await.expect("events").next;
    bench.complete_and_spawn(parent.lease, vec![named("child")]).await;
    assert_eq!(bench.state(after).await, State::Scheduled);
    let (child, hook) = (bench.only("child").await, webhook(&bench, parent.job.id).await);
    let now = bench.now();
    assert_eq!((child.created_at, hook.created_at), (now, now));
    assert_eq!(bench.job(parent.job.id).await.completed_at, Some(now));
    let events = bench.store.events(mark.as_ref(), 100).await.expect("events").items;
    assert_eq!(events.len(), 3, "one end and two new jobs: {events:?}");
    bench.assert_sound().await;
}

async fn x3_a_stale_settlement_leaves_nothing_behind(bench: Bench) {
    let parent = bench.running(named("parent").callback_url(URL)).await;
    let after = bench.enqueue(named("after").after([parent.job.id])).await;
    bench.advance(LEASE);
    let late = bench.complete_and_spawn(parent.lease, vec![named("child")]).await;
    assert!(matches!(late, Settled::Stale(_)), "{late:?}");
    assert_eq!(bench.state(after).await, State::Pending);
    assert_eq!(bench.totals().await.accepted, 2);
    assert!(webhooks(&bench, parent.job.id).await.is_empty());
}

async fn n7_a_webhook_job_is_stored_at_each_end(bench: Bench) {
    for end in [State::Completed, State::Failed, State::DeadLetter, State::Cancelled] {
        let id = bench.enqueue(named(end.as_str()).callback_url(URL).correlation_id("order-42")).await;
        assert!(webhooks(&bench, id).await.is_empty());
        bench.end(id, end).await;
        let hook = webhook(&bench, id).await;
        assert_eq!(hook.spec.options.correlation_id.as_deref(), Some("order-42"));
    }
    assert_eq!(bench.totals().await.accepted, 8, "a webhook job is a job like any other");
    let exhausted = bench.running(job().max_attempts(1).callback_url(URL)).await;
    bench.fail(exhausted.lease).await;
    webhook(&bench, exhausted.job.id).await;
    let plain = bench.in_state(State::Completed).await;
    assert!(webhooks(&bench, plain).await.is_empty(), "without a URL there is none");
    bench.assert_sound().await;
}

async fn n7_a_webhook_job_is_stored_when_upkeep_ends_the_job(bench: Bench) {
    let lost = bench.running(job().max_attempts(1).callback_url(URL)).await.job.id;
    let old = bench.enqueue(job().lifetime(LEASE).callback_url(URL)).await;
    bench.pass(LEASE).await;
    webhook(&bench, lost).await;
    webhook(&bench, old).await;
    let asked = bench.running(job().callback_url(URL)).await.job.id;
    bench.act(asked, CANCEL).await;
    assert!(webhooks(&bench, asked).await.is_empty(), "it has not ended yet");
    bench.pass(LEASE).await;
    assert_eq!(bench.state(asked).await, State::Cancelled);
    webhook(&bench, asked).await;
}

async fn n7_a_webhook_job_is_stored_when_an_operator_ends_the_job(bench: Bench) {
    for act in [CANCEL, Act::DeadLetter] {
        let id = bench.enqueue(job().callback_url(URL)).await;
        bench.act(id, act).await;
        webhook(&bench, id).await;
    }
    for act in [Act::Cancel { force: true }, Act::DeadLetter] {
        let id = bench.running(job().callback_url(URL)).await.job.id;
        bench.act(id, act).await;
        webhook(&bench, id).await;
    }
}

async fn n7_a_webhook_job_is_stored_for_dependents_that_die(bench: Bench) {
    let first = bench.enqueue(named("first")).await;
    let second = bench.enqueue(named("second").after([first]).callback_url(URL)).await;
    let third = bench.enqueue(named("third").after([second]).callback_url(URL)).await;
    bench.end(first, State::Failed).await;
    for id in [second, third] {
        webhook(&bench, id).await;
    }
    bench.assert_sound().await;
}

async fn n7_a_webhook_job_is_stored_for_a_job_that_dies_at_submission(bench: Bench) {
    let dead = bench.in_state(State::DeadLetter).await;
    let id = bench.enqueue(named("late").after([dead]).callback_url(URL)).await;
    assert_eq!(bench.state(id).await, State::DeadLetter);
    webhook(&bench, id).await;
    let parent = bench.running(named("parent")).await;
    bench.complete_and_spawn(parent.lease, vec![named("child").after([dead]).callback_url(URL)]).await;
    let child = bench.only("child").await;
    assert_eq!(child.state, State::DeadLetter);
    webhook(&bench, child.id).await;
    let template = checked(named("fired").callback_url(URL));
    let create = ScheduleEdit::Create(ScheduleSpec::every("s", Duration::from_secs(60), template));
    bench.store.edit_schedule(&create, None).await.expect("edit_schedule");
    bench.pass(Duration::from_secs(60)).await;
    let fired = bench.only("fired").await.id;
    bench.end(fired, State::Completed).await;
    webhook(&bench, fired).await;
}

async fn n7_a_webhook_job_keeps_its_job_from_being_pruned(bench: Bench) {
    let id = bench.enqueue(job().callback_url(URL)).await;
    bench.end(id, State::Completed).await;
    assert_eq!(bench.pass(2 * DAY).await.pruned, 0);
    let hook = webhook(&bench, id).await.id;
    bench.end(hook, State::Completed).await;
    assert_eq!(bench.upkeep().await.pruned, 1, "the URL has been told");
    assert_eq!(bench.find(id).await, None);
}

async fn n7_an_undelivered_webhook_keeps_its_job_for_seven_days_at_most(bench: Bench) {
    let id = bench.enqueue(job().callback_url(URL)).await;
    bench.end(id, State::Completed).await;
    let hook = webhook(&bench, id).await;
    assert_eq!(bench.pass(7 * DAY - Duration::from_secs(1)).await.pruned, 0, "it may still be delivered");
    let last = bench.pass(Duration::from_secs(1)).await;
    assert_eq!(last.lifetimes, 1);
    assert_eq!(bench.state(hook.id).await, State::DeadLetter, "nobody delivered it");
    let later = bench.pass(Duration::from_secs(60)).await;
    assert_eq!(last.pruned + later.pruned, 1, "nothing needs its job any more");
    assert_eq!(bench.store.find(&[id]).await.expect("find"), [None]);
    bench.assert_sound().await;
}

async fn n7_a_requeued_job_tells_again(bench: Bench) {
    let id = bench.enqueue(job().callback_url(URL)).await;
    bench.end(id, State::Failed).await;
    bench.act(id, super::moves::requeue()).await;
    assert_eq!(webhooks(&bench, id).await.len(), 1);
    bench.end(id, State::Completed).await;
    assert_eq!(webhooks(&bench, id).await.len(), 2);
    bench.assert_sound().await;
}

async fn n7_a_failed_job_that_is_dead_lettered_has_told_already(bench: Bench) {
    let id = bench.enqueue(job().callback_url(URL)).await;
    bench.end(id, State::Failed).await;
    bench.act(id, Act::DeadLetter).await;
    assert_eq!(bench.state(id).await, State::DeadLetter);
    assert_eq!(webhooks(&bench, id).await.len(), 1);
    bench.assert_sound().await;
}

async fn n7_an_edited_url_counts(bench: Bench) {
    let id = bench.enqueue(job()).await;
    let url = |url: Option<&str>| Act::Edit(Edit { callback_url: Some(url.map(str::to_owned)), ..Edit::default() });
    bench.act(id, url(Some(URL))).await;
    bench.end(id, State::Completed).await;
    webhook(&bench, id).await;
    let without = bench.enqueue(job().callback_url(URL)).await;
    bench.act(without, url(None)).await;
    bench.end(without, State::Completed).await;
    assert!(webhooks(&bench, without).await.is_empty());
    // A fan-in joins spawned work, not what the store adds on its own.
    let parent = bench.enqueue(named("parent").callback_url(URL)).await;
    let join = bench.enqueue(named("join").depends_on(DependsOn::Job(parent), DependencyKind::FanInDone)).await;
    bench.end(parent, State::Completed).await;
    assert_eq!(bench.state(join).await, State::Scheduled);
}
