use std::time::Duration;

use axum::body::Body;
use serde_json::json;
use windlass_server::api::Caller;

use crate::support::{Server, request};

async fn many(server: &Server, count: usize) {
    let jobs = vec![json!({ "type": "t", "queue": "bulk" }); count];
    assert_eq!(server.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.status, 201);
}

#[tokio::test]
async fn bulk_work_is_followed_to_its_end() {
    let server = Server::new();
    many(&server, 2500).await;
    server.submit(json!({ "type": "t" })).await;
    let dry = json!({ "filter": { "queue": "bulk" }, "action": "cancel", "dry_run": true });
    let counted = server.post("/v1/operations?wait=30s", dry).await;
    assert_eq!(counted.status, 202);
    assert_eq!(counted.json()["changed"], json!(2500));
    assert_eq!(server.get("/v1/jobs/count?state=cancelled").await.ok()["count"], json!(0));

    let real = json!({ "filter": { "queue": "bulk" }, "action": "cancel", "reason": "spring cleaning" });
    let started = server.post("/v1/operations?by=ada", real).await;
    let path = started.header("location").to_owned();
    let ended = server.get(&format!("{path}?wait=30s")).await.ok();
    assert_eq!((&ended["state"], &ended["changed"]), (&json!("done"), &json!(2500)));
    assert!(ended["ended_at"].is_string() && ended.get("problem").is_none());
    assert_eq!(server.get("/v1/jobs/count?state=cancelled").await.ok()["count"], json!(2500));
    let acts = server.get("/v1/acts").await.ok();
    assert!(acts["items"].as_array().expect("acts").iter().all(|act| act["by"] == json!("ada")));
    let listed = server.get("/v1/operations").await.ok();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(listed["items"][0], ended);
}

#[tokio::test]
async fn bulk_work_on_named_jobs_tells_which_it_could_not_change() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t" })).await;
    let unknown = "00000000-0000-4000-8000-000000000000";
    let delete = json!({ "ids": [id, unknown], "action": "delete" });
    let ended = server.post("/v1/operations?wait=30s", delete).await.json();
    assert_eq!((&ended["state"], &ended["changed"]), (&json!("done"), &json!(0)));
    let slugs: Vec<_> =
        ended["refused"].as_array().expect("refused").iter().map(|one| one["problem"]["type"].clone()).collect();
    assert_eq!(slugs, ["urn:windlass:problem:illegal-state", "urn:windlass:problem:not-found"]);
}

#[tokio::test]
async fn bulk_work_that_makes_no_sense_does_not_begin() {
    let server = Server::new();
    let bad = [
        json!({ "action": "cancel" }),
        json!({ "action": "cancel", "filter": {}, "ids": [] }),
        json!({ "action": "cancel", "filter": {}, "keep_counters": true }),
        json!({ "action": "delete", "filter": {}, "force": true }),
        json!({ "action": "edit", "filter": {} }),
        json!({ "action": "edit", "filter": {}, "edit": { "tags": { "": "" } } }),
        json!({ "action": "explode", "filter": {} }),
        json!({ "action": "cancel", "filter": { "queue": "a b" } }),
    ];
    for body in bad {
        assert_eq!(server.post("/v1/operations", body.clone()).await.problem().0, 400, "{body}");
    }
    assert_eq!(server.get("/v1/operations").await.ok(), json!({ "items": [] }));
}

#[tokio::test]
async fn bulk_work_can_be_stopped() {
    let server = Server::new();
    many(&server, 10).await;
    let started = server.post("/v1/operations", json!({ "filter": {}, "action": "cancel" })).await;
    let path = started.header("location").to_owned();
    let stopped = server.send(request("DELETE", &path, Body::empty())).await;
    assert_eq!(stopped.status, 202);
    let ended = server.get(&format!("{path}?wait=30s")).await.ok();
    assert!([json!("stopped"), json!("done")].contains(&ended["state"]), "{ended}");
}

