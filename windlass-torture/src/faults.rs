//! The plan of faults: what goes wrong, when, and to whom. It follows from the seed alone.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// What can be made to go wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A worker is killed with SIGKILL; another takes its place.
    Kill,
    /// A worker is stopped past its lease and woken again.
    Stall,
    /// A worker is told to stop gracefully; another takes its place.
    Term,
    /// PostgreSQL ends the sessions of the run.
    EndSessions,
    /// One PostgreSQL process is killed, and the server restarts all others.
    KillBackend,
    /// The PostgreSQL server is killed and started again.
    KillServer,
    /// The primary of a pair is killed, and its standby promoted.
    FailOver,
    /// The primary of a pair is stopped, and its standby promoted; it is killed later.
    Hang,
    /// The standby of a pair is promoted beside the living primary, which is killed later.
    Split,
    /// The primary of a pair is shut down in order, and its standby promoted.
    SwitchOver,
    /// The standby of a pair is killed; no commit is confirmed until it is back.
    StandbyDies,
    /// The primary of a pair is cut off from everybody, and its standby promoted; it comes back into the network later.
    Partition,
    /// The standby of a pair gets a clock that is an hour off, and is promoted when the primary is killed.
    ClockStep,
    /// The user's own command.
    Command,
    /// Another process holds SQLite's write lock.
    HoldLock,
    /// Another process makes a checkpoint of the SQLite file.
    Checkpoint,
    /// Another process reads from an old snapshot of the SQLite file, so that its log cannot start over.
    HoldSnapshot,
}

impl Kind {
    /// Its name, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Stall => "stall",
            Kind::Term => "term",
            Kind::EndSessions => "end_sessions",
            Kind::KillBackend => "kill_backend",
            Kind::KillServer => "kill_server",
            Kind::FailOver => "fail_over",
            Kind::Hang => "hang",
            Kind::Split => "split",
            Kind::SwitchOver => "switch_over",
            Kind::StandbyDies => "standby_dies",
            Kind::Partition => "partition",
            Kind::ClockStep => "clock_step",
            Kind::Command => "command",
            Kind::HoldLock => "hold_lock",
            Kind::Checkpoint => "checkpoint",
            Kind::HoldSnapshot => "hold_snapshot",
        }
    }

    /// How many seconds lie between two of this kind.
    ///
    /// Workers die all the time. A server needs a second or two to come back, and nothing is learned while it is away.
    const fn every(self) -> f64 {
        match self {
            Kind::Kill | Kind::HoldLock => 1.2,
            Kind::EndSessions => 1.3,
            Kind::Checkpoint => 2.0,
            Kind::Stall | Kind::HoldSnapshot => 2.5,
            Kind::Term => 4.0,
            Kind::Command => 9.0,
            Kind::KillBackend => 12.0,
            Kind::KillServer => 18.0,
            // Each takes some ten seconds until the standby is synchronous again.
            Kind::FailOver => 30.0,
            Kind::Hang | Kind::Split | Kind::SwitchOver | Kind::StandbyDies | Kind::Partition | Kind::ClockStep => 60.0,
        }
    }

    /// The kinds that hit workers, on whatever store.
    pub const WORKERS: [Kind; 3] = [Kind::Kill, Kind::Stall, Kind::Term];
    /// The kinds that hit a primary and its standby, but for [`Partition`](Kind::Partition), for which each needs a network of
    /// its own, and [`ClockStep`](Kind::ClockStep), for which each needs a clock.
    pub const PAIR: [Kind; 5] = [Kind::FailOver, Kind::Hang, Kind::Split, Kind::SwitchOver, Kind::StandbyDies];
    /// The kinds that hit a SQLite file, from another process.
    pub const FILE: [Kind; 3] = [Kind::HoldLock, Kind::Checkpoint, Kind::HoldSnapshot];
}

