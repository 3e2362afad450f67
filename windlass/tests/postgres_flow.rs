//! Flow control on a shared PostgreSQL server: claimers of several processes, claims that are given up, settlements that are sent
//! twice, users' transactions. "Another process" is another store on the same schema.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};
use windlass::flow::{AfterFailure, Change, Control, ControlEdit, Limit};
use windlass::job::{Limits, WorkerId};
use windlass::store::{
    Act, ClaimRequest, Claimed, Edit, Filter, KeyQuery, Operation, PostgresOptions, PostgresStore, Settled, Store,
    Target, Upkeep,
};
use windlass::workflow::Submission;
use windlass::{Failure, NewJob, Payload, Policies, Priority, QueueName, State};

const DEADLINE: Duration = Duration::from_secs(60);
/// How long rough claimers run.
const ROUGH: Duration = Duration::from_secs(6);

fn url() -> String {
    std::env::var("WINDLASS_TEST_POSTGRES").expect("WINDLASS_TEST_POSTGRES must name a PostgreSQL database")
}

fn new_schema() -> String {
    format!("flow_{}", uuid::Uuid::new_v4().simple())
}

async fn open(schema: &str) -> Arc<PostgresStore> {
    let options = PostgresOptions::new(&url()).and_then(|options| options.schema(schema)).expect("valid options");
    Arc::new(PostgresStore::with(options).await.expect("the test database should be there"))
}

/// A connection of the user's own.
async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.expect("the test database");
    tokio::spawn(connection);
    client
}

fn job() -> NewJob {
    NewJob::new("test", Payload::default())
}

fn batch(jobs: impl Iterator<Item = NewJob>) -> Submission {
    let checked = jobs.map(|job| job.check(&Limits::default(), &Policies::default()).expect("a valid job"));
    Submission::new(checked.collect()).expect("a valid batch")
}

async fn claim(store: &PostgresStore, limit: usize) -> Vec<Claimed> {
    let worker = WorkerId::new("w").expect("a name");
    store.claim(&ClaimRequest::new(worker, QueueName::default(), limit)).await.expect("claim").jobs
}

async fn control(store: &PostgresStore, control: Control) {
    let put = Change::Put { control, version: None, from_code: false };
    store.control(&ControlEdit::new(QueueName::default(), put), None).await.expect("control");
}

async fn assert_sound(store: &PostgresStore) {
    assert_eq!(store.check().await.expect("check"), Vec::<String>::new());
}

/// What of each key and of the whole queue runs, as one snapshot has it.
async fn running(client: &Client, schema: &str) -> HashMap<String, i64> {
    let text = format!(
        "select coalesce(j.options::json ->> 'key', ''), count(*) from {schema}.leased l join {schema}.job j using (seq) group by 1"
    );
    let rows = client.query(&text, &[]).await.expect("leases");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % most
    }
}

/// Claims and settles until told to stop: some claims are given up before their answer, some settlements are sent twice, some
/// jobs are given back or fail.
async fn claim_roughly(store: Arc<PostgresStore>, seed: u64, stop: Arc<AtomicBool>) -> usize {
    let mut random = Random(seed * 2 + 1);
    let mut done = 0;
    while !stop.load(Ordering::SeqCst) {
        let request = ClaimRequest {
            lease_time: Some(Duration::from_secs(3)),
            ..ClaimRequest::new(
                WorkerId::new(format!("w{seed}")).expect("a name"),
                QueueName::default(),
                1 + random.below(11),
            )
        };
        let claim = tokio::time::timeout(
            if random.below(20) == 0 { Duration::from_micros(100 + random.below(4000) as u64) } else { DEADLINE },
            store.claim(&request),
        );
        let Ok(Ok(claims)) = claim.await else { continue };
        let mut settlements = Vec::new();
        for Claimed { lease, .. } in claims {
            settlements.push(match random.below(12) {
                0 => lease.release(),
                1 => lease.fail(Failure::temporary("again"), &mut || 0.0),
                2 => lease.snooze(Duration::from_millis(5)),
                _ => {
                    done += 1;
                    lease.complete(None)
                }
            });
        }
        for _ in 0..1 + usize::from(random.below(5) == 0) {
            store.settle(&settlements).await.expect("settled");
        }
    }
    done
}

