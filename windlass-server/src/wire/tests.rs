//! What is turned into JSON and read back is what it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;
use windlass::job::{
    AttemptId, Backoff, CancelAsked as StoredCancel, Debounce, Dependency as StoredDependency, DependencyKind,
    DependsOn, FailureRecord, Fingerprint, Firing as StoredFiring, Idempotency, Jitter, JobOptions, JobSpec, LeaseInfo,
    LeaseKey, LeaseToken, Limits, Lost, OnExisting, Outcome as Ended, Progress as StoredProgress,
    Reason as StoredReason, ReasonKind, RequeueOptions, RetentionPatch, RunAt, Scope, Stale, Timeouts,
    TraceContext as Trace, Until, WorkerId,
};
use windlass::store::{Act, Edit as StoredEdit, Filter as StoredFilter, Operation, Save as StoredSave, Target};
use windlass::{
    Category, Client, Error, Failure as Said, JobId, JobRecord, JobType, Payload, Policies, Priority, QueueName,
    RetryPolicy, State, Timestamp, WorkflowId,
};

use super::{Edit, Filter, Job, LogLine, NewJob, NewOperation, Problem, Refs, Save, Settle, Settlement};

/// Through JSON text and back.
fn through<T: Serialize + DeserializeOwned>(value: &T) -> T {
    let text = serde_json::to_string(value).expect("JSON");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn job_id() -> impl Strategy<Value = JobId> {
    any::<u128>().prop_map(|bits| JobId::from_uuid(Uuid::from_u128(bits)))
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0..=Timestamp::MAX.as_micros()).prop_map(Timestamp::from_micros)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{0,20}", any::<String>().prop_map(|text| text.chars().take(40).collect())]
}

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_.:/-]{1,20}"
}

fn duration() -> impl Strategy<Value = Duration> {
    (0..1_000_000_000_000_u64).prop_map(Duration::from_micros)
}

fn payload() -> impl Strategy<Value = Payload> {
    let json = select(&["null", "{\"a\": [1, 2.50, 1e400]}", " [1] ", "\"\\u0000\"", "{\"a\":1,\"a\":2}"][..]);
    prop_oneof![
        json.prop_map(|text| Payload::json_text(text).expect("JSON")),
        vec(any::<u8>(), 0..50).prop_map(|bytes| Payload::bytes("text/x; a=\"b\"", bytes).expect("bytes")),
    ]
}

fn retry() -> impl Strategy<Value = RetryPolicy> {
    let strategy = prop_oneof![
        Just(Backoff::Constant),
        Just(Backoff::Linear),
        (1.0..1000.0_f64).prop_map(|multiplier| Backoff::Exponential { multiplier }),
    ];
    let jitter = prop_oneof![
        Just(Jitter::None),
        (0.0..=1.0_f64).prop_map(Jitter::Proportional),
        Just(Jitter::Full),
        Just(Jitter::Decorrelated),
    ];
    let lost = select(&[Lost::Counted, Lost::Free][..]);
    (strategy, jitter, duration(), duration(), 1..=100_u32, lost, any::<(bool, bool, bool)>()).prop_map(
        |(strategy, jitter, initial, more, max_attempts, lost, (lost_backoff, interrupts_count, all))| {
            let initial = initial.min(Duration::from_secs(1000));
            RetryPolicy::standard()
                .strategy(strategy)
                .initial(initial)
                .max(initial + more.min(Duration::from_secs(10_000)))
                .jitter(jitter)
                .max_attempts(max_attempts)
                .retry_on(if all { vec![Category::Temporary, Category::Timeout] } else { Vec::new() })
                .lost(lost)
                .lost_backoff(lost_backoff)
                .interrupts_count(interrupts_count)
                .retry_after_max(more.max(Duration::from_secs(1)))
        },
    )
}

