//! `windlass store status`: what the store is, how large, and what is in it.

use serde::Serialize;
use windlass::store::sqlite;
use windlass::{State, Timestamp};

use crate::cli::connect::{Place, Session};
use crate::cli::detail::Lines;
use crate::figures::number;
use crate::wire;

/// The store in numbers.
#[derive(Debug, Serialize)]
struct Status {
    kind: String,
    location: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_bytes: Option<u64>,
    now: Timestamp,
    totals: wire::Totals,
    queues: usize,
    workers: usize,
}

pub(super) async fn run(session: &Session) -> anyhow::Result<()> {
    let store = session.store();
    let totals = store.totals().await?;
    let (bytes, log_bytes) = file_sizes(&session.place);
    let status = Status {
        kind: store.kind().to_owned(),
        location: session.place.shown(),
        schema_version: schema_version(&session.place),
        bytes,
        log_bytes,
        now: session.out.now,
        totals: totals.into(),
        queues: store.queues().await?.len(),
        workers: store.workers().await?.len(),
    };
    if !session.out.is_table() {
        return session.out.json(&status);
    }
    let mut lines = Lines::default();
    lines.add("store", format!("{} ({})", status.location, status.kind));
    lines.maybe("tables", status.schema_version.map(|version| format!("version {version}, up to date")));
    lines.maybe("size", bytes.map(size));
    lines.maybe("log", log_bytes.map(size));
    lines.add("time", session.out.now.to_string());
    lines.add("accepted", number(totals.accepted));
    for state in State::ALL {
        lines.add(state.as_str(), number(totals.states[usize::from(state.number())]));
    }
    lines.add("pruned", number(totals.pruned));
    lines.add("queues", status.queues.to_string());
    lines.add("live workers", status.workers.to_string());
    Ok(session.out.line(lines.text())?)
}

/// A store that could be opened has the tables that this program knows.
pub(crate) fn schema_version(place: &Place) -> Option<i64> {
    match place.store_url()?.split(':').next() {
        Some("sqlite") => Some(sqlite::SCHEMA_VERSION),
        Some("postgres" | "postgresql") => i64::try_from(windlass::store::postgres::SCHEMA_VERSION).ok(),
        _ => None,
    }
}

/// The sizes of a SQLite store's file and of the log beside it.
pub(crate) fn file_sizes(place: &Place) -> (Option<u64>, Option<u64>) {
    let Some(path) = place.file() else { return (None, None) };
    let size = |path: &std::path::Path| std::fs::metadata(path).ok().map(|file| file.len());
    let mut log = path.clone().into_os_string();
    log.push("-wal");
    (size(&path), size(std::path::Path::new(&log)))
}

/// Bytes in a unit that people read.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        None => format!("{bytes} bytes"),
        Some((unit, name)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
    }
}
