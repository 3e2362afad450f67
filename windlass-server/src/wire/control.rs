//! The flow control of queues: limits, rates, keys.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::flow::{
    AfterFailure, Control as StoredControl, ControlRecord, KeyRecord, KeyState as StoredKeyState, Limit as StoredLimit,
    Rate as StoredRate,
};
use windlass::job::{Hold, HoldScope};
use windlass::{JobId, JobType, Result, Timestamp};

use super::duration::Span;

/// At most `count` starts in a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// How many starts in the time.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub count: u32,
    /// The time: `1s`, `1m`.
    pub per: Span,
    /// How many may start at one moment; what falls into 100 ms unless said, and at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub burst: Option<u32>,
}

/// Limits of a type in its queue, or of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowLimit {
    /// Most of its jobs that run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub running: Option<u32>,
    /// Most of its jobs that start in a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// A key's share beside the others'; 1 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub weight: Option<u16>,
}

/// What a queue is told about the flow of its jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// Most jobs of the queue that run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub running: Option<u32>,
    /// Most jobs of the queue that start in a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Limits of single types in this queue.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<String, FlowLimit>,
    /// The limits of each key that has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_key: Option<FlowLimit>,
    /// Whether keys share by what runs and then by turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fair: bool,
    /// Within a key a job of the next priority counts as this much older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ageing: Option<Span>,
    /// One job of a key at a time, in order; and what a failed one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<Ordered>,
    /// Whether a program declares it: what an operator has set is then left alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_code: bool,
}

/// What becomes of an ordered key when a job of it has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ordered {
    /// Nothing of the key starts until that job ends well, is deleted, or the key is resumed.
    Halt,
    /// The next job starts.
    GoOn,
}

/// The control of a queue, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Controlled {
    /// What the queue has been told.
    pub control: Control,
    /// Raised by every change; the `ETag`.
    pub version: u64,
    /// When it was last changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// Starts nothing of a gate for a time; without a time, lifts the hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldGate {
    /// For how long, from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
    /// Only jobs of this type in the queue.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
}

/// What a failure holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureHold {
    /// Which gate of the job: `queue`, `type` or `key`.
    #[schema(value_type = String, pattern = "^(queue|type|key)$")]
    pub scope: HoldScope,
    /// For how long.
    pub time: Span,
}

/// A key of a controlled queue, and how it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowKey {
    /// The key.
    pub key: String,
    /// How many of its jobs wait.
    pub waiting: u64,
    /// How many run.
    pub running: u32,
    /// The limits in force.
    pub limit: FlowLimit,
    /// Whether these are its own.
    pub own_limit: bool,
    /// How it stands.
    pub state: FlowKeyState,
    /// Until when it is held, or its rate is used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// The job that an ordered or halted key waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
}

/// How a key stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowKeyState {
    /// Its jobs may start.
    Open,
    /// As many run as may.
    Full,
    /// Its rate is used up.
    Rate,
    /// It is held.
    Held,
    /// It is ordered, and a job of it has not ended.
    Ordered,
    /// It is ordered, and a job of it has failed.
    Halted,
}

/// A page of keys.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowKeyPage {
    /// The keys, by name.
    pub items: Vec<FlowKey>,
    /// Where to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl From<Rate> for StoredRate {
    fn from(rate: Rate) -> Self {
        let stored = StoredRate::new(rate.count, rate.per.0);
        rate.burst.map_or(stored, |burst| stored.burst(burst))
    }
}

impl From<StoredRate> for Rate {
    fn from(rate: StoredRate) -> Self {
        Rate { count: rate.count, per: rate.per.into(), burst: Some(rate.burst) }
    }
}

impl From<FlowLimit> for StoredLimit {
    fn from(limit: FlowLimit) -> Self {
        let (running, rate) = (limit.running, limit.rate.map(StoredRate::from));
        StoredLimit { running, rate, weight: limit.weight.unwrap_or(1) }
    }
}

impl From<StoredLimit> for FlowLimit {
    fn from(limit: StoredLimit) -> Self {
        let weight = Some(limit.weight).filter(|weight| *weight != 1);
        FlowLimit { running: limit.running, rate: limit.rate.map(Rate::from), weight }
    }
}

