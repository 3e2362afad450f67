//! The phases of a move, in order. What is decided here is when to go on; the stores do the rest.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Contents, Mark, Movable, Name, Part, Rest, Side, Stage, Sums};
use crate::error::{Error, Result};
use crate::store::observe::{Sample, SampleStep};
use crate::store::request::{Cursor, PAGE_MAX};
use crate::store::{ActRecord, Store};
use crate::time::Timestamp;

/// How many things are copied in one step: a transaction of some tenths of a second.
const STEP: usize = 2000;
/// How many notes of changes are looked at in one step; several are often of the same job.
const NOTES: usize = 10_000;
/// The pause begins when what is left takes no longer than this.
const LEFT_MAX: Duration = Duration::from_millis(500);
/// And after this long of catching up at the latest, if a pause can still be short.
const CATCHING_UP_MAX: Duration = Duration::from_secs(60);
/// What is left may take at most this long in a pause that begins so.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How far the clocks of the two stores may be apart: times are copied as they are.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(2);
/// How many acts are copied: as many as stores keep.
const ACTS_MAX: usize = 10_000;

/// Where a move is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Copies while the source works.
    Copy,
    /// Copies again what changed meanwhile.
    CatchUp,
    /// Nobody writes, and what is left follows.
    Pause,
    /// Both sides are counted, while the target works.
    Verify,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Copy => "copy",
            Phase::CatchUp => "catch up",
            Phase::Pause => "pause",
            Phase::Verify => "verify",
        })
    }
}

/// How far a phase is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Which phase.
    pub phase: Phase,
    /// How many things it has dealt with.
    pub done: u64,
    /// How many there are, as far as is known.
    pub of: u64,
}

/// Who looks at a move, and may stop it between two steps.
pub trait Watcher: Send + Sync {
    /// It went on.
    fn told(&self, progress: &Progress);
    /// Whether to stop, leaving it to be resumed or undone.
    fn stops(&self) -> bool;
}

/// How a move ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Finished {
    /// How long nobody could write; zero where the switch had been made before.
    pub pause: Duration,
    /// How many things were copied again because they had changed.
    pub caught_up: u64,
    /// The source as it was left.
    pub source: Sums,
    /// The target as it was opened; `None` where others may have written to it since.
    pub target: Option<Sums>,
}

/// A move between two stores that have its marks.
#[derive(Debug)]
pub struct Move {
    from: Arc<dyn Store>,
    to: Arc<dyn Store>,
    source: Arc<dyn Movable>,
    target: Arc<dyn Movable>,
    source_mark: Mark,
    target_mark: Mark,
}

/// Begins a move into an empty store; `urls` are those of both, without passwords. The target must be opened anew for
/// [`Move::resume`], because its ids have another key from now on.
pub async fn begin(from: &dyn Store, to: &dyn Store, urls: (&str, &str)) -> Result<()> {
    let (source, target) = (movable(from)?, movable(to)?);
    compare_clocks(from, to).await?;
    if let Some(mark) = source.mark().await? {
        let other = &mark.other;
        let problem = match (mark.side, mark.stage) {
            (Side::Source, Stage::Switched) => Some(format!("{} was moved to {other}", urls.0)),
            (Side::Source, Stage::Copying) => Some(format!("a move of {} to {other} is under way", urls.0)),
            (Side::Target, Stage::Copying) => Some(format!("{} is being filled by a move from {other}", urls.0)),
            (Side::Target, Stage::Switched) => None,
        };
        if let Some(problem) = problem {
            return Err(Error::Conflict(problem));
        }
    }
    if let Some(worker) = to.workers().await?.first() {
        return Err(Error::Conflict(format!(
            "worker {} uses {} already: stop it until the move has ended",
            worker.id, urls.1
        )));
    }
    let id = uuid::Uuid::new_v4().to_string();
    let mark = |side, other: &str| {
        let (id, other) = (id.clone(), other.to_owned());
        Mark { id, side, other, stage: Stage::Copying, copied: None, runner: String::new() }
    };
    target.take_in(&mark(Side::Target, urls.0), &source.id_key().await?).await?;
    source.watch(&mark(Side::Source, urls.1)).await
}

