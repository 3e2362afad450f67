//! The lease protocol, checked in every state it can reach.
//!
//! Unit tests show that a rule holds in the situations somebody thought of. Here a model checker, [stateright], walks
//! through all situations that one job, two workers, two processes of upkeep and an operator can get into, in every
//! order of their steps, and looks at each of them.
//!
//! # Who does what
//!
//! - A **worker** claims the job, sends heartbeats, decides how the attempt ended (in all eight ways) and sends the
//!   settlement. Between any two of these steps anything else may happen: a worker that takes its next step late is
//!   a stalled one that woke up, a zombie. It may crash and come back knowing nothing. The answer to a settlement
//!   may be lost; then it is sent again, late, perhaps when the job has moved on or belongs to somebody else.
//! - **Upkeep** reads that the lease has expired in one step and acts in another, so that everything can happen in
//!   between. The first process decides under a lock, on the job as it is; the second decides on what it read, and
//!   its write names what it read.
//! - The **operator** cancels politely or by force, at any moment, and requeues the dead job.
//! - The **clock** ticks at any moment. A lease lasts two ticks, backoff and snooze one, the lifetime, in the runs
//!   that have one, three.
//!
//! # What is real and what is model
//!
//! All decisions are the library's: claim, extend, apply and requeue of `JobRecord`, `Lease` and `Settlement`,
//! `Verdict::of_expiry`, `of_cancel` and `of_lifetime`, and `Stale::check`. The model's own store (`store.rs`) does
//! what any store does: checks the token, applies the verdict, remembers how attempts ended. So the model cannot
//! drift from the code. What it does not show is that a store's SQL does the same; the conformance suite does that.
//!
//! A job is kept as the few small numbers that matter (`key.rs`) and becomes a whole record for each decision.
//! Moments are kept as ticks from now, workers and tokens have no names, and a token that all have forgotten may be
//! drawn again: so there are finitely many states, and worlds that differ in names only are one. What could go on
//! for ever is bounded: one requeue, one cancel, one end of an attempt that does not count (the last two are left out
//! of one of the runs with a lifetime, to keep it short).
//!
//! # Gates
//!
//! Flow control has a model of its own (`gate.rs`): two claimers of a controlled queue, settlements that come late and twice,
//! upkeep and an operator who changes the limit. With the lock taken out it finds an overrun.
//!
//! # What is checked
//!
//! An observer (`history.rs`) keeps its own account of every step, from the contract and not from the library. The
//! properties (`properties.rs`) compare the two in every state. Two of them look ahead: from every state, with all
//! who know the job dead, upkeep and a new worker can end it; and if it kills its workers, it ends just in time.
//!
//! A check that cannot fail is worth nothing. Therefore rules are broken on purpose, each in a test of its own that
//! asserts which property notices, and every run must have reached a number of states and seen every kind of answer.
//!
//! To read a counterexample, follow the steps that the checker prints: each is a `Step` of `world.rs`. The number of
//! a worker is its place in the state before the step: busy ones first, so it changes when they change places.

mod gate;
mod history;
mod key;
mod properties;
mod store;
mod world;

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use properties::{CURRENT_LEASE, EXHAUSTION_EXACT, FAILURES_COUNTED, POISON_ENDS, SAME_ANSWER};
use store::Rules;
use world::{Limits, Protocol, Seen};

const LIMITS: Limits = Limits { free: 1, cancels: 1, requeues: 1, overlap: false };
/// Long enough for a claim and a heartbeat, short enough to end in the middle of any attempt.
const LIFETIME_TICKS: u8 = 3;
/// A counterexample is found within seconds; a run that goes on for so long will not find one.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn every_state_of_a_job_with_one_attempt_keeps_the_contract() {
    check_all(Protocol::new(1, None, Rules::Kept, Limits { overlap: true, ..LIMITS }), 40_000);
}

#[test]
fn every_state_of_a_job_with_two_attempts_keeps_the_contract() {
    check_all(Protocol::new(2, None, Rules::Kept, LIMITS), 260_000);
}

#[test]
fn every_state_of_a_job_with_three_attempts_keeps_the_contract() {
    check_all(Protocol::new(3, None, Rules::Kept, LIMITS), 1_000_000);
}

