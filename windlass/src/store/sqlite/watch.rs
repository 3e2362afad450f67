//! Hears that another process wrote to the file: the system tells when the log beside it changes.
//!
//! A change of the log is only a sign that a commit is near: its sync comes after it. So the writer is asked to look now
//! and a few times soon after. A change that this process made itself asks in vain, which is cheap. Where the system has
//! no such notification, and where one was lost, the writer's own looks every few milliseconds suffice.

use std::path::Path;

/// The watch of a log; ends when it is dropped.
pub(super) struct Watch {
    #[cfg(target_os = "linux")]
    _end: std::os::unix::net::UnixStream,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fd::OwnedFd;
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    use rustix::io::Errno;

    use super::Watch;

    /// The shortest time between two asks: a commit changes the log many times.
    const GAP: Duration = Duration::from_micros(500);

    pub(super) fn start(log: &Path, ask: impl Fn() + Send + 'static) -> std::io::Result<Watch> {
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&changes, log, WatchFlags::MODIFY)?;
        let (end, ended) = UnixStream::pair()?;
        let thread = std::thread::Builder::new().name("windlass-sqlite-watch".to_owned());
        thread.spawn(move || run(&changes, &ended, &ask))?;
        Ok(Watch { _end: end })
    }

    /// Asks after each change until the other end is dropped.
    fn run(changes: &OwnedFd, ended: &UnixStream, ask: &impl Fn()) {
        let mut events = [0; 4096];
        loop {
            let mut sources = [PollFd::new(changes, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
            match poll(&mut sources, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            if !sources[1].revents().is_empty() {
                return;
            }
            ask();
            std::thread::sleep(GAP);
            while rustix::io::read(changes, &mut events).is_ok_and(|read| read > 0) {}
        }
    }
}

/// Watches a log, and calls `ask` after each change; `None` where the system cannot.
pub(super) fn start(log: &Path, ask: impl Fn() + Send + 'static) -> Option<Watch> {
    #[cfg(target_os = "linux")]
    let watch = linux::start(log, ask).inspect_err(|error| {
        tracing::debug!(%error, "no notification of changes to the log; other processes' commits are found by looking");
    });
    #[cfg(target_os = "linux")]
    return watch.ok();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (log, ask);
        None
    }
}
