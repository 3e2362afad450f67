//! `windlass run`.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::job::WorkerId;
use windlass::store::{ClaimRequest, Filter};
use windlass::{JobType, NewJob, Payload, QueueName, Schedule, State};

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
    let fired = Filter::new().schedule("often");
    let begun = std::time::Instant::now();
    while client.count(&fired, 10).await.expect("count") == 0 {
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

/// Bulk work lives in the server's memory: a client that asks after a restart is told so, and does no harm by starting it again.
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

    let cancelled = Filter::new().states([State::Cancelled]);
    let before = client.count(&cancelled, JOBS as u64).await.expect("count");
    assert!((1000..JOBS as u64).contains(&before), "{before} were cancelled: it was cut off on its way");
    let (_server, base) = run(&place, &[]);
    let (status, problem) = http(&base, &format!("GET {path}"), "", "");
    assert_eq!((status, told(&problem)["type"].as_str()), (404, Some("urn:windlass:problem:not-found")));
    assert!(told(&problem)["detail"].as_str().expect("words").contains("start it again"), "{problem}");
    let (status, done) = http(&base, "POST /v1/operations?wait=60s", "", operation);
    assert_eq!((status, told(&done)["state"].as_str()), (202, Some("done")), "{done}");
    assert_eq!(told(&done)["changed"].as_u64(), Some(JOBS as u64 - before), "each was dealt with once: {done}");
    assert_eq!(client.count(&cancelled, JOBS as u64).await.expect("count"), JOBS as u64);
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

/// M13: the claim that sets a damaged job aside says so, without a piece of what is damaged.
#[test]
fn m13_a_damaged_job_is_told_in_the_log() {
    let place = Place::new();
    let (mut server, base) = run(&place, &["--store", "sqlite:jobs.db", "--log", "json"]);
    for _ in 0..2 {
        assert_eq!(http(&base, "POST /v1/jobs", "", "{\"type\":\"t\",\"max_attempts\":7}").0, 201);
    }
    let conn = rusqlite::Connection::open(place.path("jobs.db")).expect("the store");
    let damaged = conn.execute("update windlass_job set options = '{\"secret-word' where seq = 1", []);
    assert_eq!(damaged.expect("written"), 1);
    drop(conn);
    let claim = "{\"queues\":[\"default\"],\"max\":9,\"worker\":\"w\"}";
    let claimed: Value = serde_json::from_str(&http(&base, "POST /v1/claims", "", claim).1).expect("JSON");
    assert_eq!(claimed["jobs"].as_array().map(Vec::len), Some(1), "{claimed}");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let said = server.err();
    assert_eq!(said.matches("a damaged job was set aside").count(), 1, "{said}");
    assert!(!said.contains("secret-word"), "{said}");
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
    for hidden in [
        token.as_str(),
        &secret,
        &key,
        &lease,
        "wrong-guess",
        "4111-1111",
        "url-secret",
        "query-secret",
        "result-secret",
    ] {
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

/// L8: a store that cannot be written to is not ready, though it can be read.
#[test]
fn l8_a_store_under_a_foreign_lock_is_not_ready() {
    let place = Place::new();
    let (_server, base) = run(&place, &[]);
    assert_eq!(http(&base, "GET /readyz", "", "").0, 200);
    let other = rusqlite::Connection::open(place.path("jobs.db")).expect("a file");
    other.execute_batch("begin immediate").expect("the lock");
    until("it is not ready", || http(&base, "GET /readyz", "", "").0 == 503);
    assert_eq!(http(&base, "GET /healthz", "", "").0, 200);
    other.execute_batch("rollback").expect("let go");
    until("it is ready again", || http(&base, "GET /readyz", "", "").0 == 200);
}

/// M15, M17: a hangup lets the server read its tokens again; a file that is no good changes nothing.
#[test]
fn m15_a_hangup_rereads_the_tokens() {
    let place = Place::new();
    let made = |name: &str| {
        let made = windlass().args(["token", "new", "--role", "read", "--name", name]).output().expect("it runs");
        let text = String::from_utf8(made.stdout).expect("text");
        let token = text.lines().next().expect("a token").to_owned();
        (format!("authorization: Bearer {token}\r\n"), text[text.find("[[tokens]]").expect("lines")..].to_owned())
    };
    let ((old, old_lines), (new, new_lines)) = (made("old"), made("new"));
    std::fs::write(place.path("windlass.toml"), old_lines).expect("written");
    let (mut server, base) = run(&place, &["--config", "windlass.toml"]);
    let asked = |bearer: &str| http(&base, "GET /v1/stats", bearer, "").0;
    assert_eq!((asked(&old), asked(&new)), (200, 401));
    std::fs::write(place.path("windlass.toml"), new_lines).expect("written");
    server.signal("HUP");
    until("the new token is known", || asked(&new) == 200);
    assert_eq!(asked(&old), 401);
    for bad in ["tokens = 7\n", ""] {
        let said = server.err().lines().count();
        std::fs::write(place.path("windlass.toml"), bad).expect("written");
        server.signal("HUP");
        until("it says why not", || server.err().lines().count() > said && server.err().contains("in force"));
        assert_eq!((asked(&old), asked(&new)), (401, 200), "{bad:?}");
    }
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.err());
}

/// M17: through the whole server, a token that is bound to a queue sees and takes nothing else; one that submits, nothing.
#[test]
fn m17_tokens_are_bound_to_queues() {
    let place = Place::new();
    let mut file = "hide_payloads = true\n".to_owned();
    let mut made = |words: &[&str]| {
        let made = windlass().args(["token", "new", "--name", words[1]]).args(words).output().expect("it runs");
        let text = String::from_utf8(made.stdout).expect("text");
        let token = text.lines().next().expect("a token").to_owned();
        file += &text[text.find("[[tokens]]").unwrap_or_else(|| panic!("{words:?}: {text}"))..];
        format!("authorization: Bearer {token}\r\n")
    };
    let admin = made(&["--role", "admin"]);
    let submit = made(&["--role", "submit", "--queue", "mail"]);
    let work = made(&["--role", "work", "--queue", "mail", "--type", "send", "--expires-in", "1d"]);
    let produce = made(&["--role", "produce"]);
    std::fs::write(place.path("windlass.toml"), file).expect("written");
    let (_server, base) = run(&place, &["--config", "windlass.toml"]);
    let put = |bearer: &str, queue: &str| {
        let job = json!({ "type": "send", "queue": queue, "payload": { "card": "4111" } });
        http(&base, "POST /v1/jobs", bearer, &job.to_string())
    };
    assert_eq!((put(&submit, "mail").0, put(&submit, "pay").0), (201, 403));
    let (_, other) = put(&admin, "pay");
    let other = serde_json::from_str::<Value>(&other).expect("JSON")["id"].as_str().expect("an id").to_owned();
    assert_eq!(http(&base, "GET /v1/jobs", &submit, "").0, 403, "who submits looks at nothing");
    assert_eq!(http(&base, &format!("GET /v1/jobs/{other}"), &work, "").0, 404);
    assert_eq!(http(&base, &format!("GET /v1/jobs/{other}"), &admin, "").0, 200);
    let claim = |queue: &str| {
        let body = json!({ "queues": [queue], "max": 5, "worker": "w" });
        http(&base, "POST /v1/claims", &work, &body.to_string())
    };
    assert_eq!(claim("pay").0, 403);
    assert_eq!(claim("windlass.webhooks").0, 403);
    let (status, claimed) = claim("mail");
    assert_eq!(status, 200, "{claimed}");
    assert!(claimed.contains("4111"), "who runs jobs sees their payloads: {claimed}");
    let (_, seen) = http(&base, "GET /v1/jobs", &produce, "");
    assert!(!seen.contains("4111"), "who enqueues does not see what others did: {seen}");
}

/// L6: a configuration with secrets that everybody may read is warned of; L10: who came in and who did not is logged.
#[test]
fn l6_l10_the_log_tells_of_open_files_and_of_sign_ins() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let made = windlass().args(["token", "new", "--role", "read", "--name", "ada"]).output().expect("it runs");
    let text = String::from_utf8(made.stdout).expect("text");
    let token = text.lines().next().expect("a token").to_owned();
    let lines = &text[text.find("[[tokens]]").expect("lines for the file")..];
    let file = format!("[webhooks]\nsecrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\n{lines}");
    std::fs::write(place.path("windlass.toml"), file).expect("written");
    let mode = |mode| std::fs::set_permissions(place.path("windlass.toml"), std::fs::Permissions::from_mode(mode));
    mode(0o644).expect("changed");
    let (server, base) = run(&place, &["--config", "windlass.toml", "--log-level", "info"]);
    assert!(server.err().contains("chmod 600"), "{}", server.err());
    let bearer = format!("authorization: Bearer {token}\r\n");
    assert_eq!(http(&base, "GET /v1/stats", &bearer, "").0, 200);
    assert_eq!(http(&base, "GET /v1/stats", "authorization: Bearer windlass_guess\r\n", "").0, 401);
    until("both are told", || {
        let said = server.err();
        said.contains("a token signed in") && said.contains("\"token\":\"ada\"") && said.contains("unknown token")
    });
    assert!(server.err().contains("127.0.0.1") && !server.err().contains("windlass_guess"), "{}", server.err());
    drop(server);
    mode(0o600).expect("changed");
    let (server, _) = run(&place, &["--config", "windlass.toml", "--log-level", "info"]);
    assert!(!server.err().contains("chmod 600"), "{}", server.err());
}

/// L20: a server makes no tables in a file of another program without being told to.
#[test]
fn l20_a_file_of_another_program_is_not_taken() {
    let place = Place::new();
    let other = rusqlite::Connection::open(place.path("jobs.db")).expect("a file");
    other.execute_batch("create table customers (name text)").expect("a table");
    drop(other);
    let before = std::fs::read(place.path("jobs.db")).expect("a file");
    let mut refused = place.start(&["run", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.wait().code(), Some(4), "{}", refused.err());
    assert!(refused.err().contains("another program") && refused.err().contains("store migrate"), "{}", refused.err());
    assert_eq!(std::fs::read(place.path("jobs.db")).expect("a file"), before);
    let migrated = place.start(&["store", "migrate"]).wait();
    assert_eq!(migrated.code(), Some(0));
    let (_server, base) = run(&place, &[]);
    assert_eq!(http(&base, "GET /readyz", "", "").0, 200);
}

/// M5: a file that was deleted under a running server takes no more jobs, and the server says that it is not ready.
#[test]
fn m5_a_deleted_file_is_noticed_and_nothing_is_acknowledged() {
    for moved in [false, true] {
        let place = Place::new();
        let (_server, base) = run(&place, &[]);
        assert_eq!(http(&base, "POST /v1/jobs", "", "{\"type\":\"a\"}").0, 201);
        let (file, away) = (place.path("jobs.db"), place.path("away.db"));
        if moved { std::fs::rename(&file, &away) } else { std::fs::remove_file(&file) }.expect("gone");
        assert_eq!(http(&base, "POST /v1/jobs", "", "{\"type\":\"a\"}").0, 503, "moved: {moved}");
        until("it is not ready", || http(&base, "GET /readyz", "", "").0 == 503);
        assert!(!file.exists(), "nobody makes an empty one in its place");
        if moved {
            std::fs::rename(&away, &file).expect("back");
            assert_eq!(http(&base, "POST /v1/jobs", "", "{\"type\":\"a\"}").0, 201, "it goes on");
            until("it is ready again", || http(&base, "GET /readyz", "", "").0 == 200);
        }
    }
}

/// M4: what holds payloads is for its owner alone.
#[test]
fn m4_a_new_file_its_log_and_its_backup_are_the_owners_alone() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let place = Place::new();
    let (_server, base) = run(&place, &[]);
    assert_eq!(http(&base, "POST /v1/jobs", "", "{\"type\":\"a\"}").0, 201);
    let mode = |name: &str| place.path(name).metadata().expect("a file").mode() & 0o777;
    for name in ["jobs.db", "jobs.db-wal", "jobs.db-shm"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    for rights in [0o600, 0o640] {
        let to = format!("backup-{rights:o}.db");
        std::fs::set_permissions(place.path("jobs.db"), std::fs::Permissions::from_mode(rights)).expect("changed");
        assert_eq!(place.start(&["store", "backup", &to]).wait().code(), Some(0));
        assert_eq!(mode(&to), rights, "{to}");
    }
    // L5: a link that leads nowhere is not followed.
    std::os::unix::fs::symlink(place.path("elsewhere.db"), place.path("link.db")).expect("a link");
    assert_eq!(place.start(&["store", "backup", "link.db"]).wait().code(), Some(4));
    assert!(!place.path("elsewhere.db").exists());
}

/// TLS of the server's own; the certificate is taken anew when its files change.
#[test]
fn the_server_speaks_tls_with_a_certificate_that_can_be_replaced() {
    let place = Place::new();
    let certify = |folder: &str, name: &str| {
        std::fs::create_dir_all(place.path(folder)).expect("a folder");
        let made = std::process::Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
            .args(["-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(place.path(folder))
            .output();
        assert!(made.is_ok_and(|made| made.status.success()), "openssl makes a certificate");
    };
    certify("tls", "first");
    std::fs::write(place.path("windlass.toml"), "[tls]\ncert = \"tls/cert.pem\"\nkey = \"tls/key.pem\"\n")
        .expect("written");
    let mut server = place.start(&["run", "--listen", "127.0.0.1:0", "--config", "windlass.toml"]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    assert!(base.starts_with("https://"), "{base}");
    let address = base.trim_start_matches("https://").to_owned();
    let subject = || {
        let shown = std::process::Command::new("sh")
            .args([
                "-c",
                &format!("openssl s_client -connect {address} </dev/null 2>/dev/null | openssl x509 -noout -subject"),
            ])
            .output()
            .expect("it runs");
        String::from_utf8_lossy(&shown.stdout).into_owned()
    };
    assert!(subject().contains("first"), "{}", subject());
    let asked = std::process::Command::new("curl")
        .args(["-s", "--cacert", "tls/cert.pem", &format!("{base}/readyz")])
        .current_dir(place.folder.path())
        .output();
    if let Ok(asked) = asked {
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "ready\n");
    }
    certify("new", "second");
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(place.path("new").join(name), place.path("tls").join(name)).expect("copied");
    }
    server.signal("HUP");
    until("the new certificate is shown", || subject().contains("second"));
    std::fs::write(place.path("tls").join("key.pem"), "nonsense").expect("written");
    let mut refused = place.start(&["run", "--listen", "127.0.0.1:0", "--config", "windlass.toml"]);
    assert_ne!(refused.wait().code(), Some(0));
    assert!(refused.err().contains("tls.key"), "{}", refused.err());
    server.signal("HUP");
    until("it says why not", || server.err().contains("stays in force"));
    assert!(subject().contains("second"));
}
