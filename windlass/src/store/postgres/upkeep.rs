//! Upkeep: lifetimes, expired leases, schedules, retention; each at most `limit` in one step.
//!
//! Each kind is written before the next is looked for, so that statements see what has happened.
//! Every worker asks for it every second, so it first looks without a lock, and takes its turn only if there is work.
//! Where looking is slow, because dead rows cannot be vacuumed away, it begins where the last step ended
//! ([`UpkeepProgress`](super::upkeep_progress::UpkeepProgress)).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::Inner;
use super::driver_row::Row;
use super::events::EventRow;
use super::fault::Fault;
use super::job_rows;
use super::lanes::Lane;
use super::link::Parameter;
use super::transaction::Transaction;
use super::turns::Caller;
use super::upkeep_progress::DueFrom;
use super::working::{Working, until};
use crate::job::{JobId, State};
use crate::store::answer::UpkeepReport;
use crate::store::request::{Retention, Upkeep, WORKER_LIVE};
use crate::store::rules::{self, Missing};

/// How many of the newest numbers of events are kept apart; what is older is folded into sums.
const EVENTS_KEPT: i64 = 10_000;
/// How many rows of events are folded in one step.
const FOLD_MAX: i64 = 20_000;

impl Inner {
    pub(super) async fn upkeep(self: &Arc<Self>, request: &Upkeep) -> Result<UpkeepReport, Fault> {
        self.beat().await?;
        if self.store_clock.is_in_doubt() {
            return Ok(UpkeepReport::default());
        }
        let from = self.progress.begin(self.moment());
        // Standard lifetimes would else end up to ten seconds late, and a test's clock tells them apart.
        let by_lane = self.clock.is_some() || self.progress.looks_by_lane();
        let begun = Instant::now();
        let (is_due, mut until) = self.has_upkeep(request, &from, by_lane).await?;
        let mut cost = begun.elapsed();
        let report = if is_due {
            let mut tx = self.transaction(Caller::Worker).await?;
            let report = tx.upkeep(request, &from, (&mut until, &mut cost), by_lane).await;
            tx.finish(report).await?
        } else {
            UpkeepReport::default()
        };
        self.progress.end(self.moment(), &from, cost, &until);
        if report.lifetimes > 0 {
            self.progress.look_by_lane_again();
        }
        self.keep_gates().await?;
        Ok(report)
    }

    /// Whether there is anything to do, and up to where nothing is left if not.
    async fn has_upkeep(&self, request: &Upkeep, from: &DueFrom, by_lane: bool) -> Result<(bool, DueFrom), Fault> {
        let link = self.link(Caller::Worker).await?;
        let live = job_rows::micros(WORKER_LIVE);
        let (states, kept) = horizons(&request.retention);
        let (ends, events) = (from.ends.to_vec(), self.progress.events(self.moment()));
        let parameters: [Parameter<'_>; 10] = [
            &self.given_time(),
            &live,
            &states,
            &kept,
            &EVENTS_KEPT,
            &ends,
            &events,
            &by_lane,
            &from.leases,
            &from.own,
        ];
        let rows = link.query(include_str!("sql/has_upkeep.sql"), &parameters).await?;
        let row = rows.first().ok_or_else(|| job_rows::corrupt("no answer"))?;
        let now: i64 = row.get("now");
        let mut until = DueFrom { leases: now, own: now, ..DueFrom::default() };
        for (state, kept) in states.into_iter().zip(kept) {
            until.set_end(state, now - kept);
        }
        Ok((row.get("due"), until))
    }
}

/// The states that are pruned, and how long each is kept.
fn horizons(retention: &Retention) -> (Vec<i16>, Vec<i64>) {
    let kept = State::ALL.into_iter().filter_map(|state| Some((state, retention.of(state)?)));
    kept.map(|(state, kept)| (i16::from(state.number()), job_rows::micros(kept))).unzip()
}

