//! Commands that act on what is there.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::Bench;

#[test]
fn jobs_are_cancelled_by_id_and_by_filter() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "cancel", "{scheduled}", "--reason", "wrong customer"],
        &["jobs", "get", "{scheduled}"],
        &["jobs", "cancel", "{running}"],
        &["jobs", "explain", "{running}"],
        &["jobs", "cancel", "--queue", "slow", "--dry-run"],
        &["jobs", "cancel", "--queue", "slow"],
        &["jobs", "cancel", "--queue", "slow", "--yes", "--force"],
        &["jobs", "list", "--queue", "slow"],
        &["jobs", "cancel", "--queue", "slow", "--yes", "-o", "json"],
    ]));
}

#[test]
fn an_act_must_be_told_on_what() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "cancel"],
        &["jobs", "delete", "--yes"],
        &["jobs", "cancel", "{scheduled}", "--queue", "mail"],
        &["jobs", "requeue", "--state", "running", "--yes"],
        &["jobs", "cancel", "--all", "--dry-run"],
        &["jobs", "requeue", "{completed}"],
        &["jobs", "requeue", "{dead}", "{completed}", "{pending}"],
        &["jobs", "delete", "{running}", "-o", "json"],
    ]));
}

#[test]
fn dead_jobs_are_sent_back() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "requeue", "{dead}"],
        &["jobs", "list", "--state", "scheduled", "--queue", "mail"],
        &["dlq", "requeue", "--code", "no_address", "--yes", "-o", "json"],
        &["dlq", "list"],
        &["dlq", "requeue", "--all", "--yes"],
    ]));
}

#[test]
fn jobs_are_dead_lettered_and_removed() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "dead-letter", "{delayed}", "--reason", "see ticket 7"],
        &["jobs", "explain", "{pending}"],
        &["jobs", "delete", "--state", "completed,cancelled", "--yes"],
        &["dlq", "purge", "--all", "--dry-run"],
        &["dlq", "purge", "--type", "email.send", "--yes"],
        &["dlq", "list"],
        &["store", "prune", "--older-than", "1d", "--state", "completed", "--yes"],
        &["store", "prune", "--state", "running", "--yes"],
        &["stats"],
    ]));
}

#[test]
fn jobs_are_edited() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "edit", "{scheduled}", "--priority", "critical", "--tag", "vip=yes", "--untag", "customer"],
        &["jobs", "edit", "{scheduled}", "--correlation-id", "order-9", "-o", "id"],
        &["jobs", "get", "{scheduled}"],
        &["jobs", "edit", "{completed}", "--priority", "low"],
        &["jobs", "edit", "{scheduled}"],
        &["jobs", "edit", "{scheduled}", "--callback-url", "ftp://x"],
        &["jobs", "edit", "{scheduled}", "--priority", "urgent"],
    ]));
}

#[test]
fn jobs_are_cloned() {
    let bench = Bench::seeded();
    let clone = bench.run(&["jobs", "clone", "{cancelled}", "-o", "json"]).json();
    let id = clone["id"].as_str().expect("an id").to_owned();
    let job = bench.run(&["jobs", "get", &id, "-o", "json"]).json();
    assert_eq!(job["cloned_from"], serde_json::json!(bench.id("cancelled")));
    assert_eq!(
        (job["type"].as_str(), job["queue"].as_str(), job["priority"].as_str()),
        (Some("email.send"), Some("mail"), Some("low"))
    );
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "clone", "{completed}", "--key", "again", "--payload", "{\"to\":\"eve\"}", "--queue", "slow"],
        &["jobs", "clone", "{completed}", "--key", "again", "-o", "json"],
        &["jobs", "clone", "{completed}", "--payload", "{"],
    ]));
}

#[test]
fn queues_are_paused_resumed_and_purged() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["queues", "pause", "mail", "slow"],
        &["queues", "list"],
        &["jobs", "explain", "{scheduled}"],
        &["queues", "resume", "mail", "-o", "json"],
        &["queues", "purge", "mail", "--dry-run"],
        &["queues", "purge", "mail"],
        &["queues", "purge", "mail", "--yes"],
        &["queues", "purge", "mail", "--yes"],
        &["jobs", "get", "{pending}"],
        &["store", "acts", "--limit", "3"],
        &["store", "acts", "--limit", "1", "-o", "jsonl"],
        &["queues", "get", "nowhere"],
        &["queues", "pause", "no queue"],
    ]));
}

