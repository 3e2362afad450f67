//! The store's time goes on where a server's clock leaps (rule L8): across a promotion, and on one server whose clock is set.
//!
//! The servers get their clocks from libfaketime. Where that cannot be had, the tests say loudly that they are skipped.

mod pair;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use windlass::job::{Limits, WorkerId};
use windlass::store::{ClaimRequest, PostgresOptions, PostgresStore, Store, Upkeep};
use windlass::worker::Running;
use windlass::workflow::Submission;
use windlass::{Client, Context, JobId, NewJob, Payload, Policies, QueueName, State, Timestamp, Worker};

use pair::Pair;

/// How long jobs run: through the leap, and through several leases after it.
const RUN: Duration = Duration::from_secs(15);
const HALF_AN_HOUR: Duration = Duration::from_secs(1800);
const LEASE: Duration = Duration::from_secs(3);
/// How far the store's time may be from where it should be: what F7 promises, and room for a busy machine.
const OFF_MAX: i64 = 1_500_000;

/// Whether clocks of their own can be had for servers.
fn has_clocks() -> bool {
    let found = Command::new(pair::script()).arg("faketime").output().expect("scripts/postgres runs");
    if !found.status.success() {
        println!("SKIPPED: libfaketime cannot be had: {}", String::from_utf8_lossy(&found.stderr));
    }
    found.status.success()
}

/// A server of a test's own, with a clock of its own.
struct Server {
    folder: tempfile::TempDir,
    url: String,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("windlass-clock-").tempdir_in("/tmp").expect("a folder");
        let mut server = Server { folder, url: String::new() };
        server.url = server.script("start", &[]);
        server.script("stop", &[]);
        std::fs::write(server.folder.path().join("clock"), "+0\n").expect("a clock");
        server.url = server.script("start", &[]);
        server
    }

    fn script(&self, what: &str, more: &[&str]) -> String {
        let output = Command::new(pair::script()).arg(what).arg(self.folder.path()).args(more).output();
        let output = output.expect("scripts/postgres runs");
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.script("stop", &[]);
    }
}

/// Jobs that run, one that waits and does not live long, and one that waits for later.
struct Scene {
    client: Client,
    store: Arc<PostgresStore>,
    running: Running,
    runs: Vec<JobId>,
    short_lived: JobId,
    later: JobId,
    begun: (Timestamp, Instant),
}

