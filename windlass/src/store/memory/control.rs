//! Flow control: what waits and runs of a controlled queue by key and type, and the claim through its gates.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use super::tables::{ClaimOrder, Queue, Tables};
use crate::error::{Error, Result};
use crate::flow::{
    Change, Control, ControlEdit, ControlRecord, Gate, GateName, Gates, Head, KeyRecord, Look, Owner, Picks, Strand,
    blocked, pick,
};
use crate::job::{JobId, JobRecord, JobType, QueueName, State, Why};
use crate::store::answer::{Claimed, Page, Wake};
use crate::store::request::{ClaimRequest, Cursor, KeyQuery, PAGE_MAX};
use crate::store::rules::{self, GateHold};
use crate::time::Timestamp;
use crate::workflow::Sequence;

/// How many jobs of a strand are looked at first.
const HEADS: usize = 4;

/// What is known of a controlled queue beside its jobs. The counts follow from these, as every index does.
#[derive(Debug)]
pub(super) struct Controlled {
    pub(super) record: ControlRecord,
    gates: Gates,
    /// Keys that were open when they were last looked at.
    open: HashSet<String>,
    /// SCHEDULED jobs by key and type.
    pub(super) strands: BTreeMap<(String, JobType), BTreeSet<ClaimOrder>>,
    /// How many run, by key and type.
    pub(super) running: HashMap<(String, JobType), u32>,
}

impl Controlled {
    fn key_of(&self, job: &JobRecord) -> (String, JobType) {
        let key = self.record.control.key_of(job.spec.options.key.as_deref());
        (key.to_owned(), job.spec.job_type.clone())
    }

    /// Moves the count with the job.
    pub(super) fn place_state(&mut self, job: &JobRecord, before: Option<State>, after: Option<State>) {
        let step = i64::from(after == Some(State::Running)) - i64::from(before == Some(State::Running));
        if step == 0 {
            return;
        }
        let name = self.key_of(job);
        let count = self.running.entry(name.clone()).or_default();
        *count = u32::try_from(i64::from(*count) + step).expect("a job leaves RUNNING once");
        if *count == 0 {
            self.running.remove(&name);
        }
    }

    /// Moves the job from strand to strand.
    pub(super) fn place_claim(&mut self, job: &JobRecord, before: Option<ClaimOrder>, after: Option<ClaimOrder>) {
        let name = self.key_of(job);
        if let Some(before) = before
            && let Some(strand) = self.strands.get_mut(&name)
        {
            strand.remove(&before);
            if strand.is_empty() {
                self.strands.remove(&name);
            }
        }
        if let Some(after) = after {
            self.strands.entry(name).or_default().insert(after);
        }
    }

    /// The gate of this name, with what runs in it.
    fn gate(&self, name: &GateName) -> Gate {
        let is_in = |(key, job_type): &(String, JobType)| match name {
            GateName::Queue => true,
            GateName::Type(name) => name == job_type,
            GateName::Key(name) => name == key,
        };
        let running = self.running.iter().filter(|(name, _)| is_in(name)).map(|(_, count)| count).sum();
        let kept = match name {
            GateName::Queue => Some(&self.gates.queue),
            GateName::Type(job_type) => self.gates.types.get(job_type),
            GateName::Key(key) => self.gates.keys.get(key),
        };
        Gate { running, ..kept.cloned().unwrap_or_default() }
    }

    fn put_gate(&mut self, name: GateName, gate: Gate) {
        match name {
            GateName::Queue => self.gates.queue = gate,
            GateName::Type(job_type) => drop(self.gates.types.insert(job_type, gate)),
            GateName::Key(key) => drop(self.gates.keys.insert(key, gate)),
        }
    }

    /// Forgets gates that say nothing, of keys without jobs (rule K16).
    pub(super) fn forget(&mut self, now: Timestamp) {
        let busy: HashSet<&String> = self.strands.keys().chain(self.running.keys()).map(|(key, _)| key).collect();
        self.gates.keys.retain(|key, gate| busy.contains(key) || !gate.is_blank(now));
        self.open.retain(|key| busy.contains(key));
    }
}

impl Tables {
    /// The control of a queue, if it has one.
    pub(super) fn controlled(&self, queue: &QueueName) -> Option<&Controlled> {
        self.queues.get(queue).and_then(|queue| queue.control.as_deref())
    }

