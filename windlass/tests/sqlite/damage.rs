//! A damaged row stops one job and not its queue (M13), and `check` finds it.

use windlass::flow::{Control, GateName, Limit, Rate};
use windlass::job::{CODE_DAMAGED, Why};
use windlass::store::{ListQuery, Sample, SampleStep};

use super::*;

/// Changes a row behind the store's back.
fn damage(path: &Path, sql: &str) {
    let conn = Connection::open(path).expect("open");
    assert_eq!(conn.execute(sql, []).expect(sql), 1, "{sql}");
}

#[tokio::test]
async fn m13_a_damaged_row_stops_one_job_and_not_its_queue() {
    let what = [
        ("options", "update windlass_job set options = '{\"broken' where seq = 1"),
        ("options", "update windlass_job set options = x'ff00' where seq = 1"),
        ("dependencies", "update windlass_job set depends_on = x'0102' where seq = 1"),
        ("payload", "update windlass_job set payload = 7 where seq = 1"),
        ("payload", "update windlass_job set content_type = x'ff' where seq = 1"),
        ("inherited priority", "update windlass_job set inherited = 99 where seq = 1"),
        ("id", "update windlass_job set id = x'01' where seq = 1"),
    ];
    for (named, sql) in what {
        let (_folder, path) = folder();
        let store = SqliteStore::open(&path).expect("open");
        let hurt = enqueue(&store, plain()).await.expect("enqueue");
        let sound = enqueue(&store, plain()).await.expect("enqueue");
        damage(&path, sql);
        let listed = store
            .list(&ListQuery { filter: Filter::default(), limit: 10, after: None, ..ListQuery::default() })
            .await
            .expect("a list")
            .items;
        assert_eq!(listed.len(), 2, "{sql}");
        let id = listed.iter().map(|job| job.id).find(|id| *id != sound).expect("the damaged one is listed");
        assert!(named == "id" || id == hurt, "{sql}");
        let why = store.explain(id).await.expect("explain").reasons;
        assert!(matches!(&why[0], Why::Damaged { damage } if damage.contains(named)), "{sql}: {why:?}");
        let found = store.check().await.expect("check");
        assert!(found.iter().any(|found| found.contains(&id.to_string()) && found.contains(named)), "{sql}: {found:?}");

        let claimed = claim(&store, 1).await;
        assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [sound], "{sql}");
        let job = store.find(&[id]).await.expect("find").remove(0).expect("nothing is lost");
        assert_eq!(job.state, State::DeadLetter, "{sql}");
        let failure = job.failure.expect("a failure");
        assert_eq!(failure.code.as_deref(), Some(CODE_DAMAGED), "{sql}");
        assert!(failure.message.contains(named), "{sql}: {}", failure.message);
        assert_eq!(store.attempts(id).await.expect("attempts").len(), 1, "{sql}");
    }
}

#[tokio::test]
async fn m13_a_job_that_was_mended_and_requeued_runs() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    let id = enqueue(&store, plain().tag("kept", "yes")).await.expect("enqueue");
    damage(&path, "update windlass_job set options = '{' || options where seq = 1");
    assert!(claim(&store, 5).await.is_empty());
    assert_eq!(state(&store, id).await, Some(State::DeadLetter));
    let act = |act| Operation { target: Target::Jobs(vec![id]), act, by: None, why: String::new(), dry_run: false };
    let edit = act(Act::Edit(Default::default()));
    assert_eq!(store.operate(&edit).await.expect("edit").refused.len(), 1, "what cannot be read is not written over");
    damage(&path, "update windlass_job set options = substr(options, 2) where seq = 1");
    let requeue = act(Act::Requeue(Default::default()));
    assert_eq!(store.operate(&requeue).await.expect("requeue").changed, 1);
    let claimed = claim(&store, 5).await;
    assert_eq!(claimed[0].job.spec.options.tags["kept"], "yes");
    assert_sound(&store).await;
}

