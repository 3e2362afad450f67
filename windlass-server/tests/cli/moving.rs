//! Moving a store into another one.

use crate::support::Bench;

#[test]
fn a_store_is_moved_and_refuses_from_then_on() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[&[
        "store",
        "move",
        "--from",
        "http://127.0.0.1:7654",
        "--to",
        "sqlite:new.db"
    ]]));
    let from = bench.url();
    let between = |more: &[&str]| {
        let ends = ["store", "move", "--from", from.as_str(), "--to", "sqlite:new.db"];
        bench.run(&[ends.as_slice(), more].concat())
    };
    let listed = bench.run(&["jobs", "list", "-o", "json"]);
    let nothing = between(&["--undo"]);
    assert_eq!(nothing.code, 4, "{nothing:?}");
    let moved = between(&[]);
    assert_eq!(moved.code, 0, "{moved:?}");
    for words in ["source: 13 jobs", "target: 13 jobs", "nobody could write for", "counts and checksums agree"] {
        assert!(moved.stderr.contains(words), "{words}: {moved:?}");
    }
    let here = bench.run(&["jobs", "list", "-o", "json", "--store", "sqlite:new.db"]);
    assert_eq!(listed.stdout, here.stdout);
    assert_eq!(bench.run(&["store", "check", "--store", "sqlite:new.db"]).code, 0);
    let refused = bench.run(&["enqueue", "t"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("this store was moved to sqlite:/"), "{refused:?}");
    assert!(refused.stderr.contains("→ name that store with --store"), "{refused:?}");
    let again = between(&[]);
    assert!(again.code == 4 && again.stderr.contains("was moved to"), "{again:?}");
    let undone = between(&["--undo"]);
    assert!(undone.code == 4 && undone.stderr.contains("was moved to"), "{undone:?}");
    let resumed = between(&["--resume"]);
    assert!(resumed.code == 0 && resumed.stderr.contains("nothing is compared"), "{resumed:?}");
}
