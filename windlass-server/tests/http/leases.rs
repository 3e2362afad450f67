use std::time::Duration;

use serde_json::json;
use windlass::{NewJob, Payload};

use crate::support::Server;

#[tokio::test]
async fn a_settlement_is_applied_once_and_a_stale_one_never() {
    let server = Server::new();
    server.submit(json!({ "type": "t" })).await;
    let job = server.claim(1).await.remove(0);
    let done = json!({ "outcome": "completed", "result": { "n": 1 } });
    let applied = server.settle(&job, done.clone()).await;
    assert_eq!((&applied["status"], &applied["state"]), (&json!("applied"), &json!("completed")));
    assert_eq!(server.settle(&job, done).await["status"], json!("already_applied"));
    let stale = server.settle(&job, json!({ "outcome": "released" })).await;
    assert_eq!((&stale["status"], &stale["stale"]), (&json!("stale"), &json!("not_running")));
    let result = server.get(&format!("/v1/jobs/{}/result", job["id"].as_str().expect("an id"))).await;
    assert_eq!(result.header("content-type"), "application/json");
    assert_eq!(result.body, br#"{"n":1}"#);
}

#[tokio::test]
async fn one_bad_settlement_does_not_fail_the_others() {
    let server = Server::new();
    for _ in 0..4 {
        server.submit(json!({ "type": "t" })).await;
    }
    let jobs = server.claim(4).await;
    let said = [
        json!({ "outcome": "failed" }),
        json!({ "outcome": "completed", "snooze": "1s" }),
        json!({ "outcome": "completed", "spawn": [{ "type": "" }] }),
        json!({ "outcome": "snoozed", "snooze": "1h" }),
    ];
    let settlements: Vec<_> = jobs
        .iter()
        .zip(said)
        .map(|(job, mut said)| {
            said["id"] = job["id"].clone();
            said["token"] = job["lease"]["token"].clone();
            said
        })
        .collect();
    let answer = server.post("/v1/leases/settle", json!({ "settlements": settlements })).await.ok();
    let settled = answer["settled"].as_array().expect("answers");
    let statuses: Vec<_> = settled.iter().map(|one| one["status"].as_str().expect("a status")).collect();
    assert_eq!(statuses, ["refused", "refused", "refused", "applied"]);
    let fields: Vec<_> = settled[..3].iter().map(|one| one["problem"]["field"].as_str().expect("a field")).collect();
    assert_eq!(fields, ["failure", "snooze", "type"]);
    let running = server.get("/v1/jobs/count?state=running").await.ok();
    assert_eq!(running["count"], json!(3));
}

#[tokio::test]
async fn a_failure_follows_the_jobs_policy() {
    let server = Server::new();
    server.submit(json!({ "type": "t", "max_attempts": 2, "retry": { "jitter": "none", "initial": "7s" } })).await;
    let job = server.claim(1).await.remove(0);
    let failed = json!({ "outcome": "failed", "failure": { "message": "it broke", "code": "E1", "causes": ["x"] } });
    assert_eq!(server.settle(&job, failed.clone()).await["state"], json!("retrying"));
    let path = format!("/v1/jobs/{}", job["id"].as_str().expect("an id"));
    assert_eq!(server.get(&path).await.ok()["run_at"], json!("2026-01-01T00:00:07.000000Z"));
    server.clock.advance(Duration::from_secs(7));
    let job = server.claim(1).await.remove(0);
    assert_eq!(server.settle(&job, failed).await["state"], json!("dead_letter"));
    let dead = server.get("/v1/jobs?state=failed,dead_letter&code=E1").await.ok();
    assert_eq!(dead["items"][0]["failure"]["causes"], json!(["x"]));
    assert_eq!(server.get(&format!("{path}/result")).await.problem().1, "illegal-state");
}

#[tokio::test]
async fn bytes_come_back_to_be_saved_and_not_shown() {
    let server = Server::new();
    server.submit(json!({ "type": "t", "payload_base64": "AAEC", "content_type": "image/x" })).await;
    let job = server.claim(1).await.remove(0);
    assert_eq!((&job["payload_base64"], &job["content_type"]), (&json!("AAEC"), &json!("image/x")));
    let done = json!({ "outcome": "completed", "result_base64": "PGI+", "result_content_type": "text/html" });
    server.settle(&job, done).await;
    let result = server.get(&format!("/v1/jobs/{}/result", job["id"].as_str().expect("an id"))).await;
    assert_eq!(result.body, b"<b>");
    assert_eq!(result.header("content-type"), "application/octet-stream");
    assert_eq!(result.header("windlass-content-type"), "text/html");
    assert_eq!(result.header("content-disposition"), "attachment");
    assert_eq!(result.header("x-content-type-options"), "nosniff");
}

#[tokio::test]
async fn a_claim_that_waits_is_woken_by_a_job() {
    let server = Server::new();
    let client = server.client.clone();
    let claim = json!({ "queues": ["default"], "worker": "w", "wait": "30s" });
    let started = tokio::time::Instant::now();
    let (answer, ()) = tokio::join!(server.post("/v1/claims", claim), async {
        // Not before the claim has found nothing.
        tokio::task::yield_now().await;
        client.enqueue(NewJob::new("t", Payload::default())).await.expect("enqueue");
    });
    assert_eq!(answer.ok()["jobs"].as_array().map(Vec::len), Some(1));
    assert!(started.elapsed() < Duration::from_secs(10), "the wake must come long before the end of the wait");
}

#[tokio::test]
async fn a_claim_that_waits_ends_when_the_server_stops() {
    let server = Server::new();
    let claim = json!({ "queues": ["default"], "worker": "w", "wait": "30s" });
    let (answer, ()) = tokio::join!(server.post("/v1/claims", claim), async {
        tokio::task::yield_now().await;
        server.stopping.cancel();
    });
    // The answer also says how long it waited, which is not what this is about.
    assert_eq!(answer.ok()["jobs"], json!([]));
}

#[tokio::test]
async fn a_caller_that_hangs_up_while_it_waits_takes_no_job() {
    use tokio::io::AsyncWriteExt;
    let server = Server::new();
    let address = server.listen().await;
    let body = json!({ "queues": ["default"], "worker": "gone", "wait": "30s", "lease": "30s" }).to_string();
    let head = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}",
        body.len()
    );
    let mut caller = tokio::net::TcpStream::connect(address).await.expect("the server listens");
    caller.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.expect("sent");
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(caller);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let id = server.submit(json!({ "type": "t" })).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let job = server.get(&format!("/v1/jobs/{id}")).await.ok();
    assert_eq!((&job["state"], &job["failures"]), (&json!("scheduled"), &json!(0)));
    assert_eq!(server.claim(1).await[0]["id"], json!(id));
}

#[tokio::test]
async fn a_wait_ends_with_the_job() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t" })).await;
    let job = server.claim(1).await.remove(0);
    let wait = format!("/v1/jobs/{id}/wait?timeout=30s");
    let (waited, settled) = tokio::join!(server.get(&wait), server.settle(&job, json!({ "outcome": "completed" })));
    assert_eq!(settled["status"], json!("applied"));
    assert_eq!(waited.ok()["state"], json!("completed"));
    let id = server.submit(json!({ "type": "t" })).await;
    assert_eq!(server.get(&format!("/v1/jobs/{id}/wait?timeout=1ms")).await.ok()["state"], json!("scheduled"));
}

#[tokio::test]
async fn a_token_is_shown_to_nobody_but_its_holder() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t" })).await;
    let token = server.claim(1).await[0]["lease"]["token"].as_str().expect("a token").to_owned();
    for path in [
        format!("/v1/jobs/{id}"),
        format!("/v1/jobs/{id}/attempts"),
        "/v1/jobs".into(),
        format!("/v1/jobs/{id}/explain"),
    ] {
        let answer = server.get(&path).await;
        assert!(!String::from_utf8_lossy(&answer.body).contains(&token), "{path}");
    }
}
