//! Recurring work: which schedules are due is the core's to say; here their firings are stored.

use rusqlite::{Row as SqlRow, params};

use super::columns::{json, optional_uuid, parse, priority, text, time};
use super::fault::{Answer, Fault};
use super::insert::Origin;
use super::tx::Tx;
use crate::job::{Dependency, DependencyKind, DependsOn, Firing, JobId, JobSpec, JobType, Payload, QueueName};
use crate::schedule::{LastJob, Plan, ScheduleRecord, ScheduleSpec};
use crate::store::answer::{ActRecord, ScheduleEdited};
use crate::store::request::{ScheduleChange, ScheduleEdit};
use crate::time::Timestamp;
use crate::workflow::Submission;

impl Tx<'_> {
    pub(super) fn edit_schedule(&mut self, edit: &ScheduleEdit, by: Option<String>) -> Answer<ScheduleEdited> {
        let name = edit.name();
        let ScheduleChange { act, schedule, fires, deletes } = edit.decide(self.schedule(name)?, self.now)?;
        let job = if fires { Some(self.fire(name, schedule.spec.job.clone(), self.now)?) } else { None };
        if deletes {
            self.statement(include_str!("sql/delete_schedule.sql"))?.execute([name])?;
        } else {
            self.put_schedule(&schedule)?;
        }
        let (act, target) = (act.to_owned(), format!("schedule {name}"));
        self.record_act(&ActRecord { at: self.now, by, act, target, changed: 1, why: None })?;
        Ok(ScheduleEdited { schedule, job })
    }

    fn schedule(&self, name: &str) -> Answer<Option<ScheduleRecord>> {
        let mut statement = self.statement(include_str!("sql/get_schedule.sql"))?;
        let mut rows = statement.query([name])?;
        rows.next()?.map(read_schedule).transpose()
    }

    pub(super) fn list_schedules(&self, after: Option<&str>, limit: usize) -> Answer<Vec<ScheduleRecord>> {
        let mut statement = self.statement(include_str!("sql/get_schedules.sql"))?;
        let mut rows = statement.query(params![after.unwrap_or(""), i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let mut schedules = Vec::new();
        while let Some(row) = rows.next()? {
            schedules.push(read_schedule(row)?);
        }
        Ok(schedules)
    }

    fn put_schedule(&mut self, schedule: &ScheduleRecord) -> Answer<()> {
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
        ])?;
        Ok(())
    }

    /// Fires what is due; gives how many jobs that made.
    pub(super) fn fire_schedules(&mut self, limit: usize) -> Answer<usize> {
        let mut statement = self.statement(include_str!("sql/due_schedules.sql"))?;
        let names = statement.query_map([self.now.as_micros()], |row| row.get(0))?;
        let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
        let mut fired = 0;
        for name in names {
            if fired >= limit {
                break;
            }
            fired += self.fire_schedule(&name)?;
        }
        Ok(fired)
    }

    fn fire_schedule(&mut self, name: &str) -> Answer<usize> {
        let Some(mut schedule) = self.schedule(name)? else { return Ok(0) };
        let last = self.last_job(&schedule)?;
        let Plan { fire, next_at } = schedule.plan(last, self.now);
        if fire.is_empty() && next_at == schedule.next_at {
            return Ok(0);
        }
        let mut previous = schedule.last_job;
        let mut count = 0;
        for one in fire {
            let mut spec = schedule.spec.job.clone();
            let waits = previous.filter(|_| one.after_previous);
            let after = |job| Dependency { on: DependsOn::Job(job), kind: DependencyKind::AfterAll };
            spec.depends_on = waits.map(after).into_iter().collect();
            match self.fire(name, spec, one.slot) {
                Ok(job) => {
                    schedule.fired(one.slot, job);
                    previous = Some(job);
                    count += 1;
                }
                // A template is checked when it is stored, so only a lifetime shorter than its own delay could fail.
                Err(Fault::Refused(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        schedule.next_at = next_at;
        self.put_schedule(&schedule)?;
        Ok(count)
    }

    fn last_job(&mut self, schedule: &ScheduleRecord) -> Answer<LastJob> {
        let Some(id) = schedule.last_job else { return Ok(LastJob::None) };
        Ok(match self.load_id(id)?.map(|stored| stored.job) {
            None => LastJob::Gone,
            Some(job) => match job.completed_at {
                Some(at) => LastJob::Ended { at },
                None => LastJob::Unfinished { state: job.state },
            },
        })
    }

    fn fire(&mut self, schedule: &str, spec: JobSpec, slot: Timestamp) -> Answer<JobId> {
        let firing = Some(Firing { schedule: schedule.to_owned(), slot });
        let made = self.insert_from(&Submission::new(vec![spec])?, &Origin { firing, ..Origin::default() })?;
        made.first().map(|job| job.id).ok_or_else(|| Fault::broken("one job is one answer"))
    }
}

fn read_schedule(row: &SqlRow<'_>) -> Answer<ScheduleRecord> {
    let payload = Payload::from_stored(row.get_ref(9)?.as_str_or_null()?, row.get::<_, Vec<u8>>(10)?);
    let job = JobSpec::from_stored(
        JobType::new(row.get_ref(5)?.as_str()?)?,
        QueueName::new(row.get_ref(6)?.as_str()?)?,
        payload,
        priority(row.get(7)?)?,
        Vec::new(),
        parse(row.get_ref(8)?.as_str()?)?,
    );
    let required = |column: usize| Fault::broken(format!("column {column} of a schedule is null"));
    let number =
        |column: usize| Ok::<_, rusqlite::Error>(u64::try_from(row.get::<_, i64>(column)?).unwrap_or_default());
    let moment = |column: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(time));
    Ok(ScheduleRecord {
        spec: ScheduleSpec {
            name: row.get(0)?,
            timing: json(row, 1)?.ok_or_else(|| required(1))?,
            missed: json(row, 2)?.ok_or_else(|| required(2))?,
            overlap: json(row, 3)?.ok_or_else(|| required(3))?,
            job,
            from_code: row.get(4)?,
        },
        version: number(11)?,
        paused: row.get(12)?,
        created_at: time(row.get(13)?),
        updated_at: time(row.get(14)?),
        next_at: moment(15)?,
        last_slot: moment(16)?,
        last_job: optional_uuid(row, 17)?.map(JobId::from_uuid),
        fired: number(18)?,
    })
}
