//! The guard and the connections, over real sockets: what a client can do to a server that is not its friend.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
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

mod crowded;

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
        .route("/v1/claims", post(|body: axum::body::Bytes| async move { body.len().to_string() }))
        .route("/v1/leases/settle", post(|body: axum::body::Bytes| async move { body.len().to_string() }))
        .route("/v1/jobs/x/wait", get(slow))
        .route("/v1/events", get(async || Body::from_stream(futures_util::stream::pending::<Result<&str, String>>())))
        .route("/v1/stats", get(slow))
        .route("/v1/workers", get(async || "x".repeat(64 << 20)))
        .route("/v1/acts", get(async |caller: Caller| format!("{:?} {}", caller.name, caller.payloads_hidden)))
        .route("/v1/time", get(async || -> &'static str { panic!("on purpose") }))
}

async fn serve(settings: Settings) -> Served {
    serve_on(settings, Arc::new(MemoryStore::new())).await
}

async fn serve_on(settings: Settings, store: Arc<dyn Store>) -> Served {
    serve_guarded(settings, store).await.0
}

async fn serve_guarded(settings: Settings, store: Arc<dyn Store>) -> (Served, Arc<Guard>) {
    let (listener, _) = listen::bind(&settings).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stopping, cut) = (CancellationToken::new(), CancellationToken::new());
    let health = Health::new(Arc::clone(&store), stopping.clone());
    let exporter = Exporter::new(metrics::install().expect("a recorder"), store);
    let guard = Arc::new(Guard::new(&settings, routes().into(), health, exporter, stopping.clone()).expect("a key"));
    let kept = Arc::clone(&guard);
    let serving = tokio::spawn(listen::serve(listener, guard, None, settings.limits, stopping.clone(), cut.clone()));
    (Served { address, stopping, serving, _cut: cut.drop_guard() }, kept)
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
    let code = answer.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
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
    ])
    .expect("two tokens");
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
    // M17: who only enqueues does not see what others did.
    assert!(served.ask("GET /v1/acts", &produce, "").await.ends_with("Some(\"ci\") true"));
}

/// L3: a page of an origin that may call is told so by what a browser asks for.
#[tokio::test]
async fn l3_an_origin_that_may_call_can_be_used_by_a_browser() {
    let (token, hash) = new_token().expect("a token");
    let mut settings = settings();
    settings.origins = vec!["https://console.example.com".to_owned()];
    settings.tokens = Tokens::new(vec![Token::new("ada", Role::Read, &hash).expect("valid")]).expect("one token");
    let served = serve(settings).await;
    let question = |origin: &str| {
        format!(
            "origin: {origin}\r\naccess-control-request-method: POST\r\naccess-control-request-headers: authorization\r\n"
        )
    };
    let answer = served.ask("OPTIONS /v1/jobs", &question("https://console.example.com"), "").await.to_lowercase();
    assert_eq!(status(&answer.replace("http/", "HTTP/")), 204, "{answer}");
    for expected in [
        "access-control-allow-origin: https://console.example.com",
        "access-control-allow-methods: get, post",
        "access-control-allow-headers: authorization, content-type",
        "vary: origin",
    ] {
        assert!(answer.contains(expected), "{expected} in {answer}");
    }
    assert_eq!(status(&served.ask("OPTIONS /v1/jobs", &question("https://evil.example"), "").await), 403);
    let headers = format!("origin: https://console.example.com\r\nauthorization: Bearer {token}\r\n");
    let answer = served.ask("GET /v1/jobs", &headers, "").await;
    assert_eq!(status(&answer), 200);
    assert!(answer.to_lowercase().contains("access-control-allow-origin: https://console.example.com"), "{answer}");
    let refused = served.ask("GET /v1/jobs", "origin: https://console.example.com\r\n", "").await;
    assert_eq!(status(&refused), 401);
    assert!(refused.to_lowercase().contains("access-control-allow-origin"), "the page can read why: {refused}");
}

