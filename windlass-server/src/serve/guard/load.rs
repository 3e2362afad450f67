//! How much is done at once: requests, waiting requests, and bodies in memory.
//!
//! A request that comes when it is full is told to come back, after a moment's patience. Nothing queues without bound. What
//! workers need to go on (claims, heartbeats, settlements) has places and room of its own, and so has what producers submit, so
//! that no reader can take the last one; and no token can take all of anything.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Method;
use futures_util::future::BoxFuture;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::serve::config::Limits;

/// How long a request waits for its turn before it is refused: a burst passes, an overload does not.
const PATIENCE: Duration = Duration::from_millis(100);
/// What each body may have without asking for room: most calls are smaller, and connections bound their number.
pub(super) const SMALL_BYTES: usize = 64 << 10;
/// By how much the room of a body grows: one question for many frames.
const STEP_BYTES: usize = 256 << 10;
/// The part of the memory for bodies that is kept for workers: a quarter.
const WORK_SHARE: usize = 4;
/// What all answers to readers may hold until they have been sent: who asks and does not read must not fill the memory.
const ANSWERS_BYTES: usize = 128 << 20;
/// What one answer takes of it at most, be it ever so large: each has its turn.
const ANSWER_BYTES_MOST: usize = ANSWERS_BYTES / 4;
/// The same for answers to calls that change something, which cannot be let go. Beyond it each keeps the place of its call.
const DONE_BYTES: usize = 64 << 20;
/// What a job of a batch takes in memory beside its bytes while the batch is stored, and its part of the answer.
const DECODED_JOB_BYTES: usize = 1 << 10;
/// What all jobs of a batch take so at most: as many as a batch may hold.
const DECODED_BYTES_MOST: usize = DECODED_JOB_BYTES * windlass::job::BATCH_MAX;
/// How long an answer waits for room, and a batch that has arrived.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// What a call takes a place of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// Calls that look and change nothing: they can be asked again.
    Read,
    /// Submissions and acts.
    Ordinary,
    /// Heartbeats, settlements and what else a worker says.
    Work,
    /// Claims and hints, which wait for jobs.
    Claim,
    /// Calls of others that wait for something to happen.
    Wait,
}

impl Class {
    /// Of this call. `HEAD` is answered as `GET` is.
    pub(super) fn of(method: &Method, path: &str) -> Self {
        let gets = *method == Method::GET || *method == Method::HEAD;
        match path {
            "/v1/claims" | "/v1/wakes" => Class::Claim,
            "/v1/workers" if !gets => Class::Work,
            "/v1/events" | "/v1/pulse" if gets => Class::Wait,
            "/v1/jobs/find" | "/v1/workflows/find" | "/v1/schedules/preview" => Class::Read,
            _ if path.starts_with("/v1/leases/") => Class::Work,
            _ if gets && path.starts_with("/v1/jobs/") && path.ends_with("/wait") => Class::Wait,
            // An act on many jobs may be waited for.
            _ if gets && path.starts_with("/v1/operations/") => Class::Wait,
            _ if gets => Class::Read,
            _ => Class::Ordinary,
        }
    }

    fn works(self) -> bool {
        matches!(self, Class::Work | Class::Claim)
    }

    /// Whether it changes nothing, so that it may be done again.
    pub(super) fn looks(self) -> bool {
        matches!(self, Class::Read | Class::Wait)
    }

    /// Whether it lasts for as long as its caller likes.
    pub(super) fn lasts(self) -> bool {
        matches!(self, Class::Claim | Class::Wait)
    }
}

/// Places and room, for the whole server or for one token.
#[derive(Debug)]
pub(super) struct Pools {
    reads: Arc<Semaphore>,
    ordinary: Arc<Semaphore>,
    work: Arc<Semaphore>,
    claims: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    /// In KiB, because a semaphore counts to 2^32 in one call at most.
    memory: Arc<Semaphore>,
    /// The same for workers.
    work_memory: Arc<Semaphore>,
    /// The same for answers to readers.
    answers: Arc<Semaphore>,
    /// The same for answers to calls that change something.
    done: Arc<Semaphore>,
}

