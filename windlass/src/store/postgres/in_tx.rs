//! In the user's own transaction (section 12 of the contract): what is enqueued or settled here commits or vanishes with
//! it.
//!
//! ```no_run
//! # async fn order(client: windlass::Client, mut database: tokio_postgres::Client, job: windlass::NewJob)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! let tx = database.transaction().await?;
//! tx.execute("insert into orders (id) values ($1)", &[&42]).await?;
//! client.enqueue(job).in_tx(&tx).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The same with sqlx, behind the features `sqlx-0_8` and `sqlx-0_9`: `in_tx(&mut tx)`. With any other driver or language,
//! and from psql, call the function that the schema brings along:
//! `select windlass.enqueue('mail.welcome', '{"user": 7}', queue => 'mail', delay => '5 minutes')`.
//!
//! Workers are woken by a notification that is part of the transaction, unless the store was opened
//! [without notifications](super::PostgresOptions::without_notifications). What the SQL function enqueues is found by
//! polling, or at once if the program calls [`PostgresStore::wake`] after the commit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::fault::Fault;
use super::insert::{Columns, is_plain, resting_state};
use super::insert_keyed::{Keyed, TAKE_OVERS_MAX, is_keyed};
use super::link::{Link, UsersTransaction};
use super::transaction::Transaction;
use super::turns::Caller;
use super::{PostgresStore, listen, notify};
use crate::error::{Error, Result};
use crate::job::{QueueName, Settlement, State};
use crate::store::Store;
use crate::store::answer::{Inserted, InsertedJob, Settled, Wake};
use crate::store::in_tx::{InTx, store_of};
use crate::workflow::Submission;

impl PostgresStore {
    /// Enqueues in a transaction of the same database: the jobs exist once it commits, and only then.
    ///
    /// A submission with dependencies, a workflow or a key that replaces makes others of its kind, and ends that have
    /// consequences, wait until the transaction is over: keep it short. A key that another open transaction took makes
    /// this one wait for it.
    pub async fn enqueue_in_tx(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        submission: &Submission,
    ) -> Result<Inserted> {
        self.enqueue_in(transaction, submission).await
    }

    /// Settles in a transaction of the same database, fenced: business rows and completion commit together (rule X2).
    ///
    /// Anything but [`Settled::Applied`] means that nothing was written for the job; roll the transaction back.
    pub async fn settle_in_tx(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        settlement: &Settlement,
    ) -> Result<Settled> {
        self.settle_in(transaction, settlement).await
    }

    /// Tells waiting workers, here and elsewhere, that a queue may have a job: for after a commit.
    pub fn wake(&self, queue: &QueueName) {
        self.inner.hint(vec![Wake::Scheduled(queue.clone())]);
    }

    pub(super) async fn enqueue_in(
        &self,
        transaction: &dyn UsersTransaction,
        submission: &Submission,
    ) -> Result<Inserted> {
        let answer = self.enqueue_with(transaction, submission).await;
        answer.map_err(|fault| fault.into_error("enqueue in a transaction"))
    }

    pub(super) async fn settle_in(
        &self,
        transaction: &dyn UsersTransaction,
        settlement: &Settlement,
    ) -> Result<Settled> {
        let answer = self.settle_with(transaction, settlement).await;
        answer.map_err(|fault| fault.into_error("settle in a transaction"))
    }

    async fn enqueue_with(
        &self,
        transaction: &dyn UsersTransaction,
        submission: &Submission,
    ) -> Result<Inserted, Fault> {
        let inner = &self.inner;
        let mut users = Link::users(transaction, Arc::clone(&inner.schema));
        users.correct_clock(inner.store_clock.is_skewed());
        let names = || submission.jobs().iter().map(|spec| (&spec.queue, &spec.job_type));
        // The application's pool may have nothing left but the connection of this very transaction.
        let lends = inner.lending.is_some();
        let mut is_quick = match is_plain(submission) || is_keyed(submission) {
            true if lends => inner.lanes.find(&users, names()).await?,
            true => {
                // Lanes are made apart: whether this transaction commits is not known.
                inner.lanes.ensure(&inner.link(Caller::Producer).await?, names()).await?;
                true
            }
            false => false,
        };
        if is_quick && is_plain(submission) {
            let mut inserted = self.enqueue_plain(&users, submission).await?;
            if inserted.is_none() {
                // A lane that was remembered may not exist any more.
                inner.lanes.forget();
                match lends {
                    true => is_quick = inner.lanes.find(&users, names()).await?,
                    false => inner.lanes.ensure(&inner.link(Caller::Producer).await?, names()).await?,
                }
                if is_quick {
                    inserted = self.enqueue_plain(&users, submission).await?;
                }
            }
            if is_quick {
                let refused = || Error::invalid("run_at", "lies beyond the job's lifetime");
                let inserted = inserted.ok_or_else(refused)?;
                self.notify_at_commit(&users, scheduled(submission, &inserted)).await?;
                return Ok(inserted);
            }
        }
        if is_quick && is_keyed(submission) {
            let mut over = Vec::new();
            for _ in 0..TAKE_OVERS_MAX {
                users.batch("savepoint windlass_keys").await?;
                let answer = inner.insert_keyed(&users, submission, &over).await?;
                if let Keyed::Stored(inserted, hints) = answer {
                    users.batch("release savepoint windlass_keys").await?;
                    self.notify_at_commit(&users, hints).await?;
                    return Ok(inserted);
                }
                users.batch("rollback to savepoint windlass_keys").await?;
                match answer {
                    Keyed::Over(more) => over.extend(more),
                    Keyed::Stored(..) | Keyed::Unclear => break,
                }
            }
            inner.lanes.forget();
        }
        let mut tx = Transaction::begin(users, Arc::clone(inner)).await?;
        let answer = tx.insert(submission).await?;
        let (users, hints) = tx.hand_over();
        self.notify_at_commit(&users, hints).await?;
        Ok(answer)
    }

