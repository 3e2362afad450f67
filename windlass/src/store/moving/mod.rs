//! Moving a store into another one while producers and workers use it.
//!
//! Two sides. The **source** notes which jobs, workflows and keys change from the beginning on, by triggers that are there
//! only while it is moved, so that nobody else pays and no process can forget to. The **target** is empty, refuses everybody
//! else, and takes over the source's key of ids and its sequences: ids and lease tokens of both SQL stores are made alike
//! (`store/ids.rs`), so they lead to their jobs in the target without any table of aliases.
//!
//! The phases, each of bounded steps (`plan.rs`):
//! 1. *copy*: everything in the order of its names, a page at a time, while the source works;
//! 2. *catch up*: what was noted is read again as it is now and written over the copy. A note is forgotten only after the
//!    target has committed, so a step may happen twice and never not at all;
//! 3. *pause*: the source is held by its own lock, the last notes and the small records follow;
//! 4. *switch*: the commit that lets go of the source says where it went, and from then on every write there is refused;
//!    this one commit decides. Before it the source goes on as if nothing had been, after it only the target does;
//! 5. *open*: the target takes writes;
//! 6. *verify*: both sides as they were at the switch, counted and summed up.
//!
//! Killed anywhere, the marks of both sides say which of these it was. A run that goes on writes its name into both marks first, and every
//! transaction of a run looks for its own name there: one that was stopped, or whose last call is still under way, cannot write
//! old things over new ones. Refused: a log of events as the source of truth, which
//! both stores forget after a while, and copying from one long snapshot, which keeps a SQLite log from being cut.

mod closed;
mod following;
mod plan;
mod sums;

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use self::closed::{Closed, closed};
pub use self::following::{Following, OpenStore};
pub use self::plan::{Finished, Move, Phase, Progress, Watcher, begin, undo};
pub use self::sums::Sums;
use super::observe::{LaneRecord, Sample, SampleStep};
use super::rules::Entry;
use super::{ActRecord, Totals};
use crate::error::{Error, Result};
use crate::flow::{ControlRecord, Gate};
use crate::job::{AttemptRecord, DependencyKind, JobId, LeaseToken, QueueName, WorkflowId};
use crate::schedule::ScheduleRecord;
use crate::time::Timestamp;
use crate::workflow::Sequence;

/// Which side of a move a store is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Its jobs go.
    Source,
    /// Its jobs come.
    Target,
}

/// How far one side is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The source is the store that counts.
    Copying,
    /// The target is.
    Switched,
}

/// What a store remembers of a move, in itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// Both sides of one move have the same.
    pub id: String,
    /// Which side it is.
    pub side: Side,
    /// The URL of the other side, without its password.
    pub other: String,
    /// How far it is.
    pub stage: Stage,
    /// Up to where everything was copied, on the target.
    pub copied: Option<Name>,
    /// Which run of the program goes on with it; whatever an earlier run still attempts is refused.
    #[serde(default)]
    pub runner: String,
}

impl Mark {
    /// Checks that the run with this mark still goes on with the move, by what the store remembers in the transaction that is
    /// to write. A run that was stopped for a while, or killed with a call under way, comes too late then.
    pub fn check_runner(&self, stored: Option<&Mark>) -> Result<()> {
        match stored {
            Some(stored) if stored.id == self.id && stored.runner == self.runner => Ok(()),
            Some(stored) if stored.id == self.id => {
                Err(Error::Conflict("another run of the program goes on with this move".to_owned()))
            }
            _ => Err(Error::Conflict("this move was undone".to_owned())),
        }
    }
}

/// What is copied as one, and noted when it changes. Copied in this order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    /// A job with its attempts, log lines and dependencies.
    Job(Sequence),
    /// A workflow's record.
    Workflow(Sequence),
    /// An idempotency key, by its scope and itself.
    Key(String, String),
}

/// Things as they are in a store.
#[derive(Clone, Default, Debug)]
pub struct Part {
    /// Jobs, with all that is theirs.
    pub jobs: Vec<MovedJob>,
    /// Records of workflows.
    pub workflows: Vec<MovedWorkflow>,
    /// Idempotency keys.
    pub keys: Vec<MovedKey>,
    /// What was asked for and is not there.
    pub gone: Vec<Name>,
}

