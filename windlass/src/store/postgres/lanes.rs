//! The numbers that stand for a queue and a type, remembered by every process: they never change.
//!
//! After a failover that lost history, one that was remembered may not exist. So statements that insert check it, and what is
//! remembered is dropped when the store has another primary.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use super::fault::Fault;
use super::link::Link;
use crate::flow::{Control, ControlRecord};
use crate::job::{JobType, QueueName};

/// Finds or makes one lane inside a transaction; its number may be remembered only once that has committed.
pub(super) async fn make(link: &Link<'_>, queue: &QueueName, job_type: &JobType) -> Result<Lane, Fault> {
    let (queues, types) = (vec![queue.as_str()], vec![job_type.as_str()]);
    link.execute(include_str!("sql/add_queue.sql"), &[&queues]).await?;
    link.execute(include_str!("sql/add_lane.sql"), &[&queues, &types]).await?;
    let rows = link.query(include_str!("sql/find_lane.sql"), &[&queues, &types]).await?;
    // The number that was drawn for it was taken.
    rows.first().map(|row| row.get("lane")).ok_or(Fault::Overtaken)
}

/// How long the lanes of a queue are taken for complete.
const LOOKED_MAX: Duration = Duration::from_millis(500);

/// The number of a lane.
pub(super) type Lane = i32;

#[derive(Debug, Default)]
pub(super) struct Lanes {
    known: RwLock<Known>,
    /// When the lanes of each queue were last looked for: other processes make new ones.
    looked: Mutex<HashMap<QueueName, Instant>>,
}

#[derive(Debug, Default)]
struct Known {
    numbers: HashMap<QueueName, HashMap<JobType, Lane>>,
    names: HashMap<Lane, (QueueName, JobType)>,
    controlled: HashMap<QueueName, Controlled>,
}

/// A controlled queue: its number, and what it was told when its lanes were last looked for.
#[derive(Clone, Debug)]
pub(super) struct Controlled {
    pub(super) queue: i32,
    pub(super) control: Arc<Control>,
    /// Whether the last claim here found jobs; where keys make no difference, all that it wanted.
    pub(super) found: Arc<AtomicBool>,
    /// Whether the gates had no room for all that the last claim wanted.
    pub(super) full: Arc<AtomicBool>,
}

impl Known {
    fn learn(&mut self, lane: Lane, queue: QueueName, job_type: JobType) {
        self.numbers.entry(queue.clone()).or_default().insert(job_type.clone(), lane);
        self.names.insert(lane, (queue, job_type));
    }
}

impl Lanes {
    fn known(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.known.read().expect("no panic while the lanes are locked")
    }

    /// The lane of a queue and type, if it is known here.
    pub(super) fn get(&self, queue: &QueueName, job_type: &JobType) -> Option<Lane> {
        self.known().numbers.get(queue)?.get(job_type).copied()
    }

    /// The queue and type of a lane, if it is known here.
    pub(super) fn name(&self, lane: Lane) -> Option<(QueueName, JobType)> {
        self.known().names.get(&lane).cloned()
    }

    /// What is known of a queue's control. Plain claims pass over a controlled queue that is not known as one.
    pub(super) fn controlled(&self, queue: &QueueName) -> Option<Controlled> {
        self.known().controlled.get(queue).cloned()
    }

    /// Has the lanes of a queue looked for at the next claim.
    pub(super) fn look_again(&self, queue: &QueueName) {
        self.looked.lock().expect("no panic while it is locked").remove(queue);
    }

    /// Forgets the numbers: a lane made in a transaction that was undone does not exist, nor one that a failover lost. A
    /// number that is met again still has the name that it had.
    pub(super) fn forget(&self) {
        let mut known = self.known.write().expect("no panic while the lanes are locked");
        known.numbers.clear();
        known.controlled.clear();
        drop(known);
        self.looked.lock().expect("no panic while it is locked").clear();
    }

    /// Remembers lanes that a transaction made.
    pub(super) fn keep(&self, made: HashMap<(QueueName, JobType), Lane>) {
        if !made.is_empty() {
            let mut known = self.known.write().expect("no panic while the lanes are locked");
            for ((queue, job_type), lane) in made {
                known.learn(lane, queue, job_type);
            }
        }
    }