#[tokio::test]
async fn m13_many_damaged_rows_before_a_sound_one_hold_it_up_for_one_claim_at_most() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    for _ in 0..10 {
        enqueue(&store, plain()).await.expect("enqueue");
    }
    let sound = enqueue(&store, plain()).await.expect("enqueue");
    let conn = Connection::open(&path).expect("open");
    conn.execute("update windlass_job set options = '{' where seq <= 10", []).expect("damage");
    let claimed = claim(&store, 1).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [sound]);
    assert_eq!(store.observe(None).await.map(|seen| seen.totals()).expect("totals").count(State::DeadLetter), 10);
}

#[tokio::test]
async fn m13_what_is_kept_beside_a_job_may_be_damaged_too() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    let id = enqueue(&store, plain()).await.expect("enqueue");
    let lease = claim(&store, 1).await.remove(0).lease;
    let settlement = lease.fail(windlass::Failure::permanent("no", "no"), &mut || 0.0);
    assert!(matches!(store.settle(&[settlement]).await.expect("settle")[0], Settled::Applied(State::Failed)));
    damage(&path, "update windlass_note set failure = 'not json'");
    damage(&path, "update windlass_done set reason = 'not json'");
    let job = store.find(&[id]).await.expect("find").remove(0).expect("the job");
    assert_eq!((job.state, job.failure, job.reason), (State::Failed, None, None));
    let found = store.check().await.expect("check");
    assert!(found.iter().any(|found| found.contains("failure") && found.contains("reason")), "{found:?}");
}

#[tokio::test]
async fn m13_a_damaged_control_stops_its_queue_and_no_other() {
    let (_folder, path) = folder();
    let store = Arc::new(SqliteStore::open(&path).expect("open"));
    let client = windlass::Client::with_store(Arc::clone(&store) as Arc<dyn Store>);
    let (bad, good) = (QueueName::new("bad").expect("a name"), QueueName::new("good").expect("a name"));
    let job = |queue: &str| NewJob::new("t", Payload::default()).queue(queue);
    client.queue("bad").expect("a name").control(Control::new().running(5)).await.expect("controlled");
    client.enqueue_all([job("bad"), job("bad"), job("good")]).await.expect("enqueued");
    let worker = WorkerId::new("w").expect("a name");
    let mut request = ClaimRequest::new(worker, bad.clone(), 1);
    let lease = store.claim(&request).await.expect("claim").jobs.remove(0).lease;
    damage(&path, "update windlass_queue set control = '{' where name = 'bad'");
    let step = SampleStep::Seconds;
    let at = step.floor(store.now().await.expect("the time"));
    for at in [at, at.plus(step.every())] {
        store.put_sample(step, &Sample { at, lanes: Vec::new() }).await.expect("kept");
    }
    damage(&path, &format!("update windlass_sample set data = '{{' where at = {}", at.as_micros()));
    let settled = store.settle(&[lease.complete(None)]).await.expect("settled");
    assert!(matches!(settled[0], Settled::Applied(State::Completed)), "{settled:?}");
    (request.queues, request.limit) = (vec![(bad, 5), (good, 5)], 10);
    let claimed = store.claim(&request).await.expect("claim").jobs;
    assert_eq!(claimed.iter().map(|claimed| claimed.job.spec.queue.as_str()).collect::<Vec<_>>(), ["good"]);
    assert_eq!(store.queues().await.expect("queues").len(), 2);
    let samples = store.samples(step, at, at.plus(2 * step.every())).await.expect("samples");
    assert_eq!(samples.len(), 1, "one is a gap");
    let found = store.check().await.expect("check");
    assert!(found.iter().any(|found| found.contains("the control of queue bad")), "{found:?}");
    // Who sets it anew mends it.
    client.queue("bad").expect("a name").control(Control::new().running(5)).await.expect("controlled");
    assert_eq!(store.claim(&request).await.expect("claim").jobs.len(), 1);
}

