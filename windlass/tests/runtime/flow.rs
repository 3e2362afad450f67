//! Flow control end to end: a worker declares it, asks again when a gate opens, and never runs more than may run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use windlass::flow::{Control, Rate};
use windlass::store::MemoryStore;
use windlass::{Context, ManualClock, State};

use crate::support::{Number, Setup, until};

/// A store on the machine's clock: gates open by its time.
fn real_time() -> Setup {
    Setup::on(Arc::new(MemoryStore::new()), ManualClock::default())
}

async fn completed(setup: &Setup) -> u64 {
    setup.client.totals().await.expect("totals").count(State::Completed)
}

#[tokio::test]
async fn k15_a_worker_asks_again_when_a_gate_opens() {
    let setup = real_time();
    let rate = Control::new().rate(Rate::per_second(50).burst(1));
    let worker = setup.worker(8).poll_interval(Duration::from_secs(60)).control("default", rate.clone());
    let running = worker.handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    let stored = setup.client.queue("default").expect("a name").controlled().await.expect("controlled");
    assert_eq!(stored.map(|record| (record.control, record.from_code)), Some((rate, true)));
    let begun = Instant::now();
    for number in 0..6 {
        setup.number(number).await;
    }
    until("all are done", || async { completed(&setup).await == 6 }).await;
    assert!(begun.elapsed() >= Duration::from_millis(100), "five pauses of 20 ms: {:?}", begun.elapsed());
    running.stop().await;
}

#[tokio::test]
async fn k2_two_workers_run_no_more_than_the_queue_may() {
    let setup = real_time();
    let (runs, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut workers = Vec::new();
    for _ in 0..2 {
        let (runs, most) = (Arc::clone(&runs), Arc::clone(&most));
        let handler = move |_: Number, _: Context| {
            let (runs, most) = (Arc::clone(&runs), Arc::clone(&most));
            async move {
                most.fetch_max(runs.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                runs.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        };
        let worker = setup.worker(8).control("default", Control::new().running(3)).handle(handler);
        workers.push(worker.start().await.expect("start"));
    }
    for number in 0..40 {
        setup.number(number).await;
    }
    until("all are done", || async { completed(&setup).await == 40 }).await;
    assert_eq!(most.load(Ordering::SeqCst), 3, "as many as may, and never one more");
    for running in workers {
        running.stop().await;
    }
}
