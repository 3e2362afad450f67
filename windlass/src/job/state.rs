//! The state machine: one total function over (state, event), without a wildcard.
//!
//! Everything that may happen to a job is an [`Event`]; [`State::after`] says where it leads or that it is impossible.
//! Stores apply its answers and invent none. `docs/states.md` is printed from here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Where a job stands. It is in exactly one state at any instant.
///
/// May be matched in full: the rules know nine states, and one more would be a breaking change of what they promise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    /// Awaits its dependencies.
    Pending = 0,
    /// Awaits `run_at`.
    Delayed = 1,
    /// May be claimed now.
    Scheduled = 2,
    /// Leased to a worker.
    Running = 3,
    /// Awaits the end of its backoff.
    Retrying = 4,
    /// Ended well.
    Completed = 5,
    /// Ended by a permanent failure, or one whose category is not retried.
    Failed = 6,
    /// Ended because attempts or lifetime ran out, or because somebody said so.
    DeadLetter = 7,
    /// Ended because somebody asked.
    Cancelled = 8,
}

/// The four-state view for simple tools (rule S18).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SimpleState {
    /// Waits: for dependencies, a time, a worker or the end of a backoff.
    Ready,
    /// Leased to a worker.
    InFlight,
    /// Ended well.
    Succeeded,
    /// Ended otherwise.
    Failed,
}

impl SimpleState {
    /// All four.
    pub const ALL: [SimpleState; 4] =
        [SimpleState::Ready, SimpleState::InFlight, SimpleState::Succeeded, SimpleState::Failed];
}

/// What can happen to a stored job. Each is one line of the contract's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// S2: the last dependency was met, and `run_at` has passed or was never set.
    DependenciesMet,
    /// S2: the last dependency was met, and `run_at` is still ahead.
    DependenciesMetEarly,
    /// S3: a dependency FAILED.
    DependencyFailed,
    /// S3: a dependency ended in DEAD_LETTER.
    DependencyDeadLettered,
    /// S3: a dependency was CANCELLED.
    DependencyCancelled,
    /// S4: `run_at` was reached.
    Due,
    /// S5: a worker claimed it.
    Claimed,
    /// S6: its handler succeeded.
    Completed,
    /// S7: a retryable failure, with attempts left.
    Retried,
    /// S8: a retryable failure that used up the last attempt.
    Exhausted,
    /// S8: the handler dead-lettered it explicitly.
    DeadLettered,
    /// S9: a permanent failure, or a category that is not retried.
    Failed,
    /// S10: the lease expired, with attempts left.
    LeaseLost,
    /// S10 under `lost_backoff`: the lease expired, and the job waits its backoff first.
    LeaseLostBackoff,
    /// S10: graceful shutdown interrupted the attempt.
    Interrupted,
    /// S10: given back before its handler started.
    Released,
    /// S11: the lease expired, with no attempt left.
    LeaseLostExhausted,
    /// S12: the handler snoozed.
    Snoozed,
    /// S13: cancelled while it was not running.
    Cancelled,
    /// S14: cancel had been asked for, and the attempt ended in anything but success.
    CancelSettled,
    /// S14: cancelled by force: the lease is revoked at once.
    CancelForced,
    /// S15: its lifetime is over.
    LifetimeEnded,
    /// S16: an operator sent it back, to run now.
    Requeued,
    /// S16: an operator sent it back, to run later.
    RequeuedLater,
    /// S16 with W7: an operator sent it back together with the jobs it depends on.
    RequeuedPending,
    /// S16b: an operator dead-lettered it.
    OperatorDeadLettered,
}

/// The pair of state and event that the contract does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{event:?} cannot happen to a job that is {state}")]
pub struct IllegalTransition {
    /// The state the job is in.
    pub state: State,
    /// What was to happen to it.
    pub event: Event,
}

impl State {
    /// All nine, in the order of the contract.
    pub const ALL: [State; 9] = [
        State::Pending,
        State::Delayed,
        State::Scheduled,
        State::Running,
        State::Retrying,
        State::Completed,
        State::Failed,
        State::DeadLetter,
        State::Cancelled,
    ];

    /// The state that a job in this state has after `event`, or that there is no such transition.
    pub fn after(self, event: Event) -> Result<State, IllegalTransition> {
        let illegal = Err(IllegalTransition { state: self, event });
        match self {
            State::Pending => pending_after(event, illegal),
            State::Delayed | State::Retrying => waiting_after(event, illegal),
            State::Scheduled => scheduled_after(event, illegal),
            State::Running => running_after(event, illegal),
            State::Failed => failed_after(event, illegal),
            State::DeadLetter => dead_letter_after(event, illegal),
            State::Completed | State::Cancelled => illegal,
        }
    }

