//! Storing a submission: first everything is looked at, then everything is added, so that a refusal changes nothing.

use super::Stop;
use super::depth::depths;
use super::edges::Edge;
use super::ends::end;
use super::set::{Entry, WorkingSet};
use crate::error::{Error, Result};
use crate::job::{JobId, Outcome, State, Verdict};
use crate::store::answer::InsertedJob;
use crate::workflow::{Found, Origin, Standing, Submission, SubmissionPlan, graph};

/// Adds the jobs of a submission, all of them or none.
pub fn insert(set: &mut WorkingSet, submission: &Submission, origin: &Origin) -> Result<Vec<InsertedJob>, Stop> {
    let plan = plan(set, submission)?;
    Ok(add(set, &plan, origin))
}

/// What would become of a submission's jobs.
pub(super) fn plan<'s>(set: &WorkingSet, submission: &'s Submission) -> Result<SubmissionPlan<'s>, Stop> {
    planned(set, submission, set.found(&submission.lookup())?)
}

/// The same once this job has completed: a key that holds until its end is free by then (U1).
pub(super) fn plan_after<'s>(
    set: &WorkingSet,
    submission: &'s Submission,
    completed: JobId,
) -> Result<SubmissionPlan<'s>, Stop> {
    let mut found = set.found(&submission.lookup())?;
    let holders = found.keys.values_mut().filter(|holder| holder.held.id == completed);
    for standing in holders.filter_map(|holder| holder.standing.as_mut()) {
        standing.state = State::Completed;
    }
    planned(set, submission, found)
}

fn planned<'s>(set: &WorkingSet, submission: &'s Submission, found: Found) -> Result<SubmissionPlan<'s>, Stop> {
    set.need_identities(submission.new_count(&found))?;
    match plan_with(set, submission, &found) {
        Err(Error::DependencyLimit { what: graph::DEPTH, .. }) => {
            Ok(plan_with(set, submission, &with_present_depths(set, found)?)?)
        }
        planned => Ok(planned?),
    }
}

fn plan_with<'s>(set: &WorkingSet, submission: &'s Submission, found: &Found) -> Result<SubmissionPlan<'s>> {
    let mut identities = set.identities.iter().copied();
    let mut draw = || identities.next().expect("there is one for each new job");
    submission.plan(found, set.now, &mut draw)
}

/// What was found, with the depths that jobs have now in place of those of their submission.
fn with_present_depths(set: &WorkingSet, mut found: Found) -> Result<Found, Stop> {
    let holders = found.keys.values_mut().filter_map(|holder| Some((holder.held.id, holder.standing.as_mut()?)));
    let jobs = found.jobs.iter_mut().map(|(id, standing)| (*id, standing));
    let mut standings: Vec<(JobId, &mut Standing)> = holders.chain(jobs).collect();
    let ids: Vec<JobId> = standings.iter().map(|(id, _)| *id).collect();
    if let Some(depths) = depths(set, &ids)? {
        for (id, standing) in &mut standings {
            standing.depth = depths.get(id).copied().unwrap_or(standing.depth);
        }
    }
    Ok(found)
}

/// Adds the jobs of a plan, which was made from the set as it is.
pub(super) fn add(set: &mut WorkingSet, plan: &SubmissionPlan<'_>, origin: &Origin) -> Vec<InsertedJob> {
    for new in plan.new_jobs() {
        let drawn = set.identities.pop_front();
        debug_assert_eq!(drawn, Some(new.identity), "nobody else draws between plan and add");
        let (id, job) = (new.identity.id, new.record(origin, set.now));
        let has_ended = job.state.is_terminal();
        let (sequence, waits, depth) = (new.identity.sequence, new.admission.waits, new.admission.depth);
        set.add(Entry { sequence, job, token: None, waits, depth }, new.key);
        for (parent, kind, open) in &new.depends_on {
            set.set_edge(Edge { parent: *parent, child: id, kind: *kind }, *open);
        }
        // Those of its dependents that came with it know already: each was planned with its own verdict.
        if has_ended {
            set.ended.push(id);
        }
    }
    // After all are there: one of them may depend on a job that is replaced, and dies with it.
    for (replaced, by) in plan.new_jobs().filter_map(|new| Some((new.replaces?, new.identity.id))) {
        end(set, replaced, &Verdict::of_replacement(by), Outcome::Revoked);
    }
    plan.answers()
}
