//! Recurring work: which slots are due and what they make is the rules' to say; here schedules are stored.

use serde::{Deserialize, Serialize};

use super::Inner;
use super::fault::Fault;
use super::job_rows;
use super::link::{Link, Parameter};
use super::transaction::Transaction;
use super::turns::Caller;
use crate::job::{JobId, JobOptions, JobSpec, JobType, Payload, Priority, QueueName};
use crate::schedule::{FiringError, Missed, Overlap, ScheduleRecord, ScheduleSpec, Timing};
use crate::store::answer::ScheduleEdited;
use crate::store::request::{PAGE_MAX, ScheduleEdit};
use crate::store::rules;
use crate::time::Timestamp;

impl Transaction<'_> {
    pub(super) async fn edit_schedule(
        &mut self,
        edit: &ScheduleEdit,
        by: Option<&str>,
    ) -> Result<ScheduleEdited, Fault> {
        let stored = get(&self.link, edit.name()).await?;
        let mut working = self.working();
        let edited = self.run(&mut working, |set| rules::edit_schedule(set, stored.as_ref(), edit, by)).await?;
        self.flush(working).await?;
        Ok(edited)
    }

    /// Fires what is due; gives how many jobs that made.
    pub(super) async fn fire_schedules(&mut self, limit: usize) -> Result<usize, Fault> {
        let rows = self.link.query(include_str!("sql/list_due_schedules.sql"), &[&self.now.as_micros()]).await?;
        let mut due: Vec<ScheduleRecord> = Vec::with_capacity(rows.len());
        for row in &rows {
            match read(row.get("record")) {
                Ok(schedule) => due.push(schedule),
                // It waits to be mended; the others go on.
                Err(problem) => tracing::error!(%problem, "a damaged schedule does not fire"),
            }
        }
        let mut working = self.working();
        let last_jobs: Vec<JobId> = due.iter().filter_map(|schedule| schedule.last_job).collect();
        self.load_jobs(&mut working, &last_jobs).await?;
        let mut fired = 0;
        for schedule in due {
            if fired >= limit {
                break;
            }
            fired += self.run(&mut working, |set| rules::fire(set, &schedule)).await?;
        }
        self.flush(working).await?;
        Ok(fired)
    }
}

async fn get(link: &Link<'_>, name: &str) -> Result<Option<ScheduleRecord>, Fault> {
    // No text of PostgreSQL can hold NUL, and no name does.
    if name.contains('\0') {
        return Ok(None);
    }
    let rows = link.query(include_str!("sql/get_schedule.sql"), &[&name]).await?;
    Ok(rows.first().map(|row| read(row.get("record"))).transpose()?)
}

pub(super) async fn put(link: &Link<'_>, schedule: &ScheduleRecord) -> Result<(), Fault> {
    let next_at = schedule.next_at.map(Timestamp::as_micros);
    let parameters: [Parameter<'_>; 4] = [&schedule.spec.name, &next_at, &schedule.paused, &text(schedule)];
    link.execute(include_str!("sql/put_schedule.sql"), &parameters).await?;
    Ok(())
}

pub(super) async fn delete(link: &Link<'_>, name: &str) -> Result<(), Fault> {
    link.execute(include_str!("sql/delete_schedule.sql"), &[&name]).await?;
    Ok(())
}

impl Inner {
    pub(super) async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>, Fault> {
        let link = self.link(Caller::Reader).await?;
        let limit = i64::try_from(limit.min(PAGE_MAX)).unwrap_or(i64::MAX);
        // No text of PostgreSQL can hold NUL. No name does either, so the names after a text are those after its part up
        // to the NUL.
        let after = after.map(|text| text.split('\0').next().unwrap_or_default());
        let rows = link.query(include_str!("sql/list_schedules.sql"), &[&after, &limit]).await?;
        // A damaged one is found by `check`; the others must be shown.
        Ok(rows.iter().filter_map(|row| read(row.get("record")).ok()).collect())
    }
}

/// A schedule as it is stored.
#[derive(Serialize, Deserialize)]
struct ScheduleText {
    name: String,
    timing: Timing,
    missed: Missed,
    overlap: Overlap,
    from_code: bool,
    job_type: JobType,
    queue: QueueName,
    priority: Priority,
    content_type: Option<String>,
    payload: Vec<u8>,
    options: JobOptions,
    version: u64,
    paused: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
    next_at: Option<Timestamp>,
    last_slot: Option<Timestamp>,
    last_job: Option<JobId>,
    fired: u64,
    last_error: Option<FiringError>,
}

fn text(schedule: &ScheduleRecord) -> String {
    let ScheduleSpec { name, timing, missed, overlap, job, from_code } = schedule.spec.clone();
    job_rows::json(&ScheduleText {
        name,
        timing,
        missed,
        overlap,
        from_code,
        job_type: job.job_type,
        queue: job.queue,
        priority: job.priority,
        content_type: job.payload.stored_content_type().map(str::to_owned),
        payload: job.payload.as_bytes().to_vec(),
        options: job.options,
        version: schedule.version,
        paused: schedule.paused,
        created_at: schedule.created_at,
        updated_at: schedule.updated_at,
        next_at: schedule.next_at,
        last_slot: schedule.last_slot,
        last_job: schedule.last_job,
        fired: schedule.fired,
        last_error: schedule.last_error.clone(),
    })
}

pub(super) fn read(text: &str) -> serde_json::Result<ScheduleRecord> {
    let stored: ScheduleText = serde_json::from_str(text)?;
    let payload = Payload::from_stored(stored.content_type.as_deref(), stored.payload);
    let job = JobSpec::from_stored(stored.job_type, stored.queue, payload, stored.priority, Vec::new(), stored.options);
    let ScheduleText { name, timing, missed, overlap, from_code, .. } = stored;
    Ok(ScheduleRecord {
        spec: ScheduleSpec { name, timing, missed, overlap, job, from_code },
        version: stored.version,
        paused: stored.paused,
        created_at: stored.created_at,
        updated_at: stored.updated_at,
        next_at: stored.next_at,
        last_slot: stored.last_slot,
        last_job: stored.last_job,
        fired: stored.fired,
        last_error: stored.last_error,
    })
}
