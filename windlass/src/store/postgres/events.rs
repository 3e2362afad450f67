//! The stream of what was enqueued and what ended.
//!
//! Transactions do not commit in the order in which they draw numbers, so readers go by the number of the transaction
//! and look only at those before the oldest that is still under way: nothing can appear behind a cursor any more. A
//! reader that finds events beyond it waits a moment for those transactions; a long one of another client can hold events
//! back, but never lose one.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use super::Inner;
use super::driver_row::Row;
use super::fault::Fault;
use super::job_rows;
use super::lanes::Lane;
use super::turns::Caller;
use crate::job::{JobId, JobOptions, State};
use crate::store::answer::{JobEvent, JobEventKind, Page};
use crate::store::observe::AttemptCount;
use crate::store::request::{Cursor, PAGE_MAX};

/// How often a reader looks again while the newest events are not settled.
const LOOKS_MAX: u32 = 400;
/// How long it waits in between: about as long as a short transaction takes.
const LOOK_WAIT: Duration = Duration::from_millis(5);

/// The kinds of events that are no terminal state.
pub(super) const KIND_ACCEPTED: i16 = 9;
pub(super) const KIND_PENDING: i16 = 11;
/// Added to a terminal state: a job of it was removed for good.
pub(super) const KIND_REMOVED: i16 = 10;
/// Added to a terminal state: a job of it went back to another state.
pub(super) const KIND_LEFT: i16 = 15;
/// An attempt that failed and after which the job is tried again; `settle.sql` writes it too.
pub(super) const KIND_RETRIED: i16 = 24;
/// An attempt whose lease was lost.
pub(super) const KIND_LOST: i16 = 25;

/// Something that happened to a job, as `add_event.sql` takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct EventRow {
    lane: Lane,
    kind: i16,
    /// By how many the number of jobs of this kind changed.
    count: i32,
    /// The job, where readers of events are told of it.
    seq: Option<i64>,
}

impl EventRow {
    /// What readers are told of.
    pub(super) fn told(lane: Lane, kind: JobEventKind, seq: i64) -> Self {
        let kind = match kind {
            JobEventKind::Enqueued => KIND_ACCEPTED,
            JobEventKind::Ended(state) => i16::from(state.number()),
        };
        EventRow { lane, kind, count: 1, seq: Some(seq) }
    }

    /// A job left the terminal state it was in, and lives.
    pub(super) fn left(lane: Lane, state: i16) -> [Self; 2] {
        [
            EventRow { lane, kind: state, count: -1, seq: None },
            EventRow { lane, kind: state + KIND_LEFT, count: 1, seq: None },
        ]
    }

    /// An attempt that was retried or lost.
    pub(super) fn attempt(lane: Lane, counted: AttemptCount) -> Self {
        let kind = match counted {
            AttemptCount::Retried => KIND_RETRIED,
            AttemptCount::Lost => KIND_LOST,
        };
        EventRow { lane, kind, count: 1, seq: None }
    }

    /// This many more jobs are PENDING.
    pub(super) fn pending(lane: Lane, count: i32) -> Self {
        EventRow { lane, kind: KIND_PENDING, count, seq: None }
    }

    /// This many jobs that had ended in this state are gone for good.
    pub(super) fn removed(lane: Lane, state: i16, count: i32) -> [Self; 2] {
        let gone = EventRow { lane, kind: state, count: -count, seq: None };
        [gone, EventRow { lane, kind: state + KIND_REMOVED, count, seq: None }]
    }
}

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
        place.ok_or_else(|| Fault::Refused(cursor.invalid()))
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
        let link = self.link(Caller::Reader).await?;
        let mut place = Place { xid: 0, event: 0, index: 0 };
        for _ in 0..LOOKS_MAX {
            let rows = link.query(include_str!("sql/get_last_event.sql"), &[]).await?;
            let Some(row) = rows.first() else { break };
            place = Place { xid: number(row.get("xid")), event: row.get("event"), index: i64::MAX };
            if row.get("settled") {
                break;
            }
            tokio::time::sleep(LOOK_WAIT).await;
        }
        Ok(Page::new(Vec::new(), Some(place.cursor())))
    }

    async fn events_after(&self, place: Place, limit: usize) -> Result<Page<JobEvent>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let (xid, event) = (place.xid.to_string(), place.event);
        let mut rows = Vec::new();
        for _ in 0..LOOKS_MAX {
            rows = link.query(include_str!("sql/list_events.sql"), &[&xid, &event, &most]).await?;
            let unsettled = rows.iter().any(|row| !row.get::<_, bool>("settled"));
            rows.retain(|row| row.get("settled"));
            if !unsettled {
                break;
            }
            tokio::time::sleep(LOOK_WAIT).await;
        }
        let mut found = Vec::new();
        for row in &rows {
            let at = Place { xid: number(row.get("xid")), event: row.get("event"), index: 0 };
            let skipped = if (at.xid, at.event) == (place.xid, place.event) { place.index } else { 0 };
            let seqs: Vec<i64> = row.get("seqs");
            let (time, lane, kind): (i64, i32, i16) = (row.get("at"), row.get("lane"), row.get("kind"));
            for (index, seq) in (1..).zip(seqs).filter(|(index, _)| *index > skipped) {
                found.push((Place { index, ..at }, time, lane, kind, seq));
            }
        }
        found.truncate(limit);
        let next = found.last().map_or(place, |last| last.0).cursor();
        let seqs: Vec<i64> = found.iter().map(|event| event.4).collect();
        let lanes: Vec<i32> = found.iter().map(|event| event.2).collect();
        self.lanes.learn_lanes(&link, &lanes).await?;
        let rows = link.query(include_str!("sql/get_id.sql"), &[&seqs]).await?;
        let submitter = |row: &Row| row.get::<_, Option<&str>>("options").and_then(JobOptions::submitter_in);
        let jobs = rows.iter().map(|row| (row.get("seq"), (row.get("id"), submitter(row))));
        let jobs: HashMap<i64, (Uuid, Option<String>)> = jobs.collect();
        let items = found.into_iter().filter_map(|(place, at, lane, kind, seq)| {
            let (queue, job_type) = self.lanes.name(lane)?;
            let state = u8::try_from(kind).ok().and_then(State::from_number);
            let kind = state.map_or(JobEventKind::Enqueued, JobEventKind::Ended);
            // A job that has been pruned since has no id any more.
            let (id, submitted_by) = jobs.get(&seq)?.clone();
            let (cursor, at, job) = (place.cursor(), job_rows::time(at), JobId::from_uuid(id));
            Some(JobEvent { cursor, at, job, queue, job_type, submitted_by, kind })
        });
        Ok(Page::new(items.collect(), Some(next)))
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}
