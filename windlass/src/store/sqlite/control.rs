//! Flow control: a claim through the gates of a controlled queue, and what operators change of them.
//!
//! The jobs of one key and type stand in a lane of their own, a strand, so that what waits and runs of a key is counted as
//! that of any lane is: whatever ends a lease lowers the count, and nothing can be forgotten. New jobs wait in their plain lane,
//! the door, until a claim sorts them. A claim looks at every strand that has jobs, so it costs what the keys with jobs are,
//! and not what waits.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{OptionalExtension, params};

use super::columns::{json, kind_state, text, time};
use super::fault::{Answer, Fault};
use super::hot_statements::HotStatement;
use super::job_rows::{Entry, FLAG_FLOW};
use super::transaction::Transaction;
use crate::error::Error;
use crate::flow::{
    Change, Control, ControlEdit, ControlRecord, Gate, GateName, Gates, Head, KeyRecord, Look, Owner, Picks, Strand,
    blocked, pick,
};
use crate::job::{JobId, JobType, Lease, Priority, QueueName, State, Why};
use crate::store::answer::{Claimed, Page};
use crate::store::ids::lease_token;
use crate::store::moving::Flow;
use crate::store::request::{ClaimRequest, Cursor, KeyQuery, PAGE_MAX};
use crate::store::rules::{self, GateHold};
use crate::time::Timestamp;

/// How many jobs at the door a claim sorts beyond those it wants.
const SORTED: usize = 1000;
/// How many jobs of a strand are read first.
const HEADS: usize = 4;

/// A strand as it is stored.
struct Row {
    lane: i64,
    job_type: JobType,
    key: String,
    waiting: u64,
    running: u32,
}

/// A job at the door.
struct Arrival {
    lane: i64,
    kind: i64,
    head: Head,
    strand: i64,
}

/// The owners of ordered keys, and their jobs.
type Owners = HashMap<String, (Owner, JobId)>;

