//! Lists in other orders than by submission: by end, by when they are due, and as they will be claimed. Each goes by one index.

use std::collections::HashMap;

use super::Inner;
use super::driver_row::Row;
use super::fault::Fault;
use super::link::{Link, Parameter};
use super::turns::Caller;
use crate::job::JobRecord;
use crate::store::answer::Page;
use crate::store::request::{Cursor, LOOKED_MAX, ListQuery, Order, PAGE_MAX};
use crate::time::Timestamp;

/// How many jobs are looked at together.
const CHUNK: usize = 500;
/// How many whole jobs are fetched at once: their payloads come along.
const FETCH_MAX: usize = 64;

/// A job at a place of an order: the numbers of its cursor, and its sequence.
struct Placed {
    place: Vec<i64>,
    seq: i64,
}

impl Inner {
    pub(super) async fn list_in_order(&self, query: &ListQuery) -> Result<Page<JobRecord>, Fault> {
        query.order.check(&query.filter)?;
        let limit = query.limit.clamp(1, PAGE_MAX);
        let link = self.link(Caller::Reader).await?;
        let now = self.read_clock(&link).await?;
        let (mut items, mut looked, mut after) = (Vec::new(), 0, query.after.clone());
        loop {
            let chunk = placed(&link, query, after.as_ref(), now).await?;
            let is_last = chunk.len() < CHUNK;
            // A page of few jobs does not fetch many.
            for some in chunk.chunks(limit.min(FETCH_MAX)) {
                let seqs: Vec<i64> = some.iter().map(|placed| placed.seq).collect();
                let read = link.query(include_str!("sql/get_job.sql"), &[&seqs]).await?;
                let rows = self.job_rows(&link, &read, now).await?.into_iter();
                let mut jobs: HashMap<i64, JobRecord> = rows.map(|row| (row.entry.sequence, row.entry.job)).collect();
                for Placed { place, seq } in some {
                    looked += 1;
                    items.extend(jobs.remove(seq).filter(|job| query.filter.matches(job)));
                    after = Some(Cursor::of_numbers(place));
                    if items.len() >= limit || looked >= LOOKED_MAX {
                        return Ok(Page { items, next: after });
                    }
                }
            }
            if is_last {
                return Ok(Page { items, next: None });
            }
        }
    }
}

/// The next jobs of an order.
async fn placed(
    link: &Link<'_>,
    query: &ListQuery,
    after: Option<&Cursor>,
    now: Timestamp,
) -> Result<Vec<Placed>, Fault> {
    let few = i64::try_from(CHUNK).unwrap_or(i64::MAX);
    let now = now.as_micros();
    let at_and_seq = |row: &Row| Placed { place: vec![row.get("at"), row.get("seq")], seq: row.get("seq") };
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
                Placed { place, seq: row.get("seq") }
            };
            return Ok(rows.iter().map(placed).collect());
        }
    };
    Ok(rows.iter().map(at_and_seq).collect())
}
