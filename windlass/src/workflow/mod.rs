//! Graphs of jobs: a builder whose edges can only point backwards, and the shapes that people name.
//!
//! ```
//! use windlass::workflow::{Workflow, chain, group};
//! use windlass::{NewJob, Payload};
//!
//! let job = |name: &str| NewJob::new(name, Payload::default());
//! let mut flow = Workflow::new("order-42");
//! let charge = flow.add(job("charge"));
//! let pack = flow.after([charge], job("pack"));
//! let receipt = flow.after([charge], job("receipt"));
//! flow.after([pack, receipt], job("close"));
//! // Or as a shape:
//! flow.piece(chain([job("a").into(), group([job("b"), job("c")]), job("d").into()]));
//! ```
//!
//! Typed jobs stand wherever these do.
//!
//! An edge can only name a step that was added before, so a cycle cannot be written down.

mod callback;
pub mod graph;
mod plan;
mod submission;

use serde::{Deserialize, Serialize};

pub use callback::{Webhook, webhook_of};
pub use plan::{
    Found, Held, Identity, InsertedJob, KeyHolder, Lookup, NewKey, NewRecord, Origin, Sequence, Standing,
    SubmissionPlan,
};
pub use submission::{Submission, WORKFLOW_NAME_CHARS_MAX, resolve};

use crate::error::{Error, Result};
use crate::job::{DependencyKind, DependsOn, IntoNewJob, Limits, NewJob, Policies, State, WorkflowId};
use crate::time::Timestamp;

/// A step of a workflow that is being built.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step(usize);

impl Step {
    /// Its place among the workflow's jobs, from 0.
    pub fn place(self) -> usize {
        self.0
    }
}

/// How a FAN_IN looks at the ends of the jobs it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Join {
    /// All must complete.
    #[default]
    AllSuccess,
    /// All must end, however.
    AllDone,
}

/// A workflow that is being built.
#[derive(Debug)]
pub struct Workflow {
    name: String,
    jobs: Vec<NewJob>,
    error: Option<Error>,
}

impl Workflow {
    /// An empty workflow; the name is for people.
    pub fn new(name: impl Into<String>) -> Self {
        Workflow { name: name.into(), jobs: Vec::new(), error: None }
    }

    /// A step that waits for nothing.
    pub fn add(&mut self, job: impl IntoNewJob) -> Step {
        self.step([], DependencyKind::After, job)
    }

    /// A step that runs after all these completed; if one dies, so does it.
    pub fn after(&mut self, steps: impl IntoIterator<Item = Step>, job: impl IntoNewJob) -> Step {
        self.step(steps, DependencyKind::After, job)
    }

    /// A step that runs after the first of these ended, however.
    pub fn after_any(&mut self, steps: impl IntoIterator<Item = Step>, job: impl IntoNewJob) -> Step {
        self.step(steps, DependencyKind::AfterAny, job)
    }

    /// A step that runs after all these ended, however.
    pub fn after_all(&mut self, steps: impl IntoIterator<Item = Step>, job: impl IntoNewJob) -> Step {
        self.step(steps, DependencyKind::AfterAll, job)
    }

    /// A step that runs after this one and all the jobs that it spawns, and that those spawn.
    pub fn fan_in(&mut self, step: Step, join: Join, job: impl IntoNewJob) -> Step {
        let kind = match join {
            Join::AllSuccess => DependencyKind::FanInSuccess,
            Join::AllDone => DependencyKind::FanInDone,
        };
        self.step([step], kind, job)
    }

    /// Adds a shape that waits for nothing; gives the steps it ends with.
    pub fn piece(&mut self, piece: Piece) -> Vec<Step> {
        self.piece_after(&[], piece)
    }

