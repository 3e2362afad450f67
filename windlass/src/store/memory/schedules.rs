//! Recurring work: which schedules there are, and which of them are due.

use super::tables::Tables;
use crate::error::Result;
use crate::schedule::ScheduleRecord;
use crate::store::answer::ScheduleEdited;
use crate::store::request::ScheduleEdit;
use crate::store::rules;
use crate::time::Timestamp;

impl Tables {
    pub(super) fn edit_schedule(
        &mut self,
        edit: &ScheduleEdit,
        by: Option<&str>,
        now: Timestamp,
    ) -> Result<ScheduleEdited> {
        let stored = self.schedules.get(edit.name()).cloned();
        self.run(now, |set| rules::edit_schedule(set, stored.as_ref(), edit, by))
    }

    pub(super) fn list_schedules(&self, after: Option<&str>, limit: usize) -> Vec<ScheduleRecord> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let rest = self.schedules.range::<str, _>((from, std::ops::Bound::Unbounded));
        rest.take(limit).map(|(_, schedule)| schedule.clone()).collect()
    }

    /// Fires what is due; gives how many jobs that made.
    pub(super) fn fire_schedules(&mut self, limit: usize, now: Timestamp) -> Result<usize> {
        let due = self.schedules.values().filter(|schedule| !schedule.paused);
        let due = due.filter(|schedule| schedule.next_at.is_none_or(|next_at| next_at <= now));
        let due: Vec<ScheduleRecord> = due.cloned().collect();
        let mut fired = 0;
        for schedule in due {
            if fired >= limit {
                break;
            }
            fired += self.run(now, |set| rules::fire(set, &schedule))?;
        }
        Ok(fired)
    }
}
