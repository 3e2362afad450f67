//! Upkeep: lifetimes, expired leases, schedules, retention; each at most `limit` in one step.
//!
//! Each kind is written before the next is looked for, so that statements see what has happened.
//! Every worker asks for it every second, so it first looks without a lock, and takes its turn only if there is work.
//! Where looking is slow, because dead rows cannot be vacuumed away, it begins where it came to before ([`floors`](super::floors)).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Inner;
use super::fault::Fault;
use super::floors::Floor;
use super::lanes::Lane;
use super::row::Row;
use super::rows;
use super::unit::{EVENT_PRUNED, Unit};
use crate::job::{JobRecord, Outcome, State, Verdict};
use crate::store::answer::UpkeepReport;
use crate::store::request::{Retention, Upkeep, WORKER_LIVE};

/// Where upkeep's own floor is kept, among those of lanes, whose numbers begin at 1: the ends of jobs in each terminal
/// state, then the expiries of leases.
const UPKEEP: Lane = 0;
const LEASES: usize = 4;
/// Where the floor of folding events is kept, in the first place.
const EVENTS: Lane = -1;
/// How often upkeep looks lane by lane for jobs that have lived for the standard lifetime of seven days: there may be
/// many lanes.
const BY_LANE_EVERY: Duration = Duration::from_secs(10);
/// How long upkeep may go without looking from the very front, where that is slow.
const SWEEP_MAX: Duration = Duration::from_secs(30);

/// How many of the newest numbers of events are kept apart; what is older is folded into sums.
const EVENTS_KEPT: i64 = 10_000;
/// How many rows of events are folded in one step.
const FOLD_MAX: i64 = 20_000;

impl Inner {
    pub(super) async fn upkeep(self: &Arc<Self>, request: &Upkeep) -> Result<UpkeepReport, Fault> {
        let floor = self.floors.begin(UPKEEP, SWEEP_MAX);
        let by_lane = self.looks_by_lane();
        let begun = Instant::now();
        let (due, mut came) = self.has_upkeep(request, &floor, by_lane).await?;
        let cost = begun.elapsed();
        let report = match due {
            false => UpkeepReport::default(),
            true => super::in_unit!(self, unit, unit.upkeep(request, &floor, &mut came, by_lane).await)?,
        };
        self.floors.end(UPKEEP, &floor, cost, came, false);
        if report.lifetimes > 0 {
            // Where some have ended there may be more.
            self.looked_by_lane.lock().expect("nobody panics while holding it").take();
        }
        Ok(report)
    }

    /// Whether to look lane by lane this time. A test's clock goes by days, so there it is always time.
    fn looks_by_lane(&self) -> bool {
        let mut last = self.looked_by_lane.lock().expect("nobody panics while holding it");
        let looks = self.clock.is_some() || last.is_none_or(|at| at.elapsed() >= BY_LANE_EVERY);
        if looks {
            *last = Some(Instant::now());
        }
        looks
    }

