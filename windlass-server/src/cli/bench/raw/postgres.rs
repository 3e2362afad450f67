//! What the server can do: commits of one row on 1 and 16 connections, and COPY.

use std::time::Instant;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use super::super::measure::{Measurement, Setting};
use super::with;

const BATCH: usize = 1000;

pub(super) async fn measure(setting: &Setting) -> anyhow::Result<Vec<Measurement>> {
    let table = format!("windlass_raw_{}", std::process::id());
    let client = connect(setting).await?;
    let create = format!(
        "create table {table} (seq bigserial primary key, id uuid not null default gen_random_uuid(),
             queue text not null, type text not null, priority smallint not null, payload bytea not null)"
    );
    client.batch_execute(&create).await.context("cannot create a table to measure with")?;
    let found = async {
        let mut all = Vec::new();
        for connections in [1, 16] {
            all.push(commits(setting, &table, connections).await?);
        }
        all.push(copy(setting, &table).await?);
        anyhow::Ok(all)
    }
    .await;
    client.batch_execute(&format!("drop table {table}")).await?;
    found
}

async fn connect(setting: &Setting) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(&setting.store, NoTls).await.context("cannot connect")?;
    tokio::spawn(connection);
    Ok(client)
}

async fn commits(setting: &Setting, table: &str, connections: usize) -> anyhow::Result<Measurement> {
    let payload = vec![b'x'; setting.payload];
    let mut ready = Vec::with_capacity(connections);
    for _ in 0..connections {
        let client = connect(setting).await?;
        let text = format!("insert into {table} (queue, type, priority, payload) values ('default', 'bench', 2, $1)");
        let insert = client.prepare(&text).await?;
        ready.push((client, insert));
    }
    let start = Instant::now();
    let end = start + setting.time;
    let mut tasks = JoinSet::new();
    for (client, insert) in ready {
        let payload = payload.clone();
        tasks.spawn(async move {
            let mut calls = Vec::new();
            while Instant::now() < end {
                let before = Instant::now();
                client.execute(&insert, &[&payload]).await?;
                calls.push(before.elapsed());
            }
            anyhow::Ok(calls)
        });
    }
    let mut calls = Vec::new();
    while let Some(task) = tasks.join_next().await {
        calls.extend(task??);
    }
    let time = start.elapsed();
    let op = format!("raw_commit_{connections}");
    Ok(Measurement::new(&op, &with(setting, connections, 1), calls.len(), time, calls))
}

async fn copy(setting: &Setting, table: &str) -> anyhow::Result<Measurement> {
    use futures_util::SinkExt;
    let client = connect(setting).await?;
    let text = format!("copy {table} (queue, type, priority, payload) from stdin");
    let row = format!("default\tbench\t2\t\\\\x{}\n", "78".repeat(setting.payload));
    let rows = bytes::Bytes::from(row.repeat(BATCH));
    let (start, mut calls) = (Instant::now(), Vec::new());
    while start.elapsed() < setting.time {
        let before = Instant::now();
        let sink = client.copy_in(&text).await?;
        let mut sink = std::pin::pin!(sink);
        sink.send(rows.clone()).await?;
        sink.close().await?;
        calls.push(before.elapsed());
    }
    let time = start.elapsed();
    Ok(Measurement::new("raw_copy", &with(setting, 1, BATCH), calls.len() * BATCH, time, calls))
}
