//! The SQLite store writes, completes and removes neighbours in one statement: that each of them is treated as if alone.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use windlass::job::{Lease, LeaseToken, Settlement, Stale};
use windlass::store::{Claimed, Filter, ListQuery, Retention, Save, Settled, Store, Upkeep};
use windlass::store::{SqliteOptions, SqliteStore};
use windlass::workflow::Submission;
use windlass::{Failure, JobId, ManualClock, NewJob, Payload, State};

use crate::{assert_sound, claim, enqueue, folder, plain, spec, state};

#[tokio::test]
async fn neighbours_are_completed_each_under_its_own_lease() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    let jobs = (0..24).map(|n| spec(NewJob::new(if n % 3 == 0 { "test" } else { "other" }, Payload::default())));
    store.insert(Submission::new(jobs.collect()).expect("a batch")).await.expect("insert");
    let mut claimed = claim(&store, 24).await;
    let held = [claimed.remove(20), claimed.remove(9)];
    let ids: Vec<JobId> = claimed.iter().map(|claimed| claimed.job.id).collect();
    let result = Payload::json(&"found").expect("json");
    let settlements = claimed.into_iter().enumerate().map(|(place, Claimed { job, lease, .. })| match place {
        3 => Lease::granted(&job, LeaseToken::from_uuid(uuid::Uuid::from_u128(7))).complete(None),
        4 => Lease::granted(&job, LeaseToken::from_uuid(uuid::Uuid::nil())).complete(None),
        5 => lease.complete(Some(result.clone())),
        7 => lease.fail(Failure::permanent("no", "not now"), &mut || 0.5),
        _ => lease.complete(None),
    });
    // In no order, as workers settle.
    let mut settlements: Vec<(usize, Settlement)> = settlements.enumerate().collect();
    settlements.sort_by_key(|(place, _)| (place * 7) % 22);
    let (places, settlements): (Vec<usize>, Vec<Settlement>) = settlements.into_iter().unzip();
    let answers = store.settle(&settlements).await.expect("settle");
    for (place, answer) in places.into_iter().zip(answers) {
        let found = store.find(&[ids[place]]).await.expect("find").remove(0).expect("it is there");
        match place {
            3 | 4 => assert!(matches!(answer, Settled::Stale(Stale::Mismatch)), "{place}: {answer:?}"),
            7 => assert!(matches!(answer, Settled::Applied(State::Failed)), "{place}: {answer:?}"),
            _ => assert!(matches!(answer, Settled::Applied(State::Completed)), "{place}: {answer:?}"),
        }
        let state = if place == 7 { State::Failed } else { State::Completed };
        assert_eq!(found.state, if place == 3 || place == 4 { State::Running } else { state });
        assert_eq!(found.result, (place == 5).then(|| result.clone()));
    }
    for Claimed { job, .. } in &held {
        assert_eq!(state(&store, job.id).await, Some(State::Running), "nobody settled it");
    }
    let again = store.settle(&settlements).await.expect("settle again");
    assert_eq!(again.iter().filter(|answer| matches!(answer, Settled::AlreadyApplied)).count(), 20);
    assert_sound(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_jobs_of_many_callers_are_all_written() {
    let (_folder, path) = folder();
    let store = Arc::new(SqliteStore::open(&path).expect("open"));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..40usize {
        let store = store.clone();
        callers.spawn(async move {
            for round in 0..10 {
                match (caller + round) % 5 {
                    0 => drop(enqueue(&store, plain().delay(Duration::from_secs(60))).await.expect("enqueue")),
                    1 => drop(
                        enqueue(&store, plain().idempotency_key(format!("{caller}-{round}"))).await.expect("enqueue"),
                    ),
                    2 => drop(claim(&store, 3).await),
                    3 => drop(
                        store.insert(Submission::new(vec![spec(plain()); 19]).expect("a batch")).await.expect("insert"),
                    ),
                    _ => drop(enqueue(&store, plain()).await.expect("enqueue")),
                }
            }
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller.expect("no caller panicked");
    }
    assert_eq!(store.observe(None).await.map(|seen| seen.totals()).expect("totals").accepted, 80 * (1 + 1 + 19 + 1));
    assert_sound(&store).await;
}

#[tokio::test]
async fn old_jobs_go_with_all_that_was_kept_of_them() {
    let (_folder, path) = folder();
    let clock = ManualClock::default();
    let store = SqliteOptions::new(&path).clock(clock.clone()).open().expect("open");
    let long = Duration::from_secs(365 * 86_400);
    let mut parent = None;
    for n in 0..40u64 {
        let job = if n % 4 == 0 { plain().lifetime(long) } else { plain() };
        let id = enqueue(&store, job).await.expect("enqueue");
        parent = if n == 20 { Some(id) } else { parent };
    }
    let parent = parent.expect("the twenty-first");
    let kept = claim(&store, 40).await.into_iter().enumerate().map(|(n, claimed)| (n, claimed.lease));
    let mut done = Vec::new();
    for (n, lease) in kept {
        let save = Save::under(lease.key()).log(["a line".to_owned()]);
        let save = if n % 2 == 0 { save.checkpoint("half-way").expect("short") } else { save };
        store.save(&[save]).await.expect("save").remove(0).expect("the lease holds");
        // One is left running among those that end.
        if n != 30 {
            done.push(if n % 5 == 0 { lease.release() } else { lease.complete(None) });
        }
    }
    store.settle(&done).await.expect("settle");
    let again = claim(&store, 40).await.into_iter().map(|claimed| claimed.lease.complete(None)).collect::<Vec<_>>();
    let waiting = enqueue(&store, plain().after([parent]).after([again[0].key().job])).await.expect("enqueue");
    store.settle(&again[1..]).await.expect("settle");
    clock.advance(Duration::from_secs(60));
    let retention = Retention { completed: Some(Duration::ZERO), ..Retention::default() };
    let pruned = store.upkeep(&Upkeep { retention, limit: 1000 }).await.expect("upkeep").pruned;
    assert_eq!(
        pruned, 37,
        "all but the one that runs, the one that waits to be settled, and the one that a job waits for"
    );
    assert_sound(&store).await;
    store.settle(&again[..1]).await.expect("settle");
    let last = claim(&store, 40).await.into_iter().map(|claimed| claimed.lease.complete(None)).collect::<Vec<_>>();
    assert_eq!(last.iter().map(|done| done.key().job).collect::<Vec<_>>(), [waiting]);
    store.settle(&last).await.expect("settle");
    clock.advance(Duration::from_secs(60));
    let pruned = store.upkeep(&Upkeep { retention, limit: 1000 }).await.expect("upkeep").pruned;
    assert_eq!(pruned, 3);
    assert_sound(&store).await;
    let conn = Connection::open(&path).expect("open");
    for table in ["job", "leased", "done", "note", "attempt", "log", "edge", "lifetime"] {
        let left: i64 =
            conn.query_row(&format!("select count(*) from windlass_{table}"), [], |row| row.get(0)).expect("a table");
        let running = ["job", "leased", "note", "log"].contains(&table);
        assert_eq!(left, i64::from(running), "{table}");
    }
}

/// Among many jobs without it, a tag is found by an index and not by looking at them all.
#[tokio::test]
async fn a_list_by_tag_or_correlation_looks_only_at_jobs_that_have_it() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).expect("open");
    store.insert(Submission::new(vec![spec(plain()); 2_000]).expect("a batch")).await.expect("insert");
    let rare = enqueue(&store, plain().tag("team", "rare").correlation_id("order-7")).await.expect("enqueue");
    let by_tag = Filter::new().tag("team", "rare");
    let by_id = Filter::new().correlation_id("order-7");
    for filter in [by_tag, by_id] {
        let counted = store.count(&filter, 100, 1_000).await.expect("count");
        assert_eq!((counted.count, counted.looked, counted.capped), (1, 1, false), "{filter:?}");
        let query = ListQuery { filter, limit: 10, ..ListQuery::default() };
        let page = store.list(&query).await.expect("list");
        assert_eq!(page.items.iter().map(|job| job.id).collect::<Vec<_>>(), [rare]);
        assert_eq!(page.next, None, "nothing is left to be looked at");
    }
}
