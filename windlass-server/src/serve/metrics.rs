//! The metrics of the server, beside those of the library, and how Prometheus reads them.
//!
//! Every name stands in [`METRICS`] or in [`windlass::observe::METRICS`]; `docs/metrics.md` is printed from both.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use windlass::State;
use windlass::flow::ControlRecord;
use windlass::observe::{
    BUCKETS_JOBS, BUCKETS_SECONDS, Kind, Metric, QUEUE_DEPTH as DEPTH, QUEUE_OLDEST as OLDEST, QUEUE_PAUSED as PAUSED,
};
use windlass::store::{Durability, QueueRecord, Store, WorkerRecord};

use super::flow::KeyCounts;

const LEFT_OUT: &str = "windlass_queues_left_out";
const CLOCK_AHEAD: &str = "windlass_store_clock_ahead_seconds";
const SLOTS: &str = "windlass_queue_slots";
const SLOTS_BUSY: &str = "windlass_queue_slots_busy";
const UNSERVED: &str = "windlass_queue_unserved";
const LIMIT: &str = "windlass_limit";
const LIMIT_RUNNING: &str = "windlass_limit_running";
const KEYS: &str = "windlass_keys";
const DOOR: &str = "windlass_door_jobs";
const OVERDUE: &str = "windlass_schedules_overdue";
const STORE_UP: &str = "windlass_store_up";
const REPLICATED: &str = "windlass_store_replicated";
const SKEW: &str = "windlass_store_clock_skew_seconds";
const TIMELINE: &str = "windlass_store_timeline";
const BUILD: &str = "windlass_build_info";
const REQUESTS: &str = "windlass_http_requests_total";
const REQUEST: &str = "windlass_http_request_seconds";
const REFUSED: &str = "windlass_http_refused_total";
const CONNECTIONS: &str = "windlass_http_connections";
pub(super) const STORED_UNDER: &str = "windlass_encryption_stored";
pub(super) const STORED_UNOPENED: &str = "windlass_encryption_unopened";
pub(super) const REENCRYPTED: &str = "windlass_encryption_rewritten_total";

const fn metric(name: &'static str, kind: Kind, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric::new(name, kind, labels, help)
}

/// Every metric that the server adds to the library's.
pub const METRICS: &[Metric] = &[
    metric(LEFT_OUT, Kind::Gauge, &[], "Queues beyond the 1,000 deepest, of which nothing is told"),
    metric(CLOCK_AHEAD, Kind::Gauge, &[], "How far the store's time is ahead of this machine's clock; below 0, behind"),
    metric(SLOTS, Kind::Gauge, &["queue"], "Jobs of a queue that the live workers of all processes may run at once"),
    metric(SLOTS_BUSY, Kind::Gauge, &["queue"], "How many of these slots are in use, as workers last reported"),
    metric(UNSERVED, Kind::Gauge, &["queue"], "SCHEDULED jobs of a queue that no live worker serves"),
    metric(
        LIMIT,
        Kind::Gauge,
        &["queue", "scope"],
        "Most jobs that may run at once, of a controlled queue or of one of its types",
    ),
    metric(LIMIT_RUNNING, Kind::Gauge, &["queue", "scope"], "How many of the jobs that such a limit is for run"),
    metric(
        KEYS,
        Kind::Gauge,
        &["queue", "state"],
        "Keys of a controlled queue by how they stand: of the first 10,000 by name",
    ),
    metric(
        DOOR,
        Kind::Gauge,
        &["queue"],
        "Due jobs of a controlled queue that no claim has sorted to their keys yet, counted up to 10,000",
    ),
    metric(OVERDUE, Kind::Gauge, &[], "Schedules that should have fired more than a minute ago"),
    metric(STORE_UP, Kind::Gauge, &[], "1 if the store answered at the time of the scrape"),
    metric(
        REPLICATED,
        Kind::Gauge,
        &[],
        "1 if each confirmed commit of PostgreSQL is on a synchronous standby too, else 0",
    ),
    metric(
        SKEW,
        Kind::Gauge,
        &[],
        "What is added to the clock of PostgreSQL's server, where that leapt; 0 while it did not",
    ),
    metric(
        TIMELINE,
        Kind::Gauge,
        &["host"],
        "The timeline of the PostgreSQL server that this process is on, which each promotion raises",
    ),
    metric(BUILD, Kind::Gauge, &["version"], "Always 1; the label says which version runs"),
    metric(REQUESTS, Kind::Counter, &["method", "resource", "status"], "Requests answered"),
    metric(REQUEST, Kind::Histogram, &["resource"], "From the head of a request to the head of its answer"),
    metric(REFUSED, Kind::Counter, &["reason"], "Requests and connections refused before the API saw them"),
    metric(CONNECTIONS, Kind::Gauge, &[], "Open connections"),
    metric(
        STORED_UNDER,
        Kind::Gauge,
        &["key"],
        "Payloads, results, checkpoints and templates under each key at the last whole look; with more than one key only",
    ),
    metric(STORED_UNOPENED, Kind::Gauge, &[], "How many of these do not open with the keys that are set"),
    metric(REENCRYPTED, Kind::Counter, &[], "How many were encrypted again under the current key"),
];

