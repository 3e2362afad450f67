//! The `windlass` binary: parse, dispatch, and say what went wrong.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let command = cli::Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(cli::run(command)),
        Err(error) => Err(anyhow::Error::new(error).context("cannot start")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            // Nothing is left to do when standard error is closed too.
            let _ = writeln!(std::io::stderr(), "windlass: {error:#}");
            ExitCode::FAILURE
        }
    }
}
