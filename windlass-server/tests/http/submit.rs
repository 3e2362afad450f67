use serde_json::json;

use crate::support::Server;

#[tokio::test]
async fn a_job_is_created_once_for_its_key() {
    let server = Server::new();
    let job = json!({ "type": "mail", "payload": { "to": "ada" }, "idempotency_key": "k" });
    let first = server.post("/v1/jobs", job.clone()).await;
    assert_eq!(first.status, 201);
    let body = first.json();
    assert_eq!(first.header("location"), format!("/v1/jobs/{}", body["id"].as_str().expect("an id")));
    assert_eq!((&body["existing"], &body["state"]), (&json!(false), &json!("scheduled")));
    let again = server.post("/v1/jobs", job).await;
    assert_eq!(again.status, 200);
    assert_eq!(again.json()["id"], body["id"]);
    assert_eq!(again.json()["existing"], json!(true));
    let other = json!({ "type": "mail", "payload": { "to": "bob" }, "idempotency_key": "k" });
    assert_eq!(server.post("/v1/jobs", other).await.json()["matches"], json!(false));
}

#[tokio::test]
async fn u_a_key_is_computed_from_the_payload_and_holds_as_said() {
    let server = Server::new();
    let job = |page: u32, text: &str, more: serde_json::Value| {
        let mut job = json!({ "type": "index", "payload": { "text": text, "page": page }, "unique_by": ["/page"] });
        job.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        job
    };
    let claimed = || json!({ "idempotency_until": "claimed" });
    let first = server.post("/v1/jobs", job(7, "a", claimed())).await.ok();
    let again = server.post("/v1/jobs", job(7, "b", claimed())).await;
    assert_eq!(again.status, 200);
    assert_eq!((&again.json()["id"], &again.json()["matches"]), (&first["id"], &json!(false)));
    assert_eq!(server.post("/v1/jobs", job(8, "a", claimed())).await.status, 201);
    let replace = json!({ "idempotency_until": "claimed", "on_existing": "replace" });
    let second = server.post("/v1/jobs", job(7, "c", replace)).await;
    assert_eq!(second.status, 201);
    let replaced = server.get(&format!("/v1/jobs/{}", first["id"].as_str().expect("an id"))).await.ok();
    assert_eq!(replaced["reason"], json!({ "kind": "replaced", "cause": second.json()["id"] }));
    let debounce = json!({ "debounce": { "quiet": "30s", "at_most": "5m" } });
    let third = server.post("/v1/jobs", job(7, "d", debounce)).await;
    let stored = server.get(&format!("/v1/jobs/{}", third.json()["id"].as_str().expect("an id"))).await.ok();
    assert_eq!((&stored["state"], &stored["idempotency_until"]), (&json!("delayed"), &json!("claimed")));
    assert_eq!(stored["debounce"], json!({ "quiet": "30s", "at_most": "5m" }));
    let key = stored["idempotency_key"].as_str().expect("a key");
    assert!(key.starts_with("sha256:") && key.len() == 71 && stored["unique_by"].is_null(), "{stored}");
    let bad = [
        json!({ "type": "t", "unique_by": ["page"] }),
        json!({ "type": "t", "unique_by": ["/a"], "idempotency_key": "k" }),
        json!({ "type": "t", "idempotency_until": "ended" }),
        json!({ "type": "t", "on_existing": "replace" }),
        json!({ "type": "t", "debounce": { "quiet": "5s", "at_most": "4s" } }),
        json!({ "type": "t", "debounce": { "quiet": "5s", "at_most": "9s" }, "delay": "1s" }),
        json!({ "type": "t", "debounce": { "quiet": "5s", "at_most": "9s" }, "on_existing": "keep" }),
        json!({ "type": "t", "unique_by": [""], "payload_base64": "AA==" }),
    ];
    for job in bad {
        let refused = server.post("/v1/jobs", job.clone()).await;
        assert_eq!(refused.status, 400, "{job}");
    }
}

