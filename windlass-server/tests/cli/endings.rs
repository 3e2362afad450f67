//! How commands end: one number for each kind of end.

use std::io::Read;
use std::process::Stdio;

use crate::support::Bench;

const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

#[test]
fn each_kind_of_end_has_its_number() {
    let bench = Bench::seeded();
    let cases: [(i32, &[&str]); 16] = [
        (0, &["jobs", "list"]),
        (0, &["--help"]),
        (1, &["enqueue", "t", "--payload", "@missing"]),
        (2, &["jobs", "lsit"]),
        (2, &["jobs", "get", "not-an-id"]),
        (2, &["jobs", "cancel", "--queue", "mail"]),
        (2, &["enqueue", "bad type"]),
        (3, &["jobs", "get", NOBODY]),
        (3, &["jobs", "explain", NOBODY]),
        (3, &["workflows", "get", NOBODY]),
        (3, &["schedules", "pause", "nothing"]),
        (3, &["enqueue", "t", "--after", NOBODY]),
        (4, &["jobs", "cancel", "{completed}"]),
        (4, &["schedules", "create", "nightly", "t", "--every", "1h"]),
        (7, &["jobs", "wait", "{scheduled}", "--timeout", "10ms"]),
        (8, &["jobs", "wait", "{failed}"]),
    ];
    for (code, arguments) in cases {
        let ran = bench.run(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
    }
}

#[test]
fn an_error_says_what_was_tried_and_what_to_do() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "get", NOBODY],
        &["jobs", "get", "not-an-id"],
        &["jobs", "cancel", "{completed}"],
        &["workflows", "get", NOBODY],
        &["schedules", "trigger", "nothing"],
        &["jobs", "lsit"],
        &["jobs", "list", "--state", "runing"],
        &["jobs", "list", "--cursor", "nonsense"],
    ]));
}

#[test]
fn nothing_but_data_is_on_standard_output() {
    let bench = Bench::seeded();
    for arguments in
        [&["jobs", "cancel", "--queue", "slow", "--yes"][..], &["queues", "pause", "mail"], &["jobs", "get", NOBODY]]
    {
        let ran = bench.run(arguments);
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{arguments:?}: {ran:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let bench = Bench::seeded();
    let jobs = "{\"type\":\"import\"}\n".repeat(3000);
    assert_eq!(bench.feed(&["enqueue", "--file", "-"], &jobs).code, 0);
    let mut command = bench.command(&["jobs", "list", "--limit", "0", "-o", "jsonl"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut some = [0; 100];
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut some).expect("readable");
    drop(stdout);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}
