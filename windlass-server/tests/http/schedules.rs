use std::time::Duration;

use axum::body::Body;
use serde_json::{Value, json};

use crate::support::{Answer, Server, request};

fn nightly() -> Value {
    json!({ "name": "reports/nightly", "cron": "0 3 * * *", "zone": "Europe/Berlin", "job": { "type": "report" } })
}

async fn put(server: &Server, condition: Option<(&'static str, &str)>, schedule: Value) -> Answer {
    let mut put = request("PUT", "/v1/schedules/reports%2Fnightly", schedule.to_string().into());
    if let Some((name, value)) = condition {
        put.headers_mut().insert(name, value.parse().expect("a header"));
    }
    server.send(put).await
}

#[tokio::test]
async fn a_schedule_is_replaced_only_as_it_was_seen() {
    let server = Server::new();
    let created = server.post("/v1/schedules", nightly()).await;
    assert_eq!((created.status.as_u16(), created.header("etag")), (201, "\"1\""));
    assert_eq!(server.post("/v1/schedules", nightly()).await.problem().1, "conflict");
    let later = json!({ "cron": "0 4 * * *", "job": { "type": "report" } });
    let replaced = put(&server, Some(("if-match", "\"1\"")), later.clone()).await;
    assert_eq!((replaced.status.as_u16(), replaced.header("etag")), (200, "\"2\""));
    for (name, value) in [("if-match", "\"1\""), ("if-match", "\"99\""), ("if-none-match", "*")] {
        let refused = put(&server, Some((name, value)), later.clone()).await;
        assert_eq!(refused.problem().0, 412, "{name}: {value}");
    }
    for (name, value) in [("if-match", "1"), ("if-match", "W/\"1\""), ("if-match", "\"x\""), ("if-none-match", "\"1\"")]
    {
        assert_eq!(put(&server, Some((name, value)), later.clone()).await.problem().0, 400, "{name}: {value}");
    }
    assert_eq!(put(&server, Some(("if-match", "*")), later.clone()).await.header("etag"), "\"3\"");
    assert_eq!(put(&server, None, later).await.header("etag"), "\"4\"");
    let named = json!({ "name": "other", "every": "1h", "job": { "type": "t" } });
    assert_eq!(put(&server, None, named).await.problem().2.as_deref(), Some("name"));
}

#[tokio::test]
async fn a_schedule_is_previewed_paused_triggered_and_forgotten() {
    let server = Server::new();
    server.post("/v1/schedules", nightly()).await.ok();
    server.post("/v1/schedules", json!({ "name": "s", "every": "10s", "job": { "type": "t" } })).await.ok();
    let path = "/v1/schedules/reports%2Fnightly";
    let next = server.get(&format!("{path}/next?n=2")).await.ok();
    assert_eq!(next, json!({ "next": ["2026-01-01T02:00:00.000000Z", "2026-01-02T02:00:00.000000Z"] }));
    assert_eq!(server.post(&format!("{path}/pause"), json!(null)).await.ok()["paused"], json!(true));
    assert_eq!(server.post(&format!("{path}/resume"), json!(null)).await.ok()["paused"], json!(false));
    let triggered = server.post(&format!("{path}/trigger?by=ada"), json!(null)).await;
    assert_eq!(triggered.status, 201);
    let job = server.get(&format!("/v1/jobs/{}", triggered.ok()["job_id"].as_str().expect("an id"))).await.ok();
    assert_eq!(job["firing"], json!({ "schedule": "reports/nightly", "slot": "2026-01-01T00:00:00.000000Z" }));
    let first = server.get("/v1/schedules?limit=1").await.ok();
    assert_eq!(
        (&first["items"][0]["schedule"]["name"], &first["next_cursor"]),
        (&json!("reports/nightly"), &json!("reports/nightly"))
    );
    let rest = server.get("/v1/schedules?limit=1&cursor=reports%2Fnightly").await.ok();
    assert_eq!(rest["items"][0]["schedule"]["name"], json!("s"));
    let forgotten = server.send(request("DELETE", path, Body::empty())).await.ok();
    assert_eq!(forgotten["schedule"]["zone"], json!("Europe/Berlin"));
    assert_eq!(server.get(path).await.status, 404);
}

#[tokio::test]
async fn a_schedule_is_found_by_its_name_and_no_other() {
    let server = Server::new();
    let names = ["a", "a-", "aa", "ab", "b", "A", "0", "z", "zz", "a/b", "-"];
    for name in names {
        server.post("/v1/schedules", json!({ "name": name, "every": "1h", "job": { "type": "t" } })).await.ok();
    }
    for name in names {
        let found = server.get(&format!("/v1/schedules/{}", name.replace('/', "%2F"))).await.ok();
        assert_eq!(found["schedule"]["name"], json!(name));
    }
    for name in ["aaa", "ac", "B", "y", "~", "%7F", "%20", "%C3%A9", "a%00"] {
        assert_eq!(server.get(&format!("/v1/schedules/{name}")).await.status, 404, "{name}");
    }
}

#[tokio::test]
async fn a_schedule_that_makes_no_sense_is_refused() {
    let server = Server::new();
    let job = json!({ "type": "t" });
    let bad = [
        (json!({ "name": "s", "job": job }), "timing"),
        (json!({ "name": "s", "every": "1h", "delay": "1h", "job": job }), "timing"),
        (json!({ "every": "1h", "job": job }), "name"),
        (json!({ "name": "a b", "every": "1h", "job": job }), "name"),
        (json!({ "name": "s", "every": "1ms", "job": job }), "every"),
        (json!({ "name": "s", "every": "367d", "job": job }), "every"),
        (json!({ "name": "s", "delay": "0s", "job": job }), "after"),
        (json!({ "name": "s", "cron": "61 * * * *", "job": job }), "cron"),
        (json!({ "name": "s", "cron": "* * * * *", "zone": "Mars/Base", "job": job }), "zone"),
        (json!({ "name": "s", "every": "1h", "zone": "UTC", "job": job }), "zone"),
        (json!({ "name": "s", "every": "1h", "missed": "all", "job": job }), "missed"),
        (json!({ "name": "s", "every": "1h", "missed": "all", "missed_max": 0, "job": job }), "missed"),
        (json!({ "name": "s", "every": "1h", "missed_max": 5, "job": job }), "missed"),
        (json!({ "name": "s", "every": "1h", "job": { "type": "t", "delay": "1s" } }), "run_at"),
        (json!({ "name": "s", "every": "1h", "job": { "type": "t", "idempotency_key": "k" } }), "idempotency_key"),
    ];
    for (schedule, field) in bad {
        let answer = server.post("/v1/schedules", schedule.clone()).await;
        assert_eq!(answer.problem(), (400, "invalid-argument".into(), Some(field.into())), "{schedule}");
    }
}

/// A daily half past two in Berlin around the clock changes of 2027: what the preview shows is what fires.
#[tokio::test]
async fn firings_happen_as_the_preview_shows_them_across_clock_changes() {
    let server = Server::new();
    for (begin, changes_at) in [("2027-03-26T12:00:00Z", "2027-03-28"), ("2027-10-29T12:00:00Z", "2027-10-31")] {
        server.clock.advance_to(begin.parse().expect("a time"));
        let name = format!("from-{changes_at}");
        let timing = json!({ "cron": "30 2 * * *", "zone": "Europe/Berlin" });
        let mut schedule = timing.clone();
        schedule["name"] = json!(name);
        schedule["overlap"] = json!("allow");
        schedule["job"] = json!({ "type": "t" });
        server.post("/v1/schedules", schedule).await.ok();
        let mut preview = timing;
        preview["n"] = json!(5);
        let shown = server.post("/v1/schedules/preview", preview).await.ok();
        let shown: Vec<(String, bool)> = shown["next"]
            .as_array()
            .expect("firings")
            .iter()
            .map(|one| (one["at"].as_str().expect("a moment").to_owned(), one["note"].is_string()))
            .collect();
        let noted: Vec<&str> = shown.iter().filter(|(_, noted)| *noted).map(|(at, _)| &at[..10]).collect();
        assert_eq!(noted, [changes_at], "only the day of the change is noted: {shown:?}");
        // Upkeep comes by every hour.
        for _ in 0..5 * 24 {
            server.clock.advance(Duration::from_secs(3600));
            server.post("/v1/upkeep", json!({})).await.ok();
        }
        let fired = server.get(&format!("/v1/jobs?schedule={name}")).await.ok();
        let mut fired: Vec<String> = fired["items"]
            .as_array()
            .expect("jobs")
            .iter()
            .map(|job| job["firing"]["slot"].as_str().expect("a slot").to_owned())
            .collect();
        fired.sort();
        assert_eq!(fired, shown.into_iter().map(|(at, _)| at).collect::<Vec<_>>());
        server.call("DELETE", &format!("/v1/schedules/{name}"), json!(null)).await;
    }
}
