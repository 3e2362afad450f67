//! Storing a submission: first everything is looked at, then everything is written.

use std::collections::HashMap;
use std::sync::Arc;

use super::tables::{Entry, Key, ScopedKey, Sequence, Tables};
use crate::error::{Error, Result};
use crate::job::{Dependency, DependsOn, Firing, JobId, JobRecord, JobSpec, Outcome, Priority, State, WorkflowId};
use crate::store::answer::{Inserted, InsertedJob};
use crate::store::{new_job_id, new_workflow_id};
use crate::time::Timestamp;
use crate::workflow::graph::{self, Admission, Parent};
use crate::workflow::{Submission, WorkflowRecord, resolve};

/// Where a submission's jobs come from.
#[derive(Clone, Default)]
pub(super) struct Origin {
    pub(super) workflow: Option<WorkflowId>,
    pub(super) spawned_by: Option<JobId>,
    pub(super) firing: Option<Firing>,
}

/// What becomes of one place of a submission.
enum Plan {
    /// Its idempotency key stands for a job that is stored, or was.
    Existing(InsertedJob),
    /// Its key is that of an earlier place; whether type and payload are the same.
    Repeated(usize, bool),
    New(Box<NewEntry>),
}

struct NewEntry {
    id: JobId,
    spec: JobSpec,
    run_at: Option<Timestamp>,
    admission: Admission,
}

impl NewEntry {
    /// The state it comes to rest in (S1), or dies in at once (S3).
    fn state(&self) -> State {
        match &self.admission.verdict {
            Some(verdict) => State::Pending.after(verdict.event).expect("dependencies end PENDING jobs"),
            None if !self.admission.waits.is_over() => State::Pending,
            None if self.run_at.is_some() => State::Delayed,
            None => State::Scheduled,
        }
    }

    fn priority(&self) -> Priority {
        let own = self.spec.priority;
        self.admission.inherited_priority.map_or(own, |inherited| inherited.min(own))
    }

    fn cause(&self) -> JobId {
        let reason = self.admission.verdict.as_ref().and_then(|verdict| verdict.reason.as_ref());
        reason.and_then(|reason| reason.cause).unwrap_or(self.id)
    }
}

impl Tables {
    pub(super) fn insert(&mut self, submission: Submission, now: Timestamp) -> Result<Inserted> {
        let workflow = submission.workflow_name().map(|name| (new_workflow_id(), name.to_owned()));
        let plans = self.plan(&submission, now)?;
        if let Some((id, name)) = &workflow {
            self.add_workflow(*id, name.clone(), now);
        }
        let id = workflow.map(|(id, _)| id);
        let jobs = self.write(plans, &Origin { workflow: id, ..Origin::default() }, now);
        Ok(Inserted { jobs, workflow: id })
    }

    /// Stores a submission that the store itself makes: spawned children, firings, webhooks.
    pub(super) fn insert_from(
        &mut self,
        submission: &Submission,
        origin: &Origin,
        now: Timestamp,
    ) -> Result<Vec<InsertedJob>> {
        let plans = self.plan(submission, now)?;
        Ok(self.write(plans, origin, now))
    }

    /// Refuses a submission that [`insert_from`](Self::insert_from) would refuse, and changes nothing.
    ///
    /// Gives the jobs that whoever waits for all of its jobs waits for with them: those that its idempotency keys stand
    /// for, and those that its new jobs depend on.
    pub(super) fn would_insert(&self, submission: &Submission, now: Timestamp) -> Result<Vec<JobId>> {
        let mut reached = Vec::new();
        for plan in self.plan(submission, now)? {
            match plan {
                Plan::Existing(existing) => reached.push(existing.id),
                Plan::New(entry) => reached.extend(entry.spec.depends_on.iter().filter_map(named)),
                Plan::Repeated(..) => {}
            }
        }
        Ok(reached)
    }

