//! Storing a submission on the slow path: first everything is looked at, then everything is written.

use std::collections::HashMap;
use std::sync::Arc;

use super::fault::Fault;
use super::rows::{self, Entry};
use super::unit::{EVENT_ACCEPTED, Unit, kind_number};
use crate::error::Error;
use crate::job::{
    Dependency, DependsOn, Firing, JobId, JobRecord, JobSpec, Outcome, Priority, State, Verdict, WorkflowId,
};
use crate::store::answer::{Inserted, InsertedJob};
use crate::store::new_workflow_id;
use crate::time::Timestamp;
use crate::workflow::graph::{self, Admission, Parent};
use crate::workflow::{Submission, resolve};

/// Where a submission's jobs come from.
#[derive(Clone, Default)]
pub(super) struct Origin {
    pub(super) workflow: Option<WorkflowId>,
    pub(super) spawned_by: Option<JobId>,
    pub(super) firing: Option<Firing>,
}

/// What becomes of one place of a submission.
pub(super) enum Plan {
    /// Its idempotency key stands for a job that is stored, or was.
    Existing(InsertedJob),
    /// Its key is that of an earlier place; whether type and payload are the same.
    Repeated(usize, bool),
    New(Box<NewEntry>),
}

pub(super) struct NewEntry {
    id: JobId,
    seq: i64,
    spec: JobSpec,
    run_at: Option<Timestamp>,
    admission: Admission,
}

impl Plan {
    /// The jobs that whoever waits for this one waits for with it.
    pub(super) fn reaches(&self) -> Vec<JobId> {
        match self {
            Plan::Existing(existing) => vec![existing.id],
            Plan::New(entry) => entry.spec.depends_on.iter().filter_map(named_in).collect(),
            Plan::Repeated(..) => Vec::new(),
        }
    }
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

/// The ids of stored jobs that a submission's jobs depend on.
fn named(submission: &Submission) -> impl Iterator<Item = JobId> {
    let dependencies = submission.jobs().iter().flat_map(|spec| &spec.depends_on);
    dependencies.filter_map(named_in)
}

fn named_in(dependency: &Dependency) -> Option<JobId> {
    match dependency.on {
        DependsOn::Job(id) => Some(id),
        DependsOn::Batch(_) => None,
    }
}

impl Unit<'_> {
    pub(super) async fn insert(&mut self, submission: &Submission) -> Result<Inserted, Fault> {
        let workflow = submission.workflow_name().map(|name| (new_workflow_id(), name.to_owned()));
        let plans = self.plan(submission).await?;
        if let Some((id, name)) = &workflow {
            let now = self.now.as_micros();
            self.link.execute(include_str!("sql/workflow_put.sql"), &[&id.as_uuid(), name, &now]).await?;
        }
        let id = workflow.map(|(id, _)| id);
        let jobs = self.write(plans, &Origin { workflow: id, ..Origin::default() }).await?;
        Ok(Inserted { jobs, workflow: id })
    }

    /// Stores a submission that the store itself makes: spawned children, firings, webhooks.
    pub(super) async fn insert_from(
        &mut self,
        submission: &Submission,
        origin: &Origin,
    ) -> Result<Vec<InsertedJob>, Fault> {
        let plans = self.plan(submission).await?;
        self.write(plans, origin).await
    }

