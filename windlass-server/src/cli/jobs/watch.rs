//! `windlass jobs watch`: a job until it ends, or all jobs as they come and go.

use std::time::Duration;

use clap::Args;
use windlass::job::JobRecord;
use windlass::store::{JobEvent, JobEventKind};
use windlass::{JobId, JobType, QueueName, State};

use crate::cli::connect::Session;
use crate::cli::ids::{self, Typed};
use crate::cli::output::{Format, say};
use crate::cli::parse;
use crate::cli::rows::note;
use crate::cli::wait::ended_badly;
use crate::wire;

/// How often a job is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Args)]
pub(super) struct Arguments {
    /// This job; all jobs unless named
    #[arg(value_name = "ID")]
    id: Option<Typed<JobId>>,
    /// Only jobs in this queue
    #[arg(short, long, value_name = "QUEUE", value_parser = parse::queue, conflicts_with = "id")]
    queue: Option<QueueName>,
    /// Only jobs of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = parse::job_type, conflicts_with = "id")]
    job_type: Option<JobType>,
    /// Stop after N lines
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "id")]
    count: Option<u64>,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.id {
        Some(id) => one(session, ids::job(session, id).await?).await,
        None => all(session, arguments).await,
    }
}

/// Prints a job whenever it has changed, until it has ended.
async fn one(session: &Session, id: JobId) -> anyhow::Result<()> {
    let mut last: Option<JobRecord> = None;
    loop {
        let job = session.client.job(id).await?;
        if last.as_ref().is_none_or(|last| changed(last, &job)) {
            match session.out.is_table() {
                false => session.out.line(serde_json::to_string(&wire::Job::from(&job))?)?,
                true => {
                    let now = session.store().now().await?;
                    let at = crate::cli::table::to_the_second(now);
                    let (attempt, note) = (job.attempt, note(&job, session.out.is_wide(), now));
                    let line =
                        format!("{at}  {:<11}  attempt {attempt}  {}", job.state, crate::cli::table::clean(&note));
                    session.out.line(line.trim_end())?;
                }
            }
        }
        if job.state.is_terminal() {
            return if job.state == State::Completed { Ok(()) } else { Err(ended_badly(&job)) };
        }
        last = Some(job);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn changed(last: &JobRecord, job: &JobRecord) -> bool {
    let seen = |job: &JobRecord| (job.state, job.attempt, job.generation, job.progress.clone(), job.cancel.is_some());
    seen(last) != seen(job)
}

async fn all(session: &Session, arguments: &Arguments) -> anyhow::Result<()> {
    let mut events = session.client.events(None).await?;
    if session.out.is_table() {
        say("jobs as they come and go; Ctrl-C stops");
    }
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = events.next().await?;
        let wanted = arguments.queue.as_ref().is_none_or(|queue| *queue == event.queue)
            && arguments.job_type.as_ref().is_none_or(|job_type| *job_type == event.job_type);
        if wanted {
            print(session, &event)?;
            left -= 1;
        }
    }
    Ok(())
}

fn print(session: &Session, event: &JobEvent) -> anyhow::Result<()> {
    match session.out.format {
        Format::Id => session.out.line(event.job.to_string())?,
        Format::Json | Format::Jsonl => session.out.line(serde_json::to_string(&wire::Event::from(event))?)?,
        Format::Table | Format::Wide => {
            let what = match event.kind {
                JobEventKind::Enqueued => "enqueued".to_owned(),
                JobEventKind::Ended(state) => state.to_string(),
            };
            let JobEvent { at, job, queue, job_type, .. } = event;
            let at = crate::cli::table::to_the_second(*at);
            session.out.line(format!("{at}  {what:<11}  {job}  {queue}  {job_type}"))?;
        }
    }
    Ok(())
}
