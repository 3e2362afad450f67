//! What only a shared PostgreSQL server can show: races between processes, users' transactions, roles, wake-ups.
//!
//! Each test has a schema of its own in the database that `WINDLASS_TEST_POSTGRES` names. "Another process" is another
//! store on the same schema: it shares nothing with the first but the database.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use uuid::Uuid;
use windlass::flow::ControlEdit;
use windlass::job::{JobSpec, LeaseKey, Limits, Stale, WorkerId};
use windlass::store::{
    Act, ClaimRequest, Claimed, Extended, Operation, PostgresOptions, PostgresStore, Save, Settled, Store, Target,
    Upkeep, Wake,
};
use windlass::workflow::Submission;
use windlass::{Error, JobId, ManualClock, NewJob, Payload, Policies, QueueName, State};

const DEADLINE: Duration = Duration::from_secs(30);

fn url() -> String {
    std::env::var("WINDLASS_TEST_POSTGRES").expect(
        "WINDLASS_TEST_POSTGRES must name a PostgreSQL database, such as postgres://postgres@127.0.0.1:5432/postgres; \
         scripts/test starts one",
    )
}

fn new_schema() -> String {
    format!("test_{}", Uuid::new_v4().simple())
}

fn options(schema: &str) -> PostgresOptions {
    PostgresOptions::new(&url()).and_then(|options| options.schema(schema)).expect("valid options")
}

async fn open(schema: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::with(options(schema)).await.expect("the test database should be there"))
}

/// A connection of the user's own.
async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.expect("the test database");
    tokio::spawn(connection);
    client
}

fn job() -> NewJob {
    NewJob::new("test", Payload::default())
}

fn checked(job: NewJob) -> JobSpec {
    job.check(&Limits::default(), &Policies::default()).expect("a valid job")
}

fn batch(jobs: Vec<NewJob>) -> Submission {
    Submission::new(jobs.into_iter().map(checked).collect()).expect("a valid batch")
}

async fn enqueue(store: &PostgresStore, job: NewJob) -> JobId {
    store.insert(batch(vec![job])).await.expect("insert").jobs[0].id
}

async fn claim(store: &PostgresStore, limit: usize) -> Vec<Claimed> {
    let worker = WorkerId::new("w").expect("a name");
    store.claim(&ClaimRequest::new(worker, QueueName::default(), limit)).await.expect("claim").jobs
}

async fn state(store: &PostgresStore, id: JobId) -> Option<State> {
    store.find(&[id]).await.expect("find").remove(0).map(|job| job.state)
}

