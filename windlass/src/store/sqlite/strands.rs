//! The strands of a controlled queue as they are stored, and what is kept of its gates.
//!
//! The jobs of one key and type stand in a lane of their own, a strand, so that what waits and runs of a key is counted as
//! that of any lane is: whatever ends a lease lowers the count, and nothing can be forgotten. `counted` is how many ran when a
//! claim looked last, so a strand of which a lease has ended since then is found by an index. The same holds for open strands in
//! their order, and for those that time will open.

use rusqlite::{Row as SqlRow, RowIndex, params};

use super::columns::{columns, json, text, time};
use super::fault::{Answer, Fault};
use super::hot_statements::HotStatement;
use super::job_rows::{Entry, Place};
use super::transaction::Transaction;
use crate::flow::{Control, Gate, GateName, Head, Look, Looked, Order};
use crate::job::{JobType, QueueName};
use crate::time::Timestamp;

/// How many strands without jobs one step of upkeep looks at.
const IDLE_MAX: i64 = 1000;

/// A strand as it is stored.
#[derive(Debug)]
pub(super) struct StrandRow {
    pub(super) lane: i64,
    pub(super) job_type: JobType,
    pub(super) key: String,
    pub(super) waiting: u64,
    pub(super) running: u32,
    pub(super) counted: u32,
    touched: bool,
    /// As [`stored_look`] writes it.
    look: Option<i64>,
    order: Order,
    /// The gate of its key, without what runs.
    pub(super) gate: Gate,
}

impl StrandRow {
    pub(super) fn is_open(&self) -> bool {
        self.look == Some(0)
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    /// Whether one more job changes nothing but how many wait: it comes after one that keeps the strand where it stands. Where
    /// keys are ordered, that cannot be said of a strand alone.
    pub(super) fn goes_on_with(&self, head: &Head, control: &Control) -> bool {
        let Order { level, place, sequence, .. } = self.order;
        let is_behind = self.look != Some(0) || (level, place, sequence) < control.within_key(head);
        control.ordered.is_none() && self.look.is_some() && self.waiting > 0 && !self.touched && is_behind
    }

    fn new(lane: i64, job_type: JobType, key: String, gate: Gate) -> Self {
        let (waiting, running, counted, touched, look) = (0, 0, 0, false, None);
        StrandRow { lane, job_type, key, waiting, running, counted, touched, look, order: Order::FIRST, gate }
    }
}

/// A plain lane of a controlled queue: where jobs of a type wait to be sorted, and the gate of the type.
pub(super) struct Door {
    pub(super) lane: i64,
    pub(super) job_type: JobType,
    pub(super) waiting: u64,
    /// How many jobs of the type run; and how many that were when a claim looked last.
    pub(super) counted: u32,
    pub(super) was_counted: u32,
    pub(super) gate: Gate,
}

columns! {
    /// What statements that read strands select.
    StrandColumn from 0 =>
    lane, r#type, key, waiting, running, counted, touched, look, level, class, turn, place, next, gate,
}

fn read_strand(row: &SqlRow<'_>) -> Answer<StrandRow> {
    let key = row.get_ref(StrandColumn::key.number())?.as_str()?;
    Ok(StrandRow {
        lane: row.get(StrandColumn::lane.number())?,
        job_type: JobType::new(row.get_ref(StrandColumn::r#type.number())?.as_str()?)?,
        key: key.get(2..).unwrap_or_default().to_owned(),
        waiting: row.get::<_, u32>(StrandColumn::waiting.number())?.into(),
        running: row.get(StrandColumn::running.number())?,
        counted: row.get(StrandColumn::counted.number())?,
        touched: row.get(StrandColumn::touched.number())?,
        look: row.get(StrandColumn::look.number())?,
        order: Order {
            level: row.get(StrandColumn::level.number())?,
            class: row.get(StrandColumn::class.number())?,
            turn: row.get(StrandColumn::turn.number())?,
            place: row.get(StrandColumn::place.number())?,
            sequence: row.get(StrandColumn::next.number())?,
        },
        gate: gate_in(row, StrandColumn::gate.number())?.unwrap_or_default(),
    })
}

/// The gate in a row, if there is one. One that cannot be read is closed, so that it stops what stands before it and nothing else.
pub(super) fn gate_in(row: &SqlRow<'_>, column: impl RowIndex) -> Answer<Option<Gate>> {
    match json(row, column) {
        Err(Fault::Broken(_)) => Ok(Some(Gate::unreadable())),
        read => read,
    }
}

/// When to look at a strand again, as it is stored: 0 at any claim, a moment, less than 0 when something happened to its key, null
/// when it has a job.
fn stored_look(look: Look) -> Option<i64> {
    match look {
        Look::Open => Some(0),
        Look::At(at) => Some(at.as_micros().max(1)),
        Look::Full => Some(-1),
        Look::Empty => None,
    }
}

impl Transaction<'_> {
    fn read_strands(&self, sql: &str, params: impl rusqlite::Params) -> Answer<Vec<StrandRow>> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params)?;
        let mut strands = Vec::new();
        while let Some(row) = rows.next()? {
            strands.push(read_strand(row)?);
        }
        Ok(strands)
    }