    /// Adds a shape that runs after all these steps completed; gives the steps it ends with.
    pub fn piece_after(&mut self, steps: &[Step], piece: Piece) -> Vec<Step> {
        match piece {
            Piece::Job(job) => vec![self.after(steps.iter().copied(), *job)],
            Piece::Unwritable(error) => {
                self.error.get_or_insert(*error);
                steps.to_vec()
            }
            Piece::Chain(links) => links.into_iter().fold(steps.to_vec(), |ends, link| self.piece_after(&ends, link)),
            Piece::Group(members) if members.is_empty() => steps.to_vec(),
            Piece::Group(members) => members.into_iter().flat_map(|member| self.piece_after(steps, member)).collect(),
            Piece::Chord(members, finaliser) => {
                let ends = self.piece_after(steps, Piece::Group(members));
                self.piece_after(&ends, *finaliser)
            }
        }
    }

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Checks every job and the graph as a whole.
    pub fn check(self, limits: &Limits, policies: &Policies) -> Result<Submission> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let jobs: Result<Vec<_>> = self.jobs.into_iter().map(|job| job.check(limits, policies)).collect();
        Submission::workflow(self.name, jobs?)
    }

    fn step(&mut self, steps: impl IntoIterator<Item = Step>, kind: DependencyKind, job: impl IntoNewJob) -> Step {
        let place = self.jobs.len();
        let job = job.into_new_job().unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            NewJob::new("invalid", crate::job::Payload::default())
        });
        let job = steps.into_iter().fold(job, |job, step| job.depends_on(DependsOn::Batch(step.0), kind));
        self.jobs.push(job);
        Step(place)
    }
}

/// A shape of jobs: one job, a chain, a group, a chord; they nest.
#[derive(Debug)]
#[non_exhaustive]
pub enum Piece {
    /// One job.
    Job(Box<NewJob>),
    /// One after the other; a failure stops the rest.
    Chain(Vec<Piece>),
    /// All at once.
    Group(Vec<Piece>),
    /// All at once, then a finaliser when all completed.
    Chord(Vec<Piece>, Box<Piece>),
    /// A typed job whose payload cannot be written as JSON: starting the workflow fails and says so.
    Unwritable(Box<Error>),
}

impl<J: IntoNewJob> From<J> for Piece {
    fn from(job: J) -> Self {
        job.into_new_job().map_or_else(|error| Piece::Unwritable(Box::new(error)), |job| Piece::Job(Box::new(job)))
    }
}

/// One after the other; a failure stops the rest.
///
/// Links of several kinds are made pieces by `.into()`: `chain([a.into(), group(bs), c.into()])`.
pub fn chain(links: impl IntoIterator<Item: Into<Piece>>) -> Piece {
    Piece::Chain(links.into_iter().map(Into::into).collect())
}

/// All at once.
pub fn group(members: impl IntoIterator<Item: Into<Piece>>) -> Piece {
    Piece::Group(members.into_iter().map(Into::into).collect())
}

/// All at once, then a finaliser when all completed, which reads the members' results with `cx.results()`.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass::workflow::{Workflow, chord};
/// use windlass::{Client, Context, Failure, Job, Worker};
///
/// #[derive(Serialize, Deserialize)]
/// struct Price { item: u64 }
///
/// impl Job for Price {
///     const TYPE: &'static str = "price";
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Invoice;
///
/// impl Job for Invoice {
///     const TYPE: &'static str = "invoice";
/// }
///
/// # async fn example() -> windlass::Result<()> {
/// let (client, _clock) = Client::for_tests();
/// let mut flow = Workflow::new("order-42");
/// let ends = flow.piece(chord([7, 8].map(|item| Price { item }), Invoice));
/// let started = client.start(flow).await?;
/// let worker = Worker::new(&client)
///     .queue("default", 4)
///     .handle(async |job: Price, _: Context| Ok::<_, Failure>(job.item * 100))
///     .handle(async |_: Invoice, cx: Context| Ok(cx.results::<u64>().await?.iter().sum::<u64>()));
/// worker.drain().await?;
/// let invoice = client.job(started.job(ends[0])).await?;
/// assert_eq!(invoice.result.unwrap().decode::<u64>()?, 1500);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(example()).unwrap();
/// ```
pub fn chord(members: impl IntoIterator<Item: Into<Piece>>, finaliser: impl Into<Piece>) -> Piece {
    Piece::Chord(members.into_iter().map(Into::into).collect(), Box::new(finaliser.into()))
}

