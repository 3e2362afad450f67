//! Reading. No statement looks at more rows than a page is worth, whatever the filter.

use std::collections::HashMap;

use super::Inner;
use super::driver_row::Row;
use super::fault::Fault;
use super::job_rows::{self, JobColumns, JobRow};
use super::lanes::Lane;
use super::link::{Link, Parameter};
use super::text;
use super::turns::Caller;
use crate::error::{Error, Result as Answer};
use crate::job::{
    AttemptId, AttemptRecord, Circumstances, EXPLAIN_SCAN_MAX, Explanation, Fingerprint, JobId, JobRecord, LogLine,
    State,
};
use crate::store::answer::{Counted, LOG_LINE_BYTES, LOGS_BYTES_MAX, Page};
use crate::store::filter::is_plain_in_json;
use crate::store::request::{Cursor, Filter, LOOKED_MAX, ListQuery, Order, PAGE_MAX};
use crate::time::Timestamp;

/// How many of them are looked at together at first, and always where their payloads are read.
const CANDIDATES_MIN: usize = 500;
/// How many of them are looked at together at most.
const CANDIDATES_MAX: usize = 4000;
/// How many whole jobs are fetched at once to be held against a filter: their payloads come along.
const FETCH_MAX: usize = 64;

/// The number that a cursor is.
pub(super) fn numbered(cursor: Option<&Cursor>) -> Answer<Option<i64>> {
    let number = |cursor: &Cursor| cursor.0.parse::<u64>().map_err(|_| cursor.invalid());
    let number = cursor.map(number).transpose()?;
    Ok(number.map(|number| i64::try_from(number).unwrap_or(i64::MAX)))
}

/// What a scan found, and where to go on.
pub(super) struct Found {
    pub(super) rows: Vec<JobRow>,
    pub(super) next: Option<i64>,
    looked: usize,
}

/// Where a scan ends: after `found` jobs that match, or after `looked` jobs that it looked at.
#[derive(Clone, Copy)]
pub(super) struct Most {
    pub(super) found: usize,
    pub(super) looked: usize,
}

/// A job that may match, as far as its row says.
struct Candidate {
    seq: i64,
    lane: Lane,
    created_at: Timestamp,
}

/// A job whose lane, time of submission and labels match, as far as the statements can tell.
#[derive(Clone, Copy)]
struct Likely {
    seq: i64,
    /// That its labels do is certain.
    sure: bool,
}

/// Jobs that match, beyond a sequence: the oldest first, or the newest.
pub(super) async fn scan(
    link: &Link<'_>,
    store: &Inner,
    filter: &Filter,
    mut from: i64,
    most: Most,
    oldest_first: bool,
    now: Timestamp,
) -> Result<Found, Fault> {
    let mut rows: Vec<JobRow> = Vec::new();
    let (limit, mut looked, mut together) = (most.found, 0, CANDIDATES_MIN);
    while looked < most.looked {
        let few = together.min(most.looked - looked);
        together = more_together(together, filter);
        let candidates = candidates(link, store, filter, from, few, oldest_first).await?;
        let last = candidates.last().map(|candidate| candidate.seq);
        let was_last = candidates.len() < few;
        let places: Vec<i64> = candidates.iter().map(|candidate| candidate.seq).collect();
        let likely = likely(link, store, filter, candidates).await?;
        // A page of few jobs does not fetch many.
        for some in likely.chunks(limit.clamp(1, FETCH_MAX)) {
            let some: Vec<i64> = some.iter().map(|likely| likely.seq).collect();
            let read = link.query(include_str!("sql/get_job.sql"), &[&some]).await?;
            let mut found = store.job_rows(link, &read, now).await?;
            found.retain(|row| filter.matches(&row.entry.job));
            found.sort_by_key(|row| if oldest_first { row.entry.sequence } else { -row.entry.sequence });
            rows.extend(found.into_iter().take(limit - rows.len()));
            if rows.len() == limit {
                let next = rows.last().map(|row| row.entry.sequence);
                looked += places.iter().position(|place| Some(*place) == next).map_or(places.len(), |place| place + 1);
                return Ok(Found { rows, next, looked });
            }
        }
        looked += places.len();
        match last.filter(|_| !was_last) {
            None => return Ok(Found { rows, next: None, looked }),
            Some(last) => from = last,
        }
    }
    Ok(Found { rows, next: Some(from), looked })
}

