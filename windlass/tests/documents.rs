//! The documents that repeat code are printed from it; each must be as committed.
//!
//! To write them anew: `WINDLASS_WRITE_DOCS=1 cargo test -p windlass --features conformance --test documents`.

use std::fmt::Write;
use std::path::Path;

use windlass::State;
use windlass::job::{Event, SimpleState};
use windlass::store::conformance::rules;

/// Compares a document with what it should be, or writes it.
fn printed(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var_os("WINDLASS_WRITE_DOCS").is_some() {
        std::fs::write(&path, text).expect("the document can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(text.lines()).find(|(is, should)| is != should);
    assert!(
        committed == text,
        "docs/{name} is not what the code says; print it with `WINDLASS_WRITE_DOCS=1 cargo test -p windlass \
         --features conformance --test documents`. First difference (is, should be): {differs:#?}"
    );
}

#[test]
fn the_page_of_rules_and_cases_is_printed_from_the_suite() {
    printed("conformance.md", &rules::page());
}

#[test]
fn every_rule_that_a_store_can_break_has_a_case() {
    assert!(rules::gaps().is_empty(), "no case holds {}", rules::gaps().join(", "));
}

#[test]
fn every_case_names_a_rule_and_no_two_share_a_name() {
    assert!(rules::strays().is_empty(), "no such rule in the contract: {}", rules::strays().join(", "));
    let mut names: Vec<_> = windlass::store::conformance::cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert!(twice.is_empty(), "said twice: {}", twice.join(", "));
}

#[test]
fn the_page_of_states_is_printed_from_the_state_machine() {
    printed("states.md", &states());
}

const STATES_PREFACE: &str = "\
# States

A job is in exactly one of nine states. One function, `State::after`, decides every transition; stores apply its
answers. This page is printed from it by `windlass/tests/documents.rs`.

COMPLETED, FAILED, DEAD_LETTER and CANCELLED are terminal. FAILED and DEAD_LETTER together are the dead-letter queue.

| # | from | to | trigger |
|---|---|---|---|
| S1 | – | PENDING | enqueue with unmet dependencies |
| S1 | – | DELAYED | enqueue with a future run_at |
| S1 | – | SCHEDULED | enqueue with neither |
";

fn states() -> String {
    let mut page = STATES_PREFACE.to_owned();
    for event in Event::ALL {
        for to in State::ALL {
            let from: Vec<_> = State::ALL.into_iter().filter(|from| from.after(event) == Ok(to)).collect();
            if !from.is_empty() {
                writeln!(page, "| {} | {} | {to} | {} |", event.rule(), names(&from), event.trigger()).expect("text");
            }
        }
    }
    page.push_str("\nNo other transition exists (S17).\n\n## Four states\n\n");
    page.push_str("For tools that want no more than four (S18):\n\n| view | states |\n|---|---|\n");
    for simple in [SimpleState::Ready, SimpleState::InFlight, SimpleState::Succeeded, SimpleState::Failed] {
        let states: Vec<_> = State::ALL.into_iter().filter(|state| state.simple() == simple).collect();
        writeln!(page, "| {simple:?} | {} |", names(&states)).expect("text");
    }
    page
}

fn names(states: &[State]) -> String {
    states.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The five parts of what was asked for, each with how many statements it has.
const PARTS: [(&str, usize); 5] = [
    ("Queue semantics and invariants", 107),
    ("The job", 134),
    ("Architecture", 50),
    ("Semantics", 40),
    ("Task contracts", 46),
];
/// How many tests of a rule are named in a line; the page of rules has the rest.
const NAMED_MAX: usize = 4;

const TRACEABILITY_PREFACE: &str = "\
# Traceability

Windlass unites what five documents ask of a job queue. These are their statements, in our words, each with the rules of
[semantics.md](semantics.md) that answer it and the tests that hold these rules; [conformance.md](conformance.md) has all tests of a
rule. Where statements disagree, the rule is the reconciled answer, and each holds by default or under a named setting.

This page is printed by `windlass/tests/documents.rs` from `docs/statements.tsv`; a statement that no test and no document holds
fails there.
";

#[test]
fn the_page_of_statements_names_what_holds_each_of_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tests = tests_below(&root);
    let table = std::fs::read_to_string(root.join("docs/statements.tsv")).expect("the statements");
    let mut statements = table.lines().filter(|line| !line.starts_with('#'));
    let (mut page, mut unlinked) = (TRACEABILITY_PREFACE.to_owned(), Vec::new());
    for (part, (name, count)) in PARTS.into_iter().enumerate() {
        write!(page, "\n## {name}\n\n| no. | says | rules | held by |\n|---|---|---|---|\n").expect("text");
        for number in 1..=count {
            let line = statements.next().unwrap_or_else(|| panic!("S{part}.{number} is missing"));
            let [id, links, says] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("three columns: {line}") };
            assert_eq!(id, format!("S{part}.{number}"), "in order, none left out");
            let (rules, held) = held_by(links, &tests, &root);
            if held.is_empty() {
                unlinked.push(id);
            }
            writeln!(page, "| {id} | {says} | {} | {} |", rules.join(", "), held.join("<br>")).expect("text");
        }
    }
    assert_eq!(statements.next(), None, "more than were asked for");
    assert!(unlinked.is_empty(), "held by nothing: {}", unlinked.join(", "));
    printed("traceability.md", &page);
}

/// The rules among what a statement names, and the tests and documents that hold it.
fn held_by<'a>(links: &'a str, tests: &[String], root: &Path) -> (Vec<&'a str>, Vec<String>) {
    let known: Vec<&str> =
        rules::CHAPTERS.iter().flat_map(|chapter| chapter.rules.iter().map(|rule| rule.name)).collect();
    let (mut rules, mut held) = (Vec::new(), Vec::new());
    for link in links.split(' ') {
        if let Some(test) = link.strip_prefix('@') {
            assert!(tests.iter().any(|known| known == test), "there is no test {test}");
            held.push(format!("`{test}`"));
        } else if link.ends_with(".md") {
            assert!(root.join(link).exists(), "there is no {link}");
            let path = link.strip_prefix("docs/").map_or_else(|| format!("../{link}"), str::to_owned);
            held.push(format!("[{link}]({path})"));
        } else {
            assert!(known.contains(&link), "there is no rule {link}");
            rules.push(link);
            let prefix = format!("{}_", link.to_ascii_lowercase());
            let cases: Vec<_> = tests.iter().filter(|test| test.starts_with(&prefix)).collect();
            held.extend(cases.iter().take(NAMED_MAX).map(|test| format!("`{test}`")));
            if cases.len() > NAMED_MAX {
                held.push(format!("and {} more of {link}", cases.len() - NAMED_MAX));
            }
        }
    }
    (rules, held)
}

/// The names of all functions in the library's sources and tests, and in the server's tests, sorted. The low weaknesses of the
/// threat model are numbered as the rules of leases are: their tests hold no rule.
fn tests_below(root: &Path) -> Vec<String> {
    let threats = std::fs::read_to_string(root.join("docs/threat-model.md")).expect("the threat model");
    let of_a_weakness = |name: &str| name.starts_with('l') && threats.contains(&format!("`{name}`"));
    let mut folders: Vec<_> =
        ["windlass/src", "windlass/tests", "windlass-server/tests"].map(|name| root.join(name)).into();
    let mut names = std::collections::BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(path).expect("a source");
                let found = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
                let named = found.filter(|name| name.len() > 8 && name.contains('_') && !of_a_weakness(name));
                names.extend(named.map(str::to_owned));
            }
        }
    }
    names.into_iter().collect()
}
