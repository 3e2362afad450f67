//! Reading, which changes nothing.

use windlass::job::{AttemptRecord, Circumstances, DependencyKind, EXPLAIN_SCAN_MAX, Explanation, State};
use windlass::store::*;
use windlass::workflow::WorkflowRecord;
use windlass::{Error, JobId, JobRecord, Result, Timestamp, WorkflowId};

use super::{Stored, Tables};

impl Tables {
    pub(super) fn known(&self, id: JobId) -> Result<&Stored> {
        self.by_id(id).ok_or_else(|| Error::no_such_job(id))
    }

    fn jobs(&self) -> impl DoubleEndedIterator<Item = &JobRecord> {
        self.jobs.values().map(|stored| &stored.entry.job)
    }

    /// Whether a job matches, and is still the one that a key stands for, where one is asked for.
    fn matches(&self, filter: &Filter, job: &JobRecord) -> bool {
        let stands = |key: &String| {
            let scope = job.spec.idempotency_scope();
            scope.and_then(|scope| self.keys.get(&(scope, key.clone()))).is_some_and(|held| held.job == job.id)
        };
        filter.matches(job) && filter.key.as_ref().is_none_or(stands)
    }

    pub(super) fn faults(&self, query: &FaultQuery, now: Timestamp) -> Result<Page<FaultGroup>> {
        FaultGroup::page(self.jobs().rev(), query, now)
    }

    /// Jobs in another order than that of their submission.
    fn list_in_order(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        query.order.check(&query.filter)?;
        let after: Option<[i64; 3]> = query.after.as_ref().map(Cursor::numbers).transpose()?;
        let jobs =
            self.jobs.values().map(|stored| &stored.entry).filter(|entry| self.matches(&query.filter, &entry.job));
        let placed = jobs.map(|entry| (query.order.place(&entry.job, entry.sequence), entry.job.clone()));
        let mut placed: Vec<_> = placed.filter(|(place, _)| after.is_none_or(|after| *place > after)).collect();
        placed.sort_by_key(|(place, _)| *place);
        let rest = placed.split_off(placed.len().min(query.limit.clamp(1, PAGE_MAX)));
        let next = placed.last().filter(|_| !rest.is_empty()).map(|(place, _)| Cursor::of_numbers(place));
        Ok(Page::new(placed.into_iter().map(|(_, job)| job).collect(), next))
    }

