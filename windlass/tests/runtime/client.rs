//! The client end to end: enqueue, batches, workflows, looking, acting, waiting.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::job::{RequeueOptions, WorkerId};
use windlass::store::{Act, ClaimRequest, Edit, Filter, JobEventKind, ScheduleEdit};
use windlass::{Client, Error, Failure, Job, JobId, NewJob, Payload, Priority, QueueName, Schedule, State, Workflow};

use crate::support::{self, Setup};

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Welcome {
    user: u64,
}

impl Job for Welcome {
    const TYPE: &'static str = "welcome";
    const QUEUE: &'static str = "mail";

    fn options(new: NewJob) -> NewJob {
        new.max_attempts(7)
    }
}

fn raw(job_type: &str) -> NewJob {
    NewJob::new(job_type, Payload::default())
}

/// Claims one job of a queue and settles it as told.
async fn settle_one(
    client: &Client,
    queue: &str,
    end: impl FnOnce(windlass::job::Lease) -> windlass::job::Settlement,
) -> JobId {
    let worker = WorkerId::new("w").expect("a name");
    let request = ClaimRequest::new(worker, QueueName::new(queue).expect("a name"), 1);
    let claimed = client.store().claim(&request).await.expect("claim").pop().expect("a job");
    let settlement = end(claimed.lease);
    client.store().settle(&[settlement]).await.expect("settle");
    claimed.job.id
}

fn dies(lease: windlass::job::Lease) -> windlass::job::Settlement {
    lease.fail(Failure::permanent("broken", "it is broken"), &mut || 0.5)
}

async fn a_typed_job_is_stored_as_described(Setup { client, .. }: Setup) {
    let enqueued = client
        .enqueue(Welcome { user: 7 })
        .priority(Priority::High)
        .delay(Duration::from_secs(60))
        .tag("team", "growth")
        .correlation_id("c-1")
        .await
        .expect("enqueue");
    assert_eq!((enqueued.existing, enqueued.state), (false, Some(State::Delayed)));
    let job = client.job(enqueued.id).await.expect("the job");
    assert_eq!((job.spec.job_type.as_str(), job.spec.queue.as_str()), ("welcome", "mail"));
    assert_eq!(job.spec.payload.decode::<Welcome>().expect("payload"), Welcome { user: 7 });
    assert_eq!(job.spec.priority, Priority::High);
    assert_eq!(job.spec.options.retry.max_attempts, 7);
    assert_eq!(job.spec.options.tags["team"], "growth");
}

async fn the_same_key_is_the_same_job(Setup { client, .. }: Setup) {
    let first = client.enqueue(Welcome { user: 1 }).idempotency_key("k").await.expect("first");
    let second = client.enqueue(Welcome { user: 2 }).idempotency_key("k").await.expect("second");
    assert_eq!((second.id, second.existing, second.matches), (first.id, true, false));
    assert_eq!(client.totals().await.expect("totals").accepted, 1);
}

async fn a_bad_field_reaches_no_store(Setup { client, .. }: Setup) {
    let refused = client.enqueue(raw("two words")).await.expect_err("a bad type");
    assert_eq!((refused.name(), refused.outcome_is_known()), ("InvalidArgument", true));
    let refused = client.enqueue_all([raw("good"), raw("")]).await.expect_err("a bad batch");
    assert_eq!(refused.name(), "InvalidArgument");
    assert_eq!(client.totals().await.expect("totals").accepted, 0);
}

async fn a_batch_answers_for_each_job_in_order(Setup { client, .. }: Setup) {
    let jobs = client.enqueue_all((0..100).map(|user| Welcome { user })).await.expect("batch");
    for (user, enqueued) in jobs.iter().enumerate() {
        let job = client.job(enqueued.id).await.expect("a job");
        assert_eq!(job.spec.payload.decode::<Welcome>().expect("payload").user, user as u64);
    }
    let filter = Filter::new().queue(QueueName::new("mail").expect("a name"));
    assert_eq!(client.count(&filter, 1000).await.expect("count"), 100);
    let page = client.list(filter, 10, None).await.expect("a page");
    assert_eq!(page.items.len(), 10);
    assert_eq!(page.items[0].id, jobs[99].id, "newest first");
}

