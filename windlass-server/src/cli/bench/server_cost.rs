//! What a measurement cost the PostgreSQL server: bytes of log, and processor time where it runs on this machine.

use anyhow::Context;
use tokio_postgres::{Client, NoTls};

use super::measure::Measurement;

/// Clock ticks a second, by which the kernel counts processor time; the same on every Linux that matters.
pub(super) const TICKS_PER_SECOND: f64 = 100.0;

/// The counters before a measurement.
pub(super) struct ServerCost {
    client: Client,
    log_bytes: i64,
    ticks: Option<u64>,
}

impl ServerCost {
    /// Reads the counters of a PostgreSQL server; `None` for any other store.
    pub(super) async fn begin(store: &str) -> anyhow::Result<Option<Self>> {
        if !store.starts_with("postgres") {
            return Ok(None);
        }
        // Parameters of our own are not the driver's.
        let url = store.split('?').next().unwrap_or(store);
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("cannot connect")?;
        tokio::spawn(connection);
        let (log_bytes, ticks) = counters(&client).await?;
        Ok(Some(ServerCost { client, log_bytes, ticks }))
    }

    /// Adds what each job cost.
    pub(super) async fn end(self, one: &mut Measurement) -> anyhow::Result<()> {
        let (log_bytes, ticks) = counters(&self.client).await?;
        let jobs = one.jobs.max(1) as f64;
        one.log_bytes_per_job = Some((log_bytes - self.log_bytes) as f64 / jobs);
        let ticks = ticks.zip(self.ticks).map(|(after, before)| after.saturating_sub(before) as f64);
        one.server_us_per_job = ticks.map(|ticks| ticks / TICKS_PER_SECOND * 1e6 / jobs);
        Ok(())
    }
}

/// Bytes of log ever written, and the ticks of all processes of the server.
async fn counters(client: &Client) -> anyhow::Result<(i64, Option<u64>)> {
    let statement = "select (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_backend_pid()";
    let row = client.query_one(statement, &[]).await?;
    Ok((row.get(0), ticks_of_server(row.get(1))))
}

/// The ticks of a server's processes, those that have ended included, found from one of them.
fn ticks_of_server(backend: i32) -> Option<u64> {
    let server = Process::read(backend)?.parent;
    let own = Process::read(server)?;
    let mut ticks = own.ticks + own.ticks_of_ended_children;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let process = number.and_then(Process::read);
        ticks += process.filter(|process| process.parent == server).map_or(0, |process| process.ticks);
    }
    Some(ticks)
}

pub(super) struct Process {
    parent: i32,
    pub(super) ticks: u64,
    ticks_of_ended_children: u64,
}

impl Process {
    pub(super) fn read(number: i32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        Process::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name may hold anything; what follows its closing bracket does not.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        let parent = fields.get(1)?.parse().ok()?;
        Some(Process { parent, ticks: number(11)? + number(12)?, ticks_of_ended_children: number(13)? + number(14)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let text = "77 (post) gres: x) S 5 77 77 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 9 0 0";
        let process = Process::parse(text).expect("a process");
        assert_eq!((process.parent, process.ticks, process.ticks_of_ended_children), (5, 120, 7));
    }
}
