//! Schedules and changes to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::job::Limits;
use windlass::schedule::{
    Cron, FiringError as Refused, Missed as StoredMissed, Overlap, ScheduleRecord, ScheduleSpec, Timing,
};
use windlass::store::ScheduleEdited;
use windlass::{Client, Error, JobId, Policies, Result, Timestamp};

use super::new_job::{NewJob, Refs};
use super::{Span, names};

/// A recurring definition: what to run, and when. Exactly one of `cron`, `every` and `delay` says when.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSchedule {
    /// Its unique name: 1 to 128 of `A-Z a-z 0-9 _ . : / -`. May be left out where the path names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9_.:/-]+$")]
    pub name: Option<String>,
    /// A cron expression of five or six fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512, example = "0 3 * * *")]
    pub cron: Option<String>,
    /// The IANA zone that `cron` is meant in; UTC unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub zone: Option<String>,
    /// A fixed rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// The first slot of `every`; 1970-01-01T00:00:00Z unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub anchor: Option<Timestamp>,
    /// A fixed delay after the last firing's job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// What becomes of slots that were missed; `coalesce` unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    /// For `all`: how many at most, 1 to 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub missed_max: Option<u32>,
    /// What becomes of a slot while the last firing's job is unfinished; `skip` unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::OverlapName>)]
    pub overlap: Option<Overlap>,
    /// What to run.
    pub job: NewJob,
    /// Whether a worker's code registers it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_code: bool,
}

/// What becomes of slots that passed while nobody could fire them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// They fire as one, the newest.
    Coalesce,
    /// None fires.
    Skip,
    /// The newest `missed_max` of them fire one by one.
    All,
}

/// A schedule as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// What to run, and when.
    pub schedule: NewSchedule,
    /// When it fires, in English words.
    #[serde(default)]
    pub words: String,
    /// 1, and one more for each change; also in the `ETag`.
    pub version: u64,
    /// Whether it does not fire for now.
    pub paused: bool,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// When it fires next; absent while a fixed delay awaits its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_at: Option<Timestamp>,
    /// The newest slot that fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_slot: Option<Timestamp>,
    /// The job of the last firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub last_job: Option<JobId>,
    /// How often it fired.
    pub fired: u64,
    /// Why its newest firing made no job; absent once one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<FiringError>,
}

/// A firing that was refused.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FiringError {
    /// When it was tried.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Why it was refused.
    pub message: String,
}

/// A schedule that was triggered, and the job that it fired.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Triggered {
    /// The job.
    #[schema(value_type = String, format = "uuid")]
    pub job_id: JobId,
    /// The schedule.
    pub schedule: Schedule,
}

/// Schedules by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SchedulePage {
    /// The schedules.
    pub items: Vec<Schedule>,
    /// Where to go on: the last name; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The next moments at which a schedule would fire.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NextSlots {
    /// The moments.
    #[schema(value_type = Vec<String>)]
    pub next: Vec<Timestamp>,
}

impl NewSchedule {
    /// The checked definition, under this client's limits and policies.
    pub fn check(self, client: &Client) -> Result<ScheduleSpec> {
        let mut spec = self.into_spec(client.limits_in_force(), client.policies_in_force())?;
        client.sign(&mut spec.job);
        Ok(spec)
    }

    fn into_spec(self, limits: &Limits, policies: &Policies) -> Result<ScheduleSpec> {
        let timing = self.timing()?;
        let missed = match (self.missed, self.missed_max) {
            (Some(Missed::All), Some(count)) => StoredMissed::All(count),
            (Some(Missed::All), None) => return Err(Error::invalid("missed", "all needs missed_max")),
            (_, Some(_)) => return Err(Error::invalid("missed", "missed_max goes only with all")),
            (Some(Missed::Skip), None) => StoredMissed::Skip,
            (Some(Missed::Coalesce) | None, None) => StoredMissed::Coalesce,
        };
        let spec = ScheduleSpec {
            name: self.name.ok_or_else(|| Error::invalid("name", "is missing"))?,
            timing,
            missed,
            overlap: self.overlap.unwrap_or_default(),
            job: self.job.into_job(&Refs::default())?.check(limits, policies)?,
            from_code: self.from_code,
        };
        spec.check()?;
        Ok(spec)
    }

    fn timing(&self) -> Result<Timing> {
        timing(self.cron.as_deref(), self.zone.as_deref(), self.every, self.anchor, self.delay)
    }
}

