//! The small records: queues and their numbers, workers, acts, workflows.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Inner;
use super::fault::Fault;
use super::link::Link;
use super::read::numbered;
use super::row::Row;
use super::rows;
use super::unit::{EVENT_ACCEPTED, EVENT_PENDING, EVENT_PRUNED};
use crate::job::{QueueName, State, WorkerId, WorkflowId};
use crate::store::answer::{ActRecord, Page, QueueRecord, Totals, WorkerRecord};
use crate::store::request::{Cursor, PAGE_MAX, WORKER_LIVE, WorkerReport};
use crate::time::Timestamp;
use crate::workflow::WorkflowRecord;

/// The numbers of a queue.
pub(super) struct Tally {
    pub(super) name: QueueName,
    paused: bool,
    pub(super) accepted: u64,
    pub(super) pruned: u64,
    pub(super) states: [u64; 9],
}

impl Tally {
    fn add(&mut self, kind: i16, count: i64) {
        let count = u64::try_from(count).unwrap_or_default();
        match kind {
            EVENT_ACCEPTED => self.accepted = count,
            EVENT_PRUNED => self.pruned = count,
            EVENT_PENDING => self.states[usize::from(State::Pending.number())] = count,
            state => {
                if let Some(place) = usize::try_from(state).ok().and_then(|state| self.states.get_mut(state)) {
                    *place = count;
                }
            }
        }
    }

    /// The SCHEDULED jobs are those of which nothing else is known.
    fn conclude(&mut self) {
        let others: u64 = self.states.iter().sum::<u64>() + self.pruned;
        self.states[usize::from(State::Scheduled.number())] = self.accepted.saturating_sub(others);
    }
}

impl Inner {
    pub(super) async fn tallies(&self) -> Result<Vec<Tally>, Fault> {
        let link = self.link().await?;
        let rows = link.query(include_str!("sql/tally.sql"), &[&self.given_time()]).await?;
        tallies(&rows)
    }

    pub(super) async fn totals(&self) -> Result<Totals, Fault> {
        let mut totals = Totals::default();
        for tally in self.tallies().await? {
            totals.accepted += tally.accepted;
            totals.pruned += tally.pruned;
            for (sum, count) in totals.states.iter_mut().zip(tally.states) {
                *sum += count;
            }
        }
        Ok(totals)
    }

    pub(super) async fn queues(&self) -> Result<Vec<QueueRecord>, Fault> {
        let tallies = self.tallies().await?;
        let link = self.link().await?;
        let rows = link.query(include_str!("sql/oldest.sql"), &[&self.given_time()]).await?;
        let oldest: HashMap<String, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let record = |tally: Tally| QueueRecord {
            oldest_scheduled: oldest.get(tally.name.as_str()).map(|at| rows::time(*at)),
            name: tally.name,
            paused: tally.paused,
            states: tally.states,
        };
        Ok(tallies.into_iter().map(record).collect())
    }

    pub(super) async fn announce(&self, report: &WorkerReport) -> Result<(), Fault> {
        let link = self.link().await?;
        let (id, time, text) = (report.id.as_str(), self.given_time(), rows::json(report));
        link.execute(include_str!("sql/worker_put.sql"), &[&time, &id, &text]).await?;
        Ok(())
    }

    pub(super) async fn live_workers(&self, link: &Link<'_>) -> Result<Vec<WorkerRecord>, Fault> {
        let live = rows::micros(WORKER_LIVE);
        let rows = link.query(include_str!("sql/worker_list.sql"), &[&self.given_time(), &live]).await?;
        let mut workers = Vec::with_capacity(rows.len());
        for row in &rows {
            let WorkerReport { id, host, queues, types } = serde_json::from_str(row.get(0))?;
            let (started_at, seen_at) = (rows::time(row.get(1)), rows::time(row.get(2)));
            workers.push(WorkerRecord { id, host, queues, types, started_at, seen_at });
        }
        workers.sort_by(|one: &WorkerRecord, other| WorkerId::cmp(&one.id, &other.id));
        Ok(workers)
    }

