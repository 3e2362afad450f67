//! Upkeep: lifetimes, expired leases, schedules, retention; each at most `limit` in one step.

use super::tables::{Sequence, Tables};
use crate::job::{Outcome, State, Verdict};
use crate::store::answer::UpkeepReport;
use crate::store::request::{Retention, Upkeep, WORKER_LIVE};
use crate::time::Timestamp;

impl Tables {
    pub(super) fn upkeep(&mut self, request: &Upkeep, now: Timestamp) -> UpkeepReport {
        let limit = request.limit.max(1);
        let lifetimes = self.end_lifetimes(limit, now);
        let expired = self.take_back_leases(limit, now);
        let fired = self.fire_schedules(limit, now);
        let pruned = self.prune(&request.retention, limit, now);
        self.workers.retain(|_, worker| now.since(worker.seen_at) <= WORKER_LIVE);
        let more = [lifetimes, expired, fired, pruned].into_iter().any(|count| count >= limit);
        UpkeepReport { lifetimes, expired, fired, pruned, more }
    }

    /// S15: whatever the state, and whoever holds the job.
    fn end_lifetimes(&mut self, limit: usize, now: Timestamp) -> usize {
        for count in 0..limit {
            let Some(sequence) = first_until(&self.deadlines, now) else { return count };
            self.end(sequence, &Verdict::of_lifetime(), Outcome::Revoked, now);
        }
        limit
    }

    /// S10, S11 and S14: nobody settled these in time.
    fn take_back_leases(&mut self, limit: usize, now: Timestamp) -> usize {
        for count in 0..limit {
            let Some(sequence) = first_until(&self.leases, now) else { return count };
            let mut random = self.random.clone();
            let verdict = Verdict::of_expiry(&self.entry(sequence).job, &mut || random.f64());
            self.random = random;
            self.end(sequence, &verdict, Outcome::Lost, now);
        }
        limit
    }

    fn prune(&mut self, retention: &Retention, limit: usize, now: Timestamp) -> usize {
        let mut gone: Vec<Sequence> = Vec::new();
        for state in State::ALL {
            let Some(horizon) = retention.horizon(state, now) else { continue };
            let ended = self.ended.range((state, Timestamp::EPOCH, 0)..=(state, horizon, Sequence::MAX));
            let free = ended.map(|(_, _, sequence)| *sequence).filter(|sequence| self.needed_by(*sequence).is_none());
            gone.extend(free.take(limit - gone.len()));
        }
        let mut pruned = gone.len();
        for sequence in gone {
            self.remove(sequence);
        }
        while pruned < limit
            && let Some((at, name)) = self.key_ends.first().filter(|(at, _)| *at <= now).cloned()
        {
            self.keys.remove(&name);
            self.key_ends.remove(&(at, name));
            pruned += 1;
        }
        pruned
    }
}

fn first_until(index: &std::collections::BTreeSet<(Timestamp, Sequence)>, now: Timestamp) -> Option<Sequence> {
    index.first().filter(|(at, _)| *at <= now).map(|(_, sequence)| *sequence)
}
