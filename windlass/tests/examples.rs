//! Every example runs, and prints what it should.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_example_is_in_the_index() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let index = std::fs::read_to_string(folder.join("README.md")).expect("the index");
    let files = std::fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("a file").file_name());
    let examples: Vec<String> =
        files.filter_map(|name| name.into_string().ok()).filter(|name| name.ends_with(".rs")).collect();
    assert!(examples.len() > 8, "{examples:?}");
    for example in examples {
        assert!(index.contains(&format!("]({example})")), "{example} is not in examples/README.md");
    }
}

#[test]
fn first_job() {
    assert_eq!(run("first_job"), "COMPLETED: hello, Ada\n");
}

#[test]
fn worker_state() {
    assert_eq!(
        run("worker_state"),
        "billed 100 cents, 100 so far\nbilled 7 cents, 107 so far\nbilled 30 cents, 137 so far\n"
    );
}

#[test]
fn retries() {
    let expected = "retried 1, failed 1, snoozed 1\nCOMPLETED after 3 attempts, 2 failures\n\
                    FAILED after 1 attempts, 1 failures\nCOMPLETED after 2 attempts, 0 failures\n";
    assert_eq!(run("retries"), expected);
}

#[test]
fn workflow() {
    let expected =
        "order 42 closed: packed because order 42 is paid, receipt sent because order 42 is paid\nCompleted\n";
    assert_eq!(run("workflow"), expected);
}

#[test]
fn schedules() {
    let printed = run("schedules");
    assert!(printed.contains("nightly for 2026-01-01T02:00:00.000000Z\n"), "03:00 in Berlin: {printed}");
    assert_eq!(printed.matches("six-hourly for").count(), 4, "{printed}");
    assert!(printed.ends_with("1 after two weeks\n"), "{printed}");
}

#[test]
fn flow_control() {
    let expected =
        "to grace\nkey acme is held until 2026-01-01T00:01:00.000000Z\nto ada\nto busy\nto once\n1 of three\n";
    assert_eq!(run("flow_control"), expected);
}

#[test]
fn checkpoint() {
    let expected = "attempt 1 begins at row 0\nattempt 2 begins at row 300\nattempt 3 begins at row 1000\n\
                    COMPLETED: 1000 rows\n";
    assert_eq!(run("checkpoint"), expected);
}

#[test]
fn testing() {
    assert_eq!(run("testing"), "all as expected\n");
}

#[test]
fn web_and_worker() {
    assert_eq!(run("web_and_worker"), "HTTP/1.1 200 OK\nCOMPLETED: welcome, Ada\n1 settled\n");
}

#[test]
fn shutdown() {
    assert_eq!(run("shutdown"), "settled 2, of these interrupted 1\nshort: COMPLETED, long: SCHEDULED\n");
}

#[cfg(feature = "sqlite")]
#[test]
fn transaction_sqlite() {
    assert_eq!(run("transaction_sqlite"), "after a rollback: 0 jobs\nCOMPLETED with 1 charge\n");
}

#[cfg(feature = "postgres")]
#[test]
fn transaction_postgres() {
    let url = std::env::var("WINDLASS_TEST_POSTGRES");
    let url = url.expect("WINDLASS_TEST_POSTGRES must name a PostgreSQL database; scripts/test starts one");
    let schema = format!("example_{}", uuid::Uuid::new_v4().simple());
    let printed = run_with("transaction_postgres", &[("DATABASE_URL", format!("{url}?schema={schema}"))]);
    assert_eq!(printed, "after a rollback: 0 jobs\norder 42 is charged\nCOMPLETED\n");
}

#[cfg(feature = "conformance")]
#[test]
fn custom_store() {
    assert_eq!(run("custom_store"), "the store \"mine\" keeps the rules about leases\n");
}

#[test]
fn every_example_is_run_here() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let tests = include_str!("examples.rs");
    for entry in std::fs::read_dir(folder).expect("the folder can be listed") {
        let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
        let Some(name) = name.strip_suffix(".rs") else { continue };
        let runs = [format!("run(\"{name}\")"), format!("run_with(\"{name}\"")];
        assert!(runs.iter().any(|run| tests.contains(run)), "{name} is not run by tests/examples.rs");
    }
}

/// Runs an example, which cargo builds beside this test; gives what it printed.
fn run(name: &str) -> String {
    run_with(name, &[])
}

/// The same, with these in its environment.
fn run_with(name: &str, environment: &[(&str, String)]) -> String {
    let program = folder().join(name);
    let environment = environment.iter().map(|(name, value)| (name, value));
    let output = Command::new(&program).envs(environment).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {program:?} (cargo build --examples): {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// This test lies in target/…/deps, examples in target/…/examples.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("this program has a path");
    test.parent().and_then(Path::parent).expect("it lies in deps").join("examples")
}
