//! `windlass run`.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::store::{ClaimRequest, Filter};
use windlass::{JobType, NewJob, Payload, QueueName, Schedule, State, WorkerId};

use crate::support::{Place, Process, http, reaches, until, windlass};

fn run(place: &Place, more: &[&str]) -> (Process, String) {
    let arguments = [&["run", "--listen", "127.0.0.1:0"], more].concat();
    let mut server = place.start(&arguments);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    (server, base)
}

#[test]
fn it_starts_serves_and_stops_in_order() {
    let place = Place::new();
    let (mut server, base) = run(&place, &[]);
    let line = server.started();
    assert_eq!((line["event"].as_str(), line["store_kind"].as_str()), (Some("started"), Some("sqlite")));
    assert_eq!(http(&base, "GET /healthz", "", ""), (200, "ok\n".to_owned()));
    assert_eq!(http(&base, "GET /readyz", "", ""), (200, "ready\n".to_owned()));
    let (status, made) = http(&base, "POST /v1/jobs", "", "{\"type\":\"email.send\",\"payload\":{\"to\":\"ada\"}}");
    assert_eq!(status, 201, "{made}");
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let (status, job) = http(&base, &format!("GET /v1/jobs/{}", made["id"].as_str().expect("an id")), "", "");
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<Value>(&job).expect("JSON")["state"], "scheduled");
    let (_, metrics) = http(&base, "GET /metrics", "", "");
    assert!(metrics.contains("windlass_queue_depth{queue=\"default\",state=\"scheduled\"} 1"), "{metrics}");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.err());
    let out = server.out();
    assert!(out.contains("\"event\":\"stopping\"") && out.contains("\"event\":\"stopped\""), "{out}");
}

#[test]
fn a_waiting_client_does_not_hold_up_the_stop_and_a_second_signal_ends_at_once() {
    let place = Place::new();
    let (mut server, base) = run(&place, &[]);
    let waiting = {
        let base = base.clone();
        std::thread::spawn(move || {
            http(&base, "POST /v1/claims", "", "{\"queues\":[\"default\"],\"max\":1,\"wait\":\"30s\",\"worker\":\"w\"}")
        })
    };
    let events = std::thread::spawn(move || http(&base, "GET /v1/events", "", ""));
    std::thread::sleep(Duration::from_millis(500));
    let begun = std::time::Instant::now();
    server.signal("INT");
    assert_eq!(server.wait().code(), Some(0), "{}", server.err());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let (status, answer) = waiting.join().expect("it was answered");
    assert!(status == 200 || status == 503, "{status} {answer}");
    assert_eq!(events.join().expect("it was answered").0, 200);
}

#[test]
fn the_port_is_the_next_free_one_and_an_own_one_is_not_moved() {
    let (first, second) = (Place::new(), Place::new());
    let mut one = first.start(&["run"]);
    let mut two = second.start(&["run"]);
    let (one_says, two_says) = (one.started(), two.started());
    assert_ne!(one_says["listen"], two_says["listen"]);
    assert!(one_says["port_taken"] == 7654 || two_says["port_taken"] == 7654, "{one_says} {two_says}");
    let taken = one_says["listen"].as_str().expect("an address").trim_start_matches("http://").to_owned();
    let mut third = second.start(&["run", "--listen", &taken]);
    assert_eq!(third.wait().code().map(|code| code == 0), Some(false));
    assert!(third.err().contains("cannot listen on"), "{}", third.err());
}

