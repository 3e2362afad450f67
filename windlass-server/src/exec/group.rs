//! A process and everything it started, in a process group of its own, that does not outlive who waits for it.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::sync::watch;

use super::leftover;

/// Counts the process groups that have not ended, for a worker that must not exit before they have.
#[derive(Clone, Debug)]
pub(super) struct Count(Arc<watch::Sender<usize>>);

impl Count {
    pub(super) fn new() -> Self {
        Count(Arc::new(watch::Sender::new(0)))
    }

    fn one(&self) -> One {
        self.0.send_modify(|count| *count += 1);
        One(self.clone())
    }

    /// Waits until there is none.
    pub(super) async fn none(&self) {
        // The sender is our own, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// One of the counted.
#[derive(Debug)]
struct One(Count);

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// A running process group. Dropping it asks it to end, and makes it after a grace.
#[derive(Debug)]
pub(super) struct Group {
    child: Option<Child>,
    leader: Option<Pid>,
    grace: Duration,
    /// The attempt in the environment of its processes, by which those are found that left the group.
    attempt: String,
    /// Whether it was asked to end: once is enough, and a second time may hit what it does about the first.
    told: bool,
    counted: Option<One>,
}

impl Group {
    /// Takes charge of a process that was started as the leader of its own group.
    pub(super) fn new(child: Child, grace: Duration, count: &Count, attempt: String) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Group { child: Some(child), leader, grace, attempt, told: false, counted: Some(count.one()) }
    }

    /// Waits for the leader to end.
    pub(super) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        let status = match &mut self.child {
            Some(child) => child.wait().await,
            None => Err(std::io::Error::other("the process was given up")),
        };
        if status.is_ok() {
            // What it left running on purpose is its own business.
            self.child = None;
        }
        status
    }

    /// Kills what the leader, which has failed, left running in its group and elsewhere.
    pub(super) fn kill(&self) {
        signal(self.leader, Signal::KILL);
        kill_strays(&self.attempt);
    }

    /// Asks the group to end, makes it after the grace, and waits until it has.
    ///
    /// Given up half-way, the rest is done in the background.
    pub(super) async fn end(mut self) {
        self.tell();
        if let Some(child) = &mut self.child {
            end(child, self.leader, self.grace, &self.attempt).await;
            self.child = None;
        }
    }

    fn tell(&mut self) {
        if self.child.is_some() && !std::mem::replace(&mut self.told, true) {
            signal(self.leader, Signal::TERM);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // At once: the job may be about to run elsewhere.
        self.tell();
        let Some(mut child) = self.child.take() else { return };
        let (leader, grace, counted) = (self.leader, self.grace, self.counted.take());
        let attempt = std::mem::take(&mut self.attempt);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    end(&mut child, leader, grace, &attempt).await;
                    drop(counted);
                });
            }
            Err(_) => signal(leader, Signal::KILL),
        }
    }
}

/// Waits for a group that was asked to end, and makes it after the grace.
async fn end(child: &mut Child, leader: Option<Pid>, grace: Duration, attempt: &str) {
    let _ = tokio::time::timeout(grace, child.wait()).await;
    // The leader may be gone and others of the group not; if all are, nobody is hit.
    signal(leader, Signal::KILL);
    let _ = child.wait().await;
    kill_strays(attempt);
}

/// Kills the processes of an attempt that have left its group.
fn kill_strays(attempt: &str) {
    let killed = leftover::kill("WINDLASS_JOB_ATTEMPT_ID", attempt);
    if killed > 0 {
        tracing::info!(attempt, killed, "killed what an attempt had left running");
    }
}

fn signal(leader: Option<Pid>, signal: Signal) {
    if let Some(leader) = leader {
        // A group that has ended cannot be signalled, and need not be.
        let _ = kill_process_group(leader, signal);
    }
}
