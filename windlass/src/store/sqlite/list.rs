//! Lists and counts by filter. Which jobs are looked at is chosen so that few are looked at in vain: those of a workflow
//! or a schedule, those with a tag or a correlation id, those that run, wait for others or ended badly, else all of them in order.
//!
//! One call looks at a bounded number of jobs; a page may be short and still have a next one.

use std::collections::HashMap;

use rusqlite::params;

use super::fault::Answer;
use super::job_rows::Entry;
use super::transaction::Transaction;
use crate::job::{JobId, JobRecord, State};
use crate::store::answer::{Counted, Page};
use crate::store::filter::{may_be_in_json, within};
use crate::store::request::{Cursor, Filter, LOOKED_MAX, ListQuery, Order, PAGE_MAX};

/// How many jobs one statement reads.
const CHUNK: usize = 256;

/// Which way a list goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    NewestFirst,
    OldestFirst,
}

/// Jobs that match, where to go on, and how many were looked at to find them.
pub(super) struct Matching {
    pub(super) found: Vec<Entry>,
    pub(super) next: Option<Cursor>,
    pub(super) looked: usize,
}

/// A job that may match: its sequence, lane and submission.
struct Candidate {
    seq: i64,
    lane: i64,
    created_at: i64,
}

impl Transaction<'_> {
    pub(super) fn list(&mut self, query: &ListQuery) -> Answer<Page<JobRecord>> {
        if query.order != Order::Newest {
            return self.list_in_order(query);
        }
        let limit = query.limit.clamp(1, PAGE_MAX);
        let before = place(query.after.as_ref())?.unwrap_or(i64::MAX);
        let looked_max = query.looked_max.clamp(1, LOOKED_MAX);
        let Matching { found, next, looked } =
            self.matching(&query.filter, Way::NewestFirst, before, limit, looked_max)?;
        Ok(Page { items: found.into_iter().map(|entry| entry.job).collect(), next, looked })
    }

    /// The next jobs that match after a place, and where to go on.
    pub(super) fn matching(
        &mut self,
        filter: &Filter,
        way: Way,
        from: i64,
        limit: usize,
        looked_max: usize,
    ) -> Answer<Matching> {
        let mut found = Vec::new();
        let mut looked = 0;
        let next = self.scan(filter, way, from, |entry| {
            looked += 1;
            found.extend(entry);
            found.len() < limit && looked < looked_max
        })?;
        Ok(Matching { found, next: next.map(|seq| Cursor(seq.to_string())), looked })
    }

    /// Looks at jobs after a place, one after the other, until `each` has had enough; gives where to go on. What matches is
    /// handed to it, what does not is `None`.
    fn scan(
        &mut self,
        filter: &Filter,
        way: Way,
        mut from: i64,
        mut each: impl FnMut(Option<Entry>) -> bool,
    ) -> Answer<Option<i64>> {
        let mut lanes = HashMap::new();
        loop {
            let chunk = self.candidates(filter, way, from)?;
            let last_chunk = chunk.len() < CHUNK;
            for candidate in chunk {
                from = candidate.seq;
                let is_in = match lanes.get(&candidate.lane) {
                    Some(is_in) => *is_in,
                    None => *lanes.entry(candidate.lane).or_insert(self.is_in(filter, candidate.lane)?),
                };
                if !each(if is_in { self.matched(filter, &candidate)? } else { None }) {
                    return Ok(Some(from));
                }
            }
            if last_chunk {
                return Ok(None);
            }
        }
    }

    /// Whether the jobs of a lane have the queue and the type that are asked for.
    fn is_in(&mut self, filter: &Filter, lane: i64) -> Answer<bool> {
        let (queue, job_type) = self.names_of(lane)?;
        Ok(filter.queue.as_ref().is_none_or(|wanted| *wanted == queue)
            && filter.job_type.as_ref().is_none_or(|wanted| *wanted == job_type))
    }

    fn matched(&mut self, filter: &Filter, candidate: &Candidate) -> Answer<Option<Entry>> {
        let submitted = filter.created_from.is_none_or(|from| candidate.created_at >= from.as_micros())
            && filter.created_before.is_none_or(|before| candidate.created_at < before.as_micros());
        if !submitted || !self.may_hold(filter, candidate.seq)? {
            return Ok(None);
        }
        Ok(self.load(candidate.seq)?.filter(|entry| filter.matches(&entry.job)))
    }

    /// Whether a job may have the text that is asked for: only then is it read whole.
    pub(super) fn may_hold(&self, filter: &Filter, seq: i64) -> Answer<bool> {
        let Some(text) = filter.text.as_deref() else { return Ok(true) };
        let mut statement = self.statement(include_str!("sql/get_text.sql"))?;
        let mut rows = statement.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        // What cannot be read is told with the job.
        let in_json = |column: &str| -> rusqlite::Result<bool> {
            let json = row.get_ref(column)?.as_str_or_null()?;
            Ok(json.is_some_and(|json| may_be_in_json(json, text)))
        };
        let in_payload = row.get_ref("payload")?.as_bytes().map(|payload| within(payload, text));
        Ok(in_payload.unwrap_or(true) || in_json("options").unwrap_or(true) || in_json("failure").unwrap_or(true))
    }

    fn candidates(&mut self, filter: &Filter, way: Way, from: i64) -> Answer<Vec<Candidate>> {
        let few = i64::try_from(CHUNK).unwrap_or(i64::MAX);
        let newest = way == Way::NewestFirst;
        if let Some(key) = &filter.key {
            return self.keyed(key, way, from);
        }
        if let Some(fingerprint) = filter.fingerprint {
            let sql = match newest {
                true => include_str!("sql/list_newest_fault.sql"),
                false => include_str!("sql/list_oldest_fault.sql"),
            };
            return self.read_candidates(sql, params![from, few, fingerprint.number()]);
        }
        if let Some(workflow) = filter.workflow {
            let bytes = workflow.as_uuid().into_bytes();
            let sql = match newest {
                true => include_str!("sql/list_newest_workflow.sql"),
                false => include_str!("sql/list_oldest_workflow.sql"),
            };
            return self.read_candidates(sql, params![from, few, bytes]);
        }
        if let Some(schedule) = &filter.schedule {
            let sql = match newest {
                true => include_str!("sql/list_newest_schedule.sql"),
                false => include_str!("sql/list_oldest_schedule.sql"),
            };
            return self.read_candidates(sql, params![from, few, schedule]);
        }
        if let Some((name, value)) = filter.mark() {
            let sql = match newest {
                true => include_str!("sql/list_newest_marked.sql"),
                false => include_str!("sql/list_oldest_marked.sql"),
            };
            return self.read_candidates(sql, params![from, few, name, value]);
        }
        let rare = |state: &State| {
            matches!(state, State::Pending | State::Running | State::Failed | State::DeadLetter | State::Cancelled)
        };
        let Some(states) = filter.possible_states().filter(|states| states.iter().all(rare)) else {
            let sql = match newest {
                true => include_str!("sql/list_newest.sql"),
                false => include_str!("sql/list_oldest.sql"),
            };
            return self.read_candidates(sql, params![from, few]);
        };
        let by_submission = filter.created_from.is_some() || filter.created_before.is_some();
        let mut candidates = Vec::new();
        for state in states {
            candidates.extend(self.candidates_in(state, newest, from, few, by_submission)?);
        }
        candidates.sort_by_key(|candidate| if newest { -candidate.seq } else { candidate.seq });
        candidates.truncate(CHUNK);
        Ok(candidates)
    }

    /// The jobs that an idempotency key stands for.
    fn keyed(&mut self, key: &str, way: Way, from: i64) -> Answer<Vec<Candidate>> {
        let mut statement = self.statement(include_str!("sql/list_keyed.sql"))?;
        let ids = statement.query_map([key], |row| row.get::<_, [u8; 16]>(0))?;
        let ids = ids.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut candidates = Vec::new();
        for id in ids {
            let Some(entry) = self.load_id(JobId::from_uuid(uuid::Uuid::from_bytes(id)))? else { continue };
            let beyond = if way == Way::NewestFirst { entry.seq < from } else { entry.seq > from };
            let (seq, lane, created_at) = (entry.seq, entry.lane, entry.job.created_at.as_micros());
            candidates.extend(beyond.then_some(Candidate { seq, lane, created_at }));
        }
        candidates.sort_by_key(|candidate| if way == Way::NewestFirst { -candidate.seq } else { candidate.seq });
        candidates.truncate(CHUNK);
        Ok(candidates)
    }

    /// Jobs in a state that few are in; of those that ended, the time of submission is read only if it is asked for.
    fn candidates_in(
        &self,
        state: State,
        newest: bool,
        from: i64,
        few: i64,
        by_submission: bool,
    ) -> Answer<Vec<Candidate>> {
        match (state, newest) {
            (State::Pending, true) => {
                self.read_candidates(include_str!("sql/list_newest_pending.sql"), params![from, few])
            }
            (State::Pending, false) => {
                self.read_candidates(include_str!("sql/list_oldest_pending.sql"), params![from, few])
            }
            (State::Running, true) => {
                self.read_candidates(include_str!("sql/list_newest_leased.sql"), params![from, few])
            }
            (State::Running, false) => {
                self.read_candidates(include_str!("sql/list_oldest_leased.sql"), params![from, few])
            }
            (ended, newest) => {
                let sql = match newest {
                    true => include_str!("sql/list_newest_unsuccessful.sql"),
                    false => include_str!("sql/list_oldest_unsuccessful.sql"),
                };
                self.read_candidates(sql, params![from, few, ended.number(), by_submission])
            }
        }
    }

    fn read_candidates(&self, sql: &str, parameters: &[&dyn rusqlite::ToSql]) -> Answer<Vec<Candidate>> {
        let mut statement = self.statement(sql)?;
        let rows = statement.query_map(parameters, |row| {
            // A time that cannot be read is told with the job.
            let created_at = row.get("created_at").unwrap_or_default();
            Ok(Candidate { seq: row.get("seq")?, lane: row.get("lane")?, created_at })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// How many jobs match; from the lanes' counts where they suffice.
    pub(super) fn count_matching(&mut self, filter: &Filter, cap: u64, looked_max: u64) -> Answer<Counted> {
        let by_lane = Filter {
            states: filter.states.clone(),
            queue: filter.queue.clone(),
            job_type: filter.job_type.clone(),
            ..Filter::default()
        };
        if *filter == by_lane {
            let wanted = |state: &State| filter.states.is_empty() || filter.states.contains(state);
            let numbers: Vec<usize> =
                State::ALL.into_iter().filter(wanted).map(|state| usize::from(state.number())).collect();
            let lanes = self.lanes()?.into_iter().filter(|lane| {
                filter.queue.as_ref().is_none_or(|queue| queue.as_str() == lane.queue)
                    && filter.job_type.as_ref().is_none_or(|wanted| wanted.as_str() == lane.job_type)
            });
            let sum: u64 = lanes.map(|lane| numbers.iter().map(|number| lane.states[*number]).sum::<u64>()).sum();
            return Ok(Counted::kept(sum, cap));
        }
        let mut counted = Counted::default();
        let more = self.scan(filter, Way::OldestFirst, 0, |entry| {
            counted.looked += 1;
            counted.count += u64::from(entry.is_some());
            counted.count < cap && counted.looked < looked_max
        })?;
        counted.capped = more.is_some() || counted.count >= cap;
        Ok(counted)
    }
}

/// The place that a cursor names.
pub(super) fn place(cursor: Option<&Cursor>) -> Answer<Option<i64>> {
    let parse = |cursor: &Cursor| {
        let number = cursor.0.parse::<u64>().ok().and_then(|number| i64::try_from(number).ok());
        number.ok_or_else(|| cursor.invalid())
    };
    Ok(cursor.map(parse).transpose()?)
}
