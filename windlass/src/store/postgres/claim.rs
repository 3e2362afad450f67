//! Claims: one statement, whether one lane is wanted or many.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::claim_cursor::{Floor, present};
use super::control_claim::SORTED;
use super::driver_row::Row;
use super::fault::Fault;
use super::job_rows::JobColumns;
use super::lanes::Lane;
use super::link::{Link, Parameter};
use super::turns::Caller;
use super::{Inner, job_rows, tokens};
use crate::job::{Lease, QueueName, WorkerId};
use crate::store::answer::{Claimed, Claims};
use crate::store::request::{CALL_MAX, ClaimRequest};
use crate::store::rules;

/// How many more jobs than are wanted a claim of several lanes looks at: other claimers may hold the first.
const SLACK: i32 = 200;
/// How long claims from a lane may go without looking from its very front, where that takes half a second and more.
pub(super) const FULL_SCAN_EVERY_MAX: Duration = Duration::from_secs(10);

impl Inner {
    /// Claims jobs. Damaged ones are set aside, and where only such were found, the next ones are looked at.
    pub(super) async fn claim(self: &Arc<Self>, request: &ClaimRequest) -> Result<Claims, Fault> {
        let mut claimed = Claims::default();
        for _ in 0..rules::DAMAGED_CLAIMS_MAX {
            let Claims { jobs, again_in } = self.claim_any(request).await?;
            let (damaged, jobs) = rules::split_damaged(jobs);
            claimed = Claims { jobs, again_in };
            if damaged.is_empty() {
                break;
            }
            // The others are the caller's already; what is not set aside now comes back when its lease ends.
            if let Err(error) = self.settle(&damaged).await {
                tracing::warn!(%error, "damaged jobs could not be set aside");
                break;
            }
            if !claimed.is_empty() {
                break;
            }
        }
        Ok(claimed)
    }

    /// Claims from the queues in the order of the call: from plain ones that follow each other with one statement, from each
    /// controlled one through its gates.
    async fn claim_any(&self, request: &ClaimRequest) -> Result<Claims, Fault> {
        let link = self.link(Caller::Worker).await?;
        let mut runs = self.runs(request);
        if runs.iter().all(Run::is_unknown) || self.lanes.is_old(request.queues.iter().map(|(queue, _)| queue)) {
            let queues: Vec<&str> = request.queues.iter().map(|(queue, _)| queue.as_str()).collect();
            self.lanes.learn_queues(&link, &queues).await?;
            runs = self.runs(request);
        }
        let mut link = Some(link);
        let mut claims = Claims::default();
        for run in runs {
            let most = request.limit.saturating_sub(claims.jobs.len());
            let found = match run {
                Run::Plain(wanted) => self.claim_plain(link.take(), request, most, wanted).await.map(Claims::from),
                Run::Gated(queue, room) => {
                    // A claim through gates has a connection of its own, and must not wait for one while it has another.
                    drop(link.take());
                    self.claim_gated(request, queue, room.min(most).min(CALL_MAX)).await
                }
            };
            match found {
                // What was claimed before is the caller's already.
                Err(_) if !claims.jobs.is_empty() => return Ok(claims),
                Err(fault) => return Err(fault),
                Ok(found) => {
                    claims.jobs.extend(found.jobs);
                    claims.again_in = claims.again_in.into_iter().chain(found.again_in).min();
                }
            }
        }
        Ok(claims)
    }

    async fn claim_gated(&self, request: &ClaimRequest, queue: &QueueName, most: usize) -> Result<Claims, Fault> {
        if most == 0 {
            return Ok(Claims::default());
        }
        match self.claim_through_gates(queue, most, SORTED, request).await? {
            Some(through) => Ok(Claims { jobs: through.jobs, again_in: through.again_in }),
            // No longer controlled: the next claim finds it plain.
            None => {
                self.lanes.look_again(queue);
                Ok(Claims::default())
            }
        }
    }

