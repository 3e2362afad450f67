//! Jobs that are claimed and wait for a slot: most for a moment, those that were claimed ahead for up to [`HORIZON`].
//!
//! Each queue is a line in claim order, so that a more urgent job overtakes those that were claimed before it. Which queue
//! is next follows its weight, or the order of the queues where the worker is strict. What waits too long, because the
//! jobs before it ran longer than those of the last second, is given back ([`overdue`](Waiting::overdue)).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::attempt::Attempt;
use super::handler::Handler;
use super::pace::{HORIZON, Pace};

/// A job that waits this many times the horizon is given back, and after a third of the lease at the latest.
const OVERDUE_TIMES: u32 = 5;
/// How many priorities there are.
const PRIORITIES: usize = 5;

/// A claimed job and its handler.
pub(super) struct Claim {
    pub(super) attempt: Arc<Attempt>,
    pub(super) handler: Arc<Handler>,
    since: Instant,
}

impl Claim {
    pub(super) fn new(attempt: Arc<Attempt>, handler: Arc<Handler>) -> Self {
        Claim { attempt, handler, since: Instant::now() }
    }
}

/// The jobs of one queue that wait, and how fast it goes.
struct Line {
    by_priority: [VecDeque<Claim>; PRIORITIES],
    weight: i64,
    credit: i64,
    pace: Pace,
}

impl Line {
    fn len(&self) -> usize {
        self.by_priority.iter().map(VecDeque::len).sum()
    }

    fn pop(&mut self) -> Option<Claim> {
        self.by_priority.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Takes those that have waited since before this moment.
    fn before(&mut self, moment: Instant) -> impl Iterator<Item = Claim> + '_ {
        self.by_priority.iter_mut().flat_map(move |waiting| {
            let old = waiting.iter().take_while(|claim| claim.since <= moment).count();
            waiting.drain(..old)
        })
    }
}

/// All jobs of a worker that are claimed and have no slot.
pub(super) struct Waiting {
    lines: Vec<Line>,
    strict: bool,
    /// How long a job should wait at most, and after how long it is given back.
    horizon: Duration,
    patience: Duration,
    /// The fetcher wants to be told when no more than this many wait; it is told once.
    tell_at: Option<usize>,
}

impl Waiting {
    /// For queues of these weights, and leases of this time.
    pub(super) fn new(weights: impl IntoIterator<Item = u32>, strict: bool, lease_time: Duration) -> Self {
        let now = Instant::now();
        let line = |weight| Line {
            by_priority: Default::default(),
            weight: i64::from(weight),
            credit: 0,
            pace: Pace::new(now),
        };
        // Never more than can start within a third of the lease (rule N1).
        let (horizon, patience) = (HORIZON.min(lease_time / 3), (HORIZON * OVERDUE_TIMES).min(lease_time / 3));
        Waiting { lines: weights.into_iter().map(line).collect(), strict, horizon, patience, tell_at: None }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.lines.iter().map(Line::len).sum()
    }

    /// How many of a queue wait.
    pub(super) fn of(&self, queue: usize) -> usize {
        self.lines[queue].len()
    }

    pub(super) fn push(&mut self, claim: Claim) {
        let priority = usize::from(claim.attempt.job.effective_priority().number()).min(PRIORITIES - 1);
        self.lines[claim.attempt.queue].by_priority[priority].push_back(claim);
    }

    /// The next job of a queue that has room.
    pub(super) fn pop(&mut self, has_room: impl Fn(usize) -> bool) -> Option<Claim> {
        if let [line] = self.lines.as_mut_slice() {
            return if has_room(0) { line.pop() } else { None };
        }
        let open = |(queue, line): &(usize, &Line)| line.len() > 0 && has_room(*queue);
        let open: Vec<usize> = self.lines.iter().enumerate().filter(open).map(|(queue, _)| queue).collect();
        let next = match open.as_slice() {
            [] => return None,
            [first, ..] if self.strict || open.len() == 1 => *first,
            _ => self.turn(&open),
        };
        self.lines[next].pop()
    }

    /// Whose turn it is: every queue gains its weight, and the richest pays for the turn.
    fn turn(&mut self, open: &[usize]) -> usize {
        for queue in open {
            self.lines[*queue].credit += self.lines[*queue].weight;
        }
        let total: i64 = open.iter().map(|queue| self.lines[*queue].weight).sum();
        let richest = open.iter().copied().max_by_key(|queue| (self.lines[*queue].credit, std::cmp::Reverse(*queue)));
        let richest = richest.expect("there is more than one");
        self.lines[richest].credit -= total;
        richest
    }

    /// Notes a run that has just ended.
    pub(super) fn ran(&mut self, queue: usize, time: Duration) {
        self.lines[queue].pace.ran(Instant::now(), time);
    }

    /// How many jobs of a queue may wait at the rate of the last second, at most this many.
    pub(super) fn ahead(&mut self, queue: usize, most: usize) -> usize {
        self.lines[queue].pace.ahead(Instant::now(), self.horizon, most)
    }

    /// Wants to be told, once, when no more than this many wait.
    pub(super) fn tell_at(&mut self, waiting: Option<usize>) {
        self.tell_at = waiting;
    }

    /// Whether that is so now; says it once.
    pub(super) fn is_to_be_told(&mut self) -> bool {
        let len = self.len();
        self.tell_at.take_if(|most| len <= *most).is_some()
    }

    /// Takes the jobs that have waited too long.
    pub(super) fn overdue(&mut self) -> Vec<Claim> {
        let Some(moment) = Instant::now().checked_sub(self.patience) else { return Vec::new() };
        self.lines.iter_mut().flat_map(|line| line.before(moment)).collect()
    }

    /// When the first of them will have waited too long.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        let fronts = self.lines.iter().flat_map(|line| &line.by_priority).filter_map(VecDeque::front);
        fronts.map(|claim| claim.since + self.patience).min()
    }

    /// Takes all jobs of a queue.
    pub(super) fn take_queue(&mut self, queue: usize) -> Vec<Claim> {
        self.lines[queue].by_priority.iter_mut().flat_map(|waiting| waiting.drain(..)).collect()
    }

    /// Takes all jobs.
    pub(super) fn take_all(&mut self) -> Vec<Claim> {
        (0..self.lines.len()).flat_map(|queue| self.take_queue(queue)).collect()
    }
}
