//! Processes that end with the test, and a small HTTP client and server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use windlass::{Client, JobId, JobRecord, State};

/// Longer than anything here takes, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(40);

/// A folder of its own, with a store in it.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Place { folder: TempDir::new().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.path("jobs.db").display())
    }

    pub(crate) async fn client(&self) -> Client {
        Client::open(&self.store()).await.expect("the store opens")
    }

    /// Starts the binary on this folder's store.
    pub(crate) fn start(&self, arguments: &[&str]) -> Process {
        let mut command = windlass();
        command.args(arguments).env("WINDLASS_STORE", self.store()).current_dir(self.folder.path());
        Process::start(command)
    }
}

/// The binary, with nothing of ours in its environment.
pub(crate) fn windlass() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINDLASS_")) {
        command.env_remove(name);
    }
    command
}

/// A process that is killed with the test, and what it says.
pub(crate) struct Process {
    child: Child,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let out = collect(child.stdout.take().expect("piped"));
        let err = collect(child.stderr.take().expect("piped"));
        Process { child, out, err }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn out(&self) -> String {
        self.out.lock().expect("lock").clone()
    }

    pub(crate) fn err(&self) -> String {
        self.err.lock().expect("lock").clone()
    }

    /// The line in which a server says that it started.
    pub(crate) fn started(&mut self) -> Value {
        until("it started", || {
            assert!(self.child.try_wait().expect("a process").is_none(), "it ended: {}", self.err());
            self.out().contains('\n')
        });
        serde_json::from_str(self.out().lines().next().expect("a line")).expect("JSON")
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a process") {
                // What it said last may still be in the pipe.
                std::thread::sleep(Duration::from_millis(50));
                return status;
            }
            assert!(begun.elapsed() < SOON, "it does not end: {} {}", self.out(), self.err());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(from: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let kept = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&kept);
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            into.lock().expect("lock").push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    kept
}

/// Waits until something is so; fails when it does not become so soon.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "{what}: not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a job is in a state.
pub(crate) async fn reaches(client: &Client, id: JobId, state: State) -> JobRecord {
    let begun = Instant::now();
    loop {
        let job = client.job(id).await.expect("a job");
        if job.state == state {
            return job;
        }
        assert!(begun.elapsed() < SOON, "{id} is {}, not {state}: {:?}", job.state, job.failure);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One request to a server; gives the status and the body.
pub(crate) fn http(base: &str, request: &str, headers: &str, body: &str) -> (u16, String) {
    let address = base.strip_prefix("http://").expect("an http address");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let text = format!(
        "{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// A program in a folder.
pub(crate) fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("made executable");
    path
}
