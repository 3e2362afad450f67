//! What the rules over several jobs work on: jobs, dependencies and keys, loaded as the rules ask for them.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::driver_row::Row;
use super::fault::Fault;
use super::insert_graph::KeyColumns;
use super::job_rows::{self, JobColumns, JobRow, Note};
use super::transaction::Transaction;
use crate::job::{DependencyKind, JobId, JobRecord, LeaseKey, Outcome, State, Until};
use crate::store::rules::{Edge, KeyUse, Missing, WorkingSet};
use crate::time::Timestamp;
use crate::workflow::{Held, Identity};

/// A working set, and what only this store knows of the jobs in it.
pub(super) struct Working {
    pub(super) set: WorkingSet,
    pub(super) notes: HashMap<JobId, Note>,
    /// The jobs that were looked for by sequence, and their ids if they exist.
    ids: HashMap<i64, JobId>,
    looked_for: HashSet<i64>,
}

impl Working {
    pub(super) fn new(now: Timestamp) -> Self {
        Working { set: WorkingSet::new(now), notes: HashMap::new(), ids: HashMap::new(), looked_for: HashSet::new() }
    }

    fn put(&mut self, row: JobRow) {
        let JobRow { entry, note } = row;
        self.ids.insert(entry.sequence, entry.job.id);
        self.notes.insert(entry.job.id, note);
        self.set.put(entry);
    }

    /// The jobs with these sequences that were found, in this order.
    fn ids(&self, seqs: &[i64]) -> Vec<JobId> {
        seqs.iter().filter_map(|seq| self.ids.get(seq).copied()).collect()
    }
}

/// Which end of dependencies is given, and which is looked for.
#[derive(Clone, Copy)]
enum Side {
    Dependents,
    Dependencies,
}

