//! `windlass jobs explain`: where a job stands, why it is not running, what happens next, what to do.

use std::time::Duration;

use windlass::job::{Explanation, JobRecord, Reason, ReasonKind, Why};
use windlass::{JobId, State, Timestamp};

use crate::cli::connect::Session;
use crate::cli::rows::failure;
use crate::cli::table::{both, clean, jobs, relative};
use crate::wire;

/// Upkeep runs about once a second; what it has not seen to after this long, it will not.
const UPKEEP_LATE: Duration = Duration::from_secs(10);
/// How many of the jobs that are waited for are named.
const NAMED_MAX: usize = 5;

/// What there is to say, by heading.
#[derive(Debug, Default)]
struct Words {
    why: Vec<String>,
    next: Vec<String>,
    /// A command, and what it is good for.
    todo: Vec<(String, &'static str)>,
}

pub(super) async fn run(session: &Session, id: JobId) -> anyhow::Result<()> {
    let explanation = session.client.explain(id).await?;
    if !session.out.is_table() {
        return session.out.json(&wire::Explanation::from(&explanation));
    }
    let job = session.client.job(id).await?;
    let words = words(session, &explanation, &job).await?;
    Ok(session.out.line(text(&explanation, &job, session.out.now, &words))?)
}

/// The first reason why a job has not started, with what to do about it; `None` where it runs or nothing is known.
pub(crate) async fn first_reason(session: &Session, id: JobId) -> Option<String> {
    let explanation = session.client.explain(id).await.ok()?;
    let job = session.client.job(id).await.ok()?;
    if explanation.state == State::Running || explanation.state.is_terminal() {
        return None;
    }
    let words = words(session, &explanation, &job).await.ok()?;
    let why = words.why.first()?;
    let todo = words.todo.first().map(|(command, good_for)| format!("\n  → {command}  ({good_for})"));
    Some(format!("it has not started: {why}{}", todo.unwrap_or_default()))
}

async fn words(session: &Session, explanation: &Explanation, job: &JobRecord) -> anyhow::Result<Words> {
    let mut words = Words::default();
    for why in &explanation.reasons {
        say(why, job, session.out.now, &mut words);
        if let Why::WaitsFor { jobs } = why {
            name(session, jobs, &mut words).await?;
        }
    }
    Ok(words)
}

fn text(explanation: &Explanation, job: &JobRecord, now: Timestamp, words: &Words) -> String {
    let (id, state, spec) = (explanation.job, explanation.state, &job.spec);
    let created = relative(job.created_at, now);
    let mut text = format!("Job {id} is {state}: {} in queue {}, created {created}.\n", spec.job_type, spec.queue);
    let heading = match state {
        State::Running => "How it stands",
        state if state.is_terminal() => "How it ended",
        _ => "Why it is not running",
    };
    let nothing = ["Nothing stands in its way: the next free worker takes it.".to_owned()];
    let why = if words.why.is_empty() { &nothing[..] } else { &words.why };
    for (heading, lines) in [(heading, why), ("What happens next", &words.next)] {
        if !lines.is_empty() {
            text.push_str(&format!("\n{heading}\n"));
            lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
    }
    if !words.todo.is_empty() {
        text.push_str("\nWhat you can do\n");
        let width = words.todo.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
        for (command, good_for) in &words.todo {
            text.push_str(&format!("  {command:width$}  {good_for}\n"));
        }
    }
    text.trim_end().to_owned()
}

fn say(why: &Why, job: &JobRecord, now: Timestamp, words: &mut Words) {
    match why {
        Why::Running { .. } | Why::LeaseExpired { .. } | Why::CancelAsked => running(why, job, now, words),
        Why::Ended { state, because } => ended(*state, because.as_ref(), job, now, words),
        Why::LifetimeOver { deadline } => {
            words.why.push(format!("Its lifetime ended {}.", both(*deadline, now)));
            words.next.push("Upkeep sends it to the dead-letter queue.".to_owned());
            late(*deadline, now, words);
        }
        _ => waiting(why, job, now, words),
    }
}

fn running(why: &Why, job: &JobRecord, now: Timestamp, words: &mut Words) {
    let id = job.id;
    match why {
        Why::Running { worker, expires_at } => {
            let since = job.started_at.map_or_else(String::new, |at| format!(", started {}", relative(at, now)));
            let (attempt, of) = (job.attempt, job.spec.options.retry.max_attempts);
            words
                .why
                .push(format!("Worker {worker} runs it{since}: attempt {attempt}, {} of {of} failed.", job.failures));
            words.next.push(format!("Its lease ends {} unless the worker renews it.", both(*expires_at, now)));
            words.next.push("If the worker dies, another one takes the job when the lease has ended.".to_owned());
            words.todo.push((format!("windlass jobs watch {id}"), "follow it"));
            words.todo.push((format!("windlass jobs cancel {id}"), "ask it to stop"));
        }
        Why::LeaseExpired { expired_at } => {
            let worker = job.lease.as_ref().map_or("its worker", |lease| lease.worker.as_str());
            words
                .why
                .push(format!("Worker {worker} was not heard of in time: its lease ended {}.", both(*expired_at, now)));
            words.next.push("Upkeep gives it to another worker, or ends it if that was its last attempt.".to_owned());
            late(*expired_at, now, words);
        }
        _ => {
            let at = job.cancel.as_ref().map_or_else(String::new, |asked| format!(" {}", relative(asked.at, now)));
            words.why.push(format!("Its worker was asked{at} to stop."));
            words.next.push("It ends CANCELLED, unless its handler succeeds first.".to_owned());
            words.todo.push((format!("windlass jobs cancel {id} --force"), "take it away from the worker at once"));
        }
    }
}

/// What upkeep should have done long ago.
fn late(since: Timestamp, now: Timestamp, words: &mut Words) {
    if now.since(since) > UPKEEP_LATE {
        words
            .next
            .push("That should have happened within seconds: no worker or server seems to run upkeep.".to_owned());
        words.todo.push(("windlass run".to_owned(), "runs upkeep, as every worker does"));
        words.todo.push(("windlass doctor".to_owned(), "looks for what else is wrong"));
    }
}

fn waiting(why: &Why, job: &JobRecord, now: Timestamp, words: &mut Words) {
    let (id, queue) = (job.id, &job.spec.queue);
    match why {
        Why::Damaged { damage } => {
            words.why.push(format!("Its row is damaged: {}.", clean(damage)));
            words
                .next
                .push("The claim that meets it sends it to the dead-letter queue; nothing of it is lost.".to_owned());
            words.todo.push(("windlass store check".to_owned(), "list every damaged row"));
        }
        Why::Paused { queue } => {
            words.why.push(format!("Queue {queue} is paused: nothing in it is started."));
            words.todo.push((format!("windlass queues resume {queue}"), "start jobs of this queue again"));
        }
        Why::DelayedUntil { run_at } => {
            words.why.push("It is meant to run later.".to_owned());
            words.next.push(format!("It may start {}.", both(*run_at, now)));
        }
        Why::BackingOffUntil { run_at } => {
            let (failures, of) = (job.failures, job.spec.options.retry.max_attempts);
            let failed = clean(&failure(job.failure.as_ref(), true));
            words.why.push(format!("It failed ({failures} of {of} tries): {failed}"));
            words.next.push(format!("It is tried again {}.", both(*run_at, now)));
            words.todo.push((format!("windlass jobs attempts {id}"), "see what went wrong each time"));
        }
        Why::WaitsFor { jobs: on } => {
            words.why.push(format!("It waits for {} to end.", jobs(on.len() as u64)));
            words.next.push("It starts when they have ended as it needs them to.".to_owned());
        }
        Why::NoWorkerForQueue { queue } => {
            words.why.push(format!("No live worker serves queue {queue}."));
            words.todo.push((format!("windlass worker --queue {queue} --exec CMD"), "start one, or your own program"));
            words.todo.push(("windlass workers list".to_owned(), "see which workers live"));
        }
        Why::NoWorkerForType { job_type } => {
            words.why.push(format!("Workers serve queue {queue}, but none has a handler for type {job_type}."));
            words.todo.push(("windlass workers list -o wide".to_owned(), "see which types they know"));
        }
        Why::LimitReached { workers } => {
            words.why.push(format!("All slots of the {workers} workers that could run it are busy."));
            words.next.push("It starts when one of their slots is free and its turn has come.".to_owned());
            words.todo.push(("windlass top".to_owned(), "see what they are busy with; add workers if it stays so"));
        }
        Why::JobsAhead { jobs: ahead, capped } => {
            let at_least = if *capped { "At least " } else { "" };
            let come = if *ahead == 1 && !capped { "comes" } else { "come" };
            words.why.push(format!("{at_least}{} of queue {queue} {come} first.", jobs(*ahead as u64)));
            words.todo.push((format!("windlass jobs edit {id} --priority high"), "let it go before ordinary jobs"));
        }
        Why::KeyJobsAhead { key, jobs: ahead, capped } => {
            let at_least = if *capped { "At least " } else { "" };
            let come = if *ahead == 1 && !capped { "comes" } else { "come" };
            let of = if key.is_empty() { "without a key".to_owned() } else { format!("of key {}", clean(key)) };
            words.why.push(format!("{at_least}{} {of} {come} first.", jobs(*ahead as u64)));
        }
        Why::KeysAhead { keys, capped } => {
            let at_least = if *capped { "at least " } else { "" };
            let keys = if *keys == 1 { "one other key".to_owned() } else { format!("{keys} other keys") };
            words.why.push(format!("It is the turn of {at_least}{keys} first."));
        }
        other => words.why.push(format!("It is so that {other}.")),
    }
}

fn ended(state: State, because: Option<&Reason>, job: &JobRecord, now: Timestamp, words: &mut Words) {
    let at = job.completed_at.map_or_else(String::new, |at| format!(" {}", both(at, now)));
    let failed = clean(&failure(job.failure.as_ref(), true));
    let by =
        because.and_then(|reason| reason.by.as_deref()).map_or_else(String::new, |by| format!(" by {}", clean(by)));
    let said = because.and_then(|reason| reason.message.as_deref());
    let said = said.map_or_else(String::new, |said| format!(": {}", clean(said)));
    let id = job.id;
    match state {
        State::Completed => words.why.push(format!("It completed{at}.")),
        State::Cancelled if because.is_some_and(|reason| reason.kind == ReasonKind::Replaced) => {
            words.why.push(format!("A newer submission with its key took its place{at}, before it was claimed."));
            words.next.push("Nothing: a cancelled job stays so.".to_owned());
            if let Some(newer) = because.and_then(|reason| reason.cause) {
                words.todo.push((format!("windlass jobs get {newer}"), "see the job in its place"));
            }
        }
        State::Cancelled => {
            words.why.push(format!("It was cancelled{by}{at}{said}."));
            words.next.push("Nothing: a cancelled job stays so.".to_owned());
            words.todo.push((format!("windlass jobs clone {id}"), "run the same work as a new job"));
        }
        _ => {
            let how = match because.map(|reason| reason.kind) {
                Some(ReasonKind::Permanent) => "its failure is of a kind that is not tried again",
                Some(ReasonKind::Exhausted) => "all its attempts are used up",
                Some(ReasonKind::Lifetime) => "it did not end within its lifetime",
                Some(ReasonKind::Dependency) => "a job it depends on ended badly",
                Some(ReasonKind::Explicit) => "it was dead-lettered on purpose",
                _ => "it is not recorded why",
            };
            words.why.push(format!("It ended {state}{at}: {how}{by}{said}."));
            words.why.extend(Some(format!("Last failure: {failed}")).filter(|_| !failed.is_empty()));
            words.next.push("Nothing: it stays in the dead-letter queue until it is requeued or deleted.".to_owned());
            match because.and_then(|reason| reason.cause) {
                Some(cause) => {
                    words.todo.push((format!("windlass jobs explain {cause}"), "see the job it began with"));
                    let command = format!("windlass jobs requeue {cause} --with-dependents");
                    words.todo.push((command, "send that one back, and this one with it"));
                }
                None => {
                    words.todo.push((format!("windlass jobs attempts {id}"), "see what went wrong each time"));
                    words.todo.push((format!("windlass jobs requeue {id}"), "send it back once the cause is fixed"));
                }
            }
        }
    }
}

/// Names the first of the jobs that are waited for, with their states.
async fn name(session: &Session, waited_for: &[JobId], words: &mut Words) -> anyhow::Result<()> {
    let first = &waited_for[..waited_for.len().min(NAMED_MAX)];
    for job in session.store().find(first).await?.into_iter().flatten() {
        words.why.push(format!("  {} {} {}", job.id, job.state, job.spec.job_type));
        if words.todo.len() < NAMED_MAX {
            words.todo.push((format!("windlass jobs explain {}", job.id), "see why that one has not ended"));
        }
    }
    if waited_for.len() > first.len() {
        words.why.push(format!("  and {} more", waited_for.len() - first.len()));
    }
    Ok(())
}
