//! Short runs, as a user would start them. The long ones are steps of `scripts/test`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use windlass::job::Limits;
use windlass::store::SqliteStore;
use windlass::store::Store;
use windlass::workflow::Submission;
use windlass::{NewJob, Payload, Policies};

/// Long enough for a few faults of each kind.
const SECONDS: &str = "8";

fn torture(store: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass-torture"));
    command.args(["--store", store, "--seed", "11", "-o", "json"]).args(more);
    command.output().expect("the binary runs")
}

#[track_caller]
fn clean(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}{}", output.status, String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    println!("{report}");
    assert_eq!(report["seed"], 11);
    assert_eq!(report["valid"], true);
    let violations = report["violations"].as_object().expect("by invariant");
    assert!(violations.len() == 18 && violations.values().all(|count| count == 0), "{violations:?}");
    for what in ["jobs", "runs", "reclaims", "stale_refused", "faults_total"] {
        assert!(report[what].as_u64().is_some_and(|count| count > 0), "{what}: {}", report[what]);
    }
    report
}

#[test]
fn a_short_run_on_sqlite_is_clean_and_leaves_nothing_behind() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let report = clean(&torture(&store, &["--seconds", SECONDS]));
    assert!(report["faults"]["hold_lock"].as_u64() > Some(0), "{}", report["faults"]);
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn a_run_on_somebodys_postgresql_ends_only_its_own_sessions() {
    let folder = tempfile::TempDir::with_prefix_in("windlass-torture-", "/tmp").expect("a folder");
    let script = |what: &str| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres");
        let output = Command::new(script).arg(what).arg(folder.path()).output().expect("scripts/postgres runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let url = script("start");
    let output = torture(&url, &["--seconds", SECONDS]);
    script("stop");
    let report = clean(&output);
    assert!(report["faults"]["end_sessions"].as_u64() > Some(0), "{}", report["faults"]);
    assert!(report["unknown_outcomes"].as_u64() > Some(0), "{report}");
    assert_eq!(report["faults"]["kill_server"], Value::Null);
}

#[test]
fn a_store_that_holds_jobs_is_left_alone() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("jobs.db");
    let store = SqliteStore::open(&path).expect("the file opens");
    let job = NewJob::new("mine", Payload::default()).check(&Limits::default(), &Policies::default()).expect("valid");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(store.insert(Submission::new(vec![job]).expect("valid"))).expect("stored");
    let output = torture(&format!("sqlite:{}", path.display()), &["--seconds", "2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("holds jobs"));
    assert_eq!(runtime.block_on(store.observe(None)).map(|seen| seen.totals()).expect("totals").accepted, 1);
}
