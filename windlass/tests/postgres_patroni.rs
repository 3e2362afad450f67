//! The example in deploy/patroni, started: a cluster under Patroni with etcd, whose failover loses nothing that was acknowledged.
//!
//! `scripts/patroni install` fetches both. Where they are missing, the test says loudly that it is skipped.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass::job::Limits;
use windlass::store::{PostgresStore, Store};
use windlass::workflow::Submission;
use windlass::{JobId, NewJob, Payload, Policies};

/// A cluster in a folder that goes with it.
struct Cluster {
    folder: tempfile::TempDir,
}

impl Cluster {
    fn script(&self, what: &str, more: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/patroni");
        let output = Command::new(script).arg(what).arg(self.folder.path()).args(more).output();
        let output = output.expect("scripts/patroni runs");
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.script("stop", &[]);
    }
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Enqueues until told to stop; gives what was acknowledged.
async fn produce(store: Arc<PostgresStore>, stop: Arc<AtomicBool>) -> Vec<JobId> {
    let spec = NewJob::new("test", Payload::default()).check(&Limits::default(), &Policies::default());
    let submission = Submission::new(vec![spec.expect("valid")]).expect("valid");
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if let Ok(inserted) = store.insert(submission.clone()).await {
            acknowledged.push(inserted.jobs[0].id);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_a_failover_of_the_example_loses_nothing() {
    if !is_installed("patroni") || !is_installed("etcd") {
        println!("SKIPPED: Patroni or etcd is missing (scripts/patroni install)");
        return;
    }
    let folder = tempfile::Builder::new().prefix("windlass-patroni-").tempdir_in("/tmp").expect("a folder");
    let cluster = Cluster { folder };
    let url = cluster.script("start", &[]);
    let store = Arc::new(PostgresStore::open(&url).await.expect("the store opens"));
    assert_eq!(store.durability().await.expect("durability").replicated, Some(true), "as the example promises");
    let stop = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..4).map(|_| tokio::spawn(produce(Arc::clone(&store), Arc::clone(&stop)))).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let said = tokio::task::spawn_blocking(move || {
        let said = cluster.script("fail", &["kill"]);
        (cluster, said)
    });
    let (cluster, said) = said.await.expect("no panic");
    assert!(said.ends_with("promoted"), "{said}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for producer in producers {
        acknowledged.extend(producer.await.expect("no panic"));
    }
    println!("{said}: {} jobs were acknowledged", acknowledged.len());
    assert!(acknowledged.len() > 50, "calls got through before and after");
    for ids in acknowledged.chunks(1000) {
        let found = store.find(ids).await.expect("find");
        assert_eq!(found.iter().filter(|job| job.is_none()).count(), 0, "acknowledged jobs were lost");
    }
    assert_eq!(store.place().map(|place| place.ends_with("timeline 2")), Some(true), "{:?}", store.place());
    assert_eq!(store.check().await.expect("check"), Vec::<String>::new());
    drop(cluster);
}
