//! One case for each kind, and its absence.

use windlass::job::{Fingerprint, Limits, WorkerId};
use windlass::schedule::ScheduleSpec;
use windlass::store::{LaneSample, ServedQueue, WorkerReport};
use windlass::{Category, JobType, NewJob, Payload, Policies, QueueName};

use super::*;

const NOW: Timestamp = Timestamp::from_seconds(1_000_000);

fn seen() -> Seen {
    Seen {
        now: NOW,
        queues: Vec::new(),
        lanes: Vec::new(),
        workers: Vec::new(),
        schedules: Vec::new(),
        past: Vec::new(),
        faults: Vec::new(),
        running: Vec::new(),
        took: Duration::ZERO,
        sends_webhooks: false,
        operations: Vec::new(),
        disk: None,
    }
}

fn ago(seconds: u64) -> Timestamp {
    NOW.minus(Duration::from_secs(seconds))
}

fn name(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn queue(queue: &str, count: u64, waited: u64) -> QueueRecord {
    let mut record = QueueRecord::new(name(queue));
    record.states[usize::from(State::Scheduled.number())] = count;
    record.oldest_scheduled = (count > 0).then(|| ago(waited));
    record
}

fn paused(queue: QueueRecord) -> QueueRecord {
    let mut paused = queue;
    paused.paused = true;
    paused
}

fn worker(queue: &str) -> WorkerRecord {
    let report = WorkerReport {
        id: WorkerId::new("host/1").expect("an id"),
        host: "host".to_owned(),
        queues: vec![ServedQueue { queue: name(queue), slots: 1, busy: 0 }],
        types: None,
    };
    WorkerRecord::new(report, NOW, NOW)
}

fn lane(queue: &str, scheduled: u64) -> LaneRecord {
    let mut lane = LaneRecord::new(name(queue), JobType::new("t").expect("a type"));
    lane.states[usize::from(State::Scheduled.number())] = scheduled;
    lane
}

fn before(lanes: Vec<LaneRecord>) -> Vec<Sample> {
    let lanes = lanes.into_iter().map(|lane| LaneSample { lane, waits: Vec::new(), runs: Vec::new() });
    vec![Sample { at: NOW.minus(LOOKED_BACK), lanes: lanes.collect() }]
}

fn kinds(seen: &Seen) -> Vec<AttentionKind> {
    seen.attention().iter().map(|item| item.kind).collect()
}

#[test]
fn ready_jobs_without_a_worker_need_one_after_a_while() {
    let mut seen = Seen { queues: vec![queue("mail", 3, 31)], ..seen() };
    assert_eq!(kinds(&seen), [AttentionKind::NoWorker]);
    assert_eq!(seen.attention()[0].text, "3 jobs are ready in mail, and no worker serves it");
    seen.workers = vec![worker("other")];
    assert_eq!(kinds(&seen), [AttentionKind::NoWorker]);
    seen.workers = vec![worker("mail")];
    assert_eq!(kinds(&seen), []);
    let fresh = Seen { queues: vec![queue("mail", 3, 29)], ..self::seen() };
    assert_eq!(kinds(&fresh), []);
    assert_eq!(kinds(&Seen { queues: vec![queue("mail", 0, 0)], ..self::seen() }), []);
}

#[test]
fn ready_jobs_of_a_type_that_nobody_handles_need_a_worker() {
    let handles = |types: Option<Vec<&str>>| {
        let mut worker = worker("mail");
        worker.types = types.map(|types| types.into_iter().map(|one| JobType::new(one).expect("a type")).collect());
        worker
    };
    let with = |types| Seen {
        queues: vec![queue("mail", 3, 31)],
        lanes: vec![lane("mail", 3)],
        workers: vec![handles(types)],
        ..seen()
    };
    assert_eq!(kinds(&with(Some(vec!["other"]))), [AttentionKind::NoWorker]);
    assert_eq!(kinds(&with(Some(vec!["other", "t"]))), []);
    assert_eq!(kinds(&with(None)), []);
}

#[test]
fn what_is_paused_with_work_is_told_as_such() {
    let stopped = paused(queue("mail", 1, 500));
    let items = Seen { queues: vec![stopped], ..seen() }.attention();
    assert_eq!(items[0].kind, AttentionKind::PausedWithWork);
    assert_eq!(items[0].act.as_deref(), Some("windlass queues resume mail"));
    let idle = paused(queue("mail", 0, 0));
    assert_eq!(kinds(&Seen { queues: vec![idle], ..seen() }), []);
}

#[test]
fn a_queue_falls_behind_when_its_backlog_grows() {
    let with = |past| Seen { queues: vec![queue("mail", 100, 61)], workers: vec![worker("mail")], past, ..seen() };
    assert_eq!(kinds(&with(before(vec![lane("mail", 50)]))), [AttentionKind::FallingBehind]);
    assert_eq!(kinds(&with(before(vec![lane("mail", 95)]))), [], "about the same");
    assert_eq!(kinds(&with(Vec::new())), [], "nothing is known of before");
}

fn group(recent: u64, trend: u64) -> FaultGroup {
    let job_type = JobType::new("t").expect("a type");
    FaultGroup {
        fingerprint: Fingerprint::of(&job_type, Category::Permanent, Some("broken"), ""),
        job_type,
        category: Category::Permanent,
        code: Some("broken".to_owned()),
        pattern: String::new(),
        count: trend,
        capped: false,
        recent,
        first_at: ago(60),
        last_at: NOW,
        sample: Vec::new(),
        queues: vec![name("mail")],
        trend: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, trend],
    }
}