/// Undoes a move that has not switched: the source goes on as before, the target is empty again.
pub async fn undo(from: &dyn Store, to: &dyn Store) -> Result<()> {
    let (source, target) = (movable(from)?, movable(to)?);
    let (left, right) = (source.mark().await?, target.mark().await?);
    let switched = |mark: &Mark| mark.stage == Stage::Switched && mark.side == Side::Source;
    if let Some(mark) = left.as_ref().filter(|mark| switched(mark)) {
        let problem =
            format!("the store was moved to {}, which has taken writes since; to go back, move that one", mark.other);
        return Err(Error::Conflict(problem));
    }
    let is_of =
        |mark: &Option<Mark>, side| mark.as_ref().is_some_and(|mark| mark.side == side && mark.stage == Stage::Copying);
    if let (Some(left), Some(right)) = (&left, &right)
        && left.side == Side::Source
        && left.id != right.id
    {
        return Err(Error::Conflict("the two stores are in moves of their own".to_owned()));
    }
    if !is_of(&left, Side::Source) && !is_of(&right, Side::Target) {
        return Err(Error::Conflict("there is no move between the two stores to undo".to_owned()));
    }
    if is_of(&left, Side::Source) {
        source.unwatch().await?;
    }
    if is_of(&right, Side::Target) {
        target.give_up().await?;
    }
    Ok(())
}

impl Move {
    /// Takes up a move that was begun; both stores must have its marks. From now on nothing that an earlier run attempts is
    /// written.
    pub async fn resume(from: Arc<dyn Store>, to: Arc<dyn Store>) -> Result<Self> {
        let (source, target) = (movable(&*from)?, movable(&*to)?);
        let (left, right) = (source.mark().await?, target.mark().await?);
        let Some(right) = right.filter(|mark| mark.side == Side::Target) else {
            return Err(Error::Conflict("there is no move into the target to resume".to_owned()));
        };
        match left {
            Some(mark) if mark.id == right.id && mark.side == Side::Source => {}
            Some(mark) if mark.side == Side::Source || mark.stage == Stage::Copying => {
                let problem = format!("the source is in another move, with {}", mark.other);
                return Err(Error::Conflict(problem));
            }
            // Killed between the two marks: the source was not told yet.
            _ => {
                return Err(Error::Conflict(
                    "the move was not begun on the source: undo it and begin again".to_owned(),
                ));
            }
        }
        let runner = uuid::Uuid::new_v4().to_string();
        let source_mark = source.take_over(&right.id, &runner).await?;
        let target_mark = target.take_over(&right.id, &runner).await?;
        Ok(Move { from, to, source, target, source_mark, target_mark })
    }

    /// Goes on to the end, or until the watcher stops it.
    pub async fn run(mut self, watcher: &dyn Watcher) -> Result<Option<Finished>> {
        let mut finished = Finished { pause: Duration::ZERO, caught_up: 0, source: Sums::default(), target: None };
        let mut snapshot = None;
        if self.source_mark.stage == Stage::Copying {
            compare_clocks(&*self.from, &*self.to).await?;
            let Some(rate) = self.copy(watcher).await? else { return Ok(None) };
            let Some(newest) = self.catch_up(watcher, rate, &mut finished.caught_up).await? else { return Ok(None) };
            let begun = Instant::now();
            let switched = self.pause_and_switch(watcher, newest, &mut finished.caught_up).await;
            if switched.is_err() {
                self.source.let_go().await;
            }
            snapshot = Some(switched?);
            finished.pause = begun.elapsed();
        } else if self.target_mark.stage == Stage::Copying {
            // Killed between the switch and the opening: nobody else has written since.
            snapshot = Some(self.target.snapshot().await?);
            self.open().await?;
        }
        finished.source = sum(&*self.source, watcher).await?;
        if let Some(snapshot) = snapshot {
            finished.target = Some(sum(&*snapshot, watcher).await?);
        }
        self.target.clear(&self.target_mark).await?;
        Ok(Some(finished))
    }

