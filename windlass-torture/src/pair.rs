//! A primary and its synchronous standby that are being tortured: one fails and the other takes over, again and again.
//!
//! `scripts/postgres` makes the pair and does the work of the manager that a real installation has. Every fault ends with the
//! standby synchronous again, so that the next promotion can lose nothing that was acknowledged.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;

use super::faults::Kind;
use super::history::{Event, Log};

/// The script, seen from the top of the repository.
const SCRIPT: &str = "scripts/postgres";
/// How long an old primary that hangs or lives on stays beside the new one.
const BESIDE: Duration = Duration::from_secs(4);
/// After this long every process of a server goes by the clock that was set.
const CLOCK_SHOWS: Duration = Duration::from_millis(1200);

/// The folder of a pair, as `scripts/postgres pair` makes it.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    folder: PathBuf,
}

impl Pair {
    pub(super) fn new(folder: PathBuf) -> Self {
        Pair { folder }
    }

    /// The kinds of harm that can be done to this one; what its members lack is said.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let mut kinds = Kind::PAIR.to_vec();
        for (kind, file, word) in [(Kind::Partition, "network", "networks"), (Kind::ClockStep, "clock", "clocks")] {
            if self.folder.join("a").join(file).exists() {
                kinds.push(kind);
            } else {
                let kind = kind.as_str();
                let why = format!("the members have no {word} of their own ({SCRIPT} pair DIR {word})");
                // Nothing is left to do when standard error is closed.
                let _ = writeln!(std::io::stderr(), "SKIPPED: {kind}, since {why}");
            }
        }
        kinds
    }

    /// Does one kind of harm to the pair, and sees it through until the standby is synchronous again.
    ///
    /// `length` is a number from 0 to 1 that says how long the pair is without a primary.
    pub(super) async fn hit(&self, kind: Kind, length: f64, log: &Log) -> anyhow::Result<()> {
        let members = self.script("members", "", &[]).await?;
        let (primary, standby) = members.trim().split_once(' ').context("a pair has two members")?;
        let without = Duration::from_secs_f64(0.2 + 2.8 * length);
        match kind {
            Kind::StandbyDies => {
                self.script("signal", standby, &["KILL"]).await?;
                tokio::time::sleep(without).await;
                return self.script("revive", "", &[]).await.map(drop);
            }
            Kind::Hang => drop(self.script("signal", primary, &["STOP"]).await?),
            Kind::SwitchOver => drop(self.script("stop", primary, &[]).await?),
            Kind::Partition => drop(self.script("link", primary, &["off"]).await?),
            Kind::Split => {}
            Kind::FailOver => drop(self.script("signal", primary, &["KILL"]).await?),
            Kind::ClockStep => {
                // The other member's clock stays as it is, so that the two are two hours apart in the end.
                let step = if standby == "a" { "+3600" } else { "-3600" };
                self.script("clock", standby, &[step]).await?;
                tokio::time::sleep(CLOCK_SHOWS).await;
                self.script("signal", primary, &["KILL"]).await?;
            }
            _ => anyhow::bail!("{} is not done to a pair", kind.as_str()),
        }
        tokio::time::sleep(without).await;
        self.script("promote", "", &[]).await?;
        log.write(Event::Promoted);
        if matches!(kind, Kind::Hang | Kind::Split | Kind::Partition) {
            tokio::time::sleep(BESIDE).await;
        }
        if kind == Kind::Partition {
            self.script("link", primary, &["on"]).await?;
            tokio::time::sleep(BESIDE / 4).await;
        }
        self.script("rejoin", "", &[]).await.map(drop)
    }

    async fn script(&self, what: &str, member: &str, more: &[&str]) -> anyhow::Result<String> {
        let mut command = tokio::process::Command::new(SCRIPT);
        command.arg(what).arg(self.folder.join(member)).args(more).stdin(Stdio::null());
        let ended = command.output().await;
        let output = ended.with_context(|| format!("cannot run {SCRIPT}; start from the top of the repository"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{SCRIPT} {what} failed: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
