//! `windlass dlq`: the dead-letter queue, which is the jobs in FAILED or DEAD_LETTER.

use clap::{Args, Subcommand};
use windlass::job::JobRecord;
use windlass::store::{Act, PAGE_MAX, Page};
use windlass::workflow::Submission;
use windlass::{Error, State};

use super::bulk::{self, Chosen, HowArgs, TargetArgs};
use super::connect::{Reach, Session};
use super::ended;
use super::enqueue::Stored;
use super::exit::{End, Exit};
use super::filter::FilterArgs;
use super::interrupt::Interrupt;
use super::jobs::{self, RequeueArgs};
use super::output::{OutputArgs, PageArgs, say};
use super::parse;
use super::rows::Dead;
use super::table::jobs as jobs_of;
use crate::wire;

const DEAD: [State; 2] = [State::Failed, State::DeadLetter];

/// What `windlass dlq` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List dead jobs with their failures, the last that ended first
    #[command(after_help = "\
Examples:
  windlass dlq list --type email.send
  windlass dlq list --code smtp_down -o id")]
    List {
        #[command(flatten)]
        filter: FilterArgs,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Send dead jobs back
    Requeue(RequeueArgs),
    /// Run dead jobs again as new jobs; the dead ones stay as they are
    Clone(CloneArgs),
    /// Remove dead jobs for good
    #[command(after_help = "Example:\n  windlass dlq purge --ended-before 30d --dry-run")]
    Purge {
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        how: HowArgs,
    },
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Each copy has a new id and is linked to its original.
Examples:
  windlass dlq clone 3f0c12ab --new-key
  windlass dlq clone --type email.send --code smtp_down --new-key --dry-run")]
struct CloneArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Give each copy the key clone-of-ID, so that the same again stores nothing twice
    #[arg(long, help_heading = "How")]
    new_key: bool,
    /// How long these keys hold, or forever [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = parse::limit, requires = "new_key", help_heading = "How")]
    window: Option<wire::Limit>,
    #[command(flatten)]
    how: HowArgs,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    match arguments.command {
        Command::List { filter, page } => list(&session, &filter, &page).await,
        Command::Clone(arguments) => clone(&session, &arguments).await,
        Command::Requeue(arguments) => jobs::requeue(&session, &arguments).await,
        Command::Purge { target, how } => {
            let verb = bulk::Verb { allowed: &DEAD, ..bulk::DELETE };
            bulk::run(&session, verb, Act::Delete, &target, &how).await
        }
    }
}

async fn list(session: &Session, filter: &FilterArgs, page: &PageArgs) -> anyhow::Result<()> {
    let filter = filter.among(&DEAD, "find in the dead-letter queue", session.out.now)?;
    let next = async |limit, after| {
        let found = ended::page(&session.client, &filter, limit, after).await?;
        Ok(Page::new(found.items.into_iter().map(Dead).collect(), found.next))
    };
    session.out.pages(page, "the dead-letter queue is empty, or nothing in it matches", next).await
}

/// Copies dead jobs page by page, each page as one batch.
async fn clone(session: &Session, arguments: &CloneArgs) -> anyhow::Result<()> {
    let how = &arguments.how;
    let filter = match arguments.target.chosen(session, "clone", &DEAD).await? {
        Chosen::Ids(ids) => {
            let found = session.store().find(&ids).await?;
            let known = ids.iter().zip(found).map(|(id, job)| job.ok_or_else(|| Error::no_such_job(*id)));
            let known = known.collect::<Result<Vec<_>, _>>()?;
            if let Some(job) = known.iter().find(|job| !DEAD.contains(&job.state)) {
                return Err(Error::IllegalState { job: job.id, state: job.state, wanted: "clone as dead" }.into());
            }
            let copies = if how.dry_run { known.len() } else { store(session, arguments, &known).await? };
            return tell(copies, how);
        }
        Chosen::Matching(filter) => filter,
    };
    let count = session.client.count(&filter, bulk::COUNT_MAX + 1).await?;
    if how.dry_run || count == 0 {
        return tell(usize::try_from(count)?, how);
    }
    if !how.yes {
        bulk::ask("clone", "cloned", count, &filter)?;
    }
    let (interrupt, mut copies, mut after) = (Interrupt::listen(), 0, None);
    loop {
        let page = session.client.list(filter.clone(), PAGE_MAX, after).await?;
        copies += store(session, arguments, &page.items).await?;
        after = page.next;
        if after.is_none() {
            return tell(copies, how);
        }
        if interrupt.is_asked() {
            let message = format!("interrupted; cloned {} so far", jobs_of(copies as u64));
            return Err(End::new(Exit::Interrupted, message).advise("with --new-key it can be run again").into());
        }
    }
}

/// Stores a copy of each; gives how many are new.
async fn store(session: &Session, arguments: &CloneArgs, originals: &[JobRecord]) -> anyhow::Result<usize> {
    let copy = |original: &JobRecord| {
        let idempotency_key = arguments.new_key.then(|| format!("clone-of-{}", original.id));
        let new = wire::NewJob { idempotency_key, idempotency_window: arguments.window, ..wire::NewJob::default() };
        jobs::copied(session, original, new)
    };
    let copies = originals.iter().map(copy).collect::<anyhow::Result<Vec<_>>>()?;
    if copies.is_empty() {
        return Ok(0);
    }
    let stored = session.client.submit(Submission::new(copies)?).await?;
    let mut new = 0;
    for job in stored.jobs {
        new += usize::from(!job.existing);
        if !session.out.is_table() {
            session.out.one(&Stored(job))?;
        }
    }
    Ok(new)
}

fn tell(copies: usize, how: &HowArgs) -> anyhow::Result<()> {
    let copies = jobs_of(copies as u64);
    match how.dry_run {
        true => say(format!("would clone {copies} (dry run)")),
        false => say(format!("cloned {copies}")),
    }
    Ok(())
}
