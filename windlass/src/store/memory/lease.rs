//! The lease holder's calls: claim, extend, save, settle.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashSet};
use std::time::Duration;

use super::insert::Origin;
use super::tables::{ClaimOrder, Sequence, Tables};
use crate::error::{Error, Result};
use crate::job::{
    DependencyKind, JobId, JobType, LOG_LINES_MAX, Lease, LeaseKey, LogLine, Outcome, QueueName, Settlement, Stale,
    State,
};
use crate::store::answer::{Claimed, Extended, InsertedJob, Settled};
use crate::store::new_lease_token;
use crate::store::request::{ClaimRequest, Save};
use crate::time::Timestamp;
use crate::workflow::Submission;
use crate::workflow::graph::{self, Edge};

impl Tables {
    pub(super) fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        for (queue, room) in &request.queues {
            let wanted = (*room).min(request.limit - claimed.len());
            for sequence in self.next_in(queue, request.types.as_deref(), wanted, now) {
                claimed.push(self.claim_one(sequence, request, now));
            }
        }
        claimed
    }

    /// The next jobs of a queue in claim order: its lanes are merged, and stay untouched where a type is not wanted.
    fn next_in(&self, queue: &QueueName, types: Option<&[JobType]>, wanted: usize, now: Timestamp) -> Vec<Sequence> {
        let Some(queue) = self.queues.get(queue).filter(|queue| !queue.paused && wanted > 0) else {
            return Vec::new();
        };
        let lanes: Vec<&BTreeSet<ClaimOrder>> = match types {
            None => queue.lanes.values().collect(),
            Some(types) => {
                let distinct: BTreeSet<&JobType> = types.iter().collect();
                distinct.into_iter().filter_map(|job_type| queue.lanes.get(job_type)).collect()
            }
        };
        let mut lanes: Vec<_> = lanes.into_iter().map(|lane| lane.iter()).collect();
        let mut heads = BinaryHeap::with_capacity(lanes.len());
        for (number, lane) in lanes.iter_mut().enumerate() {
            heads.extend(lane.next().map(|order| Reverse((*order, number))));
        }
        let mut next = Vec::new();
        while let Some(Reverse(((_, _, sequence), number))) = heads.pop() {
            let outlived = self.entry(sequence).job.deadline.is_some_and(|deadline| deadline <= now);
            if !outlived {
                next.push(sequence);
            }
            if next.len() == wanted {
                break;
            }
            heads.extend(lanes[number].next().map(|order| Reverse((*order, number))));
        }
        next
    }

    fn claim_one(&mut self, sequence: Sequence, request: &ClaimRequest, now: Timestamp) -> Claimed {
        self.update(sequence, |entry| {
            let token = new_lease_token();
            entry.job.claim(&request.worker, request.lease_time, now).expect("only SCHEDULED jobs stand in lanes");
            entry.token = Some(token);
            let expires_at = entry.job.lease.as_ref().map_or(now, |lease| lease.expires_at);
            let lease = Lease::granted(&entry.job, token);
            Claimed { job: entry.job.clone(), lease, expires_in: expires_at.since(now) }
        })
    }

    /// The job that a lease holds, or why it does not (L2, L3).
    fn fence(&self, key: &LeaseKey, now: Timestamp) -> Result<Sequence, Stale> {
        let entry = self.by_id(key.job).ok_or(Stale::NotRunning)?;
        let job = &entry.job;
        let expires_at = job.lease.as_ref().map(|lease| lease.expires_at);
        Stale::check(job.state == State::Running, expires_at, now, entry.token == Some(key.token))?;
        Ok(entry.sequence)
    }

    pub(super) fn extend(&mut self, key: &LeaseKey, lease_time: Option<Duration>, now: Timestamp) -> Extended {
        match self.fence(key, now) {
            Err(stale) => Extended::Lost(stale),
            Ok(sequence) => self.update(sequence, |entry| {
                entry.job.extend(lease_time, now);
                let expires_at = entry.job.lease.as_ref().map_or(now, |lease| lease.expires_at);
                Extended::Held { expires_in: expires_at.since(now), cancel: entry.job.cancel.clone() }
            }),
        }
    }

    pub(super) fn save(&mut self, save: &Save, now: Timestamp) -> Result<(), Stale> {
        let sequence = self.fence(&save.key(), now)?;
        let entry = self.entry_mut(sequence);
        if let Some(checkpoint) = save.new_checkpoint() {
            entry.job.checkpoint = Some(checkpoint.clone());
        }
        if let Some(progress) = save.new_progress() {
            entry.job.progress = Some(progress.clone());
        }
        let Some(attempt) = entry.job.open_attempt().map(|open| open.id) else { return Ok(()) };
        for text in save.new_log() {
            entry.logs.push_back(LogLine { attempt, at: now, text: text.clone() });
        }
        let kept = entry.logs.iter().filter(|line| line.attempt == attempt).count();
        for _ in LOG_LINES_MAX..kept {
            if let Some(oldest) = entry.logs.iter().position(|line| line.attempt == attempt) {
                entry.logs.remove(oldest);
            }
        }
        Ok(())
    }

    pub(super) fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> Settled {
        let sequence = match self.fence(&settlement.key(), now) {
            Ok(sequence) => sequence,
            Err(_) if self.was_applied(settlement) => return Settled::AlreadyApplied,
            Err(stale) => return Settled::Stale(stale),
        };
        let children = match self.check_children(sequence, settlement, now) {
            Ok(children) => children,
            Err(error) => return Settled::Refused(error),
        };
        let cancel_asked = self.entry(sequence).job.cancel.is_some();
        let verdict = settlement.verdict(cancel_asked).clone();
        let state = self.apply(sequence, &verdict, settlement.outcome(), now);
        if state == State::Completed {
            self.entry_mut(sequence).job.result = settlement.result().cloned();
        }
        if let Some(children) = children {
            self.spawn(sequence, &children, now);
        }
        if state.is_terminal() {
            self.conclude(sequence, now);
        }
        Settled::Applied(state)
    }

    /// Whether this very settlement was written before (L4).
    fn was_applied(&self, settlement: &Settlement) -> bool {
        let key = settlement.key();
        self.by_id(key.job).is_some_and(|entry| {
            let mut closed = entry.closed.iter();
            closed.any(|(token, attempt)| *token == key.token && attempt.outcome == Some(settlement.outcome()))
        })
    }

    /// Refuses children that cannot be stored, before anything is written.
    fn check_children(&self, parent: Sequence, settlement: &Settlement, now: Timestamp) -> Result<Option<Submission>> {
        if settlement.children().is_empty() {
            return Ok(None);
        }
        let children = Submission::new(settlement.children().to_vec())?;
        let starts = self.would_insert(&children, now)?;
        // A job that has ended waits for nobody, even if it ended with a dependency open.
        let unfinished = |id: &JobId| self.by_id(*id).filter(|entry| !entry.job.state.is_terminal());
        let joins = self.fan_ins(parent).into_iter().map(|(id, _)| id);
        let joins: HashSet<JobId> = joins.filter(|id| unfinished(id).is_some()).collect();
        if !joins.is_empty() {
            let waits_for = |id: JobId| match unfinished(&id) {
                Some(entry) => entry.open.iter().map(|(on, _)| *on).collect(),
                None => Vec::new(),
            };
            if let Some(join) = graph::reaches(starts, &joins, waits_for) {
                return Err(Error::DependencyCycle { through: join.to_string() });
            }
        }
        Ok(Some(children))
    }

    /// The jobs that wait for this one and all it spawns.
    ///
    /// One that has ended gains nothing to wait for, or it could come back by requeue to wait for itself.
    fn fan_ins(&self, parent: Sequence) -> Vec<(JobId, DependencyKind)> {
        let entry = self.entry(parent);
        let mut joins = Vec::new();
        let dependents = entry.dependents.iter().filter_map(|dependent| self.jobs.get(dependent));
        for dependent in dependents.filter(|dependent| dependent.job.state == State::Pending) {
            let open = dependent.open.iter().filter(|(on, kind)| *on == entry.job.id && graph::is_fan_in(*kind));
            joins.extend(open.map(|(_, kind)| (dependent.job.id, *kind)));
        }
        joins
    }

    /// Stores the children of a completed job, and lets its FAN_INs wait for them too.
    fn spawn(&mut self, parent: Sequence, children: &Submission, now: Timestamp) {
        let joins = self.fan_ins(parent);
        let job = &self.entry(parent).job;
        let origin = Origin { workflow: job.workflow_id, spawned_by: Some(job.id), firing: None };
        let spawned = self.insert_from(children, &origin, now).expect("the children were checked");
        for (join, kind) in joins {
            self.gain(join, kind, &spawned, now);
        }
    }

    fn gain(&mut self, join: JobId, kind: DependencyKind, children: &[InsertedJob], now: Timestamp) {
        let join = *self.ids.get(&join).expect("a job that waits is kept");
        for child in children {
            let edge = (child.id, kind);
            let Some(child) = self.ids.get(&child.id).copied() else { continue };
            let entry = self.entry(join);
            if entry.edges.contains(&edge) || entry.job.state != State::Pending {
                continue;
            }
            let (state, cause) = (self.entry(child).job.state, self.entry(child).job.root_cause());
            self.entry_mut(child).dependents.push(join);
            let entry = self.entry_mut(join);
            entry.edges.push(edge);
            if !state.is_terminal() {
                entry.open.push(edge);
                entry.waits.all += 1;
            } else if let Edge::Dies(verdict) = graph::edge(kind, state, cause) {
                self.end(join, &verdict, Outcome::Revoked, now);
            }
        }
    }
}
