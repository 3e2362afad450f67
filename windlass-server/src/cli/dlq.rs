//! `windlass dlq`: the dead-letter queue, which is the jobs in FAILED or DEAD_LETTER.

use clap::{Args, Subcommand};
use windlass::State;
use windlass::store::{Act, Page};

use super::bulk::{self, HowArgs, TargetArgs};
use super::connect::{Reach, Session};
use super::filter::FilterArgs;
use super::jobs::{self, RequeueArgs};
use super::output::{OutputArgs, PageArgs};
use super::rows::Dead;

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
    /// List dead jobs with their failures, newest first
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
    /// Remove dead jobs for good
    #[command(after_help = "Example:\n  windlass dlq purge --ended-before 30d --dry-run")]
    Purge {
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        how: HowArgs,
    },
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    match arguments.command {
        Command::List { filter, page } => list(&session, &filter, &page).await,
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
        let found = session.client.list(filter.clone(), limit, after).await?;
        Ok(Page { items: found.items.into_iter().map(Dead).collect(), next: found.next })
    };
    session.out.pages(page, "the dead-letter queue is empty, or nothing in it matches", next).await
}
