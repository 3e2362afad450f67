//! What we print works: every command of the banner, the README, the tutorial and the guides is run, in order.
//!
//! A fenced block that begins with `sh` is a script. The blocks of one section are one script, run by bash in a folder of
//! its own with a server of its own; a command that fails, fails the test. Words after `sh` say what else is to be known:
//! `background` is typed in another terminal and goes on, `not-run: REASON` cannot be run here. `ID` is the id of the
//! newest job.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Place, Process, until, windlass};

/// A section of a document: its heading, and its blocks.
struct Section {
    name: String,
    blocks: Vec<(String, String)>,
}

fn sections(path: &Path) -> Vec<Section> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = path.file_name().expect("a name").to_string_lossy().into_owned();
    let mut sections = vec![Section { name: file.clone(), blocks: Vec::new() }];
    let mut block: Option<(String, String)> = None;
    for line in text.lines() {
        let section = sections.last_mut().expect("there is one");
        match (&mut block, line.strip_prefix("```")) {
            (Some(_), Some(_)) => section.blocks.extend(block.take()),
            (Some((_, text)), None) => *text += &format!("{line}\n"),
            (None, Some(info)) => block = Some((info.to_owned(), String::new())),
            (None, None) if line.starts_with("## ") => {
                sections.push(Section { name: format!("{file}, {line}"), blocks: Vec::new() });
            }
            (None, None) => {}
        }
    }
    sections
}

/// The script of a section; `None` where there is nothing to run.
fn script(section: &Section) -> Option<String> {
    let mut script = String::new();
    for (info, text) in &section.blocks {
        let mut words = info.splitn(2, ' ');
        if words.next() != Some("sh") {
            continue;
        }
        match words.next() {
            None => script += text,
            // The next command is typed when the first screen is there.
            Some("background") => {
                let commands = text.lines().map(|line| line.split(" #").next().expect("a first part").trim_end());
                script += &commands.map(|command| format!("{command} &\n")).collect::<String>();
                script += "ready\n";
            }
            Some(other) => {
                let reason = other.strip_prefix("not-run: ").unwrap_or_default();
                assert!(!reason.is_empty(), "{}: {info:?} is neither background nor not-run: REASON", section.name);
            }
        }
    }
    let id = regex::Regex::new(r"(?-u:\b)ID(?-u:\b)").expect("a pattern");
    let script = id.replace_all(&script, "$(windlass jobs list -o id --limit 1)").into_owned();
    (!script.is_empty()).then_some(script)
}

/// What every script begins with: a failed command is remembered, and nothing is left behind.
const BEGIN: &str = r#"
trap 'echo "exit $?: $BASH_COMMAND" >> failed' ERR
ready() { for _ in $(seq 600); do windlass stats > /dev/null 2>&1 && break; sleep 0.1; done; sleep 3; }
"#;
const END: &str = r#"
trap - ERR
for left in $(jobs -p); do kill $left 2> /dev/null; done
wait
exit 0
"#;

