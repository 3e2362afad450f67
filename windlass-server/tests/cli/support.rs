//! A store with one of everything in it, the real binary, and texts that are the same on every run.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use windlass::clock::{Clock, SystemClock};
use windlass::job::Lease;
use windlass::job::{Failure, Progress, RetryPolicy, Settlement, WorkerId};
use windlass::schedule::{ScheduleSpec, Timing};
use windlass::store::{
    Act, ClaimRequest, Claimed, Operation, Save, ScheduleEdit, ServedQueue, Store, Target, WorkerReport,
};
use windlass::store::{SqliteOptions, SqliteStore};
use windlass::{Client, JobId, ManualClock, NewJob, Payload, Priority, QueueName, Timestamp, Workflow};

const DAY: Duration = Duration::from_secs(86_400);
const HALF: Duration = Duration::from_secs(43_200);

/// What the texts show in place of [`far_cron`].
const CRON_SHOWN: &str = "0 3 * * *";

/// A daily cron expression whose slots are ten hours or more from now, in UTC and in Berlin: a slot that passes while commands run
/// one after the other would be shown as ahead by one and as past by the next.
fn far_cron(now: Timestamp) -> String {
    format!("0 {} * * *", (now.as_micros() / 3_600_000_000 + 12) % 24)
}

/// A folder with a store, and the names of what is in it.
pub(crate) struct Bench {
    folder: TempDir,
    names: HashMap<String, String>,
    cron: String,
}

impl Bench {
    /// A folder without a store.
    pub(crate) fn empty() -> Self {
        let (folder, cron) = (tempfile::tempdir().expect("a folder"), far_cron(SystemClock::default().now()));
        Bench { folder, names: HashMap::new(), cron }
    }

    /// A store with a job in each state, a workflow and two schedules, all two days old.
    pub(crate) fn seeded() -> Self {
        let mut bench = Bench::empty();
        let path = bench.path("jobs.db");
        bench.names = runtime().block_on(Seeds::sow(&path, &bench.cron));
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The store's URL.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("jobs.db").display())
    }

    /// The id of what was seeded under this name.
    pub(crate) fn id(&self, name: &str) -> String {
        let found = self.names.iter().find(|(_, known)| *known == name);
        found.unwrap_or_else(|| panic!("nothing is named {name}")).0.clone()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        for name in ["WINDLASS_SERVER", "WINDLASS_TOKEN", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
            command.env_remove(name);
        }
        // Names in braces stand for ids, and one for a cron expression.
        let arguments = arguments.iter().map(|argument| match argument.strip_prefix('{') {
            Some("cron}") => self.cron.clone(),
            Some(name) if self.names.values().any(|known| *known == name.trim_end_matches('}')) => {
                self.id(name.trim_end_matches('}'))
            }
            _ => (*argument).to_owned(),
        });
        command.args(arguments).current_dir(self.folder.path());
        command.env("WINDLASS_STORE", self.url()).env("USER", "ada").stdin(Stdio::null());
        command
    }

    /// Runs a command and gives what came of it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&self.command(arguments).output().expect("the binary runs"))
    }

    /// Runs a command that reads this from standard input.
    pub(crate) fn feed(&self, arguments: &[&str], text: &str) -> Ran {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
        Ran::of(&child.wait_with_output().expect("it ends"))
    }

    /// Runs commands one after the other, and gives what was typed and what came of it, scrubbed.
    pub(crate) fn told(&self, commands: &[&[&str]]) -> String {
        let mut text = String::new();
        for arguments in commands {
            let ran = self.run(arguments);
            text.push_str(&self.scrubbed(arguments, &ran));
        }
        text
    }

    /// What was typed and what came of it, without what differs from run to run.
    pub(crate) fn scrubbed(&self, arguments: &[&str], ran: &Ran) -> String {
        let mut text = format!("$ windlass {}\n", arguments.join(" "));
        text.push_str(&ran.stdout);
        for line in ran.stderr.lines() {
            writeln!(text, "! {line}").expect("text");
        }
        if ran.code != 0 {
            writeln!(text, "[exit {}]", ran.code).expect("text");
        }
        text.push('\n');
        let text = text.replace(&self.folder.path().display().to_string(), "[folder]").replace(&self.cron, CRON_SHOWN);
        narrowed(&scrub(&text, &self.names))
    }

    /// Stores a job whose worker went away an hour ago; gives its id.
    pub(crate) fn lose_a_lease(&mut self) -> String {
        let clock = ManualClock::at(SystemClock::default().now().minus(Duration::from_secs(3600)));
        let store = SqliteOptions::new(self.path("jobs.db")).clock(clock).open().expect("the store opens");
        let client = Client::with_store(std::sync::Arc::new(store));
        let id = runtime().block_on(async {
            let job = NewJob::new("import", Payload::default()).queue("lost");
            let id = client.enqueue(job).await.expect("enqueued").id;
            let worker = WorkerId::new("worker-gone").expect("a name");
            let claimed = client.store().claim(&ClaimRequest::new(worker, name("lost"), 1)).await.expect("claimed");
            assert_eq!(claimed.len(), 1);
            id.to_string()
        });
        self.names.insert(id.clone(), "lost".to_owned());
        id
    }

    /// Says that a worker for these queues lives, now.
    pub(crate) fn announce(&self, queues: &[&str]) {
        let served = queues.iter().map(|queue| ServedQueue { queue: name(queue), slots: 4, busy: 1 });
        let report = WorkerReport {
            id: WorkerId::new("worker-live").expect("a name"),
            host: "host-1".to_owned(),
            queues: served.collect(),
            types: None,
        };
        let store = SqliteStore::open(self.path("jobs.db")).expect("the store opens");
        runtime().block_on(store.announce(&report)).expect("announced");
    }
}

