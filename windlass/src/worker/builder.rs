//! A worker that is being put together: its queues, handlers and settings, checked when it is started.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, WorkerEnv};
use super::context::Context;
use super::drain::{self, Crash, CrashPoint, Drained};
use super::handled::{BackoffFunction, Failed, HandledType};
use super::handler::{self, AnyHandler, Call, Handler, HandlerResult};
use super::heartbeat;
use super::middleware::{Hooks, Middleware};
use super::schedules::{self, LeftSchedules};
use super::settings::Settings;
use super::shared::{Handlers, Served, Shared};
use super::shutdown::{Running, Stopped};
use super::signals::StopSignals;
use crate::client::{Client, Schedule};
use crate::error::{Error, Result};
use crate::flow::Control;
use crate::job::{Failure, Job, JobRecord, JobType, Outcome, Payload, QueueName, State, WorkerId};
use crate::observe::JobMetrics;
use crate::store::Retention;

/// Most handlers of one worker at once: beyond this the leases no longer fit into one heartbeat.
pub const SLOTS_MAX: usize = crate::store::CALL_MAX;

/// Longest grace period: nobody waits longer than a year, and arithmetic stays in range.
const GRACE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// A worker that is being put together; [`run_until`](Self::run_until) or [`start`](Self::start) sets it going.
///
/// ```
/// # async fn example() -> windlass::Result<()> {
/// use serde::{Deserialize, Serialize};
/// use windlass::{Client, Context, Failure, Job, Worker};
///
/// #[derive(Serialize, Deserialize)]
/// struct Greet { name: String }
///
/// impl Job for Greet {
///     const TYPE: &'static str = "greet";
/// }
///
/// async fn greet(job: Greet, cx: Context) -> Result<String, Failure> {
///     Ok(format!("hello {} for the {}. time", job.name, cx.attempt()))
/// }
///
/// let client = Client::in_memory();
/// let running = Worker::new(&client).queue("default", 8).handle(greet).start().await?;
/// let job = client.enqueue(Greet { name: "Ada".into() }).await?;
/// let ended = client.wait(job.id).await?;
/// assert_eq!(ended.result.unwrap().decode::<String>()?, "hello Ada for the 1. time");
/// running.stop().await;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(example()).unwrap();
/// ```
#[must_use = "a worker does nothing until it is started"]
pub struct Worker<S = ()> {
    client: Client,
    state: Arc<S>,
    plan: Plan,
    crash: Crash,
}

/// Everything about a worker but its state.
#[derive(Default)]
struct Plan {
    queues: Vec<(String, usize, u32)>,
    handlers: BTreeMap<String, Registered>,
    any: Option<Arc<Call>>,
    /// By type.
    backoffs: HashMap<String, Arc<BackoffFunction>>,
    middleware: Vec<Arc<dyn Middleware>>,
    hooks: Hooks,
    schedules: Vec<Schedule>,
    /// Flow control by queue.
    controls: BTreeMap<String, Control>,
    settings: Settings,
    /// What was wrong with it first, told when it is started.
    problem: Option<(&'static str, String)>,
}

struct Registered {
    call: Arc<Call>,
    /// Where jobs of this type go unless told otherwise, where the code says it.
    queue: Option<&'static str>,
}

impl Worker<()> {
    /// A worker on the store of this client.
    pub fn new(client: &Client) -> Self {
        Worker { client: client.clone(), state: Arc::new(()), plan: Plan::default(), crash: Crash::default() }
    }

    /// Gives handlers something to share: clients, pools, configuration. Comes before the handlers that use it: those that were
    /// registered before have a `Context<()>`, which is a matter of types.
    pub fn with_state<S: Send + Sync + 'static>(self, state: S) -> Worker<S> {
        Worker { client: self.client, state: Arc::new(state), plan: self.plan, crash: self.crash }
    }
}

