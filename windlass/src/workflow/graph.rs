//! The dependency graph: what a job must wait for, what it inherits, and what the end of one job does to another.
//!
//! Pure, rules W1 to W4. A new job can only wait for jobs that exist or that come with it, so the
//! graph cannot get a cycle except inside one submission (checked by [`order`]) or through a FAN_IN that gains the
//! children of a running job (checked by stores with [`reaches`] when the children arrive).

use std::collections::{HashSet, VecDeque};

use crate::error::{Error, Result};
use crate::job::{Dependency, DependencyKind, DependsOn, JobId, JobSpec, Priority, State, Verdict};

/// Longest chain of unfinished jobs, the new one included.
pub const DEPTH_MAX: u32 = 100;

/// A job that another one depends on, as far as the rules care.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// The job.
    pub id: JobId,
    /// How it is depended on.
    pub kind: DependencyKind,
    /// Where it stands now.
    pub state: State,
    /// Its effective priority.
    pub priority: Priority,
    /// How long the chain of unfinished jobs up to it is.
    pub depth: u32,
    /// The job that its own bad end began with: itself, unless it died of a dependency.
    pub cause: JobId,
}

/// How a new job joins the graph.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Admission {
    /// The most urgent priority of its dependencies, unless it keeps to its own.
    pub inherited_priority: Option<Priority>,
    /// How long the chain of unfinished jobs up to it is, itself included.
    pub depth: u32,
    /// What it still waits for.
    pub waits: Waits,
    /// Set when a dependency has already ended so that the job cannot run: applied at once.
    pub verdict: Option<Verdict>,
}

/// How much a PENDING job still waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// Unfinished dependencies that must all end.
    pub all: u32,
    /// Whether one of the AFTER_ANY dependencies must still end.
    pub any: bool,
}

impl Waits {
    /// Whether nothing is left to wait for.
    pub fn is_over(self) -> bool {
        self.all == 0 && !self.any
    }

    /// Counts what is unresolved among a job's dependencies; `unfinished` tells which jobs have not ended.
    pub fn of(dependencies: &[(DependencyKind, bool)]) -> Self {
        let all = dependencies.iter().filter(|(kind, unfinished)| *unfinished && *kind != DependencyKind::AfterAny);
        let mut any = dependencies.iter().filter(|(kind, _)| *kind == DependencyKind::AfterAny).peekable();
        Waits {
            all: u32::try_from(all.count()).unwrap_or(u32::MAX),
            any: any.peek().is_some() && any.all(|(_, unfinished)| *unfinished),
        }
    }
}

/// What the end of one job means for a job that depends on it.
#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant, reason = "one is made for each call; a box would only be in the way")]
pub enum Edge {
    /// One of the dependencies that must all end is met.
    Met,
    /// The AFTER_ANY dependencies are met, all of them at once.
    AnyMet,
    /// The dependent dies of it.
    Dies(Verdict),
}

/// What the end of a dependency does: `end` is the terminal state it reached, `cause` the job that began it.
pub fn edge(kind: DependencyKind, end: State, cause: JobId) -> Edge {
    match kind {
        DependencyKind::AfterAny => Edge::AnyMet,
        DependencyKind::AfterAll | DependencyKind::FanInDone => Edge::Met,
        DependencyKind::After | DependencyKind::FanInSuccess => {
            Verdict::of_dependency(end, cause).map_or(Edge::Met, Edge::Dies)
        }
    }
}

/// Whether a dependency of this kind also waits for the jobs that its job spawns.
pub fn is_fan_in(kind: DependencyKind) -> bool {
    match kind {
        DependencyKind::FanInSuccess | DependencyKind::FanInDone => true,
        DependencyKind::After | DependencyKind::AfterAny | DependencyKind::AfterAll => false,
    }
}

/// What [`Error::DependencyLimit`] says is too large where a chain of jobs is too long.
pub const DEPTH: &str = "dependency depth";

/// How a job with these dependencies joins the graph (W1 to W3).
pub fn admit(spec: &JobSpec, parents: &[Parent]) -> Result<Admission> {
    let unfinished = |parent: &&Parent| !parent.state.is_terminal();
    let depth = 1 + parents.iter().filter(unfinished).map(|parent| parent.depth).max().unwrap_or(0);
    if depth > DEPTH_MAX {
        let (size, limit) = (depth as usize, DEPTH_MAX as usize);
        return Err(Error::DependencyLimit { what: DEPTH, size, limit });
    }
    let inherited = parents.iter().map(|parent| parent.priority).min().filter(|_| !spec.options.own_priority_only);
    let kinds: Vec<_> = parents.iter().map(|parent| (parent.kind, !parent.state.is_terminal())).collect();
    let verdict = parents.iter().filter(|parent| parent.state.is_terminal()).find_map(|parent| {
        match edge(parent.kind, parent.state, parent.cause) {
            Edge::Dies(verdict) => Some(verdict),
            Edge::Met | Edge::AnyMet => None,
        }
    });
    Ok(Admission { inherited_priority: inherited, depth, waits: Waits::of(&kinds), verdict })
}

