//! What an observer writes down who sees everything and trusts nobody.
//!
//! The observer keeps its own account of leases, claims and failures, from the contract alone: it never asks the
//! library. Properties of states are read off that account; properties of steps become a [`Breach`] in it. As long as
//! the code is right the account follows from the job, so it adds no states.

use windlass::State;

use super::key::JobKey;
use super::store::{Answer, Said};

/// A step that the contract does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Breach {
    /// Somebody was given the job while another's lease was valid.
    TwoLeases,
    /// A lease version did not grow at a claim, or changed elsewhere.
    Version,
    /// A settlement or heartbeat was accepted that did not come from the current, unexpired lease.
    StaleAccepted,
    /// A second outcome was accepted for one lease.
    SettledTwice,
    /// A writer was refused and yet something changed.
    StaleWrote,
    /// The holder of a valid lease was refused.
    HolderRefused,
    /// The same settlement was answered otherwise the second time.
    AnswerChanged,
    /// Upkeep ended a lease that was valid.
    ValidLeaseEnded,
    /// A terminal state was left otherwise than by requeue, or requeue left one that it must not.
    TerminalLeft,
    /// A COMPLETED job was claimed.
    CompletedRan,
    /// An attempt's end led to another state than the contract says, exhaustion aside.
    WrongEnd,
    /// The job was given up too early or too late.
    ExhaustionInexact,
}

/// The observer's account.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct History {
    /// The token of the lease that is or was last valid, and for how many ticks it still is.
    lease: Option<(u8, u8)>,
    /// Claims ever.
    pub(crate) claims: u8,
    /// Claims in this generation.
    pub(crate) starts: u8,
    /// Closed attempts of this generation that count: failed, dead-lettered, lost.
    pub(crate) counted: u8,
    completed: bool,
    breaches: u16,
}

/// The job before and after a step.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) before: JobKey,
    pub(crate) after: JobKey,
}

/// A settlement as it reached the store, and what became of it.
#[derive(Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) token: u8,
    pub(crate) said: Said,
    /// Whether it had been accepted before; `None` if it arrives for the first time.
    pub(crate) accepted_before: Option<bool>,
    pub(crate) answer: Answer,
}

impl History {
    pub(crate) fn has(&self, breach: Breach) -> bool {
        self.breaches & (1 << breach as u8) != 0
    }

    fn note(&mut self, breach: Breach, happened: bool) {
        self.breaches |= u16::from(happened) << breach as u8;
    }

    fn holds(&self, token: u8) -> bool {
        self.lease.is_some_and(|(current, left)| current == token && left > 0)
    }

    pub(crate) fn ticked(&mut self) {
        if let Some((_, left)) = &mut self.lease {
            *left = left.saturating_sub(1);
        }
    }

    /// Renumbers the token of the lease.
    pub(crate) fn rename(&mut self, mut name: impl FnMut(u8) -> u8) {
        self.lease = self.lease.map(|(token, left)| (name(token), left));
    }

    /// A claim under `token`, for `lease` ticks.
    pub(crate) fn claimed(&mut self, change: Change, token: u8, lease: u8) {
        self.note(Breach::TwoLeases, self.lease.is_some_and(|(_, left)| left > 0));
        self.note(Breach::Version, change.after.lease_version <= change.before.lease_version);
        self.note(Breach::CompletedRan, self.completed);
        self.note(Breach::TerminalLeft, change.before.state.is_terminal());
        self.lease = Some((token, lease));
        self.claims += 1;
        self.starts += 1;
    }

    /// A heartbeat under `token`; `lease` ticks from now if it is accepted.
    pub(crate) fn beaten(&mut self, change: Change, token: u8, accepted: bool, lease: u8) {
        self.note(Breach::StaleAccepted, accepted && !self.holds(token));
        self.note(Breach::HolderRefused, !accepted && self.holds(token));
        self.note(Breach::StaleWrote, !accepted && change.before != change.after);
        self.unmoved(change);
        if accepted {
            self.lease = Some((token, lease));
        }
    }

