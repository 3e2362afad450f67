//! Enqueue and complete in sqlx's transactions on SQLite (rules X1 and X2), with each version of sqlx.

use std::time::Duration;

use tempfile::TempDir;
use windlass::{Client, Context, Failure, NewJob, Payload, State, Worker};
use windlass_sqlx_sqlite::Lend;

/// A folder, a file in it as both crates name it, and a client on it.
async fn shop() -> (TempDir, String, Client) {
    let folder = TempDir::new().expect("a folder");
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("shop.db").display());
    let client = Client::open(&url).await.expect("a store");
    (folder, url, client)
}

fn job(number: i64) -> NewJob {
    NewJob::new("charge", Payload::json(&number).expect("JSON"))
}

macro_rules! cases {
    ($version:ident, $sqlx:ident) => {
        mod $version {
            use $sqlx as sqlx;

            use super::*;

            async fn pool(url: &str) -> sqlx::SqlitePool {
                let pool = sqlx::SqlitePool::connect(url).await.expect("a pool");
                sqlx::query("create table if not exists charge (number integer)")
                    .execute(&pool)
                    .await
                    .expect("a table");
                pool
            }

            async fn charges(pool: &sqlx::SqlitePool) -> i64 {
                sqlx::query_scalar("select count(*) from charge").fetch_one(pool).await.expect("a count")
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn x1_a_job_commits_or_vanishes_with_the_rows() {
                let (_folder, url, client) = shop().await;
                let pool = pool(&url).await;
                let mut tx = pool.begin_with("begin immediate").await.expect("a transaction");
                sqlx::query("insert into charge values (1)").execute(&mut *tx).await.expect("a row");
                client.enqueue(job(1)).in_tx(tx.lend()).await.expect("enqueued");
                tx.rollback().await.expect("undone");
                assert_eq!((client.totals().await.expect("totals").accepted, charges(&pool).await), (0, 0));

                let mut tx = pool.begin_with("begin immediate").await.expect("a transaction");
                let two = client.enqueue(job(2)).in_tx(tx.lend()).await.expect("enqueued");
                sqlx::query("insert into charge values (2)").execute(&mut *tx).await.expect("sqlx goes on with it");
                let three = client.enqueue(job(3).after([two.id])).in_tx(tx.lend()).await.expect("after another");
                tx.commit().await.expect("committed");
                assert_eq!((client.totals().await.expect("totals").accepted, charges(&pool).await), (2, 1));
                let waiting = client.job(three.id).await.expect("it is there");
                assert_eq!(waiting.state, State::Pending);
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn x2_a_completion_commits_or_vanishes_with_the_rows() {
                let (_folder, url, client) = shop().await;
                let pool = pool(&url).await;
                let handler = |_: Payload, cx: Context<sqlx::SqlitePool>| async move {
                    let mut tx = cx.state.begin_with("begin immediate").await?;
                    sqlx::query("insert into charge values (?)").bind(cx.attempt()).execute(&mut *tx).await?;
                    cx.complete_in_tx(tx.lend(), &"done").await?;
                    match cx.attempt() {
                        1 => tx.rollback().await?,
                        _ => tx.commit().await?,
                    }
                    Ok::<(), Failure>(())
                };
                let running = Worker::new(&client)
                    .with_state(pool.clone())
                    .queue("default", 1)
                    .handle_raw("charge", handler)
                    .start()
                    .await
                    .expect("a worker");
                let id = client.enqueue(job(1)).await.expect("enqueued").id;
                let waited = tokio::time::timeout(Duration::from_secs(60), client.wait(id)).await;
                let ended = waited.expect("in time").expect("a job");
                running.stop().await;
                assert_eq!((ended.state, ended.failures), (State::Completed, 1), "the first run was not committed");
                assert_eq!(ended.result.expect("a result").decode::<String>().expect("JSON"), "done");
                assert_eq!(charges(&pool).await, 1, "the rows of the first run went with it");
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn another_file_is_refused() {
                let (_folder, _, client) = shop().await;
                let (_other_folder, other, _) = shop().await;
                let pool = pool(&other).await;
                let mut tx = pool.begin_with("begin immediate").await.expect("a transaction");
                let refused = client.enqueue(job(1)).in_tx(tx.lend()).await.expect_err("not the store's file");
                assert!(refused.to_string().contains("another file"), "{refused}");
            }
        }
    };
}

#[cfg(feature = "sqlx-0_8")]
cases!(sqlx_0_8_, sqlx_0_8);
#[cfg(feature = "sqlx-0_9")]
cases!(sqlx_0_9_, sqlx_0_9);
