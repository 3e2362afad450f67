//! What our dependencies are: held against `deny.toml` without a network, by what cargo has resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rules() -> toml::Table {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    text.parse().expect("deny.toml is TOML")
}

fn list<'a>(rules: &'a toml::Table, table: &str, key: &str) -> &'a [toml::Value] {
    rules[table][key].as_array().unwrap_or_else(|| panic!("{table}.{key} is a list"))
}

/// The packages that cargo has resolved for the platform that is shipped.
fn packages(rules: &toml::Table) -> Vec<Value> {
    let target = list(rules, "graph", "targets")[0].as_str().expect("a target").to_owned();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(["metadata", "--format-version", "1", "--all-features", "--locked", "--offline"]);
    let out = cargo.args(["--filter-platform", &target]).output().expect("cargo runs");
    assert!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let mut metadata: Value = serde_json::from_slice(&out.stdout).expect("cargo writes JSON");
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    let resolved: BTreeSet<String> = nodes.iter().map(|node| text(node, "id")).collect();
    let packages = metadata["packages"].as_array_mut().expect("packages");
    std::mem::take(packages).into_iter().filter(|package| resolved.contains(&text(package, "id"))).collect()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn named(package: &Value) -> String {
    format!("{} {}", text(package, "name"), text(package, "version"))
}

#[test]
fn every_dependency_has_a_licence_that_may_be_shipped() {
    let rules = rules();
    let allowed: Vec<&str> = list(&rules, "licenses", "allow").iter().filter_map(toml::Value::as_str).collect();
    let packages = packages(&rules);
    assert!(packages.len() > 100, "only {} packages were looked at", packages.len());
    let bad: Vec<String> = packages
        .iter()
        .filter(|package| !is_allowed(&text(package, "license"), &allowed))
        .map(|package| format!("{}: {:?}", named(package), text(package, "license")))
        .collect();
    assert!(bad.is_empty(), "licences that deny.toml does not allow: {bad:#?}");
}

#[test]
fn every_dependency_comes_from_the_registry_and_none_is_banned() {
    let rules = rules();
    let registries: Vec<String> = list(&rules, "sources", "allow-registry")
        .iter()
        .filter_map(|url| Some(format!("registry+{}", url.as_str()?)))
        .collect();
    let denied: Vec<&str> = list(&rules, "bans", "deny").iter().filter_map(|entry| entry["crate"].as_str()).collect();
    for package in packages(&rules) {
        let source = text(&package, "source");
        let own = source.is_empty() && text(&package, "name").starts_with("windlass");
        assert!(own || registries.contains(&source), "{} comes from {source:?}", named(&package));
        assert!(!denied.contains(&text(&package, "name").as_str()), "{} is banned by deny.toml", named(&package));
    }
}

#[test]
fn what_comes_in_two_versions_is_known() {
    let rules = rules();
    let known: BTreeSet<&str> =
        list(&rules, "bans", "skip").iter().filter_map(|entry| entry["crate"].as_str()?.split('@').next()).collect();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages(&rules) {
        versions.entry(text(&package, "name")).or_default().insert(text(&package, "version"));
    }
    let twice: BTreeSet<&str> =
        versions.iter().filter(|(_, versions)| versions.len() > 1).map(|(name, _)| name.as_str()).collect();
    let new: Vec<_> = twice.difference(&known).collect();
    assert!(new.is_empty(), "these come in two versions now; deny.toml should say why, or they should not: {new:?}");
    let gone: Vec<_> = known.difference(&twice).collect();
    assert!(gone.is_empty(), "deny.toml skips what comes in one version only: {gone:?}");
}

/// Numbers of a version, for comparing: `1.91` is `1.91.0`.
fn numbers(version: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = version.split('.').map(|number| number.parse().expect("a number")).collect();
    numbers.resize(3, 0);
    numbers
}

/// What a compiler of the promised age could not even begin to compile. Our own code is looked at by the lint
/// `incompatible_msrv` and compiled with that compiler by scripts/release-check.
#[test]
fn no_dependency_needs_a_newer_compiler_than_is_promised() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let promised = manifest["workspace"]["package"]["rust-version"].as_str().expect("a version").to_owned();
    let newer = packages(&rules())
        .into_iter()
        .filter(|package| package["rust_version"].as_str().is_some_and(|needed| numbers(needed) > numbers(&promised)));
    // The feature sqlx-0_9 asks for what sqlx 0.9 does; README says so.
    let unexpected: Vec<String> = newer
        .map(|package| (named(&package), text(&package, "rust_version")))
        .filter(|(name, needed)| !(name.starts_with("sqlx") && name.ends_with(" 0.9.0") && needed == "1.94.0"))
        .map(|(name, needed)| format!("{name} needs {needed}"))
        .collect();
    assert!(unexpected.is_empty(), "Rust {promised} is promised, but {unexpected:?}");
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    assert!(readme.contains(&format!("Rust {promised} or newer")) && readme.contains("`sqlx-0_9` needs 1.94"));
    let badge = std::fs::read_to_string(root().join("docs/pictures/badge-rust.svg")).expect("the badge");
    assert!(badge.contains(&format!("rust: {promised}+")), "the badge of the README says another version");
}

