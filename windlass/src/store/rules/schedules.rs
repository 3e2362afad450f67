//! Recurring work: which slots are due is the core's to say; here their jobs are made.

use super::Stop;
use super::changes::ScheduleWrite;
use super::insert::{insert, plan};
use super::set::WorkingSet;
use crate::error::Error;
use crate::job::{Dependency, DependencyKind, DependsOn, Firing, JobId, JobSpec};
use crate::observe;
use crate::schedule::{Fire, LastJob, Plan, ScheduleRecord};
use crate::store::answer::{ActRecord, ScheduleEdited};
use crate::store::request::{ScheduleChange, ScheduleEdit};
use crate::time::Timestamp;
use crate::workflow::{Origin, Submission};

/// Fires what is due of a schedule; gives how many jobs that made (C1 to C4).
///
/// A firing that is refused is noted on the schedule, and the next slot comes when it comes.
pub fn fire(set: &mut WorkingSet, schedule: &ScheduleRecord) -> Result<usize, Stop> {
    let Plan { fire, next_at } = schedule.plan(last_job(set, schedule)?, set.now);
    let mut after = ScheduleRecord { next_at, ..schedule.clone() };
    look_ahead(set, schedule, &fire)?;
    let (mut made, mut refused) = (0, Vec::new());
    for one in fire {
        let previous = after.last_job.filter(|_| one.after_previous);
        match fire_slot(set, &after, one.slot, previous) {
            Ok(job) => {
                after.fired(one.slot, job);
                made += 1;
            }
            Err(Stop::Refused(error)) => {
                after.refused(&error, set.now);
                refused.push(error);
            }
            Err(missing) => return Err(missing),
        }
    }
    // Only now: a rule that misses something is run again.
    for error in refused {
        observe::firing_refused();
        tracing::warn!(schedule = schedule.spec.name, %error, "a firing was refused; the next one comes in its turn");
    }
    if after != *schedule {
        set.changes.schedules.push(ScheduleWrite::Put(after));
    }
    Ok(made)
}

/// Changes a schedule, given as it is stored; a trigger makes a job at once.
pub fn edit_schedule(
    set: &mut WorkingSet,
    stored: Option<&ScheduleRecord>,
    edit: &ScheduleEdit,
    by: Option<&str>,
) -> Result<ScheduleEdited, Stop> {
    let now = set.now;
    let ScheduleChange { act, schedule, fires, deletes } = edit.decide(stored.cloned(), now)?;
    let job = if fires { Some(fire_slot(set, &schedule, now, None)?) } else { None };
    let name = schedule.spec.name.clone();
    let (by, act, target) = (by.map(str::to_owned), act.to_owned(), format!("schedule {name}"));
    set.changes.schedules.push(match deletes {
        true => ScheduleWrite::Delete(name),
        false => ScheduleWrite::Put(schedule.clone()),
    });
    set.changes.acts.push(ActRecord { at: now, by, act, target, changed: 1, why: None }.kept());
    Ok(ScheduleEdited { schedule, job })
}

fn last_job(set: &WorkingSet, schedule: &ScheduleRecord) -> Result<LastJob, Stop> {
    let Some(id) = schedule.last_job else { return Ok(LastJob::None) };
    Ok(match set.find(id)? {
        None => LastJob::Gone,
        Some(entry) => match entry.job.completed_at {
            Some(at) => LastJob::Ended { at },
            None => LastJob::Unfinished { state: entry.job.state },
        },
    })
}

/// Stops for what the firings need, before the first of them is made.
fn look_ahead(set: &WorkingSet, schedule: &ScheduleRecord, fire: &[Fire]) -> Result<(), Stop> {
    if fire.is_empty() {
        return Ok(());
    }
    set.need_identities(fire.len())?;
    match plan(set, &Submission::new(vec![schedule.spec.job.clone()])?) {
        Err(Stop::Missing(missing)) => Err(Stop::Missing(missing)),
        // A refusal is the firing's own, and noted there.
        Ok(_) | Err(Stop::Refused(_)) => Ok(()),
    }
}

/// Makes the job of one slot; it runs after the end of `previous`, however that is.
fn fire_slot(
    set: &mut WorkingSet,
    schedule: &ScheduleRecord,
    slot: Timestamp,
    previous: Option<JobId>,
) -> Result<JobId, Stop> {
    let after = |job| Dependency { on: DependsOn::Job(job), kind: DependencyKind::AfterAll };
    let spec = JobSpec { depends_on: previous.map(after).into_iter().collect(), ..schedule.spec.job.clone() };
    let firing = Some(Firing { schedule: schedule.spec.name.clone(), slot });
    let made = insert(set, &Submission::new(vec![spec])?, &Origin { firing, ..Origin::default() })?;
    made.first().map(|job| job.id).ok_or_else(|| Error::invalid("batch", "has no job").into())
}
