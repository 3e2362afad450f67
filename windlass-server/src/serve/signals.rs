//! Ctrl-C, SIGTERM and SIGHUP, each as a call.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that come together are one: `timeout`, and others that stop a whole group of processes, send each of them twice.
const TOGETHER: Duration = Duration::from_millis(100);

/// The signals that a process listens for.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    last: Option<Instant>,
}

impl Signals {
    /// Listens from now on: before this, a signal ends the process.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            last: None,
        })
    }

    /// Waits for the next one that asks to stop.
    pub async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            if self.is_another() {
                return;
            }
        }
    }

    /// Waits for the next one that asks to stop, a closed terminal among them.
    pub async fn next_or_hangup(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
                _ = self.hangup.recv() => {}
            }
            if self.is_another() {
                return;
            }
        }
    }

    /// Waits for the next one that asks to stop or to read the configuration again.
    pub async fn next_or_reread(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => return Asked::Reread,
        }
        self.last = Some(Instant::now());
        Asked::Stop
    }

    /// Whether this one did not come together with the last.
    fn is_another(&mut self) -> bool {
        let another = self.last.is_none_or(|last| last.elapsed() >= TOGETHER);
        if another {
            self.last = Some(Instant::now());
        }
        another
    }
}

/// What a signal asks of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// To stop.
    Stop,
    /// To read its configuration again.
    Reread,
}
