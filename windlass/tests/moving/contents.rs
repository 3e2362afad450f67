//! What must be the same on the other side, and what the old side says.

use std::collections::HashMap;
use std::time::Duration;

use windlass::flow::ControlEdit;
use windlass::job::{Progress, RequeueOptions, Unique};
use windlass::schedule::ScheduleSpec;
use windlass::store::moving::{self, closed};
use windlass::store::{Act, Claimed, Operation, Save, ScheduleEdit, Settled, Store, Target, WorkflowQuery};
use windlass::workflow::Submission;
use windlass::{Failure, JobId, JobRecord, Payload, Priority, QueueName, State};

use super::places::{Kind, PAIRS, Places, batch, checked, claim, job, moved, open};

/// A store with everything in it, and the leases that are held.
struct Filled {
    jobs: Vec<JobId>,
    held: Vec<Claimed>,
}

async fn act(store: &dyn Store, job: JobId, act: Act) {
    let (target, by, why) = (Target::Jobs(vec![job]), Some("ada".to_owned()), "a test".to_owned());
    let done = store.operate(&Operation { target, act, by, why, dry_run: false }).await.expect("an act");
    assert_eq!(done.changed, 1, "{done:?}");
}

/// Jobs in every state, and everything that can be beside them.
async fn fill(store: &dyn Store) -> Filled {
    let mut random = || 0.5;
    let mut jobs = Vec::new();
    let insert = async |submission: Submission| store.insert(submission).await.expect("insert").jobs[0].id;
    for number in 0..30 {
        jobs.push(insert(batch(vec![job("ready").tag("number", number.to_string()).priority(Priority::High)])).await);
    }
    jobs.push(insert(batch(vec![job("later").delay(Duration::from_secs(3600)).correlation_id("c-7")])).await);
    jobs.push(insert(batch(vec![job("soon").delay(Duration::from_millis(1)).lifetime(None)])).await);
    jobs.push(insert(batch(vec![job("keyed").idempotency_key("k-1").callback_url("https://example.com/x")])).await);
    jobs.push(insert(batch(vec![job("unique").unique(Unique::key("k-2"))])).await);
    let graph = vec![checked(job("graph")), checked(job("graph").after([jobs[0]])), checked(job("graph"))];
    let graph = store.insert(Submission::workflow("report", graph).expect("a workflow")).await.expect("insert");
    jobs.extend(graph.jobs.iter().map(|job| job.id));
    for (queue, count) in [("done", 3), ("failed", 2), ("dead", 1), ("retried", 2), ("held", 4), ("requeued", 1)] {
        for _ in 0..count {
            jobs.push(insert(batch(vec![job(queue).max_attempts(if queue == "dead" { 1 } else { 3 })])).await);
        }
    }
    for claimed in claim(store, "done", 3).await {
        let saved = Save::under(claimed.lease.key()).checkpoint(vec![1, 2, 3]).expect("small");
        let saved =
            saved.progress(Progress::new(0.5, "half").expect("valid")).log(["one".to_owned(), "two".to_owned()]);
        store.save(&[saved]).await.expect("saved")[0].as_ref().expect("held");
        let result = Payload::json(&"fine").expect("JSON");
        store.settle(&[claimed.lease.complete(Some(result))]).await.expect("settled");
    }
    for queue in ["failed", "requeued"] {
        for claimed in claim(store, queue, 2).await {
            let failure = Failure::permanent("broken", "it broke").with_causes(["a wire"]);
            store.settle(&[claimed.lease.fail(failure, &mut random)]).await.expect("settled");
        }
    }
    for queue in ["dead", "retried"] {
        for claimed in claim(store, queue, 2).await {
            // Not due again while it is moved.
            let busy = Failure::temporary("busy").retry_after(Duration::from_secs(3600));
            store.settle(&[claimed.lease.fail(busy, &mut random)]).await.expect("settled");
        }
    }
    let requeued = *jobs.last().expect("there are jobs");
    act(store, requeued, Act::Requeue(RequeueOptions::default())).await;
    act(store, jobs[5], Act::Cancel { force: false }).await;
    let mut held = claim(store, "held", 4).await;
    act(store, held[0].job.id, Act::Cancel { force: false }).await;
    let released = held.pop().expect("four are held");
    store.settle(&[released.lease.release()]).await.expect("settled");
    store
        .control(&ControlEdit::pause(QueueName::new("later").expect("a name"), true), Some("ada"))
        .await
        .expect("paused");
    let spec = ScheduleSpec::every("hourly", Duration::from_secs(3600), checked(job("tick")));
    store.edit_schedule(&ScheduleEdit::Create(spec), Some("ada")).await.expect("a schedule");
    store.edit_schedule(&ScheduleEdit::Trigger("hourly".to_owned()), None).await.expect("fired");
    let deleted = insert(batch(vec![job("gone").idempotency_key("k-gone")])).await;
    act(store, deleted, Act::Cancel { force: false }).await;
    act(store, deleted, Act::Delete).await;
    Filled { jobs, held }
}

