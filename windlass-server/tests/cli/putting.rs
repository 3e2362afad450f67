//! Commands that put jobs in, and those that wait for them.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::support::Bench;

#[test]
fn a_job_is_enqueued() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["enqueue", "email.send", "--payload", "{\"to\":\"eve\"}", "--queue", "new", "--key", "k1", "--tag", "a=b"],
        &["enqueue", "email.send", "--payload", "{\"to\":\"eve\"}", "--queue", "new", "--key", "k1", "-o", "json"],
        &["enqueue", "email.send", "--payload", "{\"to\":\"mallory\"}", "--queue", "new", "--key", "k1", "-o", "id"],
        &["enqueue", "report", "--delay", "5m", "--attempts", "7", "--timeout", "90s", "--lifetime", "none"],
        &["enqueue", "report", "--after", "{scheduled}", "--priority", "bulk"],
        &["jobs", "list", "--type", "report"],
    ]));
}

#[test]
fn of_unique_jobs_one_is_enough() {
    let bench = Bench::seeded();
    let save = ["enqueue", "save", "--queue", "new", "--unique-by", "/page", "--payload"];
    let save = |payload: &str, more: &[&str]| -> Vec<String> {
        save.iter().chain([&payload]).chain(more).map(|word| (*word).to_owned()).collect()
    };
    let run = |words: Vec<String>| bench.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let first = run(save("{\"page\":7,\"text\":\"a\"}", &["--until", "claimed", "-o", "id"])).stdout;
    let again = run(save("{\"text\":\"b\",\"page\":7.0}", &["--until", "claimed", "-o", "id"])).stdout;
    assert_eq!(again, first, "it waits already");
    let newer = run(save("{\"page\":7}", &["--until", "claimed", "--replace", "-o", "id"])).stdout;
    assert_ne!(newer, first);
    let shown = bench.run(&["jobs", "get", first.trim()]).stdout;
    assert!(shown.contains(&format!("replaced, by job {}", newer.trim())), "{shown}");
    let explained = bench.run(&["jobs", "explain", first.trim()]).stdout;
    assert!(explained.contains("A newer submission with its key took its place"), "{explained}");
    let debounced = run(save("{\"page\":7}", &["--debounce", "30s", "--at-most", "5m", "-o", "json"])).stdout;
    assert!(debounced.contains("\"delayed\"") && debounced.contains("\"existing\": false"), "{debounced}");
    let throttled = ["enqueue", "alert", "--queue", "new", "--throttle", "1m", "-o", "id"];
    assert_eq!(bench.run(&throttled).stdout, bench.run(&throttled).stdout);
    insta::assert_snapshot!(bench.told(&[
        &["enqueue", "save", "--debounce", "30s"],
        &["enqueue", "save", "--debounce", "30s", "--at-most", "5s"],
        &["enqueue", "save", "--until", "noon"],
        &["enqueue", "save", "--unique-by", "page"],
    ]));
}

#[test]
fn what_cannot_be_enqueued_is_refused() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["enqueue", "two words"],
        &["enqueue", "email.send", "--payload", "{to: eve}"],
        &["enqueue", "email.send", "--payload", "@missing.json"],
        &["enqueue", "email.send", "--delay", "soon"],
        &["enqueue", "email.send", "--run-at", "tomorrow"],
        // The default lifetime would count from that moment; only one that is named can be too short.
        &["enqueue", "email.send", "--run-at", "2999-01-01T00:00:00Z", "--lifetime", "7d"],
        &["enqueue", "email.send", "--tag", "novalue"],
        &["enqueue", "email.send", "--after", "00000000-0000-4000-8000-000000000000"],
        &["enqueue", "email.send", "--callback-url", "https://user:pw@example.com/"],
        &["enqueue"],
    ]));
}

#[test]
fn a_payload_comes_from_a_file_or_from_standard_input() {
    let bench = Bench::seeded();
    std::fs::write(bench.path("payload.json"), "{\"n\": 12345678901234567890}\n").expect("written");
    let payload = |id: &str| bench.run(&["jobs", "get", id.trim(), "-o", "json"]).stdout;
    let from_file = bench.run(&["enqueue", "t", "--payload", "@payload.json", "-o", "id"]);
    assert!(payload(&from_file.stdout).contains("{\"n\": 12345678901234567890}"), "as it was written");
    let piped = bench.feed(&["enqueue", "t", "--payload", "-", "-o", "id"], "[1,2]");
    assert!(payload(&piped.stdout).contains("\"payload\": [1,2]"));
    let bytes = bench.run(&["enqueue", "t", "--payload", "plain", "--content-type", "text/plain", "-o", "id"]);
    assert!(payload(&bytes.stdout).contains("\"payload_base64\": \"cGxhaW4=\""));
}

