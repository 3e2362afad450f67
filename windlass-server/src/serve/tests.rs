//! The guard and the connections, over real sockets: what a client can do to a server that is not its friend.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::{any, get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass::store::MemoryStore;

use super::config::{Given, Settings};
use super::guard::{Guard, Token, Tokens, new_token};
use super::health::Health;
use super::metrics::{self, Exporter};
use super::*;
use crate::api::Caller;
use crate::api::roles::Role;

/// Longer than anything here takes, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

struct Served {
    address: SocketAddr,
    stopping: CancellationToken,
    serving: JoinHandle<()>,
    _cut: DropGuard,
}

fn settings() -> Settings {
    let given = Given { store: Some("memory:".to_owned()), listen: Some("127.0.0.1:0".to_owned()), ..Given::default() };
    Settings::new(given).expect("valid")
}

/// Routes that are slow, wait, fail, or answer a lot.
fn routes() -> Router {
    let slow = || async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        "slow"
    };
    Router::new()
        .route("/v1/jobs", any(|body: axum::body::Bytes| async move { body.len().to_string() }))
        .route("/v1/jobs/batch", post(|body: axum::body::Bytes| async move { body.len().to_string() }))
        .route("/v1/stats", get(slow))
        .route("/v1/workers", get(async || "x".repeat(64 << 20)))
        .route("/v1/acts", get(async |caller: Caller| format!("{:?} {}", caller.name, caller.payloads_hidden)))
        .route("/v1/time", get(async || -> &'static str { panic!("on purpose") }))
}

async fn serve(settings: Settings) -> Served {
    serve_on(settings, Arc::new(MemoryStore::new())).await
}

async fn serve_on(settings: Settings, store: Arc<dyn Store>) -> Served {
    let (listener, _) = listen::bind(&settings).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stopping, cut) = (CancellationToken::new(), CancellationToken::new());
    let health = Health::new(Arc::clone(&store), stopping.clone());
    let exporter = Exporter::new(metrics::install().expect("a recorder"), store);
    let guard = Arc::new(Guard::new(&settings, routes(), health, exporter, stopping.clone()));
    let serving = tokio::spawn(listen::serve(listener, guard, settings.limits, stopping.clone(), cut.clone()));
    Served { address, stopping, serving, _cut: cut.drop_guard() }
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// Sends one request and reads until the server closes.
    async fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request).await.expect("sent");
        read_to_end(&mut stream).await
    }

    /// Sends one request with these further header lines.
    async fn ask(&self, line: &str, headers: &str, body: &str) -> String {
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let host = if headers.to_lowercase().contains("host:") { "" } else { "host: localhost\r\n" };
        let text = format!("{line} HTTP/1.1\r\n{host}connection: close\r\n{headers}{length}\r\n{body}");
        self.raw(text.as_bytes()).await
    }
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset after the answer is no matter.
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut text)).await.expect("the server closes");
    String::from_utf8_lossy(&text).into_owned()
}

