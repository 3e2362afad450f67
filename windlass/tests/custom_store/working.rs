//! The way into the rules and back: what they ask for is put into a working set, what they changed is written.

use windlass::job::JobId;
use windlass::store::rules::{Changes, Missing, Run, ScheduleWrite, Stop, WorkingSet};
use windlass::store::{AttemptCount, Cursor, JobEvent, JobEventKind, LaneRecord, Wake, ended_place, new_job_id};
use windlass::workflow::{Held, Identity};
use windlass::{JobRecord, Result, State, Timestamp};

use super::{Stored, Tables};

/// How many attempts of a job are kept.
const ATTEMPTS_KEPT: usize = 100;

impl Tables {
    /// Runs a rule and writes what it changed; an error has changed nothing.
    pub(super) fn run<T>(&mut self, now: Timestamp, rule: impl FnMut(&mut WorkingSet) -> Result<T, Stop>) -> Result<T> {
        let mut set = WorkingSet::new(now);
        set.hold_leases(self.fence.unwrap_or(now));
        let mut run = Run::new(rule);
        loop {
            match run.step(&mut set) {
                Ok(answer) => {
                    self.write(set.finish());
                    return Ok(answer);
                }
                Err(Stop::Missing(missing)) => self.load(&mut set, missing, now),
                Err(Stop::Refused(error)) => return Err(error),
            }
        }
    }

    fn load(&mut self, set: &mut WorkingSet, missing: Missing, now: Timestamp) {
        match missing {
            Missing::Jobs(ids) => ids.into_iter().for_each(|id| self.load_job(set, id)),
            Missing::Dependents(ids) => {
                for id in ids {
                    for (edge, open) in self.edges.dependents(id) {
                        set.put_edge(edge, open);
                        self.load_job(set, edge.child);
                    }
                    set.know_dependents(id);
                }
            }
            Missing::Dependencies(ids) => {
                for id in ids {
                    for (edge, open) in self.edges.dependencies(id) {
                        set.put_edge(edge, open);
                        self.load_job(set, edge.parent);
                    }
                    set.know_dependencies(id);
                }
            }
            Missing::Keys(uses) => {
                for key in uses {
                    let held = self.keys.get(&(key.scope.clone(), key.key.clone()));
                    let held = held.filter(|held| held.new.expires_at.is_none_or(|expires_at| expires_at > now));
                    let held = held.map(|held| {
                        let matches = held.key.job_type == key.job_type && held.key.payload == key.payload;
                        Held { id: held.job, matches, until: held.new.until, first_at: held.new.first_at }
                    });
                    set.put_key(key, held);
                }
            }
            Missing::Attempt(key, outcome) => {
                let closed = self.by_id(key.job).map(|stored| stored.closed.as_slice()).unwrap_or_default();
                let same =
                    closed.iter().any(|(token, attempt)| *token == key.token && attempt.outcome == Some(outcome));
                set.put_attempt(key, outcome, same);
            }
            Missing::Identities(count) => {
                for _ in 0..count {
                    set.put_identity(Identity { sequence: self.draw(), id: new_job_id() });
                }
            }
        }
    }

    fn load_job(&self, set: &mut WorkingSet, id: JobId) {
        match self.by_id(id) {
            Some(stored) => set.put(stored.entry.clone()),
            None => set.put_absent(id),
        }
    }

    /// The numbers of a job's lane.
    fn lane(&mut self, job: &JobRecord) -> &mut LaneRecord {
        let (queue, job_type) = (job.spec.queue.clone(), job.spec.job_type.clone());
        let fresh = || LaneRecord::new(queue.clone(), job_type.clone());
        self.lanes.entry((queue.clone(), job_type.clone())).or_insert_with(fresh)
    }

