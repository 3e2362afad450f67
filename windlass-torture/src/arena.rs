//! A run within one process, on any store: for a store in memory, and for authors of a store of their own.
//!
//! The actors are tasks. A worker that is dropped in mid-flight stands for one that is killed; what only processes can
//! suffer (being stalled, a server that dies) is left to [`run`](super::run).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use windlass::Client;
use windlass::store::{ScheduleEdit, Store};
use windlass::worker::Running;

use super::actors::{self, Recent, SCHEDULES, Tempo};
use super::dump::{Dump, dump};
use super::faults::{Kind, plan};
use super::history::{Event, Line, Log};
use super::recording::Recording;

/// How a run within one process goes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// What everything but the timing follows from.
    pub seed: u64,
    /// How long faults are injected.
    pub length: Duration,
    /// How many workers there are.
    pub workers: usize,
    /// How many zombies there are.
    pub zombies: usize,
    /// How fast everything goes.
    pub tempo: Tempo,
    /// How long the jobs may take to end once the faults have stopped.
    pub drain_max: Duration,
}

/// What was seen, and what the store says at the end.
#[derive(Debug)]
pub struct Outcome {
    /// The histories of all actors, in the order of time.
    pub lines: Vec<Line>,
    /// The store.
    pub dump: Dump,
    /// How long it took until every job had ended, or the patience was over.
    pub drain: Duration,
}

struct Arena {
    store: Arc<dyn Store>,
    setting: Setting,
    logs: Vec<Arc<Log>>,
}

impl Arena {
    fn log(&mut self, name: &str) -> Arc<Log> {
        let log = Arc::new(Log::in_memory(&format!("{name}-{}", self.logs.len())));
        self.logs.push(Arc::clone(&log));
        log
    }

    fn recorded(&mut self, name: &str) -> (Arc<dyn Store>, Arc<Log>) {
        let log = self.log(name);
        (Arc::new(Recording::new(Arc::clone(&self.store), Arc::clone(&log))), log)
    }

    async fn worker(&mut self) -> windlass::Result<(Running, Arc<Log>)> {
        let (store, log) = self.recorded("worker");
        Ok((actors::work(store, Arc::clone(&log), self.setting.tempo, false).await?, log))
    }
}

/// Tortures a store within this process.
pub async fn run(store: Arc<dyn Store>, setting: Setting) -> windlass::Result<Outcome> {
    let mut arena = Arena { store: Arc::clone(&store), setting, logs: Vec::new() };
    let client = Client::with_store(Arc::clone(&store));
    actors::put_schedules(&client).await?;
    let stop = CancellationToken::new();
    let mut others = tokio::task::JoinSet::new();
    let log = arena.log("regulator");
    if actors::put_controls(store.as_ref(), &log).await? {
        others.spawn(actors::regulate(Arc::clone(&store), log, setting.seed, setting.tempo, stop.clone()));
    }
    let recent = Recent::default();
    for number in 0..2 {
        let (store, _) = arena.recorded("producer");
        others.spawn(actors::produce(store, setting.seed, number, setting.tempo, Arc::clone(&recent), stop.clone()));
    }
    for number in 0..setting.zombies {
        let (store, log) = arena.recorded("zombie");
        others.spawn(actors::haunt(store, log, number, setting.seed, setting.tempo, stop.clone()));
    }
    let (operated, _) = arena.recorded("operator");
    others.spawn(actors::operate(operated, setting.seed, setting.tempo, recent, stop.clone()));
    let mut workers = Vec::new();
    for _ in 0..setting.workers.max(1) {
        workers.push(arena.worker().await?);
    }
    disturb(&mut arena, &mut workers).await?;
    stop.cancel();
    others.join_all().await;
    for name in SCHEDULES {
        store.edit_schedule(&ScheduleEdit::Pause(name.to_owned()), Some("torture")).await?;
    }
    let since = Instant::now();
    while actors::unfinished(store.as_ref()).await != Some(0) && since.elapsed() < setting.drain_max {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let drain = since.elapsed();
    for (running, log) in workers {
        running.stop().await;
        log.write(Event::Stopped);
    }
    let dump = dump(store.as_ref()).await?;
    let mut lines: Vec<Line> = arena.logs.iter().flat_map(|log| log.lines()).collect();
    lines.sort_by_key(|line| line.at);
    Ok(Outcome { lines, dump, drain })
}

/// Kills and stops workers as the plan says, and puts others in their place.
async fn disturb(arena: &mut Arena, workers: &mut Vec<(Running, Arc<Log>)>) -> windlass::Result<()> {
    let setting = arena.setting;
    let begun = Instant::now();
    let faults = arena.log("torture");
    for fault in plan(setting.seed, setting.length, &[Kind::Kill, Kind::Term]) {
        tokio::time::sleep(fault.at.saturating_sub(begun.elapsed())).await;
        let (running, log) = workers.swap_remove(fault.target % workers.len());
        let target = log.lines().first().map(|line| line.by.clone());
        faults.write(Event::Fault { kind: fault.kind.as_str().to_owned(), target });
        match fault.kind {
            Kind::Kill => drop(running),
            _ => {
                running.stop().await;
                log.write(Event::Stopped);
            }
        }
        workers.push(arena.worker().await?);
    }
    tokio::time::sleep(setting.length.saturating_sub(begun.elapsed())).await;
    Ok(())
}