#[track_caller]
fn status(answer: &str) -> u16 {
    let code = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

#[tokio::test]
async fn x5_x4_host_and_origin_are_checked_on_every_call() {
    let served = serve(settings()).await;
    for (headers, expected) in [
        ("", 200),
        ("host: 127.0.0.1:7654\r\n", 200),
        ("host: evil.example\r\n", 421),
        ("host: localhost\r\nhost: localhost\r\n", 400),
        ("origin: http://localhost\r\n", 200),
        ("origin: http://evil.example\r\n", 403),
        ("origin: null\r\n", 403),
    ] {
        assert_eq!(status(&served.ask("POST /v1/jobs", headers, "{}").await), expected, "{headers:?}");
    }
    assert_eq!(status(&served.ask("GET /metrics", "host: evil.example\r\n", "").await), 421);
    assert_eq!(status(&served.raw(b"GET /v1/jobs HTTP/1.0\r\n\r\n").await), 400);
    // Probes ask by whatever name they like.
    assert_eq!(status(&served.ask("GET /healthz", "host: evil.example\r\n", "").await), 200);
}

#[tokio::test]
async fn tokens_open_what_their_role_covers() {
    let (read, read_hash) = new_token().expect("a token");
    let (produce, produce_hash) = new_token().expect("a token");
    let mut settings = settings();
    settings.hide_payloads = true;
    settings.tokens = Tokens::new(vec![
        Token::new("ada", Role::Read, &read_hash).expect("valid"),
        Token::new("ci", Role::Produce, &produce_hash).expect("valid"),
    ]);
    let served = serve(settings).await;
    let (read, produce) = (format!("authorization: Bearer {read}\r\n"), format!("authorization: bearer {produce}\r\n"));
    let twice = format!("{read}{produce}");
    for (line, headers, expected) in [
        ("GET /v1/jobs", "", 401),
        ("GET /v1/jobs", "authorization: Bearer windlass_guess\r\n", 401),
        ("GET /v1/jobs", "authorization: Basic YTpi\r\n", 401),
        ("GET /v1/jobs", &twice, 401),
        ("GET /v1/jobs?token=windlass_guess", "", 401),
        ("GET /v1/jobs", &read, 200),
        ("GET /v1/jobs", &produce, 200),
        ("POST /v1/jobs", &read, 403),
        ("POST /v1/jobs", &produce, 200),
        ("POST /v1/claims", &produce, 403),
        ("GET /nowhere", &produce, 403),
        ("GET /metrics", "", 401),
        ("GET /metrics", &read, 200),
        ("GET /healthz", "", 200),
        ("GET /readyz", "", 200),
    ] {
        let answer = served.ask(line, headers, "").await;
        assert_eq!(status(&answer), expected, "{line} {answer}");
        assert!(expected != 401 || answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
    }
    assert!(served.ask("GET /v1/acts", &read, "").await.ends_with("Some(\"ada\") true"));
    assert!(served.ask("GET /v1/acts", &produce, "").await.ends_with("Some(\"ci\") false"));
}

#[tokio::test]
async fn every_answer_carries_the_security_headers_and_refusals_a_request_id() {
    let served = serve(settings()).await;
    for (line, headers) in
        [("GET /v1/jobs", ""), ("GET /healthz", ""), ("GET /v1/jobs", "host: evil.example\r\n"), ("GET /v1/time", "")]
    {
        let answer = served.ask(line, headers, "").await.to_lowercase();
        for expected in [
            "content-security-policy: default-src 'self';",
            "x-frame-options: deny",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
            "x-request-id: ",
        ] {
            assert!(answer.contains(expected), "{expected} in {answer}");
        }
    }
    let refused = served.ask("GET /v1/jobs", "host: evil.example\r\nx-request-id: abc\r\n", "").await;
    assert!(refused.contains("\"request_id\":\"abc\"") && refused.contains("application/problem+json"), "{refused}");
}

#[tokio::test]
async fn a_handler_that_panics_answers_500_and_the_server_lives_on() {
    let served = serve(settings()).await;
    assert_eq!(status(&served.ask("GET /v1/time", "", "").await), 500);
    assert_eq!(status(&served.ask("GET /v1/jobs", "", "").await), 200);
}

#[tokio::test]
async fn bodies_are_bounded_by_what_they_are_for() {
    let mut settings = settings();
    settings.limits.payload_bytes = 3000;
    settings.limits.batch_bytes = 200_000;
    let served = serve(settings.clone()).await;
    let most = settings.limits.body_bytes();
    assert_eq!(most, 4000 + 65_536);
    let body = "x".repeat(most);
    assert!(served.ask("POST /v1/jobs", "", &body).await.ends_with(&format!("\r\n{most}")));
    assert_eq!(status(&served.ask("POST /v1/jobs", "", &format!("{body}x")).await), 413);
    assert_eq!(status(&served.ask("POST /v1/jobs/batch", "", &format!("{body}x")).await), 200);
    assert_eq!(status(&served.ask("POST /v1/jobs/batch", "", &"x".repeat(200_001)).await), 413);
    // Said to be more than there is memory: refused by what it says.
    let huge = "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n";
    assert_eq!(status(&served.raw(huge.as_bytes()).await), 413);
    // Without a length: refused when it goes too far.
    let chunk = format!("{:x}\r\n{body}x\r\n0\r\n\r\n", most + 1);
    let chunked = format!("POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{chunk}");
    assert_eq!(status(&served.raw(chunked.as_bytes()).await), 413);
}

#[tokio::test]
async fn heads_are_bounded_in_size_and_number() {
    let served = serve(settings()).await;
    let many: String = (0..100).map(|n| format!("x-{n}: 1\r\n")).collect();
    assert_eq!(status(&served.ask("GET /v1/jobs", &many, "").await), 431);
    let long = format!("x-long: {}\r\n", "x".repeat(40_000));
    assert_eq!(status(&served.ask("GET /v1/jobs", &long, "").await), 431);
    let fine = format!("x-long: {}\r\n", "x".repeat(8_000));
    assert_eq!(status(&served.ask("GET /v1/jobs", &fine, "").await), 200);
}

#[tokio::test]
async fn a_client_that_is_slow_to_ask_is_cut_off() {
    let mut settings = settings();
    settings.limits.header_timeout = Duration::from_millis(300);
    settings.limits.body_timeout = Duration::from_millis(300);
    let served = serve(settings).await;
    let mut silent = served.connect().await;
    let mut slow_head = served.connect().await;
    slow_head.write_all(b"GET /v1/jobs HTTP/1.1\r\nhost: loc").await.expect("sent");
    let mut slow_body = served.connect().await;
    slow_body
        .write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nab")
        .await
        .expect("sent");
    assert_eq!(status(&read_to_end(&mut slow_body).await), 408);
    // Whether a word of farewell comes first is the HTTP library's business.
    read_to_end(&mut slow_head).await;
    read_to_end(&mut silent).await;
    // Each byte in time, the whole not.
    let mut dripping = served.connect().await;
    dripping
        .write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n")
        .await
        .expect("sent");
    let begun = Instant::now();
    while dripping.write_all(b"x").await.is_ok() && begun.elapsed() < SOON {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begun.elapsed() < SOON, "it was cut off");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let mut settings = settings();
    settings.limits.write_timeout = Duration::from_millis(300);
    let served = serve(settings).await;
    let mut deaf = served.connect().await;
    deaf.write_all(b"GET /v1/workers HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let mut read = Vec::new();
    let _ = tokio::time::timeout(SOON, deaf.read_to_end(&mut read)).await.expect("the server closed");
    assert!(read.len() < 64 << 20, "{} bytes came all the same", read.len());
}

#[tokio::test]
async fn under_load_there_is_429_and_health_is_quick() {
    let mut settings = settings();
    settings.limits.requests = 2;
    let served = Arc::new(serve(settings).await);
    let busy: Vec<_> = (0..12)
        .map(|_| {
            let served = Arc::clone(&served);
            tokio::spawn(async move { served.ask("GET /v1/stats", "", "").await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut times = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        assert_eq!(status(&served.ask("GET /healthz", "", "").await), 200);
        times.push(begun.elapsed());
    }
    times.sort();
    assert!(times[10] < Duration::from_millis(50), "half of the answers took longer than {:?}", times[10]);
    let mut answers = Vec::new();
    for asked in busy {
        answers.push(asked.await.expect("it answered"));
    }
    let refused: Vec<_> = answers.iter().filter(|answer| status(answer) == 429).collect();
    assert_eq!(refused.len(), 10);
    assert!(refused.iter().all(|answer| answer.to_lowercase().contains("retry-after: 1")));
    assert_eq!(answers.iter().filter(|answer| status(answer) == 200).count(), 2);
}

#[tokio::test]
async fn a_full_house_still_answers_for_its_health() {
    let mut settings = settings();
    settings.limits.connections = 3;
    let served = serve(settings).await;
    let mut idle = Vec::new();
    for _ in 0..3 {
        idle.push(served.connect().await);
    }
    // They are taken in the order in which they came.
    let refused = served.ask("GET /v1/jobs", "", "").await;
    assert_eq!(status(&refused), 503, "{refused}");
    assert!(refused.to_lowercase().contains("retry-after: 1"));
    assert_eq!(status(&served.ask("GET /healthz", "", "").await), 200);
    assert_eq!(status(&served.ask("GET /metrics", "", "").await), 200);
    for _ in 0..100 {
        idle.push(served.connect().await);
    }
    // Beyond the reserve a connection is closed without a word.
    let last = idle.last_mut().expect("there are some");
    assert_eq!(read_to_end(last).await, "");
    drop(idle);
    let begun = Instant::now();
    while status_or_none(&served.ask("GET /v1/jobs", "", "").await) != Some(200) {
        assert!(begun.elapsed() < SOON, "there is room again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn status_or_none(answer: &str) -> Option<u16> {
    answer.starts_with("HTTP").then(|| status(answer))
}

#[tokio::test]
async fn a_stop_lets_requests_finish_and_refuses_new_connections() {
    let served = serve(settings()).await;
    let mut under_way = served.connect().await;
    under_way.write_all(b"GET /v1/stats HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    let mut idle = served.connect().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    served.stopping.cancel();
    assert!(read_to_end(&mut under_way).await.ends_with("slow"));
    assert_eq!(read_to_end(&mut idle).await, "");
    tokio::time::timeout(SOON, served.serving).await.expect("it ended").expect("in order");
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn metrics_hold_the_queues_and_nothing_that_is_not_listed() {
    let store = Arc::new(MemoryStore::new());
    let client = Client::with_store(store.clone());
    let job = windlass::NewJob::new("t", windlass::Payload::default()).queue("mail");
    client.enqueue(job).await.expect("enqueue");
    client.pause("mail").await.expect("pause");
    let served = serve_on(settings(), store).await;
    served.ask("GET /v1/jobs", "", "").await;
    let answer = served.ask("GET /metrics", "", "").await;
    for expected in [
        "windlass_queue_depth{queue=\"mail\",state=\"scheduled\"} 1",
        "windlass_queue_depth{queue=\"mail\",state=\"running\"} 0",
        "windlass_queue_paused{queue=\"mail\"} 1",
        "windlass_store_up 1",
        "windlass_build_info{version=",
        "windlass_http_requests_total{method=\"GET\",resource=\"jobs\",status=\"200\"}",
        "# HELP windlass_queue_depth ",
    ] {
        assert!(answer.contains(expected), "{expected} in {answer}");
    }
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    for line in body.lines().filter(|line| !line.starts_with('#') && line.starts_with("windlass")) {
        let name = line.split(['{', ' ']).next().expect("a name");
        let plain = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(metrics::all().any(|metric| metric.name == plain || metric.name == name), "{name} is not listed");
    }
}
