//! Writing back what the rules changed: each table with one statement, whatever the number of jobs.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::events::EventRow;
use super::fault::Fault;
use super::job_rows::{self, Note};
use super::lanes::Lane;
use super::link::Link;
use super::schedules;
use super::tokens::TokenKey;
use super::transaction::Transaction;
use super::working::{Working, kind_number};
use crate::job::{Dependency, Fingerprint, JobId, JobRecord, LeaseToken, State, WorkerId};
use crate::store::answer::ActRecord;
use crate::store::observe::AttemptCount;
use crate::store::rules::{Change, Changes, ClosedAttempt, EdgeChange, Entry, ScheduleWrite};
use crate::time::Timestamp;

/// How many of the newest acts are kept, as by every store.
const ACTS_KEPT: i64 = 10_000;

impl Transaction<'_> {
    /// Writes what rules changed.
    pub(super) async fn flush(&mut self, working: Working) -> Result<(), Fault> {
        let Working { set, mut notes, .. } = working;
        let changes = set.finish();
        for entry in &changes.new {
            let lane = self.lane(&entry.job.spec.queue, &entry.job.spec.job_type).await?;
            notes.insert(entry.job.id, Note { lane, slow: false, completed_by: None, strand: None });
        }
        let seqs = sequences(&changes, self.store.as_ref());
        let events = events(&changes, &notes, &seqs);
        self.remove_jobs(&changes.removed).await?;
        self.put_jobs(&changes, &mut notes).await?;
        self.mark_slow(&changes, &notes, &seqs).await?;
        self.put_edges(&changes.edges, &seqs).await?;
        self.add_attempts(&changes.attempts, &seqs).await?;
        self.add_events(&events).await?;
        self.add_notes(&changes, &notes).await?;
        for act in &changes.acts {
            self.add_act(act).await?;
        }
        for write in &changes.schedules {
            match write {
                ScheduleWrite::Put(schedule) => schedules::put(&self.link, schedule).await?,
                ScheduleWrite::Delete(name) => schedules::delete(&self.link, name).await?,
            }
        }
        self.hints.extend(changes.wakes);
        Ok(())
    }

    pub(super) async fn add_act(&self, act: &ActRecord) -> Result<(), Fault> {
        add_act(&self.link, act).await
    }

    pub(super) async fn add_events(&self, events: &[EventRow]) -> Result<(), Fault> {
        if events.is_empty() {
            return Ok(());
        }
        let rows = job_rows::json(&events);
        self.link.execute(include_str!("sql/add_event.sql"), &[&rows, &self.now.as_micros()]).await?;
        Ok(())
    }

    /// Removes ended jobs and everything of theirs.
    pub(super) async fn delete_jobs(&self, seqs: &[i64]) -> Result<(), Fault> {
        let (firsts, lasts) = runs(seqs);
        if !firsts.is_empty() {
            self.link.execute(include_str!("sql/delete_job.sql"), &[&firsts, &lasts]).await?;
        }
        Ok(())
    }

    async fn remove_jobs(&self, removed: &[Entry]) -> Result<(), Fault> {
        let seqs: Vec<i64> = removed.iter().map(|entry| entry.sequence).collect();
        self.delete_jobs(&seqs).await
    }

    /// Writes the wide rows that are new or have changed, and the narrow rows of all.
    async fn put_jobs(&mut self, changes: &Changes, notes: &mut HashMap<JobId, Note>) -> Result<(), Fault> {
        let slow: HashSet<JobId> = opened(&changes.edges).collect();
        let closed: HashMap<JobId, &ClosedAttempt> =
            changes.attempts.iter().map(|closed| (closed.job, closed)).collect();
        for entry in &changes.new {
            let note = note_of(notes, entry.job.id)?;
            note.slow = is_slow(&entry.job) || slow.contains(&entry.job.id);
        }
        for Change { before, after } in &changes.changed {
            let note = note_of(notes, after.job.id)?;
            // The row of a job that was requeued no longer knows what its end did before.
            let requeued = before.job.generation != after.job.generation;
            note.slow |= is_slow(&after.job) || requeued || slow.contains(&after.job.id);
            if after.job.state != State::Completed {
                note.completed_by = None;
            } else if let Some(closed) = closed.get(&after.job.id) {
                note.completed_by = Some((closed.token, closed.attempt.worker.clone()));
            }
        }
        self.add_wide(&changes.new, notes).await?;
        self.keep_keys(&changes.keys).await?;
        self.edit_wide(&changes.changed).await?;
        let moved: Vec<i64> = changes.changed.iter().map(|change| change.after.sequence).collect();
        if !moved.is_empty() {
            self.link.execute(include_str!("sql/delete_places.sql"), &[&moved]).await?;
        }
        let mut places: [Vec<Value>; 4] = Default::default();
        for entry in changes.new.iter().chain(changes.changed.iter().map(|change| &change.after)) {
            let (place, row) = narrow(entry, note_of(notes, entry.job.id)?, self.store.tokens());
            places[place].push(row);
        }
        let statements = [
            include_str!("sql/add_pending.sql"),
            include_str!("sql/add_ready.sql"),
            include_str!("sql/add_leased.sql"),
            include_str!("sql/add_done.sql"),
        ];
        for (rows, statement) in places.into_iter().zip(statements) {
            self.put(statement, rows).await?;
        }
        Ok(())
    }

    async fn put(&self, statement: &'static str, rows: Vec<Value>) -> Result<(), Fault> {
        if !rows.is_empty() {
            self.link.execute(statement, &[&Value::Array(rows).to_string()]).await?;
        }
        Ok(())
    }

    async fn add_wide(&self, new: &[Entry], notes: &HashMap<JobId, Note>) -> Result<(), Fault> {
        if new.is_empty() {
            return Ok(());
        }
        let payloads: Vec<&[u8]> = new.iter().map(|entry| entry.job.spec.payload.as_bytes().as_ref()).collect();
        let rows = new.iter().map(|entry| wide(entry, notes.get(&entry.job.id).map_or(0, |note| note.lane)));
        let rows = Value::Array(rows.collect()).to_string();
        let added = self.link.execute(include_str!("sql/add_job.sql"), &[&rows, &payloads]).await?;
        if usize::try_from(added).unwrap_or_default() < new.len() {
            // A lane that was remembered does not exist, so all are looked up again.
            self.store.lanes.forget();
            return Err(Fault::Overtaken);
        }
        Ok(())
    }

    /// Writes what may change of wide rows, where it has.
    async fn edit_wide(&self, changed: &[Change]) -> Result<(), Fault> {
        let differs = |before: &Entry, after: &Entry| {
            let (was, is) = (&before.job, &after.job);
            !Arc::ptr_eq(&was.spec, &is.spec) && was.spec != is.spec
                || was.inherited_priority != is.inherited_priority
                || was.deadline != is.deadline
                || before.depth != after.depth
        };
        let edited = changed.iter().filter(|change| differs(&change.before, &change.after));
        self.put(include_str!("sql/edit_job.sql"), edited.map(|change| wide(&change.after, 0)).collect()).await
    }

    /// Marks the jobs that other jobs wait for from now on and that did not change themselves.
    async fn mark_slow(
        &self,
        changes: &Changes,
        notes: &HashMap<JobId, Note>,
        seqs: &HashMap<JobId, i64>,
    ) -> Result<(), Fault> {
        let is_quick = |id: &JobId| notes.get(id).is_some_and(|note| !note.slow);
        let marked: BTreeSet<i64> =
            opened(&changes.edges).filter(is_quick).filter_map(|id| seqs.get(&id).copied()).collect();
        let marked: Vec<i64> = marked.into_iter().collect();
        if !marked.is_empty() {
            self.link.execute(include_str!("sql/mark_slow.sql"), &[&marked]).await?;
        }
        Ok(())
    }

    async fn put_edges(&self, edges: &[EdgeChange], seqs: &HashMap<JobId, i64>) -> Result<(), Fault> {
        let row = |EdgeChange { edge, open, .. }: &EdgeChange| {
            let (parent, child) = (seqs.get(&edge.parent)?, seqs.get(&edge.child)?);
            Some(json!({"parent": parent, "child": child, "kind": kind_number(edge.kind), "open": open}))
        };
        self.put(include_str!("sql/put_edge.sql"), edges.iter().filter_map(row).collect()).await
    }

    async fn add_attempts(&self, closed: &[ClosedAttempt], seqs: &HashMap<JobId, i64>) -> Result<(), Fault> {
        let row = |ClosedAttempt { job, token, attempt }: &ClosedAttempt| {
            Some(json!({
                "seq": seqs.get(job)?,
                "version": attempt.lease_version,
                "token": self.store.tokens().stored(*token),
                "number": attempt.number,
                "generation": attempt.generation,
                "outcome": attempt.outcome?.number(),
                "started_at": attempt.started_at.as_micros(),
                "ended_at": attempt.ended_at?.as_micros(),
                "worker": attempt.worker.as_str(),
                "failure": attempt.failure.as_ref().map(job_rows::failure_record_text),
            }))
        };
        self.put(include_str!("sql/add_attempt.sql"), closed.iter().filter_map(row).collect()).await
    }
}

