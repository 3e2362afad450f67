//! One transaction of the slow path: jobs are loaded with their locks, changed by the pure core, and written back whole.
//!
//! Everything that concerns more than one job, or that is not worth a statement of its own, goes through here: ends with
//! dependents, children or callbacks, operators' acts, upkeep, schedules, submissions with dependencies. Such
//! transactions take turns (one advisory lock for each schema), so they need to guard only against the statements of the
//! hot path. Those move rows out of `ready` and `leased`, never a row that is locked, and never a leased row marked
//! `slow`; they never touch `waiting` and never take a row out of `done`. So a job is held by locking its row in `ready`
//! or `leased`, and a job in `waiting` or `done` is held by the turn itself.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::Inner;
use super::fault::Fault;
use super::lanes::{self, Lane};
use super::link::Link;
use super::row::Row;
use super::rows::{self, Entry, Places};
use crate::error::Error;
use crate::job::{AttemptRecord, DependencyKind, JobId, JobType, LeaseToken, QueueName, State};
use crate::store::answer::Wake;
use crate::time::Timestamp;

/// The kinds of events that are no terminal state.
pub(super) const EVENT_ACCEPTED: i16 = 9;
pub(super) const EVENT_PRUNED: i16 = 10;
pub(super) const EVENT_PENDING: i16 = 11;
/// Added to a kind that is counted, but that nobody is told of.
pub(super) const EVENT_QUIET: i16 = 100;

/// The parent, the child and the kind of an edge.
pub(super) type Edge = (i64, i64, i16);

pub(super) struct Unit<'a> {
    pub(super) link: Link<'a>,
    pub(super) store: Arc<Inner>,
    pub(super) now: Timestamp,
    entries: BTreeMap<i64, Entry>,
    ids: HashMap<JobId, i64>,
    locked: HashSet<i64>,
    /// The states in which jobs were found.
    pub(super) was: HashMap<i64, State>,
    /// Lanes made by this transaction, which nobody may know before it commits.
    pub(super) lanes: HashMap<(QueueName, JobType), Lane>,
    pub(super) dirty: BTreeSet<i64>,
    /// Jobs that have no row yet.
    pub(super) new: BTreeSet<i64>,
    /// Jobs whose wide row changes too.
    pub(super) wide: BTreeSet<i64>,
    /// Loaded edges and whether each is open.
    edges: BTreeMap<Edge, bool>,
    edges_by_child: BTreeSet<(i64, i64, i16)>,
    parents_loaded: HashSet<i64>,
    children_loaded: HashSet<i64>,
    pub(super) edges_dirty: BTreeSet<Edge>,
    pub(super) closed: Vec<(i64, LeaseToken, AttemptRecord)>,
    pub(super) removed: Vec<i64>,
    pub(super) events: Vec<(Lane, i16, i64)>,
    pub(super) hints: Vec<Wake>,
}

impl<'a> Unit<'a> {
    /// Begins: waits for its turn, then reads the clock.
    pub(super) async fn begin(mut link: Link<'a>, store: Arc<Inner>) -> Result<Self, Fault> {
        link.begin().await?;
        let time = store.given_time();
        let rows = link.query(include_str!("sql/turn.sql"), &[&time, &store.turn]).await?;
        let now = rows::time(rows[0].get(0));
        Ok(Unit {
            link,
            store,
            now,
            entries: BTreeMap::new(),
            ids: HashMap::new(),
            locked: HashSet::new(),
            was: HashMap::new(),
            lanes: HashMap::new(),
            dirty: BTreeSet::new(),
            new: BTreeSet::new(),
            wide: BTreeSet::new(),
            edges: BTreeMap::new(),
            edges_by_child: BTreeSet::new(),
            parents_loaded: HashSet::new(),
            children_loaded: HashSet::new(),
            edges_dirty: BTreeSet::new(),
            closed: Vec::new(),
            removed: Vec::new(),
            events: Vec::new(),
            hints: Vec::new(),
        })
    }

    /// Writes and commits what succeeded, undoes what failed; passes on the hints of what was written.
    pub(super) async fn finish<T>(mut self, answer: Result<T, Fault>) -> Result<T, Fault> {
        let written = match answer {
            Ok(answer) => self.flush().await.map(|()| answer),
            Err(fault) => Err(fault),
        };
        match written {
            Ok(answer) => {
                self.link.commit().await?;
                self.store.lanes.keep(std::mem::take(&mut self.lanes));
                self.store.hint(std::mem::take(&mut self.hints));
                Ok(answer)
            }
            Err(fault) => {
                self.link.roll_back().await;
                if !self.lanes.is_empty() {
                    self.store.lanes.forget();
                }
                Err(fault)
            }
        }
    }

