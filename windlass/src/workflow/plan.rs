//! Planning a submission: what becomes of each of its jobs, decided from what a store looked up.
//!
//! A store says what the idempotency keys stand for and where the named jobs stand ([`Lookup`] in, [`Found`] out),
//! [`Submission::plan`] decides, and the store writes the [`SubmissionPlan`] down. A refusal writes nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::graph::{self, Admission, Parent};
use super::submission::{Submission, resolve};
use crate::error::{Error, Result};
use crate::job::{
    Dependency, DependencyKind, DependsOn, Firing, Idempotency, JobId, JobRecord, JobSpec, OnExisting, Outcome,
    Priority, State, Until, WorkflowId,
};
use crate::time::Timestamp;

/// Counts submissions: a job's number never changes and is never used again. Signed, as databases count.
pub type Sequence = i64;

/// What a store gives a new job: its number, and its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its place in the order of submission.
    pub sequence: Sequence,
    /// Its id.
    pub id: JobId,
}

/// Where a submission's jobs come from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The workflow they belong to.
    pub workflow: Option<WorkflowId>,
    /// The job that spawned them.
    pub spawned_by: Option<JobId>,
    /// The firing they stand for.
    pub firing: Option<Firing>,
}

/// What became of one job of a submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct InsertedJob {
    /// Its id, or that of the job its idempotency key stands for.
    pub id: JobId,
    /// Whether the job was there before.
    pub existing: bool,
    /// Its state; `None` when an existing job has been pruned.
    pub state: Option<State>,
    /// For an existing job: whether type and payload are the same.
    pub matches: bool,
}

/// What a store must look up before a submission can be planned.
#[derive(Clone, PartialEq, Debug)]
pub struct Lookup<'s> {
    /// The places with an idempotency key, and their jobs.
    pub keys: Vec<(usize, &'s JobSpec)>,
    /// The stored jobs that are named as dependencies, each once.
    pub jobs: Vec<JobId>,
}

/// What a store found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Found {
    /// By place: the job that its key stands for, where the key is taken.
    pub keys: HashMap<usize, KeyHolder>,
    /// The named jobs that exist.
    pub jobs: HashMap<JobId, Standing>,
}

/// What a store has kept of an idempotency key whose window is not over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The job that the key stands for.
    pub id: JobId,
    /// Whether its type and payload are those of the job that was submitted now.
    pub matches: bool,
    /// Up to when the key stands for it.
    pub until: Until,
    /// When the first of the jobs was submitted that replaced each other up to this one.
    pub first_at: Timestamp,
}

/// The job that an idempotency key stands for, or stood for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHolder {
    /// What is kept of the key.
    pub held: Held,
    /// Where the job stands; `None` when it has been pruned.
    pub standing: Option<Standing>,
    /// Whether it has the type and the queue of the job that was submitted now.
    pub same_lane: bool,
}

impl KeyHolder {
    /// What a store has kept of a key, with the job if that still exists, for a job that was submitted now.
    pub fn of(held: Held, job: Option<(&JobRecord, u32)>, submitted: &JobSpec) -> Self {
        let same = |job: &JobRecord| job.spec.job_type == submitted.job_type && job.spec.queue == submitted.queue;
        KeyHolder {
            held,
            standing: job.map(|(job, depth)| Standing::of(job, depth)),
            same_lane: job.is_some_and(|(job, _)| same(job)),
        }
    }

    /// Whether the key still stands for the job (U1).
    fn holds(&self) -> bool {
        !self.held.until.is_over(self.standing.map(|standing| (standing.state, standing.was_claimed)))
    }

    /// Whether the job makes room for a submission with this key (U3).
    fn gives_way(&self, key: &Idempotency) -> bool {
        let is_untouched = |standing: Standing| !standing.was_claimed && !standing.state.is_terminal();
        key.on_existing == OnExisting::Replace && self.same_lane && self.standing.is_some_and(is_untouched)
    }
}

/// What a new job's idempotency key stands for from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewKey {
    /// Up to when it stands for the job.
    pub until: Until,
    /// When the first of the jobs was submitted that replaced each other up to this one.
    pub first_at: Timestamp,
    /// When it stops to stand for the job in any case.
    pub expires_at: Option<Timestamp>,
    /// The job that it stood for until now and that was looked at. A store takes the key only if it still stands for
    /// that job, if it is free, or if its time is over.
    pub instead_of: Option<JobId>,
}

