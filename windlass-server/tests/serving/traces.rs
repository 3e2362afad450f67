//! Traces reach a collector: a request, the run of what it enqueued, and what the program is told, in one trace.

use std::sync::{Arc, Mutex};

use axum::Json;
use axum::Router;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value, json};
use windlass::{JobId, State};

use crate::support::{Place, Process, http, reaches, script, until, windlass};

/// A collector that keeps the spans it was sent, and refuses the first delivery as a busy one does.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Value>>>,
    refused: Arc<Mutex<bool>>,
}

impl Collector {
    async fn listen(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = Router::new().route("/v1/traces", post(take)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    fn named(&self, name: &str) -> Vec<Value> {
        let spans = self.spans.lock().expect("lock");
        spans.iter().filter(|span| span["name"] == name).cloned().collect()
    }
}

async fn take(Shared(collector): Shared<Collector>, Json(sent): Json<Value>) -> (StatusCode, Json<Value>) {
    if !std::mem::replace(&mut *collector.refused.lock().expect("lock"), true) {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({})));
    }
    let service = json!({ "key": "service.name", "value": { "stringValue": "windlass" } });
    let resource = &sent["resourceSpans"][0];
    assert!(resource["resource"]["attributes"].as_array().expect("attributes").contains(&service));
    let spans = resource["scopeSpans"][0]["spans"].as_array().expect("spans");
    collector.spans.lock().expect("lock").extend(spans.iter().cloned());
    (StatusCode::OK, Json(json!({})))
}

fn start(place: &Place, collector: &str, arguments: &[&str]) -> Process {
    let mut command = windlass();
    command.args(arguments).env("WINDLASS_STORE", place.store()).current_dir(place.folder.path());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector).env("OTEL_BSP_SCHEDULE_DELAY", "50");
    Process::start(command)
}

fn text<'v>(span: &'v Value, member: &str) -> &'v str {
    span[member].as_str().unwrap_or_else(|| panic!("no {member} in {span}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_and_the_run_of_its_job_are_one_trace() {
    let place = Place::new();
    let collector = Collector::default();
    let url = collector.listen().await;
    let mut server = start(&place, &url, &["run", "--listen", "127.0.0.1:0"]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    let program = script(place.folder.path(), "handler", r#"cat >/dev/null; printf '"%s"' "$TRACEPARENT""#);
    let mut worker = start(&place, &url, &["worker", "--exec", program.to_str().expect("a plain path")]);
    let client = place.client().await;

    let callers = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    let mut results = Vec::new();
    for headers in ["", callers] {
        let (status, body) = http(&base, "POST /v1/jobs", headers, r#"{"type":"t","payload":"s3cret"}"#);
        assert_eq!(status, 201, "{body}");
        let job: Value = serde_json::from_str(&body).expect("JSON");
        let id: JobId = job["id"].as_str().expect("an id").parse().expect("an id");
        let done = reaches(&client, id, State::Completed).await;
        results.push(done.result.expect("a result").decode::<String>().expect("text"));
    }
    until("the spans are there", || {
        collector.named("POST jobs").len() == 2 && collector.named("windlass.job").len() == 2
    });
    for process in [&mut server, &mut worker] {
        process.signal("TERM");
        assert!(process.wait().success());
    }

    let (requests, runs) = (collector.named("POST jobs"), collector.named("windlass.job"));
    for (at, result) in results.iter().enumerate() {
        let (request, run) = (&requests[at], &runs[at]);
        let trace = text(request, "traceId");
        assert_eq!(text(run, "traceId"), trace);
        assert_eq!(text(run, "parentSpanId"), text(request, "spanId"), "the run is the request's child");
        assert_eq!(*result, format!("00-{trace}-{}-01", text(run, "spanId")), "the program is the run's");
        assert_eq!(request["kind"], 2);
        let status = json!({ "key": "http.response.status_code", "value": { "intValue": "201" } });
        assert!(request["attributes"].as_array().expect("attributes").contains(&status), "{request}");
        assert!(text(run, "startTimeUnixNano").parse::<u128>().expect("a number") > 0);
    }
    assert_eq!(requests[0].get("parentSpanId"), None);
    assert_eq!(text(&requests[1], "traceId"), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(text(&requests[1], "parentSpanId"), "b7ad6b7169203331");
    let all = format!("{:?}", collector.spans.lock().expect("lock"));
    assert!(!all.contains("s3cret"), "payloads are in no span");
}

/// Work goes on where no collector answers, and the log says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_stops_nothing() {
    let place = Place::new();
    let mut server = start(&place, "http://127.0.0.1:9", &["run", "--listen", "127.0.0.1:0"]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    assert_eq!(http(&base, "POST /v1/jobs", "", r#"{"type":"t"}"#).0, 201);
    until("it is told", || server.err().contains("spans were not taken by the collector"));
    server.signal("TERM");
    assert!(server.wait().success());
}

#[test]
fn an_endpoint_that_cannot_be_meant_is_refused() {
    let place = Place::new();
    let mut server = start(&place, "collector:4317", &["run", "--listen", "127.0.0.1:0"]);
    assert_eq!(server.wait().code(), Some(1));
    assert!(server.err().contains("OTEL_EXPORTER_OTLP_ENDPOINT must begin with http"), "{}", server.err());
}
