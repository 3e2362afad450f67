//! Several runs of the program that moves, one of which comes back when another went on: it must harm nothing.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use uuid::Uuid;
use windlass::store::moving::{self, Move, Phase, Progress, Watcher, closed};
use windlass::store::{PostgresStore, Store};

use super::places::{Kind, Nobody, PAIRS, Places, batch, claim, job, moved, open};

/// More jobs than one page of a copy has.
const JOBS: u64 = 4500;

/// A run that stops, as if it had been sent SIGSTOP, when a phase has begun.
struct Stopped {
    phase: Phase,
    /// Told once when it stops; gone afterwards.
    stopped: Mutex<Option<Sender<()>>>,
    goes_on: Mutex<Receiver<()>>,
}

impl Watcher for Stopped {
    fn told(&self, progress: &Progress) {
        if progress.phase != self.phase {
            return;
        }
        if let Some(stopped) = self.stopped.lock().expect("not poisoned").take() {
            stopped.send(()).expect("the test waits");
            self.goes_on.lock().expect("not poisoned").recv().expect("the test lets it go on");
        }
    }

    fn stops(&self) -> bool {
        false
    }
}

async fn fill(source: &dyn Store) {
    for _ in 0..JOBS / 500 {
        source.insert(batch((0..500).map(|_| job("ready")).collect())).await.expect("insert");
    }
}

/// Whoever moves: both stores opened anew.
async fn resumed(from: &str, to: &str) -> Move {
    Move::resume(open(from).await, open(to).await).await.expect("it was begun")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_that_comes_back_late_writes_nothing() {
    for (from, to) in PAIRS {
        for phase in [Phase::Copy, Phase::CatchUp] {
            let what = format!("{from:?} to {to:?}, stopped in {phase}");
            let places = Places::new();
            let (from_url, to_url) = (places.fresh(from), places.fresh(to));
            let source = open(&from_url).await;
            fill(&*source).await;
            moving::begin(&*source, &*open(&to_url).await, (&from_url, &to_url)).await.expect("it begins");
            let (stopped, is_stopped) = channel();
            let (go_on, goes_on) = channel();
            let first = resumed(&from_url, &to_url).await;
            let watcher = Stopped { phase, stopped: Mutex::new(Some(stopped)), goes_on: Mutex::new(goes_on) };
            let first = tokio::spawn(async move { first.run(&watcher).await });
            tokio::task::block_in_place(|| is_stopped.recv()).expect("it gets there");

            let finished =
                resumed(&from_url, &to_url).await.run(&Nobody).await.expect("it goes on").expect("to the end");
            assert_eq!(Some(finished.source), finished.target, "{what}");
            let target = open(&to_url).await;
            let claimed = claim(&*target, "ready", 100).await;
            assert_eq!(claimed.len(), 100, "{what}");
            let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
            target.settle(&settlements).await.expect("settled");

            go_on.send(()).expect("it waits");
            let late = first.await.expect("no panic").expect_err("another run has ended the move");
            assert!(late.to_string().contains("another run of the program"), "{what}: {late}");
            target.insert(batch(vec![job("ready")])).await.expect("the target stays open");
            let totals = target.totals().await.expect("totals");
            assert_eq!((totals.accepted, totals.states[5]), (JOBS + 1, 100), "{what}");
            assert_eq!(target.check().await.expect("check"), Vec::<String>::new(), "{what}");
            let refused = source.insert(batch(vec![job("ready")])).await.expect_err("it was moved");
            assert!(closed(&refused).is_some(), "{what}: {refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_are_forgotten_only_by_the_run_that_goes_on() {
    for from in [Kind::Sqlite, Kind::Postgres] {
        let places = Places::new();
        let (from_url, to_url) = (places.fresh(from), places.fresh(Kind::Sqlite));
        let source = open(&from_url).await;
        moving::begin(&*source, &*open(&to_url).await, (&from_url, &to_url)).await.expect("it begins");
        let (first, second) = (open(&from_url).await, open(&from_url).await);
        let (first, second) = (first.movable().expect("movable"), second.movable().expect("movable"));
        let id = first.mark().await.expect("a mark").expect("it was begun").id;
        let numbers = async |run: &Arc<dyn moving::Movable>| {
            let changes = run.changes(100).await.expect("notes");
            changes.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
        };
        source.insert(batch((0..20).map(|_| job("first")).collect())).await.expect("insert");
        let old = first.take_over(&id, "first").await.expect("taken over");
        let seen = numbers(&first).await;
        let new = second.take_over(&id, "second").await.expect("taken over");
        assert_eq!(numbers(&second).await, seen, "{from:?}");
        // What the first run had sent arrives late; then the source goes on, and the second run forgets what it has seen.
        let _ = first.forget_changes(&seen, &old).await;
        source.insert(batch((0..20).map(|_| job("second")).collect())).await.expect("insert");
        second.forget_changes(&seen, &new).await.expect("forgotten");
        assert!(numbers(&second).await.len() >= 20, "{from:?}: notes were forgotten that nobody has read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_from_before_the_move_is_refused_after_it() {
    let places = Places::new();
    let (from_url, to_url) = (places.fresh(Kind::Postgres), places.fresh(Kind::Sqlite));
    let (server, _) = from_url.split_once('?').expect("a schema");
    let source = PostgresStore::open(&from_url).await.expect("a store");
    source.insert(batch(vec![job("first")])).await.expect("insert");
    let (mut client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let level = tokio_postgres::IsolationLevel::RepeatableRead;
    let transaction = client.build_transaction().isolation_level(level).start().await.expect("a transaction");
    // From here on it sees nothing of what others commit.
    transaction.query_one("select 1", &[]).await.expect("a snapshot");
    moved(&from_url, &to_url).await;
    // In a lane that the store knows: another would be made on a connection of the store's own, which is refused in any case.
    let late = source.enqueue_in_tx(&transaction, &batch(vec![job("first")])).await.expect_err("the store was moved");
    assert!(closed(&late).is_some_and(|closed| closed.destination() == Some(to_url.as_str())), "{late}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_move_was_undone_writes_nothing() {
    for (from, to) in PAIRS {
        let places = Places::new();
        let (from_url, to_url) = (places.fresh(from), places.fresh(to));
        let source = open(&from_url).await;
        fill(&*source).await;
        moving::begin(&*source, &*open(&to_url).await, (&from_url, &to_url)).await.expect("it begins");
        let run = resumed(&from_url, &to_url).await;
        moving::undo(&*source, &*open(&to_url).await).await.expect("undone");
        let late = run.run(&Nobody).await.expect_err("it was undone");
        assert!(late.to_string().contains("this move was undone"), "{from:?} to {to:?}: {late}");
        let target = open(&to_url).await;
        assert_eq!(target.totals().await.expect("totals").accepted, 0, "{from:?} to {to:?}");
        target.insert(batch(vec![job(&Uuid::new_v4().to_string())])).await.expect("it is open and empty");
    }
}

/// Counting a source of millions takes minutes, in which nothing is asked of the target's snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn the_target_is_still_seen_as_it_was_after_a_while() {
    let places = Places::new();
    let target = open(&places.fresh(Kind::Postgres)).await;
    target.insert(batch(vec![job("first")])).await.expect("insert");
    let snapshot = target.movable().expect("movable").snapshot().await.expect("a snapshot");
    target.insert(batch(vec![job("second")])).await.expect("insert");
    // Longer than transactions of others may be idle.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(snapshot.names(None, 10).await.expect("it is there").len(), 1);
}
