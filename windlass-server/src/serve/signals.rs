//! Ctrl-C, SIGTERM and SIGHUP, each as a call.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that a process listens for.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from now on: before this, a signal ends the process.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one that asks to stop.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits for the next one that asks to stop, a closed terminal among them.
    pub async fn next_or_hangup(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }

    /// Waits for the next one that asks to stop or to read the configuration again.
    pub async fn next_or_reread(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reread,
        }
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
