//! In the user's own transaction (section 12 of the contract): what is enqueued or settled here commits or vanishes with
//! it.
//!
//! ```no_run
//! # async fn order(store: windlass::store::PostgresStore, mut client: tokio_postgres::Client,
//! #     submission: windlass::workflow::Submission) -> Result<(), Box<dyn std::error::Error>> {
//! let tx = client.transaction().await?;
//! tx.execute("insert into orders (id) values ($1)", &[&42]).await?;
//! store.enqueue_in_tx(&tx, &submission).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! With any other driver or language, and from psql, call the function that the schema brings along:
//! `select windlass.enqueue('mail.welcome', '{"user": 7}', queue => 'mail', delay => '5 minutes')`.
//!
//! Jobs enqueued so are found by polling, or by a wake-up if somebody calls [`PostgresStore::wake`] after the commit.

use std::sync::Arc;

use tokio_postgres::Transaction;

use super::fault::Fault;
use super::insert::{Columns, is_plain, resting_state};
use super::keyed::is_keyed;
use super::link::Link;
use super::unit::Unit;
use super::{PostgresStore, rows};
use crate::error::{Error, Result};
use crate::job::{JobId, QueueName, Settlement};
use crate::store::answer::{Inserted, InsertedJob, Settled, Wake};
use crate::workflow::Submission;

impl PostgresStore {
    /// Enqueues in a transaction of the same database: the jobs exist once it commits, and only then.
    ///
    /// A submission with dependencies or a workflow makes others of its kind, and ends that have consequences, wait
    /// until the transaction is over: keep it short. A key that another open transaction took makes this one wait for
    /// it.
    pub async fn enqueue_in_tx(&self, transaction: &Transaction<'_>, submission: &Submission) -> Result<Inserted> {
        let answer = self.enqueue_with(transaction, submission).await;
        answer.map_err(|fault| fault.into_error("enqueue in a transaction"))
    }

    /// Settles in a transaction of the same database, fenced: business rows and completion commit together (rule X2).
    ///
    /// Anything but [`Settled::Applied`] means that nothing was written for the job; roll the transaction back.
    pub async fn settle_in_tx(&self, transaction: &Transaction<'_>, settlement: &Settlement) -> Result<Settled> {
        let answer = self.settle_with(transaction, settlement).await;
        answer.map_err(|fault| fault.into_error("settle in a transaction"))
    }

    /// Tells waiting workers, here and elsewhere, that a queue may have a job: for after a commit.
    pub fn wake(&self, queue: &QueueName) {
        self.inner.hint(vec![Wake::Scheduled(queue.clone())]);
    }

    async fn enqueue_with(&self, transaction: &Transaction<'_>, submission: &Submission) -> Result<Inserted, Fault> {
        let inner = &self.inner;
        let users = Link::users(transaction, Arc::clone(&inner.schema));
        if is_plain(submission) || is_keyed(submission) {
            // Lanes are made apart: whether this transaction commits is not known.
            let names = submission.jobs().iter().map(|spec| (&spec.queue, &spec.job_type));
            inner.lanes.ensure(&inner.link().await?, names).await?;
        }
        if is_plain(submission) {
            let columns = Columns::of(submission.jobs().iter(), inner)?;
            let rows = users.query(include_str!("sql/insert.sql"), &columns.with(&inner.given_time())).await?;
            let Some(now) = rows.first().map(|row| rows::time(row.get(0))) else {
                return Err(Error::invalid("run_at", "lies beyond the job's lifetime").into());
            };
            let jobs = submission.jobs().iter().zip(&columns.ids).map(|(spec, id)| InsertedJob {
                id: JobId::from_uuid(*id),
                existing: false,
                state: Some(resting_state(spec, now)),
                matches: true,
            });
            return Ok(Inserted { jobs: jobs.collect(), workflow: None });
        }
        if is_keyed(submission) {
            users.batch("savepoint windlass_keys").await?;
            let answer = inner.insert_keyed(&users, submission).await?;
            if let Some((inserted, _)) = answer {
                users.batch("release savepoint windlass_keys").await?;
                return Ok(inserted);
            }
            users.batch("rollback to savepoint windlass_keys").await?;
        }
        let mut unit = Unit::begin(users, Arc::clone(inner)).await?;
        let answer = unit.insert(submission).await?;
        unit.leave().await?;
        Ok(answer)
    }

    async fn settle_with(&self, transaction: &Transaction<'_>, settlement: &Settlement) -> Result<Settled, Fault> {
        let inner = &self.inner;
        let users = Link::users(transaction, Arc::clone(&inner.schema));
        let (mut answers, _) = inner.settle_on(&users, std::slice::from_ref(settlement)).await?;
        if let Some(Some(answer)) = answers.pop() {
            return Ok(answer);
        }
        let mut unit = Unit::begin(users, Arc::clone(inner)).await?;
        let mut answers = unit.settle(&[settlement]).await?;
        unit.leave().await?;
        Ok(answers.remove(0))
    }
}
