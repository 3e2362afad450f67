//! Keys and gates as people see them: lists of keys, and why a job may not start. Nothing is held; what was noted and not taken in
//! by a claim does not count as running.

use std::collections::{BTreeMap, HashMap};

use super::Inner;
use super::control_rows::{GateRows, limit_and_hold, owner_of};
use super::driver_row::Row;
use super::fault::Fault;
use super::job_rows;
use super::lanes::Lane;
use super::link::{Link, Parameter};
use super::turns::Caller;
use crate::error::Error;
use crate::flow::{Control, ControlRecord, GATE_JOBS_MAX, Gate, GateName, Head, KeyRecord, Owner, blocked};
use crate::job::{AheadByKey, EXPLAIN_SCAN_MAX, JobId, JobOptions, JobRecord, JobType, Why};
use crate::store::answer::{DOOR_JOBS_MAX, Page};
use crate::store::request::{Cursor, KeyQuery, PAGE_MAX};
use crate::store::rules::Entry;
use crate::time::Timestamp;

/// How many waiting jobs of a strand are counted.
const WAITING_MAX: i64 = 10_000;
/// How many keys are looked at together, and in all for one page.
const CHUNK: i64 = 500;
const LOOKED_MAX: usize = 20;

/// A key as its strands say.
pub(super) struct KnownKey {
    key: String,
    gate: Gate,
    waiting: u64,
    /// What became of the job that it was started with.
    owner: Option<(Owner, JobId)>,
    turn: i64,
    now: Timestamp,
}

impl KnownKey {
    fn of(row: &Row) -> Result<Self, Fault> {
        let (limit, held_until) = limit_and_hold(row);
        let id = row.get::<_, Option<uuid::Uuid>>("owner_id").map(JobId::from_uuid);
        let gate = Gate { tat: row.get("tat"), held_until, owner: row.get("owner"), limit, ..Gate::default() };
        Ok(KnownKey {
            key: row.get("key"),
            gate,
            waiting: 0,
            owner: id.map(|id| (owner_of(row.get("owner_state")), id)),
            turn: row.get("turn"),
            now: job_rows::time(row.get("now")),
        })
    }

    fn add(&mut self, row: &Row) {
        self.gate.running += u32::try_from(row.get::<_, i32>("running")).unwrap_or_default();
        self.waiting += u64::try_from(row.get::<_, i64>("waiting")).unwrap_or_default();
        self.turn = self.turn.max(row.get("turn"));
    }

    /// Its gate, with its turn where keys take turns.
    pub(super) fn gate(self, control: &Control) -> Gate {
        Gate { turn: if control.fair { self.turn } else { 0 }, ..self.gate }
    }
}

/// Adds what stands at the door to a page of keys: all of it on the last page, or else up to the last key of the page.
fn add_at_door(known: &mut Vec<KnownKey>, at_door: &mut BTreeMap<String, u64>, is_last: bool, now: Timestamp) {
    let rest = match known.last().filter(|_| !is_last) {
        Some(last) => at_door.split_off(&format!("{}\0", last.key)),
        None => BTreeMap::new(),
    };
    for (key, jobs) in std::mem::replace(at_door, rest) {
        let place = known.binary_search_by(|one| one.key.as_str().cmp(&key)).unwrap_or_else(|place| {
            let (gate, waiting, owner, turn) = (Gate::default(), 0, None, 0);
            known.insert(place, KnownKey { key, gate, waiting, owner, turn, now });
            place
        });
        known[place].waiting += jobs;
    }
}

