//! Reading, which changes nothing.

use super::tables::{Stored, Tables};
use crate::error::{Error, Result};
use crate::job::{
    AttemptRecord, Circumstances, DependencyKind, EXPLAIN_SCAN_MAX, Explanation, JobId, JobRecord, LogLine, State,
    WorkflowId,
};
use crate::store::answer::{
    ActRecord, Announced, Counted, JobEvent, LOG_LINE_BYTES, LOGS_BYTES_MAX, Page, QueueRecord, WorkerRecord, fits,
};
use crate::store::faults::FaultGroup;
use crate::store::observe::{ENDS_MAX, EndRecord, Observation, SAMPLES_MAX, Sample, SampleStep, newest_ends};
use crate::store::request::{
    Cursor, FaultQuery, Filter, LOOKED_MAX, ListQuery, Order, PAGE_MAX, WORKER_LIVE, WorkerReport,
};
use crate::time::Timestamp;
use crate::workflow::{Sequence, WorkflowRecord};

impl Tables {
    fn known(&self, id: JobId) -> Result<&Stored> {
        self.by_id(id).ok_or_else(|| Error::no_such_job(id))
    }

    /// Whether a job matches, and is still the one that a key stands for, where one is asked for.
    pub(super) fn matches(&self, filter: &Filter, job: &JobRecord) -> bool {
        let stands = |key: &String| {
            let scope = job.spec.idempotency_scope();
            let held = scope.and_then(|scope| self.keys.get(&(scope, key.clone())));
            held.is_some_and(|held| held.kept.job == job.id)
        };
        filter.matches(job) && filter.key.as_ref().is_none_or(stands)
    }

    /// Jobs in another order than that of their submission.
    fn list_in_order(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        query.order.check(&query.filter)?;
        let after: Option<[i64; 3]> = query.after.as_ref().map(Cursor::numbers).transpose()?;
        let jobs = self.jobs.values().filter(|stored| self.matches(&query.filter, &stored.entry.job));
        let mut placed: Vec<([i64; 3], &JobRecord)> = jobs
            .map(|stored| (query.order.place(&stored.entry.job, stored.entry.sequence), &stored.entry.job))
            .collect();
        placed.retain(|(place, _)| after.is_none_or(|after| *place > after));
        placed.sort_unstable_by_key(|(place, _)| *place);
        let limit = query.limit.clamp(1, PAGE_MAX);
        let more = placed.len() > limit;
        placed.truncate(limit);
        let next = placed.last().filter(|_| more).map(|(place, _)| Cursor::of_numbers(place));
        Ok(Page::new(placed.into_iter().map(|(_, job)| job.clone()).collect(), next))
    }

    pub(super) fn list(&self, query: &ListQuery) -> Result<Page<JobRecord>> {
        if query.order != Order::Newest {
            return self.list_in_order(query);
        }
        let limit = query.limit.clamp(1, PAGE_MAX);
        let before = sequence(query.after.as_ref())?.unwrap_or(Sequence::MAX);
        let mut items = Vec::new();
        let looked_max = query.looked_max.clamp(1, LOOKED_MAX);
        let mut looked = 0;
        for (sequence, stored) in self.jobs.range(..before).rev() {
            looked += 1;
            if self.matches(&query.filter, &stored.entry.job) {
                items.push(stored.entry.job.clone());
            }
            if items.len() == limit || looked == looked_max {
                return Ok(Page { items, next: Some(Cursor(sequence.to_string())), looked });
            }
        }
        Ok(Page { items, next: None, looked })
    }

    pub(super) fn count(&self, filter: &Filter, cap: u64, looked_max: u64) -> Counted {
        let plain = Filter { states: filter.states.clone(), queue: filter.queue.clone(), ..Filter::default() };
        if *filter == plain {
            let queue = filter.queue.as_ref();
            let queues = self.queues.iter().filter(|(name, _)| queue.is_none_or(|wanted| wanted == *name));
            let states =
                State::ALL.into_iter().filter(|state| filter.states.is_empty() || filter.states.contains(state));
            let states: Vec<_> = states.map(|state| usize::from(state.number())).collect();
            let counts = queues.map(|(_, queue)| states.iter().map(|number| queue.states[*number]).sum::<u64>());
            return Counted::kept(counts.sum(), cap);
        }
        let mut counted = Counted::default();
        for stored in self.jobs.values() {
            counted.capped = counted.count >= cap || counted.looked >= looked_max;
            if counted.capped {
                return counted;
            }
            counted.looked += 1;
            counted.count += u64::from(self.matches(filter, &stored.entry.job));
        }
        Counted { capped: counted.count >= cap, ..counted }
    }