#[tokio::test]
async fn jobs_of_a_batch_name_each_other_by_ref() {
    let server = Server::new();
    let batch = json!({ "jobs": [
        { "type": "last", "ref": "c", "depends_on": [{ "ref": "a" }, { "ref": "b", "kind": "after_all" }] },
        { "type": "first", "ref": "a" },
        { "type": "second", "ref": "b", "delay": "1h" },
    ]});
    let answer = server.post("/v1/jobs/batch", batch).await.ok();
    let jobs = answer["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.iter().map(|job| job["ref"].as_str().expect("a ref")).collect::<Vec<_>>(), ["c", "a", "b"]);
    let states: Vec<_> = jobs.iter().map(|job| job["state"].as_str().expect("a state")).collect();
    assert_eq!(states, ["pending", "scheduled", "delayed"]);
    let last = server.get(&format!("/v1/jobs/{}", jobs[0]["id"].as_str().expect("an id"))).await.ok();
    let depends_on = json!([{ "job": jobs[1]["id"], "kind": "after" }, { "job": jobs[2]["id"], "kind": "after_all" }]);
    assert_eq!(last["depends_on"], depends_on);
}

#[tokio::test]
async fn a_batch_is_all_or_nothing() {
    let server = Server::new();
    let cases = [
        (json!({ "jobs": [{ "type": "a" }, { "type": "b", "max_attempts": 0 }] }), 400, "invalid-argument"),
        (
            json!({ "jobs": [{ "type": "a" }, { "type": "b", "depends_on": [{ "ref": "x" }] }] }),
            400,
            "invalid-argument",
        ),
        (json!({ "jobs": [{ "type": "a", "ref": "x" }, { "type": "b", "ref": "x" }] }), 400, "invalid-argument"),
        (
            json!({ "jobs": [{ "type": "a" }, { "type": "b", "depends_on": [
                { "job": "00000000-0000-4000-8000-000000000000" }] }] }),
            422,
            "dependency-not-found",
        ),
        (
            json!({ "jobs": [
                { "type": "a", "ref": "a", "depends_on": [{ "ref": "b" }] },
                { "type": "b", "ref": "b", "depends_on": [{ "ref": "a" }] }] }),
            422,
            "dependency-cycle",
        ),
        (json!({ "jobs": [] }), 400, "invalid-argument"),
        (json!({ "jobs": vec![json!({ "type": "a" }); 10_001] }), 400, "invalid-argument"),
        (json!({ "jobs": [{ "type": "a" }, { "type": "b", "colour": "red" }] }), 400, "invalid-body"),
    ];
    for (batch, status, slug) in cases {
        let answer = server.post("/v1/jobs/batch", batch).await;
        assert_eq!((answer.problem().0, answer.problem().1.as_str()), (status, slug));
    }
    assert_eq!(server.get("/v1/stats").await.ok()["accepted"], json!(0));
    let most = json!({ "jobs": vec![json!({ "type": "a" }); 10_000] });
    assert_eq!(server.post("/v1/jobs/batch", most).await.status, 201);
    assert_eq!(server.get("/v1/stats").await.ok()["accepted"], json!(10_000));
}

#[tokio::test]
async fn the_callers_trace_is_carried_to_the_handler() {
    let server = Server::new();
    let mut request = crate::support::request("POST", "/v1/jobs", r#"{"type":"t"}"#.into());
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request.headers_mut().insert("traceparent", parent.parse().expect("a header"));
    server.send(request).await.ok();
    assert_eq!(server.claim(1).await[0]["trace_context"], json!({ "traceparent": parent }));
}

#[tokio::test]
async fn a_workflow_has_a_graph() {
    let server = Server::new();
    let flow = json!({ "name": "order-42", "jobs": [
        { "type": "charge", "ref": "charge" },
        { "type": "pack", "ref": "pack", "depends_on": [{ "ref": "charge" }] },
    ]});
    let started = server.post("/v1/workflows", flow).await;
    assert_eq!(started.status, 201);
    let path = started.header("location").to_owned();
    let jobs = started.ok()["jobs"].clone();
    let graph = server.get(&format!("{path}/graph")).await.ok();
    assert_eq!(graph["edges"], json!([{ "from": jobs[0]["id"], "to": jobs[1]["id"], "kind": "after" }]));
    let types: Vec<_> = graph["nodes"].as_array().expect("nodes").iter().map(|node| node["type"].clone()).collect();
    assert_eq!(types, ["charge", "pack"]);
    assert_eq!(server.get(&format!("{path}/jobs?limit=1")).await.ok()["items"].as_array().map(Vec::len), Some(1));
    let cancelled = server.post(&format!("{path}/cancel?by=ada"), json!({ "reason": "sold out" })).await.ok();
    // The second step died of the first.
    assert_eq!(cancelled, json!({ "changed": 1 }));
    assert_eq!(server.get(&path).await.ok()["state"], json!("cancelled"));
    let act = server.get("/v1/acts").await.ok()["items"][0].clone();
    assert_eq!((&act["by"], &act["reason"]), (&json!("ada"), &json!("sold out")));
}

/// S1.133: a callback that nobody will deliver is told of in the answer, until somebody does.
#[tokio::test]
async fn n7_an_enqueue_with_a_callback_warns_where_nobody_delivers() {
    let server = Server::new();
    let job = json!({ "type": "t", "callback_url": "https://example.com/done" });
    let warned =
        |answer: &serde_json::Value| answer["warnings"][0].as_str().is_some_and(|text| text.contains("webhook"));
    assert!(warned(&server.post("/v1/jobs", job.clone()).await.ok()));
    assert!(warned(&server.post("/v1/jobs/batch", json!({ "jobs": [job] })).await.ok()));
    assert!(warned(&server.post("/v1/workflows", json!({ "name": "w", "jobs": [job] })).await.ok()));
    let plain = server.post("/v1/jobs", json!({ "type": "t" })).await.ok();
    assert_eq!(plain.get("warnings"), None, "nothing to tell");
    let queues = json!([{ "queue": "windlass.webhooks", "slots": 4, "busy": 0 }]);
    server.post("/v1/workers", json!({ "id": "deliverer", "host": "", "queues": queues })).await;
    assert_eq!(server.post("/v1/jobs", job).await.ok().get("warnings"), None, "somebody delivers");
}
