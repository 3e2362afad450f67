//! What operators do to jobs, by id or to all that match: asked first, in bounded steps, and it says how far it got.

use std::io::{BufRead, Write};
use std::time::Instant;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use windlass::store::{Act, Cursor, Filter, Operation, PAGE_MAX, Target, describe};
use windlass::{Error, JobId, State};

use super::connect::{Session, user};
use super::exit::{self, End, Exit};
use super::filter::FilterArgs;
use super::ids::{self, Typed};
use super::interrupt::Interrupt;
use super::output::{Format, can_ask, say};
use super::table::jobs;
use crate::figures::number;
use crate::wire;

/// Counting stops here: nobody decides differently at more.
pub(crate) const COUNT_MAX: u64 = 10_000;

/// How an act is carried out, whatever it is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How")]
pub(crate) struct HowArgs {
    /// Only say how many jobs it would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// Who, for the record; the name of the user unless said
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl HowArgs {
    /// Who acts.
    pub(crate) fn who(&self) -> Option<String> {
        self.by.clone().or_else(user)
    }
}

/// On which jobs.
#[derive(Debug, Clone, Args)]
pub(crate) struct TargetArgs {
    /// These jobs; or name conditions below
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<Typed<JobId>>,
    /// All jobs whose state allows it
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    #[command(flatten)]
    filter: FilterArgs,
}

impl TargetArgs {
    /// What is to be acted on, among jobs in these states; refused where nothing was named.
    pub(crate) async fn chosen(&self, session: &Session, name: &str, allowed: &[State]) -> anyhow::Result<Chosen> {
        if !self.ids.is_empty() {
            if !self.filter.is_empty() {
                return Err(End::usage("ids and conditions cannot be mixed")
                    .advise("name either jobs or conditions")
                    .into());
            }
            return Ok(Chosen::Ids(ids::jobs(session, &self.ids).await?));
        }
        if self.filter.is_empty() && !self.all {
            let advice = "name ids, conditions such as --queue or --state, or --all";
            return Err(End::usage(format!("no jobs selected to {name}")).advise(advice).into());
        }
        Ok(Chosen::Matching(self.filter.among(allowed, name, session.out.now)?))
    }
}

/// Jobs to act on.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "one is made for each command; a box would only be in the way")]
pub(crate) enum Chosen {
    /// These.
    Ids(Vec<JobId>),
    /// All that match.
    Matching(Filter),
}

/// An act in the words it is told with, and the states that allow it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verb {
    /// `cancel`.
    pub(crate) name: &'static str,
    /// `cancelled`.
    pub(crate) done: &'static str,
    /// The same, as JSON has it.
    pub(crate) action: wire::Action,
    /// Jobs in other states are passed over.
    pub(crate) allowed: &'static [State],
}

pub(crate) const CANCEL: Verb = Verb {
    name: "cancel",
    done: "cancelled",
    action: wire::Action::Cancel,
    allowed: &[State::Pending, State::Delayed, State::Scheduled, State::Running, State::Retrying],
};
pub(crate) const REQUEUE: Verb = Verb {
    name: "requeue",
    done: "requeued",
    action: wire::Action::Requeue,
    allowed: &[State::Failed, State::DeadLetter],
};
pub(crate) const DEAD_LETTER: Verb = Verb {
    name: "dead-letter",
    done: "dead-lettered",
    action: wire::Action::DeadLetter,
    allowed: &[State::Pending, State::Delayed, State::Scheduled, State::Running, State::Retrying, State::Failed],
};
pub(crate) const DELETE: Verb = Verb {
    name: "delete",
    done: "deleted",
    action: wire::Action::Delete,
    allowed: &[State::Completed, State::Failed, State::DeadLetter, State::Cancelled],
};

/// What an act came to, as JSON.
#[derive(Debug, Serialize)]
struct Report {
    action: wire::Action,
    dry_run: bool,
    changed: u64,
    refused: Vec<wire::Refused>,
}