/// Where a stored job stands, as far as jobs that depend on it care.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Its state.
    pub state: State,
    /// Its effective priority.
    pub priority: Priority,
    /// How long the chain of unfinished jobs up to it is.
    pub depth: u32,
    /// The job that its own bad end began with: itself, unless it died of a dependency.
    pub cause: JobId,
    /// Whether it was ever claimed.
    pub was_claimed: bool,
}

impl Standing {
    /// Where a job stands; stores keep the depth of its submission beside the record. One that waits for no job any more is
    /// where a chain begins.
    pub fn of(job: &JobRecord, depth: u32) -> Self {
        Standing {
            state: job.state,
            priority: job.effective_priority(),
            depth: if job.state == State::Pending { depth } else { 1 },
            cause: job.root_cause(),
            was_claimed: job.was_claimed(),
        }
    }

    fn parent(self, id: JobId, kind: DependencyKind) -> Parent {
        let Standing { state, priority, depth, cause, .. } = self;
        Parent { id, kind, state, priority, depth, cause }
    }
}

/// What becomes of every place of a submission.
#[derive(Clone, PartialEq, Debug)]
pub struct SubmissionPlan<'s> {
    places: Vec<Planned<'s>>,
}

/// What becomes of one place of a submission.
#[derive(Clone, PartialEq, Debug)]
enum Planned<'s> {
    /// Its idempotency key stands for a job that is stored, or was.
    Existing(InsertedJob),
    /// Its key is that of an earlier place; `matches` says whether type and payload are the same, too.
    Repeated {
        first: usize,
        matches: bool,
    },
    New(Box<NewRecord<'s>>),
}

/// A job that is to be stored.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct NewRecord<'s> {
    /// Its number and its id.
    pub identity: Identity,
    /// What was submitted; dependencies may still be places of the batch.
    pub spec: &'s JobSpec,
    /// Its dependencies by id, and whether each is unfinished.
    pub depends_on: Vec<(JobId, DependencyKind, bool)>,
    /// Not before this moment, if that lies ahead.
    pub run_at: Option<Timestamp>,
    /// How it joins the graph.
    pub admission: Admission,
    /// What its idempotency key stands for from now on, if it has one.
    pub key: Option<NewKey>,
    /// The job that is cancelled in its favour.
    pub replaces: Option<JobId>,
}

