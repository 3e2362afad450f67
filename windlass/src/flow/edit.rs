//! Changes to the control of a queue, decided once for every store.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Control, Gate, GateName, HOLD_MAX, Limit, check_key};
use crate::error::{Error, Result};
use crate::job::{JobId, QueueName};
use crate::time::Timestamp;

/// The control of a queue as it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ControlRecord {
    /// What the queue has been told.
    pub control: Control,
    /// Raised by every change.
    pub version: u64,
    /// Whether a program declared it; what an operator set, a program leaves alone.
    pub from_code: bool,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl ControlRecord {
    /// A control that an operator set; set what differs.
    pub fn new(control: Control, version: u64, updated_at: Timestamp) -> Self {
        ControlRecord { control, version, from_code: false, updated_at }
    }
}

/// A change to the control of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlEdit {
    /// The queue.
    pub queue: QueueName,
    /// What is changed.
    pub change: Change,
    /// Why, for the record of acts.
    pub why: Option<String>,
}

/// What is changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Pauses the queue, controlled or not: nothing of it is claimed, running jobs go on; or lets it go on (rule O3).
    Pause(bool),
    /// Brings the queue under control, or changes the control; with a version, refused when that has moved on.
    Put {
        /// The control as it shall be.
        control: Control,
        /// The version it must have now.
        version: Option<u64>,
        /// Whether a program declares it: nothing is changed then where an operator has set another.
        from_code: bool,
    },
    /// Ends the control of the queue.
    Clear {
        /// The version it must have now.
        version: Option<u64>,
    },
    /// Gives a key limits of its own.
    PutKey {
        /// The key.
        key: String,
        /// Its limits.
        limit: Limit,
    },
    /// Takes a key's own limits away.
    ClearKey {
        /// The key.
        key: String,
    },
    /// Starts nothing of a gate for a time, from now; `None` lifts a hold.
    Hold {
        /// Which gate.
        gate: GateName,
        /// For how long.
        time: Option<Duration>,
    },
    /// Lifts the hold of a key, and lets a halted one go on with its next job.
    Resume {
        /// The key.
        key: String,
    },
}

/// What a change comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlChange {
    /// What to call it in the record of acts; `None` where nothing is changed.
    pub act: Option<&'static str>,
    /// On what, for the record of acts.
    pub target: String,
    /// The control as it shall be.
    pub control: Option<ControlRecord>,
    /// The gate as it shall be.
    pub gate: Option<(GateName, Gate)>,
}

impl ControlEdit {
    /// A change to this queue.
    pub fn new(queue: QueueName, change: Change) -> Self {
        ControlEdit { queue, change, why: None }
    }

    /// Says why, for the record of acts.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into()).filter(|why| !why.is_empty());
        self
    }

    /// Pauses a queue, or lets it go on.
    pub fn pause(queue: QueueName, paused: bool) -> Self {
        ControlEdit::new(queue, Change::Pause(paused))
    }

    /// The gate that it concerns.
    pub fn gate(&self) -> Option<GateName> {
        match &self.change {
            Change::Pause(_) | Change::Put { .. } | Change::Clear { .. } => None,
            Change::PutKey { key, .. } | Change::ClearKey { key } | Change::Resume { key } => {
                Some(GateName::Key(key.clone()))
            }
            Change::Hold { gate, .. } => Some(gate.clone()),
        }
    }

    /// Decides what the change does to the control that is stored, and to the gate that it concerns.
    pub fn decide(&self, stored: Option<ControlRecord>, gate: Gate, now: Timestamp) -> Result<ControlChange> {
        let queue = &self.queue;
        let mut change =
            ControlChange { act: None, target: format!("queue {queue}"), control: stored.clone(), gate: None };
        if let Some(name) = self.gate() {
            if stored.is_none() {
                return Err(Error::Conflict(format!("queue {queue:?} is not controlled: set its control first")));
            }
            if let GateName::Key(key) = &name {
                check_key(key)?;
            }
            let (act, after) = self.decide_gate(gate, now)?;
            change.act = Some(act);
            if name != GateName::Queue {
                change.target = format!("{name} of queue {queue}");
            }
            change.gate = Some((name, after));
            return Ok(change);
        }
        match &self.change {
            Change::Put { control, version, from_code } => {
                control.check()?;
                self.check_version(stored.as_ref(), *version)?;
                if stored.as_ref().is_some_and(|stored| *from_code && (!stored.from_code || stored.control == *control))
                {
                    return Ok(change);
                }
                let version = stored.map_or(1, |stored| stored.version + 1);
                let (control, from_code) = (control.clone(), *from_code);
                change.control = Some(ControlRecord { control, version, from_code, updated_at: now });
                change.act = Some("control queue");
            }
            Change::Clear { version } => {
                self.check_version(stored.as_ref(), *version)?;
                if stored.is_some() {
                    (change.act, change.control) = (Some("clear control"), None);
                }
            }
            Change::Pause(_)
            | Change::PutKey { .. }
            | Change::ClearKey { .. }
            | Change::Hold { .. }
            | Change::Resume { .. } => {}
        }
        Ok(change)
    }

    fn decide_gate(&self, mut gate: Gate, now: Timestamp) -> Result<(&'static str, Gate)> {
        let act = match &self.change {
            Change::PutKey { limit, .. } => {
                limit.check()?;
                gate.limit = Some(*limit);
                "limit key"
            }
            Change::ClearKey { .. } => {
                gate.limit = None;
                "clear key"
            }
            Change::Hold { time: Some(time), .. } => {
                if time.is_zero() || *time > HOLD_MAX {
                    return Err(Error::invalid("hold", "must be more than zero and at most 31 days"));
                }
                gate.hold(now.plus(*time));
                "hold"
            }
            Change::Hold { time: None, .. } => {
                gate.held_until = None;
                "lift hold"
            }
            Change::Resume { .. } => {
                (gate.held_until, gate.owner) = (None, None);
                "resume key"
            }
            Change::Pause(_) | Change::Put { .. } | Change::Clear { .. } => "control queue",
        };
        Ok((act, gate))
    }

    fn check_version(&self, stored: Option<&ControlRecord>, version: Option<u64>) -> Result<()> {
        let is = stored.map(|stored| stored.version);
        match version {
            Some(_) if version != is => {
                let is = is.map_or("has none".to_owned(), |is| format!("is at version {is}"));
                Err(Error::Conflict(format!("the control of queue {:?} {is}", self.queue)))
            }
            _ => Ok(()),
        }
    }
}

