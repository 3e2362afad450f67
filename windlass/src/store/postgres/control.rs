//! Flow control: what operators change of it, queues that come under control and leave it, and what ends of leases note.
//!
//! Only a transaction that holds the row of a controlled queue reads and writes its gates and strands: claims
//! ([`control_claim`](super::control_claim)), what is here, and upkeep. A transaction that ends a lease leaves a note, in the same transaction.

use std::collections::HashMap;
use std::sync::Arc;

use super::Inner;
use super::control_columns::GateColumns;
use super::control_rows::GateRows;
use super::fault::Fault;
use super::job_rows::{self, Note};
use super::lanes::Lane;
use super::link::{Link, Parameter};
use super::transaction::Transaction;
use super::turns::Caller;
use crate::flow::{Control, ControlChange, ControlEdit, ControlRecord, Gate, GateName};
use crate::job::{JobId, JobOptions, QueueName, State};
use crate::store::rules::{self, Change, Changes};
use crate::time::Timestamp;

/// How many jobs are moved from strands to the door at once.
const UNSORTED: i64 = 2000;
/// How many strands are looked at together.
const STRANDS: i64 = 500;

impl Inner {
    /// Changes the control of a queue. What waits on strands that are no longer needed goes back to the door, step by step.
    pub(super) async fn control(
        self: &Arc<Self>,
        edit: &ControlEdit,
        by: Option<&str>,
    ) -> Result<Option<ControlRecord>, Fault> {
        let mut tx = self.transaction(Caller::Worker).await?;
        let changed = tx.control(edit, by).await;
        let (queue, record) = tx.finish(changed).await?;
        self.lanes.look_again(&edit.queue);
        if record.as_ref().is_none_or(|record| !record.control.has_strands()) {
            self.unsort(queue, record.is_none()).await?;
        }
        Ok(record)
    }

    pub(super) async fn controlled(&self, queue: &QueueName) -> Result<Option<ControlRecord>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let rows = link.query(include_str!("sql/get_control.sql"), &[&queue.as_str()]).await?;
        let text = rows.first().and_then(|row| row.get::<_, Option<&str>>("control"));
        Ok(text.map(serde_json::from_str).transpose()?)
    }

    /// Lets all jobs of a queue stand at the door again; forgets its strands where it is not controlled any more.
    pub(super) async fn unsort(&self, queue: i32, forget: bool) -> Result<(), Fault> {
        let mut link = self.link(Caller::Worker).await?;
        let mut last = 0_i32;
        loop {
            let rows = link.query(include_str!("sql/list_all_strands.sql"), &[&queue, &last, &STRANDS]).await?;
            let strands: Vec<i32> = rows.iter().map(|row| row.get("strand")).collect();
            let Some(end) = strands.last() else { break };
            last = *end;
            while link.execute(include_str!("sql/unsort_ready.sql"), &[&strands, &UNSORTED]).await? > 0 {}
        }
        if !forget {
            return Ok(());
        }
        // It may have come under control again meanwhile.
        let forgotten = match link.begin_with(&[(include_str!("sql/lock_queue.sql"), &[&queue])]).await {
            Ok(held) if held[0].iter().all(|row| row.get::<_, Option<&str>>("control").is_none()) => {
                link.execute(include_str!("sql/delete_gates.sql"), &[&queue]).await
            }
            Ok(_) => Ok(0),
            Err(fault) => Err(fault),
        };
        match forgotten {
            Ok(_) => link.commit().await,
            Err(fault) => {
                link.roll_back().await;
                Err(fault)
            }
        }
    }

    /// Lets the leases of a queue that count nowhere, or all of them, count on their strands, and counts anew; gives how many
    /// there were. The queue is held.
    pub(super) async fn sweep(
        &self,
        link: &Link<'_>,
        queue: i32,
        control: &Control,
        all: bool,
    ) -> Result<usize, Fault> {
        let rows = link.query(include_str!("sql/list_leased_in.sql"), &[&queue, &all]).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let mut seqs: Vec<i64> = Vec::with_capacity(rows.len());
        let (mut keys, mut lanes): (Vec<String>, Vec<Lane>) = (Vec::new(), Vec::new());
        for row in &rows {
            let key = row.get::<_, Option<&str>>("options").and_then(JobOptions::key_in);
            seqs.push(row.get("seq"));
            keys.push(control.key_of(key.as_deref()).to_owned());
            lanes.push(row.get("lane"));
        }
        let mut strands: Vec<(&str, Lane)> = keys.iter().map(String::as_str).zip(lanes.iter().copied()).collect();
        strands.sort_unstable();
        strands.dedup();
        let (strand_keys, strand_lanes): (Vec<&str>, Vec<Lane>) = strands.into_iter().unzip();
        link.execute(include_str!("sql/add_strand.sql"), &[&queue, &strand_keys, &strand_lanes]).await?;
        link.execute(include_str!("sql/sort_leased.sql"), &[&seqs, &keys, &lanes, &queue]).await?;
        self.recount(link, queue).await?;
        Ok(rows.len())
    }

    /// Counts anew what runs; gives how many counts were wrong. The queue is held.
    pub(super) async fn recount(&self, link: &Link<'_>, queue: i32) -> Result<usize, Fault> {
        let mended = link.query(include_str!("sql/recount_strands.sql"), &[&queue]).await?.len();
        let gates = link.execute(include_str!("sql/recount_gates.sql"), &[&queue]).await?;
        Ok(mended + usize::try_from(gates).unwrap_or_default())
    }
}

