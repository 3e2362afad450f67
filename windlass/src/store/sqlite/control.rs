//! Flow control: what operators change of a controlled queue and its gates, and how its keys stand.

use std::collections::BTreeMap;
use std::ops::Bound;

use rusqlite::params;

use super::columns::{json, text};
use super::fault::{Answer, Fault};
use super::job_rows::Entry;
use super::strands::{StrandRow, gate_in};
use super::transaction::Transaction;
use crate::error::Error;
use crate::flow::{
    Change, Control, ControlEdit, ControlRecord, GATE_JOBS_MAX, Gate, GateName, Gates, Head, KeyRecord, Owner, blocked,
};
use crate::job::{AheadByKey, EXPLAIN_SCAN_MAX, JobId, Priority, QueueName, State, Why};
use crate::store::answer::{DOOR_JOBS_MAX, Page};
use crate::store::moving::Flow;
use crate::store::request::{Cursor, KeyQuery, PAGE_MAX};
use crate::store::rules::{self, GateHold};

/// How many lanes are counted before the counts are written.
const COUNTS_GATHERED: usize = 100;

/// Keys, each with its gate and how many of its jobs wait.
type Keys = BTreeMap<String, (Gate, u64)>;

impl Transaction<'_> {
    pub(super) fn controlled(&self, queue: &QueueName) -> Answer<Option<ControlRecord>> {
        let mut statement = self.statement(include_str!("sql/get_control.sql"))?;
        let mut rows = statement.query([queue.as_str()])?;
        match rows.next()? {
            None => Ok(None),
            Some(row) => Ok(json(row, "control")?),
        }
    }

    /// The same; none for one that cannot be read, too, where a settlement, or what mends it, must not fail for it.
    fn control_if_sound(&self, queue: &QueueName) -> Answer<Option<ControlRecord>> {
        match self.controlled(queue) {
            Err(Fault::Broken(_)) => Ok(None),
            found => found,
        }
    }

    /// Hints that a slot of a controlled queue came free.
    pub(super) fn hint_freed(&mut self, queue: &QueueName) -> Answer<()> {
        if self.control_if_sound(queue)?.is_some() {
            self.hint_scheduled(queue);
        }
        Ok(())
    }

    pub(super) fn control(&mut self, edit: &ControlEdit, by: Option<&str>) -> Answer<Option<ControlRecord>> {
        let queue = &edit.queue;
        // One that cannot be read is as good as none: so it can be set anew.
        let stored = self.control_if_sound(queue)?;
        if let Change::Pause(paused) = edit.change {
            self.set_paused(edit, paused, by)?;
            return Ok(stored);
        }
        let gate = match edit.gate() {
            None => Gate::default(),
            Some(name) => self.gate(queue, &name)?,
        };
        let change = edit.decide(stored.clone(), gate, self.now)?;
        if let Some((act, hint)) = rules::controlled(edit, &change, by, self.now) {
            self.record_act(&act)?;
            self.hint(hint);
        }
        let strands = |record: &Option<ControlRecord>| record.as_ref().map(|record| record.control.has_strands());
        self.write_counts()?;
        if change.control != stored {
            let kept = params![queue.as_str(), change.control.as_ref().map(text)];
            self.statement(include_str!("sql/put_control.sql"))?.execute(kept)?;
            let is_fair = |record: &Option<ControlRecord>| record.as_ref().is_some_and(|record| record.control.fair);
            let turns_anew = is_fair(&change.control) != is_fair(&stored);
            self.statement(include_str!("sql/touch_queue.sql"))?.execute(params![queue.as_str(), turns_anew])?;
            if turns_anew {
                self.statement(include_str!("sql/reset_turns.sql"))?.execute([queue.as_str()])?;
            }
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
            if let GateName::Key(key) = name {
                self.touch_key(queue, key)?;
            }
        }
        if let Some(record) = &change.control {
            self.claim_through_gates(queue, &record.control, 0, None, &mut Vec::new())?;
        }
        Ok(change.control)
    }

    /// Takes over the control of a queue that was moved here, and counts what runs in it.
    pub(super) fn take_control(&mut self, queue: &QueueName, record: &ControlRecord) -> Answer<()> {
        let kept = params![queue.as_str(), text(record)];
        self.statement(include_str!("sql/put_control.sql"))?.execute(kept)?;
        self.write_counts()?;
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
            let mut gates: BTreeMap<String, Gate> = BTreeMap::new();
            let mut statement = self.statement(include_str!("sql/list_gates.sql"))?;
            let mut rows = statement.query([queue.as_str()])?;
            while let Some(row) = rows.next()? {
                gates.insert(row.get("name")?, gate_in(row, "gate")?.unwrap_or_default());
            }
            let record = self.controlled(&queue)?;
            if record.as_ref().is_some_and(|record| record.control.fair) {
                let mut statement = self.statement(include_str!("sql/list_key_turns.sql"))?;
                let mut rows = statement.query([queue.as_str()])?;
                while let Some(row) = rows.next()? {
                    let gate = gates.entry(row.get("key")?).or_default();
                    gate.turn = gate.turn.max(row.get("turn")?);
                }
            }
            flow.controls.extend(record.map(|record| (queue.clone(), record)));
            flow.gates.extend(gates.into_iter().map(|(name, gate)| (queue.clone(), name, gate)));
        }
        Ok(flow)
    }

    /// Lets all jobs of a queue stand in their plain lanes again.
    fn unsort_queue(&mut self, queue: &QueueName) -> Answer<()> {
        let mut statement = self.statement(include_str!("sql/list_all_strands.sql"))?;
        let strands = statement.query_map([queue.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let strands: Vec<(i64, i64)> = strands.collect::<rusqlite::Result<_>>()?;
        for chunk in strands.chunks(COUNTS_GATHERED) {
            for (strand, lane) in chunk {
                let mut statement = self.statement(include_str!("sql/get_counts.sql"))?;
                for state in State::ALL {
                    let count: i64 = statement.query_row([strand], |row| row.get(usize::from(state.number())))?;
                    self.count(*strand, state, -count);
                    self.count(*lane, state, count);
                }
                self.statement(include_str!("sql/unsort_ready.sql"))?.execute([strand, lane])?;
            }
            self.write_counts()?;
        }
        self.statement(include_str!("sql/unsort_leased.sql"))?.execute([queue.as_str()])?;
        self.statement(include_str!("sql/reset_lanes.sql"))?.execute([queue.as_str()])?;
        Ok(())
    }

    /// Counts what runs in a queue that comes under control (rule K5).
    fn count_leases(&mut self, queue: &QueueName, control: &Control) -> Answer<()> {
        for door in self.doors(queue)? {
            let mut statement = self.statement(include_str!("sql/list_leased_in.sql"))?;
            let leased = statement.query_map([door.lane], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let leased: Vec<(i64, Option<String>)> = leased.collect::<rusqlite::Result<_>>()?;
            for chunk in leased.chunks(COUNTS_GATHERED) {
                for (seq, key) in chunk {
                    let strand = self.strand_of(queue, &door.job_type, control.key_of(key.as_deref()))?.lane;
                    self.statement(include_str!("sql/sort_leased.sql"))?.execute([*seq, strand])?;
                    self.count(door.lane, State::Running, -1);
                    self.count(strand, State::Running, 1);
                }
                self.write_counts()?;
            }
        }
        Ok(())
    }

    /// Holds gates that settlements asked to hold (rule K8).
    pub(super) fn hold_gates(&mut self, holds: &[GateHold]) -> Answer<()> {
        for GateHold { queue, gate: name, until } in holds {
            if self.control_if_sound(queue)?.is_none() {
                continue;
            }
            let mut gate = self.gate(queue, name)?;
            gate.hold(*until);
            self.put_gate(queue, name, &gate)?;
            if let GateName::Key(key) = name {
                self.touch_key(queue, key)?;
            }
        }
        Ok(())
    }

    /// What became of the job that an ordered key was started with.
    fn owner(&mut self, gate: &Gate) -> Answer<Option<(Owner, JobId)>> {
        let Some(seq) = gate.owner else { return Ok(None) };
        let job = self.load(seq)?.map(|entry| entry.job);
        Ok(job.map(|job| (Owner::of(Some(job.state)), job.id)))
    }

    /// The gates that let nothing of a job through.
    pub(super) fn blocked(&mut self, entry: &Entry) -> Answer<Vec<Why>> {
        let (job, queue) = (&entry.job, &entry.job.spec.queue);
        let Some(ControlRecord { control, .. }) = self.controlled(queue)? else { return Ok(Vec::new()) };
        let key = control.key_of(job.spec.options.key.as_deref());
        let mut gates = Gates { queue: self.gate(queue, &GateName::Queue)?, ..Gates::default() };
        for door in self.doors(queue)? {
            gates.types.insert(door.job_type, Gate { running: door.counted, ..door.gate });
        }
        for strand in self.touched_strands(queue)? {
            if let Some(gate) = gates.types.get_mut(&strand.job_type) {
                gate.running = (gate.running + strand.running).saturating_sub(strand.counted);
            }
        }
        gates.queue.running = gates.types.values().map(|gate| gate.running).sum();
        let mut gate = self.gate(queue, &GateName::Key(key.to_owned()))?;
        gate.running = self.strands_of(queue, [key])?.iter().map(|strand| strand.running).sum();
        let owner = self.owner(&gate)?;
        gates.keys.insert(key.to_owned(), gate);
        let mut closed = blocked(&control, &gates, owner.filter(|(_, id)| *id != job.id), job, self.now);
        for gate in closed.iter_mut().filter(|gate| gate.is_full()) {
            gate.jobs = self.jobs_in(queue, &gate.gate)?;
        }
        Ok(closed.into_iter().map(|gate| gate.why(queue)).collect())
    }

    /// What comes before a job where its queue tells keys apart.
    pub(super) fn ahead_by_key(&mut self, entry: &Entry) -> Answer<Option<AheadByKey>> {
        let (job, queue) = (&entry.job, &entry.job.spec.queue);
        let Some(ControlRecord { control, .. }) = self.controlled(queue)?.filter(|one| one.control.has_strands())
        else {
            return Ok(None);
        };
        let key = control.key_of(job.spec.options.key.as_deref());
        let (priority, position, sequence) = job.claim_order(entry.seq);
        let before = control.before_within_key(&Head { sequence, priority, position, at_door: false }, self.now);
        let (strands, mut jobs, mut keys) = (self.strands_of(queue, [key])?, 0, 0);
        for strand in &strands {
            for (priority, (at, seq)) in before.iter().enumerate() {
                let room = i64::try_from(EXPLAIN_SCAN_MAX - jobs).unwrap_or_default();
                jobs += self.count_before(strand.lane, priority, (*at, *seq), room)?;
            }
        }
        if let Some(own) = strands.iter().filter(|strand| strand.is_open()).map(StrandRow::order).min() {
            let mut statement = self.statement(include_str!("sql/count_keys_ahead.sql"))?;
            let most = EXPLAIN_SCAN_MAX as i64;
            let asked = params![
                queue.as_str(),
                format!("k:{key}"),
                own.level,
                own.class,
                own.turn,
                own.place,
                own.sequence,
                most
            ];
            keys = statement.query_row(asked, |row| row.get::<_, u32>(0))? as usize;
        }
        Ok(Some(AheadByKey { key: key.to_owned(), jobs, keys }))
    }

    /// The jobs in a gate that started first.
    fn jobs_in(&self, queue: &QueueName, gate: &GateName) -> Answer<Vec<JobId>> {
        let (job_type, key) = match gate {
            GateName::Queue => (None, None),
            GateName::Type(job_type) => (Some(job_type.as_str()), None),
            GateName::Key(_) => (None, Some(gate.stored())),
        };
        let mut statement = self.statement(include_str!("sql/list_in_gate.sql"))?;
        let asked = params![queue.as_str(), job_type, key, GATE_JOBS_MAX as i64];
        let found = statement.query_map(asked, |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
        found.into_iter().map(|seq| self.id_of(seq)).collect()
    }

    /// How many due jobs have not been sorted to their keys, up to a limit.
    pub(super) fn at_door(&self, queue: &QueueName) -> Answer<u64> {
        let mut jobs = 0;
        for door in self.doors(queue)?.iter().filter(|door| door.waiting > 0) {
            let mut statement = self.statement(include_str!("sql/count_door.sql"))?;
            let asked = [door.lane, self.now.as_micros(), DOOR_JOBS_MAX as i64];
            jobs += statement.query_row(asked, |row| row.get::<_, u32>(0))?;
        }
        Ok(u64::from(jobs).min(DOOR_JOBS_MAX))
    }

    /// How many due jobs of each key have not been sorted to it, of the first up to a limit.
    fn keys_at_door(&self, queue: &QueueName, control: &Control) -> Answer<BTreeMap<String, u64>> {
        let (mut keys, mut left) = (BTreeMap::new(), DOOR_JOBS_MAX);
        for door in self.doors(queue)?.iter().filter(|door| door.waiting > 0) {
            for priority in Priority::ALL {
                let mut statement = self.statement(include_str!("sql/list_door.sql"))?;
                let asked = params![door.lane, priority.number(), self.now.as_micros(), left as i64];
                let mut rows = statement.query(asked)?;
                while let Some(row) = rows.next()? {
                    let key: Option<String> = row.get("key")?;
                    *keys.entry(control.key_of(key.as_deref()).to_owned()).or_default() += 1;
                    left -= 1;
                }
            }
        }
        keys.remove("");
        Ok(keys)
    }

    pub(super) fn keys(&mut self, query: &KeyQuery) -> Answer<Page<KeyRecord>> {
        let Some(ControlRecord { control, .. }) = self.controlled(&query.queue)? else {
            return Err(Error::not_found("control of queue", query.queue.as_str()).into());
        };
        let limit = query.limit.clamp(1, PAGE_MAX);
        let mut items = Vec::new();
        if let Some(key) = &query.key {
            let mut gate = self.gate(&query.queue, &GateName::Key(key.clone()))?;
            let strands = self.strands_of(&query.queue, [key.as_str()])?;
            gate.running = strands.iter().map(|strand| strand.running).sum();
            let at_door = self.keys_at_door(&query.queue, &control)?.remove(key).unwrap_or_default();
            let waiting = strands.iter().map(|strand| strand.waiting).sum::<u64>() + at_door;
            items.extend(self.key_record(&control, key, &gate, waiting)?);
            return Ok(Page::new(items, None));
        }
        let mut after = query.after.as_ref().map_or_else(String::new, |after| after.0.clone());
        let at_door = self.keys_at_door(&query.queue, &control)?;
        loop {
            let (page, end) = self.keys_after(&query.queue, &after, &at_door)?;
            for (key, (gate, waiting)) in page {
                after = key;
                let record = self.key_record(&control, &after, &gate, waiting)?;
                items.extend(record.filter(|record| !query.blocked || record.state.is_blocked()));
                if items.len() == limit {
                    return Ok(Page::new(items, Some(Cursor(after))));
                }
            }
            if end {
                return Ok(Page::new(items, None));
            }
        }
    }

    /// The next keys with their gates and what waits of them, and whether these are the last.
    fn keys_after(&mut self, queue: &QueueName, after: &str, at_door: &BTreeMap<String, u64>) -> Answer<(Keys, bool)> {
        let strands = self.strands_after(queue, after, PAGE_MAX)?;
        let mut statement = self.statement(include_str!("sql/list_key_gates.sql"))?;
        let most = i64::try_from(PAGE_MAX).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![queue.as_str(), format!("k:{after}"), most])?;
        let mut kept: Vec<(String, Gate)> = Vec::new();
        while let Some(row) = rows.next()? {
            let name = GateName::from_stored(row.get_ref("name")?.as_str()?)?;
            let GateName::Key(key) = name else { continue };
            kept.push((key, gate_in(row, "gate")?.unwrap_or_default()));
        }
        // Beyond the last row of a full page more may come; the strands of that row's key may not all be there.
        let full = [
            strands.last().filter(|_| strands.len() == PAGE_MAX).map(|strand| strand.key.clone()),
            kept.last().filter(|_| kept.len() == PAGE_MAX).map(|(key, _)| key.clone()),
        ];
        let first_unsure = full.into_iter().flatten().min();
        let mut page: Keys = kept.into_iter().map(|(key, gate)| (key, (gate, 0))).collect();
        for strand in strands {
            let (gate, waiting) = page.entry(strand.key).or_insert((strand.gate, 0));
            gate.running += strand.running;
            *waiting += strand.waiting;
        }
        let later = at_door.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        for (key, jobs) in later {
            page.entry(key.clone()).or_default().1 += jobs;
        }
        if let Some(unsure) = &first_unsure {
            page.retain(|key, _| key < unsure);
        }
        Ok((page, first_unsure.is_none()))
    }

    /// How a key stands; none if it has left no trace.
    fn key_record(&mut self, control: &Control, key: &str, gate: &Gate, waiting: u64) -> Answer<Option<KeyRecord>> {
        if waiting == 0 && gate.running == 0 && gate.is_blank(self.now) {
            return Ok(None);
        }
        let owner = self.owner(gate)?;
        Ok(Some(KeyRecord::of(control, key, gate, owner, waiting, self.now)))
    }
}
