//! The model's flow control (section K): what runs is counted anew each time, and a rate is a list of starts.
//!
//! Where keys share fairly, whose turn it is follows from all claims before; there the model takes over the store's choice if it is
//! one of those that the rules allow. Everywhere else it says itself which job is next.

use std::collections::BTreeMap;
use std::time::Duration;

use super::reference::{Model, Name, seconds};
use crate::flow::{AfterFailure, Control, Limit, Rate};
use crate::job::State;
use crate::time::Timestamp;

/// A control as it is drawn; times in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct ControlDraft {
    pub(super) running: Option<u8>,
    /// Of the first type.
    pub(super) of_type: Option<u8>,
    pub(super) each_key: Option<u8>,
    pub(super) rate: Option<RateDraft>,
    pub(super) key_rate: Option<RateDraft>,
    pub(super) fair: bool,
    pub(super) ordered: Option<AfterFailure>,
}

/// A rate: how many starts, in how many seconds, and how many of them at one moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct RateDraft {
    pub(super) count: u8,
    pub(super) per: u8,
    pub(super) burst: u8,
}

impl RateDraft {
    fn step(self) -> i128 {
        (i128::from(self.per) * 1_000_000_000 + i128::from(self.count) - 1) / i128::from(self.count)
    }

    fn rate(self) -> Rate {
        Rate { count: self.count.into(), per: seconds(self.per.into()), burst: self.burst.into() }
    }
}

impl ControlDraft {
    /// As a store takes it.
    pub(super) fn control(self) -> Control {
        let mut control = Control { running: self.running.map(u32::from), fair: self.fair, ..Control::default() };
        control.rate = self.rate.map(RateDraft::rate);
        control.ordered = self.ordered;
        let first = super::translate::job_type(0);
        control.types.extend(self.of_type.map(|most| (first, Limit::running(most.into()))));
        if self.each_key.is_some() || self.key_rate.is_some() {
            let rate = self.key_rate.map(RateDraft::rate);
            control.each_key = Some(Limit { running: self.each_key.map(u32::from), rate, weight: 1 });
        }
        control
    }

    fn tells_keys_apart(self) -> bool {
        self.each_key.is_some() || self.key_rate.is_some() || self.fair || self.ordered.is_some()
    }
}

/// A gate: the queue's, or that of a key, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ModelGate {
    Queue,
    Key(u8),
}

/// A controlled queue.
#[derive(Clone, Debug)]
pub(super) struct ModelFlow {
    pub(super) draft: ControlDraft,
    /// By gate: each start under a rate, and that rate.
    starts: BTreeMap<ModelGate, Vec<(Timestamp, RateDraft)>>,
    holds: BTreeMap<ModelGate, Timestamp>,
    /// By key: the job that was started last, while keys are ordered.
    owners: BTreeMap<u8, Name>,
}

impl ModelFlow {
    /// Up to when the starts so far have used up the rate, in nanoseconds.
    fn used(&self, gate: ModelGate) -> i128 {
        let starts = self.starts.get(&gate).into_iter().flatten();
        starts.fold(0, |used: i128, (at, rate)| used.max(nanos(*at)) + rate.step())
    }

    fn lets_through(&self, gate: ModelGate, rate: Option<RateDraft>, now: Timestamp) -> bool {
        let held = self.holds.get(&gate).is_some_and(|until| *until > now);
        let rated =
            rate.is_some_and(|rate| self.used(gate) + rate.step() > nanos(now) + rate.step() * i128::from(rate.burst));
        !held && !rated
    }

    /// Moments at which time alone opens a gate.
    fn moments(&self) -> impl Iterator<Item = Timestamp> {
        let rates = [ModelGate::Queue, ModelGate::Key(1), ModelGate::Key(2), ModelGate::Key(3), ModelGate::Key(4)];
        let opens = rates.into_iter().filter_map(|gate| {
            let rate = if gate == ModelGate::Queue { self.draft.rate } else { self.draft.key_rate }?;
            let at = self.used(gate) - rate.step() * i128::from(rate.burst - 1);
            i64::try_from((at + 999).div_euclid(1000)).ok().map(Timestamp::from_micros)
        });
        opens.chain(self.holds.values().copied()).collect::<Vec<_>>().into_iter()
    }
}

