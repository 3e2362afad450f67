//! `windlass jobs`: look at jobs, wait for them, act on them.

mod change;
mod explain;
mod export;
mod history;
mod watch;

use std::time::Duration;

use clap::{Args, Subcommand};
use windlass::job::RequeueOptions;
use windlass::store::Act;
use windlass::{JobId, Timestamp};

pub(crate) use self::change::copied;
pub(crate) use self::explain::first_reason;
use super::bulk::{self, HowArgs, TargetArgs};
use super::connect::{Reach, Session};
use super::detail;
use super::filter::FilterArgs;
use super::ids::{self, Typed};
use super::output::{OutputArgs, PageArgs};
use super::parse;
use super::wait;

/// What `windlass jobs` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List jobs, newest first
    #[command(after_help = "\
Examples:
  windlass jobs list --state running --queue mail
  windlass jobs list --tag customer=42 --created-after 2h -o wide")]
    List {
        #[command(flatten)]
        filter: FilterArgs,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show jobs in full, with payload and result
    #[command(aliases = ["show", "describe"], after_help = "Example:\n  windlass jobs get 3f0c… -o json | jq .payload")]
    Get {
        /// Which jobs
        #[arg(value_name = "ID", required = true)]
        ids: Vec<Typed<JobId>>,
    },
    /// Follow a job until it ends, or all jobs as they come and go
    #[command(after_help = "Examples:\n  windlass jobs watch 3f0c…\n  windlass jobs watch --queue mail -o jsonl")]
    Watch(watch::Arguments),
    /// Wait until jobs have ended
    #[command(after_help = "\
Exit codes: 0 all completed, 7 the time was up first, 8 one ended otherwise.
Example:
  windlass jobs wait 3f0c… --timeout 5m && echo done")]
    Wait {
        /// Which jobs
        #[arg(value_name = "ID", required = true)]
        ids: Vec<Typed<JobId>>,
        /// No longer than this
        #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
        timeout: Option<Duration>,
    },
    /// Say why a job is not running, what happens next and what to do
    #[command(after_help = "Example:\n  windlass jobs explain 3f0c…")]
    Explain {
        /// Which job
        #[arg(value_name = "ID")]
        id: Typed<JobId>,
    },
    /// Show the executions of a job, oldest first
    #[command(after_help = "Example:\n  windlass jobs attempts 3f0c… -o wide")]
    Attempts {
        /// Which job
        #[arg(value_name = "ID")]
        id: Typed<JobId>,
    },
    /// Show what happened to a job, who did it and why
    #[command(after_help = "Example:\n  windlass jobs history 3f0c… -o wide")]
    History {
        /// Which job
        #[arg(value_name = "ID")]
        id: Typed<JobId>,
    },
    /// Show what a job's handler logged
    #[command(after_help = "Example:\n  windlass jobs logs 3f0c…")]
    Logs {
        /// Which job
        #[arg(value_name = "ID")]
        id: Typed<JobId>,
    },
    /// Send dead jobs back
    Requeue(RequeueArgs),
    /// Copy a job under a new id
    Clone(change::CloneArgs),
    /// Cancel jobs; running ones are asked to stop
    Cancel(CancelArgs),
    /// Send jobs to the dead-letter queue
    #[command(
        after_help = "Example:\n  windlass jobs dead-letter --type import --code bad_row --reason 'see ticket 7'"
    )]
    DeadLetter {
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Change priority, tags, correlation id or callback URL
    Edit(change::EditArgs),
    /// Remove ended jobs
    #[command(after_help = "\
Examples:
  windlass jobs delete 3f0c…
  windlass jobs delete --state completed --ended-before 7d --dry-run")]
    Delete {
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Write jobs as JSON lines
    Export(export::Arguments),
}

/// What `requeue` takes, of jobs and of the dead-letter queue.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  windlass jobs requeue 3f0c… --with-dependents
  windlass jobs requeue --type email.send --code smtp_down --dry-run")]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Not before this time
    #[arg(long, value_name = "TIME", value_parser = parse::moment, help_heading = "How")]
    run_at: Option<Timestamp>,
    /// Go on counting attempts instead of starting from 0
    #[arg(long, help_heading = "How")]
    keep_counters: bool,
    /// Take along the dependents that died of it
    #[arg(long, help_heading = "How")]
    with_dependents: bool,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  windlass jobs cancel 3f0c… --reason 'wrong customer'
  windlass jobs cancel --queue mail --state scheduled,delayed")]
struct CancelArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Take running jobs away from their workers at once
    #[arg(long, help_heading = "How")]
    force: bool,
    #[command(flatten)]
    how: HowArgs,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    let (session, out, client) = (&session, &session.out, &session.client);
    match arguments.command {
        Command::List { filter, page } => list(session, &filter, &page).await,
        Command::Get { ids } => get(session, &ids::jobs(session, &ids).await?).await,
        Command::Watch(arguments) => watch::run(session, &arguments).await,
        Command::Wait { ids, timeout } => {
            let ids = ids::jobs(session, &ids).await?;
            let ended = wait::until_ended(session, &ids, timeout).await?;
            wait::print(session, &ended)
        }
        Command::Explain { id } => explain::run(session, ids::job(session, &id).await?).await,
        Command::Attempts { id } => {
            let attempts = client.attempts(ids::job(session, &id).await?).await?;
            out.all(&attempts, "the job has not been started yet")
        }
        Command::History { id } => history::run(session, ids::job(session, &id).await?).await,
        Command::Logs { id } => {
            let lines = client.logs(ids::job(session, &id).await?).await?;
            out.all(&lines, "the job's handler has logged nothing")
        }
        Command::Requeue(arguments) => requeue(session, &arguments).await,
        Command::Clone(arguments) => change::clone(session, &arguments).await,
        Command::Cancel(CancelArgs { target, force, how }) => {
            bulk::run(session, bulk::CANCEL, Act::Cancel { force }, &target, &how).await
        }
        Command::DeadLetter { target, how } => {
            bulk::run(session, bulk::DEAD_LETTER, Act::DeadLetter, &target, &how).await
        }
        Command::Edit(arguments) => change::edit(session, &arguments).await,
        Command::Delete { target, how } => bulk::run(session, bulk::DELETE, Act::Delete, &target, &how).await,
        Command::Export(arguments) => export::run(session, &arguments).await,
    }
}