/// Queues beyond this many are left out, those with the fewest jobs first: producers choose the names.
const QUEUES_MAX: usize = 1000;
/// How many schedules are looked at.
const SCHEDULES_MAX: usize = 1000;
/// A schedule that is later than this does not fire by itself.
const FIRING_LATE: Duration = Duration::from_secs(60);
/// The store is asked no more often, however often somebody scrapes.
const FRESH: Duration = Duration::from_secs(1);
/// A store that takes longer is reported as down, and the scrape goes on.
const PATIENCE: Duration = Duration::from_secs(2);
/// Both tables, in the order of the documentation.
pub fn all() -> impl Iterator<Item = Metric> {
    windlass::observe::METRICS.iter().chain(METRICS).copied()
}

/// Installs the recorder of this process; again is harmless.
pub fn install() -> anyhow::Result<PrometheusHandle> {
    static INSTALLED: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = INSTALLED.get() {
        return Ok(handle.clone());
    }
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS_SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_jobs".to_owned()), &BUCKETS_JOBS)?;
    let handle = builder.install_recorder()?;
    windlass::observe::describe();
    for metric in METRICS {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(INSTALLED.get_or_init(|| handle).clone())
}

/// Answers `/metrics`.
pub struct Exporter {
    handle: PrometheusHandle,
    store: Arc<dyn Store>,
    asked: tokio::sync::Mutex<Option<Instant>>,
    /// What was last found out about the queues, as it is told.
    queues: Mutex<String>,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporter").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Exporter {
    /// What was recorded in this process, and what this store says about its queues.
    pub fn new(handle: PrometheusHandle, store: Arc<dyn Store>) -> Self {
        Exporter { handle, store, asked: tokio::sync::Mutex::new(None), queues: Mutex::default() }
    }

    pub(super) async fn answer(&self) -> Response<Body> {
        self.look_at_queues().await;
        let queues = self.queues.lock().expect("nothing panics while it holds this lock").clone();
        let mut response = Response::new(Body::from(self.handle.render() + &queues));
        *response.status_mut() = StatusCode::OK;
        let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        response
    }

    async fn look_at_queues(&self) {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|at| at.elapsed() < FRESH) {
            return;
        }
        let look = async {
            let store = &self.store;
            let numbers = async {
                let (queues, workers, schedules, now) = tokio::try_join!(
                    store.queues(),
                    store.workers(),
                    store.schedules(None, SCHEDULES_MAX),
                    store.now()
                )?;
                let keys = KeyCounts::look(store.as_ref(), &queues).await?;
                let types = limited_types(store.as_ref(), &queues).await?;
                let flow = flow_text(&queues_of(&queues), &keys, &types);
                Ok::<_, windlass::Error>((queues, workers, schedules, now, flow))
            };
            // What the settings say is no reason to be silent about the rest.
            let (numbers, durability) = tokio::join!(numbers, store.durability());
            let durability = durability.unwrap_or_default();
            if let Some(skew) = durability.skew_micros {
                gauge!(SKEW).set(skew as f64 / 1e6);
            }
            if let Some(replicated) = durability.replicated {
                gauge!(REPLICATED).set(if replicated { 1.0 } else { 0.0 });
            }
            (numbers, timeline_text(&durability))
        };
        let found = tokio::time::timeout(PATIENCE, look).await;
        *asked = Some(Instant::now());
        match found {
            Ok((Ok((queues, workers, schedules, now, flow)), timeline)) => {
                gauge!(STORE_UP).set(1.0);
                gauge!(LEFT_OUT).set(queues.len().saturating_sub(QUEUES_MAX) as f64);
                gauge!(CLOCK_AHEAD).set(ahead(now));
                let late = |at: windlass::Timestamp| at < now && now.since(at) > FIRING_LATE;
                let overdue = schedules.iter().filter(|one| !one.paused && one.next_at.is_some_and(late));
                gauge!(OVERDUE).set(overdue.count() as f64);
                self.keep(text(queues, &workers, now) + &flow + &timeline);
            }
            Ok((Err(error), _)) => {
                gauge!(STORE_UP).set(0.0);
                self.keep(String::new());
                tracing::warn!(%error, "cannot read the queues for metrics");
            }
            Err(_) => {
                gauge!(STORE_UP).set(0.0);
                self.keep(String::new());
            }
        }
    }

    /// Keeps what there is to say about the queues; nothing, rather than what was so once.
    fn keep(&self, text: String) {
        *self.queues.lock().expect("nothing panics while it holds this lock") = text;
    }

    /// Keeps what was measured from growing between scrapes; called every few seconds.
    pub fn settle(&self) {
        self.handle.run_upkeep();
    }
}

