//! `windlass store move`: a store into another one, while it is used.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use windlass::State;
use windlass::store::moving::{self, Finished, Move, Phase, Progress, Sums, Watcher};
use windlass::store::{self, Store};

use crate::cli::exit::{End, Exit};
use crate::cli::interrupt::Interrupt;
use crate::cli::output::say;
use crate::figures::number;
use crate::moved::address;

/// What `windlass store move` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The store that is moved
    #[arg(long, value_name = "URL")]
    from: String,
    /// The empty store that it is moved into
    #[arg(long, value_name = "URL")]
    to: String,
    /// Go on with a move that was stopped or killed
    #[arg(long)]
    resume: bool,
    /// Undo a move that has not switched: the store goes on as before, and the other one is empty again
    #[arg(long, conflicts_with = "resume")]
    undo: bool,
}

pub(super) async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (from, to) = (address(&arguments.from)?, address(&arguments.to)?);
    let source = open(&arguments.from, &from).await?;
    let target = open(&arguments.to, &to).await?;
    if arguments.undo {
        moving::undo(&*source, &*target).await?;
        say(format!("the move is undone: {from} goes on as before, {to} is empty"));
        return Ok(());
    }
    if !arguments.resume {
        moving::begin(&*source, &*target, (&from, &to)).await.map_err(|error| begun(error, &from, &to))?;
    }
    // Its ids have the key of the other store by now.
    drop(target);
    let target = open(&arguments.to, &to).await?;
    let interrupt = Interrupt::listen();
    let watcher = Shown { bar: bar(), phase: Mutex::new(None), interrupt };
    let finished = Move::resume(source, target).await?.run(&watcher).await;
    watcher.bar.finish_and_clear();
    match finished.map_err(|error| stopped(error, &from, &to))? {
        Some(finished) => told(&finished, &from, &to),
        None => Err(End::new(Exit::Interrupted, format!("stopped: {from} goes on, {to} is not open yet"))
            .advise("the same command with --resume goes on, with --undo it empties the target")
            .into()),
    }
}

async fn open(url: &str, shown: &str) -> anyhow::Result<Arc<dyn Store>> {
    if url.starts_with("http") {
        return Err(End::usage("a move needs the stores themselves, not a server")
            .advise("name the store that the server was started with; the server goes along")
            .into());
    }
    store::open(url).await.map_err(|error| anyhow::Error::new(error).context(format!("cannot open {shown}")))
}

fn begun(error: windlass::Error, from: &str, to: &str) -> anyhow::Error {
    let words = error.to_string();
    let end = End::new(Exit::Conflict, format!("cannot move {from} to {to}: {words}"));
    if words.contains("is under way") {
        return end.advise("the same command with --resume goes on with it, with --undo it ends it").into();
    }
    match error {
        windlass::Error::Conflict(_) => end.into(),
        error => anyhow::Error::new(error).context(format!("cannot move {from} to {to}")),
    }
}

fn stopped(error: windlass::Error, from: &str, to: &str) -> anyhow::Error {
    End::new(Exit::Failed, format!("the move of {from} to {to} stopped: {error}"))
        .advise("the same command with --resume goes on, with --undo it ends the move before the switch")
        .into()
}

/// A progress bar, or a line for each phase where nobody looks.
struct Shown {
    bar: ProgressBar,
    phase: Mutex<Option<Phase>>,
    interrupt: Interrupt,
}

impl Watcher for Shown {
    fn told(&self, progress: &Progress) {
        let before = self.phase.lock().expect("no panic while it is locked").replace(progress.phase);
        if before != Some(progress.phase) {
            self.bar.set_message(progress.phase.to_string());
            self.bar.reset_eta();
            if self.bar.is_hidden() {
                say(format!("{} …", progress.phase));
            }
        }
        self.bar.set_length(progress.of);
        self.bar.set_position(progress.done);
    }

    fn stops(&self) -> bool {
        self.interrupt.is_asked()
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{msg:9} {bar:30} {human_pos} of {human_len} {per_sec}, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

/// Prints what both sides hold, and fails where they differ.
fn told(finished: &Finished, from: &str, to: &str) -> anyhow::Result<()> {
    println_sums("source", &finished.source);
    if let Some(target) = &finished.target {
        println_sums("target", target);
    }
    if finished.pause > Duration::ZERO {
        let pause = finished.pause.as_secs_f64();
        say(format!("nobody could write for {pause:.2} s; {} changes were followed", number(finished.caught_up)));
    }
    match &finished.target {
        Some(target) if *target != finished.source => {
            Err(End::new(Exit::Failed, format!("{to} does not hold what {from} held: counts or checksums differ"))
                .advise("the old store is untouched: keep it, stop the workers, and report these lines")
                .into())
        }
        Some(_) => {
            say(format!("moved {from} to {to}: counts and checksums agree; the old store refuses writes"));
            Ok(())
        }
        None => {
            say(format!(
                "{from} was moved to {to} before; others may have written there since, so nothing is compared"
            ));
            Ok(())
        }
    }
}

fn println_sums(side: &str, sums: &Sums) {
    let states = State::ALL.iter().zip(sums.states).filter(|(_, count)| *count > 0);
    let states: Vec<String> = states.map(|(state, count)| format!("{state} {}", number(count))).collect();
    say(format!(
        "{side}: {} jobs ({}), {} attempts, {} log lines, {} dependencies, {} workflows, {} keys, checksum {:016x}",
        number(sums.jobs()),
        states.join(", "),
        number(sums.attempts),
        number(sums.lines),
        number(sums.edges),
        number(sums.workflows),
        number(sums.keys),
        sums.checksum
    ));
}
