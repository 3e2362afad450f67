//! The command line: one file per command.

mod bench;
mod torture;

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
    /// Kill, stall and disturb everything around a store, and check that it keeps its promises
    Torture(torture::Arguments),
    /// One process of a torture run
    #[command(hide = true)]
    TortureProcess,
    /// Print the version
    Version,
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
            ExitCode::from(torture::exit_code(&error))
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Bench(arguments) => bench::run(arguments).await,
        Command::Torture(arguments) => torture::run(arguments).await,
        Command::TortureProcess => crate::torture::process::main().await,
        Command::Version => {
            println!("windlass {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
    }
}
