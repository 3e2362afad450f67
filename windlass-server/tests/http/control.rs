//! Flow control over HTTP: what is out of bounds is refused, and the answer names the field and says what it may be.

use serde_json::{Value, json};

use crate::support::Server;

#[tokio::test]
async fn controls_out_of_bounds_are_refused_in_words() {
    let server = Server::new();
    let bad = [
        (json!({}), "control", "must say something: a limit, a rate, fair, ageing or ordered"),
        (json!({ "running": 0 }), "running", "must be 1 to 1000000, is 0; to stop a queue, pause it"),
        (json!({ "rate": { "count": 0, "per": "1s" } }), "rate", "must be 1 to 1000000 starts, is 0"),
        (
            json!({ "rate": { "count": 1, "per": "1h", "burst": 1_000_000 } }),
            "burst",
            "must not be more than the starts of a year",
        ),
        (json!({ "each_key": { "weight": 1001 } }), "weight", "must be 1 to 1000, is 1001"),
        (json!({ "ageing": "10ms" }), "ageing", "must be 1 s to 31 days"),
    ];
    for (body, field, detail) in bad {
        let answer = server.call("PUT", "/v1/queues/mail/control", body.clone()).await.json();
        let told = (&answer["status"], &answer["field"], &answer["detail"]);
        assert_eq!(told, (&json!(400), &json!(field), &json!(detail)), "{body}");
    }
    let negative = json!({ "rate": { "count": -1, "per": "1s" } });
    let answer = server.call("PUT", "/v1/queues/mail/control", negative).await.json();
    assert_eq!(answer["status"], json!(400), "{answer}");
    assert_eq!(server.get("/v1/queues/mail/control").await.json()["status"], json!(404), "nothing was set");
}

#[tokio::test]
async fn keys_out_of_bounds_and_unknown_queues_are_refused_in_words() {
    let server = Server::new();
    let status = |answer: &Value| answer["status"].clone();
    let long = server.post("/v1/jobs", json!({ "type": "t", "key": "k".repeat(129) })).await.json();
    assert_eq!((status(&long), &long["field"]), (json!(400), &json!("key")), "{long}");
    let nul = server.post("/v1/jobs", json!({ "type": "t", "key": "a\u{0}b" })).await.json();
    assert_eq!((status(&nul), &nul["field"]), (json!(400), &json!("key")), "{nul}");
    let unknown = server.call("PUT", "/v1/queues/mail/keys/acme", json!({ "running": 1 })).await.json();
    assert_eq!(status(&unknown), json!(409), "{unknown}");
    assert_eq!(unknown["detail"], json!("queue \"mail\" is not controlled: set its control first"));
    server.call("PUT", "/v1/queues/mail/control", json!({ "fair": true })).await.ok();
    let queues = server.get("/v1/queues").await.ok();
    assert_eq!(queues["items"][0]["control"]["control"], json!({ "fair": true }), "{queues}");
    let long = format!("/v1/queues/mail/keys/{}", "k".repeat(129));
    let refused = server.call("PUT", &long, json!({ "running": 1 })).await.json();
    assert_eq!(status(&refused), json!(400), "{refused}");
}
