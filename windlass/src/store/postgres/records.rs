//! The small records: queues and their numbers, workers, acts, workflows.

use std::collections::HashMap;

use uuid::Uuid;

use super::Inner;
use super::driver_row::Row;
use super::events::{KIND_ACCEPTED, KIND_PENDING, KIND_PRUNED};
use super::fault::Fault;
use super::job_rows;
use super::link::Link;
use super::read::numbered;
use super::turns::Caller;
use crate::job::{QueueName, State, WorkerId, WorkflowId};
use crate::store::answer::{ActRecord, Page, QueueRecord, Totals, WORKERS_BYTES_MAX, WorkerRecord};
use crate::store::request::{Cursor, PAGE_MAX, WORKER_LIVE, WorkerReport};
use crate::workflow::WorkflowRecord;

/// The numbers of a queue.
pub(super) struct Tally {
    pub(super) name: QueueName,
    pub(super) paused: bool,
    pub(super) accepted: u64,
    pub(super) pruned: u64,
    pub(super) states: [u64; 9],
}

impl Tally {
    fn add(&mut self, kind: i16, count: i64) {
        let count = u64::try_from(count).unwrap_or_default();
        match kind {
            KIND_ACCEPTED => self.accepted = count,
            KIND_PRUNED => self.pruned = count,
            KIND_PENDING => self.states[usize::from(State::Pending.number())] = count,
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
        let link = self.link(Caller::Reader).await?;
        let rows = link.query(include_str!("sql/count_states.sql"), &[&self.given_time()]).await?;
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
        let link = self.link(Caller::Reader).await?;
        let rows = link.query(include_str!("sql/get_oldest_scheduled.sql"), &[&self.given_time()]).await?;
        let oldest: HashMap<String, i64> = rows.iter().map(|row| (row.get("name"), row.get("due"))).collect();
        let record = |tally: Tally| QueueRecord {
            oldest_scheduled: oldest.get(tally.name.as_str()).map(|at| job_rows::time(*at)),
            name: tally.name,
            paused: tally.paused,
            states: tally.states,
        };
        Ok(tallies.into_iter().map(record).filter(|queue| !queue.is_forgotten()).collect())
    }

    pub(super) async fn announce(&self, report: &WorkerReport) -> Result<(), Fault> {
        let link = self.link(Caller::Worker).await?;
        let (id, time, text) = (report.id.as_str(), self.given_time(), job_rows::json(report));
        link.execute(include_str!("sql/put_worker.sql"), &[&time, &id, &text]).await?;
        Ok(())
    }

    pub(super) async fn live_workers(&self, link: &Link<'_>) -> Result<Vec<WorkerRecord>, Fault> {
        let live = job_rows::micros(WORKER_LIVE);
        let most = WORKERS_BYTES_MAX as i64;
        let rows = link.query(include_str!("sql/list_workers.sql"), &[&self.given_time(), &live, &most]).await?;
        let mut workers = Vec::with_capacity(rows.len());
        for row in &rows {
            let Ok(report) = serde_json::from_str(row.get("report")) else { continue };
            let WorkerReport { id, host, queues, types } = report;
            let (started_at, seen_at) = (job_rows::time(row.get("started_at")), job_rows::time(row.get("seen_at")));
            workers.push(WorkerRecord { id, host, queues, types, started_at, seen_at });
        }
        workers.sort_by(|one: &WorkerRecord, other| WorkerId::cmp(&one.id, &other.id));
        Ok(workers)
    }

    pub(super) async fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>, Fault> {
        let before = numbered(after)?.unwrap_or(i64::MAX);
        let limit = limit.clamp(1, PAGE_MAX);
        let link = self.link(Caller::Reader).await?;
        let wanted = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/list_acts.sql"), &[&before, &wanted]).await?;
        let shown = &rows[..rows.len().min(limit)];
        let items: Vec<ActRecord> =
            shown.iter().filter_map(|row| serde_json::from_str(row.get("record")).ok()).collect();
        let next = shown.last().filter(|_| rows.len() > limit).map(|row| Cursor(row.get::<_, i64>("act").to_string()));
        Ok(Page { items, next })
    }

    pub(super) async fn find_workflows(&self, ids: &[WorkflowId]) -> Result<Vec<Option<WorkflowRecord>>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let wanted: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        let rows = link.query(include_str!("sql/get_workflow.sql"), &[&wanted]).await?;
        let found = self.workflow_records(&link, &rows).await?;
        let found: HashMap<WorkflowId, WorkflowRecord> = found.into_iter().map(|record| (record.id, record)).collect();
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    pub(super) async fn workflows(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WorkflowRecord>, Fault> {
        let before = numbered(after)?.unwrap_or(i64::MAX);
        let limit = limit.clamp(1, PAGE_MAX);
        let link = self.link(Caller::Reader).await?;
        let wanted = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/list_workflows.sql"), &[&before, &wanted]).await?;
        let shown = &rows[..rows.len().min(limit)];
        let next = shown.last().filter(|_| rows.len() > limit).map(|row| Cursor(row.get::<_, i64>("seq").to_string()));
        Ok(Page { items: self.workflow_records(&link, shown).await?, next })
    }

    async fn workflow_records(&self, link: &Link<'_>, rows: &[Row]) -> Result<Vec<WorkflowRecord>, Fault> {
        let ids: Vec<Uuid> = rows.iter().map(|row| row.get("workflow")).collect();
        let counts = link.query(include_str!("sql/count_workflow.sql"), &[&self.given_time(), &ids]).await?;
        let mut states: HashMap<Uuid, [u64; 9]> = HashMap::new();
        for row in &counts {
            let (id, state, count): (Uuid, i16, i64) = (row.get("workflow"), row.get("state"), row.get("count"));
            let states = states.entry(id).or_default();
            if let Some(place) = usize::try_from(state).ok().and_then(|state| states.get_mut(state)) {
                *place = u64::try_from(count).unwrap_or_default();
            }
        }
        let record = |row: &Row| {
            let id: Uuid = row.get("workflow");
            WorkflowRecord {
                id: WorkflowId::from_uuid(id),
                name: row.get("name"),
                created_at: job_rows::time(row.get("created_at")),
                counts: states.get(&id).copied().unwrap_or_default(),
                pruned: u64::try_from(row.get::<_, i64>("pruned")).unwrap_or_default(),
            }
        };
        Ok(rows.iter().map(record).collect())
    }
}

/// The numbers of queues from rows that are ordered by queue.
pub(super) fn tallies(rows: &[Row]) -> Result<Vec<Tally>, Fault> {
    let mut tallies: Vec<Tally> = Vec::new();
    for row in rows {
        let name: &str = row.get("name");
        if tallies.last().is_none_or(|tally| tally.name.as_str() != name) {
            let name = QueueName::new(name)?;
            tallies.push(Tally { name, paused: row.get("paused"), accepted: 0, pruned: 0, states: [0; 9] });
        }
        if let (Some(tally), Some(kind)) = (tallies.last_mut(), row.get::<_, Option<i16>>("kind")) {
            tally.add(kind, row.get("count"));
        }
    }
    for tally in &mut tallies {
        tally.conclude();
    }
    Ok(tallies)
}
