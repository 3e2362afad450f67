//! Storing a submission: first everything is looked at, then everything is written, so that a refusal writes nothing.
//!
//! Jobs that depend on nothing are planned and written here; those that do go through the rules over several jobs.

use rusqlite::params;
use uuid::Uuid;

use super::columns::{dependencies, text};
use super::entry::flags_of;
use super::fault::{Answer, Fault};
use super::hot_statements::HotStatement;
use super::insert_batch::PlainJob;
use super::job_rows::{Entry, Place};
use super::transaction::Transaction;
use crate::job::{Idempotency, JobId, JobOptions, JobRecord, JobSpec, OnExisting, Priority, State, Timeouts, Until};
use crate::store::answer::{Inserted, InsertedJob};
use crate::store::ids::key_fingerprint;
use crate::store::new_workflow_id;
use crate::store::rules::{self, KeptKey, KeyUse};
use crate::time::Timestamp;
use crate::workflow::{Found, Held, KeyHolder, Lookup, NewRecord, Origin, Submission};

impl Transaction<'_> {
    pub(super) fn insert(&mut self, submission: &Submission) -> Answer<Inserted> {
        let workflow = submission.workflow_name().map(|name| (new_workflow_id(), name));
        let origin = Origin { workflow: workflow.map(|(id, _)| id), ..Origin::default() };
        let jobs = match submission.jobs().iter().all(is_flat) {
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
                    if let Some((key, new)) = KeyUse::of(&job.spec).zip(new.key) {
                        self.keep_key(&KeptKey { key, job: job.id, new })?;
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
            let Some(held) = self.held(&key)? else { continue };
            let entry = self.load_id(held.id)?;
            let job = entry.as_ref().map(|entry| (&entry.job, entry.depth));
            found.keys.insert(*place, KeyHolder::of(held, job, spec));
        }
        Ok(found)
    }

    /// What is kept of an idempotency key, if its time is not over.
    pub(super) fn held(&mut self, key: &KeyUse) -> Answer<Option<Held>> {
        let now = self.now.as_micros();
        let mut statement = self.statement(include_str!("sql/find_key.sql"))?;
        let mut rows = statement.query([key.scope.as_str(), key.key.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let expires_at: Option<i64> = row.get("expires_at")?;
        if expires_at.is_some_and(|expires_at| expires_at <= now) {
            return Ok(None);
        }
        let kept: Vec<u8> = row.get("fingerprint")?;
        Ok(Some(Held {
            id: JobId::from_uuid(Uuid::from_bytes(row.get("job")?)),
            matches: kept == key_fingerprint(&key.job_type, &key.payload),
            until: until(row.get("until")?)?,
            first_at: Timestamp::from_micros(row.get("first_at")?),
        }))
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

    /// Keeps by what a job is looked for.
    pub(super) fn add_marks(&self, seq: i64, options: &JobOptions) -> Answer<()> {
        for (name, value) in options.marks() {
            self.statement(include_str!("sql/add_mark.sql"))?.execute(params![seq, name, value])?;
        }
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
        self.write_submitted(seq, lane, first_at, *depth, job)?;
        let flags = flags_of(&spec.options);
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

    /// Keeps what was submitted, and the end of a lifetime that is not the standard one.
    pub(super) fn write_submitted(
        &mut self,
        seq: i64,
        lane: i64,
        first_at: Option<i64>,
        depth: u32,
        job: &JobRecord,
    ) -> Answer<()> {
        let spec = &job.spec;
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
        self.add_marks(seq, &spec.options)?;
        // Nearly all jobs have the standard lifetime, and upkeep finds its end by their order.
        let standard = Timeouts::default().lifetime.map(|lifetime| job.created_at.plus(lifetime));
        if job.deadline != standard {
            self.keep_lifetime(job.deadline.map(Timestamp::as_micros), seq)?;
        }
        Ok(())
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

    pub(super) fn keep_key(&mut self, kept: &KeptKey) -> Answer<()> {
        let KeptKey { key, job, new } = kept;
        let (first_at, expires_at) = (new.first_at.as_micros(), new.expires_at.map(Timestamp::as_micros));
        let look_at = kept.look_at(self.now).map(Timestamp::as_micros);
        let kept = params![
            key.scope,
            key.key,
            job.as_uuid().into_bytes(),
            key_fingerprint(&key.job_type, &key.payload),
            new.until.number(),
            first_at,
            expires_at,
            look_at
        ];
        self.statement(include_str!("sql/put_key.sql"))?.execute(kept)?;
        Ok(())
    }
}

/// What the stored number of a key's `until` stands for.
pub(super) fn until(number: u8) -> Answer<Until> {
    Until::from_number(number).ok_or_else(|| Fault::broken(format!("a key holds until {number}, which is nothing")))
}

/// Whether a job waits for no others and replaces none: then it is written without the rules over several jobs.
fn is_flat(spec: &JobSpec) -> bool {
    let replaces = |key: &Idempotency| key.on_existing == OnExisting::Replace;
    spec.depends_on.is_empty() && !spec.options.idempotency.as_ref().is_some_and(replaces)
}

/// Whether a job says nothing but its lane, its priority and a JSON payload, and can be claimed at once.
fn is_plain(new: &NewRecord<'_>) -> bool {
    new.run_at.is_none()
        && new.spec.payload.stored_content_type().is_none()
        && new.spec.options == JobOptions::default()
}
