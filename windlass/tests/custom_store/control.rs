//! Flow control: a claim hands all that waits and runs in a controlled queue to `flow::pick`, and keeps the gates that it gives
//! back. What runs is counted from the jobs each time, so that no end can be forgotten.

use std::collections::{BTreeMap, BTreeSet};

use windlass::flow::{
    Change, Control, ControlEdit, ControlRecord, GATE_JOBS_MAX, Gate, GateName, Gates, Head, KeyRecord, Look, Order,
    Owner, Picks, Strand, blocked, pick,
};
use windlass::job::{AheadByKey, EXPLAIN_SCAN_MAX, JobId, JobRecord, Why};
use windlass::store::rules::{self, Entry, GateHold};
use windlass::store::{Cursor, KeyQuery, PAGE_MAX, Page};
use windlass::workflow::Sequence;
use windlass::{Error, JobType, QueueName, Result, State, Timestamp};

use super::Tables;

/// What is kept of a controlled queue.
#[derive(Debug)]
pub(super) struct Controlled {
    pub(super) record: ControlRecord,
    /// Gates that say something, without what runs.
    gates: BTreeMap<GateName, Gate>,
    /// The strands (key and type) that the last claim left open, each with its place among them.
    open: BTreeMap<(String, JobType), Order>,
}

impl Controlled {
    /// Keeps gates as a claim or a change leaves them.
    fn put(&mut self, name: GateName, gate: Gate) {
        self.gates.insert(name, Gate { running: 0, ..gate });
    }
}

