//! Recurring work: which schedules are due is the core's to say; here their firings are stored.

use super::insert::Origin;
use super::tables::Tables;
use crate::error::Result;
use crate::job::{Dependency, DependencyKind, DependsOn, Firing, JobId, JobSpec};
use crate::schedule::{LastJob, Plan, ScheduleRecord};
use crate::store::answer::{ActRecord, ScheduleEdited};
use crate::store::request::{ScheduleChange, ScheduleEdit};
use crate::time::Timestamp;
use crate::workflow::Submission;

impl Tables {
    pub(super) fn edit_schedule(
        &mut self,
        edit: &ScheduleEdit,
        by: Option<&str>,
        now: Timestamp,
    ) -> Result<ScheduleEdited> {
        let name = edit.name().to_owned();
        let ScheduleChange { act, schedule, fires, deletes } = edit.decide(self.schedules.get(&name).cloned(), now)?;
        let job = if fires { Some(self.fire(&name, schedule.spec.job.clone(), now, now)?) } else { None };
        let _ = match deletes {
            true => self.schedules.remove(&name),
            false => self.schedules.insert(name.clone(), schedule.clone()),
        };
        let (by, act, target) = (by.map(str::to_owned), act.to_owned(), format!("schedule {name}"));
        self.record_act(ActRecord { at: now, by, act, target, changed: 1, why: None });
        Ok(ScheduleEdited { schedule, job })
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