/// Whether the end of a job has consequences that its own record knows of.
pub(super) fn is_slow(job: &JobRecord) -> bool {
    job.spec.options.callback_url.is_some() || job.cancel.is_some()
}

/// The jobs that others wait for by edges that are new or were opened.
fn opened(edges: &[EdgeChange]) -> impl Iterator<Item = JobId> {
    edges.iter().filter(|change| change.open).map(|change| change.edge.parent)
}

fn note_of(notes: &mut HashMap<JobId, Note>, id: JobId) -> Result<&mut Note, Fault> {
    notes.get_mut(&id).ok_or_else(|| job_rows::corrupt("a job that was changed and never loaded"))
}

/// The sequences of all jobs that the changes name.
fn sequences(changes: &Changes, store: &super::Inner) -> HashMap<JobId, i64> {
    let new = changes.new.iter().map(|entry| entry.job.id);
    let edges = changes.edges.iter().flat_map(|change| [change.edge.parent, change.edge.child]);
    let attempts = changes.attempts.iter().map(|closed| closed.job);
    let ids: Vec<JobId> = new.chain(edges).chain(attempts).chain(changes.events.iter().map(|(id, _)| *id)).collect();
    let uuids: Vec<uuid::Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
    let seqs = store.sequences(&uuids);
    ids.into_iter().zip(seqs).collect()
}

