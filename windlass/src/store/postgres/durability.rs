//! How safe what the server confirms is, by its settings: told by `doctor`, in the log and as a metric.

use std::sync::Weak;
use std::time::Duration;

use super::Inner;
use super::fault::{Fault, retrying};
use super::turns::Caller;
use crate::store::answer::Durability;

/// How often a store looks whether the settings have changed.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// From how large a correction of the server's clock on it is said, in microseconds.
const SKEW_SAID: i64 = 1_000_000;

/// What the server says.
#[derive(Clone, Copy)]
struct Settings<'s> {
    fsync: &'s str,
    full_page_writes: &'s str,
    synchronous_commit: &'s str,
    standby_names: &'s str,
    /// How many standbys confirm commits; `None` where the role may not see it.
    standbys: Option<i64>,
    /// What is added to the server's clock, in microseconds.
    skew: i64,
    /// Whether the URL names several hosts, so that a failover is meant to be survived.
    several_hosts: bool,
}

impl Settings<'_> {
    fn judge(self) -> Durability {
        let mut warnings = Vec::new();
        let named = !self.standby_names.trim().is_empty();
        let waits = matches!(self.synchronous_commit, "on" | "remote_apply");
        if self.fsync == "off" {
            warnings.push(
                "fsync is off: a crash of the machine may lose acknowledged jobs and damage the database".to_owned(),
            );
        }
        if self.full_page_writes == "off" {
            warnings.push("full_page_writes is off: a crash of the machine may damage the database".to_owned());
        }
        if self.synchronous_commit == "off" {
            warnings.push("synchronous_commit is off: a crash of the server may lose acknowledged jobs".to_owned());
        } else if !waits && (named || self.several_hosts) {
            let setting = self.synchronous_commit;
            warnings.push(format!(
                "synchronous_commit is {setting}, which is less than on: a failover may lose acknowledged jobs"
            ));
        }
        if self.several_hosts && !named {
            warnings.push("synchronous_standby_names is empty: a failover may lose acknowledged jobs".to_owned());
        }
        if named && self.standbys == Some(0) {
            warnings.push("no standby is synchronous now: commits wait for one".to_owned());
        }
        if named && self.standbys.is_none() {
            warnings.push("whether a standby is synchronous cannot be seen: grant pg_monitor to this role".to_owned());
        }
        if self.skew.abs() > SKEW_SAID {
            let (seconds, way) = (self.skew.abs() / 1_000_000, if self.skew < 0 { "ahead of" } else { "behind" });
            warnings.push(format!(
                "the server's clock is {seconds} s {way} the store's time, which takes a twentieth of the time that passes to \
                 agree with it: set the clocks of all servers by NTP"
            ));
        }
        let replicated = match self.standbys {
            _ if !named || !waits => Some(false),
            standbys => standbys.map(|standbys| standbys > 0),
        };
        Durability { replicated, warnings, skew_micros: Some(self.skew), ..Durability::default() }
    }
}

impl Inner {
    pub(super) async fn durability(&self) -> Result<Durability, Fault> {
        let link = self.link(Caller::Reader).await?;
        let rows = link.query(include_str!("sql/get_durability.sql"), &[]).await?;
        let row = rows.first().ok_or_else(|| super::job_rows::corrupt("no answer"))?;
        let settings = Settings {
            fsync: row.get("fsync"),
            full_page_writes: row.get("full_page_writes"),
            synchronous_commit: row.get("synchronous_commit"),
            standby_names: row.get("standby_names"),
            standbys: row.get("standbys"),
            skew: row.get("skew"),
            several_hosts: self.hosts.are_several(),
        };
        Ok(Durability { host: self.hosts.name(), timeline: self.hosts.timeline(), ..settings.judge() })
    }
}

/// Logs what endangers confirmed commits, at once and whenever it changes, until the store is dropped.
pub(super) async fn watch(store: Weak<Inner>) {
    let mut said: Vec<String> = Vec::new();
    loop {
        let Some(inner) = store.upgrade() else { return };
        // So that a process that only enqueues knows the time when the next server's clock is another.
        if inner.clock.is_none()
            && let Ok(mut link) = inner.link(Caller::Reader).await
        {
            let _ = inner.look_at_clock(&mut link).await;
        }
        if let Ok(durability) = retrying("look at the server's settings", || inner.durability()).await
            && durability.warnings != said
        {
            for warning in &durability.warnings {
                tracing::warn!(server = %inner.hosts.describe(), "{warning}");
            }
            if durability.warnings.is_empty() {
                tracing::info!(server = %inner.hosts.describe(), "commits are as safe as they should be again");
            }
            said = durability.warnings;
        }
        drop(inner);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAFE: Settings<'static> = Settings {
        fsync: "on",
        full_page_writes: "on",
        synchronous_commit: "on",
        standby_names: "b",
        standbys: Some(1),
        skew: 0,
        several_hosts: true,
    };

    #[test]
    fn a_synchronous_standby_makes_commits_safe() {
        assert_eq!(SAFE.judge(), Durability { replicated: Some(true), skew_micros: Some(0), ..Durability::default() });
        let alone = Settings { standby_names: "", standbys: Some(0), several_hosts: false, ..SAFE };
        assert_eq!(
            alone.judge(),
            Durability { replicated: Some(false), skew_micros: Some(0), ..Durability::default() },
            "one host is one host"
        );
    }

    #[test]
    fn what_endangers_commits_is_said() {
        let cases = [
            (Settings { fsync: "off", ..SAFE }, "fsync is off", Some(true)),
            (Settings { full_page_writes: "off", ..SAFE }, "full_page_writes is off", Some(true)),
            (Settings { synchronous_commit: "off", ..SAFE }, "synchronous_commit is off", Some(false)),
            (Settings { synchronous_commit: "local", ..SAFE }, "synchronous_commit is local", Some(false)),
            (
                Settings { standby_names: "", standbys: Some(0), ..SAFE },
                "synchronous_standby_names is empty",
                Some(false),
            ),
            (Settings { standbys: Some(0), ..SAFE }, "no standby is synchronous now", Some(false)),
            (Settings { standbys: None, ..SAFE }, "pg_monitor", None),
            (Settings { skew: -3_600_000_000, ..SAFE }, "3600 s ahead of the store's time", Some(true)),
            (Settings { skew: 3_600_000_000, ..SAFE }, "3600 s behind the store's time", Some(true)),
        ];
        for (settings, words, replicated) in cases {
            let told = settings.judge();
            assert_eq!((told.warnings.len(), told.replicated), (1, replicated), "{words}: {:?}", told.warnings);
            assert!(told.warnings[0].contains(words), "{:?}", told.warnings);
        }
    }
}