/// L12: an image on a foreign page starts nothing here.
#[tokio::test]
async fn l12_a_foreign_page_cannot_start_reads_blindly() {
    let served = serve(settings()).await;
    for path in ["/v1/jobs", "/v1/check", "/metrics"] {
        let answer = served.ask(&format!("GET {path}"), "sec-fetch-site: cross-site\r\n", "").await;
        assert_eq!(status(&answer), 403, "{path}");
    }
    assert_eq!(status(&served.ask("GET /v1/jobs", "sec-fetch-site: same-origin\r\n", "").await), 200);
    assert_eq!(status(&served.ask("GET /v1/jobs", "sec-fetch-site: none\r\n", "").await), 200);
}

/// L19: what is encoded is not read as if it were not.
#[tokio::test]
async fn l19_an_encoded_body_is_refused() {
    let served = serve(settings()).await;
    assert_eq!(status(&served.ask("POST /v1/jobs", "content-encoding: gzip\r\n", "{}").await), 415);
    assert_eq!(status(&served.ask("POST /v1/jobs", "content-encoding: identity\r\n", "{}").await), 200);
}

/// M17: a token ends by itself, and one that is taken away is not let in again.
#[tokio::test]
async fn m17_tokens_end_and_are_replaced_without_a_restart() {
    let (over, over_hash) = new_token().expect("a token");
    let (old, old_hash) = new_token().expect("a token");
    let (new, new_hash) = new_token().expect("a token");
    let token = |name, hash: &str| Token::new(name, Role::Read, hash).expect("valid");
    let yesterday = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24);
    let mut settings = settings();
    settings.tokens =
        Tokens::new(vec![token("over", &over_hash).expires(Some(yesterday)), token("old", &old_hash)]).expect("two");
    let (served, guard) = serve_guarded(settings, Arc::new(MemoryStore::new())).await;
    let ask = async |token: &str| {
        let bearer = format!("authorization: Bearer {token}\r\n");
        status(&served.ask("GET /v1/jobs", &bearer, "").await)
    };
    assert_eq!([ask(&over).await, ask(&old).await, ask(&new).await], [401, 200, 401]);
    guard.replace_tokens(Tokens::new(vec![token("new", &new_hash)]).expect("one"));
    assert_eq!([ask(&over).await, ask(&old).await, ask(&new).await], [401, 401, 200]);
}

#[tokio::test]
async fn m17_a_read_only_server_gives_nobody_more_than_before() {
    let tokens = [(Role::Submit, Bounds::default()), (Role::Operate, Bounds::default())];
    let bound = Bounds { queues: vec![windlass::QueueName::new("mail").expect("a name")], types: Vec::new() };
    let made = tokens.into_iter().chain([(Role::Read, bound)]).map(|(role, bounds)| {
        let (token, hash) = new_token().expect("a token");
        (format!("authorization: Bearer {token}\r\n"), Token::new(&hash, role, &hash).expect("valid").bound(bounds))
    });
    let (headers, tokens): (Vec<String>, Vec<Token>) = made.unzip();
    let [submit, operate, bound] = headers.try_into().expect("three");
    let mut settings = settings();
    settings.tokens = Tokens::new(tokens).expect("three tokens");
    settings.read_only = true;
    let served = serve(settings).await;
    for (line, headers, expected) in [
        ("GET /v1/jobs", &submit, 403),
        ("POST /v1/jobs", &submit, 403),
        ("GET /metrics", &submit, 403),
        ("GET /v1/jobs", &operate, 200),
        ("POST /v1/jobs", &operate, 403),
        ("GET /metrics", &operate, 200),
        ("GET /v1/jobs", &bound, 200),
        ("GET /metrics", &bound, 403),
    ] {
        assert_eq!(status(&served.ask(line, headers, "").await), expected, "{line} {headers}");
    }
}

