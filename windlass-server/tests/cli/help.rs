//! The help of every command: it fits on a screen, shows an example, and `docs/cli.md` is printed from it.

use std::path::Path;

use clap::Command;

const LINES_MAX: usize = 50;
const COLUMNS_MAX: usize = 100;

/// Every command that can be typed, with its whole name, in the order of the help.
fn commands() -> Vec<(String, Command)> {
    fn collect(name: &str, command: &Command, found: &mut Vec<(String, Command)>) {
        found.push((name.to_owned(), command.clone()));
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
            collect(&format!("{name} {}", sub.get_name()), sub, found);
        }
    }
    let mut whole = windlass_server::cli::command().term_width(COLUMNS_MAX);
    whole.build();
    let mut found = Vec::new();
    collect("windlass", &whole, &mut found);
    found
}

fn help(command: &Command) -> String {
    let text = command.clone().term_width(COLUMNS_MAX).render_help().to_string();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[test]
fn the_help_of_every_command_fits_on_a_screen() {
    let mut breaches = Vec::new();
    for (name, command) in commands() {
        let text = help(&command);
        let (lines, columns) = (text.lines().count(), text.lines().map(|line| line.chars().count()).max().unwrap_or(0));
        if lines > LINES_MAX || columns > COLUMNS_MAX {
            breaches.push(format!("{name}: {lines} lines, {columns} columns"));
        }
    }
    assert!(breaches.is_empty(), "at most {LINES_MAX} lines of {COLUMNS_MAX} columns:\n{}", breaches.join("\n"));
}

/// A command that nobody looked at could say anything.
#[test]
fn every_command_has_a_snapshot() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/snapshots");
    let mut typed = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the snapshots") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a snapshot");
        typed.extend(text.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned));
    }
    let all = commands();
    let is_group = |name: &str| all.iter().any(|(other, _)| other.starts_with(&format!("{name} ")));
    let without = all.iter().map(|(name, _)| name.as_str()).filter(|name| !is_group(name)).filter(|name| {
        !typed.iter().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')))
    });
    assert_eq!(without.collect::<Vec<_>>(), Vec::<&str>::new(), "add what they print to a test in tests/cli");
}

#[test]
fn every_command_says_what_it_is_for() {
    for (name, command) in commands() {
        let about = command.get_about().unwrap_or_else(|| panic!("{name} does not say what it is for")).to_string();
        assert!(!about.is_empty() && about.chars().count() <= 80, "{name}: {about}");
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{name} {} is not explained", argument.get_id());
        }
    }
}

const PREFACE: &str = "\
# The command line

Every command as `--help` prints it. This page is printed from the binary by `windlass-server/tests/cli/help.rs`
(`WINDLASS_WRITE_DOCS=1 cargo test -p windlass-server --test cli help`).

- Data goes to standard output, everything else to standard error. `-o table|wide|json|jsonl|id` chooses the form; JSON
  is what the HTTP API gives. Times are short in tables (`3m ago`) and whole elsewhere (RFC 3339, UTC).
- Colours and progress bars are for terminals only; `NO_COLOR` is honoured.
- Lists show 50 rows unless `--limit` says otherwise, say that there are more, and go on with `--cursor`.
- Acts on many jobs count first and ask. Without a terminal they need `--yes`; `--dry-run` only counts. Ctrl-C stops
  between two steps and says how far it got.
- Durations are `250ms`, `90s`, `5m`, `1h30m`, `3d`; times are `2026-11-01T12:00:00Z`.
- No command but `store migrate` changes the tables of a store that is there, and only commands that put something in
  make a store that is not.

| exit code | means |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | what was typed cannot be meant |
| 3 | not found |
| 4 | conflict, or a state that does not allow it |
| 5 | not allowed |
| 6 | unreachable |
| 7 | a wait timed out |
| 8 | waited for a job that ended badly |
| 130 | interrupted |
";

#[test]
fn the_page_of_commands_is_printed_from_the_help() {
    let mut page = PREFACE.to_owned();
    for (name, command) in commands() {
        let level = if name.split(' ').count() > 2 { "###" } else { "##" };
        page.push_str(&format!("\n{level} `{name}`\n\n```text\n{}\n```\n", help(&command).trim_end()));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    if std::env::var_os("WINDLASS_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(page.lines()).find(|(is, should)| is != should);
    assert!(committed == page, "docs/cli.md is not what --help says; print it anew. First difference: {differs:#?}");
}