    /// Writes what has changed, so that statements of the same transaction see it, and forgets what was loaded.
    pub(super) async fn write_down(&mut self) -> Result<(), Fault> {
        if !self.dirty.is_empty() || !self.events.is_empty() {
            self.flush().await?;
        }
        self.entries.clear();
        self.ids.clear();
        self.was.clear();
        self.dirty.clear();
        self.new.clear();
        self.wide.clear();
        self.edges.clear();
        self.edges_by_child.clear();
        self.parents_loaded.clear();
        self.children_loaded.clear();
        self.edges_dirty.clear();
        self.closed.clear();
        self.removed.clear();
        self.events.clear();
        Ok(())
    }

    /// Writes, and leaves the commit to the user whose transaction this is, with the hints that go with it. Lanes it made
    /// are found again later.
    pub(super) async fn leave(mut self) -> Result<(Link<'a>, Vec<Wake>), Fault> {
        self.flush().await?;
        Ok((self.link, self.hints))
    }

    /// The number of a lane, which is made if there is none.
    pub(super) async fn lane(&mut self, queue: &QueueName, job_type: &JobType) -> Result<Lane, Fault> {
        if let Some(lane) = self.store.lanes.get(queue, job_type) {
            return Ok(lane);
        }
        let name = (queue.clone(), job_type.clone());
        if let Some(lane) = self.lanes.get(&name) {
            return Ok(*lane);
        }
        let lane = lanes::make(&self.link, queue, job_type).await?;
        self.lanes.insert(name, lane);
        Ok(lane)
    }

    // Jobs.

    pub(super) fn by_id(&self, id: JobId) -> Option<&Entry> {
        self.ids.get(&id).map(|seq| self.entry(*seq))
    }

    pub(super) fn seq_of(&self, id: JobId) -> Option<i64> {
        self.ids.get(&id).copied()
    }

    pub(super) fn entry(&self, seq: i64) -> &Entry {
        self.entries.get(&seq).expect("a job is loaded before it is looked at")
    }

    pub(super) fn get(&self, seq: i64) -> Option<&Entry> {
        self.entries.get(&seq)
    }

    /// A job that will be written back.
    pub(super) fn change(&mut self, seq: i64) -> &mut Entry {
        self.dirty.insert(seq);
        self.entries.get_mut(&seq).expect("a job is loaded before it is changed")
    }

    pub(super) fn add(&mut self, entry: Entry) {
        let seq = entry.seq;
        self.ids.insert(entry.job.id, seq);
        self.entries.insert(seq, entry);
        self.new.insert(seq);
        self.dirty.insert(seq);
        self.parents_loaded.insert(seq);
        self.children_loaded.insert(seq);
    }

    pub(super) fn forget(&mut self, seq: i64) {
        if let Some(entry) = self.entries.remove(&seq) {
            self.ids.remove(&entry.job.id);
            self.events.push((entry.lane, EVENT_PRUNED, seq));
            self.events.push((entry.lane, -i16::from(entry.job.state.number()), seq));
        }
        self.dirty.remove(&seq);
        self.removed.push(seq);
        let gone: Vec<Edge> = self.edges.keys().filter(|edge| edge.0 == seq || edge.1 == seq).copied().collect();
        for edge in gone {
            self.edges.remove(&edge);
            self.edges_by_child.remove(&(edge.1, edge.0, edge.2));
            self.edges_dirty.remove(&edge);
        }
    }

    /// Loads and holds the jobs with these ids that exist.
    pub(super) async fn load(&mut self, ids: impl IntoIterator<Item = JobId>) -> Result<(), Fault> {
        let wanted = ids.into_iter().filter(|id| !self.ids.contains_key(id)).map(JobId::as_uuid);
        let wanted: Vec<uuid::Uuid> = wanted.collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let seqs = self.store.sequences(&self.link, &wanted).await?;
        self.load_seqs(seqs).await
    }

    /// Loads and holds these jobs, as far as they exist.
    pub(super) async fn load_seqs(&mut self, seqs: impl IntoIterator<Item = i64>) -> Result<(), Fault> {
        let wanted = seqs.into_iter().filter(|seq| !self.entries.contains_key(seq) && !self.removed.contains(seq));
        let mut wanted: Vec<i64> = wanted.collect();
        // A job that a claim moves between the two statements is looked for again, where it then is.
        while !wanted.is_empty() {
            // Everybody locks in one order.
            wanted.sort_unstable();
            wanted.dedup();
            for row in self.link.query(include_str!("sql/lock.sql"), &[&wanted]).await? {
                self.locked.insert(row.get(0));
            }
            let rows = self.link.query(include_str!("sql/record_find.sql"), &[&wanted]).await?;
            let lanes: Vec<Lane> = rows.iter().map(|row| row.get("lane")).collect();
            self.store.lanes.learn_lanes(&self.link, &lanes).await?;
            let mut moved = Vec::new();
            let Some(at) = rows.first().map(Places::of) else { break };
            for row in &rows {
                let state: Option<i16> = row.get("state");
                let seq: i64 = row.get(at.seq);
                match state.and_then(|state| u8::try_from(state).ok()).and_then(State::from_number) {
                    Some(state) if state.is_terminal() || state == State::Pending || self.locked.contains(&seq) => {
                        let entry = rows::entry(row, &at, &self.store.lanes, self.now)?;
                        self.ids.insert(entry.job.id, seq);
                        self.was.insert(seq, entry.job.state);
                        self.entries.insert(seq, entry);
                    }
                    Some(_) | None => moved.push(seq),
                }
            }
            wanted = moved;
        }
        Ok(())
    }

