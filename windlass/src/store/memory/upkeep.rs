//! Upkeep: lifetimes, expired leases, schedules, retention; each at most `limit` in one step.

use std::time::Duration;

use super::tables::{ScopedKey, Tables};
use crate::error::Result;
use crate::job::{JobId, State};
use crate::store::answer::UpkeepReport;
use crate::store::request::{Retention, Upkeep, WORKER_LIVE};
use crate::store::rules;
use crate::time::Timestamp;
use crate::workflow::{NewKey, Sequence};

impl Tables {
    pub(super) fn upkeep(&mut self, request: &Upkeep, now: Timestamp) -> Result<UpkeepReport> {
        let limit = request.limit.max(1);
        let lifetimes = self.end_lifetimes(limit, now)?;
        let expired = self.take_back_leases(limit, now)?;
        let fired = self.fire_schedules(limit, now)?;
        let pruned = self.prune(&request.retention, limit, now);
        self.queues.values_mut().filter_map(|queue| queue.control.as_mut()).for_each(|control| control.forget(now));
        self.workers.retain(|_, worker| now.since(worker.seen_at) <= WORKER_LIVE);
        let more = [lifetimes, expired, fired, pruned].into_iter().any(|count| count >= limit);
        Ok(UpkeepReport { lifetimes, expired, fired, pruned, more })
    }

    /// The latest end of a lease that ends by then, as if those that were granted after the last beat had been granted then.
    pub(super) fn latest_end(&self, by: Timestamp, last: Timestamp) -> Option<Timestamp> {
        let ends = self.leases.range(..=(by, Sequence::MAX)).map(|(at, sequence)| {
            let granted = self.stored(*sequence).entry.job.started_at;
            at.minus(granted.map_or(Duration::ZERO, |granted| granted.since(last)))
        });
        ends.max()
    }

    fn end_lifetimes(&mut self, limit: usize, now: Timestamp) -> Result<usize> {
        for count in 0..limit {
            let Some(id) = self.first_until(&self.deadlines, now) else { return Ok(count) };
            self.run(now, |set| rules::outlive(set, id))?;
        }
        Ok(limit)
    }

    fn take_back_leases(&mut self, limit: usize, now: Timestamp) -> Result<usize> {
        for count in 0..limit {
            let Some(id) = self.first_until(&self.leases, self.fence) else { return Ok(count) };
            let mut random = self.random.clone();
            self.run(now, |set| rules::expire(set, id, &mut || random.f64()))?;
            self.random = random;
        }
        Ok(limit)
    }

    fn prune(&mut self, retention: &Retention, limit: usize, now: Timestamp) -> usize {
        let mut gone: Vec<Sequence> = Vec::new();
        for state in State::ALL {
            let Some(horizon) = retention.horizon(state, now) else { continue };
            let ended = self.ended.range((state, Timestamp::EPOCH, 0)..=(state, horizon, Sequence::MAX));
            let free = ended.map(|(_, _, sequence)| *sequence).filter(|sequence| !self.is_needed(*sequence));
            gone.extend(free.take(limit - gone.len()));
        }
        let own = self.prunes.range(..=(now, Sequence::MAX)).map(|(_, sequence)| *sequence);
        gone.extend(own.filter(|sequence| !self.is_needed(*sequence)).take(limit - gone.len()));
        let looks = limit - gone.len();
        let mut pruned = gone.len();
        for sequence in gone {
            self.remove(sequence);
        }
        for _ in 0..looks {
            let Some((_, name)) = self.key_looks.first().filter(|(at, _)| *at <= now).cloned() else { break };
            pruned += usize::from(self.prune_key(&name, now));
        }
        pruned
    }

    /// Forgets a key that is over, or looks at it again later; says whether it was.
    fn prune_key(&mut self, name: &ScopedKey, now: Timestamp) -> bool {
        let Some(kept) = self.forget_key(name) else { return false };
        let job = self.by_id(kept.job).map(|stored| &stored.entry.job);
        let NewKey { until, expires_at, .. } = kept.new;
        let is_expired = expires_at.is_some_and(|expires_at| expires_at <= now);
        let is_over = is_expired || until.is_over_for_good(job.map(|job| (job.state, job.was_claimed())));
        if !is_over {
            self.keep_key(kept, rules::look_at(until, expires_at, now));
        }
        is_over
    }

    /// The job with the earliest of these moments, if that is over.
    fn first_until(&self, index: &std::collections::BTreeSet<(Timestamp, Sequence)>, now: Timestamp) -> Option<JobId> {
        let (_, sequence) = index.first().filter(|(at, _)| *at <= now)?;
        Some(self.stored(*sequence).entry.job.id)
    }

    /// Whether an unfinished job depends on this one, which must therefore be kept (O4).
    fn is_needed(&self, sequence: Sequence) -> bool {
        let mut dependents = self.edges.dependents(self.stored(sequence).entry.job.id);
        dependents.any(|(edge, _)| self.by_id(edge.child).is_some_and(|stored| !stored.entry.job.state.is_terminal()))
    }
}
