//! What a move reads from a file and writes into one; see [`crate::store::moving`].

use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::columns::{json, kind_number, outcome_of, read_version, stored_version, text, time, uuid};
use super::entry::flags_of;
use super::fault::{Answer, Fault};
use super::job_rows::{Closed, Entry, Place};
use super::transaction::Transaction;
use crate::flow::GateName;
use crate::job::{AttemptId, AttemptRecord, JobId, JobRecord, LeaseToken, State, WorkerId, WorkflowId};
use crate::store::moving::{
    Mark, MovedEdge, MovedJob, MovedKey, MovedLine, MovedWorkflow, Name, Part, Rest, departures,
};
use crate::store::rules;
use crate::time::Timestamp;

impl Transaction<'_> {
    pub(super) fn move_mark(&self) -> Answer<Option<Mark>> {
        let mut statement = self.statement(include_str!("moving/get_move.sql"))?;
        let mut rows = statement.query([])?;
        rows.next()?.map(|row| json(row, "record")).transpose().map(Option::flatten)
    }

    pub(super) fn put_move_mark(&self, mark: &Mark) -> Answer<()> {
        self.statement(include_str!("moving/put_move.sql"))?.execute([text(mark)])?;
        Ok(())
    }

    /// Refuses what a run attempts that no longer goes on with the move.
    pub(super) fn check_runner(&self, mark: &Mark) -> Answer<()> {
        Ok(mark.check_runner(self.move_mark()?.as_ref())?)
    }

    /// The next names, in their order.
    pub(super) fn moved_names(&self, after: Option<&Name>, limit: usize) -> Answer<Vec<Name>> {
        let wanted = |names: &[Name]| i64::try_from(limit - names.len()).unwrap_or(i64::MAX);
        let mut names = Vec::with_capacity(limit);
        if matches!(after, None | Some(Name::Job(_))) {
            let from = if let Some(Name::Job(seq)) = after { *seq } else { 0 };
            let mut statement = self.statement(include_str!("sql/list_oldest.sql"))?;
            let found = statement.query_map([from, wanted(&names)], |row| Ok(Name::Job(row.get("seq")?)))?;
            names.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        if names.len() < limit && !matches!(after, Some(Name::Key(..))) {
            let from = if let Some(Name::Workflow(seq)) = after { *seq } else { 0 };
            let mut statement = self.statement(include_str!("moving/list_workflow_names.sql"))?;
            let found = statement.query_map([from, wanted(&names)], |row| Ok(Name::Workflow(row.get("seq")?)))?;
            names.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        if names.len() < limit {
            let from = if let Some(Name::Key(scope, key)) = after { (scope.as_str(), key.as_str()) } else { ("", "") };
            let mut statement = self.statement(include_str!("moving/list_key_names.sql"))?;
            let from = params![from.0, from.1, wanted(&names)];
            let found = statement.query_map(from, |row| Ok(Name::Key(row.get("scope")?, row.get("key")?)))?;
            names.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        Ok(names)
    }

    /// What has these names, as it is stored.
    pub(super) fn moved_part(&mut self, names: &[Name]) -> Answer<Part> {
        // Nothing falls due while it is moved.
        let now = std::mem::replace(&mut self.now, Timestamp::EPOCH);
        let mut part = Part::default();
        for name in names {
            let found = match name {
                Name::Job(seq) => self.moved_job(*seq)?.map(|job| part.jobs.push(job)),
                Name::Workflow(seq) => self.moved_workflow(*seq)?.map(|workflow| part.workflows.push(workflow)),
                Name::Key(scope, key) => self.moved_key(scope, key)?.map(|key| part.keys.push(key)),
            };
            if found.is_none() {
                part.gone.push(name.clone());
            }
        }
        self.now = now;
        Ok(part)
    }

    fn moved_job(&mut self, seq: i64) -> Answer<Option<MovedJob>> {
        let Some(entry) = self.load(seq)? else { return Ok(None) };
        let inline = entry.inline_attempt();
        let mut attempts = self.moved_attempts(&entry.job, seq)?;
        if let Some((closed, attempt)) = entry.closed.as_ref().zip(inline) {
            attempts.push((closed.token, attempt));
        }
        let ended = if let Place::Done { ended, .. } = entry.place { ended } else { 0 };
        let edges = self.dependencies(seq)?;
        let edges = edges.into_iter().map(|(parent, kind, open)| MovedEdge { parent, kind, open }).collect();
        let mut statement = self.statement(include_str!("moving/list_moved_lines.sql"))?;
        let lines = statement.query_map([seq], |row| {
            let version = read_version(row.get("version")?);
            Ok(MovedLine { version, at: time(row.get("at")?), text: row.get("text")? })
        })?;
        let logs = lines.collect::<rusqlite::Result<Vec<_>>>()?;
        let Entry { job, token, waits, depth, .. } = entry;
        let entry = rules::Entry { sequence: seq, job, token, waits, depth };
        Ok(Some(MovedJob { entry, ended, edges, attempts, logs }))
    }

    fn moved_attempts(&self, job: &JobRecord, seq: i64) -> Answer<Vec<(LeaseToken, AttemptRecord)>> {
        let mut statement = self.statement(include_str!("moving/list_moved_attempts.sql"))?;
        let mut rows = statement.query([seq])?;
        let mut attempts = Vec::new();
        while let Some(row) = rows.next()? {
            let version = read_version(row.get("version")?);
            let attempt = AttemptRecord {
                id: AttemptId::of(job.id, version),
                previous: version
                    .checked_sub(1)
                    .filter(|before| *before > 0)
                    .map(|before| AttemptId::of(job.id, before)),
                number: row.get("number")?,
                generation: row.get("generation")?,
                lease_version: version,
                worker: WorkerId::new(row.get_ref("worker")?.as_str()?)?,
                started_at: time(row.get("started_at")?),
                ended_at: Some(time(row.get("ended_at")?)),
                outcome: Some(outcome_of(row.get("outcome")?)?),
                failure: json(row, "failure")?,
            };
            attempts.push((LeaseToken::from_uuid(uuid(row, "token")?), attempt));
        }
        Ok(attempts)
    }

    fn moved_workflow(&self, seq: i64) -> Answer<Option<MovedWorkflow>> {
        let mut statement = self.statement(include_str!("moving/get_moved_workflow.sql"))?;
        let mut rows = statement.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(MovedWorkflow {
            sequence: seq,
            id: WorkflowId::from_uuid(uuid(row, "id")?),
            name: row.get("name")?,
            created_at: time(row.get("created_at")?),
            pruned: u64::try_from(row.get::<_, i64>("pruned")?).unwrap_or_default(),
        }))
    }

    fn moved_key(&self, scope: &str, key: &str) -> Answer<Option<MovedKey>> {
        let mut statement = self.statement(include_str!("moving/get_moved_key.sql"))?;
        let mut rows = statement.query([scope, key])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(MovedKey {
            scope: scope.to_owned(),
            key: key.to_owned(),
            job: JobId::from_uuid(Uuid::from_bytes(row.get("job")?)),
            fingerprint: row.get("fingerprint")?,
            until: row.get("until")?,
            first_at: time(row.get("first_at")?),
            expires_at: row.get::<_, Option<i64>>("expires_at")?.map(time),
            look_at: row.get::<_, Option<i64>>("look_at")?.map(time),
        }))
    }

    /// Writes over what was copied before.
    pub(super) fn take_part(&mut self, part: &Part) -> Answer<()> {
        for name in &part.gone {
            match name {
                Name::Job(seq) => self.drop_copy(*seq)?,
                Name::Workflow(seq) => {
                    self.statement(include_str!("moving/delete_workflow.sql"))?.execute([seq])?;
                }
                Name::Key(scope, key) => {
                    self.statement(include_str!("sql/delete_key.sql"))?.execute([scope, key])?;
                }
            }
        }
        for job in &part.jobs {
            self.drop_copy(job.entry.sequence)?;
            self.take_job(job)?;
        }
        for workflow in &part.workflows {
            let MovedWorkflow { sequence, id, name, created_at, pruned } = workflow;
            let pruned = i64::try_from(*pruned).unwrap_or(i64::MAX);
            let kept = params![sequence, id.as_uuid().into_bytes(), name, created_at.as_micros(), pruned];
            self.statement(include_str!("moving/put_moved_workflow.sql"))?.execute(kept)?;
        }
        for key in &part.keys {
            let MovedKey { scope, key, job, fingerprint, until, first_at, expires_at, look_at } = key;
            let micros = |at: &Option<Timestamp>| at.map(Timestamp::as_micros);
            let job = job.as_uuid().into_bytes();
            let kept =
                params![scope, key, job, fingerprint, until, first_at.as_micros(), micros(expires_at), micros(look_at)];
            self.statement(include_str!("sql/put_key.sql"))?.execute(kept)?;
        }
        Ok(())
    }

    /// Removes a job that was copied before, and only what is its own.
    fn drop_copy(&mut self, seq: i64) -> Answer<()> {
        let Some(entry) = self.load(seq)? else { return Ok(()) };
        self.leave(&entry)?;
        self.statement(include_str!("sql/delete_job.sql"))?.execute([seq])?;
        if let Some(deadline) = entry.job.deadline {
            self.statement(include_str!("sql/delete_lifetime.sql"))?.execute([deadline.as_micros(), seq])?;
        }
        self.statement(include_str!("sql/delete_note.sql"))?.execute([seq])?;
        self.statement(include_str!("sql/delete_marks.sql"))?.execute([seq])?;
        self.statement(include_str!("sql/forget_attempts.sql"))?.execute([seq, i64::MAX])?;
        self.statement(include_str!("sql/forget_logs.sql"))?.execute([seq, i64::MAX])?;
        self.statement(include_str!("moving/delete_own_edges.sql"))?.execute([seq])?;
        Ok(())
    }

    fn take_job(&mut self, moved: &MovedJob) -> Answer<()> {
        let rules::Entry { sequence: seq, job, token, waits, depth } = &moved.entry;
        let lane = self.lane_of(&job.spec)?;
        // It stands first where it stands now.
        let at = match job.state {
            State::Scheduled => Some(job.position),
            State::Delayed | State::Retrying => job.run_at,
            _ => None,
        };
        let first_at = at.filter(|at| *at != job.created_at).map(Timestamp::as_micros);
        self.write_submitted(*seq, lane, first_at, *depth, job)?;
        let mut row = Entry {
            seq: *seq,
            lane,
            stands_in: lane,
            first_at: first_at.unwrap_or(job.created_at.as_micros()),
            depth: *depth,
            flags: flags_of(&job.spec.options),
            place: Place::Pending,
            job: job.clone(),
            token: *token,
            closed: None,
            waits: *waits,
        };
        self.take_notes(&mut row)?;
        for (token, attempt) in &moved.attempts {
            match ends_inline(job, attempt) {
                true => {
                    let outcome =
                        attempt.outcome.ok_or_else(|| Fault::broken("a closed attempt without an outcome"))?;
                    row.closed = Some(Closed { outcome, token: *token, worker: attempt.worker.clone() });
                }
                false => self.keep_attempt(*seq, *token, attempt)?,
            }
        }
        match job.state.is_terminal() {
            true => {
                self.enter_done_as(&mut row, moved.ended)?;
                self.count(lane, job.state, 1);
            }
            false => self.enter(&mut row)?,
        }
        if let Some(cancel) = &job.cancel {
            self.statement(include_str!("sql/set_cancel.sql"))?.execute(params![seq, text(cancel)])?;
        }
        for edge in &moved.edges {
            let edge = params![edge.parent, seq, kind_number(edge.kind), edge.open];
            self.statement(include_str!("sql/add_edge.sql"))?.execute(edge)?;
        }
        for (line, MovedLine { version, at, text }) in (1_i64..).zip(&moved.logs) {
            let kept = params![seq, stored_version(*version), line, at.as_micros(), text];
            self.statement(include_str!("sql/add_log_line.sql"))?.execute(kept)?;
        }
        Ok(())
    }

    fn take_notes(&mut self, row: &mut Entry) -> Answer<()> {
        let seq = row.seq;
        let (progress, checkpoint) = (row.job.progress.as_ref().map(text), row.job.checkpoint.clone());
        if row.job.failure.is_some() || progress.is_some() || checkpoint.is_some() {
            // Marks the job as one that has notes, too.
            self.keep_failure(row)?;
        }
        if let Some(progress) = progress {
            self.statement(include_str!("sql/put_progress.sql"))?.execute(params![seq, progress])?;
        }
        if let Some(checkpoint) = checkpoint {
            self.statement(include_str!("sql/put_checkpoint.sql"))?.execute(params![seq, checkpoint.as_ref()])?;
        }
        Ok(())
    }

    /// Writes the small records and the numbers, in place of those of an earlier time.
    pub(super) fn take_rest(&mut self, rest: &Rest) -> Answer<()> {
        self.write_counts()?;
        for lane in &rest.lanes {
            let number = self.lane_named(&lane.queue, &lane.job_type)?;
            let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let [a, b, c, d] = departures(lane);
            let removed = a.0 + b.0 + c.0 + d.0;
            let left = [a, b, c, d].map(|(removed, otherwise)| count(removed + otherwise));
            let kept =
                [number, count(removed), left[0], left[1], left[2], left[3], count(lane.retried), count(lane.lost)];
            self.statement(include_str!("moving/put_history.sql"))?.execute(kept)?;
        }
        for (queue, paused) in &rest.queues {
            self.statement(include_str!("sql/set_paused.sql"))?.execute(params![queue.as_str(), paused])?;
        }
        for (queue, control) in &rest.flow.controls {
            self.take_control(queue, control)?;
            self.statement(include_str!("sql/delete_gates.sql"))?.execute([queue.as_str()])?;
        }
        for (queue, name, gate) in &rest.flow.gates {
            self.put_gate(queue, &GateName::from_stored(name)?, gate)?;
        }
        self.statement(include_str!("moving/empty_schedules.sql"))?.execute([])?;
        rest.schedules.iter().try_for_each(|schedule| self.put_schedule(schedule))?;
        self.statement(include_str!("moving/empty_acts.sql"))?.execute([])?;
        rest.acts.iter().try_for_each(|act| self.record_act(act))?;
        for (step, sample) in &rest.samples {
            let seconds = i64::try_from(step.every().as_secs()).unwrap_or(i64::MAX);
            let kept = params![seconds, sample.at.as_micros(), text(sample)];
            self.statement(include_str!("sql/put_sample.sql"))?.execute(kept)?;
        }
        self.statement(include_str!("sql/put_pulse.sql"))?.execute([rest.at.as_micros(), 0, 0])?;
        let last_end = self.statement(include_str!("moving/get_last_end.sql"))?.query_row([], |row| row.get(0))?;
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let (accepted, pruned) = (count(rest.totals.accepted), count(rest.totals.pruned));
        self.set_numbers(accepted, pruned, rest.last_sequence.max(last_end));
        Ok(())
    }

    /// What was noted of changes.
    pub(super) fn moved_changes(&self, limit: usize) -> Answer<Vec<(i64, Name)>> {
        let mut statement = self.statement(include_str!("moving/list_changes.sql"))?;
        let mut rows = statement.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let mut changes = Vec::new();
        while let Some(row) = rows.next()? {
            let name = match row.get::<_, i64>("kind")? {
                0 => Name::Job(row.get("seq")?),
                1 => Name::Workflow(row.get("seq")?),
                _ => Name::Key(row.get("scope")?, row.get("key")?),
            };
            changes.push((row.get("number")?, name));
        }
        Ok(changes)
    }

    /// Whether the file holds anything that a move would mix with.
    pub(super) fn is_used(&self) -> Answer<bool> {
        let mut statement = self.statement(include_str!("moving/is_used.sql"))?;
        Ok(statement.query_row([], |row| row.get(0)).optional()?.unwrap_or(false))
    }
}

/// Whether the row of an ended job says all of the attempt that ended it.
fn ends_inline(job: &JobRecord, attempt: &AttemptRecord) -> bool {
    job.state.is_terminal()
        && attempt.lease_version == job.lease_version
        && attempt.number == job.attempt
        && attempt.generation == job.generation
        && Some(attempt.started_at) == job.started_at
        && attempt.ended_at == Some(job.updated_at)
        && attempt.failure == job.failure
}
