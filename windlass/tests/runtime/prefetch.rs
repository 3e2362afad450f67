//! Jobs claimed ahead of free slots: when, how many, and how they are given back (rule N1).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::flow::ControlEdit;
use windlass::worker::Running;
use windlass::{Client, Context, JobId, NewJob, Payload, Priority, QueueName, State, Worker};

use crate::support::{Setup, memory, until};

/// A queue whose handlers are as long as they are told to be, and whose worker can be made to stand still.
#[derive(Default)]
struct Track {
    /// Handlers started, by the priority of their job.
    started: Mutex<Vec<Priority>>,
    now: AtomicUsize,
    most: AtomicUsize,
    /// From now on handlers do not end; and how many stand.
    stands: AtomicBool,
    standing: AtomicUsize,
    micros: AtomicUsize,
}

impl Track {
    fn of(run: Duration) -> Arc<Self> {
        let micros = usize::try_from(run.as_micros()).expect("short");
        Arc::new(Track { micros: AtomicUsize::new(micros), ..Track::default() })
    }

    fn started(&self) -> usize {
        self.started.lock().expect("lock").len()
    }

    async fn run(&self, priority: Priority) {
        self.started.lock().expect("lock").push(priority);
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        if self.stands.load(Ordering::SeqCst) {
            self.standing.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_micros(self.micros.load(Ordering::SeqCst) as u64)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    fn worker(self: &Arc<Self>, client: &Client, slots: usize) -> Worker<Arc<Track>> {
        Worker::new(client)
            .with_state(Arc::clone(self))
            .queue("default", slots)
            .poll_interval(Duration::from_millis(5))
            .grace(Duration::from_secs(1))
            .handle_raw("short", async |_, cx: Context<Arc<Track>>| {
                cx.state.run(cx.job().effective_priority()).await;
                Ok(())
            })
    }
}

/// A job that may be tried once, so that an attempt that counts is its end.
fn once() -> NewJob {
    NewJob::new("short", Payload::default()).max_attempts(1)
}

async fn fill(client: &Client, jobs: usize) -> Vec<JobId> {
    let enqueued = client.enqueue_all((0..jobs).map(|_| once())).await.expect("enqueue");
    enqueued.into_iter().map(|job| job.id).collect()
}

async fn counted(client: &Client, state: State) -> u64 {
    client.totals().await.expect("totals").states[usize::from(state.number())]
}

/// Waits until jobs were claimed ahead, and then lets the handlers stand still.
async fn stand_with_jobs_ahead(track: &Track, running: &Running) {
    until("jobs are claimed ahead", || async { running.prefetched() > 1 }).await;
    track.stands.store(true, Ordering::SeqCst);
    until("the handler stands", || async { track.standing.load(Ordering::SeqCst) == 1 }).await;
}

/// Every job is given back or was run, and none has lost an attempt by it.
async fn all_can_still_run(setup: &Setup, jobs: &[JobId], interrupted: usize) {
    let mut waiting = 0;
    for id in jobs {
        let job = setup.client.job(*id).await.expect("a job");
        assert!(matches!(job.state, State::Scheduled | State::Completed), "{id} is {}", job.state);
        assert_eq!(job.failures, 0, "{id}");
        waiting += usize::from(job.state == State::Scheduled);
    }
    assert!(waiting > interrupted, "{waiting} were given back");
    let quick = Track::of(Duration::ZERO);
    let running = quick.worker(&setup.client, 4).start().await.expect("start");
    until("all completed", || async { counted(&setup.client, State::Completed).await == jobs.len() as u64 }).await;
    running.stop().await;
}

async fn n3_a_stop_gives_back_what_was_claimed_ahead_uncounted(setup: Setup) {
    let track = Track::of(Duration::from_micros(200));
    let jobs = fill(&setup.client, 500).await;
    let running = track.worker(&setup.client, 1).start().await.expect("start");
    stand_with_jobs_ahead(&track, &running).await;
    let stopped = running.stop().await;
    assert_eq!((stopped.interrupted, stopped.abandoned, stopped.dropped), (1, 0, 0));
    assert_eq!(counted(&setup.client, State::Running).await, 0);
    all_can_still_run(&setup, &jobs, 1).await;
}

async fn n1_what_was_claimed_ahead_and_does_not_start_is_given_back(setup: Setup) {
    let track = Track::of(Duration::from_micros(200));
    let jobs = fill(&setup.client, 500).await;
    let running = track.worker(&setup.client, 1).start().await.expect("start");
    stand_with_jobs_ahead(&track, &running).await;
    until("only the one that runs is held", || async { counted(&setup.client, State::Running).await == 1 }).await;
    assert_eq!((running.busy(), running.prefetched()), (1, 0));
    running.stop().await;
    all_can_still_run(&setup, &jobs, 1).await;
}

async fn n1_no_more_handlers_than_slots_run_whatever_is_claimed_ahead(setup: Setup) {
    let track = Track::of(Duration::from_micros(200));
    fill(&setup.client, 600).await;
    let running = track.worker(&setup.client, 3).start().await.expect("start");
    until("jobs are claimed ahead", || async { running.prefetched() > 1 }).await;
    until("all completed", || async { counted(&setup.client, State::Completed).await == 600 }).await;
    assert_eq!(track.most.load(Ordering::SeqCst), 3);
    running.stop().await;
}

on_every_store!(
    n3_a_stop_gives_back_what_was_claimed_ahead_uncounted,
    n1_what_was_claimed_ahead_and_does_not_start_is_given_back,
    n1_no_more_handlers_than_slots_run_whatever_is_claimed_ahead,
);

/// In virtual time: looks every half millisecond how many are claimed ahead, until so many have started.
async fn most_ahead(track: &Track, running: &Running, started: usize) -> usize {
    let mut most = 0;
    while track.started() < started {
        most = most.max(running.prefetched());
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    most
}

#[tokio::test(start_paused = true)]
async fn n1_as_many_are_claimed_ahead_as_start_within_the_horizon() {
    let setup = memory().await;
    let track = Track::of(Duration::from_millis(2));
    fill(&setup.client, 1_000).await;
    let running = track.worker(&setup.client, 1).start().await.expect("start");
    let most = most_ahead(&track, &running, 900).await;
    // A job every 2 ms and a millisecond of the paused clock's own: 17 to 25 in 50 ms.
    assert!((10..=30).contains(&most), "{most}");
    assert_eq!(track.most.load(Ordering::SeqCst), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn n1_a_bound_on_what_is_claimed_ahead_holds() {
    for bound in [0, 3] {
        let setup = memory().await;
        let track = Track::of(Duration::from_millis(2));
        fill(&setup.client, 500).await;
        let running = track.worker(&setup.client, 1).prefetch(bound).start().await.expect("start");
        assert_eq!(most_ahead(&track, &running, 400).await, bound);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn n1_long_jobs_are_not_claimed_ahead() {
    let setup = memory().await;
    let track = Track::of(Duration::from_millis(60));
    fill(&setup.client, 300).await;
    let running = track.worker(&setup.client, 8).start().await.expect("start");
    assert_eq!(most_ahead(&track, &running, 250).await, 0, "133 start in a second, and each takes longer than 50 ms");
    running.stop().await;
}

/// Without a backlog an idle worker takes what another has no slot for.
#[tokio::test(start_paused = true)]
async fn n1_nothing_is_claimed_ahead_while_other_workers_are_idle() {
    let setup = memory().await;
    let track = Track::of(Duration::from_millis(5));
    let one = track.worker(&setup.client, 1).start().await.expect("start");
    let other = track.worker(&setup.client, 8).start().await.expect("start");
    for round in 1..=200 {
        fill(&setup.client, 4).await;
        for _ in 0..20 {
            assert_eq!((one.prefetched(), other.prefetched()), (0, 0), "round {round}");
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    }
    one.stop().await;
    other.stop().await;
}

/// A job that is more urgent than those claimed ahead is next once it is claimed, which is at once.
#[tokio::test(start_paused = true)]
async fn n1_a_more_urgent_job_overtakes_what_was_claimed_ahead() {
    let setup = memory().await;
    let track = Track::of(Duration::from_millis(1));
    let low = (0..2_000).map(|_| once().priority(Priority::Low));
    setup.client.enqueue_all(low).await.expect("enqueue");
    let running = track.worker(&setup.client, 1).start().await.expect("start");
    until("jobs are claimed ahead", || async { running.prefetched() > 15 }).await;
    let before = track.started();
    setup.client.enqueue(once().priority(Priority::Critical)).await.expect("enqueue");
    assert!(running.prefetched() > 10);
    let place = || track.started.lock().expect("lock").iter().position(|priority| *priority == Priority::Critical);
    until("it starts", || async { place().is_some() }).await;
    let overtaken_by = place().expect("it started") - before;
    assert!(overtaken_by <= 6, "{overtaken_by} less urgent ones started before it");
    running.stop().await;
}

/// In virtual time: sooner than what waits too long is given back anyway.
#[tokio::test(start_paused = true)]
async fn o3_a_pause_gives_back_what_was_claimed_ahead() {
    let setup = memory().await;
    let track = Track::of(Duration::from_millis(1));
    let jobs = fill(&setup.client, 2_000).await;
    let running = track.worker(&setup.client, 1).start().await.expect("start");
    stand_with_jobs_ahead(&track, &running).await;
    let begun = tokio::time::Instant::now();
    let queue = QueueName::default();
    setup.client.store().control(&ControlEdit::pause(queue.clone(), true), None).await.expect("paused");
    until("only the one that runs is held", || async { counted(&setup.client, State::Running).await == 1 }).await;
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    running.stop().await;
    setup.client.store().control(&ControlEdit::pause(queue.clone(), false), None).await.expect("resumed");
    all_can_still_run(&setup, &jobs, 1).await;
}

/// The execution timeout counts from the start of the handler, not from the claim.
#[tokio::test(start_paused = true)]
async fn t1_time_spent_waiting_for_a_slot_is_not_run_time() {
    let setup = memory().await;
    let track = Track::of(Duration::from_millis(2));
    let jobs = (0..1_000).map(|_| once().execution_timeout(Duration::from_millis(10)));
    setup.client.enqueue_all(jobs).await.expect("enqueue");
    let running = track.worker(&setup.client, 1).start().await.expect("start");
    until("they wait longer than they may run", || async { running.prefetched() > 10 }).await;
    until("all completed", || async { counted(&setup.client, State::Completed).await == 1_000 }).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s14_a_cancel_ends_what_was_claimed_ahead_before_it_starts() {
    let setup = memory().await;
    let track = Track::of(Duration::from_micros(500));
    let jobs = fill(&setup.client, 2_000).await;
    let running = track.worker(&setup.client, 1).start().await.expect("start");
    stand_with_jobs_ahead(&track, &running).await;
    let held = || running.prefetched() as u64 + 1;
    until("what ran is settled", || async { counted(&setup.client, State::Running).await == held() }).await;
    let started = track.started();
    let mut ahead = Vec::new();
    for id in jobs {
        if setup.client.job(id).await.expect("a job").state == State::Running {
            ahead.push(id);
        }
    }
    assert!(ahead.len() > 1, "some were claimed ahead");
    for id in &ahead {
        setup.client.cancel(*id).await.expect("cancel");
    }
    until("all are cancelled but the one that runs", || async {
        counted(&setup.client, State::Cancelled).await >= ahead.len() as u64 - 1
    })
    .await;
    assert_eq!(track.started(), started);
    running.stop().await;
}
