//! Remembers the numbers over time: every 10 s an observation of the store is kept in it as a sample.
//!
//! Claims and settlements pay nothing for it, and a restart loses nothing. Several servers of one store need no leader: all
//! numbers only grow or are taken at one moment, and of two samples of the same moment the store keeps the first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use windlass::store::{EndRecord, LaneRecord, LaneSample, Sample, SampleStep, Store, bucket};
use windlass::{JobType, QueueName, Result, Timestamp};

/// Most lanes that a sample tells apart: a row stays small, and nobody looks at more lines.
const LANES_MAX: usize = 200;
/// The name of the queue and of the type under which all other lanes are added up.
const OTHER: &str = "other";

type Names = (QueueName, JobType);

/// How often durations fell into each bucket.
type Histogram = BTreeMap<u8, u32>;

/// Waits and run times of one lane.
#[derive(Clone, Debug, Default)]
struct Durations {
    waits: Histogram,
    runs: Histogram,
}

/// What was seen since the last sample of a step.
#[derive(Debug, Default)]
struct Since {
    written: Option<Timestamp>,
    durations: BTreeMap<Names, Durations>,
}

/// Takes samples of a store.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    seen_to: Option<Timestamp>,
    steps: [Since; SampleStep::ALL.len()],
}

impl Recorder {
    /// Takes samples until `stopping`.
    pub(super) async fn run(mut self, store: Arc<dyn Store>, stopping: CancellationToken) {
        loop {
            let begun = Instant::now();
            match self.take(&*store).await {
                Ok(()) => tracing::debug!(took = ?begun.elapsed(), "a sample was taken"),
                // The store's own failures are told where they concern somebody; here there is only a gap.
                Err(error) => tracing::debug!(%error, "no sample was taken"),
            }
            let step = SampleStep::Seconds;
            let pause = match store.now().await {
                Ok(now) => step.floor(now).plus(step.every()).since(now),
                Err(_) => step.every(),
            };
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(pause.max(Duration::from_millis(1))) => {}
            }
        }
    }

    /// Looks at the store, and keeps the samples whose moment has come.
    pub(super) async fn take(&mut self, store: &dyn Store) -> Result<()> {
        let from = match self.seen_to {
            Some(seen_to) => seen_to.plus(Duration::from_micros(1)),
            None => store.now().await?.minus(SampleStep::Seconds.every()),
        };
        let seen = store.observe(Some(from)).await?;
        self.seen_to = Some(seen.now);
        for since in &mut self.steps {
            seen.ends.iter().for_each(|end| since.see(end));
        }
        for (step, since) in SampleStep::ALL.into_iter().zip(&mut self.steps) {
            let at = step.floor(seen.now);
            if since.written != Some(at) {
                let durations = std::mem::take(&mut since.durations);
                store.put_sample(step, &Sample { at, lanes: sampled(&seen.lanes, durations) }).await?;
                since.written = Some(at);
            }
        }
        Ok(())
    }
}

impl Since {
    fn see(&mut self, end: &EndRecord) {
        let durations = self.durations.entry((end.queue.clone(), end.job_type.clone())).or_default();
        for (histogram, duration) in [(&mut durations.waits, end.waited), (&mut durations.runs, end.ran)] {
            if let Some(duration) = duration {
                *histogram.entry(bucket(duration)).or_default() += 1;
            }
        }
    }
}

/// The lanes with their durations: those with the most jobs ever, and one for all others.
fn sampled(lanes: &[LaneRecord], mut durations: BTreeMap<Names, Durations>) -> Vec<LaneSample> {
    let mut lanes: Vec<&LaneRecord> = lanes.iter().collect();
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.accepted));
    let (named, others) = lanes.split_at(lanes.len().min(LANES_MAX));
    let mut of = |lane: &LaneRecord| durations.remove(&(lane.queue.clone(), lane.job_type.clone())).unwrap_or_default();
    let sample = |lane: LaneRecord, seen: Durations| LaneSample {
        lane,
        waits: seen.waits.into_iter().collect(),
        runs: seen.runs.into_iter().collect(),
    };
    let mut samples: Vec<LaneSample> = named.iter().map(|lane| sample((*lane).clone(), of(lane))).collect();
    if let (false, Ok(queue), Ok(job_type)) = (others.is_empty(), QueueName::new(OTHER), JobType::new(OTHER)) {
        let (mut sum, mut seen) = (LaneRecord::new(queue, job_type), Durations::default());
        for lane in others {
            sum.add(lane);
            let other = of(lane);
            for (histogram, more) in [(&mut seen.waits, other.waits), (&mut seen.runs, other.runs)] {
                more.into_iter().for_each(|(number, count)| *histogram.entry(number).or_default() += count);
            }
        }
        samples.push(sample(sum, seen));
    }
    samples
}

#[cfg(test)]
mod tests {
    use windlass::store::{ClaimRequest, MemoryStore};
    use windlass::{Client, ManualClock, NewJob, Payload};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn work(client: &Client, clock: &ManualClock) {
        client.enqueue(NewJob::new("t", Payload::default())).await.expect("stored");
        clock.advance(2 * SECOND);
        let worker = windlass::job::WorkerId::new("w").expect("a name");
        let claimed = client.store().claim(&ClaimRequest::new(worker, QueueName::default(), 1)).await.expect("claimed");
        clock.advance(SECOND);
        let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
        client.store().settle(&settlements).await.expect("settled");
    }

