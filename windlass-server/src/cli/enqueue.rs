//! `windlass enqueue`: one job from the command line, or many from a file.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use windlass::job::DependencyKind;
use windlass::store::InsertedJob;
use windlass::workflow::{Submission, Webhook};
use windlass::{Job, JobId, Timestamp};

use super::connect::{Reach, Session};
use super::enqueue_file;
use super::exit::End;
use super::ids::{self, Typed};
use super::job_args::{JobArgs, UniqueArgs};
use super::output::{OutputArgs, Row, say};
use super::parse;
use super::table::Cell;
use super::wait;
use crate::api::UNDELIVERED;
use crate::wire;

/// What `windlass enqueue` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass enqueue email.send --payload '{\"to\":\"ada@example.com\"}'
  windlass enqueue save --payload '{\"page\":7}' --unique-by /page --debounce 30s --at-most 5m
  windlass enqueue --file jobs.jsonl        one JSON job a line: {\"type\":\"email.send\",\"payload\":{}}")]
pub(crate) struct Arguments {
    /// Which handler it is for
    #[arg(value_name = "TYPE", required_unless_present = "file")]
    job_type: Option<String>,
    #[command(flatten)]
    job: JobArgs,
    /// Not before this time, such as 2026-11-01T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse::moment, conflicts_with = "delay")]
    run_at: Option<Timestamp>,
    /// Not before this long from now, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    delay: Option<Duration>,
    #[command(flatten)]
    unique: UniqueArgs,
    /// Only after this job completed; may be repeated
    #[arg(long, value_name = "ID")]
    after: Vec<Typed<JobId>>,
    /// Only after this job ended, however; may be repeated
    #[arg(long, value_name = "ID")]
    after_all: Vec<Typed<JobId>>,
    /// Wait until it has ended, perhaps no longer than this
    #[arg(long, value_name = "DURATION", require_equals = true, value_parser = parse::duration)]
    wait: Option<Option<Duration>>,
    /// Enqueue the jobs of a JSONL file, or of `jobs export`; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["job_type", "payload", "wait"], help_heading = "Many at once")]
    file: Option<PathBuf>,
    #[command(flatten)]
    many: enqueue_file::ManyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(reach: &Reach, arguments: Arguments) -> anyhow::Result<()> {
    let session = reach.open_or_make(&arguments.output).await?;
    match (&arguments.file, &arguments.job_type) {
        (Some(file), _) => enqueue_file::run(&session, file, &arguments.many).await,
        (None, Some(job_type)) => one(&session, &arguments, job_type).await,
        (None, None) => Err(End::usage("nothing to enqueue was named")
            .advise("name a type, such as `windlass enqueue email.send`, or a file of jobs with --file")
            .into()),
    }
}

async fn one(session: &Session, arguments: &Arguments, job_type: &str) -> anyhow::Result<()> {
    let mut job = arguments.job.job(job_type)?;
    job.run_at = arguments.run_at;
    job.delay = arguments.delay.map(wire::Span);
    arguments.unique.apply(&mut job);
    let on = |ids: &[JobId], kind| -> Vec<wire::Dependency> {
        ids.iter().map(|id| wire::Dependency { job: Some(*id), reference: None, kind }).collect()
    };
    job.depends_on = on(&ids::jobs(session, &arguments.after).await?, DependencyKind::After);
    job.depends_on.extend(on(&ids::jobs(session, &arguments.after_all).await?, DependencyKind::AfterAll));
    let specs = wire::check_jobs(vec![job], &session.client)?;
    let stored = session.client.submit(Submission::new(specs)?).await?;
    let inserted = *stored.jobs.first().expect("a store answers for each job");
    tell_existing(&inserted);
    if arguments.job.callback_url.is_some() {
        tell_undelivered(session).await?;
    }
    let Some(limit) = arguments.wait else { return session.out.one(&Stored(inserted)) };
    // A caller that stops waiting must know which job to look for.
    say(format!("job {} is enqueued; waiting until it has ended", inserted.id));
    let ended = wait::until_ended(session, &[inserted.id], limit).await?;
    wait::print(session, &ended)
}

/// Says that the end of a job will be told to nobody, as things stand.
async fn tell_undelivered(session: &Session) -> anyhow::Result<()> {
    let workers = session.client.workers().await?;
    let mut served = workers.iter().flat_map(|worker| &worker.queues);
    if !served.any(|served| served.queue.as_str() == Webhook::QUEUE) {
        say(format!("the callback waits: {UNDELIVERED}"));
    }
    Ok(())
}

/// Says that nothing was stored, and whether it should have been the same.
fn tell_existing(inserted: &InsertedJob) {
    if !inserted.existing {
        return;
    }
    let id = inserted.id;
    match inserted.matches {
        true => say(format!("the key is known: job {id} was enqueued before, nothing was stored")),
        false => say(format!("the key is known, but job {id} has another type or payload; nothing was stored")),
    }
}

/// A job that was just stored.
#[derive(Debug)]
pub(crate) struct Stored(pub(crate) InsertedJob);

impl Row for Stored {
    fn headings(_: bool) -> Vec<&'static str> {
        vec!["ID", "STATE", "EXISTING"]
    }

    fn cells(&self, _: bool, _: Timestamp) -> Vec<Cell> {
        let state = self.0.state.map_or(Cell::new("pruned"), Cell::state);
        vec![Cell::new(self.0.id.to_string()), state, Cell::new(if self.0.existing { "yes" } else { "no" })]
    }

    fn id(&self) -> String {
        self.0.id.to_string()
    }

    fn wire(&self) -> impl Serialize {
        wire::Inserted::from(self.0)
    }
}
