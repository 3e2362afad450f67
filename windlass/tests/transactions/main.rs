//! Jobs in the user's own transaction through the client and the handler's context (rules X1 and X2), with every driver.
//!
//! A driver says how it begins, commits and rolls back; the stories are the same for all.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9"))]
mod sqlx;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::job::Outcome;
use windlass::store::InTx;
use windlass::{Client, Context, Failure, Job, JobId, RetryPolicy, State, Worker, Workflow};

const SOON: Duration = Duration::from_secs(20);

/// What the handler does with its transaction.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub(crate) enum Step {
    Commit,
    /// Rolls back and says that it succeeded, the first time; then commits.
    ForgetToCommit,
    /// Rolls back and fails for good.
    RollBackAndFail,
    /// Rolls back, and then commits in another transaction of the same run.
    TryAgain,
}

impl Job for Step {
    const TYPE: &'static str = "step";
}

/// A user of a database, with a table of their own.
pub(crate) trait Driver: Send + Sync + 'static {
    /// Writes a row and enqueues with it: a job, a batch of two, a workflow of two.
    fn enqueue(&self, client: &Client, commit: bool) -> impl Future<Output = Vec<JobId>> + Send;

    /// Writes a row and completes the job with it.
    fn complete(&self, cx: &Context<Arc<Self>>, commit: bool) -> impl Future<Output = Result<(), Failure>> + Send
    where
        Self: Sized;

    /// How many rows there are.
    fn rows(&self) -> impl Future<Output = i64> + Send;
}

pub(crate) fn flow() -> Workflow {
    let mut flow = Workflow::new("in a transaction");
    let first = flow.add(Step::Commit);
    flow.after([first], Step::Commit);
    flow
}

/// The five jobs that [`Driver::enqueue`] puts in.
macro_rules! enqueue_five {
    ($client:expr, $tx:expr $(, $wait:ident)?) => {{
        let one = $client.enqueue(windlass_step()).idempotency_key("once").in_tx($tx)$(.$wait)?.expect("one");
        let two = $client.enqueue_all([windlass_step(), windlass_step()]).in_tx($tx)$(.$wait)?.expect("two");
        let flow = $client.start(crate::flow()).in_tx($tx)$(.$wait)?.expect("a workflow");
        let jobs = std::iter::once(one).chain(two).chain(flow.jobs);
        jobs.map(|job| job.id).collect::<Vec<_>>()
    }};
}
pub(crate) use enqueue_five;

pub(crate) fn windlass_step() -> Step {
    Step::Commit
}

async fn step<D: Driver>(job: Step, cx: Context<Arc<D>>) -> Result<(), Failure> {
    match job {
        Step::Commit => cx.state.complete(&cx, true).await,
        Step::ForgetToCommit => cx.state.complete(&cx, cx.attempt() > 1).await,
        Step::RollBackAndFail => {
            cx.state.complete(&cx, false).await?;
            Err(Failure::permanent("no", "not today"))
        }
        Step::TryAgain => {
            cx.state.complete(&cx, false).await?;
            cx.state.complete(&cx, true).await
        }
    }
}

pub(crate) async fn x1_jobs_commit_or_vanish_with_the_transaction<D: Driver>(driver: D, client: Client) {
    let gone = driver.enqueue(&client, false).await;
    assert_eq!(gone.len(), 5);
    for id in gone {
        assert!(client.find(id).await.expect("find").is_none(), "rolled back");
    }
    assert_eq!((driver.rows().await, client.totals().await.expect("totals").accepted), (0, 0));
    let made = driver.enqueue(&client, true).await;
    assert_eq!((driver.rows().await, client.totals().await.expect("totals").accepted), (1, 5));
    let again = driver.enqueue(&client, true).await;
    assert_eq!(again[0], made[0], "the same key");
    assert_eq!((driver.rows().await, client.totals().await.expect("totals").accepted), (2, 9));
    let mut states = Vec::new();
    for id in made {
        states.push(client.job(id).await.expect("committed").state);
    }
    use State::{Pending, Scheduled};
    assert_eq!(states, [Scheduled, Scheduled, Scheduled, Scheduled, Pending]);
    assert_eq!(client.store().check().await.expect("check"), Vec::<String>::new());
}

pub(crate) async fn x2_a_completion_commits_or_vanishes_with_the_transaction<D: Driver>(driver: D, client: Client) {
    let settled = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&settled);
    let driver = Arc::new(driver);
    let worker = Worker::new(&client)
        .with_state(Arc::clone(&driver))
        .queue("default", 4)
        .poll_interval(Duration::from_millis(20))
        .on_settled(move |_, outcome, _| {
            heard.fetch_add(usize::from(outcome == Outcome::Completed), Ordering::SeqCst);
        })
        .handle(step::<D>);
    let running = worker.start().await.expect("start");
    let enqueue = async |step: Step| {
        let retry = RetryPolicy::constant(Duration::from_millis(10), 3);
        client.enqueue(step).retry(retry).await.expect("enqueue").id
    };
    let ended = async |id: JobId| {
        let waited = tokio::time::timeout(SOON, client.wait(id)).await.expect("it ends soon");
        let job = waited.expect("a job");
        let failures: Vec<_> =
            client.attempts(id).await.expect("attempts").into_iter().map(|one| one.failure).collect();
        let codes: Vec<_> = failures.iter().map(|failure| failure.as_ref()?.code.clone()).collect();
        (job.state, codes)
    };
    let first = enqueue(Step::Commit).await;
    let dependent = client.enqueue(Step::Commit).after([first]).await.expect("enqueue").id;
    assert_eq!(ended(first).await, (State::Completed, vec![None]));
    assert_eq!(ended(dependent).await, (State::Completed, vec![None]), "released by the commit");
    let forgot = ended(enqueue(Step::ForgetToCommit).await).await;
    assert_eq!(forgot, (State::Completed, vec![Some("not_committed".to_owned()), None]));
    let failed = ended(enqueue(Step::RollBackAndFail).await).await;
    assert_eq!(failed, (State::Failed, vec![Some("no".to_owned())]));
    assert_eq!(ended(enqueue(Step::TryAgain).await).await, (State::Completed, vec![None]));
    let stopped = running.stop().await;
    assert_eq!((stopped.settled, stopped.dropped, stopped.abandoned), (6, 0, 0), "each attempt is settled once");
    assert_eq!(settled.load(Ordering::SeqCst), 4, "the hook heard of every completion");
    assert_eq!(driver.rows().await, 4, "a row for each completion, and no other");
    assert_eq!(client.store().check().await.expect("check"), Vec::<String>::new());
}

/// A transaction of another kind than the store is told so, and nothing is written.
pub(crate) fn is_refused<T: std::fmt::Debug>(answer: windlass::Result<T>) {
    let refused = answer.expect_err("a store of another kind");
    assert_eq!(refused.name(), "InvalidArgument", "{refused}");
    assert!(refused.to_string().contains("memory"), "{refused}");
}

/// Any transaction will do here: the bound is the whole interface.
#[allow(dead_code, reason = "it need only compile")]
fn in_any_transaction<'t, X: InTx<'t>>(client: &Client, tx: X) -> X::Answer<windlass::store::InsertedJob> {
    client.enqueue(Step::Commit).in_tx(tx)
}
