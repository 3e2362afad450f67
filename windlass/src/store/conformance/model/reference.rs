//! The model: the contract retold as plainly as possible.
//!
//! A vector of jobs and linear scans. Nothing of the core's decisions is used here (no verdicts, no state machine, no
//! graph functions), so that a mistake there is found as well. What the end of a job does is in `endings`, what
//! operators and upkeep do is in `operators`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::flow::ModelFlow;
use super::history::{Draft, First, QUEUES, Say};
use super::keys::{Met, ModelKey, firsts};
use crate::job::{Category, DependencyKind, Outcome, Priority, ReasonKind, Stale, State};
use crate::time::Timestamp;

/// A job of the model: its place in [`Model::jobs`].
pub(super) type Name = usize;

/// A job about to be submitted, with its dependencies found.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// A number of its own, by which the stored job is recognised.
    pub(super) serial: usize,
    pub(super) draft: Draft,
    /// For [`First::At`]: the moment.
    pub(super) at: Timestamp,
    pub(super) links: Vec<(Link, DependencyKind)>,
}

/// What a planned job depends on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Link {
    Job(Name),
    Place(usize),
    Nobody,
}

impl Link {
    pub(super) fn job(self) -> Option<Name> {
        match self {
            Link::Job(name) => Some(name),
            Link::Place(_) | Link::Nobody => None,
        }
    }
}

/// A job as the model knows it.
#[derive(Clone, Debug)]
pub(super) struct ModelJob {
    pub(super) plan: Plan,
    /// For a webhook job: whose end it tells of.
    pub(super) tells_of: Option<Name>,
    pub(super) sequence: u64,
    /// Pruned, deleted, or not quite there yet.
    pub(super) gone: bool,
    pub(super) state: State,
    pub(super) attempt: u32,
    pub(super) failures: u32,
    pub(super) lost: u32,
    pub(super) generation: u32,
    pub(super) position: Timestamp,
    pub(super) priority: u8,
    pub(super) inherited: Option<u8>,
    pub(super) tag: Option<u8>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) scheduled_at: Option<Timestamp>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) completed_at: Option<Timestamp>,
    pub(super) run_at: Option<Timestamp>,
    pub(super) deadline: Option<Timestamp>,
    pub(super) lease: Option<ModelLease>,
    pub(super) version: u64,
    pub(super) cancel: Option<(String, Timestamp)>,
    pub(super) failure: Option<(Category, Option<&'static str>, Timestamp)>,
    pub(super) result: Option<u8>,
    pub(super) progress: Option<u8>,
    pub(super) checkpoint: Option<u8>,
    pub(super) workflow: Option<usize>,
    pub(super) spawned_by: Option<Name>,
    pub(super) reason: Option<ModelReason>,
    pub(super) edges: Vec<ModelEdge>,
    pub(super) attempts: Vec<ModelAttempt>,
}

/// Who holds a running job; `held` is the number of the lease among all that were ever granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelLease {
    pub(super) held: usize,
    pub(super) expires_at: Timestamp,
    pub(super) worker: u8,
}

#[derive(Clone, Debug)]
pub(super) struct ModelReason {
    pub(super) kind: ReasonKind,
    pub(super) by: Option<String>,
    pub(super) cause: Option<Name>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ModelEdge {
    pub(super) on: Name,
    pub(super) kind: DependencyKind,
    pub(super) met: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ModelAttempt {
    pub(super) held: usize,
    pub(super) version: u64,
    pub(super) number: u32,
    pub(super) generation: u32,
    pub(super) worker: u8,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) outcome: Option<Outcome>,
    pub(super) failure: Option<(Category, Option<&'static str>)>,
}

/// What the model expects of one job of a submission.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct ModelInserted {
    pub(super) job: Name,
    pub(super) existing: bool,
    pub(super) state: Option<State>,
    pub(super) matches: bool,
}

/// What the model expects of a settlement.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum ModelSettled {
    Applied(State),
    AlreadyApplied,
    Stale(Stale),
    /// Any of these errors: which comes first is nobody's business.
    Refused(Vec<&'static str>),
}

/// A claim as the model sees it.
pub(super) struct ModelClaim<'a> {
    pub(super) queues: &'a [(u8, usize)],
    pub(super) types: Option<&'a [u8]>,
    pub(super) limit: usize,
    pub(super) lease_time: Option<Duration>,
    pub(super) worker: u8,
}