    // Edges.

    /// Loads the edges that lead to these jobs, and the jobs that they come from: the dependents.
    pub(super) async fn load_dependents(&mut self, seqs: &[i64]) -> Result<(), Fault> {
        let wanted: Vec<i64> = seqs.iter().copied().filter(|seq| self.parents_loaded.insert(*seq)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let rows = self.link.query(include_str!("sql/edge_by_parent.sql"), &[&wanted]).await?;
        let children: Vec<i64> = rows.iter().map(|row| row.get("child")).collect();
        self.keep_edges(&rows);
        self.load_seqs(children).await
    }

    /// Loads the edges that come from these jobs: their dependencies.
    pub(super) async fn load_dependencies(&mut self, seqs: &[i64]) -> Result<(), Fault> {
        let wanted: Vec<i64> = seqs.iter().copied().filter(|seq| self.children_loaded.insert(*seq)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let rows = self.link.query(include_str!("sql/edge_by_child.sql"), &[&wanted]).await?;
        self.keep_edges(&rows);
        Ok(())
    }

    fn keep_edges(&mut self, rows: &[Row]) {
        for row in rows {
            let edge: Edge = (row.get("parent"), row.get("child"), row.get("kind"));
            if !self.edges_dirty.contains(&edge) {
                self.edges.insert(edge, row.get("open"));
                self.edges_by_child.insert((edge.1, edge.0, edge.2));
            }
        }
    }

    /// The loaded edges to a job, from its dependents.
    pub(super) fn dependents(&self, parent: i64) -> Vec<(Edge, bool)> {
        let range = (parent, i64::MIN, i16::MIN)..=(parent, i64::MAX, i16::MAX);
        self.edges.range(range).map(|(edge, open)| (*edge, *open)).collect()
    }

    /// The loaded edges from a job, to its dependencies.
    pub(super) fn dependencies(&self, child: i64) -> Vec<(Edge, bool)> {
        let range = (child, i64::MIN, i16::MIN)..=(child, i64::MAX, i16::MAX);
        let edges = self.edges_by_child.range(range).map(|(child, parent, kind)| (*parent, *child, *kind));
        edges.filter_map(|edge| Some((edge, self.edge(edge)?))).collect()
    }

    pub(super) fn edge(&self, edge: Edge) -> Option<bool> {
        self.edges.get(&edge).copied()
    }

    pub(super) fn set_edge(&mut self, edge: Edge, open: bool) {
        self.edges_by_child.insert((edge.1, edge.0, edge.2));
        if self.edges.insert(edge, open) != Some(open) {
            self.edges_dirty.insert(edge);
        }
    }

    /// The dependents of a job that exist and are loaded, each once.
    pub(super) fn dependent_seqs(&self, parent: i64) -> Vec<i64> {
        let mut seqs: Vec<i64> = self.dependents(parent).into_iter().map(|(edge, _)| edge.1).collect();
        seqs.dedup();
        seqs.retain(|seq| self.entries.contains_key(seq));
        seqs
    }

    /// An unfinished job that depends on this one, which must therefore be kept (O4).
    pub(super) async fn needed_by(&mut self, seq: i64) -> Result<Option<JobId>, Fault> {
        self.load_dependents(&[seq]).await?;
        let dependents = self.dependent_seqs(seq);
        let jobs = dependents.into_iter().map(|seq| &self.entry(seq).job);
        Ok(jobs.filter(|job| !job.state.is_terminal()).map(|job| job.id).next())
    }

    pub(super) fn known(&self, id: JobId) -> Result<&Entry, Error> {
        self.by_id(id).ok_or_else(|| Error::no_such_job(id))
    }
}

/// The number that is stored for a kind of dependency.
pub(super) fn kind_number(kind: DependencyKind) -> i16 {
    match kind {
        DependencyKind::After => 0,
        DependencyKind::AfterAny => 1,
        DependencyKind::AfterAll => 2,
        DependencyKind::FanInSuccess => 3,
        DependencyKind::FanInDone => 4,
    }
}

/// The kind of dependency that a number stands for.
pub(super) fn kind_of(number: i16) -> Result<DependencyKind, Fault> {
    match number {
        0 => Ok(DependencyKind::After),
        1 => Ok(DependencyKind::AfterAny),
        2 => Ok(DependencyKind::AfterAll),
        3 => Ok(DependencyKind::FanInSuccess),
        4 => Ok(DependencyKind::FanInDone),
        _ => Err(rows::corrupt("a kind of dependency that is none")),
    }
}