async fn list(session: &Session, filter: &FilterArgs, page: &PageArgs) -> anyhow::Result<()> {
    let filter = filter.at(session.out.now);
    let next = async |limit, after| session.client.list(filter.clone(), limit, after).await;
    session.out.pages(page, "no jobs match", next).await
}

async fn get(session: &Session, ids: &[JobId]) -> anyhow::Result<()> {
    let found = session.store().find(ids).await?;
    let mut missing = None;
    for (place, (id, job)) in ids.iter().zip(found).enumerate() {
        let Some(job) = job else {
            missing.get_or_insert(windlass::Error::no_such_job(*id));
            continue;
        };
        if session.out.is_table() {
            if place > 0 {
                session.out.line("")?;
            }
            session.out.line(detail::job(&job, session.out.now, session.out.is_wide()))?;
        } else {
            session.out.one(&job)?;
        }
    }
    missing.map_or(Ok(()), |error| Err(error.into()))
}

/// Sends dead jobs back.
pub(crate) async fn requeue(session: &Session, arguments: &RequeueArgs) -> anyhow::Result<()> {
    let RequeueArgs { target, run_at, keep_counters, with_dependents, how } = arguments;
    let options = RequeueOptions { run_at: *run_at, keep_counters: *keep_counters, with_dependents: *with_dependents };
    bulk::run(session, bulk::REQUEUE, Act::Requeue(options), target, how).await
}
