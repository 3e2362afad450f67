//! What only the SQLite store has: a file that can be full, locked, damaged, shared and copied, and transactions of the
//! application's own. What it has in common with other stores is in the conformance suite.

mod batches;
mod damage;
mod others;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;
use windlass::clock::SystemClock;
use windlass::job::{JobSpec, Limits, WorkerId};
use windlass::schedule::ScheduleSpec;
use windlass::store::sqlite::{SCHEMA_VERSION, in_tx, migrate};
use windlass::store::{
    Act, ClaimRequest, Claimed, Filter, Operation, Retention, ScheduleEdit, Settled, Store, Target, Upkeep, Wake,
};
use windlass::store::{SqliteOptions, SqliteStore};
use windlass::workflow::Submission;
use windlass::{Error, JobId, ManualClock, NewJob, Payload, Policies, QueueName, State};

/// How long an event that must come is waited for.
const SOON: Duration = Duration::from_secs(20);

fn folder() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("jobs.db");
    (folder, path)
}

fn spec(job: NewJob) -> JobSpec {
    job.check(&Limits::default(), &Policies::default()).expect("a valid job")
}

fn plain() -> NewJob {
    NewJob::new("test", Payload::default())
}

fn one(job: NewJob) -> Submission {
    Submission::new(vec![spec(job)]).expect("one job is a batch")
}

async fn enqueue(store: &SqliteStore, job: NewJob) -> windlass::Result<JobId> {
    Ok(store.insert(one(job)).await?.jobs[0].id)
}

async fn claim(store: &SqliteStore, limit: usize) -> Vec<Claimed> {
    let worker = WorkerId::new("w1").expect("a name");
    store.claim(&ClaimRequest::new(worker, QueueName::default(), limit)).await.expect("claim").jobs
}

async fn state(store: &SqliteStore, id: JobId) -> Option<State> {
    store.find(&[id]).await.expect("find").remove(0).map(|job| job.state)
}

async fn assert_sound(store: &SqliteStore) {
    assert_eq!(store.check().await.expect("check"), Vec::<String>::new());
}

fn begin(conn: &mut Connection) -> rusqlite::Transaction<'_> {
    conn.transaction_with_behavior(TransactionBehavior::Immediate).expect("begin")
}

// The file.

#[tokio::test]
async fn jobs_are_there_when_the_file_is_opened_again() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    let id = enqueue(&store, plain()).await.expect("enqueue");
    drop(store);
    let store = SqliteStore::open(&path).expect("open again");
    assert_eq!(state(&store, id).await, Some(State::Scheduled));
    assert_eq!(claim(&store, 5).await.len(), 1);
}

#[tokio::test]
async fn c4_why_a_firing_was_refused_is_read_back_and_cleared_by_the_next() {
    let (_folder, path) = folder();
    let clock = ManualClock::default();
    let store = SqliteOptions::new(&path).clock(clock.clone()).open().expect("open");
    let schedule = ScheduleSpec::every("a", Duration::from_secs(60), spec(plain()));
    store.edit_schedule(&ScheduleEdit::Create(schedule), None).await.expect("created");
    let conn = Connection::open(&path).expect("open");
    let error = r#"{"at":"2026-01-01T00:00:00Z","message":"too deep"}"#;
    conn.execute("update windlass_schedule set last_error = ?1", [error]).expect("written");
    let read = async || store.schedules(None, 1).await.expect("schedules").remove(0).last_error;
    assert_eq!(read().await.map(|error| error.message).as_deref(), Some("too deep"));
    clock.advance(Duration::from_secs(60));
    assert_eq!(store.upkeep(&Upkeep::default()).await.expect("upkeep").fired, 1);
    assert_eq!(read().await, None);
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_refused() {
    let (_folder, path) = folder();
    drop(SqliteStore::open(&path).expect("open"));
    let conn = Connection::open(&path).expect("open");
    conn.execute("insert into windlass_version (version) values (?1)", [SCHEMA_VERSION + 1]).expect("a newer version");
    drop(conn);
    let refused = SqliteStore::open(&path).expect_err("newer").to_string();
    assert!(refused.contains(&format!("version {}", SCHEMA_VERSION + 1)), "{refused}");
}

#[test]
fn many_that_open_a_new_file_at_once_make_its_tables_once() {
    let (_folder, path) = folder();
    let openers: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || SqliteStore::open(path).map(drop))
        })
        .collect();
    for opener in openers {
        opener.join().expect("no panic").expect("opens");
    }
    let conn = Connection::open(&path).expect("open");
    let versions: i64 = conn.query_row("select count(*) from windlass_version", [], |row| row.get(0)).expect("count");
    assert_eq!(versions, SCHEMA_VERSION);
}

