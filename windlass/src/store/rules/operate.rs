//! Operators' acts on jobs and queues.

use std::collections::HashMap;

use super::Stop;
use super::ends::{end, needed_by};
use super::priority::{Heirs, heirs, pass_on};
use super::requeue::requeue;
use super::set::WorkingSet;
use crate::clock::Absence;
use crate::error::Error;
use crate::flow::ControlEdit;
use crate::job::{CancelAsked, CancelVerdict, JobId, Outcome, Verdict};
use crate::store::answer::{ActRecord, Wake, WorkerRecord, describe};
use crate::store::request::{Act, Edit, Operation, Target, WORKER_LIVE, WorkerEdit};
use crate::time::Timestamp;

/// Does to one job what the operation asks, or only sees whether it could (O2).
pub fn act_on(set: &mut WorkingSet, id: JobId, operation: &Operation) -> Result<(), Stop> {
    let job = &set.find(id)?.ok_or_else(|| Error::no_such_job(id))?.job;
    let (by, why, dry_run) = (operation.by.as_deref(), operation.why.as_str(), operation.dry_run);
    match &operation.act {
        Act::Cancel { force } => match Verdict::of_cancel(job, *force, by, why)? {
            _ if dry_run => {}
            CancelVerdict::Ask => ask_to_stop(set, id, CancelAsked::new(by, why, set.now)),
            CancelVerdict::Now(verdict) => {
                end(set, id, &verdict, Outcome::Revoked);
            }
        },
        Act::DeadLetter => {
            let verdict = Verdict::of_operator_dead_letter(job, by, why)?;
            if !dry_run {
                end(set, id, &verdict, Outcome::Revoked);
            }
        }
        Act::Requeue(options) => requeue(set, id, options, dry_run)?,
        Act::Delete => delete(set, id, dry_run)?,
        Act::Edit(edit) => {
            edit.allowed(job)?;
            if !dry_run {
                change(set, id, edit)?;
            }
        }
    }
    Ok(())
}

/// What is recorded of an operation that changed `changed` jobs; nothing of a dry run, or of one that changed none.
pub fn act_of(operation: &Operation, changed: u64, now: Timestamp) -> Option<ActRecord> {
    if operation.dry_run || changed == 0 {
        return None;
    }
    let target = match &operation.target {
        Target::Jobs(ids) => match ids.as_slice() {
            [id] => format!("job {id}"),
            ids => format!("{} jobs", ids.len()),
        },
        Target::Matching { filter, .. } => describe(filter),
    };
    let why = Some(operation.why.clone()).filter(|why| !why.is_empty());
    let (by, act) = (operation.by.clone(), operation.act.name().to_owned());
    Some(ActRecord { at: now, by, act, target, changed, why }.kept())
}

/// What is recorded of an absence of the store (D6b), for operators who wonder why leases held for longer.
pub fn absence(absence: &Absence) -> ActRecord {
    let Absence { from, back_at, grace_until } = absence;
    let (act, target) = ("absence".to_owned(), format!("the store, away from {from}"));
    let why = Some(format!("leases that ran out meanwhile hold until {grace_until}"));
    ActRecord { at: *back_at, by: None, act, target, changed: 1, why }
}

/// What is recorded of a leap of the clock (L8): by how many microseconds it was set ahead, what is added to it from now on.
pub fn leap(leap: i64, skew: i64, now: Timestamp) -> ActRecord {
    let seconds = |micros: i64| micros.unsigned_abs() / 1_000_000;
    let way = if leap > 0 { "ahead" } else { "back" };
    let target = format!("the server's clock, set {way} by {} s", seconds(leap));
    let sign = if skew < 0 { "minus" } else { "plus" };
    let why = Some(format!("the store's time goes on: the clock {sign} {} s, until both agree", seconds(skew)));
    ActRecord { at: now, by: None, act: "leap".to_owned(), target, changed: 1, why }
}

/// What is recorded of a queue that was paused or resumed, and the hint to send with it (O3).
///
/// That of a resume says that the queue may have a job to claim; whether it has is for the claim to find out.
pub fn paused(edit: &ControlEdit, paused: bool, by: Option<&str>, now: Timestamp) -> (ActRecord, Wake) {
    let (queue, why) = (&edit.queue, edit.why.clone());
    let (act, target) = (if paused { "pause" } else { "resume" }.to_owned(), format!("queue {queue}"));
    let act = ActRecord { at: now, by: by.map(str::to_owned), act, target, changed: 1, why }.kept();
    (act, if paused { Wake::Paused(queue.clone()) } else { Wake::Scheduled(queue.clone()) })
}

/// The record of a word to a worker (O3) and the hint for it, if it changes anything. Nobody can talk to a worker that does not live.
pub fn told(
    known: Option<&WorkerRecord>,
    edit: &WorkerEdit,
    by: Option<&str>,
    now: Timestamp,
) -> Result<Option<(ActRecord, Wake)>, Error> {
    let live = |known: &&WorkerRecord| !known.queues.is_empty() && now.since(known.seen_at) <= WORKER_LIVE;
    let known = known.filter(live).ok_or_else(|| Error::not_found("worker", edit.worker.as_str()))?;
    if known.draining == edit.draining {
        return Ok(None);
    }
    let (act, target) = (if edit.draining { "drain" } else { "resume" }.to_owned(), format!("worker {}", edit.worker));
    let (by, why) = (by.map(str::to_owned), edit.why.clone());
    let act = ActRecord { at: now, by, act, target, changed: 1, why }.kept();
    Ok(Some((act, Wake::Told(edit.worker.clone()))))
}

/// Changes what may be changed; a new priority reaches the jobs that wait for this one.
fn change(set: &mut WorkingSet, id: JobId, edit: &Edit) -> Result<(), Stop> {
    let mut job = set.job(id).clone();
    edit.apply(&mut job);
    let priority = job.effective_priority();
    let heirs = match priority == set.job(id).effective_priority() {
        true => Heirs::new(),
        false => heirs(set, HashMap::from([(id, priority)]))?,
    };
    set.change(id).job = job;
    pass_on(set, heirs);
    Ok(())
}

fn ask_to_stop(set: &mut WorkingSet, id: JobId, asked: CancelAsked) {
    set.change(id).job.cancel.get_or_insert(asked);
    set.wake(Wake::CancelAsked(id));
}

fn delete(set: &mut WorkingSet, id: JobId, dry_run: bool) -> Result<(), Stop> {
    let state = set.job(id).state;
    if !state.is_terminal() {
        return Err(Error::IllegalState { job: id, state, wanted: "delete" }.into());
    }
    if let Some(needed_by) = needed_by(set, id)? {
        return Err(Error::Conflict(format!("job {id} is needed by unfinished job {needed_by}")).into());
    }
    if !dry_run {
        set.remove(id);
    }
    Ok(())
}