#[test]
fn a_burst_of_one_fault_is_failing() {
    let with = |group| Seen { faults: vec![group], ..seen() };
    let items = with(group(10, 20)).attention();
    assert_eq!((items.len(), items[0].kind), (1, AttentionKind::Failing));
    assert!(items[0].link.starts_with("/errors/") && items[0].fingerprint.is_some());
    assert_eq!(kinds(&with(group(9, 9))), [], "too few to say");
    assert_eq!(kinds(&with(group(10, 1000))), [], "it is like that all day");
}

#[test]
fn counts_are_written_for_people_and_say_where_they_stopped() {
    let told = |group: FaultGroup| Seen { faults: vec![group], ..seen() }.attention()[0].text.clone();
    let stopped = FaultGroup { count: 1000, capped: true, ..group(1000, 1000) };
    assert!(told(stopped.clone()).starts_with("at least 1,000 jobs of type"), "{}", told(stopped));
    let older = FaultGroup { count: 1000, capped: true, ..group(900, 900) };
    assert!(told(older.clone()).starts_with("900 jobs of type"), "{}", told(older));
    let many = Seen { queues: vec![queue("q", 1_234_567, 60)], ..seen() }.attention()[0].text.clone();
    assert!(many.starts_with("1,234,567 jobs are ready"), "{many}");
}

#[test]
fn a_type_of_which_most_attempts_fail_is_failing() {
    let grown = |completed, retried| {
        let mut now = lane("mail", 0);
        (now.ended[0], now.retried) = (completed, retried);
        Seen { lanes: vec![now], past: before(vec![lane("mail", 0)]), ..seen() }
    };
    assert_eq!(kinds(&grown(4, 6)), [AttentionKind::Failing]);
    assert_eq!(kinds(&grown(5, 5)), [], "not over half");
    assert_eq!(kinds(&grown(1, 8)), [], "too few to say");
}

#[test]
fn lost_leases_are_told() {
    let mut now = lane("mail", 0);
    now.lost = 2;
    let lost = Seen { lanes: vec![now.clone()], past: before(vec![lane("mail", 0)]), ..seen() };
    assert_eq!(kinds(&lost), [AttentionKind::LeasesLost]);
    assert_eq!(kinds(&Seen { past: before(vec![now]), ..lost }), [], "long ago");
}

fn schedule() -> ScheduleRecord {
    let job = NewJob::new("digest", Payload::json(&1).expect("JSON"));
    let job = job.check(&Limits::default(), &Policies::default()).expect("valid");
    let spec = ScheduleSpec::every("nightly", Duration::from_secs(3600), job);
    ScheduleRecord::create(spec, ago(7200)).expect("valid")
}