    fn write(&mut self, changes: Changes) {
        for entry in changes.new {
            self.lane(&entry.job).accepted += 1;
            if let Some(place) = ended_place(entry.job.state) {
                self.lane(&entry.job).ended[place] += 1;
            }
            self.ids.insert(entry.job.id, entry.sequence);
            self.queues.entry(entry.job.spec.queue.clone()).or_insert(false);
            self.jobs.insert(entry.sequence, Stored { entry, closed: Vec::new(), logs: Vec::new() });
        }
        for kept in changes.keys {
            self.keys.insert((kept.key.scope.clone(), kept.key.key.clone()), kept);
        }
        for change in changes.changed {
            let sequence = change.after.sequence;
            let moved = change.before.job.state != change.after.job.state;
            if let Some(place) = ended_place(change.after.job.state).filter(|_| moved) {
                self.lane(&change.after.job).ended[place] += 1;
            }
            let queue = &change.after.job.spec.queue;
            if moved && change.before.job.state == State::Running && self.controls.contains_key(queue) {
                // A slot came free.
                self.wakes.push(Wake::Scheduled(queue.clone()));
            }
            self.job_mut(sequence).entry = change.after;
        }
        for change in changes.edges {
            self.edges.set(change.edge, change.open);
        }
        for closed in changes.attempts {
            let sequence = self.ids[&closed.job];
            let job = self.job_mut(sequence).entry.job.clone();
            match AttemptCount::of(closed.attempt.outcome, job.state) {
                Some(AttemptCount::Retried) => self.lane(&job).retried += 1,
                Some(AttemptCount::Lost) => self.lane(&job).lost += 1,
                None => {}
            }
            let stored = self.job_mut(sequence);
            stored.closed.push((closed.token, closed.attempt));
            if stored.closed.len() > ATTEMPTS_KEPT {
                let (_, oldest) = stored.closed.remove(0);
                stored.logs.retain(|line| line.attempt != oldest.id);
            }
        }
        changes.events.into_iter().for_each(|(id, kind)| self.record_event(id, kind));
        changes.removed.into_iter().for_each(|entry| self.remove(entry.job.id));
        changes.acts.into_iter().for_each(|act| self.record_act(act));
        for write in changes.schedules {
            let _ = match write {
                ScheduleWrite::Put(schedule) => self.schedules.insert(schedule.spec.name.clone(), schedule),
                ScheduleWrite::Delete(name) => self.schedules.remove(&name),
            };
        }
        self.hold_gates(changes.holds);
        self.wakes.extend(changes.wakes);
    }

    fn record_event(&mut self, id: JobId, kind: JobEventKind) {
        let Some(Stored { entry, .. }) = self.by_id(id) else { return };
        let job = &entry.job;
        let at = if kind == JobEventKind::Enqueued { job.created_at } else { job.updated_at };
        let lane = (job.spec.queue.clone(), job.spec.job_type.clone());
        let submitted_by = job.spec.options.submitted_by.clone();
        let number = self.events.last_key_value().map_or(1, |(number, _)| number + 1);
        let cursor = Cursor(number.to_string());
        let mut event = JobEvent::new(cursor, at, id, lane, kind);
        event.submitted_by = submitted_by;
        self.events.insert(number, event);
    }

    /// Removes a job for good; its key goes on, and its workflow goes with the last of its jobs.
    pub(super) fn remove(&mut self, id: JobId) {
        let Some(stored) = self.ids.remove(&id).and_then(|sequence| self.jobs.remove(&sequence)) else { return };
        self.edges.remove(id);
        let Some(workflow) = stored.entry.job.workflow_id else { return };
        let is_empty = !self.jobs.values().any(|stored| stored.entry.job.workflow_id == Some(workflow));
        let found = self.workflows.iter_mut().find(|(_, record)| record.id == workflow);
        if let Some((sequence, record)) = found {
            record.pruned += 1;
            let sequence = *sequence;
            if is_empty {
                self.workflows.remove(&sequence);
            }
        }
    }

    /// What rows say that cannot be.
    pub(super) fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        for stored in self.jobs.values() {
            let job = &stored.entry.job;
            let runs = job.state == State::Running;
            if runs != job.lease.is_some() || runs != stored.entry.token.is_some() {
                found.push(format!("job {}: its lease and its state disagree", job.id));
            }
            if job.state.is_terminal() != job.completed_at.is_some() {
                found.push(format!("job {}: its end and its state disagree", job.id));
            }
        }
        found
    }
}