/// The gauges of the deepest queues. They are written here and not by the recorder, which would keep every name that
/// was ever told, with its last value.
fn text(mut queues: Vec<QueueRecord>, workers: &[WorkerRecord], now: windlass::Timestamp) -> String {
    if queues.len() > QUEUES_MAX {
        queues.sort_by_cached_key(|queue| std::cmp::Reverse((unfinished(queue), queue.states.iter().sum::<u64>())));
        queues.truncate(QUEUES_MAX);
        queues.sort_by(|one, other| one.name.cmp(&other.name));
    }
    let mut text = String::new();
    head(&mut text, DEPTH);
    for queue in &queues {
        for state in State::ALL {
            let jobs = queue.states[usize::from(state.number())];
            line(&mut text, format_args!("{DEPTH}{{queue=\"{}\",state=\"{}\"}} {jobs}", queue.name, state.as_str()));
        }
    }
    head(&mut text, OLDEST);
    for queue in &queues {
        let waited = queue.oldest_scheduled.map_or(Duration::ZERO, |since| now.since(since));
        line(&mut text, format_args!("{OLDEST}{{queue=\"{}\"}} {}", queue.name, waited.as_secs_f64()));
    }
    head(&mut text, PAUSED);
    for queue in &queues {
        line(&mut text, format_args!("{PAUSED}{{queue=\"{}\"}} {}", queue.name, u8::from(queue.paused)));
    }
    let slots = |queue: &QueueRecord| {
        let served = workers.iter().flat_map(|worker| &worker.queues).filter(|served| served.queue == queue.name);
        served.fold((0, 0), |(slots, busy), served| (slots + u64::from(served.slots), busy + u64::from(served.busy)))
    };
    let scheduled = |queue: &QueueRecord| queue.states[usize::from(State::Scheduled.number())];
    let unserved = |queue: &QueueRecord| if slots(queue).0 == 0 { scheduled(queue) } else { 0 };
    let mut gauge = |name: &str, value: &dyn Fn(&QueueRecord) -> u64| {
        head(&mut text, name);
        for queue in &queues {
            line(&mut text, format_args!("{name}{{queue=\"{}\"}} {}", queue.name, value(queue)));
        }
    };
    gauge(SLOTS, &|queue| slots(queue).0);
    gauge(SLOTS_BUSY, &|queue| slots(queue).1);
    gauge(UNSERVED, &unserved);
    text
}

/// The controlled queues.
fn queues_of(queues: &[QueueRecord]) -> Vec<&QueueRecord> {
    queues.iter().filter(|queue| queue.control.is_some()).take(QUEUES_MAX).collect()
}

/// How many jobs run of each type that has a limit, by queue and type.
async fn limited_types(store: &dyn Store, queues: &[QueueRecord]) -> windlass::Result<Vec<(String, String, u64)>> {
    let limits = |queue: &&QueueRecord| queue.control.as_ref().is_some_and(|record| !record.control.types.is_empty());
    if !queues.iter().any(|queue| limits(&queue)) {
        return Ok(Vec::new());
    }
    let lanes = store.observe(None).await?.lanes;
    let running = usize::from(State::Running.number());
    Ok(lanes
        .into_iter()
        .map(|lane| (lane.queue.to_string(), lane.job_type.to_string(), lane.states[running]))
        .collect())
}

