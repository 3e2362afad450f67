//! From a URL to a store.

use std::sync::Arc;

use super::{MemoryStore, Store};
use crate::error::{Error, Result};

/// Opens the store that a URL names: `memory:`, `sqlite:PATH`, `postgres://…`.
///
/// The last two need the features of the same names.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "memory" => Ok(Arc::new(MemoryStore::new())),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(super::PostgresStore::open(url).await?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => open_sqlite(url.strip_prefix("sqlite:").unwrap_or_default()).await,
        _ => Err(unknown(url)),
    }
}

/// Opens a file; `sqlite:///path` is understood as `sqlite:/path`.
#[cfg(feature = "sqlite")]
async fn open_sqlite(path: &str) -> Result<Arc<dyn Store>> {
    let path = path.strip_prefix("//").unwrap_or(path).to_owned();
    if path.is_empty() {
        return Err(Error::invalid("store", "sqlite: needs the path of a file, such as sqlite:jobs.db"));
    }
    let opened = tokio::task::spawn_blocking(|| super::sqlite::SqliteStore::open(path)).await;
    let store = opened.map_err(|error| Error::store("open the SQLite store", error))??;
    Ok(Arc::new(store))
}

fn unknown(url: &str) -> Error {
    let problem = format!("{:?} is none of memory:, sqlite:PATH, postgres://…", redacted(url));
    Error::invalid("store", problem)
}

/// A store's URL without its password and query, for messages.
pub fn redacted(url: &str) -> String {
    let plain = url.split('?').next().unwrap_or_default();
    match (plain.find("://"), plain.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            let user = plain[scheme + 3..at].split(':').next().unwrap_or_default();
            format!("{}{user}@{}", &plain[..scheme + 3], &plain[at + 1..])
        }
        _ => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        assert_eq!(redacted("postgres://ada:se:cr@et@host/db?sslmode=require"), "postgres://ada@host/db");
        assert_eq!(redacted("sqlite:jobs.db"), "sqlite:jobs.db");
    }

    #[tokio::test]
    async fn an_unknown_store_is_refused_without_its_password() {
        let refused = open("redis://ada:secret@host").await.expect_err("unknown");
        assert_eq!(refused.name(), "InvalidArgument");
        assert!(!refused.to_string().contains("secret"));
    }
}
