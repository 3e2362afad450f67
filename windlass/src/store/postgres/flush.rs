//! Writing back what a unit changed: each table with one statement, whatever the number of jobs.

use serde_json::{Value, json};

use super::fault::Fault;
use super::rows::{self, Entry};
use super::tokens;
use super::unit::{EVENT_PENDING, EVENT_QUIET, Unit};
use crate::job::{Dependency, State};
use crate::time::Timestamp;

impl Unit<'_> {
    pub(super) async fn flush(&mut self) -> Result<(), Fault> {
        self.remove_gone().await?;
        let dirty: Vec<i64> = self.dirty.iter().copied().collect();
        self.insert_wide().await?;
        self.update_wide().await?;
        let old: Vec<i64> = dirty.iter().copied().filter(|seq| !self.new.contains(seq)).collect();
        if !old.is_empty() {
            self.link.query(include_str!("sql/narrow_take.sql"), &[&old]).await?;
        }
        let mut homes: [Vec<Value>; 4] = Default::default();
        for seq in dirty {
            let entry = self.entry(seq);
            let (home, row) = narrow(entry);
            homes[home].push(row);
        }
        let statements = [
            include_str!("sql/waiting_put.sql"),
            include_str!("sql/ready_put.sql"),
            include_str!("sql/leased_put.sql"),
            include_str!("sql/done_put.sql"),
        ];
        for (rows, statement) in homes.into_iter().zip(statements) {
            self.put(statement, rows).await?;
        }
        self.put_edges().await?;
        self.put_attempts().await?;
        self.put_events().await
    }

    async fn put(&self, statement: &'static str, rows: Vec<Value>) -> Result<(), Fault> {
        if !rows.is_empty() {
            self.link.execute(statement, &[&Value::Array(rows).to_string()]).await?;
        }
        Ok(())
    }

    async fn remove_gone(&mut self) -> Result<(), Fault> {
        if self.removed.is_empty() {
            return Ok(());
        }
        self.link.query(include_str!("sql/job_remove.sql"), &[&self.removed]).await?;
        Ok(())
    }

    async fn insert_wide(&mut self) -> Result<(), Fault> {
        if self.new.is_empty() {
            return Ok(());
        }
        let jobs: Vec<&Entry> = self.new.iter().map(|seq| self.entry(*seq)).collect();
        let payloads: Vec<&[u8]> = jobs.iter().map(|entry| entry.job.spec.payload.as_bytes().as_ref()).collect();
        let wide: Vec<Value> = jobs.iter().map(|entry| wide(entry)).collect();
        let wide = Value::Array(wide).to_string();
        self.link.execute(include_str!("sql/job_put.sql"), &[&wide, &payloads]).await?;
        Ok(())
    }

    async fn update_wide(&mut self) -> Result<(), Fault> {
        let changed = self.wide.iter().filter(|seq| !self.new.contains(seq));
        let changed: Vec<Value> = changed.filter_map(|seq| self.get(*seq)).map(wide).collect();
        self.put(include_str!("sql/job_edit.sql"), changed).await
    }

    async fn put_edges(&mut self) -> Result<(), Fault> {
        let edges = self.edges_dirty.iter().filter_map(|edge| {
            let open = self.edge(*edge)?;
            Some(json!({"parent": edge.0, "child": edge.1, "kind": edge.2, "open": open}))
        });
        let edges = edges.collect();
        self.put(include_str!("sql/edge_put.sql"), edges).await
    }

    async fn put_attempts(&mut self) -> Result<(), Fault> {
        let attempts = self.closed.iter().filter_map(|(seq, token, attempt)| {
            Some(json!({
                "seq": seq,
                "version": attempt.lease_version,
                "token": tokens::stored(*token),
                "number": attempt.number,
                "generation": attempt.generation,
                "outcome": attempt.outcome?.number(),
                "started_at": attempt.started_at.as_micros(),
                "ended_at": attempt.ended_at?.as_micros(),
                "worker": attempt.worker.as_str(),
                "failure": attempt.failure.as_ref().map(rows::failure_record_text),
            }))
        });
        let attempts = attempts.collect();
        self.put(include_str!("sql/attempt_put.sql"), attempts).await
    }

    /// Notes who left or entered PENDING, and who left the state it had ended in.
    fn count_moves(&mut self) {
        let mut moves = Vec::new();
        for seq in &self.dirty {
            let entry = self.entry(*seq);
            let (lane, is) = (entry.lane, entry.job.state);
            let was = self.was.get(seq).copied();
            let pending = i16::from(is == State::Pending) - i16::from(was == Some(State::Pending));
            let left = was.filter(|was| was.is_terminal() && *was != is);
            moves.extend(left.map(|was| (lane, -i16::from(was.number()), *seq)));
            if left.is_some() && is.is_terminal() {
                moves.push((lane, EVENT_QUIET + i16::from(is.number()), *seq));
            }
            if pending != 0 {
                moves.push((lane, pending * EVENT_PENDING, *seq));
            }
        }
        self.events.extend(moves);
    }

    async fn put_events(&mut self) -> Result<(), Fault> {
        self.count_moves();
        if self.events.is_empty() {
            return Ok(());
        }
        let events = self.events.iter().map(|(lane, kind, seq)| json!({"lane": lane, "kind": kind, "seq": seq}));
        let events = events.collect();
        let events = Value::Array(events).to_string();
        self.link.execute(include_str!("sql/event_put.sql"), &[&events, &self.now.as_micros()]).await?;
        Ok(())
    }
}

