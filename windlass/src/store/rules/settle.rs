//! Settling: what a lease holder decided, and the children that a completion spawns.

use std::collections::HashSet;

use super::Stop;
use super::control::hold;
use super::edges::Edge;
use super::ends::{apply, end};
use super::insert::{add, plan, plan_after};
use super::priority::{heirs, inherit, raised};
use super::set::WorkingSet;
use crate::error::Error;
use crate::job::{DependencyKind, JobId, LeaseKey, Outcome, Priority, Settlement, Stale, State};
use crate::store::answer::{InsertedJob, Settled};
use crate::workflow::graph;
use crate::workflow::{Origin, Submission, SubmissionPlan};

/// Ends an attempt as its lease holder decided (L2 to L4, S6 to S14).
pub fn settle(set: &mut WorkingSet, settlement: &Settlement) -> Result<Settled, Stop> {
    let id = settlement.key().job;
    if let Err(stale) = fence(set, settlement.key())? {
        return Ok(match set.exists(id) && set.was_closed(settlement.key(), settlement.outcome())? {
            true => Settled::AlreadyApplied,
            false => Settled::Stale(stale),
        });
    }
    let children = match check_children(set, settlement) {
        Ok(children) => children,
        Err(Stop::Refused(error)) => return Ok(Settled::Refused(error)),
        Err(missing) => return Err(missing),
    };
    let cancel_asked = set.job(id).cancel.is_some();
    let state = apply(set, id, settlement.verdict(cancel_asked), settlement.outcome());
    if state == State::Completed {
        set.change(id).job.result = settlement.result().cloned();
    }
    if let Some(children) = children {
        spawn_children(set, id, &children)?;
    }
    if let Some(held) = settlement.held() {
        hold(set, id, held);
    }
    if state.is_terminal() {
        set.ended.push(id);
    }
    Ok(Settled::Applied(state))
}

/// Whether a lease holds, or why it does not (L2, L3).
pub fn fence(set: &WorkingSet, key: LeaseKey) -> Result<Result<(), Stale>, Stop> {
    let Some(entry) = set.find(key.job)? else { return Ok(Err(Stale::NotRunning)) };
    let expires_at = entry.job.lease.as_ref().map(|lease| lease.expires_at);
    let fence = set.fence_of(&entry.job);
    Ok(Stale::check(entry.job.state == State::Running, expires_at, fence, entry.token == Some(key.token)))
}

/// Refuses children that cannot be stored, and looks at everything that [`spawn_children`] needs.
fn check_children(set: &WorkingSet, settlement: &Settlement) -> Result<Option<Submission>, Stop> {
    if settlement.children().is_empty() {
        return Ok(None);
    }
    let children = Submission::new(settlement.children().to_vec())?;
    let plan = plan_after(set, &children, settlement.key().job)?;
    let joins = fan_ins(set, settlement.key().job)?;
    if !joins.is_empty() {
        let joins: Vec<JobId> = joins.into_iter().map(|(join, _)| join).collect();
        // What new children wait for among themselves leads to the same jobs in the end.
        if let Some(join) = waits_for_any(set, plan.reaches(), &joins.iter().copied().collect())? {
            return Err(Error::DependencyCycle { through: join.to_string() }.into());
        }
        look_at_heirs(set, &plan, &joins)?;
        // A child that was there before may be waited for already.
        if plan.answers().iter().any(|child| child.existing) {
            set.need_dependencies(&joins)?;
        }
    }
    Ok(Some(children))
}

/// Stops for what must be known of the jobs that follow if a child is more urgent than the FAN_INs that gain it.
fn look_at_heirs(set: &WorkingSet, plan: &SubmissionPlan<'_>, joins: &[JobId]) -> Result<(), Stop> {
    let existing = plan.answers().into_iter().filter(|child| child.existing && set.exists(child.id));
    let existing: Vec<Priority> = existing.map(|child| set.job(child.id).effective_priority()).collect();
    let Some(urgent) = plan.new_jobs().map(|new| new.priority()).chain(existing).min() else { return Ok(()) };
    let raised = joins.iter().filter_map(|join| Some((*join, raised(set.job(*join), urgent)?)));
    heirs(set, raised.collect()).map(drop)
}

/// The first of these targets that one of the starting jobs is, or waits for, however indirectly.
///
/// A spawned child that waits for a FAN_IN which is to wait for the child is a cycle.
fn waits_for_any(set: &WorkingSet, starts: Vec<JobId>, targets: &HashSet<JobId>) -> Result<Option<JobId>, Stop> {
    let mut seen: HashSet<JobId> = HashSet::new();
    let mut wave = starts;
    while !wave.is_empty() {
        if let Some(target) = wave.iter().find(|id| targets.contains(id)) {
            return Ok(Some(*target));
        }
        set.need_jobs(&wave)?;
        // A job that has ended waits for nobody, even if it ended with a dependency open.
        wave.retain(|id| seen.insert(*id) && set.is_unfinished(*id));
        set.need_dependencies(&wave)?;
        let mut next = Vec::new();
        for id in wave {
            next.extend(set.dependencies(id)?.into_iter().filter(|(_, open)| *open).map(|(edge, _)| edge.parent));
        }
        wave = next;
    }
    Ok(None)
}

/// The jobs that wait for this one and all it spawns.
///
/// One that has ended gains nothing to wait for, or it could come back by requeue to wait for itself.
fn fan_ins(set: &WorkingSet, parent: JobId) -> Result<Vec<(JobId, DependencyKind)>, Stop> {
    let joins = set.dependents(parent)?.into_iter().filter(|(edge, open)| *open && graph::is_fan_in(edge.kind));
    let waiting = joins.filter(|(edge, _)| set.job(edge.child).state == State::Pending);
    Ok(waiting.map(|(edge, _)| (edge.child, edge.kind)).collect())
}

/// Adds the children of a completed job, and lets its FAN_INs wait for them too.
fn spawn_children(set: &mut WorkingSet, parent: JobId, children: &Submission) -> Result<(), Stop> {
    let joins = fan_ins(set, parent)?;
    let job = set.job(parent);
    let origin = Origin { workflow: job.workflow_id, spawned_by: Some(parent), firing: None };
    // Planned anew: by now their parent has completed.
    let spawned = add(set, &plan(set, children)?, &origin);
    for (join, kind) in joins {
        for child in &spawned {
            gain(set, join, kind, child)?;
        }
    }
    Ok(())
}

/// Lets a FAN_IN wait for one job more.
fn gain(set: &mut WorkingSet, join: JobId, kind: DependencyKind, child: &InsertedJob) -> Result<(), Stop> {
    let edge = Edge { parent: child.id, child: join, kind };
    if !set.exists(child.id) || set.edge(edge).is_some() || set.job(join).state != State::Pending {
        return Ok(());
    }
    let job = set.job(child.id);
    let (state, cause, priority) = (job.state, job.root_cause(), job.effective_priority());
    inherit(set, join, priority)?;
    set.set_edge(edge, !state.is_terminal());
    if !state.is_terminal() {
        set.change(join).waits.all += 1;
    } else if let graph::Edge::Dies(verdict) = graph::edge(kind, state, cause) {
        end(set, join, &verdict, Outcome::Revoked);
    }
    Ok(())
}
