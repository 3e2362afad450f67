//! Operators' acts: on jobs by id or by filter, and on queues.

use std::collections::HashSet;

use super::fault::Fault;
use super::unit::{Unit, kind_of};
use crate::error::Error;
use crate::job::{CancelAsked, CancelVerdict, JobId, Outcome, ReasonKind, RequeueOptions, Verdict};
use crate::store::answer::{ActRecord, Operated, Wake, describe};
use crate::store::request::{Act, Cursor, Filter, Operation, PAGE_MAX, Target};
use crate::workflow::graph::Waits;

impl Unit<'_> {
    pub(super) async fn operate(&mut self, operation: &Operation) -> Result<Operated, Fault> {
        let mut answer = Operated::default();
        match &operation.target {
            Target::Jobs(ids) => {
                self.load(ids.iter().copied()).await?;
                for id in ids {
                    match self.act_on(*id, operation).await {
                        Ok(()) => answer.changed += 1,
                        Err(Fault::Said(error)) => answer.refused.push((*id, error)),
                        Err(fault) => return Err(fault),
                    }
                }
            }
            Target::Matching { filter, limit, after } => {
                let (matching, next) = self.matching(filter, *limit, after.as_ref()).await?;
                answer.next = next;
                for id in matching {
                    match self.act_on(id, operation).await {
                        Ok(()) => answer.changed += 1,
                        Err(Fault::Said(_)) => {}
                        Err(fault) => return Err(fault),
                    }
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
            self.record_act(&ActRecord { at: self.now, by, act, target, changed: answer.changed, why }).await?;
        }
        Ok(answer)
    }

    pub(super) async fn record_act(&mut self, act: &ActRecord) -> Result<(), Fault> {
        self.link.execute(include_str!("sql/act_put.sql"), &[&super::small::act_text(act)]).await?;
        Ok(())
    }

    /// The oldest jobs that match, and where to go on.
    async fn matching(
        &mut self,
        filter: &Filter,
        limit: usize,
        after: Option<&Cursor>,
    ) -> Result<(Vec<JobId>, Option<Cursor>), Fault> {
        let limit = limit.clamp(1, PAGE_MAX);
        let from = super::read::numbered(after)?.unwrap_or(0);
        let found = super::read::scan(&self.link, &self.store, filter, from, limit, true, self.now).await?;
        // What was read without a lock is read again with one.
        self.load_seqs(found.entries.iter().map(|entry| entry.seq)).await?;
        let held = found.entries.iter().filter_map(|entry| self.get(entry.seq));
        let ids = held.filter(|entry| filter.matches(&entry.job)).map(|entry| entry.job.id).collect();
        Ok((ids, found.next.map(|seq| Cursor(seq.to_string()))))
    }

    async fn act_on(&mut self, id: JobId, operation: &Operation) -> Result<(), Fault> {
        let seq = self.known(id)?.seq;
        let (by, why, dry_run) = (operation.by.as_deref(), operation.why.as_str(), operation.dry_run);
        match &operation.act {
            Act::Cancel { force } => match Verdict::of_cancel(&self.entry(seq).job, *force, by, why)? {
                _ if dry_run => {}
                CancelVerdict::Ask => self.ask_to_stop(seq, CancelAsked::new(by, why, self.now)),
                CancelVerdict::Now(verdict) => {
                    self.end(seq, &verdict, Outcome::Revoked).await?;
                }
            },
            Act::DeadLetter => {
                let verdict = Verdict::of_operator_dead_letter(&self.entry(seq).job, by, why)?;
                if !dry_run {
                    self.end(seq, &verdict, Outcome::Revoked).await?;
                }
            }
            Act::Requeue(options) => self.requeue(seq, options, dry_run).await?,
            Act::Delete => self.delete(seq, dry_run).await?,
            Act::Edit(edit) => {
                edit.allowed(&self.entry(seq).job)?;
                if !dry_run {
                    let entry = self.change(seq);
                    edit.apply(&mut entry.job);
                    entry.slow |= entry.job.spec.options.callback_url.is_some();
                    self.wide.insert(seq);
                }
            }
        }
        Ok(())
    }

    fn ask_to_stop(&mut self, seq: i64, asked: CancelAsked) {
        let entry = self.change(seq);
        entry.slow = true;
        entry.job.cancel.get_or_insert(asked);
        let id = entry.job.id;
        self.hints.push(Wake::CancelAsked(id));
    }

    async fn delete(&mut self, seq: i64, dry_run: bool) -> Result<(), Fault> {
        let job = &self.entry(seq).job;
        let (id, state) = (job.id, job.state);
        if !state.is_terminal() {
            return Err(Error::IllegalState { job: id, state, wanted: "delete" }.into());
        }
        if let Some(needed_by) = self.needed_by(seq).await? {
            return Err(Error::Conflict(format!("job {id} is needed by unfinished job {needed_by}")).into());
        }
        if !dry_run {
            self.forget(seq);
        }
        Ok(())
    }

    async fn requeue(&mut self, seq: i64, options: &RequeueOptions, dry_run: bool) -> Result<(), Fault> {
        // On a copy first: what is refused must change nothing.
        self.entry(seq).job.clone().requeue(options, false, self.now)?;
        if dry_run {
            return Ok(());
        }
        let along = if options.with_dependents { self.died_of(seq).await? } else { Vec::new() };
        let back: HashSet<i64> = along.iter().copied().collect();
        self.requeue_one(seq, options, &HashSet::new()).await?;
        for dependent in along {
            let plain = RequeueOptions { run_at: None, ..*options };
            self.requeue_one(dependent, &plain, &back).await?;
        }
        Ok(())
    }

    /// Sends one job back; it waits for its unfinished dependencies, and for those that come `back` with it.
    async fn requeue_one(&mut self, seq: i64, options: &RequeueOptions, back: &HashSet<i64>) -> Result<(), Fault> {
        self.load_dependencies(&[seq]).await?;
        let edges = self.dependencies(seq);
        self.load_seqs(edges.iter().map(|(edge, _)| edge.0)).await?;
        let mut kinds = Vec::with_capacity(edges.len());
        for (edge, _) in edges {
            let parent = self.get(edge.0).map(|entry| entry.job.state);
            let waits = parent.is_some_and(|state| !state.is_terminal() || back.contains(&edge.0));
            kinds.push((kind_of(edge.2)?, waits));
            self.set_edge(edge, waits);
            if waits && !self.entry(edge.0).slow {
                self.change(edge.0).slow = true;
            }
        }
        let waits = Waits::of(&kinds);
        let now = self.now;
        let entry = self.change(seq);
        entry.job.requeue(options, !waits.is_over(), now)?;
        entry.waits = waits;
        // Its end may have consequences again, and its row no longer knows.
        entry.slow = true;
        (entry.token, entry.worker) = (None, None);
        self.wide.insert(seq);
        self.hint_scheduled(seq);
        Ok(())
    }

    /// The jobs that died of this one, however far down the graph.
    async fn died_of(&mut self, seq: i64) -> Result<Vec<i64>, Fault> {
        let cause = self.entry(seq).job.id;
        let mut seen = HashSet::from([seq]);
        let mut found = Vec::new();
        let mut open = vec![seq];
        while let Some(next) = open.pop() {
            self.load_dependents(&[next]).await?;
            for dependent in self.dependent_seqs(next) {
                let job = &self.entry(dependent).job;
                let reason = job.reason.as_ref();
                let died =
                    reason.is_some_and(|reason| reason.kind == ReasonKind::Dependency && reason.cause == Some(cause));
                if job.state.is_dead() && died && seen.insert(dependent) {
                    found.push(dependent);
                    open.push(dependent);
                }
            }
        }
        Ok(found)
    }

    /// One step of an operator's act, whose values were checked.
    pub(super) async fn set_paused(&mut self, queue: &str, paused: bool, by: Option<&str>) -> Result<bool, Fault> {
        self.link.execute(include_str!("sql/queue_make.sql"), &[&vec![queue]]).await?;
        let changed = self.link.execute(include_str!("sql/queue_pause.sql"), &[&queue, &paused]).await?;
        if changed == 0 {
            return Ok(false);
        }
        let act = ActRecord {
            at: self.now,
            by: by.map(str::to_owned),
            act: if paused { "pause" } else { "resume" }.to_owned(),
            target: format!("queue {queue}"),
            changed: 1,
            why: None,
        };
        self.record_act(&act).await?;
        if !paused {
            let name = crate::job::QueueName::new(queue)?;
            self.hints.push(Wake::Scheduled(name));
        }
        Ok(true)
    }
}