#[test]
fn every_crate_carries_the_licences_themselves() {
    let crates = ["windlass", "windlass-server", "windlass-torture", "windlass-sqlx-sqlite"];
    for (crate_name, file) in crates.iter().flat_map(|name| ["LICENSE-MIT", "LICENSE-APACHE"].map(|file| (name, file)))
    {
        let read = |path: std::path::PathBuf| std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{path:?}"));
        let whole = read(root().join(file));
        assert!(whole.len() > 1000, "{file} is the text of a licence");
        assert_eq!(read(root().join(crate_name).join(file)), whole, "{crate_name}/{file}");
    }
}

/// Whether a licence expression can be met with these licences. `/` is an older way to write OR.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (met, rest) = either(&words, allowed);
    met && rest.is_empty() && !words.is_empty()
}

fn either<'w>(words: &'w [&'w str], allowed: &[&str]) -> (bool, &'w [&'w str]) {
    let (mut met, mut rest) = both(words, allowed);
    while let ["OR", after @ ..] = rest {
        let (also, then) = both(after, allowed);
        (met, rest) = (met || also, then);
    }
    (met, rest)
}

fn both<'w>(words: &'w [&'w str], allowed: &[&str]) -> (bool, &'w [&'w str]) {
    let (mut met, mut rest) = one(words, allowed);
    while let ["AND", after @ ..] = rest {
        let (also, then) = one(after, allowed);
        (met, rest) = (met && also, then);
    }
    (met, rest)
}

fn one<'w>(words: &'w [&'w str], allowed: &[&str]) -> (bool, &'w [&'w str]) {
    match words {
        ["(", inside @ ..] => match either(inside, allowed) {
            (met, [")", rest @ ..]) => (met, rest),
            (_, rest) => (false, rest),
        },
        [licence, "WITH", exception, rest @ ..] => {
            (allowed.contains(&format!("{licence} WITH {exception}").as_str()), rest)
        }
        [licence, rest @ ..] => (allowed.contains(licence), rest),
        [] => (false, &[]),
    }
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"];
    for good in
        ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(GPL-3.0 OR MIT) AND Apache-2.0", "Apache-2.0 WITH LLVM-exception"]
    {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT WITH GPL-exception", "(MIT", "MIT)", "MIT MIT"] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

/// The threat model names the test that holds each answer; one that was renamed or removed must be named anew.
#[test]
fn every_test_that_the_threat_model_names_is_there() {
    let page = std::fs::read_to_string(root().join("docs/threat-model.md")).expect("the page");
    let rows: Vec<&str> = page.lines().filter(|line| is_weakness(line)).collect();
    assert_eq!(rows.len(), 43, "every weakness of the trial has a row");
    let mut sources = String::new();
    for folder in ["windlass/src", "windlass/tests", "windlass-server/src", "windlass-server/tests"] {
        read_all(&root().join(folder), &mut sources);
    }
    for row in rows {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let names: Vec<&str> = last.split('`').skip(1).step_by(2).filter(|name| name.contains('_')).collect();
        assert!(!names.is_empty(), "no test is named: {row}");
        for name in names {
            let written = format!("fn {}", name.trim_end_matches('*'));
            assert!(sources.contains(&written), "{name} is not there: {row}");
        }
    }
}

/// Whether a line begins with `| H1 |` or the like.
fn is_weakness(line: &str) -> bool {
    let first = line.strip_prefix("| ").and_then(|rest| rest.split(" |").next()).unwrap_or_default();
    let (letter, number) = first.split_at_checked(1).unwrap_or_default();
    ["H", "M", "L"].contains(&letter) && number.parse::<u8>().is_ok()
}

fn read_all(folder: &std::path::Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            read_all(&entry, text);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&entry).expect("a source"));
        }
    }
}
