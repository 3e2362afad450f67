//! A real process, really killed: what it acknowledged must be there, and nothing else.
//!
//! The test starts itself as a child that enqueues, claims and settles under load and prints each operation once the
//! store has acknowledged it. At a random moment it is killed with SIGKILL; the parent opens the file and compares.
//! Every round goes on with the file of the last. `WINDLASS_CRASH_ROUNDS` asks for more than the usual 25.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use windlass::job::{Limits, Outcome, WorkerId};
use windlass::store::SqliteStore;
use windlass::store::{ClaimRequest, Filter, ListQuery, Settled, Store, Upkeep};
use windlass::workflow::Submission;
use windlass::{Failure, JobId, JobRecord, NewJob, Payload, Policies, QueueName, State};

const CHILD: &str = "WINDLASS_CRASH_CHILD";
const ROUNDS: &str = "WINDLASS_CRASH_ROUNDS";
const ROUNDS_USUAL: usize = 25;
/// How long a child may live after its first word, at most.
const LIFE_MAX_MS: u64 = 250;
const ENQUEUERS: usize = 4;
const ENQUEUE_MAX: usize = 5;
const WORKERS: usize = 3;
const CLAIM_MAX: usize = 8;
const LEASE: Duration = Duration::from_millis(300);
/// Fewer acknowledged operations than this in all rounds prove nothing.
const OPERATIONS_MIN: usize = 2000;

fn main() -> ExitCode {
    if let Some(path) = std::env::var_os(CHILD) {
        runtime().block_on(child(Path::new(&path)));
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let trial = Trial::test("what_was_acknowledged_survives_sigkill", || {
        let rounds = std::env::var(ROUNDS).ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS_USUAL);
        survive(rounds).map_err(Failed::from)
    });
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

/// Says that an operation was acknowledged; the line is in the pipe when this returns.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("the parent reads");
}

async fn child(path: &Path) {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path).expect("the file opens"));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..ENQUEUERS {
        tasks.spawn(enqueue(Arc::clone(&store)));
    }
    for _ in 0..WORKERS {
        tasks.spawn(work(Arc::clone(&store)));
    }
    tasks.spawn(async move {
        loop {
            store.upkeep(&Upkeep::default()).await.expect("upkeep");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task ends by itself");
    }
}

async fn enqueue(store: Arc<dyn Store>) {
    loop {
        let specs = (0..fastrand::usize(1..=ENQUEUE_MAX)).map(|number| {
            let job = NewJob::new("crash", Payload::json(&number).expect("a number is JSON")).max_attempts(100);
            job.check(&Limits::default(), &Policies::default()).expect("a valid job")
        });
        let submission = Submission::new(specs.collect()).expect("a valid batch");
        let inserted = store.insert(submission).await.expect("insert");
        for job in inserted.jobs {
            say(&format!("enqueued {}", job.id));
        }
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2000))).await;
    }
}

async fn work(store: Arc<dyn Store>) {
    let worker = WorkerId::new(format!("worker-{}", fastrand::u64(..))).expect("a name");
    let request = ClaimRequest {
        lease_time: Some(LEASE),
        ..ClaimRequest::new(worker, QueueName::default(), fastrand::usize(1..=CLAIM_MAX))
    };
    loop {
        let claimed = store.claim(&request).await.expect("claim");
        let mut settlements = Vec::new();
        for claimed in claimed {
            say(&format!("claimed {} {}", claimed.job.id, claimed.lease.version()));
            let version = claimed.lease.version();
            settlements.push((
                version,
                match fastrand::u8(0..10) {
                    0 => {
                        claimed.lease.fail(Failure::temporary("again").retry_after(Duration::ZERO), &mut fastrand::f64)
                    }
                    1 => claimed.lease.fail(Failure::permanent("bad", "never"), &mut fastrand::f64),
                    2 => claimed.lease.release(),
                    // Left to expire.
                    3 => continue,
                    _ => claimed.lease.complete(None),
                },
            ));
        }
        let (versions, settlements): (Vec<_>, Vec<_>) = settlements.into_iter().unzip();
        let answers = store.settle(&settlements).await.expect("settle");
        for ((settlement, answer), version) in settlements.iter().zip(answers).zip(versions) {
            if let Settled::Applied(_) = answer {
                let (job, outcome) = (settlement.key().job, settlement.outcome().as_str());
                say(&format!("settled {job} {version} {outcome}"));
            }
        }
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2000))).await;
    }
}

/// What all children so far were told.
#[derive(Default)]
struct Acknowledged {
    enqueued: BTreeSet<JobId>,
    claimed: BTreeSet<(JobId, u64)>,
    settled: BTreeMap<(JobId, u64), String>,
}

impl Acknowledged {
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let id = |text: &str| text.parse::<JobId>().expect("a child prints ids");
        match words.as_slice() {
            ["enqueued", job] => {
                self.enqueued.insert(id(job));
            }
            ["claimed", job, version] => {
                self.claimed.insert((id(job), version.parse().expect("a number")));
            }
            ["settled", job, version, outcome] => {
                self.settled.insert((id(job), version.parse().expect("a number")), (*outcome).to_owned());
            }
            _ => panic!("a child said {line:?}"),
        }
    }
}