fn wide(entry: &Entry) -> Value {
    let job = &entry.job;
    let spec = &job.spec;
    let depends_on: Option<&Vec<Dependency>> = Some(&spec.depends_on).filter(|list| !list.is_empty());
    json!({
        "seq": entry.seq,
        "id": job.id,
        "lane": entry.lane,
        "priority": spec.priority.number(),
        "inherited": job.inherited_priority.map(|priority| priority.number()),
        "depth": entry.depth,
        "created_at": job.created_at.as_micros(),
        "deadline": at(job.deadline),
        "visibility": rows::micros(spec.options.timeouts.visibility),
        "content_type": spec.payload.stored_content_type(),
        "options": rows::json(&spec.options),
        "depends_on": depends_on.map(rows::json),
        "workflow": job.workflow_id,
        "schedule": job.firing.as_ref().map(|firing| firing.schedule.as_str()),
        "slot": job.firing.as_ref().map(|firing| firing.slot.as_micros()),
        "spawned_by": job.spawned_by,
    })
}

fn at(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_micros)
}

/// The narrow row of a job, and which table it goes to: waiting, ready, leased, done.
fn narrow(entry: &Entry) -> (usize, Value) {
    let job = &entry.job;
    let mut row = json!({
        "seq": entry.seq,
        "lane": entry.lane,
        "priority": job.effective_priority().number(),
        "state": job.state.number(),
        "slow": entry.slow,
        "deadline": at(job.deadline),
        "visibility": rows::micros(job.spec.options.timeouts.visibility),
        "version": job.lease_version,
        "attempt": job.attempt,
        "failures": job.failures,
        "lost": job.lost,
        "generation": job.generation,
        "started_at": at(job.started_at),
        "failed_at": at(job.failure.as_ref().map(|failure| failure.at)),
        "failure": job.failure.as_ref().map(rows::failure_record_text),
    });
    let fields = row.as_object_mut().expect("it was written as an object");
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    match job.state {
        State::Pending => {
            set("waits_all", json!(entry.waits.all));
            set("waits_any", json!(entry.waits.any));
            set("run_at", json!(at(job.run_at)));
            set("scheduled_at", json!(at(job.scheduled_at)));
            set("updated_at", json!(job.updated_at.as_micros()));
            (0, row)
        }
        State::Scheduled => {
            set("due", json!(job.position.as_micros()));
            (1, row)
        }
        State::Delayed | State::Retrying => {
            set("due", json!(at(job.run_at)));
            set("scheduled_at", json!(at(job.scheduled_at)));
            set("updated_at", json!(job.updated_at.as_micros()));
            (1, row)
        }
        State::Running => {
            let lease = job.lease.as_ref();
            set("scheduled_at", json!(at(job.scheduled_at)));
            set("token", json!(entry.token.map(tokens::stored)));
            set("expires_at", json!(lease.map(|lease| lease.expires_at.as_micros())));
            set("worker", json!(lease.map(|lease| lease.worker.as_str())));
            set("cancel", json!(job.cancel.as_ref().map(rows::json)));
            (2, row)
        }
        State::Completed | State::Failed | State::DeadLetter | State::Cancelled => {
            set("scheduled_at", json!(at(job.scheduled_at)));
            set("completed_at", json!(at(job.completed_at)));
            set("token", json!(entry.token.map(tokens::stored)));
            set("worker", json!(entry.worker));
            set("reason", json!(job.reason.as_ref().map(rows::json)));
            set("result_type", json!(job.result.as_ref().and_then(|result| result.stored_content_type())));
            set("result", json!(job.result.as_ref().map(|result| hexadecimal(result.as_bytes()))));
            (3, row)
        }
    }
}

/// Bytes as PostgreSQL reads them from text.
fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 + bytes.len() * 2);
    text.push_str("\\x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
