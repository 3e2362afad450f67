//! What people look at: groups of errors, lanes, lines over time, histories, orders, and what they change by them.

use serde_json::{Value, json};

use crate::support::Server;

/// A job of a type that fails for good.
async fn dies(server: &Server, job_type: &str, message: &str) -> String {
    let id = server.submit(json!({ "type": job_type, "max_attempts": 1 })).await;
    let job = server.claim(1).await.remove(0);
    server.settle(&job, json!({ "outcome": "failed", "failure": { "message": message } })).await;
    id
}

#[tokio::test]
async fn three_failures_with_varying_ids_are_three_groups_and_one_is_requeued_as_a_whole() {
    let server = Server::new();
    for number in 1..=3 {
        dies(&server, "mail", &format!("user {number} is unknown")).await;
        dies(&server, "mail", &format!("cannot open /tmp/{number}.txt")).await;
    }
    dies(&server, "post", "user 9 is unknown").await;
    let groups = server.get("/v1/errors").await.ok()["items"].as_array().expect("groups").clone();
    let mut told: Vec<(String, u64)> = groups
        .iter()
        .map(|group| {
            (group["pattern"].as_str().expect("a pattern").to_owned(), group["count"].as_u64().expect("a count"))
        })
        .collect();
    told.sort();
    let expected = [("cannot open <path>", 3), ("user <n> is unknown", 1), ("user <n> is unknown", 3)];
    assert_eq!(told, expected.map(|(pattern, count)| (pattern.to_owned(), count)));
    let files = groups.iter().find(|group| group["pattern"] == "cannot open <path>").expect("a group");
    let fingerprint = files["fingerprint"].as_str().expect("a fingerprint");
    assert_eq!(server.get(&format!("/v1/jobs/count?fingerprint={fingerprint}")).await.ok()["count"], 3);
    let operation = json!({ "action": "requeue", "filter": { "fingerprint": fingerprint }, "reason": "mended" });
    let done = server.post("/v1/operations?wait=10s&by=ada", operation).await.ok();
    assert_eq!((&done["state"], &done["changed"]), (&json!("done"), &json!(3)));
    assert_eq!(server.get("/v1/errors").await.ok()["items"].as_array().map(Vec::len), Some(2));
    let act = server.get("/v1/acts?by=ada&act=requeue").await.ok()["items"][0].clone();
    assert_eq!((&act["changed"], &act["reason"]), (&json!(3), &json!("mended")));
    assert_eq!(server.get("/v1/acts?by=bob").await.ok()["items"], json!([]));
    assert_eq!(server.get("/v1/acts?target=fingerprint").await.ok()["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn failures_that_are_tried_again_are_groups_of_their_own() {
    let server = Server::new();
    for number in 1..=2 {
        server.submit(json!({ "type": "mail" })).await;
        let job = server.claim(1).await.remove(0);
        let failure = json!({ "message": format!("host {number} is away") });
        server.settle(&job, json!({ "outcome": "failed", "failure": failure })).await;
    }
    assert_eq!(server.get("/v1/errors").await.ok()["items"], json!([]));
    let page = server.get("/v1/errors?state=retrying").await.ok();
    assert_eq!((&page["items"][0]["count"], &page["looked"]), (&json!(2), &json!(2)));
    assert_eq!(page["items"][0]["pattern"], "host <n> is away");
}

#[tokio::test]
async fn wrong_questions_are_refused_by_their_field() {
    let server = Server::new();
    for (path, field) in [
        ("/v1/errors?state=running", "state"),
        ("/v1/errors?limit=101", "limit"),
        ("/v1/errors?cursor=x", "cursor"),
        ("/v1/jobs?fingerprint=xyz", "fingerprint"),
        ("/v1/jobs?order=random", "order"),
        ("/v1/jobs?order=claim&state=scheduled", "order"),
        ("/v1/jobs?order=ended", "order"),
        ("/v1/lanes?ends_after=yesterday", "ends_after"),
        ("/v1/samples?step=11", "step"),
        ("/v1/series?of=nothing", "of"),
        ("/v1/series?by=state", "by"),
        ("/v1/series?from=2030-01-01T00:00:00Z&to=2029-01-01T00:00:00Z", "from"),
        ("/v1/workflows?state=strange", "state"),
        ("/v1/pulse?topics=everything", "topics"),
    ] {
        let (status, _, wrong) = server.get(path).await.problem();
        assert_eq!((status, wrong.as_deref()), (400, Some(field)), "{path}");
    }
}

#[tokio::test]
async fn lanes_tell_what_stands_and_what_was() {
    let server = Server::new();
    dies(&server, "mail", "no").await;
    server.submit(json!({ "type": "mail" })).await;
    server.submit(json!({ "type": "post", "queue": "other" })).await;
    let lanes = server.get("/v1/lanes").await.ok();
    assert_eq!(lanes["items"].as_array().map(Vec::len), Some(2));
    let mail = &lanes["items"][0];
    assert_eq!((&mail["queue"], &mail["type"], &mail["accepted"]), (&json!("default"), &json!("mail"), &json!(2)));
    assert_eq!((&mail["states"]["scheduled"], &mail["ended"]["dead_letter"]), (&json!(1), &json!(1)));
    assert_eq!(lanes.get("ends"), None);
    let ends = server.get("/v1/lanes?ends_after=2000-01-01T00:00:00Z").await.ok()["ends"].clone();
    assert_eq!((&ends[0]["state"], ends.as_array().map(Vec::len)), (&json!("dead_letter"), Some(1)));
}

#[tokio::test]
async fn samples_become_lines() {
    let server = Server::new();
    let now: windlass::Timestamp =
        server.get("/v1/time").await.ok()["now"].as_str().expect("a time").parse().expect("a time");
    let step = windlass::store::SampleStep::Seconds;
    for (back, accepted) in [(2, 10), (1, 60)] {
        let at = step.floor(now).minus(back * step.every());
        let ended = json!({ "completed": 0, "failed": 0, "dead_letter": 0, "cancelled": 0 });
        let states = json!({ "pending": 0, "delayed": 0, "scheduled": 7, "running": 0, "retrying": 0, "completed": 0,
            "failed": 0, "dead_letter": 0, "cancelled": 0 });
        let lane = json!({ "queue": "mail", "type": "t", "states": states, "accepted": accepted, "ended": ended,
            "retried": 0, "lost": 0 });
        let sample = json!({ "step": 10, "sample": { "at": at.to_string(), "lanes": [lane] } });
        assert_eq!(server.post("/v1/samples", sample).await.status, 204);
    }
    let series = server.get("/v1/series?of=rate&last=1h").await.ok();
    let line = |series: &Value, name: &str| {
        let lines = series["series"].as_array().expect("lines").clone();
        lines.into_iter().find(|line| line["name"] == name).expect("a line")["values"].clone()
    };
    assert_eq!((&series["step"], line(&series, "in")), (&json!(10), json!([null, 5.0])));
    let depth = server.get("/v1/series?of=depth&by=queue&last=1h").await.ok();
    assert_eq!((&depth["series"][0]["queue"], line(&depth, "waiting")), (&json!("mail"), json!([7.0, 7.0])));
    let odd = json!({ "step": 10, "sample": { "at": "2026-01-01T00:00:01Z", "lanes": [] } });
    assert_eq!(server.post("/v1/samples", odd).await.problem().2.as_deref(), Some("at"));
}

#[tokio::test]
async fn the_history_of_a_job_is_told_with_who_and_why() {
    let server = Server::new();
    let id = dies(&server, "mail", "no").await;
    server.post(&format!("/v1/jobs/{id}/requeue?by=ada"), json!({ "reason": "mended" })).await.ok();
    let history = server.get(&format!("/v1/jobs/{id}/history")).await.ok();
    let what: Vec<&str> =
        history["items"].as_array().expect("items").iter().map(|item| item["what"].as_str().expect("what")).collect();
    assert!(what.starts_with(&["submitted", "started", "failed"]) && what.contains(&"requeue"), "{what:?}");
    let act =
        history["items"].as_array().expect("items").iter().find(|item| item["what"] == "requeue").expect("an act");
    assert_eq!((&act["by"], &act["reason"], &history["complete"]), (&json!("ada"), &json!("mended"), &json!(true)));
    assert_eq!(server.get("/v1/jobs/00000000-0000-0000-0000-000000000000/history").await.status, 404);
}

#[tokio::test]
async fn next_up_is_the_order_in_which_a_worker_claims() {
    let server = Server::new();
    for priority in ["low", "critical", "normal", "high"] {
        server.submit(json!({ "type": "t", "priority": priority })).await;
    }
    let next = server.get("/v1/jobs?order=claim&state=scheduled&queue=default").await.ok();
    let ids = |items: &[Value]| items.iter().map(|job| job["id"].clone()).collect::<Vec<_>>();
    let shown = ids(next["items"].as_array().expect("jobs"));
    assert_eq!(ids(&server.claim(10).await), shown);
}

#[tokio::test]
async fn a_preview_says_when_a_schedule_would_fire() {
    let server = Server::new();
    let asked = json!({ "cron": "30 2 * * *", "zone": "Europe/Berlin", "from": "2027-03-27T12:00:00Z", "n": 2 });
    let told = server.post("/v1/schedules/preview", asked).await.ok();
    assert_eq!(told["next"][0]["note"], "after_gap");
    assert!(told["words"].as_str().is_some_and(|words| words.contains("02:30")), "{told}");
    let (status, _, wrong) = server.post("/v1/schedules/preview", json!({ "every": "0s" })).await.problem();
    assert_eq!((status, wrong.as_deref()), (400, Some("every")));
}