    async fn claim_plain(
        &self,
        link: Option<Link<'_>>,
        request: &ClaimRequest,
        most: usize,
        mut wanted: Wanted<'_>,
    ) -> Result<Vec<Claimed>, Fault> {
        if wanted.lanes.is_empty() || most == 0 || wanted.rooms.iter().all(|room| *room == 0) {
            return Ok(Vec::new());
        }
        let link = match link {
            Some(link) => link,
            None => self.link(Caller::Worker).await?,
        };
        let common = tokens::draw();
        let on_its_way = self.unheard.begin(common);
        let taken = self.take(&link, request, most, &mut wanted, common).await;
        if taken.as_ref().err().is_none_or(Fault::is_certain) {
            on_its_way.arrived();
        }
        let rows = taken?;
        self.granted(&rows, &wanted, &request.worker, common)
    }

    /// Takes jobs from where each lane's floor is, and then from the very front of those that gave too little.
    async fn take(
        &self,
        link: &Link<'_>,
        request: &ClaimRequest,
        most: usize,
        wanted: &mut Wanted<'_>,
        common: Uuid,
    ) -> Result<Vec<Row>, Fault> {
        let numbers: HashMap<Lane, usize> = wanted.lanes.iter().copied().zip(0..).collect();
        let begin = |lane: &Lane| self.cursors.begin(*lane, present(), FULL_SCAN_EVERY_MAX);
        let mut floors: Vec<Floor<5>> = wanted.lanes.iter().map(begin).collect();
        let mut left = small(most);
        let mut found: Vec<Row> = Vec::new();
        loop {
            let begun = Instant::now();
            let rows = match self.claim_from(link, request, wanted, left, &floors, common).await {
                // The jobs that an earlier statement took are the caller's.
                Err(_) if !found.is_empty() => return Ok(found),
                rows => rows?,
            };
            let cost = begun.elapsed();
            let mut advanced_to: Vec<Floor<5>> = vec![[0; 5]; floors.len()];
            for (lane, priority, due) in places_of(&rows) {
                let Some(number) = numbers.get(&lane) else { continue };
                wanted.rooms[wanted.places[*number]] -= 1;
                if let Some(place) = advanced_to[*number].get_mut(priority) {
                    *place = (*place).max(due);
                }
            }
            left -= small(rows.len());
            found.extend(rows);
            let mut again = false;
            for (number, lane) in wanted.lanes.iter().enumerate() {
                let found_all = left <= 0 || wanted.rooms[wanted.places[number]] <= 0;
                self.cursors.end(*lane, present(), &floors[number], cost, advanced_to[number], found_all);
                let may_scan_fully = || self.cursors.may_scan_fully(*lane, present(), FULL_SCAN_EVERY_MAX);
                again |= !found_all && floors[number] != [0; 5] && may_scan_fully();
            }
            if !again {
                return Ok(found);
            }
            floors.fill([0; 5]);
        }
    }

