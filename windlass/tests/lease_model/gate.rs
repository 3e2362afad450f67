//! Gates, checked in every state they can reach: two claimers, settlements that come late and twice, upkeep and an operator.
//!
//! A claim locks the queue, reads what its gates count and what has ended since (the notes), decides and writes; anything may
//! happen between these steps, and it may be broken off before it writes. What ends a lease writes a note and touches no count. The
//! decision is the library's own (`flow::pick`). The properties: no gate ever lets more run than it may, and what a gate counts is what
//! holds a lease and what is noted, in every state.

use stateright::{Model, Property};
use windlass::Timestamp;
use windlass::flow::{Control, Gate, Gates, Head, Limit, Strand, pick};
use windlass::job::{JobType, Priority};

pub(crate) const JOBS: usize = 4;
const KEYS: usize = 2;
/// How often a job may run: it may be lost once.
const RUNS: u8 = 2;
/// How many settlements are on their way at once.
const LETTERS: usize = 2;
/// How much a claim wants.
const WANTED: usize = 2;

pub(crate) const WITHIN_LIMIT: &str = "no gate lets more run than it may";
pub(crate) const ACCOUNTED: &str = "a gate counts what runs and what is noted";
pub(crate) const NOTHING_IDLE: &str = "at rest, what may run is let through";

/// Whether the rules of a claim are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lock {
    Kept,
    /// Claimers do not wait for each other.
    TakenOut,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Job {
    Waiting,
    Running,
    Ended,
}

/// What a claim has read and not written yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Reading {
    counted: [u8; KEYS],
    noted: [u8; KEYS],
    waiting: [bool; JOBS],
    limit: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Claimer {
    Idle,
    Locked,
    Read(Reading),
}

/// One state of the world.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    jobs: [(Job, u8); JOBS],
    /// What the gates of the keys count; the queue's is their sum.
    counted: [u8; KEYS],
    /// Ends of leases that no claim has counted yet.
    noted: [u8; KEYS],
    claimers: [Claimer; 2],
    /// Settlements on their way: which job, under which of its leases.
    letters: [Option<(usize, u8)>; LETTERS],
    limit: u8,
    /// The limit, or what ran when it was lowered.
    allowed: u8,
    changes_left: u8,
    breaks_left: u8,
    overlap: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Lock(usize),
    Read(usize),
    Write(usize),
    /// The claimer's connection breaks before it writes.
    Break(usize),
    /// A holder decides; its settlement is on its way.
    Send(usize),
    /// A settlement arrives; it may come once more.
    Deliver(usize, bool),
    Expire(usize),
    SetLimit(u8),
}

fn key(job: usize) -> usize {
    job % KEYS
}

impl World {
    fn running(&self) -> u8 {
        let running = self.jobs.iter().filter(|(job, _)| *job == Job::Running).count();
        u8::try_from(running).expect("few jobs")
    }

    fn running_of(&self, wanted: usize) -> u8 {
        let of_key = |(place, (job, _)): &(usize, (Job, u8))| key(*place) == wanted && *job == Job::Running;
        u8::try_from(self.jobs.into_iter().enumerate().filter(of_key).count()).expect("few jobs")
    }

    /// A lease has ended: its job waits again or is over, and a note says so.
    fn end(&mut self, job: usize, after: Job) {
        self.jobs[job].0 = after;
        self.noted[key(job)] += 1;
        self.allowed = self.limit.max(self.allowed.min(self.running()));
    }
}

/// The protocol of claims.
#[derive(Debug)]
pub(crate) struct Claims(pub(crate) Lock);

impl Reading {
    /// What the library says that a claim takes.
    fn decide(&self) -> Vec<usize> {
        let control = Control::new().running(self.limit.into()).each_key(Limit::running(1)).fair();
        let mut gates = Gates::default();
        let (job_type, now) = (JobType::new("test").expect("a name"), Timestamp::from_micros(1_000_000));
        let mut strands = Vec::new();
        for wanted in 0..KEYS {
            // With the lock taken out a count may be too low by more than it is.
            let running = u32::from(self.counted[wanted].saturating_sub(self.noted[wanted]));
            gates.queue.running += running;
            gates.keys.insert(format!("k{wanted}"), Gate { running, ..Gate::default() });
            let waits = (0..JOBS).filter(|job| key(*job) == wanted && self.waiting[*job]);
            let head = |job: usize| Head {
                sequence: i64::try_from(job).expect("few jobs"),
                priority: Priority::Normal,
                position: now,
                at_door: false,
            };
            strands.push(Strand {
                id: 0,
                job_type: job_type.clone(),
                key: format!("k{wanted}"),
                wanted: true,
                was_open: true,
                heads: waits.map(head).collect(),
                all: true,
            });
        }
        let picks = pick(&control, &gates, &strands, WANTED, now);
        picks.taken.iter().map(|(_, head)| usize::try_from(head.sequence).expect("few jobs")).collect()
    }
}

