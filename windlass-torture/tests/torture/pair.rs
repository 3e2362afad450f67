//! Failovers that go as they should not, which the checker must notice.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_failover_that_loses_what_was_acknowledged_is_reported_as_lost() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = tempfile::TempDir::with_prefix_in("windlass-torture-", "/tmp").expect("a folder");
    let script = |what: &str| {
        let output = Command::new(top.join("scripts/postgres")).arg(what).arg(folder.path()).output();
        let output = output.expect("scripts/postgres runs");
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let url = script("pair");
    let history = tempfile::TempDir::new().expect("a folder");
    let lose = format!("scripts/postgres lose {}", folder.path().display());
    let output = Command::new(env!("CARGO_BIN_EXE_windlass-torture"))
        .args(["--store", &url, "--seconds", "15", "-o", "json", "--fault-command", &lose, "--history"])
        .arg(history.path().join("run"))
        .current_dir(&top)
        .output();
    script("stop");
    let output = output.expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    println!("{report}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(report["violations"]["lost"].as_u64() > Some(0), "{report}");
}
