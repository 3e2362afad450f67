//! The command line: does this store, on this machine, keep its promises while everything around it fails?
//!
//! The binary starts itself again as each process of a run; `process::VARIABLE` then says what to do, and no argument.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, Parser, ValueEnum};
use windlass::Error;
use windlass::store::MemoryStore;

use crate::actors::Tempo;
use crate::check::{Violation, check};
use crate::history::Line;
use crate::report::{Least, Report, evidence};
use crate::{Outcome, Progress, Settings, arena, process};

/// How many violations are told one by one.
const TOLD_MAX: usize = 10;

/// Kill and disturb everything around a store, and check that it keeps its promises
#[derive(Debug, Parser)]
#[command(name = "windlass-torture", version, max_term_width = 100)]
#[command(after_help = "\
Exit codes: 0 nothing is wrong, 1 something is or the run failed, 2 usage, 6 store unreachable,
  9 proved nothing, 130 interrupted.
Examples:
  windlass-torture --store sqlite:/tmp/torture.db --seconds 60
  windlass-torture --store postgres://postgres@127.0.0.1:5432/postgres --server-dir DIR -o json")]
struct Arguments {
    /// A SQLite file without jobs, a PostgreSQL database, in which a schema of its own is made, or memory:
    #[arg(long, value_name = "URL", env = "WINDLASS_STORE", hide_env_values = true)]
    store: String,
    /// How long to inject faults; what is left to do then still takes some seconds
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Worker processes
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// What jobs and faults follow from; drawn and told if it is not given
    #[arg(long)]
    seed: Option<u64>,
    /// The folder of a private PostgreSQL server, made by scripts/postgres, which may be killed
    #[arg(long, value_name = "DIR")]
    server_dir: Option<PathBuf>,
    /// The folder of a primary and its synchronous standby, made by scripts/postgres pair, which may be failed over
    #[arg(long, value_name = "DIR", conflicts_with = "server_dir")]
    pair: Option<PathBuf>,
    /// A command that disturbs the store in a way of your own, run by sh about every 9 seconds
    #[arg(long, value_name = "CMD")]
    fault_command: Option<String>,
    /// Where to keep the histories; kept only if something is wrong unless given
    #[arg(long, value_name = "DIR")]
    history: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// How a run ended, other than well.
#[derive(Debug)]
struct End {
    exit: Exit,
    message: &'static str,
}

/// The exit codes other than 0: those of the `windlass` binary, and one for a run that did too little.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Exit {
    Failed = 1,
    Unreachable = 6,
    ProvedNothing = 9,
    Interrupted = 130,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)
    }
}

impl std::error::Error for End {}