impl<S: Send + Sync + 'static> Worker<S> {
    /// Runs jobs of type `J` with an async function of the job and its context.
    ///
    /// What it returns is kept as the job's result, as JSON, unless it is `()`.
    pub fn handle<J, R, F, Fut>(mut self, handler: F) -> Self
    where
        J: Job,
        R: Serialize + 'static,
        F: Fn(J, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let call = handler::typed(Arc::clone(&self.state), handler);
        self.plan.register(J::TYPE, call, Some(J::QUEUE));
        self
    }

    /// Runs jobs of type `J` with a plain function on a thread for blocking work: for what keeps a processor busy, or waits
    /// without an executor.
    ///
    /// Such a thread cannot be stopped. After a timeout, a lost lease or a shutdown the function runs on to its end and what it
    /// returns is dropped; have it look at `cx.token()` between two steps.
    pub fn handle_blocking<J, R, F>(self, handler: F) -> Self
    where
        J: Job,
        R: Serialize + Send + 'static,
        F: Fn(J, Context<S>) -> Result<R, Failure> + Send + Sync + 'static,
    {
        let handler = Arc::new(handler);
        self.handle(move |job: J, cx: Context<S>| {
            let handler = Arc::clone(&handler);
            async move {
                match tokio::task::spawn_blocking(move || handler(job, cx)).await {
                    Ok(ended) => ended,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(_) => Err(Failure::temporary("the runtime was shut down")),
                    },
                }
            }
        })
    }

    /// Runs jobs of this type with an async function of their payload as it is.
    pub fn handle_raw<R, F, Fut>(mut self, job_type: &str, handler: F) -> Self
    where
        R: Serialize + 'static,
        F: Fn(Payload, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let call = handler::raw(Arc::clone(&self.state), handler);
        self.plan.register(job_type, call, None);
        self
    }
}

impl<S: Send + Sync + 'static> Worker<S> {
    /// Runs jobs of these types with one async function of their payload as it is; so is the result it returns.
    pub fn handle_types<T, F, Fut>(mut self, types: impl IntoIterator<Item = T>, handler: F) -> Self
    where
        T: AsRef<str>,
        F: Fn(Payload, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        let call = handler::plain(Arc::clone(&self.state), handler);
        for job_type in types {
            self.plan.register(job_type.as_ref(), Arc::clone(&call), None);
        }
        self
    }

    /// Runs jobs of every type that has no handler of its own, as [`handle_types`](Self::handle_types) does.
    ///
    /// For what can run anything: a shell, a forwarder. A worker with this claims jobs of any type.
    pub fn handle_any<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Payload, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        if self.plan.any.replace(handler::plain(Arc::clone(&self.state), handler)).is_some() {
            self.plan.note("handlers", "there are two for any type");
        }
        self
    }
}

impl<S> Worker<S> {
    /// Notes what is wrong with it, to be told when it is started.
    #[cfg(feature = "webhooks")]
    pub(super) fn with_problem(mut self, field: &'static str, problem: String) -> Self {
        self.plan.note(field, problem);
        self
    }

    /// Serves a queue, with this many handlers at once.
    pub fn queue(mut self, queue: &str, slots: usize) -> Self {
        self.plan.queues.push((queue.to_owned(), slots, 1));
        self
    }

    /// Declares the flow control of a queue that it serves, over all workers (rule K1). It is set at the start, unless an
    /// operator has set another.
    pub fn control(mut self, queue: &str, control: Control) -> Self {
        if let Err(error) = control.check() {
            self.plan.note("control", format!("of queue {queue:?}: {error}"));
        }
        self.plan.controls.insert(queue.to_owned(), control);
        self
    }

    /// How much of scarce slots this queue gets beside the others, which have 1 unless set.
    pub fn weight(mut self, queue: &str, weight: u32) -> Self {
        match self.plan.queues.iter_mut().find(|(name, _, _)| name == queue) {
            Some((_, _, of_queue)) => *of_queue = weight.max(1),
            None => self.plan.note("queue", format!("{queue:?} must be served before it can have a weight")),
        }
        self
    }

    /// Serves queues strictly in the order in which they were named, instead of by weight.
    pub fn strict(mut self) -> Self {
        self.plan.settings.strict = true;
        self
    }

