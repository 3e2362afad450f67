//! The numbers of lanes, and what is remembered of them over time.
//!
//! A program that draws a line over time reads [`Observation`]s every few seconds and keeps them as [`Sample`]s in the store, so that a
//! restart loses nothing. All numbers only grow or are taken at one moment: several writers need no leader, and a missing
//! sample makes a line coarser, not wrong.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::answer::Totals;
use crate::job::{JobType, Outcome, QueueName, State};
use crate::time::Timestamp;

/// How many of the newest ends an observation holds at most.
pub const ENDS_MAX: usize = 1000;
/// How many running and waiting jobs a store counts one by one for an observation, where it does not keep their number.
pub const COUNTED_MAX: usize = 100_000;
/// How many samples one call reads at most: all of the longest line there is.
pub const SAMPLES_MAX: usize = 1500;

/// How far apart samples are, and how long each kind is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleStep {
    /// Every 10 s, for an hour.
    Seconds,
    /// Every minute, for a day.
    Minutes,
    /// Every 15 minutes, for 14 days.
    Quarters,
}

impl SampleStep {
    /// All three, the finest first.
    pub const ALL: [SampleStep; 3] = [SampleStep::Seconds, SampleStep::Minutes, SampleStep::Quarters];

    /// From one sample to the next.
    pub const fn every(self) -> Duration {
        Duration::from_secs(match self {
            SampleStep::Seconds => 10,
            SampleStep::Minutes => 60,
            SampleStep::Quarters => 900,
        })
    }

    /// How long a sample is kept.
    pub const fn kept(self) -> Duration {
        Duration::from_secs(match self {
            SampleStep::Seconds => 3600,
            SampleStep::Minutes => 24 * 3600,
            SampleStep::Quarters => 14 * 24 * 3600,
        })
    }

    /// The last moment before `at`, or `at` itself, for which there is a sample of this kind.
    pub fn floor(self, at: Timestamp) -> Timestamp {
        let every = i64::try_from(self.every().as_micros()).expect("at most 15 minutes");
        Timestamp::from_micros(at.as_micros() - at.as_micros().rem_euclid(every))
    }
}

/// A queue and a type, and the numbers of their jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LaneRecord {
    /// The queue.
    pub queue: QueueName,
    /// The type.
    pub job_type: JobType,
    /// Jobs in each state, in the order of [`State::ALL`].
    pub states: [u64; 9],
    /// Whether RUNNING, DELAYED and RETRYING were counted no further than [`COUNTED_MAX`] in the whole store: these are then
    /// at least as many, and SCHEDULED at most.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Jobs ever stored; only grows.
    pub accepted: u64,
    /// Ends in COMPLETED, FAILED, DEAD_LETTER and CANCELLED, a job that ended twice twice; only grows.
    pub ended: [u64; 4],
    /// Attempts that failed and after which the job is tried again; only grows.
    pub retried: u64,
    /// Attempts whose lease was lost; only grows.
    pub lost: u64,
}

impl LaneRecord {
    /// A lane without jobs.
    pub fn new(queue: QueueName, job_type: JobType) -> Self {
        LaneRecord { queue, job_type, states: [0; 9], at_least: false, accepted: 0, ended: [0; 4], retried: 0, lost: 0 }
    }

    /// Adds the numbers of another lane.
    pub fn add(&mut self, other: &LaneRecord) {
        self.at_least |= other.at_least;
        self.accepted += other.accepted;
        self.retried += other.retried;
        self.lost += other.lost;
        for (sum, count) in self.states.iter_mut().zip(other.states).chain(self.ended.iter_mut().zip(other.ended)) {
            *sum += count;
        }
    }

    /// How many jobs are in this state.
    pub fn count(&self, state: State) -> u64 {
        self.states[usize::from(state.number())]
    }
}

/// What a closed attempt adds to the numbers of its lane, beside the job's new state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttemptCount {
    /// It failed, and the job is tried again.
    Retried,
    /// Its lease was lost.
    Lost,
}

impl AttemptCount {
    /// What an attempt counts as that ended so and left the job in this state.
    pub fn of(outcome: Option<Outcome>, state: State) -> Option<Self> {
        match outcome? {
            Outcome::Lost => Some(AttemptCount::Lost),
            Outcome::Failed if state == State::Retrying => Some(AttemptCount::Retried),
            _ => None,
        }
    }
}

/// The place of a terminal state in [`LaneRecord::ended`].
pub fn ended_place(state: State) -> Option<usize> {
    match state {
        State::Completed => Some(0),
        State::Failed => Some(1),
        State::DeadLetter => Some(2),
        State::Cancelled => Some(3),
        State::Pending | State::Delayed | State::Scheduled | State::Running | State::Retrying => None,
    }
}

