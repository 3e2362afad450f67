//! `windlass workers`: who is there to run jobs, and who is to take no more of them.

use std::time::Duration;

use clap::{Args, Subcommand};
use windlass::store::{WorkerEdit, WorkerRecord};

use super::connect::{Reach, Session, user};
use super::output::{OutputArgs, say};

/// How often a worker that drains is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What `windlass workers` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the workers seen in the last 30 seconds
    #[command(after_help = "Example:\n  windlass workers list -o wide")]
    List,
    /// Let workers take no more jobs; what they run goes on
    ///
    /// A worker hears of it within 10 seconds. It holds until it is resumed or stops: a new start is a new worker.
    #[command(after_help = "Examples:\n  windlass workers drain web-1-4711 --reason 'the disk is failing'\n  \
        windlass workers drain web-1-4711 --wait && ssh web-1 sudo reboot")]
    Drain {
        #[command(flatten)]
        which: WhichArgs,
        /// Return when they run nothing any more, or are gone
        #[arg(long)]
        wait: bool,
    },
    /// Let workers that drain take jobs again
    #[command(after_help = "Example:\n  windlass workers resume web-1-4711")]
    Resume(WhichArgs),
}

/// Which workers, and who says so.
#[derive(Debug, Args)]
struct WhichArgs {
    /// Which workers: their ids, or the beginning of one where only one begins so
    #[arg(value_name = "WORKER", required = true)]
    workers: Vec<String>,
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
            let nothing =
                "no worker was seen in the last 30 seconds; start one with `windlass worker`, or your program";
            session.out.all(&session.client.workers().await?, nothing)
        }
        Command::Drain { which, wait } => {
            let told = tell(&session, &which, true).await?;
            if wait {
                for worker in &told {
                    idle(&session, worker).await?;
                }
            }
            Ok(())
        }
        Command::Resume(which) => tell(&session, &which, false).await.map(drop),
    }
}

/// Tells workers to take no more jobs, or to take some again.
async fn tell(session: &Session, which: &WhichArgs, draining: bool) -> anyhow::Result<Vec<WorkerRecord>> {
    let (live, by) = (session.client.workers().await?, which.by.clone().or_else(user));
    // All are found before any is told.
    let found: Vec<_> = which.workers.iter().map(|named| find(&live, named)).collect::<anyhow::Result<_>>()?;
    let mut told = Vec::with_capacity(found.len());
    for known in found {
        let edit = WorkerEdit::new(known.id.clone(), draining).because(&which.reason);
        let worker = session.store().edit_worker(&edit, by.as_deref()).await?;
        match draining {
            true => say(format!("worker {} takes no more jobs; it runs {}", worker.id, busy(&worker))),
            false => say(format!("worker {} takes jobs again", worker.id)),
        }
        if !session.out.is_table() {
            session.out.one(&worker)?;
        }
        told.push(worker);
    }
    Ok(told)
}

/// The worker that is meant.
fn find<'a>(live: &'a [WorkerRecord], named: &str) -> anyhow::Result<&'a WorkerRecord> {
    if let Some(exactly) = live.iter().find(|worker| worker.id.as_str() == named) {
        return Ok(exactly);
    }
    let fitting: Vec<_> = live.iter().filter(|worker| worker.id.as_str().starts_with(named)).collect();
    match fitting[..] {
        [only] => Ok(only),
        [] => Err(windlass::Error::not_found("worker", named).into()),
        [first, second, ..] => {
            anyhow::bail!("several workers begin with {named}: {}, {}, …: write more of it", first.id, second.id)
        }
    }
}

/// Waits until a worker runs nothing any more, or is gone.
async fn idle(session: &Session, worker: &WorkerRecord) -> anyhow::Result<()> {
    let mut shown = None;
    loop {
        let live = session.client.workers().await?;
        let Some(now) = live.into_iter().find(|now| now.id == worker.id) else {
            say(format!("worker {} is gone", worker.id));
            return Ok(());
        };
        let running = busy(&now);
        // What it says now is told before it has heard of anything.
        if running == 0 && now.seen_at > worker.seen_at {
            say(format!("worker {} runs nothing any more", worker.id));
            return Ok(());
        }
        if shown.replace(running) != Some(running) {
            say(format!("worker {} runs {running}", worker.id));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn busy(worker: &WorkerRecord) -> u64 {
    worker.queues.iter().map(|served| u64::from(served.busy)).sum()
}
