//! Which waiting jobs a claim takes: keys by priority, by what runs and by turn, each job through its three gates.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use super::explain::{HALTED, ORDERED};
use super::{AfterFailure, Control, Gate, Gates, Limit, Owner};
use crate::job::{JobType, Priority};
use crate::time::Timestamp;

/// What a start adds to the turn of a key of weight 1.
const TURN: i64 = 1 << 20;

/// A job that waits and is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The order of its submission.
    pub sequence: i64,
    /// Its effective priority.
    pub priority: Priority,
    /// Since when it could have been claimed.
    pub position: Timestamp,
    /// Whether it has not been sorted to its key yet.
    pub at_door: bool,
}

/// The waiting jobs of one key and type.
#[derive(Clone, Debug)]
pub struct Strand {
    /// By what the store knows it.
    pub id: i64,
    /// The type.
    pub job_type: JobType,
    /// The key; empty for jobs without one.
    pub key: String,
    /// Whether the claim is for this type.
    pub wanted: bool,
    /// Whether it was open when it was last looked at.
    pub was_open: bool,
    /// Its first jobs.
    pub heads: Vec<Head>,
    /// Whether these are all of them.
    pub all: bool,
}

/// The place of a strand among others, for stores that find open ones by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Order {
    /// The priority of its next job, or 0 where priorities count only within a key.
    pub level: u8,
    /// How much its key runs beyond its weight.
    pub class: u8,
    /// The turn of its key, or the place of its next job.
    pub turn: i64,
    /// The place of its next job.
    pub place: i64,
    /// The order of submission of its next job.
    pub sequence: i64,
}

impl Order {
    /// Before every strand that has a job; of one that has none.
    pub const FIRST: Order = Order { level: 0, class: 0, turn: 0, place: 0, sequence: 0 };
}

/// When to look at a strand again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// At any claim.
    Open,
    /// When this moment has come.
    At(Timestamp),
    /// When something happened to its key.
    Full,
    /// When it has a job.
    Empty,
}

/// What became of a strand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looked {
    /// Its place among others.
    pub order: Order,
    /// When to look again.
    pub look: Look,
}

/// What a claim takes.
#[derive(Clone, Debug, Default)]
pub struct Picks {
    /// The jobs, in order, each with the place of its strand in the call.
    pub taken: Vec<(usize, Head)>,
    /// What became of each strand.
    pub strands: Vec<Looked>,
    /// The gates afterwards.
    pub gates: Gates,
    /// When to ask again, if time alone will open a gate.
    pub again_at: Option<Timestamp>,
    /// By what gates that the claim met kept it from what it wanted: `limit`, `rate`, `hold`, `ordered`, `halted`. Nothing where
    /// it has all that it wanted, or nothing waits.
    pub blocked: BTreeSet<&'static str>,
    /// Strands of which more jobs must be known before it can be said; nothing else in the answer counts then.
    pub short: Vec<usize>,
    /// Types of which more strands must be known before it can be said; nothing else in the answer counts then.
    pub more: Vec<JobType>,
}

impl Control {
    /// The order of the jobs of one key: by priority and position; where jobs age, by the position and what the priority adds to
    /// it; where keys are ordered, by position alone.
    pub fn within_key(&self, head: &Head) -> (u8, i64, i64) {
        let step = self.ageing.filter(|_| self.ordered.is_none());
        let step = step.map_or(0, |step| i64::try_from(step.as_micros()).unwrap_or(i64::MAX / 8));
        let place = head.position.as_micros() + step * i64::from(head.priority.number());
        let level = if self.ageing.is_some() || self.ordered.is_some() { 0 } else { head.priority.number() };
        (level, place, head.sequence)
    }

    /// For each priority the place, a position and a sequence, before which a job of the same key comes before this one. Jobs
    /// that are not due yet come before none.
    pub fn before_within_key(&self, head: &Head, now: Timestamp) -> [(i64, i64); 5] {
        let (level, _, sequence) = self.within_key(head);
        Priority::ALL.map(|priority| {
            let of_priority = |position| self.within_key(&Head { priority, position, ..*head });
            let (own_level, from, _) = of_priority(Timestamp::EPOCH);
            let (_, place, _) = self.within_key(head);
            let due = (now.as_micros(), i64::MAX);
            match own_level.cmp(&level) {
                Ordering::Less => due,
                Ordering::Equal => due.min((place - from, sequence)),
                Ordering::Greater => (i64::MIN, i64::MIN),
            }
        })
    }
}

/// A key while a claim looks at it.
struct Key {
    limit: Limit,
    /// Its strands, by their place in the call.
    strands: Vec<usize>,
    /// The one job of an ordered key that may go on.
    only: Option<i64>,
    /// Whether it was not open before.
    is_back: bool,
    closed: Option<Look>,
}