    /// How many handlers run at once in all; the sum over the queues unless set.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.plan.settings.concurrency = Some(handlers.max(1));
        self
    }

    /// How many jobs it claims at most ahead of its free slots, while its jobs are short and their queue is backed up; as
    /// many as it starts within 50 ms unless set, and none with 0.
    ///
    /// They are RUNNING in the store, under leases that are kept alive, and given back uncounted when they do not start
    /// soon, when the worker stops and when their queue is paused.
    pub fn prefetch(mut self, jobs: usize) -> Self {
        self.plan.settings.prefetch = Some(jobs);
        self
    }

    /// How long a lease holds without a heartbeat; 5 s unless set. At least 100 ms.
    pub fn lease_time(mut self, time: Duration) -> Self {
        self.plan.settings.lease_time = time.max(Duration::from_millis(100));
        self
    }

    /// The preset `steady` (rule L6): leases of 30 s, heartbeats every 10 s, a [hold](Self::hold) of 60 s; fewer writes, slower
    /// recovery, and an outage of the store of a minute interrupts nobody.
    pub fn steady(mut self) -> Self {
        self.plan.settings.lease_time = Duration::from_secs(30);
        self.plan.settings.heartbeat_interval = None;
        self.plan.settings.hold = Duration::from_secs(60);
        self
    }

    /// How long a handler may run on when its lease can no longer be confirmed; not at all unless set (rules L9 and D6b).
    ///
    /// While the store is away no lease runs out, so with a hold as long as the outage nobody is interrupted. The price: a
    /// worker that alone is cut off from its store cannot tell this from an outage, and runs on beside its successor for that
    /// long. Only the record is fenced then, and what the handler does elsewhere happens twice.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.plan.settings.hold = hold;
        self
    }

    /// How often leases are kept alive; a third of the lease time unless set, and at least twice in it.
    ///
    /// A cancel reaches a handler with the next heartbeat where no hint of the store does sooner.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.plan.settings.heartbeat_interval = Some(interval.max(Duration::from_millis(10)));
        self
    }

    /// How often to look for jobs without a hint; 500 ms unless set.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.plan.settings.poll_interval = interval.max(Duration::from_millis(1));
        self
    }

    /// How long a graceful stop may take in all, whatever handlers and store do; 25 s unless set.
    ///
    /// Handlers may finish for four fifths of it, or all but 5 s where that is longer. Those that run on are interrupted,
    /// and the rest of the time is for giving their jobs back and for the last settlements, which get at least 2 s or half of
    /// it. Without a grace period nothing is given back: the leases expire.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.plan.settings.grace = grace.min(GRACE_MAX);
        self
    }

    /// How often to do upkeep; every second unless set, and never less often.
    pub fn upkeep_interval(mut self, interval: Duration) -> Self {
        self.plan.settings.upkeep_interval = interval.min(Duration::from_secs(1)).max(Duration::from_millis(1));
        self
    }

    /// Leaves upkeep to others: a server that does it, or workers that may.
    pub fn without_upkeep(mut self) -> Self {
        self.plan.settings.upkeep = false;
        self
    }

    /// How long this worker's upkeep keeps ended jobs that do not say it themselves.
    ///
    /// Every worker of a store prunes, each by its own setting, so the shortest wins. Say it on the jobs instead, with
    /// [`Policies`](crate::Policies) or [`NewJob::retention`](crate::NewJob::retention): that holds in every process.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.plan.settings.retention = retention;
        self
    }

    /// Seeds the jitter of backoffs, for tests that want the same delays each time.
    pub fn seed(mut self, seed: u64) -> Self {
        self.plan.settings.seed = Some(seed);
        self
    }

    /// Computes the backoff of a type in the worker, from the failure and the job's policy.
    ///
    /// Capped at the maximum of the job's policy, which is used as it is where this panics or is absent (rule R3b).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use windlass::{Client, Context, Payload, Worker};
    /// # fn example(client: &Client) {
    /// let worker = Worker::new(client)
    ///     .queue("default", 8)
    ///     .handle_raw("resize", async |_: Payload, _: Context| Ok(()))
    ///     // 1, 4, 9 … times the first delay of the policy.
    ///     .backoff_of("resize", |failed| failed.policy.initial * failed.failures * failed.failures);
    /// # }
    /// ```
    pub fn backoff<J: Job>(self, delay: impl Fn(Failed<'_>) -> Duration + Send + Sync + 'static) -> Self {
        self.backoff_of(J::TYPE, delay)
    }

    /// As [`backoff`](Self::backoff), for a type by its name: where [`handle_raw`](Self::handle_raw),
    /// [`handle_types`](Self::handle_types) or [`handle_any`](Self::handle_any) runs it.
    pub fn backoff_of(
        mut self,
        job_type: &str,
        delay: impl Fn(Failed<'_>) -> Duration + Send + Sync + 'static,
    ) -> Self {
        if self.plan.backoffs.insert(job_type.to_owned(), Arc::new(delay)).is_some() {
            self.plan.note("backoff", format!("two are given for type {job_type:?}"));
        }
        self
    }

    /// Puts a middleware around every handler, inside those added before it.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.plan.middleware.push(Arc::new(middleware));
        self
    }

    /// Calls `hook` for each claimed job. It must not block.
    pub fn on_claimed(mut self, hook: impl Fn(&JobRecord) + Send + Sync + 'static) -> Self {
        self.plan.hooks.claimed.push(Arc::new(hook));
        self
    }

    /// Calls `hook` for each attempt whose settlement is durable, with the state the job is in then. It must not block.
    pub fn on_settled(mut self, hook: impl Fn(&Attempt, Outcome, State) + Send + Sync + 'static) -> Self {
        self.plan.hooks.settled.push(Arc::new(hook));
        self
    }

    /// Registers a schedule when the worker starts, in place of a stored one that differs.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        if self.plan.schedules.iter().any(|known| known.name() == schedule.name()) {
            self.plan.note("schedule", format!("{:?} is registered twice", schedule.name()));
        }
        self.plan.schedules.push(schedule);
        self
    }

    /// What becomes of stored schedules that some worker's code registered and this one's does not.
    pub fn left_schedules(mut self, left: LeftSchedules) -> Self {
        self.plan.settings.left = left;
        self
    }

    /// Starts the worker; it runs until it is stopped or the answer is dropped.
    pub async fn start(self) -> Result<Running> {
        let shared = self.shared()?;
        schedules::register(&self.client, &self.plan.schedules, shared.settings.left).await?;
        schedules::declare(&self.client, &self.plan.controls).await?;
        let heartbeat = heartbeat::start(&shared)?;
        self.plan.warn_of_unserved_queues();
        let queues: Vec<&str> = shared.queues.iter().map(|queue| queue.name.as_str()).collect();
        let types: Vec<&str> = self.plan.handlers.keys().map(String::as_str).collect();
        tracing::info!(worker = %shared.id, store = shared.store().kind(), ?queues, ?types, "the worker starts");
        Ok(Running::start(shared, heartbeat))
    }

    /// Runs until this process is asked to stop, by SIGINT (Ctrl-C) or SIGTERM, then stops gracefully; a second signal
    /// aborts.
    ///
    /// What programs call whose work is this worker. Beside a web server, give both
    /// [`stop_signal`](super::stop_signal).
    pub async fn run(self) -> Result<Stopped> {
        // From here on a signal no longer kills the process, also while the worker starts.
        let signals = Arc::new(tokio::sync::Mutex::new(StopSignals::listen()?));
        self.run_until_signals(|| {
            let signals = Arc::clone(&signals);
            async move { signals.lock().await.next().await }
        })
        .await
    }

    /// Runs until `signal` resolves, then stops gracefully.
    pub async fn run_until(self, signal: impl Future) -> Result<Stopped> {
        let running = self.start().await?;
        signal.await;
        Ok(running.stop().await)
    }

    /// Runs until a first signal, then stops gracefully; a second one aborts.
    ///
    /// `signal` is called for each. For signals of your own; [`run`](Self::run) listens for those of the system.
    pub async fn run_until_signals<F: Future>(self, mut signal: impl FnMut() -> F) -> Result<Stopped> {
        let running = self.start().await?;
        let stop = running.stop_handle();
        signal().await;
        stop.gracefully();
        let mut ended = std::pin::pin!(running.ended());
        tokio::select! {
            biased;
            stopped = &mut ended => return Ok(stopped),
            _ = signal() => {
                tracing::warn!("asked to stop a second time; the worker aborts");
                stop.abort();
            }
        }
        Ok(ended.await)
    }

    /// Makes the next [`drain`](Self::drain) stop at this point, once, as if the process had died there.
    ///
    /// The job it was at stays RUNNING under a lease that nobody keeps alive.
    pub fn crash_at(&self, point: CrashPoint) {
        self.crash.ask(point);
    }

    /// Runs everything that can run now, one job after the other, and what becomes runnable by that; then returns.
    ///
    /// For tests. Does the upkeep first: expired leases, lifetimes, schedules.
    pub async fn drain(&self) -> Result<Drained> {
        let shared = self.shared()?;
        schedules::register(&self.client, &self.plan.schedules, shared.settings.left).await?;
        schedules::declare(&self.client, &self.plan.controls).await?;
        drain::drain(&shared, &self.crash).await
    }

    /// Checks the plan and makes what its parts share.
    fn shared(&self) -> Result<Arc<Shared>> {
        let plan = &self.plan;
        if let Some((field, problem)) = &plan.problem {
            return Err(Error::invalid(field, problem.clone()));
        }
        let queues = plan.served()?;
        let mut handlers = HashMap::new();
        for (job_type, registered) in &plan.handlers {
            let job_type = JobType::new(job_type)?;
            let metrics = queues.iter().map(|queue| JobMetrics::new(&queue.name, &job_type)).collect();
            let (call, backoff) = (Arc::clone(&registered.call), plan.backoffs.get(job_type.as_str()).cloned());
            let handled = Arc::new(HandledType { job_type: job_type.clone(), backoff, metrics });
            handlers.insert(job_type, Arc::new(Handler { call, handled }));
        }
        let unhandled = |job_type: &&String| !plan.handlers.contains_key(*job_type);
        if let Some(job_type) = plan.backoffs.keys().find(unhandled).filter(|_| plan.any.is_none()) {
            return Err(Error::invalid("backoff", format!("{job_type:?} has one, but no handler")));
        }
        let any = plan.any.clone().map(|call| AnyHandler::new(call, plan.backoffs.clone()));
        if handlers.is_empty() && any.is_none() {
            return Err(Error::invalid("handlers", "a worker needs at least one"));
        }
        let handlers = Handlers { own: handlers, any };
        let env = WorkerEnv { client: self.client.clone(), stopping: CancellationToken::new() };
        let id = worker_id(&plan.settings.host);
        let middleware: Arc<[Arc<dyn Middleware>]> = plan.middleware.clone().into();
        Ok(Arc::new(Shared::new(id, plan.settings.clone(), env, queues, handlers, middleware, plan.hooks.clone())))
    }
}