    /// What becomes of each place. Refuses what cannot be stored, and changes nothing.
    pub(super) async fn plan(&mut self, submission: &Submission) -> Result<Vec<Plan>, Fault> {
        let jobs = submission.jobs();
        self.load(named(submission)).await?;
        let mut existing = self.existing(submission).await?;
        let is_new = |place: &usize| submission.duplicate_of(*place).is_none() && !existing.contains_key(place);
        let mut drawn = self.draw((0..jobs.len()).filter(is_new).count()).await?.into_iter();
        let mut seqs: Vec<i64> = Vec::with_capacity(jobs.len());
        let mut plans: Vec<Option<Plan>> = Vec::with_capacity(jobs.len());
        let mut ids: Vec<JobId> = Vec::with_capacity(jobs.len());
        for place in 0..jobs.len() {
            let mut seq = 0;
            let (id, plan) = match (submission.duplicate_of(place), existing.remove(&place)) {
                (Some(first), existing) => {
                    let (earlier, spec) = (&jobs[first], &jobs[place]);
                    let same = earlier.job_type == spec.job_type && earlier.payload == spec.payload;
                    let matches = existing.map_or(same, |existing| existing.matches);
                    (ids[first], Some(Plan::Repeated(first, matches)))
                }
                (None, Some(existing)) => (existing.id, Some(Plan::Existing(existing))),
                (None, None) => {
                    seq = drawn.next().expect("one was drawn for each new job");
                    (self.store.draw_id().id(seq), None)
                }
            };
            seqs.push(seq);
            ids.push(id);
            plans.push(plan);
        }
        let places: HashMap<JobId, usize> = match jobs.iter().any(|spec| !spec.depends_on.is_empty()) {
            true => ids.iter().enumerate().rev().map(|(place, id)| (*id, place)).collect(),
            false => HashMap::new(),
        };
        for place in submission.order() {
            if plans[*place].is_some() {
                continue;
            }
            let spec = &jobs[*place];
            let depends_on = resolve(&spec.depends_on, &ids);
            let planned = |id: &JobId| match &plans[*places.get(id)?] {
                Some(Plan::New(entry)) => Some(entry.as_ref()),
                Some(Plan::Existing(_) | Plan::Repeated(..)) | None => None,
            };
            let parents: Result<Vec<_>, Error> =
                depends_on.iter().map(|dependency| self.parent(dependency, planned)).collect();
            let entry = NewEntry {
                id: ids[*place],
                seq: seqs[*place],
                run_at: spec.first_run(self.now)?,
                admission: graph::admit(spec, &parents?)?,
                spec: JobSpec { depends_on, ..spec.clone() },
            };
            plans[*place] = Some(Plan::New(Box::new(entry)));
        }
        Ok(plans.into_iter().map(|plan| plan.expect("the order names every place")).collect())
    }

