//! Operators' acts: on jobs by id or by filter, and on queues.

use std::collections::HashSet;

use super::tables::{SCAN_MAX, Sequence, Tables};
use crate::error::{Error, Result};
use crate::job::{CancelAsked, CancelVerdict, JobId, Outcome, QueueName, ReasonKind, RequeueOptions, State, Verdict};
use crate::store::answer::{ActRecord, Operated, Wake, describe};
use crate::store::request::{Act, Cursor, Filter, Operation, PAGE_MAX, Target};
use crate::time::Timestamp;
use crate::workflow::graph::Waits;

impl Tables {
    pub(super) fn operate(&mut self, operation: &Operation, now: Timestamp) -> Result<Operated> {
        if let Act::Edit(edit) = &operation.act {
            edit.check()?;
        }
        let mut answer = Operated::default();
        match &operation.target {
            Target::Jobs(ids) => {
                for id in ids {
                    match self.act_on(*id, operation, now) {
                        Ok(()) => answer.changed += 1,
                        Err(error) => answer.refused.push((*id, error)),
                    }
                }
            }
            Target::Matching { filter, limit, after } => {
                let (matching, next) = self.matching(filter, *limit, after.as_ref())?;
                answer.next = next;
                for sequence in matching {
                    // An earlier act of this call may have removed it or changed its state.
                    let id = self.jobs.get(&sequence).map(|entry| entry.job.id);
                    answer.changed += id.map_or(0, |id| u64::from(self.act_on(id, operation, now).is_ok()));
                }
            }
        }
        if !operation.dry_run && answer.changed > 0 {
            let target = match &operation.target {
                Target::Jobs(ids) => match ids.as_slice() {
                    [id] => format!("job {id}"),
                    ids => format!("{} jobs", ids.len()),
                },
                Target::Matching { filter, .. } => describe(filter),
            };
            let why = Some(operation.why.clone()).filter(|why| !why.is_empty());
            let (by, act) = (operation.by.clone(), operation.act.name().to_owned());
            self.record_act(ActRecord { at: now, by, act, target, changed: answer.changed, why });
        }
        Ok(answer)
    }

    /// The oldest jobs that match, and where to go on.
    fn matching(
        &self,
        filter: &Filter,
        limit: usize,
        after: Option<&Cursor>,
    ) -> Result<(Vec<Sequence>, Option<Cursor>)> {
        let limit = limit.clamp(1, PAGE_MAX);
        let from = after.map_or(Ok(0), |cursor| cursor.0.parse::<Sequence>().map_err(|_| cursor.invalid()))?;
        let mut found = Vec::new();
        for (scanned, (sequence, entry)) in self.jobs.range(from.saturating_add(1)..).enumerate() {
            if filter.matches(&entry.job) {
                found.push(*sequence);
            }
            if found.len() == limit || scanned == SCAN_MAX {
                return Ok((found, Some(Cursor(sequence.to_string()))));
            }
        }
        Ok((found, None))
    }

    fn act_on(&mut self, id: JobId, operation: &Operation, now: Timestamp) -> Result<()> {
        let sequence = *self.ids.get(&id).ok_or_else(|| Error::no_such_job(id))?;
        let (by, why, dry_run) = (operation.by.as_deref(), operation.why.as_str(), operation.dry_run);
        match &operation.act {
            Act::Cancel { force } => {
                match Verdict::of_cancel(&self.entry(sequence).job, *force, by, why)? {
                    _ if dry_run => {}
                    CancelVerdict::Ask => self.ask_to_stop(sequence, CancelAsked::new(by, why, now)),
                    CancelVerdict::Now(verdict) => {
                        self.end(sequence, &verdict, Outcome::Revoked, now);
                    }
                }
                Ok(())
            }
            Act::DeadLetter => {
                let verdict = Verdict::of_operator_dead_letter(&self.entry(sequence).job, by, why)?;
                if !dry_run {
                    self.end(sequence, &verdict, Outcome::Revoked, now);
                }
                Ok(())
            }
            Act::Requeue(options) => self.requeue(sequence, options, dry_run, now),
            Act::Delete => self.delete(sequence, dry_run),
            Act::Edit(edit) => {
                edit.allowed(&self.entry(sequence).job)?;
                if !dry_run {
                    self.update(sequence, |entry| edit.apply(&mut entry.job));
                }
                Ok(())
            }
        }
    }