/// X1: what starts and what does not, by address and token.
#[test]
fn x1_only_loopback_starts_without_a_token() {
    let place = Place::new();
    let mut refused = place.start(&["run", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.wait().code().map(|code| code == 0), Some(false));
    assert!(refused.err().contains("windlass token new"), "{}", refused.err());
    let made = windlass().args(["token", "new", "--role", "produce", "--name", "ci"]).output().expect("it runs");
    let text = String::from_utf8(made.stdout).expect("text");
    let token = text.lines().next().expect("a token").to_owned();
    let lines = &text[text.find("[[tokens]]").expect("lines for the file")..];
    std::fs::write(place.path("windlass.toml"), lines).expect("written");
    let mut server = place.start(&["run", "--listen", "0.0.0.0:0", "--config", "windlass.toml"]);
    let said = server.started();
    assert_eq!(said["token_needed"], true);
    let base = said["listen"].as_str().expect("an address").replace("0.0.0.0", "127.0.0.1");
    let bearer = format!("authorization: Bearer {token}\r\n");
    assert_eq!(http(&base, "POST /v1/jobs", "", "{\"type\":\"t\"}").0, 401);
    assert_eq!(http(&base, "POST /v1/jobs", &bearer, "{\"type\":\"t\"}").0, 201);
    assert_eq!(http(&base, "POST /v1/queues/default/pause", &bearer, "{}").0, 403);
}

#[test]
fn a_bad_configuration_is_refused_with_the_key() {
    let place = Place::new();
    std::fs::write(place.path("windlass.toml"), "stroe = \"memory:\"\n").expect("written");
    let mut refused = place.start(&["run", "--config", "windlass.toml"]);
    assert_eq!(refused.wait().code().map(|code| code == 0), Some(false));
    assert!(refused.err().contains("stroe") && refused.err().contains("windlass.toml"), "{}", refused.err());
}

/// A server without handlers takes back leases and fires schedules.
#[tokio::test(flavor = "multi_thread")]
async fn it_does_the_upkeep_of_its_store() {
    let place = Place::new();
    let client = place.client().await;
    let id = client.enqueue(NewJob::new("t", Payload::default())).await.expect("enqueue").id;
    let schedule = Schedule::every("often", Duration::from_secs(1), NewJob::new("fired", Payload::default()));
    client.put_schedule(&schedule.expect("valid")).await.expect("stored");
    let worker = WorkerId::new("gone").expect("a name");
    let mut request = ClaimRequest::new(worker, QueueName::default(), 1);
    request.types = Some(vec![JobType::new("t").expect("a name")]);
    request.lease_time = Some(Duration::from_millis(200));
    assert_eq!(client.store().claim(&request).await.expect("claim").len(), 1);
    let (_server, _) = run(&place, &[]);
    let job = reaches(&client, id, State::Scheduled).await;
    assert_eq!(job.failures, 1);
    let fired = Filter { schedule: Some("often".to_owned()), ..Filter::default() };
    let begun = std::time::Instant::now();
    while client.store().count(&fired, 10).await.expect("count") == 0 {
        assert!(begun.elapsed() < crate::support::SOON, "the schedule fires");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn killed_and_started_again_it_goes_on_with_the_same_jobs() {
    let place = Place::new();
    let (server, base) = run(&place, &[]);
    let (_, made) = http(&base, "POST /v1/jobs", "", "{\"type\":\"t\",\"payload\":7}");
    let id = serde_json::from_str::<Value>(&made).expect("JSON")["id"].as_str().expect("an id").to_owned();
    server.signal("KILL");
    drop(server);
    let (mut server, base) = run(&place, &[]);
    let (status, job) = http(&base, &format!("GET /v1/jobs/{id}"), "", "");
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<Value>(&job).expect("JSON")["payload"], json!(7));
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

/// Bulk work lives in the server's memory: whoever asks after a restart is told so, and does no harm by starting it again.
#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_a_restart_cut_off_is_not_known_and_can_be_started_again() {
    const JOBS: usize = 30_000;
    let place = Place::new();
    let client = place.client().await;
    for _ in 0..3 {
        let jobs = (0..JOBS / 3).map(|_| NewJob::new("t", Payload::default()).queue("bulk"));
        client.enqueue_all(jobs).await.expect("enqueue");
    }
    let told = |body: &str| serde_json::from_str::<Value>(body).expect("JSON");
    let operation = r#"{"filter":{"queue":"bulk","state":["scheduled"]},"action":"cancel"}"#;
    let (server, base) = run(&place, &[]);
    let (status, started) = http(&base, "POST /v1/operations", "", operation);
    assert_eq!(status, 202, "{started}");
    let path = format!("/v1/operations/{}", told(&started)["id"].as_str().expect("an id"));
    until("it has begun", || told(&http(&base, &format!("GET {path}"), "", "").1)["changed"] != json!(0));
    server.signal("KILL");
    drop(server);

    let cancelled = Filter { states: vec![State::Cancelled], ..Filter::default() };
    let before = client.store().count(&cancelled, JOBS as u64).await.expect("count");
    assert!((1000..JOBS as u64).contains(&before), "{before} were cancelled: it was cut off on its way");
    let (_server, base) = run(&place, &[]);
    let (status, problem) = http(&base, &format!("GET {path}"), "", "");
    assert_eq!((status, told(&problem)["type"].as_str()), (404, Some("urn:windlass:problem:not-found")));
    assert!(told(&problem)["detail"].as_str().expect("words").contains("start it again"), "{problem}");
    let (status, done) = http(&base, "POST /v1/operations?wait=60s", "", operation);
    assert_eq!((status, told(&done)["state"].as_str()), (202, Some("done")), "{done}");
    assert_eq!(told(&done)["changed"].as_u64(), Some(JOBS as u64 - before), "each was dealt with once: {done}");
    assert_eq!(client.store().count(&cancelled, JOBS as u64).await.expect("count"), JOBS as u64);
}

/// X2: the password of a database is in no word of the server.
#[test]
fn x2_the_password_of_a_store_is_not_shown() {
    let url = std::env::var("WINDLASS_TEST_POSTGRES");
    let url = url.expect("WINDLASS_TEST_POSTGRES must name a PostgreSQL database; scripts/test starts one");
    // A server that trusts its callers does not look at it.
    let (user, rest) = url.split_once("://").expect("a URL").1.split_once('@').expect("a user");
    let name = user.split(':').next().expect("a name");
    let place = Place::new();
    let store = format!("postgres://{name}:hunter2@{rest}");
    let mut server = place.start(&["run", "--listen", "127.0.0.1:0", "--log-level", "trace", "--store", &store]);
    until("it says something", || !server.out().is_empty() || server.err().contains("windlass: "));
    server.signal("TERM");
    server.wait();
    let said = server.out() + &server.err();
    assert!(said.contains(&format!("{name}@")) && !said.contains("hunter2"), "{said}");
}

/// X2: whatever was used in this test that is secret or a payload, nothing of it is in what the server says.
#[test]
fn x2_no_secret_and_no_payload_is_ever_logged() {
    let place = Place::new();
    let made = windlass().args(["token", "new", "--role", "admin"]).output().expect("it runs");
    let text = String::from_utf8(made.stdout).expect("text");
    let token = text.lines().next().expect("a token").to_owned();
    let secret = windlass().args(["token", "webhook"]).output().expect("it runs").stdout;
    let secret = String::from_utf8(secret).expect("text").lines().next().expect("a secret").to_owned();
    let lines = &text[text.find("[[tokens]]").expect("lines for the file")..];
    let file = format!("[webhooks]\nsecrets = [\"{secret}\"]\nallow = [\"127.0.0.1\"]\nallow_http = true\n{lines}");
    std::fs::write(place.path("windlass.toml"), file).expect("written");
    let (mut server, base) = run(&place, &["--config", "windlass.toml", "--log", "json", "--log-level", "trace"]);
    let bearer = format!("authorization: Bearer {token}\r\n");
    let guess = "authorization: Bearer windlass_wrong-guess-of-somebody\r\n";
    let job = json!({
        "type": "t",
        "payload": { "card": "payload-4111-1111" },
        "idempotency_key": "k",
        "callback_url": format!("{base}/hook?key=url-secret-99"),
    });
    assert_eq!(http(&base, "POST /v1/jobs", &bearer, &job.to_string()).0, 201);
    assert_eq!(http(&base, "POST /v1/jobs", guess, &job.to_string()).0, 401);
    assert_eq!(http(&base, "POST /v1/jobs", &bearer, "{\"payload\":\"payload-4111-1111\"").0, 400);
    assert_eq!(http(&base, "GET /v1/jobs?cursor=query-secret-77", &bearer, "").0, 400);
    let claim = "{\"queues\":[\"default\"],\"max\":1,\"worker\":\"w\"}";
    let (_, claimed) = http(&base, "POST /v1/claims", &bearer, claim);
    let claimed: Value = serde_json::from_str(&claimed).expect("JSON");
    let (id, lease) = (&claimed["jobs"][0]["id"], &claimed["jobs"][0]["lease"]["token"]);
    let settle =
        json!({ "settlements": [{ "id": id, "token": lease, "outcome": "completed", "result": "result-secret-55" }] });
    let (status, settled) = http(&base, "POST /v1/leases/settle", &bearer, &settle.to_string());
    assert_eq!(status, 200, "{settled}");
    until("the webhook was tried", || {
        http(&base, "GET /metrics", &bearer, "").1.contains("windlass_webhook_deliveries_total")
    });
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let said = server.out() + &server.err();
    assert!(said.lines().count() > 5, "it said something: {said}");
    let lease = lease.as_str().expect("a token").to_owned();
    let key = secret.trim_start_matches("whsec_").to_owned();
    for hidden in
        [token.as_str(), &secret, &key, &lease, "wrong-guess", "4111", "url-secret", "query-secret", "result-secret"]
    {
        assert!(!said.contains(hidden), "{hidden} was said: {said}");
    }
    for line in server.err().lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn the_demonstration_moves_within_seconds_and_stops() {
    let place = Place::new();
    let mut command = windlass();
    command.args(["run", "--demo", "--seed", "7", "--listen", "127.0.0.1:0"]).current_dir(place.folder.path());
    let mut demo = Process::start(command);
    let said = demo.started();
    assert_eq!(
        (said["store"].as_str(), said["demo_jobs_per_second"].as_u64()),
        (Some("sqlite:windlass-demo.db"), Some(30))
    );
    let base = said["listen"].as_str().expect("an address").to_owned();
    let count = |query: &str| {
        let (_, page) = http(&base, &format!("GET /v1/jobs?limit=1000&{query}"), "", "");
        serde_json::from_str::<Value>(&page).expect("JSON")["items"].as_array().map_or(0, Vec::len)
    };
    until("jobs complete", || count("state=completed") > 30);
    until("a workflow is under way", || count("type=report.page") == 10);
    until("the schedule fires", || count("schedule=demo-digest") > 0);
    until("two processes work", || {
        let (_, workers) = http(&base, "GET /v1/workers", "", "");
        workers.matches("\"media\"").count() >= 2
    });
    demo.signal("INT");
    assert_eq!(demo.wait().code(), Some(0), "{}", demo.err());
}