fn options() -> impl Strategy<Value = JobOptions> {
    let hold = (select(&Until::ALL[..]), select(&OnExisting::ALL[..]), any::<bool>());
    let idempotency = ("k.{0,10}", select(&Scope::ALL[..]), option::of(duration()), hold).prop_map(
        |(key, scope, window, (until, on_existing, is_debounced))| {
            let window = window.map(|window| window + Duration::from_micros(1));
            let key = Idempotency::new(key.replace('\0', ""), scope, window);
            let length = window.unwrap_or(Duration::from_secs(1));
            match is_debounced {
                false => Idempotency { until, on_existing, ..key },
                true => Idempotency {
                    window: None,
                    until: Until::Claimed,
                    on_existing: OnExisting::Replace,
                    debounce: Some(Debounce { quiet: length, at_most: length * 2 }),
                    ..key
                },
            }
        },
    );
    let trace = (name(), option::of(name())).prop_map(|(parent, state)| Trace { parent, state });
    let timeouts = (option::of(1..1_000_000_u64), 1..1_000_000_u64).prop_map(|(execution, visibility)| Timeouts {
        execution: execution.map(Duration::from_millis),
        visibility: Duration::from_millis(visibility),
        lifetime: None,
        lifetime_from_run_at: false,
    });
    let run_at = prop_oneof![time().prop_map(RunAt::At), duration().prop_map(RunAt::In)];
    let tags = btree_map(name(), "[ -~]{0,20}", 0..4);
    let limit = || option::of(option::of(1..1_000_000_u64).prop_map(|kept| kept.map(Duration::from_millis)));
    let kept = (limit(), limit(), limit(), limit()).prop_map(|(completed, cancelled, failed, dead_letter)| {
        RetentionPatch { completed, cancelled, failed, dead_letter }
    });
    let rest = (option::of(name()), any::<bool>(), option::of(job_id()), kept);
    (option::of(run_at), retry(), timeouts, option::of(idempotency), tags, option::of(trace), rest).prop_map(
        |(
            run_at,
            retry,
            timeouts,
            idempotency,
            tags,
            trace_context,
            (name, own_priority_only, cloned_from, retention),
        )| {
            let is_debounced = idempotency.as_ref().is_some_and(|key| key.debounce.is_some());
            JobOptions {
                run_at: run_at.filter(|_| !is_debounced),
                retry,
                timeouts,
                retention,
                idempotency,
                key: name.clone(),
                own_priority_only,
                tags,
                callback_url: name.as_ref().map(|name| format!("https://host/{name}")),
                correlation_id: name,
                trace_context,
                cloned_from,
                submitted_by: None,
            }
        },
    )
}

const KINDS: &[DependencyKind] = &[
    DependencyKind::After,
    DependencyKind::AfterAny,
    DependencyKind::AfterAll,
    DependencyKind::FanInSuccess,
    DependencyKind::FanInDone,
];

fn spec() -> impl Strategy<Value = JobSpec> {
    let depends_on = (job_id(), select(KINDS)).prop_map(|(id, kind)| StoredDependency { on: DependsOn::Job(id), kind });
    (name(), name(), payload(), select(&Priority::ALL[..]), vec(depends_on, 0..3), options()).prop_map(
        |(job_type, queue, payload, priority, depends_on, options)| {
            let job_type = JobType::new(job_type).expect("a name");
            JobSpec::from_stored(
                job_type,
                QueueName::new(queue).expect("a name"),
                payload,
                priority,
                depends_on,
                options,
            )
        },
    )
}

fn failure() -> impl Strategy<Value = FailureRecord> {
    (select(Category::ALL), option::of(text()), text(), vec(text(), 0..3), time()).prop_map(
        |(category, code, message, causes, at)| {
            let mut failure = FailureRecord::new(category, message, at);
            (failure.code, failure.causes) = (code, causes);
            failure
        },
    )
}

fn reason() -> impl Strategy<Value = StoredReason> {
    let kinds = select(&[ReasonKind::Permanent, ReasonKind::Dependency, ReasonKind::Cancelled][..]);
    (kinds, option::of(text()), option::of(text()), option::of(job_id())).prop_map(|(kind, by, message, cause)| {
        let mut reason = StoredReason::of(kind);
        (reason.by, reason.message, reason.cause) = (by, message, cause);
        reason
    })
}

