//! Stores to move from and to, and a way to move without anybody looking.

use std::sync::Arc;

use uuid::Uuid;
use windlass::job::{JobSpec, Limits, WorkerId};
use windlass::store::moving::{self, Finished, Move, Progress, Watcher};
use windlass::store::{self, ClaimRequest, Claimed, Store};
use windlass::workflow::Submission;
use windlass::{NewJob, Payload, Policies, QueueName};

/// Places of two kinds of stores, which go with it.
pub(crate) struct Places {
    folder: tempfile::TempDir,
    url: String,
}

/// A kind of store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// Every pair of kinds.
pub(crate) const PAIRS: [(Kind, Kind); 4] = [
    (Kind::Sqlite, Kind::Postgres),
    (Kind::Postgres, Kind::Sqlite),
    (Kind::Sqlite, Kind::Sqlite),
    (Kind::Postgres, Kind::Postgres),
];

impl Places {
    pub(crate) fn new() -> Self {
        let url = std::env::var("WINDLASS_TEST_POSTGRES").expect("WINDLASS_TEST_POSTGRES must name a database");
        Places { folder: tempfile::tempdir().expect("a folder"), url }
    }

    /// The URL of a store that does not exist yet.
    pub(crate) fn fresh(&self, kind: Kind) -> String {
        let name = Uuid::new_v4().simple();
        match kind {
            Kind::Sqlite => format!("sqlite:{}/{name}.db", self.folder.path().display()),
            Kind::Postgres => format!("{}?schema=move_{name}", self.url),
        }
    }
}

pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    store::open(url).await.expect("a store")
}

/// Nobody looks, and nobody stops it.
pub(crate) struct Nobody;

impl Watcher for Nobody {
    fn told(&self, _: &Progress) {}

    fn stops(&self) -> bool {
        false
    }
}

/// Moves from one URL to another, from the beginning to the end.
pub(crate) async fn moved(from: &str, to: &str) -> Finished {
    let (source, target) = (open(from).await, open(to).await);
    moving::begin(&*source, &*target, (from, to)).await.expect("it begins");
    drop(target);
    let target = open(to).await;
    let finished = Move::resume(source, target).await.expect("it was begun").run(&Nobody).await;
    finished.expect("it goes on").expect("nobody stopped it")
}

pub(crate) fn checked(job: NewJob) -> JobSpec {
    job.check(&Limits::default(), &Policies::default()).expect("a valid job")
}

pub(crate) fn job(name: &str) -> NewJob {
    NewJob::new("test", Payload::json(&name).expect("JSON")).queue(name)
}

pub(crate) fn batch(jobs: Vec<NewJob>) -> Submission {
    Submission::new(jobs.into_iter().map(checked).collect()).expect("a valid batch")
}

pub(crate) async fn claim(store: &dyn Store, queue: &str, limit: usize) -> Vec<Claimed> {
    let worker = WorkerId::new("w").expect("a name");
    let queue = QueueName::new(queue).expect("a name");
    store.claim(&ClaimRequest::new(worker, queue, limit)).await.expect("claim").jobs
}
