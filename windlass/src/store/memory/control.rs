//! Flow control: the claim through the gates of a controlled queue, and what operators change of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::strands::{Controlled, Keyed, head};
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::flow::{
    Change, Control, ControlEdit, ControlRecord, GATE_JOBS_MAX, Gate, GateName, Gates, KeyRecord, Owner, Picks, Strand,
    blocked, pick,
};
use crate::job::{AheadByKey, EXPLAIN_SCAN_MAX, JobId, JobRecord, JobType, QueueName, State, Why};
use crate::observe;
use crate::store::answer::{Claimed, Page, Wake};
use crate::store::request::{ClaimRequest, Cursor, KeyQuery, PAGE_MAX};
use crate::store::rules::{self, GateHold};
use crate::time::Timestamp;
use crate::workflow::Sequence;

/// How many jobs of a strand are looked at first, beyond its share.
const HEADS: usize = 2;
/// How many open strands of a type are looked at first, beyond those wanted.
const STRANDS: usize = 1;

/// What a claim looks at.
struct View {
    gates: Gates,
    strands: Vec<Strand>,
}

impl Tables {
    /// The control of a queue, if it has one.
    pub(super) fn controlled(&self, queue: &QueueName) -> Option<&Controlled> {
        self.queues.get(queue).and_then(|queue| queue.control.as_deref())
    }

    fn controlled_mut(&mut self, queue: &QueueName) -> Option<&mut Controlled> {
        self.queues.get_mut(queue).and_then(|queue| queue.control.as_deref_mut())
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
        match &change.control {
            None => queue.control = None,
            Some(record) if stored.as_ref() == Some(record) => {}
            Some(record) => self.bring_under(&edit.queue, record.clone()),
        }
        if let Some((name, gate)) = change.gate
            && let Some(known) = self.controlled_mut(&edit.queue)
        {
            known.put_gate(name.clone(), gate);
            if let GateName::Key(key) = name {
                known.touched.insert(key);
            }
        }
        self.pick_from(&edit.queue, None, 0, now);
        Ok(change.control)
    }

    /// Counts what runs and sorts what waits (rule K5).
    fn bring_under(&mut self, name: &QueueName, record: ControlRecord) {
        let gates = self.controlled(name).map(Controlled::gates).unwrap_or_default();
        let mut control = Controlled::new(record);
        for (name, gate) in gates {
            control.put_gate(name, gate);
        }
        for (sequence, stored) in self.jobs.iter().filter(|(_, stored)| stored.entry.job.spec.queue == *name) {
            let job = &stored.entry.job;
            let order = (job.state == State::Scheduled).then(|| job.claim_order(*sequence));
            control.place_state(*sequence, job, None, Some(job.state));
            if order.is_some() {
                control.place_claim(job, None, order);
            }
        }
        self.queues.entry(name.clone()).or_default().control = Some(Box::new(control));
    }