    pub(super) fn faults(&self, query: &FaultQuery, now: Timestamp) -> Result<Page<FaultGroup>> {
        FaultGroup::page(self.jobs.values().rev().map(|stored| &stored.entry.job), query, now)
    }

    pub(super) fn attempts(&self, id: JobId) -> Result<Vec<AttemptRecord>> {
        let Stored { entry, closed, .. } = self.known(id)?;
        let closed = closed.iter().map(|(_, attempt)| attempt.clone());
        Ok(closed.chain(entry.job.open_attempt()).collect())
    }

    pub(super) fn logs(&self, id: JobId) -> Result<Vec<LogLine>> {
        let mut left = LOGS_BYTES_MAX;
        let newest =
            self.known(id)?.logs.iter().rev().take_while(|line| fits(line.text.len() + LOG_LINE_BYTES, &mut left));
        let mut lines: Vec<LogLine> = newest.cloned().collect();
        lines.reverse();
        Ok(lines)
    }

    pub(super) fn explain(&self, id: JobId, now: Timestamp) -> Result<Explanation> {
        let entry = &self.known(id)?.entry;
        let queue = self.queues.get(&entry.job.spec.queue);
        let order = entry.job.claim_order(entry.sequence);
        let lanes = queue.iter().flat_map(|queue| queue.lanes.values());
        let ahead = lanes.flat_map(|lane| lane.range(..order)).take(EXPLAIN_SCAN_MAX).count();
        // Of AFTER_ANY dependencies one is enough, so when they are met the rest of them are nothing to wait for.
        let waits = |kind| kind != DependencyKind::AfterAny || entry.waits.any;
        let open = self.edges.dependencies(id).filter(|(edge, open)| *open && waits(edge.kind));
        let mut waits_for: Vec<JobId> = open.map(|(edge, _)| edge.parent).collect();
        waits_for.dedup();
        waits_for.truncate(EXPLAIN_SCAN_MAX);
        let mut around = Circumstances {
            paused: queue.is_some_and(|queue| queue.paused),
            waits_for: if entry.job.state == State::Pending { waits_for } else { Vec::new() },
            ahead,
            ahead_by_key: self.ahead_by_key(entry.sequence, &entry.job),
            blocked: self.blocked(&entry.job, now),
            ..Circumstances::default()
        };
        for worker in self.live_workers(now) {
            worker.tell(&entry.job, &mut around);
        }
        Ok(Explanation::of(&entry.job, &around, now))
    }

