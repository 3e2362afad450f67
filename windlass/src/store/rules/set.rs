//! The jobs that a rule works on: what a store has loaded, and what the rule has changed of it.

use std::collections::{HashMap, HashSet, VecDeque};

use super::Stop;
use super::changes::{Change, Changes, EdgeChange, KeptKey};
use super::edges::{Edge, Edges};
use crate::job::{JobId, JobRecord, JobSpec, JobType, LeaseKey, LeaseToken, Outcome, Payload, State};
use crate::store::answer::{JobEventKind, Wake};
use crate::time::Timestamp;
use crate::workflow::graph::Waits;
use crate::workflow::{Found, Held, Identity, KeyHolder, Lookup, NewKey, Sequence, Standing};

/// A job, and what only the store knows of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Its place in the order of submission.
    pub sequence: Sequence,
    /// The job.
    pub job: JobRecord,
    /// The secret of its lease, while it is RUNNING.
    pub token: Option<LeaseToken>,
    /// What it still waits for, while it is PENDING.
    pub waits: Waits,
    /// How long the chain of unfinished jobs up to it is.
    pub depth: u32,
}

/// What a rule needs and the set does not hold. A store answers every part with the method named beside it.
#[derive(Clone, PartialEq, Debug)]
pub enum Missing {
    /// These jobs: [`WorkingSet::put`] each, or [`WorkingSet::put_absent`] where there is none.
    Jobs(Vec<JobId>),
    /// The edges to the dependents of these jobs, and those dependents: [`WorkingSet::put_edge`] and
    /// [`WorkingSet::put`] each, then [`WorkingSet::know_dependents`] of the jobs.
    Dependents(Vec<JobId>),
    /// The edges to what these jobs depend on, and the jobs at their other ends: the same, then
    /// [`WorkingSet::know_dependencies`].
    Dependencies(Vec<JobId>),
    /// What these idempotency keys stand for at the set's time: [`WorkingSet::put_key`].
    Keys(Vec<KeyUse>),
    /// Whether an attempt under this lease was closed with this outcome before: [`WorkingSet::put_attempt`].
    Attempt(LeaseKey, Outcome),
    /// This many more identities for new jobs: [`WorkingSet::put_identity`].
    Identities(usize),
}

/// A job that was submitted with an idempotency key, as far as the key cares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyUse {
    /// Where the key is unique.
    pub scope: String,
    /// The key.
    pub key: String,
    /// The type of the job.
    pub job_type: JobType,
    /// Its payload.
    pub payload: Payload,
}

impl KeyUse {
    /// The key that a job carries, if it does.
    pub fn of(spec: &JobSpec) -> Option<Self> {
        let key = spec.options.idempotency.as_ref()?.key.clone();
        let scope = spec.idempotency_scope()?;
        Some(KeyUse { scope, key, job_type: spec.job_type.clone(), payload: spec.payload.clone() })
    }

    fn scoped(&self) -> ScopedKey {
        (self.scope.clone(), self.key.clone())
    }

    /// Whether another job with this key is the same job.
    fn matches(&self, spec: &JobSpec) -> bool {
        self.job_type == spec.job_type && self.payload == spec.payload
    }
}

/// What a store has kept of a key; `None` if it is free.
type KnownKey = Option<Held>;
/// A scope and a key in it.
type ScopedKey = (String, String);

/// What is loaded, and what a rule changed of it.
#[derive(Debug)]
pub struct WorkingSet {
    pub(super) now: Timestamp,
    /// The moment that leases are compared with.
    fence: Timestamp,
    /// By id; `None` for jobs that do not exist.
    entries: HashMap<JobId, Option<Entry>>,
    edges: Edges,
    knows_dependents: HashSet<JobId>,
    knows_dependencies: HashSet<JobId>,
    keys: HashMap<ScopedKey, Vec<(KeyUse, KnownKey)>>,
    /// The keys of new jobs, each of the newest that has it.
    new_keys: HashMap<ScopedKey, KeptKey>,
    attempts: Vec<(LeaseKey, Outcome, bool)>,
    pub(super) identities: VecDeque<Identity>,
    /// Jobs that have ended and whose dependents have not been told.
    pub(super) ended: Vec<JobId>,
    /// Changed jobs as they were loaded; `None` for new ones.
    before: HashMap<JobId, Option<Entry>>,
    /// Changed edges, and whether each is new.
    edges_before: HashMap<Edge, bool>,
    pub(super) changes: Changes,
}