/// How many candidates the next round trip asks for, after one that brought too few matches: twice as many, because jobs that are rare
/// would otherwise cost a round trip for every few hundred candidates.
fn more_together(before: usize, filter: &Filter) -> usize {
    if filter.text.is_some() { before } else { CANDIDATES_MAX.min(2 * before) }
}

/// The next `most` jobs that may match, by the index that fits the filter best.
async fn candidates(
    link: &Link<'_>,
    store: &Inner,
    filter: &Filter,
    from: i64,
    most: usize,
    oldest_first: bool,
) -> Result<Vec<Candidate>, Fault> {
    if let Some(key) = &filter.key {
        return keyed(link, store, key, from, oldest_first).await;
    }
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let workflow = filter.workflow.map(|id| id.as_uuid());
    let fingerprint = filter.fingerprint.map(Fingerprint::number);
    let mark = filter.mark();
    let possible = filter.possible_states();
    let states: Vec<i16> = possible.iter().flatten().map(|state| i16::from(state.number())).collect();
    let by_submission = filter.created_from.is_some() || filter.created_before.is_some();
    let mut parameters: Vec<Parameter<'_>> = vec![&from, &most];
    let statement = if let Some(fingerprint) = &fingerprint {
        parameters.push(fingerprint);
        match oldest_first {
            true => include_str!("sql/list_oldest_fault.sql"),
            false => include_str!("sql/list_newest_fault.sql"),
        }
    } else if let Some(workflow) = &workflow {
        parameters.push(workflow);
        match oldest_first {
            true => include_str!("sql/list_oldest_workflow.sql"),
            false => include_str!("sql/list_newest_workflow.sql"),
        }
    } else if let Some(schedule) = &filter.schedule {
        // No text of PostgreSQL can hold NUL, and no schedule has it in its name.
        if schedule.contains('\0') {
            return Ok(Vec::new());
        }
        parameters.push(schedule);
        match oldest_first {
            true => include_str!("sql/list_oldest_schedule.sql"),
            false => include_str!("sql/list_newest_schedule.sql"),
        }
    } else if let Some((name, value)) = &mark {
        // No text of PostgreSQL can hold NUL, and no tag or correlation id has it.
        if name.contains('\0') || value.contains('\0') {
            return Ok(Vec::new());
        }
        parameters.push(name);
        parameters.push(value);
        match oldest_first {
            true => include_str!("sql/list_oldest_marked.sql"),
            false => include_str!("sql/list_newest_marked.sql"),
        }
    } else {
        let (statement, by_state) = listing(possible.as_deref(), oldest_first);
        if by_state {
            parameters.push(&states);
            parameters.push(&by_submission);
        }
        statement
    };
    let rows = link.query(statement, &parameters).await?;
    Ok(rows.iter().map(candidate).collect())
}

/// The statement that lists jobs in one of these states, or in any, and whether it takes the states.
fn listing(possible: Option<&[State]>, oldest_first: bool) -> (&'static str, bool) {
    let is = |wanted: fn(State) -> bool| possible.is_some_and(|states| states.iter().all(|state| wanted(*state)));
    let (newest, oldest, by_state) = if is(|state| state.is_terminal() && state != State::Completed) {
        let newest = include_str!("sql/list_newest_unsuccessful.sql");
        (newest, include_str!("sql/list_oldest_unsuccessful.sql"), true)
    } else if is(|state| state == State::Running) {
        (include_str!("sql/list_newest_leased.sql"), include_str!("sql/list_oldest_leased.sql"), false)
    } else if is(|state| state == State::Pending) {
        (include_str!("sql/list_newest_pending.sql"), include_str!("sql/list_oldest_pending.sql"), false)
    } else if is(|state| !state.is_terminal()) {
        (include_str!("sql/list_newest_unfinished.sql"), include_str!("sql/list_oldest_unfinished.sql"), false)
    } else {
        (include_str!("sql/list_newest.sql"), include_str!("sql/list_oldest.sql"), false)
    };
    (if oldest_first { oldest } else { newest }, by_state)
}

