//! The same verbs through a server: the same output, the same ends.

use crate::support::{Bench, Server};

#[test]
fn a_server_answers_as_the_store_does() {
    let bench = Bench::seeded();
    let server = Server::of(&bench);
    let looks: [&[&str]; 22] = [
        &["jobs", "list"],
        &["jobs", "list", "-o", "json", "--limit", "3"],
        &["jobs", "list", "--tag", "customer=42", "--created-before", "1h", "-o", "wide"],
        &["jobs", "get", "{completed}", "{dead}", "-o", "json"],
        &["jobs", "get", "{running}"],
        &["jobs", "attempts", "{retrying}", "-o", "json"],
        &["jobs", "logs", "{running}"],
        &["jobs", "explain", "{pending}"],
        &["jobs", "wait", "{failed}"],
        &["jobs", "wait", "{scheduled}", "--timeout", "50ms"],
        &["jobs", "get", "00000000-0000-4000-8000-000000000000"],
        &["jobs", "export", "--queue", "slow"],
        &["dlq", "list"],
        &["queues", "list", "-o", "wide"],
        &["workers", "list"],
        &["workflows", "list"],
        &["workflows", "graph", "{workflow}"],
        &["schedules", "list", "-o", "json"],
        &["schedules", "next", "nightly", "-n", "2", "-o", "id"],
        &["stats", "-o", "json"],
        &["jobs", "cancel", "--all", "--dry-run"],
        &["store", "check"],
    ];
    for look in looks {
        let there: Vec<&str> = look.iter().copied().chain(["--server", &server.url]).collect();
        let (here, there) = (bench.run(look), bench.run(&there));
        assert_eq!(bench.scrubbed(look, &here), bench.scrubbed(look, &there));
    }
}

/// Flags win over the environment, and that over the file.
#[test]
fn a_file_says_where_the_jobs_are() {
    let bench = Bench::seeded();
    let server = Server::of(&bench);
    let file = |text: &str| std::fs::write(bench.path("windlass.toml"), text).expect("written");
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = bench.command(&[&["--config", "windlass.toml"], arguments].concat());
        command.env_remove("WINDLASS_STORE").envs(variables.iter().copied());
        let ended = command.output().expect("the binary runs");
        (ended.status.code().expect("a code"), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let nowhere = "http://127.0.0.1:9";
    let look = ["jobs", "list"];
    file(&format!("store = {:?}", bench.url()));
    assert_eq!(run(&look, &[]).0, 0, "the file's store");
    assert_eq!(run(&look, &[("WINDLASS_SERVER", nowhere)]).0, 6, "the environment wins over the file");
    assert_eq!(run(&["jobs", "list", "--server", &server.url], &[("WINDLASS_SERVER", nowhere)]).0, 0, "flags win");
    file(&format!("server = {:?}\ntoken = \"s3cret\"", server.url));
    assert_eq!(run(&look, &[]).0, 0, "the file's server");
    file(&format!("server = {nowhere:?}"));
    assert_eq!(run(&look, &[]).0, 6);
    assert_eq!(run(&look, &[("WINDLASS_STORE", &bench.url())]).0, 0);
    file("token = \"s3cret\"\nstroe = \"memory:\"");
    let (code, said) = run(&look, &[]);
    assert!(code == 2 && said.contains("stroe") && !said.contains("s3cret"), "{code} {said}");
    std::fs::remove_file(bench.path("windlass.toml")).expect("removed");
    assert_eq!(run(&look, &[]).0, 2, "a file that was named must be there");
}

#[test]
fn a_server_acts_as_the_store_does() {
    let bench = Bench::seeded();
    let server = Server::of(&bench);
    let there = |arguments: &[&str]| bench.run(&[arguments, &["--server", &server.url][..]].concat());
    let jobs = "{\"type\":\"import\",\"delay\":\"1h\"}\n".repeat(250);
    assert_eq!(bench.feed(&["enqueue", "--file", "-", "--batch", "100", "--server", &server.url], &jobs).code, 0);
    let ran = there(&["jobs", "cancel", "--type", "import", "--yes", "-o", "json"]);
    assert_eq!((ran.code, ran.json()["changed"].as_u64()), (0, Some(250)), "{ran:?}");
    let enqueued = there(&[
        "enqueue",
        "email.send",
        "--payload",
        "{\"to\":1}",
        "--key",
        "k",
        "--after",
        "{scheduled}",
        "-o",
        "json",
    ]);
    assert_eq!(enqueued.json()["state"], "pending");
    for (code, act) in [
        (0, &["jobs", "requeue", "{dead}"][..]),
        (4, &["jobs", "requeue", "{completed}"]),
        (0, &["jobs", "edit", "{scheduled}", "--priority", "low", "--tag", "a=b"]),
        (0, &["jobs", "clone", "{cancelled}"]),
        (0, &["queues", "pause", "mail"]),
        (0, &["schedules", "create", "hourly", "t", "--every", "1h"]),
        (4, &["schedules", "create", "hourly", "t", "--every", "1h"]),
        (0, &["schedules", "trigger", "hourly"]),
        (0, &["workflows", "cancel", "{workflow}", "--yes"]),
        (1, &["doctor"]),
        (2, &["store", "migrate"]),
        (2, &["store", "backup", "copy.db"]),
    ] {
        let ran = there(act);
        assert_eq!(ran.code, code, "{act:?}: {ran:?}");
    }
    let edited = bench.run(&["jobs", "get", "{scheduled}", "-o", "json"]).json();
    assert_eq!((edited["priority"].as_str(), edited["tags"]["a"].as_str()), (Some("low"), Some("b")));
}

#[test]
fn a_server_that_is_not_there_is_told_apart() {
    let bench = Bench::empty();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "list", "--server", "http://127.0.0.1:1"],
        &["jobs", "list", "--server", "127.0.0.1"],
        &["jobs", "list", "--server", "http://127.0.0.1:1", "--store", "memory:"],
        &["store", "migrate", "--server", "http://127.0.0.1:1"],
        &["store", "backup", "copy.db", "--server", "http://127.0.0.1:1"],
    ]));
}

