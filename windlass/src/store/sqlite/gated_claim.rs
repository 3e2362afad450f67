//! The claim through the gates of a controlled queue.
//!
//! It reads keys to which something has happened, those whose moment has come, those with new jobs, and the first open strands of
//! each type: so it costs what it takes, sorts and looks at, and neither what waits nor how many keys there are. New jobs wait in
//! their plain lane, the door, until a claim sorts them.

use std::collections::{BTreeMap, HashMap, HashSet};

use rusqlite::params;

use super::claim::Passage;
use super::columns::{kind_state, time};
use super::fault::{Answer, Fault};
use super::hot_statements::HotStatement;
use super::job_rows::FLAG_FLOW;
use super::strands::{Door, StrandRow};
use super::transaction::Transaction;
use crate::flow::{Control, Gate, GateName, Gates, Head, Owner, Picks, Strand, pick};
use crate::job::{JobType, Priority, QueueName, State};
use crate::observe;
use crate::store::answer::Claimed;
use crate::store::request::ClaimRequest;
use crate::time::Timestamp;

/// How many jobs at the door a claim sorts beyond those it wants.
const SORTED: usize = 1000;
/// How many jobs of a strand are read first, beyond its share.
const HEADS: usize = 2;
/// How much more is read where that was not enough.
const GROWTH: usize = 4;

/// The place of a job among those of its key.
type WithinKey = (u8, i64, i64);

/// A job at the door.
struct Arrival {
    lane: i64,
    kind: i64,
    head: Head,
    /// How many were read before it: those of its lane and priority stand beside each other.
    place: usize,
}

/// A job that a claim takes.
struct Picked {
    passage: Passage,
    at: i64,
    seq: i64,
    /// Its place among those at the door, if it is there.
    place: Option<usize>,
    /// Its place among those that are taken.
    order: usize,
}

impl Picked {
    /// Whether the next one stands beside it. Of a strand the first jobs are taken, so all of them do.
    fn stands_before(&self, next: &Picked) -> bool {
        self.passage == next.passage && next.place == self.place.map(|place| place + 1)
    }
}

/// What a claim looks at.
struct View<'v> {
    queue: &'v QueueName,
    control: &'v Control,
    types: Option<&'v [JobType]>,
    doors: Vec<Door>,
    gates: Gates,
    /// By lane.
    strands: BTreeMap<i64, StrandRow>,
    arrivals: HashMap<i64, Vec<Arrival>>,
}

impl View<'_> {
    fn wants(&self, job_type: &JobType) -> bool {
        self.types.is_none_or(|types| types.contains(job_type))
    }

    fn add(&mut self, rows: Vec<StrandRow>) {
        for row in rows {
            self.strands.entry(row.lane).or_insert(row);
        }
    }
}