    /// Takes at most this many jobs with one statement, from these floors on.
    async fn claim_from(
        &self,
        link: &Link<'_>,
        request: &ClaimRequest,
        wanted: &Wanted<'_>,
        most: i32,
        floors: &[Floor<5>],
        common: Uuid,
    ) -> Result<Vec<Row>, Fault> {
        let (time, worker) = (self.given_time(), request.worker.as_str());
        let lease_time = request.lease_time.map(job_rows::micros);
        let floors = floors.concat();
        let (earliest, latest) = self.expected_time();
        if let ([lane], [room]) = (wanted.lanes.as_slice(), wanted.rooms.as_slice()) {
            let most = most.min(*room);
            let parameters: [Parameter<'_>; 9] =
                [&time, &worker, &lease_time, lane, &most, &floors, &common, &earliest, &latest];
            return link.query(include_str!("sql/claim_lane.sql"), &parameters).await;
        }
        let places: Vec<i32> = wanted.places.iter().map(|place| small(*place)).collect();
        let each: Vec<i32> = (0..wanted.rooms.len()).map(small).collect();
        let (lanes, rooms) = (&wanted.lanes, &wanted.rooms);
        let parameters: [Parameter<'_>; 13] = [
            &time,
            &worker,
            &lease_time,
            lanes,
            &places,
            &each,
            rooms,
            &most,
            &SLACK,
            &common,
            &floors,
            &earliest,
            &latest,
        ];
        link.query(include_str!("sql/claim.sql"), &parameters).await
    }

    fn granted(
        &self,
        rows: &[Row],
        wanted: &Wanted<'_>,
        worker: &WorkerId,
        common: Uuid,
    ) -> Result<Vec<Claimed>, Fault> {
        let mut jobs = Vec::with_capacity(rows.len());
        let Some(columns) = rows.first().map(JobColumns::of) else { return Ok(Vec::new()) };
        for row in rows {
            let (seq, job) = job_rows::claimed(row, &columns, &self.lanes, worker)?;
            let token = self.tokens().token(seq, common);
            let place = wanted.queues.iter().position(|queue| **queue == job.spec.queue);
            jobs.push((place, job.claim_order(seq), job, token));
        }
        jobs.sort_by_key(|(place, order, _, _)| (*place, *order));
        let claimed = jobs.into_iter().map(|(_, _, job, token)| {
            let now = job.updated_at;
            let expires_in = job.lease.as_ref().map_or(Duration::ZERO, |lease| lease.expires_at.since(now));
            let lease = Lease::granted(&job, token);
            Claimed { job, lease, expires_in }
        });
        Ok(claimed.collect())
    }

    /// What a claim looks into, in the order of the call.
    fn runs<'r>(&self, request: &'r ClaimRequest) -> Vec<Run<'r>> {
        let mut runs = Vec::with_capacity(1);
        for (queue, room) in &request.queues {
            if self.lanes.controlled(queue).is_some() {
                runs.push(Run::Gated(queue, *room));
                continue;
            }
            if !matches!(runs.last(), Some(Run::Plain(_))) {
                runs.push(Run::Plain(Wanted::default()));
            }
            if let Some(Run::Plain(wanted)) = runs.last_mut() {
                wanted.add(queue, *room, self.lanes.of(queue, request.types.as_deref()));
            }
        }
        runs
    }
}

/// The lane, the priority and the moment of being due of each job that was taken.
pub(super) fn places_of(rows: &[Row]) -> impl Iterator<Item = (Lane, usize, i64)> + '_ {
    let columns = ["lane", "claimed_priority", "scheduled_at"];
    let [lane, priority, due] = rows.first().map(|row| columns.map(|name| row.column(name))).unwrap_or_default();
    rows.iter().map(move |row| {
        let priority: i16 = row.get(priority);
        (row.get(lane), usize::try_from(priority).unwrap_or(usize::MAX), row.get(due))
    })
}

#[derive(Default)]
struct Wanted<'r> {
    queues: Vec<&'r QueueName>,
    /// How many more of each queue.
    rooms: Vec<i32>,
    lanes: Vec<Lane>,
    /// Which of the queues each lane is of.
    places: Vec<usize>,
}

impl<'r> Wanted<'r> {
    fn add(&mut self, queue: &'r QueueName, room: usize, lanes: impl IntoIterator<Item = Lane>) {
        if let Some(number) = self.queues.iter().position(|known| *known == queue) {
            // A queue that is named twice has room for both.
            self.rooms[number] = self.rooms[number].saturating_add(small(room));
            return;
        }
        for lane in lanes {
            self.lanes.push(lane);
            self.places.push(self.queues.len());
        }
        self.queues.push(queue);
        self.rooms.push(small(room));
    }
}

/// Queues that are claimed from together.
enum Run<'r> {
    /// Plain ones that follow each other in the call.
    Plain(Wanted<'r>),
    /// A controlled one, and how many of it.
    Gated(&'r QueueName, usize),
}

impl Run<'_> {
    /// Whether there is nothing to look into, as far as is known.
    fn is_unknown(&self) -> bool {
        matches!(self, Run::Plain(wanted) if wanted.lanes.is_empty())
    }
}

fn small(number: usize) -> i32 {
    i32::try_from(number.min(CALL_MAX)).unwrap_or(i32::MAX)
}