impl TryFrom<Control> for StoredControl {
    type Error = windlass::Error;

    fn try_from(control: Control) -> Result<Self> {
        let types = control.types.into_iter().map(|(name, limit)| Ok((JobType::new(name)?, limit.into())));
        Ok(StoredControl {
            running: control.running,
            rate: control.rate.map(StoredRate::from),
            types: types.collect::<Result<_>>()?,
            each_key: control.each_key.map(StoredLimit::from),
            fair: control.fair,
            ageing: control.ageing.map(|step| step.0),
            ordered: control.ordered.map(|ordered| match ordered {
                Ordered::Halt => AfterFailure::Halt,
                Ordered::GoOn => AfterFailure::GoOn,
            }),
        })
    }
}

impl Control {
    /// A control, and whether a program declares it.
    pub fn of(control: &StoredControl, from_code: bool) -> Self {
        Control {
            running: control.running,
            rate: control.rate.map(Rate::from),
            types: control.types.iter().map(|(name, limit)| (name.to_string(), (*limit).into())).collect(),
            each_key: control.each_key.map(FlowLimit::from),
            fair: control.fair,
            ageing: control.ageing.map(Span::from),
            ordered: control.ordered.map(|after| match after {
                AfterFailure::Halt => Ordered::Halt,
                AfterFailure::GoOn => Ordered::GoOn,
            }),
            from_code,
        }
    }
}

impl From<&ControlRecord> for Controlled {
    fn from(record: &ControlRecord) -> Self {
        let control = Control::of(&record.control, record.from_code);
        Controlled { control, version: record.version, updated_at: record.updated_at }
    }
}

impl TryFrom<Controlled> for ControlRecord {
    type Error = windlass::Error;

    fn try_from(controlled: Controlled) -> Result<Self> {
        let Controlled { control, version, updated_at } = controlled;
        let from_code = control.from_code;
        let mut record = ControlRecord::new(control.try_into()?, version, updated_at);
        record.from_code = from_code;
        Ok(record)
    }
}

impl From<FailureHold> for Hold {
    fn from(hold: FailureHold) -> Self {
        Hold { scope: hold.scope, time: hold.time.0 }
    }
}

impl From<Hold> for FailureHold {
    fn from(hold: Hold) -> Self {
        FailureHold { scope: hold.scope, time: hold.time.into() }
    }
}

impl From<&KeyRecord> for FlowKey {
    fn from(record: &KeyRecord) -> Self {
        let (state, until, job) = match record.state {
            StoredKeyState::Open => (FlowKeyState::Open, None, None),
            StoredKeyState::Full => (FlowKeyState::Full, None, None),
            StoredKeyState::Rate { until } => (FlowKeyState::Rate, Some(until), None),
            StoredKeyState::Held { until } => (FlowKeyState::Held, Some(until), None),
            StoredKeyState::Ordered { job } => (FlowKeyState::Ordered, None, Some(job)),
            StoredKeyState::Halted { job } => (FlowKeyState::Halted, None, Some(job)),
        };
        FlowKey {
            key: record.key.clone(),
            waiting: record.waiting,
            running: record.running,
            limit: record.limit.into(),
            own_limit: record.own_limit,
            state,
            until,
            job,
        }
    }
}

impl TryFrom<FlowKey> for KeyRecord {
    type Error = windlass::Error;

    fn try_from(key: FlowKey) -> Result<Self> {
        let missing = || windlass::Error::store("read the server's answer", "a key's state is not complete");
        let state = match key.state {
            FlowKeyState::Open => StoredKeyState::Open,
            FlowKeyState::Full => StoredKeyState::Full,
            FlowKeyState::Rate => StoredKeyState::Rate { until: key.until.ok_or_else(missing)? },
            FlowKeyState::Held => StoredKeyState::Held { until: key.until.ok_or_else(missing)? },
            FlowKeyState::Ordered => StoredKeyState::Ordered { job: key.job.ok_or_else(missing)? },
            FlowKeyState::Halted => StoredKeyState::Halted { job: key.job.ok_or_else(missing)? },
        };
        let mut record = KeyRecord::new(key.key, key.limit.into(), state);
        (record.waiting, record.running, record.own_limit) = (key.waiting, key.running, key.own_limit);
        Ok(record)
    }
}
