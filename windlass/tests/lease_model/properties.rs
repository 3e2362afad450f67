//! What must hold in every state, what must happen in some, and what must remain possible in all.

use stateright::Property;
use windlass::State;
use windlass::job::ReasonKind;

use super::history::Breach;
use super::key::JobKey;
use super::store::{Answer, Said, Store};
use super::world::{Protocol, World};

// The checker looks every name up for every state, so the names are short and the sentences are here.

/// At most one lease is valid at a time.
pub(crate) const ONE_LEASE: &str = "L1 one valid lease";
/// The lease version grows with every claim and never changes otherwise.
pub(crate) const VERSION_GROWS: &str = "L1 version grows";
/// What is accepted came from the current, unexpired lease.
pub(crate) const CURRENT_LEASE: &str = "L3 current lease only";
/// One outcome at most is accepted per lease.
pub(crate) const ONE_OUTCOME: &str = "D2 one outcome";
/// A stale writer changes nothing.
pub(crate) const STALE_HARMLESS: &str = "L2 stale is harmless";
/// The holder of a valid lease is never refused, and upkeep never takes the job from it.
pub(crate) const HOLDER_HEARD: &str = "L2 holder is heard";
/// A settlement that is sent again is answered as before and changes nothing.
pub(crate) const SAME_ANSWER: &str = "L4 same answer";
/// Terminal states are left only by requeue, and only FAILED and DEAD_LETTER.
pub(crate) const TERMINAL_STAYS: &str = "S17 terminal stays";
/// A COMPLETED job is never executed again.
pub(crate) const COMPLETED_ONCE: &str = "D4 completed once";
/// Every end of an attempt leads to the state that S6 to S14 say.
pub(crate) const TABLE_OBEYED: &str = "S table obeyed";
/// A cancel that was asked for is carried out or overtaken by success when the attempt ends, never carried on.
pub(crate) const CANCEL_KEPT: &str = "S14 cancel kept";
/// A retryable end leads to DEAD_LETTER exactly when failures reach max_attempts: not one early, not one late.
pub(crate) const EXHAUSTION_EXACT: &str = "R2 exhaustion exact";
/// Failures never exceed max_attempts.
pub(crate) const FAILURES_BOUNDED: &str = "R2 failures bounded";
/// Failures are the closed attempts of this generation that count, lost ones included.
pub(crate) const FAILURES_COUNTED: &str = "R2 failures counted";
/// `attempt` is the number of claims in this generation.
pub(crate) const ATTEMPTS_COUNTED: &str = "L1 attempts counted";
/// Upkeep and one new worker can bring the job to an end, however many others are dead.
pub(crate) const NEVER_STUCK: &str = "D1 never stuck";
/// A job that kills all its workers from here on ends after exactly the attempts it had left.
pub(crate) const POISON_ENDS: &str = "F3 poison ends";

pub(crate) fn properties() -> Vec<Property<Protocol>> {
    vec![
        Property::always(ONE_LEASE, |_, world: &World| !world.history.has(Breach::TwoLeases)),
        Property::always(VERSION_GROWS, |_, world: &World| {
            !world.history.has(Breach::Version) && world.store.job.lease_version == world.history.claims
        }),
        Property::always(CURRENT_LEASE, |_, world: &World| !world.history.has(Breach::StaleAccepted)),
        Property::always(ONE_OUTCOME, |_, world: &World| !world.history.has(Breach::SettledTwice)),
        Property::always(STALE_HARMLESS, |_, world: &World| !world.history.has(Breach::StaleWrote)),
        Property::always(HOLDER_HEARD, |_, world: &World| {
            !world.history.has(Breach::HolderRefused) && !world.history.has(Breach::ValidLeaseEnded)
        }),
        Property::always(SAME_ANSWER, |_, world: &World| !world.history.has(Breach::AnswerChanged)),
        Property::always(TERMINAL_STAYS, |_, world: &World| !world.history.has(Breach::TerminalLeft)),
        Property::always(COMPLETED_ONCE, |_, world: &World| !world.history.has(Breach::CompletedRan)),
        Property::always(TABLE_OBEYED, |_, world: &World| !world.history.has(Breach::WrongEnd)),
        Property::always(CANCEL_KEPT, |_, World { store: Store { job, .. }, .. }: &World| {
            !job.cancel_asked || job.state == State::Running
        }),
        Property::always(EXHAUSTION_EXACT, |protocol: &Protocol, world: &World| {
            !world.history.has(Breach::ExhaustionInexact) && exhaustion_fits(protocol, &world.store.job)
        }),
        Property::always(FAILURES_BOUNDED, |protocol: &Protocol, world: &World| {
            world.store.job.failures <= protocol.max_attempts
        }),
        Property::always(FAILURES_COUNTED, |_, world: &World| world.store.job.failures == world.history.counted),
        Property::always(ATTEMPTS_COUNTED, |_, world: &World| world.store.job.attempt == world.history.starts),
        Property::always(NEVER_STUCK, |protocol: &Protocol, world: &World| prospects(protocol, world).can_end),
        Property::always(POISON_ENDS, |protocol: &Protocol, world: &World| prospects(protocol, world).poison_ends),
        Property::sometimes("COMPLETED reached", |_, world: &World| world.store.job.state == State::Completed),
        Property::sometimes("FAILED reached", |_, world: &World| world.store.job.state == State::Failed),
        Property::sometimes("DEAD_LETTER reached", |_, world: &World| world.store.job.state == State::DeadLetter),
        Property::sometimes("CANCELLED reached", |_, world: &World| world.store.job.state == State::Cancelled),
        Property::sometimes("requeued, COMPLETED", |_, world: &World| {
            world.store.job.state == State::Completed && world.store.job.generation == 1
        }),
        Property::sometimes("requeued, exhausted", |_, world: &World| {
            world.store.job.reason == Some(ReasonKind::Exhausted) && world.store.job.generation == 1
        }),
    ]
}