/// A timing in English words.
pub fn words(timing: &Timing) -> String {
    match timing {
        Timing::Cron(cron) => format!("{}, {}", cron.words().trim_end_matches('.'), cron.zone()),
        Timing::Every { every, .. } => format!("every {}", Span(*every)),
        Timing::Delay { after } => format!("{} after the end of its last job", Span(*after)),
    }
}

/// The timing that members say, exactly one of `cron`, `every` and `delay`.
pub fn timing(
    cron: Option<&str>,
    zone: Option<&str>,
    every: Option<Span>,
    anchor: Option<Timestamp>,
    delay: Option<Span>,
) -> Result<Timing> {
    let stray = |field, given: bool| {
        if given { Err(Error::invalid(field, "does not go with this timing")) } else { Ok(()) }
    };
    match (cron, every, delay) {
        (Some(expression), None, None) => {
            stray("anchor", anchor.is_some())?;
            Ok(Timing::Cron(Cron::new(expression, zone.unwrap_or("UTC"))?))
        }
        (None, Some(every), None) => {
            stray("zone", zone.is_some())?;
            Ok(Timing::Every { every: every.0, anchor: anchor.unwrap_or(Timestamp::EPOCH) })
        }
        (None, None, Some(delay)) => {
            stray("zone", zone.is_some())?;
            stray("anchor", anchor.is_some())?;
            Ok(Timing::Delay { after: delay.0 })
        }
        _ => Err(Error::invalid("timing", "exactly one of cron, every and delay must be given")),
    }
}

impl From<&ScheduleSpec> for NewSchedule {
    fn from(spec: &ScheduleSpec) -> Self {
        let plain = NewSchedule {
            name: Some(spec.name.clone()),
            cron: None,
            zone: None,
            every: None,
            anchor: None,
            delay: None,
            missed: Some(match spec.missed {
                StoredMissed::Coalesce => Missed::Coalesce,
                StoredMissed::Skip => Missed::Skip,
                StoredMissed::All(_) => Missed::All,
            }),
            missed_max: match spec.missed {
                StoredMissed::All(count) => Some(count),
                StoredMissed::Coalesce | StoredMissed::Skip => None,
            },
            overlap: Some(spec.overlap),
            job: NewJob::of_spec(&spec.job),
            from_code: spec.from_code,
        };
        match &spec.timing {
            Timing::Cron(cron) => {
                NewSchedule { cron: Some(cron.expression().to_owned()), zone: Some(cron.zone().to_owned()), ..plain }
            }
            Timing::Every { every, anchor } => {
                NewSchedule { every: Some((*every).into()), anchor: Some(*anchor), ..plain }
            }
            Timing::Delay { after } => NewSchedule { delay: Some((*after).into()), ..plain },
        }
    }
}

impl From<&ScheduleRecord> for Schedule {
    fn from(record: &ScheduleRecord) -> Self {
        Schedule {
            schedule: NewSchedule::from(&record.spec),
            words: words(&record.spec.timing),
            version: record.version,
            paused: record.paused,
            created_at: record.created_at,
            updated_at: record.updated_at,
            next_at: record.next_at,
            last_slot: record.last_slot,
            last_job: record.last_job,
            fired: record.fired,
            last_error: record.last_error.clone().map(|error| FiringError { at: error.at, message: error.message }),
        }
    }
}

impl TryFrom<Schedule> for ScheduleRecord {
    type Error = Error;

    fn try_from(schedule: Schedule) -> Result<Self> {
        // What is stored was checked; its payload may be as large as the server allows.
        let limits = Limits::with_payload_bytes(windlass::job::PAYLOAD_BYTES_MAX)?;
        let spec = schedule.schedule.into_spec(&limits, &Policies::default())?;
        let mut record = ScheduleRecord::stored(spec, schedule.version, schedule.created_at);
        record.paused = schedule.paused;
        record.updated_at = schedule.updated_at;
        record.next_at = schedule.next_at;
        record.last_slot = schedule.last_slot;
        record.last_job = schedule.last_job;
        record.fired = schedule.fired;
        record.last_error = schedule.last_error.map(|error| Refused::new(error.at, error.message));
        Ok(record)
    }
}

impl TryFrom<Triggered> for ScheduleEdited {
    type Error = Error;

    fn try_from(triggered: Triggered) -> Result<Self> {
        Ok(ScheduleEdited { schedule: triggered.schedule.try_into()?, job: Some(triggered.job_id) })
    }
}