/// The jobs that an idempotency key stands for: one for each scope at most.
async fn keyed(
    link: &Link<'_>,
    store: &Inner,
    key: &str,
    from: i64,
    oldest_first: bool,
) -> Result<Vec<Candidate>, Fault> {
    // No text of PostgreSQL can hold NUL, and neither can a key.
    if key.contains('\0') {
        return Ok(Vec::new());
    }
    let rows = link.query(include_str!("sql/list_keyed.sql"), &[&key]).await?;
    let ids: Vec<uuid::Uuid> = rows.iter().map(|row| row.get("job")).collect();
    let beyond = |seq: &i64| if oldest_first { *seq > from } else { *seq < from };
    let seqs: Vec<i64> = store.sequences(&ids).into_iter().filter(beyond).collect();
    let rows = link.query(include_str!("sql/get_job.sql"), &[&seqs]).await?;
    let mut found: Vec<Candidate> = rows.iter().map(candidate).collect();
    found.sort_by_key(|candidate| if oldest_first { candidate.seq } else { -candidate.seq });
    Ok(found)
}

fn candidate(row: &Row) -> Candidate {
    Candidate { seq: row.get("seq"), lane: row.get("lane"), created_at: job_rows::time(row.get("created_at")) }
}

/// Those candidates whose queue, type, time of submission and labels match.
async fn likely(
    link: &Link<'_>,
    store: &Inner,
    filter: &Filter,
    candidates: Vec<Candidate>,
) -> Result<Vec<Likely>, Fault> {
    let lanes: Vec<Lane> = candidates.iter().map(|candidate| candidate.lane).collect();
    store.lanes.learn_lanes(link, &lanes).await?;
    let mut wanted: HashMap<Lane, bool> = HashMap::new();
    for lane in lanes {
        wanted.entry(lane).or_insert_with(|| {
            store.lanes.name(lane).is_some_and(|(queue, job_type)| {
                filter.queue.as_ref().is_none_or(|wanted| *wanted == queue)
                    && filter.job_type.as_ref().is_none_or(|wanted| *wanted == job_type)
            })
        });
    }
    let fits = |candidate: &Candidate| {
        wanted.get(&candidate.lane).is_some_and(|wanted| *wanted)
            && filter.created_from.is_none_or(|from| candidate.created_at >= from)
            && filter.created_before.is_none_or(|before| candidate.created_at < before)
    };
    let seqs = candidates.iter().filter(|candidate| fits(candidate)).map(|candidate| candidate.seq).collect();
    let mut likely = labelled(link, filter, seqs).await?;
    if filter.text.is_some() {
        let seqs: Vec<i64> = likely.iter().map(|likely| likely.seq).collect();
        let holding = text::holding(link, filter, &seqs).await?;
        likely.retain(|likely| holding.as_ref().is_none_or(|holding| holding.contains(&likely.seq)));
    }
    Ok(likely)
}

/// Those of these jobs that have the tags, the correlation id and the failure's code that are asked for, in order.
async fn labelled(link: &Link<'_>, filter: &Filter, seqs: Vec<i64>) -> Result<Vec<Likely>, Fault> {
    let by_other = filter.key.is_some() || filter.fingerprint.is_some() || filter.workflow.is_some();
    // What the jobs were found by need not be looked at again.
    let (correlation_id, labels) = filter.labels(!by_other && filter.schedule.is_none());
    let asked: Vec<&str> = [correlation_id, filter.code.as_deref()].into_iter().flatten().collect();
    if (asked.is_empty() && labels.is_empty()) || seqs.is_empty() {
        return Ok(seqs.into_iter().map(|seq| Likely { seq, sure: true }).collect());
    }
    // No text of PostgreSQL can hold NUL.
    let tags = labels.iter().flat_map(|(key, value)| [*key, *value]);
    if asked.into_iter().chain(tags).any(|text| text.contains('\0')) {
        return Ok(seqs.into_iter().map(|seq| Likely { seq, sure: false }).collect());
    }
    let (keys, values): (Vec<&str>, Vec<&str>) = labels.into_iter().unzip();
    let code = filter.code.as_deref();
    let plain_code = code.filter(|code| is_plain_in_json(code));
    let sql = include_str!("sql/list_labelled.sql");
    let rows = link.query(sql, &[&seqs, &keys, &values, &correlation_id, &code, &plain_code]).await?;
    let doubtful: HashMap<i64, bool> = rows.iter().map(|row| (row.get("seq"), row.get("doubtful"))).collect();
    let matching = seqs.into_iter().filter_map(|seq| Some((seq, *doubtful.get(&seq)?)));
    Ok(matching.map(|(seq, doubtful)| Likely { seq, sure: !doubtful }).collect())
}

