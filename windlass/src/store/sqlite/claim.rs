//! Claiming: the heads of a queue's lanes are merged in claim order, and what was taken moves from `ready` to `leased`.
//!
//! A lane is read a few rows at a time, one priority after the other, so that a claim costs what it takes and not what
//! waits. A job that fell due is already in its place, so nothing has to be moved before (S4).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rusqlite::{OptionalExtension, params};

use super::columns::{columns, kind_state, read_version, time};
use super::fault::{Answer, Fault};
use super::hot_statements::HotStatement;
use super::job_rows::{FLAG_NOTE, JobColumn};
use super::lease_ranges;
use super::transaction::Transaction;
use crate::job::{JobRecord, JobType, Lease, LeaseToken, Priority, QueueName, State};
use crate::store::answer::{Claimed, Claims};
use crate::store::ids::lease_token;
use crate::store::request::ClaimRequest;
use crate::store::rules;
use crate::time::Timestamp;

/// How many rows of a lane are read at once beyond its share of the claim.
const READ_AHEAD: usize = 4;
/// Before every place of a lane.
const START: (i64, i64) = (i64::MIN, 0);
columns! {
    /// What `list_claimable.sql` selects beside the columns of the job.
    ClaimableColumn from JobColumn::NAMES.len() =>
    at, seq, kind, deadline, flags, attempt, failures, lost, generation, version,
}

/// A job that may be claimed.
pub(super) struct Claimable {
    at: i64,
    pub(super) seq: i64,
    kind: i64,
    flags: i64,
    job: JobRecord,
}

/// A lane that is being read: which priority it is at, and what has been read but not taken.
struct LaneReader {
    lane: i64,
    priority: u8,
    last: (i64, i64),
    read: VecDeque<Claimable>,
    step: usize,
    /// What was taken of the present priority, in claim order.
    taken: Vec<Taken>,
}

/// Where claimed jobs come from, and where they run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Passage {
    pub(super) from: i64,
    pub(super) priority: u8,
    /// The same lane, or a strand of a controlled queue.
    pub(super) to: i64,
    /// What their rows are marked with.
    pub(super) flag: i64,
}

/// A job that was claimed and still stands among the ready ones.
pub(super) struct Taken {
    at: i64,
    seq: i64,
    expires_at: Timestamp,
    /// As it is stored.
    lease_max: Option<i64>,
    token: LeaseToken,
}

impl LaneReader {
    fn passage(&self) -> Passage {
        Passage { from: self.lane, priority: self.priority, to: self.lane, flag: 0 }
    }
}

