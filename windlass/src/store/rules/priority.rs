//! Inherited priorities: a PENDING job is as urgent as the most urgent of what it depends on, and follows it (W3).

use std::collections::{BTreeMap, HashMap};

use super::Stop;
use super::set::WorkingSet;
use crate::job::{JobId, JobRecord, Priority, State};

/// The jobs that inherit something else, and what.
pub(super) type Heirs = BTreeMap<JobId, Option<Priority>>;

/// Who inherits something else when the effective priorities of some jobs become these, on through the graph.
pub(super) fn heirs(set: &WorkingSet, changed: HashMap<JobId, Priority>) -> Result<Heirs, Stop> {
    let mut wave: Vec<JobId> = changed.keys().copied().collect();
    let mut effective = changed;
    let mut heirs = Heirs::new();
    while !wave.is_empty() {
        set.need_dependents(&wave)?;
        let mut affected = Vec::new();
        for id in wave {
            affected.extend(set.dependents(id)?.into_iter().map(|(edge, _)| edge.child));
        }
        affected.retain(|id| follows(set.job(*id)));
        affected.sort_unstable();
        affected.dedup();
        set.need_dependencies(&affected)?;
        wave = Vec::new();
        for id in affected {
            let parents = set.dependencies(id)?.into_iter().map(|(edge, _)| edge.parent);
            let parents = parents.filter(|parent| set.exists(*parent));
            let is = |parent: JobId| effective.get(&parent).copied().unwrap_or(set.job(parent).effective_priority());
            let inherited = parents.map(is).min();
            let job = set.job(id);
            let before = effective.get(&id).copied().unwrap_or(job.effective_priority());
            let after = inherited.map_or(job.spec.priority, |inherited| inherited.min(job.spec.priority));
            heirs.insert(id, inherited);
            if after != before {
                effective.insert(id, after);
                wave.push(id);
            }
        }
    }
    Ok(heirs)
}

/// Lets the heirs have what they inherit.
pub(super) fn pass_on(set: &mut WorkingSet, heirs: Heirs) {
    for (id, inherited) in heirs {
        if set.job(id).inherited_priority != inherited {
            set.change(id).job.inherited_priority = inherited;
        }
    }
}

/// The effective priority that a job would have if it also depended on a job of this priority; `None` if that is no other.
pub(super) fn raised(job: &JobRecord, by: Priority) -> Option<Priority> {
    Some(by).filter(|by| follows(job) && *by < job.effective_priority())
}

/// Lets a job inherit from one more job that it depends on.
pub(super) fn inherit(set: &mut WorkingSet, id: JobId, from: Priority) -> Result<(), Stop> {
    let job = set.job(id);
    if !follows(job) || job.inherited_priority.is_some_and(|inherited| inherited <= from) {
        return Ok(());
    }
    let heirs = match raised(job, from) {
        Some(priority) => heirs(set, HashMap::from([(id, priority)]))?,
        None => Heirs::new(),
    };
    set.change(id).job.inherited_priority = Some(from);
    pass_on(set, heirs);
    Ok(())
}

fn follows(job: &JobRecord) -> bool {
    job.state == State::Pending && !job.spec.options.own_priority_only
}
