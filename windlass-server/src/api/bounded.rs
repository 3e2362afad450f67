//! Answers with jobs in them: bounded in bytes while they are read, and sent a job at a time.
//!
//! A store answers with whole rows, payloads included, so it is asked for few rows at a time: as many as fit into
//! [`READ_BYTES_MAX`] if each were as large as a job may be. An answer is cut after the read that fills it, and says so.
//! Such reads take turns, so that readers never take the connections of workers. What was read is kept only if there is
//! room for its answer; else it is let go, and read again when there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use windlass::job::{CHECKPOINT_BYTES_MAX, Limits};
use windlass::store::{ListQuery, PAGE_MAX, Page, WorkerRecord};
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
/// About what a small job is written with: the room that a row begins with, so that it seldom has to grow.
const ROW_BYTES: usize = 3 << 9;
/// What a served queue takes up beside its name.
const SERVED_BYTES: usize = 48;
/// From here on an answer is sent as it is written, and counts against [`SENT_KIB_MAX`].
const STREAM_FROM_BYTES: usize = 1 << 20;
/// What all large answers on their way may hold, in KiB: slow readers must not fill the memory.
const SENT_KIB_MAX: u32 = 128 << 10;
/// The same for answers to claims: readers who do not take what they asked for must not hold up workers.
const CLAIMED_KIB_MAX: u32 = 64 << 10;
/// While jobs are small, a claim asks the store for this many times as many at once: each such call is a commit. Should all of
/// them turn out to be as large as they may be, they are that many times [`READ_BYTES_MAX`].
const SMALL_CLAIM_TIMES: usize = 4;
/// How many reads of many rows run at once: fewer than a store has connections, so that some are left for workers.
const READS_MAX: usize = 4;
/// How long such a read waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The turns of large reads, and the room of large answers.
#[derive(Debug)]
pub(super) struct Bounds {
    reads: Semaphore,
    sent: Room,
    claimed: Room,
    pub(super) claim_step: ClaimStep,
}

/// How many jobs a claim asks the store for at once: few, until those that were claimed last have turned out to be small.
#[derive(Debug, Default)]
pub(super) struct ClaimStep {
    /// How many the last claim would have had room for, by the largest of its jobs.
    fitting: AtomicUsize,
}

impl ClaimStep {
    /// The step now.
    pub(super) fn get(&self, limits: &Limits) -> usize {
        let few = claims_of(limits);
        self.fitting.load(Ordering::Relaxed).clamp(few, few * SMALL_CLAIM_TIMES)
    }

    /// Notes how large the jobs were that a claim brought.
    pub(super) fn note(&self, sizes: impl Iterator<Item = usize>) {
        if let Some(largest) = sizes.max() {
            self.fitting.store(READ_BYTES_MAX / 2 / largest.max(1), Ordering::Relaxed);
        }
    }
}

/// Room for large answers on their way, in KiB.
#[derive(Debug)]
struct Room {
    free: Arc<Semaphore>,
    kib_max: u32,
}

impl Room {
    fn new(kib_max: u32) -> Self {
        Room { free: Arc::new(Semaphore::new(kib_max as usize)), kib_max }
    }

    fn kib(&self, bytes: usize) -> u32 {
        u32::try_from(bytes / 1024).unwrap_or(u32::MAX).min(self.kib_max)
    }

    /// Room, if there is some at once; `None` inside for a small answer, which needs none.
    fn take(&self, bytes: usize) -> Option<Option<OwnedSemaphorePermit>> {
        if bytes < STREAM_FROM_BYTES {
            return Some(None);
        }
        Arc::clone(&self.free).try_acquire_many_owned(self.kib(bytes)).ok().map(Some)
    }

    async fn wait(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        if bytes < STREAM_FROM_BYTES {
            return Ok(None);
        }
        let room = tokio::time::timeout(PATIENCE, Arc::clone(&self.free).acquire_many_owned(self.kib(bytes))).await;
        room.ok().and_then(Result::ok).map(Some).ok_or_else(full)
    }
}

fn full() -> Refusal {
    Refusal::new(Kind::UNAVAILABLE, "too many large answers are on their way; try again")
}

impl Default for Bounds {
    fn default() -> Self {
        let (sent, claimed) = (Room::new(SENT_KIB_MAX), Room::new(CLAIMED_KIB_MAX));
        Bounds { reads: Semaphore::new(READS_MAX), sent, claimed, claim_step: ClaimStep::default() }
    }
}

