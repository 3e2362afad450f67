//! Everything that can happen: the steps of two workers, two processes of upkeep, an operator and the clock.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use stateright::{Model, Property};
use windlass::State;
use windlass::job::Stale;

use super::history::{Change, Delivery, History};
use super::key::{Fixed, JobKey, LEASE, ticks};
use super::properties::{Prospects, properties};
use super::store::{Answer, Desk, Reading, Rules, Said, Store, TOKENS};

/// Who takes part, and how often the unbounded things may happen.
#[derive(Debug)]
pub(crate) struct Protocol {
    pub(crate) max_attempts: u8,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) fixed: Fixed,
    pub(crate) tally: Tally,
    /// What can still become of a job, for each that was met.
    pub(crate) prospects: Mutex<HashMap<JobKey, Prospects>>,
}

/// How often something may happen that could otherwise go on for ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Limits {
    /// Snoozes, releases and interruptions.
    pub(crate) free: u8,
    /// Cancels, polite or forced.
    pub(crate) cancels: u8,
    /// Requeues by an operator.
    pub(crate) requeues: u8,
    /// Whether a worker takes the job while it still has a settlement of an earlier attempt to send.
    pub(crate) overlap: bool,
}

/// One state of the world.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    pub(crate) store: Store,
    workers: [Worker; 2],
    /// What upkeep read and has not acted on yet.
    readings: [Option<Reading>; 2],
    left: Limits,
    pub(crate) history: History,
}

/// A worker process. One that is stalled takes no steps, one that wakes up again takes them late.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
struct Worker {
    /// The lease that it believes to hold.
    held: Option<Held>,
    /// The settlement that it has sent or is about to send.
    letter: Option<Letter>,
}

/// A lease as its holder knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Held {
    token: u8,
    /// The failures of the job at the claim, on which the holder's decision rests.
    failures: u8,
}

/// A settlement on its way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Letter {
    lease: Held,
    said: Said,
    /// Whether the store accepted it, if it arrived and the answer was lost.
    accepted: Option<bool>,
}

/// One step of somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Tick,
    FallDue,
    EndLifetime,
    Claim(usize),
    Heartbeat(usize),
    Decide(usize, Said),
    /// A settlement arrives; the answer arrives too, or is lost.
    Deliver(usize, Reply),
    Crash(usize),
    /// Upkeep reads that the lease has expired.
    Read(usize),
    /// Upkeep acts on what it read.
    Act(usize),
    Cancel,
    CancelByForce,
    Requeue,
}

/// What becomes of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Arrives,
    IsLost,
}

/// What a run must have met, or it has checked nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Seen {
    Applied,
    AlreadyApplied,
    NotRunning,
    Expired,
    Mismatch,
    HeartbeatAccepted,
    HeartbeatRefused,
    Reclaimed,
    ReclaimedInVain,
    LifetimeEnded,
}

impl Seen {
    pub(crate) const ALL: [Seen; 10] = [
        Seen::Applied,
        Seen::AlreadyApplied,
        Seen::NotRunning,
        Seen::Expired,
        Seen::Mismatch,
        Seen::HeartbeatAccepted,
        Seen::HeartbeatRefused,
        Seen::Reclaimed,
        Seen::ReclaimedInVain,
        Seen::LifetimeEnded,
    ];
}

/// How often each was seen, on all paths together.
#[derive(Debug, Default)]
pub(crate) struct Tally([AtomicU64; Seen::ALL.len()]);

impl Tally {
    fn add(&self, seen: Seen) {
        self.0[seen as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, seen: Seen) -> u64 {
        self.0[seen as usize].load(Ordering::Relaxed)
    }
}

impl Protocol {
    pub(crate) fn new(max_attempts: u8, lifetime: Option<u8>, rules: Rules, limits: Limits) -> Self {
        let fixed = Fixed::new(max_attempts, lifetime);
        Protocol { max_attempts, rules, limits, fixed, tally: Tally::default(), prospects: Mutex::default() }
    }

    pub(crate) fn desk<'a>(&'a self, store: &'a mut Store) -> Desk<'a> {
        Desk { store, fixed: &self.fixed, rules: self.rules }
    }

    fn claim(&self, world: &mut World, worker: usize) {
        let token = world.unknown_token();
        let failures = world.store.job.failures;
        let change = change(world, |store| self.desk(store).claim(token));
        world.workers[worker].held = Some(Held { token, failures });
        world.history.claimed(change, token, lease_ticks(&change.before));
    }