#[test]
fn every_table_and_index_carries_the_prefix() {
    let conn = Connection::open_in_memory().expect("open");
    migrate(&conn).expect("migrate");
    migrate(&conn).expect("nothing is left to do");
    let sql = "select name from sqlite_master where name not like 'windlass!_%' escape '!' and name not like 'sqlite!_%' escape '!'";
    let mut statement = conn.prepare(sql).expect("prepare");
    let others: Vec<String> = statement.query_map([], |row| row.get(0)).expect("query").map(Result::unwrap).collect();
    assert_eq!(others, Vec::<String>::new());
}

#[tokio::test]
async fn a_copy_made_while_jobs_come_is_whole() {
    let (folder, path) = folder();
    let store = Arc::new(SqliteStore::open(&path).expect("open"));
    let first = enqueue(&store, plain()).await.expect("enqueue");
    let coming = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for _ in 0..200 {
                enqueue(&store, plain()).await.expect("enqueue");
            }
        }
    });
    let copy = folder.path().join("copy.db");
    store.backup(&copy).await.expect("backup");
    coming.await.expect("no panic");
    let copied = SqliteStore::open(&copy).expect("the copy opens");
    assert_sound(&copied).await;
    assert_eq!(state(&copied, first).await, Some(State::Scheduled));
    let refused = store.backup(&copy).await.expect_err("it exists");
    assert_eq!(refused.name(), "Conflict");
}

// Group commit.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_entry_among_many_callers_fails_alone() {
    let (_folder, path) = folder();
    let store = Arc::new(SqliteStore::open(&path).expect("open"));
    let unknown = windlass::store::new_job_id();
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let store = Arc::clone(&store);
            let job = if number % 10 == 3 { plain().after([unknown]) } else { plain() };
            tokio::spawn(async move { (number, enqueue(&store, job).await) })
        })
        .collect();
    let mut ids = Vec::new();
    for call in calls {
        match call.await.expect("no panic") {
            (number, Err(error)) => {
                assert_eq!((number % 10, error.name()), (3, "DependencyNotFound"));
            }
            (number, Ok(id)) => {
                assert_ne!(number % 10, 3);
                ids.push(id);
            }
        }
    }
    assert_eq!(ids.len(), 90);
    assert!(store.find(&ids).await.expect("find").iter().all(Option::is_some));
    assert_sound(&store).await;
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_any_more_is_whole_or_nothing() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    for _ in 0..20 {
        let batch = Submission::new(vec![spec(plain()); 50]).expect("a batch");
        let _ = tokio::time::timeout(Duration::from_micros(50), store.insert(batch)).await;
    }
    enqueue(&store, plain()).await.expect("enqueue");
    let totals = store.observe(None).await.map(|seen| seen.totals()).expect("totals");
    assert_eq!(totals.accepted % 50, 1, "{totals:?}");
    assert_sound(&store).await;
}

// The application's own transactions.

#[tokio::test]
async fn x1_an_enqueue_in_a_transaction_commits_or_vanishes_with_it() {
    let (_folder, path) = folder();
    let mut own = Connection::open(&path).expect("open");
    own.execute_batch("create table orders (number integer primary key)").expect("own table");
    let store = SqliteStore::open(&path).expect("open");
    let clock = SystemClock::default();
    let mut ids = Vec::new();
    for commit in [true, false] {
        let tx = begin(&mut own);
        tx.execute("insert into orders (number) values (?1)", [i64::from(commit)]).expect("own row");
        ids.push(in_tx::enqueue(&tx, &clock, &one(plain())).expect("enqueue").jobs[0].id);
        match commit {
            true => tx.commit().expect("commit"),
            false => tx.rollback().expect("rollback"),
        }
    }
    assert_eq!(state(&store, ids[0]).await, Some(State::Scheduled));
    assert_eq!(state(&store, ids[1]).await, None);
    assert_eq!(claim(&store, 5).await.len(), 1);
    assert_eq!(store.observe(None).await.map(|seen| seen.totals()).expect("totals").accepted, 1);
    assert_sound(&store).await;
}

