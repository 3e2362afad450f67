//! What a job waits for. The rules are in [`workflow::graph`](crate::workflow::graph).

use serde::{Deserialize, Serialize};

use super::id::JobId;

/// Most dependencies of one job.
pub const DEPENDENCIES_MAX: usize = 1000;

/// What a job waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Dependency {
    /// The job waited for.
    pub on: DependsOn,
    /// What counts as done, and what a bad end does.
    pub kind: DependencyKind,
}

/// The job that is waited for: one that is stored, or one of the same submission.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependsOn {
    /// A stored job.
    Job(JobId),
    /// The job at this place of the same batch, from 0.
    Batch(usize),
}

/// What counts as done, and what a bad end does (rule W1 and the table above it).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependencyKind {
    /// It must complete; if it dies, so does the dependent.
    After,
    /// The first of all so marked to end, however it ended.
    AfterAny,
    /// It must end, however.
    AfterAll,
    /// It and all it spawns must complete; if one dies, so does the dependent.
    FanInSuccess,
    /// It and all it spawns must end, however.
    FanInDone,
}

impl DependencyKind {
    /// All five.
    pub const ALL: [DependencyKind; 5] = [
        DependencyKind::After,
        DependencyKind::AfterAny,
        DependencyKind::AfterAll,
        DependencyKind::FanInSuccess,
        DependencyKind::FanInDone,
    ];
}
