//! `windlass queues control`, `keys` and `key`: the flow control of queues.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use windlass::flow::{
    AfterFailure, Change, Control, ControlEdit, ControlRecord, GateName, KeyRecord, KeyState, Limit, Rate,
};
use windlass::store::KeyQuery;
use windlass::{Error, JobType, QueueName, Timestamp};

use super::connect::{Session, user};
use super::output::{Row, say};
use super::parse;
use super::table::Cell;
use crate::wire;

/// What `windlass queues control` takes.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Which queue
    #[arg(value_name = "QUEUE", value_parser = parse::queue)]
    queue: QueueName,
    /// Most jobs of the queue that run at once
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    running: Option<u32>,
    /// Most jobs of the queue that start in a time, such as 100/s, 10/min or 500/h
    #[arg(long, value_name = "N/TIME", value_parser = rate, allow_hyphen_values = true)]
    rate: Option<Rate>,
    /// How many may start at one moment
    #[arg(long, value_name = "N", requires = "rate", allow_negative_numbers = true)]
    burst: Option<u32>,
    /// Most jobs of a type that run at once; may be repeated
    #[arg(long, value_name = "TYPE=N", value_parser = of_type)]
    type_running: Vec<(JobType, u32)>,
    /// Most jobs of each key that run at once
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    each_key_running: Option<u32>,
    /// Most jobs of each key that start in a time
    #[arg(long, value_name = "N/TIME", value_parser = rate, allow_hyphen_values = true)]
    each_key_rate: Option<Rate>,
    /// Let keys share by what runs, then by turn
    #[arg(long)]
    fair: bool,
    /// Within a key a job of the next priority counts as this much older
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    ageing: Option<Duration>,
    /// One job of a key at a time, in order; a failed one halts its key
    #[arg(long, conflicts_with = "ordered_go_on")]
    ordered: bool,
    /// One job of a key at a time, in order; a failed one is passed over
    #[arg(long)]
    ordered_go_on: bool,
    /// End the control of the queue
    #[arg(long, conflicts_with_all = ["running", "rate", "type_running", "each_key_running", "each_key_rate", "fair",
        "ageing", "ordered", "ordered_go_on", "hold", "lift"])]
    clear: bool,
    /// Start nothing of the queue for this long
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, conflicts_with = "lift")]
    hold: Option<Duration>,
    /// Lift the hold of the queue
    #[arg(long)]
    lift: bool,
}

/// What `windlass queues keys` takes.
#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    /// Which queue
    #[arg(value_name = "QUEUE", value_parser = parse::queue)]
    queue: QueueName,
    /// Only keys of which nothing may start now
    #[arg(long)]
    blocked: bool,
    /// How many at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

/// What `windlass queues key` takes.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Which queue
    #[arg(value_name = "QUEUE", value_parser = parse::queue)]
    queue: QueueName,
    /// Which key
    #[arg(value_name = "KEY")]
    key: String,
    /// Most jobs of the key that run at once
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    running: Option<u32>,
    /// Most jobs of the key that start in a time
    #[arg(long, value_name = "N/TIME", value_parser = rate, allow_hyphen_values = true)]
    rate: Option<Rate>,
    /// Its share beside other keys, from 1 to 1000
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    weight: Option<u16>,
    /// Take its own limits away
    #[arg(long, conflicts_with_all = ["running", "rate", "weight"])]
    clear: bool,
    /// Start nothing of the key for this long
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    hold: Option<Duration>,
    /// Lift its hold, and let it go on where a failed job halts it
    #[arg(long, conflicts_with = "hold")]
    resume: bool,
}

/// A rate such as `100/s`.
fn rate(text: &str) -> Result<Rate, String> {
    let (count, unit) = text.split_once('/').ok_or("must be N/TIME, such as 100/s, 10/min or 500/h")?;
    let count: u32 =
        count.trim().parse().map_err(|_| format!("{count:?} is no number of starts, from 1 to 1000000"))?;
    let per = match unit.trim() {
        "s" => Duration::from_secs(1),
        "min" | "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        "d" => Duration::from_secs(86_400),
        other => parse::duration(other).map_err(|error| error.to_string())?,
    };
    let rate = Rate::new(count, per);
    rate.check().map_err(|error| error.to_string())?;
    Ok(rate)
}

fn of_type(text: &str) -> Result<(JobType, u32), String> {
    let (name, count) = text.split_once('=').ok_or("must be TYPE=N, such as mail.send=5")?;
    let name = JobType::new(name).map_err(|error| error.to_string())?;
    Ok((name, count.parse().map_err(|_| format!("{count:?} is not a number"))?))
}

impl ControlArgs {
    fn control(&self) -> Control {
        let rate = self.rate.map(|rate| self.burst.map_or(rate, |burst| rate.burst(burst)));
        let each_key = Limit { running: self.each_key_running, rate: self.each_key_rate, weight: 1 };
        let types: BTreeMap<JobType, Limit> =
            self.type_running.iter().map(|(name, count)| (name.clone(), Limit::running(*count))).collect();
        let ordered = match (self.ordered, self.ordered_go_on) {
            (true, _) => Some(AfterFailure::Halt),
            (false, true) => Some(AfterFailure::GoOn),
            (false, false) => None,
        };
        let each_key = Some(each_key).filter(|limit| *limit != Limit::default());
        Control { running: self.running, rate, types, each_key, fair: self.fair, ageing: self.ageing, ordered }
    }
}

