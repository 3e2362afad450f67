//! `windlass schedules`: recurring work.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use windlass::schedule::{Cron, Missed, Overlap, ScheduleRecord, ScheduleSpec, Timing};
use windlass::store::{Page, ScheduleEdit};
use windlass::{Error, Timestamp};

use super::connect::{Reach, Session, user};
use super::detail;
use super::exit::End;
use super::job_args::JobArgs;
use super::output::{Format, OutputArgs, PageArgs, say};
use super::parse;
use super::table::{both, both_in_zone};
use crate::firings::{self, Foreseen};
use crate::wire;

/// What `windlass schedules` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List schedules by name
    #[command(after_help = "Example:\n  windlass schedules list -o wide")]
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one schedule and its next firings
    #[command(after_help = "Example:\n  windlass schedules get nightly")]
    Get(Named),
    /// Make a schedule, or replace one
    Create(Box<CreateArgs>),
    /// Stop a schedule firing
    #[command(after_help = "Example:\n  windlass schedules pause nightly")]
    Pause(Named),
    /// Let a schedule fire again; slots that passed meanwhile do not
    #[command(after_help = "Example:\n  windlass schedules resume nightly")]
    Resume(Named),
    /// Fire a schedule now, beside its slots
    #[command(after_help = "Example:\n  windlass schedules trigger nightly -o id")]
    Trigger(Named),
    /// Forget a schedule; its jobs stay
    #[command(after_help = "Example:\n  windlass schedules delete nightly")]
    Delete(Named),
    /// Say when a schedule fires next, or when a timing would
    #[command(
        visible_alias = "preview",
        after_help = "\
Examples:
  windlass schedules next nightly -n 10
  windlass schedules next --cron '30 2 * * *' --zone Europe/Berlin"
    )]
    Next {
        /// Which schedule; or name a timing below
        #[arg(value_name = "NAME", required_unless_present_any = ["cron", "every", "delay"])]
        name: Option<String>,
        #[command(flatten)]
        timing: TimingArgs,
        /// How many
        #[arg(short, value_name = "N", default_value_t = 5)]
        n: usize,
    },
}

#[derive(Debug, Args)]
struct Named {
    /// Which schedule
    #[arg(value_name = "NAME")]
    name: String,
}

/// When it fires.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "When it fires")]
#[group(id = "timing", multiple = true)]
struct TimingArgs {
    /// At these times: minute hour day month weekday, perhaps seconds in front
    #[arg(long, value_name = "EXPRESSION", conflicts_with_all = ["every", "delay"])]
    cron: Option<String>,
    /// The time zone of the expression
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// At this rate
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, conflicts_with = "delay")]
    every: Option<Duration>,
    /// The first moment of the rate
    #[arg(long, value_name = "TIME", value_parser = parse::moment, requires = "every")]
    anchor: Option<Timestamp>,
    /// This long after the end of its last job
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    delay: Option<Duration>,
}