impl Bounds {
    /// A turn for a read of many rows.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        let turn = tokio::time::timeout(PATIENCE, self.reads.acquire()).await;
        let busy = || Refusal::new(Kind::UNAVAILABLE, "too many large reads are under way; try again");
        turn.ok().and_then(Result::ok).ok_or_else(busy)
    }

    /// Room for the answer to a claim: at once, or else for as many of its jobs as need none. Gives how many those are;
    /// one job alone waits for room.
    pub(super) async fn room_for_claim(
        &self,
        jobs: impl Iterator<Item = usize>,
    ) -> Result<(usize, Option<OwnedSemaphorePermit>), Refusal> {
        let sizes: Vec<usize> = jobs.collect();
        if let Some(room) = self.claimed.take(sizes.iter().sum()) {
            return Ok((sizes.len(), room));
        }
        let mut bytes = 0;
        let small = |size: &&usize| {
            bytes += **size;
            bytes < STREAM_FROM_BYTES
        };
        match sizes.iter().take_while(small).count() {
            0 => Ok((1, self.claimed.wait(sizes[0]).await?)),
            count => Ok((count, None)),
        }
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
    let (mut bytes, mut looked) = (0, 0);
    let looked_max = query.looked_max;
    // Held to the end: nobody holds a part of a page while waiting for a turn to read the next.
    let _turn = state.bounds.turn().await?;
    loop {
        query.limit = step.min(wanted - items.len());
        query.looked_max = looked_max - looked;
        let page = state.store().list(&query).await?;
        looked += page.looked;
        // A short page is one that the store has looked long for: its caller decides whether to look on.
        let short = page.items.len() < query.limit;
        bytes += page.items.iter().map(bytes_of).sum::<usize>();
        items.extend(page.items);
        if page.next.is_none() || short || looked >= looked_max || items.len() >= wanted || bytes >= ANSWER_BYTES_MAX {
            return Ok(Page { items, next: page.next, looked });
        }
        query.after = page.next;
    }
}

/// Jobs that were asked for by id, and the ids for which there was no room any more.
type Found = (Vec<Option<JobRecord>>, Vec<JobId>);

