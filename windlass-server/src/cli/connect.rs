//! How a command reaches its jobs: straight through a store, or through a server. The commands see no difference.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use windlass::store::{self, Keyring, MemoryStore, PostgresOptions, PostgresStore, SqliteUrl, Store};
use windlass::store::{SqliteOptions, SqliteStore};
use windlass::{Client, Error, Policies};

use super::exit::{self, End, Exit};
use super::output::{Out, OutputArgs, say};
use crate::remote::{ClientTls, HttpStore};
use crate::serve::config::{Whereabouts, policies_in, whereabouts_in};

/// The server that is asked unless another or a store is named.
const SERVER_DEFAULT: &str = "http://127.0.0.1:7654";

/// How long a server on this machine may take to start before it counts as not there.
const STARTS_WITHIN: Duration = Duration::from_secs(2);
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Where the jobs are.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Reach {
    /// Open this store: sqlite:PATH or postgres://… [env: WINDLASS_STORE]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    store: Option<String>,
    /// Or ask this server; http://127.0.0.1:7654 unless named [env: WINDLASS_SERVER]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    server: Option<String>,
    /// Settings from this file, see docs/configuration.md [env: WINDLASS_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    config: Option<PathBuf>,
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
    /// A store, if one is named, or else a server.
    fn of(store: Option<String>, server: Option<String>) -> Option<Self> {
        store.map(Place::Store).or(server.map(Place::Server))
    }

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

    /// Whether it is a server on this machine.
    fn is_near(&self) -> bool {
        let Place::Server(url) = self else { return false };
        let host = url.split("://").nth(1).unwrap_or_default();
        ["127.", "localhost", "[::1]"].iter().any(|near| host.starts_with(near))
    }

    /// The file of a SQLite store that this process opens.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let url = self.store_url().filter(|url| url.starts_with("sqlite:"))?;
        SqliteUrl::parse(url).ok().map(|url| url.path)
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
    /// What was typed wins over the environment, that over the file, and a store over a server.
    pub(crate) fn place(&self) -> Result<Place, End> {
        if let Some(place) = self.named()? {
            return Ok(place);
        }
        let file = self.whereabouts()?;
        let default = || Place::Server(SERVER_DEFAULT.to_owned());
        Ok(Place::of(file.store, file.server).unwrap_or_else(default))
    }

    /// What was typed or is in the environment.
    fn named(&self) -> Result<Option<Place>, End> {
        if self.store.is_some() && self.server.is_some() {
            return Err(End::usage("--store and --server cannot both be meant")
                .advise("name the store to open it here, or the server to ask it"));
        }
        let typed = Place::of(self.store.clone(), self.server.clone());
        Ok(typed.or_else(|| Place::of(set("WINDLASS_STORE"), set("WINDLASS_SERVER"))))
    }

    /// The store that a server is to keep its jobs in, unless its file or nobody says.
    pub(crate) fn store_for_server(&self) -> Result<Option<String>, End> {
        // A server has no use for another one.
        Ok(self.named()?.and_then(|place| place.store_url().map(str::to_owned)))
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| set("WINDLASS_CONFIG").map(PathBuf::from))
    }

    fn whereabouts(&self) -> Result<Whereabouts, End> {
        let Some(path) = self.config() else { return Ok(Whereabouts::default()) };
        whereabouts_in(&path).map_err(|error| {
            End::usage(format!("{error:#}")).advise("correct the file that --config or WINDLASS_CONFIG names")
        })
    }

    fn policies(&self) -> Result<Policies, End> {
        let Some(path) = self.config() else { return Ok(Policies::default()) };
        policies_in(&path).map_err(|error| {
            End::usage(format!("{error:#}")).advise("correct the file that --config or WINDLASS_CONFIG names")
        })
    }

    fn token(&self) -> Result<Option<String>, End> {
        match set("WINDLASS_TOKEN") {
            Some(token) => Ok(Some(token)),
            None => Ok(self.whereabouts()?.token),
        }
    }

    /// What payloads in a store are encrypted with.
    fn keys(&self) -> Result<Option<Keyring>, End> {
        match self.config() {
            Some(_) => Ok(self.whereabouts()?.keys),
            None => crate::keys::in_force(None, None).map_err(|error| End::usage(format!("{error:#}"))),
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

    /// The same for a command that goes on when the store is moved.
    pub(crate) async fn open_and_follow(&self, output: &OutputArgs) -> anyhow::Result<Session> {
        self.session_over(output, Missing::Made, crate::moved::followed).await
    }

    async fn session(&self, output: &OutputArgs, missing: Missing) -> anyhow::Result<Session> {
        self.session_over(output, missing, |store| store).await
    }

    async fn session_over(
        &self,
        output: &OutputArgs,
        missing: Missing,
        over: fn(Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> anyhow::Result<Session> {
        let place = self.place()?;
        let mut server = None;
        let store: Arc<dyn Store> = match &place {
            Place::Store(url) => crate::keys::over(over(open_store(url, missing).await?), self.keys()?),
            Place::Server(url) => {
                let token = self.token()?;
                if token.is_some() && is_in_the_open(url) {
                    say(format!(
                        "the token travels over plain HTTP to {}: anybody on the way can read it",
                        place.shown()
                    ));
                }
                Arc::new(server.insert(HttpStore::connect_with(url, token, client_tls()?)?).clone())
            }
        };
        let now = first_answer(&*store, &place).await.map_err(|error| unreached(error, &place))?;
        // What is put in is checked here, under what its server or the configuration file says.
        let policies = match (missing, &server) {
            (Missing::Refused, _) => Policies::default(),
            (Missing::Made, Some(server)) => server.policies().await?,
            (Missing::Made, None) => self.policies()?,
        };
        Ok(Session {
            client: Client::with_store(store).policies(policies),
            out: Out { format: output.output, now },
            place,
        })
    }
}

/// The certificates that the environment names: `WINDLASS_TLS_CA`, `WINDLASS_TLS_CERT` and `WINDLASS_TLS_KEY` are files.
fn client_tls() -> Result<ClientTls, End> {
    let read = |name: &str| {
        let path = set(name)?;
        Some(std::fs::read(&path).map_err(|error| End::usage(format!("{name}: cannot read {path}: {error}"))))
    };
    let authorities = read("WINDLASS_TLS_CA").transpose()?;
    let identity = match (read("WINDLASS_TLS_CERT").transpose()?, read("WINDLASS_TLS_KEY").transpose()?) {
        (Some(cert), Some(key)) => Some([cert, b"\n".to_vec(), key].concat()),
        (None, None) => None,
        _ => return Err(End::usage("WINDLASS_TLS_CERT and WINDLASS_TLS_KEY go together".to_owned())),
    };
    Ok(ClientTls { authorities, identity })
}

/// Whether what is sent to this server leaves the machine without TLS.
fn is_in_the_open(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_start_matches('[').trim_end_matches(']');
    name != "localhost" && !name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The store's time. A server on this machine that refuses connections may have been started a moment ago, by the line
/// above in the same script, so it is asked again for a short time.
async fn first_answer(store: &dyn Store, place: &Place) -> windlass::Result<windlass::Timestamp> {
    let until = Instant::now() + STARTS_WITHIN;
    loop {
        match store.now().await {
            Err(error) if place.is_near() && exit::of(&error) == Exit::Unreachable && Instant::now() < until => {
                tokio::time::sleep(ASKED_AGAIN_AFTER).await;
            }
            answer => return answer,
        }
    }
}

/// The error of the first call, with what to do when nobody answers.
fn unreached(error: Error, place: &Place) -> anyhow::Error {
    match (exit::of(&error), place) {
        (Exit::Unreachable, Place::Server(_)) => {
            let advice =
                "start one with `windlass run`, name another with --server, or open the store itself with --store";
            End::new(Exit::Unreachable, format!("no server answers at {}: {error}", place.shown()))
                .advise(advice)
                .into()
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
    let SqliteUrl { path, create, .. } = SqliteUrl::parse(url)?;
    let options = SqliteOptions::new(&path);
    let missing = if create { missing } else { Missing::Refused };
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
    fn a_server_on_this_machine_is_told_from_others() {
        let near = |url: &str| Place::Server(url.to_owned()).is_near();
        assert!(near(SERVER_DEFAULT) && near("http://localhost:1") && near("http://[::1]:7654"));
        assert!(!near("https://jobs.example.com") && !Place::Store("sqlite:127.db".to_owned()).is_near());
    }

    #[test]
    fn a_token_in_the_open_is_noticed() {
        for (url, open) in [
            ("http://127.0.0.1:7654", false),
            ("http://localhost:7654/", false),
            ("http://[::1]:7654", false),
            ("https://jobs.example.com", false),
            ("http://jobs.example.com", true),
            ("http://10.0.0.7:7654", true),
        ] {
            assert_eq!(is_in_the_open(url), open, "{url}");
        }
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
