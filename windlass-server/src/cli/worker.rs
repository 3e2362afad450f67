//! `windlass worker`: any program or URL as a handler.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::connect::Reach;
use super::output::OutputArgs;
use crate::exec::{self, Post, Program, Runner, Settings};
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
    /// A header to send along, as NAME: VALUE
    #[arg(long, requires = "url", value_name = "HEADER")]
    header: Vec<String>,
    /// A queue to serve, and how many of its jobs at once
    #[arg(long, value_name = "QUEUE[=N]", default_value = "default")]
    queue: Vec<String>,
    /// A type to run; without one, every type
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// How many jobs run at once in all
    #[arg(long, value_name = "N", default_value_t = 4)]
    concurrency: usize,
    /// How long a lease holds without a heartbeat [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    lease: Option<Duration>,
    /// How long jobs may take to finish at shutdown
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "25s")]
    grace: Duration,
    /// How long a process that was told to stop may take, before it is killed
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    kill_after: Duration,
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
    let session = reach.open_or_make(&OutputArgs { output: Default::default() }).await?;
    // A server does the upkeep of its store, and a worker's token does not allow it.
    settings.upkeep = session.place.store_url().is_some();
    let ran = exec::run(&session.client, runner, settings, signals).await;
    traces.finish().await;
    if ran? { Ok(()) } else { std::process::exit(130) }
}

fn runner(arguments: &Arguments) -> anyhow::Result<Runner> {
    let words = arguments.arguments.clone();
    match (&arguments.exec, &arguments.url) {
        (Some(command), _) if arguments.shell => {
            Ok(Runner::Program(Program::shell(command, words, arguments.kill_after)))
        }
        (Some(program), _) => {
            if !exec::exists(program) {
                let program = program.to_string_lossy();
                bail!("there is no program {program:?}; its arguments go after --, and --shell lets the shell read it");
            }
            Ok(Runner::Program(Program::new(program, words, arguments.kill_after)))
        }
        (None, Some(url)) => Ok(Runner::Post(Post::new(url, &arguments.header)?)),
        (None, None) => bail!("either --exec or --url is needed"),
    }
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
        lease: arguments.lease,
        grace: arguments.grace,
        retention: retention_in(reach.config().as_deref())?,
        upkeep: true,
    })
}