impl Inner {
    /// Rows of the view `record` as jobs.
    pub(super) async fn job_rows(&self, link: &Link<'_>, rows: &[Row], now: Timestamp) -> Result<Vec<JobRow>, Fault> {
        let lanes: Vec<i32> = rows.iter().map(|row| row.get("lane")).collect();
        self.lanes.learn_lanes(link, &lanes).await?;
        let Some(columns) = rows.first().map(JobColumns::of) else { return Ok(Vec::new()) };
        rows.iter().map(|row| job_rows::job_row(row, &columns, self, now)).collect()
    }

    async fn find_rows(&self, link: &Link<'_>, ids: &[JobId]) -> Result<(Vec<JobRow>, Timestamp), Fault> {
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        let seqs = self.sequences(&ids);
        let rows = link.query(include_str!("sql/find_jobs.sql"), &[&self.given_time(), &seqs, &ids]).await?;
        let now = rows.first().map_or(Timestamp::EPOCH, |row| job_rows::time(row.get("now")));
        Ok((self.job_rows(link, &rows, now).await?, now))
    }

    pub(super) async fn find(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let (rows, _) = self.find_rows(&link, ids).await?;
        let found: HashMap<JobId, JobRecord> = rows.into_iter().map(|row| (row.entry.job.id, row.entry.job)).collect();
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    async fn known(&self, link: &Link<'_>, id: JobId) -> Result<(JobRow, Timestamp), Fault> {
        let (mut rows, now) = self.find_rows(link, &[id]).await?;
        let row = rows.pop().ok_or_else(|| Error::no_such_job(id))?;
        Ok((row, now))
    }

    pub(super) async fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>, Fault> {
        if query.order != Order::Newest {
            return self.list_in_order(query).await;
        }
        let limit = query.limit.clamp(1, PAGE_MAX);
        let before = numbered(query.after.as_ref())?.unwrap_or(i64::MAX);
        let link = self.link(Caller::Reader).await?;
        let now = self.read_clock(&link).await?;
        let most = Most { found: limit, looked: query.looked_max.clamp(1, LOOKED_MAX) };
        let found = scan(&link, self, &query.filter, before, most, false, now).await?;
        let next = found.next.map(|seq| Cursor(seq.to_string()));
        let items = found.rows.into_iter().map(|row| row.entry.job).collect();
        Ok(Page { items, next, looked: found.looked })
    }

    pub(super) async fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Result<Counted, Fault> {
        let by_lane = Filter {
            states: filter.states.clone(),
            queue: filter.queue.clone(),
            job_type: filter.job_type.clone(),
            ..Filter::default()
        };
        if *filter == by_lane {
            return Ok(Counted::kept(self.count_lanes(filter).await?, cap));
        }
        let link = self.link(Caller::Reader).await?;
        let now = self.read_clock(&link).await?;
        let mut counted = Counted::default();
        let (mut from, mut together) = (0, CANDIDATES_MIN);
        while counted.count < cap && counted.looked < looked_max {
            let most = usize::try_from(looked_max - counted.looked).unwrap_or(usize::MAX).min(together);
            together = more_together(together, filter);
            let candidates = candidates(&link, self, filter, from, most, true).await?;
            counted.looked += candidates.len() as u64;
            let last = candidates.last().map(|candidate| candidate.seq).filter(|_| candidates.len() == most);
            let likely = likely(&link, self, filter, candidates).await?;
            counted.count += self.count_among(&link, filter, &likely, now).await?;
            let Some(last) = last else {
                return Ok(Counted { count: counted.count.min(cap), capped: counted.count >= cap, ..counted });
            };
            from = last;
        }
        Ok(Counted { count: counted.count.min(cap), capped: true, ..counted })
    }

    /// How many of these jobs match. Whole jobs are fetched only for what the statements have not looked at.
    async fn count_among(
        &self,
        link: &Link<'_>,
        filter: &Filter,
        likely: &[Likely],
        now: Timestamp,
    ) -> Result<u64, Fault> {
        let both = filter.workflow.is_some() && filter.schedule.is_some();
        // What the statements look at; everything else that a filter may ask for needs the whole job.
        let looked_at = Filter {
            queue: filter.queue.clone(),
            job_type: filter.job_type.clone(),
            tags: filter.tags.clone(),
            workflow: filter.workflow,
            schedule: filter.schedule.clone(),
            correlation_id: filter.correlation_id.clone(),
            code: filter.code.clone(),
            created_from: filter.created_from,
            created_before: filter.created_before,
            ..Filter::default()
        };
        let asks_more = *filter != looked_at || both;
        let (open, sure): (Vec<Likely>, Vec<Likely>) = likely.iter().partition(|likely| asks_more || !likely.sure);
        let open: Vec<i64> = open.iter().map(|likely| likely.seq).collect();
        let mut count = sure.len() as u64;
        for some in open.chunks(FETCH_MAX) {
            let rows = link.query(include_str!("sql/get_job.sql"), &[&some.to_vec()]).await?;
            let found = self.job_rows(link, &rows, now).await?;
            count += found.iter().filter(|row| filter.matches(&row.entry.job)).count() as u64;
        }
        Ok(count)
    }

    pub(super) async fn attempts(&self, id: JobId) -> Result<Vec<AttemptRecord>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let (job, _) = self.known(&link, id).await?;
        let rows = link.query(include_str!("sql/list_attempts.sql"), &[&job.entry.sequence]).await?;
        let closed: Result<Vec<_>, Fault> = rows.iter().map(|row| job_rows::attempt(row, id)).collect();
        let mut attempts = closed?;
        attempts.extend(job.last_attempt());
        attempts.extend(job.entry.job.open_attempt());
        // The job may have moved on between the two statements: an attempt that is there as closed is not open.
        attempts.dedup_by_key(|attempt| attempt.lease_version);
        Ok(attempts)
    }

