//! sqlx, in both versions: the jobs are in a schema of the application's own database.

/// The same for one version.
macro_rules! version {
    ($sqlx:ident, $text:expr) => {
        use std::sync::Arc;

        use windlass::{Client, Context, Failure, JobId};
        use $sqlx::postgres::{PgPool, PgPoolOptions};

        use crate::Driver;
        use crate::{enqueue_five, windlass_step};

        /// A pool of the user's own.
        struct Sqlx {
            pool: PgPool,
            schema: String,
        }

        impl Driver for Sqlx {
            async fn enqueue(&self, client: &Client, commit: bool) -> Vec<JobId> {
                let mut tx = self.pool.begin().await.expect("begin");
                let insert = format!("insert into {}.business values (1)", self.schema);
                $sqlx::query($text(&insert)).execute(&mut *tx).await.expect("a row");
                let ids = enqueue_five!(client, &mut tx, await);
                if commit {
                    tx.commit().await.expect("commit");
                }
                ids
            }

            async fn complete(&self, cx: &Context<Arc<Self>>, commit: bool) -> Result<(), Failure> {
                let mut tx = self.pool.begin().await?;
                let insert = format!("insert into {}.business values (1)", self.schema);
                $sqlx::query($text(&insert)).execute(&mut *tx).await?;
                cx.complete_in_tx(&mut tx, &()).await?;
                if commit {
                    tx.commit().await?;
                }
                Ok(())
            }

            async fn rows(&self) -> i64 {
                let count = format!("select count(*) from {}.business", self.schema);
                $sqlx::query_scalar($text(&count)).fetch_one(&self.pool).await.expect("a number")
            }
        }

        async fn setup() -> (Sqlx, Client) {
            let (client, schema) = crate::postgres::fresh().await;
            let pool = PgPoolOptions::new().max_connections(2).connect(&crate::postgres::url()).await;
            (Sqlx { pool: pool.expect("the test database"), schema }, client)
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn x1_jobs_commit_or_vanish_with_the_transaction() {
            let (driver, client) = setup().await;
            crate::x1_jobs_commit_or_vanish_with_the_transaction(driver, client).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn x2_a_completion_commits_or_vanishes_with_the_transaction() {
            let (driver, client) = setup().await;
            crate::x2_a_completion_commits_or_vanishes_with_the_transaction(driver, client).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn a_transaction_for_another_store_or_that_has_failed_is_told() {
            let (driver, client) = setup().await;
            let mut tx = driver.pool.begin().await.expect("begin");
            crate::is_refused(Client::in_memory().enqueue(windlass_step()).in_tx(&mut tx).await);
            $sqlx::query("select 1 / 0").execute(&mut *tx).await.expect_err("it fails");
            let refused = client.enqueue(windlass_step()).in_tx(&mut tx).await.expect_err("aborted");
            assert!(refused.to_string().contains("current transaction is aborted"), "{refused}");
        }
    };
}

#[cfg(feature = "sqlx-0_8")]
mod version_0_8 {
    fn plain(text: &str) -> &str {
        text
    }

    version!(sqlx_0_8, plain);
}

#[cfg(feature = "sqlx-0_9")]
mod version_0_9 {
    fn safe(text: &str) -> sqlx_0_9::AssertSqlSafe<String> {
        sqlx_0_9::AssertSqlSafe(text.to_owned())
    }

    version!(sqlx_0_9, safe);
}
