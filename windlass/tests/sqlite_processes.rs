//! Several processes on one SQLite file, and one that may not write to it. The test starts itself as the other process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use windlass::job::{JobSpec, Limits};
use windlass::store::SqliteStore;
use windlass::store::Store;
use windlass::workflow::Submission;
use windlass::{NewJob, Payload, Policies};

const CHILD: &str = "WINDLASS_PROCESSES_CHILD";
const FILE: &str = "WINDLASS_PROCESSES_FILE";
/// How long a process may wait for its turn while another never pauses. Polling by SQLite's own means waits up to
/// seconds; taking turns, some milliseconds on an idle machine.
const TURN_MAX: Duration = Duration::from_secs(1);
/// A user who owns nothing.
const NOBODY: u32 = 65534;

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(CHILD) {
        let path = PathBuf::from(std::env::var_os(FILE).expect("the parent names a file"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.expect("a runtime").block_on(child(&role, &path));
    }
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("a_saturated_process_lets_another_have_its_turn", || take_turns().map_err(Failed::from)),
        Trial::test("a_file_that_may_not_be_written_to_is_refused_clearly", || read_only().map_err(Failed::from)),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

async fn child(role: &str, path: &Path) -> ExitCode {
    match role {
        "saturate" => saturate(path).await,
        "read-only" => write_in_vain(path).await,
        other => panic!("no such role: {other}"),
    }
}

fn start(program: &Path, role: &str, path: &Path) -> Command {
    let mut command = Command::new(program);
    command.env(CHILD, role).env(FILE, path);
    command
}

fn this_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| error.to_string())
}

fn spec() -> JobSpec {
    let job = NewJob::new("test", Payload::default());
    job.check(&Limits::default(), &Policies::default()).expect("a valid job")
}

fn batch(count: usize) -> Submission {
    Submission::new(vec![spec(); count]).expect("a batch")
}

/// Writes without a pause until it is killed.
async fn saturate(path: &Path) -> ExitCode {
    let store = std::sync::Arc::new(SqliteStore::open(path).expect("open"));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let store = std::sync::Arc::clone(&store);
        tasks.spawn(async move {
            loop {
                store.insert(batch(20)).await.expect("insert");
            }
        });
    }
    tasks.join_next().await;
    ExitCode::FAILURE
}

/// A child that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn take_turns() -> Result<(), String> {
    let folder = tempfile::TempDir::new().map_err(|error| error.to_string())?;
    let path = folder.path().join("jobs.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let store = SqliteStore::open(&path).map_err(|error| error.to_string())?;
        let _other = Killed(start(&this_program()?, "saturate", &path).spawn().map_err(|error| error.to_string())?);
        // Wait until the other is busy.
        let deadline = Instant::now() + Duration::from_secs(30);
        while store.observe(None).await.map(|seen| seen.totals()).map_err(|error| error.to_string())?.accepted < 1000 {
            if Instant::now() > deadline {
                return Err("the other process does not write".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut waits = Vec::new();
        for _ in 0..200 {
            let before = Instant::now();
            store.insert(batch(1)).await.map_err(|error| error.to_string())?;
            waits.push(before.elapsed());
        }
        waits.sort();
        println!(
            "waits of a process beside a saturated one: p50 {:?}, p99 {:?}, max {:?}",
            waits[100], waits[197], waits[199]
        );
        if waits[197] > TURN_MAX {
            return Err(format!("a process waited {:?} for its turn", waits[197]));
        }
        Ok(())
    })
}

/// Runs as a user who may read the file and not write to it.
async fn write_in_vain(path: &Path) -> ExitCode {
    // Tables that are up to date need no writing, so the file opens and can be looked at, or is refused as it is.
    let error = match SqliteStore::open(path) {
        Err(error) => error,
        Ok(store) => store.insert(batch(1)).await.expect_err("the file may not be written to"),
    };
    println!("{error}");
    match error.name() == "StoreUnavailable" && error.outcome_is_known() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn read_only() -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let folder = tempfile::TempDir::new().map_err(|error| error.to_string())?;
    let path = folder.path().join("jobs.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let store = SqliteStore::open(&path).map_err(|error| error.to_string())?;
    runtime.block_on(store.insert(batch(1))).map_err(|error| error.to_string())?;
    drop(store);
    // A copy, because the other user may not be allowed to go where this program is.
    let program = folder.path().join("program");
    std::fs::copy(this_program()?, &program).map_err(|error| error.to_string())?;
    let allow = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    allow(&path, 0o444).and_then(|()| allow(folder.path(), 0o555)).map_err(|error| error.to_string())?;
    let mut command = start(&program, "read-only", &path);
    // The superuser may write to anything; so if this is one, the other is not.
    if std::fs::OpenOptions::new().write(true).open(&path).is_ok() {
        command.uid(NOBODY);
    }
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().map_err(|error| error.to_string())?;
    allow(folder.path(), 0o755).and_then(|()| allow(&path, 0o644)).map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("the refusal is not clear: {said}"));
    }
    let store = SqliteStore::open(&path).map_err(|error| error.to_string())?;
    runtime.block_on(store.insert(batch(1))).map_err(|error| format!("it can be written to again: {error}"))?;
    Ok(())
}