async fn a_workflow_starts_whole_and_is_waited_for(Setup { client, .. }: Setup) {
    let mut flow = Workflow::new("order-42");
    let charge = flow.add(raw("charge"));
    let pack = flow.after([charge], raw("pack"));
    let started = client.start(flow).await.expect("start");
    assert_eq!(client.job(started.job(charge)).await.expect("charge").state, State::Scheduled);
    assert_eq!(client.job(started.job(pack)).await.expect("pack").state, State::Pending);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.wait_workflow(started.id).await }
    });
    assert_eq!(settle_one(&client, "default", |lease| lease.complete(None)).await, started.job(charge));
    assert_eq!(settle_one(&client, "default", |lease| lease.complete(None)).await, started.job(pack));
    let ended = tokio::time::timeout(support::SOON, waiting).await.expect("in time").expect("task").expect("workflow");
    assert_eq!(ended.counts[usize::from(State::Completed.number())], 2);
}

async fn a_failed_workflow_goes_on_after_requeue(Setup { client, .. }: Setup) {
    let mut flow = Workflow::new("w");
    let first = flow.add(raw("a"));
    let second = flow.after([first], raw("b"));
    let started = client.start(flow).await.expect("start");
    settle_one(&client, "default", dies).await;
    assert_eq!(client.job(started.job(second)).await.expect("second").state, State::Failed);
    assert_eq!(client.requeue_workflow(started.id).await.expect("requeue"), 1, "the other comes along");
    assert_eq!(client.job(started.job(first)).await.expect("first").state, State::Scheduled);
    assert_eq!(client.job(started.job(second)).await.expect("second").state, State::Pending);
    assert_eq!(client.cancel_workflow(started.id).await.expect("cancel"), 1, "the second dies with the first");
    assert_eq!(client.job(started.job(second)).await.expect("second").state, State::Cancelled);
}

async fn waiting_ends_with_the_job(Setup { client, .. }: Setup) {
    let id = client.enqueue(raw("t")).await.expect("enqueue").id;
    let (ended, _) = tokio::join!(client.wait(id), async {
        tokio::task::yield_now().await;
        settle_one(&client, "default", |lease| lease.complete(Some(Payload::json("done").expect("json")))).await
    });
    let ended = ended.expect("the end");
    assert_eq!(ended.result.expect("a result").decode::<String>().expect("text"), "done");
    let unknown = windlass::store::new_job_id();
    assert_eq!(client.wait(unknown).await.expect_err("no job").name(), "NotFound");
}

async fn events_tell_of_jobs_that_come_and_end(Setup { client, .. }: Setup) {
    let mut events = client.events(None).await.expect("events");
    let start = events.cursor().cloned();
    let id = client.enqueue(raw("t")).await.expect("enqueue").id;
    let came = events.next().await.expect("an event");
    assert_eq!((came.job, came.kind), (id, JobEventKind::Enqueued));
    settle_one(&client, "default", |lease| lease.complete(None)).await;
    let ended = events.next().await.expect("an event");
    assert_eq!((ended.job, ended.kind), (id, JobEventKind::Ended(State::Completed)));
    assert_eq!(events.cursor(), Some(&ended.cursor));
    let mut again = client.events(start).await.expect("events from the start");
    assert_eq!(again.next().await.expect("an event").cursor, came.cursor);
}

async fn acts_are_refused_with_their_reason_and_recorded(Setup { client, .. }: Setup) {
    let id = client.enqueue(raw("t")).await.expect("enqueue").id;
    assert!(matches!(client.requeue(id).await, Err(Error::IllegalState { state: State::Scheduled, .. })));
    assert!(matches!(client.delete(id).await, Err(Error::IllegalState { .. })));
    client.act(Act::Cancel { force: false }).by("ada").because("wrong customer").on(id).await.expect("cancel");
    let job = client.job(id).await.expect("the job");
    let reason = job.reason.expect("a reason");
    assert_eq!((reason.by.as_deref(), reason.message.as_deref()), (Some("ada"), Some("wrong customer")));
    let acts = client.acts(10, None).await.expect("acts").items;
    assert_eq!((acts.len(), acts[0].by.as_deref(), acts[0].act.as_str()), (1, Some("ada"), "cancel"));
    let edit = Edit { tags: Some([("k".to_owned(), "v".repeat(257))].into()), ..Edit::default() };
    assert_eq!(client.edit(id, edit).await.expect_err("a long tag").name(), "InvalidArgument");
    client.delete(id).await.expect("delete");
    assert!(client.find(id).await.expect("find").is_none());
}