impl TimingArgs {
    fn timing(&self) -> anyhow::Result<Timing> {
        match (&self.cron, self.every, self.delay) {
            (Some(expression), _, _) => Ok(Timing::Cron(Cron::new(expression, &self.zone)?)),
            (None, Some(every), _) => Ok(Timing::Every { every, anchor: self.anchor.unwrap_or(Timestamp::EPOCH) }),
            (None, None, Some(after)) => Ok(Timing::Delay { after }),
            (None, None, None) => {
                Err(End::usage("no rhythm was named").advise("name --cron, --every or --delay").into())
            }
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass schedules create nightly report.build --cron '0 3 * * *' --zone Europe/Berlin
  windlass schedules create poll feed.poll --every 90s --payload '{\"feed\":7}' --replace")]
struct CreateArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    /// The type of its jobs
    #[arg(value_name = "TYPE")]
    job_type: String,
    #[command(flatten)]
    timing: TimingArgs,
    /// What becomes of slots that passed while nobody could fire: coalesce, skip, or all:N
    #[arg(long, value_name = "HOW", default_value = "coalesce", value_parser = missed)]
    missed: Missed,
    /// What becomes of a slot while the last job has not ended
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    overlap: OverlapArg,
    /// Replace a schedule of this name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    job: JobArgs,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum OverlapArg {
    /// It does not fire
    #[default]
    Skip,
    /// One waits for the last to end
    QueueOne,
    /// It fires all the same
    Allow,
}

/// `coalesce`, `skip` or `all:N`.
fn missed(text: &str) -> Result<Missed, String> {
    match text.split_once(':') {
        None if text == "coalesce" => Ok(Missed::Coalesce),
        None if text == "skip" => Ok(Missed::Skip),
        Some(("all", count)) => count.parse().map(Missed::All).map_err(|_| format!("{count:?} is not a number")),
        _ => Err(format!("{:?} is none of coalesce, skip, all:N", parse::shorten(text))),
    }
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = match &arguments.command {
        Command::Create(_) => reach.open_or_make(&arguments.output).await?,
        _ => reach.open(&arguments.output).await?,
    };
    let session = &session;
    match arguments.command {
        Command::List { page } => list(session, &page).await,
        Command::Get(Named { name }) => show(session, &find(session, &name).await?),
        Command::Create(arguments) => create(session, &arguments).await,
        Command::Pause(Named { name }) => edit(session, ScheduleEdit::Pause(name), "paused").await,
        Command::Resume(Named { name }) => edit(session, ScheduleEdit::Resume(name), "active").await,
        Command::Trigger(Named { name }) => trigger(session, name).await,
        Command::Delete(Named { name }) => edit(session, ScheduleEdit::Delete(name), "deleted").await,
        Command::Next { name: Some(name), n, .. } => {
            let schedule = find(session, &name).await?;
            next(session, &schedule, n)
        }
        Command::Next { name: None, timing, n } => {
            let job = wire::NewJob { job_type: "preview".to_owned(), ..wire::NewJob::default() };
            let spec = spec(session, "preview", timing.timing()?, job)?;
            next(session, &ScheduleRecord::create(spec, session.out.now)?, n)
        }
    }
}

async fn list(session: &Session, page: &PageArgs) -> anyhow::Result<()> {
    let next = async |limit: usize, after: Option<windlass::store::Cursor>| {
        let items = session.client.schedules(after.as_ref().map(|after| after.0.as_str()), limit).await?;
        let next = items.last().filter(|_| items.len() == limit);
        let next = next.map(|last| windlass::store::Cursor(last.spec.name.clone()));
        Ok(Page::new(items, next))
    };
    session.out.pages(page, "there are no schedules", next).await
}

/// The schedule of this name. Names sort as text, so the one after `before` is it, if it exists.
async fn find(session: &Session, name: &str) -> anyhow::Result<ScheduleRecord> {
    let mut after: Option<String> = None;
    loop {
        let found = session.client.schedules(after.as_deref(), windlass::store::PAGE_MAX).await?;
        let last = found.last().map(|schedule| schedule.spec.name.clone());
        if let Some(schedule) = found.into_iter().find(|schedule| schedule.spec.name == name) {
            return Ok(schedule);
        }
        match last {
            None => return Err(Error::not_found("schedule", name).into()),
            last => after = last,
        }
    }
}

fn show(session: &Session, schedule: &ScheduleRecord) -> anyhow::Result<()> {
    match session.out.is_table() {
        true => Ok(session.out.line(detail::schedule(schedule, session.out.now))?),
        false => session.out.one(schedule),
    }
}

fn spec(session: &Session, name: &str, timing: Timing, job: wire::NewJob) -> anyhow::Result<ScheduleSpec> {
    let job = wire::check_jobs(vec![job], &session.client)?.remove(0);
    let (missed, overlap) = (Missed::default(), Overlap::default());
    Ok(ScheduleSpec { name: name.to_owned(), timing, missed, overlap, job, from_code: false })
}

async fn create(session: &Session, arguments: &CreateArgs) -> anyhow::Result<()> {
    let job = arguments.job.job(&arguments.job_type)?;
    let overlap = match arguments.overlap {
        OverlapArg::Skip => Overlap::Skip,
        OverlapArg::QueueOne => Overlap::QueueOne,
        OverlapArg::Allow => Overlap::Allow,
    };
    let spec =
        spec(session, &arguments.name, arguments.timing.timing()?, job)?.missed(arguments.missed).overlap(overlap);
    spec.check()?;
    let edit = match arguments.replace {
        true => ScheduleEdit::Put { spec, version: None },
        false => ScheduleEdit::Create(spec),
    };
    let edited = session.store().edit_schedule(&edit, user().as_deref()).await;
    let edited = match edited {
        Err(Error::Conflict(problem)) if !arguments.replace => {
            let advice = "add --replace to put this one in its place, or choose another name";
            return Err(End::new(super::exit::Exit::Conflict, problem).advise(advice).into());
        }
        edited => edited?,
    };
    show(session, &edited.schedule)
}

async fn edit(session: &Session, edit: ScheduleEdit, done: &str) -> anyhow::Result<()> {
    let edited = session.store().edit_schedule(&edit, user().as_deref()).await?;
    say(format!("schedule {} is {done}", edit.name()));
    match session.out.is_table() {
        true => Ok(()),
        false => session.out.one(&edited.schedule),
    }
}

async fn trigger(session: &Session, name: String) -> anyhow::Result<()> {
    let edit = ScheduleEdit::Trigger(name);
    let fired = session.store().edit_schedule(&edit, user().as_deref()).await?;
    let id = fired.job.expect("a trigger fires a job");
    say(format!("schedule {} fired job {id}", edit.name()));
    match session.out.format {
        Format::Table | Format::Wide => Ok(()),
        Format::Id => Ok(session.out.line(id.to_string())?),
        Format::Json | Format::Jsonl => {
            session.out.json(&wire::Triggered { job_id: id, schedule: wire::Schedule::from(&fired.schedule) })
        }
    }
}

fn next(session: &Session, schedule: &ScheduleRecord, n: usize) -> anyhow::Result<()> {
    let slots = schedule.next(n, session.out.now);
    if schedule.paused {
        say(format!("schedule {} is paused: these are its firings if it were resumed now", schedule.spec.name));
    }
    if matches!(session.out.format, Format::Json | Format::Jsonl) {
        return session.out.json(&wire::NextSlots { next: slots });
    }
    if slots.is_empty() {
        say("it fires no more, or only after its last job has ended");
    }
    if let (Format::Table, Timing::Cron(cron)) = (session.out.format, &schedule.spec.timing) {
        return foreseen(session, cron, &slots);
    }
    for slot in slots {
        session.out.line(match session.out.format {
            Format::Table => both(slot, session.out.now),
            _ => slot.to_string(),
        })?;
    }
    Ok(())
}

/// The firings of a cron expression with what clock changes do to them, and the next two changes.
fn foreseen(session: &Session, cron: &Cron, slots: &[Timestamp]) -> anyhow::Result<()> {
    let now = session.out.now;
    let found = firings::look(cron.expression(), cron.zone(), now, slots.len())?;
    let note = |slot: &Timestamp| found.next.iter().find(|one| one.at == *slot).and_then(|one| one.note);
    for slot in slots {
        let note = note(slot).map(|note| format!("  {}", note.words())).unwrap_or_default();
        session.out.line(format!("{}{note}", both_in_zone(*slot, now, cron.zone())))?;
    }
    for change in &found.clock_changes {
        let touched = match change.firings.is_empty() {
            true => "touches no firing".to_owned(),
            false => {
                let told = |one: &Foreseen| Some(format!("{} ({})", one.local, one.note?.words()));
                change.firings.iter().filter_map(told).collect::<Vec<_>>().join("; ")
            }
        };
        session.out.line(format!("clocks change {}: {touched}", change.local))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_becomes_of_missed_slots_is_read() {
        assert_eq!(missed("coalesce"), Ok(Missed::Coalesce));
        assert_eq!(missed("skip"), Ok(Missed::Skip));
        assert_eq!(missed("all:3"), Ok(Missed::All(3)));
        assert!(missed("all").is_err() && missed("all:x").is_err() && missed("").is_err());
    }

    proptest! {
        #[test]
        fn nothing_typed_as_missed_panics(text in "\\PC{0,20}|all:[0-9]{0,20}") {
            let _ = missed(&text);
        }
    }
}
