//! How long the chains of unfinished jobs are now (W1).
//!
//! A job's depth is kept from its submission, and only ever too high: jobs before it end. Where the kept one would refuse a
//! submission, the graph is looked at.

use std::collections::{HashMap, HashSet};

use super::Stop;
use super::set::WorkingSet;
use crate::job::{JobId, State};

/// Most jobs that are looked at for one submission: the widest chain of a hundred jobs has more, and keeps its depth.
const LOOKS_MAX: usize = 10_000;

/// How long the chain of unfinished jobs up to each of these is; `None` where too many jobs would have to be looked at.
pub(super) fn depths(set: &WorkingSet, ids: &[JobId]) -> Result<Option<HashMap<JobId, u32>>, Stop> {
    let mut waits_for: HashMap<JobId, Vec<JobId>> = HashMap::new();
    let mut seen: HashSet<JobId> = HashSet::new();
    let mut wave = ids.to_vec();
    while !wave.is_empty() {
        set.need_jobs(&wave)?;
        wave.retain(|id| seen.insert(*id) && set.exists(*id) && set.job(*id).state == State::Pending);
        if seen.len() > LOOKS_MAX {
            return Ok(None);
        }
        set.need_dependencies(&wave)?;
        let mut next = Vec::new();
        for id in wave {
            let open = set.dependencies(id)?.into_iter().filter(|(_, open)| *open).map(|(edge, _)| edge.parent);
            let parents: Vec<JobId> = open.collect();
            next.extend(&parents);
            waits_for.insert(id, parents);
        }
        wave = next;
    }
    let mut known = HashMap::new();
    for id in ids {
        depth(set, *id, &waits_for, &mut known);
    }
    Ok(Some(known))
}

/// One more than the deepest job it waits for; graphs have no cycles, and no more levels than the limit and what FAN_INs gained.
fn depth(set: &WorkingSet, id: JobId, waits_for: &HashMap<JobId, Vec<JobId>>, known: &mut HashMap<JobId, u32>) -> u32 {
    if let Some(depth) = known.get(&id) {
        return *depth;
    }
    let parents = waits_for.get(&id).map_or(&[][..], Vec::as_slice);
    let deepest = parents.iter().map(|parent| depth(set, *parent, waits_for, known)).max().unwrap_or(0);
    let own = if set.is_unfinished(id) { deepest + 1 } else { 0 };
    known.insert(id, own);
    own
}
