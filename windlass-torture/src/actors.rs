//! Who takes part in a run: workers, producers, operators, and zombies that settle long after their lease has ended.
//!
//! Each is a plain async function on a store, so it can be a process of its own or a task in this one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio_util::sync::CancellationToken;
use windlass::flow::{AfterFailure, Change, Control, ControlEdit, Limit, Rate};
use windlass::job::{LeaseKey, RequeueOptions, WorkerId};
use windlass::schedule::{Missed, Overlap};
use windlass::store::{Act as OperatorAct, ClaimRequest, Edit, Filter, Store};
use windlass::worker::Running;
use windlass::{Client, JobId, NewJob, Payload, Priority, QueueName, Result, RetryPolicy, Schedule, State, Worker};

use super::history::{Controlled, Event, Lease, Log};
use super::jobs::{Act, App, BACKOFF, CONTROLLED, Call, Calls, QUEUE_SHORT, QUEUES, TYPES, perform};

/// How many unfinished jobs wait at a time at most, or the end of the run would come late.
const UNFINISHED_MAX: u64 = 400;
/// How often a producer looks how many there are, in calls.
const LOOK_EVERY: usize = 8;
/// How many of the jobs enqueued last an operator chooses from.
const RECENT_MAX: usize = 300;
/// How often a call with a key is made anew when its outcome is not known.
const REPEATS_MAX: usize = 3;

/// How fast everything goes.
#[derive(Clone, Copy, Debug)]
pub struct Tempo {
    /// How long a worker's lease holds.
    pub lease: Duration,
    /// Between two calls of a producer.
    pub pause: Duration,
}

/// The jobs enqueued last, for operators to act on.
pub type Recent = Arc<Mutex<VecDeque<JobId>>>;

/// Starts a worker of the library on this store.
pub async fn work(store: Arc<dyn Store>, log: Arc<Log>, tempo: Tempo, poison: bool) -> Result<Running> {
    let client = Client::with_store(store);
    let mut worker = Worker::new(&client).with_state(App { log, lease: tempo.lease, poison });
    for job_type in TYPES {
        worker = worker.handle_raw(job_type, perform);
    }
    for queue in QUEUES {
        worker = worker.queue(queue, 6);
    }
    worker = worker.queue(QUEUE_SHORT, 1);
    worker
        .lease_time(tempo.lease)
        .poll_interval(tempo.lease / 5)
        .upkeep_interval(tempo.lease / 4)
        .grace(tempo.lease)
        .start()
        .await
}

/// Enqueues until it is told to stop.
pub async fn produce(
    store: Arc<dyn Store>,
    seed: u64,
    producer: usize,
    tempo: Tempo,
    recent: Recent,
    stop: CancellationToken,
) {
    let client = Client::with_store(store).submission_timeout(Duration::from_secs(10));
    let mut calls = Calls::new(seed, producer);
    let mut made = 0;
    while !stop.is_cancelled() {
        let call = calls.next_call().expect("every act can be written as JSON");
        // What failed is in the history; whether it happened is for the checker to see.
        let jobs = make(&client, call).await;
        remember(&recent, jobs);
        made += 1;
        if made % LOOK_EVERY == 0 {
            wait_for_room(&client, &stop).await;
        }
        let _ = tokio::time::timeout(tempo.pause, stop.cancelled()).await;
    }
}

fn remember(recent: &Recent, jobs: Vec<JobId>) {
    let mut recent = recent.lock().expect("nothing panics while it holds this lock");
    recent.extend(jobs);
    let excess = recent.len().saturating_sub(RECENT_MAX);
    recent.drain(..excess);
}

async fn make(client: &Client, call: Call) -> Vec<JobId> {
    match call {
        Call::Batch(jobs) => {
            let stored = client.enqueue_all(jobs).await;
            stored.map(|jobs| jobs.iter().map(|job| job.id).collect()).unwrap_or_default()
        }
        Call::Flow(flow) => {
            let started = client.start(flow).await;
            started.map(|started| started.jobs.iter().map(|job| job.id).collect()).unwrap_or_default()
        }
        Call::Race(jobs, racers) => {
            let races = (0..racers).map(|_| repeat(client, &jobs));
            futures_util::future::join_all(races).await.into_iter().flatten().collect()
        }
    }
}