#[test]
fn a_schedule_that_should_have_fired_is_late() {
    let late = |next_at, paused| {
        let mut schedule = schedule();
        (schedule.next_at, schedule.paused) = (Some(next_at), paused);
        kinds(&Seen { schedules: vec![schedule], ..seen() })
    };
    assert_eq!(late(ago(61), false), [AttentionKind::Late]);
    assert_eq!(late(ago(61), true), [AttentionKind::PausedWithWork]);
    assert_eq!(late(ago(59), false), []);
    assert_eq!(late(NOW.plus(Duration::from_secs(600)), false), []);
    assert_eq!(late(NOW.plus(Duration::from_secs(600)), true), []);
}

async fn running(for_seconds: u64, lease_over: u64) -> JobRecord {
    use windlass::store::{ClaimRequest, MemoryStore};
    let clock = windlass::ManualClock::default();
    let store = std::sync::Arc::new(MemoryStore::with_clock(clock.clone()));
    let client = windlass::Client::with_store(store);
    let job = NewJob::new("t", Payload::default()).execution_timeout(Duration::from_secs(30));
    client.enqueue(job).await.expect("stored");
    let request = ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 1);
    let mut job = client.store().claim(&request).await.expect("claimed").remove(0).job;
    job.started_at = Some(ago(for_seconds));
    if let Some(lease) = &mut job.lease {
        lease.expires_at = if lease_over == 0 { NOW.plus(Duration::from_secs(60)) } else { ago(lease_over) };
    }
    job
}

#[tokio::test]
async fn a_handler_past_its_time_is_stuck_and_a_dead_lease_means_no_upkeep() {
    let with = |job| kinds(&Seen { running: vec![job], ..seen() });
    assert_eq!(with(running(41, 0).await), [AttentionKind::Stuck]);
    assert_eq!(with(running(39, 0).await), []);
    assert_eq!(with(running(100, 31).await), [AttentionKind::Late], "once, and by its cause");
    assert_eq!(with(running(5, 29).await), []);
}

#[test]
fn an_operation_without_a_step_is_stuck() {
    let with = |seconds| {
        let operations = vec![UnderWay { id: "x".to_owned(), moved_at: ago(seconds) }];
        kinds(&Seen { operations, ..seen() })
    };
    assert_eq!((with(61), with(59)), (vec![AttentionKind::Stuck], vec![]));
}

#[test]
fn webhooks_without_a_secret_or_refused_are_unsent() {
    let seen = Seen { queues: vec![queue(Webhook::QUEUE, 2, 40)], ..seen() };
    assert_eq!(kinds(&seen), [AttentionKind::Unsent]);
    assert_eq!(kinds(&Seen { sends_webhooks: true, ..seen }), [AttentionKind::NoWorker]);
    let refused = FaultGroup { queues: vec![name(Webhook::QUEUE)], ..group(1, 1) };
    assert_eq!(kinds(&Seen { faults: vec![refused.clone()], ..self::seen() }), [AttentionKind::Unsent]);
    assert_eq!(kinds(&Seen { faults: vec![FaultGroup { recent: 0, ..refused }], ..self::seen() }), []);
}

#[test]
fn a_slow_store_and_a_full_disk_are_told() {
    let slow = Seen { took: Duration::from_millis(251), ..seen() };
    assert_eq!(kinds(&slow), [AttentionKind::Store]);
    assert_eq!(kinds(&Seen { disk: Some((9, 100)), ..seen() }), [AttentionKind::Store]);
    assert_eq!(kinds(&Seen { disk: Some((10, 100)), took: Duration::from_millis(250), ..seen() }), []);
}

#[test]
fn the_worst_comes_first() {
    let paused = paused(queue("aside", 1, 500));
    let seen = Seen { queues: vec![paused, queue("mail", 3, 31)], ..seen() };
    assert_eq!(kinds(&seen), [AttentionKind::NoWorker, AttentionKind::PausedWithWork]);
}