/// The gauges of flow control. A key is never in a label: users choose keys, and there may be a million.
fn flow_text(queues: &[&QueueRecord], keys: &[KeyCounts], types: &[(String, String, u64)]) -> String {
    let mut text = String::new();
    if queues.is_empty() {
        return text;
    }
    let (mut limits, mut running) = (Vec::new(), Vec::new());
    for queue in queues {
        let Some(ControlRecord { control, .. }) = &queue.control else { continue };
        if let Some(most) = control.running {
            limits.push((queue.name.as_str(), "queue".to_owned(), u64::from(most)));
            running.push((queue.name.as_str(), "queue".to_owned(), queue.count(State::Running)));
        }
        for (job_type, limit) in &control.types {
            let Some(most) = limit.running else { continue };
            let of_type =
                |(name, of, _): &&(String, String, u64)| *name == queue.name.as_str() && *of == job_type.as_str();
            let runs = types.iter().find(of_type).map_or(0, |(_, _, runs)| *runs);
            limits.push((queue.name.as_str(), format!("type:{job_type}"), u64::from(most)));
            running.push((queue.name.as_str(), format!("type:{job_type}"), runs));
        }
        if let Some(most) = control.each_key.and_then(|limit| limit.running) {
            limits.push((queue.name.as_str(), "each_key".to_owned(), u64::from(most)));
        }
    }
    for (name, values) in [(LIMIT, limits), (LIMIT_RUNNING, running)] {
        head(&mut text, name);
        for (queue, scope, value) in values {
            line(&mut text, format_args!("{name}{{queue=\"{queue}\",scope=\"{scope}\"}} {value}"));
        }
    }
    head(&mut text, DOOR);
    for queue in queues {
        line(&mut text, format_args!("{DOOR}{{queue=\"{}\"}} {}", queue.name, queue.at_door));
    }
    head(&mut text, KEYS);
    for counts in keys {
        for (state, count) in &counts.states {
            line(&mut text, format_args!("{KEYS}{{queue=\"{}\",state=\"{state}\"}} {count}", counts.queue));
        }
    }
    text
}

/// Which server the store is on, where it is on one that tells.
fn timeline_text(durability: &Durability) -> String {
    let mut text = String::new();
    if let (Some(host), Some(timeline)) = (&durability.host, durability.timeline) {
        head(&mut text, TIMELINE);
        // The folder of a socket may hold what ends a label.
        let host = host.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        line(&mut text, format_args!("{TIMELINE}{{host=\"{host}\"}} {timeline}"));
    }
    text
}

/// What a metric is about. A queue's name needs no escapes: its alphabet has nothing to escape.
fn head(text: &mut String, name: &str) {
    let help = all().find(|metric| metric.name == name).map_or("", |metric| metric.help);
    line(text, format_args!("# HELP {name} {help}\n# TYPE {name} gauge"));
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    use std::fmt::Write;
    writeln!(text, "{words}").expect("a string takes everything");
}

/// Jobs that have not ended.
fn unfinished(queue: &QueueRecord) -> u64 {
    let open = State::ALL.into_iter().filter(|state| !state.is_terminal());
    open.map(|state| queue.states[usize::from(state.number())]).sum()
}

/// How many seconds the store's time is ahead of this machine's.
fn ahead(now: windlass::Timestamp) -> f64 {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as f64 / 1e6 - wall.as_secs_f64()
}

/// What a path is about, of a few words, so that paths cannot fill the memory.
pub(super) fn resource(path: &str) -> &'static str {
    const KNOWN: [&str; 22] = [
        "jobs",
        "claims",
        "leases",
        "queues",
        "workflows",
        "schedules",
        "workers",
        "stats",
        "events",
        "operations",
        "acts",
        "wakes",
        "check",
        "upkeep",
        "time",
        "policies",
        "me",
        "server",
        "firings",
        "series",
        "attention",
        "openapi.json",
    ];
    let mut parts = path.trim_start_matches('/').split('/');
    match (parts.next(), parts.next()) {
        (Some("v1"), Some(part)) => KNOWN.into_iter().find(|known| *known == part).unwrap_or("other"),
        (Some("healthz" | "readyz"), None) => "health",
        (Some("metrics"), None) => "metrics",
        (Some("session"), None) => "session",
        (Some("page"), Some(_)) => "page",
        _ => "other",
    }
}

pub(super) fn http(method: &Method, resource: &'static str, status: StatusCode, time: Duration) {
    // A method is free text too.
    let known = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
    let method = if known.contains(method) { method.to_string() } else { "other".to_owned() };
    counter!(REQUESTS, "method" => method, "resource" => resource, "status" => status.as_u16().to_string())
        .increment(1);
    histogram!(REQUEST, "resource" => resource).record(time);
}