    /// Copies what was not copied yet; gives how many things in a second.
    async fn copy(&mut self, watcher: &dyn Watcher) -> Result<Option<f64>> {
        let of: u64 = self.from.totals().await?.states.iter().sum();
        let (mut done, begun) = (0, Instant::now());
        let mut names = self.source.names(self.target_mark.copied.as_ref(), STEP).await?;
        let mut part = self.read(&names).await?;
        while !names.is_empty() {
            self.target_mark.copied = names.last().cloned();
            let copied = self.target_mark.copied.as_ref();
            // The next page is read while this one is written.
            let next = async {
                let names = self.source.names(copied, STEP).await?;
                let part = self.read(&names).await?;
                Ok::<_, Error>((names, part))
            };
            let (written, next) = tokio::join!(self.target.write(&part, &self.target_mark), next);
            written?;
            done += names.len() as u64;
            watcher.told(&Progress { phase: Phase::Copy, done, of: of.max(done) });
            if watcher.stops() {
                return Ok(None);
            }
            (names, part) = next?;
        }
        Ok(Some((done.max(1000) as f64) / begun.elapsed().as_secs_f64().max(0.01)))
    }

    /// Copies again what changed, until little is left; gives the newest sample that was copied.
    async fn catch_up(&self, watcher: &dyn Watcher, mut rate: f64, total: &mut u64) -> Result<Option<Timestamp>> {
        let begun = Instant::now();
        let rest = self.rest(None).await?;
        let newest = rest.samples.iter().map(|(_, sample)| sample.at).max().unwrap_or_default();
        self.target.write_rest(&rest, &self.target_mark).await?;
        loop {
            if watcher.stops() {
                return Ok(None);
            }
            let step = Instant::now();
            let (notes, things) = self.follow().await?;
            *total += things as u64;
            watcher.told(&Progress { phase: Phase::CatchUp, done: *total, of: *total });
            let seconds = step.elapsed().as_secs_f64().max(0.001);
            rate = if things > 100 { things as f64 / seconds } else { rate };
            let left = Duration::from_secs_f64(notes as f64 / rate.max(1.0));
            let is_little = notes < NOTES && left <= LEFT_MAX;
            if is_little || (begun.elapsed() > CATCHING_UP_MAX && notes < NOTES && left <= PAUSE_MAX) {
                return Ok(Some(newest));
            }
            if begun.elapsed() > 10 * CATCHING_UP_MAX {
                let problem = "the source changes faster than the target takes it in: resume when less is going on";
                return Err(Error::Conflict(problem.to_owned()));
            }
        }
    }

    /// Takes over one page of what changed: how many notes there were, and of how many things.
    async fn follow(&self) -> Result<(usize, usize)> {
        let changes = self.source.changes(NOTES).await?;
        if changes.is_empty() {
            return Ok((0, 0));
        }
        let (numbers, names): (Vec<i64>, Vec<Name>) = changes.into_iter().unzip();
        let names: Vec<Name> = names.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let mut chunks = names.chunks(STEP);
        let mut part = self.read(chunks.next().unwrap_or_default()).await?;
        loop {
            // The next ones are read while these are written.
            let next = async {
                match chunks.next() {
                    Some(names) => self.read(names).await.map(Some),
                    None => Ok(None),
                }
            };
            let (written, next) = tokio::join!(self.target.write(&part, &self.target_mark), next);
            written?;
            match next? {
                Some(next) => part = next,
                None => break,
            }
        }
        self.source.forget_changes(&numbers, &self.source_mark).await?;
        Ok((numbers.len(), names.len()))
    }

