//! `windlass workers`: who is there to run jobs.

use clap::{Args, Subcommand};

use super::connect::Reach;
use super::output::OutputArgs;

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
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open(&arguments.output).await?;
    match arguments.command {
        Command::List => {
            let nothing =
                "no worker was seen in the last 30 seconds; start one with `windlass worker`, or your program";
            session.out.all(&session.client.workers().await?, nothing)
        }
    }
}