    /// Claims from a controlled queue: what all gates let through, and when to ask again.
    pub(super) fn claim_through_gates(
        &mut self,
        queue: &QueueName,
        wanted: usize,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> (Vec<Claimed>, Option<Timestamp>) {
        let (taken, again_at) = self.pick_from(queue, request.types.as_deref(), wanted, now);
        (taken.into_iter().map(|sequence| self.claim_one(sequence, request, now)).collect(), again_at)
    }

    /// Says what a claim takes, and writes down how it leaves gates and strands.
    fn pick_from(
        &mut self,
        queue: &QueueName,
        types: Option<&[JobType]>,
        wanted: usize,
        now: Timestamp,
    ) -> (Vec<Sequence>, Option<Timestamp>) {
        let Some(known) = self.controlled(queue) else { return (Vec::new(), None) };
        let room = known.queue.room(&known.control().of_queue(), now);
        if room.starts == 0 && wanted > 0 {
            let waits = self.queues.get(queue).is_some_and(|queue| !queue.lanes.is_empty());
            let why = known.queue.closed_by(&known.control().of_queue(), now);
            observe::claim_blocked(queue, why.filter(|_| waits));
            return (Vec::new(), room.again_at.filter(|_| waits));
        }
        let (mut strands, mut heads) = (if wanted == 0 { 0 } else { wanted.saturating_add(STRANDS) }, HEADS);
        let (view, picks) = loop {
            let view = self.view(known, types, (strands, heads), now);
            let picks = pick(known.control(), &view.gates, &view.strands, wanted, now);
            if picks.short.is_empty() && picks.more.is_empty() {
                break (view, picks);
            }
            heads = if picks.short.is_empty() { heads } else { heads.saturating_mul(4) };
            strands = if picks.more.is_empty() { strands } else { strands.saturating_mul(4) };
        };
        observe::claim_blocked(queue, picks.blocked.iter().copied());
        if known.control().has_strands() {
            observe::keys_served(queue, picks.key_waits(&view.strands, now));
        }
        let Picks { taken, strands: looked, gates, again_at, .. } = picks;
        let known = self.controlled_mut(queue).expect("it was there");
        known.put_gate(GateName::Queue, gates.queue);
        for (job_type, gate) in gates.types {
            known.put_gate(GateName::Type(job_type), gate);
        }
        for (key, gate) in gates.keys {
            known.touched.remove(&key);
            if known.gate(&GateName::Key(key.clone())) != gate {
                known.put_gate(GateName::Key(key), gate);
            }
        }
        for (strand, looked) in view.strands.iter().zip(looked) {
            known.put_look(&strand.key, &strand.job_type, looked);
        }
        let later = known.later.first().map(|(at, _, _)| *at);
        let again_at = [again_at, later].into_iter().flatten().min();
        (taken.into_iter().map(|(_, head)| head.sequence).collect(), again_at)
    }

    /// How many strands and jobs a claim looks at first.
    #[cfg(test)]
    pub(super) fn looked_at(
        &self,
        known: &Controlled,
        types: Option<&[JobType]>,
        wanted: usize,
        now: Timestamp,
    ) -> (usize, usize) {
        let view = self.view(known, types, (wanted.saturating_add(STRANDS), HEADS), now);
        (view.strands.len(), view.strands.iter().map(|strand| strand.heads.len()).sum())
    }

    /// The keys that something happened to, those whose moment has come, and the first open ones of each type.
    fn view(
        &self,
        known: &Controlled,
        types: Option<&[JobType]>,
        (strands, heads): (usize, usize),
        now: Timestamp,
    ) -> View {
        let control = known.control();
        let mut names: BTreeSet<String> = known.touched.clone();
        names.extend(known.later.iter().take_while(|(at, _, _)| *at <= now).map(|(_, key, _)| key.clone()));
        let mut gates = Gates { queue: known.queue.clone(), lowest: known.lowest(), ..Gates::default() };
        for (job_type, gate) in &known.types {
            gates.types.insert(job_type.clone(), gate.clone());
        }
        let is_wanted = |job_type: &JobType| types.is_none_or(|types| types.contains(job_type));
        let blank = Gate::default();
        let mut of_type = known.open.first().map(|(job_type, _, _)| job_type);
        while let Some(job_type) = of_type {
            let gate = known.types.get(job_type).unwrap_or(&blank);
            let room = gate.room(&control.of_this_type(job_type), now);
            if strands > 0 && is_wanted(job_type) && room.starts > 0 {
                let (read, unread) = known.first_open(job_type, strands);
                names.extend(read);
                gates.unread.extend(unread.map(|order| (job_type.clone(), order)));
            } else if is_wanted(job_type) && room.starts == 0 {
                gates.again_at = [gates.again_at, room.again_at].into_iter().flatten().min();
                gates.shut.extend(gate.closed_by(&control.of_this_type(job_type), now));
            }
            of_type = known.next_type(job_type);
        }
        let mut view = View { gates, strands: Vec::new() };
        let share = strands / names.len().max(1);
        for key in names {
            if let Some(of_key) = known.keys.get(&key) {
                self.view_key(&mut view, known, (key, of_key), heads.saturating_add(share), now);
            }
        }
        for strand in &mut view.strands {
            strand.wanted = is_wanted(&strand.job_type);
        }
        view
    }

    fn view_key(
        &self,
        view: &mut View,
        known: &Controlled,
        (key, of_key): (String, &Keyed),
        heads: usize,
        now: Timestamp,
    ) {
        let lives = |sequence: Sequence| self.stored(sequence).entry.job.deadline.is_none_or(|deadline| deadline > now);
        let gate = of_key.counted();
        let owner = gate.owner.map(|owner| (self.owner(owner).0, owner));
        view.gates.owners.extend(owner.map(|(state, _)| (key.clone(), state)));
        // An ordered key goes on with the job that it was started with, and a key without room bids for nothing.
        let only = owner.filter(|(state, _)| known.control().ordered.is_some() && *state == Owner::Unfinished);
        let is_closed = gate.room(&known.control().of_key(&key, &gate), now).starts == 0;
        let heads = if is_closed { 1 } else { heads };
        view.gates.keys.insert(key.clone(), gate);
        for (job_type, strand) in &of_key.strands {
            let waiting = strand.jobs.iter().map(|((_, _, sequence), (priority, at))| (*priority, *at, *sequence));
            let waiting = waiting.filter(|(_, _, sequence)| lives(*sequence));
            let found: Vec<_> = match only {
                Some((_, owner)) => {
                    self.waits_in(owner, job_type, strand).into_iter().filter(|job| lives(job.2)).collect()
                }
                None => waiting.take(heads).collect(),
            };
            view.strands.push(Strand {
                id: 0,
                job_type: job_type.clone(),
                key: key.clone(),
                wanted: true,
                was_open: strand.look == crate::flow::Look::Open,
                all: only.is_some() || found.len() < heads,
                heads: found.into_iter().map(head).collect(),
            });
        }
    }

    /// The place of a job, if it waits in this strand.
    fn waits_in(
        &self,
        sequence: Sequence,
        job_type: &JobType,
        strand: &super::strands::Waiting,
    ) -> Option<super::tables::ClaimOrder> {
        let job = &self.jobs.get(&sequence)?.entry.job;
        let waits = job.state == State::Scheduled && job.spec.job_type == *job_type && !strand.jobs.is_empty();
        waits.then(|| job.claim_order(sequence))
    }

    /// What became of the job that an ordered key was started with.
    fn owner(&self, sequence: Sequence) -> (Owner, Option<JobId>) {
        let job = self.jobs.get(&sequence).map(|stored| &stored.entry.job);
        (Owner::of(job.map(|job| job.state)), job.map(|job| job.id))
    }

    /// Holds gates that settlements asked to hold (rule K8).
    pub(super) fn hold_gates(&mut self, holds: Vec<GateHold>) {
        for GateHold { queue, gate: name, until } in holds {
            if let Some(known) = self.controlled_mut(&queue) {
                let mut gate = known.gate(&name);
                gate.hold(until);
                if let GateName::Key(key) = &name {
                    known.touched.insert(key.clone());
                }
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
        let key = known.control().key_of(job.spec.options.key.as_deref());
        let gate = known.gate(&GateName::Key(key.to_owned()));
        let owner = gate.owner.map(|owner| self.owner(owner)).and_then(|(owner, id)| Some((owner, id?)));
        let gates = Gates {
            queue: known.queue.clone(),
            types: known.types.clone(),
            keys: BTreeMap::from([(key.to_owned(), gate)]),
            ..Gates::default()
        };
        let mut closed = blocked(known.control(), &gates, owner.filter(|(_, id)| *id != job.id), job, now);
        for gate in closed.iter_mut().filter(|gate| gate.is_full()) {
            gate.jobs = self.jobs_in(&job.spec.queue, known.control(), &gate.gate);
        }
        closed.into_iter().map(|gate| gate.why(&job.spec.queue)).collect()
    }

    /// What comes before a job where its queue tells keys apart.
    pub(super) fn ahead_by_key(&self, sequence: Sequence, job: &JobRecord) -> Option<AheadByKey> {
        let known = self.controlled(&job.spec.queue).filter(|known| known.control().has_strands())?;
        let key = known.control().key_of(job.spec.options.key.as_deref());
        let place = known.control().within_key(&head(job.claim_order(sequence)));
        let strands = known.keys.get(key).into_iter().flat_map(|known| known.strands.values());
        let jobs = strands.flat_map(|strand| strand.jobs.range(..place)).take(EXPLAIN_SCAN_MAX).count();
        Some(AheadByKey { key: key.to_owned(), jobs, keys: known.keys_before(key, EXPLAIN_SCAN_MAX) })
    }

    /// The jobs in a gate that started first.
    fn jobs_in(&self, queue: &QueueName, control: &Control, gate: &GateName) -> Vec<JobId> {
        let counts = |job: &JobRecord| match gate {
            GateName::Queue => true,
            GateName::Type(job_type) => job.spec.job_type == *job_type,
            GateName::Key(key) => control.key_of(job.spec.options.key.as_deref()) == key,
        };
        let running = self.leases.iter().map(|(_, sequence)| (*sequence, &self.stored(*sequence).entry.job));
        let mut running: Vec<_> = running
            .filter(|(_, job)| job.spec.queue == *queue && counts(job))
            .map(|(sequence, job)| (job.started_at, sequence, job.id))
            .collect();
        running.sort_unstable();
        running.into_iter().take(GATE_JOBS_MAX).map(|(_, _, id)| id).collect()
    }

    pub(super) fn keys(&self, query: &KeyQuery, now: Timestamp) -> Result<Page<KeyRecord>> {
        let Some(known) = self.controlled(&query.queue) else {
            return Err(Error::not_found("control of queue", query.queue.as_str()));
        };
        let limit = query.limit.clamp(1, PAGE_MAX);
        let from = query.after.as_ref().map_or(Bound::Unbounded, |after| Bound::Excluded(&after.0));
        let range = match &query.key {
            Some(key) => (Bound::Included(key), Bound::Included(key)),
            None => (from, Bound::Unbounded),
        };
        let mut items = Vec::new();
        for (key, of_key) in known.keys.range::<String, _>(range) {
            let (gate, waiting) = (of_key.counted(), of_key.waiting());
            if key.is_empty() || waiting == 0 && gate.running == 0 && gate.is_blank(now) {
                continue;
            }
            let owner = gate.owner.map(|owner| self.owner(owner)).and_then(|(owner, id)| Some((owner, id?)));
            let record = KeyRecord::of(known.control(), key, &gate, owner, waiting as u64, now);
            if query.blocked && !record.state.is_blocked() {
                continue;
            }
            items.push(record);
            if items.len() == limit {
                return Ok(Page::new(items, Some(Cursor(key.clone()))));
            }
        }
        Ok(Page::new(items, None))
    }
}
