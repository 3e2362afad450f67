//! Answers with jobs in them: bounded in bytes while they are read, and sent a job at a time.
//!
//! A store answers with whole rows, payloads included, so it is asked for few rows at a time: as many as fit into
//! [`READ_BYTES_MAX`] if each were as large as a job may be. An answer is cut after the read that fills it, and says so.
//! Such reads take turns, so that whoever looks never takes the connections of those who work.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use windlass::job::{CHECKPOINT_BYTES_MAX, Limits};
use windlass::store::{LOOKED_MAX, ListQuery, PAGE_MAX, Page, WorkerRecord};
use windlass::{Error, JobId, JobRecord, Payload};

use super::ApiState;
use super::error::Refusal;
use super::extract::{Caller, Query};
use crate::wire::{Job, Kind, Looked};

/// How many bytes of users' data an answer holds before it is cut: what a client may be expected to take at once.
pub(super) const ANSWER_BYTES_MAX: usize = 16 << 20;
/// What one call of the store may bring into memory.
const READ_BYTES_MAX: usize = 64 << 20;
/// What a plain job takes up in an answer beside its data.
const JOB_BYTES: usize = 1 << 10;
/// What a served queue takes up beside its name.
const SERVED_BYTES: usize = 48;
/// From here on an answer is sent as it is written, and counts against [`SENT_KIB_MAX`].
const STREAM_FROM_BYTES: usize = 1 << 20;
/// What all large answers on their way may hold, in KiB: slow readers must not fill the memory.
const SENT_KIB_MAX: u32 = 128 << 10;
/// How many reads of many rows run at once: fewer than a store has connections, so that some are left for workers.
const READS_MAX: usize = 4;
/// How long such a read waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The turns of large reads, and the room of large answers.
#[derive(Debug)]
pub(super) struct Bounds {
    reads: Semaphore,
    sent_kib: Arc<Semaphore>,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { reads: Semaphore::new(READS_MAX), sent_kib: Arc::new(Semaphore::new(SENT_KIB_MAX as usize)) }
    }
}

impl Bounds {
    /// A turn for a read of many rows.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        let turn = tokio::time::timeout(PATIENCE, self.reads.acquire()).await;
        let busy = || Refusal::new(Kind::UNAVAILABLE, "too many large reads are under way; try again");
        turn.ok().and_then(Result::ok).ok_or_else(busy)
    }

    /// Room for an answer of about so many bytes, to be held until it is sent; none is needed for a small one.
    pub(super) async fn room(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        if bytes < STREAM_FROM_BYTES {
            return Ok(None);
        }
        let kib = u32::try_from(bytes / 1024).unwrap_or(u32::MAX).min(SENT_KIB_MAX);
        let room = tokio::time::timeout(PATIENCE, Arc::clone(&self.sent_kib).acquire_many_owned(kib)).await;
        let full = || Refusal::new(Kind::UNAVAILABLE, "too many large answers are on their way; try again");
        room.ok().and_then(Result::ok).map(Some).ok_or_else(full)
    }
}

/// How many ended jobs one read may hold.
pub(super) fn rows_of(limits: &Limits) -> usize {
    (READ_BYTES_MAX / (2 * limits.payload_bytes() + CHECKPOINT_BYTES_MAX)).clamp(1, PAGE_MAX)
}

/// How many jobs without a result one read may hold.
pub(super) fn claims_of(limits: &Limits) -> usize {
    (READ_BYTES_MAX / (limits.payload_bytes() + CHECKPOINT_BYTES_MAX)).clamp(1, PAGE_MAX)
}

/// About how large a job is in an answer.
pub(super) fn bytes_of(job: &JobRecord) -> usize {
    let result = job.result.as_ref().map_or(0, Payload::len);
    let tags = job.spec.options.tags.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    let failure = job.failure.as_ref();
    let said =
        failure.map_or(0, |failure| failure.message.len() + failure.causes.iter().map(String::len).sum::<usize>());
    let data = job.spec.payload.len() + result + job.checkpoint.as_ref().map_or(0, Bytes::len);
    data + tags + said + JOB_BYTES
}

/// The job without what users put into it, for whoever keeps many and shows none of that.
pub(super) fn without_data(mut job: JobRecord) -> JobRecord {
    Arc::make_mut(&mut job.spec).payload = Payload::default();
    JobRecord { result: None, checkpoint: None, ..job }
}

/// About how large a worker is in an answer.
pub(super) fn bytes_of_worker(worker: &WorkerRecord) -> usize {
    let queues = worker.queues.iter().map(|served| served.queue.as_str().len() + SERVED_BYTES).sum::<usize>();
    let types = worker.types.iter().flatten().map(|job_type| job_type.as_str().len() + 3).sum::<usize>();
    worker.host.len() + queues + types + JOB_BYTES
}