/// A job, and all that belongs to it alone.
#[derive(Clone, Debug)]
pub struct MovedJob {
    /// The job as it is stored: one that has fallen due since is still DELAYED or RETRYING here.
    pub entry: Entry,
    /// Its place among the ends, if it has ended; only the order counts.
    pub ended: i64,
    /// What it depends on.
    pub edges: Vec<MovedEdge>,
    /// Its closed attempts, oldest first, with the token each was held under.
    pub attempts: Vec<(LeaseToken, AttemptRecord)>,
    /// Its log lines, oldest first.
    pub logs: Vec<MovedLine>,
}

/// That a job depends on another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MovedEdge {
    /// The job that is waited for.
    pub parent: Sequence,
    /// How.
    pub kind: DependencyKind,
    /// Whether it has not ended yet.
    pub open: bool,
}

/// A log line of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedLine {
    /// The lease version of the attempt.
    pub version: u64,
    /// When it reached the store.
    pub at: Timestamp,
    /// The line.
    pub text: String,
}

/// A workflow's record; its counts follow from its jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedWorkflow {
    /// Its place in the order of submission.
    pub sequence: Sequence,
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: String,
    /// When it was started.
    pub created_at: Timestamp,
    /// How many of its jobs are gone.
    pub pruned: u64,
}

/// An idempotency key, as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedKey {
    /// Its scope.
    pub scope: String,
    /// The key.
    pub key: String,
    /// The job that it stands for, which may be gone.
    pub job: JobId,
    /// What a job that is the same is recognised by.
    pub fingerprint: Vec<u8>,
    /// The number of what it holds until.
    pub until: u8,
    /// The first submission of those that replaced each other.
    pub first_at: Timestamp,
    /// When its time is over.
    pub expires_at: Option<Timestamp>,
    /// When upkeep looks at it.
    pub look_at: Option<Timestamp>,
}

/// The small records, and the numbers that only count.
#[derive(Clone, Debug)]
pub struct Rest {
    /// The store's time.
    pub at: Timestamp,
    /// The highest sequence that was drawn.
    pub last_sequence: Sequence,
    /// The numbers of the whole store.
    pub totals: Totals,
    /// The numbers of every lane.
    pub lanes: Vec<LaneRecord>,
    /// Queues, and whether each is paused.
    pub queues: Vec<(QueueName, bool)>,
    /// Flow control.
    pub flow: Flow,
    /// Schedules.
    pub schedules: Vec<ScheduleRecord>,
    /// What operators did, oldest first.
    pub acts: Vec<ActRecord>,
    /// Numbers over time that the target does not have yet.
    pub samples: Vec<(SampleStep, Sample)>,
}

/// The flow control of queues.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Flow {
    /// What each controlled queue has been told.
    pub controls: Vec<(QueueName, ControlRecord)>,
    /// What is kept of their gates, by the name it is stored under. What runs in each is counted anew.
    pub gates: Vec<(QueueName, String, Gate)>,
}

/// What a store holds, by name.
#[async_trait]
pub trait Contents: Send + Sync + fmt::Debug {
    /// The next names, in their order.
    async fn names(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>>;

    /// What has these names.
    async fn read(&self, names: &[Name]) -> Result<Part>;
}

/// A store that can be moved, or moved into. Each call is one transaction, but for those under [`hold`](Self::hold).
#[async_trait]
pub trait Movable: Contents {
    /// What the store remembers of a move.
    async fn mark(&self) -> Result<Option<Mark>>;

    /// Takes a move over from the run that went on with it before: from now on every write of that one is refused
    /// ([`Mark::check_runner`]). Gives the mark as it is then.
    async fn take_over(&self, id: &str, runner: &str) -> Result<Mark>;

    // The source.

    /// The key of its ids.
    async fn id_key(&self) -> Result<Vec<u8>>;

    /// Notes from now on what changes, and keeps the mark.
    async fn watch(&self, mark: &Mark) -> Result<()>;

    /// Notes no longer what changes, and forgets the mark.
    async fn unwatch(&self) -> Result<()>;

    /// Notes of changes, oldest first.
    async fn changes(&self, limit: usize) -> Result<Vec<(i64, Name)>>;

