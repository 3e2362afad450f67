//! Lists and counts by filter. Which jobs are looked at is chosen so that few are looked at in vain: those of a workflow
//! or a schedule, those that run, wait for others or ended badly, else all of them in order.
//!
//! One call looks at a bounded number of jobs; a page may be short and still have a next one.

use rusqlite::params;

use super::fault::Answer;
use super::rows::Stored;
use super::tx::Tx;
use crate::job::{JobRecord, State};
use crate::store::answer::Page;
use crate::store::request::{Cursor, Filter, ListQuery, PAGE_MAX};

/// How many jobs one page or step looks at; rare matches among millions take several pages.
const SCAN_MAX: usize = 10_000;
/// How many jobs one statement reads.
const CHUNK: usize = 256;

/// Which way a list goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    NewestFirst,
    OldestFirst,
}

/// A job that may match: its sequence, lane and submission.
struct Candidate {
    seq: i64,
    lane: i64,
    created_at: i64,
}

impl Tx<'_> {
    pub(super) fn list(&mut self, query: &ListQuery) -> Answer<Page<JobRecord>> {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let before = place(query.after.as_ref())?.unwrap_or(i64::MAX);
        let (items, next) = self.matching(&query.filter, Way::NewestFirst, before, limit)?;
        Ok(Page { items: items.into_iter().map(|stored| stored.job).collect(), next })
    }

    /// The next jobs that match after a place, and where to go on.
    pub(super) fn matching(
        &mut self,
        filter: &Filter,
        way: Way,
        from: i64,
        limit: usize,
    ) -> Answer<(Vec<Stored>, Option<Cursor>)> {
        let mut found = Vec::new();
        let (mut from, mut scanned) = (from, 0);
        loop {
            let chunk = self.candidates(filter, way, from)?;
            let last_chunk = chunk.len() < CHUNK;
            for candidate in chunk {
                from = candidate.seq;
                scanned += 1;
                if let Some(stored) = self.matched(filter, &candidate)? {
                    found.push(stored);
                }
                if found.len() == limit || scanned == SCAN_MAX {
                    return Ok((found, Some(Cursor(from.to_string()))));
                }
            }
            if last_chunk {
                return Ok((found, None));
            }
        }
    }

    fn matched(&mut self, filter: &Filter, candidate: &Candidate) -> Answer<Option<Stored>> {
        let (queue, job_type) = self.names_of(candidate.lane)?;
        let wanted = filter.queue.as_ref().is_none_or(|wanted| *wanted == queue)
            && filter.job_type.as_ref().is_none_or(|wanted| *wanted == job_type)
            && filter.created_from.is_none_or(|from| candidate.created_at >= from.as_micros())
            && filter.created_before.is_none_or(|before| candidate.created_at < before.as_micros());
        if !wanted {
            return Ok(None);
        }
        Ok(self.load(candidate.seq)?.filter(|stored| filter.matches(&stored.job)))
    }

    fn candidates(&self, filter: &Filter, way: Way, from: i64) -> Answer<Vec<Candidate>> {
        let few = i64::try_from(CHUNK).unwrap_or(i64::MAX);
        let newest = way == Way::NewestFirst;
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
        let rare = |state: &State| {
            matches!(state, State::Pending | State::Running | State::Failed | State::DeadLetter | State::Cancelled)
        };
        if filter.states.is_empty() || !filter.states.iter().all(rare) {
            let sql = match newest {
                true => include_str!("sql/list_newest.sql"),
                false => include_str!("sql/list_oldest.sql"),
            };
            return self.read_candidates(sql, params![from, few]);
        }
        let mut states = filter.states.clone();
        states.sort();
        states.dedup();
        let mut candidates = Vec::new();
        for state in states {
            candidates.extend(self.candidates_in(state, newest, from, few)?);
        }
        candidates.sort_by_key(|candidate| if newest { -candidate.seq } else { candidate.seq });
        candidates.truncate(CHUNK);
        Ok(candidates)
    }

    fn candidates_in(&self, state: State, newest: bool, from: i64, few: i64) -> Answer<Vec<Candidate>> {
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
            (ended, true) => {
                self.read_candidates(include_str!("sql/list_newest_bad.sql"), params![from, few, ended.number()])
            }
            (ended, false) => {
                self.read_candidates(include_str!("sql/list_oldest_bad.sql"), params![from, few, ended.number()])
            }
        }
    }

    fn read_candidates(&self, sql: &str, parameters: &[&dyn rusqlite::ToSql]) -> Answer<Vec<Candidate>> {
        let mut statement = self.statement(sql)?;
        let rows = statement.query_map(parameters, |row| {
            Ok(Candidate { seq: row.get(0)?, lane: row.get(1)?, created_at: row.get(2)? })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// How many jobs match, counted no further than `cap`; from the lanes' counts where they suffice.
    pub(super) fn count_matching(&mut self, filter: &Filter, cap: u64) -> Answer<u64> {
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
            return Ok(sum.min(cap));
        }
        let (mut count, mut from) = (0, 0);
        while count < cap {
            let limit = usize::try_from(cap - count).unwrap_or(usize::MAX).min(PAGE_MAX);
            let (found, next) = self.matching(filter, Way::OldestFirst, from, limit)?;
            count += found.len() as u64;
            match place(next.as_ref())? {
                Some(place) => from = place,
                None => break,
            }
        }
        Ok(count)
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