impl Submission {
    /// What a store looks up before it asks for a plan.
    pub fn lookup(&self) -> Lookup<'_> {
        let keyed = self.jobs().iter().enumerate().filter(|(_, spec)| spec.options.idempotency.is_some());
        let dependencies = self.jobs().iter().flat_map(|spec| &spec.depends_on);
        let mut seen = HashSet::new();
        let named = dependencies.filter_map(|dependency| match dependency.on {
            DependsOn::Job(id) => Some(id),
            DependsOn::Batch(_) => None,
        });
        Lookup { keys: keyed.collect(), jobs: named.filter(|id| seen.insert(*id)).collect() }
    }

    /// How many new jobs a plan would have, for stores that draw their identities beforehand.
    pub fn new_count(&self, found: &Found) -> usize {
        let is_new = |place: &usize| self.duplicate_of(*place).is_none() && self.existing(*place, found).is_none();
        (0..self.jobs().len()).filter(is_new).count()
    }

    /// The job that stays in place of a submitted one: its key stands for that, and it does not make room.
    fn existing<'f>(&self, place: usize, found: &'f Found) -> Option<&'f KeyHolder> {
        let key = self.jobs()[place].options.idempotency.as_ref()?;
        found.keys.get(&place).filter(|holder| holder.holds() && !holder.gives_way(key))
    }

    /// Decides what becomes of each job. `draw` is asked once for each new one, in the order of the call.
    pub fn plan<'s>(
        &'s self,
        found: &Found,
        now: Timestamp,
        draw: &mut dyn FnMut() -> Identity,
    ) -> Result<SubmissionPlan<'s>> {
        let jobs = self.jobs();
        let mut drawn: Vec<Drawn> = Vec::with_capacity(jobs.len());
        for place in 0..jobs.len() {
            let one = self.draw_place(place, found, &drawn, draw);
            drawn.push(one);
        }
        let mut places: Vec<Option<Planned<'s>>> = Vec::with_capacity(jobs.len());
        let is_flat = jobs.iter().all(|spec| spec.depends_on.is_empty());
        for (one, spec) in drawn.iter().zip(jobs) {
            places.push(match *one {
                Drawn::Existing(existing) => Some(Planned::Existing(existing)),
                Drawn::Repeated { first, matches, .. } => Some(Planned::Repeated { first, matches }),
                Drawn::New(drawn) if is_flat => Some(new_record(drawn, spec, Vec::new(), &[], now)?),
                Drawn::New(_) => None,
            });
        }
        if !is_flat {
            self.plan_graph(found, &drawn, &mut places, now)?;
        }
        let places = places.into_iter().map(|place| place.expect("the order names every place")).collect();
        Ok(SubmissionPlan { places })
    }

    /// Whether a place is an earlier one's, a stored job's, or a new job's, which is then given its identity.
    fn draw_place(&self, place: usize, found: &Found, before: &[Drawn], draw: &mut dyn FnMut() -> Identity) -> Drawn {
        match (self.duplicate_of(place), self.existing(place, found)) {
            (Some(first), _) => {
                let (earlier, spec) = (&self.jobs()[first], &self.jobs()[place]);
                let same = earlier.job_type == spec.job_type && earlier.payload == spec.payload;
                // What counts is the job whose id the place is given.
                let kept = self.existing(first, found).and_then(|_| found.keys.get(&place));
                let matches = kept.map_or(same, |holder| holder.held.matches);
                Drawn::Repeated { id: before[first].id(), first, matches }
            }
            (None, Some(KeyHolder { held, standing, .. })) => {
                let state = standing.map(|standing| standing.state);
                Drawn::Existing(InsertedJob { id: held.id, existing: true, state, matches: held.matches })
            }
            (None, None) => Drawn::New(New { identity: draw(), holder: found.keys.get(&place).copied() }),
        }
    }

    /// Plans the new jobs of a submission with dependencies, each after those it depends on.
    fn plan_graph<'s>(
        &'s self,
        found: &Found,
        drawn: &[Drawn],
        places: &mut [Option<Planned<'s>>],
        now: Timestamp,
    ) -> Result<()> {
        let ids: Vec<JobId> = drawn.iter().map(|one| one.id()).collect();
        let by_id: HashMap<JobId, usize> = ids.iter().enumerate().rev().map(|(place, id)| (*id, place)).collect();
        let holders = found.keys.values().filter_map(|holder| Some((holder.held.id, holder.standing?)));
        let holders: HashMap<JobId, Standing> = holders.collect();
        for place in self.order().iter().copied() {
            let Drawn::New(new) = drawn[place] else { continue };
            let spec = &self.jobs()[place];
            let resolved = resolve(&spec.depends_on, &ids);
            let mut parents = Vec::with_capacity(resolved.len());
            for Dependency { on, kind } in &resolved {
                let DependsOn::Job(id) = *on else { unreachable!("places were resolved") };
                let planned = by_id.get(&id).and_then(|place| match &places[*place] {
                    Some(Planned::New(new)) => Some(new.standing()),
                    Some(Planned::Existing(_) | Planned::Repeated { .. }) | None => None,
                });
                let standing = planned.or_else(|| found.jobs.get(&id).or_else(|| holders.get(&id)).copied());
                parents.push(standing.ok_or(Error::DependencyNotFound { job: id })?.parent(id, *kind));
            }
            let depends_on = parents.iter().map(|parent| (parent.id, parent.kind, !parent.state.is_terminal()));
            places[place] = Some(new_record(new, spec, depends_on.collect(), &parents, now)?);
        }
        Ok(())
    }
}

fn new_record<'s>(
    New { identity, holder }: New,
    spec: &'s JobSpec,
    depends_on: Vec<(JobId, DependencyKind, bool)>,
    parents: &[Parent],
    now: Timestamp,
) -> Result<Planned<'s>> {
    let admission = graph::admit(spec, parents)?;
    let key = spec.options.idempotency.as_ref();
    let replaced = key.and_then(|key| holder.filter(|holder| holder.holds() && holder.gives_way(key)));
    // Submissions that replace each other count as one, which began with the first.
    let first_at = replaced.map_or(now, |replaced| replaced.held.first_at);
    let run_at = match spec.options.debounce() {
        Some(debounce) => Some(debounce.run_at(first_at, now)).filter(|at| *at > now),
        None => spec.first_run(now)?,
    };
    let key = key.map(|key| NewKey {
        until: key.until,
        first_at,
        expires_at: key.expires_at(first_at, now),
        instead_of: holder.map(|holder| holder.held.id),
    });
    let replaces = replaced.map(|replaced| replaced.held.id);
    Ok(Planned::New(Box::new(NewRecord { identity, spec, depends_on, run_at, admission, key, replaces })))
}

