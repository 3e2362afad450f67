//! Who came in and with what: submitters on jobs, tokens read again on request, certificates of clients, and encrypted
//! payloads through the whole server.

use std::process::Command;

use serde_json::Value;

use crate::support::{Place, http, until, windlass};

const KEY: &str = "2026-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A token of this name and role: what is sent, the token alone, and the lines of the configuration.
fn token(name: &str, role: &str) -> (String, String, String) {
    let made = windlass().args(["token", "new", "--role", role, "--name", name]).output().expect("it runs");
    let text = String::from_utf8(made.stdout).expect("text");
    let token = text.lines().next().expect("a token").to_owned();
    let lines = text[text.find("[[tokens]]").expect("lines")..].to_owned();
    (format!("authorization: Bearer {token}\r\n"), token, lines)
}

fn json((status, body): (u16, String)) -> Value {
    assert!((200..300).contains(&status), "{status}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"))
}

/// L10: each job says who submitted it, by whatever way it came, and nobody can say it themselves.
#[test]
fn l10_jobs_and_events_say_who_submitted_them() {
    let place = Place::new();
    let (ci, _, ci_lines) = token("ci", "produce");
    let (ada, _, ada_lines) = token("ada", "operate");
    let (root, _, root_lines) = token("root", "admin");
    let (worker, _, worker_lines) = token("worker-7", "work");
    let file = [ci_lines, ada_lines, root_lines, worker_lines].concat();
    std::fs::write(place.path("windlass.toml"), file).expect("written");
    let mut server = place.start(&["run", "--listen", "127.0.0.1:0", "--config", "windlass.toml"]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    let ask = |request: &str, who: &str, body: &str| http(&base, request, who, body);
    let submitter = |id: &str| json(ask(&format!("GET /v1/jobs/{id}"), &ci, ""))["submitted_by"].clone();
    let id = |answer: Value| answer["id"].as_str().expect("an id").to_owned();
    let begun = json(ask("GET /v1/events/page", &ci, ""))["next_cursor"].as_str().expect("a cursor").to_owned();

    let job = id(json(ask("POST /v1/jobs", &ci, "{\"type\":\"t\"}")));
    assert_eq!(submitter(&job), "ci");
    let whole = id(json(ask("POST /v1/jobs", &root, "{\"type\":\"t\"}")));
    assert_eq!(submitter(&whole), "root");
    let forged = ask("POST /v1/jobs", &ci, "{\"type\":\"t\",\"submitted_by\":\"root\"}");
    assert_eq!(forged.0, 400, "{}", forged.1);
    let cloned = id(json(ask(&format!("POST /v1/jobs/{job}/clone"), &ada, "")));
    assert_eq!(submitter(&cloned), "ada");
    let schedule = "{\"name\":\"n\",\"every\":\"1h\",\"job\":{\"type\":\"t\",\"queue\":\"other\"}}";
    json(ask("POST /v1/schedules", &ada, schedule));
    let fired = json(ask("POST /v1/schedules/n/trigger", &root, ""))["job_id"].as_str().expect("a job").to_owned();
    assert_eq!(submitter(&fired), "ada", "a firing is of who made the schedule");
    let claim = "{\"queues\":[\"default\"],\"max\":1,\"worker\":\"w\"}";
    let claimed = json(ask("POST /v1/claims", &worker, claim))["jobs"][0].clone();
    let settle = serde_json::json!({"settlements": [{
        "id": claimed["id"], "token": claimed["lease"]["token"], "outcome": "completed",
        "spawn": [{"type": "child", "queue": "children"}],
    }]});
    json(ask("POST /v1/leases/settle", &worker, &settle.to_string()));
    let children = json(ask("GET /v1/jobs?type=child", &ci, ""));
    assert_eq!(children["items"][0]["submitted_by"], "worker-7");

    let events = json(ask(&format!("GET /v1/events/page?cursor={begun}"), &ci, ""));
    let told: Vec<_> = events["items"].as_array().expect("events").iter().map(|event| &event["submitted_by"]).collect();
    for name in ["ci", "root", "ada", "worker-7"] {
        assert!(told.contains(&&Value::from(name)), "{name}: {events}");
    }
    let shown = windlass().args(["jobs", "get", &job, "--store", &place.store()]).output().expect("it runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.lines().any(|line| line.contains("submitted by") && line.contains("ci")), "{shown}");
}

/// `windlass token reload` does what SIGHUP does; only an admin may ask, and a bad file changes nothing.
#[test]
fn m15_an_admin_has_the_tokens_read_again() {
    let place = Place::new();
    let (_, root_token, root_lines) = token("root", "admin");
    let (old, old_token, old_lines) = token("old", "operate");
    let (new, _, new_lines) = token("new", "read");
    let write = |lines: &[&str]| std::fs::write(place.path("windlass.toml"), lines.concat()).expect("written");
    write(&[&root_lines, &old_lines]);
    let mut server = place.start(&["run", "--listen", "127.0.0.1:0", "--config", "windlass.toml"]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    let asked = |bearer: &str| http(&base, "GET /v1/stats", bearer, "").0;
    let reload = |token: &str| {
        let mut command = windlass();
        command.args(["token", "reload", "--server", &base]).env("WINDLASS_TOKEN", token);
        command.output().expect("it runs")
    };
    write(&[&root_lines, &new_lines]);
    assert_eq!(reload(&old_token).status.code(), Some(5), "only an admin");
    assert_eq!((asked(&old), asked(&new)), (200, 401), "nothing was read yet");
    let done = reload(&root_token);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "2 tokens are in force\n");
    assert_eq!((asked(&old), asked(&new)), (401, 200));
    for bad in ["tokens = 7\n", ""] {
        write(&[bad]);
        let refused = reload(&root_token);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(4) && said.contains("in force"), "{bad:?}: {said}");
        assert_eq!((asked(&old), asked(&new)), (401, 200), "{bad:?}");
    }
    let store = windlass().args(["token", "reload", "--store", &place.store()]).output().expect("it runs");
    assert_eq!(store.status.code(), Some(2), "a store has no tokens");
}

/// Payloads are ciphertext in the file, and plain to clients of the server and holders of the key.
#[test]
fn payloads_are_encrypted_in_the_file_and_plain_through_the_server() {
    let place = Place::new();
    std::fs::write(place.path("keys"), format!("# the only one\n{KEY}\n")).expect("written");
    std::fs::write(place.path("windlass.toml"), "[encryption]\nkeys_file = \"keys\"\n").expect("written");
    let mut server = place.start(&["run", "--listen", "127.0.0.1:0", "--config", "windlass.toml"]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    let body = "{\"type\":\"t\",\"payload\":{\"card\":\"4242 4242\"},\"idempotency_key\":\"k\"}";
    let first = json(http(&base, "POST /v1/jobs", "", body));
    let again = json(http(&base, "POST /v1/jobs", "", body));
    assert_eq!((&again["id"], &again["existing"], &again["matches"]), (&first["id"], &true.into(), &true.into()));
    let id = first["id"].as_str().expect("an id").to_owned();
    let claim = "{\"queues\":[\"default\"],\"max\":1,\"worker\":\"w\"}";
    let claimed = json(http(&base, "POST /v1/claims", "", claim))["jobs"][0].clone();
    assert_eq!(claimed["payload"]["card"], "4242 4242");
    let settle = serde_json::json!({"settlements": [{
        "id": id, "token": claimed["lease"]["token"], "outcome": "completed", "result": {"paid": "4242 4242"},
    }]});
    json(http(&base, "POST /v1/leases/settle", "", &settle.to_string()));
    let job = json(http(&base, &format!("GET /v1/jobs/{id}"), "", ""));
    assert_eq!((&job["payload"]["card"], &job["result"]["paid"]), (&"4242 4242".into(), &"4242 4242".into()));

    let mut backup = windlass();
    backup.args(["store", "backup", "copy.db", "--store", &place.store()]).current_dir(place.path(""));
    let backup = backup.output().expect("it runs");
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    for entry in std::fs::read_dir(place.path("")).expect("a folder") {
        let path = entry.expect("a file").path();
        let bytes = std::fs::read(&path).unwrap_or_default();
        assert!(!bytes.windows(9).any(|window| window == b"4242 4242"), "{path:?} holds the payload");
    }
    let shown = |keys: Option<&str>| {
        let mut command = windlass();
        command.args(["jobs", "get", &id, "-o", "json", "--store", &place.store()]);
        let out = match keys {
            Some(keys) => command.env("WINDLASS_ENCRYPTION_KEYS", keys),
            None => &mut command,
        };
        String::from_utf8_lossy(&out.output().expect("it runs").stdout).into_owned()
    };
    assert!(shown(Some(KEY)).contains("4242 4242"));
    let closed = shown(None);
    assert!(closed.contains("application/vnd.windlass.sealed") && !closed.contains("4242"), "{closed}");
    let bad = windlass()
        .args(["jobs", "list", "--store", &place.store()])
        .env("WINDLASS_ENCRYPTION_KEYS", "secretkey")
        .output();
    let bad = bad.expect("it runs");
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(bad.status.code() == Some(2) && !said.contains("secretkey"), "{said}");
}

/// A server encrypts again what is under an older key, and tells when that key is needed no more; so does the command.
#[test]
fn an_older_key_can_leave_the_keyring_when_nothing_is_under_it() {
    let place = Place::new();
    let newer = "2026-2:202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";
    let run = |keys: &str, words: &[&str]| {
        let mut command = windlass();
        command.args(words).args(["--store", &place.store()]).env("WINDLASS_ENCRYPTION_KEYS", keys);
        let out = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned(), said)
    };
    let both = format!("{newer},{KEY}");
    assert_eq!(run(KEY, &["enqueue", "t", "--payload", "\"4242 4242\""]).0, Some(0));
    let (code, out, _) = run(&both, &["store", "reencrypt", "--dry-run", "-o", "json"]);
    let told: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &told["by_key"]["2026-1"], &told["removable"]), (Some(0), &1.into(), &serde_json::json!([])));
    let doctor = run(&both, &["doctor"]).1;
    assert!(doctor.lines().any(|line| line.starts_with("watch") && line.contains("2026-1")), "{doctor}");
    let (code, _, said) = run(newer, &["store", "reencrypt"]);
    assert!(code == Some(1) && said.contains("do not open"), "{said}");

    std::fs::write(place.path("keys"), format!("{newer}\n{KEY}\n")).expect("written");
    std::fs::write(place.path("windlass.toml"), "[encryption]\nkeys_file = \"keys\"\n").expect("written");
    let mut server = place.start(&["run", "--listen", "127.0.0.1:0", "--config", "windlass.toml"]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    let gauge = |key: &str, count: u64| {
        let line = format!("windlass_encryption_stored{{key=\"{key}\"}} {count}");
        http(&base, "GET /metrics", "", "").1.lines().any(|told| told == line)
    };
    until("everything is under the new key", || gauge("2026-2", 1) && gauge("2026-1", 0));
    let (code, out, said) = run(newer, &["store", "reencrypt", "--dry-run"]);
    assert!(code == Some(0) && out.contains("2026-2") && !out.contains("2026-1"), "{out}{said}");
    let listed = run(newer, &["jobs", "list", "-o", "json"]).1;
    assert!(listed.contains("4242 4242"), "{listed}");
    let (code, _, said) = {
        let out = windlass().args(["store", "reencrypt", "--store", &place.store()]).output().expect("it runs");
        (out.status.code(), (), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    assert!(code == Some(2) && said.contains("WINDLASS_ENCRYPTION_KEYS"), "{said}");
}

fn openssl(place: &Place, words: &str) {
    let made =
        Command::new("openssl").args(words.split(' ')).current_dir(place.path("")).output().expect("openssl runs");
    assert!(made.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&made.stderr));
}

/// Mutual TLS: who has no certificate of the named authority gets no answer; a worker shows its own.
#[test]
fn only_clients_with_a_certificate_are_answered_where_one_is_asked_for() {
    let place = Place::new();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for authority in ["ca", "other"] {
        openssl(
            &place,
            &format!("req -x509 {key} -days 2 -subj /CN={authority} -keyout {authority}.key -out {authority}.pem"),
        );
    }
    let leaf = "-addext basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1";
    for (name, authority) in [("server", "ca"), ("worker", "ca"), ("stranger", "other")] {
        openssl(&place, &format!("req -new {key} {leaf} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        let signed =
            format!("-CA {authority}.pem -CAkey {authority}.key -CAcreateserial -copy_extensions copyall -days 2");
        openssl(&place, &format!("x509 -req -in {name}.csr {signed} -out {name}.pem"));
    }
    let file = "[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\nclients = \"ca.pem\"\n";
    std::fs::write(place.path("windlass.toml"), file).expect("written");
    let mut server = place.start(&["run", "--listen", "127.0.0.1:0", "--config", "windlass.toml"]);
    let base = server.started()["listen"].as_str().expect("an address").to_owned();
    let stats = |identity: Option<&str>| {
        let mut command = windlass();
        command.args(["stats", "--server", &base]).env("WINDLASS_TLS_CA", place.path("ca.pem"));
        if let Some(name) = identity {
            command.env("WINDLASS_TLS_CERT", place.path(&format!("{name}.pem")));
            command.env("WINDLASS_TLS_KEY", place.path(&format!("{name}.key")));
        }
        command.output().expect("it runs")
    };
    let known = stats(Some("worker"));
    assert!(known.status.success(), "{}", String::from_utf8_lossy(&known.stderr));
    for refused in [stats(None), stats(Some("stranger"))] {
        assert_eq!(refused.status.code(), Some(6), "{}", String::from_utf8_lossy(&refused.stderr));
    }
    let half = windlass().args(["stats", "--server", &base]).env("WINDLASS_TLS_CERT", "worker.pem").output();
    assert_eq!(half.expect("it runs").status.code(), Some(2), "a certificate without its key");
}