    /// The queues and types whose lanes are not known here.
    fn missing<'n>(&self, names: impl IntoIterator<Item = (&'n QueueName, &'n JobType)>) -> Vec<(&'n str, &'n str)> {
        let mut missing: Vec<(&str, &str)> = Vec::new();
        for (queue, job_type) in names {
            let name = (queue.as_str(), job_type.as_str());
            if self.get(queue, job_type).is_none() && !missing.contains(&name) {
                missing.push(name);
            }
        }
        missing
    }

    /// Finds the lanes of these queues and types, and makes none; says whether all are known now.
    pub(super) async fn find<'n>(
        &self,
        link: &Link<'_>,
        names: impl IntoIterator<Item = (&'n QueueName, &'n JobType)> + Clone,
    ) -> Result<bool, Fault> {
        let (queues, types): (Vec<&str>, Vec<&str>) = self.missing(names.clone()).into_iter().unzip();
        if queues.is_empty() {
            return Ok(true);
        }
        self.learn(link, include_str!("sql/find_lane.sql"), &[&queues, &types]).await?;
        Ok(self.missing(names).is_empty())
    }

    /// Finds or makes the lanes of these queues and types.
    pub(super) async fn ensure<'n>(
        &self,
        link: &Link<'_>,
        names: impl IntoIterator<Item = (&'n QueueName, &'n JobType)>,
    ) -> Result<(), Fault> {
        let mut missing = self.missing(names);
        if missing.is_empty() {
            return Ok(());
        }
        // All processes take the locks of new names in one order.
        missing.sort_unstable();
        let (queues, types): (Vec<&str>, Vec<&str>) = missing.into_iter().unzip();
        link.execute(include_str!("sql/add_queue.sql"), &[&queues]).await?;
        link.execute(include_str!("sql/add_lane.sql"), &[&queues, &types]).await?;
        self.learn(link, include_str!("sql/find_lane.sql"), &[&queues, &types]).await
    }

    /// Whether it is time to look for new lanes of these queues; the caller is then to look.
    pub(super) fn is_old<'n>(&self, queues: impl IntoIterator<Item = &'n QueueName>) -> bool {
        let mut looked = self.looked.lock().expect("no panic while it is locked");
        let mut old = false;
        for queue in queues {
            match looked.get_mut(queue) {
                Some(at) if at.elapsed() < LOOKED_MAX => {}
                Some(at) => {
                    *at = Instant::now();
                    old = true;
                }
                None => {
                    looked.insert(queue.clone(), Instant::now());
                    old = true;
                }
            }
        }
        old
    }

    /// Learns all lanes of these queues, and what these have been told.
    pub(super) async fn learn_queues(&self, link: &Link<'_>, queues: &[&str]) -> Result<(), Fault> {
        let rows = link.query(include_str!("sql/list_lanes.sql"), &[&queues]).await?;
        let mut known = self.known.write().expect("no panic while the lanes are locked");
        for queue in queues {
            known.controlled.remove(&QueueName::new(*queue)?);
        }
        for row in rows {
            let (name, job_type): (&str, &str) = (row.get("name"), row.get("job_type"));
            let queue = QueueName::new(name)?;
            known.learn(row.get("lane"), queue.clone(), JobType::new(job_type)?);
            // Nothing is claimed from a queue whose control cannot be read: it stays paused.
            let control = row.get::<_, Option<&str>>("control").map(serde_json::from_str::<ControlRecord>);
            if let Some(Ok(record)) = control {
                let control = Arc::new(record.control);
                known.controlled.entry(queue).or_insert_with(|| Controlled {
                    queue: row.get("queue"),
                    control,
                    found: Arc::default(),
                    full: Arc::default(),
                });
            }
        }
        Ok(())
    }

    /// Learns the names of these lanes.
    pub(super) async fn learn_lanes(&self, link: &Link<'_>, lanes: &[Lane]) -> Result<(), Fault> {
        let missing: Vec<Lane> = {
            let known = self.known();
            lanes.iter().copied().filter(|lane| !known.names.contains_key(lane)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        self.learn(link, include_str!("sql/get_lane.sql"), &[&missing]).await
    }

    async fn learn(
        &self,
        link: &Link<'_>,
        statement: &'static str,
        parameters: &[super::link::Parameter<'_>],
    ) -> Result<(), Fault> {
        let rows = link.query(statement, parameters).await?;
        let mut known = self.known.write().expect("no panic while the lanes are locked");
        for row in rows {
            let (queue, job_type): (&str, &str) = (row.get("name"), row.get("job_type"));
            known.learn(row.get("lane"), QueueName::new(queue)?, JobType::new(job_type)?);
        }
        Ok(())
    }

    /// The known lanes of a queue, of these types or of any.
    pub(super) fn of(&self, queue: &QueueName, types: Option<&[JobType]>) -> Vec<Lane> {
        let known = self.known();
        let Some(lanes) = known.numbers.get(queue) else { return Vec::new() };
        match types {
            None => lanes.values().copied().collect(),
            Some(types) => {
                let mut found: Vec<Lane> = types.iter().filter_map(|name| lanes.get(name).copied()).collect();
                found.sort_unstable();
                found.dedup();
                found
            }
        }
    }
}
