//! The numbers of lanes, now and over time.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass::store::{
    EndRecord, LaneRecord, LaneSample as StoredLaneSample, Observation, Sample as StoredSample, SampleStep,
};
use windlass::{Error, JobType, QueueName, Result, State, Timestamp};

use super::{Span, States, names};

/// A queue and a type, and the numbers of their jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Lane {
    /// The queue.
    pub queue: String,
    /// The type.
    #[serde(rename = "type")]
    pub job_type: String,
    /// Jobs in each state.
    pub states: States,
    /// Whether running, delayed and retrying jobs are at least as many, and scheduled ones at most: counting stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Jobs ever stored; only grows.
    pub accepted: u64,
    /// Ends, a job that ended twice twice; only grows.
    pub ended: Ends,
    /// Attempts that failed and after which the job is tried again; only grows.
    pub retried: u64,
    /// Attempts whose lease was lost; only grows.
    pub lost: u64,
}

/// How many jobs ended in each way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Ends {
    /// Well.
    pub completed: u64,
    /// By a permanent failure.
    pub failed: u64,
    /// Because attempts or lifetime ran out.
    pub dead_letter: u64,
    /// Because somebody asked.
    pub cancelled: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn nothing(number: &u64) -> bool {
    *number == 0
}

/// The numbers of all lanes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Lanes {
    /// The store's time.
    #[schema(value_type = String, format = DateTime)]
    pub now: Timestamp,
    /// The lanes, by queue and type.
    pub items: Vec<Lane>,
    /// How many there are beside these.
    #[serde(default, skip_serializing_if = "nothing")]
    pub left_out: u64,
    /// With `ends_after`: the newest of those ends, newest first, at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<End>,
}

/// The end of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct End {
    /// Its queue.
    pub queue: String,
    /// Its type.
    #[serde(rename = "type")]
    pub job_type: String,
    /// How it ended.
    #[schema(value_type = names::StateName)]
    pub state: State,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How long it was ready before its last attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<Span>,
    /// How long its last attempt took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Span>,
}

/// What is remembered of one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The moment, a multiple of the step.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The lanes then; at most 1,000.
    #[schema(max_items = 1000)]
    pub lanes: Vec<LaneSample>,
}

/// A lane at one moment, and how long jobs waited and ran since the sample before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LaneSample {
    /// The numbers.
    #[serde(flatten)]
    pub lane: Lane,
    /// Waits: the number of a bucket, and how many fell into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Vec<u32>>)]
    pub waits: Vec<(u8, u32)>,
    /// Run times, in the same way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Vec<u32>>)]
    pub runs: Vec<(u8, u32)>,
}

/// A sample to be kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSample {
    /// How far apart such samples are: 10, 60 or 900 seconds.
    pub step: u64,
    /// The sample.
    pub sample: Sample,
}

/// Samples, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Samples {
    /// The samples.
    pub items: Vec<Sample>,
}

/// The step of this many seconds.
pub fn sample_step(seconds: u64) -> Result<SampleStep> {
    let found = SampleStep::ALL.into_iter().find(|step| step.every() == Duration::from_secs(seconds));
    found.ok_or_else(|| Error::invalid("step", "must be 10, 60 or 900"))
}

impl From<&LaneRecord> for Lane {
    fn from(lane: &LaneRecord) -> Self {
        let [completed, failed, dead_letter, cancelled] = lane.ended;
        Lane {
            queue: lane.queue.to_string(),
            job_type: lane.job_type.to_string(),
            states: lane.states.into(),
            at_least: lane.at_least,
            accepted: lane.accepted,
            ended: Ends { completed, failed, dead_letter, cancelled },
            retried: lane.retried,
            lost: lane.lost,
        }
    }
}

impl TryFrom<Lane> for LaneRecord {
    type Error = Error;

    fn try_from(lane: Lane) -> Result<Self> {
        let Ends { completed, failed, dead_letter, cancelled } = lane.ended;
        Ok(LaneRecord {
            queue: QueueName::new(lane.queue)?,
            job_type: JobType::new(lane.job_type)?,
            states: lane.states.into(),
            at_least: lane.at_least,
            accepted: lane.accepted,
            ended: [completed, failed, dead_letter, cancelled],
            retried: lane.retried,
            lost: lane.lost,
        })
    }
}

impl From<&EndRecord> for End {
    fn from(end: &EndRecord) -> Self {
        End {
            queue: end.queue.to_string(),
            job_type: end.job_type.to_string(),
            state: end.state,
            at: end.at,
            waited: end.waited.map(Span),
            ran: end.ran.map(Span),
        }
    }
}

impl TryFrom<End> for EndRecord {
    type Error = Error;

    fn try_from(end: End) -> Result<Self> {
        Ok(EndRecord {
            queue: QueueName::new(end.queue)?,
            job_type: JobType::new(end.job_type)?,
            state: end.state,
            at: end.at,
            waited: end.waited.map(|span| span.0),
            ran: end.ran.map(|span| span.0),
        })
    }
}

impl From<&Observation> for Lanes {
    fn from(seen: &Observation) -> Self {
        Lanes {
            now: seen.now,
            left_out: 0,
            items: seen.lanes.iter().map(Lane::from).collect(),
            ends: seen.ends.iter().map(End::from).collect(),
        }
    }
}

impl TryFrom<Lanes> for Observation {
    type Error = Error;

    fn try_from(lanes: Lanes) -> Result<Self> {
        Ok(Observation {
            now: lanes.now,
            lanes: lanes.items.into_iter().map(LaneRecord::try_from).collect::<Result<_>>()?,
            ends: lanes.ends.into_iter().map(EndRecord::try_from).collect::<Result<_>>()?,
        })
    }
}

impl From<&StoredSample> for Sample {
    fn from(sample: &StoredSample) -> Self {
        let lane = |lane: &StoredLaneSample| LaneSample {
            lane: Lane::from(&lane.lane),
            waits: lane.waits.clone(),
            runs: lane.runs.clone(),
        };
        Sample { at: sample.at, lanes: sample.lanes.iter().map(lane).collect() }
    }
}

impl TryFrom<Sample> for StoredSample {
    type Error = Error;

    fn try_from(sample: Sample) -> Result<Self> {
        let lane =
            |lane: LaneSample| Ok(StoredLaneSample { lane: lane.lane.try_into()?, waits: lane.waits, runs: lane.runs });
        Ok(StoredSample { at: sample.at, lanes: sample.lanes.into_iter().map(lane).collect::<Result<_>>()? })
    }
}
