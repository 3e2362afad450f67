//! Flow control: how many jobs of a queue, a type or a key may run, how many may start in a time, and whose turn it is.
//!
//! This module is pure. A queue that has been given a [`Control`] is *controlled*; all its jobs pass gates before they run.
//! A [`Gate`] is a count with limits, and at most three stand before a job: its queue's, its type's in that queue, its key's.
//! [`pick`] says which waiting jobs a claim takes. It is handed what waits and what runs, and stores write down what it
//! decided. A queue without control knows nothing of all this (rule K1).

#[cfg(test)]
mod edge_tests;
mod edit;
mod explain;
mod gate;
mod pick;
mod rate;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use edit::{Change, ControlChange, ControlEdit, ControlRecord, KeyRecord, KeyState};
pub use explain::{Closed, GATE_JOBS_MAX, blocked};
pub use gate::{Gate, GateName, Gates, Owner, Room};
pub use pick::{Head, Look, Looked, Order, Picks, Strand, pick};
pub use rate::{RATE_COUNT_MAX, RATE_PER_MAX, Rate};

use crate::error::{Error, Result};
use crate::job::{FLOW_KEY_CHARS_MAX, JobType, check_chars};

/// The largest limit of running jobs.
pub const RUNNING_MAX: u32 = 1_000_000;
/// The largest weight of a key.
pub const WEIGHT_MAX: u16 = 1000;
/// Most types of a queue that have limits of their own.
pub const TYPES_MAX: usize = 100;
/// The longest hold.
pub const HOLD_MAX: Duration = Duration::from_secs(31 * 24 * 3600);

/// Limits of a type in its queue, or of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Limit {
    /// Most of its jobs that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// Most of its jobs that start in a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// A key's share beside the others', from 1 to 1000.
    pub weight: u16,
}

impl Default for Limit {
    fn default() -> Self {
        Limit { running: None, rate: None, weight: 1 }
    }
}

impl Limit {
    /// At most this many running at once.
    pub fn running(running: u32) -> Self {
        Limit { running: Some(running), ..Limit::default() }
    }

    /// At most this many starts in a time.
    pub fn rated(rate: Rate) -> Self {
        Limit { rate: Some(rate), ..Limit::default() }
    }

    /// A share of this weight, and no limit.
    pub fn weighing(weight: u16) -> Self {
        Limit { weight, ..Limit::default() }
    }

    /// At most this many starts in a time, too.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// A share of this weight beside other keys.
    #[must_use]
    pub fn weight(mut self, weight: u16) -> Self {
        self.weight = weight;
        self
    }

    /// Refuses numbers out of bounds.
    pub fn check(&self) -> Result<()> {
        check_running(self.running)?;
        if self.weight == 0 || self.weight > WEIGHT_MAX {
            return Err(Error::invalid("weight", format!("must be 1 to {WEIGHT_MAX}, is {}", self.weight)));
        }
        self.rate.as_ref().map_or(Ok(()), Rate::check)
    }
}

fn check_running(running: Option<u32>) -> Result<()> {
    match running {
        Some(running) if running == 0 || running > RUNNING_MAX => Err(Error::invalid(
            "running",
            format!("must be 1 to {RUNNING_MAX}, is {running}; to stop a queue, pause it"),
        )),
        _ => Ok(()),
    }
}

/// Refuses a key that no job can have.
pub fn check_key(key: &str) -> Result<()> {
    if key.is_empty() {
        return Err(Error::invalid("key", "must not be empty"));
    }
    check_chars("key", key, FLOW_KEY_CHARS_MAX)
}

/// What becomes of an ordered key when a job of it has FAILED or is in DEAD_LETTER (rule K14).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailure {
    /// Nothing of the key starts until that job ends well after a requeue, is deleted, or an operator resumes the key.
    #[default]
    Halt,
    /// The next job starts.
    GoOn,
}

/// What a queue has been told about the flow of its jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Control {
    /// Most jobs of the queue that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// Most jobs of the queue that start in a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Limits of single types in this queue.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<JobType, Limit>,
    /// The limits of each key that has none of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each_key: Option<Limit>,
    /// Whether keys share by what runs and then by turn; otherwise all jobs that may run go in the order of claims (D5).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fair: bool,
    /// Within a key a job of the next priority counts as this much older; `None` for priorities as they are.
    #[serde(skip_serializing_if = "Option::is_none", with = "optional_micros")]
    pub ageing: Option<Duration>,
    /// One job of a key at a time, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<AfterFailure>,
}

mod optional_micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => crate::job::micros::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_micros))
    }
}

impl Control {
    /// Nothing yet.
    pub fn new() -> Self {
        Control::default()
    }

    /// At most this many jobs of the queue run at once.
    #[must_use]
    pub fn running(mut self, running: u32) -> Self {
        self.running = Some(running);
        self
    }

    /// At most this many jobs of the queue start in a time.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Limits of one type in this queue.
    #[must_use]
    pub fn of_type(mut self, job_type: JobType, limit: Limit) -> Self {
        self.types.insert(job_type, limit);
        self
    }

    /// The limits of each key that has none of its own.
    #[must_use]
    pub fn each_key(mut self, limit: Limit) -> Self {
        self.each_key = Some(limit);
        self
    }

    /// Keys share by what runs, then by turn.
    #[must_use]
    pub fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// Within a key a job of the next priority counts as this much older (rule K12).
    #[must_use]
    pub fn ageing(mut self, step: Duration) -> Self {
        self.ageing = Some(step);
        self
    }

    /// One job of a key at a time, in order (rule K13). A job that fails again and again stops its key meanwhile.
    #[must_use]
    pub fn ordered(mut self, after: AfterFailure) -> Self {
        self.ordered = Some(after);
        self
    }

    /// Refuses numbers out of bounds, and a control that says nothing.
    pub fn check(&self) -> Result<()> {
        if *self == Control::default() {
            return Err(Error::invalid("control", "must say something: a limit, a rate, fair, ageing or ordered"));
        }
        check_running(self.running)?;
        self.rate.as_ref().map_or(Ok(()), Rate::check)?;
        if self.types.len() > TYPES_MAX {
            return Err(Error::invalid("types", format!("must be at most {TYPES_MAX}, are {}", self.types.len())));
        }
        self.types.values().try_for_each(Limit::check)?;
        self.each_key.as_ref().map_or(Ok(()), Limit::check)?;
        match self.ageing {
            Some(step) if step < Duration::from_secs(1) || step > RATE_PER_MAX => {
                Err(Error::invalid("ageing", "must be 1 s to 31 days"))
            }
            _ => Ok(()),
        }
    }

    /// Whether jobs are told apart by their keys.
    pub fn has_strands(&self) -> bool {
        self.each_key.is_some() || self.fair || self.ageing.is_some() || self.ordered.is_some()
    }

    /// The key that a job counts under; empty where it has none, or keys make no difference.
    pub fn key_of<'k>(&self, key: Option<&'k str>) -> &'k str {
        key.filter(|_| self.has_strands()).unwrap_or("")
    }

    /// The limits of the queue.
    pub fn of_queue(&self) -> Limit {
        Limit { running: self.running, rate: self.rate, weight: 1 }
    }

    /// The limits of a type in the queue.
    pub fn of_this_type(&self, job_type: &JobType) -> Limit {
        self.types.get(job_type).copied().unwrap_or_default()
    }

    /// The limits of a key: its own, or those of each. Jobs without a key have none.
    pub fn of_key(&self, key: &str, gate: &Gate) -> Limit {
        match key {
            "" => Limit::default(),
            _ => gate.limit.or(self.each_key).unwrap_or_default(),
        }
    }
}
