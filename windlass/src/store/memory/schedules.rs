//! Recurring work: which schedules are due is the core's to say; here their firings are stored.

use super::insert::Origin;
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::job::{Dependency, DependencyKind, DependsOn, Firing, JobId, JobSpec};
use crate::schedule::{LastJob, Plan, ScheduleRecord};
use crate::store::answer::{ActRecord, ScheduleEdited};
use crate::store::request::ScheduleEdit;
use crate::time::Timestamp;
use crate::workflow::Submission;

impl Tables {
    pub(super) fn edit_schedule(&mut self, edit: &ScheduleEdit, now: Timestamp) -> Result<ScheduleEdited> {
        let name = edit.name().to_owned();
        let mut job = None;
        let act = match edit {
            ScheduleEdit::Create(spec) => {
                if self.schedules.contains_key(&name) {
                    return Err(Error::Conflict(format!("schedule {name:?} exists already")));
                }
                let schedule = ScheduleRecord::create(spec.clone(), now)?;
                self.schedules.insert(name.clone(), schedule);
                "create schedule"
            }
            ScheduleEdit::Put { spec, version } => {
                let stored = self.schedules.get(&name).map(|schedule| schedule.version);
                if version.is_some() && *version != stored {
                    return Err(Error::Conflict(format!("schedule {name:?} is not at version {version:?}")));
                }
                match self.schedules.get_mut(&name) {
                    Some(schedule) => schedule.replace(spec.clone(), now)?,
                    None => {
                        self.schedules.insert(name.clone(), ScheduleRecord::create(spec.clone(), now)?);
                    }
                }
                "put schedule"
            }
            ScheduleEdit::Pause(_) => {
                self.schedule_mut(&name)?.pause(now);
                "pause schedule"
            }
            ScheduleEdit::Resume(_) => {
                self.schedule_mut(&name)?.resume(now);
                "resume schedule"
            }
            ScheduleEdit::Trigger(_) => {
                let template = self.schedule_mut(&name)?.spec.job.clone();
                job = Some(self.fire(&name, template, now, now)?);
                self.schedule_mut(&name)?.fired += 1;
                "trigger schedule"
            }
            ScheduleEdit::Delete(_) => "delete schedule",
        };
        let schedule = self.schedule_mut(&name)?.clone();
        if let ScheduleEdit::Delete(_) = edit {
            self.schedules.remove(&name);
        }
        self.record_act(ActRecord {
            at: now,
            by: None,
            act: act.to_owned(),
            target: format!("schedule {name}"),
            changed: 1,
            why: None,
        });
        Ok(ScheduleEdited { schedule, job })
    }

    fn schedule_mut(&mut self, name: &str) -> Result<&mut ScheduleRecord> {
        self.schedules.get_mut(name).ok_or_else(|| Error::not_found("schedule", name))
    }

    pub(super) fn list_schedules(&self, after: Option<&str>, limit: usize) -> Vec<ScheduleRecord> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let rest = self.schedules.range::<str, _>((from, std::ops::Bound::Unbounded));
        rest.take(limit).map(|(_, schedule)| schedule.clone()).collect()
    }

    /// Fires what is due; gives how many jobs that made.
    pub(super) fn fire_schedules(&mut self, limit: usize, now: Timestamp) -> usize {
        let due = self.schedules.values().filter(|schedule| !schedule.paused);
        let due = due.filter(|schedule| schedule.next_at.is_none_or(|next_at| next_at <= now));
        let names: Vec<String> = due.map(|schedule| schedule.spec.name.clone()).collect();
        let mut fired = 0;
        for name in names {
            if fired >= limit {
                break;
            }
            fired += self.fire_schedule(&name, now);
        }
        fired
    }

    fn fire_schedule(&mut self, name: &str, now: Timestamp) -> usize {
        let Some(schedule) = self.schedules.get(name) else { return 0 };
        let Plan { fire, next_at } = schedule.plan(self.last_job(schedule), now);
        let (template, mut previous) = (schedule.spec.job.clone(), schedule.last_job);
        let mut made = Vec::with_capacity(fire.len());
        for one in fire {
            let mut spec = template.clone();
            let waits = previous.filter(|_| one.after_previous);
            let after = |job| Dependency { on: DependsOn::Job(job), kind: DependencyKind::AfterAll };
            spec.depends_on = waits.map(after).into_iter().collect();
            // A template is checked when it is stored, so only a lifetime shorter than its own delay could fail.
            let Ok(job) = self.fire(name, spec, one.slot, now) else { continue };
            previous = Some(job);
            made.push((one.slot, job));
        }
        let count = made.len();
        if let Some(schedule) = self.schedules.get_mut(name) {
            for (slot, job) in made {
                schedule.fired(slot, job);
            }
            schedule.next_at = next_at;
        }
        count
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

    fn fire(&mut self, schedule: &str, spec: JobSpec, slot: Timestamp, now: Timestamp) -> Result<JobId> {
        let firing = Firing { schedule: schedule.to_owned(), slot };
        let origin = Origin { firing: Some(firing), ..Origin::default() };
        let made = self.insert_from(&Submission::new(vec![spec])?, &origin, now)?;
        Ok(made[0].id)
    }
}
