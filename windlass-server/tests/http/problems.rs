use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::support::{Server, request};

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON")
}

#[tokio::test]
async fn a_field_out_of_bounds_is_named() {
    let server = Server::new();
    let answer = server.post("/v1/jobs", json!({ "type": "t", "max_attempts": 101 })).await;
    assert_eq!(answer.header("x-request-id"), "r-1");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    insta::assert_snapshot!(pretty(&answer.json()), @r#"
    {
      "detail": "must be 1 to 100, is 101",
      "field": "max_attempts",
      "request_id": "r-1",
      "status": 400,
      "title": "invalid argument",
      "type": "urn:windlass:problem:invalid-argument"
    }
    "#);
}

#[tokio::test]
async fn a_state_that_does_not_allow_it_is_told() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t" })).await;
    let mut problem = server.post(&format!("/v1/jobs/{id}/requeue"), json!({})).await.json();
    assert_eq!(problem["job"], json!(id));
    assert_eq!(problem["detail"], json!(format!("cannot requeue job {id}: it is SCHEDULED")));
    problem["job"] = json!("ID");
    problem["detail"] = json!("…");
    insta::assert_snapshot!(pretty(&problem), @r#"
    {
      "detail": "…",
      "job": "ID",
      "request_id": "r-1",
      "state": "scheduled",
      "status": 409,
      "title": "illegal state",
      "type": "urn:windlass:problem:illegal-state",
      "wanted": "requeue"
    }
    "#);
}

#[tokio::test]
async fn what_does_not_exist_is_named() {
    let server = Server::new();
    let answer = server.get("/v1/jobs/00000000-0000-4000-8000-000000000000").await;
    insta::assert_snapshot!(pretty(&answer.json()), @r#"
    {
      "detail": "job \"00000000-0000-4000-8000-000000000000\" does not exist",
      "name": "00000000-0000-4000-8000-000000000000",
      "request_id": "r-1",
      "status": 404,
      "title": "not found",
      "type": "urn:windlass:problem:not-found",
      "what": "job"
    }
    "#);
}

#[tokio::test]
async fn a_stale_save_says_why() {
    let server = Server::new();
    server.submit(json!({ "type": "t" })).await;
    let job = server.claim(1).await.remove(0);
    let save = |token: &Value| json!({ "id": job["id"], "token": token, "progress": { "fraction": 0.5 } });
    let other = json!("00000000-0000-4000-8000-000000000000");
    assert_eq!(server.post("/v1/leases/save", save(&job["lease"]["token"])).await.status, 204);
    let mismatch = server.post("/v1/leases/save", save(&other)).await;
    assert_eq!(mismatch.problem(), (409, "stale-lease".into(), None));
    assert_eq!(mismatch.json()["stale"], json!("mismatch"));
    server.clock.advance(std::time::Duration::from_secs(30));
    let expired = server.post("/v1/leases/save", save(&job["lease"]["token"])).await;
    assert_eq!(expired.json()["stale"], json!("expired"));
}

#[tokio::test]
async fn everything_that_is_not_a_request_is_a_problem_too() {
    let server = Server::with(|state| state.body_bytes(1000));
    let plain = |body: &'static str| {
        Request::builder()
            .method("POST")
            .uri("/v1/jobs")
            .header("content-type", "text/plain")
            .body(body.into())
            .expect("a request")
    };
    let untyped = Request::builder().method("POST").uri("/v1/jobs").body(Body::from("{}")).expect("a request");
    let large = format!("{{\"type\":\"{}\"}}", "x".repeat(1000));
    let cases = [
        (request("GET", "/v1/nothing", Body::empty()), 404, "no-such-route"),
        (request("GET", "/", Body::empty()), 404, "no-such-route"),
        (request("GET", "/v1/jobs/x/y/z", Body::empty()), 404, "no-such-route"),
        (request("PUT", "/v1/jobs", Body::empty()), 405, "method-not-allowed"),
        (request("DELETE", "/v1/stats", Body::empty()), 405, "method-not-allowed"),
        (request("POST", "/v1/jobs", Body::empty()), 400, "invalid-body"),
        (request("POST", "/v1/jobs", "{".into()), 400, "invalid-body"),
        (request("POST", "/v1/jobs", "[]".into()), 400, "invalid-body"),
        (request("POST", "/v1/jobs", r#" ["t"]"#.into()), 400, "invalid-body"),
        (request("POST", "/v1/upkeep", "[]".into()), 400, "invalid-body"),
        (request("POST", "/v1/jobs", "\u{0}".into()), 400, "invalid-body"),
        (request("POST", "/v1/jobs", r#"{"type":"t"} x"#.into()), 400, "invalid-body"),
        (request("POST", "/v1/jobs", r#"{"type":"t","type":"u"}"#.into()), 400, "invalid-body"),
        (request("POST", "/v1/jobs", r#"{"type":"t","delay":"soon"}"#.into()), 400, "invalid-body"),
        (request("POST", "/v1/jobs", r#"{"type":"t","run_at":"tomorrow"}"#.into()), 400, "invalid-body"),
        (request("POST", "/v1/jobs", r#"{"type":"t","payload_base64":"!"}"#.into()), 400, "invalid-argument"),
        (
            request("POST", "/v1/jobs", r#"{"type":"t","payload":1,"payload_base64":"AA=="}"#.into()),
            400,
            "invalid-argument",
        ),
        (request("POST", "/v1/jobs", r#"{"type":"t","content_type":"a/b"}"#.into()), 400, "invalid-argument"),
        (request("POST", "/v1/jobs", large.into()), 413, "payload-too-large"),
        (plain(r#"{"type":"t"}"#), 415, "unsupported-media-type"),
        (untyped, 415, "unsupported-media-type"),
        (request("GET", "/v1/jobs/not-a-uuid", Body::empty()), 400, "invalid-argument"),
        (request("GET", "/v1/queues/%FF", Body::empty()), 400, "invalid-argument"),
        (request("GET", "/v1/queues/a%20b", Body::empty()), 400, "invalid-argument"),
        (request("GET", "/v1/queues/none", Body::empty()), 404, "not-found"),
        (request("GET", "/v1/schedules/none", Body::empty()), 404, "not-found"),
        (request("GET", "/v1/operations/none", Body::empty()), 404, "not-found"),
        (request("GET", "/v1/jobs?colour=red", Body::empty()), 400, "invalid-argument"),
        (request("GET", "/v1/jobs?limit=1&limit=2", Body::empty()), 400, "invalid-argument"),
        (request("GET", "/v1/jobs?state=happy", Body::empty()), 400, "invalid-argument"),
        (request("GET", "/v1/jobs?tag.a=1&tag.a=2", Body::empty()), 400, "invalid-argument"),
        (request("GET", "/v1/jobs?cursor=nonsense", Body::empty()), 400, "invalid-argument"),
        (request("GET", "/v1/events?cursor=nonsense", Body::empty()), 400, "invalid-argument"),
    ];
    for (request, status, slug) in cases {
        let what = format!("{} {}", request.method(), request.uri());
        let answer = server.send(request).await;
        assert_eq!((answer.problem().0, answer.problem().1.as_str()), (status, slug), "{what}");
        assert!(answer.json()["request_id"].is_string(), "{what}");
    }
    assert_eq!(server.get("/v1/stats").await.ok()["accepted"], json!(0));
}

#[tokio::test]
async fn a_payload_is_never_repeated_in_a_problem() {
    let server = Server::new();
    let secret = "correct horse battery staple";
    let job = json!({ "type": "t", "payload": secret, "max_attempts": 0 });
    let answer = server.post("/v1/jobs", job).await;
    assert!(!String::from_utf8_lossy(&answer.body).contains(secret));
}

#[tokio::test]
async fn a_request_id_that_is_not_plain_is_replaced() {
    let server = Server::new();
    let mut strange = request("GET", "/v1/nothing", Body::empty());
    strange.headers_mut().insert("x-request-id", "a b<script>".parse().expect("a header"));
    let answer = server.send(strange).await;
    assert_eq!(answer.header("x-request-id").len(), 36);
    assert_eq!(answer.json()["request_id"], json!(answer.header("x-request-id")));
}