impl Plan {
    fn note(&mut self, field: &'static str, problem: impl Into<String>) {
        self.problem.get_or_insert((field, problem.into()));
    }

    fn register(&mut self, job_type: &str, call: Arc<Call>, queue: Option<&'static str>) {
        if self.handlers.insert(job_type.to_owned(), Registered { call, queue }).is_some() {
            self.note("handlers", format!("two are registered for type {job_type:?}"));
        }
    }

    /// Says which handlers will have nothing to do, because their jobs go to a queue that is not served.
    fn warn_of_unserved_queues(&self) {
        for (job_type, registered) in &self.handlers {
            let Some(queue) = registered.queue else { continue };
            if !self.queues.iter().any(|(name, _, _)| name == queue) {
                tracing::warn!(
                    job.r#type = job_type,
                    queue,
                    "jobs of this type are enqueued to a queue that this worker does not serve: add it with queue(…)"
                );
            }
        }
    }

    fn served(&self) -> Result<Vec<Served>> {
        let mut served: Vec<Served> = Vec::with_capacity(self.queues.len());
        for (name, slots, weight) in &self.queues {
            let name = QueueName::new(name)?;
            if *slots == 0 || *slots > SLOTS_MAX {
                return Err(Error::invalid("slots", format!("must be 1 to {SLOTS_MAX}, are {slots} for {name:?}")));
            }
            if served.iter().any(|other| other.name == name) {
                return Err(Error::invalid("queue", format!("{name:?} is served twice")));
            }
            served.push(Served::new(name, *slots, *weight));
        }
        if served.is_empty() {
            return Err(Error::invalid("queue", "a worker needs at least one: queue(\"default\", 8)"));
        }
        Ok(served)
    }
}

/// A name that is new at every start, with the host in it for people.
fn worker_id(host: &str) -> WorkerId {
    let host: String = host
        .chars()
        .take(100)
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' })
        .collect();
    let unique = crate::store::new_job_id().as_uuid().simple().to_string();
    WorkerId::new(format!("{host}/{}/{}", std::process::id(), &unique[..12])).expect("made of allowed characters")
}

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self.plan.handlers.keys().collect();
        f.debug_struct("Worker").field("queues", &self.plan.queues).field("types", &types).finish_non_exhaustive()
    }
}