    /// Whether the job has ended.
    pub const fn is_terminal(self) -> bool {
        match self {
            State::Completed | State::Failed | State::DeadLetter | State::Cancelled => true,
            State::Pending | State::Delayed | State::Scheduled | State::Running | State::Retrying => false,
        }
    }

    /// Whether the job is in the dead-letter queue.
    pub const fn is_dead(self) -> bool {
        matches!(self, State::Failed | State::DeadLetter)
    }

    /// The four-state view (rule S18).
    pub const fn simple(self) -> SimpleState {
        match self {
            State::Pending | State::Delayed | State::Scheduled | State::Retrying => SimpleState::Ready,
            State::Running => SimpleState::InFlight,
            State::Completed => SimpleState::Succeeded,
            State::Failed | State::DeadLetter | State::Cancelled => SimpleState::Failed,
        }
    }

    /// Lower case with underscores, as in SQL, JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Delayed => "delayed",
            State::Scheduled => "scheduled",
            State::Running => "running",
            State::Retrying => "retrying",
            State::Completed => "completed",
            State::Failed => "failed",
            State::DeadLetter => "dead_letter",
            State::Cancelled => "cancelled",
        }
    }

    /// The number a store keeps for it; [`State::from_number`] reads it back.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The state with this number, if there is one.
    pub fn from_number(number: u8) -> Option<State> {
        State::ALL.get(usize::from(number)).copied()
    }
}

type Next = Result<State, IllegalTransition>;

fn pending_after(event: Event, illegal: Next) -> Next {
    match event {
        Event::DependenciesMet => Ok(State::Scheduled),
        Event::DependenciesMetEarly => Ok(State::Delayed),
        Event::DependencyFailed => Ok(State::Failed),
        Event::DependencyDeadLettered | Event::LifetimeEnded | Event::OperatorDeadLettered => Ok(State::DeadLetter),
        Event::DependencyCancelled | Event::Cancelled => Ok(State::Cancelled),
        Event::Due
        | Event::Claimed
        | Event::Completed
        | Event::Retried
        | Event::Exhausted
        | Event::DeadLettered
        | Event::Failed
        | Event::LeaseLost
        | Event::LeaseLostBackoff
        | Event::Interrupted
        | Event::Released
        | Event::LeaseLostExhausted
        | Event::Snoozed
        | Event::CancelSettled
        | Event::CancelForced
        | Event::Requeued
        | Event::RequeuedLater
        | Event::RequeuedPending => illegal,
    }
}

fn waiting_after(event: Event, illegal: Next) -> Next {
    match event {
        Event::Due => Ok(State::Scheduled),
        Event::Cancelled => Ok(State::Cancelled),
        Event::LifetimeEnded | Event::OperatorDeadLettered => Ok(State::DeadLetter),
        Event::DependenciesMet
        | Event::DependenciesMetEarly
        | Event::DependencyFailed
        | Event::DependencyDeadLettered
        | Event::DependencyCancelled
        | Event::Claimed
        | Event::Completed
        | Event::Retried
        | Event::Exhausted
        | Event::DeadLettered
        | Event::Failed
        | Event::LeaseLost
        | Event::LeaseLostBackoff
        | Event::Interrupted
        | Event::Released
        | Event::LeaseLostExhausted
        | Event::Snoozed
        | Event::CancelSettled
        | Event::CancelForced
        | Event::Requeued
        | Event::RequeuedLater
        | Event::RequeuedPending => illegal,
    }
}

fn scheduled_after(event: Event, illegal: Next) -> Next {
    match event {
        Event::Claimed => Ok(State::Running),
        Event::Cancelled => Ok(State::Cancelled),
        Event::LifetimeEnded | Event::OperatorDeadLettered => Ok(State::DeadLetter),
        Event::DependenciesMet
        | Event::DependenciesMetEarly
        | Event::DependencyFailed
        | Event::DependencyDeadLettered
        | Event::DependencyCancelled
        | Event::Due
        | Event::Completed
        | Event::Retried
        | Event::Exhausted
        | Event::DeadLettered
        | Event::Failed
        | Event::LeaseLost
        | Event::LeaseLostBackoff
        | Event::Interrupted
        | Event::Released
        | Event::LeaseLostExhausted
        | Event::Snoozed
        | Event::CancelSettled
        | Event::CancelForced
        | Event::Requeued
        | Event::RequeuedLater
        | Event::RequeuedPending => illegal,
    }
}

