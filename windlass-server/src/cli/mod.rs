//! The command line: one file per command.

mod bench;

use clap::{Parser, Subcommand};

/// Durable background jobs.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, about, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a store on this machine
    Bench(bench::Arguments),
    /// Print the version
    Version,
}

pub(crate) async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Bench(arguments) => bench::run(arguments).await,
        Command::Version => {
            println!("windlass {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
    }
}
