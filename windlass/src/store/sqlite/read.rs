//! Reading, which changes nothing: single jobs, their attempts and logs, why they do not run, and what happened.

use rusqlite::{Row as SqlRow, params};

use super::columns::{json, outcome_of, state, text, time, uuid};
use super::fault::{Answer, Fault};
use super::job_rows::Entry;
use super::list::place;
use super::transaction::Transaction;
use crate::error::Error;
use crate::job::{
    AttemptId, AttemptRecord, Circumstances, DependencyKind, EXPLAIN_SCAN_MAX, Explanation, JobId, JobOptions,
    JobRecord, JobType, LogLine, Priority, QueueName, State, WorkerId,
};
use crate::store::answer::{JobEvent, JobEventKind, LOG_LINE_BYTES, LOGS_BYTES_MAX, Page, QueueRecord, fits};
use crate::store::observe::{
    ENDS_MAX, EndRecord, LaneRecord, Observation, SAMPLES_MAX, Sample, SampleStep, newest_ends,
};
use crate::store::request::{Cursor, PAGE_MAX};
use crate::time::Timestamp;

/// A lane's number, names and counts.
pub(super) struct LaneCounts {
    pub(super) lane: i64,
    pub(super) queue: String,
    pub(super) job_type: String,
    pub(super) states: [u64; 9],
    /// Jobs removed; jobs that left each terminal state; attempts retried and lost.
    history: [u64; 7],
}

/// The lane and the names of jobs that are due.
struct Due {
    lane: i64,
    queue: String,
    job_type: String,
}

impl LaneCounts {
    fn record(self) -> Answer<LaneRecord> {
        let [removed, left @ .., retried, lost] = self.history;
        let mut lane = LaneRecord::new(QueueName::new(self.queue)?, JobType::new(self.job_type)?);
        lane.states = self.states;
        lane.accepted = self.states.iter().sum::<u64>() + removed;
        for (ended, (standing, left)) in lane.ended.iter_mut().zip(self.states[5..].iter().zip(left)) {
            *ended = standing + left;
        }
        (lane.retried, lane.lost) = (retried, lost);
        Ok(lane)
    }
}