    /// Stores what one statement can; `None` when it refuses.
    async fn enqueue_plain(&self, users: &Link<'_>, submission: &Submission) -> Result<Option<Inserted>, Fault> {
        let columns = Columns::of(submission.jobs().iter(), &self.inner)?;
        let rows = columns.store(users, &self.inner.given_time()).await?;
        let Some((now, ids)) = columns.stored(&rows)? else { return Ok(None) };
        let jobs = submission.jobs().iter().zip(ids).map(|(spec, id)| InsertedJob {
            id,
            existing: false,
            state: Some(resting_state(spec, now)),
            matches: true,
        });
        Ok(Some(Inserted { jobs: jobs.collect(), workflow: None }))
    }

    async fn settle_with(&self, transaction: &dyn UsersTransaction, settlement: &Settlement) -> Result<Settled, Fault> {
        let inner = &self.inner;
        let mut users = Link::users(transaction, Arc::clone(&inner.schema));
        users.correct_clock(inner.store_clock.is_skewed());
        let (mut answers, hints) =
            inner.settle_on(&users, std::slice::from_ref(settlement), &AtomicBool::new(false)).await?;
        if let Some(Some(answer)) = answers.pop() {
            self.notify_at_commit(&users, hints).await?;
            return Ok(answer);
        }
        let mut tx = Transaction::begin(users, Arc::clone(inner)).await?;
        let mut answers = tx.settle(&[settlement]).await?;
        let (users, hints) = tx.hand_over();
        self.notify_at_commit(&users, hints).await?;
        Ok(answers.remove(0))
    }

    /// Lets the commit notify all processes that listen, this one included. An ordinary enqueue notifies after its commit,
    /// which is cheaper, but when that is only the user knows.
    async fn notify_at_commit(&self, users: &Link<'_>, hints: Vec<Wake>) -> Result<(), Fault> {
        if self.inner.notifier.is_none() || hints.is_empty() {
            return Ok(());
        }
        let (channel, text) = (listen::channel(&self.inner.schema), notify::encode_unsigned(hints));
        users.query(include_str!("sql/notify.sql"), &[&channel, &text]).await?;
        Ok(())
    }
}

/// What the jobs of a submission that can run at once are worth hinting at.
fn scheduled(submission: &Submission, inserted: &Inserted) -> Vec<Wake> {
    let mut hints = Vec::new();
    for (spec, job) in submission.jobs().iter().zip(&inserted.jobs) {
        let hint = Wake::Scheduled(spec.queue.clone());
        if job.state == Some(State::Scheduled) && !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints
}

/// What a driver that is awaited gives.
pub(super) type Awaited<'t, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 't>>;

impl<'t> InTx<'t> for &'t tokio_postgres::Transaction<'_> {
    type Answer<T: Send + 't> = Awaited<'t, T>;

    fn enqueue<T: Send + 't>(
        self,
        store: Arc<dyn Store>,
        submission: Result<Submission>,
        then: impl FnOnce(Result<Inserted>) -> Result<T> + Send + 't,
    ) -> Awaited<'t, T> {
        Box::pin(async move { then(enqueue_on(&store, self, submission).await) })
    }

    fn settle<T: Send + 't>(
        self,
        store: Arc<dyn Store>,
        settlement: Result<Settlement>,
        then: impl FnOnce(Result<Settled>) -> Result<T> + Send + 't,
    ) -> Awaited<'t, T> {
        Box::pin(async move { then(settle_on(&store, self, settlement).await) })
    }
}

/// Enqueues in a transaction of any driver.
pub(super) async fn enqueue_on(
    store: &Arc<dyn Store>,
    transaction: &dyn UsersTransaction,
    submission: Result<Submission>,
) -> Result<Inserted> {
    let store: &PostgresStore = store_of(store, "PostgreSQL")?;
    store.enqueue_in(transaction, &submission?).await
}

/// Settles in a transaction of any driver.
pub(super) async fn settle_on(
    store: &Arc<dyn Store>,
    transaction: &dyn UsersTransaction,
    settlement: Result<Settlement>,
) -> Result<Settled> {
    let store: &PostgresStore = store_of(store, "PostgreSQL")?;
    store.settle_in(transaction, &settlement?).await
}