#[tokio::test]
async fn a_list_is_narrowed_by_every_condition() {
    let server = Server::new();
    server
        .submit(json!({ "type": "a", "queue": "x/y", "tags": { "k": "v&=%", "é": "ü" }, "correlation_id": "" }))
        .await;
    server.clock.advance(Duration::from_secs(10));
    server.submit(json!({ "type": "b", "queue": "z", "delay": "1h", "correlation_id": "c" })).await;
    let conditions = [
        ("", 2),
        ("state=delayed", 1),
        ("state=delayed,scheduled", 2),
        ("state=delayed&state=scheduled", 2),
        ("state=running", 0),
        ("queue=x%2Fy", 1),
        ("type=b", 1),
        ("type=b&queue=x%2Fy", 0),
        ("tag.k=v%26%3D%25", 1),
        ("tag.k=v%26%3D%25&tag.%C3%A9=%C3%BC", 1),
        ("tag.k=other", 0),
        ("correlation_id=", 1),
        ("correlation_id=c", 1),
        ("code=x", 0),
        ("schedule=s", 0),
        ("workflow=00000000-0000-4000-8000-000000000000", 0),
        ("created_after=2026-01-01T00:00:10Z", 1),
        ("created_before=2026-01-01T00:00:10Z", 1),
        ("created_after=2026-01-01T01:00:10%2B01:00", 1),
        ("ended_before=2027-01-01T00:00:00Z", 0),
    ];
    for (condition, count) in conditions {
        let page = server.get(&format!("/v1/jobs?{condition}")).await.ok();
        assert_eq!(page["items"].as_array().map(Vec::len), Some(count), "{condition}");
        let counted = server.get(&format!("/v1/jobs/count?{condition}")).await.ok();
        // How many rows it looked at depends on what the store keeps.
        assert_eq!((&counted["count"], &counted["capped"]), (&json!(count), &json!(false)), "{condition}");
    }
}

