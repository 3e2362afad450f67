//! What happens to a job, and what its end does to the jobs that depend on it (W2, W4, X3).

use super::Stop;
use super::changes::ClosedAttempt;
use super::edges::Edge;
use super::insert::insert;
use super::set::WorkingSet;
use crate::job::{JobId, Outcome, Random, State, Verdict};
use crate::store::answer::{JobEventKind, Wake};
use crate::workflow::graph;
use crate::workflow::{Origin, Submission, webhook_of};

/// S10, S11, S14 and T1b: takes back a lease that was not settled in time; `None` if it holds or is gone.
pub fn expire(set: &mut WorkingSet, id: JobId, random: Random<'_>) -> Result<Option<State>, Stop> {
    let Some(entry) = set.find(id)? else { return Ok(None) };
    let fence = set.fence_of(&entry.job);
    let expires_at = entry.job.lease.as_ref().map(|lease| lease.expires_at);
    if entry.job.state != State::Running || expires_at.is_none_or(|expires_at| expires_at > fence) {
        return Ok(None);
    }
    let (verdict, outcome) = Verdict::of_expiry(&entry.job, random);
    Ok(Some(end(set, id, &verdict, outcome)))
}

/// S15: ends a job whose lifetime is over, in any state; says whether that was so.
pub fn outlive(set: &mut WorkingSet, id: JobId) -> Result<bool, Stop> {
    let now = set.now;
    let Some(entry) = set.find(id)? else { return Ok(false) };
    let is_over = entry.job.deadline.is_some_and(|deadline| deadline <= now) && !entry.job.state.is_terminal();
    if is_over {
        end(set, id, &Verdict::of_lifetime(), Outcome::Revoked);
    }
    Ok(is_over)
}

/// Tells the jobs that wait for these that they have completed, for a store that completes jobs without callbacks on a
/// shortcut of its own.
pub fn tell_completed(set: &mut WorkingSet, ids: &[JobId]) -> Result<(), Stop> {
    set.need_dependents(ids)?;
    ids.iter().try_for_each(|id| tell_dependents(set, *id, State::Completed, *id))
}

/// Tells the world of the ends that rules brought about: webhooks, and the jobs that wait for them, on through the graph.
///
/// [`Run::step`](super::Run::step) calls it after every rule.
pub fn tell_ends(set: &mut WorkingSet) -> Result<(), Stop> {
    while !set.ended.is_empty() {
        set.need_dependents(&set.ended)?;
        let webhooks = set.ended.iter().filter(|id| webhook_of(set.job(**id)).is_some()).count();
        set.need_identities(webhooks)?;
        for id in std::mem::take(&mut set.ended) {
            tell_end(set, id)?;
        }
    }
    Ok(())
}

/// Applies a decision; what follows from it is told by [`tell_ends`].
pub(super) fn end(set: &mut WorkingSet, id: JobId, verdict: &Verdict, outcome: Outcome) -> State {
    let ended_before = set.job(id).state.is_terminal();
    let state = apply(set, id, verdict, outcome);
    if ended_before {
        // A FAILED job that is dead-lettered: those who waited for its end have been told, but it moved.
        set.changes.events.push((id, JobEventKind::Ended(state)));
    } else if state.is_terminal() {
        set.ended.push(id);
    }
    state
}

/// Applies a decision to one job and nothing else.
pub(super) fn apply(set: &mut WorkingSet, id: JobId, verdict: &Verdict, outcome: Outcome) -> State {
    let now = set.now;
    let entry = set.change(id);
    let token = entry.token.take();
    let closed = entry.job.apply(verdict, outcome, now).expect("the core decides for the state it was shown");
    let state = entry.job.state;
    if let Some((token, attempt)) = token.zip(closed) {
        set.changes.attempts.push(ClosedAttempt { job: id, token, attempt });
    }
    state
}

/// An unfinished job that depends on this one, which must therefore be kept (O4).
pub(super) fn needed_by(set: &WorkingSet, id: JobId) -> Result<Option<JobId>, Stop> {
    let dependents = set.dependents(id)?.into_iter().map(|(edge, _)| edge.child);
    Ok(dependents.into_iter().find(|dependent| set.is_unfinished(*dependent)))
}

fn tell_end(set: &mut WorkingSet, id: JobId) -> Result<(), Stop> {
    let job = set.job(id);
    let (state, cause, webhook) = (job.state, job.root_cause(), webhook_of(job));
    tell_dependents(set, id, state, cause)?;
    if let Some(spec) = webhook {
        let submission = Submission::new(vec![spec]).expect("one job is a batch");
        insert(set, &submission, &Origin::default())?;
    }
    Ok(())
}

fn tell_dependents(set: &mut WorkingSet, id: JobId, state: State, cause: JobId) -> Result<(), Stop> {
    let open: Vec<Edge> = set.dependents(id)?.into_iter().filter(|(_, open)| *open).map(|(edge, _)| edge).collect();
    set.changes.events.push((id, JobEventKind::Ended(state)));
    set.wake(Wake::Ended(id));
    for told in open.chunk_by(|one, next| one.child == next.child) {
        tell(set, told, state, cause);
    }
    Ok(())
}

/// Tells a dependent that a job it waits for has ended; `told` are the open edges between the two.
fn tell(set: &mut WorkingSet, told: &[Edge], state: State, cause: JobId) {
    let now = set.now;
    for edge in told {
        set.set_edge(*edge, false);
    }
    let dependent = told[0].child;
    if set.job(dependent).state != State::Pending {
        return;
    }
    let entry = set.change(dependent);
    let mut death = None;
    for edge in told {
        match graph::edge(edge.kind, state, cause) {
            graph::Edge::Met => entry.waits.all = entry.waits.all.saturating_sub(1),
            graph::Edge::AnyMet => entry.waits.any = false,
            graph::Edge::Dies(verdict) => death = Some(verdict),
        }
    }
    match death {
        Some(verdict) => {
            end(set, dependent, &verdict, Outcome::Revoked);
        }
        None if entry.waits.is_over() => entry.job.dependencies_met(now).expect("it is PENDING"),
        None => {}
    }
}
