//! Recurring work.
#![allow(missing_docs)]

use crate::job::{JobId, JobSpec};
use crate::time::Timestamp;

#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleSpec {
    pub name: String,
    pub job: JobSpec,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleRecord {
    pub spec: ScheduleSpec,
    pub next_at: Option<Timestamp>,
    pub last_job: Option<JobId>,
}