impl Transaction<'_> {
    /// Claims jobs. Damaged ones are set aside, and where only such were found, the next ones are looked at.
    pub(super) fn claim(&mut self, request: &ClaimRequest) -> Answer<Claims> {
        let mut claims = Claims::default();
        for _ in 0..rules::DAMAGED_CLAIMS_MAX {
            let Claims { jobs, again_in } = self.claim_any(request)?;
            let (damaged, sound) = rules::split_damaged(jobs);
            claims = Claims { jobs: sound, again_in };
            if damaged.is_empty() {
                break;
            }
            for settlement in &damaged {
                self.run(|set| rules::settle(set, settlement))?;
            }
            if !claims.is_empty() {
                break;
            }
        }
        Ok(claims)
    }

    fn claim_any(&mut self, request: &ClaimRequest) -> Answer<Claims> {
        let (mut claimed, mut again_at) = (Vec::new(), None);
        for (queue, room) in &request.queues {
            let wanted = (*room).min(request.limit - claimed.len());
            if wanted == 0 || self.is_paused(queue)? {
                continue;
            }
            // The counts say which lanes are worth a look, so those of this transaction must be among them.
            self.write_counts()?;
            match self.controlled(queue) {
                // Nothing is claimed from a queue whose control cannot be read, and everything from the others.
                Err(Fault::Broken(_)) => continue,
                Err(fault) => return Err(fault),
                Ok(None) => self.claim_from(queue, wanted, request, &mut claimed)?,
                Ok(Some(record)) => {
                    let again =
                        self.claim_through_gates(queue, &record.control, wanted, Some(request), &mut claimed)?;
                    again_at = [again_at, again].into_iter().flatten().min();
                }
            }
        }
        Ok(Claims { jobs: claimed, again_in: again_at.map(|at| at.since(self.now)) })
    }

    pub(super) fn is_paused(&self, queue: &QueueName) -> Answer<bool> {
        let mut statement = self.statement(include_str!("sql/is_paused.sql"))?;
        Ok(statement.query_row([queue.as_str()], |row| row.get(0)).optional()?.unwrap_or(false))
    }

    fn claim_from(
        &mut self,
        queue: &QueueName,
        wanted: usize,
        request: &ClaimRequest,
        claimed: &mut Vec<Claimed>,
    ) -> Answer<()> {
        let lanes = self.lanes_to_claim(queue, request.types.as_deref())?;
        let step = wanted / lanes.len().max(1) + READ_AHEAD;
        let mut readers: Vec<LaneReader> = lanes
            .into_iter()
            .map(|lane| LaneReader { lane, priority: 0, last: START, read: VecDeque::new(), step, taken: Vec::new() })
            .collect();
        let mut heads = BinaryHeap::with_capacity(readers.len());
        for (number, reader) in readers.iter_mut().enumerate() {
            heads.extend(self.next_head(reader, request)?.map(|order| Reverse((order, number))));
        }
        for _ in 0..wanted {
            let Some(Reverse((_, number))) = heads.pop() else { break };
            let reader = &mut readers[number];
            let Some(head) = reader.read.pop_front() else { break };
            claimed.push(self.claim_one(reader.passage(), head, request, &mut reader.taken)?);
            heads.extend(self.next_head(reader, request)?.map(|order| Reverse((order, number))));
        }
        readers.iter_mut().try_for_each(|reader| self.lease_taken(reader, request))
    }

    fn lease_taken(&mut self, reader: &mut LaneReader, request: &ClaimRequest) -> Answer<()> {
        let taken = std::mem::take(&mut reader.taken);
        self.lease(reader.passage(), &taken, request)
    }

    /// Moves claimed jobs to the leased ones: everything that could be claimed from the first one to the last.
    pub(super) fn lease(&mut self, passage: Passage, taken: &[Taken], request: &ClaimRequest) -> Answer<()> {
        let (Some(first), Some(last)) = (taken.first(), taken.last()) else { return Ok(()) };
        let Passage { from, priority, to, flag } = passage;
        let (priority, now) = (i64::from(priority), self.now.as_micros());
        let mut leased = 0;
        let alike = |one: &Taken, next: &Taken| {
            lease_ranges::follows_in_lane(one.seq, next.seq)
                && (one.expires_at, one.lease_max) == (next.expires_at, next.lease_max)
        };
        for run in taken.chunk_by(alike) {
            let (start, end) = (&run[0], &run[run.len() - 1]);
            let tokens = lease_ranges::tokens(run.iter().map(|taken| (taken.seq, taken.token)));
            let (expires_at, worker) = (start.expires_at.as_micros(), request.worker.as_str());
            let max = start.lease_max;
            let (start, end) = ((start.at, start.seq), (end.at, end.seq));
            let range =
                params![from, priority, start.0, start.1, end.0, end.1, now, expires_at, tokens, worker, max, to, flag];
            leased += self.execute(HotStatement::LeaseRange, range)?;
        }
        let range = [from, priority, first.at, first.seq, last.at, last.seq, now];
        let removed = self.execute(HotStatement::DeleteClaimed, range)?;
        match removed == taken.len() && leased == taken.len() {
            true => Ok(()),
            false => Err(Fault::broken(format!("{} jobs were claimed, {removed} moved, {leased} leased", taken.len()))),
        }
    }

    fn lanes_to_claim(&self, queue: &QueueName, types: Option<&[JobType]>) -> Answer<Vec<i64>> {
        let mut statement = self.statement(include_str!("sql/list_claimable_lanes.sql"))?;
        let mut rows = statement.query([queue.as_str()])?;
        let mut lanes = Vec::new();
        while let Some(row) = rows.next()? {
            let job_type = row.get_ref("type")?.as_str()?;
            if types.is_none_or(|types| types.iter().any(|wanted| wanted.as_str() == job_type)) {
                lanes.push(row.get("lane")?);
            }
        }
        Ok(lanes)
    }

    /// The order of the next job of a lane, which is then read.
    fn next_head(&mut self, reader: &mut LaneReader, request: &ClaimRequest) -> Answer<Option<(u8, i64, i64)>> {
        while reader.read.is_empty() {
            if usize::from(reader.priority) >= Priority::ALL.len() {
                return Ok(None);
            }
            if !self.read_lane(reader)? {
                self.lease_taken(reader, request)?;
                reader.priority += 1;
                reader.last = START;
            }
        }
        Ok(reader.read.front().map(|head| (reader.priority, head.at, head.seq)))
    }

    fn read_lane(&mut self, reader: &mut LaneReader) -> Answer<bool> {
        let limit = reader.step;
        self.read_claimable(reader.passage(), reader.last, limit, |head| reader.read.push_back(head))?;
        match reader.read.back() {
            None => Ok(false),
            Some(last) => {
                reader.last = (last.at, last.seq);
                Ok(true)
            }
        }
    }

    /// Reads the jobs of a lane and priority that can be claimed, after a place (at, seq).
    pub(super) fn read_claimable(
        &mut self,
        passage: Passage,
        (at, seq): (i64, i64),
        limit: usize,
        mut take: impl FnMut(Claimable),
    ) -> Answer<()> {
        let mut statement = self.take_statement(HotStatement::ListClaimable)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows =
            statement.query([passage.from, i64::from(passage.priority), at, seq, self.now.as_micros(), limit])?;
        while let Some(row) = rows.next()? {
            let seq = row.get(ClaimableColumn::seq.number())?;
            let mut job = self.read_job(seq, row)?.0;
            let (at, kind, flags) = (
                row.get(ClaimableColumn::at.number())?,
                row.get(ClaimableColumn::kind.number())?,
                row.get(ClaimableColumn::flags.number())?,
            );
            job.state = State::Scheduled;
            job.position = time(at);
            job.scheduled_at = Some(job.position);
            job.deadline = row.get::<_, Option<i64>>(ClaimableColumn::deadline.number())?.map(time);
            job.attempt = row.get(ClaimableColumn::attempt.number())?;
            job.failures = row.get(ClaimableColumn::failures.number())?;
            job.lost = row.get(ClaimableColumn::lost.number())?;
            job.generation = row.get(ClaimableColumn::generation.number())?;
            job.lease_version = read_version(row.get(ClaimableColumn::version.number())?);
            take(Claimable { at, seq, kind, flags, job });
        }
        drop(rows);
        self.give_statement_back(HotStatement::ListClaimable, statement);
        Ok(())
    }

    /// Claims a job, which has to be [leased](Self::lease) with those beside it.
    pub(super) fn claim_one(
        &mut self,
        passage: Passage,
        head: Claimable,
        request: &ClaimRequest,
        taken: &mut Vec<Taken>,
    ) -> Answer<Claimed> {
        let Claimable { at, seq, kind, flags, mut job } = head;
        if flags & FLAG_NOTE != 0 {
            self.read_note(seq, &mut job)?;
        }
        let token = lease_token(seq);
        job.claim(&request.worker, request.lease_time, self.now).map_err(|error| Fault::broken(error.to_string()))?;
        let expires_at = job.lease.as_ref().map_or(self.now, |lease| lease.expires_at);
        self.count(passage.from, kind_state(kind)?, -1);
        self.count(passage.to, State::Running, 1);
        let lease_max = job.spec.options.timeouts.stored_lease_max();
        taken.push(Taken { at, seq, expires_at, lease_max, token });
        let lease = Lease::granted(&job, token);
        Ok(Claimed { job, lease, expires_in: expires_at.since(self.now) })
    }
}
