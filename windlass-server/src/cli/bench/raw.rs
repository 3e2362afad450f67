//! The limits of the machine and of the database itself, in the form of the measurements that are held against them.

mod postgres;
mod sqlite;

use super::measure::{Measurement, Setting};

pub(super) async fn measure(setting: &Setting) -> anyhow::Result<Vec<Measurement>> {
    let (scheme, rest) = setting.store.split_once(':').unwrap_or((&setting.store, ""));
    match scheme {
        "sqlite" => {
            let (setting, path) = (setting.clone(), std::path::PathBuf::from(rest));
            tokio::task::spawn_blocking(move || sqlite::measure(&setting, &path)).await?
        }
        "postgres" | "postgresql" => postgres::measure(setting).await,
        _ => anyhow::bail!("only sqlite:PATH and postgres://… have limits to measure"),
    }
}

/// The same setting with other callers and batch, as they were in a raw measurement.
fn with(setting: &Setting, callers: usize, batch: usize) -> Setting {
    Setting { callers, batch, backlog: 0, finished: 0, ..setting.clone() }
}
