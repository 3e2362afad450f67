//! A primary and a synchronous standby of their own: the store follows a promotion by itself, whatever became of the old
//! primary, and says what is not certain.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windlass::job::Limits;
use windlass::store::{PostgresStore, Store};
use windlass::workflow::Submission;
use windlass::{JobId, NewJob, Payload, Policies};

/// How long after a promotion calls may take to get through.
const BACK_MAX: Duration = Duration::from_secs(5);

/// A pair in a folder that goes with it.
struct Pair {
    folder: tempfile::TempDir,
    url: String,
}

impl Pair {
    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("windlass-pair-").tempdir_in("/tmp").expect("a folder");
        let mut pair = Pair { folder, url: String::new() };
        pair.url = pair.script("pair", "", &[]);
        pair
    }

    fn script(&self, what: &str, member: &str, more: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres");
        let output = Command::new(script).arg(what).arg(self.folder.path().join(member)).args(more).output();
        let output = output.expect("scripts/postgres runs");
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn signal(&self, member: &str, signal: &str) {
        self.script("signal", member, &[signal]);
    }

    /// The port of a member.
    fn port(&self, member: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(member).join("port")).expect("a port").trim().to_owned()
    }

    async fn open(&self) -> Arc<PostgresStore> {
        Arc::new(PostgresStore::open(&self.url).await.expect("the store opens"))
    }

    /// A connection to a member, past the store.
    async fn admin(&self, member: &str) -> tokio_postgres::Client {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", self.port(member));
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for member in ["a", "b"] {
            self.signal(member, "KILL");
        }
    }
}

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
    let pair = Pair::start();
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
    let pair = Pair::start();
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
    let pair = Pair::start();
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
