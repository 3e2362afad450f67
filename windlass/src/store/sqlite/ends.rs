//! What the end of a job does to the jobs that depend on it, all in one transaction (W4, X3).

use rusqlite::{OptionalExtension, params};

use super::columns::{kind_number, kind_of};
use super::fault::{Answer, Fault};
use super::held::Hold;
use super::insert::Origin;
use super::rows::{FLAG_CALLBACK, Stored};
use super::tx::Tx;
use crate::job::{DependencyKind, JobId, Outcome, State, Verdict};
use crate::store::answer::Wake;
use crate::workflow::graph::{self, Edge, Waits};
use crate::workflow::{Submission, webhook_of};

impl Tx<'_> {
    /// Applies a decision to a job and everything that follows from it.
    pub(super) fn end(&mut self, seq: i64, verdict: &Verdict, outcome: Outcome) -> Answer<State> {
        let mut stored = self.known(seq)?;
        let state = self.apply(&mut stored, verdict, outcome)?;
        if state.is_terminal() {
            self.conclude(stored)?;
        }
        Ok(state)
    }

    /// A job that another row names, and which must therefore exist.
    pub(super) fn known(&mut self, seq: i64) -> Answer<Stored> {
        self.load(seq)?.ok_or_else(|| Fault::broken(format!("job number {seq} is named but does not exist")))
    }

    /// Tells the world that a job has ended: its webhook, and the jobs that wait for it, on through the graph.
    pub(super) fn conclude(&mut self, stored: Stored) -> Answer<()> {
        let mut ended = vec![stored];
        while let Some(stored) = ended.pop() {
            let job = &stored.job;
            self.hint(Wake::Ended(job.id));
            if stored.flags & FLAG_CALLBACK != 0
                && let Some(spec) = webhook_of(job)
            {
                let submission = Submission::new(vec![spec])?;
                self.insert_from(&submission, &Origin::default())?;
            }
            self.tell_dependents(stored.seq, job.state, job.root_cause(), &mut ended)?;
        }
        Ok(())
    }

    /// Tells those that wait for a job that it has ended; those that die of it are added to `ended`.
    pub(super) fn tell_dependents(
        &mut self,
        seq: i64,
        end: State,
        cause: JobId,
        ended: &mut Vec<Stored>,
    ) -> Answer<()> {
        let edges = self.open_edges(seq)?;
        if edges.is_empty() {
            return Ok(());
        }
        self.statement(include_str!("sql/close_edges.sql"))?.execute([seq])?;
        for told in edges.chunk_by(|one, next| one.0 == next.0) {
            let kinds: Vec<DependencyKind> = told.iter().map(|(_, kind)| *kind).collect();
            if let Some(dead) = self.tell(told[0].0, &kinds, end, cause)? {
                ended.push(dead);
            }
        }
        Ok(())
    }

    /// Whether any job depends on another: asked once, because most stores have no such job.
    fn any_edge(&mut self) -> Answer<bool> {
        if let Some(any) = self.any_edge {
            return Ok(any);
        }
        let any = self.statement(include_str!("sql/any_edge.sql"))?.query_row([], |row| row.get(0))?;
        self.any_edge = Some(any);
        Ok(any)
    }

    /// Lets a job depend on another; whether it did not before.
    pub(super) fn add_edge(&mut self, parent: i64, seq: i64, kind: DependencyKind, open: bool) -> Answer<bool> {
        self.any_edge = Some(true);
        let edge = params![parent, seq, kind_number(kind), open];
        Ok(self.statement(include_str!("sql/add_edge.sql"))?.execute(edge)? == 1)
    }

    /// The jobs that wait for this one, and how.
    pub(super) fn open_edges(&mut self, parent: i64) -> Answer<Vec<(i64, DependencyKind)>> {
        if !self.any_edge()? {
            return Ok(Vec::new());
        }
        let mut statement = self.take(Hold::OpenEdges)?;
        let mut rows = statement.query([parent])?;
        let mut edges = Vec::new();
        while let Some(row) = rows.next()? {
            edges.push((row.get(0)?, kind_of(row.get(1)?)?));
        }
        drop(rows);
        self.give(Hold::OpenEdges, statement);
        Ok(edges)
    }

    /// Tells a dependent that a job it waits for has ended; gives it back if it died of that.
    fn tell(&mut self, dependent: i64, kinds: &[DependencyKind], end: State, cause: JobId) -> Answer<Option<Stored>> {
        let mut statement = self.statement(include_str!("sql/get_waits.sql"))?;
        let read = |row: &rusqlite::Row<'_>| Ok(Waits { all: row.get(0)?, any: row.get(1)? });
        let Some(mut waits) = statement.query_row([dependent], read).optional()? else { return Ok(None) };
        let mut death = None;
        for kind in kinds {
            match graph::edge(*kind, end, cause) {
                Edge::Met => waits.all = waits.all.saturating_sub(1),
                Edge::AnyMet => waits.any = false,
                Edge::Dies(verdict) => death = Some(verdict),
            }
        }
        if let Some(verdict) = death {
            let mut stored = self.known(dependent)?;
            self.apply(&mut stored, &verdict, Outcome::Revoked)?;
            return Ok(Some(stored));
        }
        if waits.is_over() {
            let mut stored = self.known(dependent)?;
            stored.waits = waits;
            stored.job.dependencies_met(self.now).map_err(|error| Fault::broken(error.to_string()))?;
            self.put(&mut stored)?;
        } else {
            let told = params![dependent, waits.all, waits.any];
            self.statement(include_str!("sql/set_waits.sql"))?.execute(told)?;
        }
        Ok(None)
    }

    /// An unfinished job that depends on this one, which must therefore be kept (O4).
    pub(super) fn needed_by(&self, seq: i64) -> Answer<Option<JobId>> {
        let mut statement = self.statement(include_str!("sql/needed_by.sql"))?;
        let found: Option<[u8; 16]> = statement.query_row([seq], |row| row.get(0)).optional()?;
        Ok(found.map(|id| JobId::from_uuid(uuid::Uuid::from_bytes(id))))
    }
}
