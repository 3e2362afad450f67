//! The application's own connections: a pool of deadpool-postgres, or of sqlx.
//!
//! A connection is lent for one call, and nothing is set for its session: what the store's own connections are told once is told
//! in each transaction, as behind a transaction pooler.

use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::{Object, Pool};

use super::driver_row::Row;
use super::fault::Fault;
use super::link::{Parameter, UsersTransaction};

/// A pool that a store can take its connections from: of deadpool-postgres, or of sqlx with its feature.
///
/// Implemented here and nowhere else.
pub trait PostgresPool: private::Sealed {
    /// The pool as the store uses it.
    #[doc(hidden)]
    fn lent(self) -> LentPool;
}

pub(super) mod private {
    /// Keeps others from implementing what only drivers known here can keep.
    pub trait Sealed {}
}

/// A pool that is lent to a store.
#[derive(Clone)]
pub struct LentPool(pub(super) Arc<dyn Lender>);

impl private::Sealed for Pool {}

impl PostgresPool for Pool {
    fn lent(self) -> LentPool {
        LentPool(Arc::new(self))
    }
}

/// Where connections are lent.
#[async_trait]
pub(super) trait Lender: Send + Sync {
    async fn lend(&self) -> Result<Box<dyn Lent>, Fault>;
}

/// A connection that is lent.
pub(super) trait Lent: UsersTransaction {
    /// Closes it instead of giving it back: it is in the middle of a transaction.
    fn give_up(self: Box<Self>);
}

#[async_trait]
impl Lender for Pool {
    async fn lend(&self) -> Result<Box<dyn Lent>, Fault> {
        Ok(Box::new(Borrowed(self.get().await?)))
    }
}

/// A connection of a pool of deadpool-postgres.
struct Borrowed(Object);

#[async_trait]
impl UsersTransaction for Borrowed {
    async fn query(&self, text: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Fault> {
        let statement = self.0.prepare_cached(text).await?;
        Ok(self.0.query(&statement, parameters).await?.into_iter().map(Row::Own).collect())
    }

    async fn execute(&self, text: &str, parameters: &[Parameter<'_>]) -> Result<u64, Fault> {
        let statement = self.0.prepare_cached(text).await?;
        Ok(self.0.execute(&statement, parameters).await?)
    }

    async fn batch(&self, statements: &str) -> Result<(), Fault> {
        Ok(self.0.batch_execute(statements).await?)
    }
}

impl Lent for Borrowed {
    fn give_up(self: Box<Self>) {
        drop(Object::take(self.0));
    }
}