fn running_after(event: Event, illegal: Next) -> Next {
    match event {
        Event::Completed => Ok(State::Completed),
        Event::Retried | Event::LeaseLostBackoff => Ok(State::Retrying),
        Event::Exhausted
        | Event::DeadLettered
        | Event::LeaseLostExhausted
        | Event::LifetimeEnded
        | Event::OperatorDeadLettered => Ok(State::DeadLetter),
        Event::Failed => Ok(State::Failed),
        Event::LeaseLost | Event::Interrupted | Event::Released => Ok(State::Scheduled),
        Event::Snoozed => Ok(State::Delayed),
        Event::CancelSettled | Event::CancelForced => Ok(State::Cancelled),
        Event::DependenciesMet
        | Event::DependenciesMetEarly
        | Event::DependencyFailed
        | Event::DependencyDeadLettered
        | Event::DependencyCancelled
        | Event::Due
        | Event::Claimed
        | Event::Cancelled
        | Event::Requeued
        | Event::RequeuedLater
        | Event::RequeuedPending => illegal,
    }
}

fn failed_after(event: Event, illegal: Next) -> Next {
    match event {
        Event::OperatorDeadLettered => Ok(State::DeadLetter),
        Event::DependenciesMet
        | Event::DependenciesMetEarly
        | Event::DependencyFailed
        | Event::DependencyDeadLettered
        | Event::DependencyCancelled
        | Event::Due
        | Event::Claimed
        | Event::Completed
        | Event::Retried
        | Event::Exhausted
        | Event::DeadLettered
        | Event::Failed
        | Event::LeaseLost
        | Event::LeaseLostBackoff
        | Event::Interrupted
        | Event::Released
        | Event::LeaseLostExhausted
        | Event::Snoozed
        | Event::Cancelled
        | Event::CancelSettled
        | Event::CancelForced
        | Event::LifetimeEnded
        | Event::Requeued
        | Event::RequeuedLater
        | Event::RequeuedPending => dead_letter_after(event, illegal),
    }
}

fn dead_letter_after(event: Event, illegal: Next) -> Next {
    match event {
        Event::Requeued => Ok(State::Scheduled),
        Event::RequeuedLater => Ok(State::Delayed),
        Event::RequeuedPending => Ok(State::Pending),
        Event::DependenciesMet
        | Event::DependenciesMetEarly
        | Event::DependencyFailed
        | Event::DependencyDeadLettered
        | Event::DependencyCancelled
        | Event::Due
        | Event::Claimed
        | Event::Completed
        | Event::Retried
        | Event::Exhausted
        | Event::DeadLettered
        | Event::Failed
        | Event::LeaseLost
        | Event::LeaseLostBackoff
        | Event::Interrupted
        | Event::Released
        | Event::LeaseLostExhausted
        | Event::Snoozed
        | Event::Cancelled
        | Event::CancelSettled
        | Event::CancelForced
        | Event::LifetimeEnded
        | Event::OperatorDeadLettered => illegal,
    }
}

impl Event {
    /// All events, in the order of the contract's table.
    pub const ALL: [Event; 26] = [
        Event::DependenciesMet,
        Event::DependenciesMetEarly,
        Event::DependencyFailed,
        Event::DependencyDeadLettered,
        Event::DependencyCancelled,
        Event::Due,
        Event::Claimed,
        Event::Completed,
        Event::Retried,
        Event::Exhausted,
        Event::DeadLettered,
        Event::Failed,
        Event::LeaseLost,
        Event::LeaseLostBackoff,
        Event::Interrupted,
        Event::Released,
        Event::LeaseLostExhausted,
        Event::Snoozed,
        Event::Cancelled,
        Event::CancelSettled,
        Event::CancelForced,
        Event::LifetimeEnded,
        Event::Requeued,
        Event::RequeuedLater,
        Event::RequeuedPending,
        Event::OperatorDeadLettered,
    ];

