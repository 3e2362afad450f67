//! The processes of a run: started, killed, stalled, replaced, and in the end gone.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use super::faults::Kind;
use super::history::{Event, Log};
use super::process::{Orders, Role, VARIABLE};

/// How long a process that was told to stop is waited for before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// The processes of a run. Dropping it kills them all.
#[derive(Debug)]
pub(super) struct Fleet {
    program: PathBuf,
    orders: Orders,
    log: Arc<Log>,
    members: Vec<Member>,
    starts: usize,
}

#[derive(Debug)]
struct Member {
    role: Role,
    name: String,
    child: Child,
    /// Until when it is stalled.
    stalled: Option<Instant>,
    /// Whether it was told to stop.
    told: bool,
}

impl Fleet {
    /// An empty fleet; the role and name in `orders` are set for each process.
    pub(super) fn new(program: PathBuf, orders: Orders, log: Arc<Log>) -> Self {
        Fleet { program, orders, log, members: Vec::new(), starts: 0 }
    }

    /// Starts a process.
    pub(super) fn start(&mut self, role: Role) -> anyhow::Result<()> {
        self.starts += 1;
        let kind = match &role {
            Role::Worker => "worker",
            Role::Producer(_) => "producer",
            Role::Zombie => "zombie",
            Role::Disturber(_) => "disturber",
        };
        let name = format!("{kind}-{}", self.starts);
        let orders = Orders { role: role.clone(), name: name.clone(), ..self.orders.clone() };
        let said = File::create(self.orders.folder.join(format!("{name}.log")))?;
        let child = Command::new(&self.program)
            // For people who list processes; the variable says what to do.
            .arg(&name)
            .env(VARIABLE, serde_json::to_string(&orders)?)
            // It reads until the end, and takes that for ours.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.members.push(Member { role, name, child, stalled: None, told: false });
        Ok(())
    }

    /// How many workers can run jobs now.
    pub(super) fn workers(&self) -> usize {
        self.members.iter().filter(|member| matches!(member.role, Role::Worker) && !member.told).count()
    }

    /// Does something to the worker that a number chooses, and replaces it where it does not come back.
    pub(super) fn hit(&mut self, kind: Kind, target: usize, stall: Duration) -> anyhow::Result<()> {
        let able = |member: &&mut Member| {
            matches!(member.role, Role::Worker) && !member.told && (kind != Kind::Stall || member.stalled.is_none())
        };
        let mut workers: Vec<&mut Member> = self.members.iter_mut().filter(able).collect();
        if workers.is_empty() {
            return Ok(());
        }
        let place = target % workers.len();
        let worker = &mut workers[place];
        // Written down first: what the worker is seen to do afterwards, it did in spite of it.
        self.log.write(Event::Fault { kind: kind.as_str().to_owned(), target: Some(worker.name.clone()) });
        match kind {
            Kind::Kill => worker.child.kill()?,
            Kind::Stall => {
                worker.signal(Signal::STOP);
                worker.stalled = Some(Instant::now() + stall);
            }
            _ => {
                worker.wake();
                worker.told = true;
                worker.signal(Signal::TERM);
                self.start(Role::Worker)?;
            }
        }
        Ok(())
    }

    /// Wakes who has been stalled long enough and replaces workers that are gone. Gives who ended unasked and in error.
    pub(super) fn tend(&mut self) -> anyhow::Result<Vec<String>> {
        let now = Instant::now();
        let mut failed = Vec::new();
        let mut gone = 0;
        let mut kept = Vec::with_capacity(self.members.len());
        for mut member in self.members.drain(..) {
            if member.stalled.is_some_and(|until| until <= now) {
                member.wake();
            }
            match member.child.try_wait()? {
                None => kept.push(member),
                Some(status) => {
                    let worker = matches!(member.role, Role::Worker);
                    gone += usize::from(worker && !member.told);
                    // A worker may be killed, by us or by poison; anything else that ends badly is a fault of ours.
                    if status.code().is_some_and(|code| code != 0) || (!worker && !status.success()) {
                        failed.push(format!("{} ended with {status}", member.name));
                    }
                }
            }
        }
        self.members = kept;
        for _ in 0..gone {
            self.start(Role::Worker)?;
        }
        Ok(failed)
    }

    /// Wakes everybody.
    pub(super) fn wake_all(&mut self) {
        self.members.iter_mut().for_each(Member::wake);
    }

    /// Tells all but the workers, or the workers too, to stop, and waits until they have.
    pub(super) async fn stop(&mut self, workers_too: bool) -> anyhow::Result<Vec<String>> {
        for member in &mut self.members {
            if workers_too || !matches!(member.role, Role::Worker) {
                member.wake();
                member.told = true;
                member.signal(Signal::TERM);
            }
        }
        let since = Instant::now();
        let mut failed = Vec::new();
        while self.members.iter().any(|member| member.told) {
            failed.extend(self.tend()?);
            if since.elapsed() > STOP_PATIENCE {
                for member in self.members.iter_mut().filter(|member| member.told) {
                    failed.push(format!("{} did not stop and was killed", member.name));
                    member.child.kill()?;
                    member.child.wait()?;
                }
                self.members.retain(|member| !member.told);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(failed)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

impl Member {
    fn signal(&self, signal: Signal) {
        // One that has just ended needs no signal.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    fn wake(&mut self) {
        if self.stalled.take().is_some() {
            self.signal(Signal::CONT);
        }
    }
}
