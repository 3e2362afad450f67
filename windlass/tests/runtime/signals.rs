//! `Worker::run` in a process of its own, which gets real signals.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use windlass::{Client, Context, Worker};

use crate::support::{Number, SOON};

/// Names the file through which the child's handler ends; its presence makes this test binary the child.
const CHILD: &str = "WINDLASS_TEST_SIGNALS";

/// Not a test of its own: what the child process runs.
#[tokio::test]
async fn a_worker_that_runs_until_it_is_told() {
    let Ok(may_end) = std::env::var(CHILD) else { return };
    let client = Client::in_memory();
    client.enqueue(Number(1)).await.expect("enqueue");
    let handler = async move |_: Number, cx: Context<String>| {
        println!("started");
        while !std::path::Path::new(&*cx.state).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    let worker = Worker::new(&client).with_state(may_end).queue("default", 1).handle(handler);
    let stopped = worker.run().await.expect("ran");
    println!("settled={} abandoned={}", stopped.settled, stopped.abandoned);
}

fn child(may_end: &std::path::Path) -> (Child, BufReader<std::process::ChildStdout>) {
    let binary = std::env::current_exe().expect("this binary");
    let mut child = Command::new(binary)
        .args(["--exact", "signals::a_worker_that_runs_until_it_is_told", "--nocapture"])
        .env(CHILD, may_end)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    while !line.contains("started") {
        line.clear();
        assert!(output.read_line(&mut line).expect("a line") > 0, "the child ended before its handler started");
    }
    (child, output)
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

fn rest(mut child: Child, mut output: BufReader<std::process::ChildStdout>) -> String {
    let mut text = String::new();
    output.read_to_string(&mut text).expect("its output");
    let begun = Instant::now();
    while child.try_wait().expect("its status").is_none() {
        assert!(begun.elapsed() < SOON, "the child does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    text
}

#[test]
fn n3_sigterm_lets_the_handler_finish_and_sigint_too() {
    for name in ["TERM", "INT"] {
        let folder = tempfile::TempDir::new().expect("a folder");
        let may_end = folder.path().join("end");
        let (child, output) = child(&may_end);
        signal(&child, name);
        std::fs::write(&may_end, "").expect("a file");
        assert!(rest(child, output).contains("settled=1 abandoned=0"), "{name}");
    }
}

#[test]
fn n3_a_second_signal_aborts_the_run() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let (child, output) = child(&folder.path().join("never"));
    signal(&child, "TERM");
    // Two signals of one kind that come together are one.
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, "INT");
    assert!(rest(child, output).contains("settled=0 abandoned=1"));
}
