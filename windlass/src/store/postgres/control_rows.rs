//! Gates and strands as rows, and what [`pick`](crate::flow::pick) is handed of them.

use std::collections::{BTreeMap, HashMap};

use super::driver_row::Row;
use super::fault::Fault;
use super::job_rows;
use super::lanes::{Lane, Lanes};
use crate::flow::{Control, Gate, Gates, Head, Limit, Look, Looked, Owner, Picks, Strand};
use crate::job::{JobType, Priority, State};
use crate::time::Timestamp;

/// What `look` of a strand says beside a moment.
pub(super) const OPEN: i64 = 0;
/// To be looked at at once, and was open before.
const TOUCHED_OPEN: i64 = 2;
const FULL: i64 = 4_000_000_000_000_000_000;
const EMPTY: i64 = 4_000_000_000_000_000_001;

/// A strand as it is stored, and the first jobs on it.
#[derive(Clone, Debug)]
pub(super) struct StrandRow {
    pub(super) strand: i32,
    pub(super) key: String,
    pub(super) lane: Lane,
    pub(super) kept: Kept,
    limit: Option<Limit>,
    /// The first jobs, and how many were asked for: of each priority, or in all.
    heads: Vec<Head>,
    most: usize,
    of_each_priority: bool,
    owner: Owner,
    /// The job that an ordered key goes on with, if it waits here.
    owner_head: Option<Head>,
}

/// What a claim may change of a strand.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Kept {
    pub(super) look: i64,
    pub(super) level: i16,
    pub(super) class: i16,
    pub(super) turn: i64,
    pub(super) running: i32,
    pub(super) tat: i64,
    pub(super) held_until: Option<i64>,
    pub(super) owner: Option<i64>,
}

impl StrandRow {
    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        let priority: Option<i16> = row.get("owner_priority");
        let owner_seq: Option<i64> = row.get("owner");
        let owner_head = match (owner_seq, priority, row.get::<_, Option<i64>>("owner_due")) {
            (Some(seq), Some(priority), Some(due)) => Some(head(seq, priority, due, false)?),
            _ => None,
        };
        let (limit, held_until) = limit_and_hold(row);
        let mut strand = StrandRow {
            strand: row.get("strand"),
            key: row.get("key"),
            lane: row.get("lane"),
            kept: Kept {
                look: row.get("look"),
                level: row.get("level"),
                class: row.get("class"),
                turn: row.get("turn"),
                running: row.get("running"),
                tat: row.get("tat"),
                held_until: held_until.map(Timestamp::as_micros),
                owner: owner_seq,
            },
            limit,
            heads: Vec::new(),
            most: usize::try_from(row.get::<_, i32>("most")).unwrap_or_default(),
            of_each_priority: row.get("of_each_priority"),
            owner: owner_of(row.get("owner_state")),
            owner_head,
        };
        let seqs: Option<Vec<i64>> = row.get("seqs");
        let priorities: Option<Vec<i16>> = row.get("priorities");
        let dues: Option<Vec<i64>> = row.get("dues");
        if let (Some(seqs), Some(priorities), Some(dues)) = (seqs, priorities, dues) {
            for ((seq, priority), due) in seqs.into_iter().zip(priorities).zip(dues) {
                strand.heads.push(head(seq, priority, due, false)?);
            }
        }
        Ok(strand)
    }

    /// Takes more of its first jobs, which were asked for up to a number of each priority.
    pub(super) fn put_heads(&mut self, heads: Vec<Head>, most: usize) {
        (self.heads, self.most, self.of_each_priority) = (heads, most, true);
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Where its jobs wait: on the strand, or at the door where keys make no difference.
    pub(super) fn stands_in(&self, control: &Control) -> Lane {
        if control.has_strands() { self.strand } else { self.lane }
    }

    /// Up to where its jobs are known; `None` where all are.
    fn read_up_to(&self, control: &Control) -> Option<(u8, i64, i64)> {
        let end_of = |heads: &mut dyn Iterator<Item = &Head>| heads.map(|head| control.within_key(head)).max();
        if !self.of_each_priority {
            return end_of(&mut self.heads.iter()).filter(|_| self.heads.len() >= self.most);
        }
        let mut last: Option<(u8, i64, i64)> = None;
        for priority in Priority::ALL {
            let of_priority = || self.heads.iter().filter(|head| head.priority == priority);
            if of_priority().count() >= self.most {
                last = last.into_iter().chain(end_of(&mut of_priority())).min();
            }
        }
        last
    }

    /// The strand as `pick` is handed it, with those at the door that belong to it.
    fn with_door(&self, control: &Control, job_type: JobType, wanted: bool, door: &[Head]) -> Strand {
        let mut heads = door.to_vec();
        let all = if self.kept.owner.is_some() && control.ordered.is_some() && self.owner == Owner::Unfinished {
            heads.extend(self.owner_head.filter(|head| !door.iter().any(|other| other.sequence == head.sequence)));
            // The others wait for it: the strand is not empty.
            self.heads.is_empty()
        } else {
            // What was not read comes after the last of what was, and so does what is at the door beyond that.
            let last = self.read_up_to(control);
            heads.extend(self.heads.iter().copied());
            heads.retain(|head| last.is_none_or(|last| control.within_key(head) <= last));
            last.is_none()
        };
        let was_open = matches!(self.kept.look, OPEN | TOUCHED_OPEN);
        Strand { id: i64::from(self.strand), job_type, key: self.key.clone(), wanted, was_open, heads, all }
    }
}

