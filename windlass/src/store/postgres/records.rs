//! The small records: queues and their numbers, workers, acts, workflows.

use std::collections::HashMap;

use uuid::Uuid;

use super::Inner;
use super::driver_row::Row;
use super::events::{KIND_ACCEPTED, KIND_LEFT, KIND_PENDING, KIND_REMOVED, KIND_RETRIED};
use super::fault::Fault;
use super::job_rows;
use super::link::{InRow, Link, Parameter};
use super::read::numbered;
use super::turns::Caller;
use crate::flow::ControlRecord;
use crate::job::{JobType, QueueName, State, WorkerId, WorkflowId};
use crate::store::answer::{ActRecord, Announced, Page, QueueRecord, WORKERS_BYTES_MAX, WorkerRecord};
use crate::store::observe::{
    COUNTED_MAX, ENDS_MAX, EndRecord, LaneRecord, Observation, SAMPLES_MAX, Sample, SampleStep, newest_ends,
};
use crate::store::request::{Cursor, Filter, PAGE_MAX, WORKER_LIVE, WorkerReport, WorkflowQuery};
use crate::time::Timestamp;
use crate::workflow::WorkflowRecord;

/// [`COUNTED_MAX`] as it is sent.
const COUNTED_MOST: i64 = COUNTED_MAX as i64;

/// The numbers of a lane as they are added up.
#[derive(Default)]
struct Sums {
    accepted: u64,
    removed: [u64; 4],
    left: [u64; 4],
    lane: [u64; 2],
    states: [u64; 9],
}

impl Sums {
    fn add(&mut self, kind: i16, count: i64) {
        let count = u64::try_from(count).unwrap_or_default();
        let place = |from: i16, length: i16| usize::try_from(kind - from).ok().filter(|_| kind < from + length);
        if kind == KIND_ACCEPTED {
            self.accepted = count;
        } else if kind == KIND_PENDING {
            self.states[usize::from(State::Pending.number())] = count;
        } else if let Some(place) = place(5 + KIND_REMOVED, 4) {
            self.removed[place] = count;
        } else if let Some(place) = place(5 + KIND_LEFT, 4) {
            self.left[place] = count;
        } else if let Some(place) = place(KIND_RETRIED, 2) {
            self.lane[place] = count;
        } else if let Some(place) = place(0, 9) {
            self.states[place] = count;
        }
    }

    /// The SCHEDULED jobs are those of which nothing else is known.
    fn record(mut self, queue: QueueName, job_type: JobType) -> LaneRecord {
        let others: u64 = self.states.iter().chain(&self.removed).sum();
        self.states[usize::from(State::Scheduled.number())] = self.accepted.saturating_sub(others);
        let ended = std::array::from_fn(|place| self.states[5 + place] + self.removed[place] + self.left[place]);
        let [retried, lost] = self.lane;
        LaneRecord {
            states: self.states,
            accepted: self.accepted,
            ended,
            retried,
            lost,
            ..LaneRecord::new(queue, job_type)
        }
    }
}

/// What `count_states.sql` answers: the time, the queues with whether each is paused, and the lanes.
#[derive(Default)]
pub(super) struct Counts {
    now: Timestamp,
    pub(super) queues: Vec<(QueueName, bool)>,
    pub(super) lanes: Vec<LaneRecord>,
}

impl Inner {
    async fn counts(&self) -> Result<Counts, Fault> {
        let link = self.link(Caller::Reader).await?;
        self.counts_on(&link).await
    }

    pub(super) async fn counts_on(&self, link: &Link<'_>) -> Result<Counts, Fault> {
        let rows = link.query(include_str!("sql/count_states.sql"), &[&self.given_time(), &COUNTED_MOST]).await?;
        self.counted(link, &rows).await
    }

    async fn counted(&self, link: &Link<'_>, rows: &[Row]) -> Result<Counts, Fault> {
        let mut counts = counts(rows)?;
        if rows.is_empty() {
            counts.now = self.read_clock(link).await?;
        }
        Ok(counts)
    }

    /// How many jobs of lanes are in some states.
    pub(super) async fn count_lanes(&self, filter: &Filter) -> Result<u64, Fault> {
        let wanted = |lane: &&LaneRecord| {
            filter.queue.as_ref().is_none_or(|queue| *queue == lane.queue)
                && filter.job_type.as_ref().is_none_or(|job_type| *job_type == lane.job_type)
        };
        let states =
            || State::ALL.into_iter().filter(|state| filter.states.is_empty() || filter.states.contains(state));
        let counts = self.counts().await?;
        Ok(counts.lanes.iter().filter(wanted).map(|lane| states().map(|state| lane.count(state)).sum::<u64>()).sum())
    }