prop_compose! {
    fn record()(
        (id, spec, state) in (job_id(), spec(), select(&State::ALL[..])),
        (attempt, failures, lost, generation) in any::<(u32, u32, u32, u32)>(),
        (position, created_at, updated_at) in (time(), time(), time()),
        moments in vec(option::of(time()), 5),
        inherited_priority in option::of(select(&Priority::ALL[..])),
        lease in option::of((any::<u64>(), time(), name())),
        lease_version in any::<u64>(),
        cancel in option::of((option::of(text()), option::of(text()), time())),
        (failure, reason) in (option::of(failure()), option::of(reason())),
        result in option::of(payload()),
        progress in option::of((0.0..=1.0_f64, text())),
        checkpoint in option::of(vec(any::<u8>(), 0..30)),
        (workflow, spawned_by) in (option::of(any::<u128>()), option::of(job_id())),
        firing in option::of((name(), time())),
    ) -> JobRecord {
        let mut record = JobRecord::submitted(id, Arc::new(spec), created_at);
        record.state = state;
        record.attempt = attempt;
        record.failures = failures;
        record.lost = lost;
        record.generation = generation;
        record.position = position;
        record.inherited_priority = inherited_priority;
        record.updated_at = updated_at;
        record.scheduled_at = moments[0];
        record.started_at = moments[1];
        record.completed_at = moments[2];
        record.run_at = moments[3];
        record.deadline = moments[4];
        record.lease = lease.map(|(version, expires_at, worker)| {
            LeaseInfo::new(version, expires_at, WorkerId::new(worker).expect("a name"))
        });
        record.lease_version = lease_version;
        record.cancel = cancel.map(|(by, message, at)| {
            let mut cancel = StoredCancel::new(None, "", at);
            (cancel.by, cancel.message) = (by, message);
            cancel
        });
        record.failure = failure;
        record.result = result;
        record.progress = progress.map(|(fraction, message)| StoredProgress { fraction, message });
        record.checkpoint = checkpoint.map(Bytes::from);
        record.workflow_id = workflow.map(|bits| WorkflowId::from_uuid(Uuid::from_u128(bits)));
        record.firing = firing.map(|(schedule, slot)| StoredFiring::new(schedule, slot));
        record.spawned_by = spawned_by;
        record.reason = reason;
        record
    }
}

