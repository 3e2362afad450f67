//! The schema: numbered steps that only go forward, under a lock, refused by programs that are older than the schema.

use super::fault::Fault;
use super::link::{Link, text};
use crate::error::Error;

/// The steps, by number from 1. A step that was released is never edited.
const STEPS: [&str; 7] = [
    include_str!("migrations/0001_jobs.sql"),
    include_str!("migrations/0002_rest.sql"),
    include_str!("migrations/0003_events.sql"),
    include_str!("migrations/0004_enqueue.sql"),
    include_str!("migrations/0005_faster.sql"),
    include_str!("migrations/0006_leases.sql"),
    include_str!("migrations/0007_lifetimes.sql"),
];

/// The newest step of the schema that this program can use.
pub const SCHEMA_VERSION: usize = STEPS.len();

/// The statements that take the schema from this step (0 for none at all) to the newest, for teams that apply them with
/// tools of their own.
///
/// They suit a role that may create the schema; the role of the program needs only `usage` on it and on its sequences,
/// and `select, insert, update, delete` on its tables.
pub(super) fn sql(schema: &str, from: usize) -> String {
    let mut all = String::new();
    if from == 0 {
        all.push_str(&format!("create schema if not exists {schema};\n"));
        all.push_str(&text(include_str!("sql/migration_make.sql"), schema));
    }
    for (number, step) in (1..).zip(STEPS).skip(from) {
        all.push_str(&format!("\n-- Step {number}.\n"));
        all.push_str(&text(step, schema));
        let note = format!("insert into windlass.migration (number) values ({number});\n");
        all.push_str(&text(&note, schema));
    }
    all
}

/// Brings the schema up to date, or finds that it is.
pub(super) async fn migrate(link: &mut Link<'_>, schema: &str, turn: i64) -> Result<(), Fault> {
    let newest = STEPS.len();
    if found(link, schema).await? == Some(newest) {
        return Ok(());
    }
    link.begin().await?;
    let answer = apply(link, schema, turn).await;
    match answer {
        Ok(()) => link.commit().await,
        Err(fault) => {
            link.roll_back().await;
            Err(fault)
        }
    }
}

/// Refuses a schema that is not the one this program knows.
pub(super) async fn check(link: &Link<'_>, schema: &str) -> Result<(), Fault> {
    match found(link, schema).await? {
        Some(number) if number == STEPS.len() => Ok(()),
        found => Err(unfit(schema, found.unwrap_or_default())),
    }
}

async fn apply(link: &Link<'_>, schema: &str, turn: i64) -> Result<(), Fault> {
    link.query(include_str!("sql/migration_turn.sql"), &[&turn]).await?;
    let there = found(link, schema).await?;
    if there.is_none() {
        // A role that owns only its schema may not even try to create one.
        if link.query(include_str!("sql/schema_find.sql"), &[&schema]).await?.is_empty() {
            link.batch(&format!("create schema {schema}")).await?;
        }
        link.batch(&text(include_str!("sql/migration_make.sql"), schema)).await?;
    }
    let there = there.unwrap_or_default();
    if there > STEPS.len() {
        return Err(unfit(schema, there));
    }
    for (number, step) in (1..).zip(STEPS).skip(there) {
        link.batch(&text(step, schema)).await?;
        link.execute(include_str!("sql/migration_put.sql"), &[&number]).await?;
    }
    Ok(())
}

/// The newest step that the schema has; `None` where there is no schema.
async fn found(link: &Link<'_>, schema: &str) -> Result<Option<usize>, Fault> {
    let there: bool = link.query(include_str!("sql/migration_is.sql"), &[&schema]).await?[0].get(0);
    if !there {
        return Ok(None);
    }
    let newest: i32 = link.query(include_str!("sql/migration_last.sql"), &[]).await?[0].get(0);
    match usize::try_from(newest) {
        Ok(newest) if newest > STEPS.len() => Err(unfit(schema, newest)),
        newest => Ok(Some(newest.unwrap_or_default())),
    }
}

fn unfit(schema: &str, there: usize) -> Fault {
    let known = STEPS.len();
    let problem = if there > known {
        format!("schema {schema} is at step {there}, but this program knows only {known}: use a newer program")
    } else {
        format!("schema {schema} is at step {there} of {known}: migrate it first")
    };
    Fault::Said(Error::store("open the store", problem))
}
