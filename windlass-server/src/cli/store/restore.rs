//! `windlass store restore`: puts a backup in the place of a SQLite store, whole and alone.
//!
//! Copying a file over a live one is a trap: the log beside it holds later commits, which SQLite would replay over the copy.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use rusqlite::{Connection, OpenFlags};
use windlass::store::{SqliteUrl, redacted};

use crate::cli::connect::Reach;
use crate::cli::exit::{End, Exit};
use crate::cli::output::say;

/// Files that SQLite keeps beside a database, and that belong to the old one.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

pub(super) fn run(reach: &Reach, from: &Path) -> anyhow::Result<()> {
    let url = reach.store_url("restoring")?;
    if !url.starts_with("sqlite:") {
        return Err(End::usage(format!("{} is not restored by windlass", redacted(&url)))
            .advise("use the database's own tools, such as pg_restore; only SQLite files are put back here")
            .into());
    }
    let to = SqliteUrl::parse(&url)?.path;
    check_backup(from)?;
    // Held until the new file is in place: nobody can begin to read the old one meanwhile.
    let held = if to.exists() { Some(take(&to)?) } else { None };
    let copy = beside(&to, "-restoring");
    // What an interrupted restore left there, or a link, which is not followed.
    remove(&copy)?;
    write_copy(from, &copy, to.metadata().ok().as_ref())
        .with_context(|| format!("cannot copy {} to {}", from.display(), copy.display()))?;
    let kept = held.is_some().then(|| kept_name(&to));
    if let Some(kept) = &kept {
        std::fs::rename(&to, kept).with_context(|| format!("cannot set {} aside", to.display()))?;
    }
    for end in BESIDE {
        remove(&beside(&to, end))?;
    }
    std::fs::rename(&copy, &to).with_context(|| format!("cannot put {} in place", to.display()))?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).context("cannot write the folder to disk")?;
    drop(held);
    say(format!("restored {} from {}", to.display(), from.display()));
    if let Some(kept) = kept {
        say(format!("the store that was there is kept as {}", kept.display()));
    }
    say("jobs that ran since the backup was made run again; `windlass queues pause` holds them back while you look");
    Ok(())
}

/// Copies a backup into a new file for its owner alone, or with the rights of the store whose place it takes.
fn write_copy(from: &Path, copy: &Path, replaced: Option<&Metadata>) -> std::io::Result<()> {
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(copy)?;
    std::io::copy(&mut File::open(from)?, &mut new)?;
    if let Some(replaced) = replaced {
        new.set_permissions(replaced.permissions())?;
    }
    new.sync_all()
}

/// Refuses what is no whole store.
fn check_backup(from: &Path) -> anyhow::Result<()> {
    let refused = |problem: String| {
        let message = format!("{} is no backup of a store: {problem}", from.display());
        End::usage(message).advise("name a file that `windlass store backup` made")
    };
    if !from.exists() {
        return Err(End::new(Exit::NotFound, format!("there is no file {}", from.display())).into());
    }
    if beside(from, "-wal").metadata().is_ok_and(|log| log.len() > 0) {
        return Err(refused("a log lies beside it, so it was copied by other means or is in use".to_owned()).into());
    }
    let look = || -> rusqlite::Result<(i64, String)> {
        // Nobody writes to a backup: without that word SQLite makes a log beside a file that it only reads.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let conn = Connection::open_with_flags(unchanging(from), flags)?;
        let tables = "select count(*) from sqlite_master where type = 'table' and name = 'windlass_store'";
        let found = conn.query_row(tables, [], |row| row.get(0))?;
        Ok((found, conn.query_row("pragma quick_check(1)", [], |row| row.get(0))?))
    };
    match look() {
        Ok((1.., whole)) if whole == "ok" => Ok(()),
        Ok((0, _)) => Err(refused("it holds no jobs".to_owned()).into()),
        Ok((_, damage)) => Err(refused(damage).into()),
        Err(error) => Err(refused(error.to_string()).into()),
    }
}

/// The name by which SQLite reads a file that nobody changes.
fn unchanging(path: &Path) -> PathBuf {
    let mut name = OsString::from("file:");
    let escaped = path.as_os_str().as_bytes().iter().flat_map(|byte| match byte {
        b'%' | b'?' | b'#' => format!("%{byte:02X}").into_bytes(),
        other => vec![*other],
    });
    name.push(OsString::from_vec(escaped.collect()));
    name.push("?immutable=1");
    PathBuf::from(name)
}

/// Takes the old file for ourselves alone, its log written back; refused while another program has it open.
fn take(to: &Path) -> anyhow::Result<Connection> {
    let taken = || -> rusqlite::Result<Connection> {
        let conn = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.busy_timeout(Duration::ZERO)?;
        // Leaving the log needs every other connection to be closed.
        let mode: String = conn.query_row("pragma journal_mode = delete", [], |row| row.get(0))?;
        if mode != "delete" {
            return Err(rusqlite::Error::InvalidParameterName(format!("its log stays in mode {mode}")));
        }
        conn.execute_batch("begin exclusive")?;
        Ok(conn)
    };
    taken().map_err(|error| {
        End::new(Exit::Conflict, format!("cannot replace {}: {error}", to.display()))
            .advise(
                "stop every server, worker and command that has it open; a damaged file is moved away by hand first",
            )
            .into()
    })
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// A name for the old file that nothing has yet.
fn kept_name(to: &Path) -> PathBuf {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    beside(to, &format!("-before-{since}"))
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(anyhow::Error::new(error).context(format!("cannot remove {}", path.display())))
        }
        _ => Ok(()),
    }
}
