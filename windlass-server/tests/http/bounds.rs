//! Every number that a caller can give, at its bounds and far beyond them.

use serde_json::{Value, json};

use crate::support::Server;

const WILD: [&str; 12] = [
    "-1",
    "NaN",
    "Infinity",
    "1e3",
    "1.5",
    "0x10",
    "",
    " 1",
    "abc",
    "18446744073709551615",
    "18446744073709551616",
    "9e999",
];

#[tokio::test]
async fn numbers_in_a_query_are_bounded() {
    let server = Server::new();
    let template = json!({ "name": "s", "every": "1h", "job": { "type": "t" } });
    server.post("/v1/schedules", template).await.ok();
    let parameters = [
        ("/v1/jobs?limit=", 1_u64, 1000_u64, "limit"),
        ("/v1/jobs/count?cap=", 1, 1_000_000_000, "cap"),
        ("/v1/jobs/count?looked=", 1, 100_000, "looked"),
        ("/v1/acts?limit=", 1, 1000, "limit"),
        ("/v1/workflows?limit=", 1, 1000, "limit"),
        ("/v1/schedules?limit=", 1, 1000, "limit"),
        ("/v1/events/page?limit=", 1, 1000, "limit"),
        ("/v1/queues?limit=", 1, 1000, "limit"),
        ("/v1/schedules/s/next?n=", 1, 100, "n"),
    ];
    for (path, least, most, field) in parameters {
        for good in [least, least + 1, most] {
            let answer = server.get(&format!("{path}{good}")).await;
            assert_eq!(answer.status, 200, "{path}{good}");
        }
        let bad = [least - 1, most + 1].map(|number| number.to_string());
        for bad in bad.iter().map(String::as_str).chain(WILD) {
            let answer = server.get(&format!("{path}{}", bad.replace(' ', "%20"))).await;
            assert_eq!(answer.problem(), (400, "invalid-argument".into(), Some(field.into())), "{path}{bad}");
        }
    }
}

#[tokio::test]
async fn durations_in_a_query_are_bounded() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t" })).await;
    let path = format!("/v1/jobs/{id}/wait?timeout=");
    for good in ["0s", "1ms"] {
        assert_eq!(server.get(&format!("{path}{good}")).await.status, 200, "{good}");
    }
    for bad in ["61s", "1h", "99999999999d", "-1s", "5", "NaN", ""] {
        assert_eq!(server.get(&format!("{path}{bad}")).await.problem().2.as_deref(), Some("timeout"), "{bad}");
    }
}

/// A claim with one member replaced.
fn claim(member: &str, value: &Value) -> Value {
    let mut claim = json!({ "queues": ["default"], "worker": "w" });
    claim[member] = value.clone();
    claim
}

#[tokio::test]
async fn members_of_a_claim_are_bounded() {
    let server = Server::new();
    let good = [
        ("max", json!(1)),
        ("max", json!(10_000)),
        ("lease", json!("1us")),
        ("wait", json!("0s")),
        ("queues", json!([{ "queue": "a", "max": 1 }])),
        ("types", json!([])),
    ];
    for (member, value) in good {
        assert_eq!(server.post("/v1/claims", claim(member, &value)).await.status, 200, "{member} {value}");
    }
    let bad = [
        ("max", json!(0)),
        ("max", json!(10_001)),
        ("max", json!(-1)),
        ("max", json!(1.5)),
        ("max", json!("1")),
        ("max", json!(u64::MAX)),
        ("lease", json!("0s")),
        ("lease", json!("4000d")),
        ("lease", json!(30)),
        ("wait", json!("31s")),
        ("queues", json!([])),
        ("queues", json!(vec!["q"; 1001])),
        ("queues", json!([{ "queue": "a", "max": 0 }])),
        ("queues", json!(["a b"])),
        ("types", json!(vec!["t"; 1001])),
        ("worker", json!("")),
        ("worker", json!("w".repeat(256))),
    ];
    for (member, value) in bad {
        let answer = server.post("/v1/claims", claim(member, &value)).await;
        assert_eq!(answer.problem().0, 400, "{member} {value}");
    }
}