impl Tables {
    pub(super) fn control(
        &mut self,
        edit: &ControlEdit,
        by: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<ControlRecord>> {
        if let Change::Pause(paused) = edit.change {
            self.set_paused(edit, paused, by, now);
        }
        let stored = self.controls.get(&edit.queue).map(|known| known.record.clone());
        let gate = edit.gate().and_then(|name| self.controls.get(&edit.queue)?.gates.get(&name).cloned());
        let change = edit.decide(stored, gate.unwrap_or_default(), now)?;
        if let Some((act, wake)) = rules::controlled(edit, &change, by, now) {
            self.record_act(act);
            self.wakes.push(wake);
        }
        match &change.control {
            None => drop(self.controls.remove(&edit.queue)),
            Some(record) => {
                self.queues.entry(edit.queue.clone()).or_insert(false);
                let fresh = || Controlled { record: record.clone(), gates: BTreeMap::new(), open: BTreeMap::new() };
                let known = self.controls.entry(edit.queue.clone()).or_insert_with(fresh);
                if known.record != *record {
                    (known.record, known.open) = (record.clone(), BTreeMap::new());
                }
                if let Some((name, gate)) = change.gate {
                    known.put(name, gate);
                }
                // Whoever asks how keys stand is told by the new control.
                self.pick_from(&edit.queue, None, 0, now);
            }
        }
        Ok(change.control)
    }

    /// What a claim takes from a controlled queue, and when to ask again if time alone will open a gate.
    pub(super) fn pick_from(
        &mut self,
        queue: &QueueName,
        types: Option<&[JobType]>,
        wanted: usize,
        now: Timestamp,
    ) -> (Vec<Sequence>, Option<Timestamp>) {
        let known = &self.controls[queue];
        let (control, gates) = (known.record.control.clone(), self.counted_gates(queue, known));
        let strands = self.strands(queue, known, types, now);
        let Picks { taken, strands: looked, gates, again_at, .. } = pick(&control, &gates, &strands, wanted, now);
        let known = self.controls.get_mut(queue).expect("it was there");
        known.put(GateName::Queue, gates.queue);
        gates.types.into_iter().for_each(|(name, gate)| known.put(GateName::Type(name), gate));
        gates.keys.into_iter().for_each(|(name, gate)| known.put(GateName::Key(name), gate));
        let looked = strands.into_iter().zip(looked).filter(|(_, looked)| looked.look == Look::Open);
        known.open = looked.map(|(strand, looked)| ((strand.key, strand.job_type), looked.order)).collect();
        (taken.into_iter().map(|(_, head)| head.sequence).collect(), again_at)
    }

    /// Its gates, with what runs in them and what became of the owners of ordered keys.
    fn counted_gates(&self, queue: &QueueName, known: &Controlled) -> Gates {
        let mut gates = Gates::default();
        for (name, gate) in &known.gates {
            let gate = gate.clone();
            match name {
                GateName::Queue => gates.queue = gate,
                GateName::Type(job_type) => drop(gates.types.insert(job_type.clone(), gate)),
                GateName::Key(key) => drop(gates.keys.insert(key.clone(), gate)),
            }
        }
        for Entry { job, .. } in self.in_state(queue, State::Running) {
            gates.queue.running += 1;
            gates.types.entry(job.spec.job_type.clone()).or_default().running += 1;
            gates.keys.entry(key_of(&known.record.control, job)).or_default().running += 1;
        }
        let owners = gates.keys.iter().filter_map(|(key, gate)| Some((key.clone(), self.owner(gate.owner?).0)));
        gates.owners = owners.collect();
        gates
    }

    /// All that waits and is due, by key and type.
    fn strands(&self, queue: &QueueName, known: &Controlled, types: Option<&[JobType]>, now: Timestamp) -> Vec<Strand> {
        let mut heads: BTreeMap<(String, JobType), Vec<Head>> = BTreeMap::new();
        for Entry { job, sequence, .. } in self.in_state(queue, State::Scheduled) {
            if job.deadline.is_none_or(|deadline| deadline > now) {
                let strand = (key_of(&known.record.control, job), job.spec.job_type.clone());
                heads.entry(strand).or_default().push(head(job, *sequence));
            }
        }
        let strand = |((key, job_type), heads): ((String, JobType), Vec<Head>)| {
            let wanted = types.is_none_or(|types| types.contains(&job_type));
            let was_open = known.open.contains_key(&(key.clone(), job_type.clone()));
            Strand { id: 0, job_type, key, wanted, was_open, heads, all: true }
        };
        heads.into_iter().map(strand).collect()
    }

    fn in_state(&self, queue: &QueueName, state: State) -> impl Iterator<Item = &Entry> {
        let entries = self.jobs.values().map(|stored| &stored.entry);
        entries.filter(move |entry| entry.job.state == state && entry.job.spec.queue == *queue)
    }

    /// What became of the job that an ordered key was started with.
    fn owner(&self, sequence: Sequence) -> (Owner, Option<JobId>) {
        let job = self.jobs.get(&sequence).map(|stored| &stored.entry.job);
        (Owner::of(job.map(|job| job.state)), job.map(|job| job.id))
    }

    /// Holds gates that settlements asked to hold (K8).
    pub(super) fn hold_gates(&mut self, holds: Vec<GateHold>) {
        for GateHold { queue, gate, until } in holds {
            if let Some(known) = self.controls.get_mut(&queue) {
                known.gates.entry(gate).or_default().hold(until);
            }
        }
    }

    /// The gates that let nothing of a job through.
    pub(super) fn blocked(&self, job: &JobRecord, now: Timestamp) -> Vec<Why> {
        let queue = &job.spec.queue;
        let Some(known) = self.controls.get(queue) else { return Vec::new() };
        let (control, gates) = (&known.record.control, self.counted_gates(queue, known));
        let owner = gates.keys.get(&key_of(control, job)).and_then(|gate| gate.owner);
        let owner = owner.map(|owner| self.owner(owner)).and_then(|(owner, id)| Some((owner, id?)));
        let mut closed = blocked(control, &gates, owner.filter(|(_, id)| *id != job.id), job, now);
        for gate in closed.iter_mut().filter(|gate| gate.is_full()) {
            let counts = |entry: &&Entry| match &gate.gate {
                GateName::Queue => true,
                GateName::Type(job_type) => entry.job.spec.job_type == *job_type,
                GateName::Key(key) => key_of(control, &entry.job) == *key,
            };
            let mut inside: Vec<_> = self.in_state(queue, State::Running).filter(counts).collect();
            inside.sort_by_key(|entry| (entry.job.started_at, entry.sequence));
            gate.jobs = inside.into_iter().take(GATE_JOBS_MAX).map(|entry| entry.job.id).collect();
        }
        closed.into_iter().map(|gate| gate.why(queue)).collect()
    }

    /// What comes before a job where its queue tells keys apart.
    pub(super) fn ahead_by_key(&self, job: &JobRecord, sequence: Sequence) -> Option<AheadByKey> {
        let known = self.controls.get(&job.spec.queue).filter(|known| known.record.control.has_strands())?;
        let (control, key) = (&known.record.control, key_of(&known.record.control, job));
        let place = control.within_key(&head(job, sequence));
        let of_key =
            self.in_state(&job.spec.queue, State::Scheduled).filter(|other| key_of(control, &other.job) == key);
        let before = of_key.filter(|other| control.within_key(&head(&other.job, other.sequence)) < place);
        let own = known.open.iter().filter(|((other, _), _)| *other == key).map(|(_, order)| order).min();
        let others = known.open.iter().filter(|((other, _), order)| *other != key && Some(*order) < own);
        let keys: BTreeSet<&String> = others.map(|((other, _), _)| other).collect();
        let (jobs, keys) = (before.take(EXPLAIN_SCAN_MAX).count(), keys.len().min(EXPLAIN_SCAN_MAX));
        Some(AheadByKey { key, jobs, keys })
    }

    pub(super) fn keys(&self, query: &KeyQuery, now: Timestamp) -> Result<Page<KeyRecord>> {
        let Some(known) = self.controls.get(&query.queue) else {
            return Err(Error::not_found("control of queue", query.queue.as_str()));
        };
        let (control, mut gates) = (&known.record.control, self.counted_gates(&query.queue, known));
        let mut waiting: BTreeMap<String, u64> = BTreeMap::new();
        for Entry { job, .. } in self.in_state(&query.queue, State::Scheduled) {
            let key = key_of(control, job);
            gates.keys.entry(key.clone()).or_default();
            *waiting.entry(key).or_default() += 1;
        }
        let mut items = Vec::new();
        for (key, gate) in &gates.keys {
            let is_asked = query.key.as_ref().is_none_or(|asked| asked == key);
            let is_after = query.after.as_ref().is_none_or(|after| after.0 < *key);
            let waits = waiting.get(key).copied().unwrap_or_default();
            if key.is_empty() || !is_asked || !is_after || waits == 0 && gate.running == 0 && gate.is_blank(now) {
                continue;
            }
            let owner = gate.owner.map(|owner| self.owner(owner)).and_then(|(owner, id)| Some((owner, id?)));
            let record = KeyRecord::of(control, key, gate, owner, waits, now);
            if query.blocked && !record.state.is_blocked() {
                continue;
            }
            items.push(record);
            if items.len() == query.limit.clamp(1, PAGE_MAX) {
                return Ok(Page::new(items, Some(Cursor(key.clone()))));
            }
        }
        Ok(Page::new(items, None))
    }

    /// Forgets keys that say nothing and have no jobs (K16).
    pub(super) fn forget_gates(&mut self, now: Timestamp) {
        let mut controls = std::mem::take(&mut self.controls);
        for (queue, known) in &mut controls {
            let states = [State::Scheduled, State::Running];
            let jobs = states.into_iter().flat_map(|state| self.in_state(queue, state));
            let used: BTreeSet<String> = jobs.map(|entry| key_of(&known.record.control, &entry.job)).collect();
            known.gates.retain(|name, gate| match name {
                GateName::Queue | GateName::Type(_) => true,
                GateName::Key(key) => used.contains(key) || !gate.is_blank(now),
            });
        }
        self.controls = controls;
    }
}

/// A waiting job as `flow` knows it.
fn head(job: &JobRecord, sequence: Sequence) -> Head {
    let (priority, position, sequence) = job.claim_order(sequence);
    Head { sequence, priority, position, at_door: false }
}

fn key_of(control: &Control, job: &JobRecord) -> String {
    control.key_of(job.spec.options.key.as_deref()).to_owned()
}
