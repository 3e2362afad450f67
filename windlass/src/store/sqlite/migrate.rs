//! Brings a file's tables up to the version that this program knows: numbered steps, forward only, under SQLite's lock.

use rusqlite::Connection;

use super::fault::{Answer, Fault};
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::store::ids::KEY_BYTES;
use crate::store::open::UnderWorkers;
use crate::store::request::WORKER_LIVE;

/// Each step once, in order; the place in the list is its number, from 1. Never edited once released.
const STEPS: [&str; 1] = [concat!(
    include_str!("migrations/0001_jobs.sql"),
    include_str!("migrations/0001_flow.sql"),
    include_str!("migrations/0001_places.sql"),
    include_str!("migrations/0001_records.sql"),
)];

/// The newest version of the tables that this program can use.
pub const SCHEMA_VERSION: i64 = STEPS.len() as i64;

/// The statements that make the tables in an empty file, for teams that apply them with tools of their own.
pub fn sql() -> String {
    let mut all = format!("begin immediate;\n\n{}", include_str!("sql/create_version.sql"));
    for (number, step) in (1..).zip(STEPS) {
        all.push_str(&format!("\n-- Step {number}.\n"));
        all.push_str(step);
        all.push_str(&include_str!("sql/add_version.sql").replace("?1", &number.to_string()));
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
pub(super) fn migrate(conn: &Connection, under: UnderWorkers) -> Answer<()> {
    migrate_by(&STEPS, conn, under)
}

/// The same with these steps, which is for tests to choose.
fn migrate_by(steps: &[&str], conn: &Connection, under: UnderWorkers) -> Answer<()> {
    // Looked at before anything is locked: an open of a file that is up to date, even one that cannot be written to,
    // takes no lock.
    if usize::try_from(version(conn)?) == Ok(steps.len()) {
        return Ok(());
    }
    if !conn.is_autocommit() {
        return apply(steps, conn, under);
    }
    conn.execute_batch("begin immediate")?;
    let applied = apply(steps, conn, under);
    conn.execute_batch(if applied.is_ok() { "commit" } else { "rollback" })?;
    applied
}

fn apply(steps: &[&str], conn: &Connection, under: UnderWorkers) -> Answer<()> {
    // Once more, now that no other process can migrate.
    let version = version(conn)?;
    let (there, known) = (usize::try_from(version).unwrap_or_default(), steps.len());
    if there > known {
        let problem = format!("its tables have version {there}, this program knows versions up to {known}");
        return Err(Fault::Refused(Error::store("open the SQLite store", problem)));
    }
    if there == 0 {
        conn.execute_batch(include_str!("sql/create_version.sql"))?;
    }
    if there > 0 && there < known && under == UnderWorkers::Refuse {
        refuse_under_workers(conn, there, known)?;
    }
    for (number, step) in (1..).zip(steps).skip(there) {
        conn.execute_batch(step)?;
        conn.execute(include_str!("sql/add_version.sql"), [number])?;
    }
    let mut key = Vec::with_capacity(KEY_BYTES);
    while key.len() < KEY_BYTES {
        key.extend_from_slice(uuid::Uuid::new_v4().as_bytes());
    }
    conn.execute(include_str!("sql/create_store.sql"), [key])?;
    Ok(())
}

/// Refuses to change tables that workers of an older program use.
fn refuse_under_workers(conn: &Connection, there: usize, known: usize) -> Answer<()> {
    let since = SystemClock::default().now().minus(WORKER_LIVE).as_micros();
    let mut statement = conn.prepare(include_str!("sql/list_workers.sql"))?;
    let live = statement.query_map([since], |_| Ok(()))?.count();
    if live == 0 {
        return Ok(());
    }
    let problem = format!(
        "its tables have version {there} of {known}, and {live} live workers of an older program use them: stop them first, or \
         let `windlass store migrate --force` migrate them under these"
    );
    Err(Fault::Refused(Error::store("open the SQLite store", problem)))
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
    use super::super::SqliteStore;
    use super::*;
    use crate::job::{Limits, NewJob, Payload, Policies, State};
    use crate::store::Store;
    use crate::workflow::Submission;

    #[tokio::test]
    async fn a_file_of_an_older_program_is_migrated_with_its_jobs() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs.db");
        let store = SqliteStore::open(&path).expect("step 1");
        let spec = NewJob::new("test", Payload::default()).check(&Limits::default(), &Policies::default());
        let batch = Submission::new(vec![spec.expect("valid")]).expect("a batch");
        let job = store.insert(batch).await.expect("a job of the older program").jobs[0].id;
        drop(store);

        let later = "alter table windlass_job add column mark text; update windlass_job set mark = 'kept';";
        let conn = Connection::open(&path).expect("open");
        let now = SystemClock::default().now().as_micros();
        let alive = "insert into windlass_worker (id, report, started_at, seen_at) values ('old', '{}', 0, ?1)";
        conn.execute(alive, [now]).expect("a worker of the older program");
        let steps = [STEPS[0], later];
        let refused = migrate_by(&steps, &conn, UnderWorkers::Refuse).expect_err("it lives");
        let refused = refused.into_error("open", true).to_string();
        assert!(refused.contains("version 1 of 2, and 1 live workers"), "{refused}");
        migrate_by(&steps, &conn, UnderWorkers::Migrate).expect("step 2");
        migrate_by(&steps, &conn, UnderWorkers::Refuse).expect("nothing is left to do");
        let marked = conn.query_row("select count(*) from windlass_job where mark = 'kept'", [], |row| row.get(0));
        assert_eq!(marked, Ok(1));
        let refused = SqliteStore::open(&path).expect_err("the older program").to_string();
        assert!(refused.contains("version 2, this program knows versions up to 1"), "{refused}");

        conn.execute_batch("delete from windlass_version where version = 2").expect("the older program again");
        let store = SqliteStore::open(&path).expect("open");
        let found = store.find(&[job]).await.expect("find");
        assert_eq!(found[0].as_ref().map(|job| job.state), Some(State::Scheduled));
    }

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
