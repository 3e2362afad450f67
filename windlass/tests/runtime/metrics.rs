//! What a worker tells the recorder of metrics (rule N6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use windlass::job::Limits;
use windlass::observe::METRICS;
use windlass::schedule::{ScheduleRecord, ScheduleSpec};
use windlass::store::rules::{Missing, Run, Stop, WorkingSet, fire};
use windlass::workflow::Identity;
use windlass::{Context, Failure, NewJob, Payload, Policies, State, Timestamp};

use crate::support::{Number, memory, until};

/// A recorder that writes down sums, and every series that was ever asked for.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<BTreeMap<String, f64>>>, Arc<Mutex<BTreeSet<String>>>);

struct Sum(Sums, String);

impl Sums {
    fn of(&self, key: &Key) -> Arc<Sum> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        self.1.lock().expect("lock").insert(name.clone());
        Arc::new(Sum(self.clone(), name))
    }

    fn get(&self, name: &str) -> f64 {
        self.0.lock().expect("lock").get(name).copied().unwrap_or(f64::NAN)
    }
}

impl Sum {
    fn add(&self, value: f64) {
        *self.0.0.lock().expect("lock").entry(self.1.clone()).or_default() += value;
    }
}

impl CounterFn for Sum {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, value: u64) {
        self.add(value as f64);
    }
}

impl GaugeFn for Sum {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        self.0.0.lock().expect("lock").insert(self.1.clone(), value);
    }
}

impl HistogramFn for Sum {
    fn record(&self, _: f64) {
        self.add(1.0);
    }
}

impl Recorder for Sums {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.of(key))
    }
}

#[tokio::test]
async fn n6_every_step_is_counted_and_no_name_is_unknown() {
    let sums = Sums::default();
    let _recording = metrics::set_default_local_recorder(&sums);
    windlass::observe::describe();
    let setup = memory().await;
    let handler = async |job: Number, _: Context| match job.0 {
        0 => Ok(()),
        _ => Err(Failure::permanent("no", "no")),
    };
    setup.client.enqueue(NewJob::new("strange", Payload::default())).await.expect("enqueue");
    setup.client.enqueue_all([Number(0), Number(0), Number(1)]).await.expect("enqueue");
    let running = setup.worker(2).handle(handler).start().await.expect("start");
    let failed = usize::from(State::Failed.number());
    until("it failed", || async { setup.client.totals().await.expect("totals").states[failed] == 1 }).await;
    running.stop().await;
    // A second worker has nothing to do, and says so in its first words.
    let idle = setup.worker(2).handle(handler).start().await.expect("start");
    until("it told", || async { sums.get("windlass_slots{queue=default}") == 2.0 }).await;
    idle.stop().await;
    for (name, expected) in [
        ("windlass_jobs_enqueued_total{existing=false}", 4.0),
        ("windlass_jobs_claimed_total{queue=default,type=number}", 3.0),
        ("windlass_attempts_ended_total{queue=default,type=number,outcome=completed}", 2.0),
        ("windlass_attempts_ended_total{queue=default,type=number,outcome=failed}", 1.0),
        ("windlass_job_wait_seconds{queue=default,type=number}", 3.0),
        ("windlass_job_run_seconds{queue=default,type=number}", 3.0),
    ] {
        assert_eq!(sums.get(name), expected, "{name}");
    }
    // A series is made when it is first used: two outcomes, not all of them, and nothing of the queue that had no job.
    let made = sums.1.lock().expect("lock").clone();
    let of = |name: &str| made.iter().filter(|series| series.starts_with(name)).count();
    assert_eq!((of("windlass_attempts_ended_total"), of("windlass_job_run_seconds")), (2, 1), "{made:?}");
    for key in sums.0.lock().expect("lock").keys() {
        let (name, labels) = key.split_once('{').expect("a name and labels");
        let metric =
            METRICS.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name} is not listed"));
        let labels: Vec<&str> =
            labels.trim_end_matches('}').split(',').filter_map(|label| label.split('=').next()).collect();
        let labels: Vec<&str> = labels.into_iter().filter(|label| !label.is_empty()).collect();
        assert_eq!(labels, metric.labels, "{name}");
    }
}

#[tokio::test]
async fn a_program_without_a_server_tells_the_depth_of_its_queues() {
    let sums = Sums::default();
    let _recording = metrics::set_default_local_recorder(&sums);
    let setup = memory().await;
    let job = setup.client.enqueue(NewJob::new("t", Payload::default()).queue("deep")).await.expect("enqueue").id;
    setup.client.pause("deep").await.expect("paused");
    setup.clock.advance(Duration::from_secs(7));
    setup.client.record_queues().await.expect("recorded");
    assert_eq!(sums.get("windlass_queue_depth{queue=deep,state=scheduled}"), 1.0);
    assert_eq!(sums.get("windlass_queue_depth{queue=deep,state=failed}"), 0.0);
    assert_eq!(sums.get("windlass_queue_oldest_scheduled_seconds{queue=deep}"), 7.0);
    assert_eq!(sums.get("windlass_queue_paused{queue=deep}"), 1.0);
    setup.client.resume("deep").await.expect("resumed");
    setup.client.cancel(job).await.expect("cancelled");
    setup.client.delete(job).await.expect("deleted");
    setup.client.record_queues().await.expect("recorded");
    assert_eq!(sums.get("windlass_queue_depth{queue=deep,state=scheduled}"), 0.0, "nothing is left of it");
    assert_eq!(sums.get("windlass_queue_paused{queue=deep}"), 0.0);
}