    pub(super) async fn observe(&self, ends_from: Option<Timestamp>) -> Result<Observation, Fault> {
        let link = self.link(Caller::Reader).await?;
        let Some(from) = ends_from else {
            let counts = self.counts_on(&link).await?;
            return Ok(Observation { now: counts.now, lanes: counts.lanes, ends: Vec::new() });
        };
        let (time, from, most) = (self.given_time(), from.as_micros(), i64::try_from(ENDS_MAX).unwrap_or(i64::MAX));
        let (count, list): ([Parameter<'_>; 2], [Parameter<'_>; 2]) = ([&time, &COUNTED_MOST], [&from, &most]);
        let statements: [InRow<'_>; 2] =
            [(include_str!("sql/count_states.sql"), &count), (include_str!("sql/list_ends.sql"), &list)];
        let answers = link.query_in_row(&statements).await?;
        let counts = self.counted(&link, &answers[0]).await?;
        let lanes: Vec<i32> = answers[1].iter().map(|row| row.get("lane")).collect();
        self.lanes.learn_lanes(&link, &lanes).await?;
        // What has ended since the counts were taken is listed the next time, which begins at their moment.
        let ends =
            answers[1].iter().filter_map(|row| self.end_record(row)).filter(|end| end.at <= counts.now).collect();
        Ok(Observation { now: counts.now, lanes: counts.lanes, ends: newest_ends(ends) })
    }

    fn end_record(&self, row: &Row) -> Option<EndRecord> {
        let moment = |name: &str| row.get::<_, Option<i64>>(name).map(job_rows::time);
        let state = u8::try_from(row.get::<_, i16>("state")).ok().and_then(State::from_number)?;
        let names = self.lanes.name(row.get("lane"))?;
        Some(EndRecord::new(names, state, moment("scheduled_at"), moment("started_at"), moment("at")?))
    }

    pub(super) async fn put_sample(&self, step: SampleStep, sample: &Sample) -> Result<(), Fault> {
        let link = self.link(Caller::Worker).await?;
        let seconds = i64::try_from(step.every().as_secs()).unwrap_or(i64::MAX);
        let (at, data) = (sample.at.as_micros(), job_rows::json(sample));
        let (time, kept) = (self.given_time(), job_rows::micros(step.kept()));
        let (put, forget): ([Parameter<'_>; 3], [Parameter<'_>; 3]) =
            ([&seconds, &at, &data], [&time, &seconds, &kept]);
        let statements: [InRow<'_>; 2] =
            [(include_str!("sql/put_sample.sql"), &put), (include_str!("sql/forget_samples.sql"), &forget)];
        link.query_in_row(&statements).await?;
        Ok(())
    }

    pub(super) async fn samples(
        &self,
        step: SampleStep,
        from: Timestamp,
        before: Timestamp,
    ) -> Result<Vec<Sample>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let seconds = i64::try_from(step.every().as_secs()).unwrap_or(i64::MAX);
        let most = i64::try_from(SAMPLES_MAX).unwrap_or(i64::MAX);
        let (from, before) = (from.as_micros(), before.as_micros());
        let rows = link.query(include_str!("sql/list_samples.sql"), &[&seconds, &from, &before, &most]).await?;
        // One that cannot be read is a gap in the line.
        Ok(rows.iter().rev().filter_map(|row| serde_json::from_str(row.get("data")).ok()).collect())
    }

    pub(super) async fn queues(&self) -> Result<Vec<QueueRecord>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let counts = self.counts_on(&link).await?;
        let rows = link.query(include_str!("sql/get_oldest_scheduled.sql"), &[&self.given_time()]).await?;
        let oldest: HashMap<String, i64> = rows.iter().map(|row| (row.get("name"), row.get("due"))).collect();
        let rows = link.query(include_str!("sql/list_controlled.sql"), &[]).await?;
        let mut controls: HashMap<String, (i32, ControlRecord)> = HashMap::new();
        let mut doors: Vec<i32> = Vec::new();
        for row in &rows {
            // The queue of one that cannot be read is told without it; `check` finds it.
            let control = row.get::<_, Option<&str>>("control").map(serde_json::from_str::<ControlRecord>);
            if let Some(Ok(record)) = control {
                doors.extend(record.control.has_strands().then(|| row.get::<_, i32>("queue")));
                controls.insert(row.get("name"), (row.get("queue"), record));
            }
        }
        let at_doors = self.at_doors(&link, &doors).await?;
        let record = |(name, paused): (QueueName, bool)| {
            let mut states = [0; 9];
            for lane in counts.lanes.iter().filter(|lane| lane.queue == name) {
                for (sum, count) in states.iter_mut().zip(lane.states) {
                    *sum += count;
                }
            }
            let oldest_scheduled = oldest.get(name.as_str()).map(|at| job_rows::time(*at));
            let (queue, control) = controls.get(name.as_str()).cloned().unzip();
            let at_door = queue.and_then(|queue| at_doors.get(&queue).copied()).unwrap_or_default();
            QueueRecord { name, paused, states, oldest_scheduled, control, at_door }
        };
        Ok(counts.queues.into_iter().map(record).filter(|queue| !queue.is_forgotten()).collect())
    }

