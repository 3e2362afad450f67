//! Holds what the processes saw against what the store says at the end.
//!
//! The checker knows nothing of how a store works. It is sound before it is sharp: where a time is known only within
//! bounds, or an outcome not at all, it assumes whatever is in the store's favour. An error at commit means that the
//! call may or may not have happened; either is accepted, never both.

mod ends;
mod flows;
mod gates;
mod leases;
mod slots;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use windlass::JobId;

use self::view::View;
use super::dump::Dump;
use super::history::Line;

/// What must never be seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Invariant {
    /// I1: something acknowledged is not in the store at the end, or half of a batch is.
    Lost,
    /// I2: a job is not terminal after the faults have stopped and everything had time to drain.
    Stuck,
    /// I3: a job was claimed while another lease on it was valid.
    DoubleLease,
    /// I4: a call was accepted from a lease that had expired or was not the newest.
    LateCommit,
    /// I5: a job ended twice, or ran again after its end without a requeue.
    TwoEnds,
    /// I6: a job is COMPLETED and no run of it ever succeeded.
    EmptySuccess,
    /// I7: a job ran more often than it may.
    RunBound,
    /// I8: one idempotency key stands for two jobs.
    Key,
    /// I9: a job ran before, or in spite of, what it depends on.
    Chord,
    /// I10: a slot of a schedule fired twice, or not although it had to, or firings piled up.
    Slot,
    /// I11: a job started before its time.
    Early,
    /// I12: a job is stored, and so run, as another type than it was enqueued as.
    OtherType,
    /// D7: the store's own numbers do not add up, or it contradicts itself.
    Accounting,
    /// K2, K4: more jobs of a gate ran than it admitted when one of them started.
    OverLimit,
    /// K7: more jobs of a gate started in a time than its rate admits.
    OverRate,
    /// K13: a job of an ordered key started before its turn.
    OutOfOrder,
    /// K3: at rest a gate counts what no lease holds.
    Leaked,
    /// K9: at rest a job waits that its gates would let through.
    Starved,
}

impl Invariant {
    /// All of them, in the order of their numbers.
    pub const ALL: [Invariant; 18] = [
        Invariant::Lost,
        Invariant::Stuck,
        Invariant::DoubleLease,
        Invariant::LateCommit,
        Invariant::TwoEnds,
        Invariant::EmptySuccess,
        Invariant::RunBound,
        Invariant::Key,
        Invariant::Chord,
        Invariant::Slot,
        Invariant::Early,
        Invariant::OtherType,
        Invariant::Accounting,
        Invariant::OverLimit,
        Invariant::OverRate,
        Invariant::OutOfOrder,
        Invariant::Leaked,
        Invariant::Starved,
    ];

    /// Its name, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Invariant::Lost => "lost",
            Invariant::Stuck => "stuck",
            Invariant::DoubleLease => "double_lease",
            Invariant::LateCommit => "late_commit",
            Invariant::TwoEnds => "two_ends",
            Invariant::EmptySuccess => "empty_success",
            Invariant::RunBound => "run_bound",
            Invariant::Key => "key",
            Invariant::Chord => "chord",
            Invariant::Slot => "slot",
            Invariant::Early => "early",
            Invariant::OtherType => "other_type",
            Invariant::Accounting => "accounting",
            Invariant::OverLimit => "over_limit",
            Invariant::OverRate => "over_rate",
            Invariant::OutOfOrder => "out_of_order",
            Invariant::Leaked => "leaked",
            Invariant::Starved => "starved",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Something that must never be seen, seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Of which invariant.
    pub invariant: Invariant,
    /// On which job, where it is one.
    pub job: Option<JobId>,
    /// What was seen.
    pub what: String,
}

/// Where violations are gathered.
#[derive(Debug, Default)]
struct Found(Vec<Violation>);

impl Found {
    fn note(&mut self, invariant: Invariant, job: impl Into<Option<JobId>>, what: impl Into<String>) {
        self.0.push(Violation { invariant, job: job.into(), what: what.into() });
    }
}

/// Every violation of a run, in the order of the invariants.
pub fn check(lines: &[Line], dump: &Dump) -> Vec<Violation> {
    let view = View::new(lines, dump);
    let mut found = Found::default();
    ends::lost(&view, &mut found);
    ends::half_batches(&view, &mut found);
    ends::lost_settlements(&view, &mut found);
    ends::stuck(&view, &mut found);
    leases::double_leases(&view, &mut found);
    leases::late_commits(&view, &mut found);
    ends::two_ends(&view, &mut found);
    ends::empty_successes(&view, &mut found);
    ends::run_bounds(&view, &mut found);
    ends::absences(&view, &mut found);
    ends::keys(&view, &mut found);
    flows::orders(&view, &mut found);
    slots::slots(&view, &mut found);
    slots::early(&view, &mut found);
    ends::types(&view, &mut found);
    ends::accounts(&view, &mut found);
    gates::gates(lines, dump, &mut found);
    found.0
}

/// How many violations of each invariant there are; all are named, those without any as 0.
pub fn counts(violations: &[Violation]) -> BTreeMap<&'static str, usize> {
    let mut counts: BTreeMap<_, _> = Invariant::ALL.into_iter().map(|invariant| (invariant.as_str(), 0)).collect();
    for violation in violations {
        *counts.entry(violation.invariant.as_str()).or_default() += 1;
    }
    counts
}