/// A server for a bench's store, in this process; it ends with this.
pub(crate) struct Server {
    pub(crate) url: String,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    /// The API of a bench's store.
    pub(crate) fn of(bench: &Bench) -> Self {
        let store = SqliteStore::open(bench.path("jobs.db")).expect("the store opens");
        let state = windlass_server::api::ApiState::new(Client::with_store(std::sync::Arc::new(store)));
        Server::with(windlass_server::api::router(state))
    }

    /// A server that allows nothing.
    pub(crate) fn refusing() -> Self {
        let refusal = || async {
            let error = windlass::Error::Unauthorized("a token is needed".to_owned());
            let problem = windlass_server::wire::Problem::of(&error);
            (axum::http::StatusCode::UNAUTHORIZED, axum::Json(problem))
        };
        Server::with(axum::Router::new().fallback(refusal))
    }

    /// The JSON that the server answers a GET with.
    pub(crate) fn get(&self, path: &str) -> serde_json::Value {
        use std::io::{Read, Write};
        let address = self.url.trim_start_matches("http://");
        let mut line = std::net::TcpStream::connect(address).expect("it listens");
        write!(line, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        line.read_to_string(&mut answer).expect("answered");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
    }

    fn with(router: axum::Router) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Server { url, _runtime: runtime }
    }
}

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let code = output.status.code().unwrap_or(-1);
        Ran { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn name(queue: &str) -> QueueName {
    QueueName::new(queue).expect("a name")
}

fn json(text: &str) -> Payload {
    Payload::json_text(text.to_owned()).expect("JSON")
}

/// Makes the content of a store, on a clock that stands two days ago.
struct Seeds {
    store: SqliteStore,
    client: Client,
    clock: ManualClock,
    names: HashMap<String, String>,
}

impl Seeds {
    async fn sow(path: &Path, cron: &str) -> HashMap<String, String> {
        let clock = ManualClock::at(SystemClock::default().now().minus(2 * DAY));
        let open = || SqliteOptions::new(path).clock(clock.clone()).open().expect("the store opens");
        let client = Client::with_store(std::sync::Arc::new(open()));
        let mut seeds = Seeds { store: open(), client, clock: clock.clone(), names: HashMap::new() };
        seeds.ended().await;
        seeds.unfinished().await;
        seeds.workflow().await;
        seeds.schedules(cron).await;
        seeds.names
    }

    async fn add(&mut self, named: &str, job: NewJob) -> JobId {
        let id = self.client.enqueue(job).await.expect("enqueued").id;
        self.names.insert(id.to_string(), named.to_owned());
        self.clock.advance(Duration::from_secs(1));
        id
    }

    async fn claim(&self, queue: &str) -> Claimed {
        let worker = WorkerId::new("worker-1").expect("a name");
        let mut request = ClaimRequest::new(worker, name(queue), 1);
        request.lease_time = Some(3 * DAY + HALF);
        let claimed = self.store.claim(&request).await.expect("claimed").pop().expect("a job");
        self.clock.advance(Duration::from_millis(250));
        claimed
    }

    async fn settle(&self, settle: impl FnOnce(Lease) -> Settlement, lease: Lease) {
        self.store.settle(&[settle(lease)]).await.expect("settled");
    }

    async fn ended(&mut self) {
        let job = |job_type: &str| NewJob::new(job_type, json("{\"to\":\"ada@example.com\"}")).queue("mail");
        self.add("completed", job("email.send").tag("customer", "42").idempotency_key("welcome-42")).await;
        let lease = self.claim("mail").await.lease;
        self.settle(|lease| lease.complete(Some(json("{\"sent\":true}"))), lease).await;
        self.add("failed", job("email.send").tag("customer", "43")).await;
        let lease = self.claim("mail").await.lease;
        let failure = Failure::permanent("no_address", "the user has no address");
        self.settle(|lease| lease.fail(failure, &mut || 0.5), lease).await;
        self.add("dead", job("email.send").max_attempts(1).correlation_id("order-7")).await;
        let lease = self.claim("mail").await.lease;
        // A hostile message must not reach the terminal as it is.
        let failure = Failure::temporary("cannot connect\u{1b}[2J to the server").with_code("smtp_down");
        self.settle(|lease| lease.fail(failure, &mut || 0.5), lease).await;
        let cancelled = self.add("cancelled", job("email.send").priority(Priority::Low)).await;
        self.operate(cancelled, Act::Cancel { force: false }, "wrong customer").await;
    }

    async fn operate(&self, id: JobId, act: Act, why: &str) {
        let target = Target::Jobs(vec![id]);
        let operation = Operation { target, act, by: Some("bob".to_owned()), why: why.to_owned(), dry_run: false };
        assert_eq!(self.store.operate(&operation).await.expect("operated").changed, 1);
    }

    async fn unfinished(&mut self) {
        let now = SystemClock::default().now();
        // Its lease ends in days, and no lease outlasts the execution timeout (T1b).
        let encode = NewJob::new("video.encode", json("{\"video\":9}")).queue("slow").execution_timeout(4 * DAY);
        self.add("running", encode).await;
        let lease = self.claim("slow").await.lease;
        let progress = Progress::new(0.4, "second pass").expect("progress");
        let save = Save::under(lease.key()).progress(progress).log(["first pass done".to_owned()]);
        self.store.save(&[save]).await.expect("saved");
        let retry = RetryPolicy::constant(3 * DAY + HALF, 3);
        self.add("retrying", NewJob::new("feed.poll", json("{\"feed\":7}")).queue("feeds").retry(retry)).await;
        let lease = self.claim("feeds").await.lease;
        let failure = Failure::temporary("timed out").with_code("http_timeout");
        self.settle(|lease| lease.fail(failure, &mut || 0.5), lease).await;
        let later = now.plus(4 * DAY + HALF);
        self.add("delayed", NewJob::new("report.build", Payload::default()).queue("slow").run_at(later)).await;
        let urgent = NewJob::new("email.send", json("{\"to\":\"bob@example.com\"}")).queue("mail");
        self.add("scheduled", urgent.priority(Priority::High).tag("customer", "42")).await;
        let on = self.id("delayed");
        self.add("pending", NewJob::new("report.send", Payload::default()).queue("mail").after([on])).await;
    }

    fn id(&self, named: &str) -> JobId {
        let found = self.names.iter().find(|(_, known)| *known == named).expect("seeded before");
        found.0.parse().expect("an id")
    }

    async fn workflow(&mut self) {
        let job = |job_type: &str| NewJob::new(job_type, json("{\"order\":42}")).queue("orders");
        let mut flow = Workflow::new("order-42");
        let charge = flow.add(job("charge"));
        let pack = flow.after([charge], job("pack"));
        let receipt = flow.after([charge], job("receipt"));
        flow.after([pack, receipt], job("close"));
        let started = self.client.start(flow).await.expect("started");
        self.names.insert(started.id.to_string(), "workflow".to_owned());
        for (step, named) in started.jobs.iter().zip(["charge", "pack", "receipt", "close"]) {
            self.names.insert(step.id.to_string(), named.to_owned());
        }
        let lease = self.claim("orders").await.lease;
        self.settle(|lease| lease.complete(None), lease).await;
    }

    async fn schedules(&mut self, cron: &str) {
        let job = |job_type: &str| self.client.check_job(NewJob::new(job_type, Payload::default())).expect("a job");
        let nightly = ScheduleSpec::cron("nightly", cron, "Europe/Berlin", job("report.build")).expect("a cron");
        // Its slots lie half a period from the time of the test, as those of the cron expression do.
        let every = Timing::Every { every: DAY + HALF, anchor: SystemClock::default().now().minus(HALF + HALF / 2) };
        let poll = ScheduleSpec { timing: every, ..ScheduleSpec::every("poll", DAY, job("feed.poll")) };
        for spec in [nightly, poll] {
            self.store.edit_schedule(&ScheduleEdit::Create(spec), None).await.expect("created");
        }
        self.store.edit_schedule(&ScheduleEdit::Pause("poll".to_owned()), None).await.expect("paused");
    }
}

// Scrubbing.

/// Text without ids, times and spans: seeded ids by their names, others by the order they come in.
fn scrub(text: &str, names: &HashMap<String, String>) -> String {
    let mut scrubbed = String::with_capacity(text.len());
    let mut others: Vec<String> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let fits = |pattern: &str| rest.len() >= pattern.len() && matches(rest, pattern);
        let taken = if fits(UUID) {
            let id = &rest[..UUID.len()];
            let shown = names.get(id).cloned().unwrap_or_else(|| {
                let place = others.iter().position(|other| other == id).unwrap_or_else(|| {
                    others.push(id.to_owned());
                    others.len() - 1
                });
                format!("new {}", place + 1)
            });
            write!(scrubbed, "[{shown}]").expect("text");
            UUID.len()
        } else if fits(TIME) {
            scrubbed.push_str("[time]");
            TIME.len()
        } else if fits(SECOND) {
            scrubbed.push_str("[time]");
            SECOND.len()
        } else if let Some((taken, shown)) = span(rest, &scrubbed) {
            scrubbed.push_str(shown);
            taken
        } else {
            let c = rest.chars().next().expect("not empty");
            scrubbed.push(c);
            c.len_utf8()
        };
        rest = &rest[taken..];
    }
    scrubbed
}

