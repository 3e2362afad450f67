//! Recurring work: which schedules are due is the core's to say; here they are stored, and their firings.

use serde::{Deserialize, Serialize};

use super::Inner;
use super::fault::Fault;
use super::plan::Origin;
use super::rows;
use super::unit::Unit;
use crate::job::{
    Dependency, DependencyKind, DependsOn, Firing, JobId, JobOptions, JobSpec, JobType, Payload, Priority, QueueName,
};
use crate::schedule::{LastJob, Missed, Overlap, Plan, ScheduleRecord, ScheduleSpec, Timing};
use crate::store::answer::{ActRecord, ScheduleEdited};
use crate::store::request::{PAGE_MAX, ScheduleChange, ScheduleEdit};
use crate::time::Timestamp;
use crate::workflow::Submission;

impl Unit<'_> {
    pub(super) async fn edit_schedule(
        &mut self,
        edit: &ScheduleEdit,
        by: Option<&str>,
    ) -> Result<ScheduleEdited, Fault> {
        let (name, now) = (edit.name(), self.now);
        let ScheduleChange { act, schedule, fires, deletes } = edit.decide(self.schedule(name).await?, now)?;
        let job = if fires { Some(self.fire(name, schedule.spec.job.clone(), now).await?) } else { None };
        if deletes {
            self.link.execute(include_str!("sql/schedule_delete.sql"), &[&name]).await?;
        } else {
            self.put_schedule(&schedule).await?;
        }
        let (by, act, target) = (by.map(str::to_owned), act.to_owned(), format!("schedule {name}"));
        self.record_act(&ActRecord { at: now, by, act, target, changed: 1, why: None }).await?;
        Ok(ScheduleEdited { schedule, job })
    }

    async fn schedule(&self, name: &str) -> Result<Option<ScheduleRecord>, Fault> {
        // No text here can hold NUL, and no name does.
        if name.contains('\0') {
            return Ok(None);
        }
        let rows = self.link.query(include_str!("sql/schedule_find.sql"), &[&name]).await?;
        rows.first().map(|row| read(row.get(0))).transpose()
    }

    async fn put_schedule(&self, schedule: &ScheduleRecord) -> Result<(), Fault> {
        let next_at = schedule.next_at.map(Timestamp::as_micros);
        let parameters: [super::link::Parameter<'_>; 4] =
            [&schedule.spec.name, &next_at, &schedule.paused, &text(schedule)];
        self.link.execute(include_str!("sql/schedule_put.sql"), &parameters).await?;
        Ok(())
    }

    /// Fires what is due; gives how many jobs that made.
    pub(super) async fn fire_schedules(&mut self, limit: usize) -> Result<usize, Fault> {
        let rows = self.link.query(include_str!("sql/schedule_due.sql"), &[&self.now.as_micros()]).await?;
        let mut fired = 0;
        for row in &rows {
            if fired >= limit {
                break;
            }
            fired += self.fire_schedule(read(row.get(0))?).await?;
        }
        Ok(fired)
    }

    async fn fire_schedule(&mut self, mut schedule: ScheduleRecord) -> Result<usize, Fault> {
        self.load(schedule.last_job).await?;
        let Plan { fire, next_at } = schedule.plan(self.last_job(&schedule), self.now);
        let before = schedule.clone();
        let mut previous = schedule.last_job;
        let count = fire.len();
        let mut made = 0;
        for one in fire {
            let mut spec = schedule.spec.job.clone();
            let waits = previous.filter(|_| one.after_previous);
            let after = |job| Dependency { on: DependsOn::Job(job), kind: DependencyKind::AfterAll };
            spec.depends_on = waits.map(after).into_iter().collect();
            // A template is checked when it is stored, so only a lifetime shorter than its own delay could fail.
            let job = match self.fire(&schedule.spec.name, spec, one.slot).await {
                Ok(job) => job,
                Err(Fault::Said(_)) => continue,
                Err(fault) => return Err(fault),
            };
            previous = Some(job);
            schedule.fired(one.slot, job);
            made += 1;
        }
        debug_assert!(made <= count);
        schedule.next_at = next_at;
        if schedule != before {
            self.put_schedule(&schedule).await?;
        }
        Ok(made)
    }

    fn last_job(&self, schedule: &ScheduleRecord) -> LastJob {
        match schedule.last_job.map(|id| self.by_id(id)) {
            None => LastJob::None,
            Some(None) => LastJob::Gone,
            Some(Some(entry)) => match entry.job.completed_at {
                Some(at) => LastJob::Ended { at },
                None => LastJob::Unfinished { state: entry.job.state },
            },
        }
    }

    async fn fire(&mut self, schedule: &str, spec: JobSpec, slot: Timestamp) -> Result<JobId, Fault> {
        let firing = Firing { schedule: schedule.to_owned(), slot };
        let origin = Origin { firing: Some(firing), ..Origin::default() };
        let made = self.insert_from(&Submission::new(vec![spec])?, &origin).await?;
        Ok(made[0].id)
    }
}

impl Inner {
    pub(super) async fn schedules(&self, after: Option<&str>, limit: usize) -> Result<Vec<ScheduleRecord>, Fault> {
        let link = self.link().await?;
        let limit = i64::try_from(limit.min(PAGE_MAX)).unwrap_or(i64::MAX);
        // No text here can hold NUL. No name does either, so what follows a text up to its NUL is what follows the text.
        let after = after.map(|text| text.split('\0').next().unwrap_or_default());
        let rows = link.query(include_str!("sql/schedule_list.sql"), &[&after, &limit]).await?;
        rows.iter().map(|row| read(row.get(0))).collect()
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
}

fn text(schedule: &ScheduleRecord) -> String {
    let ScheduleSpec { name, timing, missed, overlap, job, from_code } = schedule.spec.clone();
    rows::json(&ScheduleText {
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
    })
}

fn read(text: &str) -> Result<ScheduleRecord, Fault> {
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
    })
}
