//! The jobs of a controlled queue by key and type, and the indexes that a claim leans on.
//!
//! A *strand* is what waits of one key and type. Open ones stand in the order in which they are served, those that time alone
//! will open stand by their moment, and full or empty ones stand nowhere: so a claim looks at what it serves, and at keys to
//! which something has happened since the last one (`touched`). Whatever moves a job comes through here, as for every index.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::tables::ClaimOrder;
use crate::flow::{Control, ControlRecord, Gate, GateName, Head, Look, Looked, Order};
use crate::job::{JobRecord, JobType, Priority, State};
use crate::time::Timestamp;
use crate::workflow::Sequence;

/// What waits of one key and type, in the order within a key, and how much of it runs.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) jobs: BTreeMap<(u8, i64, Sequence), (Priority, Timestamp)>,
    pub(super) running: u32,
    pub(super) look: Look,
    order: Order,
}

impl Waiting {
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.running == 0
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting { jobs: BTreeMap::new(), running: 0, look: Look::Empty, order: Order::FIRST }
    }
}

/// A key: its gate without what runs, and its strands.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    pub(super) gate: Gate,
    pub(super) strands: BTreeMap<JobType, Waiting>,
}

impl Keyed {
    /// Its gate with what runs in it.
    pub(super) fn counted(&self) -> Gate {
        Gate { running: self.strands.values().map(|strand| strand.running).sum(), ..self.gate.clone() }
    }

    pub(super) fn waiting(&self) -> usize {
        self.strands.values().map(|strand| strand.jobs.len()).sum()
    }
}

/// What is known of a controlled queue beside its jobs. The counts follow from these, as every index does.
#[derive(Debug)]
pub(super) struct Controlled {
    pub(super) record: ControlRecord,
    /// The gate of the queue, and those of its types, with what runs in them.
    pub(super) queue: Gate,
    pub(super) types: BTreeMap<JobType, Gate>,
    pub(super) keys: BTreeMap<String, Keyed>,
    /// Keys to which something has happened since a claim looked at them.
    pub(super) touched: BTreeSet<String>,
    /// Open strands in the order in which they are served.
    pub(super) open: BTreeSet<(JobType, Order, String)>,
    /// Strands that time alone will open.
    pub(super) later: BTreeSet<(Timestamp, String, JobType)>,
    /// Keys that may have left nothing behind.
    idle: BTreeSet<String>,
}

impl Controlled {
    pub(super) fn new(record: ControlRecord) -> Self {
        Controlled {
            record,
            queue: Gate::default(),
            types: BTreeMap::new(),
            keys: BTreeMap::new(),
            touched: BTreeSet::new(),
            open: BTreeSet::new(),
            later: BTreeSet::new(),
            idle: BTreeSet::new(),
        }
    }

    /// What an earlier control left in the gates, without what runs.
    pub(super) fn gates(&self) -> Vec<(GateName, Gate)> {
        let queue = [(GateName::Queue, &self.queue)].into_iter();
        let types = self.types.iter().map(|(job_type, gate)| (GateName::Type(job_type.clone()), gate));
        let keys = self.keys.iter().map(|(key, known)| (GateName::Key(key.clone()), &known.gate));
        queue.chain(types).chain(keys).map(|(name, gate)| (name, Gate { running: 0, ..gate.clone() })).collect()
    }

    pub(super) fn control(&self) -> &Control {
        &self.record.control
    }

    fn names(&self, job: &JobRecord) -> (String, JobType) {
        (self.control().key_of(job.spec.options.key.as_deref()).to_owned(), job.spec.job_type.clone())
    }