impl WorkingSet {
    /// An empty set for what happens at `now`.
    pub fn new(now: Timestamp) -> Self {
        WorkingSet {
            now,
            fence: now,
            entries: HashMap::new(),
            edges: Edges::default(),
            knows_dependents: HashSet::new(),
            knows_dependencies: HashSet::new(),
            keys: HashMap::new(),
            new_keys: HashMap::new(),
            attempts: Vec::new(),
            identities: VecDeque::new(),
            ended: Vec::new(),
            before: HashMap::new(),
            edges_before: HashMap::new(),
            changes: Changes::default(),
        }
    }

    /// Compares leases with this moment in place of `now`: that of [`Clock::fence`](crate::clock::Clock::fence).
    pub fn hold_leases(&mut self, fence: Timestamp) {
        self.fence = fence.min(self.now);
    }

    /// Whether a lease in the set has run out, so that it matters what leases are compared with.
    pub fn has_lapsed_lease(&self) -> bool {
        let leases = self.entries.values().flatten().filter_map(|entry| entry.job.lease.as_ref());
        leases.into_iter().any(|lease| lease.expires_at <= self.now)
    }

    /// The moment that the lease of a job is compared with. A lifetime that is over ends it whatever the store was doing.
    pub(super) fn fence_of(&self, job: &JobRecord) -> Timestamp {
        if job.deadline.is_some_and(|deadline| deadline <= self.now) { self.now } else { self.fence }
    }

    // What a store loads. What a rule has changed is not overwritten.

    /// Puts in a stored job.
    pub fn put(&mut self, entry: Entry) {
        self.entries.entry(entry.job.id).or_insert(Some(entry));
    }

    /// Notes that there is no such job.
    pub fn put_absent(&mut self, id: JobId) {
        self.entries.entry(id).or_insert(None);
    }

    /// Puts in a dependency, and whether it is open.
    pub fn put_edge(&mut self, edge: Edge, open: bool) {
        if self.edges.get(edge).is_none() {
            self.edges.set(edge, open);
        }
    }

    /// Notes that all dependents of a job are in the set.
    pub fn know_dependents(&mut self, parent: JobId) {
        self.knows_dependents.insert(parent);
    }

    /// Notes that all dependencies of a job are in the set.
    pub fn know_dependencies(&mut self, child: JobId) {
        self.knows_dependencies.insert(child);
    }

    /// Puts in what is kept of a key; `None` if that is nothing, or its time is over.
    pub fn put_key(&mut self, key: KeyUse, holder: Option<Held>) {
        self.keys.entry(key.scoped()).or_default().push((key, holder));
    }

    /// Puts in whether an attempt under this lease was closed with this outcome.
    pub fn put_attempt(&mut self, key: LeaseKey, outcome: Outcome, was_closed: bool) {
        self.attempts.push((key, outcome, was_closed));
    }

    /// Puts in an identity for a new job.
    pub fn put_identity(&mut self, identity: Identity) {
        self.identities.push_back(identity);
    }

    /// Whether a job has been looked for.
    pub fn has(&self, id: JobId) -> bool {
        self.entries.contains_key(&id)
    }

    /// What is to be written.
    pub fn finish(mut self) -> Changes {
        debug_assert!(self.ended.is_empty(), "every end has been told");
        let mut changes = std::mem::take(&mut self.changes);
        for (id, before) in std::mem::take(&mut self.before) {
            let Some(after) = self.entries.remove(&id).flatten() else { continue };
            let was_scheduled = before.as_ref().is_some_and(|before| before.job.state == State::Scheduled);
            if after.job.state == State::Scheduled && !was_scheduled {
                let wake = Wake::Scheduled(after.job.spec.queue.clone());
                // One hint for a queue is as good as many.
                if !changes.wakes.contains(&wake) {
                    changes.wakes.push(wake);
                }
            }
            match before {
                None => changes.new.push(after),
                Some(before) => changes.changed.push(Change { before, after }),
            }
        }
        changes.keys = std::mem::take(&mut self.new_keys).into_values().collect();
        changes.keys.sort_unstable_by(|one, other| one.name().cmp(&other.name()));
        changes.new.sort_unstable_by_key(|entry| entry.sequence);
        changes.changed.sort_unstable_by_key(|change| change.after.sequence);
        for (edge, is_new) in &self.edges_before {
            if let Some(open) = self.edges.get(*edge) {
                changes.edges.push(EdgeChange { edge: *edge, open, is_new: *is_new });
            }
        }
        changes
    }

