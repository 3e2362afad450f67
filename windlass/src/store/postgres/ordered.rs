//! Lists in other orders than by submission: by end, by when they are due, and as they will be claimed. Each goes by one index.

use std::collections::HashMap;

use super::Inner;
use super::driver_row::Row;
use super::fault::Fault;
use super::lanes::{Lane, Lanes};
use super::link::{Link, Parameter};
use super::text;
use super::turns::Caller;
use crate::job::{JobRecord, JobType, QueueName, State};
use crate::store::answer::Page;
use crate::store::request::{Cursor, Filter, LOOKED_MAX, ListQuery, Order, PAGE_MAX};
use crate::time::Timestamp;

/// How many jobs are looked at together at first, and always where their payloads are read.
const CHUNK: usize = 500;
/// How many jobs are looked at together at most.
const CHUNK_MAX: usize = 4000;
/// How many whole jobs are fetched at once: their payloads come along.
const FETCH_MAX: usize = 64;

/// A job at a place of an order: the numbers of its cursor, its sequence, and what the index's row says of it.
struct Placed {
    place: Vec<i64>,
    seq: i64,
    /// A strand, which is negative, is no lane.
    lane: Option<Lane>,
    state: Option<i16>,
}

impl Placed {
    /// Whether it may be asked for: only then is the whole job fetched.
    fn may_match(&self, filter: &Filter, lanes: &Lanes) -> bool {
        let state = self.state.and_then(|state| u8::try_from(state).ok()).and_then(State::from_number);
        let named = self.lane.filter(|lane| *lane > 0).and_then(|lane| lanes.name(lane));
        let is_named = |queue: &QueueName, job_type: &JobType| {
            filter.queue.as_ref().is_none_or(|wanted| wanted == queue)
                && filter.job_type.as_ref().is_none_or(|wanted| wanted == job_type)
        };
        state.is_none_or(|state| filter.states.is_empty() || filter.states.contains(&state))
            && named.is_none_or(|(queue, job_type)| is_named(&queue, &job_type))
    }
}

/// The first of these jobs, up to as many of which `few` may be asked for: each with whether it may.
fn first(chunk: &[Placed], few: usize, may_match: impl Fn(&Placed) -> bool) -> Vec<(&Placed, bool)> {
    let mut open = 0;
    let mut some = Vec::new();
    for placed in chunk {
        let may = may_match(placed);
        open += usize::from(may);
        some.push((placed, may));
        if open == few {
            break;
        }
    }
    some
}

impl Inner {
    pub(super) async fn list_in_order(&self, query: &ListQuery) -> Result<Page<JobRecord>, Fault> {
        query.order.check(&query.filter)?;
        let (limit, looked_max) = (query.limit.clamp(1, PAGE_MAX), query.looked_max.clamp(1, LOOKED_MAX));
        let link = self.link(Caller::Reader).await?;
        let now = self.read_clock(&link).await?;
        let (mut items, mut looked, mut after) = (Vec::new(), 0, query.after.clone());
        let mut together = CHUNK;
        loop {
            let chunk = placed(&link, query, after.as_ref(), together, now).await?;
            let is_last = chunk.len() < together;
            // What is rare would else cost a round trip for every few hundred.
            together = if query.filter.text.is_some() { CHUNK } else { CHUNK_MAX.min(2 * together) };
            let lanes: Vec<Lane> = chunk.iter().filter_map(|placed| placed.lane).filter(|lane| *lane > 0).collect();
            self.lanes.learn_lanes(&link, &lanes).await?;
            let seqs: Vec<i64> = chunk.iter().map(|placed| placed.seq).collect();
            let holding = text::holding(&link, &query.filter, &seqs).await?;
            let may_hold = |seq| holding.as_ref().is_none_or(|holding| holding.contains(&seq));
            let mut rest = chunk.as_slice();
            while !rest.is_empty() {
                // A page of few jobs does not fetch many.
                let some = first(rest, limit.min(FETCH_MAX), |placed| {
                    may_hold(placed.seq) && placed.may_match(&query.filter, &self.lanes)
                });
                let mut jobs = self.whole(&link, &some, now).await?;
                for (Placed { place, seq, .. }, _) in &some {
                    looked += 1;
                    items.extend(jobs.remove(seq).filter(|job| query.filter.matches(job)));
                    if items.len() >= limit || looked >= looked_max {
                        return Ok(Page { items, next: Some(Cursor::of_numbers(place)), looked });
                    }
                }
                rest = &rest[some.len()..];
            }
            match chunk.last().filter(|_| !is_last) {
                None => return Ok(Page { items, next: None, looked }),
                Some(last) => after = Some(Cursor::of_numbers(&last.place)),
            }
        }
    }

    /// Those of these jobs that may be asked for, whole, by sequence.
    async fn whole(
        &self,
        link: &Link<'_>,
        some: &[(&Placed, bool)],
        now: Timestamp,
    ) -> Result<HashMap<i64, JobRecord>, Fault> {
        let seqs: Vec<i64> = some.iter().filter(|(_, may)| *may).map(|(placed, _)| placed.seq).collect();
        if seqs.is_empty() {
            return Ok(HashMap::new());
        }
        let read = link.query(include_str!("sql/get_job.sql"), &[&seqs]).await?;
        let rows = self.job_rows(link, &read, now).await?.into_iter();
        Ok(rows.map(|row| (row.entry.sequence, row.entry.job)).collect())
    }
}

/// The next jobs of an order.
async fn placed(
    link: &Link<'_>,
    query: &ListQuery,
    after: Option<&Cursor>,
    together: usize,
    now: Timestamp,
) -> Result<Vec<Placed>, Fault> {
    let few = i64::try_from(together).unwrap_or(i64::MAX);
    let now = now.as_micros();
    let at_and_seq = |row: &Row| Placed {
        place: vec![row.get("at"), row.get("seq")],
        seq: row.get("seq"),
        lane: Some(row.get("lane")),
        state: Some(row.get("state")),
    };
    let rows = match query.order {
        Order::Ended | Order::Newest => {
            let [at, seq] = after.map_or(Ok([i64::MAX; 2]), Cursor::numbers)?;
            let state = query.filter.states.first().map_or(0, |state| i16::from(state.number()));
            link.query(include_str!("sql/list_ended.sql"), &[&state, &at, &seq, &few]).await?
        }
        Order::Due => {
            let [at, seq] = after.map_or(Ok([0; 2]), Cursor::numbers)?;
            link.query(include_str!("sql/list_waiting.sql"), &[&now, &at, &seq, &few]).await?
        }
        Order::Claim => {
            let [priority, at, seq]: [i64; 3] = after.map_or(Ok([0; 3]), Cursor::numbers)?;
            let queue = query.filter.queue.as_ref().map(|queue| queue.as_str().to_owned()).unwrap_or_default();
            let priority = i16::try_from(priority).unwrap_or(i16::MAX);
            let parameters: [Parameter<'_>; 6] = [&now, &queue, &priority, &at, &seq, &few];
            let rows = link.query(include_str!("sql/list_next.sql"), &parameters).await?;
            let placed = |row: &Row| {
                let place = vec![i64::from(row.get::<_, i16>("priority")), row.get("at"), row.get("seq")];
                Placed { place, seq: row.get("seq"), lane: None, state: None }
            };
            return Ok(rows.iter().map(placed).collect());
        }
    };
    Ok(rows.iter().map(at_and_seq).collect())
}