/// The jobs of one submission, dependencies first; refuses a cycle or a place that does not exist.
pub fn order(jobs: &[JobSpec]) -> Result<Vec<usize>> {
    let mut waiting: Vec<usize> = vec![0; jobs.len()];
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
    for (place, job) in jobs.iter().enumerate() {
        for on in job.depends_on.iter().filter_map(batch_place) {
            let list = dependents.get_mut(on).ok_or_else(|| {
                let problem = format!("job {place} names place {on}, but the batch has {} jobs", jobs.len());
                Error::invalid("depends_on", problem)
            })?;
            list.push(place);
            waiting[place] += 1;
        }
    }
    let mut free: VecDeque<usize> = (0..jobs.len()).filter(|place| waiting[*place] == 0).collect();
    let mut ordered = Vec::with_capacity(jobs.len());
    while let Some(place) = free.pop_front() {
        ordered.push(place);
        for dependent in &dependents[place] {
            waiting[*dependent] -= 1;
            if waiting[*dependent] == 0 {
                free.push_back(*dependent);
            }
        }
    }
    match waiting.iter().position(|count| *count > 0) {
        None => Ok(ordered),
        Some(place) => Err(Error::DependencyCycle { through: format!("job {place} of the batch") }),
    }
}

fn batch_place(dependency: &Dependency) -> Option<usize> {
    match dependency.on {
        DependsOn::Batch(place) => Some(place),
        DependsOn::Job(_) => None,
    }
}

/// Whether `target` is found by walking from `starts` along `next` (the unfinished jobs that a job waits for).
///
/// A spawned child that waits, however indirectly, for a FAN_IN that is to wait for the child is a cycle.
pub fn reaches(
    starts: Vec<JobId>,
    target: &HashSet<JobId>,
    mut next: impl FnMut(JobId) -> Vec<JobId>,
) -> Option<JobId> {
    let mut seen: HashSet<JobId> = HashSet::new();
    let mut open = starts;
    while let Some(job) = open.pop() {
        if target.contains(&job) {
            return Some(job);
        }
        if seen.insert(job) {
            open.extend(next(job));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::job::{Limits, NewJob, Payload, Policies};

    fn spec(on: &[usize]) -> JobSpec {
        let job = NewJob::new("t", Payload::default());
        let job = on.iter().fold(job, |job, place| job.depends_on(DependsOn::Batch(*place), DependencyKind::After));
        job.check(&Limits::default(), &Policies::default()).expect("valid")
    }

    fn parent(kind: DependencyKind, state: State) -> Parent {
        let id = JobId::from_uuid(Uuid::from_u128(1));
        Parent { id, kind, state, priority: Priority::High, depth: 1, cause: id }
    }

    #[test]
    fn w1_a_cycle_is_refused_and_an_order_found() {
        assert_eq!(order(&[spec(&[1]), spec(&[2]), spec(&[])]).expect("acyclic"), vec![2, 1, 0]);
        for cycle in [vec![spec(&[0])], vec![spec(&[1]), spec(&[0])], vec![spec(&[1]), spec(&[2]), spec(&[1])]] {
            assert_eq!(order(&cycle).expect_err("cycle").name(), "DependencyCycle");
        }
        assert_eq!(order(&[spec(&[7])]).expect_err("no such place").name(), "InvalidArgument");
    }

    #[test]
    fn w1_depth_over_100_is_refused() {
        let deep = |depth| Parent { depth, ..parent(DependencyKind::After, State::Running) };
        assert_eq!(admit(&spec(&[]), &[deep(99)]).expect("fits").depth, 100);
        assert_eq!(admit(&spec(&[]), &[deep(100)]).expect_err("too deep").name(), "DependencyLimit");
        let ended = Parent { depth: 100, ..parent(DependencyKind::After, State::Completed) };
        assert_eq!(admit(&spec(&[]), &[ended]).expect("an ended chain is no chain").depth, 1);
    }

    #[test]
    fn w2_only_after_and_fan_in_success_die_with_their_dependency() {
        use DependencyKind::{After, AfterAll, AfterAny, FanInDone, FanInSuccess};
        let id = JobId::from_uuid(Uuid::from_u128(1));
        for end in [State::Failed, State::DeadLetter, State::Cancelled] {
            for kind in [After, FanInSuccess] {
                let Edge::Dies(verdict) = edge(kind, end, id) else { panic!("{kind:?} survives {end}") };
                assert_eq!(State::Pending.after(verdict.event), Ok(end));
            }
            assert_eq!(edge(AfterAll, end, id), Edge::Met);
            assert_eq!(edge(FanInDone, end, id), Edge::Met);
            assert_eq!(edge(AfterAny, end, id), Edge::AnyMet);
        }
        assert_eq!(edge(After, State::Completed, id), Edge::Met);
    }

    #[test]
    fn w3_the_most_urgent_priority_is_inherited_unless_refused() {
        let parents = [parent(DependencyKind::After, State::Running)];
        assert_eq!(admit(&spec(&[]), &parents).expect("fits").inherited_priority, Some(Priority::High));
        let mut own = spec(&[]);
        own.options.own_priority_only = true;
        assert_eq!(admit(&own, &parents).expect("fits").inherited_priority, None);
    }

    #[test]
    fn waits_count_each_all_and_the_any_group_once() {
        use DependencyKind::{After, AfterAny};
        assert_eq!(Waits::of(&[(After, true), (After, false), (AfterAny, true)]), Waits { all: 1, any: true });
        assert_eq!(Waits::of(&[(AfterAny, true), (AfterAny, false)]), Waits::default());
        assert!(Waits::of(&[]).is_over());
    }
}
