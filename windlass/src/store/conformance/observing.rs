//! Section 11 of the contract: the numbers of lanes (O1), and what is remembered of them.

use std::time::Duration;

use super::Bench;
use super::bench::{LEASE, job, no_jitter};
use super::moves::{CANCEL, job_type, named, queue, requeue};
use crate::job::{Failure, State};
use crate::store::{Act, LaneRecord, LaneSample, Retention, Sample, SampleStep, Upkeep, bucket};
use crate::time::Timestamp;

chapter! {
    o1_lanes_agree_with_totals_in_every_state,
    o1_what_lanes_remember_only_grows,
    o1_retried_and_lost_attempts_are_counted,
    o1_lanes_are_told_apart_by_queue_and_type,
    o1_recent_ends_say_how_long_jobs_waited_and_ran,
    o1_a_sample_is_kept_once_and_read_in_order,
    o1_samples_are_forgotten_in_time,
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Bench {
    async fn lanes(&self) -> Vec<LaneRecord> {
        let seen = self.store.observe(None).await.expect("observe");
        assert_eq!(seen.now, self.now());
        assert_eq!(seen.totals(), self.totals().await, "totals are the sum of lanes");
        assert!(seen.lanes.is_sorted_by(|one, next| (&one.queue, &one.job_type) < (&next.queue, &next.job_type)));
        seen.lanes
    }

    /// The lane of plain jobs.
    async fn lane(&self) -> LaneRecord {
        let plain = |lane: &LaneRecord| lane.queue == queue("default") && lane.job_type == job_type("test");
        self.lanes().await.into_iter().find(plain).expect("a lane")
    }
}

async fn o1_lanes_agree_with_totals_in_every_state(bench: Bench) {
    assert!(bench.lanes().await.is_empty());
    bench.one_of_each().await;
    let lane = bench.lane().await;
    let totals = bench.totals().await;
    assert_eq!((lane.states, lane.accepted, lane.at_least), (totals.states, totals.accepted, false));
    assert_eq!(lane.ended, [1, 1, 1, 1]);
    // What was DELAYED or RETRYING is SCHEDULED when its time has come, upkeep or not.
    bench.advance(2 * Duration::from_secs(3600));
    let lane = bench.lane().await;
    assert_eq!((lane.count(State::Delayed), lane.count(State::Retrying)), (0, 0));
}

async fn o1_what_lanes_remember_only_grows(bench: Bench) {
    let failed = bench.in_state(State::Failed).await;
    for state in [State::Completed, State::DeadLetter, State::Cancelled] {
        bench.in_state(state).await;
    }
    let before = bench.lane().await;
    assert_eq!((before.accepted, before.ended), (4, [1, 1, 1, 1]));
    bench.act(failed, requeue()).await;
    assert_eq!(bench.lane().await.ended, [1, 1, 1, 1], "a requeued job has ended all the same");
    bench.act(failed, CANCEL).await;
    assert_eq!(bench.lane().await.ended, [1, 1, 1, 2]);
    bench.act(failed, Act::Delete).await;
    let failed = bench.in_state(State::Failed).await;
    bench.act(failed, Act::DeadLetter).await;
    assert_eq!(bench.lane().await.ended, [1, 2, 2, 2], "who is dead-lettered ends a second time");
    bench.advance(DAY);
    let soon = Some(SECOND);
    let retention = Retention { completed: soon, cancelled: soon, failed: soon, dead_letter: soon };
    while bench.store.upkeep(&Upkeep { retention, ..Upkeep::default() }).await.expect("upkeep").more {}
    let lane = bench.lane().await;
    assert_eq!((lane.states, lane.accepted, lane.ended), ([0; 9], 5, [1, 2, 2, 2]), "and what is pruned has been");
    bench.assert_sound().await;
}

async fn o1_retried_and_lost_attempts_are_counted(bench: Bench) {
    let plain = || job().retry(no_jitter(3));
    let first = bench.running(plain()).await;
    bench.fail(first.lease).await;
    assert_eq!((bench.lane().await.retried, bench.lane().await.lost), (1, 0));
    bench.advance(SECOND);
    bench.claim_one().await;
    bench.pass(LEASE).await;
    assert_eq!((bench.lane().await.retried, bench.lane().await.lost), (1, 1));
    // With somebody waiting for it, a failure goes another way through a store.
    let parent = bench.enqueue(plain().queue("waited")).await;
    bench.enqueue(plain().after([parent])).await;
    let claimed = bench.claim_from("waited", 1).await.remove(0);
    bench.apply(claimed.lease.fail(Failure::temporary("no"), &mut || 0.5)).await;
    let waited = bench.lanes().await.into_iter().find(|lane| lane.queue == queue("waited")).expect("a lane");
    assert_eq!((waited.retried, waited.lost, waited.ended), (1, 0, [0; 4]));
    // What ends a job, and what was no failure, is no retry.
    let last = bench.running(job().max_attempts(1).queue("default").priority(crate::job::Priority::Critical)).await;
    bench.fail(last.lease).await;
    let snoozed = bench.running(plain().priority(crate::job::Priority::Critical)).await;
    bench.apply(snoozed.lease.snooze(SECOND)).await;
    assert_eq!((bench.lane().await.retried, bench.lane().await.lost), (1, 1));
}

async fn o1_lanes_are_told_apart_by_queue_and_type(bench: Bench) {
    for (name, in_queue, jobs) in [("a", "one", 1), ("b", "one", 2), ("a", "two", 3)] {
        bench.insert(vec![named(name).queue(in_queue); jobs]).await;
    }
    let told: Vec<_> = bench
        .lanes()
        .await
        .iter()
        .map(|lane| (lane.queue.to_string(), lane.job_type.to_string(), lane.count(State::Scheduled)))
        .collect();
    let expected = [("one", "a", 1), ("one", "b", 2), ("two", "a", 3)];
    assert_eq!(told, expected.map(|(queue, name, count)| (queue.to_owned(), name.to_owned(), count)));
}

async fn o1_recent_ends_say_how_long_jobs_waited_and_ran(bench: Bench) {
    bench.in_state(State::Completed).await;
    bench.advance(SECOND);
    let from = bench.now();
    bench.enqueue(named("slow").queue("mail")).await;
    bench.advance(3 * SECOND);
    let claimed = bench.claim_from("mail", 1).await.remove(0);
    bench.advance(2 * SECOND);
    bench.complete(claimed.lease).await;
    let cancelled = bench.enqueue(job()).await;
    bench.advance(SECOND);
    bench.act(cancelled, CANCEL).await;
    let ends = bench.store.observe(Some(from)).await.expect("observe").ends;
    let told: Vec<_> = ends
        .iter()
        .map(|end| (end.queue.as_str(), end.state, bench.now().since(end.at), end.waited, end.ran))
        .collect();
    let expected = [
        ("default", State::Cancelled, Duration::ZERO, None, None),
        ("mail", State::Completed, SECOND, Some(3 * SECOND), Some(2 * SECOND)),
    ];
    assert_eq!(told, expected, "the newest first, and none from before");
    assert!(bench.store.observe(None).await.expect("observe").ends.is_empty());
}

fn sample(at: Timestamp, accepted: u64) -> Sample {
    let lane = LaneRecord { accepted, ended: [1, 2, 3, 4], ..LaneRecord::new(queue("mail"), job_type("send")) };
    Sample { at, lanes: vec![LaneSample { lane, waits: vec![(bucket(SECOND), 7)], runs: Vec::new() }] }
}

async fn o1_a_sample_is_kept_once_and_read_in_order(bench: Bench) {
    let step = SampleStep::Seconds;
    let first = step.floor(bench.now());
    let moments: Vec<Timestamp> = (0..3).map(|number| first.plus(number * step.every())).collect();
    for at in [moments[1], moments[0], moments[2]] {
        bench.store.put_sample(step, &sample(at, 1)).await.expect("put");
        bench.store.put_sample(step, &sample(at, 2)).await.expect("the second of a moment is no error");
    }
    bench.store.put_sample(SampleStep::Minutes, &sample(SampleStep::Minutes.floor(first), 3)).await.expect("put");
    let all = bench.store.samples(step, Timestamp::EPOCH, Timestamp::MAX).await.expect("samples");
    assert_eq!(all, moments.iter().map(|at| sample(*at, 1)).collect::<Vec<_>>());
    let some = bench.store.samples(step, moments[1], moments[2]).await.expect("samples");
    assert_eq!(some, [sample(moments[1], 1)]);
    let minutes = bench.store.samples(SampleStep::Minutes, Timestamp::EPOCH, Timestamp::MAX).await.expect("samples");
    assert_eq!(minutes.len(), 1, "each step has its own");
}

async fn o1_samples_are_forgotten_in_time(bench: Bench) {
    for step in SampleStep::ALL {
        bench.store.put_sample(step, &sample(step.floor(bench.now()), 1)).await.expect("put");
    }
    let kept = async |step| bench.store.samples(step, Timestamp::EPOCH, Timestamp::MAX).await.expect("samples").len();
    bench.advance(SampleStep::Seconds.kept() + SampleStep::Seconds.every());
    for step in SampleStep::ALL {
        bench.store.put_sample(step, &sample(step.floor(bench.now()), 1)).await.expect("put");
    }
    assert_eq!(kept(SampleStep::Seconds).await, 1, "seconds are kept for an hour");
    assert_eq!((kept(SampleStep::Minutes).await, kept(SampleStep::Quarters).await), (2, 2));
}
