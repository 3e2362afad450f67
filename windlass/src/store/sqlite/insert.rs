//! Storing a submission: first everything is looked at, then everything is written, so that a refusal writes nothing.
//!
//! Jobs that depend on nothing are planned and written here; those that do go through the rules over several jobs.

use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::columns::{dependencies, digest, text};
use super::fault::Answer;
use super::hot_statements::HotStatement;
use super::insert_batch::PlainJob;
use super::job_rows::{Entry, FLAG_CALLBACK, Place};
use super::transaction::Transaction;
use crate::job::{JobId, JobOptions, JobRecord, Priority, State, Timeouts};
use crate::store::answer::{Inserted, InsertedJob};
use crate::store::new_workflow_id;
use crate::store::rules::{self, KeyUse};
use crate::time::Timestamp;
use crate::workflow::{Found, KeyHolder, Lookup, NewRecord, Origin, Standing, Submission};

impl Transaction<'_> {
    pub(super) fn insert(&mut self, submission: &Submission) -> Answer<Inserted> {
        let workflow = submission.workflow_name().map(|name| (new_workflow_id(), name));
        let origin = Origin { workflow: workflow.map(|(id, _)| id), ..Origin::default() };
        let jobs = match submission.jobs().iter().all(|spec| spec.depends_on.is_empty()) {
            true => self.insert_flat(submission, &origin)?,
            false => {
                self.write_plain_jobs()?;
                self.run(|set| rules::insert(set, submission, &origin))?
            }
        };
        if let Some((id, name)) = workflow {
            let seq = self.tick();
            let record = params![seq, id.as_uuid().into_bytes(), name, self.now.as_micros()];
            self.statement(include_str!("sql/add_workflow.sql"))?.execute(record)?;
        }
        Ok(Inserted { jobs, workflow: origin.workflow })
    }

    /// Stores jobs that depend on nothing.
    fn insert_flat(&mut self, submission: &Submission, origin: &Origin) -> Answer<Vec<InsertedJob>> {
        let found = self.look_up(&submission.lookup())?;
        let plan = submission.plan(&found, self.now, &mut || self.draw())?;
        let from_client = *origin == Origin::default();
        for new in plan.new_jobs() {
            match from_client && is_plain(new) {
                true => self.gather(new)?,
                false => {
                    let (sequence, job) = (new.identity.sequence, new.record(origin, self.now));
                    let (waits, depth) = (new.admission.waits, new.admission.depth);
                    if job.state == State::Scheduled {
                        self.hint_scheduled(&job.spec.queue);
                    }
                    self.write_new(&rules::Entry { sequence, job, token: None, waits, depth })?;
                }
            }
        }
        Ok(plan.answers())
    }

    /// What the keys of a submission without dependencies stand for.
    fn look_up(&mut self, lookup: &Lookup<'_>) -> Answer<Found> {
        let mut found = Found::default();
        for (place, spec) in &lookup.keys {
            let Some(key) = KeyUse::of(spec) else { continue };
            let Some((id, matches)) = self.key_holder(&key)? else { continue };
            let standing = self.load_id(id)?.map(|entry| Standing::of(&entry.job, entry.depth));
            found.keys.insert(*place, KeyHolder { id, matches, standing });
        }
        Ok(found)
    }

    /// The job that an idempotency key stands for, and whether type and payload are the same.
    pub(super) fn key_holder(&mut self, key: &KeyUse) -> Answer<Option<(JobId, bool)>> {
        let mut statement = self.statement(include_str!("sql/find_key.sql"))?;
        let found = statement.query_row([key.scope.as_str(), key.key.as_str()], |row| {
            let (id, job_type, kept): ([u8; 16], String, Vec<u8>) =
                (row.get("job")?, row.get("type")?, row.get("digest")?);
            Ok((id, job_type, kept, row.get::<_, Option<i64>>("expires_at")?))
        });
        let Some((id, job_type, kept, expires_at)) = found.optional()? else { return Ok(None) };
        if expires_at.is_some_and(|expires_at| expires_at <= self.now.as_micros()) {
            return Ok(None);
        }
        let matches = job_type == key.job_type.as_str() && kept == digest(&key.payload);
        Ok(Some((JobId::from_uuid(Uuid::from_bytes(id)), matches)))
    }

    /// Takes a plain job to those that are written together.
    fn gather(&mut self, new: &NewRecord<'_>) -> Answer<()> {
        let (spec, identity) = (new.spec, new.identity);
        self.accept();
        let lane = self.lane_of(spec)?;
        self.count(lane, State::Scheduled, 1);
        self.hint_scheduled(&spec.queue);
        self.plain_jobs.push(PlainJob {
            seq: identity.sequence,
            id: identity.id,
            lane,
            priority: spec.priority.number(),
            created_at: self.now.as_micros(),
            payload: spec.payload.as_bytes().clone(),
        });
        Ok(())
    }

    /// Writes a new job.
    pub(super) fn write_new(&mut self, entry: &rules::Entry) -> Answer<()> {
        self.accept();
        self.write_plain_jobs()?;
        let rules::Entry { sequence, job, waits, depth, .. } = entry;
        let (seq, spec) = (*sequence, &job.spec);
        let lane = self.lane_of(spec)?;
        let first_at = job.run_at.map(Timestamp::as_micros);
        let options = Some(&spec.options).filter(|options| **options != JobOptions::default()).map(text);
        self.execute(
            HotStatement::AddJob,
            params![
                seq,
                job.id.as_uuid().as_bytes(),
                lane,
                spec.priority.number(),
                job.inherited_priority.map(Priority::number),
                job.created_at.as_micros(),
                first_at,
                depth,
                job.workflow_id.map(|id| id.as_uuid().into_bytes()),
                job.firing.as_ref().map(|firing| firing.schedule.as_str()),
                job.firing.as_ref().map(|firing| firing.slot.as_micros()),
                job.spawned_by.map(|id| id.as_uuid().into_bytes()),
                dependencies(&spec.depends_on),
                options,
                spec.payload.stored_content_type(),
                spec.payload.as_bytes().as_ref(),
            ],
        )?;
        self.keep_key(job)?;
        // Nearly all jobs have the standard lifetime, and upkeep finds its end by their order.
        let standard = Timeouts::default().lifetime.map(|lifetime| job.created_at.plus(lifetime));
        if job.deadline != standard {
            self.keep_lifetime(job.deadline.map(Timestamp::as_micros), seq)?;
        }
        let flags = if spec.options.callback_url.is_some() { FLAG_CALLBACK } else { 0 };
        let row = Entry {
            seq,
            lane,
            stands_in: lane,
            first_at: first_at.unwrap_or(job.created_at.as_micros()),
            depth: *depth,
            flags,
            place: Place::Pending,
            job: job.clone(),
            token: None,
            closed: None,
            waits: *waits,
        };
        self.rest(row)
    }

    /// Puts a new job where it rests.
    fn rest(&mut self, mut row: Entry) -> Answer<()> {
        let job = &row.job;
        let (kind, began) = match job.state {
            State::Scheduled => (0, None),
            State::Delayed => (1, Some(job.created_at.as_micros())),
            _ => {
                if job.failure.is_some() {
                    self.keep_failure(&mut row)?;
                }
                return self.enter(&mut row);
            }
        };
        let (priority, deadline) = (job.effective_priority().number(), job.deadline.map(Timestamp::as_micros));
        let place = params![row.lane, priority, row.first_at, row.seq, kind, deadline, row.flags, began];
        self.execute(HotStatement::AddNewReady, place)?;
        self.count(row.lane, row.job.state, 1);
        Ok(())
    }

    pub(super) fn keep_lifetime(&mut self, deadline: Option<i64>, seq: i64) -> Answer<()> {
        if let Some(deadline) = deadline {
            self.execute(HotStatement::AddLifetime, [deadline, seq])?;
        }
        Ok(())
    }

    fn keep_key(&mut self, job: &JobRecord) -> Answer<()> {
        let Some(KeyUse { scope, key, job_type, payload }) = KeyUse::of(&job.spec) else { return Ok(()) };
        let window = job.spec.options.idempotency.as_ref().and_then(|key| key.window);
        let expires_at = window.map(|window| job.created_at.plus(window).as_micros());
        let kept = params![scope, key, job.id.as_uuid().into_bytes(), job_type.as_str(), digest(&payload), expires_at];
        self.statement(include_str!("sql/put_key.sql"))?.execute(kept)?;
        Ok(())
    }
}

/// Whether a job says nothing but its lane, its priority and a JSON payload, and can be claimed at once.
fn is_plain(new: &NewRecord<'_>) -> bool {
    new.run_at.is_none()
        && new.spec.payload.stored_content_type().is_none()
        && new.spec.options == JobOptions::default()
}
