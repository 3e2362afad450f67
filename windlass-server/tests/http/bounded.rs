//! Answers and bodies that must not become too large, too deep, or anybody else's.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use windlass_server::api::Caller;

use crate::support::{Server, request};

/// Jobs whose payloads have 900 kB each; gives their ids.
async fn submit_large(server: &Server, count: usize) -> Vec<String> {
    let payload = "x".repeat(900_000);
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(server.submit(json!({ "type": "t", "payload": payload })).await);
    }
    ids
}

fn ids(rows: &Value) -> Vec<String> {
    let rows = rows.as_array().expect("rows");
    rows.iter().map(|row| row["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn an_id_that_is_asked_for_often_is_answered_once() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t", "payload": "x".repeat(1000) })).await;
    let other = "00000000-0000-4000-8000-000000000000";
    let mut asked = vec![id.as_str(); 5000];
    asked.push(other);
    asked.push(&id);
    let found = server.post("/v1/jobs/find", json!({ "ids": asked })).await;
    assert!(found.body.len() < 5000, "{}", found.body.len());
    let found = found.ok();
    assert_eq!(found["items"].as_array().expect("rows").len(), 2);
    assert_eq!((&found["items"][0]["id"], &found["items"][1]), (&json!(id), &Value::Null));
}

#[tokio::test]
async fn a_page_that_would_become_too_large_is_cut_and_has_a_cursor() {
    let server = Server::new();
    let mut all = submit_large(&server, 40).await;
    let first = server.get("/v1/jobs?limit=1000").await;
    assert!(first.body.len() < 32 << 20, "{}", first.body.len());
    assert_eq!(first.header("content-type"), "application/json");
    let first = first.ok();
    let cursor = first["next_cursor"].as_str().expect("there is more");
    let second = server.get(&format!("/v1/jobs?limit=1000&cursor={cursor}")).await.ok();
    assert!(second.get("next_cursor").is_none());
    let mut seen = [ids(&first["items"]), ids(&second["items"])].concat();
    seen.sort();
    all.sort();
    assert_eq!(seen, all);
}

#[tokio::test]
async fn jobs_by_id_are_cut_and_the_rest_is_named() {
    let server = Server::new();
    let all = submit_large(&server, 40).await;
    let first = server.post("/v1/jobs/find", json!({ "ids": all })).await.ok();
    let rest = first["rest"].as_array().expect("there is more").clone();
    assert!(!rest.is_empty() && !first["items"].as_array().expect("rows").is_empty());
    let second = server.post("/v1/jobs/find", json!({ "ids": rest })).await.ok();
    assert!(second.get("rest").is_none());
    assert_eq!([ids(&first["items"]), ids(&second["items"])].concat(), all);
}

#[tokio::test]
async fn a_claim_leases_no_job_that_it_does_not_answer() {
    let server = Server::new();
    submit_large(&server, 70).await;
    let claim = json!({ "queues": ["default"], "max": 1000, "worker": "w" });
    let answer = server.post("/v1/claims", claim.clone()).await;
    assert!(answer.body.len() < 48 << 20, "{}", answer.body.len());
    let answer = answer.ok();
    let claimed = answer["jobs"].as_array().expect("jobs").len();
    assert!(answer["cut"] == json!(true) && claimed < 70, "{claimed}");
    assert_eq!(server.get("/v1/stats").await.ok()["states"]["running"], json!(claimed));
    let mut seen = claimed;
    while seen < 70 {
        let more = server.post("/v1/claims", claim.clone()).await.ok()["jobs"].as_array().expect("jobs").len();
        assert!(more > 0);
        seen += more;
    }
}

#[tokio::test]
async fn a_claim_in_steps_takes_no_more_of_a_queue_than_was_asked_for() {
    let server = Server::new();
    for queue in ["a", "b"] {
        let jobs: Vec<_> = (0..100).map(|_| json!({ "type": "t", "queue": queue })).collect();
        server.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.ok();
    }
    let queues = json!([{ "queue": "a", "max": 50 }, { "queue": "b", "max": 40 }]);
    let answer = server.post("/v1/claims", json!({ "queues": queues, "max": 85, "worker": "w" })).await.ok();
    let jobs = answer["jobs"].as_array().expect("jobs");
    let of = |queue: &str| jobs.iter().filter(|job| job["queue"] == json!(queue)).count();
    assert_eq!((of("a"), of("b"), answer.get("cut")), (50, 35, None));
}

