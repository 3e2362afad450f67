//! After much churn the tables are as small as what is in them: dead rows are cleared away and indexes do not swell.

use std::time::Duration;

use windlass::job::{Limits, WorkerId};
use windlass::store::{ClaimRequest, Retention, Store, Upkeep};
use windlass::workflow::Submission;
use windlass::{ManualClock, NewJob, Payload, Policies, QueueName};

use crate::{admin, new_schema, open, options, url};

const JOBS: usize = 1000;
/// Cycles before the first look, and before the second.
const WARM_UP: usize = 10;
const CYCLES: usize = 50;
/// How much the schema may grow between the two looks, in bytes: rounding of pages and folded events, not 40,000 jobs.
const GROWTH_MAX: i64 = 2 << 20;

fn jobs(count: usize) -> Submission {
    let job = NewJob::new("churn", Payload::json(&"x".repeat(200)).expect("json"));
    let spec = job.check(&Limits::default(), &Policies::default()).expect("valid");
    Submission::new(vec![spec; count]).expect("valid")
}

/// Enqueues, runs and prunes a thousand jobs.
async fn cycle(store: &dyn Store, clock: &ManualClock) {
    store.insert(jobs(JOBS)).await.expect("insert");
    let worker = WorkerId::new("w").expect("a name");
    let claimed = store.claim(&ClaimRequest::new(worker, QueueName::default(), JOBS)).await.expect("claim");
    assert_eq!(claimed.len(), JOBS);
    let settlements: Vec<_> = claimed.into_iter().map(|one| one.lease.complete(None)).collect();
    store.settle(&settlements).await.expect("settle");
    clock.advance(Duration::from_secs(2 * 24 * 3600));
    let request = Upkeep { retention: Retention::default(), limit: JOBS };
    while store.upkeep(&request).await.expect("upkeep").more {}
}

/// The size of the schema in bytes, and its dead rows, after a vacuum.
async fn look(database: &tokio_postgres::Client, schema: &str) -> (i64, i64) {
    let tables =
        format!("select relname::text from pg_class where relnamespace = '{schema}'::regnamespace and relkind = 'r'");
    for row in database.query(&tables, &[]).await.expect("tables") {
        let table: String = row.get(0);
        database.batch_execute(&format!("vacuum {schema}.{table}")).await.expect("vacuum");
    }
    let sizes = format!(
        "select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint, coalesce(sum(s.n_dead_tup), 0)::bigint
         from pg_class c join pg_stat_user_tables s on s.relid = c.oid where s.schemaname = '{schema}'"
    );
    let row = database.query_one(&sizes, &[]).await.expect("sizes");
    (row.get(0), row.get(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn churn_leaves_neither_dead_rows_nor_swollen_indexes() {
    let (schema, clock) = (new_schema(), ManualClock::default());
    let store = open(options(&url(), &schema).clock(clock.clone()).without_notifications()).await;
    let database = admin(&url()).await;
    let mut before = 0;
    for number in 1..=CYCLES {
        cycle(&*store, &clock).await;
        // What autovacuum does once a minute on a server that is left alone.
        if number % 5 == 0 {
            let (size, _) = look(&database, &schema).await;
            if number == WARM_UP {
                before = size;
            }
        }
    }
    let (after, dead) = look(&database, &schema).await;
    println!(
        "{CYCLES} cycles of {JOBS} jobs: {before} bytes after {WARM_UP}, {after} bytes at the end, {dead} dead rows"
    );
    assert!(after - before <= GROWTH_MAX, "grew from {before} to {after} bytes");
    assert!(dead < JOBS as i64, "{dead} dead rows after a vacuum");
    let totals = store.observe(None).await.map(|seen| seen.totals()).expect("totals");
    assert_eq!((totals.accepted, totals.pruned), ((CYCLES * JOBS) as u64, (CYCLES * JOBS) as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn old_events_become_sums_that_count_the_same() {
    const EVENTS: i64 = 25_000;
    let schema = new_schema();
    let store = open(options(&url(), &schema).without_notifications()).await;
    store.insert(jobs(1)).await.expect("insert");
    let database = admin(&url()).await;
    for round in 1..=2 {
        // As many enqueues, one job each.
        let accepted = format!(
            "insert into {schema}.event (at, lane, kind, count, seqs)
             select at, lane, kind, 1, seqs from {schema}.event, generate_series(1, {EVENTS})
             where seqs is not null and event = (select max(event) from {schema}.event where seqs is not null)"
        );
        database.batch_execute(&accepted).await.expect("events");
        store.upkeep(&Upkeep { retention: Retention::default(), limit: JOBS }).await.expect("upkeep");
        let kept = format!("select count(*), count(*) filter (where seqs is null) from {schema}.event");
        let row = database.query_one(&kept, &[]).await.expect("a count");
        let (rows, sums): (i64, i64) = (row.get(0), row.get(1));
        assert!(
            (1..=20_000).contains(&(rows - sums)) && (1..=round).contains(&sums),
            "{rows} rows, {sums} of them sums"
        );
        let totals = store.observe(None).await.map(|seen| seen.totals()).expect("totals");
        assert_eq!(totals.accepted, u64::try_from(1 + round * EVENTS).expect("positive"));
    }
}
