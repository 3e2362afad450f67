//! A SQLite file that cannot be written to for longer than leases hold costs no attempt (rule D6b).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass::job::WorkerId;
use windlass::store::{ClaimRequest, SqliteStore, Store};
use windlass::{Client, Context, NewJob, Payload, QueueName, State, Worker};

const JOBS: usize = 20;
/// Longer than the leases, and than the store waits for the lock.
const OUTAGE: Duration = Duration::from_secs(9);

#[tokio::test(flavor = "multi_thread")]
async fn d6b_a_file_that_is_locked_for_longer_than_leases_hold_costs_no_attempt() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("jobs.db");
    let client = Client::open(&format!("sqlite:{}", file.display())).await.expect("a store");
    let started = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&started);
    let worker = Worker::new(&client).queue("default", JOBS).lease_time(Duration::from_secs(2));
    let worker = worker.handle_raw("test", move |_: Payload, _: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(OUTAGE + Duration::from_secs(3)).await;
            Ok(())
        }
    });
    let running = worker.start().await.expect("start");
    let mut ids = Vec::new();
    for _ in 0..JOBS {
        let job = NewJob::new("test", Payload::default()).max_attempts(1);
        ids.push(client.enqueue(job).await.expect("enqueue").id);
    }
    while started.load(Ordering::SeqCst) < JOBS {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let locked = std::thread::spawn(move || {
        let other = rusqlite::Connection::open(file).expect("the file");
        other.busy_timeout(Duration::from_secs(5)).expect("a setting");
        other.execute_batch("begin immediate").expect("the lock");
        std::thread::sleep(OUTAGE);
        other.execute_batch("rollback").expect("the end of it");
    });
    let locked = tokio::task::spawn_blocking(move || locked.join());
    locked.await.expect("no panic").expect("no panic");
    for id in ids {
        let end =
            tokio::time::timeout(Duration::from_secs(90), client.wait(id)).await.expect("it ends").expect("the end");
        assert_eq!((end.state, end.failures, end.lost), (State::Completed, 0, 0), "{end:?}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d6b_a_claim_that_nobody_waits_for_takes_nothing() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("jobs.db");
    let store = Arc::new(SqliteStore::open(&file).expect("a store"));
    let client = Client::with_store(Arc::clone(&store) as Arc<dyn Store>);
    let id = client.enqueue(NewJob::new("test", Payload::default()).max_attempts(1)).await.expect("enqueue").id;
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 1);
    let other = rusqlite::Connection::open(&file).expect("the file");
    other.busy_timeout(Duration::from_secs(5)).expect("a setting");
    other.execute_batch("begin immediate").expect("the lock");
    let unheard = tokio::time::timeout(Duration::from_millis(100), store.claim(&request)).await;
    assert!(unheard.is_err(), "the lock holds the claim up");
    other.execute_batch("rollback").expect("the end of the lock");
    let claims = store.claim(&request).await.expect("claim").jobs;
    let found: Vec<_> = claims.iter().map(|claimed| (claimed.job.id, claimed.job.attempt)).collect();
    assert_eq!(found, [(id, 1)]);
}