/// A key of a controlled queue, and how it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyRecord {
    /// The key.
    pub key: String,
    /// How many of its jobs wait and are due, counted up to a limit.
    pub waiting: u64,
    /// How many run.
    pub running: u32,
    /// The limits in force.
    pub limit: Limit,
    /// Whether these are its own.
    pub own_limit: bool,
    /// How it stands.
    pub state: KeyState,
}

impl KeyRecord {
    /// A key without jobs, under limits that are not its own; set what differs.
    pub fn new(key: impl Into<String>, limit: Limit, state: KeyState) -> Self {
        KeyRecord { key: key.into(), waiting: 0, running: 0, limit, own_limit: false, state }
    }
}

/// How a key stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Its jobs may start.
    Open,
    /// As many run as may.
    Full,
    /// Its rate is used up until this moment.
    Rate {
        /// When the next one may start.
        until: Timestamp,
    },
    /// It is held.
    Held {
        /// Until when.
        until: Timestamp,
    },
    /// It is ordered, and this job of it has not ended.
    Ordered {
        /// The job.
        job: JobId,
    },
    /// It is ordered, and this job of it has failed.
    Halted {
        /// The job.
        job: JobId,
    },
}

impl KeyState {
    /// Its name, as in JSON and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            KeyState::Open => "open",
            KeyState::Full => "full",
            KeyState::Rate { .. } => "rate",
            KeyState::Held { .. } => "held",
            KeyState::Ordered { .. } => "ordered",
            KeyState::Halted { .. } => "halted",
        }
    }

    /// Whether nothing of the key may start now.
    pub fn is_blocked(&self) -> bool {
        *self != KeyState::Open
    }
}

impl KeyRecord {
    /// How a key stands: what is known of its gate and of the job that an ordered one was started with.
    pub fn of(
        control: &Control,
        key: &str,
        gate: &Gate,
        owner: Option<(super::Owner, JobId)>,
        waiting: u64,
        now: Timestamp,
    ) -> Self {
        let limit = control.of_key(key, gate);
        let room = gate.room(&limit, now);
        let held = gate.held_until.filter(|until| *until > now);
        let state = match (control.ordered, owner) {
            (Some(super::AfterFailure::Halt), Some((super::Owner::Failed, job))) => KeyState::Halted { job },
            (Some(_), Some((super::Owner::Unfinished, job))) => KeyState::Ordered { job },
            _ => match (held, room.starts, room.again_at) {
                (Some(until), _, _) => KeyState::Held { until },
                (None, 0, Some(until)) => KeyState::Rate { until },
                (None, 0, None) => KeyState::Full,
                (None, _, _) => KeyState::Open,
            },
        };
        let own_limit = gate.limit.is_some();
        KeyRecord { key: key.to_owned(), waiting, running: gate.running, limit, own_limit, state }
    }
}
