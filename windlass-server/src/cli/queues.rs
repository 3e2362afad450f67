//! `windlass queues`: what waits where, and whether it may start.

use clap::{Args, Subcommand};
use windlass::flow::ControlEdit;
use windlass::store::{Act, Filter, QueueRecord};
use windlass::{Error, QueueName, State};

use super::bulk::{self, HowArgs};
use super::connect::{Reach, Session, user};
use super::flow;
use super::output::{OutputArgs, say};
use super::parse;
use crate::serve::flow::KeyCounts;

/// What nobody has claimed.
const UNCLAIMED: [State; 4] = [State::Pending, State::Delayed, State::Scheduled, State::Retrying];

/// What `windlass queues` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List all queues with what waits in them
    #[command(after_help = "Example:\n  windlass queues list -o wide")]
    List,
    /// Show one queue
    #[command(after_help = "Example:\n  windlass queues get mail -o json")]
    Get {
        /// Which queue
        #[arg(value_name = "QUEUE", value_parser = parse::queue)]
        queue: QueueName,
    },
    /// Start no more jobs of a queue; running ones go on
    #[command(after_help = "Example:\n  windlass queues pause mail")]
    Pause(PauseArgs),
    /// Start jobs of a paused queue again
    #[command(after_help = "Example:\n  windlass queues resume mail")]
    Resume(PauseArgs),
    /// Show, set or clear the flow control of a queue
    #[command(
        after_help = "Examples:\n  windlass queues control mail --running 50 --rate 100/s --each-key-running 3 --fair\n  windlass queues control mail --clear"
    )]
    Control(Box<flow::ControlArgs>),
    /// List the keys of a controlled queue and how each stands
    #[command(after_help = "Example:\n  windlass queues keys mail --blocked")]
    Keys(flow::KeysArgs),
    /// Limit, hold or resume one key of a controlled queue
    #[command(
        after_help = "Examples:\n  windlass queues key mail acme --running 10 --weight 5\n  windlass queues key mail acme --hold 5m"
    )]
    Key(flow::KeyArgs),
    /// Cancel every job of a queue that nobody has claimed
    #[command(after_help = "Example:\n  windlass queues purge mail --dry-run")]
    Purge {
        /// Which queue
        #[arg(value_name = "QUEUE", value_parser = parse::queue)]
        queue: QueueName,
        #[command(flatten)]
        how: HowArgs,
    },
}

/// Which queues, and who says so.
#[derive(Debug, Args)]
struct PauseArgs {
    /// Which queues
    #[arg(value_name = "QUEUE", required = true, value_parser = parse::queue)]
    queues: Vec<QueueName>,
    /// Who, for the record; the name of the user unless said
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    match arguments.command {
        Command::List => {
            let queues = session.client.queues().await?;
            session.out.all(&queues, "there are no queues yet")?;
            tell_keys(&session, &queues).await
        }
        Command::Get { queue } => {
            let found = find(&session, &queue).await?;
            session.out.one(&found)?;
            tell_keys(&session, &[found]).await
        }
        Command::Pause(arguments) => set_paused(&session, &arguments, true).await,
        Command::Resume(arguments) => set_paused(&session, &arguments, false).await,
        Command::Control(arguments) => flow::control(&session, *arguments).await,
        Command::Keys(arguments) => flow::keys(&session, arguments).await,
        Command::Key(arguments) => flow::key(&session, arguments).await,
        Command::Purge { queue, how } => purge(&session, queue, how).await,
    }
}

/// Says which controlled queues have keys that are blocked, where people read it.
async fn tell_keys(session: &Session, queues: &[QueueRecord]) -> anyhow::Result<()> {
    if session.out.is_table() {
        for counts in KeyCounts::look(session.store().as_ref(), queues).await? {
            counts.words().into_iter().for_each(say);
        }
    }
    Ok(())
}

async fn find(session: &Session, queue: &QueueName) -> anyhow::Result<QueueRecord> {
    let found = session.client.queues().await?.into_iter().find(|record| record.name == *queue);
    Ok(found.ok_or_else(|| Error::not_found("queue", queue.as_str()))?)
}

async fn set_paused(session: &Session, arguments: &PauseArgs, paused: bool) -> anyhow::Result<()> {
    let by = arguments.by.clone().or_else(user);
    for queue in &arguments.queues {
        let known = find(session, queue).await.is_ok();
        let edit = ControlEdit::pause(queue.clone(), paused).because(&arguments.reason);
        session.store().control(&edit, by.as_deref()).await?;
        let word = if paused { "paused" } else { "open" };
        match known {
            true => say(format!("queue {queue} is {word}")),
            // It may be meant, before the first job comes; it may as well be a slip of the finger.
            false => say(format!("no job was ever in a queue {queue}; it is {word} from now on")),
        }
        if !session.out.is_table() {
            session.out.one(&find(session, queue).await?)?;
        }
    }
    Ok(())
}

async fn purge(session: &Session, queue: QueueName, mut how: HowArgs) -> anyhow::Result<()> {
    if how.reason.is_empty() {
        "purged".clone_into(&mut how.reason);
    }
    let filter = Filter::new().queue(queue).states(UNCLAIMED.to_vec());
    bulk::on_all(session, bulk::CANCEL, Act::Cancel { force: false }, filter, &how).await
}
