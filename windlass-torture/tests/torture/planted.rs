//! The checker finds what it is there to find: stores that break the contract on purpose are reported, each under the
//! invariant that it breaks, and the good store under the same load is not.

use std::sync::Arc;
use std::time::Duration;

use windlass::store::{MemoryStore, Store};
use windlass_torture::actors::Tempo;
use windlass_torture::arena::{self, Setting};
use windlass_torture::check::{Invariant, Violation, check};
use windlass_torture::planted::{Bug, Planted};
use windlass_torture::planted_failover::{Failing, FailoverBug};
use windlass_torture::planted_flow::{FlowBug, LeakyGates};

/// Seeds tried before a bug counts as missed: how tasks meet is up to the machine.
const TRIES: u64 = 4;

fn setting(seed: u64) -> Setting {
    Setting {
        seed,
        length: Duration::from_secs(3),
        workers: 3,
        zombies: 6,
        tempo: Tempo { lease: Duration::from_millis(300), pause: Duration::from_millis(5) },
        drain_max: Duration::from_secs(20),
    }
}

async fn torture(store: Arc<dyn Store>, setting: Setting) -> Vec<Violation> {
    let outcome = arena::run(store, setting).await.expect("a store in memory has no errors");
    assert!(outcome.dump.jobs.len() > 100, "only {} jobs: the run proves nothing", outcome.dump.jobs.len());
    check(&outcome.lines, &outcome.dump)
}

/// The checker reports this bug under this invariant, in these words.
async fn is_found(bug: Bug, invariant: Invariant, words: &str) {
    let mut seen = Vec::new();
    for seed in 0..TRIES {
        // A bug in counting attempts shows when attempts are lost again and again: to many zombies, and few workers.
        let often_lost = Setting { workers: 1, zombies: 30, ..setting(seed) };
        let setting = match bug {
            Bug::AttemptsNotCounted => often_lost,
            // What is stuck stays so however long it is waited for.
            Bug::SecondTransaction => Setting { drain_max: Duration::from_secs(4), ..setting(seed) },
            _ => setting(seed),
        };
        let store = Arc::new(Planted::new(Arc::new(MemoryStore::new()), bug));
        let violations = torture(store, setting).await;
        let told = |one: &&Violation| one.invariant == invariant && one.what.contains(words);
        if let Some(found) = violations.iter().find(told) {
            println!("seed {seed}: {found:?}");
            return;
        }
        seen.extend(violations);
    }
    panic!("{bug:?} was not reported as {invariant}, but so: {seen:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_store_is_found_clean() {
    assert_eq!(torture(Arc::new(MemoryStore::new()), setting(1)).await, []);
    let often_lost = Setting { workers: 1, zombies: 30, ..setting(1) };
    assert_eq!(torture(Arc::new(MemoryStore::new()), often_lost).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completion_by_id_alone_is_found() {
    is_found(Bug::CompletionById, Invariant::LateCommit, "a settlement").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expiry_that_is_not_checked_is_found() {
    is_found(Bug::ExpiryNotChecked, Invariant::LateCommit, "a settlement").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_are_not_counted_are_found() {
    is_found(Bug::AttemptsNotCounted, Invariant::RunBound, "ran").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_that_revives_a_lease_is_found() {
    is_found(Bug::HeartbeatRevives, Invariant::LateCommit, "a heartbeat").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_in_a_second_transaction_is_found() {
    is_found(Bug::SecondTransaction, Invariant::Stuck, "PENDING").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_checked_before_the_insert_is_found() {
    is_found(Bug::KeyCheckedFirst, Invariant::Key, "stands for").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_before_the_sync_is_found() {
    is_found(Bug::AckBeforeSync, Invariant::Lost, "is not in the store").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_not_unique_is_found() {
    is_found(Bug::SlotNotUnique, Invariant::Slot, "fired 2 times").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_buffer_of_results_is_found() {
    is_found(Bug::BufferDropped, Invariant::TwoEnds, "ended").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reclaim_that_does_not_look_again_is_found() {
    is_found(Bug::ReclaimUnchecked, Invariant::TwoEnds, "ended").await;
}

/// The checker reports this bug in flow control under this invariant.
async fn flow_bug_is_found(bug: FlowBug, invariant: Invariant) {
    let mut seen = Vec::new();
    for seed in 0..TRIES {
        let setting = Setting { drain_max: Duration::from_secs(4), ..setting(seed) };
        let violations = torture(Arc::new(LeakyGates::new(Arc::new(MemoryStore::new()), bug)), setting).await;
        if let Some(found) = violations.iter().find(|one| one.invariant == invariant) {
            println!("seed {seed}: {found:?}");
            return;
        }
        seen.extend(violations);
    }
    panic!("{bug:?} was not reported as {invariant}, but so: {seen:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_that_are_read_before_the_lock_are_found() {
    flow_bug_is_found(FlowBug::CountsBeforeLock, Invariant::OverLimit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expiry_without_a_note_is_found() {
    flow_bug_is_found(FlowBug::ExpiryWithoutNote, Invariant::Leaked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_for_a_stale_settlement_is_found() {
    flow_bug_is_found(FlowBug::NoteForStale, Invariant::OverLimit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_that_is_cached_for_ever_is_found() {
    flow_bug_is_found(FlowBug::ControlCached, Invariant::OverLimit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_are_given_back_are_found() {
    flow_bug_is_found(FlowBug::TokensGivenBack, Invariant::OverRate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_is_forgotten_at_a_retry_is_found() {
    flow_bug_is_found(FlowBug::OwnerForgotten, Invariant::OutOfOrder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_called_empty_is_found() {
    flow_bug_is_found(FlowBug::CalledEmpty, Invariant::Starved).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recount_that_forgets_notes_is_found() {
    flow_bug_is_found(FlowBug::RecountForgets, Invariant::OverLimit).await;
}

/// Long enough for the store to be away, and back.
fn failing_over(seed: u64) -> Setting {
    Setting { length: Duration::from_secs(9), ..setting(seed) }
}

/// The checker reports this bug of a failover under this invariant, in these words.
async fn failover_bug_is_found(bug: FailoverBug, invariant: Invariant, words: &str) {
    let mut seen = Vec::new();
    for seed in 0..TRIES {
        let setting = if bug == FailoverBug::FenceNotHeld { failing_over(seed) } else { setting(seed) };
        let violations = torture(Arc::new(Failing::planted(bug)), setting).await;
        if let Some(found) = violations.iter().find(|one| one.invariant == invariant && one.what.contains(words)) {
            println!("seed {seed}: {found:?}");
            return;
        }
        seen.extend(violations);
    }
    panic!("{bug:?} was not reported as {invariant}, but so: {seen:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_whose_number_was_drawn_again_is_found() {
    failover_bug_is_found(FailoverBug::LaneWithoutStamp, Invariant::OtherType, "was enqueued as").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn success_on_a_cancelled_wait_for_the_standby_is_found() {
    failover_bug_is_found(FailoverBug::CancelledWait, Invariant::Lost, "is not in the store").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_that_goes_on_while_the_store_is_away_is_found() {
    failover_bug_is_found(FailoverBug::FenceNotHeld, Invariant::RunBound, "lost to an absence").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_store_that_is_away_for_a_while_is_found_clean() {
    assert_eq!(torture(Arc::new(Failing::away(Arc::new(MemoryStore::new()))), failing_over(1)).await, []);
}
