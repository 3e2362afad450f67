//! From a URL to a store.

use std::path::PathBuf;
use std::sync::Arc;

use super::{MemoryStore, Store};
use crate::error::{Error, Result};

/// Opens the store that a URL names: `memory:`, `sqlite:PATH`, `postgres://…`.
///
/// The last two need the features of the same names. [`SqliteUrl`] says what may stand behind the path of a file.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "memory" => Ok(Arc::new(MemoryStore::new())),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(super::PostgresStore::open(url).await?)),
        #[cfg(not(feature = "postgres"))]
        "postgres" | "postgresql" => Err(without_feature("postgres")),
        "sqlite" => open_sqlite(SqliteUrl::parse(url)?).await,
        _ => Err(unknown(url)),
    }
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(url: SqliteUrl) -> Result<Arc<dyn Store>> {
    if !url.create && !url.path.exists() {
        return Err(Error::not_found("SQLite file", url.path.display().to_string()));
    }
    let opened = tokio::task::spawn_blocking(|| super::sqlite::SqliteStore::open(url.path)).await;
    let store = opened.map_err(|error| Error::store("open the SQLite store", error))??;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "sqlite"))]
async fn open_sqlite(_: SqliteUrl) -> Result<Arc<dyn Store>> {
    Err(without_feature("sqlite"))
}

/// The refusal of a store that this program was built without.
#[cfg_attr(all(feature = "sqlite", feature = "postgres", not(test)), expect(dead_code))]
fn without_feature(feature: &str) -> Error {
    let problem = format!(
        "this program was built without the feature {feature:?}: add features = [{feature:?}] to windlass in Cargo.toml"
    );
    Error::invalid("store", problem)
}

/// What a migration does where live workers use the tables as they are: these are of an older program.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnderWorkers {
    /// Nothing: it is refused.
    Refuse,
    /// It migrates all the same.
    Migrate,
}

/// A SQLite file, as a URL names it.
///
/// `sqlite:jobs.db`, `sqlite://jobs.db` and `sqlite:///srv/jobs.db` name files. `?mode=rwc` makes a file that is not there,
/// which is the default; `?mode=rw` does not. These are the forms that sqlx takes, so that one URL can serve both.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SqliteUrl {
    /// The file.
    pub path: PathBuf,
    /// Whether it is made where it is not there.
    pub create: bool,
}

impl SqliteUrl {
    /// Reads a URL. What is not understood is refused by name: a wrong guess would put jobs where nobody looks.
    pub fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("sqlite:").unwrap_or_default();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        let refused = |problem: String| Err(Error::invalid("store", problem));
        if path == ":memory:" {
            return refused("sqlite::memory: would lose accepted jobs; use memory: for tests".to_owned());
        }
        if path.is_empty() || path.starts_with("file:") {
            return refused("sqlite: needs the path of a file, such as sqlite:jobs.db".to_owned());
        }
        let mut create = true;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("mode", "rwc") => create = true,
                ("mode", "rw") => create = false,
                ("mode", "memory") => {
                    return refused("mode=memory would lose accepted jobs; use memory: for tests".to_owned());
                }
                ("mode", _) => {
                    return refused("the parameter \"mode\" must be rwc or rw: a store is written to".to_owned());
                }
                (name, _) => return refused(format!("the parameter {name:?} is not known for sqlite:; mode is")),
            }
        }
        Ok(SqliteUrl { path: PathBuf::from(path), create })
    }
}

fn unknown(url: &str) -> Error {
    let problem = format!("{:?} is none of memory:, sqlite:PATH, postgres://…", redacted(url));
    Error::invalid("store", problem)
}

/// A store's URL without its password and query, for messages; of a connection string of the form `key=value`, too.
pub fn redacted(url: &str) -> String {
    let plain = url.split('?').next().unwrap_or_default();
    match (plain.find("://"), url.rfind('@')) {
        // It cannot be told what belongs to the password: drivers look for the `@` first.
        (Some(scheme), Some(at)) if plain.len() < at => {
            format!("{}…", without_password_values(&plain[..scheme + 3]).trim_end_matches('…'))
        }
        (Some(scheme), Some(at)) if scheme < at => {
            let user = plain[scheme + 3..at].split(':').next().unwrap_or_default();
            without_password_values(&format!("{}{user}@{}", &plain[..scheme + 3], &plain[at + 1..]))
        }
        _ => without_password_values(plain),
    }
}