impl Pools {
    /// A percentage of the bounds, each at least one place or the largest body.
    fn new(limits: &Limits, percent: usize) -> Self {
        let places = |all: usize| Arc::new(Semaphore::new((all.saturating_mul(percent) / 100).max(1)));
        let room = |bytes: usize| {
            let bytes = (bytes / 100 * percent).max(limits.batch_bytes);
            Arc::new(Semaphore::new(bytes.next_multiple_of(STEP_BYTES) / 1024))
        };
        let kib = |bytes: usize| Arc::new(Semaphore::new((bytes / 1024 * percent / 100).max(ANSWER_BYTES_MOST / 1024)));
        let for_work = limits.body_memory_bytes / WORK_SHARE;
        Pools {
            reads: places(limits.requests),
            ordinary: places(limits.requests),
            work: places(limits.requests),
            claims: places(limits.waits),
            waits: places(limits.waits),
            memory: room(limits.body_memory_bytes - for_work),
            work_memory: room(for_work),
            answers: kib(ANSWERS_BYTES),
            done: kib(DONE_BYTES),
        }
    }

    fn places(&self, class: Class) -> &Arc<Semaphore> {
        match class {
            Class::Read => &self.reads,
            Class::Ordinary => &self.ordinary,
            Class::Work => &self.work,
            Class::Claim => &self.claims,
            Class::Wait => &self.waits,
        }
    }

    fn room(&self, class: Class) -> &Arc<Semaphore> {
        if class.works() { &self.work_memory } else { &self.memory }
    }
}

/// What is left of each bound.
#[derive(Debug)]
pub(super) struct Load {
    limits: Limits,
    all: Pools,
}

/// Why there is no place: too much is asked of the server, or by one token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Full {
    Server,
    Token,
}

/// A place that is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _all: OwnedSemaphorePermit,
    _own: Option<OwnedSemaphorePermit>,
}

impl Load {
    pub(super) fn new(limits: Limits) -> Self {
        Load { limits, all: Pools::new(&limits, 100) }
    }

    /// What one token may have of everything.
    pub(super) fn share(&self) -> Pools {
        Pools::new(&self.limits, self.limits.token_percent)
    }

    /// A turn for this call, of the server's and of the token's own.
    pub(super) async fn turn(&self, class: Class, own: Option<&Pools>) -> Result<Turn, Full> {
        let own = match own {
            Some(own) => Some(patiently(own.places(class), 1).await.ok_or(Full::Token)?),
            None => None,
        };
        let all = patiently(self.all.places(class), 1).await.ok_or(Full::Server)?;
        Ok(Turn { _all: all, _own: own })
    }

    /// Room for a body of this call, none of it taken yet.
    pub(super) fn room<'a>(&'a self, class: Class, own: Option<&'a Pools>) -> Room<'a> {
        let pools = std::iter::once((&self.all, Full::Server)).chain(own.map(|own| (own, Full::Token)));
        let from = pools.map(|(pools, full)| (pools.room(class), full, None)).collect();
        Room { from, held: SMALL_BYTES }
    }

    /// Room for an answer of this size, if there is some at once; `None` inside for a small one, which needs none.
    pub(super) fn answer(&self, bytes: usize, own: Option<&Pools>) -> Option<Option<Answered>> {
        self.take(|pools| &pools.answers, bytes, own)
    }

    /// The same for the answer to a call that changed something.
    pub(super) fn done(&self, bytes: usize, own: Option<&Pools>) -> Option<Option<Answered>> {
        self.take(|pools| &pools.done, bytes, own)
    }

    fn take(
        &self,
        of: impl Fn(&Pools) -> &Arc<Semaphore>,
        bytes: usize,
        own: Option<&Pools>,
    ) -> Option<Option<Answered>> {
        let Some(kib) = answer_kib(bytes) else { return Some(None) };
        let take = |pools: &Pools| Arc::clone(of(pools)).try_acquire_many_owned(kib).ok();
        let own = match own {
            Some(own) => Some(take(own)?),
            None => None,
        };
        Some(Some(Turn { _all: take(&self.all)?, _own: own }))
    }

