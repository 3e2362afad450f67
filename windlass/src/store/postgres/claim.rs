//! Claims: one statement, whether one lane is wanted or many.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::fault::Fault;
use super::floors::Floor;
use super::lanes::Lane;
use super::link::Link;
use super::row::Row;
use super::{Inner, rows, tokens};
use crate::job::{Lease, QueueName, WorkerId};
use crate::store::answer::Claimed;
use crate::store::request::ClaimRequest;

/// How many more jobs than are wanted a claim of several lanes looks at: other claimers may hold the first.
const SLACK: i32 = 200;
/// How long a claim may go without looking from the very front of a lane, where that is slow.
const SWEEP_MAX: Duration = Duration::from_secs(2);

impl Inner {
    pub(super) async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, Fault> {
        let link = self.link().await?;
        let mut wanted = self.wanted(request);
        if wanted.lanes.is_empty() || self.lanes.is_old(wanted.queues.iter().copied()) {
            let queues: Vec<&str> = request.queues.iter().map(|(queue, _)| queue.as_str()).collect();
            self.lanes.learn_queues(&link, &queues).await?;
            wanted = self.wanted(request);
        }
        let limit = small(request.limit);
        if wanted.lanes.is_empty() || limit == 0 || wanted.rooms.iter().all(|room| *room == 0) {
            return Ok(Vec::new());
        }
        let (time, worker) = (self.given_time(), request.worker.as_str());
        let lease_time = request.lease_time.map(rows::micros);
        let common = tokens::draw();
        let rows = match (wanted.lanes.as_slice(), wanted.rooms.as_slice()) {
            ([lane], [room]) => self.claim_lane(&link, request, *lane, limit.min(*room), common).await?,
            (lanes, rooms) => {
                let statement = include_str!("sql/claim.sql");
                let Wanted { places, numbers, .. } = &wanted;
                let lanes = lanes.to_vec();
                let rooms = rooms.to_vec();
                link.query(
                    statement,
                    &[&time, &worker, &lease_time, &lanes, places, numbers, &rooms, &limit, &SLACK, &common],
                )
                .await?
            }
        };
        drop(link);
        self.granted(&rows, &wanted, &request.worker, common)
    }

    /// Claims from one lane: from its floor, and from the very front if that gave too little.
    async fn claim_lane(
        &self,
        link: &Link<'_>,
        request: &ClaimRequest,
        lane: Lane,
        count: i32,
        common: Uuid,
    ) -> Result<Vec<Row>, Fault> {
        let (time, worker) = (self.given_time(), request.worker.as_str());
        let lease_time = request.lease_time.map(rows::micros);
        let mut found: Vec<Row> = Vec::new();
        let mut floor = self.floors.begin(lane, SWEEP_MAX);
        loop {
            let begun = Instant::now();
            let left = count - small(found.len());
            let from = floor.to_vec();
            let statement = include_str!("sql/claim_lane.sql");
            let rows = link.query(statement, &[&time, &worker, &lease_time, &lane, &left, &from, &common]).await?;
            self.floors.end(lane, &floor, begun.elapsed(), came(&rows));
            found.extend(rows);
            if floor == Floor::default() || small(found.len()) >= count {
                return Ok(found);
            }
            floor = Floor::default();
        }
    }

    fn granted(
        &self,
        rows: &[Row],
        wanted: &Wanted<'_>,
        worker: &WorkerId,
        common: Uuid,
    ) -> Result<Vec<Claimed>, Fault> {
        let mut jobs = Vec::with_capacity(rows.len());
        for row in rows {
            let (seq, job) = rows::claimed(row, &self.lanes, worker)?;
            let token = tokens::of(seq, common);
            let place = wanted.queues.iter().position(|queue| **queue == job.spec.queue);
            jobs.push((place, job.claim_order(u64::try_from(seq).unwrap_or_default()), job, token));
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

    /// The known lanes that a claim looks into.
    fn wanted<'r>(&self, request: &'r ClaimRequest) -> Wanted<'r> {
        let mut wanted = Wanted::default();
        for (queue, room) in &request.queues {
            let number = match wanted.queues.iter().position(|known| *known == queue) {
                Some(number) => {
                    // A queue that is named twice has room for both.
                    wanted.rooms[number] = wanted.rooms[number].saturating_add(small(*room));
                    continue;
                }
                None => wanted.queues.len(),
            };
            wanted.queues.push(queue);
            wanted.rooms.push(small(*room));
            wanted.numbers.push(small(number));
            for lane in self.lanes.of(queue, request.types.as_deref()) {
                wanted.lanes.push(lane);
                wanted.places.push(small(number));
            }
        }
        wanted
    }
}

/// How far a claim came in each priority.
fn came(rows: &[Row]) -> Floor {
    let mut came = Floor::default();
    for row in rows {
        let priority: i16 = row.get("claimed_priority");
        if let Some(place) = usize::try_from(priority).ok().and_then(|priority| came.get_mut(priority)) {
            *place = (*place).max(row.get("scheduled_at"));
        }
    }
    came
}

#[derive(Default)]
struct Wanted<'r> {
    queues: Vec<&'r QueueName>,
    rooms: Vec<i32>,
    numbers: Vec<i32>,
    lanes: Vec<Lane>,
    places: Vec<i32>,
}

fn small(number: usize) -> i32 {
    i32::try_from(number.min(super::request::CALL_MAX)).unwrap_or(i32::MAX)
}