async fn assert_sound(store: &PostgresStore) {
    assert_eq!(store.check().await.expect("check"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn claimers_of_two_processes_never_get_the_same_job() {
    let schema = new_schema();
    let stores = [open(&schema).await, open(&schema).await];
    let total = 3000;
    for _ in 0..total / 1000 {
        stores[0].insert(batch(vec![job(); 1000])).await.expect("insert");
    }
    let mut claimers = tokio::task::JoinSet::new();
    for number in 0..8 {
        let store = Arc::clone(&stores[number % 2]);
        claimers.spawn(async move {
            let mut got = Vec::new();
            loop {
                let claimed = claim(&store, 1 + number * 3).await;
                if claimed.is_empty() {
                    return got;
                }
                got.extend(claimed.iter().map(|one| one.job.id));
                let settlements: Vec<_> = claimed.into_iter().map(|one| one.lease.complete(None)).collect();
                let answers = store.settle(&settlements).await.expect("settle");
                assert!(answers.iter().all(|answer| matches!(answer, Settled::Applied(State::Completed))));
            }
        });
    }
    let got: Vec<JobId> = claimers.join_all().await.into_iter().flatten().collect();
    assert_eq!(got.iter().collect::<HashSet<_>>().len(), got.len(), "a job was claimed twice");
    assert_eq!(got.len(), total);
    assert_sound(&stores[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_comes_to_stand_before_where_claims_have_come_to_is_found_all_the_same() {
    // Of one lane, and of several.
    for types in [&["a"][..], &["a", "b", "c"]] {
        let schema = new_schema();
        let store = open(&schema).await;
        let jobs: Vec<NewJob> =
            (0..3000).map(|number| NewJob::new(types[number % types.len()], Payload::default())).collect();
        let stored = store.insert(batch(jobs)).await.expect("insert").jobs;
        let began = std::time::Instant::now();
        let mut claimed = 0;
        while began.elapsed() < Duration::from_millis(600) && claimed < 1500 {
            assert_eq!(claim(&store, 1).await.len(), 1);
            claimed += 1;
        }
        let last = stored.last().expect("the last").id;
        let earlier = format!(
            "update {schema}.ready set due = 1 where seq = (select seq from {schema}.job where id = '{}')",
            last.as_uuid()
        );
        assert_eq!(client().await.execute(&earlier, &[]).await.expect("update"), 1);
        let mut after = 0;
        while claim(&store, 1).await.iter().all(|one| one.job.id != last) {
            after += 1;
            assert!(claimed + after < 2990, "it was claimed in its old place");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_the_token_of_another_job_of_the_same_claim_holds_nothing() {
    let store = open(&new_schema()).await;
    store.insert(batch(vec![job(); 2])).await.expect("insert");
    let leases: Vec<_> = claim(&store, 2).await.into_iter().map(|one| one.lease).collect();
    let (one, other) = (leases[0].key(), leases[1].key());
    let crossed = LeaseKey { job: other.job, token: one.token };
    let extended = store.extend(&[one, crossed, other], None).await.expect("extend");
    assert!(matches!(extended[0], Extended::Held { .. }) && matches!(extended[2], Extended::Held { .. }));
    assert!(matches!(extended[1], Extended::Lost(Stale::Mismatch)), "{:?}", extended[1]);
    let saved = store
        .save(&[Save::under(one).log(["mine".to_owned()]), Save::under(crossed).log(["not mine".to_owned()])])
        .await
        .expect("save");
    assert_eq!(saved, [Ok(()), Err(Stale::Mismatch)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_on_a_job_that_is_just_ending_is_not_lost() {
    let schema = new_schema();
    let (one, other) = (open(&schema).await, open(&schema).await);
    for _ in 0..100 {
        let first = enqueue(&one, job()).await;
        let lease = claim(&one, 1).await.remove(0).lease;
        let settlement = [lease.complete(None)];
        let (settled, inserted) =
            tokio::join!(one.settle(&settlement), other.insert(batch(vec![job().queue("later").after([first])])));
        assert!(matches!(settled.expect("settle")[0], Settled::Applied(State::Completed)));
        let second = inserted.expect("insert").jobs[0].id;
        assert_eq!(state(&one, second).await, Some(State::Scheduled), "its dependency has completed");
    }
    assert_sound(&one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_cancels_and_ends_of_the_same_jobs_leave_each_in_one_place() {
    let schema = new_schema();
    let (one, other) = (open(&schema).await, open(&schema).await);
    let ids: Vec<JobId> =
        one.insert(batch(vec![job(); 300])).await.expect("insert").jobs.iter().map(|job| job.id).collect();
    let claimer = async {
        loop {
            let claimed = claim(&one, 5).await;
            if claimed.is_empty() {
                return;
            }
            let settlements: Vec<_> = claimed.into_iter().map(|one| one.lease.complete(None)).collect();
            one.settle(&settlements).await.expect("settle");
        }
    };
    let canceller = async {
        for id in ids.iter().rev() {
            let operation = Operation {
                target: Target::Jobs(vec![*id]),
                act: Act::Cancel { force: true },
                by: None,
                why: String::new(),
                dry_run: false,
            };
            other.operate(&operation).await.expect("operate");
        }
    };
    tokio::join!(claimer, canceller);
    let totals = one.observe(None).await.map(|seen| seen.totals()).expect("totals");
    assert_eq!(totals.states[5] + totals.states[8], 300, "completed or cancelled: {totals:?}");
    assert!(totals.states[5] > 0 && totals.states[8] > 0, "both should have had their share: {totals:?}");
    assert_sound(&one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_from_many_callers_is_one_job() {
    let schema = new_schema();
    let stores = [open(&schema).await, open(&schema).await];
    for key in 0..10 {
        let mut callers = tokio::task::JoinSet::new();
        for number in 0..16 {
            let store = Arc::clone(&stores[number % 2]);
            // Some in a batch with others, some alone.
            let keyed = job().idempotency_key(format!("key-{key}"));
            let jobs = if number % 4 == 0 { vec![job(), keyed] } else { vec![keyed] };
            callers.spawn(async move { *store.insert(batch(jobs)).await.expect("insert").jobs.last().expect("one") });
        }
        let answers = callers.join_all().await;
        assert_eq!(answers.iter().map(|answer| answer.id).collect::<HashSet<_>>().len(), 1);
        assert_eq!(answers.iter().filter(|answer| !answer.existing).count(), 1);
    }
    let totals = stores[0].observe(None).await.map(|seen| seen.totals()).expect("totals");
    assert_eq!(totals.accepted, 10 + 40);
    assert_sound(&stores[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_enqueues_share_statements_and_lose_nothing() {
    let store = open(&new_schema()).await;
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..200 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            let payload = Payload::json(&number).expect("json");
            let id = enqueue(&store, NewJob::new("test", payload)).await;
            (id, number)
        });
    }
    for (id, number) in callers.join_all().await {
        let found = store.find(&[id]).await.expect("find").remove(0).expect("an acknowledged job exists");
        assert_eq!(found.spec.payload.decode::<i32>().expect("a number"), number);
    }
    // One that cannot be stored does not take the others with it.
    let late = job().run_at(windlass::Timestamp::MAX);
    let (bad, good) = tokio::join!(store.insert(batch(vec![late])), store.insert(batch(vec![job()])));
    assert_eq!(bad.expect_err("beyond its lifetime").name(), "InvalidArgument");
    good.expect("an ordinary job");
    assert_eq!(store.observe(None).await.map(|seen| seen.totals()).expect("totals").accepted, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn x1_a_job_commits_or_vanishes_with_the_users_transaction() {
    let store = open(&new_schema()).await;
    let mut client = client().await;
    let first = enqueue(&store, job().queue("other")).await;
    let submissions = [
        batch(vec![job(), job().delay(Duration::from_secs(60))]),
        batch(vec![job().idempotency_key("key"), job()]),
        batch(vec![job().after([first])]),
    ];
    for submission in &submissions {
        let transaction = client.transaction().await.expect("begin");
        let inserted = store.enqueue_in_tx(&transaction, submission).await.expect("enqueue");
        transaction.rollback().await.expect("rollback");
        assert_eq!(state(&store, inserted.jobs[0].id).await, None, "rolled back");
    }
    assert!(claim(&store, 10).await.is_empty());
    let mut made = Vec::new();
    for submission in &submissions {
        let transaction = client.transaction().await.expect("begin");
        let inserted = store.enqueue_in_tx(&transaction, submission).await.expect("enqueue");
        transaction.commit().await.expect("commit");
        made.extend(inserted.jobs.iter().map(|job| (job.id, job.state)));
    }
    for (id, told) in made {
        assert_eq!(state(&store, id).await, told);
    }
    let transaction = client.transaction().await.expect("begin");
    let again = store.enqueue_in_tx(&transaction, &submissions[1]).await.expect("enqueue");
    assert!(again.jobs[0].existing && !again.jobs[1].existing);
    transaction.rollback().await.expect("rollback");
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_a_completion_commits_with_the_users_rows_and_is_fenced() {
    let schema = new_schema();
    let clock = ManualClock::default();
    let store = PostgresStore::with(options(&schema).clock(clock.clone())).await.expect("open");
    let mut client = client().await;
    client.batch_execute(&format!("create table {schema}.business (job uuid)")).await.expect("a table");
    let insert = format!("insert into {schema}.business values ($1)");
    let rows = format!("select job from {schema}.business");
    let id = enqueue(&store, job()).await;
    let dependent = enqueue(&store, job().queue("later").after([id])).await;
    let lease = claim(&store, 1).await.remove(0).lease;
    let settlement = lease.complete(None);

    let transaction = client.transaction().await.expect("begin");
    transaction.execute(&insert, &[&id.as_uuid()]).await.expect("a business row");
    let settled = store.settle_in_tx(&transaction, &settlement).await.expect("settle");
    assert!(matches!(settled, Settled::Applied(State::Completed)), "{settled:?}");
    transaction.rollback().await.expect("rollback");
    assert_eq!(state(&store, id).await, Some(State::Running));

    let transaction = client.transaction().await.expect("begin");
    transaction.execute(&insert, &[&id.as_uuid()]).await.expect("a business row");
    store.settle_in_tx(&transaction, &settlement).await.expect("settle");
    transaction.commit().await.expect("commit");
    assert_eq!(state(&store, id).await, Some(State::Completed));
    assert_eq!(state(&store, dependent).await, Some(State::Scheduled), "released in the same transaction");
    assert_eq!(client.query(&rows, &[]).await.expect("rows").len(), 1);

    let late = enqueue(&store, job()).await;
    let lease = claim(&store, 1).await.remove(0).lease;
    clock.advance(Duration::from_secs(3600));
    let transaction = client.transaction().await.expect("begin");
    let settled = store.settle_in_tx(&transaction, &lease.complete(None)).await.expect("settle");
    assert!(matches!(settled, Settled::Stale(Stale::Expired)), "{settled:?}");
    transaction.rollback().await.expect("rollback");
    assert_eq!(state(&store, late).await, Some(State::Running));
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x1_the_sql_function_enqueues_from_any_language() {
    let schema = new_schema();
    let store = open(&schema).await;
    let client = client().await;
    let call = format!(
        "select {schema}.enqueue('test', '{{\"user\": 7}}', priority => 0, idempotency_key => 'k', max_attempts => 7)"
    );
    let id: Uuid = client.query_one(&call, &[]).await.expect("enqueue").get(0);
    let again: Uuid = client.query_one(&call, &[]).await.expect("enqueue").get(0);
    assert_eq!(id, again, "the same key");
    let delayed = format!("select {schema}.enqueue('test', delay => '5 minutes')");
    let delayed: Uuid = client.query_one(&delayed, &[]).await.expect("enqueue").get(0);
    assert_eq!(state(&store, JobId::from_uuid(delayed)).await, Some(State::Delayed));
    let claimed = claim(&store, 10).await;
    assert_eq!(claimed.iter().map(|one| one.job.id.as_uuid()).collect::<Vec<_>>(), [id]);
    let spec = &claimed[0].job.spec;
    assert_eq!(spec.payload.decode::<serde_json::Value>().expect("json"), serde_json::json!({"user": 7}));
    assert_eq!((spec.options.retry.max_attempts, spec.priority.number()), (7, 0));
    for bad in ["'two words'", "'test', queue => ''", "'test', priority => 5", "'test', delay => '8 days'"] {
        let refused = client.query_one(&format!("select {schema}.enqueue({bad})"), &[]).await;
        assert!(refused.is_err(), "{bad}");
    }
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n2_another_process_hears_of_jobs_ends_and_cancels() {
    let schema = new_schema();
    let (one, other) = (open(&schema).await, open(&schema).await);
    let mut wakes = other.wakes();
    let mut heard = async |wanted: fn(&Wake) -> bool| loop {
        if let Ok(wake) = wakes.recv().await
            && wanted(&wake)
        {
            return;
        }
    };
    // The other's ear may not be open yet, so the word is repeated until it arrives.
    let story = async {
        loop {
            enqueue(&one, job()).await;
            let wait =
                tokio::time::timeout(Duration::from_millis(300), heard(|wake| matches!(wake, Wake::Scheduled(_))));
            if wait.await.is_ok() {
                break;
            }
        }
        let lease = claim(&one, 1).await.remove(0).lease;
        let operation = Operation {
            target: Target::Jobs(vec![lease.job()]),
            act: Act::Cancel { force: false },
            by: None,
            why: String::new(),
            dry_run: false,
        };
        one.operate(&operation).await.expect("operate");
        heard(|wake| matches!(wake, Wake::CancelAsked(_))).await;
        one.settle(&[lease.complete(None)]).await.expect("settle");
        heard(|wake| matches!(wake, Wake::Ended(_))).await;
    };
    tokio::time::timeout(DEADLINE, story).await.expect("every hint arrives in time");
}

/// The standard lifetime is looked for only now and then by the server's clock, but until there is no more of it.
#[tokio::test(flavor = "multi_thread")]
async fn t4_the_standard_lifetime_ends_by_the_servers_clock_step_by_step() {
    let schema = new_schema();
    let store = open(&schema).await;
    let jobs = (0..5).map(|number| job().queue(if number < 3 { "mail" } else { "reports" }));
    let ids: Vec<JobId> =
        store.insert(batch(jobs.collect())).await.expect("insert").jobs.iter().map(|job| job.id).collect();
    let week = 7 * 24 * 3600 * 1_000_000_i64;
    let age = format!(
        "update {schema}.job set created_at = created_at - {week}, deadline = deadline - {week};
         update {schema}.ready set due = due - {week}, deadline = deadline - {week}"
    );
    client().await.batch_execute(&age).await.expect("a week passes");
    let step = Upkeep { limit: 2, ..Upkeep::default() };
    let mut ended = Vec::new();
    for _ in 0..3 {
        ended.push(store.upkeep(&step).await.expect("upkeep").lifetimes);
    }
    assert_eq!(ended, [2, 2, 1]);
    for id in ids {
        assert_eq!(state(&store, id).await, Some(State::DeadLetter));
    }
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_schemas_in_one_database_know_nothing_of_each_other() {
    let (one, other) = (open(&new_schema()).await, open(&new_schema()).await);
    let id = enqueue(&one, job()).await;
    assert_eq!(state(&other, id).await, None);
    assert!(claim(&other, 1).await.is_empty());
    one.drop_schema().await.expect("drop");
    assert_eq!(other.observe(None).await.map(|seen| seen.totals()).expect("totals").accepted, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_may_open_a_new_schema_at_once() {
    let schema = new_schema();
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let schema = schema.clone();
        opening.spawn(async move { enqueue(&*open(&schema).await, job()).await });
    }
    assert_eq!(opening.join_all().await.len(), 6);
    assert_eq!(open(&schema).await.observe(None).await.map(|seen| seen.totals()).expect("totals").accepted, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_is_newer_than_the_program_is_refused() {
    let schema = new_schema();
    open(&schema).await;
    let client = client().await;
    client.batch_execute(&format!("insert into {schema}.migration (number) values (99)")).await.expect("a step");
    let refused = PostgresStore::with(options(&schema)).await.expect_err("a newer schema");
    assert_eq!(refused.name(), "Store");
    assert!(refused.to_string().contains("use a newer program"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_another_role_planted_are_not_called() {
    let (schema, planted) = (new_schema(), new_schema());
    let client = client().await;
    let traps =
        ["unnest(text[]) returns setof text", "unnest(bigint[]) returns setof bigint", "to_hex(bigint) returns text"];
    let body = "language plpgsql as 'begin raise exception ''a planted function was called''; end'";
    client.batch_execute(&format!("create schema {planted}")).await.expect("a schema");
    for trap in traps {
        client.batch_execute(&format!("create function {planted}.{trap} {body}")).await.expect("a trap");
    }
    let through = format!("{}?options=-c%20search_path%3D{planted}%2Cpg_catalog", url());
    let options = PostgresOptions::new(&through).and_then(|options| options.schema(&schema)).expect("valid");
    let store = PostgresStore::with(options).await.expect("open");
    let id = enqueue(&store, job()).await;
    let lease = claim(&store, 1).await.remove(0).lease;
    store.settle(&[lease.complete(None)]).await.expect("settle");
    assert_eq!(state(&store, id).await, Some(State::Completed));
    client.batch_execute(&format!("set search_path = {planted}, pg_catalog")).await.expect("the trap is open");
    client.query_one(&format!("select {schema}.enqueue('test')"), &[]).await.expect("the function enqueues");
    client.batch_execute("reset search_path").await.expect("reset");
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_says_what_the_server_said() {
    let schema = new_schema();
    open(&schema).await;
    let client = client().await;
    let role = format!("role_{schema}");
    client.batch_execute(&format!("create role {role} login")).await.expect("a role without rights");
    let url = url().replacen("postgres://postgres@", &format!("postgres://{role}@"), 1);
    let options = PostgresOptions::new(&url).and_then(|options| options.schema(&schema)).expect("valid");
    let refused = PostgresStore::with(options.without_migrations()).await.expect_err("no rights").to_string();
    assert_eq!(refused, format!("cannot open the store: permission denied for schema {schema}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_statements_make_a_schema_that_a_plain_role_can_use() {
    let schema = new_schema();
    let client = client().await;
    client.batch_execute(&PostgresStore::sql(&schema).expect("statements")).await.expect("they run");
    let role = format!("role_{schema}");
    client
        .batch_execute(&format!(
            "create role {role} login; grant usage on schema {schema} to {role};
             grant select, insert, update, delete on all tables in schema {schema} to {role};
             grant usage on all sequences in schema {schema} to {role};"
        ))
        .await
        .expect("a role");
    let url = url().replacen("postgres://postgres@", &format!("postgres://{role}@"), 1);
    let options = PostgresOptions::new(&url).and_then(|options| options.schema(&schema)).expect("valid");
    let store = PostgresStore::with(options.without_migrations()).await.expect("open");
    let first = enqueue(&store, job().callback_url("https://example.com/told")).await;
    let second = enqueue(&store, job().after([first]).idempotency_key("k")).await;
    let lease = claim(&store, 1).await.remove(0).lease;
    store.settle(&[lease.complete(None)]).await.expect("settle");
    assert_eq!(state(&store, second).await, Some(State::Scheduled));
    store.upkeep(&Upkeep::default()).await.expect("upkeep");
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_cut_connections_and_a_read_only_server_are_told_and_survived() {
    let schema = new_schema();
    let marked = format!("{}?application_name={schema}", url());
    let options = PostgresOptions::new(&marked).and_then(|options| options.schema(&schema)).expect("valid");
    let store = PostgresStore::with(options).await.expect("open");
    enqueue(&store, job()).await;
    let client = client().await;
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1";
    for _ in 0..3 {
        client.query(cut, &[&schema]).await.expect("cut");
        // The first call may find the cut connection; its error must say that trying again is right.
        if let Err(error) = store.insert(batch(vec![job()])).await {
            assert!(matches!(error, Error::StoreUnavailable { .. }), "{error}");
        }
        tokio::time::timeout(DEADLINE, async { while store.insert(batch(vec![job()])).await.is_err() {} })
            .await
            .expect("the store comes back by itself");
    }
    let read_only = format!("{}?options=-c%20default_transaction_read_only%3Don", url());
    let options = PostgresOptions::new(&read_only).and_then(|options| options.schema(&schema)).expect("valid");
    let store = PostgresStore::with(options.without_migrations()).await.expect("open");
    let refused = store.insert(batch(vec![job()])).await.expect_err("read-only");
    assert!(matches!(refused, Error::StoreUnavailable { known: true, .. }), "{refused}");
    assert!(store.observe(None).await.map(|seen| seen.totals()).expect("reading goes on").accepted >= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_an_exhausted_pool_and_an_absent_server_are_told() {
    let schema = new_schema();
    let store = PostgresStore::with(options(&schema).connections(2).wait(Duration::from_millis(300))).await;
    let store = Arc::new(store.expect("open"));
    let mut client = client().await;
    let id = enqueue(&store, job()).await;
    // Somebody holds the job's row, so two acts on it wait with both connections.
    let transaction = client.transaction().await.expect("begin");
    transaction.execute(&format!("select 1 from {schema}.ready for update"), &[]).await.expect("lock");
    let operation = Operation {
        target: Target::Jobs(vec![id]),
        act: Act::Cancel { force: false },
        by: None,
        why: String::new(),
        dry_run: false,
    };
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (store, operation) = (Arc::clone(&store), operation.clone());
        waiting.spawn(async move { store.operate(&operation).await.map(|answer| answer.changed) });
    }
    tokio::time::timeout(DEADLINE, async {
        loop {
            match store.now().await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => {
                    assert!(matches!(error, Error::StoreUnavailable { known: true, .. }), "{error}");
                    return;
                }
            }
        }
    })
    .await
    .expect("a call without a connection fails in time");
    transaction.rollback().await.expect("rollback");
    let changed: u64 = waiting.join_all().await.into_iter().map(|answer| answer.expect("operate")).sum();
    assert_eq!(changed, 1, "one of the two cancelled it");
    let absent = PostgresStore::open("postgres://nobody:hunter2@127.0.0.1:1/none").await.expect_err("no server");
    assert!(matches!(absent, Error::StoreUnavailable { known: true, .. }), "{absent}");
    assert!(!format!("{absent} {absent:?}").contains("hunter2"), "{absent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_acts_the_newest_ten_thousand_are_kept() {
    let schema = new_schema();
    let store = open(&schema).await;
    let old = format!("insert into {schema}.act (record) select '{{}}' from generate_series(1, 10500)");
    client().await.batch_execute(&old).await.expect("old acts");
    store.control(&ControlEdit::pause(QueueName::default(), true), Some("ada")).await.expect("paused");
    let count = client().await.query_one(&format!("select count(*) from {schema}.act"), &[]).await.expect("a count");
    assert_eq!(count.get::<_, i64>(0), 10_000);
    let newest = store.acts(None, 1).await.expect("acts").items;
    assert_eq!(newest[0].by.as_deref(), Some("ada"), "what was done last is there");
}