#[tokio::test]
async fn m13_a_damaged_gate_stops_what_stands_before_it_and_nothing_else() {
    let (_folder, path) = folder();
    let store = Arc::new(SqliteStore::open(&path).expect("open"));
    let client = windlass::Client::with_store(Arc::clone(&store) as Arc<dyn Store>);
    let (gated, other) = (QueueName::new("gated").expect("a name"), QueueName::new("other").expect("a name"));
    let (rate, queue) = (Rate::per_hour(1000).burst(100), client.queue("gated").expect("a name"));
    queue.control(Control::new().each_key(Limit::rated(rate)).rate(rate)).await.expect("controlled");
    let job = |queue: &str, key: &str| NewJob::new("t", Payload::default()).queue(queue).key(key);
    let both = || [job("gated", "a"), job("gated", "b")];
    client.enqueue_all(both()).await.expect("enqueued");
    let mut request = ClaimRequest::new(WorkerId::new("w").expect("a name"), gated.clone(), 10);
    request.queues.push((other, 10));
    let leases = store.claim(&request).await.expect("claim").jobs;
    assert_eq!(leases.len(), 2, "each key has a gate now");
    damage(&path, "update windlass_gate set gate = '{' where name = 'k:a'");
    let settlements: Vec<_> = leases.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
    assert!(store.settle(&settlements).await.expect("settled").iter().all(|one| matches!(one, Settled::Applied(_))));
    let more = client.enqueue_all(both().into_iter().chain([job("other", "a")])).await.expect("enqueued");
    let claimed = store.claim(&request).await.expect("a damaged gate fails no claim").jobs;
    let seen: Vec<_> = claimed.iter().map(|claimed| claimed.job.spec.options.key.clone()).collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(!claimed.iter().any(|claimed| claimed.job.id == more[0].id), "the key of the damaged gate is closed");
    let why = store.explain(more[0].id).await.expect("explained").reasons;
    assert!(format!("{why:?}").contains("could not be read"), "{why:?}");
    let found = store.check().await.expect("check");
    assert!(found.iter().any(|found| found.contains("a gate of queue gated cannot be read")), "{found:?}");
    // Who lifts the hold mends it.
    queue.resume_key("a").await.expect("resumed");
    assert_eq!(store.claim(&request).await.expect("claim").jobs.len(), 1);
    assert_eq!(store.check().await.expect("check"), Vec::<String>::new());
    // The gate of the queue stops the queue, and no other.
    damage(&path, "update windlass_gate set gate = x'00' where name = ''");
    client.enqueue_all([job("gated", "b"), job("other", "b")]).await.expect("enqueued");
    let claimed = store.claim(&request).await.expect("a damaged gate fails no claim").jobs;
    assert_eq!(claimed.iter().map(|claimed| claimed.job.spec.queue.as_str()).collect::<Vec<_>>(), ["other"]);
    queue.hold(GateName::Queue, None).await.expect("lifted");
    assert_eq!(store.claim(&request).await.expect("claim").jobs.len(), 1);
}

#[tokio::test]
async fn m13_a_running_job_without_its_submitted_row_keeps_no_other_from_being_settled() {
    let (_folder, path) = folder();
    let store = Arc::new(SqliteStore::open(&path).expect("open"));
    let client = windlass::Client::with_store(Arc::clone(&store) as Arc<dyn Store>);
    client.queue("q").expect("a name").control(Control::new().running(5)).await.expect("controlled");
    let job = || NewJob::new("t", Payload::default()).queue("q");
    client.enqueue_all([job(), job()]).await.expect("enqueued");
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::new("q").expect("a name"), 2);
    let leases =
        store.claim(&request).await.expect("claim").jobs.into_iter().map(|claimed| claimed.lease.complete(None));
    damage(&path, "delete from windlass_job where seq = (select min(seq) from windlass_leased)");
    let settled = store.settle(&leases.collect::<Vec<_>>()).await.expect("settled");
    assert!(settled.iter().all(|settled| matches!(settled, Settled::Applied(State::Completed))), "{settled:?}");
}