#[tokio::test]
async fn x1_without_a_transaction_nothing_is_written() {
    let conn = Connection::open_in_memory().expect("open");
    migrate(&conn).expect("migrate");
    let refused = in_tx::enqueue(&conn, &SystemClock::default(), &one(plain())).expect_err("no transaction");
    assert_eq!(refused.name(), "InvalidArgument");
}

#[tokio::test]
async fn x2_a_completion_in_a_transaction_commits_or_vanishes_with_it() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    let first = enqueue(&store, plain()).await.expect("enqueue");
    let dependent = enqueue(&store, plain().after([first])).await.expect("enqueue");
    let mut own = Connection::open(&path).expect("open");
    let clock = SystemClock::default();
    let claimed = claim(&store, 1).await.remove(0);
    let again = windlass::job::Lease::granted(&claimed.job, claimed.lease.key().token);

    let tx = begin(&mut own);
    in_tx::complete(&tx, &clock, claimed.lease, None).expect("fenced");
    tx.rollback().expect("rollback");
    assert_eq!(state(&store, first).await, Some(State::Running));

    let tx = begin(&mut own);
    assert_eq!(in_tx::complete(&tx, &clock, again, None).expect("fenced"), State::Completed);
    tx.commit().expect("commit");
    assert_eq!(state(&store, first).await, Some(State::Completed));
    assert_eq!(state(&store, dependent).await, Some(State::Scheduled), "released in the same transaction");
    assert_sound(&store).await;
}

#[tokio::test]
async fn x2_a_stale_lease_cannot_complete_in_a_transaction() {
    let (_folder, path) = folder();
    let clock = ManualClock::default();
    let store = SqliteOptions::new(&path).clock(clock.clone()).open().expect("open");
    let id = enqueue(&store, plain()).await.expect("enqueue");
    let claimed = claim(&store, 1).await.remove(0);
    clock.advance(Duration::from_secs(3600));
    let mut own = Connection::open(&path).expect("open");
    let tx = begin(&mut own);
    let refused = in_tx::complete(&tx, &clock, claimed.lease, None).expect_err("expired");
    assert!(matches!(refused, Error::StaleLease { job, .. } if job == id), "{refused}");
    tx.commit().expect("nothing was changed");
    assert_eq!(state(&store, id).await, Some(State::Running));
}

// Several stores on one file.

async fn heard(wakes: &mut tokio::sync::broadcast::Receiver<Wake>, wanted: &Wake) {
    let hear = async { while wakes.recv().await.expect("the store lives") != *wanted {} };
    tokio::time::timeout(SOON, hear).await.unwrap_or_else(|_| panic!("{wanted:?} was not heard"));
}

