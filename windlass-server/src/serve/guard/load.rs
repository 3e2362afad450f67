//! How much is done at once: requests, waiting requests, and bodies in memory.
//!
//! A request that comes when it is full is told to come back, after a moment's patience. Nothing queues without bound. What
//! workers need to go on (claims, heartbeats, settlements) has places and room of its own, so that no reader and no
//! producer can take the last one; and no token can take all of anything.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Method;
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

/// What a call takes a place of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// Reads, submissions, acts.
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
            _ if path.starts_with("/v1/leases/") => Class::Work,
            _ if gets && path.starts_with("/v1/jobs/") && path.ends_with("/wait") => Class::Wait,
            _ => Class::Ordinary,
        }
    }

    fn works(self) -> bool {
        matches!(self, Class::Work | Class::Claim)
    }
}

/// Places and room, for the whole server or for one token.
#[derive(Debug)]
pub(super) struct Pools {
    ordinary: Arc<Semaphore>,
    work: Arc<Semaphore>,
    claims: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    /// In KiB, because a semaphore counts to 2^32 in one call at most.
    memory: Arc<Semaphore>,
    /// The same for workers.
    work_memory: Arc<Semaphore>,
}

impl Pools {
    /// A percentage of the bounds, each at least one place or the largest body.
    fn new(limits: &Limits, percent: usize) -> Self {
        let places = |all: usize| Arc::new(Semaphore::new((all.saturating_mul(percent) / 100).max(1)));
        let room = |bytes: usize| {
            let bytes = (bytes / 100 * percent).max(limits.batch_bytes);
            Arc::new(Semaphore::new(bytes.next_multiple_of(STEP_BYTES) / 1024))
        };
        let for_work = limits.body_memory_bytes / WORK_SHARE;
        Pools {
            ordinary: places(limits.requests),
            work: places(limits.requests),
            claims: places(limits.waits),
            waits: places(limits.waits),
            memory: room(limits.body_memory_bytes - for_work),
            work_memory: room(for_work),
        }
    }

    fn places(&self, class: Class) -> &Arc<Semaphore> {
        match class {
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

async fn patiently(of: &Arc<Semaphore>, many: u32) -> Option<OwnedSemaphorePermit> {
    let permit = tokio::time::timeout(PATIENCE, Arc::clone(of).acquire_many_owned(many)).await;
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
        if bytes <= self.held {
            return Ok(());
        }
        let step = (bytes - self.held).next_multiple_of(STEP_BYTES);
        let kib = u32::try_from(step / 1024).unwrap_or(u32::MAX);
        for (pool, full, held) in &mut self.from {
            let more = patiently(pool, kib).await.ok_or(*full)?;
            match held {
                Some(held) => held.merge(more),
                None => *held = Some(more),
            }
        }
        self.held += step;
        Ok(())
    }
}

/// An answer that keeps its place until it has been sent: a stream lasts as long as its client likes.
pub(super) struct Held {
    body: Body,
    _turn: Turn,
}

impl Held {
    pub(super) fn body(body: Body, turn: Turn) -> Body {
        Body::new(Held { body, _turn: turn })
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
        for class in [Class::Claim, Class::Work, Class::Wait] {
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

    #[test]
    fn m1_m11_every_call_takes_a_place_of_its_kind() {
        for (method, path, class) in [
            ("POST", "/v1/claims", Class::Claim),
            ("GET", "/v1/wakes", Class::Claim),
            ("HEAD", "/v1/wakes", Class::Claim),
            ("POST", "/v1/leases/settle", Class::Work),
            ("POST", "/v1/leases/extend", Class::Work),
            ("POST", "/v1/workers", Class::Work),
            ("GET", "/v1/workers", Class::Ordinary),
            ("GET", "/v1/events", Class::Wait),
            ("HEAD", "/v1/events", Class::Wait),
            ("GET", "/v1/jobs/x/wait", Class::Wait),
            ("HEAD", "/v1/jobs/x/wait", Class::Wait),
            ("POST", "/v1/jobs/x/wait", Class::Ordinary),
            ("GET", "/v1/jobs", Class::Ordinary),
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