/// What happened, for readers of events and for the counts.
fn events(changes: &Changes, notes: &HashMap<JobId, Note>, seqs: &HashMap<JobId, i64>) -> Vec<EventRow> {
    let lane = |id: JobId| notes.get(&id).map_or(0, |note| note.lane);
    let mut events = Vec::new();
    for entry in &changes.removed {
        events.extend(EventRow::removed(lane(entry.job.id), entry.job.state.number().into(), 1));
    }
    for (id, kind) in &changes.events {
        // A job that was removed has no more to tell.
        if let Some(seq) = seqs.get(id).filter(|_| !changes.removed.iter().any(|entry| entry.job.id == *id)) {
            events.push(EventRow::told(lane(*id), *kind, *seq));
        }
    }
    for entry in changes.new.iter().filter(|entry| entry.job.state == State::Pending) {
        events.push(EventRow::pending(lane(entry.job.id), 1));
    }
    for Change { before, after } in &changes.changed {
        let (was, is) = (before.job.state, after.job.state);
        if was.is_terminal() && was != is {
            events.extend(EventRow::left(lane(after.job.id), was.number().into()));
        }
        let pending = i32::from(is == State::Pending) - i32::from(was == State::Pending);
        if pending != 0 {
            events.push(EventRow::pending(lane(after.job.id), pending));
        }
        let closed = changes.attempts.iter().find(|closed| closed.job == after.job.id);
        let counted = closed.and_then(|closed| AttemptCount::of(closed.attempt.outcome, is));
        events.extend(counted.map(|counted| EventRow::attempt(lane(after.job.id), counted)));
    }
    events
}

pub(super) fn wide(entry: &Entry, lane: Lane) -> Value {
    let job = &entry.job;
    let spec = &job.spec;
    let depends_on: Option<&Vec<Dependency>> = Some(&spec.depends_on).filter(|list| !list.is_empty());
    json!({
        "seq": entry.sequence,
        "id": job.id,
        "lane": lane,
        "priority": spec.priority.number(),
        "inherited": job.inherited_priority.map(|priority| priority.number()),
        "depth": entry.depth,
        "created_at": job.created_at.as_micros(),
        "deadline": micros(job.deadline),
        "visibility": job_rows::micros(spec.options.timeouts.visibility),
        "content_type": spec.payload.stored_content_type(),
        // What cannot be read is not written over.
        "options": spec.damage.is_none().then(|| job_rows::json(&spec.options)),
        "depends_on": depends_on.map(job_rows::json),
        "workflow": job.workflow_id,
        "schedule": job.firing.as_ref().map(|firing| firing.schedule.as_str()),
        "slot": job.firing.as_ref().map(|firing| firing.slot.as_micros()),
        "spawned_by": job.spawned_by,
    })
}

fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_micros)
}

/// The narrow row of a job, and which table it goes to: pending, ready, leased, done.
pub(super) fn narrow(entry: &Entry, note: &Note, tokens: &TokenKey) -> (usize, Value) {
    let job = &entry.job;
    let mut row = json!({
        "seq": entry.sequence,
        "lane": note.lane,
        "priority": job.effective_priority().number(),
        "state": job.state.number(),
        "slow": note.slow,
        "deadline": micros(job.deadline),
        "visibility": job_rows::micros(job.spec.options.timeouts.visibility),
        "lease_max": job.spec.options.timeouts.stored_lease_max(),
        "kept": job.spec.options.retention.stored(),
        "version": job.lease_version,
        "attempt": job.attempt,
        "failures": job.failures,
        "lost": job.lost,
        "generation": job.generation,
        "started_at": micros(job.started_at),
        "failed_at": micros(job.failure.as_ref().map(|failure| failure.at)),
        "failure": job.failure.as_ref().map(job_rows::failure_record_text),
    });
    let fields = row.as_object_mut().expect("it was written as an object");
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    match job.state {
        State::Pending => {
            set("waits_all", json!(entry.waits.all));
            set("waits_any", json!(entry.waits.any));
            set("run_at", json!(micros(job.run_at)));
            set("scheduled_at", json!(micros(job.scheduled_at)));
            set("updated_at", json!(job.updated_at.as_micros()));
            (0, row)
        }
        State::Scheduled => {
            set("due", json!(job.position.as_micros()));
            (1, row)
        }
        State::Delayed | State::Retrying => {
            set("due", json!(micros(job.run_at)));
            set("scheduled_at", json!(micros(job.scheduled_at)));
            set("updated_at", json!(job.updated_at.as_micros()));
            (1, row)
        }
        State::Running => {
            let lease = job.lease.as_ref();
            set("scheduled_at", json!(micros(job.scheduled_at)));
            set("token", json!(entry.token.map(|token| tokens.stored(token))));
            set("expires_at", json!(lease.map(|lease| lease.expires_at.as_micros())));
            set("worker", json!(lease.map(|lease| lease.worker.as_str())));
            set("cancel", json!(job.cancel.as_ref().map(job_rows::json)));
            set("strand", json!(note.strand));
            (2, row)
        }
        State::Completed | State::Failed | State::DeadLetter | State::Cancelled => {
            let completed_by: Option<&(LeaseToken, WorkerId)> = note.completed_by.as_ref();
            set("scheduled_at", json!(micros(job.scheduled_at)));
            set("completed_at", json!(micros(job.completed_at)));
            set("token", json!(completed_by.map(|(token, _)| tokens.stored(*token))));
            set("worker", json!(completed_by.map(|(_, worker)| worker.as_str())));
            set("reason", json!(job.reason.as_ref().map(job_rows::json)));
            set("prune_at", json!(micros(job.prune_at())));
            set("fingerprint", json!(job.fault().map(Fingerprint::number)));
            set("result_type", json!(job.result.as_ref().and_then(|result| result.stored_content_type())));
            set("result", json!(job.result.as_ref().map(|result| hexadecimal(result.as_bytes()))));
            (3, row)
        }
    }
}

/// Records an act, and forgets the oldest ones.
pub(super) async fn add_act(link: &Link<'_>, act: &ActRecord) -> Result<(), Fault> {
    link.execute(include_str!("sql/add_act.sql"), &[&job_rows::json(act)]).await?;
    link.execute(include_str!("sql/forget_acts.sql"), &[&ACTS_KEPT]).await?;
    Ok(())
}

/// The first and the last of each run of neighbours.
fn runs(seqs: &[i64]) -> (Vec<i64>, Vec<i64>) {
    let mut seqs = seqs.to_vec();
    seqs.sort_unstable();
    seqs.dedup();
    seqs.chunk_by(|one, next| one + 1 == *next).map(|run| (run[0], run[run.len() - 1])).unzip()
}

/// Bytes as PostgreSQL reads them from text.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 + bytes.len() * 2);
    text.push_str("\\x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn neighbours_are_removed_together() {
        assert_eq!(runs(&[]), (vec![], vec![]));
        assert_eq!(runs(&[9, 3, 5, 4, 4, 7]), (vec![3, 7, 9], vec![5, 7, 9]));
    }
}
