//! Groups of dead jobs by the fault they died of: the shape of a group, and how one is put together from its jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::answer::Page;
use super::request::{Cursor, FAULT_JOBS_MAX, FAULTS_MAX, FaultQuery};
use crate::error::Result;
use crate::job::{Category, Fingerprint, JobId, JobRecord, JobType, QueueName};
use crate::time::Timestamp;

/// How long each part of a group's trend is: twelve of them are a day.
pub const FAULT_TREND: Duration = Duration::from_secs(2 * 3600);
/// What counts as recent: long enough for a burst to show, short enough that it is still going on.
pub const FAULT_RECENT: Duration = Duration::from_secs(600);
/// How many jobs of a group are named.
const SAMPLE_MAX: usize = 3;

/// Jobs that died of the same fault. The numbers are of the newest [`FAULT_JOBS_MAX`] of them.
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

impl FaultGroup {
    /// How many newest jobs a store reads for a group.
    pub const SAMPLED: usize = SAMPLE_MAX;

    /// A page of groups of these jobs, which come newest first, each with its fault and when it failed: for a caller that has them
    /// all at hand.
    pub fn page<'j>(
        jobs: impl IntoIterator<Item = (Fingerprint, Timestamp, &'j JobRecord)>,
        query: &FaultQuery,
        now: Timestamp,
    ) -> Result<Page<Self>> {
        let after = query.place()?;
        let mut groups: BTreeMap<Fingerprint, (Vec<JobRecord>, Vec<FaultEnd>, usize)> = BTreeMap::new();
        for (fingerprint, at, job) in jobs {
            if after.is_some_and(|after| fingerprint <= after) {
                continue;
            }
            let (newest, ends, looked) = groups.entry(fingerprint).or_default();
            if *looked < FAULT_JOBS_MAX && query.covers(&job.spec.queue, &job.spec.job_type) {
                newest.extend((newest.len() < SAMPLE_MAX).then(|| job.clone()));
                ends.push(FaultEnd { at, queue: job.spec.queue.clone() });
            }
            *looked += 1;
        }
        let more = groups.len() > query.groups_max();
        let groups: Vec<_> = groups.into_iter().take(query.groups_max()).collect();
        let next = groups.last().filter(|_| more).map(|(fingerprint, _)| Cursor(fingerprint.to_string()));
        let group = |(fingerprint, (newest, ends, looked)): (Fingerprint, (Vec<JobRecord>, Vec<FaultEnd>, usize))| {
            FaultGroup::of(fingerprint, &newest, ends, looked, now)
        };
        Ok(Page { items: groups.into_iter().filter_map(group).collect(), next })
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
