//! A run of many processes on one store, and everything that goes wrong around them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use windlass::Client;
use windlass::store::{self, ScheduleEdit, Store};

use super::actors::{self, SCHEDULES, Tempo};
use super::check::{Violation, check};
use super::dump::dump;
use super::faults::{FailsOver, Fault, Kind, least, plan};
use super::fleet::Fleet;
use super::history::{self, Event, Line, Log};
use super::process::{Orders, Role};
use super::report::{JOBS_PER_SECOND_MIN, Least, Report};
use super::server::{Server, with_parameter, without_own_parameters};

/// How long a worker's lease holds: short, so that much is lost and taken back.
const LEASE: Duration = Duration::from_secs(1);
/// Between two calls of a producer.
const PAUSE: Duration = Duration::from_millis(25);
/// How often the processes are looked after.
const TEND_EVERY: Duration = Duration::from_millis(20);
/// How long the store must stand still with unfinished jobs before they count as stuck: two leases and the longest
/// backoff, delay or lifetime of a job, with room for a busy machine.
const STILL_MAX: Duration = Duration::from_secs(15);
/// How long the end may take in all.
const DRAIN_MAX: Duration = Duration::from_secs(180);

/// What to torture, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The store's URL.
    pub store: String,
    /// How long faults are injected.
    pub length: Duration,
    /// How many worker processes there are.
    pub workers: usize,
    /// What everything but the timing follows from.
    pub seed: u64,
    /// The folder of a private PostgreSQL server that may be killed.
    pub server_dir: Option<PathBuf>,
    /// The folder of a primary and its standby that may be failed over.
    pub pair: Option<PathBuf>,
    /// A command that disturbs the store in the user's own way.
    pub fault_command: Option<String>,
    /// Where the histories go; they then stay.
    pub history: Option<PathBuf>,
    /// The `windlass-torture` binary.
    pub program: PathBuf,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// Its numbers.
    pub report: Report,
    /// What was wrong.
    pub violations: Vec<Violation>,
    /// The histories, in the order of time.
    pub lines: Vec<Line>,
    /// Where they are kept, if they are.
    pub folder: Option<PathBuf>,
    /// Processes that did not end as they should.
    pub failed: Vec<String>,
}

/// A number of a run under way.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Faults so far, without those that other processes inject.
    pub faults: usize,
    /// Jobs accepted so far.
    pub jobs: Option<u64>,
    /// Jobs that have not ended.
    pub unfinished: Option<u64>,
}

/// Where a run's store is, and what can be done to it.
struct Place {
    /// For the processes of the run.
    url: String,
    kinds: Vec<Kind>,
    server: Option<Server>,
    /// A schema that was made for this run.
    schema: Option<String>,
    /// A file that was made for this run.
    file: Option<PathBuf>,
}