async fn enqueue(store: &PostgresStore, job: NewJob) -> JobId {
    let spec = job.check(&Limits::default(), &Policies::default()).expect("valid");
    let submission = Submission::new(vec![spec]).expect("valid");
    let begun = Instant::now();
    loop {
        match store.insert(submission.clone()).await {
            Ok(inserted) => return inserted.jobs[0].id,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Scene {
    /// One job lives for this long, and one waits for this long.
    async fn begin(store: Arc<PostgresStore>, far: Duration) -> Self {
        let client = Client::with_store(Arc::clone(&store) as Arc<dyn Store>);
        let started = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&started);
        let worker = Worker::new(&client).queue("default", 20).lease_time(LEASE);
        let worker = worker.handle_raw("long", move |_: Payload, _: Context| {
            counted.fetch_add(1, Ordering::SeqCst);
            async {
                tokio::time::sleep(RUN).await;
                Ok(())
            }
        });
        let worker = worker.handle_raw("short", |_: Payload, _: Context| async { Ok(()) });
        let running = worker.start().await.expect("start");
        let mut runs = Vec::new();
        for _ in 0..10 {
            runs.push(enqueue(&store, NewJob::new("long", Payload::default()).max_attempts(1)).await);
        }
        let short_lived = NewJob::new("short", Payload::default()).queue("aside");
        let short_lived = enqueue(&store, short_lived.lifetime(far)).await;
        let later = NewJob::new("short", Payload::default()).delay(far);
        let later = enqueue(&store, later).await;
        while started.load(Ordering::SeqCst) < runs.len() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Upkeep has come by, so that the server is known to have been there.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let begun = (store.now().await.expect("the time"), Instant::now());
        Scene { client, store, running, runs, short_lived, later, begun }
    }

    /// Nothing was stopped for longer than a lease, nothing ended early, and no attempt was lost.
    async fn end(self, what: &str) {
        let Scene { client, store, running, runs, short_lived, later, begun: (before, at) } = self;
        let asked = Instant::now();
        let new = enqueue(&store, NewJob::new("short", Payload::default())).await;
        let end = tokio::time::timeout(LEASE * 3, client.wait(new)).await;
        let end = end.unwrap_or_else(|_| panic!("{what}: a new job waits")).expect("the end");
        assert_eq!(end.state, State::Completed, "{what}");
        println!("{what}: a new job ended {:?} after it was sent", asked.elapsed());
        let (now, passed) = (store.now().await.expect("the time"), at.elapsed());
        let off = now.as_micros() - before.as_micros() - i64::try_from(passed.as_micros()).expect("short");
        println!("{what}: the store's time is {off} µs off after {passed:?}");
        assert!(off.abs() < OFF_MAX, "{what}: {off} µs");
        for id in runs {
            let end = tokio::time::timeout(RUN * 3, client.wait(id)).await.expect("it ends").expect("the end");
            assert_eq!(
                (end.state, end.attempt, end.lost, end.failures),
                (State::Completed, 1, 0, 0),
                "{what}: {end:?}"
            );
        }
        running.stop().await;
        let found = store.find(&[short_lived, later]).await.expect("find");
        let states: Vec<_> = found.iter().flatten().map(|job| job.state).collect();
        assert_eq!(states, [State::Scheduled, State::Delayed], "{what}: nothing ends or begins early");
        let skew = store.durability().await.expect("durability");
        println!("{what}: {:?}", skew.warnings);
        assert!(skew.skew_micros.is_some_and(|skew| skew.abs() > 3_000_000_000), "{what}: {skew:?}");
        assert!(skew.warnings.iter().any(|warning| warning.contains("the server's clock is")), "{what}: {skew:?}");
        let acts = store.acts(None, 1000).await.expect("acts").items;
        assert!(acts.iter().any(|act| act.act == "leap"), "{what}: {acts:?}");
        assert_eq!(store.check().await.expect("check"), Vec::<String>::new(), "{what}");
    }
}

async fn across_a_promotion(seconds: &str) {
    if !has_clocks() {
        return;
    }
    let pair = Pair::start(&["clocks"]);
    pair.script("clock", "b", &[seconds]);
    let scene = Scene::begin(pair.open().await, HALF_AN_HOUR).await;
    pair.signal("a", "KILL");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(pair.script("promote", "", &[]), "b");
    scene.end(&format!("a standby's clock at {seconds} s")).await;
}

async fn on_one_server(seconds: &str, far: Duration) {
    if !has_clocks() {
        return;
    }
    let server = Server::start();
    let store = PostgresStore::open(&server.url).await.expect("the store opens");
    let scene = Scene::begin(Arc::new(store), far).await;
    server.script("clock", &[seconds]);
    // Every process of the server goes by it after a second, and upkeep comes by every second.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    scene.end(&format!("a clock that was set to {seconds} s")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_a_promoted_standby_whose_clock_is_ahead_is_set_right() {
    across_a_promotion("+3600").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_a_promoted_standby_whose_clock_is_behind_is_set_right() {
    across_a_promotion("-3600").await;
}

/// A process that was just started cannot know that the clock of the promoted standby is an hour ahead: it leaves that to one that was
/// there, and meanwhile takes and ends nothing.
#[tokio::test(flavor = "multi_thread")]
async fn l8_a_newcomer_leaves_the_time_to_those_who_were_there() {
    if !has_clocks() {
        return;
    }
    let pair = Pair::start(&["clocks"]);
    pair.script("clock", "b", &["+3600"]);
    let there = pair.open().await;
    let later = enqueue(&there, NewJob::new("later", Payload::default()).delay(HALF_AN_HOUR)).await;
    let short_lived = enqueue(&there, NewJob::new("short", Payload::default()).lifetime(HALF_AN_HOUR)).await;
    there.upkeep(&Upkeep::default()).await.expect("upkeep");
    // Every process of the server goes by its clock after a second.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    there.upkeep(&Upkeep::default()).await.expect("upkeep");
    let (before, at) = (there.now().await.expect("the time"), Instant::now());
    pair.signal("a", "KILL");
    assert_eq!(pair.script("promote", "", &[]), "b");
    let newcomer = pair.open().await;
    newcomer.upkeep(&Upkeep::default()).await.expect("upkeep");
    let request = ClaimRequest::new(WorkerId::new("newcomer").expect("a name"), QueueName::default(), 10);
    let claimed = newcomer.claim(&request).await.expect("claim").jobs;
    assert!(claimed.is_empty(), "nothing is taken in doubt");
    let expected = |passed: Duration| before.as_micros() + i64::try_from(passed.as_micros()).expect("short");
    for store in [&there, &newcomer] {
        let off = store.now().await.expect("the time").as_micros() - expected(at.elapsed());
        assert!(off.abs() < OFF_MAX, "{off} µs");
    }
    newcomer.upkeep(&Upkeep::default()).await.expect("upkeep");
    let claimed = newcomer.claim(&request).await.expect("claim").jobs;
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [short_lived]);
    let found = newcomer.find(&[later]).await.expect("find");
    assert_eq!(found[0].as_ref().map(|job| job.state), Some(State::Delayed));
}

/// An hour that is being taken back makes the store's time run slower, and at no beat back.
#[tokio::test(flavor = "multi_thread")]
async fn l8_a_correction_is_taken_back_without_a_step() {
    let url = std::env::var("WINDLASS_TEST_POSTGRES").expect("WINDLASS_TEST_POSTGRES must name a database");
    let schema = format!("clock_{}", uuid::Uuid::new_v4().simple());
    let options = || PostgresOptions::new(&url).and_then(|options| options.schema(&schema)).expect("valid");
    PostgresStore::with(options()).await.expect("a store").upkeep(&Upkeep::default()).await.expect("upkeep");
    let (database, driver) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(driver);
    let hour: i64 = 3_600_000_000;
    let ahead = format!("update {schema}.pulse set skew = $1, at = at + $1");
    database.execute(&ahead, &[&hour]).await.expect("the pulse");
    let store = PostgresStore::with(options()).await.expect("a store");
    let (begun, first) = (Instant::now(), store.now().await.expect("the time"));
    let mut last = first;
    let mut beat_at = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        if beat_at.elapsed() > Duration::from_secs(1) {
            store.upkeep(&Upkeep::default()).await.expect("upkeep");
            beat_at = Instant::now();
        }
        let now = store.now().await.expect("the time");
        assert!(now >= last, "{last} and then {now}");
        last = now;
    }
    let row = database.query_one(&format!("select skew from {schema}.pulse"), &[]).await.expect("the pulse");
    let taken_back = hour - row.get::<_, i64>("skew");
    assert!((100_000..=300_000).contains(&taken_back), "{taken_back} µs of 4 s, a twentieth");
    database.batch_execute(&format!("drop schema {schema} cascade")).await.expect("gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_a_server_whose_clock_is_set_ahead_is_set_right() {
    on_one_server("+3600", HALF_AN_HOUR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_a_server_whose_clock_is_set_back_is_set_right() {
    // A set clock reaches the processes of the server within a second, and not all at once: those that come last are an hour
    // ahead of the corrected time until then, which no real clock does to them.
    on_one_server("-3600", 4 * HALF_AN_HOUR).await;
}
