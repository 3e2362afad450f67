//! Rule D6b and its like: the time in which a store was away, or by which its clock leapt, counts against no living worker.

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, failure, job};
use crate::job::{CODE_LEASE_EXPIRED, Category, Stale, State};
use crate::store::{Extended, Save, Settled};

chapter! {
    r2_an_outage_costs_no_attempt,
    d6b_an_outage_refuses_nothing_that_a_living_worker_decided,
    d6b_what_was_running_saves_after_an_outage,
    d6b_the_lease_of_a_dead_worker_is_taken_back_after_an_outage,
    d6b_what_was_granted_after_an_outage_prolongs_no_grace,
    d6b_an_outage_stretches_no_lifetime,
    l8_a_leap_of_the_clock_expires_no_lease_whose_holder_lives,
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Lets this many seconds pass with upkeep in each, as they do while all is well; gives how many leases were taken back.
async fn well(bench: &Bench, seconds: u64) -> usize {
    let mut expired = bench.upkeep().await.expired;
    for _ in 0..seconds {
        expired += bench.pass(SECOND).await.expired;
    }
    expired
}

async fn r2_an_outage_costs_no_attempt(bench: Bench) {
    bench.clock.mind_absences();
    well(&bench, 2).await;
    let claimed = bench.running(job().max_attempts(1)).await;
    well(&bench, 1).await;
    bench.advance(20 * LEASE);
    assert_eq!(bench.upkeep().await.expired, 0, "nobody could be heard");
    assert!(
        matches!(bench.extend(claimed.lease.key()).await, Extended::Held { expires_in, .. } if expires_in == LEASE)
    );
    // The grace passes, and the lease that was extended holds by itself.
    for _ in 0..LEASE.as_secs() {
        assert_eq!(well(&bench, 1).await, 0);
        assert!(matches!(bench.extend(claimed.lease.key()).await, Extended::Held { .. }));
    }
    let id = claimed.job.id;
    assert_eq!(bench.complete(claimed.lease).await, State::Completed);
    let job = bench.job(id).await;
    assert_eq!((job.attempt, job.failures, job.lost), (1, 0, 0));
    bench.assert_sound().await;
}

async fn d6b_an_outage_refuses_nothing_that_a_living_worker_decided(bench: Bench) {
    bench.clock.mind_absences();
    well(&bench, 2).await;
    let completed = bench.running(job()).await;
    let failed = bench.running(job()).await;
    let interrupted = bench.running(job().max_attempts(1)).await;
    well(&bench, 1).await;
    bench.advance(HOUR);
    // Before anybody noticed that the store was away.
    assert_eq!(bench.complete(completed.lease).await, State::Completed);
    well(&bench, 1).await;
    assert_eq!(bench.apply(failed.lease.fail(failure(Category::Permanent), &mut || 0.5)).await, State::Failed);
    assert_eq!(bench.apply(interrupted.lease.interrupt()).await, State::Scheduled);
    assert_eq!(bench.job(interrupted.job.id).await.failures, 0);
    bench.assert_sound().await;
}

async fn d6b_what_was_running_saves_after_an_outage(bench: Bench) {
    bench.clock.mind_absences();
    well(&bench, 2).await;
    let (one, other) = (bench.running(job()).await, bench.running(job()).await);
    well(&bench, 1).await;
    bench.advance(HOUR);
    let saves =
        [&one, &other].map(|claimed| Save::under(claimed.lease.key()).checkpoint(b"here".to_vec()).expect("small"));
    let saved = bench.store.save(&saves).await.expect("save");
    assert!(saved.iter().all(Result::is_ok), "{saved:?}");
    for claimed in [one, other] {
        assert_eq!(bench.job(claimed.job.id).await.checkpoint.as_deref(), Some(b"here".as_slice()));
    }
}

async fn d6b_the_lease_of_a_dead_worker_is_taken_back_after_an_outage(bench: Bench) {
    bench.clock.mind_absences();
    well(&bench, 2).await;
    let claimed = bench.running(job().max_attempts(1)).await;
    well(&bench, 1).await;
    bench.advance(HOUR);
    let grace = LEASE.as_secs().max(3) + 1;
    assert_eq!(well(&bench, grace).await, 1, "one lease time, and not for ever");
    let settled = bench.settle(&claimed.lease.complete(None)).await;
    assert!(matches!(settled, Settled::Stale(Stale::NotRunning)), "{settled:?}");
    let job = bench.job(claimed.job.id).await;
    assert_eq!((job.state, job.lost), (State::DeadLetter, 1));
    assert_eq!(job.failure.and_then(|failure| failure.code).as_deref(), Some(CODE_LEASE_EXPIRED));
    bench.assert_sound().await;
}

async fn d6b_what_was_granted_after_an_outage_prolongs_no_grace(bench: Bench) {
    bench.clock.mind_absences();
    well(&bench, 2).await;
    let dead = bench.running(job().max_attempts(1)).await;
    well(&bench, 1).await;
    bench.advance(HOUR);
    // Claimed before anybody noticed that the store was away, and run out by the time that somebody does.
    let also_dead = bench.running(job().max_attempts(1)).await;
    bench.advance(LEASE);
    let grace = LEASE.as_secs().max(3) + 1;
    assert_eq!(well(&bench, grace).await, 2, "one lease time, however long the store was away");
    for claimed in [dead, also_dead] {
        assert_eq!(bench.state(claimed.job.id).await, State::DeadLetter);
    }
}

async fn d6b_an_outage_stretches_no_lifetime(bench: Bench) {
    bench.clock.mind_absences();
    well(&bench, 2).await;
    let claimed = bench.running(job().lifetime(HOUR / 2)).await;
    bench.advance(HOUR);
    let key = claimed.lease.key();
    assert_eq!(bench.extend(key).await, Extended::Lost(Stale::Expired));
    let settled = bench.settle(&claimed.lease.complete(None)).await;
    assert!(matches!(settled, Settled::Stale(Stale::Expired)), "{settled:?}");
    assert_eq!(bench.upkeep().await.lifetimes, 1);
    assert_eq!(bench.state(claimed.job.id).await, State::DeadLetter);
}

async fn l8_a_leap_of_the_clock_expires_no_lease_whose_holder_lives(bench: Bench) {
    bench.clock.mind_absences();
    well(&bench, 2).await;
    let claimed = bench.running(job().max_attempts(1)).await;
    well(&bench, 1).await;
    // Less than the execution timeout, which a leap uses up as well (T1b).
    bench.advance(HOUR / 3);
    for _ in 0..2 * LEASE.as_secs() {
        assert_eq!(well(&bench, 1).await, 0);
        assert!(matches!(bench.extend(claimed.lease.key()).await, Extended::Held { .. }));
    }
    let other = bench.running(job()).await;
    assert_eq!(bench.complete(other.lease).await, State::Completed, "nothing else waits");
    assert_eq!(bench.complete(claimed.lease).await, State::Completed);
}