/// Where a job stands among others: level, class, turn, whether its key was there before, place, sequence.
type Rank = (u8, u8, i64, bool, i64, i64);
/// The next job of a key as it stands among others, its strand, its key.
type Bid<'c> = Reverse<(Rank, usize, &'c str)>;

/// What is being picked from.
struct Picking<'c> {
    control: &'c Control,
    now: Timestamp,
    strands: &'c [Strand],
    /// What is left of the heads of each strand, next one last.
    left: Vec<Vec<Head>>,
    gates: Gates,
    keys: BTreeMap<&'c str, Key>,
    closed_types: BTreeSet<&'c JobType>,
    again_at: Option<Timestamp>,
    short: Vec<usize>,
    more: Vec<JobType>,
}

/// Picks at most `wanted` jobs.
///
/// The strands need not be all that are open. Those that were not handed over are spoken for by [`Gates::unread`] and
/// [`Gates::lowest`]. A key is handed over with all its strands.
pub fn pick(control: &Control, gates: &Gates, strands: &[Strand], wanted: usize, now: Timestamp) -> Picks {
    let mut picking = Picking::new(control, gates, strands, now);
    let taken = picking.take(wanted);
    if !picking.short.is_empty() || !picking.more.is_empty() {
        return Picks { short: picking.short, more: picking.more, ..Picks::default() };
    }
    let looked = (0..strands.len()).map(|place| picking.looked(place)).collect();
    let again_at = picking.asked_again_at();
    let blocked = if taken.len() < wanted { picking.blocked() } else { BTreeSet::new() };
    Picks { taken, strands: looked, gates: picking.gates, again_at, blocked, short: Vec::new(), more: Vec::new() }
}

impl Picks {
    /// How long each key that the claim serves had waited: since the longest-waiting of its jobs that were taken could have been.
    pub fn key_waits(&self, strands: &[Strand], now: Timestamp) -> Vec<Duration> {
        let mut since: BTreeMap<&str, Timestamp> = BTreeMap::new();
        for (place, head) in &self.taken {
            let first = since.entry(&strands[*place].key).or_insert(head.position);
            *first = head.position.min(*first);
        }
        since.into_values().map(|since| now.since(since)).collect()
    }
}

impl<'c> Picking<'c> {
    fn new(control: &'c Control, gates: &Gates, strands: &'c [Strand], now: Timestamp) -> Self {
        let mut picking = Picking {
            control,
            now,
            strands,
            left: Vec::with_capacity(strands.len()),
            gates: gates.clone(),
            keys: BTreeMap::new(),
            closed_types: BTreeSet::new(),
            again_at: gates.again_at,
            short: Vec::new(),
            more: Vec::new(),
        };
        for (place, strand) in strands.iter().enumerate() {
            let gate = picking.gates.keys.entry(strand.key.clone()).or_default();
            let limit = control.of_key(&strand.key, gate);
            let key = picking.keys.entry(&strand.key);
            key.or_insert_with(|| Key { limit, strands: Vec::new(), only: None, is_back: false, closed: None })
                .strands
                .push(place);
            picking.gates.types.entry(strand.job_type.clone()).or_default();
            let mut heads = strand.heads.clone();
            heads.sort_by_key(|head| Reverse(picking.within_key(head)));
            picking.left.push(heads);
        }
        picking.settle_owners();
        picking.let_come_back();
        picking
    }

    /// The order of the jobs of one key.
    fn within_key(&self, head: &Head) -> (u8, i64, i64) {
        self.control.within_key(head)
    }

    fn gate(&self, key: &str) -> &Gate {
        &self.gates.keys[key]
    }

    /// An ordered key whose job has not ended goes on with that job; one whose job failed halts, or goes on.
    fn settle_owners(&mut self) {
        let names: Vec<&'c str> = self.keys.keys().copied().collect();
        for name in names {
            let Some(owner) = self.gate(name).owner else { continue };
            let state = self.gates.owners.get(name).copied().unwrap_or(Owner::Gone);
            match (self.control.ordered, state) {
                (Some(_), Owner::Unfinished) => {
                    let mut places = self.keys[name].strands.iter();
                    let waits = places.any(|place| self.left[*place].iter().any(|head| head.sequence == owner));
                    let key = self.keys.get_mut(name).expect("its name came from there");
                    (key.only, key.closed) = (Some(owner), (!waits).then_some(Look::Full));
                }
                (Some(AfterFailure::Halt), Owner::Failed) => self.close(name, Look::Full),
                _ => self.gates.keys.get_mut(name).expect("each strand's key has a gate").owner = None,
            }
        }
    }

