//! One transaction: the connection, the moment it happens at, and the numbers it will write when it ends.
//!
//! Counts are gathered in memory and written once at the end, so that a batch of a thousand jobs changes each counter
//! once. Everything that reads or writes jobs is a method of [`Transaction`], in the file named after the store's method.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::fault::{Answer, Fault};
use super::hot_statements::{HOT_STATEMENTS, HotStatement};
use super::insert_batch::PlainJob;
use crate::clock::{BEAT_EVERY, Clock, LAPSING, Pulse};
use crate::job::{JobId, JobOptions, JobSpec, JobType, QueueName, State};
use crate::store::answer::Wake;
use crate::store::ids::IdKey;
use crate::store::moving::Closed;
use crate::store::observe::{AttemptCount, ended_place};
use crate::store::rules;
use crate::time::Timestamp;

/// A queue and a type.
pub(super) type LaneNames = (QueueName, JobType);

/// Names of lanes that a connection has seen committed. Lanes that are no strands are never renamed or removed.
#[derive(Default, Debug)]
pub(super) struct Names {
    lanes: HashMap<LaneNames, i64>,
    names: HashMap<i64, LaneNames>,
}

impl Names {
    fn learn(&mut self, lane: i64, names: &LaneNames) {
        self.lanes.insert(names.clone(), lane);
        self.names.insert(lane, names.clone());
    }

    /// Forgets everything: a lane made in a transaction that was undone does not exist.
    pub(super) fn forget(&mut self) {
        *self = Names::default();
    }
}

/// The row of numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Numbers {
    accepted: i64,
    pruned: i64,
    tick: i64,
    latest: i64,
}

/// A transaction that has begun.
pub(super) struct Transaction<'c> {
    pub(super) conn: &'c Connection,
    pub(super) now: Timestamp,
    /// Whether a gap without upkeep counts as an absence of the store.
    minds_absences: bool,
    names: &'c mut Names,
    key: IdKey,
    /// Why the store takes no writes, if it does not.
    closed: Option<Box<str>>,
    numbers: Numbers,
    entry: Numbers,
    /// By lane.
    counts: BTreeMap<i64, [i64; 9]>,
    /// By lane, what few transactions change, as `add_history.sql` takes it.
    history: Vec<(i64, [i64; 7])>,
    pub(super) hot_statements: [Option<CachedStatement<'c>>; HOT_STATEMENTS],
    /// New jobs that are yet to be written.
    pub(super) plain_jobs: Vec<PlainJob>,
    hints: Vec<Wake>,
    defaults: JobOptions,
    /// Whether any job depends on another, once that is known.
    pub(super) any_edge: Option<bool>,
}

impl<'c> Transaction<'c> {
    /// Looks at the row of numbers; the transaction must have begun.
    pub(super) fn begin(conn: &'c Connection, names: &'c mut Names, clock: &dyn Clock) -> Answer<Self> {
        let mut statement = conn.prepare_cached(include_str!("sql/get_store.sql"))?;
        let (numbers, key, closed) = statement.query_row([], |row| {
            let numbers =
                Numbers { accepted: row.get(0)?, pruned: row.get(1)?, tick: row.get(2)?, latest: row.get(3)? };
            Ok((numbers, IdKey::from_bytes(row.get_ref(4)?.as_blob()?), row.get(5)?))
        })?;
        let key = key.ok_or_else(|| Fault::broken("the key of the ids has a wrong length"))?;
        let mut tx = Transaction {
            conn,
            now: Timestamp::EPOCH,
            minds_absences: false,
            names,
            key,
            closed,
            numbers,
            entry: numbers,
            counts: BTreeMap::new(),
            history: Vec::new(),
            hot_statements: Default::default(),
            plain_jobs: Vec::new(),
            hints: Vec::new(),
            defaults: JobOptions::default(),
            any_edge: None,
        };
        tx.look_at(clock);
        Ok(tx)
    }

    /// The same for a call that writes: refused while a move fills the store, and after it was moved.
    pub(super) fn begin_writing(conn: &'c Connection, names: &'c mut Names, clock: &dyn Clock) -> Answer<Self> {
        let tx = Transaction::begin(conn, names, clock)?;
        match &tx.closed {
            Some(words) => Err(Fault::Closed(Closed::from_stored(words))),
            None => Ok(tx),
        }
    }

    /// Takes the time for the next call. It never runs back behind what another process wrote (rule L8).
    pub(super) fn look_at(&mut self, clock: &dyn Clock) {
        let (now, latest) = (clock.now(), Timestamp::from_micros(self.numbers.latest));
        self.now = now.max(latest);
        if now < latest {
            // The clock was set back, or was ahead in another process: time goes on from there.
            clock.not_before(latest);
        }
        self.minds_absences = clock.pulse().is_some();
    }

