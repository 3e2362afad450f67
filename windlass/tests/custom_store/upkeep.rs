//! Finding what is due: lifetimes, leases, schedules, retention; each at most `limit` in one step.

use windlass::job::JobRecord;
use windlass::store::rules::{self, KeptKey};
use windlass::store::{Retention, Upkeep, UpkeepReport, WORKER_LIVE};
use windlass::{JobId, Result, Timestamp};

use super::Tables;

impl Tables {
    pub(super) fn upkeep(&mut self, request: &Upkeep, now: Timestamp) -> Result<UpkeepReport> {
        let limit = request.limit.max(1);
        let outlived = |job: &JobRecord| {
            (!job.state.is_terminal()).then_some(job.deadline).flatten().filter(|deadline| *deadline <= now)
        };
        let mut lifetimes = 0;
        for id in self.earliest(limit, outlived) {
            lifetimes += usize::from(self.run(now, |set| rules::outlive(set, id))?);
        }
        let lapsed =
            |job: &JobRecord| job.lease.as_ref().map(|lease| lease.expires_at).filter(|expires_at| *expires_at <= now);
        let mut expired = 0;
        for id in self.earliest(limit, lapsed) {
            expired += usize::from(self.run(now, |set| rules::expire(set, id, &mut || 0.5))?.is_some());
        }
        let fired = self.fire_schedules(limit, now)?;
        let pruned = self.prune(&request.retention, limit, now);
        self.forget_gates(now);
        self.workers.retain(|_, worker| now.since(worker.seen_at) <= WORKER_LIVE);
        let mut report = UpkeepReport::default();
        (report.lifetimes, report.expired, report.fired, report.pruned) = (lifetimes, expired, fired, pruned);
        report.more = [lifetimes, expired, fired, pruned].into_iter().any(|count| count >= limit);
        Ok(report)
    }

    /// The latest end of a lease that ends by then.
    /// A lease that was granted after the `last` beat counts as if it had been granted then.
    pub(super) fn latest_end(&self, by: Timestamp, last: Timestamp) -> Option<Timestamp> {
        let jobs = self.jobs.values().map(|stored| &stored.entry.job);
        let leases = jobs.filter_map(|job| Some((job.lease.as_ref()?.expires_at, job.started_at.unwrap_or(last))));
        let lapsing = leases.filter(|(expires_at, _)| *expires_at <= by);
        lapsing.map(|(expires_at, granted)| expires_at.minus(granted.since(last))).max()
    }

    /// The jobs for which there is such a moment, the earliest first.
    fn earliest(&self, limit: usize, moment: impl Fn(&JobRecord) -> Option<Timestamp>) -> Vec<JobId> {
        let jobs = self.jobs.values().map(|stored| &stored.entry.job);
        let mut due: Vec<_> = jobs.filter_map(|job| Some((moment(job)?, job.id))).collect();
        due.sort_by_key(|(at, _)| *at);
        due.into_iter().take(limit).map(|(_, id)| id).collect()
    }

    fn fire_schedules(&mut self, limit: usize, now: Timestamp) -> Result<usize> {
        let mut fired = 0;
        for schedule in self.schedules.values().cloned().collect::<Vec<_>>() {
            if fired < limit {
                fired += self.run(now, |set| rules::fire(set, &schedule))?;
            }
        }
        Ok(fired)
    }

    fn prune(&mut self, retention: &Retention, limit: usize, now: Timestamp) -> usize {
        let is_over = |job: &JobRecord| retention.prune_at(job).filter(|at| *at <= now);
        let gone: Vec<JobId> =
            self.earliest(usize::MAX, is_over).into_iter().filter(|id| !self.is_needed(*id)).take(limit).collect();
        gone.iter().for_each(|id| self.remove(*id));
        let is_over = |kept: &KeptKey| {
            let job = self.by_id(kept.job).map(|stored| &stored.entry.job);
            kept.new.expires_at.is_some_and(|at| at <= now)
                || kept.new.until.is_over_for_good(job.map(|job| (job.state, job.was_claimed())))
        };
        let expired = self.keys.iter().filter(|(_, kept)| is_over(kept));
        let expired: Vec<_> = expired.map(|(name, _)| name.clone()).take(limit - gone.len()).collect();
        expired.iter().for_each(|name| drop(self.keys.remove(name)));
        gone.len() + expired.len()
    }

    /// Whether an unfinished job depends on this one, which must therefore be kept (O4).
    fn is_needed(&self, id: JobId) -> bool {
        let mut dependents = self.edges.dependents(id);
        dependents.any(|(edge, _)| self.by_id(edge.child).is_some_and(|stored| !stored.entry.job.state.is_terminal()))
    }
}
