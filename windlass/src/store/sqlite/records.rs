//! The small records: workers, workflows and the acts of operators.

use rusqlite::{OptionalExtension, Row as SqlRow, params};

use super::columns::{parse, state, text, time, uuid};
use super::fault::Answer;
use super::list::place;
use super::transaction::Transaction;
use crate::job::WorkflowId;
use crate::store::answer::{ActRecord, Announced, Page, WORKERS_BYTES_MAX, WorkerRecord, fits};
use crate::store::request::{Cursor, PAGE_MAX, WORKER_LIVE, WorkerEdit, WorkerReport, WorkflowQuery};
use crate::store::rules;
use crate::workflow::WorkflowRecord;

/// How many acts are kept; older ones are forgotten.
const ACTS_KEPT: i64 = 10_000;

/// A worker, unless its report cannot be read.
fn worker(row: &SqlRow<'_>) -> rusqlite::Result<Option<WorkerRecord>> {
    let Ok(report) = parse(row.get_ref("report")?.as_str()?) else { return Ok(None) };
    let (started_at, seen_at) = (time(row.get("started_at")?), time(row.get("seen_at")?));
    Ok(Some(WorkerRecord::new(report, started_at, seen_at).told(row.get("draining")?)))
}

impl Transaction<'_> {
    pub(super) fn announce(&mut self, report: &WorkerReport) -> Answer<Announced> {
        let kept = params![report.id.as_str(), text(report), self.now.as_micros(), report.is_leave()];
        let draining =
            self.statement(include_str!("sql/put_worker.sql"))?.query_row(kept, |row| row.get("draining"))?;
        Ok(Announced::new(draining))
    }

    /// Tells a worker to take no more jobs, or to take some again.
    pub(super) fn edit_worker(&mut self, edit: &WorkerEdit, by: Option<&str>) -> Answer<WorkerRecord> {
        let mut statement = self.statement(include_str!("sql/get_worker.sql"))?;
        let known = statement.query_row([edit.worker.as_str()], worker).optional()?.flatten();
        drop(statement);
        if let Some((act, hint)) = rules::told(known.as_ref(), edit, by, self.now)? {
            let told = params![edit.worker.as_str(), edit.draining];
            self.statement(include_str!("sql/set_draining.sql"))?.execute(told)?;
            self.record_act(&act)?;
            self.hint(hint);
        }
        Ok(known.expect("it lives").told(edit.draining))
    }

    /// Workers heard of lately, by id.
    pub(super) fn workers(&self) -> Answer<Vec<WorkerRecord>> {
        let mut statement = self.statement(include_str!("sql/list_workers.sql"))?;
        let mut rows = statement.query([self.now.minus(WORKER_LIVE).as_micros()])?;
        let (mut workers, mut left) = (Vec::new(), WORKERS_BYTES_MAX);
        while let Some(row) = rows.next()? {
            if !fits(row.get_ref("report")?.as_str()?.len(), &mut left) {
                break;
            }
            workers.extend(worker(row)?);
        }
        Ok(workers)
    }

    pub(super) fn record_act(&mut self, act: &ActRecord) -> Answer<()> {
        let changed = i64::try_from(act.changed).unwrap_or(i64::MAX);
        let kept = params![act.at.as_micros(), act.by, act.act, act.target, changed, act.why];
        self.statement(include_str!("sql/add_act.sql"))?.execute(kept)?;
        self.statement(include_str!("sql/forget_acts.sql"))?.execute([ACTS_KEPT])?;
        Ok(())
    }

    pub(super) fn acts(&self, after: Option<&Cursor>, limit: usize) -> Answer<Page<ActRecord>> {
        let (before, limit) = (place(after)?.unwrap_or(i64::MAX), limit.clamp(1, PAGE_MAX));
        let mut statement = self.statement(include_str!("sql/list_acts.sql"))?;
        let read = |row: &SqlRow<'_>| {
            let changed = u64::try_from(row.get::<_, i64>("changed")?).unwrap_or_default();
            let act = ActRecord {
                at: time(row.get("at")?),
                by: row.get("by")?,
                act: row.get("act")?,
                target: row.get("target")?,
                changed,
                why: row.get("why")?,
            };
            Ok((row.get::<_, i64>("seq")?, act))
        };
        // One more than asked for tells whether there is a next page.
        let rows = statement.query_map([before, i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)], read)?;
        Ok(paged(rows.collect::<rusqlite::Result<_>>()?, limit))
    }

    pub(super) fn workflows(&mut self, query: &WorkflowQuery) -> Answer<Page<WorkflowRecord>> {
        match query {
            WorkflowQuery::Ids(ids) => Ok(Page::new(self.find_workflows(ids)?, None)),
            WorkflowQuery::Newest { limit, after } => self.list_workflows(after.as_ref(), *limit),
        }
    }

    fn find_workflows(&mut self, ids: &[WorkflowId]) -> Answer<Vec<WorkflowRecord>> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            let mut statement = self.statement(include_str!("sql/get_workflow.sql"))?;
            let mut rows = statement.query([id.as_uuid().into_bytes()])?;
            if let Some((_, record)) = rows.next()?.map(read_workflow).transpose()? {
                found.push(self.counted(record)?);
            }
        }
        Ok(found)
    }

    fn list_workflows(&mut self, after: Option<&Cursor>, limit: usize) -> Answer<Page<WorkflowRecord>> {
        let (before, limit) = (place(after)?.unwrap_or(i64::MAX), limit.clamp(1, PAGE_MAX));
        let mut statement = self.statement(include_str!("sql/list_workflows.sql"))?;
        let mut rows = statement.query([before, i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)])?;
        let mut records = Vec::new();
        while let Some(row) = rows.next()? {
            records.push(read_workflow(row)?);
        }
        let page = paged(records, limit);
        let items = page.items.into_iter().map(|record| self.counted(record)).collect::<Answer<_>>()?;
        Ok(Page::new(items, page.next))
    }

    /// Counts a workflow's jobs. A workflow is bounded, and so is this.
    fn counted(&mut self, mut record: WorkflowRecord) -> Answer<WorkflowRecord> {
        let mut statement = self.statement(include_str!("sql/count_workflow.sql"))?;
        let mut rows = statement.query([record.id.as_uuid().into_bytes()])?;
        while let Some(row) = rows.next()? {
            let found: i64 = row.get("place")?;
            let state = match u8::try_from(found) {
                Ok(number) => state(number)?,
                Err(_) => self.known(row.get("seq")?)?.job.state,
            };
            record.counts[usize::from(state.number())] += 1;
        }
        Ok(record)
    }
}

fn read_workflow(row: &SqlRow<'_>) -> Answer<(i64, WorkflowRecord)> {
    let record = WorkflowRecord {
        id: WorkflowId::from_uuid(uuid(row, "id")?),
        name: row.get("name")?,
        created_at: time(row.get("created_at")?),
        counts: [0; 9],
        pruned: u64::try_from(row.get::<_, i64>("pruned")?).unwrap_or_default(),
    };
    Ok((row.get("seq")?, record))
}

/// A page of rows that were read with one more than asked for.
fn paged<T>(mut rows: Vec<(i64, T)>, limit: usize) -> Page<T> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(seq, _)| Cursor(seq.to_string()));
    Page::new(rows.into_iter().map(|(_, item)| item).collect(), next)
}
