//! How a command reaches its jobs: straight through a store, or through a server. The commands see no difference.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use windlass::store::sqlite::{SqliteOptions, SqliteStore};
use windlass::store::{self, MemoryStore, PostgresOptions, PostgresStore, Store};
use windlass::{Client, Error};

use super::exit::{self, End, Exit};
use super::output::{Out, OutputArgs, say};
use crate::remote::HttpStore;

/// The server that is asked unless another or a store is named.
const SERVER_DEFAULT: &str = "http://127.0.0.1:7654";

/// Where the jobs are.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Reach {
    /// Open this store: sqlite:PATH or postgres://… [env: WINDLASS_STORE]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    store: Option<String>,
    /// Or ask this server; http://127.0.0.1:7654 unless named [env: WINDLASS_SERVER]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    server: Option<String>,
}

/// Whether a store that is not there is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is an error: a slip in its path must not look like an empty store.
    Refused,
    /// A SQLite file is made: something is to be put in.
    Made,
}

/// Where the jobs are, decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A store that this process opens.
    Store(String),
    /// A server that is asked.
    Server(String),
}

impl Place {
    /// The URL, without a password.
    pub(crate) fn shown(&self) -> String {
        match self {
            Place::Store(url) | Place::Server(url) => store::redacted(url),
        }
    }

    /// The URL of the store, if this process opens it.
    pub(crate) fn store_url(&self) -> Option<&str> {
        match self {
            Place::Store(url) => Some(url),
            Place::Server(_) => None,
        }
    }

    /// The file of a SQLite store that this process opens.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.store_url().filter(|url| url.starts_with("sqlite:")).and_then(|url| sqlite_path(url).ok())
    }
}

/// A reached store, and how to print what it says.
#[derive(Debug)]
pub(crate) struct Session {
    /// The handle on it.
    pub(crate) client: Client,
    /// Where and how to print.
    pub(crate) out: Out,
    /// How it was reached.
    pub(crate) place: Place,
}

impl Session {
    /// The store itself.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.client.store()
    }
}

impl Reach {
    /// What was typed wins over the environment, and a store over a server.
    pub(crate) fn place(&self) -> Result<Place, End> {
        match (&self.store, &self.server) {
            (Some(_), Some(_)) => Err(End::usage("--store and --server cannot both be meant")
                .advise("name the store to open it here, or the server to ask it")),
            (Some(url), None) => Ok(Place::Store(url.clone())),
            (None, Some(url)) => Ok(Place::Server(url.clone())),
            (None, None) => Ok(match (set("WINDLASS_STORE"), set("WINDLASS_SERVER")) {
                (Some(url), _) => Place::Store(url),
                (None, server) => Place::Server(server.unwrap_or_else(|| SERVER_DEFAULT.to_owned())),
            }),
        }
    }

    /// The URL of a store, for what cannot be done through a server.
    pub(crate) fn store_url(&self, what: &str) -> Result<String, End> {
        match self.place()? {
            Place::Store(url) => Ok(url),
            Place::Server(_) => Err(End::usage(format!("{what} needs the store itself, not a server"))
                .advise("add --store sqlite:PATH or --store postgres://…, or set WINDLASS_STORE")),
        }
    }

    /// Reaches a store that is there.
    pub(crate) async fn open(&self, output: &OutputArgs) -> anyhow::Result<Session> {
        self.session(output, Missing::Refused).await
    }

    /// Reaches a store, and makes a SQLite file where there is none.
    pub(crate) async fn open_or_make(&self, output: &OutputArgs) -> anyhow::Result<Session> {
        self.session(output, Missing::Made).await
    }

    async fn session(&self, output: &OutputArgs, missing: Missing) -> anyhow::Result<Session> {
        let place = self.place()?;
        let store: Arc<dyn Store> = match &place {
            Place::Store(url) => open_store(url, missing).await?,
            Place::Server(url) => Arc::new(HttpStore::connect(url, set("WINDLASS_TOKEN"))?),
        };
        let now = store.now().await.map_err(|error| unreached(error, &place))?;
        Ok(Session { client: Client::with_store(store), out: Out { format: output.output, now }, place })
    }
}