#[tokio::test(start_paused = true)]
async fn a_claim_says_how_long_it_waited() {
    let server = Server::new();
    let claim = json!({ "queues": ["default"], "wait": "20s", "lease": "5s", "worker": "w" });
    let (answer, ()) = tokio::join!(server.post("/v1/claims", claim.clone()), async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        server.submit(json!({ "type": "t" })).await;
    });
    assert_eq!(answer.ok()["waited"], json!("7s"));
    server.submit(json!({ "type": "t" })).await;
    assert_eq!(server.post("/v1/claims", claim).await.ok()["waited"], json!("0s"));
}

#[tokio::test]
async fn what_is_nested_too_deep_is_refused_by_name() {
    let server = Server::new();
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let post = async |path: &str, body: String| server.send(request("POST", path, Body::from(body))).await;
    let job = |depth| format!("{{\"type\":\"t\",\"payload\":{}}}", nested(depth));
    assert_eq!(post("/v1/jobs", job(100)).await.status, 201);
    for depth in [101, 500_000] {
        let refused = post("/v1/jobs", job(depth)).await;
        assert_eq!(refused.problem(), (400, "invalid-argument".into(), Some("payload".into())), "{depth}");
        assert!(refused.json()["detail"].as_str().expect("words").contains("at most 100 deep"));
    }
    let claimed = server.claim(1).await.remove(0);
    let (id, token) = (&claimed["id"], &claimed["lease"]["token"]);
    let settle = format!(
        "{{\"settlements\":[{{\"id\":{id},\"token\":{token},\"outcome\":\"completed\",\"result\":{}}}]}}",
        nested(101)
    );
    let refused = post("/v1/leases/settle", settle).await.ok();
    assert_eq!(refused["settled"][0]["problem"]["field"], json!("result"));
    let save = format!("{{\"id\":{id},\"token\":{token},\"checkpoint\":{}}}", nested(101));
    let refused = post("/v1/leases/save", save).await;
    assert_eq!(refused.problem(), (400, "invalid-argument".into(), Some("checkpoint".into())));
}

