//! Sending dead jobs back, alone or with the dependents that died of them (S16, W7).

use std::collections::HashSet;

use super::Stop;
use super::edges::Edge;
use super::set::WorkingSet;
use crate::job::{DependencyKind, DependsOn, JobId, ReasonKind, RequeueOptions};
use crate::workflow::graph::Waits;

pub(super) fn requeue(set: &mut WorkingSet, id: JobId, options: &RequeueOptions, dry_run: bool) -> Result<(), Stop> {
    // On a copy first: what is refused must change nothing.
    set.job(id).clone().requeue(options, false, set.now)?;
    if dry_run {
        return Ok(());
    }
    let mut back = vec![id];
    if options.with_dependents {
        back.extend(died_of(set, id)?);
    }
    set.need_dependencies(&back)?;
    let along: HashSet<JobId> = back[1..].iter().copied().collect();
    requeue_one(set, id, options, &HashSet::new())?;
    let plain = RequeueOptions { run_at: None, ..*options };
    for dependent in &back[1..] {
        requeue_one(set, *dependent, &plain, &along)?;
    }
    Ok(())
}

/// Sends one job back; it waits for its unfinished dependencies, and for those that come `along` with it.
fn requeue_one(set: &mut WorkingSet, id: JobId, options: &RequeueOptions, along: &HashSet<JobId>) -> Result<(), Stop> {
    let now = set.now;
    let mut kinds: Vec<(DependencyKind, bool)> = Vec::new();
    for edge in all_dependencies(set, id)? {
        let waits = set.is_unfinished(edge.parent) || along.contains(&edge.parent);
        kinds.push((edge.kind, waits));
        if set.edge(edge).is_some() {
            set.set_edge(edge, waits);
        }
    }
    let waits = Waits::of(&kinds);
    let entry = set.change(id);
    entry.waits = waits;
    Ok(entry.job.requeue(options, !waits.is_over(), now)?)
}

/// What a job depends on: what stores keep, and what was submitted. The edge to a pruned job is gone, but the job ended,
/// and that may be all its dependent waits for.
fn all_dependencies(set: &WorkingSet, id: JobId) -> Result<Vec<Edge>, Stop> {
    let mut edges: Vec<Edge> = set.dependencies(id)?.into_iter().map(|(edge, _)| edge).collect();
    let kept: HashSet<Edge> = edges.iter().copied().collect();
    for dependency in &set.job(id).spec.depends_on {
        let DependsOn::Job(parent) = dependency.on else { continue };
        let edge = Edge { parent, child: id, kind: dependency.kind };
        if !kept.contains(&edge) {
            edges.push(edge);
        }
    }
    Ok(edges)
}

/// The jobs that died of this one, however far down the graph.
fn died_of(set: &WorkingSet, cause: JobId) -> Result<Vec<JobId>, Stop> {
    let mut seen = HashSet::from([cause]);
    let mut found = Vec::new();
    let mut wave = vec![cause];
    while !wave.is_empty() {
        set.need_dependents(&wave)?;
        let mut next = Vec::new();
        for id in wave {
            for (edge, _) in set.dependents(id)? {
                let job = set.job(edge.child);
                let reason = job.reason.as_ref();
                let died =
                    reason.is_some_and(|reason| reason.kind == ReasonKind::Dependency && reason.cause == Some(cause));
                if job.state.is_dead() && died && seen.insert(edge.child) {
                    next.push(edge.child);
                }
            }
        }
        found.extend(&next);
        wave = next;
    }
    Ok(found)
}
