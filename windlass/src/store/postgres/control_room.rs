//! Claims from a controlled queue that does not tell keys apart, while its gates have room for all that is wanted: what is wanted
//! is then taken as from a plain queue, by one statement that also counts it.

use std::time::{Duration, Instant};

use super::Inner;
use super::claim::{FULL_SCAN_EVERY_MAX, places_of};
use super::claim_cursor::{Floor, present};
use super::control_claim::{Passage, small};
use super::control_rows::GateRows;
use super::driver_row::Row;
use super::fault::Fault;
use super::job_rows::{self, JobColumns};
use super::lanes::Lane;
use super::link::{Link, Parameter};
use super::tokens;
use crate::flow::Control;
use crate::job::Lease;
use crate::store::answer::Claimed;

/// What a claim took as from a plain queue.
pub(super) struct Roomy {
    pub(super) jobs: Vec<Claimed>,
    /// Whether it found too little, and did not begin at the very front.
    pub(super) overlooked: bool,
}

/// Whether the number of jobs that a claim takes is all that its gates ask for.
pub(super) fn counts_only(control: &Control) -> bool {
    !control.has_strands() && control.rate.is_none() && control.types.values().all(|limit| limit.rate.is_none())
}

impl Inner {
    /// Whether the gates of a queue and of a type in it have room for all that is wanted.
    pub(super) fn has_room(&self, passage: &Passage<'_>, gates: &GateRows, lane: Lane) -> bool {
        let Some((_, job_type)) = self.lanes.name(lane) else { return false };
        let (control, now) = (passage.control, gates.now);
        let of_type = gates.types.get(&lane).cloned().unwrap_or_default();
        let rooms = [gates.queue.room(&control.of_queue(), now), of_type.room(&control.of_this_type(&job_type), now)];
        rooms.iter().all(|room| usize::try_from(room.starts).unwrap_or(usize::MAX) >= passage.most)
    }

    /// Takes what is wanted of a lane, counts it on its strand, and commits. The queue is held, and has room.
    pub(super) async fn take_room(
        &self,
        link: &mut Link<'static>,
        passage: &Passage<'_>,
        gates: &GateRows,
        (lane, strand): (Lane, i32),
    ) -> Result<Roomy, Fault> {
        let request = passage.request;
        let (now, worker) = (gates.now.as_micros(), request.worker.as_str());
        let lease_time = request.lease_time.map(job_rows::micros);
        let floor = self.cursors.begin(lane, present(), FULL_SCAN_EVERY_MAX);
        let (most, common) = (small(passage.most), tokens::draw_controlled());
        let floors = floor.to_vec();
        let parameters: [Parameter<'_>; 9] =
            [&now, &worker, &lease_time, &lane, &most, &floors, &common, &strand, &passage.queue];
        let begun = Instant::now();
        let on_its_way = self.unheard.begin(common);
        let written = link.commit_with(&[(include_str!("sql/claim_room.sql"), &parameters)]).await;
        if written.as_ref().err().is_none_or(Fault::is_certain) {
            on_its_way.arrived();
        }
        let rows = written?.swap_remove(0);
        let found_all = rows.len() >= passage.most;
        self.cursors.end(lane, present(), &floor, begun.elapsed(), advanced_to(&rows), found_all);
        let may_scan_fully = || self.cursors.may_scan_fully(lane, present(), FULL_SCAN_EVERY_MAX);
        let overlooked = !found_all && floor != [0; 5] && may_scan_fully();
        let mut jobs = Vec::with_capacity(rows.len());
        let columns = rows.first().map(JobColumns::of);
        for (row, columns) in rows.iter().zip(columns.iter().cycle()) {
            let (seq, job) = job_rows::claimed(row, columns, &self.lanes, &request.worker)?;
            let lease = Lease::granted(&job, self.tokens().token(seq, common));
            let expires_in = job.lease.as_ref().map_or(Duration::ZERO, |lease| lease.expires_at.since(job.updated_at));
            jobs.push((job.claim_order(seq), Claimed { job, lease, expires_in }));
        }
        jobs.sort_by_key(|(order, _)| *order);
        Ok(Roomy { jobs: jobs.into_iter().map(|(_, job)| job).collect(), overlooked })
    }
}

/// How far a claim came in each priority.
fn advanced_to(rows: &[Row]) -> Floor<5> {
    let mut advanced_to = [0; 5];
    for (_, priority, due) in places_of(rows) {
        if let Some(place) = advanced_to.get_mut(priority) {
            *place = due.max(*place);
        }
    }
    advanced_to
}
