//! A damaged row stops one job and not its queue (M13), and `check` finds it.

use std::sync::Arc;

use windlass::job::{CODE_DAMAGED, Limits, Why, WorkerId};
use windlass::store::{Act, ClaimRequest, Filter, ListQuery, Operation, PostgresStore, Store, Target};
use windlass::workflow::Submission;
use windlass::{JobId, NewJob, Payload, Policies, QueueName, State};

use crate::{admin, as_role, new_schema, open, options, url};

async fn store() -> (Arc<PostgresStore>, String) {
    let schema = new_schema();
    (open(options(&url(), &schema)).await, schema)
}

async fn enqueue(store: &PostgresStore, job: NewJob) -> JobId {
    let spec = job.check(&Limits::default(), &Policies::default()).expect("a valid job");
    let submission = Submission::new(vec![spec]).expect("one job is a batch");
    store.insert(submission).await.expect("insert").jobs[0].id
}

async fn claimed(store: &PostgresStore, limit: usize) -> Vec<JobId> {
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), limit);
    store.claim(&request).await.expect("claim").into_iter().map(|claimed| claimed.job.id).collect()
}

async fn found(store: &PostgresStore, id: JobId) -> windlass::job::JobRecord {
    store.find(&[id]).await.expect("find").remove(0).expect("nothing is lost")
}

/// Changes a row behind the store's back.
async fn damage(schema: &str, sql: &str) {
    let sql = sql.replace("windlass.", &format!("{schema}."));
    assert_eq!(admin(&url()).await.execute(&sql, &[]).await.expect("an update"), 1, "{sql}");
}

