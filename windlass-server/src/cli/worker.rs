//! `windlass worker`: any program or URL as a handler.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::connect::Reach;
use super::output::{OutputArgs, say};
use super::run::webhook_secrets;
use crate::exec::{self, Environment, Post, Program, Runner, Settings};
use crate::serve::config::{duration, retention_in};
use crate::serve::logs::{self, Format, Level};
use crate::serve::signals::Signals;

/// What `windlass worker` takes.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["exec", "url"])))]
pub(crate) struct Arguments {
    /// Run this program for each job: payload on standard input, exit code 0 completes, 65 fails for good, others retry
    #[arg(long, value_name = "PROGRAM")]
    exec: Option<OsString>,
    /// POST each job to this URL: 2xx completes, 408, 425, 429 and 5xx retry, other 4xx fail for good
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Let the shell read the program: pipes, variables, several commands
    #[arg(long, requires = "exec")]
    shell: bool,
    /// A header to send along, as NAME: VALUE, or @FILE for the lines of a file, which others on the machine cannot see
    #[arg(long, requires = "url", value_name = "HEADER")]
    header: Vec<String>,
    /// Sign each call as webhooks are, with WINDLASS_WEBHOOK_SECRETS
    #[arg(long, requires = "url")]
    sign: bool,
    /// Give programs a clean environment: PATH, HOME, LANG and the like, and what --env names
    #[arg(long, requires = "exec")]
    clean_env: bool,
    /// Pass this variable on to programs; WINDLASS_TOKEN, WINDLASS_STORE and the like are not unless named
    #[arg(long, requires = "exec", value_name = "NAME")]
    env: Vec<String>,
    /// A queue to serve, and how many of its jobs at once
    #[arg(short, long, value_name = "QUEUE[=N]", default_value = "default")]
    queue: Vec<String>,
    /// A type to run; without one, every type
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// How many jobs run at once in all
    #[arg(long, value_name = "N", default_value_t = 4)]
    concurrency: usize,
    /// How many jobs to claim ahead of free slots at most, while they are short [default: as many as start within 50ms]
    #[arg(long, value_name = "N")]
    prefetch: Option<usize>,
    /// How long a lease holds without a heartbeat [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    lease: Option<Duration>,
    /// How often leases are kept alive [default: a third of the lease]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    heartbeat: Option<Duration>,
    /// Leases of 30s, renewed every 10s: fewer writes, slower recovery from a worker that died
    #[arg(long, conflicts_with_all = ["lease", "heartbeat"])]
    steady: bool,
    /// How long jobs may take to finish at shutdown
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "25s")]
    grace: Duration,
    /// How long a process that was told to stop may take, before it is killed
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    kill_after: Duration,
    /// Answer Prometheus at /metrics on this address, without a token
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// How log lines are written [default: text on a terminal, else json]
    #[arg(long, env = "WINDLASS_LOG", value_enum, value_name = "FORMAT")]
    log: Option<Format>,
    /// Which log lines are written [default: warn on a terminal, else info]
    #[arg(long, env = "WINDLASS_LOG_LEVEL", value_enum, value_name = "LEVEL")]
    log_level: Option<Level>,
    /// Arguments of the program, after --
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let traces = logs::start(arguments.log, arguments.log_level)?;
    let signals = Signals::listen()?;
    let mut settings = settings(&arguments, reach)?;
    let runner = runner(&arguments)?;
    let session = reach.open_and_follow(&OutputArgs { output: Default::default() }).await?;
    // A server does the upkeep of its store, and a worker's token does not allow it.
    settings.upkeep = session.place.store_url().is_some();
    if let Some(address) = arguments.metrics {
        let address = exec::scrape::listen(address, !settings.upkeep).await?;
        tracing::info!(%address, "metrics are answered");
    }
    if std::io::stderr().is_terminal() {
        say(serving(&settings, &session.place.shown()));
    }
    let ran = exec::run(&session.client, runner, settings, signals).await;
    traces.finish().await;
    if ran? { Ok(()) } else { std::process::exit(130) }
}

/// What a worker on a terminal says of itself; otherwise it would seem to do nothing.
fn serving(settings: &Settings, place: &str) -> String {
    let queues: Vec<_> = settings.queues.iter().map(|(queue, slots)| format!("{queue} ({slots})")).collect();
    let types = if settings.types.is_empty() { "every type".to_owned() } else { settings.types.join(", ") };
    format!("serving {}, {types}, of {place}; Ctrl-C stops", queues.join(", "))
}

fn runner(arguments: &Arguments) -> anyhow::Result<Runner> {
    let words = arguments.arguments.clone();
    let environment = Environment { clean: arguments.clean_env, passed: arguments.env.clone() };
    match (&arguments.exec, &arguments.url) {
        (Some(command), _) if arguments.shell => {
            let program = Program::shell(command, words, arguments.kill_after);
            Ok(Runner::Program(program.environment(environment)))
        }
        (Some(program), _) => {
            if !exec::exists(program) {
                let program = program.to_string_lossy();
                bail!("there is no program {program:?}; its arguments go after --, and --shell lets the shell read it");
            }
            let program = Program::new(program, words, arguments.kill_after);
            Ok(Runner::Program(program.environment(environment)))
        }
        (None, Some(url)) => {
            let secrets = if arguments.sign { webhook_secrets()? } else { Vec::new() };
            if arguments.sign && secrets.is_empty() {
                bail!("--sign needs a secret in WINDLASS_WEBHOOK_SECRETS; `windlass token webhook` makes one");
            }
            Ok(Runner::Post(Post::new(url, &headers(&arguments.header)?)?.signed(secrets)))
        }
        (None, None) => bail!("either --exec or --url is needed"),
    }
}

/// The headers as they were typed, and those in files: `ps` shows every argument to everybody.
fn headers(given: &[String]) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    for header in given {
        let Some(path) = header.strip_prefix('@') else {
            all.push(header.clone());
            continue;
        };
        let text = std::fs::read_to_string(path).with_context(|| format!("--header: cannot read {path}"))?;
        all.extend(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
    }
    Ok(all)
}

fn settings(arguments: &Arguments, reach: &Reach) -> anyhow::Result<Settings> {
    if !(1..=windlass::worker::SLOTS_MAX).contains(&arguments.concurrency) {
        bail!("--concurrency must be 1 to {}", windlass::worker::SLOTS_MAX);
    }
    let queues = arguments.queue.iter().map(|text| match text.split_once('=') {
        None => Ok((text.clone(), arguments.concurrency)),
        Some((name, slots)) => {
            let slots = slots.parse().with_context(|| format!("--queue {text:?}: after = comes a number"))?;
            Ok((name.to_owned(), slots))
        }
    });
    Ok(Settings {
        queues: queues.collect::<anyhow::Result<_>>()?,
        types: arguments.types.clone(),
        concurrency: arguments.concurrency,
        prefetch: arguments.prefetch,
        lease: arguments.lease,
        heartbeat: arguments.heartbeat,
        steady: arguments.steady,
        grace: arguments.grace,
        retention: retention_in(reach.config().as_deref())?,
        upkeep: true,
    })
}
