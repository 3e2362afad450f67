//! Changes to a schedule, and what each comes down to.

use super::{ScheduleRecord, ScheduleSpec};
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// A change to a schedule.
#[derive(Clone, PartialEq, Debug)]
pub enum ScheduleEdit {
    /// Creates it; refused when the name is taken.
    Create(ScheduleSpec),
    /// Creates or replaces it; with a version, refused when it has moved on.
    Put {
        /// The schedule as it shall be.
        spec: ScheduleSpec,
        /// The version it must have now.
        version: Option<u64>,
    },
    /// Stops it firing until it is resumed.
    Pause(String),
    /// Lets it fire again.
    Resume(String),
    /// Fires it now, beside its slots and whatever its overlap policy says.
    Trigger(String),
    /// Forgets it; its jobs stay.
    Delete(String),
}

/// What a change does to a schedule: decided once, for every store.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleChange {
    /// What to call it in the record of acts.
    pub act: &'static str,
    /// The schedule as it shall be; as it was, when it is deleted.
    pub schedule: ScheduleRecord,
    /// Whether a job is to be fired now.
    pub fires: bool,
    /// Whether the schedule is to be removed.
    pub deletes: bool,
}

impl ScheduleEdit {
    /// Decides what the change does to the schedule of that name, if one is stored.
    pub fn decide(&self, stored: Option<ScheduleRecord>, now: Timestamp) -> Result<ScheduleChange> {
        let name = self.name();
        let known = |stored: Option<ScheduleRecord>| stored.ok_or_else(|| Error::not_found("schedule", name));
        let (act, schedule) = match self {
            ScheduleEdit::Create(spec) => {
                if stored.is_some() {
                    return Err(Error::Conflict(format!("schedule {name:?} exists already")));
                }
                ("create schedule", ScheduleRecord::create(spec.clone(), now)?)
            }
            ScheduleEdit::Put { spec, version } => {
                let is = stored.as_ref().map(|schedule| schedule.version);
                if version.is_some() && *version != is {
                    return Err(Error::Conflict(format!("schedule {name:?} is not at version {version:?}")));
                }
                let schedule = match stored {
                    None => ScheduleRecord::create(spec.clone(), now)?,
                    Some(mut schedule) => {
                        schedule.replace(spec.clone(), now)?;
                        schedule
                    }
                };
                ("put schedule", schedule)
            }
            ScheduleEdit::Pause(_) => {
                let mut schedule = known(stored)?;
                schedule.pause(now);
                ("pause schedule", schedule)
            }
            ScheduleEdit::Resume(_) => {
                let mut schedule = known(stored)?;
                schedule.resume(now);
                ("resume schedule", schedule)
            }
            ScheduleEdit::Trigger(_) => {
                let mut schedule = known(stored)?;
                schedule.fired += 1;
                ("trigger schedule", schedule)
            }
            ScheduleEdit::Delete(_) => ("delete schedule", known(stored)?),
        };
        let fires = matches!(self, ScheduleEdit::Trigger(_));
        Ok(ScheduleChange { act, schedule, fires, deletes: matches!(self, ScheduleEdit::Delete(_)) })
    }

    /// The name of the schedule.
    pub fn name(&self) -> &str {
        match self {
            ScheduleEdit::Create(spec) | ScheduleEdit::Put { spec, .. } => &spec.name,
            ScheduleEdit::Pause(name)
            | ScheduleEdit::Resume(name)
            | ScheduleEdit::Trigger(name)
            | ScheduleEdit::Delete(name) => name,
        }
    }
}