impl Transaction<'_> {
    /// Loads what a rule lacks.
    pub(super) async fn load(&mut self, working: &mut Working, missing: Missing) -> Result<(), Fault> {
        match missing {
            Missing::Jobs(ids) => self.load_jobs(working, &ids).await,
            Missing::Dependents(ids) => self.load_edges(working, &ids, Side::Dependents).await,
            Missing::Dependencies(ids) => self.load_edges(working, &ids, Side::Dependencies).await,
            Missing::Keys(keys) => self.load_keys(working, keys).await,
            Missing::Attempt(key, outcome) => self.load_attempt(working, key, outcome).await,
            Missing::Identities(count) => self.draw_identities(working, count).await,
        }
    }

    /// Loads and holds the jobs with these ids that exist, and notes which do not.
    pub(super) async fn load_jobs(&mut self, working: &mut Working, ids: &[JobId]) -> Result<(), Fault> {
        let wanted: Vec<JobId> = ids.iter().copied().filter(|id| !working.set.has(*id)).collect();
        let uuids: Vec<Uuid> = wanted.iter().map(|id| id.as_uuid()).collect();
        let seqs = self.store.sequences(&uuids);
        self.load_sequences(working, &seqs, |_| {}).await?;
        wanted.into_iter().for_each(|id| working.set.put_absent(id));
        Ok(())
    }

    /// Loads and holds the jobs with these sequences, and shows each that it loads; gives the ids of those that exist.
    pub(super) async fn load_sequences(
        &mut self,
        working: &mut Working,
        seqs: &[i64],
        mut show: impl FnMut(&JobRecord) + Send,
    ) -> Result<Vec<JobId>, Fault> {
        let mut wanted: Vec<i64> = seqs.iter().copied().filter(|seq| working.looked_for.insert(*seq)).collect();
        let mut locked: HashSet<i64> = HashSet::new();
        // A job that a claim moves between the two statements is looked for again, where it then is.
        while !wanted.is_empty() {
            // All transactions lock in one order.
            wanted.sort_unstable();
            let rows = self.link.query(include_str!("sql/lock_jobs.sql"), &[&wanted]).await?;
            locked.extend(rows.iter().map(|row| row.get::<_, i64>("seq")));
            let rows = self.link.query(include_str!("sql/get_job.sql"), &[&wanted]).await?;
            wanted.clear();
            let lanes: Vec<i32> = rows.iter().map(|row| row.get("lane")).collect();
            self.store.lanes.learn_lanes(&self.link, &lanes).await?;
            let Some(columns) = rows.first().map(JobColumns::of) else { break };
            for row in &rows {
                let (seq, state): (i64, Option<i16>) = (row.get("seq"), row.get("state"));
                match state.and_then(|state| u8::try_from(state).ok()).and_then(State::from_number) {
                    Some(state) if state.is_terminal() || state == State::Pending || locked.contains(&seq) => {
                        let row = job_rows::job_row(row, &columns, &self.store, self.now)?;
                        show(&row.entry.job);
                        working.put(row);
                    }
                    Some(_) | None => wanted.push(seq),
                }
            }
        }
        Ok(working.ids(seqs))
    }

    /// Loads the dependencies on one side of these jobs, and the jobs at their other ends.
    async fn load_edges(&mut self, working: &mut Working, ids: &[JobId], side: Side) -> Result<(), Fault> {
        let uuids: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        let seqs = self.store.sequences(&uuids);
        let known: HashMap<i64, JobId> = seqs.iter().copied().zip(ids.iter().copied()).collect();
        let (statement, other_end) = match side {
            Side::Dependents => (include_str!("sql/list_dependents.sql"), "child"),
            Side::Dependencies => (include_str!("sql/list_dependencies.sql"), "parent"),
        };
        let rows = self.link.query(statement, &[&seqs]).await?;
        let others: Vec<i64> = rows.iter().map(|row| row.get(other_end)).collect();
        self.load_sequences(working, &others, |_| {}).await?;
        for row in &rows {
            let id = |seq: i64| known.get(&seq).or_else(|| working.ids.get(&seq)).copied();
            // The edge of a job that is gone no longer matters.
            let (Some(parent), Some(child)) = (id(row.get("parent")), id(row.get("child"))) else { continue };
            let edge = Edge { parent, child, kind: kind_of(row.get("kind"))? };
            working.set.put_edge(edge, row.get("open"));
        }
        for id in ids {
            match side {
                Side::Dependents => working.set.know_dependents(*id),
                Side::Dependencies => working.set.know_dependencies(*id),
            }
        }
        Ok(())
    }

    async fn load_keys(&mut self, working: &mut Working, keys: Vec<KeyUse>) -> Result<(), Fault> {
        let columns = KeyColumns::of(keys.iter());
        let rows = self.link.query(include_str!("sql/find_key.sql"), &columns.with(&self.now.as_micros())).await?;
        let mut held: HashMap<i64, Held> = HashMap::with_capacity(rows.len());
        for row in &rows {
            held.insert(row.get("place"), held_by(row)?);
        }
        drop(columns);
        // Places count from 1, as in SQL.
        for (place, key) in (1..).zip(keys) {
            working.set.put_key(key, held.get(&place).copied());
        }
        Ok(())
    }

    /// Whether an attempt under this lease was closed with this outcome (L4).
    async fn load_attempt(&mut self, working: &mut Working, key: LeaseKey, outcome: Outcome) -> Result<(), Fault> {
        let completed_by = working.notes.get(&key.job).and_then(|note| note.completed_by.as_ref());
        let was_closed = match completed_by {
            // The attempt that completes a job is kept with its end.
            Some((token, _)) if *token == key.token => outcome == Outcome::Completed,
            _ => {
                let seq = self.store.sequences(&[key.job.as_uuid()])[0];
                let parameters: [super::link::Parameter<'_>; 2] = [&seq, &i16::from(outcome.number())];
                let rows = self.link.query(include_str!("sql/find_attempt.sql"), &parameters).await?;
                rows.iter().any(|row| self.store.tokens().token(seq, row.get("token")) == key.token)
            }
        };
        working.set.put_attempt(key, outcome, was_closed);
        Ok(())
    }

    async fn draw_identities(&mut self, working: &mut Working, count: usize) -> Result<(), Fault> {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        for row in self.link.query(include_str!("sql/draw_sequences.sql"), &[&count]).await? {
            let sequence = row.get("seq");
            working.set.put_identity(Identity { sequence, id: self.store.draw_id().id(sequence) });
        }
        Ok(())
    }
}

/// What a row of `find_key.sql` says of a key.
pub(super) fn held_by(row: &Row) -> Result<Held, Fault> {
    Ok(Held {
        id: JobId::from_uuid(row.get("job")),
        matches: row.get("matches"),
        until: until(row.get("until"))?,
        first_at: job_rows::time(row.get("first_at")),
    })
}

/// What the stored number of a key's `until` stands for.
pub(super) fn until(number: i16) -> Result<Until, Fault> {
    let until = u8::try_from(number).ok().and_then(Until::from_number);
    until.ok_or_else(|| job_rows::corrupt("a key that holds until nothing"))
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
        _ => Err(job_rows::corrupt("a kind of dependency that is none")),
    }
}