/// The jobs with these ids, each of which stands here once.
async fn find(state: &ApiState, ids: &[JobId]) -> Result<Found, Refusal> {
    let step = rows_of(state.client().limits_in_force());
    let mut found = Vec::new();
    let mut bytes = 0;
    let _turn = state.bounds.turn().await?;
    for some in ids.chunks(step) {
        if bytes >= ANSWER_BYTES_MAX {
            break;
        }
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

    /// A job as it is shown to somebody who did not ask for it: without its data where that is large.
    pub(super) fn briefly(self, job: &JobRecord) -> Job {
        Shown { data: self.data && bytes_of(job) < STREAM_FROM_BYTES }.job(job)
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
pub(super) async fn page_answer(state: &ApiState, shown: Shown, query: ListQuery) -> Result<Response, Refusal> {
    let wanted = query.limit;
    let bytes = |read: &Page<JobRecord>| read.items.iter().map(|job| shown.bytes(job)).sum::<usize>();
    let mut read = page(state, query.clone()).await?;
    let size = bytes(&read);
    let room = match state.bounds.sent.take(size) {
        Some(room) => room,
        None => {
            // Any number of callers may wait here: with empty hands.
            drop(read);
            let room = state.bounds.sent.wait(size).await?;
            read = page(state, query).await?;
            // It may have grown meanwhile.
            if bytes(&read) > size {
                return Err(full());
            }
            room
        }
    };
    let page = read;
    // A short page with a cursor is one at whose end the store had looked at as many jobs as it looks at, or that was cut.
    let bytes: usize = page.items.iter().map(bytes_of).sum();
    let stopped = page.next.is_some() && page.items.len() < wanted && bytes < ANSWER_BYTES_MAX;
    let looked = stopped.then_some(Looked { jobs: page.looked as u64 });
    let next = Next { next_cursor: page.next.map(|cursor| cursor.0), looked };
    Ok(answer("items", page.items, move |job| Some(shown.job(job)), &next, room))
}

#[derive(Serialize)]
struct Rest {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rest: Vec<JobId>,
}

/// Jobs that were asked for by id, as they are answered.
pub(super) async fn found_answer(state: &ApiState, shown: Shown, ids: &[JobId]) -> Result<Response, Refusal> {
    let bytes = |read: &Found| read.0.iter().flatten().map(|job| shown.bytes(job)).sum::<usize>();
    let mut read = find(state, ids).await?;
    let size = bytes(&read);
    let room = match state.bounds.sent.take(size) {
        Some(room) => room,
        None => {
            drop(read);
            let room = state.bounds.sent.wait(size).await?;
            read = find(state, ids).await?;
            if bytes(&read) > size {
                return Err(full());
            }
            room
        }
    };
    let (found, rest) = read;
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
    let write = move |place: usize, job: T, to: &mut Vec<u8>| {
        if place > 0 {
            to.push(b',');
        }
        serde_json::to_writer(to, &show(&job)).expect("a job is plain JSON");
    };
    let count = jobs.len();
    let rows = jobs.into_iter().enumerate();
    let body = match room {
        None => {
            let mut text = Vec::with_capacity(head.len() + tail.len() + count * ROW_BYTES);
            text.extend_from_slice(head.as_bytes());
            rows.for_each(|(place, job)| write(place, job, &mut text));
            text.extend_from_slice(tail.as_bytes());
            Body::from(text)
        }
        Some(room) => {
            let rows = rows.map(move |(place, job)| {
                let mut row = Vec::with_capacity(ROW_BYTES);
                write(place, job, &mut row);
                row
            });
            let pieces = [head.into_bytes()].into_iter().chain(rows).chain([tail.into_bytes()]);
            Body::from_stream(stream::iter(pieces.map(move |piece| {
                // Held in here, the room is given back when the body has been sent or is given up.
                let _held = &room;
                Ok::<_, Error>(Bytes::from(piece))
            })))
        }
    };
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use windlass::store::MemoryStore;
    use windlass::{Client, NewJob};

    use super::*;

    const LARGE: usize = 900_000;

    /// A store with this many large jobs, and the first of them.
    async fn state(jobs: usize) -> (ApiState, JobRecord) {
        let client = Client::with_store(Arc::new(MemoryStore::new()));
        let job = || NewJob::new("t", Payload::json(&"x".repeat(LARGE)).expect("JSON"));
        let id = client.enqueue_all((0..jobs).map(|_| job()).collect::<Vec<_>>()).await.expect("enqueued")[0].id;
        let first = client.job(id).await.expect("the job");
        (ApiState::new(client), first)
    }

    /// Answers that nobody reads, until there is no room for another.
    async fn fill(state: &ApiState, query: &ListQuery) -> Vec<Response> {
        let mut unread = Vec::new();
        while state.bounds.sent.free.available_permits() >= ANSWER_BYTES_MAX / 1024 {
            unread.push(page_answer(state, Shown { data: true }, query.clone()).await.expect("an answer"));
        }
        unread
    }

    #[tokio::test]
    async fn a_page_that_is_read_in_steps_looks_at_no_more_jobs_than_it_may() {
        let client = Client::with_store(Arc::new(MemoryStore::new()));
        let job = |number: usize| NewJob::new(if number.is_multiple_of(4) { "rare" } else { "t" }, Payload::default());
        client.enqueue_all((0..400).map(job).collect::<Vec<_>>()).await.expect("enqueued");
        let state = ApiState::new(client);
        assert!(rows_of(state.client().limits_in_force()) < 25, "more than one step");
        let filter = windlass::store::Filter::new().job_type(windlass::JobType::new("rare").expect("a type"));
        let query = ListQuery { looked_max: 100, ..ListQuery::new(filter, 200) };
        let found = page(&state, query).await.expect("a page");
        assert_eq!((found.items.len(), found.looked, found.next.is_some()), (25, 100, true));
    }

    #[test]
    fn a_claim_asks_for_many_only_after_small_jobs() {
        let (limits, step) = (Limits::default(), ClaimStep::default());
        let few = claims_of(&limits);
        assert_eq!(step.get(&limits), few);
        step.note([1_500, 1_200].into_iter());
        assert_eq!(step.get(&limits), few * SMALL_CLAIM_TIMES);
        step.note([].into_iter());
        assert_eq!(step.get(&limits), few * SMALL_CLAIM_TIMES, "an empty claim says nothing");
        step.note([1_500, 2 * LARGE].into_iter());
        assert_eq!(step.get(&limits), few, "one large job is enough");
    }

    #[tokio::test(start_paused = true)]
    async fn h3_answers_that_wait_for_room_hold_nothing_that_was_read() {
        let (state, first) = state(20).await;
        let query = ListQuery::new(Default::default(), PAGE_MAX);
        let unread = fill(&state, &query).await;
        let waiting = || async { page_answer(&state, Shown { data: true }, query.clone()).await.map(drop) };
        let many = futures_util::future::join_all((0..50).map(|_| waiting()));
        let looks = async {
            tokio::time::sleep(PATIENCE / 2).await;
            Arc::strong_count(&first.spec)
        };
        let (answers, holders) = tokio::join!(many, looks);
        // The store, the test and each answer that is on its way.
        assert!(holders <= 2 + unread.len(), "{holders} hold a job that {} answers hold", unread.len());
        assert!(answers.iter().all(Result::is_err), "they were told to try again");
    }

    #[tokio::test(start_paused = true)]
    async fn h4_answers_that_nobody_reads_hold_up_no_claim() {
        let (state, _) = state(20).await;
        let _unread = fill(&state, &ListQuery::new(Default::default(), PAGE_MAX)).await;
        let begun = tokio::time::Instant::now();
        let (count, room) = state.bounds.room_for_claim([2 * LARGE].into_iter()).await.expect("room");
        assert!(count == 1 && room.is_some() && begun.elapsed() < PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_without_room_is_cut_to_what_needs_none() {
        let bounds = Bounds::default();
        let all = bounds.room_for_claim([64 << 20].into_iter()).await.expect("room");
        let (count, room) = bounds.room_for_claim([1000, 2000, LARGE, LARGE].into_iter()).await.expect("an answer");
        assert!(count == 3 && room.is_none(), "{count}");
        assert!(bounds.room_for_claim([2 * LARGE, 1].into_iter()).await.is_err(), "one alone waits, and is told");
        drop(all);
        let (count, _) = bounds.room_for_claim([2 * LARGE, 1].into_iter()).await.expect("room");
        assert_eq!(count, 2);
    }
}
