//! Which jobs are meant: by a list, a count, or an act on many.

use std::collections::BTreeMap;

use crate::job::{Fingerprint, JobRecord, JobType, QueueName, State, WorkerId, WorkflowId};
use crate::time::Timestamp;

/// Which jobs; every condition that is set must hold.
///
/// ```
/// use windlass::State;
/// use windlass::store::Filter;
///
/// let dead = Filter::new().states([State::Failed, State::DeadLetter]).code("card_declined").tag("tenant", "7");
/// assert_eq!(dead.states.len(), 2);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Filter {
    /// In one of these states; empty for any.
    pub states: Vec<State>,
    /// In this queue.
    pub queue: Option<QueueName>,
    /// Of this type.
    pub job_type: Option<JobType>,
    /// With all of these tags.
    pub tags: BTreeMap<String, String>,
    /// Of this workflow.
    pub workflow: Option<WorkflowId>,
    /// Fired by the schedule of this name.
    pub schedule: Option<String>,
    /// With this correlation id.
    pub correlation_id: Option<String>,
    /// Whose last failure has this code.
    pub code: Option<String>,
    /// Submitted at or after this moment.
    pub created_from: Option<Timestamp>,
    /// Submitted before this moment.
    pub created_before: Option<Timestamp>,
    /// Ended before this moment.
    pub ended_before: Option<Timestamp>,
    /// Ended at or after this moment.
    pub ended_from: Option<Timestamp>,
    /// Changed its state for the last time before this moment. A set that is frozen by it gains no job: one that comes into
    /// it, or leaves it and comes back, has changed later.
    pub changed_before: Option<Timestamp>,
    /// Dead of this fault.
    pub fingerprint: Option<Fingerprint>,
    /// Running under a lease of this worker.
    pub worker: Option<WorkerId>,
    /// That this idempotency key stands for, in any scope, until upkeep forgets the key after its window.
    pub key: Option<String>,
    /// With this text in its payload, in the message of its last failure or in its tags; letters of ASCII match in both cases.
    pub text: Option<String>,
}

impl Filter {
    /// Every job; say which with the methods below, each of which leaves fewer.
    pub fn new() -> Self {
        Filter::default()
    }

    /// Only jobs in one of these states.
    #[must_use]
    pub fn states(mut self, states: impl IntoIterator<Item = State>) -> Self {
        self.states = states.into_iter().collect();
        self
    }

    /// Only jobs in this queue.
    #[must_use]
    pub fn queue(mut self, queue: QueueName) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Only jobs of this type.
    #[must_use]
    pub fn job_type(mut self, job_type: JobType) -> Self {
        self.job_type = Some(job_type);
        self
    }

