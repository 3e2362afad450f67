//! `windlass torture`: does this store, on this machine, keep its promises while everything around it fails?

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use windlass::store::MemoryStore;

use super::connect::Reach;
use super::exit::{End, Exit};
use super::output::say;
use crate::torture::actors::Tempo;
use crate::torture::check::{Violation, check};
use crate::torture::history::Line;
use crate::torture::report::{Least, Report, evidence};
use crate::torture::{self, Progress, Settings, arena};

/// How many violations are told one by one.
const TOLD_MAX: usize = 10;

/// What `windlass torture` takes. The store is a file without jobs, a PostgreSQL database, in which a schema of its own is
/// made, or `memory:`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass torture --store sqlite:/tmp/torture.db --seconds 60
  windlass torture --store postgres://postgres@127.0.0.1:5432/postgres --server-dir DIR -o json")]
pub(crate) struct Arguments {
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

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let store = reach.store_url("torture")?;
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let settings = Settings {
        store,
        length: Duration::from_secs(arguments.seconds.clamp(2, 24 * 3600)),
        workers: arguments.workers.clamp(1, 64),
        seed,
        server_dir: arguments.server_dir,
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
            outcome = torture::run(&settings, |progress| if terminal { show(progress) }) => outcome?,
            _ = tokio::signal::ctrl_c() => {
                return Err(End::new(Exit::Interrupted, "interrupted; the processes of the run are gone").into());
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
        let end = End::new(Exit::ProvedNothing, "the torture run did too little to prove anything");
        return Err(end.advise("let it run longer, or on a machine that is less busy").into());
    }
    Ok(())
}

/// A store in memory belongs to one process, so everybody is in it.
async fn in_process(settings: &Settings) -> anyhow::Result<torture::Outcome> {
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
    Ok(torture::Outcome { report, violations, lines, folder: None, failed: Vec::new() })
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