    #[tokio::test]
    async fn samples_are_taken_at_their_moments_and_survive_the_recorder() {
        let clock = ManualClock::default();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(clock.clone()));
        let client = Client::with_store(Arc::clone(&store));
        let mut recorder = Recorder::default();
        let begun = store.now().await.expect("the time");
        recorder.take(&*store).await.expect("taken");
        for _ in 0..13 {
            work(&client, &clock).await;
            clock.advance(7 * SECOND);
            recorder.take(&*store).await.expect("taken");
            // Twice in one moment is once.
            recorder.take(&*store).await.expect("taken");
        }
        let now = store.now().await.expect("the time");
        let of = async |step| store.samples(step, begun.minus(900 * SECOND), now.plus(SECOND)).await.expect("samples");
        let fine = of(SampleStep::Seconds).await;
        assert_eq!(fine.len(), 14);
        let last = &fine[13].lanes[0];
        assert_eq!((last.lane.accepted, last.lane.ended), (13, [13, 0, 0, 0]));
        assert_eq!((&last.waits, &last.runs), (&vec![(bucket(2 * SECOND), 1)], &vec![(bucket(SECOND), 1)]));
        let coarse = of(SampleStep::Minutes).await;
        assert!((2..=4).contains(&coarse.len()), "{}", coarse.len());
        let counted: u32 =
            coarse.iter().flat_map(|sample| &sample.lanes).flat_map(|lane| &lane.waits).map(|wait| wait.1).sum();
        assert!(counted >= 6, "a minute gathers what its seconds saw: {counted}");
        // Another recorder on the same store goes on; what is there stays.
        Recorder::default().take(&*store).await.expect("taken");
        assert_eq!(of(SampleStep::Seconds).await, fine);
    }

    /// What `explain` says of a job that waits for its turn in a queue that drains.
    async fn seconds_until(client: &Client, id: windlass::JobId) -> f64 {
        let router = crate::api::router(crate::api::ApiState::new(client.clone()));
        let request = axum::http::Request::get(format!("/v1/jobs/{id}/explain")).body(axum::body::Body::empty());
        let response = tower::ServiceExt::oneshot(router, request.expect("a request")).await.expect("an answer");
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        let answer: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        answer["about"]["seconds"].as_f64().unwrap_or_else(|| panic!("no prospect: {answer}"))
    }

    #[tokio::test]
    async fn the_predicted_start_in_a_draining_queue_is_within_a_quarter() {
        let clock = ManualClock::default();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(clock.clone()));
        let client = Client::with_store(Arc::clone(&store));
        let worker = windlass::job::WorkerId::new("w").expect("a name");
        let jobs: Vec<NewJob> = (0..900).map(|_| NewJob::new("t", Payload::default())).collect();
        let ids: Vec<_> = client.enqueue_all(jobs).await.expect("stored").iter().map(|job| job.id).collect();
        let mut recorder = Recorder::default();
        // Three to seven jobs a second, in no regular order; a worker announces itself as long as it works.
        let mut drain = async |second: u32| {
            let served = windlass::store::ServedQueue { queue: QueueName::default(), slots: 9, busy: 9 };
            let report = windlass::store::WorkerReport {
                id: worker.clone(),
                host: "here".to_owned(),
                queues: vec![served],
                types: None,
            };
            store.announce(&report).await.expect("announced");
            let most = usize::try_from(3 + (second * 7) % 5).expect("a small number");
            let request = ClaimRequest::new(worker.clone(), QueueName::default(), most);
            let claimed = store.claim(&request).await.expect("claimed");
            let started: Vec<_> = claimed.jobs.iter().map(|claimed| claimed.job.id).collect();
            clock.advance(SECOND);
            let settlements: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease.complete(None)).collect();
            store.settle(&settlements).await.expect("settled");
            if second % 10 == 9 {
                recorder.take(&*store).await.expect("taken");
            }
            started
        };
        for second in 0..60 {
            drain(second).await;
        }
        // After a minute at five a second.
        for (wanted, pace) in [(500, 40.0), (899, 119.8)] {
            let predicted = seconds_until(&client, ids[wanted]).await;
            assert!(
                (predicted / pace - 1.0).abs() < 0.25,
                "job {wanted}: {predicted} s predicted, {pace} s at the pace"
            );
        }
        let predicted = seconds_until(&client, ids[700]).await;
        let mut took = 0;
        while !drain(60 + took).await.contains(&ids[700]) {
            took += 1;
        }
        assert!((predicted / f64::from(took) - 1.0).abs() < 0.25, "{predicted} s predicted, {took} s taken");
    }

    #[test]
    fn lanes_beyond_the_most_are_added_up() {
        let lane = |number: u64| LaneRecord {
            accepted: number,
            states: [0, 0, 1, 0, 0, 0, 0, 0, 0],
            ..LaneRecord::new(
                QueueName::new(format!("q{number}")).expect("a queue"),
                JobType::new("t").expect("a type"),
            )
        };
        let lanes: Vec<_> = (1..=203).map(lane).collect();
        let samples = sampled(&lanes, BTreeMap::new());
        let last = samples.last().expect("samples");
        assert_eq!((samples.len(), last.lane.queue.as_str(), last.lane.accepted), (201, OTHER, 6));
        assert_eq!(last.lane.states[2], 3);
    }
}