fn nanos(at: Timestamp) -> i128 {
    i128::from(at.as_micros()) * 1000
}

impl Model {
    /// Brings a queue under control, or ends that; gives whether what was there is forgotten first.
    pub(super) fn control(&mut self, queue: u8, draft: Option<ControlDraft>) -> bool {
        let flow = &mut self.flows[usize::from(queue)];
        let Some(draft) = draft else {
            *flow = None;
            return false;
        };
        // The owners of ordered keys are forgotten at some time when keys are ordered no more; here, at once.
        let forgets = flow.as_ref().is_some_and(|flow| flow.draft.ordered != draft.ordered);
        match flow {
            Some(flow) if !forgets => flow.draft = draft,
            _ => {
                *flow =
                    Some(ModelFlow { draft, starts: BTreeMap::new(), holds: BTreeMap::new(), owners: BTreeMap::new() })
            }
        }
        self.settle_owners(queue);
        forgets
    }

    /// Holds a gate or lifts a hold; refused where the queue is not controlled.
    pub(super) fn hold(&mut self, queue: u8, gate: ModelGate, time: Option<Duration>) -> bool {
        let now = self.now;
        let Some(flow) = &mut self.flows[usize::from(queue)] else { return false };
        match time {
            None => drop(flow.holds.remove(&gate)),
            Some(time) => {
                let until = flow.holds.entry(gate).or_insert(now);
                *until = (*until).max(now.plus(time));
            }
        }
        self.settle_owners(queue);
        true
    }

    pub(super) fn resume(&mut self, queue: u8, key: u8) -> bool {
        let Some(flow) = &mut self.flows[usize::from(queue)] else { return false };
        flow.holds.remove(&ModelGate::Key(key));
        flow.owners.remove(&key);
        self.settle_owners(queue);
        true
    }

    pub(super) fn flow_moments(&self) -> impl Iterator<Item = Timestamp> {
        self.flows.iter().flatten().flat_map(ModelFlow::moments)
    }

    /// The key that a job counts under; 0 for none.
    pub(super) fn flow_key(&self, flow: &ModelFlow, name: Name) -> u8 {
        self.jobs[name].plan.draft.flow_key.filter(|_| flow.draft.tells_keys_apart()).unwrap_or(0)
    }

    /// How many jobs of a queue run, of those that are meant.
    pub(super) fn running(&self, queue: u8, is_meant: impl Fn(Name) -> bool) -> usize {
        let runs = |name: &Name| {
            let job = &self.jobs[*name];
            !job.gone && job.state == State::Running && job.plan.draft.queue == queue
        };
        (0..self.jobs.len()).filter(runs).filter(|name| is_meant(*name)).count()
    }

    /// A claim looks at keys whose job has failed, and lets them go on where they shall.
    pub(super) fn settle_owners(&mut self, queue: u8) {
        let jobs = &self.jobs;
        let Some(flow) = &mut self.flows[usize::from(queue)] else { return };
        let goes_on = flow.draft.ordered == Some(AfterFailure::GoOn);
        flow.owners.retain(|_, owner| {
            let job = &jobs[*owner];
            let failed = matches!(job.state, State::Failed | State::DeadLetter);
            let ended_well = matches!(job.state, State::Completed | State::Cancelled);
            !(job.gone || ended_well || failed && goes_on)
        });
    }

    /// Whether the queue's own gate lets anything through.
    pub(super) fn is_open(&self, queue: u8) -> bool {
        let Some(flow) = &self.flows[usize::from(queue)] else { return true };
        let full = flow.draft.running.is_some_and(|most| self.running(queue, |_| true) >= usize::from(most));
        !full && flow.lets_through(ModelGate::Queue, flow.draft.rate, self.now)
    }

    /// Whether all gates let a job through that could run.
    fn is_admitted(&self, flow: &ModelFlow, name: Name) -> bool {
        let (queue, job_type) = (self.jobs[name].plan.draft.queue, self.jobs[name].plan.draft.job_type);
        let of_type = |name: Name| self.jobs[name].plan.draft.job_type == 0;
        let type_full =
            flow.draft.of_type.is_some_and(|most| job_type == 0 && self.running(queue, of_type) >= usize::from(most));
        let key = self.flow_key(flow, name);
        let of_key = |name: Name| self.flow_key(flow, name) == key;
        let key_open = key == 0 || {
            let full = flow.draft.each_key.is_some_and(|most| self.running(queue, of_key) >= usize::from(most));
            !full
                && flow.lets_through(ModelGate::Key(key), flow.draft.key_rate, self.now)
                && self.is_next(flow, key, name)
        };
        self.is_open(queue) && !type_full && key_open
    }