fn plain() -> NewJob {
    NewJob::new("test", Payload::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn m13_a_damaged_row_stops_one_job_and_not_its_queue() {
    let what = [
        ("options", "update windlass.job set options = '{\"broken' where seq = 1"),
        ("dependencies", "update windlass.job set depends_on = '[1]' where seq = 1"),
        ("progress", "update windlass.job set progress = '-' where seq = 1"),
        ("failure", "update windlass.ready set failure = '{' where seq = 1"),
    ];
    for (named, sql) in what {
        let (store, schema) = store().await;
        let hurt = enqueue(&store, plain()).await;
        let sound = enqueue(&store, plain().tag("a", "b")).await;
        damage(&schema, sql).await;
        let list = |filter| ListQuery { filter, limit: 10, after: None, ..ListQuery::default() };
        assert_eq!(store.list(&list(Filter::default())).await.expect("a list").items.len(), 2, "{sql}");
        let tagged = Filter::new().tag("a", "b");
        let tagged = store.list(&list(tagged)).await.expect("a list by tags").items;
        assert_eq!(tagged.iter().map(|job| job.id).collect::<Vec<_>>(), [sound], "{sql}");
        let why = store.explain(hurt).await.expect("explain").reasons;
        assert!(matches!(&why[0], Why::Damaged { damage } if damage.contains(named)), "{sql}: {why:?}");
        let findings = store.check().await.expect("check");
        let tells = |finding: &String| finding.contains(&hurt.to_string()) && finding.contains(named);
        assert!(findings.iter().any(tells), "{sql}: {findings:?}");

        assert_eq!(claimed(&store, 1).await, [sound], "{sql}");
        let job = found(&store, hurt).await;
        assert_eq!(job.state, State::DeadLetter, "{sql}");
        let failure = job.failure.expect("a failure");
        assert_eq!(failure.code.as_deref(), Some(CODE_DAMAGED), "{sql}");
        assert!(failure.message.contains(named), "{sql}: {}", failure.message);
        assert_eq!(store.attempts(hurt).await.expect("attempts").len(), 1, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m13_a_job_that_was_mended_and_requeued_runs() {
    let (store, schema) = store().await;
    let id = enqueue(&store, plain().tag("kept", "yes")).await;
    // Its end has consequences for another, so it goes the careful way.
    let after = enqueue(&store, plain().after([id])).await;
    damage(&schema, "update windlass.job set options = '{' || options where seq = 1").await;
    assert_eq!(claimed(&store, 5).await, []);
    assert_eq!(found(&store, id).await.state, State::DeadLetter);
    assert_eq!(found(&store, after).await.state, State::DeadLetter, "it waited for what will not come");
    let act = |act| Operation { target: Target::Jobs(vec![id]), act, by: None, why: String::new(), dry_run: false };
    let edited = store.operate(&act(Act::Edit(Default::default()))).await.expect("edit");
    assert_eq!(edited.refused.len(), 1, "what cannot be read is not written over");
    damage(&schema, "update windlass.job set options = substr(options, 2) where seq = 1").await;
    assert_eq!(store.operate(&act(Act::Requeue(Default::default()))).await.expect("requeue").changed, 1);
    assert_eq!(claimed(&store, 5).await, [id]);
    assert_eq!(found(&store, id).await.spec.options.tags["kept"], "yes");
    assert_eq!(store.check().await.expect("check"), Vec::<String>::new());
}

/// L21: an administrator who cuts statements off sooner than the store would is obeyed.
#[tokio::test(flavor = "multi_thread")]
async fn l21_a_shorter_timeout_of_the_administrator_stays() {
    let schema = new_schema();
    let role = format!("role_{}", uuid::Uuid::new_v4().simple());
    let mut admin = admin(&url()).await;
    let made = format!("create role {role} login superuser; alter role {role} set statement_timeout = '4s'");
    admin.batch_execute(&made).await.expect("a role");
    let store = open(options(&as_role(&url(), &role), &schema)).await;
    enqueue(&store, plain()).await;
    let locked = admin.transaction().await.expect("begin");
    locked.batch_execute(&format!("lock table {schema}.ready in access exclusive mode")).await.expect("locked");
    let begun = std::time::Instant::now();
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 1);
    let cut = store.claim(&request).await.expect_err("cut off").to_string();
    assert!(cut.contains("statement timeout"), "{cut}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(18), "the store's own limit for locks is 20 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn m13_a_damaged_control_stops_its_queue_and_no_other() {
    let (store, schema) = store().await;
    let client = windlass::Client::with_store(Arc::clone(&store) as Arc<dyn Store>);
    client.queue("bad").expect("a name").control(windlass::flow::Control::new().running(5)).await.expect("controlled");
    client.enqueue_all(["bad", "default"].map(|queue| plain().queue(queue))).await.expect("enqueued");
    let step = windlass::store::SampleStep::Seconds;
    let at = step.floor(store.now().await.expect("the time"));
    for at in [at, at.plus(step.every())] {
        store.put_sample(step, &windlass::store::Sample { at, lanes: Vec::new() }).await.expect("kept");
    }
    damage(&schema, "update windlass.queue set control = '{' where name = 'bad'").await;
    damage(&schema, &format!("update windlass.sample set data = '{{' where at = {}", at.as_micros())).await;
    let fresh = open(options(&url(), &schema)).await;
    assert_eq!(fresh.queues().await.expect("queues").len(), 2);
    assert_eq!(fresh.samples(step, at, at.plus(2 * step.every())).await.expect("samples").len(), 1, "one is a gap");
    let mut request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 10);
    request.queues.insert(0, (QueueName::new("bad").expect("a name"), 10));
    let claimed = fresh.claim(&request).await.expect("claim");
    let queues: Vec<_> = claimed.into_iter().map(|claimed| claimed.job.spec.queue.to_string()).collect();
    assert_eq!(queues, ["default"]);
    let found = fresh.check().await.expect("check");
    assert!(found.iter().any(|found| found.contains("the control of queue bad")), "{found:?}");
    // Who sets it anew mends it.
    client.queue("bad").expect("a name").control(windlass::flow::Control::new().running(5)).await.expect("controlled");
    assert!(fresh.queues().await.expect("queues")[0].control.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn m13_a_damaged_limit_stops_its_key_and_nothing_else() {
    use windlass::flow::{Control, Limit};
    let (store, schema) = store().await;
    let client = windlass::Client::with_store(Arc::clone(&store) as Arc<dyn Store>);
    let queue = client.queue("gated").expect("a name");
    queue.control(Control::new().each_key(Limit::running(5))).await.expect("controlled");
    queue.limit_key("a", Limit::running(9)).await.expect("limited");
    damage(&schema, "update windlass.strand set limits = '{' where key = 'a'").await;
    let jobs = ["a", "b"].map(|key| plain().queue("gated").key(key));
    let more = client.enqueue_all(jobs).await.expect("enqueued");
    let mut request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 10);
    request.queues.push((QueueName::new("gated").expect("a name"), 10));
    let claimed = store.claim(&request).await.expect("a damaged limit fails no claim").jobs;
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [more[1].id]);
    let why = store.explain(more[0].id).await.expect("explained").reasons;
    assert!(format!("{why:?}").contains("could not be read"), "{why:?}");
    let keys = store.keys(&windlass::store::KeyQuery::new(QueueName::new("gated").expect("a name"))).await;
    assert_eq!(keys.expect("keys").items.len(), 2);
    let found = store.check().await.expect("check");
    assert!(found.iter().any(|found| found.contains("the limit of key \"a\" in queue gated")), "{found:?}");
    // Who lifts the hold mends it.
    queue.resume_key("a").await.expect("resumed");
    assert_eq!(store.claim(&request).await.expect("claim").jobs.len(), 1);
    assert_eq!(store.check().await.expect("check"), Vec::<String>::new());
}