    pub(super) async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>, Fault> {
        let before = numbered(after)?.unwrap_or(i64::MAX);
        let limit = limit.clamp(1, PAGE_MAX);
        let link = self.link().await?;
        let wanted = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/act_list.sql"), &[&before, &wanted]).await?;
        let shown = &rows[..rows.len().min(limit)];
        let items: Result<Vec<ActRecord>, Fault> = shown.iter().map(|row| act(row.get(1))).collect();
        let next = shown.last().filter(|_| rows.len() > limit).map(|row| Cursor(row.get::<_, i64>(0).to_string()));
        Ok(Page { items: items?, next })
    }

    pub(super) async fn find_workflows(&self, ids: &[WorkflowId]) -> Result<Vec<Option<WorkflowRecord>>, Fault> {
        let link = self.link().await?;
        let wanted: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        let rows = link.query(include_str!("sql/workflow_find.sql"), &[&wanted]).await?;
        let found = self.workflow_records(&link, &rows).await?;
        let found: HashMap<WorkflowId, WorkflowRecord> = found.into_iter().map(|record| (record.id, record)).collect();
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    pub(super) async fn workflows(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WorkflowRecord>, Fault> {
        let before = numbered(after)?.unwrap_or(i64::MAX);
        let limit = limit.clamp(1, PAGE_MAX);
        let link = self.link().await?;
        let wanted = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/workflow_list.sql"), &[&before, &wanted]).await?;
        let shown = &rows[..rows.len().min(limit)];
        let next = shown.last().filter(|_| rows.len() > limit).map(|row| Cursor(row.get::<_, i64>(4).to_string()));
        Ok(Page { items: self.workflow_records(&link, shown).await?, next })
    }

    async fn workflow_records(&self, link: &Link<'_>, rows: &[Row]) -> Result<Vec<WorkflowRecord>, Fault> {
        let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        let counts = link.query(include_str!("sql/workflow_count.sql"), &[&self.given_time(), &ids]).await?;
        let mut states: HashMap<Uuid, [u64; 9]> = HashMap::new();
        for row in &counts {
            let (id, state, count): (Uuid, i16, i64) = (row.get(0), row.get(1), row.get(2));
            let states = states.entry(id).or_default();
            if let Some(place) = usize::try_from(state).ok().and_then(|state| states.get_mut(state)) {
                *place = u64::try_from(count).unwrap_or_default();
            }
        }
        let record = |row: &Row| {
            let id: Uuid = row.get(0);
            WorkflowRecord {
                id: WorkflowId::from_uuid(id),
                name: row.get(1),
                created_at: rows::time(row.get(2)),
                counts: states.get(&id).copied().unwrap_or_default(),
                pruned: u64::try_from(row.get::<_, i64>(3)).unwrap_or_default(),
            }
        };
        Ok(rows.iter().map(record).collect())
    }
}

/// The numbers of queues from rows that are ordered by queue.
pub(super) fn tallies(rows: &[Row]) -> Result<Vec<Tally>, Fault> {
    let mut tallies: Vec<Tally> = Vec::new();
    for row in rows {
        let name: &str = row.get(0);
        if tallies.last().is_none_or(|tally| tally.name.as_str() != name) {
            let name = QueueName::new(name)?;
            tallies.push(Tally { name, paused: row.get(1), accepted: 0, pruned: 0, states: [0; 9] });
        }
        if let (Some(tally), Some(kind)) = (tallies.last_mut(), row.get::<_, Option<i16>>(2)) {
            tally.add(kind, row.get(3));
        }
    }
    for tally in &mut tallies {
        tally.conclude();
    }
    Ok(tallies)
}

/// An act as it is stored: text of an operator may hold anything, so it is JSON.
#[derive(Serialize, Deserialize)]
struct ActText {
    at: Timestamp,
    by: Option<String>,
    act: String,
    target: String,
    changed: u64,
    why: Option<String>,
}

pub(super) fn act_text(act: &ActRecord) -> String {
    rows::json(act)
}

fn act(text: &str) -> Result<ActRecord, Fault> {
    let ActText { at, by, act, target, changed, why } = serde_json::from_str(text)?;
    Ok(ActRecord { at, by, act, target, changed, why })
}
