//! What the server reads: requests, as a client sends them past the guard, and the configuration. The target is the word in
//! `WINDLASS_FUZZ_TARGET`.

#![no_main]

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::Request;
use libfuzzer_sys::fuzz_target;
use tower::ServiceExt;
use windlass::Client;
use windlass_server::api::{self, ApiState};
use windlass_server::serve::config::{Given, Settings};

static TARGET: LazyLock<String> =
    LazyLock::new(|| std::env::var("WINDLASS_FUZZ_TARGET").expect("WINDLASS_FUZZ_TARGET names a target"));

fuzz_target!(|data: &[u8]| {
    match TARGET.as_str() {
        "http" => http(data),
        "config" => config(data),
        other => panic!("{other} is no target of the server"),
    }
});

/// The first line is method and path with its query, the rest the body. No answer is a failure of the server.
fn http(data: &[u8]) {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
    });
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (line, body) = (&data[..end], data[end + 1..].to_vec());
    let Some((method, path)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' ')) else { return };
    // Calls that wait for something to happen would only wait.
    if path.contains("wait") || path.starts_with("/v1/events") || path.contains("wakes") {
        return;
    }
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let Ok(request) = request.body(Body::from(body)) else { return };
    let router = api::router(ApiState::new(Client::in_memory()));
    let answer = RUNTIME.block_on(async {
        let answered = tokio::time::timeout(std::time::Duration::from_secs(5), router.oneshot(request)).await;
        answered.expect("an answer within five seconds").expect("a router always answers")
    });
    let status = answer.status().as_u16();
    assert!(status < 500 || status == 503, "{status} for {:?}", String::from_utf8_lossy(line));
}

/// A configuration is taken or refused, and no refusal repeats a secret.
fn config(data: &[u8]) {
    let folder = std::env::temp_dir().join(format!("windlass-fuzz-{}.toml", std::process::id()));
    std::fs::write(&folder, data).expect("a file");
    let given = Given { file: Some(folder), ..Given::default() };
    if let Err(error) = Settings::new(given) {
        assert!(!format!("{error:#}").contains("hunter2hunter2"), "{error:#}");
    }
}
