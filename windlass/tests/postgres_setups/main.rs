//! PostgreSQL as people set it up: with TLS, behind a pooler, with roles that may little, after much churn.
//!
//! Each test has a schema of its own on the server that `WINDLASS_TEST_POSTGRES` names, or a private server.

mod damage;
mod health;
mod lists;
mod plans;
mod pooler;
mod pools;
mod roles;
mod server;
mod tls;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;
use windlass::store::conformance::{Case, Subject, cases};
use windlass::store::{PostgresOptions, PostgresStore};
use windlass::{Client, Context, Failure, Job, State, Worker};

/// Long enough for anything that happens at once, on a busy machine too.
const SOON: Duration = Duration::from_secs(30);

fn url() -> String {
    std::env::var("WINDLASS_TEST_POSTGRES").expect(
        "WINDLASS_TEST_POSTGRES must name a PostgreSQL database, such as postgres://postgres@127.0.0.1:5432/postgres; \
         scripts/test starts one",
    )
}

fn new_schema() -> String {
    format!("setup_{}", uuid::Uuid::new_v4().simple())
}

fn options(url: &str, schema: &str) -> PostgresOptions {
    PostgresOptions::new(url).and_then(|options| options.schema(schema)).expect("valid options")
}

async fn open(options: PostgresOptions) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::with(options).await.expect("the store opens"))
}

/// A connection as the server's owner.
async fn admin(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the test database");
    tokio::spawn(connection);
    client
}

/// The same URL for another role.
fn as_role(url: &str, role: &str) -> String {
    let (_, rest) = url.split_once('@').expect("a URL with a user");
    format!("postgres://{role}@{rest}")
}

/// A job that fails once, then spawns a child and completes.
#[derive(Serialize, Deserialize)]
struct Visit {
    children: u32,
}

impl Job for Visit {
    const TYPE: &'static str = "visit";
}

async fn visit(job: Visit, cx: Context) -> Result<u32, Failure> {
    cx.progress(0.5, "half").await?;
    cx.log("here").await?;
    if cx.attempt() == 1 {
        cx.save_checkpoint(&job.children).await?;
        return Err(Failure::temporary("not yet").retry_after(Duration::from_millis(1)));
    }
    assert_eq!(cx.checkpoint::<u32>()?, Some(job.children));
    for _ in 0..job.children {
        cx.spawn(Visit { children: 0 })?;
    }
    Ok(job.children)
}

/// Everything an application does in its day, through a running worker.
async fn work_through(client: &Client) {
    let worker = Worker::new(client).queue("default", 4).poll_interval(Duration::from_millis(50));
    let running = worker.handle(visit).start().await.expect("start");
    let first = client.enqueue(Visit { children: 3 }).idempotency_key("first").await.expect("enqueue");
    let again = client.enqueue(Visit { children: 3 }).idempotency_key("first").await.expect("enqueue");
    assert!(again.existing && again.id == first.id);
    let after = client.enqueue(Visit { children: 0 }).after([first.id]).await.expect("enqueue");
    let delayed = client.enqueue(Visit { children: 0 }).delay(Duration::from_millis(50)).await.expect("enqueue");
    for id in [first.id, after.id, delayed.id] {
        let ended = tokio::time::timeout(SOON, client.wait(id)).await.expect("it ends soon").expect("a job");
        assert_eq!((ended.state, ended.attempt), (State::Completed, 2), "{:?}", ended.failure);
    }
    let all = async {
        while client.totals().await.expect("totals").states[State::Completed.number() as usize] < 6 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, all).await.expect("the children end soon");
    assert_eq!(client.attempts(first.id).await.expect("attempts").len(), 2);
    assert_eq!(client.logs(first.id).await.expect("logs").len(), 2);
    running.stop().await;
    assert_eq!(client.store().check().await.expect("check"), Vec::<String>::new());
}

/// Holds a store to the wanted part of the conformance suite, and says how much that was.
async fn hold(subject: impl Subject + 'static, wanted: fn(&Case) -> bool) -> usize {
    let subject: Arc<dyn Subject> = Arc::new(subject);
    let todo = Arc::new(Mutex::new(cases().into_iter().filter(wanted).collect::<Vec<_>>()));
    let count = todo.lock().expect("no panic").len();
    let mut runners = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (subject, todo) = (Arc::clone(&subject), Arc::clone(&todo));
        runners.spawn(async move {
            let mut broken = Vec::new();
            loop {
                let Some(case) = todo.lock().expect("no panic").pop() else { return broken };
                let (name, subject) = (case.name, Arc::clone(&subject));
                // A task of its own, so that a panic ends only that.
                if tokio::spawn(async move { case.run(subject.as_ref()).await }).await.is_err() {
                    broken.push(name);
                }
            }
        });
    }
    let broken: Vec<&str> = runners.join_all().await.into_iter().flatten().collect();
    assert!(broken.is_empty(), "{} of {count} cases are broken: {broken:?}", broken.len());
    count
}