    /// Whether no rule has changed anything.
    #[cfg(test)]
    pub(super) fn is_untouched(&self) -> bool {
        self.before.is_empty() && self.edges_before.is_empty() && self.ended.is_empty() && self.changes.is_empty()
    }

    // What rules read.

    /// A job, if it exists.
    pub(super) fn find(&self, id: JobId) -> Result<Option<&Entry>, Stop> {
        match self.entries.get(&id) {
            Some(entry) => Ok(entry.as_ref()),
            None => Err(Stop::Missing(Missing::Jobs(vec![id]))),
        }
    }

    /// A job that is known to be in the set.
    pub(super) fn entry(&self, id: JobId) -> &Entry {
        self.entries.get(&id).and_then(Option::as_ref).expect("a rule looks at a job before it works on it")
    }

    pub(super) fn job(&self, id: JobId) -> &JobRecord {
        &self.entry(id).job
    }

    /// Stops unless all of these jobs were looked for.
    pub(super) fn need_jobs(&self, ids: &[JobId]) -> Result<(), Stop> {
        missing(ids, |id| self.entries.contains_key(&id), Missing::Jobs)
    }

    /// Stops unless the dependents of all these jobs are known.
    pub(super) fn need_dependents(&self, ids: &[JobId]) -> Result<(), Stop> {
        missing(ids, |id| self.knows_dependents.contains(&id), Missing::Dependents)
    }

    /// Stops unless the dependencies of all these jobs are known.
    pub(super) fn need_dependencies(&self, ids: &[JobId]) -> Result<(), Stop> {
        missing(ids, |id| self.knows_dependencies.contains(&id), Missing::Dependencies)
    }

    pub(super) fn need_identities(&self, count: usize) -> Result<(), Stop> {
        match count.checked_sub(self.identities.len()) {
            None | Some(0) => Ok(()),
            Some(more) => Err(Stop::Missing(Missing::Identities(more))),
        }
    }

    pub(super) fn edge(&self, edge: Edge) -> Option<bool> {
        self.edges.get(edge)
    }

    /// The edges to the dependents of a job that exist, in the order of submission.
    pub(super) fn dependents(&self, parent: JobId) -> Result<Vec<(Edge, bool)>, Stop> {
        self.need_dependents(&[parent])?;
        let mut edges: Vec<_> = self.edges.dependents(parent).filter(|(edge, _)| self.exists(edge.child)).collect();
        edges.sort_by_key(|(edge, _)| self.entry(edge.child).sequence);
        Ok(edges)
    }

    /// The edges to what a job depends on; some of those jobs may be gone.
    pub(super) fn dependencies(&self, child: JobId) -> Result<Vec<(Edge, bool)>, Stop> {
        self.need_dependencies(&[child])?;
        Ok(self.edges.dependencies(child).collect())
    }

    pub(super) fn exists(&self, id: JobId) -> bool {
        self.entries.get(&id).is_some_and(Option::is_some)
    }

    /// Whether a job exists and has not ended.
    pub(super) fn is_unfinished(&self, id: JobId) -> bool {
        self.entries.get(&id).and_then(Option::as_ref).is_some_and(|entry| !entry.job.state.is_terminal())
    }

    /// Whether an attempt under this lease was closed with this outcome, before or by this set.
    pub(super) fn was_closed(&self, key: LeaseKey, outcome: Outcome) -> Result<bool, Stop> {
        let mut closed = self.changes.attempts.iter().filter(|closed| closed.job == key.job);
        if closed.any(|closed| closed.token == key.token && closed.attempt.outcome == Some(outcome)) {
            return Ok(true);
        }
        let known = self.attempts.iter().find(|(of, with, _)| (*of, *with) == (key, outcome));
        known.map(|(_, _, was)| *was).ok_or(Stop::Missing(Missing::Attempt(key, outcome)))
    }

