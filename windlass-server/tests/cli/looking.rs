//! Commands that only look.

use crate::support::Bench;

#[test]
fn jobs_are_listed_in_every_form() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "list"],
        &["jobs", "list", "-o", "wide", "--state", "running,retrying,cancelled"],
        &["jobs", "list", "-o", "id", "--queue", "mail"],
        &["jobs", "list", "--limit", "2"],
        &["jobs", "list", "--tag", "customer=42", "--type", "email.send"],
        &["jobs", "list", "--code", "nothing"],
        &["jobs", "list", "--older-than", "1d", "--state", "dead_letter", "-o", "jsonl"],
        &["jobs", "list", "--state", "failed", "-o", "json", "--limit", "1"],
    ]));
}

#[test]
fn a_list_goes_on_where_it_stopped() {
    let bench = Bench::seeded();
    let all = bench.run(&["jobs", "list", "-o", "id"]);
    let first = bench.run(&["jobs", "list", "-o", "json", "--limit", "3"]).json();
    let cursor = first["next_cursor"].as_str().expect("there is more");
    let rest = bench.run(&["jobs", "list", "-o", "id", "--cursor", cursor]);
    let ids: Vec<_> =
        first["items"].as_array().expect("a list").iter().map(|job| job["id"].as_str().expect("an id")).collect();
    assert_eq!(all.stdout, format!("{}\n{}", ids.join("\n"), rest.stdout));
}

#[test]
fn a_job_is_shown_in_full() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "get", "{dead}"],
        &["jobs", "get", "{running}", "-o", "wide"],
        &["jobs", "get", "{completed}", "{pending}"],
        &["jobs", "get", "{scheduled}", "-o", "json"],
    ]));
}

#[test]
fn the_history_of_a_job_is_shown() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "attempts", "{retrying}"],
        &["jobs", "attempts", "{dead}", "-o", "wide"],
        &["jobs", "attempts", "{failed}", "-o", "json"],
        &["jobs", "attempts", "{scheduled}"],
        &["jobs", "logs", "{running}"],
        &["jobs", "logs", "{running}", "-o", "jsonl"],
        &["jobs", "logs", "{pending}"],
    ]));
}

#[test]
fn every_state_is_explained() {
    let bench = Bench::seeded();
    let names = ["pending", "delayed", "scheduled", "running", "retrying", "completed", "failed", "dead", "cancelled"];
    let commands: Vec<[String; 3]> =
        names.iter().map(|name| ["jobs", "explain", &format!("{{{name}}}")].map(str::to_owned)).collect();
    let mut text = String::new();
    for command in &commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        text.push_str(&bench.told(&[&words]));
    }
    text.push_str(&bench.told(&[&["jobs", "explain", "{scheduled}", "-o", "json"]]));
    insta::assert_snapshot!(text);
}

#[test]
fn the_dead_letter_queue_is_listed() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["dlq", "list"],
        &["dlq", "list", "--code", "smtp_down", "-o", "wide"],
        &["dlq", "list", "-o", "id"],
        &["dlq", "list", "--queue", "nowhere"],
        &["dlq", "list", "--state", "completed"],
    ]));
}

#[test]
fn failed_jobs_are_grouped_by_what_they_died_of() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["errors"],
        &["errors", "-o", "wide"],
        &["errors", "-o", "id"],
        &["errors", "--queue", "nowhere"],
        &["dlq", "list", "--fingerprint", "nonsense"],
    ]));
    let fault = bench.run(&["errors", "-o", "id"]).stdout.lines().next().expect("a group").to_owned();
    let found = bench.run(&["dlq", "list", "--fingerprint", &fault, "-o", "id"]);
    assert!(!found.stdout.is_empty());
}

#[test]
fn what_needs_somebody_and_what_happened_are_told() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "history", "{dead}"],
        &["jobs", "history", "{scheduled}"],
        &["attention"],
        &["open", "/errors", "--print", "--server", "http://127.0.0.1:7878"],
        &["open", "--print"],
    ]));
}

#[test]
fn a_hostile_message_does_not_reach_the_terminal() {
    let bench = Bench::seeded();
    for command in
        [&["dlq", "list", "-o", "wide"][..], &["jobs", "get", "{dead}"], &["jobs", "explain", "{dead}"], &["top"]]
    {
        let ran = bench.run(command);
        assert!(!ran.stdout.contains('\u{1b}') && ran.stdout.contains("\u{fffd}[2J"), "{command:?}: {}", ran.stdout);
    }
}

#[test]
fn queues_and_workers_are_listed() {
    let bench = Bench::seeded();
    let nobody = bench.told(&[
        &["queues", "list"],
        &["queues", "list", "-o", "wide"],
        &["queues", "get", "mail"],
        &["queues", "get", "mail", "-o", "json"],
        &["workers", "list"],
    ]);
    bench.announce(&["mail", "slow"]);
    let one =
        bench.told(&[&["workers", "list"], &["workers", "list", "-o", "wide"], &["workers", "list", "-o", "json"]]);
    insta::assert_snapshot!(nobody + &one);
}

