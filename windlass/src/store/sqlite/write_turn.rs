//! Taking turns with other processes on the same file.
//!
//! SQLite's own lock is first come, first served only by luck: the process that has just let go of it gets it again long before
//! one that waits for it has looked. So once two processes have met, each takes a turn before it writes, by two
//! locks on files beside the database. A process that wants to write takes `next`, then `now`, and lets go of `next`; so
//! while one writes another can stand in line, and the one that writes cannot pass it. The turn is a courtesy: a process
//! that does not get it in time, because its holder was stopped, goes on without, and SQLite's lock still guards the file.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::place;

/// How long a turn is waited for.
const TURN_WAIT: Duration = Duration::from_millis(100);
/// How long between two tries.
const TRY_EVERY: Duration = Duration::from_micros(200);
/// How often it is looked whether another process has asked for turns.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A process's side of the arrangement.
#[derive(Debug)]
pub(super) struct WriteTurn {
    store: PathBuf,
    next: PathBuf,
    now: PathBuf,
    met: AtomicBool,
    files: Option<(File, File)>,
    looked: Option<Instant>,
}

/// A turn that was taken; over when it is dropped.
#[derive(Debug, Default)]
pub(super) struct TakenTurn {
    file: Option<File>,
    /// Whether another process wrote at the same time.
    pub(super) was_waited_for: bool,
}

impl WriteTurn {
    pub(super) fn beside(path: &Path) -> Self {
        let beside = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let (next, now, met) = (beside("-next"), beside("-now"), AtomicBool::new(false));
        WriteTurn { store: path.to_owned(), next, now, met, files: None, looked: None }
    }

    /// Another process had the file's lock: from now on turns are taken, by it too once it sees the files.
    pub(super) fn was_busy(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// Takes a turn, if turns are being taken.
    pub(super) fn take(&mut self) -> TakenTurn {
        self.meet();
        let Some((next, now)) = &self.files else { return TakenTurn::default() };
        let deadline = Instant::now() + TURN_WAIT;
        let Some(waited_next) = lock(next, deadline) else { return TakenTurn::default() };
        let taken = lock(now, deadline);
        // Nothing can be done about a lock that does not open; it does so at the latest when the process ends.
        let _ = next.unlock();
        let was_waited_for = waited_next || taken.unwrap_or(true);
        TakenTurn { file: now.try_clone().ok().filter(|_| taken.is_some()), was_waited_for }
    }

    /// Opens the files when they are needed: made by the process that was kept waiting first, found by the others.
    fn meet(&mut self) {
        if self.files.is_some() {
            return;
        }
        let make = self.met.load(Ordering::Relaxed);
        let due = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY);
        if !make && !due {
            return;
        }
        self.looked = Some(Instant::now());
        // For those who may write to the store: any other user could hold a turn for ever.
        let made = |path: &Path| !make || place::make_beside(&self.store, path).is_ok();
        let open =
            |path: &Path| if made(path) { OpenOptions::new().read(true).write(true).open(path).ok() } else { None };
        self.files = open(&self.next).zip(open(&self.now));
    }
}

impl Drop for TakenTurn {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = file.unlock();
        }
    }
}

/// Takes a lock; says whether it was waited for. `None` when it was not to be had in time.
fn lock(file: &File, deadline: Instant) -> Option<bool> {
    let mut waited = false;
    while file.try_lock().is_err() {
        if Instant::now() >= deadline {
            return None;
        }
        waited = true;
        std::thread::sleep(TRY_EVERY);
    }
    Some(waited)
}
