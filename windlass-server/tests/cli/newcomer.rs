//! What somebody meets in the first hour: habits from other tools, slips of the finger, moving and restoring a store.

use crate::support::Bench;

#[test]
fn the_bare_command_shows_what_one_needs_first() {
    let ran = Bench::empty().run(&[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for first in ["windlass run --demo", "windlass worker", "windlass enqueue", "windlass top", "windlass --help"] {
        assert!(ran.stdout.contains(first), "{first}: {}", ran.stdout);
    }
}

#[test]
fn the_beginning_of_an_id_names_a_job() {
    let bench = Bench::seeded();
    let id = bench.id("dead");
    for command in [&["jobs", "get"][..], &["jobs", "explain"], &["jobs", "attempts"], &["jobs", "logs"]] {
        let ran = bench.run(&[command, &[&id[..8]]].concat());
        assert_eq!(ran.code, 0, "{command:?}: {ran:?}");
        let whole = bench.run(&[command, &[&id[..]]].concat());
        assert_eq!(ran.stdout, whole.stdout, "{command:?}");
    }
    assert_eq!(bench.run(&["jobs", "show", &id[..13], "-o", "id"]).stdout.trim(), id, "by another name, too");
    let workflow = bench.id("workflow");
    assert_eq!(bench.run(&["workflows", "get", &workflow[..8], "-o", "id"]).stdout.trim(), workflow);
    let requeued = bench.run(&["jobs", "requeue", &id[..8]]);
    assert!(requeued.code == 0 && requeued.stderr.contains("requeued 1 job"), "{requeued:?}");
    let after = bench.run(&["enqueue", "report", "--after", &id[..8], "-o", "id"]);
    assert_eq!(after.code, 0, "{after:?}");
    let unknown = bench.run(&["jobs", "get", "00000000"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (3, ""), "{unknown:?}");
    let short = bench.run(&["jobs", "get", &id[..7]]);
    assert!(short.code == 2 && short.stderr.contains("at least its first 8 characters"), "{short:?}");
}

#[test]
fn a_queue_that_nobody_knows_is_paused_with_a_word() {
    let bench = Bench::seeded();
    let slip = bench.run(&["queues", "pause", "mial"]);
    assert_eq!((slip.code, slip.stderr.as_str()), (0, "no job was ever in a queue mial; it is paused from now on\n"));
    let known = bench.run(&["queues", "pause", "mail", "--by", "ada", "--reason", "the relay is down"]);
    assert_eq!((known.code, known.stderr.as_str()), (0, "queue mail is paused\n"));
    let acts = bench.run(&["store", "acts", "-o", "json"]);
    assert!(acts.stdout.contains("\"the relay is down\""), "{acts:?}");
}

#[test]
fn the_words_of_lists_are_filters() {
    let bench = Bench::seeded();
    let ids = |state: &str| bench.run(&["jobs", "list", "--state", state, "-o", "id", "--limit", "0"]).stdout;
    assert_eq!(ids("ready"), ids("SCHEDULED"));
    assert_eq!(ids("LATER"), ids("pending,delayed,retrying"));
    assert!(ids("dead").contains(&bench.id("dead")) && ids("dead").contains(&bench.id("failed")));
    assert!(bench.run(&["workflows", "list"]).stdout.contains("RUNNING"), "states are written alike everywhere");
}

#[test]
fn retries_are_named_on_the_command_line() {
    let bench = Bench::seeded();
    let policy = |arguments: &[&str]| {
        let id = bench.run(&[&["enqueue", "call", "-o", "id"], arguments].concat());
        assert_eq!(id.code, 0, "{id:?}");
        bench.run(&["jobs", "get", id.stdout.trim(), "-o", "json"]).json()
    };
    let patient = policy(&["--retry", "patient"]);
    assert_eq!((&patient["max_attempts"], &patient["retry"]["initial"]), (&20.into(), &"15s".into()));
    let own = policy(&["--backoff", "linear", "--retry-delay", "5s", "--retry-delay-max", "1m", "--attempts", "8"]);
    let [strategy, initial, max] = ["strategy", "initial", "max"].map(|field| own["retry"][field].clone());
    assert_eq!([strategy, initial, max], ["linear", "5s", "1m"]);
    assert_eq!(own["max_attempts"], 8);
    let bad = bench.run(&["enqueue", "call", "--retry", "stubborn"]);
    assert!(bad.code == 2 && bad.stderr.contains("patient"), "{bad:?}");
}

#[test]
fn dead_jobs_are_cloned_under_new_keys() {
    let bench = Bench::seeded();
    let dry = bench.run(&["dlq", "clone", "--type", "email.send", "--new-key", "--dry-run"]);
    assert!(dry.code == 0 && dry.stderr.contains("would clone 2 jobs"), "{dry:?}");
    let asked = bench.run(&["dlq", "clone", "--type", "email.send", "--new-key"]);
    assert!(asked.code == 2 && asked.stderr.contains("without confirmation"), "{asked:?}");
    let cloned = bench.run(&["dlq", "clone", "--type", "email.send", "--new-key", "--yes", "-o", "id"]);
    assert_eq!((cloned.code, cloned.stdout.lines().count()), (0, 2), "{cloned:?}");
    let copy = bench.run(&["jobs", "get", cloned.stdout.lines().next().expect("an id"), "-o", "json"]).json();
    let original = copy["cloned_from"].as_str().expect("linked").to_owned();
    assert_eq!(copy["idempotency_key"], format!("clone-of-{original}"));
    assert!([bench.id("dead"), bench.id("failed")].contains(&original));
    let again = bench.run(&["dlq", "clone", "--type", "email.send", "--new-key", "--yes"]);
    assert!(again.code == 0 && again.stderr.contains("cloned 0 jobs"), "the same again stores nothing: {again:?}");
    let alive = bench.run(&["dlq", "clone", "{scheduled}"]);
    assert_eq!(alive.code, 4, "{alive:?}");
}

/// FAILED and DEAD_LETTER are one list, whatever the pages, and a job's age does not matter.
#[test]
fn the_dead_letter_queue_is_listed_by_its_ends() {
    let bench = Bench::seeded();
    let waiting = bench.run(&["jobs", "list", "--state", "scheduled", "-o", "id"]);
    // The newest first, so the oldest is the last to end.
    for id in waiting.stdout.lines() {
        assert_eq!(bench.run(&["jobs", "dead-letter", id, "--yes"]).code, 0);
    }
    let list = |arguments: &[&str]| bench.run(&[&["dlq", "list", "-o", "json"], arguments].concat()).json();
    let all = list(&["--limit", "0"])["items"].as_array().expect("a list").clone();
    let ends: Vec<_> = all.iter().map(|job| job["completed_at"].as_str().expect("a time").to_owned()).collect();
    assert!(ends.len() > 4 && ends.is_sorted_by(|one, next| one >= next), "{ends:?}");
    for state in ["failed", "dead_letter"] {
        assert!(all.iter().any(|job| job["state"] == state), "{state}: {all:?}");
    }
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut arguments = vec!["--limit", "2", "--state", "dead", "--state", "failed"];
        arguments.extend(cursor.iter().flat_map(|cursor| ["--cursor", cursor]));
        let page = list(&arguments);
        found.extend(page["items"].as_array().expect("a list").clone());
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, all, "page by page, each job once");
    assert_eq!(bench.run(&["dlq", "list", "--cursor", "7"]).code, 2);
}

#[test]
fn what_export_writes_enqueue_takes() {
    let bench = Bench::seeded();
    assert_eq!(bench.run(&["jobs", "export", "--to", "all.jsonl"]).code, 0);
    let into = |arguments: &[&str]| {
        bench.run(
            &[&["enqueue", "--file", "all.jsonl", "--batch", "2", "--store", "sqlite:other.db"], arguments].concat(),
        )
    };
    let moved = into(&[]);
    assert_eq!(moved.code, 0, "{moved:?}");
    assert!(moved.stderr.contains("left out 5 that had ended"), "{}", moved.stderr);
    let list = |store: &str, arguments: &[&str]| {
        let all = ["jobs", "list", "--limit", "0", "-o", "json", "--store", store];
        bench.run(&[&all, arguments].concat()).json()["items"].as_array().expect("a list").clone()
    };
    let other = list("sqlite:other.db", &[]);
    let here: Vec<_> = list(&bench.url(), &[]).into_iter().filter(|job| job["completed_at"].is_null()).collect();
    assert_eq!(other.len(), here.len());
    for (job, original) in other.iter().zip(&here) {
        assert_eq!(job["cloned_from"], original["id"], "in the same order, linked, under new ids");
        for field in ["type", "queue", "payload", "priority", "retry", "lifetime", "tags", "depends_on"] {
            if field != "depends_on" {
                assert_eq!(job[field], original[field], "{field}");
            } else {
                let count = |job: &serde_json::Value| job[field].as_array().map_or(0, Vec::len);
                let ended = |job: &serde_json::Value| job["type"] == "pack" || job["type"] == "receipt";
                assert_eq!(count(job), if ended(job) { 0 } else { count(original) }, "{job}");
            }
        }
    }
    let with_ended = into(&["--ended"]);
    assert_eq!(with_ended.code, 0, "{with_ended:?}");
}

/// A lifetime that nobody named counts from the first run, in an export as well.
#[test]
fn an_export_with_jobs_of_next_month_is_taken() {
    let bench = Bench::empty();
    assert_eq!(bench.run(&["enqueue", "t", "--delay", "30d"]).code, 0);
    assert_eq!(bench.run(&["enqueue", "t", "--delay", "3d", "--lifetime", "5d"]).code, 0);
    assert_eq!(bench.run(&["jobs", "export", "--to", "later.jsonl"]).code, 0);
    let taken = bench.run(&["enqueue", "--file", "later.jsonl", "--store", "sqlite:other.db"]);
    assert_eq!(taken.code, 0, "{taken:?}");
    let list = bench.run(&["jobs", "list", "-o", "json", "--store", "sqlite:other.db"]).json();
    let of = |number: usize, field: &str| list["items"][number][field].as_str().expect("text").to_owned();
    assert_eq!((of(0, "lifetime"), of(1, "lifetime")), ("5d".to_owned(), "7d".to_owned()));
    let before = bench.run(&["jobs", "list", "-o", "json"]).json();
    assert_eq!(of(1, "deadline"), before["items"][1]["deadline"].as_str().expect("text"), "it ends when it would have");
}

#[test]
fn an_export_with_jobs_of_the_system_is_taken_without_them() {
    let bench = Bench::seeded();
    let asking = bench.run(&["enqueue", "t", "--callback-url", "https://example.com/hook", "-o", "id"]);
    assert_eq!(bench.run(&["jobs", "cancel", asking.stdout.trim()]).code, 0);
    assert_eq!(bench.run(&["jobs", "export", "--queue", "windlass.webhooks", "--to", "hooks.jsonl"]).code, 0);
    let taken = bench.run(&["enqueue", "--file", "hooks.jsonl", "--store", "sqlite:other.db"]);
    assert!(taken.code == 0 && taken.stderr.contains("left out 1 of the system's own"), "{taken:?}");
}

#[test]
fn a_backup_is_put_back_only_where_nobody_works() {
    let bench = Bench::seeded();
    assert_eq!(bench.run(&["store", "backup", "copy.db"]).code, 0);
    let count = |store: &str| bench.run(&["jobs", "list", "--limit", "0", "-o", "id", "--store", store]).stdout;
    let before = count(&bench.url());
    assert_eq!(bench.run(&["enqueue", "later"]).code, 0);
    let held = rusqlite::Connection::open(bench.path("jobs.db")).expect("open");
    held.query_row("select count(*) from windlass_store", [], |row| row.get::<_, i64>(0)).expect("it reads");
    let refused = bench.run(&["store", "restore", "copy.db"]);
    assert!(refused.code == 4 && refused.stderr.contains("stop every server"), "{refused:?}");
    // A process that died leaves its log behind, with commits that the file lacks.
    std::fs::copy(bench.path("jobs.db"), bench.path("crashed.db")).expect("copied");
    let _ = std::fs::copy(bench.path("jobs.db-wal"), bench.path("crashed.db-wal"));
    drop(held);
    for store in [bench.url(), "sqlite:crashed.db".to_owned()] {
        let restored = bench.run(&["store", "restore", "copy.db", "--store", &store]);
        assert_eq!(restored.code, 0, "{restored:?}");
        assert!(restored.stderr.contains("is kept as"), "{restored:?}");
        assert_eq!(count(&store), before, "nothing that came later is there: {store}");
    }
    for (from, code) in [("missing.db", 3), ("other.txt", 2)] {
        std::fs::write(bench.path("other.txt"), "no database").expect("written");
        assert_eq!(bench.run(&["store", "restore", from]).code, code, "{from}");
    }
    let made = bench.run(&["store", "restore", "copy.db", "--store", "sqlite:new.db"]);
    assert_eq!((made.code, count("sqlite:new.db")), (0, before), "{made:?}");
}

/// A backup that was copied about may be readable by all; the store that it becomes is not. No link is written through.
#[test]
fn a_restored_store_is_for_its_owner_alone_and_goes_through_no_link() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::seeded();
    assert_eq!(bench.run(&["store", "backup", "copy.db"]).code, 0);
    let mode = |name: &str| bench.path(name).metadata().expect("a file").permissions().mode() & 0o777;
    let set = |name: &str, mode: u32| {
        std::fs::set_permissions(bench.path(name), PermissionsExt::from_mode(mode)).expect("set");
    };
    assert_eq!(bench.run(&["jobs", "export", "--to", "all.jsonl"]).code, 0);
    assert_eq!(mode("all.jsonl"), 0o600, "an export holds every payload");
    set("copy.db", 0o644);
    std::fs::write(bench.path("victim"), "untouched").expect("written");
    std::os::unix::fs::symlink("victim", bench.path("new.db-restoring")).expect("a link");
    assert_eq!(bench.run(&["store", "restore", "copy.db", "--store", "sqlite:new.db"]).code, 0);
    assert_eq!(mode("new.db"), 0o600);
    assert_eq!(std::fs::read_to_string(bench.path("victim")).expect("readable"), "untouched");
    set("new.db", 0o640);
    assert_eq!(bench.run(&["store", "restore", "copy.db", "--store", "sqlite:new.db"]).code, 0);
    assert_eq!(mode("new.db"), 0o640, "it keeps the rights of the store whose place it takes");
    assert!(!bench.path("copy.db-shm").exists() && !bench.path("copy.db-wal").exists(), "the backup is only read");
}

#[test]
fn urls_of_other_tools_are_understood_or_refused() {
    let bench = Bench::empty();
    let made = bench.run(&["enqueue", "t", "--store", "sqlite:shop.db?mode=rwc"]);
    assert!(made.code == 0 && bench.path("shop.db").exists(), "{made:?}");
    assert_eq!(
        bench.run(&["jobs", "list", "--store", "sqlite://shop.db?mode=rw", "-o", "id"]).stdout.lines().count(),
        1
    );
    let absent = bench.run(&["enqueue", "t", "--store", "sqlite:absent.db?mode=rw"]);
    assert!(absent.code == 3 && !bench.path("absent.db").exists(), "{absent:?}");
    for (url, word) in [
        ("sqlite::memory:", "use memory:"),
        ("sqlite:shop.db?cache=shared", "\"cache\""),
        ("postgres://ada:secret@127.0.0.1:1/db?pool_size=3", "\"pool_size\""),
    ] {
        let refused = bench.run(&["enqueue", "t", "--store", url]);
        assert!(refused.code == 2 && refused.stderr.contains(word), "{url}: {refused:?}");
        assert!(!refused.stderr.contains("secret"));
    }
    assert_eq!(
        std::fs::read_dir(bench.path(""))
            .expect("a folder")
            .filter(|entry| { entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().contains('?')) })
            .count(),
        0
    );
}