    fn add_workflow(&mut self, id: WorkflowId, name: String, now: Timestamp) {
        let sequence = self.draw_sequence();
        self.workflow_ids.insert(id, sequence);
        self.workflows.insert(sequence, WorkflowRecord { id, name, created_at: now, counts: [0; 9], pruned: 0 });
    }

    fn plan(&self, submission: &Submission, now: Timestamp) -> Result<Vec<Plan>> {
        let mut plans: Vec<Option<Plan>> = Vec::with_capacity(submission.jobs().len());
        plans.resize_with(submission.jobs().len(), || None);
        let mut ids: Vec<JobId> = Vec::with_capacity(plans.len());
        for (place, spec) in submission.jobs().iter().enumerate() {
            let (id, plan) = match (submission.duplicate_of(place), self.existing(spec, now)) {
                (Some(first), existing) => {
                    let earlier = &submission.jobs()[first];
                    let same = earlier.job_type == spec.job_type && earlier.payload == spec.payload;
                    let matches = existing.map_or(same, |existing| existing.matches);
                    (ids[first], Some(Plan::Repeated(first, matches)))
                }
                (None, Some(existing)) => (existing.id, Some(Plan::Existing(existing))),
                (None, None) => (new_job_id(), None),
            };
            ids.push(id);
            plans[place] = plan;
        }
        let places: HashMap<JobId, usize> = match submission.jobs().iter().any(|spec| !spec.depends_on.is_empty()) {
            true => ids.iter().enumerate().rev().map(|(place, id)| (*id, place)).collect(),
            false => HashMap::new(),
        };
        for place in submission.order() {
            if plans[*place].is_none() {
                let spec = &submission.jobs()[*place];
                let depends_on = resolve(&spec.depends_on, &ids);
                let planned = |id: &JobId| match &plans[*places.get(id)?] {
                    Some(Plan::New(entry)) => Some(entry.as_ref()),
                    Some(Plan::Existing(_) | Plan::Repeated(..)) | None => None,
                };
                let parents: Result<Vec<_>> =
                    depends_on.iter().map(|dependency| self.parent(dependency, planned)).collect();
                let entry = NewEntry {
                    id: ids[*place],
                    run_at: spec.first_run(now)?,
                    admission: graph::admit(spec, &parents?)?,
                    spec: JobSpec { depends_on, ..spec.clone() },
                };
                plans[*place] = Some(Plan::New(Box::new(entry)));
            }
        }
        Ok(plans.into_iter().map(|plan| plan.expect("the order names every place")).collect())
    }