/// Lets claimers of three processes claim roughly, at most eight jobs at once, and looks that no limit is exceeded and nothing leaks.
async fn never_exceed_limits(told: Control) {
    let schema = new_schema();
    let first = open(&schema).await;
    let of_key = told.each_key.and_then(|limit| limit.running).map_or(8, i64::from);
    control(&first, told).await;
    let stores = [Arc::clone(&first), open(&schema).await, open(&schema).await];
    let stop = Arc::new(AtomicBool::new(false));
    let claimers: Vec<_> = (0..6)
        .map(|number| tokio::spawn(claim_roughly(Arc::clone(&stores[number % 3]), number as u64, Arc::clone(&stop))))
        .collect();
    let watch = client().await;
    let until = Instant::now() + ROUGH;
    let mut round = 0;
    while Instant::now() < until {
        let keys = if round % 2 == 0 { 40 } else { 4 };
        let jobs = (0..40).map(|number| job().key(format!("k{}", number % keys)).max_attempts(50));
        first.insert(batch(jobs)).await.expect("a batch");
        for _ in 0..10 {
            let running = running(&watch, &schema).await;
            assert!(running.values().all(|count| *count <= of_key), "{running:?}");
            assert!(running.values().sum::<i64>() <= 8, "{running:?}");
        }
        first.upkeep(&Upkeep::default()).await.expect("upkeep");
        round += 1;
    }
    stop.store(true, Ordering::SeqCst);
    let mut done = 0;
    for claimer in claimers {
        done += claimer.await.expect("a claimer");
    }
    assert!(done > 20, "only {done} jobs were completed");
    // What was granted to claims that were given up comes back when its lease ends.
    let deadline = Instant::now() + DEADLINE;
    loop {
        first.upkeep(&Upkeep::default()).await.expect("upkeep");
        let left = claim(&first, 100).await;
        let settlements: Vec<_> = left.into_iter().map(|one| one.lease.complete(None)).collect();
        first.settle(&settlements).await.expect("settled");
        let filter = Filter::new().states([State::Running, State::Scheduled, State::Retrying, State::Delayed]);
        if first.count(&filter, 10, 100_000).await.expect("a count").count == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "something is left: {:?}", running(&watch, &schema).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_sound(&first).await;
    let keys = first.keys(&KeyQuery::new(QueueName::default())).await.expect("keys").items;
    assert!(keys.is_empty(), "at rest nothing is counted: {keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn k2_rough_claimers_of_three_processes_never_exceed_a_limit_and_leak_nothing() {
    never_exceed_limits(Control::new().running(8).each_key(Limit::running(3)).fair()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k2_rough_claimers_never_exceed_the_limit_of_a_queue_that_does_not_tell_keys_apart() {
    never_exceed_limits(Control::new().running(8)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k9_a_job_that_comes_to_stand_before_those_that_were_claimed_is_found() {
    let schema = new_schema();
    let store = open(&schema).await;
    control(&store, Control::new().running(1000)).await;
    store.insert(batch((0..40).map(|_| job()))).await.expect("a batch");
    for _ in 0..2 {
        assert_eq!(claim(&store, 10).await.len(), 10);
        // Claims begin after what was claimed so long ago.
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    let text = format!("update {schema}.ready set due = 1 where seq = (select max(seq) from {schema}.ready)");
    assert_eq!(client().await.execute(&text, &[]).await.expect("an update"), 1);
    assert_eq!(claim(&store, 10).await.len(), 10);
    // At once where a look from the very front is quick, otherwise soon.
    let (mut left, begun) = (10, Instant::now());
    while left > 0 {
        left -= claim(&store, 20).await.len();
        assert!(begun.elapsed() < DEADLINE, "{left} jobs are not found");
    }
    assert!(claim(&store, 20).await.is_empty());
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k3_a_slot_is_free_when_the_users_transaction_commits() {
    let schema = new_schema();
    let store = open(&schema).await;
    control(&store, Control::new().running(1).each_key(Limit::running(1))).await;
    store.insert(batch((0..3).map(|_| job().key("a")))).await.expect("a batch");
    let mut held = claim(&store, 5).await;
    assert_eq!(held.len(), 1);
    let settlement = held.remove(0).lease.complete(None);
    let mut users = client().await;
    let transaction = users.transaction().await.expect("a transaction");
    let settled = store.settle_in_tx(&transaction, &settlement).await.expect("settled");
    assert!(matches!(settled, Settled::Applied(State::Completed)), "{settled:?}");
    assert!(claim(&store, 5).await.is_empty(), "it is not committed");
    transaction.rollback().await.expect("rolled back");
    assert!(claim(&store, 5).await.is_empty(), "it was not committed");
    let transaction = users.transaction().await.expect("a transaction");
    store.settle_in_tx(&transaction, &settlement).await.expect("settled");
    transaction.commit().await.expect("committed");
    assert_eq!(claim(&store, 5).await.len(), 1);
    assert!(claim(&store, 5).await.is_empty());
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k9_a_job_that_a_users_transaction_holds_delays_nobody() {
    let schema = new_schema();
    let store = open(&schema).await;
    control(&store, Control::new().running(10).each_key(Limit::running(1)).fair()).await;
    store.insert(batch(["a", "b", "c"].into_iter().map(|key| job().key(key)))).await.expect("a batch");
    let mut users = client().await;
    let transaction = users.transaction().await.expect("a transaction");
    let text = format!("select seq from {schema}.ready order by seq limit 1 for update");
    assert_eq!(transaction.query(&text, &[]).await.expect("held").len(), 1);
    let key = |one: &Claimed| one.job.spec.options.key.clone().unwrap_or_default();
    assert_eq!(claim(&store, 5).await.iter().map(key).collect::<Vec<_>>(), ["b", "c"]);
    transaction.rollback().await.expect("rolled back");
    assert_eq!(claim(&store, 5).await.iter().map(key).collect::<Vec<_>>(), ["a"], "it was not forgotten");
    assert_sound(&store).await;
}

/// Holds the lock of the controlled queue until a claim waits for it, and does something then; gives what was claimed.
async fn claim_overtaken(store: &Arc<PostgresStore>, schema: &str, meanwhile: impl AsyncFnOnce()) -> Vec<Claimed> {
    let (mut holder, watcher) = (client().await, client().await);
    let held = holder.transaction().await.expect("a transaction");
    held.query(&format!("select from {schema}.queue for no key update"), &[]).await.expect("the lock");
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { claim(&store, 1).await }
    });
    let waits = "select from pg_stat_activity where wait_event_type = 'Lock' and position($1 in query) > 0";
    let begun = Instant::now();
    while watcher.query(waits, &[&schema]).await.expect("activity").is_empty() {
        assert!(begun.elapsed() < DEADLINE, "no claim waits for the queue");
        tokio::task::yield_now().await;
    }
    meanwhile().await;
    held.commit().await.expect("a commit");
    claiming.await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn k13_a_job_that_is_edited_during_a_claim_is_not_overtaken() {
    let schema = new_schema();
    let store = open(&schema).await;
    control(&store, Control::new().ordered(AfterFailure::GoOn)).await;
    let ids = store.insert(batch((0..3).map(|_| job().key("acme")))).await.expect("insert").jobs;
    let first = claim(&store, 1).await.remove(0);
    assert_eq!(first.job.id, ids[0].id);
    store.settle(&[first.lease.complete(None)]).await.expect("settled");

    // The edited job leaves its strand for the door, after the claim has looked there.
    let claimed = claim_overtaken(&store, &schema, async || {
        let act = Act::Edit(Edit { priority: Some(Priority::High), ..Edit::default() });
        let (target, why) = (Target::Jobs(vec![ids[1].id]), "a test".to_owned());
        let done = store.operate(&Operation { target, act, by: None, why, dry_run: false }).await.expect("an act");
        assert_eq!(done.changed, 1);
    })
    .await;
    assert_eq!(claimed.iter().map(|one| one.job.id).collect::<Vec<_>>(), [ids[1].id]);
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k5_a_job_that_came_back_to_the_door_during_a_claim_waits_for_its_time() {
    let schema = new_schema();
    let store = open(&schema).await;
    control(&store, Control::new().each_key(Limit::running(2))).await;
    store.insert(batch(std::iter::once(job().key("acme")))).await.expect("insert");
    // As if another worker had claimed it meanwhile and its attempt had failed.
    let claimed = claim_overtaken(&store, &schema, async || {
        let text = format!("update {schema}.ready set due = due + 3600000000");
        assert_eq!(client().await.execute(&text, &[]).await.expect("an update"), 1);
    })
    .await;
    assert!(claimed.is_empty(), "an hour too early");
    assert_sound(&store).await;
}

/// Its lane was made by another process since this one last looked which types the queue has.
#[tokio::test(flavor = "multi_thread")]
async fn k13_a_job_of_a_type_that_is_new_here_is_not_overtaken() {
    let schema = new_schema();
    let (own, other) = (open(&schema).await, open(&schema).await);
    control(&own, Control::new().ordered(AfterFailure::Halt)).await;
    own.insert(batch([job().key("another")].into_iter())).await.expect("stored");
    assert_eq!(claim(&own, 1).await.len(), 1, "it knows one type of the queue");
    for first_then_second in [NewJob::new("new", Payload::default()), job()] {
        other.insert(batch([first_then_second.key("k")].into_iter())).await.expect("stored");
    }
    let types = Some(vec![windlass::JobType::new("test").expect("a name")]);
    let request =
        ClaimRequest { types, ..ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 9) };
    let claimed = own.claim(&request).await.expect("claim").jobs;
    assert_eq!(claimed.len(), 0, "the first job of the key is of another type");
    assert_eq!(
        claim(&own, 9).await.first().map(|claimed| claimed.job.spec.job_type.to_string()),
        Some("new".to_owned())
    );
}
