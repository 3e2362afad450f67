//! The stream of what was enqueued and what ended.
//!
//! Transactions do not commit in the order in which they draw numbers, so readers go by the number of the transaction
//! and look only at those before the oldest that is still under way: nothing can appear behind a cursor any more. A
//! reader that finds events beyond it waits a moment for those transactions; a long one of another client can hold events
//! back, but never lose one.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

use super::Inner;
use super::fault::Fault;
use super::rows;
use crate::job::{JobId, State};
use crate::store::answer::{JobEvent, JobEventKind, Page};
use crate::store::request::{Cursor, PAGE_MAX};

/// How often a reader looks again while the newest events are not settled.
const LOOKS_MAX: u32 = 400;
/// How long it waits in between: about as long as a short transaction takes.
const LOOK_WAIT: Duration = Duration::from_millis(5);

/// The transaction, the row, and the place in the row.
#[derive(Clone, Copy)]
struct Place {
    xid: u64,
    event: i64,
    index: i64,
}

impl Place {
    fn read(cursor: &Cursor) -> Result<Self, Fault> {
        let mut parts = cursor.0.splitn(3, '.');
        let place = (|| {
            let xid = parts.next()?.parse().ok()?;
            Some(Place { xid, event: parts.next()?.parse().ok()?, index: parts.next()?.parse().ok()? })
        })();
        place.ok_or_else(|| Fault::Said(cursor.invalid()))
    }

    fn cursor(self) -> Cursor {
        Cursor(format!("{}.{}.{}", self.xid, self.event, self.index))
    }
}

impl Inner {
    pub(super) async fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>, Fault> {
        match after.map(Place::read).transpose()? {
            None => self.present().await,
            Some(place) => self.events_after(place, limit.clamp(1, PAGE_MAX)).await,
        }
    }

    /// The place after everything that has happened.
    async fn present(&self) -> Result<Page<JobEvent>, Fault> {
        let link = self.link().await?;
        let mut place = Place { xid: 0, event: 0, index: 0 };
        for _ in 0..LOOKS_MAX {
            let rows = link.query(include_str!("sql/event_last.sql"), &[]).await?;
            let Some(row) = rows.first() else { break };
            place = Place { xid: number(row.get(0)), event: row.get(1), index: i64::MAX };
            if row.get(2) {
                break;
            }
            tokio::time::sleep(LOOK_WAIT).await;
        }
        Ok(Page { items: Vec::new(), next: Some(place.cursor()) })
    }

    async fn events_after(&self, place: Place, limit: usize) -> Result<Page<JobEvent>, Fault> {
        let link = self.link().await?;
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let (xid, event) = (place.xid.to_string(), place.event);
        let mut rows = Vec::new();
        for _ in 0..LOOKS_MAX {
            rows = link.query(include_str!("sql/event_list.sql"), &[&xid, &event, &most]).await?;
            let unsettled = rows.iter().any(|row| !row.get::<_, bool>(6));
            rows.retain(|row| row.get(6));
            if !unsettled {
                break;
            }
            tokio::time::sleep(LOOK_WAIT).await;
        }
        let mut found = Vec::new();
        for row in &rows {
            let at = Place { xid: number(row.get(0)), event: row.get(1), index: 0 };
            let skipped = if (at.xid, at.event) == (place.xid, place.event) { place.index } else { 0 };
            let seqs: Vec<i64> = row.get(5);
            let (time, lane, kind): (i64, i32, i16) = (row.get(2), row.get(3), row.get(4));
            for (index, seq) in (1..).zip(seqs).filter(|(index, _)| *index > skipped) {
                found.push((Place { index, ..at }, time, lane, kind, seq));
            }
        }
        found.truncate(limit);
        let next = found.last().map_or(place, |last| last.0).cursor();
        let seqs: Vec<i64> = found.iter().map(|event| event.4).collect();
        let lanes: Vec<i32> = found.iter().map(|event| event.2).collect();
        self.lanes.learn_lanes(&link, &lanes).await?;
        let rows = link.query(include_str!("sql/id_find.sql"), &[&seqs]).await?;
        let ids: HashMap<i64, Uuid> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let items = found.into_iter().filter_map(|(place, at, lane, kind, seq)| {
            let (queue, job_type) = self.lanes.name(lane)?;
            let state = u8::try_from(kind).ok().and_then(State::from_number);
            let kind = state.map_or(JobEventKind::Enqueued, JobEventKind::Ended);
            // A job that has been pruned since has no id any more.
            let job = JobId::from_uuid(*ids.get(&seq)?);
            Some(JobEvent { cursor: place.cursor(), at: rows::time(at), job, queue, job_type, kind })
        });
        Ok(Page { items: items.collect(), next: Some(next) })
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}