/// A job that goes on has failures to spare; one that was given up has none.
fn exhaustion_fits(protocol: &Protocol, job: &JobKey) -> bool {
    let spent = job.failures >= protocol.max_attempts;
    let given_up = job.reason == Some(ReasonKind::Exhausted);
    (job.state.is_terminal() || !spent)
        && (!given_up || (spent && job.state == State::DeadLetter))
        && (!spent || job.state != State::Completed)
}

/// What can still become of a job when everybody who knows it now is dead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prospects {
    can_end: bool,
    poison_ends: bool,
}

fn prospects(protocol: &Protocol, world: &World) -> Prospects {
    if world.store.job.state.is_terminal() {
        return Prospects { can_end: true, poison_ends: true };
    }
    let mut known = protocol.prospects.lock().expect("no thread panicked");
    *known.entry(world.store.job).or_insert_with_key(|job| Prospects {
        can_end: can_end(protocol, world.store),
        poison_ends: poison_ends(protocol, world.store, job),
    })
}

/// Upkeep alone, as long as it finds something to do: ticks, expiry, `run_at`, the end of the lifetime.
///
/// Ends with a job that is SCHEDULED or has ended; `None` when it does not come to that.
fn upkeep(protocol: &Protocol, mut store: Store) -> Option<Store> {
    // Longer than any lease, backoff and lifetime of the model together.
    for _ in 0..20 {
        match store.job.state {
            _ if store.job.lives_for == Some(0) => protocol.desk(&mut store).end_lifetime(),
            State::Running if store.has_lapsed() => protocol.desk(&mut store).reclaim(),
            State::Delayed | State::Retrying if store.job.run_in == Some(0) => protocol.desk(&mut store).fall_due(),
            State::Running | State::Delayed | State::Retrying | State::Pending => store.job.tick(),
            State::Scheduled | State::Completed | State::Failed | State::DeadLetter | State::Cancelled => {
                return Some(store);
            }
        }
    }
    None
}

/// The state has a way to the end that needs nobody who is in the middle of something.
fn can_end(protocol: &Protocol, store: Store) -> bool {
    let Some(mut store) = upkeep(protocol, store) else { return false };
    if store.job.state != State::Scheduled {
        return store.job.state.is_terminal();
    }
    let failures = store.job.failures;
    protocol.desk(&mut store).claim(0);
    let answer = protocol.desk(&mut store).settle(0, failures, Said::Complete);
    answer == Answer::Applied && store.job.state == State::Completed
}

/// From here on every worker dies of the job: it ends, and an exhausted one after as many attempts as were left.
fn poison_ends(protocol: &Protocol, store: Store, job: &JobKey) -> bool {
    let mut deaths = u8::from(job.state == State::Running);
    let mut store = store;
    while let Some(next) = upkeep(protocol, store) {
        store = next;
        if store.job.state.is_terminal() {
            let exhausted = store.job.reason == Some(ReasonKind::Exhausted);
            return !exhausted || job.failures + deaths == protocol.max_attempts;
        }
        if deaths > protocol.max_attempts {
            return false;
        }
        protocol.desk(&mut store).claim(0);
        deaths += 1;
    }
    false
}