#[test]
fn workers_are_drained_and_resumed() {
    let bench = Bench::seeded();
    bench.announce(&["mail", "slow"]);
    insta::assert_snapshot!(bench.told(&[
        &["workers", "drain"],
        &["workers", "drain", "nobody"],
        &["workers", "drain", "worker-live", "nobody"],
        &["workers", "list"],
        &["workers", "drain", "worker-l", "--reason", "its disk", "--by", "ada"],
        &["workers", "list"],
        &["workers", "drain", "worker-live"],
        &["workers", "resume", "worker-live", "-o", "json"],
        &["store", "acts", "--limit", "2"],
    ]));
}

#[test]
fn a_drain_is_waited_for_until_the_worker_is_gone() {
    let bench = Bench::seeded();
    bench.announce(&["mail"]);
    let mut waiting = bench.command(&["workers", "drain", "worker-live", "--wait"]);
    let mut waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("windlass starts");
    let mut lines = BufReader::new(waiting.stderr.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), "worker worker-live takes no more jobs; it runs 1");
    assert_eq!(next(), "worker worker-live runs 1");
    bench.announce(&[]);
    assert_eq!(next(), "worker worker-live is gone");
    assert!(waiting.wait().expect("it ends").success());
}

#[test]
fn queues_are_controlled_and_their_keys_limited() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["queues", "control", "mail"],
        &["queues", "control", "mail", "--running", "50", "--rate", "100/s", "--burst", "20", "--fair"],
        &["queues", "control", "mail", "--running", "0"],
        &["queues", "control", "mail", "--rate", "0/s"],
        &["queues", "control", "mail", "--rate", "-5/s"],
        &["queues", "control", "mail", "--running", "-1"],
        &["queues", "control", "mail", "--running", "2", "--each-key-running", "1", "--ordered", "-o", "json"],
        &["queues", "key", "mail", "acme", "--running", "10", "--weight", "5"],
        &["queues", "key", "mail", "acme", "--resume", "-o", "json"],
        &["queues", "keys", "mail"],
        &["queues", "keys", "mail", "--blocked"],
        &["queues", "key", "mail", "acme", "--clear"],
        &["queues", "keys", "nowhere"],
        &["queues", "key", "nowhere", "acme", "--running", "1"],
        &["queues", "control", "mail", "--clear"],
    ]));
}

#[test]
fn workflows_are_cancelled_and_requeued() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "dead-letter", "{pack}"],
        &["workflows", "graph", "{workflow}"],
        &["jobs", "explain", "{close}"],
        &["workflows", "requeue", "{workflow}", "--yes"],
        &["workflows", "graph", "{workflow}"],
        &["workflows", "cancel", "{workflow}", "--yes", "-o", "json"],
        &["workflows", "list"],
        &["workflows", "cancel", "00000000-0000-4000-8000-000000000000", "--yes"],
    ]));
}

#[test]
fn schedules_are_made_paused_fired_and_forgotten() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &[
            "schedules",
            "create",
            "hourly",
            "feed.poll",
            "--cron",
            "{cron}",
            "--payload",
            "{\"feed\":1}",
            "--missed",
            "all:3"
        ],
        &["schedules", "create", "hourly", "feed.poll", "--every", "1h"],
        &[
            "schedules",
            "create",
            "hourly",
            "feed.poll",
            "--every",
            "1h",
            "--replace",
            "--overlap",
            "queue-one",
            "-o",
            "id"
        ],
        &["schedules", "create", "other", "feed.poll"],
        &["schedules", "create", "other", "feed.poll", "--cron", "* * * *"],
        &["schedules", "create", "other", "feed.poll", "--cron", "0 3 * * *", "--zone", "Mars/Olympus"],
        &["schedules", "pause", "hourly"],
        &["schedules", "resume", "hourly", "-o", "id"],
        &["schedules", "trigger", "hourly"],
        &["schedules", "trigger", "hourly", "-o", "id"],
        &["schedules", "delete", "hourly"],
        &["schedules", "delete", "hourly"],
        &["schedules", "get", "hourly"],
    ]));
}