async fn records(store: &dyn Store, jobs: &[JobId]) -> HashMap<JobId, JobRecord> {
    let found = store.find(jobs).await.expect("find").into_iter().flatten();
    found.map(|job| (job.id, job)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_survives_between_all_kinds_of_stores() {
    for (from, to) in PAIRS {
        let places = Places::new();
        let (from_url, to_url) = (places.fresh(from), places.fresh(to));
        let source = open(&from_url).await;
        let Filled { jobs, mut held } = fill(&*source).await;
        let before = records(&*source, &jobs).await;
        let numbers = source.totals().await.expect("totals");
        let lanes = source.observe(None).await.expect("numbers").lanes;
        let acts = source.acts(None, 100).await.expect("acts").items;
        let schedules = source.schedules(None, 10).await.expect("schedules");
        let workflows =
            source.workflows(&WorkflowQuery::Newest { limit: 10, after: None }).await.expect("workflows").items;

        let finished = moved(&from_url, &to_url).await;
        assert_eq!(Some(finished.source), finished.target, "{from:?} to {to:?}");
        let target = open(&to_url).await;
        assert_eq!(target.check().await.expect("check"), Vec::<String>::new(), "{from:?} to {to:?}");
        let after = records(&*target, &jobs).await;
        assert_eq!(after.len(), jobs.len());
        for (id, job) in &before {
            let mut job = job.clone();
            job.position = after[id].position;
            assert_eq!(job, after[id], "{from:?} to {to:?}");
            let attempts = source.attempts(*id).await.expect("attempts");
            assert_eq!(attempts, target.attempts(*id).await.expect("attempts"), "{from:?} to {to:?}");
            assert_eq!(source.logs(*id).await.expect("logs"), target.logs(*id).await.expect("logs"));
        }
        assert_eq!(numbers, target.totals().await.expect("totals"), "{from:?} to {to:?}");
        assert_eq!(lanes, target.observe(None).await.expect("numbers").lanes, "{from:?} to {to:?}");
        assert_eq!(acts, target.acts(None, 100).await.expect("acts").items);
        assert_eq!(schedules, target.schedules(None, 10).await.expect("schedules"));
        assert_eq!(
            workflows,
            target.workflows(&WorkflowQuery::Newest { limit: 10, after: None }).await.expect("workflows").items
        );

        // Leases that were granted there are settled here, and only once.
        let asked = held.remove(0);
        let settlement = [held.remove(0).lease.complete(None)];
        let settled = target.settle(&settlement).await.expect("settled");
        assert!(matches!(settled[..], [Settled::Applied(State::Completed)]), "{settled:?}");
        let settled = target.settle(&settlement).await.expect("settled");
        assert!(matches!(settled[..], [Settled::AlreadyApplied]), "{settled:?}");
        let kept = [held.remove(0).lease.key()];
        let extended = target.extend(&kept, None).await.expect("extended");
        assert!(matches!(extended[..], [windlass::store::Extended::Held { .. }]), "{extended:?}");
        let settled = target.settle(&[asked.lease.cancel()]).await.expect("settled");
        assert!(matches!(settled[..], [Settled::Applied(State::Cancelled)]), "{settled:?}");
        keys_hold(&*target, &jobs).await;
        // What comes next has another number, and goes behind what waits.
        let order: Vec<JobId> = claim(&*target, "ready", 100).await.iter().map(|claimed| claimed.job.id).collect();
        let expected: Vec<JobId> =
            jobs[..30].iter().copied().filter(|id| before[id].state == State::Scheduled).collect();
        assert_eq!(order, expected, "{from:?} to {to:?}");
        assert_eq!(target.check().await.expect("check"), Vec::<String>::new(), "{from:?} to {to:?}");
        refuses(&*source, &to_url).await;
    }
}

/// Idempotency keys stand for their jobs, also where these are gone.
async fn keys_hold(store: &dyn Store, jobs: &[JobId]) {
    for key in ["k-1", "k-2", "k-gone"] {
        let queue = match key {
            "k-1" => "keyed",
            "k-2" => "unique",
            _ => "gone",
        };
        let again = match key {
            "k-2" => job(queue).unique(Unique::key(key)),
            key => job(queue).idempotency_key(key),
        };
        let answer = store.insert(batch(vec![again])).await.expect("insert").jobs[0];
        assert!(answer.existing && answer.matches, "{key}: {answer:?}");
        assert!(key == "k-gone" || jobs.contains(&answer.id));
    }
    let fresh = store.insert(batch(vec![job("fresh")])).await.expect("insert").jobs[0];
    assert!(!fresh.existing && !jobs.contains(&fresh.id));
    assert!(store.find(&[fresh.id]).await.expect("find")[0].is_some(), "new ids lead to their jobs");
}

/// Every way to write says where the store went; reading goes on.
async fn refuses(store: &dyn Store, to: &str) {
    let inserted = store.insert(batch(vec![job("late")])).await.expect_err("it was moved");
    let destination = closed(&inserted).and_then(|closed| closed.destination().map(str::to_owned));
    assert_eq!(destination.as_deref(), Some(to), "{inserted}");
    assert!(inserted.outcome_is_known());
    let worker = windlass::job::WorkerId::new("w").expect("a name");
    let request = windlass::store::ClaimRequest::new(worker, QueueName::new("ready").expect("a name"), 1);
    let refused = store.claim(&request).await.expect_err("it was moved");
    assert!(closed(&refused).is_some(), "{refused}");
    let refused = store
        .control(&ControlEdit::pause(QueueName::new("ready").expect("a name"), true), None)
        .await
        .expect_err("it was moved");
    assert!(closed(&refused).is_some(), "{refused}");
    assert!(store.totals().await.expect("reading goes on").accepted > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_is_undone_and_begun_again() {
    for (from, to) in PAIRS {
        let places = Places::new();
        let (from_url, to_url) = (places.fresh(from), places.fresh(to));
        let (source, target) = (open(&from_url).await, open(&to_url).await);
        fill(&*source).await;
        moving::begin(&*source, &*target, (&from_url, &to_url)).await.expect("it begins");
        let refused = target.insert(batch(vec![job("early")])).await.expect_err("it is being filled");
        assert!(closed(&refused).is_some_and(|closed| closed.destination().is_none()), "{refused}");
        let again = moving::begin(&*source, &*target, (&from_url, &to_url)).await.expect_err("it is under way");
        assert!(again.to_string().contains("under way"), "{again}");
        moving::undo(&*source, &*target).await.expect("undone");
        source.insert(batch(vec![job("ready")])).await.expect("it goes on as before");
        assert_eq!(source.check().await.expect("check"), Vec::<String>::new());
        drop(target);
        let finished = moved(&from_url, &to_url).await;
        assert_eq!(Some(finished.source), finished.target, "{from:?} to {to:?}");
        let refused = moving::undo(&*source, &*open(&to_url).await).await.expect_err("it has switched");
        assert!(refused.to_string().contains("was moved to"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_must_be_empty() {
    let places = Places::new();
    let (from_url, to_url) = (places.fresh(Kind::Sqlite), places.fresh(Kind::Postgres));
    let (source, target) = (open(&from_url).await, open(&to_url).await);
    target.insert(batch(vec![job("there")])).await.expect("insert");
    let refused = moving::begin(&*source, &*target, (&from_url, &to_url)).await.expect_err("not empty");
    assert!(refused.to_string().contains("not empty"), "{refused}");
    target.insert(batch(vec![job("there")])).await.expect("nothing was begun");
}
