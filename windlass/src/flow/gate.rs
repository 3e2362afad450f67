//! A count with limits. At most three stand before a job: its queue's, its type's in that queue, its key's.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::explain::closed_by;
use super::{Limit, Order};
use crate::error::Result;
use crate::job::{JobType, State};
use crate::time::Timestamp;

/// Which gate of a queue.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GateName {
    /// The queue's own.
    Queue,
    /// That of a type in it.
    Type(JobType),
    /// That of a key in it; the empty one stands for all jobs without a key.
    Key(String),
}

impl GateName {
    /// As stores keep it.
    pub fn stored(&self) -> String {
        match self {
            GateName::Queue => String::new(),
            GateName::Type(job_type) => format!("t:{job_type}"),
            GateName::Key(key) => format!("k:{key}"),
        }
    }

    /// From what a store kept.
    pub fn from_stored(text: &str) -> Result<Self> {
        Ok(match (text.strip_prefix("t:"), text.strip_prefix("k:")) {
            (Some(job_type), _) => GateName::Type(JobType::new(job_type)?),
            (_, Some(key)) => GateName::Key(key.to_owned()),
            _ => GateName::Queue,
        })
    }
}

impl fmt::Display for GateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateName::Queue => f.write_str("queue"),
            GateName::Type(job_type) => write!(f, "type {job_type}"),
            GateName::Key(key) => write!(f, "key {key}"),
        }
    }
}

/// What is known of a gate. What runs is counted by the store; the rest it keeps.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// How many of its jobs run.
    #[serde(skip)]
    pub running: u32,
    /// Up to when the starts so far have used up its rate, in nanoseconds since 1970.
    pub tat: i64,
    /// Nothing of it starts before this moment.
    pub held_until: Option<Timestamp>,
    /// Its turn among keys; of a queue, the lowest turn that was present last.
    pub turn: i64,
    /// The job of an ordered key that was started first and whose end was not seen yet.
    pub owner: Option<i64>,
    /// The limit that an operator gave to a key.
    pub limit: Option<Limit>,
    /// Whether a key was open when it was last looked at, for stores that keep it here.
    pub open: bool,
}

/// How much a gate lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// How many may start now.
    pub starts: u32,
    /// When to look again, if time alone will open it.
    pub again_at: Option<Timestamp>,
}

impl Gate {
    /// What stands for a gate whose row cannot be read: it lets nothing through until its hold is lifted, because nobody knows any more
    /// what it had let through.
    pub fn unreadable() -> Self {
        Gate { held_until: Some(Timestamp::MAX), ..Gate::default() }
    }

    /// How much it lets through under a limit. What runs may exceed a limit that was lowered.
    pub fn room(&self, limit: &Limit, now: Timestamp) -> Room {
        let free = limit.running.map_or(u32::MAX, |most| most.saturating_sub(self.running));
        if free == 0 {
            return Room { starts: 0, again_at: None };
        }
        let rated = limit.rate.map_or(u32::MAX, |rate| rate.starts(self.tat, now));
        let opens = limit.rate.filter(|_| rated == 0).map(|rate| rate.next_at(self.tat));
        let held = self.held_until.filter(|until| *until > now);
        let starts = if held.is_some() { 0 } else { free.min(rated) };
        Room { starts, again_at: opens.max(held).filter(|_| starts == 0) }
    }

    /// By what it lets nothing through under a limit, if so: `limit`, `rate` or `hold`.
    pub fn closed_by(&self, limit: &Limit, now: Timestamp) -> Option<&'static str> {
        closed_by(self, limit, now)
    }

    /// One more of its jobs starts.
    pub fn take(&mut self, limit: &Limit, now: Timestamp) {
        self.running += 1;
        if let Some(rate) = limit.rate {
            self.tat = rate.after(self.tat, 1, now);
        }
    }

    /// Holds it until a moment; of two holds the later counts.
    pub fn hold(&mut self, until: Timestamp) {
        self.held_until = self.held_until.max(Some(until));
    }

    /// How far it is beyond its weight: 0 up to it, then one more for each doubling.
    pub fn class(&self, weight: u16) -> u8 {
        let weight = u64::from(weight.max(1));
        (0_u8..).find(|class| u64::from(self.running) <= weight << class).unwrap_or(u8::MAX)
    }

    /// Whether nothing is lost when a store forgets it.
    pub fn is_blank(&self, now: Timestamp) -> bool {
        let rated = i128::from(self.tat) > i128::from(now.as_micros()) * 1000;
        let held = self.held_until.is_some_and(|until| until > now);
        !rated && !held && self.owner.is_none() && self.limit.is_none()
    }
}

/// What became of the job that an ordered key was started with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// It is not there any more, or ended well.
    Gone,
    /// It is FAILED or in DEAD_LETTER.
    Failed,
    /// It has not ended.
    Unfinished,
}

impl Owner {
    /// From the state of the job, if it is there.
    pub fn of(state: Option<State>) -> Self {
        match state {
            None | Some(State::Completed | State::Cancelled) => Owner::Gone,
            Some(State::Failed | State::DeadLetter) => Owner::Failed,
            Some(State::Pending | State::Delayed | State::Scheduled | State::Running | State::Retrying) => {
                Owner::Unfinished
            }
        }
    }
}

/// The gates that a claim looks at, and what is known of the owners of ordered keys.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    /// The queue's own.
    pub queue: Gate,
    /// Those of its types.
    pub types: BTreeMap<JobType, Gate>,
    /// Those of its keys.
    pub keys: BTreeMap<String, Gate>,
    /// What became of the owner of each key that has one.
    pub owners: HashMap<String, Owner>,
    /// The lowest turn of the keys that are open, where not all of them are handed over.
    pub lowest: Option<i64>,
    /// When a type with open strands opens that were not read because it lets nothing through.
    pub again_at: Option<Timestamp>,
    /// By what such types let nothing through.
    pub shut: BTreeSet<&'static str>,
    /// By type, from where on its open strands were not read; those read come before.
    pub unread: BTreeMap<JobType, Order>,
}
