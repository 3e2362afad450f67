//! The schema: numbered steps that only go forward, under a lock, refused by programs that are older than the schema.

use super::fault::Fault;
use super::job_rows;
use super::link::{Link, text};
use crate::error::Error;
use crate::store::open::UnderWorkers;
use crate::store::request::WORKER_LIVE;

/// The steps, by number from 1. A step that was released is never edited.
const STEPS: [&str; 1] = [concat!(
    include_str!("migrations/0001_jobs.sql"),
    include_str!("migrations/0001_places.sql"),
    include_str!("migrations/0001_records.sql"),
    include_str!("migrations/0001_flow.sql"),
    include_str!("migrations/0001_view.sql"),
    include_str!("migrations/0001_marks.sql"),
    include_str!("migrations/0001_enqueue.sql"),
)];

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
        all.push_str(&text(include_str!("sql/create_version.sql"), schema));
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
pub(super) async fn migrate(link: &mut Link<'_>, schema: &str, lock: i64, under: UnderWorkers) -> Result<(), Fault> {
    migrate_by(&STEPS, link, schema, lock, under).await
}

/// The same with these steps, which is for tests to choose.
async fn migrate_by(
    steps: &[&str],
    link: &mut Link<'_>,
    schema: &str,
    lock: i64,
    under: UnderWorkers,
) -> Result<(), Fault> {
    if newest_step(link, schema, steps.len()).await? == Some(steps.len()) {
        return Ok(());
    }
    link.begin().await?;
    let answer = apply(steps, link, schema, lock, under).await;
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
    match newest_step(link, schema, STEPS.len()).await? {
        Some(number) if number == STEPS.len() => Ok(()),
        found => Err(unfit(schema, found.unwrap_or_default(), STEPS.len())),
    }
}

async fn apply(steps: &[&str], link: &Link<'_>, schema: &str, lock: i64, under: UnderWorkers) -> Result<(), Fault> {
    link.query(include_str!("sql/lock_migrations.sql"), &[&lock]).await?;
    let there = newest_step(link, schema, steps.len()).await?;
    if there.is_none() {
        // A role that owns only its schema may not even try to create one.
        if link.query(include_str!("sql/has_schema.sql"), &[&schema]).await?.is_empty() {
            link.batch(&format!("create schema {schema}")).await?;
        }
        link.batch(&text(include_str!("sql/create_version.sql"), schema)).await?;
    }
    if let Some(at) = there.filter(|at| *at < steps.len() && under == UnderWorkers::Refuse) {
        let parameters: [super::link::Parameter<'_>; 3] = [&None::<i64>, &job_rows::micros(WORKER_LIVE), &i64::MAX];
        let live = link.query(include_str!("sql/list_workers.sql"), &parameters).await?.len();
        if live > 0 {
            return Err(used(schema, at, steps.len(), live));
        }
    }
    for (number, step) in (1..).zip(steps).skip(there.unwrap_or_default()) {
        link.batch(&text(step, schema)).await?;
        link.execute(include_str!("sql/add_version.sql"), &[&number]).await?;
    }
    Ok(())
}

/// The newest step that the schema has, which must be one of the `known`; `None` where there is no schema.
async fn newest_step(link: &Link<'_>, schema: &str, known: usize) -> Result<Option<usize>, Fault> {
    let there: bool = link.query(include_str!("sql/has_version.sql"), &[&schema]).await?[0].get("there");
    if !there {
        return Ok(None);
    }
    let newest: i32 = link.query(include_str!("sql/get_version.sql"), &[]).await?[0].get("newest");
    match usize::try_from(newest) {
        Ok(newest) if newest > known => Err(unfit(schema, newest, known)),
        newest => Ok(Some(newest.unwrap_or_default())),
    }
}

fn used(schema: &str, there: usize, known: usize, live: usize) -> Fault {
    let problem = format!(
        "schema {schema} is at step {there} of {known}, and {live} live workers of an older program use it: stop them first, or \
         let `windlass store migrate --force` migrate it under them"
    );
    Fault::Refused(Error::store("open the store", problem))
}

fn unfit(schema: &str, there: usize, known: usize) -> Fault {
    let problem = if there > known {
        format!("schema {schema} is at step {there}, but this program knows only {known}: use a newer program")
    } else {
        format!("schema {schema} is at step {there} of {known}: migrate it first")
    };
    Fault::Refused(Error::store("open the store", problem))
}

#[cfg(test)]
mod tests {
    use super::super::turns::Caller;
    use super::super::{PostgresOptions, PostgresStore};
    use super::*;
    use crate::job::{Limits, NewJob, Payload, Policies, State};
    use crate::store::Store;
    use crate::workflow::Submission;

    /// A step that a later program might have.
    const LATER: &str = "alter table windlass.job add column mark text; update windlass.job set mark = 'kept';";

    #[tokio::test(flavor = "multi_thread")]
    async fn a_schema_of_an_older_program_is_migrated_with_its_jobs() {
        let url = std::env::var("WINDLASS_TEST_POSTGRES").expect("WINDLASS_TEST_POSTGRES must name a database");
        let schema = format!("step_{}", uuid::Uuid::new_v4().simple());
        let options = PostgresOptions::new(&url).and_then(|options| options.schema(&schema)).expect("valid");
        let store = PostgresStore::with(options.clone()).await.expect("step 1");
        let spec = NewJob::new("test", Payload::default()).check(&Limits::default(), &Policies::default());
        let batch = Submission::new(vec![spec.expect("valid")]).expect("a batch");
        let job = store.insert(batch).await.expect("a job of the older program").jobs[0].id;

        let steps = [STEPS[0], LATER];
        let mut link = store.inner.link(Caller::Worker).await.expect("a connection");
        let alive = "insert into windlass.worker (id, started_at, seen_at, report)
            values ('old', 0, (extract(epoch from clock_timestamp()) * 1000000)::bigint, '{}')";
        link.batch(&text(alive, &schema)).await.expect("a worker of the older program");
        let refused = migrate_by(&steps, &mut link, &schema, 1, UnderWorkers::Refuse).await.expect_err("it lives");
        let refused = refused.into_error("open the store").to_string();
        assert!(refused.contains("step 1 of 2, and 1 live workers"), "{refused}");
        for (attempt, under) in [("step 2", UnderWorkers::Migrate), ("nothing is left to do", UnderWorkers::Refuse)] {
            migrate_by(&steps, &mut link, &schema, 1, under).await.expect(attempt);
        }
        drop(link);
        let link = store.inner.link(Caller::Worker).await.expect("a connection");
        let rows = link.query("select count(*) as marked from windlass.job where mark = 'kept'", &[]).await;
        assert_eq!(rows.expect("the new column")[0].get::<_, i64>("marked"), 1);
        let found = store.find(&[job]).await.expect("find");
        assert_eq!(found[0].as_ref().map(|job| job.state), Some(State::Scheduled));

        let refused = PostgresStore::with(options).await.expect_err("the older program").to_string();
        assert!(refused.contains("is at step 2, but this program knows only 1"), "{refused}");
        store.drop_schema().await.expect("it goes");
    }
}