/// A key's own limit and hold, from a row of one of its strands. A key whose limit cannot be read is closed, so that it stops its own
/// jobs and no others.
pub(super) fn limit_and_hold(row: &Row) -> (Option<Limit>, Option<Timestamp>) {
    let held_until = row.get::<_, Option<i64>>("held_until").map(job_rows::time);
    match row.get::<_, Option<&str>>("limits").map(serde_json::from_str).transpose() {
        Ok(limit) => (limit, held_until),
        Err(_) => (None, Gate::unreadable().held_until),
    }
}

/// A job that waits, from what its row says.
pub(super) fn head(sequence: i64, priority: i16, due: i64, at_door: bool) -> Result<Head, Fault> {
    let known = u8::try_from(priority).ok().and_then(Priority::from_number);
    let priority = known.ok_or_else(|| job_rows::corrupt("a priority that is none"))?;
    Ok(Head { sequence, priority, position: job_rows::time(due), at_door })
}

/// What became of the job that an ordered key was started with, by its state, if it is there.
pub(super) fn owner_of(state: Option<i16>) -> Owner {
    Owner::of(state.and_then(|state| u8::try_from(state).ok()).and_then(State::from_number))
}

/// The gate of a key from its strands: what runs adds up, the rest is the same on all.
pub(super) fn key_gate<'r>(rows: impl Iterator<Item = &'r StrandRow>, control: &Control) -> Gate {
    let mut gate = Gate::default();
    for row in rows {
        let kept = &row.kept;
        gate.running += u32::try_from(kept.running).unwrap_or_default();
        gate.tat = gate.tat.max(kept.tat);
        gate.held_until = gate.held_until.max(kept.held_until.map(job_rows::time));
        gate.turn = if control.fair { gate.turn.max(kept.turn) } else { 0 };
        gate.owner = gate.owner.or(kept.owner);
        gate.limit = gate.limit.or(row.limit);
    }
    gate
}

/// The stored gates of a queue and its types.
#[derive(Clone, Debug, Default)]
pub(super) struct GateRows {
    pub(super) now: Timestamp,
    /// When time alone opens the next strand.
    pub(super) next: Option<Timestamp>,
    pub(super) swept_at: i64,
    pub(super) queue: Gate,
    pub(super) types: BTreeMap<Lane, Gate>,
}

impl GateRows {
    pub(super) fn read(rows: &[Row]) -> Self {
        let mut gates = GateRows::default();
        for row in rows {
            gates.now = job_rows::time(row.get("now"));
            gates.next = row.get::<_, Option<i64>>("next").map(job_rows::time);
            let gate = Gate {
                running: u32::try_from(row.get::<_, i32>("running")).unwrap_or_default(),
                tat: row.get("tat"),
                held_until: row.get::<_, Option<i64>>("held_until").map(job_rows::time),
                turn: row.get("turn"),
                ..Gate::default()
            };
            match row.get("lane") {
                0 => (gates.queue, gates.swept_at) = (gate, row.get("swept_at")),
                lane => drop(gates.types.insert(lane, gate)),
            }
        }
        gates.queue.running = gates.types.values().map(|gate| gate.running).sum();
        gates
    }

    /// As `pick` and `explain` are handed them.
    pub(super) fn gates(&self, lanes: &Lanes) -> Gates {
        let named = self.types.iter().filter_map(|(lane, gate)| Some((lanes.name(*lane)?.1, gate.clone())));
        Gates { queue: self.queue.clone(), types: named.collect(), ..Gates::default() }
    }
}