    pub(super) fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        if query.order != Order::Newest {
            return self.list_in_order(query);
        }
        let before = numbered(query.after.as_ref())?.unwrap_or(i64::MAX);
        let (limit, looked_max) = (query.limit.clamp(1, PAGE_MAX), query.looked_max.clamp(1, LOOKED_MAX));
        let (mut items, mut looked) = (Vec::new(), 0);
        for (sequence, stored) in self.jobs.range(..before).rev() {
            looked += 1;
            items.extend(self.matches(&query.filter, &stored.entry.job).then(|| stored.entry.job.clone()));
            if items.len() == limit || looked == looked_max {
                return Ok(Page { items, next: Some(Cursor(sequence.to_string())), looked });
            }
        }
        Ok(Page { items, next: None, looked })
    }

    /// The oldest jobs that match, and where to go on.
    pub(super) fn matching(
        &self,
        filter: &Filter,
        limit: usize,
        after: Option<&Cursor>,
    ) -> Result<(Vec<JobId>, Option<Cursor>)> {
        let from = numbered(after)?.unwrap_or(0);
        let matching =
            self.jobs.range(from.saturating_add(1)..).filter(|(_, stored)| self.matches(filter, &stored.entry.job));
        let page = paged(matching.map(|(sequence, stored)| (*sequence, stored.entry.job.id)), limit);
        Ok((page.items, page.next))
    }

    pub(super) fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Counted {
        let looked = (self.jobs.len() as u64).min(looked_max);
        let seen = self.jobs().take(usize::try_from(looked).unwrap_or(usize::MAX));
        let count = seen.filter(|job| self.matches(filter, job)).count() as u64;
        Counted::new(count.min(cap), looked, count >= cap || looked < self.jobs.len() as u64)
    }

    pub(super) fn attempts(&self, id: JobId) -> Result<Vec<AttemptRecord>> {
        let Stored { entry, closed, .. } = self.known(id)?;
        Ok(closed.iter().map(|(_, attempt)| attempt.clone()).chain(entry.job.open_attempt()).collect())
    }

    pub(super) fn explain(&self, id: JobId, now: Timestamp) -> Result<Explanation> {
        let entry = &self.known(id)?.entry;
        let job = &entry.job;
        let order = job.claim_order(entry.sequence);
        let others = self.jobs.values().map(|stored| &stored.entry);
        let ahead = others.filter(|other| {
            other.job.state == State::Scheduled
                && other.job.spec.queue == job.spec.queue
                && other.job.claim_order(other.sequence) < order
        });
        // Of AFTER_ANY dependencies one is enough, so when they are met the rest of them are nothing to wait for.
        let waits = |kind| kind != DependencyKind::AfterAny || entry.waits.any;
        let open = self.edges.dependencies(id).filter(|(edge, open)| *open && waits(edge.kind));
        let mut waits_for: Vec<JobId> = open.map(|(edge, _)| edge.parent).collect();
        waits_for.dedup();
        waits_for.truncate(EXPLAIN_SCAN_MAX);
        let mut around = Circumstances {
            paused: self.queues.get(&job.spec.queue).copied().unwrap_or(false),
            waits_for: if job.state == State::Pending { waits_for } else { Vec::new() },
            ahead: ahead.take(EXPLAIN_SCAN_MAX).count(),
            ahead_by_key: self.ahead_by_key(job, entry.sequence),
            blocked: self.blocked(job, now),
            ..Circumstances::default()
        };
        for worker in self.live_workers(now) {
            worker.tell(job, &mut around);
        }
        Ok(Explanation::of(job, &around, now))
    }

    pub(super) fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        let newest = self.events.last_key_value().map_or(0, |(number, _)| *number);
        let after = numbered(after)?.map_or(newest, i64::unsigned_abs);
        let rest = self.events.range(after.saturating_add(1)..).take(limit.clamp(1, PAGE_MAX));
        let items: Vec<JobEvent> = rest.map(|(_, event)| event.clone()).collect();
        let next = items.last().map_or_else(|| Cursor(newest.to_string()), |last| last.cursor.clone());
        Ok(Page::new(items, Some(next)))
    }

    pub(super) fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        let before = numbered(after)?.map_or(u64::MAX, i64::unsigned_abs);
        let older = self.acts.range(..before).rev();
        Ok(paged(older.map(|(number, act)| (i64::try_from(*number).unwrap_or(i64::MAX), act.clone())), limit))
    }

    pub(super) fn observe(&self, ends_from: Option<Timestamp>, now: Timestamp) -> Observation {
        let mut lanes = self.lanes.clone();
        for job in self.jobs() {
            let lane = lanes.get_mut(&(job.spec.queue.clone(), job.spec.job_type.clone()));
            lane.expect("a job has a lane").states[usize::from(job.state.number())] += 1;
        }
        let ended = self.jobs().filter(|job| job.completed_at.zip(ends_from).is_some_and(|(at, from)| at >= from));
        let ends = ended.filter_map(|job| {
            let names = (job.spec.queue.clone(), job.spec.job_type.clone());
            Some(EndRecord::new(names, job.state, job.scheduled_at, job.started_at, job.completed_at?))
        });
        let ends = newest_ends(ends.collect());
        Observation { now, lanes: lanes.into_values().collect(), ends }
    }

    pub(super) fn queues(&self) -> Vec<QueueRecord> {
        let record = |(name, paused): (&windlass::QueueName, &bool)| {
            let own = || self.jobs().filter(|job| job.spec.queue == *name);
            let scheduled = own().filter(|job| job.state == State::Scheduled);
            let mut record = QueueRecord::new(name.clone());
            record.paused = *paused;
            record.control = self.controls.get(name).map(|known| known.record.clone());
            record.states = counts(own().map(|job| (job.state, 1)));
            record.oldest_scheduled = scheduled.map(|job| job.position).min();
            record
        };
        self.queues.iter().map(record).filter(|queue| !queue.is_forgotten()).collect()
    }

    pub(super) fn live_workers(&self, now: Timestamp) -> Vec<WorkerRecord> {
        self.workers.values().filter(|worker| now.since(worker.seen_at) <= WORKER_LIVE).cloned().collect()
    }

    pub(super) fn workflow(&self, id: WorkflowId) -> Option<WorkflowRecord> {
        self.workflows.values().find(|record| record.id == id).map(|record| self.counted(record))
    }

    fn counted(&self, record: &WorkflowRecord) -> WorkflowRecord {
        let own = self.jobs().filter(|job| job.workflow_id == Some(record.id));
        let mut counted = record.clone();
        counted.counts = counts(own.map(|job| (job.state, 1)));
        counted
    }

    pub(super) fn list_workflows(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WorkflowRecord>> {
        let before = numbered(after)?.unwrap_or(i64::MAX);
        let older = self.workflows.range(..before).rev();
        Ok(paged(older.map(|(sequence, record)| (*sequence, self.counted(record))), limit))
    }
}

/// A page of rows, each with the number that its cursor is made of.
fn paged<T>(mut rows: impl Iterator<Item = (i64, T)>, limit: usize) -> Page<T> {
    let page: Vec<(i64, T)> = rows.by_ref().take(limit.clamp(1, PAGE_MAX)).collect();
    let next = page.last().filter(|_| rows.next().is_some()).map(|(number, _)| Cursor(number.to_string()));
    Page::new(page.into_iter().map(|(_, item)| item).collect(), next)
}

fn numbered(cursor: Option<&Cursor>) -> Result<Option<i64>> {
    let number = |cursor: &Cursor| cursor.0.parse().ok().filter(|number: &i64| *number >= 0);
    cursor.map(|cursor| number(cursor).ok_or_else(|| cursor.invalid())).transpose()
}
