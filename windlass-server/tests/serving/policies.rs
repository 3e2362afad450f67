//! Policies of the configuration hold for every way in: HTTP, commands through the server, commands on the store.

use serde_json::{Value, json};

use crate::support::{Place, Process, http, windlass};

const CONFIG: &str = r#"
[retention]
completed = "2d"
[defaults]
max_attempts = 5
retention = { dead_letter = "90d" }
[queues.mail]
retry = "patient"
retention = { completed = "1h", failed = "none" }
[types."report.build"]
execution_timeout = "2h"
max_attempts = 1
"#;

#[test]
fn r3_policies_of_the_configuration_hold_for_every_way_in() {
    let place = Place::new();
    let config = place.path("windlass.toml");
    std::fs::write(&config, CONFIG).expect("written");
    let config = config.to_str().expect("a plain path");
    let mut server = place.start(&["run", "--listen", "0", "--config", config]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    let of = |id: &str| {
        let (_, job) = http(&base, &format!("GET /v1/jobs/{id}"), "", "");
        let job: Value = serde_json::from_str(&job).expect("JSON");
        let [attempts, run, first] = [&job["max_attempts"], &job["execution_timeout"], &job["retry"]["initial"]];
        format!("{attempts} {} {}", run.as_str().expect("a time"), first.as_str().expect("a time"))
    };
    let post = |body: &str| {
        let (status, answer) = http(&base, "POST /v1/jobs", "", body);
        assert_eq!(status, 201, "{answer}");
        serde_json::from_str::<Value>(&answer).expect("JSON")["id"].as_str().expect("an id").to_owned()
    };
    let typed = |arguments: &[&str]| {
        let mut command = windlass();
        command.args(["enqueue", "-o", "id"]).args(arguments).current_dir(place.folder.path());
        let mut ran = Process::start(command);
        assert!(ran.wait().success(), "{}", ran.err());
        ran.out().trim().to_owned()
    };
    let store = place.store();
    for way in [&["--server", &base][..], &["--store", &store, "--config", config]] {
        assert_eq!(of(&typed(&[&["other"], way].concat())), "5 30m 1s", "{way:?}");
        assert_eq!(of(&typed(&[&["call", "--queue", "mail"], way].concat())), "20 30m 15s", "{way:?}");
        assert_eq!(of(&typed(&[&["report.build"], way].concat())), "1 2h 1s", "{way:?}");
        assert_eq!(of(&typed(&[&["report.build", "--attempts", "9"], way].concat())), "9 2h 1s", "{way:?}");
    }
    assert_eq!(of(&post(r#"{"type":"other"}"#)), "5 30m 1s");
    assert_eq!(of(&post(r#"{"type":"call","queue":"mail"}"#)), "20 30m 15s");
    assert_eq!(of(&post(r#"{"type":"report.build","execution_timeout":"1m"}"#)), "1 1m 1s");
    let (_, told) = http(&base, "GET /v1/policies", "", "");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["defaults"]["max_attempts"], 5);
    assert_eq!(
        (&told["queues"]["mail"]["max_attempts"], &told["types"]["report.build"]["max_attempts"]),
        (&20.into(), &1.into())
    );
    assert_eq!(told["built_in"]["lifetime"], "7d");
    assert_eq!(told["queues"]["mail"]["retention"], json!({ "completed": "1h", "failed": "none" }));
    assert_eq!(told["built_in"]["retention"]["completed"], "2d", "the server's own");
}

#[test]
fn o4_retention_of_the_configuration_holds_for_every_way_in() {
    let place = Place::new();
    let config = place.path("windlass.toml");
    std::fs::write(&config, CONFIG).expect("written");
    let config = config.to_str().expect("a plain path");
    let mut server = place.start(&["run", "--listen", "0", "--config", config]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    let kept = |id: &str| {
        let (_, job) = http(&base, &format!("GET /v1/jobs/{id}"), "", "");
        serde_json::from_str::<Value>(&job).expect("JSON")["retention"].clone()
    };
    let typed = |arguments: &[&str]| {
        let mut command = windlass();
        command.args(["enqueue", "-o", "id", "--queue", "mail", "call"]).args(arguments);
        let mut ran = Process::start(command);
        assert!(ran.wait().success(), "{}", ran.err());
        ran.out().trim().to_owned()
    };
    let store = place.store();
    for way in [&["--server", &base][..], &["--store", &store, "--config", config]] {
        let of_queue = json!({ "completed": "1h", "failed": "none", "dead_letter": "90d" });
        assert_eq!(kept(&typed(way)), of_queue, "{way:?}");
        let own = ["--retention", "7d", "--retention", "completed=0s"];
        let all = json!({ "completed": "0s", "cancelled": "7d", "failed": "7d", "dead_letter": "7d" });
        assert_eq!(kept(&typed(&[way, &own].concat())), all, "{way:?}");
    }
    let (status, answer) = http(&base, "POST /v1/jobs", "", r#"{"type":"t","retention":{"failed":"20000d"}}"#);
    assert!(status == 400 && answer.contains("retention"), "{status} {answer}");
    let (status, answer) = http(&base, "POST /v1/jobs", "", r#"{"type":"t","retention":{"gone":"1d"}}"#);
    assert!(status == 400 && answer.contains("gone"), "{status} {answer}");
}

#[test]
fn policies_that_cannot_hold_are_told_at_the_start() {
    for (config, word) in [
        ("[types.report]\nmax_attempts = 101", "types.report"),
        ("[queues.\"two words\"]\nmax_attempts = 1", "queues"),
        ("[defaults]\ncolour = 1", "colour"),
    ] {
        let place = Place::new();
        let path = place.path("windlass.toml");
        std::fs::write(&path, config).expect("written");
        let mut server = place.start(&["run", "--listen", "0", "--config", path.to_str().expect("a plain path")]);
        assert!(!server.wait().success() && server.err().contains(word), "{config}: {}", server.err());
    }
}