    /// Moves the count with the job.
    pub(super) fn place_state(
        &mut self,
        sequence: Sequence,
        job: &JobRecord,
        before: Option<State>,
        after: Option<State>,
    ) {
        let (key, job_type) = self.names(job);
        let (ran, runs) = (before == Some(State::Running), after == Some(State::Running));
        let ends = after.is_none_or(State::is_terminal);
        if ran == runs {
            // The end of a job that an ordered key waits for is felt even if it did not run.
            if ends && self.keys.get(&key).is_some_and(|known| known.gate.owner == Some(sequence)) {
                self.touched.insert(key);
            }
            return;
        }
        let step = i64::from(runs) - i64::from(ran);
        let strand = self.keys.entry(key.clone()).or_default().strands.entry(job_type.clone()).or_default();
        let of_type = self.types.entry(job_type).or_default();
        for count in [&mut strand.running, &mut of_type.running, &mut self.queue.running] {
            *count = u32::try_from(i64::from(*count) + step).expect("a job leaves RUNNING once");
        }
        if strand.is_idle() {
            self.idle.insert(key.clone());
        }
        if ran {
            self.touched.insert(key);
        }
    }

    /// Moves the job from strand to strand.
    pub(super) fn place_claim(&mut self, job: &JobRecord, before: Option<ClaimOrder>, after: Option<ClaimOrder>) {
        let (key, job_type) = self.names(job);
        let control = self.record.control.clone();
        let strand = self.keys.entry(key.clone()).or_default().strands.entry(job_type).or_default();
        if let Some(before) = before {
            strand.jobs.remove(&control.within_key(&head(before)));
        }
        if let Some(after) = after {
            let place = control.within_key(&head(after));
            let leads = strand.jobs.first_key_value().is_none_or(|(first, _)| place < *first);
            strand.jobs.insert(place, (after.0, after.1));
            // Behind others, or where the key is closed, it makes no difference yet. Where keys are ordered it may be the
            // one that its key waits for.
            let is_felt = match strand.look {
                Look::Open => leads,
                Look::Empty => true,
                Look::At(_) | Look::Full => control.ordered.is_some(),
            };
            if is_felt {
                self.touched.insert(key);
            }
            return;
        }
        if strand.is_idle() {
            self.idle.insert(key.clone());
        }
        // Another job of an ordered key may be next now, perhaps one of another type.
        if control.ordered.is_some() {
            self.touched.insert(key);
        }
    }

    /// Writes down what a claim found a strand to be.
    pub(super) fn put_look(&mut self, key: &str, job_type: &JobType, looked: Looked) {
        let Some(strand) = self.keys.get_mut(key).and_then(|known| known.strands.get_mut(job_type)) else { return };
        match strand.look {
            Look::Open => drop(self.open.remove(&(job_type.clone(), strand.order, key.to_owned()))),
            Look::At(at) => drop(self.later.remove(&(at, key.to_owned(), job_type.clone()))),
            Look::Full | Look::Empty => {}
        }
        (strand.look, strand.order) = (looked.look, looked.order);
        match strand.look {
            Look::Open => drop(self.open.insert((job_type.clone(), strand.order, key.to_owned()))),
            Look::At(at) => drop(self.later.insert((at, key.to_owned(), job_type.clone()))),
            Look::Full | Look::Empty => {}
        }
    }

    /// The first open strands of a type: their keys; and the order of the last, if there are more.
    pub(super) fn first_open(&self, job_type: &JobType, limit: usize) -> (Vec<String>, Option<Order>) {
        let from = (job_type.clone(), Order { turn: i64::MIN, ..Order::FIRST }, String::new());
        let mut strands = self.open.range(from..).take_while(|(name, _, _)| name == job_type);
        let read: Vec<_> = strands.by_ref().take(limit).collect();
        let last = strands.next().and_then(|_| read.last().map(|(_, order, _)| *order));
        (read.into_iter().map(|(_, _, key)| key.clone()).collect(), last)
    }