/// What a claim looks at: gates, strands by key, and the jobs at the door by strand.
pub(super) struct Board {
    /// Whether an operator paused the queue; no strand is looked at then.
    pub(super) halted: bool,
    pub(super) gates: GateRows,
    pub(super) rows: Vec<StrandRow>,
}

impl Board {
    /// Adds strands that are not there yet; says whether there were any.
    pub(super) fn add(&mut self, rows: &[Row]) -> Result<bool, Fault> {
        let before = self.rows.len();
        let known: std::collections::HashSet<i32> = self.rows.iter().map(|row| row.strand).collect();
        for row in rows.iter().filter(|row| !known.contains(&row.get::<_, i32>("strand"))) {
            self.rows.push(StrandRow::read(row)?);
        }
        Ok(self.rows.len() > before)
    }

    /// What `pick` is handed. Strands of lane 0 only keep what is known of a key.
    pub(super) fn handed(
        &self,
        control: &Control,
        lanes: &Lanes,
        wanted: &[Lane],
        door: &HashMap<(&str, Lane), Vec<Head>>,
    ) -> (Gates, Vec<Strand>, Vec<usize>) {
        let mut gates = self.gates.gates(lanes);
        let mut by_key: HashMap<&str, Vec<&StrandRow>> = HashMap::new();
        for row in &self.rows {
            by_key.entry(&row.key).or_default().push(row);
        }
        for (key, rows) in by_key {
            let gate = key_gate(rows.iter().copied(), control);
            if gate.owner.is_some() {
                gates.owners.insert(key.to_owned(), rows[0].owner);
            }
            gates.keys.insert(key.to_owned(), gate);
        }
        let (mut strands, mut places) = (Vec::new(), Vec::new());
        for (place, row) in self.rows.iter().enumerate() {
            let Some((_, job_type)) = lanes.name(row.lane).filter(|_| row.lane != 0) else { continue };
            let door = door.get(&(row.key.as_str(), row.lane)).map(Vec::as_slice).unwrap_or_default();
            strands.push(row.with_door(control, job_type, wanted.contains(&row.lane), door));
            places.push(place);
        }
        (gates, strands, places)
    }

    /// The strands that have changed, as they are to be written. `places` says which row each strand of the picks is.
    pub(super) fn changed(&self, control: &Control, picks: &Picks, places: &[usize]) -> Vec<(i32, Kept)> {
        let mut looked: HashMap<usize, &Looked> = HashMap::new();
        let mut taken: HashMap<usize, i32> = HashMap::new();
        for (place, look) in places.iter().zip(&picks.strands) {
            looked.insert(*place, look);
        }
        for (strand, _) in &picks.taken {
            *taken.entry(places[*strand]).or_default() += 1;
        }
        let mut changed = Vec::new();
        for (place, row) in self.rows.iter().enumerate() {
            let Some(gate) = picks.gates.keys.get(&row.key) else { continue };
            let mut kept = Kept {
                running: row.kept.running + taken.get(&place).copied().unwrap_or_default(),
                tat: gate.tat,
                held_until: gate.held_until.map(Timestamp::as_micros),
                owner: gate.owner,
                ..row.kept.clone()
            };
            if let Some(Looked { order, look }) = looked.get(&place) {
                kept.look = match look {
                    Look::Open => OPEN,
                    Look::At(at) => at.as_micros(),
                    Look::Full => FULL,
                    Look::Empty => EMPTY,
                };
                if *look != Look::Empty {
                    (kept.level, kept.class) = (i16::from(order.level), i16::from(order.class));
                    kept.turn = order.turn;
                }
            }
            if control.fair {
                kept.turn = gate.turn;
            }
            if kept != row.kept {
                changed.push((row.strand, kept));
            }
        }
        changed
    }

    /// The gates of the queue (lane 0) and of types that have changed.
    pub(super) fn changed_gates(&self, picks: &Picks, lanes: &Lanes) -> Vec<(Lane, Gate)> {
        let mut changed = Vec::new();
        let lanes_of: BTreeMap<JobType, Lane> = {
            let known = self.rows.iter().map(|row| row.lane).chain(self.gates.types.keys().copied());
            known.filter_map(|lane| Some((lanes.name(lane)?.1, lane))).collect()
        };
        for (job_type, gate) in &picks.gates.types {
            let Some(lane) = lanes_of.get(job_type) else { continue };
            if self.gates.types.get(lane).unwrap_or(&Gate::default()) != gate {
                changed.push((*lane, gate.clone()));
            }
        }
        let queue = Gate { running: 0, ..picks.gates.queue.clone() };
        if queue != (Gate { running: 0, ..self.gates.queue.clone() }) {
            changed.push((0, queue));
        }
        changed
    }
}