/// What libpq takes besides a URL names a password by its key; the value may be in quotes and hold spaces.
fn without_password_values(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    // A host may be called so, too.
    let named = lower.match_indices("password").find(|(at, key)| lower[at + key.len()..].trim_start().starts_with('='));
    match named {
        // Whatever follows may still belong to it.
        Some((at, _)) => format!("{}password=…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        assert_eq!(redacted("postgres://ada:se:cr@et@host/db?sslmode=require"), "postgres://ada@host/db");
        assert_eq!(redacted("postgres://ada:se?cret@host/db?sslmode=require"), "postgres://…");
        assert_eq!(redacted("postgresql://a://b:se?cr@e@host/db"), "postgresql://…");
        assert_eq!(redacted("postgres://host/db?password=a@b"), "postgres://…");
        assert_eq!(redacted("host=h password=a?b://c:d@e"), "host=h password=…");
        assert_eq!(redacted("user=u password='a:b@c://d?e@f'"), "user=u password=…");
        assert_eq!(redacted("host=password.example user=u password=p"), "host=password.example user=u password=…");
        assert_eq!(redacted("sqlite:jobs.db"), "sqlite:jobs.db");
    }

    #[test]
    fn a_file_is_named_as_sqlx_names_it() {
        let parsed = |url: &str| SqliteUrl::parse(url).map(|url| (url.path.display().to_string(), url.create));
        for (url, path, create) in [
            ("sqlite:jobs.db", "jobs.db", true),
            ("sqlite://jobs.db?mode=rwc", "jobs.db", true),
            ("sqlite:jobs.db?mode=rw", "jobs.db", false),
            ("sqlite:///srv/jobs.db", "/srv/jobs.db", true),
        ] {
            assert_eq!(parsed(url).expect(url), (path.to_owned(), create));
        }
        for (url, word) in [
            ("sqlite:", "path of a file"),
            ("sqlite:?mode=rwc", "path of a file"),
            ("sqlite::memory:", "use memory:"),
            ("sqlite://:memory:", "use memory:"),
            ("sqlite:x?mode=memory", "use memory:"),
            ("sqlite:x.db?mode=ro", "rwc or rw"),
            ("sqlite:x.db?cache=shared", "\"cache\""),
            ("sqlite:x.db?mode=rwc&immutable=1", "\"immutable\""),
        ] {
            let refused = parsed(url).expect_err(url);
            assert_eq!(refused.name(), "InvalidArgument");
            assert!(refused.to_string().contains(word), "{url}: {refused}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_that_must_be_there_is_not_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}/jobs.db?mode=rw", folder.path().display());
        assert_eq!(open(&url).await.expect_err("not there").name(), "NotFound");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
        open(&url.replace("mode=rw", "mode=rwc")).await.expect("made");
        open(&url).await.expect("there");
    }

    #[test]
    fn a_missing_feature_is_named() {
        let refused = without_feature("sqlite").to_string();
        assert!(refused.contains("features = [\"sqlite\"]"), "{refused}");
    }

    #[cfg(not(all(feature = "sqlite", feature = "postgres")))]
    #[tokio::test]
    async fn a_store_of_a_missing_feature_is_refused_by_its_name() {
        for (url, there) in [("sqlite:x.db", cfg!(feature = "sqlite")), ("postgres://h/d", cfg!(feature = "postgres"))]
        {
            if !there {
                assert!(open(url).await.expect_err("no such feature").to_string().contains("built without"), "{url}");
            }
        }
    }

    #[test]
    fn l7_a_password_in_a_connection_string_is_not_shown() {
        for text in ["host=h user=u password=TOPSECRET", "host=h PASSWORD = 'TOP SECRET' user=u", "password=TOPSECRET"]
        {
            let shown = redacted(text);
            assert!(!shown.contains("TOP") && !shown.contains("SECRET"), "{shown}");
        }
        assert_eq!(redacted("sqlite:passwords.db"), "sqlite:passwords.db");
    }

    #[tokio::test]
    async fn an_unknown_store_is_refused_without_its_password() {
        let refused = open("redis://ada:secret@host").await.expect_err("unknown");
        assert_eq!(refused.name(), "InvalidArgument");
        assert!(!refused.to_string().contains("secret"));
    }
}