#[tokio::test]
async fn the_member_that_is_wrong_is_named() {
    let server = Server::new();
    let table = [
        ("/v1/jobs", r#"{"type":"t","max_attempts":"x"}"#, "max_attempts"),
        ("/v1/jobs", r#"{"type":"t","payloadd":1}"#, "payloadd"),
        ("/v1/jobs", r#"{"type":"t","tags":{"a":"1","a":"2"}}"#, "tags"),
        ("/v1/jobs", r#"{"type":"t","run_at":"tomorrow"}"#, "run_at"),
        ("/v1/jobs/batch", r#"{"jobs":[{"type":"t"},{"type":"t","retry":{"max":1}}]}"#, "jobs[1].retry.max"),
        ("/v1/claims", r#"{"queues":["q"],"worker":"w","wait":true}"#, "wait"),
    ];
    for (path, body, field) in table {
        let refused = server.send(request("POST", path, Body::from(body))).await;
        assert_eq!(refused.problem(), (400, "invalid-body".into(), Some(field.into())), "{body}");
    }
}

#[tokio::test]
async fn a_packed_body_is_refused() {
    let server = Server::new();
    let send = async |name: &str, value: &str| {
        let request = Request::post("/v1/jobs").header("content-type", "application/json").header(name, value);
        server.send(request.body(Body::from(r#"{"type":"t"}"#)).expect("a request")).await
    };
    for (name, value) in [("content-encoding", "gzip"), ("transfer-encoding", "gzip, chunked")] {
        let refused = send(name, value).await;
        assert_eq!(refused.problem(), (415, "unsupported-media-type".into(), Some(name.into())), "{value}");
    }
    for (name, value) in [("content-encoding", "identity"), ("transfer-encoding", "chunked")] {
        assert_eq!(send(name, value).await.status, 201, "{value}");
    }
}

#[tokio::test]
async fn whoever_may_not_see_payloads_may_leave_them_out() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t", "payload": "secret" })).await;
    for path in ["/v1/jobs?payloads=false".to_owned(), format!("/v1/jobs/{id}?payloads=true")] {
        let mut request = request("GET", &path, Body::empty());
        request.extensions_mut().insert(Caller { payloads_hidden: true, ..Caller::default() });
        let answer = server.send(request).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("secret"), "{path}");
    }
}

#[tokio::test]
async fn names_of_the_system_are_refused() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t" })).await;
    let webhook = json!({ "type": "windlass.webhook", "payload": { "job_id": id } });
    let queue = json!({ "type": "t", "queue": "windlass.webhooks" });
    for (path, body, field) in [
        ("/v1/jobs", webhook.clone(), "type"),
        ("/v1/jobs", queue.clone(), "queue"),
        ("/v1/jobs/batch", json!({ "jobs": [{ "type": "t" }, queue] }), "queue"),
        ("/v1/workflows", json!({ "name": "w", "jobs": [webhook] }), "type"),
        ("/v1/schedules", json!({ "name": "s", "every": "1h", "job": webhook }), "type"),
    ] {
        let refused = server.post(path, body).await.problem();
        assert_eq!(refused, (400, "invalid-argument".into(), Some(field.into())), "{path}");
    }
    let claimed = server.claim(1).await.remove(0);
    let settled = server.settle(&claimed, json!({ "outcome": "completed", "spawn": [webhook] })).await;
    assert_eq!(settled["problem"]["field"], json!("type"));
}

#[tokio::test]
async fn queues_come_in_pages() {
    let server = Server::new();
    let jobs: Vec<_> = (0..1200).map(|n| json!({ "type": "t", "queue": format!("q-{n:04}") })).collect();
    server.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.ok();
    let first = server.get("/v1/queues").await.ok();
    assert_eq!(first["items"].as_array().expect("rows").len(), 1000);
    let cursor = first["next_cursor"].as_str().expect("there is more");
    let second = server.get(&format!("/v1/queues?limit=200&cursor={cursor}")).await.ok();
    assert_eq!(second["items"].as_array().expect("rows").len(), 200);
    assert!(second.get("next_cursor").is_none());
    assert_eq!(second["items"][199]["name"], json!("q-1199"));
}

#[tokio::test]
async fn the_last_day_of_9999_is_a_time() {
    let server = Server::new();
    let job = json!({ "type": "t", "run_at": "9999-12-31T23:59:59Z", "lifetime": "none" });
    let id = server.submit(job).await;
    assert_eq!(server.get(&format!("/v1/jobs/{id}")).await.ok()["state"], json!("delayed"));
}

#[tokio::test]
async fn the_four_states_are_shown_and_asked_for() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t" })).await;
    server.submit(json!({ "type": "t", "delay": "1h" })).await;
    let state = async |id: &str| server.get(&format!("/v1/jobs/{id}")).await.ok()["simple_state"].clone();
    assert_eq!(state(&id).await, json!("ready"));
    let claimed = server.claim(1).await.remove(0);
    assert_eq!(state(&id).await, json!("in_flight"));
    let count = async |filter: &str| server.get(&format!("/v1/jobs/count?{filter}")).await.ok()["count"].clone();
    assert_eq!(count("simple_state=ready").await, json!(1));
    assert_eq!(count("simple_state=ready,in_flight&simple_state=failed").await, json!(2));
    server.settle(&claimed, json!({ "outcome": "completed" })).await;
    assert_eq!(state(&id).await, json!("succeeded"));
    assert_eq!(count("simple_state=succeeded").await, json!(1));
    for bad in ["simple_state=done", "simple_state=ready&state=failed"] {
        let refused = server.get(&format!("/v1/jobs?{bad}")).await.problem();
        assert_eq!(refused, (400, "invalid-argument".into(), Some("simple_state".into())), "{bad}");
    }
}

#[tokio::test]
async fn a_copy_has_the_key_that_it_is_given() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t", "idempotency_key": "first" })).await;
    let path = format!("/v1/jobs/{id}/clone");
    let key = json!({ "idempotency_key": "again", "idempotency_window": "1h" });
    let copy = server.post(&path, key.clone()).await;
    assert_eq!(copy.status, 201);
    let copy = copy.ok();
    let job = server.get(&format!("/v1/jobs/{}", copy["id"].as_str().expect("an id"))).await.ok();
    assert_eq!((&job["idempotency_key"], &job["idempotency_window"]), (&json!("again"), &json!("1h")));
    assert_eq!(job["cloned_from"], json!(id));
    let same = server.post(&path, key).await;
    assert_eq!((same.status.as_u16(), &same.json()["id"]), (200, &copy["id"]));
    let plain = server.send(request("POST", &path, Body::empty())).await.ok();
    assert_ne!(plain["id"], copy["id"]);
    for (body, kind, field) in [
        (json!({ "key": "x" }), "invalid-body", "key"),
        (json!({ "idempotency_window": "1h" }), "invalid-argument", "idempotency_key"),
        (json!({ "idempotency_key": "" }), "invalid-argument", "idempotency_key"),
    ] {
        assert_eq!(server.post(&path, body).await.problem(), (400, kind.into(), Some(field.into())));
    }
}

#[tokio::test]
async fn what_a_stored_job_must_have_is_there() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t" })).await;
    let job = server.get(&format!("/v1/jobs/{id}")).await.ok();
    let document: Value = serde_json::from_str(windlass_server::api::document()).expect("JSON");
    let shape = &document["components"]["schemas"]["Job"];
    for name in shape["required"].as_array().expect("names") {
        assert!(!job[name.as_str().expect("a name")].is_null(), "{name}");
    }
    for name in job.as_object().expect("members").keys() {
        assert!(shape["properties"].get(name).is_some(), "{name} is not described");
    }
}

/// A program that embeds the library and one that asks the server show the same job.
#[tokio::test]
async fn a_record_as_json_is_what_the_api_answers() {
    let server = Server::new();
    let job = json!({
        "type": "t", "payload": { "n": 1 }, "delay": "1m", "tags": { "a": "b" }, "correlation_id": "c", "priority": "high",
        "idempotency_key": "k", "callback_url": "https://example.com/", "lifetime": "2d",
    });
    let waiting = server.submit(job).await;
    let failed = server.submit(json!({ "type": "t", "max_attempts": 1 })).await;
    let claimed = server.claim(1).await;
    let failure = json!({ "category": "permanent", "code": "gone", "message": "it is not there" });
    let settled =
        json!({ "id": failed, "token": claimed[0]["lease"]["token"], "outcome": "failed", "failure": failure });
    server.post("/v1/leases/settle", json!({ "settlements": [settled] })).await.ok();
    let running = server.submit(json!({ "type": "t" })).await;
    server.claim(1).await;
    for id in [waiting, failed, running] {
        let record = server.client.job(id.parse().expect("an id")).await.expect("the job");
        let here = serde_json::to_value(&record).expect("JSON");
        let there = server.get(&format!("/v1/jobs/{id}")).await.ok();
        for (member, value) in here.as_object().expect("members") {
            assert_eq!(Some(value), there.get(member), "{member}");
        }
    }
}

#[tokio::test]
async fn a_count_says_how_many_rows_it_looked_at() {
    let server = Server::new();
    let jobs: Vec<_> = (0..50).map(|n| json!({ "type": "t", "tags": { "n": (n % 2).to_string() } })).collect();
    server.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.ok();
    let count = async |query: &str| server.get(&format!("/v1/jobs/count?{query}")).await.ok();
    assert_eq!(count("tag.n=1").await, json!({ "count": 25, "capped": false, "looked": 50 }));
    assert_eq!(count("tag.n=1&looked=10").await, json!({ "count": 5, "capped": true, "looked": 10 }));
    assert_eq!(count("tag.n=1&cap=3").await, json!({ "count": 3, "capped": true, "looked": 6 }));
    assert_eq!(count("state=scheduled").await, json!({ "count": 50, "capped": false, "looked": 0 }));
}

/// H3: of the jobs that an operation could not change, a thousand are told, ten in the list, and ten once it is old.
#[tokio::test]
async fn h3_refused_jobs_of_operations_are_told_up_to_a_bound() {
    let server = Server::new();
    let jobs = vec![json!({ "type": "t" }); 1100];
    let batch = server.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.ok();
    let ids: Vec<_> = batch["jobs"].as_array().expect("jobs").iter().map(|job| job["id"].clone()).collect();
    let refused = |status: &Value| status["refused"].as_array().map(Vec::len);

    // Jobs that wait cannot be requeued.
    let act = json!({ "ids": ids, "action": "requeue" });
    let status = server.post("/v1/operations?wait=30s", act).await.ok();
    assert_eq!(refused(&status), Some(1000));
    let listed = server.get("/v1/operations").await.ok();
    assert_eq!(refused(&listed["items"][0]), Some(10));

    let path = format!("/v1/operations/{}", status["id"].as_str().expect("an id"));
    for _ in 0..49 {
        server.post("/v1/operations?wait=30s", json!({ "ids": [ids[0]], "action": "requeue" })).await.ok();
    }
    assert_eq!(refused(&server.get(&path).await.ok()), Some(1000), "it is among the newest fifty");
    server.post("/v1/operations?wait=30s", json!({ "ids": [ids[0]], "action": "requeue" })).await.ok();
    assert_eq!(refused(&server.get(&path).await.ok()), Some(10));
}
