//! Recurring work: schedules as they are stored, and which of them are due.

use rusqlite::{Row as SqlRow, params};

use super::columns::{json, optional_uuid, parse, priority, text, time};
use super::fault::{Answer, Fault};
use super::transaction::Transaction;
use crate::job::{JobId, JobSpec, JobType, Payload, QueueName};
use crate::schedule::{ScheduleRecord, ScheduleSpec};
use crate::store::answer::ScheduleEdited;
use crate::store::request::ScheduleEdit;
use crate::store::rules;
use crate::time::Timestamp;

impl Transaction<'_> {
    pub(super) fn edit_schedule(&mut self, edit: &ScheduleEdit, by: Option<&str>) -> Answer<ScheduleEdited> {
        let stored = self.schedule(edit.name())?;
        self.run(|set| rules::edit_schedule(set, stored.as_ref(), edit, by))
    }

    fn schedule(&self, name: &str) -> Answer<Option<ScheduleRecord>> {
        let mut statement = self.statement(include_str!("sql/get_schedule.sql"))?;
        let mut rows = statement.query([name])?;
        rows.next()?.map(read_schedule).transpose()
    }

    pub(super) fn list_schedules(&self, after: Option<&str>, limit: usize) -> Answer<Vec<ScheduleRecord>> {
        let mut statement = self.statement(include_str!("sql/list_schedules.sql"))?;
        let mut rows = statement.query(params![after.unwrap_or(""), i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let mut schedules = Vec::new();
        while let Some(row) = rows.next()? {
            // A damaged one is found by `check`; the others must be shown.
            schedules.extend(read_schedule(row).ok());
        }
        Ok(schedules)
    }

    pub(super) fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Answer<()> {
        let ScheduleRecord { spec, .. } = schedule;
        let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
        self.statement(include_str!("sql/put_schedule.sql"))?.execute(params![
            spec.name,
            text(&spec.timing),
            text(&spec.missed),
            text(&spec.overlap),
            spec.from_code,
            spec.job.job_type.as_str(),
            spec.job.queue.as_str(),
            spec.job.priority.number(),
            text(&spec.job.options),
            spec.job.payload.stored_content_type(),
            spec.job.payload.as_bytes().as_ref(),
            i64::try_from(schedule.version).unwrap_or(i64::MAX),
            schedule.paused,
            schedule.created_at.as_micros(),
            schedule.updated_at.as_micros(),
            micros(schedule.next_at),
            micros(schedule.last_slot),
            schedule.last_job.map(|id| id.as_uuid().into_bytes()),
            i64::try_from(schedule.fired).unwrap_or(i64::MAX),
            schedule.last_error.as_ref().map(text),
        ])?;
        Ok(())
    }

    /// Fires what is due; gives how many jobs that made.
    pub(super) fn fire_schedules(&mut self, limit: usize) -> Answer<usize> {
        let mut statement = self.statement(include_str!("sql/list_due_schedules.sql"))?;
        let names = statement.query_map([self.now.as_micros()], |row| row.get("name"))?;
        let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
        let mut fired = 0;
        for name in names {
            if fired >= limit {
                break;
            }
            match self.schedule(&name) {
                Ok(None) => {}
                Ok(Some(schedule)) => fired += self.run(|set| rules::fire(set, &schedule))?,
                // It waits to be mended; the others go on.
                Err(Fault::Broken(problem)) => {
                    tracing::error!(schedule = name, problem, "a damaged schedule does not fire")
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(fired)
    }

    pub(super) fn delete_schedule(&mut self, name: &str) -> Answer<()> {
        self.statement(include_str!("sql/delete_schedule.sql"))?.execute([name])?;
        Ok(())
    }
}

pub(super) fn read_schedule(row: &SqlRow<'_>) -> Answer<ScheduleRecord> {
    let payload =
        Payload::from_stored(row.get_ref("content_type")?.as_str_or_null()?, row.get::<_, Vec<u8>>("payload")?);
    let job = JobSpec::from_stored(
        JobType::new(row.get_ref("type")?.as_str()?)?,
        QueueName::new(row.get_ref("queue")?.as_str()?)?,
        payload,
        priority(row.get("priority")?)?,
        Vec::new(),
        parse(row.get_ref("options")?.as_str()?)?,
    );
    let required = |column: &str| Fault::broken(format!("column {column} of a schedule is null"));
    let number = |column: &str| Ok::<_, rusqlite::Error>(u64::try_from(row.get::<_, i64>(column)?).unwrap_or_default());
    let moment = |column: &str| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(time));
    Ok(ScheduleRecord {
        spec: ScheduleSpec {
            name: row.get("name")?,
            timing: json(row, "timing")?.ok_or_else(|| required("timing"))?,
            missed: json(row, "missed")?.ok_or_else(|| required("missed"))?,
            overlap: json(row, "overlap")?.ok_or_else(|| required("overlap"))?,
            job,
            from_code: row.get("from_code")?,
        },
        version: number("version")?,
        paused: row.get("paused")?,
        created_at: time(row.get("created_at")?),
        updated_at: time(row.get("updated_at")?),
        next_at: moment("next_at")?,
        last_slot: moment("last_slot")?,
        last_job: optional_uuid(row, "last_job")?.map(JobId::from_uuid),
        fired: number("fired")?,
        last_error: json(row, "last_error")?,
    })
}