    /// The same, for a caller that holds nothing meanwhile.
    pub(super) async fn wait_to_answer(&self, bytes: usize, own: Option<&Pools>) -> Result<Option<Answered>, Full> {
        let Some(kib) = answer_kib(bytes) else { return Ok(None) };
        let take = async |pools: &Pools, full: Full| {
            let taken = Arc::clone(&pools.answers).acquire_many_owned(kib);
            tokio::time::timeout(ANSWER_PATIENCE, taken).await.ok().and_then(Result::ok).ok_or(full)
        };
        let own = match own {
            Some(own) => Some(take(own, Full::Token).await?),
            None => None,
        };
        Ok(Some(Turn { _all: take(&self.all, Full::Server).await?, _own: own }))
    }

    /// How large a body is once its jobs are made of it: one of many small ones takes ten times its bytes.
    pub(super) fn decoded_bytes(&self, path: &str, body: &[u8]) -> usize {
        if !matches!(path, "/v1/jobs/batch" | "/v1/workflows") {
            return body.len();
        }
        // Each job is an object; an object within a payload counts, too, up to the most jobs that there can be.
        let objects = body.iter().filter(|byte| **byte == b'{').count();
        let decoded = objects.saturating_mul(DECODED_JOB_BYTES).min(DECODED_BYTES_MOST);
        body.len() + decoded.min(self.limits.batch_bytes.saturating_sub(body.len()))
    }

    /// The largest body that this call takes.
    pub(super) fn body_bytes(&self, path: &str) -> usize {
        let many = [
            "/v1/jobs/batch",
            "/v1/workflows",
            "/v1/leases/settle",
            "/v1/leases/save",
            "/v1/leases/saves",
            "/v1/leases/extend",
        ];
        if many.contains(&path) { self.limits.batch_bytes } else { self.limits.body_bytes() }
    }
}

/// Room for an answer, until it has been sent.
pub(super) type Answered = Turn;

/// What an answer takes of the room, in KiB; `None` for a small one, which needs none.
fn answer_kib(bytes: usize) -> Option<u32> {
    (bytes > SMALL_BYTES).then(|| u32::try_from(bytes.min(ANSWER_BYTES_MOST) / 1024).unwrap_or(u32::MAX))
}

async fn patiently(of: &Arc<Semaphore>, many: u32) -> Option<OwnedSemaphorePermit> {
    within(of, many, PATIENCE).await
}

async fn within(of: &Arc<Semaphore>, many: u32, patience: Duration) -> Option<OwnedSemaphorePermit> {
    let permit = tokio::time::timeout(patience, Arc::clone(of).acquire_many_owned(many)).await;
    permit.ok().and_then(Result::ok)
}

/// Room in memory that grows with what has arrived, not with what might.
#[derive(Debug)]
pub(super) struct Room<'a> {
    from: Vec<(&'a Arc<Semaphore>, Full, Option<OwnedSemaphorePermit>)>,
    held: usize,
}

impl Room<'_> {
    /// Makes room for this number of bytes in all.
    pub(super) async fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        self.grow_within(bytes, PATIENCE).await
    }

    /// The same for a body that has arrived: it waits for as long as others take, for its own bytes are counted already.
    pub(super) async fn decode(&mut self, bytes: usize) -> Result<(), Full> {
        self.grow_within(bytes, ANSWER_PATIENCE).await
    }

    async fn grow_within(&mut self, bytes: usize, patience: Duration) -> Result<(), Full> {
        if bytes <= self.held {
            return Ok(());
        }
        let step = (bytes - self.held).next_multiple_of(STEP_BYTES);
        let kib = u32::try_from(step / 1024).unwrap_or(u32::MAX);
        for (pool, full, held) in &mut self.from {
            let more = within(pool, kib, patience).await.ok_or(*full)?;
            match held {
                Some(held) => held.merge(more),
                None => *held = Some(more),
            }
        }
        self.held += step;
        Ok(())
    }
}

/// An answer that keeps its place until it has been sent: a stream lasts as long as its client likes, and its token.
///
/// It is handed on in small pieces, for the connection keeps what it was given, however large, and lets go of the rest; and in
/// copies, for a piece would keep the whole.
pub(super) struct Held {
    body: Body,
    rest: Bytes,
    _turn: Option<Turn>,
    until: Option<BoxFuture<'static, ()>>,
}

impl Held {
    pub(super) fn body(body: Body, turn: Option<Turn>) -> Body {
        Body::new(Held { body, rest: Bytes::new(), _turn: turn, until: None })
    }