#[test]
fn what_cannot_be_cloned_or_restored_is_told() {
    let bench = Bench::seeded();
    insta::assert_snapshot!(bench.told(&[
        &["dlq", "clone"],
        &["dlq", "clone", "--type", "email.send", "--dry-run"],
        &["dlq", "clone", "{completed}"],
        &["store", "restore", "missing.db"],
        &["store", "restore", "copy.db", "--server", "http://127.0.0.1:1"],
        &["store", "restore", "copy.db", "--store", "postgres://ada:secret@127.0.0.1:1/db"],
    ]));
}

/// A callback that nobody will deliver is told where it is asked for, and found by the doctor, before its job ends and after.
#[test]
fn a_webhook_that_nobody_delivers_is_told() {
    let bench = Bench::seeded();
    let told = bench.run(&["enqueue", "t", "--callback-url", "https://example.com/hook", "-o", "id"]);
    assert!(told.code == 0 && told.stderr.contains("nobody delivers webhooks"), "{told:?}");
    let foreseen = bench.run(&["doctor"]);
    assert!(foreseen.stdout.contains("asked for by 1 of the unfinished jobs"), "{foreseen:?}");
    assert!(foreseen.stdout.contains("nobody delivers webhooks"), "{foreseen:?}");
    assert_eq!(bench.run(&["jobs", "cancel", told.stdout.trim()]).code, 0);
    let found = bench.run(&["doctor"]);
    assert!(found.stdout.contains("queue windlass.webhooks has 1 job ready and no worker"), "{found:?}");
    assert!(found.stdout.contains("nobody delivers webhooks"), "{found:?}");
    bench.announce(&["windlass.webhooks"]);
    let fine = bench.run(&["enqueue", "t", "--callback-url", "https://example.com/hook"]);
    assert!(fine.code == 0 && !fine.stderr.contains("nobody"), "{fine:?}");
}
