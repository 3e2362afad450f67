//! What the page asks beyond what programs do: exact contents, who asks, looks ahead, and what needs somebody.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use windlass_server::api::Caller;

use crate::support::Server;

fn submission(text: &str) -> Request<Body> {
    let request = Request::post("/v1/jobs").header("content-type", "application/json");
    request.body(Body::from(text.to_owned())).expect("a request")
}

#[tokio::test]
async fn contents_come_byte_for_byte() {
    let server = Server::new();
    let exact = r#"{"n":123456789012345678901234567890,"x":1.10}"#;
    let job = server.send(submission(&format!(r#"{{"type":"exact","payload":{exact}}}"#))).await.ok();
    let path = format!("/v1/jobs/{}/payload", job["id"].as_str().expect("an id"));
    let answer = server.get(&path).await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(String::from_utf8_lossy(&answer.body), exact);

    let bytes = r#"{"type":"bytes","payload_base64":"PGI+","content_type":"text/html"}"#;
    let job = server.send(submission(bytes)).await.ok();
    let answer = server.get(&format!("/v1/jobs/{}/payload", job["id"].as_str().expect("an id"))).await;
    assert_eq!(answer.body, b"<b>");
    assert_eq!(answer.header("content-type"), "application/octet-stream", "a browser must not show it as a page");
    assert_eq!(answer.header("content-disposition"), "attachment");
    assert_eq!(answer.header("windlass-content-type"), "text/html");
    let none = server.get(&format!("/v1/jobs/{}/checkpoint", job["id"].as_str().expect("an id"))).await;
    assert_eq!((none.status.as_u16(), none.body.len()), (204, 0));
}

#[tokio::test]
async fn contents_are_hidden_from_those_who_may_not_see_them() {
    let server = Server::new();
    let job = server.send(submission(r#"{"type":"secret","payload":"xyzzy"}"#)).await.ok();
    let id = job["id"].as_str().expect("an id");
    for (path, status) in [("payload", 403), ("checkpoint", 403), ("?payloads=false", 200), ("?payloads=true", 200)] {
        let path = if path.starts_with('?') { format!("/v1/jobs/{id}{path}") } else { format!("/v1/jobs/{id}/{path}") };
        let mut request = Request::get(&path).body(Body::empty()).expect("a request");
        request.extensions_mut().insert(Caller { name: None, payloads_hidden: true });
        let answer = server.send(request).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("xyzzy"), "{path}");
    }
}

#[tokio::test]
async fn without_a_guard_everybody_may_do_everything() {
    let server = Server::new();
    let me = server.get("/v1/me").await.ok();
    assert_eq!(me, json!({ "role": "admin", "session": false, "payloads_hidden": false, "read_only": false }));
    let facts = server.get("/v1/server").await.ok();
    assert_eq!(facts["store"], "memory");
    assert_eq!(facts["tokens"], false);
}

#[tokio::test]
async fn firings_are_told_ahead_with_what_clock_changes_do() {
    let server = Server::new();
    let path = "/v1/firings?cron=30%202%20*%20*%20*&zone=Europe/Berlin&from=2027-03-27T12:00:00Z&n=2";
    let told = server.get(path).await.ok();
    assert_eq!(told["next"][0]["note"], "after_gap");
    assert_eq!(told["next"][0]["at"], "2027-03-28T01:00:00.000000Z");
    assert_eq!(told["next"][1].get("note"), None);
    assert_eq!(told["clock_changes"][1]["firings"][0]["note"], "first_of_two");
    for (query, field) in [("", "cron"), ("?cron=x", "cron"), ("?cron=0%200%20*%20*%20*&zone=Nowhere", "zone")] {
        let (status, _, wrong) = server.get(&format!("/v1/firings{query}")).await.problem();
        assert_eq!((status, wrong.as_deref()), (400, Some(field)), "{query}");
    }
}

#[tokio::test]
async fn a_series_without_readings_is_empty_and_says_so() {
    let server = Server::new();
    let series = server.get("/v1/series?of=depth&last=1h").await.ok();
    assert_eq!(series["at"], json!([]));
    assert_eq!(series.get("since"), None);
    assert_eq!(server.get("/v1/series?of=colour").await.problem().0, 400);
    assert_eq!(server.get("/v1/series?last=15d").await.problem().0, 400);
}

#[tokio::test]
async fn a_paused_queue_with_work_needs_somebody() {
    let server = Server::new();
    assert_eq!(server.get("/v1/attention").await.ok(), json!({ "items": [] }));
    server.send(submission(r#"{"type":"held","queue":"held","payload":1}"#)).await.ok();
    server.send(Request::post("/v1/queues/held/pause").body(Body::empty()).expect("a request")).await.ok();
    let items = server.get("/v1/attention").await.ok();
    assert_eq!(items["items"][0]["kind"], "paused_with_work");
    assert_eq!(items["items"][0]["queue"], "held");
}
