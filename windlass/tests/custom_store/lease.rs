//! The lease holder's calls that concern one job: claim, extend, save.

use std::time::Duration;

use windlass::job::{LOG_LINES_MAX, Lease, LeaseKey, LogLine, Stale, State};
use windlass::store::{ClaimRequest, Claimed, Claims, Extended, Save, new_lease_token};
use windlass::workflow::Sequence;
use windlass::{QueueName, Timestamp};

use super::{Stored, Tables};

impl Tables {
    pub(super) fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Claims {
        let (mut jobs, mut again_at) = (Vec::new(), None);
        for (queue, room) in &request.queues {
            let wanted = (*room).min(request.limit - jobs.len());
            let is_paused = self.queues.get(queue).copied().unwrap_or(false);
            let (next, again) = match self.controls.contains_key(queue) {
                _ if is_paused || wanted == 0 => continue,
                true => self.pick_from(queue, request.types.as_deref(), wanted, now),
                false => (self.next_in(queue, request, now), None),
            };
            again_at = [again_at, again].into_iter().flatten().min();
            jobs.extend(next.into_iter().take(wanted).map(|sequence| self.claim_one(sequence, request, now)));
        }
        Claims { jobs, again_in: again_at.map(|at: Timestamp| at.since(now)) }
    }

    fn claim_one(&mut self, sequence: Sequence, request: &ClaimRequest, now: Timestamp) -> Claimed {
        let entry = &mut self.job_mut(sequence).entry;
        let token = new_lease_token();
        entry.job.claim(&request.worker, request.lease_time, now).expect("it is SCHEDULED");
        entry.token = Some(token);
        let expires_in = entry.job.lease.as_ref().map_or(now, |lease| lease.expires_at).since(now);
        let (lease, job) = (Lease::granted(&entry.job, token), entry.job.clone());
        Claimed { job, lease, expires_in }
    }

    /// What can be claimed from a plain queue, in claim order (D5).
    fn next_in(&self, queue: &QueueName, request: &ClaimRequest, now: Timestamp) -> Vec<Sequence> {
        let wanted = |stored: &&Stored| {
            let job = &stored.entry.job;
            job.state == State::Scheduled
                && job.spec.queue == *queue
                && request.types.as_ref().is_none_or(|types| types.contains(&job.spec.job_type))
                && job.deadline.is_none_or(|deadline| deadline > now)
        };
        let mut next: Vec<_> = self.jobs.values().filter(wanted).map(|stored| &stored.entry).collect();
        next.sort_unstable_by_key(|entry| entry.job.claim_order(entry.sequence));
        next.into_iter().map(|entry| entry.sequence).collect()
    }

    /// The job that a lease holds, or why it does not (L2, L3).
    fn fence(&mut self, key: LeaseKey, now: Timestamp) -> Result<&mut Stored, Stale> {
        let sequence = *self.ids.get(&key.job).ok_or(Stale::NotRunning)?;
        let fence = self.fence.unwrap_or(now);
        let stored = self.job_mut(sequence);
        let job = &stored.entry.job;
        let expires_at = job.lease.as_ref().map(|lease| lease.expires_at);
        // A lifetime that is over ends a lease whatever the store was doing.
        let fence = if job.deadline.is_some_and(|deadline| deadline <= now) { now } else { fence };
        Stale::check(job.state == State::Running, expires_at, fence, stored.entry.token == Some(key.token))?;
        Ok(stored)
    }

    pub(super) fn extend(&mut self, key: LeaseKey, lease_time: Option<Duration>, now: Timestamp) -> Extended {
        match self.fence(key, now) {
            Err(stale) => Extended::Lost(stale),
            Ok(stored) => {
                let job = &mut stored.entry.job;
                job.extend(lease_time, now);
                let expires_at = job.lease.as_ref().map_or(now, |lease| lease.expires_at);
                Extended::Held { expires_in: expires_at.since(now), cancel: job.cancel.clone() }
            }
        }
    }

    pub(super) fn save(&mut self, save: &Save, now: Timestamp) -> Result<(), Stale> {
        let Stored { entry, logs, .. } = self.fence(save.key(), now)?;
        if let Some(checkpoint) = save.new_checkpoint() {
            entry.job.checkpoint = Some(checkpoint.clone());
        }
        if let Some(progress) = save.new_progress() {
            entry.job.progress = Some(progress.clone());
        }
        let Some(attempt) = entry.job.open_attempt().map(|open| open.id) else { return Ok(()) };
        logs.extend(save.new_log().iter().map(|text| LogLine::new(attempt, now, text)));
        let kept = logs.iter().filter(|line| line.attempt == attempt).count();
        let mut excess = kept.saturating_sub(LOG_LINES_MAX);
        logs.retain(|line| {
            let goes = excess > 0 && line.attempt == attempt;
            excess -= usize::from(goes);
            !goes
        });
        Ok(())
    }

    /// Makes SCHEDULED what has fallen due (S4).
    pub(super) fn let_time_pass(&mut self, now: Timestamp) {
        for stored in self.jobs.values_mut() {
            let job = &mut stored.entry.job;
            let waits = matches!(job.state, State::Delayed | State::Retrying);
            if waits && job.run_at.is_some_and(|run_at| run_at <= now) {
                job.fall_due().expect("it waits for time");
                self.wakes.push(windlass::store::Wake::Scheduled(job.spec.queue.clone()));
            }
        }
    }
}