    /// What the rules need to know of a dependency: of a job that comes with this one, or of a stored one.
    fn parent<'n>(
        &self,
        dependency: &Dependency,
        planned: impl Fn(&JobId) -> Option<&'n NewEntry>,
    ) -> Result<Parent, Error> {
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

    /// The jobs that a submission's idempotency keys already stand for, by place.
    async fn existing(&mut self, submission: &Submission) -> Result<HashMap<usize, InsertedJob>, Fault> {
        let keyed = submission.jobs().iter().enumerate();
        let keyed: Vec<(usize, &JobSpec)> = keyed.filter(|(_, spec)| spec.options.idempotency.is_some()).collect();
        if keyed.is_empty() {
            return Ok(HashMap::new());
        }
        let columns = Keys::of(keyed.iter().map(|(_, spec)| *spec));
        let rows = self.link.query(include_str!("sql/key_find.sql"), &columns.with(&self.now.as_micros())).await?;
        let found = rows.iter().map(|row| (row.get::<_, i64>(0), JobId::from_uuid(row.get(1)), row.get::<_, bool>(2)));
        let found: Vec<_> = found.collect();
        self.load(found.iter().map(|(_, id, _)| *id)).await?;
        let answers = found.into_iter().map(|(place, id, matches)| {
            let place = keyed[usize::try_from(place - 1).unwrap_or_default()].0;
            let state = self.by_id(id).map(|entry| entry.job.state);
            (place, InsertedJob { id, existing: true, state, matches })
        });
        Ok(answers.collect())
    }

    async fn write(&mut self, plans: Vec<Plan>, origin: &Origin) -> Result<Vec<InsertedJob>, Fault> {
        let mut answers: Vec<InsertedJob> = Vec::with_capacity(plans.len());
        let mut added: Vec<i64> = Vec::new();
        let mut dead: Vec<(i64, Verdict)> = Vec::new();
        let mut keyed: Vec<(JobSpec, JobId)> = Vec::new();
        for plan in plans {
            let answer = match plan {
                Plan::Existing(existing) => existing,
                Plan::Repeated(first, matches) => InsertedJob { existing: true, matches, ..answers[first] },
                Plan::New(entry) => {
                    let (id, seq, state) = (entry.id, entry.seq, entry.state());
                    dead.extend(entry.admission.verdict.clone().map(|verdict| (seq, verdict)));
                    if entry.spec.options.idempotency.is_some() {
                        keyed.push((entry.spec.clone(), id));
                    }
                    self.write_new(*entry, origin).await?;
                    added.push(seq);
                    InsertedJob { id, existing: false, state: Some(state), matches: true }
                }
            };
            answers.push(answer);
        }
        self.keep_keys(&keyed).await?;
        // Each job that dies at once has its own verdict, so none needs to hear of another's end.
        for (seq, verdict) in dead {
            self.end(seq, &verdict, Outcome::Revoked).await?;
        }
        for seq in added {
            self.join(seq)?;
        }
        Ok(answers)
    }

    async fn draw(&mut self, count: usize) -> Result<Vec<i64>, Fault> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let rows = self.link.query(include_str!("sql/seq_draw.sql"), &[&count]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn write_new(&mut self, new: NewEntry, origin: &Origin) -> Result<(), Fault> {
        let (now, seq) = (self.now, new.seq);
        let lane = self.lane(&new.spec.queue, &new.spec.job_type).await?;
        // A job that dies at once is PENDING for the length of this call.
        let state = if new.admission.verdict.is_some() { State::Pending } else { new.state() };
        let slow = new.spec.options.callback_url.is_some();
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
        let (waits, depth) = (new.admission.waits, new.admission.depth);
        self.add(Entry { seq, lane, job, token: None, worker: None, slow, waits, depth });
        self.events.push((lane, EVENT_ACCEPTED, seq));
        self.hint_scheduled(seq);
        Ok(())
    }

    /// Enters a new job with the jobs it waits for, whose ends then have consequences.
    fn join(&mut self, seq: i64) -> Result<(), Fault> {
        let spec = Arc::clone(&self.entry(seq).job.spec);
        for dependency in &spec.depends_on {
            let DependsOn::Job(on) = dependency.on else { continue };
            let parent = self.seq_of(on).ok_or_else(|| rows::corrupt("a dependency that vanished"))?;
            let open = !self.entry(parent).job.state.is_terminal();
            self.set_edge((parent, seq, kind_number(dependency.kind)), open);
            if open && !self.entry(parent).slow {
                self.change(parent).slow = true;
            }
        }
        Ok(())
    }

    async fn keep_keys(&mut self, keyed: &[(JobSpec, JobId)]) -> Result<(), Fault> {
        if keyed.is_empty() {
            return Ok(());
        }
        let now = self.now;
        let columns = Keys::of(keyed.iter().map(|(spec, _)| spec));
        let ids: Vec<uuid::Uuid> = keyed.iter().map(|(_, id)| id.as_uuid()).collect();
        let window = |spec: &JobSpec| spec.options.idempotency.as_ref().and_then(|key| key.window);
        let ends: Vec<Option<i64>> =
            keyed.iter().map(|(spec, _)| window(spec).map(|window| now.plus(window).as_micros())).collect();
        let now = now.as_micros();
        let mut parameters = columns.with(&now);
        parameters.push(&ids);
        parameters.push(&ends);
        let kept = self.link.execute(include_str!("sql/key_put.sql"), &parameters).await?;
        // Somebody took one of the keys since they were looked at: everything is looked at again.
        if kept == keyed.len() as u64 { Ok(()) } else { Err(Fault::Overtaken) }
    }
}

/// The columns that say what idempotency keys stand for.
pub(super) struct Keys<'k> {
    scopes: Vec<String>,
    keys: Vec<&'k str>,
    types: Vec<&'k str>,
    content_types: Vec<Option<&'k str>>,
    payloads: Vec<&'k [u8]>,
}

impl<'k> Keys<'k> {
    pub(super) fn of(specs: impl Iterator<Item = &'k JobSpec>) -> Self {
        let mut columns = Keys {
            scopes: Vec::new(),
            keys: Vec::new(),
            types: Vec::new(),
            content_types: Vec::new(),
            payloads: Vec::new(),
        };
        for spec in specs {
            let Some((scope, key)) = spec.idempotency_scope().zip(spec.options.idempotency.as_ref()) else { continue };
            columns.scopes.push(scope);
            columns.keys.push(&key.key);
            columns.types.push(spec.job_type.as_str());
            columns.content_types.push(spec.payload.stored_content_type());
            columns.payloads.push(spec.payload.as_bytes());
        }
        columns
    }

    pub(super) fn with<'p>(&'p self, now: &'p i64) -> Vec<super::link::Parameter<'p>> {
        vec![now, &self.scopes, &self.keys, &self.types, &self.content_types, &self.payloads]
    }
}