/// Everything the contract says about a store's contents.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) now: Timestamp,
    pub(super) jobs: Vec<ModelJob>,
    pub(super) keys: Vec<ModelKey>,
    /// Jobs that others took the place of, and whose ends nobody has heard of yet.
    pub(super) replaced: Vec<Name>,
    pub(super) paused: [bool; QUEUES.len()],
    pub(super) flows: [Option<ModelFlow>; QUEUES.len()],
    pub(super) accepted: u64,
    pub(super) pruned: u64,
    /// The jobs of each workflow that are gone.
    pub(super) workflows: Vec<u64>,
    /// What happened in this step: a job was stored, or ended in a state.
    pub(super) events: Vec<(Name, Option<State>)>,
    pub(super) granted: usize,
    /// How often what happened, so that a run can be shown not to be empty.
    pub(super) tally: BTreeMap<&'static str, u64>,
}

impl ModelJob {
    pub(super) fn effective(&self) -> u8 {
        self.inherited.map_or(self.priority, |inherited| inherited.min(self.priority))
    }

    pub(super) fn unfinished(&self) -> bool {
        !self.gone && !matches!(self.state, State::Completed | State::Failed | State::DeadLetter | State::Cancelled)
    }

    pub(super) fn becomes_scheduled(&mut self, at: Timestamp) {
        self.state = State::Scheduled;
        self.position = at;
        self.scheduled_at = Some(at);
        self.run_at = None;
    }

    /// When a lease that is taken or extended now ends.
    fn lease_end(&self, lease_time: Option<Duration>, now: Timestamp) -> Timestamp {
        let end = now.plus(lease_time.unwrap_or(seconds(self.plan.draft.visibility)));
        let end = self.execution_end().map_or(end, |limit| end.min(limit));
        match self.deadline {
            Some(deadline) if deadline < end => deadline,
            _ => end,
        }
    }
}

impl Model {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// Time has come to `now`: what was due in the meantime became SCHEDULED at its own moment.
    pub(super) fn tick(&mut self, now: Timestamp) {
        self.now = now;
        for job in self.jobs.iter_mut().filter(|job| matches!(job.state, State::Delayed | State::Retrying)) {
            if let Some(run_at) = job.run_at.filter(|run_at| *run_at <= now) {
                job.becomes_scheduled(run_at);
                job.updated_at = run_at;
            }
        }
    }

    /// The next moment at which something falls due, if there is one.
    pub(super) fn next_moment(&self) -> Option<Timestamp> {
        let of_job = |job: &ModelJob| {
            let lease = job.lease.map(|lease| lease.expires_at);
            let pruned = job.own_kept().flatten().zip(job.completed_at).map(|(kept, at)| at.plus(kept));
            [job.run_at, lease, job.deadline.filter(|_| job.unfinished()), pruned]
        };
        let jobs = self.jobs.iter().filter(|job| !job.gone).flat_map(of_job);
        jobs.flatten().chain(self.key_ends()).chain(self.flow_moments()).filter(|at| *at > self.now).min()
    }

    // Submission.

