//! Going along with a store that was moved: servers and workers that are on it when it is.
//!
//! The refusal says where to, without a password. `WINDLASS_MOVED_TO` may give the whole URL.

use std::sync::Arc;

use windlass::store::moving::{Following, OpenStore, Side};
use windlass::store::{PostgresOptions, PostgresStore, SqliteOptions, SqliteUrl, Store, redacted};
use windlass::{Error, Result};

/// The variable with the URL of the place that a store is moved to.
const MOVED_TO: &str = "WINDLASS_MOVED_TO";

/// The store, followed wherever it is moved to.
pub(crate) fn followed(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let open: OpenStore = Arc::new(|url| Box::pin(open(url)));
    Arc::new(Following::new(store, open))
}

/// The URL of a store without its password, and with its schema: what a move leaves behind.
pub(crate) fn address(url: &str) -> Result<String> {
    if url.starts_with("sqlite:") {
        let path = SqliteUrl::parse(url)?.path;
        // Others may be in another folder.
        let path = std::path::absolute(&path).unwrap_or(path);
        return Ok(format!("sqlite:{}", path.display()));
    }
    let (_, query) = url.split_once('?').unwrap_or((url, ""));
    let schema = query.split('&').find(|pair| pair.starts_with("schema="));
    Ok(match schema {
        Some(schema) => format!("{}?{schema}", redacted(url)),
        None => redacted(url),
    })
}

async fn open(url: String) -> Result<Arc<dyn Store>> {
    let given = std::env::var(MOVED_TO).ok().filter(|given| !given.is_empty());
    let given = match given {
        Some(given) if address(&given)? != url => {
            let problem = format!("{MOVED_TO} names {}, and the store was moved to {url}", redacted(&given));
            return Err(Error::Conflict(problem));
        }
        given => given.unwrap_or(url),
    };
    let store: Arc<dyn Store> = match given.starts_with("sqlite:") {
        true => {
            let path = SqliteUrl::parse(&given)?.path;
            let opened = tokio::task::spawn_blocking(move || SqliteOptions::new(path).existing().open()).await;
            Arc::new(opened.map_err(|error| Error::store("open the store", error))??)
        }
        false => Arc::new(PostgresStore::with(PostgresOptions::new(&given)?.without_migrations()).await?),
    };
    let mark = match store.movable() {
        Some(movable) => movable.mark().await?,
        None => None,
    };
    match mark {
        Some(mark) if mark.side == Side::Target => Ok(store),
        _ => Err(Error::Conflict(format!("no store was ever moved to {}", redacted(&given)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_behind_has_the_schema_and_no_password() {
        let address = |url: &str| address(url).expect("valid");
        let url = "postgres://ada:secret@host/db?sslmode=require&schema=jobs";
        assert_eq!(address(url), "postgres://ada@host/db?schema=jobs");
        assert_eq!(address("postgres://host/db"), "postgres://host/db");
        assert!(address("sqlite:jobs.db").starts_with("sqlite:/"));
    }
}
