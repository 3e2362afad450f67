//! What the library reads that others wrote. The target is the word in `WINDLASS_FUZZ_TARGET`.
//!
//! Nothing may panic, and what is read must be what was written: each target says what it holds against it.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use windlass::job::JobOptions;
use windlass::store::{PostgresOptions, SqliteUrl, fuzzing, redacted};
use windlass::{NewJob, Payload, Schedule, Timestamp};

static TARGET: LazyLock<String> =
    LazyLock::new(|| std::env::var("WINDLASS_FUZZ_TARGET").expect("WINDLASS_FUZZ_TARGET names a target"));

fuzz_target!(|data: &[u8]| {
    match TARGET.as_str() {
        "cron" => cron(data),
        "url" => url(data),
        "words" => words(data),
        "options" => options(data),
        "rows" => fuzzing::rows(data),
        other => panic!("{other} is no target of the library"),
    }
});

/// A cron expression and a zone: what is taken fires in order, and after the moment it is asked for.
fn cron(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (expression, zone) = text.split_once('@').unwrap_or((text, "UTC"));
    let Ok(schedule) = Schedule::cron_in("n", expression, zone, NewJob::new("t", Payload::default())) else { return };
    let client = windlass::Client::in_memory();
    let Ok(spec) = schedule.check(&client) else { return };
    let now = Timestamp::from_seconds(1_767_225_600);
    let next = spec.next(5, now);
    assert!(next.iter().all(|at| *at > now), "{expression}: {next:?}");
    assert!(next.is_sorted_by(|one, other| one < other), "{expression}: {next:?}");
}

/// URLs of stores. A password that is read as one is never shown.
fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = SqliteUrl::parse(text);
    let _ = redacted(text);
    if let Err(error) = PostgresOptions::new(text) {
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    assert!(!redacted(&format!("postgres://u:hunter2@h/db?{text}")).contains("hunter2"));
}

/// The words of notifications, which any role of the database may send.
fn words(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        fuzzing::notification(text);
    }
}

/// Options as they are stored: what is read is written and read again alike, and the submitter is the one that is in it.
fn options(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let submitter = JobOptions::submitter_in(text);
    let Ok(options) = serde_json::from_str::<JobOptions>(text) else { return };
    if submitter.is_some() {
        assert_eq!(submitter, options.submitted_by, "{text}");
    }
    let written = serde_json::to_string(&options).expect("options are JSON");
    let again: JobOptions = serde_json::from_str(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(serde_json::to_string(&again).expect("options are JSON"), written);
}