#[tokio::test]
async fn what_another_store_on_the_file_does_wakes_this_one() {
    let (_folder, path) = folder();
    let (here, there) = (SqliteStore::open(&path).expect("open"), SqliteStore::open(&path).expect("open"));
    let mut wakes = here.wakes();
    let id = enqueue(&there, plain()).await.expect("enqueue");
    heard(&mut wakes, &Wake::Scheduled(QueueName::default())).await;
    let claimed = claim(&here, 1).await.remove(0);
    let cancel = Operation {
        target: Target::Jobs(vec![id]),
        act: Act::Cancel { force: false },
        by: None,
        why: String::new(),
        dry_run: false,
    };
    there.operate(&cancel).await.expect("ask");
    heard(&mut wakes, &Wake::CancelAsked(id)).await;
    let mut wakes = there.wakes();
    let answers = here.settle(&[claimed.lease.cancel()]).await.expect("settle");
    assert!(matches!(answers[0], Settled::Applied(State::Cancelled)));
    heard(&mut wakes, &Wake::Ended(id)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_on_one_file_never_claim_the_same_job() {
    let (_folder, path) = folder();
    let stores = [SqliteStore::open(&path).expect("open"), SqliteStore::open(&path).expect("open")].map(Arc::new);
    let batch = Submission::new(vec![spec(plain()); 500]).expect("a batch");
    stores[0].insert(batch).await.expect("insert");
    let claimers = stores.clone().map(|store| {
        tokio::spawn(async move {
            let mut ids = Vec::new();
            loop {
                let claimed = claim(&store, 7).await;
                if claimed.is_empty() {
                    return ids;
                }
                ids.extend(claimed.iter().map(|claimed| claimed.job.id));
                let done: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
                for answer in store.settle(&done).await.expect("settle") {
                    assert!(matches!(answer, Settled::Applied(State::Completed)), "{answer:?}");
                }
            }
        })
    });
    let mut ids = Vec::new();
    for claimer in claimers {
        ids.extend(claimer.await.expect("no panic"));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 500);
    assert_sound(&stores[1]).await;
}

#[tokio::test]
async fn a_long_reader_stops_nobody_and_leaves_no_long_log() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    let mut reader = Connection::open(&path).expect("open");
    let held = reader.transaction().expect("begin");
    let before: i64 = held.query_row("select count(*) from windlass_job", [], |row| row.get(0)).expect("count");
    let batch = Submission::new(vec![spec(NewJob::new("test", Payload::json(&"x".repeat(1000)).expect("json"))); 1000]);
    let batch = batch.expect("a batch");
    for _ in 0..40 {
        store.insert(batch.clone()).await.expect("insert");
    }
    let log = || std::fs::metadata(path.with_extension("db-wal")).map_or(0, |file| file.len());
    let after: i64 = held.query_row("select count(*) from windlass_job", [], |row| row.get(0)).expect("count");
    assert_eq!(before, after, "a snapshot stands still");
    let long = log();
    drop(held);
    drop(reader);
    // Without a reader the log starts over instead of growing on.
    for _ in 0..80 {
        store.insert(batch.clone()).await.expect("insert");
    }
    assert!(log() < long.max(64 << 20) + (32 << 20), "the log has {} bytes, had {long}", log());
    assert_sound(&store).await;
}

// Faults.

#[tokio::test]
async fn a_full_file_refuses_clearly_and_goes_on_when_there_is_room() {
    let (_folder, path) = folder();
    let store = SqliteOptions::new(&path).pages_max(200).open().expect("open");
    let big = || NewJob::new("test", Payload::json(&"x".repeat(20_000)).expect("json"));
    let mut stored = Vec::new();
    let full = loop {
        match enqueue(&store, big()).await {
            Ok(id) => stored.push(id),
            Err(error) => break error,
        }
        assert!(stored.len() < 1000, "200 pages hold no thousand such jobs");
    };
    assert_eq!(full.name(), "StoreUnavailable");
    assert!(full.outcome_is_known() && full.is_transient(), "{full:?}");
    assert!(full.to_string().contains("full"), "{full}");
    assert!(store.find(&stored).await.expect("find").iter().all(Option::is_some));
    assert_eq!(store.observe(None).await.map(|seen| seen.totals()).expect("totals").accepted, stored.len() as u64);
    assert_sound(&store).await;
    drop(store);
    let store = SqliteStore::open(&path).expect("open without the limit");
    enqueue(&store, big()).await.expect("there is room again");
    assert_sound(&store).await;
}

#[tokio::test]
async fn a_file_locked_by_another_program_is_waited_for_and_then_given_up() {
    let (_folder, path) = folder();
    let store = SqliteOptions::new(&path).submission_timeout(Duration::from_millis(200)).open().expect("open");
    let mut other = Connection::open(&path).expect("open");
    let held = begin(&mut other);
    let refused = enqueue(&store, plain()).await.expect_err("locked");
    assert_eq!(refused.name(), "StoreUnavailable");
    assert!(refused.outcome_is_known(), "{refused:?}");
    assert!(refused.to_string().contains("locked"), "{refused}");
    assert_eq!(store.observe(None).await.map(|seen| seen.totals()).expect("readers go on").accepted, 0);
    drop(held);
    enqueue(&store, plain()).await.expect("the lock is gone");
}

#[tokio::test]
async fn a_caller_never_hears_of_a_lock_that_opens_in_time() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    let mut other = Connection::open(&path).expect("open");
    let (send, locked) = std::sync::mpsc::channel();
    let holder = std::thread::spawn(move || {
        let held = begin(&mut other);
        send.send(()).expect("the test waits");
        std::thread::sleep(Duration::from_millis(300));
        drop(held);
    });
    locked.recv().expect("locked");
    enqueue(&store, plain()).await.expect("it waits for the lock");
    holder.join().expect("no panic");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let (_folder, path) = folder();
    std::fs::write(&path, "this is no database, and long enough to look like one".repeat(100)).expect("write");
    let refused = SqliteStore::open(&path).expect_err("no database");
    assert_eq!(refused.name(), "Store");
    assert!(refused.to_string().contains("not a database"), "{refused}");
}

