//! Who depends on whom.

use std::collections::HashMap;

use crate::job::{DependencyKind, JobId};

/// That one job depends on another in a certain way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Edge {
    /// The job that is waited for.
    pub parent: JobId,
    /// The job that waits.
    pub child: JobId,
    /// What counts as done, and what a bad end does.
    pub kind: DependencyKind,
}

/// Dependencies, each open until the job that is waited for has ended. Found from both sides.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    open: HashMap<Edge, bool>,
    by_parent: HashMap<JobId, Vec<Edge>>,
    by_child: HashMap<JobId, Vec<Edge>>,
}

impl Edges {
    /// Whether an edge is open; `None` when there is no such edge.
    pub fn get(&self, edge: Edge) -> Option<bool> {
        self.open.get(&edge).copied()
    }

    /// Adds an edge, or opens or closes it; gives what it was.
    pub fn set(&mut self, edge: Edge, open: bool) -> Option<bool> {
        let was = self.open.insert(edge, open);
        if was.is_none() {
            self.by_parent.entry(edge.parent).or_default().push(edge);
            self.by_child.entry(edge.child).or_default().push(edge);
        }
        was
    }

    /// The edges to the jobs that depend on this one, and whether each is open.
    pub fn dependents(&self, parent: JobId) -> impl Iterator<Item = (Edge, bool)> {
        self.by_parent.get(&parent).into_iter().flatten().map(|edge| (*edge, self.open[edge]))
    }

    /// The edges to the jobs that this one depends on, and whether each is open.
    pub fn dependencies(&self, child: JobId) -> impl Iterator<Item = (Edge, bool)> {
        self.by_child.get(&child).into_iter().flatten().map(|edge| (*edge, self.open[edge]))
    }

    /// Forgets the edges of a job, in both directions.
    pub fn remove(&mut self, job: JobId) {
        for edge in self.by_parent.remove(&job).unwrap_or_default() {
            self.open.remove(&edge);
            drop_edge(&mut self.by_child, edge.child, edge);
        }
        for edge in self.by_child.remove(&job).unwrap_or_default() {
            self.open.remove(&edge);
            drop_edge(&mut self.by_parent, edge.parent, edge);
        }
    }
}

fn drop_edge(side: &mut HashMap<JobId, Vec<Edge>>, job: JobId, edge: Edge) {
    if let Some(edges) = side.get_mut(&job) {
        edges.retain(|other| *other != edge);
        if edges.is_empty() {
            side.remove(&job);
        }
    }
}
