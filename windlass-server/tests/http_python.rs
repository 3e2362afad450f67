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

/// The worker that the documents point to: under 60 lines, and it does what a worker must.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_in_python_runs_cancels_and_stops() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/worker.py");
    let text = std::fs::read_to_string(script).expect("the example");
    let lines = text.lines().count();
    assert!(lines < 60, "{lines} lines");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let client = Client::in_memory();
    let router = api::router(ApiState::new(client.clone()));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut worker = tokio::process::Command::new("python3").args([script, &url, "py"]).spawn().expect("python3");
    let job = |payload: &str| {
        let payload = windlass::Payload::json_text(payload.to_owned()).expect("JSON");
        client.enqueue(windlass::NewJob::new("greet", payload).queue("py").max_attempts(1))
    };
    let (good, bad) = (job("{\"name\":\"Ada\"}").await.expect("stored"), job("{}").await.expect("stored"));
    let long = job("{\"name\":\"Eve\",\"seconds\":600}").await.expect("stored");
    let ended = async |id| tokio::time::timeout(Duration::from_secs(60), client.wait(id)).await.expect("in time");
    let good = ended(good.id).await.expect("a job");
    assert_eq!(good.result.expect("a result").decode::<serde_json::Value>().expect("JSON")["hello"], "Ada");
    let bad = ended(bad.id).await.expect("a job");
    assert_eq!(bad.state, windlass::State::Failed, "permanent");
    client.cancel(long.id).await.expect("asked");
    assert_eq!(ended(long.id).await.expect("a job").state, windlass::State::Cancelled);
    let last = job("{\"name\":\"Joe\",\"seconds\":1}").await.expect("stored");
    while client.job(last.id).await.expect("a job").state == windlass::State::Scheduled {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let process = worker.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-TERM", &process]).status().expect("kill runs").success());
    let status = tokio::time::timeout(Duration::from_secs(60), worker.wait()).await.expect("in time").expect("it ends");
    assert!(status.success(), "{status}");
    assert_eq!(client.job(last.id).await.expect("a job").state, windlass::State::Completed, "what ran has finished");
    assert_eq!(client.workers().await.expect("listed").len(), 0, "it has taken its leave");
}