    /// A key that comes back starts no lower than the lowest turn that is present (rule K10).
    fn let_come_back(&mut self) {
        if !self.control.fair {
            return;
        }
        let is_open = |place: &usize| self.strands[*place].was_open && !self.left[*place].is_empty();
        let is_present = |key: &Key| key.strands.iter().any(is_open);
        let present: BTreeSet<&'c str> =
            self.keys.iter().filter(|(_, key)| is_present(key)).map(|(name, _)| *name).collect();
        let turns = present.iter().map(|name| self.gate(name).turn);
        let lowest = turns.chain(self.gates.lowest).min().unwrap_or(self.gates.queue.turn);
        self.gates.queue.turn = self.gates.queue.turn.max(lowest);
        for (name, key) in self.keys.iter_mut().filter(|(name, _)| !present.contains(*name)) {
            key.is_back = true;
            let gate = self.gates.keys.get_mut(*name).expect("each strand's key has a gate");
            gate.turn = gate.turn.max(lowest);
        }
    }

    fn close(&mut self, key: &str, look: Look) {
        if let Look::At(at) = look {
            self.again_at = earlier(self.again_at, Some(at));
        }
        self.keys.get_mut(key).expect("only keys of strands are closed").closed = Some(look);
    }

    fn take(&mut self, wanted: usize) -> Vec<(usize, Head)> {
        let mut taken = Vec::new();
        let names: Vec<&'c str> = self.keys.keys().copied().collect();
        let mut heap: BinaryHeap<Bid<'c>> = names.into_iter().filter_map(|name| self.bid(name)).collect();
        while taken.len() < wanted && self.gates.queue.room(&self.control.of_queue(), self.now).starts > 0 {
            let best = heap.pop();
            self.ask_for_more(best.as_ref().map(|Reverse((rank, _, _))| *rank));
            let Some(Reverse((_, place, name))) = best.filter(|_| self.more.is_empty()) else { break };
            if self.admits(name, place) {
                taken.push(self.start(name, place));
            }
            heap.extend(self.bid(name));
        }
        taken
    }

    /// Asks for the strands of a type that were not read, where one of them may come before the best that was.
    fn ask_for_more(&mut self, best: Option<Rank>) {
        let (fair, closed) = (self.control.fair, &self.closed_types);
        let is_before = |order: &Order| best.is_none_or(|best| rank(order, fair) < best);
        let unread =
            self.gates.unread.iter().filter(|(job_type, order)| !closed.contains(job_type) && is_before(order));
        self.more = unread.map(|(job_type, _)| job_type.clone()).collect();
    }

    /// The next job of a strand that may go, by its place in what is left.
    fn next(&self, place: usize) -> Option<usize> {
        let left = &self.left[place];
        match self.keys[self.strands[place].key.as_str()].only {
            None => left.len().checked_sub(1),
            Some(only) => left.iter().position(|head| head.sequence == only),
        }
    }