    fn ask_to_stop(&mut self, sequence: Sequence, asked: CancelAsked) {
        let job = &mut self.entry_mut(sequence).job;
        job.cancel.get_or_insert(asked);
        let id = job.id;
        self.hint(Wake::CancelAsked(id));
    }

    fn delete(&mut self, sequence: Sequence, dry_run: bool) -> Result<()> {
        let job = &self.entry(sequence).job;
        if !job.state.is_terminal() {
            return Err(Error::IllegalState { job: job.id, state: job.state, wanted: "delete" });
        }
        if let Some(needed_by) = self.needed_by(sequence) {
            return Err(Error::Conflict(format!("job {} is needed by unfinished job {needed_by}", job.id)));
        }
        if !dry_run {
            self.remove(sequence);
        }
        Ok(())
    }

    fn requeue(&mut self, sequence: Sequence, options: &RequeueOptions, dry_run: bool, now: Timestamp) -> Result<()> {
        // On a copy first: what is refused must change nothing.
        self.entry(sequence).job.clone().requeue(options, false, now)?;
        if dry_run {
            return Ok(());
        }
        let along = if options.with_dependents { self.died_of(sequence) } else { Vec::new() };
        let back: HashSet<JobId> = along.iter().map(|dependent| self.entry(*dependent).job.id).collect();
        self.requeue_one(sequence, options, &HashSet::new(), now)?;
        for dependent in along {
            let plain = RequeueOptions { run_at: None, ..*options };
            self.requeue_one(dependent, &plain, &back, now)?;
        }
        Ok(())
    }

    /// Sends one job back; it waits for its unfinished dependencies, and for those that come `back` with it.
    fn requeue_one(
        &mut self,
        sequence: Sequence,
        options: &RequeueOptions,
        back: &HashSet<JobId>,
        now: Timestamp,
    ) -> Result<()> {
        let edges = &self.entry(sequence).edges;
        let waits_on =
            |on: &JobId| self.by_id(*on).is_some_and(|entry| !entry.job.state.is_terminal() || back.contains(on));
        let kinds: Vec<_> = edges.iter().map(|(on, kind)| (*kind, waits_on(on))).collect();
        let open = edges.iter().filter(|(on, _)| waits_on(on)).copied().collect();
        let waits = Waits::of(&kinds);
        self.update(sequence, |entry| {
            entry.job.requeue(options, !waits.is_over(), now)?;
            entry.waits = waits;
            entry.open = open;
            Ok(())
        })
    }

    /// The jobs that died of this one, however far down the graph.
    fn died_of(&self, sequence: Sequence) -> Vec<Sequence> {
        let cause = self.entry(sequence).job.id;
        let mut seen = HashSet::from([sequence]);
        let mut found = Vec::new();
        let mut open = vec![sequence];
        while let Some(next) = open.pop() {
            for dependent in &self.entry(next).dependents {
                let Some(entry) = self.jobs.get(dependent) else { continue };
                let reason = entry.job.reason.as_ref();
                let died =
                    reason.is_some_and(|reason| reason.kind == ReasonKind::Dependency && reason.cause == Some(cause));
                if entry.job.state.is_dead() && died && seen.insert(*dependent) {
                    found.push(*dependent);
                    open.push(*dependent);
                }
            }
        }
        found
    }

    pub(super) fn set_paused(&mut self, queue: &QueueName, paused: bool, by: Option<&str>, now: Timestamp) {
        let entry = self.queues.entry(queue.clone()).or_default();
        if entry.paused == paused {
            return;
        }
        entry.paused = paused;
        if !paused && entry.states[usize::from(State::Scheduled.number())] > 0 {
            self.hint(Wake::Scheduled(queue.clone()));
        }
        self.record_act(ActRecord {
            at: now,
            by: by.map(str::to_owned),
            act: if paused { "pause" } else { "resume" }.to_owned(),
            target: format!("queue {queue}"),
            changed: 1,
            why: None,
        });
    }
}
