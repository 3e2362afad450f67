//! Brings a file's tables up to the version that this program knows: numbered steps, forward only, under SQLite's lock.

use rusqlite::Connection;

use super::fault::{Answer, Fault};
use super::ids::KEY_BYTES;
use crate::error::Error;

/// Each migration once, in order; the place in the list is its number, from 1. Never edited once released.
const MIGRATIONS: [&str; 4] = [
    include_str!("migrations/0001_tables.sql"),
    include_str!("migrations/0002_places.sql"),
    include_str!("migrations/0003_records.sql"),
    include_str!("migrations/0004_outlived.sql"),
];

/// The newest version of the tables that this program can use.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// The statements that make the tables in an empty file, for teams that apply them with tools of their own.
pub fn sql() -> String {
    let mut all = format!("begin immediate;\n\n{}", include_str!("sql/create_version.sql"));
    for (number, migration) in (1..).zip(MIGRATIONS) {
        all.push_str(&format!("\n-- Step {number}.\n"));
        all.push_str(migration);
        all.push_str(&include_str!("sql/set_version.sql").replace("?1", &number.to_string()));
    }
    all.push('\n');
    all.push_str(&include_str!("sql/create_store.sql").replace("(1, 0, 0, 0, 0, ?1)", &random_key()));
    all.push_str("\ncommit;\n");
    all
}

/// The row of numbers with a key that SQLite draws.
fn random_key() -> String {
    format!("(1, 0, 0, 0, 0, randomblob({KEY_BYTES}))")
}

/// Refuses a file whose tables are not those that this program knows.
pub(super) fn check(conn: &Connection) -> Answer<()> {
    let version = version(conn)?;
    if version < SCHEMA_VERSION {
        let problem = format!("its tables have version {version} of {SCHEMA_VERSION}: migrate it first");
        return Err(Fault::Refused(Error::store("open the SQLite store", problem)));
    }
    Ok(())
}

/// Applies what is missing, inside the caller's transaction or in one of its own.
pub(super) fn migrate(conn: &Connection) -> Answer<()> {
    // Looked at before anything is locked: an open of a file that is up to date, even one that cannot be written to,
    // takes no lock.
    if version(conn)? == SCHEMA_VERSION {
        return Ok(());
    }
    if !conn.is_autocommit() {
        return apply(conn);
    }
    conn.execute_batch("begin immediate")?;
    let applied = apply(conn);
    conn.execute_batch(if applied.is_ok() { "commit" } else { "rollback" })?;
    applied
}

fn apply(conn: &Connection) -> Answer<()> {
    // Once more, now that nobody else can migrate.
    let version = version(conn)?;
    if version > SCHEMA_VERSION {
        let problem = format!("its tables have version {version}, this program knows versions up to {SCHEMA_VERSION}");
        return Err(Fault::Refused(Error::store("open the SQLite store", problem)));
    }
    if version == 0 {
        conn.execute_batch(include_str!("sql/create_version.sql"))?;
    }
    for (number, migration) in (1..).zip(MIGRATIONS).skip(usize::try_from(version).unwrap_or(0)) {
        conn.execute_batch(migration)?;
        conn.execute(include_str!("sql/set_version.sql"), [number])?;
    }
    let mut key = Vec::with_capacity(KEY_BYTES);
    while key.len() < KEY_BYTES {
        key.extend_from_slice(uuid::Uuid::new_v4().as_bytes());
    }
    conn.execute(include_str!("sql/create_store.sql"), [key])?;
    Ok(())
}

/// The version of the tables in a file; 0 where there are none.
pub(super) fn version(conn: &Connection) -> Answer<i64> {
    let there: i64 = conn.query_row(include_str!("sql/has_version.sql"), [], |row| row.get(0))?;
    if there == 0 {
        return Ok(0);
    }
    Ok(conn.query_row(include_str!("sql/get_version.sql"), [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_statements_make_a_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs.db");
        let conn = Connection::open(&path).expect("open");
        conn.execute_batch(&sql()).expect("the statements run");
        drop(conn);
        let store = super::super::SqliteOptions::new(&path).existing().open().expect("a store");
        assert_eq!(store.path(), path);
    }

    #[test]
    fn a_file_that_must_exist_is_not_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("typo.db");
        assert!(super::super::SqliteOptions::new(&path).existing().open().is_err());
        assert!(!path.exists());
        Connection::open(&path).expect("open").execute_batch("create table t (a)").expect("an application's own file");
        let refused = super::super::SqliteOptions::new(&path).existing().open().expect_err("no tables of ours");
        assert!(refused.to_string().contains("version 0 of"), "{refused}");
    }
}