    pub(super) async fn announce(&self, report: &WorkerReport) -> Result<Announced, Fault> {
        let link = self.link(Caller::Worker).await?;
        let (id, time, text) = (report.id.as_str(), self.given_time(), job_rows::json(report));
        let rows = link.query(include_str!("sql/put_worker.sql"), &[&time, &id, &text, &report.is_leave()]).await?;
        Ok(Announced::new(rows.first().is_some_and(|row| row.get("draining"))))
    }

    pub(super) async fn live_workers(&self, link: &Link<'_>) -> Result<Vec<WorkerRecord>, Fault> {
        let live = job_rows::micros(WORKER_LIVE);
        let most = WORKERS_BYTES_MAX as i64;
        let rows = link.query(include_str!("sql/list_workers.sql"), &[&self.given_time(), &live, &most]).await?;
        let mut workers: Vec<_> = rows.iter().filter_map(worker).collect();
        workers.sort_by(|one, other| WorkerId::cmp(&one.id, &other.id));
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
        Ok(Page::new(items, next))
    }

    pub(super) async fn workflows(&self, query: &WorkflowQuery) -> Result<Page<WorkflowRecord>, Fault> {
        match query {
            WorkflowQuery::Ids(ids) => Ok(Page::new(self.find_workflows(ids).await?, None)),
            WorkflowQuery::Newest { limit, after } => self.list_workflows(after.as_ref(), *limit).await,
        }
    }

    async fn find_workflows(&self, ids: &[WorkflowId]) -> Result<Vec<WorkflowRecord>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let wanted: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        let rows = link.query(include_str!("sql/get_workflow.sql"), &[&wanted]).await?;
        let found = self.workflow_records(&link, &rows).await?;
        let found: HashMap<WorkflowId, WorkflowRecord> = found.into_iter().map(|record| (record.id, record)).collect();
        Ok(ids.iter().filter_map(|id| found.get(id).cloned()).collect())
    }

    async fn list_workflows(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WorkflowRecord>, Fault> {
        let before = numbered(after)?.unwrap_or(i64::MAX);
        let limit = limit.clamp(1, PAGE_MAX);
        let link = self.link(Caller::Reader).await?;
        let wanted = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/list_workflows.sql"), &[&before, &wanted]).await?;
        let shown = &rows[..rows.len().min(limit)];
        let next = shown.last().filter(|_| rows.len() > limit).map(|row| Cursor(row.get::<_, i64>("seq").to_string()));
        Ok(Page::new(self.workflow_records(&link, shown).await?, next))
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

/// A worker, unless its report cannot be read.
pub(super) fn worker(row: &Row) -> Option<WorkerRecord> {
    let report: WorkerReport = serde_json::from_str(row.get("report")).ok()?;
    let (started_at, seen_at) = (job_rows::time(row.get("started_at")), job_rows::time(row.get("seen_at")));
    Some(WorkerRecord::new(report, started_at, seen_at).told(row.get("draining")))
}

/// The numbers of lanes from rows that are ordered by queue and type.
fn counts(rows: &[Row]) -> Result<Counts, Fault> {
    let mut counts = Counts::default();
    let mut sums: Option<(QueueName, JobType, Sums)> = None;
    let (mut running, mut later) = (0, 0);
    for row in rows {
        counts.now = job_rows::time(row.get("now"));
        let name: &str = row.get("name");
        // Names that were damaged are passed over: `check` finds that the numbers do not agree.
        let Ok(queue) = QueueName::new(name) else { continue };
        if counts.queues.last().is_none_or(|(last, _)| last.as_str() != name) {
            counts.queues.push((queue.clone(), row.get("paused")));
        }
        // A queue that was paused before it had jobs has no lane.
        let Some(job_type) = row.get::<_, Option<&str>>("job_type") else { continue };
        if !sums.as_ref().is_some_and(|(queue, last, _)| queue.as_str() == name && last.as_str() == job_type) {
            let Ok(job_type) = JobType::new(job_type) else { continue };
            let done = sums.replace((queue, job_type, Sums::default()));
            counts.lanes.extend(done.map(|(queue, job_type, sums)| sums.record(queue, job_type)));
        }
        if let (Some((_, _, sums)), Some(kind)) = (sums.as_mut(), row.get::<_, Option<i16>>("kind")) {
            let count: i64 = row.get::<_, Option<i64>>("count").unwrap_or_default();
            running += if kind == 3 { count } else { 0 };
            later += if kind == 1 || kind == 4 { count } else { 0 };
            sums.add(kind, count);
        }
    }
    counts.lanes.extend(sums.map(|(queue, job_type, sums)| sums.record(queue, job_type)));
    let most = i64::try_from(COUNTED_MAX).unwrap_or(i64::MAX);
    let at_least = running >= most || later >= most;
    counts.lanes.iter_mut().for_each(|lane| lane.at_least = at_least);
    Ok(counts)
}
