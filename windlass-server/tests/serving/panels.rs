//! Every panel of the dashboard has data: the demonstration with a worker from outside, scraped as Prometheus would.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Place, Process, http, until, windlass};

/// The metrics that a panel's queries name.
fn asked(query: &str) -> Vec<&str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("windlass_")).collect()
}

fn post(base: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = http(base, &format!("POST {path}"), "", &body.to_string());
    assert!(status < 300, "{path}: {status} {answer}");
    serde_json::from_str(&answer).unwrap_or_default()
}

#[test]
fn every_panel_has_data_with_a_worker_from_outside() {
    let place = Place::new();
    let mut command = windlass();
    command.args(["run", "--demo", "--listen", "0"]).current_dir(place.folder.path());
    command.env("WINDLASS_WEBHOOK_SECRETS", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let mut demo = Process::start(command);
    let base = demo.started()["listen"].as_str().expect("an address").to_owned();
    let mut worker = windlass();
    worker.args(["worker", "--exec", "cat", "--queue", "outside", "--server", &base]).current_dir(place.folder.path());
    let _worker = Process::start(worker);
    // A job for the worker outside, whose end cannot be told to this address.
    let job = json!({ "type": "echo", "queue": "outside", "payload": 1, "callback_url": "https://127.0.0.1:1/" });
    post(&base, "/v1/jobs", &job);
    // A worker that is too late, twice, and a caller that means another server.
    let late = post(&base, "/v1/jobs", &json!({ "type": "late", "queue": "elsewhere" }));
    let (id, token) = (late["id"].clone(), "00000000-0000-4000-8000-000000000000");
    post(&base, "/v1/leases/extend", &json!({ "leases": [{ "id": id, "token": token }] }));
    post(&base, "/v1/leases/settle", &json!({ "settlements": [{ "id": id, "token": token, "outcome": "completed" }] }));
    let scrape = || http(&base, "GET /metrics", "", "").1;
    until("the job of the worker outside is counted by the server", || {
        let text = scrape();
        let ended = text.lines().filter(|line| line.starts_with("windlass_attempts_ended_total{"));
        ended.into_iter().any(|line| {
            line.contains("type=\"echo\"") && line.contains("outcome=\"completed\"") && line.ends_with(" 1")
        })
    });
    let dashboard = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/dashboard.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(dashboard).expect("there")).expect("JSON");
    let mut empty = Vec::new();
    until("every panel has data", || {
        let text = scrape();
        empty.clear();
        for panel in dashboard["panels"].as_array().expect("panels") {
            let queries = panel["targets"].as_array().expect("targets").iter();
            let has = |name: &str| {
                text.lines().any(|line| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} ")))
            };
            let filled = queries
                .clone()
                .any(|query| asked(query["expr"].as_str().expect("a query")).iter().all(|name| has(name)));
            if !filled {
                empty.push(panel["title"].as_str().expect("a title").to_owned());
            }
        }
        // Nothing was refused but by a head that names another server.
        if empty == ["Refused"] {
            let address = base.trim_start_matches("http://");
            let mut line = std::net::TcpStream::connect(address).expect("a connection");
            std::io::Write::write_all(
                &mut line,
                b"GET /v1/stats HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n",
            )
            .expect("sent");
            let _ = std::io::Read::read_to_end(&mut line, &mut Vec::new());
        }
        empty.is_empty()
    });
    let text = scrape();
    for name in ["windlass_job_run_seconds_bucket", "windlass_job_wait_seconds_bucket", "windlass_queue_slots"] {
        let of = |line: &str| line.starts_with(name) && line.contains("queue=\"outside\"");
        assert!(text.lines().any(of), "{name} knows nothing of the worker outside");
    }
    let unserved = text.lines().find(|line| line.starts_with("windlass_queue_unserved{queue=\"elsewhere\"}"));
    assert_eq!(unserved, Some("windlass_queue_unserved{queue=\"elsewhere\"} 1"));
    let zeros = text.lines().filter(|line| line.starts_with("windlass_attempts_ended_total{") && line.ends_with(" 0"));
    assert_eq!(zeros.count(), 0, "no series is made before there is something to count");
    demo.signal("TERM");
    demo.wait();
}
