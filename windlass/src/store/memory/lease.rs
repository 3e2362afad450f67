//! The lease holder's calls that concern one job: claim, extend, save.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use super::tables::{ClaimOrder, Stored, Tables};
use crate::error::Result;
use crate::job::{JobType, LOG_LINES_MAX, Lease, LeaseKey, LogLine, QueueName, Stale, State};
use crate::store::answer::{Claimed, Claims, Extended};
use crate::store::new_lease_token;
use crate::store::request::{ClaimRequest, Save};
use crate::time::Timestamp;
use crate::workflow::Sequence;

impl Tables {
    pub(super) fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Claims {
        let (mut claimed, mut again_at) = (Vec::new(), None);
        for (queue, room) in &request.queues {
            let wanted = (*room).min(request.limit - claimed.len());
            let paused = self.queues.get(queue).is_none_or(|queue| queue.paused);
            if self.controlled(queue).is_some() && !paused && wanted > 0 {
                let (jobs, again) = self.claim_through_gates(queue, wanted, request, now);
                claimed.extend(jobs);
                again_at = [again_at, again].into_iter().flatten().min();
                continue;
            }
            for sequence in self.next_in(queue, request.types.as_deref(), wanted, now) {
                claimed.push(self.claim_one(sequence, request, now));
            }
        }
        Claims { jobs: claimed, again_in: again_at.map(|at: Timestamp| at.since(now)) }
    }

    /// The next jobs of a queue in claim order: its lanes are merged, and stay untouched where a type is not wanted.
    fn next_in(&self, queue: &QueueName, types: Option<&[JobType]>, wanted: usize, now: Timestamp) -> Vec<Sequence> {
        let Some(queue) = self.queues.get(queue).filter(|queue| !queue.paused && queue.control.is_none() && wanted > 0)
        else {
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
            let outlived = self.stored(sequence).entry.job.deadline.is_some_and(|deadline| deadline <= now);
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

    pub(super) fn claim_one(&mut self, sequence: Sequence, request: &ClaimRequest, now: Timestamp) -> Claimed {
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
        let entry = &self.by_id(key.job).ok_or(Stale::NotRunning)?.entry;
        let job = &entry.job;
        let expires_at = job.lease.as_ref().map(|lease| lease.expires_at);
        let outlived = job.deadline.is_some_and(|deadline| deadline <= now);
        let fence = if outlived { now } else { self.fence };
        Stale::check(job.state == State::Running, expires_at, fence, entry.token == Some(key.token))?;
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
        let Stored { entry, logs, .. } = self.stored_mut(sequence);
        if let Some(checkpoint) = save.new_checkpoint() {
            entry.job.checkpoint = Some(checkpoint.clone());
        }
        if let Some(progress) = save.new_progress() {
            entry.job.progress = Some(progress.clone());
        }
        let Some(attempt) = entry.job.open_attempt().map(|open| open.id) else { return Ok(()) };
        for text in save.new_log() {
            logs.push_back(LogLine { attempt, at: now, text: text.clone() });
        }
        let kept = logs.iter().filter(|line| line.attempt == attempt).count();
        for _ in LOG_LINES_MAX..kept {
            if let Some(oldest) = logs.iter().position(|line| line.attempt == attempt) {
                logs.remove(oldest);
            }
        }
        Ok(())
    }
}