    pub(super) fn events(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<JobEvent>> {
        let present = || Some(Cursor((self.next_event - 1).to_string()));
        let Some(after) = numbered(after)? else { return Ok(Page::new(Vec::new(), present())) };
        let start = self.events.partition_point(|event| event.number <= after);
        let rest = self.events.range(start..).take(limit.clamp(1, PAGE_MAX));
        let items: Vec<JobEvent> = rest.map(|event| event.shown()).collect();
        let next = items.last().map_or_else(present, |last| Some(last.cursor.clone()));
        Ok(Page::new(items, next))
    }

    pub(super) fn acts(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<ActRecord>> {
        let before = numbered(after)?.unwrap_or(u64::MAX);
        let end = self.acts.partition_point(|(number, _)| *number < before);
        let limit = limit.clamp(1, PAGE_MAX);
        let page: Vec<_> = self.acts.range(..end).rev().take(limit).collect();
        let next = page.last().filter(|_| end > limit).map(|(number, _)| Cursor(number.to_string()));
        Ok(Page::new(page.into_iter().map(|(_, act)| act.clone()).collect(), next))
    }

    pub(super) fn observe(&self, ends_from: Option<Timestamp>, now: Timestamp) -> Observation {
        let lanes = self.queues.values().flat_map(|queue| queue.numbers.values().cloned()).collect();
        let mut ends = Vec::new();
        for state in State::ALL.into_iter().filter(|state| state.is_terminal()) {
            let Some(from) = ends_from else { break };
            for index in [&self.ended, &self.ended_own] {
                let newest = index.range((state, from, Sequence::MIN)..=(state, Timestamp::MAX, Sequence::MAX)).rev();
                ends.extend(newest.take(ENDS_MAX).map(|(state, at, sequence)| {
                    let job = &self.stored(*sequence).entry.job;
                    let names = (job.spec.queue.clone(), job.spec.job_type.clone());
                    EndRecord::new(names, *state, job.scheduled_at, job.started_at, *at)
                }));
            }
        }
        Observation { now, lanes, ends: newest_ends(ends) }
    }

    pub(super) fn put_sample(&mut self, step: SampleStep, sample: &Sample, now: Timestamp) {
        self.samples.entry((step, sample.at)).or_insert_with(|| sample.clone());
        let horizon = now.minus(step.kept());
        self.samples.retain(|(kept, at), _| *kept != step || *at >= horizon);
    }

    pub(super) fn samples(&self, step: SampleStep, from: Timestamp, before: Timestamp) -> Vec<Sample> {
        let all = self.samples.range((step, from)..).take_while(|((other, at), _)| *other == step && *at < before);
        let mut samples: Vec<Sample> = all.map(|(_, sample)| sample.clone()).collect();
        samples.split_off(samples.len().saturating_sub(SAMPLES_MAX))
    }

    pub(super) fn queues(&self) -> Vec<QueueRecord> {
        let oldest = |queue: &super::tables::Queue| {
            let first_of = |lane: &std::collections::BTreeSet<super::tables::ClaimOrder>| {
                let levels = crate::job::Priority::ALL.into_iter();
                let firsts = levels.filter_map(|level| {
                    lane.range((level, Timestamp::EPOCH, 0)..).next().filter(|(found, _, _)| *found == level)
                });
                firsts.map(|(_, at, _)| *at).min()
            };
            queue.lanes.values().filter_map(first_of).min()
        };
        let record = |(name, queue): (&crate::job::QueueName, &super::tables::Queue)| QueueRecord {
            name: name.clone(),
            paused: queue.paused,
            states: queue.states,
            oldest_scheduled: oldest(queue),
            control: queue.control.as_ref().map(|known| known.record.clone()),
            at_door: 0,
        };
        self.queues.iter().map(record).filter(|queue| !queue.is_forgotten()).collect()
    }

    pub(super) fn announce(&mut self, report: &WorkerReport, now: Timestamp) -> Announced {
        let worker = WorkerRecord::announced(report, self.workers.get(&report.id), now);
        let announced = Announced::new(worker.draining);
        self.workers.insert(report.id.clone(), worker);
        announced
    }

    pub(super) fn live_workers(&self, now: Timestamp) -> impl Iterator<Item = &WorkerRecord> {
        self.workers.values().filter(move |worker| now.since(worker.seen_at) <= WORKER_LIVE)
    }

    pub(super) fn workflow(&self, id: WorkflowId) -> Option<&WorkflowRecord> {
        self.workflows.get(self.workflow_ids.get(&id)?)
    }

    pub(super) fn list_workflows(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<WorkflowRecord>> {
        let before = sequence(after)?.unwrap_or(Sequence::MAX);
        let mut rest = self.workflows.range(..before).rev();
        let page: Vec<_> = rest.by_ref().take(limit.clamp(1, PAGE_MAX)).collect();
        let next = page.last().filter(|_| rest.next().is_some()).map(|(sequence, _)| Cursor(sequence.to_string()));
        Ok(Page::new(page.into_iter().map(|(_, workflow)| workflow.clone()).collect(), next))
    }
}

fn numbered(cursor: Option<&Cursor>) -> Result<Option<u64>> {
    cursor.map(|cursor| cursor.0.parse().map_err(|_| cursor.invalid())).transpose()
}

/// The number of the job or workflow that a page ended with.
pub(super) fn sequence(cursor: Option<&Cursor>) -> Result<Option<Sequence>> {
    Ok(numbered(cursor)?.map(|number| Sequence::try_from(number).unwrap_or(Sequence::MAX)))
}
