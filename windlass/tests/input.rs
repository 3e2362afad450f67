//! Bad input of every field is refused with the error the contract names, nothing is stored, and nothing panics (J1, E).
//!
//! Each job is drawn with every field possibly out of bounds; an oracle written from the contract says which errors are
//! to be expected.

use std::time::Duration;

use proptest::prelude::*;
use windlass::job::{DependencyKind, DependsOn, Limits, PAYLOAD_BYTES_DEFAULT, Progress, Scope, WorkerId};
use windlass::store::{MemoryStore, Store};
use windlass::workflow::{Submission, Workflow};
use windlass::{Error, JobId, JobType, ManualClock, NewJob, Payload, Policies, Priority, QueueName, State, Timestamp};

/// A job as drawn, before it is one.
#[derive(Clone, Debug)]
struct Drawn {
    job_type: String,
    queue: Option<String>,
    payload: usize,
    attempts: Option<u32>,
    execution: Option<Option<u64>>,
    visibility: Option<u64>,
    lifetime: Option<Option<u64>>,
    delay: Option<u64>,
    key: Option<(String, Option<u64>)>,
    tags: Vec<(String, String)>,
    correlation_id: Option<String>,
    callback_url: Option<String>,
    trace: Option<String>,
    dependencies: Vec<(bool, usize)>,
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[A-Za-z0-9_.:/-]{1,20}", 1 => ".{0,20}", 1 => "[a-z]{120,300}", 1 => "\\PC{0,5}"]
}

fn text(limit: usize) -> impl Strategy<Value = String> {
    prop_oneof![3 => ".{1,20}", 1 => Just("é".repeat(limit)), 1 => Just("é".repeat(limit + 1)), 1 => Just("a\0b".to_owned())]
}

fn url() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("https://example.com/hook".to_owned()),
        Just("http://[::1]:80/".to_owned()),
        Just("https://user:pw@example.com/".to_owned()),
        Just("https:///nowhere".to_owned()),
        Just(format!("https://example.com/{}", "x".repeat(2048))),
        ".{0,30}",
    ]
}

fn seconds() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..1_000_000u64, Just(u64::MAX), Just(11 * 366 * 86_400)]
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let size = prop_oneof![5 => 0..100usize, 1 => Just(PAYLOAD_BYTES_DEFAULT), 1 => Just(PAYLOAD_BYTES_DEFAULT + 1)];
    let attempts = prop::option::of(prop_oneof![4 => 1..=100u32, 1 => Just(0), 1 => Just(101), 1 => Just(u32::MAX)]);
    let first = (name(), prop::option::of(name()), size, attempts, prop::option::of(prop::option::of(seconds())));
    let second = (
        prop::option::of(seconds()),
        prop::option::of(prop::option::of(seconds())),
        prop::option::of(seconds()),
        prop::option::of((prop_oneof![4 => text(256), 1 => Just(String::new())], prop::option::of(seconds()))),
        prop_oneof![
            4 => prop::collection::vec((text(64), text(256)), 0..3),
            1 => prop::collection::vec(("[a-z]{8}", text(20)), 32..35),
        ],
    );
    let third = (
        prop::option::of(text(256)),
        prop::option::of(url()),
        prop::option::of(prop_oneof![3 => ".{0,60}", 1 => Just("t".repeat(1025))]),
        prop_oneof![
            5 => Just(Vec::new()),
            2 => prop::collection::vec((any::<bool>(), 0..4usize), 1..3),
            1 => prop::collection::vec((any::<bool>(), 0..4usize), 1001),
        ],
    );
    (first, second, third).prop_map(|(first, second, third)| Drawn {
        job_type: first.0,
        queue: first.1,
        payload: first.2,
        attempts: first.3,
        execution: first.4,
        visibility: second.0,
        lifetime: second.1,
        delay: second.2,
        key: second.3,
        tags: second.4,
        correlation_id: third.0,
        callback_url: third.1,
        trace: third.2,
        dependencies: third.3,
    })
}

fn new_job(drawn: &Drawn) -> NewJob {
    let seconds = |n: u64| Duration::from_secs(n);
    let payload = Payload::bytes("x/y", vec![0; drawn.payload]).expect("bytes of a plain type");
    let mut job = NewJob::new(&drawn.job_type, payload).priority(Priority::High);
    if let Some(queue) = &drawn.queue {
        job = job.queue(queue);
    }
    if let Some(attempts) = drawn.attempts {
        job = job.max_attempts(attempts);
    }
    if let Some(execution) = drawn.execution {
        job = job.execution_timeout(execution.map(seconds));
    }
    if let Some(visibility) = drawn.visibility {
        job = job.visibility_timeout(seconds(visibility));
    }
    if let Some(lifetime) = drawn.lifetime {
        job = job.lifetime(lifetime.map(seconds));
    }
    if let Some(delay) = drawn.delay {
        job = job.delay(seconds(delay));
    }
    if let Some((key, window)) = &drawn.key {
        job = job.idempotency(key, Scope::Queue, window.map(seconds));
    }
    for (key, value) in &drawn.tags {
        job = job.tag(key, value);
    }
    if let Some(id) = &drawn.correlation_id {
        job = job.correlation_id(id);
    }
    if let Some(url) = &drawn.callback_url {
        job = job.callback_url(url);
    }
    if let Some(trace) = &drawn.trace {
        job = job.trace_context(trace, None);
    }
    for (stored, place) in &drawn.dependencies {
        let on = match stored {
            true => DependsOn::Job(JobId::from_uuid(uuid::Uuid::from_u128(*place as u128))),
            false => DependsOn::Batch(*place),
        };
        job = job.depends_on(on, DependencyKind::After);
    }
    job
}

