//! What each process saw, in the order in which it saw it.
//!
//! A history is a file of one JSON line for each event. A line is in the file before what it tells is acted on: what a
//! call asks for before it is sent, what it answered before the answer is handed on. So a process may be killed at any
//! instant, and what it did not write down, nobody acted on. The operating system keeps what was written when a
//! process dies, so nothing is synced.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use windlass::job::{Outcome, Stale};
use windlass::{JobId, State};

/// One event of one process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// When, in microseconds of the machine's monotonic clock: comparable between processes, untouched by clock jumps.
    pub at: u64,
    /// Which process, by a name that is new at every start.
    pub by: String,
    /// What happened.
    pub event: Event,
}

/// What happened. Times named `before`, `after`, `started` and `expires` are the store's, in microseconds since 1970.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The process began.
    Started {
        /// What it does: `worker`, `producer`, `zombie`, …
        role: String,
        /// Its process id.
        pid: u32,
    },
    /// The process ended of its own accord, with nothing left to settle.
    Stopped,
    /// Jobs are about to be enqueued in one call.
    EnqueueSent {
        /// Which call of this process.
        call: u64,
        /// The correlation id that all jobs of the call carry, if one was given.
        batch: Option<String>,
        /// The idempotency key of each job, with its scope.
        keys: Vec<Option<String>>,
        /// The type of each job.
        #[serde(default)]
        types: Vec<String>,
    },
    /// They were stored.
    Enqueued {
        /// The call.
        call: u64,
        /// Each job's id, and whether it was there before.
        jobs: Vec<(JobId, bool)>,
    },
    /// A claim answered with jobs.
    Claimed(Vec<Grant>),
    /// Heartbeats are about to be sent.
    ExtendSent(Asked<Lease>),
    /// Heartbeats were answered.
    Extended {
        /// The call.
        call: u64,
        /// The store's time after the answer, if it could be had.
        after: Option<i64>,
        /// For each lease: for how many microseconds it holds, or why not.
        answers: Vec<Result<i64, Stale>>,
    },
    /// Something is about to be saved under leases.
    SaveSent(Asked<Lease>),
    /// Saves were answered.
    Saved {
        /// The call.
        call: u64,
        /// For each save: whether it was taken.
        answers: Vec<Result<(), Stale>>,
    },
    /// Settlements are about to be sent.
    SettleSent(Asked<Sent>),
    /// Settlements were answered.
    Settled {
        /// The call.
        call: u64,
        /// One for each.
        answers: Vec<Answer>,
    },
    /// A call failed; `known` says whether it is certain that nothing was written.
    Failed {
        /// The call; `None` where only the outcome matters.
        call: Option<u64>,
        /// What was attempted.
        attempted: String,
        /// Whether it is certain that nothing was written.
        known: bool,
    },
    /// A handler began.
    RunStarted(Lease),
    /// A handler came to its end.
    RunEnded {
        /// Under which lease.
        lease: Lease,
        /// Whether it succeeded.
        success: bool,
    },
    /// An operator is about to act on jobs.
    OperateSent {
        /// The call.
        call: u64,
        /// `cancel`, `requeue`, …
        act: String,
        /// On which.
        jobs: Vec<JobId>,
        /// Whether those that died of them come along.
        with_dependents: bool,
    },
    /// The operator was answered.
    Operated {
        /// The call.
        call: u64,
        /// How many jobs were changed.
        changed: u64,
        /// Jobs that could not be acted on.
        refused: Vec<JobId>,
    },
    /// A step of upkeep did something.
    Upkeep {
        /// Leases taken back.
        expired: usize,
        /// Jobs fired by schedules.
        fired: usize,
        /// Lifetimes ended.
        lifetimes: usize,
    },
    /// A queue was told how its jobs shall flow.
    Controlled(Controlled),
    /// A fault was injected.
    Fault {
        /// Its kind, as in the report.
        kind: String,
        /// What it hit.
        target: Option<String>,
    },
    /// The standby of a pair was promoted just now.
    Promoted,
}

/// What a queue was told; in force from a moment between `since` and `at` on, by the store's clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Controlled {
    /// The queue.
    pub queue: String,
    /// Before it was said.
    pub since: i64,
    /// When it had been heard.
    pub at: i64,
    /// Most jobs of the queue that run at once.
    pub running: Option<u32>,
    /// Most jobs of each key that run at once.
    pub each_key: Option<u32>,
    /// Most starts of each key: how many in how many microseconds, and at one moment.
    pub rate: Option<(u32, i64, u32)>,
    /// Whether keys are ordered.
    pub ordered: bool,
}