/// A job that is to be stored, with what its key stood for.
#[derive(Clone, Copy)]
struct New {
    identity: Identity,
    holder: Option<KeyHolder>,
}

/// A place whose id is known.
#[derive(Clone, Copy)]
enum Drawn {
    Existing(InsertedJob),
    Repeated { id: JobId, first: usize, matches: bool },
    New(New),
}

impl Drawn {
    fn id(self) -> JobId {
        match self {
            Drawn::Existing(existing) => existing.id,
            Drawn::Repeated { id, .. } => id,
            Drawn::New(new) => new.identity.id,
        }
    }
}

impl<'s> SubmissionPlan<'s> {
    /// The jobs that are to be stored, in the order of the call.
    pub fn new_jobs(&self) -> impl Iterator<Item = &NewRecord<'s>> {
        self.places.iter().filter_map(|place| match place {
            Planned::New(new) => Some(new.as_ref()),
            Planned::Existing(_) | Planned::Repeated { .. } => None,
        })
    }

    /// What the caller is told of each place once the new jobs are stored.
    pub fn answers(&self) -> Vec<InsertedJob> {
        let mut answers: Vec<InsertedJob> = Vec::with_capacity(self.places.len());
        for place in &self.places {
            answers.push(match place {
                Planned::Existing(existing) => *existing,
                Planned::Repeated { first, matches } => {
                    InsertedJob { existing: true, matches: *matches, ..answers[*first] }
                }
                Planned::New(new) => {
                    InsertedJob { id: new.identity.id, existing: false, state: Some(new.state()), matches: true }
                }
            });
        }
        answers
    }

    /// The jobs that a job waiting for all of these waits for, too: those that idempotency keys stand for, and those that
    /// the new jobs depend on.
    pub fn reaches(&self) -> Vec<JobId> {
        let mut reached = Vec::new();
        for place in &self.places {
            match place {
                Planned::Existing(existing) => reached.push(existing.id),
                Planned::New(new) => reached.extend(new.depends_on.iter().map(|(on, _, _)| *on)),
                Planned::Repeated { .. } => {}
            }
        }
        reached
    }
}

