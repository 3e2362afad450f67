//! What lists show of jobs and of everything around them.

use serde::Serialize;
use windlass::job::{AttemptRecord, JobRecord, LogLine, State};
use windlass::schedule::{ScheduleRecord, Timing};
use windlass::store::{ActRecord, QueueRecord, WorkerRecord};
use windlass::workflow::{WorkflowRecord, WorkflowState};
use windlass::{JobType, Timestamp, job};

use super::output::Row;
use super::table::{Cell, both, clean, cut, relative, span};
use crate::figures::number;
use crate::wire;

/// How much of a message a table shows.
const MESSAGE_CHARS: usize = 60;

/// A moment in a table: short, or whole.
fn time(at: Option<Timestamp>, wide: bool, now: Timestamp) -> Cell {
    match at {
        None => Cell::new("-"),
        Some(at) if wide => Cell::new(at.to_string()),
        Some(at) => Cell::new(relative(at, now)),
    }
}

fn or_dash(text: Option<impl AsRef<str>>) -> Cell {
    text.map_or(Cell::new("-"), Cell::new)
}

impl Row for JobRecord {
    fn headings(wide: bool) -> Vec<&'static str> {
        let mut headings = vec!["ID", "STATE", "TYPE", "QUEUE", "PRIORITY", "ATTEMPT", "CREATED", "NOTE"];
        if wide {
            headings.splice(7..7, ["UPDATED", "ENDED", "WORKER", "WORKFLOW", "TAGS"]);
        }
        headings
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        let options = &self.spec.options;
        let mut cells = vec![
            Cell::new(self.id.to_string()),
            Cell::state(self.state),
            Cell::new(self.spec.job_type.as_str()),
            Cell::new(self.spec.queue.as_str()),
            Cell::new(self.effective_priority().as_str()),
            Cell::new(format!("{}/{}", self.attempt, options.retry.max_attempts)),
            time(Some(self.created_at), wide, now),
        ];
        if wide {
            let tags: Vec<_> = options.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
            cells.extend([
                time(Some(self.updated_at), wide, now),
                time(self.completed_at, wide, now),
                or_dash(self.lease.as_ref().map(|lease| lease.worker.as_str())),
                or_dash(self.workflow_id.map(|id| id.to_string())),
                or_dash(Some(tags.join(",")).filter(|tags| !tags.is_empty())),
            ]);
        }
        cells.push(Cell::new(note(self, wide, now)));
        cells
    }

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn wire(&self) -> impl Serialize {
        wire::Job::from(self)
    }
}

/// The one thing to know of a job beside its state.
pub(crate) fn note(job: &JobRecord, wide: bool, now: Timestamp) -> String {
    let moment = |at: Timestamp| if wide { at.to_string() } else { relative(at, now) };
    match job.state {
        State::Pending => format!("waits for {}", super::table::jobs(job.spec.depends_on.len() as u64)),
        State::Delayed => job.run_at.map_or_else(String::new, |at| format!("runs {}", moment(at))),
        State::Retrying => {
            let again = job.run_at.map_or_else(String::new, |at| format!("again {}: ", moment(at)));
            format!("{again}{}", failure(job.failure.as_ref(), wide))
        }
        State::Running if job.cancel.is_some() => "asked to stop".to_owned(),
        State::Running => match &job.progress {
            Some(progress) => format!("{:.0}% {}", progress.fraction * 100.0, progress.message),
            None => job.started_at.map_or_else(String::new, |at| format!("for {}", span(now.since(at)))),
        },
        State::Failed | State::DeadLetter => failure(job.failure.as_ref(), wide),
        State::Cancelled => job.reason.as_ref().and_then(|reason| reason.message.clone()).unwrap_or_default(),
        State::Scheduled | State::Completed => String::new(),
    }
}

/// A failure in a line: its code and its message.
pub(crate) fn failure(failure: Option<&job::FailureRecord>, whole: bool) -> String {
    let Some(failure) = failure else { return String::new() };
    let code = failure.code.as_deref().unwrap_or(failure.category.as_str());
    let text = format!("{}: {}", clean(code), clean(&failure.message));
    if whole { text } else { cut(&text, MESSAGE_CHARS) }
}

/// A job of the dead-letter queue: how it ended comes first.
#[derive(Debug)]
pub(crate) struct Dead(pub(crate) JobRecord);

impl Row for Dead {
    fn headings(wide: bool) -> Vec<&'static str> {
        let mut headings = vec!["ID", "STATE", "TYPE", "QUEUE", "FAILURES", "ENDED", "FAILURE"];
        if wide {
            headings.splice(6..6, ["REASON", "GENERATION", "CREATED", "WORKFLOW"]);
        }
        headings
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        let job = &self.0;
        let mut cells = vec![
            Cell::new(job.id.to_string()),
            Cell::state(job.state),
            Cell::new(job.spec.job_type.as_str()),
            Cell::new(job.spec.queue.as_str()),
            Cell::new(format!("{}/{}", job.failures, job.spec.options.retry.max_attempts)),
            time(job.completed_at, wide, now),
        ];
        if wide {
            cells.extend([
                or_dash(job.reason.as_ref().map(|reason| reason.kind.as_str())),
                Cell::new(job.generation.to_string()),
                time(Some(job.created_at), wide, now),
                or_dash(job.workflow_id.map(|id| id.to_string())),
            ]);
        }
        cells.push(Cell::new(failure(job.failure.as_ref(), wide)));
        cells
    }

    fn id(&self) -> String {
        self.0.id.to_string()
    }

    fn wire(&self) -> impl Serialize {
        wire::Job::from(&self.0)
    }
}