/// Acts on the jobs that were named, or on all that match.
pub(crate) async fn run(
    session: &Session,
    verb: Verb,
    act: Act,
    target: &TargetArgs,
    how: &HowArgs,
) -> anyhow::Result<()> {
    match target.chosen(session, verb.name, verb.allowed).await? {
        Chosen::Ids(ids) => on_ids(session, verb, act, &ids, how).await,
        Chosen::Matching(filter) => on_all(session, verb, act, filter, how).await,
    }
}

async fn on_ids(session: &Session, verb: Verb, act: Act, ids: &[JobId], how: &HowArgs) -> anyhow::Result<()> {
    let asks = act == (Act::Cancel { force: false });
    let operation = operation(act, Target::Jobs(ids.to_vec()), how);
    let mut done = session.store().operate(&operation).await?;
    report(session, verb, done.changed, &done.refused, how)?;
    if done.refused.len() == 1 && ids.len() == 1 {
        let (_, error) = done.refused.remove(0);
        return Err(error.into());
    }
    for (_, error) in &done.refused {
        say(format!("windlass: {error}"));
    }
    say(summary(verb, done.changed, how.dry_run));
    if asks && !how.dry_run {
        let found = session.store().find(ids).await?;
        let running = found.iter().flatten().filter(|job| job.state == State::Running).count() as u64;
        if running > 0 {
            say(format!("{} running: asked to stop; --force takes it away at once", jobs(running)));
        }
    }
    match done.refused.first() {
        None => Ok(()),
        Some((_, first)) => {
            let message = format!("{} of {} refused", number(done.refused.len() as u64), jobs(ids.len() as u64));
            Err(End::new(exit::of(first), message).advise("`windlass jobs explain ID` says what a job allows").into())
        }
    }
}

/// Acts on all jobs that match: counts, asks, then goes step by step.
pub(crate) async fn on_all(
    session: &Session,
    verb: Verb,
    act: Act,
    filter: Filter,
    how: &HowArgs,
) -> anyhow::Result<()> {
    let counted = session.store().count(&filter, COUNT_MAX + 1, u64::MAX).await?;
    if counted.count == 0 && !counted.capped {
        say(format!("no jobs to {} among {}", verb.name, describe(&filter)));
        return report(session, verb, 0, &[], how);
    }
    // A server stops looking after a bounded number of rows: then the total is not known.
    let count = if counted.capped { COUNT_MAX + 1 } else { counted.count };
    if !how.dry_run && !how.yes {
        ask(verb.name, verb.done, count, &filter)?;
    }
    let remark = match act == (Act::Cancel { force: false }) && any_running(session, &filter).await? {
        false => "",
        true if how.dry_run => "; those that run would only be asked to stop",
        true => "; those that run were only asked to stop",
    };
    let began = Instant::now();
    let progress = bar(count, how.dry_run);
    let changed = steps(session, verb, act, filter, how, &progress).await;
    progress.finish_and_clear();
    let changed = changed?;
    report(session, verb, changed, &[], how)?;
    let took = if how.dry_run { String::new() } else { format!(" in {:.1} s", began.elapsed().as_secs_f64()) };
    say(format!("{}{took}{remark}", summary(verb, changed, how.dry_run)));
    if verb.name == DELETE.name && changed < count && count <= COUNT_MAX {
        let kept = jobs(count - changed);
        say(format!("{kept} passed over: another job that has not ended needs them, or they are gone already"));
    }
    Ok(())
}

/// Whether a running job matches.
async fn any_running(session: &Session, filter: &Filter) -> windlass::Result<bool> {
    if !filter.states.contains(&State::Running) {
        return Ok(false);
    }
    let running = filter.clone().states([State::Running]);
    let counted = session.store().count(&running, 1, u64::MAX).await?;
    Ok(counted.count > 0 || counted.capped)
}