impl Transaction<'_> {
    /// Changes the control of a queue, which is made if there is none; gives its number and its control afterwards.
    async fn control(&mut self, edit: &ControlEdit, by: Option<&str>) -> Result<(i32, Option<ControlRecord>), Fault> {
        let name = edit.queue.as_str();
        if edit.gate().is_none() {
            self.link.execute(include_str!("sql/add_queue.sql"), &[&vec![name]]).await?;
        }
        let rows = self.link.query(include_str!("sql/get_control.sql"), &[&name]).await?;
        let Some(queue) = rows.first().map(|row| row.get::<_, i32>("queue")) else {
            // A queue that does not exist has no gates.
            edit.decide(None, Gate::default(), self.now)?;
            return Err(job_rows::corrupt("a queue without a number"));
        };
        let rows = self.link.query(include_str!("sql/lock_queue.sql"), &[&queue]).await?;
        let text = rows.first().and_then(|row| row.get::<_, Option<&str>>("control"));
        // One that cannot be read is as good as none: so it can be set anew.
        let stored: Option<ControlRecord> = text.and_then(|text| serde_json::from_str(text).ok());
        if stored.is_some() {
            self.link.execute(include_str!("sql/fold_notes.sql"), &[&queue, &i64::MAX]).await?;
        }
        let lane = match edit.gate() {
            Some(GateName::Type(job_type)) if stored.is_some() => self.lane(&edit.queue, &job_type).await?,
            _ => 0,
        };
        let gate = match edit.gate() {
            Some(GateName::Key(key)) => self.key_gate(queue, &key, stored.as_ref()).await?,
            Some(GateName::Queue | GateName::Type(_)) => self.lane_gate(queue, lane).await?,
            None => Gate::default(),
        };
        let change = edit.decide(stored.clone(), gate, self.now)?;
        self.write_control(queue, lane, stored.as_ref(), &change).await?;
        if let Some((act, hint)) = rules::controlled(edit, &change, by, self.now) {
            self.add_act(&act).await?;
            self.hints.push(hint);
        }
        Ok((queue, change.control))
    }

    async fn key_gate(&self, queue: i32, key: &str, record: Option<&ControlRecord>) -> Result<Gate, Fault> {
        let Some(record) = record else { return Ok(Gate::default()) };
        if key.is_empty() || key.contains('\0') {
            // It is refused.
            return Ok(Gate::default());
        }
        let known = self.store.keys_known(&self.link, queue, "", Some(key), 1).await?;
        Ok(known.into_iter().next().map(|known| known.gate(&record.control)).unwrap_or_default())
    }

    async fn lane_gate(&self, queue: i32, lane: Lane) -> Result<Gate, Fault> {
        let rows = self.link.query(include_str!("sql/list_gates.sql"), &[&Some(self.now.as_micros()), &queue]).await?;
        let gates = GateRows::read(&rows);
        Ok(if lane == 0 { gates.queue } else { gates.types.get(&lane).cloned().unwrap_or_default() })
    }

    async fn write_control(
        &mut self,
        queue: i32,
        lane: Lane,
        stored: Option<&ControlRecord>,
        change: &ControlChange,
    ) -> Result<(), Fault> {
        match &change.gate {
            Some((GateName::Key(key), gate)) => self.write_key(queue, key, gate).await?,
            Some((GateName::Queue | GateName::Type(_), gate)) => {
                let columns = GateColumns::of(vec![(lane, gate.clone())]);
                self.link.execute(include_str!("sql/put_gate.sql"), &columns.parameters(&queue)).await?;
            }
            None => {}
        }
        if change.control.as_ref() == stored {
            return Ok(());
        }
        let text = change.control.as_ref().map(job_rows::json);
        self.link.execute(include_str!("sql/put_control.sql"), &[&queue, &text]).await?;
        let Some(record) = &change.control else {
            self.link.execute(include_str!("sql/unsort_leased.sql"), &[&queue]).await?;
            return Ok(());
        };
        let was_fair = stored.is_some_and(|stored| stored.control.fair);
        let turns_anew = stored.is_none() || was_fair != record.control.fair;
        let mut queue_gate = self.lane_gate(queue, 0).await?;
        if turns_anew {
            queue_gate.turn = 0;
        }
        let columns = GateColumns::of(vec![(0, Gate { running: 0, ..queue_gate })]);
        self.link.execute(include_str!("sql/put_gate.sql"), &columns.parameters(&queue)).await?;
        self.link.execute(include_str!("sql/open_strands.sql"), &[&queue, &true, &turns_anew]).await?;
        if stored.is_none_or(|stored| stored.control.has_strands() != record.control.has_strands()) {
            self.store.sweep(&self.link, queue, &record.control, true).await?;
            self.store.recount(&self.link, queue).await?;
        }
        Ok(())
    }

    async fn write_key(&self, queue: i32, key: &str, gate: &Gate) -> Result<(), Fault> {
        let (keys, lanes) = (vec![key], vec![0 as Lane]);
        self.link.execute(include_str!("sql/add_strand.sql"), &[&queue, &keys, &lanes]).await?;
        let held = gate.held_until.map(Timestamp::as_micros);
        let limits = gate.limit.as_ref().map(job_rows::json);
        let parameters: [Parameter<'_>; 5] = [&queue, &key, &held, &gate.owner, &limits];
        self.link.execute(include_str!("sql/set_key.sql"), &parameters).await?;
        Ok(())
    }

    /// Notes what ended in controlled queues, which keys are to be looked at, and which gates settlements hold (rules K3 and K8).
    pub(super) async fn add_notes(&mut self, changes: &Changes, notes: &HashMap<JobId, Note>) -> Result<(), Fault> {
        let (mut strands, mut lanes) = (Vec::new(), Vec::new());
        for Change { before, after } in &changes.changed {
            let left = before.job.state == State::Running && after.job.state != State::Running;
            if let Some(Note { strand: Some(strand), lane, .. }) = notes.get(&after.job.id).filter(|_| left) {
                strands.push(*strand);
                lanes.push(*lane);
            }
        }
        if !strands.is_empty() {
            self.link.execute(include_str!("sql/add_note.sql"), &[&strands, &lanes]).await?;
            lanes.sort_unstable();
            lanes.dedup();
            for lane in lanes {
                self.store.hint_freed(lane, &mut self.hints);
            }
        }
        let mut columns = KeyNotes::default();
        for (queue, key) in rules::touched(changes).into_iter().filter(|(_, key)| !key.is_empty()) {
            columns.add(queue, None, Some(key), None);
        }
        for hold in &changes.holds {
            let until = Some(hold.until.as_micros());
            match &hold.gate {
                GateName::Queue => columns.add(hold.queue.clone(), Some(0), None, until),
                GateName::Type(job_type) => {
                    let lane = self.lane(&hold.queue, job_type).await?;
                    columns.add(hold.queue.clone(), Some(lane), None, until);
                }
                GateName::Key(key) => columns.add(hold.queue.clone(), None, Some(key.clone()), until),
            }
        }
        let KeyNotes { queues, lanes, keys, holds } = &columns;
        if !queues.is_empty() {
            self.link.execute(include_str!("sql/add_key_note.sql"), &[queues, lanes, keys, holds]).await?;
        }
        Ok(())
    }
}

/// Keys to look at and gates to hold, a column for each field.
#[derive(Default)]
struct KeyNotes {
    queues: Vec<String>,
    lanes: Vec<Option<Lane>>,
    keys: Vec<Option<String>>,
    holds: Vec<Option<i64>>,
}

impl KeyNotes {
    fn add(&mut self, queue: QueueName, lane: Option<Lane>, key: Option<String>, hold: Option<i64>) {
        self.queues.push(queue.as_str().to_owned());
        self.lanes.push(lane);
        self.keys.push(key);
        self.holds.push(hold);
    }
}
