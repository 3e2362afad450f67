//! A client in another language, with nothing but its standard library, does a worker's and a producer's work over HTTP.

use std::process::Command;
use std::time::Duration;

use tokio::net::TcpListener;
use windlass::Client;
use windlass_server::api::{self, ApiState};

const SAID: &str = "\
enqueued 201 scheduled False
repeated 200 True True
explained ['no_worker_for_queue']
claimed 1 12345678901234567890
extended 200 True 1m
saved 204
failed applied retrying
claimed 2 {'done': 1} True
stale stale mismatch
refused 409 urn:windlass:problem:stale-lease mismatch
completed applied completed
repeated already_applied
child pack True
waits pending
waited 200 ship completed [1, 2]
stats 3 3
problem 400 invalid argument type
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_speaks_the_api() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let router = api::router(ApiState::new(Client::in_memory()));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http_client.py");
    let ran = tokio::task::spawn_blocking(move || Command::new("python3").arg(script).arg(url).output());
    let output = tokio::time::timeout(Duration::from_secs(120), ran).await.expect("in time").expect("no panic");
    let output = output.expect("python3 must be installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), SAID, "{errors}");
}