    pub(super) fn insert(&mut self, plans: &[Plan], workflow: bool) -> Result<Vec<ModelInserted>, Vec<&'static str>> {
        let firsts = firsts(plans);
        self.refusals(plans, &firsts)?;
        let workflow = workflow.then(|| {
            self.workflows.push(0);
            self.workflows.len() - 1
        });
        let stored = self.store(plans, &firsts, workflow, None);
        self.tell_replaced();
        Ok(stored)
    }

    /// Why a submission cannot be stored.
    pub(super) fn refusals(&self, plans: &[Plan], firsts: &[usize]) -> Result<(), Vec<&'static str>> {
        let mut refusals = Vec::new();
        if plans.iter().any(|plan| plan.starts_too_late(self.now) && plan.is_refused_at_once()) {
            refusals.push("InvalidArgument");
        }
        if cyclic(plans, firsts) {
            refusals.push("DependencyCycle");
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        // A known key answers with its job, whatever else this submission says.
        let is_new = |place: usize| firsts[place] == place && self.known(&plans[place]).is_none();
        for plan in (0..plans.len()).filter(|place| is_new(*place)).map(|place| &plans[place]) {
            if plan.starts_too_late(self.now) {
                refusals.push("InvalidArgument");
            }
            let missing = |link: &Link| match *link {
                Link::Nobody => true,
                Link::Job(name) => self.jobs[name].gone,
                Link::Place(place) => self.known(&plans[firsts[place]]).is_some_and(|job| self.jobs[job].gone),
            };
            if plan.links.iter().any(|(link, _)| missing(link)) {
                refusals.push("DependencyNotFound");
            }
        }
        if refusals.is_empty() { Ok(()) } else { Err(refusals) }
    }

    /// Stores a submission that is not refused.
    pub(super) fn store(
        &mut self,
        plans: &[Plan],
        firsts: &[usize],
        workflow: Option<usize>,
        spawned_by: Option<Name>,
    ) -> Vec<ModelInserted> {
        let mut answers: Vec<ModelInserted> = Vec::new();
        let (mut new, mut replaced) = (Vec::new(), Vec::new());
        for (place, plan) in plans.iter().enumerate() {
            let met = match firsts[place] {
                first if first < place => Met::Stays(answers[first].job),
                _ => self.meet(plan),
            };
            let first_at = match met {
                Met::Stays(job) => {
                    self.count("insert: existing");
                    let matches = self.jobs[job].is_same(plan);
                    answers.push(ModelInserted { job, existing: true, state: None, matches });
                    continue;
                }
                Met::Free => self.now,
                Met::GivesWay(_, first_at) => first_at,
            };
            let job = self.prepare(plan.clone(), first_at, workflow, spawned_by);
            if let Met::GivesWay(old, _) = met {
                replaced.push((old, job));
            }
            new.push(place);
            self.keep_key(plan, job, first_at);
            answers.push(ModelInserted { job, existing: false, state: None, matches: true });
        }
        let names: Vec<Name> = answers.iter().map(|answer| answer.job).collect();
        // Dependencies before dependents.
        while !new.is_empty() {
            let ready = |place: &usize| {
                let mut links = plans[*place].links.iter();
                !links.any(|(link, _)| matches!(link, Link::Place(on) if new.contains(&firsts[*on])))
            };
            let place = new.iter().position(ready).expect("cycles were refused");
            let place = new.remove(place);
            self.admit(names[place], &names);
        }
        for answer in &mut answers {
            let job = &self.jobs[answer.job];
            answer.state = Some(job.state).filter(|_| !job.gone);
        }
        replaced.into_iter().for_each(|(old, by)| self.replace(old, by));
        answers
    }

    /// A job that is to be admitted next; until then it is not there.
    fn prepare(&mut self, plan: Plan, first_at: Timestamp, workflow: Option<usize>, spawned_by: Option<Name>) -> Name {
        let (name, now) = (self.jobs.len(), self.now);
        let lifetime = plan.draft.lifetime.map(|lifetime| now.plus(seconds(lifetime)));
        self.jobs.push(ModelJob {
            tells_of: None,
            sequence: name as u64,
            gone: true,
            state: State::Pending,
            attempt: 0,
            failures: 0,
            lost: 0,
            generation: 0,
            position: now,
            priority: plan.draft.priority,
            inherited: None,
            tag: None,
            created_at: now,
            updated_at: now,
            scheduled_at: None,
            started_at: None,
            completed_at: None,
            run_at: plan.debounced_to(first_at, now).or(plan.first_run(now)).filter(|at| *at > now),
            deadline: lifetime,
            lease: None,
            version: 0,
            cancel: None,
            failure: None,
            result: None,
            progress: None,
            checkpoint: None,
            workflow,
            spawned_by,
            reason: None,
            edges: Vec::new(),
            attempts: Vec::new(),
            plan,
        });
        name
    }

    /// Lets a prepared job in: what has already ended counts at once.
    fn admit(&mut self, name: Name, names: &[Name]) {
        for (link, kind) in self.jobs[name].plan.links.clone() {
            let on = match link {
                Link::Job(on) => on,
                Link::Place(place) => names[place],
                Link::Nobody => unreachable!("such a submission was refused"),
            };
            let edges = &mut self.jobs[name].edges;
            if !edges.iter().any(|edge| edge.on == on && edge.kind == kind) {
                edges.push(ModelEdge { on, kind, met: false });
            }
        }
        if !self.jobs[name].plan.draft.own_priority_only {
            let edges = self.jobs[name].edges.iter();
            self.jobs[name].inherited = edges.map(|edge| self.jobs[edge.on].effective()).min();
        }
        self.jobs[name].gone = false;
        self.accepted += 1;
        self.count("insert: created");
        self.events.push((name, None));
        self.look_at_ended_dependencies(name);
    }

    pub(super) fn add_webhook(&mut self, of: Name) {
        let mut draft = Draft::plain();
        draft.queue = super::history::WEBHOOK;
        draft.job_type = super::history::WEBHOOK;
        draft.policy = super::history::Policy::webhook();
        draft.lifetime = Some(7 * 24 * 3600);
        draft.visibility = 300;
        draft.execution = Some(30);
        draft.own_priority_only = true;
        let serial = self.jobs[of].plan.serial;
        let links = vec![(Link::Job(of), DependencyKind::AfterAll)];
        let name = self.prepare(Plan { serial, draft, at: self.now, links }, self.now, None, None);
        self.jobs[name].tells_of = Some(of);
        self.count("webhook");
        self.admit(name, &[]);
    }

    // The lease holder's calls.

    /// Takes jobs in claim order; gives them in the order they are handed out. `said` is what the store gave, which counts where
    /// the rules leave a choice.
    pub(super) fn claim(&mut self, claim: &ModelClaim<'_>, said: &[Name]) -> Vec<Name> {
        let mut taken = Vec::new();
        for (queue, room) in claim.queues {
            if self.paused[usize::from(*queue)] || taken.len() == claim.limit {
                continue;
            }
            if self.is_open(*queue) {
                self.settle_owners(*queue);
            }
            for _ in 0..*room {
                if taken.len() == claim.limit {
                    return taken;
                }
                let next = match self.flows[usize::from(*queue)] {
                    None => self.first_runnable(*queue, claim.types),
                    Some(_) => self.first_admitted(*queue, claim.types, said.get(taken.len()).copied()),
                };
                let Some(name) = next else { break };
                self.take(name, claim);
                self.start(*queue, name);
                taken.push(name);
            }
        }
        taken
    }

    /// Whether a job waits for nothing but its turn.
    pub(super) fn is_runnable(&self, name: Name, queue: u8, types: Option<&[u8]>) -> bool {
        let job = &self.jobs[name];
        !job.gone
            && job.state == State::Scheduled
            && job.plan.draft.queue == queue
            && types.is_none_or(|types| types.contains(&job.plan.draft.job_type))
            && job.deadline.is_none_or(|deadline| deadline > self.now)
    }

    fn first_runnable(&self, queue: u8, types: Option<&[u8]>) -> Option<Name> {
        let runnable = |name: &Name| self.is_runnable(*name, queue, types);
        let order = |name: &Name| (self.jobs[*name].effective(), self.jobs[*name].position, self.jobs[*name].sequence);
        (0..self.jobs.len()).filter(runnable).min_by_key(order)
    }

    fn take(&mut self, name: Name, claim: &ModelClaim<'_>) {
        let (now, held) = (self.now, self.granted);
        self.granted += 1;
        let job = &mut self.jobs[name];
        job.state = State::Running;
        job.attempt += 1;
        job.version += 1;
        job.started_at = Some(now);
        job.updated_at = now;
        let expires_at = job.lease_end(claim.lease_time, now);
        job.lease = Some(ModelLease { held, expires_at, worker: claim.worker });
        job.attempts.push(ModelAttempt {
            held,
            version: job.version,
            number: job.attempt,
            generation: job.generation,
            worker: claim.worker,
            started_at: now,
            ended_at: None,
            outcome: None,
            failure: None,
        });
        self.count("claimed");
    }

    /// Whether a lease still holds; the checks in the order of rule L2.
    pub(super) fn fence(&self, name: Name, held: usize) -> Result<(), Stale> {
        let job = &self.jobs[name];
        match job.lease {
            _ if job.gone => Err(Stale::NotRunning),
            None => Err(Stale::NotRunning),
            Some(lease) if lease.expires_at <= self.now => Err(Stale::Expired),
            Some(lease) if lease.held != held => Err(Stale::Mismatch),
            Some(_) => Ok(()),
        }
    }

    /// A heartbeat; gives how long the lease holds from now.
    pub(super) fn extend(&mut self, name: Name, held: usize, lease_time: Option<Duration>) -> Result<Duration, Stale> {
        self.fence(name, held)?;
        let now = self.now;
        let end = self.jobs[name].lease_end(lease_time, now);
        let lease = self.jobs[name].lease.as_mut().expect("the lease holds");
        lease.expires_at = lease.expires_at.max(end);
        Ok(lease.expires_at.since(now))
    }

    pub(super) fn save(
        &mut self,
        name: Name,
        held: usize,
        checkpoint: Option<u8>,
        progress: Option<u8>,
    ) -> Result<(), Stale> {
        self.fence(name, held)?;
        let job = &mut self.jobs[name];
        job.checkpoint = checkpoint.or(job.checkpoint);
        job.progress = progress.or(job.progress);
        Ok(())
    }

    /// Whether this was said before under this lease, and written.
    pub(super) fn said_before(&self, name: Name, held: usize, say: &Say) -> bool {
        let job = &self.jobs[name];
        let mut attempts = job.attempts.iter();
        !job.gone && attempts.any(|attempt| attempt.held == held && attempt.outcome == Some(say.outcome()))
    }
}