/// The end of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndRecord {
    /// Its queue.
    pub queue: QueueName,
    /// Its type.
    pub job_type: JobType,
    /// How it ended.
    pub state: State,
    /// When.
    pub at: Timestamp,
    /// How long it was SCHEDULED before its last attempt began; `None` if there was none.
    pub waited: Option<Duration>,
    /// How long its last attempt took.
    pub ran: Option<Duration>,
}

impl EndRecord {
    /// From when the job was SCHEDULED, when its last attempt began and when it ended.
    pub fn new(
        (queue, job_type): (QueueName, JobType),
        state: State,
        scheduled_at: Option<Timestamp>,
        started_at: Option<Timestamp>,
        at: Timestamp,
    ) -> Self {
        let waited = scheduled_at.zip(started_at).filter(|(from, to)| from <= to).map(|(from, to)| to.since(from));
        EndRecord { queue, job_type, state, at, waited, ran: started_at.map(|started_at| at.since(started_at)) }
    }
}

/// The numbers of all lanes at one moment, and what has just ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    /// When.
    pub now: Timestamp,
    /// The lanes, by queue and type; those of which nothing is left and nothing ever ended are not told.
    pub lanes: Vec<LaneRecord>,
    /// The newest ends that were asked for, newest first, at most [`ENDS_MAX`].
    pub ends: Vec<EndRecord>,
}

impl Observation {
    /// The numbers of the whole store.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for lane in &self.lanes {
            totals.accepted += lane.accepted;
            for (sum, count) in totals.states.iter_mut().zip(lane.states) {
                *sum += count;
            }
        }
        totals.pruned = totals.accepted.saturating_sub(totals.states.iter().sum());
        totals
    }
}

/// Puts the newest ends first and leaves out those beyond the most that are told.
pub fn newest_ends(mut ends: Vec<EndRecord>) -> Vec<EndRecord> {
    ends.sort_by_key(|end| std::cmp::Reverse(end.at));
    ends.truncate(ENDS_MAX);
    ends
}

/// What is remembered of one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The moment, a multiple of the sample's step.
    pub at: Timestamp,
    /// The lanes then.
    pub lanes: Vec<LaneSample>,
}

/// A lane at one moment, and how long jobs waited and ran since the sample before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LaneSample {
    /// The numbers.
    #[serde(flatten)]
    pub lane: LaneRecord,
    /// Waits of the ends that were looked at: buckets of [`bucket`], each with how many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<(u8, u32)>,
    /// Run times of the ends that were looked at, in the same way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<(u8, u32)>,
}

/// How many buckets durations fall into.
pub const BUCKETS: u8 = 40;

/// The bucket of a duration: each is half as long again as the one before, from a tenth of a millisecond to a quarter of an hour
/// and, in the last, beyond.
pub fn bucket(duration: Duration) -> u8 {
    let tenths = duration.as_micros() / 100;
    (0..BUCKETS - 1).find(|number| tenths < u128::from(upper_tenths(*number))).unwrap_or(BUCKETS - 1)
}

/// The longest duration of a bucket.
pub fn bucket_end(number: u8) -> Duration {
    Duration::from_micros(100 * upper_tenths(number))
}

/// The end of a bucket, in tenths of milliseconds.
fn upper_tenths(number: u8) -> u64 {
    (0..number).fold(1, |tenths: u64, _| (tenths + tenths.div_ceil(2)).max(tenths + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_grow_and_hold_every_duration() {
        assert!((1..BUCKETS).all(|number| bucket_end(number) > bucket_end(number - 1)));
        assert!(bucket_end(BUCKETS - 2) > Duration::from_secs(600), "{:?}", bucket_end(BUCKETS - 2));
        for micros in [0, 1, 99, 100, 999, 1000, 50_000, 1_000_000, 90_000_000, u64::MAX] {
            let duration = Duration::from_micros(micros);
            let number = bucket(duration);
            assert!(number == BUCKETS - 1 || duration < bucket_end(number), "{duration:?} in {number}");
            assert!(number == 0 || duration >= bucket_end(number - 1), "{duration:?} in {number}");
        }
    }

    #[test]
    fn samples_fall_on_multiples_of_their_step() {
        let at = Timestamp::from_micros(1_700_000_123_456_789);
        for step in SampleStep::ALL {
            let floor = step.floor(at);
            assert!(floor <= at && at.since(floor) < step.every());
            assert_eq!(step.floor(floor), floor);
        }
    }
}