/// Does what the arguments of the process say, or is one process of a run, and tells what went wrong.
pub fn main() -> ExitCode {
    // Read before anything else: what the variable holds is not for people to type.
    let member = std::env::var_os(process::VARIABLE).is_some();
    let arguments = if member { None } else { Some(Arguments::parse()) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match (runtime, arguments) {
        (Ok(runtime), Some(arguments)) => runtime.block_on(run(arguments)),
        (Ok(runtime), None) => runtime.block_on(process::main()),
        (Err(error), _) => Err(anyhow::Error::new(error).context("cannot start")),
    };
    let Err(error) = result else { return ExitCode::SUCCESS };
    say(format!("windlass-torture: {}", words(&error)));
    ExitCode::from(exit(&error) as u8)
}

/// The whole command line, for documents.
pub fn command() -> clap::Command {
    Arguments::command()
}

fn exit(error: &anyhow::Error) -> Exit {
    let unreachable = |error: &Error| matches!(error, Error::StoreUnavailable { .. } | Error::SubmissionTimeout { .. });
    match (error.downcast_ref::<End>(), error.downcast_ref::<Error>()) {
        (Some(end), _) => end.exit,
        (None, Some(error)) if unreachable(error) => Exit::Unreachable,
        (None, _) => Exit::Failed,
    }
}

/// The error in words. The library's errors name their source themselves.
fn words(error: &anyhow::Error) -> String {
    let mut words = Vec::new();
    for cause in error.chain() {
        words.push(cause.to_string());
        if cause.is::<Error>() {
            break;
        }
    }
    words.join(": ")
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let settings = Settings {
        store: arguments.store,
        length: Duration::from_secs(arguments.seconds.clamp(2, 24 * 3600)),
        workers: arguments.workers.clamp(1, 64),
        seed,
        server_dir: arguments.server_dir,
        pair: arguments.pair,
        fault_command: arguments.fault_command,
        history: arguments.history,
        program: std::env::current_exe()?,
    };
    say(format!("seed {seed}"));
    let terminal = std::io::stderr().is_terminal();
    let outcome = if settings.store.starts_with("memory:") {
        in_process(&settings).await?
    } else {
        tokio::select! {
            outcome = crate::run(&settings, |progress| if terminal { show(progress) }) => outcome?,
            _ = tokio::signal::ctrl_c() => {
                let message = "interrupted; the processes of the run are gone";
                return Err(End { exit: Exit::Interrupted, message }.into());
            }
        }
    };
    if terminal {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    match arguments.output {
        Output::Json => println!("{}", serde_json::to_string(&outcome.report)?),
        Output::Table => print(&outcome.report),
    }
    tell(&outcome.violations, &outcome.lines);
    for failed in &outcome.failed {
        say(failed);
    }
    if let Some(folder) = &outcome.folder {
        say(format!("histories are in {}", folder.display()));
    }
    let wrong = outcome.violations.len() + outcome.failed.len();
    anyhow::ensure!(wrong == 0, "torture found {wrong} things that must not be");
    if !outcome.report.valid {
        let message = "the run did too little to prove anything: let it run longer, or on a machine that is less busy";
        return Err(End { exit: Exit::ProvedNothing, message }.into());
    }
    Ok(())
}

/// A store in memory belongs to one process, so everybody is in it.
async fn in_process(settings: &Settings) -> anyhow::Result<Outcome> {
    let tempo = Tempo { lease: Duration::from_millis(500), pause: Duration::from_millis(10) };
    let setting = arena::Setting {
        seed: settings.seed,
        length: settings.length,
        workers: settings.workers,
        zombies: 2,
        tempo,
        drain_max: Duration::from_secs(60),
    };
    let arena::Outcome { lines, dump, drain } = arena::run(Arc::new(MemoryStore::new()), setting).await?;
    let violations = check(&lines, &dump);
    let mut report = Report::new(settings.seed, "memory", &lines, &dump, &violations, &Least::default());
    (report.seconds, report.drain_seconds) = (settings.length.as_secs_f64(), drain.as_secs_f64());
    Ok(Outcome { report, violations, lines, folder: None, failed: Vec::new() })
}

fn show(progress: Progress) {
    let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let Progress { elapsed, faults, jobs, unfinished } = progress;
    let line = format!(
        "{:>4} s  {faults} faults  {} jobs  {} unfinished",
        elapsed.as_secs(),
        number(jobs),
        number(unfinished)
    );
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
}

fn print(report: &Report) {
    let valid = if report.valid { "valid" } else { "INVALID: it did too little to prove anything" };
    println!("store              {}", report.store);
    println!("seed               {}", report.seed);
    println!("seconds            {:.0}, then {:.1} to drain", report.seconds, report.drain_seconds);
    println!("jobs               {} ({} runs)", report.jobs, report.runs);
    println!("faults             {}", report.faults_total);
    for (kind, count) in &report.faults {
        println!("  {kind:<16} {count}");
    }
    println!("reclaims           {}", report.reclaims);
    println!("stale refused      {}", report.stale_refused);
    println!("unknown outcomes   {}", report.unknown_outcomes);
    if let Some(recovery) = report.recovery_p99_seconds {
        println!("recovery p99       {recovery:.2} s after SIGKILL, of {} jobs", report.recoveries);
    }
    if let (Some(back), Some(longest)) = (report.back_p99_seconds, report.back_max_seconds) {
        println!("promotions         {}", report.promotions);
        println!("back p99           {back:.2} s after a promotion, {longest:.2} s at most");
    }
    println!("not begun          {} jobs of killed workers", report.killed_before_begun);
    println!("violations         {}", report.violations_total());
    for (invariant, count) in &report.violations {
        println!("  {invariant:<16} {count}");
    }
    println!("run                {valid}");
    for what in &report.too_little {
        println!("  {what}");
    }
}

/// Tells the first violations, and everything that is known of the first job.
fn tell(violations: &[Violation], lines: &[Line]) {
    for Violation { invariant, job, what } in violations.iter().take(TOLD_MAX) {
        let job = job.map(|job| format!("job {job} ")).unwrap_or_default();
        say(format!("{invariant}: {job}{what}"));
    }
    if violations.len() > TOLD_MAX {
        say(format!("and {} more", violations.len() - TOLD_MAX));
    }
    for line in evidence(lines, violations) {
        say(line);
    }
}

/// A remark for people, on standard error.
fn say(text: impl AsRef<str>) {
    // Nothing is left to do when standard error is closed too.
    let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
}