/// What the contract says about the drawn job: the fields (or errors) that are out of bounds. Written anew on purpose.
fn faults(drawn: &Drawn) -> Vec<&'static str> {
    const TEN_YEARS: u64 = 10 * 366 * 86_400;
    let plain = |text: &str, max: usize| {
        !text.is_empty() && text.len() <= max && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.:/-".contains(c))
    };
    let fits = |text: &str, max: usize| text.chars().count() <= max && !text.contains('\0');
    let timed = |n: u64| n > 0 && n <= TEN_YEARS;
    let tags: std::collections::BTreeMap<_, _> = drawn.tags.iter().cloned().collect();
    let mut faults = Vec::new();
    let mut fault = |wrong: bool, name| faults.extend(wrong.then_some(name));
    fault(!plain(&drawn.job_type, 255), "type");
    fault(drawn.queue.as_ref().is_some_and(|queue| !plain(queue, 128)), "queue");
    fault(drawn.payload > 1 << 20, "PayloadTooLarge");
    fault(drawn.attempts.is_some_and(|n| !(1..=100).contains(&n)), "max_attempts");
    fault(drawn.execution.flatten().is_some_and(|n| !timed(n)), "execution timeout");
    fault(drawn.visibility.is_some_and(|n| !timed(n)), "visibility timeout");
    fault(drawn.lifetime.flatten().is_some_and(|n| !timed(n)), "lifetime");
    // The default lifetime counts from the first run (T4); only one that was named can be too short.
    let named = drawn.lifetime.flatten();
    fault(drawn.delay.is_some_and(|delay| delay > TEN_YEARS), "delay");
    fault(drawn.delay.zip(named).is_some_and(|(delay, lifetime)| delay >= lifetime), "delay");
    fault(drawn.key.as_ref().is_some_and(|(key, _)| key.is_empty() || !fits(key, 256)), "idempotency_key");
    fault(drawn.key.as_ref().is_some_and(|(_, window)| window.is_some_and(|n| !timed(n))), "idempotency window");
    let bad_tag = |(key, value): (&String, &String)| key.is_empty() || !fits(key, 64) || !fits(value, 256);
    fault(tags.len() > 32 || tags.iter().any(bad_tag), "tags");
    fault(drawn.correlation_id.as_ref().is_some_and(|id| !fits(id, 256)), "correlation_id");
    fault(drawn.callback_url.as_ref().is_some_and(|url| !good_url(url)), "callback_url");
    fault(drawn.trace.as_ref().is_some_and(|trace| trace.len() > 1024 || trace.contains('\0')), "trace_context");
    fault(drawn.dependencies.len() > 1000, "DependencyLimit");
    let places: Vec<_> = drawn.dependencies.iter().filter(|(stored, _)| !stored).map(|(_, place)| *place).collect();
    fault(places.iter().any(|place| *place > 0), "depends_on");
    fault(places.contains(&0), "DependencyCycle");
    fault(drawn.dependencies.iter().any(|(stored, _)| *stored), "DependencyNotFound");
    faults
}

fn good_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or(url.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    url.len() <= 2048
        && url.chars().all(|c| c.is_ascii_graphic())
        && host.is_some_and(|host| !host.is_empty() && !host.starts_with(':') && !host.contains('@'))
}

fn named(error: &Error) -> &'static str {
    match error {
        Error::InvalidArgument { field, .. } => field,
        other => other.name(),
    }
}

async fn submit(store: &MemoryStore, jobs: Vec<NewJob>) -> Result<(), Error> {
    let specs: Result<Vec<_>, _> =
        jobs.into_iter().map(|job| job.check(&Limits::default(), &Policies::default())).collect();
    store.insert(Submission::new(specs?)?).await.map(|_| ())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn j1_a_job_out_of_bounds_is_refused_by_name_and_nothing_is_stored(drawn in drawn()) {
        let store = MemoryStore::with_clock(ManualClock::default());
        let faults = faults(&drawn);
        // A good job before it in the batch must not be stored either.
        let good = NewJob::new("good", Payload::default());
        let mut bad = drawn.clone();
        for (stored, place) in &mut bad.dependencies {
            // Place 0 is the good job now; the drawn job itself stands at 1, and beyond it there is nothing.
            if !*stored { *place += 1; }
        }
        let answer = block_on(submit(&store, vec![good, new_job(&bad)]));
        let totals = block_on(store.observe(None)).map(|seen| seen.totals()).expect("totals");
        match answer {
            Ok(()) => {
                prop_assert!(faults.is_empty(), "accepted in spite of {faults:?}");
                prop_assert_eq!(totals.accepted, 2);
            }
            Err(error) => {
                prop_assert!(faults.contains(&named(&error)), "{error} is none of {faults:?}");
                prop_assert_eq!(totals.accepted, 0);
                prop_assert!(error.to_string().len() < 400, "an error quotes no more than a little: {error}");
            }
        }
    }

    #[test]
    fn e_parsers_never_panic(text in ".{0,300}", bytes in prop::collection::vec(any::<u8>(), 0..300), number in any::<f64>()) {
        let _ = (JobType::new(&text), QueueName::new(&text), WorkerId::new(&text), text.parse::<JobId>());
        let _ = (text.parse::<State>(), text.parse::<Priority>(), text.parse::<Timestamp>());
        let _ = (Payload::json_text(bytes.clone()), Payload::bytes(&text, bytes), Progress::new(number, &text));
        let _ = Workflow::new(&text).check(&Limits::default(), &Policies::default());
    }
}