fn survive(rounds: usize) -> Result<(), String> {
    let folder = tempfile::TempDir::new().map_err(|error| error.to_string())?;
    let path = folder.path().join("crash.db");
    let mut acknowledged = Acknowledged::default();
    for round in 1..=rounds {
        run_and_kill(&path, &mut acknowledged)?;
        runtime().block_on(compare(&path, &acknowledged, round)).map_err(|found| format!("round {round}: {found}"))?;
    }
    let Acknowledged { enqueued, claimed, settled } = &acknowledged;
    let operations = enqueued.len() + claimed.len() + settled.len();
    println!(
        "{rounds} kills: {} enqueues, {} claims, {} settlements acknowledged, none lost",
        enqueued.len(),
        claimed.len(),
        settled.len()
    );
    if rounds >= ROUNDS_USUAL && operations < OPERATIONS_MIN {
        return Err(format!("only {operations} operations were acknowledged: the run proves nothing"));
    }
    Ok(())
}

fn run_and_kill(path: &Path, acknowledged: &mut Acknowledged) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let child = Command::new(program).env(CHILD, path).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| error.to_string())?;
    let mut said = BufReader::new(child.stdout.take().expect("its output is piped"));
    let mut line = String::new();
    let mut killer = None;
    loop {
        line.clear();
        let read = said.read_line(&mut line).map_err(|error| error.to_string())?;
        // A line that was cut off was still being said, and so not acknowledged to anyone.
        if read == 0 || !line.ends_with('\n') {
            break;
        }
        acknowledged.hear(line.trim_end());
        if killer.is_none() {
            let pid = child.id();
            killer = Some(std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(fastrand::u64(1..LIFE_MAX_MS)));
                Command::new("kill").args(["-9", &pid.to_string()]).status()
            }));
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if let Some(killer) = killer {
        killer.join().expect("the killer sleeps and kills").map_err(|error| error.to_string())?;
    }
    if status.code().is_some() {
        return Err(format!("a child ended by itself: {status}"));
    }
    Ok(())
}

async fn compare(path: &Path, acknowledged: &Acknowledged, rounds: usize) -> Result<(), String> {
    let store = SqliteStore::open(path).map_err(|error| error.to_string())?;
    let findings = store.check().await.map_err(|error| error.to_string())?;
    if !findings.is_empty() {
        return Err(format!("contradictions: {findings:?}"));
    }
    let jobs = all_jobs(&store).await.map_err(|error| error.to_string())?;
    if let Some(lost) = acknowledged.enqueued.iter().find(|id| !jobs.contains_key(id)) {
        return Err(format!("job {lost} was acknowledged and is gone"));
    }
    // Only what was under way when a child was killed may be there unacknowledged.
    let more = jobs.len() - acknowledged.enqueued.len();
    if more > rounds * ENQUEUERS * ENQUEUE_MAX {
        return Err(format!("{more} jobs are there that nobody acknowledged"));
    }
    let mut unheard = 0;
    for job in jobs.values() {
        unheard += compare_attempts(&store, job, acknowledged).await?;
    }
    if unheard > rounds * WORKERS * CLAIM_MAX {
        return Err(format!("{unheard} settlements are there that nobody acknowledged"));
    }
    Ok(())
}

/// Compares a job's attempts with what was said of them; gives how many settlements nobody heard of.
async fn compare_attempts(store: &SqliteStore, job: &JobRecord, acknowledged: &Acknowledged) -> Result<usize, String> {
    let attempts = store.attempts(job.id).await.map_err(|error| error.to_string())?;
    let mut unheard = 0;
    for version in 1..=job.lease_version {
        let attempt = attempts.iter().find(|attempt| attempt.lease_version == version);
        let attempt = attempt.ok_or_else(|| format!("attempt {version} of job {} is gone", job.id))?;
        let said = acknowledged.settled.get(&(job.id, version)).map(String::as_str);
        match attempt.outcome {
            outcome if said.is_some() && outcome.map(Outcome::as_str) != said => {
                return Err(format!("attempt {version} of job {} was settled {said:?}, but is {outcome:?}", job.id));
            }
            Some(Outcome::Lost) | None => {}
            Some(Outcome::Completed | Outcome::Failed | Outcome::Released) => unheard += usize::from(said.is_none()),
            Some(other) => return Err(format!("attempt {version} of job {} ended {other:?}", job.id)),
        }
    }
    let newest = acknowledged.claimed.range((job.id, 0)..=(job.id, u64::MAX)).next_back();
    if newest.is_some_and(|(_, version)| *version > job.lease_version) {
        return Err(format!("a claim of job {} is gone", job.id));
    }
    let last = attempts.last().and_then(|attempt| attempt.outcome);
    if (last == Some(Outcome::Completed)) != (job.state == State::Completed) {
        return Err(format!("job {} is {} after its last attempt ended {last:?}", job.id, job.state));
    }
    Ok(unheard)
}

async fn all_jobs(store: &SqliteStore) -> windlass::Result<HashMap<JobId, JobRecord>> {
    let mut jobs = HashMap::new();
    let mut query = ListQuery { filter: Filter::default(), limit: 1000, after: None, ..ListQuery::default() };
    loop {
        let page = store.list(&query).await?;
        jobs.extend(page.items.into_iter().map(|job| (job.id, job)));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(jobs),
        }
    }
}
