//! What is fuzzed: one function for each kind of bytes that others write. Each takes any bytes, and panics only where
//! Windlass did something wrong.
//!
//! The program in `main.rs` hands them what libFuzzer makes up; an ordinary test hands them the kept corpus.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use rusqlite::types::Value;
use serde_json::value::RawValue;
use tower::ServiceExt;
use windlass::job::{JobOptions, Limits, SEALED_TYPE, WorkerId};
use windlass::schedule::Cron;
use windlass::store::{
    ClaimRequest, Keyring, ListQuery, MemoryStore, PostgresOptions, Sealed, SqliteOptions, SqliteStore, SqliteUrl,
    Store, redacted,
};
use windlass::workflow::Submission;
use windlass::{Client, NewJob, Payload, Policies, QueueName, Timestamp};
use windlass_server::api::{self, ApiState};
use windlass_server::serve::config::{Given, Settings};

/// What takes any bytes.
pub type Target = fn(&[u8]);

/// Every function by its name, which is also that of its corpus.
#[allow(dead_code, reason = "the test replays by it")]
pub const TARGETS: [(&str, Target); 9] = [
    ("body", body),
    ("config", config),
    ("cron", cron),
    ("envelope", envelope),
    ("filter", filter),
    ("notification", notification),
    ("options", options),
    ("row", row),
    ("url", url),
];

/// Where bodies go, by their first byte.
const ROUTES: [&str; 21] = [
    "POST /v1/jobs",
    "POST /v1/jobs/batch",
    "POST /v1/workflows",
    "POST /v1/schedules",
    "POST /v1/claims",
    "POST /v1/leases/settle",
    "POST /v1/leases/extend",
    "POST /v1/leases/saves",
    "POST /v1/operations",
    "POST /v1/jobs/find",
    "PUT /v1/schedules/fuzzed",
    "PUT /v1/queues/mail/control",
    "PUT /v1/queues/mail/keys/fuzzed",
    "POST /v1/queues/mail/hold",
    "POST /v1/queues/mail/keys/fuzzed/hold",
    "POST /v1/workers",
    "POST /v1/schedules/preview",
    "POST /v1/samples",
    "POST /v1/workflows/find",
    "POST /v1/jobs/batch/cancel",
    "POST /v1/queues/mail/pause",
];
/// Answers after which a store is thrown away: what it holds must not grow, nor a finding depend on too much.
const ANSWERS_MAX: u32 = 500;
/// The same for files with rows.
const TRIES_MAX: u32 = 50;
/// For a call that waits for what will not come.
const PATIENCE: Duration = Duration::from_millis(5);
/// Stands for a password in what is read.
const SECRET: &str = "TOPSECRET";

thread_local! {
    static ASKED: Cell<u32> = const { Cell::new(0) };
    static ROUTER: RefCell<Option<Router>> = const { RefCell::new(None) };
    static ROWS: RefCell<Option<Rows>> = const { RefCell::new(None) };
}

/// The body of a call that writes: the first byte says which, the rest is the body.
pub fn body(data: &[u8]) {
    let Some((route, body)) = data.split_first() else { return };
    let (method, path) = ROUTES[usize::from(*route) % ROUTES.len()].split_once(' ').expect("method and path");
    ask(method, path, body);
}

/// A filter: of a list and of a count by a query, of an operation by a body.
pub fn filter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.starts_with('{') {
        return ask(
            "POST",
            "/v1/operations",
            format!(r#"{{"action":"cancel","filter":{text},"dry_run":true}}"#).as_bytes(),
        );
    }
    for path in ["/v1/jobs", "/v1/jobs/count", "/v1/errors"] {
        ask("GET", &format!("{path}?{text}"), b"");
    }
}

/// A cron expression, and behind a line's end its zone: what is printed is read again, and slots go ahead.
pub fn cron(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (expression, zone) = text.split_once('\n').unwrap_or((text, "UTC"));
    let Ok(cron) = Cron::new(expression, zone) else { return };
    let again = Cron::new(cron.expression(), cron.zone()).expect("what is printed can be read");
    assert!(!cron.words().is_empty());
    let mut latest = Timestamp::from_seconds(1_790_000_000);
    for _ in 0..5 {
        let next = cron.next_after(latest);
        assert_eq!(next, again.next_after(latest));
        let Some(next) = next else { return };
        assert!(next > latest, "a slot is not behind the one before it");
        latest = next;
    }
}

