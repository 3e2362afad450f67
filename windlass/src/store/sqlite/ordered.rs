//! Lists in other orders than by submission: by end, by when they are due, and as they will be claimed. Each goes by one index.

use super::columns::kind_state;
use super::fault::Answer;
use super::transaction::Transaction;
use crate::job::{JobRecord, Priority, State};
use crate::store::answer::Page;
use crate::store::request::{Cursor, Filter, LOOKED_MAX, ListQuery, Order, PAGE_MAX};

/// How many jobs one statement reads.
const CHUNK: usize = 256;

/// A job at a place of an order: the numbers of its cursor, its sequence, and what the index's row says of it.
struct Placed {
    place: Vec<i64>,
    seq: i64,
    lane: Option<i64>,
    state: Option<State>,
}

impl Transaction<'_> {
    pub(super) fn list_in_order(&mut self, query: &ListQuery) -> Answer<Page<JobRecord>> {
        query.order.check(&query.filter)?;
        let (limit, looked_max) = (query.limit.clamp(1, PAGE_MAX), query.looked_max.clamp(1, LOOKED_MAX));
        let (mut items, mut looked, mut after) = (Vec::new(), 0, query.after.clone());
        loop {
            let mut chunk = self.placed(query, after.as_ref())?;
            let is_last = chunk.len() < CHUNK;
            for placed in &chunk {
                looked += 1;
                if self.may_match(&query.filter, placed)? {
                    let found = self.load(placed.seq)?.filter(|entry| query.filter.matches(&entry.job));
                    items.extend(found.map(|entry| entry.job));
                }
                if items.len() >= limit || looked >= looked_max {
                    return Ok(Page { items, next: Some(Cursor::of_numbers(&placed.place)), looked });
                }
            }
            match chunk.pop().filter(|_| !is_last) {
                None => return Ok(Page { items, next: None, looked }),
                Some(last) => after = Some(Cursor::of_numbers(&last.place)),
            }
        }
    }

    /// Whether a job may be asked for: only then is it read whole.
    fn may_match(&mut self, filter: &Filter, placed: &Placed) -> Answer<bool> {
        let stands = |state: State| filter.states.is_empty() || filter.states.contains(&state);
        if !placed.state.is_none_or(stands) || !self.may_hold(filter, placed.seq)? {
            return Ok(false);
        }
        if filter.queue.is_none() && filter.job_type.is_none() {
            return Ok(true);
        }
        let Some(lane) = placed.lane else { return Ok(true) };
        let (queue, job_type) = self.names_of(lane)?;
        Ok(filter.queue.as_ref().is_none_or(|wanted| *wanted == queue)
            && filter.job_type.as_ref().is_none_or(|wanted| *wanted == job_type))
    }

    /// The next jobs of an order.
    fn placed(&self, query: &ListQuery, after: Option<&Cursor>) -> Answer<Vec<Placed>> {
        let few = i64::try_from(CHUNK).unwrap_or(i64::MAX);
        match query.order {
            Order::Ended | Order::Newest => {
                let [tick] = after.map_or(Ok([i64::MAX]), Cursor::numbers)?;
                let state = query.filter.states.first().map_or(0, |state| i64::from(state.number()));
                let mut statement = self.statement(include_str!("sql/list_ended.sql"))?;
                let rows = statement.query_map([state, tick, few], |row| {
                    let (seq, lane) = (row.get("seq")?, Some(row.get("lane")?));
                    Ok(Placed { place: vec![row.get("place")?], seq, lane, state: None })
                })?;
                Ok(rows.collect::<rusqlite::Result<_>>()?)
            }
            Order::Due => {
                let [at, lane, priority, seq] = after.map_or(Ok([0; 4]), Cursor::numbers)?;
                let mut statement = self.statement(include_str!("sql/list_waiting.sql"))?;
                let rows = statement.query_map([self.now.as_micros(), at, lane, priority, seq, few], |row| {
                    let place = vec![row.get("at")?, row.get("lane")?, row.get("priority")?, row.get("seq")?];
                    // A kind that cannot be read is told with the job.
                    let state = row.get("kind").ok().and_then(|kind| kind_state(kind).ok());
                    Ok(Placed { place, seq: row.get("seq")?, lane: Some(row.get("lane")?), state })
                })?;
                Ok(rows.collect::<rusqlite::Result<_>>()?)
            }
            Order::Claim => self.claimable(query, after, few),
        }
    }

    /// The next jobs of a queue in claim order: priority by priority, the lanes of the queue together.
    fn claimable(&self, query: &ListQuery, after: Option<&Cursor>, few: i64) -> Answer<Vec<Placed>> {
        let [from, at, seq] = after.map_or(Ok([0; 3]), Cursor::numbers)?;
        let queue = query.filter.queue.as_ref().map(|queue| queue.as_str().to_owned()).unwrap_or_default();
        let lanes: Vec<i64> =
            self.lanes()?.into_iter().filter(|lane| lane.queue == queue).map(|lane| lane.lane).collect();
        let mut placed: Vec<Placed> = Vec::new();
        for priority in
            Priority::ALL.into_iter().map(|priority| i64::from(priority.number())).filter(|own| *own >= from)
        {
            let place = if priority == from { (at, seq) } else { (0, 0) };
            let mut level: Vec<(i64, i64)> = Vec::new();
            for lane in &lanes {
                let mut statement = self.statement(include_str!("sql/list_next.sql"))?;
                let bounds = [*lane, priority, place.0, place.1, self.now.as_micros(), few];
                let rows = statement.query_map(bounds, |row| Ok((row.get("at")?, row.get("seq")?)))?;
                level.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
            }
            level.sort_unstable();
            placed.extend(level.into_iter().map(|(at, seq)| {
                let place = vec![priority, at, seq];
                Placed { place, seq, lane: None, state: None }
            }));
            if placed.len() >= CHUNK {
                placed.truncate(CHUNK);
                break;
            }
        }
        Ok(placed)
    }
}