#[tokio::test]
async fn pages_follow_one_another_without_gap_or_overlap() {
    let server = Server::new();
    many(&server, 7).await;
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/jobs?limit=3&payloads=false{cursor}")).await.ok();
        let items = page["items"].as_array().expect("items");
        assert!(items.iter().all(|job| job["payload_hidden"] == json!(true) && job.get("payload").is_none()));
        seen.extend(items.iter().map(|job| job["id"].to_string()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((count, seen.len()), (7, 7));
}

#[tokio::test]
async fn a_job_is_edited_and_what_is_null_is_cleared() {
    let server = Server::new();
    let id = server
        .submit(json!({ "type": "t", "correlation_id": "c", "callback_url": "https://host/", "tags": { "a": "b" } }))
        .await;
    let path = format!("/v1/jobs/{id}");
    let edited = server.call("PATCH", &path, json!({ "priority": "high", "correlation_id": null })).await.ok();
    assert_eq!(edited["priority"], json!("high"));
    assert!(edited.get("correlation_id").is_none());
    assert_eq!((&edited["callback_url"], &edited["tags"]), (&json!("https://host/"), &json!({ "a": "b" })));
    assert_eq!(server.call("PATCH", &path, json!({ "payload": 1 })).await.problem().1, "invalid-body");
    let cleared = server.call("PATCH", &path, json!({ "callback_url": null })).await.ok();
    assert!(cleared.get("callback_url").is_none());
    let cancelled = server.send(request("POST", &format!("{path}/cancel"), Body::empty())).await.ok();
    assert_eq!(cancelled["state"], json!("cancelled"));
    assert_eq!(server.call("PATCH", &path, json!({ "priority": "low" })).await.problem().1, "illegal-state");
    let copy = server.post(&format!("{path}/clone"), json!(null)).await.ok();
    let copy = server.get(&format!("/v1/jobs/{}", copy["id"].as_str().expect("an id"))).await.ok();
    assert_eq!(copy["cloned_from"], json!(id));
    assert_eq!(server.send(request("DELETE", &path, Body::empty())).await.status, 204);
    assert_eq!(server.get(&path).await.status, 404);
}

#[tokio::test]
async fn queues_are_paused_purged_and_shown() {
    let server = Server::new();
    many(&server, 3).await;
    assert_eq!(server.post("/v1/queues/bulk/pause?by=ada", json!(null)).await.status, 204);
    let queue = server.get("/v1/queues/bulk").await.ok();
    assert_eq!((&queue["paused"], &queue["states"]["scheduled"]), (&json!(true), &json!(3)));
    let id = server.get("/v1/jobs").await.ok()["items"][0]["id"].as_str().expect("an id").to_owned();
    let reasons = server.get(&format!("/v1/jobs/{id}/explain")).await.ok()["reasons"].clone();
    assert_eq!(reasons[0]["why"], json!({ "reason": "paused", "queue": "bulk" }));
    assert_eq!(reasons[0]["text"], json!("queue bulk is paused"));
    assert_eq!(server.post("/v1/queues/bulk/purge", json!(null)).await.ok(), json!({ "changed": 3 }));
    assert_eq!(server.post("/v1/queues/bulk/resume", json!(null)).await.status, 204);
    // Names that a URL cannot hold as they are.
    for (name, path) in [("..", "~.."), ("a/b", "a%2Fb"), (".", "~.")] {
        assert_eq!(server.post(&format!("/v1/queues/{path}/pause"), json!(null)).await.status, 204);
        assert_eq!(server.get(&format!("/v1/queues/{path}")).await.ok()["name"], json!(name));
    }
}

#[tokio::test]
async fn a_worker_is_told_to_drain_and_to_go_on() {
    let server = Server::new();
    let report = json!({ "id": "box.1", "host": "box", "queues": [{ "queue": "default", "slots": 2, "busy": 1 }] });
    let announce = async || server.post("/v1/workers", report.clone()).await.ok()["draining"].clone();
    let missing = server.post("/v1/workers/box.1/drain", json!(null)).await;
    let (status, slug, _) = missing.problem();
    assert_eq!((status, slug.as_str()), (404, "not-found"));
    assert_eq!(announce().await, json!(false));
    let told = server.post("/v1/workers/box.1/drain?by=ada", json!({ "reason": "its disk" })).await.ok();
    assert_eq!((&told["id"], &told["draining"]), (&json!("box.1"), &json!(true)));
    assert_eq!(announce().await, json!(true));
    assert_eq!(server.get("/v1/workers").await.ok()["items"][0]["draining"], json!(true));
    assert_eq!(server.post("/v1/workers/box.1/resume?by=ada", json!(null)).await.ok()["draining"], json!(false));
    assert_eq!(announce().await, json!(false));
    let acts = server.get("/v1/acts").await.ok()["items"].clone();
    let act = |number: usize| [&acts[number]["act"], &acts[number]["target"], &acts[number]["by"]];
    assert_eq!(act(1), [&json!("drain"), &json!("worker box.1"), &json!("ada")]);
    assert_eq!(
        (act(0), &acts[1]["reason"]),
        ([&json!("resume"), &json!("worker box.1"), &json!("ada")], &json!("its disk"))
    );
    assert_eq!(server.post("/v1/workers/a%20b/drain", json!(null)).await.status, 400);
}

#[tokio::test]
async fn a_caller_whom_the_guard_knows_cannot_act_as_another() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t", "payload": "secret" })).await;
    let as_bob = |mut request: axum::http::Request<Body>| {
        request.extensions_mut().insert(Caller { name: Some("bob".into()), payloads_hidden: true });
        request
    };
    let shown = server.send(as_bob(request("GET", &format!("/v1/jobs/{id}"), Body::empty()))).await.ok();
    assert!(shown.get("payload").is_none() && shown["payload_hidden"] == json!(true), "{shown}");
    let listed = server.send(as_bob(request("GET", "/v1/jobs?payloads=true", Body::empty()))).await;
    assert!(!String::from_utf8_lossy(&listed.body).contains("secret"));
    server.send(as_bob(request("POST", &format!("/v1/jobs/{id}/cancel?by=ada"), Body::empty()))).await.ok();
    assert_eq!(server.get("/v1/acts").await.ok()["items"][0]["by"], json!("bob"));
}