/// Text with one gap between columns: how wide they are depends on what was scrubbed.
fn narrowed(text: &str) -> String {
    let line = |line: &str| {
        let begin = line.len() - line.trim_start().len();
        let (indent, rest) = line.split_at(begin);
        let columns: Vec<_> = rest.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
        format!("{indent}{}\n", columns.join("  "))
    };
    text.lines().map(line).collect()
}

const UUID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
const TIME: &str = "0000-00-00T00:00:00.000000Z";
const SECOND: &str = "0000-00-00T00:00:00Z";

/// Whether text begins like a pattern, in which `x` is a hexadecimal digit and `0` a digit.
fn matches(text: &str, pattern: &str) -> bool {
    text.bytes().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
        b'x' => byte.is_ascii_hexdigit(),
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    })
}

/// A span of time such as `2d ago`, `in 4d`, `for 2d`, `0.1 s`, `0.3 ms`, or a cursor.
fn span<'a>(rest: &'a str, before: &str) -> Option<(usize, &'a str)> {
    if before.ends_with("--cursor ") || before.ends_with("\"next_cursor\": \"") {
        let end = rest.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(rest.len());
        return Some((end, "[cursor]"));
    }
    if before.chars().next_back().is_some_and(|c| c.is_ascii_alphanumeric() || "-:./".contains(c)) {
        return None;
    }
    if let Some(after) = rest.strip_prefix("now") {
        // A busy machine takes more than a second for what follows at once.
        let whole = after.is_empty() || after.starts_with([' ', '\n', '(']);
        return (whole && before.ends_with([' ', '\n'])).then_some((3, "[span] ago"));
    }
    let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let after = &rest[digits..];
    if digits == 0 {
        return None;
    }
    for unit in [" ms", " s", "ms", "d", "h", "m", "s"] {
        let Some(tail) = after.strip_prefix(unit) else { continue };
        let whole = !tail.starts_with(|c: char| c.is_ascii_alphanumeric());
        let told = tail.starts_with(" ago")
            || [" in ", "for ", "again ", "are "].iter().any(|word| before.ends_with(word))
            || before.ends_with("in ")
            || unit.starts_with(' ');
        return (whole && told).then_some((digits + unit.len(), "[span]"));
    }
    None
}

