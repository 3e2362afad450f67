//! `windlass worker`: any program or URL as a handler, without an SDK.
//!
//! The library's worker does the work: claims, heartbeats, settlements, shutdown. Here is only its handler, which
//! starts a process (`program.rs`) or sends a POST (`post.rs`) for each attempt.

mod environment;
mod group;
mod leftover;
mod pipes;
mod post;
mod program;
pub(crate) mod scrape;

use std::time::Duration;

use windlass::job::TraceContext;
use windlass::store::Retention;
use windlass::worker::HandlerResult;
use windlass::{Client, Context, Payload, Worker};

pub use self::environment::Environment;
pub use self::post::Post;
pub use self::program::Program;
use crate::serve::signals::Signals;
use crate::traces;

/// What runs the jobs.
#[derive(Debug)]
pub enum Runner {
    /// A process for each attempt.
    Program(Program),
    /// A POST for each attempt.
    Post(Post),
}

/// Which jobs it runs, and how many at once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The queues, each with how many of its jobs run at once.
    pub queues: Vec<(String, usize)>,
    /// Only these types; none for any.
    pub types: Vec<String>,
    /// How many jobs run at once in all.
    pub concurrency: usize,
    /// How many jobs it claims ahead of free slots at most; `None` for as many as start soon.
    pub prefetch: Option<usize>,
    /// How long a lease holds without a heartbeat.
    pub lease: Option<Duration>,
    /// How often leases are kept alive; a third of the lease time unless set.
    pub heartbeat: Option<Duration>,
    /// Whether leases are those of the preset `steady`.
    pub steady: bool,
    /// How long jobs may take to finish at shutdown.
    pub grace: Duration,
    /// How long this worker's upkeep keeps ended jobs.
    pub retention: Retention,
    /// Whether it does upkeep at all.
    pub upkeep: bool,
}

/// Runs jobs until a signal asks to stop; a second one passes the end on to what still runs.
///
/// Says whether it came to its end in order.
pub async fn run(client: &Client, runner: Runner, settings: Settings, mut signals: Signals) -> anyhow::Result<bool> {
    let processes = match &runner {
        Runner::Program(program) => Some(program.count()),
        Runner::Post(_) => None,
    };
    let running = worker(client, runner, &settings).start().await?;
    tracing::info!(worker = %running.id(), queues = ?settings.queues, "started");
    let stop = running.stop_handle();
    signals.next_or_hangup().await;
    tracing::info!(running = running.busy(), "stopping");
    stop.gracefully();
    let mut ended = std::pin::pin!(running.ended());
    let (stopped, in_order) = tokio::select! {
        biased;
        stopped = &mut ended => (stopped, true),
        () = signals.next_or_hangup() => {
            stop.abort();
            (ended.await, false)
        }
    };
    if let Some(processes) = processes {
        // Processes whose attempts are over have been told to end, and are made to after a grace.
        processes.none().await;
    }
    tracing::info!(settled = stopped.settled, abandoned = stopped.abandoned, "stopped");
    Ok(in_order)
}

fn worker(client: &Client, runner: Runner, settings: &Settings) -> Worker<Runner> {
    let mut worker =
        Worker::new(client).concurrency(settings.concurrency).grace(settings.grace).retention(settings.retention);
    for (queue, slots) in &settings.queues {
        worker = worker.queue(queue, *slots);
    }
    if let Some(jobs) = settings.prefetch {
        worker = worker.prefetch(jobs);
    }
    if settings.steady {
        worker = worker.steady();
    }
    if let Some(lease) = settings.lease {
        worker = worker.lease_time(lease);
    }
    if let Some(heartbeat) = settings.heartbeat {
        worker = worker.heartbeat_interval(heartbeat);
    }
    if !settings.upkeep {
        worker = worker.without_upkeep();
    }
    let worker = worker.with_state(runner);
    if settings.types.is_empty() { worker.handle_any(handle) } else { worker.handle_types(&settings.types, handle) }
}

async fn handle(payload: Payload, cx: Context<Runner>) -> HandlerResult {
    let runner = std::sync::Arc::clone(&cx.state);
    match &*runner {
        Runner::Program(program) => program.run(payload, cx).await,
        Runner::Post(post) => post.run(payload, cx).await,
    }
}

/// What a process or URL is told about its job beside the payload, by name.
fn described(payload: &Payload, cx: &Context<Runner>) -> Vec<(&'static str, String)> {
    let job = cx.job();
    let mut about = vec![
        ("id", job.id.to_string()),
        ("type", job.spec.job_type.to_string()),
        ("queue", job.spec.queue.to_string()),
        ("attempt", job.attempt.to_string()),
        ("attempt_id", cx.attempt_id().to_string()),
        ("lease_version", job.lease_version.to_string()),
        ("max_attempts", job.spec.options.retry.max_attempts.to_string()),
        ("content_type", payload.content_type().to_owned()),
    ];
    let key = cx.idempotency_key().map(|key| ("idempotency_key", key.to_owned()));
    let correlation = job.spec.options.correlation_id.clone().map(|id| ("correlation_id", id));
    let previous = cx.previous_attempt_id().map(|id| ("previous_attempt_id", id.to_string()));
    // What goes into an environment or a header holds no control characters.
    let plain = |text: &str| !text.chars().any(char::is_control);
    about.extend([key, correlation, previous].into_iter().flatten().filter(|(_, value)| plain(value)));
    about
}

/// The trace to go on with: this attempt's own span where there is one, else what the job was enqueued in.
fn trace(cx: &Context<Runner>) -> Option<TraceContext> {
    traces::of_here().or_else(|| cx.job().spec.options.trace_context.clone())
}

/// Whether there is such a program: as a path, or in one of the folders of `PATH`.
pub fn exists(program: &std::ffi::OsStr) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let runs = |path: &std::path::Path| {
        path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    let path = std::path::Path::new(program);
    if path.components().count() > 1 {
        return runs(path);
    }
    std::env::var_os("PATH")
        .is_some_and(|folders| std::env::split_paths(&folders).any(|folder| runs(&folder.join(path))))
}