fn many(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A kind of thing that is due by itself.
#[derive(Clone, Copy)]
enum Due {
    /// S15: in any state, held or not.
    Lifetimes { by_lane: bool },
    /// S10, S11 and S14: leases that were not settled in time.
    Leases,
}

impl Transaction<'_> {
    /// Does what is due `from` these moments on, lowers `until` to the moments up to which nothing is left, and adds what it cost
    /// to look for what is removed.
    async fn upkeep(
        &mut self,
        request: &Upkeep,
        from: &DueFrom,
        (until, cost): (&mut DueFrom, &mut Duration),
        by_lane: bool,
    ) -> Result<UpkeepReport, Fault> {
        let limit = request.limit.max(1);
        // What is held back by the fence is left for later.
        until.leases = until.leases.min(self.read_fence().await?.as_micros());
        let lifetimes = self.end_due(Due::Lifetimes { by_lane }, limit, from.leases).await?;
        let expired = self.end_due(Due::Leases, limit, from.leases).await?;
        if expired >= limit || lifetimes >= limit {
            until.leases = 0;
        }
        let fired = self.fire_schedules(limit).await?;
        let pruned = self.prune(&request.retention, limit, from, (until, cost)).await?;
        let silent_since = self.now.minus(WORKER_LIVE).as_micros();
        self.link.execute(include_str!("sql/forget_workers.sql"), &[&silent_since]).await?;
        self.fold_events().await?;
        let more = [lifetimes, expired, fired, pruned].into_iter().any(|count| count >= limit);
        Ok(UpkeepReport { lifetimes, expired, fired, pruned, more })
    }

    /// Folds old events, beginning where the last step ended if looking from the first is slow.
    async fn fold_events(&mut self) -> Result<(), Fault> {
        let from = self.store.progress.events(self.store.moment());
        let begun = Instant::now();
        let rows = self.link.query(include_str!("sql/fold_events.sql"), &[&EVENTS_KEPT, &FOLD_MAX, &from]).await?;
        let until = rows.first().map_or(0, |row| row.get("folded_to"));
        self.store.progress.events_folded(self.store.moment(), from, begun.elapsed(), until);
        Ok(())
    }

    /// Ends lifetimes or takes back leases, until none is due or the limit is reached; gives how many.
    async fn end_due(&mut self, due: Due, limit: usize, leases_from: i64) -> Result<usize, Fault> {
        let mut count = 0;
        loop {
            let mut working = self.working();
            let ids = self.load_due(&mut working, due, limit - count, leases_from).await?;
            let before = count;
            for id in ids {
                // A job may have ended with another, or moved before it was held; then the rules change nothing.
                count += usize::from(match due {
                    Due::Lifetimes { .. } => self.run(&mut working, |set| rules::outlive(set, id)).await?,
                    Due::Leases => {
                        let mut random = fastrand::f64;
                        self.run(&mut working, |set| rules::expire(set, id, &mut random)).await?.is_some()
                    }
                });
            }
            self.flush(working).await?;
            if count == before || count == limit {
                return Ok(count);
            }
        }
    }

    /// Loads and holds jobs that are due, with their dependents.
    async fn load_due(
        &mut self,
        working: &mut Working,
        due: Due,
        most: usize,
        leases_from: i64,
    ) -> Result<Vec<JobId>, Fault> {
        let (now, fence, most) = (self.now.as_micros(), self.fence.as_micros(), many(most));
        let rows = match due {
            Due::Lifetimes { by_lane } => {
                let parameters: [Parameter<'_>; 4] = [&now, &most, &leases_from, &by_lane];
                self.link.query(include_str!("sql/list_due_lifetimes.sql"), &parameters).await?
            }
            Due::Leases => {
                let parameters: [Parameter<'_>; 3] = [&fence, &most, &leases_from];
                self.link.query(include_str!("sql/list_expired_leases.sql"), &parameters).await?
            }
        };
        let seqs: Vec<i64> = rows.iter().map(|row| row.get("seq")).collect();
        let ids = self.load_sequences(working, &seqs, |_| {}).await?;
        if !ids.is_empty() {
            self.load(working, Missing::Dependents(ids.clone())).await?;
        }
        Ok(ids)
    }

    /// Removes ended jobs and idempotency keys that were kept long enough; gives how many.
    async fn prune(
        &mut self,
        retention: &Retention,
        limit: usize,
        from: &DueFrom,
        (until, cost): (&mut DueFrom, &mut Duration),
    ) -> Result<usize, Fault> {
        let (states, kept) = horizons(retention);
        let now = self.now.as_micros();
        let ended_by: Vec<i64> = kept.into_iter().map(|kept| now - kept).collect();
        let parameters: [Parameter<'_>; 4] = [&states, &ended_by, &many(limit), &from.ends.to_vec()];
        let begun = Instant::now();
        let rows = self.link.query(include_str!("sql/list_prunable.sql"), &parameters).await?;
        *cost += begun.elapsed();
        if rows.len() >= limit {
            until.set_removed(rows.iter().map(|row| (row.get("state"), row.get("completed_at"))));
        }
        self.prune_rows(&rows).await?;
        let left = limit - rows.len().min(limit);
        let own = self.link.query(include_str!("sql/list_prunable_own.sql"), &[&now, &many(left), &from.own]).await?;
        if own.len() >= left {
            until.own = own.last().map_or(from.own, |row| row.get("prune_at"));
        }
        self.prune_rows(&own).await?;
        let jobs = rows.len() + own.len();
        Ok(jobs + self.prune_keys(limit - jobs.min(limit)).await?)
    }

    /// Removes ended jobs: each its sequence, its lane and its state.
    async fn prune_rows(&mut self, rows: &[Row]) -> Result<(), Fault> {
        let seqs: Vec<i64> = rows.iter().map(|row| row.get("seq")).collect();
        self.delete_jobs(&seqs).await?;
        let mut removed: BTreeMap<(Lane, i16), i32> = BTreeMap::new();
        for row in rows {
            *removed.entry((row.get("lane"), row.get("state"))).or_default() += 1;
        }
        let events = removed.into_iter().flat_map(|((lane, state), count)| EventRow::removed(lane, state, count));
        self.add_events(&events.collect::<Vec<_>>()).await
    }

    /// Looks at the idempotency keys that are due, and forgets those that are over; gives how many.
    async fn prune_keys(&mut self, limit: usize) -> Result<usize, Fault> {
        let now = self.now.as_micros();
        let rows = self.link.query(include_str!("sql/list_due_keys.sql"), &[&now, &many(limit)]).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let ids: Vec<Uuid> = rows.iter().map(|row| row.get("job")).collect();
        let states = self.store.states(&self.link, &ids).await?;
        let (mut over, mut later) = (DueKeys::default(), DueKeys::default());
        for row in &rows {
            let (until, expires_at) = (until(row.get("until"))?, row.get::<_, Option<i64>>("expires_at"));
            let is_expired = expires_at.is_some_and(|expires_at| expires_at <= now);
            let job = states.get(&row.get::<_, Uuid>("job")).copied();
            let keys = if is_expired || until.is_over_for_good(job) { &mut over } else { &mut later };
            keys.add(row);
        }
        let DueKeys { scopes, keys, jobs } = &over;
        if !jobs.is_empty() {
            self.link.execute(include_str!("sql/delete_key.sql"), &[scopes, keys, jobs]).await?;
        }
        let DueKeys { scopes, keys, jobs } = &later;
        if !jobs.is_empty() {
            let next = self.now.plus(rules::LOOK_EVERY).as_micros();
            self.link.execute(include_str!("sql/postpone_key.sql"), &[scopes, keys, jobs, &next]).await?;
        }
        Ok(over.jobs.len())
    }
}

/// Keys that upkeep looked at, a column for each field.
#[derive(Default)]
struct DueKeys {
    scopes: Vec<String>,
    keys: Vec<String>,
    jobs: Vec<Uuid>,
}

impl DueKeys {
    fn add(&mut self, row: &Row) {
        self.scopes.push(row.get("scope"));
        self.keys.push(row.get("key"));
        self.jobs.push(row.get("job"));
    }
}