#[test]
fn json_is_what_the_http_api_gives() {
    let bench = Bench::seeded();
    let server = Server::of(&bench);
    let (job, flow) = (bench.id("dead"), bench.id("workflow"));
    let pairs: [(String, &[&str]); 13] = [
        ("jobs?limit=3".to_owned(), &["jobs", "list", "--limit", "3"]),
        ("jobs?state=failed&queue=mail".to_owned(), &["jobs", "list", "--state", "failed", "--queue", "mail"]),
        (format!("jobs/{job}"), &["jobs", "get", "{dead}"]),
        (format!("jobs/{job}/attempts"), &["jobs", "attempts", "{dead}"]),
        (format!("jobs/{job}/explain"), &["jobs", "explain", "{dead}"]),
        (format!("jobs/{}/logs", bench.id("running")), &["jobs", "logs", "{running}"]),
        ("queues".to_owned(), &["queues", "list"]),
        ("queues/mail".to_owned(), &["queues", "get", "mail"]),
        ("workers".to_owned(), &["workers", "list"]),
        ("workflows".to_owned(), &["workflows", "list"]),
        (format!("workflows/{flow}"), &["workflows", "get", "{workflow}"]),
        ("schedules/nightly".to_owned(), &["schedules", "get", "nightly"]),
        ("stats".to_owned(), &["stats"]),
    ];
    for (path, command) in pairs {
        let said = server.get(&format!("/v1/{path}"));
        let printed = bench.run(&[command, &["-o", "json"]].concat()).json();
        assert_eq!(said, printed, "{path}");
    }
}

#[test]
fn a_server_that_refuses_is_told_apart() {
    let (bench, server) = (Bench::empty(), Server::refusing());
    let ran = bench.command(&["jobs", "list", "--server", &server.url]).env("WINDLASS_TOKEN", "hunter2").output();
    let ran = crate::support::Ran::of(&ran.expect("it runs"));
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("WINDLASS_TOKEN") && !ran.stderr.contains("hunter2"), "{ran:?}");
}

/// L18: a hostile server cannot fill the memory of the program that asks it.
#[test]
fn l18_an_answer_that_is_far_too_large_is_not_read() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut asked = [0; 4096];
                let _ = stream.read(&mut asked);
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 300000000\r\n\r\n";
                let _ = stream.write_all(head.as_bytes());
                let chunk = vec![b'x'; 1 << 20];
                while stream.write_all(&chunk).is_ok() {}
            });
        }
    });
    let ran = Bench::empty().run(&["jobs", "list", "--server", &url]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("larger than any"), "{}", ran.stderr);
}
