//! Recurring work, as a client or a worker's code describes it.

use std::time::Duration;

use super::Client;
use crate::error::Result;
use crate::job::{IntoNewJob, JobId, NewJob};
use crate::schedule::{Cron, Missed, Overlap, ScheduleRecord, ScheduleSpec, Timing};
use crate::store::ScheduleEdit;
use crate::time::Timestamp;

/// A recurring definition with an unchecked job; a client checks it when it is stored.
#[derive(Clone, Debug)]
#[must_use = "a schedule does nothing until a client or a worker stores it"]
pub struct Schedule {
    name: String,
    timing: Timing,
    missed: Missed,
    overlap: Overlap,
    job: NewJob,
}

impl Schedule {
    /// Fires at the times that a cron expression names, in UTC.
    pub fn cron(name: impl Into<String>, expression: &str, job: impl IntoNewJob) -> Result<Self> {
        Schedule::cron_in(name, expression, "UTC", job)
    }

    /// Fires at the local times that a cron expression names in an IANA zone.
    pub fn cron_in(name: impl Into<String>, expression: &str, zone: &str, job: impl IntoNewJob) -> Result<Self> {
        Schedule::new(name, Timing::Cron(Cron::new(expression, zone)?), job)
    }

    /// Fires at a fixed rate.
    pub fn every(name: impl Into<String>, every: Duration, job: impl IntoNewJob) -> Result<Self> {
        Schedule::new(name, Timing::Every { every, anchor: Timestamp::EPOCH }, job)
    }

    /// Fires this long after its last job ended.
    pub fn delay(name: impl Into<String>, after: Duration, job: impl IntoNewJob) -> Result<Self> {
        Schedule::new(name, Timing::Delay { after }, job)
    }

    fn new(name: impl Into<String>, timing: Timing, job: impl IntoNewJob) -> Result<Self> {
        let (missed, overlap) = (Missed::default(), Overlap::default());
        Ok(Schedule { name: name.into(), timing, missed, overlap, job: job.into_new_job()? })
    }

    /// What becomes of slots that were missed; they fire as one unless said otherwise.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// What becomes of slots while the last firing's job is unfinished; they do not fire unless said otherwise.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// The first slot of a fixed rate; other timings have none and stay as they are.
    pub fn anchor(mut self, at: Timestamp) -> Self {
        if let Timing::Every { anchor, .. } = &mut self.timing {
            *anchor = at;
        }
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks it and its job under a client's limits and policies.
    pub fn check(&self, client: &Client) -> Result<ScheduleSpec> {
        let spec = ScheduleSpec {
            name: self.name.clone(),
            timing: self.timing.clone(),
            missed: self.missed,
            overlap: self.overlap,
            job: client.check_job(self.job.clone())?,
            from_code: false,
        };
        spec.check()?;
        Ok(spec)
    }
}

impl Client {
    /// Stores a schedule, in place of one of the same name if there is one.
    pub async fn put_schedule(&self, schedule: &Schedule) -> Result<ScheduleRecord> {
        let spec = schedule.check(self)?;
        Ok(self.store().edit_schedule(&ScheduleEdit::Put { spec, version: None }, None).await?.schedule)
    }

    /// Stops a schedule firing until it is resumed.
    pub async fn pause_schedule(&self, name: &str) -> Result<ScheduleRecord> {
        Ok(self.store().edit_schedule(&ScheduleEdit::Pause(name.to_owned()), None).await?.schedule)
    }

    /// Lets a schedule fire again.
    pub async fn resume_schedule(&self, name: &str) -> Result<ScheduleRecord> {
        Ok(self.store().edit_schedule(&ScheduleEdit::Resume(name.to_owned()), None).await?.schedule)
    }

    /// Fires a schedule now, beside its slots; gives the job.
    pub async fn trigger_schedule(&self, name: &str) -> Result<JobId> {
        let edited = self.store().edit_schedule(&ScheduleEdit::Trigger(name.to_owned()), None).await?;
        Ok(edited.job.expect("a trigger fires a job"))
    }

    /// Forgets a schedule; its jobs stay.
    pub async fn delete_schedule(&self, name: &str) -> Result<ScheduleRecord> {
        Ok(self.store().edit_schedule(&ScheduleEdit::Delete(name.to_owned()), None).await?.schedule)
    }
}