impl NewRecord<'_> {
    /// The state it comes to rest in (S1), or dies in at once (S3).
    pub fn state(&self) -> State {
        match &self.admission.verdict {
            Some(verdict) => State::Pending.after(verdict.event).expect("dependencies end PENDING jobs"),
            None if !self.admission.waits.is_over() => State::Pending,
            None if self.run_at.is_some() => State::Delayed,
            None => State::Scheduled,
        }
    }

    /// The most urgent of its own priority and the one it inherits (W3).
    pub fn priority(&self) -> Priority {
        let own = self.spec.priority;
        self.admission.inherited_priority.map_or(own, |inherited| inherited.min(own))
    }

    fn standing(&self) -> Standing {
        let reason = self.admission.verdict.as_ref().and_then(|verdict| verdict.reason.as_ref());
        let cause = reason.and_then(|reason| reason.cause).unwrap_or(self.identity.id);
        let (state, priority, depth) = (self.state(), self.priority(), self.admission.depth);
        Standing { state, priority, depth, cause, was_claimed: false }
    }

    /// The job as it is stored; one that dies at once is dead already, and its end is yet to be told.
    pub fn record(&self, origin: &Origin, now: Timestamp) -> JobRecord {
        let depends_on = self.depends_on.iter();
        let depends_on = depends_on.map(|(on, kind, _)| Dependency { on: DependsOn::Job(*on), kind: *kind }).collect();
        let spec = match self.run_at.filter(|_| self.spec.options.debounce().is_some()) {
            Some(run_at) => JobSpec { depends_on, ..self.spec.debounced(run_at) },
            None => JobSpec { depends_on, ..self.spec.clone() },
        };
        // A job that dies at once is PENDING on paper: that is the state which dependencies end.
        let state = if self.admission.verdict.is_some() { State::Pending } else { self.state() };
        let mut job = JobRecord {
            state,
            inherited_priority: self.admission.inherited_priority,
            scheduled_at: (state == State::Scheduled).then_some(now),
            run_at: self.run_at,
            workflow_id: origin.workflow,
            firing: origin.firing.clone(),
            spawned_by: origin.spawned_by,
            ..JobRecord::submitted(self.identity.id, Arc::new(spec), now)
        };
        if let Some(verdict) = &self.admission.verdict {
            job.apply(verdict, Outcome::Revoked, now).expect("dependencies end PENDING jobs");
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::job::{Limits, NewJob, Payload, Policies, Scope, Unique};

    fn checked(job: NewJob) -> JobSpec {
        job.check(&Limits::default(), &Policies::default()).expect("valid")
    }

    fn job(name: &str) -> NewJob {
        NewJob::new(name, Payload::default())
    }

    fn id(number: u128) -> JobId {
        JobId::from_uuid(Uuid::from_u128(number))
    }

    fn plan<'s>(submission: &'s Submission, found: &Found) -> Result<SubmissionPlan<'s>> {
        let mut next = 0;
        let mut draw = || {
            next += 1;
            Identity { sequence: next, id: id(next.unsigned_abs().into()) }
        };
        submission.plan(found, Timestamp::EPOCH, &mut draw)
    }

    fn standing(state: State, cause: u128) -> Standing {
        Standing { state, priority: Priority::High, depth: 1, cause: id(cause), was_claimed: false }
    }

    fn holder(id: JobId, until: Until, standing: Option<Standing>) -> KeyHolder {
        let held = Held { id, matches: true, until, first_at: Timestamp::EPOCH };
        KeyHolder { held, standing, same_lane: true }
    }

    #[test]
    fn i2_a_repeated_key_gets_the_first_ones_answer() {
        let keyed = |name: &str| checked(job(name).idempotency("k", Scope::Global, None));
        let batch = Submission::new(vec![keyed("a"), checked(job("b")), keyed("c")]).expect("valid");
        assert_eq!(batch.lookup().keys.len(), 2);
        let answers = plan(&batch, &Found::default()).expect("planned").answers();
        assert_eq!((answers[2].id, answers[2].existing, answers[2].matches), (answers[0].id, true, false));
        let holder = holder(id(99), Until::Window, None);
        let found = Found { keys: HashMap::from([(0, holder), (2, holder)]), ..Found::default() };
        assert_eq!(batch.new_count(&found), 1);
        let answers = plan(&batch, &found).expect("planned").answers();
        assert_eq!(answers[0], InsertedJob { id: id(99), existing: true, state: None, matches: true });
        assert_eq!(answers[1].id, id(1), "only new jobs draw an identity");
    }

    #[test]
    fn w1_an_unknown_dependency_is_refused_also_behind_a_key() {
        let named = Submission::new(vec![checked(job("a").after([id(7)]))]).expect("valid");
        assert_eq!(plan(&named, &Found::default()).expect_err("unknown").name(), "DependencyNotFound");
        let first = checked(job("a").idempotency_key("k"));
        let second = checked(job("b").depends_on(DependsOn::Batch(0), DependencyKind::After));
        let batch = Submission::new(vec![first, second]).expect("valid");
        let holder = |standing| holder(id(7), Until::Window, standing);
        let found = |standing| Found { keys: HashMap::from([(0, holder(standing))]), ..Found::default() };
        assert_eq!(plan(&batch, &found(None)).expect_err("pruned").name(), "DependencyNotFound");
        let planned = plan(&batch, &found(Some(standing(State::Running, 7)))).expect("planned");
        assert_eq!(planned.reaches(), [id(7), id(7)]);
        assert_eq!(planned.answers()[1].state, Some(State::Pending));
    }

    #[test]
    fn w2_a_death_at_submission_names_the_job_it_began_with() {
        let first = checked(job("a").after([id(7)]));
        let second = checked(job("b").depends_on(DependsOn::Batch(0), DependencyKind::After));
        let third = checked(job("c").depends_on(DependsOn::Batch(1), DependencyKind::AfterAll));
        let batch = Submission::new(vec![first, second, third]).expect("valid");
        let found = Found { jobs: HashMap::from([(id(7), standing(State::Failed, 5))]), ..Found::default() };
        let planned = plan(&batch, &found).expect("planned");
        let records: Vec<_> = planned.new_jobs().map(|new| new.record(&Origin::default(), Timestamp::EPOCH)).collect();
        assert_eq!(
            records.iter().map(|job| job.state).collect::<Vec<_>>(),
            [State::Failed, State::Failed, State::Scheduled]
        );
        assert_eq!(records[1].root_cause(), id(5));
        assert_eq!(records[2].effective_priority(), Priority::High, "dead jobs still pass their priority on");
    }

    #[test]
    fn u1_and_u3_what_a_key_stands_for_stays_is_replaced_or_forgotten() {
        let was = |state, was_claimed| Some(Standing { was_claimed, ..standing(state, 7) });
        let keep = |unique: Unique| checked(job("a").unique(unique));
        let key = || Unique::key("k");
        let cases = [
            // until, on_existing, the job: stays, or is replaced, or the key is taken over.
            (Until::Window, key(), was(State::Completed, true), "stays"),
            (Until::Window, key(), None, "stays"),
            (Until::Claimed, key(), was(State::Scheduled, false), "stays"),
            (Until::Claimed, key(), was(State::Running, true), "over"),
            (Until::Claimed, key(), was(State::Cancelled, false), "over"),
            (Until::Ended, key(), was(State::Retrying, true), "stays"),
            (Until::Ended, key(), was(State::Failed, true), "over"),
            (Until::Ended, key(), None, "over"),
            (Until::Ended, key().replace(), was(State::Delayed, false), "replaced"),
            (Until::Ended, key().replace(), was(State::Pending, false), "replaced"),
            (Until::Ended, key().replace(), was(State::Retrying, true), "stays"),
            (Until::Window, key().replace(), was(State::Completed, true), "stays"),
            (Until::Window, key().replace(), None, "stays"),
        ];
        for (until, unique, job, becomes) in cases {
            let batch = Submission::new(vec![keep(unique.clone())]).expect("valid");
            let found = Found { keys: HashMap::from([(0, holder(id(99), until, job))]), ..Found::default() };
            assert_eq!(batch.new_count(&found), usize::from(becomes != "stays"), "{until:?} {unique:?} {job:?}");
            let planned = plan(&batch, &found).expect("planned");
            assert_eq!(planned.answers()[0].existing, becomes == "stays");
            let new = planned.new_jobs().next();
            assert_eq!(new.and_then(|new| new.replaces), (becomes == "replaced").then_some(id(99)));
            let taken = new.and_then(|new| new.key).and_then(|key| key.instead_of);
            assert_eq!(taken, (becomes != "stays").then_some(id(99)), "the key changes hands only from the job seen");
        }
        let elsewhere = KeyHolder { same_lane: false, ..holder(id(99), Until::Ended, was(State::Delayed, false)) };
        let batch = Submission::new(vec![keep(key().replace())]).expect("valid");
        let found = Found { keys: HashMap::from([(0, elsewhere)]), ..Found::default() };
        assert_eq!(batch.new_count(&found), 0, "a job of another type or queue stays");
    }

    #[test]
    fn u4_at_most_counts_from_the_first_of_those_that_replaced_each_other() {
        let seconds = |seconds| std::time::Duration::from_secs(seconds);
        let batch = Submission::new(vec![checked(job("a").debounce(seconds(5), seconds(12)))]).expect("valid");
        let at = |now: i64, first: Option<i64>| {
            let held = first.map(|first| Held {
                first_at: Timestamp::from_seconds(first),
                ..holder(id(9), Until::Claimed, None).held
            });
            let standing = Some(standing(State::Delayed, 9));
            let keys = held.map(|held| (0, KeyHolder { held, standing, same_lane: true }));
            let found = Found { keys: keys.into_iter().collect(), ..Found::default() };
            let now = Timestamp::from_seconds(now);
            let identity = Identity { sequence: 1, id: id(1) };
            let planned = batch.plan(&found, now, &mut || identity).expect("planned");
            let new = planned.new_jobs().next().expect("new");
            let key = new.key.expect("it has a key");
            (new.record(&Origin::default(), now).run_at, key.first_at, key.expires_at)
        };
        let moment = |seconds| Timestamp::from_seconds(seconds);
        assert_eq!(at(100, None), (Some(moment(105)), moment(100), Some(moment(112))));
        assert_eq!(at(104, Some(100)), (Some(moment(109)), moment(100), Some(moment(112))));
        assert_eq!(at(111, Some(100)), (Some(moment(112)), moment(100), Some(moment(112))));
    }
}
