//! What must hold of a store's answers whatever the model says.
//!
//! These look only at what the store shows, from one step to the next.

use std::collections::{HashMap, HashSet};

use super::history::{ActDraft, Op};
use crate::job::{JobId, JobRecord, LeaseToken, QueueName, State};
use crate::store::{ClaimRequest, Claimed, Totals};
use crate::time::Timestamp;

/// What was seen of every job in the step before.
#[derive(Debug, Default)]
pub(super) struct Seen {
    jobs: HashMap<JobId, Sight>,
    tokens: HashSet<LeaseToken>,
}

#[derive(Clone, Copy, Debug)]
struct Sight {
    state: State,
    version: u64,
    generation: u32,
    expires_at: Option<Timestamp>,
}

impl Seen {
    /// Looks at all jobs after `op`, and compares them with the last look.
    pub(super) fn look(&mut self, jobs: &[JobRecord], op: &Op, now: Timestamp) -> Result<(), String> {
        let mut ids = HashSet::new();
        for job in jobs {
            let says = |what: &str| Err(format!("invariant: {what}: {job:?}"));
            if !ids.insert(job.id) {
                return says("a job is in two states at once");
            }
            if let Some(problem) = broken(job, now) {
                return says(problem);
            }
            let sight = Sight {
                state: job.state,
                version: job.lease_version,
                generation: job.generation,
                expires_at: job.lease.as_ref().map(|lease| lease.expires_at),
            };
            let before = self.jobs.insert(job.id, sight);
            if let Some(problem) = before.and_then(|before| broken_since(before, sight, op)) {
                return says(problem);
            }
        }
        if self.jobs.keys().any(|id| !ids.contains(id)) {
            let may_remove = matches!(
                op,
                Op::Upkeep { .. } | Op::Act { act: ActDraft::Delete, .. } | Op::Sweep { act: ActDraft::Delete, .. }
            );
            let unfinished = |(id, sight): (&JobId, &Sight)| !ids.contains(id) && !sight.state.is_terminal();
            // Upkeep may end a job and prune it in one step only if ended jobs are not kept at all.
            if !may_remove || self.jobs.iter().any(unfinished) {
                return Err("invariant: a job vanished".to_owned());
            }
            self.jobs.retain(|id, _| ids.contains(id));
        }
        Ok(())
    }

    /// Looks at what a claim handed out, before the store is asked anything else; `around` is every
    /// job as it was, and `shares` the queues whose keys have an order of their own.
    pub(super) fn look_at_claim(
        &mut self,
        claimed: &[Claimed],
        request: &ClaimRequest,
        (around, shares): (&[JobRecord], &[QueueName]),
        now: Timestamp,
    ) -> Result<(), String> {
        if claimed.len() > request.limit {
            return Err("invariant: more was claimed than asked for".to_owned());
        }
        for one in claimed {
            let says = |what: &str| Err(format!("invariant: {what}: {:?}", one.job));
            if !self.tokens.insert(one.lease.key().token) {
                return says("a lease token was used twice");
            }
            let Some(before) = around.iter().find(|job| job.id == one.job.id) else { return says("it never was") };
            if before.state != State::Scheduled {
                return says("a job was claimed that was not SCHEDULED");
            }
            let held = self.jobs.get(&one.job.id).and_then(|sight| sight.expires_at);
            if held.is_some_and(|expires_at| expires_at > now) {
                return says("a job was claimed under a valid lease");
            }
            if before.run_at.is_some() || before.deadline.is_some_and(|deadline| deadline <= now) {
                return says("a job was claimed outside its time");
            }
            if one.lease.version() <= before.lease_version {
                return says("a claim did not raise the lease version");
            }
        }
        for (queue, room) in &request.queues {
            let taken = claimed.iter().map(|one| &one.job).filter(|job| job.spec.queue == *queue);
            let orders: Vec<_> = taken.map(|job| (job.effective_priority(), job.position)).collect();
            if orders.len() > *room {
                return Err(format!("invariant: more than {room} jobs were claimed from {queue}"));
            }
            if !shares.contains(queue) && !orders.is_sorted() {
                return Err(format!("invariant: {queue} was not claimed in order: {orders:?}"));
            }
        }
        Ok(())
    }
}

/// What is wrong with a job by itself.
fn broken(job: &JobRecord, now: Timestamp) -> Option<&'static str> {
    let running = job.state == State::Running;
    let ended = job.state.is_terminal();
    let waits_for_time = matches!(job.state, State::Delayed | State::Retrying);
    let rules = [
        (job.lease.is_some() == running, "a lease without RUNNING, or the reverse"),
        (job.lease.as_ref().is_none_or(|lease| lease.version == job.lease_version), "an old lease is the current one"),
        (job.failures <= job.spec.options.retry.max_attempts, "more failures than attempts"),
        (u64::from(job.attempt) <= job.lease_version, "more attempts than leases"),
        (job.completed_at.is_some() == ended, "an end without a terminal state, or the reverse"),
        (
            job.reason.is_some() == (ended && job.state != State::Completed),
            "no reason for a bad end, or a needless one",
        ),
        (!waits_for_time || job.run_at.is_some_and(|run_at| run_at > now), "it waits for a time that has come"),
        (job.state != State::Scheduled || job.run_at.is_none(), "SCHEDULED with a time to wait for"),
        (job.cancel.is_none() || running, "asked to stop without running"),
    ];
    rules.into_iter().find(|(holds, _)| !holds).map(|(_, problem)| problem)
}

/// What is wrong with how a job changed in one step.
fn broken_since(before: Sight, after: Sight, op: &Op) -> Option<&'static str> {
    let operator = match op {
        Op::Act { act, .. } | Op::Sweep { act, .. } => Some(*act),
        _ => None,
    };
    let requeued = matches!(operator, Some(ActDraft::Requeue { .. })) && after.generation == before.generation + 1;
    let moved = matches!(operator, Some(ActDraft::DeadLetter))
        && (before.state, after.state) == (State::Failed, State::DeadLetter);
    if after.version < before.version {
        Some("the lease version went back")
    } else if after.version > before.version && !matches!(op, Op::Claim(_)) {
        Some("a lease was granted without a claim")
    } else if before.state.is_terminal() && after.state != before.state && !requeued && !moved {
        Some("a terminal state was left without a requeue")
    } else if requeued && !before.state.is_dead() {
        Some("a job was requeued that was not dead")
    } else if after.generation != before.generation && !requeued {
        Some("the generation changed without a requeue")
    } else if before.state == State::Running && after.state == State::Running && after.expires_at < before.expires_at {
        Some("a lease was shortened")
    } else {
        None
    }
}

/// D7: accepted = jobs in all states + pruned.
pub(super) fn balance(totals: &Totals) -> Result<(), String> {
    let here: u64 = totals.states.iter().sum();
    match totals.accepted == here + totals.pruned {
        true => Ok(()),
        false => Err(format!("invariant: the accounts do not balance: {totals:?}")),
    }
}
