//! The readers of texts, asked in process and therefore often: command lines, configuration, cron, times.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use clap::Command;
use windlass::Timestamp;
use windlass::schedule::Cron;
use windlass_server::cli;
use windlass_server::serve::config::{Given, Settings};
use windlass_server::wire::{Limit, Span};

use crate::cases;
use crate::draw::Draw;

/// A command line: some command, some of its own flags and some of others', with values of any kind.
pub(crate) fn words(command: &Command, draw: &mut Draw) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut here = command;
    while here.get_subcommands().next().is_some() && !draw.once_in(30) {
        let subs: Vec<_> = here.get_subcommands().collect();
        here = subs[draw.below(subs.len())];
        words.push(here.get_name().into());
    }
    let arguments: Vec<_> = here.get_arguments().chain(command.get_arguments()).collect();
    for _ in 0..draw.below(6) {
        let argument = arguments[draw.below(arguments.len())];
        let value = value(draw);
        match argument.get_long() {
            Some(long) if draw.once_in(2) => {
                let mut word = OsString::from(format!("--{long}="));
                word.push(value);
                words.push(word);
            }
            Some(long) => words.extend([format!("--{long}").into(), value]),
            None => words.push(value),
        }
    }
    words
}

/// A value: text as a rule, now and then bytes that are none. No argument of a process holds a NUL.
fn value(draw: &mut Draw) -> OsString {
    let mut bytes = if draw.once_in(15) { draw.bytes(20) } else { draw.text().into_bytes() };
    bytes.retain(|byte| *byte != 0);
    OsString::from_vec(bytes)
}

#[test]
fn no_command_line_upsets_its_reader() {
    let mut command = cli::command();
    command.build();
    let mut read = 0;
    cases(3000, |seed| {
        let mut draw = Draw::new(seed);
        let words = words(&command, &mut draw);
        read += u64::from(cli::check([OsString::from("windlass")].into_iter().chain(words)).is_ok());
    });
    println!("{read} could be read");
}

#[test]
fn no_configuration_upsets_its_reader() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("windlass.toml");
    cases(1000, |seed| {
        let mut draw = Draw::new(seed);
        let text = bent_toml(example, &mut draw);
        std::fs::write(&path, &text).expect("written");
        let given = Given { file: Some(path.clone()), ..Given::default() };
        if let Err(error) = Settings::new(given) {
            let words = format!("{error:#}");
            assert!(!words.contains("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "a secret is told: {words}");
        }
    });
}

/// The example with some values replaced, some lines doubled or left out, some bytes spoilt.
fn bent_toml(example: &str, draw: &mut Draw) -> Vec<u8> {
    let mut lines: Vec<String> = example.lines().map(str::to_owned).collect();
    for _ in 0..=draw.below(4) {
        let at = draw.below(lines.len());
        match (lines[at].split_once(" = "), draw.below(6)) {
            (_, 0) => drop(lines.remove(at)),
            (_, 1) => lines.insert(at, lines[at].clone()),
            (_, 2) => lines[at] = draw.text(),
            // Of another kind, and otherwise as it was: what is secret must not be told with what is wrong.
            (Some((key, value)), 5) if value.starts_with('[') => {
                lines[at] = format!("{key} = {}", value.trim_matches(['[', ']']));
            }
            (Some((key, _)), 3) => lines[at] = format!("{key} = {}", draw.json(2)),
            (Some((key, _)), _) => lines[at] = format!("{key} = {:?}", draw.text()),
            (None, _) => {}
        }
    }
    let mut bytes = lines.join("\n").into_bytes();
    if draw.once_in(3) {
        draw.spoil(&mut bytes);
    }
    bytes
}

#[test]
fn no_cron_expression_upsets_its_reader() {
    let mut read = 0;
    let mut all = 0;
    cases(4000, |seed| {
        all += 1;
        let mut draw = Draw::new(seed);
        let zone = if draw.once_in(4) { draw.text() } else { draw.pick(&["UTC", "Europe/Berlin", "Asia/Gaza"]).into() };
        let expression = if draw.once_in(8) { draw.text() } else { draw.cron() };
        let Ok(cron) = Cron::new(&expression, &zone) else { return };
        read += 1;
        let again = Cron::new(cron.expression(), cron.zone()).expect("what is printed can be read");
        let mut latest = Timestamp::from_seconds(draw.below(4_000_000_000) as i64);
        for _ in 0..5 {
            let next = cron.next_after(latest);
            assert_eq!(next, again.next_after(latest), "{expression:?} {zone:?}");
            let Some(next) = next else { break };
            assert!(next > latest, "{expression:?} {zone:?}");
            latest = next;
        }
    });
    assert!(all < 100 || read * 50 > all, "only {read} of {all} could be read");
}

#[test]
fn what_is_read_of_times_is_printed_so_that_it_is_read_again() {
    cases(5000, |seed| {
        let mut draw = Draw::new(seed);
        let text = draw.text();
        if let Ok(span) = text.parse::<Span>() {
            assert_eq!(span.to_string().parse::<Span>().ok(), Some(span), "{text:?}");
        }
        if let Ok(limit) = text.parse::<Limit>() {
            assert_eq!(limit.to_string().parse::<Limit>().ok(), Some(limit), "{text:?}");
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            assert_eq!(time.to_string().parse::<Timestamp>().ok(), Some(time), "{text:?}");
        }
    });
}