    fn heartbeat(&self, world: &mut World, worker: usize, held: Held) {
        let mut accepted = false;
        let change = change(world, |store| accepted = self.desk(store).extend(held.token).is_ok());
        self.tally.add(if accepted { Seen::HeartbeatAccepted } else { Seen::HeartbeatRefused });
        if !accepted {
            world.workers[worker].held = None;
        }
        world.history.beaten(change, held.token, accepted, lease_ticks(&change.before));
    }

    fn deliver(&self, world: &mut World, worker: usize, letter: Letter, reply: Reply) {
        let Letter { lease: Held { token, failures }, said, accepted: accepted_before } = letter;
        let mut answer = Answer::AlreadyApplied;
        let change = change(world, |store| answer = self.desk(store).settle(token, failures, said));
        self.tally.add(match answer {
            Answer::Applied => Seen::Applied,
            Answer::AlreadyApplied => Seen::AlreadyApplied,
            Answer::Stale(Stale::NotRunning) => Seen::NotRunning,
            Answer::Stale(Stale::Expired) => Seen::Expired,
            Answer::Stale(Stale::Mismatch) => Seen::Mismatch,
        });
        let accepted = Some(answer == Answer::Applied);
        world.workers[worker].letter = match reply {
            Reply::Arrives => None,
            Reply::IsLost => Some(Letter { accepted, ..letter }),
        };
        world.history.delivered(change, Delivery { token, said, accepted_before, answer }, self.max_attempts);
    }

    /// The first process of upkeep decides under a lock, so all it keeps is that there is something to do; the second
    /// decides on what it read.
    fn act(&self, world: &mut World, upkeep: usize, reading: Reading) {
        world.readings[upkeep] = None;
        let mut acted = false;
        let change = change(world, |store| {
            acted = if upkeep == 0 { store.has_lapsed() } else { self.desk(store).reclaim_as_read(reading) };
            if acted && upkeep == 0 {
                self.desk(store).reclaim();
            }
        });
        self.tally.add(if acted { Seen::Reclaimed } else { Seen::ReclaimedInVain });
        if acted {
            world.history.reclaimed(change, self.max_attempts);
        }
    }

    fn overrule(&self, world: &mut World, step: Step) {
        let change = change(world, |store| match step {
            Step::FallDue => self.desk(store).fall_due(),
            Step::EndLifetime => self.desk(store).end_lifetime(),
            _ => self.desk(store).cancel(step == Step::CancelByForce),
        });
        match step {
            Step::FallDue => {}
            Step::EndLifetime => self.tally.add(Seen::LifetimeEnded),
            _ => world.left.cancels -= 1,
        }
        world.history.overruled(change);
    }
}

/// Ticks that a lease taken now is promised for: the lease time, but never beyond the lifetime.
fn lease_ticks(job: &JobKey) -> u8 {
    job.lives_for.map_or(ticks(LEASE), |left| left.min(ticks(LEASE)))
}

fn change(world: &mut World, write: impl FnOnce(&mut Store)) -> Change {
    let before = world.store.job;
    write(&mut world.store);
    Change { before, after: world.store.job }
}

impl World {
    /// The tokens that somebody could still present.
    fn known_tokens(&self) -> [bool; TOKENS] {
        let held = self.workers.iter().filter_map(|worker| worker.held);
        let sent = self.workers.iter().filter_map(|worker| worker.letter).map(|letter| letter.lease);
        let mut known = [false; TOKENS];
        for lease in held.chain(sent) {
            known[usize::from(lease.token)] = true;
        }
        known
    }

    /// A token that is new to everybody. One that all have forgotten is as good as a fresh one, and saves states.
    fn unknown_token(&self) -> u8 {
        let known = self.known_tokens();
        let free = (0u8..).zip(known).find(|(_, known)| !known).map(|(token, _)| token);
        free.expect("there are more tokens than places to keep them")
    }