/// Tortures a store with processes and tells how it goes.
pub async fn run(settings: &Settings, tell: impl Fn(Progress)) -> anyhow::Result<Outcome> {
    let mut place = place(settings)?;
    let opened = store::open(&place.url).await;
    let store = opened.with_context(|| format!("cannot open {}", store::redacted(&place.url)))?;
    anyhow::ensure!(
        store.observe(None).await.map(|seen| seen.totals())?.accepted == 0,
        "the store holds jobs; torture needs one of its own"
    );
    // Only now: a run that cannot begin leaves no folder.
    let (folder, keep) = folder(settings)?;
    actors::put_schedules(&Client::with_store(Arc::clone(&store))).await?;
    let log = Arc::new(Log::create(&folder, "torture")?);
    let server = place.server.take().map(|server| Arc::new(Mutex::new(server)));
    let mut run =
        Run { settings, store, log, server, tell: &tell, begun: Instant::now(), faults: 0, failed: Vec::new() };
    let (stop, told) = (CancellationToken::new(), Arc::new(Log::create(&folder, "regulator")?));
    let regulating = actors::put_controls(run.store.as_ref(), &told).await?.then(|| {
        let tempo = Tempo { lease: LEASE, pause: PAUSE };
        tokio::spawn(actors::regulate(Arc::clone(&run.store), told, settings.seed, tempo, stop.clone()))
    });
    let mut fleet = run.fleet(&place, &folder)?;
    run.disturb(&mut fleet, &place.kinds).await?;
    stop.cancel();
    if let Some(regulating) = regulating {
        regulating.await?;
    }
    let length = run.begun.elapsed();
    let drain = run.drain(&mut fleet).await?;
    let dump = dump(run.store.as_ref()).await.context("cannot read the store at the end")?;
    let lines = history::read_all(&folder)?;
    let violations = check(&lines, &dump);
    let promoted = lines.iter().any(|line| line.event == Event::Promoted);
    let fails_over = match (&settings.pair, &settings.fault_command) {
        (Some(_), _) => FailsOver::Pair,
        (None, Some(_)) if promoted => FailsOver::Command,
        _ => FailsOver::Nobody,
    };
    let counted: Vec<Kind> = place.kinds.iter().copied().filter(|kind| fails_over.counts(*kind)).collect();
    let least = Least {
        jobs: (settings.length.as_secs_f64() * JOBS_PER_SECOND_MIN) as usize,
        faults: least(settings.length, &counted),
        unknown_outcomes: usize::from(run.server.is_some()),
        promotions: fails_over.least_promotions(settings.length),
    };
    let kind = run.store.kind();
    let mut report = Report::new(settings.seed, kind, &lines, &dump, &violations, &least);
    (report.seconds, report.drain_seconds) = (length.as_secs_f64(), drain.as_secs_f64());
    let failed = std::mem::take(&mut run.failed);
    let good = violations.is_empty() && failed.is_empty();
    if !good {
        std::fs::write(folder.join("store.json"), serde_json::to_vec(&dump)?)?;
    }
    let server = run.server.take();
    drop(run);
    if good {
        place.clean_up(server).await?;
        if !keep {
            std::fs::remove_dir_all(&folder)?;
        }
    }
    let folder = (keep || !good).then_some(folder);
    Ok(Outcome { report, violations, lines, folder, failed })
}

/// The folder of the histories, and whether it stays in any case.
fn folder(settings: &Settings) -> anyhow::Result<(PathBuf, bool)> {
    let folder = match &settings.history {
        Some(folder) => folder.clone(),
        None => std::env::temp_dir().join(format!("windlass-torture-{}-{}", settings.seed, std::process::id())),
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let empty = std::fs::read_dir(&folder)?.next().is_none();
    anyhow::ensure!(empty, "{} must be empty: histories of two runs would be one", folder.display());
    Ok((std::path::absolute(folder)?, settings.history.is_some()))
}

fn place(settings: &Settings) -> anyhow::Result<Place> {
    let url = &settings.store;
    let mut kinds = Kind::WORKERS.to_vec();
    if settings.fault_command.is_some() {
        kinds.push(Kind::Command);
    }
    if let Some(path) = url.strip_prefix("sqlite:") {
        let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
        kinds.extend(Kind::FILE);
        let file = Some(path.clone()).filter(|path| !path.exists());
        return Ok(Place { url: url.clone(), kinds, server: None, schema: None, file });
    }
    anyhow::ensure!(url.starts_with("postgres"), "torture needs sqlite:PATH, postgres://… or memory:");
    // Its own schema and its own name, so that nothing of anybody else's is touched.
    let name = format!("windlass_torture_{:x}_{}", settings.seed & 0xffff_ffff, std::process::id());
    let (plain, schema) = without_own_parameters(url);
    let mut with = with_parameter(url, "application_name", &name);
    let made = schema.is_none().then(|| name.clone());
    if schema.is_none() {
        with = with_parameter(&with, "schema", &name);
    }
    kinds.push(Kind::EndSessions);
    if settings.server_dir.is_some() {
        kinds.extend([Kind::KillBackend, Kind::KillServer]);
    }
    let server = Server::new(plain, name, settings.server_dir.clone(), settings.pair.clone());
    kinds.extend(server.pair_kinds());
    Ok(Place { url: with, kinds, server: Some(server), schema: made, file: None })
}

impl Place {
    async fn clean_up(&self, server: Option<Arc<Mutex<Server>>>) -> anyhow::Result<()> {
        if let (Some(server), Some(schema)) = (server, &self.schema) {
            server.lock().await.ask(&format!("drop schema {schema} cascade")).await?;
        }
        if let Some(file) = &self.file {
            for end in ["", "-wal", "-shm", "-next", "-now"] {
                let mut name = file.as_os_str().to_owned();
                name.push(end);
                // Not all of them are there.
                let _ = std::fs::remove_file(PathBuf::from(name));
            }
        }
        Ok(())
    }
}

struct Run<'a, T> {
    settings: &'a Settings,
    store: Arc<dyn Store>,
    log: Arc<Log>,
    server: Option<Arc<Mutex<Server>>>,
    tell: &'a T,
    begun: Instant,
    faults: usize,
    failed: Vec<String>,
}

