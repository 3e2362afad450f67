//! The command line: one file or folder for each command.
//!
//! Every command works on `Arc<dyn Store>`, however it is reached (`connect.rs`), and prints through `output.rs`: data on
//! standard output, everything else on standard error. How a command ends is decided in `exit.rs`.

mod attention;
mod bench;
mod bulk;
mod completions;
mod connect;
mod demo_fill;
mod detail;
mod dlq;
mod doctor;
mod ended;
mod enqueue;
mod enqueue_file;
mod errors;
pub(crate) mod exit;
mod exported;
mod filter;
mod flow;
mod ids;
mod interrupt;
mod job_args;
mod jobs;
mod open;
mod output;
mod parse;
mod queues;
mod rows;
mod run;
mod schedules;
mod stats;
mod store;
mod table;
mod token;
mod top;
mod wait;
mod worker;
mod workers;
mod workflows;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Durable background jobs.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, about, propagate_version = true, max_term_width = 100, disable_help_flag = true)]
#[command(after_help = "\
Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 conflict or stale, 5 not allowed,
  6 unreachable, 7 wait timed out, 8 waited for a job that ended badly,
  130 interrupted.")]
struct Cli {
    #[command(flatten)]
    reach: connect::Reach,
    // The long form of clap's own flag spreads every option over several lines: not even a list's help fits a screen.
    /// Print help
    #[arg(short, long, global = true, action = clap::ArgAction::HelpShort, help_heading = "Global options")]
    help: Option<bool>,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What somebody sees who types `windlass` and nothing else: the five commands that one needs first, in order.
const FIRST: &str = "\
Durable background jobs. To begin with:

  windlass run --demo             see it work: a server with jobs flowing through it
  windlass run                    a server of your own; jobs live in ./windlass.db
  windlass worker --exec PROGRAM  run jobs with any program
  windlass enqueue TYPE           give it a job
  windlass top                    watch queues, workers and failures live

Then `windlass jobs explain ID` says why a job does not run, and `windlass doctor` what is wrong.
All commands: windlass --help";

#[derive(Debug, Subcommand)]
enum Command {
    /// List what needs somebody, worst first
    Attention(attention::Arguments),
    /// Measure a store on this machine
    Bench(bench::Arguments),
    /// Print what a shell needs to complete commands
    Completions(completions::Arguments),
    /// Look at the dead-letter queue, send jobs back or remove them
    Dlq(dlq::Arguments),
    /// Write a large store, to look at and to measure
    #[command(hide = true)]
    DemoFill(demo_fill::Arguments),
    /// The second worker process of a demonstration
    #[command(hide = true)]
    DemoWorker(run::DemoWorker),
    /// Look for what is wrong, and say what to do
    Doctor(doctor::Arguments),
    /// Enqueue a job, or the jobs of a file
    Enqueue(Box<enqueue::Arguments>),
    /// Group failed jobs by what they failed with
    Errors(errors::Arguments),
    /// Look at jobs, wait for them, act on them
    Jobs(Box<jobs::Arguments>),
    /// Show a server's page in the browser
    Open(open::Arguments),
    /// Print the description of the HTTP API
    #[command(after_help = "Example:\n  windlass openapi > openapi.json")]
    Openapi,
    /// Look at queues, pause, resume or purge them
    Queues(queues::Arguments),
    /// Serve the API of a store, do its upkeep and deliver its webhooks
    Run(run::Arguments),
    /// Make, look at, pause or fire recurring work
    Schedules(schedules::Arguments),
    /// Print the numbers of the whole store
    Stats(stats::Arguments),
    /// Migrate, check, copy or prune the store itself
    Store(store::Arguments),
    /// Make tokens and secrets for the configuration of a server
    #[command(subcommand)]
    Token(token::Command),
    /// Watch queues, workers and failures live
    Top(top::Arguments),
    /// Print the version
    Version,
    /// Run jobs with any program or URL
    Worker(worker::Arguments),
    /// List the workers that live, and tell them to drain
    Workers(workers::Arguments),
    /// Start, look at, cancel or requeue graphs of jobs
    Workflows(workflows::Arguments),
}

/// Parses the arguments of the process, does what they say, and tells what went wrong.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(anyhow::Error::new(error).context("cannot start")),
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    let Some(exit) = exit::code(&error) else { return ExitCode::SUCCESS };
    output::say(format!("windlass: {}", table::clean_lines(&exit::words(&error))));
    if let Some(advice) = exit::advice(&error) {
        output::say(format!("  → {advice}"));
    }
    ExitCode::from(exit as u8)
}

/// The whole command line, for completions and documents.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Whether a command line, the program's name first, can be read; nothing of it is done.
pub fn check(words: impl IntoIterator<Item = std::ffi::OsString>) -> Result<(), clap::Error> {
    Cli::try_parse_from(words).map(drop)
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let reach = &cli.reach;
    let Some(asked) = cli.command else {
        use std::io::Write;
        return Ok(writeln!(std::io::stdout(), "{FIRST}")?);
    };
    match asked {
        Command::Attention(arguments) => attention::run(reach, arguments).await,
        Command::Bench(arguments) => bench::run(arguments).await,
        Command::Completions(arguments) => completions::run(&arguments, command()),
        Command::Dlq(arguments) => dlq::run(reach, arguments).await,
        Command::Doctor(arguments) => doctor::run(reach, arguments).await,
        Command::Enqueue(arguments) => enqueue::run(reach, *arguments).await,
        Command::Errors(arguments) => errors::run(reach, arguments).await,
        Command::Jobs(arguments) => jobs::run(reach, *arguments).await,
        Command::Open(arguments) => open::run(reach, &arguments),
        Command::Openapi => {
            use std::io::Write;
            Ok(writeln!(std::io::stdout(), "{}", crate::api::document().trim_end())?)
        }
        Command::Queues(arguments) => queues::run(reach, arguments).await,
        Command::Schedules(arguments) => schedules::run(reach, arguments).await,
        Command::Stats(arguments) => stats::run(reach, arguments).await,
        Command::Store(arguments) => store::run(reach, arguments).await,
        Command::Top(arguments) => top::run(reach, arguments).await,
        Command::DemoFill(arguments) => demo_fill::run(reach, arguments).await,
        Command::DemoWorker(arguments) => run::demo_worker(reach, arguments).await,
        Command::Run(arguments) => run::run(reach, arguments).await,
        Command::Token(command) => token::run(reach, command).await,
        Command::Worker(arguments) => worker::run(reach, arguments).await,
        Command::Version => {
            println!("windlass {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Command::Workers(arguments) => workers::run(reach, arguments).await,
        Command::Workflows(arguments) => workflows::run(reach, arguments).await,
    }
}
