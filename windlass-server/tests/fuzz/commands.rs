//! The binary itself on a store: command lines, payloads, files and standard input of any kind. It ends with one of its
//! own numbers, never with a panic's.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_server::cli;

use crate::cases;
use crate::draw::Draw;
use crate::schema::Known;
use crate::texts;

/// What the page of commands promises.
const ENDS: [i32; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 130];
/// What would not end by itself, or take long.
const ENDLESS: [&str; 7] = ["run", "worker", "top", "bench", "watch", "wait", "demo-worker"];

struct Place {
    folder: TempDir,
    known: Known,
}

impl Place {
    fn new() -> Self {
        Place { folder: tempfile::tempdir().expect("a folder"), known: Known::default() }
    }

    /// Runs the binary; says how it ended, in words.
    fn run(&self, words: &[OsString], input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINDLASS_")) {
            command.env_remove(name);
        }
        let store = format!("sqlite:{}", self.folder.path().join("jobs.db").display());
        command.args(words).env("WINDLASS_STORE", store).current_dir(self.folder.path());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = piped.expect("it starts");
        // Most commands do not read it.
        let _ = child.stdin.take().expect("piped").write_all(input);
        let ended = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr);
        let code = ended.status.code();
        assert!(code.is_some_and(|code| ENDS.contains(&code)), "{words:?} ended with {code:?}: {said}");
        assert!(!said.contains("panicked"), "{words:?}: {said}");
        assert!(code == Some(0) || !said.trim().is_empty(), "{words:?} ended with {code:?} and said nothing");
        ended
    }

    fn learn(&mut self, ended: &Output) {
        for line in String::from_utf8_lossy(&ended.stdout).lines().take(5) {
            self.known.jobs.push(line.trim().to_owned());
        }
    }
}

fn os(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

#[test]
fn no_command_line_makes_the_binary_panic() {
    let mut command = cli::command();
    command.build();
    let mut place = Place::new();
    for job in ["email.send", "t"] {
        let ended = place.run(&os(&["enqueue", job, "-o", "id"]), b"");
        place.learn(&ended);
    }
    place.run(&os(&["schedules", "create", "a", "t", "--every", "1h"]), b"");
    cases(60, |seed| {
        let mut draw = Draw::new(seed);
        let mut words = texts::words(&command, &mut draw);
        // Neither another store, nor a server that somebody has, nor what goes on for ever.
        let elsewhere = |word: &OsString| {
            let word = word.to_string_lossy();
            ENDLESS.contains(&word.as_ref()) || ["--s", "-s"].iter().any(|flag| word.starts_with(flag))
        };
        words.retain(|word| !elsewhere(word));
        if draw.once_in(2) {
            words.push(place.known.id(&mut draw).replace('\0', "").into());
        }
        words.insert(0, format!("--store=sqlite:{}", place.folder.path().join("jobs.db").display()).into());
        place.run(&words, &draw.bytes(50));
    });
}

#[test]
fn no_payload_makes_the_binary_panic() {
    let place = Place::new();
    std::fs::write(place.folder.path().join("file"), "{\"a\":1}").expect("written");
    cases(40, |seed| {
        let mut draw = Draw::new(seed);
        let payload = match draw.below(6) {
            0 => "-".to_owned(),
            1 => format!("@{}", draw.pick(&["file", "missing", ".", "", "/dev/null"])),
            2 => draw.json(4).to_string(),
            3 => "[".repeat(draw.below(3000)),
            _ => draw.text(),
        };
        let mut words = os(&["enqueue", "t", &format!("--payload={}", payload.replace('\0', ""))]);
        if draw.once_in(3) {
            words.push(format!("--content-type={}", draw.text().replace('\0', "")).into());
        }
        let mut input = draw.json(3).to_string().into_bytes();
        if draw.once_in(2) {
            draw.spoil(&mut input);
        }
        place.run(&words, &input);
    });
}

#[test]
fn no_file_makes_the_binary_panic() {
    let place = Place::new();
    let flow = json!({ "name": "w", "jobs": [
        { "type": "t", "ref": "a", "payload": 1 }, { "type": "t", "depends_on": [{ "ref": "a" }] },
    ]});
    cases(40, |seed| {
        let mut draw = Draw::new(seed);
        let (words, mut value): (_, Value) = match draw.once_in(2) {
            true => (os(&["workflows", "start", "-f", "-"]), flow.clone()),
            false => (os(&["enqueue", "--file", "-", "--batch", "2"]), flow["jobs"][0].clone()),
        };
        (0..draw.below(4)).for_each(|_| draw.bend(&mut value));
        let mut input = value.to_string().into_bytes();
        if draw.once_in(2) {
            input.push(b'\n');
            input.extend(input.clone());
            draw.spoil(&mut input);
        }
        place.run(&words, &input);
    });
}
