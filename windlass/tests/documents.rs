//! The documents that repeat code are printed from it; each must be as committed.
//!
//! To write them anew: `WINDLASS_WRITE_DOCS=1 cargo test -p windlass --features conformance --test documents`.

use std::fmt::Write;
use std::path::Path;

use windlass::store::conformance::rules;
use windlass::{Event, SimpleState, State};

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
