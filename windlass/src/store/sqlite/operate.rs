//! Operators' acts: on jobs by id or by filter, and on queues.

use rusqlite::{OptionalExtension, params};

use super::fault::{Answer, Fault};
use super::job_rows::{Entry, FLAG_NOTE};
use super::list::{Way, place};
use super::transaction::Transaction;
use crate::flow::ControlEdit;
use crate::store::answer::Operated;
use crate::store::request::{Act, LOOKED_MAX, Operation, PAGE_MAX, Target};
use crate::store::rules;

impl Transaction<'_> {
    pub(super) fn operate(&mut self, operation: &Operation) -> Answer<Operated> {
        if let Act::Edit(edit) = &operation.act {
            edit.check()?;
        }
        let mut answer = Operated::default();
        match &operation.target {
            Target::Jobs(ids) => {
                for id in ids {
                    match self.run(|set| rules::act_on(set, *id, operation)) {
                        Ok(()) => answer.changed += 1,
                        Err(Fault::Refused(error)) => answer.refused.push((*id, error)),
                        Err(fault) => return Err(fault),
                    }
                }
            }
            Target::Matching { filter, limit, after } => {
                let limit = (*limit).clamp(1, PAGE_MAX);
                let from = place(after.as_ref())?.unwrap_or(0);
                let matching = self.matching(filter, Way::OldestFirst, from, limit, LOOKED_MAX)?;
                answer.next = matching.next;
                for id in matching.found.into_iter().map(|entry| entry.job.id).collect::<Vec<_>>() {
                    // An earlier act of this call may have removed it or changed its state.
                    match self.run(|set| rules::act_on(set, id, operation)) {
                        Ok(()) => answer.changed += 1,
                        Err(Fault::Refused(_)) => {}
                        Err(fault) => return Err(fault),
                    }
                }
            }
        }
        if let Some(act) = rules::act_of(operation, answer.changed, self.now) {
            self.record_act(&act)?;
        }
        Ok(answer)
    }

    /// Removes an ended job for good; its idempotency key goes on.
    pub(super) fn remove(&mut self, entry: &Entry) -> Answer<()> {
        let seq = entry.seq;
        self.leave(entry)?;
        self.count_left(entry.lane, entry.job.state, true);
        self.touch_owned(seq, seq)?;
        self.statement(include_str!("sql/delete_job.sql"))?.execute([seq])?;
        if let Some(deadline) = entry.job.deadline {
            self.statement(include_str!("sql/delete_lifetime.sql"))?.execute([deadline.as_micros(), seq])?;
        }
        if entry.flags & FLAG_NOTE != 0 {
            self.statement(include_str!("sql/delete_note.sql"))?.execute([seq])?;
        }
        if entry.job.spec.options.is_marked() || entry.job.spec.damage.is_some() {
            self.statement(include_str!("sql/delete_marks.sql"))?.execute([seq])?;
        }
        self.statement(include_str!("sql/forget_attempts.sql"))?.execute([seq, i64::MAX])?;
        self.statement(include_str!("sql/forget_logs.sql"))?.execute([seq, i64::MAX])?;
        self.statement(include_str!("sql/delete_edges.sql"))?.execute([seq])?;
        if let Some(workflow) = entry.job.workflow_id {
            let id = workflow.as_uuid().into_bytes();
            self.statement(include_str!("sql/count_pruned.sql"))?.execute([id])?;
            // A workflow goes with the last of its jobs.
            self.statement(include_str!("sql/delete_empty_workflow.sql"))?.execute([id])?;
        }
        self.add_pruned(1);
        Ok(())
    }

    /// Marks an unused store as this owner's.
    pub(super) fn own(&mut self, owner: &str) -> Answer<()> {
        let known = self.statement(include_str!("sql/get_owner.sql"))?.query_row([], |row| row.get(0))?;
        let in_use = !self.list_schedules(None, 1)?.is_empty() || !self.queues()?.is_empty();
        let accepted = u64::try_from(self.accepted()).unwrap_or_default();
        if (rules::Holding { owner: known, accepted, in_use }).take(owner)? {
            self.statement(include_str!("sql/put_owner.sql"))?.execute([owner])?;
        }
        Ok(())
    }

    pub(super) fn set_paused(&mut self, edit: &ControlEdit, paused: bool, by: Option<&str>) -> Answer<()> {
        let queue = &edit.queue;
        let mut statement = self.statement(include_str!("sql/is_paused.sql"))?;
        let before: Option<bool> = statement.query_row([queue.as_str()], |row| row.get(0)).optional()?;
        if before != Some(paused) {
            self.statement(include_str!("sql/set_paused.sql"))?.execute(params![queue.as_str(), paused])?;
        }
        if before.unwrap_or(false) == paused {
            return Ok(());
        }
        let (act, hint) = rules::paused(edit, paused, by, self.now);
        self.hint(hint);
        self.record_act(&act)
    }
}