/// Runs a script with the binary on its path and a port of its own; gives what it printed.
fn run(name: &str, script: &str) -> String {
    let place = Place::new();
    let binary = Path::new(env!("CARGO_BIN_EXE_windlass"));
    let path = std::env::join_paths(
        std::iter::once(binary.parent().expect("a folder").to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").expect("a path"))),
    );
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120", "bash", "-c", &format!("{BEGIN}{script}{END}")]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINDLASS_")) {
        command.env_remove(name);
    }
    command.env("PATH", path.expect("a path")).env("WINDLASS_LISTEN", port.to_string());
    command.env("WINDLASS_SERVER", format!("http://{port}")).current_dir(place.folder.path());
    let output = command.output().expect("bash runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let failed = std::fs::read_to_string(place.path("failed")).unwrap_or_default();
    assert!(failed.is_empty() && output.status.success(), "{name}: {failed}\n{script}\n{said}");
    said
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_readme_works_when_typed() {
    let sections = sections(&repository().join("README.md"));
    let scripts: Vec<_> = sections.iter().filter_map(|section| Some((section, script(section)?))).collect();
    assert!(!scripts.is_empty(), "the README shows no command");
    for (section, script) in scripts {
        run(&section.name, &script);
    }
}

#[test]
fn the_tutorial_works_when_pasted() {
    let mut said = Vec::new();
    for section in sections(&repository().join("docs/tutorial.md")) {
        said.extend(script(&section).map(|script| run(&section.name, &script)));
    }
    let [demo, own] = said.as_slice() else { panic!("two sections of the tutorial have commands") };
    assert!(demo.contains("message_id"), "the demonstration answers what was waited for: {demo}");
    assert!(own.contains(r#"result: {"hello": "Grace"}"#) && own.contains("exit code 8"), "{own}");
}

/// Each guide's section gets a server, and a job to speak of.
#[test]
fn the_guides_work_when_typed() {
    let folder = std::fs::read_dir(repository().join("docs/guides")).expect("the guides");
    let mut ran = 0;
    for path in folder.map(|entry| entry.expect("an entry").path()) {
        for section in sections(&path) {
            let Some(script) = script(&section) else { continue };
            run(&section.name, &format!("windlass run &\nready\nwindlass enqueue email.send\n{script}"));
            ran += 1;
        }
    }
    assert!(ran >= 2, "the guides show commands");
}

/// What a server says to try is done, and comes to its end.
#[test]
fn the_banner_works_when_typed() {
    for arguments in [&["run", "--listen", "0"][..], &["run", "--demo", "--listen", "0"]] {
        let place = Place::new();
        let mut command = windlass();
        command.args(arguments).current_dir(place.folder.path());
        let mut server = Process::start(command);
        let tries = server.started()["try"].clone();
        let tries: Vec<_> = tries.as_array().expect("a list").iter().map(|line| line.as_str().expect("text")).collect();
        let said = run("the banner", &tries.join("\n"));
        assert!(said.contains("COMPLETED"), "{said}");
        server.signal("TERM");
        server.wait();
    }
}

/// The examples of `enqueue --help`, which everybody tries.
#[test]
fn the_examples_of_enqueue_work_when_typed() {
    let help = windlass().args(["enqueue", "--help"]).output().expect("it runs");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let (_, examples) = help.split_once("Examples:\n").expect("examples");
    let commands = examples.lines().map(|line| line.trim().split("   ").next().expect("a first part"));
    let commands: Vec<_> = commands.filter(|line| line.starts_with("windlass ")).collect();
    assert!(commands.len() >= 3, "{examples}");
    let job = r#"echo '{"type":"email.send","payload":{}}' > jobs.jsonl"#;
    run(
        "enqueue --help",
        &format!("windlass run &\nready\nwindlass worker --exec cat &\n{job}\n{}", commands.join("\n")),
    );
}

/// A job that no worker can run: a caller that waits is told at once what to look for, and after two seconds why it does not run.
#[test]
fn whoever_waits_is_told_why() {
    let place = Place::new();
    place.start(&["store", "migrate"]).wait();
    let waiting = place.start(&["enqueue", "greet", "--wait"]);
    until("the id is said", || waiting.err().contains("is enqueued; waiting"));
    until("the reason is said", || waiting.err().contains("No live worker serves queue default."));
    assert!(waiting.err().contains("→ windlass worker --queue default"), "{}", waiting.err());
}

/// Commands in the middle of a sentence are at least ones that exist.
#[test]
fn every_command_in_the_documents_can_be_read() {
    let mut pages = vec![repository().join("README.md"), repository().join("deploy/README.md")];
    for folder in ["docs", "docs/guides"] {
        let entries = std::fs::read_dir(repository().join(folder)).expect("documents");
        pages.extend(
            entries.map(|entry| entry.expect("an entry").path()).filter(|path| {
                path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("cli.md")
            }),
        );
    }
    let span = regex::Regex::new(r"`windlass ([a-z][^`\[]*)`").expect("a pattern");
    let (mut problems, mut read) = (Vec::new(), 0);
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a document").replace('\n', " ");
        for found in span.captures_iter(&text) {
            let words = found[1].split(' ').filter(|word| !word.is_empty() && *word != "…").map(|word| match word {
                "ID" => "00000000-0000-4000-8000-000000000000".to_owned(),
                word => word.trim_matches(['\'', '"']).to_owned(),
            });
            let words = std::iter::once("windlass".to_owned()).chain(words);
            read += 1;
            use clap::error::ErrorKind::{
                DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand,
            };
            match windlass_server::cli::check(words.map(Into::into)).map_err(|error| error.kind()) {
                // What a sentence is about need not be whole.
                Ok(())
                | Err(
                    DisplayHelpOnMissingArgumentOrSubcommand
                    | DisplayHelp
                    | MissingRequiredArgument
                    | MissingSubcommand,
                ) => {}
                Err(kind) => problems.push(format!("{}: windlass {}: {kind}", page.display(), &found[1])),
            }
        }
    }
    assert!(read > 20 && problems.is_empty(), "{}", problems.join("\n"));
}
