//! The store itself, the doctor, and what needs no store at all.

use crate::support::Bench;

#[test]
fn the_store_is_made_looked_at_checked_and_copied() {
    let bench = Bench::seeded();
    let status = bench.told(&[&["store", "status"]]);
    // The size of the file is the one thing that may differ.
    let status: String = status
        .lines()
        .filter(|line| !line.starts_with("size") && !line.starts_with("log"))
        .map(|line| format!("{line}\n"))
        .collect();
    let rest = bench.told(&[
        &["store", "migrate"],
        &["store", "check"],
        &["store", "check", "-o", "json"],
        &["store", "backup", "jobs.db"],
        &["store", "reencrypt"],
        &["store", "migrate", "--store", "sqlite:new.db"],
        &["stats", "--store", "sqlite:new.db", "-o", "json"],
    ]);
    insta::assert_snapshot!(status + &rest);
    let copied = bench.run(&["store", "backup", "copy.db"]);
    assert_eq!(copied.code, 0, "{copied:?}");
    let (there, copy) = (bench.run(&["jobs", "list"]), bench.run(&["jobs", "list", "--store", "sqlite:copy.db"]));
    assert_eq!(there.stdout, copy.stdout);
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_looking() {
    let bench = Bench::empty();
    insta::assert_snapshot!(bench.told(&[
        &["jobs", "list", "--store", "sqlite:typo.db"],
        &["doctor", "--store", "sqlite:typo.db"],
        &["store", "backup", "copy.db", "--store", "sqlite:typo.db"],
        &["jobs", "list", "--store", "redis://ada:secret@host"],
        &["jobs", "list", "--store", "sqlite:"],
        &["store", "backup", "copy.db", "--store", "postgres://ada:secret@127.0.0.1:1/db"],
    ]));
    assert!(!bench.path("typo.db").exists());
    let put = bench.run(&["enqueue", "t", "--store", "sqlite:put.db"]);
    assert_eq!(put.code, 0, "{put:?}");
    assert!(put.stderr.contains("a new one is made") && bench.path("put.db").exists());
}

#[test]
fn a_store_that_cannot_be_reached_is_told_apart() {
    let bench = Bench::empty();
    let ran = bench.run(&[
        "jobs",
        "list",
        "--store",
        "postgres://ada:secret@127.0.0.1:1/db?sslmode=disable&connect_timeout=1",
    ]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("127.0.0.1:1") && !ran.stderr.contains("secret"), "{ran:?}");
}

#[test]
fn tables_that_are_behind_are_not_touched() {
    let bench = Bench::empty();
    let conn = rusqlite::Connection::open(bench.path("own.db")).expect("open");
    conn.execute_batch("create table own (a)").expect("an application's own file");
    drop(conn);
    insta::assert_snapshot!(
        bench.told(&[&["jobs", "list", "--store", "sqlite:own.db"], &["enqueue", "t", "--store", "sqlite:own.db"]])
    );
    let migrated = bench.run(&["store", "migrate", "--store", "sqlite:own.db"]);
    assert_eq!(migrated.code, 0, "{migrated:?}");
    assert_eq!(bench.run(&["jobs", "list", "--store", "sqlite:own.db"]).code, 0);
}

#[test]
fn the_statements_of_the_tables_are_printed() {
    let bench = Bench::empty();
    let sqlite = bench.run(&["store", "sql", "sqlite"]);
    let conn = rusqlite::Connection::open(bench.path("own.db")).expect("open");
    conn.execute_batch(&sqlite.stdout).expect("the statements run");
    drop(conn);
    assert_eq!(bench.run(&["jobs", "list", "--store", "sqlite:own.db"]).code, 0);
    let postgres = bench.run(&["store", "sql", "--schema", "jobs_2"]);
    assert!(postgres.stdout.starts_with("create schema if not exists jobs_2;"), "{}", &postgres.stdout[..80]);
    assert_eq!(bench.run(&["store", "sql", "--schema", "Bad Name"]).code, 2);
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let bench = Bench::seeded();
    bench.run(&["queues", "pause", "orders"]);
    bench.announce(&["mail"]);
    let told = bench.told(&[&["doctor"]]);
    // How large the file is and how much room is left differ from machine to machine.
    let told: String = told
        .lines()
        .filter(|line| !line.contains("  disk  ") && !line.contains("make room"))
        .map(|line| format!("{line}\n"))
        .collect();
    insta::assert_snapshot!(told);
    let json = bench.run(&["doctor", "-o", "json"]).json();
    assert!(json["items"].as_array().expect("a list").iter().any(|finding| finding["what"] == "disk"));
}

#[test]
fn a_worker_that_went_away_is_found() {
    let mut bench = Bench::seeded();
    let lost = bench.lose_a_lease();
    let ran = bench.run(&["doctor"]);
    let line = ran.stdout.lines().find(|line| line.contains("  leases  ")).expect("a finding").to_owned();
    assert!(ran.code == 1 && line.starts_with("BAD") && line.contains(&lost), "{line}");
    insta::assert_snapshot!(bench.told(&[&["jobs", "explain", "{lost}"]]));
}

/// A schema of its own in the database that `WINDLASS_TEST_POSTGRES` names.
#[test]
fn a_postgresql_store_is_operated_alike() {
    let url = std::env::var("WINDLASS_TEST_POSTGRES");
    let url = url.expect("WINDLASS_TEST_POSTGRES must name a PostgreSQL database; scripts/test starts one");
    let schema = format!("cli_{}", uuid::Uuid::new_v4().simple());
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}schema={schema}");
    let bench = Bench::empty();
    let run = |arguments: &[&str]| bench.run(&[arguments, &["--store", &url][..]].concat());
    let behind = run(&["enqueue", "t"]);
    assert!(behind.code == 4 && behind.stderr.contains("store migrate"), "{behind:?}");
    assert_eq!(run(&["store", "migrate"]).code, 0);
    assert_eq!(run(&["enqueue", "t", "--delay", "1h"]).code, 0);
    let cancelled = run(&["jobs", "cancel", "--all", "--yes", "-o", "json"]);
    assert_eq!(cancelled.json()["changed"].as_u64(), Some(1), "{cancelled:?}");
    let status = run(&["store", "status", "-o", "json"]);
    assert_eq!(
        (status.json()["kind"].as_str(), status.json()["totals"]["states"]["cancelled"].as_u64()),
        (Some("postgres"), Some(1))
    );
    let doctor = run(&["doctor"]);
    assert!(doctor.code == 0 && doctor.stdout.contains("notifications arrive"), "{doctor:?}");
    assert_eq!((run(&["store", "check"]).code, run(&["store", "backup", "x.db"]).code), (0, 2));
    let options = windlass::store::PostgresOptions::new(&url).expect("valid options");
    crate::support::runtime().block_on(async {
        let store = windlass::store::PostgresStore::with(options).await.expect("the store opens");
        store.drop_schema().await.expect("dropped");
    });
}