#[test]
fn what_differs_from_run_to_run_is_scrubbed() {
    let id = "3f0c0a6e-6f6b-4b0e-9c58-0a3c5b0f2d11";
    let names = HashMap::from([(id.to_owned(), "dead".to_owned())]);
    let text = format!("{id} a1b2c3d4-0000-4000-8000-000000000000 2d ago in 4d (2026-11-01T12:00:00.000001Z) 90s 1/3");
    assert_eq!(scrub(&text, &names), "[dead] [new 1] [span] ago in [span] ([time]) 90s 1/3");
    assert_eq!(narrowed("  a    b  c\n"), "  a  b  c\n");
    assert_eq!(scrub("ended now (x) nowhere", &names), "ended [span] ago (x) nowhere");
    assert_eq!(scrub("done in 0.1 s, --cursor abc.def x", &names), "done in [span], --cursor [cursor] x");
}

#[test]
fn no_seeded_slot_is_near_at_any_hour() {
    for hour in 0..24 {
        for minute in [0, 1, 30, 59] {
            let now = Timestamp::from_micros((20_000 * 24 + hour) * 3_600_000_000 + minute * 60_000_000);
            for zone in ["UTC", "Europe/Berlin"] {
                let cron = windlass::schedule::Cron::new(&far_cron(now), zone).expect("a cron");
                let next = cron.next_after(now.minus(DAY)).expect("a slot");
                let apart = (now.as_micros() - next.as_micros()).unsigned_abs() / 3_600_000_000;
                assert!((9..=14).contains(&apart), "{apart} hours at {now} in {zone}");
            }
        }
    }
}