/// In virtual time: the gauge follows the worker's words, every ten seconds.
#[tokio::test(start_paused = true)]
async fn n1b_jobs_without_a_handler_show_in_a_gauge() {
    let sums = Sums::default();
    let _recording = metrics::set_default_local_recorder(&sums);
    let setup = memory().await;
    let running = setup.worker(2).handle(async |_: Number, _: Context| Ok(())).start().await.expect("start");
    setup.client.enqueue(NewJob::new("strange", Payload::default())).await.expect("enqueue");
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(sums.get("windlass_jobs_unserved{queue=default}"), 1.0);
    running.stop().await;
}

/// Claims that gates kept short are counted by why, and each key that a claim serves once.
#[tokio::test]
async fn k2_claims_that_gates_keep_short_are_counted() {
    use windlass::flow::{Control, Limit, Rate};
    use windlass::store::ClaimRequest;
    let sums = Sums::default();
    let _recording = metrics::set_default_local_recorder(&sums);
    let client = windlass::Client::in_memory();
    let claim = async |queue: &str, most: usize| {
        let name = windlass::QueueName::new(queue).expect("a name");
        let worker = windlass::job::WorkerId::new("w").expect("a name");
        client.store().claim(&ClaimRequest::new(worker, name, most)).await.expect("claim").len()
    };
    let full = Control::new().running(2).each_key(Limit::running(9));
    let rated = Control::new().each_key(Limit::rated(Rate::per_hour(1)));
    let typed = Control::new().of_type(windlass::JobType::new("t").expect("a name"), Limit::running(1));
    for (queue, control) in [("full", full), ("rated", rated), ("typed", typed)] {
        client.queue(queue).expect("a name").control(control).await.expect("controlled");
        let job = |key: &str| NewJob::new("t", Payload::default()).queue(queue).key(key);
        client.enqueue_all(["a", "a", "b"].map(job)).await.expect("enqueue");
    }
    let blocked =
        |queue: &str, why: &str| sums.get(&format!("windlass_claim_blocked_total{{queue={queue},why={why}}}"));
    assert_eq!(claim("full", 2).await, 2, "all that was asked for");
    assert!(blocked("full", "limit").is_nan(), "nothing was kept from it");
    assert_eq!(claim("full", 2).await, 0);
    assert_eq!(claim("full", 2).await, 0);
    assert_eq!(blocked("full", "limit"), 2.0);
    assert_eq!(claim("rated", 9).await, 2, "one of each key");
    assert_eq!(blocked("rated", "rate"), 1.0, "once, though a has two jobs left");
    assert_eq!(claim("typed", 9).await, 1);
    assert_eq!(claim("typed", 9).await, 0);
    assert_eq!(blocked("typed", "limit"), 2.0);
    assert_eq!(claim("empty", 9).await, 0);
    assert_eq!(sums.get("windlass_key_wait_seconds{queue=full}"), 1.0, "two jobs of one key");
    assert_eq!(sums.get("windlass_key_wait_seconds{queue=rated}"), 2.0);
    assert!(sums.get("windlass_key_wait_seconds{queue=typed}").is_nan(), "keys make no difference there");
}

/// No rule refuses a firing of a schedule that was checked; one that an older program stored may break a newer rule.
#[test]
fn c4_a_refused_firing_is_counted() {
    let sums = Sums::default();
    let (second, now) = (Duration::from_secs(1), Timestamp::from_micros(1_000_000));
    let job = || NewJob::new("t", Payload::default());
    let check = |job: NewJob| job.check(&Limits::default(), &Policies::default()).expect("valid");
    let spec = ScheduleSpec::every("tick", second, check(job()));
    let mut schedule = ScheduleRecord::create(spec, Timestamp::EPOCH).expect("valid");
    schedule.spec.job = check(job().run_at(now.plus(2 * second)).lifetime(second));
    let mut set = WorkingSet::new(now);
    let mut run = Run::new(|set: &mut WorkingSet| fire(set, &schedule));
    let fired = metrics::with_local_recorder(&sums, || {
        loop {
            match run.step(&mut set) {
                Err(Stop::Missing(Missing::Identities(_))) => {
                    set.put_identity(Identity { sequence: 1, id: windlass::store::new_job_id() });
                }
                answer => return answer,
            }
        }
    });
    assert_eq!(fired.expect("a refusal is no error"), 0);
    assert_eq!(sums.get("windlass_firings_refused_total{}"), 1.0);
}
