//! Storing a submission: first everything is looked at, then everything is written, so that a refusal writes nothing.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::columns::{dependencies, digest, text};
use super::fault::Answer;
use super::fresh::Fresh;
use super::held::Hold;
use super::rows::FLAG_CALLBACK;
use super::tx::Tx;
use crate::error::Error;
use crate::job::{
    Dependency, DependsOn, Firing, JobId, JobOptions, JobSpec, Outcome, Priority, State, Timeouts, WorkflowId,
};
use crate::store::answer::{Inserted, InsertedJob};
use crate::store::new_workflow_id;
use crate::time::Timestamp;
use crate::workflow::graph::{self, Admission, Parent, Waits};
use crate::workflow::{Submission, resolve};

/// Where a submission's jobs come from.
#[derive(Clone, Default)]
pub(super) struct Origin {
    pub(super) workflow: Option<WorkflowId>,
    pub(super) spawned_by: Option<JobId>,
    pub(super) firing: Option<Firing>,
}

impl Origin {
    /// Whether a client submitted it, and not as a workflow.
    fn is_client(&self) -> bool {
        self.workflow.is_none() && self.spawned_by.is_none() && self.firing.is_none()
    }
}

/// What becomes of one place of a submission.
enum Plan<'s> {
    /// Its idempotency key stands for a job that is stored, or was.
    Existing(InsertedJob),
    /// Its key is that of an earlier place; whether type and payload are the same, too.
    Repeated(usize, bool),
    New(Box<NewJobPlan<'s>>),
}

struct NewJobPlan<'s> {
    seq: i64,
    id: JobId,
    spec: &'s JobSpec,
    depends_on: Vec<Dependency>,
    /// The sequence of each dependency, and whether it is unfinished.
    parents: Vec<(i64, bool)>,
    run_at: Option<Timestamp>,
    admission: Admission,
}