    /// The next type, in the order of names, that has an open strand.
    pub(super) fn next_type(&self, job_type: &JobType) -> Option<&JobType> {
        let most = Order { level: u8::MAX, class: u8::MAX, turn: i64::MAX, place: i64::MAX, sequence: i64::MAX };
        let beyond = (job_type.clone(), most, String::new());
        self.open.range((Bound::Excluded(beyond), Bound::Unbounded)).next().map(|(job_type, _, _)| job_type)
    }

    /// How many other keys have a strand that is served before those of this key, up to a limit; none while it has no open one.
    pub(super) fn keys_before(&self, key: &str, limit: usize) -> usize {
        let strands = self.keys.get(key).into_iter().flat_map(|known| known.strands.values());
        let Some(own) = strands.filter(|strand| strand.look == Look::Open).map(|strand| strand.order).min() else {
            return 0;
        };
        let mut before = BTreeSet::new();
        let mut next = self.open.first().map(|(job_type, _, _)| job_type);
        while let Some(job_type) = next {
            let from = (job_type.clone(), Order { turn: i64::MIN, ..Order::FIRST }, String::new());
            let strands = self.open.range(from..(job_type.clone(), own, String::new()));
            before.extend(strands.map(|(_, _, other)| other).filter(|other| *other != key).take(limit));
            next = self.next_type(job_type);
        }
        before.len().min(limit)
    }

    /// The lowest turn of the strands that are open: the first of each level and class of each type.
    pub(super) fn lowest(&self) -> Option<i64> {
        let mut lowest: Option<i64> = None;
        let mut next = self.open.first();
        while let Some((job_type, order, _)) = next {
            lowest = Some(lowest.map_or(order.turn, |lowest| lowest.min(order.turn)));
            let last = Order { turn: i64::MAX, place: i64::MAX, sequence: i64::MAX, ..*order };
            let beyond = (job_type.clone(), last, String::new());
            next = self.open.range((Bound::Excluded(beyond), Bound::Unbounded)).next();
        }
        lowest
    }

    /// The gate of this name, with what runs in it.
    pub(super) fn gate(&self, name: &GateName) -> Gate {
        match name {
            GateName::Queue => self.queue.clone(),
            GateName::Type(job_type) => self.types.get(job_type).cloned().unwrap_or_default(),
            GateName::Key(key) => self.keys.get(key).map(Keyed::counted).unwrap_or_default(),
        }
    }

    /// Keeps a gate; what runs in it is counted here.
    pub(super) fn put_gate(&mut self, name: GateName, gate: Gate) {
        match name {
            GateName::Queue => self.queue = Gate { running: self.queue.running, ..gate },
            GateName::Type(job_type) => {
                let known = self.types.entry(job_type).or_default();
                *known = Gate { running: known.running, ..gate };
            }
            GateName::Key(key) => {
                self.keys.entry(key.clone()).or_default().gate = Gate { running: 0, ..gate };
                self.idle.insert(key);
            }
        }
    }

    /// Forgets keys that say nothing and have no jobs (rule K16).
    pub(super) fn forget(&mut self, now: Timestamp) {
        for key in std::mem::take(&mut self.idle) {
            let Some(known) = self.keys.get_mut(&key) else { continue };
            let gone: Vec<JobType> =
                known.strands.iter().filter(|(_, strand)| strand.is_idle()).map(|(name, _)| name.clone()).collect();
            for job_type in gone {
                self.put_look(&key, &job_type, Looked { order: Order::FIRST, look: Look::Empty });
                self.keys.get_mut(&key).map(|known| known.strands.remove(&job_type));
            }
            let known = &self.keys[&key];
            match (known.strands.is_empty(), known.gate.is_blank(now)) {
                (true, true) => drop(self.keys.remove(&key)),
                // Its gate says something: it is looked at again.
                (true, false) => drop(self.idle.insert(key)),
                (false, _) => {}
            }
        }
    }
}

/// A waiting job as the core knows it.
pub(super) fn head((priority, position, sequence): ClaimOrder) -> Head {
    Head { sequence, priority, position, at_door: false }
}