/// A call with a key may be made again until it is answered.
async fn repeat(client: &Client, jobs: &[NewJob]) -> Vec<JobId> {
    for _ in 0..REPEATS_MAX {
        match client.enqueue_all(jobs.to_vec()).await {
            Ok(stored) => return stored.iter().map(|job| job.id).collect(),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    Vec::new()
}

async fn wait_for_room(client: &Client, stop: &CancellationToken) {
    while !stop.is_cancelled() && unfinished(client.store().as_ref()).await.is_some_and(|jobs| jobs > UNFINISHED_MAX) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How many jobs have not ended; `None` when the store does not say.
pub async fn unfinished(store: &dyn Store) -> Option<u64> {
    let totals = store.observe(None).await.map(|seen| seen.totals()).ok()?;
    let open = State::ALL.into_iter().filter(|state| !state.is_terminal());
    Some(open.map(|state| totals.states[usize::from(state.number())]).sum())
}

/// Cancels, requeues, edits and pauses until it is told to stop.
pub async fn operate(store: Arc<dyn Store>, seed: u64, tempo: Tempo, recent: Recent, stop: CancellationToken) {
    let client = Client::with_store(store);
    let mut rng = Rng::with_seed(seed ^ 0x6f70_6572_6174_6f72);
    while !stop.is_cancelled() {
        let chosen = {
            let recent = recent.lock().expect("nothing panics while it holds this lock");
            (!recent.is_empty()).then(|| recent[rng.usize(0..recent.len())])
        };
        if let Some(job) = chosen {
            // Most jobs have ended by now and refuse; the history tells what was changed.
            let _ = act_on(&client, job, &mut rng).await;
        }
        let _ = tokio::time::timeout(tempo.pause * 3, stop.cancelled()).await;
    }
    for queue in QUEUES {
        // Nothing drains from a paused queue.
        while client.resume(queue).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn act_on(client: &Client, job: JobId, rng: &mut Rng) -> Result<()> {
    match rng.u32(0..100) {
        0..35 => client.cancel(job).await,
        35..45 => client.act(OperatorAct::Cancel { force: true }).by("torture").on(job).await,
        45..50 => client.act(OperatorAct::DeadLetter).by("torture").because("as asked").on(job).await,
        50..55 => client.edit(job, Edit { priority: Some(Priority::High), ..Edit::default() }).await,
        55..58 => {
            let queue = QUEUES[rng.usize(0..QUEUES.len())];
            client.pause(queue).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
            client.resume(queue).await
        }
        _ => {
            let states = vec![State::Failed, State::DeadLetter];
            let dead = client.list(Filter::new().states(states), 20, None).await?;
            if dead.items.is_empty() {
                return Ok(());
            }
            let job = dead.items[rng.usize(0..dead.items.len())].id;
            let options =
                RequeueOptions { run_at: None, keep_counters: rng.bool(), with_dependents: rng.u32(0..3) == 0 };
            client.act(OperatorAct::Requeue(options)).by("torture").on(job).await
        }
    }
}

/// Claims, sleeps past the lease, and then settles, extends and saves all the same, until it is told to stop.
///
/// The library's own worker would fence itself; this one makes sure that stale calls reach the store.
pub async fn haunt(
    store: Arc<dyn Store>,
    log: Arc<Log>,
    number: usize,
    seed: u64,
    tempo: Tempo,
    stop: CancellationToken,
) {
    let mut rng = Rng::with_seed(seed ^ 0x7a6f_6d62_6965 ^ u64::try_from(number).unwrap_or_default());
    let worker = WorkerId::new(format!("zombie-{}-{number}-{}", std::process::id(), rng.u32(..))).expect("a name");
    let lease_time = tempo.lease / 2;
    while !stop.is_cancelled() {
        let queue = QueueName::new(QUEUES[rng.usize(0..QUEUES.len())]).expect("a name");
        let request =
            ClaimRequest { lease_time: Some(lease_time), ..ClaimRequest::new(worker.clone(), queue, rng.usize(1..4)) };
        let claimed = store.claim(&request).await.unwrap_or_default();
        let (mut keys, mut settlements): (Vec<LeaseKey>, Vec<_>) = (Vec::new(), Vec::new());
        for one in claimed {
            let lease = Lease { job: one.job.id, version: one.lease.version() };
            log.write(Event::RunStarted(lease));
            log.write(Event::RunEnded { lease, success: true });
            keys.push(one.lease.key());
            settlements.push(one.lease.complete(None));
        }
        if !keys.is_empty() {
            // Some in time, some just too late, most long after somebody else has the job.
            tokio::time::sleep(lease_time.mul_f64(rng.f64() * 3.0)).await;
            if rng.u32(0..4) == 0 {
                let _ = store.extend(&keys, Some(lease_time)).await;
            }
            if rng.u32(0..4) == 0 {
                let saves: Vec<_> =
                    keys.iter().map(|key| windlass::store::Save::under(*key).log(["late".to_owned()])).collect();
                let _ = store.save(&saves).await;
            }
            // A caller that is not answered may ask again.
            for _ in 0..2 {
                if store.settle(&settlements).await.is_ok() {
                    break;
                }
            }
        }
        let _ = tokio::time::timeout(tempo.pause * 5, stop.cancelled()).await;
    }
}

/// How the controlled queues begin.
fn controls() -> [Control; 3] {
    let each_key = Limit::running(2).rate(Rate::within(5, Duration::from_secs(1)).burst(2));
    [Control::new().running(5), Control::new().each_key(each_key).fair(), Control::new().ordered(AfterFailure::GoOn)]
}

/// Says how the jobs of a queue shall flow, until it is heard.
async fn tell(store: &dyn Store, log: &Log, queue: &str, control: Control, stop: &CancellationToken) -> Result<()> {
    let put = Change::Put { control: control.clone(), version: None, from_code: false };
    let edit = ControlEdit::new(QueueName::new(queue)?, put);
    let mut since = None;
    loop {
        if since.is_none() {
            since = store.now().await.ok();
        }
        // Without the time before it, nobody could say from when on it holds.
        let said = match since {
            Some(_) => store.control(&edit, Some("torture")).await,
            None => Err(windlass::Error::store("control a queue", "the store does not say the time")),
        };
        match said {
            Err(error @ windlass::Error::InvalidArgument { .. }) => return Err(error),
            Err(error) if stop.is_cancelled() => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            Ok(_) => break,
        }
    }
    let mut at = store.now().await;
    while at.is_err() && !stop.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        at = store.now().await;
    }
    let limit = control.each_key.unwrap_or_default();
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    log.write(Event::Controlled(Controlled {
        queue: queue.to_owned(),
        since: since.map_or(0, windlass::Timestamp::as_micros),
        at: at.map_or(i64::MAX, windlass::Timestamp::as_micros),
        running: control.running,
        each_key: limit.running,
        rate: limit.rate.map(|rate| (rate.count, micros(rate.per), rate.burst)),
        ordered: control.ordered.is_some(),
    }));
    Ok(())
}

/// Brings the controlled queues of a run under control; says whether the store has flow control.
pub async fn put_controls(store: &dyn Store, log: &Log) -> Result<bool> {
    for (queue, control) in CONTROLLED.into_iter().zip(controls()) {
        match tell(store, log, queue, control, &CancellationToken::new()).await {
            Err(windlass::Error::InvalidArgument { field: "control", .. }) => return Ok(false),
            said => said?,
        }
    }
    Ok(true)
}

/// Changes limits while jobs run, until it is told to stop.
pub async fn regulate(store: Arc<dyn Store>, log: Arc<Log>, seed: u64, tempo: Tempo, stop: CancellationToken) {
    let mut rng = Rng::with_seed(seed ^ 0x7265_6775_6c61_7465);
    while !stop.is_cancelled() {
        let _ = tokio::time::timeout(tempo.pause * 20, stop.cancelled()).await;
        let control = Control::new().running(rng.u32(2..9));
        // What was not heard by the end is not in force.
        let _ = tell(store.as_ref(), &log, CONTROLLED[0], control, &stop).await;
    }
}

/// Stores the schedules of a run: every slot, the newest slot without overlap, and after each end.
pub async fn put_schedules(client: &Client) -> Result<()> {
    let job = |act: &Act| -> Result<NewJob> {
        let job = NewJob::new(TYPES[0], Payload::json(act)?).queue(QUEUES[0]);
        Ok(job.retry(RetryPolicy::constant(BACKOFF, 5)))
    };
    let second = Duration::from_secs(1);
    let every = Schedule::every("torture-every", second, job(&Act::Work(1))?)?;
    client.put_schedule(&every.missed(Missed::All(1000)).overlap(Overlap::Allow)).await?;
    client.put_schedule(&Schedule::cron("torture-cron", "*/2 * * * * *", job(&Act::Work(20))?)?).await?;
    client.put_schedule(&Schedule::delay("torture-delay", second, job(&Act::Work(5))?)?).await?;
    Ok(())
}

/// The names of the schedules of a run.
pub const SCHEDULES: [&str; 3] = ["torture-every", "torture-cron", "torture-delay"];