    pub(super) async fn logs(&self, id: JobId) -> Result<Vec<LogLine>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let (job, _) = self.known(&link, id).await?;
        let (most, each) = (LOGS_BYTES_MAX as i64, LOG_LINE_BYTES as i64);
        let rows = link.query(include_str!("sql/list_logs.sql"), &[&job.entry.sequence, &most, &each]).await?;
        let line = |row: &Row| LogLine {
            attempt: AttemptId::of(id, u64::try_from(row.get::<_, i64>("version")).unwrap_or_default()),
            at: job_rows::time(row.get("at")),
            text: row.get("text"),
        };
        Ok(rows.iter().map(line).collect())
    }

    pub(super) async fn explain(&self, id: JobId) -> Result<Explanation, Fault> {
        let link = self.link(Caller::Reader).await?;
        let (JobRow { entry, .. }, now) = self.known(&link, id).await?;
        let job = &entry.job;
        let queue = job.spec.queue.as_str();
        let most = i64::try_from(EXPLAIN_SCAN_MAX).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/is_paused.sql"), &[&queue]).await?;
        let paused = rows.first().is_some_and(|row| row.get("paused"));
        let mut around = Circumstances { paused, ..Circumstances::default() };
        if job.state == State::Pending {
            let rows = link
                .query(
                    include_str!("sql/list_unfinished_dependencies.sql"),
                    &[&entry.sequence, &most, &entry.waits.any],
                )
                .await?;
            around.waits_for = rows.iter().map(|row| JobId::from_uuid(row.get("id"))).collect();
        }
        let priority = i16::from(job.effective_priority().number());
        let parameters: [Parameter<'_>; 6] =
            [&now.as_micros(), &queue, &priority, &job.position.as_micros(), &entry.sequence, &most];
        let rows = link.query(include_str!("sql/count_ahead.sql"), &parameters).await?;
        around.ahead = rows.first().map_or(0, |row| usize::try_from(row.get::<_, i64>("ahead")).unwrap_or_default());
        around.ahead_by_key = self.ahead_by_key(&link, &entry, now).await?;
        around.blocked = self.blocked(&link, job, now).await?;
        for worker in self.live_workers(&link).await? {
            worker.tell(job, &mut around);
        }
        Ok(Explanation::of(job, &around, now))
    }
}