fn filter() -> impl Strategy<Value = StoredFilter> {
    let tags = btree_map(text(), text(), 0..3);
    (vec(select(&State::ALL[..]), 0..3), option::of(name()), tags, option::of(text()), option::of(time())).prop_map(
        |(states, queue, tags, code, at)| {
            let mut filter = StoredFilter::new().states(states);
            filter.queue = queue.as_ref().map(|queue| QueueName::new(queue).expect("a name"));
            filter.job_type = queue.map(|name| JobType::new(name).expect("a name"));
            filter.tags = tags;
            filter.schedule = code.clone();
            filter.correlation_id = code.clone();
            filter.key = code.clone();
            filter.text = code.clone();
            filter.code = code;
            filter.created_from = at;
            filter.created_before = at;
            filter.ended_before = at;
            filter.ended_from = at;
            filter.changed_before = at;
            filter.fingerprint = at.and_then(|at| Fingerprint::from_number(at.as_micros()));
            filter.worker = at.map(|at| WorkerId::new(format!("w{}", at.as_micros())).expect("a name"));
            filter
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    let edit = (option::of(select(&Priority::ALL[..])), option::of(option::of(name())));
    prop_oneof![
        any::<bool>().prop_map(|force| Act::Cancel { force }),
        (option::of(time()), any::<(bool, bool)>()).prop_map(|(run_at, (keep_counters, with_dependents))| {
            Act::Requeue(RequeueOptions { run_at, keep_counters, with_dependents })
        }),
        Just(Act::DeadLetter),
        Just(Act::Delete),
        edit.prop_map(|(priority, correlation_id)| Act::Edit(StoredEdit {
            priority,
            correlation_id,
            tags: Some(BTreeMap::new()),
            callback_url: Some(None),
        })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_stored_job_comes_back_as_it_was(record in record()) {
        let back = JobRecord::try_from(through(&Job::from(&record))).expect("a job");
        prop_assert_eq!(back, record);
    }

    #[test]
    fn a_submitted_job_comes_back_as_it_was(spec in spec()) {
        let wire = through(&NewJob::of_spec(&spec));
        let back = wire.into_job(&Refs::default()).and_then(|job| job.check(&Limits::default(), &Policies::default()));
        prop_assert_eq!(back.expect("a checked job is still one"), spec);
    }

    #[test]
    fn an_operation_comes_back_as_it_was(filter in filter(), act in act(), why in text(), dry_run in any::<bool>()) {
        let target = Target::Matching { filter, limit: 7, after: None };
        let operation = Operation { target, act, by: Some("ada".to_owned()), why, dry_run };
        let back = through(&NewOperation::of(&operation).expect("a request")).step(7, None, Some("ada".to_owned()));
        prop_assert_eq!(back.expect("valid"), operation);
    }

    #[test]
    fn a_save_comes_back_as_it_was(
        bytes in option::of(vec(any::<u8>(), 0..30)),
        fraction in 0.0..=1.0_f64,
        line in text(),
    ) {
        let key = LeaseKey { job: windlass::store::new_job_id(), token: windlass::store::new_lease_token() };
        let mut save = StoredSave::under(key).log([line]);
        save = save.progress(StoredProgress::new(fraction, "so far").expect("a fraction"));
        if let Some(bytes) = bytes {
            save = save.checkpoint(bytes).expect("small");
        }
        let back = StoredSave::try_from(through(&Save::from(&save)));
        prop_assert_eq!(back.expect("valid"), save);
    }

    #[test]
    fn no_json_upsets_the_readers(text in any::<String>()) {
        let _ = serde_json::from_str::<NewJob>(&text);
        let _ = serde_json::from_str::<Settle>(&text);
        let _ = serde_json::from_str::<Problem>(&text);
    }
}

fn running() -> (JobRecord, LeaseToken) {
    let spec = windlass::NewJob::new("t", Payload::default()).check(&Limits::default(), &Policies::default());
    let mut record =
        JobRecord::submitted(windlass::store::new_job_id(), Arc::new(spec.expect("valid")), Timestamp::EPOCH);
    record.state = State::Scheduled;
    record.claim(&WorkerId::new("w").expect("a name"), None, Timestamp::EPOCH).expect("scheduled");
    (record, windlass::store::new_lease_token())
}

#[test]
fn a_settlement_decides_the_same_on_the_other_side() {
    let failure = || Said::new(Category::Temporary, Some("c".into()), "m").with_causes(["x", "y"]);
    type Decide = fn(windlass::job::Lease, Said) -> windlass::job::Settlement;
    let decisions: [(Ended, Decide); 7] = [
        (Ended::Completed, |lease, _| lease.complete(Some(Payload::default()))),
        (Ended::Failed, |lease, failure| lease.fail(failure, &mut || 0.3)),
        (Ended::DeadLettered, |lease, _| lease.fail(Said::dead_letter("c", "m"), &mut || 0.3)),
        (Ended::Snoozed, |lease, _| lease.snooze(Duration::from_secs(5))),
        (Ended::Cancelled, |lease, _| lease.cancel()),
        (Ended::Released, |lease, _| lease.release()),
        (Ended::Interrupted, |lease, _| lease.interrupt()),
    ];
    let client = Client::in_memory();
    for (outcome, decide) in decisions {
        let (record, token) = running();
        let settlement = decide(windlass::job::Lease::granted(&record, token), failure());
        let wire = through(&Settlement::of(&settlement));
        // Another random number on this side must change nothing: the holder has drawn.
        let report = wire.report(&client).expect("valid");
        let back = report.decide(windlass::job::Lease::granted(&record, token), &mut || 0.9).expect("valid");
        assert_eq!(back.outcome(), outcome);
        assert_eq!(back.key(), settlement.key());
        assert_eq!(back.result(), settlement.result());
        for cancel_asked in [false, true] {
            let (is, should) = (back.verdict(cancel_asked), settlement.verdict(cancel_asked));
            assert_eq!((is.event, is.delay, is.counted), (should.event, should.delay, should.counted), "{outcome:?}");
            let kept =
                |verdict: &windlass::job::Verdict| verdict.failure.as_ref().map(|said| said.recorded(Timestamp::EPOCH));
            assert_eq!(kept(is), kept(should), "{outcome:?}");
        }
    }
}

#[test]
fn a_problem_is_the_error_that_it_was() {
    let job = windlass::store::new_job_id();
    let errors = [
        Error::StaleLease { job, stale: Stale::Expired },
        Error::no_such_job(job),
        Error::invalid("tags", "must have at most 32 entries, has 33"),
        Error::PayloadTooLarge { what: "payload", size: 2, limit: 1 },
        Error::DependencyNotFound { job },
        Error::DependencyCycle { through: "job 3 of the batch".into() },
        Error::DependencyLimit { what: "dependency depth", size: 101, limit: 100 },
        Error::IllegalState { job, state: State::Completed, wanted: "cancel" },
        Error::Conflict("schedule \"x\" exists already".into()),
        Error::Unauthorized("no".into()),
        Error::SubmissionTimeout { after: Duration::from_secs(30) },
    ];
    for error in errors {
        let back = through(&Problem::of(&error)).into_error("test");
        assert_eq!((back.name(), back.to_string()), (error.name(), error.to_string()));
        assert_eq!(back.outcome_is_known(), error.outcome_is_known());
    }
    for known in [true, false] {
        let error = Error::StoreUnavailable { attempted: "x".into(), problem: "gone".into(), known, source: None };
        let back = through(&Problem::of(&error)).into_error("test");
        assert_eq!((back.name(), back.outcome_is_known()), ("StoreUnavailable", known));
    }
}

#[test]
fn what_the_store_said_of_itself_is_not_told() {
    let error = Error::store("read a row", "password=hunter2 in /var/lib");
    let text = serde_json::to_string(&Problem::of(&error)).expect("JSON");
    assert!(!text.contains("hunter2"), "{text}");
    let problem = "too many connections for role \"app\"".to_owned();
    let error = Error::StoreUnavailable { attempted: "claim jobs".into(), problem, known: true, source: None };
    let told = Problem::of(&error);
    assert_eq!(told.detail, "cannot claim jobs: the store is not available now");
}

#[test]
fn a_label_that_is_given_twice_is_refused() {
    for text in [r#"{"type":"t","tags":{"a":"1","b":"2","a":"3"}}"#, r#"{"type":"t","tags":{"a":"1","a":"1"}}"#] {
        let error = serde_json::from_str::<NewJob>(text).expect_err(text).to_string();
        assert!(error.contains("\"a\" is given twice"), "{error}");
    }
    assert!(serde_json::from_str::<Edit>(r#"{"tags":{"a":"1","a":"3"}}"#).is_err());
    let edit: Edit = serde_json::from_str(r#"{"tags":{"a":"1"}}"#).expect("an edit");
    assert_eq!(edit.tags.map(|tags| tags.len()), Some(1));
    assert!(serde_json::from_str::<Edit>(r#"{"tags":null}"#).expect("an edit").tags.is_none());
}

#[test]
fn the_four_states_stand_for_the_nine() {
    let filter = |text| StoredFilter::try_from(serde_json::from_str::<Filter>(text).expect("a filter"));
    let ready = filter(r#"{"simple_state":["ready"]}"#).expect("valid").states;
    assert_eq!(ready, [State::Pending, State::Delayed, State::Scheduled, State::Retrying]);
    assert!(filter(r#"{"simple_state":["ready"],"state":["failed"]}"#).is_err());
}

#[test]
fn members_that_nobody_knows_are_refused() {
    for text in [
        r#"{"type":"t","payloadd":1}"#,
        r#"{"type":"t","retry":{"maximum":"1s"}}"#,
        r#"{"type":"t","depends_on":[{"id":"x"}]}"#,
    ] {
        assert!(serde_json::from_str::<NewJob>(text).is_err(), "{text}");
    }
    assert!(serde_json::from_str::<NewOperation>(r#"{"action":"cancel","filter":{"states":[]}}"#).is_err());
}

#[test]
fn a_result_of_null_is_not_no_result() {
    let said: Settlement = serde_json::from_str(&format!(
        r#"{{"id":"{0}","token":"{0}","outcome":"completed","result":null}}"#,
        Uuid::nil()
    ))
    .expect("a settlement");
    assert!(said.result.is_some());
    let id = AttemptId::from_uuid(Uuid::nil());
    assert_eq!(through(&LogLine { attempt_id: id, at: Timestamp::EPOCH, text: "x".into() }).attempt_id, id);
}

#[test]
fn a_schedule_says_why_its_last_firing_was_refused() {
    let job = windlass::NewJob::new("t", Payload::default()).check(&Limits::default(), &Policies::default());
    let spec = windlass::schedule::ScheduleSpec::every("s", Duration::from_secs(60), job.expect("valid"));
    let mut record = windlass::schedule::ScheduleRecord::create(spec, Timestamp::EPOCH).expect("valid");
    assert!(serde_json::to_value(super::Schedule::from(&record)).expect("JSON").get("last_error").is_none());
    record.refused(&Error::invalid("run_at", "lies beyond the job's lifetime"), Timestamp::from_micros(1_000_000));
    let shown = super::Schedule::from(&record);
    let error = serde_json::to_value(&shown).expect("JSON")["last_error"].clone();
    assert_eq!(error["at"], "1970-01-01T00:00:01.000000Z");
    assert!(error["message"].as_str().expect("words").contains("lifetime"), "{error}");
    let back = windlass::schedule::ScheduleRecord::try_from(through(&shown)).expect("as it was");
    assert_eq!(back.last_error, record.last_error);
}