    pub(super) fn control(
        &mut self,
        edit: &ControlEdit,
        by: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<ControlRecord>> {
        if let Change::Pause(paused) = edit.change {
            self.set_paused(edit, paused, by, now);
        }
        let known = self.controlled(&edit.queue);
        let stored = known.map(|known| known.record.clone());
        let gate = known.zip(edit.gate()).map(|(known, name)| known.gate(&name)).unwrap_or_default();
        let change = edit.decide(stored.clone(), gate, now)?;
        if let Some((act, hint)) = rules::controlled(edit, &change, by, now) {
            self.record_act(act);
            self.hint(hint);
        }
        let queue = self.queues.entry(edit.queue.clone()).or_default();
        match (&change.control, queue.control.as_mut()) {
            (None, _) => queue.control = None,
            (Some(record), Some(known)) if known.record.control.has_strands() == record.control.has_strands() => {
                known.record = record.clone();
            }
            (Some(record), _) => self.bring_under(&edit.queue, record.clone()),
        }
        if let Some((name, gate)) = change.gate
            && let Some(known) = self.queues.get_mut(&edit.queue).and_then(|queue| queue.control.as_mut())
        {
            known.put_gate(name, gate);
        }
        Ok(change.control)
    }

    /// Counts what runs and sorts what waits (rule K5).
    fn bring_under(&mut self, name: &QueueName, record: ControlRecord) {
        let gates = self.controlled(name).map(|known| known.gates.clone()).unwrap_or_default();
        let (open, strands, running) = (HashSet::new(), BTreeMap::new(), HashMap::new());
        let mut control = Controlled { record, gates, open, strands, running };
        for stored in self.jobs.values().filter(|stored| stored.entry.job.spec.queue == *name) {
            let job = &stored.entry.job;
            let order = (job.state == State::Scheduled).then(|| job.claim_order(stored.entry.sequence));
            control.place_state(job, None, Some(job.state));
            control.place_claim(job, None, order);
        }
        let queue: &mut Queue = self.queues.entry(name.clone()).or_default();
        queue.control = Some(Box::new(control));
    }

    /// Claims from a controlled queue: what all gates let through, and when to ask again.
    pub(super) fn claim_through_gates(
        &mut self,
        queue: &QueueName,
        wanted: usize,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> (Vec<Claimed>, Option<Timestamp>) {
        let Some(known) = self.controlled(queue) else { return (Vec::new(), None) };
        let gates = self.counted_gates(known);
        let mut heads = HEADS;
        let (strands, picks) = loop {
            let strands = self.strands_of(known, request.types.as_deref(), heads, now);
            let picks = pick(&known.record.control, &gates, &strands, wanted, now);
            if picks.short.is_empty() {
                break (strands, picks);
            }
            heads = heads.saturating_mul(HEADS);
        };
        let Picks { taken, strands: looked, gates, again_at, .. } = picks;
        let known = self.queues.get_mut(queue).and_then(|queue| queue.control.as_mut()).expect("it was there");
        known.gates = Gates { owners: HashMap::new(), ..gates };
        for (strand, _) in strands.iter().zip(&looked).filter(|(_, looked)| looked.look != Look::Open) {
            known.open.remove(&strand.key);
        }
        for (strand, _) in strands.iter().zip(&looked).filter(|(_, looked)| looked.look == Look::Open) {
            known.open.insert(strand.key.clone());
        }
        (taken.into_iter().map(|(_, head)| self.claim_one(head.sequence, request, now)).collect(), again_at)
    }

    /// The gates, with what runs in each and what became of the owners of ordered keys.
    fn counted_gates(&self, known: &Controlled) -> Gates {
        let mut gates = known.gates.clone();
        let all = gates.types.values_mut().chain(gates.keys.values_mut());
        all.chain([&mut gates.queue]).for_each(|gate| gate.running = 0);
        for ((key, job_type), count) in &known.running {
            gates.queue.running += count;
            gates.types.entry(job_type.clone()).or_default().running += count;
            gates.keys.entry(key.clone()).or_default().running += count;
        }
        let owned = gates.keys.iter().filter_map(|(key, gate)| Some((key.clone(), self.owner(gate.owner?).0)));
        gates.owners = owned.collect();
        gates
    }

    /// What became of the job that an ordered key was started with.
    fn owner(&self, sequence: Sequence) -> (Owner, Option<JobId>) {
        let job = self.jobs.get(&sequence).map(|stored| &stored.entry.job);
        (Owner::of(job.map(|job| job.state)), job.map(|job| job.id))
    }

    fn strands_of(&self, known: &Controlled, types: Option<&[JobType]>, heads: usize, now: Timestamp) -> Vec<Strand> {
        let lives = |sequence: Sequence| self.stored(sequence).entry.job.deadline.is_none_or(|deadline| deadline > now);
        let head = |(priority, position, sequence): ClaimOrder| Head { sequence, priority, position, at_door: false };
        let ages = known.record.control.ageing.is_some() || known.record.control.ordered.is_some();
        let mut strands = Vec::with_capacity(known.strands.len());
        for ((key, job_type), waiting) in &known.strands {
            let living = waiting.iter().copied().filter(|(_, _, sequence)| lives(*sequence));
            // Where priorities count only within a key, the first of each priority may be next.
            let first: Vec<Head> = match ages {
                true => living.map(head).collect(),
                false => living.take(heads).map(head).collect(),
            };
            strands.push(Strand {
                id: 0,
                job_type: job_type.clone(),
                key: key.clone(),
                wanted: types.is_none_or(|types| types.contains(job_type)),
                was_open: known.open.contains(key),
                all: ages || first.len() < heads,
                heads: first,
            });
        }
        strands
    }

    /// Holds gates that settlements asked to hold (rule K8).
    pub(super) fn hold_gates(&mut self, holds: Vec<GateHold>) {
        for GateHold { queue, gate: name, until } in holds {
            if let Some(known) = self.queues.get_mut(&queue).and_then(|queue| queue.control.as_mut()) {
                let mut gate = known.gate(&name);
                gate.hold(until);
                known.put_gate(name, gate);
            }
        }
    }

    /// A slot of a controlled queue came free.
    pub(super) fn hint_freed(&mut self, queue: &QueueName) {
        if self.controlled(queue).is_some() {
            self.hint(Wake::Scheduled(queue.clone()));
        }
    }

    /// The gates that let nothing of a job through.
    pub(super) fn blocked(&self, job: &JobRecord, now: Timestamp) -> Vec<Why> {
        let Some(known) = self.controlled(&job.spec.queue) else { return Vec::new() };
        let gates = self.counted_gates(known);
        let control: &Control = &known.record.control;
        let key = control.key_of(job.spec.options.key.as_deref());
        let owner = gates.keys.get(key).and_then(|gate| gate.owner).map(|owner| self.owner(owner));
        let owner = owner.and_then(|(owner, id)| Some((owner, id?)));
        blocked(control, &gates, owner.filter(|(_, id)| *id != job.id), job, now)
    }

    pub(super) fn keys(&self, query: &KeyQuery, now: Timestamp) -> Result<Page<KeyRecord>> {
        let Some(known) = self.controlled(&query.queue) else {
            return Err(Error::not_found("control of queue", query.queue.as_str()));
        };
        let gates = self.counted_gates(known);
        let mut names: BTreeSet<&String> =
            gates.keys.iter().filter(|(_, gate)| gate.running > 0 || !gate.is_blank(now)).map(|(key, _)| key).collect();
        names.extend(known.strands.keys().map(|(key, _)| key));
        let (from, limit) = (query.after.as_ref().map(|after| &after.0), query.limit.clamp(1, PAGE_MAX));
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        let mut items = Vec::new();
        for name in names.range::<String, _>((from, Bound::Unbounded)) {
            if name.is_empty() || query.key.as_ref().is_some_and(|key| key != *name) {
                continue;
            }
            let gate = gates.keys.get(*name).cloned().unwrap_or_default();
            let owner = gate.owner.map(|owner| self.owner(owner)).and_then(|(owner, id)| Some((owner, id?)));
            let strands = known.strands.iter().filter(|((key, _), _)| key == *name);
            let waiting = strands.map(|(_, waiting)| waiting.len() as u64).sum();
            let record = KeyRecord::of(&known.record.control, name, &gate, owner, waiting, now);
            if query.blocked && !record.state.is_blocked() {
                continue;
            }
            items.push(record);
            if items.len() == limit {
                return Ok(Page { items, next: Some(Cursor((*name).clone())) });
            }
        }
        Ok(Page { items, next: None })
    }
}
