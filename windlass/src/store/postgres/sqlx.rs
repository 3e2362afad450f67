//! sqlx's transactions (features `sqlx-0_8` and `sqlx-0_9`), of PostgreSQL:
//! `client.enqueue(job).in_tx(&mut tx).await` and `cx.complete_in_tx(&mut tx, &result).await`; and its pools, whose
//! connections a store may use as its own.
//!
//! Both drivers use the server's binary format. So the store's own driver writes the parameters and reads the rows, the
//! statements stay the same, and sqlx only carries the bytes on its connection.

use std::ops::DerefMut;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::BytesMut;
use tokio::sync::Mutex;
use tokio_postgres::types::{IsNull, Type};

use super::driver_row::{Received, Row};
use super::fault::Fault;
use super::in_tx::{Awaited, enqueue_on, settle_on};
use super::lent::{ApplicationPool, Lender, LentConnection, no_connection};
use super::link::{Parameter, UsersTransaction};
use crate::error::Result;
use crate::job::Settlement;
use crate::store::Store;
use crate::store::answer::{Inserted, Settled};
use crate::store::in_tx::InTx;
use crate::workflow::Submission;

/// A parameter as the server takes it; `None` is null.
fn encoded(parameter: Parameter<'_>, oid: u32) -> Result<Option<Vec<u8>>, Fault> {
    let mut bytes = BytesMut::new();
    let of = Type::from_oid(oid).ok_or_else(|| refused(format!("a parameter of the unknown type {oid}")))?;
    match parameter.to_sql_checked(&of, &mut bytes) {
        Ok(IsNull::Yes) => Ok(None),
        Ok(IsNull::No) => Ok(Some(bytes.to_vec())),
        Err(source) => Err(refused(source.to_string())),
    }
}

fn refused(problem: String) -> Fault {
    Fault::Users { code: None, source: problem.clone().into(), problem }
}

