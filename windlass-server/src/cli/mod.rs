//! The command line: one file per command.

mod bench;
mod run;
mod token;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Durable background jobs.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a store on this machine
    Bench(bench::Arguments),
    /// The second worker process of a demonstration
    #[command(hide = true)]
    DemoWorker(run::DemoWorker),
    /// Serve the API of a store, do its upkeep and deliver its webhooks
    Run(run::Arguments),
    /// Make tokens and secrets for the configuration of a server
    #[command(subcommand)]
    Token(token::Command),
    /// Print the version
    Version,
    /// Run jobs with any program or URL
    Worker(worker::Arguments),
}

/// Parses the arguments of the process, does what they say, and tells what went wrong.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(anyhow::Error::new(error).context("cannot start")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do when standard error is closed too.
            let _ = writeln!(std::io::stderr(), "windlass: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Bench(arguments) => bench::run(arguments).await,
        Command::DemoWorker(arguments) => run::demo_worker(arguments).await,
        Command::Run(arguments) => run::run(arguments).await,
        Command::Token(command) => token::run(command),
        Command::Worker(arguments) => worker::run(arguments).await,
        Command::Version => {
            println!("windlass {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
    }
}
