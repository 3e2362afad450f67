//! Who depends on whom, as it is stored.

use rusqlite::{OptionalExtension, params};

use super::columns::{kind_number, kind_of};
use super::fault::Answer;
use super::hot_statements::HotStatement;
use super::transaction::Transaction;
use crate::job::DependencyKind;

/// The number of the job at the other end, how one depends on the other, and whether it still waits.
type StoredEdge = (i64, DependencyKind, bool);

impl Transaction<'_> {
    /// Whether any job depends on another: asked once, because most stores have no such job.
    fn has_edges(&mut self) -> Answer<bool> {
        if let Some(any) = self.any_edge {
            return Ok(any);
        }
        let any = self.statement(include_str!("sql/has_edges.sql"))?.query_row([], |row| row.get(0))?;
        self.any_edge = Some(any);
        Ok(any)
    }

    /// Lets a job depend on another.
    pub(super) fn add_edge(&mut self, parent: i64, seq: i64, kind: DependencyKind, open: bool) -> Answer<()> {
        self.any_edge = Some(true);
        let edge = params![parent, seq, kind_number(kind), open];
        self.statement(include_str!("sql/add_edge.sql"))?.execute(edge)?;
        Ok(())
    }

    /// Whether any job waits for this one.
    pub(super) fn is_waited_for(&mut self, seq: i64) -> Answer<bool> {
        if !self.has_edges()? {
            return Ok(false);
        }
        let mut statement = self.take_statement(HotStatement::IsWaitedFor)?;
        let waits = statement.query_row([seq], |row| row.get(0))?;
        self.give_statement_back(HotStatement::IsWaitedFor, statement);
        Ok(waits)
    }

    /// The jobs that depend on this one.
    pub(super) fn dependents(&mut self, seq: i64) -> Answer<Vec<StoredEdge>> {
        if !self.has_edges()? {
            return Ok(Vec::new());
        }
        self.list_edges(include_str!("sql/list_dependents.sql"), seq)
    }

    /// The jobs that this one depends on.
    pub(super) fn dependencies(&self, seq: i64) -> Answer<Vec<StoredEdge>> {
        self.list_edges(include_str!("sql/list_dependencies.sql"), seq)
    }

    fn list_edges(&self, sql: &str, seq: i64) -> Answer<Vec<StoredEdge>> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query([seq])?;
        let mut edges = Vec::new();
        while let Some(row) = rows.next()? {
            edges.push((row.get("other_end")?, kind_of(row.get("kind")?)?, row.get("open")?));
        }
        Ok(edges)
    }

    /// Whether an unfinished job depends on this one, which must therefore be kept (O4).
    pub(super) fn is_needed(&self, seq: i64) -> Answer<bool> {
        let mut statement = self.statement(include_str!("sql/get_unfinished_dependent.sql"))?;
        Ok(statement.query_row([seq], |_| Ok(())).optional()?.is_some())
    }
}
