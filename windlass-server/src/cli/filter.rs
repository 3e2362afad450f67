//! Which jobs: the conditions that lists and bulk verbs share.

use clap::Args;
use windlass::job::{Fingerprint, WorkerId};
use windlass::store::Filter;
use windlass::{JobType, QueueName, State, Timestamp, WorkflowId};

use super::exit::End;
use super::parse::{self, When};

/// The conditions; all that are given must hold.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which jobs")]
pub(crate) struct FilterArgs {
    /// In one of these states; ready, later and dead are known too
    #[arg(long, value_delimiter = ',', value_name = "STATE")]
    state: Vec<States>,
    /// In this queue
    #[arg(short, long, value_name = "QUEUE", value_parser = parse::queue)]
    queue: Option<QueueName>,
    /// Of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = parse::job_type)]
    job_type: Option<JobType>,
    /// With this tag; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse::tag)]
    tags: Vec<(String, String)>,
    /// Of this workflow
    #[arg(long, value_name = "ID")]
    workflow: Option<WorkflowId>,
    /// Fired by this schedule
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,
    /// With this correlation id
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Whose last failure has this code
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Submitted longer ago than this, such as 3d
    #[arg(long, value_name = "AGE", value_parser = parse::duration, conflicts_with = "created_before")]
    older_than: Option<std::time::Duration>,
    /// Submitted since this time or age
    #[arg(long, value_name = "WHEN", value_parser = parse::when)]
    created_after: Option<When>,
    /// Submitted before this time or age
    #[arg(long, value_name = "WHEN", value_parser = parse::when)]
    created_before: Option<When>,
    /// Ended before this time or age
    #[arg(long, value_name = "WHEN", value_parser = parse::when)]
    ended_before: Option<When>,
    /// Ended since this time or age
    #[arg(long, value_name = "WHEN", value_parser = parse::when, hide = true)]
    ended_after: Option<When>,
    /// In the same state since before this time or age
    #[arg(long, value_name = "WHEN", value_parser = parse::when, hide = true)]
    changed_before: Option<When>,
    /// Dead of this fault; `windlass errors` lists them
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: Option<Fingerprint>,
    /// Running on this worker
    #[arg(long, value_name = "WORKER", value_parser = parse::worker, hide = true)]
    worker: Option<WorkerId>,
    /// With this idempotency key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// With this text in payload, failure or tags
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
}

/// A state, or one of the words by which lists of queues gather several.
#[derive(Debug, Clone, PartialEq, Eq)]
struct States(Vec<State>);

impl std::str::FromStr for States {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(States(match text.to_ascii_lowercase().as_str() {
            "ready" => vec![State::Scheduled],
            "later" => vec![State::Pending, State::Delayed, State::Retrying],
            "dead" => vec![State::Failed, State::DeadLetter],
            _ => vec![text.parse().map_err(|error: windlass::Error| error.to_string())?],
        }))
    }
}

impl FilterArgs {
    /// Whether no condition was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.at(Timestamp::EPOCH) == Filter::default()
    }

    /// The filter, as seen at `now`.
    pub(crate) fn at(&self, now: Timestamp) -> Filter {
        let older = self.older_than.map(|age| now.minus(age));
        let mut filter = Filter::new().states(self.state.iter().flat_map(|states| states.0.iter().copied()));
        filter.queue = self.queue.clone();
        filter.job_type = self.job_type.clone();
        filter.tags = parse::tags(&self.tags);
        filter.workflow = self.workflow;
        filter.schedule = self.schedule.clone();
        filter.correlation_id = self.correlation_id.clone();
        filter.code = self.code.clone();
        filter.created_from = self.created_after.map(|when| when.at(now));
        filter.created_before = self.created_before.map(|when| when.at(now)).or(older);
        filter.ended_before = self.ended_before.map(|when| when.at(now));
        filter.ended_from = self.ended_after.map(|when| when.at(now));
        filter.changed_before = self.changed_before.map(|when| when.at(now));
        filter.fingerprint = self.fingerprint;
        filter.worker = self.worker.clone();
        filter.key = self.key.clone();
        filter.text = self.text.clone();
        filter
    }

    /// The filter for an act that only jobs in these states allow.
    pub(crate) fn among(&self, allowed: &[State], act: &str, now: Timestamp) -> Result<Filter, End> {
        let mut filter = self.at(now);
        if filter.states.is_empty() {
            filter.states = allowed.to_vec();
            return Ok(filter);
        }
        if let Some(state) = filter.states.iter().find(|state| !allowed.contains(state)) {
            let names: Vec<_> = allowed.iter().map(|state| state.as_str()).collect();
            return Err(End::usage(format!("cannot {act} jobs that are {state}"))
                .advise(format!("--state may name {} here", names.join(", "))));
        }
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        filter: FilterArgs,
    }

    fn typed(words: &[&str]) -> FilterArgs {
        Typed::try_parse_from([&["windlass"], words].concat()).expect("a filter").filter
    }

    #[test]
    fn conditions_become_a_filter() {
        let now = Timestamp::from_seconds(10_000);
        let filter =
            typed(&["--state", "failed,DEAD_LETTER", "--queue", "mail", "--tag", "a=b", "--older-than", "1h"]).at(now);
        assert_eq!(filter.states, [State::Failed, State::DeadLetter]);
        assert_eq!(filter.queue, QueueName::new("mail").ok());
        assert_eq!(filter.tags.get("a").map(String::as_str), Some("b"));
        assert_eq!(filter.created_before, Some(Timestamp::from_seconds(6400)));
        let gathered = typed(&["--state", "READY,dead"]).at(now).states;
        assert_eq!(gathered, [State::Scheduled, State::Failed, State::DeadLetter]);
        assert!(typed(&[]).is_empty() && !typed(&["--code", "x"]).is_empty());
    }

    #[test]
    fn an_act_takes_only_the_states_that_allow_it() {
        let dead = [State::Failed, State::DeadLetter];
        assert_eq!(typed(&[]).among(&dead, "requeue", Timestamp::EPOCH).expect("all").states, dead);
        let one = typed(&["--state", "failed"]).among(&dead, "requeue", Timestamp::EPOCH).expect("one");
        assert_eq!(one.states, [State::Failed]);
        let refused = typed(&["--state", "running"]).among(&dead, "requeue", Timestamp::EPOCH).expect_err("running");
        assert_eq!(refused.to_string(), "cannot requeue jobs that are RUNNING");
    }

    proptest! {
        #[test]
        fn nothing_typed_as_a_condition_panics(
            name in prop::sample::select(vec![
                "--state", "--queue", "--type", "--tag", "--workflow", "--schedule", "--correlation-id", "--code",
                "--older-than", "--created-after", "--created-before", "--ended-before", "--ended-after", "--changed-before",
                "--fingerprint", "--worker", "--key", "--text",
            ]),
            value in "\\PC{0,40}|[0-9a-zA-Z:+.,=_-]{0,40}",
        ) {
            if let Ok(typed) = Typed::try_parse_from(["windlass".to_owned(), format!("{name}={value}")]) {
                let filter = typed.filter.at(Timestamp::from_seconds(1));
                prop_assert!(!windlass::store::describe(&filter).is_empty());
            }
        }
    }
}