    /// The same, ended when `until` is.
    pub(super) fn stream(body: Body, turn: Turn, until: BoxFuture<'static, ()>) -> Body {
        Body::new(Held { body, rest: Bytes::new(), _turn: Some(turn), until: Some(until) })
    }

    fn piece(&mut self) -> Frame<Bytes> {
        let piece = self.rest.split_to(self.rest.len().min(SMALL_BYTES));
        Frame::data(Bytes::copy_from_slice(&piece))
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        if self.until.as_mut().is_some_and(|until| until.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(None);
        }
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => frame,
            other => return other,
        };
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(data) if data.len() > SMALL_BYTES => {
                self.rest = data;
                self.piece()
            }
            Ok(data) => Frame::data(data),
            Err(trailers) => trailers,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(limits: Limits) -> Load {
        Load::new(Limits { requests: 1, waits: 1, ..limits })
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_bound_there_is_no_turn() {
        let load = load(Limits::default());
        let first = load.turn(Class::Ordinary, None).await;
        assert!(first.is_ok());
        assert_eq!(load.turn(Class::Ordinary, None).await.err(), Some(Full::Server));
        for class in [Class::Claim, Class::Work, Class::Wait, Class::Read] {
            assert!(load.turn(class, None).await.is_ok(), "{class:?} has a bound of its own");
        }
        drop(first);
        assert!(load.turn(Class::Ordinary, None).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn m11_a_token_has_a_share_and_the_others_the_rest() {
        let load = Load::new(Limits { requests: 4, waits: 4, token_percent: 50, ..Limits::default() });
        let (greedy, other) = (load.share(), load.share());
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(load.turn(Class::Wait, Some(&greedy)).await.expect("its share"));
        }
        assert_eq!(load.turn(Class::Wait, Some(&greedy)).await.err(), Some(Full::Token));
        assert!(load.turn(Class::Wait, Some(&other)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn h3_answers_to_readers_share_their_room() {
        let load = load(Limits { token_percent: 50, ..Limits::default() });
        let (greedy, other) = (load.share(), load.share());
        assert!(load.answer(SMALL_BYTES, Some(&greedy)).expect("no room is needed").is_none());
        let quarter = ANSWERS_BYTES / 4;
        let held: Vec<_> = (0..2).map(|_| load.answer(quarter, Some(&greedy)).expect("room")).collect();
        assert!(load.answer(quarter, Some(&greedy)).is_none());
        assert_eq!(load.wait_to_answer(quarter, Some(&greedy)).await.err(), Some(Full::Token));
        assert!(load.answer(ANSWERS_BYTES * 2, Some(&other)).is_some(), "the largest has its turn, too");
        let rest: Vec<_> = (0..2).map(|_| load.answer(quarter, None).expect("room")).collect();
        assert_eq!(load.wait_to_answer(quarter, Some(&other)).await.err(), Some(Full::Server));
        drop((held, rest));
        assert!(load.wait_to_answer(quarter, Some(&greedy)).await.is_ok());
    }

    #[test]
    fn m1_m11_every_call_takes_a_place_of_its_kind() {
        for (method, path, class) in [
            ("POST", "/v1/claims", Class::Claim),
            ("GET", "/v1/wakes", Class::Claim),
            ("HEAD", "/v1/wakes", Class::Claim),
            ("POST", "/v1/leases/settle", Class::Work),
            ("POST", "/v1/leases/extend", Class::Work),
            ("POST", "/v1/workers", Class::Work),
            ("GET", "/v1/workers", Class::Read),
            ("GET", "/v1/events", Class::Wait),
            ("HEAD", "/v1/events", Class::Wait),
            ("GET", "/v1/jobs/x/wait", Class::Wait),
            ("HEAD", "/v1/jobs/x/wait", Class::Wait),
            ("POST", "/v1/jobs/x/wait", Class::Ordinary),
            ("GET", "/v1/operations/x", Class::Wait),
            ("DELETE", "/v1/operations/x", Class::Ordinary),
            ("GET", "/v1/jobs", Class::Read),
            ("HEAD", "/v1/jobs", Class::Read),
            ("POST", "/v1/jobs/find", Class::Read),
            ("POST", "/v1/jobs", Class::Ordinary),
            ("POST", "/v1/jobs/batch", Class::Ordinary),
        ] {
            let method: Method = method.parse().expect("a method");
            assert_eq!(Class::of(&method, path), class, "{method} {path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn h5_bodies_in_memory_are_bounded_by_what_arrived() {
        let mib = 1 << 20;
        let limits = Limits { batch_bytes: mib, body_memory_bytes: 4 * mib, ..Limits::default() };
        let load = load(limits);
        let mut begun: Vec<_> = (0..100).map(|_| load.room(Class::Ordinary, None)).collect();
        for room in &mut begun {
            assert!(room.grow(SMALL_BYTES).await.is_ok(), "small ones need no room");
        }
        let mut large = load.room(Class::Ordinary, None);
        large.grow(3 * mib).await.expect("three of four");
        assert_eq!(begun[0].grow(SMALL_BYTES + 1).await, Err(Full::Server));
        let mut settling = load.room(Class::Work, None);
        assert!(settling.grow(mib).await.is_ok(), "workers have room of their own");
        drop(large);
        assert!(begun[0].grow(SMALL_BYTES + 1).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn h3_many_small_jobs_take_room_for_what_is_made_of_them() {
        let mib = 1 << 20;
        let load = load(Limits { batch_bytes: 16 * mib, body_memory_bytes: 64 * mib, ..Limits::default() });
        let body = |jobs: usize| format!(r#"{{"jobs":[{}]}}"#, vec![r#"{"type":"t"}"#; jobs].join(",")).into_bytes();
        let small = load.decoded_bytes("/v1/jobs/batch", &body(10));
        assert!(small < SMALL_BYTES, "{small}");
        let many = load.decoded_bytes("/v1/jobs/batch", &body(10_000));
        assert!(many > 9 * mib && many < 11 * mib, "{many}");
        assert_eq!(load.decoded_bytes("/v1/workflows", &body(10_000)), many);
        let braces = vec![b'{'; 15 * mib];
        assert_eq!(load.decoded_bytes("/v1/jobs/batch", &braces), 16 * mib, "the largest has its turn");
        assert_eq!(load.decoded_bytes("/v1/jobs", &braces), 15 * mib, "a payload is kept as it is");
        let mut held: Vec<_> = (0..4).map(|_| load.room(Class::Ordinary, None)).collect();
        for room in &mut held {
            room.decode(many).await.expect("four are less than 48 MiB");
        }
        let mut next = load.room(Class::Ordinary, None);
        let (asked, _) = tokio::join!(next.decode(many), async {
            tokio::time::sleep(PATIENCE * 2).await;
            held.pop();
        });
        assert_eq!(asked, Ok(()), "it waits for as long as the others take");
        assert_eq!(load.room(Class::Ordinary, None).decode(many).await, Err(Full::Server));
    }

    #[tokio::test(start_paused = true)]
    async fn h3_answers_to_acts_have_room_of_their_own() {
        let load = load(Limits { token_percent: 50, ..Limits::default() });
        let (greedy, other) = (load.share(), load.share());
        let held: Vec<_> = (0..2).map(|_| load.done(DONE_BYTES / 4, Some(&greedy)).expect("room")).collect();
        assert!(load.done(DONE_BYTES / 4, Some(&greedy)).is_none());
        assert!(load.done(SMALL_BYTES, Some(&greedy)).expect("no room is needed").is_none());
        assert!(load.done(DONE_BYTES / 4, Some(&other)).is_some());
        assert!(load.answer(ANSWERS_BYTES / 4, Some(&greedy)).is_some(), "readers have room of their own");
        drop(held);
        assert!(load.done(DONE_BYTES / 4, Some(&greedy)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn m11_a_token_may_not_hold_all_the_memory() {
        let mib = 1 << 20;
        let limits = Limits { batch_bytes: mib, body_memory_bytes: 8 * mib, token_percent: 50, ..Limits::default() };
        let load = load(limits);
        let (greedy, other) = (load.share(), load.share());
        let mut held = load.room(Class::Ordinary, Some(&greedy));
        held.grow(2 * mib).await.expect("within its share");
        assert_eq!(held.grow(4 * mib).await, Err(Full::Token));
        assert!(load.room(Class::Ordinary, Some(&other)).grow(2 * mib).await.is_ok());
    }
}