async fn steps(
    session: &Session,
    verb: Verb,
    act: Act,
    filter: Filter,
    how: &HowArgs,
    progress: &ProgressBar,
) -> anyhow::Result<u64> {
    let interrupt = Interrupt::listen();
    let (mut changed, mut after): (u64, Option<Cursor>) = (0, None);
    loop {
        let target = Target::Matching { filter: filter.clone(), limit: PAGE_MAX, after };
        let step = session.store().operate(&operation(act.clone(), target, how)).await;
        let step = step.map_err(|error| cut_short(verb, changed, error))?;
        changed += step.changed;
        progress.set_length(progress.length().unwrap_or(0).max(changed));
        progress.set_position(changed);
        after = step.next;
        if after.is_none() {
            return Ok(changed);
        }
        if interrupt.is_asked() {
            let message = format!("interrupted; {} so far", summary(verb, changed, how.dry_run));
            return Err(End::new(Exit::Interrupted, message).advise("run it again to go on with the rest").into());
        }
    }
}

/// The error of a step in the middle, with how far it got.
fn cut_short(verb: Verb, changed: u64, error: Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("{}, then stopped", summary(verb, changed, false)))
}

fn operation(act: Act, target: Target, how: &HowArgs) -> Operation {
    Operation { target, act, by: how.who(), why: how.reason.clone(), dry_run: how.dry_run }
}

/// Asks whether it is meant; refuses where nobody can be asked.
pub(crate) fn ask(name: &str, done: &str, count: u64, filter: &Filter) -> anyhow::Result<()> {
    let what = format!("{name} {}: {}", capped(count), describe(filter));
    if !can_ask() {
        return Err(End::usage(format!("refusing to {what}, without confirmation (standard input is not a terminal)"))
            .advise("add --yes to do it, or --dry-run to see how many jobs it would change")
            .into());
    }
    confirm(&what, done)
}

/// Asks on the terminal; anything but yes ends the command.
fn confirm(what: &str, done: &str) -> anyhow::Result<()> {
    let mut screen = anstream::stderr();
    write!(screen, "{what}\nGo on? [y/N] ")?;
    screen.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(End::new(Exit::Failed, format!("nothing was {done}")).into())
}

/// A count that stopped at its limit: `10,000+ jobs`.
pub(crate) fn capped(count: u64) -> String {
    if count > COUNT_MAX { format!("{}+ jobs", number(COUNT_MAX)) } else { jobs(count) }
}

fn summary(verb: Verb, changed: u64, dry_run: bool) -> String {
    match dry_run {
        true => format!("would {} {} (dry run)", verb.name, jobs(changed)),
        false => format!("{} {}", verb.done, jobs(changed)),
    }
}

fn report(
    session: &Session,
    verb: Verb,
    changed: u64,
    refused: &[(JobId, Error)],
    how: &HowArgs,
) -> anyhow::Result<()> {
    if !matches!(session.out.format, Format::Json | Format::Jsonl) {
        return Ok(());
    }
    let refused = refused.iter().map(|(id, error)| wire::Refused { id: *id, problem: wire::Problem::of(error) });
    session.out.json(&Report { action: verb.action, dry_run: how.dry_run, changed, refused: refused.collect() })
}

/// A bar on standard error; indicatif draws nothing where that is no terminal.
fn bar(count: u64, dry_run: bool) -> ProgressBar {
    let bar = ProgressBar::new(count.min(COUNT_MAX));
    let style = ProgressStyle::with_template("{bar:30} {human_pos} of {human_len} jobs {per_sec}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    if dry_run {
        bar.set_message("dry run");
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_capped() {
        assert_eq!([1, 2, 10_000, 10_001].map(capped), ["1 job", "2 jobs", "10,000 jobs", "10,000+ jobs"]);
    }

    #[test]
    fn a_summary_says_what_was_done() {
        assert_eq!(summary(CANCEL, 1, false), "cancelled 1 job");
        assert_eq!(summary(REQUEUE, 1200, true), "would requeue 1,200 jobs (dry run)");
    }
}