/// One fault of the plan.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// When, after the start of the run.
    pub at: Duration,
    /// What.
    pub kind: Kind,
    /// A number that chooses whom it hits.
    pub target: usize,
    /// A number from 0 to 1 that says how long it lasts.
    pub length: f64,
}

/// The faults of a run, in the order of time.
///
/// The first comes when there is something to disturb, the last soon enough to be seen through.
pub fn plan(seed: u64, length: Duration, kinds: &[Kind]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for kind in kinds {
        let mut rng = Rng::with_seed(seed ^ (0x6661_756c_7473 + *kind as u64));
        let mut at = 0.5 + rng.f64() * kind.every();
        while at < length.as_secs_f64() - 0.5 {
            let fault =
                Fault { at: Duration::from_secs_f64(at), kind: *kind, target: rng.usize(..), length: rng.f64() };
            faults.push(fault);
            at += kind.every() * (0.5 + rng.f64());
        }
    }
    faults.sort_by_key(|fault| (fault.at, fault.kind));
    faults
}

/// Who fails servers over in a run, if anybody does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailsOver {
    /// Nobody.
    Nobody,
    /// The run itself, on its pair.
    Pair,
    /// The user's command, which said that a standby was promoted.
    Command,
}

impl FailsOver {
    /// How many promotions a run must have seen to count: one in 20 s on a pair; one in 40 s by a command, because a manager lets some time
    /// pass before it promotes.
    pub fn least_promotions(self, length: Duration) -> usize {
        match self {
            FailsOver::Nobody => 0,
            FailsOver::Pair => (length.as_secs_f64() / 20.0) as usize,
            FailsOver::Command => (length.as_secs_f64() / 40.0) as usize,
        }
    }

    /// Whether a run must have seen faults of this kind to count. Faults of servers take turns with failovers, so their number
    /// depends on how long those take; promotions are asked for instead.
    pub fn counts(self, kind: Kind) -> bool {
        self == FailsOver::Nobody || Kind::WORKERS.contains(&kind)
    }
}

/// How many faults of each kind a run must have seen to count: half of what its length gives room for, at least one.
///
/// A kind that comes too rarely for a run this short is not asked for.
pub fn least(length: Duration, kinds: &[Kind]) -> BTreeMap<&'static str, usize> {
    let mut least = BTreeMap::new();
    for kind in kinds {
        let expected = (length.as_secs_f64() - 1.0) / kind.every();
        if expected >= 1.5 {
            least.insert(kind.as_str(), ((expected / 2.0) as usize).max(1));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_same_seed_gives_the_same_plan() {
        let kinds = [Kind::Kill, Kind::Stall, Kind::KillServer];
        assert_eq!(plan(7, MINUTE, &kinds), plan(7, MINUTE, &kinds));
        assert_ne!(plan(7, MINUTE, &kinds), plan(8, MINUTE, &kinds));
    }

    #[test]
    fn a_run_that_fails_over_is_asked_for_promotions_in_place_of_other_faults_of_servers() {
        let asked =
            |who: FailsOver| (who.least_promotions(10 * MINUTE), who.counts(Kind::Command), who.counts(Kind::Kill));
        assert_eq!(asked(FailsOver::Nobody), (0, true, true));
        assert_eq!(asked(FailsOver::Pair), (30, false, true));
        assert_eq!(asked(FailsOver::Command), (15, false, true));
    }

    #[test]
    fn a_plan_holds_twice_what_a_run_must_see() {
        let kinds = [Kind::Kill, Kind::Stall, Kind::Term, Kind::EndSessions, Kind::KillBackend, Kind::KillServer];
        for seed in 0..50 {
            let plan = plan(seed, MINUTE, &kinds);
            for (kind, least) in least(MINUTE, &kinds) {
                let planned = plan.iter().filter(|fault| fault.kind.as_str() == kind).count();
                assert!(planned >= least, "{kind}: {planned} planned, {least} asked for");
            }
        }
    }
}
