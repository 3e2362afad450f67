//! Operators' acts: on jobs by id or by filter, and on queues.

use std::sync::Arc;

use super::read::sequence;
use super::tables::{SCAN_MAX, Tables};
use crate::error::Result;
use crate::flow::ControlEdit;
use crate::job::JobId;
use crate::store::answer::{Operated, WorkerRecord};
use crate::store::request::{Act, Cursor, Filter, Operation, PAGE_MAX, Target, WorkerEdit};
use crate::store::rewrite::{Part, Rewrite};
use crate::store::rules;
use crate::time::Timestamp;

impl Tables {
    pub(super) fn operate(&mut self, operation: &Operation, now: Timestamp) -> Result<Operated> {
        if let Act::Edit(edit) = &operation.act {
            edit.check()?;
        }
        let mut answer = Operated::default();
        match &operation.target {
            Target::Jobs(ids) => {
                for id in ids {
                    match self.run(now, |set| rules::act_on(set, *id, operation)) {
                        Ok(()) => answer.changed += 1,
                        Err(error) => answer.refused.push((*id, error)),
                    }
                }
            }
            Target::Matching { filter, limit, after } => {
                let (matching, next) = self.matching(filter, *limit, after.as_ref())?;
                answer.next = next;
                for id in matching {
                    // An earlier act of this call may have removed it or changed its state.
                    answer.changed += u64::from(self.run(now, |set| rules::act_on(set, id, operation)).is_ok());
                }
            }
        }
        if let Some(act) = rules::act_of(operation, answer.changed, now) {
            self.record_act(act);
        }
        Ok(answer)
    }

    /// The oldest jobs that match, and where to go on.
    fn matching(&self, filter: &Filter, limit: usize, after: Option<&Cursor>) -> Result<(Vec<JobId>, Option<Cursor>)> {
        let limit = limit.clamp(1, PAGE_MAX);
        let from = sequence(after)?.unwrap_or(0);
        let mut found = Vec::new();
        for (scanned, (sequence, stored)) in self.jobs.range(from.saturating_add(1)..).enumerate() {
            if self.matches(filter, &stored.entry.job) {
                found.push(stored.entry.job.id);
            }
            if found.len() == limit || scanned == SCAN_MAX {
                return Ok((found, Some(Cursor(sequence.to_string()))));
            }
        }
        Ok((found, None))
    }

    /// Replaces what is still as it was read.
    pub(super) fn rewrite(&mut self, one: &Rewrite) -> bool {
        let Some(sequence) = self.ids.get(&one.job).copied() else { return false };
        self.update(sequence, |entry| {
            let job = &mut entry.job;
            match one.part {
                Part::Payload if job.spec.payload == one.old => {
                    Arc::make_mut(&mut job.spec).payload = one.new.clone();
                }
                Part::Result if job.result.as_ref() == Some(&one.old) => job.result = Some(one.new.clone()),
                Part::Checkpoint if job.checkpoint.as_ref() == Some(one.old.as_bytes()) => {
                    job.checkpoint = Some(one.new.as_bytes().clone());
                }
                Part::Payload | Part::Result | Part::Checkpoint => return false,
            }
            true
        })
    }

    /// Marks an unused store as this owner's.
    pub(super) fn own(&mut self, owner: &str) -> Result<()> {
        let in_use = !self.schedules.is_empty() || !self.queues().is_empty();
        let holding = rules::Holding { owner: self.owner.clone(), accepted: self.accepted, in_use };
        if holding.take(owner)? {
            self.owner = Some(owner.to_owned());
        }
        Ok(())
    }

    /// Tells a worker to take no more jobs, or to take some again.
    pub(super) fn edit_worker(&mut self, edit: &WorkerEdit, by: Option<&str>, now: Timestamp) -> Result<WorkerRecord> {
        if let Some((act, hint)) = rules::told(self.workers.get(&edit.worker), edit, by, now)? {
            self.record_act(act);
            self.hint(hint);
        }
        let worker = self.workers.get_mut(&edit.worker).expect("it lives");
        worker.draining = edit.draining;
        Ok(worker.clone())
    }

    pub(super) fn set_paused(&mut self, edit: &ControlEdit, paused: bool, by: Option<&str>, now: Timestamp) {
        let entry = self.queues.entry(edit.queue.clone()).or_default();
        if entry.paused == paused {
            return;
        }
        entry.paused = paused;
        let (act, hint) = rules::paused(edit, paused, by, now);
        self.record_act(act);
        self.hint(hint);
    }
}