impl Transaction<'_> {
    pub(super) fn find(&mut self, ids: &[JobId]) -> Answer<Vec<Option<JobRecord>>> {
        ids.iter().map(|id| Ok(self.load_id(*id)?.map(|entry| entry.job))).collect()
    }

    fn existing_job(&mut self, id: JobId) -> Answer<Entry> {
        Ok(self.load_id(id)?.ok_or_else(|| Error::no_such_job(id))?)
    }

    pub(super) fn id_of(&self, seq: i64) -> Answer<JobId> {
        let mut statement = self.statement(include_str!("sql/get_id.sql"))?;
        let id: [u8; 16] = statement.query_row([seq], |row| row.get(0))?;
        Ok(JobId::from_uuid(uuid::Uuid::from_bytes(id)))
    }

    pub(super) fn attempts(&mut self, id: JobId) -> Answer<Vec<AttemptRecord>> {
        let entry = self.existing_job(id)?;
        let mut statement = self.statement(include_str!("sql/list_attempts.sql"))?;
        let mut rows = statement.query([entry.seq])?;
        let mut attempts = Vec::new();
        while let Some(row) = rows.next()? {
            attempts.push(read_attempt(id, row)?);
        }
        attempts.extend(entry.inline_attempt());
        attempts.extend(entry.job.open_attempt());
        Ok(attempts)
    }

    pub(super) fn logs(&mut self, id: JobId) -> Answer<Vec<LogLine>> {
        let entry = self.existing_job(id)?;
        let mut statement = self.statement(include_str!("sql/list_logs.sql"))?;
        let mut rows = statement.query([entry.seq])?;
        let (mut lines, mut left) = (Vec::new(), LOGS_BYTES_MAX);
        while let Some(row) = rows.next()? {
            let text: String = row.get("text")?;
            if !fits(text.len() + LOG_LINE_BYTES, &mut left) {
                break;
            }
            let attempt = AttemptId::of(id, u64::try_from(row.get::<_, i64>("version")?).unwrap_or_default());
            lines.push(LogLine { attempt, at: time(row.get("at")?), text });
        }
        lines.reverse();
        Ok(lines)
    }

    pub(super) fn explain(&mut self, id: JobId) -> Answer<Explanation> {
        let entry = self.existing_job(id)?;
        let job = &entry.job;
        let mut around = Circumstances { paused: self.is_paused(&job.spec.queue)?, ..Circumstances::default() };
        if job.state == State::Pending {
            // Of AFTER_ANY dependencies one is enough: when they are met, the rest of them are nothing to wait for.
            let waits = |kind| kind != DependencyKind::AfterAny || entry.waits.any;
            let edges = self.dependencies(entry.seq)?.into_iter();
            let mut open: Vec<i64> = edges.filter(|edge| edge.2 && waits(edge.1)).map(|edge| edge.0).collect();
            open.dedup();
            open.truncate(EXPLAIN_SCAN_MAX);
            around.waits_for = open.into_iter().map(|parent| self.id_of(parent)).collect::<Answer<_>>()?;
        }
        if job.state == State::Scheduled {
            around.ahead_by_key = self.ahead_by_key(&entry)?;
            around.ahead = self.ahead_of(&entry)?;
        }
        around.blocked = self.blocked(&entry)?;
        for worker in self.workers()? {
            worker.tell(job, &mut around);
        }
        Ok(Explanation::of(job, &around, self.now))
    }

    fn ahead_of(&self, entry: &Entry) -> Answer<usize> {
        let job = &entry.job;
        let own = job.effective_priority();
        let mut ahead = 0;
        for lane in self.lanes()?.into_iter().filter(|lane| lane.queue == job.spec.queue.as_str()) {
            for priority in Priority::ALL.into_iter().filter(|priority| *priority <= own) {
                // All of a more urgent priority that are due come before it.
                let (at, seq) = match priority == own {
                    true => (job.position.as_micros(), entry.seq),
                    false => (self.now.as_micros(), i64::MAX),
                };
                let room = i64::try_from(EXPLAIN_SCAN_MAX - ahead).unwrap_or_default();
                ahead += self.count_before(lane.lane, usize::from(priority.number()), (at, seq), room)?;
            }
        }
        Ok(ahead)
    }

    /// How many jobs of a lane and priority stand before a place, up to a limit.
    pub(super) fn count_before(&self, lane: i64, priority: usize, at: (i64, i64), most: i64) -> Answer<usize> {
        let asked = [lane, i64::try_from(priority).unwrap_or_default(), at.0, at.1, most];
        let mut statement = self.statement(include_str!("sql/count_ahead.sql"))?;
        Ok(statement.query_row(asked, |row| row.get::<_, u32>(0))? as usize)
    }

    /// Every lane with its counts, as they are now: what is due counts as SCHEDULED.
    pub(super) fn lanes(&self) -> Answer<Vec<LaneCounts>> {
        self.counts(include_str!("sql/list_lanes.sql"), |lane, due: &Due| lane.lane == due.lane)
    }

    /// The counts of each queue and type, over all its keys.
    fn lane_sums(&self) -> Answer<Vec<LaneCounts>> {
        self.counts(include_str!("sql/list_lane_sums.sql"), |lane, due: &Due| {
            lane.queue == due.queue && lane.job_type == due.job_type
        })
    }

    fn counts(&self, sql: &str, is_in: impl Fn(&LaneCounts, &Due) -> bool) -> Answer<Vec<LaneCounts>> {
        let mut statement = self.statement(sql)?;
        let read = |row: &SqlRow<'_>| {
            let (mut states, mut history) = ([0; 9], [0; 7]);
            for (number, count) in states.iter_mut().chain(&mut history).enumerate() {
                *count = u64::try_from(row.get::<_, i64>(3 + number)?).unwrap_or_default();
            }
            let (queue, job_type) = (row.get("queue")?, row.get("type")?);
            Ok(LaneCounts { lane: row.get("lane")?, queue, job_type, states, history })
        };
        let mut lanes = statement.query_map([], read)?.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut statement = self.statement(include_str!("sql/count_due.sql"))?;
        let mut rows = statement.query([self.now.as_micros()])?;
        while let Some(row) = rows.next()? {
            let due = Due { lane: row.get("lane")?, queue: row.get("queue")?, job_type: row.get("type")? };
            let (kind, count): (i64, i64) = (row.get("kind")?, row.get("due")?);
            let count = u64::try_from(count).unwrap_or_default();
            let from = usize::from(super::columns::kind_state(kind)?.number());
            if let Some(counts) = lanes.iter_mut().find(|lane| is_in(lane, &due)) {
                counts.states[from] = counts.states[from].saturating_sub(count);
                counts.states[usize::from(State::Scheduled.number())] += count;
            }
        }
        Ok(lanes)
    }

    pub(super) fn observe(&mut self, ends_from: Option<Timestamp>) -> Answer<Observation> {
        // The jobs of one key of a controlled queue have a lane of their own; all of a type are told together.
        let lanes = self.lane_sums()?.into_iter().map(LaneCounts::record).collect::<Answer<Vec<LaneRecord>>>()?;
        let mut ends = Vec::new();
        if let Some(from) = ends_from {
            for ended in State::ALL.into_iter().filter(|state| state.is_terminal()) {
                self.ends_since(ended, from, &mut ends)?;
            }
        }
        Ok(Observation { now: self.now, lanes, ends: newest_ends(ends) })
    }

    fn ends_since(&mut self, ended: State, from: Timestamp, ends: &mut Vec<EndRecord>) -> Answer<()> {
        let mut statement = self.statement(include_str!("sql/list_ends.sql"))?;
        let most = i64::try_from(ENDS_MAX).unwrap_or(i64::MAX);
        let mut rows = statement.query([i64::from(ended.number()), most])?;
        while let Some(row) = rows.next()? {
            let at = time(row.get("at")?);
            // Ends are in the order of time.
            if at < from {
                break;
            }
            let (scheduled_at, started_at): (Option<i64>, Option<i64>) =
                (row.get("scheduled_at")?, row.get("started_at")?);
            let names = self.names_of(row.get("lane")?)?;
            ends.push(EndRecord::new(names, ended, scheduled_at.map(time), started_at.map(time), at));
        }
        Ok(())
    }

    pub(super) fn put_sample(&mut self, step: SampleStep, sample: &Sample) -> Answer<()> {
        let seconds = i64::try_from(step.every().as_secs()).unwrap_or(i64::MAX);
        let row = params![seconds, sample.at.as_micros(), text(sample)];
        self.statement(include_str!("sql/put_sample.sql"))?.execute(row)?;
        let horizon = self.now.minus(step.kept()).as_micros();
        self.statement(include_str!("sql/forget_samples.sql"))?.execute([seconds, horizon])?;
        Ok(())
    }

    pub(super) fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Answer<Vec<Sample>> {
        let seconds = i64::try_from(step.every().as_secs()).unwrap_or(i64::MAX);
        let most = i64::try_from(SAMPLES_MAX).unwrap_or(i64::MAX);
        let mut statement = self.statement(include_str!("sql/list_samples.sql"))?;
        let mut rows = statement.query([seconds, from.as_micros(), before.as_micros(), most])?;
        let mut samples = Vec::new();
        while let Some(row) = rows.next()? {
            samples.extend(json::<Sample>(row, "data")?);
        }
        samples.reverse();
        Ok(samples)
    }

    pub(super) fn queues(&self) -> Answer<Vec<QueueRecord>> {
        let mut queues = std::collections::BTreeMap::new();
        let fresh = |name: &str| -> Answer<QueueRecord> {
            let name = crate::job::QueueName::new(name)?;
            Ok(QueueRecord { name, paused: false, states: [0; 9], oldest_scheduled: None, control: None, at_door: 0 })
        };
        for lane in self.lane_sums()? {
            let queue = match queues.entry(lane.queue.clone()) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => entry.insert(fresh(&lane.queue)?),
            };
            for (sum, count) in queue.states.iter_mut().zip(lane.states) {
                *sum += count;
            }
            for priority in Priority::ALL {
                let mut statement = self.statement(include_str!("sql/get_oldest_scheduled.sql"))?;
                let place = [lane.lane, i64::from(priority.number()), self.now.as_micros()];
                let oldest: Option<i64> = statement.query_row(place, |row| row.get(0))?;
                queue.oldest_scheduled = [queue.oldest_scheduled, oldest.map(time)].into_iter().flatten().min();
            }
        }
        let mut statement = self.statement(include_str!("sql/list_queues.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (name, paused): (String, bool) = (row.get("name")?, row.get("paused")?);
            let queue = match queues.entry(name.clone()) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => entry.insert(fresh(&name)?),
            };
            queue.paused = paused;
            queue.control = json(row, "control")?;
            if let Some(record) = &queue.control {
                if record.control.has_strands() {
                    queue.at_door = self.at_door(&queue.name)?;
                }
                let mut statement = self.statement(include_str!("sql/get_oldest_in_strands.sql"))?;
                let oldest: Option<i64> = statement.query_row(params![name, self.now.as_micros()], |row| row.get(0))?;
                queue.oldest_scheduled = [queue.oldest_scheduled, oldest.map(time)].into_iter().flatten().min();
            }
        }
        Ok(queues.into_values().filter(|queue| !queue.is_forgotten()).collect())
    }

    pub(super) fn events(&mut self, after: Option<&Cursor>, limit: usize) -> Answer<Page<JobEvent>> {
        let present = Some(Cursor(self.ticks().to_string()));
        let Some(tick) = place(after)? else { return Ok(Page::new(Vec::new(), present)) };
        let limit = limit.clamp(1, PAGE_MAX);
        let mut events = self.enqueued_after(tick, limit)?;
        let few = i64::try_from(limit).unwrap_or(i64::MAX);
        for ended in State::ALL.into_iter().filter(|state| state.is_terminal()) {
            let from = params![tick, few, ended.number()];
            self.ended_after(include_str!("sql/list_ended_events.sql"), from, &mut events)?;
        }
        self.ended_after(include_str!("sql/list_past_events.sql"), params![tick, few], &mut events)?;
        events.sort_by_key(|(tick, _)| *tick);
        events.truncate(limit);
        let items: Vec<JobEvent> = events.into_iter().map(|(_, event)| event).collect();
        let next = items.last().map_or(present, |last| Some(last.cursor.clone()));
        Ok(Page::new(items, next))
    }

    fn enqueued_after(&mut self, tick: i64, limit: usize) -> Answer<Vec<(i64, JobEvent)>> {
        let mut statement = self.statement(include_str!("sql/list_enqueued_events.sql"))?;
        let mut rows = statement.query([tick, i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            events.extend(self.event(row, JobEventKind::Enqueued)?);
        }
        Ok(events)
    }

    fn ended_after(
        &mut self,
        sql: &str,
        from: &[&dyn rusqlite::ToSql],
        events: &mut Vec<(i64, JobEvent)>,
    ) -> Answer<()> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(from)?;
        while let Some(row) = rows.next()? {
            events.extend(self.event(row, JobEventKind::Ended(state(row.get("state")?)?))?);
        }
        Ok(())
    }

    fn event(&mut self, row: &SqlRow<'_>, kind: JobEventKind) -> Answer<Option<(i64, JobEvent)>> {
        let tick: i64 = row.get("tick")?;
        let (queue, job_type) = self.names_of(row.get("lane")?)?;
        let (cursor, at) = (Cursor(tick.to_string()), time(row.get("at")?));
        // An id that cannot be read is found by `check`; the events of others must be told.
        let Ok(id) = uuid(row, "id") else { return Ok(None) };
        let job = JobId::from_uuid(id);
        let submitted_by = row.get_ref("options")?.as_str().ok().and_then(JobOptions::submitter_in);
        Ok(Some((tick, JobEvent { cursor, at, job, queue, job_type, submitted_by, kind })))
    }
}

fn read_attempt(job: JobId, row: &SqlRow<'_>) -> Answer<AttemptRecord> {
    let version = u64::try_from(row.get::<_, i64>("version")?).map_err(|error| Fault::broken(error.to_string()))?;
    Ok(AttemptRecord {
        id: AttemptId::of(job, version),
        previous: version.checked_sub(1).filter(|version| *version > 0).map(|version| AttemptId::of(job, version)),
        number: row.get("number")?,
        generation: row.get("generation")?,
        lease_version: version,
        worker: WorkerId::new(row.get_ref("worker")?.as_str()?)?,
        started_at: time(row.get("started_at")?),
        ended_at: Some(time(row.get("ended_at")?)),
        outcome: Some(outcome_of(row.get("outcome")?)?),
        // One that cannot be read is found by `check`; the others must be shown.
        failure: json(row, "failure").unwrap_or_default(),
    })
}
