//! The kept inputs of the fuzz targets, through the functions that they were made for: those with a name were chosen by hand or
//! found something, the others are what `scripts/fuzz keep` left of its runs.

use std::fs;
use std::path::{Path, PathBuf};

// Public for the binaries, which are another package.
#[allow(unreachable_pub, reason = "as above")]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

/// Runs the inputs of a target; a panic names the file.
fn replay(name: &str) {
    let (_, target) = targets::TARGETS.into_iter().find(|(known, _)| *known == name).expect("a target");
    let folder = corpus().join(name);
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    assert!(files.len() >= 3, "{} holds {} inputs", folder.display(), files.len());
    for file in files {
        println!("{}", file.display());
        target(&fs::read(&file).expect("an input"));
    }
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn every_target_is_replayed_and_run() {
            let replayed = [$(stringify!($name)),*];
            let known: Vec<&str> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(replayed.as_slice(), known);
            let script = corpus().join("../../scripts/fuzz");
            let listed = std::process::Command::new(script).arg("list").output().expect("scripts/fuzz runs");
            let listed = String::from_utf8(listed.stdout).expect("names");
            assert_eq!(listed.lines().collect::<Vec<_>>(), known);
        }
    };
}

replays! { body config cron envelope filter notification options row url }