    /// A settlement arrived, perhaps not for the first time.
    pub(crate) fn delivered(&mut self, change: Change, delivery: Delivery, max_attempts: u8) {
        let Delivery { token, said, accepted_before, answer } = delivery;
        let applied = answer == Answer::Applied;
        let expected = match accepted_before {
            None => answer != Answer::AlreadyApplied,
            Some(true) => answer == Answer::AlreadyApplied,
            Some(false) => matches!(answer, Answer::Stale(_)),
        };
        let refused = matches!(answer, Answer::Stale(_));
        self.note(Breach::StaleAccepted, applied && !self.holds(token));
        self.note(Breach::SettledTwice, applied && accepted_before == Some(true));
        self.note(Breach::HolderRefused, refused && self.holds(token));
        self.note(Breach::AnswerChanged, !expected);
        self.note(Breach::StaleWrote, !applied && change.before != change.after);
        self.unleft(change);
        if applied {
            self.lease = None;
            self.ended(change, Some(said), max_attempts);
        }
    }

    /// Upkeep ended the lease.
    pub(crate) fn reclaimed(&mut self, change: Change, max_attempts: u8) {
        self.note(Breach::ValidLeaseEnded, self.lease.is_some_and(|(_, left)| left > 0));
        self.unleft(change);
        self.lease = None;
        self.ended(change, None, max_attempts);
    }

    /// Somebody or something above the holders moved the job: cancel, the end of its lifetime, `run_at`.
    pub(crate) fn overruled(&mut self, change: Change) {
        self.unleft(change);
        if change.after.state.is_terminal() {
            self.lease = None;
        }
    }

    /// An operator sent the job back.
    pub(crate) fn requeued(&mut self, change: Change) {
        let dead = matches!(change.before.state, State::Failed | State::DeadLetter);
        self.note(Breach::TerminalLeft, !dead || self.completed);
        self.note(Breach::Version, change.after.lease_version != change.before.lease_version);
        self.starts = 0;
        self.counted = 0;
    }

    /// An attempt ended as its holder `said`, or was lost.
    fn ended(&mut self, change: Change, said: Option<Said>, max_attempts: u8) {
        let counts = matches!(said, None | Some(Said::FailTemporarily | Said::FailForGood | Said::DeadLetter));
        self.counted += u8::from(counts);
        let retried = matches!(said, None | Some(Said::FailTemporarily));
        let expected = match said {
            Some(Said::Complete) => State::Completed,
            _ if change.before.cancel_asked => State::Cancelled,
            _ if retried && self.counted == max_attempts => State::DeadLetter,
            None => State::Scheduled,
            Some(Said::FailTemporarily) => State::Retrying,
            Some(Said::FailForGood) => State::Failed,
            Some(Said::DeadLetter) => State::DeadLetter,
            Some(Said::Snooze) => State::Delayed,
            Some(Said::Cancel) => State::Cancelled,
            Some(Said::Release | Said::Interrupt) => State::Scheduled,
        };
        let wrong = change.after.state != expected;
        let about_exhaustion = retried && [change.after.state, expected].contains(&State::DeadLetter);
        self.note(Breach::ExhaustionInexact, wrong && about_exhaustion);
        self.note(Breach::WrongEnd, wrong && !about_exhaustion);
        self.completed |= change.after.state == State::Completed;
    }

    /// Nothing but a requeue leaves a terminal state, and nothing but a claim changes the version.
    fn unleft(&mut self, Change { before, after }: Change) {
        self.note(Breach::TerminalLeft, before.state.is_terminal() && before != after);
        self.note(Breach::Version, before.lease_version != after.lease_version);
    }

    /// A heartbeat changes the end of the lease and nothing else, and makes it no shorter.
    fn unmoved(&mut self, Change { before, after }: Change) {
        self.unleft(Change { before, after });
        self.note(Breach::WrongEnd, JobKey { lease: before.lease, ..after } != before || after.lease < before.lease);
    }
}