#[test]
fn every_state_of_a_job_with_a_lifetime_keeps_the_contract() {
    check_all(Protocol::new(1, Some(LIFETIME_TICKS), Rules::Kept, LIMITS), 135_000);
}

#[test]
fn every_state_of_a_retried_job_with_a_lifetime_keeps_the_contract() {
    check_all(Protocol::new(2, Some(LIFETIME_TICKS), Rules::Kept, Limits { free: 0, cancels: 0, ..LIMITS }), 79_000);
}

#[test]
fn lost_attempts_that_are_not_counted_are_noticed() {
    check_broken(Rules::LostNotCounted, &[FAILURES_COUNTED, POISON_ENDS]);
}

#[test]
fn exhaustion_one_failure_late_is_noticed() {
    check_broken(Rules::ExhaustedLate, &[EXHAUSTION_EXACT]);
}

#[test]
fn an_expired_lease_that_is_accepted_is_noticed() {
    check_broken(Rules::ExpiredAccepted, &[CURRENT_LEASE]);
}

#[test]
fn a_token_that_is_not_compared_is_noticed() {
    check_broken(Rules::TokenIgnored, &[CURRENT_LEASE]);
}

#[test]
fn a_repeated_settlement_that_is_not_recognised_is_noticed() {
    check_broken(Rules::RepeatsForgotten, &[SAME_ANSWER]);
}

#[test]
fn upkeep_that_acts_on_an_old_reading_is_noticed() {
    check_broken(Rules::OldReadingApplied, &[EXHAUSTION_EXACT]);
}

#[test]
fn every_state_of_two_claimers_at_a_gate_keeps_its_limits() {
    let start = Instant::now();
    let checker = gate::Claims(gate::Lock::Kept).checker().threads(2).spawn_bfs().join();
    let (states, steps, elapsed) = (checker.unique_state_count(), checker.state_count(), start.elapsed());
    println!("two claimers at a gate: {states} states, {steps} steps, {elapsed:.1?}");
    checker.assert_properties();
    assert!(states >= 300_000, "only {states} states");
}

#[test]
fn claimers_that_do_not_wait_for_each_other_overrun_a_gate() {
    let wanted = HasDiscoveries::AllOf([gate::WITHIN_LIMIT].into_iter().collect());
    let checker = gate::Claims(gate::Lock::TakenOut).checker().finish_when(wanted).timeout(PATIENCE).spawn_bfs().join();
    let path = checker.discovery(gate::WITHIN_LIMIT).expect("without the lock a gate is overrun");
    println!("{:?}", path.into_actions());
}

/// Walks through all states. Fewer than `states_min` would mean that the model has lost some of its steps.
fn check_all(protocol: Protocol, states_min: usize) {
    let (max_attempts, lifetime) = (protocol.max_attempts, protocol.fixed.submitted().lives_for);
    let start = Instant::now();
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    let (states, steps, elapsed) = (checker.unique_state_count(), checker.state_count(), start.elapsed());
    println!("max_attempts {max_attempts}, lifetime {lifetime:?}: {states} states, {steps} steps, {elapsed:.1?}");
    checker.assert_properties();
    assert!(states >= states_min, "only {states} states");
    for seen in Seen::ALL {
        let expected = seen != Seen::LifetimeEnded || lifetime.is_some();
        assert_eq!(checker.model().tally.of(seen) > 0, expected, "{seen:?}");
    }
}

/// Walks until all of `caught_by` have a counterexample.
fn check_broken(rules: Rules, caught_by: &[&'static str]) {
    let protocol = Protocol::new(2, None, rules, LIMITS);
    let wanted = HasDiscoveries::AllOf(caught_by.iter().copied().collect());
    let checker = protocol.checker().finish_when(wanted).timeout(PATIENCE).spawn_bfs().join();
    println!("{rules:?}: {} states", checker.unique_state_count());
    for property in caught_by {
        let path = checker.discovery(property).unwrap_or_else(|| panic!("{rules:?} was not noticed by {property}"));
        println!("«{property}» noticed it: {:?}", path.into_actions());
    }
}
