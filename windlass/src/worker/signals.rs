//! The signals that ask a process to stop: SIGINT and SIGTERM, or Ctrl-C where there are no such signals.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Signals that come together are one: `timeout`, and others that stop a whole group of processes, send each of them twice.
const TOGETHER: Duration = Duration::from_millis(100);

/// Waits until this process is asked to stop: by SIGINT (Ctrl-C) or SIGTERM, which Docker, Kubernetes and systemd send.
///
/// For what stops beside a worker, such as axum's `with_graceful_shutdown`; [`Worker::run`](super::Worker::run) listens
/// by itself. Each call waits for a signal that comes after it was first polled.
///
/// ```no_run
/// # async fn example(worker: windlass::Worker) -> windlass::Result<()> {
/// let stopped = worker.run_until(windlass::worker::stop_signal()).await?;
/// # Ok(())
/// # }
/// ```
pub async fn stop_signal() {
    match StopSignals::listen() {
        Ok(mut signals) => signals.next().await,
        Err(error) => {
            tracing::error!(%error, "signals cannot be listened for; this process stops only when it is killed");
            std::future::pending().await
        }
    }
}

/// Signals that are listened for from the moment this is made.
#[cfg(unix)]
pub(super) struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    last: Option<Instant>,
}

#[cfg(unix)]
impl StopSignals {
    pub(super) fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(|error| Error::store("listen for signals", error));
        let (interrupt, terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(StopSignals { interrupt, terminate, last: None })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            if self.last.is_none_or(|last| last.elapsed() >= TOGETHER) {
                self.last = Some(Instant::now());
                return;
            }
        }
    }
}

/// Ctrl-C, listened for from the moment this is made.
#[cfg(windows)]
pub(super) struct StopSignals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl StopSignals {
    pub(super) fn listen() -> Result<Self> {
        let listening = tokio::signal::windows::ctrl_c();
        listening.map(StopSignals).map_err(|error| Error::store("listen for Ctrl-C", error))
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}