impl<T: Fn(Progress)> Run<'_, T> {
    fn fleet(&self, place: &Place, folder: &Path) -> anyhow::Result<Fleet> {
        let orders = Orders {
            role: Role::Worker,
            name: String::new(),
            store: place.url.clone(),
            folder: folder.to_owned(),
            seed: self.settings.seed,
            lease_millis: u64::try_from(LEASE.as_millis())?,
            pause_millis: u64::try_from(PAUSE.as_millis())?,
        };
        let mut fleet = Fleet::new(self.settings.program.clone(), orders, Arc::clone(&self.log));
        for _ in 0..self.settings.workers {
            fleet.start(Role::Worker)?;
        }
        fleet.start(Role::Producer(0))?;
        fleet.start(Role::Producer(1))?;
        fleet.start(Role::Zombie)?;
        let on_file: Vec<Kind> = place.kinds.iter().copied().filter(|kind| Kind::FILE.contains(kind)).collect();
        if !on_file.is_empty() {
            fleet.start(Role::Disturber(plan(self.settings.seed, self.settings.length, &on_file)))?;
        }
        Ok(fleet)
    }

    /// Injects the faults of the plan until the time is over.
    async fn disturb(&mut self, fleet: &mut Fleet, kinds: &[Kind]) -> anyhow::Result<()> {
        let own: Vec<Kind> = kinds.iter().copied().filter(|kind| !Kind::FILE.contains(kind)).collect();
        let mut faults = plan(self.settings.seed, self.settings.length, &own).into_iter().peekable();
        // Only one thing at a time is done to a server; what falls due meanwhile comes after it.
        let mut on_server = tokio::task::JoinSet::new();
        let mut told = Instant::now();
        while self.begun.elapsed() < self.settings.length {
            while let Some(fault) = faults.next_if(|fault| fault.at <= self.begun.elapsed()) {
                self.faults += 1;
                if Kind::WORKERS.contains(&fault.kind) {
                    fleet.hit(fault.kind, fault.target, LEASE.mul_f64(1.2 + fault.length * 1.5))?;
                } else {
                    let (server, log) = (self.server.clone(), Arc::clone(&self.log));
                    let command = self.settings.fault_command.clone();
                    let until = self.begun + self.settings.length;
                    on_server.spawn(async move { hit_store(fault, server, command, &log, until).await });
                }
            }
            self.failed.extend(fleet.tend()?);
            while let Some(ended) = on_server.try_join_next() {
                ended??;
            }
            if told.elapsed() > Duration::from_millis(500) {
                told = Instant::now();
                self.tell().await;
            }
            tokio::time::sleep(TEND_EVERY).await;
        }
        while let Some(ended) = on_server.join_next().await {
            ended??;
        }
        fleet.wake_all();
        Ok(())
    }

    /// Waits until every job has ended or nothing moves any more; then stops everybody.
    async fn drain(&mut self, fleet: &mut Fleet) -> anyhow::Result<Duration> {
        let since = Instant::now();
        self.failed.extend(fleet.stop(false).await?);
        for name in SCHEDULES {
            let pause = ScheduleEdit::Pause(name.to_owned());
            while let Err(error) = self.store.edit_schedule(&pause, Some("torture")).await {
                anyhow::ensure!(since.elapsed() < DRAIN_MAX, "the store does not come back: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        let (mut fewest, mut moved) = (u64::MAX, Instant::now());
        while since.elapsed() < DRAIN_MAX && moved.elapsed() < STILL_MAX {
            self.failed.extend(fleet.tend()?);
            while fleet.workers() < self.settings.workers {
                fleet.start(Role::Worker)?;
            }
            match actors::unfinished(self.store.as_ref()).await {
                Some(0) => break,
                Some(left) if left < fewest => (fewest, moved) = (left, Instant::now()),
                _ => {}
            }
            self.tell().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let drained = since.elapsed();
        self.failed.extend(fleet.stop(true).await?);
        Ok(drained)
    }

    async fn tell(&self) {
        let totals =
            tokio::time::timeout(Duration::from_millis(200), self.store.totals()).await.ok().and_then(Result::ok);
        let open = |totals: &windlass::store::Totals| totals.states[..5].iter().sum();
        (self.tell)(Progress {
            elapsed: self.begun.elapsed(),
            faults: self.faults,
            jobs: totals.as_ref().map(|totals| totals.accepted),
            unfinished: totals.as_ref().map(open),
        });
    }
}

/// Runs the user's own command. A line `promoted` that it prints says that a standby was promoted just then.
async fn run_command(command: &str, log: &Log) -> anyhow::Result<()> {
    use tokio::io::AsyncBufReadExt;
    let mut shell = tokio::process::Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = shell.spawn().context("cannot run the fault command")?;
    let said = running.stdout.take().context("the fault command has no output")?;
    let mut said = tokio::io::BufReader::new(said).lines();
    while let Some(line) = said.next_line().await? {
        if line.trim() == "promoted" {
            log.write(Event::Promoted);
        }
    }
    let status = running.wait().await?;
    anyhow::ensure!(status.success(), "the fault command ended with {status}");
    Ok(())
}

/// Does to the store what the plan says.
async fn hit_store(
    fault: Fault,
    server: Option<Arc<Mutex<Server>>>,
    command: Option<String>,
    log: &Log,
    until: Instant,
) -> anyhow::Result<()> {
    let note = || log.write(Event::Fault { kind: fault.kind.as_str().to_owned(), target: None });
    if let (Kind::Command, Some(command)) = (fault.kind, command) {
        // Only one thing at a time, the user's own commands included.
        let _turn = match &server {
            Some(server) => Some(server.lock().await),
            None => None,
        };
        if Instant::now() >= until {
            return Ok(());
        }
        note();
        return run_command(&command, log).await;
    }
    let Some(server) = server else { return Ok(()) };
    let mut server = server.lock().await;
    // What others kept waiting until the time was over is left out.
    if Instant::now() >= until {
        return Ok(());
    }
    match fault.kind {
        kind if Kind::PAIR.contains(&kind) || matches!(kind, Kind::Partition | Kind::ClockStep) => {
            note();
            server.hit_pair(kind, fault.length, log).await?;
        }
        Kind::KillServer => {
            note();
            server.kill_and_restart().await?;
        }
        // A server that is just restarting its processes after the last one was killed has no sessions to end.
        Kind::KillBackend => {
            if server.kill_backend(fault.target).await.is_ok() {
                note();
            }
        }
        _ => {
            if server.end_sessions(fault.target).await.is_ok_and(|ended| ended > 0) {
                note();
            }
        }
    }
    Ok(())
}