    /// Whether there is anything to do, and up to where there is nothing if not.
    async fn has_upkeep(&self, request: &Upkeep, floor: &Floor, by_lane: bool) -> Result<(bool, Floor), Fault> {
        let link = self.link().await?;
        let floor = floor.to_vec();
        let live = rows::micros(WORKER_LIVE);
        let (states, kept) = horizons(&request.retention);
        let events = self.floors.begin(EVENTS, SWEEP_MAX)[0];
        let parameters: [super::link::Parameter<'_>; 8] =
            [&self.given_time(), &live, &states, &kept, &EVENTS_KEPT, &floor, &events, &by_lane];
        let rows = link.query(include_str!("sql/upkeep_due.sql"), &parameters).await?;
        let row = rows.first().ok_or_else(|| rows::corrupt("no answer"))?;
        let now: i64 = row.get(1);
        let mut came = Floor::default();
        for (state, kept) in states.into_iter().zip(kept) {
            came[place(state)] = now - kept;
        }
        came[LEASES] = now;
        Ok((row.get(0), came))
    }
}

/// The states that are pruned, and how long each is kept.
fn horizons(retention: &Retention) -> (Vec<i16>, Vec<i64>) {
    let kept = State::ALL.into_iter().filter_map(|state| Some((state, retention.of(state)?)));
    kept.map(|(state, kept)| (i16::from(state.number()), rows::micros(kept))).unzip()
}

fn many(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The place of a terminal state in upkeep's floor.
fn place(state: i16) -> usize {
    usize::try_from(state - i16::from(State::Completed.number())).unwrap_or_default().min(LEASES - 1)
}

/// How far retention came that could not remove everything: each state to the last end that it took, and what it did not
/// come to nowhere. Takes states and ends, in order.
fn came_to(taken: impl Iterator<Item = (i16, i64)>, came: &mut Floor) {
    came[..LEASES].fill(0);
    for (state, ended) in taken {
        came[place(state)] = ended;
    }
}

impl Unit<'_> {
    /// Does it, beginning at a floor, and says how far it came.
    async fn upkeep(
        &mut self,
        request: &Upkeep,
        floor: &Floor,
        came: &mut Floor,
        by_lane: bool,
    ) -> Result<UpkeepReport, Fault> {
        let limit = request.limit.max(1);
        let lifetimes = self.end_lifetimes(limit, floor[LEASES], by_lane).await?;
        let expired = self.take_back_leases(limit, floor[LEASES]).await?;
        if expired >= limit || lifetimes >= limit {
            came[LEASES] = 0;
        }
        let fired = self.fire_schedules(limit).await?;
        self.write_down().await?;
        let pruned = self.prune(&request.retention, limit, floor, came).await?;
        let long_ago = self.now.minus(WORKER_LIVE).as_micros();
        self.link.execute(include_str!("sql/worker_forget.sql"), &[&long_ago]).await?;
        self.fold_events().await?;
        let more = [lifetimes, expired, fired, pruned].into_iter().any(|count| count >= limit);
        Ok(UpkeepReport { lifetimes, expired, fired, pruned, more })
    }

    /// Folds old events, beginning where it came to if it is slow to look from the first.
    async fn fold_events(&mut self) -> Result<(), Fault> {
        let floor = self.store.floors.begin(EVENTS, SWEEP_MAX);
        let begun = Instant::now();
        let rows = self.link.query(include_str!("sql/event_fold.sql"), &[&EVENTS_KEPT, &FOLD_MAX, &floor[0]]).await?;
        let mut came = Floor::default();
        came[0] = rows.first().map_or(0, |row| row.get(0));
        self.store.floors.end(EVENTS, &floor, begun.elapsed(), came, false);
        Ok(())
    }

    /// S15: whatever the state, and whoever holds the job.
    async fn end_lifetimes(&mut self, limit: usize, floor: i64, by_lane: bool) -> Result<usize, Fault> {
        let mut count = 0;
        loop {
            let (now, most) = (self.now.as_micros(), many(limit - count));
            let parameters: [super::link::Parameter<'_>; 4] = [&now, &most, &floor, &by_lane];
            let rows = self.link.query(include_str!("sql/lifetime_due.sql"), &parameters).await?;
            let seqs = self.load_due(&rows).await?;
            let before = count;
            for seq in seqs {
                let now = self.now;
                // One that ended with another, or that got away before it was held.
                let due =
                    |job: &JobRecord| !job.state.is_terminal() && job.deadline.is_some_and(|deadline| deadline <= now);
                if self.get(seq).is_some_and(|entry| due(&entry.job)) {
                    self.end(seq, &Verdict::of_lifetime(), Outcome::Revoked).await?;
                    count += 1;
                }
            }
            self.write_down().await?;
            if count == before || count == limit {
                return Ok(count);
            }
        }
    }

    /// S10, S11 and S14: nobody settled these in time.
    async fn take_back_leases(&mut self, limit: usize, floor: i64) -> Result<usize, Fault> {
        let mut count = 0;
        loop {
            let (now, most) = (self.now.as_micros(), many(limit - count));
            let rows = self.link.query(include_str!("sql/lease_due.sql"), &[&now, &most, &floor]).await?;
            let seqs = self.load_due(&rows).await?;
            let before = count;
            for seq in seqs {
                let now = self.now;
                let Some(entry) = self.get(seq) else { continue };
                if entry.job.lease.as_ref().is_none_or(|lease| lease.expires_at > now) {
                    continue;
                }
                let verdict = Verdict::of_expiry(&entry.job, &mut fastrand::f64);
                self.end(seq, &verdict, Outcome::Lost).await?;
                count += 1;
            }
            self.write_down().await?;
            if count == before || count == limit {
                return Ok(count);
            }
        }
    }

    /// Loads the jobs that a statement found.
    async fn load_due(&mut self, rows: &[Row]) -> Result<Vec<i64>, Fault> {
        let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        self.load_seqs(seqs.iter().copied()).await?;
        Ok(seqs)
    }

    async fn prune(
        &mut self,
        retention: &Retention,
        limit: usize,
        floor: &Floor,
        came: &mut Floor,
    ) -> Result<usize, Fault> {
        let (states, kept) = horizons(retention);
        let now = self.now.as_micros();
        let ends: Vec<i64> = kept.into_iter().map(|kept| now - kept).collect();
        let most = many(limit);
        let rows =
            self.link.query(include_str!("sql/prune_due.sql"), &[&states, &ends, &most, &floor.to_vec()]).await?;
        if rows.len() >= limit {
            came_to(rows.iter().map(|row| (row.get(2), row.get(3))), came);
        }
        for row in &rows {
            let (seq, lane, state): (i64, i32, i16) = (row.get(0), row.get(1), row.get(2));
            self.removed.push(seq);
            self.events.push((lane, EVENT_PRUNED, seq));
            self.events.push((lane, -state, seq));
        }
        let room = many(limit - rows.len().min(limit));
        let keys = self.link.execute(include_str!("sql/key_prune.sql"), &[&now, &room]).await?;
        Ok(rows.len() + usize::try_from(keys).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_left_something_raises_no_floor_over_it() {
        let (completed, failed) = (i16::from(State::Completed.number()), i16::from(State::Failed.number()));
        let mut came = [90, 90, 90, 90, 80];
        came_to([(completed, 3), (completed, 5), (failed, 4)].into_iter(), &mut came);
        assert_eq!(came, [5, 4, 0, 0, 80], "two states were come to, two were not, and leases are another matter");
    }
}
