//! A primary and a synchronous standby of their own: the store follows a promotion by itself, whatever became of the old
//! primary, and says what is not certain.

mod pair;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use windlass::job::{Limits, WorkerId};
use windlass::store::{ClaimRequest, PostgresOptions, PostgresStore, Store};
use windlass::workflow::Submission;
use windlass::{Client, Context, JobId, JobRecord, NewJob, Payload, Policies, QueueName, State, Worker};

use pair::Pair;

/// How long after a promotion calls may take to get through.
const BACK_MAX: Duration = Duration::from_secs(5);

fn job() -> Submission {
    let spec = NewJob::new("test", Payload::default()).check(&Limits::default(), &Policies::default());
    Submission::new(vec![spec.expect("valid")]).expect("valid")
}

/// Enqueues without pause until told to stop; gives what was acknowledged.
async fn produce(store: Arc<PostgresStore>, stop: Arc<AtomicBool>) -> Vec<JobId> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match store.insert(job()).await {
            Ok(inserted) => acknowledged.push(inserted.jobs[0].id),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    acknowledged
}

/// Promotes the standby after something was done to the primary; calls get through soon after, and nothing is lost.
async fn follows_a_promotion(what: &str, fault: impl FnOnce(&Pair)) {
    let pair = Pair::start(&[]);
    let store = pair.open().await;
    let stop = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..4).map(|_| tokio::spawn(produce(Arc::clone(&store), Arc::clone(&stop)))).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    fault(&pair);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let promoted = Instant::now();
    assert_eq!(pair.script("promote", "", &[]), "b");
    while store.insert(job()).await.is_err() {
        assert!(promoted.elapsed() < BACK_MAX, "{what}: no call gets through");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let back = promoted.elapsed();
    println!("{what}: back {back:?} after the promotion began");
    assert!(back < BACK_MAX, "{what}: {back:?}");
    let place = store.place().expect("a server");
    assert_eq!(place, format!("127.0.0.1:{}, timeline 2", pair.port("b")), "{what}");
    store.ready().await.expect("it can be written to");
    let begun = Instant::now();
    pair.open().await.now().await.expect("another process finds the new primary");
    assert!(begun.elapsed() < BACK_MAX, "{what}: opening took {:?}", begun.elapsed());
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for producer in producers {
        acknowledged.extend(producer.await.expect("no panic"));
    }
    assert!(!acknowledged.is_empty());
    for ids in acknowledged.chunks(1000) {
        let found = store.find(ids).await.expect("find");
        let lost = found.iter().filter(|job| job.is_none()).count();
        assert_eq!(lost, 0, "{what}: acknowledged jobs were lost");
    }
    assert_eq!(store.check().await.expect("check"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_a_primary_that_was_killed_is_left() {
    follows_a_promotion("killed", |pair| pair.signal("a", "KILL")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_a_primary_that_was_stopped_is_left() {
    follows_a_promotion("stopped", |pair| pair.signal("a", "STOP")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_a_primary_that_lives_on_is_left() {
    follows_a_promotion("alive", |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_a_commit_whose_wait_for_the_standby_was_cancelled_is_not_a_success() {
    let pair = Pair::start(&[]);
    let store = pair.open().await;
    store.insert(job()).await.expect("a lane");
    let admin = pair.admin("a").await;
    pair.signal("b", "STOP");
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.insert(job()).await }
    });
    let begun = Instant::now();
    let cancel = "select pg_cancel_backend(pid) from pg_stat_activity
                  where wait_event = 'SyncRep' and query like '%insert into windlass.job%'";
    while admin.query(cancel, &[]).await.expect("pg_cancel_backend").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing waits for the standby");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = waiting.await.expect("no panic");
    pair.signal("b", "CONT");
    let error = answer.expect_err("it may be lost");
    assert!(!error.outcome_is_known(), "{error}");
    assert!(error.to_string().contains("standby"), "{error}");
    store.insert(job()).await.expect("the store goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_writes_wait_is_not_ready_and_says_where() {
    let pair = Pair::start(&[]);
    let store = pair.open().await;
    store.ready().await.expect("all is well");
    pair.signal("b", "STOP");
    let begun = Instant::now();
    let error = store.ready().await.expect_err("no write is confirmed").to_string();
    assert!((4..8).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert!(error.contains(&format!("127.0.0.1:{}, timeline 1", pair.port("a"))), "{error}");
    let begun = Instant::now();
    store.ready().await.expect_err("still none");
    assert!(begun.elapsed() < Duration::from_secs(1), "one write is enough to know");
    store.now().await.expect("reads are answered");
    pair.signal("b", "CONT");
    while store.ready().await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it becomes ready again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How many jobs run while the server is stopped, and for how many seconds that is: few, unless `WINDLASS_OUTAGE` says
/// otherwise, such as `1000 60`.
fn outage() -> (usize, u64) {
    let told = std::env::var("WINDLASS_OUTAGE").unwrap_or_else(|_| "50 6".to_owned());
    let (jobs, seconds) = told.split_once(' ').expect("WINDLASS_OUTAGE names jobs and seconds");
    (jobs.parse().expect("a number of jobs"), seconds.parse().expect("a number of seconds"))
}

/// Stops a server for longer than the leases of running jobs; gives the jobs at their end.
async fn jobs_that_a_stopped_server_served(hold: Duration) -> Vec<JobRecord> {
    let (jobs, seconds) = outage();
    let pair = Pair::start(&[]);
    let client = Client::with_store(pair.open().await);
    let started = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&started);
    let worker = Worker::new(&client).queue("default", jobs).lease_time(Duration::from_secs(2)).hold(hold);
    let worker = worker.handle_raw("test", move |_: Payload, _: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(Duration::from_secs(seconds + 6)).await;
            Ok(())
        }
    });
    let running = worker.start().await.expect("start");
    let spec = NewJob::new("test", Payload::default()).max_attempts(1);
    let spec = spec.check(&Limits::default(), &Policies::default()).expect("valid");
    let submission = Submission::new(vec![spec; jobs]).expect("valid");
    let ids: Vec<JobId> =
        client.store().insert(submission).await.expect("insert").jobs.iter().map(|job| job.id).collect();
    while started.load(Ordering::SeqCst) < jobs {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Upkeep has come by since, so that the server is known to have been there.
    tokio::time::sleep(Duration::from_secs(1)).await;
    pair.signal("a", "STOP");
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    pair.signal("a", "CONT");
    let mut ended = Vec::new();
    for id in ids {
        let end = tokio::time::timeout(Duration::from_secs(90 + 2 * seconds), client.wait(id)).await.expect("it ends");
        ended.push(end.expect("the end"));
    }
    running.stop().await;
    let count = |what: fn(&JobRecord) -> u32| ended.iter().map(what).sum::<u32>();
    let (lost, failures, runs) = (count(|job| job.lost), count(|job| job.failures), count(|job| job.attempt));
    println!("stopped for {seconds} s, hold {hold:?}: {jobs} jobs, {runs} runs, {failures} counted, {lost} lost");
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn d6b_a_server_that_was_stopped_costs_no_attempt() {
    for job in jobs_that_a_stopped_server_served(Duration::ZERO).await {
        assert_eq!((job.state, job.failures, job.lost), (State::Completed, 0, 0), "{job:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d6b_with_a_hold_a_server_that_was_stopped_interrupts_nobody() {
    for job in jobs_that_a_stopped_server_served(Duration::from_secs(outage().1 + 30)).await {
        assert_eq!((job.state, job.attempt, job.lost), (State::Completed, 1, 0), "{job:?}");
    }
}

/// A schema of its own in the database that `WINDLASS_TEST_POSTGRES` names, which is one server and no pair.
fn new_schema() -> String {
    format!("test_{}", uuid::Uuid::new_v4().simple())
}

fn test_url() -> String {
    std::env::var("WINDLASS_TEST_POSTGRES").expect("WINDLASS_TEST_POSTGRES must name a PostgreSQL database")
}

async fn open_in(schema: &str) -> PostgresStore {
    let options = PostgresOptions::new(&test_url()).and_then(|options| options.schema(schema)).expect("valid");
    PostgresStore::with(options).await.expect("the test database")
}

async fn database() -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(&test_url(), tokio_postgres::NoTls).await.expect("the test database");
    tokio::spawn(connection);
    client
}

fn new_job() -> NewJob {
    NewJob::new("test", Payload::default())
}

fn together(jobs: Vec<NewJob>) -> Submission {
    let checked = jobs.into_iter().map(|job| job.check(&Limits::default(), &Policies::default()).expect("valid"));
    Submission::new(checked.collect()).expect("valid")
}

async fn enqueue_in(store: &PostgresStore, job: NewJob) -> JobId {
    store.insert(together(vec![job])).await.expect("insert").jobs[0].id
}

/// Submissions that are stored by each of the statements, and by the rules.
fn submissions() -> Vec<(&'static str, Submission)> {
    let typed = |name: &str| NewJob::new(name, Payload::default());
    // Its standard lifetime counts from then, which the statements do not know.
    let later = new_job().run_at(windlass::Timestamp::from_micros(4_102_444_800_000_000));
    vec![
        ("one", together(vec![new_job()])),
        ("alike", together(vec![new_job(), new_job()])),
        ("several lanes", together(vec![new_job(), typed("other")])),
        ("a key", together(vec![new_job().idempotency_key(uuid::Uuid::new_v4().to_string())])),
        ("the rules", together(vec![later])),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_no_job_is_stored_in_a_lane_that_a_failover_lost() {
    let schema = new_schema();
    let (store, database) = (open_in(&schema).await, database().await);
    for (name, submission) in submissions() {
        store.insert(submission.clone()).await.expect(name);
        // What is left when the standby had not heard of the queue yet.
        let lost =
            ["ready", "job", "event", "key", "lane", "queue"].map(|table| format!("delete from {schema}.{table};"));
        database.batch_execute(&lost.concat()).await.expect(name);
        store.insert(submission).await.expect(name);
        assert_eq!(store.check().await.expect(name), Vec::<String>::new(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_job_whose_lane_does_not_exist_is_found() {
    let schema = new_schema();
    let (store, database) = (open_in(&schema).await, database().await);
    let id = enqueue_in(&store, new_job()).await;
    database.batch_execute(&format!("delete from {schema}.lane")).await.expect("delete");
    let found = store.check().await.expect("check").join("\n");
    assert!(found.contains(&format!("job {id}: its lane")), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d6b_a_claim_nobody_heard_of_is_given_back() {
    let schema = new_schema();
    let (store, database) = (open_in(&schema).await, database().await);
    let worker = WorkerId::new("w").expect("a name");
    let request = ClaimRequest::new(worker, QueueName::default(), 1);
    // Every connection has prepared the statement, so that a claim is sent whole.
    for _ in 0..8 {
        enqueue_in(&store, new_job()).await;
        let claimed = store.claim(&request).await.expect("claim").remove(0);
        store.settle(&[claimed.lease.complete(None)]).await.expect("settle");
    }
    let id = enqueue_in(&store, new_job().max_attempts(1)).await;
    // The claim is granted only after its caller has stopped waiting.
    database.batch_execute(&format!("begin; lock table {schema}.leased in exclusive mode")).await.expect("a lock");
    let claimed = tokio::time::timeout(Duration::from_millis(500), store.claim(&request)).await;
    assert!(claimed.is_err(), "it waits for the lock");
    database.batch_execute("commit").await.expect("the lock is free");
    let begun = std::time::Instant::now();
    let claimed = loop {
        match store.claim(&request).await.expect("claim").pop() {
            Some(claimed) => break claimed,
            None => assert!(begun.elapsed() < Duration::from_secs(30), "the job stands still"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((claimed.job.id, claimed.job.attempt, claimed.job.failures), (id, 2, 0));
    assert!(begun.elapsed() < Duration::from_secs(20), "long before the lease of five minutes ends");
    store.settle(&[claimed.lease.complete(None)]).await.expect("settle");
    let found = store.find(&[id]).await.expect("find").remove(0);
    assert_eq!(found.map(|job| job.state), Some(State::Completed));
    assert_eq!(store.check().await.expect("check"), Vec::<String>::new());
}

/// Some settlements of a call are written by a statement of their own; when those with consequences then fail, it is not true that
/// nothing was written.
#[tokio::test(flavor = "multi_thread")]
async fn d6_a_call_of_which_a_part_was_written_does_not_say_that_nothing_was() {
    let schema = new_schema();
    let (store, database) = (open_in(&schema).await, database().await);
    let plain = enqueue_in(&store, new_job()).await;
    let parent = enqueue_in(&store, new_job()).await;
    enqueue_in(&store, new_job().after([parent])).await;
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 10);
    let claimed = store.claim(&request).await.expect("claim").jobs;
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [plain, parent]);
    let full = format!(
        "create function {schema}.full() returns trigger language plpgsql as
            $$ begin raise exception using errcode = '53100', message = 'the disk is full'; end $$;
        create trigger full_edge before update or delete on {schema}.edge execute function {schema}.full();
        create trigger full_pending before update or delete on {schema}.pending execute function {schema}.full();"
    );
    database.batch_execute(&full).await.expect("a disk that is full");
    let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
    let error = store.settle(&settlements).await.expect_err("the disk is full");
    let states: Vec<_> =
        store.find(&[plain, parent]).await.expect("find").iter().flatten().map(|job| job.state).collect();
    assert_eq!(states, [State::Completed, State::Running]);
    assert!(!error.outcome_is_known(), "{error:?}");
    let alone = store.settle(&settlements[1..]).await.expect_err("the disk is full");
    assert!(alone.outcome_is_known(), "of this call nothing was written: {alone:?}");
}
