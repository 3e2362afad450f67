//! Workers that are aborted at random, jobs that fail, panic, hang and spawn, a store that fails: nothing is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass::job::Outcome;
use windlass::store::MemoryStore;
use windlass::worker::Running;
use windlass::workflow::{WorkflowState, chord};
use windlass::{
    Client, Context, Failure, Job, JobId, ManualClock, NewJob, Payload, State, Worker, Workflow, WorkflowId,
};

use crate::support::{Number, Setup, until};

const MEMBERS: u64 = 40;
const ROUNDS: usize = 24;

#[derive(serde::Serialize, serde::Deserialize)]
struct Final;

impl Job for Final {
    const TYPE: &'static str = "final";
}

/// What the handlers of all workers saw.
#[derive(Default)]
struct Seen {
    running: Mutex<HashMap<JobId, u64>>,
    overlaps: Mutex<Vec<String>>,
    starts: AtomicUsize,
}

/// Notes that an attempt runs, for as long as its handler lives.
struct Runs(Arc<Seen>, JobId, u64);

impl Runs {
    fn note(cx: &Context<Arc<Seen>>) -> Self {
        let (seen, job, version) = (Arc::clone(&cx.state), cx.id(), cx.lease_version());
        seen.starts.fetch_add(1, Ordering::SeqCst);
        if let Some(other) = seen.running.lock().expect("lock").insert(job, version) {
            seen.overlaps.lock().expect("lock").push(format!("{job} runs as version {other} and {version}"));
        }
        Runs(Arc::clone(&seen), job, version)
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        let mut running = self.0.running.lock().expect("lock");
        if running.get(&self.1) == Some(&self.2) {
            running.remove(&self.1);
        }
    }
}

/// The first attempt of some goes wrong in every way there is; later ones work.
async fn number(job: Number, cx: Context<Arc<Seen>>) -> Result<u64, Failure> {
    let _runs = Runs::note(&cx);
    tokio::time::sleep(Duration::from_millis(job.0 % 7)).await;
    match job.0 % 11 {
        1 if cx.attempt() == 1 => Err(Failure::temporary("again").retry_after(Duration::ZERO)),
        2 if cx.attempt() == 1 => panic!("a bad day"),
        3 if cx.attempt() == 1 => Err(Failure::snooze(Duration::from_millis(5))),
        4 if cx.attempt() == 1 => {
            cx.limit(Duration::from_millis(20));
            cx.cancelled().await;
            Ok(0)
        }
        5 => {
            cx.spawn(stubborn(NewJob::new("leaf", Payload::default())))?;
            Ok(job.0)
        }
        _ => Ok(job.0),
    }
}

async fn finish(_: Final, cx: Context<Arc<Seen>>) -> Result<usize, Failure> {
    let _runs = Runs::note(&cx);
    Ok(cx.results::<u64>().await?.len())
}

async fn start_worker(client: &Client, seen: &Arc<Seen>) -> Running {
    let worker = Worker::new(client)
        .with_state(Arc::clone(seen))
        .queue("default", 16)
        .lease_time(Duration::from_millis(500))
        .poll_interval(Duration::from_millis(20))
        .upkeep_interval(Duration::from_millis(50))
        .grace(Duration::from_millis(200))
        .handle(number)
        .handle(finish)
        .handle_raw("leaf", async |_, _: Context<Arc<Seen>>| Ok(()));
    worker.start().await.expect("start")
}

/// A job that outlives any number of aborts.
fn stubborn(job: NewJob) -> NewJob {
    job.retry(windlass::RetryPolicy::constant(Duration::from_millis(1), 100))
}

async fn start_chord(client: &Client) -> (WorkflowId, JobId) {
    let mut flow = Workflow::new("chord");
    let member = |n: u64| stubborn(NewJob::new(Number::TYPE, Payload::json(&n).expect("json")));
    let finaliser = stubborn(NewJob::new(Final::TYPE, Payload::json(&Final).expect("json")));
    let ends = flow.piece(chord((0..MEMBERS).map(member), finaliser));
    let started = client.start(flow).await.expect("start");
    (started.id, started.job(ends[0]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_left_behind() {
    let (setup, faults) = Setup::on(Arc::new(MemoryStore::new()), ManualClock::default()).faulty();
    let client = &setup.client;
    let seen = Arc::new(Seen::default());
    let mut chords = Vec::new();
    let mut random = fastrand::Rng::with_seed(7);
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(start_worker(client, &seen).await);
    }
    let mut abandoned = 0;
    for round in 0..ROUNDS {
        chords.push(start_chord(client).await);
        tokio::time::sleep(Duration::from_millis(random.u64(5..50))).await;
        let worker = workers.swap_remove(random.usize(..workers.len()));
        let stop = worker.stop_handle();
        if round % 3 == 0 {
            stop.gracefully()
        } else {
            stop.abort()
        }
        abandoned += worker.ended().await.abandoned;
        faults.settle_answer.fetch_add(1, Ordering::SeqCst);
        faults.settle.fetch_add(1, Ordering::SeqCst);
        faults.extend.fetch_add(1, Ordering::SeqCst);
        faults.claim.fetch_add(1, Ordering::SeqCst);
        workers.push(start_worker(client, &seen).await);
    }
    let members = MEMBERS + 1 + (MEMBERS - 5).div_ceil(11);
    for (workflow, _) in &chords {
        until("the workflow ended", || async {
            client.workflow(*workflow).await.expect("workflow").state() != WorkflowState::Running
        })
        .await;
        let record = client.workflow(*workflow).await.expect("workflow");
        assert_eq!(record.counts[usize::from(State::Completed.number())], members, "{record:?}");
    }
    for worker in workers {
        assert_eq!(worker.stop().await.abandoned, 0);
    }
    for (_, finaliser) in &chords {
        let job = client.job(*finaliser).await.expect("job");
        assert_eq!(job.result.expect("a result").decode::<u64>().expect("a number"), MEMBERS);
        let attempts = client.attempts(*finaliser).await.expect("attempts");
        let completed = attempts.iter().filter(|attempt| attempt.outcome == Some(Outcome::Completed)).count();
        assert_eq!(completed, 1);
    }
    assert!(abandoned > 0, "some jobs were lost to aborts, or this showed nothing");
    assert_eq!(*seen.overlaps.lock().expect("lock"), [""; 0]);
    assert_eq!(client.store().check().await.expect("check"), [""; 0]);
    let totals = client.totals().await.expect("totals");
    assert_eq!(totals.accepted, totals.states.iter().sum::<u64>());
    assert_eq!(totals.accepted, members * ROUNDS as u64);
}
