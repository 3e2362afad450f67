//! Groups of dead jobs by the fault they died of: the shape of a group, and how one is put together from its jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::answer::Page;
use super::request::{Cursor, FAULT_JOBS_MAX, FAULTS_MAX, FaultQuery, LOOKED_MAX};
use crate::error::Result;
use crate::job::{Category, Fingerprint, JobId, JobRecord, JobType, QueueName, State};
use crate::time::Timestamp;

/// How long each part of a group's trend is: twelve of them are a day.
pub const FAULT_TREND: Duration = Duration::from_secs(2 * 3600);
/// What counts as recent: long enough for a burst to show, short enough that it is still going on.
pub const FAULT_RECENT: Duration = Duration::from_secs(600);
/// How many jobs of a group are named.
const SAMPLE_MAX: usize = 3;

/// Jobs that died of the same fault, or are tried again after it. The numbers are of the newest [`FAULT_JOBS_MAX`] dead ones.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FaultGroup {
    /// The fault.
    pub fingerprint: Fingerprint,
    /// The type of the jobs.
    pub job_type: JobType,
    /// What kind of failure it is.
    pub category: Category,
    /// Its code, if it has one.
    pub code: Option<String>,
    /// The message of its newest job, without what differs from job to job.
    pub pattern: String,
    /// How many jobs; at least as many when `capped`.
    pub count: u64,
    /// Whether there are more jobs than were looked at.
    pub capped: bool,
    /// How many of them died within [`FAULT_RECENT`].
    pub recent: u64,
    /// When the first of them died.
    pub first_at: Timestamp,
    /// When the last of them died.
    pub last_at: Timestamp,
    /// Some of the newest of them, newest first.
    pub sample: Vec<JobId>,
    /// Their queues, by name.
    pub queues: Vec<QueueName>,
    /// How many died in each [`FAULT_TREND`] of the last day, oldest first.
    pub trend: [u64; 12],
}

/// The end of a dead job, as far as a group asks for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultEnd {
    /// When it ended.
    pub at: Timestamp,
    /// Its queue.
    pub queue: QueueName,
}

/// The queue and the type of a job.
pub type FaultNames = (QueueName, JobType);

/// Jobs that are put into groups as they are read. `J` is what a store finds a job by.
#[derive(Debug)]
pub struct FaultSums<J> {
    query: FaultQuery,
    after: Option<Fingerprint>,
    groups: BTreeMap<Fingerprint, FaultSum<J>>,
    /// There are more jobs than were looked at.
    pub stopped: bool,
}

/// One of them.
#[derive(Debug)]
pub struct FaultSum<J> {
    fingerprint: Fingerprint,
    /// Some of its newest jobs, newest first.
    pub newest: Vec<J>,
    ends: Vec<FaultEnd>,
    looked: usize,
    capped: bool,
}

impl<J> FaultSums<J> {
    /// None yet.
    pub fn of(query: &FaultQuery) -> Result<Self> {
        Ok(FaultSums { query: query.clone(), after: query.place()?, groups: BTreeMap::new(), stopped: false })
    }

    /// Counts a job that failed, newest first; what is not asked for does not count.
    pub fn see(&mut self, fingerprint: Fingerprint, at: Timestamp, (queue, job_type): &FaultNames, job: J) {
        if self.after.is_some_and(|after| fingerprint <= after) {
            return;
        }
        // Jobs that are tried again are read anyway, up to a number for all groups together.
        let most = if self.query.retrying { usize::MAX } else { FAULT_JOBS_MAX };
        let sum = self.groups.entry(fingerprint).or_insert_with(|| FaultSum::new(fingerprint));
        sum.looked += 1;
        sum.capped = sum.looked > most;
        if !sum.capped && self.query.covers(queue, job_type) {
            sum.newest.extend((sum.newest.len() < SAMPLE_MAX).then_some(job));
            sum.ends.push(FaultEnd { at, queue: queue.clone() });
        }
    }

    /// The groups of the page that is asked for, and where the next begins.
    pub fn page(self) -> (Vec<FaultSum<J>>, Option<Cursor>) {
        let most = self.query.groups_max();
        let more = self.groups.len() > most;
        let mut sums: Vec<_> = self.groups.into_values().take(most).collect();
        sums.iter_mut().for_each(|sum| sum.capped |= self.stopped);
        let next = sums.last().filter(|_| more).map(|sum| Cursor(sum.fingerprint.to_string()));
        (sums, next)
    }
}

impl<J> FaultSum<J> {
    fn new(fingerprint: Fingerprint) -> Self {
        FaultSum { fingerprint, newest: Vec::new(), ends: Vec::new(), looked: 0, capped: false }
    }