impl Inner {
    /// Keys of a queue after one, by name.
    pub(super) async fn keys_known(
        &self,
        link: &Link<'_>,
        queue: i32,
        after: &str,
        only: Option<&str>,
        most: i64,
    ) -> Result<Vec<KnownKey>, Fault> {
        let time = self.given_time();
        let parameters: [Parameter<'_>; 6] = [&time, &queue, &after, &only, &most, &WAITING_MAX];
        let rows = link.query(include_str!("sql/list_keys.sql"), &parameters).await?;
        let mut known: Vec<KnownKey> = Vec::new();
        for row in &rows {
            if known.last().is_none_or(|last| last.key != row.get::<_, &str>("key")) {
                known.push(KnownKey::of(row)?);
            }
            if let Some(last) = known.last_mut() {
                last.add(row);
            }
        }
        Ok(known)
    }

    async fn control_of(&self, link: &Link<'_>, queue: &str) -> Result<Option<(i32, Control)>, Fault> {
        let rows = link.query(include_str!("sql/get_control.sql"), &[&queue]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let Some(text) = row.get::<_, Option<&str>>("control") else { return Ok(None) };
        let record: ControlRecord = serde_json::from_str(text)?;
        Ok(Some((row.get("queue"), record.control)))
    }

    pub(super) async fn keys(&self, query: &KeyQuery) -> Result<Page<KeyRecord>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let Some((queue, control)) = self.control_of(&link, query.queue.as_str()).await? else {
            return Err(Error::not_found("control of queue", query.queue.as_str()).into());
        };
        // No text of PostgreSQL can hold NUL, and neither can a key.
        let asked = query.key.iter().chain(query.after.iter().map(|after| &after.0));
        if asked.into_iter().any(|text| text.contains('\0')) {
            return Ok(Page::new(Vec::new(), None));
        }
        let limit = query.limit.clamp(1, PAGE_MAX);
        let mut after = query.after.as_ref().map_or(String::new(), |after| after.0.clone());
        let mut items = Vec::new();
        let (mut at_door, time) = self.keys_at_door(&link, queue, &control).await?;
        at_door.retain(|key, _| *key > after && query.key.as_ref().is_none_or(|only| only == key));
        for _ in 0..LOOKED_MAX {
            let mut known = self.keys_known(&link, queue, &after, query.key.as_deref(), CHUNK).await?;
            let is_last = known.len() < usize::try_from(CHUNK).unwrap_or(usize::MAX);
            add_at_door(&mut known, &mut at_door, is_last, time);
            for KnownKey { key, gate, waiting, owner, now, .. } in known {
                after = key;
                if waiting == 0 && gate.running == 0 && gate.is_blank(now) {
                    continue;
                }
                let record = KeyRecord::of(&control, &after, &gate, owner, waiting, now);
                if query.blocked && !record.state.is_blocked() {
                    continue;
                }
                items.push(record);
                if items.len() == limit {
                    return Ok(Page::new(items, Some(Cursor(after))));
                }
            }
            if is_last {
                return Ok(Page::new(items, None));
            }
        }
        Ok(Page::new(items, Some(Cursor(after))))
    }

    /// The gates that let nothing of a job through.
    pub(super) async fn blocked(&self, link: &Link<'_>, job: &JobRecord, now: Timestamp) -> Result<Vec<Why>, Fault> {
        let Some((queue, control)) = self.control_of(link, job.spec.queue.as_str()).await? else {
            return Ok(Vec::new());
        };
        let rows = link.query(include_str!("sql/list_gates.sql"), &[&Some(now.as_micros()), &queue]).await?;
        let mut stored = GateRows::read(&rows);
        for (lane, freed) in self.noted(link, queue).await? {
            if let Some(gate) = stored.types.get_mut(&lane) {
                gate.running = gate.running.saturating_sub(freed);
            }
        }
        stored.queue.running = stored.types.values().map(|gate| gate.running).sum();
        let lanes: Vec<Lane> = stored.types.keys().copied().collect();
        self.lanes.learn_lanes(link, &lanes).await?;
        let mut gates = stored.gates(&self.lanes);
        let key = control.key_of(job.spec.options.key.as_deref());
        let mut owner = None;
        if !key.is_empty() {
            let known = self.keys_known(link, queue, "", Some(key), 1).await?;
            if let Some(known) = known.into_iter().next() {
                owner = known.owner.filter(|(_, id)| *id != job.id);
                gates.keys.insert(key.to_owned(), known.gate(&control));
            }
        }
        let mut closed = blocked(&control, &gates, owner, job, now);
        for gate in closed.iter_mut().filter(|gate| gate.is_full()) {
            gate.jobs = self.jobs_in(link, queue, &lanes, &gate.gate).await?;
        }
        Ok(closed.into_iter().map(|gate| gate.why(&job.spec.queue)).collect())
    }

    /// What comes before a job where its queue tells keys apart.
    pub(super) async fn ahead_by_key(
        &self,
        link: &Link<'_>,
        entry: &Entry,
        now: Timestamp,
    ) -> Result<Option<AheadByKey>, Fault> {
        let job = &entry.job;
        let controlled = self.control_of(link, job.spec.queue.as_str()).await?;
        let Some((queue, control)) = controlled.filter(|(_, control)| control.has_strands()) else { return Ok(None) };
        let key = control.key_of(job.spec.options.key.as_deref());
        let (priority, position, sequence) = job.claim_order(entry.sequence);
        let before = control.before_within_key(&Head { sequence, priority, position, at_door: false }, now);
        let (positions, sequences): (Vec<i64>, Vec<i64>) = before.into_iter().unzip();
        let most = i64::try_from(EXPLAIN_SCAN_MAX).unwrap_or(i64::MAX);
        let parameters: [Parameter<'_>; 5] = [&queue, &key, &positions, &sequences, &most];
        let rows = link.query(include_str!("sql/count_keys_ahead.sql"), &parameters).await?;
        let count =
            |name: &str| rows.first().map_or(0, |row| usize::try_from(row.get::<_, i64>(name)).unwrap_or_default());
        Ok(Some(AheadByKey { key: key.to_owned(), jobs: count("jobs"), keys: count("keys") }))
    }

    /// The jobs in a gate that started first.
    async fn jobs_in(&self, link: &Link<'_>, queue: i32, lanes: &[Lane], gate: &GateName) -> Result<Vec<JobId>, Fault> {
        let is_of =
            |lane: &&Lane, job_type: &JobType| self.lanes.name(**lane).is_some_and(|(_, name)| name == *job_type);
        let (lane, key) = match gate {
            GateName::Queue => (None, None),
            GateName::Type(job_type) => (lanes.iter().find(|lane| is_of(lane, job_type)), None),
            GateName::Key(key) => (None, Some(key)),
        };
        let most = i64::try_from(GATE_JOBS_MAX).unwrap_or(i64::MAX);
        let rows = link.query(include_str!("sql/list_in_gate.sql"), &[&queue, &lane.copied(), &key, &most]).await?;
        Ok(rows.iter().map(|row| JobId::from_uuid(row.get("id"))).collect())
    }

    /// How many due jobs of each key stand at the door, of the first up to a limit; and the time.
    async fn keys_at_door(
        &self,
        link: &Link<'_>,
        queue: i32,
        control: &Control,
    ) -> Result<(BTreeMap<String, u64>, Timestamp), Fault> {
        let (time, most) = (self.given_time(), DOOR_JOBS_MAX as i64);
        let rows = link.query(include_str!("sql/list_door_keys.sql"), &[&time, &queue, &most]).await?;
        let mut keys: BTreeMap<String, u64> = BTreeMap::new();
        for row in &rows {
            let key = row.get::<_, Option<&str>>("options").and_then(JobOptions::key_in);
            *keys.entry(control.key_of(key.as_deref()).to_owned()).or_default() += 1;
        }
        keys.remove("");
        Ok((keys, rows.first().map_or(Timestamp::EPOCH, |row| job_rows::time(row.get("now")))))
    }

    /// How many due jobs stand at the doors of these queues, each up to a limit.
    pub(super) async fn at_doors(&self, link: &Link<'_>, queues: &[i32]) -> Result<HashMap<i32, u64>, Fault> {
        if queues.is_empty() {
            return Ok(HashMap::new());
        }
        let (time, most) = (self.given_time(), DOOR_JOBS_MAX as i64);
        let rows = link.query(include_str!("sql/count_door.sql"), &[&time, &queues, &most]).await?;
        let count = |row: &Row| u64::try_from(row.get::<_, i64>("jobs")).unwrap_or_default();
        Ok(rows.iter().map(|row| (row.get("queue"), count(row))).collect())
    }

    /// How many leases of each lane have ended without a claim having taken that in.
    async fn noted(&self, link: &Link<'_>, queue: i32) -> Result<Vec<(Lane, u32)>, Fault> {
        let rows = link.query(include_str!("sql/count_noted.sql"), &[&queue]).await?;
        let count = |row: &Row| u32::try_from(row.get::<_, i64>("count")).unwrap_or_default();
        Ok(rows.iter().map(|row| (row.get("lane"), count(row))).collect())
    }
}