/// A configuration: what is wrong with it repeats no secret.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The files that it names are the operator's to choose; a device among them may never end.
    if text.contains("keys_file") {
        return;
    }
    // A key is repeated, so that a misspelt one can be found, unless it looks as tokens do; values are not.
    let is_value = |before: &str| before.contains("=\"") || before.contains("= \"");
    if text.lines().any(|line| line.find(SECRET).is_some_and(|at| !is_value(&line[..at]))) {
        return;
    }
    if let Err(error) = Settings::parse(text, Given::default()) {
        let words = format!("{error:#}");
        assert!(!words.contains(SECRET), "a secret is told: {words}");
    }
}

/// A store's URL: shown, it has no password.
pub fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let shown = redacted(text);
    let password =
        text.parse::<tokio_postgres::Config>().ok().and_then(|config| config.get_password().map(<[u8]>::to_vec));
    let holds = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
    if password.is_some_and(|password| holds(&password)) && text.matches(SECRET).count() == 1 {
        assert!(!shown.contains(SECRET), "{shown}");
        if let Err(error) = PostgresOptions::new(text) {
            assert!(!error.to_string().contains(SECRET), "{error}");
        }
    }
    let _ = SqliteUrl::parse(text);
    let _ = PostgresOptions::new(text);
}

/// The words of a notification.
pub fn notification(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let wakes = windlass::store::postgres::wakes_in(&text, "own");
    assert!(wakes.len() <= text.len());
}

/// Stored options: what is read is written so that it is read again.
pub fn options(data: &[u8]) {
    let Ok(read) = serde_json::from_slice::<JobOptions>(data) else { return };
    let text = serde_json::to_string(&read).expect("options are plain");
    let again: JobOptions = serde_json::from_str(&text).expect("what is written can be read");
    assert_eq!(again, read);
    if let Ok(text) = std::str::from_utf8(data) {
        assert_eq!(JobOptions::submitter_in(text), read.submitted_by);
    }
}

/// Stored bytes that claim to be encrypted, and the text of a keyring.
pub fn envelope(data: &[u8]) {
    let keys = "a:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    if let Ok(text) = std::str::from_utf8(data)
        && let Err(error) = Keyring::parse(text)
    {
        assert!(!error.to_string().contains("0a0b0c0d"), "{error}");
    }
    runtime().block_on(async {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let sealed = Sealed::new(Arc::clone(&inner), Keyring::parse(keys).expect("a key"));
        let mut spec = spec();
        spec.payload = Payload::from_stored(Some(SEALED_TYPE), data.to_vec());
        let id = inner.insert(Submission::new(vec![spec]).expect("a batch")).await.expect("inserted").jobs[0].id;
        let found = Store::find(&sealed, &[id]).await.expect("found").remove(0).expect("it is there");
        assert!(!found.spec.payload.is_sealed() || found.spec.payload.as_bytes() == data);
        // What does not open is given back; nobody gets it as a job.
        let claims = Store::claim(&sealed, &claim()).await.expect("claimed");
        assert!(claims.jobs.iter().all(|claimed| !claimed.job.spec.payload.is_sealed()));
    });
}

/// Rows of a SQLite file that something else wrote over: pieces of `column, kind, value`, with `FF FF` between.
pub fn row(data: &[u8]) {
    ROWS.with_borrow_mut(|rows| {
        if rows.as_ref().is_none_or(|rows| rows.tries > TRIES_MAX) {
            *rows = Some(Rows::new());
        }
        rows.as_mut().expect("made above").try_out(data);
    });
}

/// What a piece of a row is written into: table and column.
const COLUMNS: [(&str, &str); 22] = [
    ("windlass_job", "options"),
    ("windlass_job", "content_type"),
    ("windlass_job", "payload"),
    ("windlass_job", "depends_on"),
    ("windlass_job", "inherited"),
    ("windlass_job", "priority"),
    ("windlass_job", "created_at"),
    ("windlass_job", "first_at"),
    ("windlass_job", "depth"),
    ("windlass_job", "workflow"),
    ("windlass_job", "schedule"),
    ("windlass_job", "slot"),
    ("windlass_job", "spawned_by"),
    ("windlass_note", "failure"),
    ("windlass_note", "progress"),
    ("windlass_note", "checkpoint"),
    ("windlass_done", "reason"),
    ("windlass_done", "result"),
    ("windlass_done", "result_type"),
    ("windlass_done", "worker"),
    ("windlass_done", "outcome"),
    ("windlass_done", "attempt"),
];

/// A store in a file, and a connection behind its back.
struct Rows {
    store: SqliteStore,
    behind: rusqlite::Connection,
    tries: u32,
    _folder: tempfile::TempDir,
}