#[tokio::test]
async fn members_of_a_job_are_bounded() {
    let server = Server::new();
    let job = |member: &str, value: &Value| {
        let mut job = json!({ "type": "t" });
        job[member] = value.clone();
        job
    };
    let good = [
        ("max_attempts", json!(1)),
        ("max_attempts", json!(100)),
        ("delay", json!("0s")),
        ("execution_timeout", json!("none")),
        ("lifetime", json!("forever")),
        ("retry", json!({ "multiplier": 1, "jitter_fraction": 0 })),
        ("retry", json!({ "multiplier": 1000, "jitter_fraction": 1 })),
        ("retry", json!({ "preset": "responsive" })),
        ("run_at", json!("1969-01-01T00:00:00Z")),
    ];
    for (member, value) in good {
        assert_eq!(server.post("/v1/jobs", job(member, &value)).await.status, 201, "{member} {value}");
    }
    let bad = [
        ("max_attempts", json!(0)),
        ("max_attempts", json!(101)),
        ("max_attempts", json!(-1)),
        ("max_attempts", json!(1u64 << 40)),
        // The default lifetime counts from the first run, so only the limit of ten years refuses a delay alone.
        ("delay", json!("4000d")),
        ("execution_timeout", json!("0s")),
        ("visibility_timeout", json!("0s")),
        ("visibility_timeout", json!("none")),
        ("lifetime", json!("99999d")),
        ("retry", json!({ "multiplier": 0.5 })),
        ("retry", json!({ "multiplier": 1001 })),
        ("retry", json!({ "jitter_fraction": -0.1 })),
        ("retry", json!({ "jitter_fraction": 1.1 })),
        ("retry", json!({ "initial": "2h" })),
        ("retry", json!({ "max": "367d" })),
        ("retry", json!({ "retry_on": ["permanent"] })),
        // No moment lies after it, so that every lifetime ends there.
        ("run_at", json!("9999-12-31T23:59:59Z")),
        ("priority", json!("urgent")),
        ("priority", json!(0)),
        ("tags", json!({ "": "" })),
        ("idempotency_key", json!("")),
        ("idempotency_window", json!("1h")),
        ("depends_on", json!([{}])),
    ];
    for (member, value) in bad {
        assert_eq!(server.post("/v1/jobs", job(member, &value)).await.problem().0, 400, "{member} {value}");
    }
}

#[tokio::test]
async fn lists_in_a_body_are_bounded() {
    let server = Server::new();
    let id = server.submit(json!({ "type": "t" })).await;
    let lease = json!({ "id": id, "token": id });
    let released = json!({ "id": id, "token": id, "outcome": "released" });
    let lists = [
        ("/v1/leases/extend", "leases", lease.clone()),
        ("/v1/leases/saves", "saves", lease),
        ("/v1/leases/settle", "settlements", released),
        ("/v1/jobs/find", "ids", json!(id)),
    ];
    for (path, member, entry) in lists {
        let with = |count: usize| json!({ member: vec![entry.clone(); count] });
        for good in [1, 10_000] {
            assert_eq!(server.post(path, with(good)).await.status, 200, "{path} {good}");
        }
        for bad in [0, 10_001] {
            let problem = server.post(path, with(bad)).await.problem();
            assert_eq!(problem, (400, "invalid-argument".into(), Some(member.into())), "{path} {bad}");
        }
    }
    for (limit, status) in [(0, 400), (1, 200), (10_000, 200), (10_001, 400), (u64::MAX, 400)] {
        assert_eq!(server.post("/v1/upkeep", json!({ "limit": limit })).await.status, status, "{limit}");
    }
    for (limit, status) in [(0, 400), (1, 200), (1000, 200), (1001, 400)] {
        let step = json!({ "operation": { "filter": {}, "action": "cancel", "dry_run": true }, "limit": limit });
        assert_eq!(server.post("/v1/operations/step", step).await.status, status, "{limit}");
    }
}
