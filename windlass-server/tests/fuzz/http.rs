//! Every operation of the description, asked in process: with bodies that fit it, bent ones, and bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use serde_json::value::RawValue;
use tower::ServiceExt;
use windlass::Client;
use windlass::store::SqliteOptions;
use windlass::store::{MemoryStore, PostgresOptions, PostgresStore, Store};
use windlass_server::api::{self, ApiState};
use windlass_server::wire::Kind;

use crate::cases;
use crate::draw::Draw;
use crate::schema::{self, Known};

/// Requests to one store, one after the other.
const REQUESTS: usize = 150;
/// For a request that waits for what will not come; then its caller goes away.
const PATIENCE: Duration = Duration::from_millis(5);

/// One operation of the description.
struct Operation {
    method: String,
    path: String,
    said: Value,
}

/// One request, kept as it is for the words of a failure.
#[derive(Debug)]
struct Asked {
    method: String,
    uri: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// A store, its API, and what is known of both.
struct Subject {
    document: Value,
    operations: Vec<Operation>,
    store: Arc<dyn Store>,
    router: Router,
    known: Known,
    /// How often each operation was answered, and how often with a success.
    answered: BTreeMap<String, (u64, u64)>,
}

#[test]
fn no_request_upsets_the_api_on_the_memory_store() {
    let mut answered = BTreeMap::new();
    cases(30, |seed| history(seed, Arc::new(MemoryStore::new()), &mut answered));
    everything_was_reached(&answered);
}

#[test]
fn no_request_upsets_the_api_on_sqlite() {
    let mut answered = BTreeMap::new();
    cases(15, |seed| {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteOptions::new(folder.path().join("jobs.db")).open().expect("a store");
        history(seed, Arc::new(store), &mut answered);
    });
    everything_was_reached(&answered);
}

#[test]
fn no_request_upsets_the_api_on_postgresql() {
    let url = std::env::var("WINDLASS_TEST_POSTGRES");
    let url = url.expect("WINDLASS_TEST_POSTGRES must name a PostgreSQL database; scripts/test starts one");
    let mut answered = BTreeMap::new();
    cases(15, |seed| postgres_history(&url, seed, &mut answered));
    everything_was_reached(&answered);
}

/// A history on tables of its own.
fn postgres_history(url: &str, seed: u64, answered: &mut BTreeMap<String, (u64, u64)>) {
    runtime().block_on(async {
        let schema = format!("fuzz_{}_{seed}", std::process::id());
        let options = PostgresOptions::new(url).and_then(|options| options.schema(schema)).expect("a schema");
        let store = Arc::new(PostgresStore::with(options).await.expect("a store"));
        talk(seed, Arc::clone(&store) as Arc<dyn Store>, answered).await;
        store.drop_schema().await.expect("dropped");
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn history(seed: u64, store: Arc<dyn Store>, answered: &mut BTreeMap<String, (u64, u64)>) {
    runtime().block_on(talk(seed, store, answered));
}

/// A history of requests; at its end the store is whole.
async fn talk(seed: u64, store: Arc<dyn Store>, answered: &mut BTreeMap<String, (u64, u64)>) {
    let mut draw = Draw::new(seed);
    let mut subject = Subject::new(store, std::mem::take(answered));
    for _ in 0..REQUESTS {
        subject.ask(&mut draw).await;
    }
    let findings = subject.store.check().await.expect("the store answers");
    assert_eq!(findings, Vec::<String>::new(), "what is stored contradicts itself");
    *answered = subject.answered;
}

/// A fuzzer that only ever hears refusals tests nothing behind the first check.
#[track_caller]
fn everything_was_reached(answered: &BTreeMap<String, (u64, u64)>) {
    let requests: u64 = answered.values().map(|(all, _)| all).sum();
    for (operation, (all, good)) in answered {
        println!("{operation}: {all} answers, {good} successes");
    }
    // One case alone repeats a failure. What chance alone hardly ever makes whole may be missing from a short run.
    if requests > REQUESTS as u64 * 5 {
        let never: Vec<_> = answered.iter().filter(|(_, (_, good))| *good == 0).map(|(name, _)| name).collect();
        assert!(never.len() * 4 < answered.len(), "never done, in {requests} requests: {never:?}");
    }
}

impl Subject {
    fn new(store: Arc<dyn Store>, answered: BTreeMap<String, (u64, u64)>) -> Self {
        let document: Value = serde_json::from_str(api::document()).expect("JSON");
        let mut operations = Vec::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, said) in item.as_object().expect("methods") {
                operations.push(Operation { method: method.to_uppercase(), path: path.clone(), said: said.clone() });
            }
        }
        let router = api::router(ApiState::new(Client::with_store(Arc::clone(&store))));
        Subject { document, operations, store, router, known: Known::default(), answered }
    }

    /// Draws a request, sends it, and looks at the answer.
    async fn ask(&mut self, draw: &mut Draw) {
        // Half of the time something is put in or taken out, or the rest would have nothing to be about.
        let busy = ["/v1/jobs", "/v1/claims", "/v1/leases/settle", "/v1/workflows", "/v1/schedules", "/v1/operations"];
        let at = match draw.once_in(2) {
            true => {
                let path = draw.pick(&busy);
                self.operations.iter().position(|one| one.method == "POST" && one.path == path).expect("it is there")
            }
            false => draw.below(self.operations.len()),
        };
        let asked = self.draw(at, draw);
        let mut request = Request::builder().method(asked.method.as_str()).uri(&asked.uri);
        for (name, value) in &asked.headers {
            request = request.header(name, value.as_slice());
        }
        let Ok(request) = request.body(Body::from(asked.body.clone())) else { return };
        let waits = ["/claims", "/wait", "/events", "/wakes", "/operations"].iter().any(|w| asked.uri.contains(w));
        let answer = answer(self.router.clone(), request);
        let answered = match waits {
            true => match tokio::time::timeout(PATIENCE, answer).await {
                Ok(answered) => answered,
                Err(_) => return,
            },
            false => answer.await,
        };
        self.judge(at, &asked, answered);
    }

    fn judge(&mut self, at: usize, asked: &Asked, (status, kind, body): (u16, String, Vec<u8>)) {
        let operation = &self.operations[at];
        let told = || {
            let (sent, answered) = (String::from_utf8_lossy(&asked.body), String::from_utf8_lossy(&body));
            format!("{asked:?}, in words {sent}\n{status} {kind} {answered}")
        };
        let counts = self.answered.entry(format!("{} {}", operation.method, operation.path)).or_default();
        counts.0 += 1;
        counts.1 += u64::from(status < 300);
        assert!(status < 500 || status == 503, "{}", told());
        let described = operation.said["responses"].get(status.to_string()).is_some();
        // A name in the path may make it another path.
        assert!(described || [404, 405].contains(&status), "not described: {}", told());
        if status >= 400 {
            assert_eq!(kind, "application/problem+json", "{}", told());
            let problem: Value = serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{}", told()));
            let slug = problem["type"].as_str().and_then(|urn| urn.rsplit(':').next()).unwrap_or_default();
            assert!(Kind::ALL.iter().any(|kind| kind.slug == slug && kind.status == status), "{}", told());
            assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{}", told());
        } else if kind == "application/json" {
            // Payloads are carried as they came, also where they nest deeper than this test's own reader goes.
            assert!(serde_json::from_slice::<&RawValue>(&body).is_ok(), "{}", told());
            if let Ok(answer) = serde_json::from_slice(&body) {
                self.known.learn(&answer);
            }
        } else {
            // A payload, a result and a checkpoint are whatever producer and handler said they are.
            let contents = ["/result", "/payload", "/checkpoint"];
            let free = kind == "text/event-stream" || contents.iter().any(|end| operation.path.ends_with(end));
            assert!(free || body.is_empty(), "{}", told());
        }
    }

    fn draw(&self, at: usize, draw: &mut Draw) -> Asked {
        let operation = &self.operations[at];
        let mut path = operation.path.clone();
        let (mut query, mut headers) = (Vec::new(), Vec::new());
        for parameter in operation.said["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().expect("a name");
            match parameter["in"].as_str() {
                Some("path") => {
                    path = path.replace(&format!("{{{name}}}"), &encoded(&self.name(name, &operation.path, draw)));
                }
                Some("query") if draw.once_in(3) => {
                    query.push((name.to_owned(), self.parameter(parameter, name, draw)))
                }
                Some("header") if draw.once_in(3) => headers.push((name.to_owned(), draw.text().into_bytes())),
                _ => {}
            }
        }
        if draw.once_in(20) {
            query.push((draw.text(), draw.text()));
        }
        if draw.once_in(20) {
            query.push((format!("tag.{}", draw.text()), draw.text()));
        }
        let pairs: Vec<_> = query.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        let uri = if pairs.is_empty() { path } else { format!("{path}?{}", pairs.join("&")) };
        let kind = if draw.once_in(20) { draw.text() } else { "application/json".to_owned() };
        headers.push(("content-type".to_owned(), kind.into_bytes()));
        if draw.once_in(10) {
            headers.push(("traceparent".to_owned(), draw.text().into_bytes()));
        }
        Asked { method: operation.method.clone(), uri, headers, body: self.body(operation, draw) }
    }

    /// A name for the path.
    fn name(&self, name: &str, path: &str, draw: &mut Draw) -> String {
        if draw.once_in(15) {
            return draw.text();
        }
        match name {
            "queue" => draw.pick(&["default", "mail", "a"]).to_owned(),
            _ if path.contains("/schedules/") => draw.pick(&["a", "b", "s"]).to_owned(),
            _ if path.contains("/operations/") => schema::one_of(&self.known.operations, draw),
            _ if path.contains("/workflows/") => schema::one_of(&self.known.workflows, draw),
            _ => self.known.id(draw),
        }
    }

    fn parameter(&self, parameter: &Value, name: &str, draw: &mut Draw) -> String {
        if draw.once_in(4) {
            return draw.text();
        }
        match schema::value(&self.document, &parameter["schema"], name, &self.known, draw, 2) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    /// A body: fitting, bent or spoilt, or bytes.
    fn body(&self, operation: &Operation, draw: &mut Draw) -> Vec<u8> {
        let Some(schema) = operation.said.pointer("/requestBody/content/application~1json/schema") else {
            return if draw.once_in(10) { draw.bytes(40) } else { Vec::new() };
        };
        let sense = if draw.once_in(2) { schema::sense(&operation.path, &self.known, draw) } else { None };
        let mut value = sense.unwrap_or_else(|| schema::value(&self.document, schema, "", &self.known, draw, 4));
        match draw.below(10) {
            0 => draw.bytes(200),
            1 => draw.json(4).to_string().into_bytes(),
            2 => {
                let mut bytes = value.to_string().into_bytes();
                draw.spoil(&mut bytes);
                bytes
            }
            3 | 4 => {
                (0..=draw.below(3)).for_each(|_| draw.bend(&mut value));
                value.to_string().into_bytes()
            }
            _ => value.to_string().into_bytes(),
        }
    }
}

/// Status, content type and body of an answer; of a stream only that it began.
async fn answer(router: Router, request: Request<Body>) -> (u16, String, Vec<u8>) {
    let response = router.oneshot(request).await.expect("a router answers");
    let (parts, body) = response.into_parts();
    let kind = parts.headers.get("content-type").map_or("", |kind| kind.to_str().expect("text")).to_owned();
    if kind == "text/event-stream" {
        return (parts.status.as_u16(), kind, Vec::new());
    }
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    (parts.status.as_u16(), kind, body.to_vec())
}

/// Percent-encoded, all but letters and digits.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