    /// What is left follows, while the source is held.
    async fn pause(&self, watcher: &dyn Watcher, newest: Timestamp, total: &mut u64) -> Result<()> {
        watcher.told(&Progress { phase: Phase::Pause, done: 0, of: 1 });
        loop {
            let (notes, things) = self.follow().await?;
            *total += things as u64;
            if notes == 0 {
                break;
            }
        }
        let rest = self.rest(Some(newest)).await?;
        self.target.write_rest(&rest, &self.target_mark).await?;
        // No time may run back for the jobs that were moved.
        while self.to.now().await? < rest.at {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// What nobody can write beside, up to the one commit that decides; then the target is opened. Gives the target as it
    /// was before.
    async fn pause_and_switch(
        &mut self,
        watcher: &dyn Watcher,
        newest: Timestamp,
        total: &mut u64,
    ) -> Result<Box<dyn Contents>> {
        self.source.hold().await?;
        self.pause(watcher, newest, total).await?;
        let snapshot = self.target.snapshot().await?;
        self.source_mark.stage = Stage::Switched;
        self.source.leave(&self.source_mark).await?;
        self.open().await?;
        Ok(snapshot)
    }

    async fn open(&mut self) -> Result<()> {
        self.target_mark.stage = Stage::Switched;
        self.target.open_up(&self.target_mark).await
    }

    async fn read(&self, names: &[Name]) -> Result<Part> {
        if names.is_empty() {
            return Ok(Part::default());
        }
        let part = self.source.read(names).await?;
        for job in &part.jobs {
            let job = &job.entry.job;
            if let Some(damage) = &job.spec.damage {
                let problem =
                    format!("job {} cannot be moved, because it is damaged: {damage}; delete it first", job.id);
                return Err(Error::Conflict(problem));
            }
        }
        Ok(part)
    }

    /// The small records; of the samples those after a moment.
    async fn rest(&self, samples_after: Option<Timestamp>) -> Result<Rest> {
        let from = &self.from;
        let at = from.now().await?;
        let mut acts: Vec<ActRecord> = Vec::new();
        let mut after: Option<Cursor> = None;
        loop {
            let page = from.acts(after.as_ref(), PAGE_MAX).await?;
            acts.extend(page.items);
            after = page.next;
            if after.is_none() || acts.len() >= ACTS_MAX {
                break;
            }
        }
        acts.reverse();
        let mut schedules = Vec::new();
        loop {
            let last = schedules.last().map(|schedule: &crate::schedule::ScheduleRecord| schedule.spec.name.clone());
            let page = from.schedules(last.as_deref(), PAGE_MAX).await?;
            if page.is_empty() {
                break;
            }
            schedules.extend(page);
        }
        let mut samples: Vec<(SampleStep, Sample)> = Vec::new();
        for step in SampleStep::ALL {
            let since = samples_after.map_or(at.minus(step.kept()), |after| after.minus(step.every()));
            let found = from.samples(step, since, at.plus(step.every())).await?;
            samples.extend(found.into_iter().map(|sample| (step, sample)));
        }
        let observed = from.observe(None).await?;
        let queues = from.queues().await?.into_iter().map(|queue| (queue.name, queue.paused)).collect();
        Ok(Rest {
            at,
            last_sequence: self.source.last_sequence().await?,
            totals: observed.totals(),
            lanes: observed.lanes,
            queues,
            flow: self.source.flow().await?,
            schedules,
            acts,
            samples,
        })
    }
}

/// Counts and sums up all that is there.
async fn sum(contents: &dyn Contents, watcher: &dyn Watcher) -> Result<Sums> {
    let (mut sums, mut after, mut done) = (Sums::default(), None, 0);
    loop {
        let names = contents.names(after.as_ref(), STEP).await?;
        if names.is_empty() {
            return Ok(sums);
        }
        sums.add(&contents.read(&names).await?);
        done += names.len() as u64;
        watcher.told(&Progress { phase: Phase::Verify, done, of: done });
        after = names.last().cloned();
    }
}

fn movable(store: &dyn Store) -> Result<Arc<dyn Movable>> {
    let problem = || Error::Conflict(format!("a store of kind {} cannot be moved", store.kind()));
    store.movable().ok_or_else(problem)
}

async fn compare_clocks(from: &dyn Store, to: &dyn Store) -> Result<()> {
    let (source, target) = (from.now().await?, to.now().await?);
    let apart = source.since(target).max(target.since(source));
    if apart > CLOCKS_APART_MAX {
        let problem =
            format!("the clocks of the two stores are {apart:?} apart; times are moved as they are: set them first");
        return Err(Error::Conflict(problem));
    }
    Ok(())
}