    /// The group, with what its newest jobs say.
    pub fn group(self, newest: &[JobRecord], now: Timestamp) -> Option<FaultGroup> {
        let group = FaultGroup::of(self.fingerprint, newest, self.ends, self.looked, now)?;
        Some(FaultGroup { capped: self.capped, ..group })
    }
}

impl FaultQuery {
    /// The fingerprint after which the page begins.
    pub fn place(&self) -> Result<Option<Fingerprint>> {
        let parse = |cursor: &Cursor| cursor.0.parse().map_err(|_| cursor.invalid());
        self.after.as_ref().map(parse).transpose()
    }

    /// How many groups the page holds at most.
    pub fn groups_max(&self) -> usize {
        self.limit.clamp(1, FAULTS_MAX)
    }

    /// Whether a job of this queue and type is asked for.
    pub fn covers(&self, queue: &QueueName, job_type: &JobType) -> bool {
        self.queue.as_ref().is_none_or(|wanted| wanted == queue)
            && self.job_type.as_ref().is_none_or(|wanted| wanted == job_type)
    }
}

fn names(job: &JobRecord) -> FaultNames {
    (job.spec.queue.clone(), job.spec.job_type.clone())
}

impl FaultGroup {
    /// How many newest jobs a store reads for a group.
    pub const SAMPLED: usize = SAMPLE_MAX;

    /// A page of groups of all jobs of a store, which come newest first: for a store that has them at hand.
    pub fn page<'j>(
        jobs: impl IntoIterator<Item = &'j JobRecord>,
        query: &FaultQuery,
        now: Timestamp,
    ) -> Result<Page<Self>> {
        let mut sums: FaultSums<&JobRecord> = FaultSums::of(query)?;
        if query.retrying {
            let waits = |job: &&JobRecord| matches!(job.state, State::Delayed | State::Retrying);
            let mut waiting: Vec<_> = jobs.into_iter().filter(waits).collect();
            waiting.sort_by_key(|job| job.run_at);
            sums.stopped = waiting.len() > LOOKED_MAX;
            for job in waiting.into_iter().take(LOOKED_MAX).filter(|job| job.state == State::Retrying) {
                if let Some(failure) = &job.failure {
                    sums.see(failure.fingerprint(&job.spec.job_type), failure.at, &names(job), job);
                }
            }
        } else {
            for job in jobs {
                if let (Some(fingerprint), Some(at)) = (job.fault(), job.completed_at) {
                    sums.see(fingerprint, at, &names(job), job);
                }
            }
        }
        let (found, next) = sums.page();
        let group = |sum: FaultSum<&JobRecord>| {
            let newest: Vec<JobRecord> = sum.newest.iter().map(|job| (*job).clone()).collect();
            sum.group(&newest, now)
        };
        Ok(Page::new(found.into_iter().filter_map(group).collect(), next))
    }

    /// The group of these ends, of which the store looked at `looked` before it left out what is not asked for; `newest` are
    /// its newest jobs, newest first. `None` when nothing of it is asked for.
    pub fn of(
        fingerprint: Fingerprint,
        newest: &[JobRecord],
        ends: impl IntoIterator<Item = FaultEnd>,
        looked: usize,
        now: Timestamp,
    ) -> Option<Self> {
        let first = newest.first()?;
        let failure = first.failure.as_ref()?;
        let mut group = FaultGroup {
            fingerprint,
            job_type: first.spec.job_type.clone(),
            category: failure.category,
            code: failure.code.clone(),
            pattern: failure.pattern(),
            count: 0,
            capped: looked > FAULT_JOBS_MAX,
            recent: 0,
            first_at: Timestamp::MAX,
            last_at: Timestamp::EPOCH,
            sample: newest.iter().take(SAMPLE_MAX).map(|job| job.id).collect(),
            queues: Vec::new(),
            trend: [0; 12],
        };
        ends.into_iter().for_each(|end| group.see(end, now));
        group.queues.sort();
        (group.count > 0).then_some(group)
    }

    fn see(&mut self, end: FaultEnd, now: Timestamp) {
        self.count += 1;
        self.first_at = self.first_at.min(end.at);
        self.last_at = self.last_at.max(end.at);
        let age = now.since(end.at);
        self.recent += u64::from(age < FAULT_RECENT);
        let back = usize::try_from(age.as_secs() / FAULT_TREND.as_secs()).unwrap_or(usize::MAX);
        if let Some(place) = (self.trend.len() - 1).checked_sub(back) {
            self.trend[place] += 1;
        }
        if !self.queues.contains(&end.queue) {
            self.queues.push(end.queue);
        }
    }
}