/// How a workflow as a whole stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowState {
    /// Some job of it has not ended.
    Running,
    /// Every job of it completed.
    Completed,
    /// Every job ended, and one failed or was dead-lettered.
    Failed,
    /// Every job ended, none failed, and one was cancelled.
    Cancelled,
}

impl WorkflowState {
    /// All four.
    pub const ALL: [WorkflowState; 4] =
        [WorkflowState::Running, WorkflowState::Completed, WorkflowState::Failed, WorkflowState::Cancelled];
}

/// A durable workflow record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkflowRecord {
    /// Its identity.
    pub id: WorkflowId,
    /// Its name, for people; need not be unique.
    pub name: String,
    /// When it was started.
    pub created_at: Timestamp,
    /// How many of its jobs are in each state, in the order of [`State::ALL`]; pruned jobs no longer count.
    pub counts: [u64; 9],
    /// How many of its jobs have been pruned or deleted.
    pub pruned: u64,
}

impl WorkflowRecord {
    /// A workflow of which no job is counted yet.
    pub fn new(id: WorkflowId, name: impl Into<String>, created_at: Timestamp) -> Self {
        WorkflowRecord { id, name: name.into(), created_at, counts: [0; 9], pruned: 0 }
    }

    /// How many of its jobs are in this state.
    pub fn count(&self, state: State) -> u64 {
        self.counts[usize::from(state.number())]
    }

    /// How it stands as a whole.
    pub fn state(&self) -> WorkflowState {
        let count = |state: State| self.count(state);
        let unfinished = State::ALL.into_iter().filter(|state| !state.is_terminal()).any(|state| count(state) > 0);
        if unfinished {
            WorkflowState::Running
        } else if count(State::Failed) + count(State::DeadLetter) > 0 {
            WorkflowState::Failed
        } else if count(State::Cancelled) > 0 {
            WorkflowState::Cancelled
        } else {
            WorkflowState::Completed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Payload;

    fn job(name: &str) -> NewJob {
        NewJob::new(name, Payload::default())
    }

    fn edges(flow: Workflow) -> Vec<(usize, usize)> {
        let submission = flow.check(&Limits::default(), &Policies::default()).expect("valid");
        let mut edges = Vec::new();
        for (place, job) in submission.jobs().iter().enumerate() {
            for dependency in &job.depends_on {
                let DependsOn::Batch(on) = dependency.on else { panic!("a place") };
                edges.push((on, place));
            }
        }
        edges
    }

    #[test]
    fn w6_chains_groups_and_chords_nest() {
        let mut flow = Workflow::new("w");
        let inner = chord([job("b").into(), chain([job("c"), job("d")])], job("e"));
        flow.piece(chain([job("a").into(), inner, job("f").into()]));
        assert_eq!(edges(flow), [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4), (4, 5)]);
    }

    #[test]
    fn an_empty_group_in_a_chain_does_not_break_it() {
        let mut flow = Workflow::new("w");
        flow.piece(chain([job("a").into(), group([] as [Piece; 0]), job("b").into()]));
        assert_eq!(edges(flow), [(0, 1)]);
    }

    #[test]
    fn an_empty_workflow_is_refused() {
        let refused = Workflow::new("w").check(&Limits::default(), &Policies::default());
        assert_eq!(refused.expect_err("empty").name(), "InvalidArgument");
    }

    #[test]
    fn the_state_of_a_workflow_follows_from_its_counts() {
        let id = WorkflowId::from_uuid(uuid::Uuid::nil());
        let with =
            |counts: [u64; 9]| WorkflowRecord { id, name: "w".into(), created_at: Timestamp::EPOCH, counts, pruned: 0 };
        assert_eq!(with([0, 0, 0, 1, 0, 5, 1, 0, 0]).state(), WorkflowState::Running);
        assert_eq!(with([0, 0, 0, 0, 0, 5, 1, 0, 1]).state(), WorkflowState::Failed);
        assert_eq!(with([0, 0, 0, 0, 0, 5, 0, 0, 1]).state(), WorkflowState::Cancelled);
        assert_eq!(with([0, 0, 0, 0, 0, 5, 0, 0, 0]).state(), WorkflowState::Completed);
    }
}
