//! A checked batch of jobs: what [`Store::insert`](crate::store::Store::insert) takes, all of it or nothing.

use std::collections::{HashMap, HashSet};

use super::graph;
use crate::error::{Error, Result};
use crate::job::{BATCH_MAX, Dependency, DependsOn, JobId, JobSpec, check_chars};

/// Longest name of a workflow, in characters.
pub const WORKFLOW_NAME_CHARS_MAX: usize = 256;

/// A batch of checked jobs that are stored together, perhaps as a workflow.
#[derive(Clone, PartialEq, Debug)]
pub struct Submission {
    jobs: Vec<JobSpec>,
    duplicates: Vec<Option<usize>>,
    order: Vec<usize>,
    workflow: Option<String>,
}

impl Submission {
    /// Checks a batch as a whole: its size, and the dependencies among its jobs.
    pub fn new(jobs: Vec<JobSpec>) -> Result<Self> {
        Submission::build(jobs, None)
    }

    /// The same, with a durable workflow record of this name over it.
    pub fn workflow(name: impl Into<String>, jobs: Vec<JobSpec>) -> Result<Self> {
        let name = name.into();
        if name.is_empty() {
            return Err(Error::invalid("workflow name", "must not be empty"));
        }
        check_chars("workflow name", &name, WORKFLOW_NAME_CHARS_MAX)?;
        Submission::build(jobs, Some(name))
    }

    fn build(mut jobs: Vec<JobSpec>, workflow: Option<String>) -> Result<Self> {
        if jobs.is_empty() || jobs.len() > BATCH_MAX {
            return Err(Error::invalid("batch", format!("must have 1 to {BATCH_MAX} jobs, has {}", jobs.len())));
        }
        let duplicates = duplicates(&jobs);
        if jobs.iter().any(|job| !job.depends_on.is_empty()) {
            for job in &mut jobs {
                canonical(&mut job.depends_on, &duplicates);
            }
        }
        let order = graph::order(&jobs)?;
        Ok(Submission { jobs, duplicates, order, workflow })
    }

    /// Changes options of the jobs that have no bearing on how they depend on each other.
    pub(crate) fn each(&mut self, change: impl FnMut(&mut JobSpec)) {
        self.jobs.iter_mut().for_each(change);
    }

    /// The jobs, in the order of the call.
    pub fn jobs(&self) -> &[JobSpec] {
        &self.jobs
    }

    /// The places of the jobs, dependencies before dependents.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The earlier place of this batch with the same idempotency key, if there is one (rule I2).
    pub fn duplicate_of(&self, place: usize) -> Option<usize> {
        self.duplicates.get(place).copied().flatten()
    }

    /// The name of the workflow these jobs make up.
    pub fn workflow_name(&self) -> Option<&str> {
        self.workflow.as_deref()
    }

    /// The jobs themselves, for stores that keep them as they are.
    pub fn into_jobs(self) -> Vec<JobSpec> {
        self.jobs
    }
}

/// The dependencies of a job of this batch with ids for places; `ids` holds the id of each place.
///
/// Two places can turn out to be one job (a known idempotency key), so what is then said twice is dropped.
pub fn resolve(depends_on: &[Dependency], ids: &[JobId]) -> Vec<Dependency> {
    let mut resolved: Vec<Dependency> = Vec::with_capacity(depends_on.len());
    let mut seen = HashSet::with_capacity(depends_on.len());
    for dependency in depends_on {
        let on = match dependency.on {
            DependsOn::Job(id) => id,
            DependsOn::Batch(place) => ids[place],
        };
        let dependency = Dependency { on: DependsOn::Job(on), kind: dependency.kind };
        if seen.insert(dependency) {
            resolved.push(dependency);
        }
    }
    resolved
}

fn duplicates(jobs: &[JobSpec]) -> Vec<Option<usize>> {
    let mut first: HashMap<(String, &str), usize> = HashMap::new();
    let mut found = Vec::with_capacity(jobs.len());
    for (place, job) in jobs.iter().enumerate() {
        let key = job.idempotency_scope().zip(job.options.idempotency.as_ref().map(|key| key.key.as_str()));
        found.push(match key {
            None => None,
            Some(key) => {
                let earlier = *first.entry(key).or_insert(place);
                Some(earlier).filter(|earlier| *earlier != place)
            }
        });
    }
    found
}

/// Points dependencies on a repeated key at its first place, and drops what is said twice.
fn canonical(depends_on: &mut Vec<Dependency>, duplicates: &[Option<usize>]) {
    let mut seen = HashSet::with_capacity(depends_on.len());
    for dependency in depends_on.iter_mut() {
        if let DependsOn::Batch(place) = dependency.on
            && let Some(earlier) = duplicates.get(place).copied().flatten()
        {
            dependency.on = DependsOn::Batch(earlier);
        }
    }
    depends_on.retain(|dependency| seen.insert(*dependency));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{DependencyKind, Limits, NewJob, Payload, Policies};

    fn checked(job: NewJob) -> JobSpec {
        job.check(&Limits::default(), &Policies::default()).expect("valid")
    }

    fn job() -> NewJob {
        NewJob::new("t", Payload::default())
    }

    #[test]
    fn j2_a_batch_has_1_to_10_000_jobs() {
        assert!(Submission::new(Vec::new()).is_err());
        assert!(Submission::new(vec![checked(job()); BATCH_MAX]).is_ok());
        assert!(Submission::new(vec![checked(job()); BATCH_MAX + 1]).is_err());
    }

    #[test]
    fn i2_a_key_repeated_in_a_batch_is_one_job() {
        let same = checked(job().idempotency_key("k"));
        let batch = Submission::new(vec![same.clone(), checked(job()), same]).expect("valid");
        assert_eq!(batch.duplicate_of(0), None);
        assert_eq!(batch.duplicate_of(2), Some(0));
    }

    #[test]
    fn w1_a_cycle_through_a_repeated_key_is_found() {
        let first = checked(job().idempotency_key("k").depends_on(DependsOn::Batch(1), DependencyKind::After));
        let middle = checked(job().depends_on(DependsOn::Batch(2), DependencyKind::After));
        let again = checked(job().idempotency_key("k"));
        let refused = Submission::new(vec![first, middle, again]).expect_err("cycle");
        assert_eq!(refused.name(), "DependencyCycle");
    }
}