impl NewJobPlan<'_> {
    /// The state it comes to rest in (S1), or dies in at once (S3).
    fn state(&self) -> State {
        match &self.admission.verdict {
            Some(verdict) => State::Pending.after(verdict.event).expect("dependencies end PENDING jobs"),
            None if !self.admission.waits.is_over() => State::Pending,
            None if self.run_at.is_some() => State::Delayed,
            None => State::Scheduled,
        }
    }

    /// Whether it says nothing but its lane, its priority and a JSON payload, and can be claimed at once.
    fn is_plain(&self) -> bool {
        self.run_at.is_none()
            && self.depends_on.is_empty()
            && self.spec.payload.stored_content_type().is_none()
            && self.spec.options == JobOptions::default()
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

/// The admission of a job that depends on nothing.
fn free() -> Admission {
    Admission { inherited_priority: None, depth: 1, waits: Waits::default(), verdict: None }
}

impl Tx<'_> {
    pub(super) fn insert(&mut self, submission: &Submission) -> Answer<Inserted> {
        let plans = self.plan(submission)?;
        let workflow = submission.workflow_name().map(|name| (new_workflow_id(), name));
        if let Some((id, name)) = &workflow {
            let seq = self.tick();
            let record = params![seq, id.as_uuid().into_bytes(), name, self.now.as_micros()];
            self.statement(include_str!("sql/add_workflow.sql"))?.execute(record)?;
        }
        let workflow = workflow.map(|(id, _)| id);
        let jobs = self.write(plans, &Origin { workflow, ..Origin::default() })?;
        Ok(Inserted { jobs, workflow })
    }

    /// Stores a submission that the store itself makes: spawned children, firings, webhooks.
    pub(super) fn insert_from(&mut self, submission: &Submission, origin: &Origin) -> Answer<Vec<InsertedJob>> {
        let plans = self.plan(submission)?;
        let inserted = self.write(plans, origin)?;
        // What made the submission may look at it.
        self.write_fresh()?;
        Ok(inserted)
    }

    /// Refuses a submission that [`insert_from`](Self::insert_from) would refuse, and changes nothing.
    ///
    /// Gives the jobs that whoever waits for all of its jobs waits for with them: those that its idempotency keys stand
    /// for, and those that its new jobs depend on.
    pub(super) fn would_insert(&mut self, submission: &Submission) -> Answer<Vec<JobId>> {
        let mut reached = Vec::new();
        for plan in self.plan(submission)? {
            match plan {
                Plan::Existing(existing) => reached.push(existing.id),
                Plan::New(new) => reached.extend(new.depends_on.iter().filter_map(named)),
                Plan::Repeated(..) => {}
            }
        }
        Ok(reached)
    }

    fn plan<'s>(&mut self, submission: &'s Submission) -> Answer<Vec<Plan<'s>>> {
        let jobs = submission.jobs();
        let mut plans: Vec<Option<Plan<'s>>> = Vec::with_capacity(jobs.len());
        let mut ids: Vec<(JobId, i64)> = Vec::with_capacity(jobs.len());
        let mut next = self.ticks() + i64::from(submission.workflow_name().is_some());
        for (place, spec) in jobs.iter().enumerate() {
            let (id, plan) = match submission.duplicate_of(place) {
                Some(first) => {
                    let earlier = &jobs[first];
                    let same = earlier.job_type == spec.job_type && earlier.payload == spec.payload;
                    let matches = self.existing(spec)?.map_or(same, |existing| existing.matches);
                    (ids[first], Some(Plan::Repeated(first, matches)))
                }
                None => match self.existing(spec)? {
                    Some(existing) => ((existing.id, 0), Some(Plan::Existing(existing))),
                    None => {
                        next += 1;
                        ((self.draw_id(next), next), None)
                    }
                },
            };
            ids.push(id);
            plans.push(plan);
        }
        if jobs.iter().all(|spec| spec.depends_on.is_empty()) {
            for (place, spec) in jobs.iter().enumerate() {
                if plans[place].is_none() {
                    let (id, seq) = ids[place];
                    let run_at = spec.first_run(self.now)?;
                    let (depends_on, parents) = (Vec::new(), Vec::new());
                    let new = NewJobPlan { seq, id, spec, depends_on, parents, run_at, admission: free() };
                    plans[place] = Some(Plan::New(Box::new(new)));
                }
            }
        } else {
            self.write_fresh()?;
            self.plan_graph(submission, &mut plans, &ids)?;
        }
        Ok(plans.into_iter().map(|plan| plan.expect("every place was planned")).collect())
    }

    fn plan_graph<'s>(
        &mut self,
        submission: &'s Submission,
        plans: &mut [Option<Plan<'s>>],
        ids: &[(JobId, i64)],
    ) -> Answer<()> {
        let plain: Vec<JobId> = ids.iter().map(|(id, _)| *id).collect();
        let places: HashMap<JobId, usize> = plain.iter().enumerate().rev().map(|(place, id)| (*id, place)).collect();
        for place in submission.order() {
            if plans[*place].is_some() {
                continue;
            }
            let spec = &submission.jobs()[*place];
            let depends_on = resolve(&spec.depends_on, &plain);
            let mut parents = Vec::with_capacity(depends_on.len());
            for dependency in &depends_on {
                let DependsOn::Job(on) = dependency.on else { unreachable!("places were resolved") };
                let planned = places.get(&on).and_then(|place| match &plans[*place] {
                    Some(Plan::New(new)) => Some(new.as_ref()),
                    Some(Plan::Existing(_) | Plan::Repeated(..)) | None => None,
                });
                parents.push(self.parent(on, dependency, planned)?);
            }
            let admission = graph::admit(spec, &parents.iter().map(|(parent, _)| *parent).collect::<Vec<_>>())?;
            let parents = parents.iter().map(|(parent, seq)| (*seq, !parent.state.is_terminal())).collect();
            let ((id, seq), run_at) = (ids[*place], spec.first_run(self.now)?);
            let new = NewJobPlan { seq, id, spec, depends_on, parents, run_at, admission };
            plans[*place] = Some(Plan::New(Box::new(new)));
        }
        Ok(())
    }

    /// What the rules need to know of a dependency: of a job that comes with this one, or of a stored one.
    fn parent(
        &mut self,
        id: JobId,
        dependency: &Dependency,
        planned: Option<&NewJobPlan<'_>>,
    ) -> Answer<(Parent, i64)> {
        let kind = dependency.kind;
        if let Some(new) = planned {
            let (state, priority, depth, cause) = (new.state(), new.priority(), new.admission.depth, new.cause());
            return Ok((Parent { id, kind, state, priority, depth, cause }, new.seq));
        }
        let stored = self.load_id(id)?.ok_or(Error::DependencyNotFound { job: id })?;
        let job = &stored.job;
        let (state, priority, depth, cause) = (job.state, job.effective_priority(), stored.depth, job.root_cause());
        Ok((Parent { id, kind, state, priority, depth, cause }, stored.seq))
    }

    /// The job that a submission's idempotency key already stands for.
    fn existing(&mut self, spec: &JobSpec) -> Answer<Option<InsertedJob>> {
        let Some((scope, key)) = scoped_key(spec) else { return Ok(None) };
        let mut statement = self.statement(include_str!("sql/find_key.sql"))?;
        let found = statement.query_row([scope.as_str(), key], |row| {
            let (id, job_type, kept): ([u8; 16], String, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok((id, job_type, kept, row.get::<_, Option<i64>>(3)?))
        });
        let Some((id, job_type, kept, expires_at)) = found.optional()? else { return Ok(None) };
        if expires_at.is_some_and(|expires_at| expires_at <= self.now.as_micros()) {
            return Ok(None);
        }
        let id = JobId::from_uuid(Uuid::from_bytes(id));
        Ok(Some(InsertedJob {
            id,
            existing: true,
            state: self.load_id(id)?.map(|stored| stored.job.state),
            matches: job_type == spec.job_type.as_str() && kept == digest(&spec.payload),
        }))
    }

    fn write(&mut self, plans: Vec<Plan<'_>>, origin: &Origin) -> Answer<Vec<InsertedJob>> {
        let mut answers: Vec<InsertedJob> = Vec::with_capacity(plans.len());
        let mut dead = Vec::new();
        for plan in plans {
            let answer = match plan {
                Plan::Existing(existing) => existing,
                Plan::Repeated(first, matches) => InsertedJob { existing: true, matches, ..answers[first] },
                Plan::New(new) => {
                    self.write_new(&new, origin)?;
                    if let Some(verdict) = &new.admission.verdict {
                        dead.push((new.seq, verdict.clone()));
                    }
                    InsertedJob { id: new.id, existing: false, state: Some(new.state()), matches: true }
                }
            };
            answers.push(answer);
        }
        // Each job that dies at once has its own verdict, so none needs to hear of another's end.
        for (seq, verdict) in dead {
            self.end(seq, &verdict, Outcome::Revoked)?;
        }
        Ok(answers)
    }

    fn write_new(&mut self, new: &NewJobPlan<'_>, origin: &Origin) -> Answer<()> {
        let seq = self.tick();
        debug_assert_eq!(seq, new.seq, "nobody else draws numbers in this transaction");
        self.accept();
        let spec = new.spec;
        let lane = self.lane_of(spec)?;
        let now = self.now.as_micros();
        let first_at = new.run_at.map(Timestamp::as_micros);
        if new.is_plain() && origin.is_client() {
            let (id, priority, payload) = (new.id, spec.priority.number(), spec.payload.as_bytes().clone());
            self.count(lane, State::Scheduled, 1);
            self.hint_scheduled(&spec.queue);
            self.fresh.push(Fresh { seq, id, lane, priority, created_at: now, payload });
            return Ok(());
        }
        self.write_fresh()?;
        let options = Some(&spec.options).filter(|options| **options != JobOptions::default()).map(text);
        self.execute(
            Hold::AddJob,
            params![
                seq,
                new.id.as_uuid().as_bytes(),
                lane,
                spec.priority.number(),
                new.admission.inherited_priority.map(Priority::number),
                now,
                first_at,
                new.admission.depth,
                origin.workflow.map(|id| id.as_uuid().into_bytes()),
                origin.firing.as_ref().map(|firing| firing.schedule.as_str()),
                origin.firing.as_ref().map(|firing| firing.slot.as_micros()),
                origin.spawned_by.map(|id| id.as_uuid().into_bytes()),
                dependencies(&new.depends_on),
                options,
                spec.payload.stored_content_type(),
                spec.payload.as_bytes().as_ref(),
            ],
        )?;
        for (dependency, (parent, unfinished)) in new.depends_on.iter().zip(&new.parents) {
            self.add_edge(*parent, seq, dependency.kind, *unfinished)?;
        }
        self.keep_key(spec, new.id)?;
        let deadline = spec.deadline(self.now).map(Timestamp::as_micros);
        // Nearly all jobs have the standard lifetime, and upkeep finds its end by their order.
        if spec.options.timeouts.lifetime != Timeouts::default().lifetime {
            self.keep_lifetime(deadline, seq)?;
        }
        self.rest(new, lane, deadline, first_at)
    }

    /// Puts a new job where it rests.
    fn rest(&mut self, new: &NewJobPlan<'_>, lane: i64, deadline: Option<i64>, first_at: Option<i64>) -> Answer<()> {
        let now = self.now.as_micros();
        let flags = if new.spec.options.callback_url.is_some() { FLAG_CALLBACK } else { 0 };
        // A job that dies at once is PENDING for the length of this call.
        if new.admission.verdict.is_some() || !new.admission.waits.is_over() {
            self.count(lane, State::Pending, 1);
            let waits = new.admission.waits;
            let run_at = first_at;
            self.statement(include_str!("sql/add_pending.sql"))?.execute(params![
                new.seq,
                lane,
                new.priority().number(),
                deadline,
                flags,
                0,
                0,
                0,
                0,
                0,
                now,
                None::<i64>,
                None::<i64>,
                now,
                run_at,
                waits.all,
                waits.any
            ])?;
            return Ok(());
        }
        let (kind, at) = first_at.map_or((0, now), |at| (1, at));
        let began = first_at.map(|_| now);
        self.count(lane, if kind == 0 { State::Scheduled } else { State::Delayed }, 1);
        let priority = new.priority().number();
        let place = params![lane, priority, at, new.seq, kind, deadline, flags, began];
        self.execute(Hold::AddNewWaiting, place)?;
        if kind == 0 {
            self.hint_scheduled(&new.spec.queue);
        }
        Ok(())
    }

    pub(super) fn keep_lifetime(&mut self, deadline: Option<i64>, seq: i64) -> Answer<()> {
        if let Some(deadline) = deadline {
            self.execute(Hold::AddLifetime, [deadline, seq])?;
        }
        Ok(())
    }

    fn keep_key(&mut self, spec: &JobSpec, id: JobId) -> Answer<()> {
        let Some((scope, key)) = scoped_key(spec) else { return Ok(()) };
        let window = spec.options.idempotency.as_ref().and_then(|key| key.window);
        let expires_at = window.map(|window| self.now.plus(window).as_micros());
        let (job_type, digest) = (spec.job_type.as_str(), digest(&spec.payload));
        let kept = params![scope, key, id.as_uuid().into_bytes(), job_type, digest, expires_at];
        self.statement(include_str!("sql/put_key.sql"))?.execute(kept)?;
        Ok(())
    }
}

fn named(dependency: &Dependency) -> Option<JobId> {
    match dependency.on {
        DependsOn::Job(on) => Some(on),
        DependsOn::Batch(_) => None,
    }
}

fn scoped_key(spec: &JobSpec) -> Option<(String, &str)> {
    let key = spec.options.idempotency.as_ref()?.key.as_str();
    Some((spec.idempotency_scope()?, key))
}
