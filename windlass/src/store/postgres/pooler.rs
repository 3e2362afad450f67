//! Whether a transaction pooler stands between the store and the server.
//!
//! Such a pooler gives every transaction some connection to the server. What belongs to a session is then lost or, worse,
//! left behind for others: prepared statements, settings, LISTEN. So the store looks before it uses any of them. Two
//! connections that live at the same time have two server processes; where they have the same one, or one that
//! changes, they share.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::hosts::Unreachable;
use super::listen::ListenerConfig;

/// How often the two are compared: on a busy pooler they may differ for a while.
const ROUNDS: usize = 4;

/// How long looking may take in all, beside the connecting.
const WAIT: Duration = Duration::from_secs(5);

/// Looks, on two connections of its own.
pub(super) async fn is_between(config: &ListenerConfig) -> Result<bool, Unreachable> {
    let (one, _, one_task) = super::listen::open(config).await?;
    let (other, _, other_task) = super::listen::open(config).await?;
    let looked = timeout(WAIT, share(&one, &other)).await;
    drop((one, other));
    // Both say goodbye to the server and end, if it still listens.
    let _ = timeout(WAIT, async { tokio::join!(one_task, other_task) }).await;
    Ok(looked.map_err(|_| Unreachable::said("the server stopped answering"))??)
}

/// Whether two connections share server processes.
async fn share(one: &Client, other: &Client) -> Result<bool, tokio_postgres::Error> {
    let first = process(one).await?;
    let mut shared = false;
    for _ in 0..ROUNDS {
        shared |= process(other).await? == first || process(one).await? != first;
    }
    Ok(shared)
}

/// The server process that answers; asked without preparing anything.
async fn process(client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
    let answer = client.simple_query("select pg_catalog.pg_backend_pid()").await?;
    Ok(answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}
