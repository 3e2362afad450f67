//! Moves under load, stopped at random moments and resumed: nothing is lost, nothing happens twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use windlass::JobId;
use windlass::store::moving::{self, Finished, Following, Move, OpenStore};
use windlass::store::{Settled, Store};

use super::places::{Kind, Nobody, PAIRS, Places, batch, claim, job, moved, open};

/// How often each job was completed, by id; every id that was acknowledged is in it.
type Seen = Arc<Mutex<HashMap<JobId, u64>>>;

struct Load {
    seen: Seen,
    /// Tells producers to stop.
    stop: Arc<AtomicBool>,
    producers: Vec<tokio::task::JoinHandle<()>>,
    /// Tells workers to stop: an empty claim alone does not say that nothing more comes.
    done: Arc<AtomicBool>,
    workers: Vec<tokio::task::JoinHandle<()>>,
    settled: Arc<AtomicU64>,
}

/// A store that goes along, as servers and workers have it.
async fn followed(url: &str) -> Arc<dyn Store> {
    let open_store: OpenStore = Arc::new(|url| Box::pin(async move { windlass::store::open(&url).await }));
    Arc::new(Following::new(open(url).await, open_store))
}

impl Load {
    /// Producers and workers, each with a store of its own, as if they were processes.
    async fn start(url: &str) -> Self {
        let (seen, stop, done, settled) = <(Seen, Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let mut load = Load { seen, stop, producers: Vec::new(), done, workers: Vec::new(), settled };
        for _ in 0..2 {
            let (store, seen, stop) = (followed(url).await, Arc::clone(&load.seen), Arc::clone(&load.stop));
            load.producers.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let inserted = store.insert(batch((0..20).map(|_| job("load")).collect())).await.expect("insert");
                    for job in &inserted.jobs {
                        // A worker may have been quicker.
                        seen.lock().expect("not poisoned").entry(job.id).or_insert(0);
                    }
                    // Slowly enough that a move in a debug build catches up.
                    tokio::time::sleep(between()).await;
                }
            }));
            let (store, seen, done) = (followed(url).await, Arc::clone(&load.seen), Arc::clone(&load.done));
            let settled = Arc::clone(&load.settled);
            load.workers.push(tokio::spawn(async move {
                loop {
                    let claimed = claim(&*store, "load", 30).await;
                    if claimed.is_empty() && done.load(Ordering::Relaxed) {
                        return;
                    }
                    let ids: Vec<JobId> = claimed.iter().map(|claimed| claimed.job.id).collect();
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
                    let answers = store.settle(&settlements).await.expect("settle");
                    let mut seen = seen.lock().expect("not poisoned");
                    for (id, answer) in ids.into_iter().zip(answers) {
                        assert!(matches!(answer, Settled::Applied(_)), "{id}: {answer:?}");
                        *seen.entry(id).or_default() += 1;
                        settled.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
        load
    }

    /// How many jobs are completed in a second, over the next thousand.
    async fn rate(&self) -> u64 {
        let (from, begun) = (self.settled.load(Ordering::Relaxed), Instant::now());
        for _ in 0..10 {
            self.goes_on().await;
        }
        rate(self.settled.load(Ordering::Relaxed) - from, begun)
    }

    /// Waits until a hundred more jobs have been completed.
    async fn goes_on(&self) {
        let (from, deadline) = (self.settled.load(Ordering::Relaxed), Instant::now() + Duration::from_secs(60));
        while self.settled.load(Ordering::Relaxed) < from + 100 {
            assert!(Instant::now() < deadline, "nothing is completed any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops producers, lets workers finish, and says how many jobs there were.
    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        for producer in self.producers {
            producer.await.expect("no producer panics");
        }
        // Only now everything that was acknowledged is known: an insert may be under way for long while a claim finds nothing.
        let deadline = Instant::now() + Duration::from_secs(60);
        let open = || self.seen.lock().expect("not poisoned").values().filter(|times| **times == 0).count();
        while open() > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.done.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.await.expect("no worker panics");
        }
        let seen = self.seen.lock().expect("not poisoned");
        let wrong: Vec<_> = seen.iter().filter(|(_, times)| **times != 1).collect();
        assert!(wrong.is_empty(), "{} of {} jobs were not completed once: {wrong:?}", wrong.len(), seen.len());
        seen.len()
    }
}

fn rate(count: u64, since: Instant) -> u64 {
    (count as f64 / since.elapsed().as_secs_f64()) as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_and_workers_go_along() {
    for (from, to) in PAIRS {
        let places = Places::new();
        let (from_url, to_url) = (places.fresh(from), places.fresh(to));
        drop(open(&from_url).await);
        let load = Load::start(&from_url).await;
        load.goes_on().await;
        let finished = moved(&from_url, &to_url).await;
        assert_eq!(Some(finished.source), finished.target, "{from:?} to {to:?}");
        load.goes_on().await;
        let jobs = load.end().await;
        let target = open(&to_url).await;
        assert_eq!(target.check().await.expect("check"), Vec::<String>::new(), "{from:?} to {to:?}");
        let totals = target.totals().await.expect("totals");
        assert_eq!((totals.accepted, totals.states[5]), (jobs as u64, jobs as u64), "{from:?} to {to:?}");
        println!("{from:?} to {to:?}: {jobs} jobs, pause {:?}, {} followed", finished.pause, finished.caught_up);
    }
}

/// Drops a move after a while, as a kill does, its connections with it; gives how it ended if it was quicker.
async fn killed(from: &str, to: &str, after: Duration) -> Option<Finished> {
    let (source, target) = (open(from).await, open(to).await);
    let going = async { Move::resume(source, target).await?.run(&Nobody).await };
    match tokio::time::timeout(after, going).await {
        Err(_) => None,
        Ok(finished) => {
            let finished = finished.expect("it goes on").expect("nobody stopped it");
            assert!(finished.target.is_none_or(|target| target == finished.source));
            Some(finished)
        }
    }
}

/// Completes all jobs of a queue; gives how many there were, each of them once.
async fn drained(store: &dyn Store, queue: &str) -> u64 {
    let mut seen: HashMap<JobId, u64> = HashMap::new();
    loop {
        let claimed = claim(store, queue, 500).await;
        if claimed.is_empty() {
            assert!(seen.values().all(|times| *times == 1), "a job was claimed twice");
            return seen.len() as u64;
        }
        claimed.iter().for_each(|claimed| *seen.entry(claimed.job.id).or_default() += 1);
        let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
        let answers = store.settle(&settlements).await.expect("settle");
        assert!(answers.iter().all(|answer| matches!(answer, Settled::Applied(_))), "{answers:?}");
    }
}

/// How many moves are killed; a move of a few thousand jobs may end before.
const KILLS: u32 = 25;

/// How long a producer rests between two batches: `WINDLASS_MOVE_REST` in milliseconds, for a measured run.
fn between() -> Duration {
    let told = std::env::var("WINDLASS_MOVE_REST").ok().and_then(|text| text.parse().ok());
    Duration::from_millis(told.unwrap_or(50))
}

/// How many jobs wait while they are moved: a few thousand, or as many as `WINDLASS_MOVE_JOBS` says for a measured run.
fn waiting() -> u64 {
    std::env::var("WINDLASS_MOVE_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(4000)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_killed_is_resumed_without_loss() {
    for (from, to) in [(Kind::Sqlite, Kind::Postgres), (Kind::Postgres, Kind::Sqlite)] {
        let places = Places::new();
        let (from_url, to_url) = (places.fresh(from), places.fresh(to));
        let source = open(&from_url).await;
        let waiting = waiting() / 500 * 500;
        for _ in 0..waiting / 500 {
            source.insert(batch((0..500).map(|_| job("waiting")).collect())).await.expect("insert");
        }
        let load = Load::start(&from_url).await;
        let before = load.rate().await;
        let target = open(&to_url).await;
        moving::begin(&*source, &*target, (&from_url, &to_url)).await.expect("it begins");
        drop((source, target));
        let (settled, begun) = (load.settled.load(Ordering::Relaxed), Instant::now());
        let mut kills = 0;
        let finished = loop {
            // Over all of the time that a move takes, which grows with what there is to move.
            let most = if kills < KILLS { 60 * (u64::from(kills) + 1) * (waiting / 100_000).max(1) } else { 600_000 };
            let least = if kills < KILLS { 1 } else { most };
            let after = Duration::from_millis(fastrand::u64(least..=most));
            if let Some(finished) = killed(&from_url, &to_url, after).await {
                break finished;
            }
            kills += 1;
        };
        let during = rate(load.settled.load(Ordering::Relaxed) - settled, begun);
        let after = load.rate().await;
        let jobs = load.end().await as u64;
        let target = open(&to_url).await;
        assert_eq!(target.check().await.expect("check"), Vec::<String>::new(), "{from:?} to {to:?}");
        let totals = target.totals().await.expect("totals");
        assert_eq!((totals.accepted, totals.states[5]), (jobs + waiting, jobs), "{from:?} to {to:?}");
        assert_eq!(drained(&*target, "waiting").await, waiting, "{from:?} to {to:?}");
        println!(
            "{from:?} to {to:?}: {waiting} jobs waited, {jobs} were completed once each ({before}/s before, {during}/s during, \
             {after}/s after), {kills} kills, pause of the last run {:?}, 0 lost, 0 doubled",
            finished.pause
        );
    }
}
