//! Reading. No statement looks at more rows than a page is worth, whatever the filter.

use super::Inner;
use super::fault::Fault;
use super::link::Link;
use super::row::Row;
use super::rows::{self, Entry, Places};
use crate::error::{Error, Result as Answer};
use crate::job::{
    AttemptId, AttemptRecord, Circumstances, EXPLAIN_SCAN_MAX, Explanation, JobId, JobRecord, LogLine, State,
};
use crate::store::answer::Page;
use crate::store::request::{Cursor, Filter, ListQuery, PAGE_MAX};
use crate::time::Timestamp;

/// How many rows one page or step looks at; rare matches among millions take several pages.
pub(super) const SCAN_MAX: i64 = 10_000;
/// How many whole jobs are fetched at once to be held against a filter.
const FETCH_MAX: usize = 500;

/// The number that a cursor is.
pub(super) fn numbered(cursor: Option<&Cursor>) -> Answer<Option<i64>> {
    let number = |cursor: &Cursor| cursor.0.parse::<u64>().map_err(|_| cursor.invalid());
    let number = cursor.map(number).transpose()?;
    Ok(number.map(|number| i64::try_from(number).unwrap_or(i64::MAX)))
}

/// What a scan found, and where to go on.
pub(super) struct Found {
    pub(super) entries: Vec<Entry>,
    pub(super) next: Option<i64>,
}

/// Jobs that match, beyond a sequence: the oldest first, or the newest.
pub(super) async fn scan(
    link: &Link<'_>,
    store: &Inner,
    filter: &Filter,
    from: i64,
    limit: usize,
    oldest_first: bool,
    now: Timestamp,
) -> Result<Found, Fault> {
    let (candidates, last) = candidates(link, filter, from, oldest_first).await?;
    let mut entries: Vec<Entry> = Vec::new();
    for chunk in candidates.chunks(FETCH_MAX) {
        let chunk = chunk.to_vec();
        let rows = link.query(include_str!("sql/record_find.sql"), &[&chunk]).await?;
        let mut found = store.entries(link, &rows, now).await?;
        found.retain(|entry| filter.matches(&entry.job));
        found.sort_by_key(|entry| if oldest_first { entry.seq } else { -entry.seq });
        let room = limit - entries.len();
        entries.extend(found.into_iter().take(room));
        if entries.len() == limit {
            let next = entries.last().map(|entry| entry.seq);
            return Ok(Found { entries, next });
        }
    }
    Ok(Found { entries, next: last })
}

/// The sequences of jobs that may match, and where to go on if there may be more.
async fn candidates(
    link: &Link<'_>,
    filter: &Filter,
    from: i64,
    oldest_first: bool,
) -> Result<(Vec<i64>, Option<i64>), Fault> {
    // No text here can hold NUL, and no schedule has it in its name.
    if filter.schedule.as_ref().is_some_and(|name| name.contains('\0')) {
        return Ok((Vec::new(), None));
    }
    let queue = filter.queue.as_ref().map(|queue| queue.as_str());
    let job_type = filter.job_type.as_ref().map(|name| name.as_str());
    let workflow = filter.workflow.map(|id| id.as_uuid());
    let created_from = filter.created_from.map(Timestamp::as_micros);
    let created_before = filter.created_before.map(Timestamp::as_micros);
    let states: Vec<i16> = filter.states.iter().map(|state| i16::from(state.number())).collect();
    let is = |wanted: fn(State) -> bool| !states.is_empty() && filter.states.iter().all(|state| wanted(*state));
    let statement = if workflow.is_some() {
        include_str!("sql/scan_workflow.sql")
    } else if is(|state| state.is_terminal() && state != State::Completed) {
        if oldest_first { include_str!("sql/scan_dead_up.sql") } else { include_str!("sql/scan_dead_down.sql") }
    } else if is(|state| !state.is_terminal()) {
        if oldest_first { include_str!("sql/scan_open_up.sql") } else { include_str!("sql/scan_open_down.sql") }
    } else if oldest_first {
        include_str!("sql/scan_job_up.sql")
    } else {
        include_str!("sql/scan_job_down.sql")
    };
    let rows = link
        .query(
            statement,
            &[
                &from,
                &SCAN_MAX,
                &queue,
                &job_type,
                &created_from,
                &created_before,
                &filter.schedule.as_deref(),
                &workflow,
                &states,
                &oldest_first,
            ],
        )
        .await?;
    let seqs = rows.iter().filter_map(|row| row.get::<_, Option<i64>>(0)).collect();
    let last = rows.first().and_then(|row| row.get::<_, Option<i64>>(1));
    Ok((seqs, last))
}

impl Inner {
    /// Rows of the view `record` as jobs.
    pub(super) async fn entries(&self, link: &Link<'_>, rows: &[Row], now: Timestamp) -> Result<Vec<Entry>, Fault> {
        let lanes: Vec<i32> = rows.iter().map(|row| row.get("lane")).collect();
        self.lanes.learn_lanes(link, &lanes).await?;
        let Some(at) = rows.first().map(Places::of) else { return Ok(Vec::new()) };
        rows.iter().map(|row| rows::entry(row, &at, &self.lanes, now)).collect()
    }