impl Row for AttemptRecord {
    fn headings(wide: bool) -> Vec<&'static str> {
        let mut headings = vec!["GENERATION", "ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WORKER", "FAILURE"];
        if wide {
            headings.splice(6..6, ["ENDED", "LEASE", "ID"]);
        }
        headings
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        let took = self.ended_at.unwrap_or(now).since(self.started_at);
        let mut cells = vec![
            Cell::new(self.generation.to_string()),
            Cell::new(self.number.to_string()),
            Cell::new(self.outcome.map_or("running", job::Outcome::as_str)),
            time(Some(self.started_at), wide, now),
            Cell::new(span(took)),
            Cell::new(self.worker.as_str()),
        ];
        if wide {
            cells.extend([
                time(self.ended_at, wide, now),
                Cell::new(self.lease_version.to_string()),
                Cell::new(self.id.to_string()),
            ]);
        }
        cells.push(Cell::new(failure(self.failure.as_ref(), wide)));
        cells
    }

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn wire(&self) -> impl Serialize {
        wire::Attempt::from(self)
    }
}

impl Row for LogLine {
    fn headings(_: bool) -> Vec<&'static str> {
        vec!["AT", "ATTEMPT", "LINE"]
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        vec![time(Some(self.at), wide, now), Cell::new(self.attempt.to_string()), Cell::new(&self.text)]
    }

    fn id(&self) -> String {
        self.attempt.to_string()
    }

    fn wire(&self) -> impl Serialize {
        wire::LogLine::from(self)
    }
}

/// How many of a queue's or workflow's jobs are in a state.
pub(crate) fn count(states: &[u64; 9], state: State) -> u64 {
    states[usize::from(state.number())]
}

/// Whether jobs of a queue may start, and how many may run where it has a limit.
fn status(queue: &QueueRecord) -> String {
    let word = if queue.paused { "paused" } else { "open" };
    match queue.control.as_ref() {
        None => word.to_owned(),
        Some(record) => match record.control.running {
            Some(most) => format!("{word}, runs {} of {most}", number(queue.count(State::Running))),
            None => format!("{word}, controlled"),
        },
    }
}

impl Row for QueueRecord {
    fn headings(wide: bool) -> Vec<&'static str> {
        if wide {
            return vec![
                "QUEUE",
                "STATUS",
                "PENDING",
                "DELAYED",
                "SCHEDULED",
                "RUNNING",
                "RETRYING",
                "COMPLETED",
                "FAILED",
                "DEAD_LETTER",
                "CANCELLED",
                "OLDEST",
            ];
        }
        vec!["QUEUE", "STATUS", "READY", "RUNNING", "LATER", "DEAD", "OLDEST"]
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        let of = |state| count(&self.states, state);
        let mut cells = vec![Cell::new(self.name.as_str()), Cell::new(status(self))];
        if wide {
            cells.extend(self.states.iter().map(|n| Cell::new(number(*n))));
        } else {
            let later = of(State::Pending) + of(State::Delayed) + of(State::Retrying);
            let dead = of(State::Failed) + of(State::DeadLetter);
            cells.extend([of(State::Scheduled), of(State::Running), later, dead].map(|n| Cell::new(number(n))));
        }
        cells.push(match self.oldest_scheduled {
            Some(at) if wide => Cell::new(both(at, now)),
            at => time(at, wide, now),
        });
        cells
    }

    fn id(&self) -> String {
        self.name.to_string()
    }

    fn wire(&self) -> impl Serialize {
        wire::Queue::from(self)
    }
}

impl Row for WorkerRecord {
    fn headings(wide: bool) -> Vec<&'static str> {
        let mut headings = vec!["WORKER", "HOST", "BUSY", "QUEUES", "SEEN"];
        if wide {
            headings.extend(["STARTED", "TYPES"]);
        }
        headings
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        let queues: Vec<_> =
            self.queues.iter().map(|served| format!("{}({}/{})", served.queue, served.busy, served.slots)).collect();
        let busy: u64 = self.queues.iter().map(|served| u64::from(served.busy)).sum();
        let slots: u64 = self.queues.iter().map(|served| u64::from(served.slots)).sum();
        let mut cells = vec![
            Cell::new(self.id.as_str()),
            Cell::new(&self.host),
            Cell::new(format!("{busy}/{slots}{}", if self.draining { " draining" } else { "" })),
            Cell::new(queues.join(" ")),
            time(Some(self.seen_at), wide, now),
        ];
        if wide {
            let types =
                self.types.as_ref().map(|types| types.iter().map(JobType::as_str).collect::<Vec<_>>().join(" "));
            cells
                .extend([time(Some(self.started_at), wide, now), Cell::new(types.unwrap_or_else(|| "any".to_owned()))]);
        }
        cells
    }

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn wire(&self) -> impl Serialize {
        wire::Worker::from(self)
    }
}