impl Transaction<'_> {
    /// Claims from a controlled queue what all gates let through; gives when to ask again. With nothing wanted, it only looks
    /// at the keys to which something has happened.
    pub(super) fn claim_through_gates(
        &mut self,
        queue: &QueueName,
        control: &Control,
        wanted: usize,
        request: Option<&ClaimRequest>,
        claimed: &mut Vec<Claimed>,
    ) -> Answer<Option<Timestamp>> {
        let types = request.and_then(|request| request.types.as_deref());
        let doors = self.doors(queue)?;
        let (strands, arrivals) = (BTreeMap::new(), HashMap::new());
        let mut view = View { queue, control, types, doors, gates: Gates::default(), strands, arrivals };
        let touched = self.touched_strands(queue)?;
        self.count_gates(&mut view, &touched)?;
        view.add(touched);
        let room = view.gates.queue.room(&control.of_queue(), self.now);
        if room.starts == 0 && wanted > 0 {
            let waits = self.waits(&view)?;
            let why = view.gates.queue.closed_by(&control.of_queue(), self.now);
            observe::claim_blocked(queue, why.filter(|_| waits));
            return Ok(room.again_at.filter(|_| waits));
        }
        let due = self.due_strands(queue)?;
        view.add(due);
        if wanted > 0 {
            self.read_door(&mut view, wanted)?;
        }
        let (strands, picks) = self.pick_from(&mut view, wanted)?;
        self.write_picks(&view, &strands, &picks, request, claimed)?;
        observe::claim_blocked(queue, picks.blocked.iter().copied());
        if control.has_strands() {
            observe::keys_served(queue, picks.key_waits(&strands, self.now));
        }
        let later = self.next_later(queue)?;
        Ok([picks.again_at, later].into_iter().flatten().min())
    }

    /// Whether a job waits that its key does not keep back.
    fn waits(&self, view: &View<'_>) -> Answer<bool> {
        if view.doors.iter().any(|door| door.waiting > 0) || view.strands.values().any(|strand| strand.waiting > 0) {
            return Ok(true);
        }
        let mut statement = self.statement(include_str!("sql/has_open.sql"))?;
        Ok(statement.query_row([view.queue.as_str()], |row| row.get(0))? || self.next_later(view.queue)?.is_some())
    }

    /// Counts what runs: what claims counted, and what has changed since.
    fn count_gates(&self, view: &mut View<'_>, touched: &[StrandRow]) -> Answer<()> {
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
    fn pick_from(&mut self, view: &mut View<'_>, wanted: usize) -> Answer<(Vec<Strand>, Picks)> {
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
    fn read_door(&mut self, view: &mut View<'_>, wanted: usize) -> Answer<()> {
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

    /// Takes what was picked, sorts what was not, and writes how gates and strands are left.
    fn write_picks(
        &mut self,
        view: &View<'_>,
        strands: &[Strand],
        picks: &Picks,
        request: Option<&ClaimRequest>,
        claimed: &mut Vec<Claimed>,
    ) -> Answer<()> {
        let mut taken: HashMap<i64, u32> = HashMap::new();
        let mut gone = HashSet::new();
        for (place, head) in &picks.taken {
            *taken.entry(strands[*place].id).or_default() += 1;
            gone.insert(head.sequence);
        }
        if !picks.taken.is_empty() {
            let request = request.ok_or_else(|| Fault::broken("jobs were picked that nobody wants"))?;
            self.claim_picked(view, strands, picks, request, claimed)?;
        }
        // Where keys make no difference, what may not run yet stays where it is.
        let is_sorted = view.control.has_strands();
        for (strand, arrivals) in view.arrivals.iter().filter(|_| is_sorted) {
            for arrival in arrivals.iter().filter(|arrival| !gone.contains(&arrival.head.sequence)) {
                self.sort(arrival, *strand)?;
            }
        }
        self.write_gates(view, picks)?;
        for (strand, looked) in strands.iter().zip(&picks.strands) {
            let row = &view.strands[&strand.id];
            let counted = row.running + taken.get(&strand.id).copied().unwrap_or_default();
            let turn = Some(picks.gates.keys[&strand.key].turn).filter(|_| view.control.fair);
            self.put_strand(row, counted, Some(*looked).filter(|_| is_sorted), turn)?;
        }
        self.write_counts()?;
        for door in &view.doors {
            let counted = picks.gates.types[&door.job_type].running;
            if counted != door.was_counted {
                self.set_counted(door.lane, counted)?;
            }
        }
        Ok(())
    }

    fn write_gates(&self, view: &View<'_>, picks: &Picks) -> Answer<()> {
        let differs = |was: Option<&Gate>, is: &Gate| {
            let was = was.cloned().unwrap_or_default();
            was != Gate { running: was.running, ..is.clone() }
        };
        let (before, gates) = (&view.gates, &picks.gates);
        if differs(Some(&before.queue), &gates.queue) {
            self.put_gate(view.queue, &GateName::Queue, &gates.queue)?;
        }
        for (job_type, gate) in gates.types.iter().filter(|(name, gate)| differs(before.types.get(*name), gate)) {
            self.put_gate(view.queue, &GateName::Type(job_type.clone()), gate)?;
        }
        for (key, gate) in &gates.keys {
            // The turn of a key is kept with its strands.
            let turn = before.keys.get(key).map_or(0, |gate| gate.turn);
            if differs(before.keys.get(key), &Gate { turn, ..gate.clone() }) {
                self.put_gate(view.queue, &GateName::Key(key.clone()), &Gate { turn: 0, ..gate.clone() })?;
            }
        }
        Ok(())
    }

    /// How many strands and jobs a claim looks at first.
    #[cfg(test)]
    fn looked_at(&mut self, queue: &QueueName, control: &Control, wanted: usize) -> Answer<(usize, usize)> {
        let (doors, gates, strands, arrivals) = (self.doors(queue)?, Gates::default(), BTreeMap::new(), HashMap::new());
        let mut view = View { queue, control, types: None, doors, gates, strands, arrivals };
        let touched = self.touched_strands(queue)?;
        self.count_gates(&mut view, &touched)?;
        view.add(touched);
        let due = self.due_strands(queue)?;
        view.add(due);
        self.read_door(&mut view, wanted)?;
        let (strands, _) = self.pick_from(&mut view, wanted)?;
        Ok((strands.len(), strands.iter().map(|strand| strand.heads.len()).sum()))
    }

    /// Moves a job from the door to its strand.
    fn sort(&mut self, arrival: &Arrival, strand: i64) -> Answer<()> {
        let Arrival { lane, kind, head, .. } = arrival;
        let (priority, at) = (i64::from(head.priority.number()), head.position.as_micros());
        self.execute(HotStatement::SortReady, [*lane, priority, at, head.sequence, strand])?;
        self.execute(HotStatement::DeleteReady, [*lane, priority, at, head.sequence])?;
        self.count(*lane, kind_state(*kind)?, -1);
        self.count(strand, kind_state(*kind)?, 1);
        Ok(())
    }

    /// Claims what was picked, those that stand beside each other at once. Claimed jobs are in the order of the picks.
    fn claim_picked(
        &mut self,
        view: &View<'_>,
        strands: &[Strand],
        picks: &Picks,
        request: &ClaimRequest,
        claimed: &mut Vec<Claimed>,
    ) -> Answer<()> {
        let at_door: HashMap<i64, &Arrival> =
            view.arrivals.values().flatten().map(|arrival| (arrival.head.sequence, arrival)).collect();
        let mut picked: Vec<Picked> = Vec::with_capacity(picks.taken.len());
        for (order, (place, head)) in picks.taken.iter().enumerate() {
            let to = strands[*place].id;
            let arrival = at_door.get(&head.sequence);
            let (from, place) = arrival.map_or((to, None), |arrival| (arrival.lane, Some(arrival.place)));
            let passage = Passage { from, priority: head.priority.number(), to, flag: FLAG_FLOW };
            picked.push(Picked { passage, at: head.position.as_micros(), seq: head.sequence, place, order });
        }
        picked.sort_unstable_by_key(|one| (one.passage.from, one.passage.priority, one.at, one.seq));
        let mut answers: Vec<(usize, Claimed)> = Vec::with_capacity(picked.len());
        for run in picked.chunk_by(Picked::stands_before) {
            let first = &run[0];
            let (mut heads, mut taken) = (Vec::with_capacity(run.len()), Vec::with_capacity(run.len()));
            self.read_claimable(first.passage, (first.at, first.seq - 1), run.len(), |head| heads.push(head))?;
            if heads.iter().map(|head| head.seq).ne(run.iter().map(|one| one.seq)) {
                return Err(Fault::broken(format!("job number {} is not where it was picked", first.seq)));
            }
            for (one, head) in run.iter().zip(heads) {
                answers.push((one.order, self.claim_one(first.passage, head, request, &mut taken)?));
            }
            self.lease(first.passage, &taken, request)?;
        }
        answers.sort_unstable_by_key(|(order, _)| *order);
        claimed.extend(answers.into_iter().map(|(_, claimed)| claimed));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::SqliteStore;
    use super::super::transaction::Names;
    use super::*;
    use crate::clock::SystemClock;
    use crate::flow::{Change, ControlEdit, Limit};
    use crate::job::{Limits, NewJob, Payload, Policies, WorkerId};
    use crate::store::Store;
    use crate::workflow::Submission;

    const KEYS: usize = 20_000;
    const BLOCKED: usize = 20_000;
    const WANTED: usize = 100;

    async fn add(store: &SqliteStore, keys: impl Iterator<Item = String>) {
        let spec = |key: String| {
            let job = NewJob::new("test", Payload::default()).key(key);
            job.check(&Limits::default(), &Policies::default()).expect("valid")
        };
        let specs: Vec<_> = keys.map(spec).collect();
        for chunk in specs.chunks(1000) {
            store.insert(Submission::new(chunk.to_vec()).expect("a batch")).await.expect("inserted");
        }
    }

    #[tokio::test]
    async fn a_claim_reads_what_it_takes_and_not_what_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jobs.db");
        let store = SqliteStore::open(&path).expect("a store");
        let (queue, control) = (QueueName::default(), Control::new().each_key(Limit::running(1)).fair());
        let put = Change::Put { control: control.clone(), version: None, from_code: false };
        store.control(&ControlEdit::new(queue.clone(), put), None).await.expect("controlled");
        let worker = WorkerId::new("test").expect("a name");
        let request = ClaimRequest {
            lease_time: Some(Duration::from_secs(600)),
            ..ClaimRequest::new(worker, queue.clone(), WANTED)
        };
        add(&store, (0..BLOCKED).map(|_| "blocked".to_owned())).await;
        for _ in 0..=BLOCKED / SORTED {
            store.claim(&request).await.expect("claim");
        }
        add(&store, (0..KEYS).map(|number| format!("k{number}"))).await;
        // Each claim sorts a part of them.
        for _ in 0..=KEYS / SORTED {
            assert_eq!(store.claim(&request).await.expect("claim").len(), WANTED);
        }
        let conn = rusqlite::Connection::open(&path).expect("open");
        let mut names = Names::default();
        let mut tx = Transaction::begin(&conn, &mut names, &SystemClock::default()).expect("begun");
        let (strands, jobs) = tx.looked_at(&queue, &control, WANTED).expect("read");
        assert!(strands <= WANTED + 1, "{strands} strands were looked at");
        assert!(jobs <= 3 * WANTED, "{jobs} jobs were looked at");
        let scans = include_str!("sql/list_open.sql");
        let mut plan = conn.prepare(&format!("explain query plan {scans}")).expect("a plan");
        let plan: Vec<String> = plan
            .query_map(params!["default", "test", 100], |row| row.get::<_, String>(3))
            .and_then(Iterator::collect)
            .expect("a plan");
        assert!(plan.iter().any(|step| step.contains("windlass_lane_open")), "{plan:?}");
        assert!(!plan.iter().any(|step| step.starts_with("SCAN") || step.contains("TEMP B-TREE")), "{plan:?}");
    }
}
