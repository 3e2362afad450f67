//! What a claim looks at in a controlled queue, as far as the core asks for it.

use std::collections::{BTreeMap, HashMap};

use rusqlite::params;

use super::columns::time;
use super::fault::Answer;
use super::hot_statements::HotStatement;
use super::strands::{Door, StrandRow};
use super::transaction::Transaction;
use crate::flow::{Control, Gate, GateName, Gates, Head, Owner, Picks, Strand, pick};
use crate::job::{JobType, Priority, QueueName, State};

/// How many jobs at the door a claim sorts beyond those it wants.
pub(super) const SORTED: usize = 1000;
/// How many jobs of a strand are read first, beyond its share.
const HEADS: usize = 2;
/// How much more is read where that was not enough.
const GROWTH: usize = 4;

/// The place of a job among those of its key.
type WithinKey = (u8, i64, i64);

/// A job at the door.
pub(super) struct Arrival {
    pub(super) lane: i64,
    pub(super) kind: i64,
    pub(super) head: Head,
    /// How many were read before it: those of its lane and priority stand beside each other.
    pub(super) place: usize,
}

/// What a claim looks at.
pub(super) struct View<'v> {
    pub(super) queue: &'v QueueName,
    pub(super) control: &'v Control,
    pub(super) types: Option<&'v [JobType]>,
    pub(super) doors: Vec<Door>,
    pub(super) gates: Gates,
    /// By lane.
    pub(super) strands: BTreeMap<i64, StrandRow>,
    pub(super) arrivals: HashMap<i64, Vec<Arrival>>,
}

impl View<'_> {
    fn wants(&self, job_type: &JobType) -> bool {
        self.types.is_none_or(|types| types.contains(job_type))
    }

    pub(super) fn add(&mut self, rows: Vec<StrandRow>) {
        for row in rows {
            self.strands.entry(row.lane).or_insert(row);
        }
    }
}

