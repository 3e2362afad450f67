//! A PostgreSQL server that is being tortured: its sessions ended, one of its processes killed, all of it killed.

use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio_postgres::NoTls;

use super::faults::Kind;
use super::history::Log;
use super::pair::Pair;

/// How long a server may take to come back: it replays its log first.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// The server behind a store's URL, and how far it may be tortured.
#[derive(Debug)]
pub(super) struct Server {
    /// The URL without the parameters that only the store knows.
    url: String,
    /// What the sessions of the run call themselves.
    application: String,
    /// The folder of a private server, as `scripts/postgres` makes it.
    folder: Option<PathBuf>,
    /// A primary and its standby, in place of one server.
    pair: Option<Pair>,
    /// A server that was started here, so that it can be waited for once it is killed.
    started: Option<Child>,
}

impl Server {
    pub(super) fn new(url: String, application: String, folder: Option<PathBuf>, pair: Option<PathBuf>) -> Self {
        let url = match pair {
            // Only the primary is asked and disturbed.
            Some(_) => {
                with_parameter(&with_parameter(&url, "target_session_attrs", "read-write"), "connect_timeout", "2")
            }
            None => url,
        };
        Server { url, application, folder, pair: pair.map(Pair::new), started: None }
    }

    /// Does one kind of harm to a pair.
    pub(super) async fn hit_pair(&self, kind: Kind, length: f64, log: &Log) -> anyhow::Result<()> {
        self.pair.as_ref().context("there is no pair")?.hit(kind, length, log).await
    }

    /// The kinds of harm that can be done to the pair, if there is one.
    pub(super) fn pair_kinds(&self) -> Vec<Kind> {
        self.pair.as_ref().map(Pair::kinds).unwrap_or_default()
    }

    /// Runs a statement on a session of its own; gives the first column.
    pub(super) async fn ask(&self, statement: &str) -> anyhow::Result<Vec<String>> {
        let mut config: tokio_postgres::Config = self.url.parse().context("cannot read the store's URL")?;
        if config.get_hosts().len() > 1 {
            // Where the run itself is: the others only read.
            config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
        }
        let (client, connection) = config
            .connect(NoTls)
            .await
            .context("cannot reach the server beside the store (only without TLS)")?;
        let connection = tokio::spawn(connection);
        let rows = client.simple_query(statement).await;
        drop(client);
        let _ = connection.await;
        let mut first = Vec::new();
        for message in rows? {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                first.extend(row.get(0).map(str::to_owned));
            }
        }
        Ok(first)
    }

    /// The processes of the server that serve this run.
    async fn backends(&self) -> anyhow::Result<Vec<String>> {
        let name = &self.application;
        self.ask(&format!("select pid from pg_stat_activity where application_name = '{name}' order by pid")).await
    }

    /// Ends a third of the sessions of the run, and now and then all; gives how many.
    pub(super) async fn end_sessions(&self, target: usize) -> anyhow::Result<usize> {
        let name = &self.application;
        let chosen = if target.is_multiple_of(10) { "true".to_owned() } else { format!("pid % 3 = {}", target % 3) };
        let statement = format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = '{name}' and {chosen}"
        );
        Ok(self.ask(&statement).await?.len())
    }

    /// Kills one process of the server; the server then restarts all others.
    pub(super) async fn kill_backend(&self, target: usize) -> anyhow::Result<()> {
        let backends = self.backends().await?;
        anyhow::ensure!(!backends.is_empty(), "the run has no session");
        kill(backends[target % backends.len()].parse()?)
    }

    /// Kills the server and starts it again as it was.
    pub(super) async fn kill_and_restart(&mut self) -> anyhow::Result<()> {
        let folder = self.folder.clone().context("the server is not ours to kill")?;
        let data = folder.join("data");
        let pid = postmaster(&data)?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).context("cannot see how the server was started")?;
        kill(pid)?;
        if let Some(mut child) = self.started.take() {
            child.wait()?;
        }
        let since = Instant::now();
        while Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok()) {
            anyhow::ensure!(since.elapsed() < START_PATIENCE, "the killed server does not go");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Its other processes notice that it is gone and go too; until they have, a new one ends at once.
        let mut child = start(&folder, &command)?;
        while self.ask("select 1").await.is_err() {
            anyhow::ensure!(since.elapsed() < START_PATIENCE, "the server does not come back");
            tokio::time::sleep(Duration::from_millis(50)).await;
            if child.try_wait()?.is_some() {
                child = start(&folder, &command)?;
            }
        }
        self.started = Some(child);
        Ok(())
    }
}

fn kill(pid: i32) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid).context("no such process")?;
    kill_process(pid, Signal::KILL).context("cannot kill a process of the server; run as its user")
}

/// The process id of the server whose data lies in this folder.
fn postmaster(data: &Path) -> anyhow::Result<i32> {
    let file = data.join("postmaster.pid");
    let text = std::fs::read_to_string(&file).with_context(|| format!("no server runs in {}", data.display()))?;
    text.lines().next().and_then(|line| line.trim().parse().ok()).context("the server's process id does not read")
}

/// Starts a server by the words it was started with before, as the owner of its data.
fn start(folder: &Path, command: &[u8]) -> anyhow::Result<Child> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let mut words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let program = words.next().context("cannot see how the server was started")?;
    let data = folder.join("data");
    let owner = std::fs::metadata(&data)?;
    let said = OpenOptions::new().create(true).append(true).open(folder.join("server.log"))?;
    let mut command = Command::new(program);
    command.args(words).current_dir(&data).env("LC_ALL", "C").stdin(Stdio::null());
    // A signal from the terminal is for us, not for it.
    command.stdout(said.try_clone()?).stderr(said).process_group(0);
    if rustix::process::geteuid().as_raw() != owner.uid() {
        command.gid(owner.gid()).uid(owner.uid());
    }
    command.spawn().context("cannot start the server again")
}

/// The URL with parameters that only the store knows taken out, and the value that one of them had.
pub(super) fn without_own_parameters(url: &str) -> (String, Option<String>) {
    let Some((place, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let mut schema = None;
    let kept: Vec<&str> = query
        .split('&')
        .filter(|parameter| match parameter.split_once('=') {
            Some(("schema", name)) => {
                schema = Some(name.to_owned());
                false
            }
            Some(("sslrootcert" | "pooler" | "notifications" | "connections", _)) => false,
            Some(("sslmode", mode)) => !mode.starts_with("verify"),
            _ => true,
        })
        .collect();
    let url = if kept.is_empty() { place.to_owned() } else { format!("{place}?{}", kept.join("&")) };
    (url, schema)
}

/// The URL with one more parameter.
pub(super) fn with_parameter(url: &str, name: &str, value: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}{name}={value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_store_are_not_the_servers() {
        let (url, schema) = without_own_parameters("postgres://a@h/db?sslmode=disable&schema=mine&sslrootcert=/x");
        assert_eq!(url, "postgres://a@h/db?sslmode=disable");
        assert_eq!(schema.as_deref(), Some("mine"));
        assert_eq!(without_own_parameters("postgres://a@h/db"), ("postgres://a@h/db".to_owned(), None));
        assert_eq!(without_own_parameters("postgres://a@h/db?schema=s").0, "postgres://a@h/db");
        assert_eq!(with_parameter(&url, "application_name", "t"), format!("{url}&application_name=t"));
    }
}