    /// Puts the workers in an order and numbers the tokens by it: worlds that differ in names only are one state.
    fn rename(&mut self) {
        let current = self.store.token;
        let nameless = |lease: Held| Held { token: u8::from(Some(lease.token) == current), ..lease };
        self.workers.sort_by_key(|worker| {
            let letter = worker.letter.map(|letter| Letter { lease: nameless(letter.lease), ..letter });
            Reverse(Worker { held: worker.held.map(nameless), letter })
        });
        let mut names = Names::default();
        self.store.token = current.map(|token| names.of(token));
        for worker in &mut self.workers {
            let sent = worker.letter.as_mut().map(|letter| &mut letter.lease);
            for lease in worker.held.as_mut().into_iter().chain(sent) {
                lease.token = names.of(lease.token);
            }
        }
        self.history.rename(|token| names.of(token));
        self.store.rename_closed(|token| names.of(token));
    }
}

/// New numbers for tokens, in the order in which they are asked for.
#[derive(Default)]
struct Names {
    given: [Option<u8>; TOKENS],
    count: u8,
}

impl Names {
    fn of(&mut self, token: u8) -> u8 {
        let name = &mut self.given[usize::from(token)];
        *name.get_or_insert_with(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            store: Store::new(&self.fixed),
            workers: [Worker::default(); 2],
            readings: [None; 2],
            left: self.limits,
            history: History::default(),
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let job = &world.store.job;
        steps.push(Step::Tick);
        if matches!(job.state, State::Delayed | State::Retrying) && job.run_in == Some(0) {
            steps.push(Step::FallDue);
        }
        if job.lives_for == Some(0) {
            steps.push(Step::EndLifetime);
        }
        if !job.state.is_terminal() && world.left.cancels > 0 {
            steps.extend((!job.cancel_asked).then_some(Step::Cancel));
            steps.extend((job.state == State::Running).then_some(Step::CancelByForce));
        }
        if job.state.is_dead() && world.left.requeues > 0 {
            steps.push(Step::Requeue);
        }
        for (number, reading) in world.readings.iter().enumerate() {
            steps.extend(reading.map(|_| Step::Act(number)));
            steps.extend((reading.is_none() && world.store.has_lapsed()).then_some(Step::Read(number)));
        }
        for (number, worker) in world.workers.iter().enumerate() {
            self.worker_steps(world, number, worker, steps);
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = *last;
        match step {
            Step::Tick => {
                world.store.job.tick();
                world.history.ticked();
            }
            Step::FallDue | Step::EndLifetime | Step::Cancel | Step::CancelByForce => self.overrule(&mut world, step),
            Step::Requeue => {
                world.left.requeues -= 1;
                let change = change(&mut world, |store| self.desk(store).requeue());
                world.history.requeued(change);
            }
            Step::Claim(worker) => self.claim(&mut world, worker),
            Step::Heartbeat(worker) => self.heartbeat(&mut world, worker, last.workers[worker].held?),
            Step::Decide(worker, said) => {
                world.left.free -= u8::from(said.is_free());
                let lease = world.workers[worker].held.take()?;
                world.workers[worker].letter = Some(Letter { lease, said, accepted: None });
            }
            Step::Deliver(worker, reply) => self.deliver(&mut world, worker, last.workers[worker].letter?, reply),
            Step::Crash(worker) => world.workers[worker] = Worker::default(),
            Step::Read(0) => world.readings[0] = world.store.read_lapsed().map(|_| Reading::default()),
            Step::Read(upkeep) => world.readings[upkeep] = world.store.read_lapsed(),
            Step::Act(upkeep) => self.act(&mut world, upkeep, last.readings[upkeep]?),
        }
        world.store.forget_all_but(&world.known_tokens());
        world.rename();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }
}

impl Protocol {
    fn worker_steps(&self, world: &World, number: usize, worker: &Worker, steps: &mut Vec<Step>) {
        if *worker != Worker::default() {
            steps.push(Step::Crash(number));
        }
        let free = worker.held.is_none() && (worker.letter.is_none() || world.left.overlap);
        if free && world.store.job.state == State::Scheduled {
            steps.push(Step::Claim(number));
        }
        if worker.held.is_some() {
            steps.push(Step::Heartbeat(number));
        }
        if worker.held.is_some() && worker.letter.is_none() {
            let possible = Said::ALL.into_iter().filter(|said| !said.is_free() || world.left.free > 0);
            steps.extend(possible.map(|said| Step::Decide(number, said)));
        }
        if let Some(letter) = worker.letter {
            steps.push(Step::Deliver(number, Reply::Arrives));
            // An answer that is lost a second time leaves everything as it is.
            steps.extend(letter.accepted.is_none().then_some(Step::Deliver(number, Reply::IsLost)));
        }
    }
}
