//! The histories, ordered by job: each call with its answer, or the knowledge that there was none.

use std::collections::{BTreeMap, HashMap, HashSet};

use windlass::JobId;
use windlass::job::{Outcome, Stale};

use crate::dump::{Dump, JobEnd};
use crate::history::{Answer, Asked, Event, Grant, Lease, Line, Sent};

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply<T> {
    /// It may have happened, and may happen yet.
    Unknown,
    /// It certainly did not happen.
    Nothing,
    /// It was answered, at this moment of the machine's clock.
    Said(u64, T),
}

/// A call under one lease.
#[derive(Clone, Debug)]
pub(super) struct Call<T> {
    pub(super) version: u64,
    /// When it was sent, by the machine's clock.
    pub(super) sent: u64,
    /// The store's time before it was sent.
    pub(super) before: Option<i64>,
    pub(super) reply: Reply<T>,
}

/// What a heartbeat was answered: between which store times the lease then ended (`None`: not known), or why not.
pub(super) type Renewed = Result<(Option<i64>, Option<i64>), Stale>;

/// What was seen of one job.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Claims, with who claimed.
    pub(super) grants: Vec<(String, Grant)>,
    pub(super) renewals: Vec<Call<Renewed>>,
    pub(super) saves: Vec<Call<Result<(), Stale>>>,
    pub(super) settles: Vec<Call<Answer>>,
    /// The outcome that each settlement named, by place in `settles`.
    pub(super) outcomes: Vec<Outcome>,
    /// Versions whose handler began.
    pub(super) started: HashSet<u64>,
    /// Versions whose handler succeeded.
    pub(super) succeeded: HashSet<u64>,
    /// Requeues of this job that happened or may have.
    pub(super) requeues: u32,
}

/// A call of a producer.
#[derive(Debug)]
pub(super) struct Enqueue {
    pub(super) batch: Option<String>,
    pub(super) keys: Vec<Option<String>>,
    pub(super) types: Vec<String>,
    pub(super) reply: Reply<Vec<(JobId, bool)>>,
}

/// Everything the checks look at.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) dump: &'a Dump,
    pub(super) ends: HashMap<JobId, &'a JobEnd>,
    pub(super) seen: BTreeMap<JobId, Seen>,
    pub(super) enqueues: Vec<Enqueue>,
    /// Workflows in which dependents were requeued with a job, and how often.
    pub(super) requeued_flows: HashMap<windlass::WorkflowId, u32>,
}

/// A call that waits for its answer.
enum Open {
    Enqueue(usize),
    Extend(Vec<(Lease, usize)>, Option<i64>),
    Save(Vec<(Lease, usize)>),
    Settle(Vec<(Lease, usize)>),
    Operate { requeue: bool, jobs: Vec<JobId>, with_dependents: bool },
}

impl<'a> View<'a> {
    pub(super) fn new(lines: &'a [Line], dump: &'a Dump) -> Self {
        let ends = dump.jobs.iter().map(|job| (job.id, job)).collect();
        let (seen, enqueues, requeued_flows) = Default::default();
        let mut view = View { dump, ends, seen, enqueues, requeued_flows };
        let mut open: HashMap<(&str, u64), Open> = HashMap::new();
        for line in lines {
            view.read(line, &mut open);
        }
        // What was never answered may have happened.
        for call in open.into_values() {
            if let Open::Operate { requeue: true, jobs, with_dependents } = call {
                view.requeued(&jobs, with_dependents);
            }
        }
        view
    }

    fn of(&mut self, job: JobId) -> &mut Seen {
        self.seen.entry(job).or_default()
    }

