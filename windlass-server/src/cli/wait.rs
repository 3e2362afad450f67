//! Waiting for jobs to end, and telling how they did.

use std::time::Duration;

use indicatif::ProgressBar;
use windlass::job::JobRecord;
use windlass::{JobId, State};

use super::connect::Session;
use super::exit::{End, Exit};
use super::jobs::first_reason;
use super::output::{Format, say};
use super::rows;
use super::table::span;

/// How often the line on the terminal tells anew where a job stands.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// After this many looks a job that has not started probably waits for something: the command then says for what.
const PATIENCE: u32 = 2;

/// Waits until all these jobs have ended, no longer than `limit`; gives them in order.
pub(crate) async fn until_ended(
    session: &Session,
    ids: &[JobId],
    limit: Option<Duration>,
) -> anyhow::Result<Vec<JobRecord>> {
    let deadline = limit.map(|limit| tokio::time::Instant::now() + limit);
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(Duration::from_millis(200));
    let mut ended = Vec::with_capacity(ids.len());
    for id in ids {
        let job = one(session, *id, deadline, &spinner).await;
        match job {
            Ok(Some(job)) => ended.push(job),
            Ok(None) => {
                spinner.finish_and_clear();
                return Err(timed_out(session, *id, limit.unwrap_or_default()).await);
            }
            Err(error) => {
                spinner.finish_and_clear();
                return Err(error.into());
            }
        }
    }
    spinner.finish_and_clear();
    Ok(ended)
}

/// Waits for one job; `None` when the deadline came first.
async fn one(
    session: &Session,
    id: JobId,
    deadline: Option<tokio::time::Instant>,
    spinner: &ProgressBar,
) -> windlass::Result<Option<JobRecord>> {
    let wait = session.client.wait(id);
    tokio::pin!(wait);
    for told in 1u32.. {
        let next = tokio::time::Instant::now() + TOLD_EVERY;
        let until = deadline.map_or(next, |deadline| deadline.min(next));
        if let Ok(job) = tokio::time::timeout_at(until, &mut wait).await {
            return job.map(Some);
        }
        if deadline.is_some_and(|deadline| tokio::time::Instant::now() >= deadline) {
            return Ok(None);
        }
        if told == PATIENCE
            && let Some(reason) = first_reason(session, id).await
        {
            spinner.suspend(|| say(reason));
        }
        if !spinner.is_hidden()
            && let Some(job) = session.client.find(id).await?
        {
            let now = session.store().now().await?;
            spinner.set_message(format!("job {id} is {} {}", job.state, rows::note(&job, false, now)));
        }
    }
    Ok(None)
}

async fn timed_out(session: &Session, id: JobId, limit: Duration) -> anyhow::Error {
    let state = match session.client.find(id).await {
        Ok(Some(job)) => job.state.to_string(),
        Ok(None) | Err(_) => "unfinished".to_owned(),
    };
    End::new(Exit::TimedOut, format!("job {id} is still {state} after {}", span(limit)))
        .advise(format!("`windlass jobs explain {id}` says what it waits for; it goes on meanwhile"))
        .into()
}

/// Prints jobs that have ended; the end is ours too when one ended badly.
pub(crate) fn print(session: &Session, ended: &[JobRecord]) -> anyhow::Result<()> {
    let out = &session.out;
    match (out.format, ended) {
        (Format::Json | Format::Jsonl | Format::Id, jobs) => jobs.iter().try_for_each(|job| out.one(job))?,
        (Format::Table | Format::Wide, jobs) => out.table(jobs, true)?,
    }
    if let ([job], true) = (ended, out.is_table())
        && let Some(result) = &job.result
    {
        out.line(format!("result: {}", super::detail::data(result, out.is_wide())))?;
    }
    match ended.iter().find(|job| job.state != State::Completed) {
        None => Ok(()),
        Some(bad) => Err(ended_badly(bad)),
    }
}

/// The end of a command that waited for a job which ended otherwise than COMPLETED.
pub(crate) fn ended_badly(job: &JobRecord) -> anyhow::Error {
    let why = rows::failure(job.failure.as_ref(), true);
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let (id, state) = (job.id, job.state);
    let again = if state == State::Cancelled { "clone" } else { "requeue" };
    let advice = format!("`windlass jobs attempts {id}` shows its history, `windlass jobs {again} {id}` runs it again");
    End::new(Exit::EndedBadly, format!("job {id} ended {state}{why}")).advise(advice).into()
}