    /// The moment that leases are compared with.
    pub(super) fn fence_time(&self) -> Answer<Timestamp> {
        if !self.minds_absences {
            return Ok(self.now);
        }
        Ok(self.pulse()?.fence(self.now))
    }

    fn pulse(&self) -> Answer<Pulse> {
        let mut statement = self.statement(include_str!("sql/get_pulse.sql"))?;
        let pulse = statement.query_row([], |row| {
            let [at, away_from, grace_until] = [row.get(0)?, row.get(1)?, row.get(2)?].map(Timestamp::from_micros);
            Ok(Pulse { at, away_from, grace_until })
        });
        Ok(pulse?)
    }

    /// Beats, while jobs run: otherwise nobody is harmed by an absence, and the disk is left alone.
    pub(super) fn beat(&mut self) -> Answer<()> {
        if !self.minds_absences {
            return Ok(());
        }
        let before = self.pulse()?;
        let running: bool = self.statement(include_str!("sql/has_leases.sql"))?.query_row([], |row| row.get(0))?;
        if !running || self.now.since(before.at) < BEAT_EVERY {
            return Ok(());
        }
        let mut statement = self.statement(include_str!("sql/get_latest_end.sql"))?;
        let moments = [self.now.plus(LAPSING).as_micros(), before.at.as_micros()];
        let latest: Option<i64> = statement.query_row(moments, |row| row.get(0))?;
        let (after, absence) = before.beat(self.now, latest.map(Timestamp::from_micros));
        let fields = [after.at, after.away_from, after.grace_until].map(Timestamp::as_micros);
        self.statement(include_str!("sql/put_pulse.sql"))?.execute(fields)?;
        if let Some(absence) = absence {
            absence.log();
            self.record_act(&rules::absence(&absence))?;
        }
        Ok(())
    }

    /// Writes the numbers; the commit must follow. Gives the hints to send after it.
    pub(super) fn finish(mut self) -> Answer<Vec<Wake>> {
        self.write_plain_jobs()?;
        self.write_counts()?;
        if self.numbers != self.entry {
            self.numbers.latest = self.numbers.latest.max(self.now.as_micros());
            let Numbers { accepted, pruned, tick, latest } = self.numbers;
            self.statement(include_str!("sql/put_store.sql"))?.execute([accepted, pruned, tick, latest])?;
        }
        Ok(self.hints)
    }

    pub(super) fn write_counts(&mut self) -> Answer<()> {
        for (lane, counts) in std::mem::take(&mut self.counts) {
            if counts == [0; 9] {
                continue;
            }
            // Every change to a job goes through here, so this also says that the time must be kept.
            self.numbers.latest = self.numbers.latest.max(self.now.as_micros());
            let [a, b, c, d, e, f, g, h, i] = counts;
            self.execute(HotStatement::AddCounts, [lane, a, b, c, d, e, f, g, h, i])?;
        }
        for (lane, [a, b, c, d, e, f, g]) in std::mem::take(&mut self.history) {
            self.numbers.latest = self.numbers.latest.max(self.now.as_micros());
            let mut statement = self.conn.prepare_cached(include_str!("sql/add_history.sql"))?;
            statement.execute([lane, a, b, c, d, e, f, g])?;
        }
        Ok(())
    }