pub(super) fn refused(reason: &'static str) {
    counter!(REFUSED, "reason" => reason).increment(1);
}

pub(super) fn connections(change: f64) {
    gauge!(CONNECTIONS).increment(change);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_that_the_store_is_on_is_told() {
        let mut durability = Durability::default();
        assert_eq!(timeline_text(&durability), "", "a store without a server");
        (durability.host, durability.timeline) = (Some("/run/\"a\"\\b".to_owned()), Some(7));
        let told = timeline_text(&durability);
        assert!(told.ends_with("windlass_store_timeline{host=\"/run/\\\"a\\\"\\\\b\"} 7\n"), "{told}");
        assert_eq!(told.lines().count(), 3, "what it is about, its kind, and itself");
    }

    /// M10: invented names do not push out a queue with work in it.
    #[tokio::test]
    async fn m10_the_deepest_queues_are_told_and_the_others_counted() {
        let client = windlass::Client::in_memory();
        let job = |queue: String| windlass::NewJob::new("t", windlass::Payload::default()).queue(queue);
        let invented = (0..1200).map(|number| job(format!("--{number:05}")));
        client.enqueue_all(invented).await.expect("enqueue");
        client.enqueue_all((0..4).map(|_| job("mail".to_owned()))).await.expect("enqueue");
        let queues = client.store().queues().await.expect("queues");
        assert_eq!(queues.len(), 1201);
        let text = text(queues, &[], client.store().now().await.expect("the time"));
        assert!(text.contains("windlass_queue_depth{queue=\"mail\",state=\"scheduled\"} 4\n"));
        assert_eq!(text.matches("windlass_queue_paused{").count(), QUEUES_MAX);
    }

    #[tokio::test]
    async fn limits_and_keys_are_told_without_a_key_in_a_label() {
        use windlass::flow::{Control, Limit};
        let client = windlass::Client::in_memory();
        let of_type = windlass::JobType::new("t").expect("a name");
        let control = Control::new().running(5).of_type(of_type, Limit::running(2)).each_key(Limit::running(1));
        client.queue("mail").expect("a name").control(control).await.expect("controlled");
        let job = |key: &str| windlass::NewJob::new("t", windlass::Payload::default()).queue("mail").key(key);
        client.enqueue_all(["acme", "acme", "beta"].map(job)).await.expect("enqueue");
        let worker = windlass::job::WorkerId::new("w").expect("a name");
        let queue = windlass::QueueName::new("mail").expect("a name");
        let claim = windlass::store::ClaimRequest::new(worker, queue, 9);
        assert_eq!(client.store().claim(&claim).await.expect("claim").len(), 2);
        let store = client.store().as_ref();
        let queues = store.queues().await.expect("queues");
        let keys = KeyCounts::look(store, &queues).await.expect("keys");
        let types = limited_types(store, &queues).await.expect("lanes");
        let text = flow_text(&queues_of(&queues), &keys, &types);
        for line in [
            "windlass_limit{queue=\"mail\",scope=\"queue\"} 5\n",
            "windlass_limit{queue=\"mail\",scope=\"type:t\"} 2\n",
            "windlass_limit{queue=\"mail\",scope=\"each_key\"} 1\n",
            "windlass_limit_running{queue=\"mail\",scope=\"queue\"} 2\n",
            "windlass_limit_running{queue=\"mail\",scope=\"type:t\"} 2\n",
            "windlass_keys{queue=\"mail\",state=\"full\"} 2\n",
            "windlass_door_jobs{queue=\"mail\"} 0\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("acme"), "{text}");
    }

    #[test]
    fn names_are_unique_and_say_their_unit() {
        let names: std::collections::BTreeSet<_> = all().map(|metric| metric.name).collect();
        assert_eq!(names.len(), all().count());
        for metric in all() {
            assert!(metric.name.starts_with("windlass_"), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
            for label in metric.labels {
                assert!(!["id", "job", "token", "payload"].contains(label), "{}", metric.name);
            }
        }
    }

    #[test]
    fn paths_become_a_few_words() {
        for (path, word) in [
            ("/v1/jobs", "jobs"),
            ("/v1/jobs/0c1e/attempts", "jobs"),
            ("/v1/secret-thing", "other"),
            ("/healthz", "health"),
            ("/metrics", "metrics"),
            ("/", "other"),
            ("/v1", "other"),
            ("", "other"),
        ] {
            assert_eq!(resource(path), word, "{path}");
        }
    }
}
