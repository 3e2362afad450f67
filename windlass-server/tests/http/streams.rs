use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Server;

/// Reads a stream until it has given this number of events; gives their ids, kinds and data.
async fn follow(
    url: &str,
    last: Option<&str>,
    count: usize,
    ready: impl AsyncFnOnce(),
) -> Vec<(String, String, Value)> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut request = reqwest::Client::new().get(url);
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let mut response = request.send().await.expect("the server listens");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    ready().await;
    let mut text = String::new();
    while text.matches("data:").count() < count {
        let chunk = tokio::time::timeout(Duration::from_secs(20), response.chunk()).await.expect("in time");
        text.push_str(std::str::from_utf8(&chunk.expect("a chunk").expect("the stream goes on")).expect("text"));
    }
    let field = |event: &str, name: &str| {
        let line = event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().to_owned()
    };
    let events = text.split("\n\n").filter(|event| event.contains("data:"));
    events
        .map(|event| {
            let data = serde_json::from_str(&field(event, "data:")).expect("JSON");
            (field(event, "id:"), field(event, "event:"), data)
        })
        .collect()
}

#[tokio::test]
async fn events_are_resumed_where_they_ended() {
    let server = Server::new();
    let url = format!("http://{}/v1/events", server.listen().await);
    let seen = follow(&url, None, 2, async || {
        server.submit(json!({ "type": "a", "queue": "q" })).await;
        server.submit(json!({ "type": "b", "queue": "q" })).await;
    })
    .await;
    assert_eq!(seen.iter().map(|(_, kind, _)| kind.as_str()).collect::<Vec<_>>(), ["enqueued", "enqueued"]);
    assert_eq!(seen[0].2["type"], json!("a"));
    assert_eq!(json!(seen[0].0), seen[0].2["cursor"]);
    // What happened while nobody listened is told to a client that comes back with the last id.
    server.post("/v1/queues/q/purge", json!(null)).await.ok();
    let missed = follow(&url, Some(&seen[0].0), 3, async || {}).await;
    let told: Vec<_> = missed.iter().map(|(_, kind, data)| (kind.as_str(), data["type"].as_str())).collect();
    assert_eq!(told, [("enqueued", Some("b")), ("ended", Some("a")), ("ended", Some("b"))]);
    assert_eq!(missed[1].2["state"], json!("cancelled"));
    let by_cursor = follow(&format!("{url}?cursor={}", seen[1].0), None, 2, async || {}).await;
    assert_eq!(by_cursor, missed[1..]);
}

#[tokio::test]
async fn hints_tell_of_queues_and_ends() {
    let server = Server::new();
    let url = format!("http://{}/v1/wakes", server.listen().await);
    let hints = follow(&url, None, 2, async || {
        server.submit(json!({ "type": "a", "queue": "q" })).await;
        server.post("/v1/queues/q/purge", json!(null)).await.ok();
    })
    .await;
    assert_eq!(hints[0].2, json!({ "hint": "scheduled", "queue": "q" }));
    assert_eq!(hints[1].2["hint"], json!("ended"));
}

#[tokio::test]
async fn hints_are_only_of_the_queues_that_are_named() {
    let server = Server::new();
    let url = format!("http://{}/v1/wakes?queue=q&queue=r", server.listen().await);
    let hints = follow(&url, None, 2, async || {
        for queue in ["other", "q", "other", "r"] {
            server.submit(json!({ "type": "a", "queue": queue })).await;
            server.post(&format!("/v1/queues/{queue}/purge"), json!(null)).await.ok();
        }
    })
    .await;
    let told: Vec<_> = hints.iter().map(|(_, _, hint)| hint["queue"].as_str()).collect();
    assert_eq!(told, [Some("q"), Some("r")]);
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let server = Server::new();
    let url = format!("http://{}/v1/events", server.listen().await);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let response = reqwest::Client::new().get(url).send().await.expect("the server listens");
    server.stopping.cancel();
    let rest = tokio::time::timeout(Duration::from_secs(20), response.bytes()).await.expect("it ends");
    assert!(rest.expect("an orderly end").is_empty());
}