/// Shows, sets, clears or holds the control of a queue.
pub(crate) async fn control(session: &Session, arguments: ControlArgs) -> anyhow::Result<()> {
    let (queue, control) = (arguments.queue.clone(), arguments.control());
    let store = session.store();
    let change = |change| ControlEdit::new(queue.clone(), change);
    if arguments.clear {
        store.control(&change(Change::Clear { version: None }), user().as_deref()).await?;
        say(format!("queue {queue} has no control"));
        return Ok(());
    }
    if control != Control::default() {
        let put = Change::Put { control, version: None, from_code: false };
        store.control(&change(put), user().as_deref()).await?;
    }
    if arguments.hold.is_some() || arguments.lift {
        let hold = Change::Hold { gate: GateName::Queue, time: arguments.hold };
        store.control(&change(hold), user().as_deref()).await?;
    }
    match store.controlled(&queue).await? {
        Some(record) => session.out.one(&record),
        None => Err(Error::not_found("control of queue", queue.as_str()).into()),
    }
}

/// Lists keys.
pub(crate) async fn keys(session: &Session, arguments: KeysArgs) -> anyhow::Result<()> {
    let KeysArgs { queue, blocked, limit } = arguments;
    let query = KeyQuery { blocked, limit, ..KeyQuery::new(queue) };
    let keys: Vec<KeyRecord> = session.store().keys(&query).await?.items;
    session.out.all(&keys, "there are no such keys")
}

/// Changes or shows one key.
pub(crate) async fn key(session: &Session, arguments: KeyArgs) -> anyhow::Result<()> {
    let KeyArgs { queue, key, running, rate, weight, clear, hold, resume } = arguments;
    let mut changes = Vec::new();
    if clear {
        changes.push(Change::ClearKey { key: key.clone() });
    } else if running.is_some() || rate.is_some() || weight.is_some() {
        let limit = Limit { running, rate, weight: weight.unwrap_or(1) };
        changes.push(Change::PutKey { key: key.clone(), limit });
    }
    if hold.is_some() {
        changes.push(Change::Hold { gate: GateName::Key(key.clone()), time: hold });
    } else if resume {
        changes.push(Change::Resume { key: key.clone() });
    }
    for change in changes {
        session.store().control(&ControlEdit::new(queue.clone(), change), user().as_deref()).await?;
    }
    let query = KeyQuery { key: Some(key.clone()), ..KeyQuery::new(queue) };
    match session.store().keys(&query).await?.items.pop() {
        Some(record) => session.out.one(&record),
        None => {
            say(format!("key {key} has no jobs and nothing set"));
            Ok(())
        }
    }
}

impl Row for ControlRecord {
    fn headings(_: bool) -> Vec<&'static str> {
        vec!["VERSION", "SET BY", "CONTROL"]
    }

    fn cells(&self, _: bool, _: Timestamp) -> Vec<Cell> {
        let by = if self.from_code { "code" } else { "operator" };
        vec![Cell::new(self.version.to_string()), Cell::new(by), Cell::new(words(self).join("; "))]
    }

    fn id(&self) -> String {
        self.version.to_string()
    }

    fn wire(&self) -> impl Serialize {
        wire::Controlled::from(self)
    }
}

impl Row for KeyRecord {
    fn headings(_: bool) -> Vec<&'static str> {
        vec!["KEY", "STATE", "WAITING", "RUNNING", "LIMIT"]
    }

    fn cells(&self, _: bool, _: Timestamp) -> Vec<Cell> {
        let state = match self.state {
            KeyState::Rate { until } | KeyState::Held { until } => format!("{} until {until}", self.state.as_str()),
            KeyState::Ordered { job } | KeyState::Halted { job } => format!("{} by {job}", self.state.as_str()),
            KeyState::Open | KeyState::Full => self.state.as_str().to_owned(),
        };
        let limit = limit_words(&self.limit);
        vec![
            Cell::new(self.key.clone()),
            Cell::new(state),
            Cell::new(self.waiting.to_string()),
            Cell::new(self.running.to_string()),
            Cell::new(limit),
        ]
    }

    fn id(&self) -> String {
        self.key.clone()
    }

    fn wire(&self) -> impl Serialize {
        wire::FlowKey::from(self)
    }
}

/// The limits of a control in words, for a table.
fn words(record: &ControlRecord) -> Vec<String> {
    let control = &record.control;
    let mut words = Vec::new();
    words.extend(control.running.map(|running| format!("running {running}")));
    words.extend(control.rate.map(|rate| format!("rate {rate}")));
    for (name, limit) in &control.types {
        words.push(format!("type {name}: {}", limit_words(limit)));
    }
    words.extend(control.each_key.as_ref().map(|limit| format!("each key: {}", limit_words(limit))));
    words.extend(control.fair.then(|| "fair".to_owned()));
    words.extend(control.ageing.map(|step| format!("ageing {}", wire::Span(step))));
    words.extend(control.ordered.map(|after| match after {
        AfterFailure::Halt => "ordered".to_owned(),
        AfterFailure::GoOn => "ordered, goes on after a failure".to_owned(),
    }));
    words
}

/// A limit in words.
fn limit_words(limit: &Limit) -> String {
    let mut words = Vec::new();
    words.extend(limit.running.map(|running| format!("running {running}")));
    words.extend(limit.rate.map(|rate| format!("rate {rate}")));
    words.extend((limit.weight != 1).then(|| format!("weight {}", limit.weight)));
    if words.is_empty() { "no limit".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        assert_eq!(rate("100/s"), Ok(Rate::per_second(100)));
        assert_eq!(rate("10/min"), Ok(Rate::per_minute(10)));
        assert_eq!(rate("5/30s"), Ok(Rate::new(5, Duration::from_secs(30))));
        for bad in ["100", "0/s", "-1/s", "x/s", "1/fortnight"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
