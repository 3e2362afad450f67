//! `windlass store`: the store itself, its tables, its health, its copies.

mod moving;
mod reencrypt;
mod restore;
mod status;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use windlass::State;
use windlass::store::postgres::SCHEMA_DEFAULT;
use windlass::store::{Act, Cursor, Filter, PostgresOptions, PostgresStore, SqliteOptions, redacted, sqlite};

pub(crate) use self::reencrypt::STEP as REENCRYPT_STEP;
pub(crate) use self::status::{file_sizes, schema_version, size};
use super::bulk::{self, HowArgs};
use super::connect::{self, Missing, Reach};
use super::exit::{End, Exit};
use super::output::{Format, OutputArgs, PageArgs, say};
use super::parse;
use super::table::clean;
use crate::wire;

/// What `windlass store` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List what operators did, newest first
    #[command(after_help = "Example:\n  windlass store acts --limit 10")]
    Acts {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Make the tables of a store, or bring them up to date
    #[command(after_help = "\
No other command changes tables that are there. Workers that are older than the tables refuse the store.
Example:
  windlass store migrate --store sqlite:jobs.db")]
    Migrate {
        /// Migrate even while workers of an older program use the store
        #[arg(long)]
        force: bool,
    },
    /// Say what the store is, how large, and what is in it
    #[command(after_help = "Example:\n  windlass store status --store sqlite:jobs.db")]
    Status,
    /// Print the statements that make the tables, for your own migrations
    #[command(after_help = "\
Needs no store.
Example:
  windlass store sql --schema jobs > migrations/0042_windlass.sql")]
    Sql {
        /// Of which store
        #[arg(value_enum, default_value_t, value_name = "KIND")]
        kind: Kind,
        /// The name of the schema, for PostgreSQL
        #[arg(long, default_value = SCHEMA_DEFAULT, value_name = "NAME")]
        schema: String,
    },
    /// Look for inconsistencies in what is stored
    #[command(
        after_help = "Reads everything: not for busy hours. Exit code 1 if something is found.\nExample:\n  windlass store check"
    )]
    Check,
    /// Copy a SQLite store to a new file while it is in use
    #[command(after_help = "Example:\n  windlass store backup jobs-2026-11-01.db --store sqlite:jobs.db")]
    Backup {
        /// The new file
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
    /// Move a store into an empty one while producers and workers use it
    #[command(after_help = "\
Copies while the store is used, pauses it for a moment, and switches. From then on the old store
refuses every write and says where it went; `windlass run` and `windlass worker` go along.
Example:
  windlass store move --from sqlite:jobs.db --to postgres://windlass@db/jobs")]
    Move(moving::Arguments),
    /// Put a backup in the place of a SQLite store that nobody uses
    #[command(after_help = "\
Refuses while any program has the store open. The store that was there is kept beside it.
Example:
  windlass store restore jobs-2026-11-01.db --store sqlite:jobs.db")]
    Restore {
        /// The backup
        #[arg(value_name = "FILE")]
        from: PathBuf,
    },
    /// Encrypt again what is not under the current key
    #[command(after_help = "\
Looks at every payload, result, checkpoint and template of a schedule, and says how much is
under which key. Safe while jobs run; may be stopped and begun again. A key can leave the keyring
when a whole walk finds nothing under it. Servers do the same while the keyring holds several.
Example:
  windlass store reencrypt --store sqlite:jobs.db --config windlass.toml --dry-run")]
    Reencrypt {
        /// Only count
        #[arg(long)]
        dry_run: bool,
        /// Go on from a place that an interrupted walk named
        #[arg(long, value_name = "PLACE")]
        after: Option<String>,
    },
    /// Remove ended jobs that are older than they need be
    #[command(after_help = "\
Workers and servers prune by themselves; this is for more, or for when none runs.
Example:
  windlass store prune --older-than 7d --state completed,cancelled,failed --dry-run")]
    Prune {
        /// Jobs that ended longer ago than this
        #[arg(long, value_name = "AGE", default_value = "24h", value_parser = parse::duration)]
        older_than: Duration,
        /// Jobs that ended in one of these states
        #[arg(long, value_delimiter = ',', value_name = "STATE", default_values = ["completed", "cancelled"])]
        state: Vec<State>,
        #[command(flatten)]
        how: HowArgs,
    },
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Kind {
    #[default]
    Postgres,
    Sqlite,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let output = &arguments.output;
    match arguments.command {
        Command::Acts { page } => {
            let session = reach.open(output).await?;
            let next = async |limit: usize, after: Option<Cursor>| session.client.acts(limit, after.as_ref()).await;
            session.out.pages(&page, "no operator has done anything yet", next).await
        }
        Command::Migrate { force } => migrate(reach, force).await,
        Command::Status => status::run(&reach.open(output).await?).await,
        Command::Sql { kind, schema } => {
            let sql = match kind {
                Kind::Postgres => PostgresStore::sql(&schema)?,
                Kind::Sqlite => sqlite::sql(),
            };
            Ok(std::io::Write::write_all(&mut std::io::stdout(), sql.as_bytes())?)
        }
        Command::Check => check(reach, output).await,
        Command::Backup { to } => backup(reach, to).await,
        Command::Move(arguments) => moving::run(&arguments).await,
        Command::Restore { from } => restore::run(reach, &from),
        Command::Reencrypt { dry_run, after } => reencrypt::run(&reach.open(output).await?, after, dry_run).await,
        Command::Prune { older_than, state, how } => {
            let session = reach.open(output).await?;
            if let Some(state) = state.iter().find(|state| !state.is_terminal()) {
                return Err(End::usage(format!("jobs that are {state} have not ended and are not pruned"))
                    .advise("name completed, cancelled, failed or dead_letter; `windlass jobs cancel` ends others")
                    .into());
            }
            let mut filter = Filter::new().states(state);
            filter.ended_before = Some(session.out.now.minus(older_than));
            bulk::on_all(&session, bulk::DELETE, Act::Delete, filter, &how).await
        }
    }
}

async fn migrate(reach: &Reach, force: bool) -> anyhow::Result<()> {
    let url = reach.store_url("migrating")?;
    // Opening by the library's own way brings the tables up to date.
    let opened = match (force, url.split(':').next()) {
        (true, Some("sqlite")) => {
            let path = windlass::store::SqliteUrl::parse(&url)?.path;
            SqliteOptions::new(path).migrate_under_workers().open().map(drop)
        }
        (true, Some("postgres" | "postgresql")) => {
            PostgresStore::with(PostgresOptions::new(&url)?.migrate_under_workers()).await.map(drop)
        }
        _ => windlass::store::open(&url).await.map(drop),
    };
    opened.map_err(|error| anyhow::Error::new(error).context(format!("cannot migrate {}", redacted(&url))))?;
    say(format!("the tables of {} are up to date (version {})", redacted(&url), version(&url)));
    Ok(())
}

/// The newest version of the tables that this program knows.
fn version(url: &str) -> String {
    match url.split(':').next() {
        Some("sqlite") => sqlite::SCHEMA_VERSION.to_string(),
        Some("postgres" | "postgresql") => windlass::store::postgres::SCHEMA_VERSION.to_string(),
        _ => "none".to_owned(),
    }
}

async fn check(reach: &Reach, output: &OutputArgs) -> anyhow::Result<()> {
    let session = reach.open(output).await?;
    let findings = session.store().check().await?;
    match session.out.format {
        Format::Json | Format::Jsonl => session.out.json(&wire::Findings { items: findings.clone() })?,
        Format::Table | Format::Wide | Format::Id => {
            findings.iter().try_for_each(|finding| session.out.line(clean(finding)))?;
        }
    }
    if findings.is_empty() {
        say("no inconsistencies found");
        return Ok(());
    }
    let found = match findings.len() {
        1 => "1 inconsistency was found".to_owned(),
        many => format!("{many} inconsistencies were found"),
    };
    Err(End::new(Exit::Failed, found)
        .advise("keep a copy of the store before anything else, and report it with these lines")
        .into())
}

async fn backup(reach: &Reach, to: PathBuf) -> anyhow::Result<()> {
    let url = reach.store_url("a backup")?;
    if !url.starts_with("sqlite:") {
        return Err(End::usage(format!("{} is not copied by windlass", redacted(&url)))
            .advise(
                "use the database's own tools, such as pg_dump --schema=windlass; only SQLite files are copied here",
            )
            .into());
    }
    let store = connect::open_sqlite(&url, Missing::Refused).await?;
    store.backup(&to).await?;
    let bytes = std::fs::metadata(&to).map(|file| file.len()).unwrap_or_default();
    say(format!("copied {} to {} ({})", redacted(&url), to.display(), status::size(bytes)));
    Ok(())
}