    pub(super) fn touched_strands(&self, queue: &QueueName) -> Answer<Vec<StrandRow>> {
        self.read_strands(include_str!("sql/list_touched.sql"), [queue.as_str()])
    }

    /// The strands whose moment has come.
    pub(super) fn due_strands(&self, queue: &QueueName) -> Answer<Vec<StrandRow>> {
        self.read_strands(include_str!("sql/list_later.sql"), params![queue.as_str(), self.now.as_micros()])
    }

    /// The first open strands of a type.
    pub(super) fn open_strands(&self, queue: &QueueName, job_type: &JobType, limit: usize) -> Answer<Vec<StrandRow>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read_strands(include_str!("sql/list_open.sql"), params![queue.as_str(), job_type.as_str(), limit])
    }

    pub(super) fn strands_of<'k>(
        &self,
        queue: &QueueName,
        keys: impl IntoIterator<Item = &'k str>,
    ) -> Answer<Vec<StrandRow>> {
        let keys: Vec<String> = keys.into_iter().map(|key| format!("k:{key}")).collect();
        self.read_strands(include_str!("sql/list_strands_of.sql"), params![queue.as_str(), text(&keys)])
    }

    /// Strands in the order of their keys, after this one.
    pub(super) fn strands_after(&self, queue: &QueueName, key: &str, limit: usize) -> Answer<Vec<StrandRow>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let from = params![queue.as_str(), format!("k:{key}"), limit];
        self.read_strands(include_str!("sql/list_strands.sql"), from)
    }

    /// The strand of a key, made if it is new.
    pub(super) fn strand_of(&mut self, queue: &QueueName, job_type: &JobType, key: &str) -> Answer<StrandRow> {
        let names = params![queue.as_str(), job_type.as_str(), format!("k:{key}")];
        let mut statement = self.take_statement(HotStatement::FindStrand)?;
        let mut rows = statement.query(names)?;
        if let Some(row) = rows.next()? {
            let found = read_strand(row)?;
            drop(rows);
            self.give_statement_back(HotStatement::FindStrand, statement);
            return Ok(found);
        }
        drop(rows);
        self.give_statement_back(HotStatement::FindStrand, statement);
        let lane = self.statement(include_str!("sql/add_strand.sql"))?.insert(names)?;
        let gate = self.gate(queue, &GateName::Key(key.to_owned()))?;
        Ok(StrandRow::new(lane, job_type.clone(), key.to_owned(), gate))
    }

    pub(super) fn doors(&self, queue: &QueueName) -> Answer<Vec<Door>> {
        let mut statement = self.statement(include_str!("sql/list_doors.sql"))?;
        let mut rows = statement.query([queue.as_str()])?;
        let mut doors = Vec::new();
        while let Some(row) = rows.next()? {
            doors.push(Door {
                lane: row.get("lane")?,
                job_type: JobType::new(row.get::<_, String>("type")?)?,
                waiting: row.get::<_, u32>("waiting")?.into(),
                counted: row.get("counted")?,
                was_counted: row.get("counted")?,
                gate: gate_in(row, "gate")?.unwrap_or_default(),
            });
        }
        Ok(doors)
    }

    /// The lowest turn of the open strands of a type: the first of each level and class.
    pub(super) fn lowest_turn(&self, queue: &QueueName, job_type: &JobType) -> Answer<Option<i64>> {
        let mut statement = self.statement(include_str!("sql/get_lowest.sql"))?;
        let (mut lowest, mut after) = (None, (-1_i64, 0_i64));
        loop {
            let from = params![queue.as_str(), job_type.as_str(), after.0, after.1];
            let mut rows = statement.query(from)?;
            let Some(row) = rows.next()? else { return Ok(lowest) };
            after = (row.get("level")?, row.get("class")?);
            let turn: i64 = row.get("turn")?;
            lowest = Some(lowest.map_or(turn, |lowest: i64| lowest.min(turn)));
        }
    }

    /// When time will open the next strand.
    pub(super) fn next_later(&self, queue: &QueueName) -> Answer<Option<Timestamp>> {
        let mut statement = self.statement(include_str!("sql/get_later.sql"))?;
        let at: Option<i64> = statement.query_row(params![queue.as_str(), self.now.as_micros()], |row| row.get(0))?;
        Ok(at.map(time))
    }

    /// Keeps what a claim found a strand to be, if that is not as it was, and how many of its jobs came and went. `turn` is that
    /// of its key, where keys take turns.
    pub(super) fn put_strand(
        &mut self,
        row: &StrandRow,
        counted: u32,
        looked: Option<Looked>,
        turn: Option<i64>,
    ) -> Answer<()> {
        let (look, mut order) = match looked {
            Some(Looked { look: look @ (Look::Open | Look::At(_)), order }) => (stored_look(look), order),
            Some(Looked { look, .. }) => (stored_look(look), Order::FIRST),
            None => (None, Order::FIRST),
        };
        order.turn = turn.unwrap_or(order.turn);
        let [_, delayed, scheduled, running, retrying, ..] = self.take_counts(row.lane);
        let came = [delayed, scheduled, running, retrying];
        if (counted, look, order, false, [0; 4]) == (row.counted, row.look, row.order, row.touched, came) {
            return Ok(());
        }
        let Order { level, class, turn, place, sequence } = order;
        let kept = params![
            row.lane, counted, look, level, class, turn, place, sequence, delayed, scheduled, running, retrying
        ];
        self.execute(HotStatement::PutStrand, kept)?;
        Ok(())
    }

    pub(super) fn set_counted(&self, lane: i64, counted: u32) -> Answer<()> {
        self.statement(include_str!("sql/set_counted.sql"))?.execute([lane, i64::from(counted)])?;
        Ok(())
    }

    /// What is kept of a gate.
    pub(super) fn gate(&self, queue: &QueueName, name: &GateName) -> Answer<Gate> {
        let mut statement = self.statement(include_str!("sql/get_gate.sql"))?;
        let mut rows = statement.query(params![queue.as_str(), name.stored()])?;
        match rows.next()? {
            None => Ok(Gate::default()),
            Some(row) => Ok(gate_in(row, "gate")?.unwrap_or_default()),
        }
    }

    pub(super) fn put_gate(&self, queue: &QueueName, name: &GateName, gate: &Gate) -> Answer<()> {
        let name = name.stored();
        match *gate == (Gate { running: gate.running, ..Gate::default() }) {
            true => self.statement(include_str!("sql/delete_gate.sql"))?.execute(params![queue.as_str(), name])?,
            false => {
                let kept = params![queue.as_str(), name, text(gate), gate.owner];
                self.statement(include_str!("sql/put_gate.sql"))?.execute(kept)?
            }
        };
        Ok(())
    }

    /// Says that something happened to a key, so that the next claim looks at it.
    pub(super) fn touch_key(&self, queue: &QueueName, key: &str) -> Answer<()> {
        self.statement(include_str!("sql/touch_key.sql"))?.execute(params![queue.as_str(), format!("k:{key}")])?;
        Ok(())
    }

    /// Says so of the key of a strand that a job leaves: where keys are ordered, one of another type may be next now.
    pub(super) fn touch_strand(&self, entry: &Entry) -> Answer<()> {
        if matches!(entry.place, Place::Ready { .. }) && entry.stands_in != entry.lane {
            self.statement(include_str!("sql/touch_strand.sql"))?.execute([entry.stands_in])?;
        }
        Ok(())
    }

    /// Says so of the keys that wait for these jobs.
    pub(super) fn touch_owned(&self, first: i64, last: i64) -> Answer<()> {
        self.statement(include_str!("sql/touch_owned.sql"))?.execute([first, last])?;
        Ok(())
    }

    /// Forgets strands without jobs, and gates of keys that say nothing (rule K16).
    pub(super) fn forget_gates(&mut self) -> Answer<()> {
        self.write_counts()?;
        let mut statement = self.statement(include_str!("sql/list_idle.sql"))?;
        let mut rows = statement.query([IDLE_MAX])?;
        let mut idle: Vec<(i64, String, String, String, i64, Option<Gate>)> = Vec::new();
        while let Some(row) = rows.next()? {
            let names = (row.get("queue")?, row.get("type")?, row.get("key")?);
            idle.push((row.get("lane")?, names.0, names.1, names.2, row.get("counted")?, gate_in(row, "gate")?));
        }
        drop(rows);
        for (lane, queue, job_type, key, counted, gate) in idle {
            // A gate that says something for a while is looked at again; one with a limit of its own stays by itself.
            if gate.as_ref().is_some_and(|gate| !gate.is_blank(self.now) && gate.limit.is_none()) {
                continue;
            }
            if counted != 0 {
                self.statement(include_str!("sql/uncount.sql"))?.execute(params![queue, job_type, counted])?;
            }
            self.statement(include_str!("sql/delete_strand.sql"))?.execute([lane])?;
            let queue = QueueName::new(queue)?;
            let is_last = self.strands_of(&queue, key.get(2..))?.is_empty();
            if is_last && gate.is_some_and(|gate| gate.is_blank(self.now)) {
                self.statement(include_str!("sql/delete_gate.sql"))?.execute(params![queue.as_str(), key])?;
            }
        }
        Ok(())
    }
}