#[tokio::test]
async fn a_folder_that_does_not_exist_is_named() {
    let (folder, _) = folder();
    let path = folder.path().join("missing").join("jobs.db");
    let refused = SqliteStore::open(&path).expect_err("no folder");
    assert_eq!(refused.name(), "StoreUnavailable");
    assert!(refused.to_string().contains("missing"), "{refused}");
}

/// Writes noise over the middle of a file.
fn damage(path: &Path) {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = std::fs::OpenOptions::new().write(true).open(path).expect("open");
    let length = file.metadata().expect("metadata").len();
    file.seek(SeekFrom::Start(length / 2)).expect("seek");
    file.write_all(&[0xa5; 20_000]).expect("write");
}

#[tokio::test]
async fn a_damaged_file_is_found_by_the_check() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    for _ in 0..5 {
        store.insert(Submission::new(vec![spec(plain()); 1000]).expect("a batch")).await.expect("insert");
    }
    drop(store);
    damage(&path);
    let store = SqliteStore::open(&path).expect("its first pages are whole");
    match store.check().await {
        Ok(findings) => assert!(!findings.is_empty(), "the damage was not found"),
        Err(error) => assert_eq!(error.name(), "Store"),
    }
}

// Upkeep.

#[tokio::test]
async fn pruning_gives_space_back() {
    let (_folder, path) = folder();
    let clock = ManualClock::default();
    let store = SqliteOptions::new(&path).clock(clock.clone()).open().expect("open");
    let big = spec(NewJob::new("test", Payload::json(&"x".repeat(10_000)).expect("json")));
    let mut done = Vec::new();
    for _ in 0..4 {
        store.insert(Submission::new(vec![big.clone(); 1000]).expect("a batch")).await.expect("insert");
        done.extend(claim(&store, 1000).await.into_iter().map(|claimed| claimed.lease.complete(None)));
    }
    store.settle(&done).await.expect("settle");
    let pages = || {
        let conn = Connection::open(&path).expect("open");
        conn.query_row("pragma page_count", [], |row| row.get::<_, i64>(0)).expect("page_count")
    };
    let before = pages();
    clock.advance(Duration::from_secs(3600));
    let now = Retention { completed: Some(Duration::ZERO), ..Retention::default() };
    let upkeep = Upkeep { retention: now, ..Upkeep::default() };
    let mut pruned = 0;
    for _ in 0..100 {
        pruned += store.upkeep(&upkeep).await.expect("upkeep").pruned;
    }
    assert_eq!(pruned, 4000);
    assert!(pages() < before / 2, "{} pages of {before} are left", pages());
    assert_eq!(store.count(&Filter::default(), 10, 10).await.expect("count").count, 0);
    assert_sound(&store).await;
}

#[tokio::test]
async fn k3_a_slot_is_free_when_the_users_transaction_commits() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("a store");
    let control = windlass::flow::Control::new().running(1).each_key(windlass::flow::Limit::running(1));
    let put = windlass::flow::Change::Put { control, version: None, from_code: false };
    let edit = windlass::flow::ControlEdit::new(QueueName::default(), put);
    store.control(&edit, None).await.expect("controlled");
    let jobs = vec![spec(plain().key("a")); 3];
    store.insert(Submission::new(jobs).expect("a batch")).await.expect("inserted");
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 5);
    let mut held = store.claim(&request).await.expect("claim").jobs;
    assert_eq!(held.len(), 1);
    let settlement = held.remove(0).lease.complete(None);
    let mut users = Connection::open(&path).expect("a connection");
    for commits in [false, true] {
        let tx = users.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction");
        let settled = in_tx::settle(&tx, &SystemClock::default(), &settlement).expect("settled");
        assert!(matches!(settled, Settled::Applied(State::Completed)), "{settled:?}");
        if commits {
            tx.commit().expect("committed")
        } else {
            tx.rollback().expect("rolled back")
        }
        let claimed = store.claim(&request).await.expect("claim").jobs.len();
        assert_eq!(claimed, usize::from(commits), "a slot is free once its end is committed");
    }
    assert!(store.claim(&request).await.expect("claim").is_empty());
}