#[test]
fn what_needs_no_store_needs_none() {
    let bench = Bench::empty();
    let version = bench.command(&["version"]).env_remove("WINDLASS_STORE").output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&version.stdout), format!("windlass {}\n", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish"] {
        let ran = bench.run(&["completions", shell]);
        assert!(ran.code == 0 && ran.stdout.contains("dead-letter"), "{shell}");
    }
    assert_eq!(bench.run(&["completions", "tcsh"]).code, 2);
    assert_eq!(bench.run(&["openapi"]).json()["openapi"], "3.1.0");
}

/// The first lines of what a command prints.
fn first(bench: &Bench, lines: usize, arguments: &[&str]) -> String {
    let told = bench.told(&[arguments]);
    let first: Vec<_> = told.lines().take(lines + 1).collect();
    format!("{}\n…\n\n", first.join("\n"))
}

#[test]
fn what_needs_no_store_is_printed() {
    let bench = Bench::empty();
    let mut told = first(&bench, 8, &["openapi"]);
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        told += &first(&bench, 3, &["completions", shell]);
    }
    told += &bench.told(&[&["completions", "csh"]]);
    told += &first(&bench, 3, &["store", "sql"]);
    told += &first(&bench, 3, &["store", "sql", "sqlite"]);
    told += &bench.told(&[&["store", "sql", "--schema", "Bad Name"], &["version"]]);
    let told = told.replace(env!("CARGO_PKG_VERSION"), "[version]");
    insta::assert_snapshot!(told);
}

#[test]
fn tokens_and_secrets_are_made() {
    let bench = Bench::empty();
    let told = bench.told(&[
        &["token", "new", "--role", "produce", "--name", "ci"],
        &["token", "new", "--role", "root"],
        &["token", "new", "--role", "read", "--name", ""],
        &["token", "webhook"],
    ]);
    let secret = |word: &str| match word {
        _ if word.starts_with("windlass_") => "[token]".to_owned(),
        _ if word.contains("whsec_") => word.split("whsec_").next().expect("a part").to_owned() + "[secret]",
        _ if word.len() == 66 => "[hash]".to_owned(),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split(' ').map(secret).collect::<Vec<_>>().join(" ");
    insta::assert_snapshot!(told.lines().map(line).collect::<Vec<_>>().join("\n"));
}

/// What goes on until it is stopped is refused here before it begins; tests/serving lets it run.
#[test]
fn what_cannot_begin_says_why() {
    let bench = Bench::empty();
    std::fs::write(bench.path("bad.toml"), "listen = 7\n").expect("written");
    insta::assert_snapshot!(bench.told(&[
        &["run", "--listen", "0.0.0.0:7654"],
        &["run", "--listen", "nowhere"],
        &["run", "--config", "missing.toml"],
        &["run", "--config", "bad.toml"],
        &["run", "--seed", "7"],
        &["run", "--store", "redis://ada:secret@host"],
        &["worker"],
        &["worker", "--exec", "no-such-program"],
        &["worker", "--exec", "true", "--queue", "mail=many"],
        &["worker", "--url", "ftp://example.com"],
        &["bench", "nothing"],
        &["bench", "enqueue", "--store", "redis:"],
        &["token", "key", "--name", "a:b"],
        &["token", "reload", "--store", "memory:"],
    ]));
}

/// L6, M4: who looks after a store is told what others may read.
#[test]
fn l6_the_doctor_sees_what_others_may_read() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::seeded();
    let config =
        format!("store = {:?}\n[webhooks]\nsecrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\n", bench.url());
    std::fs::write(bench.path("windlass.toml"), config).expect("written");
    let mode = |name: &str, mode| {
        std::fs::set_permissions(bench.path(name), std::fs::Permissions::from_mode(mode)).expect("changed");
    };
    for (rights, told) in [(0o644, true), (0o600, false)] {
        mode("windlass.toml", rights);
        mode("jobs.db", rights);
        let said = bench.run(&["doctor", "--config", "windlass.toml"]).stdout;
        assert_eq!(said.contains("secrets of webhooks"), told, "{said}");
        assert_eq!(said.contains("every payload in it"), told, "{said}");
    }
}