#[tokio::test]
async fn every_answer_carries_the_security_headers_and_refusals_a_request_id() {
    let served = serve(settings()).await;
    for (line, headers) in
        [("GET /v1/jobs", ""), ("GET /healthz", ""), ("GET /v1/jobs", "host: evil.example\r\n"), ("GET /v1/time", "")]
    {
        let answer = served.ask(line, headers, "").await.to_lowercase();
        for expected in [
            // The page has its own policy; what the API answers may load nothing at all.
            "content-security-policy: default-src 'none'; frame-ancestors 'none'",
            "cross-origin-opener-policy: same-origin",
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
    for bytes in [33_000, 40_000, 400_000] {
        let long = format!("x-long: {}\r\n", "x".repeat(bytes));
        assert_eq!(status(&served.ask("GET /v1/jobs", &long, "").await), 431, "{bytes}");
    }
    let path = format!("GET /v1/jobs?{}", "x".repeat(33_000));
    assert_eq!(status(&served.ask(&path, "", "").await), 431);
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

/// H5: what has not arrived takes no room, and what workers say waits for no upload.
#[tokio::test]
async fn h5_half_sent_uploads_stop_nobody() {
    let mib = 1 << 20;
    let mut settings = settings();
    settings.limits.batch_bytes = 2 * mib;
    settings.limits.body_memory_bytes = 8 * mib;
    let served = serve(settings).await;
    let mut half_sent = Vec::new();
    for _ in 0..4 {
        let mut stream = served.connect().await;
        let head = "POST /v1/jobs/batch HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n";
        stream.write_all(head.as_bytes()).await.expect("sent");
        half_sent.push(stream);
    }
    assert_eq!(status(&served.ask("POST /v1/jobs/batch", "", &"x".repeat(mib)).await), 200);
    assert_eq!(status(&served.ask("POST /v1/claims", "", "{}").await), 200);
    assert_eq!(status(&served.ask("POST /v1/jobs", "", &"x".repeat(60 << 10)).await), 200, "small ones need no room");
    let result = "x".repeat(mib);
    assert_eq!(status(&served.ask("POST /v1/leases/settle", "", &result).await), 200);
}

/// M11, M1: readers that wait take neither the claims' places nor those of ordinary calls.
#[tokio::test]
async fn m1_m11_waiting_readers_refuse_no_claim() {
    let mut settings = settings();
    settings.limits.waits = 2;
    settings.limits.requests = 2;
    let served = Arc::new(serve(settings).await);
    let waiting: Vec<_> = ["GET", "HEAD", "GET", "HEAD"]
        .map(|method| {
            let served = Arc::clone(&served);
            tokio::spawn(async move { status(&served.ask(&format!("{method} /v1/jobs/x/wait"), "", "").await) })
        })
        .into();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(status(&served.ask("POST /v1/claims", "", "{}").await), 200);
    assert_eq!(status(&served.ask("GET /v1/jobs", "", "").await), 200);
    let mut answers = Vec::new();
    for asked in waiting {
        answers.push(asked.await.expect("it answered"));
    }
    answers.sort_unstable();
    assert_eq!(answers, [200, 200, 429, 429]);
}

/// M11: a stream keeps its place for as long as it lasts, and one token leaves places to others.
#[tokio::test]
async fn m11_a_stream_holds_its_place_and_a_token_has_its_share() {
    let (one, one_hash) = new_token().expect("a token");
    let (two, two_hash) = new_token().expect("a token");
    let mut settings = settings();
    settings.limits.waits = 4;
    settings.limits.token_percent = 50;
    let tokens = [("one", one_hash), ("two", two_hash)];
    let tokens = tokens.map(|(name, hash)| Token::new(name, Role::Read, &hash).expect("valid"));
    settings.tokens = Tokens::new(tokens.into()).expect("two tokens");
    let served = serve(settings).await;
    let stream = async |token: &str| {
        let mut stream = served.connect().await;
        let ask = format!("GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.expect("sent");
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.expect("a head");
        (status(&String::from_utf8_lossy(&head)), stream)
    };
    let first = stream(&one).await;
    let second = stream(&one).await;
    let third = stream(&one).await;
    assert_eq!([first.0, second.0, third.0], [200, 200, 429]);
    assert_eq!(stream(&two).await.0, 200);
    drop(first);
    let begun = Instant::now();
    while stream(&one).await.0 != 200 {
        assert!(begun.elapsed() < SOON, "a stream that ended gives its place back");
    }
}

/// L11: what cannot be read is not too large.
#[tokio::test]
async fn l11_broken_chunks_are_a_bad_request() {
    let served = serve(settings()).await;
    let broken = "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n";
    assert_eq!(status(&served.raw(broken.as_bytes()).await), 400);
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
