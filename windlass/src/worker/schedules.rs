//! Schedules and flow control that a worker's code registers, and what becomes of schedules that left the code.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::{Client, Schedule};
use crate::error::Result;
use crate::flow::{Change, Control, ControlEdit};
use crate::job::QueueName;
use crate::schedule::ScheduleRecord;
use crate::store::{PAGE_MAX, ScheduleEdit};

/// What becomes of a stored schedule that some worker's code once registered, and that this worker's does not.
///
/// A worker cannot tell a schedule that was deleted from one that another program registers. So it only warns unless
/// told otherwise; choose `Pause` or `Delete` where all programs on the store register the same schedules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum LeftSchedules {
    /// It stays and goes on firing; the worker warns.
    #[default]
    Keep,
    /// It stays and fires no more until somebody resumes it.
    Pause,
    /// It is deleted; its jobs stay.
    Delete,
}

/// Who changed a schedule or a control, in the record of acts, when no person did.
const CODE: &str = "worker code";

/// Sets the flow control that the code declares, where no operator has set another.
pub(super) async fn declare(client: &Client, controls: &BTreeMap<String, Control>) -> Result<()> {
    for (queue, control) in controls {
        let change = Change::Put { control: control.clone(), version: None, from_code: true };
        client.store().control(&ControlEdit::new(QueueName::new(queue)?, change), Some(CODE)).await?;
    }
    Ok(())
}

/// Stores the schedules of the code, where they differ from what is stored, and deals with those that left it.
pub(super) async fn register(client: &Client, schedules: &[Schedule], left: LeftSchedules) -> Result<()> {
    if schedules.is_empty() && left == LeftSchedules::Keep {
        return Ok(());
    }
    let stored = all(client).await?;
    for schedule in schedules {
        let mut spec = schedule.check(client)?;
        spec.from_code = true;
        // Most starts change nothing, and then nothing is written or recorded as an act.
        if stored.iter().any(|record| record.spec == spec) {
            continue;
        }
        client.store().edit_schedule(&ScheduleEdit::Put { spec, version: None }, Some(CODE)).await?;
    }
    let named: BTreeSet<&str> = schedules.iter().map(Schedule::name).collect();
    for record in stored.iter().filter(|record| record.spec.from_code && !named.contains(record.spec.name.as_str())) {
        leave(client, record, left).await?;
    }
    Ok(())
}

async fn leave(client: &Client, record: &ScheduleRecord, left: LeftSchedules) -> Result<()> {
    let name = record.spec.name.clone();
    tracing::warn!(schedule = name, ?left, "a stored schedule is not in this worker's code");
    match left {
        LeftSchedules::Keep => {}
        LeftSchedules::Pause if record.paused => {}
        LeftSchedules::Pause => {
            client.store().edit_schedule(&ScheduleEdit::Pause(name), Some(CODE)).await?;
        }
        LeftSchedules::Delete => {
            client.store().edit_schedule(&ScheduleEdit::Delete(name), Some(CODE)).await?;
        }
    }
    Ok(())
}

async fn all(client: &Client) -> Result<Vec<ScheduleRecord>> {
    let mut stored: Vec<ScheduleRecord> = Vec::new();
    loop {
        let after = stored.last().map(|record| record.spec.name.clone());
        let page = client.schedules(after.as_deref(), PAGE_MAX).await?;
        if page.is_empty() {
            return Ok(stored);
        }
        stored.extend(page);
    }
}