#[test]
fn workflows_are_listed_and_drawn() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["workflows", "list"],
        &["workflows", "list", "-o", "wide"],
        &["workflows", "get", "{workflow}", "-o", "json"],
        &["workflows", "graph", "{workflow}"],
        &["workflows", "graph", "{workflow}", "--as", "dot"],
        &["workflows", "graph", "{workflow}", "--as", "mermaid"],
        &["workflows", "graph", "{workflow}", "-o", "json"],
    ]));
}

#[test]
fn schedules_are_listed_and_previewed() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["schedules", "list"],
        &["schedules", "list", "-o", "wide"],
        &["schedules", "get", "nightly"],
        &["schedules", "get", "poll", "-o", "json"],
        &["schedules", "next", "poll", "-n", "2"],
        &["schedules", "next", "--every", "1h", "-n", "2", "-o", "json"],
        &["schedules", "next", "--cron", "61 * * * *"],
    ]));
}

#[test]
fn a_preview_shows_the_time_of_the_zone() {
    let bench = Bench::seeded();
    let next = |zone: &str| {
        let ran = bench.run(&["schedules", "next", "--cron", "0 12 * * *", "--zone", zone, "-n", "1"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.stdout
    };
    assert!(next("Asia/Kolkata").ends_with(" 12:00 IST)\n"), "{}", next("Asia/Kolkata"));
    assert!(next("UTC").ends_with("T12:00:00Z)\n"), "once is enough: {}", next("UTC"));
}

#[test]
fn a_preview_notes_what_clock_changes_do() {
    let bench = Bench::seeded();
    let ran = bench.run(&["schedules", "preview", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "-n", "400"]);
    let lines: Vec<_> = ran.stdout.lines().collect();
    // Whatever the day, a year holds one change each way.
    for (note, shown) in
        [("moved: clocks leave its time out that day", " 03:00 CEST)"), ("its time comes twice", " 02:30 CEST)")]
    {
        let noted: Vec<_> = lines.iter().filter(|line| line.starts_with("in ") && line.contains(note)).collect();
        assert!(!noted.is_empty() && noted.iter().all(|line| line.contains(shown)), "{note}: {noted:?}");
    }
    let changes: Vec<_> = lines.iter().filter(|line| line.starts_with("clocks change ")).collect();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert!(changes.iter().any(|line| line.contains("(moved")) && changes.iter().any(|line| line.contains("twice")));
}

#[test]
fn a_preview_follows_the_zone() {
    let bench = Bench::seeded();
    let ran =
        bench.run(&["schedules", "next", "--cron", "0 12 * * *", "--zone", "Asia/Kolkata", "-n", "3", "-o", "id"]);
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{ran:?}");
    assert!(lines.iter().all(|line| line.ends_with("T06:30:00.000000Z")), "{ran:?}");
}

#[test]
fn the_numbers_are_shown() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[&["stats"], &["stats", "-o", "json"], &["top"], &["top", "-o", "wide"]]));
}

#[test]
fn colours_are_for_terminals() {
    let bench = Bench::seeded();
    let plain = bench.run(&["jobs", "list"]).stdout;
    assert!(!plain.contains('\u{1b}'));
    let forced = bench.command(&["jobs", "list"]).env("CLICOLOR_FORCE", "1").output().expect("it runs");
    assert!(String::from_utf8_lossy(&forced.stdout).contains("\u{1b}[31mFAILED\u{1b}[0m"));
    let refused = bench.command(&["jobs", "list"]).env("NO_COLOR", "1").output().expect("it runs");
    let refused = String::from_utf8_lossy(&refused.stdout);
    assert!(!refused.contains('\u{1b}') && refused.contains("FAILED"), "{refused}");
}

#[test]
fn jobs_are_exported_as_lines() {
    let bench = Bench::seeded();
    let ran = bench.run(&["jobs", "export"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "exported 13 jobs\n"));
    let ids: Vec<String> = ran
        .stdout
        .lines()
        .map(|line| {
            let job: serde_json::Value = serde_json::from_str(line).expect("a job a line");
            job["id"].as_str().expect("an id").to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 13);
    let told = bench.told(&[
        &["jobs", "export", "--state", "dead_letter", "--to", "dead.jsonl"],
        &["jobs", "export", "--state", "dead_letter", "--to", "dead.jsonl"],
    ]);
    insta::assert_snapshot!(told);
    let written = std::fs::read_to_string(bench.path("dead.jsonl")).expect("written");
    assert!(written.contains(&bench.id("dead")) && written.lines().count() == 1);
}
