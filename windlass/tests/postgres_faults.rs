//! A server of its own, killed with SIGKILL under load and started again on the same port: nothing that was acknowledged
//! is lost, no lease is granted twice, and everybody comes back by themselves.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use windlass::job::{Limits, WorkerId};
use windlass::store::{ClaimRequest, PostgresStore, Settled, Store, Upkeep};
use windlass::workflow::Submission;
use windlass::{Error, JobId, NewJob, Payload, Policies, QueueName, State};

/// How often the server is killed.
const KILLS: usize = 3;
/// How long the load runs before and after each kill.
const ROUND: Duration = Duration::from_millis(1500);
const LEASE: Duration = Duration::from_secs(3);
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// A private server in a folder that goes with it.
struct Server {
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> (Self, String) {
        let server = Server { folder: tempfile::TempDir::with_prefix("windlass-faults-").expect("a folder") };
        let url = server.script("start").expect("the server starts");
        (server, url)
    }

    fn script(&self, what: &str) -> Option<String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres");
        let output = Command::new(script).arg(what).arg(self.folder.path()).output().expect("scripts/postgres runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Kills the server and all its backends at once, and starts it again on its port.
    fn kill_and_restart(&self) {
        let file = std::fs::read_to_string(self.folder.path().join("data/postmaster.pid")).expect("a running server");
        let pid = file.lines().next().expect("its process id").to_owned();
        let killed = Command::new("kill").args(["-KILL", &pid]).status().expect("kill runs");
        assert!(killed.success());
        // The server goes, then the backends notice and go; until they have, a new one does not start.
        let begun = Instant::now();
        while is_alive(&pid) || self.script("start").is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the server does not come back");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn is_alive(pid: &str) -> bool {
    Command::new("kill").args(["-0", pid]).output().expect("kill runs").status.success()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.script("stop");
    }
}

/// What the clients saw.
#[derive(Default)]
struct History {
    acknowledged: Mutex<HashSet<JobId>>,
    granted: Mutex<HashMap<(JobId, u64), usize>>,
    completed: Mutex<HashMap<JobId, usize>>,
    unknown: AtomicUsize,
    refused: AtomicUsize,
    stop_enqueueing: AtomicBool,
    stop_working: AtomicBool,
}

impl History {
    /// Any error must be one that says «try again».
    fn note(&self, error: &Error) {
        assert!(matches!(error, Error::StoreUnavailable { .. }), "{error}");
        let counter = if error.outcome_is_known() { &self.refused } else { &self.unknown };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

async fn produce(store: Arc<PostgresStore>, history: Arc<History>) {
    let job = NewJob::new("test", Payload::default());
    let spec = job.check(&Limits::default(), &Policies::default()).expect("valid");
    while !history.stop_enqueueing.load(Ordering::Relaxed) {
        let submission = Submission::new(vec![spec.clone(); 3]).expect("valid");
        match store.insert(submission).await {
            Ok(inserted) => {
                let ids = inserted.jobs.iter().map(|job| job.id);
                history.acknowledged.lock().expect("no panic").extend(ids);
            }
            Err(error) => {
                history.note(&error);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn work(store: Arc<PostgresStore>, history: Arc<History>, name: String) {
    let worker = WorkerId::new(name).expect("a name");
    let request = ClaimRequest { lease_time: Some(LEASE), ..ClaimRequest::new(worker, QueueName::default(), 20) };
    while !history.stop_working.load(Ordering::Relaxed) {
        let claimed = match store.claim(&request).await {
            Ok(claimed) => claimed,
            Err(error) => {
                history.note(&error);
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        if claimed.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        for one in &claimed {
            let lease = (one.job.id, one.lease.version());
            *history.granted.lock().expect("no panic").entry(lease).or_default() += 1;
        }
        let ids: Vec<JobId> = claimed.iter().map(|one| one.job.id).collect();
        let settlements: Vec<_> = claimed.into_iter().map(|one| one.lease.complete(None)).collect();
        // A committer that lost the reply repeats, as long as its leases may hold.
        let begun = Instant::now();
        while begun.elapsed() < LEASE {
            match store.settle(&settlements).await {
                Ok(answers) => {
                    let mut completed = history.completed.lock().expect("no panic");
                    for (id, answer) in ids.iter().zip(answers) {
                        if matches!(answer, Settled::Applied(State::Completed)) {
                            *completed.entry(*id).or_default() += 1;
                        }
                    }
                    break;
                }
                Err(error) => {
                    history.note(&error);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
}

async fn keep_up(store: Arc<PostgresStore>, history: Arc<History>) {
    while !history.stop_working.load(Ordering::Relaxed) {
        if let Err(error) = store.upkeep(&Upkeep::default()).await {
            history.note(&error);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn unfinished(store: &PostgresStore) -> Option<u64> {
    let totals = store.observe(None).await.map(|seen| seen.totals()).ok()?;
    Some(totals.states[..5].iter().sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_nothing_acknowledged_is_lost_when_the_server_is_killed_under_load() {
    let (server, url) = Server::start();
    let store = Arc::new(PostgresStore::open(&url).await.expect("open"));
    let history = Arc::new(History::default());
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        producers.spawn(produce(Arc::clone(&store), Arc::clone(&history)));
    }
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..3 {
        workers.spawn(work(Arc::clone(&store), Arc::clone(&history), format!("w{number}")));
    }
    workers.spawn(keep_up(Arc::clone(&store), Arc::clone(&history)));
    let server = Arc::new(server);
    for _ in 0..KILLS {
        tokio::time::sleep(ROUND).await;
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || server.kill_and_restart()).await.expect("restart");
    }
    tokio::time::sleep(ROUND).await;
    history.stop_enqueueing.store(true, Ordering::Relaxed);
    producers.join_all().await;
    let begun = Instant::now();
    while unfinished(&store).await != Some(0) {
        assert!(
            begun.elapsed() < DRAIN_MAX,
            "the jobs do not drain: {:?}",
            store.observe(None).await.map(|seen| seen.totals())
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    history.stop_working.store(true, Ordering::Relaxed);
    workers.join_all().await;

    let acknowledged: Vec<JobId> = history.acknowledged.lock().expect("no panic").iter().copied().collect();
    let mut lost = 0;
    for ids in acknowledged.chunks(1000) {
        let found = store.find(ids).await.expect("find");
        lost += found.iter().filter(|job| job.as_ref().is_none_or(|job| job.state != State::Completed)).count();
    }
    let twice =
        |map: &Mutex<HashMap<JobId, usize>>| map.lock().expect("no panic").values().filter(|count| **count > 1).count();
    let granted_twice = history.granted.lock().expect("no panic").values().filter(|count| **count > 1).count();
    let (unknown, refused) = (history.unknown.load(Ordering::Relaxed), history.refused.load(Ordering::Relaxed));
    println!(
        "{KILLS} kills, {} jobs acknowledged, {unknown} unknown outcomes, {refused} refused calls",
        acknowledged.len()
    );
    assert_eq!((lost, granted_twice, twice(&history.completed)), (0, 0, 0), "lost, leases twice, completed twice");
    assert_eq!(store.check().await.expect("check"), Vec::<String>::new());
    // A run that did too little shows nothing.
    assert!(
        acknowledged.len() > 300 && unknown + refused >= KILLS,
        "{} jobs, {unknown}, {refused}",
        acknowledged.len()
    );
}