impl Transaction<'_> {
    /// Counts what runs: what claims counted, and what has changed since.
    pub(super) fn count_gates(&self, view: &mut View<'_>, touched: &[StrandRow]) -> Answer<()> {
        for row in touched {
            if let Some(door) = view.doors.iter_mut().find(|door| door.job_type == row.job_type) {
                door.counted = (door.counted + row.running).saturating_sub(row.counted);
            }
        }
        view.gates.queue = self.gate(view.queue, &GateName::Queue)?;
        view.gates.queue.running = view.doors.iter().map(|door| door.counted).sum();
        for door in &view.doors {
            let gate = Gate { running: door.counted, ..door.gate.clone() };
            view.gates.types.insert(door.job_type.clone(), gate);
            if view.control.fair {
                let lowest = self.lowest_turn(view.queue, &door.job_type)?;
                view.gates.lowest = [view.gates.lowest, lowest].into_iter().flatten().min();
            }
        }
        Ok(())
    }

    /// Reads open strands and first jobs, more of them where the core asks for it.
    pub(super) fn pick_from(&mut self, view: &mut View<'_>, wanted: usize) -> Answer<(Vec<Strand>, Picks)> {
        let (mut open, mut heads) = (wanted, HEADS);
        loop {
            if open > 0 {
                self.read_open(view, open)?;
            }
            self.read_keys(view)?;
            let share = wanted / view.strands.len().max(1);
            let strands = self.loaded(view, heads.saturating_add(share))?;
            let picks = pick(view.control, &view.gates, &strands, wanted, self.now);
            if picks.short.is_empty() && picks.more.is_empty() {
                return Ok((strands, picks));
            }
            heads = if picks.short.is_empty() { heads } else { heads.saturating_mul(GROWTH) };
            open = if picks.more.is_empty() { open } else { open.saturating_mul(GROWTH) };
        }
    }

    /// Reads the first open strands of each type that is wanted and has room.
    fn read_open(&mut self, view: &mut View<'_>, limit: usize) -> Answer<()> {
        view.gates.unread.clear();
        let names = view.doors.iter().map(|door| door.job_type.clone()).filter(|job_type| view.wants(job_type));
        for job_type in names.collect::<Vec<_>>() {
            let (gate, limits) = (&view.gates.types[&job_type], view.control.of_this_type(&job_type));
            let room = gate.room(&limits, self.now);
            if let Some(by) = gate.closed_by(&limits, self.now) {
                if !self.open_strands(view.queue, &job_type, 1)?.is_empty() {
                    view.gates.again_at = [view.gates.again_at, room.again_at].into_iter().flatten().min();
                    view.gates.shut.insert(by);
                }
                continue;
            }
            let rows = self.open_strands(view.queue, &job_type, limit)?;
            if let Some(last) = rows.last().filter(|_| rows.len() >= limit) {
                view.gates.unread.insert(job_type, last.order());
            }
            view.add(rows);
        }
        Ok(())
    }

    /// Reads the other strands of the keys that are looked at, and their gates.
    fn read_keys(&mut self, view: &mut View<'_>) -> Answer<()> {
        if view.doors.len() > 1 {
            let keys: std::collections::BTreeSet<&str> = view.strands.values().map(|row| row.key.as_str()).collect();
            let rows = self.strands_of(view.queue, keys)?;
            view.add(rows);
        }
        view.gates.keys.clear();
        for row in view.strands.values() {
            let gate = view.gates.keys.entry(row.key.clone()).or_insert_with(|| row.gate.clone());
            gate.running += row.running;
            gate.turn = if view.control.fair { gate.turn.max(row.order().turn) } else { 0 };
        }
        let owned = view.gates.keys.iter().filter_map(|(key, gate)| Some((key.clone(), gate.owner?)));
        for (key, seq) in owned.collect::<Vec<_>>() {
            let owner = Owner::of(self.load(seq)?.map(|entry| entry.job.state));
            view.gates.owners.insert(key, owner);
        }
        Ok(())
    }

    /// Reads the jobs at the door: of the types that are wanted, or of all where keys are ordered.
    pub(super) fn read_door(&mut self, view: &mut View<'_>, wanted: usize) -> Answer<()> {
        let limit = if view.control.has_strands() { wanted.saturating_add(SORTED) } else { wanted };
        let ordered = view.control.ordered.is_some();
        let (mut found, mut horizon) = (Vec::new(), i64::MAX);
        for door in view.doors.iter().filter(|door| door.waiting > 0 && (ordered || view.wants(&door.job_type))) {
            for priority in Priority::ALL {
                let mut statement = self.statement(include_str!("sql/list_door.sql"))?;
                let most = i64::try_from(limit).unwrap_or(i64::MAX);
                let from = params![door.lane, priority.number(), self.now.as_micros(), most];
                let mut rows = statement.query(from)?;
                let before = found.len();
                while let Some(row) = rows.next()? {
                    let (at, seq, kind): (i64, i64, i64) = (row.get("at")?, row.get("seq")?, row.get("kind")?);
                    let key: Option<String> = row.get("key")?;
                    let head = Head { sequence: seq, priority, position: time(at), at_door: true };
                    let key = view.control.key_of(key.as_deref()).to_owned();
                    let place = found.len();
                    found.push((Arrival { lane: door.lane, kind, head, place }, door.job_type.clone(), key));
                }
                if found.len() - before == limit {
                    horizon = horizon.min(found.last().map_or(i64::MAX, |last| last.0.head.position.as_micros()));
                }
            }
        }
        if ordered {
            // A key must not overtake itself: nothing is sorted beyond the first job that was not read.
            found.retain(|(arrival, _, _)| arrival.head.position.as_micros() <= horizon);
        }
        let mut known: HashMap<(JobType, String), i64> =
            view.strands.values().map(|row| ((row.job_type.clone(), row.key.clone()), row.lane)).collect();
        // Strands that need no look, as far as is known.
        let mut passed: HashMap<i64, StrandRow> = HashMap::new();
        for (arrival, job_type, key) in found {
            let name = (job_type, key);
            let lane = match known.get(&name) {
                Some(lane) => *lane,
                None => {
                    let row = self.strand_of(view.queue, &name.0, &name.1)?;
                    let lane = row.lane;
                    passed.insert(lane, row);
                    known.insert(name, lane);
                    lane
                }
            };
            if passed.get(&lane).is_some_and(|row| !row.goes_on_with(&arrival.head, view.control)) {
                view.add(passed.remove(&lane).into_iter().collect());
            }
            view.arrivals.entry(lane).or_default().push(arrival);
        }
        Ok(())
    }

    /// The strands with their first jobs, those at the door included.
    fn loaded(&mut self, view: &View<'_>, limit: usize) -> Answer<Vec<Strand>> {
        let mut strands = Vec::with_capacity(view.strands.len());
        for row in view.strands.values() {
            let gate = &view.gates.keys[&row.key];
            let arrivals = view.arrivals.get(&row.lane).into_iter().flatten();
            let mut heads: Vec<Head> = arrivals.map(|arrival| arrival.head).collect();
            let mut all = true;
            let owner = gate.owner.filter(|_| {
                view.control.ordered.is_some() && view.gates.owners.get(&row.key) == Some(&Owner::Unfinished)
            });
            match owner {
                // An owner goes alone.
                Some(seq) => {
                    let waits = self.head_of(seq, row.lane)?;
                    heads.retain(|head| head.sequence == seq);
                    heads.extend(waits.filter(|_| heads.is_empty()));
                }
                None if row.waiting > 0 => {
                    // A key without room bids for nothing, whatever waits.
                    let is_closed = gate.room(&view.control.of_key(&row.key, gate), self.now).starts == 0;
                    let (read, last) = self.first_of(row.lane, view.control, if is_closed { 1 } else { limit })?;
                    // What was not read comes after the last of what was, and so does what is at the door beyond that.
                    heads.extend(read);
                    heads.retain(|head| last.is_none_or(|last| view.control.within_key(head) <= last));
                    all = last.is_none();
                }
                None => {}
            }
            strands.push(Strand {
                id: row.lane,
                job_type: row.job_type.clone(),
                key: row.key.clone(),
                wanted: view.wants(&row.job_type),
                was_open: row.is_open(),
                heads,
                all,
            });
        }
        Ok(strands)
    }

    /// The job that an ordered key goes on with, if it waits in this strand and is due.
    fn head_of(&mut self, seq: i64, strand: i64) -> Answer<Option<Head>> {
        let Some(entry) = self.load(seq)? else { return Ok(None) };
        let job = &entry.job;
        let waits = job.state == State::Scheduled && entry.stands_in == strand;
        let lives = job.deadline.is_none_or(|deadline| deadline > self.now);
        let (priority, position) = (job.effective_priority(), job.position);
        Ok((waits && lives).then_some(Head { sequence: seq, priority, position, at_door: false }))
    }

    /// The first jobs of a strand, and from where on more may come.
    fn first_of(&mut self, lane: i64, control: &Control, limit: usize) -> Answer<(Vec<Head>, Option<WithinKey>)> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut last: Option<WithinKey> = None;
        let mut heads = Vec::new();
        if control.ageing.is_none() && control.ordered.is_none() {
            let mut statement = self.take_statement(HotStatement::ListFirst)?;
            let mut rows = statement.query([lane, self.now.as_micros(), most])?;
            while let Some(row) = rows.next()? {
                let priority = Priority::from_number(row.get::<_, u8>(0)?).unwrap_or_default();
                heads.push(Head { sequence: row.get(2)?, priority, position: time(row.get(1)?), at_door: false });
            }
            drop(rows);
            self.give_statement_back(HotStatement::ListFirst, statement);
            last = heads.last().filter(|_| heads.len() >= limit).map(|head| control.within_key(head));
            return Ok((heads, last));
        }
        // Priorities are merged: what comes after the last of one that was not read to its end is not known.
        for priority in Priority::ALL {
            let mut statement = self.statement(include_str!("sql/list_heads.sql"))?;
            let from = params![lane, priority.number(), self.now.as_micros(), most];
            let found = statement.query_map(from, |row| {
                let (at, sequence) = (row.get(0)?, row.get(1)?);
                Ok(Head { sequence, priority, position: time(at), at_door: false })
            })?;
            let found = found.collect::<rusqlite::Result<Vec<Head>>>()?;
            let end = found.last().filter(|_| found.len() >= limit).map(|head| control.within_key(head));
            last = [last, end].into_iter().flatten().min();
            heads.extend(found);
        }
        Ok((heads, last))
    }
}
