//! Stores that belong to one command: the demonstration's, the benchmark's and the one that is filled to be looked at.
//!
//! All settle jobs without doing their work and remove what has ended. So they take no store but one that nobody has
//! used, or one that they marked when nobody had, whatever a flag, the environment or a file says. The mark is a record of
//! the store itself ([`Store::own`]): every store keeps it, a server passes it on, and it shows in no list.

use std::sync::Arc;

use anyhow::Context;
use windlass::Error;
use windlass::store::sqlite::SqliteOptions;
use windlass::store::{self, PostgresOptions, PostgresStore, SqliteUrl, Store};

use crate::cli::exit::{End, Exit};

/// Whom a store belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// `windlass run --demo`.
    Demo,
    /// `windlass bench`.
    Bench,
    /// `windlass demo-fill`.
    Fill,
}

impl Owner {
    const fn command(self) -> &'static str {
        match self {
            Owner::Demo => "windlass run --demo",
            Owner::Bench => "windlass bench",
            Owner::Fill => "windlass demo-fill",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Owner::Demo => {
                "leave out --store, WINDLASS_STORE and `store` in the file: it then makes windlass-demo.db for itself"
            }
            Owner::Bench => "name a new file, or a PostgreSQL schema of its own: --store 'postgres://…?schema=bench'",
            Owner::Fill => "name a new file, or a PostgreSQL schema of its own",
        }
    }

    /// The refusal of a store.
    fn refuses(self, url: &str, why: &str) -> anyhow::Error {
        let (shown, command) = (store::redacted(url), self.command());
        End::new(Exit::Conflict, format!("`{command}` will not touch {shown}: {why}")).advise(self.advice()).into()
    }
}

/// Opens a store for its owner and marks it; refuses one that somebody else has used, and does not migrate it.
pub(crate) async fn open(url: &str, owner: Owner) -> anyhow::Result<Arc<dyn Store>> {
    let store = match as_it_is(url).await? {
        Some(store) => store,
        None => store::open(url).await.with_context(|| format!("cannot open {}", store::redacted(url)))?,
    };
    take(&*store, url, owner).await?;
    Ok(store)
}

/// Marks a store that nobody has used, and finds the mark in one that was.
pub(crate) async fn take(store: &dyn Store, url: &str, owner: Owner) -> anyhow::Result<()> {
    match store.own(owner.command()).await {
        Ok(()) => Ok(()),
        Err(Error::Conflict(why)) => Err(owner.refuses(url, &why)),
        Err(error) => Err(error).context("cannot mark the store"),
    }
}

/// The store at this URL as it was found: nothing is made and nothing migrated. `None` where there is none yet.
async fn as_it_is(url: &str) -> anyhow::Result<Option<Arc<dyn Store>>> {
    let opened = match url.split(':').next() {
        Some("sqlite") => {
            let path = SqliteUrl::parse(url)?.path;
            if path.metadata().map_or(true, |about| about.len() == 0) {
                return Ok(None);
            }
            let options = SqliteOptions::new(path).existing();
            tokio::task::spawn_blocking(move || options.open()).await?.map(|store| Arc::new(store) as Arc<dyn Store>)
        }
        Some("postgres" | "postgresql") => {
            let options = PostgresOptions::new(url)?.without_migrations();
            match PostgresStore::with(options).await {
                Err(error) if error.to_string().contains("is at step 0 of") => return Ok(None),
                opened => opened.map(|store| Arc::new(store) as Arc<dyn Store>),
            }
        }
        _ => return Ok(None),
    };
    opened.map(Some).with_context(|| format!("cannot open {}", store::redacted(url)))
}

/// Refuses a SQLite file of another program, in which a server would make its tables without being asked to.
pub(crate) fn refuse_foreign_file(url: &str) -> anyhow::Result<()> {
    if !url.starts_with("sqlite:") {
        return Ok(());
    }
    let path = SqliteUrl::parse(url)?.path;
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let Ok(file) = rusqlite::Connection::open_with_flags(&path, flags) else { return Ok(()) };
    let tables = "select count(*), coalesce(sum(name like 'windlass%'), 0) from sqlite_master where type = 'table'";
    let found = file.query_row(tables, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
    match found {
        Ok((all, 0)) if all > 0 => {
            let found = format!("it has {all} tables, none of Windlass");
            Err(End::new(Exit::Conflict, format!("{} is the file of another program: {found}", path.display()))
                .advise(format!("to keep jobs in it, run `windlass store migrate --store {url}` first"))
                .into())
        }
        // What cannot be read is told by opening it.
        _ => Ok(()),
    }
}