impl Transaction<'_> {
    pub(super) fn controlled(&self, queue: &QueueName) -> Answer<Option<ControlRecord>> {
        let mut statement = self.statement(include_str!("sql/get_control.sql"))?;
        let mut rows = statement.query([queue.as_str()])?;
        match rows.next()? {
            None => Ok(None),
            Some(row) => Ok(json(row, "control")?),
        }
    }

    /// Hints that a slot of a controlled queue came free.
    pub(super) fn hint_freed(&mut self, queue: &QueueName) -> Answer<()> {
        if self.controlled(queue)?.is_some() {
            self.hint_scheduled(queue);
        }
        Ok(())
    }

    fn strands(&self, queue: &QueueName) -> Answer<Vec<Row>> {
        let mut statement = self.statement(include_str!("sql/list_strands.sql"))?;
        let mut rows = statement.query([queue.as_str()])?;
        let mut strands = Vec::new();
        while let Some(row) = rows.next()? {
            let key: String = row.get("key")?;
            strands.push(Row {
                lane: row.get("lane")?,
                job_type: JobType::new(row.get::<_, String>("type")?)?,
                key: key.get(2..).unwrap_or_default().to_owned(),
                waiting: row.get::<_, u32>("waiting")?.into(),
                running: row.get("running")?,
            });
        }
        Ok(strands)
    }

    /// The strand of a key, made if it is new.
    fn strand_of(&mut self, queue: &QueueName, job_type: &JobType, key: &str) -> Answer<i64> {
        let names = params![queue.as_str(), job_type.as_str(), format!("k:{key}")];
        let found =
            self.statement(include_str!("sql/find_strand.sql"))?.query_row(names, |row| row.get(0)).optional()?;
        match found {
            Some(lane) => Ok(lane),
            None => Ok(self.statement(include_str!("sql/add_strand.sql"))?.insert(names)?),
        }
    }

    /// The gates of a queue with what runs in each, and what became of the owners of ordered keys.
    fn gates(&mut self, queue: &QueueName, strands: &[Row]) -> Answer<(Gates, Owners)> {
        let mut gates = Gates::default();
        let mut statement = self.statement(include_str!("sql/list_gates.sql"))?;
        let mut rows = statement.query([queue.as_str()])?;
        while let Some(row) = rows.next()? {
            let gate: Gate = json(row, "gate")?.ok_or_else(|| Fault::broken("a gate without its numbers"))?;
            match GateName::from_stored(row.get_ref("name")?.as_str()?)? {
                GateName::Queue => gates.queue = gate,
                GateName::Type(job_type) => drop(gates.types.insert(job_type, gate)),
                GateName::Key(key) => drop(gates.keys.insert(key, gate)),
            }
        }
        for strand in strands {
            gates.queue.running += strand.running;
            gates.types.entry(strand.job_type.clone()).or_default().running += strand.running;
            gates.keys.entry(strand.key.clone()).or_default().running += strand.running;
        }
        let owned: Vec<(String, i64)> =
            gates.keys.iter().filter_map(|(key, gate)| Some((key.clone(), gate.owner?))).collect();
        let mut owners = HashMap::new();
        for (key, seq) in owned {
            let job = self.load(seq)?.map(|entry| entry.job);
            let owner = Owner::of(job.as_ref().map(|job| job.state));
            owners.extend(job.map(|job| (key.clone(), (owner, job.id))));
            gates.owners.insert(key, owner);
        }
        Ok((gates, owners))
    }

    fn put_gate(&self, queue: &QueueName, name: &GateName, gate: &Gate) -> Answer<()> {
        let name = name.stored();
        match *gate == (Gate { running: gate.running, ..Gate::default() }) {
            true => self.statement(include_str!("sql/delete_gate.sql"))?.execute(params![queue.as_str(), name])?,
            false => {
                let kept = params![queue.as_str(), name, text(gate)];
                self.statement(include_str!("sql/put_gate.sql"))?.execute(kept)?
            }
        };
        Ok(())
    }

    /// Claims from a controlled queue what all gates let through; gives when to ask again.
    pub(super) fn claim_through_gates(
        &mut self,
        queue: &QueueName,
        control: &Control,
        wanted: usize,
        request: &ClaimRequest,
        claimed: &mut Vec<Claimed>,
    ) -> Answer<Option<Timestamp>> {
        let types = request.types.as_deref();
        let door = self.arrivals(queue, control, types, wanted)?;
        let mut rows = self.strands(queue)?;
        for arrival in door.values().flatten() {
            if !rows.iter().any(|row| row.lane == arrival.strand) {
                let (_, job_type) = self.names_of(arrival.lane)?;
                let key = self.key_of_strand(arrival.strand)?;
                rows.push(Row { lane: arrival.strand, job_type, key, waiting: 0, running: 0 });
            }
        }
        let (gates, _) = self.gates(queue, &rows)?;
        let mut limit = HEADS;
        let (strands, picks) = loop {
            let strands = self.loaded(control, &rows, &gates, &door, types, limit)?;
            let picks = pick(control, &gates, &strands, wanted, self.now);
            if picks.short.is_empty() {
                break (strands, picks);
            }
            limit = limit.saturating_mul(8);
        };
        self.write_gates(queue, &gates, &picks, &strands)?;
        for arrival in door.values().flatten() {
            let is_taken = picks.taken.iter().any(|(_, head)| head.sequence == arrival.head.sequence);
            // Where keys make no difference, what may not run yet stays where it is.
            if !is_taken && control.has_strands() {
                self.sort(arrival)?;
            }
        }
        for (place, head) in &picks.taken {
            claimed.push(self.claim_picked(strands[*place].id, head.sequence, request)?);
        }
        Ok(picks.again_at)
    }

    fn key_of_strand(&self, lane: i64) -> Answer<String> {
        let mut statement = self.statement(include_str!("sql/get_strand.sql"))?;
        let key: String = statement.query_row([lane], |row| row.get(0))?;
        Ok(key.get(2..).unwrap_or_default().to_owned())
    }

    /// The jobs at the door, by strand: of the types that are wanted, or of all where keys are ordered.
    fn arrivals(
        &mut self,
        queue: &QueueName,
        control: &Control,
        types: Option<&[JobType]>,
        wanted: usize,
    ) -> Answer<BTreeMap<i64, Vec<Arrival>>> {
        let mut statement = self.statement(include_str!("sql/list_doors.sql"))?;
        let doors = statement.query_map([queue.as_str()], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
        let doors: Vec<(i64, String)> = doors.collect::<rusqlite::Result<_>>()?;
        let limit = wanted.saturating_add(SORTED);
        let (mut found, mut horizon) = (Vec::new(), i64::MAX);
        for (lane, name) in doors {
            let job_type = JobType::new(name)?;
            if control.ordered.is_none() && types.is_some_and(|types| !types.contains(&job_type)) {
                continue;
            }
            for priority in Priority::ALL {
                let mut statement = self.statement(include_str!("sql/list_door.sql"))?;
                let from =
                    params![lane, priority.number(), self.now.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX)];
                let mut rows = statement.query(from)?;
                let before = found.len();
                while let Some(row) = rows.next()? {
                    let (at, seq, kind): (i64, i64, i64) = (row.get("at")?, row.get("seq")?, row.get("kind")?);
                    let key: Option<String> = row.get("key")?;
                    let head = Head { sequence: seq, priority, position: time(at), at_door: true };
                    found.push((lane, kind, head, job_type.clone(), control.key_of(key.as_deref()).to_owned()));
                }
                if found.len() - before == limit {
                    horizon = horizon.min(found.last().map_or(i64::MAX, |last| last.2.position.as_micros()));
                }
            }
        }
        if control.ordered.is_some() {
            // A key must not overtake itself: nothing is sorted beyond the first job that was not read.
            found.retain(|arrival| arrival.2.position.as_micros() <= horizon);
        }
        let mut strands: HashMap<(JobType, String), i64> = HashMap::new();
        let mut door: BTreeMap<i64, Vec<Arrival>> = BTreeMap::new();
        for (lane, kind, head, job_type, key) in found {
            let strand = match strands.get(&(job_type.clone(), key.clone())) {
                Some(strand) => *strand,
                None => self.strand_of(queue, &job_type, &key)?,
            };
            strands.insert((job_type, key), strand);
            door.entry(strand).or_default().push(Arrival { lane, kind, head, strand });
        }
        Ok(door)
    }

    /// The strands with their first jobs, those at the door included.
    fn loaded(
        &mut self,
        control: &Control,
        rows: &[Row],
        gates: &Gates,
        door: &BTreeMap<i64, Vec<Arrival>>,
        types: Option<&[JobType]>,
        limit: usize,
    ) -> Answer<Vec<Strand>> {
        let mut strands = Vec::with_capacity(rows.len());
        for row in rows {
            let gate = gates.keys.get(&row.key).cloned().unwrap_or_default();
            let mut heads: Vec<Head> = door.get(&row.lane).into_iter().flatten().map(|arrival| arrival.head).collect();
            let mut all = true;
            let owner = gate.owner.filter(|_| gates.owners.get(&row.key) == Some(&Owner::Unfinished));
            // A key without room bids for nothing, whatever waits; an owner goes alone.
            let is_closed = gate.room(&control.of_key(&row.key, &gate), self.now).starts == 0;
            match owner {
                Some(seq) => heads.extend(
                    self.head_of(seq, row.lane)?
                        .filter(|head| !heads.iter().any(|other| other.sequence == head.sequence)),
                ),
                None if row.waiting > 0 => {
                    let read = self.read_heads(row.lane, if is_closed { 1 } else { limit })?;
                    // What was not read comes after the last of what was, and so does what is at the door beyond that.
                    let last = read.iter().filter_map(|(heads, all)| heads.last().filter(|_| !all));
                    let last = last.map(|head| control.within_key(head)).min();
                    heads.extend(read.into_iter().flat_map(|(heads, _)| heads));
                    heads.retain(|head| last.is_none_or(|last| control.within_key(head) <= last));
                    all = last.is_none();
                }
                None => {}
            }
            strands.push(Strand {
                id: row.lane,
                job_type: row.job_type.clone(),
                key: row.key.clone(),
                wanted: types.is_none_or(|types| types.contains(&row.job_type)),
                was_open: gate.open,
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

    /// Reads the first jobs of a strand, up to a number of each priority; with each priority, whether these are all.
    fn read_heads(&mut self, lane: i64, limit: usize) -> Answer<Vec<(Vec<Head>, bool)>> {
        let mut read = Vec::with_capacity(Priority::ALL.len());
        for priority in Priority::ALL {
            let mut statement = self.statement(include_str!("sql/list_heads.sql"))?;
            let from = params![lane, priority.number(), self.now.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX)];
            let found = statement.query_map(from, |row| {
                let (at, sequence) = (row.get(0)?, row.get(1)?);
                Ok(Head { sequence, priority, position: time(at), at_door: false })
            })?;
            let heads = found.collect::<rusqlite::Result<Vec<Head>>>()?;
            let all = heads.len() < limit;
            read.push((heads, all));
        }
        Ok(read)
    }

    fn write_gates(&self, queue: &QueueName, before: &Gates, picks: &Picks, strands: &[Strand]) -> Answer<()> {
        let differs = |was: Option<&Gate>, is: &Gate| {
            let was = was.cloned().unwrap_or_default();
            was != Gate { running: was.running, ..is.clone() }
        };
        let gates = &picks.gates;
        if differs(Some(&before.queue), &gates.queue) {
            self.put_gate(queue, &GateName::Queue, &gates.queue)?;
        }
        for (job_type, gate) in gates.types.iter().filter(|(name, gate)| differs(before.types.get(*name), gate)) {
            self.put_gate(queue, &GateName::Type(job_type.clone()), gate)?;
        }
        for (key, gate) in &gates.keys {
            let mut looks = strands.iter().zip(&picks.strands).filter(|(strand, _)| strand.key == *key);
            let open = looks.any(|(_, looked)| looked.look == Look::Open);
            let gate = Gate { open, ..gate.clone() };
            if differs(before.keys.get(key), &gate) {
                self.put_gate(queue, &GateName::Key(key.clone()), &gate)?;
            }
        }
        Ok(())
    }

    /// Moves a job from the door to its strand.
    fn sort(&mut self, arrival: &Arrival) -> Answer<()> {
        let Arrival { lane, kind, head, strand } = arrival;
        let (priority, at) = (i64::from(head.priority.number()), head.position.as_micros());
        let mut statement = self.statement(include_str!("sql/sort_ready.sql"))?;
        statement.execute([*lane, priority, at, head.sequence, *strand])?;
        self.execute(HotStatement::DeleteReady, [*lane, priority, at, head.sequence])?;
        self.count(*lane, kind_state(*kind)?, -1);
        self.count(*strand, kind_state(*kind)?, 1);
        Ok(())
    }

    fn claim_picked(&mut self, strand: i64, seq: i64, request: &ClaimRequest) -> Answer<Claimed> {
        let mut entry = self.known(seq)?;
        let token = lease_token(seq);
        self.leave(&entry)?;
        let claimed = entry.job.claim(&request.worker, request.lease_time, self.now);
        claimed.map_err(|error| Fault::broken(error.to_string()))?;
        (entry.token, entry.stands_in) = (Some(token), strand);
        entry.flags |= FLAG_FLOW;
        self.enter(&mut entry)?;
        let job = entry.job;
        let expires_at = job.lease.as_ref().map_or(self.now, |lease| lease.expires_at);
        let lease = Lease::granted(&job, token);
        Ok(Claimed { job, lease, expires_in: expires_at.since(self.now) })
    }

    pub(super) fn control(&mut self, edit: &ControlEdit, by: Option<&str>) -> Answer<Option<ControlRecord>> {
        let queue = &edit.queue;
        let stored = self.controlled(queue)?;
        if let Change::Pause(paused) = edit.change {
            self.set_paused(edit, paused, by)?;
            return Ok(stored);
        }
        let gate = match edit.gate() {
            None => Gate::default(),
            Some(name) => {
                let (gates, _) = self.gates(queue, &[])?;
                match name {
                    GateName::Queue => gates.queue,
                    GateName::Type(job_type) => gates.types.get(&job_type).cloned().unwrap_or_default(),
                    GateName::Key(key) => gates.keys.get(&key).cloned().unwrap_or_default(),
                }
            }
        };
        let change = edit.decide(stored.clone(), gate, self.now)?;
        if let Some((act, hint)) = rules::controlled(edit, &change, by, self.now) {
            self.record_act(&act)?;
            self.hint(hint);
        }
        let strands = |record: &Option<ControlRecord>| record.as_ref().map(|record| record.control.has_strands());
        if change.control != stored {
            let kept = params![queue.as_str(), change.control.as_ref().map(text)];
            self.statement(include_str!("sql/put_control.sql"))?.execute(kept)?;
        }
        if strands(&change.control) != strands(&stored) {
            self.unsort_queue(queue)?;
            match &change.control {
                Some(record) => self.count_leases(queue, &record.control)?,
                None => drop(self.statement(include_str!("sql/delete_gates.sql"))?.execute([queue.as_str()])?),
            }
        }
        if let Some((name, gate)) = &change.gate {
            self.put_gate(queue, name, gate)?;
        }
        Ok(change.control)
    }

    /// Takes over the control of a queue that was moved here, and counts what runs in it.
    pub(super) fn take_control(&mut self, queue: &QueueName, record: &ControlRecord) -> Answer<()> {
        let kept = params![queue.as_str(), text(record)];
        self.statement(include_str!("sql/put_control.sql"))?.execute(kept)?;
        self.unsort_queue(queue)?;
        self.count_leases(queue, &record.control)
    }

    /// The flow control of all queues, and what is kept of their gates.
    pub(super) fn flow(&mut self) -> Answer<Flow> {
        let mut statement = self.statement(include_str!("sql/list_controlled.sql"))?;
        let queues = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut flow = Flow::default();
        for queue in queues {
            let queue = QueueName::new(queue)?;
            flow.controls.extend(self.controlled(&queue)?.map(|record| (queue.clone(), record)));
            let mut statement = self.statement(include_str!("sql/list_gates.sql"))?;
            let mut rows = statement.query([queue.as_str()])?;
            while let Some(row) = rows.next()? {
                let gate: Gate = json(row, "gate")?.ok_or_else(|| Fault::broken("a gate without its numbers"))?;
                flow.gates.push((queue.clone(), row.get("name")?, gate));
            }
        }
        Ok(flow)
    }

    /// Lets all jobs of a queue stand in their plain lanes again.
    fn unsort_queue(&mut self, queue: &QueueName) -> Answer<()> {
        self.write_counts()?;
        let mut statement = self.statement(include_str!("sql/list_all_strands.sql"))?;
        let strands = statement.query_map([queue.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let strands: Vec<(i64, i64)> = strands.collect::<rusqlite::Result<_>>()?;
        for (strand, lane) in strands {
            let mut statement = self.statement(include_str!("sql/get_counts.sql"))?;
            for state in State::ALL {
                let count: i64 = statement.query_row([strand], |row| row.get(usize::from(state.number())))?;
                self.count(strand, state, -count);
                self.count(lane, state, count);
            }
            self.statement(include_str!("sql/unsort_ready.sql"))?.execute([strand, lane])?;
            self.statement(include_str!("sql/unsort_leased.sql"))?.execute([strand, lane])?;
        }
        self.write_counts()
    }

    /// Counts what runs in a queue that comes under control (rule K5).
    fn count_leases(&mut self, queue: &QueueName, control: &Control) -> Answer<()> {
        for lane in self.lanes()?.into_iter().filter(|lane| lane.queue == queue.as_str()) {
            let job_type = JobType::new(lane.job_type)?;
            let mut statement = self.statement(include_str!("sql/list_leased_in.sql"))?;
            let leased = statement.query_map([lane.lane], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let leased: Vec<(i64, Option<String>)> = leased.collect::<rusqlite::Result<_>>()?;
            for (seq, key) in leased {
                let strand = self.strand_of(queue, &job_type, control.key_of(key.as_deref()))?;
                self.statement(include_str!("sql/sort_leased.sql"))?.execute([seq, strand])?;
                self.count(lane.lane, State::Running, -1);
                self.count(strand, State::Running, 1);
            }
        }
        self.write_counts()
    }

    /// Holds gates that settlements asked to hold (rule K8).
    pub(super) fn hold_gates(&mut self, holds: &[GateHold]) -> Answer<()> {
        for GateHold { queue, gate: name, until } in holds {
            if self.controlled(queue)?.is_none() {
                continue;
            }
            let (gates, _) = self.gates(queue, &[])?;
            let mut gate = match name {
                GateName::Queue => gates.queue,
                GateName::Type(job_type) => gates.types.get(job_type).cloned().unwrap_or_default(),
                GateName::Key(key) => gates.keys.get(key).cloned().unwrap_or_default(),
            };
            gate.hold(*until);
            self.put_gate(queue, name, &gate)?;
        }
        Ok(())
    }

    /// Forgets gates that say nothing, of keys without jobs (rule K16).
    pub(super) fn forget_gates(&mut self) -> Answer<()> {
        let mut statement = self.statement(include_str!("sql/list_controlled.sql"))?;
        let queues = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
        if queues.is_empty() {
            return Ok(());
        }
        self.write_counts()?;
        for queue in queues {
            let queue = QueueName::new(queue)?;
            let strands = self.strands(&queue)?;
            let (gates, _) = self.gates(&queue, &[])?;
            for (key, gate) in &gates.keys {
                if gate.is_blank(self.now) && !strands.iter().any(|strand| strand.key == *key) {
                    self.put_gate(&queue, &GateName::Key(key.clone()), &Gate::default())?;
                }
            }
        }
        Ok(())
    }

    /// The gates that let nothing of a job through.
    pub(super) fn blocked(&mut self, entry: &Entry) -> Answer<Vec<Why>> {
        let job = &entry.job;
        let Some(ControlRecord { control, .. }) = self.controlled(&job.spec.queue)? else { return Ok(Vec::new()) };
        let strands = self.strands(&job.spec.queue)?;
        let (gates, owners) = self.gates(&job.spec.queue, &strands)?;
        let owner = owners.get(control.key_of(job.spec.options.key.as_deref())).copied();
        Ok(blocked(&control, &gates, owner.filter(|(_, id)| *id != job.id), job, self.now))
    }

    pub(super) fn keys(&mut self, query: &KeyQuery) -> Answer<Page<KeyRecord>> {
        let Some(ControlRecord { control, .. }) = self.controlled(&query.queue)? else {
            return Err(Error::not_found("control of queue", query.queue.as_str()).into());
        };
        let strands = self.strands(&query.queue)?;
        let (mut gates, owners) = self.gates(&query.queue, &strands)?;
        for strand in &strands {
            gates.keys.entry(strand.key.clone()).or_default();
        }
        let after = query.after.as_ref().map_or("", |after| after.0.as_str());
        let limit = query.limit.clamp(1, PAGE_MAX);
        let mut items = Vec::new();
        for (key, gate) in gates.keys.iter().filter(|(key, _)| key.as_str() > after) {
            if query.key.as_ref().is_some_and(|wanted| wanted != key) {
                continue;
            }
            let of_key = strands.iter().filter(|strand| strand.key == *key);
            let waiting: u64 = of_key.map(|strand| strand.waiting).sum();
            if waiting == 0 && gate.running == 0 && gate.is_blank(self.now) {
                continue;
            }
            let record = KeyRecord::of(&control, key, gate, owners.get(key).copied(), waiting, self.now);
            if query.blocked && !record.state.is_blocked() {
                continue;
            }
            items.push(record);
            if items.len() == limit {
                return Ok(Page { items, next: Some(Cursor(key.clone())) });
            }
        }
        Ok(Page { items, next: None })
    }
}