    /// The next job of a key; the smallest of all comes first.
    fn bid(&mut self, name: &'c str) -> Option<Bid<'c>> {
        let key = &self.keys[name];
        if key.closed.is_some() {
            return None;
        }
        let ordered = self.control.ordered.is_some() && !name.is_empty();
        let mut best: Option<((u8, i64, i64), usize, Head)> = None;
        for place in &key.strands {
            let strand = &self.strands[*place];
            if !ordered && (!strand.wanted || self.closed_types.contains(&strand.job_type)) {
                continue;
            }
            match self.next(*place).map(|next| self.left[*place][next]) {
                Some(head) => {
                    let order = self.within_key(&head);
                    if best.as_ref().is_none_or(|(other, _, _)| order < *other) {
                        best = Some((order, *place, head));
                    }
                }
                // More may wait than was read, and the answer hangs on it.
                None if !strand.all && key.only.is_none() => self.short.push(*place),
                None => {}
            }
        }
        let (_, place, head) = best?;
        let strand = &self.strands[place];
        // Where keys are ordered, the next job may be one that is not wanted, or that its type keeps back.
        let may_go = strand.wanted && !self.closed_types.contains(&strand.job_type);
        let was_there = self.control.fair && !self.keys[name].is_back;
        may_go.then(|| Reverse((rank(&self.order(name, &head), was_there), place, name)))
    }

    fn order(&self, name: &str, head: &Head) -> Order {
        let (level, place, sequence) = self.within_key(head);
        let gate = self.gate(name);
        let (class, turn) = match self.control.fair {
            true => (gate.class(self.keys[name].limit.weight), gate.turn),
            false => (0, place),
        };
        Order { level, class, turn, place, sequence }
    }

    /// Whether the gates of type and key let the next job of a strand through; closes the one that does not.
    fn admits(&mut self, name: &'c str, place: usize) -> bool {
        let job_type = &self.strands[place].job_type;
        let room = self.gates.types[job_type].room(&self.control.of_this_type(job_type), self.now);
        if room.starts == 0 {
            self.closed_types.insert(job_type);
            self.again_at = earlier(self.again_at, room.again_at);
            return false;
        }
        self.close_if_full(name);
        self.keys[name].closed.is_none()
    }

    fn close_if_full(&mut self, name: &str) {
        let room = self.gate(name).room(&self.keys[name].limit, self.now);
        if room.starts == 0 && self.keys[name].closed.is_none() {
            self.close(name, room.again_at.map_or(Look::Full, Look::At));
        }
    }

    fn start(&mut self, name: &'c str, place: usize) -> (usize, Head) {
        let (control, now) = (self.control, self.now);
        let job_type = &self.strands[place].job_type;
        let next = self.next(place).expect("a strand that bid has a job");
        let head = self.left[place].remove(next);
        self.gates.queue.take(&control.of_queue(), now);
        let of_type = self.gates.types.get_mut(job_type).expect("each strand's type has a gate");
        of_type.take(&control.of_this_type(job_type), now);
        let limit = self.keys[name].limit;
        let of_key = self.gates.keys.get_mut(name).expect("each strand's key has a gate");
        of_key.take(&limit, now);
        if control.fair {
            of_key.turn += TURN / i64::from(limit.weight.max(1));
        }
        if control.ordered.is_some() && !name.is_empty() {
            of_key.owner = Some(head.sequence);
            self.close(name, Look::Full);
        }
        (place, head)
    }

    /// What became of a strand. A key that has no room is closed, so that the next claim does not meet it again.
    fn looked(&mut self, place: usize) -> Looked {
        let strand = &self.strands[place];
        if self.left[place].is_empty() && strand.all {
            return Looked { order: Order::FIRST, look: Look::Empty };
        }
        self.close_if_full(&strand.key);
        let key = &self.keys[strand.key.as_str()];
        let next_of = |place: usize| self.next(place).map(|next| self.left[place][next]);
        let next = next_of(place);
        // The next job of an ordered key opens its own strand alone.
        let is_behind = self.control.ordered.is_some() && !strand.key.is_empty() && {
            let own = next.map(|head| self.within_key(&head));
            let mut others = key.strands.iter().filter_map(|other| next_of(*other));
            others.any(|other| own.is_none_or(|own| self.within_key(&other) < own))
        };
        let look = key.closed.unwrap_or(if is_behind { Look::Full } else { Look::Open });
        let order = next.map_or(Order::FIRST, |head| self.order(&strand.key, &head));
        Looked { order, look }
    }

    /// By what the gates that were met are closed. While the queue lets nothing through, what it says counts.
    fn blocked(&self) -> BTreeSet<&'static str> {
        if self.left.iter().all(Vec::is_empty) && self.gates.shut.is_empty() {
            return BTreeSet::new();
        }
        if let Some(by) = self.gates.queue.closed_by(&self.control.of_queue(), self.now) {
            return BTreeSet::from([by]);
        }
        let mut blocked = self.gates.shut.clone();
        for job_type in &self.closed_types {
            let limit = self.control.of_this_type(job_type);
            blocked.extend(self.gates.types[*job_type].closed_by(&limit, self.now));
        }
        for (name, key) in &self.keys {
            let waits = key.strands.iter().any(|place| self.strands[*place].wanted && !self.left[*place].is_empty());
            if waits && key.closed.is_some() {
                blocked.extend(self.closed_key(name, key));
            }
        }
        blocked
    }

    /// By what a key is closed.
    fn closed_key(&self, name: &str, key: &Key) -> Option<&'static str> {
        let gate = self.gate(name);
        match (gate.owner.filter(|_| self.control.ordered.is_some()), self.gates.owners.get(name)) {
            (Some(_), Some(Owner::Failed)) => Some(HALTED),
            (Some(_), _) => Some(ORDERED),
            (None, _) => gate.closed_by(&key.limit, self.now),
        }
    }

    /// When to ask again: while the queue lets nothing through, what it says counts.
    fn asked_again_at(&self) -> Option<Timestamp> {
        let room = self.gates.queue.room(&self.control.of_queue(), self.now);
        let waits = self.left.iter().any(|left| !left.is_empty());
        match room.starts {
            0 => room.again_at.filter(|_| waits),
            _ => self.again_at,
        }
    }
}

/// Of two keys with the same turn one that comes back goes first, once.
fn rank(order: &Order, was_there: bool) -> Rank {
    (order.level, order.class, order.turn, was_there, order.place, order.sequence)
}

/// The earlier of two moments, where there are two.
fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