    /// Only jobs with this tag, beside those asked for before.
    #[must_use]
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(key.into(), value.into());
        self
    }

    /// Only jobs of this workflow.
    #[must_use]
    pub fn workflow(mut self, workflow: WorkflowId) -> Self {
        self.workflow = Some(workflow);
        self
    }

    /// Only jobs that the schedule of this name fired.
    #[must_use]
    pub fn schedule(mut self, name: impl Into<String>) -> Self {
        self.schedule = Some(name.into());
        self
    }

    /// Only jobs with this correlation id.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Only jobs whose last failure has this code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Only jobs submitted at or after the first moment and before the second.
    #[must_use]
    pub fn created(mut self, moments: std::ops::Range<Timestamp>) -> Self {
        (self.created_from, self.created_before) = (Some(moments.start), Some(moments.end));
        self
    }

    /// Only jobs that ended at or after the first moment and before the second.
    #[must_use]
    pub fn ended(mut self, moments: std::ops::Range<Timestamp>) -> Self {
        (self.ended_from, self.ended_before) = (Some(moments.start), Some(moments.end));
        self
    }

    /// Only jobs that run under a lease of this worker.
    #[must_use]
    pub fn worker(mut self, worker: WorkerId) -> Self {
        self.worker = Some(worker);
        self
    }

    /// Only the jobs that this idempotency key stands for.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Only jobs with this text in their payload, in the message of their last failure or in their tags.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Whether a job matches.
    pub fn matches(&self, job: &JobRecord) -> bool {
        fn asked<T: PartialEq + ?Sized>(wanted: Option<&T>, is: Option<&T>) -> bool {
            wanted.is_none() || wanted == is
        }
        let options = &job.spec.options;
        (self.states.is_empty() || self.states.contains(&job.state))
            && asked(self.queue.as_ref(), Some(&job.spec.queue))
            && asked(self.job_type.as_ref(), Some(&job.spec.job_type))
            && self.tags.iter().all(|(key, value)| options.tags.get(key) == Some(value))
            && asked(self.workflow.as_ref(), job.workflow_id.as_ref())
            && asked(self.schedule.as_deref(), job.firing.as_ref().map(|firing| firing.schedule.as_str()))
            && asked(self.correlation_id.as_deref(), options.correlation_id.as_deref())
            && asked(self.code.as_deref(), job.failure.as_ref().and_then(|failure| failure.code.as_deref()))
            && self.created_from.is_none_or(|from| job.created_at >= from)
            && self.created_before.is_none_or(|before| job.created_at < before)
            && self.ended_before.is_none_or(|before| job.completed_at.is_some_and(|at| at < before))
            && self.ended_from.is_none_or(|from| job.completed_at.is_some_and(|at| at >= from))
            && self.changed_before.is_none_or(|before| job.updated_at < before)
            && (self.fingerprint.is_none() || self.fingerprint == job.fault())
            && asked(self.worker.as_ref(), job.lease.as_ref().map(|lease| &lease.worker))
            && asked(self.key.as_deref(), options.idempotency.as_ref().map(|idempotency| idempotency.key.as_str()))
            && self.text.as_deref().is_none_or(|text| holds(job, text))
    }

    /// The mark by which the jobs are found, if a tag or a correlation id is asked for: its name and value, as in
    /// [`JobOptions::marks`](crate::job::JobOptions::marks).
    pub fn mark(&self) -> Option<(String, &str)> {
        crate::job::marks(&self.tags, self.correlation_id.as_deref()).next()
    }

    /// The correlation id and the tags that are asked for, without [the mark](Self::mark) where the jobs were found by it.
    pub(crate) fn labels(&self, found_by_mark: bool) -> (Option<&str>, Vec<(&str, &str)>) {
        let by_tag = found_by_mark && self.correlation_id.is_none();
        let tags = self.tags.iter().skip(usize::from(by_tag)).map(|(key, value)| (key.as_str(), value.as_str()));
        (self.correlation_id.as_deref().filter(|_| !found_by_mark), tags.collect())
    }

    /// The states in which a job can match at all, each once and in order; `None` for any.
    pub fn possible_states(&self) -> Option<Vec<State>> {
        let all = [self.states.is_empty(), self.worker.is_none(), self.fingerprint.is_none()];
        let possible = |state: &State| {
            (self.states.is_empty() || self.states.contains(state))
                && (self.worker.is_none() || *state == State::Running)
                && (self.fingerprint.is_none() || matches!(state, State::Failed | State::DeadLetter))
        };
        (all != [true; 3]).then(|| State::ALL.into_iter().filter(possible).collect())
    }
}

/// Whether bytes hold a text; letters of ASCII match in both cases.
pub(crate) fn within(bytes: &[u8], text: &str) -> bool {
    let Some(first) = text.as_bytes().first() else { return true };
    let same = |part: &[u8]| part[0].eq_ignore_ascii_case(first) && part.eq_ignore_ascii_case(text.as_bytes());
    bytes.windows(text.len()).any(same)
}

/// Whether a text stands in JSON that was written here as it is. Most characters do.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn is_plain_in_json(text: &str) -> bool {
    !text.contains(|letter: char| letter.is_ascii_control() || matches!(letter, '"' | '\\'))
}

/// Whether a string in JSON that was written here may hold a text; only a no is certain.
#[cfg(feature = "sqlite")]
pub(crate) fn may_be_in_json(json: &str, text: &str) -> bool {
    !is_plain_in_json(text) || within(json.as_bytes(), text)
}

/// Whether a job has this text in what people wrote into it.
fn holds(job: &JobRecord, text: &str) -> bool {
    let within = |bytes: &[u8]| within(bytes, text);
    let tags = job.spec.options.tags.iter().flat_map(|(key, value)| [key, value]);
    text.is_empty()
        || within(job.spec.payload.as_bytes())
        || job.failure.as_ref().is_some_and(|failure| within(failure.message.as_bytes()))
        || tags.into_iter().any(|tag| within(tag.as_bytes()))
}
