//! The metrics of the server, beside those of the library, and how Prometheus reads them.
//!
//! Every name stands in [`METRICS`] or in [`windlass::observe::METRICS`]; `docs/metrics.md` is printed from both.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use windlass::State;
use windlass::observe::{Kind, Metric};
use windlass::store::{QueueRecord, Store};

const DEPTH: &str = "windlass_queue_depth";
const OLDEST: &str = "windlass_queue_oldest_scheduled_seconds";
const PAUSED: &str = "windlass_queue_paused";
const STORE_UP: &str = "windlass_store_up";
const BUILD: &str = "windlass_build_info";
const REQUESTS: &str = "windlass_http_requests_total";
const REQUEST: &str = "windlass_http_request_seconds";
const REFUSED: &str = "windlass_http_refused_total";
const CONNECTIONS: &str = "windlass_http_connections";
const DELIVERIES: &str = "windlass_webhook_deliveries_total";

const fn metric(name: &'static str, kind: Kind, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind, labels, help }
}

/// Every metric that the server adds to the library's.
pub const METRICS: [Metric; 10] = [
    metric(DEPTH, Kind::Gauge, &["queue", "state"], "Jobs in a queue by state, at the time of the scrape"),
    metric(OLDEST, Kind::Gauge, &["queue"], "How long the longest-waiting SCHEDULED job could have been claimed"),
    metric(PAUSED, Kind::Gauge, &["queue"], "1 while the queue is paused"),
    metric(STORE_UP, Kind::Gauge, &[], "1 if the store answered at the time of the scrape"),
    metric(BUILD, Kind::Gauge, &["version"], "Always 1; the label says which version runs"),
    metric(REQUESTS, Kind::Counter, &["method", "resource", "status"], "Requests answered"),
    metric(REQUEST, Kind::Histogram, &["resource"], "From the head of a request to the head of its answer"),
    metric(REFUSED, Kind::Counter, &["reason"], "Requests and connections refused before the API saw them"),
    metric(CONNECTIONS, Kind::Gauge, &[], "Open connections"),
    metric(DELIVERIES, Kind::Counter, &["outcome"], "Webhook deliveries attempted, by outcome"),
];

/// Queues beyond this many are left out: whoever enqueues chooses the names.
const QUEUES_MAX: usize = 1000;
/// The store is asked no more often, however often somebody scrapes.
const FRESH: Duration = Duration::from_secs(1);
/// A store that takes longer is reported as down, and the scrape goes on.
const PATIENCE: Duration = Duration::from_secs(2);
/// Upper bounds of what is measured in seconds: from a local call to a long job.
const SECONDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];
/// Upper bounds of what is counted in jobs.
const JOBS: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 500.0, 1000.0];

/// Both tables, in the order of the documentation.
pub fn all() -> impl Iterator<Item = Metric> {
    windlass::observe::METRICS.into_iter().chain(METRICS)
}

/// Installs the recorder of this process; again is harmless.
pub fn install() -> anyhow::Result<PrometheusHandle> {
    static INSTALLED: OnceLock<PrometheusHandle> = OnceLock::new();
    if let Some(handle) = INSTALLED.get() {
        return Ok(handle.clone());
    }
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_jobs".to_owned()), &JOBS)?;
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
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporter").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Exporter {
    /// What was recorded in this process, and what this store says about its queues.
    pub fn new(handle: PrometheusHandle, store: Arc<dyn Store>) -> Self {
        Exporter { handle, store, asked: tokio::sync::Mutex::new(None) }
    }

    pub(super) async fn answer(&self) -> Response<Body> {
        self.look_at_queues().await;
        let mut response = Response::new(Body::from(self.handle.render()));
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
        let look = async { tokio::try_join!(self.store.queues(), self.store.now()) };
        let found = tokio::time::timeout(PATIENCE, look).await;
        *asked = Some(Instant::now());
        match found {
            Ok(Ok((queues, now))) => {
                gauge!(STORE_UP).set(1.0);
                for queue in queues.iter().take(QUEUES_MAX) {
                    tell(queue, now);
                }
            }
            Ok(Err(error)) => {
                gauge!(STORE_UP).set(0.0);
                tracing::warn!(%error, "cannot read the queues for metrics");
            }
            Err(_) => gauge!(STORE_UP).set(0.0),
        }
    }

    /// Keeps what was measured from growing between scrapes; called every few seconds.
    pub fn settle(&self) {
        self.handle.run_upkeep();
    }
}

fn tell(queue: &QueueRecord, now: windlass::Timestamp) {
    let name = queue.name.to_string();
    for state in State::ALL {
        let jobs = queue.states[usize::from(state.number())];
        gauge!(DEPTH, "queue" => name.clone(), "state" => state.as_str()).set(jobs as f64);
    }
    let waited = queue.oldest_scheduled.map_or(Duration::ZERO, |since| now.since(since));
    gauge!(OLDEST, "queue" => name.clone()).set(waited.as_secs_f64());
    gauge!(PAUSED, "queue" => name).set(f64::from(u8::from(queue.paused)));
}

/// What a path is about, of a few words, so that paths cannot fill the memory.
pub(super) fn resource(path: &str) -> &'static str {
    const KNOWN: [&str; 16] = [
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
        "openapi.json",
    ];
    let mut parts = path.trim_start_matches('/').split('/');
    match (parts.next(), parts.next()) {
        (Some("v1"), Some(part)) => KNOWN.into_iter().find(|known| *known == part).unwrap_or("other"),
        (Some("healthz" | "readyz"), None) => "health",
        (Some("metrics"), None) => "metrics",
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

pub(super) fn delivery(outcome: &'static str) {
    counter!(DELIVERIES, "outcome" => outcome).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

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