    /// The rule of the contract that this event is an instance of.
    pub const fn rule(self) -> &'static str {
        match self {
            Event::DependenciesMet | Event::DependenciesMetEarly => "S2",
            Event::DependencyFailed | Event::DependencyDeadLettered | Event::DependencyCancelled => "S3",
            Event::Due => "S4",
            Event::Claimed => "S5",
            Event::Completed => "S6",
            Event::Retried => "S7",
            Event::Exhausted | Event::DeadLettered => "S8",
            Event::Failed => "S9",
            Event::LeaseLost | Event::LeaseLostBackoff | Event::Interrupted | Event::Released => "S10",
            Event::LeaseLostExhausted => "S11",
            Event::Snoozed => "S12",
            Event::Cancelled => "S13",
            Event::CancelSettled | Event::CancelForced => "S14",
            Event::LifetimeEnded => "S15",
            Event::Requeued | Event::RequeuedLater | Event::RequeuedPending => "S16",
            Event::OperatorDeadLettered => "S16b",
        }
    }

    /// What happened, in the words of the contract.
    pub const fn trigger(self) -> &'static str {
        match self {
            Event::DependenciesMet => "last dependency met, run_at past or absent",
            Event::DependenciesMetEarly => "last dependency met, run_at still ahead",
            Event::DependencyFailed => "a dependency ended FAILED",
            Event::DependencyDeadLettered => "a dependency ended DEAD_LETTER",
            Event::DependencyCancelled => "a dependency ended CANCELLED",
            Event::Due => "run_at reached",
            Event::Claimed => "claim",
            Event::Completed => "success",
            Event::Retried => "retryable failure, attempts remain",
            Event::Exhausted => "retryable failure, failures reach max_attempts",
            Event::DeadLettered => "the handler dead-letters it explicitly",
            Event::Failed => "permanent failure, or a category configured not to retry",
            Event::LeaseLost => "lease expired with attempts left (counted)",
            Event::LeaseLostBackoff => "lease expired with attempts left, setting lost_backoff",
            Event::Interrupted => "interrupted by graceful shutdown (not counted)",
            Event::Released => "released before its handler started (not counted)",
            Event::LeaseLostExhausted => "lease expired, no attempt left",
            Event::Snoozed => "snooze (not counted)",
            Event::Cancelled => "cancel",
            Event::CancelSettled => {
                "cancel was asked and the attempt ended in anything but success, or its lease expired"
            }
            Event::CancelForced => "forced cancel, lease revoked at once",
            Event::LifetimeEnded => "lifetime exceeded, a running lease is revoked",
            Event::Requeued => "requeue by an operator",
            Event::RequeuedLater => "requeue by an operator with a later run_at",
            Event::RequeuedPending => "requeue by an operator while a dependency is unfinished",
            Event::OperatorDeadLettered => "dead-lettered by an operator, with a reason",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Pending => "PENDING",
            State::Delayed => "DELAYED",
            State::Scheduled => "SCHEDULED",
            State::Running => "RUNNING",
            State::Retrying => "RETRYING",
            State::Completed => "COMPLETED",
            State::Failed => "FAILED",
            State::DeadLetter => "DEAD_LETTER",
            State::Cancelled => "CANCELLED",
        })
    }
}

impl FromStr for State {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = State::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(text));
        known.ok_or_else(|| {
            let names: Vec<_> = State::ALL.iter().map(|state| state.as_str()).collect();
            Error::invalid("state", format!("{:?} is none of {}", super::id::shorten(text), names.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s17_ended_jobs_are_left_only_by_requeue_and_operators() {
        for state in State::ALL.into_iter().filter(|state| state.is_terminal()) {
            for event in Event::ALL {
                let allowed = match state {
                    State::Completed | State::Cancelled => false,
                    State::DeadLetter => event.rule() == "S16",
                    _ => matches!(event.rule(), "S16" | "S16b"),
                };
                assert_eq!(state.after(event).is_ok(), allowed, "{state} {event:?}");
            }
        }
    }

    #[test]
    fn only_a_claim_leads_to_running() {
        for state in State::ALL {
            for event in Event::ALL {
                if state.after(event) == Ok(State::Running) {
                    assert_eq!((state, event), (State::Scheduled, Event::Claimed));
                }
            }
        }
    }

    #[test]
    fn every_event_happens_to_some_state_and_numbers_read_back() {
        for event in Event::ALL {
            assert!(State::ALL.iter().any(|state| state.after(event).is_ok()), "{event:?}");
        }
        for state in State::ALL {
            assert_eq!(State::from_number(state.number()), Some(state));
            assert_eq!(state.as_str().parse::<State>().ok(), Some(state));
        }
    }
}