    /// Forgets notes by their numbers, which are in ascending order.
    async fn forget_changes(&self, numbers: &[i64], mark: &Mark) -> Result<()>;

    /// Keeps everybody else from writing until [`leave`](Self::leave) or [`let_go`](Self::let_go). What is read meanwhile is
    /// read under it.
    async fn hold(&self) -> Result<()>;

    /// Ends a hold, with everything as it was before.
    async fn let_go(&self);

    /// The highest sequence that was drawn.
    async fn last_sequence(&self) -> Result<Sequence>;

    /// The flow control of its queues.
    async fn flow(&self) -> Result<Flow>;

    /// Ends a hold: refuses all writes from now on, saying where the store went.
    async fn leave(&self, mark: &Mark) -> Result<()>;

    // The target.

    /// Takes an empty store for a move: from now on it refuses everybody else, and its ids have this key. A handle that was
    /// opened before must not be used for anything else.
    async fn take_in(&self, mark: &Mark, id_key: &[u8]) -> Result<()>;

    /// Writes over what was copied before, and keeps the mark.
    async fn write(&self, part: &Part, mark: &Mark) -> Result<()>;

    /// Writes the small records and the numbers.
    async fn write_rest(&self, rest: &Rest, mark: &Mark) -> Result<()>;

    /// The contents as they are now, whatever is written later.
    async fn snapshot(&self) -> Result<Box<dyn Contents>>;

    /// Lets everybody write.
    async fn open_up(&self, mark: &Mark) -> Result<()>;

    /// Removes what the move needed and nobody else does, once nothing more is read of it.
    async fn clear(&self, _mark: &Mark) -> Result<()> {
        Ok(())
    }

    /// Removes all that was copied, and the mark.
    async fn give_up(&self) -> Result<()>;
}

/// How many jobs of a lane were removed from each terminal state, and how many left it otherwise, as far as the numbers of the lane tell:
/// in the order of [`ended_place`](super::ended_place).
pub fn departures(lane: &LaneRecord) -> [(u64, u64); 4] {
    let there: u64 = lane.states.iter().sum();
    let mut removed = lane.accepted.saturating_sub(there);
    std::array::from_fn(|place| {
        let now = lane.states[5 + place];
        let left = lane.ended[place].saturating_sub(now);
        let gone = left.min(removed);
        removed -= gone;
        (gone, left - gone)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobType;

    #[test]
    fn jobs_go_before_workflows_and_these_before_keys() {
        let key = Name::Key("t:mail".to_owned(), "7".to_owned());
        let mut names = vec![key.clone(), Name::Workflow(2), Name::Job(9), Name::Job(1)];
        names.sort();
        assert_eq!(names, [Name::Job(1), Name::Job(9), Name::Workflow(2), key]);
    }

    #[test]
    fn only_the_run_whose_name_is_kept_goes_on() {
        let mark = |id: &str, runner: &str| {
            let (id, other, runner) = (id.to_owned(), "memory:".to_owned(), runner.to_owned());
            Mark { id, side: Side::Target, other, stage: Stage::Copying, copied: None, runner }
        };
        let mine = mark("move", "first");
        let ended = Mark { stage: Stage::Switched, copied: Some(Name::Job(7)), ..mine.clone() };
        assert!(mine.check_runner(Some(&ended)).is_ok());
        let problem = |stored: Option<&Mark>| mine.check_runner(stored).expect_err("it is refused").to_string();
        assert!(problem(Some(&mark("move", "second"))).contains("another run of the program"));
        assert!(problem(Some(&mark("another", "first"))).contains("undone"));
        assert!(problem(None).contains("undone"));
    }

    #[test]
    fn departures_add_up_to_what_the_lane_counted() {
        let names = (QueueName::new("mail").expect("valid"), JobType::new("welcome").expect("valid"));
        let mut lane = LaneRecord::new(names.0, names.1);
        lane.accepted = 10;
        lane.states = [1, 0, 2, 1, 0, 1, 1, 0, 0];
        // Four were removed; of seven ends two are there, and one failed job was requeued.
        lane.ended = [4, 3, 0, 0];
        assert_eq!(departures(&lane), [(3, 0), (1, 1), (0, 0), (0, 0)]);
    }
}