/// An adapter for one version of sqlx; `$text` turns a statement into what that version takes for one.
macro_rules! adapter {
    ($sqlx:ident, $text:expr) => {
        use $sqlx::encode::IsNull as Null;
        use $sqlx::error::BoxDynError;
        use $sqlx::pool::PoolConnection;
        use $sqlx::postgres::{PgArgumentBuffer, PgConnection, PgPool, PgRow, PgTypeInfo, PgValueRef};
        use $sqlx::{Column, Either, Encode, Executor, Postgres, Row as _, Statement, Transaction, TypeInfo, ValueRef};

        use super::*;

        /// A parameter that is encoded already.
        struct Encoded(PgTypeInfo, Option<Vec<u8>>);

        impl $sqlx::Type<Postgres> for Encoded {
            fn type_info() -> PgTypeInfo {
                <str as $sqlx::Type<Postgres>>::type_info()
            }
        }

        impl Encode<'_, Postgres> for Encoded {
            fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<Null, BoxDynError> {
                let Some(bytes) = &self.1 else { return Ok(Null::Yes) };
                buffer.extend_from_slice(bytes);
                Ok(Null::No)
            }

            fn produces(&self) -> Option<PgTypeInfo> {
                Some(self.0.clone())
            }
        }

        fn fault(error: $sqlx::Error) -> Fault {
            let said = error.as_database_error();
            let code = said.and_then(|said| said.code()).map(|code| code.into_owned());
            let problem = said.map_or_else(|| error.to_string(), |said| said.message().to_owned());
            Fault::Users { code, problem, source: error.into() }
        }

        fn oid(of: &PgTypeInfo) -> Result<u32, Fault> {
            of.oid().map(|oid| oid.0).ok_or_else(|| refused(format!("the type {} has no number", of.name())))
        }

        fn received(rows: &[PgRow]) -> Result<Vec<Row>, Fault> {
            let Some(first) = rows.first() else { return Ok(Vec::new()) };
            let column = |column: &$sqlx::postgres::PgColumn| {
                let oid = oid(column.type_info())?;
                let of = Type::from_oid(oid).ok_or_else(|| refused(format!("a column of the unknown type {oid}")))?;
                Ok((column.name().to_owned(), of))
            };
            let columns: Arc<[(String, Type)]> = first.columns().iter().map(column).collect::<Result<_, Fault>>()?;
            let value = |value: PgValueRef<'_>| match value.is_null() {
                true => Ok(None),
                false => value.as_bytes().map(|bytes| Some(bytes.to_vec())).map_err(|error| refused(error.to_string())),
            };
            let row = |row: &PgRow| {
                let values = (0..columns.len()).map(|place| value(row.try_get_raw(place).map_err(fault)?));
                let values = values.collect::<Result<_, Fault>>()?;
                Ok(Row::Received(Received { columns: Arc::clone(&columns), values }))
            };
            rows.iter().map(row).collect()
        }

        /// A connection: the user's in their transaction, or one that their pool lent.
        struct Users<C>(Mutex<C>);

        impl<C: DerefMut<Target = PgConnection> + Send> Users<C> {
            /// The parameters of a statement, of the types that the server wants.
            async fn encode(&self, text: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Encoded>, Fault> {
                let mut connection = self.0.lock().await;
                let prepared = (&mut **connection).prepare($text(text)).await.map_err(fault)?;
                let Some(Either::Left(types)) = prepared.parameters() else { return Ok(Vec::new()) };
                let pairs = parameters.iter().zip(types);
                pairs.map(|(parameter, of)| Ok(Encoded(of.clone(), encoded(*parameter, oid(of)?)?))).collect()
            }
        }

        #[async_trait]
        impl<C: DerefMut<Target = PgConnection> + Send> UsersTransaction for Users<C> {
            async fn query(&self, text: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Fault> {
                let encoded = self.encode(text, parameters).await?;
                let query = encoded.into_iter().fold($sqlx::query($text(text)), |query, one| query.bind(one));
                received(&query.fetch_all(&mut **self.0.lock().await).await.map_err(fault)?)
            }

            async fn execute(&self, text: &str, parameters: &[Parameter<'_>]) -> Result<u64, Fault> {
                let encoded = self.encode(text, parameters).await?;
                let query = encoded.into_iter().fold($sqlx::query($text(text)), |query, one| query.bind(one));
                Ok(query.execute(&mut **self.0.lock().await).await.map_err(fault)?.rows_affected())
            }

            async fn batch(&self, statements: &str) -> Result<(), Fault> {
                // Text without parameters goes to the server as it is, with all its statements.
                let mut connection = self.0.lock().await;
                Executor::execute(&mut **connection, $text(statements)).await.map_err(fault)?;
                Ok(())
            }
        }

        impl LentConnection for Users<PoolConnection<Postgres>> {
            fn give_up(self: Box<Self>) {
                // One that is not the pool's any more is closed when it is dropped.
                drop(self.0.into_inner().detach());
            }
        }

        struct Pooled(PgPool);

        #[async_trait]
        impl Lender for Pooled {
            async fn lend(&self) -> Result<Box<dyn LentConnection>, Fault> {
                let lent = self.0.acquire().await;
                let lent = lent.map_err(|error| no_connection(format!("the application's pool: {error}")))?;
                Ok(Box::new(Users(Mutex::new(lent))))
            }
        }

        impl From<PgPool> for ApplicationPool {
            fn from(pool: PgPool) -> Self {
                let size = usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX);
                ApplicationPool { lender: Arc::new(Pooled(pool)), size }
            }
        }

        impl<'t> InTx<'t> for &'t mut Transaction<'_, Postgres> {
            type Answer<T: Send + 't> = Awaited<'t, T>;

            fn enqueue<T: Send + 't>(
                self,
                store: Arc<dyn Store>,
                submission: Result<Submission>,
                then: impl FnOnce(Result<Inserted>) -> Result<T> + Send + 't,
            ) -> Awaited<'t, T> {
                let users = Users(Mutex::new(&mut **self));
                Box::pin(async move { then(enqueue_on(&store, &users, submission).await) })
            }

            fn settle<T: Send + 't>(
                self,
                store: Arc<dyn Store>,
                settlement: Result<Settlement>,
                then: impl FnOnce(Result<Settled>) -> Result<T> + Send + 't,
            ) -> Awaited<'t, T> {
                let users = Users(Mutex::new(&mut **self));
                Box::pin(async move { then(settle_on(&store, &users, settlement).await) })
            }
        }
    };
}

#[cfg(feature = "sqlx-0_8")]
mod version_0_8 {
    fn plain(text: &str) -> &str {
        text
    }

    adapter!(sqlx_0_8, plain);
}

#[cfg(feature = "sqlx-0_9")]
mod version_0_9 {
    /// The statements are the store's own, with nothing spliced into them but the schema's checked name.
    fn safe(text: &str) -> sqlx_0_9::SqlStr {
        sqlx_0_9::SqlSafeStr::into_sql_str(sqlx_0_9::AssertSqlSafe(text.to_owned()))
    }

    adapter!(sqlx_0_9, safe);
}
