//! Operators' acts: on jobs by id or by filter, and on queues.

use super::fault::Fault;
use super::read;
use super::records;
use super::transaction::Transaction;
use super::working::Working;
use crate::flow::ControlEdit;
use crate::job::JobId;
use crate::store::answer::{Operated, WorkerRecord};
use crate::store::request::{Cursor, Filter, LOOKED_MAX, Operation, PAGE_MAX, Target, WorkerEdit};
use crate::store::rules;

impl Transaction<'_> {
    pub(super) async fn operate(&mut self, operation: &Operation) -> Result<Operated, Fault> {
        let mut answer = Operated::default();
        let mut working = self.working();
        let ids = match &operation.target {
            Target::Jobs(ids) => {
                self.load_jobs(&mut working, ids).await?;
                ids.clone()
            }
            Target::Matching { filter, limit, after } => {
                let (matching, next) = self.matching(&mut working, filter, *limit, after.as_ref()).await?;
                answer.next = next;
                matching
            }
        };
        let by_id = matches!(operation.target, Target::Jobs(_));
        for id in ids {
            match self.run(&mut working, |set| rules::act_on(set, id, operation)).await {
                Ok(()) => answer.changed += 1,
                Err(Fault::Refused(error)) if by_id => answer.refused.push((id, error)),
                // An earlier act of this call may have removed it or changed its state.
                Err(Fault::Refused(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        self.flush(working).await?;
        if let Some(act) = rules::act_of(operation, answer.changed, self.now) {
            self.add_act(&act).await?;
        }
        Ok(answer)
    }

    /// The oldest jobs that match, loaded and held, and where to go on.
    async fn matching(
        &mut self,
        working: &mut Working,
        filter: &Filter,
        limit: usize,
        after: Option<&Cursor>,
    ) -> Result<(Vec<JobId>, Option<Cursor>), Fault> {
        let most = read::Most { found: limit.clamp(1, PAGE_MAX), looked: LOOKED_MAX };
        let from = read::numbered(after)?.unwrap_or(0);
        let found = read::scan(&self.link, &self.store, filter, from, most, true, self.now).await?;
        let seqs: Vec<i64> = found.rows.iter().map(|row| row.entry.sequence).collect();
        // What was read without a lock is read again with one.
        let mut matching = Vec::with_capacity(seqs.len());
        let keep = |job: &crate::job::JobRecord| {
            if filter.matches(job) {
                matching.push(job.id);
            }
        };
        self.load_sequences(working, &seqs, keep).await?;
        Ok((matching, found.next.map(|seq| Cursor(seq.to_string()))))
    }

    /// Marks an unused store as this owner's.
    pub(super) async fn own(&mut self, owner: &str) -> Result<(), Fault> {
        let rows = self.link.query(include_str!("sql/get_owner.sql"), &[]).await?;
        let known = rows.first().and_then(|row| row.get("owner"));
        let counts = self.store.counts_on(&self.link).await?;
        let accepted = counts.lanes.iter().map(|lane| lane.accepted).sum();
        let paused = counts.queues.iter().any(|(_, paused)| *paused);
        let schedules = self.link.query(include_str!("sql/list_schedules.sql"), &[&None::<&str>, &1_i64]).await?;
        let in_use = paused || !schedules.is_empty();
        if (rules::Holding { owner: known, accepted, in_use }).take(owner)? {
            self.link.execute(include_str!("sql/put_owner.sql"), &[&owner]).await?;
        }
        Ok(())
    }

    /// Tells a worker to take no more jobs, or to take some again.
    pub(super) async fn edit_worker(&mut self, edit: &WorkerEdit, by: Option<&str>) -> Result<WorkerRecord, Fault> {
        let id = edit.worker.as_str();
        let rows = self.link.query(include_str!("sql/get_worker.sql"), &[&id]).await?;
        let known = rows.first().and_then(records::worker);
        if let Some((act, hint)) = rules::told(known.as_ref(), edit, by, self.now)? {
            self.link.execute(include_str!("sql/set_draining.sql"), &[&id, &edit.draining]).await?;
            self.add_act(&act).await?;
            self.hints.push(hint);
        }
        Ok(known.expect("it lives").told(edit.draining))
    }

    /// Pauses or resumes a queue, which is made if there is none.
    pub(super) async fn set_paused(&mut self, edit: &ControlEdit, paused: bool, by: Option<&str>) -> Result<(), Fault> {
        let name = edit.queue.as_str();
        self.link.execute(include_str!("sql/add_queue.sql"), &[&vec![name]]).await?;
        let changed = self.link.execute(include_str!("sql/set_paused.sql"), &[&name, &paused]).await?;
        if changed > 0 {
            let (act, hint) = rules::paused(edit, paused, by, self.now);
            self.add_act(&act).await?;
            self.hints.push(hint);
        }
        Ok(())
    }
}