async fn a_dry_run_counts_and_changes_nothing(Setup { client, .. }: Setup) {
    client.enqueue_all((0..20).map(|user| Welcome { user })).await.expect("batch");
    let cancel = || client.act(Act::Cancel { force: false });
    assert_eq!(cancel().dry_run().on_all(Filter::default()).await.expect("dry run"), 20);
    let scheduled = Filter::new().states([State::Scheduled]);
    assert_eq!(client.count(&scheduled, 100).await.expect("count"), 20);
    assert_eq!(client.purge("mail").await.expect("purge"), 20);
    assert_eq!(client.count(&scheduled, 100).await.expect("count"), 0);
}

async fn a_dead_job_is_requeued_or_cloned(Setup { client, .. }: Setup) {
    let id = client.enqueue(Welcome { user: 3 }).idempotency_key("k").await.expect("enqueue").id;
    settle_one(&client, "mail", dies).await;
    assert_eq!(client.dead(10, None).await.expect("dead").items[0].id, id);
    let copy = client.clone_job(id).await.expect("clone");
    assert_ne!(copy.id, id);
    let copy = client.job(copy.id).await.expect("copy");
    assert_eq!((copy.spec.options.cloned_from, copy.spec.options.idempotency.is_none()), (Some(id), true));
    let later = RequeueOptions { keep_counters: true, ..RequeueOptions::default() };
    client.act(Act::Requeue(later)).on(id).await.expect("requeue");
    assert_eq!(client.job(id).await.expect("job").generation, 1);
}

async fn a_paused_queue_says_so(Setup { client, .. }: Setup) {
    client.enqueue(Welcome { user: 1 }).await.expect("enqueue");
    client.pause("mail").await.expect("pause");
    assert!(client.queues().await.expect("queues")[0].paused);
    client.resume("mail").await.expect("resume");
    assert!(!client.queues().await.expect("queues")[0].paused);
}

async fn a_schedule_is_stored_triggered_and_deleted(Setup { client, .. }: Setup) {
    let nightly = Schedule::cron_in("nightly", "0 3 * * *", "Europe/Berlin", Welcome { user: 0 }).expect("a schedule");
    let stored = client.put_schedule(&nightly).await.expect("put");
    assert!(stored.next_at.is_some() && !stored.spec.from_code);
    let job = client.trigger_schedule("nightly").await.expect("trigger");
    assert_eq!(client.job(job).await.expect("job").firing.expect("a firing").schedule, "nightly");
    assert!(client.pause_schedule("nightly").await.expect("pause").paused);
    assert!(!client.resume_schedule("nightly").await.expect("resume").paused);
    client.delete_schedule("nightly").await.expect("delete");
    assert!(client.schedules(None, 10).await.expect("schedules").is_empty());
    let gone = client.store().edit_schedule(&ScheduleEdit::Pause("nightly".into()), None).await;
    assert_eq!(gone.expect_err("gone").name(), "NotFound");
}

on_every_store!(
    a_typed_job_is_stored_as_described,
    the_same_key_is_the_same_job,
    a_bad_field_reaches_no_store,
    a_batch_answers_for_each_job_in_order,
    a_workflow_starts_whole_and_is_waited_for,
    a_failed_workflow_goes_on_after_requeue,
    waiting_ends_with_the_job,
    events_tell_of_jobs_that_come_and_end,
    acts_are_refused_with_their_reason_and_recorded,
    a_dry_run_counts_and_changes_nothing,
    a_dead_job_is_requeued_or_cloned,
    a_paused_queue_says_so,
    a_schedule_is_stored_triggered_and_deleted,
);

#[tokio::test]
async fn hooks_hear_of_stored_jobs_and_cannot_break_an_enqueue() {
    let heard = Arc::new(AtomicUsize::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let client = Client::in_memory().on_enqueued(|_| panic!("a bad hook")).on_enqueued({
        let (heard, seen) = (heard.clone(), seen.clone());
        move |jobs| {
            heard.fetch_add(jobs.len(), Ordering::SeqCst);
            seen.lock().expect("lock").extend(jobs.iter().map(|job| job.id));
        }
    });
    let id = client.enqueue(raw("t")).await.expect("enqueue").id;
    assert_eq!(heard.load(Ordering::SeqCst), 1);
    assert_eq!(*seen.lock().expect("lock"), [id]);
}

#[tokio::test]
async fn a_url_names_the_store() {
    assert_eq!(Client::open("memory:").await.expect("memory").store().kind(), "memory");
    let unknown = Client::open("gopher://host").await.expect_err("unknown");
    assert_eq!(unknown.name(), "InvalidArgument");
}