/// A call under leases that is about to be sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Asked<T> {
    /// Which call of this process.
    pub call: u64,
    /// The store's time before the call, if it could be had.
    pub before: Option<i64>,
    /// What is asked, one for each lease.
    pub asked: Vec<T>,
}

/// A lease, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Lease {
    /// The job.
    pub job: JobId,
    /// The lease's version.
    pub version: u64,
}

/// A claimed job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The lease that was granted.
    pub lease: Lease,
    /// When, by the store.
    pub started: i64,
    /// Until when, by the store.
    pub expires: i64,
}

/// A settlement on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sent {
    /// Under which lease.
    pub lease: Lease,
    /// What the holder says.
    pub outcome: Outcome,
}

/// What became of a settlement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was written, and the job is in this state.
    Applied(State),
    /// It had been written before.
    AlreadyApplied,
    /// The lease did not hold.
    Stale(Stale),
    /// It could not be written as it was.
    Refused,
}

/// The machine's monotonic clock, in microseconds: the same for all processes.
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default() / 1000
}

/// Where a process writes its history.
#[derive(Debug)]
pub struct Log {
    name: String,
    sink: Mutex<Sink>,
    calls: AtomicU64,
}

#[derive(Debug)]
enum Sink {
    File(File),
    Memory(Vec<Line>),
}

impl Log {
    /// A history in a file of its own in this folder.
    pub fn create(folder: &Path, name: &str) -> std::io::Result<Self> {
        let path = folder.join(format!("{name}.jsonl"));
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Log { name: name.to_owned(), sink: Mutex::new(Sink::File(file)), calls: AtomicU64::new(0) })
    }

    /// A history in memory, for runs within one process.
    pub fn in_memory(name: &str) -> Self {
        Log { name: name.to_owned(), sink: Mutex::new(Sink::Memory(Vec::new())), calls: AtomicU64::new(0) }
    }

    /// The number of a new call.
    pub fn new_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes an event down.
    ///
    /// # Panics
    ///
    /// When the file cannot be written to: a run without its history proves nothing.
    pub fn write(&self, event: Event) {
        let mut sink = self.sink.lock().expect("nothing panics while it writes, but the whole process with it");
        // Under the lock, so that the lines of a process are in the order of their times.
        let line = Line { at: monotonic(), by: self.name.clone(), event };
        match &mut *sink {
            Sink::Memory(lines) => lines.push(line),
            Sink::File(file) => {
                let mut text = serde_json::to_vec(&line).expect("a line of a history is JSON");
                text.push(b'\n');
                file.write_all(&text).expect("the history can be written to");
            }
        }
    }

    /// What was written in memory so far.
    pub fn lines(&self) -> Vec<Line> {
        match &*self.sink.lock().expect("nothing panics while it writes, but the whole process with it") {
            Sink::Memory(lines) => lines.clone(),
            Sink::File(_) => Vec::new(),
        }
    }
}

/// All histories of a folder, as one in the order of time.
///
/// The last line of a process that was killed may be cut off; what it would have said, nobody acted on.
pub fn read_all(folder: &Path) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|ending| ending != "jsonl") {
            continue;
        }
        for text in BufReader::new(File::open(&path)?).split(b'\n') {
            let text = text?;
            match serde_json::from_slice::<Line>(&text) {
                Ok(line) => lines.push(line),
                Err(_) if text.is_empty() || !text.ends_with(b"}") => {}
                Err(error) => anyhow::bail!("{} holds a line that does not read: {error}", path.display()),
            }
        }
    }
    lines.sort_by_key(|line| line.at);
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_reads_back_and_a_cut_line_is_left_out() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let log = Log::create(folder.path(), "worker-1").expect("a file");
        log.write(Event::Started { role: "worker".into(), pid: 7 });
        log.write(Event::Failed { call: Some(1), attempted: "settle".into(), known: false });
        let path = folder.path().join("worker-1.jsonl");
        let mut file = OpenOptions::new().append(true).open(path).expect("the file");
        file.write_all(br#"{"at":1,"by":"worker-1","ev"#).expect("written");
        let lines = read_all(folder.path()).expect("reads");
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].event, Event::Started { role: "worker".into(), pid: 7 });
        assert!(lines[0].at <= lines[1].at);
    }
}