impl Claims {
    fn write(&self, world: &mut World, reading: Reading) {
        for wanted in 0..KEYS {
            world.counted[wanted] = reading.counted[wanted].saturating_sub(reading.noted[wanted]);
            // Only the notes that were read are counted and removed.
            world.noted[wanted] = world.noted[wanted].saturating_sub(reading.noted[wanted]);
        }
        for job in reading.decide() {
            // What is derived from the rows that were really taken: another may have been quicker.
            if world.jobs[job].0 == Job::Waiting {
                world.jobs[job] = (Job::Running, world.jobs[job].1 + 1);
                world.counted[key(job)] += 1;
            }
        }
    }
}

impl Model for Claims {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            jobs: [(Job::Waiting, 0); JOBS],
            counted: [0; KEYS],
            noted: [0; KEYS],
            claimers: [Claimer::Idle; 2],
            letters: [None; LETTERS],
            limit: 2,
            allowed: 2,
            changes_left: 2,
            breaks_left: 2,
            overlap: self.0 == Lock::TakenOut,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let locked = world.claimers.iter().any(|claimer| *claimer != Claimer::Idle);
        for (number, claimer) in world.claimers.iter().enumerate() {
            match claimer {
                Claimer::Idle => steps.extend((!locked || world.overlap).then_some(Step::Lock(number))),
                Claimer::Locked => steps.push(Step::Read(number)),
                Claimer::Read(_) => steps.push(Step::Write(number)),
            }
            if *claimer != Claimer::Idle && world.breaks_left > 0 {
                steps.push(Step::Break(number));
            }
        }
        for (job, (state, runs)) in world.jobs.iter().enumerate() {
            if *state == Job::Running {
                steps.push(Step::Expire(job));
                let sent = world.letters.contains(&Some((job, *runs)));
                steps.extend((!sent && world.letters.contains(&None)).then_some(Step::Send(job)));
            }
        }
        for (number, letter) in world.letters.iter().enumerate() {
            if letter.is_some() {
                steps.extend([Step::Deliver(number, false), Step::Deliver(number, true)]);
            }
        }
        // Operators wait for the lock as claims do.
        if world.changes_left > 0 && (!locked || world.overlap) {
            steps.extend((1..=3).filter(|limit| *limit != world.limit).map(Step::SetLimit));
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = *last;
        match step {
            Step::Lock(claimer) => world.claimers[claimer] = Claimer::Locked,
            Step::Read(claimer) => {
                let waiting = world.jobs.map(|(job, _)| job == Job::Waiting);
                let World { counted, noted, limit, .. } = world;
                world.claimers[claimer] = Claimer::Read(Reading { counted, noted, waiting, limit });
            }
            Step::Write(claimer) => {
                let Claimer::Read(reading) = world.claimers[claimer] else { return None };
                self.write(&mut world, reading);
                world.claimers[claimer] = Claimer::Idle;
            }
            Step::Break(claimer) => {
                world.claimers[claimer] = Claimer::Idle;
                world.breaks_left -= 1;
            }
            Step::Send(job) => {
                let free = world.letters.iter().position(Option::is_none)?;
                world.letters[free] = Some((job, world.jobs[job].1));
            }
            Step::Deliver(letter, again) => {
                let (job, lease) = world.letters[letter]?;
                // One that is stale or was there before frees nothing.
                if world.jobs[job] == (Job::Running, lease) {
                    world.end(job, Job::Ended);
                }
                if !again {
                    world.letters[letter] = None;
                }
            }
            Step::Expire(job) => {
                let after = if world.jobs[job].1 < RUNS { Job::Waiting } else { Job::Ended };
                world.end(job, after);
            }
            Step::SetLimit(limit) => {
                world.changes_left -= 1;
                world.limit = limit;
                world.allowed = limit.max(world.running());
            }
        }
        // Claimers and letters have no names.
        world.letters.sort_unstable();
        if matches!(world.claimers, [Claimer::Idle, Claimer::Locked | Claimer::Read(_)]) {
            world.claimers.swap(0, 1);
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WITHIN_LIMIT, |_, world: &World| {
                world.running() <= world.allowed && (0..KEYS).all(|wanted| world.running_of(wanted) <= 1)
            }),
            Property::always(ACCOUNTED, |_, world: &World| {
                (0..KEYS).all(|wanted| world.counted[wanted] == world.running_of(wanted) + world.noted[wanted])
            }),
            Property::always(NOTHING_IDLE, |_, world: &World| {
                let waiting = world.jobs.map(|(job, _)| job == Job::Waiting);
                let reading = Reading { counted: world.counted, noted: world.noted, waiting, limit: world.limit };
                let key_is_free = |job: usize| waiting[job] && world.running_of(key(job)) == 0;
                let may_run = world.running() < world.limit && (0..JOBS).any(key_is_free);
                reading.decide().is_empty() != may_run
            }),
        ]
    }
}