    /// What a submission has to know, from what is loaded.
    pub(super) fn found(&self, lookup: &Lookup<'_>) -> Result<Found, Stop> {
        let uses: Vec<(usize, KeyUse)> =
            lookup.keys.iter().filter_map(|(place, spec)| Some((*place, KeyUse::of(spec)?))).collect();
        let unknown = uses.iter().filter(|(_, key)| self.holder(key).is_none()).map(|(_, key)| key.clone());
        let unknown: Vec<KeyUse> = unknown.collect();
        if !unknown.is_empty() {
            return Err(Stop::Missing(Missing::Keys(unknown)));
        }
        let taken = uses.iter().filter_map(|(place, key)| Some((*place, self.holder(key)??)));
        let taken: HashMap<usize, Held> = taken.collect();
        let named: Vec<JobId> = taken.values().map(|held| held.id).chain(lookup.jobs.iter().copied()).collect();
        self.need_jobs(&named)?;
        let entry = |id: JobId| self.entries.get(&id).and_then(Option::as_ref);
        let job = |id: JobId| entry(id).map(|entry| (&entry.job, entry.depth));
        let holder = |(place, spec): &(usize, &JobSpec)| {
            let held = *taken.get(place)?;
            Some((*place, KeyHolder::of(held, job(held.id), spec)))
        };
        let standing = |id: &JobId| job(*id).map(|(job, depth)| (*id, Standing::of(job, depth)));
        Ok(Found {
            keys: lookup.keys.iter().filter_map(holder).collect(),
            jobs: lookup.jobs.iter().filter_map(standing).collect(),
        })
    }

    /// What a key stands for: a job of this set, or what the store said; `None` when nobody has looked.
    fn holder(&self, key: &KeyUse) -> Option<KnownKey> {
        let scoped = key.scoped();
        if let Some(KeptKey { job, new, .. }) = self.new_keys.get(&scoped) {
            let matches = key.matches(&self.entry(*job).job.spec);
            return Some(Some(Held { id: *job, matches, until: new.until, first_at: new.first_at }));
        }
        self.keys.get(&scoped)?.iter().find(|(known, _)| known == key).map(|(_, holder)| *holder)
    }

    // What rules change.

    /// A job that will be written.
    pub(super) fn change(&mut self, id: JobId) -> &mut Entry {
        let entry = self.entries.get_mut(&id).and_then(Option::as_mut);
        let entry = entry.expect("a rule looks at a job before it changes it");
        self.before.entry(id).or_insert_with(|| Some(entry.clone()));
        entry
    }

    /// Adds a new job, with what its key stands for.
    pub(super) fn add(&mut self, entry: Entry, new: Option<NewKey>) {
        let id = entry.job.id;
        self.changes.events.push((id, JobEventKind::Enqueued));
        if let Some((key, mut new)) = KeyUse::of(&entry.job.spec).zip(new) {
            let scoped = key.scoped();
            // The store knows only what was there before this set.
            if let Some(before) = self.new_keys.get(&scoped) {
                new.instead_of = before.new.instead_of;
            }
            self.new_keys.insert(scoped, KeptKey { key, job: id, new });
        }
        self.entries.insert(id, Some(entry));
        self.before.insert(id, None);
        self.knows_dependents.insert(id);
        self.knows_dependencies.insert(id);
    }

    /// Removes an ended job for good.
    pub(super) fn remove(&mut self, id: JobId) {
        let Some(entry) = self.entries.insert(id, None).flatten() else { return };
        self.before.remove(&id);
        self.edges.remove(id);
        self.edges_before.retain(|edge, _| edge.parent != id && edge.child != id);
        self.changes.removed.push(entry);
    }

    pub(super) fn set_edge(&mut self, edge: Edge, open: bool) {
        let was = self.edges.set(edge, open);
        if was != Some(open) {
            self.edges_before.entry(edge).or_insert(was.is_none());
        }
    }

    pub(super) fn wake(&mut self, wake: Wake) {
        self.changes.wakes.push(wake);
    }
}

/// Stops for those of these jobs that are not known, each once.
fn missing(ids: &[JobId], known: impl Fn(JobId) -> bool, stop: impl Fn(Vec<JobId>) -> Missing) -> Result<(), Stop> {
    let mut seen = HashSet::new();
    let unknown: Vec<JobId> = ids.iter().copied().filter(|id| !known(*id) && seen.insert(*id)).collect();
    if unknown.is_empty() { Ok(()) } else { Err(Stop::Missing(stop(unknown))) }
}