impl Plan {
    /// When it may first run, said by the submission.
    fn first_run(&self, now: Timestamp) -> Option<Timestamp> {
        match self.draft.first {
            First::Now => None,
            First::In(after) => Some(now.plus(seconds(after.into()))),
            First::At(_) => Some(self.at),
        }
    }

    /// Whether a first run beyond its lifetime shows without the store's clock.
    pub(super) fn is_refused_at_once(&self) -> bool {
        matches!(self.draft.first, First::In(_)) || self.draft.key.is_some_and(|key| key.debounce.is_some())
    }

    /// Whether its first run lies beyond its lifetime.
    pub(super) fn starts_too_late(&self, now: Timestamp) -> bool {
        let end = self.draft.lifetime.map(|lifetime| now.plus(seconds(lifetime)));
        self.debounced_to(now, now).or(self.first_run(now)).zip(end).is_some_and(|(run, end)| run >= end)
    }
}

/// Whether the places of a batch wait for each other in a circle.
fn cyclic(plans: &[Plan], firsts: &[usize]) -> bool {
    // A job that can be reached in as many steps as there are jobs stands on a cycle or behind one.
    let mut standing: Vec<usize> = (0..plans.len()).collect();
    for _ in 0..plans.len() {
        let links = standing.iter().flat_map(|place| &plans[*place].links);
        let next = links.filter_map(|(link, _)| match link {
            Link::Place(on) => Some(firsts[*on]),
            Link::Job(_) | Link::Nobody => None,
        });
        let mut next: Vec<usize> = next.collect();
        next.sort_unstable();
        next.dedup();
        standing = next;
    }
    !standing.is_empty()
}

pub(super) fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

pub(super) fn priority(number: u8) -> Priority {
    Priority::from_number(number).expect("priorities are drawn from the five")
}