    /// What the rules need to know of a dependency: of a job that comes with this one, or of a stored one.
    fn parent<'a>(&self, dependency: &Dependency, planned: impl Fn(&JobId) -> Option<&'a NewEntry>) -> Result<Parent> {
        let DependsOn::Job(id) = dependency.on else { unreachable!("places were resolved") };
        let kind = dependency.kind;
        if let Some(new) = planned(&id) {
            let (state, priority, depth, cause) = (new.state(), new.priority(), new.admission.depth, new.cause());
            return Ok(Parent { id, kind, state, priority, depth, cause });
        }
        let entry = self.by_id(id).ok_or(Error::DependencyNotFound { job: id })?;
        let job = &entry.job;
        let (state, priority, depth, cause) = (job.state, job.effective_priority(), entry.depth, job.root_cause());
        Ok(Parent { id, kind, state, priority, depth, cause })
    }

    /// The job that a submission's idempotency key already stands for.
    fn existing(&self, spec: &JobSpec, now: Timestamp) -> Option<InsertedJob> {
        let key = self.keys.get(&scoped_key(spec)?)?;
        if key.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return None;
        }
        Some(InsertedJob {
            id: key.job,
            existing: true,
            state: self.by_id(key.job).map(|entry| entry.job.state),
            matches: key.job_type == spec.job_type && key.payload == spec.payload,
        })
    }

    fn write(&mut self, plans: Vec<Plan>, origin: &Origin, now: Timestamp) -> Vec<InsertedJob> {
        let mut answers: Vec<InsertedJob> = Vec::with_capacity(plans.len());
        let mut added: Vec<Sequence> = Vec::new();
        let mut dead = Vec::new();
        for plan in plans {
            let answer = match plan {
                Plan::Existing(existing) => existing,
                Plan::Repeated(first, matches) => InsertedJob { existing: true, matches, ..answers[first] },
                Plan::New(entry) => {
                    let state = entry.state();
                    let verdict = entry.admission.verdict.clone();
                    let id = entry.id;
                    let sequence = self.write_new(*entry, origin, now);
                    added.push(sequence);
                    dead.extend(verdict.map(|verdict| (sequence, verdict)));
                    InsertedJob { id, existing: false, state: Some(state), matches: true }
                }
            };
            answers.push(answer);
        }
        // Each job that dies at once has its own verdict, so none needs to hear of another's end.
        for (sequence, verdict) in dead {
            self.end(sequence, &verdict, Outcome::Revoked, now);
        }
        for sequence in added {
            self.link(sequence);
        }
        answers
    }

    fn write_new(&mut self, new: NewEntry, origin: &Origin, now: Timestamp) -> Sequence {
        let sequence = self.draw_sequence();
        self.keep_key(&new.spec, new.id, now);
        // A job that dies at once is PENDING for the length of this call.
        let state = if new.admission.verdict.is_some() { State::Pending } else { new.state() };
        let edges = new.spec.depends_on.iter();
        let edges = edges.filter_map(|dependency| Some((named(dependency)?, dependency.kind))).collect();
        let job = JobRecord {
            state,
            inherited_priority: new.admission.inherited_priority,
            scheduled_at: (state == State::Scheduled).then_some(now),
            run_at: new.run_at,
            workflow_id: origin.workflow,
            firing: origin.firing.clone(),
            spawned_by: origin.spawned_by,
            ..JobRecord::submitted(new.id, Arc::new(new.spec), now)
        };
        self.add(Entry {
            sequence,
            job,
            token: None,
            closed: Default::default(),
            logs: Default::default(),
            edges,
            open: Vec::new(),
            waits: new.admission.waits,
            depth: new.admission.depth,
            dependents: Vec::new(),
        });
        sequence
    }

    fn keep_key(&mut self, spec: &JobSpec, id: JobId, now: Timestamp) {
        let Some(name) = scoped_key(spec) else { return };
        let window = spec.options.idempotency.as_ref().and_then(|key| key.window);
        let expires_at = window.map(|window| now.plus(window));
        let key = Key { job: id, expires_at, job_type: spec.job_type.clone(), payload: spec.payload.clone() };
        if let Some(expires_at) = expires_at {
            self.key_ends.insert((expires_at, name.clone()));
        }
        if let Some(expired) = self.keys.insert(name.clone(), key).and_then(|old| old.expires_at)
            && Some(expired) != expires_at
        {
            self.key_ends.remove(&(expired, name));
        }
    }

    /// Enters a new job with the jobs it waits for.
    fn link(&mut self, sequence: Sequence) {
        let edges = self.entry(sequence).edges.clone();
        for (on, _) in &edges {
            let parent = *self.ids.get(on).expect("dependencies were found when the job was planned");
            self.entry_mut(parent).dependents.push(sequence);
        }
        let open = self.unfinished(&edges);
        self.entry_mut(sequence).open = open;
    }
}

fn named(dependency: &Dependency) -> Option<JobId> {
    match dependency.on {
        DependsOn::Job(on) => Some(on),
        DependsOn::Batch(_) => None,
    }
}

fn scoped_key(spec: &JobSpec) -> Option<ScopedKey> {
    let key = spec.options.idempotency.as_ref()?.key.clone();
    Some((spec.idempotency_scope()?, key))
}