    async fn find_entries(&self, link: &Link<'_>, ids: &[JobId]) -> Result<(Vec<Entry>, Timestamp), Fault> {
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        let seqs = self.sequences(link, &ids).await?;
        let rows = link.query(include_str!("sql/find.sql"), &[&self.given_time(), &seqs, &ids]).await?;
        let now = rows.first().map_or(Timestamp::EPOCH, |row| rows::time(row.get("now")));
        Ok((self.entries(link, &rows, now).await?, now))
    }

    pub(super) async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>, Fault> {
        let link = self.link().await?;
        let (entries, _) = self.find_entries(&link, ids).await?;
        let found: std::collections::HashMap<JobId, JobRecord> =
            entries.into_iter().map(|entry| (entry.job.id, entry.job)).collect();
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    async fn known(&self, link: &Link<'_>, id: JobId) -> Result<(Entry, Timestamp), Fault> {
        let (mut entries, now) = self.find_entries(link, &[id]).await?;
        let entry = entries.pop().ok_or_else(|| Error::no_such_job(id))?;
        Ok((entry, now))
    }

    pub(super) async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>, Fault> {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let before = numbered(query.after.as_ref())?.unwrap_or(i64::MAX);
        let link = self.link().await?;
        let now = self.read_clock(&link).await?;
        let found = scan(&link, self, &query.filter, before, limit, false, now).await?;
        let next = found.next.map(|seq| Cursor(seq.to_string()));
        Ok(Page { items: found.entries.into_iter().map(|entry| entry.job).collect(), next })
    }

    pub(super) async fn count(&self, filter: &Filter, cap: u64) -> Result<u64, Fault> {
        let plain = Filter { states: filter.states.clone(), queue: filter.queue.clone(), ..Filter::default() };
        if *filter == plain {
            let queues = self.tallies().await?;
            let queues = queues.iter().filter(|queue| filter.queue.as_ref().is_none_or(|name| *name == queue.name));
            let wanted = |state: &State| filter.states.is_empty() || filter.states.contains(state);
            let count = queues.map(|queue| {
                let states = State::ALL.into_iter().filter(wanted);
                states.map(|state| queue.states[usize::from(state.number())]).sum::<u64>()
            });
            return Ok(count.sum::<u64>().min(cap));
        }
        let link = self.link().await?;
        let now = self.read_clock(&link).await?;
        let (mut count, mut from) = (0, 0);
        while count < cap {
            let room = usize::try_from(cap - count).unwrap_or(usize::MAX).min(PAGE_MAX);
            let found = scan(&link, self, filter, from, room, true, now).await?;
            count += found.entries.len() as u64;
            match found.next {
                None => break,
                Some(next) => from = next,
            }
        }
        Ok(count)
    }

    pub(super) async fn attempts(&self, id: JobId) -> Result<Vec<AttemptRecord>, Fault> {
        let link = self.link().await?;
        let (entry, _) = self.known(&link, id).await?;
        let rows = link.query(include_str!("sql/attempt_list.sql"), &[&entry.seq]).await?;
        let closed: Result<Vec<_>, Fault> = rows.iter().map(|row| rows::attempt(row, id)).collect();
        let mut attempts = closed?;
        attempts.extend(entry.last_attempt());
        attempts.extend(entry.job.open_attempt());
        // The job may have moved on between the two statements; what was closed then is told as closed.
        attempts.dedup_by_key(|attempt| attempt.lease_version);
        Ok(attempts)
    }

    pub(super) async fn logs(&self, id: JobId) -> Result<Vec<LogLine>, Fault> {
        let link = self.link().await?;
        let (entry, _) = self.known(&link, id).await?;
        let rows = link.query(include_str!("sql/log_list.sql"), &[&entry.seq]).await?;
        let line = |row: &Row| LogLine {
            attempt: AttemptId::of(id, u64::try_from(row.get::<_, i64>(0)).unwrap_or_default()),
            at: rows::time(row.get(1)),
            text: row.get(2),
        };
        Ok(rows.iter().map(line).collect())
    }

    pub(super) async fn explain(&self, id: JobId) -> Result<Explanation, Fault> {
        let link = self.link().await?;
        let (entry, now) = self.known(&link, id).await?;
        let job = &entry.job;
        let queue = job.spec.queue.as_str();
        let most = i64::try_from(EXPLAIN_SCAN_MAX).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/queue_paused.sql"), &[&queue]).await?;
        let paused = rows.first().is_some_and(|row| row.get(0));
        let mut around = Circumstances { paused, ..Circumstances::default() };
        if job.state == State::Pending {
            let rows = link.query(include_str!("sql/edge_waits.sql"), &[&entry.seq, &most, &entry.waits.any]).await?;
            around.waits_for = rows.iter().map(|row| JobId::from_uuid(row.get(0))).collect();
        }
        let priority = i16::from(job.effective_priority().number());
        let parameters: [super::link::Parameter<'_>; 6] =
            [&now.as_micros(), &queue, &priority, &job.position.as_micros(), &entry.seq, &most];
        let rows = link.query(include_str!("sql/ahead.sql"), &parameters).await?;
        around.ahead = rows.first().map_or(0, |row| usize::try_from(row.get::<_, i64>(0)).unwrap_or_default());
        for worker in self.live_workers(&link).await? {
            worker.tell(job, &mut around);
        }
        Ok(Explanation::of(job, &around, now))
    }
}