impl Rows {
    fn new() -> Self {
        let quick = Path::new("/dev/shm");
        let folder = if quick.is_dir() { tempfile::tempdir_in(quick) } else { tempfile::tempdir() }.expect("a folder");
        let path = folder.path().join("jobs.db");
        let store = SqliteOptions::new(&path).open().expect("a store");
        let behind = rusqlite::Connection::open(&path).expect("a connection");
        Rows { store, behind, tries: 0, _folder: folder }
    }

    /// One job waits, one has ended; what is stored of both is changed, and looked at in every way.
    fn try_out(&mut self, data: &[u8]) {
        self.tries += 1;
        runtime().block_on(async {
            let from =
                self.behind.query_row("select coalesce(max(seq), 0) + 1 from windlass_job", [], |row| row.get(0));
            let ended = self.enqueue().await;
            for claimed in self.store.claim(&claim()).await.expect("claimed").jobs {
                let failure = windlass::Failure::permanent("no", "no");
                self.store.settle(&[claimed.lease.fail(failure, &mut || 0.5)]).await.expect("settled");
            }
            let waiting = self.enqueue().await;
            self.damage(from.expect("a number"), data);
            let both = [ended, waiting];
            self.store.find(&both).await.expect("found");
            self.store.list(&ListQuery { limit: 10, ..ListQuery::default() }).await.expect("listed");
            for id in both {
                // An id that was written over is not found, which is an answer.
                let _ = self.store.explain(id).await;
                let _ = self.store.attempts(id).await;
            }
            self.store.check().await.expect("checked");
            let sound = self.enqueue().await;
            let claims = self.store.claim(&claim()).await.expect("a damaged row stops one job and not its queue");
            assert!(claims.jobs.iter().any(|claimed| claimed.job.id == sound), "a sound job is handed out");
            self.store.events(None, 10).await.expect("events");
        });
    }

    async fn enqueue(&self) -> windlass::JobId {
        self.store.insert(Submission::new(vec![spec()]).expect("a batch")).await.expect("inserted").jobs[0].id
    }

    /// Writes over the rows of the jobs from this one on.
    fn damage(&self, from: i64, data: &[u8]) {
        for piece in pieces(data).take(4) {
            let [column, kind, value @ ..] = piece else { continue };
            let (table, column) = COLUMNS[usize::from(*column) % COLUMNS.len()];
            let value = match kind % 4 {
                0 => Value::Text(String::from_utf8_lossy(value).into_owned()),
                1 => Value::Blob(value.to_vec()),
                2 => Value::Integer(value.iter().take(8).fold(0, |sum: i64, byte| (sum << 8) | i64::from(*byte))),
                _ => Value::Null,
            };
            // The tables' own checks may refuse it.
            let update = format!("update {table} set {column} = ?1 where seq >= ?2");
            let _ = self.behind.execute(&update, rusqlite::params![value, from]);
        }
    }
}

/// Pieces of the input, with `FF FF` between.
fn pieces(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let all = rest?;
        let at = all.windows(2).position(|two| two == [0xff, 0xff]);
        rest = at.map(|at| &all[at + 2..]);
        Some(&all[..at.unwrap_or(all.len())])
    })
}

fn spec() -> windlass::job::JobSpec {
    NewJob::new("test", Payload::default()).check(&Limits::default(), &Policies::default()).expect("a job")
}

fn claim() -> ClaimRequest {
    ClaimRequest::new(WorkerId::new("w").expect("a name"), QueueName::default(), 10)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Asks the API in process. It neither panics nor answers that something went wrong inside, and what it says is JSON.
fn ask(method: &str, uri: &str, body: &[u8]) {
    let request = Request::builder().method(method).uri(uri).header("content-type", "application/json");
    let Ok(request) = request.body(Body::from(body.to_vec())) else { return };
    let fresh = ASKED.get().is_multiple_of(ANSWERS_MAX);
    ASKED.set(ASKED.get() + 1);
    let router = ROUTER.with_borrow_mut(|router| {
        if fresh {
            *router = None;
        }
        let made = || api::router(ApiState::new(Client::with_store(Arc::new(MemoryStore::new()))));
        router.get_or_insert_with(made).clone()
    });
    runtime().block_on(async {
        let Ok(answer) = tokio::time::timeout(PATIENCE, router.oneshot(request)).await else { return };
        let (parts, body) = answer.expect("a router answers").into_parts();
        let status = parts.status.as_u16();
        assert!(status < 500 || status == 503, "{status}");
        let is_json = parts.headers.get("content-type").is_some_and(|kind| kind.as_bytes().ends_with(b"json"));
        if is_json {
            let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
            assert!(serde_json::from_slice::<&RawValue>(&body).is_ok(), "an answer that is no JSON");
        }
    });
}
