//! A server on the memory store, asked in process or over a real port.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use windlass::store::MemoryStore;
use windlass::{Client, ManualClock};
use windlass_server::api::{self, ApiState};

/// An API over a fresh memory store whose clock stands still.
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) clock: ManualClock,
    pub(crate) stopping: CancellationToken,
    pub(crate) router: Router,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; `null` when there is none.
    pub(crate) fn json(&self) -> Value {
        if self.body.is_empty() { Value::Null } else { serde_json::from_slice(&self.body).expect("JSON") }
    }

    /// The body, which must be the answer to a request that was done.
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// The problem: its status, its slug and the field that is wrong.
    pub(crate) fn problem(&self) -> (u16, String, Option<String>) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", String::from_utf8_lossy(&self.body));
        let problem = self.json();
        assert_eq!(problem["status"], json!(self.status.as_u16()));
        let slug = problem["type"].as_str().expect("a type").rsplit(':').next().expect("a slug").to_owned();
        (self.status.as_u16(), slug, problem["field"].as_str().map(str::to_owned))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        Server::with(|state| state)
    }

    pub(crate) fn with(set: impl FnOnce(ApiState) -> ApiState) -> Self {
        let clock = ManualClock::default();
        let client = Client::with_store(Arc::new(MemoryStore::with_clock(clock.clone())));
        let stopping = CancellationToken::new();
        let state = set(ApiState::new(client.clone()).stopping(stopping.clone()));
        Server { client, clock, stopping, router: api::router(state) }
    }

    /// Sends a request as it is.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.expect("a router answers");
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, 1 << 30).await.expect("a body").to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path, Body::empty())).await
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        self.send(request(method, path, Body::from(body.to_string()))).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, body).await
    }

    /// Submits a job; gives its id.
    pub(crate) async fn submit(&self, job: Value) -> String {
        self.post("/v1/jobs", job).await.ok()["id"].as_str().expect("an id").to_owned()
    }

    /// Claims up to `max` jobs of the default queue.
    pub(crate) async fn claim(&self, max: usize) -> Vec<Value> {
        let claim = json!({ "queues": ["default"], "max": max, "lease": "30s", "worker": "w" });
        self.post("/v1/claims", claim).await.ok()["jobs"].as_array().expect("jobs").clone()
    }

    /// Settles a claimed job; gives the answer for it.
    pub(crate) async fn settle(&self, job: &Value, mut said: Value) -> Value {
        said["id"] = job["id"].clone();
        said["token"] = job["lease"]["token"].clone();
        self.post("/v1/leases/settle", json!({ "settlements": [said] })).await.ok()["settled"][0].clone()
    }

    /// Listens on a real port for as long as the test runs.
    pub(crate) async fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let router = self.router.clone();
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }
}

pub(crate) fn request(method: &str, path: &str, body: Body) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    request.header("x-request-id", "r-1").body(body).expect("a request")
}