/// A page of jobs. One that would become too large is shorter and has a cursor.
pub(super) async fn page(state: &ApiState, mut query: ListQuery) -> Result<Page<JobRecord>, Refusal> {
    let (wanted, step) = (query.limit, rows_of(state.client().limits_in_force()));
    let mut items: Vec<JobRecord> = Vec::new();
    let mut bytes = 0;
    loop {
        query.limit = step.min(wanted - items.len());
        let turn = state.bounds.turn().await?;
        let page = state.store().list(&query).await?;
        drop(turn);
        // A short page is one that the store has looked long for: its caller decides whether to look on.
        let short = page.items.len() < query.limit;
        bytes += page.items.iter().map(bytes_of).sum::<usize>();
        items.extend(page.items);
        if page.next.is_none() || short || items.len() >= wanted || bytes >= ANSWER_BYTES_MAX {
            return Ok(Page { items, next: page.next });
        }
        query.after = page.next;
    }
}

/// The jobs with these ids, each of which stands here once, and the ids for which there was no room any more.
pub(super) async fn find(state: &ApiState, ids: &[JobId]) -> Result<(Vec<Option<JobRecord>>, Vec<JobId>), Refusal> {
    let step = rows_of(state.client().limits_in_force());
    let mut found = Vec::new();
    let mut bytes = 0;
    for some in ids.chunks(step) {
        if bytes >= ANSWER_BYTES_MAX {
            break;
        }
        let _turn = state.bounds.turn().await?;
        let jobs = state.store().find(some).await?;
        bytes += jobs.iter().map(|job| job.as_ref().map_or(JOB_BYTES, bytes_of)).sum::<usize>();
        found.extend(jobs);
    }
    let rest = ids[found.len()..].to_vec();
    Ok((found, rest))
}

/// How jobs are shown to somebody.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    data: bool,
}

impl Shown {
    /// As this caller may see them.
    pub(super) fn to(caller: &Caller) -> Self {
        Shown { data: !caller.payloads_hidden }
    }

    /// The same, unless the request wants them without payloads.
    pub(super) fn asked(caller: &Caller, query: &mut Query) -> Result<Self, Error> {
        let wanted = query.flag("payloads", true)?;
        Ok(Shown { data: wanted && !caller.payloads_hidden })
    }

    /// A job as it is shown.
    pub(super) fn job(self, job: &JobRecord) -> Job {
        if self.data { Job::from(job) } else { Job::without_payloads(job) }
    }

    fn bytes(self, job: &JobRecord) -> usize {
        if self.data { bytes_of(job) } else { JOB_BYTES }
    }
}

#[derive(Serialize)]
struct Next {
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    looked: Option<Looked>,
}

/// A page of jobs as it is answered.
pub(super) async fn page_answer(
    state: &ApiState,
    shown: Shown,
    wanted: usize,
    page: Page<JobRecord>,
) -> Result<Response, Refusal> {
    // A short page with a cursor is one at whose end the store had looked at as many jobs as it looks at, or that was cut.
    let bytes: usize = page.items.iter().map(bytes_of).sum();
    let stopped = page.next.is_some() && page.items.len() < wanted && bytes < ANSWER_BYTES_MAX;
    let looked = stopped.then_some(Looked { jobs: LOOKED_MAX as u64 });
    let room = state.bounds.room(page.items.iter().map(|job| shown.bytes(job)).sum()).await?;
    let next = Next { next_cursor: page.next.map(|cursor| cursor.0), looked };
    Ok(answer("items", page.items, move |job| Some(shown.job(job)), &next, room))
}

#[derive(Serialize)]
struct Rest {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rest: Vec<JobId>,
}

/// Jobs that were asked for by id, as they are answered.
pub(super) async fn found_answer(
    state: &ApiState,
    shown: Shown,
    (found, rest): (Vec<Option<JobRecord>>, Vec<JobId>),
) -> Result<Response, Refusal> {
    let room = state.bounds.room(found.iter().flatten().map(|job| shown.bytes(job)).sum()).await?;
    let show = move |job: &Option<JobRecord>| job.as_ref().map(|job| shown.job(job));
    Ok(answer("items", found, show, &Rest { rest }, room))
}

/// An object with the jobs in the member `name`, and with the members of `rest` after it. One that needs room is written
/// job by job as it is sent.
pub(super) fn answer<T: Send + 'static>(
    name: &str,
    jobs: Vec<T>,
    show: impl Fn(&T) -> Option<Job> + Send + 'static,
    rest: &impl Serialize,
    room: Option<OwnedSemaphorePermit>,
) -> Response {
    let rest = serde_json::to_string(rest).expect("members are plain JSON");
    // Without its first brace, and with a comma in front unless there is nothing in it.
    let rest = rest.trim_start_matches('{');
    let comma = if rest == "}" { "" } else { "," };
    let (head, tail) = (format!("{{\"{name}\":["), format!("]{comma}{rest}"));
    let rows = jobs.into_iter().enumerate().map(move |(place, job)| {
        let mut row = if place == 0 { Vec::new() } else { vec![b','] };
        serde_json::to_writer(&mut row, &show(&job)).expect("a job is plain JSON");
        row
    });
    let pieces = [head.into_bytes()].into_iter().chain(rows).chain([tail.into_bytes()]);
    let body = match room {
        None => Body::from(pieces.collect::<Vec<_>>().concat()),
        Some(room) => Body::from_stream(stream::iter(pieces.map(move |piece| {
            // Held in here, the room is given back when the body has been sent or is given up.
            let _held = &room;
            Ok::<_, Error>(Bytes::from(piece))
        }))),
    };
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