    /// A prepared statement, kept for the next time.
    pub(super) fn statement(&self, sql: &str) -> Answer<CachedStatement<'c>> {
        Ok(self.conn.prepare_cached(sql)?)
    }

    pub(super) fn count(&mut self, lane: i64, state: State, change: i64) {
        self.counts.entry(lane).or_default()[usize::from(state.number())] += change;
    }

    /// Hands over what was counted in a lane, for a statement that writes it with other things.
    pub(super) fn take_counts(&mut self, lane: i64) -> [i64; 9] {
        let counts = self.counts.remove(&lane).unwrap_or_default();
        if counts != [0; 9] {
            self.numbers.latest = self.numbers.latest.max(self.now.as_micros());
        }
        counts
    }

    /// Remembers that a job left a terminal state, and whether for good.
    pub(super) fn count_left(&mut self, lane: i64, state: State, removed: bool) {
        let history = self.history_of(lane);
        history[0] += i64::from(removed);
        if let Some(place) = ended_place(state) {
            history[1 + place] += 1;
        }
    }

    /// Remembers an attempt that was retried or lost.
    pub(super) fn count_attempt(&mut self, lane: i64, counted: AttemptCount) {
        let place = match counted {
            AttemptCount::Retried => 5,
            AttemptCount::Lost => 6,
        };
        self.history_of(lane)[place] += 1;
    }

    fn history_of(&mut self, lane: i64) -> &mut [i64; 7] {
        let place = self.history.iter().position(|(counted, _)| *counted == lane).unwrap_or_else(|| {
            self.history.push((lane, [0; 7]));
            self.history.len() - 1
        });
        &mut self.history[place].1
    }

    pub(super) fn accepted(&self) -> i64 {
        self.numbers.accepted
    }

    pub(super) fn accept(&mut self) {
        self.numbers.accepted += 1;
    }

    pub(super) fn add_pruned(&mut self, count: usize) {
        self.numbers.pruned += i64::try_from(count).unwrap_or_default();
    }

    /// The key of this file's ids.
    pub(super) fn id_key(&self) -> &IdKey {
        &self.key
    }

    /// Takes over the numbers of a store that is moved here; ticks never go back.
    pub(super) fn set_numbers(&mut self, accepted: i64, pruned: i64, ticks: i64) {
        (self.numbers.accepted, self.numbers.pruned) = (accepted, pruned);
        self.numbers.tick = self.numbers.tick.max(ticks);
    }

    /// The newest tick that was given out.
    pub(super) fn ticks(&self) -> i64 {
        self.numbers.tick
    }

    /// Gives out `count` ticks at once; gives the first of them.
    pub(super) fn ticks_for(&mut self, count: i64) -> i64 {
        let first = self.numbers.tick + 1;
        self.numbers.tick += count;
        first
    }

    /// The next number of the order in which jobs are submitted and end.
    pub(super) fn tick(&mut self) -> i64 {
        self.numbers.tick += 1;
        self.numbers.tick
    }

    /// An id for a job whose own cannot be read: the same at every reading, and it leads to the row.
    pub(super) fn substitute_id(&self, seq: i64) -> JobId {
        self.key.substitute(seq)
    }

    pub(super) fn draw_id(&self, seq: i64) -> JobId {
        self.key.draw().id(seq)
    }

    /// Where a job with this id would stand; whether it does, its row says.
    pub(super) fn seq_of(&self, id: JobId) -> i64 {
        self.key.sequence(id.as_uuid())
    }

    pub(super) fn hint(&mut self, hint: Wake) {
        self.hints.push(hint);
    }

    /// Hints that a queue has a job; once is as good as many times in a row.
    pub(super) fn hint_scheduled(&mut self, queue: &QueueName) {
        if !matches!(self.hints.last(), Some(Wake::Scheduled(last)) if last == queue) {
            self.hints.push(Wake::Scheduled(queue.clone()));
        }
    }

    /// The lane of a spec, made if it is new.
    pub(super) fn lane_of(&mut self, spec: &JobSpec) -> Answer<i64> {
        self.lane_named(&spec.queue, &spec.job_type)
    }

    /// The lane of a queue and a type, made if it is new.
    pub(super) fn lane_named(&mut self, queue: &QueueName, job_type: &JobType) -> Answer<i64> {
        let names = (queue.clone(), job_type.clone());
        if let Some(lane) = self.names.lanes.get(&names) {
            return Ok(*lane);
        }
        let texts = [names.0.as_str(), names.1.as_str()];
        let found = self.statement(include_str!("sql/find_lane.sql"))?.query_row(texts, |row| row.get(0)).optional()?;
        let lane = match found {
            Some(lane) => lane,
            None => self.statement(include_str!("sql/add_lane.sql"))?.insert(texts)?,
        };
        self.names.learn(lane, &names);
        Ok(lane)
    }

    /// The names of a lane.
    pub(super) fn names_of(&mut self, lane: i64) -> Answer<LaneNames> {
        if let Some(names) = self.names.names.get(&lane) {
            return Ok(names.clone());
        }
        let mut statement = self.statement(include_str!("sql/get_lane.sql"))?;
        let (queue, job_type, key): (String, String, String) =
            statement.query_row(params![lane], |row| Ok((row.get("queue")?, row.get("type")?, row.get("key")?)))?;
        let names = (QueueName::new(queue)?, JobType::new(job_type)?);
        // Strands come and go, and another may be given the same number.
        if key.is_empty() {
            self.names.learn(lane, &names);
        }
        Ok(names)
    }

    /// A job's options; those of a plain job are not even parsed.
    pub(super) fn options(&self, text: Option<&str>) -> Answer<JobOptions> {
        match text {
            None => Ok(self.defaults.clone()),
            Some(text) => serde_json::from_str(text).map_err(|error| Fault::broken(error.to_string())),
        }
    }
}

/// A clock shared by the threads of a store.
pub(super) type SharedClock = Arc<dyn Clock>;
