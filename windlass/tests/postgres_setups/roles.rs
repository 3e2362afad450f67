//! The roles of docs/postgres.md: what each needs, and that it needs no more.

use std::sync::Arc;

use windlass::store::conformance::{Case, Subject};
use windlass::store::{Operation, Store, Target};
use windlass::{Client, ManualClock, NewJob, Payload};

use crate::{admin, as_role, hold, new_schema, open, options, url, work_through};

/// The grants, as the document has them: the one place where they are kept true.
fn grants(heading: &str) -> String {
    let document = include_str!("../../../docs/postgres.md");
    let (_, after) = document.split_once(heading).unwrap_or_else(|| panic!("{heading:?} is in docs/postgres.md"));
    let lines = after.lines().skip_while(|line| !line.starts_with("    "));
    lines.take_while(|line| line.starts_with("    ")).collect::<Vec<_>>().join("\n")
}

/// Makes a role with these grants on a schema.
async fn role(schema: &str, heading: &str) -> String {
    let role = format!("role_{}", uuid::Uuid::new_v4().simple());
    let grants = grants(heading).replace("to app", &format!("to {role}")).replace("to viewer", &format!("to {role}"));
    let grants = grants.replace("schema windlass", &format!("schema {schema}"));
    assert!(grants.contains(&role) && grants.contains(schema), "{grants}");
    admin(&url()).await.batch_execute(&format!("create role {role} login; {grants}")).await.expect("a role");
    role
}

/// A store for a role that may only use the schema, which its owner made.
#[derive(Debug)]
struct Worker;

#[async_trait::async_trait]
impl Subject for Worker {
    fn name(&self) -> &'static str {
        "postgres with a role for workers"
    }

    async fn fresh(&self, clock: ManualClock) -> Arc<dyn Store> {
        let schema = new_schema();
        open(options(&url(), &schema).without_notifications()).await;
        let role = role(&schema, "The role of workers and producers").await;
        let options = options(&as_role(&url(), &role), &schema).without_migrations().clock(clock);
        open(options.without_notifications().connections(4)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_for_workers_runs_a_worker() {
    let schema = new_schema();
    open(options(&url(), &schema)).await;
    let role = role(&schema, "The role of workers and producers").await;
    let store = open(options(&as_role(&url(), &role), &schema).without_migrations()).await;
    work_through(&Client::with_store(store)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_for_workers_does_all_that_the_rules_ask() {
    // A good part: what writes in every way there is.
    let wanted = |case: &Case| ["d", "i", "l", "o", "s", "w"].iter().any(|letter| case.name.starts_with(letter));
    let count = hold(Worker, wanted).await;
    assert!(count > 60, "only {count} cases");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_that_only_looks_sees_everything_and_changes_nothing() {
    let schema = new_schema();
    let owner = Client::with_store(open(options(&url(), &schema)).await);
    let job = owner.enqueue(NewJob::new("test", Payload::default())).await.expect("enqueue").id;
    let role = role(&schema, "A role that only looks").await;
    let store = open(options(&as_role(&url(), &role), &schema).without_migrations()).await;
    let client = Client::with_store(store);
    assert_eq!(client.job(job).await.expect("find").id, job);
    assert_eq!(client.list(Default::default(), 10, None).await.expect("list").items.len(), 1);
    assert_eq!(client.count(&Default::default(), 10).await.expect("count"), 1);
    assert_eq!(client.totals().await.expect("totals").accepted, 1);
    assert_eq!(client.queues().await.expect("queues").len(), 1);
    client.explain(job).await.expect("explain");
    client.attempts(job).await.expect("attempts");
    client.logs(job).await.expect("logs");
    client.workers().await.expect("workers");
    client.schedules(None, 10).await.expect("schedules");
    client.workflows(10, None).await.expect("workflows");
    client.acts(10, None).await.expect("acts");
    client.store().events(None, 10).await.expect("events");
    assert_eq!(client.store().check().await.expect("check"), Vec::<String>::new());
    let cancel = Operation {
        target: Target::Jobs(vec![job]),
        act: windlass::store::Act::Cancel { force: true },
        by: None,
        why: String::new(),
        dry_run: false,
    };
    client.enqueue(NewJob::new("test", Payload::default())).await.expect_err("it may not write");
    client.store().operate(&cancel).await.expect_err("it may not write");
    assert_eq!(owner.totals().await.expect("totals").accepted, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_owns_only_its_schema_migrates_and_works() {
    let schema = new_schema();
    let role = format!("owner_{schema}");
    let make = format!("create role {role} login; create schema {schema} authorization {role}");
    admin(&url()).await.batch_execute(&make).await.expect("a role and its schema");
    let store = open(options(&as_role(&url(), &role), &schema)).await;
    work_through(&Client::with_store(store)).await;
}