#[test]
fn a_file_is_enqueued_in_batches() {
    let bench = Bench::seeded();
    let line =
        |n: u32| format!("{{\"type\":\"import\",\"payload\":{{\"row\":{n}}},\"idempotency_key\":\"row-{n}\"}}\n");
    let lines: String = (0..250).map(line).collect();
    std::fs::write(bench.path("jobs.jsonl"), lines + "\n").expect("written");
    std::fs::write(
        bench.path("bad.jsonl"),
        format!("{}{}{{\"type\":\"import\",\"colour\":1}}\n", line(900), line(901)),
    )
    .expect("written");
    std::fs::write(bench.path("late.jsonl"), format!("{}{}{{\"type\":\"no good\"}}\n", line(902), line(903)))
        .expect("written");
    std::fs::write(
        bench.path("flow.jsonl"),
        "{\"ref\":\"a\",\"type\":\"first\"}\n{\"type\":\"second\",\"depends_on\":[{\"ref\":\"a\"}]}\n",
    )
    .expect("written");
    insta::assert_snapshot!(bench.told(&[
        &["enqueue", "--file", "jobs.jsonl", "--batch", "100"],
        &["enqueue", "--file", "jobs.jsonl"],
        &["enqueue", "--file", "jobs.jsonl", "--skip", "240"],
        &["enqueue", "--file", "bad.jsonl"],
        &["enqueue", "--file", "late.jsonl", "--batch", "2"],
        &["enqueue", "--file", "flow.jsonl", "-o", "jsonl"],
        &["enqueue", "--file", "missing.jsonl"],
        &["queues", "get", "default"],
    ]));
}

#[test]
fn an_interrupted_file_says_where_to_go_on() {
    let bench = Bench::seeded();
    let mut command = bench.command(&["enqueue", "--file", "-", "--batch", "1", "-o", "id"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut stored = 0;
    let mut store = |stdin: &mut std::process::ChildStdin| -> bool {
        let mut id = String::new();
        let fed = stdin.write_all(b"{\"type\":\"import\"}\n").and_then(|()| stdin.flush()).is_ok();
        let answered = fed && stdout.read_line(&mut id).expect("readable") > 0;
        stored += u64::from(answered);
        answered
    };
    // The first answer shows that it listens for Ctrl-C by now.
    assert!(store(&mut stdin), "the first job is stored");
    let signal = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(signal.expect("kill runs").success());
    while store(&mut stdin) {}
    let ended = child.wait_with_output().expect("it ends");
    let told = String::from_utf8(ended.stderr).expect("UTF-8");
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(told.contains("interrupted; enqueued") && told.contains(&format!("--skip {stored}")), "{stored}: {told}");
    assert_eq!(
        bench.run(&["jobs", "list", "--type", "import", "-o", "id", "--limit", "0"]).stdout.lines().count() as u64,
        stored
    );
}

#[test]
fn a_workflow_is_started_from_a_file() {
    let bench = Bench::seeded();
    let flow = "{\"name\":\"order-43\",\"jobs\":[{\"ref\":\"charge\",\"type\":\"charge\"},\
                {\"ref\":\"pack\",\"type\":\"pack\",\"depends_on\":[{\"ref\":\"charge\"}]}]}";
    std::fs::write(bench.path("order.json"), flow).expect("written");
    std::fs::write(
        bench.path("circle.json"),
        flow.replace("\"type\":\"charge\"", "\"type\":\"charge\",\"depends_on\":[{\"ref\":\"pack\"}]"),
    )
    .expect("written");
    std::fs::write(bench.path("bad.json"), "{\"name\":\"x\"}").expect("written");
    insta::assert_snapshot!(bench.told(&[
        &["workflows", "start", "-f", "order.json"],
        &["workflows", "start", "-f", "order.json", "-o", "json"],
        &["workflows", "start", "-f", "order.json", "--wait=50ms"],
        &["workflows", "start", "-f", "circle.json"],
        &["workflows", "start", "-f", "bad.json"],
        &["workflows", "start", "-f", "missing.json"],
    ]));
}

#[test]
fn waiting_tells_how_it_ended() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "wait", "{completed}"],
        &["jobs", "wait", "{completed}", "{dead}"],
        &["jobs", "wait", "{cancelled}", "-o", "id"],
        &["jobs", "wait", "{running}", "--timeout", "100ms"],
        &["enqueue", "nobody.runs.this", "--wait=100ms"],
        &["jobs", "watch", "{completed}"],
        &["jobs", "watch", "{failed}"],
    ]));
}

#[test]
fn jobs_are_watched_as_they_come() {
    let bench = Bench::seeded();
    let mut command = bench.command(&["jobs", "watch", "--type", "wanted", "--count", "2", "-o", "jsonl"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // Whatever comes before it looks is not seen, so jobs come until it has seen two.
    let mut child = child;
    while child.try_wait().expect("it can be asked").is_none() {
        bench.run(&["enqueue", "other"]);
        bench.run(&["enqueue", "wanted"]);
    }
    let ended = child.wait_with_output().expect("it ends");
    let lines: Vec<serde_json::Value> = String::from_utf8(ended.stdout)
        .expect("UTF-8")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|event| event["event"] == "enqueued" && event["type"] == "wanted"), "{lines:?}");
}