    fn read(&mut self, line: &'a Line, open: &mut HashMap<(&'a str, u64), Open>) {
        let by = line.by.as_str();
        match &line.event {
            Event::EnqueueSent { call, batch, keys, types } => {
                open.insert((by, *call), Open::Enqueue(self.enqueues.len()));
                let (batch, keys, types) = (batch.clone(), keys.clone(), types.clone());
                self.enqueues.push(Enqueue { batch, keys, types, reply: Reply::Unknown });
            }
            Event::ExtendSent(asked) => {
                let places = self.ask(line.at, asked, |seen| &mut seen.renewals, |lease| *lease);
                open.insert((by, asked.call), Open::Extend(places, asked.before));
            }
            Event::SaveSent(asked) => {
                let places = self.ask(line.at, asked, |seen| &mut seen.saves, |lease| *lease);
                open.insert((by, asked.call), Open::Save(places));
            }
            Event::SettleSent(asked) => {
                let places = self.ask(line.at, asked, |seen| &mut seen.settles, |sent: &Sent| sent.lease);
                for sent in &asked.asked {
                    self.of(sent.lease.job).outcomes.push(sent.outcome);
                }
                open.insert((by, asked.call), Open::Settle(places));
            }
            Event::OperateSent { call, act, jobs, with_dependents } => {
                let (requeue, jobs, with_dependents) = (act == "requeue", jobs.clone(), *with_dependents);
                open.insert((by, *call), Open::Operate { requeue, jobs, with_dependents });
            }
            Event::Claimed(grants) => {
                for grant in grants {
                    self.of(grant.lease.job).grants.push((by.to_owned(), grant.clone()));
                }
            }
            Event::RunStarted(lease) => {
                self.of(lease.job).started.insert(lease.version);
            }
            Event::RunEnded { lease, success: true } => {
                self.of(lease.job).succeeded.insert(lease.version);
            }
            Event::Enqueued { call, .. }
            | Event::Extended { call, .. }
            | Event::Saved { call, .. }
            | Event::Settled { call, .. }
            | Event::Operated { call, .. }
            | Event::Failed { call: Some(call), known: true, .. } => {
                if let Some(asked) = open.remove(&(by, *call)) {
                    self.answer(asked, line);
                }
            }
            Event::Failed { .. }
            | Event::RunEnded { .. }
            | Event::Started { .. }
            | Event::Stopped
            | Event::Upkeep { .. }
            | Event::Promoted
            | Event::Controlled(_)
            | Event::Fault { .. } => {}
        }
    }

    /// Notes a call under leases as unanswered; gives where its parts are.
    fn ask<A, T: 'static>(
        &mut self,
        sent: u64,
        asked: &Asked<A>,
        calls: impl Fn(&mut Seen) -> &mut Vec<Call<T>>,
        lease_of: impl Fn(&A) -> Lease,
    ) -> Vec<(Lease, usize)> {
        let mut places = Vec::with_capacity(asked.asked.len());
        for one in &asked.asked {
            let lease = lease_of(one);
            let calls = calls(self.of(lease.job));
            places.push((lease, calls.len()));
            calls.push(Call { version: lease.version, sent, before: asked.before, reply: Reply::Unknown });
        }
        places
    }

    fn answer(&mut self, asked: Open, line: &Line) {
        let at = line.at;
        match (asked, &line.event) {
            (Open::Enqueue(place), Event::Enqueued { jobs, .. }) => {
                self.enqueues[place].reply = Reply::Said(at, jobs.clone());
            }
            (Open::Enqueue(place), _) => self.enqueues[place].reply = Reply::Nothing,
            (Open::Extend(places, before), event) => {
                let (after, answers) = match event {
                    Event::Extended { after, answers, .. } => (*after, answers.as_slice()),
                    _ => (None, [].as_slice()),
                };
                for (number, (lease, place)) in places.into_iter().enumerate() {
                    let said = answers.get(number).map(|answer| {
                        answer.map(|micros| (before.map(|before| before + micros), after.map(|after| after + micros)))
                    });
                    self.of(lease.job).renewals[place].reply =
                        said.map_or(Reply::Nothing, |said| Reply::Said(at, said));
                }
            }
            (Open::Save(places), event) => {
                let answers = if let Event::Saved { answers, .. } = event { answers.as_slice() } else { &[] };
                for (number, (lease, place)) in places.into_iter().enumerate() {
                    let said = answers.get(number).map_or(Reply::Nothing, |said| Reply::Said(at, *said));
                    self.of(lease.job).saves[place].reply = said;
                }
            }
            (Open::Settle(places), event) => {
                let answers = if let Event::Settled { answers, .. } = event { answers.as_slice() } else { &[] };
                for (number, (lease, place)) in places.into_iter().enumerate() {
                    let said = answers.get(number).map_or(Reply::Nothing, |said| Reply::Said(at, *said));
                    self.of(lease.job).settles[place].reply = said;
                }
            }
            (Open::Operate { requeue: true, mut jobs, with_dependents }, Event::Operated { refused, .. }) => {
                jobs.retain(|job| !refused.contains(job));
                self.requeued(&jobs, with_dependents);
            }
            (Open::Operate { .. }, _) => {}
        }
    }

    fn requeued(&mut self, jobs: &[JobId], with_dependents: bool) {
        for job in jobs {
            self.of(*job).requeues += 1;
            if let Some(flow) = self.ends.get(job).and_then(|end| end.workflow).filter(|_| with_dependents) {
                *self.requeued_flows.entry(flow).or_default() += 1;
            }
        }
    }

    /// How often a job may have been requeued, by itself or along with another of its workflow.
    pub(super) fn requeues_max(&self, end: &JobEnd) -> u32 {
        let own = self.seen.get(&end.id).map_or(0, |seen| seen.requeues);
        let along = end.workflow.and_then(|flow| self.requeued_flows.get(&flow)).copied();
        own + along.unwrap_or_default()
    }
}

impl Seen {
    /// Each settlement: its call and what the holder said.
    pub(super) fn settlements(&self) -> impl Iterator<Item = (&Call<Answer>, Outcome)> {
        self.settles.iter().zip(self.outcomes.iter().copied())
    }

    /// The claims of a version: one at most, if all is well.
    pub(super) fn grants_of(&self, version: u64) -> impl Iterator<Item = &Grant> {
        self.grants.iter().map(|(_, grant)| grant).filter(move |grant| grant.lease.version == version)
    }
}