/// The error of the first call, with what to do when nobody answers.
fn unreached(error: Error, place: &Place) -> anyhow::Error {
    match (exit::of(&error), place) {
        (Exit::Unreachable, Place::Server(url)) => {
            let advice =
                "start one with `windlass run`, name another with --server, or open the store itself with --store";
            End::new(Exit::Unreachable, format!("no server answers at {url}: {error}")).advise(advice).into()
        }
        _ => anyhow::Error::new(error).context(format!("cannot reach {}", place.shown())),
    }
}

/// Opens a store that is up to date; no command but `store migrate` changes tables that are there.
async fn open_store(url: &str, missing: Missing) -> anyhow::Result<Arc<dyn Store>> {
    let store: Arc<dyn Store> = match url.split(':').next() {
        Some("sqlite") => Arc::new(open_sqlite(url, missing).await?),
        Some("postgres" | "postgresql") => Arc::new(open_postgres(url).await?),
        Some("memory") => Arc::new(MemoryStore::new()),
        // The library says what it knows.
        _ => store::open(url).await?,
    };
    Ok(store)
}

/// Opens a SQLite store.
pub(crate) async fn open_sqlite(url: &str, missing: Missing) -> anyhow::Result<SqliteStore> {
    let path = sqlite_path(url)?;
    let options = SqliteOptions::new(&path);
    let options = match (path.exists(), missing) {
        (true, _) => options.existing(),
        (false, Missing::Made) => {
            say(format!("there was no store at {}: a new one is made", path.display()));
            options
        }
        (false, Missing::Refused) => {
            return Err(End::new(Exit::NotFound, format!("there is no store at {}", path.display()))
                .advise(format!("correct the path, or make one with `windlass store migrate --store {url}`"))
                .into());
        }
    };
    let opened = tokio::task::spawn_blocking(move || options.open()).await?;
    opened.map_err(|error| told(error, url))
}

/// Opens a PostgreSQL store.
pub(crate) async fn open_postgres(url: &str) -> anyhow::Result<PostgresStore> {
    let options = PostgresOptions::new(url)?.connections(4).without_migrations();
    PostgresStore::with(options).await.map_err(|error| told(error, url))
}

/// The file that a URL names; `sqlite:///path` is understood as `sqlite:/path`.
pub(crate) fn sqlite_path(url: &str) -> Result<PathBuf, Error> {
    let path = url.strip_prefix("sqlite:").unwrap_or_default();
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() {
        return Err(Error::invalid("store", "sqlite: needs the path of a file, such as sqlite:jobs.db"));
    }
    Ok(Path::new(path).to_path_buf())
}

/// The error of opening, with what to do about tables of another version.
fn told(error: Error, url: &str) -> anyhow::Error {
    let shown = store::redacted(url);
    let words = error.to_string();
    let advice = if words.contains("migrate it first") {
        format!(
            "`windlass store migrate --store {shown}` does; workers older than this program may then refuse the store"
        )
    } else if words.contains("this program knows") {
        "use a `windlass` as new as the one that migrated it".to_owned()
    } else {
        return anyhow::Error::new(error).context(format!("cannot open {shown}"));
    };
    let exit = match exit::of(&error) {
        Exit::Failed => Exit::Conflict,
        other => other,
    };
    End::new(exit, format!("cannot open {shown}: {words}")).advise(advice).into()
}

/// A variable of the environment that is set to something.
fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Who acts, for the record: the name of the user.
pub(crate) fn user() -> Option<String> {
    set("USER").or_else(|| set("LOGNAME"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_in_both_forms() {
        assert_eq!(sqlite_path("sqlite:jobs.db").expect("a path"), Path::new("jobs.db"));
        assert_eq!(sqlite_path("sqlite:///tmp/jobs.db").expect("a path"), Path::new("/tmp/jobs.db"));
        assert_eq!(sqlite_path("sqlite:").expect_err("none").name(), "InvalidArgument");
    }

    #[test]
    fn a_store_that_is_behind_comes_with_advice() {
        let behind = Error::store("open the store", "schema windlass is at step 1 of 4: migrate it first");
        let error = told(behind, "postgres://ada:secret@host/db");
        assert_eq!(exit::code(&error), Some(Exit::Conflict));
        let advice = exit::advice(&error).expect("advice");
        assert!(
            advice.contains("store migrate --store postgres://ada@host/db") && !advice.contains("secret"),
            "{advice}"
        );
    }
}