    /// Whether an ordered key goes on with this job.
    fn is_next(&self, flow: &ModelFlow, key: u8, name: Name) -> bool {
        if flow.draft.ordered.is_none() {
            return true;
        }
        match flow.owners.get(&key) {
            Some(owner) => *owner == name,
            None => {
                let queue = self.jobs[name].plan.draft.queue;
                let of_key = |name: &Name| self.is_runnable(*name, queue, None) && self.flow_key(flow, *name) == key;
                let place = |name: &Name| (self.jobs[*name].position, self.jobs[*name].sequence);
                (0..self.jobs.len()).filter(of_key).min_by_key(place) == Some(name)
            }
        }
    }

    /// The next job of a controlled queue; where keys are fair, the store's if it may be that one.
    pub(super) fn first_admitted(&self, queue: u8, types: Option<&[u8]>, said: Option<Name>) -> Option<Name> {
        let flow = self.flows[usize::from(queue)].as_ref()?;
        let is_meant = |name: &Name| self.is_runnable(*name, queue, types) && self.is_admitted(flow, *name);
        let candidates: Vec<Name> = (0..self.jobs.len()).filter(is_meant).collect();
        let level = |name: Name| if flow.draft.ordered.is_some() { 0 } else { self.jobs[name].effective() };
        let class = |name: Name| {
            let key = self.flow_key(flow, name);
            let running = self.running(queue, |name| self.flow_key(flow, name) == key);
            (0_u32..).find(|class| running <= 1 << class).filter(|_| flow.draft.fair)
        };
        let place = |name: Name| (level(name), self.jobs[name].position, self.jobs[name].sequence);
        let own = candidates.iter().copied().min_by_key(|name| (level(*name), class(*name), place(*name)))?;
        let may_be = |said: &Name| {
            let is_first = |other: &Name| {
                self.flow_key(flow, *other) != self.flow_key(flow, *said) || place(*said) <= place(*other)
            };
            flow.draft.fair
                && candidates.contains(said)
                && (level(*said), class(*said)) == (level(own), class(own))
                && candidates.iter().all(is_first)
        };
        Some(said.filter(may_be).unwrap_or(own))
    }

    /// Writes down a start.
    pub(super) fn start(&mut self, queue: u8, name: Name) {
        let now = self.now;
        let Some(flow) = &self.flows[usize::from(queue)] else { return };
        let key = self.flow_key(flow, name);
        let flow = self.flows[usize::from(queue)].as_mut().expect("it was there a line ago");
        if let Some(rate) = flow.draft.rate {
            flow.starts.entry(ModelGate::Queue).or_default().push((now, rate));
        }
        if let Some(rate) = flow.draft.key_rate.filter(|_| key != 0) {
            flow.starts.entry(ModelGate::Key(key)).or_default().push((now, rate));
        }
        if flow.draft.ordered.is_some() && key != 0 {
            flow.owners.insert(key, name);
        }
        self.count("claimed through gates");
    }

    /// Holds what was started against rules K2 and K7, without what the model itself believes.
    pub(super) fn law(&self) -> Result<(), String> {
        for flow in self.flows.iter().flatten() {
            for (gate, starts) in &flow.starts {
                let rate = if *gate == ModelGate::Queue { flow.draft.rate } else { flow.draft.key_rate };
                // Under one rate only: a changed one is a new law.
                let Some(rate) = rate.filter(|rate| starts.iter().all(|(_, under)| under == rate)) else { continue };
                for (first, (from, _)) in starts.iter().enumerate() {
                    for (last, (to, _)) in starts.iter().enumerate().skip(first) {
                        let most = i128::from(rate.burst) * rate.step() + nanos(*to) - nanos(*from);
                        if (last - first + 1) as i128 * rate.step() > most {
                            return Err(format!("K7: {gate:?} had {} starts from {from} to {to}", last - first + 1));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