/// The state of a workflow in a word.
pub(crate) fn workflow_state(state: WorkflowState) -> &'static str {
    match state {
        WorkflowState::Running => "RUNNING",
        WorkflowState::Completed => "COMPLETED",
        WorkflowState::Failed => "FAILED",
        WorkflowState::Cancelled => "CANCELLED",
    }
}

impl Row for WorkflowRecord {
    fn headings(wide: bool) -> Vec<&'static str> {
        let mut headings = vec!["ID", "STATE", "DONE", "DEAD", "CREATED", "NAME"];
        if wide {
            headings.splice(5..5, ["JOBS", "PRUNED"]);
        }
        headings
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        let of = |state| count(&self.counts, state);
        let all: u64 = self.counts.iter().sum::<u64>() + self.pruned;
        let ended: u64 = State::ALL.into_iter().filter(|state| state.is_terminal()).map(of).sum::<u64>() + self.pruned;
        let mut cells = vec![
            Cell::new(self.id.to_string()),
            Cell::new(workflow_state(self.state())),
            Cell::new(format!("{}/{}", number(ended), number(all))),
            Cell::new(number(of(State::Failed) + of(State::DeadLetter))),
            time(Some(self.created_at), wide, now),
        ];
        if wide {
            let jobs = State::ALL.into_iter().filter(|state| of(*state) > 0);
            let jobs: Vec<_> = jobs.map(|state| format!("{}={}", state.as_str(), of(state))).collect();
            cells.extend([Cell::new(jobs.join(" ")), Cell::new(number(self.pruned))]);
        }
        cells.push(Cell::new(&self.name));
        cells
    }

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn wire(&self) -> impl Serialize {
        wire::Workflow::from(self)
    }
}

impl Row for ActRecord {
    fn headings(_: bool) -> Vec<&'static str> {
        vec!["AT", "BY", "ACT", "CHANGED", "TARGET", "REASON"]
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        vec![
            time(Some(self.at), wide, now),
            or_dash(self.by.as_ref()),
            Cell::new(&self.act),
            Cell::new(number(self.changed)),
            Cell::new(&self.target),
            or_dash(self.why.as_ref()),
        ]
    }

    fn id(&self) -> String {
        self.target.clone()
    }

    fn wire(&self) -> impl Serialize {
        wire::RecordedAct::from(self)
    }
}

/// When a schedule fires, in words.
pub(crate) fn timing(timing: &Timing) -> String {
    match timing {
        Timing::Cron(cron) => format!("{} {}", cron.expression(), cron.zone()),
        Timing::Every { every, .. } => format!("every {}", wire::Span(*every)),
        Timing::Delay { after } => format!("{} after each end", wire::Span(*after)),
    }
}

impl Row for ScheduleRecord {
    fn headings(wide: bool) -> Vec<&'static str> {
        let mut headings = vec!["NAME", "STATUS", "WHEN", "TYPE", "NEXT", "LAST", "FIRED"];
        if wide {
            headings.extend(["QUEUE", "VERSION", "LAST JOB", "LAST ERROR"]);
        }
        headings
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<Cell> {
        let next = self.next_at.filter(|_| !self.paused);
        let mut cells = vec![
            Cell::new(&self.spec.name),
            Cell::new(match &self.last_error {
                _ if self.paused => "paused",
                Some(_) => "refused",
                None => "active",
            }),
            Cell::new(timing(&self.spec.timing)),
            Cell::new(self.spec.job.job_type.as_str()),
            time(next, wide, now),
            time(self.last_slot, wide, now),
            Cell::new(number(self.fired)),
        ];
        if wide {
            cells.extend([
                Cell::new(self.spec.job.queue.as_str()),
                Cell::new(self.version.to_string()),
                or_dash(self.last_job.map(|id| id.to_string())),
                or_dash(self.last_error.as_ref().map(|error| clean(&error.message))),
            ]);
        }
        cells
    }

    fn id(&self) -> String {
        self.spec.name.clone()
    }

    fn wire(&self) -> impl Serialize {
        wire::Schedule::from(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M14: what a worker sends as a code must not speak to the operator's terminal.
    #[test]
    fn m14_a_failures_code_is_cleaned() {
        let mut failure = job::FailureRecord::new(windlass::Category::Permanent, "m", windlass::Timestamp::EPOCH);
        failure.code = Some("\u{1b}]0;PWNED\u{7}\u{1b}[2J".to_owned());
        for whole in [true, false] {
            let text = super::failure(Some(&failure), whole);
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
    }
}
